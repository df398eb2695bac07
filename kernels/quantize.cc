// SPDX-License-Identifier: Apache-2.0
// y = clamp(RNE(x / s) + z). One scale, and a zero point that is a code: float32 streams (third
// paragraph). Several scales, and very small or large ones: double (second). Zero points far away
// from the codes: exact integers (last).
//
// x/s is a tie n + 1/2 only if 2x = (2n+1)s. If it is none, |x/s - (n+1/2)| = |2x - (2n+1)s| / (2s)
// is at least 2^-26: next to the tie, 2x and (2n+1)s are about s or larger, so both are multiples
// of ulp(s)/2. Their difference is then a multiple of ulp(s)/2 as well, it is not 0, and
// ulp(s) >= 2^-24 s. So any approximation of x/s with an error below 2^-26 lies on the right side
// of the tie; only the ties themselves need care. In double,
//   t = RN(1/s) * x + 1.5*2^22            spacing 2^-30 for |x/s| < 2^21
// The product is within 2^-52 |x/s| of x/s (one more 2^-53 |x/s| where product and addition are not
// fused), and the addition rounds it to the grid of 2^-30. For |x/s| <= 2^16 the error of the
// product stays below 2^-35: a tie, itself on the grid, is hit exactly, and everything else stays
// at least 2^-26 - 2^-30 away from it. Adding 1.5*2^52 - 1.5*2^22 then rounds to an integer, ties
// to even: the code. Beyond 2^16 all steps are still monotone, infinities included, so the clamp to
// at most +-2^15 gives the right bound. Nothing underflows: |x| * RN(1/s) >= 2^-149 * 2^-128.
//
// One scale s, 2^-60 <= s <= 2^40, whose zero point is one of its codes, takes float32 instead: the
// streams of code_stream-inl.h. Powers of two are "exact": x * RN(1/s) is x/s. Others are "nearly":
// RN(1/s) is off by 2^-24 of the value, |x/s| <= 255.5 next to a code, and so is the product where
// it is not fused: together less than half a step of the grid of floats, and on the finer grid of
// AVX-512 one part of HalfWindow. Blocks with an element next to a tie go to the grid of floats. If
// the tie is h = n - 1/2, where n is the code of the grid without the zero point, the code is n or
// n - 1. The fused x - h*s has the sign of x/s - h, because h*s is not rounded: below 0, or 0 and n
// odd, it is n - 1. The same holds for all elements of the block: x - h*s > 0 where x is not next
// to a tie. Blocks with a NaN, and all where nothing is fused, go the way of double.
//
// Where a zero point puts the bounds beyond 2^15: double(x)/double(s), rounded up and down by its
// error, and an exact comparison where the two ends disagree, element by element.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/common/exact_sum.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/validate.h"
#include "kernels/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/code_stream-inl.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/vectors-inl.h"

#ifndef QUALM_KERNELS_QUANTIZE_PLAN_
#define QUALM_KERNELS_QUANTIZE_PLAN_
namespace qualm::kernels::internal {
namespace {

constexpr double kGrid = 0x1.8p22;  // spacing 2^-30

// What doubles need: one value, or lists of one per column.
struct DoublePlan {
  const double* inverse = nullptr;  // RN(1/s)
  const double* lo = nullptr;       // kInteger64 + bounds of RNE(x/s)
  const double* hi = nullptr;
  const double* zero_point = nullptr;
  bool per_column = false;
};

// What streams need. The doubles of an element next to a tie are made there: a call of few elements
// takes little longer than its plan.
struct StreamPlan {
  float scale = 1;
  int32_t zero_point = 0;
  Bounds bounds = {};
  bool power_of_two = false;
  UnsignedCodes codes = {};
};

// One scale and one zero point as a DoublePlan.
struct OneInDouble {
  OneInDouble(float scale, int32_t z, Bounds bounds)
      : inverse(1.0 / static_cast<double>(scale)),
        lo(kInteger64 + static_cast<double>(int64_t{bounds.lo} - z)),
        hi(kInteger64 + static_cast<double>(int64_t{bounds.hi} - z)),
        zero_point(z) {}
  DoublePlan plan() const { return {&inverse, &lo, &hi, &zero_point}; }

  double inverse, lo, hi, zero_point;
};

}  // namespace
}  // namespace qualm::kernels::internal
#endif

