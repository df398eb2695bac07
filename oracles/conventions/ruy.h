// SPDX-License-Identifier: Apache-2.0
#ifndef QUALM_ORACLES_CONVENTIONS_RUY_H_
#define QUALM_ORACLES_CONVENTIONS_RUY_H_

#include <vector>

#include "core/case.h"
#include "oracles/conventions/steps.h"

namespace qualm::conventions {

// From a sum to the output, by Channel::fixed, as ruy's x86 kernels do.
std::vector<Step> RuySteps(const Case& c);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_RUY_H_
