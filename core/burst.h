// SPDX-License-Identifier: Apache-2.0
// Many questions to subjects, one after another.
#ifndef QUALM_CORE_BURST_H_
#define QUALM_CORE_BURST_H_

namespace qualm {

// While a burst lives on a thread, the subjects that this thread asks may keep signal handlers
// installed, instead of setting them up and taking them down around every call. A loop that judges
// cases opens a burst. Foreign code runs inside a burst only where a subject calls it.
class Burst {
 public:
  Burst();
  ~Burst();
  Burst(const Burst&) = delete;
  Burst& operator=(const Burst&) = delete;

  // Inside a burst of this thread: true, and `end` is called when the outermost burst ends. Else
  // false.
  static bool CallAtEnd(void (*end)());
};

}  // namespace qualm

#endif  // QUALM_CORE_BURST_H_
