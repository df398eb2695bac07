// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/arena.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "adapters/host/pages.h"
#include "core/burst.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace qualm {
namespace {

// Whether buffers lie and are filled as in the default context.
bool PlacesAsUsual(const RunContext& context) {
  const RunContext usual;
  RunContext placing = context;
  placing.calls = usual.calls;
  placing.callers = usual.callers;
  placing.watch = usual.watch;
  placing.threads = usual.threads;
  placing.rounding = usual.rounding;
  placing.flush_denormals = usual.flush_denormals;
  placing.want_acc = usual.want_acc;
  return placing == usual;
}

}  // namespace

void GuardedBuffer::Mapping::Map(size_t body_bytes) {
  Unmap();
  const size_t page = PageBytes();
  void* at = mmap(nullptr, body_bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  body_ = static_cast<uint8_t*>(at) + page;
  bytes_ = body_bytes;
  if (mprotect(body_, bytes_, PROT_READ | PROT_WRITE) == 0) return;
  Unmap();
  throw std::bad_alloc();
}

void GuardedBuffer::Mapping::Unmap() {
  if (bytes_ != 0) munmap(body_ - PageBytes(), bytes_ + 2 * PageBytes());
  body_ = nullptr;
  bytes_ = 0;
  filled = {};
}

GuardedBuffer::Mapping& GuardedBuffer::MappingFor(size_t bytes) {
  const size_t page = PageBytes();
  const size_t pages = (bytes + page - 1) / page;
  const auto size_class = static_cast<size_t>(std::bit_width(pages - 1));
  if (size_class < small_.size()) {
    if (small_[size_class].bytes() == 0) small_[size_class].Map(page << size_class);
    return small_[size_class];
  }
  // A mapping far larger than needed would be filled and checked in full.
  const size_t need = pages * page;
  if (need > large_.bytes() || large_.bytes() > 8 * need) large_.Map(need);
  return large_;
}

uint8_t* GuardedBuffer::Prepare(size_t bytes, size_t slack, size_t element_size,
                                const RunContext& context, Inside inside) {
  // Room for the largest shift, and one more element to round an end down to.
  const size_t margin = 64 + element_size;
  used_ = nullptr;  // what throws leaves no buffer
  if (bytes > SIZE_MAX / 2 || slack > SIZE_MAX / 4) throw std::bad_alloc();
  Mapping& mapping = MappingFor(bytes + slack + margin);
  used_ = &mapping;
  bytes_ = bytes;
  poison_ = context.poison;
  if (context.end_at_guard || bytes + slack == 0) {
    data_ = mapping.end() - slack - bytes;
    data_ -= reinterpret_cast<uintptr_t>(data_) % element_size;
  } else {
    const size_t shift = static_cast<size_t>(context.align_offset) % 64;
    data_ = mapping.body() + shift / element_size * element_size;
  }
  uint8_t* from = mapping.body();
  const auto in_front = static_cast<size_t>(data_ - from);
  if (in_front > kNear && PlacesAsUsual(context)) from = data_ - kNear;
  filled_from_ = from;
  Fill(mapping, from, inside);
  return data_;
}

void GuardedBuffer::Fill(Mapping& mapping, uint8_t* from, Inside inside) {
  const Mapping::Filled before = std::exchange(mapping.filled, {});
  const bool is_filled = before.from != nullptr && before.from <= from && before.poison == poison_;
  const bool same_place = before.data == data_ && before.bytes == bytes_;
  if (is_filled && !(same_place && inside == Inside::kLeft)) {
    std::memset(before.data, poison_, before.bytes);
  } else if (!is_filled) {
    const size_t left = inside == Inside::kLeft ? bytes_ : 0;
    std::memset(from, poison_, static_cast<size_t>(data_ - from));
    std::memset(data_ + left, poison_, static_cast<size_t>(mapping.end() - data_) - left);
  }
}

bool GuardedBuffer::OutsideIntact() const {
  if (used_ == nullptr) return true;
  const bool intact =
      AllEqual(filled_from_, data_, poison_) && AllEqual(data_ + bytes_, used_->end(), poison_);
  used_->filled =
      intact ? Mapping::Filled{filled_from_, poison_, data_, bytes_} : Mapping::Filled{};
  return intact;
}

Rows RowsOf(const std::vector<int64_t>& shape) {
  if (shape.empty()) return {};
  Rows rows{1, shape.back()};
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows.count *= shape[i];
  return rows;
}

size_t ScatteredBytes(DType dtype, int64_t rows, int64_t columns, int64_t gap) {
  if (rows == 0) return 0;
  if (gap == 0) return BytesFor(dtype, static_cast<size_t>(rows * columns));
  return static_cast<size_t>((rows - 1) * (columns + gap) + columns) * SizeOf(dtype);
}

void Scatter(const Tensor& tensor, int64_t gap, uint8_t* to) {
  Scatter(tensor, RowsOf(tensor.shape()), gap, to);
}

void Scatter(const Tensor& tensor, const Rows& of, int64_t gap, uint8_t* to) {
  if (gap == 0) {
    if (!tensor.empty()) std::memcpy(to, tensor.bytes().data(), tensor.bytes().size());
    return;
  }
  const auto rows = static_cast<size_t>(of.count);
  const size_t row_bytes = static_cast<size_t>(of.columns) * SizeOf(tensor.dtype());
  const size_t stride = row_bytes + static_cast<size_t>(gap) * SizeOf(tensor.dtype());
  if (row_bytes == 0) return;
  for (size_t i = 0; i < rows; ++i) {
    std::memcpy(to + i * stride, tensor.bytes().data() + i * row_bytes, row_bytes);
  }
}

Tensor Gather(DType dtype, std::vector<int64_t> shape, int64_t gap, const uint8_t* from) {
  if (shape.empty()) return {};
  const auto [rows, columns] = RowsOf(shape);
  Tensor tensor(dtype, std::move(shape));
  if (gap == 0) {
    if (!tensor.empty()) std::memcpy(tensor.bytes().data(), from, tensor.bytes().size());
    return tensor;
  }
  const size_t row_bytes = static_cast<size_t>(columns) * SizeOf(dtype);
  const size_t stride = row_bytes + static_cast<size_t>(gap) * SizeOf(dtype);
  if (row_bytes == 0) return tensor;
  for (size_t i = 0; i < static_cast<size_t>(rows); ++i) {
    std::memcpy(tensor.bytes().data() + i * row_bytes, from + i * stride, row_bytes);
  }
  return tensor;
}

bool GapsIntact(DType dtype, int64_t rows, int64_t columns, int64_t gap, uint8_t poison,
                const uint8_t* at) {
  if (gap == 0) return true;
  const size_t row_bytes = static_cast<size_t>(columns) * SizeOf(dtype);
  const size_t gap_bytes = static_cast<size_t>(gap) * SizeOf(dtype);
  for (int64_t i = 0; i + 1 < rows; ++i) {
    const uint8_t* from = at + static_cast<size_t>(i) * (row_bytes + gap_bytes) + row_bytes;
    if (!AllEqual(from, from + gap_bytes, poison)) return false;
  }
  return true;
}

bool TakeIfDifferent(const uint8_t* other, DType dtype, const Rows& rows, int64_t stride,
                     uint8_t* y) {
  const size_t row_bytes = static_cast<size_t>(rows.columns) * SizeOf(dtype);
  bool differs = false;
  for (int64_t row = 0; row < rows.count && row_bytes != 0; ++row) {
    const size_t at = static_cast<size_t>(row * stride) * SizeOf(dtype);
    if (std::memcmp(y + at, other + at, row_bytes) == 0) continue;
    std::memcpy(y + at, other + at, row_bytes);
    differs = true;
  }
  return differs;
}

namespace {

#if defined(__x86_64__)

uint32_t ReadControl() { return _mm_getcsr(); }
void WriteControl(uint32_t control) { _mm_setcsr(control); }

// Intel SDM volume 1, 10.2.3: MXCSR. FTZ bit 15, RC bits 13-14, DAZ bit 6.
uint32_t ControlFor(uint32_t saved, const RunContext& context) {
  constexpr uint32_t kFtz = 1u << 15;
  constexpr uint32_t kDaz = 1u << 6;
  constexpr uint32_t kRounding = 3u << 13;
  uint32_t control = saved & ~(kFtz | kDaz | kRounding);
  switch (context.rounding) {
    case Rounding::kNearest: break;
    case Rounding::kDown: control |= 1u << 13; break;
    case Rounding::kUp: control |= 2u << 13; break;
    case Rounding::kTowardZero: control |= 3u << 13; break;
  }
  return context.flush_denormals ? control | kFtz | kDaz : control;
}

#elif defined(__aarch64__)

uint32_t ReadControl() {
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return static_cast<uint32_t>(control);
}
void WriteControl(uint32_t control) {
  asm volatile("msr fpcr, %0" : : "r"(static_cast<uint64_t>(control)));
}

// Arm ARM, FPCR: FZ bit 24 (flushes inputs and outputs), RMode bits 22-23 (1 up, 2 down, 3 zero).
uint32_t ControlFor(uint32_t saved, const RunContext& context) {
  constexpr uint32_t kFz = 1u << 24;
  constexpr uint32_t kRounding = 3u << 22;
  uint32_t control = saved & ~(kFz | kRounding);
  switch (context.rounding) {
    case Rounding::kNearest: break;
    case Rounding::kUp: control |= 1u << 22; break;
    case Rounding::kDown: control |= 2u << 22; break;
    case Rounding::kTowardZero: control |= 3u << 22; break;
  }
  return context.flush_denormals ? control | kFz : control;
}

#else
#error "ScopedEnvironment knows x86-64 and aarch64"
#endif

int LibraryRounding(Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest: break;
    case Rounding::kDown: return FE_DOWNWARD;
    case Rounding::kUp: return FE_UPWARD;
    case Rounding::kTowardZero: return FE_TOWARDZERO;
  }
  return FE_TONEAREST;
}

}  // namespace

