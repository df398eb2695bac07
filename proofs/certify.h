// SPDX-License-Identifier: Apache-2.0
// Can a narrow sum of this layer overflow for any activations in a range? A proof or a witness for
// every output channel, in time linear in the weights.
//
// A sum of products is linear in each activation, so over a box of activations it is largest and
// smallest at corners, and the corner of each activation follows from the sign of its own weight.
// So a narrow sum is safe if and only if its two corner values fit.
#ifndef QUALM_PROOFS_CERTIFY_H_
#define QUALM_PROOFS_CERTIFY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/case.h"
#include "proofs/scheme.h"

namespace qualm::proofs {

// Codes of x, both ends included.
struct Codes {
  int32_t lo = 0, hi = 255;
  friend bool operator==(const Codes&, const Codes&) = default;
};
// The codes that reach the products of this layer: the given codes and, in a convolution, the code
// that kernels multiply in the padding, code 0 or the zero point.
Codes WithPadding(const Case& layer, Codes x);

struct UnsafeChannel {
  int64_t n = 0;
  int64_t sums = 0;    // unsafe ones
  int64_t place = 0;   // of the worst sum: the place of its first product, in the scheme's order
  int64_t corner = 0;  // the exact corner value of the worst sum
};

struct Proof {
  int64_t channels = 0;
  int64_t sums = 0;  // narrow sums, each with two corners
  int64_t unsafe_sums = 0;
  std::vector<UnsafeChannel> unsafe;
  int64_t least = 0, most = 0;  // of the raw int32 accumulators, over all channels
  bool safe() const { return unsafe.empty(); }
  bool fits_int32() const { return least >= INT32_MIN && most <= INT32_MAX; }
};

// Called with the share of the work that is done, now and then.
using Progress = std::function<void(double)>;

// The weights must be u8 or s8. `x` is of the type of layer.x.
Proof Certify(const Case& layer, const Scheme& scheme, Codes x, const Progress& progress = {});
// Whether the proof succeeds; stops at the first channel that is not safe.
bool IsSafe(const Case& layer, const Scheme& scheme, Codes x);

// An input on which the kernel gets one output wrong.
struct Witness {
  int64_t n = 0;
  std::vector<int32_t> x;  // a code for each term
  int64_t exact = 0, got = 0;
};
// nullopt if no input was found. That happens only in a range of x without the code that the kernel
// sees as 0: there other terms may make up for the loss.
std::optional<Witness> WitnessOf(const Case& layer, const Scheme& scheme, Codes x,
                                 const UnsafeChannel& channel);
// The witness as a case of one output: its codes differ between the exact sum and the kernel's.
Case WitnessCase(const Case& layer, const Witness& witness);

// The weights of channel n, term by term.
std::vector<int32_t> WeightsOf(const Case& layer, int64_t n);

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_CERTIFY_H_
