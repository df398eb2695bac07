// SPDX-License-Identifier: Apache-2.0
// Hands blocks of work to the caller's threads. Threads, blocks and their order change no bit: no
// two blocks share a sum, and each runs in the caller's instruction set and a ScopedFpEnvironment.
#include "kernels/common/parallel.h"

#include <algorithm>
#include <atomic>

#include "kernels/common/dispatch.h"
#include "kernels/common/fp_environment.h"
#include "kernels/targets.h"

namespace qualm::kernels::internal {
namespace {

// Scratch grows with the number of tasks; no machine needs more.
constexpr int64_t kMostTasks = 1024;

struct Job {
  int64_t blocks;
  void (*run)(const void* context, int64_t task, int64_t block);
  const void* context;
  int64_t target;                // TargetId()
  std::atomic<int64_t> next{0};  // block that nobody has taken yet
};

// Takes blocks until none is left: a slow thread holds up the others by one block at most.
void RunTask(void* argument, int64_t task) {
  Job& job = *static_cast<Job*>(argument);
  const ScopedTarget target(SupportedTargets()[static_cast<size_t>(job.target)]);
  const ScopedFpEnvironment fp_environment;
  for (;;) {
    const int64_t block = job.next.fetch_add(1, std::memory_order_relaxed);
    if (block >= job.blocks) return;
    job.run(job.context, task, block);
  }
}

}  // namespace

int64_t TaskCount(const ThreadPool* pool, int64_t blocks) {
  if (pool == nullptr) return std::min<int64_t>(blocks, 1);
  return std::min(blocks, std::clamp<int64_t>(pool->Threads(), 1, kMostTasks));
}

void ForEachBlock(ThreadPool* pool, int64_t tasks, int64_t blocks,
                  void (*run)(const void* context, int64_t task, int64_t block),
                  const void* context) {
  Job job{blocks, run, context, TargetId()};
  if (tasks == 1) {  // also with a pool: waking a thread costs more than it gains
    const ScopedFpEnvironment fp_environment;
    for (int64_t block = 0; block < blocks; ++block) run(context, 0, block);
  } else if (tasks > 1) {
    pool->Run(tasks, RunTask, &job);
  }
}

}  // namespace qualm::kernels::internal
