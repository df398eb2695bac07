// SPDX-License-Identifier: Apache-2.0
// Bounds of e^-t, sigmoid and tanh, computed in double. transcendental.h proves that the true value
// lies between them.
#include "kernels/common/transcendental.h"

#include <algorithm>
#include <cmath>

namespace qualm::kernels::internal {
namespace {

constexpr double kUnit = 0x1p-53;
// ln 2 in two parts; the first has 32 significant bits.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kOverLn2 = 0x1.71547652b82fep+0;
// Beyond this e^-t is below 2^-1000, and is not computed.
constexpr double kFar = 700;

// (1 - e^-r) / r by Taylor's series, |r| < 0.35.
double Quotient(double r) {
  double sum = 1.0 / 6227020800.0;  // 1/13!
  double factorial = 6227020800.0;
  for (int k = 13; k > 1; --k) {
    factorial /= k;  // (k - 1)!, exact
    sum = 1.0 / factorial - r * sum;
  }
  return sum;
}

}  // namespace

Interval Widened(Interval interval) {
  return {interval.lo * (1 - 0x1p-50), interval.hi * (1 + 0x1p-50)};
}

Interval ExpOfMinus(double t) {
  if (t > kFar) return {0, 0x1p-1000};
  const double n = std::floor(t * kOverLn2 + 0.5);
  const double r = (t - n * kLn2High) - n * kLn2Low;
  const double value = std::ldexp(1 - r * Quotient(r), -static_cast<int>(n));
  const double error = (t + 16) * kUnit;
  return {value * (1 - error), std::min(1.0, value * (1 + error))};
}

Interval Sigmoid(double t, bool negative) {
  const Interval e = ExpOfMinus(t);
  const Interval value = negative ? Widened({e.lo / (1 + e.lo), e.hi / (1 + e.hi)})
                                  : Widened({1 / (1 + e.hi), 1 / (1 + e.lo)});
  return {value.lo, std::min(1.0, value.hi)};
}

Interval Tanh(double t, bool negative) {
  // a / (2 - a) with a = 1 - e^-2t, rising in a.
  const double twice = 2 * t;
  Interval a;
  if (twice < 1.0 / 3) {
    const double value = twice * Quotient(twice);
    a = {value * (1 - 16 * kUnit), value * (1 + 16 * kUnit)};
  } else {
    const Interval e = ExpOfMinus(twice);
    a = Widened({1 - e.hi, 1 - e.lo});
  }
  Interval value = Widened({a.lo / (2 - a.lo), a.hi / (2 - a.hi)});
  value.hi = std::min(1.0, value.hi);
  return negative ? Interval{-value.hi, -value.lo} : value;
}

}  // namespace qualm::kernels::internal
