// SPDX-License-Identifier: Apache-2.0
#include "tools/progress.h"

#include <signal.h>

#include <chrono>

namespace qualm::tools {

StepProgress::StepProgress(std::string what, double seconds) : progress_(std::move(what), seconds) {
  // The main thread takes the signals: one of them must end the call in which it waits.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

StepProgress::~StepProgress() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  thread_.join();
}

void StepProgress::At(double share, std::string text) {
  const std::scoped_lock lock(mutex_);
  share_ = share;
  text_ = std::move(text);
}

void StepProgress::Watch() {
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, std::chrono::milliseconds(250), [this] { return is_over_; }))
    if (!text_.empty()) progress_.Show(share_, text_);
}

}  // namespace qualm::tools
