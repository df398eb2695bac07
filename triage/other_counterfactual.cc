// SPDX-License-Identifier: Apache-2.0
// The counterfactuals of concat, table, softmax and choose_qparams.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "oracles/exact/exact.h"
#include "triage/swapped_epilogue.h"

namespace qualm::triage {
namespace {

// Each operand alone is a rescale.
std::optional<Tensor> Concat(const Case& c, std::span<const Swap> swaps) {
  Tensor y(c.out_dtype, c.output_shape());
  int64_t first = 0;
  for (const bool second : {false, true}) {
    Case part = ProblemOf(c);
    part.op = Op::kRescale;
    part.x = second ? c.w : c.x;
    part.x_q = second ? c.w_q : c.x_q;
    part.w = Tensor();
    part.w_q = QParams{};
    part.N = part.x.shape()[1];
    const std::optional<Tensor> codes = ElementCounterfactual(part, swaps);
    if (!codes) return std::nullopt;
    for (int64_t i = 0; i < codes->size(); ++i)
      y.SetInt(i / part.N * c.N + first + i % part.N, codes->IntAt(i));
    first += part.N;
  }
  return y;
}

double FunctionOf(const Case& c, double v) {
  switch (c.function) {
    case Function::kRelu: return std::max(v, 0.0);
    case Function::kLeakyRelu: return v < 0 ? v * c.negative_slope : v;
    case Function::kHardSwish: return v <= -3 ? 0 : v >= 3 ? v : v * (v + 3) / 6;
    case Function::kSigmoid: return 1 / (1 + std::exp(-v));
    case Function::kTanh: break;
  }
  return std::tanh(v);
}

Tensor Table(const Case& c, std::span<const Swap> swaps) {
  Tensor y(c.out_dtype, c.output_shape());
  const int32_t zero_point = c.out_q.zero_point_at(0);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t difference = int64_t{c.x.IntAt(i)} - c.x_q.zero_point_at(0);
    const double v = static_cast<double>(difference) * static_cast<double>(c.x_q.scale_at(0));
    const double value = FunctionOf(c, v) / c.out_q.scale_at(0);
    y.SetInt(
        i, Narrow(c, i % c.N, Rounded(value, static_cast<float>(value), zero_point, swaps), swaps));
  }
  return y;
}

// As docs/quantization.md has it: numerators of up to 23 bits whose sum fits 32, quotient half up.
Tensor Softmax(const Case& c, std::span<const Swap> swaps) {
  Tensor y(c.out_dtype, c.output_shape());
  const double largest_numerator =
      std::min(0x1p23 - 1, (0x1p32 - 1) / static_cast<double>(std::max<int64_t>(c.N, 1)));
  std::vector<int64_t> numerators(static_cast<size_t>(c.N));
  for (int64_t m = 0; m < c.M; ++m) {
    int32_t largest = RangeOf(c.x.dtype()).min;
    for (int64_t n = 0; n < c.N; ++n) largest = std::max(largest, c.x.IntAt(m * c.N + n));
    if (Has(swaps, Swap::kMaximumNotSubtracted)) largest = RangeOf(c.x.dtype()).max;
    int64_t sum = 0;
    for (int64_t n = 0; n < c.N; ++n) {
      int32_t distance = largest - c.x.IntAt(m * c.N + n);
      if (Has(swaps, Swap::kDistanceAsInt8)) distance = std::min(distance, 127);
      const double t = std::exp(-static_cast<double>(c.x_q.scale_at(0)) * distance);
      numerators[static_cast<size_t>(n)] = std::llrint(largest_numerator * t);
      sum += numerators[static_cast<size_t>(n)];
    }
    const int64_t half = Has(swaps, Swap::kTruncate) ? 0 : sum / 2;
    for (int64_t n = 0; n < c.N; ++n) {
      // Only a swap makes the sum 0.
      const int64_t share = sum == 0 ? 0 : (256 * numerators[static_cast<size_t>(n)] + half) / sum;
      const auto code = static_cast<double>(std::min<int64_t>(share, 255)) +
                        static_cast<double>(c.out_q.zero_point_at(0));
      y.SetInt(m * c.N + n, Narrow(c, n, code, swaps));
    }
  }
  return y;
}

struct Range {
  double low = 0, high = 0;
};

// What min_max or moving_average has seen of output column `column`.
Range Observed(const Case& c, int64_t column, bool in_double) {
  const auto values = c.x.as<float>();
  const int64_t rows = c.per_channel ? 1 : c.M;
  const auto step = [&](double value) {
    return in_double ? value : static_cast<double>(static_cast<float>(value));
  };
  Range seen;
  for (int64_t b = 0; b < c.x.shape()[0]; ++b) {
    const auto batch = values.subspan(static_cast<size_t>((b * c.M + column) * c.N),
                                      static_cast<size_t>(rows * c.N));
    const auto [low, high] = std::ranges::minmax(batch);
    if (b == 0) {
      seen = {low, high};
    } else if (c.observer.kind == Observer::Kind::kMinMax) {
      seen = {std::min<double>(seen.low, low), std::max<double>(seen.high, high)};
    } else {
      const double share = c.observer.averaging_constant;
      seen.low = step(seen.low + step(share * step(low - seen.low)));
      seen.high = step(seen.high + step(share * step(high - seen.high)));
    }
  }
  return seen;
}

Tensor ChooseQParams(const Case& c, std::span<const Swap> swaps) {
  Tensor y(c.out_dtype, c.output_shape());
  const Observer& o = c.observer;
  const int64_t columns = y.shape()[1];
  const int32_t a = o.quant_min >> (o.reduce_range ? 1 : 0);
  const int32_t b = o.quant_max >> (o.reduce_range ? 1 : 0);
  for (int64_t column = 0; column < columns; ++column) {
    Range range = Observed(c, column, Has(swaps, Swap::kAverageInDouble));
    if (!Has(swaps, Swap::kRangeWithoutZero))
      range = {std::min(range.low, 0.0), std::max(range.high, 0.0)};
    const auto codes = static_cast<float>(b - a);
    float scale = o.symmetric ? static_cast<float>(std::max(-range.low, range.high)) / (codes / 2)
                              : static_cast<float>(range.high - range.low) / codes;
    if (!Has(swaps, Swap::kScaleFloorIgnored)) scale = std::max(scale, 0x1p-23f);
    double zero_point = 0;
    if (o.symmetric) {
      const bool whole = CodeRange{o.quant_min, o.quant_max} == RangeOf(o.dtype);
      if (o.dtype == DType::kU8) zero_point = whole ? 128 : std::floor((a + b) / 2.0);
    } else {
      const float low = static_cast<float>(range.low / static_cast<double>(scale));
      zero_point = std::isnan(low) ? a : a - RoundHalfEven(static_cast<double>(low));
      zero_point = std::clamp<double>(zero_point, a, b);
    }
    y.as<float>()[static_cast<size_t>(column)] = scale;
    y.as<float>()[static_cast<size_t>(columns + column)] = static_cast<float>(zero_point + 0.0);
  }
  return y;
}

bool ChangesObserver(Swap swap) {
  return swap == Swap::kAverageInDouble || swap == Swap::kRangeWithoutZero ||
         swap == Swap::kScaleFloorIgnored;
}

}  // namespace

