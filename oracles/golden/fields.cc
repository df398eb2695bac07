// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "core/status.h"
#include "oracles/golden/records.h"

namespace qualm::golden {

void Wrong(const GoldenRecord& record, std::string_view field, const std::string& what) {
  throw InputError(record.where + ": " + std::string(field) + ": " + what);
}

void RequireEntries(const GoldenRecord& record, std::string_view field, size_t has,
                    int64_t expected) {
  if (static_cast<int64_t>(has) == expected) return;
  Wrong(record, field,
        "has " + std::to_string(has) + " entries, expected " + std::to_string(expected));
}

std::optional<DType> FloatTypeNamed(std::string_view name) {
  static const std::map<std::string_view, DType> types = {{"f32", DType::kF32},
                                                          {"f16", DType::kF16},
                                                          {"bf16", DType::kBF16},
                                                          {"e4m3fn", DType::kF8E4M3FN},
                                                          {"e5m2", DType::kF8E5M2},
                                                          {"e4m3fnuz", DType::kF8E4M3FNUZ},
                                                          {"e5m2fnuz", DType::kF8E5M2FNUZ},
                                                          {"e4m3", DType::kF8E4M3},
                                                          {"e3m4", DType::kF8E3M4},
                                                          {"e4m3b11fnuz", DType::kF8E4M3B11FNUZ},
                                                          {"e2m3fn", DType::kF6E2M3FN},
                                                          {"e3m2fn", DType::kF6E3M2FN},
                                                          {"e2m1fn", DType::kF4E2M1FN},
                                                          {"e8m0fnu", DType::kF8E8M0FNU}};
  const auto at = types.find(name);
  return at == types.end() ? std::nullopt : std::optional(at->second);
}

int64_t Dimension(const GoldenRecord& record, const std::string& field) {
  const int64_t value = record.Int(field);
  if (value < 0 || value > kMaxElements) Wrong(record, field, "expected 0..2^28");
  return value;
}

Sizes SizesOf(const GoldenRecord& record) {
  const Sizes sizes{Dimension(record, "M"), Dimension(record, "N"), Dimension(record, "K")};
  constexpr int64_t kMost = 1 << 16;
  if (sizes.m > kMost || sizes.n > kMost || sizes.k > kMost || sizes.m * sizes.n > kMost)
    Wrong(record, "M", "the product is too large to be judged");
  return sizes;
}

int32_t Int32(const GoldenRecord& record, const std::string& field, int64_t low, int64_t high) {
  const int64_t value = record.Int(field);
  if (value < low || value > high) {
    Wrong(record, field,
          "is " + std::to_string(value) + ", expected " + std::to_string(low) + ".." +
              std::to_string(high));
  }
  return static_cast<int32_t>(value);
}

bool Flag(const GoldenRecord& record, const std::string& field) {
  return record.Has(field) && Int32(record, field, 0, 1) == 1;
}

Tensor Codes(const GoldenRecord& record, const std::string& field, DType dtype,
             const std::vector<int64_t>& shape) {
  const std::vector<int64_t> values = record.Ints(field);
  if (ElementCount(shape, kMaxElements) != static_cast<int64_t>(values.size())) {
    std::string text;
    for (const int64_t d : shape) text += (text.empty() ? "" : "x") + std::to_string(d);
    Wrong(record, field, "has " + std::to_string(values.size()) + " entries, expected " + text);
  }
  const CodeRange range = RangeOf(dtype);
  Tensor tensor(dtype, shape);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < range.min || values[i] > range.max) {
      Wrong(record, field,
            "entry " + std::to_string(i) + " is " + std::to_string(values[i]) + ", outside " +
                std::string(Name(dtype)));
    }
    tensor.SetInt(static_cast<int64_t>(i), static_cast<int32_t>(values[i]));
  }
  return tensor;
}

Tensor Reals(const GoldenRecord& record, const std::string& field,
             const std::vector<int64_t>& shape) {
  const std::vector<float> values = record.Floats(field);
  if (ElementCount(shape, kMaxElements) != static_cast<int64_t>(values.size())) {
    Wrong(record, field,
          "has " + std::to_string(values.size()) + " entries, not as many as expected");
  }
  return Tensor::Of<float>(shape, values);
}

DType CodeType(const GoldenRecord& record, const std::string& field) {
  std::string name = record.Text(field);
  if (name == "qu8" || name == "uint8") name = "u8";
  if (name == "qs8" || name == "qc8" || name == "int8") name = "s8";
  const std::optional<DType> dtype = ParseDType(name);
  if (!dtype || !IsCode(*dtype)) Wrong(record, field, "expected u8 or s8");
  return *dtype;
}

std::vector<int32_t> Int32s(const GoldenRecord& record, const std::string& field) {
  std::vector<int32_t> result;
  for (const int64_t value : record.Ints(field)) {
    if (value < INT32_MIN || value > INT32_MAX) Wrong(record, field, "outside int32");
    result.push_back(static_cast<int32_t>(value));
  }
  return result;
}

JudgedRecord JudgedMatrix(std::string convention, const std::string& field, Tensor recorded,
                          const Element& element) {
  Tensor computed(recorded.dtype(), recorded.shape());
  const int64_t columns = recorded.shape().back();
  for (int64_t i = 0; i < computed.size(); ++i)
    computed.SetBits(i, element(i / columns, i % columns));
  JudgedRecord judged{.convention = std::move(convention)};
  judged.outputs.push_back({field, std::move(recorded), std::move(computed)});
  return judged;
}

}  // namespace qualm::golden
