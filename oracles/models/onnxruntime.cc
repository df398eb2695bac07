// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime 1.21 MLAS on x86: QLinearMatMul (qgemm.cpp, quantize.cpp MlasRequantizeOutput) and
// QuantizeLinear (MlasQuantizeLinear). u8*s8 products go through vpmaddubsw on AVX2; u8*u8 and
// s8*s8 are exact everywhere.
#include <cmath>

#include "oracles/models/convention.h"

namespace qualm::models {
namespace {

using Kind = Accumulation::Kind;

void MaxLow(Value& v, const Channel& c) {
  const bool nan = std::isnan(v.number);
  v.SetReal(MaxPs(v.number, static_cast<float>(int64_t{c.low} - c.zero_point)));
  v.lossy = nan;
}
void Divide(Value& v, const Channel& c) {
  const float before = v.number;
  v.SetReal(before / c.scale);
  v.lossy =
      static_cast<double>(v.number) * static_cast<double>(c.scale) != static_cast<double>(before);
}

const Step kEnd[] = {
    {Stage::kClamp, "maxps with {low} - {zero_point}", MaxLow},
    {Stage::kClamp, "minps with {high} - {zero_point}", step::MinHigh},
    {Stage::kRound, "cvtps2dq, ties to even", step::RoundX86},
    {Stage::kZeroPoint, "+ zero point {zero_point}", step::AddZeroPointWrap32},
};

Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel;
  channel.low = c.out_min;
  channel.high = c.out_max;
  if (c.op == Op::kQuantize) {
    channel.scale = c.out_q.scale_at(n);
    channel.zero_point = c.out_q.zero_point_at(n);
    return channel;
  }
  channel.zero_point = c.out_q.zero_point_at(0);
  channel.multiplier = c.x_q.scale_at(0) * c.w_q.scale_at(n) / c.out_q.scale_at(0);
  return channel;
}

std::string CannotRun(const Case& c) {
  const bool u8s8 = c.x.dtype() == DType::kU8 && c.w.dtype() == DType::kS8;
  return FirstReason({
      OpsAre(c, {Op::kQuantize, Op::kLinear}),
      ZeroPointsAreCodes(c),
      WholeRange(c),
      Require(!c.relu && !c.bias && !c.bias_i32, "this operator has no bias and no relu"),
      Require(IsCode(c.out_dtype), "output must be u8 or s8"),
      Require(c.op != Op::kLinear || u8s8 || c.x.dtype() == c.w.dtype(),
              "s8 activations need s8 weights"),
  });
}

Model Make(const std::string& isa, bool pairs) {
  Convention convention;
  convention.name = "onnxruntime@" + isa;
  convention.description = "ONNX Runtime MLAS on " + isa +
                           (pairs ? ": u8*s8 in saturating int16 pairs" : ": exact sums") +
                           ", clamp before rounding";
  convention.source = "ONNX Runtime 1.21 onnxruntime/core/mlas/lib";
  convention.pair_saturates = pairs;
  convention.satisfies = {"row_independence", "column_independence",
                          "per_channel_equals_per_tensor", "zero_maps_to_zero_point"};
  if (!pairs) {
    convention.satisfies.emplace_back("k_permutation");
    convention.satisfies.emplace_back("zero_term_append");
    convention.satisfies.emplace_back("zero_point_shift");
  }
  convention.cannot_run = CannotRun;
  convention.accumulation = [pairs](const Case& c) {
    const bool u8s8 = c.x.dtype() == DType::kU8 && c.w.dtype() == DType::kS8;
    return Accumulation{pairs && u8s8 ? Kind::kPairs : Kind::kExact, 0};
  };
  convention.channel = ChannelOf;
  convention.steps = [](const Case& c) {
    std::vector<Step> steps;
    if (c.op == Op::kQuantize) {
      steps.push_back({Stage::kScale, "divided by scale {scale}", Divide});
    } else {
      steps.push_back({Stage::kScale, "to float32", step::ToFloat});
      steps.push_back({Stage::kScale, "times {multiplier}", step::TimesMultiplier});
    }
    steps.insert(steps.end(), std::begin(kEnd), std::end(kEnd));
    return steps;
  };
  return MakeModel(std::move(convention));
}

}  // namespace

std::vector<Model> OnnxRuntimeModels() {
  return {Make("sse41", false), Make("avx2", true), Make("vnni", false)};
}

}  // namespace qualm::models
