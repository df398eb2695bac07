// SPDX-License-Identifier: Apache-2.0
// The inner loop of the depthwise layers that depthwise_lines.h does not take: every lane is a
// channel. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_DEPTHWISE_SUMS_H_
#define QUALM_KERNELS_SUMS_DEPTHWISE_SUMS_H_

#include <cstdint>

namespace qualm::kernels {

// Channels per vector on the current thread's target.
int64_t DepthwiseLanes();

// One output pixel of a block of input channels. Sums are taken modulo 2^32: right whenever the
// true value fits int32, whatever happened on the way, with zero points of any size.
//
//   sums[c][j] = initial[j][c] + sum_taps (x[tap][c] - x_zero) * weights[tap][j][c]
//
// over the taps inside the input only, so that padding needs no value.
struct DepthwiseArgs {
  const uint8_t* x = nullptr;  // first channel at the first tap; unused without taps
  int64_t x_row_step = 0;      // bytes from tap to tap
  int64_t x_column_step = 0;
  bool x_is_signed = false;          // the bytes are s8
  int32_t x_zero = 0;                //
  int64_t rows = 0;                  // taps
  int64_t columns = 0;               //
  const int32_t* weights = nullptr;  // w - zw modulo 2^32, vector-aligned
  int64_t w_row_step = 0;            // elements from tap to tap; a multiple of the vector
  int64_t w_column_step = 0;
  int64_t channels = 0;              // of the input
  int64_t padded_channels = 0;       // the same, up to the next multiple of the vector or beyond
  int64_t multiplier = 0;            // output channels per input channel
  const int32_t* initial = nullptr;  // [multiplier][padded_channels]
  int32_t* sums = nullptr;           // [padded_channels][multiplier]
};
void SumDepthwise(const DepthwiseArgs& args);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_DEPTHWISE_SUMS_H_
