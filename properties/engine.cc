// SPDX-License-Identifier: Apache-2.0
#include "properties/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "core/burst.h"
#include "core/forwarding_subject.h"
#include "core/rng.h"
#include "core/status.h"
#include "oracles/accepted.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/tree_contract.h"
#include "properties/adapt.h"
#include "properties/domain.h"
#include "properties/gen/gen.h"
#include "properties/property.h"

namespace qualm {
namespace {

using Attribute = std::function<FindingKind(const Case&, const Verdict&, Subject&)>;

bool SameClaim(const Finding& a, const Finding& b) {
  return a.op == b.op && a.property == b.property && a.subject == b.subject && a.kind == b.kind &&
         a.expected_by_contract == b.expected_by_contract;
}

// Keeps the first `limit` findings of each claim. Expected findings count apart from others, and
// each kind counts apart: wrong numbers do not crowd out a crash that happens now and then.
void Keep(Finding finding, int64_t limit, std::vector<Finding>& findings) {
  const auto same = std::ranges::count_if(
      findings, [&](const Finding& known) { return SameClaim(known, finding); });
  if (same < limit) findings.push_back(std::move(finding));
}

// Whether the subject, asked once more, gives the same wrong number. A subject that remembers does;
// a random error seldom does.
bool FailsAgain(const Case& c, const Property& property, Subject& subject, const Verdict& verdict) {
  MemoSubject anew(subject);
  const Verdict again = Judge(property, c, anew);
  return again.failed() && again.divergence && verdict.divergence &&
         again.divergence->index == verdict.divergence->index &&
         again.divergence->actual == verdict.divergence->actual;
}

// Asks a new instance of the subject each question, so that no answer can depend on another.
class Forgetting : public ForwardingSubject {
 public:
  using ForwardingSubject::ForwardingSubject;
  Outcome Run(const Case& c, const RunContext& context) override {
    return SubjectRegistry::Get().MakeAnew(inner())->Run(c, context);
  }
  std::vector<Outcome> RunMany(std::span<const Case> cases, const RunContext& context) override {
    return Subject::RunMany(cases, context);  // each by Run
  }
};

// Is it declared that the subject's answers depend on history, and did history cause this failure?
// What a subject remembers of an earlier case can break any claim about numbers, and a property may
// itself have asked the earlier case. If this instance stays wrong, and the claim holds in a new
// one, or where each question goes to a new one, history was the cause. A crash has no divergence
// and is never excused.
bool FailsOnlyFromHistory(const Case& c, const Property& property, Subject& subject,
                          const Verdict& verdict) {
  if (!verdict.divergence || DeclaredMemory(subject, c.op) == nullptr) return false;
  if (!FailsAgain(c, property, subject, verdict)) return false;
  const auto fresh = SubjectRegistry::Get().MakeAnew(subject);
  if (fresh == nullptr) return false;
  // One new instance is enough most times, and some take seconds to start.
  if (Judge(property, c, *fresh).judgement == Judgement::kPassed) return true;
  Forgetting forgetting(subject);
  return Judge(property, c, forgetting).judgement == Judgement::kPassed;
}

// The judgement with the declared divergences applied; `reason`: of the row that declares this one.
// Sets verdict.kind if attribution ran.
// `memo`: the same subject, with its earlier answers kept.
Judgement Declared(const Case& c, const Property& property, Subject& subject, MemoSubject& memo,
                   Verdict& verdict, const Attribute& attribute, std::string* reason) {
  if (!verdict.failed() || !attribute) return verdict.judgement;
  for (const ExpectedDivergence& row : SubjectRegistry::Get().expected()) {
    if (!Concerns(row, subject, subject.contract(c.op), Name(c.op), property.claim) ||
        !Fits(row, c, verdict.reason)) {
      continue;
    }
    *reason = row.reason;
    if (row.kind == "*" && verdict.divergence) return Judgement::kExpected;
    if (!verdict.kind) verdict.kind = attribute(c, verdict, memo);
    if (row.kind != Name(*verdict.kind)) continue;
    if (verdict.kind == FindingKind::kNondeterminism && verdict.divergence &&
        !FailsAgain(c, property, subject, verdict)) {
      continue;
    }
    return Judgement::kExpected;
  }
  reason->clear();
  if (FailsOnlyFromHistory(c, property, subject, verdict)) {
    verdict.kind = FindingKind::kNondeterminism;
    verdict.reason +=
        "; a new instance of the subject keeps the promise, and that this one "
        "remembers is declared";
    *reason = DeclaredMemory(subject, c.op)->reason;
    return Judgement::kExpected;
  }
  return Judgement::kFailed;
}

struct CaseCursor {
  // Number g is case g / |ops| of operation ops[g % |ops|], so that a time budget serves all of
  // them.
  std::vector<Op> ops;
  int64_t total = 0;  // -1: until the deadline
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};
  std::atomic<bool> stop{false};
  std::chrono::steady_clock::time_point deadline;
};

struct NumberedFinding {
  std::pair<int64_t, size_t> number;  // of the case, and within its verdicts
  Finding finding;
};

// One thread's share. Counts commute; findings are numbered, and since each thread takes its cases
// in rising order, the first few of all threads contain the first few of the whole run.
struct Share {
  CheckResult result;
  std::vector<NumberedFinding> findings;
  std::exception_ptr error;
};

void RunShare(const CheckOptions& options, CaseCursor& cursor,
              const std::vector<Subject*>& subjects, Share& share) {
  const Burst burst;
  Judging judging = options;
  const auto op_count = static_cast<int64_t>(cursor.ops.size());
  while (!cursor.stop && !(options.stop && options.stop())) {
    const int64_t number = cursor.next++;
    if (cursor.total >= 0 ? number >= cursor.total
                          : std::chrono::steady_clock::now() >= cursor.deadline) {
      return;
    }
    const int64_t i = number / op_count;
    if (i % options.shard_count == options.shard_index) {
      const Op op = cursor.ops[static_cast<size_t>(number % op_count)];
      const uint64_t seed = CaseSeed(options.seed, op, i);
      const Case c = gen::Draw(op, seed);
      const size_t before = share.result.findings.size();
      judging.drawn = seed;
      CheckCase(c, subjects, options.property_glob, share.result, judging);
      for (size_t f = before; f < share.result.findings.size(); ++f) {
        share.findings.push_back({{number, f}, share.result.findings[f]});
      }
    }
    const int64_t done = ++cursor.done;
    if (options.progress) options.progress(done, cursor.total);
  }
}

void MergeCounts(const CheckResult& from, CheckResult& into) {
  into.totals.Merge(from.totals);
  for (const auto& [name, totals] : from.by_property) into.by_property[name].Merge(totals);
  for (const auto& [name, totals] : from.by_subject) into.by_subject[name].Merge(totals);
  for (const auto& [key, totals] : from.by_square) into.by_square[key].Merge(totals);
  for (const auto& [key, count] : from.failed) into.failed[key] += count;
  for (const auto& [key, count] : from.reasons) into.reasons[key] += count;
  for (const auto& [op, count] : from.cases_by_op) into.cases_by_op[op] += count;
  for (const auto& [key, count] : from.judged) into.judged[key] += count;
  for (const auto& [key, unjudged] : from.unjudged) {
    into.unjudged[key].cases += unjudged.cases;
    for (const auto& [why, count] : unjudged.reasons) into.unjudged[key].reasons[why] += count;
  }
  for (const auto& [subject, reasons] : from.adapted) {
    for (const auto& [why, count] : reasons) into.adapted[subject][why] += count;
  }
  for (const auto& [key, sums] : from.sums) into.sums[key].Add(sums);
  into.coverage.Merge(from.coverage);
}

void ValidateOptions(const CheckOptions& options) {
  if (options.shard_count < 1 || options.shard_index < 0 ||
      options.shard_index >= options.shard_count) {
    throw InputError("--shard: " + std::to_string(options.shard_index) + "/" +
                     std::to_string(options.shard_count) +
                     " is none, expected I/N with 0 <= I < N");
  }
  if (options.jobs < 1) throw InputError("--jobs: must be at least 1");
  if (options.cases < 0) throw InputError("--cases: must be at least 0");
}

}  // namespace

