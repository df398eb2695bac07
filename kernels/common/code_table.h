// SPDX-License-Identifier: Apache-2.0
// A function of one code has 256 possible inputs: a table of exact answers and a lookup. Internal
// to kernels/.
#ifndef QUALM_KERNELS_COMMON_CODE_TABLE_H_
#define QUALM_KERNELS_COMMON_CODE_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace qualm::kernels::internal {

// Output bytes by input byte, whatever the two types are.
struct CodeTable {
  alignas(16) std::array<uint8_t, 256> bytes{};
};

// y[i] = table[x[i]]; y may be x. Nothing else is read or written.
void LookUp(const CodeTable& table, const uint8_t* x, size_t count, uint8_t* y);

// row(x, count, y) for each row, or once for everything where neither matrix has gaps. Both
// matrices hold u8 or s8.
template <class Row>
void ForEachRowOfCodes(const ConstMatrix& x, const MutableMatrix& y, const Row& row) {
  int64_t rows = x.rows;
  int64_t columns = x.columns;
  if (x.row_stride == columns && y.row_stride == columns) {
    columns *= rows;
    rows = 1;
  }
  for (int64_t i = 0; i < rows; ++i) {
    row(static_cast<const uint8_t*>(x.data) + i * x.row_stride, static_cast<size_t>(columns),
        static_cast<uint8_t*>(y.data) + i * y.row_stride);
  }
}

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_COMMON_CODE_TABLE_H_
