// SPDX-License-Identifier: Apache-2.0
#include "campaign/investigate.h"

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "campaign/rows.h"
#include "core/content_name.h"
#include "core/io/case_json.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "fuzz/collector.h"
#include "fuzz/recent_runs.h"
#include "properties/adapt.h"
#include "properties/engine.h"
#include "properties/property.h"
#include "triage/causes.h"
#include "triage/history.h"
#include "triage/triage.h"
#include "triage/triaged.h"

namespace qualm::campaign {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBefore = size_t{1} << 28;

Fault ReadHandedOver(const fs::path& folder) {
  Fault fault;
  fault.row = ReadFaultRowFile((folder / "fault.json").string());
  fault.found = ReadCaseFile((folder / "case.json").string());
  RequireClaims(fault.row, (folder / "fault.json").string());
  const fs::path before = folder / "before.cases";
  if (fs::exists(before)) fault.before = ReadTextFile(before.string(), "case list", kMaxBefore);
  return fault;
}

const Property& PropertyOf(const Fault& fault) {
  return *FindProperty(*fault.row.properties.begin());
}

std::unique_ptr<Subject> Fresh(const Fault& fault, const std::string& contract) {
  std::unique_ptr<Subject> subject = std::move(MakeSubjects({fault.row.subject}, contract).front());
  subject->set_contract(subject->contract(fault.row.op));
  return subject;
}

std::vector<Case> CasesBefore(const Fault& fault) {
  return fuzz::ParseRuns(fault.before, "before.cases");
}

// A new instance that was asked the earlier cases.
std::unique_ptr<Subject> After(const Fault& fault, const std::string& contract,
                               const std::vector<Case>& before) {
  std::unique_ptr<Subject> subject = Fresh(fault, contract);
  for (const Case& earlier : before) {
    if (const std::optional<Case> taken = TakenBy(*subject, earlier)) subject->Run(*taken, {});
  }
  return subject;
}

// Does a new instance fail, after the earlier cases?
bool Fails(const Fault& fault, const std::string& contract, const triage::History& history) {
  const std::unique_ptr<Subject> subject = After(fault, contract, history.before);
  return Judge(PropertyOf(fault), history.failing, *subject).failed();
}

Replayed Replay(const Fault& fault, const std::string& contract) {
  const triage::History none{{}, fault.found}, all{CasesBefore(fault), fault.found};
  const bool once = Fails(fault, contract, none), twice = Fails(fault, contract, none);
  if (once && twice) return Replayed::kReproducible;
  const bool stateful = !once && !twice && !all.before.empty() && Fails(fault, contract, all) &&
                        Fails(fault, contract, all);
  return stateful ? Replayed::kStateful : Replayed::kFlaky;
}

// A crash or a hang keeps its kind, however often it happens.
bool IsKindOfItsOwn(FindingKind kind) {
  return kind == FindingKind::kCrash || kind == FindingKind::kHang;
}

void Observe(Case& c, Subject& subject) {
  const Outcome outcome = subject.Run(ProblemOf(c), {});
  if (outcome.ok()) c.observed = Observed{std::string(subject.name()), outcome.y};
}

// The fewest and smallest earlier cases after which the fault fails. A case that fails without them
// is another fault, and one that fails only once is no evidence.
void CutHistory(Fault& fault, const std::string& contract, const std::function<bool()>& stop) {
  const auto fails = [&](const triage::History& history) {
    return Fails(fault, contract, history) && !Fails(fault, contract, {{}, history.failing}) &&
           Fails(fault, contract, history);
  };
  const triage::History shortest =
      triage::ShortestHistory({CasesBefore(fault), ProblemOf(fault.found)}, fails, stop);
  fault.before.clear();
  fault.explanation +=
      "\nFails in a new instance of the subject after these cases (before.cases):\n";
  for (const Case& earlier : shortest.before) {
    fault.before += CaseToJsonLine(earlier) + "\n";
    fault.explanation += "  " + qualm::Describe(earlier) + "\n";
  }
  fault.minimized = shortest.failing;
  fault.minimized->property = fault.found.property;
  fault.minimized->contract = fault.found.contract;
  const std::unique_ptr<Subject> subject = After(fault, contract, shortest.before);
  const bool of_model = PropertyOf(fault).claim == "matches_model";
  fault.minimized->expected = triage::RightOutput(
      *fault.minimized, of_model ? triage::ModelOf(subject->contract()) : nullptr);
  Observe(*fault.minimized, *subject);
}

// Takes over the result of triage. A fault that does not fail each time has no cause to show.
void Describe(const triage::Triaged& triaged, Fault& fault) {
  fault.row.explanation = triaged.finding().explanation;
  fault.explanation = triaged.Text();
  if (fault.row.replayed == Replayed::kReproducible) {
    fault.row.kind = triaged.finding().kind;
    fault.row.cause = triage::NamesOf(triaged.causes(), fault.found.op);
    fault.row.of_subject = triaged.attribution().of_subject;
  } else if (!IsKindOfItsOwn(fault.row.kind)) {
    fault.row.kind = FindingKind::kNondeterminism;
  }
}

// `own`: the row that the fault has already; its cause is what is asked for, and proves nothing.
triage::Triaged Triage(const State& state, const Fault& fault, Subject& subject,
                       std::string_view own = {}) {
  Verdict verdict = Verdict::Failed(fault.row.explanation);
  verdict.kind = fault.row.kind;
  // A failure that the cause of an existing row explains is the fault of that row.
  std::vector<triage::Attribution> established;
  for (const FaultRow& row : state.Rows()) {
    if (row.identity != fault.row.identity || row.op != fault.row.op) continue;
    if (row.fingerprint() == own) continue;
    triage::Hypothesis causes = triage::CausesNamed(row.cause, row.op);
    if (!causes.empty()) established.push_back(triage::Named(row.op, std::move(causes), row.kind));
  }
  return {Finding(fault.found, PropertyOf(fault).claim, fault.row.subject, verdict), subject,
          nullptr, std::move(established)};
}

bool IsDeclared(const Fault& fault, const triage::Triaged& triaged, const Subject& subject) {
  Finding finding = triaged.finding();
  finding.kind = fault.row.kind;
  // Declared memory fails after the same cases each time. Random errors are no memory.
  if (finding.kind == FindingKind::kNondeterminism && fault.row.replayed == Replayed::kFlaky) {
    return false;
  }
  return qualm::IsDeclared(finding, subject, subject.contract()) ||
         (finding.kind == FindingKind::kNondeterminism &&
          DeclaredMemory(subject, fault.row.op) != nullptr);
}

}  // namespace

