// SPDX-License-Identifier: Apache-2.0
// From a failing case to a small one with the reason beside it.
#ifndef QUALM_PROPERTIES_TRIAGE_TRIAGE_H_
#define QUALM_PROPERTIES_TRIAGE_TRIAGE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/subject.h"
#include "core/verdict.h"
#include "properties/property.h"

namespace qualm::triage {

// Attribution by counterfactual: the smallest set of swapped stages (pair saturation, wrap, other
// rounding, zero point before rounding, clamp bound, dropped K tail, ...) that turns the exact
// computation into what the subject answered on this case.
struct Attribution {
  FindingKind kind = FindingKind::kUnknown;
  std::string diagnosis;              // one sentence
  std::vector<std::string> evidence;  // what was replayed and whether it reproduced the output
};
Attribution Attribute(const Case& c, const Tensor& actual);
// The same starting from a verdict: memory, crash and hang need no replay.
Attribution Attribute(const Case& c, const Verdict& verdict, Subject& subject);

// Total order "simpler than" (docs/architecture.md): lexicographic; smaller is simpler.
std::vector<int64_t> Complexity(const Case& c);

struct MinimizeOptions {
  int64_t max_calls = 2000;  // subject runs
  bool keep_kind = true;     // never slip to a finding of another kind
};
struct MinimizeResult {
  Case minimized;   // carries property, expected, observed and a note
  Verdict verdict;  // of the minimized case
  Attribution attribution;
  int64_t calls = 0;
  std::vector<std::string> irrelevant;  // what does not matter: "bias", "relu", "zero points"
  bool reproduced = true;               // false: the given case does not fail at all
};
MinimizeResult Minimize(const Case& c, Subject& subject, const Property& property,
                        const MinimizeOptions& options = {});

// Candidates one step simpler, in order: the passes that RapidCheck's shrinking uses too.
// Calls `visit` until it returns true (accepted) or there are no more.
void ForEachSimpler(const Case& c, const std::function<bool(const Case&)>& visit);

// Text: exact derivation of output `index`, then each subject's, to the first divergence; and, if
// the case carries an observed output, which models produce exactly that.
struct ExplainOptions {
  int64_t index = -1;  // -1: the first output at which a subject (or observed) departs from exact
};
std::string Explain(const Case& c, const std::vector<Subject*>& subjects,
                    const ExplainOptions& options = {});

// Fills kind, explanation and first_divergence of a raw finding.
void Complete(Finding& finding, Subject& subject, const Verdict& verdict);

}  // namespace qualm::triage

#endif  // QUALM_PROPERTIES_TRIAGE_TRIAGE_H_
