// SPDX-License-Identifier: Apache-2.0
// quantize and dequantize invert each other as far as rounding allows.
#include <bit>
#include <cmath>
#include <string>

#include "properties/list.h"
#include "properties/relation.h"

namespace qualm {
namespace {

using relation::Answer;
using relation::Ask;

// A finite float32 as mantissa * 2^exponent.
struct Dyadic {
  int64_t mantissa = 0;
  int exponent = 0;
};
Dyadic Split(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const int field = static_cast<int>(bits >> 23 & 0xff);
  const int64_t fraction = bits & 0x7fffff;
  const int64_t magnitude = field == 0 ? fraction : fraction | 0x800000;
  return {(bits >> 31) != 0 ? -magnitude : magnitude, (field == 0 ? 1 : field) - 150};
}

enum class Trip : uint8_t { kOutside, kGood, kBad };

// Is |s (y - z) - x| <= s/2? kOutside if x lies more than half a step outside [s (low - z),
// s (high - z)], where nothing is claimed. Exact: if x and s differ by more than 2^36, their
// exponents decide; else both sides are 128-bit multiples of one power of two.
Trip WithinHalfStep(float x, float scale, int64_t y, int64_t z, int64_t low, int64_t high) {
  const Dyadic a = Split(x);
  const Dyadic s = Split(scale);
  if (a.exponent > s.exponent + 60) return Trip::kOutside;  // |x| > 2^36 s
  if (s.exponent > a.exponent + 60) {                       // |x| < 2^-36 s
    if (low > z || high < z) return Trip::kOutside;
    return y == z ? Trip::kGood : Trip::kBad;
  }
  const int common = std::min(a.exponent, s.exponent);
  const __int128 twice_x = static_cast<__int128>(a.mantissa) * 2 << (a.exponent - common);
  const __int128 step = static_cast<__int128>(s.mantissa) << (s.exponent - common);
  if (twice_x < (2 * (low - z) - 1) * step || twice_x > (2 * (high - z) + 1) * step) {
    return Trip::kOutside;
  }
  const __int128 off = 2 * (y - z) * step - twice_x;
  return off <= step && -off <= step ? Trip::kGood : Trip::kBad;
}

// The case that dequantizes `codes` with the parameters q, per channel where `c` is.
Case Dequantizing(const Case& c, const Tensor& codes, const QParams& q) {
  Case back = CaseOver(Op::kDequantize, codes, DType::kF32);
  back.x_q = q;
  back.per_channel = c.per_channel;
  return back;
}
// The case that quantizes `values` likewise.
Case Quantizing(const Case& c, const Tensor& values, const QParams& q, DType dtype) {
  Case forth = CaseOver(Op::kQuantize, values, dtype);
  forth.out_q = q;
  forth.per_channel = c.per_channel;
  return forth;
}

// quantize(dequantize(q)) == q, through the subject both ways. Codes further from the zero point
// than float32 can count are left out, as are values that overflow.
Verdict ThereAndBack(const Case& c, Subject& subject, const Tensor& codes, const QParams& q) {
  constexpr int64_t kCountable = int64_t{1} << 22;
  const Answer values = Ask(subject, Dequantizing(c, codes, q));
  if (values.verdict) return *values.verdict;
  const Answer again = Ask(subject, Quantizing(c, values.y, q, codes.dtype()));
  if (again.verdict) return *again.verdict;
  int64_t judged = 0;
  for (int64_t i = 0; i < codes.size(); ++i) {
    const int64_t off = int64_t{codes.IntAt(i)} - q.zero_point_at(relation::ChannelOf(c, i));
    if (!std::isfinite(values.y.FloatAt(i)) || std::abs(off) > kCountable) continue;
    ++judged;
    if (again.y.IntAt(i) == codes.IntAt(i)) continue;
    return relation::FailedAt(c, i, ElementText(codes, i), ElementText(again.y, i),
                              std::abs(double(again.y.IntAt(i)) - codes.IntAt(i)),
                              "quantize(dequantize(q)) is not q");
  }
  return judged == 0 ? Verdict::Vacuous("no code comes back through a finite float")
                     : Verdict::Passed();
}

Verdict RoundTrip(const Case& c, Subject& subject) {
  if (c.op == Op::kDequantize) return ThereAndBack(c, subject, c.x, c.x_q);
  const Answer answer = Ask(subject, c);
  if (answer.verdict) return *answer.verdict;
  int64_t judged = 0;
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const float x = c.x.FloatAt(i);
    if (!std::isfinite(x)) continue;
    const int64_t n = relation::ChannelOf(c, i);
    const Trip trip = WithinHalfStep(x, c.out_q.scale_at(n), answer.y.IntAt(i),
                                     c.out_q.zero_point_at(n), relation::LowEnd(c, n), c.out_max);
    if (trip == Trip::kOutside) continue;
    ++judged;
    if (trip == Trip::kGood) continue;
    return relation::FailedAt(c, i, "a code within half a step of x", ElementText(answer.y, i), 0,
                              "quantize is more than half a step off");
  }
  // If the subject cannot dequantize, the verdict rests on the half steps judged above.
  const Verdict back = ThereAndBack(c, subject, answer.y, c.out_q);
  if (back.failed() || back.judgement == Judgement::kPassed) return back;
  return judged == 0 ? Verdict::Vacuous("no x lies within half a step of the range")
                     : Verdict::Passed();
}

Verdict ZeroMapsToZeroPoint(const Case& c, Subject& subject) {
  Case zeros = ProblemOf(c);
  for (int64_t i = 0; i < zeros.x.size(); ++i) {
    zeros.x.as<float>()[static_cast<size_t>(i)] = i % 2 == 0 ? 0.0f : -0.0f;
  }
  const Answer answer = Ask(subject, zeros);
  if (answer.verdict) return *answer.verdict;
  int64_t judged = 0;
  for (int64_t i = 0; i < answer.y.size(); ++i) {
    const int64_t n = relation::ChannelOf(c, i);
    const int64_t zero = c.out_q.zero_point_at(n);
    if (zero < relation::LowEnd(c, n) || zero > c.out_max) continue;
    ++judged;
    if (answer.y.IntAt(i) == zero) continue;
    return relation::FailedAt(c, i, std::to_string(zero), ElementText(answer.y, i),
                              static_cast<double>(std::abs(zero - answer.y.IntAt(i))),
                              "quantize(0) is not the zero point");
  }
  return judged == 0 ? Verdict::Vacuous("no zero point is a code inside the clamp")
                     : Verdict::Passed();
}

}  // namespace

std::vector<Property> RoundTripProperties() {
  return {
      {"round_trip",
       "For finite x within half a step of the range, |s (quantize(x) - z) - x| <= s/2; and "
       "quantize(dequantize(q)) == q where the dequantized value is finite and |q - z| <= 2^22.",
       {Op::kQuantize, Op::kDequantize},
       false,
       RoundTrip},
      {"zero_maps_to_zero_point",
       "quantize(+0) and quantize(-0) are the zero point where it is a code inside the clamp.",
       {Op::kQuantize},
       false,
       ZeroMapsToZeroPoint},
  };
}

}  // namespace qualm
