// SPDX-License-Identifier: Apache-2.0
// add and sub: y = clamp(RNE(v) + zy), v = (sa*da + sb*db) / sy, da = a - za, db = b - zb. To
// subtract, sb is minus the scale of b; the proof does not use its sign. How the rounding is
// decided, with [lo, hi] the bounds of RNE(v), the code before the zero point is added:
//
// 1. float32, in streams (code_stream-inl.h): ma = RN(sa/sy), mb likewise, v = a*ma + b*mb + c, the
//    zero points in c. "Exact" where sa/sy and sb/sy are floats and so is every partial sum. Else
//    "nearly": t = fma(a, ma, fma(b, mb, origin + c)), and GridFor adds up the errors of ma, mb, of
//    the constant and of each rounding: nearer to a tie than that, t does not decide. GridFor
//    rounds the width of this window up to a power of two, and moves t up by half of it: t lies in
//    the window exactly if the upper bits of its fraction are 0.
// 2. Blocks with an element next to a tie, and all elements where step 1 is impossible: t in
//    double, with an error bound e for each element as in rescale.cc: v lies in [t - e, t + e], e =
//    2^-49*(|da*ma| + |db*mb|). If both ends round to the same code, v does too.
// 3. Where they round to n and n + 1: p = sa*da, q = sb*db and h = (n + 1/2)*sy are exact doubles
//    (|da|, |db| < 2^29, |n| < 2^27), s + f = p + q and d + g = s - h exactly (Knuth's two-sum), so
//    the sign of d + f + g is that of v - (n + 1/2). If f or g is 0, RN(d + f + g) has that sign.
//    g is 0 unless p and q cancel almost wholly (Sterbenz).
// 4. Elements that neither step decides, and those that step 3 cannot take because zero points or
//    bounds are too large: ExactSum.
#include <algorithm>
#include <cmath>

#include "kernels/binary.h"
#include "kernels/common/binary_rows.h"
#include "kernels/common/exact_sum.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/validate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/add.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/code_stream-inl.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/vectors-inl.h"

#ifndef QUALM_KERNELS_ADD_PLAN_
#define QUALM_KERNELS_ADD_PLAN_
namespace qualm::kernels::internal {
namespace {

// Everything the loops need. Codes are read as unsigned: s8 codes and their zero points are shifted
// by 128.
struct AddPlan {
  uint8_t flip = 0;                             // 0x80 for s8 operands
  int64_t a_zero = 0, b_zero = 0;               // shifted
  float a_scale = 1, b_scale = 1, y_scale = 1;  // b_scale < 0 to subtract
  double a_multiplier = 1, b_multiplier = 1;    // sa/sy and sb/sy, rounded
  float a_multiplier32 = 1, b_multiplier32 = 1;
  int64_t lo = 0, hi = 0;
  int64_t y_zero = 0;
  bool streams = false;         // step 1 is possible,
  bool exact_in_float = false;  // and exact
  bool exact_terms = false;     // step 3 is possible
  UnsignedCodes codes;          // of y, if it streams
};

// The code of one pair of (shifted) codes, by steps 2 and 4.
uint8_t AddOne(const AddPlan& plan, uint8_t a, uint8_t b) {
  const int64_t da = a - plan.a_zero;
  const int64_t db = b - plan.b_zero;
  const double u = static_cast<double>(da) * plan.a_multiplier;
  const double w = static_cast<double>(db) * plan.b_multiplier;
  const double error = (std::fabs(u) + std::fabs(w)) * 0x1p-49;
  const auto round = [&](double v) {
    const double rounded = (v + kInteger64) - kInteger64;
    return static_cast<int64_t>(
        std::min(std::max(rounded, static_cast<double>(plan.lo)), static_cast<double>(plan.hi)));
  };
  const int64_t n = RoundBetween(round(u + w - error), round(u + w + error), [&](int64_t m) {
    ExactSum difference;  // (v - (m + 1/2)) * sy
    difference.AddHalves(2 * da, plan.a_scale);
    difference.AddHalves(2 * db, plan.b_scale);
    difference.AddHalves(-(2 * m + 1), plan.y_scale);
    return difference.Sign();
  });
  return static_cast<uint8_t>(n + plan.y_zero);
}

}  // namespace
}  // namespace qualm::kernels::internal
#endif

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DD = hn::ScalableTag<double>;
using DDInt = hn::Rebind<int32_t, DD>;
using DDCode = hn::Rebind<uint8_t, DD>;
using VD = hn::Vec<DD>;

