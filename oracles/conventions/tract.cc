// SPDX-License-Identifier: Apache-2.0
// tract's quantized operators (tract 0.23.9, core/src/ops/quant.rs, core/src/ops/matmul/quant.rs
// with linalg/src/generic/rounding.rs): exact int32 sums that wrap. A multiplier that all channels
// share becomes an integer of 24 bits and a shift, so that the product is rounded once, ties to
// even, and its low 32 bits are taken; multipliers of their own multiply in float32, and the result
// saturates. quantize multiplies by the reciprocal of the scale. Every zero point is added in
// int32, which wraps.
#include <algorithm>
#include <cmath>
#include <utility>

#include "oracles/conventions/definition.h"
#include "oracles/conventions/onnx.h"

namespace qualm::conventions {
namespace {

// Beyond these a shift is no count of bits any more.
constexpr float kLeast = 0x1p-31F;
constexpr float kMost = 0x1p+30F;

// Lists of less than 16 scales are folded as they are wired (core/src/model/typed.rs). From there
// on the division is a product with the reciprocal (core/src/ops/math/mod.rs, declutter_div), which
// meets the scale of x first (declutter_mul_const_mul_const), unless the product of both scales was
// folded before: from 128 bytes on (core/src/optim/prop_const.rs).
float Multiplier(const Case& c, int64_t n) {
  const float x = c.x_q.scale_at(0), w = c.w_q.scale_at(n), y = c.out_q.scale_at(0);
  if (!c.per_channel || c.N < 16) return x * w / y;
  return c.N < 32 ? w * (x * (1 / y)) : x * w * (1 / y);
}

bool SharesMultiplier(const Case& c) {
  for (int64_t n = 1; n < c.N; ++n) {
    if (Multiplier(c, n) != Multiplier(c, 0)) return false;
  }
  return true;
}

void TimesMultiplierToEven(Value& v, const Channel& c) {
  int exponent = 0;
  const float fraction = std::frexp(c.multiplier, &exponent);
  const int64_t product = v.integer * static_cast<int64_t>(std::ldexp(fraction, 24));
  const int right = 24 - exponent;
  int64_t rounded = 0;
  if (right <= 0) {
    rounded = product * (int64_t{1} << -right);
  } else {
    rounded = product >> right;
    const int64_t rest = product - rounded * (int64_t{1} << right);
    const int64_t half = int64_t{1} << (right - 1);
    if (rest > half || (rest == half && rounded % 2 != 0)) ++rounded;
  }
  v.SetInt(Wrap32(rounded));
  v.lossy = v.integer != rounded;
}

// From 2^31 on it depends on what else stands in the model: merged into the product of matrices, a
// shift adds its half in 32 bits, which wrap, and -2^31 has no magnitude; behind a reshape, as with
// groups, it is scaled in 64 bits (linalg/x86_64/fma/avx2_mmm_i32_8x8.S.j2, q_shr and q_scale).
bool MayReach2To31(const Case& c) {
  if (c.N == 0 || !SharesMultiplier(c)) return false;
  int64_t bias = 0;
  for (int64_t n = 0; n < c.N && c.bias_i32; ++n)
    bias = std::max(bias, std::abs(int64_t{(*c.bias_i32)[static_cast<size_t>(n)]}));
  const auto sum = static_cast<double>(c.w.size() / c.N * 255 * 255 + bias);
  return sum + 0.5 / double{Multiplier(c, 0)} >= 0x1p31;
}

void ClampFloat(Value& v, const Channel& c) {
  const float low = static_cast<float>(c.low), high = static_cast<float>(c.high);
  v.lossy = std::isnan(v.number);
  v.SetInt(static_cast<int64_t>(MinPs(MaxPs(v.number, low), high)));
}

void ToReal(Value& v, const Channel& c) {
  MultiplyInto(v, c.a.scale, static_cast<float>(v.integer - c.a.zero_point));
}

Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel;
  SetClamp(channel, c);
  if (SetColumnScale(channel, c, n)) {
    channel.reciprocal = 1 / channel.scale;
    return channel;
  }
  if (c.bias_i32) channel.bias_i32 = (*c.bias_i32)[static_cast<size_t>(n)];
  if (c.out_dtype == DType::kS32) return channel;
  channel.zero_point = c.out_q.zero_point_at(0);
  channel.a = {c.x_q.scale_at(0), c.x_q.zero_point_at(0), {}};
  if (HasWeights(c.op)) {
    channel.multiplier = Multiplier(c, n);
  } else {
    channel.reciprocal = 1 / c.out_q.scale_at(0);
  }
  return channel;
}

std::string CannotRun(const Case& c) {
  const bool codes = c.out_dtype != DType::kS32;
  bool in_range = true;
  for (int64_t n = 0; n < c.N && HasWeights(c.op) && codes; ++n) {
    const float x = c.x_q.scale_at(0), reciprocal = 1 / c.out_q.scale_at(0);
    const float multiplier = Multiplier(c, n);
    in_range = in_range && multiplier >= kLeast && multiplier < kMost &&
               std::isnormal(x * c.w_q.scale_at(n)) && std::isnormal(x * reciprocal);
  }
  return FirstReason({
      Require(c.out_dtype != DType::kF32 || c.op == Op::kDequantize, "outputs are codes or s32"),
      Require(!c.bias, "no float bias"),
      Require(!c.bias_i32 || (IsConv(c.op) && codes), "only convolutions of codes have a bias"),
      Require(!c.relu, "no relu"),
      Require(c.op != Op::kRescale || c.x.dtype() == c.out_dtype,
              "rescale has one type of input and output"),
      Require(in_range,
              "a multiplier is beyond 2^-31..2^30, or comes from what is no normal float32"),
      Require(!HasWeights(c.op) || !codes || !MayReach2To31(c),
              "sums and half a step of the output may reach 2^31"),
      Require(c.op == Op::kDequantize, WholeRange(c)),
      ZeroPointsAreCodes(c),
  });
}

std::vector<Step> Steps(const Case& c) {
  if (c.op == Op::kDequantize)
    return {{Stage::kScale, "(code - {zero_point}) times {scale}", step::TimesCodeMinusZeroPoint}};
  const Step clamp{Stage::kClamp, "clamp to {low}..{high}", step::Clamp};
  const Step reciprocal{Stage::kScale, "times 1/scale = {reciprocal}", step::TimesReciprocal};
  if (c.op == Op::kQuantize && c.per_channel && c.N > 1) {
    return {reciprocal,
            {Stage::kRound, "round half to even, as float32", step::RoundEven},
            {Stage::kZeroPoint, "+ zero point {zero_point}", step::AddZeroPointFloat},
            {Stage::kClamp, "clamp to {low}..{high}, NaN to {low}", ClampFloat, Rise::kAlways}};
  }
  std::vector<Step> steps;
  if (c.bias_i32) steps.push_back({Stage::kBias, "+ int32 bias {bias_i32}", step::AddBiasI32});
  if (c.out_dtype == DType::kS32) return steps;
  if (HasWeights(c.op) && SharesMultiplier(c)) {
    steps.push_back({Stage::kRound, "times {multiplier}, ties to even, the low 32 bits",
                     TimesMultiplierToEven});
  } else if (HasWeights(c.op)) {
    steps.push_back({Stage::kScale, "to float32", step::ToFloat});
    steps.push_back({Stage::kScale, "times {multiplier}", step::TimesMultiplier});
    steps.push_back({Stage::kRound, "round half to even, saturating", step::RoundArm});
  } else {
    if (c.op == Op::kRescale)
      steps.push_back({Stage::kScale, "(code - {a_zp}) times {a_scale}", ToReal});
    steps.push_back(reciprocal);
    steps.push_back({Stage::kRound, "round half to even, saturating, NaN to 0", step::RoundArm});
  }
  steps.push_back(
      {Stage::kZeroPoint, "+ zero point {zero_point}, wrapping", step::AddZeroPointWrap32});
  steps.push_back(clamp);
  return steps;
}

// The codes of DynamicQuantizeLinear, which divides where QuantizeLinear multiplies.
Convention DividedCodes() {
  Definition definition;
  definition.ops = {Op::kQuantize};
  definition.cannot_run = [](const Case&) { return std::string(); };
  definition.channel = ChannelOf;
  definition.steps = [](const Case&) {
    return std::vector<Step>{
        {Stage::kScale, "divided by scale {scale}", step::DivideByScale},
        {Stage::kRound, "round half to even, saturating, NaN to 0", step::RoundArm},
        {Stage::kZeroPoint, "+ zero point {zero_point}, wrapping", step::AddZeroPointWrap32},
        {Stage::kClamp, "clamp to {low}..{high}", step::Clamp}};
  };
  return MakeConvention(std::move(definition));
}

}  // namespace

