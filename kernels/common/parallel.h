// SPDX-License-Identifier: Apache-2.0
// Blocks of independent work, on the caller's threads if there are any. Internal to kernels/.
#ifndef QUALM_KERNELS_COMMON_PARALLEL_H_
#define QUALM_KERNELS_COMMON_PARALLEL_H_

#include <cstdint>

#include "kernels/types.h"

namespace qualm::kernels::internal {

// The number of tasks that share `blocks` blocks: 0 without blocks, 1 without a pool.
int64_t TaskCount(const ThreadPool* pool, int64_t blocks);

// For a callable of unknown type.
void ForEachBlock(ThreadPool* pool, int64_t tasks, int64_t blocks,
                  void (*run)(const void* context, int64_t task, int64_t block),
                  const void* context);

// Calls run(task, block) once for every block in [0, blocks). Calls at the same time have different
// tasks in [0, tasks), so each task may have its own scratch. Every call runs in a
// ScopedFpEnvironment and on the instruction set of the calling thread, also in the pool's workers.
// run must not throw.
template <class Run>
void ForEachBlock(ThreadPool* pool, int64_t tasks, int64_t blocks, const Run& run) {
  ForEachBlock(
      pool, tasks, blocks,
      [](const void* context, int64_t task, int64_t block) {
        (*static_cast<const Run*>(context))(task, block);
      },
      &run);
}

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_COMMON_PARALLEL_H_
