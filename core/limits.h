// SPDX-License-Identifier: Apache-2.0
// How much work a case may imply. A window is a few small numbers, but their products can be huge:
// a file of one line could ask for more outputs than memory holds. Readers refuse such cases, and
// code that derives a case from another one checks these limits before it allocates tensors.
#ifndef QUALM_CORE_LIMITS_H_
#define QUALM_CORE_LIMITS_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/case.h"
#include "core/tensor.h"

namespace qualm {

// Outputs of a sum or a window. The largest layers of common image networks have 2^22.
inline constexpr int64_t kMaxOutputs = int64_t{1} << 24;
// Outputs times the terms of each output.
inline constexpr int64_t kMaxProducts = int64_t{1} << 31;
// Output pixels times the taps of a window, taps in the padding included. Less than products,
// because finding the place of a tap takes longer than a multiplication.
inline constexpr int64_t kMaxTaps = int64_t{1} << 27;

// Whether a case with the window of `c` is within all limits, and its image and its weights have at
// most kMaxOutputs elements. The tensors and derived sizes of `c` need not exist yet. Does not
// overflow where each number of the window is at most 2^42.
inline bool WindowWithinLimits(const Case& c) {
  const Window& v = c.window;
  const int64_t depth = IsConv(c.op) ? v.in_c / v.groups : 1;
  const int64_t channels = IsPool(c.op) ? v.in_c : c.N;
  const auto count = [](const auto&... dims) {
    return ElementCount(std::array<int64_t, sizeof...(dims)>{dims...}, kMaxOutputs);
  };
  const int64_t outputs = count(v.batch, v.out_h(), v.out_w(), channels);
  // Without channels there are still pixels to number.
  const int64_t pixels = count(v.batch, v.out_h(), v.out_w());
  const int64_t image = count(v.batch, v.in_h, v.in_w, v.in_c);
  const int64_t window = count(v.kernel_h, v.kernel_w, std::max<int64_t>(depth, 1));
  const int64_t weights = IsConv(c.op) ? count(v.kernel_h, v.kernel_w, depth, c.N) : 0;
  if (outputs < 0 || pixels < 0 || image < 0 || window < 0 || weights < 0) return false;
  const int64_t taps = v.kernel_h * v.kernel_w;  // of `window`, so not too many to multiply
  return ElementCount(std::array<int64_t, 2>{outputs, window}, kMaxProducts) >= 0 &&
         ElementCount(std::array<int64_t, 2>{pixels, taps}, kMaxTaps) >= 0;
}

}  // namespace qualm

#endif  // QUALM_CORE_LIMITS_H_
