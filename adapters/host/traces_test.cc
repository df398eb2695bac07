// SPDX-License-Identifier: Apache-2.0
// A leak is named, and the memory of other threads is not taken for one.
#include "adapters/host/traces.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

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
  Blocks kept = RoomFor(1000);
  return !LeakOf([&] { kept.push_back(std::make_unique<char[]>(1000)); }).empty();
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

}  // namespace
}  // namespace qualm
