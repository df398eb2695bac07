// SPDX-License-Identifier: Apache-2.0
// Fields are told by their numbers in tensorflow/lite/schema/schema.fbs, in the order in which it
// declares them.
#include "core/io/tflite_graph.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "core/io/json_text.h"
#include "core/status.h"

namespace qualm::tflite {
namespace {

using flatbuffer::Table;

// BuiltinOperator: the place of a word is its number.
constexpr std::string_view kOperators =
    "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE "
    "EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D "
    "LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU "
    "RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH "
    "CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD "
    "UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB "
    "DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP "
    "TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX "
    "MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV "
    "SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN "
    "FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK "
    "REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE "
    "RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL "
    "REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE "
    "MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 "
    "SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES "
    "CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE "
    "HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE "
    "READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE "
    "RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD "
    "UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST "
    "BITWISE_XOR RIGHT_SHIFT ";
std::string OperatorName(int32_t number) {
  size_t at = 0;
  for (int32_t i = 0; i < number && at != kOperators.size(); ++i) at = kOperators.find(' ', at) + 1;
  const std::string_view rest = kOperators.substr(number < 0 ? kOperators.size() : at);
  return rest.empty() ? "number " + std::to_string(number)
                      : std::string(rest.substr(0, rest.find(' ')));
}
constexpr int32_t kCustom = 32;

// TensorType: the place is its number.
constexpr std::array<int64_t, 21> kTypes{graph::kFloat,     graph::kFloat16, graph::kInt32,
                                         graph::kUint8,     graph::kInt64,   8 /* string */,
                                         graph::kBool,      graph::kInt16,   14 /* complex64 */,
                                         graph::kInt8,      11 /* double */, 15 /* complex128 */,
                                         13 /* uint64 */,   graph::kNoType,  graph::kNoType,
                                         12 /* uint32 */,   4 /* uint16 */,  graph::kInt4,
                                         16 /* bfloat16 */, graph::kNoType,  21 /* uint4 */};

graph::Stored ConstantOf(std::vector<int64_t> dims, int64_t type, std::string_view raw) {
  graph::Stored stored;
  stored.dims = std::move(dims);
  stored.type = type;
  stored.raw = raw;
  return stored;
}

int64_t TypeOf(int8_t type) {
  const auto place = static_cast<size_t>(type);
  return type < 0 || place >= kTypes.size() ? int64_t{graph::kNoType} : kTypes[place];
}

// A field of an options table that says something of a layer or of a node that moves elements.
struct Field {
  enum class As : uint8_t { kByte, kInt, kReal, kList };
  int number;
  std::string_view name;
  As as = As::kInt;
  int32_t otherwise = 0;
};
constexpr Field::As kByte = Field::As::kByte;
constexpr std::array kConv{Field{0, "padding", kByte},
                           Field{1, "stride_w"},
                           Field{2, "stride_h"},
                           Field{3, "fused_activation_function", kByte},
                           Field{4, "dilation_w_factor", Field::As::kInt, 1},
                           Field{5, "dilation_h_factor", Field::As::kInt, 1}};
constexpr std::array kDepthwise{Field{0, "padding", kByte},
                                Field{1, "stride_w"},
                                Field{2, "stride_h"},
                                Field{4, "fused_activation_function", kByte},
                                Field{5, "dilation_w_factor", Field::As::kInt, 1},
                                Field{6, "dilation_h_factor", Field::As::kInt, 1}};
constexpr std::array kPool{
    Field{0, "padding", kByte}, Field{1, "stride_w"},
    Field{2, "stride_h"},       Field{3, "filter_width"},
    Field{4, "filter_height"},  Field{5, "fused_activation_function", kByte}};
constexpr std::array kFullyConnected{Field{0, "fused_activation_function", kByte},
                                     Field{1, "weights_format", kByte},
                                     Field{2, "keep_num_dims", kByte}};
constexpr std::array kFused{Field{0, "fused_activation_function", kByte}};
constexpr std::array kConcatenation{Field{0, "axis"}, Field{1, "fused_activation_function", kByte}};
constexpr std::array kSoftmax{Field{0, "beta", Field::As::kReal}};
constexpr std::array kReshape{Field{0, "new_shape", Field::As::kList}};
constexpr std::array kGather{Field{0, "axis"}, Field{1, "batch_dims"}};
constexpr std::array kReducer{Field{0, "keep_dims", kByte}};
constexpr std::array kSqueeze{Field{0, "squeeze_dims", Field::As::kList}};
constexpr std::array kStridedSlice{Field{0, "begin_mask"},       Field{1, "end_mask"},
                                   Field{2, "ellipsis_mask"},    Field{3, "new_axis_mask"},
                                   Field{4, "shrink_axis_mask"}, Field{5, "offset", kByte}};
constexpr std::array kSecondAxis{Field{1, "axis"}};
constexpr std::array kLeakyRelu{Field{0, "alpha", Field::As::kReal}};
constexpr std::array kBatchMatMul{Field{0, "adj_x", kByte}, Field{1, "adj_y", kByte}};

// By the number in the union BuiltinOptions.
struct OptionsRow {
  uint8_t type;
  std::span<const Field> fields;
};
constexpr std::array kOptions{
    OptionsRow{1, kConv},           OptionsRow{2, kDepthwise},     OptionsRow{5, kPool},
    OptionsRow{8, kFullyConnected}, OptionsRow{9, kSoftmax},       OptionsRow{10, kConcatenation},
    OptionsRow{11, kFused},         OptionsRow{17, kReshape},      OptionsRow{21, kFused},
    OptionsRow{23, kGather},        OptionsRow{27, kReducer},      OptionsRow{28, kFused},
    OptionsRow{30, kSqueeze},       OptionsRow{32, kStridedSlice}, OptionsRow{59, kSecondAxis},
    OptionsRow{64, kSecondAxis},    OptionsRow{75, kLeakyRelu},    OptionsRow{101, kBatchMatMul}};

graph::Attribute AttributeOf(const Table& options, const Field& field) {
  graph::Attribute attribute;
  switch (field.as) {
    case Field::As::kByte: attribute.integer = options.Number<int8_t>(field.number, 0); break;
    case Field::As::kInt:
      attribute.integer = options.Number<int32_t>(field.number, field.otherwise);
      break;
    case Field::As::kReal: attribute.number = options.Number<float>(field.number, 0); break;
    case Field::As::kList: {
      const std::vector<int32_t> list = options.Numbers<int32_t>(field.number);
      attribute.integers.assign(list.begin(), list.end());
      break;
    }
  }
  return attribute;
}

}  // namespace

Graph::Graph(std::string_view bytes, std::string name) : graph::Graph(bytes, std::move(name)) {
  try {
    ReadModel();
  } catch (const flatbuffer::Broken& broken) {
    Fail("file", "is no TensorFlow Lite model (" + broken.what + "), expected a flatbuffer");
  }
  FindMakers();
}

// Model: version 0, operator_codes 1, subgraphs 2, buffers 4; SubGraph: tensors 0, inputs 1,
// outputs 2, operators 3.
void Graph::ReadModel() {
  if (bytes_.size() < 8 || bytes_.substr(4, 4) != "TFL3")
    throw flatbuffer::Broken{"no TFL3 at byte 4"};
  flatbuffer::Buffer buffer(bytes_);
  const Table model = Table::Root(&buffer);
  if (const auto version = model.Number<uint32_t>(0, 0); version != 3)
    Fail("version", "is " + std::to_string(version) + ", expected 3");
  const std::vector<Table> subgraphs = model.Tables(2);
  if (subgraphs.empty()) Fail("subgraphs", "has none, expected one");
  ReadTensors(subgraphs[0].Tables(0), model.Tables(4));
  for (const int32_t index : subgraphs[0].Numbers<int32_t>(1)) inputs_.push_back(PortOf(index));
  for (const int32_t index : subgraphs[0].Numbers<int32_t>(2)) outputs_.push_back(PortOf(index));
  const std::vector<Table> codes = model.Tables(1);
  for (const Table& one : subgraphs[0].Tables(3)) nodes_.push_back(NodeOf(one, codes));
}

// Tensor: shape 0, type 1, buffer 2, name 3, quantization 4, is_variable 5, sparsity 6,
// shape_signature 7.
void Graph::ReadTensors(const std::vector<Table>& tensors, const std::vector<Table>& buffers) {
  std::set<std::string> taken;
  for (const Table& tensor : tensors) {
    const std::string place = std::to_string(names_.size());
    std::string name = tensor.Text(3);
    if (name.empty()) name = "tensor " + place;
    while (!taken.insert(name).second) name += " " + place;
    names_.push_back(std::move(name));
  }
  // A constant of the graph is called by its tensor.
  const auto own = [&](std::string name) {
    while (!taken.insert(name).second) name += "'";
    return name;
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Table& tensor = tensors[i];
    const std::string& name = names_[i];
    Known known;
    known.index = static_cast<int64_t>(i);
    known.type = TypeOf(tensor.Number<int8_t>(1, 0));
    known.sparse = tensor.Has(6);
    known.scale = own(name + " scale");
    known.zero_point = own(name + " zero point");
    const std::vector<int32_t> shape = tensor.Numbers<int32_t>(0);
    const std::vector<int32_t> open = tensor.Numbers<int32_t>(7);
    shapes_.emplace_back(shape.begin(), shape.end());
    for (size_t axis = 0; axis < shape.size() && open.size() == shape.size(); ++axis) {
      if (open[axis] < 0) shapes_[i][axis] = -1;
    }
    variable_.push_back(tensor.Number<uint8_t>(5, 0) != 0);
    ReadQuantization(tensor, name, &known);
    const auto buffer = tensor.Number<uint32_t>(2, 0);
    if (buffer >= buffers.size() && buffer != 0)
      Fail(name, "has buffer " + std::to_string(buffer) + " of " + std::to_string(buffers.size()) +
                     ", expected one of them");
    const std::string_view data = buffer == 0 ? std::string_view() : DataOf(buffers[buffer]);
    if (!data.empty() && !variable_[i])
      constants_[name] = ConstantOf({shape.begin(), shape.end()}, known.type, data);
    known_[name] = std::move(known);
  }
}

// QuantizationParameters: scale 2, zero_point 3, quantized_dimension 6.
void Graph::ReadQuantization(const Table& of, const std::string& name, Known* known) {
  const std::optional<Table> q = of.Child(4);
  const std::string_view scales = q ? q->Raw(2, sizeof(float)) : std::string_view();
  if (scales.empty()) {
    known->scale.clear();
    known->zero_point.clear();
    return;
  }
  known->axis = q->Number<int32_t>(6, 0);
  const auto count = static_cast<int64_t>(scales.size() / sizeof(float));
  constants_[known->scale] = ConstantOf({count}, graph::kFloat, scales);
  std::vector<int64_t> zeros = q->Numbers<int64_t>(3);
  if (zeros.empty()) zeros.assign(static_cast<size_t>(count), 0);
  const std::optional<DType> held = graph::HeldBy(known->type),
                             wide = graph::WidenedBy(known->type);
  const DType dtype =
      held && IsCode(*held) && !IsSmallCode(*held) ? *held : wide.value_or(DType::kS32);
  std::string text;
  for (const int64_t zero : zeros) {
    const CodeRange range = RangeOf(dtype);
    if (zero < range.min || zero > range.max) {
      Fail(name, "zero_point: is " + std::to_string(zero) + ", expected " +
                     std::to_string(range.min) + " to " + std::to_string(range.max));
    }
    text.append(reinterpret_cast<const char*>(&zero), SizeOf(dtype));
  }
  own_.push_back(std::move(text));
  constants_[known->zero_point] =
      ConstantOf({std::ssize(zeros)}, graph::TypeOf(dtype), own_.back());
}

// Buffer: data 0, else offset 1 and size 2 in the file, behind the flatbuffer.
std::string_view Graph::DataOf(const Table& buffer) const {
  const auto offset = buffer.Number<uint64_t>(1, 0), size = buffer.Number<uint64_t>(2, 0);
  if (offset <= 1) return buffer.Raw(0, 1);
  if (offset > bytes_.size() || bytes_.size() - offset < size)
    throw flatbuffer::Broken{"a buffer lies outside"};
  return bytes_.substr(offset, size);
}

std::vector<std::string> Graph::NamesOf(const std::vector<int32_t>& indices,
                                        const char* field) const {
  std::vector<std::string> names;
  for (const int32_t index : indices) {
    const auto place = static_cast<size_t>(index);
    if (index < -1 || (index >= 0 && place >= names_.size())) {
      Fail(field, "names tensor " + std::to_string(index) + " of " + std::to_string(names_.size()) +
                      ", expected one of them");
    }
    names.push_back(index < 0 || variable_[place] ? std::string() : names_[place]);
  }
  return names;
}

graph::Port Graph::PortOf(int32_t index) const {
  const std::string name = NamesOf({index}, "subgraph")[0];
  if (name.empty()) Fail("subgraph", "has no tensor as input or output, expected one");
  return {name, known_.at(name).type, shapes_[static_cast<size_t>(index)]};
}

// Operator: opcode_index 0, inputs 1, outputs 2, builtin_options_type 3, builtin_options 4;
// OperatorCode: deprecated_builtin_code 0, custom_code 1, builtin_code 3.
graph::Node Graph::NodeOf(const Table& of, const std::vector<Table>& codes) {
  graph::Node node;
  const auto place = of.Number<uint32_t>(0, 0);
  if (place >= codes.size())
    Fail("operator", "has code " + std::to_string(place) + " of " + std::to_string(codes.size()) +
                         ", expected one of them");
  const Table& code = codes[place];
  const int32_t number = std::max<int32_t>(code.Number<int8_t>(0, 0), code.Number<int32_t>(3, 0));
  if (number == kCustom) {
    node.domain = "custom";
    node.op = code.Text(1);
  } else {
    node.op = OperatorName(number);
  }
  node.inputs = NamesOf(of.Numbers<int32_t>(1), "operator inputs");
  node.outputs = NamesOf(of.Numbers<int32_t>(2), "operator outputs");
  for (const std::string& name : node.inputs) {
    // An empty list is a constant without data.
    if (name.empty() || constants_.contains(name)) continue;
    const Known& known = known_.at(name);
    const std::vector<int64_t>& shape = shapes_[static_cast<size_t>(known.index)];
    if (shape == std::vector<int64_t>{0} && known.type == graph::kInt32)
      constants_[name] = ConstantOf(shape, known.type, "");
  }
  const std::optional<Table> options = of.Child(4);
  const auto* const row = std::ranges::find(kOptions, of.Number<uint8_t>(3, 0), &OptionsRow::type);
  if (!options || row == kOptions.end()) return node;
  for (const Field& field : row->fields)
    node.attributes[std::string(field.name)] = AttributeOf(*options, field);
  return node;
}

std::string Graph::ZeroPointOf(std::string_view value) const {
  const Known* const known = Find(value);
  return known == nullptr ? "" : known->zero_point;
}

const Known* Graph::Find(std::string_view value) const {
  const auto at = known_.find(value);
  return at == known_.end() ? nullptr : &at->second;
}

std::string_view Graph::Elements(const std::string& /*value*/, const graph::Stored& stored,
                                 std::string* /*space*/) const {
  return stored.raw;
}

}  // namespace qualm::tflite
