// SPDX-License-Identifier: Apache-2.0
// The common end of every fuzz target: it judges a case by every applicable property. On a failure
// it writes the case down first; then it traps, or in a campaign goes on.
#ifndef QUALM_FUZZ_CHECK_ALL_H_
#define QUALM_FUZZ_CHECK_ALL_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/finding.h"
#include "core/own_subject.h"
#include "core/subject.h"
#include "core/verdict.h"
#include "fuzz/collector.h"
#include "fuzz/recent_runs.h"
#include "properties/property.h"

namespace qualm::fuzz {

struct CheckerOptions {
  std::string subject = "native@all";  // any name that SubjectRegistry expands
  std::string contract;                // "" = each subject's own
  std::string properties = "*";        // glob
  std::string artifacts = ".";         // where findings are written
  bool every = false;                  // judge by every property, not in turn (JudgeInTurn)
  // The state folder of a campaign, which gets the failures (collector.h): the fuzz target goes on.
  // "": the first failure ends the fuzz target.
  std::string state = "";
  bool canary = false;  // plant a fault in every subject (canary.h)
  // Only a finding with these words in its fingerprint or explanation counts, declared or not;
  // others are passed over. "": any that is not declared.
  std::string wanted = "";
};

// From QUALM_FUZZ_SUBJECT, QUALM_FUZZ_CONTRACT, QUALM_FUZZ_PROPERTIES, QUALM_FUZZ_ARTIFACTS,
// QUALM_FUZZ_STATE, QUALM_FUZZ_WANTED, QUALM_FUZZ_CANARY and QUALM_FUZZ_EVERY (the last two:
// anything but empty): a fuzzing engine takes no options of ours. A setting without its variable
// stays as given.
CheckerOptions OptionsFromEnvironment(CheckerOptions options = {});

// One thread.
class Checker {
 public:
  // Subjects must have been registered. Throws InputError or Unavailable.
  explicit Checker(CheckerOptions options);

  // Judges the case by the properties whose turn it is. A subject that does not take the case gets
  // it adapted (properties/adapt.h). Returns the first failure that no contract row declares. The
  // artifacts folder then holds its case as FINGERPRINT.case.json: written raw before anything else
  // can go wrong, then with the cause. Where nothing can be written, the finding is the same but
  // has no case file.
  std::optional<Finding> Check(const Case& c);

  // In a campaign: hands every failure of every subject to the collector.
  bool collects() const { return collector_.has_value(); }
  void Collect(const Case& c);

  // Names of the subjects, separated by blanks.
  std::string SubjectNames() const;

 private:
  // Completes and writes a failure; nullopt if it does not count.
  std::optional<Finding> Keep(Finding finding, Subject& subject, const Verdict& verdict) const;
  // The path of the case file; "" where it cannot be written, which stderr says.
  std::string Write(const Finding& finding) const;
  // By every property, or in turn, as the options say.
  void JudgeBy(const Case& c, MemoSubject& subject, const Told& told) const;

  CheckerOptions options_;
  std::vector<std::unique_ptr<Subject>> subjects_;
  std::optional<Collector> collector_;
  std::vector<std::unique_ptr<RecentRuns>> recent_;  // around each subject, where it collects
};

// Makes the process's checker from the environment; on an error prints one line and exits with
// status 2 or 3. Called once, before the first input.
void OpenChecker();
// The same for a subject that is no part of qualm, unless QUALM_FUZZ_SUBJECT names another.
void OpenChecker(const MakeOwnSubject& make);

// Judges the case with that checker. On a failure it prints one line on stderr and traps, which
// tells the engine. In a campaign it does neither.
void CheckAll(const Case& c);

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_CHECK_ALL_H_
