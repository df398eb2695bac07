// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/threads.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "adapters/host/arena.h"
#include "adapters/host/in_process.h"

namespace qualm {

void RunOnThreads(int threads, int64_t tasks, void (*fn)(void* arg, int64_t task), void* arg) {
  struct Work {
    void (*fn)(void* arg, int64_t task);
    void* arg;
    int64_t tasks;
    std::atomic<int64_t> next = 0;
  } work{.fn = fn, .arg = arg, .tasks = tasks};
  const auto run = [](void* argument) {
    auto* const it = static_cast<Work*>(argument);
    for (int64_t i = it->next++; i < it->tasks; i = it->next++) it->fn(it->arg, i);
  };
  if (threads <= 1 || tasks <= 1) return run(&work);
  const auto count = static_cast<size_t>(std::min<int64_t>(threads, tasks));
  std::vector<std::string> traps(count);
  {
    std::vector<std::jthread> pool;
    for (std::string& trap : traps) {
      pool.emplace_back([&work, &trap, &run] { trap = CallTrapped(run, &work); });
    }
  }
  for (const std::string& trap : traps) {
    if (!trap.empty()) throw TrapError(trap);
  }
}

}  // namespace qualm
