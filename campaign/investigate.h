// SPDX-License-Identifier: Apache-2.0
// What becomes of a failure that a fuzz target handed over: it is run again, classed, given its
// cause and a row, and later minimized. All of it asks the subject, so it runs in a fork
// (driver.cc).
#ifndef QUALM_CAMPAIGN_INVESTIGATE_H_
#define QUALM_CAMPAIGN_INVESTIGATE_H_

#include <string>
#include <string_view>

#include "campaign/state.h"
#include "core/io/fault_row.h"

namespace qualm::campaign {

// Runs the failure of inbox/NAME again and moves it to a row of the findings. A failure that is
// declared (core/contract.h) is dropped. `contract`: "" for the subject's own.
void Investigate(const State& state, const std::string& name, const std::string& contract);

// Makes the case of a row smaller, for `seconds` at most. A smaller case may show another cause:
// the row then moves.
void Minimize(const State& state, const std::string& fingerprint, const std::string& contract,
              double seconds);

// A failure that ended the process that looked into it, twice: a row without further questions.
void TakeUnexplained(const State& state, const std::string& name, FindingKind kind,
                     std::string_view how);

// A fuzz target died on an input: hands it over as Investigate takes it.
void HandOverDeath(const State& state, FaultRow row, const Case& c);

}  // namespace qualm::campaign

#endif  // QUALM_CAMPAIGN_INVESTIGATE_H_
