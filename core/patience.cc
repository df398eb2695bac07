// SPDX-License-Identifier: Apache-2.0
#include "core/patience.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

namespace qualm {
namespace {

// How often a waiting parent looks after its child, and for how long threads that stand in line do
// so side by side: what they report between two looks counts once.
constexpr std::chrono::milliseconds kLook{100};
// No wait is longer than this many times the limit.
constexpr int kMostTimes = 20;

using TimesInLine = std::map<pid_t, int64_t>;

// The second number of a schedstat file is the time in line (Linux, Documentation/scheduler).
void Read(const std::string& task, pid_t thread, TimesInLine& times) {
  std::ifstream file(task + "/schedstat");
  int64_t run = 0, in_line = 0;
  if (file >> run >> in_line) times[thread] = in_line;
}

void ReadProcess(pid_t process, TimesInLine& times) {
  std::error_code error;
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (std::filesystem::directory_iterator entry(tasks, error), end; entry != end;
       entry.increment(error)) {  // an error ends it too
    const std::string task = entry->path().string();
    const auto thread = static_cast<pid_t>(std::atoi(entry->path().filename().c_str()));
    Read(task, thread, times);
    std::ifstream children(task + "/children");
    pid_t child{};
    while (children >> child) ReadProcess(child, times);
  }
}

// The longest of the child's threads, which may have stood in line side by side; and this thread's,
// which is the next to work when the child is done.
constexpr pid_t kOwn = 0;
TimesInLine Look(pid_t child) {
  TimesInLine times;
  ReadProcess(child, times);
  Read("/proc/thread-self", kOwn, times);
  return times;
}

}  // namespace

void Patience::Begin(pid_t child, int limit_ms) {
  begun_ = Clock::now();
  limit_ = Milliseconds(limit_ms);
  waited_ = {};
  // Cases follow each other in microseconds: a reading of a moment ago is near enough.
  if (child == child_ && begun_ - looked_ < kLook) return;
  child_ = child;
  looked_ = begun_;
  before_ = Look(child);
}

void Patience::Limit(int limit_ms) {
  const auto elapsed = std::chrono::duration_cast<Milliseconds>(Clock::now() - begun_);
  const auto worked = elapsed - std::chrono::duration_cast<Milliseconds>(waited_);
  limit_ = std::min(limit_, worked + Milliseconds(limit_ms));
}

void Patience::AddTimeInLine() {
  std::chrono::nanoseconds longest{}, own{};
  TimesInLine times = Look(child_);
  for (const auto& [thread, now] : times) {
    const std::chrono::nanoseconds since(now - before_[thread]);  // 0 for a new thread
    if (thread == kOwn) {
      own = since;
    } else {
      longest = std::max(longest, since);
    }
  }
  waited_ += longest + own;
  before_ = std::move(times);
  looked_ = Clock::now();
}

int Patience::MillisecondsLeft() {
  const auto now = Clock::now();
  const auto elapsed = std::chrono::duration_cast<Milliseconds>(now - begun_);
  // The child's threads are looked at again and again, because those that end take their time in
  // line along: a child may start one program after the other. No child is given up between two
  // looks.
  const auto next = std::min(kLook, limit_) - (now - looked_);
  if (next > Clock::duration::zero())
    return static_cast<int>(std::chrono::ceil<Milliseconds>(next).count());
  AddTimeInLine();
  waited_ = std::min<std::chrono::nanoseconds>(waited_, elapsed);
  if (elapsed >= kMostTimes * limit_) return 0;
  const auto worked = elapsed - std::chrono::duration_cast<Milliseconds>(waited_);
  return static_cast<int>(std::clamp(limit_ - worked, Milliseconds(0), kLook).count());
}

}  // namespace qualm
