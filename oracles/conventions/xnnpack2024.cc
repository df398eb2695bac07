// SPDX-License-Identifier: Apache-2.0
// XNNPACK at 4ea82e5 (2024-11) on x86, in what it computes otherwise than at ae108ef (xnnpack.cc):
//   codes to codes of the same type, and leaky_relu (src/qs8-vcvt, src/qs8-vlrelu and of qu8;
//   src/microparams-init.c, xnn_init_q*8_cvt_scalar_params): the ratio of scales, and that times
//   the slope, in 256ths; ties toward +infinity
//   codes to codes of the other type, and other functions (src/reference/unary-elementwise.cc,
//   reference-utils.h): float32 steps for each of the 256 codes; the zero point is added in float32
//   and ties go away from zero
//   averages: all end in float32 (src/qu8-avgpool); that of the whole image multiplies by
//   fl(fl(sx/sy) * fl(1/n)) (src/operators/reduce-nd.c)
//   sums of products of s8 in matrix products (src/qs8-qc8w-gemm, src/qs8-qc8w-igemm) from AVX-512
//   or AVX-VNNI on: the zero point is added in int32, where INT32_MIN, which stands for all results
//   up to -2^31, wraps under a negative one; that of older instruction sets, and of depthwise
//   kernels (src/qs8-qc8w-dwconv), in a saturating int16
// Only sums of products, pools of windows and the clamp of codes (src/u8-vclamp) have a clamp.
//
// At 75db3c0 (2026-08) the average of the whole image takes the zero point of x out of that of the
// output instead of the sum, in float32 (src/operators/reduce-nd.c; src/xnnpack/reference-utils.h,
// quantize), and what src/reference/ rounds goes to even. s4 weights of s8 activations lie in the
// high half of a byte, so that the sum with its bias is kept times 16 in an int32
// (src/reference/packing.cc, pack_qs8_qc4w_gemm_goi_w); those of s2 are as the same numbers in s8.
// Its linear of float32 x (dynamic_linear) is in litert_dynamic_linear.cc.
#include <algorithm>
#include <cmath>
#include <utility>

#include "oracles/conventions/litert_dynamic_linear.h"
#include "oracles/conventions/xnnpack.h"
#include "oracles/exact/arithmetic/real.h"

