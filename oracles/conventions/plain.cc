// SPDX-License-Identifier: Apache-2.0
// What kernels compute that follow no library: their authors write the formula of the textbook, and
// round by what the language offers.
//
//   plain@away           std::round, lround, Rust's f32::round
//   plain@up             floor(v + 1/2), (sum + half) >> shift
//   plain@floor          sum >> shift, Python's //
//   plain@truncate       a cast to an integer, integer division
//   +zp_first            the zero point is added before that, or before rint (plain@even); up and
//                        floor do not depend on it
//   plain@float32+away   std::round(float(sum) * multiplier), all of it in float32; also the codes
//                        and the zero point of DynamicQuantizeLinear
//
// All but the last begin with the exact real value (oracles/exact): they depart by their rounding
// alone, and nothing overflows.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "oracles/conventions/definition.h"
#include "oracles/conventions/onnx.h"
#include "oracles/exact/evaluate.h"

namespace qualm::conventions {
namespace {

using Claims = std::vector<const char*>;

// ---- From the exact value ----

// A real number next to `integer`, which is the nearest one, of two nearest either.
struct Nearest {
  int64_t integer = 0;
  int rest = 0;  // sign of the number less `integer`
  bool tie = false;
};

int64_t Even(const Nearest& v) {
  return v.tie && v.integer % 2 != 0 ? v.integer + v.rest : v.integer;
}
int64_t Away(const Nearest& v) {
  const bool outward = v.rest > 0 ? v.integer >= 0 : v.integer <= 0;
  return v.tie && outward ? v.integer + v.rest : v.integer;
}
int64_t Up(const Nearest& v) { return v.tie && v.rest > 0 ? v.integer + 1 : v.integer; }
int64_t Floor(const Nearest& v) { return v.rest < 0 ? v.integer - 1 : v.integer; }
int64_t Truncate(const Nearest& v) {
  const bool inward = v.integer > 0 ? v.rest < 0 : v.integer < 0 && v.rest > 0;
  return inward ? v.integer + v.rest : v.integer;
}

struct Rule {
  std::string name;
  std::string how;
  int64_t (*round)(const Nearest&);
  bool zero_point_first;
  const char* variation;
  Claims claims;  // besides those that hold with every rule
};

std::vector<Rule> Rules() {
  const Claims near{"round_trip", "sweep_is_linear"};
  const Claims near_shifts{"round_trip", "sweep_is_linear", "zero_point_shift"};
  const Claims near_shifts_odd{"round_trip", "sweep_is_linear", "zero_point_shift", "negation"};
  return {{"away", "ties away from zero", Away, false, "V4", near_shifts_odd},
          {"away+zp_first", "ties away from zero", Away, true, "V4", near},
          {"even+zp_first", "ties to even", Even, true, "V3", near_shifts_odd},
          {"floor", "down", Floor, false, "V34", {"sweep_is_linear", "zero_point_shift"}},
          {"truncate", "towards zero", Truncate, false, "V34", {"zero_point_shift", "negation"}},
          {"truncate+zp_first", "towards zero", Truncate, true, "V34", {}},
          {"up", "ties up", Up, false, "V5", near_shifts}};
}

// The rounded value of each output; with its zero point if the rule wants that first.
class RoundedValues {
 public:
  RoundedValues(const Case& c, const Rule& rule)
      : case_(c), rule_(rule), exact_(std::make_shared<const exact::Outputs>(c)) {}

  std::optional<Value> operator()(int64_t index, Trace* trace) const {
    // Beyond this the clamp hides what is rounded, with any zero point.
    constexpr __int128 kFar = int64_t{1} << 40;
    const int64_t zero_point = case_.out_q.zero_point_at(index % case_.N);
    const exact::Code code = exact_->CodeAt(index / case_.N, index % case_.N);
    const __int128 nearest = rule_.zero_point_first ? code.value : code.value - zero_point;
    const auto to_even = static_cast<int64_t>(std::clamp(nearest, -kFar, kFar));
    Value value;
    value.SetInt(rule_.round({to_even, code.rest, code.tie_distance == 0}));
    if (trace == nullptr) return value;
    for (TraceStep& step : exact::Derive(case_, index)) {
      if (step.stage == Stage::kRound) break;
      trace->push_back(std::move(step));
    }
    const std::string first =
        rule_.zero_point_first ? "+ zero point " + std::to_string(zero_point) + ", then " : "";
    const std::string text = ValueText(value);
    Note(trace, Stage::kRound, first + "round " + rule_.how + ": " + text, text,
         value.integer != to_even);
    return value;
  }

