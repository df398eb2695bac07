// SPDX-License-Identifier: Apache-2.0
#include "properties/triage/triaged.h"

#include <fmt/format.h>

#include <utility>

namespace qualm::triage {

Triaged::Triaged(Finding finding, Subject& subject)
    : finding_(std::move(finding)), subject_(subject), property_(*FindProperty(finding_.property)) {
  const Judged judged = JudgeAndAttribute(property_, finding_.test_case, subject_);
  if (judged.verdict.judgement == Judgement::kSkipped) {
    // Given up after it hung too often: nobody can be asked any more.
    sure_ = true;
    return;
  }
  fails_ = judged.verdict.failed();
  sure_ = fails_ && judged.attribution.complete && judged.attribution.swaps.size() <= 1;
  if (fails_) {
    Complete(finding_, judged.verdict, judged.attribution);
  } else {
    // It failed once and does not fail again: that is the finding.
    finding_.kind = FindingKind::kNondeterminism;
    finding_.explanation += "; did not fail when it was run again";
    sure_ = true;
  }
}

void Triaged::Minimize() {
  if (!fails_) return;
  small_ = triage::Minimize(finding_.test_case, subject_, property_);
  if (!small_->reproduced) {
    small_.reset();
  } else if (!sure_ && small_->attribution.complete) {
    finding_.kind = small_->attribution.kind;
    finding_.explanation += "; minimized: " + small_->attribution.diagnosis;
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

std::string FindingText(const Finding& finding) {
  std::string text = fmt::format("{}: {} fails on {} [{}]\n",
                                 finding.expected_by_contract ? "expected" : "FINDING",
                                 finding.full_property(), finding.subject, Name(finding.kind));
  if (finding.first_divergence) {
    const Divergence& d = *finding.first_divergence;
    text += fmt::format("  at index {}: expected {}, actual {} ({} lsb)\n", d.index, d.expected,
                        d.actual, d.distance_lsb);
  }
  if (!finding.explanation.empty()) text += "  " + finding.explanation + "\n";
  if (!finding.case_file.empty()) text += "  case: " + finding.case_file + "\n";
  return text;
}

}  // namespace qualm::triage
