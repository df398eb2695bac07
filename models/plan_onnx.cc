// SPDX-License-Identifier: Apache-2.0
// The layers of an ONNX graph: quantized operators, and groups of nodes that runtimes fuse into one
// (DequantizeLinear, a float operator, QuantizeLinear).

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "models/plan_of.h"

namespace qualm::models {
namespace {

using graph::Graph;
using graph::kContributed;
using graph::Node;

// A quantized operator by itself: places of its inputs, -1 for none.
struct OperatorRow {
  std::string_view op;
  Kind kind;
  int x = 0, x_scale = -1, x_zero_point = -1;
  int w = -1, w_scale = -1, w_zero_point = -1;
  int out_scale = -1, out_zero_point = -1;
  int bias = -1;
  Result result = Result::kCodes;
};
constexpr std::array kOperators{
    OperatorRow{"QLinearConv", Kind::kConv, 0, 1, 2, 3, 4, 5, 6, 7, 8},
    OperatorRow{"QLinearMatMul", Kind::kMatMul, 0, 1, 2, 3, 4, 5, 6, 7},
    OperatorRow{"QGemm", Kind::kGemm, 0, 1, 2, 3, 4, 5, 7, 8, 6},
    OperatorRow{"QLinearAdd", Kind::kAdd, 0, 1, 2, 3, 4, 5, 6, 7},
    OperatorRow{"QLinearMul", Kind::kMul, 0, 1, 2, 3, 4, 5, 6, 7},
    OperatorRow{"QLinearSigmoid", Kind::kSigmoid, 0, 1, 2, -1, -1, -1, 3, 4},
    OperatorRow{"QLinearLeakyRelu", Kind::kLeakyRelu, 0, 1, 2, -1, -1, -1, 3, 4},
    OperatorRow{"QLinearSoftmax", Kind::kSoftmax, 0, 1, 2, -1, -1, -1, 3, 4},
    OperatorRow{"QLinearAveragePool", Kind::kAveragePool, 0, 1, 2, -1, -1, -1, 3, 4},
    OperatorRow{"QLinearGlobalAveragePool", Kind::kGlobalAveragePool, 0, 1, 2, -1, -1, -1, 3, 4},
    OperatorRow{"ConvInteger", Kind::kConv, 0, -1, 2, 1, -1, 3, -1, -1, -1, Result::kSums},
    OperatorRow{"MatMulInteger", Kind::kMatMul, 0, -1, 2, 1, -1, 3, -1, -1, -1, Result::kSums},
    OperatorRow{"MatMulIntegerToFloat", Kind::kMatMul, 0, 2, 4, 1, 3, 5, -1, -1, 6, Result::kReals},
    OperatorRow{"DynamicQuantizeMatMul", Kind::kDynamicMatMul, 0, -1, -1, 1, 2, 3, -1, -1, 4,
                Result::kReals},
    OperatorRow{"MatMulNBits", Kind::kMatMulNBits, 0, -1, -1, 1, 2, 3, -1, -1, 5, Result::kReals},
    OperatorRow{"QuantizeLinear", Kind::kQuantize, 0, -1, -1, -1, -1, -1, 1, 2},
    OperatorRow{"DynamicQuantizeLinear", Kind::kDynamicQuantize},
};

// A float operator between DequantizeLinear and QuantizeLinear, as one quantized operation.
struct FloatRow {
  std::string_view op;
  Kind kind;
  size_t operands;  // 0: any number
  bool has_bias = false;
  bool without_quantize = false;  // is a layer also where nothing quantizes its output
};
constexpr std::array kFloatOperators{
    FloatRow{"Conv", Kind::kConv, 2, true, true},
    FloatRow{"MatMul", Kind::kMatMul, 2, false, true},
    FloatRow{"Gemm", Kind::kGemm, 2, true, true},
    FloatRow{"Add", Kind::kAdd, 2},
    FloatRow{"Sub", Kind::kSub, 2},
    FloatRow{"Mul", Kind::kMul, 2},
    FloatRow{"AveragePool", Kind::kAveragePool, 1},
    FloatRow{"GlobalAveragePool", Kind::kGlobalAveragePool, 1},
    FloatRow{"ReduceMean", Kind::kMean, 1},
    FloatRow{"Relu", Kind::kRelu, 1},
    FloatRow{"LeakyRelu", Kind::kLeakyRelu, 1},
    FloatRow{"HardSwish", Kind::kHardSwish, 1},
    FloatRow{"Sigmoid", Kind::kSigmoid, 1},
    FloatRow{"Tanh", Kind::kTanh, 1},
    FloatRow{"Softmax", Kind::kSoftmax, 1},
    FloatRow{"Concat", Kind::kConcat, 0},
};

// What ONNX Runtime makes of MaxPool where it turns images.
constexpr std::string_view kNhwcMaxPool = "NhwcMaxPool";

bool IsQuantize(const Node* node) {
  return node != nullptr && node->op == "QuantizeLinear" &&
         (node->domain.empty() || node->domain == kContributed);
}

Layer DequantizeLayer(const Node& node) {
  Layer layer;
  layer.kind = Kind::kDequantize;
  layer.node = &node;
  layer.operands = {{node.Input(0), node.Input(1), node.Input(2), node.Integer("axis", 1)}};
  layer.out.codes = node.Output(0);
  layer.result = Result::kReals;
  layer.inside = {&node};
  return layer;
}

std::optional<Layer> OperatorLayer(const Node& node) {
  if (IsDequantize(&node)) return DequantizeLayer(node);
  if (!node.domain.empty() && node.domain != kContributed) return std::nullopt;
  Layer layer;
  layer.node = &node;
  layer.inside = {&node};
  layer.out.codes = node.Output(0);
  if (node.op == "QLinearConcat") {
    layer.kind = Kind::kConcat;
    layer.out.scale = node.Input(0);
    layer.out.zero_point = node.Input(1);
    for (int at = 2; at + 2 < static_cast<int>(node.inputs.size()); at += 3)
      layer.operands.push_back({node.Input(at), node.Input(at + 1), node.Input(at + 2)});
    return layer;
  }
  if (node.op == "MaxPool" || node.op == kNhwcMaxPool) {
    layer.kind = Kind::kMaxPool;
    layer.operands = {{node.Input(0), "", ""}};
    return layer;
  }
  const auto* const row = std::ranges::find(kOperators, node.op, &OperatorRow::op);
  if (row == kOperators.end()) return std::nullopt;
  layer.kind = row->kind;
  layer.result = row->result;
  layer.operands = {{node.Input(row->x), node.Input(row->x_scale), node.Input(row->x_zero_point)}};
  if (row->w >= 0) {
    layer.operands.push_back(
        {node.Input(row->w), node.Input(row->w_scale), node.Input(row->w_zero_point)});
  }
  layer.bias.codes = node.Input(row->bias);
  layer.out.scale = node.Input(row->out_scale);
  layer.out.zero_point = node.Input(row->out_zero_point);
  layer.out.axis = node.Integer("axis", 1);
  if (layer.kind == Kind::kQuantize && node.Integer("block_size", 0) != 0) return std::nullopt;
  if (layer.kind == Kind::kMatMulNBits) {
    layer.few_bits = {node.Integer("bits", 4), node.Integer("block_size", 0), node.Integer("K", 0),
                      node.Integer("N", 0), node.Integer("accuracy_level", 0)};
    const int64_t level = layer.few_bits.level;
    if (level > 1 && level != kRoundsToCodes)
      layer.refused = "its accuracy_level is " + std::to_string(level) +
                      ", which rounds x to 16 bits, expected 0, 1 or 4";
    if (!node.Input(4).empty()) layer.refused = "it has a g_idx";
  }
  if (layer.kind == Kind::kGemm && layer.out.scale.empty()) layer.result = Result::kReals;
  return layer;
}

// Whether the node moves the elements of its first input, and changes none.
bool IsMove(const Node& node) {
  static constexpr std::array<std::string_view, 9> kMoves{"Reshape",   "Flatten",   "Squeeze",
                                                          "Unsqueeze", "Transpose", "Slice",
                                                          "Gather",    "Expand",    "Identity"};
  return node.domain.empty() && std::ranges::find(kMoves, node.op) != kMoves.end();
}

Clip ClipOf(const Node& node) {
  if (node.op == "Relu") return {.relu = true};
  // Inputs; until opset 11 attributes.
  const auto bound = [&](int at, std::string_view key) {
    if (const graph::Attribute* const old = node.Find(key)) return Bound{old->number, ""};
    return Bound{std::nullopt, node.Input(at)};
  };
  return {.low = bound(1, "min"), .high = bound(2, "max")};
}

Places PlacesOf(const Node& node, std::string* refused) {
  const auto list = [&](std::string_view key) {
    const graph::Attribute* const given = node.Find(key);
    return given == nullptr ? std::vector<int64_t>() : given->integers;
  };
  Places places;
  places.kernel = list("kernel_shape");
  places.strides = list("strides");
  places.dilations = list("dilations");
  places.pads = list("pads");
  places.groups = node.Integer("group", 1);
  places.ceil_mode = node.Integer("ceil_mode", 0) != 0;
  places.count_include_pad = node.Integer("count_include_pad", 0) != 0;
  static constexpr std::array<std::pair<std::string_view, Places::Padding>, 5> kPaddings{
      {{"NOTSET", Places::Padding::kGiven},
       {"", Places::Padding::kGiven},
       {"VALID", Places::Padding::kNone},
       {"SAME_UPPER", Places::Padding::kSameUpper},
       {"SAME_LOWER", Places::Padding::kSameLower}}};
  const graph::Attribute* const automatic = node.Find("auto_pad");
  const std::string word = automatic == nullptr ? "" : automatic->text;
  const auto* const row =
      std::ranges::find(kPaddings, word, &std::pair<std::string_view, Places::Padding>::first);
  if (row == kPaddings.end()) {
    *refused = "its auto_pad is " + word;
  } else {
    places.padding = row->second;
  }
  return places;
}

// What the attributes of its node say of the layer.
Layer WithAttributes(Layer layer) {
  const Node& node = *layer.node;
  layer.window = PlacesOf(node, &layer.refused);
  layer.channels_last = node.Integer("channels_last", 0) != 0 || node.op == kNhwcMaxPool;
  layer.out_type = layer.inside.back()->Integer("output_dtype", graph::kUint8);
  if (node.Is("Gemm") || node.op == "QGemm") {
    layer.a_turned = node.Integer("transA", 0) != 0;
    layer.b_turned = node.Integer("transB", 0) != 0;
  }
  if (layer.kind == Kind::kGemm || layer.kind == Kind::kMatMul || layer.kind == Kind::kWeightOnly) {
    for (const char* const factor : {"alpha", "beta"}) {
      const graph::Attribute* const given = node.Find(factor);
      const bool matters = factor[0] == 'a' || layer.bias.is_there();
      if (given != nullptr && matters && given->number.value_or(1.0f) != 1.0f)
        layer.refused = "its " + std::string(factor) + " is not 1";
    }
  }
  if (layer.kind == Kind::kSoftmax) layer.axis = node.Integer("axis", -1);
  if (layer.kind == Kind::kConcat && node.Find("axis") != nullptr)
    layer.axis = node.Integer("axis", 0);
  if (layer.kind == Kind::kMean) {
    layer.axes = node.Input(1);
    if (const graph::Attribute* const axes = node.Find("axes")) layer.mean_axes = axes->integers;
    if (node.Integer("noop_with_empty_axes", 0) != 0) layer.refused = "without axes it is no mean";
    layer.keeps_axes = node.Integer("keepdims", 1) != 0;
  }
  if (const graph::Attribute* const alpha = node.Find("alpha"))
    layer.slope = alpha->number.value_or(layer.slope);
  if (layer.kind == Kind::kMaxPool && !node.Output(1).empty())
    layer.refused = "it gives the places of the largest codes too";
  return layer;
}

class Planner {
 public:
  explicit Planner(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes()) {
      for (const std::string& input : node.inputs) {
        if (!input.empty()) readers_[input].push_back(&node);
      }
    }
    for (const graph::Port& port : graph.outputs()) shown_.insert(port.name);
  }

