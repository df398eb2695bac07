// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/worker_message.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <thread>
#include <type_traits>

namespace qualm {
namespace {

class Writer {
 public:
  explicit Writer(std::vector<uint8_t>& payload) : payload_(payload) { payload_.clear(); }

  template <class T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    Bytes(&value, sizeof value);
  }
  template <class T>
  void List(std::span<const T> values) {
    Put<uint64_t>(values.size());
    Bytes(values.data(), values.size_bytes());
  }
  void Text(std::string_view text) { List(std::span<const char>(text)); }
  void Put(const QParams& q) {
    List<float>(q.scale);
    List<int32_t>(q.zero_point);
  }
  void Put(const Tensor& tensor) {
    Put(tensor.dtype());
    List<int64_t>(tensor.shape());
    List<uint8_t>(tensor.bytes());
  }
  template <class T>
  void Put(const std::vector<T>& values) {
    List<T>(values);
  }
  template <class T>
  void Put(const std::optional<T>& value) {
    Put<bool>(value.has_value());
    if (value) Put(*value);
  }

 private:
  void Bytes(const void* from, size_t count) {
    const auto* bytes = static_cast<const uint8_t*>(from);
    payload_.insert(payload_.end(), bytes, bytes + count);
  }
  std::vector<uint8_t>& payload_;
};

// Once something is missing or wrong, ok() stays false and every value read is zero or empty.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> payload) : rest_(payload) {}

