// SPDX-License-Identifier: Apache-2.0
// The inner loops of products of blocks: a tile of rows times channels, and one dot product.
// Internal to kernels/; block_linear.h says what they compute.
#ifndef QUALM_KERNELS_SUMS_BLOCKS_H_
#define QUALM_KERNELS_SUMS_BLOCKS_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "kernels/block_format.h"
#include "kernels/common/quad_sum.h"
#include "kernels/types.h"

namespace qualm::kernels::internal {

// A block of activations as a tile reads it, or a part of one.
struct ArrangedBlock {
  // -BlockTraits::zero times the sum of the codes; of Q8_K the two sums that it stores, int16 each.
  int32_t initial;
  float scale;
  int8_t codes[kBlockCodes];
};

// The facts about the current thread's target, for weights of one format. A panel has so many
// channels, the last one of a matrix perhaps only one vector of them, `lanes`. It holds the blocks
// in the order in which they are added, those of the first of kBlockLanes first, and of each, one
// behind the other:
//
//   a float16 scale of each channel; then, for each four codes k .. k + 3 of the block, these of
//   each channel. Of Q8_0 a code is q ^ flip; of Q4_0 the four bytes as they are stored, with codes
//   k .. k + 3 and k + 16 .. k + 19.
//   Of Q4_K the float16 scales and minima; for each part a byte s of each channel, then of z; for
//   each part the codes, in the order of Q4_0
struct BlockTraits {
  int64_t target = 0;  // TargetId()
  QuadSum quad_sum = QuadSum::kHighway;
  int64_t lanes = 0;
  int64_t panel_vectors = 0;
  int64_t most_rows = 0;  // of a tile
  int32_t zero = 0;       // what a packed code stands for 0 with
  uint8_t flip = 0;
};
BlockTraits CurrentBlockTraits(BlockFormat format);

struct BlockTile {
  static constexpr int64_t kMostRows = 6;
  const ArrangedBlock* x[kMostRows];  // of each row
  int64_t rows = 0;
  const uint8_t* panel = nullptr;
  int64_t vectors = 0;  // of the panel
  int64_t blocks = 0;
  BlockFormat format = BlockFormat::kQ8_0;
  QuadSum quad_sum = QuadSum::kHighway;
  float* y = nullptr;  // of the first row and channel
  int64_t y_stride = 0;
  int64_t columns = 0;  // to be written: those of the panel that there are
};
// In a ScopedFpEnvironment, on the target that the panel was packed for.
void MultiplyTile(const BlockTile& tile);

// Also in a ScopedFpEnvironment.
float DotOfBlocks(BlockFormat format, const uint8_t* w, const uint8_t* x, int64_t blocks);

// Of a block of one channel in a panel.
constexpr int64_t PanelBytes(BlockFormat format) {
  return format == BlockFormat::kQ4_K ? 2 + 2 + 8 + 8 + 128 : BlockBytes(format);
}
constexpr bool IsBlockFormat(BlockFormat format) { return BlockBytes(format) != 0; }
constexpr bool IsWeightFormat(BlockFormat format) {
  return IsBlockFormat(format) && format != BlockFormat::kQ8_K;
}
inline constexpr int64_t kMostBlocks = int64_t{1} << 40;  // of a row: their bytes fit int64
Status CheckBlocks(std::string_view name, const ConstBlocks& blocks);

inline uint16_t HalfAt(const uint8_t* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  return half;
}

inline float FloatAt(const uint8_t* at) {
  float value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
// The numbers s and z of the parts of a block Q4_K, of its 12 bytes.
struct SixBits {
  explicit SixBits(const uint8_t* from) {
    uint32_t a[3];
    std::memcpy(a, from, sizeof(a));
    const auto low = [](uint32_t bytes) { return bytes & 0x3F3F3F3F; };
    const auto high = [](uint32_t bytes, uint32_t halves) {
      return (bytes >> 6 & 0x03030303) << 4 | (halves & 0x0F0F0F0F);
    };
    const uint32_t s4[2] = {low(a[0]), high(a[0], a[2])};
    const uint32_t z4[2] = {low(a[1]), high(a[1], a[2] >> 4)};
    std::memcpy(s, s4, sizeof(s));
    std::memcpy(z, z4, sizeof(z));
  }
  uint8_t s[8], z[8];
};

// Exactly: a float16 is a float32 whose exponent is 112 less, but for the largest exponent. In an
// environment without flushed denormals.
inline float FloatOfHalf(uint16_t half) {
  const uint32_t bits = (half & 0x7FFFu) << 13;
  const float value = std::bit_cast<float>(bits) * 0x1p112f;
  const uint32_t special = (half & 0x7C00u) == 0x7C00u ? 0x7F800000u : 0;
  const uint32_t sign = (half & 0x8000u) << 16;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | special | sign);
}

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_SUMS_BLOCKS_H_
