// SPDX-License-Identifier: Apache-2.0
// The passes that know about choose_qparams.
#ifndef QUALM_TRIAGE_OBSERVER_PASSES_H_
#define QUALM_TRIAGE_OBSERVER_PASSES_H_

#include "core/case.h"
#include "triage/passes.h"

namespace qualm::triage {

// The default in place of each parameter. Offers nothing for other operations.
void ObserverParameters(const Case& c, const Visit& visit);
// Fewer batches, columns and rows.
void ObserverOutputs(const Case& c, const Visit& visit);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_OBSERVER_PASSES_H_
