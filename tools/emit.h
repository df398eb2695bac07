// SPDX-License-Identifier: Apache-2.0
// --emit KIND: the case of a run as something that runs without qualm (exporters/).
#ifndef QUALM_TOOLS_EMIT_H_
#define QUALM_TOOLS_EMIT_H_

#include <string>

#include "core/case.h"
#include "core/finding.h"
#include "core/subject.h"
#include "tools/command.h"
#include "tools/session.h"

namespace qualm::tools {

// Adds --emit and -o; `without` is what -o writes without --emit, "" for nothing.
void AddEmitOptions(Verb& verb, CommonOptions& options, const std::string& without = "");

// Throws InputError where the output cannot be written.
void RequireEmittable(const CommonOptions& options, const std::vector<std::string>& read);

// Writes what --emit asks for, if anything: `c` with the answer of `subject` (null: with the
// observed one), to -o or to stdout. `found` is the finding of that answer, null where it is right.
void Emit(const CommonOptions& options, Case c, Subject* subject, const Finding* found);
// The same with the answer of the first subject, else the observed one, and what was found of it.
void EmitFirst(const CommonOptions& options, const Case& c, const Session& session);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_EMIT_H_