  std::vector<Step> Plan() {
    std::map<const Node*, Layer> layers;  // by their last node
    for (const Node& node : graph_.nodes()) {
      std::optional<Layer> layer = DynamicLayer(node);
      if (!layer) layer = FloatLayer(node);
      if (!layer) layer = WeightOnlyLayer(node);
      if (layer) Take(std::move(*layer), &layers);
    }
    std::vector<Step> steps;
    for (const Node& node : graph_.nodes()) {
      const auto whole = layers.find(&node);
      if (whole != layers.end()) {
        steps.push_back({&node, true, WithAttributes(std::move(whole->second))});
      } else if (inside_.contains(&node)) {
        continue;
      } else if (IsDequantize(&node) || node.Is("DynamicQuantizeLinear")) {
        // Constants are read where they are needed.
        if (!IsRead(node) || graph_.FindConstant(node.Input(0)) != nullptr) continue;
        steps.push_back({&node, true, WithAttributes(*OperatorLayer(node))});
      } else if (std::optional<Layer> one = OperatorLayer(node)) {
        steps.push_back({&node, true, WithAttributes(std::move(*one))});
      } else {
        steps.push_back({&node, false, {}});
      }
    }
    return steps;
  }

 private:
  // The one reader of a value that nobody else sees; null if there are several or none.
  const Node* OnlyReader(const std::string& value) const {
    const auto at = readers_.find(value);
    if (value.empty() || at == readers_.end() || at->second.size() != 1) return nullptr;
    return shown_.contains(value) ? nullptr : at->second.front();
  }

