// SPDX-License-Identifier: Apache-2.0
// y = clamp(RNE(x / s_n) + z_n); NaN gives z_n and +-inf an end of the range, both clamped.
#include <cmath>

#include "oracles/exact/definition.h"

namespace qualm::exact {

std::optional<Rational> QuantizeValue(const Case& c, int64_t m, int64_t n) {
  const float x = c.x.FloatAt(m * c.N + n);
  if (!std::isfinite(x)) return std::nullopt;
  return ToRational(x) / ToRational(c.out_q.scale_at(n));
}

Tensor Quantize(const Case& c) {
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const float x = c.x.FloatAt(m * c.N + n);
      const Integer zero_point = c.out_q.zero_point_at(n);
      const int64_t lo = LowerBound(c, n);
      const int64_t hi = c.out_max;
      int32_t code = 0;
      if (std::isnan(x)) {
        code = Clamp(zero_point, lo, hi);
      } else if (std::isinf(x)) {
        code = Clamp(x > 0 ? hi : lo, lo, hi);
      } else {
        code = Clamp(RoundHalfEven(*QuantizeValue(c, m, n)) + zero_point, lo, hi);
      }
      y.SetInt(m * c.N + n, code);
    }
  }
  return y;
}

}  // namespace qualm::exact
