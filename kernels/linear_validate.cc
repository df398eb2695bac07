// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear_validate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

namespace qualm::kernels {
namespace {

bool IsByte(ElementType type) { return type == ElementType::kU8 || type == ElementType::kS8; }

int64_t SizeOf(ElementType type) { return IsByte(type) ? 1 : 4; }

std::string NameOf(ElementType type) {
  switch (type) {
    case ElementType::kU8: return "u8";
    case ElementType::kS8: return "s8";
    case ElementType::kS32: return "s32";
    case ElementType::kF32: return "f32";
  }
  return "unknown type " + std::to_string(static_cast<int>(type));
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
  // Where a row of y begins within the row of x at or before it.
  const uintptr_t shift = y_extent.begin >= x_extent.begin
                              ? (y_extent.begin - x_extent.begin) % stride
                              : stride - 1 - (x_extent.begin - y_extent.begin - 1) % stride;
  return shift < x_row || shift + y_row > stride;
}

// What must hold before an address of the matrix may be computed at all.
template <class Matrix>
std::string MatrixError(const std::string& name, const Matrix& m) {
  if (m.rows < 0) return name + ".rows is " + std::to_string(m.rows) + ", expected >= 0";
  if (m.columns < 0) return name + ".columns is " + std::to_string(m.columns) + ", expected >= 0";
  // A smaller stride makes rows overlap: an output would be written twice.
  if (m.row_stride < m.columns) {
    return name + ".row_stride is " + std::to_string(m.row_stride) + ", expected >= columns (" +
           std::to_string(m.columns) + ")";
  }
  if (m.rows == 0 || m.columns == 0) return "";
  if (m.data == nullptr) return name + ".data is null, expected elements";
  const uintptr_t address = reinterpret_cast<uintptr_t>(m.data);
  if (address % static_cast<uintptr_t>(SizeOf(m.type)) != 0) {
    return name + ".data is not aligned, expected a multiple of " + std::to_string(SizeOf(m.type)) +
           " bytes";
  }
  // Otherwise the address of the last element wraps.
  int64_t bytes = 0;
  if (__builtin_mul_overflow(m.rows - 1, m.row_stride, &bytes) ||
      __builtin_add_overflow(bytes, m.columns, &bytes) ||
      __builtin_mul_overflow(bytes, SizeOf(m.type), &bytes) || bytes > PTRDIFF_MAX ||
      static_cast<uintptr_t>(bytes) > UINTPTR_MAX - address) {
    return name + " spans more bytes than memory has, expected rows * row_stride to be addressable";
  }
  return "";
}

std::string ScaleError(const std::string& name, float scale) {
  if (std::isfinite(scale) && scale > 0) return "";
  return name + " is " + std::to_string(scale) + ", expected finite and > 0";
}

std::string CountError(const std::string& name, size_t size, int64_t channels,
                       const std::string& alternative) {
  return name + " has " + std::to_string(size) + " elements, expected " + alternative +
         " or one per output channel (" + std::to_string(channels) + ")";
}

std::string ParamsError(const LinearParams& params) {
  if (!IsByte(params.weights.type)) {
    return "weights.type is " + NameOf(params.weights.type) + ", expected u8 or s8";
  }
  if (std::string error = MatrixError("weights", params.weights); !error.empty()) return error;
  if (!IsByte(params.input_type)) {
    return "input_type is " + NameOf(params.input_type) + ", expected u8 or s8";
  }
  const int64_t channels = params.weights.rows;
  const size_t n = static_cast<size_t>(channels);

  if (std::string error = ScaleError("x_scale", params.x_scale); !error.empty()) return error;
  if (params.w_scale.size() != 1 && params.w_scale.size() != n) {
    return CountError("w_scale", params.w_scale.size(), channels, "1");
  }
  for (size_t i = 0; i < params.w_scale.size(); ++i) {
    std::string error = ScaleError("w_scale[" + std::to_string(i) + "]", params.w_scale[i]);
    if (!error.empty()) return error;
  }
  if (params.w_zero_point.size() != 1 && params.w_zero_point.size() != n) {
    return CountError("w_zero_point", params.w_zero_point.size(), channels, "1");
  }

  if (!params.bias.empty() && params.bias.size() != n) {
    return CountError("bias", params.bias.size(), channels, "none");
  }
  for (size_t i = 0; i < params.bias.size(); ++i) {
    if (!std::isfinite(params.bias[i])) {
      return "bias[" + std::to_string(i) + "] is " + std::to_string(params.bias[i]) +
             ", expected finite";
    }
  }
  if (!params.bias_i32.empty() && params.bias_i32.size() != n) {
    return CountError("bias_i32", params.bias_i32.size(), channels, "none");
  }
  // They are two ways to give one thing; adding both would hide a mistake of the caller.
  if (!params.bias.empty() && !params.bias_i32.empty()) {
    return "bias and bias_i32 are both given, expected at most one";
  }

  switch (params.output_type) {
    case ElementType::kU8:
    case ElementType::kS8:
      if (std::string error = ScaleError("y_scale", params.y_scale); !error.empty()) return error;
      break;
    case ElementType::kS32:
      // The raw sum has no real unit a float bias could be converted to.
      if (!params.bias.empty()) return "bias is given with s32 outputs, expected bias_i32 or none";
      break;
    case ElementType::kF32:
      // float32 outputs have no codes to clamp to; a clamp given here would be silently ignored.
      if (params.range.min != INT32_MIN || params.range.max != INT32_MAX) {
        return "range.min or range.max is set with f32 outputs, expected no clamp";
      }
      break;
    default:
      return "output_type is " + NameOf(params.output_type) + ", expected u8, s8, s32 or f32";
  }
  int32_t type_min = INT32_MIN;
  int32_t type_max = INT32_MAX;
  if (params.output_type == ElementType::kU8) type_min = 0, type_max = 255;
  if (params.output_type == ElementType::kS8) type_min = -128, type_max = 127;
  if (std::max(params.range.min, type_min) > std::min(params.range.max, type_max)) {
    return "range is [" + std::to_string(params.range.min) + ", " +
           std::to_string(params.range.max) + "], expected a code of the output type in it";
  }
  return "";
}

std::string RunError(const LinearShape& layer, const ConstMatrix& x, const MutableMatrix& y,
                     std::span<const uint8_t> scratch) {
  if (x.type != layer.input_type) {
    return "x.type is " + NameOf(x.type) + ", expected " + NameOf(layer.input_type) +
           " as at packing";
  }
  if (y.type != layer.output_type) {
    return "y.type is " + NameOf(y.type) + ", expected " + NameOf(layer.output_type) +
           " as at packing";
  }
  if (std::string error = MatrixError("x", x); !error.empty()) return error;
  if (std::string error = MatrixError("y", y); !error.empty()) return error;
  if (x.columns != layer.depth) {
    return "x.columns is " + std::to_string(x.columns) + ", expected K of the weights (" +
           std::to_string(layer.depth) + ")";
  }
  if (y.columns != layer.channels) {
    return "y.columns is " + std::to_string(y.columns) + ", expected N of the weights (" +
           std::to_string(layer.channels) + ")";
  }
  if (y.rows != x.rows) {
    return "y.rows is " + std::to_string(y.rows) + ", expected x.rows (" + std::to_string(x.rows) +
           ")";
  }
  // Outputs are written while later activations are still to be read.
  if (Overlap(x, y)) return "y overlaps x, expected separate memory";
  const uintptr_t begin = reinterpret_cast<uintptr_t>(scratch.data());
  const Extent scratch_extent = {begin, begin + scratch.size()};
  if (scratch_extent.Intersects(ExtentOf(x))) {
    return "scratch overlaps x, expected separate memory";
  }
  if (scratch_extent.Intersects(ExtentOf(y))) {
    return "scratch overlaps y, expected separate memory";
  }
  return "";
}

}  // namespace

Status ValidateLinearParams(const LinearParams& params) { return {ParamsError(params)}; }

Status ValidateLinearRun(const LinearShape& layer, const ConstMatrix& x, const MutableMatrix& y,
                         std::span<const uint8_t> scratch) {
  return {RunError(layer, x, y, scratch)};
}

}  // namespace qualm::kernels
