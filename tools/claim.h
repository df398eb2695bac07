// SPDX-License-Identifier: Apache-2.0
// The claim that a case file names, judged again on one subject.
#ifndef QUALM_TOOLS_CLAIM_H_
#define QUALM_TOOLS_CLAIM_H_

#include <optional>
#include <string>

#include "core/case.h"
#include "core/finding.h"
#include "core/subject.h"
#include "core/verdict.h"

namespace qualm::tools {

// The contract by which a claim of the file is judged. `minimize` judges a subject by the exact
// result, so its reproducers are judged by it again; the promise of the subject may still excuse
// them. `named`: --contract was given, and the subject has that contract already.
Contract ContractOfClaim(const Case& c, const Subject& subject, bool named);

struct ClaimAgain {
  Judgement judgement = Judgement::kPassed;
  // If the claim fails, and it is not that the answer is exact: that finding goes with the answer.
  std::optional<Finding> finding;
  // What the answer to the case alone does not show, a few lines; "" if there is nothing to add.
  std::string text;
};
// For a case whose property is set and a subject that can run it.
ClaimAgain JudgeClaimAgain(const std::string& file, const Case& c, Subject& subject,
                           bool contract_named);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_CLAIM_H_
