// SPDX-License-Identifier: Apache-2.0
// oneDNN 3.7.2 as PyTorch 2.6 calls it: all as in 2.6.3, but for the scales of sums of products.
// They arrive as reciprocals of reciprocals (ideep at 17b47f4, include/ideep/operators/matmul.hpp
// and conv.hpp), the bias is added in real units, and the output scale is a second multiplication
// (src/cpu/x64/brgemm/jit_brgemm_kernel.cpp, store_accumulators_apply_post_ops;
// jit_gemm_inner_product_utils.cpp, compute_oc_channel_blk).
#include <utility>

#include "oracles/conventions/onednn2.h"

namespace qualm::conventions {
namespace {

float Inverse(float scale) { return static_cast<float>(1.0 / static_cast<double>(scale)); }

Channel SumsChannel(const Case& c, int64_t n, float inverse_x_scale) {
  Channel channel;
  SetOneDnnRange(channel, c);
  channel.accumulator_scale = (1.0f / inverse_x_scale) * (1.0f / Inverse(c.w_q.scale_at(n)));
  if (IsCode(c.out_dtype)) channel.multiplier = 1.0f / (1.0f / Inverse(c.out_q.scale_at(0)));
  if (c.bias) channel.bias = (*c.bias)[static_cast<size_t>(n)];
  return channel;
}
void HalveAndDouble(Channel& channel) {
  channel.accumulator_scale = channel.accumulator_scale * 2.0f * 0.5f;
}

void TimesAccumulatorScale(Value& v, const Channel& c) {
  MultiplyInto(v, v.number, c.accumulator_scale);
}
void AddBias(Value& v, const Channel& c) { AddInto(v, v.number, c.bias); }

std::vector<Step> ToReal(const Case& c) {
  if (c.out_dtype == DType::kS32) return {};
  std::vector<Step> steps = {
      {Stage::kScale, "times fl(fl(1/isx)*fl(1/isw)) {accumulator_scale}", TimesAccumulatorScale}};
  if (c.bias) steps.push_back({Stage::kBias, "+ bias {bias}", AddBias});
  return steps;
}
std::vector<Step> ToOutput(const Case& c) {
  if (!IsCode(c.out_dtype)) return {};
  return {{Stage::kScale, "times fl(1/fl(1/iso)) {multiplier}", step::TimesMultiplier}};
}

constexpr OneDnnScaling kScaling = {
    .channel = SumsChannel,
    .halve_and_double = HalveAndDouble,
    .before_offsets = ToReal,
    .after_offsets = [](const Case&) { return std::vector<Step>(); },
    .after_relu = ToOutput,
};

}  // namespace

// The others were not run.
std::vector<Convention> OneDnn3Conventions() {
  std::vector<Convention> conventions;
  for (const char* name : {"sse41", "avx2", "avx512core", "vnni"}) {
    OneDnnIsa isa = *FindOneDnnIsa(name);
    isa.version = 3;
    isa.brgemm = isa.avx512;
    Definition definition = OneDnnDefinition(isa, kScaling);
    definition.name = "onednn3@" + std::string(isa.name);
    definition.description = "oneDNN 3.7 matmul on " + std::string(isa.name) +
                             (isa.vnni ? ": exact sums" : ": saturating int16 pairs") +
                             ", bias in real units, zero point added before rounding";
    definition.source = "oneDNN 3.7.2 src/cpu/x64; ideep 17b47f4 operators/matmul.hpp, conv.hpp";
    conventions.push_back(MakeConvention(std::move(definition)));
  }
  return conventions;
}

}  // namespace qualm::conventions
