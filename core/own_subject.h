// SPDX-License-Identifier: Apache-2.0
// Subjects that are no part of qualm: whoever embeds it makes them known here, so that everything
// that asks the registry (fuzz targets, the check loop, attribution) finds them by their name.
#ifndef QUALM_CORE_OWN_SUBJECT_H_
#define QUALM_CORE_OWN_SUBJECT_H_

#include <functional>
#include <memory>
#include <string>

#include "core/subject.h"

namespace qualm {

using MakeOwnSubject = std::function<std::unique_ptr<Subject>()>;

// Adds what `make` makes, a new instance per call, under its name, and returns that; of several
// with one name the first stays. Before any thread asks the registry. Throws InputError where the
// name is that of a kind which qualm has itself ("native").
std::string AddOwnSubject(const MakeOwnSubject& make);

}  // namespace qualm

#endif  // QUALM_CORE_OWN_SUBJECT_H_
