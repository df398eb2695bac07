// SPDX-License-Identifier: Apache-2.0
// The preconditions of the linear layer, in one place, each with its reason. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_LINEAR_VALIDATE_H_
#define QUALM_KERNELS_SUMS_LINEAR_VALIDATE_H_

#include <cstdint>
#include <span>

#include "kernels/layer.h"
#include "kernels/types.h"

namespace qualm::kernels {

Status ValidateLinearParams(const LinearParams& params);

// Shapes and types that the layer was packed for.
struct LinearShape {
  int64_t channels = 0;
  int64_t depth = 0;
  ElementType input_type = ElementType::kU8;
  ElementType output_type = ElementType::kU8;
};
Status ValidateLinearRun(const LinearShape& layer, const ConstMatrix& x, const MutableMatrix& y,
                         std::span<const uint8_t> scratch);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_LINEAR_VALIDATE_H_
