// SPDX-License-Identifier: Apache-2.0
// The new findings of a run as faults: one bug fails many claims.
#ifndef QUALM_TOOLS_FAULTS_H_
#define QUALM_TOOLS_FAULTS_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/finding.h"
#include "core/io/json_writer.h"
#include "oracles/conventions/convention.h"
#include "properties/engine.h"
#include "tools/known.h"
#include "triage/triage.h"

namespace qualm::tools {

// The result of triage for one finding: causes, sentence, smallest case.
struct Diagnosed {
  triage::Hypothesis causes;
  std::string sentence;               // what is wrong, as far as it is known
  Case found;                         // with the subject's answer
  std::string by;                     // the subject
  const Convention* model = nullptr;  // the subject's promised convention, null: exact
  std::optional<Case> small;
  std::optional<Divergence> divergence;              // in the smallest case
  bool cut_short = false;                            // the time was up before the search ended
  bool of_subject = false;                           // triage::Attribution::of_subject
  triage::Condition where;                           // under which the causes act
  std::vector<triage::Hypothesis> conventions = {};  // triage::Attribution::conventions
};

// Whether the causes that were told give all of a failure of the same subject and operation, and do
// so outside of the condition that was told with them.
bool Refutes(const Diagnosed& failure, const Diagnosed& told);

struct FaultOfRun {
  std::vector<size_t> findings;  // indices; the first one shows the fault best
  std::string cause;             // "" where none is named
  Diagnosed best;                // of that first one
  int64_t failures = 0;          // of the claim that fails most often
  // Findings about what the caller does (rounding mode, denormals, threads), which the cause does
  // not explain: their indices, and what they say.
  std::vector<std::pair<size_t, std::string>> also;
};

// By fingerprint of the finding.
using Diagnoses = std::map<std::string, Diagnosed>;

// The faults among the new findings, those with the most failures first.
std::vector<FaultOfRun> FaultsOf(const std::vector<Finding>& findings, const Diagnoses& diagnoses,
                                 const KnownFindings& known, const CheckResult& result);

// Whether a library says of its version that the conventions were made for others, as
// library_child.py does: "PyTorch 2.15.0 (judged by what was made for 2.11 to 2.13)".
bool IsOfAnotherVersion(std::string_view version);

// A few lines for people: what is wrong, the smallest case, the claims that fail, and the next
// command to type.
std::string FaultText(const FaultOfRun& fault, const std::vector<Finding>& findings,
                      const CheckResult& result);

JsonValue FaultsJson(const std::vector<FaultOfRun>& faults, const std::vector<Finding>& findings);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_FAULTS_H_
