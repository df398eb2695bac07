// SPDX-License-Identifier: Apache-2.0
// avg_pool, global_avg_pool: y = clamp(RNE(sum s * (x - zx) / (count * sy)) + z) over the window's
//   input elements; count is their number or, with count_include_pad, also that of the window's
//   positions in the padding, but never of those beyond it, where ceil_mode lets a window hang
//   over.
// max_pool: y = clamp(the largest code). Input and output share scale and zero point, so that in
//   real terms this is (x - z) of the largest input element.
#include <algorithm>
#include <functional>
#include <optional>

#include "core/status.h"
#include "oracles/exact/definition.h"

namespace qualm::exact {
namespace {

// Calls `visit` for every position of the window of output pixel m, with the index of channel 0 of
// its pixel in x, none where the position lies in the padding; positions beyond the padding are
// not visited.
void ForEachPosition(const Case& c, int64_t m,
                     const std::function<void(std::optional<int64_t>)>& visit) {
  const Window& v = c.window;
  const int64_t image = m / (v.out_h() * v.out_w());
  const int64_t oy = m / v.out_w() % v.out_h();
  const int64_t ox = m % v.out_w();
  for (int64_t r = 0; r < v.kernel_h; ++r) {
    for (int64_t s = 0; s < v.kernel_w; ++s) {
      const int64_t y = oy * v.stride_h - v.pad_top + r * v.dilation_h;
      const int64_t x = ox * v.stride_w - v.pad_left + s * v.dilation_w;
      if (y >= v.in_h + v.pad_bottom || x >= v.in_w + v.pad_right) continue;
      if (y < 0 || y >= v.in_h || x < 0 || x >= v.in_w) {
        visit(std::nullopt);
      } else {
        visit(((image * v.in_h + y) * v.in_w + x) * v.in_c);
      }
    }
  }
}

}  // namespace

Rational MaxPoolValue(const Case& c, int64_t m, int64_t n) {
  std::optional<int32_t> largest;
  ForEachPosition(c, m, [&](std::optional<int64_t> pixel) {
    if (!pixel) return;
    const int32_t code = c.x.IntAt(*pixel + n);
    largest = largest ? std::max(*largest, code) : code;
  });
  QUALM_CHECK(largest.has_value());
  return Rational(Integer(Integer(*largest) - c.x_q.zero_point_at(0)));
}

Rational AvgPoolValue(const Case& c, int64_t m, int64_t n) {
  const Integer zx = c.x_q.zero_point_at(0);
  Integer sum = 0;
  Integer count = 0;
  ForEachPosition(c, m, [&](std::optional<int64_t> pixel) {
    if (pixel) sum += c.x.IntAt(*pixel + n) - zx;
    if (pixel || c.window.count_include_pad) count += 1;
  });
  QUALM_CHECK(count > 0);
  return ToRational(c.x_q.scale_at(0)) * Rational(sum) /
         (Rational(count) * ToRational(c.out_q.scale_at(0)));
}

}  // namespace qualm::exact
