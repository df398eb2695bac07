// SPDX-License-Identifier: Apache-2.0
// add, sub and mul of two tensors of codes: exactly rounded on every instruction set.
#ifndef QUALM_KERNELS_BINARY_H_
#define QUALM_KERNELS_BINARY_H_

#include "kernels/elementwise.h"
#include "kernels/types.h"

namespace qualm::kernels {

// a, b and y have one shape; a and b are of one type, u8 or s8, y of either. y may be a or b itself
// (same data, same row stride), or both may be; any other overlap is not allowed.

// y = clamp(RNE((sa*(a - za) + sb*(b - zb)) / sy) + zy).
Status Add(const ConstMatrix& a, const Quantization& a_q, const ConstMatrix& b,
           const Quantization& b_q, const Quantization& y_q, const OutputRange& range,
           const MutableMatrix& y);

// y = clamp(RNE((sa*(a - za) - sb*(b - zb)) / sy) + zy).
Status Sub(const ConstMatrix& a, const Quantization& a_q, const ConstMatrix& b,
           const Quantization& b_q, const Quantization& y_q, const OutputRange& range,
           const MutableMatrix& y);

// y = clamp(RNE(sa*sb*(a - za)*(b - zb) / sy) + zy).
Status Mul(const ConstMatrix& a, const Quantization& a_q, const ConstMatrix& b,
           const Quantization& b_q, const Quantization& y_q, const OutputRange& range,
           const MutableMatrix& y);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_BINARY_H_
