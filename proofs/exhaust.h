// SPDX-License-Identifier: Apache-2.0
// Judges a subject on every input of a domain. Two engines that check each other:
//   - `steps` finds each step of the subject by bisection and compares it with the exact one. It
//     asks some hundred inputs, and speaks for all of them if the subject rises.
//   - `full` asks every input. The expected value comes from the exact steps, or is computed for
//     each input by itself.
#ifndef QUALM_PROOFS_EXHAUST_H_
#define QUALM_PROOFS_EXHAUST_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/subject.h"
#include "proofs/domain.h"
#include "proofs/reference.h"

namespace qualm::proofs {

// Outputs [first, last).
struct Range {
  uint64_t first = 0, last = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

// An output that is not the expected one. Values are bits for f32 outputs, else integers.
struct Wrong {
  uint64_t number = 0;
  int64_t expected = 0, actual = 0;
  uint64_t distance = 0;  // in codes; for f32 outputs in representable values
  bool nan = false;       // the input is a NaN
  friend bool operator==(const Wrong&, const Wrong&) = default;
};

struct Tally {
  uint64_t judged = 0;  // outputs the result speaks for
  uint64_t asked = 0;   // outputs the subject was asked for
  uint64_t falls = 0;   // steps: where the subject falls, and is taken to rise on both sides
  uint64_t wrong = 0, wrong_nan = 0;  // all; those of NaN inputs
  // The wrong input with the lowest number, and the most distant one; NaN only if no other.
  std::optional<Wrong> first, worst;
  // Why this proves nothing: "STATUS: why" of a subject that gave no answer (Name(RunStatus)),
  // that it falls too often to have steps, or that intervals do not show them.
  std::string failed;

  void Add(const Wrong& found, uint64_t times = 1);
  // The tally of two ranges; the result does not depend on their order.
  void Merge(const Tally& other);
  friend bool operator==(const Tally&, const Tally&) = default;
};

// For domains with Domain::Rising(). With `intervals` nothing is assumed: the subject's arithmetic,
// evaluated on intervals (core/enclosure.h), must give the steps that were found.
Tally BySteps(const Domain& domain, Reference& reference, Subject& subject, bool intervals = false);

struct FullOptions {
  bool each = false;      // expect what each input gives by itself, not the steps
  uint64_t per_call = 0;  // outputs of one call of the subject; 0: as suits it
  // Called after each call with the outputs done so far; false ends the run.
  std::function<bool(const Tally& so_far, uint64_t done)> progress;
};
Tally InFull(const Domain& domain, Reference& reference, Subject& subject, Range range,
             const FullOptions& options);

// Whether the outputs of the domain are steps, so that BySteps can speak for them.
bool HasSteps(const Domain& domain);

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_EXHAUST_H_
