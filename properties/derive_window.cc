// SPDX-License-Identifier: Apache-2.0
// Cases made from cases of operations with a window: images, channels, taps and pixels of them.
#include "properties/derive_window.h"

#include <algorithm>
#include <numeric>

#include "core/status.h"
#include "properties/derive.h"

namespace qualm::derive {
namespace {

std::vector<int64_t> Iota(int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), int64_t{0});
  return values;
}

int64_t At(std::span<const int64_t> list, int64_t i) { return list[static_cast<size_t>(i)]; }

// Input channels `channels` of every pixel.
Tensor PixelChannels(const Case& c, std::span<const int64_t> channels) {
  const Window& v = c.window;
  const auto count = static_cast<int64_t>(channels.size());
  Tensor x(c.x.dtype(), {v.batch, v.in_h, v.in_w, count});
  for (int64_t pixel = 0; pixel < v.batch * v.in_h * v.in_w; ++pixel) {
    for (int64_t i = 0; i < count; ++i) {
      x.SetInt(pixel * count + i, c.x.IntAt(pixel * v.in_c + At(channels, i)));
    }
  }
  return x;
}

// What one axis of the window of an output sees.
struct Crop {
  int64_t from = 0, size = 0;  // of the input
  int64_t kernel = 0, stride = 0, pad_before = 0, pad_after = 0;
};
Crop CropAxis(int64_t out, int64_t in, int64_t kernel, int64_t stride, int64_t pad_before,
              int64_t pad_after, int64_t dilation) {
  const int64_t first = out * stride - pad_before;
  // With ceil_mode the last taps may lie beyond the padding, where nothing is.
  while (kernel > 1 && first + (kernel - 1) * dilation >= in + pad_after) --kernel;
  const int64_t last = first + (kernel - 1) * dilation;
  const int64_t from = std::max<int64_t>(first, 0);
  const int64_t to = std::min(last, in - 1);
  if (from > to) {
    // Padding only. One row of input stays, past the window: an empty image has no output.
    return {0, 1, kernel, std::max<int64_t>(stride, 2), last - first + 1, 0};
  }
  return {from, to - from + 1, kernel, stride, from - first, last - to};
}

}  // namespace

namespace internal {

Case WindowColumns(const Case& c, std::span<const int64_t> columns) {
  Case derived = ProblemOf(c);
  Window& v = derived.window;
  derived.N = static_cast<int64_t>(columns.size());
  if (IsPool(c.op)) {
    derived.x = PixelChannels(c, columns);
    v.in_c = derived.N;
    DeriveSizes(&derived);
    return derived;
  }
  const int64_t depth = v.in_c / v.groups;
  if (v.groups > 1) {
    std::vector<int64_t> groups;
    std::vector<int64_t> taken;
    for (int64_t column : columns) {
      const int64_t group = column / (c.N / v.groups);
      if (groups.empty() || groups.back() != group) {
        groups.push_back(group);
        taken.push_back(0);
      }
      ++taken.back();
    }
    for (int64_t count : taken) QUALM_CHECK_EQ(count, taken[0]);
    if (groups.empty()) groups.push_back(0);
    std::vector<int64_t> channels;
    for (int64_t group : groups) {
      for (int64_t i = 0; i < depth; ++i) channels.push_back(group * depth + i);
    }
    derived.x = PixelChannels(c, channels);
    v.groups = static_cast<int64_t>(groups.size());
    v.in_c = v.groups * depth;
  }
  derived.w = Tensor(c.w.dtype(), {derived.N, v.kernel_h, v.kernel_w, depth});
  for (int64_t n = 0; n < derived.N; ++n) {
    for (int64_t k = 0; k < c.K; ++k) {
      derived.w.SetInt(n * c.K + k, c.w.IntAt(At(columns, n) * c.K + k));
    }
  }
  DeriveSizes(&derived);
  return derived;
}

}  // namespace internal

std::vector<int64_t> LeadingColumns(const Case& c, int64_t most) {
  int64_t count = std::min(most, c.N);
  if (IsConv(c.op) && c.window.groups > 1) {
    const int64_t per_group = c.N / c.window.groups;
    if (count > per_group) count -= count % per_group;
  }
  return Iota(count);
}

Case Images(const Case& c, std::span<const int64_t> images) {
  QUALM_CHECK(HasWindow(c.op));
  Case derived = ProblemOf(c);
  Window& v = derived.window;
  v.batch = static_cast<int64_t>(images.size());
  const int64_t size = v.in_h * v.in_w * v.in_c;
  derived.x = Tensor(c.x.dtype(), {v.batch, v.in_h, v.in_w, v.in_c});
  for (int64_t image = 0; image < v.batch; ++image) {
    for (int64_t i = 0; i < size; ++i) {
      derived.x.SetInt(image * size + i, c.x.IntAt(At(images, image) * size + i));
    }
  }
  DeriveSizes(&derived);
  return derived;
}

