// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>

#include "core/limits.h"
#include "core/status.h"
#include "oracles/golden/records.h"

namespace qualm::golden {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 20;  // of kernels, strides, pads and dilations

Tensor Transposed(const Tensor& tensor) {
  const int64_t rows = tensor.shape()[0];
  const int64_t columns = tensor.shape()[1];
  Tensor result(tensor.dtype(), {columns, rows});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      result.SetInt(j * rows + i, tensor.IntAt(i * columns + j));
    }
  }
  return result;
}

// Weights as recorded: N*K rows, or the K*N of a matmul.
Tensor Weights(const GoldenRecord& record, DType dtype, int64_t N, int64_t K) {
  if (!record.Has("w_layout")) return Codes(record, "w", dtype, {N, K});
  if (record.Text("w_layout") != "KxN") Wrong(record, "w_layout", "expected KxN");
  return Transposed(Codes(record, "w", dtype, {K, N}));
}

void SetPerChannel(const GoldenRecord& record, Case& c) {
  if (!record.Has("gran")) return;
  const std::string granularity = record.Text("gran");
  if (granularity != "tensor" && granularity != "channel") {
    Wrong(record, "gran", "expected tensor or channel");
  }
  c.per_channel = granularity == "channel";
}

// Shapes, tensors and parameters that all linear records share.
Case LinearCase(const GoldenRecord& record, DType x_dtype, DType w_dtype, DType out_dtype) {
  Case c;
  c.op = Op::kLinear;
  c.M = Dimension(record, "M");
  c.N = Dimension(record, "N");
  c.K = Dimension(record, "K");
  c.x = Codes(record, "x", x_dtype, {c.M, c.K});
  c.w = Weights(record, w_dtype, c.N, c.K);
  c.out_dtype = out_dtype;
  c.relu = Flag(record, "relu");
  SetPerChannel(record, c);
  OpenClamp(&c);
  return c;
}

// Shapes, tensors and parameters that all convolution records share; strides, pads and dilations
// are square.
Case ConvCase(const GoldenRecord& record, DType x_dtype, DType w_dtype, DType out_dtype) {
  Case c;
  c.op = Op::kConv2d;
  if (record.Text("layout") != "x:NHWC w:KRSC y:NHWC")
    Wrong(record, "layout", "expected x:NHWC w:KRSC y:NHWC");
  Window& v = c.window;
  v.batch = Dimension(record, "N");
  v.in_h = Dimension(record, "H");
  v.in_w = Dimension(record, "W");
  v.in_c = Dimension(record, "IC");
  c.N = Dimension(record, "OC");
  v.kernel_h = Int32(record, "R", 1, kMaxExtent);
  v.kernel_w = Int32(record, "S", 1, kMaxExtent);
  v.stride_h = v.stride_w = Int32(record, "stride", 1, kMaxExtent);
  v.dilation_h = v.dilation_w = Int32(record, "dil", 1, kMaxExtent);
  v.pad_top = v.pad_bottom = v.pad_left = v.pad_right = Int32(record, "pad", 0, kMaxExtent);
  v.groups = Int32(record, "G", 1, kMaxExtent);
  if (v.in_c % v.groups != 0 || c.N % v.groups != 0)
    Wrong(record, "G", "does not divide the input and output channels");
  c.x = Codes(record, "x", x_dtype, {v.batch, v.in_h, v.in_w, v.in_c});
  c.w = Codes(record, "w", w_dtype, {c.N, v.kernel_h, v.kernel_w, v.in_c / v.groups});
  if (!WindowWithinLimits(c)) Wrong(record, "OH", "makes too many outputs or terms");
  DeriveSizes(&c);
  if (record.Int("OH") != v.out_h() || record.Int("OW") != v.out_w())
    Wrong(record, "OH", "does not follow from the window");
  c.out_dtype = out_dtype;
  c.relu = Flag(record, "relu");
  SetPerChannel(record, c);
  OpenClamp(&c);
  return c;
}

