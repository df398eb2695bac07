// SPDX-License-Identifier: Apache-2.0
// A cast is exact to float32, which holds every value of every type here, and then one rounding on
// the bits of the float32. Both steps are integer arithmetic on lanes of 32 bits (FromFloat32,
// ToFloat32). Shorter ways, whole vectors of bytes and more, where the types allow: ...Plain for
// types with a sign and a fraction; and what CastWay names, through instructions for float16.
// Elements that fill no vector, and smaller ones, are unpacked and packed one by one, in blocks.
//
// The rounding: a float32 is m * 2^(e - 150), m of up to 24 bits and e its exponent field (at least
// 1). A type with F fraction bits and the bias b keeps a digit of 2^-F of the leading one, but none
// below 2^(1 - b - F). So s = max(23 - F, 23 - F + 128 - b - e) bits of m go, and what is left, q,
// is the fraction with its leading one: the code is q + ((field - 1) << F), where field = max(e -
// 127 + b, 1). A carry out of q is a step to the next exponent, as it should be. With s >= 25
// nothing is left but what rounds up.
#include "kernels/cast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cast.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/dispatch.h"

#ifndef QUALM_KERNELS_CAST_PLAN_
#define QUALM_KERNELS_CAST_PLAN_
namespace qualm::kernels::internal {

// What both steps have to know of a type, worked out once.
struct FloatPlan {
  uint32_t sign = 0;       // the sign bit; 0 where there is none
  uint32_t magnitude = 0;  // all other bits that are used
  uint32_t largest = 0;    // finite
  uint32_t nan = 0;
  uint32_t fraction_bits = 0;
  int32_t bias = 0;
  FloatEnds ends = FloatEnds::kIeee;
};
// The shortest ways, between float32 and another type (QUALM_CAST_CONVERTS_HALF).
enum class CastWay { kNone, kFromHalf, kFromBfloat, kFromBytes, kToHalf, kToBfloat };
struct CastPlan {
  FloatPlan from, to;
  CastRounding rounding = CastRounding::kNearestEven;
  bool is_short = false;  // CastRow has this cast
  CastWay way = CastWay::kNone;
  float half_scale = 1;  // of bytes: float16 with the same digits times this is the number
  // Patterns of a positive number beyond the range, and of infinity; where they are NaN, they have
  // no sign. `below` is for what a type without a sign or a zero cannot hold.
  uint32_t beyond = 0, infinity = 0, below = 0;
  bool beyond_is_nan = false, infinity_is_nan = false;
  int sign_shift = 0;       // from the sign of a float32 to that of `to`
  int from_sign_shift = 0;  // from the sign of `from` to that of a float32
  // Of the short way, magnitudes of float32: larger ones than `cap` are taken for it, which has the
  // pattern `beyond`; those behind `last` are NaN in `to`.
  uint32_t cap = 0, last = 0;
};

}  // namespace qualm::kernels::internal
#endif

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DU = hn::ScalableTag<uint32_t>;
using V = hn::Vec<DU>;

HWY_INLINE V Of(uint32_t value) { return hn::Set(DU(), value); }

// The bits of the float32 of the same value; any NaN becomes 7fc00000.
HWY_INLINE V ToFloat32(const FloatPlan& p, V code) {
  const DU d;
  const V magnitude = hn::And(code, Of(p.magnitude));
  const V sign = p.sign == 0 ? hn::Zero(d)
                             : hn::IfThenElseZero(hn::Ne(hn::And(code, Of(p.sign)), hn::Zero(d)),
                                                  Of(0x80000000));
  const uint32_t shift = 23 - p.fraction_bits;
  const auto rebias = static_cast<uint32_t>(127 - p.bias) << 23;
  V value = hn::Add(hn::ShiftLeftSame(magnitude, static_cast<int>(shift)), Of(rebias));
  if (p.fraction_bits == 0) {  // e8m0: 2^-127 is a subnormal float32
    value = hn::IfThenElse(hn::Eq(magnitude, hn::Zero(d)), Of(0x00400000), value);
  } else if (p.bias != 127) {
    // A subnormal is m * 2^(1 - bias - F): its leading bit becomes the implicit one.
    const V leading = hn::Sub(Of(31), hn::LeadingZeroCount(hn::Max(magnitude, Of(1))));
    const V fraction = hn::And(hn::Shl(magnitude, hn::Sub(Of(23), leading)), Of(0x007FFFFF));
    const auto least = static_cast<uint32_t>(128 - p.bias) - p.fraction_bits;
    const V subnormal = hn::Or(hn::ShiftLeft<23>(hn::Add(leading, Of(least))), fraction);
    value = hn::IfThenElse(hn::Lt(magnitude, Of(1u << p.fraction_bits)), subnormal, value);
    value = hn::IfThenZeroElse(hn::Eq(magnitude, hn::Zero(d)), value);
  }
  value = hn::Or(value, sign);
  if (p.ends == FloatEnds::kFinite) return value;
  if (p.ends == FloatEnds::kMinusZero)
    return hn::IfThenElse(hn::Eq(code, Of(p.nan)), Of(0x7FC00000), value);
  const V first_nan = Of(p.largest + (p.ends == FloatEnds::kIeee ? 2 : 1));
  if (p.ends == FloatEnds::kIeee) {
    const V infinity = hn::Or(Of(0x7F800000), sign);
    value = hn::IfThenElse(hn::Gt(magnitude, Of(p.largest)), infinity, value);
  }
  return hn::IfThenElse(hn::Ge(magnitude, first_nan), Of(0x7FC00000), value);
}

