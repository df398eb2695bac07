// SPDX-License-Identifier: Apache-2.0
// Shows the steps of a subject by evaluating its arithmetic on intervals.
#ifndef QUALM_PROOFS_ENCLOSE_H_
#define QUALM_PROOFS_ENCLOSE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/enclosure.h"
#include "proofs/domain.h"
#include "proofs/staircase.h"

namespace qualm::proofs {

// As EnclosingSubject::Enclose, of one problem.
using Enclose =
    std::function<std::optional<EnclosingSubject::Codes>(uint32_t first, uint32_t last)>;

// "" if the arithmetic gives the values of `steps` on every input from their first start to `last`,
// else one sentence with an input on which this could not be shown. An undecided interval is
// halved, down to single inputs.
std::string WhyNotEnclosed(const Domain& domain, const Steps& steps, uint64_t last,
                           const Enclose& enclose);

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_ENCLOSE_H_
