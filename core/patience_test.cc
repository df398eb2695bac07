// SPDX-License-Identifier: Apache-2.0
#include "core/patience.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "core/processes_test_util.h"

namespace qualm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kLong = 60'000;  // a limit that no test waits for

// Milliseconds that a thread stood in line for a processor since it began.
int64_t InLine(const std::string& thread) {
  std::ifstream file("/proc/" + thread + "/schedstat");
  int64_t run = 0, in_line = 0;
  file >> run >> in_line;
  return in_line / 1'000'000;
}
int64_t OwnInLine() { return InLine("thread-self"); }

struct Waited {
  int64_t clock;  // milliseconds until the child had had its time
  int64_t own;    // of them, those that this thread was not in line
};

// Waits until the child has had its time, for at most ten seconds.
Waited WaitFor(
    Patience& patience,
    const std::function<void()>& meanwhile = [] { std::this_thread::sleep_for(milliseconds(5)); }) {
  const auto start = Clock::now();
  const int64_t before = OwnInLine();
  const auto clock = [&] {
    return std::chrono::duration_cast<milliseconds>(Clock::now() - start).count();
  };
  while (patience.MillisecondsLeft() > 0 && clock() < 10'000) meanwhile();
  const int64_t took = clock();
  return {took, took - (OwnInLine() - before)};
}

bool NoTimesInLine() { return !std::filesystem::exists("/proc/self/schedstat"); }

TEST(Patience, AChildHasItsLimitAndNoMore) {
  const Forked child(SleepForEver);
  Patience patience;
  patience.Begin(child.pid(), 300);
  const Waited waited = WaitFor(patience);
  EXPECT_GE(waited.clock, 299);
  EXPECT_LT(waited.own, 600);
  EXPECT_FALSE(patience.machine_was_busy());
}

TEST(Patience, WaitsEndInTimeForALookAtTheChild) {
  const Forked child(SleepForEver);
  Patience patience;
  const auto begin = std::chrono::steady_clock::now();
  patience.Begin(child.pid(), kLong);
  const int left = patience.MillisecondsLeft();
  const milliseconds passed =
      std::chrono::ceil<milliseconds>(std::chrono::steady_clock::now() - begin);
  EXPECT_LE(left, 100);
  EXPECT_GE(left, 100 - passed.count());
  patience.Begin(child.pid(), 40);
  EXPECT_LE(patience.MillisecondsLeft(), 40);
}

TEST(Patience, ALimitIsFromNowOnAndNeverLater) {
  const Forked child(SleepForEver);
  Patience patience;
  patience.Begin(child.pid(), kLong);
  std::this_thread::sleep_for(milliseconds(300));
  patience.Limit(200);
  EXPECT_GT(patience.MillisecondsLeft(), 0) << "what has passed does not count";
  const Waited from_now = WaitFor(patience);
  EXPECT_GE(from_now.clock, 150);
  EXPECT_LT(from_now.own, 500);

  patience.Begin(child.pid(), 200);
  patience.Limit(kLong);
  EXPECT_LT(WaitFor(patience).own, 500) << "the limit of before holds";
}

// Whatever of the child works, alone beside seven others, gets an eighth of the processor.
void ExpectPatienceWith(void (*work)(), const char* needs = "/proc/self/schedstat") {
  if (NoTimesInLine() || !std::filesystem::exists(needs)) GTEST_SKIP() << "no " << needs;
  const BusyProcessor busy(7);
  const Forked other(SleepForEver), child(work);
  Patience patience;
  patience.Begin(other.pid(), kLong);  // a moment ago, of another child
  patience.Begin(child.pid(), 100);
  // On a machine that is busy with others too the wait is as long as any may be.
  const Waited waited = WaitFor(patience);
  EXPECT_TRUE(waited.own >= 300 || waited.clock >= 2000) << waited.own;
  EXPECT_TRUE(patience.machine_was_busy());
  // What was waited for one case is not waited for the next.
  child.Stop();
  patience.Begin(child.pid(), 10);
  EXPECT_FALSE(patience.machine_was_busy());
}

TEST(Patience, TimeInLineIsNotTheChilds) {
  ExpectPatienceWith([] { ComputeForEver(); });
}

TEST(Patience, TimeInLineOfAThreadOfTheChildIsNotTheChilds) {
  ExpectPatienceWith([] {
    const std::jthread worker(ComputeForEver);
    SleepForEver();
  });
}

TEST(Patience, TimeInLineOfAChildOfTheChildIsNotTheChilds) {
  ExpectPatienceWith(
      [] {
        // After the first look at the child.
        std::this_thread::sleep_for(milliseconds(10));
        const Forked worker(ComputeForEver);
        SleepForEver();
      },
      "/proc/thread-self/children");
}

// Each worker takes an eighth of the processor and ends; what it waited is not forgotten with it.
TEST(Patience, TimeInLineOfChildrenThatHaveEndedIsNotTheChilds) {
  if (NoTimesInLine() || !std::filesystem::exists("/proc/thread-self/children")) {
    GTEST_SKIP() << "no /proc/self/schedstat, or no list of children";
  }
  const BusyProcessor busy(7);
  const Forked child([] {
    for (;;) {
      const Forked worker(ComputeForEver);
      std::this_thread::sleep_for(milliseconds(400));
    }
  });
  Patience patience;
  patience.Begin(child.pid(), 600);
  const Waited waited = WaitFor(patience);
  EXPECT_TRUE(waited.own >= 1800 || waited.clock >= 10'000) << waited.own;
}

TEST(Patience, TimeInLineOfTheWaitingThreadIsNotTheChilds) {
  if (NoTimesInLine()) GTEST_SKIP() << "no /proc/self/schedstat";
  const BusyProcessor busy(7);
  const Forked child(SleepForEver);
  Patience patience;
  patience.Begin(child.pid(), 60);
  EXPECT_GE(WaitFor(patience, [] {}).clock, 200);
  EXPECT_TRUE(patience.machine_was_busy());
}

// First the child stands in line, then as long this thread. Neither alone would leave the child any
// of its time.
TEST(Patience, TimesInLineOfTheChildAndOfTheWaitingThreadAreAdded) {
  if (NoTimesInLine()) GTEST_SKIP() << "no /proc/self/schedstat";
  const BusyProcessor busy(7);
  const Forked child(ComputeForEver);
  const auto childs = [&] { return InLine(std::to_string(child.pid())); };
  const int64_t own_before = OwnInLine(), childs_before = childs();
  Patience patience;
  patience.Begin(child.pid(), 250);
  std::this_thread::sleep_for(milliseconds(500));
  child.Stop();
  while (OwnInLine() - own_before < childs() - childs_before) {
  }
  EXPECT_GT(patience.MillisecondsLeft(), 0);
}

// Together the two are in line for more time than passes on the clock, so that this would not end.
TEST(Patience, NoWaitIsLongerThanTwentyLimits) {
  if (NoTimesInLine()) GTEST_SKIP() << "no /proc/self/schedstat";
  const BusyProcessor busy(4);
  const Forked child(ComputeForEver);
  Patience patience;
  patience.Begin(child.pid(), 50);
  const Waited waited = WaitFor(patience, [] {});
  EXPECT_GE(waited.clock, 900) << "the child's time in line and this thread's are added";
  EXPECT_LT(waited.clock, 5000);
  EXPECT_TRUE(patience.machine_was_busy());
}

// The child and this thread stand in line side by side, so that their times together are more than
// what passes on the clock. When the processor is free, the child has its limit and no more.
TEST(Patience, NoMoreTimeIsInLineThanHasPassed) {
  if (NoTimesInLine()) GTEST_SKIP() << "no /proc/self/schedstat";
  auto busy = std::make_unique<BusyProcessor>(7);
  const Forked child(ComputeForEver);
  Patience patience;
  patience.Begin(child.pid(), 300);
  const auto start = Clock::now();
  while (Clock::now() - start < milliseconds(800)) patience.MillisecondsLeft();
  child.Stop();
  busy.reset();
  EXPECT_LT(WaitFor(patience).own, 600);
}

TEST(Patience, TimeInLineBeforeTheCaseDoesNotCount) {
  if (NoTimesInLine()) GTEST_SKIP() << "no /proc/self/schedstat";
  Patience patience;
  const auto busy = std::make_unique<BusyProcessor>(4);
  const Forked child(ComputeForEver), other(ComputeForEver);
  patience.Begin(child.pid(), kLong);
  std::this_thread::sleep_for(milliseconds(1000));
  child.Stop();
  other.Stop();
  // Of the limit the child has had most when it is first looked at.
  const auto rest_of = [&](const Forked& waited_for) {
    patience.Begin(waited_for.pid(), 600);
    std::this_thread::sleep_for(milliseconds(500));
    return WaitFor(patience).own;
  };
  EXPECT_LT(rest_of(child), 400) << "of a case before";
  patience.Begin(child.pid(), kLong);
  EXPECT_LT(rest_of(other), 400) << "of another child";
}

}  // namespace
}  // namespace qualm
