// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/plugin_host.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <latch>
#include <memory>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include "adapters/host/element_formats.h"
#include "adapters/host/traces.h"
#include "core/sanitized.h"
#include "core/status.h"

namespace qualm {
namespace {

// The operations of the C interface by Op. Plugins do not have choose_qparams.
constexpr std::array<int, kOpCount> kNumbers = std::to_array<int>(
    {QUALM_QUANTIZE, QUALM_DEQUANTIZE, QUALM_REQUANTIZE, QUALM_LINEAR, QUALM_CONV2D,
     QUALM_DEPTHWISE, QUALM_ADD, QUALM_MUL, QUALM_MAX_POOL, QUALM_AVG_POOL, QUALM_GLOBAL_AVG_POOL,
     QUALM_RESCALE, QUALM_CONCAT, QUALM_TABLE, QUALM_SOFTMAX, static_cast<int>(Op::kChooseQParams),
     QUALM_SUB, QUALM_DYNAMIC_LINEAR, QUALM_CAST});
constexpr bool NumbersAreThoseOfOp() {
  for (size_t op = 0; op < kOpCount; ++op) {
    if (kNumbers.at(op) != static_cast<int>(op)) return false;
  }
  return true;
}
static_assert(NumbersAreThoseOfOp(), "adapters/qualm_plugin.h numbers an operation unlike Op");
static_assert(QUALM_TANH + 1 == CountOf<Function>(), "functions are sent by their number");
static_assert(QUALM_ROUND_UP + 1 == CountOf<FloatRounding>() &&
                  QUALM_OVERFLOW_NAN + 1 == CountOf<FloatOverflow>(),
              "roundings and overflows are sent by their number");
static_assert(QUALM_U16 + 1 == kDTypeCount && QUALM_F16 == static_cast<int>(DType::kF16) &&
                  QUALM_F8E8M0FNU == static_cast<int>(DType::kF8E8M0FNU),
              "element types are sent by their number");

// Sizes above this are not a newer header but garbage.
constexpr size_t kStructBytesMax = 4096;

// The buffers in use, for the signal handler. Written between calls only.
using BufferName = decltype(Trap::buffer);
struct KnownBuffer {
  BufferName name{};
  uintptr_t begin = 0;
  size_t bytes = 0;
};
std::array<KnownBuffer, Placement::kSlots> known_buffers;
volatile sig_atomic_t known_count = 0;
volatile sig_atomic_t trap_fd = -1;
Mailbox* trap_mailbox = nullptr;

void ClassifyAddress(uintptr_t address, Trap& trap) {
  // A stray access this near to a buffer is reported as one of the buffer. Guard pages are 4 KiB.
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
    trap.buffer = buffer.name;
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
    if (info->si_code == SI_KERNEL) trap.access = Trap::Access::kProtection;
  }
#else
  (void)context;
#endif
  const bool addressed = trap.access != Trap::Access::kProtection;
  if (addressed && (number == SIGSEGV || number == SIGBUS)) ClassifyAddress(trap.address, trap);
  const MessageHeader header{.kind = MessageKind::kTrap, .sequence = 0, .bytes = sizeof trap};
  std::array<uint8_t, sizeof header + sizeof trap> message;
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, &trap, sizeof trap);
  // If this fails, the signal below still tells the parent that the worker died.
  const ssize_t ignored = send(trap_fd, message.data(), message.size(), MSG_NOSIGNAL);
  (void)ignored;
  trap_mailbox->Wake();
  signal(number, SIG_DFL);
  raise(number);  // blocked until the handler returns, then fatal
}

std::string TextOf(const char* text) {
  if (text == nullptr) return "";
  return CleanText(std::string_view(text, strnlen(text, kPluginTextBytesMax)));
}

std::string ContractOf(const char* text) {
  return CleanContract(std::string_view(text, strnlen(text, kContractBytesMax + 1)));
}

[[noreturn]] void Reject(const std::string& what) { throw Unavailable(what); }

