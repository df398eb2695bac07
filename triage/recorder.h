// SPDX-License-Identifier: Apache-2.0
// Remembers what a subject was asked and answered while a property judged it.
#ifndef QUALM_TRIAGE_RECORDER_H_
#define QUALM_TRIAGE_RECORDER_H_

#include <string>
#include <vector>

#include "core/case.h"
#include "core/subject.h"

namespace qualm::triage {

struct Recorded {
  Case problem;
  RunContext context;
  Tensor y;
};

// A Subject itself; forwards everything to `inner`, which must outlive it.
class Recorder : public Subject {
 public:
  explicit Recorder(Subject& inner) : inner_(inner) { set_contract(inner.contract()); }
  std::string_view name() const override { return inner_.name(); }
  std::string CannotRun(const Case& c) const override { return inner_.CannotRun(c); }
  Outcome Run(const Case& c, const RunContext& context) override;
  std::vector<std::string> Siblings() const override { return inner_.Siblings(); }
  std::string InstructionSet() const override { return inner_.InstructionSet(); }
  std::string Version() const override { return inner_.Version(); }

  // Answers in the order of asking, without repetitions; only those of the right type and shape.
  const std::vector<Recorded>& recorded() const { return recorded_; }
  void Clear() { recorded_.clear(); }

 private:
  Subject& inner_;
  std::vector<Recorded> recorded_;
};

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_RECORDER_H_
