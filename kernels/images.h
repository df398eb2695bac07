// SPDX-License-Identifier: Apache-2.0
// Images in memory: what convolutions and pools read.
#ifndef QUALM_KERNELS_IMAGES_H_
#define QUALM_KERNELS_IMAGES_H_

#include <cstdint>

#include "kernels/types.h"

namespace qualm::kernels {

// NHWC: element (b, y, x, c) at data[b * image_stride + y * row_stride + x * pixel_stride + c].
// Strides in elements; pixels, rows and images do not overlap.
struct ConstImages {
  const void* data = nullptr;
  ElementType type = ElementType::kU8;
  int64_t batch = 0, height = 0, width = 0, channels = 0;
  int64_t image_stride = 0, row_stride = 0, pixel_stride = 0;
};

namespace internal {

// An error unless sizes are >= 0 and pixels, rows and images lie one after the other and within the
// address space.
Status CheckImages(const ConstImages& x);

// For checks of overlap. If all pixels are equally far apart, the images are one matrix of pixels;
// else they are one row from the first to the last element, so that nothing can be interleaved with
// them. Images are valid.
ConstMatrix AsMatrix(const ConstImages& x);

}  // namespace internal
}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_IMAGES_H_
