// SPDX-License-Identifier: Apache-2.0
// The cases that have bytes: small enough for thousands of executions per second, and how any other
// is brought there.
#ifndef QUALM_FUZZ_FIT_H_
#define QUALM_FUZZ_FIT_H_

#include <cstdint>
#include <vector>

#include "core/case.h"

namespace qualm::fuzz {

// Largest dimensions of linear, quantize, dequantize and requantize. K spans three 32-wide steps, N
// one 16-wide panel.
inline constexpr int64_t kMaxM = 8;
inline constexpr int64_t kMaxN = 16;
inline constexpr int64_t kMaxK = 96;

// Largest dimensions of a case of `op`. Of convolutions and pools, n and k are the output and input
// channels of one group, and m the batch. Of concat, k is the columns of x; of choose_qparams, k is
// the batches.
struct Limits {
  int64_t m = kMaxM;
  int64_t n = kMaxN;
  int64_t k = 0;
};
Limits LimitsOf(Op op);

// Of windows, each axis alone; the work of a case (WorkOf) bounds them together.
// Averages take images, and avg_pool kernels, of more than 257 codes: a uint16 does not hold their
// sum.
inline constexpr int64_t kMaxKernel = 4;
int64_t MaxImage(Op op);
int64_t MaxKernel(Op op);
inline constexpr int64_t kMaxStep = 3;  // stride and dilation
inline constexpr int64_t kMaxPad = 5;
inline constexpr int64_t kMaxGroups = 4;     // depthwise: kMaxChannels
inline constexpr int64_t kMaxChannels = 72;  // past the widest vector of bytes
inline constexpr int64_t kMaxWork = 3 * 1024;

// Products of a convolution or codes looked at by a pool, and elements.
int64_t WorkOf(const Case& c);

// Makes the window of a convolution or pool, and N, one that has bytes: numbers within the limits,
// fields that mean nothing to the op default, no window of a pool wholly in the padding, no more
// work than kMaxWork. M and K are derived. What already is like that stays as it is.
void FitWindow(Case* c);

// Whether the dimensions, the window included, are as the above leaves them.
bool IsSmall(const Case& c);

// The shape of x, and of w ([0] where the op has none), for the dimensions of the case; those of
// concat (columns of x) and choose_qparams (batches) that no field holds are taken from c.x.
std::vector<int64_t> FittedShapeOfX(const Case& c);
std::vector<int64_t> FittedShapeOfW(const Case& c);

// The same elements where both shapes have them, saturated to the type; 0 elsewhere.
Tensor Reshaped(const Tensor& from, DType dtype, const std::vector<int64_t>& shape);

// Makes everything else follow from op, dimensions, window, per_channel and the types of x and out:
// shapes of tensors, lengths of lists, the clamp inside the type, what the op does not have. What
// is already valid stays as it is.
void FitCase(Case* c);

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_FIT_H_
