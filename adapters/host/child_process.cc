// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include "core/patience.h"
#include "core/process.h"
#include "core/status.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX declares it nowhere

namespace qualm {
namespace {

// A dying process gets this long until it is killed.
constexpr int kDyingGraceMs = 2000;
// No kernel needs more processes at once.
constexpr size_t kMostProcesses = 1000;

using Clock = std::chrono::steady_clock;

// Every process that a child starts inherits this variable: "PID.NUMBER" of who started the child.
constexpr std::string_view kMark = "QUALM_CHILD=";

// The children that live, by number; and the processes of those that do not.
class Family {
 public:
  // Never destroyed: children that are static objects may end after it would be. What escaped ends
  // at the end of this process.
  static Family& Get() {
    static auto* const family = new Family;
    return *family;
  }

  uint64_t Add() {
    const std::scoped_lock lock(mutex_);
    if (last_ == 0) std::atexit([] { Get().EndEscaped(/*at_once=*/true); });
    alive_.insert(++last_);
    return last_;
  }
  void Remove(uint64_t number) {
    {
      const std::scoped_lock lock(mutex_);
      alive_.erase(number);
    }
    EndEscaped(/*at_once=*/false);
  }

 private:
  // Kills what has left the group of a child that has ended. Reading the environment of every
  // process takes milliseconds, and some children end a hundred times a second.
  void EndEscaped(bool at_once) {
    const std::scoped_lock lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (!at_once && now - looked_ < std::chrono::seconds(1)) return;
    looked_ = now;
    const std::string ours = std::string(kMark) + std::to_string(getpid()) + ".";
    std::error_code error;
    for (std::filesystem::directory_iterator entry("/proc", error), end; entry != end;
         entry.increment(error)) {  // an error ends it too
      const auto process = static_cast<pid_t>(std::atoi(entry->path().filename().c_str()));
      if (process <= 1 || process == getpid()) continue;
      std::ifstream file(entry->path() / "environ");
      for (std::string word; std::getline(file, word, '\0');) {
        if (!word.starts_with(ours)) continue;
        if (!alive_.contains(std::strtoull(word.c_str() + ours.size(), nullptr, 10)))
          kill(process, SIGKILL);
        break;
      }
    }
  }

  std::mutex mutex_;
  std::set<uint64_t> alive_;
  uint64_t last_ = 0;
  Clock::time_point looked_;
};

// The process and those that it has started and not lost, with the pages that each has in memory.
void AddTree(pid_t process, std::vector<size_t>& pages) {
  const std::string folder = "/proc/" + std::to_string(process);
  std::ifstream statm(folder + "/statm");
  size_t all = 0, resident = 0;
  if (!(statm >> all >> resident)) return;
  pages.push_back(resident);
  if (pages.size() > kMostProcesses) return;
  std::error_code error;
  for (std::filesystem::directory_iterator task(folder + "/task", error), end; task != end;
       task.increment(error)) {
    std::ifstream children(task->path() / "children");
    for (pid_t child = 0; children >> child;) AddTree(child, pages);
  }
}

// "NAME=value" of this process, `changes` applied.
std::vector<std::string> Environment(const EnvironmentChanges& changes, uint64_t number) {
  const auto changed = [&](std::string_view name) {
    return std::ranges::any_of(changes, [&](const auto& change) { return change.first == name; });
  };
  std::vector<std::string> result{std::string(kMark) + std::to_string(getpid()) + "." +
                                  std::to_string(number)};
  for (const auto& [name, value] : changes) result.push_back(name + "=" + value);
  // The harness already uses every core, and one thread repeats its answers.
  constexpr std::string_view kThreads = "OMP_NUM_THREADS";
  const bool threads_set = changed(kThreads);
  if (!threads_set) result.push_back(std::string(kThreads) + "=1");
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (name != kThreads && !text.starts_with(kMark) && !changed(name)) result.emplace_back(text);
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

std::string MemoryText(uint64_t bytes) {
  return std::to_string(bytes >> 20) + " MiB (see --memory)";
}

ChildProcess::ChildProcess(const ChildOptions& options)
    : memory_limit_bytes_(options.memory_limit_bytes), looked_(Clock::now()) {
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
  number_ = Family::Get().Add();
  std::vector<std::string> environment = Environment(options.environment, number_);
  const int error =
      posix_spawnp(&pid_, arguments.front().c_str(), &settings.actions, &settings.attributes,
                   Pointers(arguments).data(), Pointers(environment).data());
  if (error != 0) {
    pid_ = 0;
    Family::Get().Remove(number_);
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

std::string ChildProcess::Taken() {
  const Clock::time_point now = Clock::now();
  if (now - looked_ < std::chrono::milliseconds(100)) return "";
  looked_ = now;
  std::vector<size_t> pages;
  AddTree(pid_, pages);
  if (pages.size() > kMostProcesses)
    return "started more than " + std::to_string(kMostProcesses) + " processes";
  static const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // The largest, not the sum: processes of one family share most of their memory.
  if (!pages.empty() && *std::ranges::max_element(pages) > memory_limit_bytes_ / page_bytes)
    return "took more than " + MemoryText(memory_limit_bytes_) + " of memory";
  return "";
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
    if (waited < 0) {
      Family::Get().Remove(number_);
      return "ended, nobody knows how (SIGCHLD is ignored)";
    }
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
  rusage used{}, own{};
  while (wait4(pid, &status_, 0, &used) < 0 && errno == EINTR) {
  }
  // In KiB. A new process begins with the peak of the one that started it.
  getrusage(RUSAGE_SELF, &own);
  took_its_memory_ = used.ru_maxrss > own.ru_maxrss &&
                     static_cast<uint64_t>(used.ru_maxrss) > memory_limit_bytes_ / 1024 / 4 * 3;
  Family::Get().Remove(number_);
  if (killed && dying) return "closed its connection to qualm and went on running";
  if (WIFSIGNALED(status_)) return "killed by " + SignalName(WTERMSIG(status_));
  return "ended the process with exit status " + std::to_string(WEXITSTATUS(status_));
}

}  // namespace qualm
