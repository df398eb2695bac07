// SPDX-License-Identifier: Apache-2.0
#include "properties/triage/counterfactual.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "oracles/exact/exact.h"
#include "oracles/headroom/headroom.h"

namespace qualm::triage {
namespace {

bool Has(std::span<const Swap> swaps, Swap swap) {
  return std::find(swaps.begin(), swaps.end(), swap) != swaps.end();
}

Tensor OtherSign(const Tensor& tensor) {
  Tensor other(tensor.dtype() == DType::kU8 ? DType::kS8 : DType::kU8, tensor.shape());
  std::copy(tensor.bytes().begin(), tensor.bytes().end(), other.bytes().begin());
  return other;
}

Tensor FirstColumns(const Tensor& tensor, int64_t rows, int64_t columns, int64_t keep) {
  Tensor result(tensor.dtype(), {rows, keep});
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < keep; ++k)
      result.SetInt(row * keep + k, tensor.IntAt(row * columns + k));
  }
  return result;
}

template <class T>
void Reindex(std::vector<T>& list, int64_t modulo) {
  const std::vector<T> old = list;
  for (size_t i = 0; i < list.size(); ++i) list[i] = old[i % static_cast<size_t>(modulo)];
}

// K without its remainder, or nullopt where such a swap means nothing.
std::optional<int64_t> WithoutTail(const Case& c, bool only_one) {
  if (c.op != Op::kLinear || c.K % 4 == 0 || (only_one && c.K % 4 != 1)) return std::nullopt;
  return c.K - c.K % 4;
}

void CutTerms(Case& c, int64_t keep) {
  c.x = FirstColumns(c.x, c.M, c.K, keep);
  c.w = FirstColumns(c.w, c.N, c.K, keep);
  c.K = keep;
}

// Whether that changes anything.
template <class T>
bool Replace(T& where, T value) {
  const bool changes = where != value;
  where = std::move(value);
  return changes;
}

bool ZeroPointsToZero(QParams& q) {
  return Replace(q.zero_point, std::vector<int32_t>(q.zero_point.size(), 0));
}

bool WrapZeroPoints(QParams& q) {
  std::vector<int32_t> wrapped = q.zero_point;
  for (int32_t& z : wrapped) z = static_cast<int8_t>(z);
  return Replace(q.zero_point, std::move(wrapped));
}

bool FloatScaleProduct(Case& c) {
  if (c.w_q.scale.empty() || !c.multiplier.empty() || c.out_dtype == DType::kS32) return false;
  const float x_scale = c.x_q.scale_at(0);
  for (float& scale : c.w_q.scale) {
    scale *= x_scale;
    if (!std::isfinite(scale) || scale <= 0) return false;
  }
  c.x_q.scale = {1.0f};
  return true;
}

// The part of a swap that is nothing but another case. False if it means nothing or changes nothing
// here.
bool EditCase(Case& c, Swap swap) {
  switch (swap) {
    case Swap::kInputOtherSign:
      if (!IsCode(c.x.dtype())) return false;
      c.x = OtherSign(c.x);
      return true;
    case Swap::kWeightOtherSign:
      if (c.w.empty()) return false;
      c.w = OtherSign(c.w);
      return true;
    case Swap::kLastTermDropped:
    case Swap::kTailDropped: {
      const auto keep = WithoutTail(c, swap == Swap::kLastTermDropped);
      if (keep) CutTerms(c, *keep);
      return keep.has_value();
    }
    case Swap::kInputZeroPointIgnored: return ZeroPointsToZero(c.x_q);
    case Swap::kWeightZeroPointIgnored: return ZeroPointsToZero(c.w_q);
    case Swap::kInputZeroPointAsInt8: return WrapZeroPoints(c.x_q);
    case Swap::kWeightZeroPointAsInt8: return WrapZeroPoints(c.w_q);
    case Swap::kZeroPointsAsInt8: {
      const bool input = WrapZeroPoints(c.x_q), weight = WrapZeroPoints(c.w_q);
      return input && weight;
    }
    case Swap::kNegatedZeroPointAsInt8: {
      int32_t& z = c.x_q.zero_point[0];
      return Replace(z, -int32_t{static_cast<int8_t>(-int64_t{z})});
    }
    case Swap::kBiasIgnored:
      if (!c.bias && !c.bias_i32) return false;
      c.bias.reset();
      c.bias_i32.reset();
      return true;
    case Swap::kFirstChannelForAll:
    case Swap::kChannelModulo8:
    case Swap::kChannelModulo16: {
      const Case before = c;
      const int64_t modulo = swap == Swap::kFirstChannelForAll ? 1
                             : swap == Swap::kChannelModulo8   ? 8
                                                               : 16;
      for (QParams* q : {&c.x_q, &c.w_q, &c.out_q}) Reindex(q->scale, modulo);
      Reindex(c.multiplier, modulo);
      return c != before;
    }
    case Swap::kScaleProductInFloat: return FloatScaleProduct(c);
    case Swap::kReluAtZero:
      if (!c.relu) return false;
      c.relu = false;
      c.out_min = std::max(c.out_min, 0);
      return c.out_min <= c.out_max;
    case Swap::kReluIgnored: return Replace(c.relu, false);
    case Swap::kClampIgnored: {
      const CodeRange range = RangeOf(c.out_dtype);
      const bool clamped = c.out_min != range.min || c.out_max != range.max;
      c.out_min = range.min;
      c.out_max = range.max;
      return clamped;
    }
    default: return true;
  }
}

