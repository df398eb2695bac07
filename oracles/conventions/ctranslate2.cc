// SPDX-License-Identifier: Apache-2.0
// CTranslate2's int8 layers (OpenNMT/CTranslate2 v4.8.1 src/cpu/kernels.cc, quantize_s8_row and
// dequantize_gemm_output_row): of each row 127 over its largest value is the scale a, and a model
// stores reciprocals of the scales of weights. Exact int32 sums that wrap, times fl(1/a), over the
// reciprocal, plus the bias, each rounded. Here x has the codes of an int8 embedding, and the
// largest value of each row has the code 127.
#include <algorithm>

#include "oracles/conventions/definition.h"

namespace qualm::conventions {
namespace {

// Beyond these a reciprocal or a product of two is no normal float32.
constexpr float kLeast = 0x1p-60F;
constexpr float kMost = 0x1p+60F;

Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel;
  channel.a.scale = c.x_q.scale_at(0);
  channel.b.scale = c.w_q.scale_at(n);
  const float unit = 1 / (1 / channel.a.scale);  // of the embedding
  const float row_scale = 127 / (127 * unit);
  channel.multiplier = 1 / row_scale;
  channel.accumulator_scale = channel.a.scale * channel.b.scale;
  channel.scale = 1 / channel.b.scale;
  if (c.bias) channel.bias = (*c.bias)[static_cast<size_t>(n)];
  return channel;
}

bool InRange(float scale) { return scale >= kLeast && scale <= kMost; }

bool HoldsLeast(const Tensor& codes) { return std::ranges::count(codes.as<int8_t>(), -128) != 0; }

std::string CannotRun(const Case& c) {
  const bool s8 = c.x.dtype() == DType::kS8 && c.w.dtype() == DType::kS8;
  return FirstReason({
      Require(s8, "inputs must be s8"),
      Require(c.out_dtype == DType::kF32, "outputs must be f32"),
      Require(c.x_q.zero_point_at(0) == 0 && WeightZeroPointsAre(c, 0), "no zero points"),
      Require(!c.bias_i32, "the bias must be float32"),
      Require(!c.relu, "no relu"),
      Require(InRange(c.x_q.scale_at(0)) && std::ranges::all_of(c.w_q.scale, InRange),
              "a scale is beyond 2^-60..2^60"),
      Require(!s8 || !HoldsLeast(c.x), "no value has the code -128"),
  });
}

std::vector<Step> Steps(const Case& c) {
  std::vector<Step> steps{
      {Stage::kScale, "to float32", step::ToFloat},
      {Stage::kScale, "times the scale of the row {multiplier}", step::TimesMultiplier},
      {Stage::kScale, "divided by the reciprocal scale of w {scale}", step::DivideByScale}};
  if (c.bias) steps.push_back({Stage::kBias, "+ bias {bias}", step::AddBiasFloat});
  return steps;
}

}  // namespace

std::vector<Convention> Ctranslate2Conventions() {
  Definition definition;
  definition.name = "ctranslate2";
  definition.description =
      "CTranslate2's int8 layers: exact sums times the scale of the row, over the reciprocal scale "
      "of the weights";
  definition.source = "OpenNMT/CTranslate2 v4.8.1 src/cpu/kernels.cc";
  definition.satisfies = {"k_permutation", "zero_term_append", "row_independence",
                          "column_independence"};
  definition.variations = {"V1", "V16", "V19"};
  definition.ops = {Op::kLinear};
  definition.cannot_run = CannotRun;
  definition.accumulation = ExactSums;
  definition.channel = ChannelOf;
  definition.steps = Steps;
  return {MakeConvention(std::move(definition))};
}

}  // namespace qualm::conventions
