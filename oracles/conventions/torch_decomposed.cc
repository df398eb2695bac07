// SPDX-License-Identifier: Apache-2.0
// What PyTorch runs where no quantized engine does:
//
//   torch-decomposed  a model of PT2E (torch.export, convert_pt2e), not compiled: the operators
//                     quantized_decomposed.*, and float32 operators between them (PyTorch 2.13
//                     torch/ao/quantization/fx/_decomposed.py). A dequantize and a quantize around
//                     an operator make one operation of codes.
//   torchao@ISA       torchao's linear of int8 weights and of activations that are quantized row by
//                     row (torchao 0.18 torchao/quantization/quantize_/workflows/int8/
//                     int8_tensor.py, torchao/kernel/intmm.py): x + 128 times w in torch._int_mm,
//                     which is oneDNN's matmul, and saturates pairs without VNNI.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "core/float_ends.h"
#include "core/slice.h"
#include "oracles/conventions/dequantized.h"
#include "oracles/conventions/dynamic_linear.h"
#include "oracles/conventions/numpy.h"

namespace qualm::conventions {
namespace {

// Decomposed ---------------------------------------------------------------------------------

// The value of the lowest bit that is set in a number; infinity for 0, which needs none.
double LowestBit(double value) {
  if (value == 0) return std::numeric_limits<double>::infinity();
  int exponent = 0;
  const auto mantissa =
      static_cast<int64_t>(std::ldexp(std::frexp(std::abs(value), &exponent), 53));
  return std::ldexp(1.0, exponent - 53 + std::countr_zero(static_cast<uint64_t>(mantissa)));
}

struct FloatSum {
  float in_order = 0;             // one product after the other, as `run` adds them
  double exact = 0, largest = 0;  // of the same float32 operands; of their absolute values
  double unit = std::numeric_limits<double>::infinity();  // all terms are multiples of it
  int64_t terms = 0;

  // No order rounds anything: float32 has every multiple of the unit up to 2^24 of them.
  bool IsExact() const { return largest == 0 || largest <= 0x1p24 * unit; }