HWY_BEFORE_NAMESPACE();
namespace qualm::kernels::internal {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DD = hn::ScalableTag<double>;
using DX = hn::Rebind<float, DD>;
using DY = hn::Rebind<uint8_t, DD>;
using VD = hn::Vec<DD>;

template <bool kPerColumn>
HWY_INLINE VD Parameter(const double* values, size_t i, size_t n) {
  const DD dd;
  if constexpr (kPerColumn) {
    return LoadSome(dd, values + i, n);
  } else {
    return hn::Set(dd, values[0]);
  }
}

template <bool kPerColumn>
void Row(const DoublePlan& plan, const float* x, size_t count, uint8_t* y) {
  const DD dd;
  const DX dx;
  const DY dy;
  const hn::RebindToUnsigned<DD> du;
  const VD grid = hn::Set(dd, kGrid);
  const VD to_integer = hn::Set(dd, kInteger64 - kGrid);
  const auto quantize = [&](hn::Vec<DX> v, size_t i, size_t n) HWY_ATTR {
    const auto number = hn::IfThenElseZero(hn::Eq(v, v), v);  // NaN: the zero point
    const VD inverse = Parameter<kPerColumn>(plan.inverse, i, n);
    const VD on_grid = hn::MulAdd(hn::PromoteTo(dd, number), inverse, grid);
    const VD rounded = hn::Add(on_grid, to_integer);
    const VD clamped = hn::Min(hn::Max(rounded, Parameter<kPerColumn>(plan.lo, i, n)),
                               Parameter<kPerColumn>(plan.hi, i, n));
    const VD code = hn::Add(clamped, Parameter<kPerColumn>(plan.zero_point, i, n));
    return hn::TruncateTo(dy, hn::BitCast(du, code));
  };
  const size_t lanes = hn::Lanes(dd);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(quantize(hn::LoadU(dx, x + i), i, lanes), dy, y + i);
  }
  if (i < count) {
    const size_t n = count - i;
    hn::StoreN(quantize(hn::LoadN(dx, x + i, n), i, n), dy, y + i, n);
  }
}

void RowInDouble(const StreamPlan& plan, const float* x, size_t count, uint8_t* y) {
  const OneInDouble one(plan.scale, plan.zero_point, plan.bounds);
  Row<false>(one.plan(), x, count, y);
}

#if HWY_NATIVE_FMA && HWY_TARGET != HWY_SCALAR

// The codes of a stream that may be next to ties. Blocks with a NaN take double.
void CodesNextToTies(const StreamPlan& plan, const float* x, size_t count, uint8_t* y) {
  const StreamD df;
  const StreamInt di;
  const size_t lanes = hn::Lanes(df);
  const UnsignedCodes to = plan.codes;
  const StreamV inverse = hn::Set(df, 1.0f / plan.scale * kFloatScale);
  const StreamV scale = hn::Set(df, plan.scale / kFloatScale);
  const StreamV origin = hn::Set(df, FloatGridOrigin(to));
  const auto fraction = hn::Set(di, (1 << kFloatFraction) - 1);
  const auto one = hn::Set(di, 1 << kFloatFraction);
  const auto odd_zero = hn::Set(di, to.zero_point << kFloatFraction);
  const auto code = [&](StreamV v) HWY_ATTR {
    const auto t = hn::BitCast(di, hn::MulAdd(v, inverse, origin));
    const auto above = hn::AndNot(fraction, t);
    const StreamV h = hn::Sub(hn::BitCast(df, above), origin);
    const auto side = hn::BitCast(di, hn::NegMulAdd(h, scale, v));
    // Below 0, or 0 and n odd: what is above 0 is at least 2^23 as an integer.
    const auto limit = hn::And(hn::Xor(t, odd_zero), one);
    const auto lower = hn::MaskedSubOr(above, hn::Lt(side, limit), above, one);
    return hn::ShiftRight<kFloatFraction>(lower);
  };
  const hn::Repartition<uint8_t, StreamD> d8;
  const auto all_numbers = [&](StreamV a, StreamV b, StreamV c, StreamV d) HWY_ATTR {
    return hn::AllFalse(df, hn::Or(hn::IsEitherNaN(a, b), hn::IsEitherNaN(c, d)));
  };
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const StreamV a = hn::LoadU(df, x + i);
    const StreamV b = hn::LoadU(df, x + i + lanes);
    const StreamV c = hn::LoadU(df, x + i + 2 * lanes);
    const StreamV d = hn::LoadU(df, x + i + 3 * lanes);
    if (HWY_LIKELY(all_numbers(a, b, c, d))) {
      hn::StoreU(Finish<Form::kFloatGrid>(to, code(a), code(b), code(c), code(d)), d8, y + i);
    } else {
      RowInDouble(plan, x + i, 4 * lanes, y + i);
    }
  }
  if (i == count) return;
  const auto rest = [&](size_t k) HWY_ATTR {
    const size_t begin = HWY_MIN(i + k * lanes, count);
    return LoadSome(df, x + begin, HWY_MIN(count - begin, lanes));
  };
  const StreamV a = rest(0);
  const StreamV b = rest(1);
  const StreamV c = rest(2);
  const StreamV d = rest(3);
  if (HWY_LIKELY(all_numbers(a, b, c, d))) {
    const auto codes = Finish<Form::kFloatGrid>(to, code(a), code(b), code(c), code(d));
    hn::StoreN(codes, d8, y + i, count - i);
  } else {
    RowInDouble(plan, x + i, count - i, y + i);
  }
}

