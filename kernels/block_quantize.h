// SPDX-License-Identifier: Apache-2.0
// Rows of float32 as blocks (block_format.h), rounded as llama.cpp's quantize_row_q8_0 of x86,
// quantize_row_q4_0 and quantize_row_q8_K round, in float32. With m for the value of largest
// magnitude of the block, the first one of several:
//
//   Q8_0  d = |m| / 127, q = rne(x * fl(127 / |m|))
//   Q4_0  d = m / -8, q = min(15, trunc(fl(x * fl(1 / d)) + 8.5))
//   Q8_K  d = fl(1 / fl(-127 / m)), q = rne(x * fl(-127 / m)), and the sums of each 16 codes
//
// The scale is stored as float16, half to even; of Q8_K as float32, 0 where fl(-127 / m) is
// infinite. Where llama.cpp leaves the answer to chance: if the stored scale would be 0, all codes
// are those of 0; if it would be infinite, it is 65504 of the same sign, and x is divided by it and
// clamped. m is chosen among finite values. NaN becomes the code of 0, an infinity that of the end
// on its side.
//
// The same bits on every instruction set.
#ifndef QUALM_KERNELS_BLOCK_QUANTIZE_H_
#define QUALM_KERNELS_BLOCK_QUANTIZE_H_

#include "kernels/block_format.h"
#include "kernels/types.h"

namespace qualm::kernels {

// x [M, 32 * blocks], of Q8_K [M, 256 * blocks], f32. y is no Q4_K, and overlaps no part of x.
Status QuantizeBlocks(const ConstMatrix& x, const MutableBlocks& y);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_BLOCK_QUANTIZE_H_
