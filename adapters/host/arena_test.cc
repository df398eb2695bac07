// SPDX-License-Identifier: Apache-2.0
// The guarded buffers see every stray byte, and a trap leaves the process as it found it.
#include "adapters/host/arena.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <bit>
#include <cfenv>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <new>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/burst.h"
#include "core/sanitized.h"

namespace qualm {
namespace {

// The faults themselves, hidden from the optimiser and from UBSan, which would stop us first.
#define QUALM_ON_PURPOSE __attribute__((noinline, no_sanitize("undefined")))
QUALM_ON_PURPOSE void Store(volatile uint8_t* at) { *at = 1; }
QUALM_ON_PURPOSE uint8_t Load(const volatile uint8_t* at) { return *at; }

std::string StoreTrapped(uint8_t* at) {
  return CallTrapped([](void* p) { Store(static_cast<uint8_t*>(p)); }, at);
}
std::string LoadTrapped(uint8_t* at) {
  return CallTrapped([](void* p) { Load(static_cast<uint8_t*>(p)); }, at);
}

TEST(GuardedBuffer, EndsAtAnInaccessiblePage) {
  GuardedBuffer buffer;
  for (size_t bytes : {size_t{1}, size_t{3}, size_t{64}, size_t{4096}, size_t{100000}}) {
    uint8_t* const data = buffer.Prepare(bytes, 0, 1, {.end_at_guard = true});
    EXPECT_EQ(LoadTrapped(data + bytes - 1), "");
    EXPECT_EQ(LoadTrapped(data + bytes), kGuardPageTrap) << bytes;
    EXPECT_EQ(StoreTrapped(data + bytes), kGuardPageTrap) << bytes;
  }
}

TEST(GuardedBuffer, BeginsAfterAnInaccessiblePage) {
  GuardedBuffer buffer;
  uint8_t* const data = buffer.Prepare(100, 0, 4, {.end_at_guard = false});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
  EXPECT_EQ(LoadTrapped(data), "");
  EXPECT_EQ(LoadTrapped(data - 1), kGuardPageTrap);
}

TEST(GuardedBuffer, MovesTheStartByWholeElements) {
  GuardedBuffer buffer;
  for (int offset = 0; offset < 64; ++offset) {
    const RunContext context{.align_offset = offset, .end_at_guard = false};
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.Prepare(10, 0, 1, context)) % 64,
              static_cast<uintptr_t>(offset));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.Prepare(12, 0, 4, context)) % 64,
              static_cast<uintptr_t>(offset / 4 * 4));
  }
}

TEST(GuardedBuffer, SlackIsReadableAndBelongsToTheOutside) {
  GuardedBuffer buffer;
  uint8_t* const data = buffer.Prepare(8, 16, 4, {.end_at_guard = true, .poison = 0x5C});
  EXPECT_EQ(Load(data + 8), 0x5C);
  EXPECT_EQ(LoadTrapped(data + 23), "");
  EXPECT_EQ(LoadTrapped(data + 24), kGuardPageTrap);
  EXPECT_TRUE(buffer.OutsideIntact());
  data[8] = 0;
  EXPECT_FALSE(buffer.OutsideIntact());
}

// A run finds the poison everywhere, whatever the runs before it wrote, and whether or not somebody
// looked at what they wrote.
TEST(GuardedBuffer, IsFilledAfterAnyOtherRun) {
  GuardedBuffer buffer;
  const std::vector<RunContext> contexts{
      {}, {.end_at_guard = false}, {.poison = 0x5C}, {.rounding = Rounding::kUp}, {}};
  uint64_t turn = 0;
  for (int round = 0; round < 500; ++round) {
    turn = turn * 6364136223846793005u + 1442695040888963407u;
    const auto draw = [&](size_t shift, size_t below) { return (turn >> shift) % below; };
    const size_t bytes = draw(20, 200);
    const RunContext context = contexts[draw(33, contexts.size())];
    uint8_t* const data = buffer.Prepare(bytes, draw(40, 2) * 8, 1, context);
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(data[i], context.poison) << round;
    if (draw(50, 2) == 0) {
      ASSERT_TRUE(buffer.OutsideIntact()) << round;
    }
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i);
    if (context.end_at_guard && draw(45, 4) == 0) {
      data[-1] ^= 1;
      ASSERT_FALSE(buffer.OutsideIntact()) << round;
    } else if (draw(48, 2) == 0) {
      ASSERT_TRUE(buffer.OutsideIntact()) << round;
    }
  }
}

