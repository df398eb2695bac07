// SPDX-License-Identifier: Apache-2.0
#include "tools/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "core/io/shell_word.h"
#include "core/io/short_path.h"
#include "tools/session.h"
#include "triage/causes.h"
#include "triage/cover.h"

namespace qualm::tools {
namespace {

int64_t FailuresOf(const Finding& finding, const CheckResult& result) {
  const auto at = result.failed.find({finding.full_property(), finding.subject});
  return at == result.failed.end() ? 0 : at->second;
}

bool IsOfCaller(const std::string& property) {
  return property == "environment" || property == "several_threads";
}

// The faults among findings of one subject and operation.
void AddFaults(const std::vector<size_t>& group, const std::vector<Finding>& findings,
               const Diagnoses& diagnoses, const CheckResult& result,
               std::vector<FaultOfRun>& faults) {
  static const Diagnosed kNone;
  const auto diagnosed = [&](size_t i) -> const Diagnosed& {
    const auto at = diagnoses.find(findings[i].fingerprint());
    return at == diagnoses.end() ? kNone : at->second;
  };
  std::vector<triage::Failure> failures;
  for (const size_t i : group) {
    const Diagnosed& of = diagnosed(i);
    failures.push_back(
        {findings[i].kind, of.causes, {&of.found}, of.model, of.of_subject, of.conventions});
    if (of.small) failures.back().cases.push_back(&*of.small);
  }
  const std::vector<triage::Covered> covered = triage::FewestCauses(failures);
  std::map<size_t, FaultOfRun> rows;
  for (size_t j = 0; j < group.size(); ++j) rows[covered[j].by].findings.push_back(group[j]);
  for (auto& [by, row] : rows) {
    const Diagnosed& cause = diagnosed(group[by]);
    const FindingKind kind = findings[group[by]].kind;
    // A finding about the numbers shows a fault better than a finding that follows from them.
    std::ranges::sort(row.findings, {}, [&](size_t i) {
      const bool direct = findings[i].property.starts_with("matches_");
      // A finding of unknown cause takes the cause of another finding of the row.
      const bool other_kind = findings[i].kind != kind;
      // Without a small case it did not fail again: what its reader is told to run would pass.
      const bool once = !diagnosed(i).small;
      return std::tuple(diagnosed(i).causes != cause.causes, other_kind, once, !direct, i);
    });
    row.best = diagnosed(row.findings.front());
    // Other failures of the row may have told conventions apart that this one does not.
    const std::vector<triage::Hypothesis>& conventions = covered[by].conventions;
    if (!conventions.empty() && conventions.size() < row.best.conventions.size())
      row.best.sentence = triage::ComputesAs(conventions);
    if (row.best.sentence.empty()) row.best.sentence = findings[row.findings.front()].explanation;
    if (!cause.causes.empty())
      row.cause = triage::NamesOf(covered[by].causes, findings[group[by]].test_case.op);
    for (const size_t i : row.findings) {
      row.failures = std::max(row.failures, FailuresOf(findings[i], result));
      const Diagnosed& of = diagnosed(i);
      if (i == row.findings.front() || !of.causes.empty() || of.sentence.empty() ||
          of.sentence == row.best.sentence || !IsOfCaller(findings[i].property))
        continue;
      row.also.emplace_back(i, of.sentence);
    }
    faults.push_back(std::move(row));
  }
}

}  // namespace

bool Refutes(const Diagnosed& failure, const Diagnosed& told) {
  if (failure.by != told.by || failure.found.op != told.found.op) return false;
  std::vector<const Case*> cases{&failure.found};
  if (failure.small) cases.push_back(&*failure.small);
  const auto shows_outside = [&](const Case* c) {
    return !told.where.holds(*c) && triage::Covers(told.causes, {&c, 1}, failure.model);
  };
  return triage::Covers(told.causes, cases, failure.model) &&
         std::ranges::any_of(cases, shows_outside);
}

std::vector<FaultOfRun> FaultsOf(const std::vector<Finding>& findings, const Diagnoses& diagnoses,
                                 const KnownFindings& known, const CheckResult& result) {
  std::map<std::pair<std::string, std::string>, std::vector<size_t>> groups;
  for (size_t i = 0; i < findings.size(); ++i) {
    if (known.IsNew(findings[i])) groups[{findings[i].subject, findings[i].op}].push_back(i);
  }
  std::vector<FaultOfRun> faults;
  for (const auto& [key, group] : groups) AddFaults(group, findings, diagnoses, result, faults);
  std::ranges::sort(faults, {}, [](const FaultOfRun& fault) {
    return std::pair(-fault.failures, fault.findings.front());
  });
  return faults;
}

bool IsOfAnotherVersion(std::string_view version) {
  return version.find("(judged by what was made for ") != std::string_view::npos;
}

std::string FaultText(const FaultOfRun& fault, const std::vector<Finding>& findings,
                      const CheckResult& result) {
  const Finding& best = findings[fault.findings.front()];
  std::string text = fmt::format("FINDING: {} fails on {} [{}]\n  {}\n", best.full_property(),
                                 ShortSubject(best.subject), Name(best.kind), fault.best.sentence);
  text += "  smallest case: " + Describe(fault.best.small.value_or(best.test_case));
  const std::optional<Divergence>& d =
      fault.best.divergence ? fault.best.divergence : best.first_divergence;
  if (d) text += fmt::format(": expected {}, got {} at index {}", d->expected, d->actual, d->index);
  std::set<std::string> claims;
  for (const size_t i : fault.findings) claims.insert(findings[i].property);
  if (fault.best.cut_short) text += "; the search for a smaller one was cut short";
  text += fmt::format("\n  fails {} claim{}: {}", claims.size(), claims.size() == 1 ? "" : "s",
                      fmt::join(claims, ", "));
  // The totals of a property add up all subjects, so only a run of one subject tells them.
  const auto judged = result.by_property.find(best.full_property());
  if (result.by_subject.size() == 1 && judged != result.by_property.end()) {
    text += fmt::format("; {} in {} of {} cases judged by it", best.property,
                        FailuresOf(best, result), judged->second.judged());
  }
  text += "\n";
  if (const std::optional<Observed>& seen = fault.best.small.value_or(best.test_case).observed;
      seen && IsOfAnotherVersion(seen->by)) {
    text += fmt::format(
        "  this is {}: that version may compute something new, as this case shows\n", seen->by);
  }
  for (const auto& [i, sentence] : fault.also) {
    text +=
        fmt::format("  also: {} [{}]{}\n", sentence, findings[i].property,
                    findings[i].case_file.empty() ? "" : ": " + ShortPath(findings[i].case_file));
  }
  // What depends on earlier questions or on memory fails any claim.
  const bool of_state =
      best.kind == FindingKind::kNondeterminism || best.kind == FindingKind::kMemory;
  if (claims.contains("environment") && !of_state) {
    text +=
        "  environment: many kernels round in whatever mode their caller has set; where no caller "
        "changes it: --skip environment\n";
  }
  if (best.case_file.empty()) return text;
  const std::string arguments = fmt::format("{} --subject {}", ShellWord(ShortPath(best.case_file)),
                                            ShellWord(ShortSubject(best.subject)));
  return text + fmt::format("  next: qualm explain {0}\n        qualm replay {0}\n", arguments);
}

JsonValue FaultsJson(const std::vector<FaultOfRun>& faults, const std::vector<Finding>& findings) {
  JsonList list;
  for (const FaultOfRun& fault : faults) {
    const Finding& best = findings[fault.findings.front()];
    std::vector<std::string> fingerprints;
    for (const size_t i : fault.findings) fingerprints.push_back(findings[i].fingerprint());
    std::vector<std::string> also;
    for (const auto& [i, sentence] : fault.also) also.push_back(sentence);
    list.Add(JsonObject{{"op", best.op},
                        {"subject", best.subject},
                        {"kind", Name(best.kind)},
                        {"cause", fault.cause},
                        {"sentence", fault.best.sentence},
                        {"also", also},
                        {"cut_short", fault.best.cut_short},
                        {"findings", fingerprints}});
  }
  return list;
}

}  // namespace qualm::tools
