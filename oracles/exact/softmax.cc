// SPDX-License-Identifier: Apache-2.0
// softmax of a row of N codes, the convention of QNNPACK's u8lut32norm (pytorch/pytorch,
// aten/src/ATen/native/quantized/cpu/qnnpack/src/softargmax.c and src/u8lut32norm/scalar.c), with
// the table in the real numbers instead of double, and the sum in integers instead of modulo 2^32:
//   q = min((2^32 - 1) / N, 2^23 - 1)
//   t_n = RNE(q * e^-(s * (max - x_n)))        max: the largest code of the row
//   y_n = clamp(min(255, floor((256 * t_n + floor(sum t / 2)) / sum t)) + z)
// The quotient is 256 * t_n / sum t rounded half up. For s8 x and y, z is -128, for u8 it is 0.
#include <algorithm>
#include <map>

#include "core/status.h"
#include "oracles/exact/definition.h"

namespace qualm::exact {
namespace {

// t, remembered: no more than 256 differ.
class Numerators {
 public:
  explicit Numerators(const Case& c) : s_(ToRational(c.x_q.scale_at(0))) {
    const Integer sum_limit = (Integer(1) << 32) - 1;
    const Integer one_limit = (Integer(1) << 23) - 1;
    q_ = std::min(Rational(sum_limit, Integer(c.N)), Rational(one_limit));
  }
  Integer At(int32_t below) {
    const auto [at, is_new] = known_.try_emplace(below, 0);
    if (is_new) at->second = RoundReal(RealFunction::kExp, s_ * Rational(-below), q_);
    return at->second;
  }
  const Rational& q() const { return q_; }

 private:
  Rational s_;
  Rational q_;
  std::map<int32_t, Integer> known_;
};

SoftmaxRow RowWith(const Case& c, int64_t m, Numerators* numerators) {
  SoftmaxRow row;
  row.q = numerators->q();
  row.largest = c.x.IntAt(m * c.N);
  for (int64_t n = 0; n < c.N; ++n) row.largest = std::max(row.largest, c.x.IntAt(m * c.N + n));
  for (int64_t n = 0; n < c.N; ++n) {
    row.t.push_back(numerators->At(row.largest - c.x.IntAt(m * c.N + n)));
    row.sum += row.t.back();
  }
  QUALM_CHECK(row.sum > 0);  // unless N is beyond 2^32
  return row;
}

}  // namespace

SoftmaxRow SoftmaxRowOf(const Case& c, int64_t m) {
  Numerators numerators(c);
  return RowWith(c, m, &numerators);
}

Integer SoftmaxRow::Share(int64_t n) const {
  return (256 * t[static_cast<size_t>(n)] + sum / 2) / sum;
}

Rational SoftmaxValue(const Case& c, int64_t m, int64_t n) {
  const SoftmaxRow row = SoftmaxRowOf(c, m);
  return Rational(Integer(256 * row.t[static_cast<size_t>(n)]), row.sum);
}

Tensor Softmax(const Case& c) {
  Tensor y(c.out_dtype, c.output_shape());
  if (y.empty()) return y;
  const Integer zero_point = c.out_q.zero_point_at(0);
  Numerators numerators(c);
  for (int64_t m = 0; m < c.M; ++m) {
    const SoftmaxRow row = RowWith(c, m, &numerators);
    for (int64_t n = 0; n < c.N; ++n) {
      const Integer share = std::min(Integer(255), row.Share(n));
      y.SetInt(m * c.N + n, Clamp(share + zero_point, LowerBound(c), c.out_max));
    }
  }
  return y;
}

}  // namespace qualm::exact
