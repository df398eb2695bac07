// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/qparams_rule.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "oracles/exact/arithmetic/rational.h"
#include "oracles/exact/nearest_environment.h"

namespace qualm::exact {
namespace {

// Below this scale ATen chooses this scale: a float16 has no full precision there. It then widens
// the range, to 0..b codes where one end is 0, and takes the zero point from the end that is nearer
// to 0. The other end gives the same zero point in every case, and widening by a factor the same as
// widening to b codes; so here the lower end alone is moved.
constexpr float kAtenLeastScale = 6.1e-5f;
constexpr int32_t kOnnxSteps = 255;
constexpr float kOnnxLeastScale = FLT_TRUE_MIN;

int32_t AtenSteps(bool reduce_range) { return reduce_range ? 127 : 255; }

// dynamic_linear goes on with the scale.
ChosenQParams Limited(const Case& c, ChosenQParams chosen) {
  if (RowOf(c.op).dynamic) chosen.scale = std::min(chosen.scale, FLT_MAX);
  return chosen;
}

namespace definition {

Rational Single(const Rational& value) { return ToRational(RoundToFloat32(value)); }

// Rounded to float64, of normal size.
Rational Double(const Rational& value) {
  if (value == 0) return value;
  int exponent = static_cast<int>(msb(Integer(abs(numerator(value))))) -
                 static_cast<int>(msb(Integer(denominator(value))));
  if (abs(value) < PowerOfTwo(exponent)) --exponent;
  const Rational unit = PowerOfTwo(exponent - 52);
  return Rational(RoundHalfEven(value / unit)) * unit;
}

struct Range {
  Rational min, max;
};

ChosenQParams Aten(const Range& wide, bool reduce_range) {
  const Rational least = ToRational(kAtenLeastScale);
  const int32_t steps = AtenSteps(reduce_range);
  Rational min = wide.min;
  Rational scale = Double(Double(wide.max - min) / steps);
  const Rational single = Single(scale);
  if (single == 0 || std::isinf(RoundToFloat32(1 / single))) scale = Double(Rational(1, 10));
  if (scale < least) {
    min = Single(min * Single(least / Single(scale)));
    scale = least;
  }
  const Rational zero_point = -Double(min / scale);
  return {RoundToFloat32(scale),
          static_cast<int32_t>(RoundHalfEven(std::clamp<Rational>(zero_point, 0, steps)))};
}

ChosenQParams Onnx(const Range& range) {
  if (range.min == range.max) return {1.0f, 0};
  const float width = RoundToFloat32(range.max - range.min);
  if (std::isinf(width)) return {width, 0};
  const float scale = std::max(RoundToFloat32(ToRational(width) / kOnnxSteps), kOnnxLeastScale);
  const Rational zero_point = -Single(range.min / ToRational(scale));
  return {scale,
          static_cast<int32_t>(RoundHalfEven(std::clamp<Rational>(zero_point, 0, kOnnxSteps)))};
}

ChosenQParams Choose(const Case& c, ObservedRange range) {
  const Range exact{ToRational(range.min), ToRational(range.max)};
  switch (c.rule) {
    case QParamsRule::kAten: return Aten(exact, c.observer.reduce_range);
    case QParamsRule::kOnnx: return Onnx(exact);
    case QParamsRule::kObserver: break;
  }
  return FromRangeRational(c.observer, range.min, range.max);
}

}  // namespace definition
namespace fast {

// Not inlined: else the compiler may move arithmetic in front of NearestEnvironment.
[[gnu::noinline]] AtenChoice Aten(float min, float max, bool reduce_range) {
  const int32_t steps = AtenSteps(reduce_range);
  double scale = (static_cast<double>(max) - static_cast<double>(min)) / steps;
  const auto single = static_cast<float>(scale);
  if (std::isinf(1.0f / single)) scale = 0.1;
  if (scale < static_cast<double>(kAtenLeastScale)) {
    min *= kAtenLeastScale / static_cast<float>(scale);
    scale = static_cast<double>(kAtenLeastScale);
  }
  const double zero_point = -(static_cast<double>(min) / scale);
  return {scale, static_cast<int32_t>(std::nearbyint(std::clamp<double>(zero_point, 0, steps)))};
}

[[gnu::noinline]] ChosenQParams Choose(const Case& c, ObservedRange range) {
  switch (c.rule) {
    case QParamsRule::kObserver: break;
    case QParamsRule::kAten: {
      const AtenChoice choice = Aten(range.min, range.max, c.observer.reduce_range);
      return {static_cast<float>(choice.scale), choice.zero_point};
    }
    case QParamsRule::kOnnx: {
      const float scale = range.max == range.min
                              ? 1.0f
                              : std::max((range.max - range.min) / kOnnxSteps, kOnnxLeastScale);
      const float zero_point = std::clamp<float>(0.0f - range.min / scale, 0, kOnnxSteps);
      return {scale, static_cast<int32_t>(std::nearbyint(zero_point))};
    }
  }
  return FromRange(c.observer, range.min, range.max);
}

}  // namespace fast
}  // namespace

AtenChoice AtenFromRange(float min, float max, bool reduce_range) {
  const NearestEnvironment environment;
  return fast::Aten(min, max, reduce_range);
}

ChosenQParams ChosenFor(const Case& c, ObservedRange range) {
  const NearestEnvironment environment;
  return Limited(c, fast::Choose(c, range));
}

ChosenQParams ChosenForRational(const Case& c, ObservedRange range) {
  return Limited(c, definition::Choose(c, range));
}

}  // namespace qualm::exact
