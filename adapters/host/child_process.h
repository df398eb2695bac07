// SPDX-License-Identifier: Apache-2.0
// A process that qualm starts to run somebody else's code in it, and its end.
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
  // Added to, or replacing in, this process's environment; OMP_NUM_THREADS=1 unless set here.
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

  // It has ended, and waits to be reaped.
  bool Ended() const;
  // Ends the process and its group; how it ended, as a sentence. `dying`: it is about to leave by
  // itself, and is killed only after two seconds. `meanwhile` is called again and again until then:
  // a process that prints its last words must not wait for a reader.
  std::string Reap(bool dying, const std::function<void()>& meanwhile = nullptr);

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

// "SIGSEGV".
std::string SignalName(int number);
}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_CHILD_PROCESS_H_
