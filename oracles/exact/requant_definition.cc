// SPDX-License-Identifier: Apache-2.0
// The requantization modes other than exact as their libraries define them, in rationals: each
// float32 or float64 operation is the real result rounded once, each shift a quotient rounded as
// the library says. The accumulator is first clamped to int32.
//   float32      FBGEMM src/QuantUtilsAvx2.cc @ 71d6f8b
//   fixed_q31    gemmlowp fixedpoint/fixedpoint.h @ e844ffd; TFLite QuantizeMultiplier and
//                MultiplyByQuantizedMultiplier (default build), tflite-micro @ 90b983c
//   fixed_rndnu  XNNPACK src/params-init.c @ ae108ef, *_rndnu_neon
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "core/float_text.h"
#include "core/status.h"
#include "oracles/exact/definition.h"

namespace qualm::exact {
namespace {

Integer HalfUp(const Rational& value) { return Floor(value + Rational(1, 2)); }
Integer HalfAway(const Rational& value) { return value < 0 ? -HalfUp(-value) : HalfUp(value); }

// Largest e with 2^e <= value; value > 0.
int ExponentOf(const Rational& value) {
  const int exponent = static_cast<int>(msb(Integer(numerator(value)))) -
                       static_cast<int>(msb(Integer(denominator(value))));
  return PowerOfTwo(exponent) > value ? exponent - 1 : exponent;
}

Integer Saturated(const Integer& value) { return Clamp(value, INT32_MIN, INT32_MAX); }
Integer Wrapped(const Integer& value) {
  const Integer modulus = Integer(1) << 32;
  const Rational shifted(Integer(value - INT32_MIN), modulus);
  return value - Floor(shifted) * modulus;
}

// fl(fl(x_scale*w_scale)/out_scale), or the given multiplier; may be 0 or infinite.
float FloatMultiplier(const Case& c, int64_t n) {
  if (!c.multiplier.empty()) return RoundToFloat32(RealMultiplier(c, n));
  const float product =
      RoundToFloat32(ToRational(c.x_q.scale_at(0)) * ToRational(c.w_q.scale_at(n)));
  if (std::isinf(product)) return product;
  return RoundToFloat32(ToRational(product) / ToRational(c.out_q.scale_at(0)));
}

class Definition {
 public:
  Definition(const Case& c, int64_t n, const Integer& accumulator) : c_(c), n_(n) {
    sum_ = Saturated(accumulator);
    if (sum_ != accumulator) {
      Step(Stage::kBias, "clamp " + accumulator.str() + " to int32", sum_);
    }
  }

  Requantized Float32() {
    const float multiplier = FloatMultiplier(c_, n_);
    const float real = RoundToFloat32(Rational(sum_));
    Step(Stage::kScale, "convert to float32: " + sum_.str(), real);
    Integer rounded = INT32_MIN;
    if (std::isinf(multiplier)) {
      Step(Stage::kScale,
           "the float32 multiplier overflows: " + Text(real) + " * infinity is no number that fits",
           sum_ == 0  ? std::numeric_limits<float>::quiet_NaN()
           : sum_ < 0 ? -multiplier
                      : multiplier);
    } else {
      const float product = RoundToFloat32(ToRational(real) * ToRational(multiplier));
      Step(Stage::kScale,
           std::string("multiply in float32") +
               (c_.multiplier.empty() ? " by fl(fl(x_scale*w_scale)/out_scale): " : ": ") +
               Text(real) + " * " + Text(multiplier),
           product);
      if (std::isfinite(product)) {
        const Integer nearest = RoundHalfEven(ToRational(product));
        if (nearest == Saturated(nearest)) rounded = nearest;
      }
    }
    Step(Stage::kRound,
         "round to the nearest int32, half to even (cvtps2dq: what does not fit gives INT32_MIN)",
         rounded);
    return WithZeroPoint(rounded);
  }

