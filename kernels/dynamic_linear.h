// SPDX-License-Identifier: Apache-2.0
// dynamic_linear: a linear layer over float32 activations, which are quantized on the way with a
// scale and zero point chosen from the activations themselves. For row m of x:
//
//   s_m, z_m   by a QParamsRule from the smallest and the largest finite value of the row (of all
//              of x if per_row is false). If no value is finite, both count as 0
//   q[m][k]  = clamp(RNE(x[m][k] / s_m) + z_m) to all codes of the type; NaN gives z_m, an infinity
//              the end of the codes
//   y[m][n]  = (sum_k (q[m][k] - z_m)(w[n][k] - zw_n)) * s_m * sw_n + b_n, rounded once to float32
//
// All x have an answer, the same bits on every instruction set and any number of threads.
#ifndef QUALM_KERNELS_DYNAMIC_LINEAR_H_
#define QUALM_KERNELS_DYNAMIC_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/observer.h"
#include "kernels/types.h"

namespace qualm::kernels {

// Everything but the activations. Spans are only read during packing.
struct DynamicLinearParams {
  ConstMatrix weights;                    // [N,K], u8 or s8
  std::span<const float> w_scale;         // 1 or N
  std::span<const int32_t> w_zero_point;  // 1 or N
  std::span<const float> bias;            // empty or N
  bool relu = false;
  bool per_row = false;    // each row of x has a scale and zero point of its own
  ObserverParams qparams;  // of the activations; an infinite scale becomes the largest float32
};

// Weights packed once for the instruction set chosen at packing time, reused for any x.
class PackedDynamicLinear {
 public:
  PackedDynamicLinear();
  ~PackedDynamicLinear();
  PackedDynamicLinear(PackedDynamicLinear&&) noexcept;
  PackedDynamicLinear& operator=(PackedDynamicLinear&&) noexcept;

  // Validates and packs. On error *packed is unchanged.
  static Status Pack(const DynamicLinearParams& params, PackedDynamicLinear* packed);

  // x [M,K] and y [M,N] are f32. Runs on the target that the weights were packed for. x, y and
  // scratch must not overlap; rows of x and y with equal strides may be interleaved. Allocates
  // nothing when `scratch` holds ScratchBytes(M, pool), at any alignment. Blocks of rows are spread
  // over the threads of `pool`.
  Status Run(const ConstMatrix& x, const MutableMatrix& y, std::span<uint8_t> scratch = {},
             ThreadPool* pool = nullptr) const;
  // For each thread at most some 200 KiB, or four rows of codes where they are larger.
  size_t ScratchBytes(int64_t rows, const ThreadPool* pool = nullptr) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_DYNAMIC_LINEAR_H_
