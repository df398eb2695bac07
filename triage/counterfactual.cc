// SPDX-License-Identifier: Apache-2.0
#include "triage/counterfactual.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "oracles/exact/exact.h"
#include "oracles/headroom/headroom.h"
#include "triage/swapped_epilogue.h"

namespace qualm::triage {
namespace {

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

// How many of K terms are left, or nullopt where such a swap means nothing. Of two that drop the
// same the one of fewer lanes is meant.
std::optional<int64_t> WithoutTail(const Case& c, Swap swap) {
  if (c.op != Op::kLinear || c.K == 0) return std::nullopt;
  const auto whole = [&](int64_t lanes) -> std::optional<int64_t> {
    const int64_t tail = c.K % lanes;
    const bool is_other = tail > 1 && (lanes == 4 || tail != c.K % (lanes / 2));
    return is_other ? std::optional(c.K - tail) : std::nullopt;
  };
  switch (swap) {
    case Swap::kLastProductDropped:
    case Swap::kLastTermDropped: return c.K - 1;
    case Swap::kProductTailDropped:
    case Swap::kTailDropped: return whole(4);
    case Swap::kProductTailDropped8:
    case Swap::kTailDropped8: return whole(8);
    case Swap::kProductTailDropped16:
    case Swap::kTailDropped16: return whole(16);
    case Swap::kProductTailDropped32:
    case Swap::kTailDropped32: return whole(32);
    default: return std::nullopt;
  }
}

constexpr std::array kDropsProducts{Swap::kLastProductDropped, Swap::kProductTailDropped,
                                    Swap::kProductTailDropped8, Swap::kProductTailDropped16,
                                    Swap::kProductTailDropped32};

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

// Another window over the same images. False where the output has another shape by it.
bool EditWindow(Case& c, Swap swap) {
  if (!HasWindow(c.op)) return false;
  const Window before = c.window;
  const std::vector<int64_t> shape = c.output_shape();
  Window& v = c.window;
  switch (swap) {
    case Swap::kStridesSwapped: std::swap(v.stride_h, v.stride_w); break;
    case Swap::kDilationsSwapped: std::swap(v.dilation_h, v.dilation_w); break;
    case Swap::kDilationIgnored: {
      // The output keeps the shape that the dilation gave it: fewer rows of padding are met.
      const int64_t rows = (v.dilation_h - 1) * (v.kernel_h - 1);
      const int64_t columns = (v.dilation_w - 1) * (v.kernel_w - 1);
      v.dilation_h = v.dilation_w = 1;
      v.pad_bottom = std::max<int64_t>(0, v.pad_bottom - rows);
      v.pad_right = std::max<int64_t>(0, v.pad_right - columns);
      break;
    }
    case Swap::kPaddingOtherSide:
      std::swap(v.pad_top, v.pad_bottom);
      std::swap(v.pad_left, v.pad_right);
      break;
    default:
      std::swap(v.pad_top, v.pad_left);
      std::swap(v.pad_bottom, v.pad_right);
      break;
  }
  return v != before && c.output_shape() == shape && Validate(c).empty();
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
    case Swap::kOperandsOtherSign:
      if (!HasTwoOperands(c.op) && c.op != Op::kConcat) return false;
      c.x = OtherSign(c.x);
      c.w = OtherSign(c.w);
      return true;
    case Swap::kOperandsSwapped:
      std::swap(c.x_q, c.w_q);
      return HasTwoInputs(c.op) && c.x_q != c.w_q;
    case Swap::kFirstOperandForAll: return Replace(c.w_q, c.x_q);
    case Swap::kTableIndexOffset:
      if (c.x.dtype() != DType::kS8) return false;
      for (uint8_t& byte : c.x.bytes()) byte ^= 0x80;
      return true;
    case Swap::kReduceRangeIgnored: return Replace(c.observer.reduce_range, false);
    case Swap::kStridesSwapped:
    case Swap::kDilationsSwapped:
    case Swap::kDilationIgnored:
    case Swap::kPaddingOtherSide:
    case Swap::kPaddingOtherAxis: return EditWindow(c, swap);
    case Swap::kLastTermDropped:
    case Swap::kTailDropped:
    case Swap::kTailDropped8:
    case Swap::kTailDropped16:
    case Swap::kTailDropped32: {
      const auto keep = WithoutTail(c, swap);
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
    case Swap::kChannelModulo16:
    case Swap::kChannelWithinGroup: {
      const Case before = c;
      if (c.N == 0) return false;
      const int64_t modulo = swap == Swap::kFirstChannelForAll   ? 1
                             : swap == Swap::kChannelModulo8     ? 8
                             : swap == Swap::kChannelWithinGroup ? c.N / c.window.groups
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

int32_t PairSum(int64_t sum, bool wraps) {
  return wraps ? static_cast<int16_t>(static_cast<uint16_t>(sum))
               : static_cast<int32_t>(std::clamp<int64_t>(sum, INT16_MIN, INT16_MAX));
}

// The products of linear, or of a convolution as a matrix (im2col), in the order of the weights:
// output (m, n) sums k products of row m*groups + group of n, and of row n of w. Padding is made of
// codes that are real 0.
struct Products {
  int64_t groups = 1, k = 0;
  std::vector<int32_t> x;  // [M*groups, k]
  std::vector<int32_t> w;  // [N, k]

  std::span<const int32_t> row(int64_t at) const {
    return std::span(x).subspan(static_cast<size_t>(at * k), static_cast<size_t>(k));
  }
  std::span<const int32_t> weights(int64_t n) const {
    return std::span(w).subspan(static_cast<size_t>(n * k), static_cast<size_t>(k));
  }
};

int64_t RowOf(const Case& c, int64_t m, int64_t n, std::span<const Swap> swaps) {
  const int64_t groups = c.window.groups;
  const int64_t group = Has(swaps, Swap::kGroupModulo) ? n % groups : n / (c.N / groups);
  return m * groups + group;
}

Products ProductsOf(const Case& c, std::span<const Swap> swaps) {
  const Window& v = c.window;
  Products products{v.groups, c.K, {}, {}};
  for (int64_t i = 0; i < c.w.size(); ++i) products.w.push_back(c.w.IntAt(i));
  if (c.op == Op::kLinear) {
    for (int64_t i = 0; i < c.x.size(); ++i) products.x.push_back(c.x.IntAt(i));
    return products;
  }
  const int32_t padding = Has(swaps, Swap::kPaddingIsCodeZero) ? 0 : c.x_q.zero_point_at(0);
  const int64_t channels = v.in_c / v.groups;
  for (int64_t m = 0; m < c.M; ++m) {
    const std::vector<Tap> taps = TapsOf(v, m);
    for (int64_t group = 0; group < v.groups; ++group) {
      for (const Tap& tap : taps) {
        const bool beyond = Has(swaps, Swap::kKernelWidthAsHeight) && tap.s >= v.kernel_h;
        for (int64_t i = 0; i < channels; ++i) {
          products.x.push_back(
              tap.x_row < 0 || beyond ? padding : c.x.IntAt(tap.x_row + group * channels + i));
        }
      }
    }
  }
  return products;
}

// Raw sum as an accumulator leaves it that adds products in int16 pairs, or threes.
int64_t PairedSum(DType x_dtype, std::span<const int32_t> x, std::span<const int32_t> w,
                  std::span<const Swap> swaps) {
  const bool acc16 = Has(swaps, Swap::kAcc16);
  const bool taps = Has(swaps, Swap::kTapsWrap16);
  const bool wraps = Has(swaps, Swap::kPairWraps) || taps;
  const size_t step = taps ? 3 : 2;
  // vpmaddubsw wants one operand unsigned; what wraps multiplies s8 by s8.
  const int32_t shift = x_dtype == DType::kS8 && !wraps ? 128 : 0;
  int64_t sum = 0, weights = 0;
  int32_t lane = 0;
  for (size_t k = 0; k < x.size(); k += step) {
    int64_t pair = 0;
    for (size_t i = k; i < std::min(k + step, x.size()); ++i) {
      weights += w[i];
      pair += (int64_t{x[i]} + shift) * w[i];
    }
    const int32_t narrow = PairSum(pair, wraps);
    if (!acc16) {
      sum += narrow;
      continue;
    }
    lane = std::clamp(lane + narrow, INT16_MIN, INT16_MAX);
    if (k % 256 == 254) sum += std::exchange(lane, 0);
  }
  return sum + lane - int64_t{shift} * weights;
}

// Sums of products in the arithmetic of `swaps`; what zero points multiply is not touched.
std::optional<std::vector<int64_t>> RawSums(const Case& c, std::span<const Swap> swaps) {
  const bool paired = Has(swaps, Swap::kPairSaturation) || Has(swaps, Swap::kAcc16) ||
                      Has(swaps, Swap::kPairWraps) || Has(swaps, Swap::kTapsWrap16);
  if (paired && !headroom::HasPairs(c)) return std::nullopt;
  int64_t keep = c.K;
  for (const Swap swap : kDropsProducts) {
    if (!Has(swaps, swap)) continue;
    const auto without = WithoutTail(c, swap);
    if (!without) return std::nullopt;
    keep = *without;
  }
  Case read = c;
  if (Has(swaps, Swap::kInputOtherSignInProducts)) read.x = OtherSign(c.x);
  const Products products = ProductsOf(read, swaps);
  std::vector<int64_t> sums;
  sums.reserve(static_cast<size_t>(c.M * c.N));
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const auto x = products.row(RowOf(c, m, n, swaps)).first(static_cast<size_t>(keep));
      const auto w = products.weights(n).first(static_cast<size_t>(keep));
      if (paired) {
        sums.push_back(PairedSum(read.x.dtype(), x, w, swaps));
        continue;
      }
      int64_t sum = 0;
      for (size_t k = 0; k < x.size(); ++k) sum += int64_t{x[k]} * w[k];
      sums.push_back(sum);
    }
  }
  return sums;
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
  const Products products = ProductsOf(c, swaps);
  std::vector<int64_t> rows, columns;
  for (int64_t row = 0; row < c.M * products.groups; ++row) {
    const auto x = products.row(row);
    rows.push_back(std::accumulate(x.begin(), x.end(), int64_t{0}));
  }
  for (int64_t n = 0; n < c.N; ++n) {
    const auto w = products.weights(n);
    columns.push_back(std::accumulate(w.begin(), w.end(), int64_t{0}));
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
                     zw * rows[static_cast<size_t>(RowOf(c, m, n, swaps))] + cross_terms * zx * zw;
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

float WithoutDenormal(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

Tensor QuantizeWith(const Case& c, std::span<const Swap> swaps) {
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const int64_t n = i % c.N;
    float x = c.x.FloatAt(i), s = c.out_q.scale_at(n);
    if (Has(swaps, Swap::kDenormalsAreZero)) {
      x = WithoutDenormal(x);
      s = WithoutDenormal(s);
    }
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

bool ChangesSums(Swap swap) {
  constexpr std::array kThose{Swap::kInputOtherSignInProducts,
                              Swap::kPairSaturation,
                              Swap::kAcc16,
                              Swap::kPairWraps,
                              Swap::kTapsWrap16,
                              Swap::kKernelWidthAsHeight,
                              Swap::kGroupModulo,
                              Swap::kWrap32,
                              Swap::kWeightZeroPointFromInput,
                              Swap::kPaddedCrossTerm,
                              Swap::kRowSumOfRow0,
                              Swap::kZeroPointTermInFloat,
                              Swap::kBiasWraps,
                              Swap::kBiasBecomesMinimum};
  return Has(kThose, swap) || Has(kDropsProducts, swap);
}

bool MeansSomething(const Case& c, Swap swap) {
  if (HasOtherCounterfactual(c.op)) return MeansSomethingForOthers(c, swap);
  if (OnlyForOthers(swap)) return false;
  const bool elements = HasTwoOperands(c.op) || c.op == Op::kRescale || IsPool(c.op);
  if (elements && !MeansSomethingForElements(c, swap)) return false;
  if (swap == Swap::kPaddingIsCodeZero && !elements) return IsConv(c.op);
  if (ChangesElements(swap) && !elements) return false;
  if (ChangesSums(swap) && !HasSums(c.op) && !(swap == Swap::kWrap32 && elements)) return false;
  if (ChangesEpilogue(swap) && !IsCode(c.out_dtype)) {
    return swap == Swap::kFloatMultiplier && HasSums(c.op) && c.out_dtype == DType::kF32;
  }
  // These describe departures from the exact epilogue; a mode has its own.
  if (c.requant != Requant::kExact && (ChangesEpilogue(swap) || swap == Swap::kScaleProductInFloat))
    return false;
  switch (swap) {
    case Swap::kDenormalsAreZero: return c.op == Op::kQuantize || c.out_dtype == DType::kF32;
    case Swap::kInputOtherSignInProducts: return IsCode(c.x.dtype());
    case Swap::kRowSumOfRow0: return c.M > 1;
    case Swap::kFloatReciprocalInput:
    case Swap::kFloatDivision:
    case Swap::kNanBecomesMinimum: return c.op == Op::kQuantize;
    case Swap::kFloatMultiplier:
    case Swap::kFloat64:
    case Swap::kFloatReciprocal: return c.op != Op::kQuantize;
    case Swap::kBiasWraps:
    case Swap::kBiasBecomesMinimum: return c.bias.has_value() && c.out_dtype != DType::kS32;
    case Swap::kBiasRoundedToInt32: return c.bias.has_value();
    case Swap::kDifferenceAsInt8: return c.op == Op::kDequantize;
    case Swap::kScaleProductInFloat: return HasSums(c.op) || c.op == Op::kRequantize;
    case Swap::kKernelWidthAsHeight: return IsConv(c.op) && c.window.kernel_w > c.window.kernel_h;
    case Swap::kGroupModulo:
    case Swap::kChannelWithinGroup: return c.window.groups > 1;
    default: return true;
  }
}

std::optional<Tensor> Swapped(const Case& c, std::span<const Swap> swaps) {
  Case edited = ProblemOf(c);
  for (Swap swap : swaps) {
    if (!MeansSomething(c, swap) || !EditCase(edited, swap)) return std::nullopt;
  }
  const bool epilogue = std::ranges::any_of(swaps, ChangesEpilogue);
  switch (c.op) {
    case Op::kQuantize:
      return epilogue || Has(swaps, Swap::kDenormalsAreZero) ? QuantizeWith(edited, swaps)
                                                             : exact::Evaluate(edited);
    case Op::kDequantize:
      return Has(swaps, Swap::kDifferenceAsInt8) ? DequantizeSaturating(edited)
                                                 : exact::Evaluate(edited);
    case Op::kRequantize: {
      if (!epilogue) return exact::Evaluate(edited);
      std::vector<__int128> sums;
      for (int64_t i = 0; i < c.x.size(); ++i) sums.push_back(c.x.IntAt(i));
      return FinishCodes(edited, sums, swaps);
    }
    case Op::kLinear:
    case Op::kConv2d:
    case Op::kDepthwise: {
      const std::optional<std::vector<__int128>> sums = Sums(edited, swaps);
      if (!sums) return std::nullopt;
      if (!epilogue) return exact::EvaluateFromSums(edited, *sums);
      return IsCode(c.out_dtype) ? FinishCodes(edited, *sums, swaps) : FinishFloats(edited, *sums);
    }
    case Op::kRescale:
    case Op::kAdd:
    case Op::kMul:
    case Op::kMaxPool:
    case Op::kAvgPool:
    case Op::kGlobalAvgPool: return ElementCounterfactual(edited, swaps);
    case Op::kConcat:
    case Op::kTable:
    case Op::kSoftmax:
    case Op::kChooseQParams: break;
  }
  return OtherCounterfactual(edited, swaps);
}

}  // namespace

std::optional<Tensor> Counterfactual(const Case& c, std::span<const Swap> swaps) {
  std::optional<Tensor> y = Swapped(c, swaps);
  if (y && y->dtype() == DType::kF32 && Has(swaps, Swap::kDenormalsAreZero)) {
    for (float& value : y->as<float>()) value = WithoutDenormal(value);
  }
  return y;
}

}  // namespace qualm::triage
