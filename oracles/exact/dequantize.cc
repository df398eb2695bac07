// SPDX-License-Identifier: Apache-2.0
// y = s_n * (q - z_n), rounded once to float32.
#include "oracles/exact/definition.h"

namespace qualm::exact {

Rational DequantizeValue(const Case& c, int64_t m, int64_t n) {
  const Integer q = c.x.IntAt(m * c.N + n);
  const Integer z = c.x_q.zero_point_at(n);
  return ToRational(c.x_q.scale_at(n)) * Rational(Integer(q - z));
}

Tensor Dequantize(const Case& c) {
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      y.as<float>()[static_cast<size_t>(m * c.N + n)] = RoundToFloat32(DequantizeValue(c, m, n));
    }
  }
  return y;
}

}  // namespace qualm::exact
