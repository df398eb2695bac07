// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of kernels: success, or one sentence that names the argument. Nothing is
// rounded: scales are compared by their bits, and sizes are multiplied without overflow.
#include "kernels/common/validate.h"

#include <algorithm>
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

// Small calls take little longer than their checks. So each check is a condition, which the
// compiler puts into the callers of this file, and a function of its own that writes the message.
#define QUALM_COLD [[gnu::cold, gnu::noinline]]

QUALM_COLD Status Error(std::string_view name, const std::string& rest) {
  return {std::string(name) + rest};
}

// Enough for an answer of CheckAnyMatrix without a message.
template <class Matrix>
bool IsPlain(const Matrix& m) {
  int64_t elements = 0;
  const auto last_bits = static_cast<uintptr_t>(SizeOf(m.type)) - 1;  // of a misaligned address
  return m.rows > 0 && m.columns > 0 && m.row_stride >= m.columns &&
         !__builtin_mul_overflow(m.rows, m.row_stride, &elements) && elements <= INT64_MAX / 8 &&
         m.data != nullptr && (reinterpret_cast<uintptr_t>(m.data) & last_bits) == 0;
}

template <class Matrix>
QUALM_COLD Status CheckAnyMatrix(std::string_view name, const Matrix& m) {
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

// The bytes [begin, end) from a matrix's first to its last element.
struct Extent {
  uintptr_t begin = 0;
  uintptr_t end = 0;

  bool Intersects(const Extent& other) const {
    return begin < end && other.begin < other.end && begin < other.end && other.begin < end;
  }
};

template <class Matrix>
Extent ExtentOf(const Matrix& m) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(m.data);
  if (m.rows == 0 || m.columns == 0) return {begin, begin};
  return {begin, begin + static_cast<uintptr_t>(((m.rows - 1) * m.row_stride + m.columns) *
                                                SizeOf(m.type))};
}

// Two matrices may be the left and the right part of one buffer: their extents intersect, their
// elements do not.
bool Overlap(const ConstMatrix& x, const MutableMatrix& y) {
  const Extent x_extent = ExtentOf(x);
  const Extent y_extent = ExtentOf(y);
  if (!x_extent.Intersects(y_extent)) return false;
  const uintptr_t stride = static_cast<uintptr_t>(x.row_stride * SizeOf(x.type));
  if (stride != static_cast<uintptr_t>(y.row_stride * SizeOf(y.type))) return true;
  const uintptr_t x_row = static_cast<uintptr_t>(x.columns * SizeOf(x.type));
  const uintptr_t y_row = static_cast<uintptr_t>(y.columns * SizeOf(y.type));
  // How far a row of y begins behind the start of the last row of x that starts at or before it.
  const uintptr_t shift = y_extent.begin >= x_extent.begin
                              ? (y_extent.begin - x_extent.begin) % stride
                              : stride - 1 - (x_extent.begin - y_extent.begin - 1) % stride;
  return shift < x_row || shift + y_row > stride;
}

}  // namespace

std::string Text(float value) {
  const ScopedFpEnvironment environment;  // the conversion to double may trap or flush
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%g", static_cast<double>(value));
  return buffer;
}

Bounds OutputBounds(ElementType type, const OutputRange& range, int32_t zero_point) {
  Bounds bounds = TypeBounds(type);
  bounds.lo = std::max(bounds.lo, range.min);
  bounds.hi = std::min(bounds.hi, range.max);
  if (range.relu) bounds.lo = std::min(std::max(bounds.lo, zero_point), bounds.hi);
  return bounds;
}

Status CheckMatrix(std::string_view name, const ConstMatrix& matrix) {
  return IsPlain(matrix) ? Status{} : CheckAnyMatrix(name, matrix);
}
Status CheckMatrix(std::string_view name, const MutableMatrix& matrix) {
  return IsPlain(matrix) ? Status{} : CheckAnyMatrix(name, matrix);
}

