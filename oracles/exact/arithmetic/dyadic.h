// SPDX-License-Identifier: Apache-2.0
// Exact rounding of a quotient of dyadic numbers: 128-bit integers where they suffice, a 768-bit
// fixed-point sum where exponents lie far apart. For the fast forms; shares nothing with
// rational.h. Doubles decide only where a bound on their error (Estimate) settles the answer. The
// bound holds in every rounding mode, and no double is denormal: rounding and FTZ/DAZ do not
// matter.
#ifndef QUALM_ORACLES_EXACT_ARITHMETIC_DYADIC_H_
#define QUALM_ORACLES_EXACT_ARITHMETIC_DYADIC_H_

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

namespace qualm::exact {

// mantissa * 2^exponent, mantissa odd, or 0 * 2^0.
struct Dyadic {
  int32_t mantissa = 0;
  int exponent = 0;
};

// A finite float32, from its bits.
Dyadic Decode(float value);

// The line by which one output channel turns an integer s into a real value:
//   (s * gain * 2^gain_exponent + offset * 2^offset_exponent) / (divisor * 2^divisor_exponent)
// gain is a float32 mantissa or a product of two, offset a float32 mantissa times (code - its zero
// point), divisor a float32 mantissa times a count.
struct Line {
  int64_t gain = 1;  // >= 0, < 2^48
  int gain_exponent = 0;
  int64_t offset = 0;  // |offset| < 2^58
  int offset_exponent = 0;
  int64_t divisor = 1;  // > 0, < 2^56
  int divisor_exponent = 0;
};

// s -> s * a.
Line Scale(float a);
// s -> s * a * b.
Line Scale(float a, float b);
// The line plus `offset * times`, which is in units of the numerator; |times| < 2^34.
Line Plus(Line line, float offset, int64_t times = 1);
// The line divided by `divisor * times` > 0; 0 < times < 2^32.
Line Over(Line line, float divisor, int64_t times = 1);

// One of several terms that are added: integer * gain * 2^gain_exponent, of |integer| < 2^110. With
// a list of these in place of an integer, the functions below take the sum of the terms for the
// first part of the line's numerator, and its own gain for nothing. Fewer than 2^24 terms.
struct Term {
  __int128 integer = 0;
  int64_t gain = 1;  // >= 0, < 2^48
  int gain_exponent = 0;
};
using Terms = std::span<const Term>;

// From this magnitude on no int32 zero point brings a value back into the range of a code.
inline constexpr int64_t kFar = int64_t{1} << 33;

struct Rounded {
  int64_t integer = 0;  // half to even; +-kFar for all values that round to there or beyond
  // Twice the distance to the nearest n + 1/2: 0 exactly on a tie only. None for far values.
  std::optional<double> tie_distance;
  // Sign of the value less `integer`: with a distance of 0 it says what another treatment of ties
  // gives, else what truncation gives. 0 for far values.
  int rest = 0;
};

// |s| < 2^110.
Rounded Round(const Line& line, __int128 s);
Rounded Round(const Line& line, Terms terms);

// A real number known to within `error`, >= 2^-40.
struct Estimate {
  double value = 0;
  double error = 0;
};

// The result of Round, as far as an estimate decides it.
struct Near {
  int64_t integer = 0;  // as Rounded::integer
  // Not above Rounded::tie_distance. 2 for far values, which have no distance.
  double tie_distance = 0;
};
// nullopt where the estimate does not decide the integer: next to a tie, and next to kFar.
inline std::optional<Near> Decide(const Estimate& estimate) {
  constexpr auto kFarAsDouble = static_cast<double>(kFar);
  const double magnitude = std::abs(estimate.value);
  if (magnitude - estimate.error > kFarAsDouble + 1)
    return Near{estimate.value < 0 ? -kFar : kFar, 2};
  if (!(magnitude + estimate.error < kFarAsDouble - 1)) return std::nullopt;
  // The errors of these sums are below 2^-50 * (|value| + 1), which `error` leaves room for.
  const double up = estimate.value + 0.5;
  const auto truncated = static_cast<int64_t>(up);
  const int64_t integer = truncated - (static_cast<double>(truncated) > up ? 1 : 0);
  const double from_integer = std::abs(estimate.value - static_cast<double>(integer));
  const double tie_distance = 1 - 2 * (from_integer + estimate.error);
  if (tie_distance <= 0) return std::nullopt;
  return Near{integer, tie_distance};
}

// A line as two doubles, for many integers.
class EstimatedLine {
 public:
  explicit EstimatedLine(const Line& line);
  // Of line(s), |s| < 2^110. Three roundings of gain_, two of the product, three of offset_, one of
  // the sum: each adds at most 2^-52 of what it rounds, in any rounding mode.
  Estimate At(__int128 s) const {
    const auto narrow = static_cast<int64_t>(s);
    const double factor = narrow == s ? static_cast<double>(narrow) : static_cast<double>(s);
    const double product = factor * gain_;
    return {product + offset_, (std::abs(product) + std::abs(offset_)) * 0x1p-46 + 0x1p-40};
  }

 private:
  double gain_;
  double offset_;
};

// The value of Round before it is rounded.
Estimate EstimateOf(const Line& line, Terms terms);

// The float32 nearest to line(s), half to even; the divisor must be 1. Gradual underflow, overflow
// to +-inf; exact zero is +0, a negative value that rounds to zero -0.
float RoundToFloat(const Line& line, __int128 s);
float RoundToFloat(const Line& line, Terms terms);

// line(s) as a double: off by at most 2^-52 of it and by 2^-60 of its terms, and whether it is
// known to be exact. |s| < 2^110.
struct Real {
  double value = 0;
  bool is_exact = false;
};
Real ToReal(const Line& line, __int128 s);
Real ToReal(const Line& line, Terms terms);

// The factor by which the line multiplies s, and the offset, rounded to long double.
long double MultiplierOf(const Line& line);
long double OffsetOf(const Line& line);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_ARITHMETIC_DYADIC_H_
