// SPDX-License-Identifier: Apache-2.0
// A script for PyTorch's quantized operators, as a quantized module calls them.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "exporters/evidence.h"

namespace qualm::exporters {
namespace {

constexpr std::string_view kProgram = R"($head$import os

# Read once, when the libraries are loaded.
$environment$
import math

import torch

nan, inf = math.nan, math.inf


def floats(text):
    return [float.fromhex(word) for word in text.split()]


$constants$$expected$

for engine in $engines$:
    if engine in torch.backends.quantized.supported_engines:
        torch.backends.quantized.engine = engine
        break
else:
    raise SystemExit('this PyTorch has none of the engines')
torch.set_num_threads(1)
print('PyTorch', torch.__version__, 'engine', torch.backends.quantized.engine)

u8, s8 = (torch.uint8, torch.quint8), (torch.int8, torch.qint8)


def quantized(codes, shape, dtype, scale, zero_point, axis=0):
    """Codes under one scale, or under one per channel; images are NHWC here and NCHW there."""
    whole = torch.tensor(codes, dtype=dtype[0]).reshape(shape)
    if len(shape) == 4:
        whole = whole.permute(0, 3, 1, 2)
    if not isinstance(scale, list):
        return torch._make_per_tensor_quantized_tensor(whole, scale, zero_point)
    return torch._make_per_channel_quantized_tensor(
        whole, torch.tensor(scale, dtype=torch.double), torch.tensor(zero_point), axis)


def codes(y):
    y = y.int_repr()
    return (y.permute(0, 2, 3, 1) if y.dim() == 4 else y).reshape(-1).tolist()


$body$

def show(name, values):
    print(name.ljust(8), *(v.hex() if isinstance(v, float) else v for v in values))


def same(a, b):
    return a == b and math.copysign(1, a) == math.copysign(1, b) or a != a and b != b


show('EXPECTED', expected)
show('GOT', got)
raise SystemExit(0 if all(map(same, expected, got)) else 1)
)";

constexpr std::string_view kLinear = R"(x = quantized(x, (M, K), $x$, x_scale, x_zp)
w = quantized(w, (N, K), s8, $w_scale$, $w_zp$)
packed = torch.ops.quantized.linear_prepack(w, $bias$)
got = codes(torch.ops.quantized.$name$(x, packed, out_scale, out_zp))
)";
constexpr std::string_view kConv = R"(x = quantized(x, (batch, H, W, C), $x$, x_scale, x_zp)
w = quantized(w, (N, R, S, C // groups), s8, $w_scale$, $w_zp$)
packed = torch.ops.quantized.conv2d_prepack(w, $bias$, [stride_h, stride_w],
                                            [pad_top, pad_left], [dilation_h, dilation_w], groups)
got = codes(torch.ops.quantized.$name$(x, packed, out_scale, out_zp))
)";
constexpr std::string_view kOperands = R"(a = quantized(a, (M, N), $x$, a_scale, a_zp)
b = quantized(b, (M, N), $x$, b_scale, b_zp)
got = codes(torch.ops.quantized.$name$(a, b, out_scale, out_zp))
)";
constexpr std::string_view kConcat = R"(a = quantized(a, (M, NA), $x$, a_scale, a_zp)
b = quantized(b, (M, N - NA), $x$, b_scale, b_zp)
got = codes(torch.ops.quantized.$name$([a, b], 1, out_scale, out_zp))
)";
constexpr std::string_view kQuantize = R"(x = torch.tensor(x, dtype=torch.float).reshape(M, N)
got = codes(torch.quantize_per_tensor(x, out_scale[0], out_zp[0], $y$[1]))
)";
constexpr std::string_view kQuantizeChannels =
    R"(x = torch.tensor(x, dtype=torch.float).reshape(M, N)
got = codes(torch.quantize_per_channel(x, torch.tensor(out_scale, dtype=torch.double),
                                       torch.tensor(out_zp), 1, $y$[1]))
)";
constexpr std::string_view kDequantize =
    R"(got = quantized(x, (M, N), $x$, $x_scale$, $x_zp$, 1).dequantize().reshape(-1).tolist()
)";
constexpr std::string_view kMaxPool = R"(x = quantized(x, (batch, H, W, C), $x$, x_scale, x_zp)
got = codes(torch.ops.quantized.max_pool2d(x, [R, S], [stride_h, stride_w], [pad_top, pad_left],
                                           [dilation_h, dilation_w], $ceil_mode$))
)";
constexpr std::string_view kAvgPool = R"(x = quantized(x, (batch, H, W, C), $x$, x_scale, x_zp)
got = codes(torch.nn.functional.avg_pool2d(x, (R, S), (stride_h, stride_w), (pad_top, pad_left),
                                           $ceil_mode$, $count_include_pad$))
)";
constexpr std::string_view kGlobalAvgPool =
    R"(x = quantized(x, (batch, H, W, C), $x$, x_scale, x_zp)
