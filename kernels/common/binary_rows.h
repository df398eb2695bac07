// SPDX-License-Identifier: Apache-2.0
// Rows and bounds for operations of two operands. Internal to kernels/.
#ifndef QUALM_KERNELS_COMMON_BINARY_ROWS_H_
#define QUALM_KERNELS_COMMON_BINARY_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "kernels/types.h"

namespace qualm::kernels::internal {

// row(a, b, count, y) for each row, or once for everything where no matrix has gaps.
template <class Row>
void ForEachRowOfTwo(const ConstMatrix& a, const ConstMatrix& b, const MutableMatrix& y,
                     const Row& row) {
  int64_t rows = y.rows;
  int64_t columns = y.columns;
  if (a.row_stride == columns && b.row_stride == columns && y.row_stride == columns) {
    columns *= rows;
    rows = 1;
  }
  for (int64_t i = 0; i < rows; ++i) {
    row(static_cast<const uint8_t*>(a.data) + i * a.row_stride,
        static_cast<const uint8_t*>(b.data) + i * b.row_stride, static_cast<size_t>(columns),
        static_cast<uint8_t*>(y.data) + i * y.row_stride);
  }
}

// Largest |code - zero| over the codes 0..255.
inline int64_t LargestDifference(int64_t zero) {
  return std::max(std::abs(zero), std::abs(255 - zero));
}

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_COMMON_BINARY_ROWS_H_