  void Take(Layer layer, std::map<const Node*, Layer>* layers) {
    const bool taken =
        std::ranges::any_of(layer.inside, [&](const Node* node) { return inside_.contains(node); });
    if (taken) return;
    inside_.insert(layer.inside.begin(), layer.inside.end());
    (*layers)[layer.inside.back()] = std::move(layer);
  }

  // Whether a node outside of layers, or the caller of the model, reads what the node makes.
  bool IsRead(const Node& node) const {
    const auto is_read = [&](const std::string& value) {
      const auto at = readers_.find(value);
      return shown_.contains(value) ||
             (at != readers_.end() && std::ranges::any_of(at->second, [&](const Node* reader) {
                return !inside_.contains(reader);
              }));
    };
    return std::ranges::any_of(node.outputs, is_read);
  }

  // The codes behind a value of reals; not there if nothing dequantizes it.
  Operand CodesOf(const std::string& reals) const {
    const Node* const maker = graph_.MakerOf(reals);
    if (!IsDequantize(maker) || maker->Integer("block_size", 0) != 0) return {};
    return {maker->Input(0), maker->Input(1), maker->Input(2), maker->Integer("axis", 1)};
  }

  static Operand QuantizedOf(const Node& quantize) {
    return {quantize.Output(0), quantize.Input(1), quantize.Input(2), quantize.Integer("axis", 1)};
  }