  Requantized FixedQ31() {
    // The real multiplier in float64, as Q * 2^(shift-31).
    const Rational real = RealMultiplier(c_, n_);
    const int unit = ExponentOf(real) - 52;
    const Rational multiplier = Rational(RoundHalfEven(real / PowerOfTwo(unit))) * PowerOfTwo(unit);
    int shift = ExponentOf(multiplier) + 1;
    Integer q = HalfAway(multiplier / PowerOfTwo(shift - 31));
    if (q == Integer(1) << 31) {
      q /= 2;
      ++shift;
    }
    if (shift < -31) {
      q = 0;
      shift = 0;
    }
    const int left = std::max(shift, 0);
    const int right = std::max(-shift, 0);
    Integer value = Wrapped(sum_ << left);
    if (left != 0) {
      Step(Stage::kScale, "shift left by " + std::to_string(left) + ", modulo 2^32", value);
    }
    // SaturatingRoundingDoublingHighMul: a nudge, then division toward zero.
    const Integer product = value * q;
    const Integer half = Integer(1) << 30;
    const Integer nudged = product >= 0 ? Integer(product + half) : Integer(product + 1 - half);
    value = nudged / (Integer(1) << 31);
    Step(Stage::kScale,
         "rounding doubling high multiply by Q = " + q.str() + " (the multiplier is Q*2^(" +
             std::to_string(shift) + "-31))",
         value);
    value = HalfAway(Rational(value, Integer(1) << right));
    Step(Stage::kRound, "divide by 2^" + std::to_string(right) + ", rounded half away from zero",
         value);
    return WithZeroPoint(value);
  }

  Requantized FixedRndnu() {
    const float multiplier = FloatMultiplier(c_, n_);
    Integer mantissa = 0;  // 2^30..2^31-1; what lies below 2^-126 leaves 0 of any accumulator
    int exponent = -127;
    if (std::isinf(multiplier)) {  // its bits, read as those of a number
      mantissa = Integer(1) << 30;
      exponent = 128;
    } else if (std::isnormal(multiplier)) {
      exponent = ExponentOf(ToRational(multiplier));
      mantissa = numerator(ToRational(multiplier) * PowerOfTwo(30 - exponent));
    }
    const int shift = -1 - exponent;
    const int right = std::max(shift, 1);
    const int left = right - shift;
    Integer value = Saturated(sum_ << left);
    if (left != 0) {
      Step(Stage::kScale, "shift left by " + std::to_string(left) + ", saturated to int32", value);
    }
    value = Floor(Rational(Integer(value * mantissa), Integer(1) << 31));
    Step(Stage::kScale,
         "doubling high multiply, truncated, by the 24-bit mantissa of " + Text(multiplier) +
             ", which is " + mantissa.str() + "*2^" + std::to_string(exponent - 30),
         value);
    value = HalfUp(Rational(value, Integer(1) << right));
    Step(Stage::kRound, "divide by 2^" + std::to_string(right) + ", rounded half up", value);
    return WithZeroPoint(value);
  }

 private:
  static std::string Text(float value) {
    return std::isfinite(value) ? ApproximateText(ToRational(value)) : FloatText(value);
  }

  void Step(Stage stage, const std::string& text, const Integer& value) {
    steps_.push_back({stage, text + " = " + value.str(), value.str(), false});
  }
  void Step(Stage stage, const std::string& text, float value) {
    const bool finite = std::isfinite(value);
    steps_.push_back({stage, text + " = " + Text(value),
                      finite ? ToText(ToRational(value)) : FloatText(value), false});
  }

  Requantized WithZeroPoint(const Integer& rounded) {
    const int32_t zero_point = c_.out_q.zero_point_at(0);
    Integer code = rounded + zero_point;
    std::string text = "add the zero point: " + rounded.str() + " + " + std::to_string(zero_point);
    if (c_.requant == Requant::kFixedQ31 && code != Wrapped(code)) {
      code = Wrapped(code);
      text += ", modulo 2^32";
    }
    Step(Stage::kZeroPoint, text, code);
    return {code, std::move(steps_)};
  }

  const Case& c_;
  int64_t n_;
  Integer sum_;
  Trace steps_;
};

}  // namespace

Requantized RequantizeAs(const Case& c, int64_t n, const Integer& accumulator) {
  Definition definition(c, n, accumulator);
  switch (c.requant) {
    case Requant::kFloat32: return definition.Float32();
    case Requant::kFixedQ31: return definition.FixedQ31();
    case Requant::kFixedRndnu: return definition.FixedRndnu();
    case Requant::kExact: break;
  }
  QUALM_CHECK(!"exact is no mode of a library");
  return {};
}

}  // namespace qualm::exact
