// SPDX-License-Identifier: Apache-2.0
// conv2d and depthwise over NHWC images: y = (sum_{r,s,c} (x - zx)(w - zw_n) + b_n) * sx * sw_n /
// sy, exactly rounded on every instruction set. Padding contributes real 0, also where zx is no
// code.
#ifndef QUALM_KERNELS_CONV_H_
#define QUALM_KERNELS_CONV_H_

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/linear.h"
#include "kernels/types.h"
#include "kernels/window.h"

namespace qualm::kernels {

// Positions of the window along an axis of `in` pixels:
// floor((in + pads - dilation * (kernel - 1) - 1) / stride) + 1; 0 where the dilated kernel does
// not fit, and for an empty image, whatever its padding.
int64_t ConvOutputHeight(const WindowGeometry& window);
int64_t ConvOutputWidth(const WindowGeometry& window);

// Everything but the activations.
struct ConvParams {
  // Channels, types, quantization and bias as in a linear layer. Row n of the weights is
  // [R, S, in_channels / groups], so that the weights are KRSC.
  LinearParams layer;
  int64_t in_channels = 0;  // C
  // Divides C and N: output channel n sees the input channels of group n / (N / groups). With
  // groups = C the convolution is depthwise, and N / C its channel multiplier.
  int64_t groups = 1;
  WindowGeometry window;  // in_h and in_w do not matter: the images have them
};

// NHWC: element (b, y, x, c) at data[b * image_stride + y * row_stride + x * pixel_stride + c].
// Strides in elements; pixels, rows and images do not overlap.
struct ConstImages {
  const void* data = nullptr;
  ElementType type = ElementType::kU8;
  int64_t batch = 0, height = 0, width = 0, channels = 0;
  int64_t image_stride = 0, row_stride = 0, pixel_stride = 0;
};

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

  // x [batch,H,W,C]; y [batch*OH*OW, N], whose row stride is that of output pixels, with OH and OW
  // from the window; on the target the weights were packed for. x, y and scratch must not overlap;
  // where images and rows of x follow each other without gaps, pixels of x and y with equal strides
  // may be interleaved. Allocates nothing when `scratch` holds ScratchBytes of the same sizes and
  // pool, at any alignment. Blocks of output pixels are spread over the threads of `pool`.
  Status Run(const ConstImages& x, const MutableMatrix& y, std::span<uint8_t> scratch = {},
             ThreadPool* pool = nullptr) const;
  // At most some 100 KiB, or one patch of R*S*C/groups activations where that is more, or one
  // depthwise vector of output channels; times the threads.
  size_t ScratchBytes(int64_t batch, int64_t height, int64_t width,
                      const ThreadPool* pool = nullptr) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_CONV_H_
