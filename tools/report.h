// SPDX-License-Identifier: Apache-2.0
// One self-contained HTML page from an output folder:
//   DIR/sections/NN-name.txt   first line is the title, the rest plain text
//   DIR/sections/NN-name.tsv   a table after that text; first row is the head
//   DIR/sections/NN-name.svg   a picture after that
//   DIR/findings/*/            explanation.txt, case.json, minimized.case.json
#ifndef QUALM_TOOLS_REPORT_H_
#define QUALM_TOOLS_REPORT_H_

#include <string>

namespace qualm::tools {

// Writes DIR/index.html and returns its path. Throws InputError if DIR holds neither.
std::string BuildReport(const std::string& folder);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_REPORT_H_
