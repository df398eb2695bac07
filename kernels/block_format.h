// SPDX-License-Identifier: Apache-2.0
// Rows that are stored in blocks of codes, each with a scale of its own, as llama.cpp stores them
// (ggml-common.h). Blocks of 32:
//
//   Q8_0  34 bytes: the scale d, a float16; 32 codes q, int8.           value = d * q
//   Q4_0  18 bytes: the scale d, a float16; 32 codes q of 4 bits, of    value = d * (q - 8)
//         which byte j has code j in its low half and code j + 16 in its high half
//
// Blocks of 256, which are eight parts of 32:
//
//   Q4_K  144 bytes: the scale d and the minimum m, float16; an s and a z of 6 bits for each part,
//         12 bytes; 256 codes q of 4 bits, of which      value = d * s * q - m * z
//         byte j of each 32 bytes has code j of a part in its low half and code j of the next part
//         in its high half. Of the 12 bytes i has s_i in its low 6 bits and the upper 2 bits of
//         s_(i+4) above, 4 + i the same of z, 8 + i the lower 4 bits of s_(i+4) and of z_(i+4)
//   Q8_K  292 bytes: the scale d, a float32; 256 codes q, int8;          value = d * q
//         the sums of each 16 codes, int16
#ifndef QUALM_KERNELS_BLOCK_FORMAT_H_
#define QUALM_KERNELS_BLOCK_FORMAT_H_

#include <cstdint>

namespace qualm::kernels {

enum class BlockFormat : uint8_t { kQ8_0, kQ4_0, kQ4_K, kQ8_K };
inline constexpr int64_t kBlockCodes = 32;  // or of a part
inline constexpr int64_t kBlockLanes = 4;   // the sums l_i
constexpr int64_t BlockBytes(BlockFormat format) {
  switch (format) {
    case BlockFormat::kQ8_0: return 34;
    case BlockFormat::kQ4_0: return 18;
    case BlockFormat::kQ4_K: return 144;
    case BlockFormat::kQ8_K: return 292;
  }
  return 0;
}
constexpr int64_t BlockParts(BlockFormat format) {
  return format == BlockFormat::kQ4_K || format == BlockFormat::kQ8_K ? 8 : 1;
}
// What weights of a format are multiplied by.
constexpr BlockFormat ActivationsOf(BlockFormat weights) {
  return weights == BlockFormat::kQ4_K ? BlockFormat::kQ8_K : BlockFormat::kQ8_0;
}

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
