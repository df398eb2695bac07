// SPDX-License-Identifier: Apache-2.0
// table: y = clamp(RNE(f(s * (x - zx)) / sy) + z)
//   relu        f(v) = max(v, 0)
//   leaky_relu  f(v) = v where v >= 0, else negative_slope * v
//   hardswish   f(v) = v * min(max(v + 3, 0), 6) / 6
//   sigmoid     f(v) = 1 / (1 + e^-v)
//   tanh        f(v) = (e^v - e^-v) / (e^v + e^-v)
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "core/status.h"
#include "oracles/exact/arithmetic/fixed_point.h"
#include "oracles/exact/arithmetic/real.h"
#include "oracles/exact/definition.h"
#include "oracles/exact/meanings.h"
#include "oracles/exact/told.h"

namespace qualm::exact {
namespace {
namespace definition {

// Which of the real functions sigmoid or tanh is.
RealFunction RealFunctionOf(const Case& c) {
  return c.function == Function::kSigmoid ? RealFunction::kSigmoid : RealFunction::kTanh;
}

// f(v), where that is rational.
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
      if (v == 0) return Enclose(RealFunctionOf(c), v, 64).lo;
      return std::nullopt;
  }
  QUALM_CHECK(!"unknown function");
  return std::nullopt;
}

// v, the argument of f.
Rational Argument(const Case& c, int64_t m, int64_t n) {
  return RealOperand(c.x, c.x_q, m * c.N + n);
}

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  const std::optional<Rational> value = FunctionValue(c, Argument(c, m, n));
  if (!value) return std::nullopt;
  return *value / ToRational(c.out_q.scale_at(0));
}

// The integer nearest to the value.
Integer RoundedValue(const Case& c, int64_t m, int64_t n) {
  if (const std::optional<Rational> value = Value(c, m, n)) return RoundHalfEven(*value);
  return RoundReal(RealFunctionOf(c), Argument(c, m, n), 1 / ToRational(c.out_q.scale_at(0)));
}

