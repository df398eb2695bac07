// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/traces.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <clocale>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "adapters/host/arena.h"

namespace qualm {
namespace {

size_t HeapBytes() {
#if defined(__GLIBC__)
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#else
  return 0;
#endif
}

// Open files of this process; nullopt if none is left to count them with, or nothing counts them.
std::optional<size_t> OpenFiles() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return std::nullopt;
  size_t count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

size_t CountOfOpenFiles() { return OpenFiles().value_or(0); }

// The private memory of this process, as RLIMIT_DATA counts it; 0 where nothing counts it.
size_t PrivateBytes() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  for (int field = 0; field < 6; ++field) file >> pages;
  return file ? pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

// Calls `see` with the folder of each thread of this process.
void ForEachThread(const std::function<void(const std::filesystem::path& task)>& see) {
  std::error_code error;
  for (std::filesystem::directory_iterator task("/proc/self/task", error), end; task != end;
       task.increment(error)) {  // an error ends it too
    see(task->path());
  }
}

size_t Threads() {
  size_t count = 0;
  ForEachThread([&](const std::filesystem::path& /*task*/) { ++count; });
  return count;
}

// The processes that this one has started, and that nobody has waited for.
size_t Processes() {
  size_t count = 0;
  ForEachThread([&](const std::filesystem::path& task) {
    std::ifstream children(task / "children");
    for (pid_t child = 0; children >> child;) ++count;
  });
  return count;
}

// Read, because umask() would change it for a moment.
std::string MaskOfNewFiles() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Umask:")) return line;
  }
  return "";
}

constexpr int kCalls = 4;  // of a round
// A block is larger than another of the same request where the rest of a hole is too small to be a
// block of its own.
constexpr size_t kRest = 16;

// By how much `measure` grows in each of six rounds of calls, with a pause in each; nullopt if it
// is another number each time, or none.
std::optional<size_t> SteadyGrowth(const std::function<void()>& call,
                                   const std::function<size_t()>& measure, size_t rest,
                                   std::chrono::microseconds pause) {
  size_t least = SIZE_MAX, most = 0;
  for (int round = 0; round < 6; ++round) {
    const size_t before = measure();
    for (int i = 0; i < kCalls; ++i) call();
    std::this_thread::sleep_for(pause);  // not at all where it is 0
    const size_t growth = measure() - before;
    least = std::min(least, growth);
    most = std::max(most, growth);
    if (growth == 0 || growth > SIZE_MAX / 2 || most - least > rest * kCalls) return std::nullopt;
  }
  return least;
}

}  // namespace

ProcessState::ProcessState() : mask_(MaskOfNewFiles()) {
  struct stat folder{};
  if (stat(".", &folder) == 0) {
    device_ = folder.st_dev;
    folder_ = folder.st_ino;
  }
  if (const char* const locale = std::setlocale(LC_ALL, nullptr)) locale_ = locale;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action{};
    if (sigaction(number, nullptr, &action) == 0)
      handlers_[static_cast<size_t>(number)] = action.sa_handler;
  }
}

std::string ProcessState::ChangedIn(const ProcessState& now) const {
  if (now.device_ != device_ || now.folder_ != folder_) return "left another working directory";
  if (now.mask_ != mask_) return "left another mask of new files (umask)";
  if (now.locale_ != locale_) return "left another locale";
  for (size_t number = 1; number < handlers_.size(); ++number) {
    if (now.handlers_[number] != handlers_[number])
      return "left another handler of signal " + std::to_string(number);
  }
  return "";
}

Traces::Traces(const ProcessState* before) : before_(before), control_(ControlWords()) {
  sigset_t probes;
  sigemptyset(&probes);
  for (const int number : {SIGUSR1, SIGUSR2, SIGURG, SIGWINCH}) sigaddset(&probes, number);
  pthread_sigmask(SIG_UNBLOCK, &probes, &saved_);
  pthread_sigmask(SIG_BLOCK, nullptr, &mask_);
}

Traces::~Traces() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }

std::string Traces::Left() const {
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, nullptr, &now);
  if (ControlWords() != control_) return "left another floating-point control word";
  for (int number = 1; number < NSIG; ++number) {
    if (sigismember(&now, number) != sigismember(&mask_, number))
      return "left another signal mask: signal " + std::to_string(number);
  }
  return before_ == nullptr ? "" : before_->ChangedIn(ProcessState());
}

std::string UsedUp() {
  errno = 0;
  if (!OpenFiles() && errno == EMFILE) return "kept every file that its process may open";
  // A pool has a thread for each processor, and a library a few pools.
  const size_t most = 256 + size_t{4} * std::thread::hardware_concurrency();
  if (const size_t threads = Threads(); threads > most)
    return "kept " + std::to_string(threads) + " threads";
  if (const size_t processes = Processes(); processes > most)
    return "kept " + std::to_string(processes) + " processes";
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  const size_t bytes = PrivateBytes();
  if (bytes < limit.rlim_cur / 4 * 3) return "";
  return "kept " + std::to_string(bytes >> 20) + " MiB of the " +
         std::to_string(limit.rlim_cur >> 20) + " that its process may have";
}

std::string LeakOf(const std::function<void()>& call) {
  if (std::string used_up = UsedUp(); !used_up.empty()) return used_up;
  struct Kind {
    const char* what;
    size_t rest;  // that a count may vary by
    size_t (*count)();
  };
  // In this order: a thread keeps memory too, and is the one to name.
  static constexpr std::array<Kind, 4> kKinds{{{"threads", 0, Threads},
                                               {"processes", 0, Processes},
                                               {"bytes of memory", kRest, HeapBytes},
                                               {"open files", 0, CountOfOpenFiles}}};
  // Most calls keep nothing. Eight show it: glibc hands out up to seven freed blocks of a size
  // again without counting them (tcache).
  std::array<size_t, kKinds.size()> before{};
  for (size_t i = 0; i < kKinds.size(); ++i) before[i] = kKinds[i].count();
  for (int i = 0; i < 8; ++i) call();
  std::array<bool, kKinds.size()> grows{};
  for (size_t i = 0; i < kKinds.size(); ++i) grows[i] = kKinds[i].count() != before[i];
  if (std::ranges::find(grows, true) == grows.end()) return UsedUp();
  for (int i = 0; i < kCalls; ++i) call();
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (!grows[i]) continue;
    const auto& [what, rest, count] = kKinds[i];
    const auto growth = SteadyGrowth(call, count, rest, std::chrono::microseconds(0));
    if (!growth) continue;
    // A call keeps as much if time passes between the calls; other threads keep more.
    const auto slow = SteadyGrowth(call, count, rest, std::chrono::milliseconds(1));
    if (!slow || std::max(*slow, *growth) - std::min(*slow, *growth) > rest * kCalls) continue;
    return "kept " + std::to_string(*growth / kCalls) + " " + what + " for each call";
  }
  return UsedUp();
}

}  // namespace qualm
