// SPDX-License-Identifier: Apache-2.0
// The preconditions of pools. Internal to kernels/.
#ifndef QUALM_KERNELS_COMMON_POOL_VALIDATE_H_
#define QUALM_KERNELS_COMMON_POOL_VALIDATE_H_

#include "kernels/images.h"
#include "kernels/types.h"
#include "kernels/window.h"

namespace qualm::kernels::internal {

Status ValidateMaxPool(const ConstImages& x, const PoolShape& shape, const OutputRange& range,
                       const MutableMatrix& y);
Status ValidateAvgPool(const ConstImages& x, const PoolShape& shape, bool count_padding,
                       const Quantization& x_q, const Quantization& y_q, const OutputRange& range,
                       const MutableMatrix& y);

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_COMMON_POOL_VALIDATE_H_
