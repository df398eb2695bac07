// SPDX-License-Identifier: Apache-2.0
// Depthwise convolution with one output channel per input channel, to codes, where sums fit int32,
// the weights as s8 have zero point 0, padding is a code, and the window fits a band: nearly every
// depthwise layer, but on SVE and SCALAR none. Others: depthwise.h. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_DEPTHWISE_LINES_H_
#define QUALM_KERNELS_SUMS_DEPTHWISE_LINES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "kernels/common/quad_sum.h"
#include "kernels/layer.h"
#include "kernels/sums/bands.h"
#include "kernels/sums/codes.h"

namespace qualm::kernels {

// Channels lie in blocks of as many as a vector has bytes. The 32-bit lanes of a block come in the
// order in which bytes of four vectors are interleaved: lane l of vector v, of four, is channel
// l / 4 * 16 + 4 * v + l % 4.
struct PackedDepthwiseLines {
  WindowGeometry window;
  int64_t channels = 0;
  int64_t block_channels = 0;
  internal::QuadSum quad_sum = internal::QuadSum::kHighway;
  bool threes = false;  // windows of three columns, whose quads are not kept
  int64_t lines = 1;    // how many lines of the output share quads
  // [block][line][kernel_w][quads][4 vectors][lanes][4]. Byte i of quad q has the weight of row
  // 4 q + i of a column of activations. The window of output line l begins at row l: the weights of
  // rows above and below it are zero, and so are those past the last channel.
  hwy::AlignedFreeUniquePtr<int8_t[]> weights;
  hwy::AlignedVector<int32_t> initial;   // [block][4 vectors][lanes]: bias - za * sum of the
                                         // weights, and for kDot 128 * that sum
  hwy::AlignedVector<float> multiplier;  // the same, of `plan`
  std::vector<uint8_t> padding;          // a block
  const CodePlan* plan = nullptr;

  int64_t Quads() const { return (window.kernel_h + 3) / 4; }
  int64_t BytesOfLine() const { return window.kernel_w * Quads() * 4 * block_channels; }
};

// For the current thread's target. `params` is valid, with groups = C >= 1; `plan` that of its
// epilogue, or null; `padding` the byte of real 0. Nothing where depthwise.h is needed.
std::optional<PackedDepthwiseLines> PackDepthwiseLines(const ConvParams& params,
                                                       const CodePlan* plan, uint8_t padding);

// Scratch of one task, to be aligned to vectors.
int64_t DepthwiseLinesBytes(const PackedDepthwiseLines& packed);

// Codes of a band, whose activations are read in the images. y is that of output pixel 0;
// `y_stride` in bytes. On the target of the weights.
void RunDepthwiseLines(const PackedDepthwiseLines& packed, const ConstImages& images,
                       const Band& band, uint8_t* y, int64_t y_stride, uint8_t* scratch);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_DEPTHWISE_LINES_H_
