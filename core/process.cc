// SPDX-License-Identifier: Apache-2.0
#include "core/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>

#include "core/status.h"

namespace qualm {
namespace {

// In the child: it dies with its parent, has its own process group (Ctrl-C is for the parent, which
// ends its children itself) and default signals, and writes to the files.
void BecomeChild(pid_t parent, const Process::Setting& setting) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent died before
  ::setpgid(0, 0);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(number, SIG_DFL);
  const auto redirect = [](const std::string& file, int flags, int to) {
    ::dup2(::open(file.c_str(), flags | O_CLOEXEC, 0666), to);
  };
  redirect("/dev/null", O_RDONLY, STDIN_FILENO);
  redirect(setting.out, O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
  if (setting.err.empty()) {
    ::dup2(STDOUT_FILENO, STDERR_FILENO);
  } else {
    redirect(setting.err, O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  }
}

pid_t ForkOrThrow() {
  std::fflush(nullptr);  // what is buffered must not be written twice
  const pid_t pid = ::fork();
  if (pid < 0) {
    throw Unavailable(std::string("cannot start a process (") + std::strerror(errno) + ")");
  }
  return pid;
}

}  // namespace

std::string SignalName(int number) {
  const char* const name = ::sigabbrev_np(number);
  return name == nullptr ? "signal " + std::to_string(number) : "SIG" + std::string(name);
}

std::string HowItEnded(int status) {
  if (WIFEXITED(status)) return "exit status " + std::to_string(WEXITSTATUS(status));
  return SignalName(WTERMSIG(status));
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

Process Process::Start(std::vector<std::string> arguments, const Setting& setting) {
  const std::vector<char*> pointers = Pointers(arguments);
  const pid_t parent = ::getpid();
  const pid_t pid = ForkOrThrow();
  if (pid != 0) return Process(pid);
  BecomeChild(parent, setting);
  if (!setting.folder.empty()) {
    if (::chdir(setting.folder.c_str()) != 0) ::_exit(127);
    ::setenv("PWD", setting.folder.c_str(), 1);  // as a shell does
  }
  for (const auto& [name, value] : setting.environment) {
    if (value.empty()) {
      ::unsetenv(name.c_str());
    } else {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ::execv(pointers.front(), pointers.data());
  std::perror(pointers.front());
  ::_exit(127);
}

Process Process::Fork(const std::function<void()>& work, const std::string& log) {
  const pid_t parent = ::getpid();
  const pid_t pid = ForkOrThrow();
  if (pid != 0) return Process(pid);
  BecomeChild(parent, {.environment = {}, .out = log, .err = ""});
  int status = 0;
  try {
    work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  std::fflush(nullptr);
  ::_exit(status);
}

Process::~Process() {
  if (pid_ == 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::optional<int> Process::Ended() {
  int status = 0;
  if (pid_ == 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = 0;
  return status;
}

int Process::Wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  return status;
}

void Process::Stop() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGTERM);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::seconds(3);
  while (!Ended() && pid_ != 0 && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  *this = Process(0);
}

}  // namespace qualm
