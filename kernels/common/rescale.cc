// SPDX-License-Identifier: Apache-2.0
// Integer sums times a rational scale, rounded once: the loops of requantize, and the arithmetic of
// linear, mul, means, rescale and tables. How each path decides a rounding exactly:
//
// Write v = (S*a + b)/c for the real value, S the integer sum, a an exact double, c the denominator
// times the divisor (an exact double where a path says so, else rounded to one), and [lo, hi] for
// the bounds of RNE(v), the code before the zero point is added. Every path ends with these steps:
//   - It computes a double t next to 1.5*2^52. The spacing there is 1, so the addition rounds v to
//     an integer.
//   - It clamps t to [1.5*2^52 + lo, 1.5*2^52 + hi] and adds the zero point. The low byte of t is
//     the code.
// The bounds fit 33 bits, so the clamp and the zero point are exact. Rounding and clamping are
// monotone: where |v| exceeds 2^51 the spacing is no longer 1, and t still ends at the right bound.
//
// kFloat64: no bias, a/c is a double m exactly. t = fma(S, m, 1.5*2^52) rounds the exact product
//   once, half to even. Without a fused operation the product itself must be exact: S has 31
//   significant bits, so m may have 22.
// kFloat32: the same with floats and 1.5*2^23, where lo >= -256, hi <= 256, m is a float and
//   m >= 256.5*2^-24. S becomes a float first, which rounds where |S| > 2^24; there |S*m| >= 256.5,
//   which the clamp makes irrelevant, before and after that rounding. Needs a fused operation.
// kInterval: u = S*RN(a/c), w = RN(b/c), t = u + w has an error below 2^-53*(4|u| + 2|w| + |t|)
//   <= 2^-50*(|u| + |w|), the roundings of c and of a sum wider than 53 bits included. With e =
//   2^-49*(|u| + |w|), v lies in [t-e, t+e], the roundings of e, t-e and t+e themselves included.
//   If both ends round to the same code, v does too. Else the code is found between the two by
//   exact comparisons: in vectors where there is a fused operation, no bias, and exact_ties.
//   Then n and n + 1 are the candidates, h = n + 1/2, h*c has at most 53 bits and is exact,
//   S*a = p + r exactly with p = RN(S*a) and r = fma(S, a, -p), p - h*c is exact because the two
//   are close (Sterbenz), and the sign of RN((p - h*c) + r) is the sign of (v - h)*c. Elsewhere by
//   ExactSum, one element at a time. Nothing underflows: u is 0 or at least 2^-479, and all
//   magnitudes are below 2^535.
// Streams, of one multiplier m without a bias: code_stream-inl.h. "Exact" where m is as kFloat32
//   wants it, and the multiply-add is fused or m is a power of two, so that the product is exact.
//   Else "nearly": RN(m) and the conversion of S to float32 are each off by 2^-24 of the value.
//   Next to a code that is |v| <= 255.5, together less than 2^-15, half a step of the grid with
//   fusion (two parts of HalfWindow where the grid is finer; one if m >= 256.5*2^-24, because what
//   S rounds is beyond the codes then); without fusion the product is off by as much as m, which is
//   less than half a step of the coarser grid. Near ties a block takes doubles: t = S*RN(a/c)
//   + 1.5*2^16 is rounded to a grid of 2^-36, and adding 1.5*2^52 - 1.5*2^16 rounds to an integer,
//   half to even. The error of S*RN(a/c) is below 2^-51*256, so a tie is hit exactly. Other values
//   may come as close, on either side: such blocks take one of the paths above, unless
//   Plan::tie_distance shows that no v is as close to a tie without being one.
// Grid: the same for multipliers per channel, no bias, |lo| and |hi| <= 512, where tie_distance
//   shows that of all of them. The error of the product is below 2^-53*4*512 (three roundings, c is
//   exact), that of the grid at most 2^-37: together less than 2^-36.
// Floats: the same interval for S*a + b, both ends converted to float32; the conversion from double
//   is monotone and rounds once, denormals included. a is a product of two float32 too.
#include "kernels/common/rescale.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/common/exact_sum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/rescale.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/code_stream-inl.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/vectors-inl.h"

