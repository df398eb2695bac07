// SPDX-License-Identifier: Apache-2.0
// The first A columns are those of x, the others those of w. Each is rescaled by its own operand:
//   y = clamp(RNE(s * (x - zx) / sy) + z)
#include "oracles/exact/definition.h"
#include "oracles/exact/meanings.h"
#include "oracles/exact/told.h"

namespace qualm::exact {
namespace {
namespace definition {

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  const int64_t a = c.x.shape()[1];
  const int64_t b = c.w.shape()[1];
  const Rational real =
      n < a ? RealOperand(c.x, c.x_q, m * a + n) : RealOperand(c.w, c.w_q, m * b + (n - a));
  return real / ToRational(c.out_q.scale_at(0));
}

}  // namespace definition
namespace fast {

void Differences(const Case& c, Integers* integers) {
  const int64_t a = c.x.shape()[1];
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < a; ++n) integers->values.push_back(Difference(c.x, c.x_q, m * a + n));
    for (int64_t n = 0; n < c.N - a; ++n) {
      integers->values.push_back(Difference(c.w, c.w_q, m * (c.N - a) + n));
    }
  }
}

Line Quotient(const Case& c, int64_t n) {
  const QParams& q = n < c.x.shape()[1] ? c.x_q : c.w_q;
  return Over(Scale(q.scale_at(0)), c.out_q.scale_at(0));
}

}  // namespace fast
namespace told {

void Steps(Teller& t) {
  if (t.c.w.empty()) {
    t.RescaleOperand("first input, ", "x_scale", t.c.x, t.c.x_q);
  } else {
    t.RescaleOperand("second input, ", "w_scale", t.c.w, t.c.w_q);
  }
}

}  // namespace told
}  // namespace

extern constexpr Meaning kConcat{.op = Op::kConcat,
                                 .definition = {.value = definition::Value},
                                 .fast = {.integers = fast::Differences, .line = fast::Quotient},
                                 .told = {.steps = Alone<told::Steps>}};

}  // namespace qualm::exact
