// SPDX-License-Identifier: Apache-2.0
// How far a run is: on a terminal a bar with the time that is left, elsewhere a line on stderr
// every few seconds. Any thread may call it.
#ifndef QUALM_TOOLS_PROGRESS_H_
#define QUALM_TOOLS_PROGRESS_H_

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "tools/command.h"
#include "tools/session.h"
#include "tools/terminal.h"

namespace qualm::tools {

class Progress {
 public:
  // `what` begins each line; `seconds`: how long it will take, 0 where nobody knows; `noun`: what
  // is counted.
  explicit Progress(std::string what = "", double seconds = 0, std::string noun = "cases")
      : what_(std::move(what)), noun_(std::move(noun)), seconds_(seconds) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { EraseStatusLine(); }

  // all < 0: nobody knows how many.
  void operator()(int64_t done, int64_t all) {
    const double share =
        all > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(all)) : 0;
    Show(share, fmt::format("{}{} {}", done, all < 0 ? "" : fmt::format(" of {}", all), noun_));
  }
  // `share`: of the work, 0..1; 0 where nobody knows. `at`: what is done, in words.
  void Show(double share, const std::string& at) {
    const std::scoped_lock lock(mutex_);
    const double now = stopwatch_.seconds();
    if (now < next_) return;
    next_ = now + (HasStatusLine() ? 0.25 : 5);
    if (seconds_ > 0) share = std::min(now / seconds_, 1.0);
    if (HasStatusLine()) return SetStatusLine(what_ + Bar(share, now) + at);
    Tell("{}{}, {:.0f}{} s", what_, at, now,
         seconds_ > 0 ? fmt::format(" of {:.0f}", seconds_) : "");
  }

 private:
  static std::string Bar(double share, double now) {
    if (share <= 0) return fmt::format("{:.0f} s  ", now);
    constexpr size_t kWidth = 24;
    const auto full = static_cast<size_t>(share * kWidth);
    return fmt::format("[{}{}] {:.0f} %, {:.0f} s left  ", std::string(full, '#'),
                       std::string(kWidth - full, '.'), 100 * share, now * (1 - share) / share);
  }

  std::mutex mutex_;
  Stopwatch stopwatch_;
  double next_ = HasStatusLine() ? 2 : 5;
  std::string what_, noun_;
  double seconds_;
};

// The progress of work whose steps may take long: a thread shows the last of them.
class StepProgress {
 public:
  explicit StepProgress(std::string what, double seconds = 0);
  StepProgress(const StepProgress&) = delete;
  StepProgress& operator=(const StepProgress&) = delete;
  ~StepProgress();

  // As Progress::Show, at once.
  void At(double share, std::string text);

 private:
  void Watch();

  Progress progress_;
  std::mutex mutex_;  // of the following
  std::condition_variable over_;
  bool is_over_ = false;
  double share_ = 0;
  std::string text_;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_PROGRESS_H_
