// SPDX-License-Identifier: Apache-2.0
// The counterfactuals of operations without a sum over K: rescale, add, mul and pools.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "oracles/exact/exact.h"
#include "triage/swapped_epilogue.h"

namespace qualm::triage {
namespace {

// One output before rounding: as a real number (to double) and in float32 arithmetic.
struct Value {
  double exact = 0;
  float rounded = 0;
};

// A multiplier of 1 or more as a fraction below 1, its power of two forgotten.
double WithoutLeftShift(double multiplier) {
  int shift = 0;
  const double fraction = std::frexp(multiplier, &shift);
  return shift > 0 ? fraction : multiplier;
}

float FloatQuotient(float a, float b, std::span<const Swap> swaps) {
  return Has(swaps, Swap::kFloatReciprocal) ? a * (1.0f / b) : a / b;
}

Value Operands(const Case& c, int64_t i, std::span<const Swap> swaps) {
  const float sa = c.x_q.scale_at(0), sb = c.w_q.scale_at(0), sy = c.out_q.scale_at(0);
  const int64_t a = int64_t{c.x.IntAt(i)} - c.x_q.zero_point_at(0);
  const int64_t b = c.op == Op::kRescale ? 0 : int64_t{c.w.IntAt(i)} - c.w_q.zero_point_at(0);
  const bool drop = Has(swaps, Swap::kLeftShiftDropped);
  const auto multiplier = [&](double m) { return drop ? WithoutLeftShift(m) : m; };
  const auto fa = static_cast<float>(a), fb = static_cast<float>(b);
  if (c.op == Op::kRescale) {
    return {static_cast<double>(a) * multiplier(static_cast<double>(sa) / sy),
            fa * FloatQuotient(sa, sy, swaps)};
  }
  if (c.op == Op::kAdd) {
    // Without that swap in one quotient, whose ties are ties.
    const double sum = static_cast<double>(sa) * static_cast<double>(a) +
                       static_cast<double>(sb) * static_cast<double>(b);
    const double shifted = static_cast<double>(a) * multiplier(static_cast<double>(sa) / sy) +
                           static_cast<double>(b) * multiplier(static_cast<double>(sb) / sy);
    return {drop ? shifted : sum / sy, FloatQuotient(sa * fa + sb * fb, sy, swaps)};
  }
  // Zero points may be any int32: the product of the differences has up to 66 bits.
  __int128 product = static_cast<__int128>(a) * b;
  if (Has(swaps, Swap::kProductWraps16)) {
    product = static_cast<int16_t>(static_cast<uint16_t>(product));
  }
  if (Has(swaps, Swap::kWrap32)) product = static_cast<int32_t>(static_cast<uint32_t>(product));
  return {static_cast<double>(product) * multiplier(static_cast<double>(sa) * sb / sy),
          static_cast<float>(product) * FloatQuotient(sa * sb, sy, swaps)};
}

// Codes under one window, and what a divisor may count.
struct Codes {
  int64_t sum = 0;
  int64_t largest = INT32_MIN;
  int64_t inside = 0;
  int64_t with_padding = 0;  // without the overhang of ceil_mode
  int64_t not_before = 0;    // all but those clipped at the top or the left
};
Codes CodesUnder(const Case& c, int64_t m, int64_t n) {
  const Window& v = c.window;
  const int64_t top = m / v.out_w() % v.out_h() * v.stride_h - v.pad_top;
  const int64_t left = m % v.out_w() * v.stride_w - v.pad_left;
  Codes codes;
  for (const Tap& tap : TapsOf(v, m)) {
    const int64_t y = top + tap.r * v.dilation_h, x = left + tap.s * v.dilation_w;
    codes.with_padding += y < v.in_h + v.pad_bottom && x < v.in_w + v.pad_right ? 1 : 0;
    codes.not_before += y >= 0 && x >= 0 ? 1 : 0;
    if (tap.x_row < 0) continue;
    const int32_t code = c.x.IntAt(tap.x_row + n);
    codes.sum += code;
    codes.largest = std::max<int64_t>(codes.largest, code);
    ++codes.inside;
  }
  return codes;
}

Value Average(const Case& c, int64_t m, int64_t n, std::span<const Swap> swaps) {
  const Codes codes = CodesUnder(c, m, n);
  int64_t sum = codes.sum, terms = codes.inside;
  int64_t count = c.window.count_include_pad ? codes.with_padding : codes.inside;
  if (Has(swaps, Swap::kSumWraps16)) {
    sum = c.x.dtype() == DType::kS8 ? int64_t{static_cast<int16_t>(static_cast<uint16_t>(sum))}
                                    : int64_t{static_cast<uint16_t>(sum)};
  }
  if (Has(swaps, Swap::kPaddingIsCodeZero)) terms = codes.with_padding;
  if (Has(swaps, Swap::kDivisorCountsPadding)) count = codes.with_padding;
  if (Has(swaps, Swap::kDivisorIgnoresPadding)) count = std::max<int64_t>(codes.inside, 1);
  if (Has(swaps, Swap::kDivisorIsKernel)) count = c.K;
  if (Has(swaps, Swap::kDivisorUnclipped)) count = std::max<int64_t>(codes.not_before, 1);
  const __int128 difference = sum - static_cast<__int128>(terms) * c.x_q.zero_point_at(0);
  const float sx = c.x_q.scale_at(0), sy = c.out_q.scale_at(0);
  const float multiplier = FloatQuotient(sx, sy, swaps) / static_cast<float>(count);
  const double value =
      Has(swaps, Swap::kFloat64)
          ? static_cast<double>(difference) *
                (static_cast<double>(sx) / sy / static_cast<double>(count))
          : static_cast<double>(difference) * sx / (static_cast<double>(count) * sy);
  return {value, static_cast<float>(difference) * multiplier};
}

int64_t Largest(const Case& c, int64_t m, int64_t n, std::span<const Swap> swaps) {
  const Codes codes = CodesUnder(c, m, n);
  int64_t largest = codes.largest;
  if (Has(swaps, Swap::kMaximumFromMinus127)) largest = std::max<int64_t>(largest, -127);
  if (codes.inside == c.K) return largest;
  if (Has(swaps, Swap::kPaddingIsCodeZero)) largest = std::max<int64_t>(largest, 0);
  if (Has(swaps, Swap::kPaddingIsZeroPoint)) {
    largest = std::max<int64_t>(largest, c.x_q.zero_point_at(0));
  }
  return largest;
}

bool Averages(Op op) { return op == Op::kAvgPool || op == Op::kGlobalAvgPool; }

}  // namespace

bool ChangesElements(Swap swap) {
  constexpr std::array kThose{Swap::kProductWraps16,       Swap::kSumWraps16,
                              Swap::kLeftShiftDropped,     Swap::kPaddingIsZeroPoint,
                              Swap::kDivisorCountsPadding, Swap::kDivisorIgnoresPadding,
                              Swap::kDivisorIsKernel,      Swap::kDivisorUnclipped,
                              Swap::kMaximumFromMinus127,  Swap::kPaddingIsCodeZero};
  return Has(kThose, swap);
}

bool MeansSomethingForElements(const Case& c, Swap swap) {
  switch (swap) {
    case Swap::kProductWraps16: return c.op == Op::kMul;
    case Swap::kSumWraps16: return Averages(c.op);
    case Swap::kLeftShiftDropped: return c.op == Op::kRescale || HasTwoOperands(c.op);
    case Swap::kPaddingIsCodeZero: return IsPool(c.op) && c.op != Op::kGlobalAvgPool;
    case Swap::kPaddingIsZeroPoint: return c.op == Op::kMaxPool;
    case Swap::kMaximumFromMinus127: return c.op == Op::kMaxPool && c.x.dtype() == DType::kS8;
    case Swap::kDivisorCountsPadding: return c.op == Op::kAvgPool && !c.window.count_include_pad;
    case Swap::kDivisorIgnoresPadding: return c.op == Op::kAvgPool && c.window.count_include_pad;
    case Swap::kDivisorIsKernel:
    case Swap::kDivisorUnclipped: return c.op == Op::kAvgPool;
    case Swap::kWrap32: return c.op == Op::kMul;
    default: return true;
  }
}

std::optional<Tensor> ElementCounterfactual(const Case& c, std::span<const Swap> swaps) {
  const bool differs = std::ranges::any_of(swaps, [](Swap swap) {
    return ChangesElements(swap) || ChangesEpilogue(swap) || swap == Swap::kWrap32;
  });
  if (!differs) return exact::Evaluate(c);
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t m = i / c.N, n = i % c.N;
    if (c.op == Op::kMaxPool) {
      const int64_t code = Largest(c, m, n, swaps);
      y.SetInt(i, Narrow(c, n, static_cast<double>(code), swaps));
      continue;
    }
    const Value value = IsPool(c.op) ? Average(c, m, n, swaps) : Operands(c, i, swaps);
    const int32_t zero_point = c.out_q.zero_point_at(0);
    const double code = Rounded(value.exact, value.rounded, zero_point, swaps);
    y.SetInt(i, Narrow(c, n, std::isnan(code) ? zero_point : code, swaps));
  }
  return y;
}

}  // namespace qualm::triage
