// SPDX-License-Identifier: Apache-2.0
// Copies of rows of activations in the form that some panels read. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_ARRANGE_H_
#define QUALM_KERNELS_SUMS_ARRANGE_H_

#include <cstdint>
#include <span>

namespace qualm::kernels {

struct RowsIn {
  const uint8_t* x = nullptr;  // [rows][depth]
  int64_t stride = 0;          // bytes
  int64_t rows = 0;
  int64_t depth = 0;
};

// Writes the rows, in the order of `shuffle` (Pairing), to `to` [rows][depth].
void ShuffleRows(const RowsIn& in, std::span<const uint8_t> shuffle, uint8_t* to);

// Bytes of one row in 16 bits.
inline int64_t WidenedBytes(int64_t depth) { return (depth + 3) / 4 * 8; }

// Writes each row in 16 bits to `to` [rows][WidenedBytes]: of all quads the activations 0 and 2,
// then of all quads 1 and 3. The quads are those of Pieces with one piece, and depth is 4 or more.
// The bytes are s8 if `is_signed`; 128 is added to them.
void WidenRows(const RowsIn& in, bool is_signed, uint8_t* to);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_ARRANGE_H_