// Steps 2 to 4 for n <= Lanes(DD) elements.
HWY_INLINE void AddDoubles(const AddPlan& plan, const uint8_t* a, const uint8_t* b, size_t n,
                           uint8_t* y) {
  const DD dd;
  const DDInt di;
  const DDCode dc;
  const hn::RebindToUnsigned<DD> du;
  const auto flip = hn::Set(dc, plan.flip);
  const VD magic = hn::Set(dd, kInteger64);
  const VD lo = hn::Set(dd, kInteger64 + static_cast<double>(plan.lo));
  const VD hi = hn::Set(dd, kInteger64 + static_cast<double>(plan.hi));
  const auto difference = [&](const uint8_t* codes, int64_t zero) HWY_ATTR {
    const auto code = hn::Xor(LoadSome(dc, codes, n), flip);
    return hn::Sub(hn::PromoteTo(dd, hn::PromoteTo(di, code)),
                   hn::Set(dd, static_cast<double>(zero)));
  };
  const VD da = difference(a, plan.a_zero);
  const VD db = difference(b, plan.b_zero);
  const VD u = hn::Mul(da, hn::Set(dd, plan.a_multiplier));
  const VD w = hn::Mul(db, hn::Set(dd, plan.b_multiplier));
  const VD t = hn::Add(u, w);
  const VD error = hn::Mul(hn::Add(hn::Abs(u), hn::Abs(w)), hn::Set(dd, 0x1p-49));
  const VD below = hn::Min(hn::Max(hn::Add(hn::Sub(t, error), magic), lo), hi);
  const VD above = hn::Min(hn::Max(hn::Add(hn::Add(t, error), magic), lo), hi);
  const auto decided = hn::Eq(below, above);
  VD result = below;
  if (HWY_UNLIKELY(!hn::AllTrue(dd, decided))) {
    const VD p = hn::Mul(da, hn::Set(dd, plan.a_scale));
    const VD q = hn::Mul(db, hn::Set(dd, plan.b_scale));
    const VD h = hn::Mul(hn::Add(hn::Sub(below, magic), hn::Set(dd, 0.5)),
                         hn::Set(dd, static_cast<double>(plan.y_scale)));
    // x + y = sum + rest, exactly.
    const auto two_sum = [](VD x, VD z, VD& rest) HWY_ATTR {
      const VD sum = hn::Add(x, z);
      const VD z_part = hn::Sub(sum, x);
      rest = hn::Add(hn::Sub(x, hn::Sub(sum, z_part)), hn::Sub(z, z_part));
      return sum;
    };
    VD f, g;
    const VD s = two_sum(p, q, f);
    const VD d = two_sum(s, hn::Neg(h), g);
    const VD zero = hn::Zero(dd);
    const auto neighbours = hn::Eq(hn::Sub(above, below), hn::Set(dd, 1.0));
    const auto exact = hn::Or(hn::Eq(f, zero), hn::Eq(g, zero));
    if (!plan.exact_terms || !hn::AllTrue(dd, hn::Or(decided, hn::And(neighbours, exact)))) {
      for (size_t k = 0; k < n; ++k) {
        y[k] = AddOne(plan, a[k] ^ plan.flip, b[k] ^ plan.flip);
      }
      return;
    }
    const VD side = hn::Add(d, hn::Add(f, g));
    const auto odd = hn::Ne(hn::And(hn::BitCast(du, below), hn::Set(du, 1)), hn::Zero(du));
    const auto past =
        hn::Or(hn::Gt(side, zero), hn::And(hn::RebindMask(dd, odd), hn::Eq(side, zero)));
    result = hn::IfThenElse(past, above, below);  // the same where decided
  }
  const VD code = hn::Add(result, hn::Set(dd, static_cast<double>(plan.y_zero)));
  StoreSome(hn::TruncateTo(dc, hn::BitCast(du, code)), dc, y, n);
}

