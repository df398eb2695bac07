// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/arithmetic/rational.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>

#include "core/status.h"

namespace qualm::exact {

Rational PowerOfTwo(int exponent) {
  const Integer one = 1;
  if (exponent >= 0) return Rational(Integer(one << exponent));
  return Rational(one, Integer(one << -exponent));
}

Rational ToRational(float value) {
  QUALM_CHECK(std::isfinite(value));
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);  // value = fraction * 2^exponent, exactly
  const auto mantissa = static_cast<int32_t>(std::ldexp(fraction, 24));  // 24 bits: an integer
  return Rational(Integer(mantissa)) * PowerOfTwo(exponent - 24);
}

Integer Floor(const Rational& value) {
  const Integer p = numerator(value);
  const Integer q = denominator(value);
  Integer floor = p / q;  // truncated
  if (floor * q > p) floor -= 1;
  return floor;
}

Integer RoundHalfEven(const Rational& value) {
  const Integer p = numerator(value);
  const Integer q = denominator(value);
  Integer floor = p / q;  // truncated
  Integer rest = p - floor * q;
  if (rest < 0) {
    floor -= 1;
    rest += q;
  }
  const Integer twice = 2 * rest;
  const bool odd = floor % 2 != 0;
  if (twice > q || (twice == q && odd)) floor += 1;
  return floor;
}

namespace {

// 2^result <= |value| < 2^(result + 1)
int ExponentOf(const Rational& value) {
  const Rational magnitude = abs(value);
  const int exponent = static_cast<int>(msb(Integer(numerator(magnitude)))) -
                       static_cast<int>(msb(Integer(denominator(magnitude))));
  return PowerOfTwo(exponent) > magnitude ? exponent - 1 : exponent;
}

}  // namespace

float RoundToFloat32(const Rational& value) {
  if (value == 0) return 0.0f;
  const bool negative = value < 0;
  const Rational magnitude = abs(value);

  // Floats near magnitude are the multiples of 2^unit: 24 significant bits, none below 2^-149.
  const int unit = std::max(ExponentOf(value) - 23, -149);
  const Integer multiple = RoundHalfEven(magnitude / PowerOfTwo(unit));
  float result = std::numeric_limits<float>::infinity();
  if (Rational(multiple) * PowerOfTwo(unit) < PowerOfTwo(128)) {
    result = std::ldexp(static_cast<float>(static_cast<int32_t>(multiple)), unit);
  }
  return negative ? -result : result;
}

Rational NearestFloat64(const Rational& value) {
  if (value == 0) return value;
  const Rational unit = PowerOfTwo(ExponentOf(value) - 52);
  return Rational(RoundHalfEven(value / unit)) * unit;
}

std::string ToText(const Rational& value) {
  const Integer p = numerator(value);
  const Integer q = denominator(value);
  return q == 1 ? p.str() : p.str() + "/" + q.str();
}

std::string ApproximateText(const Rational& value) {
  if (value == 0) return "0";
  // Scaled into the range of double first, or the quotient of two huge integers would be inf/inf.
  const Rational magnitude = abs(value);
  const int shift = static_cast<int>(msb(Integer(numerator(magnitude)))) -
                    static_cast<int>(msb(Integer(denominator(magnitude))));
  const Rational scaled = magnitude / PowerOfTwo(shift) * PowerOfTwo(60);  // 2^59 .. 2^61
  const auto mantissa = static_cast<double>(static_cast<uint64_t>(RoundHalfEven(scaled)));
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%s%.9g", value < 0 ? "-" : "",
                std::ldexp(mantissa, shift - 60));
  return buffer;
}

}  // namespace qualm::exact
