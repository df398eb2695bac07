// SPDX-License-Identifier: Apache-2.0
#include "triage/recorder.h"

#include <algorithm>
#include <utility>

namespace qualm::triage {

Outcome Recorder::Run(const Case& c, const RunContext& context) {
  constexpr size_t kMost = 64;  // no property asks more different questions
  Outcome outcome = inner().Run(c, context);
  if (!outcome.ok() || recorded_.size() == kMost) return outcome;
  if (outcome.y.dtype() != c.out_dtype || outcome.y.shape() != c.output_shape()) return outcome;
  Recorded record{ProblemOf(c), context, outcome.y};
  const bool known = std::ranges::any_of(recorded_, [&](const Recorded& r) {
    return r.context == record.context && r.y == record.y && r.problem == record.problem;
  });
  if (!known) recorded_.push_back(std::move(record));
  return outcome;
}

}  // namespace qualm::triage
