// SPDX-License-Identifier: Apache-2.0
// Attributes, minimizes and stores the findings of a run.
#ifndef QUALM_TOOLS_FINDINGS_H_
#define QUALM_TOOLS_FINDINGS_H_

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/finding.h"
#include "core/forwarding_subject.h"
#include "core/io/text_file.h"
#include "properties/property.h"
#include "tools/faults.h"
#include "tools/known.h"
#include "tools/session.h"
#include "triage/triaged.h"

namespace qualm::tools {

// Whether the expected output of the case file is the exact one; of matches_model, that of the
// contract in the file, or of any convention if it names none. Skipped if the convention does not
// define the case.
Verdict JudgeExpected(const Case& c);
// A finding if JudgeExpected fails.
std::optional<Finding> WrongExpected(const Case& c, const std::string& file);

// Whether a row of adapters/contracts.cc declares the finding of a subject that promised
// `promised`. A departure of the convention excuses the subject only if the subject's answer keeps
// to the convention.
bool IsExcused(const Finding& finding, Subject& subject, const Contract& promised);

// A subject whose numbers are those of the convention that it promises: its arithmetic says why
// they are not exact. What a new process would answer says nothing more, and starting one takes a
// library of Python seconds.
class OfItsConvention : public ForwardingSubject {
 public:
  using ForwardingSubject::ForwardingSubject;
  bool MayBeMadeAnew() const override { return false; }
};

// Whether the answer to the case is the one of the convention that is promised.
bool KeepsTo(const Contract& promised, const Case& c, Subject& subject);

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
  // a signal. Tells of the first failure of each subject, operation and kind when it is found, but
  // not of `known` ones. The loop must end before this object does, and before `known` does.
  void Connect(CheckOptions& options, const KnownFindings& known);

  // Attributes, deduplicates by fingerprint, minimizes one of each, and writes them all in place of
  // what Connect has written. Each finding is on disk before work on the next begins. If a folder
  // cannot be written, the finding is still reported. A known finding is neither minimized nor
  // written: its evidence is elsewhere. Once `stop` is true, findings are written as they are,
  // after five seconds for the cause of each. A subject is asked for the cause of one finding for a
  // minute at most, and one finding is minimized for a minute at most.
  std::vector<Finding> Triage(std::vector<Finding> raw, const std::string& contract,
                              const KnownFindings& known, Deferred& deferred,
                              const std::function<bool()>& stop);
  // The results of Triage for the new findings.
  const Diagnoses& diagnoses() const { return diagnoses_; }
  // How long Triage took, and how many findings it left before it was done with them.
  struct Effort {
    double seconds = 0;
    int64_t findings = 0, cut_short = 0;
    JsonValue Json() const;
    std::string Sentence() const;  // "" where nobody had to wait
  };
  const Effort& effort() const { return effort_; }

 private:
  void TellFirst(const Finding& finding, const KnownFindings& known);
  // `answered`: the case of the finding, with the subject's answer.
  void Remember(const triage::Triaged& triaged, const Case& answered, const Subject& subject,
                bool cut_short);
  void Keep(const Finding& finding);
  void Write(triage::Triaged& triaged, const Case& answered) const;
  void RemoveKept() const;

  const std::filesystem::path folder_;      // OUT/findings
  const bool new_;                          // OUT was not there
  std::mutex mutex_;                        // of kept_ and told_
  std::map<std::string, NamedTexts> kept_;  // what Keep has written, by fingerprint
  std::set<std::tuple<std::string, std::string, FindingKind>> told_;
  Diagnoses diagnoses_;
  Effort effort_;
};

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_FINDINGS_H_