// A copy of a struct that the plugin filled. The plugin's header may be older (fields that it lacks
// are 0) or newer than this one. `first_bytes` is the size in the first header. Bytes behind the
// known fields must be 0, or qualm would disregard what they ask for.
template <class T>
T Read(const T& from, size_t first_bytes, const std::string& of) {
  if (from.size < first_bytes || from.size > kStructBytesMax) {
    Reject(of + "size is " + std::to_string(from.size) + ", expected " + std::to_string(sizeof(T)) +
           " (sizeof)");
  }
  T known{};
  std::memcpy(&known, &from, std::min(from.size, sizeof(T)));
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&from);
  for (size_t at = sizeof(T); at < from.size; ++at) {
    if (bytes[at] != 0) {
      Reject(
          of + "byte " + std::to_string(at) +
          " is not 0: it was built with a newer qualm_plugin.h and asks for what this qualm does "
          "not know");
    }
  }
  return known;
}

// The sizes in the first header of version 1.
constexpr size_t kFirstPluginBytes = offsetof(qualm_plugin, last_error) + sizeof(void*);
constexpr size_t kFirstCapabilityBytes =
    offsetof(qualm_capability, alignment_bytes) + sizeof(int32_t);

void TakeFormats(PluginLimits& limits, Op op, const char* names, const std::string& of) {
  const std::optional<FormatSet> formats =
      FormatsNamed(std::string_view(names, strnlen(names, kPluginTextBytesMax)));
  if (!formats || *formats == 0)
    Reject(of + "w_formats is '" + TextOf(names) + "', expected names between spaces of " +
           AllFormatNames());
  limits.TakeFormats(*formats, op);
}

PluginLimits ReadLimits(Op op, const qualm_capability& filled) {
  const std::string of = "capability of " + std::string(Name(op)) + ": ";
  const qualm_capability c = Read(filled, kFirstCapabilityBytes, of);
  PluginLimits limits{.x_dtypes = c.x_dtypes,
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
  const bool has_formats = op == Op::kLinear || op == Op::kQuantize || op == Op::kDequantize;
  if (has_formats && c.w_formats != nullptr) TakeFormats(limits, op, c.w_formats, of);
  if (std::string wrong = WrongLimits(limits); !wrong.empty()) Reject(of + wrong);
  return limits;
}

std::string DomainOf(Op op, const qualm_capability& filled) {
  const std::string of = "capability of " + std::string(Name(op)) + ": ";
  const char* const domain = Read(filled, kFirstCapabilityBytes, of).domain;
  if (domain == nullptr) return "";
  const std::string_view text(domain, strnlen(domain, kContractBytesMax + 1));
  if (text.size() > kContractBytesMax)
    Reject(of + "domain has more than " + std::to_string(kContractBytesMax) + " bytes");
  return CleanText(text, kContractBytesMax);
}

qualm_tensor ViewOf(const LaidTensor& laid) {
  qualm_tensor tensor{};
  tensor.size = sizeof tensor;
  tensor.dtype = static_cast<int32_t>(laid.dtype);
  tensor.rank = static_cast<int32_t>(laid.shape.size());
  tensor.data = laid.data;
  int64_t stride = 1;
  int64_t elements = 1;  // of one step of the next dimension
  for (size_t i = laid.shape.size(); i-- > 0;) {
    tensor.dims[i] = laid.shape[i];
    tensor.strides[i] = stride;
    elements *= laid.shape[i];
    const bool row = elements == laid.rows.columns && stride < laid.stride();
    stride = row ? laid.stride() : stride * laid.shape[i];
  }
  return tensor;
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

// The names of the buffers' contents in reports.
constexpr std::array<BufferName, Placement::kSlots> kSlotNames{{{"x"},
                                                                {"w"},
                                                                {"x_scale"},
                                                                {"x_zp"},
                                                                {"w_scale"},
                                                                {"w_zp"},
                                                                {"out_scale"},
                                                                {"out_zp"},
                                                                {"multiplier"},
                                                                {"bias"},
                                                                {"bias_i32"},
                                                                {"w_packed"},
                                                                {"x_packed"},
                                                                {"y"},
                                                                {"acc"}}};

// From now on the signal handler knows the buffers of this call.
void Remember(const Placement& placement) {
  known_count = 0;
  for (uint8_t slot = 0; slot < Placement::kSlots; ++slot) {
    const GuardedBuffer* const buffer = placement.buffer(static_cast<Placement::Slot>(slot));
    if (buffer == nullptr) continue;
    known_buffers[static_cast<size_t>(known_count)] = {
        kSlotNames[slot], reinterpret_cast<uintptr_t>(buffer->data()), buffer->size()};
    known_count = known_count + 1;
  }
}

Outcome Report(const Placement::Damage& damage) {
  const std::string name = kSlotNames[damage.slot].data();
  switch (damage.kind) {
    case Placement::Damage::Kind::kWroteOutside:
      return Bad(damage.status(),
                 "wrote outside " + name + ": the pattern around the buffer has changed");
    case Placement::Damage::Kind::kWroteBetweenRows:
      return Bad(damage.status(), "wrote into the gap between two rows of " + name);
    case Placement::Damage::Kind::kModifiedInput: break;
  }
  return Bad(damage.status(),
             "changed its input " + name + " at byte " + std::to_string(damage.byte));
}

}  // namespace

PluginHost::PluginHost(const std::string& path) {
  // RTLD_NOW: a missing symbol is a sentence here, not a crash later.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    Reject("cannot be loaded: " + TextOf(why));
  }
  void* const symbol = dlsym(library, "qualm_plugin_entry");
  if (symbol == nullptr) Reject("exports no qualm_plugin_entry (see adapters/qualm_plugin.h)");
  const qualm_plugin* const filled = reinterpret_cast<decltype(&qualm_plugin_entry)>(symbol)();
  if (filled == nullptr) Reject("qualm_plugin_entry returned NULL");
  // A header of another version may have another layout behind its number.
  if (filled->size >= offsetof(qualm_plugin, reserved) && filled->size <= kStructBytesMax &&
      filled->abi_version != QUALM_ABI_VERSION) {
    Reject("was built for version " + std::to_string(filled->abi_version) +
           " of the plugin interface, this is version " + std::to_string(QUALM_ABI_VERSION) +
           ": rebuild it with this qualm's qualm_plugin.h");
  }
  plugin_ = Read(*filled, kFirstPluginBytes, "qualm_plugin.");
  if (plugin_.capability == nullptr) Reject("qualm_plugin.capability is NULL, expected a function");
  if (plugin_.run == nullptr) Reject("qualm_plugin.run is NULL, expected a function");
  if (plugin_.last_error == nullptr) Reject("qualm_plugin.last_error is NULL, expected a function");
  info_.name = TextOf(plugin_.name);
  if (info_.name.empty()) Reject("qualm_plugin.name is empty");
  info_.version = TextOf(plugin_.version);
  info_.contract = plugin_.contract == nullptr ? "exact" : ContractOf(plugin_.contract);
  info_.instruction_set = TextOf(plugin_.instruction_set);
  for (const Op op : AllOps()) {
    if (RowOf(op).observer) continue;  // qualm_problem has no place for an observer
    const qualm_capability* limits = plugin_.capability(static_cast<int32_t>(op));
    if (limits == nullptr) continue;
    info_.limits[static_cast<size_t>(op)] = ReadLimits(op, *limits);
    info_.domains[static_cast<size_t>(op)] = DomainOf(op, *limits);
  }
}