enum class Bias : uint8_t { kNone, kFloat, kInt32 };

// Scales, zero points and the bias that this kind of record has. A record may hold both biases,
// with an output for each.
void ReadParameters(const GoldenRecord& record, Bias bias, Case& c) {
  c.x_q = {{record.Float("x_scale")}, {Int32(record, "x_zp")}};
  c.w_q.scale = record.Floats("w_scale");
  c.w_q.zero_point = record.Has("w_zp") ? Int32s(record, "w_zp") : std::vector<int32_t>{0};
  c.out_q = {{record.Float("out_scale")}, {Int32(record, "out_zp")}};
  if (bias == Bias::kFloat && record.Has("bias")) c.bias = record.Floats("bias");
  if (bias == Bias::kInt32 && record.Has("bias_i32")) c.bias_i32 = Int32s(record, "bias_i32");
}

Case Checked(const GoldenRecord& record, Case c) {
  CheckCase(record, c);
  return c;
}

Case WithParameters(const GoldenRecord& record, Bias bias, Case c) {
  ReadParameters(record, bias, c);
  return Checked(record, std::move(c));
}

}  // namespace

void CheckCase(const GoldenRecord& record, const Case& c) {
  const std::string error = Validate(c);
  if (!error.empty()) throw InputError(record.where + ": " + error);
}

Case AtenStyleLinear(const GoldenRecord& record) {
  return WithParameters(record, Bias::kFloat,
                        LinearCase(record, DType::kU8, DType::kS8, DType::kU8));
}

Case I32BiasLinear(const GoldenRecord& record) {
  return WithParameters(record, Bias::kInt32,
                        LinearCase(record, DType::kU8, DType::kS8, DType::kU8));
}

Case RealLinear(const GoldenRecord& record) {
  return WithParameters(record, Bias::kFloat,
                        LinearCase(record, DType::kU8, DType::kS8, DType::kF32));
}

Case DirectMatmul(const GoldenRecord& record) {
  Case c = LinearCase(record, CodeType(record, "src_dtype"), DType::kS8, DType::kU8);
  c.w_q.scale = record.Floats("output_scales");
  c.per_channel = c.w_q.scale.size() != 1;
  c.w_q.zero_point.assign(c.w_q.scale.size(), 0);
  c.x_q.zero_point = {Int32(record, "src_zp")};
  c.out_q.zero_point = {Int32(record, "dst_zp")};
  return Checked(record, std::move(c));
}

Case OrtMatmul(const GoldenRecord& record) {
  const DType x_dtype = CodeType(record, "x_dtype");
  return WithParameters(record, Bias::kNone,
                        LinearCase(record, x_dtype, CodeType(record, "w_dtype"), x_dtype));
}

Case XnnpackLinear(const GoldenRecord& record) {
  const DType dtype = CodeType(record, "dtype");
  Case c = LinearCase(record, dtype, dtype, dtype);
  ReadParameters(record, Bias::kInt32, c);
  c.per_channel = c.w_q.scale.size() != 1;
  if (c.per_channel && c.w_q.zero_point.size() == 1) {
    c.w_q.zero_point.assign(c.w_q.scale.size(), c.w_q.zero_point[0]);
  }
  c.out_min = Int32(record, "out_min");
  c.out_max = Int32(record, "out_max");
  return Checked(record, std::move(c));
}

Case TfliteLinear(const GoldenRecord& record) {
  Case c = LinearCase(record, DType::kS8, DType::kS8, DType::kS8);
  c.out_min = Int32(record, "act_min");
  if (record.Has("act_max")) c.out_max = Int32(record, "act_max");
  return WithParameters(record, Bias::kInt32, std::move(c));
}

Case AtenStyleConv(const GoldenRecord& record) {
  return WithParameters(record, Bias::kFloat, ConvCase(record, DType::kU8, DType::kS8, DType::kU8));
}

