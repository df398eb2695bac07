// SPDX-License-Identifier: Apache-2.0
#include "campaign/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <thread>

#include "core/status.h"

namespace qualm::campaign {
namespace {

// In the child: it dies with its parent, has its own process group (Ctrl-C is for the campaign,
// which ends its children itself), default signals, and writes to the log.
void BecomeChild(pid_t parent, const std::string& log) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent died before
  ::setpgid(0, 0);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(number, SIG_DFL);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
}

pid_t ForkOrThrow() {
  std::fflush(nullptr);  // what is buffered must not be written twice
  const pid_t pid = ::fork();
  if (pid < 0) {
    throw Unavailable(std::string("cannot start a process (") + std::strerror(errno) + ")");
  }
  return pid;
}

std::vector<char*> Words(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Process Process::Start(const std::vector<std::string>& arguments,
                       const std::vector<std::pair<std::string, std::string>>& environment,
                       const std::string& log) {
  std::vector<std::string> words = arguments;
  const std::vector<char*> pointers = Words(words);
  const pid_t parent = ::getpid();
  const pid_t pid = ForkOrThrow();
  if (pid != 0) return Process(pid);
  BecomeChild(parent, log);
  for (const auto& [name, value] : environment) {
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
  BecomeChild(parent, log);
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

std::string LastWords(const std::string& log) {
  std::ifstream file(log, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  constexpr size_t kMost = 400;
  // What an engine or a sanitizer says begins here; a message of the program stands in the line
  // before. A list of frames and the bytes of the input come after it.
  for (const char* mark : {"== ERROR: ", "==ERROR: "}) {
    const size_t at = text.find(mark);
    if (at == std::string::npos) continue;
    const size_t line = text.rfind('\n', at);
    if (line == std::string::npos || line == 0) return text.substr(0, kMost);
    const size_t before = text.rfind('\n', line - 1);
    return text.substr(before == std::string::npos ? 0 : before + 1, kMost);
  }
  return text.substr(text.size() - std::min(text.size(), kMost));
}

std::string HowItEnded(int status) {
  if (WIFEXITED(status)) return "exit status " + std::to_string(WEXITSTATUS(status));
  const char* name = ::sigabbrev_np(WTERMSIG(status));
  return name == nullptr ? "signal " + std::to_string(WTERMSIG(status)) : std::string("SIG") + name;
}

}  // namespace qualm::campaign