qualm_qparams PluginHost::LayQParams(Placement::Slot scale_slot, const QParams& q) {
  const auto zero_point_slot = static_cast<Placement::Slot>(scale_slot + 1);
  return {.size = sizeof(qualm_qparams),
          .count = static_cast<int64_t>(q.scale.size()),
          .scale = placement_.LayList(scale_slot, q.scale),
          .zero_point = placement_.LayList(zero_point_slot, q.zero_point)};
}

Outcome PluginHost::Run(const Case& c, const RunContext& context) {
  const std::optional<PluginLimits>& offered = info_.limits[static_cast<size_t>(c.op)];
  if (!offered) return Bad(RunStatus::kSkipped, "operation not offered");
  const PluginLimits& limits = *offered;
  std::string why = OutsideLimits(limits, c, context);
  if (why.empty()) why = WhyNotLaid(c, context);
  if (!why.empty()) return Bad(RunStatus::kSkipped, std::move(why));
  if (!state_) state_.emplace();

  placement_.Lay(c, context,
                 {.read_slack_bytes = static_cast<size_t>(limits.read_slack_bytes),
                  .alignment_bytes = static_cast<size_t>(std::max(limits.alignment_bytes, 1))});
  const qualm_tensor x = ViewOf(placement_.x());
  const qualm_tensor w = ViewOf(placement_.w());
  const qualm_tensor y = ViewOf(placement_.y());
  qualm_tensor acc{};
  const qualm_window window = WindowOf(c.window);

  qualm_problem problem{};
  problem.size = sizeof problem;
  problem.op = static_cast<int32_t>(c.op);
  problem.relu = c.relu ? 1 : 0;
  problem.x = &x;
  problem.w = HasW(c.op) ? &w : nullptr;
  problem.y = &y;
  problem.window = HasWindow(c.op) ? &window : nullptr;
  problem.function = static_cast<int32_t>(c.function);
  problem.negative_slope = c.negative_slope;
  problem.per_channel = c.per_channel ? 1 : 0;
  problem.x_q = LayQParams(Placement::kXScale, c.x_q);
  problem.w_q = LayQParams(Placement::kWScale, c.w_q);
  problem.out_q = LayQParams(Placement::kOutScale, c.out_q);
  if (!c.multiplier.empty()) {
    problem.multiplier = placement_.LayList(Placement::kMultiplier, c.multiplier);
    problem.multiplier_count = static_cast<int64_t>(c.multiplier.size());
  }
  if (c.bias) problem.bias = placement_.LayList(Placement::kBias, *c.bias);
  if (c.bias_i32) problem.bias_i32 = placement_.LayList(Placement::kBiasI32, *c.bias_i32);
  const qualm_choice choice{.size = sizeof choice,
                            .rule = static_cast<int32_t>(c.rule),
                            .symmetric = c.observer.symmetric ? 1 : 0,
                            .reduce_range = c.observer.reduce_range ? 1 : 0,
                            .dtype = static_cast<int32_t>(c.observer.dtype),
                            .quant_min = c.observer.quant_min,
                            .quant_max = c.observer.quant_max};
  const qualm_granularity per_row{
      .size = sizeof per_row, .kind = QUALM_PER_ROW, .axis = 0, .block = 0};
  const qualm_granularity per_block{.size = sizeof per_block,
                                    .kind = QUALM_PER_BLOCK,
                                    .axis = 1,
                                    .block = std::max(c.w_block, c.x_block)};
  if (RowOf(c.op).dynamic) problem.choice = &choice;
  problem.rounding = static_cast<int32_t>(c.rounding);
  problem.overflow = static_cast<int32_t>(c.overflow);
  if (c.x_gran == Granularity::kRow) problem.x_granularity = &per_row;
  if (c.w_block != 0) problem.w_granularity = &per_block;
  if (c.x_block != 0 && c.op != Op::kQuantize) problem.x_granularity = &per_block;
  if (c.x_block != 0 && (c.op == Op::kQuantize || c.op == Op::kCast))
    problem.out_granularity = &per_block;
  problem.threads = context.threads > 1 ? context.threads : 0;
  problem.out_min = c.out_min;
  problem.out_max = c.out_max;
  PackedRows w_packed, x_packed;  // stay until Inspect
  if (limits.w_formats != 0) {
    const WeightFormat& format = FormatFor(limits.w_formats, c);
    problem.w_format = format.name.data();
    problem.k_packed = PackedDepth(format, c.op == Op::kLinear ? c.K : c.N);
    if (c.op != Op::kQuantize) {
      w_packed = PackedWeights(format, c.op == Op::kLinear ? c : CodesAsWeights(c));
      problem.w_packed = placement_.LayList(Placement::kWPacked, w_packed.bytes, 2);
      problem.w_row_bytes = w_packed.row_bytes;
    }
    if (c.op == Op::kLinear) {
      x_packed = PackedActivations(format, c);
      problem.x_packed = placement_.LayList(Placement::kXPacked, x_packed.bytes, 4);
      problem.x_row_bytes = x_packed.row_bytes;
    }
  }
  // Of weights in blocks there is no accumulator of all terms.
  if (context.want_acc && HasSums(c) && c.w_block == 0 && (limits.features & QUALM_CAN_ACC) != 0) {
    placement_.LayAcc();
    acc = ViewOf(placement_.acc());
    problem.acc = &acc;
  }
  Remember(placement_);

  Outcome called = CallOften(problem, context);
  // Damage is reported before the answer: an answer of a call that did damage is worth nothing.
  if (const std::optional<Placement::Damage> damage = placement_.Inspect()) return Report(*damage);
  if (!called.ok()) return called;
  try {
    called.y = Gather(placement_.y());
    if (problem.acc != nullptr) called.acc = Gather(placement_.acc());
  } catch (const std::bad_alloc&) {
    return Bad(RunStatus::kCrashed,
               "took all the memory of its process, and none is left for its answer");
  }
  return called;
}

