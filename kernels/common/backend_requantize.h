// SPDX-License-Identifier: Apache-2.0
// Integer sums to codes in the arithmetic of other libraries, bit for bit. Internal to kernels/.
#ifndef QUALM_KERNELS_COMMON_BACKEND_REQUANTIZE_H_
#define QUALM_KERNELS_COMMON_BACKEND_REQUANTIZE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/common/validate.h"
#include "kernels/types.h"

namespace qualm::kernels::internal {

// Immutable after construction and independent of the instruction set. The multipliers are valid
// (validate.h) and have divisor 1. The mode is not kExact: Rescale does that.
class BackendRequantize {
 public:
  // One scale, or one per channel. Must run in a ScopedFpEnvironment: multipliers are computed in
  // floating point, as the library does.
  BackendRequantize(Requantization mode, std::span<const Multiplier> scales, int32_t zero_point,
                    Bounds bounds);

  // Codes (u8 or s8: the low byte) of channels [first, first + count). Nothing else is read or
  // written. Must run in a ScopedFpEnvironment.
  void CodesFromSums(const int32_t* sums, size_t first, size_t count, uint8_t* y) const;

  // The arrays that the vector code reads. A list has one element, or one per channel; a list that
  // the mode does not use is empty.
  struct Plan {
    std::vector<float> multiplier;  // kFloat32; may be 0 or infinite
    std::vector<int32_t> mantissa;  // fixed point: 0, or 2^30..2^31-1
    std::vector<int32_t> left;      // 0..31
    std::vector<int32_t> right;     // kFixedQ31: 0..31; kFixedRndnu: 1..31
    int32_t zero_point = 0;
    Bounds bounds;
    Requantization mode = Requantization::kFloat32;
    bool per_channel = false;
  };
  const Plan& plan() const { return plan_; }

 private:
  Plan plan_;
};

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_COMMON_BACKEND_REQUANTIZE_H_
