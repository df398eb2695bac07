// SPDX-License-Identifier: Apache-2.0
#include "adapters/faulty/dyadic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace qualm::faulty {
namespace {

using Wide = unsigned __int128;

Wide Magnitude(__int128 value) {
  return value < 0 ? -static_cast<Wide>(value) : static_cast<Wide>(value);
}

// Rounds magnitude quotient + remainder / denominator to an integer.
int64_t RoundMagnitude(Wide quotient, Wide remainder, Wide denominator, bool negative, RoundTo rule,
                       bool offset_is_odd) {
  const Wide rest = denominator - remainder;
  bool up = false;  // away from zero
  switch (rule) {
    case RoundTo::kNearestEven:
      up = remainder > rest || (remainder == rest && ((quotient & 1) != 0) != offset_is_odd);
      break;
    case RoundTo::kNearestAway: up = remainder >= rest; break;
    case RoundTo::kDown: up = negative && remainder != 0; break;
    case RoundTo::kUp: up = !negative && remainder != 0; break;
    case RoundTo::kTowardZero: break;
  }
  const Wide magnitude = std::min<Wide>(quotient + (up ? 1 : 0), kHuge);
  return negative ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
}

}  // namespace

int BitLength(__int128 value) {
  const Wide magnitude = Magnitude(value);
  const auto high = static_cast<uint64_t>(magnitude >> 64);
  return high != 0 ? 64 + static_cast<int>(std::bit_width(high))
                   : static_cast<int>(std::bit_width(static_cast<uint64_t>(magnitude)));
}

Dyadic FromFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto fraction = static_cast<int64_t>(bits & 0x7FFFFF);
  const int biased = static_cast<int>(bits >> 23 & 0xFF);
  int64_t mantissa = biased == 0 ? fraction : fraction + (int64_t{1} << 23);
  if (mantissa == 0) return {};
  const int zeros = std::countr_zero(static_cast<uint64_t>(mantissa));
  mantissa >>= zeros;
  return {(bits >> 31) != 0 ? -mantissa : mantissa, std::max(biased, 1) - 150 + zeros};
}

Dyadic FromInt(__int128 value) { return {value, 0}; }

Dyadic Product(const Dyadic& a, const Dyadic& b) {
  return {a.mantissa * b.mantissa, a.exponent + b.exponent};
}

bool Sum(const Dyadic& a, const Dyadic& b, Dyadic* sum) {
  if (a.mantissa == 0 || b.mantissa == 0) {
    *sum = a.mantissa == 0 ? b : a;
    return true;
  }
  const int exponent = std::min(a.exponent, b.exponent);
  __int128 mantissa = 0;
  for (const Dyadic& term : {a, b}) {
    const int shift = term.exponent - exponent;
    if (BitLength(term.mantissa) + shift >= kMantissaBits) return false;
    mantissa += term.mantissa * (static_cast<__int128>(1) << shift);
  }
  *sum = {mantissa, exponent};
  return true;
}

int64_t RoundQuotient(const Dyadic& numerator, const Dyadic& denominator, RoundTo rule,
                      bool offset_is_odd) {
  if (numerator.mantissa == 0) return 0;
  const bool negative = numerator.mantissa < 0;
  Wide above = Magnitude(numerator.mantissa);
  Wide below = Magnitude(denominator.mantissa);
  // 2^(log2 - 1) < |quotient| < 2^(log2 + 1)
  const int log2 = BitLength(numerator.mantissa) + numerator.exponent -
                   BitLength(denominator.mantissa) - denominator.exponent;
  if (log2 > 42) return negative ? -kHuge : kHuge;
  if (log2 < -1) return RoundMagnitude(0, 1, 4, negative, rule, offset_is_odd);  // below a half
  const int shift = numerator.exponent - denominator.exponent;
  if (shift >= 0) {
    above <<= shift;  // < 2^43 * below
  } else {
    below <<= -shift;  // < 4 * above
  }
  return RoundMagnitude(above / below, above % below, below, negative, rule, offset_is_odd);
}

float RoundToFloat(const Dyadic& value) {
  if (value.mantissa == 0) return 0.0f;
  const bool negative = value.mantissa < 0;
  const int length = BitLength(value.mantissa);
  // Exponent of the last place: 24 bits, or fewer where the result is denormal.
  const int last = std::max(length + value.exponent - 24, -149);
  const int shift = last - value.exponent;
  if (length + value.exponent > 129) {
    return negative ? -std::numeric_limits<float>::infinity()
                    : std::numeric_limits<float>::infinity();
  }
  Wide magnitude = Magnitude(value.mantissa);
  int exponent = value.exponent;
  if (shift > length) {
    magnitude = 0;  // below half of the last place
  } else if (shift > 0) {
    const Wide one = static_cast<Wide>(1) << shift;
    magnitude = static_cast<Wide>(RoundMagnitude(magnitude >> shift, magnitude & (one - 1), one,
                                                 false, RoundTo::kNearestEven, false));
    exponent = last;
  }
  const double rounded = std::ldexp(static_cast<double>(magnitude), exponent);  // exact
  const float result = rounded > static_cast<double>(std::numeric_limits<float>::max())
                           ? std::numeric_limits<float>::infinity()
                           : static_cast<float>(rounded);
  // A negative value that underflows to zero keeps its sign, as IEEE 754 division does.
  return negative ? -result : result;
}

}  // namespace qualm::faulty
