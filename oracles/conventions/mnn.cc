// SPDX-License-Identifier: Apache-2.0
// MNN's FloatToInt8 on x86 (alibaba/MNN 3.6.1 source/backend/cpu/x86_x64/sse/FunctionSummary.hpp,
// _SSE_MNNFloat2Int8, and the same in avx and avx512): x times the reciprocal of the scale, that a
// model stores, clamped, half added away from zero in float32, cut. NaN becomes the highest code.
#include <algorithm>
#include <cmath>

#include "oracles/conventions/definition.h"

namespace qualm::conventions {
namespace {

void ClampReal(Value& v, const Channel& c) {
  const bool nan = std::isnan(v.number);
  v.SetReal(MaxPs(MinPs(v.number, static_cast<float>(c.high)), static_cast<float>(c.low)));
  v.lossy = nan;
}
void AddHalf(Value& v, const Channel&) { AddInto(v, v.number, v.number < 0 ? -0.5F : 0.5F); }
void Cut(Value& v, const Channel&) { v.SetInt(static_cast<int64_t>(v.number)); }

Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel;
  SetClamp(channel, c);
  channel.reciprocal = 1 / c.out_q.scale_at(n);
  return channel;
}

std::string CannotRun(const Case& c) {
  const bool normal = std::ranges::all_of(
      c.out_q.scale, [](float scale) { return std::isnormal(scale) && std::isnormal(1 / scale); });
  return FirstReason({
      Require(c.out_dtype == DType::kS8, "output must be s8"),
      Require(!c.relu, "no relu"),
      Require(std::ranges::count(c.out_q.zero_point, 0) ==
                  static_cast<int64_t>(c.out_q.zero_point.size()),
              "no zero points"),
      Require(normal, "a scale or its reciprocal is no normal float32"),
      WholeRange(c),
  });
}

std::vector<Step> Steps(const Case&) {
  return {{Stage::kScale, "times reciprocal {reciprocal}", step::TimesReciprocal},
          {Stage::kClamp, "clamp to {low}..{high}, NaN to {high}", ClampReal, Rise::kAlways},
          {Stage::kRound, "half is added, away from zero", AddHalf, Rise::kAlways},
          {Stage::kRound, "the fraction is cut off", Cut, Rise::kAlways}};
}

}  // namespace

std::vector<Convention> MnnConventions() {
  Definition definition;
  definition.name = "mnn";
  definition.description =
      "MNN's FloatToInt8 on x86: times the reciprocal scale, clamped, half added away from zero, "
      "cut";
  definition.source = "MNN 3.6.1 source/backend/cpu/x86_x64/sse, _SSE_MNNFloat2Int8";
  definition.satisfies = {"row_independence", "column_independence",
                          "per_channel_equals_per_tensor", "is_monotone"};
  definition.variations = {"V2", "V17", "V44"};
  definition.ops = {Op::kQuantize};
  definition.cannot_run = CannotRun;
  definition.channel = ChannelOf;
  definition.steps = Steps;
  return {MakeConvention(std::move(definition))};
}

}  // namespace qualm::conventions
