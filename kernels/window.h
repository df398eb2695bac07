// SPDX-License-Identifier: Apache-2.0
// The window of convolutions and pools over NHWC images.
#ifndef QUALM_KERNELS_WINDOW_H_
#define QUALM_KERNELS_WINDOW_H_

#include <cstdint>

#include "kernels/types.h"

namespace qualm::kernels {

// One window slides over each image. Sizes in pixels; kernel, strides and dilations >= 1, the rest
// >= 0. Output pixel (y, x) sees the input pixels
//   (y*stride_h - pad_top + r*dilation_h, x*stride_w - pad_left + s*dilation_w),
//   0 <= r < kernel_h, 0 <= s < kernel_w.
// Pixels outside the image are padding. pad_bottom and pad_right matter for the output size of a
// convolution and where a pool counts its padding. The output size of a pool is the caller's
// choice.
struct WindowGeometry {
  int64_t in_h = 0, in_w = 0;
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  int64_t dilation_h = 1, dilation_w = 1;
};

// The output size of a convolution: floor((in + pads - dilation * (kernel - 1) - 1) / stride) + 1.
// It is 0 where the dilated kernel does not fit, and for an empty image, whatever its padding.
int64_t ConvOutputHeight(const WindowGeometry& window);
int64_t ConvOutputWidth(const WindowGeometry& window);

// The window of a pool, at out_h x out_w positions over each image.
struct PoolShape {
  WindowGeometry window;  // in_h and in_w do not matter: the images have them
  int64_t out_h = 0, out_w = 0;
};

namespace internal {

// Signs and sizes: every field at most 2^30, so that no position overflows.
Status CheckWindow(const WindowGeometry& window);

// One axis of one output position: taps [begin, end) lie inside the image, tap t at image
// coordinate start + t * dilation. begin == end where none does.
struct AxisWindow {
  int64_t start = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t counted = 0;  // taps inside the image or its padding, none beyond
};
AxisWindow WindowAlongH(const WindowGeometry& window, int64_t out_y);
AxisWindow WindowAlongW(const WindowGeometry& window, int64_t out_x);

}  // namespace internal
}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_WINDOW_H_
