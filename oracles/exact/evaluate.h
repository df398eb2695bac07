// SPDX-License-Identifier: Apache-2.0
// The fast form output by output, for Evaluate and for headroom. Internal to oracles/.
#ifndef QUALM_ORACLES_EXACT_EVALUATE_H_
#define QUALM_ORACLES_EXACT_EVALUATE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/case.h"
#include "oracles/exact/dyadic.h"

namespace qualm::exact {

// All integer sums and per-channel constants are computed once, here. The case must outlive it.
class Outputs {
 public:
  explicit Outputs(const Case& c);
  // linear, with these corrected sums instead of the case's own.
  Outputs(const Case& c, std::vector<__int128> sums);

  // An integer output before the clamp to [lo, out_max].
  struct Code {
    __int128 value = 0;  // rounded + zero point, or the s32 sum; far outside for +-inf
    int64_t lo = 0;
    std::optional<double> tie_distance;  // as exact::TieDistance
  };
  Code CodeAt(int64_t m, int64_t n) const;             // u8, s8 and s32 outputs
  float FloatAt(int64_t m, int64_t n) const;           // f32 outputs
  float UnclampedFloatAt(int64_t m, int64_t n) const;  // the same before relu

  // linear: sum_k (x-zx)(w-zw_n) + bias_i32_n, [M*N]; empty for other operations.
  const std::vector<__int128>& sums() const { return sums_; }

 private:
  __int128 IntegerAt(int64_t m, int64_t n) const;

  const Case& c_;
  std::vector<__int128> sums_;
  std::vector<Line> lines_;    // per channel; empty for s32 outputs
  std::vector<int64_t> lo_;    // per channel
  std::vector<int64_t> zero_;  // per channel: zero point of the output codes
};

// Output `index` alone, as a case with M = N = 1 and the parameters of its channel.
Case OneOutput(const Case& c, int64_t index);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_EVALUATE_H_