int32_t PairSum(int32_t sum, bool wraps) {
  return wraps ? static_cast<int16_t>(static_cast<uint16_t>(sum))
               : std::clamp(sum, INT16_MIN, INT16_MAX);
}

// Raw sums as an accumulator leaves them that adds products in int16 pairs.
std::optional<std::vector<int64_t>> PairedSums(const Case& c, std::span<const Swap> swaps) {
  const bool acc16 = Has(swaps, Swap::kAcc16), wraps = Has(swaps, Swap::kPairWraps);
  if (!headroom::HasPairs(c)) return std::nullopt;
  // vpmaddubsw wants one operand unsigned; what wraps multiplies s8 by s8.
  const int32_t shift = c.x.dtype() == DType::kS8 && !wraps ? 128 : 0;
  std::vector<int64_t> sums;
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      int64_t sum = 0, weights = 0;
      int32_t lane = 0;
      for (int64_t k = 0; k < c.K; k += 2) {
        int32_t pair = 0;
        for (int64_t i = k; i < std::min(k + 2, c.K); ++i) {
          const int32_t w = c.w.IntAt(n * c.K + i);
          weights += w;
          pair += (c.x.IntAt(m * c.K + i) + shift) * w;
        }
        pair = PairSum(pair, wraps);
        if (!acc16) {
          sum += pair;
          continue;
        }
        lane = std::clamp(lane + pair, INT16_MIN, INT16_MAX);
        if (k % 256 == 254) sum += std::exchange(lane, 0);
      }
      sums.push_back(sum + lane - int64_t{shift} * weights);
    }
  }
  return sums;
}

// Sums of products in the arithmetic of `swaps`; what zero points multiply is not touched.
std::optional<std::vector<int64_t>> RawSums(const Case& c, std::span<const Swap> swaps) {
  const bool cut = Has(swaps, Swap::kLastProductDropped) || Has(swaps, Swap::kProductTailDropped);
  const bool sign = Has(swaps, Swap::kInputOtherSignInProducts);
  const bool paired =
      Has(swaps, Swap::kPairSaturation) || Has(swaps, Swap::kAcc16) || Has(swaps, Swap::kPairWraps);
  if (!cut && !sign) return paired ? PairedSums(c, swaps) : exact::RawSums(c);
  Case products = c;
  if (sign) products.x = OtherSign(c.x);
  if (cut) {
    const auto keep = WithoutTail(c, Has(swaps, Swap::kLastProductDropped));
    if (!keep) return std::nullopt;
    CutTerms(products, *keep);
  }
  return paired ? PairedSums(products, swaps) : exact::RawSums(products);
}

// A float bias in units of x_scale*w_scale that an int32 cannot hold, as such a conversion leaves
// it; nullopt where it fits.
std::optional<int32_t> OverflownBias(const Case& c, int64_t n, std::span<const Swap> swaps) {
  const double unit = static_cast<double>(c.x_q.scale_at(0)) * c.w_q.scale_at(n);
  const double units = std::nearbyint((*c.bias)[static_cast<size_t>(n)] / unit);
  if (std::abs(units) < 0x1p31) return std::nullopt;
  if (Has(swaps, Swap::kBiasBecomesMinimum) || !(std::abs(units) < 0x1p63)) return INT32_MIN;
  return static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(units)));
}

