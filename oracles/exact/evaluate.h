// SPDX-License-Identifier: Apache-2.0
// The fast form output by output, for Evaluate and for headroom. Internal to oracles/.
#ifndef QUALM_ORACLES_EXACT_EVALUATE_H_
#define QUALM_ORACLES_EXACT_EVALUATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/case.h"
#include "oracles/exact/backend_requant.h"
#include "oracles/exact/dyadic.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {

// All integer sums and per-channel constants are computed once, here. The case must outlive it.
class Outputs {
 public:
  explicit Outputs(const Case& c);
  // With these integers instead of the case's own.
  Outputs(const Case& c, Integers integers);

  Code CodeAt(int64_t m, int64_t n) const;             // u8, s8 and s32 outputs
  float FloatAt(int64_t m, int64_t n) const;           // f32 outputs
  float UnclampedFloatAt(int64_t m, int64_t n) const;  // the same before relu

  // Integers::values of linear, convolutions, pools and softmax. Empty for other operations.
  const std::vector<__int128>& sums() const { return integers_.values; }
  // Integers::counts.
  const std::vector<int64_t>& counts() const { return integers_.counts; }
  __int128 IntegerAt(int64_t m, int64_t n) const;

 private:
  // What turns the integer of output (m, n) into its real value.
  Line LineAt(int64_t m, int64_t n) const;
  int64_t SecondAt(int64_t index) const;  // add, mul: b - zb
  Rounded TableAt(int64_t difference) const;
  Rounded SoftmaxAt(int64_t m, int64_t n) const;

  const Case& c_;
  Integers integers_;
  std::vector<Line> lines_;                   // per channel; empty for s32 outputs
  std::vector<BackendRequant> backend_;       // per channel; empty unless requant is not exact
  std::vector<int64_t> lo_;                   // per channel
  std::vector<int64_t> zero_;                 // per channel: zero point of the output codes
  mutable std::map<int64_t, Rounded> table_;  // table: by x - zx, as far as asked for
};

// Output `index` alone, as a case with M = N = 1 and the parameters of its channel. A window is cut
// down to the part of the image that it meets; taps of a convolution in the padding stay, positions
// of a pool beyond the padding go. Of softmax: its whole row, with N as it was, the element of that
// output swapped to the front; its output is the first.
Case OneOutput(const Case& c, int64_t index);

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_EVALUATE_H_
