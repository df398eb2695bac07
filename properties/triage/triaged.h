// SPDX-License-Identifier: Apache-2.0
// One finding on its way from a judge to its reader: judged again, its cause named, minimized, put
// into words.
#ifndef QUALM_PROPERTIES_TRIAGE_TRIAGED_H_
#define QUALM_PROPERTIES_TRIAGE_TRIAGED_H_

#include <optional>
#include <string>

#include "core/subject.h"
#include "core/verdict.h"
#include "properties/property.h"
#include "properties/triage/triage.h"

namespace qualm::triage {

class Triaged {
 public:
  // Judges the case of the finding once more. `subject` must outlive this.
  Triaged(Finding finding, Subject& subject);

  const Finding& finding() const { return finding_; }
  Finding& finding() { return finding_; }
  // The kind is more than a guess.
  bool sure() const { return sure_; }

  // A small case may show what the large one hides. Nothing where the finding does not fail again.
  void Minimize();
  // After Minimize, where that gave one.
  const std::optional<MinimizeResult>& small() const { return small_; }

  // FindingText; after Minimize also what did not matter and the derivation of the small case.
  std::string Text() const;

 private:
  Finding finding_;
  Subject& subject_;
  const Property& property_;
  bool fails_ = false;
  bool sure_ = false;
  std::optional<MinimizeResult> small_;
};

// A few lines: claim, subject, kind, first divergence, cause, file.
std::string FindingText(const Finding& finding);

}  // namespace qualm::triage

#endif  // QUALM_PROPERTIES_TRIAGE_TRIAGED_H_
