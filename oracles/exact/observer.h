// SPDX-License-Identifier: Apache-2.0
// choose_qparams: PyTorch's observers in float32, step by step (docs/quantization.md). There is no
// real result that is rounded once: the steps are the definition. Two forms: floats as the
// processor rounds them, and rationals that are rounded to float32 where a step says so. They share
// only the constants below.
//
// Source: PyTorch 1.13.1, torch/ao/quantization/observer.py and utils.py; of the operations behind
// it aten/src/ATen/native/cpu/HistogramKernel.cpp (torch.histc), SumKernel.cpp (torch.sum; vectors
// of eight, as on AVX2), BinaryOpsKernel.cpp (floor division) and ReduceOpsKernel.cpp (cumsum).
#ifndef QUALM_ORACLES_EXACT_OBSERVER_H_
#define QUALM_ORACLES_EXACT_OBSERVER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"

namespace qualm::exact {

namespace observer {

inline constexpr float kEps = 0x1p-23f;
inline constexpr int64_t kBins = 2048;     // of the histogram
inline constexpr int64_t kCodes = 256;     // codes that its search assumes, also with reduce_range
inline constexpr int64_t kUpsample = 128;  // parts of a bin where histograms are combined
inline constexpr double kStepSize = 1e-5;  // of the search, in parts of all values
inline constexpr int64_t kSumLanes = 8;    // torch.sum: elements of a vector,
inline constexpr int64_t kSumChains = 4;   // vectors added independently,
inline constexpr int64_t kSumBlock = 16;   // and additions in a row before a chain starts again

// The codes that a range is spread over: halved, rounding down, by reduce_range.
CodeRange Codes(const Observer& observer);
// Zero point of symmetric quantization.
int32_t SymmetricZeroPoint(const Observer& observer);

// The values that output column `m` describes: one row of batch `b`, or all of its rows.
std::span<const float> Values(const Case& c, int64_t b, int64_t m);

}  // namespace observer

// Smallest and largest value, as the observer has them when asked for qparams: after averaging,
// with the histogram before its search. One for each column of the output.
struct ObservedRange {
  float min = 0;
  float max = 0;
};
// The same range, widened to hold 0.
ObservedRange WithZero(ObservedRange range);
std::vector<ObservedRange> ObservedRanges(const Case& c);
// The range that remains after the search of a histogram.
ObservedRange SearchedRange(const Case& c);

// One observer, shown batches of any sizes. Recordings have two things that no case has: batches of
// several sizes, and symmetric u8 with reduce_range, which PyTorch allows its histogram observer.
struct ObserverResult {
  ObservedRange range;     // before the search of a histogram
  ObservedRange searched;  // after it
  float scale = 1.0f;
  int32_t zero_point = 0;
};
ObserverResult Observe(const Observer& observer, std::span<const std::span<const float>> batches);
// As the histogram observer of PyTorch 2.11 and 2.13 does: ranges are no longer cut to whole
// numbers, and an old histogram moves to the new grid by the middles of its bins' sixteenths.
ObserverResult ObserveHistogram2(const Observer& observer,
                                 std::span<const std::span<const float>> batches);

// The last step: from the range that the codes shall cover, already widened to hold 0, to scale and
// zero point. Counterfactuals also give ranges that no step before gives, or a smaller least scale,
// and then the scale may be 0.
struct ChosenQParams {
  float scale = 1.0f;
  int32_t zero_point = 0;
};
ChosenQParams FromRange(const Observer& observer, double min, double max,
                        float least_scale = observer::kEps);

// The same in rationals that are rounded where a step says so.
ChosenQParams FromRangeRational(const Observer& observer, float min, float max);

// Scales, then zero points, [2, columns]; never codes. `c` is a valid choose_qparams.
Tensor ChooseQParams(const Case& c);
Tensor ChooseQParamsRational(const Case& c);
// By ObserveHistogram2.
Tensor ChooseQParams2(const Case& c);

// Whose scale and zero point value i of x has its code by.
inline int64_t ColumnOfValue(const Case& c, int64_t i) { return c.per_channel ? i / c.N % c.M : 0; }

// The quantize whose codes (of a rule of MX, the cast whose elements) stand behind these scales and
// zero points: of all of x, or in rows with a choice each.
Case CodesCaseOf(const Case& c, const Tensor& chosen);
// The same as it is meant exactly, where a scale may be infinite: x / infinity is 0.
Case ExactCodesCaseOf(const Case& c, const Tensor& chosen);
// The answer of both: one row.
Tensor WithCodes(const Case& c, const Tensor& chosen, const Tensor& codes);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_OBSERVER_H_
