// SPDX-License-Identifier: Apache-2.0
// TFLite reference kernels (tflite-micro 90b983c): int8 fully connected
// (kernels/internal/reference/integer_ops/fully_connected.h) in both builds of
// MultiplyByQuantizedMultiplier, and AffineQuantize (reference/quantize.h).
#include <cmath>

#include "oracles/models/convention.h"

namespace qualm::models {
namespace {

void TimesFixedTwice(Value& v, const Channel& c) {
  v.SetInt(MultiplyTwoRoundings(static_cast<int32_t>(v.integer), c.fixed));
}
void TimesFixedOnce(Value& v, const Channel& c) {
  v.SetInt(MultiplyOneRounding(static_cast<int32_t>(v.integer), c.fixed));
}
void Divide(Value& v, const Channel& c) {
  const float before = v.number;
  v.SetReal(before / c.scale);
  v.lossy =
      static_cast<double>(v.number) * static_cast<double>(c.scale) != static_cast<double>(before);
}
void RoundAway(Value& v, const Channel&) {
  // TfLiteRound into int32; what does not fit is undefined there and INT32_MIN as compiled.
  const float before = v.number;
  const float rounded = std::round(before);
  v.lossy = !(rounded >= -0x1p31f && rounded < 0x1p31f);
  v.SetInt(v.lossy ? INT32_MIN : static_cast<int64_t>(rounded));
}

Channel ChannelOf(const Case& c, int64_t n, bool single) {
  Channel channel;
  SetClamp(channel, c);
  if (c.op == Op::kQuantize) {
    channel.scale = c.out_q.scale_at(0);
    channel.zero_point = c.out_q.zero_point_at(0);
    return channel;
  }
  channel.zero_point = c.out_q.zero_point_at(0);
  const double multiplier = HasExplicitMultiplier(c) ? static_cast<double>(c.multiplier[0])
                                                     : static_cast<double>(c.x_q.scale_at(0)) *
                                                           static_cast<double>(c.w_q.scale_at(0)) /
                                                           static_cast<double>(c.out_q.scale_at(0));
  channel.fixed = QuantizeMultiplier(multiplier, single);
  if (c.bias_i32) channel.bias_i32 = (*c.bias_i32)[static_cast<size_t>(n)];
  return channel;
}

std::string CannotRun(const Case& c, bool single) {
  const std::string shared = FirstReason({
      OpsAre(c, {Op::kQuantize, Op::kRequantize, Op::kLinear}),
      Require(!c.per_channel, "per tensor only"),
      Require(!c.bias, "the bias must be int32"),
      Require(LowerBound(c) <= c.out_max, "relu above the upper clamp"),
  });
  if (!shared.empty()) return shared;
  if (c.op == Op::kQuantize) {
    return FirstReason({WholeRange(c), Require(!c.relu, "this function has no fused relu")});
  }
  if (c.op == Op::kLinear && (c.x.dtype() != DType::kS8 || c.w.dtype() != DType::kS8)) {
    return "activations and weights must be s8";
  }
  if (c.out_dtype != DType::kS8) return "output must be s8";
  // Larger shifts are undefined in C++ there.
  const FixedMultiplier fixed = ChannelOf(c, 0, single).fixed;
  return Require(fixed.shift <= (single ? 30 : 31), "the multiplier is too large");
}

Model Make(bool single) {
  Convention convention;
  convention.name = single ? "tflite@single" : "tflite@double";
  convention.description =
      std::string("TFLite reference int8: exact sums, fixed point with ") +
      (single ? "one rounding, ties toward +inf" : "two roundings, ties away from zero");
  convention.source = "tflite-micro kernels/internal/common.cc, reference/ @ 90b983c";
  convention.satisfies = {"k_permutation", "zero_term_append", "row_independence",
                          "column_independence"};
  convention.cannot_run = [single](const Case& c) { return CannotRun(c, single); };
  convention.accumulation = [](const Case&) { return Accumulation{}; };
  convention.channel = [single](const Case& c, int64_t n) { return ChannelOf(c, n, single); };
  convention.steps = [single](const Case& c) {
    std::vector<Step> steps;
    if (c.op == Op::kQuantize) {
      steps.push_back({Stage::kScale, "divided by scale {scale}", Divide});
      steps.push_back({Stage::kRound, "round, ties away from zero", RoundAway});
    } else {
      if (c.bias_i32) {
        steps.push_back({Stage::kBias, "+ int32 bias {bias_i32}", step::AddBiasI32});
      }
      if (single) {
        steps.push_back(
            {Stage::kRound, "times {fixed}*2^({shift}-31), ties toward +inf", TimesFixedOnce});
      } else {
        steps.push_back({Stage::kRound,
                         "times {fixed}*2^({shift}-31), rounded twice, ties away from zero",
                         TimesFixedTwice});
      }
    }
    steps.push_back(
        {Stage::kZeroPoint, "+ zero point {zero_point}, wrapping", step::AddZeroPointWrap32});
    steps.push_back({Stage::kClamp, "clamp to {low}..{high}", step::Clamp});
    return steps;
  };
  return MakeModel(std::move(convention));
}

}  // namespace

std::vector<Model> TfliteModels() { return {Make(false), Make(true)}; }

}  // namespace qualm::models
