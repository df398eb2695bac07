// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/threads.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>

#include "adapters/host/arena.h"
#include "adapters/host/in_process.h"

namespace qualm {
namespace {

TEST(Threads, EveryTaskRunsOnceAndOnAnotherThread) {
  for (const int threads : {1, 2, 5}) {
    struct Seen {
      std::array<std::atomic<int>, 20> times{};
      std::atomic<int> here = 0;
      std::thread::id caller = std::this_thread::get_id();
    } seen;
    RunOnThreads(
        threads, 20,
        [](void* arg, int64_t task) {
          auto* const it = static_cast<Seen*>(arg);
          ++it->times[static_cast<size_t>(task)];
          if (std::this_thread::get_id() == it->caller) ++it->here;
        },
        &seen);
    for (const std::atomic<int>& times : seen.times) EXPECT_EQ(times, 1);
    EXPECT_EQ(seen.here, threads == 1 ? 20 : 0);
  }
  // One task needs no other thread.
  std::thread::id ran_on;
  RunOnThreads(
      5, 1,
      [](void* arg, int64_t) { *static_cast<std::thread::id*>(arg) = std::this_thread::get_id(); },
      &ran_on);
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(Threads, ASignalInOneIsThrownWhenAllHaveEnded) {
  GuardedBuffer buffer;
  struct Work {
    uint8_t* data;
    std::atomic<int> ran = 0;
  } work{buffer.Prepare(1, 0, 1, RunContext{})};
  std::string trap;
  try {
    RunOnThreads(
        3, 9,
        [](void* arg, int64_t task) {
          auto* const it = static_cast<Work*>(arg);
          if (task == 4) *static_cast<volatile uint8_t*>(it->data + 1) = 1;
          ++it->ran;
        },
        &work);
  } catch (const TrapError& error) {
    trap = error.what();
  }
  EXPECT_EQ(trap, kGuardPageTrap);
  EXPECT_EQ(work.ran, 8);
}

}  // namespace
}  // namespace qualm
