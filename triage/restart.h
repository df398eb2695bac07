// SPDX-License-Identifier: Apache-2.0
// A descent ends where no pass helps any more, which need not be the smallest case. If a cause is
// known, smaller cases on which it acts are found by computing, without asking the subject.
#ifndef QUALM_TRIAGE_RESTART_H_
#define QUALM_TRIAGE_RESTART_H_

#include <string>
#include <vector>

#include "core/case.h"
#include "oracles/conventions/convention.h"
#include "triage/causes.h"
#include "triage/reduce.h"
#include "triage/triage.h"

namespace qualm::triage {

// Cases of the operation and the types of `c` that are simpler than `c`, valid, `possible`, and on
// which the causes change the right output under `model`; each reduced as far as the passes reach
// while that holds. The simplest first.
std::vector<Case> Restarts(const Case& c, const Hypothesis& causes, const Convention* model,
                           const Holds& possible);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_RESTART_H_
