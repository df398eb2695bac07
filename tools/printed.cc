// SPDX-License-Identifier: Apache-2.0
#include "tools/printed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/verdict.h"
#include "oracles/exact/exact.h"
#include "triage/triage.h"

namespace qualm::tools {

PrintedAnswer LookAtPrinted(const Case& c) {
  PrintedAnswer answer;
  const Tensor& printed = c.observed->y;
  const Tensor exact = exact::Evaluate(c);
  answer.outputs = exact.size();
  answer.conventions = triage::BitEqualConventions(c, printed);
  const auto first = FirstDivergence(exact, printed);
  for (int64_t i = 0; i < exact.size(); ++i) {
    if (exact.BitsAt(i) != printed.BitsAt(i)) ++answer.departing;
    answer.worst_lsb = std::max(answer.worst_lsb, DistanceLsb(exact, printed, i));
  }

  answer.why = c.note + " ";
  if (!first) {
    answer.why += fmt::format("Every output that {} printed is the exact one", c.observed->by);
  } else {
    answer.why += fmt::format(
        "{} of the {} outputs of {} are not the exact ones, by up to {:.15g} lsb; the first, at "
        "index {}, should be {} and is {}",
        answer.departing, answer.outputs, c.observed->by, answer.worst_lsb, first->index,
        first->expected, first->actual);
  }
  answer.why += answer.conventions.empty()
                    ? ". No known convention gives what was printed."
                    : fmt::format(". What was printed is, bit for bit, the arithmetic of {}.",
                                  answer.conventions);
  if (first) {
    const triage::Attribution cause = triage::Attribute(c, printed);
    answer.why += fmt::format(" Cause: {}.", cause.diagnosis);
  }
  return answer;
}

}  // namespace qualm::tools
