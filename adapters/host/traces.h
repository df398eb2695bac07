// SPDX-License-Identifier: Apache-2.0
// What a call leaves behind on the thread and in the process that called it.
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

  // "" or what has changed since.
  std::string Left() const;

 private:
  uint64_t control_;
  sigset_t saved_, mask_;
};

// "" or how many bytes each `call` keeps. A first call may keep what it likes; a leak is what later
// ones keep, the same but for the rounding of blocks, and more than nothing. Other threads that
// allocate meanwhile do not look like that. "" where the C library does not count its heap (under
// sanitizers).
std::string LeakOf(const std::function<void()>& call);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_TRACES_H_
