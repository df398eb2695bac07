// SPDX-License-Identifier: Apache-2.0
// cast: y = x_scale * x / out_scale in the output type, rounded once as the case says. Beyond the
// type: infinity, the largest value or NaN. Any NaN is right where a NaN is (Tensor::AcceptAnyNan).
#include <algorithm>
#include <optional>
#include <string>

#include "core/float_format.h"
#include "core/float_text.h"
#include "core/scaled_cast.h"
#include "oracles/exact/definition.h"
#include "oracles/exact/meanings.h"
#include "oracles/exact/told.h"

namespace qualm::exact {
namespace {
namespace definition {

using Top = FloatFormat::Top;

enum class Kind : uint8_t { kNumber, kInfinity, kNan };
struct Element {
  Kind kind = Kind::kNumber;
  bool negative = false;  // of zeros and infinities too
  Rational value;
};

Element ElementOf(const Tensor& x, int64_t i) {
  const FloatFormat& f = InfoOf(x.dtype()).floating;
  const uint32_t code = x.BitsAt(i);
  const uint32_t sign_bit = 1u << (f.exponent_bits + f.fraction_bits);
  const uint32_t fraction = code % (1u << f.fraction_bits);
  const uint32_t exponent = (code >> f.fraction_bits) % (1u << f.exponent_bits);
  const bool all_ones = exponent == (1u << f.exponent_bits) - 1;
  Element element;
  element.negative = f.has_sign && (code & sign_bit) != 0;
  if (f.top == Top::kMinusZero && code == sign_bit) return {Kind::kNan, false, 0};
  if (f.top == Top::kIeee && all_ones)
    return {fraction == 0 ? Kind::kInfinity : Kind::kNan, element.negative, 0};
  if (f.top == Top::kAllOnes && all_ones && fraction == (1u << f.fraction_bits) - 1)
    return {Kind::kNan, false, 0};
  const Rational part = Rational(Integer(fraction)) * PowerOfTwo(-f.fraction_bits);
  const bool subnormal = exponent == 0 && f.fraction_bits > 0;
  element.value = subnormal
                      ? Rational(part * PowerOfTwo(1 - f.bias))
                      : Rational((1 + part) * PowerOfTwo(static_cast<int>(exponent) - f.bias));
  if (element.negative) element.value = -element.value;
  return element;
}

// What is rounded: signs, infinities and NaN are those of x, because scales are positive.
Element Scaled(const Case& c, int64_t i) {
  Element element = ElementOf(c.x, i);
  const size_t entry = ElementEntry(c, i);
  element.value *= ToRational(c.x_q.scale[entry]) / ToRational(c.out_q.scale[entry]);
  return element;
}

// The exponent of the digit before the point: 2^e <= magnitude < 2^(e+1), but not below the type's
// smallest, where subnormals keep it.
int ExponentOf(const FloatFormat& f, const Rational& magnitude) {
  const int least = f.fraction_bits == 0 ? -f.bias : 1 - f.bias;
  if (magnitude == 0) return least;
  const int e =
      static_cast<int>(msb(numerator(magnitude))) - static_cast<int>(msb(denominator(magnitude)));
  return std::max(magnitude < PowerOfTwo(e) ? e - 1 : e, least);
}

// To a multiple of the last digit that the type has there, as if exponents went on.
Rational ToDigits(const FloatFormat& f, FloatRounding rounding, const Rational& value) {
  const Rational magnitude = abs(value);
  const Rational digit = PowerOfTwo(ExponentOf(f, magnitude) - f.fraction_bits);
  const Rational digits = magnitude / digit;
  Integer whole = Floor(digits);
  switch (rounding) {
    case FloatRounding::kNearestEven:
      whole = f.fraction_bits == 0 ? Floor(digits + Rational(1) / 2) : RoundHalfEven(digits);
      break;
    case FloatRounding::kTowardZero: break;
    case FloatRounding::kUp:
      if (value > 0) whole = -Floor(-digits);
  }
  // A type without 0 has nothing below its smallest value.
  if (f.fraction_bits == 0 && whole == 0) whole = 1;
  const Rational rounded = Rational(whole) * digit;
  return value < 0 ? Rational(-rounded) : rounded;
}

// The code of a magnitude that the type has.
uint32_t CodeOf(const FloatFormat& f, const Rational& magnitude) {
  const int e = ExponentOf(f, magnitude);
  const auto digits = static_cast<uint32_t>(Floor(magnitude / PowerOfTwo(e - f.fraction_bits)));
  const uint32_t leading = 1u << f.fraction_bits;
  if (digits < leading) return digits;
  return static_cast<uint32_t>(e + f.bias) * leading + (digits - leading);
}

uint32_t Output(const Case& c, const Element& x) {
  const FloatFormat& f = InfoOf(c.out_dtype).floating;
  const uint32_t sign = x.negative && f.has_sign ? 1u << (f.exponent_bits + f.fraction_bits) : 0;
  const uint32_t largest = sign | CodeOf(f, LargestOf(f));
  const bool has_infinity = f.top == Top::kIeee, has_nan = f.top != Top::kFinite;
  const uint32_t infinity =
      has_infinity ? sign | ((1u << f.exponent_bits) - 1) << f.fraction_bits : 0;
  const uint32_t nan = NanCode(c.out_dtype);
  if (x.kind == Kind::kNan) return nan;
  const bool saturates = c.overflow == FloatOverflow::kSaturate || !has_nan;
  if (x.kind == Kind::kInfinity) {
    if (x.negative && !f.has_sign) return saturates ? 0 : nan;
    return saturates ? largest : has_infinity ? infinity : nan;
  }
  // f8e8m0fnu has neither 0 nor anything below it.
  if (f.fraction_bits == 0 && x.value <= 0) return saturates ? 0 : nan;
  const Rational rounded = ToDigits(f, c.rounding, x.value);
  if (rounded == 0) return f.top == Top::kMinusZero ? 0 : sign;
  if (rounded < 0 && !f.has_sign) return saturates ? 0 : nan;
  if (abs(rounded) <= LargestOf(f)) return sign | CodeOf(f, abs(rounded));
  const bool inward =
      c.rounding == FloatRounding::kTowardZero || (c.rounding == FloatRounding::kUp && rounded < 0);
  if (saturates || inward) return largest;
  return has_infinity && c.overflow == FloatOverflow::kInfinity ? infinity : nan;
}

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  const Element element = Scaled(c, m * c.N + n);
  if (element.kind != Kind::kNumber) return std::nullopt;
  return element.value;
}

Tensor All(const Case& c) {
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t i = 0; i < y.size(); ++i) y.SetBits(i, Output(c, Scaled(c, i)));
  y.AcceptAnyNan();
  return y;
}

}  // namespace definition
namespace fast {

Tensor All(const Case& c) {
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t i = 0; i < y.size(); ++i) {
    y.SetBits(i, EncodeFloat(c.out_dtype, QuotientOf(c, i).value, c.rounding, c.overflow));
  }
  y.AcceptAnyNan();
  return y;
}

}  // namespace fast
namespace told {

std::string Value(const Case& c, int64_t index) { return CodeText(c.x.dtype(), c.x.BitsAt(index)); }

void TellScales(Teller& t, const Rational& value) {
  const auto is_one = [](const QParams& q) { return q.scale == QParams{}.scale; };
  std::string names = "x", numbers = Value(t.c, 0);
  if (!is_one(t.c.x_q)) names += " * x_scale", numbers += " * " + Short(t.c.x_q.scale[0]);
  if (!is_one(t.c.out_q)) names += " / out_scale", numbers += " / " + Short(t.c.out_q.scale[0]);
  t.Step(Stage::kScale, names + ": " + numbers, value);
}

void Steps(Teller& t) {
  const Case& c = t.c;
  const std::string type(Name(c.out_dtype));
  const std::string result = CodeText(c.out_dtype, definition::Output(c, definition::Scaled(c, 0)));
  const std::optional<Rational> value = definition::Value(c, 0, 0);
  if (!value) {
    const bool nan = IsNanCode(c.x.dtype(), c.x.BitsAt(0));
    t.Step(Stage::kRound,
           "x is " + Value(c, 0) + ", which gives " +
               (nan && HasNan(c.out_dtype) ? "any NaN of " + type : result),
           result);
    return;
  }
  if (IsScaledCast(c)) TellScales(t, *value);
  const FloatFormat& f = InfoOf(c.out_dtype).floating;
  const Rational rounded = *value == 0 ? Rational(0) : definition::ToDigits(f, c.rounding, *value);
  const bool below = !f.has_sign && (rounded < 0 || (rounded == 0 && f.fraction_bits == 0));
  const bool inside = !below && abs(rounded) <= LargestOf(f);
  constexpr std::string_view kHow[] = {"to the nearest", "toward zero, to a", "up, to a"};
  std::string text = "round once ";
  text += kHow[static_cast<size_t>(c.rounding)];
  text += " value of " + type + ": " + ApproximateText(*value) + " gives " +
          ApproximateText(rounded) + (rounded == *value ? ", which is exact" : "");
  t.Step(Stage::kRound, std::move(text), inside ? result : ToText(rounded));
  if (inside) return;
  t.Step(Stage::kClamp,
         (below ? type + " has no such number"
                : "beyond the largest value of " + type + ", " + ApproximateText(LargestOf(f))) +
             ", overflow " + std::string(Name(c.overflow)) + ": " + result,
         result);
}

}  // namespace told
}  // namespace

extern constexpr Meaning kCast{
    .op = Op::kCast,
    .definition = {.value = definition::Value, .outputs = definition::All},
    .fast = {.outputs = fast::All},
    .told = {.steps = Alone<told::Steps>, .value = told::Value}};

}  // namespace qualm::exact
