// SPDX-License-Identifier: Apache-2.0
// The messages between qualm and qualm-worker: length-prefixed and binary, one answer per request,
// through mailboxes in shared memory (mailbox.h). A socket carries messages too large for a
// mailbox, traps, and the end of either process. Both ends are built together and run on one
// machine, so numbers travel in native byte order. A reader trusts nothing, because foreign code
// shares the worker's address space and may have written to the socket itself.
#ifndef QUALM_ADAPTERS_HOST_WORKER_MESSAGE_H_
#define QUALM_ADAPTERS_HOST_WORKER_MESSAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/host/mailbox.h"
#include "adapters/host/plugin_limits.h"
#include "core/case.h"
#include "core/subject.h"

namespace qualm {

// The worker's end of the socket. stdin and stdout are not used: libraries print.
inline constexpr int kWorkerFd = 3;
// The memory of the mailboxes.
inline constexpr int kWorkerMemoryFd = 4;
// Exit status of a worker whose end of the socket somebody closed: foreign code, which may close
// whatever is open in its process.
inline constexpr int kWorkerLostItsFiles = 97;
// What a worker that died of SIGXFSZ did.
inline constexpr std::string_view kFilledAFile = "wrote a file longer than ";
// Longest message either side accepts, and so the largest problem a worker can be given.
inline constexpr size_t kMessageBytesMax = size_t{1} << 30;
// The worker's reason for a case that it has no memory for.
inline constexpr std::string_view kNoMemoryLeft =
    "the problem does not fit the worker's memory limit";
// Longest string a plugin may hand over, and longest contract, which may name each operation.
inline constexpr size_t kPluginTextBytesMax = 200;
inline constexpr size_t kContractBytesMax = 2000;

enum class MessageKind : uint32_t {
  kHello = 1,   // worker: PluginInfo
  kCannotLoad,  // worker: a sentence; the worker then exits
  kRun,         // qualm: Case and RunContext
  kAnswer,      // worker: Outcome
  kTrap,        // worker, from its signal handler: Trap; the worker then dies of the signal
};

struct MessageHeader {
  uint32_t magic = 0x374D4C51;  // "QLM7": raised with the layout of any message
  MessageKind kind = MessageKind::kHello;
  uint64_t sequence = 0;  // an answer carries its request's
  uint64_t bytes = 0;     // that follow
};
static_assert(sizeof(MessageHeader) == 24);

// The name, contract and limits of a plugin, as the plugin gave them.
struct PluginInfo {
  std::string name;
  std::string version;
  std::string contract;
  std::string instruction_set;
  std::array<std::optional<PluginLimits>, kOpCount> limits;  // by Op; nullopt: not offered
  std::array<std::string, kOpCount> domains;  // by Op: "x_scale 0.1 10; shape 1x64", "" for all
};

// A signal and the place that it touched. Plain data, because a signal handler writes it.
struct Trap {
  // kProtection: the CPU named no address (x86: si_code SI_KERNEL).
  enum class Access : int32_t { kUnknown, kRead, kWrite, kProtection };
  int32_t signal = 0;
  Access access = Access::kUnknown;
  uint64_t address = 0;
  std::array<char, 16> buffer{};  // "y"; empty if no buffer is near
  int64_t bytes_before = 0;       // > 0: so many before its first byte
  int64_t bytes_past = 0;         // > 0: so many past its last
};

// An outcome that is no answer, with its one sentence.
Outcome Bad(RunStatus status, std::string detail);

// Each writes the payload of one message, replacing what `payload` held.
void EncodeInfo(const PluginInfo& info, std::vector<uint8_t>& payload);
void EncodeRun(const Case& c, const RunContext& context, std::vector<uint8_t>& payload);
void EncodeOutcome(const Outcome& outcome, std::vector<uint8_t>& payload);

// Each gives nullopt for a payload that is not exactly what its encoder writes.
struct RunRequest {
  Case c;  // without property, note, expected and observed
  RunContext context;
};
std::optional<PluginInfo> DecodeInfo(std::span<const uint8_t> payload);
std::optional<RunRequest> DecodeRun(std::span<const uint8_t> payload);
std::optional<Trap> DecodeTrap(std::span<const uint8_t> payload);
// y and acc must have the type and shape that `c` asks for.
std::optional<Outcome> DecodeOutcome(std::span<const uint8_t> payload, const Case& c);

// One end of the connection. Never raises SIGPIPE. Does not own the fd and the mailboxes. Without
// mailboxes every message goes over the socket.
class MessageChannel {
 public:
  explicit MessageChannel(int fd, Mailbox* out = nullptr, Mailbox* in = nullptr)
      : fd_(fd), out_(out), in_(in) {}

  enum class Result : uint8_t { kOk, kClosed, kTimeout, kGarbage };

  // deadline_ms: for the whole message; -1 waits for ever.
  Result Send(MessageKind kind, uint64_t sequence, std::span<const uint8_t> payload,
              int deadline_ms);
  // kGarbage: not a message of ours, a message longer than `bytes_max`, or bytes behind it. Each
  // time `deadline_ms` have passed, `more` may give more milliseconds; 0 ends the wait.
  Result Receive(size_t bytes_max, int deadline_ms, const std::function<int()>& more = nullptr);

  // Of the last message received; valid until the next message is received.
  const MessageHeader& header() const { return header_; }
  std::span<const uint8_t> payload() const {
    return std::span(buffer_).subspan(sizeof(MessageHeader), header_.bytes);
  }

 private:
  // Is the next message in the mailbox, on the socket, or still to come?
  enum class Place : uint8_t { kMailbox, kSocket, kNowhere };
  Place Await(int deadline_ms);
  bool SocketSpeaks() const;  // or has ended
  bool Posted() const { return in_->posted.load(std::memory_order_acquire) != seen_; }
  Result ReceiveFromSocket(size_t bytes_max, int deadline_ms, const std::function<int()>& more);

  int fd_;
  Mailbox* out_;
  Mailbox* in_;
  uint32_t seen_ = 0;  // of in_->posted
  int patience_ = 0;   // looks at the mailbox before sleeping
  int naps_ = 0;       // since patience ran out
  MessageHeader header_;
  std::vector<uint8_t> buffer_;  // only grows
};

// Keeps printable ASCII and UTF-8, turns control characters into spaces, cuts at the limit.
std::string CleanText(std::string_view text, size_t most = kPluginTextBytesMax);
// The same for a contract. One that is too long becomes one that is none: cut off it might be
// another one.
std::string CleanContract(std::string_view text);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_WORKER_MESSAGE_H_
