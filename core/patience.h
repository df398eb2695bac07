// SPDX-License-Identifier: Apache-2.0
// How long a child may take. On a busy machine a child that works as fast as ever answers late, and
// that is no hang.
#ifndef QUALM_CORE_PATIENCE_H_
#define QUALM_CORE_PATIENCE_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>

namespace qualm {

// Measures the time of a child. It subtracts the time that the threads of the child, the threads of
// the processes that the child has started, and the waiting thread stood in line for a processor.
// Without /proc/PID/schedstat it is the time on the clock. Not thread-safe.
class Patience {
 public:
  // The child has `limit_ms` from now on.
  void Begin(pid_t child, int limit_ms);
  // From now on at most `limit_ms` more.
  void Limit(int limit_ms);
  // Milliseconds to wait for the child until this is asked again; 0: it has had its time.
  int MillisecondsLeft();
  // When MillisecondsLeft said 0: did the child get less than a fifth of the processor time that it
  // wanted? Then it is not certain that it hangs.
  bool machine_was_busy() const { return waited_ > 4 * limit_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;

  void AddTimeInLine();

  pid_t child_ = 0;
  Clock::time_point begun_, looked_;
  Milliseconds limit_{};
  std::chrono::nanoseconds waited_{};  // in line since begun_
  std::map<pid_t, int64_t> before_;    // nanoseconds in line, by thread, at looked_
};

}  // namespace qualm

#endif  // QUALM_CORE_PATIENCE_H_
