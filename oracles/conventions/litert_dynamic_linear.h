// SPDX-License-Identifier: Apache-2.0
// FULLY_CONNECTED of float32 activations and s8 weights in TensorFlow Lite, which quantizes each
// row of x as it runs ("hybrid", "dynamic range"); conventions without a name.
#ifndef QUALM_ORACLES_CONVENTIONS_LITERT_DYNAMIC_LINEAR_H_
#define QUALM_ORACLES_CONVENTIONS_LITERT_DYNAMIC_LINEAR_H_

#include "oracles/conventions/convention.h"

namespace qualm::conventions {

// The reference and the optimized kernels, which share it.
Convention LitertDynamicLinear();
// XNNPACK of 2026 on AVX2 and later.
Convention XnnpackDynamicLinear();

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_LITERT_DYNAMIC_LINEAR_H_
