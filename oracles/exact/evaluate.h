// SPDX-License-Identifier: Apache-2.0
// The fast form output by output, for Evaluate and for headroom. Internal to oracles/.
#ifndef QUALM_ORACLES_EXACT_EVALUATE_H_
#define QUALM_ORACLES_EXACT_EVALUATE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/case.h"
#include "oracles/exact/backend_requant.h"
#include "oracles/exact/dyadic.h"

namespace qualm::exact {

// All integer sums and per-channel constants are computed once, here. The case must outlive it.
class Outputs {
 public:
  explicit Outputs(const Case& c);
  // linear and convolutions, with these corrected sums instead of the case's own.
  Outputs(const Case& c, std::vector<__int128> sums);

  // An integer output before the clamp to [lo, out_max].
  struct Code {
    __int128 value = 0;  // rounded + zero point, or the s32 sum; far outside for +-inf
    int64_t lo = 0;
    std::optional<double> tie_distance;  // as exact::TieDistance: of the real value, in any mode
  };
  Code CodeAt(int64_t m, int64_t n) const;             // u8, s8 and s32 outputs
  float FloatAt(int64_t m, int64_t n) const;           // f32 outputs
  float UnclampedFloatAt(int64_t m, int64_t n) const;  // the same before relu

  // linear and convolutions: exact::CorrectedSums. Pools: sum, for max_pool maximum, of x - zx over
  // the window. Empty for other operations.
  const std::vector<__int128>& sums() const { return sums_; }

 private:
  __int128 IntegerAt(int64_t m, int64_t n) const;
  // What turns the integer of output (m, n) into its real value.
  Line LineAt(int64_t m, int64_t n) const;
  int64_t SecondAt(int64_t index) const;  // add, mul: b - zb

  const Case& c_;
  std::vector<__int128> sums_;
  std::vector<int64_t> counts_;          // average pools: the divisor of each output pixel
  std::vector<Line> lines_;              // per channel; empty for s32 outputs
  std::vector<BackendRequant> backend_;  // per channel; empty unless requant is not exact
  std::vector<int64_t> lo_;              // per channel
  std::vector<int64_t> zero_;            // per channel: zero point of the output codes
};

// Output `index` alone, as a case with M = N = 1 and the parameters of its channel. A window is cut
// down to the part of the image that it meets; taps of a convolution in the padding stay, positions
// of a pool beyond the padding go.
Case OneOutput(const Case& c, int64_t index);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_EVALUATE_H_
