// SPDX-License-Identifier: Apache-2.0
#include "properties/triage/counterfactual.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "oracles/exact/exact.h"
#include "oracles/headroom/headroom.h"

namespace qualm::triage {
namespace {

constexpr std::array<SwapInfo, 31> kSwaps{{
    {Swap::kPairSaturation, SwapStage::kAccumulate, FindingKind::kPairSaturation, "pair saturation",
     "adds u8*s8 products in pairs in a saturating int16 (vpmaddubsw)"},
    {Swap::kAcc16, SwapStage::kAccumulate, FindingKind::kPairSaturation, "16-bit accumulation",
     "accumulates saturated pairs in a saturating int16 (acc16)"},
    {Swap::kWrap32, SwapStage::kAccumulate, FindingKind::kInt32Overflow, "int32 wrap",
     "lets the sum wrap in int32"},
    {Swap::kLastTermDropped, SwapStage::kTail, FindingKind::kTail, "last term dropped",
     "drops the last term where K % 4 = 1"},
    {Swap::kTailDropped, SwapStage::kTail, FindingKind::kTail, "K tail dropped",
     "drops the last K % 4 terms"},
    {Swap::kReluAtZero, SwapStage::kClamp, FindingKind::kClamp, "relu at code 0",
     "clamps the fused relu at code 0 instead of the output zero point"},
    {Swap::kReluIgnored, SwapStage::kClamp, FindingKind::kClamp, "relu ignored",
     "ignores the relu"},
    {Swap::kClampIgnored, SwapStage::kClamp, FindingKind::kClamp, "clamp ignored",
     "clamps to the type instead of [out_min, out_max]"},
    {Swap::kWraps, SwapStage::kClamp, FindingKind::kClamp, "truncating narrow",
     "keeps the low byte instead of saturating"},
    {Swap::kHugeBecomesMinimum, SwapStage::kClamp, FindingKind::kClamp, "conversion overflow",
     "turns values beyond int32 into INT32_MIN before the clamp (cvtps2dq)"},
    {Swap::kDifferenceAsInt8, SwapStage::kClamp, FindingKind::kZeroPoint, "int8 difference",
     "saturates code - zero_point at int8"},
    {Swap::kInputZeroPointIgnored, SwapStage::kOffset, FindingKind::kZeroPoint,
     "input zero point ignored", "ignores the input zero point"},
    {Swap::kWeightZeroPointIgnored, SwapStage::kOffset, FindingKind::kZeroPoint,
     "weight zero point ignored", "ignores the weight zero point"},
    {Swap::kPaddedCrossTerm, SwapStage::kOffset, FindingKind::kZeroPoint, "padded K in K*zx*zw",
     "uses K rounded up to a multiple of 4 in the zero-point term"},
    {Swap::kZeroPointAsInt8, SwapStage::kOffset, FindingKind::kZeroPoint, "zero point as int8",
     "keeps zero points in int8"},
    {Swap::kFloatMultiplier, SwapStage::kRound, FindingKind::kRounding, "float32 multiplier",
     "multiplies by the float32 quotient fl(fl(sx*sw)/sy) before rounding"},
    {Swap::kFloatReciprocal, SwapStage::kRound, FindingKind::kRounding, "float32 reciprocal",
     "multiplies by fl(fl(sx*sw) * fl(1/sy)) before rounding"},
    {Swap::kFloatZeroPointFirst, SwapStage::kRound, FindingKind::kTie,
     "zero point before rounding (float32)", "adds the zero point in float32 before it rounds"},
    {Swap::kZeroPointBeforeRounding, SwapStage::kRound, FindingKind::kTie,
     "zero point before rounding", "adds the zero point before it rounds half to even"},
    {Swap::kHalfAway, SwapStage::kRound, FindingKind::kTie, "half away from zero",
     "rounds ties away from zero"},
    {Swap::kHalfUp, SwapStage::kRound, FindingKind::kTie, "half up", "rounds ties up"},
    {Swap::kTruncate, SwapStage::kRound, FindingKind::kRounding, "truncation",
     "truncates towards zero"},
    {Swap::kFloatReciprocalInput, SwapStage::kRound, FindingKind::kRounding, "x * fl(1/s)",
     "multiplies by the float32 reciprocal of the scale"},
    {Swap::kFloatDivision, SwapStage::kRound, FindingKind::kRounding, "fl(x / s)",
     "rounds the quotient to float32 before it rounds to a code"},
    {Swap::kBiasIgnored, SwapStage::kBias, FindingKind::kIndex, "bias ignored", "ignores the bias"},
    {Swap::kBiasRoundedToInt32, SwapStage::kBias, FindingKind::kRounding, "int32 bias",
     "rounds the float bias to an int32 in units sx*sw first"},
    {Swap::kFirstChannelForAll, SwapStage::kIndex, FindingKind::kIndex, "channel 0 for all",
     "uses the parameters of channel 0 for every channel"},
    {Swap::kChannelModulo8, SwapStage::kIndex, FindingKind::kIndex, "channel modulo 8",
     "indexes channel parameters modulo 8"},
    {Swap::kChannelModulo16, SwapStage::kIndex, FindingKind::kIndex, "channel modulo 16",
     "indexes channel parameters modulo 16"},
    {Swap::kInputOtherSign, SwapStage::kOperands, FindingKind::kIndex, "input sign",
     "reads the input codes with the other signedness"},
    {Swap::kWeightOtherSign, SwapStage::kOperands, FindingKind::kIndex, "weight sign",
     "reads the weight codes with the other signedness"},
}};

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

// Swaps that are nothing but another case. False if one of them changes nothing here.
bool EditCase(Case& c, std::span<const Swap> swaps) {
  const Case before = c;
  for (Swap swap : swaps) {
    switch (swap) {
      case Swap::kInputOtherSign:
        if (!IsCode(c.x.dtype())) return false;
        c.x = OtherSign(c.x);
        break;
      case Swap::kWeightOtherSign:
        if (c.w.empty()) return false;
        c.w = OtherSign(c.w);
        break;
      case Swap::kLastTermDropped:
      case Swap::kTailDropped: {
        if (c.op != Op::kLinear || c.K % 4 == 0) return false;
        if (swap == Swap::kLastTermDropped && c.K % 4 != 1) return false;
        const int64_t keep = c.K - c.K % 4;
        c.x = FirstColumns(c.x, c.M, c.K, keep);
        c.w = FirstColumns(c.w, c.N, c.K, keep);
        c.K = keep;
        break;
      }
      case Swap::kInputZeroPointIgnored: c.x_q.zero_point.assign(c.x_q.zero_point.size(), 0); break;
      case Swap::kWeightZeroPointIgnored:
        c.w_q.zero_point.assign(c.w_q.zero_point.size(), 0);
        break;
      case Swap::kZeroPointAsInt8:
        for (QParams* q : {&c.x_q, &c.w_q}) {
          for (int32_t& z : q->zero_point) z = static_cast<int8_t>(z);
        }
        break;
      case Swap::kBiasIgnored:
        c.bias.reset();
        c.bias_i32.reset();
        break;
      case Swap::kFirstChannelForAll:
      case Swap::kChannelModulo8:
      case Swap::kChannelModulo16: {
        const int64_t modulo = swap == Swap::kFirstChannelForAll ? 1
                               : swap == Swap::kChannelModulo8   ? 8
                                                                 : 16;
        for (QParams* q : {&c.x_q, &c.w_q, &c.out_q}) Reindex(q->scale, modulo);
        Reindex(c.multiplier, modulo);
        break;
      }
      case Swap::kReluAtZero:
        if (!c.relu) return false;
        c.relu = false;
        c.out_min = std::max(c.out_min, 0);
        if (c.out_min > c.out_max) return false;
        break;
      case Swap::kReluIgnored: c.relu = false; break;
      case Swap::kClampIgnored:
        c.out_min = RangeOf(c.out_dtype).min;
        c.out_max = RangeOf(c.out_dtype).max;
        break;
      default: continue;
    }
    if (c == before) return false;
  }
  return true;
}

// Raw sums as such an accumulator leaves them.
std::optional<std::vector<int64_t>> RawSums(const Case& c, std::span<const Swap> swaps) {
  const bool acc16 = Has(swaps, Swap::kAcc16);
  if (!acc16 && !Has(swaps, Swap::kPairSaturation)) return exact::RawSums(c);
  if (!headroom::HasPairs(c)) return std::nullopt;
  const int32_t shift = c.x.dtype() == DType::kS8 ? 128 : 0;
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
        pair = std::clamp(pair, INT16_MIN, INT16_MAX);
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

std::optional<std::vector<__int128>> Sums(const Case& c, std::span<const Swap> swaps) {
  const std::optional<std::vector<int64_t>> raw = RawSums(c, swaps);
  if (!raw) return std::nullopt;
  const int64_t cross_terms = Has(swaps, Swap::kPaddedCrossTerm) ? (c.K + 3) / 4 * 4 : c.K;
  if (Has(swaps, Swap::kPaddedCrossTerm) && cross_terms == c.K) return std::nullopt;
  std::vector<__int128> sums;
  const __int128 zx = c.x_q.zero_point_at(0);
  for (int64_t m = 0; m < c.M; ++m) {
    __int128 row = 0;
    for (int64_t k = 0; k < c.K; ++k) row += c.x.IntAt(m * c.K + k);
    for (int64_t n = 0; n < c.N; ++n) {
      __int128 column = 0;
      for (int64_t k = 0; k < c.K; ++k) column += c.w.IntAt(n * c.K + k);
      const __int128 zw = c.w_q.zero_point_at(n);
      __int128 sum =
          (*raw)[static_cast<size_t>(m * c.N + n)] - zx * column - zw * row + cross_terms * zx * zw;
      if (c.bias_i32) sum += (*c.bias_i32)[static_cast<size_t>(n)];
      if (Has(swaps, Swap::kWrap32)) sum = static_cast<int32_t>(static_cast<uint32_t>(sum));
      sums.push_back(sum);
    }
  }
  return sums;
}

double RoundHalfEven(double value) { return std::nearbyint(value); }

// Value of one output before rounding, in the arithmetic that the rounding swap names, and the
// rounding rule itself. Doubles are enough: the result only counts if it equals the subject's bits.
double Rounded(double exact_value, float float_value, int32_t zero_point,
               std::span<const Swap> swaps) {
  if (Has(swaps, Swap::kFloatMultiplier) || Has(swaps, Swap::kFloatReciprocal) ||
      Has(swaps, Swap::kFloatReciprocalInput) || Has(swaps, Swap::kFloatDivision))
    return RoundHalfEven(static_cast<double>(float_value)) + zero_point;
  if (Has(swaps, Swap::kFloatZeroPointFirst)) {
    const float moved = float_value + static_cast<float>(zero_point);
    return RoundHalfEven(static_cast<double>(moved));
  }
  if (Has(swaps, Swap::kZeroPointBeforeRounding)) return RoundHalfEven(exact_value + zero_point);
  if (Has(swaps, Swap::kHalfAway)) return std::round(exact_value) + zero_point;
  if (Has(swaps, Swap::kHalfUp)) return std::floor(exact_value + 0.5) + zero_point;
  if (Has(swaps, Swap::kTruncate)) return std::trunc(exact_value) + zero_point;
  return RoundHalfEven(exact_value) + zero_point;
}

int32_t Narrow(const Case& c, double value, std::span<const Swap> swaps) {
  if (std::isnan(value)) value = 0;
  if (Has(swaps, Swap::kHugeBecomesMinimum) && !(std::abs(value) < 0x1p31)) value = -0x1p31;
  if (Has(swaps, Swap::kWraps)) {
    const auto low =
        static_cast<uint64_t>(static_cast<int64_t>(std::clamp(value, -0x1p62, 0x1p62)));
    return c.out_dtype == DType::kS8 ? int32_t{static_cast<int8_t>(low)}
                                     : int32_t{static_cast<uint8_t>(low)};
  }
  const double lower = static_cast<double>(LowerBound(c));
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
      y.SetInt(
          at, Narrow(c, Rounded(exact_value, float_value, c.out_q.zero_point_at(0), swaps), swaps));
    }
  }
  return y;
}

Tensor QuantizeWith(const Case& c, std::span<const Swap> swaps) {
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const int64_t n = i % c.N;
    const float x = c.x.FloatAt(i), s = c.out_q.scale_at(n);
    const float rounded = Has(swaps, Swap::kFloatReciprocalInput) ? x * (1.0f / s) : x / s;
    const double value =
        Rounded(static_cast<double>(x) / s, rounded, c.out_q.zero_point_at(n), swaps);
    y.SetInt(i, Narrow(c, std::isnan(x) ? c.out_q.zero_point_at(n) : value, swaps));
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

bool ChangesEpilogue(std::span<const Swap> swaps) {
  return std::any_of(swaps.begin(), swaps.end(), [](Swap swap) {
    return (swap >= Swap::kFloatMultiplier && swap <= Swap::kFloatDivision) ||
           swap == Swap::kWraps || swap == Swap::kHugeBecomesMinimum ||
           swap == Swap::kBiasRoundedToInt32;
  });
}

bool OnlyForQuantize(Swap swap) {
  return swap == Swap::kFloatReciprocalInput || swap == Swap::kFloatDivision;
}

bool OnlyForSums(Swap swap) {
  return swap == Swap::kFloatMultiplier || swap == Swap::kFloatReciprocal;
}

}  // namespace

std::span<const SwapInfo> AllSwaps() { return kSwaps; }

std::optional<Tensor> Counterfactual(const Case& c, std::span<const Swap> swaps) {
  Case edited = ProblemOf(c);
  if (!EditCase(edited, swaps)) return std::nullopt;
  const bool codes = IsCode(c.out_dtype);
  const bool epilogue = ChangesEpilogue(swaps);
  if (epilogue && !codes) return std::nullopt;
  for (Swap swap : swaps) {
    if (OnlyForQuantize(swap) && c.op != Op::kQuantize) return std::nullopt;
    if (OnlyForSums(swap) && c.op == Op::kQuantize) return std::nullopt;
    if (swap == Swap::kBiasRoundedToInt32 && !c.bias) return std::nullopt;
    if (swap == Swap::kDifferenceAsInt8 && c.op != Op::kDequantize) return std::nullopt;
  }
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
      return epilogue ? FinishCodes(edited, *sums, swaps) : exact::EvaluateFromSums(edited, *sums);
    }
  }
  return std::nullopt;
}

}  // namespace qualm::triage
