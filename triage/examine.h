// SPDX-License-Identifier: Apache-2.0
// Discriminating experiments. Causes that all explain one answer of a subject differ on other
// cases: the subject is asked some of those, and what it answers rules causes out.
#ifndef QUALM_TRIAGE_EXAMINE_H_
#define QUALM_TRIAGE_EXAMINE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/subject.h"
#include "triage/triage.h"

namespace qualm::triage {

struct ExamineLimits {
  int64_t most_calls = 80;               // of the subject
  int64_t most_work = int64_t{1} << 25;  // products computed and outputs compared
};

struct Examination {
  struct BorneOut {
    Hypothesis causes;
    std::string where;  // "where K is 33 or more", "" for everywhere
    int64_t rank = 0;   // equal: the answers do not tell them apart
  };
  // Borne out by at least three further answers (six where they tell of a place, of which there are
  // many) and contradicted by none, the best first.
  std::vector<BorneOut> borne_out;
  // Contradicted by no answer, but borne out by too few.
  std::vector<Hypothesis> open;
  std::vector<Hypothesis> contradicted;
  int64_t asked = 0;
};

// Each of `hypotheses` explains what the subject answered to `c` in `context`. Asks about cases
// near `c` and about drawn cases, most of them cases where two hypotheses differ. An exact answer
// contradicts a hypothesis that predicts a departure, unless all such cases differ in size or type
// from those that bear the hypothesis out: then it holds for that type, from a size on, or for
// sizes of one remainder. `established`: causes of other faults of the subject. An answer that they
// explain, alone or together with a hypothesis, does not contradict that hypothesis.
Examination Examine(const Case& c, const RunContext& context,
                    const std::vector<Hypothesis>& hypotheses, Subject& subject,
                    std::span<const Hypothesis> established = {}, const ExamineLimits& limits = {});

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_EXAMINE_H_