// A pattern of a number with the sign of the number; NaN has none.
HWY_INLINE V Signed(V pattern, bool is_nan, V sign) {
  return is_nan ? pattern : hn::Or(pattern, sign);
}

HWY_INLINE V FromFloat32(const CastPlan& plan, V bits) {
  const DU d;
  const FloatPlan& p = plan.to;
  const V zero = hn::Zero(d), one = Of(1);
  const V magnitude = hn::And(bits, Of(0x7FFFFFFF));
  const auto negative = hn::Ne(hn::And(bits, Of(0x80000000)), zero);
  const V sign = hn::IfThenElseZero(negative, Of(p.sign));
  const uint32_t f = p.fraction_bits;

  const V field = hn::ShiftRight<23>(magnitude);
  const V e = hn::Max(field, one);
  const V implicit = hn::IfThenElseZero(hn::Ne(field, zero), Of(0x00800000));
  const V m = hn::Or(hn::And(magnitude, Of(0x007FFFFF)), implicit);
  const V least =
      Of(static_cast<uint32_t>(128 - p.bias));  // e of the type's smallest normal number
  const V below = hn::Sub(hn::Max(least, e), e);
  const V s = hn::Min(hn::Add(Of(23 - f), below), Of(25));
  const V kept = hn::Shr(m, s);
  const V unit = hn::Shl(one, s);
  V add = zero;
  if (plan.rounding == CastRounding::kNearestEven) {
    // Half of a unit, less one where the digit is even. Without a fraction a tie goes up.
    const V half = hn::ShiftRight<1>(unit);
    const V odd = f == 0 ? one : hn::And(kept, one);
    add = hn::IfThenZeroElse(hn::Eq(s, zero), hn::Add(hn::Sub(half, one), odd));
  } else if (plan.rounding == CastRounding::kUp) {
    add = hn::IfThenZeroElse(negative, hn::Sub(unit, one));
  }
  const V q = hn::Shr(hn::Add(m, add), s);
  const V steps = hn::Sub(hn::Max(e, least), least);
  V code = hn::Add(q, hn::ShiftLeftSame(steps, static_cast<int>(f)));
  if (f == 0) {
    // e8m0: q is 1 or 2, the code of 2^(e - 127) is e. Of subnormals: 2^-127 or, rounded, 2^-126.
    code = hn::Sub(hn::Add(e, q), one);
    V small = zero;
    if (plan.rounding == CastRounding::kNearestEven)
      small = hn::IfThenElseZero(hn::Ge(magnitude, Of(0x00600000)), one);
    if (plan.rounding == CastRounding::kUp)
      small = hn::IfThenElseZero(hn::Gt(magnitude, Of(0x00400000)), one);
    code = hn::IfThenElse(hn::Eq(field, zero), small, code);
  }

  V inward = Of(p.largest);
  const bool goes_inward = plan.rounding == CastRounding::kTowardZero;
  V beyond = Signed(Of(plan.beyond), plan.beyond_is_nan, sign);
  inward = hn::Or(inward, sign);
  if (goes_inward) beyond = inward;
  if (plan.rounding == CastRounding::kUp) beyond = hn::IfThenElse(negative, inward, beyond);
  const auto is_zero = hn::Eq(code, zero);
  V y = hn::IfThenElse(hn::Gt(code, Of(p.largest)), beyond, hn::Or(code, sign));
  if (p.ends == FloatEnds::kMinusZero) y = hn::IfThenZeroElse(is_zero, y);
  const V infinity = Signed(Of(plan.infinity), plan.infinity_is_nan, sign);
  y = hn::IfThenElse(hn::Eq(magnitude, Of(0x7F800000)), infinity, y);
  if (p.sign == 0) {
    // Without a sign there is nothing below 0, and no 0 without a fraction.
    const auto outside =
        f == 0 ? hn::Or(negative, hn::Eq(magnitude, zero)) : hn::AndNot(is_zero, negative);
    y = hn::IfThenElse(outside, Of(plan.below), y);
  }
  return hn::IfThenElse(hn::Gt(magnitude, Of(0x7F800000)), Of(p.nan), y);
}

