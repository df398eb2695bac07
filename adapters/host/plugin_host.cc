// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/plugin_host.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "core/status.h"

namespace qualm {
namespace {

// The C header and core/types.h number the same things.
static_assert(QUALM_U8 == static_cast<int>(DType::kU8) &&
              QUALM_S8 == static_cast<int>(DType::kS8) &&
              QUALM_S32 == static_cast<int>(DType::kS32) &&
              QUALM_F32 == static_cast<int>(DType::kF32));
static_assert(QUALM_QUANTIZE == static_cast<int>(Op::kQuantize) &&
              QUALM_DEQUANTIZE == static_cast<int>(Op::kDequantize) &&
              QUALM_REQUANTIZE == static_cast<int>(Op::kRequantize) &&
              QUALM_LINEAR == static_cast<int>(Op::kLinear) &&
              QUALM_CONV2D == static_cast<int>(Op::kConv2d) &&
              QUALM_DEPTHWISE == static_cast<int>(Op::kDepthwise) &&
              QUALM_ADD == static_cast<int>(Op::kAdd) && QUALM_MUL == static_cast<int>(Op::kMul) &&
              QUALM_MAX_POOL == static_cast<int>(Op::kMaxPool) &&
              QUALM_AVG_POOL == static_cast<int>(Op::kAvgPool) &&
              QUALM_GLOBAL_AVG_POOL == static_cast<int>(Op::kGlobalAvgPool) &&
              QUALM_RESCALE == static_cast<int>(Op::kRescale) &&
              QUALM_CONCAT == static_cast<int>(Op::kConcat) &&
              QUALM_TABLE == static_cast<int>(Op::kTable) &&
              QUALM_SOFTMAX == static_cast<int>(Op::kSoftmax));
static_assert(QUALM_RELU == static_cast<int>(Function::kRelu) &&
              QUALM_LEAKY_RELU == static_cast<int>(Function::kLeakyRelu) &&
              QUALM_HARD_SWISH == static_cast<int>(Function::kHardSwish) &&
              QUALM_SIGMOID == static_cast<int>(Function::kSigmoid) &&
              QUALM_TANH == static_cast<int>(Function::kTanh));

// Sizes above this are not a newer header but garbage.
constexpr size_t kStructBytesMax = 4096;

// What the signal handler knows of the buffers in use. Written between calls only.
struct KnownBuffer {
  const char* name = nullptr;
  uintptr_t begin = 0;
  size_t bytes = 0;
};
std::array<KnownBuffer, 16> known_buffers;
volatile sig_atomic_t known_count = 0;
volatile sig_atomic_t trap_fd = -1;

void ClassifyAddress(uintptr_t address, Trap& trap) {
  // A stray access this near is laid to the buffer; guard pages are 4 KiB.
  constexpr uintptr_t kNear = 64 * 1024;
  uintptr_t nearest = kNear;
  for (int i = 0; i < known_count; ++i) {
    const KnownBuffer& buffer = known_buffers[static_cast<size_t>(i)];
    const uintptr_t end = buffer.begin + buffer.bytes;
    const bool before = address < buffer.begin;
    if (!before && address < end) continue;
    const uintptr_t distance = before ? buffer.begin - address : address - end + 1;
    if (distance >= nearest) continue;
    nearest = distance;
    trap.buffer = {};
    for (size_t at = 0; at + 1 < trap.buffer.size() && buffer.name[at] != '\0'; ++at) {
      trap.buffer[at] = buffer.name[at];
    }
    trap.bytes_before = before ? static_cast<int64_t>(distance) : 0;
    trap.bytes_past = before ? 0 : static_cast<int64_t>(distance);
  }
}

extern "C" void OnTrap(int number, siginfo_t* info, void* context) {
  Trap trap;
  trap.signal = number;
  trap.address = reinterpret_cast<uintptr_t>(info->si_addr);
#if defined(__x86_64__)
  // Page fault error code, bit 1: a write (Intel SDM volume 3, 4.7).
  if (number == SIGSEGV) {
    const auto* state = static_cast<const ucontext_t*>(context);
    const bool write = (state->uc_mcontext.gregs[REG_ERR] & 2) != 0;
    trap.access = write ? Trap::Access::kWrite : Trap::Access::kRead;
  }
#else
  (void)context;
#endif
  if (number == SIGSEGV || number == SIGBUS) ClassifyAddress(trap.address, trap);
  const MessageHeader header{.kind = MessageKind::kTrap, .sequence = 0, .bytes = sizeof trap};
  std::array<uint8_t, sizeof header + sizeof trap> message;
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, &trap, sizeof trap);
  // If this fails there is nobody to tell; the signal below still does.
  const ssize_t ignored = send(trap_fd, message.data(), message.size(), MSG_NOSIGNAL);
  (void)ignored;
  signal(number, SIG_DFL);
  raise(number);  // blocked until the handler returns, then fatal
}

std::string TextOf(const char* text) {
  if (text == nullptr) return "";
  return CleanText(std::string_view(text, strnlen(text, kPluginTextBytesMax)));
}

[[noreturn]] void Reject(const std::string& what) { throw Unavailable(what); }

PluginLimits ReadLimits(Op op, const qualm_capability& c) {
  const std::string of = "capability of " + std::string(Name(op)) + ": ";
  if (c.size < sizeof(qualm_capability) || c.size > kStructBytesMax) {
    Reject(of + "size is " + std::to_string(c.size) + ", expected " +
           std::to_string(sizeof(qualm_capability)) + " (sizeof)");
  }
  const PluginLimits limits{.x_dtypes = c.x_dtypes,
                            .w_dtypes = c.w_dtypes,
                            .out_dtypes = c.out_dtypes,
                            .features = c.features,
                            .m_max = c.m_max,
                            .n_max = c.n_max,
                            .k_max = c.k_max,
                            .n_multiple = c.n_multiple,
                            .k_multiple = c.k_multiple,
                            .x_zero_point_min = c.x_zero_point_min,
                            .x_zero_point_max = c.x_zero_point_max,
                            .w_zero_point_min = c.w_zero_point_min,
                            .w_zero_point_max = c.w_zero_point_max,
                            .out_zero_point_min = c.out_zero_point_min,
                            .out_zero_point_max = c.out_zero_point_max,
                            .read_slack_bytes = c.read_slack_bytes,
                            .alignment_bytes = c.alignment_bytes};
  if (std::string wrong = WrongLimits(limits); !wrong.empty()) Reject(of + wrong);
  return limits;
}

// `gap` elements between the rows of the last dimension.
qualm_tensor Strided(DType dtype, const std::vector<int64_t>& shape, int64_t gap, void* data) {
  qualm_tensor tensor{};
  tensor.size = sizeof tensor;
  tensor.dtype = static_cast<int32_t>(dtype);
  tensor.rank = static_cast<int32_t>(shape.size());
  tensor.data = data;
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    tensor.dims[i] = shape[i];
    tensor.strides[i] = stride;
    stride = i + 1 == shape.size() ? shape[i] + gap : stride * shape[i];
  }
  return tensor;
}