TEST(GuardedBuffer, SeesEveryByteWrittenOutsideAndNoneInside) {
  for (bool end : {false, true}) {
    GuardedBuffer buffer;
    const RunContext context{.align_offset = 7, .end_at_guard = end};
    uint8_t* data = buffer.Prepare(40, 0, 1, context);
    for (size_t i = 0; i < 40; ++i) data[i] = 0;
    EXPECT_TRUE(buffer.OutsideIntact());
    for (int at : end ? std::vector<int>{-1, -500, -4000} : std::vector<int>{-1, -7, 40, 1000}) {
      data = buffer.Prepare(40, 0, 1, context);
      EXPECT_TRUE(buffer.OutsideIntact());
      data[at] = static_cast<uint8_t>(~context.poison);
      EXPECT_FALSE(buffer.OutsideIntact()) << at;
    }
  }
}

TEST(GuardedBuffer, InTheDefaultContextWatchesWhatIsNear) {
  constexpr auto kNear = static_cast<std::ptrdiff_t>(GuardedBuffer::kNear);
  GuardedBuffer buffer;
  for (const std::ptrdiff_t at : {std::ptrdiff_t{-1}, -kNear}) {
    uint8_t* const data = buffer.Prepare(40, 0, 1, {});
    EXPECT_TRUE(buffer.OutsideIntact());
    data[at] ^= 1;
    EXPECT_FALSE(buffer.OutsideIntact()) << at;
  }
  // The contexts of memory properties watch the whole page.
  uint8_t* const data = buffer.Prepare(40, 0, 1, {.poison = 0x5A});
  data[-kNear - 1] ^= 1;
  EXPECT_FALSE(buffer.OutsideIntact());

  // An output is poisoned, an input is left to whoever writes it.
  EXPECT_EQ(buffer.Prepare(40, 0, 1, {})[39], RunContext{}.poison);
  data[39] = 7;
  EXPECT_EQ(buffer.Prepare(40, 0, 1, {}, GuardedBuffer::Inside::kLeft)[39], 7);
  EXPECT_TRUE(buffer.OutsideIntact());
  data[-1] ^= 1;
  buffer.Drop();
  EXPECT_TRUE(buffer.OutsideIntact());
}

// What is not about memory leaves it as in the default context, where only the near is watched.
TEST(GuardedBuffer, WatchesWhatIsNearWhateverElseIsAsked) {
  constexpr auto kNear = static_cast<std::ptrdiff_t>(GuardedBuffer::kNear);
  for (const RunContext& context : {RunContext{},
                                    {.calls = 2},
                                    {.callers = 2},
                                    {.watch = true},
                                    {.threads = 2},
                                    {.rounding = Rounding::kUp},
                                    {.flush_denormals = true},
                                    {.want_acc = true}}) {
    GuardedBuffer buffer;
    uint8_t* const data = buffer.Prepare(40, 0, 1, context);
    data[-kNear - 1] ^= 1;
    EXPECT_TRUE(buffer.OutsideIntact());
    data[-kNear] ^= 1;
    EXPECT_FALSE(buffer.OutsideIntact());
  }
}

// An output is poisoned again where the one before it lay.
TEST(GuardedBuffer, AnOutputInTheSamePlaceIsPoisonedAgain) {
  GuardedBuffer buffer;
  for (int run = 0; run < 3; ++run) {
    uint8_t* const data = buffer.Prepare(40, 0, 1, {});
    for (size_t i = 0; i < 40; ++i) EXPECT_EQ(data[i], RunContext{}.poison) << run;
    for (size_t i = 0; i < 40; ++i) data[i] = 7;
    EXPECT_TRUE(buffer.OutsideIntact());
  }
}

