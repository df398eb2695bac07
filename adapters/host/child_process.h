// SPDX-License-Identifier: Apache-2.0
// Starts a process for somebody else's code, and ends it.
#ifndef QUALM_ADAPTERS_HOST_CHILD_PROCESS_H_
#define QUALM_ADAPTERS_HOST_CHILD_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qualm {

using EnvironmentChanges = std::vector<std::pair<std::string, std::string>>;

// What foreign code may have where nobody says otherwise.
inline constexpr uint64_t kMemoryLimitBytes = uint64_t{2} << 30;
// "2048 MiB (see --memory)".
std::string MemoryText(uint64_t bytes);

struct ChildOptions {
  std::vector<std::string> arguments;  // the first is looked for in PATH unless it has a '/'
  // Added to this process's environment, or replacing values in it. OMP_NUM_THREADS=1 unless it is
  // set here.
  EnvironmentChanges environment;
  // Descriptors of this process that the child gets, in this order; from < 0 stands for /dev/null.
  // All others from 3 on are closed there.
  struct Descriptor {
    int from = -1;
    int to = 0;
  };
  std::vector<Descriptor> descriptors;
  // For the child and each process that it starts. Taken() tells who has more; nothing is refused.
  uint64_t memory_limit_bytes = kMemoryLimitBytes;
};

// Started with posix_spawn, never forked bare, in a process group of its own, without the signal
// dispositions of this process. All that it starts ends with it, what has left the group within a
// second, or when this process ends.
class ChildProcess {
 public:
  // Throws Unavailable "cannot start ...".
  explicit ChildProcess(const ChildOptions& options);
  // Kills what still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  // The process has ended, and waits to be reaped.
  bool Ended() const;
  // "" or a sentence that says what it has taken too much of: memory, or processes. Looks ten times
  // a second, however often it is asked.
  std::string Taken();
  // Ends the process and its group, and says in a sentence how the process ended. `dying`: the
  // process is about to end by itself, and is killed only after two seconds. Until then `meanwhile`
  // is called again and again, to read what the process prints last: a process whose output nobody
  // reads would wait.
  std::string EndAndReap(bool dying, const std::function<void()>& meanwhile = nullptr);
  // As wait(2) gives it, once it has ended; 0 before.
  int status() const { return status_; }
  // Once it has ended: it, or a process that it waited for, had taken three quarters of the memory
  // that it may have. What it died of is then likely that.
  bool took_its_memory() const { return took_its_memory_; }

 private:
  pid_t pid_ = 0;
  uint64_t number_ = 0;  // of all children of this process
  uint64_t memory_limit_bytes_;
  std::chrono::steady_clock::time_point looked_;
  bool took_its_memory_ = false;
  int status_ = 0;
};

// A file descriptor that closes itself.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { Close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_CHILD_PROCESS_H_
