// SPDX-License-Identifier: Apache-2.0
// y = clamp(RNE(sa * (a - za) * sb * (b - zb) / sy) + z). Operand a is x, operand b is w.
#include "oracles/exact/definition.h"
#include "oracles/exact/meanings.h"
#include "oracles/exact/told.h"

namespace qualm::exact {
namespace {
namespace definition {

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  const int64_t at = m * c.N + n;
  return RealOperand(c.x, c.x_q, at) * RealOperand(c.w, c.w_q, at) /
         ToRational(c.out_q.scale_at(0));
}

}  // namespace definition
namespace fast {

void Products(const Case& c, Integers* integers) {
  for (int64_t i = 0; i < c.M * c.N; ++i) {
    integers->values.push_back(__int128{Difference(c.x, c.x_q, i)} * Difference(c.w, c.w_q, i));
  }
}

Line ScaleOfProduct(const Case& c, int64_t) {
  return Over(Scale(c.x_q.scale_at(0), c.w_q.scale_at(0)), c.out_q.scale_at(0));
}

}  // namespace fast
namespace told {

void Steps(Teller& t) {
  const Rational a = t.Difference("operand a, ", t.c.x, t.c.x_q);
  const Rational b = t.Difference("operand b, ", t.c.w, t.c.w_q);
  const Rational value = *definition::Value(t.c, 0, 0);
  t.Step(Stage::kScale,
         "a_scale*b_scale/out_scale * a*b: " + ScalesText(t.c) + " * " + Parenthesized(a) + " * " +
             Parenthesized(b),
         value);
  t.RoundToCode(value);
}

}  // namespace told
}  // namespace

extern constexpr Meaning kMul{.op = Op::kMul,
                              .definition = {.value = definition::Value},
                              .fast = {.integers = fast::Products, .line = fast::ScaleOfProduct},
                              .told = {.steps = Alone<told::Steps>}};

}  // namespace qualm::exact
