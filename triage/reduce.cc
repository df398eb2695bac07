// SPDX-License-Identifier: Apache-2.0
#include "triage/reduce.h"

#include <utility>
#include <vector>

#include "triage/triage.h"

namespace qualm::triage {
std::optional<Case> Reduction::Step(Pass pass, const Case& c, const Holds& holds,
                                    const std::function<bool()>& spent) {
  // Candidates refused without a run cost too: a long constant row offers tens of thousands.
  constexpr int64_t kMostRefused = 30'000'000;  // elements
  int64_t refused = 0;
  std::optional<Case> taken;
  const std::vector<int64_t> here = Complexity(c);
  pass(c, [&](const Case& candidate) {
    if (spent() || refused > kMostRefused) return true;
    if (Complexity(candidate) >= here || !Validate(candidate).empty() ||
        !tried_.insert(ProblemKey(candidate)).second) {
      refused += c.x.size() + c.w.size();
      return false;
    }
    if (!holds(candidate)) return false;
    taken = candidate;
    return true;
  });
  return taken;
}

Case Reduce(Case c, const Holds& holds, int64_t most) {
  Reduction reduction;
  int64_t asked = 0;
  const auto spent = [&] { return asked >= most; };
  const Holds counted = [&](const Case& candidate) {
    ++asked;
    return holds(candidate);
  };
  bool improved = true;
  while (improved) {
    improved = false;
    for (Pass pass : AllPasses()) {
      while (std::optional<Case> next = reduction.Step(pass, c, counted, spent)) {
        c = std::move(*next);
        improved = true;
      }
    }
  }
  return c;
}

}  // namespace qualm::triage
