// SPDX-License-Identifier: Apache-2.0
// Writes TensorFlow Lite models, for tests: a second implementation of the format meets the reader.
#ifndef QUALM_MODELS_TFLITE_WRITER_TEST_UTIL_H_
#define QUALM_MODELS_TFLITE_WRITER_TEST_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace qualm::models::test {

template <class T>
std::string Raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A table of a flatbuffer: of each field its bytes, or what it leads to.
struct FlatTable {
  struct Vector {
    uint32_t count = 0;
    std::string elements;           // numbers
    std::vector<FlatTable> tables;  // or tables
  };
  std::map<int, std::string> numbers;
  std::map<int, Vector> vectors;
  std::map<int, std::vector<FlatTable>> children;  // one each

  template <class T>
  FlatTable& Number(int field, T value) {
    numbers[field] = Raw(std::vector<T>{value});
    return *this;
  }
  template <class T>
  FlatTable& Numbers(int field, const std::vector<T>& values) {
    vectors[field] = {static_cast<uint32_t>(values.size()), Raw(values), {}};
    return *this;
  }
  FlatTable& Text(int field, const std::string& text) {
    vectors[field] = {static_cast<uint32_t>(text.size()), text + '\0', {}};
    return *this;
  }
  FlatTable& Tables(int field, std::vector<FlatTable> tables) {
    vectors[field] = {static_cast<uint32_t>(tables.size()), "", std::move(tables)};
    return *this;
  }
  FlatTable& Child(int field, FlatTable child) {
    children[field] = {std::move(child)};
    return *this;
  }
};

// Every table is written before what it leads to.
class FlatWriter {
 public:
  static std::string Text(const FlatTable& root, const std::string& identifier) {
    FlatWriter writer;
    writer.text_ = std::string(4, '\0') + identifier;
    writer.Patch(0, writer.Add(root));
    return writer.text_;
  }

 private:
  template <class T>
  void Put(size_t place, T value) {
    std::memcpy(text_.data() + place, &value, sizeof value);
  }
  void Patch(size_t place, size_t target) { Put(place, static_cast<uint32_t>(target - place)); }
  void Align(size_t to, size_t rest = 0) {
    while (text_.size() % to != rest) text_ += '\0';
  }

  size_t Add(const FlatTable& table) {
    int fields = 0;
    for (const auto& [field, bytes] : table.numbers) fields = std::max(fields, field + 1);
    for (const auto& [field, vector] : table.vectors) fields = std::max(fields, field + 1);
    for (const auto& [field, child] : table.children) fields = std::max(fields, field + 1);
    Align(8);
    const size_t vtable = text_.size();
    text_.append(4 + 2 * static_cast<size_t>(fields), '\0');
    Align(8);
    const size_t begin = text_.size();
    text_.append(8, '\0');
    Put(begin, static_cast<int32_t>(begin - vtable));
    std::map<int, size_t> places;
    const auto place = [&](int field, size_t size) {
      Align(8);
      places[field] = text_.size();
      Put(vtable + 4 + 2 * static_cast<size_t>(field), static_cast<uint16_t>(text_.size() - begin));
      text_.append(size, '\0');
    };
    for (const auto& [field, bytes] : table.numbers) {
      place(field, bytes.size());
      text_.replace(places[field], bytes.size(), bytes);
    }
    for (const auto& [field, vector] : table.vectors) place(field, 4);
    for (const auto& [field, child] : table.children) place(field, 4);
    Put(vtable, static_cast<uint16_t>(4 + 2 * fields));
    Put(vtable + 2, static_cast<uint16_t>(text_.size() - begin));
    for (const auto& [field, vector] : table.vectors) Patch(places[field], Add(vector));
    for (const auto& [field, child] : table.children) Patch(places[field], Add(child.front()));
    return begin;
  }

  size_t Add(const FlatTable::Vector& vector) {
    Align(16, 12);  // the elements, behind their number, where XNNPACK may read weights
    const size_t begin = text_.size();
    text_.append(4, '\0');
    Put(begin, vector.count);
    text_ += vector.elements;
    const size_t offsets = text_.size();
    text_.append(4 * vector.tables.size(), '\0');
    for (size_t i = 0; i < vector.tables.size(); ++i) Patch(offsets + 4 * i, Add(vector.tables[i]));
    return begin;
  }

  std::string text_;
};

