// SPDX-License-Identifier: Apache-2.0
// add and sub: y = clamp(RNE((sa * (a - za) ± sb * (b - zb)) / sy) + z). Operand a is x, operand b
// is w.
#include "oracles/exact/definition.h"
#include "oracles/exact/meanings.h"
#include "oracles/exact/told.h"

namespace qualm::exact {
namespace {
namespace definition {

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  const int64_t at = m * c.N + n;
  const Rational a = RealOperand(c.x, c.x_q, at), b = RealOperand(c.w, c.w_q, at);
  return (c.op == Op::kSub ? Rational(a - b) : Rational(a + b)) / ToRational(c.out_q.scale_at(0));
}

}  // namespace definition
namespace fast {

Line PlusScaleOfB(const Case& c, int64_t n) { return Plus(RescaleLine(c, n), c.w_q.scale_at(0)); }

void TimesB(const Case& c, const Integers&, int64_t m, int64_t n, Scaled* a) {
  a->line.offset *= SignOfSecond(c.op) * Difference(c.w, c.w_q, m * c.N + n);
}

}  // namespace fast
namespace told {

void Steps(Teller& t) {
  const Case& c = t.c;
  const Rational a = t.Difference("operand a, ", c.x, c.x_q);
  const Rational b = t.Difference("operand b, ", c.w, c.w_q);
  const Rational value = *definition::Value(c, 0, 0);
  const std::string sign = c.op == Op::kSub ? " - " : " + ";
  t.Step(Stage::kScale,
         "(a_scale*a" + sign + "b_scale*b) / out_scale: (" + Short(c.x_q.scale_at(0)) + " * " +
             Parenthesized(a) + sign + Short(c.w_q.scale_at(0)) + " * " + Parenthesized(b) +
             ") / " + Short(c.out_q.scale_at(0)),
         value);
  t.RoundToCode(value);
}

}  // namespace told
}  // namespace

extern constexpr Meaning kAdd{
    .op = Op::kAdd,
    .definition = {.value = definition::Value},
    .fast = {.integers = DifferencesOfX, .line = fast::PlusScaleOfB, .scaled = fast::TimesB},
    .told = {.steps = Alone<told::Steps>}};

extern constexpr Meaning kSub{Op::kSub, kAdd.definition, kAdd.fast, kAdd.told};

}  // namespace qualm::exact
