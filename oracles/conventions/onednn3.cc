// SPDX-License-Identifier: Apache-2.0
// oneDNN 3.7.2 as PyTorch 2.6 calls it: all as in 2.6.3, but for the scales of sums of products.
// They arrive as reciprocals of reciprocals (ideep at 17b47f4, include/ideep/operators/matmul.hpp
// and conv.hpp), the bias is added in real units, and the output scale is a second multiplication
// (src/cpu/x64/brgemm/jit_brgemm_kernel.cpp, store_accumulators_apply_post_ops;
// jit_gemm_inner_product_utils.cpp, compute_oc_channel_blk).
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/conventions/onednn2.h"
#include "oracles/conventions/requirements.h"
#include "oracles/conventions/torch_operators.h"

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

// 3.10 with AVX-512 multiplies by the two scales one after the other, and ideep of then passes the
// scales of a convolution's weights as they are.
float WeightScale310(const Case& c, int64_t n) {
  const float scale = c.w_q.scale_at(n);
  return IsConv(c.op) ? scale : 1.0f / Inverse(scale);
}
Channel SumsChannel310(const Case& c, int64_t n, float inverse_x_scale) {
  Channel channel = SumsChannel(c, n, inverse_x_scale);
  channel.accumulator_scale = (1.0f / inverse_x_scale) * WeightScale310(c, n);
  channel.a.scale = 1.0f / inverse_x_scale;
  channel.b.scale = WeightScale310(c, n);
  if (IsCode(c.out_dtype)) channel.scale = 1.0f / Inverse(c.out_q.scale_at(0));
  return channel;
}
Channel SumsChannel310Avx512(const Case& c, int64_t n, float inverse_x_scale) {
  Channel channel = SumsChannel(c, n, inverse_x_scale);
  channel.a.scale = 1.0f / inverse_x_scale;
  channel.b.scale = WeightScale310(c, n);
  return channel;
}
void HalveAndDouble310(Channel& channel) { channel.b.scale = channel.b.scale * 2.0f * 0.5f; }
void TimesScaleOfX(Value& v, const Channel& c) { MultiplyInto(v, v.number, c.a.scale); }
void TimesScaleOfW(Value& v, const Channel& c) { MultiplyInto(v, v.number, c.b.scale); }

std::vector<Step> ToReal310(const Case& c) {
  if (c.out_dtype == DType::kS32) return {};
  std::vector<Step> steps = {{Stage::kScale, "times fl(1/isx) {a_scale}", TimesScaleOfX},
                             {Stage::kScale, "times the scale of w {b_scale}", TimesScaleOfW}};
  if (c.bias) steps.push_back({Stage::kBias, "+ bias {bias}", AddBias});
  return steps;
}

// The reference of AVX2, which takes groups that fill no blocks, multiplies by the scales in turn,
// and divides by that of the output.
bool IsReference310(const Case& c) {
  const Window& v = c.window;
  const bool blocked = v.in_c / v.groups % 4 == 0 && c.N / v.groups % 4 == 0;
  return v.groups > 1 && !blocked && !IsPlainDepthwise(c);
}
std::vector<Step> ToReal310Avx2(const Case& c) {
  return IsConv(c.op) && IsReference310(c) ? ToReal310(c) : ToReal(c);
}
std::vector<Step> ToOutput310Avx2(const Case& c) {
  if (!IsConv(c.op) || !IsReference310(c) || !IsCode(c.out_dtype)) return ToOutput(c);
  return {{Stage::kScale, "over fl(1/iso) {scale}", step::DivideByScale}};
}

// The offsets of tiles are int32, and come before the scales.
std::vector<Step> NoSteps(const Case&) { return {}; }
constexpr OneDnnScaling kScaling310 = {
    .channel = SumsChannel310,
    .halve_and_double = HalveAndDouble,
    .before_offsets = NoSteps,
    .after_offsets = ToReal310Avx2,
    .after_relu = ToOutput310Avx2,
};
constexpr OneDnnScaling kScaling310Avx512 = {
    .channel = SumsChannel310Avx512,
    .halve_and_double = HalveAndDouble310,
    .before_offsets = NoSteps,
    .after_offsets = ToReal310,
    .after_relu = ToOutput,
};

