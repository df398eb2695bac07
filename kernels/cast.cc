// SPDX-License-Identifier: Apache-2.0
// A cast is exact to float32, which holds every value of every type here, and then one rounding on
// the bits of the float32. Both steps are integer arithmetic on lanes of 32 bits. Elements of whole
// bytes are loaded and stored as vectors; those that fill none, and smaller ones, are unpacked and
// packed one by one, in blocks.
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
struct CastPlan {
  FloatPlan from, to;
  CastRounding rounding = CastRounding::kNearestEven;
  bool is_short = false;  // CastRow has this cast
  // Patterns of a positive number beyond the range, and of infinity; where they are NaN, they have
  // no sign. `below` is for what a type without a sign or a zero cannot hold.
  uint32_t beyond = 0, infinity = 0, below = 0;
  bool beyond_is_nan = false, infinity_is_nan = false;
  int sign_shift = 0;  // from the sign of a float32 to that of `to`
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

// The same, to nearest, of a type with a sign and a shorter fraction: numbers that stay normal are
// rounded where they stand, and the exponent gets its new bias by a subtraction. A vector without a
// number below them needs no shift by lanes.
HWY_INLINE V FromFloat32Plain(const CastPlan& plan, V bits) {
  const DU d;
  const FloatPlan& p = plan.to;
  const uint32_t shift = 23 - p.fraction_bits;
  const V one = Of(1);
  const V magnitude = hn::And(bits, Of(0x7FFFFFFF));
  const V odd = hn::And(hn::ShiftRightSame(magnitude, static_cast<int>(shift)), one);
  const V rounded = hn::Add(hn::Add(magnitude, Of((1u << (shift - 1)) - 1)), odd);
  V code = hn::Sub(hn::ShiftRightSame(rounded, static_cast<int>(shift)),
                   Of(static_cast<uint32_t>(127 - p.bias) << p.fraction_bits));
  const auto least = static_cast<uint32_t>(128 - p.bias);
  const hn::RebindToSigned<DU> di;  // magnitudes are no negative numbers, and compare faster so
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
  const V sign = hn::And(hn::ShiftRightSame(bits, plan.sign_shift), Of(p.sign));
  V y = hn::Or(code, sign);
  const auto is_beyond =
      hn::RebindMask(d, hn::Gt(hn::BitCast(di, code), hn::BitCast(di, Of(p.largest))));
  y = hn::IfThenElse(is_beyond, Signed(Of(plan.beyond), plan.beyond_is_nan, sign), y);
  if (p.ends == FloatEnds::kMinusZero) y = hn::IfThenZeroElse(hn::Eq(code, hn::Zero(d)), y);
  if (plan.infinity != plan.beyond) {
    const V infinity = Signed(Of(plan.infinity), plan.infinity_is_nan, sign);
    y = hn::IfThenElse(hn::Eq(magnitude, Of(0x7F800000)), infinity, y);
  }
  const auto is_nan =
      hn::RebindMask(d, hn::Gt(hn::BitCast(di, magnitude), hn::BitCast(di, Of(0x7F800000))));
  return hn::IfThenElse(is_nan, Of(p.nan), y);
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
      const V bits = sizeof(From) == 4 ? code : ToFloat32(plan.from, code);
      return sizeof(To) == 4 ? FromFloat32ToItself(plan, bits) : FromFloat32Plain(plan, bits);
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
  const bool known = (from.bits < 32 || IsFloat32(from)) && (to.bits < 32 || IsFloat32(to));
  // Of a type that goes on below float32's normal numbers those would need steps of their own.
  const bool plain = rounding == CastRounding::kNearestEven && to.has_sign &&
                     to.fraction_bits > 0 && to.fraction_bits < 23 &&
                     (to.bias == 127 || to.bias + to.fraction_bits <= 126);
  plan.is_short = known && (IsFloat32(to) || plain);
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
