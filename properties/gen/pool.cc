// SPDX-License-Identifier: Apache-2.0
// Cases of max_pool, avg_pool and global_avg_pool.
#include <algorithm>
#include <array>
#include <cmath>

#include "properties/gen/geometry.h"
#include "properties/gen/layer.h"
#include "properties/gen/values.h"

namespace qualm::gen::internal {
namespace {

// Windows from 258 elements on, whose sums of 255 leave 16 bits.
void DrawLongWindow(Rng& rng, Window& v) {
  v = Window{};
  v.batch = 1;
  if (rng.Chance(1, 3)) {  // whose reciprocal is off in float64, as 14x14 of many networks
    constexpr std::array<std::array<int64_t, 2>, 5> kOdd{
        {{7, 7}, {7, 14}, {14, 14}, {14, 28}, {11, 14}}};
    const auto [h, w] = rng.Pick(kOdd);
    v.kernel_h = v.in_h = h;
    v.kernel_w = v.in_w = w;
    return;
  }
  const int64_t across = rng.Between(1, 24);
  v.kernel_w = across;
  v.kernel_h = (257 + rng.Between(0, 3)) / across + 1;
  if (rng.Chance(1, 4)) v.kernel_h *= 2;
  v.in_h = v.kernel_h;
  v.in_w = v.kernel_w + rng.Between(0, 1);
}

void DrawShape(Rng& rng, Theme theme, Case& c) {
  Window& v = c.window;
  if (theme == Theme::kLongK || theme == Theme::kFarValue ||
      (theme == Theme::kTies && rng.Chance(1, 3))) {
    DrawLongWindow(rng, v);
    v.in_c = rng.Between(1, 3);
  } else if (theme == Theme::kLayer) {
    DrawGeometry(rng, theme, c.op == Op::kMaxPool, v);
    v.in_c = DrawLayerPlanes(rng, c);
  } else {
    DrawGeometry(rng, theme, c.op == Op::kMaxPool, v);
    const int64_t cap = theme == Theme::kTails ? 131 : 40;
    const int64_t outputs = std::max<int64_t>(1, v.batch * v.out_h() * v.out_w());
    const int64_t most = std::min(6000 / std::max<int64_t>(1, v.batch * v.in_h * v.in_w),
                                  12000 / (outputs * v.kernel_h * v.kernel_w));
    v.in_c = std::min(DrawDim(rng, cap), std::max<int64_t>(1, most));
    if (theme == Theme::kEmpty && rng.Chance(1, 3)) v.in_c = 0;
  }
  if (c.op == Op::kGlobalAvgPool) {
    // Stride means nothing to a single window, and stays 1.
    const Window image = v;
    v = Window{};
    v.batch = image.batch;
    v.in_c = image.in_c;
    v.in_h = image.in_h;
    v.in_w = image.in_w;
    v.kernel_h = std::max<int64_t>(1, v.in_h);
    v.kernel_w = std::max<int64_t>(1, v.in_w);
  } else {
    v.ceil_mode = rng.Chance(1, 3);
    v.count_include_pad = c.op == Op::kAvgPool && rng.Chance(1, 2);
  }
}

// Where a window would see nothing but padding: image in its place, in the end everywhere.
void PullIn(Case& c) {
  Window& v = c.window;
  const auto valid = [&] {
    DeriveSizes(&c);
    c.x = Tensor(c.x.dtype(), {v.batch, v.in_h, v.in_w, v.in_c});
    return Validate(c).empty();
  };
  if (valid()) return;
  const auto replace = [](int64_t& pad, int64_t most, int64_t& image) {
    image += std::max<int64_t>(0, pad - most);
    pad = std::min(pad, most);
  };
  for (const bool none : {false, true}) {
    const int64_t most_h = none ? 0 : v.kernel_h / 2, most_w = none ? 0 : v.kernel_w / 2;
    replace(v.pad_top, most_h, v.in_h);
    replace(v.pad_bottom, most_h, v.in_h);
    replace(v.pad_left, most_w, v.in_w);
    replace(v.pad_right, most_w, v.in_w);
    if (valid()) return;
  }
  QUALM_CHECK(false);  // without padding every window starts in the image
}

void FillValues(Rng& rng, Theme theme, Case& c) {
  const DType dtype = c.x.dtype();
  const CodeRange range = RangeOf(dtype);
  uint64_t style = rng.Below(6);
  if (theme == Theme::kTies) style = rng.Below(7);
  if (theme == Theme::kUniform) style = 0;
  if (theme == Theme::kBoundaryBytes) style = 1;
  if (theme == Theme::kAllExtreme) style = rng.Between(2, 4);
  if (theme == Theme::kLongK) style = rng.Chance(3, 4) ? 2 : 0;
  if (theme == Theme::kFarValue) {  // one pixel above, or below, all others
    const auto all = static_cast<int32_t>(rng.Between(range.min, range.max - 60));
    const bool lower = c.op != Op::kMaxPool && rng.Chance(1, 2);
    const int32_t other = lower ? all : all + 60, rest = lower ? all + 60 : all;
    FillEach(c.x, [&] { return rest; });
    const int64_t pixels = c.window.in_h * c.window.in_w;
    for (int64_t image = 0; image < c.window.batch; ++image) {
      const int64_t pixel = image * pixels + FarPlace(rng, pixels);
      for (int64_t i = 0; i < c.window.in_c; ++i) c.x.SetInt(pixel * c.window.in_c + i, other);
    }
    return;
  }
  const int32_t end = ExtremeCode(rng, dtype);
  const int32_t middle =
      style == 6 ? static_cast<int32_t>(rng.Between(range.min, range.max - 1)) : 0;
  for (int64_t i = 0; i < c.x.size(); ++i) {
    int32_t code = end;
    switch (style) {
      case 0: code = UniformCode(rng, dtype); break;
      case 1: code = BoundaryCode(rng, dtype); break;
      case 2: break;  // one end of the type everywhere
      case 3:         // nearly
        if (rng.Chance(1, 16)) code = UniformCode(rng, dtype);
        break;
      case 4: code = ExtremeCode(rng, dtype); break;
      case 6:  // two codes in turn: the mean of a whole image with an even number of them ties
        code = middle + static_cast<int32_t>(i / std::max<int64_t>(1, c.window.in_c) % 2);
        break;
      default:  // the lower half: sums below the zero point
        code = static_cast<int32_t>(rng.Between(range.min, range.min + 127));
        break;
    }
    c.x.SetInt(i, code);
  }
}

void DrawScales(Rng& rng, Theme theme, Case& c) {
  if (theme == Theme::kScaleExtremes) {
    c.x_q.scale = {ExtremeScale(rng)};
    c.out_q.scale = {rng.Chance(1, 2) ? ExtremeScale(rng) : c.x_q.scale[0]};
    return;
  }
  if (theme == Theme::kParameterEdges) {
    c.out_q.scale = {PowerOfTwo(rng)};
    c.x_q.scale = {ToScale(DrawEdgeMultiplier(rng).value * c.out_q.scale[0])};
    return;
  }
  if (theme == Theme::kFarValue) {  // one of so many shows
    c.x_q.scale = {DrawScale(rng, -10, -1)};
    const auto taps = static_cast<double>(c.window.kernel_h * c.window.kernel_w);
    c.out_q.scale = {ToScale(c.x_q.scale[0] / taps * static_cast<double>(rng.Between(1, 20)))};
    return;
  }
  const float scale = theme == Theme::kTies
                          ? ToScale(std::ldexp(1.0, static_cast<int>(rng.Between(-8, 0))))
                          : DrawScale(rng, -10, -1);
  c.x_q.scale = {scale};
  const uint64_t style = rng.Below(theme == Theme::kTies ? 2 : 5);
  double out = scale;  // as most pools have it
  if (style == 1) out = std::ldexp(out, static_cast<int>(rng.Between(-2, 2)));
  if (style == 2) out *= 0.25 + 2.0 * rng.Unit();
  if (style == 3) out = std::ldexp(out, -static_cast<int>(rng.Between(1, 12)));
  if (style == 4) out = std::ldexp(out, static_cast<int>(rng.Between(1, 8)));
  c.out_q.scale = {ToScale(out)};
}

}  // namespace

Case DrawPool(Rng& rng, Theme theme, Op op) {
  Case c;
  c.op = op;
  const DType dtype = rng.Chance(1, 2) ? DType::kU8 : DType::kS8;
  c.x = Tensor(dtype, {0});
  c.out_dtype = dtype;
  OpenClamp(&c);
  DrawShape(rng, theme, c);
  PullIn(c);
  FillValues(rng, theme, c);
  DrawZeroPoints(rng, dtype, theme, c.x_q.zero_point);
  DrawScales(rng, theme, c);
  if (op == Op::kMaxPool) {
    c.out_q = c.x_q;
  } else {
    if (rng.Chance(1, 4)) c.out_dtype = dtype == DType::kU8 ? DType::kS8 : DType::kU8;
    c.out_q.zero_point = c.x_q.zero_point;
    if (rng.Chance(c.out_q.scale == c.x_q.scale ? 1 : 2, 3))
      DrawZeroPoints(rng, c.out_dtype, theme, c.out_q.zero_point);
  }
  if (theme == Theme::kWideTerms) {  // the number of codes times their zero point leaves int32
    const int64_t least =
        (int64_t{1} << 31) / std::max<int64_t>(1, c.window.kernel_h * c.window.kernel_w);
    const int64_t far = (std::min<int64_t>(least, 1 << 29) + rng.Between(0, 1 << 20)) | 1;
    c.x_q.zero_point = {static_cast<int32_t>(rng.Chance(1, 2) ? far : -far)};
    c.out_q = c.x_q;
  }
  DrawClamp(rng, theme, c);
  return c;
}

}  // namespace qualm::gen::internal
