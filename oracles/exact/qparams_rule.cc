// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/qparams_rule.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "core/float_format.h"
#include "oracles/exact/arithmetic/rational.h"
#include "oracles/exact/definition.h"
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

// Of f8e8m0fnu, in which MX stores scales.
constexpr int kMxExponents = 127;
constexpr float kMxLeastScale = 0x1p-127f;

float MxScale(int exponent) {
  return std::ldexp(1.0f, std::clamp(exponent, -kMxExponents, kMxExponents));
}

int32_t AtenSteps(bool reduce_range) { return reduce_range ? 127 : 255; }

// dynamic_linear goes on with the scale.
ChosenQParams Limited(const Case& c, ChosenQParams chosen) {
  if (RowOf(c.op).dynamic) chosen.scale = std::min(chosen.scale, FLT_MAX);
  return chosen;
}

namespace definition {

// The shared scale of MX: its exponent before it is cut to those of f8e8m0fnu.
int FloorLog2(const Rational& value) {
  int exponent = static_cast<int>(msb(Integer(numerator(value)))) -
                 static_cast<int>(msb(Integer(denominator(value))));
  return value < PowerOfTwo(exponent) ? exponent - 1 : exponent;
}
int CeilLog2(const Rational& value) {
  const int floor = FloorLog2(value);
  return value == PowerOfTwo(floor) ? floor : floor + 1;
}
ChosenQParams Mx(const Case& c, const Rational& magnitude) {
  const DType element = c.observer.dtype;
  const Rational largest = LargestOf(InfoOf(element).floating);
  const int highest = FloorLog2(largest);
  if (magnitude == 0) return {kMxLeastScale, 0};
  const int own = FloorLog2(magnitude);
  int exponent = 0;
  switch (c.rule) {
    case QParamsRule::kMxFloor: exponent = own - highest; break;
    case QParamsRule::kMxCeil: exponent = CeilLog2(magnitude) - highest; break;
    case QParamsRule::kMxEven: {
      const Rational unit = PowerOfTwo(own - InfoOf(element).floating.fraction_bits);
      exponent = FloorLog2(Rational(RoundHalfEven(magnitude / unit)) * unit) - highest;
      break;
    }
    case QParamsRule::kMxRceil: exponent = CeilLog2(magnitude / largest); break;
    default: {  // the larger one of two that are as near
      const Rational quotient = magnitude / largest;
      exponent = FloorLog2(quotient);
      if (quotient >= Rational(3, 2) * PowerOfTwo(exponent)) ++exponent;
    }
  }
  return {MxScale(exponent), 0};
}

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
    default: return Mx(c, std::max<Rational>(-exact.min, exact.max));
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

// By significands in [1, 2), of the magnitude and of the largest element: their quotient lies
// between 1/2 and 2. Products with numbers of few bits are exact.
ChosenQParams Mx(const Case& c, float magnitude) {
  if (magnitude == 0) return {kMxLeastScale, 0};
  const DType element = c.observer.dtype;
  const double largest = DecodeFloat(element, LargestCode(element));
  const int own = std::ilogb(magnitude), highest = std::ilogb(largest);
  const double of_magnitude = std::ldexp(static_cast<double>(magnitude), -own);
  const double of_largest = std::ldexp(largest, -highest);
  bool up = false;
  int down = 0;
  switch (c.rule) {
    case QParamsRule::kMxFloor: break;
    case QParamsRule::kMxCeil: up = of_magnitude > 1; break;
    case QParamsRule::kMxEven:
      up = of_magnitude >= 2 - std::ldexp(1.0, -InfoOf(element).floating.fraction_bits - 1);
      break;
    case QParamsRule::kMxRceil: up = of_magnitude > of_largest; break;
    default: up = of_magnitude >= 1.5 * of_largest; down = of_magnitude < 0.75 * of_largest ? 1 : 0;
  }
  return {MxScale(own - highest + (up ? 1 : 0) - down), 0};
}

[[gnu::noinline]] ChosenQParams Choose(const Case& c, ObservedRange range) {
  switch (c.rule) {
    case QParamsRule::kObserver: break;
    default: return Mx(c, std::max(-range.min, range.max));
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
