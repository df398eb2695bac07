// SPDX-License-Identifier: Apache-2.0
#include "tools/findings.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "core/float_text.h"
#include "core/forwarding_subject.h"
#include "core/io/case_json.h"
#include "core/io/short_path.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "oracles/accepted.h"
#include "oracles/exact/exact.h"
#include "tools/command.h"
#include "tools/progress.h"
#include "tools/stop.h"
#include "triage/causes.h"
#include "triage/identify.h"
#include "triage/triage.h"
#include "triage/triaged.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

// Of asking for the cause of a finding, and again of minimizing it.
constexpr double kMostSecondsOfAFinding = 60;
constexpr double kLeastSecondsOfACause = 5;  // though the time of the run is over
constexpr std::string_view kFirstSight = "As it was found. Nothing has looked for its cause yet.\n";

// The case as it was drawn, for replay.
std::string CaseOf(const Finding& finding) {
  Case written = finding.test_case;
  written.property = finding.full_property();
  return CaseToJson(written);
}

std::string TextIn(const fs::path& folder, const std::string& name) {
  constexpr size_t kMost = size_t{1} << 30;
  try {
    return ReadTextFile((folder / name).string(), "finding", kMost);
  } catch (const InputError&) {
    return "";
  }
}

// Whether the finding is known under the kind that it has, or under one that triage may give it.
bool MayBeKnown(const Finding& found, const KnownFindings& known) {
  Finding finding = found;
  for (int kind = 0; kind <= static_cast<int>(FindingKind::kUnknown); ++kind) {
    finding.kind = static_cast<FindingKind>(kind);
    if (!known.IsNew(finding)) return true;
  }
  return false;
}

}  // namespace

Verdict JudgeExpected(const Case& c) {
  const auto compare = [&](const Tensor& right, const std::string& whose) {
    const auto divergence = FirstDivergence(right, *c.expected);
    return divergence
               ? Verdict::Failed("the expected output in the file is not the " + whose, divergence)
               : Verdict::Passed();
  };
  if (!c.property.ends_with("matches_model")) return compare(exact::Evaluate(c), "exact one");
  const auto conventions = triage::AllConventionsAndExact().subspan(1);
  if (c.contract.empty()) {
    if (!triage::BitEqual(c, *c.expected, conventions).empty()) return Verdict::Passed();
    return Verdict::Failed("the expected output in the file is that of no convention",
                           FirstDivergence(exact::Evaluate(c), *c.expected));
  }
  if (const Contract contract = ParseContract(c.contract);
      contract.permits_intervals() || contract.is_tree()) {
    if (std::string why = WhyNotJudged(contract, c); !why.empty())
      return Verdict::Skipped(std::move(why));
    const auto divergence = AcceptedBy(contract, c).First(*c.expected);
    return divergence ? Verdict::Failed("the expected output in the file is not one that " +
                                            c.contract + " permits",
                                        divergence)
                      : Verdict::Passed();
  }
  const triage::ConventionOrExact& named = triage::FindConventionOrExact(c.contract, "contract");
  if (std::string why = named.CannotRun(c); !why.empty()) return Verdict::Skipped(std::move(why));
  return compare(named.Run(c), "one of " + c.contract);
}

std::optional<Finding> WrongExpected(const Case& c, const std::string& file) {
  if (!c.expected) return std::nullopt;
  const Verdict verdict = JudgeExpected(c);
  if (!verdict.failed()) return std::nullopt;
  const bool of_model = c.property.ends_with("matches_model");
  return Finding(c, of_model ? "matches_model" : "matches_exact", "expected", verdict, file);
}

bool IsExcused(const Finding& finding, Subject& subject, const Contract& promised) {
  if (!IsDeclared(finding, subject, promised)) return false;
  const Contracts judged = subject.contracts();
  if (promised.exact() || judged.of(finding.test_case.op) == promised) return true;
  subject.set_contract(promised);
  const Verdict keeps = Judge(*FindProperty("matches_model"), finding.test_case, subject);
  subject.set_contracts(judged);
  if (!keeps.failed()) return true;
  // Or it breaks its promise too, as a row of that claim says.
  Finding of_promise = finding;
  of_promise.property = "matches_model";
  return IsDeclared(of_promise, subject, promised);
}

bool KeepsTo(const Contract& promised, const Case& c, Subject& subject) {
  if (promised.exact() || !WhyNotJudged(promised, c).empty()) return false;
  const Outcome outcome = subject.Run(c, RunContext{});
  return outcome.ok() && c.HoldsOutput(outcome.y) && !AcceptedBy(promised, c).First(outcome.y);
}

