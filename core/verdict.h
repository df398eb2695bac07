// SPDX-License-Identifier: Apache-2.0
// What a property says about a case.
#ifndef QUALM_CORE_VERDICT_H_
#define QUALM_CORE_VERDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/case.h"

namespace qualm {

enum class Judgement : uint8_t {  // those that judged come first
  kPassed,
  kFailed,
  kExpected,       // failed, as a contract row, a baseline or a suppression declares
  kSkipped,        // the subject cannot do this case (reason says why)
  kVacuous,        // nothing here could have failed (reason says why)
  kNotApplicable,  // not a theorem under the subject's contract, or not for this op
};
std::string_view Name(Judgement judgement);  // "passed", ..., "not_applicable"
// Passed, failed or expected.
constexpr bool IsJudged(Judgement judgement) { return judgement <= Judgement::kExpected; }

// Where attribution puts the cause. Part of a finding's fingerprint.
enum class FindingKind : uint8_t {
  kPairSaturation,
  kInt32Overflow,
  kRounding,
  kTie,
  kTail,
  kPadding,
  kClamp,
  kZeroPoint,
  kIndex,
  kMemory,
  kNondeterminism,
  kCrash,
  kHang,
  kUnknown,
};
std::string_view Name(FindingKind kind);  // "pair-saturation", "int32-overflow", ...

// The first element (row-major) at which two outputs differ. Values are printed exactly: integers
// in decimal, floats as hex.
struct Divergence {
  int64_t index = 0;
  std::string expected;
  std::string actual;
  double distance_lsb = 0;  // |actual - expected| in output codes; ulps for f32 outputs
  friend bool operator==(const Divergence&, const Divergence&) = default;
};

// What decided about the outputs of cases that the contract "sum" or a tree judged: how many
// nothing could round, how many the bound of every order, how many nothing, because everything is
// accepted, and how many the bits of the tree.
struct SumGrades {
  int64_t window = 0;
  int64_t bound = 0;
  int64_t undecided = 0;
  int64_t tree = 0;
  int64_t all() const { return window + bound + undecided + tree; }
  void Add(const SumGrades& more);
  // "exact window 12, sound bound 3, undecided 1", or "tree 16"
  std::string text() const;
  friend bool operator==(const SumGrades&, const SumGrades&) = default;
};

struct Verdict {
  Judgement judgement = Judgement::kPassed;
  std::string reason;  // one sentence; empty only when passed
  std::optional<Divergence> divergence;
  // Set by properties that know the cause without attribution (memory, crash, hang, ...).
  std::optional<FindingKind> kind;
  std::optional<SumGrades> sums = {};  // of a case that was judged by "sum" or a tree

  static Verdict Passed() { return {}; }
  static Verdict Failed(std::string reason, std::optional<Divergence> divergence = std::nullopt) {
    return {Judgement::kFailed, std::move(reason), std::move(divergence), std::nullopt};
  }
  static Verdict Skipped(std::string reason) {
    return {Judgement::kSkipped, std::move(reason), std::nullopt, std::nullopt};
  }
  static Verdict Vacuous(std::string reason) {
    return {Judgement::kVacuous, std::move(reason), std::nullopt, std::nullopt};
  }
  static Verdict NotApplicable(std::string reason) {
    return {Judgement::kNotApplicable, std::move(reason), std::nullopt, std::nullopt};
  }
  bool failed() const { return judgement == Judgement::kFailed; }
};

// First difference of two outputs of the same type and shape; nullopt if they are bit-equal.
std::optional<Divergence> FirstDivergence(const Tensor& expected, const Tensor& actual);
// |actual - expected| of element i: in output codes, for f32 in representable values (both zeros
// are one).
double DistanceLsb(const Tensor& expected, const Tensor& actual, int64_t i);
// The distance of element i of `expected` from element j of `actual`.
double DistanceLsb(const Tensor& expected, int64_t i, const Tensor& actual, int64_t j);
// Element i as Divergence prints it.
std::string ElementText(const Tensor& tensor, int64_t i);

}  // namespace qualm

#endif  // QUALM_CORE_VERDICT_H_
