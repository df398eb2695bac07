// SPDX-License-Identifier: Apache-2.0
// What all wrong outputs of a subject have in common, where no known cause gives them: they are
// ties, or lie beyond the clamp, or come from sums that are large.
#ifndef QUALM_TRIAGE_TRAITS_H_
#define QUALM_TRIAGE_TRAITS_H_

#include <optional>
#include <string>

#include "core/case.h"
#include "core/subject.h"
#include "core/verdict.h"

namespace qualm::triage {

struct CommonTrait {
  FindingKind kind = FindingKind::kUnknown;
  std::string sentence;  // what the subject does: "is wrong only where ..."
  std::string evidence;  // how many answers show it
};

// Asks the subject about cases near `c` and about drawn ones. The trait is one that every wrong
// output has and that so few other outputs have that chance would not choose them so. nullopt:
// there is none.
std::optional<CommonTrait> FindCommonTrait(const Case& c, Subject& subject);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_TRAITS_H_
