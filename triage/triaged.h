// SPDX-License-Identifier: Apache-2.0
// One finding on its way from a judge to its reader: judged again, its cause named, minimized, put
// into words.
#ifndef QUALM_TRIAGE_TRIAGED_H_
#define QUALM_TRIAGE_TRIAGED_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/finding.h"
#include "core/subject.h"
#include "core/verdict.h"
#include "properties/property.h"
#include "triage/triage.h"

namespace qualm::triage {

class Triaged {
 public:
  // Judges the case of the finding once more. `subject` must outlive this. Where several causes
  // give every output, one that makes a finding that is `known` is the cause: other cases of the
  // same bug would otherwise pass for another one.
  Triaged(Finding finding, Subject& subject,
          const std::function<bool(const Finding&)>& known = nullptr);

  const Finding& finding() const { return finding_; }
  Finding& finding() { return finding_; }
  // The kind is more than a guess.
  bool sure() const { return sure_; }

  // A small case may show what the large one hides. Nothing where the finding does not fail again.
  void Minimize(const MinimizeOptions& options = {});
  // After Minimize, where that gave one.
  const std::optional<MinimizeResult>& small() const { return small_; }

  // FindingText; after Minimize also what did not matter and the derivation of the small case.
  std::string Text() const;

 private:
  void PreferKnown(const std::function<bool(const Finding&)>& known, Judged& judged) const;

  Finding finding_;
  Subject& subject_;
  const Property& property_;
  bool fails_ = false;
  bool sure_ = false;
  std::optional<MinimizeResult> small_;
};

// A few lines: label ("" stands for "FINDING", or "expected"), claim, subject, kind, first
// divergence, cause, file.
std::string FindingText(const Finding& finding, std::string_view label = "");

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_TRIAGED_H_