  // [Relu or Clip,] QuantizeLinear behind a value that nobody else reads.
  void AddEnd(const std::string& reals, Layer* layer) const {
    const Node* next = OnlyReader(reals);
    const Node* clip = nullptr;
    if (next != nullptr && next->domain.empty() && (next->op == "Relu" || next->op == "Clip") &&
        next->Input(0) == reals) {
      clip = next;
      next = OnlyReader(next->Output(0));
    }
    const std::string end = clip == nullptr ? reals : clip->Output(0);
    if (!IsQuantize(next) || next->Input(0) != end || next->Integer("block_size", 0) != 0) return;
    if (clip != nullptr) {
      layer->clip = ClipOf(*clip);
      layer->inside.push_back(clip);
    }
    layer->inside.push_back(next);
    layer->out = QuantizedOf(*next);
  }

  std::optional<Layer> FloatLayer(const Node& node) const {
    if (IsDequantize(&node)) return RescaleLayer(node);
    if (!node.domain.empty()) return std::nullopt;
    if (node.op == "MaxPool") return MaxPoolLayer(node);
    if (IsMove(node)) return MoveLayer(node);
    const auto* const row = std::ranges::find(kFloatOperators, node.op, &FloatRow::op);
    if (row == kFloatOperators.end()) return std::nullopt;
    Layer layer;
    layer.kind = row->kind;
    layer.node = &node;
    layer.inside = {&node};
    const size_t operands = row->operands == 0 ? node.inputs.size() : row->operands;
    if (node.inputs.size() < operands || operands == 0) return std::nullopt;
    for (size_t i = 0; i < operands; ++i) {
      layer.operands.push_back(CodesOf(node.inputs[i]));
      if (!layer.operands.back().is_there()) return std::nullopt;
    }
    if (row->has_bias && node.inputs.size() > operands && !node.inputs[operands].empty()) {
      layer.bias = CodesOf(node.inputs[operands]);
      if (!layer.bias.is_there()) layer.bias.codes = node.inputs[operands];
    }
    AddEnd(node.Output(0), &layer);
    if (layer.out.is_there()) return layer;
    if (!row->without_quantize) return std::nullopt;
    layer.out.codes = node.Output(0);
    layer.result = Result::kReals;
    return layer;
  }

