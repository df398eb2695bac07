// SPDX-License-Identifier: Apache-2.0
// Scales and zero points from observed values: PyTorch 1.13's observers, float32 step by step
// (torch/ao/quantization/observer.py), the same bits on every instruction set. Batches go one after
// another into a plain state, from which qparams may be computed at any time.
#ifndef QUALM_KERNELS_OBSERVER_H_
#define QUALM_KERNELS_OBSERVER_H_

#include <cstdint>
#include <span>

#include "kernels/common/histogram.h"
#include "kernels/types.h"

namespace qualm::kernels {

// The codes for which scale and zero point are chosen.
struct ObserverParams {
  bool symmetric = false;
  bool reduce_range = false;            // half the codes; not with symmetric u8
  ElementType type = ElementType::kU8;  // or s8
  int32_t quant_min = 0;                // min <= 0 <= max, min < max also once halved, inside type
  int32_t quant_max = 255;
};

struct MinMaxState {
  float min = 0;
  float max = 0;
  bool empty = true;
};

// Smallest and largest value so far. `batch` is f32, finite and not empty. One state takes the
// whole batch; as many states as rows take one row each.
Status ObserveMinMax(const ConstMatrix& batch, std::span<MinMaxState> states);

// The moving average of the smallest and the largest value of each batch:
// min + averaging_constant * (batch min - min). Values up to 2^126, 0 <= averaging_constant <= 1.
Status ObserveMovingAverage(const ConstMatrix& batch, float averaging_constant,
                            std::span<MinMaxState> states);

// One scale and zero point for each state. Each state has observed something. A scale is at least
// 2^-23, and infinite where max - min is no float32.
Status ChooseQParams(const ObserverParams& params, std::span<const MinMaxState> states,
                     std::span<float> scale, std::span<int32_t> zero_point);

// `batch` is f32, not empty, with at most 2^24 values of magnitude up to 2^24. The first batch
// whose values are not all equal spans at least 2^-60, and no later batch makes the histogram more
// than 2^11 times as wide. An error otherwise. Values that span at most 2^10 times the first batch
// (docs/quantization.md) cause none: see histogram.cc.
Status ObserveHistogram(const ConstMatrix& batch, HistogramState* state);

// The scale and zero point of the part of the range whose quantization has the smallest squared
// error, as a search from both ends finds it.
Status ChooseQParams(const ObserverParams& params, const HistogramState& state, float* scale,
                     int32_t* zero_point);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_OBSERVER_H_