namespace qualm::conventions {
namespace {

bool HasBounds(const Case& c) { return IsClamped(c) || LowerBound(c) > c.out_min; }
bool ChangesType(const Case& c) { return c.x.dtype() != c.out_dtype; }
float Ratio(const Case& c) { return c.x_q.scale[0] / c.out_q.scale[0]; }

// {a_fixed} and {b_fixed}: 256ths of the ratio of scales, for codes above and below the zero point.
void TimesRatio(Value& v, const Channel& c) {
  const int64_t difference = v.integer - c.a.zero_point;
  v.SetInt(difference * (difference > 0 ? c.a : c.b).fixed.value);
  v.lossy = c.operands_rounded;
}
void DropFraction(Value& v, const Channel&) { v.SetInt((v.integer + 128) >> 8); }

void WrapIn28Bits(Value& v, const Channel&) {
  const int64_t sum = v.integer;
  v.SetInt(Wrap32(sum * 16) / 16);
  v.lossy = v.integer != sum;
}

void Sigmoid(Value& v, const Channel& c) {
  const double power = Beside(exact::RoundedExp(static_cast<double>(v.number)), c.side * kExpUlps);
  v.SetReal(v.number > 100.0f    ? 1.0f
            : v.number < -100.0f ? 0.0f
                                 : static_cast<float>(power / (1 + power)));
}
void Tanh(Value& v, const Channel& c) {
  v.SetReal(Beside(exact::RoundedTanh(v.number), c.side * kTanhUlps));
}
void HardSwish(Value& v, const Channel&) {
  const float x = v.number;
  v.SetReal((x / 6.0f) * std::max(std::min(x + 3.0f, 6.0f), 0.0f));
}
void RoundAway(Value& v, const Channel& c) {
  const float code = std::isnan(v.number) ? 0.0f : std::round(v.number);
  v.SetInt(static_cast<int64_t>(
      std::clamp(code, static_cast<float>(c.low), static_cast<float>(c.high))));
}

std::vector<Step> FixedPoint(std::string_view text) {
  std::vector<Step> steps{{Stage::kScale, text, TimesRatio},
                          {Stage::kRound, "/ 256, ties toward +infinity", DropFraction}};
  const std::vector<Step> end = XnnpackFixedPointEnd();
  steps.insert(steps.end(), end.begin(), end.end());
  return steps;
}

std::vector<Step> Reference(const Case& c, bool of_2026) {
  std::vector<Step> steps{kXnnpackCodeToReal};
  if (c.op == Op::kTable) {
    switch (c.function) {
      case Function::kSigmoid:
        steps.push_back({Stage::kScale, "sigmoid in float64 by exp", Sigmoid});
        break;
      case Function::kTanh: steps.push_back({Stage::kScale, "tanhf", Tanh}); break;
      case Function::kHardSwish:
        steps.push_back({Stage::kScale, "x/6 * min(max(x + 3, 0), 6) in float32", HardSwish});
        break;
      case Function::kRelu:
      case Function::kLeakyRelu: QUALM_CHECK(false);  // StepsOf
    }
  }
  steps.push_back({Stage::kScale, "times fl(1/scale) {reciprocal}", step::TimesReciprocal});
  steps.push_back(
      {Stage::kZeroPoint, "+ zero point {zero_point} in float32", step::AddZeroPointFloat});
  if (of_2026) {
    steps.push_back({Stage::kRound, "round, ties to even, saturating", step::RoundArm});
    steps.push_back({Stage::kClamp, "clamp to {low}..{high}", step::Clamp});
  } else {
    steps.push_back({Stage::kRound, "round, ties away from zero, saturating", RoundAway});
  }
  return steps;
}

// src/operators/convolution-nhwc.c: depthwise kernels exist for 25 taps and fewer.
bool IsMatrixProduct(const Case& c) {
  if (!HasSums(c)) return false;
  return !IsPlainDepthwise(c) || c.window.kernel_h * c.window.kernel_w > 25;
}

Value SumOfCodes(const Case& c, int64_t index, Trace*) {
  Value value;
  value.SetInt(SumOf(CodesUnderWindow(c, index)));
  return value;
}
std::vector<Step> MeanSteps2026() {
  return {
      {Stage::kScale, "to float32", step::ToFloat},
      {Stage::kScale, "times {multiplier}", step::TimesMultiplier},
      {Stage::kZeroPoint, "+ zero point less that of x, {bias}, in float32", step::AddBiasFloat},
      {Stage::kRound, "round, ties to even, saturating", step::RoundArm},
      {Stage::kClamp, "clamp to {low}..{high}", step::Clamp}};
}

std::vector<Step> StepsOf(const Case& c, bool wraps, bool of_2026) {
  const bool table = c.op == Op::kTable;
  if ((table && c.function == Function::kRelu) || (c.op == Op::kRescale && HasBounds(c)))
    return {{Stage::kClamp, "clamp to {low}..{high}", step::Clamp}};
  if (table && c.function == Function::kLeakyRelu) {
    return FixedPoint(
        "minus {a_zp}, times {a_fixed} or, of negative ones, {b_fixed}: 256ths of the ratio of "
        "scales, and of that times the slope");
  }
  if (table || (c.op == Op::kRescale && ChangesType(c))) return Reference(c, of_2026);
  if (c.op == Op::kRescale)
    return FixedPoint("minus {a_zp}, times {a_fixed}: 256ths of the ratio of scales");
  if (of_2026 && c.op == Op::kGlobalAvgPool) return MeanSteps2026();
  if (c.op == Op::kAvgPool || c.op == Op::kGlobalAvgPool) return XnnpackMeanSteps();
  std::vector<Step> steps = XnnpackFp32Steps(c);
  if (wraps && IsMatrixProduct(c)) {
    const auto at = std::ranges::find(steps, Stage::kZeroPoint, &Step::stage);
    *at = {Stage::kZeroPoint, "+ zero point {zero_point} in int32", step::AddZeroPointWrap32};
  }
  return steps;
}

Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel = XnnpackChannel(c, n);
  if (c.op == Op::kGlobalAvgPool) {
    const auto pixels = static_cast<float>(c.window.in_h * c.window.in_w);
    channel.multiplier = XnnpackFlushed(Ratio(c) * (1.0f / pixels));
    channel.bias = static_cast<float>(c.out_q.zero_point[0]) -
                   pixels * static_cast<float>(c.x_q.zero_point[0]) * channel.multiplier;
  }
  if (c.op == Op::kRescale || c.op == Op::kTable) {
    const auto in_256ths = [&](float ratio) {
      const float scaled = 256.0f * ratio;
      const int32_t rounded = ConvertX86(scaled);
      channel.operands_rounded |= static_cast<float>(rounded) != scaled;
      return FixedMultiplier{.value = rounded};
    };
    channel.a.fixed = channel.b.fixed = in_256ths(Ratio(c));
    if (c.op == Op::kTable && c.function == Function::kLeakyRelu)
      channel.b.fixed = in_256ths(Ratio(c) * c.negative_slope);
  }
  return channel;
}

std::string CannotRescale(const Case& c, float slope) {
  const float ratio = Ratio(c);
  return FirstReason({
      Require(ratio >= 0x1p-8f && ratio <= 0x1p7f,
              "the scale of x over that of the output must lie in [2^-8, 2^7]"),
      Require(ratio * slope >= 0x1p-8f && ratio * slope <= 0x1p7f,
              "the slope times the ratio of scales must lie in [2^-8, 2^7]"),
  });
}

std::string CannotClamp(const Case& c) {
  return FirstReason({Require(!ChangesType(c), "x and output must have one type"),
                      Require(XnnpackSameParameters(c), "codes are clamped or rescaled")});
}

std::string CannotMapCodes(const Case& c) {
  if (c.op == Op::kRescale) {
    if (HasBounds(c)) return CannotClamp(c);
    return ChangesType(c) ? "" : CannotRescale(c, 1.0f);
  }
  const std::string type = Require(!ChangesType(c), "x and output must have one type");
  if (!type.empty()) return type;
  if (c.op == Op::kTable) {
    if (c.function == Function::kRelu) return CannotClamp(c);
    return c.function == Function::kLeakyRelu ? CannotRescale(c, c.negative_slope) : "";
  }
  const Window& v = c.window;
  switch (c.op) {
    case Op::kSoftmax: return Require(c.x.dtype() == DType::kU8, "softmax is u8");
    case Op::kGlobalAvgPool:
      return Require(std::isnormal(Ratio(c)), "the ratio of scales must be a normal number");
    case Op::kMaxPool:
      return FirstReason({
          Require(!v.ceil_mode, "there is no ceil mode"),
          Require(v.kernel_h * v.kernel_w > 1, "a 1x1 pool is refused"),
          Require(v.stride_h <= v.kernel_h && v.stride_w <= v.kernel_w,
                  "strides may not exceed the window"),
          Require(LowerBound(c) < c.out_max, "the clamp must leave two codes"),
      });
    default:
      return FirstReason({
          Require(!v.ceil_mode, "there is no ceil mode"),
          Require(c.x.dtype() == DType::kU8, "averages of windows are u8"),
          XnnpackCannotAverage(c),
      });
  }
}

bool HasClamp(Op op) {
  return HasSums(op) || op == Op::kRescale || op == Op::kMaxPool || op == Op::kAvgPool;
}

std::string CannotRun(const Case& c, bool of_2026) {
  const bool sums = HasSums(c), pool = c.op == Op::kMaxPool;
  const auto is_normal = [](const QParams& q) {
    return std::ranges::all_of(q.scale, [](float s) { return std::isnormal(s); });
  };
  const std::string shared = FirstReason({
      pool ? "" : ZeroPointsAreCodes(c),
      Require(LowerBound(c) <= c.out_max, "relu above the upper clamp"),
      Require(HasClamp(c.op) || c.out_dtype == DType::kF32 || !HasBounds(c),
              "there is no clamp and no relu"),
      Require(!c.bias, "the bias must be int32"),
      Require(!c.per_channel || sums, "per tensor only"),
      Require(pool || (is_normal(c.x_q) && is_normal(c.w_q) && is_normal(c.out_q)),
              "scales must be normal numbers"),
  });
  if (!shared.empty()) return shared;
  if (HasTwoOperands(c.op)) return XnnpackCannotRunOperands(c);
  if (c.op == Op::kQuantize || c.op == Op::kDequantize) return "";
  if (!sums) {
    const std::string reason = CannotMapCodes(c);
    if (!reason.empty()) return reason;
    if (c.op == Op::kSoftmax) return Require(XnnpackSharesAreDecided(c), kUndecided);
    const bool calls =
        c.op == Op::kTable && (c.function == Function::kSigmoid || c.function == Function::kTanh);
    return Require(!calls || XnnpackCodesAreDecided(c, StepsOf(c, false, of_2026), ChannelOf(c, 0)),
                   kUndecided);
  }
  const std::string types = XnnpackCannotRunSumTypes(c);
  if (!types.empty()) return types;
  for (int64_t n = 0; n < c.N; ++n) {
    const float multiplier = ChannelOf(c, n).multiplier;
    // Of s8 the library does not check the lower end.
    if (!(multiplier < 256.0f && (c.out_dtype == DType::kS8 || multiplier >= 0x1p-32f)))
      return "the multiplier must lie in [2^-32, 256)";
  }
  return "";
}

struct Build {
  std::string name, description, commit;
  bool wraps;
  bool of_2026 = false;
};

Convention Make(const Build& build) {
  const bool wraps = build.wraps, of_2026 = build.of_2026;
  Definition definition;
  definition.name = build.name;
  definition.description = build.description;
  definition.source =
      "XNNPACK src/microparams-init.c, src/reference/unary-elementwise.cc @ " + build.commit;
  definition.satisfies = XnnpackClaims();
  Append(definition.satisfies,
         {"linear.per_channel_equals_per_tensor", "conv2d.per_channel_equals_per_tensor",
          "depthwise.per_channel_equals_per_tensor"});
  definition.variations = {"V1",  "V2",  "V3",  "V5",  "V8",  "V14",
                           "V15", "V16", "V17", "V19", "V26", "V33"};
  if (wraps) definition.variations.emplace_back("V9");
  definition.variations.emplace_back(of_2026 ? "V38" : "V4");
  definition.ops = {Op::kQuantize, Op::kDequantize,    Op::kRescale, Op::kAdd,       Op::kSub,
                    Op::kMul,      Op::kLinear,        Op::kConv2d,  Op::kDepthwise, Op::kMaxPool,
                    Op::kAvgPool,  Op::kGlobalAvgPool, Op::kTable,   Op::kSoftmax};
  definition.cannot_run = [of_2026](const Case& c) { return CannotRun(c, of_2026); };
  definition.gather = [of_2026](const Case& c) {
    return of_2026 && c.op == Op::kGlobalAvgPool ? EachAlone(c, SumOfCodes) : XnnpackGather(c);
  };
  definition.accumulation = ExactSums;
  definition.channel = ChannelOf;
  definition.steps = [wraps, of_2026](const Case& c) { return StepsOf(c, wraps, of_2026); };
  Convention convention = MakeConvention(definition);
  if (!of_2026) return convention;
  definition.steps = [steps = definition.steps](const Case& c) {
    std::vector<Step> of_s4 = steps(c);
    const auto scale = std::ranges::find(of_s4, Stage::kScale, &Step::stage);
    of_s4.insert(scale, {Stage::kBias, "16 times that wraps in int32: 28 bits", WrapIn28Bits});
    return of_s4;
  };
  AddOperation(convention, XnnpackDynamicLinear());
  return WithNarrowWeights(std::move(convention), MakeConvention(std::move(definition)));
}

}  // namespace

std::vector<Convention> Xnnpack2024Conventions() {
  const std::string wraps = " from AVX-512 or AVX-VNNI on: as @avx2, zero points in int32";
  return {Make({"xnnpack2024@avx2",
                "XNNPACK of 2024 on x86: as xnnpack@fp32, but codes are rescaled in 256ths",
                "4ea82e5", false}),
          Make({"xnnpack2024@avx512", "XNNPACK of 2024" + wraps, "4ea82e5", true}),
          Make({"xnnpack2026@avx2",
                "XNNPACK of 2026 on x86: as xnnpack2024@avx2, but for the mean of an image, and "
                "tables round to even",
                "75db3c0", false, true}),
          Make({"xnnpack2026@avx512", "XNNPACK of 2026" + wraps, "75db3c0", true, true})};
}

}  // namespace qualm::conventions
