// SPDX-License-Identifier: Apache-2.0
#include "campaign/shrink.h"

#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/content_name.h"
#include "core/io/text_file.h"
#include "core/process.h"
#include "fuzz/collector.h"

namespace qualm::campaign {
namespace {

namespace fs = std::filesystem;

std::set<std::string> ContentsOf(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(ContentName(Bytes(entry.path())));
  }
  return names;
}

// The command in the folder. libFuzzer does this work in a child of its own, which nothing ends
// where this campaign is killed: so it may not compute for longer either.
std::vector<std::string> WithCpuLimit(double seconds, const fs::path& folder,
                                      const std::vector<std::string>& command) {
  const auto limit = static_cast<int64_t>(std::ceil(seconds));
  std::vector<std::string> words{
      "/bin/sh", "-c", "cd \"$0\" && ulimit -t " + std::to_string(limit) + " && exec \"$@\"",
      folder.string()};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

// True if the engine ended well in time.
bool Finishes(Process& process, double seconds, const std::function<bool()>& stop) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - start).count() < seconds) {
    if (const std::optional<int> status = process.Ended()) {
      return WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
    }
    if (stop && stop()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  process.Stop();
  return false;
}

}  // namespace

std::optional<Shrunk> ShrinkCorpus(const Engine& engine, const State& state, Op op, double seconds,
                                   const std::function<bool()>& stop) {
  if (engine.shrink == nullptr) return std::nullopt;
  // Under jobs/, which the next campaign clears. The folder has no operation's name, by which it
  // would be taken for inputs that an engine kept.
  const fs::path folder = fs::absolute(state.root() / "jobs" / "shrink");
  const fs::path kept = folder / "needed";
  RemoveFolder(folder.string());
  fs::create_directories(kept);
  for (const char* name : {fuzz::kHeld, fuzz::kInbox, fuzz::kSeen}) {
    fs::create_directories(folder / name);
  }
  // libFuzzer starts itself again through a shell and quotes nothing, so no name that it is told
  // may have a space.
  std::vector<std::string> command =
      engine.ShrinkCommand({op, "corpus", kept.filename().string(), "."});
  fs::create_directory_symlink(fs::absolute(state.Corpus(op)), folder / "corpus");
  fs::create_symlink(fs::absolute(command.front()), folder / "engine");
  command.front() = "./engine";
  // What an input lights depends on its case alone, so our own kernels answer, judged by one claim.
  Process process =
      Process::Start(WithCpuLimit(seconds, folder, command),
                     {{{"QUALM_FUZZ_SUBJECT", "native"},
                       {"QUALM_FUZZ_CONTRACT", ""},
                       {"QUALM_FUZZ_PROPERTIES", std::string(Name(op)) + ".matches_exact"},
                       {"QUALM_FUZZ_STATE", folder.string()},
                       {"QUALM_FUZZ_ARTIFACTS", folder.string()},
                       {"QUALM_FUZZ_WATCH", ""},
                       {"QUALM_FUZZ_CANARY", ""}},
                      (folder / "log").string(),
                      ""});
  std::optional<Shrunk> shrunk;
  if (Finishes(process, seconds, stop)) {
    const std::set<std::string> needed = ContentsOf(kept);
    // An engine that needs nothing has understood nothing.
    if (!needed.empty()) shrunk = state.KeepInputs(op, needed);
  }
  RemoveFolder(folder.string());
  return shrunk;
}

}  // namespace qualm::campaign
