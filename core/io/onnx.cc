// SPDX-License-Identifier: Apache-2.0
// The few fields of an ONNX model (onnx.proto) that weights need.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "core/io/arrays.h"
#include "core/io/json_text.h"
#include "core/io/layers.h"
#include "core/status.h"

namespace qualm {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;
using protozero::tag_and_type;

constexpr auto kBytes = pbf_wire_type::length_delimited;
constexpr auto kVarint = pbf_wire_type::varint;

std::string_view View(protozero::data_view view) { return {view.data(), view.size()}; }
pbf_reader Message(std::string_view bytes) {
  return pbf_reader(protozero::data_view(bytes.data(), bytes.size()));
}

// Calls visit(tag, bytes) for the fields of a message that have bytes, and number(tag, value) for
// those that are one integer.
template <class Visit, class Number>
void ForEach(std::string_view bytes, Visit visit, Number number) {
  for (pbf_reader message = Message(bytes); message.next();) {
    const uint32_t tag = message.tag();
    if (message.has_wire_type(kBytes)) {
      visit(tag, View(message.get_view()));
    } else if (message.has_wire_type(kVarint)) {
      number(tag, message.get_int64());
    } else {
      message.skip();
    }
  }
}
constexpr auto kIgnore = [](uint32_t /*tag*/, auto /*value*/) {};

// Integers of one packed field. A varint of more than 64 bits ends in an exception.
std::vector<int64_t> Packed(std::string_view bytes) {
  std::vector<int64_t> values;
  for (const char *at = bytes.data(), *end = at + bytes.size(); at != end;) {
    values.push_back(static_cast<int64_t>(protozero::decode_varint(&at, end)));
  }
  return values;
}

// TensorProto::data_type.
struct TypeRow {
  int64_t type;
  DType dtype;
};
constexpr std::array<TypeRow, 4> kTypes{
    {{1, DType::kF32}, {2, DType::kU8}, {3, DType::kS8}, {6, DType::kS32}}};

// TensorProto.
struct Initializer {
  std::vector<int64_t> dims;
  int64_t type = 0;
  std::string_view raw, floats, integers;  // raw_data, packed float_data, packed int32_data
  bool external = false;
  std::map<std::string, std::string, std::less<>> outside;  // external_data: location, offset ...
};

std::pair<std::string, std::string> EntryOf(std::string_view bytes) {
  std::pair<std::string, std::string> entry;
  ForEach(
      bytes,
      [&](uint32_t tag, std::string_view field) {
        if (tag == 1) entry.first = field;
        if (tag == 2) entry.second = field;
      },
      kIgnore);
  return entry;
}

Initializer InitializerOf(std::string_view bytes, std::string* name) {
  Initializer result;
  ForEach(
      bytes,
      [&](uint32_t tag, std::string_view field) {
        if (tag == 1) result.dims = Packed(field);
        if (tag == 4) result.floats = field;
        if (tag == 5) result.integers = field;
        if (tag == 8) *name = field;
        if (tag == 9) result.raw = field;
        if (tag == 13) {
          result.external = true;
          result.outside.insert(EntryOf(field));
        }
      },
      [&](uint32_t tag, int64_t value) {
        if (tag == 1) result.dims.push_back(value);
        if (tag == 2) result.type = value;
        if (tag == 14) result.external |= value != 0;
      });
  return result;
}

// NodeProto.
struct Node {
  std::string op;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, int64_t> attributes;  // those that are one integer
};

Node NodeOf(std::string_view bytes) {
  Node node;
  ForEach(
      bytes,
      [&](uint32_t tag, std::string_view field) {
        if (tag == 1) node.inputs.emplace_back(field);
        if (tag == 2) node.outputs.emplace_back(field);
        if (tag == 4) node.op = field;
        if (tag != 5) return;
        std::string key;
        std::optional<int64_t> value;
        ForEach(
            field,
            [&](uint32_t of, std::string_view text) {
              if (of == 1) key = text;
            },
            [&](uint32_t of, int64_t number) {
              if (of == 3) value = number;
            });
        if (value) node.attributes[key] = *value;
      },
      kIgnore);
  return node;
}

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

class Graph {
 public:
  // `folder` is that of the model's file, if it has one: where its external data lies.
  Graph(std::string_view model, std::string_view name, std::optional<std::filesystem::path> folder)
      : name_(name), folder_(std::move(folder)) {
    ForEach(
        model,
        [&](uint32_t tag, std::string_view graph) {
          if (tag == 7) ReadGraph(graph);
        },
        kIgnore);
  }

