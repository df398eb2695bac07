// SPDX-License-Identifier: Apache-2.0
// Products of rows that are stored in blocks of codes with a scale of their own, as llama.cpp
// stores them (block_format.h): weights Q8_0 or Q4_0 times activations Q8_0 (its quantize_row_q8_0
// makes them), weights Q4_K times activations Q8_K.
//
//   y = ((l_0 + l_1) + l_2) + l_3, l_i = (t_i + t_(i+4)) + t_(i+8) + ..., from left to right
//
// Of Q8_0 and Q4_0 t_b = fl(s_b * (dw_b * dx_b)), s_b = sum over block b of (code of w) * (code of
// x).
//
// s_b is an exact integer of at most 20 bits, whatever the codes (-128 is one like others). The
// product of two float16 is exact in float32. So each block rounds its term, and its sum with those
// before it. No float32 can overflow or become denormal on the way: where scales are finite, every
// output is. A scale that is infinite or NaN makes what IEEE 754 says: an infinite one times s_b =
// 0 is NaN. Without blocks y is +0, and so is every sum that is 0.
//
// Of Q4_K t_b = fl(fl(fl(p_b) * fl(dw_b * dx_b)) - fl(fl(q_b) * fl(mw_b * dx_b))),
//   p_b = sum over the parts of s * sum of (code of w) * (code of x),
//   q_b = sum over the parts of z * (the two sums of 16 codes that x stores).
//
// p_b and q_b are exact integers of at most 26 bits, -128 included, and whatever sums x stores.
// dx_b is any float32: products with it round, overflow and become denormal as IEEE 754 says.
//
// The bits of an output are the same on every instruction set, for a dot product and for any
// matrix around it, and with any number of threads; of a NaN, only that it is one.
#ifndef QUALM_KERNELS_BLOCK_LINEAR_H_
#define QUALM_KERNELS_BLOCK_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/block_format.h"
#include "kernels/types.h"

namespace qualm::kernels {

// *y = the product of two rows of so many blocks, the second one ActivationsOf(format). Checks
// nothing but the pointers: this is for one output, where a call is short.
Status BlockDot(BlockFormat format, const void* w, const void* x, int64_t blocks, float* y);

// Weights packed once for the instruction set chosen at packing time, reused for any x.
class PackedBlockLinear {
 public:
  PackedBlockLinear();
  ~PackedBlockLinear();
  PackedBlockLinear(PackedBlockLinear&&) noexcept;
  PackedBlockLinear& operator=(PackedBlockLinear&&) noexcept;

  // weights [N], no Q8_K. Validates and packs. On error *packed is unchanged.
  static Status Pack(const ConstBlocks& weights, PackedBlockLinear* packed);

  // x [M], ActivationsOf the weights, with as many blocks as these; y [M,N], f32. Runs on the
  // target that the weights were packed for. x, y and scratch must not overlap. Allocates nothing
  // when `scratch` holds ScratchBytes(M, pool), at any alignment. Spreads blocks of outputs over
  // the threads of `pool`.
  Status Run(const ConstBlocks& x, const MutableMatrix& y, std::span<uint8_t> scratch = {},
             ThreadPool* pool = nullptr) const;
  // For each thread at most some 256 KiB, or 6 rows of 40 bytes for 32 codes where they are
  // larger.
  size_t ScratchBytes(int64_t rows, const ThreadPool* pool = nullptr) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_BLOCK_LINEAR_H_