#ifndef QUALM_KERNELS_RESCALE_CONSTANTS_
#define QUALM_KERNELS_RESCALE_CONSTANTS_
namespace qualm::kernels::internal {
namespace {
constexpr double kError = 0x1p-49;
constexpr double kTieGrid = 0x1.8p16;  // spacing 2^-36
constexpr int kTieGridBits = 36;
}  // namespace
}  // namespace qualm::kernels::internal
#endif

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Plan = Rescale::Plan;
using DD = hn::ScalableTag<double>;
using DDSum = hn::Rebind<int32_t, DD>;
using DDCode = hn::Rebind<uint8_t, DD>;
using DDFloat = hn::Rebind<float, DD>;
using DF = hn::ScalableTag<float>;
using DFSum = hn::RebindToSigned<DF>;
using DFCode = hn::Rebind<uint8_t, DF>;
using VD = hn::Vec<DD>;
using VF = hn::Vec<DF>;

// Rounded sums near 1.5*2^52 to bytes.
HWY_INLINE hn::Vec<DDCode> ToCodes(VD clamped, VD zero_point) {
  const hn::RebindToUnsigned<DD> du;
  return hn::TruncateTo(DDCode(), hn::BitCast(du, hn::Add(clamped, zero_point)));
}

#if HWY_NATIVE_FMA
void CodesFloat32(const Plan& plan, const int32_t* sums, size_t first, size_t count, uint8_t* y) {
  const DF df;
  const hn::RebindToUnsigned<DF> du;
  const VF magic = hn::Set(df, kInteger32);
  const VF lo = hn::Set(df, kInteger32 + static_cast<float>(plan.lo));
  const VF hi = hn::Set(df, kInteger32 + static_cast<float>(plan.hi));
  const VF zero_point = hn::Set(df, static_cast<float>(plan.zero_point));
  ForEachVector(df, count, [&](size_t i, size_t n) HWY_ATTR {
    const VF sum = hn::ConvertTo(df, LoadSome(DFSum(), sums + i, n));
    const VF m = Parameter(df, plan.multiplier32, plan.per_channel, first + i, n);
    const VF t = hn::MulAdd(sum, m, magic);
    const VF clamped = hn::Min(hn::Max(t, lo), hi);
    StoreSome(hn::TruncateTo(DFCode(), hn::BitCast(du, hn::Add(clamped, zero_point))), DFCode(),
              y + i, n);
  });
}
#endif

// Exact if the product is fused with the addition, or exact by itself.
void CodesFloat64(const Plan& plan, const int32_t* sums, size_t first, size_t count, uint8_t* y) {
  const DD dd;
  const VD magic = hn::Set(dd, kInteger64);
  const VD lo = hn::Set(dd, kInteger64 + plan.lo);
  const VD hi = hn::Set(dd, kInteger64 + plan.hi);
  const VD zero_point = hn::Set(dd, plan.zero_point);
  ForEachVector(dd, count, [&](size_t i, size_t n) HWY_ATTR {
    const VD sum = hn::PromoteTo(dd, LoadSome(DDSum(), sums + i, n));
    const VD m = Parameter(dd, plan.multiplier, plan.per_channel, first + i, n);
    const VD t = hn::MulAdd(sum, m, magic);
    StoreSome(ToCodes(hn::Min(hn::Max(t, lo), hi), zero_point), DDCode(), y + i, n);
  });
}

// Exact if the only values within 2^-36 of a tie are ties.
void CodesOnGrid(const Plan& plan, const int32_t* sums, size_t first, size_t count, uint8_t* y) {
  const DD dd;
  const VD origin = hn::Set(dd, kTieGrid);
  const VD to_integer = hn::Set(dd, kInteger64 - kTieGrid);
  const VD lo = hn::Set(dd, kInteger64 + plan.lo);
  const VD hi = hn::Set(dd, kInteger64 + plan.hi);
  const VD zero_point = hn::Set(dd, plan.zero_point);
  ForEachVector(dd, count, [&](size_t i, size_t n) HWY_ATTR {
    const VD sum = hn::PromoteTo(dd, LoadSome(DDSum(), sums + i, n));
    const VD m = Parameter(dd, plan.multiplier, plan.per_channel, first + i, n);
    const VD t = hn::Add(hn::MulAdd(sum, m, origin), to_integer);
    StoreSome(ToCodes(hn::Min(hn::Max(t, lo), hi), zero_point), DDCode(), y + i, n);
  });
}

