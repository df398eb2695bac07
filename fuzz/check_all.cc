// SPDX-License-Identifier: Apache-2.0
#include "fuzz/check_all.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "core/burst.h"
#include "core/io/case_json.h"
#include "core/status.h"
#include "fuzz/canary.h"
#include "fuzz/setting.h"
#include "fuzz/watch.h"
#include "properties/adapt.h"
#include "properties/domain.h"
#include "properties/engine.h"
#include "properties/property.h"
#include "triage/triaged.h"

namespace qualm::fuzz {
namespace {

std::unique_ptr<Checker>& TheChecker() {
  static std::unique_ptr<Checker> checker;
  return checker;
}

}  // namespace

CheckerOptions OptionsFromEnvironment(CheckerOptions options) {
  options.subject = Setting("QUALM_FUZZ_SUBJECT", options.subject);
  options.contract = Setting("QUALM_FUZZ_CONTRACT", options.contract);
  SetDomain(Domain::Parse(Setting("QUALM_FUZZ_DOMAIN")));
  options.properties = Setting("QUALM_FUZZ_PROPERTIES", options.properties);
  options.artifacts = Setting("QUALM_FUZZ_ARTIFACTS", options.artifacts);
  options.every = !Setting("QUALM_FUZZ_EVERY", options.every ? "yes" : "").empty();
  options.state = Setting("QUALM_FUZZ_STATE", options.state);
  options.canary = !Setting("QUALM_FUZZ_CANARY", options.canary ? "on" : "").empty();
  options.wanted = Setting("QUALM_FUZZ_WANTED", options.wanted);
  return options;
}

Checker::Checker(CheckerOptions options) : options_(std::move(options)) {
  subjects_ = MakeSubjects(SubjectRegistry::Get().Expand(options_.subject), options_.contract);
  if (options_.canary) {
    for (auto& subject : subjects_) subject = std::make_unique<CanarySubject>(std::move(subject));
  }
  const bool matched = std::ranges::any_of(
      AllOps(), [&](Op op) { return !PropertiesAbout(op, options_.properties).empty(); });
  if (!matched) {
    throw InputError("QUALM_FUZZ_PROPERTIES: no property matches '" + options_.properties +
                     "', expected a glob such as linear.*");
  }
  if (!std::filesystem::is_directory(options_.artifacts)) {
    throw InputError("QUALM_FUZZ_ARTIFACTS: '" + options_.artifacts +
                     "' is no folder, expected one that exists");
  }
  if (options_.state.empty()) return;
  if (!std::filesystem::is_directory(std::filesystem::path(options_.state) / kInbox)) {
    throw InputError("QUALM_FUZZ_STATE: '" + options_.state +
                     "' is no folder of qualm fuzz, expected its --state");
  }
  collector_.emplace(options_.state);
  for (const auto& subject : subjects_) recent_.push_back(std::make_unique<RecentRuns>(*subject));
}

std::string Checker::SubjectNames() const {
  std::string names;
  for (const auto& subject : subjects_) {
    names += (names.empty() ? "" : " ") + std::string(subject->name());
  }
  return names;
}

std::string Checker::Write(const Finding& finding) const {
  const std::string path =
      (std::filesystem::path(options_.artifacts) / (finding.fingerprint() + ".case.json")).string();
  try {
    WriteCaseFile(finding.test_case, path);
  } catch (const InputError& error) {
    // ClusterFuzz runs targets where nothing can be written: the engine keeps the input.
    std::fprintf(stderr, "qualm: %s\n", error.what());
    return "";
  }
  return path;
}

std::optional<Finding> Checker::Keep(Finding finding, Subject& subject,
                                     const Verdict& verdict) const {
  finding.test_case.property = finding.property;
  finding.test_case.contract = subject.contract().text();
  finding.test_case.note = verdict.reason;
  // A search for one finding passes over many, and a file of each would cost more than all else.
  const std::string raw = options_.wanted.empty() ? Write(finding) : "";
  triage::Complete(finding, subject, verdict);
  // Foreign code has declared departures: a campaign against it goes on past them. A finding that
  // is wanted counts even so.
  const bool wanted = finding.fingerprint().find(options_.wanted) != std::string::npos ||
                      finding.explanation.find(options_.wanted) != std::string::npos;
  const bool counts =
      options_.wanted.empty() ? !IsDeclared(finding, subject, subject.contract()) : wanted;
  if (!counts) {
    std::filesystem::remove(raw);
    return std::nullopt;
  }
  const std::string named = Write(finding);
  finding.case_file = named.empty() ? raw : named;
  if (finding.case_file != raw) std::filesystem::remove(raw);
  return finding;
}

void Checker::JudgeBy(const Case& c, MemoSubject& subject, const Told& told) const {
  if (options_.every) return JudgeAll(c, subject, options_.properties, told);
  JudgeInTurn(c, subject, options_.properties, told);
}

std::optional<Finding> Checker::Check(const Case& c) {
  std::optional<Finding> found;
  for (const auto& subject : subjects_) {
    const std::optional<Case> taken = TakenBy(*subject, c);
    if (!taken) continue;
    const Narrowed narrowed(*subject, taken->op);
    MemoSubject memo(*subject);
    JudgeBy(*taken, memo, [&](const Property& property, const Verdict& verdict) {
      if (verdict.failed()) {
        found = Keep(Finding(*taken, property.claim, subject->name(), verdict), *subject, verdict);
      }
      return !found;
    });
    if (found) break;
  }
  return found;
}

void Checker::Collect(const Case& c) {
  WatchPage* const watch = Watched();
  for (const auto& subject : recent_) {
    const std::optional<Case> taken = TakenBy(*subject, c);
    if (!taken) continue;
    const Narrowed narrowed(*subject, taken->op);
    MemoSubject memo(*subject);
    JudgeBy(*taken, memo, [&](const Property& property, const Verdict& verdict) {
      if (watch != nullptr) ++watch->verdicts[static_cast<size_t>(verdict.judgement)];
      if (verdict.failed()) collector_->Take(*taken, property, *subject, verdict);
      return true;
    });
  }
}

void OpenChecker() { OpenChecker(nullptr); }

void OpenChecker(const MakeOwnSubject& make) {
  int status = 0;
  try {
    CheckerOptions options;
    if (make) options.subject = AddOwnSubject(make);
    TheChecker() = std::make_unique<Checker>(OptionsFromEnvironment(std::move(options)));
    // All inputs are one burst, so that no call sets up signal handlers. The engine's own handlers
    // get what no subject caused. Never ends: it would after the thread's own variables are gone.
    [[maybe_unused]] static const Burst* const burst = new Burst;
    std::fprintf(stderr, "qualm: fuzzing %s\n", TheChecker()->SubjectNames().c_str());
    return;
  } catch (const InputError& error) {
    std::fprintf(stderr, "qualm: %s\n", error.what());
    status = 2;
  } catch (const Unavailable& error) {
    std::fprintf(stderr, "qualm: %s\n", error.what());
    status = 3;
  }
  std::exit(status);
}

void CheckAll(const Case& c) {
  QUALM_CHECK(TheChecker() != nullptr);
  if (TheChecker()->collects()) return TheChecker()->Collect(c);
  static int64_t executions = 0;
  ++executions;
  const std::optional<Finding> finding = TheChecker()->Check(c);
  if (!finding) return;
  std::fprintf(stderr, "qualm: finding %s: %s (%s, execution %lld)\n",
               finding->fingerprint().c_str(), finding->explanation.c_str(),
               finding->case_file.empty() ? "no case file" : finding->case_file.c_str(),
               static_cast<long long>(executions));
  __builtin_trap();
}

}  // namespace qualm::fuzz
