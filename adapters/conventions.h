// SPDX-License-Identifier: Apache-2.0
// Subject kind "model": the named conventions of oracles/conventions, run as if they were
// libraries.
#ifndef QUALM_ADAPTERS_CONVENTIONS_H_
#define QUALM_ADAPTERS_CONVENTIONS_H_

#include "core/subject.h"

namespace qualm {

// "model:NAME"; "model:*" and "model:PREFIX*" stand for all that match. The contract is the
// convention itself.
SubjectKind ConventionSubjects();

}  // namespace qualm

#endif  // QUALM_ADAPTERS_CONVENTIONS_H_
