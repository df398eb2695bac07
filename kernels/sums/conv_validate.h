// SPDX-License-Identifier: Apache-2.0
// The preconditions of convolutions, in one place, each with its reason. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_CONV_VALIDATE_H_
#define QUALM_KERNELS_SUMS_CONV_VALIDATE_H_

#include <cstdint>
#include <span>

#include "kernels/images.h"
#include "kernels/layer.h"
#include "kernels/types.h"
#include "kernels/window.h"

namespace qualm::kernels {

Status ValidateConvParams(const ConvParams& params);

// Shapes and types that the layer was packed for.
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

#endif  // QUALM_KERNELS_SUMS_CONV_VALIDATE_H_
