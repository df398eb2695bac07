// SPDX-License-Identifier: Apache-2.0
// Three ways in which libraries turn an int32 sum into a code, written from their arithmetic.
//
// kFloat32: FBGEMM (src/QuantUtilsAvx2.cc @ 71d6f8b), QNNPACK on x86. m = fl(fl(a*b)/d) in float32;
//   s = fl(fl(sum)*m); r = s rounded half to even, or INT32_MIN where that does not fit int32 (what
//   cvtps2dq gives; also for NaN, 0 times an overflowed m); code = clamp(r + zero point).
// kFixedQ31: gemmlowp and TFLite, the build with two roundings. M = a*b/d in float64 is taken apart
//   as Q * 2^(shift-31), Q = 0 or 2^30..2^31-1 (rounded half away from zero; 0 for shift < -31).
//   p = (sum * 2^max(shift,0) mod 2^32) * Q; h = floor(p/2^31 + 1/2). Their doubling high multiply
//   gives the same h: for p < 0 it adds 1 - 2^30 where we add 2^30, and divides toward zero where
//   we divide down. r = h / 2^max(-shift,0) rounded half away from zero; code = clamp((r + zero
//   point) mod 2^32).
// kFixedRndnu: XNNPACK on NEON (src/params-init.c @ ae108ef). m as in kFloat32, its bits taken
//   apart as mantissa Q (24 bits, at the top of 31) and shift = 126 - exponent field. v = sum *
//   2^max(1-shift,0) saturated to int32; h = floor(v*Q/2^31); r = floor(h / 2^max(shift,1) + 1/2);
//   code = clamp(r + zero point).
//
// Where a library's own result is undefined (shifts of 32 and more, multipliers it refuses) the
// formulas above go on to hold as mathematics: a shift to the left by 32 or more leaves 0 modulo
// 2^32 and saturates all but 0, one to the right leaves 0 of a rounded int32.
#include "kernels/common/backend_requantize.h"

#include <algorithm>
#include <bit>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/backend_requantize.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Plan = BackendRequantize::Plan;
using DI = hn::ScalableTag<int32_t>;
using DF = hn::RebindToFloat<DI>;
using DCode = hn::Rebind<uint8_t, DI>;
using VI = hn::Vec<DI>;

// floor((a*b + nudge) / 2^31), which fits: a >= -2^31, 0 <= b < 2^31, 0 <= nudge <= 2^30.
HWY_INLINE VI HighHalf(VI a, VI b, int64_t nudge) {
  const DI di;
#if HWY_TARGET == HWY_SCALAR
  const int64_t product = int64_t{hn::GetLane(a)} * hn::GetLane(b);
  return hn::Set(di, static_cast<int32_t>((product + nudge) >> 31));
#else
  const hn::RepartitionToWide<DI> dw;
  const hn::RebindToUnsigned<decltype(dw)> du;
  const auto add = hn::Set(dw, nudge);
  const auto even = hn::BitCast(du, hn::Add(hn::MulEven(a, b), add));
  const auto odd = hn::BitCast(du, hn::Add(hn::MulOdd(a, b), add));
  // Bits 31..62 of each: in the lower half of the even ones, in the upper half of the odd ones.
  return hn::OddEven(hn::BitCast(di, hn::ShiftLeft<1>(odd)),
                     hn::BitCast(di, hn::ShiftRight<31>(even)));
#endif
}

// Integers, before the zero point is added.
struct Float32 {
  static VI Round(const Plan& plan, VI sum, size_t channel, size_t n) {
    const DF df;
    const auto m = Parameter(df, plan.multiplier, plan.per_channel, channel, n);
    const auto s = hn::Mul(hn::ConvertTo(df, sum), m);
    const auto fits = hn::And(hn::Ge(s, hn::Set(df, -0x1p31f)), hn::Lt(s, hn::Set(df, 0x1p31f)));
    const auto rounded = hn::NearestInt(hn::IfThenElseZero(fits, s));
    return hn::IfThenElse(hn::RebindMask(DI(), fits), rounded, hn::Set(DI(), INT32_MIN));
  }
  static VI AddZeroPoint(VI value, VI zero_point) { return hn::SaturatedAdd(value, zero_point); }
};

struct FixedQ31 {
  static VI Round(const Plan& plan, VI sum, size_t channel, size_t n) {
    const DI di;
    const auto parameter = [&](const std::vector<int32_t>& list) HWY_ATTR {
      return Parameter(di, list, plan.per_channel, channel, n);
    };
    const VI shifted = hn::Shl(sum, parameter(plan.left));
    const VI high = HighHalf(shifted, parameter(plan.mantissa), int64_t{1} << 30);
    const VI right = parameter(plan.right);
    // Half away from zero: up where the remainder is beyond half, or at half of a value >= 0.
    const VI one = hn::Set(di, 1);
    const VI mask = hn::Sub(hn::Shl(one, right), one);
    const VI threshold = hn::Sub(hn::ShiftRight<1>(mask), hn::BroadcastSignBit(high));
    const auto up = hn::Gt(hn::And(high, mask), threshold);
    return hn::Sub(hn::Shr(high, right), hn::VecFromMask(di, up));
  }
  static VI AddZeroPoint(VI value, VI zero_point) { return hn::Add(value, zero_point); }
};