  // Reals by a matrix that is dequantized.
  std::optional<Layer> WeightOnlyLayer(const Node& node) const {
    if (!node.Is("MatMul") && !node.Is("Gemm")) return std::nullopt;
    const Node* const weights = graph_.MakerOf(node.Input(1));
    if (!IsDequantize(weights)) return std::nullopt;
    Layer layer;
    layer.kind = Kind::kWeightOnly;
    layer.node = &node;
    layer.inside = {&node};
    layer.operands = {{node.Input(0), "", ""},
                      {weights->Input(0), weights->Input(1), weights->Input(2),
                       weights->Integer("axis", 1), weights->Integer("block_size", 0)}};
    layer.bias.codes = node.op == "Gemm" ? node.Input(2) : "";
    layer.out.codes = node.Output(0);
    layer.result = Result::kReals;
    return layer;
  }

  // A layer from the codes behind `reals` to what quantizes `end`, with the nodes between.
  std::optional<Layer> FromTo(Kind kind, const Node& node, const std::string& reals,
                              std::vector<const Node*> between, const std::string& end) const {
    Layer layer;
    layer.kind = kind;
    layer.node = &node;
    layer.inside = std::move(between);
    layer.operands = {CodesOf(reals)};
    if (!layer.operands[0].is_there()) return std::nullopt;
    AddEnd(end, &layer);
    if (!layer.out.is_there()) return std::nullopt;
    return layer;
  }

  // Nodes that move elements: of codes as of reals.
  std::optional<Layer> MoveLayer(const Node& node) const {
    std::vector<const Node*> moves;
    for (const Node* next = &node; next != nullptr && IsMove(*next) &&
                                   (moves.empty() || next->Input(0) == moves.back()->Output(0));
         next = OnlyReader(next->Output(0))) {
      moves.push_back(next);
    }
    std::optional<Layer> layer =
        FromTo(Kind::kMoved, node, node.Input(0), moves, moves.back()->Output(0));
    if (layer) layer->moves = std::move(moves);
    return layer;
  }

