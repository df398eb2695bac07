// SPDX-License-Identifier: Apache-2.0
// Where the running executable lies, and from there what was installed with it.
#ifndef QUALM_CORE_EXECUTABLE_H_
#define QUALM_CORE_EXECUTABLE_H_

#include <string>

namespace qualm {

// The directory of the running executable, with a final '/'.
std::string ExecutableFolder();

// A file or folder of the installed data (share/qualm/NAME, found relative to the executable, so
// that an installation can be moved as a whole); else `in_source_tree`.
std::string InstalledData(const std::string& name, const std::string& in_source_tree);

}  // namespace qualm

#endif  // QUALM_CORE_EXECUTABLE_H_
