// SPDX-License-Identifier: Apache-2.0
// conv2d and depthwise. Output pixel (image, oy, ox), channel n of group g = n / (N/groups):
//   S = sum_{r,s,c} (x[image][y][x][g*C/groups + c] - zx) * (w[n][r][s][c] - zw_n) + bias_i32_n,
//   y = oy*stride_h - pad_top + r*dilation_h,  x = ox*stride_w - pad_left + s*dilation_w
// over the y and x inside the image: outside it the real input is 0. From S on as linear.
#include "oracles/exact/sums.h"

namespace qualm::exact {
namespace {
namespace definition {

Integer Sum(const Case& c, int64_t m, int64_t n) {
  const Window& v = c.window;
  const int64_t image = m / (v.out_h() * v.out_w());
  const int64_t oy = m / v.out_w() % v.out_h();
  const int64_t ox = m % v.out_w();
  const int64_t depth = v.in_c / v.groups;
  const int64_t group = n / (c.N / v.groups);
  const Integer zx = c.x_q.zero_point_at(0);
  const Integer zw = c.w_q.zero_point_at(n);
  Integer sum = 0;
  for (int64_t r = 0; r < v.kernel_h; ++r) {
    for (int64_t s = 0; s < v.kernel_w; ++s) {
      const int64_t y = oy * v.stride_h - v.pad_top + r * v.dilation_h;
      const int64_t x = ox * v.stride_w - v.pad_left + s * v.dilation_w;
      if (y < 0 || y >= v.in_h || x < 0 || x >= v.in_w) continue;
      for (int64_t ch = 0; ch < depth; ++ch) {
        const int64_t pixel = (image * v.in_h + y) * v.in_w + x;
        const Integer input = c.x.IntAt(pixel * v.in_c + group * depth + ch);
        const Integer weight = c.w.IntAt(((n * v.kernel_h + r) * v.kernel_w + s) * depth + ch);
        sum += (input - zx) * (weight - zw);
      }
    }
  }
  if (c.bias_i32) sum += (*c.bias_i32)[static_cast<size_t>(n)];
  return sum;
}

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  return ScaledSum(c, n, Sum(c, m, n));
}

}  // namespace definition
namespace told {

// The window is that of OneOutput: one group, one output channel.
void Steps(Teller& t) {
  const Case& c = t.c;
  const Window& v = c.window;
  TermsTold terms{"(r,s,c)", {}};
  for (const Tap& tap : TapsOf(v, 0)) {
    if (tap.x_row < 0) {
      ++terms.taps_in_padding;
      continue;
    }
    const int64_t w = (tap.r * v.kernel_w + tap.s) * v.in_c;
    for (int64_t ch = 0; ch < v.in_c; ++ch) {
      terms.xw.emplace_back(c.x.IntAt(tap.x_row + ch), c.w.IntAt(w + ch));
    }
  }
  TellSum(t, terms);
}

}  // namespace told
}  // namespace

extern constexpr Meaning kConv2d{
    .op = Op::kConv2d,
    .definition = {.value = definition::Value, .accumulator = definition::Sum},
    .fast = {.integers = SumsOf, .line = LineOfSum},
    .told = {.steps = Alone<told::Steps>}};
extern constexpr Meaning kDepthwise{Op::kDepthwise, kConv2d.definition, kConv2d.fast, kConv2d.told};

}  // namespace qualm::exact
