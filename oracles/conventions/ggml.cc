// SPDX-License-Identifier: Apache-2.0
// ggml's quantizers of blocks (0.25.1: src/ggml-quants.c, quantize_row_*_ref; src/ggml-cpu/arch/
// x86/quants.c, quantize_row_q8_0): x times the float32 reciprocal of the scale that the largest of
// the block gives, before the block stores it as an f16. A case has this scale. 127 over the
// largest, as AVX has it in the place of a reciprocal, is the same number where the largest is 127
// scales: both are one rounding of 1 over the scale.
//
//   q8_0         s8: rounded to even (AVX), away from zero (plain C)
//   q4_0, q5_0   u4, zero point 8; u8 up to 31, zero point 16: zero point and half added, cut
//   q4_1, q5_1   the same types with other zero points: the minimum is taken from x first
#include <algorithm>
#include <cmath>

#include "oracles/conventions/definition.h"

namespace qualm::conventions {
namespace {

constexpr int32_t kMostOf5Bits = 31;

// The zero point of the formats without minima.
int32_t MiddleOf(const Case& c) { return c.out_dtype == DType::kU4 ? 8 : 16; }
bool HasMinima(const Case& c) {
  return !c.out_q.zero_point.empty() && c.out_q.zero_point.front() != MiddleOf(c);
}

void LessMinimum(Value& v, const Channel& c) {
  AddInto(v, v.number, c.scale * static_cast<float>(c.zero_point));
}
void AddZeroPointAndHalf(Value& v, const Channel& c) {
  AddInto(v, v.number, static_cast<float>(c.zero_point) + 0.5F);
}
void AddHalf(Value& v, const Channel& /*any*/) { AddInto(v, v.number, 0.5F); }
void Cut(Value& v, const Channel& /*any*/) { v.SetInt(static_cast<int64_t>(v.number)); }

Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel;
  SetClamp(channel, c);
  SetColumnScale(channel, c, n);
  channel.reciprocal = 1 / channel.scale;
  return channel;
}

// Whether x lies between the ends of the block: the scale is that of the largest.
bool Fits(const Case& c, float x, double scale, int32_t zero_point) {
  const double codes = double{x} / scale;
  if (c.out_dtype == DType::kS8) return std::abs(codes) <= c.out_max;
  if (HasMinima(c)) return codes >= -zero_point && codes <= c.out_max - zero_point;
  return std::abs(codes) <= zero_point;
}

std::string CannotRun(const Case& c) {
  const bool small = c.out_dtype == DType::kU4 || c.out_dtype == DType::kU8;
  const bool bytes = c.out_dtype == DType::kU8;
  const std::string type = FirstReason({
      Require(small || c.out_dtype == DType::kS8, "output must be s8, u4 or u8 up to 31"),
      Require(!c.relu, "no relu"),
      bytes ? Require(c.out_min == 0 && c.out_max == kMostOf5Bits, "codes of u8 must be 0..31")
            : WholeRange(c),
  });
  if (!type.empty()) return type;
  for (int64_t i = 0; i < c.x.size(); ++i) {
    const int64_t n = i % c.N;
    const float scale = c.out_q.scale_at(n);
    const int32_t zero_point = c.out_q.zero_point_at(n);
    if (!small && zero_point != 0) return "no zero points of s8";
    if (small && (zero_point == MiddleOf(c)) == HasMinima(c))
      return "zero points must all be " + std::to_string(MiddleOf(c)) + " or none of them";
    if (!std::isnormal(scale) || !std::isnormal(1 / scale))
      return "a scale or its reciprocal is no normal float32";
    const double minimum = double{scale} * zero_point;
    if (small && minimum != double{static_cast<float>(minimum)})
      return "scale times zero point is no float32";
    if (!std::isfinite(c.x.FloatAt(i)) || !Fits(c, c.x.FloatAt(i), double{scale}, zero_point))
      return "an x lies beyond the codes, and the scale is that of the largest";
  }
  return "";
}

constexpr Step kReciprocal{Stage::kScale, "times reciprocal {reciprocal}", step::TimesReciprocal};
constexpr Step kCut{Stage::kRound, "the fraction is cut off", Cut, Rise::kAlways};
constexpr Step kMin{Stage::kClamp, "clamp to {low}..{high}", step::Clamp};

std::vector<Step> StepsOfSmall(const Case& c) {
  if (HasMinima(c)) {
    return {{Stage::kZeroPoint, "less the minimum, {scale} times -{zero_point}", LessMinimum,
             Rise::kAlways},
            kReciprocal,
            {Stage::kRound, "half is added", AddHalf, Rise::kAlways},
            kCut,
            kMin};
  }
  return {
      kReciprocal,
      {Stage::kZeroPoint, "+ zero point {zero_point} and half", AddZeroPointAndHalf, Rise::kAlways},
      kCut,
      kMin};
}

std::vector<Step> StepsOfAvx(const Case& c) {
  if (c.out_dtype != DType::kS8) return StepsOfSmall(c);
  return {kReciprocal, {Stage::kRound, "round to even", step::RoundX86}, kMin};
}
std::vector<Step> StepsOfC(const Case& c) {
  if (c.out_dtype != DType::kS8) return StepsOfSmall(c);
  return {kReciprocal, {Stage::kRound, "round half away from zero", step::RoundAway}, kMin};
}

Convention Quantizer(const char* name, const char* how, const char* source,
                     std::vector<std::string> variations, std::vector<Step> (*steps)(const Case&)) {
  Definition definition;
  definition.name = name;
  definition.description = std::string(
                               "ggml's quantizers of blocks, by the scale of the largest: "
                               "times its reciprocal, q8_0 ") +
                           how + ", of fewer bits half added and cut";
  definition.source = source;
  definition.satisfies = {"row_independence", "column_independence",
                          "per_channel_equals_per_tensor", "is_monotone"};
  definition.variations = std::move(variations);
  definition.ops = {Op::kQuantize};
  definition.small_codes = definition.element_blocks = true;
  definition.cannot_run = CannotRun;
  definition.channel = ChannelOf;
  definition.steps = steps;
  return MakeConvention(std::move(definition));
}

}  // namespace

std::vector<Convention> GgmlConventions() {
  return {Quantizer("ggml@avx", "half to even",
                    "ggml 0.25.1 src/ggml-cpu/arch/x86/quants.c, quantize_row_q8_0 of AVX; "
                    "src/ggml-quants.c, quantize_row_q4_0_ref and others",
                    {"V2", "V3", "V5"}, StepsOfAvx),
          Quantizer("ggml@c", "half away from zero",
                    "ggml 0.25.1 src/ggml-quants.c, quantize_row_q8_0_ref, quantize_row_q4_0_ref "
                    "and others",
                    {"V2", "V3", "V4", "V5"}, StepsOfC)};
}

}  // namespace qualm::conventions
