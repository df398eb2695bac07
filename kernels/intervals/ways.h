// SPDX-License-Identifier: Apache-2.0
// The ways through a program with undecided branches: where a condition may hold and may not hold,
// a run takes one way, and later runs take the others.
#ifndef QUALM_KERNELS_INTERVALS_WAYS_H_
#define QUALM_KERNELS_INTERVALS_WAYS_H_

#include <cstddef>
#include <source_location>
#include <vector>

namespace qualm::intervals {

class Ways {
 public:
  // The value of the condition at `place` on this way. On one way a place gets the same answer each
  // time: it asks about vectors with the same inputs, and no output depends on two of them.
  bool Take(const std::source_location& place, bool can_be_false, bool can_be_true) {
    if (!can_be_false || !can_be_true) return can_be_true;
    for (const Turn& turn : turns_) {
      if (turn.line == place.line() && turn.file == place.file_name()) return turn.taken;
    }
    turns_.push_back({place.line(), place.file_name(), false});
    return false;
  }

  // After a run: true if there is another way, which the next run takes.
  bool Next() {
    while (!turns_.empty() && turns_.back().taken) turns_.pop_back();
    if (turns_.empty()) return false;
    turns_.back().taken = true;
    return true;
  }

 private:
  struct Turn {
    unsigned line;
    const char* file;
    bool taken;
  };
  std::vector<Turn> turns_;
};

// The ways of the run on this thread.
inline thread_local Ways ways;

}  // namespace qualm::intervals

#endif  // QUALM_KERNELS_INTERVALS_WAYS_H_
