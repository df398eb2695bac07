// SPDX-License-Identifier: Apache-2.0
// An output folder of qualm: DIR/result.json, and DIR/findings/NAME/ with case.json,
// minimized.case.json, explanation.txt, and in a campaign fault.json.
#ifndef QUALM_REPORT_OUTPUT_FOLDER_H_
#define QUALM_REPORT_OUTPUT_FOLDER_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/io/result_reader.h"

namespace qualm::report {

struct Evidence {
  std::optional<Case> found, minimized;
  std::string explanation;
};

struct OutputFolder {
  std::string place;  // its path, as it was given
  ResultRecord record;
  // Folders of findings that lay there before this run and that it did not see again.
  std::vector<std::string> earlier;
  std::map<std::string, Evidence> evidence;  // by the name of its folder, which is a fingerprint
};

// Findings that have a folder but are in no result.json (the run was killed, or is a campaign) are
// added to the record, unless result.json is younger. Throws InputError for a folder with neither,
// and for files that are broken.
OutputFolder ReadOutputFolder(const std::string& folder);

}  // namespace qualm::report

#endif  // QUALM_REPORT_OUTPUT_FOLDER_H_