// ToFloat32 of a type with a sign and a fraction. A subnormal m * 2^(1 - bias - F) is the fraction
// m of a number 2^(1 - bias) * (1 + m/2^F), less its 1: a subtraction that no rounding mode and no
// flushing of denormals changes.
HWY_INLINE V ToFloat32Plain(const FloatPlan& p, int sign_shift, V code) {
  const DU d;
  const hn::RebindToFloat<DU> df;
  const hn::RebindToSigned<DU> di;  // magnitudes are no negative numbers, and compare faster so
  const V magnitude = hn::And(code, Of(p.magnitude));
  const auto exceeds = [&](uint32_t bound) HWY_ATTR {
    return hn::RebindMask(d, hn::Gt(hn::BitCast(di, magnitude), hn::BitCast(di, Of(bound))));
  };
  const V shifted = hn::ShiftLeftSame(magnitude, static_cast<int>(23 - p.fraction_bits));
  V value = shifted;
  if (p.bias != 127) {
    const V base = Of(static_cast<uint32_t>(128 - p.bias) << 23);
    const V small =
        hn::BitCast(d, hn::Sub(hn::BitCast(df, hn::Or(shifted, base)), hn::BitCast(df, base)));
    value = hn::Add(shifted, Of(static_cast<uint32_t>(127 - p.bias) << 23));
    value = hn::IfThenElse(exceeds((1u << p.fraction_bits) - 1), value, small);
    if (p.ends == FloatEnds::kIeee)
      value = hn::IfThenElse(exceeds(p.largest), Of(0x7F800000), value);
  }
  value = hn::BitwiseIfThenElse(Of(0x7FFFFFFF), value, hn::ShiftLeftSame(code, sign_shift));
  if (p.ends == FloatEnds::kFinite) return value;
  if (p.ends == FloatEnds::kMinusZero)
    return hn::IfThenElse(hn::Eq(code, Of(p.nan)), Of(0x7FC00000), value);
  return hn::IfThenElse(exceeds(p.largest + (p.ends == FloatEnds::kIeee ? 1 : 0)), Of(0x7FC00000),
                        value);
}

// FromFloat32, to nearest, of a type with a sign and a shorter fraction: numbers that stay normal
// are rounded where they stand, and the exponent gets its new bias by a subtraction. A vector
// without a number below them needs no shift by lanes.
HWY_INLINE V FromFloat32Plain(const CastPlan& plan, V bits) {
  const DU d;
  const FloatPlan& p = plan.to;
  const uint32_t shift = 23 - p.fraction_bits;
  const V one = Of(1);
  const hn::RebindToSigned<DU> di;  // magnitudes are no negative numbers, and compare faster so
  const V magnitude = hn::And(bits, Of(0x7FFFFFFF));
  const V capped =
      hn::BitCast(d, hn::Min(hn::BitCast(di, magnitude), hn::BitCast(di, Of(plan.cap))));
  const V odd = hn::And(hn::ShiftRightSame(capped, static_cast<int>(shift)), one);
  const uint32_t half_and_bias =
      (1u << (shift - 1)) - 1 - (static_cast<uint32_t>(127 - p.bias) << 23);
  V code =
      hn::ShiftRightSame(hn::Add(hn::Add(capped, Of(half_and_bias)), odd), static_cast<int>(shift));
  const auto least = static_cast<uint32_t>(128 - p.bias);
  const auto below =
      hn::RebindMask(d, hn::Lt(hn::BitCast(di, magnitude), hn::BitCast(di, Of(least << 23))));
  if (p.bias != 127 && !hn::AllFalse(d, below)) {
    const V m = hn::Or(hn::And(magnitude, Of(0x007FFFFF)), Of(0x00800000));
    const V s = hn::Min(hn::Sub(Of(shift + least), hn::ShiftRight<23>(magnitude)), Of(25));
    const V half = hn::ShiftRight<1>(hn::Shl(one, s));
    const V last = hn::And(hn::Shr(m, s), one);
    const V subnormal = hn::Shr(hn::Add(m, hn::Add(hn::Sub(half, one), last)), s);
    code = hn::IfThenElse(below, subnormal, code);
  }
  V y = hn::BitwiseIfThenElse(Of(p.sign), hn::ShiftRightSame(bits, plan.sign_shift), code);
  if (p.ends == FloatEnds::kMinusZero) y = hn::IfThenZeroElse(hn::Eq(code, hn::Zero(d)), y);
  const auto is_nan =
      hn::RebindMask(d, hn::Gt(hn::BitCast(di, magnitude), hn::BitCast(di, Of(plan.last))));
  y = hn::IfThenElse(is_nan, Of(p.nan), y);
  if (plan.infinity != plan.beyond) {
    const V sign = hn::And(hn::ShiftRightSame(bits, plan.sign_shift), Of(p.sign));
    const V infinity = Signed(Of(plan.infinity), plan.infinity_is_nan, sign);
    y = hn::IfThenElse(hn::Eq(magnitude, Of(0x7F800000)), infinity, y);
  }
  return y;
}

