// SPDX-License-Identifier: Apache-2.0
// The requantization modes other than exact (docs/quantization.md), fast form: integers only, so
// that neither rounding mode nor FTZ/DAZ matter. Shares nothing with the definition in rationals.
// Internal to oracles/exact.
#ifndef QUALM_ORACLES_EXACT_BACKEND_REQUANT_H_
#define QUALM_ORACLES_EXACT_BACKEND_REQUANT_H_

#include <cstdint>

#include "core/case.h"

namespace qualm::exact {

// One output channel of a case whose requant is not exact.
class BackendRequant {
 public:
  BackendRequant(const Case& c, int64_t channel);

  // The code before the clamp, zero point added.
  int64_t CodeOf(__int128 sum) const;

 private:
  int64_t Float32(int64_t sum) const;
  int64_t FixedQ31(int64_t sum) const;
  int64_t FixedRndnu(int64_t sum) const;

  Requant mode_;
  int64_t zero_point_;
  // The multiplier is mantissa_ * 2^exponent_: of 24 bits at most, for kFixedQ31 0 or of 31 bits.
  int64_t mantissa_ = 0;
  int exponent_ = 0;
  bool infinite_ = false;  // float32 overflow of x_scale*w_scale/out_scale
};

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_BACKEND_REQUANT_H_
