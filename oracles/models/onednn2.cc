// SPDX-License-Identifier: Apache-2.0
// oneDNN 2.6.3 on x86: matmul of u8 or s8 by s8 with plain K*N weights, one thread; scales as ideep
// (PyTorch 1.13, matmul.hpp at b2f8044) passes them.
//
//   gemm      src/cpu/x64/gemm (gemm_driver.cpp, s8x8s32): products through vpmaddubsw where there
//   is
//             no VNNI; s8 activations are shifted to u8 by 128 first
//   epilogue  src/cpu/x64/jit_gemm_inner_product_utils.cpp: zero point added in float32, saturation
//             in float32, then cvtps2dq
//
// The installed library shows three exceptions without VNNI:
//  * K longer than one block and shorter than two full ones is cut at ceil(K/2); where that is odd,
//    the pairs behind it start on an odd k;
//  * s8 activations with a zero point fall to the reference gemm on sse41 and avx2, which is exact;
//  * on avx512core one output column (N = 1, M > 1, no activation zero point) goes to a gemv that
//    never cuts K and, for s8 activations, takes the weights as u8 by adding 128.
#include "oracles/models/onednn2.h"

#include <cmath>

namespace qualm::models {
namespace {

using Kind = Accumulation::Kind;

constexpr OneDnnIsa kIsas[] = {
    {"sse41", 256, 256, false, false},
    {"avx2", 256, 384, false, false},
    {"avx512core", 384, 768, true, false},
    {"vnni", 0, 0, false, true},
};

void AddBiasFloat(Value& v, const Channel& c) { AddInto(v, v.number, c.bias); }

// maxps and minps with the bound as second operand: NaN becomes the bound. Signed outputs need no
// lower bound here, since cvtps2dq turns everything too low into INT32_MIN.
void SaturateFloat(Value& v, const Channel& c) {
  const bool nan = std::isnan(v.number);
  float number = v.number;
  if (c.low >= 0) number = MaxPs(number, static_cast<float>(c.low));
  v.SetReal(MinPs(number, static_cast<float>(c.high)));
  v.lossy = nan;
}

void Relu(Value& v, const Channel&) { v.SetReal(MaxPs(v.number, 0.0f)); }

Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel;
  SetOneDnnRange(channel, c);
  if (HasExplicitMultiplier(c)) {
    channel.multiplier = c.multiplier[c.multiplier.size() == 1 ? 0 : static_cast<size_t>(n)];
    return channel;
  }
  const auto inverse = [](float scale) {
    return static_cast<float>(1.0 / static_cast<double>(scale));
  };
  channel.reciprocal = inverse(c.x_q.scale_at(0)) * inverse(c.w_q.scale_at(n));
  channel.multiplier = inverse(c.out_q.scale_at(0)) / channel.reciprocal;
  if (c.bias) channel.bias = (*c.bias)[static_cast<size_t>(n)] * channel.reciprocal;
  return channel;
}

Model Make(const OneDnnIsa& isa) {
  Convention convention;
  convention.name = "onednn2@" + std::string(isa.name);
  convention.description = "oneDNN 2.6 matmul on " + std::string(isa.name) +
                           (isa.vnni ? ": exact sums" : ": saturating int16 pairs") +
                           ", zero point added before rounding";
  convention.source = "oneDNN 2.6.3 src/cpu/x64/gemm; ideep b2f8044 operators/matmul.hpp";
  convention.pair_saturates = !isa.vnni;
  convention.satisfies = OneDnnClaims(isa);
  convention.cannot_run = [](const Case& c) {
    return FirstReason({
        OpsAre(c, {Op::kLinear, Op::kRequantize}),
        Require(c.op != Op::kRequantize || HasExplicitMultiplier(c),
                "requantize needs an explicit multiplier"),
        OneDnnCannotRun(c),
    });
  };
  convention.accumulation = [&isa](const Case& c) {
    return OneDnnAccumulation(isa, c.x.dtype(), c.M, c.N, c.K, c.x_q.zero_point_at(0));
  };
  convention.channel = ChannelOf;
  convention.steps = [](const Case& c) {
    std::vector<Step> steps = {{Stage::kScale, "to float32", step::ToFloat}};
    if (c.bias) steps.push_back({Stage::kBias, "+ fl(bias*fl(isx*isw)) {bias}", AddBiasFloat});
    steps.push_back(
        {Stage::kScale, "times fl(iso/fl(isx*isw)) {multiplier}", step::TimesMultiplier});
    if (c.relu) steps.push_back({Stage::kClamp, "relu", Relu});
    AppendOneDnnEnd(steps);
    return steps;
  };
  return MakeModel(std::move(convention));
}

}  // namespace

const OneDnnIsa* FindOneDnnIsa(std::string_view name) {
  for (const OneDnnIsa& isa : kIsas) {
    if (isa.name == name) return &isa;
  }
  return nullptr;
}

Accumulation OneDnnAccumulation(const OneDnnIsa& isa, DType x_dtype, int64_t M, int64_t N,
                                int64_t K, int32_t x_zp) {
  if (isa.vnni) return {Kind::kExact, 0};
  const bool is_signed = x_dtype == DType::kS8;
  if (isa.gemv && N == 1 && M > 1 && x_zp == 0) {
    return {is_signed ? Kind::kPairsWPlus128 : Kind::kPairs, 0};
  }
  if (is_signed && x_zp != 0 && !isa.gemv) return {Kind::kExact, 0};
  const bool two_blocks = K > isa.one_block && K < 2 * isa.block;
  return {is_signed ? Kind::kPairsXPlus128 : Kind::kPairs, two_blocks ? (K + 1) / 2 : 0};
}

std::string OneDnnCannotRun(const Case& c) {
  if (c.op == Op::kLinear) {
    const bool symmetric = std::all_of(c.w_q.zero_point.begin(), c.w_q.zero_point.end(),
                                       [](int32_t z) { return z == 0; });
    const std::string reason = FirstReason({
        Require(IsCode(c.x.dtype()), "activations must be u8 or s8"),
        Require(c.w.dtype() == DType::kS8, "weights must be s8"),
        Require(symmetric, "weight zero point must be 0"),
        Require(!c.bias_i32, "the bias must be float"),
    });
    if (!reason.empty()) return reason;
  }
  return FirstReason({Require(IsCode(c.out_dtype), "output must be u8 or s8"), WholeRange(c)});
}

std::vector<std::string> OneDnnClaims(const OneDnnIsa& isa) {
  std::vector<std::string> claims = {"per_channel_equals_per_tensor"};
  if (!isa.gemv) claims.insert(claims.end(), {"row_independence", "column_independence"});
  if (isa.vnni) claims.insert(claims.end(), {"k_permutation", "zero_term_append"});
  return claims;
}

void SetOneDnnRange(Channel& channel, const Case& c) {
  channel.low = c.out_min;
  channel.high = c.out_max;
  channel.zero_point = c.out_q.zero_point_at(0);
}

void AppendOneDnnEnd(std::vector<Step>& steps) {
  steps.insert(steps.end(),
               {{Stage::kZeroPoint, "+ zero point {zero_point} in float32, before rounding",
                 step::AddZeroPointFloat},
                {Stage::kClamp, "saturate in float32 to {low}..{high}", SaturateFloat},
                {Stage::kRound, "cvtps2dq, ties to even", step::RoundX86},
                {Stage::kClamp, "pack to {low}..{high}", step::Clamp}});
}

std::vector<Model> OneDnn2Models() {
  std::vector<Model> models;
  for (const OneDnnIsa& isa : kIsas) models.push_back(Make(isa));
  return models;
}

}  // namespace qualm::models
