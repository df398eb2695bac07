// SPDX-License-Identifier: Apache-2.0
// The ways through a program with undecided branches: where a condition may hold and may not hold,
// a run takes one way, and later runs take the others.
#ifndef QUALM_KERNELS_INTERVALS_WAYS_H_
#define QUALM_KERNELS_INTERVALS_WAYS_H_

#include <array>
#include <cstddef>
#include <cstdlib>
#include <source_location>

namespace qualm::intervals {

class Ways {
 public:
  // The value of the condition at `place` on this way. On one way a place gets the same answer each
  // time: it asks about vectors with the same inputs, and no output depends on two of them.
  bool Take(const std::source_location& place, bool can_be_false, bool can_be_true) {
    if (!can_be_false || !can_be_true) return can_be_true;
    for (size_t i = 0; i < turns_; ++i) {
      const Turn& turn = turn_[i];
      if (turn.line == place.line() && turn.file == place.file_name()) return turn.taken;
    }
    if (turns_ == turn_.size()) std::abort();
    turn_[turns_++] = {place.line(), place.file_name(), false};
    return false;
  }

  // After a run: true if there is another way, which the next run takes.
  bool Next() {
    while (turns_ > 0 && turn_[turns_ - 1].taken) --turns_;
    if (turns_ == 0) return false;
    turn_[turns_ - 1].taken = true;
    return true;
  }

 private:
  struct Turn {
    unsigned line = 0;
    const char* file = nullptr;
    bool taken = false;
  };
  std::array<Turn, 16> turn_{};
  size_t turns_ = 0;
};

// The ways of the run on this thread. Initialized at compile time: else each of the thousands of
// uses in a run would first ask whether that has been done.
constinit inline thread_local Ways ways;

}  // namespace qualm::intervals

#endif  // QUALM_KERNELS_INTERVALS_WAYS_H_
