// SPDX-License-Identifier: Apache-2.0
// One engine at work for a campaign.
#ifndef QUALM_CAMPAIGN_JOB_H_
#define QUALM_CAMPAIGN_JOB_H_

#include <filesystem>
#include <optional>
#include <string>

#include "campaign/engine.h"
#include "core/case.h"
#include "core/process.h"
#include "fuzz/watch.h"

namespace qualm::campaign {

// The operation, subject and properties that a fuzz target judges.
struct Aim {
  Op op = Op::kLinear;
  std::string subject;  // as given: "native@all" is one aim
  std::string contract;
  std::string properties = "*";
};

// The line before an engine or a sanitizer says why the process ended, and what follows it; where
// neither says so, the end of the log. At most 400 bytes.
std::string LastWords(const std::string& log);

class Job {
 public:
  // Starts the engine. `folder` is the job's own and empty; `state` gets the failures, or with
  // `canary` those of a planted fault. The stretch lacks `kept` and `scratch`, which lie in
  // `folder`.
  Job(const Engine& engine, const Aim& aim, Stretch stretch, const std::filesystem::path& folder,
      const std::filesystem::path& state, bool canary);

  const Aim& aim() const { return aim_; }
  const fuzz::WatchPage& page() const { return watch_.page(); }
  std::filesystem::path kept() const { return folder_ / std::string(Name(aim_.op)); }
  std::optional<int> Ended() { return process_.Ended(); }
  void Stop() { process_.Stop(); }
  // The last lines that the engine printed.
  std::string LastWords() const { return campaign::LastWords((folder_ / "log").string()); }
  // The case that the fuzz target runs now, or ran last.
  Case LastCase() const;

 private:
  Aim aim_;
  std::filesystem::path folder_;
  fuzz::MappedWatch watch_;
  Process process_;
};

}  // namespace qualm::campaign

#endif  // QUALM_CAMPAIGN_JOB_H_
