// SPDX-License-Identifier: Apache-2.0
// Reads the graph of a TensorFlow Lite model (tensorflow/lite/schema/schema.fbs, version 3): its
// first subgraph.
#ifndef QUALM_CORE_IO_TFLITE_GRAPH_H_
#define QUALM_CORE_IO_TFLITE_GRAPH_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/flatbuffer.h"
#include "core/io/model_graph.h"

namespace qualm::tflite {

// What the file says of a value. Its scales and zero points are constants of the graph, with the
// names that are here, "" for none; zero points are of the type of the value.
struct Known {
  int64_t index = 0;  // of the tensor
  int64_t type = graph::kNoType;
  std::string scale, zero_point;
  int64_t axis = 0;  // of a scale for each channel
  bool sparse = false;
};

// A node has the operator as its name in BuiltinOperator, and as attributes the fields of its
// options by their names in the schema. A tensor without a name, or with one that another has, is
// called by its index too. Variables are no inputs of a node.
class Graph final : public graph::Graph {
 public:
  // Nothing of `bytes` is copied, they must outlive the graph. Throws InputError
  // "NAME: FIELD: what, expected what".
  Graph(std::string_view bytes, std::string name);

  graph::Format format() const override { return graph::Format::kTflite; }
  std::string ZeroPointOf(std::string_view value) const override;
  const Known* Find(std::string_view value) const;

 private:
  void ReadModel();
  void ReadTensors(const std::vector<flatbuffer::Table>& tensors,
                   const std::vector<flatbuffer::Table>& buffers);
  void ReadQuantization(const flatbuffer::Table& of, const std::string& name, Known* known);
  std::string_view DataOf(const flatbuffer::Table& buffer) const;
  graph::Node NodeOf(const flatbuffer::Table& of, const std::vector<flatbuffer::Table>& codes);
  graph::Port PortOf(int32_t index) const;
  // The names of these tensors; -1 is "".
  std::vector<std::string> NamesOf(const std::vector<int32_t>& indices, const char* field) const;
  std::string_view Elements(const std::string& value, const graph::Stored& stored,
                            std::string* space) const override;

  std::vector<std::string> names_;            // of the tensors
  std::vector<std::vector<int64_t>> shapes_;  // -1 for an open size
  std::vector<bool> variable_;
  std::map<std::string, Known, std::less<>> known_;
  std::deque<std::string> own_;  // what constants of the graph view that the file has not
};

}  // namespace qualm::tflite

#endif  // QUALM_CORE_IO_TFLITE_GRAPH_H_
