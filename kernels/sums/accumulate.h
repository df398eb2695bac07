// SPDX-License-Identifier: Apache-2.0
// The inner loop of the linear layer: u8 activations times packed s8 weights, summed in int32.
// Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_ACCUMULATE_H_
#define QUALM_KERNELS_SUMS_ACCUMULATE_H_

#include <cstdint>

#include "kernels/types.h"

namespace qualm::kernels {

// What packing must know about the instruction set that will run.
struct AccumulateTraits {
  int64_t target = 0;                // Highway's HWY_TARGET bit
  int64_t panel_width = 0;           // channels per panel
  bool has_saturating_path = false;  // worth certifying for: see accumulate.cc
};

// For the current thread's target.
AccumulateTraits CurrentAccumulateTraits();
// Panels are as wide as the vectors of the target they were packed for: no other can run them.
Status CheckPackedFor(int64_t target);

// One panel of channels times some rows. Sums are taken modulo 2^32: right whenever the true value
// fits int32, whatever happened on the way.
//
//   sums[r][c] = initial[c] + sum_k a[r][k] * w[k][c] - weight_zero[c] * row_sums[r]
//
// where a is x, or x + 128 when x_is_signed, so that it is always unsigned.
struct AccumulateArgs {
  const uint8_t* x = nullptr;            // first row, at the first quad
  int64_t x_stride = 0;                  // bytes
  bool x_is_signed = false;              // the bytes are s8
  int64_t rows = 0;                      //
  int64_t quads = 0;                     // groups of four consecutive k read from x itself
  const uint8_t* tail = nullptr;         // [rows][4]: one more quad, zero-padded; or null
  const int8_t* weights = nullptr;       // [quads (+1 with a tail)][panel_width][4], vector-aligned
  bool certified = false;                // no pair of these weights can leave int16
  const int32_t* initial = nullptr;      // [panel_width]
  const int32_t* weight_zero = nullptr;  // [panel_width], or null: no row sum term
  const int64_t* row_sums = nullptr;     // [rows], with weight_zero only
  int32_t* sums = nullptr;               // [rows][panel_width]
};
void AccumulatePanel(const AccumulateArgs& args);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_ACCUMULATE_H_
