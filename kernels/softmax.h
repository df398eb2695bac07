// SPDX-License-Identifier: Apache-2.0
// softmax of rows of codes: the same bits on every instruction set.
#ifndef QUALM_KERNELS_SOFTMAX_H_
#define QUALM_KERNELS_SOFTMAX_H_

#include <array>
#include <cstdint>

#include "kernels/types.h"

namespace qualm::kernels {

// The convention of QNNPACK's u8lut32norm (pytorch/pytorch, aten/src/ATen/native/quantized/cpu/
// qnnpack/src/softargmax.c and src/u8lut32norm/scalar.c), exactly. For a row of N codes x_n with
// the largest one max:
//   q = min((2^32 - 1) / N, 2^23 - 1)
//   t_n = RNE(q * e^-(x_scale * (max - x_n))), in the real numbers
//   y_n = min(255, floor((256 * t_n + floor(sum t / 2)) / sum t))
// clamped, for s8 minus 128: the scale of y is 2^-8, its zero point the lowest code. The zero point
// of x does not matter. Where QNNPACK's sum wraps in 32 bits (rows of equal codes, N > 512, where q
// is rounded up), this kernel does not wrap.
class PackedSoftmax {
 public:
  // Computes t for rows of `columns` codes, in double with an error bound (transcendental.h); where
  // the bound does not decide a rounding, Build refuses with an error: about one of 10^5 drawn
  // scales, and every x_scale below 2^-26 if q is next to a tie.
  static Status Build(float x_scale, int64_t columns, PackedSoftmax* softmax);

  // x and y are of one type, u8 or s8, and one shape, and do not overlap. range.relu is not set.
  Status Run(const ConstMatrix& x, const OutputRange& range, const MutableMatrix& y) const;

 private:
  int64_t columns_ = 0;
  alignas(64) std::array<int32_t, 256> t_{};  // by distance from the largest code; below 2^23
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SOFTMAX_H_
