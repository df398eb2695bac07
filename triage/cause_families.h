// SPDX-License-Identifier: Apache-2.0
// Causes that come in families: the same mistake with blocks, lanes, counters or words of several
// lengths. A row for each length, made by a loop.
#ifndef QUALM_TRIAGE_CAUSE_FAMILIES_H_
#define QUALM_TRIAGE_CAUSE_FAMILIES_H_

#include <vector>

#include "triage/causes.h"

namespace qualm::triage {

std::vector<Cause> CausesOfFamilies();
// The causes of stage kPlace: rows and columns in which another cause acts.
std::vector<Cause> Places();

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_CAUSE_FAMILIES_H_
