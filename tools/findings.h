// SPDX-License-Identifier: Apache-2.0
// Attributes, minimizes and stores the findings of a run.
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

// A finding if the case file has an expected output that is not the exact one.
std::optional<Finding> WrongExpected(const Case& c, const std::string& file);

// Whether a row of adapters/contracts.cc declares the finding of a subject that promised
// `promised`. A departure of the convention excuses the subject only if the subject's answer keeps
// to the convention.
bool IsExcused(const Finding& finding, Subject& subject, const Contract& promised);

// Makes a finding of a failed verdict of `subject`, with its cause; expected if it is excused under
// `contract`.
Finding FindingOf(const Case& c, const Property& property, Subject& subject, const Verdict& verdict,
                  const std::string& file, const Contract& contract);

// Tells once per subject that it crashed or hung, while the run goes on. Any thread.
void Alarm(const Finding& finding);

// The findings of a run below OUT: findings/<fingerprint>/{case.json, minimized.case.json,
// explanation.txt}. Each failure is written when it is found, under the kind that it shows at
// first, so a run that is killed keeps what it has found.
class FindingsFolder {
 public:
  // Deletes half-written files of a run that was killed.
  explicit FindingsFolder(const std::string& out);

  // Connects the check loop with what it lacks: causes of failures, alarms, this folder, the end by
  // a signal. The loop must end before this object does.
  void Connect(CheckOptions& options);

  // Attributes, deduplicates by fingerprint, minimizes one of each, and writes them all in place of
  // what Connect has written. Each finding is on disk before work on the next begins. If a folder
  // cannot be written, the finding is still reported. A known finding is neither minimized nor
  // written: its evidence is elsewhere. Once `stop` is true, findings are written as they are.
  std::vector<Finding> Triage(std::vector<Finding> raw, const std::string& contract,
                              const KnownFindings& known, Deferred& deferred,
                              const std::function<bool()>& stop);
  // The results of Triage for the new findings.
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
