// SPDX-License-Identifier: Apache-2.0
// A campaign keeps engines at work on every operation and subject in turn, and makes rows of the
// failures that they hand over, until time, executions or patience end.
#ifndef QUALM_CAMPAIGN_DRIVER_H_
#define QUALM_CAMPAIGN_DRIVER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "campaign/engine.h"
#include "campaign/job.h"
#include "campaign/state.h"

namespace qualm::campaign {

// The sum over all fuzz targets.
struct Progress {
  double seconds = 0;
  int64_t executions = 0;
  double per_second = 0;              // over the last seconds
  std::array<int64_t, 6> verdicts{};  // by Judgement
  int64_t pair = INT32_MAX;           // best distances, as in fuzz/watch.h
  int64_t sum = INT64_MAX;
  double tie = 1.0;
  int64_t corpus = 0;
  int64_t waiting = 0;  // failures that nobody has looked into yet
  int64_t deaths = 0;   // of fuzz targets
  std::vector<FaultRow> rows;
};

struct CampaignOptions {
  std::vector<Aim> aims;
  double seconds = 0;  // 0: no limit
  int64_t runs = 0;    // executions, 0: no limit
  int jobs = 1;
  uint64_t seed = 1;
  int64_t large_corpus = 1000;  // a corpus with this many inputs or more is shrunk first
  // Folder of starting inputs of an operation, "" if there is none.
  std::function<std::string(Op)> inputs;
  std::function<bool()> stop;                   // true ends the campaign
  std::function<void(const Progress&)> tell;    // several times a second
  std::function<void(const std::string&)> say;  // a line about something unusual
};

// Every aim must find a planted fault first; Unavailable names the one that does not.
void RequireCanaries(const Engine& engine, const State& state, const CampaignOptions& options);

// Runs until a limit is reached or `stop` says so. What has not been looked into by then waits in
// the state. Throws Unavailable where an engine cannot be kept running.
Progress RunCampaign(const Engine& engine, State& state, const CampaignOptions& options);

}  // namespace qualm::campaign

#endif  // QUALM_CAMPAIGN_DRIVER_H_