std::string WrongContracts(const Contracts& contracts) {
  const auto missing = [](const Contract& contract) {
    for (const std::string& id : contract.variations) {
      if (FindVariation(id) == nullptr)
        return "there is no variation '" + id + "' (see qualm list variations)";
    }
    return contract.convention.empty() ? std::string()
                                       : conventions::WhyNoConvention(contract.convention);
  };
  if (contracts.rest) {
    if (std::string why = missing(*contracts.rest); !why.empty()) return why;
  }
  for (const auto& [op, contract] : contracts.by_op) {
    if (std::string why = missing(contract); !why.empty()) return why;
    const Convention* const convention = FindConvention(contract.convention);
    if ((convention != nullptr && std::ranges::count(convention->ops, op) == 0) ||
        (contract.sum && !HasFloatSums(op)))
      return contract.text() + " has no " + std::string(Name(op));
  }
  return "";
}

const ExpectedDivergence* DeclaredMemory(const Subject& subject, Op op) {
  for (const ExpectedDivergence& row : SubjectRegistry::Get().expected()) {
    if (row.kind == Name(FindingKind::kNondeterminism) &&
        Concerns(row, subject, subject.contract(op), Name(op), "answer_independent_of_history"))
      return &row;
  }
  return nullptr;
}

std::vector<Op> DrawnOps(const CheckOptions& options) {
  std::vector<Op> about;
  for (const Op op : AllOps()) {
    if (!PropertiesAbout(op, options.property_glob).empty()) about.push_back(op);
  }
  if (about.empty()) {
    throw InputError("--property: no property matches '" + options.property_glob +
                     "' (see qualm list properties)");
  }
  if (options.ops.empty()) return about;
  std::vector<Op> named = options.ops;
  std::erase_if(named, [&](Op op) { return std::ranges::find(about, op) == about.end(); });
  if (named.empty()) {
    throw InputError("--property: '" + options.property_glob +
                     "' says nothing about the named --op");
  }
  return named;
}