size_t StridedBytes(DType dtype, const std::vector<int64_t>& shape, int64_t gap) {
  const Rows rows = RowsOf(shape);
  return ScatteredBytes(dtype, rows.count, rows.columns, gap);
}

qualm_window WindowOf(const Window& v) {
  return {.size = sizeof(qualm_window),
          .kernel_h = v.kernel_h,
          .kernel_w = v.kernel_w,
          .stride_h = v.stride_h,
          .stride_w = v.stride_w,
          .pad_top = v.pad_top,
          .pad_bottom = v.pad_bottom,
          .pad_left = v.pad_left,
          .pad_right = v.pad_right,
          .dilation_h = v.dilation_h,
          .dilation_w = v.dilation_w,
          .groups = v.groups,
          .ceil_mode = v.ceil_mode ? 1 : 0,
          .count_include_pad = v.count_include_pad ? 1 : 0};
}

}  // namespace

const std::array<const char*, PluginHost::kSlots> PluginHost::kSlotNames{
    "x",      "w",          "x_scale", "x_zp",     "w_scale", "w_zp", "out_scale",
    "out_zp", "multiplier", "bias",    "bias_i32", "y",       "acc"};

PluginHost::PluginHost(const std::string& path) {
  // RTLD_NOW: a missing symbol is a sentence here, not a crash later.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    Reject("cannot be loaded: " + TextOf(why));
  }
  void* const symbol = dlsym(library, "qualm_plugin_entry");
  if (symbol == nullptr) Reject("exports no qualm_plugin_entry (see adapters/qualm_plugin.h)");
  plugin_ = reinterpret_cast<decltype(&qualm_plugin_entry)>(symbol)();
  if (plugin_ == nullptr) Reject("qualm_plugin_entry returned NULL");
  if (plugin_->size < offsetof(qualm_plugin, reserved) || plugin_->size > kStructBytesMax) {
    Reject("qualm_plugin.size is " + std::to_string(plugin_->size) + ", expected " +
           std::to_string(sizeof(qualm_plugin)) + " (sizeof)");
  }
  if (plugin_->abi_version != QUALM_ABI_VERSION) {
    Reject("was built for version " + std::to_string(plugin_->abi_version) +
           " of the plugin interface, this is version " + std::to_string(QUALM_ABI_VERSION) +
           ": rebuild it with this qualm's qualm_plugin.h");
  }
  if (plugin_->size < sizeof(qualm_plugin)) {
    Reject("qualm_plugin.size is " + std::to_string(plugin_->size) + ", expected " +
           std::to_string(sizeof(qualm_plugin)) + " (sizeof)");
  }
  if (plugin_->capability == nullptr)
    Reject("qualm_plugin.capability is NULL, expected a function");
  if (plugin_->run == nullptr) Reject("qualm_plugin.run is NULL, expected a function");
  if (plugin_->last_error == nullptr)
    Reject("qualm_plugin.last_error is NULL, expected a function");
  info_.name = TextOf(plugin_->name);
  if (info_.name.empty()) Reject("qualm_plugin.name is empty");
  info_.version = TextOf(plugin_->version);
  info_.contract = plugin_->contract == nullptr ? "exact" : TextOf(plugin_->contract);
  info_.instruction_set = TextOf(plugin_->instruction_set);
  for (const Op op : AllOps()) {
    if (op == Op::kChooseQParams) continue;  // qualm_problem has no place for an observer
    const qualm_capability* limits = plugin_->capability(static_cast<int32_t>(op));
    if (limits != nullptr) info_.limits[static_cast<size_t>(op)] = ReadLimits(op, *limits);
  }
}

