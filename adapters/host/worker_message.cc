// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/worker_message.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
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
  // Type and elements; the shape follows from the case.
  void Put(const Tensor& tensor) {
    Put(tensor.dtype());
    List<uint8_t>(tensor.bytes());
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
  bool Flag() { return Enum<uint8_t>(1) != 0; }
  // An enum, or a small number, of one byte whose largest value is `max`.
  template <class E>
  E Enum(E max) {
    const auto value = Get<uint8_t>();
    if (value > static_cast<uint8_t>(max)) ok_ = false;
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
  std::string Text() {
    const std::vector<char> text = List<char>();
    return CleanText(std::string_view(text.data(), text.size()));
  }
  QParams GetQParams() {
    QParams q;
    q.scale = List<float>();
    q.zero_point = List<int32_t>();
    if (q.scale.empty() != q.zero_point.empty()) ok_ = false;
    return q;
  }
  Tensor GetTensor(std::vector<int64_t> shape) {
    const auto dtype = Enum(DType::kF32);
    const auto bytes = Get<uint64_t>();
    const int64_t count = ElementCount(shape, static_cast<int64_t>(kMessageBytesMax));
    if (count < 0 || bytes != static_cast<uint64_t>(count) * SizeOf(dtype) || bytes > rest_.size())
      ok_ = false;
    if (!ok_) return {};
    Tensor tensor(dtype, std::move(shape));
    if (bytes != 0) std::memcpy(tensor.bytes().data(), rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
    return tensor;
  }
  void Fail() { ok_ = false; }
  bool ok() const { return ok_; }
  bool Finished() const { return ok_ && rest_.empty(); }

 private:
  std::span<const uint8_t> rest_;
  bool ok_ = true;
};

template <class T>
void PutOptional(Writer& writer, const std::optional<std::vector<T>>& values) {
  writer.Put<bool>(values.has_value());
  if (values) writer.List<T>(*values);
}

template <class T>
std::optional<std::vector<T>> GetOptional(Reader& reader) {
  if (!reader.Flag()) return std::nullopt;
  return reader.List<T>();
}

void Put(Writer& writer, const Window& v) {
  for (const int64_t field :
       {v.batch, v.in_h, v.in_w, v.in_c, v.kernel_h, v.kernel_w, v.stride_h, v.stride_w, v.pad_top,
        v.pad_bottom, v.pad_left, v.pad_right, v.dilation_h, v.dilation_w, v.groups}) {
    writer.Put(field);
  }
  writer.Put(v.ceil_mode);
  writer.Put(v.count_include_pad);
}

Window GetWindow(Reader& reader) {
  Window v;
  for (int64_t* field : {&v.batch, &v.in_h, &v.in_w, &v.in_c, &v.kernel_h, &v.kernel_w, &v.stride_h,
                         &v.stride_w, &v.pad_top, &v.pad_bottom, &v.pad_left, &v.pad_right,
                         &v.dilation_h, &v.dilation_w, &v.groups}) {
    *field = reader.Get<int64_t>();
  }
  v.ceil_mode = reader.Flag();
  v.count_include_pad = reader.Flag();
  // The shape of the output divides by these; GetTensor looks at the others.
  if (v.stride_h < 1 || v.stride_w < 1 || v.groups < 1) reader.Fail();
  return v;
}

void Put(Writer& writer, const Observer& o) {
  writer.Put(o.kind);
  writer.Put(o.symmetric);
  writer.Put(o.reduce_range);
  writer.Put(o.dtype);
  writer.Put(o.quant_min);
  writer.Put(o.quant_max);
  writer.Put(o.averaging_constant);
}

Observer GetObserver(Reader& reader) {
  Observer o;
  o.kind = reader.Enum(Observer::Kind::kHistogram);
  o.symmetric = reader.Flag();
  o.reduce_range = reader.Flag();
  o.dtype = reader.Enum(DType::kF32);
  o.quant_min = reader.Get<int32_t>();
  o.quant_max = reader.Get<int32_t>();
  o.averaging_constant = reader.Get<float>();
  return o;
}

// What no other field tells of the shape of x: the columns of a concat's first input, the batches
// of choose_qparams.
int64_t HiddenSize(const Case& c) {
  if (c.op == Op::kConcat) return c.x.shape()[1];
  return c.op == Op::kChooseQParams ? c.x.shape()[0] : 0;
}

std::vector<int64_t> InputShape(const Case& c, int64_t hidden) {
  if (c.op == Op::kChooseQParams) return {hidden, c.M, c.N};
  if (HasWindow(c.op)) return {c.window.batch, c.window.in_h, c.window.in_w, c.window.in_c};
  if (c.op == Op::kConcat) return {c.M, hidden};
  return {c.M, c.op == Op::kLinear ? c.K : c.N};
}

std::vector<int64_t> WeightShape(const Case& c, int64_t hidden) {
  if (c.op == Op::kConcat) return {c.M, c.N - hidden};
  if (c.op == Op::kLinear) return {c.N, c.K};
  if (HasTwoOperands(c.op)) return {c.M, c.N};
  if (!IsConv(c.op)) return {0};
  const Window& v = c.window;
  return {c.N, v.kernel_h, v.kernel_w, v.in_c / v.groups};
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

std::string CleanText(std::string_view text) {
  std::string clean(text.substr(0, kPluginTextBytesMax));
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return clean;
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
}

std::optional<PluginInfo> DecodeInfo(std::span<const uint8_t> payload) {
  Reader reader(payload);
  PluginInfo info;
  for (std::string* text : {&info.name, &info.version, &info.contract, &info.instruction_set}) {
    *text = reader.Text();
  }
  for (std::optional<PluginLimits>& limits : info.limits) {
    const bool offered = reader.Flag();
    const auto value = reader.Get<PluginLimits>();
    if (offered) limits = value;
  }
  if (!reader.Finished()) return std::nullopt;
  return info;
}

void EncodeRun(const Case& c, const RunContext& context, std::vector<uint8_t>& payload) {
  Writer writer(payload);
  writer.Put(c.op);
  for (const int64_t dim : {c.M, c.N, c.K}) writer.Put(dim);
  Put(writer, c.window);
  Put(writer, c.observer);
  writer.Put(HiddenSize(c));
  writer.Put(c.x);
  writer.Put(c.w);
  for (const QParams* q : {&c.x_q, &c.w_q, &c.out_q}) writer.Put(*q);
  writer.Put(c.per_channel);
  writer.List<float>(c.multiplier);
  PutOptional(writer, c.bias);
  PutOptional(writer, c.bias_i32);
  writer.Put(c.out_dtype);
  writer.Put(c.out_min);
  writer.Put(c.out_max);
  writer.Put(c.relu);
  writer.Put(c.requant);
  writer.Put(c.function);
  writer.Put(c.negative_slope);

  writer.Put<int32_t>(context.align_offset);
  writer.Put(context.end_at_guard);
  writer.Put(context.poison);
  writer.Put(context.x_row_gap);
  writer.Put(context.y_row_gap);
  writer.Put(context.in_place);
  writer.Put<int32_t>(context.threads);
  writer.Put(context.rounding);
  writer.Put(context.flush_denormals);
  writer.Put(context.want_acc);
}

std::optional<RunRequest> DecodeRun(std::span<const uint8_t> payload) {
  Reader reader(payload);
  RunRequest request;
  Case& c = request.c;
  c.op = reader.Enum(Op::kChooseQParams);
  for (int64_t* dim : {&c.M, &c.N, &c.K}) *dim = reader.Get<int64_t>();
  c.window = GetWindow(reader);
  c.observer = GetObserver(reader);
  const auto hidden = reader.Get<int64_t>();
  if (c.op == Op::kConcat && (hidden < 0 || hidden > c.N)) reader.Fail();
  if (!reader.ok()) return std::nullopt;
  c.x = reader.GetTensor(InputShape(c, hidden));
  c.w = reader.GetTensor(WeightShape(c, hidden));
  for (QParams* q : {&c.x_q, &c.w_q, &c.out_q}) *q = reader.GetQParams();
  c.per_channel = reader.Flag();
  c.multiplier = reader.List<float>();
  c.bias = GetOptional<float>(reader);
  c.bias_i32 = GetOptional<int32_t>(reader);
  c.out_dtype = reader.Enum(DType::kF32);
  c.out_min = reader.Get<int32_t>();
  c.out_max = reader.Get<int32_t>();
  c.relu = reader.Flag();
  c.requant = reader.Enum(Requant::kFixedRndnu);
  c.function = reader.Enum(Function::kTanh);
  c.negative_slope = reader.Get<float>();

  RunContext& context = request.context;
  context.align_offset = reader.Get<int32_t>();
  context.end_at_guard = reader.Flag();
  context.poison = reader.Get<uint8_t>();
  context.x_row_gap = reader.Get<int64_t>();
  context.y_row_gap = reader.Get<int64_t>();
  context.in_place = reader.Flag();
  context.threads = reader.Get<int32_t>();
  context.rounding = reader.Enum(Rounding::kTowardZero);
  context.flush_denormals = reader.Flag();
  context.want_acc = reader.Flag();
  if (!reader.Finished()) return std::nullopt;
  return request;
}

void EncodeOutcome(const Outcome& outcome, std::vector<uint8_t>& payload) {
  Writer writer(payload);
  writer.Put(outcome.status);
  writer.Text(outcome.detail);
  if (!outcome.ok()) return;
  writer.Put(outcome.y);
  writer.Put<bool>(outcome.acc.has_value());
  if (outcome.acc) writer.Put(*outcome.acc);
}

std::optional<Outcome> DecodeOutcome(std::span<const uint8_t> payload, const Case& c) {
  Reader reader(payload);
  Outcome outcome;
  outcome.status = reader.Enum(RunStatus::kGarbage);
  outcome.detail = reader.Text();
  if (reader.ok() && outcome.ok()) {
    outcome.y = reader.GetTensor(c.output_shape());
    if (reader.Flag()) outcome.acc = reader.GetTensor(c.output_shape());
    if (outcome.y.dtype() != c.out_dtype) return std::nullopt;
    if (outcome.acc && outcome.acc->dtype() != DType::kS32) return std::nullopt;
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
  const auto deadline = DeadlineIn(deadline_ms);
  size_t sent = 0;
  const size_t total = sizeof header + payload.size();
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

MessageChannel::Result MessageChannel::Receive(size_t bytes_max, int deadline_ms) {
  constexpr size_t kFirstBytes = 64 * 1024;  // most messages arrive with one call
  const auto deadline = DeadlineIn(deadline_ms);
  header_.bytes = 0;
  if (buffer_.size() < kFirstBytes) buffer_.resize(kFirstBytes);
  size_t have = 0;
  size_t total = sizeof(MessageHeader);
  bool header_seen = false;
  while (have < total) {
    if (!WaitFor(fd_, POLLIN, deadline)) return Result::kTimeout;
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