// The same of float32 itself: every number is one of its.
HWY_INLINE V FromFloat32ToItself(const CastPlan& plan, V bits) {
  const V magnitude = hn::And(bits, Of(0x7FFFFFFF));
  const V sign = hn::And(bits, Of(0x80000000));
  const V infinity = Signed(Of(plan.infinity), plan.infinity_is_nan, sign);
  const V y = hn::IfThenElse(hn::Eq(magnitude, Of(0x7F800000)), infinity, bits);
  return hn::IfThenElse(hn::Gt(magnitude, Of(0x7F800000)), Of(plan.to.nan), y);
}

#if HWY_TARGET != HWY_SCALAR  // whose vectors hold one element, and are not narrowed

// A vector of codes of 8, 16 or 32 bits.
template <class Code>
HWY_INLINE V LoadCodes(const Code* from) {
  const DU d;
  if constexpr (sizeof(Code) == 4) {
    return hn::LoadU(d, from);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<Code, DU>(), from));
  }
}
// Four vectors.
template <class Code>
HWY_INLINE void StoreCodes(V a, V b, V c, V e, Code* to) {
  const DU d;
  const hn::RepartitionToNarrow<DU> d16;
  if constexpr (sizeof(Code) == 4) {
    hn::StoreU(a, d, to);
    hn::StoreU(b, d, to + hn::Lanes(d));
    hn::StoreU(c, d, to + 2 * hn::Lanes(d));
    hn::StoreU(e, d, to + 3 * hn::Lanes(d));
  } else {
    const auto low = hn::OrderedTruncate2To(d16, a, b), high = hn::OrderedTruncate2To(d16, c, e);
    if constexpr (sizeof(Code) == 2) {
      hn::StoreU(low, d16, to);
      hn::StoreU(high, d16, to + hn::Lanes(d16));
    } else {
      const hn::RepartitionToNarrow<decltype(d16)> d8;
      hn::StoreU(hn::OrderedTruncate2To(d8, low, high), d8, to);
    }
  }
}

// The shortest ways go through float16, which instructions convert whatever the caller's rounding
// mode is and whether denormals are flushed: vcvtps2ph has its own rounding.
#undef QUALM_CAST_CONVERTS_HALF
#define QUALM_CAST_CONVERTS_HALF (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2)
#if QUALM_CAST_CONVERTS_HALF
using DF = hn::RebindToFloat<DU>;
using D16 = hn::RepartitionToNarrow<DU>;
using DHalf = hn::Rebind<hwy::float16_t, DU>;  // as many as a vector of float32 has
using VF = hn::Vec<DF>;
using V16 = hn::Vec<D16>;

HWY_INLINE V16 Of16(uint32_t value) { return hn::Set(D16(), static_cast<uint16_t>(value)); }
HWY_INLINE hn::Mask<D16> Exceeds16(V16 magnitude, uint32_t bound) {
  const hn::RebindToSigned<D16> di;
  return hn::RebindMask(D16(), hn::Gt(hn::BitCast(di, magnitude), hn::BitCast(di, Of16(bound))));
}

// Two vectors, to nearest.
HWY_INLINE V16 ToHalves(VF low, VF high) {
  const hn::Rebind<uint16_t, DU> half;
  return hn::Combine(D16(), hn::BitCast(half, hn::DemoteTo(DHalf(), high)),
                     hn::BitCast(half, hn::DemoteTo(DHalf(), low)));
}