// Calls as often, and from as many threads at once, as `context` asks.
Outcome PluginHost::CallOften(const qualm_problem& problem, const RunContext& context) {
  Outcome called;
  const auto call = [&] { called = Call(problem, context); };
  std::optional<Traces> traces;
  if (context.watch) traces.emplace(&*state_);
  for (int i = 0; i < context.calls && called.ok(); ++i) call();
  if (traces && called.ok()) {
    std::string left = traces->Left();
    if (left.empty()) left = LeakOf(call);
    if (!left.empty()) return Bad(RunStatus::kLeftBehind, std::move(left));
  }
  if (context.callers > 1 && called.ok()) called = CallTogether(problem, context);
  return called;
}

namespace {

// Memory as a plugin wants it: aligned to any power of two that it may ask for, and with bytes
// behind it that it may read.
class AlignedBytes {
 public:
  AlignedBytes(size_t bytes, size_t slack) : bytes_(bytes + slack + kAlignment) {}
  uint8_t* data() {
    void* at = bytes_.data();
    size_t room = bytes_.size();
    return static_cast<uint8_t*>(std::align(kAlignment, 1, at, room));
  }

 private:
  static constexpr size_t kAlignment = 4096;
  std::vector<uint8_t> bytes_;
};

// A problem of the same layer: x backwards and, where nothing else depends on how many there are,
// less of it: a linear without its last row, images with a column of outputs less.
class Neighbour {
 public:
  Neighbour(const qualm_problem& problem, const LaidTensor& x, const LaidTensor& y, size_t slack)
      : x_(*problem.x),
        y_(*problem.y),
        problem_(problem),
        x_bytes_(x.bytes(), slack),
        y_bytes_(y.bytes(), slack) {
    const size_t size = SizeOf(x.dtype);
    const size_t elements = x.bytes() / size;
    for (size_t i = 0; i < elements; ++i)
      std::memcpy(x_bytes_.data() + i * size, x.data + (elements - 1 - i) * size, size);
    x_.data = x_bytes_.data();
    y_.data = y_bytes_.data();
    if (problem.window != nullptr && x.gap == 0) Narrow(*problem.window);
    if (problem.op == QUALM_LINEAR && x_.dims[0] > 1) {
      --x_.dims[0];
      --y_.dims[0];
    }
    problem_.x = &x_;
    problem_.y = &y_;
    problem_.acc = nullptr;
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  const qualm_problem& problem() const { return problem_; }

 private:
  // What of x the last output of a line needs more than the one before it; of outputs one column,
  // what the last line of them needs.
  void Narrow(const qualm_window& window) {
    const bool columns = y_.dims[2] > 1;
    const int axis = columns ? 2 : 1;
    const int64_t stride = columns ? window.stride_w : window.stride_h;
    if (y_.dims[axis] < 2 || x_.dims[axis] <= stride) return;
    x_.dims[axis] -= stride;
    --y_.dims[axis];
    for (qualm_tensor* image : {&x_, &y_})
      for (const int i : {1, 0}) image->strides[i] = image->dims[i + 1] * image->strides[i + 1];
  }

  qualm_tensor x_;
  qualm_tensor y_;
  qualm_problem problem_;
  AlignedBytes x_bytes_;
  AlignedBytes y_bytes_;
};

}  // namespace

// Each caller writes an output of its own; y holds the first caller's answer. An answer that
// differs replaces y, so that a comparison of y sees it.
Outcome PluginHost::CallTogether(const qualm_problem& problem, const RunContext& context) {
  const LaidTensor& y = placement_.y();
  const auto others = static_cast<size_t>(context.callers - 1);
  std::deque<AlignedBytes> outputs;
  for (size_t i = 0; i < others; ++i)
    std::memset(outputs.emplace_back(y.bytes(), SlackOf(problem)).data(), context.poison,
                y.bytes());
  std::vector<Answer> answers(others + 1);  // the last one is of this thread
  const auto begin = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < others; ++i) {
      threads.emplace_back([&, i] {
        qualm_tensor own = *problem.y;
        own.data = outputs[i].data();
        qualm_problem asked = problem;
        asked.y = &own;
        asked.acc = nullptr;
        answers[i] = Ask(asked, context);
      });
    }
    answers.back() = Ask(problem, context);
  }
  for (Answer& answer : answers) {
    if (Outcome outcome = OutcomeOf(std::move(answer)); !outcome.ok()) return outcome;
  }
  for (AlignedBytes& output : outputs) {
    if (TakeIfDifferent(output.data(), y.dtype, y.rows, y.stride(), y.data)) return {};
  }
  // A slow kernel is not asked again: its process has a limit of time.
  if (std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(200)) return {};
  return CallBesideOthers(problem, context);
}

