// SPDX-License-Identifier: Apache-2.0
// Writes ONNX models byte by byte, for tests: a second implementation of the format meets the
// reader.
#ifndef QUALM_MODELS_MODEL_WRITER_TEST_UTIL_H_
#define QUALM_MODELS_MODEL_WRITER_TEST_UTIL_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/io/model_graph.h"
#include "core/tensor.h"

namespace qualm::models::test {

inline std::string Varint(uint64_t value) {
  std::string text;
  for (; value > 127; value >>= 7) text += static_cast<char>((value & 127) | 128);
  return text + static_cast<char>(value);
}
inline std::string Integer(int field, int64_t value) {
  return Varint(static_cast<uint64_t>(field) << 3) + Varint(static_cast<uint64_t>(value));
}
inline std::string Bytes(int field, const std::string& value) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(value.size()) + value;
}

struct Attribute {
  Attribute(std::string name, int64_t integer)
      : text(Bytes(1, name) + Integer(3, integer) + Integer(20, 2)) {}
  Attribute(std::string name, std::vector<int64_t> integers) : text(Bytes(1, name)) {
    for (const int64_t one : integers) text += Integer(8, one);
    text += Integer(20, 7);
  }
  Attribute(std::string name, float number) : text(Bytes(1, name)) {
    std::string raw(sizeof number, '\0');
    std::memcpy(raw.data(), &number, sizeof number);
    text += Varint(2 << 3 | 5) + raw + Integer(20, 1);
  }
  std::string text;
};

// Parts are added in the order of the graph.
class ModelWriter {
 public:
  ModelWriter& Node(const std::string& op, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs,
                    const std::vector<Attribute>& attributes = {}, const std::string& domain = "") {
    std::string node;
    for (const std::string& one : inputs) node += Bytes(1, one);
    for (const std::string& one : outputs) node += Bytes(2, one);
    node += Bytes(3, op + "_" + outputs[0]) + Bytes(4, op);
    for (const Attribute& one : attributes) node += Bytes(5, one.text);
    if (!domain.empty()) node += Bytes(7, domain);
    graph_ += Bytes(1, node);
    return *this;
  }
  ModelWriter& Constant(const std::string& name, const Tensor& value) {
    const auto raw = value.bytes();
    return Stored(name, graph::TypeOf(value.dtype()), value.shape(),
                  std::string(reinterpret_cast<const char*>(raw.data()), raw.size()));
  }
  ModelWriter& Constant(const std::string& name, const std::vector<int64_t>& integers) {
    std::string raw(integers.size() * 8, '\0');
    std::memcpy(raw.data(), integers.data(), raw.size());
    return Stored(name, graph::kInt64, {static_cast<int64_t>(integers.size())}, raw);
  }
  // Codes of a type that no tensor here has, as raw_data, or as int32_data, a byte in each.
  ModelWriter& Packed(const std::string& name, int64_t type, const std::vector<int64_t>& dims,
                      const std::string& bytes, bool as_integers = false) {
    if (!as_integers) return Stored(name, type, dims, bytes);
    std::string integers;
    for (const char byte : bytes) integers += Varint(static_cast<uint8_t>(byte));
    return Stored(name, type, dims, "", Bytes(5, integers));
  }
  // Scale and zero point NAME_s and NAME_z.
  ModelWriter& Scale(const std::string& name, float scale, DType dtype, int32_t zero) {
    Tensor of(DType::kF32, {});
    of.as<float>()[0] = scale;
    Tensor point(dtype, {});
    point.SetInt(0, zero);
    return Constant(name + "_s", of).Constant(name + "_z", point);
  }
  ModelWriter& Input(const std::string& name, int64_t type, const std::vector<int64_t>& shape) {
    graph_ += Bytes(11, Port(name, type, shape));
    return *this;
  }
  ModelWriter& Output(const std::string& name) {
    graph_ += Bytes(12, Bytes(1, name));
    return *this;
  }
  std::string Text() const {
    return Integer(1, 8) + Bytes(7, graph_ + Bytes(2, "g")) +
           Bytes(8, Bytes(1, "") + Integer(2, 17)) +
           Bytes(8, Bytes(1, "com.microsoft") + Integer(2, 1));
  }

 private:
  ModelWriter& Stored(const std::string& name, int64_t type, const std::vector<int64_t>& dims,
                      const std::string& raw, const std::string& more = "") {
    std::string tensor = more;
    for (const int64_t size : dims) tensor += Integer(1, size);
    graph_ +=
        Bytes(5, tensor + Integer(2, type) + Bytes(8, name) + (more.empty() ? Bytes(9, raw) : ""));
    return *this;
  }
  // A size of -1 has a name.
  static std::string Port(const std::string& name, int64_t type,
                          const std::vector<int64_t>& shape) {
    std::string sizes;
    for (const int64_t size : shape) sizes += Bytes(1, size < 0 ? Bytes(2, "n") : Integer(1, size));
    return Bytes(1, name) + Bytes(2, Bytes(1, Integer(1, type) + Bytes(2, sizes)));
  }

  std::string graph_;
};

}  // namespace qualm::models::test

#endif  // QUALM_MODELS_MODEL_WRITER_TEST_UTIL_H_
