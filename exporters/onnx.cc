// SPDX-License-Identifier: Apache-2.0
// An ONNX model with its inputs and the exact output, laid out as ONNX lays out its own tests
// (onnx/backend/test/data). Field numbers are those of onnx.proto.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <protozero/pbf_writer.hpp>
#include <utility>

#include "exporters/evidence.h"
#include "exporters/nbits.h"

namespace qualm::exporters {
namespace {

using protozero::pbf_writer;

constexpr std::string_view kContrib = "com.microsoft";

// An input, or the output.
struct Value {
  std::string name;
  Tensor tensor;  // shape and data as ONNX has them
};

struct Attribute {
  std::string name;
  std::vector<int64_t> integers;
  bool list = true;  // else one integer
  std::optional<float> number = std::nullopt;
};

struct Node {
  std::string type;
  std::string_view domain = {};
  std::vector<std::string> from, to;
  std::vector<Attribute> attributes;
};

struct Model {
  std::vector<Node> nodes;
  std::vector<Value> inputs;
};

// TensorProto.DataType.
int32_t ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 1;
    case DType::kU8: return 2;
    case DType::kS8: return 3;
    case DType::kS32: return 6;
    default: break;
  }
  QUALM_CHECK(!"a type of another operation");
  return 0;
}

std::string TensorProto(const Value& value) {
  std::string bytes;
  pbf_writer proto(bytes);
  for (const int64_t size : value.tensor.shape()) proto.add_int64(1, size);
  proto.add_int32(2, ElementOf(value.tensor.dtype()));
  proto.add_string(8, value.name);
  const auto raw = value.tensor.bytes();
  proto.add_bytes(9, reinterpret_cast<const char*>(raw.data()), raw.size());
  return bytes;
}

// ValueInfoProto: name 1, type 2 {tensor_type 1 {elem_type 1, shape 2 {dim 1 {dim_value 1}}}}.
std::string ValueInfo(const Value& value) {
  std::string bytes;
  pbf_writer proto(bytes);
  proto.add_string(1, value.name);
  pbf_writer type(proto, 2);
  pbf_writer tensor(type, 1);
  tensor.add_int32(1, ElementOf(value.tensor.dtype()));
  // Written on its own: a scalar's shape is empty, and protozero would take an empty message back.
  std::string shape;
  pbf_writer dimensions(shape);
  for (const int64_t size : value.tensor.shape()) {
    pbf_writer dimension(dimensions, 1);
    dimension.add_int64(1, size);
  }
  tensor.add_message(2, shape);
  return bytes;
}

// AttributeProto: name 1, f 2, i 3, ints 8, type 20 (1 FLOAT, 2 INT, 7 INTS).
std::string AttributeProto(const Attribute& attribute) {
  std::string bytes;
  pbf_writer proto(bytes);
  proto.add_string(1, attribute.name);
  if (attribute.number) proto.add_float(2, *attribute.number);
  for (const int64_t value : attribute.integers) proto.add_int64(attribute.list ? 8 : 3, value);
  proto.add_int32(20, attribute.number ? 1 : attribute.list ? 7 : 2);
  return bytes;
}

std::string NodeProto(const Node& node) {
  std::string bytes;
  pbf_writer proto(bytes);
  for (const std::string& name : node.from) proto.add_string(1, name);
  for (const std::string& name : node.to) proto.add_string(2, name);
  proto.add_string(4, node.type);
  for (const Attribute& attribute : node.attributes)
    proto.add_message(5, AttributeProto(attribute));
  proto.add_string(7, node.domain.data(), node.domain.size());
  return bytes;
}

// ModelProto: ir_version 1, producer_name 2, doc_string 6, graph 7, opset_import 8.
std::string ModelProto(const Model& model, const Value& output, const std::string& about) {
  std::string bytes;
  pbf_writer proto(bytes);
  proto.add_int64(1, 8);
  proto.add_string(2, "qualm");
  proto.add_string(6, about);
  {
    pbf_writer graph(proto, 7);
    for (const Node& node : model.nodes) graph.add_message(1, NodeProto(node));
    graph.add_string(2, "case");
    for (const Value& input : model.inputs) graph.add_message(11, ValueInfo(input));
    graph.add_message(12, ValueInfo(output));
  }
  for (const auto& [domain, version] : {std::pair(std::string_view(), 13), {kContrib, 1}}) {
    pbf_writer opset(proto, 8);
    opset.add_string(1, domain.data(), domain.size());
    opset.add_int64(2, version);
  }
  return bytes;
}

// ---- Tensors.

