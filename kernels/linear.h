// SPDX-License-Identifier: Apache-2.0
// y = (sum_k (x - zx)(w - zw_n) + b_n) * sx * sw_n / sy, exactly rounded on every instruction set.
//
// The code, from the outside in: linear.cc cuts the outputs into blocks, sums/row_block.cc runs a
// block over the packed weights (sums/pack.h has the algebra), sums/accumulate.cc is the inner loop
// of integer sums. Where vpmaddubsw would saturate, sums/pack.cc chooses another order of the
// activations, or 16 bits for them, and sums/arrange.cc copies rows in that form.
// sums/codes-inl.h makes codes of the sums while they are in the L1 cache; all other outputs go
// through sums/epilogue.cc to common/rescale.cc. codes-inl.h and rescale.cc have the proofs that
// each output is rounded once.
#ifndef QUALM_KERNELS_LINEAR_H_
#define QUALM_KERNELS_LINEAR_H_

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/layer.h"
#include "kernels/types.h"

namespace qualm::kernels {

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

  // How many panels of channels there are, and how many take the fast path that saturates
  // (sums/accumulate.cc) without a second pass, because no activation can make their weights
  // saturate (sums/certify.h) in the order in which they are added (sums/pairing.h). A panel with
  // a few unsafe pairs takes it with a second pass (sums/split.h). Targets with vpdpbusd and
  // targets without vpmaddubsw have no such path: they certify none.
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