struct FixedRndnu {
  static VI Round(const Plan& plan, VI sum, size_t channel, size_t n) {
    const DI di;
    const auto parameter = [&](const std::vector<int32_t>& list) HWY_ATTR {
      return Parameter(di, list, plan.per_channel, channel, n);
    };
    const VI left = parameter(plan.left);
    const VI most = hn::Set(di, INT32_MAX);
    const VI least = hn::Set(di, INT32_MIN);
    VI shifted = hn::Shl(sum, left);
    shifted = hn::IfThenElse(hn::Gt(sum, hn::Shr(most, left)), most, shifted);
    shifted = hn::IfThenElse(hn::Lt(sum, hn::Shr(least, left)), least, shifted);
    const VI high = HighHalf(shifted, parameter(plan.mantissa), 0);
    // Half up without the sum that would overflow: the last bit shifted out is the carry.
    const VI one = hn::Set(di, 1);
    // At least 1, and 0 in lanes past the last element, where no shift may be -1 either.
    const VI right = parameter(plan.right);
    const VI last_bit = hn::Max(hn::Sub(right, one), hn::Zero(di));
    const VI carry = hn::And(hn::Shr(high, last_bit), one);
    return hn::Add(hn::Shr(high, right), carry);
  }
  static VI AddZeroPoint(VI value, VI zero_point) { return hn::SaturatedAdd(value, zero_point); }
};

template <class Mode>
HWY_INLINE void CodesAs(const Plan& plan, const int32_t* sums, size_t first, size_t count,
                        uint8_t* y) {
  const DI di;
  const DCode dc;
  const VI zero_point = hn::Set(di, plan.zero_point);
  const VI lo = hn::Set(di, plan.bounds.lo);
  const VI hi = hn::Set(di, plan.bounds.hi);
  ForEachVector(di, count, [&](size_t i, size_t n) HWY_ATTR {
    const VI rounded = Mode::Round(plan, LoadSome(di, sums + i, n), first + i, n);
    const VI code = hn::Min(hn::Max(Mode::AddZeroPoint(rounded, zero_point), lo), hi);
    StoreSome(hn::TruncateTo(dc, hn::BitCast(hn::RebindToUnsigned<DI>(), code)), dc, y + i, n);
  });
}

void BackendCodes(const Plan& plan, const int32_t* sums, size_t first, size_t count, uint8_t* y) {
  switch (plan.mode) {
    case Requantization::kFloat32: return CodesAs<Float32>(plan, sums, first, count, y);
    case Requantization::kFixedQ31: return CodesAs<FixedQ31>(plan, sums, first, count, y);
    case Requantization::kFixedRndnu: return CodesAs<FixedRndnu>(plan, sums, first, count, y);
    case Requantization::kExact: break;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels::internal {

HWY_EXPORT(BackendCodes);

namespace {

float FloatMultiplier(const Multiplier& m) {
  return m.numerator_a * m.numerator_b / m.denominator;  // two roundings to float32
}

struct Fixed {
  int32_t mantissa = 0;
  int32_t left = 0;
  int32_t right = 0;
};

Fixed FixedQ31Of(const Multiplier& m) {
  const double product = static_cast<double>(m.numerator_a) * static_cast<double>(m.numerator_b);
  int shift = 0;
  const double fraction = std::frexp(product / static_cast<double>(m.denominator), &shift);
  auto mantissa = static_cast<int64_t>(std::round(fraction * 0x1p31));
  if (mantissa == int64_t{1} << 31) {
    mantissa /= 2;
    ++shift;
  }
  if (shift < -31 || shift > 31) return {};  // what is left is 0, see the top of the file
  return {static_cast<int32_t>(mantissa), std::max(shift, 0), std::max(-shift, 0)};
}

Fixed FixedRndnuOf(float multiplier) {
  const auto bits = std::bit_cast<uint32_t>(multiplier);
  const auto mantissa = static_cast<int32_t>(((bits & 0x7FFFFFu) | 0x800000u) << 7);
  const int32_t shift = 126 - static_cast<int32_t>(bits >> 23);
  const int32_t right = std::max(shift, 1);
  if (right > 31) return {0, 0, 1};
  return {mantissa, std::min(right - shift, 31), right};
}

}  // namespace

BackendRequantize::BackendRequantize(Requantization mode, std::span<const Multiplier> scales,
                                     int32_t zero_point, Bounds bounds) {
  plan_.zero_point = zero_point;
  plan_.bounds = bounds;
  plan_.mode = mode;
  plan_.per_channel = scales.size() != 1;
  for (const Multiplier& scale : scales) {
    if (mode == Requantization::kFloat32) {
      plan_.multiplier.push_back(FloatMultiplier(scale));
      continue;
    }
    const Fixed fixed = mode == Requantization::kFixedQ31 ? FixedQ31Of(scale)
                                                          : FixedRndnuOf(FloatMultiplier(scale));
    plan_.mantissa.push_back(fixed.mantissa);
    plan_.left.push_back(fixed.left);
    plan_.right.push_back(fixed.right);
  }
}

void BackendRequantize::CodesFromSums(const int32_t* sums, size_t first, size_t count,
                                      uint8_t* y) const {
  QUALM_DISPATCH(BackendCodes)(plan_, sums, first, count, y);
}

}  // namespace qualm::kernels::internal
#endif  // HWY_ONCE