Case InputChannels(const Case& c, std::span<const int64_t> channels, int32_t x_code,
                   int32_t w_code) {
  QUALM_CHECK(IsConv(c.op));
  Case derived = ProblemOf(c);
  Window& v = derived.window;
  const int64_t old_depth = v.in_c / v.groups;
  const auto depth = static_cast<int64_t>(channels.size());
  v.in_c = v.groups * depth;
  // Both tensors are rows of channels: pixels times groups, outputs times taps.
  const auto gather = [&](const Tensor& from, std::vector<int64_t> shape, int32_t code) {
    Tensor to(from.dtype(), std::move(shape));
    for (int64_t i = 0; i < to.size(); ++i) {
      const int64_t channel = At(channels, i % depth);
      to.SetInt(i, channel < 0 ? code : from.IntAt(i / depth * old_depth + channel));
    }
    return to;
  };
  derived.x = gather(c.x, {v.batch, v.in_h, v.in_w, v.in_c}, x_code);
  derived.w = gather(c.w, {c.N, v.kernel_h, v.kernel_w, depth}, w_code);
  DeriveSizes(&derived);
  return derived;
}

Case Pixel(const Case& c, int64_t m) {
  QUALM_CHECK(HasWindow(c.op) && m < c.M);
  Case derived = ProblemOf(c);
  const Window& old = c.window;
  Window& v = derived.window;
  const int64_t out_h = old.out_h(), out_w = old.out_w();
  const Crop rows = CropAxis(m / out_w % out_h, old.in_h, old.kernel_h, old.stride_h, old.pad_top,
                             old.pad_bottom, old.dilation_h);
  const Crop columns = CropAxis(m % out_w, old.in_w, old.kernel_w, old.stride_w, old.pad_left,
                                old.pad_right, old.dilation_w);
  v.batch = 1;
  v.ceil_mode = false;  // the crop ends where the window does
  v.in_h = rows.size;
  v.kernel_h = rows.kernel;
  v.stride_h = rows.stride;
  v.pad_top = rows.pad_before;
  v.pad_bottom = rows.pad_after;
  v.in_w = columns.size;
  v.kernel_w = columns.kernel;
  v.stride_w = columns.stride;
  v.pad_left = columns.pad_before;
  v.pad_right = columns.pad_after;
  derived.x = Tensor(c.x.dtype(), {1, v.in_h, v.in_w, v.in_c});
  const int64_t image = m / (out_h * out_w);
  for (int64_t y = 0; y < v.in_h; ++y) {
    for (int64_t x = 0; x < v.in_w; ++x) {
      const int64_t from =
          ((image * old.in_h + rows.from + y) * old.in_w + columns.from + x) * v.in_c;
      for (int64_t i = 0; i < v.in_c; ++i) {
        derived.x.SetInt((y * v.in_w + x) * v.in_c + i, c.x.IntAt(from + i));
      }
    }
  }
  DeriveSizes(&derived);
  return derived;
}

Case ExplicitPadding(const Case& c, int32_t code) {
  Case derived = ProblemOf(c);
  const Window& old = c.window;
  Window& v = derived.window;
  v.in_h += v.pad_top + v.pad_bottom;
  v.in_w += v.pad_left + v.pad_right;
  v.pad_top = v.pad_bottom = v.pad_left = v.pad_right = 0;
  derived.x = Tensor(c.x.dtype(), {v.batch, v.in_h, v.in_w, v.in_c});
  for (int64_t i = 0; i < derived.x.size(); ++i) {
    const int64_t pixel = i / v.in_c;
    const int64_t x = pixel % v.in_w - old.pad_left;
    const int64_t y = pixel / v.in_w % v.in_h - old.pad_top;
    const int64_t image = pixel / (v.in_w * v.in_h);
    const bool inside = x >= 0 && x < old.in_w && y >= 0 && y < old.in_h;
    const int64_t from = ((image * old.in_h + y) * old.in_w + x) * v.in_c + i % v.in_c;
    derived.x.SetInt(i, inside ? c.x.IntAt(from) : code);
  }
  DeriveSizes(&derived);
  return derived;
}

Case Taps(const Case& c, std::span<const int64_t> rows, std::span<const int64_t> columns,
          std::span<const int32_t> w_codes) {
  Case derived = ProblemOf(c);
  Window& v = derived.window;
  v.kernel_h = static_cast<int64_t>(rows.size());
  v.kernel_w = static_cast<int64_t>(columns.size());
  if (IsConv(c.op)) {
    const int64_t depth = v.in_c / v.groups;
    derived.w = Tensor(c.w.dtype(), {c.N, v.kernel_h, v.kernel_w, depth});
    for (int64_t i = 0; i < derived.w.size(); ++i) {
      const int64_t tap = i / depth;
      const int64_t s = At(columns, tap % v.kernel_w);
      const int64_t r = At(rows, tap / v.kernel_w % v.kernel_h);
      const int64_t n = tap / (v.kernel_w * v.kernel_h);
      const int64_t from =
          ((n * c.window.kernel_h + r) * c.window.kernel_w + s) * depth + i % depth;
      derived.w.SetInt(i, r < 0 || s < 0 ? w_codes[static_cast<size_t>(n)] : c.w.IntAt(from));
    }
  }
  DeriveSizes(&derived);
  return derived;
}

}  // namespace qualm::derive
