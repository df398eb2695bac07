// SPDX-License-Identifier: Apache-2.0
// The order "simpler than" (Complexity, triage.h) and its first numbers. Internal to triage/.
#ifndef QUALM_TRIAGE_COMPLEXITY_H_
#define QUALM_TRIAGE_COMPLEXITY_H_

#include "core/case.h"

namespace qualm::triage {

// Do the parameters of both cases cost as much, and have both as many outputs, rows and terms of a
// sum? Complexity compares these four before anything else.
bool SameSize(const Case& a, const Case& b);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_COMPLEXITY_H_
