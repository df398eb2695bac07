// SPDX-License-Identifier: Apache-2.0
// Rows that are stored in blocks of 32 codes, each with a scale of its own, as llama.cpp stores
// them (ggml-common.h):
//
//   Q8_0  34 bytes: the scale d, a float16; 32 codes q, int8.           value = d * q
//   Q4_0  18 bytes: the scale d, a float16; 32 codes q of 4 bits, of    value = d * (q - 8)
//         which byte j has code j in its low half and code j + 16 in its high half
#ifndef QUALM_KERNELS_BLOCK_FORMAT_H_
#define QUALM_KERNELS_BLOCK_FORMAT_H_

#include <cstdint>

namespace qualm::kernels {

enum class BlockFormat : uint8_t { kQ8_0, kQ4_0 };
inline constexpr int64_t kBlockCodes = 32;
inline constexpr int64_t kBlockLanes = 4;  // the sums l_i
constexpr int64_t BlockBytes(BlockFormat format) { return format == BlockFormat::kQ8_0 ? 34 : 18; }

// Rows of blocks: row i begins at data + i * row_stride, and its blocks follow one another. The
// stride in bytes, >= blocks * BlockBytes(format). At any alignment.
struct ConstBlocks {
  const void* data = nullptr;
  BlockFormat format = BlockFormat::kQ8_0;
  int64_t rows = 0;
  int64_t blocks = 0;  // of a row
  int64_t row_stride = 0;
};
struct MutableBlocks {
  void* data = nullptr;
  BlockFormat format = BlockFormat::kQ8_0;
  int64_t rows = 0;
  int64_t blocks = 0;
  int64_t row_stride = 0;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_BLOCK_FORMAT_H_