std::vector<Convention> TractConventions() {
  Definition definition;
  definition.name = "tract";
  definition.description =
      "tract's QuantizeLinear, DequantizeLinear, QLinearMatMul, QLinearConv and their integer "
      "sisters: exact sums times an exact float32, or one of each channel in float32; zero points "
      "wrap";
  definition.source = "tract core/src/ops/quant.rs, core/src/ops/matmul/quant.rs @ 38b383f";
  definition.satisfies = {"k_permutation", "zero_term_append", "row_independence"};
  AddExactConvClaims(definition.satisfies);
  // Fewer channels may be another list of scales, whose multipliers are made otherwise.
  std::erase(definition.satisfies, "groups_are_separate");
  definition.variations = {"V1", "V2", "V8", "V9", "V14", "V16", "V17"};
  definition.ops = {Op::kQuantize, Op::kDequantize, Op::kRescale,
                    Op::kLinear,   Op::kConv2d,     Op::kDepthwise};
  definition.cannot_run = CannotRun;
  definition.accumulation = ExactSums;
  definition.channel = ChannelOf;
  definition.steps = Steps;
  Convention convention = MakeConvention(std::move(definition));
  // onnx/src/ops/quant.rs, DynamicQuantizeLinear.
  AddOperation(convention, OnnxChooseQParams(RoundNearestEven, DividedCodes(), {0, 0}));
  return {std::move(convention)};
}

}  // namespace qualm::conventions
