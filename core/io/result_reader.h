// SPDX-License-Identifier: Apache-2.0
// Reads a result document (qualm.result/1) back, for the report and for comparing two runs. A block
// that the verb does not write is empty.
#ifndef QUALM_CORE_IO_RESULT_READER_H_
#define QUALM_CORE_IO_RESULT_READER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/verdict.h"

namespace qualm {

// Build, machine and date of a run. "" where the document does not say.
struct RunFacts {
  std::string version, commit;  // of qualm
  std::string date;             // "2026-11-23 02:40 UTC"
  std::string processor, compiler;
};

struct RecordedFinding {
  std::string fingerprint;
  std::string op;
  std::string claim;  // "matches_exact"
  std::string subject;
  std::string kind;
  bool expected_by_contract = false;
  std::string known;  // why it does not fail the run although no contract declares it, else ""
  std::string case_file;
  std::optional<Divergence> divergence;
  std::string explanation;
  // The fault that it shows, as the run that found it grouped its findings (block "faults"): equal
  // for findings of one fault. "" where the run did not say.
  std::string fault;
  std::string cause;     // of the fault, "" where none is named
  std::string sentence;  // what is wrong, and where it holds

  bool is_new() const { return !expected_by_contract && known.empty(); }
};

// Verdicts of one subject on one operation, by judgement as documents spell it: "passed".
struct RecordedVerdicts {
  std::string subject, op;
  std::map<std::string, int64_t> counts;
};

struct RecordedHazards {
  std::string op, instruction_set;
  int64_t cases = 0;
  std::map<std::string, int64_t> reached;
};

// A row of adapters/contracts.cc, and the state that the run found it in.
struct RecordedDeclaration {
  std::string subject, op, claim, kind, reason, state;
};

// Subjects whose answers to the documented cases of an operation are bit-equal, and where they
// differ from the first group of that operation.
struct RecordedGroup {
  std::string op;
  std::vector<std::string> subjects;
  int64_t cases = 0;
  std::string witness;  // "004-add.case.json, index 3: 52, not 53"; "" for the first group
};

// A layer as it was and as it was repaired, on a subject that answered to both.
struct RecordedRepair {
  std::string layer, remedy, subject;
  std::string rows;  // that were asked: "its own rows"
  int64_t outputs = 0, wrong_before = 0, wrong_after = 0;
};

struct RecordedChange {
  std::string date;                         // of the run before
  std::vector<std::string> appeared, gone;  // fingerprints
};

// What a campaign had after so long.
struct RecordedMoment {
  double seconds = 0;
  int64_t executions = 0, inputs = 0, faults = 0;
};

// One of the runs that wrote into a folder, oldest first.
struct RecordedRun {
  std::string date, commit;
  double seconds = 0;
  int64_t cases = 0;  // of a campaign: executions
  int64_t faults = 0, known = 0;
  int64_t inputs = 0;  // of a campaign: kept in its corpus
};

struct ResultRecord {
  RunFacts run;
  std::string command;
  double seconds = 0;
  std::vector<std::pair<std::string, std::string>> subjects;  // name, contract
  std::map<std::string, int64_t> totals;
  std::vector<RecordedFinding> findings;
  // Nothing passed where nobody judged the numbers.
  std::vector<RecordedVerdicts> verdicts;
  std::vector<std::string> missing;  // "requantize on native": what the run should have judged
  std::vector<RecordedHazards> hazards;
  std::vector<RecordedDeclaration> declared;
  std::vector<RecordedGroup> agreement;
  std::vector<RecordedRepair> repairs;
  std::optional<RecordedChange> since;
  int64_t campaign_faults = 0;
  std::vector<RecordedMoment> course;               // of a campaign, in the order of time
  std::map<std::string, std::string> known_faults;  // of a campaign: fault -> why it is known
  std::vector<RecordedRun> history;                 // this run is the last one
  bool has_documented_cases = false;
};

// Throws InputError "NAME: FIELD: what, expected what".
ResultRecord ParseResult(std::string_view text, std::string_view name);
ResultRecord ReadResultFile(const std::string& path);

}  // namespace qualm

#endif  // QUALM_CORE_IO_RESULT_READER_H_