// Corrected sums in the arithmetic of `swaps`. A bias that overflows moves from `c` into the sums.
std::optional<std::vector<__int128>> Sums(Case& c, std::span<const Swap> swaps) {
  const std::optional<std::vector<int64_t>> raw = RawSums(c, swaps);
  if (!raw) return std::nullopt;
  const int64_t cross_terms = Has(swaps, Swap::kPaddedCrossTerm) ? (c.K + 3) / 4 * 4 : c.K;
  if (Has(swaps, Swap::kPaddedCrossTerm) && cross_terms == c.K) return std::nullopt;
  std::vector<int64_t> rows, columns;
  for (int64_t m = 0; m < c.M; ++m) {
    rows.push_back(0);
    for (int64_t k = 0; k < c.K; ++k) rows.back() += c.x.IntAt(m * c.K + k);
  }
  for (int64_t n = 0; n < c.N; ++n) {
    columns.push_back(0);
    for (int64_t k = 0; k < c.K; ++k) columns.back() += c.w.IntAt(n * c.K + k);
  }
  if (Has(swaps, Swap::kRowSumOfRow0)) rows.assign(rows.size(), rows.empty() ? 0 : rows[0]);

  std::vector<__int128> sums;
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const __int128 column = columns[static_cast<size_t>(n)];
      __int128 zx = c.x_q.zero_point_at(0), zw = c.w_q.zero_point_at(n);
      if (Has(swaps, Swap::kWeightZeroPointFromInput)) zx += std::exchange(zw, 0);
      const __int128 input_term =
          Has(swaps, Swap::kZeroPointTermInFloat)
              ? static_cast<__int128>(static_cast<float>(zx) * static_cast<float>(column))
              : zx * column;
      __int128 sum = (*raw)[static_cast<size_t>(m * c.N + n)] - input_term -
                     zw * rows[static_cast<size_t>(m)] + cross_terms * zx * zw;
      if (c.bias_i32) sum += (*c.bias_i32)[static_cast<size_t>(n)];
      if (Has(swaps, Swap::kWrap32)) sum = static_cast<int32_t>(static_cast<uint32_t>(sum));
      sums.push_back(sum);
    }
  }
  if (!Has(swaps, Swap::kBiasWraps) && !Has(swaps, Swap::kBiasBecomesMinimum)) return sums;
  bool overflows = false;
  for (int64_t n = 0; c.bias && n < c.N; ++n) {
    const std::optional<int32_t> bias = OverflownBias(c, n, swaps);
    if (!bias) continue;
    overflows = true;
    (*c.bias)[static_cast<size_t>(n)] = 0;
    for (int64_t m = 0; m < c.M; ++m) sums[static_cast<size_t>(m * c.N + n)] += *bias;
  }
  if (!overflows) return std::nullopt;
  return sums;
}

double RoundHalfEven(double value) { return std::nearbyint(value); }

// Code of one output before the clamp: rounded as the swaps say and moved by the zero point.
// Doubles are enough: the result only counts if it equals the subject's bits.
double Rounded(double exact_value, float float_value, int32_t zero_point,
               std::span<const Swap> swaps) {
  const auto converted = [&](double value) {
    const bool overflows = Has(swaps, Swap::kHugeBecomesMinimum) && !(std::abs(value) < 0x1p31);
    return overflows ? -0x1p31 : value;
  };
  if (Has(swaps, Swap::kFloatZeroPointFirst)) {
    const float moved = float_value + static_cast<float>(zero_point);
    return converted(RoundHalfEven(static_cast<double>(moved)));
  }
  if (Has(swaps, Swap::kZeroPointBeforeRounding)) {
    return converted(RoundHalfEven(exact_value + zero_point));
  }
  double rounded = RoundHalfEven(exact_value);
  if (Has(swaps, Swap::kFloatMultiplier) || Has(swaps, Swap::kFloatReciprocal) ||
      Has(swaps, Swap::kFloatReciprocalInput) || Has(swaps, Swap::kFloatDivision)) {
    rounded = RoundHalfEven(static_cast<double>(float_value));
  }
  if (Has(swaps, Swap::kHalfAway)) rounded = std::round(exact_value);
  if (Has(swaps, Swap::kHalfUp)) rounded = std::floor(exact_value + 0.5);
  if (Has(swaps, Swap::kTruncate)) rounded = std::trunc(exact_value);
  return converted(rounded) + zero_point;
}