std::vector<std::unique_ptr<Subject>> MakeSubjects(const std::vector<std::string>& names,
                                                   const std::string& contract) {
  Contracts wanted;
  if (!contract.empty()) {
    wanted = ParseContracts(contract);
    if (const std::string why = WrongContracts(wanted); !why.empty())
      throw InputError("--contract: " + why);
  }
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const std::string& name : names) {
    subjects.push_back(MakeInDomain(name));
    Subject& subject = *subjects.back();
    subject.set_contracts(wanted.Over(subject.contracts()));
    // A plugin may promise anything.
    if (const std::string why = WrongContracts(subject.contracts()); !why.empty())
      throw Unavailable("subject '" + name + "': its contract: " + why);
  }
  return subjects;
}

uint64_t CaseSeed(uint64_t seed, Op op, int64_t i) {
  return MixSeed(MixSeed(seed, static_cast<uint64_t>(op)), static_cast<uint64_t>(i));
}

void Totals::Merge(const Totals& other) {
  cases += other.cases;
  for (const auto& [judgement, count] : other.verdicts) verdicts[judgement] += count;
  seconds += other.seconds;
}

int64_t Totals::of(Judgement judgement) const {
  const auto at = verdicts.find(judgement);
  return at == verdicts.end() ? 0 : at->second;
}

int64_t Totals::judged() const {
  return of(Judgement::kPassed) + of(Judgement::kFailed) + of(Judgement::kExpected);
}