uint8_t* PluginHost::Lay(Slot slot, size_t bytes, size_t element_bytes, const PluginLimits& limits,
                         const RunContext& context) {
  const size_t alignment =
      std::max(element_bytes, static_cast<size_t>(std::max(limits.alignment_bytes, 1)));
  uint8_t* const data = buffers_[slot].Prepare(bytes, static_cast<size_t>(limits.read_slack_bytes),
                                               alignment, context);
  bytes_[slot] = bytes;
  used_[slot] = true;
  const auto at = static_cast<size_t>(known_count);
  known_buffers[at] = {kSlotNames[slot], reinterpret_cast<uintptr_t>(data), bytes};
  known_count = known_count + 1;
  return data;
}

template <class T>
const T* PluginHost::LayList(Slot slot, const std::vector<T>& values, const PluginLimits& limits,
                             const RunContext& context) {
  const size_t bytes = values.size() * sizeof(T);
  uint8_t* const data = Lay(slot, bytes, sizeof(T), limits, context);
  if (bytes != 0) std::memcpy(data, values.data(), bytes);
  return reinterpret_cast<const T*>(data);
}

qualm_qparams PluginHost::LayQParams(Slot scale_slot, const QParams& q, const PluginLimits& limits,
                                     const RunContext& context) {
  const auto zero_point_slot = static_cast<Slot>(scale_slot + 1);
  return {.size = sizeof(qualm_qparams),
          .count = static_cast<int64_t>(q.scale.size()),
          .scale = LayList(scale_slot, q.scale, limits, context),
          .zero_point = LayList(zero_point_slot, q.zero_point, limits, context)};
}

