// SPDX-License-Identifier: Apache-2.0
// Cases of choose_qparams. They hold what breaks observers: all values equal, values all on one
// side of 0, scales next to their floor, ranges that grow or shrink from batch to batch; of codes,
// values on ties.

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

#include "core/float_format.h"
#include "properties/gen/layer.h"

namespace qualm::gen::internal {
namespace {

void DrawCodes(Rng& rng, Theme theme, Observer& o) {
  o.dtype = rng.Chance(3, 5) ? DType::kU8 : DType::kS8;
  o.symmetric = rng.Chance(2, 5);
  const bool reduce = rng.Chance(2, 5);
  DrawCodesOf(rng, theme, reduce, o);
}

// The magnitude of a batch: a power of two.
int DrawExponent(Rng& rng, Theme theme, const Case& c) {
  const bool histogram = c.observer.kind == Observer::Kind::kHistogram;
  if (theme == Theme::kScaleExtremes && c.rule != QParamsRule::kObserver) {
    switch (rng.Below(3)) {
      case 0: return static_cast<int>(rng.Between(-149, -120));  // denormal scales, that of onnx
      case 1: return static_cast<int>(rng.Between(-9, -5));      // the least scale of aten
      default: return static_cast<int>(rng.Between(122, 125));   // the range overflows
    }
  }
  // Ranges around 2^-23 * 255, where a scale meets its floor, half of the time.
  if (theme == Theme::kScaleExtremes) {
    if (rng.Chance(1, 2)) return static_cast<int>(rng.Between(-18, -14));
    return static_cast<int>(histogram ? rng.Between(-40, 20) : rng.Between(-140, 124));
  }
  return static_cast<int>(rng.Between(-6, 5));
}

enum class Shape : uint8_t { kBothSides, kPositive, kNegative, kConstant, kMostlyZero, kOutlier };

float DrawValue(Rng& rng, Shape shape, float constant, int exponent) {
  const double unit = rng.Unit();
  const auto scaled = [exponent](double value) {
    return static_cast<float>(std::ldexp(value, exponent));
  };
  switch (shape) {
    case Shape::kBothSides: return scaled(2 * unit - 1);
    case Shape::kPositive: return scaled(0.25 + 0.75 * unit);
    case Shape::kNegative: return scaled(-0.25 - 0.75 * unit);
    case Shape::kConstant: return constant;
    case Shape::kMostlyZero: return unit < 0.8 ? 0.0f : scaled(2 * unit - 1);
    case Shape::kOutlier: return scaled((unit < 0.9 ? 0.1 : 1.0) * (2 * unit - 1));
  }
  return 0.0f;
}

float SmallSpecial(Rng& rng) {
  switch (rng.Below(6)) {
    case 0: return 0.0f;
    case 1: return -0.0f;
    case 2: return FLT_TRUE_MIN;
    case 3: return -FLT_MIN;
    case 4: return std::bit_cast<float>(static_cast<uint32_t>(rng.Between(1, 0x7fffff)));
    default: return rng.Chance(1, 2) ? 1.0f : -1.0f;
  }
}

Tensor DrawBatches(Rng& rng, Theme theme, int64_t batches, const Case& c) {
  Tensor x(DType::kF32, {batches, c.M, c.N});
  const int exponent = DrawExponent(rng, theme, c);
  const auto values = x.as<float>();
  const size_t per_batch = values.size() / static_cast<size_t>(batches);
  const auto shape = static_cast<Shape>(rng.Below(6));
  for (size_t b = 0; b < static_cast<size_t>(batches); ++b) {
    Shape now = rng.Chance(2, 3) ? shape : static_cast<Shape>(rng.Below(6));
    if (theme == Theme::kConstantRows && rng.Chance(2, 3)) now = Shape::kConstant;
    const int moved = exponent + static_cast<int>(rng.Between(-2, 2));
    const auto constant = static_cast<float>(std::ldexp(2 * rng.Unit() - 1, moved));
    for (size_t i = 0; i < per_batch; ++i) {
      float value = DrawValue(rng, now, constant, moved);
      if (theme == Theme::kSpecialFloats && rng.Chance(1, 3)) value = SmallSpecial(rng);
      // Values on codes, and on the whole numbers between which a histogram counts.
      if (theme == Theme::kTies && rng.Chance(1, 2)) value = std::trunc(value * 8.0f) / 4.0f;
      values[b * per_batch + i] = value;
    }
    if (theme == Theme::kFarValue) {  // twice what no other value reaches, in one of the rows
      const int64_t length = c.per_channel ? c.M : c.N;
      const auto place = static_cast<size_t>(FarPlace(rng, length));
      const auto at = c.per_channel ? place * static_cast<size_t>(c.N) : place;
      values[b * per_batch + at] =
          static_cast<float>(std::ldexp(rng.Chance(1, 2) ? 2.0 : -2.0, moved));
    }
  }
  return x;
}

// Values on ties of their codes, on codes and next to both: the range makes a scale of few bits, so
// that half of it is a float32 too. The zero point may be a tie.
void PlaceOnTies(Rng& rng, Case& c) {
  const double scale =
      std::ldexp(static_cast<double>(rng.Between(1, 8)), static_cast<int>(rng.Between(-10, 4)));
  const int64_t steps = c.observer.reduce_range ? 127 : 255;
  const double least = -static_cast<double>(rng.Between(0, 2 * steps)) / 2;  // in steps
  const auto value = [&](int64_t half_steps) {
    return static_cast<float>((least + static_cast<double>(half_steps) / 2) * scale);
  };
  for (float& x : c.x.as<float>()) {
    x = value(rng.Between(0, 2 * steps));
    if (rng.Chance(1, 4)) x = std::nextafter(x, 0.0f);
  }
  const int64_t rows = c.per_channel ? c.M : 1, length = c.x.size() / c.x.shape()[0] / rows;
  for (int64_t m = 0; m < rows; ++m) {
    const auto row =
        c.x.as<float>().subspan(static_cast<size_t>(m * length), static_cast<size_t>(length));
    row.front() = value(0);
    row.back() = value(2 * steps);
  }
}

// Each block's largest magnitude beside the numbers between which a rule of MX changes the scale,
// the others below it, half of them beside ties of elements.
void PlaceOnMxBounds(Rng& rng, Case& c) {
  const DType element = c.observer.dtype;
  const double largest = DecodeFloat(element, LargestCode(element));
  const int bits = InfoOf(element).floating.fraction_bits, own = std::ilogb(largest);
  const double of_largest = std::ldexp(largest, -own);
  const std::array<double, 5> bounds{1, of_largest, 2 - std::ldexp(1.0, -bits - 1),
                                     0.75 * of_largest, 1.5 * of_largest};
  const auto beside = [&](double value) {
    const auto number = static_cast<float>(value);
    const float to = rng.Chance(1, 2) ? INFINITY : 0.0f;
    return rng.Chance(1, 2) ? number : std::nextafter(number, to);
  };
  const int64_t rows = c.per_channel ? c.M : 1, batches = c.x.shape()[0];
  const auto values = c.x.as<float>();
  const int64_t length = c.x.size() / batches / rows;
  for (int64_t row = 0; row < batches * rows; ++row) {
    const int exponent =
        static_cast<int>(rng.Chance(1, 6) ? rng.Between(-149, 126) : rng.Between(-12, 12));
    const double top = std::ldexp(rng.Pick(bounds), exponent);
    const auto block =
        values.subspan(static_cast<size_t>(row * length), static_cast<size_t>(length));
    for (float& x : block) {
      // Half way between neighbours of the element type, or anything, under the largest one.
      const double code = rng.Chance(1, 2)
                              ? std::ldexp(static_cast<double>(rng.Between(0, 4 << bits)),
                                           static_cast<int>(rng.Between(-8, 0)) - bits - 1)
                              : rng.Unit();
      x = beside(std::min(code, 1.0) * std::ldexp(1.0, exponent));
      if (rng.Chance(1, 2)) x = -x;
      if (!(std::abs(x) <= top)) x = 0;
    }
    const auto number = beside(top);
    block[rng.Below(block.size())] = std::isfinite(number) ? number : FLT_MAX;
  }
}

}  // namespace

Case DrawObserver(Rng& rng, Theme theme, Op op) {
  Case c;
  c.op = op;
  DrawShape(rng, theme == Theme::kEmpty ? Theme::kUniform : theme, 200, c);
  if (theme == Theme::kFarValue) {
    c.N = DrawFarLength(rng);
    c.M = rng.Between(1, 2);
  }
  c.M = std::max<int64_t>(c.M, 1);
  c.N = std::max<int64_t>(c.N, 1);
  Observer& o = c.observer;
  o.kind = static_cast<Observer::Kind>(rng.Below(5) / 2);  // of five cases one is a histogram
  DrawCodes(rng, theme, o);
  if (rng.Chance(1, 4)) {
    constexpr std::array<float, 5> kConstants{0.0f, 0.5f, 0.1f, 1.0f, 0x1p-20f};
    o.averaging_constant = rng.Pick(kConstants);
  }
  if (o.kind == Observer::Kind::kMinMax && rng.Chance(1, 2)) {
    c.rule = rng.Chance(1, 2) ? QParamsRule::kAten : QParamsRule::kOnnx;
    o = {.reduce_range = c.rule == QParamsRule::kAten && rng.Chance(1, 3)};
    if (rng.Chance(1, 3)) {
      c.rule = static_cast<QParamsRule>(rng.Between(static_cast<int>(QParamsRule::kMxFloor),
                                                    static_cast<int>(QParamsRule::kMxNearest)));
      o = {.dtype = *(kMxElements.begin() + rng.Below(kMxElements.count))};
      if (theme != Theme::kFarValue && rng.Chance(1, 2)) c.N = rng.Chance(1, 3) ? 16 : 32;
    }
  }
  const bool per_channel = IsMx(c.rule) ? rng.Chance(4, 5) : rng.Chance(1, 3);
  c.per_channel = per_channel && o.kind != Observer::Kind::kHistogram;
  if (theme == Theme::kFarValue && c.per_channel) std::swap(c.M, c.N);  // a channel is a column
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  const bool far = theme == Theme::kFarValue;
  const int64_t batches = theme == Theme::kLongK ? rng.Between(5, 24) : rng.Between(1, far ? 2 : 4);
  // A histogram may refuse values: they are drawn again, and in the end replaced by 1.
  bool valid = false;
  for (int attempt = 0; attempt < 20 && !valid; ++attempt) {
    c.x = DrawBatches(rng, theme, batches, c);
    valid = Validate(c).empty();
  }
  if (!valid) std::ranges::fill(c.x.as<float>(), 1.0f);
  c.codes = c.rule != QParamsRule::kObserver && rng.Chance(9, 10);
  if (IsMx(c.rule)) {
    if (rng.Chance(1, 2)) PlaceOnMxBounds(rng, c);
    return c;
  }
  if (c.codes && (theme == Theme::kTies || rng.Chance(1, 4))) PlaceOnTies(rng, c);
  return c;
}

}  // namespace qualm::gen::internal