// The constants of the "nearly" form: its origin in units of kGridScale, and the fractions to test.
struct Grid {
  bool possible = false;
  float origin = 0;
  int32_t fraction_mask = 0;
};
Grid GridFor(const AddPlan& plan) {
  constexpr double kHalfUlp = 0x1p-24;
  constexpr double kLargest = 256;  // of a code
  const double a_zero = static_cast<double>(plan.a_zero - plan.flip) * plan.a_multiplier;
  const double b_zero = static_cast<double>(plan.b_zero - plan.flip) * plan.b_multiplier;
  const double origin = double{kGridStart} + plan.codes.zero_point + 0.5 - a_zero - b_zero;
  const double a_part = kLargest * plan.a_multiplier;
  const double b_part = kLargest * std::fabs(plan.b_multiplier);
  const double inner = std::fabs(origin) + b_part + 1;
  double error = kLargest * std::fabs(plan.a_multiplier - plan.a_multiplier32) +
                 kLargest * std::fabs(plan.b_multiplier - plan.b_multiplier32) + kHalfUlp * inner +
                 0x1p-50 * (std::fabs(a_zero) + std::fabs(b_zero) + a_part + inner);
  if (!HWY_NATIVE_FMA) error += kHalfUlp * (a_part + b_part);
  for (int bits = 0; bits < kFraction - 3; ++bits) {
    const double half_window = kGridStep * static_cast<double>(1 << bits);
    const auto rounded = static_cast<float>(origin + half_window);
    // The last rounding is that to the grid.
    const double off = std::fabs(rounded - (origin + half_window)) + error + kGridRounding;
    if (off * 1.0001 < half_window) {
      return {true, rounded * kGridScale, kFractionMask & -(2 << bits)};
    }
  }
  return {};
}

void AddByDoubles(const AddPlan& plan, const uint8_t* a, const uint8_t* b, size_t count,
                  uint8_t* y) {
  ForEachVector(DD(), count,
                [&](size_t i, size_t n) HWY_ATTR { AddDoubles(plan, a + i, b + i, n, y + i); });
}

// Codes of type T.
template <typename T, bool kExact>
void AddStream(const AddPlan& plan, const Grid& grid, const uint8_t* a, const uint8_t* b,
               size_t count, uint8_t* y) {
  const StreamD df;
  const StreamInt di;
  const hn::Rebind<T, StreamD> dc;
  const auto load = [&](const uint8_t* codes, size_t n) HWY_ATTR {
    const auto some = LoadSome(dc, reinterpret_cast<const T*>(codes), n);
    return hn::ConvertTo(df, hn::PromoteTo(di, some));
  };
  const float scale = kExact ? 1.0f : kGridScale;
  const StreamV ma = hn::Set(df, plan.a_multiplier32 * scale);
  const StreamV mb = hn::Set(df, plan.b_multiplier32 * scale);
  const double zero = static_cast<double>(plan.a_zero - plan.flip) * plan.a_multiplier +
                      static_cast<double>(plan.b_zero - plan.flip) * plan.b_multiplier;
  const StreamV constant = hn::Set(df, kExact ? static_cast<float>(-zero) : grid.origin);
  const StreamV magic = hn::Set(df, kInteger32);
  StreamCodes<kExact, false>(
      plan.codes, grid.fraction_mask, AreBeyondCaches(3 * count), count, y,
      [&](size_t i, size_t n) HWY_ATTR {
        const StreamV t = hn::MulAdd(load(a + i, n), ma, hn::MulAdd(load(b + i, n), mb, constant));
        return kExact ? hn::Add(t, magic) : t;
      },
      [&](size_t i, size_t n) HWY_ATTR { AddByDoubles(plan, a + i, b + i, n, y + i); });
}

template <typename T>
void AddRow(const AddPlan& plan, const uint8_t* a, const uint8_t* b, size_t count, uint8_t* y) {
  if (!plan.streams) return AddByDoubles(plan, a, b, count, y);
  if (plan.exact_in_float) return AddStream<T, true>(plan, {}, a, b, count, y);
  const Grid grid = GridFor(plan);
  grid.possible ? AddStream<T, false>(plan, grid, a, b, count, y)
                : AddByDoubles(plan, a, b, count, y);
}

}  // namespace