got = codes(torch.nn.functional.adaptive_avg_pool2d(x, (1, 1)))
)";
constexpr std::string_view kTable = R"(x = quantized(x, (M, N), $x$, x_scale, x_zp)
got = codes($table$)
)";
constexpr std::string_view kSoftmax = R"(x = quantized(x, (M, N), $x$, x_scale, x_zp)
got = codes(torch.ops.quantized.softmax(x, 1, out_scale, out_zp))
)";
constexpr std::string_view kDynamicLinear =
    R"(x = torch.tensor(x, dtype=torch.float).reshape(M, K)
w = quantized(w, (N, K), s8, $w_scale$, $w_zp$)
packed = torch.ops.quantized.linear_prepack(w, $bias$)
got = torch.ops.quantized.$name$(x, packed, $reduce_range$).reshape(-1).tolist()
)";
constexpr std::string_view kObserver = R"(from torch.ao.quantization import observer

observe = observer.$class$(dtype=$dtype$[1], qscheme=torch.$scheme$, reduce_range=$reduce_range$,
                           quant_min=$quant_min$, quant_max=$quant_max$$averaging$)
for batch in torch.tensor(x, dtype=torch.float).reshape(batches, M, N):
    observe(batch)
scale, zero_point = observe.calculate_qparams()
got = [float(v) for v in scale.reshape(-1).tolist() + zero_point.reshape(-1).tolist()]
)";

constexpr std::string_view kChoose =
    R"(x = torch.tensor(x, dtype=torch.float)
got = [float(v) for v in torch._choose_qparams_per_tensor(x, $reduce_range$)]
)";

constexpr std::string_view kChooseWithCodes =
    R"(y = torch.quantize_per_tensor_dynamic(torch.tensor(x, dtype=torch.float), torch.quint8,
                                        $reduce_range$)
chosen = torch.tensor([y.q_scale(), y.q_zero_point()], dtype=torch.float)
got = [float(v) for v in chosen.tolist() + y.int_repr().tolist()]
)";

std::string_view Bool(bool value) { return value ? "True" : "False"; }

std::string ObserverText(const Case& c) {
  const Observer& o = c.observer;
  if (c.rule != QParamsRule::kObserver) {
    Require(c.rule == QParamsRule::kAten && !c.per_channel, "the rule onnx, or aten for each row");
    return Fill(c.codes ? kChooseWithCodes : kChoose,
                {{"reduce_range", std::string(Bool(o.reduce_range))}});
  }
  const bool average = o.kind == Observer::Kind::kMovingAverage;
  Require(o.kind != Observer::Kind::kHistogram || !c.per_channel, "histograms per channel");
  const std::string name = o.kind == Observer::Kind::kHistogram
                               ? "HistogramObserver"
                               : std::string(average ? "MovingAverage" : "") +
                                     (c.per_channel ? "PerChannel" : "") + "MinMaxObserver";
  return Fill(kObserver,
              {{"class", name},
               {"dtype", std::string(Name(o.dtype))},
               {"scheme", fmt::format("per_{}_{}", c.per_channel ? "channel" : "tensor",
                                      o.symmetric ? "symmetric" : "affine")},
               {"reduce_range", std::string(Bool(o.reduce_range))},
               {"quant_min", std::to_string(o.quant_min)},
               {"quant_max", std::to_string(o.quant_max)},
               {"averaging", average ? fmt::format(", averaging_constant=float.fromhex('{}')",
                                                   Literal(Language::kPython, o.averaging_constant))
                                     : ""}});
}

std::string TableText(const Case& c) {
  switch (c.function) {
    case Function::kRelu:
      Require(c.x_q == c.out_q, "a relu that changes scale or zero point");
      return "torch.relu(x)";
    case Function::kLeakyRelu:
      return fmt::format(
          "torch.ops.quantized.leaky_relu(x, float.fromhex('{}'), False, out_scale, out_zp)",
          Literal(Language::kPython, c.negative_slope));
    case Function::kHardSwish: return "torch.ops.quantized.hardswish(x, out_scale, out_zp)";
    case Function::kSigmoid: return "torch.ops.quantized.sigmoid(x, out_scale, out_zp)";
    case Function::kTanh: break;
  }
  Require(c.out_q.scale_at(0) == 0x1p-7f && c.out_q.zero_point_at(0) == 128,
          "a tanh with another output than scale 2^-7, zero point 128");
  return "torch.tanh(x)";
}

void RequireSymmetricPadding(const Case& c) {
  const Window& v = c.window;
  Require(v.pad_top == v.pad_bottom && v.pad_left == v.pad_right, "asymmetric padding");
}

