// SPDX-License-Identifier: Apache-2.0
// The parameters of layers with weights: linear, conv2d and depthwise.
#ifndef QUALM_KERNELS_LAYER_H_
#define QUALM_KERNELS_LAYER_H_

#include <cstdint>
#include <span>

#include "kernels/types.h"
#include "kernels/window.h"

namespace qualm::kernels {

// A linear layer without its activations. Spans are only read during packing.
struct LinearParams {
  ConstMatrix weights;                        // [N,K], u8 or s8
  ElementType input_type = ElementType::kU8;  // of the activations
  float x_scale = 1.0f;
  int32_t x_zero_point = 0;
  std::span<const float> w_scale;              // 1 or N
  std::span<const int32_t> w_zero_point;       // 1 or N
  std::span<const float> bias;                 // empty or N, real units; not for s32 outputs
  std::span<const int32_t> bias_i32;           // empty or N, units of x_scale*w_scale[n]
  ElementType output_type = ElementType::kU8;  // u8, s8, s32 (raw integer sum, clamped), f32
  float y_scale = 1.0f;                        // u8, s8 only
  int32_t y_zero_point = 0;
  OutputRange range;
  // A mode other than kExact takes outputs u8 and s8 only, and no `bias`.
  Requantization requantization = Requantization::kExact;
};

// A convolution without its activations.
struct ConvParams {
  // Channels, types, quantization and bias as in a linear layer. Row n of the weights is
  // [R, S, in_channels / groups], so that the weights are KRSC.
  LinearParams layer;
  int64_t in_channels = 0;  // C
  // Divides C and N: output channel n sees the input channels of group n / (N / groups). With
  // groups = C the convolution is depthwise, and N / C its channel multiplier.
  int64_t groups = 1;
  WindowGeometry window;  // in_h and in_w do not matter: the images have them
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_LAYER_H_