Tensor All(const Case& c) {
  Tensor y(c.out_dtype, c.output_shape());
  const Integer zero_point = c.out_q.zero_point_at(0);
  std::map<int32_t, int32_t> known;  // outputs depend on the code alone
  for (int64_t i = 0; i < y.size(); ++i) {
    const auto [at, is_new] = known.try_emplace(c.x.IntAt(i), 0);
    if (is_new) {
      at->second = Clamp(RoundedValue(c, i / c.N, i % c.N) + zero_point, LowerBound(c), c.out_max);
    }
    y.SetInt(i, at->second);
  }
  return y;
}

}  // namespace definition
namespace fast {

// s * difference >= bound > 0, exactly. |difference| < 2^33.
bool AtLeast(const Dyadic& s, int64_t difference, int64_t bound) {
  if (difference <= 0) return false;
  const __int128 product = static_cast<__int128>(s.mantissa) * difference;  // < 2^57
  if (s.exponent >= 0) return s.exponent > 8 || (product << s.exponent) >= bound;
  if (s.exponent < -60) return false;  // product * 2^exponent < 1/8
  return product >= static_cast<__int128>(bound) << -s.exponent;
}

// The value as a line of d = x - zx or, where f is a parabola, of d^2; none where f is not
// rational.
std::optional<Scaled> Apply(const Case& c, Scaled identity) {
  const float s = c.x_q.scale_at(0);
  const float out = c.out_q.scale_at(0);
  const auto d = static_cast<int64_t>(identity.integer);
  switch (c.function) {
    case Function::kRelu: return Scaled{identity.line, std::max<int64_t>(d, 0)};
    case Function::kLeakyRelu:
      return d < 0 ? Scaled{Over(Scale(s, c.negative_slope), out), d} : identity;
    case Function::kHardSwish: {
      const Dyadic scale = Decode(s);
      if (AtLeast(scale, -d, 3)) return Scaled{identity.line, 0};
      if (AtLeast(scale, d, 3)) return identity;
      // ((s*d)^2 + 3*s*d) / (6 * sy)
      return Scaled{Over(Plus(Scale(s, s), s, 3 * d), out, 6), static_cast<__int128>(d) * d};
    }
    case Function::kSigmoid:
    case Function::kTanh: break;
  }
  return std::nullopt;
}

void ApplyAt(const Case& c, const Integers&, int64_t, int64_t, Scaled* identity) {
  *identity = *Apply(c, *identity);
}

// RoundRealFunction, kept from case to case: no more than 256 differences differ, and a moved zero
// point asks about the same ones.
Rounded RoundFunction(const Case& c, int64_t difference) {
  using Key = std::tuple<Function, float, float>;
  thread_local Key key;
  thread_local std::unordered_map<int64_t, Rounded> known;
  const Key wanted(c.function, c.x_q.scale_at(0), c.out_q.scale_at(0));
  if (key != wanted || known.size() > 1024) {
    key = wanted;
    known.clear();
  }
  const auto [at, is_new] = known.try_emplace(difference);
  if (is_new) {
    at->second = RoundRealFunction(c.function, c.x_q.scale_at(0), difference, c.out_q.scale_at(0));
  }
  return at->second;
}

Rounded RoundOne(const Case& c, const Integers&, int64_t, int64_t, const Scaled& identity) {
  if (const std::optional<Scaled> scaled = Apply(c, identity))
    return Round(scaled->line, scaled->integer);
  return RoundFunction(c, static_cast<int64_t>(identity.integer));
}

std::optional<Estimate> EstimateOne(const Case& c, int64_t, int64_t, const Scaled& identity) {
  if (const std::optional<Scaled> scaled = Apply(c, identity))
    return EstimatedLine(scaled->line).At(scaled->integer);
  return EstimateRealFunction(c.function, c.x_q.scale_at(0), static_cast<int64_t>(identity.integer),
                              c.out_q.scale_at(0));
}

std::optional<Real> Irrational(const Case& c, int64_t m, int64_t n) {
  const int64_t d = Difference(c.x, c.x_q, m * c.N + n);
  if (Apply(c, {Line(), d})) return std::nullopt;
  const double f = RealFunctionValue(c.function, c.x_q.scale_at(0), d);
  return Real{f / c.out_q.scale_at(0), false};
}

}  // namespace fast
namespace told {

std::string Value(const Case& c, int64_t index) {
  return std::string(Name(c.function)) + "(" +
         ToText(definition::Argument(c, index / c.N, index % c.N)) + ") / (" +
         ToText(ToRational(c.out_q.scale_at(0))) + ")";
}

void Steps(Teller& t) {
  const Case& c = t.c;
  const Rational difference = t.Difference("", c.x, c.x_q);
  const Rational v = definition::Argument(c, 0, 0);
  t.Step(Stage::kScale,
         "multiply by x_scale: " + Readable(difference) + " * " + Short(c.x_q.scale_at(0)), v);
  const std::string name(Name(c.function));
  std::string apply = "apply " + name;
  if (c.function == Function::kLeakyRelu) apply += " of negative slope " + Short(c.negative_slope);
  const std::string divide = "divide by out_scale: ";
  const std::string over = " / " + Short(c.out_q.scale_at(0));
  if (const std::optional<Rational> f = definition::FunctionValue(c, v)) {
    t.Step(Stage::kScale, apply, *f);
    const Rational value = *definition::Value(c, 0, 0);
    t.Step(Stage::kScale, divide + Readable(*f) + over, value);
    t.RoundToCode(value);
    return;
  }
  const Enclosure f = Enclose(definition::RealFunctionOf(c), v, 64);
  const std::string text = ApproximateText(f.lo);
  t.Step(Stage::kScale, apply + " = " + text + "...", name + "(" + ToText(v) + ")");
  const std::string value = ApproximateText(f.lo / ToRational(c.out_q.scale_at(0)));
  t.Step(Stage::kScale, divide + text + "..." + over + " = " + value + "...", Value(c, 0));
  const Integer rounded = definition::RoundedValue(c, 0, 0);
  t.Step(Stage::kRound, "round to the nearest integer: " + value + "...", Rational(rounded));
  t.AddZeroPoint(rounded);
}

}  // namespace told
}  // namespace

extern constexpr Meaning kTable{
    .op = Op::kTable,
    .definition = {.value = definition::Value, .outputs = definition::All},
    .fast = {.integers = DifferencesOfX,
             .line = RescaleLine,
             .scaled = fast::ApplyAt,
             .rounded = fast::RoundOne,
             .estimate = fast::EstimateOne,
             .real = fast::Irrational},
    .told = {.steps = Alone<told::Steps>, .value = told::Value}};

}  // namespace qualm::exact
