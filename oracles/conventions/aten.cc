// SPDX-License-Identifier: Apache-2.0
// ATen element-wise functions of PyTorch 1.13.1 built without FBGEMM, and its ARM build
// (aten/src/ATen/native/quantized/affine_quantizer_base.cpp, cpu/kernels/QuantizedOpKernels.cpp,
// cpu/QuantUtils.h). The x86 vector capabilities change nothing about quantize, dequantize and mul.
// add is computed in float32 by two formulas in one tensor (qadd_kernel): the vector body takes
// pairs of vectors and fuses scale*code with a premultiplied zero point, the rest (on ARM and
// without vector capability everything) subtracts the zero point first. One thread; PyTorch 2.6
// (+pt26) has a body of pairs of 32 codes under both capabilities.
#include "oracles/conventions/aten.h"

#include <algorithm>
#include <cmath>

#include "oracles/exact/dynamic_linear.h"

namespace qualm::conventions {
namespace {

void CastTo64(Value& v, const Channel&) {
  const float before = v.number;
  v.SetInt(ConvertX86To64(before));  // already an integer, infinite or NaN
  v.lossy = !(std::fabs(before) < 0x1p63f);
}

// The vector loop adds eight at a time in saturating int16. The scalar rest adds in int32, where an
// overflow, also one below INT32_MIN, gives the largest code.
void AddZeroPointArm(Value& v, const Channel& c) {
  constexpr int64_t kBlock = 8;
  if (c.element.index < c.element.count / kBlock * kBlock) return step::AddZeroPointSat16(v, c);
  const int64_t sum = v.integer + c.zero_point;
  v.lossy = sum != Wrap32(sum);
  v.SetInt(v.lossy ? c.high : sum);
}

// Scalar add.
void DequantizeA(Value& v, const Channel& c) {
  MultiplyInto(v, c.a.scale, static_cast<float>(v.integer - c.a.zero_point));
}
void AddDequantizedB(Value& v, const Channel& c) {
  const float a = v.number;
  const float b = MultiplyInto(v, c.b.scale, static_cast<float>(v.second - c.b.zero_point));
  AddInto(v, a, b);
}
// Vector add.
float Fused(Value& v, float scale, int32_t zero_point, int32_t code) {
  const float offset = MultiplyInto(v, scale, static_cast<float>(-zero_point));
  const float result = std::fma(scale, static_cast<float>(code), offset);
  const double exact =
      static_cast<double>(scale) * static_cast<double>(code) + static_cast<double>(offset);
  if (static_cast<double>(result) != exact) v.lossy = true;
  v.SetReal(result);
  return result;
}
void FusedA(Value& v, const Channel& c) {
  Fused(v, c.a.scale, c.a.zero_point, static_cast<int32_t>(v.integer));
}
void AddFusedB(Value& v, const Channel& c) {
  const float a = v.number;
  AddInto(v, a, Fused(v, c.b.scale, c.b.zero_point, v.second));
}
void Cut(Value& v, const Channel&) {
  const float before = v.number;
  v.SetReal(MinPs(before, 2147483520.0f));
  v.lossy = std::isnan(before);
}
void CastTo64Arm(Value& v, const Channel&) {
  const float before = v.number;  // already an integer, infinite or NaN
  v.lossy = !(std::fabs(before) < 0x1p63f);
  if (!v.lossy) return v.SetInt(static_cast<int64_t>(before));
  v.SetInt(std::isnan(before) ? 0 : before > 0 ? INT64_MAX : INT64_MIN);
}
// mul.
void RoundTo64(Value& v, const Channel&) { v.SetInt(ConvertX86To64(v.number)); }
void AddZeroPoint(Value& v, const Channel& c) { v.SetInt(v.integer + c.zero_point); }

constexpr Step kTimesReciprocal{Stage::kScale, "times fl(1/scale) {reciprocal}",
                                step::TimesReciprocal};
constexpr Step kClamp{Stage::kClamp, "clamp to {low}..{high}", step::Clamp};
const Step kQuantize[] = {
    kTimesReciprocal,
    {Stage::kRound, "nearbyint, ties to even", step::RoundEven},
    {Stage::kZeroPoint, "+ zero point {zero_point} in float32", step::AddZeroPointFloat},
    {Stage::kClamp, "to int64", CastTo64, Rise::kUnlessLossy},
    kClamp,
};
const Step kQuantizeArm[] = {
    kTimesReciprocal,
    {Stage::kRound, "vcvtn, ties to even", step::RoundArm},
    {Stage::kZeroPoint, "+ zero point {zero_point}", AddZeroPointArm},
    kClamp,
};
const Step kVectorQuantize[] = {
    kTimesReciprocal,
    {Stage::kScale, "minps with 2147483520", Cut, Rise::kAlways},
    {Stage::kRound, "cvtps2dq, ties to even", step::RoundX86},
    {Stage::kZeroPoint, "+ zero point {zero_point}, wrapping", step::AddZeroPointWrap32},
    kClamp,
};
const Step kDequantize[] = {
    {Stage::kScale, "scale {scale} * float(code - {zero_point})", step::TimesCodeMinusZeroPoint},
};

const Step kMul[] = {
    step::kProduct,
    {Stage::kScale, "to float32", step::ToFloat},
    {Stage::kScale, "times fl(fl(a_scale*b_scale)*fl(1/out_scale)) {multiplier}",
     step::TimesMultiplier},
    {Stage::kRound, "lrintf, ties to even", RoundTo64},
    {Stage::kZeroPoint, "+ zero point {zero_point}", AddZeroPoint},
    kClamp,
};

// Under AVX2 and AVX-512.
std::vector<Step> VectorAdd(const Case& c) {
  std::vector<Step> steps = {
      {Stage::kScale, "fused {a_scale}*a + fl({a_scale}*-{a_zp})", FusedA},
      {Stage::kAccumulate, "+ (fused {b_scale}*{b} + fl({b_scale}*-{b_zp}))", AddFusedB}};
  if (c.relu) steps.push_back({Stage::kClamp, "relu", step::Relu});
  steps.insert(steps.end(), std::begin(kVectorQuantize), std::end(kVectorQuantize));
  return steps;
}

template <size_t N>
std::vector<Step> List(const Step (&steps)[N]) {
  return {steps, steps + N};
}

// quantize_val.
std::vector<Step> QuantizeOne(AtenBuild build) {
  if (build == AtenBuild::kPlain) return List(kQuantize);
  return FbgemmQuantize(false, build == AtenBuild::kFbgemmLegacy);
}

std::vector<Step> ScalarAdd(const Case& c, bool arm, AtenBuild build) {
  std::vector<Step> steps = {
      {Stage::kScale, "fl({a_scale}*(a - {a_zp}))", DequantizeA},
      {Stage::kAccumulate, "+ fl({b_scale}*({b} - {b_zp}))", AddDequantizedB}};
  if (c.relu) steps.push_back({Stage::kClamp, "relu", step::Relu});
  const std::vector<Step> quantize = QuantizeOne(build);
  steps.insert(steps.end(), quantize.begin(), quantize.end());
  if (arm) steps[steps.size() - 2].apply = CastTo64Arm;
  return steps;
}

// The fused relu of add cuts the float32 sum; a sum whose code leaves int32 (vector code, zero
// point included) or int64 (scalar code) then wraps below the zero point, as does infinity times 0.
bool SumStaysSmall(const Case& c) {
  const double most = 255.0 * (static_cast<double>(c.x_q.scale[0]) + c.w_q.scale[0]);
  return most < 0x1p30 * c.out_q.scale[0] && most < 0x1p127 && c.out_q.scale[0] >= 0x1p-126f;
}

// `block`: elements the vector loop of add takes at a time, 0 where there is none.
Convention Make(const std::string& isa, int64_t block, bool arm = false,
                AtenBuild build = AtenBuild::kPlain) {
  const bool plain = build == AtenBuild::kPlain;
  Definition definition;
  definition.name = "aten@" + isa;
  definition.description = arm ? "ATen quantize, dequantize, add and mul on AArch64"
                               : "ATen quantize, dequantize, add and mul, capability " + isa;
  definition.source = "PyTorch 1.13.1 quantized/cpu/kernels/QuantizedOpKernels.cpp" +
                      std::string(arm ? "" : ", quantized/affine_quantizer_base.cpp");
  // On ARM the eight-wide body and the tail of quantize part ways for very negative x and zero
  // points < 0; on x86 the body and the tail of add do.
  definition.satisfies = {"commutes"};
  definition.variations = {"V2", "V8", "V9", "V14", "V17"};
  if (build == AtenBuild::kFbgemmLegacy)
    definition.variations.insert(definition.variations.begin() + 1, "V3");
  // FBGEMM quantizes a whole tensor by vector code, and channels one number at a time.
  if (!arm) {
    definition.satisfies.emplace_back(plain ? "per_channel_equals_per_tensor"
                                            : "dequantize.per_channel_equals_per_tensor");
  }
  const auto claim = [&](std::initializer_list<Op> ops) {
    for (const Op op : ops) {
      for (const char* what : {"row_independence", "column_independence", "zero_point_shift"})
        definition.satisfies.push_back(std::string(Name(op)) + "." + what);
    }
  };
  claim({Op::kDequantize, Op::kMul});
  if (!arm && plain) claim({Op::kQuantize});
  if (!plain) Append(definition.satisfies, {"quantize.row_independence"});
  if (block == 0) claim({Op::kAdd});
  definition.ops = {Op::kQuantize, Op::kDequantize, Op::kAdd, Op::kMul};
  definition.cannot_run = [arm](const Case& c) {
    return FirstReason({AtenCannotRun(c), Require(!arm || !c.per_channel, "per tensor only")});
  };
  definition.channel = AtenChannel;
  definition.body = [block](const Case& c) {
    const int64_t count = c.M * c.N;
    if (c.op != Op::kAdd) return count;
    return block == 0 ? 0 : count / block * block;
  };
  definition.tail_steps = [arm, build](const Case& c) { return ScalarAdd(c, arm, build); };
  definition.steps = [arm, build](const Case& c) {
    if (c.op == Op::kAdd) return VectorAdd(c);
    if (build != AtenBuild::kPlain && c.op == Op::kQuantize)
      return FbgemmQuantize(!c.per_channel, build == AtenBuild::kFbgemmLegacy);
    if (arm && c.op == Op::kQuantize) {
      return List(kQuantizeArm);
    }
    return AtenSteps(c);
  };
  return MakeConvention(std::move(definition));
}

}  // namespace

std::string AtenCannotRun(const Case& c) {
  const std::string shared = FirstReason({ZeroPointsAreCodes(c), WholeRange(c)});
  if (!shared.empty()) return shared;
  if (!HasTwoOperands(c.op)) return Require(!c.relu, "this function has no fused relu");
  return FirstReason({
      Require(c.x.dtype() == c.out_dtype, "operands and output must have one type"),
      // The vector code converts to 32 bits, the scalar code to 64.
      Require(c.op != Op::kMul || AtenChannel(c, 0).multiplier * 65025.0f < 0x1p31f,
              "a product must stay below 2^31 output units"),
      Require(c.op != Op::kAdd || !c.relu || SumStaysSmall(c),
              "a sum under relu must stay below 2^30 output units"),
  });
}

Channel AtenChannel(const Case& c, int64_t n) {
  Channel channel;
  SetClamp(channel, c);
  if (HasTwoOperands(c.op)) {
    channel.a.scale = c.x_q.scale[0];
    channel.b.scale = c.w_q.scale[0];
    channel.a.zero_point = c.x_q.zero_point[0];
    channel.b.zero_point = c.w_q.zero_point[0];
    channel.zero_point = c.out_q.zero_point[0];
    channel.reciprocal = 1.0f / c.out_q.scale[0];
    channel.multiplier = channel.a.scale * channel.b.scale * channel.reciprocal;
    // The relu of add comes before the rounding.
    if (c.op == Op::kAdd) channel.low = c.out_min;
    return channel;
  }
  const QParams& q = c.op == Op::kQuantize ? c.out_q : c.x_q;
  channel.scale = q.scale_at(n);
  channel.reciprocal = 1.0f / channel.scale;
  channel.zero_point = q.zero_point_at(n);
  return channel;
}

std::vector<Step> AtenSteps(const Case& c) {
  if (c.op == Op::kQuantize) return List(kQuantize);
  return c.op == Op::kMul ? List(kMul) : List(kDequantize);
}

std::vector<Step> AtenToCode(bool vector, const Step& scale, AtenBuild build) {
  std::vector<Step> steps = vector ? List(kVectorQuantize) : QuantizeOne(build);
  steps.front() = scale;
  return steps;
}

std::vector<Step> AtenThroughFloat(bool vector, bool fused, Step function, AtenBuild build) {
  std::vector<Step> steps = {
      vector && fused ? Step{Stage::kScale, "fused {a_scale}*x + fl({a_scale}*-{a_zp})", FusedA}
                      : Step{Stage::kScale, "fl({a_scale}*(x - {a_zp}))", DequantizeA},
      function};
  for (const Step& step : AtenToCode(vector, kTimesReciprocal, build)) steps.push_back(step);
  return steps;
}

Convention AtenWheel(AtenBuild build) {
  return Make(build == AtenBuild::kFbgemm ? "vector+pt211" : "vector+pt213", 64, false, build);
}

std::vector<Convention> AtenConventions() {
  return {Make("default", 0),      Make("avx2", 64),      Make("avx512", 128),
          Make("default+pt26", 0), Make("avx2+pt26", 64), Make("avx512+pt26", 64),
          Make("aarch64", 0, true)};
}

ChosenQParams AtenChooseQParams(float min, float max, bool reduce_range) {
  const exact::AtenChoice choice =
      exact::AtenFromRange(std::min(min, 0.0f), std::max(max, 0.0f), reduce_range);
  return {choice.scale, choice.zero_point};
}

}  // namespace qualm::conventions
