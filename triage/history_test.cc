// SPDX-License-Identifier: Apache-2.0
#include "triage/history.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"

namespace qualm::triage {
namespace {

std::vector<Case> Drawn(uint64_t count) {
  std::vector<Case> cases;
  for (uint64_t seed = 1; seed <= count; ++seed) cases.push_back(gen::Draw(Op::kLinear, seed));
  return cases;
}

bool Never() { return false; }

TEST(History, KeepsTheEarlierCasesThatAreNeeded) {
  std::vector<Case> before = Drawn(40);
  before[7].note = "open";
  before[31].note = "shut";
  // Something is opened, later shut, and then misses.
  const auto fails = [](const History& history) {
    bool open = false, shut = false;
    for (const Case& c : history.before) {
      open |= c.note == "open";
      shut |= open && c.note == "shut";
    }
    return shut;
  };
  int asked = 0;
  const History shortest = ShortestHistory(
      {before, before[0]},
      [&](const History& history) {
        ++asked;  // passes drop notes, so no case is made simpler here
        return fails(history);
      },
      Never);
  ASSERT_EQ(shortest.before.size(), 2u);
  EXPECT_EQ(shortest.before[0], before[7]);
  EXPECT_EQ(shortest.before[1], before[31]);
  EXPECT_LT(asked, 5000);
}

// Sums of weights are kept by the shape: the sums of the weights before are used again.
bool IsServedStaleSums(const History& history) {
  const Case* kept = nullptr;
  for (const Case& c : history.before) {
    if (c.w.shape() == history.failing.w.shape() && kept == nullptr) kept = &c;
  }
  if (kept == nullptr || history.failing.x_q.zero_point[0] == 0) return false;
  const auto sum = [](const Case& c) {
    int64_t total = 0;
    for (int64_t k = 0; k < c.K; ++k) total += c.w.IntAt(k);  // of channel 0
    return total;
  };
  return sum(*kept) != sum(history.failing);
}

TEST(History, CasesOfOneShapeBecomeSmallTogether) {
  Case c = gen::Draw(Op::kLinear, 100);
  for (uint64_t seed = 101; c.M < 2 || c.N < 3 || c.K < 5 || c.x_q.zero_point[0] == 0; ++seed)
    c = gen::Draw(Op::kLinear, seed);
  Case other = c;
  other.w.SetInt(0, c.w.IntAt(0) == 1 ? 2 : 1);
  std::vector<Case> before = Drawn(6);
  before.push_back(other);
  const History start{before, c};
  ASSERT_TRUE(IsServedStaleSums(start));
  const History shortest = ShortestHistory(start, IsServedStaleSums, Never);
  EXPECT_TRUE(IsServedStaleSums(shortest));
  ASSERT_EQ(shortest.before.size(), 1u);
  for (const Case& small : {shortest.before[0], shortest.failing}) {
    EXPECT_EQ(small.M * small.N * small.K, 1) << Describe(small);
  }
  EXPECT_EQ(shortest.before[0].w.IntAt(0) == 0, shortest.failing.w.IntAt(0) != 0)
      << "one of the two weights can be 0, and only one";
}

TEST(History, AStoppedSearchGivesAListThatFails) {
  const std::vector<Case> before = Drawn(12);
  int left = 2;
  const auto fails = [&](const History& history) { return history.before.size() >= 2; };
  const History shortest = ShortestHistory({before, before[0]}, fails, [&] { return --left < 0; });
  EXPECT_EQ(shortest.before.size(), 3u) << "12, 6, 3; without a stop it would be 2";
}

}  // namespace
}  // namespace qualm::triage
