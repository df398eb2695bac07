// SPDX-License-Identifier: Apache-2.0
// QNNPACK as PyTorch 1.13 and 2.6 use it on x86 (aten/.../quantized/cpu/qnnpack:
// q8gemm/4x4c2-sse2.c, the fp32 requantization; QnnpackUtils.h generateRequantizationScales;
// QuantizeBias). Products of offset-free int16 values are exact. quantize and dequantize are ATen's
// scalar ones (aten.cc).
#include <cmath>

#include "oracles/models/aten.h"
#include "oracles/models/convention.h"

namespace qualm::models {
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

Channel ChannelOf(const Case& c, int64_t n) {
  if (c.op == Op::kQuantize || c.op == Op::kDequantize) return AtenChannel(c, n);
  Channel channel;
  SetClamp(channel, c);
  channel.zero_point = c.out_q.zero_point_at(0);
  if (HasExplicitMultiplier(c)) {
    channel.multiplier = c.multiplier[c.multiplier.size() == 1 ? 0 : static_cast<size_t>(n)];
    return channel;
  }
  channel.accumulator_scale = c.w_q.scale_at(n) * c.x_q.scale_at(0);
  channel.multiplier = channel.accumulator_scale * (1.0f / c.out_q.scale_at(0));
  if (c.bias_i32) channel.bias_i32 = (*c.bias_i32)[static_cast<size_t>(n)];
  if (c.bias) {
    // quantize_per_tensor to qint32 with scale x_scale*w_scale.
    const float units = (*c.bias)[static_cast<size_t>(n)] * (1.0f / channel.accumulator_scale);
    channel.bias_i32 =
        static_cast<int32_t>(std::clamp<int64_t>(ConvertX86To64(units), INT32_MIN, INT32_MAX));
    channel.bias_rounded = static_cast<double>(channel.bias_i32) != static_cast<double>(units);
  }
  return channel;
}

std::string CannotRun(const Case& c) {
  if (c.op == Op::kQuantize || c.op == Op::kDequantize) return AtenCannotRun(c);
  const std::string types = FirstReason({
      ZeroPointsAreCodes(c),
      Require(c.op != Op::kLinear || c.x.dtype() == DType::kU8, "activations must be u8"),
      Require(c.op != Op::kLinear || c.w.dtype() == DType::kS8, "weights must be s8"),
      Require(c.out_dtype == DType::kU8, "output must be u8"),
      Require(LowerBound(c) <= c.out_max, "relu above the upper clamp"),
  });
  if (!types.empty()) return types;
  for (int64_t n = 0; n < c.N; ++n) {
    const Channel channel = ChannelOf(c, n);
    if (!std::isnormal(channel.multiplier)) {
      return "the requantization scale must be finite, positive and normal";
    }
    if (c.bias && !std::isnormal(channel.accumulator_scale)) {
      return "a float bias needs a normal x_scale*w_scale";
    }
  }
  return "";
}

}  // namespace

std::vector<Model> QnnpackModels() {
  Convention convention;
  convention.name = "qnnpack";
  convention.description = "PyTorch's QNNPACK on x86: exact sums, float multiplier, int32 bias";
  convention.source =
      "PyTorch 1.13.1 aten/src/ATen/native/quantized/cpu/qnnpack/src/q8gemm/4x4c2-sse2.c";
  convention.satisfies = {"k_permutation",       "zero_term_append",
                          "zero_point_shift",    "row_independence",
                          "column_independence", "per_channel_equals_per_tensor"};
  convention.cannot_run = CannotRun;
  convention.accumulation = [](const Case&) { return Accumulation{}; };
  convention.channel = ChannelOf;
  convention.steps = [](const Case& c) {
    if (c.op == Op::kQuantize || c.op == Op::kDequantize) return AtenSteps(c);
    std::vector<Step> steps;
    if (c.bias || c.bias_i32) steps.push_back(kBias);
    steps.insert(steps.end(), std::begin(kEpilogue), std::end(kEpilogue));
    return steps;
  };
  return {MakeModel(std::move(convention))};
}

}  // namespace qualm::models
