// SPDX-License-Identifier: Apache-2.0
// Differential properties: against the exact meaning, against the promised convention, and against
// the other instruction sets of the same kernels.
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "oracles/accepted.h"
#include "properties/list.h"
#include "properties/relation.h"

namespace qualm {
namespace {

using relation::Answer;
using relation::Ask;

Verdict MatchesExact(const Case& c, Subject& subject) {
  const Answer answer = Ask(subject, c);
  if (answer.verdict) return *answer.verdict;
  if (answer.y.empty()) return Verdict::Vacuous("the output is empty");
  return relation::Difference(c, relation::ExactOf(c), answer.y, "departs from the exact value")
      .value_or(Verdict::Passed());
}

Verdict KeepsContract(const Case& c, Subject& subject) {
  const Contract& contract = subject.contract(c.op);
  if (contract.exact()) return Verdict::NotApplicable("the contract names no convention");
  if (std::string why = WhyNotJudged(contract, c); !why.empty())
    return Verdict::Skipped(std::move(why));
  const Answer answer = Ask(subject, c);
  if (answer.verdict) return *answer.verdict;
  if (answer.y.empty()) return Verdict::Vacuous("the output is empty");
  const Accepted right = AcceptedBy(contract, c);
  const auto judged = [&](Verdict verdict) {
    verdict.sums = right.grades();
    return verdict;
  };
  if (right.undecided() == answer.y.size())
    return judged(Verdict::Vacuous(contract.text() + " permits every value of every output"));
  const std::optional<Divergence> first = right.First(answer.y);
  if (!first) return judged(Verdict::Passed());
  return judged(relation::FailedAt(c, first->index, first->expected, first->actual,
                                   first->distance_lsb,
                                   "departs from " + right.What(contract, first->index)));
}

// Siblings live as long as the thread: making a subject is dear, and each case meets all of them.
struct Sibling {
  std::unique_ptr<Subject> subject;
  std::unique_ptr<MemoSubject> memo;
  std::string why_not;
};
Sibling& SiblingNamed(const std::string& name) {
  static thread_local std::map<std::string, Sibling> siblings;
  Sibling& sibling = siblings[name];
  if (!sibling.memo && sibling.why_not.empty()) {
    try {
      sibling.subject = SubjectRegistry::Get().Make(name);
      sibling.memo = std::make_unique<MemoSubject>(*sibling.subject);
    } catch (const Unavailable& error) {
      sibling.why_not = error.what();
    }
  }
  return sibling;
}

Verdict TargetsAgree(const Case& c, Subject& subject) {
  const Answer answer = Ask(subject, c);
  if (answer.verdict) return *answer.verdict;
  if (answer.y.empty()) return Verdict::Vacuous("the output is empty");
  int compared = 0;
  std::string why_none = "the subject has no other targets";
  for (const std::string& name : subject.Siblings()) {
    if (name == subject.name()) continue;
    Sibling& sibling = SiblingNamed(name);
    if (!sibling.memo) {
      why_none = sibling.why_not;
      continue;
    }
    const Answer other = Ask(*sibling.memo, c);
    if (other.verdict) {  // a sibling's own failure is reported where the sibling is the subject
      why_none = other.verdict->reason;
      continue;
    }
    if (auto failed = relation::Difference(c, other.y, answer.y, "differs from " + name)) {
      return *failed;
    }
    ++compared;
  }
  return compared == 0 ? Verdict::Vacuous(why_none) : Verdict::Passed();
}

}  // namespace

std::vector<Property> DifferentialProperties() {
  return {
      {"matches_exact",
       "Every output is the exact one: the real result rounded once, half to even, then clamped; "
       "or what the requantization mode of the case, softmax, choose_qparams and the rule of "
       "dynamic_linear define instead.",
       EveryOp(), false, MatchesExact},
      {"matches_model",
       "Every output is bit-equal to the convention that the subject's contract names, or lies "
       "where the variations that it names, or float32 sums of any order, may bring it.",
       EveryOp(), true, KeepsContract},
      {"targets_agree", "Every instruction set of the same kernels gives the same bits.", EveryOp(),
       false, TargetsAgree, kSeldom},
  };
}

}  // namespace qualm
