// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime 1.21 MLAS on x86, and 1.30 in WebAssembly: QLinearMatMul (qgemm.cpp, quantize.cpp
// MlasRequantizeOutput), QGemm, which is the same with a bias
// (contrib_ops/cpu/quantization/quant_gemm.cc), QLinearConv
// (core/providers/cpu/quantization/qlinearconv.cc), QLinearAdd (qladd.cpp,
// intrinsics/avx2/qladd_avx2.cpp), QLinearMul (qlmul.cpp) and QuantizeLinear (MlasQuantizeLinear).
// u8*s8 products go through vpmaddubsw on AVX2; u8*u8 and s8*s8 are exact everywhere. A convolution
// is the matrix product of its im2col in the order (r, s, c), padding the zero point inside it;
// with one channel in and out per group it goes to an exact kernel (qdwconv.cpp). All weights have
// one zero point there. add and mul round with the output zero point in; add is fused from AVX2 on.
// dynamic_linear is DynamicQuantizeLinear, MatMulInteger and float operators; choose_qparams its
// scale and zero point.
//
// quantize.cpp, qladd.cpp and qlmul.cpp have no vectors for WebAssembly: the plain C++ behind their
// last #else computes, add and mul in real numbers. Nothing is fused. Its conversion of a float to
// int32 is i32.trunc_sat_f32_s, which saturates, and makes a NaN 0.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "oracles/conventions/definition.h"
#include "oracles/conventions/dynamic_linear.h"
#include "oracles/conventions/onnx.h"
#include "oracles/conventions/onnxruntime_pools_and_tables.h"

