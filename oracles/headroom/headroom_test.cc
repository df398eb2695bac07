// SPDX-License-Identifier: Apache-2.0
// Measure against a slow count of the same things.
#include "oracles/headroom/headroom.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "oracles/exact/exact.h"
#include "oracles/exact/random_case.h"
#include "oracles/exact/rational.h"

namespace qualm::headroom {
namespace {

struct Operand {
  const Case& c;
  int32_t x(int64_t m, int64_t k) const {
    if (k >= c.K) return 0;
    return c.x.IntAt(m * c.K + k) + (c.x.dtype() == DType::kS8 ? 128 : 0);
  }
  int32_t w(int64_t n, int64_t k) const { return k < c.K ? c.w.IntAt(n * c.K + k) : 0; }
};

TEST(Headroom, OfOnePair) {
  EXPECT_EQ(PairHeadroom(0), 32767);
  EXPECT_EQ(PairHeadroom(32767), 0);
  EXPECT_EQ(PairHeadroom(32768), -1);
  EXPECT_EQ(PairHeadroom(-32768), 0);
  EXPECT_EQ(PairHeadroom(-32769), -1);
  EXPECT_EQ(PairHeadroom(64770), 32767 - 64770);
}

TEST(Headroom, AgainstASlowCount) {
  exact::RandomCase draw(1);
  int64_t saturating = 0;
  int64_t ties = 0;
  int64_t low = 0;
  int64_t high = 0;
  int overflowing = 0;
  for (int i = 0; i < 4000; ++i) {
    const Case c = draw.Draw(i % 2 == 0 ? Op::kLinear
                                        : AllOps()[static_cast<size_t>(i / 2) % AllOps().size()]);
    const Headroom measured = Measure(c);
    Headroom expected;
    expected.outputs = c.M * c.N;
    const bool linear = c.op == Op::kLinear;
    const bool pairs = linear && c.K > 0 && c.w.dtype() == DType::kS8;
    ASSERT_EQ(HasPairs(c), pairs);
    const Operand operand{c};
    for (int64_t at = 0; at < c.M * c.N; ++at) {
      const int64_t m = at / c.N;
      const int64_t n = at % c.N;
      std::vector<Pair> found;
      for (int64_t k = 0; pairs && k < c.K; k += 2) {
        const int32_t sum =
            operand.x(m, k) * operand.w(n, k) + operand.x(m, k + 1) * operand.w(n, k + 1);
        expected.pair_min = std::min({expected.pair_min, 32767 - sum, 32768 + sum});
        if (sum > 32767 || sum < -32768) {
          ++expected.pairs_saturating;
          found.push_back({m, n, k, operand.x(m, k), operand.w(n, k), operand.x(m, k + 1),
                           operand.w(n, k + 1), sum, sum > 0 ? 32767 : -32768});
        }
      }
      const std::vector<Pair> listed = SaturatingPairs(c, m, n);
      ASSERT_EQ(listed.size(), found.size());
      for (size_t p = 0; p < found.size(); ++p) {
        const auto key = [](const Pair& pair) {
          return std::tuple(pair.m, pair.n, pair.k, pair.x0, pair.w0, pair.x1, pair.w1, pair.sum,
                            pair.saturated);
        };
        EXPECT_EQ(key(listed[p]), key(found[p]));
        EXPECT_EQ(listed[p].lost(), found[p].sum - found[p].saturated);
      }
      if (linear) {
        const __int128 sum = exact::CorrectedSums(c)[static_cast<size_t>(at)];
        const __int128 distance =
            std::min<__int128>((__int128{1} << 31) - 1 - sum, sum + (__int128{1} << 31));
        expected.acc_min = static_cast<int64_t>(std::max<__int128>(
            std::min<__int128>(expected.acc_min, distance), std::numeric_limits<int64_t>::min()));
      }
      if (const auto tie = exact::TieDistance(c, at)) {
        expected.tie_min = std::min(expected.tie_min, *tie);
        expected.ties += *tie == 0 ? 1 : 0;
      }
      // The unclamped value is the last but one step of the derivation.
      if (c.out_dtype == DType::kF32) {
        const std::string real = exact::RealValueText(c, at);
        expected.clamped_low += c.relu && real[0] == '-' ? 1 : 0;
        continue;
      }
      const Trace trace = exact::Derive(c, at);
      const int64_t lo = LowerBound(c, n);
      if (c.op == Op::kQuantize && std::isinf(c.x.FloatAt(at))) {
        (c.x.FloatAt(at) < 0 ? expected.clamped_low : expected.clamped_high) += 1;
        continue;
      }
      ASSERT_GE(trace.size(), 2u);
      const exact::Integer unclamped(trace[trace.size() - 2].value);
      if (unclamped < lo) {
        ++expected.clamped_low;
      } else if (unclamped > c.out_max) {
        ++expected.clamped_high;
      }
    }
    ASSERT_EQ(measured.outputs, expected.outputs);
    ASSERT_EQ(measured.pair_min, expected.pair_min) << Describe(c);
    ASSERT_EQ(measured.pairs_saturating, expected.pairs_saturating) << Describe(c);
    ASSERT_EQ(measured.acc_min, expected.acc_min) << Describe(c);
    ASSERT_EQ(measured.tie_min, expected.tie_min) << Describe(c);
    ASSERT_EQ(measured.ties, expected.ties) << Describe(c);
    ASSERT_EQ(measured.clamped_low, expected.clamped_low) << Describe(c);
    ASSERT_EQ(measured.clamped_high, expected.clamped_high) << Describe(c);
    ASSERT_EQ(measured.pair_worst.has_value(), pairs && c.M * c.N > 0);
    if (measured.pair_worst) {
      const Pair& worst = *measured.pair_worst;
      EXPECT_EQ(PairHeadroom(worst.sum), expected.pair_min);
      EXPECT_EQ(worst.sum, operand.x(worst.m, worst.k) * operand.w(worst.n, worst.k) +
                               operand.x(worst.m, worst.k + 1) * operand.w(worst.n, worst.k + 1));
    }
    saturating += measured.pairs_saturating;
    ties += measured.ties;
    low += measured.clamped_low;
    high += measured.clamped_high;
    overflowing += measured.acc_min < 0 ? 1 : 0;
  }
  EXPECT_GT(saturating, 200);
  EXPECT_GT(ties, 200);
  EXPECT_GT(low, 500);
  EXPECT_GT(high, 500);
  EXPECT_GT(overflowing, 200);
}

// The saturating pair of the forum's Linear: 255*127 + 255*127 does not fit int16.
TEST(Headroom, WorstPairIsTold) {
  Case c;
  c.M = 1;
  c.N = 2;
  c.K = 5;
  const std::vector<uint8_t> x = {1, 2, 255, 255, 255};
  const std::vector<int8_t> w = {1, 1, 1, 1, 127, 1, 1, 127, 127, -128};
  c.x = Tensor::Of<uint8_t>({1, 5}, x);
  c.w = Tensor::Of<int8_t>({2, 5}, w);
  const Headroom measured = Measure(c);
  EXPECT_EQ(measured.pairs_saturating, 1);
  ASSERT_TRUE(measured.pair_worst.has_value());
  EXPECT_EQ(measured.pair_worst->n, 1);
  EXPECT_EQ(measured.pair_worst->k, 2);
  EXPECT_EQ(measured.pair_worst->sum, 64770);
  EXPECT_EQ(measured.pair_worst->lost(), 64770 - 32767);
  EXPECT_EQ(measured.pair_min, 32767 - 64770);
}

// s8 activations reach such a kernel as u8 codes: -128 becomes 0, 127 becomes 255.
TEST(Headroom, SignedActivationsAreShifted) {
  Case c;
  c.M = 1;
  c.N = 1;
  c.K = 2;
  const std::vector<int8_t> x = {127, 127};
  const std::vector<int8_t> w = {127, 127};
  c.x = Tensor::Of<int8_t>({1, 2}, x);
  c.w = Tensor::Of<int8_t>({1, 2}, w);
  ASSERT_EQ(SaturatingPairs(c, 0, 0).size(), 1u);
  EXPECT_EQ(SaturatingPairs(c, 0, 0)[0].x0, 255);
  c.x.SetInt(0, -128);
  c.x.SetInt(1, -128);
  EXPECT_TRUE(SaturatingPairs(c, 0, 0).empty());
  EXPECT_EQ(Measure(c).pair_min, 32767);
}

}  // namespace
}  // namespace qualm::headroom
