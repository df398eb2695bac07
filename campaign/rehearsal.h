// SPDX-License-Identifier: Apache-2.0
// Tests whether this configuration finds anything at all: a fault is planted in the answers of this
// very subject (fuzz/canary.h), and this very engine must find it.
#ifndef QUALM_CAMPAIGN_REHEARSAL_H_
#define QUALM_CAMPAIGN_REHEARSAL_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "campaign/engine.h"
#include "campaign/job.h"

namespace qualm::campaign {

struct CanaryResult {
  bool found = false;
  bool stopped = false;  // by `stop`, before a minute was over
  double seconds = 0;
  int64_t executions = 0;
  std::string last_words;  // of an engine that did not find it
};

// Runs the engine in `folder`, which is emptied, until it has found the planted fault, for a minute
// at most.
CanaryResult RunCanary(const Engine& engine, const Aim& aim, const std::string& inputs,
                       const std::filesystem::path& folder, const std::function<bool()>& stop);

}  // namespace qualm::campaign

#endif  // QUALM_CAMPAIGN_REHEARSAL_H_
