// SPDX-License-Identifier: Apache-2.0
// ncnn's int8 layers with float32 outputs (ncnn 20261020, src/layer/x86/innerproduct_x86.cpp and
// src/layer/x86/convolution_x86.cpp with convolution_im2col_gemm_int8.h): exact int32 sums that
// wrap, times one float32, 1/fl(rx*rw) of the reciprocals of both scales, then the bias:
// InnerProduct rounds product and sum, Convolution rounds once.
#include <cmath>

#include "oracles/conventions/definition.h"

namespace qualm::conventions {
namespace {

// Beyond these a reciprocal or a product of two is no normal float32.
constexpr float kLeast = 0x1p-60F;
constexpr float kMost = 0x1p+60F;

Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel;
  channel.a = {c.x_q.scale_at(0), 0, {}};
  channel.b = {c.w_q.scale_at(n), 0, {}};
  channel.multiplier = 1 / ((1 / channel.a.scale) * (1 / channel.b.scale));
  channel.accumulator_scale = channel.multiplier;
  if (c.bias) channel.bias = (*c.bias)[static_cast<size_t>(n)];
  return channel;
}

bool HoldsLeast(const Tensor& codes) {
  for (int64_t i = 0; i < codes.size(); ++i) {
    if (codes.IntAt(i) == -128) return true;
  }
  return false;
}

std::string CannotRun(const Case& c) {
  bool scales = true;
  for (int64_t n = 0; n < c.N; ++n) {
    for (const float scale : {c.x_q.scale_at(0), c.w_q.scale_at(n)})
      scales = scales && scale >= kLeast && scale <= kMost;
  }
  return FirstReason({
      Require(c.x.dtype() == DType::kS8 && c.w.dtype() == DType::kS8, "inputs must be s8"),
      Require(c.out_dtype == DType::kF32, "outputs must be f32"),
      Require(c.x_q.zero_point_at(0) == 0, "no zero points"),
      Require(WeightZeroPointsAre(c, 0), "no zero points"),
      Require(!c.bias_i32, "the bias must be float32"),
      Require(scales, "a scale is beyond 2^-60..2^60"),
      Require(c.op != Op::kConv2d || !HoldsLeast(c.x),
              "a convolution takes -128 times a negative weight for the negative of that"),
  });
}

std::vector<Step> Steps(const Case& c) {
  std::vector<Step> steps{{Stage::kScale, "to float32", step::ToFloat}};
  if (c.op == Op::kConv2d && c.bias) {
    steps.push_back({Stage::kScale, "times {multiplier} + bias {bias}, rounded once",
                     step::TimesMultiplierPlusBias});
  } else {
    steps.push_back({Stage::kScale, "times {multiplier}", step::TimesMultiplier});
    if (c.bias) steps.push_back({Stage::kBias, "+ bias {bias}", step::AddBiasFloat});
  }
  if (c.relu) steps.push_back({Stage::kClamp, "relu", step::Relu});
  return steps;
}

}  // namespace

std::vector<Convention> NcnnConventions() {
  Definition definition;
  definition.name = "ncnn";
  definition.description =
      "ncnn's int8 InnerProduct and Convolution (without Winograd) with float32 outputs: exact "
      "sums times one float32 of two rounded reciprocals";
  definition.source = "ncnn 20261020 src/layer/x86/innerproduct_x86.cpp, convolution_x86.cpp";
  definition.satisfies = {"k_permutation", "zero_term_append", "row_independence",
                          "column_independence"};
  definition.variations = {"V1", "V16", "V19"};
  definition.ops = {Op::kLinear, Op::kConv2d};
  AddExactConvClaims(definition.satisfies);
  std::erase(definition.satisfies, "one_by_one_is_linear");
  definition.cannot_run = CannotRun;
  definition.accumulation = ExactSums;
  definition.channel = ChannelOf;
  definition.steps = Steps;
  return {MakeConvention(std::move(definition))};
}

}  // namespace qualm::conventions
