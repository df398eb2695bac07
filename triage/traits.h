// SPDX-License-Identifier: Apache-2.0
// What all wrong outputs of a subject have in common, where no known cause gives them: they are
// ties, or lie beyond the clamp, or come from sums that are large.
#ifndef QUALM_TRIAGE_TRAITS_H_
#define QUALM_TRIAGE_TRAITS_H_

#include <optional>

#include "core/case.h"
#include "core/subject.h"
#include "triage/ask.h"

namespace qualm::triage {

// Asks the subject about cases near `c` and about drawn ones. The trait is one that every wrong
// output has and that so few other outputs have that chance would not choose them so. nullopt:
// there is none.
std::optional<ShownOfSubject> FindCommonTrait(const Case& c, Subject& subject);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_TRAITS_H_
