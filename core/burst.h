// SPDX-License-Identifier: Apache-2.0
// Many questions to subjects, one after another.
#ifndef QUALM_CORE_BURST_H_
#define QUALM_CORE_BURST_H_

namespace qualm {

// While a burst lives on a thread, the subjects that this thread asks may leave in place what they
// would set up and take down around every call: signal handlers. A loop that judges cases opens
// one. Code of strangers runs inside a burst only where a subject calls it.
class Burst {
 public:
  Burst();
  ~Burst();
  Burst(const Burst&) = delete;
  Burst& operator=(const Burst&) = delete;

  // Inside a burst of this thread: true, and `end` is called when the outermost burst ends. Else
  // false.
  static bool AtEnd(void (*end)());
};

}  // namespace qualm

#endif  // QUALM_CORE_BURST_H_
