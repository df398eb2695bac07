// SPDX-License-Identifier: Apache-2.0
// The check loop: draw a case, judge every applicable property on every subject, count, collect.
// Returns data; printing is the caller's. Same options, same result, whatever the number of jobs.
#ifndef QUALM_PROPERTIES_ENGINE_H_
#define QUALM_PROPERTIES_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/finding.h"
#include "core/subject.h"
#include "core/verdict.h"
#include "properties/coverage.h"

namespace qualm {

struct Totals {
  int64_t cases = 0;  // drawn cases; the rest count verdicts
  std::map<Judgement, int64_t> verdicts;
  // CheckResult::by_property alone: the time that judging took. An answer that several properties
  // ask for counts for the first of them.
  double seconds = 0;
  void Add(Judgement judgement) { ++verdicts[judgement]; }
  void Merge(const Totals& other);
  int64_t of(Judgement judgement) const;
  int64_t judged() const;  // passed, failed and expected
};

// How a case is judged.
struct Judging {
  // The number of findings that are kept of one operation, property, subject and kind (before
  // attribution). The rest are counted.
  int64_t findings_kept = 3;
  // A case that a subject does not take is brought into its limits first (properties/adapt.h).
  bool adapt = false;
  // The seed of a drawn case: decides which of the dear properties have their turn (JudgeAll).
  std::optional<uint64_t> drawn = {};
  // Names the kind of a failure. A failure is expected if a declared divergence (core/contract.h)
  // has its subject, operation, property, kind and shape. Any thread. May be null: then the kind of
  // the verdict counts.
  std::function<FindingKind(const Case&, const Verdict&, Subject&)> attribute = {};
  // Gets every failure that is not expected at once, long before the run ends. Any thread, may be
  // null.
  std::function<void(const Finding&)> found = {};
};

struct CheckOptions : Judging {
  std::vector<std::string> subjects;  // expanded names
  std::vector<Op> ops;                // empty: all; only operations with a property are drawn
  std::string property_glob = "*";
  uint64_t seed = 1;
  int64_t cases = 1000;  // per op
  double seconds = 0;    // > 0: run until the time is up instead (cases ignored)
  int jobs = 1;
  int shard_index = 0, shard_count = 1;
  std::string contract;                                                 // "" = each subject's own
  std::function<void(int64_t cases_done, int64_t cases_all)> progress;  // any thread, may be null
  // Asked before each case: true ends the run with the results so far. Any thread, may be null.
  std::function<bool()> stop;
};

// Why verdicts were not passes: (judgement, full property name, subject, reason) -> count.
struct ReasonKey {
  Judgement judgement;
  std::string property;
  std::string subject;
  std::string reason;
  auto operator<=>(const ReasonKey&) const = default;
};

struct CheckResult {
  Totals totals;
  std::map<std::string, Totals> by_property;  // full name
  std::map<std::string, Totals> by_subject;
  std::map<Op, int64_t> cases_by_op;
  std::map<std::pair<std::string, std::string>, Totals> by_square;  // subject, operation
  // Failed verdicts by (full property, subject).
  std::map<std::pair<std::string, std::string>, int64_t> failed;
  std::map<ReasonKey, int64_t> reasons;  // skipped, vacuous, not applicable
  // Answers that were judged, by subject and operation: whose numbers were compared with what is
  // promised or, where the glob asks for no such comparison, that any property judged.
  std::map<std::pair<std::string, Op>, int64_t> judged;
  // Cases that were not judged, by subject and operation, and why: the subject does not take the
  // case, or the reason for which the comparison, else another property, was skipped. A case
  // without outputs counts as judged here if any property judged it.
  struct Unjudged {
    int64_t cases = 0;
    std::map<std::string, int64_t> reasons;
  };
  std::map<std::pair<std::string, Op>, Unjudged> unjudged;
  // Outputs of cases that the contract "sum" judged, by subject and operation.
  std::map<std::pair<std::string, Op>, SumGrades> sums;
  // Cases that were adapted: subject -> why it did not take the drawn case -> count.
  std::map<std::string, std::map<std::string, int64_t>> adapted;
  HazardCoverage coverage;
  // In case order; not minimized, and attributed only where Judging::attribute was asked.
  std::vector<Finding> findings;
};

// What is wrong with the contracts: a convention that does not exist, or that has no such
// operation;
// "" if nothing is.
std::string WrongContracts(const Contracts& contracts);

// Makes the subjects, in the domain of this process, each under `contract` (ParseContracts; "": its
// own), which says what it does of the operations that it does not name. Throws InputError where
// that is none, Unavailable where a subject is missing or promises a convention that does not
// exist.
std::vector<std::unique_ptr<Subject>> MakeSubjects(const std::vector<std::string>& names,
                                                   const std::string& contract);

// The row that declares that the subject's answers to this operation depend on earlier questions;
// nullptr: none does.
const ExpectedDivergence* DeclaredMemory(const Subject& subject, Op op);

// Seed of case i of an op: gen::Draw(op, CaseSeed(seed, op, i)) is the case.
uint64_t CaseSeed(uint64_t seed, Op op, int64_t i);

// The operations of `options.ops` that have a property matching `options.property_glob`. Throws
// InputError if there is none.
std::vector<Op> DrawnOps(const CheckOptions& options);

// Draws cases and judges them. Throws InputError/Unavailable before the first case.
CheckResult Check(const CheckOptions& options);

// Judges one given case on given subjects with the same counting (replay, fuzz, RapidCheck).
void CheckCase(const Case& c, const std::vector<Subject*>& subjects, const std::string& glob,
               CheckResult& result, const Judging& judging = {});

}  // namespace qualm

#endif  // QUALM_PROPERTIES_ENGINE_H_
