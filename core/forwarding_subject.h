// SPDX-License-Identifier: Apache-2.0
// The base class of subjects that wrap a subject: it passes every question on to the one inside.
#ifndef QUALM_CORE_FORWARDING_SUBJECT_H_
#define QUALM_CORE_FORWARDING_SUBJECT_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/subject.h"

namespace qualm {

// A wrapper overrides the functions that it changes. A wrapper that overrides Run overrides RunMany
// too, because RunMany here asks `inner` and so passes by the wrapper's Run. A wrapper starts with
// the contract of `inner`, and `inner` must outlive the wrapper.
class ForwardingSubject : public Subject {
 public:
  explicit ForwardingSubject(Subject& inner) : inner_(inner) { set_contracts(inner.contracts()); }

  std::string_view name() const override { return inner_.name(); }
  std::string CannotRun(const Case& c) const override { return inner_.CannotRun(c); }
  Case Inside(const Case& c) const override { return inner_.Inside(c); }
  bool Offers(Op op) const override { return inner_.Offers(op); }
  Outcome Run(const Case& c, const RunContext& context) override { return inner_.Run(c, context); }
  std::vector<Outcome> RunMany(std::span<const Case> cases, const RunContext& context) override {
    return inner_.RunMany(cases, context);
  }
  std::vector<std::string> Siblings() const override { return inner_.Siblings(); }
  std::string InstructionSet() const override { return inner_.InstructionSet(); }
  bool MayBeMadeAnew() const override { return inner_.MayBeMadeAnew(); }
  std::string Version() const override { return inner_.Version(); }

 protected:
  Subject& inner() const { return inner_; }

 private:
  Subject& inner_;
};

}  // namespace qualm

#endif  // QUALM_CORE_FORWARDING_SUBJECT_H_
