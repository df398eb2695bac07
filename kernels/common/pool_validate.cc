// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/pool_validate.h"

#include <string>

#include "kernels/common/validate.h"

// The first failed check decides, in the order of the arguments.
#define QUALM_RETURN_IF_ERROR(check) \
  if (Status s = (check); !s.ok()) return s

namespace qualm::kernels::internal {
namespace {

Status Error(const char* name, const std::string& rest) { return {name + rest}; }

WindowGeometry WindowOn(const ConstImages& x, const PoolShape& shape) {
  WindowGeometry window = shape.window;
  window.in_h = x.height;
  window.in_w = x.width;
  return window;
}

Status CheckSize(const char* name, int64_t value) {
  constexpr int64_t kMost = int64_t{1} << 30;  // as in CheckWindow
  if (value >= 0 && value <= kMost) return {};
  return Error(name, " is " + std::to_string(value) + ", expected 0.." + std::to_string(kMost));
}

// Every output has something that counts under its window.
Status CheckNoneEmpty(const ConstImages& x, const PoolShape& shape, bool count_padding) {
  const WindowGeometry window = WindowOn(x, shape);
  const auto counts = [&](const AxisWindow& w) {
    return count_padding ? w.counted > 0 : w.begin < w.end;
  };
  bool ok = true;
  for (int64_t i = 0; i < shape.out_h; ++i) ok = ok && counts(WindowAlongH(window, i));
  for (int64_t i = 0; i < shape.out_w; ++i) ok = ok && counts(WindowAlongW(window, i));
  if (ok) return {};
  return Error("shape", std::string(" has a window without a pixel of the image") +
                            (count_padding ? " or its padding" : "") +
                            ", expected at least one in each");
}

Status CheckPool(const ConstImages& x, const PoolShape& shape, bool count_padding,
                 const OutputRange& range, const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckCode("x", x.type));
  QUALM_RETURN_IF_ERROR(CheckImages(x));
  QUALM_RETURN_IF_ERROR(CheckWindow(WindowOn(x, shape)));
  QUALM_RETURN_IF_ERROR(CheckSize("shape.out_h", shape.out_h));
  QUALM_RETURN_IF_ERROR(CheckSize("shape.out_w", shape.out_w));
  QUALM_RETURN_IF_ERROR(CheckCode("y", y.type));
  QUALM_RETURN_IF_ERROR(CheckRange("range", range, y.type));
  QUALM_RETURN_IF_ERROR(CheckMatrix("y", y));
  if (y.rows != static_cast<__int128>(shape.out_h) * shape.out_w * x.batch) {
    return Error("y", ".rows is " + std::to_string(y.rows) +
                          ", expected batch * out_h * out_w = " + std::to_string(x.batch) + " * " +
                          std::to_string(shape.out_h) + " * " + std::to_string(shape.out_w));
  }
  if (y.columns != x.channels) {
    return Error("y", ".columns is " + std::to_string(y.columns) +
                          ", expected x.channels = " + std::to_string(x.channels));
  }
  QUALM_RETURN_IF_ERROR(CheckDisjoint(AsMatrix(x), y, {}));
  return y.rows == 0 ? Status{} : CheckNoneEmpty(x, shape, count_padding);
}

}  // namespace

Status ValidateMaxPool(const ConstImages& x, const PoolShape& shape, const OutputRange& range,
                       const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckPool(x, shape, false, range, y));
  return CheckType("y", y.type, x.type);
}

Status ValidateAvgPool(const ConstImages& x, const PoolShape& shape, bool count_padding,
                       const Quantization& x_q, const Quantization& y_q, const OutputRange& range,
                       const MutableMatrix& y) {
  QUALM_RETURN_IF_ERROR(CheckPool(x, shape, count_padding, range, y));
  // The count is a divisor (elementwise.h).
  if (shape.window.kernel_h * shape.window.kernel_w > int64_t{1} << 53) {
    return Error("shape", ".window has " + std::to_string(shape.window.kernel_h) + " x " +
                              std::to_string(shape.window.kernel_w) +
                              " taps, expected at most 2^53");
  }
  QUALM_RETURN_IF_ERROR(CheckScale("x_q.scale", x_q.scale));
  return CheckScale("y_q.scale", y_q.scale);
}

}  // namespace qualm::kernels::internal
