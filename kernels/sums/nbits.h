// SPDX-License-Identifier: Apache-2.0
// The inner loops of products with weights of 4 or 8 bits: a tile of rows times channels. Internal
// to kernels/; nbits_linear.h says what they compute.
#ifndef QUALM_KERNELS_SUMS_NBITS_H_
#define QUALM_KERNELS_SUMS_NBITS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/common/quad_sum.h"

namespace qualm::kernels::internal {

// Codes of a group, which fill 32 bits of each channel: byte i has code i, of 4 bits in its low
// half, and in its high half code 4 + i.
constexpr int64_t NBitsGroup(int bits) { return 32 / bits; }

// The facts about the current thread's target. A panel has so many channels, the last one of a
// matrix perhaps only one vector of them, `lanes`. It holds the blocks one behind the other:
//
//   the float32 scale of each channel; the zero point of each, a byte; then, for each group, that
//   of each channel, its codes q ^ flip
struct NBitsTraits {
  int64_t target = 0;  // TargetId()
  QuadSum quad_sum = QuadSum::kHighway;
  int64_t lanes = 0;
  int64_t panel_vectors = 0;
  int64_t most_rows = 0;  // of a tile
  uint8_t flip = 0;       // 0x80 where codes of 8 bits are multiplied with a sign, else 0
};
NBitsTraits CurrentNBitsTraits(int bits);
inline constexpr int64_t kNBitsParameterBytes = 5;  // scale and zero point

struct NBitsTile {
  static constexpr int64_t kMostRows = 4;
  // Of each row: its values, or its codes, to the end of the last group, with the scale and the sum
  // of the codes of each block.
  bool coded = false;
  const float* values[kMostRows];
  const int8_t* codes[kMostRows];
  const float* scales[kMostRows];
  const int32_t* code_sums[kMostRows];
  int64_t rows = 0;
  const uint8_t* panel = nullptr;
  int64_t vectors = 0;  // of the panel
  int64_t depth = 0;
  int64_t block = 0;
  int bits = 4;
  QuadSum quad_sum = QuadSum::kHighway;
  uint8_t flip = 0;
  const float* bias = nullptr;  // of the first channel, or null
  float* y = nullptr;           // of the first row and channel
  int64_t y_stride = 0;
  int64_t columns = 0;  // to be written: those of the panel that there are

  int64_t BlockDepth(int64_t first) const { return std::min(block, depth - first); }
};
// In a ScopedFpEnvironment, on the target that the panel was packed for.
void MultiplyNBits(const NBitsTile& tile);

// Codes of one block, and its scale. In a ScopedFpEnvironment.
void QuantizeNBitsBlock(const float* x, int64_t count, int8_t* codes, float* scale);

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_SUMS_NBITS_H_
