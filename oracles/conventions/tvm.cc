// SPDX-License-Identifier: Apache-2.0
// Apache TVM's Relax as its importer of ONNX uses it (TVM 0.27,
// python/tvm/relax/transform/legalize_ops/qdq.py and frontend/onnx/onnx_frontend.py), compiled by
// LLVM for a processor without FMA. QuantizeLinear divides in float32, rounds ties to even and adds
// the zero point there; a NaN passes no comparison and becomes the highest code. Operators between
// DequantizeLinear and QuantizeLinear run in float32, sums one product after the other.
// MatMulInteger, for s32 outputs, adds exactly in int32, which wraps.
#include <algorithm>
#include <utility>

#include "oracles/conventions/definition.h"
#include "oracles/conventions/dequantized.h"
#include "oracles/conventions/onnx.h"

namespace qualm::conventions {
namespace {

Value DequantizedCode(int64_t code, const QParams& q, Trace* trace) {
  Value value;
  value.SetReal(Dequantized<float>(code, q.zero_point_at(0), q.scale_at(0)));
  Note(trace, Stage::kScale, "the dequantized code, in float32", ValueText(value), true);
  return value;
}

Value IntegerSum(const Case& c, int64_t index, Trace* trace) {
  const int64_t m = index / c.N, n = index % c.N;
  int64_t sum = 0;
  for (int64_t k = 0; k < c.K; ++k) {
    sum += int64_t{c.x.IntAt(m * c.K + k) - c.x_q.zero_point_at(0)} *
           (c.w.IntAt(n * c.K + k) - c.w_q.zero_point_at(n));
  }
  Value value;
  value.SetInt(Wrap32(sum));
  Note(trace, Stage::kAccumulate, "sum of (x - x_zp) * (w - w_zp), in int32", ValueText(value),
       value.integer != sum);
  return value;
}

Value Gather(const Case& c, int64_t index, Trace* trace) {
  if (c.op == Op::kLinear && c.out_dtype == DType::kS32) return IntegerSum(c, index, trace);
  if (c.op == Op::kLinear) return DequantizedSum<float>(c, index, trace);
  if (HasTwoOperands(c.op)) return DequantizedOperands<float>(c, index, trace);
  if (c.op == Op::kConcat) {
    const ConcatElement element = ConcatElementAt(c, index);
    return DequantizedCode(element.code, *element.q, trace);
  }
  if (c.op == Op::kRescale) return DequantizedCode(c.x.IntAt(index), c.x_q, trace);
  Value value;
  value.SetReal(c.x.FloatAt(index));
  return value;
}

void ClampAndCast(Value& v, const Channel& c) {
  const bool nan = v.number != v.number;
  v.SetInt(static_cast<int64_t>(
      MaxPs(MinPs(v.number, static_cast<float>(c.high)), static_cast<float>(c.low))));
  v.lossy = nan;
}

Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel;
  channel.scale = c.out_q.scale_at(n);
  channel.zero_point = c.out_q.zero_point_at(n);
  channel.low = c.out_min;
  channel.high = c.out_max;
  return channel;
}

std::vector<Step> Steps(const Case& c) {
  std::vector<Step> steps;
  if (c.relu) steps.push_back({Stage::kClamp, "relu", step::Relu});
  if (IsCode(c.out_dtype)) {
    steps.insert(
        steps.end(),
        {{Stage::kScale, "divided by scale {scale}", step::DivideByScale},
         {Stage::kRound, "round half to even", step::RoundEven},
         {Stage::kZeroPoint, "+ zero point {zero_point}", step::AddZeroPointFloat},
         {Stage::kClamp, "clamp to {low}..{high}, NaN to {high}", ClampAndCast, Rise::kAlways}});
  }
  return steps;
}

std::string CannotRun(const Case& c) {
  return FirstReason({
      Require(!c.bias_i32, "the bias must be float32"),
      Require(!c.relu || (c.op == Op::kLinear && c.out_dtype != DType::kS32), "no relu here"),
      Require(c.out_dtype != DType::kS32 || !c.bias, "sums have no bias"),
      Require(c.out_dtype == DType::kF32 || WholeRange(c).empty(), "the clamp is the whole range"),
      ZeroPointsAreCodes(c),
  });
}

}  // namespace

std::vector<Convention> TvmConventions() {
  Definition definition;
  definition.name = "tvm";
  definition.description =
      "Apache TVM's Relax on the CPU: dequantized operands in float32, quantized there with ties "
      "to even; MatMulInteger in int32";
  definition.source = "TVM 0.27 python/tvm/relax/transform/legalize_ops/qdq.py";
  definition.satisfies = {"row_independence", "column_independence",
                          "per_channel_equals_per_tensor", "commutes"};
  definition.variations = {"V8", "V13", "V14", "V16", "V17", "V19"};
  definition.ops = {Op::kQuantize, Op::kRescale, Op::kAdd,   Op::kSub,
                    Op::kMul,      Op::kConcat,  Op::kLinear};
  definition.cannot_run = CannotRun;
  definition.gather = [](const Case& c) { return EachAlone(c, Gather); };
  definition.channel = ChannelOf;
  definition.steps = Steps;
  Convention convention = MakeConvention(definition);
  Definition sums;
  sums.ops = {Op::kLinear};
  sums.cannot_run = [](const Case&) { return std::string(); };
  sums.accumulation = ExactSums;
  AddOperation(convention, MakeDynamicLinear(OnnxDynamicLinear(
                               RoundNearestEven, MakeConvention(definition), std::move(sums))));
  AddOperation(convention, OnnxChooseQParams(RoundNearestEven,
                                             MakeConvention(std::move(definition)), {0, 255}));
  return {std::move(convention)};
}

}  // namespace qualm::conventions
