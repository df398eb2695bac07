// SPDX-License-Identifier: Apache-2.0
// The layers of a TensorFlow Lite graph. Its operators are quantized by the types of their tensors,
// so one operator is one layer.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "models/plan_of.h"

namespace qualm::models {
namespace {

using graph::Node;
using tflite::Graph;
using tflite::Known;

struct OperatorRow {
  std::string_view op;
  Kind kind;
  size_t operands = 1;  // 0: any number
};
constexpr std::array kOperators{
    OperatorRow{"ADD", Kind::kAdd, 2},
    OperatorRow{"SUB", Kind::kSub, 2},
    OperatorRow{"MUL", Kind::kMul, 2},
    OperatorRow{"FULLY_CONNECTED", Kind::kFullyConnected, 2},
    OperatorRow{"BATCH_MATMUL", Kind::kMatMul, 2},
    OperatorRow{"CONV_2D", Kind::kConv, 2},
    OperatorRow{"DEPTHWISE_CONV_2D", Kind::kConv, 2},
    OperatorRow{"AVERAGE_POOL_2D", Kind::kAveragePool},
    OperatorRow{"MAX_POOL_2D", Kind::kMaxPool},
    OperatorRow{"MEAN", Kind::kGlobalAveragePool},
    OperatorRow{"CONCATENATION", Kind::kConcat, 0},
    OperatorRow{"RELU", Kind::kRelu},
    OperatorRow{"RELU6", Kind::kRescale},
    OperatorRow{"RELU_N1_TO_1", Kind::kRescale},
    OperatorRow{"RELU_0_TO_1", Kind::kRescale},
    OperatorRow{"LEAKY_RELU", Kind::kLeakyRelu},
    OperatorRow{"HARD_SWISH", Kind::kHardSwish},
    OperatorRow{"LOGISTIC", Kind::kSigmoid},
    OperatorRow{"TANH", Kind::kTanh},
    OperatorRow{"SOFTMAX", Kind::kSoftmax},
    OperatorRow{"QUANTIZE", Kind::kQuantize},
    OperatorRow{"DEQUANTIZE", Kind::kDequantize},
};

Clip Between(float low, float high) { return {.low = {low, ""}, .high = {high, ""}}; }

// ActivationFunctionType: NONE, RELU, RELU_N1_TO_1, RELU6, TANH, SIGN_BIT.
std::optional<Clip> ClipOf(const Node& node, std::string* refused) {
  if (node.op == "RELU6") return Between(0, 6);
  if (node.op == "RELU_N1_TO_1") return Between(-1, 1);
  if (node.op == "RELU_0_TO_1") return Between(0, 1);
  switch (const int64_t fused = node.Integer("fused_activation_function", 0)) {
    case 0: return std::nullopt;
    case 1: return Clip{.relu = true};
    case 2: return Between(-1, 1);
    case 3: return Between(0, 6);
    default: *refused = "its fused activation is number " + std::to_string(fused);
  }
  return std::nullopt;
}

bool IsCodeType(int64_t type) { return type == graph::kUint8 || type == graph::kInt8; }
// Types that only quantized operators have.
bool IsQuantized(int64_t type) {
  return IsCodeType(type) || type == graph::kInt16 || graph::WidenedBy(type);
}

class Reader {
 public:
  Reader(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  // nullopt: of reals or integers alone, or no operator of a case.
  std::optional<Layer> Read() {
    const auto* const row = std::ranges::find(kOperators, node_.op, &OperatorRow::op);
    if (row == kOperators.end() || !node_.domain.empty()) return std::nullopt;
    const size_t operands = row->operands == 0 ? node_.inputs.size() : row->operands;
    if (node_.inputs.size() < operands || operands == 0 || node_.Output(0).empty())
      return std::nullopt;
    layer_.kind = row->kind;
    layer_.node = &node_;
    layer_.inside = {&node_};
    bool quantized = IsQuantized(TypeOf(node_.Output(0)));
    for (size_t i = 0; i < operands; ++i) {
      if (node_.inputs[i].empty()) return std::nullopt;
      quantized = quantized || IsQuantized(TypeOf(node_.inputs[i]));
      layer_.operands.push_back(OperandOf(node_.inputs[i]));
    }
    if (!quantized) return std::nullopt;
    layer_.out = OperandOf(node_.Output(0));
    SetKind();
    for (const Operand& one : layer_.operands) RequireCodes(one, layer_.kind != Kind::kQuantize);
    RequireCodes(layer_.out, layer_.kind != Kind::kDequantize);
    SetOptions();
    return std::move(layer_);
  }

 private:
  int64_t TypeOf(const std::string& value) const {
    const Known* const known = graph_.Find(value);
    return known == nullptr ? int64_t{graph::kNoType} : known->type;
  }
  Operand OperandOf(const std::string& value) const {
    const Known* const known = graph_.Find(value);
    return {value, known->scale, known->zero_point, known->axis};
  }
  void Refuse(const std::string& why) {
    if (layer_.refused.empty()) layer_.refused = why;
  }
  void RequireCodes(const Operand& operand, bool codes) {
    int64_t type = TypeOf(operand.codes);
    // Weights of 4 bits are read as the codes that they are.
    if (graph::WidenedBy(type) && graph_.FindConstant(operand.codes) != nullptr)
      type = graph::TypeOf(*graph::WidenedBy(type));
    const bool wide = type == graph::kInt16 && TakesWideCodes(layer_.kind);
    if (codes ? !IsCodeType(type) && !wide : type != graph::kFloat) {
      Refuse(operand.codes + " is of " + graph::TypeName(type) + ", expected " +
             (!codes                        ? "float"
              : TakesWideCodes(layer_.kind) ? "int8, uint8 or int16"
                                            : "int8 or uint8"));
    }
    if (graph_.Find(operand.codes)->sparse) Refuse(operand.codes + " is sparse");
    if (codes && operand.scale.empty()) Refuse(operand.codes + " has no scale");
  }

  void SetKind() {
    const int64_t x = TypeOf(layer_.operands[0].codes);
    if (layer_.kind == Kind::kQuantize && IsQuantized(x)) layer_.kind = Kind::kRescale;
    if (layer_.kind == Kind::kDequantize) {
      layer_.result = Result::kReals;
      layer_.out = {layer_.out.codes, "", ""};
    }
  }

  void SetOptions() {
    layer_.channels_last = true;
    layer_.clip = ClipOf(node_, &layer_.refused);
    if (const std::string bias = node_.Input(2); !bias.empty() && HasBias()) {
      layer_.bias = OperandOf(bias);
      const bool wide = TypeOf(layer_.operands[0].codes) == graph::kInt16;
      if (TypeOf(bias) != graph::kInt32 && !(wide && TypeOf(bias) == graph::kInt64))
        Refuse(bias + " is of " + graph::TypeName(TypeOf(bias)) + ", expected int32" +
               (wide ? " or int64" : ""));
    }
    switch (layer_.kind) {
      case Kind::kConv:
        layer_.filter = node_.op == "DEPTHWISE_CONV_2D" ? Filter::kInTapsOut : Filter::kOutTapsIn;
        layer_.window.dilations = {node_.Integer("dilation_h_factor", 1),
                                   node_.Integer("dilation_w_factor", 1)};
        SetWindow();
        break;
      case Kind::kAveragePool:
      case Kind::kMaxPool:
        layer_.window.kernel = {node_.Integer("filter_height", 0),
                                node_.Integer("filter_width", 0)};
        SetWindow();
        break;
      case Kind::kGlobalAveragePool:
        layer_.axes = node_.Input(1);
        layer_.keeps_axes = node_.Integer("keep_dims", 0) != 0;
        break;
      case Kind::kFullyConnected:
        layer_.b_turned = true;
        layer_.keeps_axes = node_.Integer("keep_num_dims", 0) != 0;
        if (node_.Integer("weights_format", 0) != 0) Refuse("its weights are shuffled");
        break;
      case Kind::kMatMul:
        layer_.a_turned = node_.Integer("adj_x", 0) != 0;
        layer_.b_turned = node_.Integer("adj_y", 0) != 0;
        break;
      case Kind::kSoftmax:
        layer_.axis = -1;
        if (const graph::Attribute* const beta = node_.Find("beta");
            beta == nullptr || beta->number != 1.0f)
          Refuse("its beta is not 1");
        break;
      case Kind::kConcat: layer_.axis = node_.Integer("axis", 0); break;
      case Kind::kLeakyRelu:
        if (const graph::Attribute* const alpha = node_.Find("alpha"))
          layer_.slope = alpha->number.value_or(0);
        break;
      default: break;
    }
  }
  bool HasBias() const {
    return layer_.kind == Kind::kConv || layer_.kind == Kind::kFullyConnected;
  }
  // Padding: SAME, VALID.
  void SetWindow() {
    layer_.window.strides = {node_.Integer("stride_h", 0), node_.Integer("stride_w", 0)};
    const int64_t padding = node_.Integer("padding", 0);
    layer_.window.padding = padding == 0 ? Places::Padding::kSameUpper : Places::Padding::kNone;
    if (padding != 0 && padding != 1) Refuse("its padding is number " + std::to_string(padding));
  }

  const Graph& graph_;
  const Node& node_;
  Layer layer_;
};

}  // namespace

std::optional<Layer> TfliteLayerOfNode(const Graph& graph, const Node& node) {
  return Reader(graph, node).Read();
}

std::vector<Step> PlanOfTflite(const Graph& graph) {
  std::vector<Step> steps;
  for (const Node& node : graph.nodes()) {
    std::optional<Layer> layer = TfliteLayerOfNode(graph, node);
    const bool is_layer = layer.has_value();
    steps.push_back({&node, is_layer, is_layer ? std::move(*layer) : Layer()});
  }
  return steps;
}

}  // namespace qualm::models
