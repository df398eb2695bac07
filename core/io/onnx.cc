// SPDX-License-Identifier: Apache-2.0
// The weights of an ONNX model.
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "core/io/arrays.h"
#include "core/io/json_text.h"
#include "core/io/layers.h"
#include "core/io/onnx_graph.h"
#include "core/status.h"

namespace qualm {
namespace {

using graph::Node;
using graph::Stored;

// Where an operator has its operands: places among its inputs, -1 for none.
struct OperatorRow {
  std::string_view op;
  bool convolution;
  int x_zero_point, w, w_scale, w_zero_point;
};
constexpr std::array<OperatorRow, 5> kOperators{{{"QLinearConv", true, 2, 3, 4, 5},
                                                 {"ConvInteger", true, 2, 1, -1, 3},
                                                 {"QLinearMatMul", false, 2, 3, 4, 5},
                                                 {"QGemm", false, 2, 3, 4, 5},
                                                 {"MatMulInteger", false, 2, 1, -1, 3}}};

class Weights {
 public:
  explicit Weights(const onnx::Graph& graph) : graph_(graph) {}

  std::vector<NamedLayer> Layers() const {
    std::vector<NamedLayer> layers;
    std::set<std::string> taken;
    for (const Node& node : graph_.nodes()) {
      const auto* const row = std::ranges::find(kOperators, node.op, &OperatorRow::op);
      if (row != kOperators.end()) {
        Add(node, node.Input(row->w), node.Input(row->w_scale), node.Input(row->w_zero_point),
            row->convolution, ZeroPoint(node.Input(row->x_zero_point)), &taken, &layers);
      } else if (node.op == "Conv" || node.op == "MatMul" || node.op == "Gemm") {
        AddDequantized(node, &taken, &layers);
      }
    }
    return layers;
  }

 private:
  const Stored* Find(const std::string& name) const { return graph_.FindConstant(name); }

  // Scales and zero points of the weights of n channels; the default if not an initializer.
  void SetQParams(const std::string& scale, const std::string& zero_point, Case* c) const {
    const auto n = static_cast<size_t>(c->N);
    const Stored* scales = Find(scale);
    const Stored* zeros = Find(zero_point);
    if (scales != nullptr) {
      const Tensor values = graph_.Read(scale, *scales);
      if (values.dtype() != DType::kF32)
        graph_.Fail(scale, "is no float, expected the scale of weights");
      c->w_q.scale.assign(values.as<float>().begin(), values.as<float>().end());
    }
    if (zeros != nullptr) {
      const Tensor values = graph_.Read(zero_point, *zeros);
      if (values.dtype() == DType::kF32)
        graph_.Fail(zero_point, "is a float, expected a zero point");
      c->w_q.zero_point.clear();
      for (int64_t i = 0; i < values.size(); ++i) c->w_q.zero_point.push_back(values.IntAt(i));
    }
    c->per_channel = c->w_q.scale.size() != 1 || c->w_q.zero_point.size() != 1;
    if (c->per_channel && c->w_q.scale.size() == 1) c->w_q.scale.resize(n, c->w_q.scale[0]);
    if (c->per_channel && c->w_q.zero_point.size() == 1) {
      c->w_q.zero_point.resize(n, c->w_q.zero_point[0]);
    }
  }

  std::optional<std::pair<DType, int32_t>> ZeroPoint(const std::string& name) const {
    const Stored* initializer = Find(name);
    if (initializer == nullptr) return std::nullopt;
    const Tensor value = graph_.Read(name, *initializer);
    if (!IsByteCode(value.dtype()) || value.size() != 1) return std::nullopt;
    return std::pair(value.dtype(), value.IntAt(0));
  }

  void Add(const Node& node, const std::string& weights, const std::string& scale,
           const std::string& zero_point, bool convolution,
           std::optional<std::pair<DType, int32_t>> x, std::set<std::string>* taken,
           std::vector<NamedLayer>* layers) const {
    const Stored* initializer = Find(weights);
    if (initializer == nullptr) return;  // computed in the graph
    // Shared weights are one layer.
    if (!taken->insert(weights).second) return;
    Tensor w = graph_.Read(weights, *initializer);
    if (!IsByteCode(w.dtype())) return;
    const std::string where = OneLine(graph_.name()) + ": " + OneLine(weights);
    const size_t rank = w.shape().size();
    if (convolution ? rank != 4 : rank != 2) return;  // one or three dimensions, or a batch
    LayerReading reading;
    if (convolution) {
      reading.groups = node.Integer("group", 1);
      if (reading.groups < 1 || reading.groups > (1 << 20)) {
        graph_.Fail(weights, "belongs to a convolution of " + std::to_string(reading.groups) +
                                 " groups, expected at least 1");
      }
    } else if (node.Integer("transB", 0) == 0) {
      w = Transposed(w);
    }
    Case c = LayerOf(w, reading, where);
    SetQParams(scale, zero_point, &c);
    if (x) {
      c.x = Tensor(x->first, c.x.shape());
      c.x_q.zero_point = {x->second};
    }
    if (const std::string error = Validate(c); !error.empty()) graph_.Fail(weights, error);
    layers->push_back({weights, std::move(c)});
  }

  static Tensor Transposed(const Tensor& w) {
    const int64_t rows = w.shape()[0], columns = w.shape()[1];
    Tensor result(w.dtype(), {columns, rows});
    for (int64_t column = 0; column < columns; ++column) {
      for (int64_t row = 0; row < rows; ++row) {
        result.bytes()[static_cast<size_t>(column * rows + row)] =
            w.bytes()[static_cast<size_t>(row * columns + column)];
      }
    }
    return result;
  }

  const Node* MakerOf(const std::string& output, std::string_view op) const {
    const Node* const maker = graph_.MakerOf(output);
    return maker == nullptr || maker->op != op ? nullptr : maker;
  }

  void AddDequantized(const Node& node, std::set<std::string>* taken,
                      std::vector<NamedLayer>* layers) const {
    const Node* w = MakerOf(node.Input(1), "DequantizeLinear");
    if (w == nullptr) return;
    const Node* x = MakerOf(node.Input(0), "DequantizeLinear");
    Add(node, w->Input(0), w->Input(1), w->Input(2), node.op == "Conv",
        x == nullptr ? std::nullopt : ZeroPoint(x->Input(2)), taken, layers);
  }

  const onnx::Graph& graph_;
};

std::vector<NamedLayer> LayersOf(std::string_view bytes, std::string_view name,
                                 std::optional<std::string> folder) {
  const onnx::Graph graph(bytes, std::string(name), std::move(folder));
  return Weights(graph).Layers();
}

}  // namespace

std::vector<NamedLayer> ParseOnnx(std::string_view bytes, std::string_view name) {
  return LayersOf(bytes, name, std::nullopt);
}

std::vector<NamedLayer> ReadOnnxFile(const std::string& path) {
  const std::string bytes = ReadBinaryFile(path, kMaxWeightFile);
  return LayersOf(bytes, path, std::filesystem::path(path).parent_path().string());
}

}  // namespace qualm
