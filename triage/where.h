// SPDX-License-Identifier: Apache-2.0
// Of what no arithmetic gives, such as a byte written outside of a buffer: at which sizes it shows.
#ifndef QUALM_TRIAGE_WHERE_H_
#define QUALM_TRIAGE_WHERE_H_

#include <functional>
#include <optional>
#include <string>

#include "core/case.h"
#include "core/subject.h"

namespace qualm::triage {

// Whether a case shows it; nullopt where it cannot be asked.
using Shows = std::function<std::optional<bool>(const Case&)>;

// "where N % 4 is not 0": a condition on one size that holds of each case asked in which it shows
// and of no other, and what was asked. nullopt where none does, or several do that no case told
// apart. Cases of the types of `c`, which shows it.
struct WhereShown {
  std::string text, evidence;
  std::function<bool(const Case&)> holds;
};
std::optional<WhereShown> FindWhereItShows(const Case& c, Subject& subject, const Shows& shows);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_WHERE_H_
