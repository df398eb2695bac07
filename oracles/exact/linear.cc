// SPDX-License-Identifier: Apache-2.0
// S = sum_k (x_mk - zx) * (w_nk - zw_n) + bias_i32_n
//   u8, s8: clamp(RNE((S * sx * sw_n + bias_n) / sy) + z)
//   s32:    clamp(S)
//   f32:    S * sx * sw_n + bias_n rounded once to float32, then max(0, .) under relu
#include "oracles/exact/definition.h"

namespace qualm::exact {
namespace {

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

}  // namespace

Rational LinearValue(const Case& c, int64_t m, int64_t n) {
  const Rational sum(Sum(c, m, n));
  if (c.out_dtype == DType::kS32) return sum;
  const Rational sx = ToRational(c.x_q.scale_at(0));
  const Rational sw = ToRational(c.w_q.scale_at(n));
  Rational real = sum * sx * sw;
  if (c.bias) real += ToRational((*c.bias)[static_cast<size_t>(n)]);
  if (c.out_dtype == DType::kF32) return real;
  return real / ToRational(c.out_q.scale_at(0));
}

Tensor Linear(const Case& c) {
  Tensor y(c.out_dtype, c.output_shape());
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      const Rational value = LinearValue(c, m, n);
      const int64_t index = m * c.N + n;
      switch (c.out_dtype) {
        case DType::kU8:
        case DType::kS8: {
          const Integer zero_point = c.out_q.zero_point_at(0);
          y.SetInt(index, Clamp(RoundHalfEven(value) + zero_point, LowerBound(c), c.out_max));
          break;
        }
        case DType::kS32: y.SetInt(index, Clamp(numerator(value), LowerBound(c), c.out_max)); break;
        case DType::kF32:
          y.as<float>()[static_cast<size_t>(index)] =
              c.relu && value < 0 ? 0.0f : RoundToFloat32(value);
          break;
      }
    }
  }
  return y;
}

}  // namespace qualm::exact