Outcome PluginHost::Run(const Case& c, const RunContext& context) {
  const std::optional<PluginLimits>& offered = info_.limits[static_cast<size_t>(c.op)];
  if (!offered) return Bad(RunStatus::kSkipped, "operation not offered");
  const PluginLimits& limits = *offered;
  if (std::string why = OutsideLimits(limits, c, context); !why.empty()) {
    return Bad(RunStatus::kSkipped, std::move(why));
  }

  known_count = 0;
  used_ = {};
  uint8_t* const x_data = Lay(kX, StridedBytes(c.x.dtype(), c.x.shape(), context.x_row_gap),
                              SizeOf(c.x.dtype()), limits, context);
  Scatter(c.x, context.x_row_gap, x_data);
  const qualm_tensor x = Strided(c.x.dtype(), c.x.shape(), context.x_row_gap, x_data);
  const bool two = HasTwoInputs(c.op);
  const bool has_w = HasSums(c.op) || two;
  qualm_tensor w{};
  if (has_w) {
    // The second operand is laid out like the first; weights are dense.
    const int64_t gap = two ? context.x_row_gap : 0;
    uint8_t* const w_data =
        Lay(kW, StridedBytes(c.w.dtype(), c.w.shape(), gap), SizeOf(c.w.dtype()), limits, context);
    Scatter(c.w, gap, w_data);
    w = Strided(c.w.dtype(), c.w.shape(), gap, w_data);
  }
  const qualm_window window = WindowOf(c.window);

  qualm_problem problem{};
  problem.size = sizeof problem;
  problem.op = static_cast<int32_t>(c.op);
  problem.relu = c.relu ? 1 : 0;
  problem.x = &x;
  problem.w = has_w ? &w : nullptr;
  problem.window = HasWindow(c.op) ? &window : nullptr;
  problem.function = static_cast<int32_t>(c.function);
  problem.negative_slope = c.negative_slope;
  problem.per_channel = c.per_channel ? 1 : 0;
  problem.x_q = LayQParams(kXScale, c.x_q, limits, context);
  problem.w_q = LayQParams(kWScale, c.w_q, limits, context);
  problem.out_q = LayQParams(kOutScale, c.out_q, limits, context);
  if (!c.multiplier.empty()) {
    problem.multiplier = LayList(kMultiplier, c.multiplier, limits, context);
    problem.multiplier_count = static_cast<int64_t>(c.multiplier.size());
  }
  if (c.bias) problem.bias = LayList(kBias, *c.bias, limits, context);
  if (c.bias_i32) problem.bias_i32 = LayList(kBiasI32, *c.bias_i32, limits, context);
  problem.out_min = c.out_min;
  problem.out_max = c.out_max;

  const std::vector<int64_t> y_shape = c.output_shape();
  const Slot y_slot = context.in_place ? kX : kY;
  const int64_t y_gap = context.in_place ? context.x_row_gap : context.y_row_gap;
  if (!context.in_place) {
    Lay(kY, StridedBytes(c.out_dtype, y_shape, y_gap), SizeOf(c.out_dtype), limits, context);
  }
  const qualm_tensor y = Strided(c.out_dtype, y_shape, y_gap, buffers_[y_slot].data());
  problem.y = &y;
  qualm_tensor acc{};
  if (context.want_acc && HasSums(c.op) && (limits.features & QUALM_CAN_ACC) != 0) {
    const size_t acc_bytes = StridedBytes(DType::kS32, y_shape, 0);
    acc = Strided(DType::kS32, y_shape, 0, Lay(kAcc, acc_bytes, 4, limits, context));
    problem.acc = &acc;
  }
  for (size_t slot = 0; slot < kInputs; ++slot) {
    if (!used_[slot]) continue;
    const uint8_t* from = buffers_[slot].data();
    before_[slot].assign(from, from + bytes_[slot]);
  }

  Outcome called = Call(problem, context);
  Outcome inspected = Inspect(c, context);
  // Damage is the graver news, and what was computed next to it is worth nothing.
  if (!inspected.ok()) return inspected;
  if (!called.ok()) return called;
  called.y = Gather(c.out_dtype, y_shape, y_gap, buffers_[y_slot].data());
  if (problem.acc != nullptr) {
    called.acc = Gather(DType::kS32, y_shape, 0, buffers_[kAcc].data());
  }
  return called;
}

Outcome PluginHost::Call(const qualm_problem& problem, const RunContext& context) {
  int32_t answer = QUALM_OK;
  try {
    const ScopedEnvironment environment(context);
    answer = plugin_->run(&problem);
  } catch (const std::exception& error) {
    return Bad(RunStatus::kCrashed,
               "let a C++ exception escape from run(): " + TextOf(error.what()));
  } catch (...) {
    return Bad(RunStatus::kCrashed, "let an exception escape from run()");
  }
  if (answer == QUALM_OK) return {};
  if (answer != QUALM_UNSUPPORTED && answer != QUALM_FAILED) {
    return Bad(RunStatus::kGarbage, "run() answered " + std::to_string(answer) +
                                        ", which the interface does not define");
  }
  std::string why = TextOf(plugin_->last_error());
  if (why.empty()) why = "gave no reason";
  return Bad(answer == QUALM_UNSUPPORTED ? RunStatus::kSkipped : RunStatus::kRefused,
             std::move(why));
}

Outcome PluginHost::Inspect(const Case& c, const RunContext& context) {
  for (size_t slot = 0; slot < kSlots; ++slot) {
    if (used_[slot] && !buffers_[slot].OutsideIntact()) {
      return Bad(RunStatus::kTouchedOutside, "wrote outside " + std::string(kSlotNames[slot]) +
                                                 ": the pattern around the buffer has changed");
    }
  }
  const int64_t y_gap = context.in_place ? context.x_row_gap : context.y_row_gap;
  const uint8_t* const y = buffers_[context.in_place ? kX : kY].data();
  if (!GapsIntact(c.out_dtype, c.M, c.N, y_gap, context.poison, y)) {
    return Bad(RunStatus::kTouchedOutside, "wrote into the gap between two rows of y");
  }
  for (size_t slot = context.in_place ? kX + 1 : kX; slot < kInputs; ++slot) {
    if (!used_[slot]) continue;
    const uint8_t* now = buffers_[slot].data();
    const std::vector<uint8_t>& before = before_[slot];
    if (before.empty() || std::memcmp(now, before.data(), before.size()) == 0) continue;
    size_t at = 0;
    while (now[at] == before[at]) ++at;
    return Bad(RunStatus::kModifiedInput, "changed its input " + std::string(kSlotNames[slot]) +
                                              " at byte " + std::to_string(at));
  }
  return {};
}

