// SPDX-License-Identifier: Apache-2.0
#include "core/io/onnx_graph.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <system_error>

#include "core/io/arrays.h"
#include "core/io/json_text.h"
#include "core/status.h"

namespace qualm::onnx {
namespace {

using graph::Attribute;
using graph::kNoType;
using graph::Node;
using graph::Port;
using graph::Stored;
using protozero::pbf_reader;
using protozero::pbf_wire_type;
using protozero::pbf_writer;

std::string_view View(protozero::data_view view) { return {view.data(), view.size()}; }

// The fields of a message, one after another, as `visit(Value)`.
struct Value {
  uint32_t tag = 0;
  pbf_wire_type wire = pbf_wire_type::unknown;
  std::string_view bytes;  // of length_delimited
  int64_t integer = 0;     // of varint
  float number = 0;        // of fixed32

  bool is_bytes(uint32_t of) const { return tag == of && wire == pbf_wire_type::length_delimited; }
  bool is_integer(uint32_t of) const { return tag == of && wire == pbf_wire_type::varint; }
  bool is_number(uint32_t of) const { return tag == of && wire == pbf_wire_type::fixed32; }
};
template <class Visit>
void ForEach(std::string_view bytes, Visit visit) {
  for (pbf_reader message(protozero::data_view(bytes.data(), bytes.size())); message.next();) {
    Value value;
    value.tag = message.tag();
    value.wire = message.wire_type();
    switch (value.wire) {
      case pbf_wire_type::length_delimited: value.bytes = View(message.get_view()); break;
      case pbf_wire_type::varint: value.integer = message.get_int64(); break;
      case pbf_wire_type::fixed32: value.number = message.get_float(); break;
      default: message.skip(); continue;
    }
    visit(value);
  }
}

// Integers of one packed field. A varint of more than 64 bits ends in an exception.
std::vector<int64_t> Packed(std::string_view bytes) {
  std::vector<int64_t> values;
  for (const char *at = bytes.data(), *end = at + bytes.size(); at != end;) {
    values.push_back(static_cast<int64_t>(protozero::decode_varint(&at, end)));
  }
  return values;
}

std::vector<float> PackedFloats(std::string_view bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// StringStringEntryProto: key 1, value 2.
std::pair<std::string, std::string> EntryOf(std::string_view bytes) {
  std::pair<std::string, std::string> entry;
  ForEach(bytes, [&](const Value& field) {
    if (field.is_bytes(1)) entry.first = field.bytes;
    if (field.is_bytes(2)) entry.second = field.bytes;
  });
  return entry;
}

// TensorProto: dims 1, data_type 2, float_data 4, int32_data 5, int64_data 7, name 8, raw_data 9,
// external_data 13, data_location 14.
Stored StoredOf(std::string_view bytes, std::string* name = nullptr) {
  Stored stored;
  ForEach(bytes, [&](const Value& field) {
    if (field.is_bytes(1)) stored.dims = Packed(field.bytes);
    if (field.is_integer(1)) stored.dims.push_back(field.integer);
    if (field.is_integer(2)) stored.type = field.integer;
    if (field.is_bytes(4)) stored.floats = field.bytes;
    if (field.is_bytes(5)) stored.integers = field.bytes;
    if (field.is_bytes(7)) stored.longs = field.bytes;
    if (field.is_bytes(8) && name != nullptr) *name = field.bytes;
    if (field.is_bytes(9)) stored.raw = field.bytes;
    if (field.is_integer(14)) stored.external |= field.integer != 0;
    if (!field.is_bytes(13)) return;
    stored.external = true;
    stored.outside.insert(EntryOf(field.bytes));
  });
  return stored;
}

// AttributeProto: name 1, f 2, i 3, s 4, t 5, floats 7, ints 8.
std::pair<std::string, Attribute> AttributeOf(std::string_view bytes) {
  std::string name;
  Attribute attribute;
  ForEach(bytes, [&](const Value& field) {
    if (field.is_bytes(1)) name = field.bytes;
    if (field.is_number(2)) attribute.number = field.number;
    if (field.is_integer(3)) attribute.integer = field.integer;
    if (field.is_bytes(4)) attribute.text = field.bytes;
    if (field.is_bytes(5)) attribute.tensor = StoredOf(field.bytes);
    if (field.is_number(7)) attribute.numbers.push_back(field.number);
    if (field.is_bytes(7)) attribute.numbers = PackedFloats(field.bytes);
    if (field.is_integer(8)) attribute.integers.push_back(field.integer);
    if (field.is_bytes(8)) attribute.integers = Packed(field.bytes);
  });
  return {std::move(name), std::move(attribute)};
}

// NodeProto: input 1, output 2, name 3, op_type 4, attribute 5, domain 7.
Node NodeOf(std::string_view bytes) {
  Node node;
  node.message = bytes;
  ForEach(bytes, [&](const Value& field) {
    if (field.is_bytes(1)) node.inputs.emplace_back(field.bytes);
    if (field.is_bytes(2)) node.outputs.emplace_back(field.bytes);
    if (field.is_bytes(3)) node.name = field.bytes;
    if (field.is_bytes(4)) node.op = field.bytes;
    if (field.is_bytes(5)) node.attributes.insert(AttributeOf(field.bytes));
    if (field.is_bytes(7)) node.domain = field.bytes;
  });
  if (node.domain == "ai.onnx") node.domain.clear();
  return node;
}

// TensorShapeProto: dim 1; its Dimension: dim_value 1, dim_param 2.
std::vector<int64_t> ShapeOf(std::string_view bytes) {
  std::vector<int64_t> shape;
  ForEach(bytes, [&](const Value& field) {
    if (!field.is_bytes(1)) return;
    shape.push_back(-1);
    ForEach(field.bytes, [&](const Value& dimension) {
      if (dimension.is_integer(1)) shape.back() = dimension.integer;
    });
  });
  return shape;
}

// ValueInfoProto: name 1, type 2; TypeProto: tensor_type 1; its Tensor: elem_type 1, shape 2.
Port PortOf(std::string_view bytes) {
  Port port;
  ForEach(bytes, [&](const Value& field) {
    if (field.is_bytes(1)) port.name = field.bytes;
    if (!field.is_bytes(2)) return;
    ForEach(field.bytes, [&](const Value& type) {
      if (!type.is_bytes(1)) return;
      ForEach(type.bytes, [&](const Value& tensor) {
        if (tensor.is_integer(1)) port.type = tensor.integer;
        if (tensor.is_bytes(2)) port.shape = ShapeOf(tensor.bytes);
      });
    });
  });
  return port;
}

// What read() gives; an InputError for bytes that end in the middle of a message or a number.
template <class Read>
auto Guarded(const std::string& name, Read read) {
  try {
    return read();
  } catch (const protozero::exception& error) {
    throw InputError(OneLine(name) + ": file: is no ONNX model (" + error.what() +
                     "), expected a protobuf message");
  }
}

pbf_writer Begin(std::string& text) { return pbf_writer(text); }

// A ValueInfoProto; without a type, which whoever runs the model infers.
std::string PortText(const std::string& name, int64_t type) {
  std::string text;
  pbf_writer port = Begin(text);
  port.add_string(1, name);
  if (type == kNoType) return text;
  std::string tensor;
  Begin(tensor).add_int64(1, type);
  std::string whole;
  Begin(whole).add_message(1, tensor);
  port.add_message(2, whole);
  return text;
}

}  // namespace

Graph::Graph(std::string_view bytes, std::string name, std::optional<std::string> folder)
    : graph::Graph(bytes, std::move(name)), folder_(std::move(folder)) {
  Guarded(name_, [&] { ReadModel(); });
  FindMakers();
}

// ModelProto: graph 7, opset_import 8.
void Graph::ReadModel() {
  ForEach(bytes_, [&](const Value& field) {
    if (field.is_bytes(7)) ReadGraph(field.bytes);
    if (!field.is_bytes(8)) return;
    std::pair<std::string, int64_t> opset;
    ForEach(field.bytes, [&](const Value& of) {
      if (of.is_bytes(1)) opset.first = of.bytes;
      if (of.is_integer(2)) opset.second = of.integer;
    });
    opsets_.push_back(std::move(opset));
  });
}

// GraphProto: node 1, initializer 5, input 11, output 12.
void Graph::ReadGraph(std::string_view graph) {
  ForEach(graph, [&](const Value& field) {
    if (field.is_bytes(1)) nodes_.push_back(NodeOf(field.bytes));
    if (field.is_bytes(11)) inputs_.push_back(PortOf(field.bytes));
    if (field.is_bytes(12)) outputs_.push_back(PortOf(field.bytes));
    if (!field.is_bytes(5)) return;
    std::string name;
    Stored stored = StoredOf(field.bytes, &name);
    constants_[name] = std::move(stored);
  });
}

// The bytes of an initializer in a file beside the model. A model is somebody else's: it names no
// file anywhere else.
std::string Graph::Outside(const std::string& value, const Stored& stored) const {
  if (!folder_) Fail(value, "has its data in another file, expected it inside");
  const auto entry = [&](std::string_view key) {
    const auto at = stored.outside.find(key);
    return at == stored.outside.end() ? std::string() : at->second;
  };
  const auto number = [&](std::string_view key) -> std::optional<uint64_t> {
    const std::string text = entry(key);
    if (text.empty()) return std::nullopt;
    uint64_t read = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
    if (error != std::errc() || end != text.data() + text.size())
      Fail(value, std::string(key) + ": is " + Shown(text) + ", expected a number");
    return read;
  };
  const std::filesystem::path location(entry("location"));
  const bool beside = !location.empty() && location.is_relative() &&
                      std::ranges::find(location, "..") == location.end();
  if (!beside) {
    Fail(value, "location: is " + Shown(location.string()) +
                    ", expected a file in the folder of the model");
  }
  return ReadPartOfFile((std::filesystem::path(*folder_) / location).string(),
                        number("offset").value_or(0), number("length"));
}

// Packed int32_data and int64_data have a varint for each element.
std::string_view Graph::Elements(const std::string& value, const Stored& stored,
                                 std::string* space) const {
  const std::string_view packed = stored.type == graph::kInt64 ? stored.longs : stored.integers;
  const std::optional<DType> held = graph::HeldBy(stored.type);
  for (const int64_t element : Guarded(name_, [&] { return Packed(packed); })) {
    if (held && (IsFloat(*held) || element < RangeOf(*held).min || element > RangeOf(*held).max))
      Fail(value, "holds " + std::to_string(element) + ", expected a value of its type");
    // Of 4 bits, each holds a byte of two.
    const size_t size = graph::WidenedBy(stored.type) ? 1 : graph::SizeOfType(stored.type);
    space->append(reinterpret_cast<const char*>(&element), size);
  }
  if (!space->empty()) return *space;
  if (stored.external) return *space = Outside(value, stored);
  return stored.type == graph::kFloat && !stored.floats.empty() ? stored.floats : stored.raw;
}

std::string WithOutputs(std::string_view model, const std::vector<std::string>& values) {
  std::string more;
  for (const std::string& value : values) Begin(more).add_message(12, PortText(value, kNoType));
  std::string text(model);
  Begin(text).add_message(7, more);
  return text;
}

std::string ModelOfNode(const Graph& graph, const Node& node, const std::vector<int64_t>& types) {
  std::string inside;
  pbf_writer writer = Begin(inside);
  writer.add_message(1, protozero::data_view(node.message.data(), node.message.size()));
  writer.add_string(2, "node");
  size_t at = 0;
  std::vector<std::string> seen;
  for (const std::string& input : node.inputs) {
    if (input.empty()) continue;
    const int64_t type = types.at(at++);
    if (std::ranges::find(seen, input) != seen.end()) continue;
    seen.push_back(input);
    writer.add_message(11, PortText(input, type));
  }
  for (const std::string& output : node.outputs) {
    if (!output.empty()) writer.add_message(12, PortText(output, kNoType));
  }
  std::string text;
  pbf_writer model = Begin(text);
  model.add_int64(1, 8);  // ir_version
  model.add_message(7, inside);
  for (const auto& [domain, version] : graph.opsets()) {
    std::string opset;
    pbf_writer of = Begin(opset);
    of.add_string(1, domain);
    of.add_int64(2, version);
    model.add_message(8, opset);
  }
  return text;
}

graph::Value ReadTensorProto(std::string_view bytes, const std::string& name) {
  // A model of nothing but this initializer.
  std::string inside, model;
  Begin(inside).add_message(5, protozero::data_view(bytes.data(), bytes.size()));
  Begin(model).add_message(7, inside);
  const Graph read(model, name);
  const auto& [label, stored] = *read.constants().begin();
  const std::string field = label.empty() ? "array" : label;
  if (graph::HeldBy(stored.type)) return graph::Value::Of(read.Read(field, stored));
  return graph::Value::Of(stored.type, stored.dims, read.ReadIntegers(field, stored));
}

}  // namespace qualm::onnx
