// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/arithmetic/dyadic.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "core/status.h"

namespace qualm::exact {
namespace {

using Wide = __int128;
using UWide = unsigned __int128;

int BitLength(UWide value) {
  const auto high = static_cast<uint64_t>(value >> 64);
  if (high != 0) return 128 - std::countl_zero(high);
  return 64 - std::countl_zero(static_cast<uint64_t>(value));
}

UWide Magnitude(Wide value) {
  return value < 0 ? -static_cast<UWide>(value) : static_cast<UWide>(value);
}

// A fixed-point number with its lowest bit at 2^kBase: exact for every sum of terms that a Line
// makes. Lowest: two denormal scales, 2^-298. Highest: |s| < 2^110 times 48 bits times 2^208,
// doubled; or kFar times a divisor: all below 2^384. 684 bits and a sign of 768; a list of terms
// may take 24 more.
class FixedPoint {
 public:
  static constexpr int kBase = -300;

  void Add(Wide value, int exponent) {
    const int shift = exponent - kBase;
    const auto first = static_cast<size_t>(shift / 64);
    const int bit = shift % 64;
    const auto low = static_cast<uint64_t>(value);
    const auto high = static_cast<uint64_t>(value >> 64);
    const uint64_t sign = value < 0 ? ~uint64_t{0} : 0;
    const std::array<uint64_t, 3> part = {low << bit,
                                          bit == 0 ? high : (high << bit) | (low >> (64 - bit)),
                                          bit == 0 ? sign : (sign << bit) | (high >> (64 - bit))};
    uint64_t carry = 0;
    for (size_t i = first; i < limbs_.size(); ++i) {
      const uint64_t addend = i - first < part.size() ? part[i - first] : sign;
      const UWide sum = UWide{limbs_[i]} + addend + carry;
      limbs_[i] = static_cast<uint64_t>(sum);
      carry = static_cast<uint64_t>(sum >> 64);
    }
  }

  // s * factor, as two terms because the product may pass 128 bits.
  void AddProduct(Wide s, Wide factor, int exponent) {
    Add((s >> 64) * factor, exponent + 64);
    Add(static_cast<Wide>(static_cast<uint64_t>(s)) * factor, exponent);
  }

  bool negative() const { return (limbs_.back() >> 63) != 0; }

  int Sign() const {
    if (negative()) return -1;
    for (uint64_t limb : limbs_) {
      if (limb != 0) return 1;
    }
    return 0;
  }

  // |value| = magnitude * 2^exponent + less than 2^exponent more, which is nonzero iff sticky.
  // magnitude < 2^127; sticky only if magnitude >= 2^126.
  struct Leading {
    UWide magnitude = 0;
    int exponent = 0;
    bool sticky = false;
  };
  Leading LeadingBits() const {
    auto limbs = limbs_;
    if (negative()) {
      uint64_t carry = 1;
      for (uint64_t& limb : limbs) {
        limb = ~limb + carry;
        carry = carry != 0 && limb == 0 ? 1 : 0;
      }
    }
    int length = 0;
    for (size_t i = 0; i < limbs.size(); ++i) {
      if (limbs[i] != 0) length = static_cast<int>(i) * 64 + 64 - std::countl_zero(limbs[i]);
    }
    Leading leading;
    const int from = std::max(0, length - 127);
    leading.exponent = kBase + from;
    for (int i = length - 1; i >= 0; --i) {
      const bool bit = (limbs[static_cast<size_t>(i / 64)] >> (i % 64) & 1) != 0;
      if (i >= from) {
        leading.magnitude = leading.magnitude << 1 | (bit ? 1 : 0);
      } else if (bit) {
        leading.sticky = true;
        break;
      }
    }
    return leading;
  }

  double AsDouble() const {  // approximate; 0 only for 0
    const Leading leading = LeadingBits();
    const double value = std::ldexp(static_cast<double>(leading.magnitude), leading.exponent);
    return negative() ? -value : value;
  }