void CheckCase(const Case& drawn, const std::vector<Subject*>& subjects, const std::string& glob,
               CheckResult& result, const Judging& judging) {
  ++result.totals.cases;
  ++result.cases_by_op[drawn.op];
  std::optional<std::vector<Hazard>> hazards;
  for (Subject* subject : subjects) {
    const std::string subject_name(subject->name());
    std::optional<Case> adapted;
    if (judging.adapt) {
      adapted = TakenBy(*subject, drawn);
      if (adapted == drawn) adapted.reset();
      if (adapted && adapted->w_block == drawn.w_block && HasFloatX(*adapted) == HasFloatX(drawn)) {
        const std::string why = WhyNot(*subject, drawn);
        if (!why.empty()) ++result.adapted[subject_name][why];
      }
    }
    const Case& c = adapted ? *adapted : drawn;
    MemoSubject memo(*subject);
    memo.set_contract(subject->contract(c.op));
    Totals& square = result.by_square[{subject_name, std::string(Name(c.op))}];
    bool judged = false;                      // by any property
    std::optional<Judgement> compared;        // the best of the comparisons that were asked for
    std::string skipped, skipped_comparison;  // the first reasons
    auto before = std::chrono::steady_clock::now();
    JudgeAll(
        c, memo, glob,
        [&](const Property& property, Verdict verdict) {
          std::string declared;
          const Judgement judgement =
              Declared(c, property, *subject, memo, verdict, judging.attribute, &declared);
          const std::string name = FullName(c.op, property);
          result.totals.Add(judgement);
          Totals& of_property = result.by_property[name];
          of_property.Add(judgement);
          const auto now = std::chrono::steady_clock::now();
          of_property.seconds += std::chrono::duration<double>(now - before).count();
          before = now;
          result.by_subject[subject_name].Add(judgement);
          square.Add(judgement);
          if (verdict.sums) result.sums[{subject_name, c.op}].Add(*verdict.sums);
          if (Compares(property)) compared = std::min(compared.value_or(judgement), judgement);
          if (IsJudged(judgement)) {
            judged = true;
          } else {
            ++result.reasons[{judgement, name, subject_name, verdict.reason}];
            std::string& first = Compares(property) ? skipped_comparison : skipped;
            if (judgement == Judgement::kSkipped && first.empty()) first = verdict.reason;
          }
          if (!verdict.failed()) return true;
          if (judgement == Judgement::kFailed) ++result.failed[{name, subject_name}];
          Finding finding(c, property.claim, subject_name, verdict);
          finding.test_case.contract = memo.contract().text();
          finding.expected_by_contract = judgement == Judgement::kExpected;
          finding.declared = declared;
          if (judging.found && !finding.expected_by_contract) judging.found(finding);
          Keep(std::move(finding), judging.findings_kept, result.findings);
          return true;
        },
        judging.drawn);
    if (judged && (!compared || IsJudged(*compared))) ++result.judged[{subject_name, c.op}];
    if (compared && !IsJudged(*compared) && compared != Judgement::kVacuous) judged = false;
    if (!judged) {
      CheckResult::Unjudged& unjudged = result.unjudged[{subject_name, c.op}];
      ++unjudged.cases;
      std::string why = subject->CannotRun(c);
      if (why.empty()) why = skipped_comparison.empty() ? skipped : skipped_comparison;
      if (!why.empty()) ++unjudged.reasons[why];
      continue;
    }
    if (adapted || !hazards) hazards = HazardsOf(c);
    result.coverage.Add(c.op, subject->InstructionSet(), *hazards);
  }
}

CheckResult Check(const CheckOptions& options) {
  ValidateOptions(options);
  // All subjects are made before the first case: a missing one is known at once.
  const auto jobs = static_cast<size_t>(options.jobs);
  std::vector<std::vector<std::unique_ptr<Subject>>> subjects(jobs);
  for (auto& own : subjects) own = MakeSubjects(options.subjects, options.contract);

  CaseCursor cursor;
  cursor.ops = DrawnOps(options);
  const auto ops = static_cast<int64_t>(cursor.ops.size());
  cursor.total = options.seconds > 0 ? -1 : options.cases * ops;
  cursor.deadline = std::chrono::steady_clock::now() +
                    std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                        std::chrono::duration<double>(options.seconds));

  std::vector<Share> shares(jobs);
  const auto work = [&](size_t job) {
    std::vector<Subject*> own;
    for (const auto& subject : subjects[job]) own.push_back(subject.get());
    try {
      RunShare(options, cursor, own, shares[job]);
    } catch (...) {
      shares[job].error = std::current_exception();
      cursor.stop = true;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t job = 1; job < jobs; ++job) threads.emplace_back(work, job);
    work(0);
  }

  CheckResult result;
  std::vector<NumberedFinding> findings;
  for (Share& share : shares) {
    if (share.error) std::rethrow_exception(share.error);
    MergeCounts(share.result, result);
    std::ranges::move(share.findings, std::back_inserter(findings));
  }
  std::ranges::sort(findings, {}, &NumberedFinding::number);
  for (NumberedFinding& numbered : findings) {
    Keep(std::move(numbered.finding), options.findings_kept, result.findings);
  }
  return result;
}

}  // namespace qualm
