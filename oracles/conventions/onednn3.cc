// SPDX-License-Identifier: Apache-2.0
// oneDNN 3.7.2 as PyTorch 2.6 calls it: the accumulators of 2.6, another epilogue. Scales arrive as
// reciprocals and are inverted once more, the bias is added in real units, and the output scale is
// a second multiplication.
#include <cmath>

#include "oracles/conventions/onednn2.h"

namespace qualm::conventions {
namespace {

void TimesAccumulatorScale(Value& v, const Channel& c) {
  MultiplyInto(v, v.number, c.accumulator_scale);
}
void AddBias(Value& v, const Channel& c) { AddInto(v, v.number, c.bias); }
Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel;
  SetOneDnnRange(channel, c);
  const auto inverse = [](float scale) {
    return static_cast<float>(1.0 / static_cast<double>(scale));
  };
  channel.accumulator_scale =
      (1.0f / inverse(c.x_q.scale_at(0))) * (1.0f / inverse(c.w_q.scale_at(n)));
  channel.multiplier = inverse(c.out_q.scale_at(0));
  if (c.bias) channel.bias = (*c.bias)[static_cast<size_t>(n)];
  return channel;
}

Convention Make(const OneDnnIsa& isa) {
  Definition definition;
  definition.name = "onednn3@" + std::string(isa.name);
  definition.description = "oneDNN 3.7 matmul on " + std::string(isa.name) +
                           (isa.vnni ? ": exact sums" : ": saturating int16 pairs") +
                           ", bias in real units, zero point added before rounding";
  definition.source = "oneDNN 3.7.2 src/cpu/x64; PyTorch 2.6.0 quantized/cpu/qlinear.cpp";
  definition.pair_saturates = !isa.vnni;
  definition.satisfies = OneDnnClaims(isa);
  definition.variations = OneDnnVariations(isa);
  definition.ops = {Op::kLinear, Op::kConv2d, Op::kDepthwise};
  definition.cannot_run = [&isa](const Case& c) {
    return FirstReason({
        Require(c.x.dtype() == DType::kU8, "activations must be u8"),
        Require(WeightZeroPointsAre(c, 0), "weight zero point must be 0"),
        OneDnnCannotRun(isa, c),
        Require(IsCode(c.out_dtype), "output must be u8 or s8"),
    });
  };
  definition.accumulation = [&isa](const Case& c) { return OneDnnAccumulation(isa, c); };
  definition.channel = ChannelOf;
  definition.steps = [](const Case& c) {
    std::vector<Step> steps = {{Stage::kScale, "to float32", step::ToFloat},
                               {Stage::kScale, "times fl(fl(1/isx)*fl(1/isw)) {accumulator_scale}",
                                TimesAccumulatorScale}};
    if (c.bias) steps.push_back({Stage::kBias, "+ bias {bias}", AddBias});
    if (c.relu) steps.push_back({Stage::kClamp, "relu", step::Relu});
    steps.push_back({Stage::kScale, "times fl(1/out_scale) {multiplier}", step::TimesMultiplier});
    AppendOneDnnEnd(steps);
    return steps;
  };
  return MakeConvention(std::move(definition));
}

}  // namespace

std::vector<Convention> OneDnn3Conventions() {
  return {Make(*FindOneDnnIsa("avx2")), Make(*FindOneDnnIsa("vnni"))};
}

}  // namespace qualm::conventions
