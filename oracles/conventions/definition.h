// SPDX-License-Identifier: Apache-2.0
// A convention as a list of named steps. Running a case and tracing one output walk the same list,
// so a trace cannot disagree with the output it explains, and another rounding is another line in a
// family's table.
#ifndef QUALM_ORACLES_CONVENTIONS_DEFINITION_H_
#define QUALM_ORACLES_CONVENTIONS_DEFINITION_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "oracles/conventions/accumulation.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/families.h"
#include "oracles/conventions/requirements.h"
#include "oracles/conventions/steps.h"
#include "oracles/trace.h"

namespace qualm::conventions {

// Every product counts, in an int32 that wraps: the accumulation of most libraries.
inline Accumulation ExactSums(const Case& /*any*/) { return {}; }

struct Definition {
  std::string name;
  std::string description;
  std::string source;
  bool pair_saturates = false;
  std::vector<std::string> satisfies;
  std::vector<std::string> variations;  // ids of oracles/conventions/variations.h
  // Every other operation is refused: "this convention has no OP".
  std::vector<Op> ops;
  // Whether it takes codes of 16 bits where an operation has them: all but linear and convolutions,
  // and these. Sums of x of 16 bits come from `gather`, bias included.
  bool wide_codes = false, wide_sums = false;
  // Codes of fewer than 8 bits, beside the bytes of weights; scales of blocks of a row, where the
  // same steps take them.
  bool small_codes = false, element_blocks = false;
  // Why a case of one of `ops` is refused, "" where it is not.
  std::function<std::string(const Case&)> cannot_run;
  // How linear and convolutions add. Empty: `gather` brings their outputs, and there are no
  // accumulators.
  std::function<Accumulation(const Case&)> accumulation;
  std::function<Channel(const Case&, int64_t channel)> channel;
  // Optional: makes the value that the steps begin with (pools, rows, sums in floating point), and
  // notes it in `trace` if given. Where it gives nullopt, the steps begin with the element of x.
  // One is made for each run of a case, so it may keep what the outputs of a row share.
  using Gatherer = std::function<std::optional<Value>(int64_t index, Trace* trace)>;
  std::function<Gatherer(const Case&)> gather;
  // The steps from a sum without its zero points (with them, where Accumulation::lossy_how is
  // empty) to the output; without sums, from the input.
  std::function<std::vector<Step>(const Case&)> steps;
  // Optional, if the tail of a vector loop computes differently: elements from `body` on go through
  // tail_steps.
  std::function<int64_t(const Case&)> body;
  std::function<std::vector<Step>(const Case&)> tail_steps;
};

// A gatherer that makes each output's value alone, by `make`, and keeps nothing.
Definition::Gatherer EachAlone(const Case& c, Value (*make)(const Case&, int64_t, Trace*));

Convention MakeConvention(Definition definition);
// Adds the operation of `one`, with the claims and variations of `one`, to the convention `all`.
void AddOperation(Convention& all, Convention one);
// The same, with s2 and s4 weights of linear beside signed codes, whose numbers it, and for s4
// `nibbles`, computes with as with those of s8.
Convention WithNarrowWeights(Convention bytes, Convention nibbles);
// Sorts by number, V2 before V10, and drops repetitions.
void SortVariations(std::vector<std::string>& ids);

// Appends to a list of claims or variations.
void Append(std::vector<std::string>& list, std::initializer_list<const char*> more);
// Adds the claims about windows that hold for convolutions with exact sums.
void AddExactConvClaims(std::vector<std::string>& satisfies);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_DEFINITION_H_
