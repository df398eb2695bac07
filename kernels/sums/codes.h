// SPDX-License-Identifier: Apache-2.0
// The constants with which the inner loops turn int32 sums into codes by themselves (codes-inl.h).
// Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_CODES_H_
#define QUALM_KERNELS_SUMS_CODES_H_

#include <cstdint>
#include <vector>

#include "kernels/common/rescale.h"

namespace qualm::kernels {

// Immutable; made by the epilogue for the layers that codes-inl.h is exact for.
struct CodePlan {
  std::vector<float> multiplier;  // one per channel, rounded; then zeros for the rest of a panel
  bool is_exact = false;          // no element is undecided: codes-inl.h, the first two kinds
  float origin = 0;               // of the first two kinds
  float to_integer = 0;
  bool is_signed = false;  // codes are s8
  int32_t lo = 0;          // bounds of the codes
  int32_t hi = 0;
  int32_t zero_point = 0;
  const internal::Rescale* rescale = nullptr;  // decides elements next to a tie
};

// The place of the codes of some rows and some consecutive channels.
struct CodesOut {
  int64_t channel = 0;   // of the layer: the first one
  int64_t count = 0;     // channels
  uint8_t* y = nullptr;  // the first row's output of `channel`
  int64_t y_stride = 0;  // bytes
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_CODES_H_
