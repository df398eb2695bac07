// SPDX-License-Identifier: Apache-2.0
#include "fuzz/feedback.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "core/rng.h"
#include "fuzz/case_codec.h"

namespace qualm::fuzz {
namespace {

std::vector<size_t> Lit(std::span<volatile uint8_t> counters) {
  std::vector<size_t> lit;
  for (size_t i = 0; i < counters.size(); ++i) {
    if (counters[i] != 0) lit.push_back(i);
  }
  return lit;
}

Case Pair(int x, int w) {
  Case c;
  c.op = Op::kLinear;
  c.M = c.N = 1;
  c.K = 2;
  c.x = Tensor(DType::kU8, {1, 2});
  c.w = Tensor(DType::kS8, {1, 2});
  for (int k = 0; k < 2; ++k) c.x.SetInt(k, x), c.w.SetInt(k, w);
  c.out_q.scale = {1000.0f};
  return c;
}

std::vector<size_t> LitBy(const Case& c) {
  ClearDistances();
  ReportDistances(c);
  return Lit(DistanceCounters());
}

// The stores must survive the optimiser: this reads the array that the engine reads.
TEST(Feedback, EachStepTowardsSaturationIsNews) {
  const std::vector<std::vector<size_t>> steps = {LitBy(Pair(1, 1)),    LitBy(Pair(200, 40)),
                                                  LitBy(Pair(255, 50)), LitBy(Pair(255, 64)),
                                                  LitBy(Pair(255, 65)), LitBy(Pair(255, 127))};
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_FALSE(steps[i].empty());
    for (size_t j = 0; j < i; ++j) EXPECT_NE(steps[i], steps[j]) << i << " and " << j;
  }
  ClearDistances();
  EXPECT_TRUE(Lit(DistanceCounters()).empty());
}

TEST(Feedback, EachMeasureHasItsOwnCounters) {
  const auto lit = [](const headroom::Headroom& measures) {
    ClearDistances();
    LightCounters(measures, DistanceCounters());
    return Lit(DistanceCounters());
  };
  headroom::Headroom base;
  base.outputs = 4;
  base.pair_min = 100, base.acc_min = 1 << 20, base.tie_min = 0.25;
  const auto expect_one_change = [&](auto change) {
    headroom::Headroom changed = base;
    change(changed);
    const std::vector<size_t> before = lit(base), after = lit(changed);
    ASSERT_EQ(before.size(), after.size());
    int differences = 0;
    for (size_t i = 0; i < before.size(); ++i) differences += before[i] != after[i] ? 1 : 0;
    EXPECT_EQ(differences, 1);
  };
  expect_one_change([](auto& m) { m.pair_min = 10; });
  expect_one_change([](auto& m) { m.pair_min = -1; });
  expect_one_change([](auto& m) { m.acc_min = 1000; });
  expect_one_change([](auto& m) { m.acc_min = INT64_MIN; });
  expect_one_change([](auto& m) { m.tie_min = 0; });
  expect_one_change([](auto& m) { m.ties = 1; });
  expect_one_change([](auto& m) { m.clamped_low = 2; });
  expect_one_change([](auto& m) { m.clamped_high = 1; });
}

TEST(Feedback, EveryCaseFits) {
  Rng rng(5);
  for (int i = 0; i < 5000; ++i) {
    std::vector<uint8_t> bytes(rng.Below(400));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
    for (const Op op : AllOps()) {
      if (op == Op::kChooseQParams) continue;  // has no codes to measure
      const Case c = DecodeCase(op, bytes);
      const std::vector<size_t> lit = LitBy(c);
      EXPECT_EQ(lit.empty(), c.M * c.N == 0) << Describe(c);
    }
  }
}

}  // namespace
}  // namespace qualm::fuzz
