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

// Element type of a tensor. Codes are u8 or s8, of some operations s16 or u16 too (kWideCodes in
// core/op.h), of quantize and dequantize also u4, s4, u2 and s2, as which weights come too;
// accumulators are s32, reals f32 (IEEE binary32). The floats of 16 bits and fewer are taken by
// cast. The values are the numbers of adapters/qualm_plugin.h: a new type goes to the end.
enum class DType : uint8_t {
  kU8,
  kS8,
  kS32,
  kF32,
  kU4,
  kS4,
  kS16,
  kU2,
  kS2,
  kF16,
  kBF16,
  kF8E4M3FN,
  kF8E5M2,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kF8E4M3,
  kF8E3M4,
  kF8E4M3B11FNUZ,
  kF6E2M3FN,
  kF6E3M2FN,
  kF4E2M1FN,
  kF8E8M0FNU,
  kUE4M3,
  kU16,
};

// Smallest and largest value of an integer type. Of a float type, the range of its codes, which are
// its bit patterns as unsigned numbers; of f32 the int32 range. No clamp uses either.
struct CodeRange {
  int32_t min = 0;
  int32_t max = 0;
  friend bool operator==(const CodeRange&, const CodeRange&) = default;
};

// The fields of a float type, from the highest bit: sign, exponent, fraction. Its values are
// (-1)^sign * 2^(exponent - bias) * (1 + fraction / 2^fraction_bits), or, of exponent 0, subnormal:
// (-1)^sign * 2^(1 - bias) * fraction / 2^fraction_bits. A type without a fraction has neither
// subnormals nor a zero: exponent 0 is a power of two like the others. core/float_format.h computes
// with it.
struct FloatFormat {
  // What the patterns at the ends of the range mean.
  enum class Top : uint8_t {
    kIeee,       // the largest exponent: infinities of fraction 0, else NaN
    kAllOnes,    // the largest exponent and fraction are NaN, no infinities ("fn")
    kMinusZero,  // the pattern of -0 is the one NaN, no infinities ("fnuz")
    kFinite,     // every pattern is a number
  };
  int exponent_bits = 0, fraction_bits = 0, bias = 0;
  Top top = Top::kIeee;
  bool has_sign = true;  // without one, a bit above the exponent is padding, written 0 and not read
};

// One row per element type. Sub-byte elements are packed by core/tensor.h.
struct DTypeRow {
  enum class Format : uint8_t { kUnsigned, kSigned, kFloat };
  DType dtype;
  std::string_view name;  // the spelling of case files and golden records
  int bits;               // of one element
  Format format;
  CodeRange range;
  FloatFormat floating = {};  // of kFloat
};

namespace internal {
constexpr DTypeRow FloatRow(DType dtype, std::string_view name, int bits, FloatFormat floating) {
  const int used = floating.exponent_bits + floating.fraction_bits + (floating.has_sign ? 1 : 0);
  return {dtype, name, bits, DTypeRow::Format::kFloat, {0, (1 << used) - 1}, floating};
}
}  // namespace internal

