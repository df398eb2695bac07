// SPDX-License-Identifier: Apache-2.0
// The preconditions of linear layers and convolutions, in one place, each with its reason. Internal
// to kernels/.
#ifndef QUALM_KERNELS_SUMS_LAYER_VALIDATE_H_
#define QUALM_KERNELS_SUMS_LAYER_VALIDATE_H_

#include <cstdint>
#include <span>

#include "kernels/images.h"
#include "kernels/layer.h"
#include "kernels/types.h"
#include "kernels/window.h"

namespace qualm::kernels {

Status ValidateLinearParams(const LinearParams& params);

// Shapes and types that a linear layer was packed for.
struct LinearShape {
  int64_t channels = 0;
  int64_t depth = 0;
  ElementType input_type = ElementType::kU8;
  ElementType output_type = ElementType::kU8;
};
Status ValidateLinearRun(const LinearShape& layer, const ConstMatrix& x, const MutableMatrix& y,
                         std::span<const uint8_t> scratch);

Status ValidateConvParams(const ConvParams& params);

// Shapes and types that a convolution was packed for.
struct ConvShape {
  int64_t channels = 0;  // N
  int64_t in_channels = 0;
  WindowGeometry window;
  ElementType input_type = ElementType::kU8;
  ElementType output_type = ElementType::kU8;
};
Status ValidateConvRun(const ConvShape& layer, const ConstImages& x, const MutableMatrix& y,
                       std::span<const uint8_t> scratch);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_LAYER_VALIDATE_H_