Finding FindingOf(const Case& c, const Property& property, Subject& asked, const Verdict& verdict,
                  const std::string& file, const Contract& contract) {
  Finding finding(c, property.claim, asked.name(), verdict, file);
  const bool of_numbers = Compares(property) || property.claim.starts_with("sweep_");
  std::optional<OfItsConvention> kept;
  if (of_numbers && KeepsTo(contract, c, asked)) kept.emplace(asked);
  Subject& subject = kept ? *kept : asked;
  bool told = triage::Complete(finding, subject, verdict);
  finding.expected_by_contract = IsExcused(finding, subject, contract);
  // What is declared has been named. Claims that the file does not name may fail by the dozen on
  // its large case, and seconds would go by for each.
  if (!finding.expected_by_contract && finding.full_property() == c.property) {
    told = triage::Complete(finding, subject, verdict, true);
    finding.expected_by_contract = IsExcused(finding, subject, contract);
  }
  const ExpectedDivergence* row =
      finding.expected_by_contract ? DeclaredBy(finding, subject, contract) : nullptr;
  if (row != nullptr) finding.declared = row->reason;
  // What one answer does not show is what a row declares, or is not known.
  if (!told) {
    if (row != nullptr) finding.explanation = verdict.reason;
    if (row == nullptr || row->kind == "*") finding.kind = FindingKind::kUnknown;
  }
  Alarm(finding);
  return finding;
}

void Alarm(const Finding& finding) {
  if (finding.kind != FindingKind::kCrash && finding.kind != FindingKind::kHang) return;
  static std::mutex mutex;
  static std::set<std::pair<std::string, FindingKind>> told;
  const std::scoped_lock lock(mutex);
  if (!told.emplace(finding.subject, finding.kind).second) return;
  Tell("{} fails {}: {}", ShortSubject(finding.subject), finding.full_property(),
       finding.explanation);
}

FindingsFolder::FindingsFolder(const std::string& out)
    : folder_(fs::path(out) / "findings"), new_(!fs::exists(out)) {
  RemoveTemporaries(folder_.string());
}

void FindingsFolder::Connect(CheckOptions& options, const KnownFindings& known) {
  options.attribute = [](const Case& c, const Verdict& verdict, Subject& subject) {
    return triage::Attribute(c, verdict, subject).kind;
  };
  options.found = [this, &known](const Finding& finding) {
    Keep(finding);  // first: who is told of a finding can rely on its file
    TellFirst(finding, known);
  };
  options.stop = Stopped;
}

// Crashes and hangs are told by Alarm.
void FindingsFolder::TellFirst(const Finding& finding, const KnownFindings& known) {
  if (finding.kind == FindingKind::kCrash || finding.kind == FindingKind::kHang)
    return Alarm(finding);
  {
    const std::scoped_lock lock(mutex_);
    const std::tuple key(finding.subject, finding.op, finding.kind);
    if (told_.contains(key) || MayBeKnown(finding, known)) return;
    told_.insert(key);
  }
  const std::optional<Divergence>& d = finding.first_divergence;
  Tell("found: {} fails on {} [{}]{}", finding.full_property(), ShortSubject(finding.subject),
       Name(finding.kind),
       WithDecimals(
           d ? fmt::format(": expected {}, got {} at index {}", d->expected, d->actual, d->index)
             : ": " + finding.explanation));
}

JsonValue FindingsFolder::Effort::Json() const {
  return JsonObject{{"seconds", seconds}, {"findings", findings}, {"cut_short", cut_short}};
}

std::string FindingsFolder::Effort::Sentence() const {
  if (cut_short == 0 && seconds < 2) return "";
  std::string text = fmt::format("Causes and smallest cases took {:.0f} s", std::max(seconds, 1.0));
  if (cut_short > 0) {
    text += fmt::format(
        ", and the search was cut short for {} of {} findings: a smaller case or the cause of "
        "another may exist (qualm minimize CASE --subject S goes on)",
        cut_short, findings);
  }
  return text + ".\n";
}

