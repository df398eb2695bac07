// SPDX-License-Identifier: Apache-2.0
// Collects failures in a campaign: writes each new one down, and the fuzz target goes on.
#ifndef QUALM_FUZZ_COLLECTOR_H_
#define QUALM_FUZZ_COLLECTOR_H_

#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/case.h"
#include "core/verdict.h"
#include "fuzz/recent_runs.h"
#include "properties/property.h"

namespace qualm::fuzz {

// The folders of a campaign's state that fuzz targets write:
//   - held/ID: a failure whose fuzz target is still looking at it.
//   - inbox/ID: a failure for the campaign: case.json, fault.json, and before.cases, which has a
//     line for each of the last runs of the subject (RecentRuns).
//   - seen/KEY: an empty file: a failure of this claim and cause was handed over.
inline constexpr const char* kHeld = "held";
inline constexpr const char* kInbox = "inbox";
inline constexpr const char* kSeen = "seen";

// Moves the failure held/NAME to the inbox, or deletes it where the inbox has the same.
void HandOver(const std::filesystem::path& state, const std::string& name);
// The process that holds the failure of this name in held/; 0 where the name tells none.
int HolderOf(std::string_view name);

class Collector {
 public:
  explicit Collector(std::filesystem::path state);

  // Writes and syncs the failure before anything else is done with it, then looks for its cause. A
  // failure that is declared, or whose claim and cause were handed over three times, is deleted
  // again. Looking takes a quarter of the time at most, shared by the claims that fail: a subject
  // that fails on every case is still fuzzed, and one claim does not hide another.
  void Take(const Case& c, const Property& property, RecentRuns& subject, const Verdict& verdict);

 private:
  using Clock = std::chrono::steady_clock;
  void Look(const Case& c, const Property& property, RecentRuns& subject, const Verdict& verdict);
  // The first free of the few places of this claim and cause; "" if there is none.
  std::string PlaceOf(const std::string& claim_and_cause);

  std::filesystem::path state_;
  std::set<std::string> full_;  // claims and causes without a free place
  Clock::time_point start_ = Clock::now();
  std::map<std::pair<std::string, std::string>, Clock::duration> looked_;  // by subject and claim
};

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_COLLECTOR_H_
