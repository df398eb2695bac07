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
//   0 <= r < kernel_h, 0 <= s < kernel_w;
// those outside the image are padding. The output size is the caller's (it depends on rounding
// modes the kernels need not know); pad_bottom and pad_right matter only where padding counts.
struct WindowGeometry {
  int64_t in_h = 0, in_w = 0;
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  int64_t dilation_h = 1, dilation_w = 1;
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
