// SPDX-License-Identifier: Apache-2.0
// What becomes of the findings of a run.
#ifndef QUALM_TOOLS_FINDINGS_H_
#define QUALM_TOOLS_FINDINGS_H_

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/finding.h"
#include "core/io/text_file.h"
#include "properties/property.h"
#include "tools/faults.h"
#include "tools/known.h"
#include "tools/session.h"
#include "triage/triaged.h"

namespace qualm::tools {

// What is wrong with the expected output of a case file, if it has one that is not the exact one.
std::optional<Finding> WrongExpected(const Case& c, const std::string& file);

// Does a row of adapters/contracts.cc declare the finding of a subject that promised `promised`? A
// departure from exact is excused as the convention's only where the subject keeps to the
// convention.
bool IsExcused(const Finding& finding, Subject& subject, const Contract& promised);

// The finding that a failed verdict of `subject` becomes, with its cause; expected if it is excused
// under `contract`.
Finding FindingOf(const Case& c, const Property& property, Subject& subject, const Verdict& verdict,
                  const std::string& file, const Contract& contract);

// Says once per subject that it crashed or hung, while the run goes on. Any thread.
void Alarm(const Finding& finding);

// The findings of a run below OUT: findings/<fingerprint>/{case.json, minimized.case.json,
// explanation.txt}. A run that is killed has told what it had found: each failure lies there from
// the moment when it is found, by the kind that it shows at first.
class FindingsFolder {
 public:
  // Deletes what a killed run has left half done.
  explicit FindingsFolder(const std::string& out);

  // Gives the check loop what it does not have itself: causes of failures, alarms, this folder, the
  // end by a signal. This must outlive the loop.
  void Connect(CheckOptions& options);

  // Attributes, deduplicates by fingerprint, minimizes one of each and writes it all in the place
  // of what Connect has written. Each finding is on disk before work on the next begins. A folder
  // that cannot be written does not lose the finding. A known finding is neither minimized nor
  // written: its evidence is elsewhere. Once `stop` says so, findings are written as they are.
  std::vector<Finding> Triage(std::vector<Finding> raw, const std::string& contract,
                              const KnownFindings& known, Deferred& deferred,
                              const std::function<bool()>& stop);
  // What Triage has learnt about the new findings.
  const Diagnoses& diagnoses() const { return diagnoses_; }

 private:
  void Remember(const triage::Triaged& triaged, Subject& subject);
  void Keep(const Finding& finding);
  void Write(triage::Triaged& triaged) const;
  void RemoveKept() const;

  const std::filesystem::path folder_;      // OUT/findings
  const bool new_;                          // OUT was not there
  std::mutex mutex_;                        // of kept_
  std::map<std::string, NamedTexts> kept_;  // what Keep has written, by fingerprint
  Diagnoses diagnoses_;
};

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_FINDINGS_H_
