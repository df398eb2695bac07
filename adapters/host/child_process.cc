// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstring>
#include <thread>

#include "core/patience.h"
#include "core/process.h"
#include "core/status.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX declares it nowhere

namespace qualm {
namespace {

// A dying process gets this long until it is killed.
constexpr int kDyingGraceMs = 2000;

// "NAME=value" of this process, `changes` applied.
std::vector<std::string> Environment(const EnvironmentChanges& changes) {
  const auto changed = [&](std::string_view name) {
    return std::ranges::any_of(changes, [&](const auto& change) { return change.first == name; });
  };
  std::vector<std::string> result;
  for (const auto& [name, value] : changes) result.push_back(name + "=" + value);
  // The harness already uses every core, and one thread repeats its answers.
  constexpr std::string_view kThreads = "OMP_NUM_THREADS";
  const bool threads_set = changed(kThreads);
  if (!threads_set) result.push_back(std::string(kThreads) + "=1");
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (name != kThreads && !changed(name)) result.emplace_back(text);
  }
  return result;
}

// posix_spawn's two argument objects, released whatever happens.
class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

// Itself too: it may have left its group.
void KillGroup(pid_t pid) {
  kill(pid, SIGKILL);
  kill(-pid, SIGKILL);
}

}  // namespace

void FileDescriptor::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

ChildProcess::ChildProcess(const ChildOptions& options) {
  SpawnSettings settings;
  int last = STDERR_FILENO;
  for (const ChildOptions::Descriptor& descriptor : options.descriptors) {
    last = std::max(last, descriptor.to);
    if (descriptor.from >= 0) {
      posix_spawn_file_actions_adddup2(&settings.actions, descriptor.from, descriptor.to);
    } else {
      posix_spawn_file_actions_addopen(&settings.actions, descriptor.to, "/dev/null",
                                       descriptor.to == STDIN_FILENO ? O_RDONLY : O_WRONLY, 0);
    }
  }
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
  // Foreign code has no business with files that this process happens to have open.
  posix_spawn_file_actions_addclosefrom_np(&settings.actions, last + 1);
#endif
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&settings.attributes, &none);
  posix_spawnattr_setsigdefault(&settings.attributes, &all);
  // A group of its own: an interrupt from the terminal goes to qualm, which then ends its children;
  // a child that died of it would look like a crash.
  posix_spawnattr_setpgroup(&settings.attributes, 0);
  posix_spawnattr_setflags(&settings.attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> environment = Environment(options.environment);
  const int error =
      posix_spawnp(&pid_, arguments.front().c_str(), &settings.actions, &settings.attributes,
                   Pointers(arguments).data(), Pointers(environment).data());
  if (error != 0) {
    pid_ = 0;
    throw Unavailable("cannot start " + arguments.front() + ": " + std::strerror(error));
  }
}

ChildProcess::~ChildProcess() {
  if (pid_ != 0) EndAndReap(/*dying=*/false);
}

bool ChildProcess::Ended() const {
  siginfo_t gone{};
  return waitid(P_PID, static_cast<id_t>(pid_), &gone, WEXITED | WNOWAIT | WNOHANG) == 0 &&
         gone.si_pid == pid_;
}

std::string ChildProcess::EndAndReap(bool dying, const std::function<void()>& meanwhile) {
  const pid_t pid = std::exchange(pid_, 0);
  if (pid == 0) return "ended before";
  if (!dying) KillGroup(pid);
  Patience patience;
  patience.Begin(pid, kDyingGraceMs);
  auto pause = std::chrono::microseconds(50);
  bool killed = !dying;
  for (;;) {
    // Not reaped yet: until it is, the number of its group is nobody else's.
    siginfo_t gone{};
    const int waited =
        waitid(P_PID, static_cast<id_t>(pid), &gone, WEXITED | WNOWAIT | (killed ? 0 : WNOHANG));
    if (waited < 0 && errno == EINTR) continue;
    if (waited < 0) return "ended, nobody knows how (SIGCHLD is ignored)";
    if (gone.si_pid == pid) break;
    if (patience.MillisecondsLeft() == 0) {
      KillGroup(pid);
      killed = true;
      continue;
    }
    if (meanwhile) meanwhile();
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(10'000));
  }
  // The child has ended. Processes that it started may still run: they end with its group.
  KillGroup(pid);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (killed && dying) return "closed its connection to qualm and went on running";
  if (WIFSIGNALED(status)) return "killed by " + SignalName(WTERMSIG(status));
  return "ended the process with exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace qualm
