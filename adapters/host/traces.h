// SPDX-License-Identifier: Apache-2.0
// The changes that a call leaves behind on the thread and in the process that called it.
#ifndef QUALM_ADAPTERS_HOST_TRACES_H_
#define QUALM_ADAPTERS_HOST_TRACES_H_

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace qualm {

// What belongs to the whole process: a program whose kernel changes it finds its files no more, or
// prints other numbers.
class ProcessState {
 public:
  // As it is now.
  ProcessState();
  // "" or what is another one in `now`.
  std::string ChangedIn(const ProcessState& now) const;

 private:
  dev_t device_ = 0;
  ino_t folder_ = 0;
  std::string mask_;  // of new files
  std::string locale_;
  std::array<void (*)(int), NSIG> handlers_{};
};

// The state of this thread that belongs to the caller.
class Traces {
 public:
  // Unblocks some signals that nobody sends: a call that blocks signals may have been made before.
  // `before`, where it is given, is the state of the process before any call. Where other threads
  // work it is not given: they may change that state.
  explicit Traces(const ProcessState* before = nullptr);
  // Puts the signal mask back.
  ~Traces();
  Traces(const Traces&) = delete;
  Traces& operator=(const Traces&) = delete;

  // "" or the state that has changed since.
  std::string Left() const;

 private:
  const ProcessState* before_;
  uint64_t control_;
  sigset_t saved_, mask_;
};

// "" or a sentence that says how many bytes of heap, open files, threads or processes each `call`
// keeps, or what UsedUp says. First calls may keep any amount. A call leaks if each later call
// keeps the same number above 0 (but for the rounding of blocks), also with a pause between calls:
// what other threads allocate varies, or grows with the pause. Nothing is said of the heap if the C
// library does not count it (sanitizers).
std::string LeakOf(const std::function<void()>& call);

// "" or a sentence that says that earlier calls have left little of what this process may have
// (RLIMIT_DATA, RLIMIT_NOFILE), or more threads or processes than any pool has.
std::string UsedUp();

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_TRACES_H_
