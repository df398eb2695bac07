// SPDX-License-Identifier: Apache-2.0
// The report of an output folder, from where the command finds the documented cases.
#ifndef QUALM_TOOLS_REPORT_H_
#define QUALM_TOOLS_REPORT_H_

#include <string>

namespace qualm::tools {

// The folder that holds forum/ and regressions/: of the source tree, or as installed.
std::string CorpusFolder();

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_REPORT_H_