void FindingsFolder::Keep(const Finding& finding) {
  const std::string fingerprint = finding.fingerprint();
  const std::scoped_lock lock(mutex_);
  if (kept_.contains(fingerprint)) return;
  const NamedTexts& texts = kept_[fingerprint] = {
      {"case.json", CaseOf(finding)},
      {"minimized.case.json", ""},
      {"explanation.txt", std::string(kFirstSight) + triage::FindingText(finding)}};
  const fs::path folder = folder_ / fingerprint;
  // An earlier run has looked into a finding with this fingerprint: its text says more.
  const std::string known = TextIn(folder, "explanation.txt");
  if (!known.empty() && !known.starts_with(kFirstSight)) return;
  Deferred told_again;  // by Write, which comes to the same folder
  told_again.Try([&] {
    MakeFolder("--out", folder_.string());
    WriteFolder(folder.string(), texts);
  });
}

void FindingsFolder::Write(triage::Triaged& triaged, const Case& answered) const {
  Finding& finding = triaged.finding();
  const fs::path folder = folder_ / finding.fingerprint();
  const auto& small = triaged.small();
  finding.case_file = (folder / "case.json").string();
  const std::string explanation = triaged.Text();
  finding.case_file.clear();  // until the folder is there
  MakeFolder("--out", folder_.string());
  WriteFolder(folder.string(), {{"case.json", CaseToJson(answered)},
                                {"minimized.case.json", small ? CaseToJson(small->minimized) : ""},
                                {"explanation.txt", explanation}});
  finding.case_file = (folder / (small ? "minimized.case.json" : "case.json")).string();
}

void FindingsFolder::RemoveKept() const {
  for (const auto& [fingerprint, texts] : kept_) {
    // Not what Write, or another run, has put there since.
    const bool ours = std::ranges::all_of(texts, [&](const auto& file) {
      return TextIn(folder_ / fingerprint, file.first) == file.second;
    });
    if (ours) RemoveFolder((folder_ / fingerprint).string());
  }
  // A run that found nothing new leaves no folder behind. These fail where anything is in it.
  if (!kept_.empty()) ::rmdir(folder_.c_str());
  if (!kept_.empty() && new_) ::rmdir(folder_.parent_path().c_str());
}

void FindingsFolder::Remember(const triage::Triaged& triaged, const Case& answered,
                              const Subject& subject, bool cut_short) {
  const Finding& finding = triaged.finding();
  Diagnosed& diagnosed = diagnoses_[finding.fingerprint()];
  diagnosed.causes = triaged.causes();
  diagnosed.sentence = triaged.attribution().diagnosis;
  diagnosed.found = answered;
  diagnosed.model = triage::ModelOf(subject.contract());
  diagnosed.cut_short = cut_short;
  diagnosed.by = finding.subject;
  diagnosed.of_subject = triaged.attribution().of_subject;
  diagnosed.where = triaged.attribution().where;
  diagnosed.conventions = triaged.attribution().conventions;
  // A claim may fail on another case than its own.
  const std::optional<Case>& looked_at = triaged.attribution().looked_at;
  if (looked_at && answered.observed &&
      answered.observed->y == triage::RightOutput(answered, diagnosed.model))
    diagnosed.found = *looked_at;
  if (!triaged.small()) return;
  diagnosed.small = triaged.small()->minimized;
  diagnosed.divergence = triaged.small()->verdict.divergence;
}