Case OrtConv(const GoldenRecord& record) {
  const DType x_dtype = record.Has("x_dtype") ? CodeType(record, "x_dtype") : DType::kU8;
  return WithParameters(record, Bias::kInt32,
                        ConvCase(record, x_dtype, CodeType(record, "w_dtype"), x_dtype));
}

Case DirectConv(const GoldenRecord& record) {
  return Checked(record, ConvCase(record, CodeType(record, "src_dtype"), DType::kS8, DType::kS32));
}

Case WrittenCase(const GoldenRecord& record) {
  return ParseCase(record.Text("case"), record.where + ": case");
}

Case DynamicLinearCase(const GoldenRecord& record) {
  Case c;
  c.op = Op::kDynamicLinear;
  c.M = Dimension(record, "M");
  c.N = Dimension(record, "N");
  c.K = Dimension(record, "K");
  c.x = Reals(record, "x", {c.M, c.K});
  c.w = Codes(record, "w", DType::kS8, {c.N, c.K});
  c.w_q = {record.Floats("w_scale"), Int32s(record, "w_zp")};
  if (record.Has("bias")) c.bias = record.Floats("bias");
  c.rule = QParamsRule::kAten;
  c.observer.reduce_range = Flag(record, "reduce_range");
  c.out_dtype = DType::kF32;
  SetPerChannel(record, c);
  OpenClamp(&c);
  return Checked(record, std::move(c));
}

std::string BeyondCases(const GoldenRecord& record) {
  if (record.op == "input_set") return "an input set, which has no output,";
  if (record.op == "cast" || record.op == "decode") return BeyondCasts(record);
  if (record.op == "DynamicQuantizeLinear" && !std::isfinite(record.Float("scale")))
    return "DynamicQuantizeLinear with the scale " + record.Text("scale");
  const bool quantizes = record.op == "QuantizeLinear";
  if (!quantizes && record.op != "DequantizeLinear") return "";
  const std::string codes = record.Text(quantizes ? "y_type" : "x_type");
  const std::string real = record.Text(quantizes ? "x_type" : "y_type");
  const std::vector<int64_t> shape = record.Ints("shape");
  const bool columns = shape.size() == 2 && record.Has("axis") && record.Int("axis") == 1;
  if (codes != "u8" && codes != "s8") return record.op + " of " + codes;
  if (real != "f32") return record.op + " of " + real;
  if (record.Has("block_size")) return record.op + " by blocks";
  if (record.Has("axis") && !columns) return record.op + " along rows";
  return "";
}

namespace {

// Scale and zero point of the codes, one for each column where there is an axis.
void ReadOnnxParameters(const GoldenRecord& record, QParams& q, Case& c) {
  q.scale = record.Floats("scale");
  q.zero_point = record.Has("zp") ? Int32s(record, "zp") : std::vector<int32_t>(q.scale.size(), 0);
  c.per_channel = record.Has("axis");
}

// [rows, columns] of the record's shape; one row if it has one dimension.
std::vector<int64_t> OnnxShape(const GoldenRecord& record) {
  std::vector<int64_t> shape = record.Ints("shape");
  if (shape.size() == 1) shape.insert(shape.begin(), 1);
  if (shape.size() != 2) Wrong(record, "shape", "expected one or two dimensions");
  return shape;
}

}  // namespace

Case OnnxQuantizeCase(const GoldenRecord& record) {
  Case c =
      CaseOver(Op::kQuantize, Reals(record, "x", OnnxShape(record)), CodeType(record, "y_type"));
  ReadOnnxParameters(record, c.out_q, c);
  return Checked(record, std::move(c));
}

Case OnnxDequantizeCase(const GoldenRecord& record) {
  Case c = CaseOver(Op::kDequantize,
                    Codes(record, "x", CodeType(record, "x_type"), OnnxShape(record)), DType::kF32);
  ReadOnnxParameters(record, c.x_q, c);
  return Checked(record, std::move(c));
}

