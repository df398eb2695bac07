// SPDX-License-Identifier: Apache-2.0
// Cases of conv2d and depthwise.
#include <algorithm>
#include <array>
#include <vector>

#include "properties/gen/geometry.h"
#include "properties/gen/layer.h"
#include "properties/gen/sums.h"

namespace qualm::gen::internal {
namespace {

constexpr int64_t kMostProducts = 12000;
constexpr int64_t kMostPixels = 6000;  // times channels

// One output pixel over many channels.
void DrawLongK(Rng& rng, Case& c) {
  Window& v = c.window;
  constexpr std::array<int64_t, 10> kDepths{255, 256, 257, 511, 513, 1023, 1024, 1025, 1041, 1042};
  constexpr std::array<int64_t, 5> kLongest{33024, 33025, 33026, 65793, 65794};
  v.batch = v.in_h = v.in_w = 1;
  v.in_c = rng.Pick(kDepths);
  c.N = rng.Between(1, 2);
  const uint64_t style = rng.Below(100);
  if (style < 60) {  // the same number of terms in a window, or nearly
    v.kernel_h = rng.Between(1, 3);
    v.kernel_w = rng.Between(1, 3);
    v.in_c = std::max<int64_t>(1, v.in_c / (v.kernel_h * v.kernel_w));
    v.in_h = v.kernel_h;
    v.in_w = v.kernel_w;
    if (rng.Chance(1, 3)) v.pad_left = v.pad_bottom = 1;
  } else if (style >= 95) {
    v.in_c = rng.Pick(kLongest);
    c.N = 1;
  }
}

// One window over many channels, or over as many values in several pixels.
void DrawOneWindow(Rng& rng, int64_t depth, Case& c) {
  Window& v = c.window;
  v.batch = 1;
  v.kernel_h = v.in_h = rng.Chance(1, 2) ? 1 : rng.Between(1, 3);
  v.kernel_w = v.in_w = rng.Chance(1, 2) ? 1 : rng.Between(1, 3);
  v.in_c = std::max<int64_t>(1, depth / (v.kernel_h * v.kernel_w));
  c.N = depth < 10000 ? rng.Between(1, 3) : 1;
}

// One window of many taps, as long as a sum over the taps of one channel gets.
void DrawManyTaps(Rng& rng, Case& c) {
  Window& v = c.window;
  v.batch = 1;
  v.kernel_h = v.in_h = rng.Between(5, 17);
  v.kernel_w = v.in_w = rng.Between(7, 17);
  v.in_c = v.groups = rng.Between(1, 3);
  c.N = v.in_c * rng.Between(1, 2);
}

void DrawChannels(Rng& rng, Theme theme, Case& c) {
  if (theme == Theme::kLayer) return DrawLayerChannels(rng, c);
  if (theme == Theme::kMiddling) return DrawMiddlingChannels(rng, c);
  Window& v = c.window;
  const int64_t pixels = std::max<int64_t>(1, v.batch * v.in_h * v.in_w);
  const int64_t outputs = std::max<int64_t>(1, v.batch * v.out_h() * v.out_w());
  const int64_t taps = v.kernel_h * v.kernel_w;
  const int64_t cap = theme == Theme::kTails || rng.Chance(1, 10) ? 131 : 40;
  if (c.op == Op::kDepthwise) {
    const int64_t most = std::min(kMostPixels / pixels, kMostProducts / (outputs * taps));
    v.in_c = std::clamp<int64_t>(DrawDim(rng, cap), 1, std::max<int64_t>(1, most));
    const int64_t multiplier = rng.Chance(2, 3) ? 1 : rng.Between(2, 3);
    v.groups = v.in_c;
    c.N = v.in_c * multiplier;
    if (theme == Theme::kEmpty && rng.Chance(1, 4)) c.N = 0;
    return;
  }
  v.groups = rng.Chance(3, 5) ? 1 : rng.Between(2, 4);
  const int64_t small = v.groups == 1 ? cap : std::min<int64_t>(cap, 20);
  int64_t depth = DrawDim(rng, small);
  int64_t per_group = DrawDim(rng, small);
  depth = std::min(depth, std::max<int64_t>(1, kMostPixels / (pixels * v.groups)));
  depth = std::min(depth, std::max<int64_t>(1, kMostProducts / (outputs * taps * v.groups)));
  const int64_t products = outputs * taps * std::max<int64_t>(1, depth) * v.groups;
  per_group = std::min(per_group, std::max<int64_t>(1, kMostProducts / products));
  if (theme == Theme::kEmpty) {
    const uint64_t which = rng.Below(3);
    if (which == 0) depth = 0;
    if (which == 1) per_group = 0;
  }
  v.in_c = depth * v.groups;
  c.N = per_group * v.groups;
}

// Codes by channel, so that every window shows the same pattern: weights can answer to it. Where a
// group has one channel, the pairs lie across taps.
struct Pattern {
  std::vector<int32_t> x;  // one code per channel of a group
  int32_t At(int64_t k) const { return x[static_cast<size_t>(k % static_cast<int64_t>(x.size()))]; }
};

void Paint(const Pattern& pattern, Case& c) {
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, pattern.At(i));
}

void FillSignAligned(Rng& rng, int64_t depth, Case& c) {
  const CodeRange xr = RangeOf(c.x.dtype());
  const CodeRange wr = RangeOf(c.w.dtype());
  const bool by_pair = rng.Chance(1, 2);
  Pattern pattern;
  for (int64_t i = 0; i < depth; ++i) {
    pattern.x.push_back(by_pair && rng.Chance(3, 4) ? xr.max : ExtremeCode(rng, c.x.dtype()));
  }
  Paint(pattern, c);
  for (int64_t n = 0; n < c.N; ++n) {
    bool high = rng.Chance(1, 2);
    for (int64_t k = 0; k < c.K; ++k) {
      if (by_pair && k % 2 == 0) high = rng.Chance(1, 2);
      if (!by_pair) high = pattern.At(k) == xr.max;
      const auto less = static_cast<int32_t>(rng.Chance(1, 4) ? rng.Between(0, 3) : 0);
      c.w.SetInt(n * c.K + k, high ? wr.max - less : wr.min + less);
    }
  }
}

// Pairs (k, k+1) that sum to 32767 +- 8 or -32768 +- 8 in every window inside the image.
void FillThreshold(Rng& rng, int64_t depth, Case& c) {
  if (rng.Chance(1, 3)) return FillMagnitudes(rng, c);
  const int32_t shift = c.x.dtype() == DType::kS8 ? 128 : 0;
  const CodeRange w_range = RangeOf(c.w.dtype());
  Pattern pattern;
  for (int64_t i = 0; i < depth; ++i) {
    const int64_t least = rng.Chance(3, 4) ? 180 : 4;
    pattern.x.push_back(static_cast<int32_t>(rng.Between(least, 255)) - shift);
  }
  Paint(pattern, c);
  FillBoundary(rng, c.w.dtype(), c.w.bytes());
  for (int64_t n = 0; n < c.N; ++n) {
    for (int64_t k = 0; k + 1 < c.K; k += 2) {
      const int32_t x0 = pattern.At(k) + shift;
      const int32_t x1 = pattern.At(k + 1) + shift;
      const auto off = static_cast<int32_t>(rng.Between(-8, 8));
      const int32_t target = (rng.Chance(1, 2) ? 32767 : -32768) + off;
      const int32_t w0 = target > 0 ? static_cast<int32_t>(rng.Between(100, 127))
                                    : static_cast<int32_t>(rng.Between(-128, -100));
      const int32_t w1 = (target - x0 * w0) / x1;
      c.w.SetInt(n * c.K + k, std::clamp(w0, w_range.min, w_range.max));
      c.w.SetInt(n * c.K + k + 1, std::clamp(w1, w_range.min, w_range.max));
    }
  }
}

void FillConstant(Rng& rng, Case& c) {
  const int64_t image = c.x.size() / std::max<int64_t>(1, c.window.batch);
  for (int64_t i = 0; i < c.window.batch; ++i) {
    const int32_t code = BoundaryCode(rng, c.x.dtype());
    for (int64_t j = 0; j < image; ++j) c.x.SetInt(i * image + j, code);
  }
  const bool constant_w = rng.Chance(1, 3);
  for (int64_t n = 0; n < c.N; ++n) {
    const int32_t code = BoundaryCode(rng, c.w.dtype());
    for (int64_t k = 0; k < c.K; ++k) {
      c.w.SetInt(n * c.K + k, constant_w ? code : BoundaryCode(rng, c.w.dtype()));
    }
  }
}

void FillValues(Rng& rng, Theme theme, Case& c) {
  const Window& v = c.window;
  const int64_t depth = v.in_c / v.groups;
  c.x = Tensor(c.x.dtype(), {v.batch, v.in_h, v.in_w, v.in_c});
  c.w = Tensor(c.w.dtype(), {c.N, v.kernel_h, v.kernel_w, depth});
  if (theme == Theme::kLayer || (theme == Theme::kMiddling && rng.Chance(1, 2))) {
    FillLayer(rng, v.in_w * v.in_c, c.x);
    FillLayer(rng, c.K, c.w);
    return;
  }
  const Fill fill = PickFill(rng, theme);
  switch (fill) {
    case Fill::kUniform:
    case Fill::kBoundary:
    case Fill::kExtreme: FillElements(rng, fill, c); break;
    case Fill::kConstant: FillConstant(rng, c); break;
    case Fill::kSignAligned:
      if (depth > 0) FillSignAligned(rng, depth, c);
      break;
    case Fill::kThreshold:
      if (depth > 0) FillThreshold(rng, depth, c);
      break;
  }
  ZeroAChannel(rng, c);
}

}  // namespace

