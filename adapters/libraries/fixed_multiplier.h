// SPDX-License-Identifier: Apache-2.0
// Multiplier and exponent as TFLite makes them for gemmlowp and ruy
// (tensorflow/lite/kernels/internal/quantization_util.cc, QuantizeMultiplier). The plugins of both
// call the libraries as TFLite does, so they share it.
#ifndef QUALM_ADAPTERS_LIBRARIES_FIXED_MULTIPLIER_H_
#define QUALM_ADAPTERS_LIBRARIES_FIXED_MULTIPLIER_H_

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <vector>

#include "adapters/qualm_plugin.h"

namespace qualm::plugin {

// One for each output channel, or one for all: fixed * 2^(exponent - 31).
struct Multipliers {
  std::vector<int32_t> fixed;
  std::vector<int> exponent;
};

inline void AppendMultiplier(double multiplier, Multipliers& multipliers) {
  int exponent = 0;
  const double mantissa = std::frexp(multiplier, &exponent);
  auto fixed = static_cast<int64_t>(std::round(mantissa * 0x1p31));
  if (fixed == int64_t{1} << 31) {
    fixed /= 2;
    ++exponent;
  }
  if (exponent < -31) fixed = exponent = 0;
  multipliers.fixed.push_back(static_cast<int32_t>(fixed));
  multipliers.exponent.push_back(exponent);
}

// The libraries compute without floating point. Under this scope our own computation in floating
// point does not depend on the caller's rounding mode.
class NearestRounding {
 public:
  NearestRounding() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  NearestRounding(const NearestRounding&) = delete;
  NearestRounding& operator=(const NearestRounding&) = delete;
  ~NearestRounding() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
};

// The multipliers of a problem: as given, or the quotients of its scales.
[[gnu::noinline]] inline Multipliers MultipliersOf(const qualm_problem& p) {
  const NearestRounding scope;
  Multipliers multipliers;
  for (int64_t n = 0; n < p.multiplier_count; ++n)
    AppendMultiplier(static_cast<double>(p.multiplier[n]), multipliers);
  if (p.multiplier_count > 0) return multipliers;
  for (int64_t n = 0; n < p.w_q.count; ++n) {
    AppendMultiplier(static_cast<double>(p.x_q.scale[0]) * static_cast<double>(p.w_q.scale[n]) /
                         static_cast<double>(p.out_q.scale[0]),
                     multipliers);
  }
  return multipliers;
}

}  // namespace qualm::plugin

#endif  // QUALM_ADAPTERS_LIBRARIES_FIXED_MULTIPLIER_H_
