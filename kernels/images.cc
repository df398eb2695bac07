// SPDX-License-Identifier: Apache-2.0
// Checks images, and describes them as a matrix for checks of overlap. Extents are added up in 128
// bits, so that no size or stride that a caller gives can overflow.
#include "kernels/images.h"

#include <string>
#include <utility>

namespace qualm::kernels::internal {
namespace {

Status IsButExpected(const char* name, int64_t value, const std::string& expected) {
  return {std::string(name) + " is " + std::to_string(value) + ", expected " + expected};
}

Status CheckAtLeast(const char* name, int64_t value, int64_t least) {
  if (value >= least) return {};
  return IsButExpected(name, value, "at least " + std::to_string(least));
}

}  // namespace

Status CheckImages(const ConstImages& x) {
  for (const auto& [name, value] : {std::pair{"x.batch", x.batch},
                                    {"x.height", x.height},
                                    {"x.width", x.width},
                                    {"x.channels", x.channels}}) {
    if (Status s = CheckAtLeast(name, value, 0); !s.ok()) return s;
  }
  if (x.batch == 0 || x.height == 0 || x.width == 0 || x.channels == 0) return {};
  __int128 extent = x.channels;  // elements from the first to the last
  const struct {
    const char* name;
    int64_t stride;
    int64_t count;
  } axes[] = {{"x.pixel_stride", x.pixel_stride, x.width},
              {"x.row_stride", x.row_stride, x.height},
              {"x.image_stride", x.image_stride, x.batch}};
  for (const auto& axis : axes) {
    if (Status s = CheckAtLeast(axis.name, axis.stride, static_cast<int64_t>(extent)); !s.ok()) {
      return s;
    }
    extent += static_cast<__int128>(axis.count - 1) * axis.stride;
    if (extent > INT64_MAX / 8) {
      return IsButExpected(axis.name, axis.stride, "images within the address space");
    }
  }
  if (x.data == nullptr)
    return {"x.data is null, expected batch * height * width * channels codes"};
  return {};
}

ConstMatrix AsMatrix(const ConstImages& x) {
  const bool empty = x.batch == 0 || x.height == 0 || x.width == 0 || x.channels == 0;
  if (empty) return {x.data, x.type, 0, x.channels, x.channels};
  const bool rows_follow = x.height == 1 || x.row_stride == x.width * x.pixel_stride;
  const bool images_follow = x.batch == 1 || x.image_stride == x.height * x.row_stride;
  if (rows_follow && images_follow) {
    return {x.data, x.type, x.batch * x.height * x.width, x.channels, x.pixel_stride};
  }
  const int64_t extent = (x.batch - 1) * x.image_stride + (x.height - 1) * x.row_stride +
                         (x.width - 1) * x.pixel_stride + x.channels;
  return {x.data, x.type, 1, extent, extent};
}

}  // namespace qualm::kernels::internal