// Any four sizes [a,H,W,b] as [a,b,H,W].
Tensor ChannelsFirst(const Tensor& from) {
  const std::vector<int64_t>& s = from.shape();
  Tensor to(from.dtype(), {s[0], s[3], s[1], s[2]});
  const int64_t pixels = s[1] * s[2];
  for (int64_t a = 0; a < s[0]; ++a) {
    for (int64_t p = 0; p < pixels; ++p) {
      for (int64_t b = 0; b < s[3]; ++b)
        to.SetInt((a * s[3] + b) * pixels + p, from.IntAt((a * pixels + p) * s[3] + b));
    }
  }
  return to;
}

Tensor Transposed(const Tensor& from) {
  const int64_t rows = from.shape()[0], columns = from.shape()[1];
  Tensor to(from.dtype(), {columns, rows});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to.SetInt(j * rows + i, from.IntAt(i * columns + j));
  }
  return to;
}

// Adds NAME_scale and NAME_zp: a scalar per tensor, a list per channel.
void AddQParams(Model& model, const std::string& name, const QParams& q, DType dtype, bool list) {
  const auto count = static_cast<int64_t>(q.scale.size());
  const std::vector<int64_t> shape = list ? std::vector{count} : std::vector<int64_t>();
  Tensor scale(DType::kF32, shape), zero(dtype, shape);
  const CodeRange range = RangeOf(dtype);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t z = q.zero_point_at(i);
    Require(z >= range.min && z <= range.max, "zero points that are no codes");
    scale.as<float>()[static_cast<size_t>(i)] = q.scale_at(i);
    zero.SetInt(i, z);
  }
  model.inputs.push_back({name + "_scale", std::move(scale)});
  model.inputs.push_back({name + "_zp", std::move(zero)});
}
void AddOutput(Model& model, const Case& c, bool list = false) {
  AddQParams(model, "y", c.out_q, c.out_dtype, list);
}

// One node takes all inputs in their order.
Model Single(Model model, std::string type, std::string_view domain,
             std::vector<Attribute> attributes = {}) {
  Node node{std::move(type), domain, {}, {"y"}, std::move(attributes)};
  for (const Value& input : model.inputs) node.from.push_back(input.name);
  model.nodes.push_back(std::move(node));
  return model;
}

void RequireOneType(const Case& c) {
  Require(c.x.dtype() == c.out_dtype, "an output of another type than the input");
}

// ---- Operations.

// MatMulNBits, as ONNX Runtime's quantizers write it.
Model FewBitsLinear(const Case& c) {
  // Blocks of 48 are three of 16; one block holds all of a row that has none.
  const int64_t given = 0 < c.w_block && c.w_block < c.K
                            ? c.w_block
                            : std::max<int64_t>(16, std::bit_ceil(static_cast<uint64_t>(c.K)));
  // It has no larger ones of 2 bits.
  const int64_t most = BitsOf(c.w.dtype()) == 2 ? 256 : given;
  NBits w = NBitsOf(c, std::min(given & -given, most));
  Model model;
  model.inputs = {{"a", c.x}, {"b", std::move(w.codes)}, {"scales", std::move(w.scales)}};
  Node node{"MatMulNBits",
            kContrib,
            {"a", "b", "scales"},
            {"y"},
            {{"K", {c.K}, false},
             {"N", {c.N}, false},
             {"bits", {w.bits}, false},
             {"block_size", {w.block}, false}}};
  if (!w.centred) model.inputs.push_back({"zero_points", std::move(w.zero_points)});
  if (!w.centred || c.bias) node.from.emplace_back(w.centred ? "" : "zero_points");
  if (c.bias) {
    model.inputs.push_back({"bias", Tensor::Of<float>({c.N}, *c.bias)});
    node.from.insert(node.from.end(), {"", "bias"});  // no g_idx
  }
  model.nodes = {std::move(node)};
  return model;
}

Model Linear(const Case& c) {
  if (HasFloatX(c)) return FewBitsLinear(c);
  Require(c.w_block == 0, kInBlocks);
  Model model;
  if (c.out_dtype == DType::kS32) {
    Require(!c.bias_i32, "a bias in MatMulInteger");
    AddQParams(model, "a", {{1.0f}, c.x_q.zero_point}, c.x.dtype(), false);
    AddQParams(model, "b", c.w_q, c.w.dtype(), c.per_channel);
    model.inputs = {{"a", c.x}, {"b", Transposed(c.w)}, model.inputs[1], model.inputs[3]};
    return Single(std::move(model), "MatMulInteger", "");
  }
  Require(!c.bias && !c.bias_i32, "a bias in QLinearMatMul");
  RequireOneType(c);
  Require(c.x.dtype() == DType::kU8 || c.w.dtype() == DType::kS8, "u8 weights of s8 inputs");
  model.inputs.push_back({"a", c.x});
  AddQParams(model, "a", c.x_q, c.x.dtype(), false);
  model.inputs.push_back({"b", Transposed(c.w)});
  AddQParams(model, "b", c.w_q, c.w.dtype(), c.per_channel);
  AddOutput(model, c);
  return Single(std::move(model), "QLinearMatMul", "");
}

