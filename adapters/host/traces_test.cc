// SPDX-License-Identifier: Apache-2.0
// A leak is named, and the memory of other threads is not taken for one. What a call has changed of
// its thread's state is named and put back.
#include "adapters/host/traces.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace qualm {
namespace {

using Blocks = std::vector<std::unique_ptr<char[]>>;

Blocks RoomFor(size_t count) {
  Blocks blocks;
  blocks.reserve(count);
  return blocks;
}

// Sanitizers count no heap: there LeakOf says nothing.
bool CountsTheHeap() {
#if defined(__GLIBC__)
  Blocks kept = RoomFor(1);
  const size_t before = mallinfo2().uordblks;
  kept.push_back(std::make_unique<char[]>(50'000));
  return mallinfo2().uordblks >= before + 50'000;
#else
  return false;
#endif
}

TEST(LeakOf, NamesTheBytesOfEachCall) {
  if (!CountsTheHeap()) GTEST_SKIP() << "this C library does not count its heap";
  Blocks kept = RoomFor(1000);
  EXPECT_EQ(LeakOf([&] { kept.push_back(std::make_unique<char[]>(1000)); }),
            "kept 1008 bytes of memory for each call");
  EXPECT_EQ(LeakOf([] { std::make_unique<char[]>(1000); }), "");
  // Keeps the last block alone.
  EXPECT_EQ(LeakOf([&] {
              kept.clear();
              kept.push_back(std::make_unique<char[]>(1000));
            }),
            "");
}

TEST(LeakOf, NamesTheFilesOfEachCall) {
  std::vector<int> open_files;
  const auto open_one = [&] { open_files.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC)); };
  EXPECT_EQ(LeakOf(open_one), "kept 1 open files for each call");
  const auto close_all = [&] {
    for (const int file : open_files) close(file);
    open_files.clear();
  };
  close_all();
  EXPECT_EQ(LeakOf([&] {
              close_all();
              open_one();
            }),
            "");
  close_all();
}

// LeakOf of a call that keeps nothing, under another limit.
std::string LeakUnder(decltype(RLIMIT_DATA) resource, rlim_t most) {
  rlimit before{};
  getrlimit(resource, &before);
  rlimit limit = before;
  limit.rlim_cur = most;
  setrlimit(resource, &limit);
  std::string left = LeakOf([] {});
  setrlimit(resource, &before);
  return left;
}

// A plugin may have taken everything long before a call is watched.
TEST(LeakOf, SaysWhenEarlierCallsLeftNothing) {
  EXPECT_EQ(LeakUnder(RLIMIT_NOFILE, 0), "kept every file that its process may open");
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  for (int field = 0; field < 6; ++field) file >> pages;
  ASSERT_GT(pages, 0u);
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  EXPECT_TRUE(LeakUnder(RLIMIT_DATA, bytes + bytes / 8).ends_with("that its process may have"));
  EXPECT_EQ(LeakUnder(RLIMIT_DATA, 2 * bytes), "");
}

constexpr size_t kBlock = 100'000;
const std::string kLeak = "kept 100016 bytes of memory for each call";

// LeakOf of calls of which the n-th keeps a block of bytes(n); 0 is no block. Sets *calls to how
// many were made.
std::string LeakWhere(const std::function<size_t(int call)>& bytes, int* calls) {
  Blocks kept = RoomFor(1000);
  *calls = 0;
  return LeakOf([&] {
    if (const size_t count = bytes(++*calls)) {
      kept.push_back(std::make_unique_for_overwrite<char[]>(count));
    }
  });
}

// Twelve calls to warm up, six rounds of four, six more with pauses: sixty.
TEST(LeakOf, IsWhatEachOfSixtyCallsKeeps) {
  if (!CountsTheHeap()) GTEST_SKIP() << "this C library does not count its heap";
  int calls = 0;
  EXPECT_EQ(LeakWhere([](int) { return 0; }, &calls), "");
  EXPECT_EQ(calls, 8) << "most calls keep nothing, and take no longer than needed";
  // A cache that is full at last.
  for (const int last : {1, 8, 12, 16, 35, 36, 37, 56, 59, 60}) {
    EXPECT_EQ(LeakWhere([=](int call) { return call <= last ? kBlock : 0; }, &calls),
              last == 60 ? kLeak : "")
        << last;
  }
  // First calls may keep any amount.
  EXPECT_EQ(LeakWhere([](int call) { return call <= 12 ? 200 * call : kBlock; }, &calls), kLeak);
  EXPECT_EQ(calls, 60);
  // What is not steady at once is not asked for again with pauses.
  EXPECT_EQ(LeakWhere([](int call) { return call <= 16 ? 200 * call : kBlock; }, &calls), "");
  EXPECT_EQ(calls, 20);
  EXPECT_EQ(LeakWhere([](int call) { return call == 30 ? 2 * kBlock : kBlock; }, &calls), "");
  EXPECT_EQ(calls, 32);
  // With pauses as much is kept as without.
  EXPECT_EQ(LeakWhere([](int call) { return call > 36 ? 2 * kBlock : kBlock; }, &calls), "");
  EXPECT_EQ(calls, 60);
  EXPECT_EQ(LeakWhere([](int call) { return call == 50 ? 2 * kBlock : kBlock; }, &calls), "");
}

// The allocator may round each block up by 16 bytes.
TEST(LeakOf, MayVaryByTheRoundingOfBlocks) {
  if (!CountsTheHeap()) GTEST_SKIP() << "this C library does not count its heap";
  int calls = 0;
  for (const size_t more : {16, 32}) {
    const std::string expected = more == 16 ? kLeak : "";
    EXPECT_EQ(LeakWhere([=](int call) { return call > 36 ? kBlock + more : kBlock; }, &calls),
              expected);
    // Calls 17 to 20 are the second round.
    EXPECT_EQ(
        LeakWhere([=](int call) { return (call - 1) / 4 == 4 ? kBlock + more : kBlock; }, &calls),
        expected);
  }
}

TEST(LeakOf, CountsLargeBlocksToo) {
  if (!CountsTheHeap()) GTEST_SKIP() << "this C library does not count its heap";
  int calls = 0;
  EXPECT_NE(LeakWhere([](int) { return 4 << 20; }, &calls), "");
}

TEST(LeakOf, ACallThatGivesBackKeepsNothing) {
  if (!CountsTheHeap()) GTEST_SKIP() << "this C library does not count its heap";
  Blocks kept = RoomFor(100);
  for (int i = 0; i < 100; ++i) kept.push_back(std::make_unique<char[]>(kBlock));
  EXPECT_EQ(LeakOf([&] { kept.pop_back(); }), "");
}

// Memory that grows with time is another thread's.
TEST(LeakOf, GrowsWithTheCallsAndNotWithTime) {
  if (!CountsTheHeap()) GTEST_SKIP() << "this C library does not count its heap";
  using Clock = std::chrono::steady_clock;
  auto last = Clock::now();
  int calls = 0;
  EXPECT_EQ(LeakWhere(
                [&](int) {
                  const auto now = Clock::now();
                  const bool paused = now - last >= std::chrono::milliseconds(1);
                  last = now;
                  return paused ? 2 * kBlock : kBlock;
                },
                &calls),
            "");
}

// Another thread that keeps about as much in any round of calls looks like a leak at first.
TEST(LeakOf, OfAnotherThreadIsNone) {
  if (!CountsTheHeap()) GTEST_SKIP() << "this C library does not count its heap";
  using Clock = std::chrono::steady_clock;
  const auto wait = [](std::chrono::microseconds time) {
    const auto end = Clock::now() + time;
    while (Clock::now() < end) {
    }
  };
  constexpr size_t kMost = 200'000;
  Blocks kept = RoomFor(kMost);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop && kept.size() < kMost) {
      kept.push_back(std::make_unique<char[]>(8));
      wait(std::chrono::microseconds(50));
    }
  });
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(LeakOf([&] { wait(std::chrono::microseconds(50)); }), "") << i;
  }
  stop = true;
  other.join();
}

