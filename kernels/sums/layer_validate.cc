// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of linear layers and convolutions: success, or one sentence that names
// the argument. Packing and the inner loops rely on them.
#include "kernels/sums/layer_validate.h"

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "kernels/common/validate.h"

namespace qualm::kernels {
namespace {

using internal::AsMatrix;
using internal::CheckCode;
using internal::CheckCount;
using internal::CheckDisjoint;
using internal::CheckImages;
using internal::CheckMatrix;
using internal::CheckRange;
using internal::CheckScale;
using internal::CheckScales;
using internal::CheckSize;
using internal::CheckType;
using internal::CheckWindow;
using internal::IsButExpected;

Status CheckInputType(ElementType type) {
  if (type == ElementType::kU8 || type == ElementType::kS8) return {};
  return {"input_type is neither u8 nor s8, expected one of them"};
}

template <class T>
Status CheckBiasCount(std::string_view name, std::span<const T> bias, int64_t channels) {
  if (bias.empty() || bias.size() == static_cast<uint64_t>(channels)) return {};
  return {std::string(name) + " has " + std::to_string(bias.size()) +
          " elements, expected none or one per output channel (" + std::to_string(channels) + ")"};
}

Status CheckFinite(std::string_view name, std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      return {std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(values[i]) +
              ", expected a finite number"};
    }
  }
  return {};
}

Status CheckOutput(const LinearParams& params) {
  switch (params.output_type) {
    case ElementType::kU8:
    case ElementType::kS8: return CheckScale("y_scale", params.y_scale);
    case ElementType::kS32:
      // The raw sum has no real unit that a float bias could be converted to.
      if (params.bias.empty()) return {};
      return {"bias is given with s32 outputs, expected bias_i32 or none"};
    case ElementType::kF32:
      // float32 outputs have no codes to clamp to: the clamp would be silently ignored.
      if (params.range.min == INT32_MIN && params.range.max == INT32_MAX) return {};
      return {"range.min or range.max is set with f32 outputs, expected no clamp"};
  }
  return {"output_type is unknown, expected u8, s8, s32 or f32"};
}

Status CheckRequantization(const LinearParams& params) {
  if (Status s = internal::CheckRequantization(params.requantization); !s.ok()) return s;
  if (params.requantization == Requantization::kExact) return {};
  if (params.output_type != ElementType::kU8 && params.output_type != ElementType::kS8) {
    return {"requantization is set with outputs that are no codes, expected u8 or s8 outputs"};
  }
  // Each library converts a float bias to int32 in its own way, before this step.
  if (!params.bias.empty()) {
    return {"bias is given with a requantization other than exact, expected bias_i32 or none"};
  }
  return {};
}

Status CheckAtLeast(std::string_view name, int64_t value, int64_t least) {
  if (value >= least) return {};
  return IsButExpected(name, value, "at least " + std::to_string(least));
}

// Whether the matrix has elements and passes every check below.
template <class Matrix>
bool IsOrdinary(const Matrix& m, ElementType type, int64_t columns) {
  constexpr int64_t kMost = int64_t{1} << 29;
  return m.type == type && m.columns == columns && m.rows > 0 && m.rows < kMost && m.columns > 0 &&
         m.row_stride >= m.columns && m.row_stride < kMost && m.data != nullptr &&
         reinterpret_cast<uintptr_t>(m.data) % static_cast<uintptr_t>(internal::SizeOf(type)) == 0;
}

// The bytes from the first to the last element come wholly before or after those of the other.
bool AreApart(uintptr_t a, int64_t a_bytes, uintptr_t b, int64_t b_bytes) {
  return a + static_cast<uintptr_t>(a_bytes) <= b || b + static_cast<uintptr_t>(b_bytes) <= a;
}

// True only for what passes all checks of ValidateLinearRun: nearly every call, in some
// nanoseconds.
bool IsOrdinaryRun(const LinearShape& layer, const ConstMatrix& x, const MutableMatrix& y,
                   std::span<const uint8_t> scratch) {
  if (x.rows != y.rows || !IsOrdinary(x, layer.input_type, layer.depth) ||
      !IsOrdinary(y, layer.output_type, layer.channels)) {
    return false;
  }
  const uintptr_t x_begin = reinterpret_cast<uintptr_t>(x.data);
  const uintptr_t y_begin = reinterpret_cast<uintptr_t>(y.data);
  const uintptr_t scratch_begin = reinterpret_cast<uintptr_t>(scratch.data());
  const int64_t x_bytes = x.rows * x.row_stride * internal::SizeOf(x.type);
  const int64_t y_bytes = y.rows * y.row_stride * internal::SizeOf(y.type);
  const int64_t scratch_bytes = static_cast<int64_t>(scratch.size());
  return AreApart(x_begin, x_bytes, y_begin, y_bytes) &&
         AreApart(scratch_begin, scratch_bytes, x_begin, x_bytes) &&
         AreApart(scratch_begin, scratch_bytes, y_begin, y_bytes);
}