  // The largest code is that of the largest real value.
  std::optional<Layer> MaxPoolLayer(const Node& node) const {
    std::optional<Layer> layer =
        FromTo(Kind::kMaxPool, node, node.Input(0), {&node}, node.Output(0));
    return layer && !layer->clip ? layer : std::nullopt;
  }

  // DequantizeLinear and QuantizeLinear with nothing between.
  std::optional<Layer> RescaleLayer(const Node& node) const {
    std::optional<Layer> layer =
        FromTo(Kind::kRescale, node, node.Output(0), {&node}, node.Output(0));
    if (layer && layer->clip && layer->clip->relu) layer->node = layer->inside[1];
    return layer;
  }

  // What quantize_dynamic makes of MatMul and Gemm: DynamicQuantizeLinear, MatMulInteger, Cast, Mul
  // with the product of the scales, and Add of a constant.
  std::optional<Layer> DynamicLayer(const Node& node) const {
    if (!node.Is("MatMulInteger")) return std::nullopt;
    const Node* const quantize = graph_.MakerOf(node.Input(0));
    if (quantize == nullptr || !quantize->Is("DynamicQuantizeLinear")) return std::nullopt;
    if (node.Input(0) != quantize->Output(0) || node.Input(2) != quantize->Output(2))
      return std::nullopt;
    const Node* const cast = OnlyReader(node.Output(0));
    if (cast == nullptr || !cast->Is("Cast") || cast->Integer("to", 0) != graph::kFloat)
      return std::nullopt;
    const Node* const scaled = OnlyReader(cast->Output(0));
    if (scaled == nullptr || !scaled->Is("Mul")) return std::nullopt;
    const bool first = scaled->Input(0) == cast->Output(0);
    const Node* const scales = graph_.MakerOf(scaled->Input(first ? 1 : 0));
    if (scales == nullptr || !scales->Is("Mul")) return std::nullopt;
    const bool x_first = scales->Input(0) == quantize->Output(1);
    if (!x_first && scales->Input(1) != quantize->Output(1)) return std::nullopt;
    Layer layer;
    layer.kind = Kind::kDynamicMatMul;
    layer.node = &node;
    layer.operands = {{quantize->Input(0), "", ""},
                      {node.Input(1), scales->Input(x_first ? 1 : 0), node.Input(3)}};
    layer.result = Result::kReals;
    layer.out.codes = scaled->Output(0);
    if (OnlyReader(scales->Output(0)) == scaled) layer.inside.push_back(scales);
    layer.inside.push_back(&node);
    layer.inside.push_back(cast);
    layer.inside.push_back(scaled);
    const Node* const sum = OnlyReader(scaled->Output(0));
    if (sum != nullptr && sum->Is("Add")) {
      const std::string bias = sum->Input(sum->Input(0) == scaled->Output(0) ? 1 : 0);
      const graph::Stored* const stored = graph_.FindConstant(bias);
      if (stored != nullptr && stored->type == graph::kFloat && stored->dims.size() == 1) {
        layer.bias.codes = bias;
        layer.out.codes = sum->Output(0);
        layer.inside.push_back(sum);
      }
    }
    return layer;
  }

  const Graph& graph_;
  std::map<std::string, std::vector<const Node*>> readers_;
  std::set<std::string> shown_;  // outputs of the graph
  std::set<const Node*> inside_;
};

}  // namespace

std::optional<Layer> OnnxLayerOfNode(const Node& node) {
  std::optional<Layer> layer = OperatorLayer(node);
  if (layer) layer = WithAttributes(std::move(*layer));
  return layer;
}

bool IsDequantize(const Node* node) {
  return node != nullptr && node->op == "DequantizeLinear" &&
         (node->domain.empty() || node->domain == kContributed);
}

std::vector<Step> PlanOfOnnx(const Graph& graph) { return Planner(graph).Plan(); }

}  // namespace qualm::models