Case DrawConv(Rng& rng, Theme theme, Op op) {
  Case c;
  c.op = op;
  if (theme == Theme::kLongK && op == Op::kConv2d) {
    DrawLongK(rng, c);
  } else if (theme == Theme::kFarValue || theme == Theme::kWideTerms) {
    const int64_t depth = theme == Theme::kFarValue ? DrawFarLength(rng) : DrawWideDepth(rng);
    if (op == Op::kDepthwise) {
      DrawManyTaps(rng, c);
    } else {
      DrawOneWindow(rng, depth, c);
    }
  } else {
    DrawGeometry(rng, theme, true, c.window);
    if (theme == Theme::kLongK) {  // as long as a sum over the taps of one channel gets
      c.window.kernel_h = c.window.in_h = rng.Between(7, 17);
      c.window.kernel_w = c.window.in_w = rng.Between(7, 17);
      c.window.dilation_h = c.window.dilation_w = 1;
    }
    DrawChannels(rng, theme, c);
  }
  DeriveSizes(&c);
  DrawTypes(rng, c);
  if (theme == Theme::kLayer) DrawLayerList(rng, c);
  FillValues(rng, theme, c);
  NarrowWeights(rng, theme, c);
  DrawAroundSums(rng, theme, c);
  return c;
}

}  // namespace qualm::gen::internal
