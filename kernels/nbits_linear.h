// SPDX-License-Identifier: Apache-2.0
// Products with weights of 4 or 8 bits in blocks, as ONNX Runtime's MatMulNBits stores them:
// a weight is s_b * (q - z_b), with a float32 scale and a zero point for each block b of a channel.
//
// Of float32 x (its accuracy level 0):
//
//   y = p_0 + p_1 + p_2 + ... (+ bias), p_b = t_0 + t_1 + ..., both from left to right from +0 on,
//   t_k = fl(x_k * fl((q_k - z_b) * s_b)), k over the codes of block b
//
// Of x in codes, s8 with a float32 scale for each block (its accuracy level 4, QuantizeRows):
//
//   y = t_0 + t_1 + ... (+ bias), from left to right from +0 on,
//   t_b = fl(fl(n_b) * fl(s_b * dx_b)), n_b = sum over block b of (q - z_b) * (code of x)
//
// n_b is an exact integer, whatever the codes (-128 is one like others); beyond 2^24 its conversion
// rounds. Every float operation rounds to nearest, none is fused, and denormals are kept: infinite
// and NaN scales or values make what IEEE 754 says, also in codes that meet x = 0. Only weights
// that a channel has are used: nothing is added behind a last block that is cut short.
//
// The bits of an output are the same on every instruction set, alone or within any matrix, and with
// any number of threads; of a NaN, only that it is one.
#ifndef QUALM_KERNELS_NBITS_LINEAR_H_
#define QUALM_KERNELS_NBITS_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/types.h"

namespace qualm::kernels {

// In the layout of the operator's inputs. Codes of 4 bits: the first one in the low half of a byte.
struct NBitsWeights {
  int bits = 4;  // or 8
  int64_t channels = 0;
  int64_t depth = 0;
  int64_t block = 32;  // a multiple of 16, at most 2^16
  // [channels, blocks, block * bits / 8 bytes]: the last block is a whole one, its codes behind the
  // depth are not looked at.
  const void* codes = nullptr;
  const float* scales = nullptr;      // [channels, blocks]
  const void* zero_points = nullptr;  // [channels, blocks], rows of whole bytes; null: 2^(bits-1)
  const float* bias = nullptr;        // [channels], or null

  int64_t blocks() const { return (depth + block - 1) / block; }
};

// Rows of s8 codes; block b of row i has the scale at scales[i * blocks + b].
struct ConstCodedRows {
  const int8_t* codes = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;
  const float* scales = nullptr;
};

// Weights packed once for the instruction set chosen at packing time, reused for any x.
class PackedNBitsLinear {
 public:
  PackedNBitsLinear();
  ~PackedNBitsLinear();
  PackedNBitsLinear(PackedNBitsLinear&&) noexcept;
  PackedNBitsLinear& operator=(PackedNBitsLinear&&) noexcept;

  // Validates and packs. On error *packed is unchanged.
  static Status Pack(const NBitsWeights& weights, PackedNBitsLinear* packed);

  // x [M, depth], f32 or coded in the blocks of the weights; y [M, channels], f32. Runs on the
  // target that the weights were packed for. x, y and scratch must not overlap. Allocates nothing
  // when `scratch` holds ScratchBytes(M, pool), at any alignment. Spreads blocks of outputs over
  // the threads of `pool`.
  Status Run(const ConstMatrix& x, const MutableMatrix& y, std::span<uint8_t> scratch = {},
             ThreadPool* pool = nullptr) const;
  Status Run(const ConstCodedRows& x, const MutableMatrix& y, std::span<uint8_t> scratch = {},
             ThreadPool* pool = nullptr) const;
  // For each thread at most some 256 KiB, or 4 rows of 1 byte a code and 8 a block where they are
  // larger.
  size_t ScratchBytes(int64_t rows, const ThreadPool* pool = nullptr) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Rows of float32 as codes in blocks. With m for the largest magnitude of a block: the scale d is
// fl(m / 127), a code rne(fl(x * fl(127 / m))), or rne(fl(x / d)) where d is denormal, within -127
// to 127; all are 0 where d is. m is chosen among finite values; NaN becomes 0, an infinity the end
// on its side. The same bits on every instruction set. x [M, K], f32; codes [M, K], with rows that
// follow one another; scales [M, blocks]. Nothing overlaps.
Status QuantizeRows(const ConstMatrix& x, int64_t block, int8_t* codes, float* scales);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_NBITS_LINEAR_H_
