// SPDX-License-Identifier: Apache-2.0
// y = clamp(RNE(acc * m_n) + z); m_n is a float32, or the quotient sx * sw_n / sy of three.
#include "oracles/exact/definition.h"

namespace qualm::exact {

Rational RealMultiplier(const Case& c, int64_t n) {
  if (!c.multiplier.empty()) {
    return ToRational(c.multiplier[c.multiplier.size() == 1 ? 0 : static_cast<size_t>(n)]);
  }
  return ToRational(c.x_q.scale_at(0)) * ToRational(c.w_q.scale_at(n)) /
         ToRational(c.out_q.scale_at(0));
}

Rational RequantizeValue(const Case& c, int64_t m, int64_t n) {
  return Rational(Integer(c.x.IntAt(m * c.N + n))) * RealMultiplier(c, n);
}

}  // namespace qualm::exact
