// SPDX-License-Identifier: Apache-2.0
// Threads for kernels that spread their work over those of the caller.
#ifndef QUALM_ADAPTERS_HOST_THREADS_H_
#define QUALM_ADAPTERS_HOST_THREADS_H_

#include <cstdint>

namespace qualm {

// Calls fn(arg, i) for every i in [0, tasks) on up to `threads` threads, none of them the caller's
// where there are several, and returns when all have ended. New threads each time: a kernel gets no
// help from whatever ran before. A signal inside a task is trapped on its thread (CallTrapped) and
// thrown here as a TrapError once the others are done.
void RunOnThreads(int threads, int64_t tasks, void (*fn)(void* arg, int64_t task), void* arg);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_THREADS_H_
