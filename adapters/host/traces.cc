// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/traces.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
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

// The private memory of this process, as RLIMIT_DATA counts it; 0 where nothing counts it.
size_t PrivateBytes() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  for (int field = 0; field < 6; ++field) file >> pages;
  return file ? pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

// What earlier calls have kept until little is left: "" or a sentence.
std::string UsedUp() {
  errno = 0;
  if (!OpenFiles() && errno == EMFILE) return "kept every file that its process may open";
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  const size_t bytes = PrivateBytes();
  if (bytes < limit.rlim_cur / 4 * 3) return "";
  return "kept " + std::to_string(bytes >> 20) + " MiB of the " +
         std::to_string(limit.rlim_cur >> 20) + " that its process may have";
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

Traces::Traces() : control_(ControlWords()) {
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
  return "";
}

std::string LeakOf(const std::function<void()>& call) {
  if (std::string used_up = UsedUp(); !used_up.empty()) return used_up;
  const auto files = [] { return OpenFiles().value_or(0); };
  // Most calls keep nothing. Eight show it: glibc hands out up to seven freed blocks of a size
  // again without counting them (tcache).
  const size_t heap = HeapBytes(), open = files();
  for (int i = 0; i < 8; ++i) call();
  const bool keeps_memory = HeapBytes() != heap, keeps_files = files() != open;
  if (!keeps_memory && !keeps_files) return UsedUp();
  for (int i = 0; i < kCalls; ++i) call();
  const auto kept = [&](const std::function<size_t()>& measure, size_t rest,
                        const std::string& what) -> std::string {
    const auto growth = SteadyGrowth(call, measure, rest, std::chrono::microseconds(0));
    if (!growth) return "";
    // A call keeps as much if time passes between the calls; other threads keep more.
    const auto slow = SteadyGrowth(call, measure, rest, std::chrono::milliseconds(1));
    if (!slow || std::max(*slow, *growth) - std::min(*slow, *growth) > rest * kCalls) return "";
    return "kept " + std::to_string(*growth / kCalls) + " " + what + " for each call";
  };
  std::string left;
  if (keeps_memory) left = kept(HeapBytes, kRest, "bytes of memory");
  if (left.empty() && keeps_files) left = kept(files, 0, "open files");
  return left.empty() ? UsedUp() : left;
}

}  // namespace qualm
