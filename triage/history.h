// SPDX-License-Identifier: Apache-2.0
// A failure that shows only after earlier cases: the shortest list of them, each as small as can
// be.
#ifndef QUALM_TRIAGE_HISTORY_H_
#define QUALM_TRIAGE_HISTORY_H_

#include <functional>
#include <vector>

#include "core/case.h"

namespace qualm::triage {

struct History {
  std::vector<Case> before;  // what the subject is asked first, in this order
  Case failing;
};

// Asks a new instance of the subject all cases of the list, then judges its answer to the last one.
using FailsAfter = std::function<bool(const History&)>;

// `history` fails. Drops earlier cases until none can be spared, then makes the cases simpler with
// the passes of minimization: the failing case and earlier ones of its shape together, because many
// caches are keyed by the shape, then each alone. Ends early once `stop` is true; what it returns
// fails in any case.
History ShortestHistory(History history, const FailsAfter& fails,
                        const std::function<bool()>& stop);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_HISTORY_H_
