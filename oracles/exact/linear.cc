// SPDX-License-Identifier: Apache-2.0
// S = sum_k (x_mk - zx) * (w_nk - zw_n) + bias_i32_n
//   u8, s8: y = clamp(RNE((S * sx * sw_n + bias_n) / sy) + z)
//   s32:    y = clamp(S)
//   f32:    y = S * sx * sw_n + bias_n, rounded once
#include "oracles/exact/sums.h"

namespace qualm::exact {

Rational ScaledSum(const Case& c, int64_t n, const Integer& sum) {
  if (c.out_dtype == DType::kS32) return Rational(sum);
  const Rational sx = ToRational(c.x_q.scale_at(0));
  const Rational sw = ToRational(c.w_q.scale_at(n));
  Rational real = Rational(sum) * sx * sw;
  if (c.bias) real += ToRational((*c.bias)[static_cast<size_t>(n)]);
  if (c.out_dtype == DType::kF32) return real;
  return real / ToRational(c.out_q.scale_at(0));
}

namespace {
namespace definition {

Integer Sum(const Case& c, int64_t m, int64_t n) {
  const Integer zx = c.x_q.zero_point_at(0);
  const Integer zw = c.w_q.zero_point_at(n);
  Integer sum = 0;
  for (int64_t k = 0; k < c.K; ++k) {
    const Integer x = c.x.IntAt(m * c.K + k);
    const Integer w = c.w.IntAt(n * c.K + k);
    sum += (x - zx) * (w - zw);
  }
  if (c.bias_i32) sum += (*c.bias_i32)[static_cast<size_t>(n)];
  return sum;
}

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  return ScaledSum(c, n, Sum(c, m, n));
}

}  // namespace definition
namespace told {

void Steps(Teller& t) {
  Terms terms{"k", {}};
  for (int64_t k = 0; k < t.c.K; ++k) terms.xw.emplace_back(t.c.x.IntAt(k), t.c.w.IntAt(k));
  TellSum(t, terms);
}

}  // namespace told
}  // namespace

extern constexpr Meaning kLinear{
    .op = Op::kLinear,
    .definition = {.value = definition::Value, .accumulator = definition::Sum},
    .fast = {.integers = SumsOf, .line = LineOfSum},
    .told = {.steps = Alone<told::Steps>}};

}  // namespace qualm::exact
