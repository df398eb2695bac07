// SPDX-License-Identifier: Apache-2.0
// One step of a descent, for tests of passes and for RapidCheck's shrinking.
#ifndef QUALM_TRIAGE_SIMPLER_TEST_UTIL_H_
#define QUALM_TRIAGE_SIMPLER_TEST_UTIL_H_

#include <functional>
#include <vector>

#include "triage/passes.h"
#include "triage/triage.h"

namespace qualm::triage {

// Calls `visit` for candidates that are simpler than `c`, in the order of the passes, until it
// returns true (accepted) or there are no more.
inline void ForEachSimpler(const Case& c, const std::function<bool(const Case&)>& visit) {
  const std::vector<int64_t> here = Complexity(c);
  bool taken = false;
  for (const Pass pass : AllPasses()) {
    pass(c, [&](const Case& candidate) {
      if (Complexity(candidate) >= here || !Validate(candidate).empty()) return false;
      taken = visit(candidate);
      return taken;
    });
    if (taken) return;
  }
}

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_SIMPLER_TEST_UTIL_H_
