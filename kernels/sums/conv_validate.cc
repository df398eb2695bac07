// SPDX-License-Identifier: Apache-2.0
#include "kernels/sums/conv_validate.h"

#include <string>
#include <string_view>

#include "kernels/common/validate.h"
#include "kernels/sums/linear_validate.h"

namespace qualm::kernels {
namespace {

using internal::AsMatrix;
using internal::CheckDisjoint;
using internal::CheckImages;
using internal::CheckMatrix;
using internal::CheckSize;
using internal::CheckType;
using internal::CheckWindow;
using internal::IsButExpected;

Status CheckAtLeast(std::string_view name, int64_t value, int64_t least) {
  if (value >= least) return {};
  return IsButExpected(name, value, "at least " + std::to_string(least));
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
