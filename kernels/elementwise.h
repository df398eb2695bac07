// SPDX-License-Identifier: Apache-2.0
// quantize, dequantize, requantize, rescale: exactly rounded on every instruction set.
//
// All four take any finite scale > 0, denormals included, and any int32 zero point, and leave the
// gaps between rows alone. Quantize, Requantize and RescaleCodes may work in place: y.data ==
// x.data, where no row of y begins, in bytes, after the same row of x.
#ifndef QUALM_KERNELS_ELEMENTWISE_H_
#define QUALM_KERNELS_ELEMENTWISE_H_

#include <cstdint>
#include <span>

#include "kernels/types.h"

namespace qualm::kernels {

// y = clamp(RNE(x / scale) + zero_point). x f32, y u8 or s8. One scale and zero point, or one per
// column. NaN gives the zero point (clamped); +-inf the ends of the range. Allocates nothing with
// one scale and one zero point.
Status Quantize(const ConstMatrix& x, std::span<const float> scale,
                std::span<const int32_t> zero_point, const OutputRange& range,
                const MutableMatrix& y);

// y = scale * (q - zero_point) rounded once to f32 (gradual underflow, overflow to inf).
Status Dequantize(const ConstMatrix& q, std::span<const float> scale,
                  std::span<const int32_t> zero_point, const MutableMatrix& y);

// y = clamp(RNE(acc * m) + zero_point). acc s32, y u8 or s8. One multiplier, or one per column.
// A `requantization` other than kExact takes multipliers of divisor 1.
Status Requantize(const ConstMatrix& acc, std::span<const Multiplier> multiplier,
                  int32_t zero_point, const OutputRange& range, const MutableMatrix& y,
                  Requantization requantization = Requantization::kExact);

// y = clamp(RNE(x_scale * (x - x_zero_point) / y_scale) + y_zero_point): codes of one quantization,
// u8 or s8, to codes of another.
Status RescaleCodes(const ConstMatrix& x, const Quantization& x_q, const Quantization& y_q,
                    const OutputRange& range, const MutableMatrix& y);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_ELEMENTWISE_H_