uint64_t ControlWords() {
  constexpr uint32_t kRaised = 0x3f;  // of MXCSR; FPCR has no such bits
  return static_cast<uint64_t>(std::fegetround()) << 32 | (ReadControl() & ~kRaised);
}

ScopedEnvironment::ScopedEnvironment(const RunContext& context)
    : saved_rounding_(std::fegetround()), saved_control_(ReadControl()) {
  // The C library's view too: a caller's fesetround would set both.
  std::fesetround(LibraryRounding(context.rounding));
  WriteControl(ControlFor(saved_control_, context));
  words_ = ControlWords();
}

ScopedEnvironment::~ScopedEnvironment() {
  std::fesetround(saved_rounding_);
  WriteControl(saved_control_);
}

namespace {

constexpr std::array<int, 4> kSignals{SIGSEGV, SIGBUS, SIGFPE, SIGILL};

// The place where the innermost CallTrapped of this thread resumes, and the sentence of its report.
struct Trap {
  sigjmp_buf resume;
  const char* sentence = "";
  Trap* outer = nullptr;
};
thread_local Trap* innermost_trap = nullptr;

// Actions are per process, so threads share one installation: the first call in installs, the last
// one out restores what ASan, libFuzzer or GoogleTest had there.
struct Installation {
  std::mutex mutex;
  int users = 0;
  std::array<struct sigaction, kSignals.size()> previous;
};
Installation& Handlers() {
  static Installation installation;
  return installation;
}

const char* Sentence(int number, int code) {
  switch (number) {
    case SIGSEGV:
      if (code == SEGV_ACCERR) return kGuardPageTrap.data();
      if (code == SEGV_MAPERR) return "SIGSEGV: access to an unmapped address";
      return "SIGSEGV: misaligned or non-canonical address";
    case SIGBUS: return "SIGBUS: bus error";
    case SIGFPE: return "SIGFPE: arithmetic exception (integer division)";
    default: return "SIGILL: illegal instruction";
  }
}

// Hands a signal that is not ours to the handler that was there before.
void Chain(int number, siginfo_t* info, void* context) {
  const auto at = std::find(kSignals.begin(), kSignals.end(), number) - kSignals.begin();
  const struct sigaction previous = Handlers().previous[static_cast<size_t>(at)];
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(number, info, context);
  } else if (previous.sa_handler == SIG_DFL) {
    sigaction(number, &previous, nullptr);
    raise(number);
  } else if (previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  }
}

