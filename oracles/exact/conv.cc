// SPDX-License-Identifier: Apache-2.0
// conv2d and depthwise. Output pixel (image, oy, ox), channel n of group g = n / (N/groups):
//   S = sum_{r,s,c} (x[image][y][x][g*C/groups + c] - zx) * (w[n][r][s][c] - zw_n) + bias_i32_n,
//   y = oy*stride_h - pad_top + r*dilation_h,  x = ox*stride_w - pad_left + s*dilation_w
// over the y and x inside the image: outside it the real input is 0. From S on as linear.
#include "oracles/exact/definition.h"

namespace qualm::exact {

Integer ConvSum(const Case& c, int64_t m, int64_t n) {
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

Rational ConvValue(const Case& c, int64_t m, int64_t n) {
  return ScaledSum(c, n, ConvSum(c, m, n));
}

}  // namespace qualm::exact
