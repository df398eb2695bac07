// SPDX-License-Identifier: Apache-2.0
// The claim that a case file names, judged again on one subject.
#ifndef QUALM_TOOLS_CLAIM_H_
#define QUALM_TOOLS_CLAIM_H_

#include <optional>
#include <string>

#include "core/case.h"
#include "core/contract.h"
#include "core/finding.h"
#include "core/subject.h"
#include "core/verdict.h"

namespace qualm::tools {

// Throws InputError "FILE: contract: ..." if the case names a convention that does not exist or
// lacks its operation.
void RequireContract(const Case& c, const std::string& file);
// The contract by which a claim of the file is judged: the one that the file names. Of a reproducer
// of this subject that names none, exact, since `minimize` judges by that; of matches_model, the
// one that gives the expected output. The promise of the subject may still excuse a failure.
// `own`: not the file decides but what the subject has, as --contract said.
Contract ContractOfClaim(const Case& c, const Subject& subject, bool own);

struct ClaimAgain {
  Judgement judgement = Judgement::kPassed;
  // If the claim fails, and it is not that the answer is exact: that finding goes with the answer.
  std::optional<Finding> finding;
  // What the answer to the case alone does not show, a few lines; "" if there is nothing to add.
  std::string text;
};
// For a case whose property is set and a subject that can run it. `contract_named`: --contract was
// given, and the subject has that contract already.
ClaimAgain JudgeClaimAgain(const std::string& file, const Case& c, Subject& subject,
                           bool contract_named);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_CLAIM_H_
