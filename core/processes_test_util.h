// SPDX-License-Identifier: Apache-2.0
// Processes that a test starts and ends.
#ifndef QUALM_CORE_PROCESSES_TEST_UTIL_H_
#define QUALM_CORE_PROCESSES_TEST_UTIL_H_

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <list>

#include "core/process.h"

namespace qualm {

[[noreturn]] inline void ComputeForEver() {
  for (volatile bool for_ever = true; for_ever;) {
  }
  _exit(1);
}

[[noreturn]] inline void SleepForEver() {
  for (;;) pause();
}

// A copy of this process that runs `work` and is killed in the end.
class Forked {
 public:
  explicit Forked(const std::function<void()>& work) : process_(Process::Fork(work, "/dev/null")) {}
  pid_t pid() const { return process_.id(); }
  // Stopped, it wants no processor.
  void Stop() const {
    kill(pid(), SIGSTOP);
    waitpid(pid(), nullptr, WUNTRACED);
  }

 private:
  Process process_;
};

// Processes that do nothing but take the one processor that this thread and its children have.
class BusyProcessor {
 public:
  explicit BusyProcessor(int processes) {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &one);
    }
    sched_setaffinity(0, sizeof one, &one);
    for (int i = 0; i < processes; ++i) spinners_.emplace_back(ComputeForEver);
  }
  ~BusyProcessor() { sched_setaffinity(0, sizeof before_, &before_); }
  BusyProcessor(const BusyProcessor&) = delete;
  BusyProcessor& operator=(const BusyProcessor&) = delete;

 private:
  cpu_set_t before_;
  std::list<Forked> spinners_;
};

}  // namespace qualm

#endif  // QUALM_CORE_PROCESSES_TEST_UTIL_H_
