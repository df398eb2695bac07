// SPDX-License-Identifier: Apache-2.0
#include "tools/known.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "core/io/json_text.h"
#include "core/status.h"
#include "tools/command.h"
#include "triage/triaged.h"

namespace qualm::tools {
namespace {

constexpr const char* kBaseline = "baseline";
constexpr const char* kSuppression = "suppression";

Date Today(const std::string& given) {
  if (given.empty()) {
    return std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  }
  const std::optional<Date> date = ParseDate(given);
  if (!date) throw InputError("--today: '" + given + "' is no date, expected YYYY-MM-DD");
  return *date;
}

template <class Read>
auto ReadOption(const char* option, const std::string& path, Read read) {
  try {
    return read(path);
  } catch (const InputError& error) {
    throw InputError(std::string(option) + ": " + error.what());
  }
}

// The entry of the finding, also under the name that an earlier qualm gave it.
template <class Entries>
auto Entry(const Entries& entries, const Finding& finding) {
  const auto at = entries.find(finding.fingerprint());
  return at != entries.end() ? at : entries.find(finding.former_fingerprint());
}

}  // namespace

void AddKnownOptions(Verb& verb, KnownOptions& options) {
  verb.Text("--baseline", options.baseline,
            "result document (--json) of an earlier run: its findings do not fail this one");
  const VerbOption suppressions =
      verb.Text("--suppressions", options.suppressions,
                "findings that do not fail until a date, with the reason (docs/ci.md)");
  verb.Text("--today", options.today,
            "date that suppressions are held against, YYYY-MM-DD (default: now, UTC)")
      .Needs(suppressions);
}

KnownFindings::KnownFindings(const KnownOptions& options)
    : baseline_(options.baseline), suppressions_(options.suppressions) {
  if (!baseline_.empty()) {
    for (const std::string& known : ReadOption("--baseline", baseline_, ReadBaselineFile)) {
      marks_[known] = {kBaseline, "", ""};
    }
  }
  if (suppressions_.empty()) return;
  const Date today = Today(options.today);
  today_ = DateText(today);
  for (Suppression& entry : ReadOption("--suppressions", suppressions_, ReadSuppressionsFile)) {
    if (today > entry.expires) {
      Tell("{}: the suppression of {} expired on {}", suppressions_, entry.fingerprint,
           DateText(entry.expires));
      expired_.emplace(entry.fingerprint, std::move(entry));
      continue;
    }
    marks_[entry.fingerprint] = {kSuppression, entry.reason, DateText(entry.expires)};
  }
}

std::string KnownFindings::today() const { return today_; }

bool KnownFindings::IsNew(const Finding& finding) const {
  return !finding.expected_by_contract && Entry(marks_, finding) == marks_.end();
}

bool KnownFindings::AnyNew(const std::vector<Finding>& findings) const {
  return std::ranges::any_of(findings, [&](const Finding& finding) { return IsNew(finding); });
}

void KnownFindings::CountAsExpected(const std::vector<Finding>& findings,
                                    CheckResult& result) const {
  for (const auto& [claim, count] : result.failed) {
    const auto& [property, subject] = claim;
    const bool any_new = std::ranges::any_of(findings, [&](const Finding& finding) {
      return finding.full_property() == property && finding.subject == subject && IsNew(finding);
    });
    if (any_new) continue;
    for (Totals* totals :
         {&result.totals, &result.by_property[property], &result.by_subject[subject],
          &result.by_square[{subject, property.substr(0, property.find('.'))}]}) {
      totals->verdicts[Judgement::kExpected] += count;
      int64_t& failed = totals->verdicts[Judgement::kFailed];
      failed -= count;
      if (failed == 0) totals->verdicts.erase(Judgement::kFailed);
    }
  }
}

std::string KnownFindings::Text(const Finding& finding) const {
  const std::string fingerprint = finding.fingerprint();
  if (finding.expected_by_contract) return triage::FindingText(finding);
  const auto mark = Entry(marks_, finding);
  if (mark == marks_.end()) {
    std::string text = triage::FindingText(finding) + "  fingerprint: " + fingerprint + "\n";
    const auto entry = Entry(expired_, finding);
    if (entry == expired_.end()) return text;
    return text + fmt::format("  its suppression expired on {}: {}\n",
                              DateText(entry->second.expires), OneLine(entry->second.reason));
  }
  if (mark->second.by == kBaseline) {
    return triage::FindingText(finding, "known") + "  in the baseline " + OneLine(baseline_) + "\n";
  }
  return triage::FindingText(finding, "suppressed") + fmt::format("  suppressed until {}: {}\n",
                                                                  mark->second.expires,
                                                                  OneLine(mark->second.reason));
}

std::map<std::string, KnownMark> KnownFindings::MarksOf(
    const std::vector<Finding>& findings) const {
  std::map<std::string, KnownMark> marks;
  for (const Finding& finding : findings) {
    const auto mark = Entry(marks_, finding);
    if (!finding.expected_by_contract && mark != marks_.end())
      marks.emplace(finding.fingerprint(), mark->second);
  }
  return marks;
}

void KnownFindings::TellUnmatched(const std::vector<Finding>& findings) const {
  std::set<std::string> seen;
  for (const Finding& finding : findings)
    seen.insert({finding.fingerprint(), finding.former_fingerprint()});
  int64_t gone = 0;
  std::set<std::string> former;  // files
  for (const auto& [fingerprint, mark] : marks_) {
    // No fingerprint of today has a colon.
    if (fingerprint.find(':') != std::string::npos)
      former.insert(mark.by == kBaseline ? baseline_ : suppressions_);
    if (seen.contains(fingerprint)) continue;
    if (mark.by == kBaseline) {
      ++gone;
    } else {
      Tell("{}: no finding of this run is '{}'", suppressions_, fingerprint);
    }
  }
  if (gone > 0) Tell("{}: {} of its findings were not seen in this run", baseline_, gone);
  for (const std::string& file : former) {
    Tell(
        "{}: holds fingerprints of an earlier qualm, with paths as they were typed; take those of "
        "this run (--json)",
        file);
  }
}

}  // namespace qualm::tools