// What callers share unawares is seen only where they ask for different things: a buffer that two
// of them fill with the same numbers is right. While this thread calls again and again, the others
// ask for neighbours of the problem. What they are answered does not count; an answer of this
// thread that differs replaces y.
Outcome PluginHost::CallBesideOthers(const qualm_problem& problem, const RunContext& context) {
  constexpr int kCalls = 16;
  constexpr auto kTime = std::chrono::milliseconds(20);  // less of a slow kernel
  const LaidTensor& y = placement_.y();
  const size_t slack = SlackOf(problem);
  AlignedBytes output(y.bytes(), slack);
  std::memset(output.data(), context.poison, y.bytes());
  qualm_tensor own = *problem.y;
  own.data = output.data();
  qualm_problem asked = problem;
  asked.y = &own;
  asked.acc = nullptr;
  std::atomic<bool> done = false;
  std::latch ready(context.callers);
  std::deque<Neighbour> neighbours;
  for (int i = 1; i < context.callers; ++i)
    neighbours.emplace_back(problem, placement_.x(), y, slack);
  std::vector<std::jthread> threads;
  for (const Neighbour& neighbour : neighbours) {
    threads.emplace_back([&] {
      ready.arrive_and_wait();
      try {
        const ScopedEnvironment environment(context);
        while (!done && plugin_.run(&neighbour.problem()) == QUALM_OK) {
        }
      } catch (...) {  // of a problem that nobody asked it to solve
      }
    });
  }
  ready.arrive_and_wait();
  Outcome outcome;
  const auto end = std::chrono::steady_clock::now() + kTime;
  for (int i = 0; i < kCalls && outcome.ok(); ++i) {
    outcome = Call(asked, context);
    if (outcome.ok() && TakeIfDifferent(output.data(), y.dtype, y.rows, y.stride(), y.data)) break;
    if (std::chrono::steady_clock::now() > end) break;
  }
  done = true;
  return outcome;
}