// The vectors of float32 times `scale`, where that is not 1.
HWY_INLINE void StoreHalves(V16 halves, bool scaled, VF scale, float* to) {
  const auto store = [&](auto half, float* at) HWY_ATTR {
    const VF value = hn::PromoteTo(DF(), hn::BitCast(DHalf(), half));
    hn::StoreU(scaled ? hn::Mul(value, scale) : value, DF(), at);
  };
  store(hn::LowerHalf(hn::Half<D16>(), halves), to);
  store(hn::UpperHalf(hn::Half<D16>(), halves), to + hn::Lanes(DF()));
}

size_t FromHalf(const uint16_t* from, size_t count, float* to) {
  const D16 d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const V16 code = hn::LoadU(d, from + i);
    const auto is_nan = Exceeds16(hn::And(code, Of16(0x7FFF)), 0x7C00);
    StoreHalves(hn::IfThenElse(is_nan, Of16(0x7E00), code), false, hn::Zero(DF()), to + i);
  }
  return i;
}

size_t ToHalf(const CastPlan& plan, const float* from, size_t count, uint16_t* to) {
  const D16 d;
  const DF df;
  const uint32_t nan = plan.to.nan, most = plan.infinity;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const V16 half = ToHalves(hn::LoadU(df, from + i), hn::LoadU(df, from + i + hn::Lanes(df)));
    const V16 magnitude = hn::And(half, Of16(0x7FFF));
    V16 y = half;
    if (most != 0x7C00)
      y = hn::BitwiseIfThenElse(Of16(0x7FFF), hn::Min(magnitude, Of16(most)), half);
    hn::StoreU(hn::IfThenElse(Exceeds16(magnitude, 0x7C00), Of16(nan), y), d, to + i);
  }
  return i;
}

size_t FromBfloat(const uint16_t* from, size_t count, float* to) {
  const DU d;
  const DF df;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const V code = hn::PromoteTo(d, hn::LoadU(hn::Rebind<uint16_t, DU>(), from + i));
    const VF value = hn::BitCast(df, hn::ShiftLeft<16>(code));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(value), hn::BitCast(df, Of(0x7FC00000)), value), df,
               to + i);
  }
  return i;
}

size_t ToBfloat(const CastPlan& plan, const float* from, size_t count, uint16_t* to) {
  const DU d;
  const DF df;
  const D16 d16;
  const V nan = Of(plan.to.nan << 16);
  const auto rounded = [&](const float* at) HWY_ATTR {
    const VF value = hn::LoadU(df, at);
    const V bits = hn::BitCast(d, value);
    const V odd = hn::And(hn::ShiftRight<16>(bits), Of(1));
    const V sum = hn::Add(hn::Add(bits, Of(0x7FFF)), odd);
    return hn::BitCast(d16, hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(value)), nan, sum));
  };
  size_t i = 0;
  for (; i + hn::Lanes(d16) <= count; i += hn::Lanes(d16)) {
    const V16 low = rounded(from + i), high = rounded(from + i + hn::Lanes(d));
    hn::StoreU(hn::ConcatOdd(d16, high, low), d16, to + i);
  }
  return i;
}

// A byte is moved to where float16 has its digits: with the smaller exponent it stands for another
// power of two, but subnormal bytes are subnormal there too.
size_t FromBytes(const CastPlan& plan, const uint8_t* from, size_t count, float* to) {
  const D16 d;
  const FloatPlan p = plan.from;
  const auto shift = static_cast<int>(10 - p.fraction_bits);
  const VF scale = hn::Set(DF(), plan.half_scale);
  const bool scaled = plan.half_scale != 1;
  const uint32_t code_of_nan = p.nan, beyond = p.largest;
  const FloatEnds ends = p.ends;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const V16 code = hn::PromoteTo(d, hn::LoadU(hn::Rebind<uint8_t, D16>(), from + i));
    const V16 magnitude = hn::And(code, Of16(0x7F));
    V16 half = hn::BitwiseIfThenElse(Of16(0x7FFF), hn::ShiftLeftSame(magnitude, shift),
                                     hn::ShiftLeft<8>(code));
    if (ends == FloatEnds::kMinusZero)
      half = hn::IfThenElse(hn::Eq(code, Of16(code_of_nan)), Of16(0x7E00), half);
    else
      half = hn::IfThenElse(Exceeds16(magnitude, beyond + (ends == FloatEnds::kIeee ? 1 : 0)),
                            Of16(0x7E00), half);
    StoreHalves(half, scaled, scale, to + i);
  }
  return i;
}

#endif  // QUALM_CAST_CONVERTS_HALF

