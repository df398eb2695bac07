// SPDX-License-Identifier: Apache-2.0
// Paths are of LiteRT v2.2.0, tflite/kernels/, whose kernels are those of 2.3, and of XNNPACK
// 75db3c0.
//
// LiteRT (fully_connected.cc, EvalHybridDense; internal/optimized/neon_tensor_utils.cc by way of
// SSE, sse_tensor_utils.cc), also its reference kernels:
//   asymmetric_quantize_inputs false: scale fl(range/127), where range is the largest magnitude;
//     x times fl(127/range). true: scale fl(fl(max - min)/255), zero point from the end of the
//     range that is nearer to 0, rounded away from zero; x times fl(1/scale)
//   codes: 8 values at a time half is added in float32 and the fraction cut, the rest goes through
//     round(). Then the zero point
//   sums: of 16 columns at a time the sign of x goes to w in 8 bits, where -128 stays -128; the sum
//     of the weights of a channel, times the zero point, is added up in 16-bit lanes that wrap
//   output: the sum in float32 times fl(x_scale*w_scale), plus the bias
// XNNPACK (src/xnnpack/quantization.h, src/qd8-f32-qc8w-gemm; the flag is not read): x times
//   fl(255/fl(max - min)), ties to even; exact sums times the reciprocal of that, then a fused
//   multiply-add of the scale of w and the bias
//
// The scale of a choice is float64: its float32 is the scale of x, and the float32 of its
// reciprocal is what x is multiplied by. Of fl(127/range) that holds too: 127/range is never as
// near to the middle of two float32 as two roundings to float64 could move it.
#include "oracles/conventions/litert_dynamic_linear.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "oracles/conventions/definition.h"
#include "oracles/conventions/dynamic_linear.h"