// Every group has the same number of input channels and of output channels.
Status CheckGroups(const ConvParams& params) {
  if (params.in_channels % params.groups != 0) {
    return IsButExpected("groups", params.groups,
                         "a divisor of in_channels, " + std::to_string(params.in_channels));
  }
  if (params.layer.weights.rows % params.groups != 0) {
    return IsButExpected(
        "groups", params.groups,
        "a divisor of the output channels, " + std::to_string(params.layer.weights.rows));
  }
  return {};
}

// No overflow: kernel sizes are at most 2^30 (CheckWindow).
Status CheckDepth(const ConvParams& params) {
  const __int128 depth = static_cast<__int128>(params.window.kernel_h) * params.window.kernel_w *
                         (params.in_channels / params.groups);
  if (params.layer.weights.columns == depth) return {};
  return IsButExpected("weights.columns", params.layer.weights.columns,
                       "kernel_h * kernel_w * in_channels / groups");
}

}  // namespace

Status ValidateLinearParams(const LinearParams& params) {
  const int64_t channels = params.weights.rows;
  QUALM_RETURN_IF_ERROR(CheckCode("weights", params.weights.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("weights", params.weights));
  QUALM_RETURN_IF_ERROR(CheckInputType(params.input_type));
  QUALM_RETURN_IF_ERROR(CheckScale("x_scale", params.x_scale));
  QUALM_RETURN_IF_ERROR(CheckScales("w_scale", params.w_scale, channels));
  QUALM_RETURN_IF_ERROR(CheckCount("w_zero_point", params.w_zero_point.size(), channels));
  QUALM_RETURN_IF_ERROR(CheckBiasCount("bias", params.bias, channels));
  QUALM_RETURN_IF_ERROR(CheckFinite("bias", params.bias));
  QUALM_RETURN_IF_ERROR(CheckBiasCount("bias_i32", params.bias_i32, channels));
  // bias and bias_i32 are two ways to give one bias; adding both would hide a mistake of the
  // caller.
  if (!params.bias.empty() && !params.bias_i32.empty()) {
    return {"bias and bias_i32 are both given, expected at most one"};
  }
  QUALM_RETURN_IF_ERROR(CheckOutput(params));
  QUALM_RETURN_IF_ERROR(CheckRequantization(params));
  return CheckRange("range", params.range, params.output_type);
}

Status ValidateLinearRun(const LinearShape& layer, const ConstMatrix& x, const MutableMatrix& y,
                         std::span<const uint8_t> scratch) {
  if (IsOrdinaryRun(layer, x, y, scratch)) return {};
  QUALM_RETURN_IF_ERROR(CheckType("x", x.type, layer.input_type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("x", x));
  QUALM_RETURN_IF_ERROR(CheckSize("x.columns", x.columns, layer.depth, "K of the weights"));
  QUALM_RETURN_IF_ERROR(CheckType("y", y.type, layer.output_type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("y", y));
  QUALM_RETURN_IF_ERROR(CheckSize("y.columns", y.columns, layer.channels, "N of the weights"));
  QUALM_RETURN_IF_ERROR(CheckSize("y.rows", y.rows, x.rows, "x.rows"));
  return CheckDisjoint(x, y, scratch);
}

Status ValidateConvParams(const ConvParams& params) {
  QUALM_RETURN_IF_ERROR(ValidateLinearParams(params.layer));
  QUALM_RETURN_IF_ERROR(CheckAtLeast("in_channels", params.in_channels, 0));
  QUALM_RETURN_IF_ERROR(CheckAtLeast("groups", params.groups, 1));
  QUALM_RETURN_IF_ERROR(CheckGroups(params));
  WindowGeometry window = params.window;
  window.in_h = window.in_w = 0;  // come with the images
  QUALM_RETURN_IF_ERROR(CheckWindow(window));
  return CheckDepth(params);
}

Status ValidateConvRun(const ConvShape& layer, const ConstImages& x, const MutableMatrix& y,
                       std::span<const uint8_t> scratch) {
  QUALM_RETURN_IF_ERROR(CheckType("x", x.type, layer.input_type));
  QUALM_RETURN_IF_ERROR(CheckImages(x));
  QUALM_RETURN_IF_ERROR(
      CheckSize("x.channels", x.channels, layer.in_channels, "in_channels of the layer"));
  WindowGeometry window = layer.window;
  window.in_h = x.height;
  window.in_w = x.width;
  QUALM_RETURN_IF_ERROR(CheckWindow(window));
  QUALM_RETURN_IF_ERROR(CheckType("y", y.type, layer.output_type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("y", y));
  QUALM_RETURN_IF_ERROR(CheckSize("y.columns", y.columns, layer.channels, "N of the weights"));
  const int64_t out_h = ConvOutputHeight(window);
  const int64_t out_w = ConvOutputWidth(window);
  if (y.rows != static_cast<__int128>(out_h) * out_w * x.batch) {
    return IsButExpected("y.rows", y.rows,
                         "batch * OH * OW = " + std::to_string(x.batch) + " * " +
                             std::to_string(out_h) + " * " + std::to_string(out_w));
  }
  return CheckDisjoint(AsMatrix(x), y, scratch);
}

}  // namespace qualm::kernels