// Of codes of 32 bits float32 alone is taken.
template <class From, class To>
size_t CastWhole(const CastPlan& of, const void* from, size_t count, void* to) {
  const CastPlan plan = of;  // no store reaches it
  const auto* const codes = static_cast<const From*>(from);
  auto* const cast_codes = static_cast<To*>(to);
  const size_t lanes = hn::Lanes(DU());
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto cast = [&](size_t part) HWY_ATTR {
      const V code = LoadCodes(codes + i + part * lanes);
      const V bits =
          sizeof(From) == 4 ? code : ToFloat32Plain(plan.from, plan.from_sign_shift, code);
      if constexpr (sizeof(To) < 4) return FromFloat32Plain(plan, bits);
      // Infinities that stay, and NaN, are right as they are.
      if (sizeof(From) < 4 && plan.infinity == 0x7F800000) return bits;
      return FromFloat32ToItself(plan, bits);
    };
    StoreCodes(cast(0), cast(1), cast(2), cast(3), cast_codes + i);
  }
  return i;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace

// Of elements as many as fill vectors, where there is a short way; how many those are.
size_t CastRow(const CastPlan& plan, int from_bits, const void* from, size_t count, int to_bits,
               void* to) {
#if HWY_TARGET != HWY_SCALAR
  if (!plan.is_short) return 0;
#if QUALM_CAST_CONVERTS_HALF
  const auto* const halves = static_cast<const uint16_t*>(from);
  const auto* const floats = static_cast<const float*>(from);
  switch (plan.way) {
    case CastWay::kFromHalf: return FromHalf(halves, count, static_cast<float*>(to));
    case CastWay::kFromBfloat: return FromBfloat(halves, count, static_cast<float*>(to));
    case CastWay::kFromBytes:
      return FromBytes(plan, static_cast<const uint8_t*>(from), count, static_cast<float*>(to));
    case CastWay::kToHalf: return ToHalf(plan, floats, count, static_cast<uint16_t*>(to));
    case CastWay::kToBfloat: return ToBfloat(plan, floats, count, static_cast<uint16_t*>(to));
    case CastWay::kNone: break;
  }
#endif
  switch (from_bits * 100 + to_bits) {
    case 3216: return CastWhole<uint32_t, uint16_t>(plan, from, count, to);
    case 3208: return CastWhole<uint32_t, uint8_t>(plan, from, count, to);
    case 1632: return CastWhole<uint16_t, uint32_t>(plan, from, count, to);
    case 1616: return CastWhole<uint16_t, uint16_t>(plan, from, count, to);
    case 1608: return CastWhole<uint16_t, uint8_t>(plan, from, count, to);
    case 832: return CastWhole<uint8_t, uint32_t>(plan, from, count, to);
    case 816: return CastWhole<uint8_t, uint16_t>(plan, from, count, to);
    default: return 0;
  }
#else
  (void)plan, (void)from_bits, (void)from, (void)count, (void)to_bits, (void)to;
  return 0;
#endif
}

