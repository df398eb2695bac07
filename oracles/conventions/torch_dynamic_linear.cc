// SPDX-License-Identifier: Apache-2.0
// quantized::linear_dynamic of PyTorch 1.13.1 (qlinear_dynamic.cpp). Both engines choose the scale
// and zero point by ATen's ChooseQuantizationParams, and refuse NaN and infinities. ideep leaves M,
// scales and zero points open until the matmul runs: oneDNN then has its gemm only, on every
// instruction set, and its reference for sums without terms.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "oracles/conventions/aten.h"
#include "oracles/conventions/dynamic_linear.h"
#include "oracles/conventions/onednn2.h"
#include "oracles/conventions/torch_operators.h"

namespace qualm::conventions {
namespace {

exact::AtenChoice Choose(exact::ObservedRange range, bool reduce_range) {
  return exact::AtenFromRange(range.min, range.max, reduce_range);
}

std::string CannotRun(const Case& c) {
  return FirstReason({
      Require(c.w.dtype() == DType::kS8, "weights must be s8"),
      Require(std::ranges::all_of(c.x.as<float>(), [](float x) { return std::isfinite(x); }),
              "x must be finite"),
  });
}

// PyTorch always brings a bias, 0 where the layer has none.
Channel QnnpackChannel(const Case& c, int64_t n) {
  Channel channel;
  channel.multiplier = c.w_q.scale_at(n) * c.x_q.scale_at(0);
  if (c.bias) channel.bias = (*c.bias)[static_cast<size_t>(n)];
  return channel;
}

// q8gemm/4x4c2-dq-sse2.c, then relu_ of ATen.
Convention QnnpackLinear() {
  Definition definition;
  definition.ops = {Op::kLinear};
  definition.accumulation = ExactSums;
  definition.channel = QnnpackChannel;
  definition.steps = [](const Case& c) {
    std::vector<Step> steps = {
        {Stage::kScale, "to float32", step::ToFloat},
        {Stage::kScale, "times fl(w_scale*x_scale) {multiplier}", step::TimesMultiplier},
        {Stage::kBias, "+ bias {bias}", step::AddBiasFloat}};
    if (c.relu) steps.push_back({Stage::kClamp, "relu", step::Relu});
    return steps;
  };
  return MakeConvention(std::move(definition));
}

// A reorder from float32 to u8. The scale of x is float64 until this reciprocal.
Convention OneDnnQuantize(float reciprocal) {
  Definition definition;
  definition.ops = {Op::kQuantize};
  definition.channel = [reciprocal](const Case& c, int64_t) {
    Channel channel;
    SetOneDnnRange(channel, c);
    channel.reciprocal = reciprocal;
    return channel;
  };
  definition.steps = [](const Case&) {
    std::vector<Step> steps = {
        {Stage::kScale, "times fl(1/scale) {reciprocal}", step::TimesReciprocal}};
    AppendOneDnnEnd(steps);
    return steps;
  };
  return MakeConvention(std::move(definition));
}

float Inverse(double scale) { return static_cast<float>(1.0 / scale); }

}  // namespace

Convention QnnpackDynamicLinear(const Convention& aten) {
  DynamicLinear library;
  library.satisfies = {"k_permutation",    "column_independence", "per_channel_equals_per_tensor",
                       "zero_point_shift", "row_order",           "weight_scale_doubling"};
  library.variations = {"V1", "V2", "V19", "V31", "V32"};
  library.choose = [](const Case&, exact::ObservedRange range) { return Choose(range, false); };
  library.quantize = [aten](const exact::AtenChoice&) { return aten; };
  library.linear = [linear = QnnpackLinear()](const exact::AtenChoice&) { return linear; };
  library.cannot_run = [](const Case& c) {
    if (std::string reason = CannotRun(c); !reason.empty()) return reason;
    const auto scale = static_cast<float>(Choose(EndsOfX(c), false).scale);
    return Require(
        std::ranges::all_of(c.w_q.scale, [&](float w) { return std::isnormal(w * scale); }),
        "w_scale*x_scale must be finite, positive and normal");
  };
  return MakeDynamicLinear(std::move(library));
}

Convention FbgemmDynamicLinear(const Convention& fbgemm) {
  Definition quantize;
  quantize.ops = {Op::kQuantize};
  quantize.channel = AtenChannel;
  quantize.steps = [](const Case&) { return FbgemmQuantize(true, true); };
  const Convention legacy_x = MakeConvention(std::move(quantize));
  DynamicLinear library;
  library.satisfies = {"row_order", "weight_scale_doubling"};
  if (!fbgemm.pair_saturates) Append(library.satisfies, {"k_permutation"});
  library.variations = {"V1", "V2", "V8", "V16", "V19", "V31"};
  if (fbgemm.pair_saturates) Append(library.variations, {"V6"});
  library.choose = [](const Case& c, exact::ObservedRange range) {
    return Choose(range, c.observer.reduce_range);
  };
  library.quantize = [legacy_x](const exact::AtenChoice&) { return legacy_x; };
  library.linear = [fbgemm](const exact::AtenChoice&) { return fbgemm; };
  library.cannot_run = CannotRun;
  return MakeDynamicLinear(std::move(library));
}

Convention OneDnnDynamicLinear(const OneDnnIsa& isa, OneDnnLinear linear) {
  DynamicLinear library;
  library.satisfies = {"per_channel_equals_per_tensor", "row_order", "weight_scale_doubling"};
  if (isa.vnni) Append(library.satisfies, {"k_permutation"});
  library.variations = OneDnnVariations(isa);
  Append(library.variations, {"V1", "V31"});
  library.choose = [](const Case& c, exact::ObservedRange range) {
    return Choose(range, c.observer.reduce_range);
  };
  // oneDNN 3 gets the scale itself, and takes the reciprocal of a reciprocal.
  library.quantize = [reciprocals = isa.version == 3](const exact::AtenChoice& choice) {
    const float inverse = Inverse(choice.scale);
    return OneDnnQuantize(reciprocals ? 1.0f / (1.0f / inverse) : inverse);
  };
  library.linear = [isa, linear](const exact::AtenChoice& choice) {
    return linear(isa, Inverse(choice.scale));
  };
  library.cannot_run = [](const Case& c) {
    if (std::string reason = CannotRun(c); !reason.empty()) return reason;
    const float x = Inverse(Choose(EndsOfX(c), c.observer.reduce_range).scale);
    const bool finite = std::ranges::all_of(c.w_q.scale, [&](float w) {
      const float product = x * Inverse(static_cast<double>(w));
      return std::isfinite(product) && std::isfinite(1.0f / product);
    });
    return FirstReason({Require(WeightZeroPointsAre(c, 0), "weight zero point must be 0"),
                        Require(finite, "the reciprocals of the scales must be finite")});
  };
  return MakeDynamicLinear(std::move(library));
}

}  // namespace qualm::conventions
