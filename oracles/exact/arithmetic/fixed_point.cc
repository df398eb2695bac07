// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/arithmetic/fixed_point.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "core/status.h"

namespace qualm::exact {
namespace {

using Big = boost::multiprecision::cpp_int;

constexpr int kFirstBits = 128;
constexpr int kMostBits = 1 << 16;

Big Shifted(const Big& value, int by) { return by >= 0 ? Big(value << by) : Big(value >> -by); }

// value / 2^by, >= 0, rounded up.
Big ShiftedUp(const Big& value, int by) { return (value + ((Big(1) << by) - 1)) >> by; }

Big DividedUp(const Big& p, const Big& q) { return (p + q - 1) / q; }

// value * p / q for a value known up to bounds and never rational.
struct Ratio {
  Big p, q;
};

// The rounded product, if the bounds agree on it: its value lies strictly between them, so a bound
// that is itself a tie decides too. `distance` is as Rounded::tie_distance, where asked for.
std::optional<Rounded> Decide(const FixedBounds& value, int bits, const Ratio& ratio,
                              bool distance) {
  const Big q = ratio.q << bits;
  const Big low = 2 * value.lo * ratio.p;
  const Big high = 2 * value.hi * ratio.p;
  const Big least = (low + q) / (2 * q);
  if (least >= kFar) return Rounded{kFar, std::nullopt};
  const Big most = high <= q ? Big(0) : DividedUp(high - q, 2 * q);
  if (least != most) return std::nullopt;
  Rounded rounded{static_cast<int64_t>(least), std::nullopt};
  if (!distance) return rounded;
  // Twice the distances from n - 1/2 and n + 1/2, times q.
  const Big from_below = low - (2 * least - 1) * q;
  const Big from_above = (2 * least + 1) * q - high;
  const Big nearest = std::max(Big(0), std::min(from_below, from_above));
  const Big middle = 2 * least * q;
  // A good approximation only if the bounds lie much nearer to each other than to the tie. Values
  // that differ from a tie, or from the integer, in their 2000th bit need not be told how far.
  constexpr int kEnough = 2048;
  const bool is_beside = low >= middle || high <= middle;
  if (bits < kEnough && (((high - low) << 40) > nearest || !is_beside)) return std::nullopt;
  rounded.rest = low >= middle ? 1 : -1;
  constexpr int kUnit = 120;
  const Big scaled = (nearest << kUnit) / q;
  rounded.tie_distance =
      std::clamp(std::ldexp(scaled.convert_to<double>(), -kUnit), std::ldexp(1.0, -kUnit), 1.0);
  return rounded;
}

// sigmoid(-t) and tanh(t) from E = e^-t and e^-2t.
FixedBounds SigmoidOfMinus(const FixedBounds& e, int bits) {  // E / (1 + E), rising
  const Big one = Big(1) << bits;
  return {(e.lo << bits) / (one + e.lo), DividedUp(e.hi << bits, one + e.hi)};
}
FixedBounds SigmoidOfPlus(const FixedBounds& e, int bits) {  // 1 / (1 + E), falling
  const Big one = Big(1) << bits;
  return {(one << bits) / (one + e.hi), DividedUp(one << bits, one + e.lo)};
}
FixedBounds Tanh(const FixedBounds& e, int bits) {  // (1 - E) / (1 + E), falling
  const Big one = Big(1) << bits;
  return {((one - e.hi) << bits) / (one + e.hi), DividedUp((one - e.lo) << bits, one + e.lo)};
}

// sigmoid(s * difference), or tanh(s * |difference|); difference is not 0.
FixedBounds Bounds(Function function, float s, int64_t difference, int bits) {
  const bool tanh = function == Function::kTanh;
  const Dyadic scale = Decode(s);
  const auto magnitude =
      static_cast<uint64_t>(std::abs(difference)) * static_cast<uint64_t>(scale.mantissa);
  const FixedBounds e = ExpOfMinus(magnitude, scale.exponent + (tanh ? 1 : 0), bits);
  if (tanh) return Tanh(e, bits);
  return difference < 0 ? SigmoidOfMinus(e, bits) : SigmoidOfPlus(e, bits);
}

}  // namespace

FixedBounds ExpOfMinus(uint64_t magnitude, int exponent, int bits) {
  QUALM_CHECK(magnitude != 0);
  const int length = static_cast<int>(std::bit_width(magnitude)) + exponent;  // t < 2^length
  // e^-t < 2^-t <= 2^-bits
  if (length > 40) return {0, 1};
  const uint64_t whole = exponent >= 0    ? magnitude << exponent
                         : exponent > -64 ? magnitude >> -exponent
                                          : 0;
  if (whole >= static_cast<uint64_t>(bits)) return {0, 1};

  // e^-t = (e^-r)^(2^halvings) with r = t / 2^halvings < 2^-8. Each squaring doubles the relative
  // error, for which the guard bits are there; the bounds hold whatever their number.
  const int halvings = std::max(0, length + 8);
  const int work = bits + halvings + 32;
  const int shift = exponent - halvings + work;
  const Big r_lo = Shifted(magnitude, shift);
  const Big r_hi = shift >= 0 ? r_lo : Big(r_lo + 1);
  // The series 1 - r + r^2/2! - ... alternates and falls: the rest has the sign of its first term
  // and is smaller. Terms until one is at most one unit.
  FixedBounds sum{Big(1) << work, Big(1) << work};
  FixedBounds term = sum;
  for (int j = 1; term.hi > 1; ++j) {
    term.lo = (term.lo * r_lo >> work) / j;
    term.hi = DividedUp(ShiftedUp(term.hi * r_hi, work), j);
    if (j % 2 != 0) {
      sum.lo -= term.hi;
      sum.hi -= term.lo;
    } else {
      sum.lo += term.lo;
      sum.hi += term.hi;
    }
  }
  sum.lo -= 1;
  sum.hi += 1;
  for (int i = 0; i < halvings; ++i) {
    sum.lo = sum.lo * sum.lo >> work;
    sum.hi = ShiftedUp(sum.hi * sum.hi, work);
  }
  return {sum.lo >> (work - bits), std::min(ShiftedUp(sum.hi, work - bits), Big(1) << bits)};
}

Rounded RoundRealFunction(Function function, float s, int64_t difference, float out_scale) {
  QUALM_CHECK(function == Function::kSigmoid || function == Function::kTanh);
  const bool tanh = function == Function::kTanh;
  if (difference == 0) {  // 0 or 1/2, exactly
    Line half = Over(Line(), out_scale);
    half.gain_exponent = -1;
    return Round(half, tanh ? 0 : 1);
  }
  const Dyadic out = Decode(out_scale);
  const Ratio ratio{Shifted(1, std::max(0, -out.exponent)),
                    Shifted(out.mantissa, std::max(0, out.exponent))};
  for (int bits = kFirstBits; bits <= kMostBits; bits *= 2) {
    const FixedBounds value = Bounds(function, s, difference, bits);
    if (std::optional<Rounded> rounded = Decide(value, bits, ratio, true)) {
      if (tanh && difference < 0) {
        rounded->integer = -rounded->integer;
        rounded->rest = -rounded->rest;
      }
      return *rounded;
    }
  }
  QUALM_CHECK(!"a transcendental value is never a tie");
  return {};
}

std::optional<Estimate> EstimateRealFunction(Function function, float s, int64_t difference,
                                             float out_scale) {
  const double v = static_cast<double>(s) * static_cast<double>(difference);
  // Up to here e^-v magnifies the error of v no more than 32 times. The C library is off by a few
  // units of 2^-52; the bound leaves room for 2^12 of them, in any rounding mode.
  if (!(std::abs(v) < 32)) return std::nullopt;
  const double f = function == Function::kTanh ? std::tanh(v) : 1 / (1 + std::exp(-v));
  const double value = f / static_cast<double>(out_scale);
  return Estimate{value, std::abs(value) * 0x1p-40 + 0x1p-40};
}

double RealFunctionValue(Function function, float s, int64_t difference) {
  const bool tanh = function == Function::kTanh;
  if (difference == 0) return tanh ? 0.0 : 0.5;
  constexpr int kBits = 256;
  const auto value = Bounds(function, s, difference, kBits).lo.convert_to<double>();
  return std::ldexp(tanh && difference < 0 ? -value : value, -kBits);
}

uint32_t SoftmaxNumerator(float s, int32_t below, int64_t n) {
  QUALM_CHECK(below >= 0 && n >= 1);
  constexpr int64_t kMost = (int64_t{1} << 23) - 1;
  constexpr int64_t kSum = (int64_t{1} << 32) - 1;
  // q = (2^32 - 1) / n where that is below 2^23 - 1.
  const bool shared = kSum < kMost * n;
  if (below == 0) {
    if (!shared) return static_cast<uint32_t>(kMost);
    Line line;
    line.divisor = n;
    QUALM_CHECK(n < int64_t{1} << 56);
    return static_cast<uint32_t>(Round(line, kSum).integer);
  }
  const Ratio ratio{shared ? kSum : kMost, shared ? n : 1};
  const Dyadic scale = Decode(s);
  const auto magnitude = static_cast<uint64_t>(below) * static_cast<uint64_t>(scale.mantissa);
  for (int bits = kFirstBits; bits <= kMostBits; bits *= 2) {
    const FixedBounds e = ExpOfMinus(magnitude, scale.exponent, bits);
    if (const std::optional<Rounded> rounded = Decide(e, bits, ratio, false)) {
      return static_cast<uint32_t>(rounded->integer);
    }
  }
  QUALM_CHECK(!"a transcendental value is never a tie");
  return 0;
}

}  // namespace qualm::exact
