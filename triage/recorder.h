// SPDX-License-Identifier: Apache-2.0
// Remembers what a subject was asked and answered while a property judged it.
#ifndef QUALM_TRIAGE_RECORDER_H_
#define QUALM_TRIAGE_RECORDER_H_

#include <span>
#include <vector>

#include "core/case.h"
#include "core/forwarding_subject.h"

namespace qualm::triage {

struct Recorded {
  Case problem;
  RunContext context;
  Tensor y;
};

class Recorder : public ForwardingSubject {
 public:
  using ForwardingSubject::ForwardingSubject;
  Outcome Run(const Case& c, const RunContext& context) override;
  // Records each case.
  std::vector<Outcome> RunMany(std::span<const Case> cases, const RunContext& context) override {
    return Subject::RunMany(cases, context);
  }

  // Answers of the right type and shape in the order of asking, without repetitions.
  const std::vector<Recorded>& recorded() const { return recorded_; }
  void Clear() { recorded_.clear(); }

 private:
  std::vector<Recorded> recorded_;
};

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_RECORDER_H_
