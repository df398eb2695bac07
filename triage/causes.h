// SPDX-License-Identifier: Apache-2.0
// Well-known ways in which a kernel computes something else than the exact result. Attribution
// replays a failing case with each of them and looks for the smallest set that gives what the
// subject answered.
#ifndef QUALM_TRIAGE_CAUSES_H_
#define QUALM_TRIAGE_CAUSES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/case.h"
#include "core/verdict.h"

namespace qualm::triage {

struct Stages;

// Where in the computation a cause acts. Two causes of one stage exclude each other.
enum class CauseStage : uint8_t {
  kOperands,
  kGeometry,
  kPadding,
  kTail,
  kAccumulate,
  kOffset,
  kBias,
  kIndex,
  kRound,
  kClamp
};

struct Cause {
  CauseStage stage;
  FindingKind kind;
  std::string_view name;
  std::string_view sentence;       // what the subject does: "ignores the relu"
  bool (*applies)(const Case&);    // to the case as it was given
  bool (*change)(Stages& stages);  // edits the case or sets a hook; false if that changes nothing

  // In the words of an operation: of an input and weights, or of operands a and b.
  std::string NameFor(Op op) const;
  std::string SentenceFor(Op op) const;
};

// The likelier cause first: where several give the same output, the first one is named.
std::span<const Cause> AllCauses();
// By its name for an input and weights.
const Cause& CauseNamed(std::string_view name);

// The output with these causes, at most one of each stage; nullopt where one of them does not apply
// or changes nothing.
std::optional<Tensor> Counterfactual(const Case& c, std::span<const Cause* const> causes);
std::optional<Tensor> Counterfactual(const Case& c, const Cause& cause);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_CAUSES_H_
