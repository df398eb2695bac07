// SPDX-License-Identifier: Apache-2.0
// y = clamp(RNE(x / s_n) + z_n); NaN gives z_n and +-inf an end of the range, both clamped.
#include <cmath>

#include "core/float_text.h"
#include "oracles/exact/definition.h"
#include "oracles/exact/meanings.h"
#include "oracles/exact/told.h"

namespace qualm::exact {
namespace {
namespace definition {

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  const float x = c.x.FloatAt(m * c.N + n);
  if (!std::isfinite(x)) return std::nullopt;
  return ToRational(x) / ToRational(c.out_q.scale_at(n));
}

Tensor All(const Case& c) {
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
        code = Clamp(RoundHalfEven(*Value(c, m, n)) + zero_point, lo, hi);
      }
      y.SetInt(m * c.N + n, code);
    }
  }
  return y;
}

}  // namespace definition
namespace fast {

// 0 for NaN and infinities.
Dyadic At(const Case& c, int64_t index) {
  const float x = c.x.FloatAt(index);
  return std::isfinite(x) ? Decode(x) : Dyadic();
}

void Mantissas(const Case& c, Integers* integers) {
  for (int64_t i = 0; i < c.M * c.N; ++i) integers->values.push_back(At(c, i).mantissa);
}

Line OverScale(const Case& c, int64_t n) { return Over(Line(), c.out_q.scale_at(n)); }

void WithExponent(const Case& c, const Integers&, int64_t m, int64_t n, Scaled* mantissa) {
  mantissa->line.gain_exponent = At(c, m * c.N + n).exponent;
}

Rounded RoundOne(const Case& c, const Integers& integers, int64_t m, int64_t n,
                 const Scaled& mantissa) {
  const float x = c.x.FloatAt(m * c.N + n);
  if (!std::isfinite(x))  // NaN: real 0, without a distance
    return {std::isnan(x) ? 0 : std::signbit(x) ? -kFar : kFar, std::nullopt};
  Scaled scaled = mantissa;
  WithExponent(c, integers, m, n, &scaled);
  return Round(scaled.line, scaled.integer);
}

std::optional<Estimate> EstimateOne(const Case& c, int64_t m, int64_t n, const Scaled& mantissa) {
  if (!std::isfinite(c.x.FloatAt(m * c.N + n))) return std::nullopt;
  Scaled scaled = mantissa;
  WithExponent(c, {}, m, n, &scaled);
  return EstimatedLine(scaled.line).At(scaled.integer);
}

std::optional<Real> Special(const Case& c, int64_t m, int64_t n) {
  const float x = c.x.FloatAt(m * c.N + n);
  if (std::isfinite(x)) return std::nullopt;
  return Real{static_cast<double>(x), false};
}

}  // namespace fast
namespace told {

void Steps(Teller& t) {
  const Case& c = t.c;
  const float x = c.x.FloatAt(0);
  const int32_t z = c.out_q.zero_point_at(0);
  if (std::isnan(x)) {
    t.Step(Stage::kZeroPoint, "x is NaN, which stands for the zero point " + std::to_string(z),
           std::to_string(z));
    t.ClampCode(z);
    return;
  }
  if (std::isinf(x)) {
    const std::string end = std::signbit(x) ? "lower" : "upper";
    const int64_t lo = LowerBound(c);
    const int32_t code = Clamp(std::signbit(x) ? lo : c.out_max, lo, c.out_max);
    t.Step(Stage::kClamp,
           "x is " + FloatText(x) + ", which gives the " + end + " end of the range, " +
               std::to_string(code),
           std::to_string(code));
    return;
  }
  const Rational value = *definition::Value(c, 0, 0);
  t.Step(Stage::kScale, "x / scale: " + Short(x) + " / " + Short(c.out_q.scale_at(0)), value);
  t.RoundToCode(value);
}

std::string Value(const Case& c, int64_t index) {
  const float x = c.x.FloatAt(index);
  return std::isnan(x) ? "nan" : FloatText(x);
}

}  // namespace told
}  // namespace

extern constexpr Meaning kQuantize{
    .op = Op::kQuantize,
    .definition = {.value = definition::Value, .outputs = definition::All},
    .fast = {.integers = fast::Mantissas,
             .line = fast::OverScale,
             .scaled = fast::WithExponent,
             .rounded = fast::RoundOne,
             .estimate = fast::EstimateOne,
             .real = fast::Special},
    .told = {.steps = Alone<told::Steps>, .value = told::Value}};

}  // namespace qualm::exact
