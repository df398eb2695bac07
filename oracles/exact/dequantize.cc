// SPDX-License-Identifier: Apache-2.0
// y = s_n * (q - z_n), rounded once to float32.
#include "oracles/exact/meanings.h"
#include "oracles/exact/told.h"

namespace qualm::exact {
namespace {
namespace definition {

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  const Integer q = c.x.IntAt(m * c.N + n);
  const Integer z = c.x_q.zero_point_at(n);
  return ToRational(c.x_q.scale_at(n)) * Rational(Integer(q - z));
}

}  // namespace definition
namespace fast {

void Differences(const Case& c, Integers* integers) {
  for (int64_t i = 0; i < c.M * c.N; ++i) {
    integers->values.push_back(int64_t{c.x.IntAt(i)} - c.x_q.zero_point_at(i % c.N));
  }
}

Line TimesScale(const Case& c, int64_t n) { return Scale(c.x_q.scale_at(n)); }

}  // namespace fast
namespace told {

void Steps(Teller& t) {
  const Rational difference = t.Difference("", t.c.x, t.c.x_q);
  const Rational value = *definition::Value(t.c, 0, 0);
  t.Step(Stage::kScale,
         "multiply by scale: " + ToText(difference) + " * " + Short(t.c.x_q.scale_at(0)), value);
  t.RoundToReal(value);
}

}  // namespace told
}  // namespace

extern constexpr Meaning kDequantize{
    .op = Op::kDequantize,
    .definition = {.value = definition::Value},
    .fast = {.integers = fast::Differences, .line = fast::TimesScale},
    .told = {.steps = Alone<told::Steps>}};

}  // namespace qualm::exact
