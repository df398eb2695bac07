// SPDX-License-Identifier: Apache-2.0
// Finds the activations under each window, and copies them into patches. Exact because bytes are
// only copied: if the byte in the padding is not real 0, padding.h corrects the sums.
#include "kernels/sums/patches.h"

#include <cstddef>
#include <cstring>

namespace qualm::kernels {
namespace {

TapRange Inside(const internal::AxisWindow& axis) { return {axis.begin, axis.end}; }

WindowGeometry Over(WindowGeometry window, const ConstImages& x) {
  window.in_h = x.height;
  window.in_w = x.width;
  return window;
}

}  // namespace

Placer::Placer(const WindowGeometry& window, const ConstImages& x)
    : window_(Over(window, x)),
      x_(x),
      out_h_(ConvOutputHeight(window_)),
      out_w_(ConvOutputWidth(window_)) {}

Placement Placer::At(int64_t pixel) const {
  const int64_t image = pixel / out_w_ / out_h_;
  const internal::AxisWindow rows = internal::WindowAlongH(window_, pixel / out_w_ % out_h_);
  const internal::AxisWindow columns = internal::WindowAlongW(window_, pixel % out_w_);
  Placement place;
  place.rows = Inside(rows);
  place.columns = Inside(columns);
  // Images without channels may have no memory.
  if (place.InPadding() || x_.channels == 0) return place;
  const int64_t y = rows.start + rows.begin * window_.dilation_h;
  const int64_t x = columns.start + columns.begin * window_.dilation_w;
  place.x = static_cast<const uint8_t*>(x_.data) + image * x_.image_stride + y * x_.row_stride +
            x * x_.pixel_stride;
  if (place.rows.size() > 1) place.row_step = window_.dilation_h * x_.row_stride;
  if (place.columns.size() > 1) place.column_step = window_.dilation_w * x_.pixel_stride;
  return place;
}

Placer::Run Placer::LongestRun() const {
  Run run;
  // From the inside out, as long as the next step continues the last. The product is only formed
  // where the second pixel exists.
  const auto extend = [&run](int64_t count, int64_t steps, int64_t stride) {
    if (count == 1) return true;
    if (run.pixels == 1) {
      run = {count, steps * stride};
      return true;
    }
    if (steps * stride != run.stride * run.pixels) return false;
    run.pixels *= count;
    return true;
  };
  if (extend(out_w_, window_.stride_w, x_.pixel_stride) &&
      extend(out_h_, window_.stride_h, x_.row_stride)) {
    extend(x_.batch, 1, x_.image_stride);
  }
  return run;
}

void Placer::Gather(const Placement& place, int64_t first, int64_t channels, uint8_t padding,
                    uint8_t* patch) const {
  const int64_t row_bytes = window_.kernel_w * channels;
  if (!IsWhole(place)) {
    std::memset(patch, padding, static_cast<size_t>(window_.kernel_h * row_bytes));
  }
  if (place.x == nullptr) return;
  // Pixels next to each other in memory need one copy.
  const bool dense = place.columns.size() == 1 || place.column_step == channels;
  const int64_t copies = dense ? 1 : place.columns.size();
  const int64_t bytes = dense ? place.columns.size() * channels : channels;
  const uint8_t* from_row = place.x + first;
  uint8_t* to_row = patch + place.rows.begin * row_bytes + place.columns.begin * channels;
  for (int64_t r = 0; r < place.rows.size(); ++r) {
    const uint8_t* from = from_row;
    uint8_t* to = to_row;
    for (int64_t i = 0; i < copies; ++i) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
      from += place.column_step;
      to += channels;
    }
    from_row += place.row_step;
    to_row += row_bytes;
  }
}

}  // namespace qualm::kernels
