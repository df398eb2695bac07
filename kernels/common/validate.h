// SPDX-License-Identifier: Apache-2.0
// Preconditions of the public kernels, each with its reason. Internal to kernels/.
#ifndef QUALM_KERNELS_COMMON_VALIDATE_H_
#define QUALM_KERNELS_COMMON_VALIDATE_H_

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/types.h"

namespace qualm::kernels::internal {

// Smallest and largest value of an integer element type (of int32 for kF32).
struct Bounds {
  int32_t lo = 0;
  int32_t hi = 0;
};
constexpr Bounds TypeBounds(ElementType type) {
  switch (type) {
    case ElementType::kU8: return {0, 255};
    case ElementType::kS8: return {-128, 127};
    case ElementType::kS32:
    case ElementType::kF32: break;
  }
  return {INT32_MIN, INT32_MAX};
}

// Bytes of one element.
constexpr int64_t SizeOf(ElementType type) {
  return type == ElementType::kU8 || type == ElementType::kS8 ? 1 : 4;
}

// `range` within the type, fused activation included: the output is min(max(v, lo), hi). Where the
// activation's lower bound exceeds the upper one, every output is the upper one. `range` is valid.
Bounds OutputBounds(ElementType type, const OutputRange& range, int32_t zero_point);

// Finite and > 0. By its bits, because validation runs in the caller's floating-point environment,
// where denormals may compare equal to zero and a signalling NaN may trap.
constexpr bool IsScale(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return bits >= 1 && bits <= 0x7F7FFFFF;
}

// "%g", in any floating-point environment.
std::string Text(float value);

// Ends a list of checks at the first that fails: its message is the answer.
#define QUALM_RETURN_IF_ERROR(check) \
  if (Status s = (check); !s.ok()) return s

// One rule each. `name` is the argument that the message names.
Status CheckMatrix(std::string_view name, const ConstMatrix& matrix);
Status CheckMatrix(std::string_view name, const MutableMatrix& matrix);
Status CheckSameShape(const ConstMatrix& x, const MutableMatrix& y);
Status CheckCode(std::string_view name, ElementType type);  // u8 or s8
Status CheckType(std::string_view name, ElementType type, ElementType expected);
Status CheckScale(std::string_view name, float value);
Status CheckScales(std::string_view name, std::span<const float> values, int64_t columns);
// One value, or one per column.
Status CheckCount(std::string_view name, size_t count, int64_t columns);
Status CheckRequantization(Requantization requantization);  // one of the enumeration
Status CheckRange(std::string_view name, const OutputRange& range, ElementType type);
Status CheckSize(std::string_view name, int64_t value, int64_t expected, std::string_view what);
// "NAME is VALUE, expected EXPECTED".
Status IsButExpected(std::string_view name, int64_t value, const std::string& expected);

// An error where two of x, y and scratch share a byte: a layer writes outputs while it still has
// activations to read. Matrices are valid; rows of x and y with equal strides may be interleaved.
Status CheckDisjoint(const ConstMatrix& x, const MutableMatrix& y,
                     std::span<const uint8_t> scratch);

// All rules of one operation each. Operations with types of their own check them in their own file.
Status ValidateQuantize(const ConstMatrix& x, std::span<const float> scale,
                        std::span<const int32_t> zero_point, const OutputRange& range,
                        const MutableMatrix& y);
Status ValidateDequantize(const ConstMatrix& q, std::span<const float> scale,
                          std::span<const int32_t> zero_point, const MutableMatrix& y);
Status ValidateRequantize(const ConstMatrix& acc, std::span<const Multiplier> multiplier,
                          const OutputRange& range, const MutableMatrix& y,
                          Requantization requantization = Requantization::kExact);
Status ValidateRescaleCodes(const ConstMatrix& x, const Quantization& x_q, const Quantization& y_q,
                            const OutputRange& range, const MutableMatrix& y);
Status ValidateBinary(const ConstMatrix& a, const Quantization& a_q, const ConstMatrix& b,
                      const Quantization& b_q, const Quantization& y_q, const OutputRange& range,
                      const MutableMatrix& y);

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_COMMON_VALIDATE_H_
