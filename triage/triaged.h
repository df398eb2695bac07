// SPDX-License-Identifier: Apache-2.0
// One finding on its way from a judge to its reader: judged again, its cause named, minimized, put
// into words.
#ifndef QUALM_TRIAGE_TRIAGED_H_
#define QUALM_TRIAGE_TRIAGED_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/finding.h"
#include "core/subject.h"
#include "core/verdict.h"
#include "properties/property.h"
#include "triage/triage.h"

namespace qualm::triage {

class Triaged {
 public:
  // Judges the case of the finding once more. `subject` must outlive this. Where several causes
  // are left, a cause that makes the finding `known` is taken: a known bug would otherwise look
  // like a new one on some cases. `established`: what was found of this subject and operation
  // already (AttributionOptions, as `stop`).
  Triaged(Finding finding, Subject& subject,
          const std::function<bool(const Finding&)>& known = nullptr,
          std::vector<Attribution> established = {}, std::function<bool()> stop = nullptr);

  const Finding& finding() const { return finding_; }
  Finding& finding() { return finding_; }
  // The kind is more than a guess.
  bool sure() const { return sure_; }

  // The causes that are shown to give the subject's answer; empty where none are.
  const Hypothesis& causes() const { return attribution_.causes; }
  // The attribution of the finding, if it failed again.
  const Attribution& attribution() const { return attribution_; }

  // The case of the finding, with what the subject answers to it, and why.
  Case Answered() const;

  // A small case may show a cause that the large one hides. Does nothing if the finding did not
  // fail again.
  void Minimize(const MinimizeOptions& options = {});
  // The result of Minimize, if it was called and the finding failed again.
  const std::optional<MinimizeResult>& small() const { return small_; }

  // Takes back the condition of the cause, which another failure has refuted.
  void DropCondition();

  // FindingText. After Minimize also the parameters that did not matter, and the derivation of the
  // small case.
  std::string Text() const;

 private:
  void PreferKnown(const std::function<bool(const Finding&)>& known, Judged& judged) const;

  Finding finding_;
  Subject& subject_;
  const Property& property_;
  std::vector<Attribution> established_;
  bool fails_ = false;
  bool sure_ = false;
  Verdict verdict_;
  Attribution attribution_;
  std::optional<MinimizeResult> small_;
};

// What did not matter to a failure and which sizes it needs, a line each.
std::string MattersText(const MinimizeResult& result);

// Fills kind, explanation and first_divergence of a raw finding; judges once more. The cause is the
// one that the case file keeps, if it was written of this claim and of this answer of the subject;
// else the likeliest, or with `examine` the one that further questions bear out. False if the
// answer is worth too little to name it (Attribution::thin).
bool Complete(Finding& finding, Subject& subject, const Verdict& verdict, bool examine = false);
// The same from an attribution that is already known.
void Complete(Finding& finding, const Verdict& verdict, const Attribution& attribution);

// A few lines: label ("" stands for "FINDING", or "expected"), claim, subject, kind, first
// divergence, cause, file.
std::string FindingText(const Finding& finding, std::string_view label = "");

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_TRIAGED_H_
