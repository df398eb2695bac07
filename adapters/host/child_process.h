// SPDX-License-Identifier: Apache-2.0
// Starts a process for somebody else's code, and ends it.
#ifndef QUALM_ADAPTERS_HOST_CHILD_PROCESS_H_
#define QUALM_ADAPTERS_HOST_CHILD_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qualm {

using EnvironmentChanges = std::vector<std::pair<std::string, std::string>>;

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
};

// Started with posix_spawn, never forked bare, in a process group of its own, without the signal
// dispositions of this process.
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
  // Ends the process and its group, and says in a sentence how the process ended. `dying`: the
  // process is about to end by itself, and is killed only after two seconds. Until then `meanwhile`
  // is called again and again, to read what the process prints last: a process whose output nobody
  // reads would wait.
  std::string EndAndReap(bool dying, const std::function<void()>& meanwhile = nullptr);

 private:
  pid_t pid_ = 0;
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