#endif

template <bool kExact>
void Stream(const StreamPlan& plan, const float* x, size_t count, uint8_t* y) {
  const StreamD df;
  const StreamV inverse = hn::Set(df, 1.0f / plan.scale * (kExact ? 1.0f : kGridScale));
  const StreamV origin = hn::Set(df, kExact ? kInteger32 : GridOrigin(plan.codes, 1));
  StreamCodes<kExact, true>(
      plan.codes, FractionsToTest(1), AreBeyondCaches(5 * count), count, y,
      [&](size_t i, size_t n)
          HWY_ATTR { return hn::MulAdd(LoadSome(df, x + i, n), inverse, origin); },
      [&](size_t i, size_t n) HWY_ATTR {
#if HWY_NATIVE_FMA && HWY_TARGET != HWY_SCALAR
        CodesNextToTies(plan, x + i, n, y + i);
#else
        RowInDouble(plan, x + i, n, y + i);
#endif
      });
}

}  // namespace

void QuantizeRow(const DoublePlan& plan, const float* x, size_t count, uint8_t* y) {
  plan.per_column ? Row<true>(plan, x, count, y) : Row<false>(plan, x, count, y);
}

void QuantizeStream(const StreamPlan& plan, const float* x, size_t count, uint8_t* y) {
  plan.power_of_two ? Stream<true>(plan, x, count, y) : Stream<false>(plan, x, count, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace qualm::kernels::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qualm::kernels {
namespace internal {
namespace {

HWY_EXPORT(QuantizeRow);
HWY_EXPORT(QuantizeStream);

constexpr int64_t kWidestFastBound = 1 << 15;

// Any zero point.
int32_t QuantizeExactly(float x, float scale, int32_t zero_point, Bounds bounds) {
  const double lowest = static_cast<double>(int64_t{bounds.lo} - zero_point);
  const double highest = static_cast<double>(int64_t{bounds.hi} - zero_point);
  const auto round = [&](double v) {
    return static_cast<int64_t>(std::min(std::max(std::nearbyint(v), lowest), highest));
  };
  if (std::isnan(x)) x = 0;
  const double quotient = static_cast<double>(x) / static_cast<double>(scale);
  const double error = std::isinf(x) ? 0.0 : std::fabs(quotient) * 0x1p-50;
  int64_t lo = round(quotient - error);
  const int64_t hi = round(quotient + error);
  // The bounds fit 33 bits, so lo and hi differ by 1 at most.
  if (lo != hi) {
    ExactSum difference;  // x - (lo + 1/2) s
    difference.AddHalves(2, x);
    difference.AddHalves(-(2 * lo + 1), scale);
    const int sign = difference.Sign();
    if (sign > 0 || (sign == 0 && lo % 2 != 0)) lo = hi;
  }
  return static_cast<int32_t>(lo + zero_point);
}

// Calls row(x, columns, y) for each row, or once for everything where there are no gaps and
// `may_join`.
template <class RowOf>
void ForEachRow(const ConstMatrix& x, const MutableMatrix& y, bool may_join, const RowOf& row) {
  int64_t rows = x.rows;
  int64_t columns = x.columns;
  if (may_join && x.row_stride == columns && y.row_stride == columns) {
    columns *= rows;
    rows = 1;
  }
  for (int64_t i = 0; i < rows; ++i) {
    row(static_cast<const float*>(x.data) + i * x.row_stride, static_cast<size_t>(columns),
        static_cast<uint8_t*>(y.data) + i * y.row_stride);
  }
}

// One scale and one zero point, or one per column.
HWY_NOINLINE void RunInDouble(const ConstMatrix& x, std::span<const float> scale,
                              std::span<const int32_t> zero_point, const OutputRange& range,
                              const MutableMatrix& y) {
  const bool per_column = scale.size() != 1 || zero_point.size() != 1;
  const size_t parameters = per_column ? static_cast<size_t>(x.columns) : 1;
  std::array<double, 4> one{};  // so that one scale for all needs no memory
  std::vector<double> many(per_column ? 4 * parameters : 0);
  double* const lists = per_column ? many.data() : one.data();
  const DoublePlan plan{lists, lists + parameters, lists + 2 * parameters, lists + 3 * parameters,
                        per_column};
  const auto scale_of = [&](size_t j) { return scale[scale.size() == 1 ? 0 : j]; };
  const auto zero_point_of = [&](size_t j) { return zero_point[zero_point.size() == 1 ? 0 : j]; };
  bool fast = true;
  for (size_t j = 0; j < parameters; ++j) {
    const int32_t z = zero_point_of(j);
    const Bounds bounds = OutputBounds(y.type, range, z);
    fast = fast && int64_t{bounds.lo} - z >= -kWidestFastBound &&
           int64_t{bounds.hi} - z <= kWidestFastBound;
    const OneInDouble values(scale_of(j), z, bounds);
    lists[j] = values.inverse;
    lists[j + parameters] = values.lo;
    lists[j + 2 * parameters] = values.hi;
    lists[j + 3 * parameters] = values.zero_point;
  }
  ForEachRow(x, y, !per_column, [&](const float* in, size_t columns, uint8_t* out) {
    if (fast) return QUALM_DISPATCH(QuantizeRow)(plan, in, columns, out);
    for (size_t j = 0; j < columns; ++j) {
      const size_t k = per_column ? j : 0;
      const int32_t z = zero_point_of(k);
      out[j] = static_cast<uint8_t>(
          QuantizeExactly(in[j], scale_of(k), z, OutputBounds(y.type, range, z)));
    }
  });
}

// Not inlined: else the compiler may move arithmetic in front of ScopedFpEnvironment.
HWY_NOINLINE void Run(const ConstMatrix& x, std::span<const float> scale,
                      std::span<const int32_t> zero_point, const OutputRange& range,
                      const MutableMatrix& y) {
  const Bounds bounds = OutputBounds(y.type, range, zero_point[0]);
  const bool streams = scale.size() == 1 && zero_point.size() == 1 && scale[0] >= 0x1p-60f &&
                       scale[0] <= 0x1p40f && IsStreamable(bounds, zero_point[0]);
  if (!streams) return RunInDouble(x, scale, zero_point, range, y);
  const StreamPlan plan = {
      .scale = scale[0],
      .zero_point = zero_point[0],
      .bounds = bounds,
      .power_of_two = (std::bit_cast<uint32_t>(scale[0]) & 0x7FFFFF) == 0,
      .codes = ToUnsignedCodes(bounds, zero_point[0]),
  };
  ForEachRow(x, y, true, [&](const float* in, size_t columns, uint8_t* out) {
    QUALM_DISPATCH(QuantizeStream)(plan, in, columns, out);
  });
}

}  // namespace
}  // namespace internal

Status Quantize(const ConstMatrix& x, std::span<const float> scale,
                std::span<const int32_t> zero_point, const OutputRange& range,
                const MutableMatrix& y) {
  const ScopedFpEnvironment environment;
  if (Status s = internal::ValidateQuantize(x, scale, zero_point, range, y); !s.ok()) return s;
  if (x.rows == 0 || x.columns == 0) return {};
  internal::Run(x, scale, zero_point, range, y);
  return {};
}

}  // namespace qualm::kernels
#endif  // HWY_ONCE
