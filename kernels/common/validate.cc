// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/validate.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <string>

#include "kernels/common/fp_environment.h"

namespace qualm::kernels::internal {
namespace {

const char* TypeName(ElementType type) {
  switch (type) {
    case ElementType::kU8: return "u8";
    case ElementType::kS8: return "s8";
    case ElementType::kS32: return "s32";
    case ElementType::kF32: return "f32";
  }
  return "an unknown type";
}

Status Error(std::string_view name, const std::string& rest) { return {std::string(name) + rest}; }

std::string Text(float value) {
  const ScopedFpEnvironment environment;  // the conversion to double may trap or flush
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%g", static_cast<double>(value));
  return buffer;
}

template <class Matrix>
Status CheckAnyMatrix(std::string_view name, const Matrix& m) {
  if (m.rows < 0) {
    return Error(name, ".rows is " + std::to_string(m.rows) + ", expected at least 0");
  }
  if (m.columns < 0) {
    return Error(name, ".columns is " + std::to_string(m.columns) + ", expected at least 0");
  }
  if (m.rows == 0 || m.columns == 0) return {};
  if (m.row_stride < m.columns) {
    return Error(name, ".row_stride is " + std::to_string(m.row_stride) +
                           ", expected at least columns = " + std::to_string(m.columns));
  }
  // Byte offsets are computed in int64; elements have at most 4 bytes.
  if (m.row_stride > INT64_MAX / 8 / m.rows) {
    return Error(name, ".rows * row_stride = " + std::to_string(m.rows) + " * " +
                           std::to_string(m.row_stride) + " exceeds the address space");
  }
  if (m.data == nullptr) return Error(name, ".data is null, expected rows * columns elements");
  // The remainder of a row is read and written as elements: undefined where they are misaligned.
  if (reinterpret_cast<uintptr_t>(m.data) % static_cast<uintptr_t>(SizeOf(m.type)) != 0) {
    return Error(name, ".data is misaligned, expected a multiple of " +
                           std::to_string(SizeOf(m.type)) + " bytes");
  }
  return {};
}

}  // namespace

Bounds OutputBounds(ElementType type, const OutputRange& range, int32_t zero_point) {
  Bounds bounds = TypeBounds(type);
  bounds.lo = std::max(bounds.lo, range.min);
  bounds.hi = std::min(bounds.hi, range.max);
  if (range.relu) bounds.lo = std::min(std::max(bounds.lo, zero_point), bounds.hi);
  return bounds;
}

Status CheckMatrix(std::string_view name, const ConstMatrix& matrix) {
  return CheckAnyMatrix(name, matrix);
}
Status CheckMatrix(std::string_view name, const MutableMatrix& matrix) {
  return CheckAnyMatrix(name, matrix);
}

Status CheckSameShape(const ConstMatrix& x, const MutableMatrix& y) {
  if (x.rows == y.rows && x.columns == y.columns) return {};
  return Error("y", " is " + std::to_string(y.rows) + " x " + std::to_string(y.columns) +
                        ", expected the shape of the input, " + std::to_string(x.rows) + " x " +
                        std::to_string(x.columns));
}

Status CheckCode(std::string_view name, ElementType type) {
  if (type == ElementType::kU8 || type == ElementType::kS8) return {};
  return Error(name, ".type is " + std::string(TypeName(type)) + ", expected u8 or s8");
}

Status CheckType(std::string_view name, ElementType type, ElementType expected) {
  if (type == expected) return {};
  return Error(name,
               ".type is " + std::string(TypeName(type)) + ", expected " + TypeName(expected));
}

Status CheckScale(std::string_view name, float value) {
  if (IsScale(value)) return {};
  return Error(name, " is " + Text(value) + ", expected a finite number > 0");
}

Status CheckScales(std::string_view name, std::span<const float> values, int64_t columns) {
  if (Status s = CheckCount(name, values.size(), columns); !s.ok()) return s;
  for (size_t i = 0; i < values.size(); ++i) {
    if (IsScale(values[i])) continue;
    return CheckScale(std::string(name) + "[" + std::to_string(i) + "]", values[i]);
  }
  return {};
}

Status CheckCount(std::string_view name, size_t count, int64_t columns) {
  if (count == 1 || count == static_cast<uint64_t>(columns)) return {};
  return Error(name, " has " + std::to_string(count) + " elements, expected 1 or " +
                         std::to_string(columns) + ", one per column");
}

Status CheckRequantization(Requantization requantization) {
  if (requantization <= Requantization::kFixedRndnu) return {};
  return Error("requantization", " is " + std::to_string(static_cast<int>(requantization)) +
                                     ", expected one of the enumeration");
}

Status CheckRange(std::string_view name, const OutputRange& range, ElementType type) {
  const Bounds bounds = TypeBounds(type);
  if (std::max(range.min, bounds.lo) <= std::min(range.max, bounds.hi)) return {};
  return Error(name, " is [" + std::to_string(range.min) + ", " + std::to_string(range.max) +
                         "], expected min <= max and an overlap with " + TypeName(type));
}

// The first failed check decides, in the order of the arguments.
#define QUALM_RETURN_IF_ERROR(check) \
  if (Status s = (check); !s.ok()) return s

Status ValidateQuantize(const ConstMatrix& x, std::span<const float> scale,
                        std::span<const int32_t> zero_point, const OutputRange& range,
                        const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckType("x", x.type, ElementType::kF32));
  QUALM_RETURN_IF_ERROR(CheckMatrix("x", x));
  QUALM_RETURN_IF_ERROR(CheckScales("scale", scale, x.columns));
  QUALM_RETURN_IF_ERROR(CheckCount("zero_point", zero_point.size(), x.columns));
  QUALM_RETURN_IF_ERROR(CheckCode("y", y.type));
  QUALM_RETURN_IF_ERROR(CheckRange("range", range, y.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("y", y));
  return CheckSameShape(x, y);
}

Status ValidateDequantize(const ConstMatrix& q, std::span<const float> scale,
                          std::span<const int32_t> zero_point, const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckCode("q", q.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("q", q));
  QUALM_RETURN_IF_ERROR(CheckScales("scale", scale, q.columns));
  QUALM_RETURN_IF_ERROR(CheckCount("zero_point", zero_point.size(), q.columns));
  QUALM_RETURN_IF_ERROR(CheckType("y", y.type, ElementType::kF32));
  QUALM_RETURN_IF_ERROR(CheckMatrix("y", y));
  return CheckSameShape(q, y);
}

Status ValidateRequantize(const ConstMatrix& acc, std::span<const Multiplier> multiplier,
                          const OutputRange& range, const MutableMatrix& y,
                          Requantization requantization) {
  QUALM_RETURN_IF_ERROR(CheckRequantization(requantization));
  QUALM_RETURN_IF_ERROR(CheckType("acc", acc.type, ElementType::kS32));
  QUALM_RETURN_IF_ERROR(CheckMatrix("acc", acc));
  QUALM_RETURN_IF_ERROR(CheckCount("multiplier", multiplier.size(), acc.columns));
  for (size_t i = 0; i < multiplier.size(); ++i) {
    const Multiplier& m = multiplier[i];
    for (const auto& [field, value] :
         {std::pair{"numerator_a", m.numerator_a}, std::pair{"numerator_b", m.numerator_b},
          std::pair{"denominator", m.denominator}}) {
      if (IsScale(value)) continue;
      return CheckScale("multiplier[" + std::to_string(i) + "]." + field, value);
    }
    if (m.divisor < 1 || m.divisor > int64_t{1} << 53) {
      return Error("multiplier[", std::to_string(i) + "].divisor is " + std::to_string(m.divisor) +
                                      ", expected 1..2^53");
    }
    // No library has means there, so there is no arithmetic to reproduce.
    if (m.divisor != 1 && requantization != Requantization::kExact) {
      return Error("multiplier[", std::to_string(i) + "].divisor is " + std::to_string(m.divisor) +
                                      ", expected 1 with a requantization other than exact");
    }
  }
  QUALM_RETURN_IF_ERROR(CheckCode("y", y.type));
  QUALM_RETURN_IF_ERROR(CheckRange("range", range, y.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("y", y));
  return CheckSameShape(acc, y);
}

Status ValidateRescaleCodes(const ConstMatrix& x, const Quantization& x_q, const Quantization& y_q,
                            const OutputRange& range, const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckCode("x", x.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("x", x));
  QUALM_RETURN_IF_ERROR(CheckScale("x_q.scale", x_q.scale));
  QUALM_RETURN_IF_ERROR(CheckScale("y_q.scale", y_q.scale));
  QUALM_RETURN_IF_ERROR(CheckCode("y", y.type));
  QUALM_RETURN_IF_ERROR(CheckRange("range", range, y.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("y", y));
  return CheckSameShape(x, y);
}

Status ValidateBinary(const ConstMatrix& a, const Quantization& a_q, const ConstMatrix& b,
                      const Quantization& b_q, const Quantization& y_q, const OutputRange& range,
                      const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckCode("a", a.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("a", a));
  QUALM_RETURN_IF_ERROR(CheckScale("a_q.scale", a_q.scale));
  QUALM_RETURN_IF_ERROR(CheckType("b", b.type, a.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("b", b));
  QUALM_RETURN_IF_ERROR(CheckScale("b_q.scale", b_q.scale));
  QUALM_RETURN_IF_ERROR(CheckScale("y_q.scale", y_q.scale));
  QUALM_RETURN_IF_ERROR(CheckCode("y", y.type));
  QUALM_RETURN_IF_ERROR(CheckRange("range", range, y.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("y", y));
  QUALM_RETURN_IF_ERROR(CheckSameShape(a, y));
  return CheckSameShape(b, y);
}

Status ValidateConcat(std::span<const ConcatInput> inputs, const Quantization& y_q,
                      const OutputRange& range, const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckScale("y_q.scale", y_q.scale));
  QUALM_RETURN_IF_ERROR(CheckCode("y", y.type));
  QUALM_RETURN_IF_ERROR(CheckRange("range", range, y.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("y", y));
  int64_t left = y.columns;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "inputs[" + std::to_string(i) + "]";
    const ConstMatrix& x = inputs[i].x;
    QUALM_RETURN_IF_ERROR(CheckCode(name + ".x", x.type));
    QUALM_RETURN_IF_ERROR(CheckMatrix(name + ".x", x));
    QUALM_RETURN_IF_ERROR(CheckScale(name + ".q.scale", inputs[i].q.scale));
    if (x.rows != y.rows) {
      return Error(name, ".x has " + std::to_string(x.rows) + " rows, expected those of y, " +
                             std::to_string(y.rows));
    }
    // Subtracted, so that no sum of columns overflows.
    if (x.columns > left) {
      return Error(name, ".x has " + std::to_string(x.columns) + " columns, expected at most " +
                             std::to_string(left) + ", the rest of y");
    }
    left -= x.columns;
  }
  if (left == 0) return {};
  return Error("y", ".columns is " + std::to_string(y.columns) +
                        ", expected the columns of all inputs, " +
                        std::to_string(y.columns - left));
}

Status ValidateTable(const TableParams& params) {
  if (params.function > TableFunction::kTanh) {
    return Error("function", " is " + std::to_string(static_cast<int>(params.function)) +
                                 ", expected one of TableFunction");
  }
  // The slope of functions without one is not looked at. 0 makes relu of it; a negative one would
  // be no longer monotone.
  const auto slope = std::bit_cast<uint32_t>(params.negative_slope);
  if (params.function == TableFunction::kLeakyRelu && slope != 0 &&
      !IsScale(params.negative_slope)) {
    return Error("negative_slope",
                 " is " + Text(params.negative_slope) + ", expected a finite number >= 0");
  }
  QUALM_RETURN_IF_ERROR(CheckCode("x", params.x_type));
  QUALM_RETURN_IF_ERROR(CheckScale("x_q.scale", params.x_q.scale));
  QUALM_RETURN_IF_ERROR(CheckCode("y", params.y_type));
  QUALM_RETURN_IF_ERROR(CheckScale("y_q.scale", params.y_q.scale));
  return CheckRange("range", params.range, params.y_type);
}

Status ValidateTableRun(ElementType x_type, ElementType y_type, const ConstMatrix& x,
                        const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckType("x", x.type, x_type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("x", x));
  QUALM_RETURN_IF_ERROR(CheckType("y", y.type, y_type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("y", y));
  return CheckSameShape(x, y);
}

Status ValidateSoftmax(float x_scale, int64_t columns) {
  QUALM_RETURN_IF_ERROR(CheckScale("x_scale", x_scale));
  // (2^32 - 1) / columns is the largest numerator: from 2^33 on it is 0, and so may be the sum.
  if (columns >= 0 && columns <= UINT32_MAX) return {};
  return Error("columns", " is " + std::to_string(columns) + ", expected 0..2^32 - 1");
}

Status ValidateSoftmaxRun(int64_t columns, const ConstMatrix& x, const OutputRange& range,
                          const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckCode("x", x.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("x", x));
  // The numerators depend on the number of codes that share 2^32.
  if (x.columns != columns) {
    return Error("x", ".columns is " + std::to_string(x.columns) + ", expected " +
                          std::to_string(columns) + ", as built for");
  }
  QUALM_RETURN_IF_ERROR(CheckType("y", y.type, x.type));
  QUALM_RETURN_IF_ERROR(CheckRange("range", range, y.type));
  if (range.relu) return Error("range", ".relu is set, expected none: no output is negative");
  QUALM_RETURN_IF_ERROR(CheckMatrix("y", y));
  return CheckSameShape(x, y);
}

}  // namespace qualm::kernels::internal
