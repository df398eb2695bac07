// SPDX-License-Identifier: Apache-2.0
// The steps that make a case simpler. Each pass offers candidates, boldest first, until one is
// taken.
#ifndef QUALM_TRIAGE_PASSES_H_
#define QUALM_TRIAGE_PASSES_H_

#include <functional>
#include <span>
#include <string_view>

#include "core/case.h"

namespace qualm::triage {

// Returns true to take the candidate: the pass then ends.
using Visit = std::function<bool(const Case&)>;

struct Pass {
  std::string_view name;
  void (*run)(const Case& c, const Visit& visit);
};

// A case whose parameters, and nothing else, are as simple as those of `c` can be: the defaults,
// and for an observer all codes of its type.
Case SimplestParameters(const Case& c);

// In the order of Complexity (triage/complexity.cc): what counts most is tried first.
std::span<const Pass> AllPasses();

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_PASSES_H_