bool HasOtherCounterfactual(Op op) {
  return op == Op::kConcat || op == Op::kTable || op == Op::kSoftmax || op == Op::kChooseQParams;
}

bool OnlyForOthers(Swap swap) {
  constexpr std::array kThose{Swap::kFirstOperandForAll, Swap::kTableIndexOffset,
                              Swap::kMaximumNotSubtracted, Swap::kDistanceAsInt8,
                              Swap::kReduceRangeIgnored};
  return Has(kThose, swap) || ChangesObserver(swap);
}

bool MeansSomethingForOthers(const Case& c, Swap swap) {
  constexpr std::array kRounding{Swap::kZeroPointBeforeRounding,
                                 Swap::kHalfAway,
                                 Swap::kHalfUp,
                                 Swap::kTruncate,
                                 Swap::kWraps,
                                 Swap::kClampIgnored};
  constexpr std::array kConcat{Swap::kFirstOperandForAll,
                               Swap::kOperandsSwapped,
                               Swap::kOperandsOtherSign,
                               Swap::kInputZeroPointIgnored,
                               Swap::kWeightZeroPointIgnored,
                               Swap::kInputZeroPointAsInt8,
                               Swap::kWeightZeroPointAsInt8,
                               Swap::kZeroPointsAsInt8,
                               Swap::kFloatMultiplier,
                               Swap::kFloat64,
                               Swap::kFloatReciprocal,
                               Swap::kFloatZeroPointFirst,
                               Swap::kLeftShiftDropped,
                               Swap::kReluAtZero,
                               Swap::kReluIgnored,
                               Swap::kHugeBecomesMinimum};
  constexpr std::array kTable{Swap::kTableIndexOffset, Swap::kInputOtherSign,
                              Swap::kInputZeroPointIgnored, Swap::kInputZeroPointAsInt8};
  constexpr std::array kSoftmax{Swap::kMaximumNotSubtracted, Swap::kDistanceAsInt8, Swap::kTruncate,
                                Swap::kClampIgnored};
  switch (c.op) {
    case Op::kConcat: return Has(kConcat, swap) || Has(kRounding, swap);
    case Op::kTable: return Has(kTable, swap) || Has(kRounding, swap);
    case Op::kSoftmax: return Has(kSoftmax, swap);
    default: break;
  }
  if (swap == Swap::kAverageInDouble) return c.observer.kind == Observer::Kind::kMovingAverage;
  if (ChangesObserver(swap)) return c.observer.kind != Observer::Kind::kHistogram;
  return swap == Swap::kReduceRangeIgnored;
}

std::optional<Tensor> OtherCounterfactual(const Case& c, std::span<const Swap> swaps) {
  const auto any = [&](auto... those) { return (Has(swaps, those) || ...); };
  const bool epilogue = std::ranges::any_of(swaps, ChangesEpilogue);
  switch (c.op) {
    case Op::kConcat: return Concat(c, swaps);
    case Op::kTable: return epilogue ? Table(c, swaps) : exact::Evaluate(c);
    case Op::kSoftmax:
      if (!any(Swap::kMaximumNotSubtracted, Swap::kDistanceAsInt8, Swap::kTruncate)) break;
      return Softmax(c, swaps);
    default:
      if (!std::ranges::any_of(swaps, ChangesObserver)) break;
      return ChooseQParams(c, swaps);
  }
  return exact::Evaluate(c);
}

}  // namespace qualm::triage
