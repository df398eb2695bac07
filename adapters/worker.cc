// SPDX-License-Identifier: Apache-2.0
#include "adapters/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "core/status.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX declares it nowhere

namespace qualm {
namespace {

using Result = MessageChannel::Result;

// A hello or an error sentence.
constexpr size_t kHelloBytesMax = 64 * 1024;
// A dying process gets this long until it is killed.
constexpr auto kDyingGrace = std::chrono::seconds(2);

std::string SignalName(int number) {
  const char* abbreviation = sigabbrev_np(number);
  return abbreviation == nullptr ? "signal " + std::to_string(number)
                                 : "SIG" + std::string(abbreviation);
}

std::string FindWorker() {
  if (const char* path = std::getenv("QUALM_WORKER")) {
    if (access(path, X_OK) == 0) return path;
    throw Unavailable("QUALM_WORKER: no executable at '" + std::string(path) + "'");
  }
  const std::string beside = ExecutableFolder() + "qualm-worker";
  if (access(beside.c_str(), X_OK) == 0) return beside;
  throw Unavailable("no qualm-worker in " + ExecutableFolder() +
                    " (build it, or set QUALM_WORKER to its path)");
}

// "NAME=value" of this process, `changes` applied.
std::vector<std::string> Environment(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> result;
  for (const auto& [name, value] : changes) result.push_back(name + "=" + value);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool changed = std::any_of(changes.begin(), changes.end(),
                                     [&](const auto& change) { return change.first == name; });
    if (!changed) result.emplace_back(text);
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

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

Outcome Bad(RunStatus status, std::string detail) {
  Outcome outcome;
  outcome.status = status;
  outcome.detail = std::move(detail);
  return outcome;
}

std::string Bytes(int64_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

}  // namespace

Worker::Worker(WorkerOptions options) : options_(std::move(options)) {
  const auto& environment = options_.environment;
  if (std::none_of(environment.begin(), environment.end(),
                   [](const auto& entry) { return entry.first == "OMP_NUM_THREADS"; })) {
    // The harness already uses every core, and one thread repeats its answers.
    options_.environment.emplace_back("OMP_NUM_THREADS", "1");
  }
  Start();
}

Worker::~Worker() {
  // Closing the socket asks it to leave.
  if (pid_ != 0) Reap(/*dying=*/true);
}

void Worker::Spawn(const std::string& worker_path) {
  // Close-on-exec at once: a worker that another thread is starting must not inherit these ends, or
  // this one would never see its socket close.
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw Unavailable("qualm-worker: no socket: " + std::string(std::strerror(errno)));
  }
  SpawnSettings settings;
  // In this order: where the parent's own stdin is closed, the socket may be number 0.
  posix_spawn_file_actions_adddup2(&settings.actions, ends[1], kWorkerFd);
  posix_spawn_file_actions_addopen(&settings.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&settings.actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
  // Foreign code has no business with files that this process happens to have open.
  posix_spawn_file_actions_addclosefrom_np(&settings.actions, kWorkerFd + 1);
#endif
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&settings.attributes, &none);
  posix_spawnattr_setsigdefault(&settings.attributes, &all);
  // A group of its own: an interrupt from the terminal goes to qualm, which then ends its workers;
  // a worker that died of it would look like a crash.
  posix_spawnattr_setpgroup(&settings.attributes, 0);
  posix_spawnattr_setflags(&settings.attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<std::string> arguments{worker_path, options_.plugin,
                                     std::to_string(options_.time_limit_ms),
                                     std::to_string(options_.memory_limit_bytes)};
  std::vector<std::string> environment = Environment(options_.environment);
  const int error = posix_spawn(&pid_, worker_path.c_str(), &settings.actions, &settings.attributes,
                                Pointers(arguments).data(), Pointers(environment).data());
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    pid_ = 0;
    throw Unavailable("cannot start " + worker_path + ": " + std::strerror(error));
  }
  fd_ = ends[0];
  channel_.emplace(fd_);
}

void Worker::Start() {
  Spawn(FindWorker());
  const std::string who = "plugin '" + options_.plugin + "' ";
  const Result result = channel_->Receive(kHelloBytesMax, options_.time_limit_ms);
  if (result == Result::kTimeout) {
    Reap(/*dying=*/false);
    throw Unavailable(who + "could not be loaded within " + std::to_string(options_.time_limit_ms) +
                      " ms");
  }
  if (result == Result::kClosed) {
    throw Unavailable(who + "ended the process that loaded it: " + Reap(/*dying=*/true));
  }
  if (result == Result::kGarbage) {
    Reap(/*dying=*/false);
    throw Unavailable(who + "sent no message of this protocol while it was loaded");
  }
  switch (channel_->header().kind) {
    case MessageKind::kHello:
      if (std::optional<PluginInfo> info = DecodeInfo(channel_->payload())) {
        info_ = std::move(*info);
        return;
      }
      break;
    case MessageKind::kCannotLoad: {
      const std::span<const uint8_t> text = channel_->payload();
      // Not CleanText: the loader's own sentence, whose end names the file, may be long.
      std::string why(text.begin(), text.end());
      Reap(/*dying=*/true);
      throw Unavailable(who + why);
    }
    case MessageKind::kFault:
      if (const std::optional<Fault> fault = DecodeFault(channel_->payload())) {
        throw Unavailable(who + "crashed while it was loaded: " + FromFault(*fault).detail);
      }
      break;
    case MessageKind::kRun:
    case MessageKind::kAnswer: break;
  }
  Reap(/*dying=*/false);
  throw Unavailable(who + "sent no message of this protocol while it was loaded");
}

Outcome Worker::Run(const Case& c, const RunContext& context) {
  if (pid_ == 0) {
    try {
      Start();
    } catch (const Unavailable& error) {
      return Bad(RunStatus::kCrashed,
                 "the worker could not be started again: " + std::string(error.what()));
    }
  }
  EncodeRun(c, context, payload_);
  const uint64_t sequence = ++sequence_;
  const Result sent = channel_->Send(MessageKind::kRun, sequence, payload_, options_.time_limit_ms);
  // A worker that has died may still have left word of why.
  const size_t answer_bytes_max =
      kHelloBytesMax + static_cast<size_t>(c.M * c.N) * (SizeOf(c.out_dtype) + SizeOf(DType::kS32));
  const Result received = channel_->Receive(std::min(answer_bytes_max, kMessageBytesMax),
                                            sent == Result::kTimeout ? 0 : options_.time_limit_ms);
  if (received != Result::kOk) return Failed(received);
  if (channel_->header().kind == MessageKind::kFault) {
    if (const std::optional<Fault> fault = DecodeFault(channel_->payload())) {
      return FromFault(*fault);
    }
  }
  if (channel_->header().kind == MessageKind::kAnswer && channel_->header().sequence == sequence) {
    if (std::optional<Outcome> outcome = DecodeOutcome(channel_->payload(), c)) {
      return std::move(*outcome);
    }
  }
  return Failed(Result::kGarbage);
}

Outcome Worker::Failed(Result result) {
  switch (result) {
    case Result::kTimeout:
      Reap(/*dying=*/false);
      return Bad(RunStatus::kHung,
                 "gave no answer within " + std::to_string(options_.time_limit_ms) + " ms");
    case Result::kClosed: return Bad(RunStatus::kCrashed, Reap(/*dying=*/true));
    case Result::kOk:
    case Result::kGarbage: break;
  }
  Reap(/*dying=*/false);
  return Bad(RunStatus::kGarbage, "sent something that is no answer in the worker's protocol");
}

Outcome Worker::FromFault(const Fault& fault) {
  Reap(/*dying=*/true);
  const std::string signal_name = SignalName(fault.signal);
  std::string verb = "accessed";
  if (fault.access == Fault::Access::kRead) verb = "read";
  if (fault.access == Fault::Access::kWrite) verb = "wrote";
  const std::string buffer = CleanText(fault.buffer.data());
  if (buffer.empty()) {
    const bool addressed = fault.signal == SIGSEGV || fault.signal == SIGBUS;
    std::array<char, 32> address;
    std::snprintf(address.data(), address.size(), "0x%llx",
                  static_cast<unsigned long long>(fault.address));
    return Bad(
        RunStatus::kCrashed,
        "killed by " + signal_name + (addressed ? ": " + verb + " address " + address.data() : ""));
  }
  const bool before = fault.bytes_before > 0;
  const std::string where = before ? Bytes(fault.bytes_before) + " before the start of "
                                   : Bytes(fault.bytes_past) + " past the end of ";
  return Bad(RunStatus::kTouchedOutside, verb + " " + where + buffer + " (" + signal_name + ")");
}

std::string Worker::Reap(bool dying) {
  close(fd_);
  fd_ = -1;
  channel_.reset();
  const pid_t pid = std::exchange(pid_, 0);
  if (!dying) kill(pid, SIGKILL);
  const auto deadline = std::chrono::steady_clock::now() + kDyingGrace;
  auto pause = std::chrono::microseconds(50);
  bool killed = !dying;
  for (;;) {
    int status = 0;
    const pid_t done = waitpid(pid, &status, killed ? 0 : WNOHANG);
    if (done == pid) {
      if (killed && dying) return "closed its connection to qualm and went on running";
      if (WIFSIGNALED(status)) return "killed by " + SignalName(WTERMSIG(status));
      return "ended the process with exit status " + std::to_string(WEXITSTATUS(status));
    }
    if (done < 0 && errno != EINTR) return "ended, nobody knows how (SIGCHLD is ignored)";
    if (done == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        kill(pid, SIGKILL);
        killed = true;
        continue;
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(10'000));
    }
  }
}

}  // namespace qualm
