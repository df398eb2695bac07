// SPDX-License-Identifier: Apache-2.0
// A property is a plain function of a case and a subject. Written once; RapidCheck, libFuzzer,
// exhaustive search, corpus replay and the command line all feed the same list.
#ifndef QUALM_PROPERTIES_PROPERTY_H_
#define QUALM_PROPERTIES_PROPERTY_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "core/subject.h"
#include "core/verdict.h"

namespace qualm {

struct Property {
  std::string_view claim;     // "sweep_is_monotone"; with an op: "linear.sweep_is_monotone"
  std::string_view sentence;  // one English sentence, the statement with its side conditions
  std::vector<Op> ops;
  // Holds under any contract (matches_model, clamp, memory, same bits, environment); otherwise a
  // theorem under `exact`, and under model:NAME iff that convention's row lists the claim.
  bool any_contract = false;
  std::string_view kills;  // kinds of fault it is there for; docs/hacking.md has the letters
  // Judges against the subject's own contract. Never throws for what a subject does.
  Verdict (*check)(const Case&, Subject&);
};

std::span<const Property> AllProperties();
// By claim ("matches_exact") or full name ("linear.matches_exact"); nullptr if unknown.
const Property* FindProperty(std::string_view name);
std::string FullName(Op op, const Property& property);
// fnmatch-style glob on the full name or the claim.
bool MatchesGlob(std::string_view glob, Op op, const Property& property);

// Applicability, capability and vacuity decided first, then the check: what every feeder calls.
// `contract` overrides the subject's own (sweep, minimize and explain judge against exact).
Verdict Judge(const Property& property, const Case& c, Subject& subject);

// Runs the case in the default context, remembering the last few answers of `subject`, so that the
// many properties of one case cost one run. A Subject itself; forwards everything else.
class MemoSubject : public Subject {
 public:
  explicit MemoSubject(Subject& inner) : inner_(inner) { set_contract(inner.contract()); }
  std::string_view name() const override { return inner_.name(); }
  std::string CannotRun(const Case& c) const override { return inner_.CannotRun(c); }
  Outcome Run(const Case& c, const RunContext& context) override;
  // Does not look at what is remembered, and adds nothing to it.
  std::vector<Outcome> RunMany(std::span<const Case> cases, const RunContext& context) override {
    return inner_.RunMany(cases, context);
  }
  // What the subject has already answered in the default context.
  void Remember(const Case& c, const Outcome& outcome);
  std::vector<std::string> Siblings() const override { return inner_.Siblings(); }
  std::string InstructionSet() const override { return inner_.InstructionSet(); }
  std::string Version() const override { return inner_.Version(); }
  int64_t runs() const { return runs_; }  // real runs of the inner subject

 private:
  struct Entry {
    Case problem;
    Outcome outcome;
  };
  Subject& inner_;
  std::vector<Entry> recent_;
  int64_t runs_ = 0;
};

// A failed run (crash, hang, touched outside, garbage ...) as a verdict; nullopt if it went well.
std::optional<Verdict> BadOutcome(const Outcome& outcome);

}  // namespace qualm

#endif  // QUALM_PROPERTIES_PROPERTY_H_
