// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/worker.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/process.h"
#include "core/status.h"

namespace qualm {
namespace {

using Result = MessageChannel::Result;

// Longest hello, and longest sentence of the loader.
constexpr size_t kHelloBytesMax = 64 * 1024;
// The worker keeps buffers as large as the largest question; from here on they count.
constexpr size_t kLargeQuestion = size_t{64} << 20;

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

std::string Bytes(int64_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

}  // namespace

Worker::Worker(WorkerOptions options) : options_(std::move(options)) { Start(); }

Worker::~Worker() {
  // Closing the socket asks it to leave.
  if (process_) EndAndReap(/*dying=*/true);
}

void Worker::Spawn(const std::string& worker_path) {
  // Close-on-exec at once: a worker that another thread is starting must not inherit these ends, or
  // this one would never see its socket close.
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw Unavailable("qualm-worker: no socket: " + std::string(std::strerror(errno)));
  }
  FileDescriptor own(ends[0]);
  FileDescriptor theirs(ends[1]);
  ChildOptions child;
  child.arguments = {worker_path, options_.plugin, std::to_string(options_.time_limit_ms),
                     std::to_string(options_.memory_limit_bytes)};
  child.environment = options_.environment;
  // The worker's own limit counts no code and no shared memory: it refuses before this one ends it.
  child.memory_limit_bytes = options_.memory_limit_bytes / 4 * 5;
  // In this order: where the parent's own stdin is closed, the socket may be number 0.
  const FileDescriptor memory(Mailboxes::Create());
  child.descriptors = {{theirs.get(), kWorkerFd},
                       {memory.get(), kWorkerMemoryFd},
                       {-1, STDIN_FILENO},
                       {-1, STDOUT_FILENO}};
  mailboxes_.emplace(memory.get());
  process_.emplace(child);
  answers_ = 0;
  largest_question_ = 0;
  socket_ = std::move(own);
  channel_.emplace(socket_.get(), &mailboxes_->to_worker(), &mailboxes_->from_worker());
}

void Worker::Start() {
  Spawn(FindWorker());
  const std::string who = "plugin '" + options_.plugin + "' ";
  const Result result = Receive(kHelloBytesMax);
  if (result == Result::kTimeout) {
    EndAndReap(/*dying=*/false);
    if (!taken_.empty()) throw Unavailable(who + taken_ + " while it was loaded");
    throw Unavailable(who + "could not be loaded within " + std::to_string(options_.time_limit_ms) +
                      " ms");
  }
  if (result == Result::kClosed) {
    throw Unavailable(who + "ended the process that loaded it: " + EndAndReap(/*dying=*/true));
  }
  if (result == Result::kOk) {
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
        EndAndReap(/*dying=*/true);
        throw Unavailable(who + why);
      }
      case MessageKind::kTrap:
        if (const std::optional<Trap> trap = DecodeTrap(channel_->payload())) {
          throw Unavailable(who + "crashed while it was loaded: " + FromTrap(*trap).detail);
        }
        break;
      case MessageKind::kRun:
      case MessageKind::kAnswer: break;
    }
  }
  EndAndReap(/*dying=*/false);
  throw Unavailable(who + "sent no message of this protocol while it was loaded");
}

Result Worker::Receive(size_t bytes_max) {
  patience_.Begin(process_->pid(), options_.time_limit_ms);
  bool ended = false, gone = false;  // gone: and what it sent last has been read
  taken_.clear();
  const Result result = channel_->Receive(bytes_max, patience_.MillisecondsLeft(), [&] {
    gone = ended;
    if (gone) return 0;
    taken_ = process_->Taken();
    if (!taken_.empty()) return 0;
    ended = process_->Ended();
    return ended ? 1 : patience_.MillisecondsLeft();  // once more, for what it sent last
  });
  return gone ? Result::kClosed : result;
}

Outcome Worker::Run(const Case& c, const RunContext& context) {
  took_its_memory_ = false;
  Outcome outcome = Ask(c, context);
  // What it keeps is gone with it, and disturbs no later case.
  const bool ends =
      outcome.status == RunStatus::kCrashed || outcome.status == RunStatus::kLeftBehind;
  if (ends && process_) EndAndReap(/*dying=*/false);
  if (outcome.status != RunStatus::kSkipped || outcome.detail != kNoMemoryLeft) return outcome;
  if (answers_ == 1) return outcome;  // the case is too large
  const bool had_large_ones = largest_question_ > kLargeQuestion;
  EndAndReap(/*dying=*/false);
  Outcome anew = Ask(c, context);
  if (!anew.ok() || had_large_ones) return anew;
  return Bad(RunStatus::kCrashed, "uses up the memory of its process from call to call");
}