void CodesInterval(const Rescale& rescale, const int32_t* sums, size_t first, size_t count,
                   uint8_t* y) {
  const Plan& plan = rescale.plan();
  const bool has_bias = !plan.offset.empty();
  const DD dd;
  const VD magic = hn::Set(dd, kInteger64);
  const VD lo = hn::Set(dd, kInteger64 + plan.lo);
  const VD hi = hn::Set(dd, kInteger64 + plan.hi);
  const VD zero_point = hn::Set(dd, plan.zero_point);
  ForEachVector(dd, count, [&](size_t i, size_t n) HWY_ATTR {
    const VD sum = hn::PromoteTo(dd, LoadSome(DDSum(), sums + i, n));
    const VD u = hn::Mul(sum, Parameter(dd, plan.multiplier, plan.per_channel, first + i, n));
    VD t = u;
    VD magnitude = hn::Abs(u);
    if (has_bias) {
      const VD w = Parameter(dd, plan.offset, plan.per_channel, first + i, n);
      t = hn::Add(u, w);
      magnitude = hn::Add(magnitude, hn::Abs(w));
    }
    const VD error = hn::Mul(magnitude, hn::Set(dd, kError));
    const VD below = hn::Min(hn::Max(hn::Add(hn::Sub(t, error), magic), lo), hi);
    const VD above = hn::Min(hn::Max(hn::Add(hn::Add(t, error), magic), lo), hi);
    if (HWY_LIKELY(hn::AllTrue(dd, hn::Eq(below, above)))) {
      StoreSome(ToCodes(below, zero_point), DDCode(), y + i, n);
      return;
    }
#if HWY_NATIVE_FMA
    if (!has_bias && plan.exact_ties) {
      const hn::RebindToUnsigned<DD> du;
      const VD a = Parameter(dd, plan.numerator, plan.per_channel, first + i, n);
      const VD c = Parameter(dd, plan.denominator, plan.per_channel, first + i, n);
      const VD p = hn::Mul(sum, a);
      const VD tie = hn::Mul(hn::Add(hn::Sub(below, magic), hn::Set(dd, 0.5)), c);
      const VD side = hn::Add(hn::Sub(p, tie), hn::MulSub(sum, a, p));
      const auto odd = hn::Ne(hn::And(hn::BitCast(du, below), hn::Set(du, 1)), hn::Zero(du));
      const auto past = hn::Or(hn::Gt(side, hn::Zero(dd)),
                               hn::And(hn::RebindMask(dd, odd), hn::Eq(side, hn::Zero(dd))));
      // Where both ends agree, p - tie may be inexact and `past` wrong: above == below all the
      // same.
      StoreSome(ToCodes(hn::IfThenElse(past, above, below), zero_point), DDCode(), y + i, n);
      return;
    }
#endif
    for (size_t k = 0; k < n; ++k) {
      y[i + k] = static_cast<uint8_t>(
          rescale.CodeFromSum(sums[i + k], plan.per_channel ? first + i + k : 0));
    }
  });
}

HWY_INLINE void CodesOfVectors(const Rescale& rescale, const int32_t* sums, size_t first,
                               size_t count, uint8_t* y) {
  const Plan& plan = rescale.plan();
#if HWY_NATIVE_FMA
  if (plan.path == RescalePath::kFloat32) return CodesFloat32(plan, sums, first, count, y);
  if (plan.path == RescalePath::kFloat64) return CodesFloat64(plan, sums, first, count, y);
#else
  if (plan.short_multiplier) return CodesFloat64(plan, sums, first, count, y);
#endif
  if (plan.on_grid) return CodesOnGrid(plan, sums, first, count, y);
  return CodesInterval(rescale, sums, first, count, y);
}

