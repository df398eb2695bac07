// SPDX-License-Identifier: Apache-2.0
// The graph of an ONNX model (onnx.proto): nodes with their attributes, initializers, inputs and
// outputs. Tensors are read when they are asked for.
#ifndef QUALM_CORE_IO_ONNX_GRAPH_H_
#define QUALM_CORE_IO_ONNX_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace qualm::onnx {

// TensorProto::data_type, of the types that have a name in messages.
enum Type : int64_t {
  kNoType = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
};
std::string TypeName(int64_t type);  // "int64", "type 17"
// The element type of qualm that holds it.
std::optional<DType> HeldBy(int64_t type);
int64_t TypeOf(DType dtype);

// A TensorProto that is not read yet. Views are into the bytes of the model.
struct Stored {
  std::vector<int64_t> dims;
  int64_t type = kNoType;
  // raw_data, packed float_data, packed int32_data, packed int64_data
  std::string_view raw, floats, integers, longs;
  bool external = false;
  std::map<std::string, std::string, std::less<>> outside;  // external_data: location, offset ...
  std::string_view message;                                 // the whole TensorProto
};

struct Attribute {
  std::optional<int64_t> integer;
  std::optional<float> number;
  std::string text;
  std::vector<int64_t> integers;
  std::vector<float> numbers;
  std::optional<Stored> tensor;
};

struct Node {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;  // "": an optional one that is not there
  std::map<std::string, Attribute, std::less<>> attributes;
  std::string_view message;  // the whole NodeProto

  // "" where the node has no such input or output.
  std::string Input(int at) const;
  std::string Output(int at) const;
  const Attribute* Find(std::string_view key) const;
  int64_t Integer(std::string_view key, int64_t otherwise) const;
  // Whether the operator is one of ONNX itself; kContributed: of ONNX Runtime.
  bool Is(std::string_view operation, std::string_view of = "") const;
};
inline constexpr std::string_view kContributed = "com.microsoft";

// An input or output of the graph.
struct Port {
  std::string name;
  int64_t type = kNoType;  // of a tensor; kNoType: of something else, or not told
  // -1: a size that is not told, or has a name. nullopt: not even the number of dimensions.
  std::optional<std::vector<int64_t>> shape;
};

class Graph {
 public:
  // Reads the messages; nothing of `bytes` is copied, they must outlive the graph. `name` begins
  // error lines. `folder`: that of the model's file, where its external data lies; "." is the
  // current one. Throws InputError "NAME: FIELD: what, expected what".
  Graph(std::string_view bytes, std::string name, std::optional<std::string> folder);

  const std::string& name() const { return name_; }
  std::string_view bytes() const { return bytes_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Port>& inputs() const { return inputs_; }  // initializers among them too
  const std::vector<Port>& outputs() const { return outputs_; }
  const std::vector<std::pair<std::string, int64_t>>& opsets() const { return opsets_; }
  const std::map<std::string, Stored, std::less<>>& initializers() const { return initializers_; }

  const Stored* FindInitializer(std::string_view name) const;
  // The node that makes a value; null for inputs and initializers.
  const Node* MakerOf(std::string_view value) const;

  // The elements. Throws InputError "NAME: VALUE: what, expected what" where the type is another
  // one than int8, uint8, int32 or float, or the bytes do not fit.
  Tensor Read(const std::string& value, const Stored& stored) const;
  // The elements of an int64, int32 or bool.
  std::vector<int64_t> ReadIntegers(const std::string& value, const Stored& stored) const;

  [[noreturn]] void Fail(const std::string& field, const std::string& what) const;

 private:
  void ReadGraph(std::string_view graph);
  std::string Outside(const std::string& value, const Stored& stored) const;

  std::string_view bytes_;
  std::string name_;
  std::optional<std::string> folder_;
  std::vector<Node> nodes_;
  std::vector<Port> inputs_, outputs_;
  std::vector<std::pair<std::string, int64_t>> opsets_;
  std::map<std::string, Stored, std::less<>> initializers_;
  std::map<std::string, size_t, std::less<>> made_by_;  // output -> node
};

// Calls read() and turns what the reader of protobuf throws into an InputError.
Graph ParseGraph(std::string_view bytes, const std::string& name,
                 std::optional<std::string> folder = std::nullopt);

// The model with these values among its outputs too, so that whoever runs it shows them: a second
// message of a graph is merged into the first.
std::string WithOutputs(std::string_view model, const std::vector<std::string>& values);
// A model of one node of the graph, whose inputs are all inputs of the model. `types` has one entry
// for each input that is there.
std::string ModelOfNode(const Graph& graph, const Node& node, const std::vector<int64_t>& types);

}  // namespace qualm::onnx

#endif  // QUALM_CORE_IO_ONNX_GRAPH_H_