// Names of floats are those of MLIR and StableHLO in small letters; ue4m3 is PTX's.
inline constexpr std::array kDTypeRows{
    DTypeRow{DType::kU8, "u8", 8, DTypeRow::Format::kUnsigned, {0, 255}},
    DTypeRow{DType::kS8, "s8", 8, DTypeRow::Format::kSigned, {-128, 127}},
    DTypeRow{DType::kS32, "s32", 32, DTypeRow::Format::kSigned, {INT32_MIN, INT32_MAX}},
    DTypeRow{
        DType::kF32, "f32", 32, DTypeRow::Format::kFloat, {INT32_MIN, INT32_MAX}, {8, 23, 127}},
    DTypeRow{DType::kU4, "u4", 4, DTypeRow::Format::kUnsigned, {0, 15}},
    DTypeRow{DType::kS4, "s4", 4, DTypeRow::Format::kSigned, {-8, 7}},
    DTypeRow{DType::kS16, "s16", 16, DTypeRow::Format::kSigned, {INT16_MIN, INT16_MAX}},
    DTypeRow{DType::kU2, "u2", 2, DTypeRow::Format::kUnsigned, {0, 3}},
    DTypeRow{DType::kS2, "s2", 2, DTypeRow::Format::kSigned, {-2, 1}},
    internal::FloatRow(DType::kF16, "f16", 16, {5, 10, 15, FloatFormat::Top::kIeee}),
    internal::FloatRow(DType::kBF16, "bf16", 16, {8, 7, 127, FloatFormat::Top::kIeee}),
    internal::FloatRow(DType::kF8E4M3FN, "f8e4m3fn", 8, {4, 3, 7, FloatFormat::Top::kAllOnes}),
    internal::FloatRow(DType::kF8E5M2, "f8e5m2", 8, {5, 2, 15, FloatFormat::Top::kIeee}),
    internal::FloatRow(DType::kF8E4M3FNUZ, "f8e4m3fnuz", 8,
                       {4, 3, 8, FloatFormat::Top::kMinusZero}),
    internal::FloatRow(DType::kF8E5M2FNUZ, "f8e5m2fnuz", 8,
                       {5, 2, 16, FloatFormat::Top::kMinusZero}),
    internal::FloatRow(DType::kF8E4M3, "f8e4m3", 8, {4, 3, 7, FloatFormat::Top::kIeee}),
    internal::FloatRow(DType::kF8E3M4, "f8e3m4", 8, {3, 4, 3, FloatFormat::Top::kIeee}),
    internal::FloatRow(DType::kF8E4M3B11FNUZ, "f8e4m3b11fnuz", 8,
                       {4, 3, 11, FloatFormat::Top::kMinusZero}),
    internal::FloatRow(DType::kF6E2M3FN, "f6e2m3fn", 6, {2, 3, 1, FloatFormat::Top::kFinite}),
    internal::FloatRow(DType::kF6E3M2FN, "f6e3m2fn", 6, {3, 2, 3, FloatFormat::Top::kFinite}),
    internal::FloatRow(DType::kF4E2M1FN, "f4e2m1fn", 4, {2, 1, 1, FloatFormat::Top::kFinite}),
    internal::FloatRow(DType::kF8E8M0FNU, "f8e8m0fnu", 8,
                       {8, 0, 127, FloatFormat::Top::kAllOnes, false}),
    internal::FloatRow(DType::kUE4M3, "ue4m3", 8, {4, 3, 7, FloatFormat::Top::kAllOnes, false}),
    DTypeRow{DType::kU16, "u16", 16, DTypeRow::Format::kUnsigned, {0, UINT16_MAX}},
};
inline constexpr size_t kDTypeCount = kDTypeRows.size();

constexpr const DTypeRow& InfoOf(DType dtype) { return kDTypeRows[static_cast<size_t>(dtype)]; }
constexpr int BitsOf(DType dtype) { return InfoOf(dtype).bits; }
// Bytes of `count` elements: sub-byte elements share bytes, and the last byte may be part empty.
constexpr size_t BytesFor(DType dtype, size_t count) {
  return (count * static_cast<size_t>(BitsOf(dtype)) + 7) / 8;
}
// Bytes to which one element is aligned in memory.
constexpr size_t AlignmentOf(DType dtype) {
  return BitsOf(dtype) < 8 ? 1 : static_cast<size_t>(BitsOf(dtype)) / 8;
}
// Bytes per element of a type of whole bytes. Aborts for others: 0 bytes would silently be nothing.
constexpr size_t SizeOf(DType dtype) {
  if (BitsOf(dtype) % 8 != 0) std::abort();
  return static_cast<size_t>(BitsOf(dtype)) / 8;
}
constexpr CodeRange RangeOf(DType dtype) { return InfoOf(dtype).range; }

constexpr std::string_view Name(DType dtype) { return InfoOf(dtype).name; }
std::optional<DType> ParseDType(std::string_view name);

// The types of quantized inputs, weights and outputs.
constexpr bool IsByteCode(DType dtype) { return dtype == DType::kU8 || dtype == DType::kS8; }
constexpr bool IsWideCode(DType dtype) { return dtype == DType::kU16 || dtype == DType::kS16; }
// Of fewer than 8 bits.
constexpr bool IsSmallCode(DType dtype) {
  return dtype == DType::kU4 || dtype == DType::kS4 || dtype == DType::kU2 || dtype == DType::kS2;
}
constexpr bool IsCode(DType dtype) {
  return IsByteCode(dtype) || IsWideCode(dtype) || IsSmallCode(dtype);
}
// The type of 8 bits that holds the same integers as a type of fewer. Others stay.
constexpr DType ByteOf(DType dtype) {
  if (!IsSmallCode(dtype)) return dtype;
  return InfoOf(dtype).format == DTypeRow::Format::kSigned ? DType::kS8 : DType::kU8;
}
// The integer type of the same bits whose highest one is read the other way. Others stay.
constexpr DType OtherSign(DType dtype) {
  switch (dtype) {
    case DType::kU8: return DType::kS8;
    case DType::kS8: return DType::kU8;
    case DType::kU16: return DType::kS16;
    case DType::kS16: return DType::kU16;
    case DType::kU4: return DType::kS4;
    case DType::kS4: return DType::kU4;
    case DType::kU2: return DType::kS2;
    case DType::kS2: return DType::kU2;
    default: return dtype;
  }
}
// Any float type. Where the elements are read as float, ask for DType::kF32.
constexpr bool IsFloat(DType dtype) { return InfoOf(dtype).format == DTypeRow::Format::kFloat; }

}  // namespace qualm

#endif  // QUALM_CORE_TYPES_H_