// Codes of a stream where elements lie next to ties.
void CodesNearTies(const Rescale& rescale, const int32_t* sums, size_t count, uint8_t* y) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const Plan& plan = rescale.plan();
  const DD dd;
  const DDSum di_half;
  const DFSum di;
  const hn::RebindToUnsigned<DD> du;
  const size_t half = hn::Lanes(dd);
  const size_t block = 8 * half;
  const UnsignedCodes to = plan.codes;
  const VD m = hn::Set(dd, plan.multiplier[0]);
  const VD origin = hn::Set(dd, kTieGrid);
  const VD to_integer = hn::Set(dd, kInteger64 - kTieGrid);
  const auto fraction = hn::Set(du, (uint64_t{1} << 36) - 1);
  const auto tie = hn::Set(du, uint64_t{1} << 35);
  const bool ties_are_exact = plan.tie_distance <= kTieGridBits;
  // With m < 0.99 the rounded values are below 2^31 in magnitude and fit the low halves.
  for (; i + block <= count && plan.multiplier[0] < 0.99; i += block) {
    auto undecided = hn::MaskFalse(du);
    const auto rounded = [&](size_t k) HWY_ATTR {
      const VD sum = hn::PromoteTo(dd, hn::LoadU(di_half, sums + i + k * half));
      const VD t = hn::MulAdd(sum, m, origin);
      const auto bits = hn::And(hn::BitCast(du, t), fraction);
      undecided = hn::Or(undecided, hn::Eq(bits, tie));
      return hn::BitCast(di, hn::Add(t, to_integer));
    };
    const auto codes = [&](size_t k) HWY_ATTR {
      const auto lower = rounded(k);
      return hn::ConcatEven(di, rounded(k + 1), lower);
    };
    const auto a = codes(0);
    const auto b = codes(2);
    const auto c = codes(4);
    const auto d = codes(6);
    if (HWY_LIKELY(ties_are_exact || hn::AllFalse(du, undecided))) {
      hn::StoreU(Finish<Form::kExact>(to, a, b, c, d), hn::ScalableTag<uint8_t>(), y + i);
    } else {
      CodesOfVectors(rescale, sums + i, 0, block, y + i);
    }
  }
#endif
  CodesOfVectors(rescale, sums + i, 0, count - i, y + i);
}

template <bool kExact>
void CodesOfStream(OneRescale& one, const int32_t* sums, size_t count, uint8_t* y) {
  const StreamMultiplier& stream = one.stream();
  const DF df;
  const VF m = hn::Set(df, stream.multiplier * (kExact ? 1.0f : kGridScale));
  const int parts = stream.parts();
  const VF origin = hn::Set(df, kExact ? kInteger32 : GridOrigin(stream.codes, parts));
  StreamCodes<kExact, false>(
      stream.codes, FractionsToTest(parts), AreBeyondCaches(5 * count), count, y,
      [&](size_t i, size_t n) HWY_ATTR {
        return hn::MulAdd(hn::ConvertTo(df, LoadSome(DFSum(), sums + i, n)), m, origin);
      },
      [&](size_t i, size_t n) HWY_ATTR { CodesNearTies(one.rescale(), sums + i, n, y + i); });
}

void StreamedCodes(OneRescale& one, const int32_t* sums, size_t count, uint8_t* y) {
  const StreamMultiplier& stream = one.stream();
  const bool exact = stream.is_float && (HWY_NATIVE_FMA || stream.power_of_two);
  exact ? CodesOfStream<true>(one, sums, count, y) : CodesOfStream<false>(one, sums, count, y);
}

void Codes(const Rescale& rescale, const int32_t* sums, size_t first, size_t count, uint8_t* y) {
  if (!rescale.plan().streams) return CodesOfVectors(rescale, sums, first, count, y);
  OneRescale one(rescale);
  StreamedCodes(one, sums, count, y);
}

