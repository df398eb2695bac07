// SPDX-License-Identifier: Apache-2.0
// The new findings of a run as faults: one bug fails many claims.
#ifndef QUALM_TOOLS_FAULTS_H_
#define QUALM_TOOLS_FAULTS_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/finding.h"
#include "core/io/json_writer.h"
#include "oracles/conventions/convention.h"
#include "properties/engine.h"
#include "tools/known.h"
#include "triage/triage.h"

namespace qualm::tools {

// What triage says of a finding beyond the finding.
struct Diagnosed {
  triage::Hypothesis causes;
  std::string sentence;               // what is wrong, as far as it is known
  Case found;                         // with what the subject answered
  const Convention* model = nullptr;  // what the subject promises, null: to be exact
  std::optional<Case> small;
  std::optional<Divergence> divergence;  // in the smallest case
};

struct FaultOfRun {
  std::vector<size_t> findings;  // indices; the first one shows the fault best
  std::string cause;             // "" where none is named
  Diagnosed best;                // of that first one
  int64_t failures = 0;          // of the claim that fails most often
};

// By fingerprint of the finding.
using Diagnoses = std::map<std::string, Diagnosed>;

// The faults among the new findings, what fails most often first.
std::vector<FaultOfRun> FaultsOf(const std::vector<Finding>& findings, const Diagnoses& diagnoses,
                                 const KnownFindings& known, const CheckResult& result);

// A few lines for people: what is wrong, the smallest case, the claims that fail, what to type
// next.
std::string FaultText(const FaultOfRun& fault, const std::vector<Finding>& findings,
                      const CheckResult& result);

JsonValue FaultsJson(const std::vector<FaultOfRun>& faults, const std::vector<Finding>& findings);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_FAULTS_H_