// The codes of `count` elements, rounded up to the lanes of a vector.
void CastCodes(const CastPlan& plan, uint32_t* codes, size_t count) {
  const DU d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const V bits = ToFloat32(plan.from, hn::LoadU(d, codes + i));
    hn::StoreU(FromFloat32(plan, bits), d, codes + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace internal {
namespace {

HWY_EXPORT(CastCodes);
HWY_EXPORT(CastRow);

// At least the lanes of any vector, and a whole number of bytes of any type.
constexpr int64_t kBlock = 512;

FloatPlan PlanOf(const FloatType& type) {
  FloatPlan plan;
  plan.fraction_bits = static_cast<uint32_t>(type.fraction_bits);
  plan.bias = type.bias;
  plan.ends = type.ends;
  const uint32_t used = static_cast<uint32_t>(type.exponent_bits) + plan.fraction_bits;
  plan.sign = type.has_sign ? 1u << used : 0;
  plan.magnitude = static_cast<uint32_t>((uint64_t{1} << used) - 1);
  plan.largest = plan.magnitude;
  switch (type.ends) {
    case FloatEnds::kIeee:
      plan.largest -= 1u << plan.fraction_bits;
      plan.nan = plan.largest + 1 + (1u << plan.fraction_bits) / 2;
      break;
    case FloatEnds::kAllOnes:
      plan.nan = plan.largest;
      --plan.largest;
      break;
    case FloatEnds::kMinusZero: plan.nan = plan.sign; break;
    case FloatEnds::kFinite: plan.nan = plan.largest; break;
  }
  return plan;
}

bool IsFloat32(const FloatType& t) {
  return t.bits == 32 && t.exponent_bits == 8 && t.fraction_bits == 23 && t.bias == 127 &&
         t.ends == FloatEnds::kIeee && t.has_sign;
}

// A byte whose digits float16 has room for, at a power of two that `half_scale` gives back.
bool FitsHalf(const FloatType& t) {
  return t.bits == 8 && t.has_sign && t.fraction_bits >= 1 && t.fraction_bits <= 3 &&
         t.ends != FloatEnds::kFinite && t.exponent_bits + t.fraction_bits == 7 &&
         (t.exponent_bits == 4
              ? t.ends != FloatEnds::kIeee
              : t.exponent_bits == 5 && t.bias == 15 && t.ends == FloatEnds::kIeee);
}

CastWay WayOf(const FloatType& from, const FloatType& to, const CastPlan& plan) {
  constexpr FloatType kHalf{16, 5, 10, 15}, kBfloat{16, 8, 7, 127};
  const auto is = [](const FloatType& t, const FloatType& other) {
    return t.bits == other.bits && t.exponent_bits == other.exponent_bits && t.bias == other.bias &&
           t.fraction_bits == other.fraction_bits && t.ends == other.ends && t.has_sign;
  };
  if (IsFloat32(to) && plan.infinity == 0x7F800000) {
    if (is(from, kHalf)) return CastWay::kFromHalf;
    if (is(from, kBfloat)) return CastWay::kFromBfloat;
    if (FitsHalf(from)) return CastWay::kFromBytes;
  }
  if (!IsFloat32(from) || plan.rounding != CastRounding::kNearestEven ||
      plan.beyond != plan.infinity)
    return CastWay::kNone;
  if (is(to, kHalf)) return CastWay::kToHalf;
  if (is(to, kBfloat) && plan.infinity == 0x7F80) return CastWay::kToBfloat;
  return CastWay::kNone;
}

CastPlan PlanOf(const FloatType& from, const FloatType& to, CastRounding rounding,
                CastOverflow overflow) {
  CastPlan plan{.from = PlanOf(from), .to = PlanOf(to), .rounding = rounding};
  const bool has_nan = to.ends != FloatEnds::kFinite, has_infinity = to.ends == FloatEnds::kIeee;
  const uint32_t largest = plan.to.largest;
  const bool saturates = overflow == CastOverflow::kSaturate || !has_nan;
  plan.infinity = saturates ? largest : has_infinity ? largest + 1 : plan.to.nan;
  plan.infinity_is_nan = !saturates && !has_infinity;
  plan.beyond_is_nan = plan.infinity_is_nan || (!saturates && overflow == CastOverflow::kNan);
  plan.beyond = plan.beyond_is_nan ? plan.to.nan : plan.infinity;
  plan.below = saturates ? 0 : plan.to.nan;
  plan.sign_shift = 31 - to.exponent_bits - to.fraction_bits;
  plan.from_sign_shift = 31 - from.exponent_bits - from.fraction_bits;
  const bool known = (from.bits < 32 || IsFloat32(from)) && (to.bits < 32 || IsFloat32(to));
  // Of a type that goes on below float32's normal numbers those would need steps of their own.
  const auto is_plain = [](const FloatType& t) {
    return t.has_sign && t.fraction_bits > 0 && t.fraction_bits < 23 &&
           (t.bias == 127 ? t.exponent_bits == 8 : t.bias + t.fraction_bits <= 126);
  };
  const bool plain = rounding == CastRounding::kNearestEven && is_plain(to);
  plan.is_short = known && (IsFloat32(from) || is_plain(from)) && (IsFloat32(to) || plain);
  plan.way = WayOf(from, to, plan);
  if (plan.way == CastWay::kFromBytes) plan.half_scale = std::exp2(15.0f - from.bias);
  if (!plan.is_short || IsFloat32(to)) return plan;
  const int shift = 23 - to.fraction_bits;
  const auto of_code = [&](uint32_t code) {
    return (code << shift) + (static_cast<uint32_t>(127 - to.bias) << 23);
  };
  plan.cap = of_code(largest) + (plan.beyond == largest ? 0 : uint32_t{1} << shift);
  plan.last = 0x7F800000;
  // Halfway to the next code a tie goes to an even one.
  if (plan.beyond_is_nan)
    plan.last = of_code(largest) + (uint32_t{1} << (shift - 1)) - (largest & 1);
  return plan;
}

// Elements [at, at + count) of a row of codes of `bits` bits.
void Unpack(const uint8_t* data, int bits, int64_t at, int64_t count, uint32_t* codes) {
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<size_t>(at + i);
    if (bits >= 8) {
      uint32_t code = 0;
      std::memcpy(&code, data + index * static_cast<size_t>(bits) / 8,
                  static_cast<size_t>(bits) / 8);
      codes[i] = code;
      continue;
    }
    const size_t bit = index * static_cast<size_t>(bits);
    const size_t last = (bit + static_cast<size_t>(bits) - 1) / 8;
    const auto word = static_cast<uint32_t>(data[bit / 8] | data[last] << (last - bit / 8) * 8);
    codes[i] = word >> bit % 8 & ((1u << bits) - 1);
  }
}

// Sub-byte codes follow each other: the first byte of a block keeps what a row before put there.
void Pack(const uint32_t* codes, int bits, int64_t at, int64_t count, uint8_t* data) {
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<size_t>(at + i);
    if (bits >= 8) {
      std::memcpy(data + index * static_cast<size_t>(bits) / 8, &codes[i],
                  static_cast<size_t>(bits) / 8);
      continue;
    }
    const size_t bit = index * static_cast<size_t>(bits), byte = bit / 8;
    const uint32_t word = codes[i] << bit % 8;
    data[byte] = static_cast<uint8_t>(bit % 8 == 0 ? word : data[byte] | word);
    // A code that ends in the next byte writes it whole, so that no bit is left as it was.
    if (bit % 8 + static_cast<size_t>(bits) > 8) data[byte + 1] = static_cast<uint8_t>(word >> 8);
  }
}

template <class Matrix>
Status CheckFloats(const char* name, const Matrix& m) {
  const std::string of = name;
  const int used = m.type.exponent_bits + m.type.fraction_bits;
  const bool known = (m.type.bits == 4 || m.type.bits == 6 || m.type.bits == 8 ||
                      m.type.bits == 16 || m.type.bits == 32) &&
                     m.type.fraction_bits >= 0 && m.type.fraction_bits <= 23 && used < 32 &&
                     used <= m.type.bits;
  if (!known) return {of + ".type is no float type of 4, 6, 8, 16 or 32 bits"};
  if (m.rows < 0 || m.columns < 0) return {of + " has a negative size, expected at least 0"};
  if (m.rows == 0 || m.columns == 0) return {};
  if (m.row_stride < m.columns) return {of + ".row_stride is less than its columns"};
  if (m.row_stride > INT64_MAX / 64 / m.rows) return {of + " exceeds the address space"};
  if (m.type.bits < 8 && m.row_stride != m.columns)
    return {of + ".row_stride is not its columns, expected dense rows of less than a byte"};
  return m.data == nullptr ? Status{of + ".data is null, expected rows * columns elements"}
                           : Status{};
}

}  // namespace
}  // namespace internal

