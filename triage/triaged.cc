// SPDX-License-Identifier: Apache-2.0
#include "triage/triaged.h"

#include <fmt/format.h>

#include <utility>

#include "triage/causes.h"

namespace qualm::triage {

Triaged::Triaged(Finding finding, Subject& subject,
                 const std::function<bool(const Finding&)>& known)
    : finding_(std::move(finding)), subject_(subject), property_(*FindProperty(finding_.property)) {
  Judged judged = JudgeAndAttribute(property_, finding_.test_case, subject_);
  if (judged.verdict.judgement == Judgement::kSkipped) {
    // The subject hung too often and was given up: it answers nothing any more.
    sure_ = true;
    return;
  }
  // A subject that crashed and now gives wrong numbers has two faults, and the crash is the rare
  // one.
  const bool broke = finding_.kind == FindingKind::kCrash || finding_.kind == FindingKind::kHang;
  fails_ = judged.verdict.failed() && (!broke || judged.attribution.kind == finding_.kind);
  if (fails_ && judged.attribution.ambiguous && known) PreferKnown(known, judged);
  sure_ = fails_ && judged.attribution.complete && judged.attribution.causes.size() <= 1;
  if (fails_) {
    if (judged.attribution.complete) causes_ = judged.attribution.causes;
    Complete(finding_, judged.verdict, judged.attribution);
  } else {
    // It failed once and does not fail again: that is the finding.
    finding_.kind = FindingKind::kNondeterminism;
    finding_.explanation += judged.verdict.failed()
                                ? "; did not fail like this when it was run again"
                                : "; did not fail when it was run again";
    sure_ = true;
  }
}

void Triaged::PreferKnown(const std::function<bool(const Finding&)>& known, Judged& judged) const {
  Finding finding = finding_;
  const auto is_known = [&](FindingKind kind) {
    finding.kind = kind;
    return known(finding);
  };
  if (is_known(judged.attribution.kind)) return;
  for (const Cause& cause : AllCauses()) {
    if (!is_known(cause.kind)) continue;
    const Cause* const hint = &cause;
    const Judged again = JudgeAndAttribute(property_, finding_.test_case, subject_,
                                           {.hint = {&hint, 1}, .probe_state = false});
    if (!again.verdict.failed() || !again.attribution.complete ||
        again.attribution.kind != cause.kind)
      continue;
    judged = again;
    return;
  }
}

void Triaged::Minimize(const MinimizeOptions& options) {
  if (!fails_) return;
  small_ = triage::Minimize(finding_.test_case, subject_, property_, options);
  if (!small_->reproduced) {
    small_.reset();
  } else if (!sure_ && small_->attribution.complete) {
    const Attribution& fits = small_->attribution;
    if (IsBornOut(finding_.test_case, subject_, fits)) {
      finding_.kind = fits.kind;
      causes_ = fits.causes;
      finding_.explanation += "; minimized: " + fits.diagnosis;
    } else {
      finding_.explanation +=
          "; minimized it could be that " + fits.diagnosis + ", but not in the case found";
    }
  }
}

std::string Triaged::Text() const {
  std::string text = FindingText(finding_);
  if (!small_) return text;
  text += fmt::format("\nminimized in {} subject calls\n", small_->calls);
  if (!small_->irrelevant.empty()) {
    text += "irrelevant: ";
    for (size_t i = 0; i < small_->irrelevant.size(); ++i) {
      text += (i == 0 ? "" : ", ") + small_->irrelevant[i];
    }
    text += "\n";
  }
  return text + Explain(small_->minimized, {&subject_});
}

std::string FindingText(const Finding& finding, std::string_view label) {
  if (label.empty()) label = finding.expected_by_contract ? "expected" : "FINDING";
  std::string text = fmt::format("{}: {} fails on {} [{}]\n", label, finding.full_property(),
                                 finding.subject, Name(finding.kind));
  if (finding.first_divergence) {
    const Divergence& d = *finding.first_divergence;
    text += fmt::format("  at index {}: expected {}, actual {}", d.index, d.expected, d.actual);
    // A divergence from "at least 0" has no distance.
    if (d.distance_lsb > 0) text += fmt::format(" ({} lsb)", d.distance_lsb);
    text += "\n";
  }
  if (!finding.explanation.empty()) text += "  " + finding.explanation + "\n";
  if (!finding.case_file.empty()) text += "  case: " + finding.case_file + "\n";
  return text;
}

}  // namespace qualm::triage
