// SPDX-License-Identifier: Apache-2.0
// quantize, dequantize, requantize: exactly rounded on every instruction set.
//
// All take any finite scales > 0, denormals included, and any int32 zero points, and leave the gaps
// between rows alone. Quantize and Requantize may work in place: y.data == x.data, with
// y.row_stride at most 4 * x.row_stride (the rows of y, in bytes, must not overtake those of x).
#ifndef QUALM_KERNELS_ELEMENTWISE_H_
#define QUALM_KERNELS_ELEMENTWISE_H_

#include <cstdint>
#include <span>

#include "kernels/types.h"

namespace qualm::kernels {

// y = clamp(RNE(x / scale) + zero_point). x f32, y u8 or s8. One scale and zero point, or one per
// column. NaN gives the zero point (clamped); +-inf the ends of the range.
Status Quantize(const ConstMatrix& x, std::span<const float> scale,
                std::span<const int32_t> zero_point, const OutputRange& range,
                const MutableMatrix& y);

// y = scale * (q - zero_point) rounded once to f32 (gradual underflow, overflow to inf).
Status Dequantize(const ConstMatrix& q, std::span<const float> scale,
                  std::span<const int32_t> zero_point, const MutableMatrix& y);

// The real multiplier numerator_a * numerator_b / denominator, exactly. A plain float32 m is {m}.
struct Multiplier {
  float numerator_a = 1.0f;
  float numerator_b = 1.0f;
  float denominator = 1.0f;
};

// y = clamp(RNE(acc * m) + zero_point). acc s32, y u8 or s8. One multiplier, or one per column.
Status Requantize(const ConstMatrix& acc, std::span<const Multiplier> multiplier,
                  int32_t zero_point, const OutputRange& range, const MutableMatrix& y);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_ELEMENTWISE_H_
