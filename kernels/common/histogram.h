// SPDX-License-Identifier: Apache-2.0
// The histogram observer (observer.h): its state, and its arithmetic, which is internal to
// kernels/. Its callers have set the floating-point environment and checked values and parameters.
#ifndef QUALM_KERNELS_COMMON_HISTOGRAM_H_
#define QUALM_KERNELS_COMMON_HISTOGRAM_H_

#include <array>
#include <cstdint>

#include "kernels/types.h"

namespace qualm::kernels {

// Counts of values between min and max. After batches of different ranges counts may be fractions.
struct HistogramState {
  static constexpr int64_t kBins = 2048;
  float min = 0;
  float max = 0;
  bool empty = true;
  std::array<float, kBins> counts{};
};

namespace internal {

// Counts a batch whose smallest and largest values are given.
Status AddToHistogram(const ConstMatrix& batch, float min, float max, HistogramState* state);

// The range whose quantization to 256 codes has the smallest squared error. The search starts with
// the whole range. In each step it moves the end that gives up more bins, and it stops where the
// error grows.
void SearchHistogram(const HistogramState& state, float* min, float* max);

}  // namespace internal
}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_COMMON_HISTOGRAM_H_
