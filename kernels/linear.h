// SPDX-License-Identifier: Apache-2.0
// y = (sum_k (x - zx)(w - zw_n) + b_n) * sx * sw_n / sy, exactly rounded on every instruction set.
#ifndef QUALM_KERNELS_LINEAR_H_
#define QUALM_KERNELS_LINEAR_H_

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/types.h"

namespace qualm::kernels {

// Everything but the activations. Spans are only read during packing.
struct LinearParams {
  ConstMatrix weights;                        // [N,K], u8 or s8
  ElementType input_type = ElementType::kU8;  // of the activations
  float x_scale = 1.0f;
  int32_t x_zero_point = 0;
  std::span<const float> w_scale;              // 1 or N
  std::span<const int32_t> w_zero_point;       // 1 or N
  std::span<const float> bias;                 // empty or N, real units; not for s32 outputs
  std::span<const int32_t> bias_i32;           // empty or N, units of x_scale*w_scale[n]
  ElementType output_type = ElementType::kU8;  // u8, s8, s32 (raw integer sum, clamped), f32
  float y_scale = 1.0f;                        // u8, s8 only
  int32_t y_zero_point = 0;
  OutputRange range;
  // Other than kExact: outputs u8 and s8 only, without `bias`.
  Requantization requantization = Requantization::kExact;
};

// Weights packed once for the instruction set chosen at packing time, reused for any M.
class PackedLinear {
 public:
  PackedLinear();
  ~PackedLinear();
  PackedLinear(PackedLinear&&) noexcept;
  PackedLinear& operator=(PackedLinear&&) noexcept;

  // Validates and packs. On error *packed is unchanged.
  static Status Pack(const LinearParams& params, PackedLinear* packed);

  // x [M,K], y [M,N], on the target the weights were packed for. x, y and scratch must not overlap;
  // rows of x and y with equal strides may be interleaved. Allocates nothing when `scratch` holds
  // ScratchBytes(M, pool), at any alignment. Blocks of rows are spread over the threads of `pool`.
  Status Run(const ConstMatrix& x, const MutableMatrix& y, std::span<uint8_t> scratch = {},
             ThreadPool* pool = nullptr) const;
  size_t ScratchBytes(int64_t rows, const ThreadPool* pool = nullptr) const;

  // Panels on the fast saturating path, certified safe for every activation; of all panels. None
  // on targets without such a path: with vpdpbusd, or without vpmaddubsw.
  struct PackingStats {
    int64_t panels = 0;
    int64_t panels_certified = 0;
  };
  PackingStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_LINEAR_H_
