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
#include <string>
#include <vector>

#include "core/status.h"
#include "oracles/exact/meanings.h"
#include "oracles/exact/told.h"

namespace qualm::exact {
namespace {
namespace definition {

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

std::optional<Rational> MaxValue(const Case& c, int64_t m, int64_t n) {
  std::optional<int32_t> largest;
  ForEachPosition(c, m, [&](std::optional<int64_t> pixel) {
    if (!pixel) return;
    const int32_t code = c.x.IntAt(*pixel + n);
    largest = largest ? std::max(*largest, code) : code;
  });
  QUALM_CHECK(largest.has_value());
  return Rational(Integer(Integer(*largest) - c.x_q.zero_point_at(0)));
}

std::optional<Rational> AverageValue(const Case& c, int64_t m, int64_t n) {
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

}  // namespace definition
namespace fast {

// Calls `visit` with the differences x - zx of all channels at each tap inside the image; returns
// the number of these taps.
template <class Visit>
int64_t ForEachTap(const Case& c, int64_t m, const Visit& visit) {
  int64_t inside = 0;
  for (const Tap& tap : TapsOf(c.window, m)) {
    if (tap.x_row < 0) continue;
    ++inside;
    for (int64_t n = 0; n < c.N; ++n) {
      visit(static_cast<size_t>(n), Difference(c.x, c.x_q, tap.x_row + n));
    }
  }
  return inside;
}

void Maxima(const Case& c, Integers* integers) {
  std::vector<int64_t> row(static_cast<size_t>(c.N));
  for (int64_t m = 0; m < c.M; ++m) {
    std::ranges::fill(row, INT64_MIN);
    ForEachTap(c, m, [&](size_t n, int64_t value) { row[n] = std::max(row[n], value); });
    integers->values.insert(integers->values.end(), row.begin(), row.end());
  }
}

void SumsAndCounts(const Case& c, Integers* integers) {
  const Window& v = c.window;
  std::vector<int64_t> row(static_cast<size_t>(c.N));
  for (int64_t m = 0; m < c.M; ++m) {
    std::ranges::fill(row, 0);
    int64_t count = ForEachTap(c, m, [&](size_t n, int64_t value) { row[n] += value; });
    integers->values.insert(integers->values.end(), row.begin(), row.end());
    if (v.count_include_pad) {
      // Windows start inside the padded image; what hangs over its end does not count.
      const int64_t top = m / v.out_w() % v.out_h() * v.stride_h;
      const int64_t left = m % v.out_w() * v.stride_w;
      count = std::min(v.kernel_h, v.pad_top + v.in_h + v.pad_bottom - top) *
              std::min(v.kernel_w, v.pad_left + v.in_w + v.pad_right - left);
    }
    integers->counts.push_back(count);
  }
}

void OverCount(const Case&, const Integers& integers, int64_t m, int64_t, Scaled* sum) {
  sum->line.divisor *= integers.counts[static_cast<size_t>(m)];
}

}  // namespace fast
namespace told {

// Calls visit(i, number of codes, code) for the codes of the window; returns their number.
template <class Visit>
int64_t ForEachInWindow(const Case& c, const Visit& visit) {
  std::vector<Tap> taps = TapsOf(c.window, 0);
  std::erase_if(taps, [](const Tap& tap) { return tap.x_row < 0; });
  const auto count = static_cast<int64_t>(taps.size());
  for (int64_t i = 0; i < count; ++i) {
    visit(i, count, c.x.IntAt(taps[static_cast<size_t>(i)].x_row));
  }
  return count;
}

void Maximum(Teller& t) {
  Integer largest = INT32_MIN;
  std::string codes;
  const int64_t count = ForEachInWindow(t.c, [&](int64_t i, int64_t of, int32_t code) {
    largest = std::max<Integer>(largest, code);
    AppendTerm(&codes, i, of, ", ", std::to_string(code));
  });
  t.Step(Stage::kAccumulate,
         "the largest of the " + std::to_string(count) + " codes in the window: " + codes,
         Rational(largest));
  t.ClampCode(largest);
}

void Average(Teller& t) {
  const Case& c = t.c;
  Integer sum = 0;
  std::string codes;
  const int64_t inside = ForEachInWindow(c, [&](int64_t i, int64_t of, int32_t code) {
    sum += code;
    AppendTerm(&codes, i, of, " + ", std::to_string(code));
  });
  const std::string terms = std::to_string(inside);
  t.Step(Stage::kAccumulate,
         inside == 0 ? "the window lies in the padding, the sum is 0"
                     : "sum of the " + terms + " codes in the window: " + codes + " = " + sum.str(),
         sum.str());
  const Integer zx = c.x_q.zero_point_at(0);
  const Integer difference = sum - inside * zx;
  t.Step(Stage::kOffset,
         "take out the zero point: " + sum.str() + " - " + terms + "*" + Parenthesized(zx),
         Rational(difference));
  // The single window of OneOutput does not reach beyond the padding.
  const int64_t count = c.window.count_include_pad ? c.K : inside;
  const Rational value = *definition::AverageValue(c, 0, 0);
  t.Step(Stage::kScale,
         "multiply by x_scale/(count*out_scale): " + difference.str() + " * " +
             Short(c.x_q.scale_at(0)) + " / (" + std::to_string(count) + " * " +
             Short(c.out_q.scale_at(0)) + ")" + (count != inside ? ", padding counted" : ""),
         value);
  t.RoundToCode(value);
}

}  // namespace told
}  // namespace

extern constexpr Meaning kMaxPool{.op = Op::kMaxPool,
                                  .definition = {.value = definition::MaxValue},
                                  .fast = {.integers = fast::Maxima, .line = IdentityLine},
                                  .told = {.steps = Alone<told::Maximum>}};
extern constexpr Meaning kAvgPool{
    .op = Op::kAvgPool,
    .definition = {.value = definition::AverageValue},
    .fast = {.integers = fast::SumsAndCounts, .line = RescaleLine, .scaled = fast::OverCount},
    .told = {.steps = Alone<told::Average>}};
extern constexpr Meaning kGlobalAvgPool{Op::kGlobalAvgPool, kAvgPool.definition, kAvgPool.fast,
                                        kAvgPool.told};

}  // namespace qualm::exact
