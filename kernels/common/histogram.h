// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the histogram observer. Internal to kernels/; callers have set the
// floating-point environment and checked values and parameters.
#ifndef QUALM_KERNELS_COMMON_HISTOGRAM_H_
#define QUALM_KERNELS_COMMON_HISTOGRAM_H_

#include "kernels/observer.h"
#include "kernels/types.h"

namespace qualm::kernels::internal {

// Counts a batch whose smallest and largest values are given.
Status AddToHistogram(const ConstMatrix& batch, float min, float max, HistogramState* state);

// The range whose quantization to 256 codes has the smallest squared error: from both ends, the one
// with fewer values behind its next step moves, until the error grows.
void SearchHistogram(const HistogramState& state, float* min, float* max);

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_COMMON_HISTOGRAM_H_
