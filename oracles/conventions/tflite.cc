// SPDX-License-Identifier: Apache-2.0
// TensorFlow Lite as shipped is litert.cc, which takes these steps with changes. The requantization
// of both is in primitives.h (MultiplyTwoRoundings, MultiplyOneRounding).
//
// TFLite reference kernels (tflite-micro 90b983c): int8 fully connected
// (kernels/internal/reference/integer_ops/fully_connected.h), convolution (conv.h,
// depthwise_conv.h: a multiplier for each channel), add.h and mul.h in both builds of
// MultiplyByQuantizedMultiplier, and AffineQuantize (reference/quantize.h). Multipliers are float64
// products and quotients of the float32 scales (micro/kernels/{add,mul}_common.cc,
// kernels/kernel_util.cc PopulateConvolutionQuantizationParams). Taps in the padding are real 0.
#include "oracles/conventions/tflite.h"

#include <algorithm>

#include "oracles/conventions/definition.h"
#include "oracles/conventions/tflite_hard_swish.h"

namespace qualm::conventions {
namespace {

void TimesFixedTwice(Value& v, const Channel& c) {
  v.SetInt(MultiplyTwoRoundings(static_cast<int32_t>(v.integer), c.fixed));
}
void TimesFixedOnce(Value& v, const Channel& c) {
  v.SetInt(MultiplyOneRounding(static_cast<int32_t>(v.integer), c.fixed));
}
// add: both operands are scaled to units of 2*max(scales)/2^20, their sum to units of the output.
constexpr int32_t kAddShift = 20;
template <auto Multiply, int kSign>
void AddScaled(Value& v, const Channel& c) {
  const auto scaled = [](int64_t difference, FixedMultiplier m) {
    return int64_t{Multiply(static_cast<int32_t>(difference * (1 << kAddShift)), m)};
  };
  const int64_t sum = scaled(v.integer - c.a.zero_point, c.a.fixed) +
                      kSign * scaled(int64_t{v.second} - c.b.zero_point, c.b.fixed);
  v.SetInt(Wrap32(sum));
  v.lossy = v.integer != sum;
}

Channel OperandsChannel(const Case& c, bool single) {
  Channel channel;
  SetClamp(channel, c);
  channel.a.zero_point = c.x_q.zero_point[0];
  channel.b.zero_point = c.w_q.zero_point[0];
  channel.zero_point = c.out_q.zero_point[0];
  const auto a = static_cast<double>(c.x_q.scale[0]), b = static_cast<double>(c.w_q.scale[0]);
  const auto out = static_cast<double>(c.out_q.scale[0]);
  if (c.op == Op::kMul) {
    channel.fixed = QuantizeMultiplier(a * b / out, single);
    return channel;
  }
  const double twice_max = 2 * std::max(a, b);
  channel.a.fixed = QuantizeMultiplier(a / twice_max, single);
  channel.b.fixed = QuantizeMultiplier(b / twice_max, single);
  channel.fixed = QuantizeMultiplier(twice_max / ((1 << kAddShift) * out), single);
  return channel;
}

Channel ChannelOf(const Case& c, int64_t n, bool single) {
  if (HasTwoOperands(c.op)) return OperandsChannel(c, single);
  if (c.op != Op::kQuantize) return FixedPointChannel(c, n, single);
  Channel channel;
  SetClamp(channel, c);
  channel.scale = c.out_q.scale_at(0);
  channel.zero_point = c.out_q.zero_point_at(0);
  return channel;
}

std::string CannotRun(const Case& c, bool single) {
  const std::string shared = FirstReason({
      Require(!c.per_channel || IsConv(c.op), "per tensor only"),
      Require(!c.bias, "the bias must be int32"),
      Require(LowerBound(c) <= c.out_max, "relu above the upper clamp"),
  });
  if (!shared.empty()) return shared;
  if (c.op == Op::kQuantize) {
    return FirstReason({WholeRange(c), Require(!c.relu, "this function has no fused relu")});
  }
  if (HasSums(c) && (c.x.dtype() != DType::kS8 || c.w.dtype() != DType::kS8)) {
    return "activations and weights must be s8";
  }
  if (HasTwoOperands(c.op) && c.x.dtype() != DType::kS8) return "operands must be s8";
  if (c.out_dtype != DType::kS8) return "output must be s8";
  if (IsConv(c.op) && !WeightZeroPointsAre(c, 0)) return "weight zero point must be 0";
  if (HasTwoOperands(c.op)) {
    // 255*2^20 fits int32; a larger difference of code and zero point does not.
    if (const std::string reason = ZeroPointsAreCodes(c); !reason.empty()) return reason;
  }
  // Larger shifts are undefined in C++ there (the build with one rounding makes none above 30); add
  // takes only multipliers below 1.
  const int32_t most = c.op == Op::kAdd ? 0 : 31;
  for (int64_t n = 0; n < c.N; ++n) {
    if (ChannelOf(c, n, single).fixed.shift > most) return "the multiplier is too large";
  }
  return "";
}

Convention Make(bool single) {
  Definition definition;
  definition.name = single ? "tflite@single" : "tflite@double";
  definition.description =
      std::string("TFLite reference int8: exact sums, fixed point with ") +
      (single ? "one rounding, ties toward +inf" : "two roundings, ties away from zero");
  definition.source = "tflite-micro kernels/internal/common.cc, reference/ @ 90b983c";
  definition.satisfies = {"k_permutation",
                          "zero_term_append",
                          "row_independence",
                          "column_independence",
                          "commutes",
                          "add.is_monotone",
                          "conv2d.per_channel_equals_per_tensor",
                          "depthwise.per_channel_equals_per_tensor"};
  AddExactConvClaims(definition.satisfies);
  definition.variations = {"V4", "V9", "V11", "V13", "V15", "V16", "V17", "V18"};
  definition.variations.emplace_back(single ? "V5" : "V12");
  definition.ops = {Op::kQuantize,  Op::kRequantize, Op::kLinear, Op::kConv2d,
                    Op::kDepthwise, Op::kAdd,        Op::kMul};
  definition.cannot_run = [single](const Case& c) { return CannotRun(c, single); };
  definition.accumulation = ExactSums;
  definition.channel = [single](const Case& c, int64_t n) { return ChannelOf(c, n, single); };
  definition.steps = [single](const Case& c) {
    if (c.op == Op::kQuantize) {
      return FixedPointSteps(c, {{Stage::kScale, "divided by scale {scale}", step::DivideByScale},
                                 {Stage::kRound, "round, ties away from zero", step::RoundAway}});
    }
    // A left shift wraps. Who encloses codes asks of a requantize alone, which has one multiplier
    // here.
    const bool rises = FixedPointChannel(c, 0, single).fixed.shift <= 0;
    const Rise rise = rises ? Rise::kAlways : Rise::kUnknown;
    const Step multiply =
        single ? Step{Stage::kRound, "times {fixed}*2^({shift}-31), ties toward +inf",
                      TimesFixedOnce, rise}
               : Step{Stage::kRound,
                      "times {fixed}*2^({shift}-31), rounded twice, ties away from zero",
                      TimesFixedTwice, rise};
    if (c.op == Op::kMul) return FixedPointSteps(c, {step::kProduct, multiply});
    if (c.op != Op::kAdd) return FixedPointSteps(c, {multiply});
    return FixedPointSteps(
        c, {{Stage::kAccumulate,
             "(a - {a_zp})*2^20 * {a_fixed}*2^({a_shift}-31) + ({b} - {b_zp})*2^20 * "
             "{b_fixed}*2^({b_shift}-31)",
             single ? AddScaled<MultiplyOneRounding, 1> : AddScaled<MultiplyTwoRoundings, 1>},
            multiply});
  };
  Convention convention = MakeConvention(std::move(definition));
  AddOperation(convention, TfliteHardSwish());
  return convention;
}

}  // namespace

const Step kTfliteTimesFixed{Stage::kRound,
                             "times {fixed}*2^({shift}-31), rounded twice, ties away from zero",
                             TimesFixedTwice};

Channel TfliteSumChannel(const Case& c) { return OperandsChannel(c, false); }

std::vector<Step> TfliteSumSteps(const Case& c) {
  constexpr std::string_view kText =
      "(a - {a_zp})*2^20 * {a_fixed}*2^({a_shift}-31) and ({b} - {b_zp})*2^20 * "
      "{b_fixed}*2^({b_shift}-31), added or subtracted";
  return FixedPointSteps(c, {{Stage::kAccumulate, kText,
                              c.op == Op::kSub ? AddScaled<MultiplyTwoRoundings, -1>
                                               : AddScaled<MultiplyTwoRoundings, 1>},
                             kTfliteTimesFixed});
}

std::vector<Convention> TfliteConventions() { return {Make(false), Make(true)}; }

}  // namespace qualm::conventions
