// SPDX-License-Identifier: Apache-2.0
#include "tools/stop.h"

#include <signal.h>
#include <time.h>

#include <atomic>
#include <cstdint>

#include "tools/command.h"

namespace qualm::tools {
namespace {

std::atomic<int> received{0};
std::atomic<int64_t> first_ms{-1};
// A signal handler may touch only lock-free atomics.
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

// timeout(1) and terminals signal the process and its group: two signals that count as one.
constexpr int64_t kSameMs = 1000;

void OnSignal(int number) {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t ms = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
  int64_t first = -1;
  if (first_ms.compare_exchange_strong(first, ms)) {
    received = number;
  } else if (ms - first >= kSameMs) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

}  // namespace

void StopOnSignals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    if (sigaction(number, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, nullptr);
  }
}

bool Stopped() { return received != 0; }

int StatusOfStopped(int status) {
  const int number = received;
  if (number == 0) return status;
  Tell("stopped by signal {}: this is what was found until then", number);
  return status == kFindings ? kFindings : 128 + number;
}

}  // namespace qualm::tools
