// SPDX-License-Identifier: Apache-2.0
// add:     y = clamp(RNE((sa * (a - za) + sb * (b - zb)) / sy) + z)
// mul:     y = clamp(RNE(sa * (a - za) * sb * (b - zb) / sy) + z)
// rescale: y = clamp(RNE(s * (x - zx) / sy) + z)
// concat:  the same of the first A columns, and of the others with the parameters of b
// Operand a is x, operand b is w.
#include "oracles/exact/definition.h"

namespace qualm::exact {
namespace {

Rational Real(const Tensor& codes, const QParams& q, int64_t index) {
  const Integer code = codes.IntAt(index);
  return ToRational(q.scale_at(0)) * Rational(Integer(code - q.zero_point_at(0)));
}

}  // namespace

Rational AddValue(const Case& c, int64_t m, int64_t n) {
  const int64_t at = m * c.N + n;
  return (Real(c.x, c.x_q, at) + Real(c.w, c.w_q, at)) / ToRational(c.out_q.scale_at(0));
}

Rational MulValue(const Case& c, int64_t m, int64_t n) {
  const int64_t at = m * c.N + n;
  return Real(c.x, c.x_q, at) * Real(c.w, c.w_q, at) / ToRational(c.out_q.scale_at(0));
}

Rational RescaleValue(const Case& c, int64_t m, int64_t n) {
  return Real(c.x, c.x_q, m * c.N + n) / ToRational(c.out_q.scale_at(0));
}

Rational ConcatValue(const Case& c, int64_t m, int64_t n) {
  const int64_t a = c.x.shape()[1];
  const int64_t b = c.w.shape()[1];
  const Rational real = n < a ? Real(c.x, c.x_q, m * a + n) : Real(c.w, c.w_q, m * b + (n - a));
  return real / ToRational(c.out_q.scale_at(0));
}

}  // namespace qualm::exact