std::string_view Template(const Case& c) {
  switch (c.op) {
    case Op::kQuantize: return c.per_channel ? kQuantizeChannels : kQuantize;
    case Op::kDequantize: return kDequantize;
    case Op::kLinear:
    case Op::kConv2d:
    case Op::kDepthwise:
      Require(c.out_dtype == DType::kU8, "outputs that are not u8");
      RequireSymmetricPadding(c);
      return c.op == Op::kLinear ? kLinear : kConv;
    case Op::kAdd:
    case Op::kMul: return kOperands;
    case Op::kConcat: return kConcat;
    case Op::kMaxPool: RequireSymmetricPadding(c); return kMaxPool;
    case Op::kAvgPool:
    case Op::kGlobalAvgPool:
      RequireSymmetricPadding(c);
      Require(c.x_q == c.out_q, "averages that change scale or zero point");
      return c.op == Op::kAvgPool ? kAvgPool : kGlobalAvgPool;
    case Op::kTable: return kTable;
    case Op::kSoftmax: return kSoftmax;
    case Op::kDynamicLinear:
      Require(c.rule == QParamsRule::kAten && c.x_gran == Granularity::kTensor,
              "other rules than aten, or one for each row");
      return kDynamicLinear;
    default: throw CannotExpress(fmt::format("lacks {}", Name(c.op)));
  }
}

std::string Body(const Case& c) {
  if (c.op == Op::kChooseQParams) return ObserverText(c);
  const std::string_view text = Template(c);
  if (HasWeights(c.op)) {
    Require(c.w.dtype() == DType::kS8, "u8 weights");
    Require(!c.bias_i32, "int32 biases");
  }
  const bool fuses = HasWeights(c.op) || HasTwoInputs(c.op);
  Require(!c.relu || fuses, "a fused relu here");
  std::string name = c.op == Op::kConcat          ? "cat"
                     : c.op == Op::kDepthwise     ? "conv2d"
                     : c.op == Op::kDynamicLinear ? "linear"
                                                  : std::string(Name(c.op));
  if (c.relu) name += "_relu";
  if (c.op == Op::kDynamicLinear) name += "_dynamic";
  const std::string list = c.per_channel ? "" : "[0]";
  return Fill(text, {{"x", std::string(Name(c.x.dtype()))},
                     {"y", std::string(Name(c.out_dtype))},
                     {"w_scale", "w_scale" + list},
                     {"w_zp", "w_zp" + list},
                     {"x_scale", "x_scale" + list},
                     {"x_zp", "x_zp" + list},
                     {"bias", c.bias ? "torch.tensor(bias)" : "None"},
                     {"name", name},
                     {"ceil_mode", std::string(Bool(c.window.ceil_mode))},
                     {"count_include_pad", std::string(Bool(c.window.count_include_pad))},
                     {"reduce_range", std::string(Bool(c.observer.reduce_range))},
                     {"table", c.op == Op::kTable ? TableText(c) : ""}});
}

// The engine that answered; where that was no engine, those whose arithmetic it may be.
std::string_view EnginesOf(const Evidence& evidence) {
  const std::string& who = evidence.finding.subject;
  // oneDNN takes symmetric weights only.
  const bool symmetric =
      std::ranges::count(evidence.c.w_q.zero_point, 0) == std::ssize(evidence.c.w_q.zero_point);
  if (who.find("qnnpack") != std::string::npos) return "('qnnpack',)";
  if (who.find("onednn") != std::string::npos) return "('onednn',)";
  if (!symmetric)
    return IsPairSaturation(evidence) ? "('fbgemm', 'x86')" : "('fbgemm', 'x86', 'qnnpack')";
  return IsPairSaturation(evidence) ? "('fbgemm', 'x86', 'onednn')"
                                    : "('fbgemm', 'x86', 'qnnpack', 'onednn')";
}

std::string EnvironmentText(const InstructionSet& set) {
  if (set.onednn.empty()) return "# (none: the libraries take what the processor has)\n";
  std::string text;
  for (const auto& [name, value] : {std::pair("ONEDNN_MAX_CPU_ISA", set.onednn),
                                    std::pair("FBGEMM_ENABLE_INSTRUCTIONS", set.fbgemm),
                                    std::pair("ATEN_CPU_CAPABILITY", set.aten)})
    text += fmt::format("os.environ['{}'] = '{}'\n", name, value);
  return text;
}

}  // namespace

std::string WritePytorch(const Evidence& evidence) {
  const Case& c = evidence.c;
  Require(!IsClamped(c), "a clamp");
  Require(c.requant == Requant::kExact, "requantization modes");
  Require(!evidence.expected.empty() && (!HasSums(c) || c.K != 0), "empty tensors");
  return Fill(kProgram, {{"head", Head(evidence, "#", "python3 repro.py")},
                         {"environment", EnvironmentText(InstructionSetOf(evidence))},
                         {"constants", Constants(Language::kPython, c)},
                         {"expected", List(Language::kPython, "expected", evidence.expected)},
                         {"engines", std::string(EnginesOf(evidence))},
                         {"body", Body(c)}});
}

}  // namespace qualm::exporters
