// SPDX-License-Identifier: Apache-2.0
// A child process: a program, or a fork of this process. It dies with this one, whatever ends that.
#ifndef QUALM_CORE_PROCESS_H_
#define QUALM_CORE_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qualm {

// "SIGSEGV".
std::string SignalName(int number);
// "exit status 77", "SIGSEGV", of a status that waitpid gave.
std::string HowItEnded(int status);
// What exec takes; the words stay where they are.
std::vector<char*> Pointers(std::vector<std::string>& words);

class Process {
 public:
  struct Setting {
    // Our environment with these changes; "" takes a variable out.
    std::vector<std::pair<std::string, std::string>> environment;
    std::string out, err;     // files; both into `out` where `err` is ""
    std::string folder = {};  // to start in
  };
  // Starts a program. Throws Unavailable.
  static Process Start(std::vector<std::string> arguments, const Setting& setting);
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
  // Waits until the process has ended.
  int Wait();
  // Asks the process to end, waits for three seconds at most, then kills it.
  void Stop();

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  pid_t pid_ = 0;  // 0: reaped
};

}  // namespace qualm

#endif  // QUALM_CORE_PROCESS_H_
