// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/subject.h"
#include "oracles/exact/exact.h"
#include "properties/sweep.h"
#include "properties/triage/counterfactual.h"
#include "properties/triage/triage.h"

namespace qualm::triage {
namespace {

// Elements of a counterfactual that agree with the subject where the exact result does not.
struct Match {
  int64_t explained = 0;
  bool complete = false;
};

Match Compare(const Tensor& exact_y, const Tensor& actual, const Tensor& counterfactual) {
  Match match;
  match.complete = counterfactual == actual;
  for (int64_t i = 0; i < actual.size(); ++i) {
    if (actual.BitsAt(i) == exact_y.BitsAt(i)) continue;
    if (counterfactual.BitsAt(i) == actual.BitsAt(i)) ++match.explained;
  }
  return match;
}

std::string Sentence(std::span<const SwapInfo* const> swaps) {
  std::string text = "the subject ";
  for (size_t i = 0; i < swaps.size(); ++i) {
    text += (i == 0 ? "" : " and ") + std::string(swaps[i]->sentence);
  }
  return text;
}

std::string Names(std::span<const SwapInfo* const> swaps) {
  std::string text;
  for (const SwapInfo* info : swaps) {
    text += (text.empty() ? "" : " + ") + std::string(info->name);
  }
  return text;
}

// All departures in the last (count mod width) columns, width a usual vector length.
int64_t TailWidth(const Case& c, const Tensor& exact_y, const Tensor& actual) {
  int64_t first = c.N;
  for (int64_t i = 0; i < actual.size(); ++i) {
    if (actual.BitsAt(i) != exact_y.BitsAt(i)) first = std::min(first, i % c.N);
  }
  for (int64_t width : {64, 32, 16, 8, 4}) {
    if (c.N > width && c.N % width != 0 && first >= c.N - c.N % width) return width;
  }
  return 0;
}

}  // namespace

Attribution Attribute(const Case& c, const Tensor& actual) {
  Attribution attribution;
  const Tensor exact_y = exact::Evaluate(c);
  if (actual == exact_y) {
    attribution.diagnosis = "the output is exact";
    return attribution;
  }
  int64_t departures = 0;
  for (int64_t i = 0; i < actual.size(); ++i) {
    departures += actual.BitsAt(i) != exact_y.BitsAt(i) ? 1 : 0;
  }

  struct Partial {
    int64_t explained = 0;
    std::vector<const SwapInfo*> swaps;
  } best;
  const auto replay = [&](const std::vector<const SwapInfo*>& swaps) {
    std::vector<Swap> list;
    for (const SwapInfo* info : swaps) list.push_back(info->swap);
    const std::optional<Tensor> y = Counterfactual(c, list);
    if (!y) return false;
    const Match match = Compare(exact_y, actual, *y);
    if (match.explained > best.explained) best = {match.explained, swaps};
    if (!match.complete) return false;
    attribution.kind = swaps.front()->kind;
    attribution.diagnosis = Sentence(swaps);
    attribution.evidence.push_back("exact arithmetic with " + Names(swaps) + " reproduces all " +
                                   std::to_string(actual.size()) + " outputs (" +
                                   std::to_string(departures) + " of them not exact)");
    return true;
  };
  for (const SwapInfo& info : AllSwaps()) {
    if (replay({&info})) return attribution;
  }
  // Accumulation and operands first: they decide the kind where two swaps are needed.
  for (const SwapInfo& first : AllSwaps()) {
    for (const SwapInfo& second : AllSwaps()) {
      if (&second <= &first || second.stage == first.stage) continue;
      if (replay({&first, &second})) return attribution;
    }
  }
  if (const int64_t width = TailWidth(c, exact_y, actual); width != 0) {
    attribution.kind = FindingKind::kTail;
    attribution.diagnosis = "only the last N % " + std::to_string(width) + " outputs are wrong";
    return attribution;
  }
  if (best.explained > 0 && 2 * best.explained >= departures) {
    attribution.kind = best.swaps.front()->kind;
    attribution.diagnosis = Sentence(best.swaps) + ", and something else";
    attribution.evidence.push_back("exact arithmetic with " + Names(best.swaps) + " reproduces " +
                                   std::to_string(best.explained) + " of the " +
                                   std::to_string(departures) + " outputs that are not exact");
    return attribution;
  }
  attribution.diagnosis = "no swap of one or two stages reproduces the output";
  return attribution;
}

Attribution Attribute(const Case& c, const Verdict& verdict, Subject& subject) {
  if (verdict.kind) return {*verdict.kind, verdict.reason, {}};
  // A property may fail on a case derived from this one; the sweep is the derived case that
  // matters.
  std::vector<Case> candidates{ProblemOf(c)};
  if (c.op == Op::kLinear && c.out_dtype != DType::kF32 && c.N > 0) {
    const CodeRange range = RangeOf(c.x.dtype());
    candidates.push_back(sweep::Expand(c, sweep::Codes(c, range.min, range.max, 1)));
  }
  Attribution attribution;
  for (const Case& candidate : candidates) {
    if (!subject.CannotRun(candidate).empty()) continue;
    const Outcome outcome = subject.Run(candidate, RunContext{});
    if (!outcome.ok()) continue;
    attribution = Attribute(candidate, outcome.y);
    if (attribution.kind != FindingKind::kUnknown) return attribution;
  }
  return attribution;
}

}  // namespace qualm::triage
