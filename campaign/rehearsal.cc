// SPDX-License-Identifier: Apache-2.0
#include "campaign/rehearsal.h"

#include <chrono>
#include <thread>
#include <vector>

#include "core/io/text_file.h"
#include "fuzz/collector.h"

namespace qualm::campaign {

CanaryResult RunCanary(const Engine& engine, const Aim& aim, const std::string& inputs,
                       const std::filesystem::path& folder, const std::function<bool()>& stop) {
  namespace fs = std::filesystem;
  using Clock = std::chrono::steady_clock;
  constexpr double kSeconds = 60;
  RemoveFolder(folder.string());
  for (const char* name : {fuzz::kHeld, fuzz::kInbox, fuzz::kSeen, "job"}) {
    fs::create_directories(folder / name);
  }
  Aim planted = aim;
  planted.properties = std::string(1, '*');  // which claim sees it does not matter
  Stretch stretch;
  stretch.seconds = kSeconds;
  if (!inputs.empty()) stretch.inputs = {inputs};
  Job job(engine, planted, stretch, folder / "job", folder, true);
  CanaryResult result;
  const Clock::time_point start = Clock::now();
  bool ended = false;
  while (!result.found && !ended && !result.stopped && result.seconds < kSeconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ended = job.Ended().has_value();
    result.stopped = stop && stop();
    result.found = !fs::is_empty(folder / fuzz::kInbox);
    result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  result.executions = job.page().executions;
  if (!result.found) result.last_words = job.LastWords();
  job.Stop();
  RemoveFolder(folder.string());
  return result;
}

}  // namespace qualm::campaign
