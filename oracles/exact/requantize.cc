// SPDX-License-Identifier: Apache-2.0
// y = clamp(RNE(acc * m_n) + z); m_n is a float32, or the quotient sx * sw_n / sy of three.
#include "oracles/exact/definition.h"
#include "oracles/exact/meanings.h"
#include "oracles/exact/told.h"

namespace qualm::exact {

Rational RealMultiplier(const Case& c, int64_t n) {
  if (!c.multiplier.empty()) {
    return ToRational(c.multiplier[c.multiplier.size() == 1 ? 0 : static_cast<size_t>(n)]);
  }
  return ToRational(c.x_q.scale_at(0)) * ToRational(c.w_q.scale_at(n)) /
         ToRational(c.out_q.scale_at(0));
}

namespace {
namespace definition {

Integer Accumulator(const Case& c, int64_t m, int64_t n) { return c.x.IntAt(m * c.N + n); }

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  return Rational(Accumulator(c, m, n)) * RealMultiplier(c, n);
}

}  // namespace definition
namespace fast {

void Accumulators(const Case& c, Integers* integers) {
  for (int64_t i = 0; i < c.M * c.N; ++i) integers->values.push_back(c.x.IntAt(i));
}

Line Multiplier(const Case& c, int64_t n) {
  if (!c.multiplier.empty()) {
    return Scale(c.multiplier[c.multiplier.size() == 1 ? 0 : static_cast<size_t>(n)]);
  }
  return Over(Scale(c.x_q.scale_at(0), c.w_q.scale_at(n)), c.out_q.scale_at(0));
}

}  // namespace fast
namespace told {

void Steps(Teller& t) {
  const Case& c = t.c;
  const int32_t acc = c.x.IntAt(0);
  t.Step(Stage::kAccumulate, "the accumulator is given", Rational(acc));
  if (c.requant != Requant::kExact) return t.RoundAs(acc);
  const Rational value = *definition::Value(c, 0, 0);
  const std::string product = std::to_string(acc) + " * ";
  if (c.multiplier.empty()) {
    t.Step(Stage::kScale, "multiply by x_scale*w_scale/out_scale: " + product + ScalesText(c),
           value);
  } else {
    t.Step(Stage::kScale, "multiply: " + product + Short(c.multiplier[0]), value);
  }
  t.RoundToCode(value);
}

}  // namespace told
}  // namespace

extern constexpr Meaning kRequantize{
    .op = Op::kRequantize,
    .definition = {.value = definition::Value, .accumulator = definition::Accumulator},
    .fast = {.integers = fast::Accumulators, .line = fast::Multiplier},
    .told = {.steps = Alone<told::Steps>}};

}  // namespace qualm::exact