void ReportTrapsTo(int fd) {
  trap_fd = fd;
  // A stack of its own: a stack overflow is a trap as well. 64 KiB hold the AVX-512 and AMX state.
  constexpr size_t kStackBytes = 64 * 1024;
  static const std::unique_ptr<char[]> memory = std::make_unique<char[]>(kStackBytes);
  stack_t stack{};
  stack.ss_sp = memory.get();
  stack.ss_size = kStackBytes;
  sigaltstack(&stack, nullptr);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction action{};
    action.sa_sigaction = OnTrap;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, nullptr);
  }
}

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QUALM_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define QUALM_SANITIZED 1
#endif
#endif

// Sanitizers reserve terabytes of address space, so under them there is no limit.
void LimitMemory(uint64_t bytes) {
#if !defined(QUALM_SANITIZED)
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  setrlimit(RLIMIT_AS, &limit);
#else
  (void)bytes;
#endif
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &none);  // crashes are expected here; dumping each takes seconds
}

bool ParseNumber(std::string_view text, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

// Exit statuses of the worker itself.
constexpr int kDone = 0;
constexpr int kCannotLoadStatus = 3;
constexpr int kBadUsage = 2;

int Serve(PluginHost& host, MessageChannel& channel, unsigned alarm_s) {
  std::vector<uint8_t> payload;
  for (;;) {
    const MessageChannel::Result received = channel.Receive(kMessageBytesMax, -1);
    if (received == MessageChannel::Result::kClosed) return kDone;
    if (received != MessageChannel::Result::kOk || channel.header().kind != MessageKind::kRun)
      return kBadUsage;
    const uint64_t sequence = channel.header().sequence;
    std::optional<RunRequest> request = DecodeRun(channel.payload());
    if (!request) return kBadUsage;
    // Should the parent be killed during a hang, nobody else would end this process.
    alarm(alarm_s);
    Outcome outcome;
    try {
      outcome = host.Run(request->c, request->context);
    } catch (const std::bad_alloc&) {
      outcome = Bad(RunStatus::kSkipped, "the problem does not fit the worker's memory limit");
    }
    alarm(0);
    EncodeOutcome(outcome, payload);
    if (channel.Send(MessageKind::kAnswer, sequence, payload, -1) != MessageChannel::Result::kOk)
      return kDone;
  }
}

}  // namespace

int WorkerMain(int argc, char** argv) {
  uint64_t time_limit_ms = 0;
  uint64_t memory_limit_bytes = 0;
  if (argc != 4 || !ParseNumber(argv[2], &time_limit_ms) ||
      !ParseNumber(argv[3], &memory_limit_bytes) || fcntl(kWorkerFd, F_GETFD) < 0) {
    constexpr std::string_view kUsage =
        "qualm-worker is started by qualm, not by hand: qualm check --subject plugin:PATH.so\n";
    const ssize_t ignored = write(STDERR_FILENO, kUsage.data(), kUsage.size());
    (void)ignored;
    return kBadUsage;
  }
  const auto alarm_s = static_cast<unsigned>(time_limit_ms / 1000 + 5);
  LimitMemory(memory_limit_bytes);
  ReportTrapsTo(kWorkerFd);
  MessageChannel channel(kWorkerFd);
  std::vector<uint8_t> payload;
  std::optional<PluginHost> host;
  alarm(alarm_s);
  try {
    host.emplace(argv[1]);
  } catch (const std::exception& error) {
    const std::string_view why = error.what();
    const auto* bytes = reinterpret_cast<const uint8_t*>(why.data());
    (void)channel.Send(MessageKind::kCannotLoad, 0, {bytes, why.size()}, -1);
    return kCannotLoadStatus;
  }
  alarm(0);
  EncodeInfo(host->info(), payload);
  if (channel.Send(MessageKind::kHello, 0, payload, -1) != MessageChannel::Result::kOk)
    return kDone;
  return Serve(*host, channel, alarm_s);
}

}  // namespace qualm
