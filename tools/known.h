// SPDX-License-Identifier: Apache-2.0
// Findings that are known already: --baseline and --suppressions.
#ifndef QUALM_TOOLS_KNOWN_H_
#define QUALM_TOOLS_KNOWN_H_

#include <map>
#include <string>
#include <vector>

#include "core/finding.h"
#include "core/io/known_json.h"
#include "core/io/result_json.h"
#include "properties/engine.h"
#include "tools/verb.h"

namespace qualm::tools {

struct KnownOptions {
  std::string baseline;      // file, "" for none
  std::string suppressions;  // file, "" for none
  std::string today;         // YYYY-MM-DD; "" is the current date, UTC
};
void AddKnownOptions(Verb& verb, KnownOptions& options);

class KnownFindings {
 public:
  KnownFindings() = default;  // none
  // Reads both files, before anything is judged. Throws InputError. Says on stderr which
  // suppressions have expired.
  explicit KnownFindings(const KnownOptions& options);

  // The date against which the last days of suppressions were checked, "" if there are none. The
  // command that repeats the run names it.
  std::string today() const;

  // Neither declared by a contract nor known.
  bool IsNew(const Finding& finding) const;
  bool AnyNew(const std::vector<Finding>& findings) const;

  // Counts the failed verdicts of a claim and subject as expected if `findings` has no new finding
  // of that claim and subject.
  void CountAsExpected(const std::vector<Finding>& findings, CheckResult& result) const;

  // A finding for people: whether it is new, known or suppressed, and what to suppress it by.
  std::string Text(const Finding& finding) const;
  // Why each known finding of `findings` does not fail the run, for ResultDocument::known.
  std::map<std::string, KnownMark> MarksOf(const std::vector<Finding>& findings) const;
  // Says on stderr which entries no finding of this run matches.
  void TellUnmatched(const std::vector<Finding>& findings) const;

 private:
  std::map<std::string, KnownMark> marks_;      // by fingerprint
  std::map<std::string, Suppression> expired_;  // by fingerprint
  std::string baseline_, suppressions_;         // files
  std::string today_;
};

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_KNOWN_H_