namespace {
QUALM_COLD Status OtherShape(const ConstMatrix& x, const MutableMatrix& y) {
  return Error("y", " is " + std::to_string(y.rows) + " x " + std::to_string(y.columns) +
                        ", expected the shape of the input, " + std::to_string(x.rows) + " x " +
                        std::to_string(x.columns));
}

QUALM_COLD Status NoCode(std::string_view name, ElementType type) {
  return Error(name, ".type is " + std::string(TypeName(type)) + ", expected u8 or s8");
}
QUALM_COLD Status OtherType(std::string_view name, ElementType type, ElementType expected) {
  return Error(name,
               ".type is " + std::string(TypeName(type)) + ", expected " + TypeName(expected));
}
QUALM_COLD Status NoScale(std::string_view name, float value) {
  return Error(name, " is " + Text(value) + ", expected a finite number > 0");
}
QUALM_COLD Status NoScaleAt(std::string_view name, size_t i, float value) {
  return NoScale(std::string(name) + "[" + std::to_string(i) + "]", value);
}
QUALM_COLD Status OtherCount(std::string_view name, size_t count, int64_t columns) {
  return Error(name, " has " + std::to_string(count) + " elements, expected 1 or " +
                         std::to_string(columns) + ", one per column");
}
QUALM_COLD Status EmptyRange(std::string_view name, const OutputRange& range, ElementType type) {
  return Error(name, " is [" + std::to_string(range.min) + ", " + std::to_string(range.max) +
                         "], expected min <= max and an overlap with " + TypeName(type));
}
}  // namespace

Status CheckSameShape(const ConstMatrix& x, const MutableMatrix& y) {
  return x.rows == y.rows && x.columns == y.columns ? Status{} : OtherShape(x, y);
}

Status CheckCode(std::string_view name, ElementType type) {
  return type == ElementType::kU8 || type == ElementType::kS8 ? Status{} : NoCode(name, type);
}

Status CheckType(std::string_view name, ElementType type, ElementType expected) {
  return type == expected ? Status{} : OtherType(name, type, expected);
}

Status CheckScale(std::string_view name, float value) {
  return IsScale(value) ? Status{} : NoScale(name, value);
}

Status CheckScales(std::string_view name, std::span<const float> values, int64_t columns) {
  QUALM_RETURN_IF_ERROR(CheckCount(name, values.size(), columns));
  for (size_t i = 0; i < values.size(); ++i) {
    if (!IsScale(values[i])) return NoScaleAt(name, i, values[i]);
  }
  return {};
}

Status CheckCount(std::string_view name, size_t count, int64_t columns) {
  const bool fits = count == 1 || count == static_cast<uint64_t>(columns);
  return fits ? Status{} : OtherCount(name, count, columns);
}

Status CheckRequantization(Requantization requantization) {
  if (requantization <= Requantization::kFixedRndnu) return {};
  return Error("requantization", " is " + std::to_string(static_cast<int>(requantization)) +
                                     ", expected one of the enumeration");
}

Status CheckRange(std::string_view name, const OutputRange& range, ElementType type) {
  const Bounds bounds = TypeBounds(type);
  const bool fits = std::max(range.min, bounds.lo) <= std::min(range.max, bounds.hi);
  return fits ? Status{} : EmptyRange(name, range, type);
}

Status IsButExpected(std::string_view name, int64_t value, const std::string& expected) {
  return Error(name, " is " + std::to_string(value) + ", expected " + expected);
}

Status CheckSize(std::string_view name, int64_t value, int64_t expected, std::string_view what) {
  if (value == expected) return {};
  return IsButExpected(name, value, std::string(what) + ", " + std::to_string(expected));
}

Status CheckDisjoint(const ConstMatrix& x, const MutableMatrix& y,
                     std::span<const uint8_t> scratch) {
  if (Overlap(x, y)) return {"y overlaps x, expected separate memory"};
  const uintptr_t begin = reinterpret_cast<uintptr_t>(scratch.data());
  const Extent extent = {begin, begin + scratch.size()};
  if (extent.Intersects(ExtentOf(x))) return {"scratch overlaps x, expected separate memory"};
  if (extent.Intersects(ExtentOf(y))) return {"scratch overlaps y, expected separate memory"};
  return {};
}

