// SPDX-License-Identifier: Apache-2.0
// Which failures have one cause: the fewest causes that together explain all failures.
#ifndef QUALM_TRIAGE_COVER_H_
#define QUALM_TRIAGE_COVER_H_

#include <cstddef>
#include <span>
#include <vector>

#include "core/case.h"
#include "core/verdict.h"
#include "triage/causes.h"
#include "triage/triage.h"

namespace qualm::triage {

// The causes of `first`, and of all hypotheses that change the case and act at stages where none
// acts yet: what a subject does that has several faults.
Hypothesis Together(const Case& c, std::span<const Hypothesis> hypotheses, const Convention* model,
                    Hypothesis first = {});

// Those of the causes that change no answer, in no case near `c` and in none of the drawn ones: a
// rule of rounding in max_pool.
Hypothesis IdleOf(const Case& c, Hypothesis causes);

// A failure of one subject and operation.
struct Failure {
  FindingKind kind = FindingKind::kUnknown;
  std::vector<const Cause*> causes;          // as attribution named them; empty where it named none
  std::vector<const Case*> cases;            // with what the subject answered (Case::observed)
  const Convention* model = nullptr;         // what the subject promises, null: to be exact
  bool of_subject = false;                   // Attribution::of_subject
  std::vector<Hypothesis> conventions = {};  // Attribution::conventions
};

// Do the causes give every answer that is not exact, and is there one?
bool Covers(std::span<const Cause* const> causes, std::span<const Case* const> cases,
            const Convention* model = nullptr);

struct Covered {
  // Index of the failure whose causes explain this one: its own index where its own causes do.
  size_t by = 0;
  // The causes of the row, without causes that other rows show alone.
  std::vector<const Cause*> causes;
  // Those of Failure::conventions of the row that give all that the row explains.
  std::vector<Hypothesis> conventions;
  int others = 0;  // how many causes of other rows explain this failure too
};

// One entry for each failure; equal `by` is one row. One or two codes fit many causes, so a failure
// may have been given a wrong cause: a cause that explains every failure of a subject and operation
// is the cause of all, whatever their kinds say. Of conventions that hold as well as each other,
// that is taken which explains the most. A failure that takes the causes of several other failures
// together is no fault of its own: it joins the row of one of these. A failure that no cause
// explains joins the first row of its kind. If only one row has no cause, all failures of unknown
// cause join it, and so they join what was shown of all answers of the subject. The order of
// `failures` matters only where two causes explain equally many: the first is taken.
std::vector<Covered> FewestCauses(std::span<const Failure> failures);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_COVER_H_