const OneDnnScaling& Scaling310(const OneDnnIsa& isa) {
  return isa.avx512 ? kScaling310Avx512 : kScaling310;
}

// The matmul of linear_dynamic, which knows the scale of x only when it runs.
Convention DynamicMatmul(OneDnnIsa isa, float inverse_x_scale) {
  Definition definition = OneDnnDefinition(isa, Scaling310(isa));
  definition.channel = [channel = Scaling310(isa).channel, inverse_x_scale](
                           const Case& c, int64_t n) { return channel(c, n, inverse_x_scale); };
  return MakeConvention(std::move(definition));
}

bool HasGroupsOfOneChannel(const Case& c) {
  return c.window.groups > 1 && c.window.in_c == c.window.groups && !IsPlainDepthwise(c);
}

// On AVX-512 convolutions of one channel in each group are lowered, and some groups whose kernel is
// one column: which taps are neighbours, and saturate as pairs, depends on sizes and blocks.
std::string TapsMakeNoPairs(const Case& c) {
  const Window& v = c.window;
  const bool single = v.in_c == 1 || HasGroupsOfOneChannel(c);
  const bool column = v.groups > 1 && !IsPlainDepthwise(c) && v.kernel_w == 1;
  return Require(!IsConv(c.op) || v.kernel_h * v.kernel_w == 1 || !(single || column),
                 "which taps saturate as pairs is not known");
}

// Under an infinite scale a sum of 0 makes NaN, which these kernels turn into one end of the range
// or the other.
std::string LoweredGroupsMakeNoNan(const Case& c) {
  return Require(!IsConv(c.op) || !HasGroupsOfOneChannel(c) ||
                     std::isfinite(1.0f / Inverse(c.x_q.scale_at(0))),
                 "which end of the range NaN becomes is not known");
}

OneDnnIsa OfVersion3(std::string_view name) {
  OneDnnIsa isa = *FindOneDnnIsa(name);
  isa.version = 3;
  isa.brgemm = isa.avx512;
  return isa;
}

}  // namespace

// The others were not run.
std::vector<Convention> OneDnn3Conventions() {
  std::vector<Convention> conventions;
  const auto add = [&](const OneDnnIsa& isa, const OneDnnScaling& scaling, std::string release,
                       const char* source) {
    Definition definition = OneDnnDefinition(isa, scaling);
    definition.name = "onednn" + release + "@" + std::string(isa.name);
    definition.description = "oneDNN " + (release == "3" ? "3.7" : release) + " matmul on " +
                             std::string(isa.name) +
                             (isa.vnni ? ": exact sums" : ": saturating int16 pairs") +
                             ", bias in real units, zero point added before rounding";
    definition.source = source;
    conventions.push_back(MakeConvention(std::move(definition)));
  };
  for (const char* name : {"sse41", "avx2", "avx512core", "vnni"}) {
    add(OfVersion3(name), kScaling, "3",
        "oneDNN 3.7.2 src/cpu/x64; ideep 17b47f4 operators/matmul.hpp, conv.hpp");
  }
  for (const char* name : {"avx2", "avx512core", "vnni", "amx"}) {
    OneDnnIsa isa = OfVersion3(name);
    isa.transposes = false;  // the reorder sums the weights of 8 by 8 tiles too
    add(isa, Scaling310(isa), "3.10", "oneDNN 3.10.2 and 3.12.0 src/cpu/x64");
    // Convolutions take the scales of weights as they are, matmul by reciprocals.
    std::erase(conventions.back().satisfies, "one_by_one_is_linear");
    if (isa.avx512) {
      conventions.back().cannot_run = [all = conventions.back().cannot_run,
                                       pairs = !isa.vnni](const Case& c) {
        return FirstReason({all(c), pairs ? TapsMakeNoPairs(c) : "", LoweredGroupsMakeNoNan(c)});
      };
    }
    AddOperation(conventions.back(), OneDnnDynamicLinear(isa, DynamicMatmul));
  }
  return conventions;
}

}  // namespace qualm::conventions
