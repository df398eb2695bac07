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

// "" or a sentence that says how many bytes of heap each `call` keeps. First calls may keep any
// amount. It is a leak if all later calls keep the same amount (but for the rounding of blocks) and
// more than nothing, and no more if time passes between them: threads that allocate meanwhile keep
// another amount each time, or more in more time. "" if the C library does not count its heap
// (sanitizers).
std::string LeakOf(const std::function<void()>& call);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_TRACES_H_
