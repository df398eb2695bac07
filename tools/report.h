// SPDX-License-Identifier: Apache-2.0
// The report of an output folder, from where the command finds the documented cases.
#ifndef QUALM_TOOLS_REPORT_H_
#define QUALM_TOOLS_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/finding.h"
#include "core/io/json_writer.h"
#include "core/io/result_json.h"
#include "core/io/result_reader.h"
#include "report/page.h"

namespace qualm::tools {

// The folder that holds forum/ and regressions/: of the source tree, or as installed.
std::string CorpusFolder();

// Throws InputError "OPTION: ..." where a result.json or index.html of somebody else is in the
// folder.
void RequireReportFolder(const std::string& option, const std::string& folder);
// The run whose result.json the folder holds; nullopt, with a line, where that cannot be read.
std::optional<ResultRecord> RunBefore(const std::string& folder);
// Block "since": the findings that came and went.
JsonValue ChangeJson(const ResultRecord& before, const std::vector<Finding>& findings);
// Writes result.json, with the history of the folder, and the page. `document`: complete
// (Session::Complete). `inputs`: of a campaign, kept in its corpus.
report::BuiltReport WriteReport(const std::string& folder, ResultDocument document,
                                const std::optional<ResultRecord>& before, int64_t inputs = 0);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_REPORT_H_
