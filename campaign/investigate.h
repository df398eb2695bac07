// SPDX-License-Identifier: Apache-2.0
// Looks into a failure that a fuzz target handed over: runs it again, classes it, finds its cause,
// gives it a row, and later minimizes it. Every step asks the subject, so all of it runs in a fork
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

// Makes a row of a failure that twice ended the process looking into it, without running it again.
void TakeUnexplained(const State& state, const std::string& name, FindingKind kind,
                     std::string_view how);

// Hands over the death of a fuzz target on an input, in the form that Investigate takes.
void HandOverDeath(const State& state, FaultRow row, const Case& c);

}  // namespace qualm::campaign

#endif  // QUALM_CAMPAIGN_INVESTIGATE_H_