size_t PluginHost::SlackOf(const qualm_problem& problem) const {
  return static_cast<size_t>(info_.limits.at(static_cast<size_t>(problem.op))->read_slack_bytes);
}

Outcome PluginHost::Call(const qualm_problem& problem, const RunContext& context) {
  return OutcomeOf(Ask(problem, context));
}

PluginHost::Answer PluginHost::Ask(const qualm_problem& problem, const RunContext& context) {
  int32_t answer = QUALM_OK;
  try {
    const ScopedEnvironment environment(context);
    answer = plugin_.run(&problem);
    if (context.watch && ControlWords() != environment.words())
      return Bad(RunStatus::kLeftBehind, "left another floating-point control word");
  } catch (const std::exception& error) {
    return Bad(RunStatus::kCrashed,
               "let a C++ exception escape from run(): " + TextOf(error.what()));
  } catch (...) {
    return Bad(RunStatus::kCrashed, "let an exception escape from run()");
  }
  return answer;
}

Outcome PluginHost::OutcomeOf(Answer given) {
  if (auto* const outcome = std::get_if<Outcome>(&given)) return std::move(*outcome);
  const int32_t answer = std::get<int32_t>(given);
  if (answer == QUALM_OK) return {};
  if (answer != QUALM_UNSUPPORTED && answer != QUALM_FAILED) {
    return Bad(RunStatus::kGarbage, "run() answered " + std::to_string(answer) +
                                        ", which the interface does not define");
  }
  std::string why = TextOf(plugin_.last_error());
  if (why.empty()) why = "gave no reason";
  return Bad(answer == QUALM_UNSUPPORTED ? RunStatus::kSkipped : RunStatus::kRefused,
             std::move(why));
}

namespace {

void CatchTraps() {
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction action{};
    action.sa_sigaction = OnTrap;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(number, &action, nullptr);
  }
}

// An alarm ends this process if the parent was killed during a hang; nobody else would.
volatile sig_atomic_t parent = 0;
extern "C" void OnAlarm(int) {
  constexpr unsigned kLookAgainAfter = 5;
  if (getppid() != parent) _exit(0);
  alarm(kLookAgainAfter);
}

}  // namespace