void Investigate(const State& state, const std::string& name, const std::string& contract) {
  const fs::path folder = state.root() / fuzz::kInbox / name;
  Fault fault = ReadHandedOver(folder);
  fault.row.replayed = Replay(fault, contract);
  if (fault.row.replayed != Replayed::kStateful) fault.before.clear();
  const std::unique_ptr<Subject> subject = Fresh(fault, contract);
  const triage::Triaged triaged = Triage(state, fault, *subject);
  Describe(triaged, fault);
  if (!fault.before.empty()) {
    Observe(fault.found, *After(fault, contract, CasesBefore(fault)));
  } else {
    Observe(fault.found, *subject);
  }
  fault.row.minimized = fault.row.replayed == Replayed::kFlaky;  // nothing to hold on to
  if (!IsDeclared(fault, triaged, *subject)) state.Take({fault});
  RemoveFolder(folder.string());
}

void Minimize(const State& state, const std::string& fingerprint, const std::string& contract,
              double seconds) {
  for (Fault& fault : state.Faults()) {
    if (fault.row.fingerprint() != fingerprint) continue;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    const auto stop = [end] { return std::chrono::steady_clock::now() >= end; };
    // The case of a row names the claim that failed on it; the row may have more of them.
    Fault asked = fault;
    if (FindProperty(fault.found.property) != nullptr) {
      asked.row.properties = {std::string(FindProperty(fault.found.property)->claim)};
    }
    if (fault.row.replayed == Replayed::kStateful) {
      CutHistory(asked, contract, stop);
      fault.minimized = asked.minimized;
      fault.before = asked.before;
      fault.explanation = asked.explanation;
    } else {
      const std::unique_ptr<Subject> subject = Fresh(fault, contract);
      triage::Triaged triaged = Triage(state, asked, *subject, fingerprint);
      triaged.Minimize({.stop = stop});
      Describe(triaged, fault);
      if (triaged.small()) fault.minimized = triaged.small()->minimized;
    }
    fault.row.minimized = true;
    state.Replace(fingerprint, fault);
    return;
  }
}

void TakeUnexplained(const State& state, const std::string& name, FindingKind kind,
                     std::string_view how) {
  const fs::path folder = state.root() / fuzz::kInbox / name;
  Fault fault = ReadHandedOver(folder);
  fault.row.kind = kind;
  fault.row.replayed = kind == FindingKind::kHang ? Replayed::kFlaky : Replayed::kReproducible;
  fault.row.minimized = true;
  fault.explanation = fault.row.explanation +
                      "\nThe process that ran the case again ended: " + std::string(how) + "\n";
  state.Take({fault});
  RemoveFolder(folder.string());
}

void HandOverDeath(const State& state, FaultRow row, const Case& c) {
  const std::string text = CaseToJson(c);
  WriteFolder((state.root() / fuzz::kInbox / ContentName(row.subject + "\n" + text)).string(),
              {{"case.json", text}, {"fault.json", FaultRowToJson(row)}});
}

}  // namespace qualm::campaign