// Numbers of tensorflow/lite/schema/schema.fbs.
enum LiteType : int8_t {
  kLiteFloat = 0,
  kLiteInt32 = 2,
  kLiteInt64 = 4,
  kLiteUint8 = 3,
  kLiteInt16 = 7,
  kLiteInt4 = 17,
  kLiteInt8 = 9
};
enum LiteOptions : uint8_t {
  kNoOptions = 0,
  kConv2dOptions = 1,
  kDepthwiseOptions = 2,
  kPoolOptions = 5,
  kFullyConnectedOptions = 8,
  kSoftmaxOptions = 9,
  kConcatenationOptions = 10,
  kAddOptions = 11,
  kReshapeOptions = 17,
  kMulOptions = 21,
  kReducerOptions = 27,
  kStridedSliceOptions = 32,
  kPackOptions = 59,
  kUnpackOptions = 64,
  kLeakyReluOptions = 75,
};

struct LiteQ {
  std::vector<float> scale;
  std::vector<int64_t> zero_point;
  int32_t axis = 0;
};

class TfliteWriter {
 public:
  // Its index. `data`: the constant that it is.
  int32_t Tensor(const std::string& name, int8_t type, const std::vector<int32_t>& shape,
                 const LiteQ& q = {}, const std::string& data = "") {
    FlatTable tensor;
    tensor.Numbers(0, shape).Number(1, type).Text(3, name);
    if (!data.empty()) {
      tensor.Number(2, static_cast<uint32_t>(buffers_.size()));
      buffers_.push_back(FlatTable().Numbers(0, std::vector<char>(data.begin(), data.end())));
    }
    if (!q.scale.empty()) {
      tensor.Child(4, FlatTable().Numbers(2, q.scale).Numbers(3, q.zero_point).Number(6, q.axis));
    }
    tensors_.push_back(std::move(tensor));
    return static_cast<int32_t>(tensors_.size()) - 1;
  }
  int32_t Constant(const std::string& name, const qualm::Tensor& value, const LiteQ& q = {}) {
    const std::vector<int32_t> shape(value.shape().begin(), value.shape().end());
    const int8_t type = value.dtype() == DType::kF32   ? kLiteFloat
                        : value.dtype() == DType::kS32 ? kLiteInt32
                        : value.dtype() == DType::kU8  ? kLiteUint8
                                                       : kLiteInt8;
    return Tensor(
        name, type, shape, q,
        std::string(reinterpret_cast<const char*>(value.bytes().data()), value.bytes().size()));
  }
  int32_t Integers(const std::string& name, const std::vector<int32_t>& values) {
    return Tensor(name, kLiteInt32, {static_cast<int32_t>(values.size())}, {}, Raw(values));
  }
  // `version`: of the operator, which the interpreter looks up.
  TfliteWriter& Op(int32_t code, const std::vector<int32_t>& inputs,
                   const std::vector<int32_t>& outputs, LiteOptions type = kNoOptions,
                   const FlatTable& options = {}, int32_t version = 1) {
    FlatTable of;
    of.Number(0, static_cast<int8_t>(std::min(code, 127))).Number(2, version).Number(3, code);
    codes_.push_back(std::move(of));
    FlatTable op;
    op.Number(0, static_cast<uint32_t>(codes_.size() - 1)).Numbers(1, inputs).Numbers(2, outputs);
    if (type != kNoOptions) op.Number(3, static_cast<uint8_t>(type)).Child(4, options);
    operators_.push_back(std::move(op));
    return *this;
  }
  TfliteWriter& Inputs(std::vector<int32_t> inputs) {
    inputs_ = std::move(inputs);
    return *this;
  }
  TfliteWriter& Outputs(std::vector<int32_t> outputs) {
    outputs_ = std::move(outputs);
    return *this;
  }
  std::string Text() const {
    FlatTable graph, model;
    graph.Tables(0, tensors_).Numbers(1, inputs_).Numbers(2, outputs_).Tables(3, operators_);
    model.Number(0, uint32_t{3}).Tables(1, codes_).Tables(2, {graph}).Tables(4, buffers_);
    return FlatWriter::Text(model, "TFL3");
  }

 private:
  std::vector<FlatTable> tensors_, codes_, operators_, buffers_{FlatTable()};
  std::vector<int32_t> inputs_, outputs_;
};

}  // namespace qualm::models::test

#endif  // QUALM_MODELS_TFLITE_WRITER_TEST_UTIL_H_
