// SPDX-License-Identifier: Apache-2.0
// One row for each fault: joins the failures that have one cause.
#ifndef QUALM_CAMPAIGN_ROWS_H_
#define QUALM_CAMPAIGN_ROWS_H_

#include <optional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/io/fault_row.h"

namespace qualm::campaign {

// A fault with its evidence.
struct Fault {
  FaultRow row;
  Case found;  // carries the claim and what the subject answered
  std::optional<Case> minimized;
  std::string explanation;  // explanation.txt from its second line on
  std::string before;       // lines of cases, see fuzz/collector.h

  const Case& smallest() const { return minimized ? *minimized : found; }
  std::string Text() const;  // explanation.txt
  friend bool operator==(const Fault&, const Fault&) = default;
};

// Joins the failures that are one fault (triage::FewestCauses): all properties, the earliest date,
// the smallest case and its explanation. The order of `faults` does not matter; the result is
// sorted by fingerprint.
std::vector<Fault> OnePerFault(std::vector<Fault> faults);

}  // namespace qualm::campaign

#endif  // QUALM_CAMPAIGN_ROWS_H_
