// SPDX-License-Identifier: Apache-2.0
// Reads the graph of an ONNX model (onnx.proto). Tensors are read when they are asked for.
#ifndef QUALM_CORE_IO_ONNX_GRAPH_H_
#define QUALM_CORE_IO_ONNX_GRAPH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/model_graph.h"

namespace qualm::onnx {

class Graph final : public graph::Graph {
 public:
  // Nothing of `bytes` is copied, they must outlive the graph. `name` begins error lines. `folder`:
  // that of the model's file, where its external data lies; "." is the current one. Throws
  // InputError "NAME: FIELD: what, expected what".
  Graph(std::string_view bytes, std::string name, std::optional<std::string> folder = std::nullopt);

  graph::Format format() const override { return graph::Format::kOnnx; }
  const std::optional<std::string>& folder() const { return folder_; }
  const std::vector<std::pair<std::string, int64_t>>& opsets() const { return opsets_; }

 private:
  void ReadModel();
  void ReadGraph(std::string_view graph);
  std::string_view Elements(const std::string& value, const graph::Stored& stored,
                            std::string* space) const override;
  std::string Outside(const std::string& value, const graph::Stored& stored) const;

  std::optional<std::string> folder_;
  std::vector<std::pair<std::string, int64_t>> opsets_;
};

// The array of a TensorProto, as ONNX's test data are. `name` begins error lines: throws InputError
// "NAME: FIELD: what, expected what".
graph::Value ReadTensorProto(std::string_view bytes, const std::string& name);

// The model with these values among its outputs too, so that whoever runs it shows them: a second
// message of a graph is merged into the first.
std::string WithOutputs(std::string_view model, const std::vector<std::string>& values);
// A model of one node of the graph, whose inputs are all inputs of the model. `types` has one entry
// for each input that is there.
std::string ModelOfNode(const Graph& graph, const graph::Node& node,
                        const std::vector<int64_t>& types);

}  // namespace qualm::onnx

#endif  // QUALM_CORE_IO_ONNX_GRAPH_H_
