// SPDX-License-Identifier: Apache-2.0
// The graph of a model, whatever its file format: values with names, nodes with their attributes,
// constants, inputs and outputs. onnx_graph.h and tflite_graph.h fill it.
#ifndef QUALM_CORE_IO_MODEL_GRAPH_H_
#define QUALM_CORE_IO_MODEL_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace qualm::graph {

enum class Format : uint8_t { kOnnx, kTflite };

// Element types of values, by the numbers of ONNX's TensorProto::data_type, of those that code
// names.
enum Type : int64_t {
  kNoType = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kUint4 = 21,
  kInt4 = 22,
};
std::string TypeName(int64_t type);  // "int64", "type 17"
// The element type of qualm that holds it.
std::optional<DType> HeldBy(int64_t type);
int64_t TypeOf(DType dtype);
// The type that has the codes of constants of 4 bits, one in each byte: only weights are stored so,
// and runtimes compute with the numbers.
std::optional<DType> WidenedBy(int64_t type);
// Bytes of an element of the types that a Value holds; 0 for others.
size_t SizeOfType(int64_t type);

// What a name of a graph stands for. `tensor` has the elements of types that qualm has, `integers`
// those of int64, bool and int16, which only say where other elements go, or pass through.
struct Value {
  int64_t type = kNoType;
  std::vector<int64_t> shape;
  Tensor tensor;
  std::vector<int64_t> integers;

  static Value Of(Tensor tensor);
  static Value Of(int64_t type, std::vector<int64_t> shape, std::vector<int64_t> integers);
  bool holds_tensor() const;
  int64_t size() const;
  friend bool operator==(const Value&, const Value&) = default;
};
using Values = std::map<std::string, Value, std::less<>>;

// A constant that is not read yet. Views are into the bytes of the model, or into its graph.
struct Stored {
  std::vector<int64_t> dims;
  int64_t type = kNoType;
  std::string_view raw;  // the elements, little-endian
  // Of ONNX alone: packed float_data, packed int32_data, packed int64_data, data in another file
  std::string_view floats, integers, longs;
  bool external = false;
  std::map<std::string, std::string, std::less<>> outside;  // external_data: location, offset ...
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
  std::string_view message;  // of ONNX: the whole NodeProto

  // "" where the node has no such input or output.
  std::string Input(int at) const;
  std::string Output(int at) const;
  const Attribute* Find(std::string_view key) const;
  int64_t Integer(std::string_view key, int64_t otherwise) const;
  // Whether the operator is one of the format itself; of ONNX, kContributed: of ONNX Runtime.
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
  virtual ~Graph() = default;
  virtual Format format() const = 0;
  // The constant that has the zero point of a value; "" where operators say it, not values.
  virtual std::string ZeroPointOf(std::string_view /*value*/) const { return ""; }

  const std::string& name() const { return name_; }
  std::string_view bytes() const { return bytes_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Port>& inputs() const { return inputs_; }  // of ONNX, constants among them too
  const std::vector<Port>& outputs() const { return outputs_; }
  const std::map<std::string, Stored, std::less<>>& constants() const { return constants_; }

  const Stored* FindConstant(std::string_view name) const;
  // The node that makes a value; null for inputs and constants.
  const Node* MakerOf(std::string_view value) const;

  // The elements. Throws InputError "NAME: VALUE: what, expected what" where the type is another
  // one than int8, uint8, int4, uint4, int32 or float, or the bytes do not fit.
  Tensor Read(const std::string& value, const Stored& stored) const;
  // The elements of an int64, int32 or bool.
  std::vector<int64_t> ReadIntegers(const std::string& value, const Stored& stored) const;

  [[noreturn]] void Fail(const std::string& field, const std::string& what) const;

 protected:
  // Nothing of `bytes` is copied, they must outlive the graph. `name` begins error lines.
  Graph(std::string_view bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // The elements, little-endian: a view of the model, or of `*space`.
  virtual std::string_view Elements(const std::string& value, const Stored& stored,
                                    std::string* space) const = 0;
  void FindMakers();  // once all nodes are there

  std::string_view bytes_;
  std::string name_;
  std::vector<Node> nodes_;
  std::vector<Port> inputs_, outputs_;
  std::map<std::string, Stored, std::less<>> constants_;

 private:
  std::map<std::string, size_t, std::less<>> made_by_;  // output -> node
};

}  // namespace qualm::graph

#endif  // QUALM_CORE_IO_MODEL_GRAPH_H_
