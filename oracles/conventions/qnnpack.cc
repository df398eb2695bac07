// SPDX-License-Identifier: Apache-2.0
// QNNPACK as PyTorch 1.13 and 2.6 use it on x86 (aten/.../quantized/cpu/qnnpack:
// q8gemm/4x4c2-sse2.c, q8conv, q8dwconv, the fp32 requantization; QnnpackUtils.h
// generateRequantizationScales; QuantizeBias). Products of offset-free int16 values are exact, taps
// in the padding are real 0. add is fixed point (q8vadd/sse2.c; add.c, pytorch_qnnp_compute_add_
// quantization_params): two multipliers with one common exponent, ties away from zero. mul,
// quantize and dequantize are ATen's own (aten.cc).
#include <algorithm>
#include <cmath>

#include "oracles/conventions/aten.h"
#include "oracles/conventions/definition.h"
#include "oracles/conventions/torch_operators.h"

namespace qualm::conventions {
namespace {

constexpr Step kBias{Stage::kBias, "+ bias in accumulator units {bias_i32}", step::AddBiasI32};
const Step kEpilogue[] = {
    {Stage::kScale, "to float32", step::ToFloat},
    {Stage::kScale, "times fl(fl(w_scale*x_scale)*fl(1/out_scale)) {multiplier}",
     step::TimesMultiplier},
    {Stage::kRound, "cvtps2dq, ties to even", step::RoundX86},
    {Stage::kZeroPoint, "to int16, + zero point {zero_point}, saturating", step::AddZeroPointSat16},
    {Stage::kClamp, "clamp to {low}..{high}", step::Clamp},
};

// add: both scales over the output's as integers below 2^22 with one exponent.
void AddTerms(Value& v, const Channel& c) {
  const int64_t a = v.integer - c.a.zero_point, b = int64_t{v.second} - c.b.zero_point;
  const int64_t sum = a * c.a.fixed.value + b * c.b.fixed.value;
  v.SetInt(Wrap32(sum));
  v.lossy = v.integer != sum || c.operands_rounded;
}
void ShiftAway(Value& v, const Channel& c) {
  const auto before = static_cast<int32_t>(v.integer);
  v.SetInt(RoundingDivideByPot(before, c.fixed.shift));
}
const Step kAdd[] = {
    {Stage::kAccumulate,
     "{a_fixed}*(a - {a_zp}) + {b_fixed}*({b} - {b_zp}), the factors a scale over the output's "
     "times 2^{shift}, rounded",
     AddTerms},
    {Stage::kRound, "/ 2^{shift}, ties away from zero", ShiftAway},
    {Stage::kZeroPoint, "to int16, + zero point {zero_point}, saturating", step::AddZeroPointSat16},
    {Stage::kClamp, "clamp to {low}..{high}", step::Clamp},
};

std::string CannotAdd(const Case& c) {
  const auto inside = [&](const QParams& q) {
    const float ratio = q.scale[0] / c.out_q.scale[0];
    return ratio >= 0x1p-14f && ratio < 0x1p8f;
  };
  return FirstReason({
      Require(c.x.dtype() == DType::kU8 && c.out_dtype == DType::kU8,
              "operands and output must be u8"),
      ZeroPointsAreCodes(c),
      Require(LowerBound(c) < c.out_max, "the clamp must leave two codes"),
      Require(std::isnormal(c.x_q.scale[0]) && std::isnormal(c.w_q.scale[0]) &&
                  std::isnormal(c.out_q.scale[0]),
              "scales must be normal numbers"),
      Require(inside(c.x_q) && inside(c.w_q),
              "the scale of an operand over that of the output must lie in [2^-14, 2^8)"),
      // Otherwise the shift exceeds 31, which is undefined there.
      Require(std::max(c.x_q.scale[0], c.w_q.scale[0]) / c.out_q.scale[0] >= 0x1p-10f,
              "one operand's scale over that of the output must be at least 2^-10"),
  });
}

bool IsAtens(Op op) { return op == Op::kQuantize || op == Op::kDequantize || op == Op::kMul; }

// A convolution that is a product of matrices (QnnpackUtils.h, PackedConvWeightsQnnp).
bool IsGemm(const Window& v) {
  return v.kernel_h * v.kernel_w == 1 && v.stride_h == 1 && v.stride_w == 1 && !v.has_padding();
}

// All other convolutions pack `b ? b[i] : 0.0f`, whose type is float, as int32 (pack.h,
// pytorch_pack_q8conv_wrq and pytorch_pack_q8dw_*): a bias beyond 2^24 is rounded, and a bias that
// is rounded to 2^31 becomes INT32_MIN.
int32_t ThroughFloat(int32_t bias) {
  const auto number = static_cast<float>(bias);
  return number < 0x1p31f ? static_cast<int32_t>(number) : INT32_MIN;
}

// `saturates`: the build's quantize_val is FBGEMM's, which clips in double.
Channel ChannelOf(const Case& c, int64_t n, bool saturates) {
  if (IsAtens(c.op)) return AtenChannel(c, n);
  if (c.op == Op::kAdd) return FixedPointAddChannel(c, 22);
  Channel channel;
  SetClamp(channel, c);
  channel.zero_point = c.out_q.zero_point_at(0);
  if (HasExplicitMultiplier(c)) {
    channel.multiplier = ExplicitMultiplier(c, n);
    return channel;
  }
  channel.accumulator_scale = c.w_q.scale_at(n) * c.x_q.scale_at(0);
  channel.multiplier = channel.accumulator_scale * (1.0f / c.out_q.scale_at(0));
  double units = 0;
  if (c.bias_i32) {
    channel.bias_i32 = (*c.bias_i32)[static_cast<size_t>(n)];
    units = channel.bias_i32;
  }
  if (c.bias) {
    // quantize_per_tensor to qint32 with scale x_scale*w_scale.
    const float exact = (*c.bias)[static_cast<size_t>(n)] * (1.0f / channel.accumulator_scale);
    channel.bias_i32 = saturates
                           ? static_cast<int32_t>(std::fmin(
                                 std::fmax(double{RoundNearestEven(exact)}, INT32_MIN), INT32_MAX))
                           : static_cast<int32_t>(
                                 std::clamp<int64_t>(ConvertX86To64(exact), INT32_MIN, INT32_MAX));
    units = static_cast<double>(exact);
  }
  if (IsConv(c.op) && !IsGemm(c.window)) channel.bias_i32 = ThroughFloat(channel.bias_i32);
  channel.bias_rounded = static_cast<double>(channel.bias_i32) != units;
  return channel;
}

std::string CannotRun(const Case& c, bool saturates) {
  if (c.op == Op::kMul && c.x.dtype() != DType::kU8) return "operands must be u8";
  if (IsAtens(c.op)) return AtenCannotRun(c);
  if (c.op == Op::kAdd) return CannotAdd(c);
  const std::string types = FirstReason({
      ZeroPointsAreCodes(c),
      Require(!HasSums(c) || c.x.dtype() == DType::kU8, "activations must be u8"),
      Require(!HasSums(c) || c.w.dtype() == DType::kS8, "weights must be s8"),
      Require(c.out_dtype == DType::kU8, "output must be u8"),
      Require(LowerBound(c) <= c.out_max, "relu above the upper clamp"),
  });
  if (!types.empty()) return types;
  // PyTorch appends eight channels whose weights have the scale 1 (QnnpackUtils.h,
  // make_zero_points_and_scales_tensor), and checks the multiplier of those channels too.
  if (HasSums(c) && !std::isnormal(c.x_q.scale[0] * (1.0f / c.out_q.scale[0]))) {
    return "x_scale*(1/out_scale) must be finite, positive and normal";
  }
  for (int64_t n = 0; n < c.N; ++n) {
    const Channel channel = ChannelOf(c, n, saturates);
    if (!std::isnormal(channel.multiplier)) {
      return "the requantization scale must be finite, positive and normal";
    }
    // PyTorch quantizes the bias (zeros where there is none) to qint32 by this reciprocal
    // (QuantUtils.h, QuantizeBias). An infinite reciprocal makes NaN of 0, and NaN becomes the bias
    // INT32_MIN.
    if (HasSums(c) && !c.bias_i32 && !std::isfinite(1.0f / channel.accumulator_scale)) {
      return "the reciprocal of x_scale*w_scale must be finite";
    }
  }
  return "";
}

Convention Make(bool saturates) {
  Definition definition;
  definition.name = "qnnpack";
  definition.description = "PyTorch's QNNPACK on x86: exact sums, float multiplier, int32 bias";
  definition.source =
      "PyTorch 1.13.1 aten/src/ATen/native/quantized/cpu/qnnpack/src/q8gemm/4x4c2-sse2.c";
  definition.satisfies = {"k_permutation",
                          "zero_term_append",
                          "row_independence",
                          "column_independence",
                          "per_channel_equals_per_tensor",
                          "identity_weights",
                          "commutes",
                          "add.is_monotone"};
  definition.variations = {"V1", "V2", "V4", "V7", "V8", "V9", "V15", "V16", "V17"};
  definition.ops = {Op::kQuantize, Op::kDequantize, Op::kRequantize, Op::kLinear,
                    Op::kConv2d,   Op::kDepthwise,  Op::kAdd,        Op::kMul};
  for (const Op op : definition.ops) {
    if (op != Op::kRequantize)
      definition.satisfies.push_back(std::string(Name(op)) + ".zero_point_shift");
  }
  AddExactConvClaims(definition.satisfies);
  // A 1x1 convolution with a stride or padding leaves the gemm, which alone keeps a large bias.
  std::erase(definition.satisfies, "padding_is_explicit");
  std::erase(definition.satisfies, "stride_is_subsample");
  std::erase(definition.satisfies, "one_by_one_is_linear");
  definition.cannot_run = [saturates](const Case& c) { return CannotRun(c, saturates); };
  definition.accumulation = ExactSums;
  definition.channel = [saturates](const Case& c, int64_t n) { return ChannelOf(c, n, saturates); };
  definition.steps = [](const Case& c) {
    if (IsAtens(c.op)) return AtenSteps(c);
    if (c.op == Op::kAdd) return std::vector<Step>(std::begin(kAdd), std::end(kAdd));
    std::vector<Step> steps;
    if (c.bias || c.bias_i32) steps.push_back(kBias);
    steps.insert(steps.end(), std::begin(kEpilogue), std::end(kEpilogue));
    return steps;
  };
  return MakeConvention(std::move(definition));
}

}  // namespace

std::vector<Convention> QnnpackConventions() { return {Make(false)}; }

Convention QnnpackOfWheels() { return Make(true); }

}  // namespace qualm::conventions
