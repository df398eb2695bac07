// SPDX-License-Identifier: Apache-2.0
// The sums of linear and of convolutions as one thing: lists of x against lists of w. For the fast
// form and for headroom; the definition does its own indexing. Internal to oracles/.
#ifndef QUALM_ORACLES_EXACT_REDUCTION_H_
#define QUALM_ORACLES_EXACT_REDUCTION_H_

#include <cstdint>
#include <vector>

#include "core/case.h"

namespace qualm::exact {

// Output (m, n) sums `k` products of x row m*groups + n/(N/groups) and w row n. The order along k
// is that of the weights: (r, s, c), c fastest and inside the group.
struct Reduction {
  int64_t groups = 1;
  int64_t k = 0;
  int64_t channels_per_group = 1;  // N / groups, where there are groups
  std::vector<int16_t> x;          // codes less x_offset, [M*groups, k]
  std::vector<int16_t> w;          // codes, [N, k]
  int32_t x_offset = 0;            // 32768 of u16 codes, so that an int16 holds the rest
  // Convolutions: [M, taps], 1 where the tap lies in the image; `taps` divides k. Linear: no taps.
  int64_t taps = 0;
  std::vector<uint8_t> inside;

  int64_t x_row(int64_t m, int64_t n) const {
    return groups == 1 ? m : m * groups + n / channels_per_group;
  }
};

// `padding` stands in x for the codes of taps outside the image.
Reduction ReductionOf(const Case& c, int32_t padding);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_REDUCTION_H_
