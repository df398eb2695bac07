// SPDX-License-Identifier: Apache-2.0
#include "tools/stop.h"

#include <signal.h>

#include <atomic>

#include "tools/command.h"

namespace qualm::tools {
namespace {

std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);  // what a signal handler may touch

void OnSignal(int number) { received = number; }

}  // namespace

void StopOnSignals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    if (sigaction(number, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESETHAND | SA_RESTART;
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