  template <class T>
  T Get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (ok_ && rest_.size() >= sizeof value) {
      std::memcpy(&value, rest_.data(), sizeof value);
      rest_ = rest_.subspan(sizeof value);
    } else {
      ok_ = false;
    }
    return value;
  }
  void Get(bool& value) { value = Below<uint8_t>(2) != 0; }
  void Get(Op& op) { op = Below<Op>(kOpCount); }
  void Get(DType& dtype) { dtype = Below<DType>(kDTypeCount); }
  void Get(Rounding& mode) {
    mode = Below<Rounding>(static_cast<size_t>(Rounding::kTowardZero) + 1);
  }
  template <NamedEnum E>
  void Get(E& value) {
    value = Below<E>(CountOf<E>());
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  void Get(T& value) {
    value = Get<T>();
  }
  template <class T>
  void Get(std::vector<T>& list) {
    list = List<T>();
  }
  template <class T>
  void Get(std::optional<T>& value) {
    value.reset();
    if (Flag()) Get(value.emplace());
  }
  void Get(QParams& q) {
    q.scale = List<float>();
    q.zero_point = List<int32_t>();
    if (q.scale.empty() != q.zero_point.empty()) ok_ = false;
  }
  void Get(Tensor& tensor) {
    DType dtype{};
    Get(dtype);
    std::vector<int64_t> shape = List<int64_t>();
    const auto bytes = Get<uint64_t>();
    const int64_t count = ElementCount(shape, static_cast<int64_t>(kMessageBytesMax));
    const bool negative = std::ranges::any_of(shape, [](int64_t dim) { return dim < 0; });
    if (shape.empty() || negative || count < 0 ||
        bytes != BytesFor(dtype, static_cast<size_t>(count)) || bytes > rest_.size())
      ok_ = false;
    if (!ok_) return;
    tensor = Tensor(dtype, std::move(shape));
    if (bytes != 0) std::memcpy(tensor.bytes().data(), rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
  }

  bool Flag() { return Below<uint8_t>(2) != 0; }
  // An enumeration, or a small number, of one byte.
  template <class E>
  E Below(size_t count) {
    const auto value = Get<uint8_t>();
    if (value >= count) ok_ = false;
    return ok_ ? static_cast<E>(value) : E{};
  }
  template <class T>
  std::vector<T> List() {
    std::vector<T> values;
    const auto count = Get<uint64_t>();
    if (count > rest_.size() / sizeof(T)) ok_ = false;  // before anything is allocated
    if (!ok_ || count == 0) return values;
    values.resize(static_cast<size_t>(count));
    std::memcpy(values.data(), rest_.data(), values.size() * sizeof(T));
    rest_ = rest_.subspan(values.size() * sizeof(T));
    return values;
  }
  std::string Text(size_t most = kPluginTextBytesMax) {
    const std::vector<char> text = List<char>();
    return CleanText(std::string_view(text.data(), text.size()), most);
  }
  bool ok() const { return ok_; }
  bool Finished() const { return ok_ && rest_.empty(); }

 private:
  std::span<const uint8_t> rest_;
  bool ok_ = true;
};

// Do x and w have the shapes that the sizes of the case say? The sizes of a hostile message are any
// numbers, and the shape of w divides by the groups.
bool ShapesFollow(const Case& c) {
  const Window& v = c.window;
  if (v.stride_h < 1 || v.stride_w < 1 || v.groups < 1) return false;
  if (c.M < 0 || c.N < 0 || c.K < 0) return false;
  return c.x.shape() == ShapeOfX(c) && c.w.shape() == ShapeOfW(c);
}

using Clock = std::chrono::steady_clock;

// Milliseconds until `deadline` for poll(), rounded up so that it does not spin at the end.
int Remaining(const std::optional<Clock::time_point>& deadline) {
  if (!deadline) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

std::optional<Clock::time_point> DeadlineIn(int ms) {
  if (ms < 0) return std::nullopt;
  return Clock::now() + std::chrono::milliseconds(ms);
}

// Waits until the socket can do `event`. Errors of the socket itself show in the next call on it.
bool WaitFor(int fd, short event, const std::optional<Clock::time_point>& deadline) {
  for (;;) {
    pollfd entry{.fd = fd, .events = event, .revents = 0};
    const int ready = poll(&entry, 1, Remaining(deadline));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return true;
  }
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

std::string CleanText(std::string_view text, size_t most) {
  std::string clean(text.substr(0, most));
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return clean;
}

std::string CleanContract(std::string_view text) {
  return text.size() <= kContractBytesMax ? CleanText(text, kContractBytesMax)
                                          : "a text of more than 2000 bytes";
}

Outcome Bad(RunStatus status, std::string detail) {
  Outcome outcome;
  outcome.status = status;
  outcome.detail = std::move(detail);
  return outcome;
}

void EncodeInfo(const PluginInfo& info, std::vector<uint8_t>& payload) {
  Writer writer(payload);
  for (const std::string* text :
       {&info.name, &info.version, &info.contract, &info.instruction_set}) {
    writer.Text(*text);
  }
  for (const std::optional<PluginLimits>& limits : info.limits) {
    writer.Put<bool>(limits.has_value());
    writer.Put(limits.value_or(PluginLimits{}));
  }
  for (const std::string& domain : info.domains) writer.Text(domain);
}

std::optional<PluginInfo> DecodeInfo(std::span<const uint8_t> payload) {
  Reader reader(payload);
  PluginInfo info;
  info.name = reader.Text();
  info.version = reader.Text();
  info.contract = reader.Text(kContractBytesMax);
  info.instruction_set = reader.Text();
  for (std::optional<PluginLimits>& limits : info.limits) {
    const bool offered = reader.Flag();
    const auto value = reader.Get<PluginLimits>();
    if (offered) limits = value;
  }
  for (std::string& domain : info.domains) domain = reader.Text(kContractBytesMax);
  if (!reader.Finished()) return std::nullopt;
  return info;
}

void EncodeRun(const Case& c, const RunContext& context, std::vector<uint8_t>& payload) {
  Writer writer(payload);
  ForEachField(c, [&](const Field& /*field*/, const auto& value) { writer.Put(value); });
  std::apply([&](const auto&... states) { (writer.Put(states), ...); }, StatesOf(context));
}

std::optional<RunRequest> DecodeRun(std::span<const uint8_t> payload) {
  Reader reader(payload);
  RunRequest request;
  Case& c = request.c;
  ForEachField(c, [&](const Field& /*field*/, auto& value) { reader.Get(value); });
  if (!reader.ok() || !ShapesFollow(c)) return std::nullopt;

  std::apply([&](auto&... states) { (reader.Get(states), ...); }, StatesOf(request.context));
  if (!reader.Finished()) return std::nullopt;
  return request;
}

void EncodeOutcome(const Outcome& outcome, std::vector<uint8_t>& payload) {
  Writer writer(payload);
  writer.Put(outcome.status);
  writer.Text(outcome.detail);
  if (!outcome.ok()) return;
  writer.Put(outcome.y);
  writer.Put(outcome.acc);
}

std::optional<Outcome> DecodeOutcome(std::span<const uint8_t> payload, const Case& c) {
  Reader reader(payload);
  Outcome outcome;
  outcome.status = reader.Below<RunStatus>(static_cast<size_t>(RunStatus::kLeftBehind) + 1);
  outcome.detail = reader.Text();
  if (reader.ok() && outcome.ok()) {
    reader.Get(outcome.y);
    reader.Get(outcome.acc);
    const auto fits = [&](const Tensor& y, DType dtype) {
      return y.dtype() == dtype && y.shape() == c.output_shape();
    };
    if (!fits(outcome.y, c.out_dtype)) return std::nullopt;
    if (outcome.acc && !fits(*outcome.acc, DType::kS32)) return std::nullopt;
  }
  if (!reader.Finished()) return std::nullopt;
  return outcome;
}

std::optional<Trap> DecodeTrap(std::span<const uint8_t> payload) {
  Reader reader(payload);
  auto trap = reader.Get<Trap>();
  trap.buffer.back() = '\0';
  if (!reader.Finished()) return std::nullopt;
  return trap;
}

MessageChannel::Result MessageChannel::Send(MessageKind kind, uint64_t sequence,
                                            std::span<const uint8_t> payload, int deadline_ms) {
  MessageHeader header{.kind = kind, .sequence = sequence, .bytes = payload.size()};
  const size_t total = sizeof header + payload.size();
  if (out_ != nullptr) {
    // The header alone says that the message comes over the socket.
    std::memcpy(out_->message.data(), &header, sizeof header);
    const bool fits = total <= Mailbox::kBytesMax;
    if (fits && !payload.empty())
      std::memcpy(out_->message.data() + sizeof header, payload.data(), payload.size());
    out_->Post();
    if (fits) return Result::kOk;
  }
  const auto deadline = DeadlineIn(deadline_ms);
  size_t sent = 0;
  while (sent < total) {
    // sendmsg only reads through these pointers.
    std::array<iovec, 2> parts{};
    size_t count = 0;
    if (sent < sizeof header) {
      parts[count++] = {reinterpret_cast<uint8_t*>(&header) + sent, sizeof header - sent};
    }
    const size_t body = sent < sizeof header ? 0 : sent - sizeof header;
    if (body < payload.size()) {
      parts[count++] = {const_cast<uint8_t*>(payload.data()) + body, payload.size() - body};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t done = sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done >= 0) {
      sent += static_cast<size_t>(done);
    } else if (WouldBlock(errno)) {
      if (!WaitFor(fd_, POLLOUT, deadline)) return Result::kTimeout;
    } else if (errno != EINTR) {
      return Result::kClosed;
    }
  }
  return Result::kOk;
}

namespace {

// A wake-up takes longer than a small answer: looking at the mailbox so often comes first, where
// the other process has a processor to itself.
int MostPatience() {
  static const int looks = std::thread::hardware_concurrency() > 1 ? 400 : 0;
  return looks;
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

bool MessageChannel::SocketSpeaks() const {
  pollfd socket{.fd = fd_, .events = POLLIN, .revents = 0};
  return poll(&socket, 1, 0) > 0;
}

MessageChannel::Place MessageChannel::Await(int deadline_ms) {
  constexpr int kNapsWithoutLooking = 64;  // then it is tried again
  if (patience_ == 0 && ++naps_ % kNapsWithoutLooking == 1) patience_ = MostPatience();
  for (int looks = 0; looks < patience_; ++looks) {
    if (!Posted()) {
      Pause();
      continue;
    }
    patience_ = MostPatience();
    return Place::kMailbox;
  }
  patience_ /= 2;
  const auto deadline = DeadlineIn(deadline_ms);
  // Only a process that lives can wake this one. So now and then look whether the socket has ended.
  constexpr int kLongestNapMs = 64;
  for (int nap_ms = 1;; nap_ms = std::min(2 * nap_ms, kLongestNapMs)) {
    const int left = Remaining(deadline);
    if (!Posted()) in_->WaitPast(seen_, left < 0 ? nap_ms : std::min(nap_ms, left));
    if (Posted()) return Place::kMailbox;
    if (SocketSpeaks()) return Posted() ? Place::kMailbox : Place::kSocket;
    if (left == 0) return Place::kNowhere;
  }
}

MessageChannel::Result MessageChannel::Receive(size_t bytes_max, int deadline_ms,
                                               const std::function<int()>& more) {
  header_.bytes = 0;
  if (in_ == nullptr) return ReceiveFromSocket(bytes_max, deadline_ms, more);
  Place place = Await(deadline_ms);
  while (place == Place::kNowhere) {
    deadline_ms = more ? more() : 0;
    if (deadline_ms == 0) return Result::kTimeout;
    place = Await(deadline_ms);
  }
  if (place == Place::kSocket) return ReceiveFromSocket(bytes_max, deadline_ms, more);
  ++seen_;
  // Read once and copied, because a check holds only for bytes that cannot change after it.
  MessageHeader header;
  std::memcpy(&header, in_->message.data(), sizeof header);
  if (header.magic != MessageHeader{}.magic || header.bytes > bytes_max) return Result::kGarbage;
  const size_t total = sizeof header + static_cast<size_t>(header.bytes);
  // Beside a message in the mailbox nobody says anything on the socket, but foreign code might. It
  // ends behind the sentence of a worker that leaves.
  const bool speaks = header.kind != MessageKind::kCannotLoad && SocketSpeaks();
  if (total > Mailbox::kBytesMax || speaks) return ReceiveFromSocket(bytes_max, deadline_ms, more);
  if (buffer_.size() < total) buffer_.resize(total);
  std::memcpy(buffer_.data(), in_->message.data(), total);
  header_ = header;
  return Result::kOk;
}

MessageChannel::Result MessageChannel::ReceiveFromSocket(size_t bytes_max, int deadline_ms,
                                                         const std::function<int()>& more) {
  constexpr size_t kFirstBytes = 64 * 1024;  // most messages arrive with one call
  auto deadline = DeadlineIn(deadline_ms);
  header_.bytes = 0;
  if (buffer_.size() < kFirstBytes) buffer_.resize(kFirstBytes);
  size_t have = 0;
  size_t total = sizeof(MessageHeader);
  bool header_seen = false;
  while (have < total) {
    if (!WaitFor(fd_, POLLIN, deadline)) {
      const int more_ms = more ? more() : 0;
      if (more_ms == 0) return Result::kTimeout;
      deadline = DeadlineIn(more_ms);
      continue;
    }
    const ssize_t got = recv(fd_, buffer_.data() + have, buffer_.size() - have, MSG_DONTWAIT);
    if (got == 0) return have == 0 ? Result::kClosed : Result::kGarbage;
    if (got < 0) {
      if (errno == EINTR || WouldBlock(errno)) continue;
      return Result::kClosed;
    }
    have += static_cast<size_t>(got);
    if (!header_seen && have >= sizeof(MessageHeader)) {
      header_seen = true;
      MessageHeader header;
      std::memcpy(&header, buffer_.data(), sizeof header);
      if (header.magic != MessageHeader{}.magic || header.bytes > bytes_max)
        return Result::kGarbage;
      header_ = header;
      total += static_cast<size_t>(header.bytes);
      if (buffer_.size() < total) buffer_.resize(total);
    }
  }
  return have == total ? Result::kOk : Result::kGarbage;
}

}  // namespace qualm