Status Cast(const ConstFloats& x, CastRounding rounding, CastOverflow overflow,
            const MutableFloats& y) {
  using namespace internal;
  if (Status status = CheckFloats("x", x); !status.ok()) return status;
  if (Status status = CheckFloats("y", y); !status.ok()) return status;
  if (x.rows != y.rows || x.columns != y.columns) return {"y has another shape than x"};
  if (rounding > CastRounding::kUp) return {"rounding is none of CastRounding"};
  if (overflow > CastOverflow::kNan) return {"overflow is none of CastOverflow"};
  const CastPlan plan = PlanOf(x.type, y.type, rounding, overflow);
  const bool dense = x.row_stride == x.columns && y.row_stride == y.columns;
  const int64_t rows = dense ? 1 : x.rows, columns = dense ? x.rows * x.columns : x.columns;
  std::array<uint32_t, kBlock> codes{};
  const bool whole_bytes = x.type.bits >= 8 && y.type.bits >= 8;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t column = 0;
    if (whole_bytes) {
      column = static_cast<int64_t>(QUALM_DISPATCH(CastRow)(
          plan, x.type.bits,
          static_cast<const uint8_t*>(x.data) + row * x.row_stride * x.type.bits / 8,
          static_cast<size_t>(columns), y.type.bits,
          static_cast<uint8_t*>(y.data) + row * y.row_stride * y.type.bits / 8));
    }
    for (; column < columns; column += kBlock) {
      const int64_t count = std::min(kBlock, columns - column);
      Unpack(static_cast<const uint8_t*>(x.data), x.type.bits, row * x.row_stride + column, count,
             codes.data());
      QUALM_DISPATCH(CastCodes)(plan, codes.data(), static_cast<size_t>(count));
      Pack(codes.data(), y.type.bits, row * y.row_stride + column, count,
           static_cast<uint8_t*>(y.data));
    }
  }
  return {};
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