TEST(GuardedBuffer, ThrowsWhereNoSuchMemoryIs) {
  GuardedBuffer buffer;
  for (const auto& [bytes, slack] : {std::pair{SIZE_MAX / 2 + 1, size_t{0}},
                                     {SIZE_MAX, size_t{0}},
                                     {size_t{1}, SIZE_MAX},
                                     {size_t{1}, SIZE_MAX / 4 + 1},
                                     {SIZE_MAX / 4, size_t{0}},
                                     {size_t{1} << 48, size_t{0}}}) {
    buffer.Prepare(10, 0, 1, {})[-1] ^= 1;
    EXPECT_THROW(buffer.Prepare(bytes, slack, 1, {}), std::bad_alloc) << bytes << " " << slack;
    EXPECT_TRUE(buffer.OutsideIntact()) << "there is no buffer";
  }
  uint8_t* const data = buffer.Prepare(10, 0, 1, {});
  EXPECT_EQ(LoadTrapped(data + 9), "");
  EXPECT_EQ(LoadTrapped(data + 10), kGuardPageTrap);
  // The large mapping that gave way to one that could not be had is not taken for one.
  buffer.Prepare(8 << 20, 0, 1, {});
  EXPECT_THROW(buffer.Prepare(size_t{1} << 48, 0, 1, {}), std::bad_alloc);
  EXPECT_EQ(LoadTrapped(buffer.Prepare(8 << 20, 0, 1, {})), "");
}

