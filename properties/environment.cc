// SPDX-License-Identifier: Apache-2.0
// The floating-point environment around the call is the caller's business, not the kernel's.
#include <array>
#include <string>

#include "properties/list.h"
#include "properties/relation.h"

namespace qualm {
namespace {

using relation::Answer;
using relation::Ask;

struct Environment {
  Rounding rounding;
  bool flush_denormals;
  const char* text;
};
constexpr std::array<Environment, 4> kEnvironments{
    {{Rounding::kDown, false, "rounding down"},
     {Rounding::kUp, true, "rounding up with denormals flushed"},
     {Rounding::kTowardZero, false, "rounding toward zero"},
     {Rounding::kNearest, true, "denormals flushed"}}};

Verdict EnvironmentIsIrrelevant(const Case& c, Subject& subject) {
  const Answer base = Ask(subject, c);
  if (base.verdict) return *base.verdict;
  if (base.y.empty()) return Verdict::Vacuous("the output is empty");
  for (const Environment& environment : kEnvironments) {
    RunContext context;
    context.rounding = environment.rounding;
    context.flush_denormals = environment.flush_denormals;
    const Answer answer = Ask(subject, c, context);
    if (answer.verdict) return *answer.verdict;
    // Rounding is the cause, even if the base answer is right.
    if (auto failed = relation::ChangedIn(
            context, c, base.y, answer.y, subject,
            std::string("the result changes with ") + environment.text, FindingKind::kRounding))
      return *failed;
  }
  return Verdict::Passed();
}

}  // namespace

std::vector<Property> EnvironmentProperties() {
  return {{"environment",
           "Rounding mode and denormal flushing set around the call do not change the result.",
           EveryOp(), true, EnvironmentIsIrrelevant, kInTurn}};
}

}  // namespace qualm
