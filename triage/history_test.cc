// SPDX-License-Identifier: Apache-2.0
#include "triage/history.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/rng.h"
#include "properties/gen/gen.h"
#include "triage/triage.h"

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

// Random codes; the zero point of x is not 0.
Case Layer(int64_t m, int64_t n, int64_t k, uint64_t seed = 1) {
  Case c;
  c.M = m, c.N = n, c.K = k;
  c.x = Tensor(DType::kU8, {m, k});
  c.w = Tensor(DType::kS8, {n, k});
  Rng rng(seed);
  for (uint8_t& byte : c.x.bytes()) byte = static_cast<uint8_t>(1 + rng.Below(200));
  for (uint8_t& byte : c.w.bytes()) byte = static_cast<uint8_t>(1 + rng.Below(100));
  c.x_q.zero_point = {3};
  EXPECT_EQ(Validate(c), "");
  return c;
}

bool AreAlike(const Case& a, const Case& b) {
  return a.op == b.op && a.x.shape() == b.x.shape() && a.w.shape() == b.w.shape();
}

// Two cases must keep one shape, so that each step is one of both.
TEST(History, CasesOfOneShapeKeepItOnTheWay) {
  const auto fails = [](const History& history) {
    EXPECT_EQ(Validate(history.failing), "");
    return history.before.size() == 1 && AreAlike(history.before[0], history.failing) &&
           history.failing.K >= 3 && history.before[0].M >= 2;
  };
  Case biased = Layer(4, 5, 7);
  biased.bias_i32 = {{1, 2, 3, 4, 5}};
  // The passes offer more steps of a case with a bias than of one without.
  for (const bool first : {true, false}) {
    const Case plain = Layer(4, 5, 7, 2);
    const History shortest =
        ShortestHistory({{first ? biased : plain}, first ? plain : biased}, fails, Never);
    ASSERT_TRUE(fails(shortest));
    for (const Case& small : {shortest.before[0], shortest.failing}) {
      EXPECT_EQ(small.M, 2);
      EXPECT_EQ(small.N, 1);
      EXPECT_EQ(small.K, 3);
      EXPECT_FALSE(small.bias_i32) << "the biases are spared one by one";
      EXPECT_EQ(small.x_q.zero_point[0], 0);
    }
  }
}

// Three of one shape.
TEST(History, AllCasesOfOneShapeAreMadeSmallTogether) {
  const auto fails = [](const History& history) {
    return history.before.size() == 2 && AreAlike(history.before[0], history.failing) &&
           AreAlike(history.before[1], history.failing);
  };
  const History shortest =
      ShortestHistory({{Layer(4, 5, 7), Layer(4, 5, 7, 2)}, Layer(4, 5, 7, 3)}, fails, Never);
  ASSERT_TRUE(fails(shortest));
  EXPECT_EQ(Complexity(shortest.failing), Complexity(shortest.before[0]));
  EXPECT_LE(shortest.failing.M * shortest.failing.N * shortest.failing.K, 1);
}

// A case of another operation, other rows or other channels must stay as it is: the two that are
// alike become small all the same.
TEST(History, ACaseOfAnotherShapeDoesNotHoldUpTheOthers) {
  const auto sum = [](Op op, int64_t m, int64_t n) {
    Case c = CaseOver(op, Tensor(DType::kU8, {m, n}), DType::kU8);
    c.w = Tensor(DType::kU8, {m, n});
    for (int64_t i = 0; i < m * n; ++i) c.x.SetInt(i, 7), c.w.SetInt(i, 9);
    return c;
  };
  struct Trio {
    Case failing, alike, other;
  };
  const std::vector<Trio> trios{
      {sum(Op::kAdd, 3, 4), sum(Op::kAdd, 3, 4), sum(Op::kMul, 3, 4)},
      {Layer(4, 5, 7), Layer(4, 5, 7, 2), Layer(3, 5, 7)},
      {Layer(4, 5, 7), Layer(4, 5, 7, 2), Layer(4, 6, 7)},
  };
  for (const auto& [failing, alike, other] : trios) {
    const auto fails = [&kept = other](const History& history) {
      return history.before.size() == 2 && history.before[1] == kept &&
             AreAlike(history.before[0], history.failing);
    };
    const History shortest = ShortestHistory({{alike, other}, failing}, fails, Never);
    ASSERT_TRUE(fails(shortest));
    EXPECT_LE(shortest.failing.M * shortest.failing.N, 1) << Describe(other);
  }
}