std::vector<Attribute> WindowOf(const Case& c) {
  const Window& v = c.window;
  return {{"kernel_shape", {v.kernel_h, v.kernel_w}},
          {"strides", {v.stride_h, v.stride_w}},
          {"pads", {v.pad_top, v.pad_left, v.pad_bottom, v.pad_right}}};
}

Model Conv(const Case& c) {
  RequireOneType(c);
  Require(c.x.dtype() == DType::kU8 || c.w.dtype() == DType::kS8, "u8 weights of s8 inputs");
  Require(!c.bias, "a bias in real units in QLinearConv");
  for (const int32_t z : c.w_q.zero_point)
    Require(z == c.w_q.zero_point[0], "zero points of weights per channel");
  Model model;
  model.inputs.push_back({"x", ChannelsFirst(c.x)});
  AddQParams(model, "x", c.x_q, c.x.dtype(), false);
  model.inputs.push_back({"w", ChannelsFirst(c.w)});
  AddQParams(model, "w", c.w_q, c.w.dtype(), c.per_channel);
  AddOutput(model, c);
  if (c.bias_i32) model.inputs.push_back({"bias", Tensor::Of<int32_t>({c.N}, *c.bias_i32)});
  std::vector<Attribute> attributes = WindowOf(c);
  attributes.push_back({"dilations", {c.window.dilation_h, c.window.dilation_w}});
  attributes.push_back({"group", {c.window.groups}, false});
  return Single(std::move(model), "QLinearConv", "", std::move(attributes));
}

// The nodes that quantize_dynamic of ONNX Runtime puts in place of a MatMul.
Model DynamicLinear(const Case& c) {
  Require(c.rule == QParamsRule::kOnnx && c.x_gran == Granularity::kTensor,
          "other rules than onnx, or one for each row");
  Model model;
  model.inputs.push_back({"x", c.x});
  model.inputs.push_back({"b", Transposed(c.w)});
  AddQParams(model, "b", c.w_q, c.w.dtype(), c.per_channel);
  if (c.bias) model.inputs.push_back({"bias", Tensor::Of<float>({c.N}, *c.bias)});
  model.nodes = {{"DynamicQuantizeLinear", "", {"x"}, {"a", "a_scale", "a_zp"}, {}},
                 {"MatMulInteger", "", {"a", "b", "a_zp", "b_zp"}, {"sum"}, {}},
                 {"Cast", "", {"sum"}, {"number"}, {{"to", {1}, false}}},
                 {"Mul", "", {"a_scale", "b_scale"}, {"scale"}, {}},
                 {"Mul", "", {"number", "scale"}, {c.bias ? "product" : "y"}, {}}};
  if (c.bias) model.nodes.push_back({"Add", "", {"product", "bias"}, {"y"}, {}});
  return model;
}

// Its scale and zero point, one below the other; with codes, these behind both in one row.
Model ChooseQParams(const Case& c) {
  Require(c.rule == QParamsRule::kOnnx && !c.per_channel,
          "other rules than onnx, or one for each row");
  Model model;
  model.inputs = {{"x", c.x}, {"one", Tensor::Of<float>({1, 1}, std::vector<float>{1.0f})}};
  model.nodes = {{"DynamicQuantizeLinear", "", {"x"}, {"codes", "scale", "zp"}, {}},
                 {"Cast", "", {"zp"}, {"number"}, {{"to", {1}, false}}},
                 {"Mul", "", {"scale", "one"}, {"scales"}, {}},
                 {"Mul", "", {"number", "one"}, {"numbers"}, {}},
                 {"Concat", "", {"scales", "numbers"}, {"y"}, {{"axis", {0}, false}}}};
  if (!c.codes) return model;
  model.nodes.back() = {"Cast", "", {"codes"}, {"floats"}, {{"to", {1}, false}}};
  model.nodes.push_back({"Flatten", "", {"floats"}, {"behind"}, {{"axis", {0}, false}}});
  model.nodes.push_back(
      {"Concat", "", {"scales", "numbers", "behind"}, {"y"}, {{"axis", {1}, false}}});
  return model;
}

