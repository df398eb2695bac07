// SPDX-License-Identifier: Apache-2.0
// StableHLO's quantized types as its pass stablehlo-legalize-quant-to-math lowers them (stablehlo
// 3c9301c, stablehlo/transforms/StablehloLegalizeQuantToMath.cpp), which IREE runs by itself and
// jaxlib brings for XLA: exact int32 sums that wrap; then one float32 multiplier and the zero point
// behind it, clamp, round half to even. Both compilers make one fused multiply-add of multiplier
// and zero point. The zero point of rescale's input goes into a float32 with the
// output's.
#include <algorithm>
#include <cmath>

#include "oracles/conventions/definition.h"

namespace qualm::conventions {
namespace {

// Beyond these a compiler may flush a denormal, or convert what does not fit int32.
constexpr float kLeast = 0x1p-100F;
constexpr float kMost = 0x1p+60F;

// What codes of one scale and zero point become in those of another one.
struct Merged {
  float scale = 1, zero_point = 0;
};
Merged Merge(const Channel::Operand& from, float scale, int32_t zero_point) {
  const double ratio = double{from.scale} / double{scale};
  return {static_cast<float>(ratio), static_cast<float>(zero_point - from.zero_point * ratio)};
}

float FusedInto(Value& v, float a, float b, float c) {
  const float result = std::fma(a, b, c);
  v.lossy = static_cast<long double>(a) * b + c != static_cast<long double>(result);
  return result;
}

void TimesPlusZeroPoint(Value& v, const Channel& c) {
  v.SetReal(FusedInto(v, v.number, c.multiplier, static_cast<float>(c.zero_point)));
}
void TimesRatioPlusMerged(Value& v, const Channel& c) {
  v.SetReal(FusedInto(v, v.number, c.multiplier, c.bias));
}
void ClampReal(Value& v, const Channel& c) {
  v.SetReal(std::clamp(v.number, static_cast<float>(c.low), static_cast<float>(c.high)));
}

Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel;
  SetClamp(channel, c);
  channel.a = {c.x_q.scale_at(c.op == Op::kDequantize ? n : 0), c.x_q.zero_point_at(0), {}};
  channel.b = {c.w_q.scale_at(n), c.w_q.zero_point_at(0), {}};
  if (c.bias_i32) channel.bias_i32 = (*c.bias_i32)[static_cast<size_t>(n)];
  if (c.op == Op::kDequantize) {
    channel.scale = channel.a.scale;
    channel.zero_point = c.x_q.zero_point_at(n);
    return channel;
  }
  channel.scale = c.out_q.scale_at(n);
  channel.zero_point = c.out_q.zero_point_at(n);
  if (c.op == Op::kRescale) {
    const Merged merged = Merge(channel.a, channel.scale, channel.zero_point);
    channel.multiplier = merged.scale;
    channel.bias = merged.zero_point;
  } else if (HasWeights(c.op) || c.op == Op::kRequantize) {
    channel.accumulator_scale =
        static_cast<float>(double{channel.a.scale} * double{channel.b.scale});
    channel.multiplier = c.out_dtype == DType::kF32 ? channel.accumulator_scale
                                                    : static_cast<float>(RealMultiplier(c, n));
  }
  return channel;
}

bool InRange(float scale) { return scale >= kLeast && scale <= kMost; }

std::string CannotRun(const Case& c) {
  const bool sums = HasWeights(c.op);
  bool scales = true;
  for (int64_t n = 0; n < c.N; ++n) {
    const Channel channel = ChannelOf(c, n);
    if (sums && c.out_dtype == DType::kS32) break;
    for (const float scale : {channel.multiplier, channel.scale, channel.a.scale, channel.b.scale})
      scales = scales &&
               (HasExplicitMultiplier(c) && scale != channel.multiplier ? true : InRange(scale));
  }
  const auto is_s8 = [](DType type) { return type == DType::kS8; };
  return FirstReason({
      Require(!c.bias, "the bias must be int32"),
      Require(!c.relu, "no relu"),
      Require(c.op == Op::kRequantize || is_s8(c.x.dtype()), "inputs must be s8"),
      Require(!sums || is_s8(c.w.dtype()), "weights must be s8"),
      Require(c.op == Op::kDequantize || is_s8(c.out_dtype) || (sums && c.out_dtype != DType::kU8),
              "outputs must be s8, or sums s32 or f32"),
      Require(!sums || WeightZeroPointsAre(c, 0), "weights have no zero points"),
      Require(c.op == Op::kDequantize || c.out_dtype == DType::kF32 || WholeRange(c).empty(),
              "the clamp is the whole range"),
      Require(scales, "a scale or ratio of scales is beyond 2^-100..2^60"),
      ZeroPointsAreCodes(c),
  });
}

std::vector<Step> Steps(const Case& c) {
  const Step clamp{Stage::kClamp, "clamp to {low}..{high}", ClampReal, Rise::kAlways};
  const Step round{Stage::kRound, "round half to even", step::RoundX86};
  const Step to_float{Stage::kScale, "to float32", step::ToFloat};
  if (c.op == Op::kDequantize)
    return {{Stage::kScale, "(code - {zero_point}) times {scale}", step::TimesCodeMinusZeroPoint}};
  if (c.op == Op::kRescale) {
    return {to_float,
            {Stage::kScale, "times {multiplier} + both zero points {bias}, rounded once",
             TimesRatioPlusMerged},
            clamp,
            round};
  }
  std::vector<Step> steps;
  if (c.bias_i32) steps.push_back({Stage::kBias, "+ int32 bias {bias_i32}", step::AddBiasI32});
  if (c.out_dtype == DType::kS32) return steps;
  steps.push_back(to_float);
  if (c.out_dtype == DType::kF32) {
    steps.push_back({Stage::kScale, "times {multiplier}", step::TimesMultiplier});
    return steps;
  }
  steps.push_back({Stage::kScale, "times {multiplier} + zero point {zero_point}, rounded once",
                   TimesPlusZeroPoint, Rise::kAlways});
  steps.push_back(clamp);
  steps.push_back(round);
  return steps;
}

}  // namespace

std::vector<Convention> StablehloConventions() {
  Definition definition;
  definition.name = "stablehlo";
  definition.description =
      "StableHLO's quantized types, as XLA and IREE compile them: exact sums, one float32 "
      "multiply-add with the zero point, ties to even behind it";
  definition.source = "stablehlo/transforms/StablehloLegalizeQuantToMath.cpp @ 3c9301c";
  definition.satisfies = {"k_permutation", "zero_term_append", "row_independence",
                          "column_independence"};
  definition.variations = {"V1", "V3", "V14", "V16", "V19", "V38"};
  definition.ops = {Op::kDequantize, Op::kRequantize, Op::kLinear, Op::kRescale};
  definition.cannot_run = CannotRun;
  definition.accumulation = ExactSums;
  definition.channel = ChannelOf;
  definition.steps = Steps;
  return {MakeConvention(std::move(definition))};
}

}  // namespace qualm::conventions