 private:
  const Case& case_;
  const Rule& rule_;
  std::shared_ptr<const exact::Outputs> exact_;
};

void SetOutput(Channel& channel, const Case& c, int64_t n) {
  channel.zero_point = c.out_q.zero_point_at(n);
  channel.low = static_cast<int32_t>(std::min<int64_t>(LowerBound(c, n), c.out_max));
  channel.high = c.out_max;
}

void AddZeroPoint(Value& v, const Channel& c) { v.SetInt(v.integer + c.zero_point); }

constexpr Step kClamp{Stage::kClamp, "clamp to {low}..{high}", step::Clamp};

Convention FromTheExactValue(const Rule& rule) {
  Definition definition;
  definition.name = "plain@" + rule.name;
  definition.description = std::string("the exact value, ") +
                           (rule.zero_point_first ? "with the zero point added, " : "") +
                           "rounded " + rule.how;
  definition.source = "docs/quantization.md with another rounding";
  definition.wide_codes = definition.wide_sums = definition.small_codes = true;
  definition.element_blocks = true;
  definition.satisfies = {"row_independence",
                          "column_independence",
                          "k_permutation",
                          "zero_term_append",
                          "identity_weights",
                          "per_channel_equals_per_tensor",
                          "commutes",
                          "gauge",
                          "is_monotone",
                          "sweep_is_monotone",
                          "relu_is_rescale",
                          "equal_qparams_is_identity",
                          "parts_are_rescaled",
                          "neutral_operand_is_rescale",
                          "global_is_whole_window",
                          "constants_pool_to_themselves",
                          "counts_only_padding_that_is",
                          "zero_maps_to_zero_point"};
  AddExactConvClaims(definition.satisfies);
  definition.satisfies.insert(definition.satisfies.end(), rule.claims.begin(), rule.claims.end());
  definition.variations = {rule.variation};
  definition.ops = OpsWhere(HasOutQParams);
  definition.cannot_run = [](const Case& c) {
    return Require(IsCode(c.out_dtype), "output must be codes");
  };
  const auto shared = std::make_shared<const Rule>(rule);
  definition.gather = [shared](const Case& c) { return RoundedValues(c, *shared); };
  definition.channel = [](const Case& c, int64_t n) {
    Channel channel;
    SetOutput(channel, c, n);
    return channel;
  };
  definition.steps = [shared](const Case&) {
    std::vector<Step> steps{kClamp};
    if (!shared->zero_point_first) {
      steps.insert(steps.begin(),
                   {Stage::kZeroPoint, "+ zero point {zero_point}", AddZeroPoint, Rise::kAlways});
    }
    return steps;
  };
  return MakeConvention(std::move(definition));
}

// ---- In float32 ----

void TakeOutZeroPoint(Value& v, const Channel& c) { v.SetInt(v.integer - c.a.zero_point); }

// {b_scale} is negative for a difference.
void AddReals(Value& v, const Channel& c) {
  const float a = MultiplyInto(v, c.a.scale, static_cast<float>(v.integer - c.a.zero_point));
  const float b =
      MultiplyInto(v, c.b.scale, static_cast<float>(int64_t{v.second} - c.b.zero_point));
  AddInto(v, a, b);
}

Channel FloatChannel(const Case& c, int64_t n) {
  Channel channel;
  SetOutput(channel, c, n);
  channel.scale = c.out_q.scale_at(n);
  channel.a = {c.x_q.scale_at(0), c.x_q.zero_point_at(0), {}};
  channel.b = {c.w_q.scale_at(n), c.w_q.zero_point_at(n), {}};
  if (AddsOperands(c.op)) channel.b.scale *= static_cast<float>(SignOfSecond(c.op));
  if (c.bias_i32) channel.bias_i32 = (*c.bias_i32)[static_cast<size_t>(n)];
  channel.multiplier = HasExplicitMultiplier(c) ? ExplicitMultiplier(c, n)
                                                : channel.a.scale * channel.b.scale / channel.scale;
  return channel;
}

std::string CannotRunInFloat(const Case& c) {
  bool finite = true;
  for (int64_t n = 0; n < c.N && !AddsOperands(c.op); ++n)
    finite = finite && std::isfinite(FloatChannel(c, n).multiplier);
  return FirstReason({Require(IsCode(c.out_dtype), "output must be codes"),
                      Require(!c.bias, "the bias must be int32"),
                      Require(finite, "the multiplier must be finite"), ZeroPointsAreCodes(c)});
}

std::vector<Step> FloatSteps(const Case& c) {
  const Step divide{Stage::kScale, "divided by scale {scale}", step::DivideByScale};
  std::vector<Step> steps;
  if (c.op == Op::kQuantize) {
    steps = {divide};
  } else if (AddsOperands(c.op)) {
    steps = {{Stage::kAccumulate,
              "{a_scale} * (a - {a_zp}) + {b_scale} * ({b} - {b_zp}) in float32", AddReals},
             divide};
  } else {
    if (c.op == Op::kMul) steps.push_back(step::kProduct);
    if (c.op == Op::kRescale)
      steps.push_back({Stage::kOffset, "code - {a_zp}", TakeOutZeroPoint, Rise::kAlways});
    if (c.bias_i32) steps.push_back({Stage::kBias, "+ int32 bias {bias_i32}", step::AddBiasI32});
    steps.push_back({Stage::kScale, "to float32", step::ToFloat});
    steps.push_back({Stage::kScale, "times {multiplier}", step::TimesMultiplier});
  }
  steps.push_back({Stage::kRound, "std::round, ties away from zero", step::RoundAway});
  steps.push_back(
      {Stage::kZeroPoint, "+ zero point {zero_point}, wrapping", step::AddZeroPointWrap32});
  steps.push_back(kClamp);
  return steps;
}

Convention InFloat() {
  Definition definition;
  definition.name = "plain@float32+away";
  definition.description =
      "exact int32 sums times fl(fl(sx*sw)/sy) in float32, std::round: ties away from zero";
  definition.source = "std::round(float(sum) * multiplier) + zero point, as people write it";
  definition.satisfies = {"row_independence", "column_independence",
                          "k_permutation",    "zero_term_append",
                          "identity_weights", "per_channel_equals_per_tensor",
                          "commutes",         "zero_maps_to_zero_point"};
  AddExactConvClaims(definition.satisfies);
  definition.variations = {"V1", "V4", "V8", "V9", "V13", "V14", "V16", "V17"};
  definition.ops = {Op::kQuantize, Op::kRequantize, Op::kRescale, Op::kAdd,      Op::kSub,
                    Op::kMul,      Op::kLinear,     Op::kConv2d,  Op::kDepthwise};
  definition.cannot_run = CannotRunInFloat;
  definition.wide_codes = definition.small_codes = true;
  definition.element_blocks = true;
  definition.accumulation = ExactSums;
  definition.channel = FloatChannel;
  definition.steps = FloatSteps;
  Convention convention = MakeConvention(definition);
  const auto round = [](float x) { return std::round(x); };
  AddOperation(convention,
               MakeDynamicLinear(OnnxDynamicLinear(round, MakeConvention(definition), definition)));
  AddOperation(convention, OnnxChooseQParams(round, MakeConvention(definition)));
  return convention;
}

}  // namespace

std::vector<Convention> PlainConventions() {
  std::vector<Convention> conventions;
  for (const Rule& rule : Rules()) conventions.push_back(FromTheExactValue(rule));
  conventions.push_back(InFloat());
  for (Convention& convention : conventions) convention.of_no_library = true;
  return conventions;
}

}  // namespace qualm::conventions