  void Add(float x, float w) {
    const float product = x * w;
    in_order = in_order + product;
    const double exact_product = double{x} * double{w};
    AddTerm(exact_product);
  }
  void AddTerm(double term) {
    exact += term;
    largest += std::abs(term);
    unit = std::min(unit, LowestBit(term));
    ++terms;
  }
};

FloatSum SumAt(const Case& c, int64_t index) {
  const int64_t m = index / c.N, n = index % c.N;
  FloatSum sum;
  const auto add = [&](int64_t x_at, int64_t w_at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      sum.Add(Dequantized<float>(c.x.IntAt(x_at + i), c.x_q.zero_point_at(0), c.x_q.scale_at(0)),
              Dequantized<float>(c.w.IntAt(w_at + i), c.w_q.zero_point_at(n), c.w_q.scale_at(n)));
    }
  };
  if (c.op == Op::kLinear) {
    add(m * c.K, n * c.K, c.K);
  } else {
    const Window& v = c.window;
    const int64_t depth = v.in_c / v.groups, group = n / (c.N / v.groups);
    for (const Tap& tap : TapsOf(v, m)) {  // 0 in the padding
      if (tap.x_row < 0) continue;
      add(tap.x_row + group * depth, ((n * v.kernel_h + tap.r) * v.kernel_w + tap.s) * depth,
          depth);
    }
  }
  if (c.bias) {
    const float bias = (*c.bias)[static_cast<size_t>(n)];
    sum.in_order = sum.in_order + bias;
    sum.AddTerm(double{bias});
  }
  return sum;
}

std::optional<Value> Gather(const Case& c, int64_t index, Trace* trace) {
  if (HasSums(c)) {
    const FloatSum sum = SumAt(c, index);
    Value value;
    value.SetReal(sum.in_order);
    Note(trace, Stage::kAccumulate,
         "sum of " + std::to_string(sum.terms) +
             " float32 numbers (products of dequantized ones, and the bias), added in any order",
         ValueText(value), static_cast<double>(sum.in_order) != sum.exact);
    return value;
  }
  if (c.op != Op::kRescale) return std::nullopt;
  Value value;
  value.SetReal(Dequantized<float>(c.x.IntAt(index), c.x_q.zero_point_at(0), c.x_q.scale_at(0)));
  Note(trace, Stage::kAccumulate, "dequantized in float32", ValueText(value), true);
  return value;
}

// Whether every output is the code of a sum that some order of float32 additions can give. An
// addition or product is off by at most half an ulp of its result, and no result exceeds `largest`.
// A sum without roundings, or of one term, has one value: without that, both sides of a tie would
// do.
bool SomeOrderGives(const Definition& definition, const Case& c, const Tensor& y) {
  if (!HasSums(c) || y.dtype() != c.out_dtype || y.shape() != c.output_shape()) return false;
  const std::vector<Step> steps = definition.steps(c);
  for (int64_t i = 0; i < y.size(); ++i) {
    const FloatSum sum = SumAt(c, i);
    const auto terms = static_cast<double>(sum.terms);
    if (!(sum.largest < 0x1p120) || terms > 0x1p20) return false;
    const double error = (terms + 2) * 0x1.01p-24 * sum.largest + terms * 0x1p-149;
    const bool one_value = sum.IsExact() || sum.terms <= 1;
    const float low = one_value ? sum.in_order : FloatAtLeast(sum.exact - error);
    const float high = one_value ? sum.in_order : FloatAtMost(sum.exact + error);
    const Channel channel = definition.channel(c, i % c.N);
    const auto code_of = [&](float real) {
      Value value;
      value.SetReal(real);
      Apply(steps, channel, value, nullptr);
      return value.integer;
    };
    if (y.IntAt(i) < code_of(low) || y.IntAt(i) > code_of(high)) return false;
  }
  return true;
}

Definition Decomposed() {
  Definition definition = DequantizingInFloat32();
  definition.small_codes = definition.element_blocks = false;
  definition.name = "torch-decomposed";
  definition.description =
      "PT2E's decomposed operators, not compiled: dequantize, compute in float32, times the "
      "reciprocal of the scale, round, + zero point, clamp";
  definition.source = "PyTorch 2.13 torch/ao/quantization/fx/_decomposed.py";
  definition.ops = {Op::kQuantize, Op::kDequantize, Op::kRescale, Op::kAdd,      Op::kSub,
                    Op::kMul,      Op::kLinear,     Op::kConv2d,  Op::kDepthwise};
  definition.variations = {"V2", "V8", "V14", "V17", "V19"};
  definition.cannot_run = [numpy = definition.cannot_run](const Case& c) {
    return FirstReason({numpy(c), ZeroPointsAreCodes(c),
                        Require(c.op != Op::kRescale || !c.relu, "this function has no relu")});
  };
  definition.channel = [numpy = definition.channel](const Case& c, int64_t n) {
    Channel channel = numpy(c, n);
    // A Python float for a tensor, a tensor of float32 for channels.
    channel.reciprocal =
        c.per_channel ? 1.0F / channel.scale : static_cast<float>(1.0 / double{channel.scale});
    return channel;
  };
  definition.gather = [numpy = definition.gather](const Case& c) {
    return [&c, own = numpy(c)](int64_t index, Trace* trace) {
      const std::optional<Value> value = Gather(c, index, trace);
      return value ? value : own(index, trace);
    };
  };
  definition.steps = [numpy = definition.steps](const Case& c) {
    std::vector<Step> steps = numpy(c);
    for (Step& step : steps) {
      if (step.text == "divided by scale {scale}")
        step = {Stage::kScale, "times fl(1/scale) {reciprocal}", step::TimesReciprocal};
    }
    return steps;
  };
  return definition;
}

// torchao ------------------------------------------------------------------------------------

// Of the scale: torch.finfo(torch.float32).eps.
constexpr float kLeastScale = 0x1p-23F;

void TimesXScale(Value& v, const Channel& c) { MultiplyInto(v, v.number, c.a.scale); }
void TimesWScale(Value& v, const Channel& c) { MultiplyInto(v, v.number, c.b.scale); }

Convention TorchaoLinear(const Convention& onednn) {
  Definition sums;
  sums.ops = {Op::kLinear};
  sums.accumulation = onednn.accumulation;
  sums.channel = [](const Case& c, int64_t n) {
    Channel channel;
    channel.a.scale = c.x_q.scale_at(0);
    channel.b.scale = c.w_q.scale_at(n);
    if (c.bias) channel.bias = (*c.bias)[static_cast<size_t>(n)];
    return channel;
  };
  sums.steps = [](const Case& c) {
    std::vector<Step> steps = {{Stage::kScale, "to float32", step::ToFloat},
                               {Stage::kScale, "times x_scale {a_scale}", TimesXScale},
                               {Stage::kScale, "times w_scale {b_scale}", TimesWScale}};
    if (c.bias) steps.push_back({Stage::kBias, "+ bias {bias}", step::AddBiasFloat});
    return steps;
  };
  return MakeConvention(std::move(sums));
}

Convention Torchao(const Convention& onednn, const std::string& isa, const Convention& decomposed) {
  DynamicLinear library;
  library.rule = QParamsRule::kObserver;
  library.satisfies = {"row_order", "row_independence", "column_independence",
                       "per_channel_equals_per_tensor"};
  library.variations = {"V1", "V2", "V8", "V16", "V19", "V31"};
  if (onednn.pair_saturates) library.variations.emplace_back("V6");
  library.choose = [](const Case&, exact::ObservedRange range) {
    const float most = std::max(-range.min, range.max);
    return exact::AtenChoice{double{std::max(most / 127.5F, kLeastScale)}, 0};
  };
  const auto always = [](Convention stage) {
    return [made = std::move(stage)](const exact::AtenChoice&) { return made; };
  };
  library.quantize = always(decomposed);
  library.linear = always(TorchaoLinear(onednn));
  library.cannot_run = [](const Case& c) {
    const Observer& o = c.observer;
    return FirstReason({
        Require(c.w.dtype() == DType::kS8 && WeightZeroPointsAre(c, 0),
                "weights must be s8 without zero points"),
        Require(o.dtype == DType::kS8 && o.symmetric && !o.reduce_range && o.quant_min == -128 &&
                    o.quant_max == 127,
                "x must be quantized to all codes of s8, symmetric"),
        Require(std::ranges::all_of(c.x.as<float>(), [](float x) { return std::isfinite(x); }),
                "x must be finite"),
        Require(!c.relu, "this operator has no relu"),
        Require(c.K != 1, "torch._int_mm answers anything to sums of one term"),
    });
  };
  Convention all = RowByRow(MakeDynamicLinear(std::move(library)));
  all.name = "torchao@" + isa;
  all.description =
      "torchao's linear of int8 weights and of activations quantized row by row, on " + isa +
      (onednn.pair_saturates ? ": saturating int16 pairs" : ": exact sums");
  all.source = "torchao 0.18 quantize_/workflows/int8/int8_tensor.py, kernel/intmm.py";
  all.pair_saturates = onednn.pair_saturates;
  all.cannot_run = [rows = all.cannot_run](const Case& c) {
    if (c.op != Op::kDynamicLinear) return "this convention has no " + std::string(Name(c.op));
    return rows(c);
  };
  return all;
}

}  // namespace

std::vector<Convention> TorchDecomposedConventions() {
  const auto definition = std::make_shared<const Definition>(Decomposed());
  Convention decomposed = MakeConvention(*definition);
  decomposed.also_gives = [definition](const Case& c, const Tensor& y) {
    return SomeOrderGives(*definition, c, y);
  };
  std::vector<Convention> conventions;
  const std::vector<Convention> onednn = OneDnn3Conventions();
  for (const std::string isa : {"avx2", "vnni"}) {
    conventions.push_back(Torchao(
        *std::ranges::find(onednn, "onednn3.10@" + isa, &Convention::name), isa, decomposed));
  }
  conventions.push_back(std::move(decomposed));
  return conventions;
}

}  // namespace qualm::conventions
