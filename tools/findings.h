// SPDX-License-Identifier: Apache-2.0
// What becomes of the findings of a run.
#ifndef QUALM_TOOLS_FINDINGS_H_
#define QUALM_TOOLS_FINDINGS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/finding.h"
#include "properties/property.h"
#include "tools/known.h"
#include "tools/session.h"

namespace qualm::tools {

// What is wrong with the expected output of a case file, if it has one that is not the exact one.
std::optional<Finding> WrongExpected(const Case& c, const std::string& file);

// Does a row of adapters/contracts.cc declare the finding of a subject that promised `promised`? A
// departure from exact is excused as the convention's only where the subject keeps to the
// convention.
bool IsExcused(const Finding& finding, Subject& subject, const Contract& promised);

// The finding that a failed verdict of `subject` becomes, with its cause; expected if it is excused
// under `contract`.
Finding FindingOf(const Case& c, const Property& property, Subject& subject, const Verdict& verdict,
                  const std::string& file, const Contract& contract);

// Says once per subject that it crashed or hung, while the run goes on. Any thread.
void Alarm(const Finding& finding);

// Gives the check loop what it does not have itself: causes of failures, alarms, the end by a
// signal.
void Connect(CheckOptions& options);

// Attributes, deduplicates by fingerprint, minimizes one of each and writes it all below `out`:
// OUT/findings/<fingerprint>/{case.json, minimized.case.json, explanation.txt}. Each finding is on
// disk before work on the next begins. `out` empty: nothing is written or minimized. A folder that
// cannot be written does not lose the finding.
// A known finding is neither minimized nor written: its evidence is elsewhere. Once `stop` says so,
// findings are written as they are.
std::vector<Finding> Triage(std::vector<Finding> raw, const std::string& out,
                            const std::string& contract, const KnownFindings& known,
                            Deferred& deferred, const std::function<bool()>& stop);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_FINDINGS_H_
