// SPDX-License-Identifier: Apache-2.0
// Element types and operations: the nouns every other folder shares.
#ifndef QUALM_CORE_TYPES_H_
#define QUALM_CORE_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace qualm {

// Element type of a tensor. Codes are u8 or s8, accumulators s32, reals f32 (IEEE binary32).
enum class DType : uint8_t { kU8, kS8, kS32, kF32 };

// Bytes per element.
constexpr size_t SizeOf(DType dtype) { return dtype == DType::kU8 || dtype == DType::kS8 ? 1 : 4; }

// "u8", "s8", "s32", "f32": the spelling of case files and golden records.
std::string_view Name(DType dtype);
std::optional<DType> ParseDType(std::string_view name);

constexpr bool IsCode(DType dtype) { return dtype == DType::kU8 || dtype == DType::kS8; }

// Smallest and largest value of an integer type; for kF32 the int32 range, which no clamp uses.
struct CodeRange {
  int32_t min = 0;
  int32_t max = 0;
  friend bool operator==(const CodeRange&, const CodeRange&) = default;
};
constexpr CodeRange RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kU8: return {0, 255};
    case DType::kS8: return {-128, 127};
    case DType::kS32:
    case DType::kF32: break;
  }
  return {INT32_MIN, INT32_MAX};
}

// What is computed. The meaning of each is docs/quantization.md.
// The values are part of every drawn case's seed: new operations go to the end.
enum class Op : uint8_t {
  kQuantize,
  kDequantize,
  kRequantize,
  kLinear,
  kConv2d,
  kDepthwise,
  kAdd,
  kMul,
  kMaxPool,
  kAvgPool,
  kGlobalAvgPool,
  kRescale,
  kConcat,
  kTable,
  kSoftmax,
  kChooseQParams,
};

inline constexpr size_t kOpCount = static_cast<size_t>(Op::kChooseQParams) + 1;

// Every operation, in the order in which `qualm list ops` prints them.
std::span<const Op> AllOps();
std::string_view Name(Op op);
std::optional<Op> ParseOp(std::string_view name);

}  // namespace qualm

#endif  // QUALM_CORE_TYPES_H_
