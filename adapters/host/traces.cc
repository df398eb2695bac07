// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/traces.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
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

constexpr int kCalls = 4;  // of a round
// A block is larger than another of the same request where the rest of a hole is too small to be a
// block of its own.
constexpr size_t kRest = 16;

// The bytes by which the heap grows in each of six rounds of calls, with a pause in each; nullopt
// if it is another number each time, or none.
std::optional<size_t> SteadyGrowth(const std::function<void()>& call,
                                   std::chrono::microseconds pause) {
  size_t least = SIZE_MAX, most = 0;
  for (int round = 0; round < 6; ++round) {
    const size_t before = HeapBytes();
    for (int i = 0; i < kCalls; ++i) call();
    std::this_thread::sleep_for(pause);  // not at all where it is 0
    const size_t growth = HeapBytes() - before;
    least = std::min(least, growth);
    most = std::max(most, growth);
    if (growth == 0 || growth > SIZE_MAX / 2 || most - least > kRest * kCalls) return std::nullopt;
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
  // Most calls keep nothing. Eight show it: glibc hands out up to seven freed blocks of a size
  // again without counting them (tcache).
  const size_t heap = HeapBytes();
  for (int i = 0; i < 8; ++i) call();
  if (HeapBytes() == heap) return "";
  for (int i = 0; i < kCalls; ++i) call();
  const std::optional<size_t> growth = SteadyGrowth(call, std::chrono::microseconds(0));
  if (!growth) return "";
  // A call keeps as much if time passes between the calls; other threads keep more.
  const std::optional<size_t> slow = SteadyGrowth(call, std::chrono::milliseconds(1));
  if (!slow || std::max(*slow, *growth) - std::min(*slow, *growth) > kRest * kCalls) return "";
  return "kept " + std::to_string(*growth / kCalls) + " bytes of memory for each call";
}

}  // namespace qualm