namespace qualm::conventions {
namespace {

// Between these nothing on the way is denormal, which LiteRT and XNNPACK flush.
constexpr double kLeastScale = 0x1p-22, kMostScale = 0x1p60;
constexpr float kLeastUnit = 0x1p-90F, kMostUnit = 0x1p90F;

float Inverse(const exact::AtenChoice& choice) { return static_cast<float>(1.0 / choice.scale); }

exact::AtenChoice ChooseLitert(const Case& c, exact::ObservedRange range) {
  if (c.observer.symmetric) {
    const float most = std::max(-range.min, range.max);
    return {most == 0 ? 1.0 : static_cast<double>(most) / 127, 0};
  }
  if (range.min == range.max) return {1, 0};
  const double min = range.min, max = range.max;
  const double scale = static_cast<double>(range.max - range.min) / 255;
  const bool from_min = 128 + std::abs(min / scale) < 127 + std::abs(max / scale);
  const double zero_point =
      std::clamp(from_min ? -128 - min / scale : 127 - max / scale, -128.0, 127.0);
  return {double{static_cast<float>(scale)}, static_cast<int32_t>(std::round(zero_point))};
}

exact::AtenChoice ChooseXnnpack(const Case&, exact::ObservedRange range) {
  const float inverse = range.min == range.max ? 1.0F : 255.0F / (range.max - range.min);
  const float min = range.min * inverse, max = range.max * inverse;
  const bool from_min = (-128.0F + min) + (127.0F + max) > 0;
  const float zero_point = std::clamp(from_min ? -128.0F - min : 127.0F - max, -128.0F, 127.0F);
  return {1.0 / static_cast<double>(inverse), ConvertX86(zero_point)};
}

void AddHalfAndCut(Value& v, const Channel&) {
  const float moved = v.number + (v.number < 0 ? -0.5F : 0.5F);
  v.SetInt(static_cast<int64_t>(moved));
}

Convention Quantize(const exact::AtenChoice& choice, bool xnnpack) {
  Definition definition;
  definition.ops = {Op::kQuantize};
  definition.cannot_run = [](const Case&) { return std::string(); };
  definition.channel = [inverse = Inverse(choice)](const Case& c, int64_t) {
    Channel channel;
    SetClamp(channel, c);
    channel.zero_point = c.out_q.zero_point_at(0);
    channel.reciprocal = inverse;
    return channel;
  };
  const auto steps = [](Step round) {
    return [round](const Case&) {
      return std::vector<Step>{
          {Stage::kScale, "times {reciprocal}", step::TimesReciprocal},
          round,
          {Stage::kZeroPoint, "+ zero point {zero_point}", step::AddZeroPointWrap32},
          {Stage::kClamp, "clamp to {low}..{high}", step::Clamp}};
    };
  };
  const Step away{Stage::kRound, "round, ties away from zero", step::RoundAway};
  if (xnnpack) {
    definition.steps = steps({Stage::kRound, "round, ties to even", step::RoundX86});
    return MakeConvention(std::move(definition));
  }
  definition.steps = steps(
      {Stage::kRound, "half is added away from zero in float32, the fraction cut", AddHalfAndCut});
  definition.body = [](const Case& c) { return c.N / 8 * 8; };  // of one row
  definition.tail_steps = steps(away);
  return MakeConvention(std::move(definition));
}

// Of a channel, as LiteRT adds them: 8 lanes of 16 bits. What fills no 8 is added in 32.
int32_t SumOfWeights(const Case& c, int64_t n) {
  std::array<int32_t, 8> lanes{};
  int64_t k = 0;
  const auto add = [&](size_t lane, int64_t at) {
    const int32_t sum = lanes[lane] + c.w.IntAt(n * c.K + at);
    lanes[lane] = static_cast<int16_t>(static_cast<uint16_t>(sum));
  };
  for (; k < c.K / 16 * 16; ++k) add(static_cast<size_t>(k % 16 / 2), k);
  for (; k < c.K / 8 * 8; ++k) add(static_cast<size_t>(k % 8), k);
  int32_t sum = 0;
  for (const int32_t lane : lanes) sum += lane;
  for (; k < c.K; ++k) sum += c.w.IntAt(n * c.K + k);
  return sum;
}

Value LitertSum(const Case& c, int64_t index, Trace* trace) {
  const int64_t n = index % c.N, row = index / c.N * c.K;
  int64_t sum = 0, exact = 0;
  const int32_t zero_point = c.x_q.zero_point_at(0);
  for (int64_t k = 0; k < c.K; ++k) {
    const int64_t x = c.x.IntAt(row + k), w = c.w.IntAt(n * c.K + k);
    exact += (x - zero_point) * w;
    sum += k < c.K / 16 * 16 && x < 0 && w == INT8_MIN ? -x * w : x * w;
  }
  sum -= int64_t{zero_point} * SumOfWeights(c, n);
  Value value;
  value.SetInt(Wrap32(sum));
  Note(trace, Stage::kAccumulate,
       "sum of x*w less the zero point of x times the sum of w: in vectors -128 has no sign, and "
       "sums of w wrap in 16 bits",
       ValueText(value), value.integer != exact);
  return value;
}

Channel SumChannel(const Case& c, int64_t n) {
  Channel channel;
  channel.scale = c.x_q.scale_at(0);
  channel.multiplier = channel.scale * c.w_q.scale_at(n);
  if (c.bias) channel.bias = (*c.bias)[static_cast<size_t>(n)];
  return channel;
}

Channel XnnpackSumChannel(const Case& c, int64_t n) {
  Channel channel = SumChannel(c, n);
  channel.multiplier = c.w_q.scale_at(n);
  return channel;
}

std::vector<Step> Steps(const Case& c, bool xnnpack) {
  std::vector<Step> steps{{Stage::kScale, "to float32", step::ToFloat}};
  if (xnnpack) {
    steps.push_back({Stage::kScale, "times x_scale {scale}", step::TimesScale});
    steps.push_back({Stage::kBias, "times w_scale {multiplier}, + bias {bias}, fused",
                     step::TimesMultiplierPlusBias});
  } else {
    steps.push_back(
        {Stage::kScale, "times fl(x_scale*w_scale) {multiplier}", step::TimesMultiplier});
    if (c.bias) steps.push_back({Stage::kBias, "+ bias {bias}", step::AddBiasFloat});
  }
  if (c.relu) steps.push_back({Stage::kClamp, "relu", step::Relu});
  return steps;
}

Convention Sums(bool xnnpack) {
  Definition sums;
  sums.ops = {Op::kLinear};
  sums.cannot_run = [](const Case&) { return std::string(); };
  if (xnnpack) {
    sums.accumulation = ExactSums;
  } else {
    sums.gather = [](const Case& c) { return EachAlone(c, LitertSum); };
  }
  sums.channel = xnnpack ? XnnpackSumChannel : SumChannel;
  sums.steps = [xnnpack](const Case& c) { return Steps(c, xnnpack); };
  return MakeConvention(std::move(sums));
}

std::string CannotRun(const Case& c, bool xnnpack, double scale) {
  const Observer& o = c.observer;
  const CodeRange codes = o.symmetric ? CodeRange{-127, 127} : CodeRange{-128, 127};
  const auto is_fit = [&](float w) {
    const float unit = static_cast<float>(scale) * w;
    return unit >= kLeastUnit && unit <= kMostUnit && w >= kLeastUnit && w <= kMostUnit;
  };
  const auto is_fit_bias = [](float b) {
    return b == 0 ? !std::signbit(b) : std::abs(b) >= kLeastUnit && std::isfinite(b);
  };
  return FirstReason({
      Require(c.M == 1, "each row has a scale of its own"),
      Require(c.N > 0 && c.K > 0, "no empty tensors"),
      Require(c.w.dtype() == DType::kS8 && WeightZeroPointsAre(c, 0),
              "weights must be s8 without zero points"),
      Require(o.dtype == DType::kS8, "x must be quantized to s8"),
      Require(!xnnpack || !o.symmetric, "x is quantized with a zero point"),
      Require(!o.reduce_range && CodeRange{o.quant_min, o.quant_max} == codes,
              "x must be quantized to all codes of s8, symmetric to -127..127"),
      Require(scale >= kLeastScale && scale <= kMostScale,
              "the scale of a row must lie in 2^-22..2^60"),
      Require(std::ranges::all_of(c.w_q.scale, is_fit),
              "a scale of w, or times that of a row, is beyond 2^-90..2^90"),
      Require(!c.bias || std::ranges::all_of(*c.bias, is_fit_bias), "a bias is -0, or below 2^-90"),
  });
}

Convention Make(bool xnnpack) {
  DynamicLinear library;
  library.rule = QParamsRule::kObserver;
  library.satisfies = {"row_order", "row_independence", "column_independence",
                       "per_channel_equals_per_tensor", "weight_scale_doubling"};
  library.variations = {"V1", "V2", "V8", "V16", "V19", "V31"};
  if (xnnpack) {
    Append(library.satisfies, {"k_permutation"});
  } else {
    library.variations.emplace_back("V46");
  }
  library.choose = xnnpack ? ChooseXnnpack : ChooseLitert;
  library.quantize = [xnnpack](const exact::AtenChoice& choice) {
    return Quantize(choice, xnnpack);
  };
  library.linear = [sums = Sums(xnnpack)](const exact::AtenChoice&) { return sums; };
  library.cannot_run = [xnnpack, choose = library.choose](const Case& c) {
    const exact::ObservedRange range = EndsOfX(c);
    if (!std::isfinite(range.max - range.min)) return std::string("the range of a row is infinite");
    return CannotRun(c, xnnpack, choose(c, range).scale);
  };
  return RowByRow(MakeDynamicLinear(std::move(library)));
}

}  // namespace

Convention LitertDynamicLinear() { return Make(false); }
Convention XnnpackDynamicLinear() { return Make(true); }

}  // namespace qualm::conventions