  std::vector<NamedLayer> Layers() const {
    std::vector<NamedLayer> layers;
    std::set<std::string> taken;
    for (const Node& node : nodes_) {
      const auto* const row = std::ranges::find(kOperators, node.op, &OperatorRow::op);
      if (row != kOperators.end()) {
        Add(node, Input(node, row->w), Input(node, row->w_scale), Input(node, row->w_zero_point),
            row->convolution, ZeroPoint(Input(node, row->x_zero_point)), &taken, &layers);
      } else if (node.op == "Conv" || node.op == "MatMul" || node.op == "Gemm") {
        AddDequantized(node, &taken, &layers);
      }
    }
    return layers;
  }

 private:
  [[noreturn]] void Fail(const std::string& field, const std::string& what) const {
    throw InputError(OneLine(name_) + ": " + OneLine(field) + ": " + what);
  }

  void ReadGraph(std::string_view graph) {
    ForEach(
        graph,
        [&](uint32_t tag, std::string_view field) {
          if (tag == 1) {
            nodes_.push_back(NodeOf(field));
          } else if (tag == 5) {
            std::string name;
            Initializer initializer = InitializerOf(field, &name);
            initializers_[name] = std::move(initializer);
          }
        },
        kIgnore);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const std::string& output : nodes_[i].outputs) made_by_[output] = i;
    }
  }

  static std::string Input(const Node& node, int at) {
    const auto place = static_cast<size_t>(at);
    return at < 0 || place >= node.inputs.size() ? std::string() : node.inputs[place];
  }
  const Initializer* Find(const std::string& name) const {
    const auto at = initializers_.find(name);
    return name.empty() || at == initializers_.end() ? nullptr : &at->second;
  }

  // The bytes of an initializer in a file beside the model. A model is somebody else's: it names no
  // file anywhere else.
  std::string Outside(const std::string& name, const Initializer& initializer) const {
    if (!folder_) Fail(name, "has its data in another file, expected it inside");
    const auto entry = [&](std::string_view key) {
      const auto at = initializer.outside.find(key);
      return at == initializer.outside.end() ? std::string() : at->second;
    };
    const auto number = [&](std::string_view key) -> std::optional<uint64_t> {
      const std::string text = entry(key);
      if (text.empty()) return std::nullopt;
      uint64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size())
        Fail(name, std::string(key) + ": is " + Shown(text) + ", expected a number");
      return value;
    };
    const std::filesystem::path location(entry("location"));
    const bool beside = !location.empty() && location.is_relative() &&
                        std::ranges::find(location, "..") == location.end();
    if (!beside) {
      Fail(name, "location: is " + Shown(location.string()) +
                     ", expected a file in the folder of the model");
    }
    return ReadPartOfFile((*folder_ / location).string(), number("offset").value_or(0),
                          number("length"));
  }

  Tensor TensorNamed(const std::string& name, const Initializer& initializer) const {
    const std::string outside = initializer.external ? Outside(name, initializer) : "";
    const auto* const row = std::ranges::find(kTypes, initializer.type, &TypeRow::type);
    if (row == kTypes.end()) Fail(name, "has another type, expected int8, uint8, int32 or float");
    const DType dtype = row->dtype;
    const std::string where = OneLine(name_) + ": " + OneLine(name);
    std::string unpacked;  // int32_data has a varint for each element
    for (const int64_t value : Packed(initializer.integers)) {
      const CodeRange range = RangeOf(dtype);
      if (dtype == DType::kF32 || value < range.min || value > range.max) {
        Fail(name, "holds " + std::to_string(value) + ", expected a value of its type");
      }
      unpacked.append(reinterpret_cast<const char*>(&value), SizeOf(dtype));
    }
    if (!unpacked.empty()) return TensorOfBytes(dtype, initializer.dims, unpacked, where);
    const std::string_view data = initializer.external ? outside
                                  : initializer.floats.empty() || dtype != DType::kF32
                                      ? initializer.raw
                                      : initializer.floats;
    return TensorOfBytes(dtype, initializer.dims, data, where);
  }

  // Scales and zero points of the weights of n channels; the default if not an initializer.
  void SetQParams(const std::string& scale, const std::string& zero_point, Case* c) const {
    const auto n = static_cast<size_t>(c->N);
    const Initializer* scales = Find(scale);
    const Initializer* zeros = Find(zero_point);
    if (scales != nullptr) {
      const Tensor values = TensorNamed(scale, *scales);
      if (values.dtype() != DType::kF32) Fail(scale, "is no float, expected the scale of weights");
      c->w_q.scale.assign(values.as<float>().begin(), values.as<float>().end());
    }
    if (zeros != nullptr) {
      const Tensor values = TensorNamed(zero_point, *zeros);
      if (values.dtype() == DType::kF32) Fail(zero_point, "is a float, expected a zero point");
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
    const Initializer* initializer = Find(name);
    if (initializer == nullptr) return std::nullopt;
    const Tensor value = TensorNamed(name, *initializer);
    if (!IsCode(value.dtype()) || value.size() != 1) return std::nullopt;
    return std::pair(value.dtype(), value.IntAt(0));
  }

  void Add(const Node& node, const std::string& weights, const std::string& scale,
           const std::string& zero_point, bool convolution,
           std::optional<std::pair<DType, int32_t>> x, std::set<std::string>* taken,
           std::vector<NamedLayer>* layers) const {
    const Initializer* initializer = Find(weights);
    if (initializer == nullptr) return;  // computed in the graph
    // Shared weights are one layer.
    if (!taken->insert(weights).second) return;
    Tensor w = TensorNamed(weights, *initializer);
    if (!IsCode(w.dtype())) return;
    const std::string where = OneLine(name_) + ": " + OneLine(weights);
    const size_t rank = w.shape().size();
    if (convolution ? rank != 4 : rank != 2) return;  // one or three dimensions, or a batch
    LayerReading reading;
    const auto attribute = [&](const char* key, int64_t otherwise) {
      const auto at = node.attributes.find(key);
      return at == node.attributes.end() ? otherwise : at->second;
    };
    if (convolution) {
      reading.groups = attribute("group", 1);
      if (reading.groups < 1 || reading.groups > (1 << 20)) {
        Fail(weights, "belongs to a convolution of " + std::to_string(reading.groups) +
                          " groups, expected at least 1");
      }
    } else if (attribute("transB", 0) == 0) {
      w = Transposed(w);
    }
    Case c = LayerOf(w, reading, where);
    SetQParams(scale, zero_point, &c);
    if (x) {
      c.x = Tensor(x->first, c.x.shape());
      c.x_q.zero_point = {x->second};
    }
    if (const std::string error = Validate(c); !error.empty()) Fail(weights, error);
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
    const auto at = made_by_.find(output);
    return at == made_by_.end() || nodes_[at->second].op != op ? nullptr : &nodes_[at->second];
  }

  void AddDequantized(const Node& node, std::set<std::string>* taken,
                      std::vector<NamedLayer>* layers) const {
    const Node* w = MakerOf(Input(node, 1), "DequantizeLinear");
    if (w == nullptr) return;
    const Node* x = MakerOf(Input(node, 0), "DequantizeLinear");
    Add(node, Input(*w, 0), Input(*w, 1), Input(*w, 2), node.op == "Conv",
        x == nullptr ? std::nullopt : ZeroPoint(Input(*x, 2)), taken, layers);
  }

  std::string_view name_;
  std::optional<std::filesystem::path> folder_;
  std::vector<Node> nodes_;
  std::map<std::string, Initializer> initializers_;
  std::map<std::string, size_t> made_by_;  // output -> node
};

std::vector<NamedLayer> LayersOf(std::string_view bytes, std::string_view name,
                                 std::optional<std::filesystem::path> folder) {
  try {
    return Graph(bytes, name, std::move(folder)).Layers();
  } catch (const protozero::exception& error) {
    throw InputError(OneLine(name) + ": file: is no ONNX model (" + error.what() +
                     "), expected a protobuf message");
  }
}

}  // namespace

std::vector<NamedLayer> ParseOnnx(std::string_view bytes, std::string_view name) {
  return LayersOf(bytes, name, std::nullopt);
}

std::vector<NamedLayer> ReadOnnxFile(const std::string& path) {
  return LayersOf(ReadBinaryFile(path, kMaxWeightFile), path,
                  std::filesystem::path(path).parent_path());
}

}  // namespace qualm