Outcome Worker::Ask(const Case& c, const RunContext& context) {
  if (!process_) {
    try {
      Start();
    } catch (const Unavailable& error) {
      return Bad(RunStatus::kCrashed,
                 "the worker could not be started again: " + std::string(error.what()));
    }
  }
  EncodeRun(c, context, payload_);
  largest_question_ = std::max(largest_question_, payload_.size());
  const uint64_t sequence = ++sequence_;
  const Result sent = channel_->Send(MessageKind::kRun, sequence, payload_, options_.time_limit_ms);
  // Received even if sending failed: a worker that died may have sent its trap before.
  const size_t answer_bytes_max =
      kHelloBytesMax +
      static_cast<size_t>(c.M * c.N) * (AlignmentOf(c.out_dtype) + SizeOf(DType::kS32));
  const size_t bytes_max = std::min(answer_bytes_max, kMessageBytesMax);
  const Result received =
      sent == Result::kTimeout ? channel_->Receive(bytes_max, 0) : Receive(bytes_max);
  if (received != Result::kOk) return Failed(received);
  ++answers_;
  if (channel_->header().kind == MessageKind::kTrap) {
    if (const std::optional<Trap> trap = DecodeTrap(channel_->payload())) {
      return FromTrap(*trap);
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
      EndAndReap(/*dying=*/false);
      if (!taken_.empty()) return Bad(RunStatus::kCrashed, taken_);
      return Bad(RunStatus::kHung,
                 "gave no answer within " + std::to_string(options_.time_limit_ms) + " ms");
    case Result::kClosed: {
      std::string how = EndAndReap(/*dying=*/true);
      if (WIFEXITED(status_) && WEXITSTATUS(status_) == kWorkerLostItsFiles)
        how = "closed the connection to qualm, as a loop over all files does";
      if (WIFSIGNALED(status_) && WTERMSIG(status_) == SIGXFSZ)
        how = std::string(kFilledAFile) + MemoryText(options_.memory_limit_bytes);
      return Bad(RunStatus::kCrashed, std::move(how));
    }
    case Result::kOk:
    case Result::kGarbage: break;
  }
  EndAndReap(/*dying=*/false);
  return Bad(RunStatus::kGarbage, "sent something that is no answer in the worker's protocol");
}

Outcome Worker::FromTrap(const Trap& trap) {
  EndAndReap(/*dying=*/true);
  const std::string signal_name = SignalName(trap.signal);
  std::string verb = "accessed";
  if (trap.access == Trap::Access::kRead) verb = "read";
  if (trap.access == Trap::Access::kWrite) verb = "wrote";
  const std::string buffer = CleanText(trap.buffer.data());
  if (buffer.empty()) {
    if (trap.access == Trap::Access::kProtection) {
      return Bad(RunStatus::kCrashed,
                 "killed by " + signal_name + ": misaligned or non-canonical address");
    }
    const bool addressed = trap.signal == SIGSEGV || trap.signal == SIGBUS;
    std::array<char, 32> address;
    std::snprintf(address.data(), address.size(), "0x%llx",
                  static_cast<unsigned long long>(trap.address));
    return Bad(
        RunStatus::kCrashed,
        "killed by " + signal_name + (addressed ? ": " + verb + " address " + address.data() : ""));
  }
  const bool before = trap.bytes_before > 0;
  const std::string where = before ? Bytes(trap.bytes_before) + " before the start of "
                                   : Bytes(trap.bytes_past) + " past the end of ";
  return Bad(RunStatus::kTouchedOutside, verb + " " + where + buffer + " (" + signal_name + ")");
}

std::string Worker::EndAndReap(bool dying) {
  socket_.Close();
  mailboxes_->to_worker().Wake();  // so that it sees that at once
  std::string how = process_->EndAndReap(dying);
  took_its_memory_ = process_->took_its_memory();
  status_ = process_->status();
  process_.reset();
  return how;
}

}  // namespace qualm
