// SPDX-License-Identifier: Apache-2.0
// Discriminating experiments. Causes that all explain one answer of a subject differ on other
// cases: the subject is asked some of those, and what it answers rules causes out.
//
// How much it takes to be named (ShownAgain, Holds and others of attribution.cc):
//   further answers that depart as it says: a convention and a cause that acts in some rows or
//     columns 6, two causes 4, one cause 2; of some rows or columns, of two conditions joined, and
//     of a rule of rounding from some size on, two of them to drawn cases
//   right answers where it predicts a departure: none; of a single cause of no family that is worth
//     70 bits: of sums in 16 bits half, of another one that has no condition left, and beside which
//     nothing departs otherwise, four of five
//   a convention under a condition is told where no rule is
//   a cause with a condition comes before what is read elsewhere from 24 answers on (kManyMore)
//   a rule of rounding or a convention that gives most answers is told from 9 of 10 on (kNearly)
#ifndef QUALM_TRIAGE_EXAMINE_H_
#define QUALM_TRIAGE_EXAMINE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/subject.h"
#include "triage/triage.h"

namespace qualm::triage {

struct ExamineLimits {
  int64_t most_calls = 120;              // of the subject
  int64_t most_drawn = 48;               // and of what is to be said of its rounding
  int64_t most_work = int64_t{1} << 25;  // products computed and outputs compared
};

struct Examination {
  struct Weighed {
    Hypothesis causes = {};
    Condition where = {};
    // By how much it shortens the description of all answers (triage/code_length.h), less what it
    // takes to choose the causes and the condition.
    double bits = 0;
    int64_t bearing_out = 0;  // further answers that depart as predicted
    int64_t drawn = 0;        // of these, answers to cases drawn without regard to the one found
    int64_t inside = 0;     // and answers that so depart in more than codes at an end of their type
    int64_t against = 0;    // further answers that are right where it predicts a departure
    int64_t otherwise = 0;  // further answers that depart in another way as well
    // It takes a condition that nobody has a word for: those that had one have been contradicted.
    bool unworded = false;
    // Of a convention or a rule of rounding: answers to drawn cases that depart where it says that
    // they are right, in a way that it would have to say.
    int64_t stray = 0;
    // Of all further answers that tell something of it those that it gives, and the first one that
    // it does not give.
    int64_t telling = 0, given = 0;
    std::string exception = {};
  };
  std::vector<Weighed> weighed;  // every hypothesis, the one worth most first
  int64_t asked = 0;
};
// Sorts so; of equals the one whose name comes first.
void MostWorthFirst(std::vector<Examination::Weighed>& all);

// Each of `hypotheses` explains what the subject answered to `c` in `context`. Asks about cases
// near `c` and about drawn cases, most of them cases where two hypotheses differ, and weighs each
// hypothesis by all answers. Conventions and rules of rounding are held to drawn cases of any kind
// too. `established`: causes of other faults of the subject. An answer that
// they explain, alone or together with a hypothesis, does not contradict that hypothesis.
Examination Examine(const Case& c, const Tensor& actual, const RunContext& context,
                    const std::vector<Hypothesis>& hypotheses, Subject& subject,
                    std::span<const Hypothesis> established = {}, const ExamineLimits& limits = {});

// A case near `c` that tells explanations apart, and what they say of one of its outputs: they give
// `given`, in the order of the explanations. nullopt: none was found among those that were tried.
struct TellingCase {
  Case c;
  int64_t index = 0;
  std::vector<std::string> given;
};
std::optional<TellingCase> FindTellingCase(const Case& c, std::span<const Hypothesis> explanations);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_EXAMINE_H_
