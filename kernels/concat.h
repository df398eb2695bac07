// SPDX-License-Identifier: Apache-2.0
// concat of tensors of codes along the columns: exactly rounded on every instruction set. The code
// is in rescale_codes.cc, because concat is a rescale of each input.
#ifndef QUALM_KERNELS_CONCAT_H_
#define QUALM_KERNELS_CONCAT_H_

#include <span>

#include "kernels/elementwise.h"
#include "kernels/types.h"

namespace qualm::kernels {

struct ConcatInput {
  ConstMatrix x;  // u8 or s8, the rows of y
  Quantization q;
};

// The columns of all inputs next to each other, each input rescaled alone:
//   y = clamp(RNE(s_i*(x_i - z_i) / sy) + zy).
// y is u8 or s8 and has as many columns as all inputs together; it overlaps none of them.
Status Concat(std::span<const ConcatInput> inputs, const Quantization& y_q,
              const OutputRange& range, const MutableMatrix& y);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_CONCAT_H_