int32_t Narrow(const Case& c, int64_t channel, double value, std::span<const Swap> swaps) {
  if (Has(swaps, Swap::kWraps)) {
    const auto low =
        static_cast<uint64_t>(static_cast<int64_t>(std::clamp(value, -0x1p62, 0x1p62)));
    value = c.out_dtype == DType::kS8 ? static_cast<int8_t>(low) : static_cast<uint8_t>(low);
  }
  const auto lower = static_cast<double>(LowerBound(c, channel));
  return static_cast<int32_t>(std::min(std::max(value, lower), static_cast<double>(c.out_max)));
}

// Multiplier of channel n: as a real number (to double) and in the float32 order of a swap.
struct ChannelMultiplier {
  double exact;
  float rounded;
};
ChannelMultiplier MultiplierOf(const Case& c, int64_t n, std::span<const Swap> swaps) {
  if (!c.multiplier.empty()) {
    const float m = c.multiplier[c.multiplier.size() == 1 ? 0 : static_cast<size_t>(n)];
    return {m, m};
  }
  const float sx = c.x_q.scale_at(0), sw = c.w_q.scale_at(n), sy = c.out_q.scale_at(0);
  const float product = sx * sw;
  const float rounded = Has(swaps, Swap::kFloatReciprocal) ? product * (1.0f / sy) : product / sy;
  return {static_cast<double>(sx) * sw / sy, rounded};
}

Tensor FinishCodes(const Case& c, std::span<const __int128> sums, std::span<const Swap> swaps) {
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const int64_t at = m * c.N + n;
      const auto sum = static_cast<double>(sums[static_cast<size_t>(at)]);
      const ChannelMultiplier multiplier = MultiplierOf(c, n, swaps);
      double bias = 0;
      if (c.bias) bias = (*c.bias)[static_cast<size_t>(n)];
      double exact_value = sum * multiplier.exact + bias / c.out_q.scale_at(0);
      auto float_sum = static_cast<float>(sum);
      if (c.bias) {
        const double unit = static_cast<double>(c.x_q.scale_at(0)) * c.w_q.scale_at(n);
        if (Has(swaps, Swap::kBiasRoundedToInt32)) {
          exact_value = (sum + RoundHalfEven(bias / unit)) * multiplier.exact;
          float_sum = static_cast<float>(sum + RoundHalfEven(bias / unit));
        } else {
          float_sum += static_cast<float>(bias) / static_cast<float>(unit);
        }
      }
      const float float_value = float_sum * multiplier.rounded;
      const double value = Rounded(exact_value, float_value, c.out_q.zero_point_at(0), swaps);
      y.SetInt(at, Narrow(c, n, std::isnan(value) ? c.out_q.zero_point_at(0) : value, swaps));
    }
  }
  return y;
}

// A float32 output whose every step is rounded.
Tensor FinishFloats(const Case& c, std::span<const __int128> sums) {
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t n = i % c.N;
    const float scale = c.x_q.scale_at(0) * c.w_q.scale_at(n);
    float value = static_cast<float>(sums[static_cast<size_t>(i)]) * scale;
    if (c.bias) value += (*c.bias)[static_cast<size_t>(n)];
    y.as<float>()[static_cast<size_t>(i)] = c.relu && !(value > 0) ? 0.0f : value;
  }
  return y;
}

Tensor QuantizeWith(const Case& c, std::span<const Swap> swaps) {
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const int64_t n = i % c.N;
    const float x = c.x.FloatAt(i), s = c.out_q.scale_at(n);
    const float rounded = Has(swaps, Swap::kFloatReciprocalInput) ? x * (1.0f / s) : x / s;
    double value = Rounded(static_cast<double>(x) / s, rounded, c.out_q.zero_point_at(n), swaps);
    if (std::isnan(x)) {
      value = Has(swaps, Swap::kNanBecomesMinimum) ? -0x1p62 : c.out_q.zero_point_at(n);
    }
    y.SetInt(i, Narrow(c, n, value, swaps));
  }
  return y;
}

