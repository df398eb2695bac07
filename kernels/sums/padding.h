// SPDX-License-Identifier: Apache-2.0
// The correction of a convolution's sum for its padding, if the input's zero point is no code.
// Internal to kernels/.
//
// Then patches are gathered with a = 0 in the padding (a, b, za, zb: see pack.h), so each tap there
// adds (0 - za)(b - zb) to the sum instead of nothing. For every channel a summed-area table holds
// the sums of b over all rectangles of taps. The taps in the input are such a rectangle; the taps
// in the padding are all others.
#ifndef QUALM_KERNELS_SUMS_PADDING_H_
#define QUALM_KERNELS_SUMS_PADDING_H_

#include <cstdint>
#include <vector>

#include "kernels/layer.h"
#include "kernels/sums/pack.h"
#include "kernels/sums/patches.h"

namespace qualm::kernels {

class PaddingTable {
 public:
  // `group` is valid; its weights are [N, R, S, C] of one group, packed as `packed`, with C >= 1.
  PaddingTable(const LinearParams& group, const WindowGeometry& window,
               const PackedWeights& packed);

  // To be added to the sum of `channel`: za * sum (b - zb) over the taps outside the rectangle.
  __int128 Correction(int64_t channel, TapRange rows, TapRange columns) const;

 private:
  int64_t kernel_h_;
  int64_t kernel_w_;
  int64_t depth_;  // channels per tap
  int64_t za_;
  std::vector<int64_t> zb_;    // per channel
  std::vector<int64_t> sums_;  // [N][R + 1][S + 1]: of b over taps above and to the left
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_PADDING_H_