 private:
  std::array<uint64_t, 12> limbs_{};
};

// The numerator as one 128-bit integer times a power of two, if that is possible.
struct Numerator {
  Wide value = 0;
  int exponent = 0;
};
std::optional<Numerator> Narrow(const Line& line, Wide s) {
  constexpr int kBits = 124;
  const UWide magnitude = Magnitude(s);
  if (BitLength(magnitude) + BitLength(static_cast<UWide>(line.gain)) > kBits) return std::nullopt;
  const Wide product = s * line.gain;
  if (line.offset == 0) return Numerator{product, line.gain_exponent};
  if (product == 0) return Numerator{line.offset, line.offset_exponent};
  const int exponent = std::min(line.gain_exponent, line.offset_exponent);
  const int up = line.gain_exponent - exponent;
  const int offset_up = line.offset_exponent - exponent;
  if (BitLength(Magnitude(product)) + up >= kBits) return std::nullopt;
  if (BitLength(Magnitude(line.offset)) + offset_up >= kBits) return std::nullopt;
  // Multiplied, not shifted: the left shift of a negative number reads badly.
  return Numerator{product * (Wide{1} << up) + Wide{line.offset} * (Wide{1} << offset_up),
                   exponent};
}

Rounded Far(bool negative) { return {negative ? -kFar : kFar, std::nullopt}; }

// numerator / (divisor * 2^divisor_exponent)
Rounded RoundNarrow(const Numerator& numerator, const Line& line) {
  const bool negative = numerator.value < 0;
  UWide p = Magnitude(numerator.value);
  if (p == 0) return {0, 1.0};
  auto q = static_cast<UWide>(line.divisor);
  const int shift = numerator.exponent - line.divisor_exponent;
  if (shift >= 0) {
    // At least 2^(bits of p - 1 + shift - bits of q); below that p << shift has at most 34 + 56
    // bits.
    if (BitLength(p) - 1 + shift - BitLength(q) >= 34) return Far(negative);
    p <<= shift;
  } else {
    if (BitLength(q) - shift > BitLength(p) + 2) {  // p / q < 1/4: q need not be representable
      const double value = static_cast<double>(p) / static_cast<double>(q);
      return {0, 1.0 - 2.0 * std::ldexp(value, shift), negative ? -1 : 1};
    }
    q <<= -shift;  // <= 126 bits
  }
  UWide floor = p / q;
  const UWide rest = p - floor * q;
  if (floor >= static_cast<UWide>(kFar)) return Far(negative);
  const UWide twice = 2 * rest;
  const UWide gap = twice > q ? twice - q : q - twice;
  int below = rest == 0 ? 0 : 1;  // sign of the magnitude less `integer`
  if (twice > q || (twice == q && (floor & 1) != 0)) {
    ++floor;
    below = -1;
  }
  const auto integer = static_cast<int64_t>(floor);
  if (integer == kFar) return Far(negative);
  const double distance = static_cast<double>(gap) / static_cast<double>(q);
  if (negative) return {-integer, distance, -below};
  return {integer, distance, below};
}

// The numerator of a line, with every bit, times 2^up.
FixedPoint WideNumerator(const Line& line, Wide s, int up) {
  FixedPoint sum;
  sum.AddProduct(s, line.gain, line.gain_exponent + up);
  sum.Add(line.offset, line.offset_exponent + up);
  return sum;
}
FixedPoint WideNumerator(const Line& line, Terms terms, int up) {
  FixedPoint sum;
  for (const Term& term : terms) sum.AddProduct(term.integer, term.gain, term.gain_exponent + up);
  sum.Add(line.offset, line.offset_exponent + up);
  return sum;
}

// `twice` is twice the numerator. The result is 2 * line - odd, times the divisor.
FixedPoint TwiceMinus(const Line& line, const FixedPoint& twice, int64_t odd) {
  FixedPoint sum = twice;
  sum.Add(-static_cast<Wide>(odd) * line.divisor, line.divisor_exponent);
  return sum;
}

Rounded RoundWide(const Line& line, const FixedPoint& twice) {
  // n is at or above the rounded value iff line(s) < n + 1/2, or = n + 1/2 and n is even.
  const auto reaches = [&](int64_t n) {
    const int sign = TwiceMinus(line, twice, 2 * n + 1).Sign();
    return sign < 0 || (sign == 0 && n % 2 == 0);
  };
  if (!reaches(kFar - 1)) return Far(false);
  if (reaches(-kFar)) return Far(true);
  int64_t below = -kFar;     // does not reach
  int64_t above = kFar - 1;  // reaches
  // Bisection; the first probes sit around a floating-point guess, which usually ends it at once.
  const double guess = std::ldexp(twice.AsDouble() / line.divisor, -line.divisor_exponent - 1);
  for (int64_t step = -1; step <= 1 && std::abs(guess) < static_cast<double>(kFar); ++step) {
    const int64_t probe = static_cast<int64_t>(guess) + step;
    if (probe > below && probe < above) (reaches(probe) ? above : below) = probe;
  }
  while (above - below > 1) {
    const int64_t middle = below + (above - below) / 2;
    (reaches(middle) ? above : below) = middle;
  }
  const double up = -TwiceMinus(line, twice, 2 * above + 1).AsDouble();
  const double down = TwiceMinus(line, twice, 2 * above - 1).AsDouble();
  const double distance = std::ldexp(std::min(up, down) / line.divisor, -line.divisor_exponent);
  return {above, std::min(distance, 1.0), TwiceMinus(line, twice, 2 * above).Sign()};
}

float FloatFromParts(bool negative, UWide magnitude, int exponent, bool sticky) {
  if (magnitude == 0) return 0.0f;
  // Floats of this size are multiples of 2^unit: 24 significant bits, none below 2^-149.
  int unit = std::max(exponent + BitLength(magnitude) - 24, -149);
  const int drop = unit - exponent;
  UWide multiple = 0;
  if (drop <= 0) {
    multiple = magnitude << -drop;  // exact: at most 24 bits
  } else if (drop < 128) {          // else magnitude < 2^127 is less than half a unit
    multiple = magnitude >> drop;
    const UWide rest = magnitude - (multiple << drop);
    const UWide half = UWide{1} << (drop - 1);
    if (rest > half || (rest == half && (sticky || (multiple & 1) != 0))) ++multiple;
  }
  uint32_t bits = 0x7f800000;  // inf
  // A normal multiple brings its hidden bit, which adds 1 to the exponent field; so does the carry
  // into 2^24.
  if (unit <= 104) {
    bits =
        std::min(bits, (static_cast<uint32_t>(unit + 149) << 23) + static_cast<uint32_t>(multiple));
  }
  return std::bit_cast<float>(negative ? bits | 0x80000000u : bits);
}

float FloatOf(const FixedPoint& sum) {
  const FixedPoint::Leading leading = sum.LeadingBits();
  return FloatFromParts(sum.negative(), leading.magnitude, leading.exponent, leading.sticky);
}

// 2^exponent, -1022 <= exponent <= 1023.
double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

}  // namespace

Dyadic Decode(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t field = bits >> 23 & 0xff;
  QUALM_CHECK(field != 0xff);  // finite
  uint32_t mantissa = bits & 0x7fffff;
  int exponent = -149;
  if (field != 0) {
    mantissa |= 0x800000;
    exponent = static_cast<int>(field) - 150;
  }
  if (mantissa == 0) return {};
  const int zeros = std::countr_zero(mantissa);
  mantissa >>= zeros;
  const auto magnitude = static_cast<int32_t>(mantissa);
  return {(bits >> 31) != 0 ? -magnitude : magnitude, exponent + zeros};
}

Line Scale(float a) { return Scale(a, 1.0f); }

Line Scale(float a, float b) {
  const Dyadic left = Decode(a);
  const Dyadic right = Decode(b);
  Line line;
  line.gain = int64_t{left.mantissa} * right.mantissa;
  line.gain_exponent = left.exponent + right.exponent;
  return line;
}

Line Plus(Line line, float offset, int64_t times) {
  const Dyadic dyadic = Decode(offset);
  line.offset = dyadic.mantissa * times;
  line.offset_exponent = dyadic.exponent;
  return line;
}

Line Over(Line line, float divisor, int64_t times) {
  QUALM_CHECK(times > 0 && times < int64_t{1} << 32);
  const Dyadic dyadic = Decode(divisor);
  line.divisor = dyadic.mantissa * times;
  line.divisor_exponent = dyadic.exponent;
  return line;
}

Rounded Round(const Line& line, __int128 s) {
  if (const std::optional<Numerator> numerator = Narrow(line, s)) {
    return RoundNarrow(*numerator, line);
  }
  return RoundWide(line, WideNumerator(line, s, 1));
}

Rounded Round(const Line& line, Terms terms) {
  return RoundWide(line, WideNumerator(line, terms, 1));
}

Estimate EstimateOf(const Line& line, Terms terms) {
  const double divisor = static_cast<double>(line.divisor) * PowerOfTwo(line.divisor_exponent);
  double sum = static_cast<double>(line.offset) * PowerOfTwo(line.offset_exponent) / divisor;
  double magnitude = std::abs(sum);
  for (const Term& term : terms) {
    const double value = static_cast<double>(term.integer) * static_cast<double>(term.gain) *
                         PowerOfTwo(term.gain_exponent) / divisor;
    sum += value;
    magnitude += std::abs(value);
  }
  // Each term has at most six roundings of its own and one of every sum that it is part of, each
  // at most 2^-52 of what it rounds, in any rounding mode. Magnitudes are sums themselves.
  return {sum, magnitude * (static_cast<double>(terms.size()) + 16) * 0x1p-51 + 0x1p-40};
}

// Of |gain| and |offset|, 2^48 and 2^58 at most, the exponents and the divisor, at most 2^56, none
// makes a double that is denormal or overflows: all lie between 2^-500 and 2^600.
EstimatedLine::EstimatedLine(const Line& line)
    : gain_(static_cast<double>(line.gain) / static_cast<double>(line.divisor) *
            PowerOfTwo(line.gain_exponent - line.divisor_exponent)),
      offset_(static_cast<double>(line.offset) / static_cast<double>(line.divisor) *
              PowerOfTwo(line.offset_exponent - line.divisor_exponent)) {}

float RoundToFloat(const Line& line, __int128 s) {
  QUALM_CHECK(line.divisor == 1 && line.divisor_exponent == 0);
  if (const std::optional<Numerator> numerator = Narrow(line, s)) {
    return FloatFromParts(numerator->value < 0, Magnitude(numerator->value), numerator->exponent,
                          false);
  }
  return FloatOf(WideNumerator(line, s, 0));
}

float RoundToFloat(const Line& line, Terms terms) {
  QUALM_CHECK(line.divisor == 1 && line.divisor_exponent == 0);
  return FloatOf(WideNumerator(line, terms, 0));
}

long double MultiplierOf(const Line& line) {
  return std::ldexp(static_cast<long double>(line.gain) / line.divisor,
                    line.gain_exponent - line.divisor_exponent);
}

long double OffsetOf(const Line& line) {
  return std::ldexp(static_cast<long double>(line.offset) / line.divisor,
                    line.offset_exponent - line.divisor_exponent);
}

namespace {

// `numerator` is nearly that of the line, `rest` all of it.
Real RealOf(const Line& line, long double numerator, FixedPoint rest) {
  Real real;
  real.value = static_cast<double>(std::ldexp(numerator / line.divisor, -line.divisor_exponent));
  int exponent = 0;
  const auto mantissa = static_cast<int64_t>(std::ldexp(std::frexp(real.value, &exponent), 53));
  exponent += line.divisor_exponent - 53;
  if (exponent < FixedPoint::kBase) return real;
  rest.Add(-static_cast<Wide>(mantissa) * line.divisor, exponent);  // less the double
  real.is_exact = rest.Sign() == 0;
  return real;
}

}  // namespace

Real ToReal(const Line& line, __int128 s) {
  const long double numerator =
      std::ldexp(static_cast<long double>(s) * line.gain, line.gain_exponent) +
      std::ldexp(static_cast<long double>(line.offset), line.offset_exponent);
  return RealOf(line, numerator, WideNumerator(line, s, 0));
}

Real ToReal(const Line& line, Terms terms) {
  // The leading bits of the sum, whose terms may cancel each other.
  const FixedPoint sum = WideNumerator(line, terms, 0);
  const FixedPoint::Leading leading = sum.LeadingBits();
  const long double magnitude =
      std::ldexp(static_cast<long double>(leading.magnitude), leading.exponent);
  return RealOf(line, sum.negative() ? -magnitude : magnitude, sum);
}

}  // namespace qualm::exact
