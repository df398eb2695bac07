// SPDX-License-Identifier: Apache-2.0
// Attribution, minimization and explanation: from a failing case to a small one and its cause.
#ifndef QUALM_TRIAGE_TRIAGE_H_
#define QUALM_TRIAGE_TRIAGE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/finding.h"
#include "core/subject.h"
#include "core/verdict.h"
#include "properties/property.h"

namespace qualm::triage {

struct Cause;  // causes.h

// Causes that act together; most often one.
using Hypothesis = std::vector<const Cause*>;

// Where a fault shows, in words and as a rule. A condition is an explanation too, and pays its
// bits.
struct Condition {
  std::string text;  // "where K is 33 or more"; "" for everywhere
  std::function<bool(const Case&)> holds = [](const Case&) { return true; };
  bool of_size = false, of_two = false;
};

// Attribution by counterfactual: one cause (pair saturation, wrap, other rounding, zero point
// before rounding, clamp bound, dropped K tail, ...), else two of different stages, that turn the
// exact computation into what the subject answered on this case.
struct Attribution {
  FindingKind kind = FindingKind::kUnknown;
  std::string diagnosis;              // one sentence
  std::vector<std::string> evidence;  // what was replayed and whether it reproduced the output
  // The cause is shown: the causes give every output, or a rerun showed it. Otherwise the diagnosis
  // is what fits best, and the kind a guess that a smaller case may correct.
  bool complete = false;
  bool ambiguous = false;  // a cause of another kind gives the same output
  // Causes give the smallest case and not the case found, so that none is named: the diagnosis says
  // so, and not the case alone.
  bool doubted = false;
  // One answer is worth too little to say so: the kind is that of the likeliest cause, for whoever
  // looks for a declared one, and the diagnosis says that it is not enough to tell.
  bool thin = false;
  // Shown by questions of their own (triage/reads.h, triage/traits.h), which say more of the
  // subject than of this case: a smaller case keeps it.
  bool of_subject = false;
  // Further questions have shown of which tensor, or at which sizes: the smallest case alone would
  // say less.
  bool asked_on = false;
  // Further answers that bear the causes out, where none is against them.
  int64_t borne_out = 0;
  Hypothesis causes;
  Condition where;
  // The case that was looked at, with the answer: a claim may fail on one that it derives.
  std::optional<Case> looked_at;
  // Other causes that give every output, and that no further case told apart from these. If no
  // cause is named: the causes that too few cases bore out. A smaller case may decide.
  std::vector<Hypothesis> open;
  bool by_name = false;  // a named convention gives every answer asked
  // If the causes are a named convention: each one that gives every answer asked, this one first.
  // An answer to come may tell them apart.
  std::vector<Hypothesis> conventions;
  // Causes that give every output, and that further cases contradicted.
  std::vector<Hypothesis> contradicted;
};
// That the causes are at work, as something that is known. `kind`: of the fault that they were
// found for. A convention departs in several ways, and does not say which of them the fault is.
Attribution Named(Op op, Hypothesis causes);
Attribution Named(Op op, Hypothesis causes, FindingKind kind);
// "the subject computes as ruy, tflite@single (7 more) do".
std::string ComputesAs(std::span<const Hypothesis> conventions);
// Says "in some cases" instead of a condition that a failure outside of it has refuted.
void DropCondition(Attribution& attribution);
// Adds what was found of a subject and operation, in the place of what it says better. What is not
// complete, or has neither causes nor was shown of the subject, is not added.
void Establish(const Attribution& found, std::vector<Attribution>& established);

// `hint`: causes to try before all others, as found for a similar case; they are taken if they fit.
Attribution Attribute(const Case& c, const Tensor& actual, std::span<const Cause* const> hint = {});
// What a case file keeps of an attribution, and back: nullopt where the case has none of the answer
// `actual`, or one whose causes do not give it, or one of another subject than this, if it is
// given.
Explanation ExplanationOf(const Attribution& attribution, Op op);
std::optional<Attribution> Kept(const Case& c, const Tensor& actual, const Subject* subject);
// The causes that the file of `c` says are ruled out (Explanation::ruled_out).
std::vector<Hypothesis> RuledOut(const Case& c);
// Those of `contradicted` that give what was observed of `c`.
std::string RuledOutText(const Case& c, std::span<const Hypothesis> contradicted);
// The same, of the answer `actual` of a subject, which is asked further cases.
Attribution Attribute(const Case& c, const Tensor& actual, Subject& subject);
// The same starting from a verdict on `c`, whose answer and sweep are looked at. Crash, hang and
// memory need no replay.
Attribution Attribute(const Case& c, const Verdict& verdict, Subject& subject);

// Judges, and attributes a failure to what the subject answered while it was judged: a property may
// fail on a case derived from `c`, or in another environment.
struct Judged {
  Verdict verdict;
  Attribution attribution;  // of a failure
};
struct AttributionOptions {
  std::span<const Cause* const> hint = {};
  // What was found of this subject and operation already (Establish). The first fault that gives
  // every output, in a case where its condition holds, is named again, in the same words. What no
  // cause explains is put down to what experiments have shown (of_subject), which are not made
  // again.
  std::span<const Attribution> established = {};
  // Ask the subject further cases, and name only causes that these bear out (triage/examine.h).
  // Else the likeliest cause that gives every output of the one answer is named.
  bool examine = false;
  // Never to be named: the same subject has contradicted them.
  std::span<const Hypothesis> contradicted = {};
  // Name nothing but what is established.
  bool only_established = false;
  // First ask again, with other memory contents, and a new instance of the subject: an answer that
  // depends on such things has no cause in arithmetic, whatever fits it. Four runs and, where the
  // subject is foreign, the start of a worker.
  bool probe_state = true;
  // Asked between the steps of the search: true ends it without a cause. May be null.
  std::function<bool()> stop = nullptr;
};
Judged JudgeAndAttribute(const Property& property, const Case& c, Subject& subject,
                         const AttributionOptions& options = {});

// Does the subject's answer to `c` agree with causes that were found on a smaller case? They give
// some of its outputs that are not exact, and change none that is; or the answer is exact, or the
// cause is a convention that does not define `c`.
bool IsBorneOut(const Case& c, Subject& subject, const Hypothesis& causes);

// Total order "simpler than" (docs/triage.md): lexicographic; smaller is simpler.
std::vector<int64_t> Complexity(const Case& c);

struct MinimizeOptions {
  int64_t max_calls = 2000;  // subject runs
  // Asked before each run: true ends the search with the smallest case so far. May be null.
  std::function<bool()> stop = nullptr;
  // Told before each run of the subject how many there were. May be null.
  std::function<void(int64_t calls)> progress = nullptr;
  // Never slip to a finding of another cause. An unknown cause binds nothing: the smallest case may
  // show its cause.
  bool keep_kind = true;
  std::span<const Attribution> established = {};  // as in AttributionOptions
  // The attribution of the given case, by JudgeAndAttribute with `examine`; null: not known yet.
  const Attribution* attribution = nullptr;
};
struct MinimizeResult {
  Case minimized;   // carries property, expected, observed and a note
  Verdict verdict;  // of the minimized case
  Attribution attribution;
  int64_t calls = 0;
  std::vector<std::string> irrelevant;  // what does not matter: "bias", "relu", "zero points"
  // Sizes that the failure needs, of a search that came to its end; no smaller drawn case fails
  // either: "K >= 257", "N >= 5".
  std::vector<std::string> needs;
  bool reproduced = true;  // false: the given case does not fail at all
};
MinimizeResult Minimize(const Case& c, Subject& subject, const Property& property,
                        const MinimizeOptions& options = {});

// Text: exact derivation of output `index`, then each subject's, to the first divergence; and, if
// the case carries an observed output, which conventions produce exactly that.
struct ExplainOptions {
  int64_t index = -1;  // -1: the first output at which a subject (or observed) departs from exact
  // The attribution of the subject's answer; null: the subject is asked further cases to find it.
  const Attribution* attribution = nullptr;
};
struct Explained {
  struct Answer {
    Tensor y;
    Attribution attribution;  // of an answer that is not exact
  };
  std::string text;
  std::vector<Answer> wrong;  // each answer that is not exact, once; but for
  // those that float32 sums may give, where the subject or the case promises no more.
  std::vector<Tensor> accepted;

  // What the text says of this answer; null if it is exact or was never given.
  const Attribution* Of(const Tensor& y) const;
};
Explained ExplainAnswers(const Case& c, const std::vector<Subject*>& subjects,
                         const ExplainOptions& options = {});
std::string Explain(const Case& c, const std::vector<Subject*>& subjects,
                    const ExplainOptions& options = {});

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_TRIAGE_H_
