// SPDX-License-Identifier: Apache-2.0
// Threads for kernels that let their caller spread the work.
#ifndef QUALM_ADAPTERS_HOST_THREADS_H_
#define QUALM_ADAPTERS_HOST_THREADS_H_

#include <cstdint>

namespace qualm {

// Calls fn(arg, i) for every i in [0, tasks) on up to `threads` threads, and returns when all have
// ended. Several threads are all new, so a kernel finds nothing that an earlier call left in
// thread-local memory. A signal inside a task is trapped on its thread (CallTrapped) and thrown
// here as a TrapError once all threads have ended. One thread or one task: the caller runs all, and
// its own CallTrapped sees the signal.
void RunOnThreads(int threads, int64_t tasks, void (*fn)(void* arg, int64_t task), void* arg);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_THREADS_H_
