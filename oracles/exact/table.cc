// SPDX-License-Identifier: Apache-2.0
// table: y = clamp(RNE(f(s * (x - zx)) / sy) + z)
//   relu        f(v) = max(v, 0)
//   leaky_relu  f(v) = v where v >= 0, else negative_slope * v
//   hardswish   f(v) = v * min(max(v + 3, 0), 6) / 6
//   sigmoid     f(v) = 1 / (1 + e^-v)
//   tanh        f(v) = (e^v - e^-v) / (e^v + e^-v)
#include <algorithm>
#include <map>

#include "core/status.h"
#include "oracles/exact/definition.h"

namespace qualm::exact {

std::optional<Rational> FunctionValue(const Case& c, const Rational& v) {
  switch (c.function) {
    case Function::kRelu: return v < 0 ? Rational(0) : v;
    case Function::kLeakyRelu: return v < 0 ? Rational(ToRational(c.negative_slope) * v) : v;
    case Function::kHardSwish: {
      const Rational relu6 = std::min(std::max(Rational(v + 3), Rational(0)), Rational(6));
      return v * relu6 / 6;
    }
    case Function::kSigmoid:
    case Function::kTanh:
      if (v == 0) return Enclose(*RealFunctionOf(c), v, 64).lo;
      return std::nullopt;
  }
  QUALM_CHECK(!"unknown function");
  return std::nullopt;
}

std::optional<RealFunction> RealFunctionOf(const Case& c) {
  if (c.function == Function::kSigmoid) return RealFunction::kSigmoid;
  if (c.function == Function::kTanh) return RealFunction::kTanh;
  return std::nullopt;
}

Rational TableArgument(const Case& c, int64_t m, int64_t n) {
  const Integer code = c.x.IntAt(m * c.N + n);
  return ToRational(c.x_q.scale_at(0)) * Rational(Integer(code - c.x_q.zero_point_at(0)));
}

std::optional<Rational> TableValue(const Case& c, int64_t m, int64_t n) {
  const std::optional<Rational> value = FunctionValue(c, TableArgument(c, m, n));
  if (!value) return std::nullopt;
  return *value / ToRational(c.out_q.scale_at(0));
}

Integer RoundTableValue(const Case& c, int64_t m, int64_t n) {
  if (const std::optional<Rational> value = TableValue(c, m, n)) return RoundHalfEven(*value);
  return RoundReal(*RealFunctionOf(c), TableArgument(c, m, n), 1 / ToRational(c.out_q.scale_at(0)));
}

Tensor Table(const Case& c) {
  Tensor y(c.out_dtype, c.output_shape());
  const Integer zero_point = c.out_q.zero_point_at(0);
  std::map<int32_t, int32_t> known;  // outputs depend on the code alone
  for (int64_t i = 0; i < y.size(); ++i) {
    const auto [at, is_new] = known.try_emplace(c.x.IntAt(i), 0);
    if (is_new) {
      at->second =
          Clamp(RoundTableValue(c, i / c.N, i % c.N) + zero_point, LowerBound(c), c.out_max);
    }
    y.SetInt(i, at->second);
  }
  return y;
}

}  // namespace qualm::exact
