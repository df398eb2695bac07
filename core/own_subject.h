// SPDX-License-Identifier: Apache-2.0
// Subjects that are no part of qualm. A project that embeds qualm adds its subject here; then fuzz
// targets, the check loop and attribution find the subject in the registry by its name.
#ifndef QUALM_CORE_OWN_SUBJECT_H_
#define QUALM_CORE_OWN_SUBJECT_H_

#include <functional>
#include <memory>
#include <string>

#include "core/subject.h"

namespace qualm {

using MakeOwnSubject = std::function<std::unique_ptr<Subject>()>;

// Adds the subject that `make` makes (a new instance per call) and returns its name. If the name is
// known already, the first subject stays. Call it before any thread asks the registry. Throws
// InputError where the name is a kind of qualm's own ("native").
std::string AddOwnSubject(const MakeOwnSubject& make);

}  // namespace qualm

#endif  // QUALM_CORE_OWN_SUBJECT_H_
