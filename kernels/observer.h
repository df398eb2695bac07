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

// How a scale and zero point follow from min <= 0 and max >= 0: the range, widened to contain 0.
// The scale is infinite where max - min is no float32.
enum class QParamsRule : uint8_t {
  // PyTorch's observers, with all parameters. A scale is at least 2^-23.
  kObserver,
  // PyTorch's torch._choose_qparams_per_tensor and quantized::linear_dynamic
  // (aten/src/ATen/native/quantized/cpu/QuantUtils.h). In
  // double, scale = (max - min) / steps; 0.1 instead where its float32 is 0 or has an infinite
  // reciprocal; 6.1e-5 instead of a smaller scale, with the range widened in float32. The zero
  // point comes from the end of the range with the smaller error term. Last, the scale is rounded
  // to float32. Takes u8 with quant_min 0 and quant_max 255, not symmetric; reduce_range leaves
  // codes 0..127.
  kAten,
  // DynamicQuantizeLinear as ONNX Runtime computes it (onnxruntime/core/util/qmath.h). In float32,
  // scale = (max - min) / 255; 1 instead where max = min; 2^-149 instead where the quotient
  // underflows to 0. Zero point = RNE(clamp(0 - min / scale, 0, 255)). Takes u8 with quant_min 0
  // and quant_max 255, neither symmetric nor reduce_range.
  kOnnx,
};

// The codes for which scale and zero point are chosen.
struct ObserverParams {
  bool symmetric = false;
  bool reduce_range = false;            // half the codes; not with symmetric u8
  ElementType type = ElementType::kU8;  // or s8
  int32_t quant_min = 0;                // min <= 0 <= max, min < max also once halved, inside type
  int32_t quant_max = 255;
  QParamsRule rule = QParamsRule::kObserver;
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

// One scale and zero point for each state, by the rule. Each state has observed something.
Status ChooseQParams(const ObserverParams& params, std::span<const MinMaxState> states,
                     std::span<float> scale, std::span<int32_t> zero_point);

// `batch` is f32, not empty, with at most 2^24 values of magnitude up to 2^24. The first batch
// whose values are not all equal spans at least 2^-60, and no later batch makes the histogram more
// than 2^11 times as wide. An error otherwise. Values that span at most 2^10 times the first batch
// (docs/quantization.md) cause none: see histogram.cc.
Status ObserveHistogram(const ConstMatrix& batch, HistogramState* state);

// The scale and zero point of the part of the range whose quantization has the smallest squared
// error, as a search from both ends finds it. The rule is kObserver.
Status ChooseQParams(const ObserverParams& params, const HistogramState& state, float* scale,
                     int32_t* zero_point);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_OBSERVER_H_