Model Operands(const Case& c) {
  RequireOneType(c);
  Model model;
  model.inputs.push_back({"a", c.x});
  AddQParams(model, "a", c.x_q, c.x.dtype(), false);
  model.inputs.push_back({"b", c.w});
  AddQParams(model, "b", c.w_q, c.w.dtype(), false);
  if (c.op != Op::kConcat) {
    AddOutput(model, c);
    return Single(std::move(model), c.op == Op::kAdd ? "QLinearAdd" : "QLinearMul", kContrib);
  }
  Model concat;
  AddOutput(concat, c);
  std::ranges::move(model.inputs, std::back_inserter(concat.inputs));
  return Single(std::move(concat), "QLinearConcat", kContrib, {{"axis", {1}, false}});
}

// One quantized input and an output of the same type.
Model Unary(const Case& c, std::string type, std::vector<Attribute> attributes = {}) {
  RequireOneType(c);
  Model model;
  model.inputs.push_back({"x", IsPool(c.op) ? ChannelsFirst(c.x) : c.x});
  AddQParams(model, "x", c.x_q, c.x.dtype(), false);
  AddOutput(model, c);
  return Single(std::move(model), std::move(type), kContrib, std::move(attributes));
}

Model Pool(const Case& c) {
  if (c.op == Op::kGlobalAvgPool) return Unary(c, "QLinearGlobalAveragePool");
  std::vector<Attribute> attributes = WindowOf(c);
  attributes.push_back({"ceil_mode", {c.window.ceil_mode ? 1 : 0}, false});
  if (c.op == Op::kAvgPool) {
    attributes.push_back({"count_include_pad", {c.window.count_include_pad ? 1 : 0}, false});
    return Unary(c, "QLinearAveragePool", std::move(attributes));
  }
  attributes.push_back({"dilations", {c.window.dilation_h, c.window.dilation_w}});
  Model model;
  model.inputs.push_back({"x", ChannelsFirst(c.x)});
  return Single(std::move(model), "MaxPool", "", std::move(attributes));
}

Model ModelOf(const Case& c) {
  Model model;
  model.inputs.push_back({"x", c.x});
  switch (c.op) {
    case Op::kLinear: return Linear(c);
    case Op::kConv2d:
    case Op::kDepthwise: return Conv(c);
    case Op::kDynamicLinear: return DynamicLinear(c);
    case Op::kChooseQParams: return ChooseQParams(c);
    case Op::kAdd:
    case Op::kMul:
    case Op::kConcat: return Operands(c);
    case Op::kMaxPool:
    case Op::kAvgPool:
    case Op::kGlobalAvgPool: return Pool(c);
    case Op::kQuantize:
      AddOutput(model, c, c.per_channel);
      return Single(std::move(model), "QuantizeLinear", "", {{"axis", {1}, false}});
    case Op::kDequantize:
      AddQParams(model, "x", c.x_q, c.x.dtype(), c.per_channel);
      return Single(std::move(model), "DequantizeLinear", "", {{"axis", {1}, false}});
    case Op::kSoftmax:
      return Unary(c, "QLinearSoftmax", {{"axis", {-1}, false}, {"opset", {13}, false}});
    case Op::kTable:
      if (c.function == Function::kSigmoid) return Unary(c, "QLinearSigmoid");
      Require(c.function == Function::kLeakyRelu,
              fmt::format("the function {} of codes", Name(c.function)));
      return Unary(c, "QLinearLeakyRelu", {{"alpha", {}, false, c.negative_slope}});
    default: throw CannotExpress(fmt::format("lacks {}", Name(c.op)));
  }
}

}  // namespace

NamedTexts WriteOnnx(const Evidence& evidence) {
  const Case& c = evidence.c;
  Require(!c.relu, "a fused relu");
  Require(!IsClamped(c), "a clamp");
  Require(c.requant == Requant::kExact, "requantization modes");
  Require(!evidence.expected.empty() && (!HasSums(c) || c.K != 0), "empty tensors");
  const Model model = ModelOf(c);
  const Value output{"y", HasWindow(c.op) ? ChannelsFirst(evidence.expected) : evidence.expected};
  NamedTexts files{{"model.onnx", ModelProto(model, output, Head(evidence, "", "y is exact"))},
                   {"test_data_set_0/output_0.pb", TensorProto(output)}};
  for (size_t i = 0; i < model.inputs.size(); ++i)
    files.emplace_back(fmt::format("test_data_set_0/input_{}.pb", i), TensorProto(model.inputs[i]));
  return files;
}

}  // namespace qualm::exporters
