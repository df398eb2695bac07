// SPDX-License-Identifier: Apache-2.0
// A child process of a campaign: an engine, or a fork of this process that looks into a finding. It
// dies with the campaign, whatever ends that.
#ifndef QUALM_CAMPAIGN_PROCESS_H_
#define QUALM_CAMPAIGN_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qualm::campaign {

class Process {
 public:
  // Starts a program; stdout and stderr go to the file `log`. The environment is ours with these
  // changes. Throws Unavailable.
  static Process Start(const std::vector<std::string>& arguments,
                       const std::vector<std::pair<std::string, std::string>>& environment,
                       const std::string& log);
  // Runs `work` in a fork of this process, which must have one thread. Exit status 1: `work` threw,
  // and the log says what.
  static Process Fork(const std::function<void()>& work, const std::string& log);
  Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  Process& operator=(Process&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~Process();  // kills

  pid_t id() const { return pid_; }
  // The status that waitpid gave, once the process has ended.
  std::optional<int> Ended();
  // Asks the process to end, waits for three seconds at most, then kills it.
  void Stop();

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  pid_t pid_ = 0;  // 0: reaped
};

// The line before an engine or a sanitizer says why the process ended, and what follows it; where
// neither says so, the end of the log. At most 400 bytes.
std::string LastWords(const std::string& log);

// "exit status 77", "SIGSEGV".
std::string HowItEnded(int status);

}  // namespace qualm::campaign

#endif  // QUALM_CAMPAIGN_PROCESS_H_
