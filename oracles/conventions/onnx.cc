// SPDX-License-Identifier: Apache-2.0
// ONNX's reference implementation, onnx/reference/ops/op_dynamic_quantize_linear.py @ 043be31 and
// op_matmul_integer.py: NumPy in float32, and int32 sums. (Before 043be31 the scale of a range of
// zeros was 1/255; the codes are the same.)
#include "oracles/conventions/onnx.h"

#include <algorithm>
#include <utility>

namespace qualm::conventions {

exact::AtenChoice OnnxChoice(exact::ObservedRange range, RoundFloat round,
                             exact::AtenChoice of_zeros) {
  if (range.min == range.max) return of_zeros;
  // 0 where a range of denormals is too small, and infinite where the range is.
  const float scale = (range.max - range.min) / 255.0f;
  // NaN, of 0/0 or of infinities, becomes 255: minps and Python's min take the bound.
  const float zero_point = MaxPs(MinPs(0.0f - range.min / scale, 255.0f), 0.0f);
  return {scale, static_cast<int32_t>(round(zero_point))};
}

DynamicLinear OnnxDynamicLinear(RoundFloat round, Convention quantize, Definition sums) {
  sums.channel = [](const Case& c, int64_t n) {
    Channel channel;
    channel.multiplier = c.x_q.scale_at(0) * c.w_q.scale_at(n);
    if (c.bias) channel.bias = (*c.bias)[static_cast<size_t>(n)];
    return channel;
  };
  sums.steps = [](const Case& c) {
    std::vector<Step> steps = {
        {Stage::kScale, "to float32", step::ToFloat},
        {Stage::kScale, "times fl(x_scale*w_scale) {multiplier}", step::TimesMultiplier}};
    if (c.bias) steps.push_back({Stage::kBias, "+ bias {bias}", step::AddBiasFloat});
    return steps;
  };
  DynamicLinear library;
  library.rule = QParamsRule::kOnnx;
  library.choose = [round](const Case&, exact::ObservedRange range) {
    return OnnxChoice(range, round);
  };
  const auto convention = [](Convention stage) {
    return [made = std::move(stage)](const exact::AtenChoice&) { return made; };
  };
  library.satisfies = {"column_independence", "per_channel_equals_per_tensor", "row_order",
                       "weight_scale_doubling"};
  if (!sums.pair_saturates) Append(library.satisfies, {"k_permutation", "zero_point_shift"});
  library.variations = {"V1", "V13", "V16", "V19", "V31"};
  if (sums.pair_saturates) library.variations.emplace_back("V6");
  library.quantize = convention(std::move(quantize));
  library.linear = convention(MakeConvention(std::move(sums)));
  library.cannot_run = [](const Case& c) { return Require(!c.relu, "this operator has no relu"); };
  return library;
}

std::vector<Convention> OnnxConventions() {
  const std::vector<Convention> numpy = NumpyConventions();
  const Convention& quantize = *std::ranges::find(numpy, "numpy@float32", &Convention::name);
  Definition sums;
  sums.ops = {Op::kLinear};
  sums.cannot_run = [](const Case&) { return std::string(); };
  sums.accumulation = ExactSums;
  Convention reference = OnnxChooseQParams(RoundNearestEven, quantize);
  reference.cannot_run = [choosing = reference.cannot_run](const Case& c) {
    return c.op == Op::kChooseQParams ? choosing(c)
                                      : "this convention has no " + std::string(Name(c.op));
  };
  reference.name = "onnx@reference";
  reference.description =
      "ONNX's reference of DynamicQuantizeLinear in float32, and of the operators behind it";
  reference.source = "ONNX onnx/reference/ops/op_dynamic_quantize_linear.py @ 043be31";
  AddOperation(reference,
               MakeDynamicLinear(OnnxDynamicLinear(RoundNearestEven, quantize, std::move(sums))));
  return {std::move(reference)};
}

}  // namespace qualm::conventions
