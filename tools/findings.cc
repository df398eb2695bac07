// SPDX-License-Identifier: Apache-2.0
#include "tools/findings.h"

#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "core/io/case_json.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "oracles/exact/exact.h"
#include "tools/command.h"
#include "tools/stop.h"
#include "triage/triage.h"
#include "triage/triaged.h"

namespace qualm::tools {
namespace {

// Writes the finding below `out` and notes there where its smallest case lies.
void Write(triage::Triaged& triaged, const std::string& out) {
  Finding& finding = triaged.finding();
  const std::filesystem::path folder =
      std::filesystem::path(out) / "findings" / finding.fingerprint();
  MakeFolder("--out", folder.parent_path().string());
  Case written = finding.test_case;
  written.property = finding.full_property();
  const auto& small = triaged.small();
  finding.case_file = (folder / "case.json").string();
  const std::string explanation = triaged.Text();
  finding.case_file.clear();  // until the folder is there
  WriteFolder(folder.string(), {{"case.json", CaseToJson(written)},
                                {"minimized.case.json", small ? CaseToJson(small->minimized) : ""},
                                {"explanation.txt", explanation}});
  finding.case_file = (folder / (small ? "minimized.case.json" : "case.json")).string();
}

}  // namespace

std::optional<Finding> WrongExpected(const Case& c, const std::string& file) {
  if (!c.expected) return std::nullopt;
  const auto divergence = FirstDivergence(exact::Evaluate(c), *c.expected);
  if (!divergence) return std::nullopt;
  return Finding(
      c, "matches_exact", "expected",
      Verdict::Failed("the expected output in the file is not the exact one", divergence), file);
}

bool IsExcused(const Finding& finding, Subject& subject, const Contract& promised) {
  if (!IsDeclared(finding, subject, promised)) return false;
  const Contract judged = subject.contract();
  if (promised.exact() || judged == promised) return true;
  subject.set_contract(promised);
  const Verdict keeps = Judge(*FindProperty("matches_model"), finding.test_case, subject);
  subject.set_contract(judged);
  return !keeps.failed();
}

Finding FindingOf(const Case& c, const Property& property, Subject& subject, const Verdict& verdict,
                  const std::string& file, const Contract& contract) {
  Finding finding(c, property.claim, subject.name(), verdict, file);
  triage::Complete(finding, subject, verdict);
  finding.expected_by_contract = IsExcused(finding, subject, contract);
  Alarm(finding);
  return finding;
}

void Alarm(const Finding& finding) {
  if (finding.kind != FindingKind::kCrash && finding.kind != FindingKind::kHang) return;
  static std::mutex mutex;
  static std::set<std::pair<std::string, FindingKind>> told;
  const std::scoped_lock lock(mutex);
  if (!told.emplace(finding.subject, finding.kind).second) return;
  Tell("{} fails {}: {}", finding.subject, finding.full_property(), finding.explanation);
}

void Connect(CheckOptions& options) {
  options.attribute = [](const Case& c, const Verdict& verdict, Subject& subject) {
    return triage::Attribute(c, verdict, subject).kind;
  };
  options.alarm = Alarm;
  options.stop = Stopped;
}

std::vector<Finding> Triage(std::vector<Finding> raw, const std::string& out,
                            const std::string& contract, const KnownFindings& known,
                            Deferred& deferred, const std::function<bool()>& stop) {
  std::vector<Finding> kept;
  // Of two findings with one fingerprint the first is kept; it stays expected only if both are.
  const auto have = [&](const Finding& finding) {
    for (Finding& other : kept) {
      if (other.fingerprint() != finding.fingerprint()) continue;
      other.expected_by_contract &= finding.expected_by_contract;
      return true;
    }
    return false;
  };
  for (Finding& finding : raw) {
    const auto subject = std::move(MakeSubjects({finding.subject}, contract).front());
    triage::Triaged triaged(std::move(finding), *subject,
                            [&](const Finding& found) { return !known.IsNew(found); });
    const Finding& found = triaged.finding();
    if (triaged.sure() && have(found)) continue;
    const auto is_known = [&] { return !found.expected_by_contract && !known.IsNew(found); };
    if (!out.empty() && !(triaged.sure() && is_known())) {
      if (!stop()) triaged.Minimize({.stop = stop});
      if (have(found)) continue;
      if (!is_known()) deferred.Try([&] { Write(triaged, out); });
    } else if (have(found)) {
      continue;
    }
    kept.push_back(found);
  }
  return kept;
}

}  // namespace qualm::tools
