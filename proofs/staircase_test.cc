// SPDX-License-Identifier: Apache-2.0
#include "proofs/staircase.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/rng.h"

namespace qualm::proofs {
namespace {

constexpr uint64_t kLast = 0xFFFF'FFFF;

Ask AskingOf(const Steps& steps, uint64_t* calls = nullptr) {
  return [&steps, calls](std::span<const uint64_t> inputs) {
    if (calls != nullptr) ++*calls;
    std::vector<int32_t> values;
    for (const uint64_t input : inputs) values.push_back(ValueAt(steps, input));
    return values;
  };
}

uint64_t NoGuess(int32_t /*n*/) { return 0; }

Steps RandomSteps(Rng& rng) {
  Steps steps{{0, -128}};
  while (steps.back().value < 127 && steps.back().start < kLast) {
    const uint64_t gap = 1 + (rng.Next() >> (33 + rng.Next() % 31));
    const uint64_t start = std::min(steps.back().start + gap, kLast);
    const auto rise = static_cast<int32_t>(1 + (rng.Next() % 8 == 0 ? rng.Next() % 9 : 0));
    steps.push_back({start, std::min(steps.back().value + rise, 127)});
  }
  return steps;
}

TEST(Steps, AreFoundWhateverTheGuess) {
  Rng rng(1);
  for (int i = 0; i < 300; ++i) {
    const Steps steps = RandomSteps(rng);
    const FoundSteps none = FindSteps(AskingOf(steps), 0, kLast, NoGuess);
    EXPECT_EQ(none.steps, steps);
    EXPECT_FALSE(none.fall);
    const FoundSteps wild =
        FindSteps(AskingOf(steps), 0, kLast, [&](int32_t) { return rng.Next(); });
    EXPECT_EQ(wild.steps, steps);
  }
}

TEST(Steps, AGoodGuessCostsTwoQuestionsPerValue) {
  Rng rng(2);
  const Steps steps = RandomSteps(rng);
  const auto guess = [&](int32_t n) {
    return std::ranges::find_if(steps, [&](const Step& s) { return s.value >= n; })->start;
  };
  uint64_t calls = 0;
  const FoundSteps found = FindSteps(AskingOf(steps, &calls), 0, kLast, guess);
  EXPECT_EQ(found.steps, steps);
  EXPECT_LE(calls, 2u);
  EXPECT_LE(found.asked, 2 * 255u + 2);
}

TEST(Steps, AFallIsSeenBySamples) {
  const Ask wraps = [](std::span<const uint64_t> inputs) {
    std::vector<int32_t> values;
    for (const uint64_t input : inputs) values.push_back(input < 3'000'000'000u ? 9 : 0);
    return values;
  };
  const FoundSteps found = FindSteps(wraps, 0, kLast, NoGuess, 64);
  ASSERT_TRUE(found.fall);
  EXPECT_EQ(found.fall->value_a, 9);
  EXPECT_EQ(found.fall->value_b, 0);
  EXPECT_LT(found.fall->a, found.fall->b);
}

TEST(Steps, PiecesRiseBetweenFalls) {
  // Rises to 9, wraps to 0 for good, and is 5 for NaN-like inputs after that.
  const Steps steps{{0, 1}, {1000, 4}, {70'000, 9}, {3'000'000'000, 0}, {4'000'000'000, 5}};
  const FoundSteps found = FindPieces(AskingOf(steps), 0, kLast, NoGuess, 64);
  EXPECT_EQ(found.steps, steps);
  EXPECT_EQ(found.falls, 1u);
  EXPECT_FALSE(found.fall);
}

TEST(Steps, WhatFallsEverywhereHasNoPieces) {
  const Ask noise = [](std::span<const uint64_t> inputs) {
    std::vector<int32_t> values;
    for (const uint64_t input : inputs)
      values.push_back(static_cast<int32_t>(MixSeed(1, input) % 200));
    return values;
  };
  EXPECT_TRUE(FindPieces(noise, 0, kLast, NoGuess, 64).fall);
}

TEST(Steps, OneInput) {
  const Steps steps{{7, 3}};
  EXPECT_EQ(FindSteps(AskingOf(steps), 7, 7, NoGuess, 10).steps, steps);
}

}  // namespace
}  // namespace qualm::proofs
