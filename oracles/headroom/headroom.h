// SPDX-License-Identifier: Apache-2.0
// How far a case is from the places where kernels go wrong: int16 pair saturation, int32 overflow,
// rounding ties, clamp edges. Feeds the fuzzer, hazard coverage, explain and kink prediction.
#ifndef QUALM_ORACLES_HEADROOM_HEADROOM_H_
#define QUALM_ORACLES_HEADROOM_HEADROOM_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/case.h"

namespace qualm::headroom {

// A pair of products that vpmaddubsw adds in a saturating int16: (2t, 2t+1) along k, zero padded.
// Along k lie the terms of linear, or those of a convolution in the order (r, s, c), c fastest and
// inside the group, as im2col and depthwise kernels lay them out (FBGEMM). Kernels that pair
// channels inside each tap (oneDNN) meet the same pairs where C/groups is even.
struct Pair {
  int64_t m = 0;  // row, or output pixel in row-major order
  int64_t n = 0;
  int64_t k = 0;  // even index; partner k+1 (absent, x1 = w1 = 0, for the last of an odd K)
  int32_t x0 = 0, w0 = 0, x1 = 0, w1 = 0;
  int32_t sum = 0;        // exact x0*w0 + x1*w1
  int32_t saturated = 0;  // clamped to int16
  int32_t lost() const { return sum - saturated; }
};

// Distance of a pair sum to leaving int16; negative iff it saturates (by that many units).
int32_t PairHeadroom(int32_t sum);

// x operand as such a kernel sees it: u8 as it is; s8 activations are shifted to u8 by +128 (so the
// x0, x1 of a Pair and the codes of a Kink are u8 codes; for s8 tensors subtract 128). In the
// padding such a kernel reads the code of real 0, x_zp; where that is no code, its own code 0.
// linear and convolutions of codes of 8 bits and s8 weights, with K >= 1
bool HasPairs(const Case& c);

// All saturating pairs of output (m, n), by k; empty where HasPairs is false.
std::vector<Pair> SaturatingPairs(const Case& c, int64_t m, int64_t n);

// Summary over the whole case. Pairs: where HasPairs. Sums: linear and convolutions. Ties and
// clamped_high: u8, s8 and (clamp only) s32 outputs; of f32 outputs only those that relu sets to 0
// count, as clamped_low.
struct Headroom {
  int32_t pair_min = INT32_MAX;    // smallest PairHeadroom; INT32_MAX if there are no pairs
  std::optional<Pair> pair_worst;  // the first of the worst
  int64_t pairs_saturating = 0;
  int64_t acc_min = INT64_MAX;  // smallest distance of a corrected sum to leaving int32
  double tie_min = 1.0;         // smallest exact::TieDistance over the outputs
  int64_t ties = 0;             // outputs that are exact ties
  int64_t clamped_low = 0;      // outputs whose unclamped value lies below the lower bound
  int64_t clamped_high = 0;
  int64_t outputs = 0;
};
Headroom Measure(const Case& c);

// Which places Measure finds that the case reaches, in a third of its time: the search of each
// place ends where the case has reached it.
struct Reached {
  bool pair_saturates = false;   // pairs_saturating > 0
  bool int32_overflows = false;  // acc_min < 0
  bool tie = false;              // ties > 0
  bool near_tie = false;         // no tie, but tie_min <= the asked distance
  bool clamped_low = false;      // clamped_low > 0
  bool clamped_high = false;     // clamped_high > 0
  friend bool operator==(const Reached&, const Reached&) = default;
};
// `near` < 1.
Reached ReachedBy(const Case& c, double near);

// A kink: the code after which output channel n of a constant-input sweep changes slope on a
// pair-saturating kernel, because pair (k, k+1) with S = w_k + w_{k+1} leaves int16.
struct Kink {
  int64_t n = 0;
  int64_t k = 0;
  int32_t weight_sum = 0;       // S
  int32_t last_exact_code = 0;  // x*: floor(32767/S) for S > 0, floor(32768/|S|) for S < 0
};
// Predicted kinks of channel n inside the u8 range, by last_exact_code then k. In a convolution
// they hold for the outputs whose window lies inside the image: codes in the padding do not move
// with the sweep.
std::vector<Kink> PredictKinks(const Case& c, int64_t n);

}  // namespace qualm::headroom

#endif  // QUALM_ORACLES_HEADROOM_HEADROOM_H_
