// SPDX-License-Identifier: Apache-2.0
// The result of every verb: --json ("schema": "qualm.result/1", core/io/result.schema.json),
// --junit, --sarif, --github. The order of keys is fixed; two equal runs differ in "seconds" only.
#ifndef QUALM_CORE_IO_RESULT_JSON_H_
#define QUALM_CORE_IO_RESULT_JSON_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/finding.h"
#include "core/io/json_writer.h"

namespace qualm {

// Why a finding does not fail the run although no contract declares it.
struct KnownMark {
  std::string by;       // "baseline" or "suppression"
  std::string reason;   // of a suppression
  std::string expires;  // of a suppression: YYYY-MM-DD
};

struct ResultDocument {
  std::string command;  // complete, repeatable
  std::optional<uint64_t> seed;
  std::vector<std::pair<std::string, std::string>> subjects;  // name, contract text
  std::map<std::string, int64_t>
      totals;  // cases passed failed expected skipped vacuous not_applicable
  std::vector<Finding> findings;
  std::map<std::string, KnownMark> known;  // by fingerprint
  // Blocks of one verb: "sweep", "hazards".
  std::vector<std::pair<std::string, JsonValue>> extra;
  double seconds = 0;
};
std::string ResultToJson(const ResultDocument& document);

struct JUnitTest {
  std::string suite;   // subject
  std::string name;    // property
  std::string status;  // Name(Judgement)
  std::string message;
  double seconds = 0;
};
// The failures of a suite come first.
std::string ToJUnit(const std::vector<JUnitTest>& tests);

// What GitHub Actions shows beside a change: a line `::error title=...::...` for each subject,
// operation and kind with a finding that is neither declared nor known.
std::string ToGithubAnnotations(const ResultDocument& document);
// The same as Markdown: a heading, the command, the totals, a table.
std::string ToMarkdownSummary(const ResultDocument& document);
// SARIF 2.1.0 (OASIS), which code scanning reads: all findings; those that are declared or known
// are notes. `version` is qualm's.
std::string ToSarif(const ResultDocument& document, const std::string& version);

}  // namespace qualm

#endif  // QUALM_CORE_IO_RESULT_JSON_H_