Case MatMulIntegerCase(const GoldenRecord& record) {
  if (record.Text("b_layout") != "KxN") Wrong(record, "b_layout", "expected KxN");
  Case c;
  c.op = Op::kLinear;
  c.M = Dimension(record, "M");
  c.N = Dimension(record, "N");
  c.K = Dimension(record, "K");
  c.x = Codes(record, "a", CodeType(record, "a_type"), {c.M, c.K});
  c.w = Transposed(Codes(record, "b", CodeType(record, "b_type"), {c.K, c.N}));
  c.x_q.zero_point = {Int32(record, "a_zp")};
  c.w_q.zero_point = Int32s(record, "b_zp");
  c.per_channel = c.w_q.zero_point.size() > 1;
  c.w_q.scale.assign(c.w_q.zero_point.size(), 1);
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  return Checked(record, std::move(c));
}

// The operand a is x, b is w.
Case PairCase(const GoldenRecord& record) {
  DType dtype = record.op == "tflite_add" ? DType::kS8 : DType::kU8;
  if (record.Has("dtype")) dtype = CodeType(record, "dtype");
  Case c = CaseOver(record.op == "mul" ? Op::kMul : Op::kAdd,
                    Codes(record, "a", dtype, {1, Dimension(record, "n")}), dtype);
  c.w = Codes(record, "b", dtype, {c.M, c.N});
  c.x_q = {{record.Float("a_scale")}, {Int32(record, "a_zp")}};
  c.w_q = {{record.Float("b_scale")}, {Int32(record, "b_zp")}};
  c.out_q = {{record.Float("out_scale")}, {Int32(record, "out_zp")}};
  c.relu = Flag(record, "relu");
  if (record.Has("out_min")) c.out_min = Int32(record, "out_min");
  if (record.Has("out_max")) c.out_max = Int32(record, "out_max");
  return Checked(record, std::move(c));
}

Case QuantizeCase(const GoldenRecord& record) {
  const std::vector<float> x = record.Floats("x");
  Case c = CaseOver(Op::kQuantize, Tensor::Of<float>({1, static_cast<int64_t>(x.size())}, x),
                    record.op == "tflite_quantize"         ? DType::kS8
                    : record.op == "DynamicQuantizeLinear" ? DType::kU8
                                                           : CodeType(record, "dtype"));
  c.out_q = {{record.Float(record.Has("scale") ? "scale" : "scale_double")}, {Int32(record, "zp")}};
  if (record.Has("quant_min")) c.out_min = Int32(record, "quant_min");
  if (record.Has("quant_max")) c.out_max = Int32(record, "quant_max");
  return Checked(record, std::move(c));
}

// Every code once, from the lowest on.
Case HardSwishCase(const GoldenRecord& record) {
  const DType dtype = CodeType(record, "dtype");
  const CodeRange codes = RangeOf(dtype);
  Tensor x(dtype, {1, int64_t{codes.max} - codes.min + 1});
  for (int64_t i = 0; i < x.size(); ++i) x.SetInt(i, static_cast<int32_t>(codes.min + i));
  Case c = CaseOver(Op::kTable, std::move(x), dtype);
  c.function = Function::kHardSwish;
  c.x_q = {{record.Float("x_scale")}, {Int32(record, "x_zp")}};
  c.out_q = {{record.Float("out_scale")}, {Int32(record, "out_zp")}};
  return Checked(record, std::move(c));
}

Case DequantizeCase(const GoldenRecord& record, const Case& quantize, const Tensor& codes) {
  Case c = CaseOver(Op::kDequantize, codes, DType::kF32);
  c.x_q = quantize.out_q;
  return Checked(record, std::move(c));
}

Case RequantizeCase(const GoldenRecord& record) {
  const auto size = static_cast<int64_t>(record.Ints("x").size());
  Case c = CaseOver(Op::kRequantize, Codes(record, "x", DType::kS32, {1, size}), DType::kU8);
  c.multiplier = {record.Float("mult")};
  c.out_q.zero_point = {Int32(record, "zp")};
  return Checked(record, std::move(c));
}

}  // namespace qualm::golden