void AddCodes(const AddPlan& plan, const uint8_t* a, const uint8_t* b, size_t count, uint8_t* y) {
  plan.flip != 0 ? AddRow<int8_t>(plan, a, b, count, y) : AddRow<uint8_t>(plan, a, b, count, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace internal {
namespace {

HWY_EXPORT(AddCodes);

// Whether the multipliers and all sums of a*ma, b*mb, za*ma and zb*mb are floats exactly, for all
// codes: the sums are multiples of one power of two, at most 2^24 times it.
bool IsExactInFloat(const AddPlan& plan) {
  const auto is_quotient = [&](float scale, float multiplier) {
    return static_cast<double>(multiplier) * static_cast<double>(plan.y_scale) ==
           static_cast<double>(scale);
  };
  if (!is_quotient(plan.a_scale, plan.a_multiplier32) ||
      !is_quotient(plan.b_scale, plan.b_multiplier32)) {
    return false;
  }
  const Dyadic ma = ToDyadic(plan.a_multiplier32);
  const Dyadic mb = ToDyadic(plan.b_multiplier32);
  const int a_unit = ma.exponent + std::countr_zero(static_cast<uint64_t>(ma.mantissa));
  const int b_unit = mb.exponent + std::countr_zero(static_cast<uint64_t>(mb.mantissa));
  const double unit = std::ldexp(1.0, std::min(a_unit, b_unit));
  const auto most = [](int64_t zero) { return static_cast<double>(256 + std::abs(zero)); };
  return most(plan.a_zero) * plan.a_multiplier32 +
             most(plan.b_zero) * std::fabs(plan.b_multiplier32) <=
         0x1p24 * unit;
}

// b_sign is 1 to add, -1 to subtract.
AddPlan MakePlan(const Quantization& a_q, const Quantization& b_q, float b_sign,
                 const Quantization& y_q, bool is_signed, Bounds bounds) {
  AddPlan plan;
  plan.flip = is_signed ? 0x80 : 0;
  plan.a_zero = int64_t{a_q.zero_point} + plan.flip;
  plan.b_zero = int64_t{b_q.zero_point} + plan.flip;
  plan.a_scale = a_q.scale;
  plan.b_scale = b_sign * b_q.scale;
  plan.y_scale = y_q.scale;
  plan.a_multiplier = static_cast<double>(a_q.scale) / y_q.scale;
  plan.b_multiplier = static_cast<double>(plan.b_scale) / y_q.scale;
  plan.y_zero = y_q.zero_point;
  plan.lo = int64_t{bounds.lo} - y_q.zero_point;
  plan.hi = int64_t{bounds.hi} - y_q.zero_point;

  const auto most = [](int64_t zero) {
    return static_cast<double>(std::max(std::abs(zero), std::abs(255 - zero)));
  };
  const double a_most = most(plan.a_zero);
  const double b_most = most(plan.b_zero);
  const auto inside = [&](int64_t limit) { return plan.lo >= -limit && plan.hi <= limit; };
  plan.exact_terms = a_most < 0x1p29 && b_most < 0x1p29 && inside(1 << 26);

  // Multipliers whose products with codes neither overflow nor underflow; exact differences.
  const auto moderate = [](double m) { return m >= 0x1p-50 && m <= 0x1p50; };
  plan.streams = a_most < 0x1p20 && b_most < 0x1p20 && IsStreamable(bounds, y_q.zero_point) &&
                 moderate(plan.a_multiplier) && moderate(std::fabs(plan.b_multiplier));
  if (!plan.streams) return plan;
  plan.codes = ToUnsignedCodes(bounds, y_q.zero_point);
  plan.a_multiplier32 = static_cast<float>(plan.a_multiplier);
  plan.b_multiplier32 = static_cast<float>(plan.b_multiplier);
  plan.exact_in_float = IsExactInFloat(plan);
  return plan;
}

// Not inlined: else the compiler may move arithmetic in front of ScopedFpEnvironment.
HWY_NOINLINE void RunAdd(const ConstMatrix& a, const Quantization& a_q, const ConstMatrix& b,
                         const Quantization& b_q, float b_sign, const Quantization& y_q,
                         const OutputRange& range, const MutableMatrix& y) {
  const AddPlan plan = MakePlan(a_q, b_q, b_sign, y_q, a.type == ElementType::kS8,
                                OutputBounds(y.type, range, y_q.zero_point));
  ForEachRowOfTwo(a, b, y, [&](const uint8_t* pa, const uint8_t* pb, size_t count, uint8_t* py) {
    QUALM_DISPATCH(AddCodes)(plan, pa, pb, count, py);
  });
}

Status AddOrSubtract(const ConstMatrix& a, const Quantization& a_q, const ConstMatrix& b,
                     const Quantization& b_q, float b_sign, const Quantization& y_q,
                     const OutputRange& range, const MutableMatrix& y) {
  const ScopedFpEnvironment environment;
  if (Status s = ValidateBinary(a, a_q, b, b_q, y_q, range, y); !s.ok()) return s;
  if (a.rows == 0 || a.columns == 0) return {};
  RunAdd(a, a_q, b, b_q, b_sign, y_q, range, y);
  return {};
}

}  // namespace
}  // namespace internal

Status Add(const ConstMatrix& a, const Quantization& a_q, const ConstMatrix& b,
           const Quantization& b_q, const Quantization& y_q, const OutputRange& range,
           const MutableMatrix& y) {
  return internal::AddOrSubtract(a, a_q, b, b_q, 1.0f, y_q, range, y);
}

Status Sub(const ConstMatrix& a, const Quantization& a_q, const ConstMatrix& b,
           const Quantization& b_q, const Quantization& y_q, const OutputRange& range,
           const MutableMatrix& y) {
  return internal::AddOrSubtract(a, a_q, b, b_q, -1.0f, y_q, range, y);
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
