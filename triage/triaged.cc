// SPDX-License-Identifier: Apache-2.0
#include "triage/triaged.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "core/io/short_path.h"
#include "triage/causes.h"

namespace qualm::triage {

Triaged::Triaged(Finding finding, Subject& subject,
                 const std::function<bool(const Finding&)>& known,
                 std::vector<Attribution> established, std::function<bool()> stop)
    : finding_(std::move(finding)),
      subject_(subject),
      property_(*FindProperty(finding_.property)),
      established_(std::move(established)) {
  AttributionOptions how;
  how.established = established_;
  how.stop = std::move(stop);
  how.examine = !finding_.expected_by_contract;  // what is declared has been named
  // A fault that depends on the state of the machine, such as kept memory, or on chance may need
  // several runs. Each crash or hang may cost the time limit.
  const bool was_crash =
      finding_.kind == FindingKind::kCrash || finding_.kind == FindingKind::kHang;
  const int most_runs = was_crash ? 4 : 16;
  Judged judged;
  for (int run = 0; run < most_runs; ++run) {
    judged = JudgeAndAttribute(property_, finding_.test_case, subject_, how);
    if (judged.verdict.judgement != Judgement::kPassed) break;
  }
  if (judged.verdict.judgement == Judgement::kSkipped) {
    // The subject hung too often and was given up: it answers nothing any more.
    sure_ = true;
    return;
  }
  // A subject that crashed and now gives wrong numbers has two faults, and the crash is the rare
  // fault.
  fails_ = judged.verdict.failed() && (!was_crash || judged.attribution.kind == finding_.kind);
  if (known) PreferKnown(known, judged);
  sure_ = judged.attribution.complete && judged.attribution.causes.size() <= 1;
  if (fails_) {
    attribution_ = judged.attribution;
    verdict_ = judged.verdict;
    Complete(finding_, judged.verdict, judged.attribution);
  } else {
    // The case failed once and does not fail again: the finding is that the answer varies. But if a
    // call left something behind, that stays the finding.
    const bool left = finding_.explanation.starts_with(Name(RunStatus::kLeftBehind));
    if (!left) finding_.kind = FindingKind::kNondeterminism;
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
  if (judged.attribution.open.empty() || is_known(judged.attribution.kind)) return;
  for (const Hypothesis& causes : judged.attribution.open) {
    if (!is_known(causes.front()->kind)) continue;
    const Judged again = JudgeAndAttribute(property_, finding_.test_case, subject_,
                                           {.hint = causes, .probe_state = false});
    if (again.attribution.causes != causes) continue;
    judged = again;
    return;
  }
}

Case Triaged::Answered() const {
  Case c = ProblemOf(finding_.test_case);
  c.property = finding_.full_property();
  c.contract = finding_.test_case.contract;
  if (!subject_.CannotRun(c).empty()) return c;
  const Outcome outcome = subject_.Run(ProblemOf(c), {});
  if (!outcome.ok() || !c.HoldsOutput(outcome.y)) return c;
  c.observed = Observed{finding_.subject, outcome.y};
  if (fails_ && outcome.y != RightOutput(c, ModelOf(subject_.contract())))
    c.observed->why = ExplanationOf(attribution_, c.op);
  return c;
}

void Triaged::Minimize(const MinimizeOptions& options) {
  if (!fails_) return;
  MinimizeOptions how = options;
  how.established = established_;
  how.attribution = &attribution_;
  small_ = triage::Minimize(finding_.test_case, subject_, property_, how);
  if (!small_->reproduced) {
    small_.reset();
    return;
  }
  const bool refuted = small_->attribution.causes != attribution_.causes ||
                       small_->attribution.where.text != attribution_.where.text;
  if (!attribution_.where.text.empty() && refuted) {
    attribution_ = small_->attribution;
    Complete(finding_, verdict_, attribution_);
    sure_ = attribution_.complete && attribution_.causes.size() <= 1;
    return;
  }
  // What was seen, and not explained by causes, is told as the smallest case shows it.
  if (sure_ && attribution_.causes.empty() && !attribution_.of_subject && !attribution_.asked_on &&
      small_->attribution.complete && small_->attribution.kind == attribution_.kind) {
    attribution_ = small_->attribution;
  }
  if (!sure_ && !small_->attribution.diagnosis.empty()) {
    // What the file of the smallest case says too.
    if (small_->attribution.complete || small_->attribution.doubted) {
      finding_.kind = small_->attribution.kind;
      attribution_ = small_->attribution;
    }
    // What is declared has been named, and one answer of it may look like anything.
    if (small_->attribution.diagnosis != finding_.explanation && !finding_.expected_by_contract)
      finding_.explanation += "; minimized: " + small_->attribution.diagnosis;
  }
}

void Triaged::DropCondition() {
  triage::DropCondition(attribution_);
  Complete(finding_, verdict_, attribution_);
  if (!small_) return;
  triage::DropCondition(small_->attribution);
  small_->minimized.note = attribution_.diagnosis;
  if (small_->minimized.observed && !small_->minimized.observed->why.kind.empty())
    small_->minimized.observed->why = ExplanationOf(attribution_, small_->minimized.op);
}

std::string Triaged::Text() const {
  std::string text = FindingText(finding_);
  if (!small_) return text;
  text += fmt::format("\nminimized in {} subject calls\n", small_->calls);
  return text + MattersText(*small_) +
         Explain(small_->minimized, {&subject_}, {.attribution = &attribution_});
}

std::string MattersText(const MinimizeResult& result) {
  std::string text;
  if (!result.irrelevant.empty())
    text += fmt::format("irrelevant: {}\n", fmt::join(result.irrelevant, ", "));
  if (!result.needs.empty())
    text += fmt::format("of the cases tried here only those with {} fail\n",
                        fmt::join(result.needs, ", "));
  return text;
}

bool Complete(Finding& finding, Subject& subject, const Verdict& verdict, bool examine) {
  const Case& c = finding.test_case;
  const Property* property = FindProperty(finding.property);
  const auto complete = [&](const Attribution& attribution) {
    Complete(finding, verdict, attribution);
    return !attribution.thin;
  };
  if (property == nullptr) return complete(Attribute(c, verdict, subject));
  // The file speaks of its own claim, under its own contract.
  if (finding.full_property() == c.property && ModelOf(c) == ModelOf(subject.contract())) {
    const Outcome outcome = subject.Run(ProblemOf(c), {});
    if (const auto kept = outcome.ok() ? Kept(c, outcome.y, &subject) : std::nullopt)
      return complete(*kept);
  }
  return complete(JudgeAndAttribute(*property, c, subject, {.examine = examine}).attribution);
}

void Complete(Finding& finding, const Verdict& verdict, const Attribution& attribution) {
  finding.kind = attribution.kind;
  finding.first_divergence = verdict.divergence;
  finding.explanation = verdict.reason;
  const auto add = [&](const std::string& text) {
    if (!text.empty() && text != verdict.reason) finding.explanation += "; " + text;
  };
  add(attribution.diagnosis);
  for (const std::string& line : attribution.evidence) add(line);
}

std::string FindingText(const Finding& finding, std::string_view label) {
  if (label.empty()) label = finding.expected_by_contract ? "expected" : "FINDING";
  std::string text = fmt::format("{}: {} fails on {} [{}]\n", label, finding.full_property(),
                                 finding.subject, Name(finding.kind));
  if (finding.first_divergence) {
    const Divergence& d = *finding.first_divergence;
    text += fmt::format("  at index {}: expected {}, actual {}", d.index, d.expected, d.actual);
    // A divergence without a number, such as "at least 0", has no distance. Floats are written in
    // hexadecimal, and count units in the last place.
    const char* const unit = d.actual.find("0x") == std::string::npos ? "lsb" : "ulp";
    if (d.distance_lsb > 0) text += fmt::format(" ({} {})", d.distance_lsb, unit);
    text += "\n";
  }
  if (!finding.explanation.empty()) text += "  " + finding.explanation + "\n";
  if (!finding.declared.empty()) text += "  declared: " + finding.declared + "\n";
  if (!finding.case_file.empty()) text += "  case: " + ShortPath(finding.case_file) + "\n";
  return text;
}

}  // namespace qualm::triage
