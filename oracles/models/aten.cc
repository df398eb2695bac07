// SPDX-License-Identifier: Apache-2.0
// ATen element-wise functions of PyTorch 1.13.1 built without FBGEMM, and its ARM build
// (aten/src/ATen/native/quantized/affine_quantizer_base.cpp, cpu/kernels/QuantizedOpKernels.cpp,
// cpu/QuantUtils.h). The x86 vector capabilities change nothing about quantize and dequantize.
#include "oracles/models/aten.h"

#include <cmath>

namespace qualm::models {
namespace {

void RoundReal(Value& v, const Channel&) { v.SetReal(RoundNearestEven(v.number)); }
void CastTo64(Value& v, const Channel&) {
  const float before = v.number;
  v.SetInt(ConvertX86To64(before));  // already an integer, infinite or NaN
  v.lossy = !(std::fabs(before) < 0x1p63f);
}

// Eight at a time in saturating int16; the rest through an int32 sum whose overflow, taken for one
// upwards, gives the largest code.
void AddZeroPointArm(Value& v, const Channel& c) {
  constexpr int64_t kBlock = 8;
  if (c.index < c.count / kBlock * kBlock) return step::AddZeroPointSat16(v, c);
  const int64_t sum = v.integer + c.zero_point;
  v.lossy = sum != Wrap32(sum);
  v.SetInt(v.lossy ? c.high : sum);
}

constexpr Step kTimesReciprocal{Stage::kScale, "times fl(1/scale) {reciprocal}",
                                step::TimesReciprocal};
constexpr Step kClamp{Stage::kClamp, "clamp to {low}..{high}", step::Clamp};
const Step kQuantize[] = {
    kTimesReciprocal,
    {Stage::kRound, "nearbyint, ties to even", RoundReal},
    {Stage::kZeroPoint, "+ zero point {zero_point} in float32", step::AddZeroPointFloat},
    {Stage::kClamp, "to int64", CastTo64},
    kClamp,
};
const Step kQuantizeArm[] = {
    kTimesReciprocal,
    {Stage::kRound, "vcvtn, ties to even", step::RoundArm},
    {Stage::kZeroPoint, "+ zero point {zero_point}", AddZeroPointArm},
    kClamp,
};
const Step kDequantize[] = {
    {Stage::kScale, "scale {scale} * float(code - {zero_point})", step::TimesCodeMinusZeroPoint},
};

Model Make(const std::string& isa, bool arm) {
  Convention convention;
  convention.name = "aten@" + isa;
  convention.description = arm ? "ATen quantize and dequantize on AArch64"
                               : "ATen quantize and dequantize, capability " + isa;
  convention.source = arm ? "PyTorch 1.13.1 quantized/cpu/kernels/QuantizedOpKernels.cpp"
                          : "PyTorch 1.13.1 quantized/affine_quantizer_base.cpp";
  // On ARM the eight-wide body and the tail part ways for very negative x and zero points < 0.
  if (!arm) {
    convention.satisfies = {"row_independence", "column_independence", "zero_point_shift",
                            "per_channel_equals_per_tensor"};
  }
  convention.cannot_run = [arm](const Case& c) {
    return FirstReason({AtenCannotRun(c), Require(!arm || !c.per_channel, "per tensor only")});
  };
  convention.channel = AtenChannel;
  convention.steps = [arm](const Case& c) {
    if (arm && c.op == Op::kQuantize) {
      return std::vector<Step>(std::begin(kQuantizeArm), std::end(kQuantizeArm));
    }
    return AtenSteps(c);
  };
  return MakeModel(std::move(convention));
}

}  // namespace

std::string AtenCannotRun(const Case& c) {
  return FirstReason({
      OpsAre(c, {Op::kQuantize, Op::kDequantize}),
      ZeroPointsAreCodes(c),
      WholeRange(c),
      Require(!c.relu, "this function has no fused relu"),
  });
}

Channel AtenChannel(const Case& c, int64_t n) {
  Channel channel;
  SetClamp(channel, c);
  const QParams& q = c.op == Op::kQuantize ? c.out_q : c.x_q;
  channel.scale = q.scale_at(n);
  channel.reciprocal = 1.0f / channel.scale;
  channel.zero_point = q.zero_point_at(n);
  return channel;
}

std::vector<Step> AtenSteps(const Case& c) {
  if (c.op == Op::kQuantize) return {std::begin(kQuantize), std::end(kQuantize)};
  return {std::begin(kDequantize), std::end(kDequantize)};
}

std::vector<Model> AtenModels() {
  return {Make("default", false), Make("avx2", false), Make("avx512", false),
          Make("aarch64", true)};
}

ChosenQParams AtenChooseQParams(float min, float max, bool reduce_range) {
  constexpr float kSmallScale = 6.1e-5f;
  const int32_t qmin = 0;
  const int32_t qmax = reduce_range ? 127 : 255;
  min = std::min(min, 0.0f);
  max = std::max(max, 0.0f);
  double scale = (static_cast<double>(max) - static_cast<double>(min)) / (qmax - qmin);
  const auto single = static_cast<float>(scale);
  if (single == 0.0f || std::isinf(1.0f / single)) scale = 0.1;
  if (scale < static_cast<double>(kSmallScale)) {
    const auto old_scale = static_cast<float>(scale);
    scale = static_cast<double>(kSmallScale);
    if (min == 0.0f) {
      max = kSmallScale * static_cast<float>(qmax - qmin);
    } else if (max == 0.0f) {
      min = -kSmallScale * static_cast<float>(qmax - qmin);
    } else {
      const float amplifier = kSmallScale / old_scale;
      min *= amplifier;
      max *= amplifier;
    }
  }
  const double min_codes = static_cast<double>(min) / scale;
  const double max_codes = static_cast<double>(max) / scale;
  // Unlike FBGEMM the error terms are subtracted.
  const double min_error = std::abs(qmin) - std::fabs(min_codes);
  const double max_error = std::abs(qmax) - std::fabs(max_codes);
  const double zero_point = min_error < max_error ? qmin - min_codes : qmax - max_codes;
  const double clamped = std::clamp<double>(zero_point, qmin, qmax);
  return {scale, static_cast<int32_t>(RoundNearestEven(clamped))};
}

}  // namespace qualm::models