namespace {

// Codes y of the shape of x, clamped to `range`.
Status CheckCodesOut(const ConstMatrix& x, const OutputRange& range, const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckCode("y", y.type));
  QUALM_RETURN_IF_ERROR(CheckRange("range", range, y.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("y", y));
  return CheckSameShape(x, y);
}

bool IsDivisor(int64_t divisor) { return divisor >= 1 && divisor <= int64_t{1} << 53; }

bool IsMultiplier(const Multiplier& m) {
  return IsScale(m.numerator_a) && IsScale(m.numerator_b) && IsScale(m.denominator) &&
         IsDivisor(m.divisor);
}

// True only for what passes the checks of x and CheckCodesOut: nearly every call, and without an
// answer in memory for each check.
bool AreOrdinary(const ConstMatrix& x, ElementType type, const OutputRange& range,
                 const MutableMatrix& y) {
  const bool is_code = y.type == ElementType::kU8 || y.type == ElementType::kS8;
  const Bounds bounds = TypeBounds(y.type);
  return x.type == type && is_code && x.rows == y.rows && x.columns == y.columns &&
         std::max(range.min, bounds.lo) <= std::min(range.max, bounds.hi) && IsPlain(x) &&
         IsPlain(y);
}

}  // namespace

Status ValidateQuantize(const ConstMatrix& x, std::span<const float> scale,
                        std::span<const int32_t> zero_point, const OutputRange& range,
                        const MutableMatrix& y) {
  if (AreOrdinary(x, ElementType::kF32, range, y) && scale.size() == 1 && IsScale(scale[0]) &&
      zero_point.size() == 1) {
    return {};
  }
  QUALM_RETURN_IF_ERROR(CheckType("x", x.type, ElementType::kF32));
  QUALM_RETURN_IF_ERROR(CheckMatrix("x", x));
  QUALM_RETURN_IF_ERROR(CheckScales("scale", scale, x.columns));
  QUALM_RETURN_IF_ERROR(CheckCount("zero_point", zero_point.size(), x.columns));
  return CheckCodesOut(x, range, y);
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
  if (requantization == Requantization::kExact && multiplier.size() == 1 &&
      IsMultiplier(multiplier[0]) && AreOrdinary(acc, ElementType::kS32, range, y)) {
    return {};
  }
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
    if (!IsDivisor(m.divisor)) {
      return Error("multiplier[", std::to_string(i) + "].divisor is " + std::to_string(m.divisor) +
                                      ", expected 1..2^53");
    }
    // No library has means there, so there is no arithmetic to reproduce.
    if (m.divisor != 1 && requantization != Requantization::kExact) {
      return Error("multiplier[", std::to_string(i) + "].divisor is " + std::to_string(m.divisor) +
                                      ", expected 1 with a requantization other than exact");
    }
  }
  return CheckCodesOut(acc, range, y);
}

Status ValidateRescaleCodes(const ConstMatrix& x, const Quantization& x_q, const Quantization& y_q,
                            const OutputRange& range, const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckCode("x", x.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("x", x));
  QUALM_RETURN_IF_ERROR(CheckScale("x_q.scale", x_q.scale));
  QUALM_RETURN_IF_ERROR(CheckScale("y_q.scale", y_q.scale));
  return CheckCodesOut(x, range, y);
}

Status ValidateBinary(const ConstMatrix& a, const Quantization& a_q, const ConstMatrix& b,
                      const Quantization& b_q, const Quantization& y_q, const OutputRange& range,
                      const MutableMatrix& y) {
  if ((a.type == ElementType::kU8 || a.type == ElementType::kS8) &&
      AreOrdinary(a, a.type, range, y) && b.type == a.type && b.rows == y.rows &&
      b.columns == y.columns && IsPlain(b) && IsScale(a_q.scale) && IsScale(b_q.scale) &&
      IsScale(y_q.scale)) {
    return {};
  }
  QUALM_RETURN_IF_ERROR(CheckCode("a", a.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("a", a));
  QUALM_RETURN_IF_ERROR(CheckScale("a_q.scale", a_q.scale));
  QUALM_RETURN_IF_ERROR(CheckType("b", b.type, a.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("b", b));
  QUALM_RETURN_IF_ERROR(CheckScale("b_q.scale", b_q.scale));
  QUALM_RETURN_IF_ERROR(CheckScale("y_q.scale", y_q.scale));
  QUALM_RETURN_IF_ERROR(CheckCodesOut(a, range, y));
  return CheckSameShape(b, y);
}

}  // namespace qualm::kernels::internal
