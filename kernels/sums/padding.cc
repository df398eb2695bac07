// SPDX-License-Identifier: Apache-2.0
// Tables of sums of weights, and the correction that padding.h explains. Exact because sums of
// weights in memory fit 64 bits, and the correction is computed in 128.
#include "kernels/sums/padding.h"

#include <cstddef>

namespace qualm::kernels {

PaddingTable::PaddingTable(const LinearParams& group, const WindowGeometry& window,
                           const PackedWeights& packed)
    : kernel_h_(window.kernel_h),
      kernel_w_(window.kernel_w),
      depth_(packed.depth / kernel_h_ / kernel_w_),
      za_(ZeroPointOfA(group)),
      zb_(packed.zero) {
  // No overflow: the weights lie in memory, and there is at least one weight per tap.
  sums_.resize(static_cast<size_t>(packed.channels * (kernel_h_ + 1) * (kernel_w_ + 1)));
  const int64_t width = kernel_w_ + 1;
  const bool is_unsigned = group.weights.type == ElementType::kU8;
  int64_t* at = sums_.data() + width;  // the first row of each table stays 0
  for (int64_t n = 0; n < packed.channels; ++n, at += width) {
    const uint8_t* w =
        static_cast<const uint8_t*>(group.weights.data) + n * group.weights.row_stride;
    for (int64_t r = 0; r < kernel_h_; ++r, at += width) {
      int64_t row_sum = 0;
      for (int64_t s = 0; s < kernel_w_; ++s) {
        for (int64_t c = 0; c < depth_; ++c) {
          row_sum += is_unsigned ? *w - 128 : static_cast<int8_t>(*w);
          ++w;
        }
        at[s + 1] = at[s + 1 - width] + row_sum;
      }
    }
  }
}

__int128 PaddingTable::Correction(int64_t channel, TapRange rows, TapRange columns) const {
  const int64_t width = kernel_w_ + 1;
  const int64_t* table = sums_.data() + channel * (kernel_h_ + 1) * width;
  const int64_t inside =
      table[rows.end * width + columns.end] - table[rows.begin * width + columns.end] -
      table[rows.end * width + columns.begin] + table[rows.begin * width + columns.begin];
  const int64_t all = table[kernel_h_ * width + kernel_w_];
  const __int128 terms = (kernel_h_ * kernel_w_ - rows.size() * columns.size()) * depth_;
  return za_ * (all - inside - terms * zb_[static_cast<size_t>(channel)]);
}

}  // namespace qualm::kernels
