// SPDX-License-Identifier: Apache-2.0
// One subject under every property of one operation, one property at a time, as test frameworks
// need it. properties/gtest.h binds it to GoogleTest; a binding to another framework is as short.
#ifndef QUALM_PROPERTIES_SUITE_H_
#define QUALM_PROPERTIES_SUITE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/own_subject.h"
#include "core/subject.h"
#include "core/verdict.h"
#include "properties/property.h"

namespace qualm {

namespace triage {
struct Attribution;
}

struct SuiteOptions {
  int64_t cases = 500;           // that the subject can run; each is judged by every property
  uint64_t seed = 1;             // same seed, same cases
  std::string properties = "*";  // globs on claims: "sweep_*", "*,!environment"
  std::string contract =
      {};  // "" = the subject's own; "exact", "model:NAME", "within:V1,V8", "OP=model:NAME"
  // Judged before the drawn cases, as far as the subject can run them: what failed an earlier run.
  std::vector<Case> first = {};
};

// The verdict of all cases on one property: failed with the first finding, minimized and explained;
// passed if nothing failed and something passed; else the commonest reason why not.
struct SuiteResult {
  Judgement judgement = Judgement::kPassed;
  std::string text;  // "" if passed
  // Of a failure: its kind, and the smallest case that was found, with the subject's answer.
  FindingKind kind = FindingKind::kUnknown;
  std::optional<Case> smallest;
  int64_t judged = 0;  // cases on which the property passed or failed
};

// One thread.
class Suite {
 public:
  // Makes the subject known to the registry (core/own_subject.h) when it is first needed.
  Suite(Op op, MakeOwnSubject make, SuiteOptions options = {});
  ~Suite();

  Op op() const { return op_; }
  const SuiteOptions& options() const { return options_; }

  // Throws InputError for an unknown contract, for a convention that lacks the operation, and if
  // the subject takes hardly any case: a suite that judges nothing must not look clean.
  SuiteResult Run(const Property& property);

 private:
  void Prepare();

  Op op_;
  MakeOwnSubject make_;
  SuiteOptions options_;
  std::unique_ptr<Subject> subject_;
  std::string refused_;  // why the cases are too few, asked for once
  std::vector<Case> first_, cases_;
  // The subject's answers to `cases_`, with which most properties begin: each is asked for once.
  std::vector<std::optional<Outcome>> usual_;
  std::unique_ptr<std::vector<triage::Attribution>> established_;  // causes of earlier failures
};

}  // namespace qualm

#endif  // QUALM_PROPERTIES_SUITE_H_