namespace qualm::conventions {
namespace {

using Kind = Accumulation::Kind;

// What decides how MLAS computes beside the sums: SSE2, AVX2 with FMA, WebAssembly.
enum class Machine : uint8_t { kSse, kFma, kWasm };

void MaxLow(Value& v, const Channel& c) {
  const bool nan = std::isnan(v.number);
  v.SetReal(MaxPs(v.number, static_cast<float>(int64_t{c.low} - c.zero_point)));
  v.lossy = nan;
}
// add: scales are the operands' scales over the output's; {bias} is the sum of the three zero
// points' terms, fl(zo - (ra*za + rb*zb)).
void PlusA(Value& v, const Channel& c) {
  const float product = MultiplyInto(v, c.a.scale, static_cast<float>(v.integer));
  AddInto(v, c.bias, product);
}
void PlusB(Value& v, const Channel& c) {
  const float before = v.number;
  AddInto(v, before, MultiplyInto(v, c.b.scale, static_cast<float>(v.second)));
}
void Fused(Value& v, float scale, int64_t code, float addend) {
  const auto number = static_cast<float>(code);
  v.SetReal(std::fma(scale, number, addend));
  const double exact =
      static_cast<double>(scale) * static_cast<double>(number) + static_cast<double>(addend);
  v.lossy = static_cast<double>(v.number) != exact;
}
void FusedB(Value& v, const Channel& c) { Fused(v, c.b.scale, v.second, c.bias); }
void ThenFusedA(Value& v, const Channel& c) { Fused(v, c.a.scale, v.integer, v.number); }
void FusedA(Value& v, const Channel& c) { Fused(v, c.a.scale, v.integer, c.bias); }
void ThenFusedB(Value& v, const Channel& c) { Fused(v, c.b.scale, v.second, v.number); }
constexpr Step kQuotient{Stage::kScale, "divided by scale {scale}", step::DivideByScale};
constexpr Step kZeroPointInside{Stage::kZeroPoint,
                                "+ zero point {zero_point} in float32, before rounding",
                                step::AddZeroPointFloat};
constexpr Step kWasmRound{Stage::kRound, "nearbyintf and i32.trunc_sat, ties to even, NaN to 0",
                          step::RoundArm};
constexpr Step kWasmClamp{Stage::kClamp, "clamp to {low}..{high}", step::Clamp};

// add and mul in WebAssembly: x and w as real numbers.
void RealA(Value& v, const Channel& c) {
  MultiplyInto(v, c.a.scale, static_cast<float>(v.integer - c.a.zero_point));
}
float RealB(const Value& v, const Channel& c) {
  return c.b.scale * static_cast<float>(v.second - c.b.zero_point);
}
void PlusRealB(Value& v, const Channel& c) { AddInto(v, v.number, RealB(v, c)); }
void TimesRealB(Value& v, const Channel& c) { MultiplyInto(v, v.number, RealB(v, c)); }
// mul.
const Step kMul[] = {
    step::kProduct,
    {Stage::kScale, "to float32", step::ToFloat},
    {Stage::kScale, "times {multiplier}", step::TimesMultiplier},
    kZeroPointInside,
};
const Step kOperandsEnd[] = {
    {Stage::kRound, "cvtps2dq, ties to even", step::RoundX86},
    {Stage::kClamp, "pack to {low}..{high}", step::Clamp},
};

// A single element of add is a scalar to be broadcast (QLinearBroadcastTwo): a is taken before b.
bool IsBroadcast(const Case& c) { return c.M * c.N == 1; }

Channel OperandsChannel(const Case& c, Machine machine) {
  Channel channel;
  channel.low = c.out_min;
  channel.high = c.out_max;
  channel.zero_point = c.out_q.zero_point[0];
  channel.a.zero_point = c.x_q.zero_point[0];
  channel.b.zero_point = c.w_q.zero_point[0];
  if (machine == Machine::kWasm) {
    channel.a.scale = c.x_q.scale[0];
    channel.b.scale = c.w_q.scale[0];
    channel.scale = c.out_q.scale[0];
    return channel;
  }
  channel.multiplier = c.x_q.scale[0] * c.w_q.scale[0] / c.out_q.scale[0];
  channel.a.scale = c.x_q.scale[0] / c.out_q.scale[0];
  channel.b.scale = c.w_q.scale[0] / c.out_q.scale[0];
  const auto a_zero = static_cast<float>(channel.a.zero_point);
  const auto b_zero = static_cast<float>(channel.b.zero_point);
  const float a = channel.a.scale * a_zero, b = channel.b.scale * b_zero;
  const float a_and_b = std::fma(channel.a.scale, a_zero, b);
  const float b_and_a = std::fma(channel.b.scale, b_zero, a);
  // GCC fuses whichever product comes second.
  const float both = machine != Machine::kFma ? a + b : IsBroadcast(c) ? b_and_a : a_and_b;
  channel.bias = static_cast<float>(channel.zero_point) - both;
  return channel;
}

// Behind the product with the multiplier, and behind the quotient of quantize.
const Step kEnd[] = {
    {Stage::kClamp, "maxps with {low} - {zero_point}", MaxLow, Rise::kAlways},
    {Stage::kClamp, "minps with {high} - {zero_point}", step::MinHigh},
    {Stage::kRound, "cvtps2dq, ties to even", step::RoundX86},
    {Stage::kZeroPoint, "+ zero point {zero_point}", step::AddZeroPointWrap32},
};

// In WebAssembly a NaN becomes the zero point of a sum, but the code 0 where quantize made it. The
// kernel clamps a sum before it rounds; the ends of the range are integers, so that is the same.
const Step kWasmSumEnd[] = {
    kWasmRound,
    {Stage::kZeroPoint, "+ zero point {zero_point}", step::AddZeroPointSat16},
    kWasmClamp,
};
const Step kWasmQuantizeEnd[] = {
    {Stage::kRound, "nearbyintf, ties to even", step::RoundEven},
    {Stage::kZeroPoint, "+ zero point {zero_point} in float32", step::AddZeroPointFloat},
    {Stage::kRound, "i32.trunc_sat, NaN to 0", step::RoundArm},
    kWasmClamp,
};

bool IsPoolOrTable(Op op) {
  const std::vector<Op> ops = ort::PoolAndTableOps();
  return std::ranges::find(ops, op) != ops.end();
}

Channel ChannelOf(const Case& c, int64_t n, Machine machine) {
  if (HasTwoOperands(c.op)) return OperandsChannel(c, machine);
  if (IsPoolOrTable(c.op)) return ort::PoolOrTableChannel(c, n);
  Channel channel;
  channel.low = c.out_min;
  channel.high = c.out_max;
  if (SetColumnScale(channel, c, n)) return channel;
  channel.zero_point = c.out_q.zero_point_at(0);
  channel.multiplier = c.x_q.scale_at(0) * c.w_q.scale_at(n) / c.out_q.scale_at(0);
  if (c.bias_i32) channel.bias_i32 = (*c.bias_i32)[static_cast<size_t>(n)];
  return channel;
}

std::string CannotRun(const Case& c) {
  const bool s8u8 = c.x.dtype() == DType::kS8 && c.w.dtype() == DType::kU8;
  const bool integer = c.op == Op::kLinear && c.out_dtype == DType::kS32;  // MatMulInteger
  const bool has_bias = HasSums(c) && !integer;  // a linear with bias is QGemm
  const bool one_type = IsConv(c.op) || HasTwoOperands(c.op) || IsPoolOrTable(c.op);
  return FirstReason({
      ZeroPointsAreCodes(c),
      WholeRange(c),
      Require(!c.relu, "this operator has no relu"),
      Require(!c.bias && (!c.bias_i32 || has_bias),
              has_bias ? "the bias must be int32" : "this operator has no bias"),
      Require(integer || IsCode(c.out_dtype) || c.op == Op::kDequantize, "output must be codes"),
      Require(!HasSums(c) || integer || !s8u8, "s8 activations need s8 weights"),
      Require(!one_type || c.x.dtype() == c.out_dtype, "input and output must have one type"),
      Require(
          !IsConv(c.op) || c.w_q.zero_point.empty() || WeightZeroPointsAre(c, c.w_q.zero_point[0]),
          "weight zero points must be equal"),
      IsPoolOrTable(c.op) ? ort::CannotPoolOrTable(c) : "",
  });
}

std::vector<Step> Operands(const Case& c, Machine machine) {
  if (machine == Machine::kWasm) {
    const Step second =
        c.op == Op::kMul
            ? Step{Stage::kAccumulate, "times fl({b_scale}*({b} - {b_zp}))", TimesRealB}
            : Step{Stage::kAccumulate, "+ fl({b_scale}*({b} - {b_zp}))", PlusRealB};
    return {{Stage::kAccumulate, "fl({a_scale}*(a - {a_zp}))", RealA},
            second,
            kQuotient,
            kZeroPointInside,
            kWasmRound,
            kWasmClamp};
  }
  const bool fma = machine == Machine::kFma;
  std::vector<Step> steps;
  if (c.op == Op::kMul) {
    steps.assign(std::begin(kMul), std::end(kMul));
  } else if (fma && IsBroadcast(c)) {
    steps = {{Stage::kAccumulate, "fused {a_scale}*a + {bias}", FusedA},
             {Stage::kAccumulate, "fused {b_scale}*{b} + that", ThenFusedB}};
  } else if (fma) {
    steps = {{Stage::kAccumulate, "fused {b_scale}*{b} + {bias}", FusedB},
             {Stage::kAccumulate, "fused {a_scale}*a + that", ThenFusedA}};
  } else {
    steps = {{Stage::kAccumulate, "{bias} + fl({a_scale}*a)", PlusA},
             {Stage::kAccumulate, "+ fl({b_scale}*{b})", PlusB}};
  }
  steps.insert(steps.end(), std::begin(kOperandsEnd), std::end(kOperandsEnd));
  return steps;
}

std::vector<Step> StepsOf(const Case& c, Machine machine) {
  const bool wasm = machine == Machine::kWasm;
  const std::span<const Step> quantize_end =
      wasm ? std::span<const Step>(kWasmQuantizeEnd) : std::span<const Step>(kEnd);
  const std::span<const Step> sum_end =
      wasm ? std::span<const Step>(kWasmSumEnd) : std::span<const Step>(kEnd);
  if (HasTwoOperands(c.op)) return Operands(c, machine);
  if (IsPoolOrTable(c.op)) {
    const Step round{Stage::kRound, "nearbyintf and cvttss2si, ties to even", step::RoundX86};
    return ort::PoolOrTableSteps(c, {.fma = machine == Machine::kFma,
                                     .end = {quantize_end.begin(), quantize_end.end()},
                                     .round = wasm ? kWasmRound : round});
  }
  if (c.op == Op::kDequantize) {
    return {{Stage::kScale, "scale {scale} * float(code - {zero_point})",
             step::TimesCodeMinusZeroPoint}};
  }
  std::vector<Step> steps;
  if (c.out_dtype == DType::kS32) return steps;
  if (c.op == Op::kQuantize) {
    steps.push_back(kQuotient);
    steps.insert(steps.end(), quantize_end.begin(), quantize_end.end());
    return steps;
  }
  if (c.bias_i32) steps.push_back({Stage::kBias, "+ int32 bias {bias_i32}", step::AddBiasI32});
  steps.push_back({Stage::kScale, "to float32", step::ToFloat});
  steps.push_back({Stage::kScale, "times {multiplier}", step::TimesMultiplier});
  steps.insert(steps.end(), sum_end.begin(), sum_end.end());
  return steps;
}

// Restricts a claim that `satisfies` makes for every operation to these operations.
void OnlyFor(std::initializer_list<Op> ops, const std::string& claim,
             std::vector<std::string>& satisfies) {
  if (std::erase(satisfies, claim) == 0) return;
  for (const Op op : ops) satisfies.push_back(std::string(Name(op)) + "." + claim);
}

Convention Make(const std::string& isa, bool pairs, Machine machine) {
  const bool fma = machine == Machine::kFma, wasm = machine == Machine::kWasm;
  Definition definition;
  definition.name = "onnxruntime@" + isa;
  definition.description =
      wasm
          ? "ONNX Runtime MLAS in WebAssembly: exact sums, operands of add and mul in float32, NaN "
            "becomes 0"
          : "ONNX Runtime MLAS on " + isa +
                (pairs ? ": u8*s8 in saturating int16 pairs" : ": exact sums") +
                ", clamp before rounding";
  definition.source = std::string("ONNX Runtime ") + (wasm ? "1.30" : "1.21 and 1.30") +
                      " onnxruntime/core/mlas/lib, contrib_ops/cpu/quantization";
  definition.pair_saturates = pairs;
  definition.satisfies = {"row_independence", "per_channel_equals_per_tensor",
                          "zero_maps_to_zero_point", "mul.commutes"};
  definition.variations = {"V1", "V3", "V8", "V9", "V13", "V14", "V16", "V17", "V27", "V30"};
  if (!wasm) definition.variations.emplace_back("V29");
  if (pairs) definition.variations.emplace_back("V6");
  const auto claim = [&](std::initializer_list<const char*> more) {
    Append(definition.satisfies, more);
  };
  if (pairs) {
    // A column by itself may go to the depthwise kernel, which is exact.
    claim({"linear.column_independence", "quantize.column_independence", "mul.column_independence",
           "batch_independence", "depthwise_is_grouped", "groups_are_separate",
           "one_by_one_is_linear", "padding_is_explicit", "stride_is_subsample"});
  } else {
    // zero_point_shift is not claimed for add and mul, which take zero points as real numbers.
    claim({"column_independence", "k_permutation", "zero_term_append", "identity_weights",
           "linear.zero_point_shift", "conv2d.zero_point_shift", "depthwise.zero_point_shift"});
    AddExactConvClaims(definition.satisfies);
  }
  if (wasm) {
    claim({"add.commutes"});
  } else if (!pairs) {
    claim({"quantize.zero_point_shift"});  // in WebAssembly a NaN is the code 0
  }
  // avg_pool is left out: where the image is one window, the average is computed otherwise.
  OnlyFor({Op::kConv2d, Op::kDepthwise, Op::kMaxPool}, "padding_is_explicit", definition.satisfies);
  if (fma) {  // add is left out: a single element is added otherwise
    OnlyFor({Op::kQuantize, Op::kDequantize, Op::kMul, Op::kLinear, Op::kConcat, Op::kTable,
             Op::kSoftmax},
            "row_independence", definition.satisfies);
    OnlyFor({Op::kQuantize, Op::kDequantize, Op::kMul, Op::kLinear, Op::kConv2d, Op::kDepthwise,
             Op::kMaxPool, Op::kAvgPool, Op::kGlobalAvgPool, Op::kConcat, Op::kTable},
            "column_independence", definition.satisfies);
  }
  definition.ops = {Op::kQuantize,  Op::kDequantize, Op::kLinear, Op::kConv2d,
                    Op::kDepthwise, Op::kAdd,        Op::kMul};
  const std::vector<Op> pools_and_tables = ort::PoolAndTableOps();
  definition.ops.insert(definition.ops.end(), pools_and_tables.begin(), pools_and_tables.end());
  definition.cannot_run = CannotRun;
  // Of WebAssembly these were not asked.
  definition.wide_codes = definition.small_codes = definition.element_blocks = !wasm;
  definition.accumulation = [pairs](const Case& c) {
    const bool u8s8 = c.x.dtype() == DType::kU8 && c.w.dtype() == DType::kS8;
    Accumulation result;
    result.padding = Accumulation::Padding::kZeroPoint;
    if (pairs && u8s8 && !IsPlainDepthwise(c)) result.kind = Kind::kPairs;
    if (IsPlainDepthwise(c)) result.kernel = "depthwise kernel";
    return result;
  };
  definition.channel = [machine](const Case& c, int64_t n) { return ChannelOf(c, n, machine); };
  definition.gather = [](const Case& c) -> Definition::Gatherer {
    if (!IsPoolOrTable(c.op)) return nullptr;
    return ort::GatherPoolOrTable(c);
  };
  definition.steps = [machine](const Case& c) { return StepsOf(c, machine); };
  Convention convention = MakeConvention(definition);
  // onnxruntime/core/util/qmath.h, GetQuantizationParameter.
  AddOperation(convention, MakeDynamicLinear(OnnxDynamicLinear(
                               RoundNearestEven, MakeConvention(definition), definition)));
  AddOperation(convention, OnnxChooseQParams(RoundNearestEven, MakeConvention(definition)));
  return convention;
}

}  // namespace

std::vector<Convention> OnnxRuntimeConventions() {
  return {Make("sse41", false, Machine::kSse), Make("avx2", true, Machine::kFma),
          Make("vnni", false, Machine::kFma), Make("wasm", false, Machine::kWasm)};
}

}  // namespace qualm::conventions
