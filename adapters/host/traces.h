// SPDX-License-Identifier: Apache-2.0
// The changes that a call leaves behind on the thread and in the process that called it.
#ifndef QUALM_ADAPTERS_HOST_TRACES_H_
#define QUALM_ADAPTERS_HOST_TRACES_H_

#include <signal.h>

#include <cstdint>
#include <functional>
#include <string>

namespace qualm {

// The state of this thread that belongs to the caller.
class Traces {
 public:
  // Unblocks some signals that nobody sends: a call that blocks signals may have been made before.
  Traces();
  // Puts the signal mask back.
  ~Traces();
  Traces(const Traces&) = delete;
  Traces& operator=(const Traces&) = delete;

  // "" or the state that has changed since.
  std::string Left() const;

 private:
  uint64_t control_;
  sigset_t saved_, mask_;
};

// "" or a sentence that says how many bytes of heap, or open files, each `call` keeps, or that
// earlier calls have left little of what the process may have (RLIMIT_DATA, RLIMIT_NOFILE). First
// calls may keep any amount. A call leaks if each later call keeps the same number above 0 (but for
// the rounding of blocks), also with a pause between calls: what other threads allocate varies, or
// grows with the pause. Nothing is said of the heap if the C library does not count it
// (sanitizers).
std::string LeakOf(const std::function<void()>& call);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_TRACES_H_
