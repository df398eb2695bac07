// SPDX-License-Identifier: Apache-2.0
// The departures from the exact meaning that are known, understood and documented upstream.
#ifndef QUALM_ADAPTERS_CONTRACTS_H_
#define QUALM_ADAPTERS_CONTRACTS_H_

#include <vector>

#include "core/contract.h"

namespace qualm {

// One row per (subject, op, property, kind). `audit` expects each of them.
std::vector<ExpectedDivergence> DeclaredDivergences();

}  // namespace qualm

#endif  // QUALM_ADAPTERS_CONTRACTS_H_