void Mask(int how, std::initializer_list<int> numbers) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : numbers) sigaddset(&signals, number);
  pthread_sigmask(how, &signals, nullptr);
}

// The signals that this thread blocks.
std::vector<int> Blocked() {
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, nullptr, &now);
  std::vector<int> blocked;
  for (int number = 1; number < NSIG; ++number) {
    if (sigismember(&now, number) == 1) blocked.push_back(number);
  }
  return blocked;
}

// The signals that a call may have left blocked before are open while one looks, so that a call
// that blocks them is seen, and are as they were afterwards.
TEST(Traces, OpenFourSignalsAndCloseThemAgain) {
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  for (const std::vector<int>& mask :
       {std::vector<int>{}, {SIGUSR1}, {SIGUSR1, SIGUSR2, SIGTERM, SIGURG, SIGWINCH}}) {
    Mask(SIG_SETMASK, {});
    for (const int number : mask) Mask(SIG_BLOCK, {number});
    const std::vector<int> blocked = Blocked();
    {
      const Traces traces;
      EXPECT_EQ(Blocked(), mask.size() == 5 ? std::vector<int>{SIGTERM} : std::vector<int>{});
      EXPECT_EQ(traces.Left(), "");
      Mask(SIG_BLOCK, {SIGUSR2});
    }
    EXPECT_EQ(Blocked(), blocked);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(Traces, NameTheSignalThatIsBlockedOrOpenNow) {
  Mask(SIG_BLOCK, {SIGTERM});
  for (const int number : {SIGHUP, SIGUSR1, SIGUSR2, SIGURG, SIGWINCH, NSIG - 1}) {
    const Traces traces;
    EXPECT_EQ(traces.Left(), "");
    Mask(SIG_BLOCK, {number});
    EXPECT_EQ(traces.Left(), "left another signal mask: signal " + std::to_string(number));
    Mask(SIG_UNBLOCK, {number});
    EXPECT_EQ(traces.Left(), "");
  }
  {
    const Traces traces;
    Mask(SIG_UNBLOCK, {SIGTERM});
    EXPECT_EQ(traces.Left(), "left another signal mask: signal " + std::to_string(SIGTERM));
  }
  Mask(SIG_UNBLOCK, {SIGTERM});
}

TEST(Traces, NameTheControlWord) {
  const Traces traces;
  const int before = std::fegetround();
  std::fesetround(FE_UPWARD);
  EXPECT_EQ(traces.Left(), "left another floating-point control word");
  std::fesetround(before);
  EXPECT_EQ(traces.Left(), "");
  // The exceptions that a call raises are no state of the caller.
  std::feraiseexcept(FE_INEXACT);
  EXPECT_EQ(traces.Left(), "");
}

}  // namespace
}  // namespace qualm
