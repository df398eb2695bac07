// SPDX-License-Identifier: Apache-2.0
// Windows over images, for convolutions and pools.
#ifndef QUALM_PROPERTIES_GEN_GEOMETRY_H_
#define QUALM_PROPERTIES_GEN_GEOMETRY_H_

#include "core/case.h"
#include "core/rng.h"
#include "properties/gen/gen.h"

namespace qualm::gen::internal {

// Batch, image, kernel, stride, padding and dilation (1 unless `dilated`); small, with all numbers
// different, or extreme: padding from the kernel on, strides beyond the kernel, dilations beyond
// the image. kEmpty gives an empty batch, image or output. Output pixels are few, because channels
// add to the cost of each.
void DrawGeometry(Rng& rng, Theme theme, bool dilated, Window& v);

}  // namespace qualm::gen::internal

#endif  // QUALM_PROPERTIES_GEN_GEOMETRY_H_
