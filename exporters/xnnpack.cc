// SPDX-License-Identifier: Apache-2.0
// C against the operators of XNNPACK as Debian 12 has it (2022: create, setup, run), and as Debian
// 13 has it (2024: create, reshape, setup, run).
#include <fmt/format.h>

#include <cmath>

#include "exporters/evidence.h"

namespace qualm::exporters {
namespace {

constexpr std::string_view kProgram = R"($head$#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xnnpack.h>

// XNNPACK may read so many bytes past the end of a tensor.
#define SLACK XNN_EXTRA_BYTES
$constants$$expected$enum { COUNT = $count$ };
static $out$ y[COUNT + SLACK];

static int Failed(const char* what, enum xnn_status status) {
  if (status != xnn_status_success) fprintf(stderr, "%s: status %d\n", what, status);
  return status != xnn_status_success;
}

static void Print(const char* name, const $out$* values) {
  printf("%-8s", name);
  for (int i = 0; i < COUNT; ++i) printf(" $format$", values[i]);
  printf("\n");
}

int main(void) {
  xnn_operator_t op = NULL;
  if (Failed("xnn_initialize", xnn_initialize(NULL))) return 2;
$calls$  if (Failed("xnn_run_operator", xnn_run_operator(op, NULL))) return 2;
  xnn_delete_operator(op);
  Print("EXPECTED", expected);
  Print("GOT", y);
  return memcmp(y, expected, COUNT * sizeof y[0]) != 0;
}
)";

// The name of an operator and the arguments of its functions, up to the last ones, which all have
// in common.
struct Operator {
  std::string function, create, setup;
  // Of 2024:
  std::string reshape = {};
  std::string declarations = {};  // that `create` needs
  std::string caches = {};        // for code and for weights
  bool has_workspace = false;     // of which reshape says the size
};

std::string Call(std::string_view step, const Operator& op, const std::string& arguments) {
  return fmt::format(
      "  if (Failed(\"xnn_{0}_{1}\",\n             xnn_{0}_{1}({2})))\n    return 2;\n", step,
      op.function, arguments);
}
std::string Calls2022(const Operator& op) {
  return Call("create", op, op.create + "\n                 0, &op") +
         Call("setup", op, "op, " + op.setup + " y, NULL");
}
std::string Calls2024(const Operator& op) {
  std::string text = op.declarations;
  text += Call("create", op, op.create + "\n                 0, " + op.caches + "&op");
  if (op.has_workspace) text += "  size_t size = 0, alignment = 1;\n";
  text += Call("reshape", op, "op, " + op.reshape + " NULL");
  if (op.has_workspace)
    text += "  void* workspace = aligned_alloc(alignment, (size / alignment + 1) * alignment);\n";
  return text + Call("setup", op, "op, " + op.setup + " y");
}

void RequireNormal(float scale) {
  Require(std::isnormal(scale), "scales that are no normal numbers");
}
void RequireCode(const QParams& q, DType dtype) {
  const CodeRange range = RangeOf(dtype);
  for (const int32_t z : q.zero_point)
    Require(z >= range.min && z <= range.max, "zero points that are no codes");
}

std::string Codes(const Case& c) {  // "qs8"
  const DType codes = c.op == Op::kQuantize ? c.out_dtype : c.x.dtype();
  return codes == DType::kS8 ? "qs8" : "qu8";
}
constexpr std::string_view kClamp = "LOW, HIGH,";
constexpr std::string_view kWindow =
    "\n                 pad_top, pad_right, pad_bottom, pad_left, R, S, stride_h, stride_w,";

// The arguments of both versions from x_zp to the clamp.
std::string QuantizationOfSums(const Case& c) {
  const bool s8 = c.x.dtype() == DType::kS8, channels = c.w_q.scale.size() > 1;
  Require(!c.bias, "biases in real units");
  Require(c.w.dtype() == c.x.dtype() && c.out_dtype == c.x.dtype(), "tensors of different types");
  Require(s8 || !channels, "scales per channel of u8 weights");
  for (const float scale : c.w_q.scale) {
    RequireNormal(scale);
    const float multiplier = c.x_q.scale_at(0) * scale / c.out_q.scale_at(0);
    Require(multiplier >= 0x1p-32f && multiplier < 256.0f, "multipliers outside [2^-32, 256)");
  }
  for (const int32_t z : c.w_q.zero_point) Require(!s8 || z == 0, "zero points of s8 weights");
  RequireCode(c.w_q, c.w.dtype());
  return fmt::format("\n                 x_zp, x_scale,{} {}, w, {}, out_zp, out_scale, {}",
                     s8 ? "" : " w_zp[0],", channels ? "w_scale" : "w_scale[0]",
                     c.bias_i32 ? "bias_i32" : "NULL", kClamp);
}
constexpr std::string_view kWindowOfSums =
    " dilation_h,\n                 dilation_w, groups, C / groups, N / groups, C, N,";

Operator SumsOf(const Case& c) {
  const std::string tail = QuantizationOfSums(c);
  const bool channels = c.w_q.scale.size() > 1;
  const std::string codes = channels ? "qc8" : Codes(c);
  if (c.op == Op::kLinear && !channels)
    return {"fully_connected_nc_" + codes, "K, N, K, N," + tail, "M, x,"};
  // A linear per channel is a convolution of M pixels.
  if (c.op == Op::kLinear)
    return {"convolution2d_nhwc_qc8", "0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, K, N, K, N," + tail,
            "1, M, 1, x,"};
  return {"convolution2d_nhwc_" + codes, fmt::format("{}{}{}", kWindow, kWindowOfSums, tail),
          "batch, H, W, x,"};
}

Operator OperandsOf(const Case& c, const std::string& name) {
  RequireCode(c.w_q, c.x.dtype());
  return {name + "_nd_" + Codes(c),
          "a_zp, a_scale, b_zp, b_scale, out_zp, out_scale, " + std::string(kClamp),
          "2, (size_t[]){M, N}, 2, (size_t[]){M, N}, a, b,"};
}

Operator TableOf(const Case& c) {
  const std::string tail = "x_zp, x_scale, out_zp, out_scale, " + std::string(kClamp);
  switch (c.function) {
    case Function::kSigmoid: return {"sigmoid_nc_" + Codes(c), "N, N, N, " + tail, "M, x,"};
    case Function::kTanh: return {"tanh_nc_" + Codes(c), "N, N, N, " + tail, "M, x,"};
    case Function::kLeakyRelu:
      Require(c.x.dtype() == DType::kU8, "leaky_relu of s8 codes");
      return {"leaky_relu_nc_qu8",
              "N, N, N, " + Literal(Language::kC, c.negative_slope) + ", " + tail, "M, x,"};
    case Function::kRelu:
    case Function::kHardSwish: break;
  }
  throw CannotExpress(fmt::format("lacks the function {} of codes", Name(c.function)));
}

Operator PoolOf(const Case& c) {
  const std::string codes = c.x.dtype() == DType::kS8 ? "s8" : "u8";
  if (c.op == Op::kMaxPool) {
    Require(c.window.dilation_h == 1 && c.window.dilation_w == 1,
            "dilated maxima that read inside their window only");
    return {"max_pooling2d_nhwc_" + codes,
            std::string(kWindow) + " dilation_h,\n                 dilation_w, C, C, C, " +
                std::string(kClamp),
            "batch, H, W, x,"};
  }
  const std::string tail =
      "\n                 x_zp, x_scale, out_zp, out_scale, " + std::string(kClamp);
  if (c.op == Op::kGlobalAvgPool)
    return {"global_average_pooling_nwc_" + Codes(c), "C, C, C," + tail, "batch, H * W, x,"};
  Require(c.x.dtype() == DType::kU8, "averages of s8 codes");
  Require(!c.window.has_padding() || c.window.count_include_pad, "averages without the padding");
  return {"average_pooling2d_nhwc_qu8", std::string(kWindow) + " C, C, C," + tail,
          "batch, H, W, x,"};
}

Operator OperatorOf(const Case& c) {
  switch (c.op) {
    case Op::kLinear:
    case Op::kConv2d:
    case Op::kDepthwise: return SumsOf(c);
    case Op::kAdd: return OperandsOf(c, "add");
    case Op::kSub: return OperandsOf(c, "subtract");
    case Op::kMul: return OperandsOf(c, "multiply");
    case Op::kQuantize:
      Require(c.out_q.scale.size() == 1, "scales per channel here");
      return {"convert_nc_f32_" + Codes(c),
              "N, N, N, out_scale[0], out_zp[0], " + std::string(kClamp), "M, x,"};
    case Op::kDequantize:
      Require(c.x_q.scale.size() == 1, "scales per channel here");
      return {"convert_nc_" + Codes(c) + "_f32", "N, N, N, x_scale[0], x_zp[0],", "M, x,"};
    case Op::kTable: return TableOf(c);
    case Op::kMaxPool:
    case Op::kAvgPool:
    case Op::kGlobalAvgPool: return PoolOf(c);
    case Op::kSoftmax:
      Require(c.x.dtype() == DType::kU8 && c.N <= 512 && !IsClamped(c),
              "softmax of s8 codes, of more than 512 codes or with a clamp");
      return {"softmax_nc_qu8", "N, N, N, x_scale, out_zp, out_scale,", "M, x,"};
    default: throw CannotExpress(fmt::format("lacks {}", Name(c.op)));
  }
}

// ---- 2024. Operators of one and of two operands have one function each.

std::string DataType(DType dtype) {
  switch (dtype) {
    case DType::kS8: return "xnn_datatype_qint8";
    case DType::kU8: return "xnn_datatype_quint8";
    default: return "xnn_datatype_fp32";
  }
}
std::string Quantization(std::string_view name, std::string_view entry = "") {
  return fmt::format(
      "  const struct xnn_quantization_params {0}_params = {{{0}_zp{1}, {0}_scale{1}}};\n", name,
      entry);
}

Operator SumsOf2024(const Case& c) {
  const std::string tail = QuantizationOfSums(c);
  const std::string codes = c.w_q.scale.size() > 1 ? "qs8_qc8w" : Codes(c);
  if (c.op == Op::kLinear) {
    return {.function = "fully_connected_nc_" + codes,
            .create = "K, N, K, N," + tail,
            .setup = "x,",
            .reshape = "M,",
            .caches = "NULL, NULL, "};
  }
  return {.function = "convolution2d_nhwc_" + codes,
          .create = fmt::format("{}{}{}", kWindow, kWindowOfSums, tail),
          .setup = "workspace, x,",
          .reshape = "batch, H, W, &size, &alignment, NULL, NULL,",
          .caches = "NULL, NULL, ",
          .has_workspace = true};
}

Operator OperandsOf2024(const Case& c, std::string_view name) {
  RequireCode(c.w_q, c.x.dtype());
  return {.function = "binary_elementwise_nd",
          .create = fmt::format("xnn_binary_{}, {}, &a_params, &b_params, &out_params,", name,
                                DataType(c.x.dtype())),
          .setup = "a, b,",
          .reshape = "2, (size_t[]){M, N}, 2, (size_t[]){M, N},",
          .declarations = Quantization("a") + Quantization("b") + Quantization("out")};
}

Operator RowsOf2024(const Case& c, std::string_view name) {
  const bool reals = c.op == Op::kQuantize, to_reals = c.op == Op::kDequantize;
  const bool leaky = c.op == Op::kTable && c.function == Function::kLeakyRelu;
  std::string declarations;
  if (!reals) declarations += Quantization("x", to_reals ? "[0]" : "");
  if (!to_reals) declarations += Quantization("out", reals ? "[0]" : "");
  if (leaky) {
    declarations +=
        fmt::format("  const union xnn_unary_params slope = {{.leaky_relu = {{{}}}}};\n",
                    Literal(Language::kC, c.negative_slope));
  }
  return {.function = "unary_elementwise_nc",
          .create = fmt::format("xnn_unary_{}, {}, {}, {}, {}, {},", name, DataType(c.x.dtype()),
                                DataType(c.out_dtype), leaky ? "&slope" : "NULL",
                                reals ? "NULL" : "&x_params", to_reals ? "NULL" : "&out_params"),
          .setup = "x,",
          .reshape = "M, N, N, N,",
          .declarations = declarations};
}

Operator PoolOf2024(const Case& c) {
  if (c.op == Op::kGlobalAvgPool) {
    return {.function = "reduce_nd",
            .create =
                fmt::format("xnn_reduce_mean, {}, &x_params, &out_params,", DataType(c.x.dtype())),
            .setup = "workspace, x,",
            .reshape =
                "2, (int64_t[]){1, 2}, 4,\n                 "
                "(size_t[]){batch, H, W, C}, &size, &alignment,",
            .declarations = Quantization("x") + Quantization("out"),
            .has_workspace = true};
  }
  Operator op = PoolOf(c);  // the strides between pixels go to reshape
  constexpr std::string_view kStrides = " C, C, C,";
  op.create.erase(op.create.find(kStrides), kStrides.size());
  const bool is_max = c.op == Op::kMaxPool;
  op.reshape =
      fmt::format("batch, H, W,{}{} NULL, NULL,", kStrides, is_max ? "" : " &size, &alignment,");
  op.setup = is_max ? "x," : "workspace, x,";
  op.has_workspace = !is_max;
  return op;
}

Operator OperatorOf2024(const Case& c) {
  Require(HasSums(c) || c.op == Op::kMaxPool || c.op == Op::kAvgPool ||
              (!IsClamped(c) && LowerBound(c) <= c.out_min),
          "clamps of this operator");
  switch (c.op) {
    case Op::kLinear:
    case Op::kConv2d:
    case Op::kDepthwise: return SumsOf2024(c);
    case Op::kAdd: return OperandsOf2024(c, "add");
    case Op::kSub: return OperandsOf2024(c, "subtract");
    case Op::kMul: return OperandsOf2024(c, "multiply");
    case Op::kQuantize:
      Require(c.out_q.scale.size() == 1, "scales per channel here");
      return RowsOf2024(c, "convert");
    case Op::kDequantize:
      Require(c.x_q.scale.size() == 1, "scales per channel here");
      return RowsOf2024(c, "convert");
    case Op::kRescale: return RowsOf2024(c, "convert");
    case Op::kTable:
      Require(c.function != Function::kRelu, "the function relu of codes");
      return RowsOf2024(c, c.function == Function::kHardSwish ? "hardswish" : Name(c.function));
    case Op::kMaxPool:
    case Op::kAvgPool:
    case Op::kGlobalAvgPool: return PoolOf2024(c);
    case Op::kSoftmax: {
      Operator op = OperatorOf(c);
      op.create = "x_scale, out_zp, out_scale,";
      op.setup = "x,";
      op.reshape = "N, N, N, M,";
      return op;
    }
    default: throw CannotExpress(fmt::format("lacks {}", Name(c.op)));
  }
}

std::string Write(const Evidence& evidence, bool of_2024) {
  const Case& c = evidence.c;
  const OpRow& row = RowOf(c.op);
  Require(c.requant == Requant::kExact, "requantization modes");
  Require(!evidence.expected.empty() && (!HasSums(c) || c.K != 0), "empty tensors");
  Require(c.op == Op::kQuantize || c.op == Op::kDequantize || c.x.dtype() == c.out_dtype ||
              (of_2024 && c.op == Op::kRescale),
          "tensors of different types");
  if (row.x_qparams) RequireNormal(c.x_q.scale_at(0));
  if (row.x_qparams && c.op != Op::kMaxPool) RequireCode(c.x_q, c.x.dtype());
  if (row.out_q != OutQParams::kNone) {
    RequireNormal(c.out_q.scale_at(0));
    if (c.op != Op::kMaxPool) RequireCode(c.out_q, c.out_dtype);
  }
  const int64_t low = LowerBound(c);
  Require(!row.clamp || low < c.out_max, "a clamp that leaves one code");
  const Operator op = of_2024 ? OperatorOf2024(c) : OperatorOf(c);
  std::string constants = Constants(Language::kC, c, "SLACK");
  if (op.create.find(kClamp) != std::string::npos)
    constants += fmt::format("enum {{ LOW = {}, HIGH = {} }};  // {}\n", low, c.out_max,
                             c.relu ? "the relu raises the lower end" : "the clamp");
  return Fill(kProgram, {{"head", Head(evidence, "//",
                                       "cc repro.c -lXNNPACK -lpthreadpool -lcpuinfo -lm -o repro "
                                       "&& ./repro")},
                         {"constants", constants},
                         {"expected", List(Language::kC, "expected", evidence.expected)},
                         {"count", std::to_string(evidence.expected.size())},
                         {"out", std::string(TypeIn(Language::kC, c.out_dtype))},
                         {"format", c.out_dtype == DType::kF32 ? "%a" : "%d"},
                         {"calls", of_2024 ? Calls2024(op) : Calls2022(op)}});
}

}  // namespace

std::string WriteXnnpack(const Evidence& evidence) { return Write(evidence, false); }
std::string WriteXnnpack2024(const Evidence& evidence) { return Write(evidence, true); }

}  // namespace qualm::exporters