std::vector<Finding> FindingsFolder::Triage(std::vector<Finding> raw, const std::string& contract,
                                            const KnownFindings& known, Deferred& deferred,
                                            const std::function<bool()>& stop) {
  // What was found of a subject and operation: what it explains is the same fault.
  std::map<std::pair<std::string, std::string>, std::vector<triage::Attribution>> all_established;
  const auto established = [&](const Finding& finding) -> std::vector<triage::Attribution>& {
    return all_established[{finding.subject, finding.op}];
  };
  struct Item {
    size_t number = 0;
    std::unique_ptr<Subject> subject;
    std::unique_ptr<triage::Triaged> triaged;
    bool cut_short = false;
  };
  const auto look_into = [&](Finding finding, Item& item) {
    std::vector<triage::Attribution> known_faults = established(finding);
    item.subject = std::move(MakeSubjects({finding.subject}, contract).front());
    item.subject->set_contract(item.subject->contract(finding.test_case.op));
    const Stopwatch own;
    item.cut_short = false;
    item.triaged = std::make_unique<triage::Triaged>(
        std::move(finding), *item.subject,
        [&](const Finding& found) { return !known.IsNew(found); }, std::move(known_faults),
        [&] {
          item.cut_short |= Stopped() || own.seconds() > (stop() ? kLeastSecondsOfACause
                                                                 : kMostSecondsOfAFinding);
          return item.cut_short;
        });
    if (item.triaged->sure())
      triage::Establish(item.triaged->attribution(), established(item.triaged->finding()));
  };
  const Stopwatch since;
  std::vector<Item> items;
  Progress progress("looking for causes: ", 0, "steps");
  const auto all = static_cast<int64_t>(2 * raw.size());
  int64_t done = 0;
  for (const Finding& finding : raw) {
    if (Stopped()) break;  // a new instance of a subject may take seconds
    progress(done++, all);
    Item& item = items.emplace_back();
    item.number = items.size() - 1;
    look_into(finding, item);
  }
  const size_t looked_into = items.size();
  // Findings whose cause is not sure come last: a cause found for another one may explain them.
  std::ranges::sort(items, {},
                    [](const Item& item) { return std::pair(!item.triaged->sure(), item.number); });

  std::vector<std::pair<size_t, Finding>> kept;
  std::vector<Item*> conditional;  // their causes are told with a condition
  // Of two findings with one fingerprint the first is kept; it stays expected only if both are.
  const auto have = [&](const Finding& finding) {
    for (auto& [number, other] : kept) {
      if (other.fingerprint() != finding.fingerprint()) continue;
      other.expected_by_contract &= finding.expected_by_contract;
      return true;
    }
    return false;
  };
  for (Item& item : items) {
    progress(done++, all);
    if (!item.triaged->sure() && !established(raw[item.number]).empty() && !Stopped())
      look_into(raw[item.number], item);
    triage::Triaged& triaged = *item.triaged;
    const Finding& found = triaged.finding();
    if (triaged.sure() && have(found)) continue;
    bool cut_short = item.cut_short;
    const auto is_known = [&] { return !found.expected_by_contract && !known.IsNew(found); };
    if (!(triaged.sure() && is_known())) {
      const Stopwatch own;
      const auto has_to_end = [&] {
        progress(done, all);
        const bool ended = stop() || own.seconds() > kMostSecondsOfAFinding;
        cut_short |= ended;
        return ended;
      };
      triaged.Minimize({.stop = has_to_end});
      triage::Establish(triaged.attribution(), established(found));
      if (have(found)) continue;
      if (!is_known()) {
        const Case answered = triaged.Answered();
        deferred.Try([&] { Write(triaged, answered); });
        if (known.IsNew(found)) Remember(triaged, answered, *item.subject, cut_short);
      }
    }
    ++effort_.findings;
    effort_.cut_short += cut_short ? 1 : 0;
    kept.emplace_back(item.number, found);
    if (!triaged.attribution().where.text.empty() && diagnoses_.contains(found.fingerprint())) {
      conditional.push_back(&item);
      continue;
    }
    item.triaged.reset();
    item.subject.reset();
  }
  // A condition was fitted to the cases that were asked. All failures are known by now.
  for (Item* const item : conditional) {
    triage::Triaged& triaged = *item->triaged;
    const Diagnosed& diagnosed = diagnoses_.at(triaged.finding().fingerprint());
    if (std::ranges::none_of(diagnoses_,
                             [&](const auto& other) { return Refutes(other.second, diagnosed); }))
      continue;
    triaged.DropCondition();
    const Case answered = triaged.Answered();
    deferred.Try([&] { Write(triaged, answered); });
    Remember(triaged, answered, *item->subject, diagnosed.cut_short);
    for (auto& [number, finding] : kept)
      if (number == item->number) finding = triaged.finding();
  }
  for (size_t number = looked_into; number < raw.size(); ++number) {
    Finding found = raw[number];
    if (have(found)) continue;
    if (!found.expected_by_contract && known.IsNew(found)) {
      Diagnosed& diagnosed = diagnoses_[found.fingerprint()];
      diagnosed.sentence = "the run was ended before its cause was looked for";
      diagnosed.found = found.test_case;
      diagnosed.by = found.subject;
      diagnosed.cut_short = true;
      kept_.erase(found.fingerprint());  // it stays as it was written when it was found
      found.case_file = (folder_ / found.fingerprint() / "case.json").string();
    }
    ++effort_.findings;
    ++effort_.cut_short;
    kept.emplace_back(number, std::move(found));
  }
  if (!deferred.failed()) RemoveKept();
  effort_.seconds += since.seconds();
  std::ranges::sort(kept, {}, [](const auto& numbered) { return numbered.first; });
  std::vector<Finding> findings;
  for (auto& [number, finding] : kept) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace qualm::tools
