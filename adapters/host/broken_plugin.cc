// SPDX-License-Identifier: Apache-2.0
// A plugin that does everything wrong, one thing at a time: the environment variable QUALM_BROKEN
// names it. plugin_test.cc holds qualm to surviving each and calling it by its name. Linear, any
// codes, s32 outputs: each is 7 where nothing is wrong. Add, dense rows or not: y = x + w, bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <clocale>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "adapters/host/worker_message.h"  // as foreign code that knows it might have
#include "adapters/qualm_plugin.h"

namespace {

bool Is(std::string_view name, const char* variable = "QUALM_BROKEN") {
  const char* value = std::getenv(variable);
  return value != nullptr && name == value;
}

// Is this not the first process that loads it? Then QUALM_AGAIN says what goes wrong. The file that
// QUALM_FILE names remembers the first one.
bool again = false;
void SeeWhetherAgain() {
  const char* const file = std::getenv("QUALM_FILE");
  if (file == nullptr) return;
  again = access(file, F_OK) == 0;
  close(open(file, O_CREAT | O_WRONLY, 0600));
}
bool AgainIs(std::string_view name) { return again && Is(name, "QUALM_AGAIN"); }

int32_t* Row(const qualm_tensor* y, int64_t m) {
  return static_cast<int32_t*>(y->data) + m * y->strides[0];
}

std::jmp_buf never_set;

// The compiler must not see that these never end, or where they point.
volatile bool for_ever = true;
volatile int32_t zero = 0;

int Recurse(volatile char* above) {
  volatile char frame[4096];
  frame[0] = above == nullptr ? 1 : above[0];
  return for_ever ? Recurse(frame) + frame[0] : frame[0];
}

// Says which process hangs, to who waits for it, and hangs.
void Hang() {
  if (const char* const fifo = std::getenv("QUALM_FIFO"); fifo != nullptr) {
    const pid_t self = getpid();
    if (write(open(fifo, O_WRONLY), &self, sizeof self) != sizeof self) std::abort();
  }
  while (for_ever) usleep(1000);
}

// Lays a file that is empty behind the page that ends at `end`: what is read there is a SIGBUS.
void MapNothing(void* end) {
  const int file = memfd_create("nothing", 0);
  mmap(end, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
}

// Takes all the address space that its process may have, and keeps it.
void TakeMemory() {
  for (size_t bytes = size_t{1} << 30; bytes >= 4096; bytes /= 2) {
    while (mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0) != MAP_FAILED) {
    }
  }
}

// A process that outlives this one and holds all that is open here.
void LeaveAChild() {
  if (fork() == 0) {
    for (;;) pause();
  }
}

// The same, in a group and session of its own, as a server starts.
void LeaveADaemon() {
  const pid_t first = fork();
  if (first == 0) {
    setsid();
    if (fork() != 0) std::_Exit(0);
    if (const char* const fifo = std::getenv("QUALM_FIFO"); fifo != nullptr) {
      const pid_t self = getpid();
      if (write(open(fifo, O_RDWR), &self, sizeof self) != sizeof self) std::abort();
    }
    for (;;) pause();
  }
  waitpid(first, nullptr, 0);
}

// Writes a file, which nobody sees, for as long as it may grow.
void FillAFile() {
  static const std::array<char, 1 << 20> bytes{};
  const int file = memfd_create("filled", 0);
  while (write(file, bytes.data(), bytes.size()) > 0) {
  }
}

// Memory that two processes could share counts as nobody's.
void ShareMemory() {
  constexpr size_t kBytes = 16 << 20;
  for (;;) {
    void* const shared =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared != MAP_FAILED) std::memset(shared, 1, kBytes);
    usleep(10'000);
  }
}

// Once in that many calls of this process.
bool EachTime(int calls) {
  static int count = 0;
  return ++count % calls == 0;
}

void WriteToSocket(const void* from, size_t bytes) {
  if (write(3, from, bytes) != static_cast<ssize_t>(bytes)) std::abort();
}

// What a worker sends for a problem that is refused without a reason.
void SendRefusal(qualm::MessageKind kind, uint64_t sequence) {
  const struct {
    qualm::RunStatus status = qualm::RunStatus::kRefused;
    std::array<uint8_t, sizeof(uint64_t)> length{};  // of the reason
  } payload{};
  const qualm::MessageHeader header{.kind = kind, .sequence = sequence, .bytes = sizeof payload};
  WriteToSocket(&header, sizeof header);
  WriteToSocket(&payload, sizeof payload);
}

// Reads the byte behind a buffer that lies near another one, which qualm comes to later.
void ReadPastOneNearAnother(const qualm_problem& p) {
  struct Buffer {
    const void* data;
    size_t bytes;
    uintptr_t begin() const { return reinterpret_cast<uintptr_t>(data); }
    uintptr_t end() const { return begin() + bytes; }
  };
  const auto bytes_of = [](const qualm_tensor& tensor) {
    return static_cast<size_t>(tensor.dims[0] * tensor.dims[1]);
  };
  std::vector<Buffer> buffers{{p.x->data, bytes_of(*p.x)}, {p.w->data, bytes_of(*p.w)}};
  for (const qualm_qparams* const q : {&p.x_q, &p.w_q, &p.out_q}) {
    buffers.push_back({q->scale, 4 * static_cast<size_t>(q->count)});
    buffers.push_back({q->zero_point, 4 * static_cast<size_t>(q->count)});
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    const uintptr_t end = buffers[i].end();
    for (size_t j = i + 1; j < buffers.size(); ++j) {
      const Buffer& other = buffers[j];
      const uintptr_t distance = end < other.begin() ? other.begin() - end : end - other.end() + 1;
      if (distance < 60'000) zero = static_cast<const uint8_t*>(buffers[i].data)[buffers[i].bytes];
    }
  }
}

int32_t AddBytes(const qualm_problem* p) {
  if (Is("modify-w")) static_cast<uint8_t*>(p->w->data)[0] ^= 1;
  for (int64_t m = 0; m < p->y->dims[0]; ++m) {
    for (int64_t n = 0; n < p->y->dims[1]; ++n) {
      static_cast<uint8_t*>(p->y->data)[m * p->y->strides[0] + n] =
          static_cast<uint8_t>(static_cast<uint8_t*>(p->x->data)[m * p->x->strides[0] + n] +
                               static_cast<uint8_t*>(p->w->data)[m * p->w->strides[0] + n]);
    }
  }
  return QUALM_OK;
}

void LeaveBehind() {
  if (Is("leave-rounding")) std::fesetround(FE_UPWARD);
  if (Is("leave-folder") && chdir("/") != 0) std::abort();
  if (Is("leave-mask")) umask(0777);
  if (Is("leave-locale")) std::setlocale(LC_ALL, "C.UTF-8");
  if (Is("leave-handler")) std::signal(SIGUSR2, SIG_IGN);
  if (Is("leave-thread")) std::thread([] { Hang(); }).detach();
  if (Is("block-signal")) {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  }
  static void* kept = nullptr;  // a chain, which leak checkers do not mind
  if (Is("leak")) {
    auto* const leaked = static_cast<void**>(std::malloc(100));
    if (leaked != nullptr) *leaked = std::exchange(kept, leaked);
  }
}

// What the last problem said, for LastError: the part of it that the environment variable names.
std::string said;

template <class T>
const char* SizeOf(const T& given) {
  return given.size == sizeof given ? ". " : " wrong size. ";
}

// "x 0 2x3 by 3x1. ": type, dimensions, strides.
void Say(std::ostream& out, const char* name, const qualm_tensor* tensor) {
  out << name << ' ';
  if (tensor == nullptr) {
    out << "none. ";
    return;
  }
  out << tensor->dtype;
  for (int32_t i = 0; i < tensor->rank; ++i) out << (i == 0 ? " " : "x") << tensor->dims[i];
  for (int32_t i = 0; i < tensor->rank; ++i) out << (i == 0 ? " by " : "x") << tensor->strides[i];
  out << SizeOf(*tensor);
}

void Say(std::ostream& out, const char* name, const qualm_qparams& q) {
  out << name << ' ' << q.count << ':';
  for (int64_t i = 0; i < q.count; ++i) out << ' ' << q.scale[i] << ' ' << q.zero_point[i];
  out << SizeOf(q);
}

template <class T>
void SayList(std::ostream& out, const char* name, const T* list, int64_t count) {
  if (list == nullptr) return;
  out << name;
  for (int64_t i = 0; i < count; ++i) out << ' ' << list[i];
  out << ". ";
}

void SayWindow(std::ostream& out, const qualm_window* v) {
  if (v == nullptr) {
    out << "none. ";
    return;
  }
  for (const int64_t number :
       {v->kernel_h, v->kernel_w, v->stride_h, v->stride_w, v->pad_top, v->pad_bottom, v->pad_left,
        v->pad_right, v->dilation_h, v->dilation_w, v->groups})
    out << number << ' ';
  out << "ceil " << v->ceil_mode << " count " << v->count_include_pad << SizeOf(*v);
}

void SayNumbers(std::ostream& out, const qualm_problem& p) {
  out << "op " << p.op << " relu " << p.relu << " function " << p.function << " slope "
      << p.negative_slope << " per_channel " << p.per_channel << " threads " << p.threads << " min "
      << p.out_min << " max " << p.out_max << SizeOf(p);
  if (const qualm_choice* const c = p.choice; c != nullptr) {
    out << "choice";
    for (const int32_t number :
         {c->rule, c->symmetric, c->reduce_range, c->dtype, c->quant_min, c->quant_max})
      out << ' ' << number;
    out << SizeOf(*c);
  }
  for (const qualm_granularity* const g : {p.x_granularity, p.w_granularity, p.out_granularity}) {
    if (g == nullptr) continue;
    out << "granularity " << g->kind << ' ' << g->axis << ' ' << g->block << SizeOf(*g);
  }
}

int32_t SayProblem(const qualm_problem& p) {
  std::ostringstream out;
  if (Is("say-tensors")) {
    Say(out, "x", p.x);
    Say(out, "w", p.w);
    Say(out, "y", p.y);
    Say(out, "acc", p.acc);
  }
  if (Is("say-qparams")) {
    Say(out, "x", p.x_q);
    Say(out, "w", p.w_q);
    Say(out, "out", p.out_q);
    SayList(out, "multiplier", p.multiplier, p.multiplier_count);
    SayList(out, "bias", p.bias, p.y->dims[1]);
    SayList(out, "bias_i32", p.bias_i32, p.y->dims[1]);
  }
  if (Is("say-window")) SayWindow(out, p.window);
  if (Is("say-numbers")) SayNumbers(out, p);
  said = out.str();
  return QUALM_FAILED;
}

bool SaysProblems() {
  const char* value = std::getenv("QUALM_BROKEN");
  return value != nullptr && std::string_view(value).starts_with("say-");
}

int32_t Run(const qualm_problem* p) {
  if (SaysProblems()) return SayProblem(*p);
  if (p->op == QUALM_ADD) return AddBytes(p);
  const int64_t rows = p->y->dims[0];
  const int64_t columns = p->y->dims[1];
  auto* y = static_cast<int32_t*>(p->y->data);
  auto* x = static_cast<uint8_t*>(p->x->data);

  if (Is("leave-output")) return QUALM_OK;
  int32_t answer = 7;
  if (Is("layers")) {  // what it is told of threads and of gaps between weights
    answer = static_cast<int32_t>(100 * p->threads + p->w->strides[0] - p->w->dims[1]);
  }
  static std::atomic<int32_t> calls;
  if (Is("count-calls")) answer = ++calls;
  if (Is("count-accumulators")) answer = calls += p->acc != nullptr ? 1 : 0;
  if (Is("refuse-first-call") && ++calls == 1) return QUALM_FAILED;
  static const std::thread::id first_thread = std::this_thread::get_id();
  static std::atomic<int32_t> of_others;
  if (std::this_thread::get_id() != first_thread) {
    if (Is("refuse-others")) return QUALM_FAILED;
    const int32_t other = ++of_others;
    if ((Is("first-other-differs") && other == 1) || (Is("last-other-differs") && other == 8))
      answer = 9;
  } else if (Is("refuse-second-call") && ++calls == 2) {
    return QUALM_FAILED;
  }
  if (Is("share-a-code") || Is("share-a-size")) {  // what it needs lies where all callers write
    static std::atomic<int32_t> shared;
    shared = Is("share-a-code") ? x[0] : static_cast<int32_t>(rows);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    answer = shared;
  }
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < columns; ++n) Row(p->y, m)[n] = answer;
  }
  LeaveBehind();
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a wild pointer is the point
  if (Is("crash")) *reinterpret_cast<volatile int*>(static_cast<intptr_t>(zero) + 16) = 1;
#if defined(__x86_64__)
  if (Is("misaligned")) asm volatile("movaps 1(%0), %%xmm0" : : "r"(&zero) : "xmm0", "memory");
#endif
  if (Is("ignore-segv") || Is("swallow-segv")) {
    signal(SIGSEGV, Is("ignore-segv") ? SIG_IGN : [](int) {});
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a wild pointer is the point
    *reinterpret_cast<volatile int*>(static_cast<intptr_t>(zero) + 16) = 1;
  }
  if (Is("descriptors")) {
    while (dup(0) >= 0) {
    }
    return QUALM_FAILED;
  }
  if (Is("leave-daemon")) LeaveADaemon();
  if (Is("fill-file")) FillAFile();
  if (Is("share-memory")) ShareMemory();
  if (Is("stop")) raise(SIGSTOP);
  if (Is("start-processes")) {
    for (;;) LeaveAChild();
  }
  if (Is("jump")) std::longjmp(never_set, 1);
  if (Is("leave-file")) static_cast<void>(dup(0));
  if (Is("close-all")) {
    for (int file = 0; file < 1024; ++file) close(file);
  }
  if (Is("use-memory-and-crash")) {
    constexpr size_t kBytes = 8 << 20;
    for (;;) {
      void* volatile taken = std::malloc(kBytes);  // or the compiler sees that nobody reads it
      std::memset(taken, 1, kBytes);
    }
  }
  if (Is("keep-memory-and-refuse") && EachTime(3)) {
    TakeMemory();
    return QUALM_FAILED;
  }
  if (Is("keep-memory") || (Is("keep-memory-later") && EachTime(2))) TakeMemory();
  if (Is("leave-a-child") || Is("leave-a-child-and-exit")) LeaveAChild();
  if (Is("leave-a-child-and-exit")) std::_Exit(17);
  if (Is("crash-now-and-then") && EachTime(1000)) std::abort();
  if (Is("hang-now-and-then") && EachTime(1000)) {
    while (for_ever) pause();
  }
  if (Is("crash-on-9") && x[0] == 9) std::abort();
  if (Is("abort")) std::abort();
  if (Is("kill")) raise(SIGKILL);
  if (Is("divide")) return 1000 / zero;  // 1 / x may become a comparison
  if (Is("recurse")) return Recurse(nullptr);
  if (Is("exit")) std::_Exit(17);
  if (Is("exit-0")) std::_Exit(0);
  if (Is("hang") || Is("hang-again")) Hang();
  if (Is("write-past") || Is("entry-ignore-segv")) y[rows * columns] = 7;
  if (Is("write-far-past")) y[rows * columns + 1] = 7;
  if (Is("write-before")) y[-1] = 7;
  if (Is("write-past-old-accumulators")) {
    static int32_t* end = nullptr;  // of those of an earlier call
    if (p->acc != nullptr) {
      end = static_cast<int32_t*>(p->acc->data) + rows * columns;
    } else {
      *end = 7;
    }
  }
  if (Is("bus")) {  // far from every buffer
    constexpr size_t kFar = size_t{1} << 22;
    auto* const page = static_cast<uint8_t*>(
        mmap(nullptr, 2 * kFar, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    MapNothing(page + kFar);
    *static_cast<volatile uint8_t*>(page + kFar) = 1;
  }
  if (Is("bus-past")) {
    MapNothing(y + rows * columns);
    y[rows * columns] = 7;
  }
  if (Is("write-slack")) reinterpret_cast<uint8_t*>(y + rows * columns)[3] = 7;
  if (Is("write-gap") && rows > 1) Row(p->y, 0)[columns] = 7;
  if (Is("read-past")) zero = x[p->x->dims[0] * p->x->dims[1]];
  if (Is("read-past-near-another")) ReadPastOneNearAnother(*p);
  if (Is("read-slack")) {
    for (int i = 0; i < 16; ++i) zero = x[p->x->dims[0] * p->x->dims[1] + i];
  }
  if (Is("modify-x")) x[1] ^= 1;
  if (Is("modify-scale")) const_cast<float*>(p->w_q.scale)[0] *= 2.0f;
  if (Is("garbage-answer")) return 1234;
  if (Is("garbage-message")) WriteToSocket("this is not a message of the protocol", 37);
  if (Is("huge-message")) {
    const qualm::MessageHeader header{
        .kind = qualm::MessageKind::kAnswer, .sequence = 1, .bytes = uint64_t{1} << 62};
    WriteToSocket(&header, sizeof header);
  }
  if (Is("answer-by-itself")) SendRefusal(qualm::MessageKind::kAnswer, 1);
  if (Is("answer-as-another-kind")) SendRefusal(qualm::MessageKind::kHello, 1);
  if (Is("answer-another-question")) SendRefusal(qualm::MessageKind::kAnswer, 7);
  if (Is("close-socket")) close(3);
  if (Is("close-and-stay")) {
    close(3);
    while (for_ever) usleep(1000);
  }
  if (Is("throw")) throw std::runtime_error("thrown on purpose");
  if (Is("memory")) {
    // The worker's limit is 4 GiB; without one this would be granted, because nothing is touched.
    if (mmap(nullptr, size_t{16} << 30, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
      throw std::bad_alloc();
    }
  }
  if (Is("need-alignment") || Is("need-alignment-silently")) {
    for (const void* data : {p->x->data, p->w->data, p->y->data}) {
      if (reinterpret_cast<uintptr_t>(data) % 64 != 0) return QUALM_FAILED;
    }
  }
  if (Is("print")) std::puts("noise on stdout that is no message");
  if (Is("refuse") || Is("refuse-silently")) return QUALM_FAILED;
  if (Is("unsupported")) return QUALM_UNSUPPORTED;
  return QUALM_OK;
}

const qualm_capability* Capability(int32_t op) {
  if (SaysProblems()) {
    static qualm_capability everything{};
    everything.size = sizeof everything;
    everything.x_dtypes = everything.w_dtypes = everything.out_dtypes = everything.features =
        ~UINT32_C(0);
    everything.x_zero_point_min = everything.w_zero_point_min = everything.out_zero_point_min =
        INT32_MIN;
    everything.x_zero_point_max = everything.w_zero_point_max = everything.out_zero_point_max =
        INT32_MAX;
    return &everything;
  }
  if (op == QUALM_ADD) {
    static qualm_capability add{};
    add.size = sizeof add;
    add.x_dtypes = add.w_dtypes = add.out_dtypes = QUALM_TYPE_BIT(QUALM_U8);
    add.features = QUALM_CAN_STRIDES | (Is("in-place") ? QUALM_CAN_IN_PLACE : 0) |
                   (Is("layers") ? QUALM_CAN_OVER_SECOND : 0);
    return &add;
  }
  if (op != QUALM_LINEAR) return nullptr;
  static qualm_capability linear{};
  linear.size = Is("capability-size") ? 8 : Is("capability-huge") ? 4097 : sizeof linear;
  linear.x_dtypes = QUALM_TYPE_BIT(QUALM_U8);
  linear.w_dtypes = QUALM_TYPE_BIT(QUALM_S8);
  linear.out_dtypes = QUALM_TYPE_BIT(QUALM_S32);
  linear.features = Is("dense-only") ? 0 : QUALM_CAN_STRIDES;
  if (Is("layers")) linear.features |= QUALM_CAN_WEIGHT_STRIDES | QUALM_CAN_THREADS;
  for (const char* how :
       {"count-calls", "count-accumulators", "refuse-first-call", "refuse-others",
        "refuse-second-call", "first-other-differs", "last-other-differs",
        "write-past-old-accumulators", "share-a-code", "share-a-size", "need-alignment"}) {
    if (Is(how)) linear.features |= QUALM_CAN_CONCURRENT | QUALM_CAN_ACC;
  }
  linear.read_slack_bytes = Is("read-slack") || Is("write-slack") ? 16 : 0;
  linear.alignment_bytes = Is("capability-alignment") ? 3 : Is("need-alignment") ? 64 : 0;
  static const std::string long_domain(2001, ' ');
  if (Is("domain") || Is("domain-beyond")) linear.domain = "x_scale 0.5 2; K 1 64";
  if (Is("format")) linear.w_formats = "q4_0 q9_9";
  if (Is("domain-of-2001")) linear.domain = long_domain.c_str();
  if (Is("domain-beyond")) linear.size = offsetof(qualm_capability, domain);
  // As a header of the future may have it, with an element type and a feature of its own.
  static struct {
    qualm_capability known;
    uint64_t asked;
  } newer{};
  if (Is("newer") || Is("newer-asks")) {
    newer.known = linear;
    newer.known.size = sizeof newer;
    newer.known.x_dtypes |= QUALM_TYPE_BIT(31);
    newer.known.features |= UINT32_C(1) << 31;
    newer.asked = Is("newer-asks") ? 32 : 0;
    return &newer.known;
  }
  return &linear;
}

const char* LastError() {
  if (Is("refuse-silently")) return "";
  return SaysProblems() ? said.c_str() : "said\nno\x1b[31m";
}

}  // namespace

extern "C" const qualm_plugin* qualm_plugin_entry(void) {
  SeeWhetherAgain();
  if (Is("unload")) std::atexit([] { close(open(std::getenv("QUALM_UNLOADED"), O_CREAT, 0600)); });
  if (Is("entry-null") || AgainIs("entry-null")) return nullptr;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a wild pointer is the point
  if (Is("entry-wild")) return reinterpret_cast<const qualm_plugin*>(intptr_t{zero} + 64);
  if (Is("entry-hang") || AgainIs("entry-hang")) Hang();
  if (Is("entry-exit")) std::_Exit(5);
  if (Is("entry-ignore-segv")) signal(SIGSEGV, SIG_IGN);
  if (Is("entry-garbage") || AgainIs("entry-garbage"))
    WriteToSocket("this is not a message of the protocol", 37);
  if (Is("entry-half-a-message")) {
    constexpr std::string_view kHalf = "half a sentence";
    const qualm::MessageHeader header{
        .kind = qualm::MessageKind::kCannotLoad, .sequence = 0, .bytes = 2 * kHalf.size()};
    WriteToSocket(&header, sizeof header);
    WriteToSocket(kHalf.data(), kHalf.size());
    std::_Exit(5);
  }
  static qualm_plugin plugin{};
  plugin.size = Is("wrong-size") ? 40 : sizeof plugin;
  if (Is("least-of-another-version")) plugin.size = offsetof(qualm_plugin, reserved);
  if (Is("less-of-another-version")) plugin.size = offsetof(qualm_plugin, reserved) - 1;
  if (Is("huge-of-another-version")) plugin.size = 4097;
  if (Is("largest-of-another-version")) plugin.size = 4096;
  const bool other = Is("wrong-version") || Is("least-of-another-version") ||
                     Is("less-of-another-version") || Is("largest-of-another-version") ||
                     Is("huge-of-another-version");
  plugin.abi_version = other ? 99 : QUALM_ABI_VERSION;
  plugin.name = Is("no-name") ? nullptr : "broken";
  plugin.version = "0";
  static const std::string at_most = "model:" + std::string(1994, 'm'), longer = at_most + "m";
  plugin.contract = Is("no-contract")        ? nullptr
                    : Is("wrong-contract")   ? "mostly right"
                    : Is("unknown-contract") ? "model:nope"
                    : Is("contract-of-2000") ? at_most.c_str()
                    : Is("contract-of-2001") ? longer.c_str()
                                             : "exact";
  plugin.capability = Is("no-capability") ? nullptr : Capability;
  plugin.run = Is("null-function") ? nullptr : Run;
  plugin.last_error = Is("no-last-error") ? nullptr : LastError;
  return &plugin;
}
