// SPDX-License-Identifier: Apache-2.0
// y = clamp(RNE(s * (x - zx) / sy) + z)
#include "oracles/exact/definition.h"
#include "oracles/exact/meanings.h"
#include "oracles/exact/told.h"

namespace qualm::exact {
namespace {
namespace definition {

std::optional<Rational> Value(const Case& c, int64_t m, int64_t n) {
  return RealOperand(c.x, c.x_q, m * c.N + n) / ToRational(c.out_q.scale_at(0));
}

}  // namespace definition
namespace told {

void Steps(Teller& t) { t.RescaleOperand("", "x_scale", t.c.x, t.c.x_q); }

}  // namespace told
}  // namespace

extern constexpr Meaning kRescale{.op = Op::kRescale,
                                  .definition = {.value = definition::Value},
                                  .fast = {.integers = DifferencesOfX, .line = RescaleLine},
                                  .told = {.steps = Alone<told::Steps>}};

}  // namespace qualm::exact