// Double to float32, rounded once, overflowing to infinity. Highway's emulation saturates to the
// largest finite value instead.
HWY_INLINE hn::Vec<DDFloat> ToFloats(VD v) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  constexpr size_t kLanes = HWY_LANES(double);
  double from[kLanes];
  float to[kLanes];
  hn::StoreU(v, DD(), from);
  for (size_t i = 0; i < kLanes; ++i) to[i] = static_cast<float>(from[i]);
  return hn::LoadU(DDFloat(), to);
#else
  return hn::DemoteTo(DDFloat(), v);
#endif
}

void Floats(const Rescale& rescale, const int32_t* sums, size_t first, size_t count, float factor,
            bool relu, float* y) {
  const Plan& plan = rescale.plan();
  const bool has_bias = !plan.bias.empty();
  const DD dd;
  const DDFloat df;
  const DDSum di;
  ForEachVector(dd, count, [&](size_t i, size_t n) HWY_ATTR {
    const VD sum = hn::PromoteTo(dd, LoadSome(di, sums + i, n));
    const VD numerator = Parameter(dd, plan.numerator, plan.per_channel, first + i, n);
    const VD u = hn::Mul(sum, hn::Mul(numerator, hn::Set(dd, static_cast<double>(factor))));
    VD t = u;
    VD magnitude = hn::Abs(u);
    if (has_bias) {
      const VD b = Parameter(dd, plan.bias, plan.per_channel, first + i, n);
      t = hn::Add(u, b);
      magnitude = hn::Add(magnitude, hn::Abs(b));
    }
    const VD error = hn::Mul(magnitude, hn::Set(dd, kError));
    const auto below = ToFloats(hn::Sub(t, error));
    const auto above = ToFloats(hn::Add(t, error));
    // Compared as integers: +0 and -0 differ, and so do the signs of results that underflow.
    const auto same = hn::Eq(hn::BitCast(di, below), hn::BitCast(di, above));
    if (HWY_LIKELY(hn::AllTrue(di, same))) {
      StoreSome(relu ? hn::ZeroIfNegative(below) : below, df, y + i, n);
      return;
    }
    for (size_t k = 0; k < n; ++k) {
      const size_t channel = plan.per_channel ? first + i + k : 0;
      y[i + k] = rescale.FloatFromSum(sums[i + k], channel, factor, relu);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels::internal {

HWY_EXPORT(Codes);
HWY_EXPORT(StreamedCodes);
HWY_EXPORT(CodesNearTies);
HWY_EXPORT(Floats);

namespace {

// The bits of a normal double > 0 from its first one bit on.
uint64_t MantissaOf(double value) {
  return (std::bit_cast<uint64_t>(value) & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
}
// The exponent of the last one bit of a normal double > 0, and the number of bits from the first.
int Trailing(double value) {
  const auto exponent = static_cast<int>(std::bit_cast<uint64_t>(value) >> 52);
  return exponent - 1075 + std::countr_zero(MantissaOf(value));
}
int SignificantBits(double value) { return 53 - std::countr_zero(MantissaOf(value)); }

// A multiplier in double.
struct Quotient {
  explicit Quotient(const Multiplier& scale)
      : numerator(static_cast<double>(scale.numerator_a) * static_cast<double>(scale.numerator_b)) {
    const double divisor = static_cast<double>(scale.divisor);
    denominator = static_cast<double>(scale.denominator) * divisor;
    value = numerator / denominator;
    exact_denominator = scale.divisor == 1 || std::fma(static_cast<double>(scale.denominator),
                                                       divisor, -denominator) == 0;
    denominator_bits = SignificantBits(denominator);
    bits = SignificantBits(value);
    // The numerator has at most 48 bits, and odd factors of a and b bits have a product of a + b
    // bits or one less: an exact quotient and the denominator have at most 49 bits together. Where
    // they have no more, their product differs from the numerator by less than 2^-52 of itself,
    // which numbers of 49 bits only do if they are equal: such a quotient is exact.
    exact = exact_denominator && bits + denominator_bits <= 49;
    // With numerator = A*2^i and denominator = C*2^j, A and C odd, and e = i - j: v - (n + 1/2) is
    // a multiple of 2^e/C or, where 2^e is more, of 1/(2C). C is less than 2^denominator_bits.
    if (!exact_denominator) return;
    tie_distance = denominator_bits - std::min(Trailing(numerator) - Trailing(denominator), -1);
  }

  // Whether RescalePath::kFloat32 is right for it.
  bool IsFloat(double lo, double hi) const {
    return exact && bits <= 24 && value >= 256.5 * 0x1p-24 && value <= 0x1.fffffep127 &&
           lo >= -256 && hi <= 256;
  }

  double numerator, denominator, value;
  bool exact_denominator, exact;
  int denominator_bits, bits;
  int tie_distance = Rescale::kNoDistance;  // see Rescale::Plan
};

bool IsStreamable(double multiplier, Bounds bounds, int32_t zero_point) {
  return internal::IsStreamable(bounds, zero_point) && multiplier >= 0x1p-50 &&
         multiplier <= 0x1p50;
}

// The interval that holds u + w, by the error bound at the top of the file.
struct Enclosure {
  double lo, hi;
};
Enclosure Enclose(double u, double w) {
  const double t = u + w;
  const double error = (std::fabs(u) + std::fabs(w)) * kError;
  return {t - error, t + error};
}

}  // namespace

Rescale::Rescale(std::span<const Multiplier> scales, std::span<const float> bias,
                 int32_t zero_point, Bounds bounds)
    : scales_(scales), bias_(bias) {
  plan_.lo = static_cast<double>(int64_t{bounds.lo} - zero_point);
  plan_.hi = static_cast<double>(int64_t{bounds.hi} - zero_point);
  plan_.zero_point = zero_point;
  plan_.per_channel = scales_.size() != 1;

  bool exact = bias_.empty();
  bool is_float = true;
  plan_.exact_ties = true;
  plan_.tie_distance = bias_.empty() ? 1 : kNoDistance;
  // Bits of the largest |2n + 1| for which the tie n + 1/2 lies between the bounds.
  const int tie_bits =
      std::bit_width(static_cast<uint64_t>(2 * std::max(std::fabs(plan_.lo), plan_.hi) + 1));
  int bits = 0;
  for (auto* list : {&plan_.numerator, &plan_.denominator, &plan_.multiplier})
    list->reserve(scales_.size());
  for (size_t i = 0; i < scales_.size(); ++i) {
    const Quotient quotient(scales_[i]);
    plan_.numerator.push_back(quotient.numerator);
    plan_.denominator.push_back(quotient.denominator);
    plan_.multiplier.push_back(quotient.value);
    if (!bias_.empty()) {
      plan_.bias.push_back(bias_[i]);
      plan_.offset.push_back(bias_[i] / quotient.denominator);
    }
    plan_.exact_ties = plan_.exact_ties && quotient.exact_denominator &&
                       tie_bits + quotient.denominator_bits <= 53;
    plan_.tie_distance = std::max(plan_.tie_distance, quotient.tie_distance);
    exact = exact && quotient.exact;
    bits = std::max(bits, quotient.bits);
    is_float = is_float && quotient.IsFloat(plan_.lo, plan_.hi);
  }
  plan_.on_grid = plan_.tie_distance <= kTieGridBits && plan_.lo >= -512 && plan_.hi <= 512;
  plan_.short_multiplier = exact && bits <= 22;
  if (!exact) {
    plan_.path = RescalePath::kInterval;
  } else if (is_float) {
    plan_.path = RescalePath::kFloat32;
    plan_.power_of_two = bits == 1;
  } else {
    plan_.path = RescalePath::kFloat64;
  }
  plan_.codes = ToUnsignedCodes(bounds, zero_point);
  plan_.streams =
      !plan_.per_channel && bias_.empty() && IsStreamable(plan_.multiplier[0], bounds, zero_point);
  if (!plan_.streams && plan_.path != RescalePath::kFloat32) return;
  for (const double m : plan_.multiplier) plan_.multiplier32.push_back(static_cast<float>(m));
}

StreamMultiplier::StreamMultiplier(const Multiplier& scale, int32_t zero_point, Bounds bounds) {
  const Quotient quotient(scale);
  streams = IsStreamable(quotient.value, bounds, zero_point);
  if (!streams) return;
  is_float = quotient.IsFloat(static_cast<double>(int64_t{bounds.lo} - zero_point),
                              static_cast<double>(int64_t{bounds.hi} - zero_point));
  power_of_two = is_float && quotient.bits == 1;
  multiplier = static_cast<float>(quotient.value);
  codes = ToUnsignedCodes(bounds, zero_point);
}

OneRescale::OneRescale(const Rescale& made) : made_(&made) {
  const Rescale::Plan& plan = made.plan();
  stream_.streams = plan.streams;
  stream_.is_float = plan.path == RescalePath::kFloat32;
  stream_.power_of_two = plan.power_of_two;
  stream_.multiplier = plan.multiplier32[0];
  stream_.codes = plan.codes;
}

const Rescale& OneRescale::rescale() {
  if (made_ == nullptr) {
    made_ = &own_.emplace(std::span(&scale_, 1), std::span<const float>(), zero_point_, bounds_);
  }
  return *made_;
}

void OneRescale::CodesFromSums(const int32_t* sums, size_t count, uint8_t* y) {
  if (!stream_.streams) return rescale().CodesFromSums(sums, 0, count, y);
  QUALM_DISPATCH(StreamedCodes)(*this, sums, count, y);
}

void Rescale::CodesFromSums(const int32_t* sums, size_t first, size_t count, uint8_t* y) const {
  QUALM_DISPATCH(Codes)(*this, sums, first, count, y);
}

void Rescale::CodesNearTies(const int32_t* sums, size_t count, uint8_t* y) const {
  QUALM_DISPATCH(internal::CodesNearTies)(*this, sums, count, y);
}

void Rescale::FloatsFromSums(const int32_t* sums, size_t first, size_t count, float factor,
                             bool relu, float* y) const {
  QUALM_DISPATCH(Floats)(*this, sums, first, count, factor, relu, y);
}

int32_t Rescale::CodeFromSum(__int128 sum, size_t channel) const {
  const double offset = plan_.offset.empty() ? 0.0 : plan_.offset[channel];
  const Enclosure e = Enclose(static_cast<double>(sum) * plan_.multiplier[channel], offset);
  const auto round = [&](double v) {
    const double rounded = (v + kInteger64) - kInteger64;
    return static_cast<int64_t>(std::min(std::max(rounded, plan_.lo), plan_.hi));
  };
  const int64_t code = RoundBetween(round(e.lo), round(e.hi), [&](int64_t n) {
    const Multiplier& scale = scales_[channel];
    ExactSum difference;  // v*c - (n + 1/2)*c
    difference.AddProduct(sum, scale.numerator_a, scale.numerator_b);
    if (!bias_.empty()) difference.AddHalves(2, bias_[channel]);
    difference.AddHalves(-(2 * static_cast<__int128>(n) + 1) * scale.divisor, scale.denominator);
    return difference.Sign();
  });
  return static_cast<int32_t>(code + static_cast<int64_t>(plan_.zero_point));
}

float Rescale::FloatFromSum(__int128 sum, size_t channel, float factor, bool relu) const {
  const double bias = plan_.bias.empty() ? 0.0 : plan_.bias[channel];
  const double numerator = plan_.numerator[channel] * static_cast<double>(factor);
  const Enclosure e = Enclose(static_cast<double>(sum) * numerator, bias);
  float result = static_cast<float>(e.lo);
  if (std::bit_cast<uint32_t>(result) != std::bit_cast<uint32_t>(static_cast<float>(e.hi))) {
    ExactSum exact;
    exact.AddProduct(sum, factor, scales_[channel].numerator_b);
    if (!bias_.empty()) exact.AddHalves(2, bias_[channel]);
    result = exact.ToFloat();
  }
  return relu && std::signbit(result) ? 0.0f : result;
}

}  // namespace qualm::kernels::internal
#endif  // HWY_ONCE
