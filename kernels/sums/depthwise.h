// SPDX-License-Identifier: Apache-2.0
// Depthwise convolution: one input channel per group. Layers that depthwise_lines.h cannot take
// come here, and all layers on SVE and SCALAR. There is no sum over channels, so vectors go along
// them. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_DEPTHWISE_H_
#define QUALM_KERNELS_SUMS_DEPTHWISE_H_

#include <cstdint>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "kernels/layer.h"
#include "kernels/sums/epilogue.h"
#include "kernels/sums/patches.h"
#include "kernels/sums/row_block.h"

namespace qualm::kernels {

// A block of input channels; small enough for its weights to stay in the L1 cache.
struct DepthwiseBlock {
  int64_t first = 0;     // input channel
  int64_t channels = 0;  // the last block may have fewer than block_channels
  // w - zw in full, [tap][multiplier][block_channels], where some sum may leave int32; else empty.
  std::vector<int64_t> wide_weights;
};

struct PackedDepthwise {
  int64_t block_channels = 0;  // a multiple of the vector
  int64_t multiplier = 0;      // N / C
  int32_t x_zero = 0;
  WindowGeometry window;
  std::vector<DepthwiseBlock> blocks;
  // [block][tap][multiplier][block_channels], zero past the last channel: w - zw modulo 2^32.
  hwy::AlignedFreeUniquePtr<int32_t[]> weights;
  std::vector<int32_t> bias;  // [block][multiplier][block_channels]

  bool any_wide = false;
};

// For the current thread's target. `params` is valid (layer_validate.h), with groups = C >= 1.
// Throws std::bad_alloc or std::length_error if the weights do not fit in memory.
PackedDepthwise PackDepthwise(const ConvParams& params);

struct DepthwiseLayout {
  DepthwiseLayout(const PackedDepthwise& packed, ScratchLayout* scratch);

  size_t sums32 = 0;   // [block_channels][multiplier]
  size_t sums128 = 0;  // the same
};

struct DepthwiseOutput {
  uint8_t* y = nullptr;  // output pixel 0, channel 0
  int64_t y_stride = 0;  // bytes
  int64_t y_size = 0;    // bytes of an element
};

// Output pixels [first, first + pixels). `scratch` is aligned. Must run in a ScopedFpEnvironment,
// on the target of the weights.
void RunDepthwise(const PackedDepthwise& packed, const Epilogue& epilogue, const Placer& placer,
                  bool x_is_signed, int64_t first, int64_t pixels, const DepthwiseOutput& output,
                  const DepthwiseLayout& layout, uint8_t* scratch);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_DEPTHWISE_H_
