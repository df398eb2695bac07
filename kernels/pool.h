// SPDX-License-Identifier: Apache-2.0
// max_pool, avg_pool, global_avg_pool over NHWC images of codes: exactly rounded on every
// instruction set.
#ifndef QUALM_KERNELS_POOL_H_
#define QUALM_KERNELS_POOL_H_

#include <cstdint>

#include "kernels/elementwise.h"
#include "kernels/images.h"
#include "kernels/types.h"
#include "kernels/window.h"

namespace qualm::kernels {

// All pools slide over x [batch, H, W, C]. y has batch*out_h*out_w rows, one for each output pixel,
// row-major, and C columns. x and y must not overlap. A window without a pixel (AvgPool with
// count_padding: without a pixel or padding) has no maximum and no mean, so it is an error.

// y = clamp(largest code under the window), x and y of one type, u8 or s8. `zero_point` is that of
// both, for relu only.
Status MaxPool(const ConstImages& x, const PoolShape& shape, int32_t zero_point,
               const OutputRange& range, const MutableMatrix& y);

// y = clamp(RNE(sum x_scale*(x - x_zero_point) / (count * y_scale)) + y_zero_point). The sum goes
// over the pixels of the image under the window. `count` is their number, or with count_padding the
// number of positions in the image or its padding, which adds 0 to the sum. Positions beyond the
// padding never count.
Status AvgPool(const ConstImages& x, const PoolShape& shape, bool count_padding,
               const Quantization& x_q, const Quantization& y_q, const OutputRange& range,
               const MutableMatrix& y);

// The mean of each whole image: AvgPool with a window of its size; y has `batch` rows, or none if
// the images have no pixels.
Status GlobalAvgPool(const ConstImages& x, const Quantization& x_q, const Quantization& y_q,
                     const OutputRange& range, const MutableMatrix& y);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_POOL_H_