void ReportTrapsTo(int fd, Mailbox* mailbox) {
  parent = getppid();
  trap_mailbox = mailbox;
  trap_fd = fd;
  // A stack for the handler: a stack overflow is a trap too. 64 KiB hold the AVX-512 and AMX state.
  constexpr size_t kStackBytes = 64 * 1024;
  static const std::unique_ptr<char[]> memory = std::make_unique<char[]>(kStackBytes);
  stack_t stack{};
  stack.ss_sp = memory.get();
  stack.ss_size = kStackBytes;
  sigaltstack(&stack, nullptr);
  CatchTraps();
  struct sigaction action{};
  action.sa_handler = OnAlarm;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
}

namespace {

// Memory that can be written counts, address space does not: rows that lie far apart take terabytes
// of that. Sanitizers map as much for themselves, so under them there is no limit. No file grows
// further either, memory files and what stderr goes to included.
void LimitMemory(uint64_t bytes) {
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  if (!kSanitized) setrlimit(RLIMIT_DATA, &limit);
  setrlimit(RLIMIT_FSIZE, &limit);
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &none);  // crashes are expected here; dumping each takes seconds
}

// Exit statuses of the worker itself, beside kWorkerLostItsFiles.
constexpr int kDone = 0;
constexpr int kCannotLoadStatus = 3;
constexpr int kBadUsage = 2;

// A plugin that is out of memory refuses, throws or dies, whatever the case. Then it is not the
// case that is told, but what earlier calls have kept.
Outcome Explained(Outcome outcome, uint64_t calls) {
  // Threads are counted now and then only: most calls take microseconds.
  const bool failed =
      outcome.status == RunStatus::kRefused || outcome.status == RunStatus::kCrashed;
  if (!failed && (!outcome.ok() || calls % 64 != 0)) return outcome;
  const std::string used_up = UsedUp();
  if (used_up.empty()) return outcome;
  std::string then =
      failed ? ", then " + std::string(Name(outcome.status)) + ": " + outcome.detail : "";
  return Bad(RunStatus::kLeftBehind, used_up + then);
}

int Serve(PluginHost& host, MessageChannel& channel, unsigned alarm_s) {
  std::vector<uint8_t> payload;
  for (uint64_t calls = 1;; ++calls) {
    const MessageChannel::Result received = channel.Receive(kMessageBytesMax, -1);
    if (received == MessageChannel::Result::kClosed)
      return fcntl(kWorkerFd, F_GETFD) < 0 ? kWorkerLostItsFiles : kDone;
    if (received != MessageChannel::Result::kOk || channel.header().kind != MessageKind::kRun)
      return kBadUsage;
    const uint64_t sequence = channel.header().sequence;
    std::optional<RunRequest> request = DecodeRun(channel.payload());
    if (!request) return kBadUsage;
    // A plugin may have installed handlers of its own since the last request.
    CatchTraps();
    alarm(alarm_s);
    Outcome outcome;
    try {
      outcome = Explained(host.Run(request->c, request->context), calls);
    } catch (const std::bad_alloc&) {
      outcome = Bad(RunStatus::kSkipped, std::string(kNoMemoryLeft));
    }
    alarm(0);
    EncodeOutcome(outcome, payload);
    if (channel.Send(MessageKind::kAnswer, sequence, payload, -1) != MessageChannel::Result::kOk)
      return kDone;
  }
}

}  // namespace

int WorkerMain(int argc, char** argv) {
  const auto started_by_hand = [] {
    constexpr std::string_view kUsage =
        "qualm-worker is started by qualm, not by hand: qualm check --subject plugin:PATH.so\n";
    const ssize_t ignored = write(STDERR_FILENO, kUsage.data(), kUsage.size());
    (void)ignored;
    return kBadUsage;
  };
  if (argc != 4) return started_by_hand();
  const auto alarm_s = static_cast<unsigned>(std::strtoull(argv[2], nullptr, 10) / 1000 + 5);
  LimitMemory(std::strtoull(argv[3], nullptr, 10));
  std::optional<Mailboxes> mailboxes;
  try {
    mailboxes.emplace(kWorkerMemoryFd);
  } catch (const Unavailable&) {
    return started_by_hand();
  }
  close(kWorkerMemoryFd);
  // Processes that plugins leave stay in sight, whatever they do: they become this one's children.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  ReportTrapsTo(kWorkerFd, &mailboxes->from_worker());
  MessageChannel channel(kWorkerFd, &mailboxes->from_worker(), &mailboxes->to_worker());
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