void OnSignal(int number, siginfo_t* info, void* context) {
  Trap* const trap = innermost_trap;
  if (trap == nullptr) {
    Chain(number, info, context);
    return;
  }
  trap->sentence = Sentence(number, info->si_code);
  // sigsetjmp has saved no mask, and ThreadSanitizer runs handlers with all signals blocked.
  pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
  siglongjmp(trap->resume, 1);
}

void Install() {
  Installation& handlers = Handlers();
  const std::lock_guard lock(handlers.mutex);
  if (handlers.users++ != 0) return;
  struct sigaction action = {};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    QUALM_CHECK_EQ(sigaction(kSignals[i], &action, &handlers.previous[i]), 0);
  }
}

void Restore() {
  Installation& handlers = Handlers();
  const std::lock_guard lock(handlers.mutex);
  if (--handlers.users != 0) return;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &handlers.previous[i], nullptr);
  }
}

// To install and restore takes longer than a small call: a burst does it once.
class ScopedHandlers {
 public:
  ScopedHandlers() {
    if (kept_) return;
    Install();
    kept_ = Burst::CallAtEnd([] {
      kept_ = false;
      Restore();
    });
    restores_ = !kept_;
  }
  ~ScopedHandlers() {
    if (restores_) Restore();
  }
  ScopedHandlers(const ScopedHandlers&) = delete;
  ScopedHandlers& operator=(const ScopedHandlers&) = delete;

