// SPDX-License-Identifier: Apache-2.0
// The fast form of a case, stage by stage and output by output: for Evaluate, and for callers that
// look at a stage (headroom, the bounds of variations, aimed mutations). Internal to this
// repository.
//   integer  what an output is made of: a sum, a difference, a product of differences
//   value    the real value, a line of the integer: exact
//   rounded  the integer nearest to the value
//   code     zero point added
//   output   clamped
#ifndef QUALM_ORACLES_EXACT_EVALUATE_H_
#define QUALM_ORACLES_EXACT_EVALUATE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/exact/arithmetic/dyadic.h"
#include "oracles/exact/backend_requant.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {

struct FastForm;

// The real value of an output is line(integer).
struct Scaled {
  Line line;
  __int128 integer = 0;
};

// What at least one output of u8 or s8 comes to.
struct Ends {
  bool below = false;  // the clamp raises it
  bool above = false;  // the clamp lowers it
  bool tie = false;
  bool near_tie = false;  // within the asked distance of a tie, and on none
};

// All integers and per-channel constants are computed once, here. The case must outlive it. Not for
// choose_qparams, which has no such stages.
class Outputs {
 public:
  explicit Outputs(const Case& c);
  // With these integers instead of the case's own.
  Outputs(const Case& c, Integers integers);

  const Integers& integers() const { return integers_; }

  // Not for values that are no such line: sigmoid and tanh, NaN and infinities, weights in blocks.
  Scaled ScaledAt(int64_t m, int64_t n) const;
  // The value before rounding, zero point and clamp as a double, in output codes, or in real units
  // where the output is f32.
  Real RealAt(int64_t m, int64_t n) const;

  // u8 and s8 outputs: nearest to the value in any requantization mode.
  Rounded RoundedAt(int64_t m, int64_t n) const;

  Code CodeAt(int64_t m, int64_t n) const;  // u8, s8 and s32 outputs
  // The same where only the value matters: where an estimate decides it, tie_distance and `rest`
  // are left out, and `distance_bound` becomes a number that is greater than 0 and not above the
  // tie_distance.
  Code CodeAt(int64_t m, int64_t n, double* distance_bound) const;
  // Of u8 and s8 outputs. `near` < 2 is in units of TieDistance. If there is a tie, near_tie is not
  // looked for any more.
  Ends EndsReached(double near) const;
  float FloatAt(int64_t m, int64_t n) const;           // f32 outputs
  float UnclampedFloatAt(int64_t m, int64_t n) const;  // the same before relu

  Tensor Clamped() const;

 private:
  size_t IndexOf(int64_t m, int64_t n) const { return static_cast<size_t>(m * c_.N + n); }
  Scaled OnChannelLine(int64_t m, int64_t n) const;
  // Weights in blocks: the terms that the channel's line adds, valid until the next call.
  Terms BlockTerms(int64_t m, int64_t n) const;
  // The result of RoundedAt, if an estimate decides it.
  std::optional<Near> NearAt(int64_t m, int64_t n) const;
  // A code of u8 and s8 outputs, from the rounded value.
  __int128 CodeOf(int64_t m, int64_t n, int64_t rounded) const;

  const Case& c_;
  const FastForm& form_;
  Integers integers_;
  std::vector<Line> lines_;          // per channel; empty for s32 outputs
  mutable std::vector<Term> terms_;  // of BlockTerms
  // Per channel, of codes of operations that neither scale nor round each output in its own way.
  std::vector<EstimatedLine> estimated_;
  std::vector<BackendRequant> backend_;  // per channel; empty unless requant is not exact
  std::vector<int64_t> lo_;              // per channel
  std::vector<int64_t> zero_;            // per channel: zero point of the output codes
};

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_EVALUATE_H_
