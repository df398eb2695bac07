// SPDX-License-Identifier: Apache-2.0
// The smallest and the largest of some floats, the same bits on every instruction set. Internal to
// kernels/.
//
// They are found among integers that are ordered like the floats (-0 below +0), so no rounding mode
// and no flushing of denormals makes a difference. Infinities and NaN lie beyond both ends of this
// order: the ends tell whether all values are finite.
#ifndef QUALM_KERNELS_COMMON_MIN_MAX_H_
#define QUALM_KERNELS_COMMON_MIN_MAX_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace qualm::kernels::internal {

constexpr int32_t KeyOf(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  return bits ^ ((bits >> 31) & INT32_MAX);
}
inline float FloatOf(int32_t key) { return std::bit_cast<float>(key ^ ((key >> 31) & INT32_MAX)); }

struct MinMaxKeys {
  int32_t min = INT32_MAX;
  int32_t max = INT32_MIN;

  bool AreFinite() const { return min > KeyOf(-HUGE_VALF) && max < KeyOf(HUGE_VALF); }
};

// Widens `keys` by x[0..count).
void WidenBy(const float* x, size_t count, MinMaxKeys* keys);

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_COMMON_MIN_MAX_H_
