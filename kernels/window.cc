// SPDX-License-Identifier: Apache-2.0
// Output sizes, and the taps of a window that lie inside the image. Exact: integers, which cannot
// overflow because CheckWindow holds every field to 2^30.
#include "kernels/window.h"

#include <algorithm>
#include <string>

namespace qualm::kernels {
namespace {

int64_t OutputSize(int64_t in, int64_t kernel, int64_t stride, int64_t pad_before,
                   int64_t pad_after, int64_t dilation) {
  const int64_t room = in + pad_before + pad_after - dilation * (kernel - 1) - 1;
  return in == 0 || room < 0 ? 0 : room / stride + 1;
}

}  // namespace

int64_t ConvOutputHeight(const WindowGeometry& w) {
  return OutputSize(w.in_h, w.kernel_h, w.stride_h, w.pad_top, w.pad_bottom, w.dilation_h);
}

int64_t ConvOutputWidth(const WindowGeometry& w) {
  return OutputSize(w.in_w, w.kernel_w, w.stride_w, w.pad_left, w.pad_right, w.dilation_w);
}

namespace internal {
namespace {

// Smallest t >= 0 with start + t * dilation >= limit.
int64_t TapsBelow(int64_t start, int64_t dilation, int64_t limit) {
  return limit <= start ? 0 : (limit - start + dilation - 1) / dilation;
}

AxisWindow Along(int64_t out, int64_t in, int64_t kernel, int64_t stride, int64_t pad_before,
                 int64_t pad_after, int64_t dilation) {
  AxisWindow w;
  w.start = out * stride - pad_before;
  w.end = std::min(kernel, TapsBelow(w.start, dilation, in));
  w.begin = std::min(w.end, TapsBelow(w.start, dilation, 0));
  w.counted = std::min(kernel, TapsBelow(w.start, dilation, in + pad_after));
  return w;
}

}  // namespace

Status CheckWindow(const WindowGeometry& w) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const struct {
    const char* name;
    int64_t value;
    int64_t least;
  } fields[] = {
      {"in_h", w.in_h, 0},
      {"in_w", w.in_w, 0},
      {"kernel_h", w.kernel_h, 1},
      {"kernel_w", w.kernel_w, 1},
      {"stride_h", w.stride_h, 1},
      {"stride_w", w.stride_w, 1},
      {"pad_top", w.pad_top, 0},
      {"pad_bottom", w.pad_bottom, 0},
      {"pad_left", w.pad_left, 0},
      {"pad_right", w.pad_right, 0},
      {"dilation_h", w.dilation_h, 1},
      {"dilation_w", w.dilation_w, 1},
  };
  for (const auto& field : fields) {
    if (field.value >= field.least && field.value <= kMost) continue;
    return {std::string("window.") + field.name + " is " + std::to_string(field.value) +
            ", expected " + std::to_string(field.least) + ".." + std::to_string(kMost)};
  }
  return {};
}

AxisWindow WindowAlongH(const WindowGeometry& w, int64_t out_y) {
  return Along(out_y, w.in_h, w.kernel_h, w.stride_h, w.pad_top, w.pad_bottom, w.dilation_h);
}

AxisWindow WindowAlongW(const WindowGeometry& w, int64_t out_x) {
  return Along(out_x, w.in_w, w.kernel_w, w.stride_w, w.pad_left, w.pad_right, w.dilation_w);
}

}  // namespace internal
}  // namespace qualm::kernels