// A field of /proc/self/statm, in bytes.
size_t MemoryBytes(int field) {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  for (int i = 0; i <= field; ++i) file >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

#if defined(__x86_64__)  // qemu takes no such limit
TEST(GuardedBuffer, MemoryThatMayNotBeOpenedIsNoBuffer) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs memory itself";
  EXPECT_EXIT(
      {
        GuardedBuffer buffer;
        struct rlimit limit = {};
        getrlimit(RLIMIT_DATA, &limit);
        const struct rlimit before = limit;
        limit.rlim_cur = MemoryBytes(5) + (1 << 20);
        setrlimit(RLIMIT_DATA, &limit);
        bool threw = false;
        try {
          buffer.Prepare(64 << 20, 0, 1, {});
        } catch (const std::bad_alloc&) {
          threw = true;
        }
        setrlimit(RLIMIT_DATA, &before);
        uint8_t* const data = buffer.Prepare(64 << 20, 0, 1, {});
        std::_Exit(threw && LoadTrapped(data).empty() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}
#endif

TEST(GuardedBuffer, HasRoomForItsSlackAndItsAlignment) {
  GuardedBuffer buffer;
  for (const bool end : {true, false}) {
    for (const auto& [bytes, slack, alignment] : {std::tuple{size_t{4096}, size_t{4096}, size_t{1}},
                                                  {size_t{10}, size_t{8192}, size_t{1}},
                                                  {size_t{8}, size_t{8}, size_t{1}},
                                                  {size_t{4160}, size_t{0}, size_t{128}},
                                                  {size_t{12}, size_t{0}, size_t{128}},
                                                  {size_t{4096}, size_t{64}, size_t{4096}}}) {
      uint8_t* const data = buffer.Prepare(bytes, slack, alignment, {.end_at_guard = end});
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % alignment, 0u);
      EXPECT_EQ(LoadTrapped(data), "");
      EXPECT_EQ(LoadTrapped(data + bytes + slack - 1), "");
      if (!end) {
        EXPECT_EQ(LoadTrapped(data - 1), kGuardPageTrap) << bytes;
      }
      EXPECT_TRUE(buffer.OutsideIntact());
    }
  }
}

// A poison of 0 is what nobody has written, but not what somebody has written over.
TEST(GuardedBuffer, APoisonOfZeroIsFilledAgain) {
  GuardedBuffer buffer;
  for (int run = 0; run < 3; ++run) {
    uint8_t* const data = buffer.Prepare(40, 0, 1, {.poison = 0});
    EXPECT_TRUE(buffer.OutsideIntact()) << run;
    data[-1] = 1;
    EXPECT_FALSE(buffer.OutsideIntact()) << run;
  }
}

TEST(GuardedBuffer, AnEmptyOneMayNotBeTouched) {
  for (bool end : {false, true}) {
    GuardedBuffer buffer;
    uint8_t* const data = buffer.Prepare(0, 0, 4, {.align_offset = 8, .end_at_guard = end});
    EXPECT_EQ(LoadTrapped(data), kGuardPageTrap);
    EXPECT_TRUE(buffer.OutsideIntact());
  }
}

// The mapping of a large case is taken back; the next buffer must not trust what was filled in
// there.
TEST(GuardedBuffer, ALargeMappingGoesBackToTheSystem) {
  GuardedBuffer buffer;
  uint8_t* const huge = buffer.Prepare(64 << 20, 0, 1, {});
  EXPECT_TRUE(buffer.OutsideIntact());
  uint8_t* const data = buffer.Prepare(4 << 20, 0, 1, {});
  EXPECT_EQ(LoadTrapped(data), "");
  EXPECT_EQ(LoadTrapped(huge), "SIGSEGV: access to an unmapped address");
  const auto alternate = [&](int times) {
    for (int i = 0; i < times; ++i) {
      buffer.Prepare(64 << 20, 0, 1, {}, GuardedBuffer::Inside::kLeft);
      buffer.Prepare(4 << 20, 0, 1, {}, GuardedBuffer::Inside::kLeft);
    }
    return MemoryBytes(0);
  };
  alternate(1);
  const size_t once = alternate(1);
  EXPECT_LT(alternate(200), once + (1 << 20));
}

TEST(GuardedBuffer, ShrinksAfterAHugeCase) {
  GuardedBuffer buffer;
  buffer.Prepare(64 << 20, 0, 1, {});
  uint8_t* const data = buffer.Prepare(10, 0, 1, {});
  EXPECT_EQ(LoadTrapped(data + 10), kGuardPageTrap);
  // One page of body is left: a page before is the guard.
  EXPECT_EQ(LoadTrapped(data - 4096), kGuardPageTrap);
}

// A mapping is kept while it is less than eight times too large.
TEST(GuardedBuffer, ALargeMappingIsKeptForACaseNotMuchSmaller) {
  GuardedBuffer buffer;
  const auto pages_in_front = [&](size_t pages) {  // of a buffer that needs so many
    const size_t bytes = pages * 4096 - 65;
    uint8_t* const data = buffer.Prepare(bytes, 0, 1, {});
    size_t found = 0;
    while (LoadTrapped(data + bytes - 4096 * (found + 1)).empty()) found += 64;
    return found;
  };
  EXPECT_EQ(pages_in_front(8 * 512), 8u * 512);
  EXPECT_EQ(pages_in_front(512), 8u * 512);
  EXPECT_EQ(pages_in_front(448), 448u);
  EXPECT_EQ(pages_in_front(512), 512u);
  // The same case lies in the same memory, which has to be mapped once.
  constexpr size_t kBytes = 512 * 4096 - 65;
  buffer.Prepare(kBytes, 0, 1, {})[5] = 7;
  EXPECT_EQ(buffer.Prepare(kBytes, 0, 1, {}, GuardedBuffer::Inside::kLeft)[5], 7);
}

// A case of the middle size between small ones: each size keeps its mapping, and its guard pages.
TEST(GuardedBuffer, ASmallBufferLiesInASmallMapping) {
  GuardedBuffer buffer;
  for (const size_t bytes : {size_t{10}, size_t{9000}, size_t{40000}, size_t{10}, size_t{9000}}) {
    uint8_t* const data = buffer.Prepare(bytes, 0, 1, {});
    const size_t pages = std::bit_ceil((bytes + 65 + 4095) / 4096);
    EXPECT_EQ(LoadTrapped(data + bytes - 4096 * pages), "") << bytes;
    EXPECT_EQ(LoadTrapped(data + bytes - 4096 * pages - 1), kGuardPageTrap) << bytes;
    EXPECT_EQ(LoadTrapped(data + bytes), kGuardPageTrap) << bytes;
  }
}

TEST(Rows, GoOutAndComeBackWithTheirGapsUntouched) {
  std::vector<int32_t> values{1, 2, 3, 4, 5, 6};
  const Tensor tensor = Tensor::Of<int32_t>({2, 3}, values);
  GuardedBuffer buffer;
  const RunContext context{.poison = 0x77};
  ASSERT_EQ(ScatteredBytes(DType::kS32, 2, 3, 2), size_t{(5 + 3) * 4});
  uint8_t* const data = buffer.Prepare(ScatteredBytes(DType::kS32, 2, 3, 2), 0, 4, context);
  Scatter(tensor, 2, data);
  EXPECT_EQ(Gather(DType::kS32, {2, 3}, 2, data), tensor);
  EXPECT_TRUE(GapsIntact(DType::kS32, 2, 3, 2, 0x77, data));
  data[4 * 4 + 3] = 0;  // last byte of the gap after row 0
  EXPECT_FALSE(GapsIntact(DType::kS32, 2, 3, 2, 0x77, data));
  EXPECT_EQ(Gather(DType::kS32, {2, 3}, 2, data), tensor);
}

TEST(Rows, MayBeEmpty) {
  EXPECT_EQ(ScatteredBytes(DType::kU8, 0, 5, 3), 0u);
  EXPECT_EQ(ScatteredBytes(DType::kU8, 3, 0, 2), 4u);
  EXPECT_EQ(RowsOf({}).count, 0) << "an operation without such a tensor";
  EXPECT_EQ(Gather(DType::kS32, {}, 0, nullptr), Tensor());
  EXPECT_EQ(Gather(DType::kU8, {0, 5}, 3, nullptr), Tensor(DType::kU8, {0, 5}));
  Scatter(Tensor(DType::kU8, {0, 5}), 3, nullptr);
}

TEST(Rows, OfCallersThatDiffer) {
  const std::vector<int32_t> values{1, 2, 3, 4, 5, 6, 7, 8};
  const auto bytes = [](const std::vector<int32_t>& list) {
    return reinterpret_cast<const uint8_t*>(list.data());
  };
  // Two rows of three, a stride of four: the fourth of each is a gap.
  for (size_t changed = 0; changed < values.size(); ++changed) {
    std::vector<int32_t> other = values;
    other[changed] = -1;
    std::vector<int32_t> y = values;
    const bool in_gap = changed % 4 == 3;
    EXPECT_EQ(
        TakeIfDifferent(bytes(other), DType::kS32, {2, 3}, 4, reinterpret_cast<uint8_t*>(y.data())),
        !in_gap)
        << changed;
    EXPECT_EQ(y, in_gap ? values : other);
  }
  std::vector<int32_t> y = values;
  uint8_t* const at = reinterpret_cast<uint8_t*>(y.data());
  EXPECT_FALSE(TakeIfDifferent(bytes(values), DType::kS32, {2, 3}, 4, at));
  EXPECT_FALSE(TakeIfDifferent(nullptr, DType::kS32, {2, 0}, 4, at));
  EXPECT_FALSE(TakeIfDifferent(nullptr, DType::kS32, {0, 3}, 4, at));
}

TEST(ScopedEnvironment, SetsAndRestores) {
  const volatile float one = 1.0f;
  const volatile float tiny = 0x1p-30f;
  const volatile float denormal = std::numeric_limits<float>::min();
  const int before = std::fegetround();
  const uint64_t words = ControlWords();
  {
    const ScopedEnvironment environment({.rounding = Rounding::kUp, .flush_denormals = true});
    EXPECT_EQ(one + tiny, 0x1.000002p0f);
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
    EXPECT_EQ(denormal * 0.5f, 0.0f);
    EXPECT_EQ(environment.words(), ControlWords());
    EXPECT_NE(environment.words(), words);
  }
  EXPECT_EQ(ControlWords(), words);
  {
    const ScopedEnvironment environment({.rounding = Rounding::kDown});
    EXPECT_EQ(one - tiny, 0x1.fffffep-1f);
    EXPECT_EQ(-one - tiny, -0x1.000002p0f);
    EXPECT_GT(denormal * 0.5f, 0.0f);
  }
  {
    const ScopedEnvironment environment({.rounding = Rounding::kTowardZero});
    EXPECT_EQ(one - tiny, 0x1.fffffep-1f);
    EXPECT_EQ(-one - tiny, -1.0f);
  }
  EXPECT_EQ(std::fegetround(), before);
  EXPECT_EQ(one + tiny, 1.0f);
  EXPECT_GT(denormal * 0.5f, 0.0f);
}

TEST(CallTrapped, ReportsTheSignalInWords) {
  EXPECT_EQ(CallTrapped([](void*) { raise(SIGILL); }, nullptr), "SIGILL: illegal instruction");
  EXPECT_EQ(CallTrapped([](void*) { raise(SIGBUS); }, nullptr), "SIGBUS: bus error");
  EXPECT_EQ(CallTrapped([](void*) { raise(SIGFPE); }, nullptr),
            "SIGFPE: arithmetic exception (integer division)");
  EXPECT_EQ(CallTrapped([](void*) {}, nullptr), "");
  EXPECT_EQ(StoreTrapped(nullptr), "SIGSEGV: access to an unmapped address");
#if defined(__x86_64__)
  EXPECT_EQ(StoreTrapped(reinterpret_cast<uint8_t*>(uintptr_t{1} << 62)),
            "SIGSEGV: misaligned or non-canonical address");
#endif
}

TEST(CallTrapped, NestsAndSurvivesManySignals) {
  GuardedBuffer buffer;
  uint8_t* const outside = buffer.Prepare(4, 0, 1, {}) + 4;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(CallTrapped(
                  [](void* at) {
                    EXPECT_EQ(StoreTrapped(static_cast<uint8_t*>(at)), kGuardPageTrap);
                    raise(SIGILL);
                  },
                  outside),
              "SIGILL: illegal instruction");
  }
}

TEST(CallTrapped, LetsExceptionsThroughAndForgetsThem) {
  EXPECT_THROW(CallTrapped([](void*) { throw std::runtime_error("x"); }, nullptr),
               std::runtime_error);
  EXPECT_EQ(CallTrapped([](void*) { raise(SIGILL); }, nullptr), "SIGILL: illegal instruction");
}

TEST(CallTrapped, WorksOnManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<int> trapped(4, 0);
  for (int& count : trapped) {
    threads.emplace_back([&count] {
      GuardedBuffer buffer;
      uint8_t* const outside = buffer.Prepare(4, 0, 1, {}) + 4;
      for (int i = 0; i < 500; ++i) count += StoreTrapped(outside) == kGuardPageTrap ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int count : trapped) EXPECT_EQ(count, 500);
}

struct sigaction Current(int number) {
  struct sigaction action = {};
  sigaction(number, nullptr, &action);
  return action;
}

TEST(CallTrapped, RestoresTheHandlerThatWasThere) {
  const struct sigaction before = Current(SIGSEGV);
  StoreTrapped(nullptr);
  const struct sigaction after = Current(SIGSEGV);
  // The C library may add SA_RESTORER to what it hands back; all other flags are somebody's.
  constexpr int kRestorer = 0x04000000;
  EXPECT_EQ(before.sa_flags & ~kRestorer, after.sa_flags & ~kRestorer);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(CallTrapped, InsideABurstTheHandlersStayUntilItEnds) {
  const struct sigaction before = Current(SIGSEGV);
  {
    const Burst burst;
    StoreTrapped(nullptr);
    EXPECT_NE(Current(SIGSEGV).sa_handler, before.sa_handler);
    {
      const Burst inner;
      EXPECT_NE(StoreTrapped(nullptr), "");
    }
    EXPECT_NE(Current(SIGSEGV).sa_handler, before.sa_handler);
    EXPECT_NE(StoreTrapped(nullptr), "");
    std::thread([] { EXPECT_NE(StoreTrapped(nullptr), ""); }).join();
  }
  EXPECT_EQ(Current(SIGSEGV).sa_handler, before.sa_handler);
  EXPECT_NE(StoreTrapped(nullptr), "") << "after it they are installed again";
}

// Raises SIGBUS on a thread that is not inside CallTrapped, while our handler is installed.
void RaiseElsewhere() {
  EXPECT_EQ(CallTrapped([](void*) { std::thread([] { raise(SIGBUS); }).join(); }, nullptr), "");
}

TEST(CallTrapped, ASignalOfAnotherThreadMeansWhatItMeant) {
  static volatile sig_atomic_t seen = 0;
  seen = 0;
  struct sigaction before = {};
  struct sigaction mine = {};
  mine.sa_flags = SA_SIGINFO;
  mine.sa_sigaction = [](int number, siginfo_t* info, void*) {
    seen = number == SIGBUS && info->si_signo == SIGBUS ? 1 : 2;
  };
  ASSERT_EQ(sigaction(SIGBUS, &mine, &before), 0);
  RaiseElsewhere();
  EXPECT_EQ(seen, 1);
  mine = {};
  mine.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGBUS, &mine, nullptr), 0);
  RaiseElsewhere();
  sigaction(SIGBUS, &before, nullptr);
  EXPECT_EXIT(
      {
        signal(SIGBUS, SIG_DFL);
        RaiseElsewhere();
        std::_Exit(0);
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(CallTrapped, ASignalOfAnotherThreadGoesToWhoeverHadIt) {
  static volatile sig_atomic_t seen = 0;
  seen = 0;
  struct sigaction mine = {};
  mine.sa_handler = [](int) { seen = seen + 1; };
  struct sigaction before = {};
  ASSERT_EQ(sigaction(SIGBUS, &mine, &before), 0);
  RaiseElsewhere();
  EXPECT_EQ(seen, 1);
  // The signals of this thread are ours still.
  EXPECT_EQ(CallTrapped(
                [](void*) {
                  std::thread([] { raise(SIGBUS); }).join();
                  raise(SIGBUS);
                },
                nullptr),
            "SIGBUS: bus error");
  EXPECT_EQ(seen, 2);
  sigaction(SIGBUS, &before, nullptr);
}

// NOLINTNEXTLINE(misc-no-recursion)
QUALM_ON_PURPOSE int Overflow(volatile const char* above) {
  volatile char page[4096] = {*above};
  return page[0] != 0 ? 0 : Overflow(page) + page[0];  // it never is
}

// Looks at the alternate stack of its thread when that thread ends, after all that was made later.
struct LastLook {
  ~LastLook() { sigaltstack(nullptr, seen); }
  stack_t* seen = nullptr;
};

// A stack that has overflown has no room for a handler.
TEST(CallTrapped, HandlesSignalsOnAStackOfTheirOwn) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has a stack for handlers";
  stack_t seen = {};
  std::thread([&] {
    thread_local LastLook last;
    last.seen = &seen;
    const char top = 0;
    EXPECT_NE(CallTrapped([](void* at) { Overflow(static_cast<const char*>(at)); },
                          const_cast<char*>(&top)),
              "");
  }).join();
  EXPECT_NE(seen.ss_flags & SS_DISABLE, 0) << "its memory is gone";
  // A thread that has such a stack keeps it.
  std::vector<char> memory(1 << 16);
  stack_t own = {};
  own.ss_sp = memory.data();
  own.ss_size = memory.size();
  std::thread([&] {
    thread_local LastLook last;
    last.seen = &seen;
    ASSERT_EQ(sigaltstack(&own, nullptr), 0);
    EXPECT_NE(StoreTrapped(nullptr), "");
    stack_t now = {};
    sigaltstack(nullptr, &now);
    EXPECT_EQ(now.ss_sp, own.ss_sp);
  }).join();
  EXPECT_EQ(seen.ss_sp, own.ss_sp);
  EXPECT_EQ(seen.ss_flags & SS_DISABLE, 0);
}

#if defined(__x86_64__)  // Arm divides by zero without a word.
QUALM_ON_PURPOSE void Divide(void* by) {
  volatile int numerator = 1;
  numerator = numerator / *static_cast<volatile int*>(by);
}

TEST(CallTrapped, SeesAnIntegerDivisionByZero) {
  int zero = 0;
  EXPECT_EQ(CallTrapped(Divide, &zero), "SIGFPE: arithmetic exception (integer division)");
}
#endif

}  // namespace
}  // namespace qualm
