// SPDX-License-Identifier: Apache-2.0
// Greedy descent in the order of Complexity: what minimizing a finding and shortening a witness
// share.
#ifndef QUALM_TRIAGE_REDUCE_H_
#define QUALM_TRIAGE_REDUCE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "core/case.h"
#include "triage/passes.h"

namespace qualm::triage {

using Holds = std::function<bool(const Case&)>;

class Reduction {
 public:
  // The first candidate of the pass that is simpler than `c`, valid, not offered before, and for
  // which `holds` is true. nullopt if there is none, or once `spent` is true.
  std::optional<Case> Step(Pass pass, const Case& c, const Holds& holds,
                           const std::function<bool()>& spent);

 private:
  std::set<std::string> tried_;
};

// Makes `c`, for which `holds` is true, simpler, until no pass offers a simpler case for which it
// is true, or until `holds` was asked about `most` candidates.
Case Reduce(Case c, const Holds& holds, int64_t most);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_REDUCE_H_
