// SPDX-License-Identifier: Apache-2.0
// conv2d and depthwise over NHWC images: y = (sum_{r,s,c} (x - zx)(w - zw_n) + b_n) * sx * sw_n /
// sy, exactly rounded on every instruction set. Padding contributes real 0, also where zx is no
// code. conv.cc brings a convolution to linear's loops (linear.h), to sums/depthwise_lines.h or,
// rarely, to sums/depthwise.h.
#ifndef QUALM_KERNELS_CONV_H_
#define QUALM_KERNELS_CONV_H_

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/images.h"
#include "kernels/layer.h"
#include "kernels/types.h"
#include "kernels/window.h"

namespace qualm::kernels {

// Weights packed once for the instruction set chosen at packing time, reused for images of any
// size.
class PackedConv {
 public:
  PackedConv();
  ~PackedConv();
  PackedConv(PackedConv&&) noexcept;
  PackedConv& operator=(PackedConv&&) noexcept;

  // Validates and packs. On error *packed is unchanged.
  static Status Pack(const ConvParams& params, PackedConv* packed);

  // x is [batch,H,W,C]. y is [batch*OH*OW, N] with OH and OW from the window: its row stride is the
  // distance of output pixels. Runs on the target that the weights were packed for. x, y and
  // scratch must not overlap; where images and rows of x follow each other without gaps, pixels of
  // x and y with equal strides may be interleaved. Allocates nothing when `scratch` holds
  // ScratchBytes of the same sizes and pool, at any alignment. Blocks of output pixels are spread
  // over the threads of `pool`.
  Status Run(const ConstImages& x, const MutableMatrix& y, std::span<uint8_t> scratch = {},
             ThreadPool* pool = nullptr) const;
  // For each thread at most some 130 KiB, or one patch of R*S*C/groups activations where a patch is
  // larger (and the same in int16, where codes are widened first), or one depthwise vector of
  // output channels where the vector is larger.
  size_t ScratchBytes(int64_t batch, int64_t height, int64_t width,
                      const ThreadPool* pool = nullptr) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_CONV_H_
