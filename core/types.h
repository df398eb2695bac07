// SPDX-License-Identifier: Apache-2.0
// Element types as data: the nouns every other folder shares. Operations are core/op.h.
#ifndef QUALM_CORE_TYPES_H_
#define QUALM_CORE_TYPES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>

namespace qualm {

// Element type of a tensor. Codes are u8 or s8, accumulators s32, reals f32 (IEEE binary32). u4 and
// s4 can be stored and written to files; no operation takes them yet.
enum class DType : uint8_t { kU8, kS8, kS32, kF32, kU4, kS4 };

// Smallest and largest value of an integer type; for floats the int32 range, which no clamp uses.
struct CodeRange {
  int32_t min = 0;
  int32_t max = 0;
  friend bool operator==(const CodeRange&, const CodeRange&) = default;
};

// One row per element type. Sub-byte elements are packed by core/tensor.h.
struct DTypeRow {
  enum class Format : uint8_t { kUnsigned, kSigned, kFloat };
  DType dtype;
  std::string_view name;  // the spelling of case files and golden records
  int bits;               // of one element
  Format format;
  CodeRange range;
};

inline constexpr std::array kDTypeRows{
    DTypeRow{DType::kU8, "u8", 8, DTypeRow::Format::kUnsigned, {0, 255}},
    DTypeRow{DType::kS8, "s8", 8, DTypeRow::Format::kSigned, {-128, 127}},
    DTypeRow{DType::kS32, "s32", 32, DTypeRow::Format::kSigned, {INT32_MIN, INT32_MAX}},
    DTypeRow{DType::kF32, "f32", 32, DTypeRow::Format::kFloat, {INT32_MIN, INT32_MAX}},
    DTypeRow{DType::kU4, "u4", 4, DTypeRow::Format::kUnsigned, {0, 15}},
    DTypeRow{DType::kS4, "s4", 4, DTypeRow::Format::kSigned, {-8, 7}},
};
inline constexpr size_t kDTypeCount = kDTypeRows.size();

constexpr const DTypeRow& InfoOf(DType dtype) { return kDTypeRows[static_cast<size_t>(dtype)]; }
constexpr int BitsOf(DType dtype) { return InfoOf(dtype).bits; }
// Bytes of `count` elements: sub-byte elements share bytes, and the last byte may be part empty.
constexpr size_t BytesFor(DType dtype, size_t count) {
  return (count * static_cast<size_t>(BitsOf(dtype)) + 7) / 8;
}
// Bytes per element of a type of whole bytes. Aborts for others: 0 bytes would silently be nothing.
constexpr size_t SizeOf(DType dtype) {
  if (BitsOf(dtype) % 8 != 0) std::abort();
  return static_cast<size_t>(BitsOf(dtype)) / 8;
}
constexpr CodeRange RangeOf(DType dtype) { return InfoOf(dtype).range; }

constexpr std::string_view Name(DType dtype) { return InfoOf(dtype).name; }
std::optional<DType> ParseDType(std::string_view name);

// The types of quantized tensors that operations take today.
constexpr bool IsCode(DType dtype) { return dtype == DType::kU8 || dtype == DType::kS8; }
constexpr bool IsFloat(DType dtype) { return InfoOf(dtype).format == DTypeRow::Format::kFloat; }

}  // namespace qualm

#endif  // QUALM_CORE_TYPES_H_
