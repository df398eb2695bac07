// SPDX-License-Identifier: Apache-2.0
// How one output came about, step by step. The exact oracle and every convention emit the same
// stages in their own order, so that `explain` can lay them side by side and stop at the first
// difference.
#ifndef QUALM_ORACLES_TRACE_H_
#define QUALM_ORACLES_TRACE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qualm {

enum class Stage : uint8_t { kAccumulate, kOffset, kBias, kScale, kRound, kZeroPoint, kClamp };
std::string_view Name(Stage stage);  // "accumulate", "offset", ...

struct TraceStep {
  Stage stage = Stage::kAccumulate;
  std::string text;    // one sentence with the numbers: "pair k=(0,1): 255*127 + 255*2 = 32895 ->
                       // 32767, lost 128"
  std::string value;   // the value after the step, exact: integer, rational "p/q", or hex float
  bool lossy = false;  // this step departed from the exact value: saturated, wrapped, rounded early
};
using Trace = std::vector<TraceStep>;

}  // namespace qualm

#endif  // QUALM_ORACLES_TRACE_H_
