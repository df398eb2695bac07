// SPDX-License-Identifier: Apache-2.0
#include "core/io/model_graph.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/io/arrays.h"
#include "core/io/json_text.h"
#include "core/status.h"

namespace qualm::graph {
namespace {

struct TypeRow {
  int64_t type;
  std::string_view name;
  std::optional<DType> held_by = std::nullopt;
  size_t size = 0;  // of those that a Value holds
};
constexpr std::array<TypeRow, 15> kTypes{{{kFloat, "float", DType::kF32, 4},
                                          {kUint8, "uint8", DType::kU8, 1},
                                          {kInt8, "int8", DType::kS8, 1},
                                          {kUint16, "uint16", DType::kU16, 2},
                                          {kInt16, "int16", DType::kS16, 2},
                                          {kInt32, "int32", DType::kS32, 4},
                                          {kInt64, "int64", std::nullopt, 8},
                                          {8, "string"},
                                          {kBool, "bool", std::nullopt, 1},
                                          {kFloat16, "float16"},
                                          {11, "double"},
                                          {16, "bfloat16"},
                                          {17, "float8e4m3fn"},
                                          {kUint4, "uint4"},
                                          {kInt4, "int4"}}};

}  // namespace

std::string TypeName(int64_t type) {
  const auto* const row = std::ranges::find(kTypes, type, &TypeRow::type);
  return row == kTypes.end() ? "type " + std::to_string(type) : std::string(row->name);
}

std::optional<DType> HeldBy(int64_t type) {
  const auto* const row = std::ranges::find(kTypes, type, &TypeRow::type);
  return row == kTypes.end() ? std::nullopt : row->held_by;
}

int64_t TypeOf(DType dtype) {
  const auto* const row = std::ranges::find(kTypes, std::optional(dtype), &TypeRow::held_by);
  return row == kTypes.end() ? int64_t{kNoType} : row->type;
}

std::optional<DType> WidenedBy(int64_t type) {
  if (type == kInt4) return DType::kS8;
  return type == kUint4 ? std::optional(DType::kU8) : std::nullopt;
}

size_t SizeOfType(int64_t type) {
  const auto* const row = std::ranges::find(kTypes, type, &TypeRow::type);
  return row == kTypes.end() ? 0 : row->size;
}

Value Value::Of(Tensor tensor) {
  Value value;
  value.type = TypeOf(tensor.dtype());
  value.shape = tensor.shape();
  value.tensor = std::move(tensor);
  return value;
}

Value Value::Of(int64_t type, std::vector<int64_t> shape, std::vector<int64_t> integers) {
  Value value;
  value.type = type;
  value.shape = std::move(shape);
  value.integers = std::move(integers);
  return value;
}

bool Value::holds_tensor() const { return HeldBy(type).has_value(); }

int64_t Value::size() const {
  return holds_tensor() ? tensor.size() : static_cast<int64_t>(integers.size());
}

std::string Node::Input(int at) const {
  const auto place = static_cast<size_t>(at);
  return at < 0 || place >= inputs.size() ? std::string() : inputs[place];
}

std::string Node::Output(int at) const {
  const auto place = static_cast<size_t>(at);
  return at < 0 || place >= outputs.size() ? std::string() : outputs[place];
}

const Attribute* Node::Find(std::string_view key) const {
  const auto at = attributes.find(key);
  return at == attributes.end() ? nullptr : &at->second;
}

int64_t Node::Integer(std::string_view key, int64_t otherwise) const {
  const Attribute* const attribute = Find(key);
  return attribute == nullptr ? otherwise : attribute->integer.value_or(otherwise);
}

bool Node::Is(std::string_view operation, std::string_view of) const {
  return op == operation && domain == of;
}

void Graph::FindMakers() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (const std::string& output : nodes_[i].outputs) {
      if (!output.empty()) made_by_[output] = i;
    }
  }
}

const Stored* Graph::FindConstant(std::string_view name) const {
  const auto at = constants_.find(name);
  return name.empty() || at == constants_.end() ? nullptr : &at->second;
}

const Node* Graph::MakerOf(std::string_view value) const {
  const auto at = made_by_.find(value);
  return at == made_by_.end() ? nullptr : &nodes_[at->second];
}

void Graph::Fail(const std::string& field, const std::string& what) const {
  throw InputError(OneLine(name_) + ": " + OneLine(field) + ": " + OneLine(what));
}

Tensor Graph::Read(const std::string& value, const Stored& stored) const {
  const std::optional<DType> held = HeldBy(stored.type), wide = WidenedBy(stored.type);
  if (!held && !wide)
    Fail(value, "has another type, expected int8, uint8, int16, uint16, int32 or float");
  const DType dtype = held ? *held : *wide == DType::kS8 ? DType::kS4 : DType::kU4;
  std::string space;
  const Tensor read = TensorOfBytes(dtype, stored.dims, Elements(value, stored, &space),
                                    OneLine(name_) + ": " + OneLine(value));
  if (held) return read;
  Tensor codes(*wide, stored.dims);
  for (int64_t i = 0; i < codes.size(); ++i) codes.SetInt(i, read.IntAt(i));
  return codes;
}

std::vector<int64_t> Graph::ReadIntegers(const std::string& value, const Stored& stored) const {
  if (stored.type == kInt32) {
    const Tensor read = Read(value, stored);
    return {read.as<int32_t>().begin(), read.as<int32_t>().end()};
  }
  if (stored.type != kInt64 && stored.type != kBool)
    Fail(value, "is of " + TypeName(stored.type) + ", expected int64, int32 or bool");
  std::string space;
  const std::string_view raw = Elements(value, stored, &space);
  std::vector<int64_t> values;
  if (stored.type == kBool) {
    values.assign(raw.begin(), raw.end());
  } else {
    values.resize(raw.size() / sizeof(int64_t));
    if (!values.empty()) std::memcpy(values.data(), raw.data(), values.size() * sizeof(int64_t));
  }
  const int64_t count = ElementCount(stored.dims, kMaxArray);
  const bool negative = std::ranges::any_of(stored.dims, [](int64_t d) { return d < 0; });
  if (negative || count != static_cast<int64_t>(values.size())) {
    Fail(value, "shape: asks for " + std::to_string(count) + " elements, expected the " +
                    std::to_string(values.size()) + " that are there");
  }
  return values;
}

}  // namespace qualm::graph
