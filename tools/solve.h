// SPDX-License-Identifier: Apache-2.0
// qualm identify --solve: which number nobody knows.
#ifndef QUALM_TOOLS_SOLVE_H_
#define QUALM_TOOLS_SOLVE_H_

#include <span>
#include <string>
#include <vector>

#include "tools/command.h"
#include "triage/identify.h"

namespace qualm::tools {

// Looks for the numbers that each file leaves open ("?"), or, where it leaves none, for each number
// in turn. Returns the exit status: 1 if nothing was found for some file.
int RunSolve(const CommonOptions& options, const std::vector<std::string>& files,
             std::span<const triage::ConventionOrExact> arithmetics);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_SOLVE_H_