 private:
  static thread_local bool kept_;  // until the burst of this thread ends
  bool restores_ = false;
};
thread_local bool ScopedHandlers::kept_ = false;

// A stack for the handler, once per thread that has none (ASan's threads have one).
class AlternateStack {
 public:
  AlternateStack() {
    stack_t current = {};
    if (sigaltstack(nullptr, &current) != 0 || (current.ss_flags & SS_DISABLE) == 0) return;
    memory_ = std::make_unique_for_overwrite<char[]>(kBytes);  // its pages are not touched
    stack_t stack = {};
    stack.ss_sp = memory_.get();
    stack.ss_size = kBytes;
    QUALM_CHECK_EQ(sigaltstack(&stack, nullptr), 0);
  }
  ~AlternateStack() {
    if (memory_ == nullptr) return;
    stack_t stack = {};
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
  }
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;

 private:
  static constexpr size_t kBytes = 64 * 1024;  // the saved AVX-512 and AMX state alone takes 11 KiB
  std::unique_ptr<char[]> memory_;
};

// Makes `trap` the innermost one for its lifetime, also when an exception passes.
class ScopedTrap {
 public:
  explicit ScopedTrap(Trap& trap) : trap_(trap) {
    trap_.outer = innermost_trap;
    innermost_trap = &trap_;
  }
  ~ScopedTrap() { innermost_trap = trap_.outer; }
  ScopedTrap(const ScopedTrap&) = delete;
  ScopedTrap& operator=(const ScopedTrap&) = delete;

 private:
  Trap& trap_;
};

}  // namespace

std::string CallTrapped(void (*body)(void*), void* argument) {
  thread_local AlternateStack stack;
  (void)stack;
  Trap trap;
  const ScopedHandlers handlers;
  const ScopedTrap scope(trap);
  if (sigsetjmp(trap.resume, 0) == 0) body(argument);
  return trap.sentence;
}

}  // namespace qualm
