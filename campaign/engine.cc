// SPDX-License-Identifier: Apache-2.0
#include "campaign/engine.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/executable.h"
#include "core/status.h"
#include "fuzz/watch.h"

namespace qualm::campaign {
namespace {

// The length, time and memory that one input may take, and where inputs beyond them go.
std::vector<std::string> LibFuzzerLimits(const std::string& scratch) {
  return {"-max_len=" + std::to_string(fuzz::kWatchedBytes), "-artifact_prefix=" + scratch + "/",
          "-timeout=120", "-rss_limit_mb=4096", "-detect_leaks=0"};
}

std::vector<std::string> LibFuzzerArguments(const Stretch& stretch) {
  const auto seconds = static_cast<int64_t>(std::ceil(stretch.seconds));
  std::vector<std::string> arguments = LibFuzzerLimits(stretch.scratch);
  arguments.insert(arguments.end(),
                   {"-max_total_time=" + std::to_string(std::max<int64_t>(1, seconds)),
                    "-runs=" + std::to_string(stretch.runs > 0 ? stretch.runs : -1),
                    // libFuzzer takes seed 0 for none.
                    "-seed=" + std::to_string(1 + stretch.seed % 0x7FFFFFFF), "-reload=0",
                    "-print_final_stats=0", stretch.kept});
  arguments.insert(arguments.end(), stretch.inputs.begin(), stretch.inputs.end());
  return arguments;
}

std::vector<std::string> LibFuzzerShrinks(const Shrinking& shrinking) {
  std::vector<std::string> arguments = LibFuzzerLimits(shrinking.scratch);
  arguments.insert(arguments.end(),
                   {"-merge=1", "-merge_control_file=" + shrinking.scratch + "/control",
                    shrinking.needed, shrinking.corpus});
  return arguments;
}

std::vector<std::string> StandaloneArguments(const Stretch& stretch) {
  std::vector<std::string> arguments{"--keep",    stretch.kept,
                                     "--seconds", std::to_string(stretch.seconds),
                                     "--seed",    std::to_string(stretch.seed)};
  if (stretch.runs > 0) {
    arguments.insert(arguments.end(), {"--runs", std::to_string(stretch.runs)});
  }
  arguments.insert(arguments.end(), stretch.inputs.begin(), stretch.inputs.end());
  return arguments;
}

// The better engine first.
constexpr std::array<Engine, 2> kEngines{{
    // 72: libFuzzer was told to end.
    {"libfuzzer", "op_fuzz", LibFuzzerArguments,
     [](int status) { return status == 0 || status == 72; }, LibFuzzerShrinks},
    // Keeps no more inputs than there are counters.
    {"standalone", "op_replay", StandaloneArguments, [](int status) { return status == 0; }},
}};

std::string PathOf(const Engine& engine) {
  std::string path = ExecutableFolder() + std::string(engine.program);
  return ::access(path.c_str(), X_OK) == 0 ? path : "";
}

}  // namespace

std::vector<std::string> Engine::Command(const Stretch& stretch) const {
  std::vector<std::string> command{PathOf(*this), "--op=" + std::string(Name(stretch.op))};
  std::ranges::copy(arguments(stretch), std::back_inserter(command));
  return command;
}

std::vector<std::string> Engine::ShrinkCommand(const Shrinking& shrinking) const {
  std::vector<std::string> command{PathOf(*this), "--op=" + std::string(Name(shrinking.op))};
  std::ranges::copy(shrink(shrinking), std::back_inserter(command));
  return command;
}

const Engine& FindEngine(std::string_view name) {
  std::string names;
  for (const Engine& engine : kEngines) {
    names += (names.empty() ? "" : " or ") + std::string(engine.name);
    if (!name.empty() && name != engine.name) continue;
    if (!PathOf(engine).empty()) return engine;
    if (!name.empty()) {
      throw Unavailable("--engine: this build has no " + std::string(engine.program) +
                        ", the program of " + std::string(name));
    }
  }
  if (name.empty()) throw Unavailable("this build has no fuzzing engine (" + names + ")");
  throw InputError("--engine: '" + std::string(name) + "' is no engine, expected " + names);
}

}  // namespace qualm::campaign