// The failing case can become as short as the earlier one, which becomes short after it.
TEST(History, WhatBecameSimplerLetsOtherCasesBecomeSo) {
  const auto fails = [](const History& history) {
    return history.before.size() == 1 && history.failing.K >= history.before[0].K &&
           history.before[0].K > 0 && !AreAlike(history.before[0], history.failing);
  };
  const History start{{Layer(2, 3, 5)}, Layer(3, 2, 5)};
  const History shortest = ShortestHistory(start, fails, Never);
  ASSERT_TRUE(fails(shortest));
  EXPECT_EQ(shortest.before[0].K, 1);
  EXPECT_EQ(shortest.failing.K, 1);
}

// The earlier case has what the failing one lacks, and the reverse.
Case Counterpart(const Case& c) {
  Case other = c;
  for (int64_t i = 0; i < c.x.size(); i += 2) {
    if (c.x.dtype() != DType::kF32) other.x.SetInt(i, 0);
  }
  for (int64_t i = 1; i < c.w.size(); i += 2) other.w.SetInt(i, 0);
  other.bias.reset();
  other.bias_i32.reset();
  if (RowOf(c.op).relu) other.relu = !c.relu;
  return Validate(other).empty() ? other : c;
}

// What is asked is valid, no step makes a case larger, and what changes together keeps one shape.
TEST(History, EveryStepIsValidAndMakesNothingLarger) {
  for (const Op op : AllOps()) {
    for (const uint64_t seed : {1, 2}) {
      const Case c = ProblemOf(gen::Draw(op, seed));
      if (c.x.size() + c.w.size() > 300) continue;
      History last{{Counterpart(c)}, c};
      int64_t asked = 0;
      const auto fails = [&](const History& history) {
        if (history.before.size() != 1) return false;
        const Case &now = history.failing, &early = history.before[0];
        EXPECT_EQ(Validate(now), "") << Describe(last.failing);
        EXPECT_EQ(Validate(early), "");
        EXPECT_LE(Complexity(now), Complexity(last.failing)) << Describe(now);
        EXPECT_LE(Complexity(early), Complexity(last.before[0])) << Describe(early);
        if (now != last.failing && early != last.before[0]) {
          EXPECT_TRUE(AreAlike(now, early));
        }
        // Most steps are refused, so that many are seen.
        if (++asked % 4 != 0) return false;
        last = history;
        return true;
      };
      int64_t left = 100;
      (void)ShortestHistory(last, fails, [&] { return --left < 0; });
    }
  }
}

// A step may be the only one of its pass.
TEST(History, ParametersThatMustBeEqualAreDroppedTogether) {
  const auto fails = [](const History& history) {
    return history.before.size() == 1 && history.before[0].relu == history.failing.relu &&
           AreAlike(history.before[0], history.failing);
  };
  Case first = Layer(2, 3, 2), second = Layer(2, 3, 2, 2);
  first.relu = second.relu = true;
  const History shortest = ShortestHistory({{first}, second}, fails, Never);
  ASSERT_TRUE(fails(shortest));
  EXPECT_FALSE(shortest.failing.relu);
}

// Nothing is dropped or changed that the failure needs, and every list that is kept fails.
TEST(History, DropsNothingThatTheFailureNeeds) {
  const History start{{Layer(2, 3, 5), Layer(1, 1, 1)}, Layer(3, 2, 5)};
  int asked = 0;
  const auto fails = [&](const History& history) {
    ++asked;
    return history.before == start.before && history.failing == start.failing;
  };
  const History shortest = ShortestHistory(start, fails, Never);
  EXPECT_EQ(shortest.before, start.before);
  EXPECT_EQ(shortest.failing, start.failing);
  EXPECT_GT(asked, 10);
  // A search that is stopped at once asks nothing.
  asked = 0;
  EXPECT_EQ(ShortestHistory(start, fails, [] { return true; }).before, start.before);
  EXPECT_EQ(asked, 0);
}

}  // namespace
}  // namespace qualm::triage
