// SPDX-License-Identifier: Apache-2.0
// Cases of dynamic_linear. What breaks it: nothing to spread over the codes, values all on one side
// of 0, one value that takes the codes from all others of its row, NaN and infinities, ranges of
// denormals, where a scale meets its floor, and what breaks the sums of linear.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "properties/gen/layer.h"
#include "properties/gen/sums.h"

namespace qualm::gen::internal {
namespace {

enum class Shape : uint8_t { kBothSides, kPositive, kNegative, kConstant, kZero, kOutlier, kCodes };

void DrawSizes(Rng& rng, Theme theme, Case& c) {
  if (theme == Theme::kLayer) return DrawLayerProducts(rng, c);
  if (theme == Theme::kMiddling) return DrawMiddlingProducts(rng, c);
  if (theme == Theme::kFarValue) {
    c.K = DrawFarLength(rng);
    c.M = rng.Between(1, 2);
    c.N = rng.Between(1, 3);
    return;
  }
  const int64_t cap = theme == Theme::kTails ? 131 : 40;
  c.K = theme == Theme::kLongK ? rng.Between(255, 2100) : DrawDim(rng, cap);
  c.N = theme == Theme::kLongK ? rng.Between(1, 3) : DrawDim(rng, cap);
  c.M = rng.Chance(4, 5) ? rng.Between(1, 5) : DrawDim(rng, cap);
  if (theme == Theme::kEmpty) {
    const uint64_t which = rng.Below(3);
    (which == 0 ? c.M : which == 1 ? c.N : c.K) = 0;
  }
  constexpr int64_t kBudget = 8000;
  if (c.M * c.N * c.K > kBudget) c.M = rng.Between(1, 3);
  if (c.M * c.N * c.K > kBudget) c.N = rng.Between(1, 8);
}

void DrawRule(Rng& rng, Theme theme, Case& c) {
  c.rule = static_cast<QParamsRule>(rng.Below(static_cast<size_t>(QParamsRule::kMxFloor)));
  c.x_gran = static_cast<Granularity>(rng.Below(CountOf<Granularity>()));
  Observer& o = c.observer;
  const bool reduce = rng.Chance(2, 5);
  if (c.rule != QParamsRule::kObserver) {
    o.reduce_range = reduce && c.rule == QParamsRule::kAten;
    return;
  }
  o.dtype = rng.Chance(1, 2) ? DType::kU8 : DType::kS8;
  o.symmetric = rng.Chance(2, 5);
  DrawCodesOf(rng, theme, reduce, o);
}

// The magnitude of the values: a power of two.
int DrawExponent(Rng& rng, Theme theme) {
  if (theme != Theme::kScaleExtremes) return static_cast<int>(rng.Between(-6, 5));
  switch (rng.Below(4)) {
    case 0: return static_cast<int>(rng.Between(-149, -120));  // denormal scales and their floors
    case 1: return static_cast<int>(rng.Between(-18, -5));     // the floors of float32 and ATen
    case 2: return static_cast<int>(rng.Between(120, 127));    // the range overflows
    default: return static_cast<int>(rng.Between(-140, 124));
  }
}

void FillRow(Rng& rng, Theme theme, Shape shape, int exponent, std::span<float> row) {
  const auto scaled = [exponent](double value) {
    return static_cast<float>(std::ldexp(value, exponent));
  };
  const float constant = scaled(2 * rng.Unit() - 1);
  for (float& value : row) {
    const double unit = rng.Unit();
    switch (shape) {
      case Shape::kBothSides: value = scaled(2 * unit - 1); break;
      case Shape::kPositive: value = scaled(0.25 + 0.75 * unit); break;
      case Shape::kNegative: value = scaled(-0.25 - 0.75 * unit); break;
      case Shape::kConstant: value = constant; break;
      case Shape::kZero: value = unit < 0.5 ? 0.0f : -0.0f; break;
      case Shape::kOutlier: value = scaled((2 * unit - 1) / 256); break;
      // Halves of a code where 255 of them span the row: ties.
      case Shape::kCodes: value = scaled(std::floor(unit * 511) / 2); break;
    }
    if (theme == Theme::kSpecialFloats && rng.Chance(1, 6)) value = SpecialFloat(rng);
  }
  if (row.empty()) return;
  const uint64_t place = theme == Theme::kFarValue
                             ? static_cast<uint64_t>(FarPlace(rng, std::ssize(row)))
                             : rng.Below(row.size());
  if (shape == Shape::kOutlier) row[place] = scaled(rng.Chance(1, 2) ? 1.0 : -1.0);
  if (shape == Shape::kCodes) row[place] = scaled(255);
}

void FillX(Rng& rng, Theme theme, Case& c) {
  c.x = Tensor(DType::kF32, {c.M, c.K});
  const auto all = static_cast<Shape>(rng.Below(7));
  const int exponent = DrawExponent(rng, theme);
  for (int64_t m = 0; m < c.M; ++m) {
    Shape shape = rng.Chance(2, 3) ? all : static_cast<Shape>(rng.Below(7));
    if (theme == Theme::kConstantRows && rng.Chance(2, 3))
      shape = rng.Chance(1, 3) ? Shape::kZero : Shape::kConstant;
    if (theme == Theme::kTies && rng.Chance(4, 5)) shape = Shape::kCodes;
    if (theme == Theme::kFarValue) shape = Shape::kOutlier;
    const int most = shape == Shape::kCodes ? 119 : 127;  // for finite values
    const int moved = std::min(exponent + static_cast<int>(rng.Between(-2, 2)), most);
    FillRow(rng, theme, shape, moved,
            c.x.as<float>().subspan(static_cast<size_t>(m * c.K), static_cast<size_t>(c.K)));
  }
  // The largest ranges: both ends of float32 in one row.
  if (theme == Theme::kScaleExtremes && c.x.size() > 1 && rng.Chance(1, 6)) {
    c.x.as<float>()[0] = FLT_MAX;
    c.x.as<float>()[1] = -FLT_MAX;
  }
}

}  // namespace

Case DrawDynamicLinear(Rng& rng, Theme theme, Op op) {
  Case c;
  c.op = op;
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  DrawSizes(rng, theme, c);
  DrawRule(rng, theme, c);
  FillX(rng, theme, c);
  c.w = Tensor(rng.Chance(4, 5) ? DType::kS8 : DType::kU8, {c.N, c.K});
  if (theme == Theme::kLayer || theme == Theme::kMiddling) {
    FillLayer(rng, c.K, c.w);
  } else {
    FillCodes(rng, theme, c.w);
  }
  NarrowWeights(rng, theme, c);
  c.per_channel = rng.Chance(1, 2);
  const auto channels = static_cast<size_t>(c.per_channel ? c.N : 1);
  c.w_q.scale.assign(channels, 1.0f);
  for (float& scale : c.w_q.scale) {
    scale = theme == Theme::kScaleExtremes && rng.Chance(1, 4) ? ExtremeScale(rng)
                                                               : DrawScale(rng, -10, 2);
  }
  c.w_q.zero_point.assign(channels, 0);
  if (theme == Theme::kZeroPoints || rng.Chance(1, 3))
    DrawZeroPoints(rng, c.w.dtype(), theme, c.w_q.zero_point);
  c.relu = rng.Chance(1, 5);
  if (rng.Chance(1, 2)) {
    c.bias.emplace(static_cast<size_t>(c.N), 0.0f);
    for (float& bias : *c.bias) bias = static_cast<float>(std::ldexp(2 * rng.Unit() - 1, 3));
  }
  return c;
}

}  // namespace qualm::gen::internal
