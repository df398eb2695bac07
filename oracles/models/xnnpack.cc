// SPDX-License-Identifier: Apache-2.0
// XNNPACK at ae108ef: fully connected and convolution qs8, qu8 and (fp32 only) qc8, add, and
// f32 -> code conversion, add and mul. Taps in the padding are real 0. add (src/params-init.c,
// *_add_minmax_*) is fixed point with one exponent for both operands, ties toward +infinity,
// everywhere; mul (qs8-vmul, qu8-vmul) requantizes the exact product as the architecture does.
// Products are exact on every instruction set; the requantization is chosen per architecture:
//   fp32    x86 (src/params-init.c, *_fp32_avx512): float multiplier, ties to even, upper clamp in
//           float32 before the conversion
//   rndnu   AArch64 NEON (*_rndnu_neon): fixed point, ties toward +infinity
#include <algorithm>
#include <cmath>

#include "oracles/models/convention.h"

namespace qualm::models {
namespace {

void PackAndMaxLow(Value& v, const Channel& c) {
  // packs to the code type, then max with the lower bound; the upper one was applied in float32.
  v.SetInt(std::max<int64_t>(std::min<int64_t>(v.integer, c.high), c.low));
}

// mult in [2^30, 2^31), shift right by `shift` in total, split as NEON does it: a saturating left
// shift, a doubling high half, a rounding right shift.
struct Rndnu {
  int32_t multiplier;
  int32_t left;   // >= 0
  int32_t right;  // >= 1
};
Rndnu RndnuOf(float scale) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  const auto multiplier = static_cast<int32_t>(((bits & 0x7FFFFFu) | 0x800000u) << 7);
  const int32_t shift = 127 + 31 - 32 - static_cast<int32_t>(bits >> 23);
  const int32_t right = std::max(shift, 1);
  return {multiplier, right - shift, right};
}
void RndnuShiftLeft(Value& v, const Channel& c) {
  const int64_t full = v.integer * (int64_t{1} << RndnuOf(c.multiplier).left);
  v.SetInt(Sat32(full));
  v.lossy = v.integer != full;
}
void RndnuHighHalf(Value& v, const Channel& c) {
  const int64_t product = v.integer * RndnuOf(c.multiplier).multiplier;
  v.SetInt(product >> 31);
  v.lossy = (product & 0x7FFFFFFF) != 0;
}
void RndnuShiftRight(Value& v, const Channel& c) {
  const int32_t right = RndnuOf(c.multiplier).right;
  v.SetInt((v.integer + (int64_t{1} << (right - 1))) >> right);
}

constexpr Step kToFloat{Stage::kScale, "to float32", step::ToFloat};
constexpr Step kBias{Stage::kBias, "+ int32 bias {bias_i32}", step::AddBiasI32};
constexpr Step kZeroPoint{Stage::kZeroPoint, "to int16, + zero point {zero_point}, saturating",
                          step::AddZeroPointSat16};
constexpr Step kReciprocal{Stage::kScale, "times fl(1/scale) {reciprocal}", step::TimesReciprocal};
const Step kFp32End[] = {
    {Stage::kClamp, "minps with {high} - {zero_point}", step::MinHigh},
    {Stage::kRound, "cvtps2dq, ties to even", step::RoundX86},
    kZeroPoint,
    {Stage::kClamp, "pack to {high}, max with {low}", PackAndMaxLow},
};
const Step kRndnu[] = {
    {Stage::kScale, "vqshl, saturating", RndnuShiftLeft},
    {Stage::kScale, "vqdmulh by the 24-bit mantissa of {multiplier}", RndnuHighHalf},
    {Stage::kRound, "vrshl, ties toward +infinity", RndnuShiftRight},
    kZeroPoint,
    {Stage::kClamp, "clamp to {low}..{high}", step::Clamp},
};
const Step kQuantizeArm[] = {
    kReciprocal,
    {Stage::kRound, "vcvtn, ties to even", step::RoundArm},
    kZeroPoint,
    {Stage::kClamp, "clamp to {low}..{high}", step::Clamp},
};

void AddTerms(Value& v, const Channel& c) {
  const int64_t half = int64_t{1} << (c.fixed.shift - 1);
  const int64_t sum = half + (v.integer - c.a_zero_point) * c.a_fixed.value +
                      (int64_t{v.other} - c.b_zero_point) * c.b_fixed.value;
  v.SetInt(Wrap32(sum));
  v.lossy = v.integer != sum;
}
void ShiftDown(Value& v, const Channel& c) { v.SetInt(v.integer >> c.fixed.shift); }
const Step kAdd[] = {
    {Stage::kAccumulate, "{a_fixed}*(a - {a_zp}) + {b_fixed}*({b} - {b_zp}) + 2^({shift}-1)",
     AddTerms},
    {Stage::kRound, ">> {shift}: ties toward +infinity", ShiftDown},
    kZeroPoint,
    {Stage::kClamp, "clamp to {low}..{high}", step::Clamp},
};

std::string CannotRunOperands(const Case& c) {
  const auto inside = [&](const QParams& q) {
    const float ratio = q.scale[0] / c.out_q.scale[0];
    return ratio >= 0x1p-10f && ratio < 0x1p8f;
  };
  const std::string shared = FirstReason({
      Require(c.x.dtype() == c.out_dtype, "operands and output must have one type"),
      Require(LowerBound(c) < c.out_max, "the clamp must leave two codes"),
  });
  if (!shared.empty()) return shared;
  if (c.op == Op::kMul) {
    const float multiplier = c.x_q.scale[0] * c.w_q.scale[0] / c.out_q.scale[0];
    return Require(multiplier >= 0x1p-16f && multiplier < 0x1p8f,
                   "the multiplier must lie in [2^-16, 2^8)");
  }
  return FirstReason({
      Require(inside(c.x_q) && inside(c.w_q),
              "the scale of an operand over that of the output must lie in [2^-10, 2^8)"),
  });
}

Channel ChannelOf(const Case& c, int64_t n) {
  if (c.op == Op::kAdd) return FixedPointAddChannel(c, 21);
  Channel channel;
  SetClamp(channel, c);
  if (c.op == Op::kQuantize) {
    channel.scale = c.out_q.scale_at(n);
    channel.reciprocal = 1.0f / channel.scale;
    channel.zero_point = c.out_q.zero_point_at(n);
    return channel;
  }
  channel.zero_point = c.out_q.zero_point_at(0);
  if (c.op == Op::kMul) {
    channel.a_zero_point = c.x_q.zero_point[0];
    channel.b_zero_point = c.w_q.zero_point[0];
  }
  if (HasExplicitMultiplier(c)) {
    channel.multiplier = c.multiplier[c.multiplier.size() == 1 ? 0 : static_cast<size_t>(n)];
    return channel;
  }
  channel.multiplier = c.x_q.scale_at(0) * c.w_q.scale_at(n) / c.out_q.scale_at(0);
  if (c.bias_i32) channel.bias_i32 = (*c.bias_i32)[static_cast<size_t>(n)];
  return channel;
}

std::string CannotRun(const Case& c, bool rndnu) {
  const std::string shared = FirstReason({
      OpsAre(c, {Op::kQuantize, Op::kRequantize, Op::kLinear, Op::kConv2d, Op::kDepthwise, Op::kAdd,
                 Op::kMul}),
      ZeroPointsAreCodes(c),
      Require(LowerBound(c) <= c.out_max, "relu above the upper clamp"),
      Require(!c.bias, "the bias must be int32"),
      Require(!c.per_channel || (!rndnu && HasSums(c.op)), "per tensor only"),
  });
  if (!shared.empty()) return shared;
  if (HasTwoOperands(c.op)) return CannotRunOperands(c);
  if (c.op == Op::kQuantize) {
    return Require(std::isnormal(c.out_q.scale_at(0)), "the scale must be a normal number");
  }
  if (HasSums(c.op)) {
    const bool symmetric = WeightZeroPointsAre(c, 0);
    const std::string types = FirstReason({
        Require(c.x.dtype() == c.out_dtype && c.w.dtype() == c.out_dtype,
                "x, w and output must have one type, u8 or s8"),
        Require(c.out_dtype == DType::kU8 || symmetric, "s8 weights have zero point 0"),
        Require(!c.per_channel || c.out_dtype == DType::kS8, "per channel needs s8"),
    });
    if (!types.empty()) return types;
  }
  for (int64_t n = 0; n < c.N; ++n) {
    const float multiplier = ChannelOf(c, n).multiplier;
    if (!(multiplier >= 0x1p-32f && multiplier < 256.0f)) {
      return "the multiplier must lie in [2^-32, 256)";
    }
  }
  return "";
}

template <size_t N>
void Append(std::vector<Step>& steps, const Step (&more)[N]) {
  steps.insert(steps.end(), std::begin(more), std::end(more));
}

Model Make(bool rndnu) {
  Convention convention;
  convention.name = rndnu ? "xnnpack@rndnu" : "xnnpack@fp32";
  convention.description = rndnu ? "XNNPACK on AArch64: exact sums, fixed point, ties toward +inf"
                                 : "XNNPACK on x86: exact sums, float multiplier, ties to even";
  convention.source = "XNNPACK src/params-init.c @ ae108ef";
  convention.satisfies = {"k_permutation",       "zero_term_append", "row_independence",
                          "column_independence", "identity_weights", "commutes",
                          "add.is_monotone"};
  AddExactConvClaims(convention.satisfies);
  if (!rndnu) {
    convention.satisfies.insert(
        convention.satisfies.end(),
        {"linear.per_channel_equals_per_tensor", "conv2d.per_channel_equals_per_tensor",
         "depthwise.per_channel_equals_per_tensor"});
  }
  convention.cannot_run = [rndnu](const Case& c) { return CannotRun(c, rndnu); };
  convention.accumulation = [](const Case&) { return Accumulation{}; };
  convention.channel = ChannelOf;
  convention.steps = [rndnu](const Case& c) {
    std::vector<Step> steps;
    if (c.op == Op::kQuantize) {
      if (rndnu) {
        Append(steps, kQuantizeArm);
      } else {
        steps.push_back(kReciprocal);
        Append(steps, kFp32End);
      }
      return steps;
    }
    if (c.op == Op::kAdd) {
      Append(steps, kAdd);
      return steps;
    }
    if (c.op == Op::kMul) {
      steps.push_back(step::kProduct);
    }
    if (c.bias_i32) steps.push_back(kBias);
    if (rndnu) {
      Append(steps, kRndnu);
      return steps;
    }
    steps.push_back(kToFloat);
    steps.push_back({Stage::kScale, "times {multiplier}", step::TimesMultiplier});
    Append(steps, kFp32End);
    return steps;
  };
  return MakeModel(std::move(convention));
}

}  // namespace

std::vector<Model> XnnpackModels() { return {Make(false), Make(true)}; }

}  // namespace qualm::models