Tensor DequantizeSaturating(const Case& c) {
  Tensor y(DType::kF32, c.output_shape());
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const int64_t n = i % c.N;
    const int64_t difference = int64_t{c.x.IntAt(i)} - c.x_q.zero_point_at(n);
    y.as<float>()[static_cast<size_t>(i)] =
        c.x_q.scale_at(n) * static_cast<float>(std::clamp<int64_t>(difference, -128, 127));
  }
  return y;
}

// Done in doubles, on codes; everything else stays exact.
bool ChangesEpilogue(Swap swap) {
  return (swap >= Swap::kFloatMultiplier && swap <= Swap::kTruncate) || swap == Swap::kWraps ||
         swap == Swap::kHugeBecomesMinimum || swap == Swap::kNanBecomesMinimum ||
         swap == Swap::kBiasRoundedToInt32;
}

bool ChangesSums(Swap swap) {
  constexpr std::array kThose{Swap::kInputOtherSignInProducts,
                              Swap::kLastProductDropped,
                              Swap::kProductTailDropped,
                              Swap::kPairSaturation,
                              Swap::kAcc16,
                              Swap::kPairWraps,
                              Swap::kWrap32,
                              Swap::kWeightZeroPointFromInput,
                              Swap::kPaddedCrossTerm,
                              Swap::kRowSumOfRow0,
                              Swap::kZeroPointTermInFloat,
                              Swap::kBiasWraps,
                              Swap::kBiasBecomesMinimum};
  return Has(kThose, swap);
}

bool MeansSomething(const Case& c, Swap swap) {
  if (ChangesSums(swap) && c.op != Op::kLinear) return false;
  if (ChangesEpilogue(swap) && !IsCode(c.out_dtype)) {
    return swap == Swap::kFloatMultiplier && c.op == Op::kLinear && c.out_dtype == DType::kF32;
  }
  // These describe departures from the exact epilogue; a mode has its own.
  if (c.requant != Requant::kExact && (ChangesEpilogue(swap) || swap == Swap::kScaleProductInFloat))
    return false;
  switch (swap) {
    case Swap::kInputOtherSignInProducts: return IsCode(c.x.dtype());
    case Swap::kRowSumOfRow0: return c.M > 1;
    case Swap::kFloatReciprocalInput:
    case Swap::kFloatDivision:
    case Swap::kNanBecomesMinimum: return c.op == Op::kQuantize;
    case Swap::kFloatMultiplier:
    case Swap::kFloatReciprocal: return c.op != Op::kQuantize;
    case Swap::kBiasWraps:
    case Swap::kBiasBecomesMinimum: return c.bias.has_value() && c.out_dtype != DType::kS32;
    case Swap::kBiasRoundedToInt32: return c.bias.has_value();
    case Swap::kDifferenceAsInt8: return c.op == Op::kDequantize;
    case Swap::kScaleProductInFloat: return c.op == Op::kLinear || c.op == Op::kRequantize;
    default: return true;
  }
}

}  // namespace

std::optional<Tensor> Counterfactual(const Case& c, std::span<const Swap> swaps) {
  Case edited = ProblemOf(c);
  for (Swap swap : swaps) {
    if (!MeansSomething(c, swap) || !EditCase(edited, swap)) return std::nullopt;
  }
  const bool epilogue = std::ranges::any_of(swaps, ChangesEpilogue);
  switch (c.op) {
    case Op::kQuantize: return epilogue ? QuantizeWith(edited, swaps) : exact::Evaluate(edited);
    case Op::kDequantize:
      return Has(swaps, Swap::kDifferenceAsInt8) ? DequantizeSaturating(edited)
                                                 : exact::Evaluate(edited);
    case Op::kRequantize: {
      if (!epilogue) return exact::Evaluate(edited);
      std::vector<__int128> sums;
      for (int64_t i = 0; i < c.x.size(); ++i) sums.push_back(c.x.IntAt(i));
      return FinishCodes(edited, sums, swaps);
    }
    case Op::kLinear: {
      const std::optional<std::vector<__int128>> sums = Sums(edited, swaps);
      if (!sums) return std::nullopt;
      if (!epilogue) return exact::EvaluateFromSums(edited, *sums);
      return IsCode(c.out_dtype) ? FinishCodes(edited, *sums, swaps) : FinishFloats(edited, *sums);
    }
    default:  // no swap is defined for the others
      return swaps.empty() ? std::optional(exact::Evaluate(edited)) : std::nullopt;
  }
}

}  // namespace qualm::triage
