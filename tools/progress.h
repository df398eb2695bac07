// SPDX-License-Identifier: Apache-2.0
// A line on stderr every few seconds, from whatever thread comes by.
#ifndef QUALM_TOOLS_PROGRESS_H_
#define QUALM_TOOLS_PROGRESS_H_

#include <cstdint>
#include <mutex>
#include <string>

#include "tools/command.h"
#include "tools/session.h"

namespace qualm::tools {

class Progress {
 public:
  // `what` begins each line; `seconds`: how long it will take, 0 where nobody knows.
  explicit Progress(std::string what = "", double seconds = 0)
      : what_(std::move(what)), seconds_(seconds) {}

  // all < 0: nobody knows how many.
  void operator()(int64_t done, int64_t all) {
    const std::scoped_lock lock(mutex_);
    const double now = stopwatch_.seconds();
    if (now < next_) return;
    next_ = now + 5;
    Tell("{}{}{} cases, {:.0f}{} s", what_, done, all < 0 ? "" : fmt::format(" of {}", all), now,
         seconds_ > 0 ? fmt::format(" of {:.0f}", seconds_) : "");
  }

 private:
  std::mutex mutex_;
  Stopwatch stopwatch_;
  double next_ = 5;
  std::string what_;
  double seconds_;
};

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_PROGRESS_H_
