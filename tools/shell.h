// SPDX-License-Identifier: Apache-2.0
// Completion scripts for shells and a page for `man`, made from the same objects as --help.
#ifndef QUALM_TOOLS_SHELL_H_
#define QUALM_TOOLS_SHELL_H_

#include <string>

#include "tools/command.h"

namespace qualm::tools {

// Scripts that complete verbs, options, subjects and operations; a file name elsewhere.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);

// qualm(1), in the macros of man(7).
std::string ManPage(const CLI::App& app);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_SHELL_H_
