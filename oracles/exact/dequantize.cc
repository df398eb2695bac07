// SPDX-License-Identifier: Apache-2.0
// y = s_n * (q - z_n), rounded once to float32.
#include "oracles/exact/definition.h"

namespace qualm::exact {

Rational DequantizeValue(const Case& c, int64_t m, int64_t n) {
  const Integer q = c.x.IntAt(m * c.N + n);
  const Integer z = c.x_q.zero_point_at(n);
  return ToRational(c.x_q.scale_at(n)) * Rational(Integer(q - z));
}

}  // namespace qualm::exact
