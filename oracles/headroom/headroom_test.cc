// SPDX-License-Identifier: Apache-2.0
// Measure against a slow count of the same things.
#include "oracles/headroom/headroom.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/random_case_test_util.h"
#include "oracles/exact/arithmetic/rational.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/observer.h"

namespace qualm::headroom {
namespace {

// Term k of the sum of output (m, n), as a kernel that reads a padded image sees it.
struct Operand {
  const Case& c;
  int32_t x(int64_t m, int64_t n, int64_t k) const {
    if (k >= c.K) return 0;
    const int32_t shift = c.x.dtype() == DType::kS8 ? 128 : 0;
    if (c.op == Op::kLinear) return c.x.IntAt(m * c.K + k) + shift;
    const Window& v = c.window;
    const int64_t depth = v.in_c / v.groups;
    const int64_t y =
        m / v.out_w() % v.out_h() * v.stride_h - v.pad_top + k / depth / v.kernel_w * v.dilation_h;
    const int64_t column =
        m % v.out_w() * v.stride_w - v.pad_left + k / depth % v.kernel_w * v.dilation_w;
    if (y < 0 || y >= v.in_h || column < 0 || column >= v.in_w) {
      const int64_t zero = int64_t{c.x_q.zero_point_at(0)} + shift;
      return zero >= 0 && zero <= 255 ? static_cast<int32_t>(zero) : 0;
    }
    const int64_t image = m / (v.out_h() * v.out_w());
    const int64_t channel = n / (c.N / v.groups) * depth + k % depth;
    return c.x.IntAt(((image * v.in_h + y) * v.in_w + column) * v.in_c + channel) + shift;
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
  test::RandomCase draw(1);
  int64_t saturating = 0;
  int64_t ties = 0;
  int64_t low = 0;
  int64_t high = 0;
  int overflowing = 0;
  int64_t in_convolutions = 0;
  for (int i = 0; i < 8000; ++i) {
    const Case drawn = draw.Draw(AllOps()[static_cast<size_t>(i) % AllOps().size()]);
    ASSERT_EQ(Measure(drawn).outputs, exact::Evaluate(drawn).size());
    // The codes behind what is chosen are those of a quantize, or of a cast.
    const Case c =
        drawn.codes ? exact::ExactCodesCaseOf(drawn, exact::ChooseQParams(drawn)) : drawn;
    const Headroom measured = Measure(c);
    Headroom expected;
    expected.outputs = exact::Evaluate(c).size();
    const bool sums = c.op == Op::kLinear || c.op == Op::kConv2d || c.op == Op::kDepthwise;
    const bool pairs = sums && c.K > 0 && c.w.dtype() == DType::kS8 && !IsWideCode(c.x.dtype());
    ASSERT_EQ(HasPairs(c), pairs);
    const Operand operand{c};
    for (int64_t at = 0; at < c.M * c.N && c.op != Op::kChooseQParams && c.op != Op::kCast; ++at) {
      const int64_t m = at / c.N;
      const int64_t n = at % c.N;
      std::vector<Pair> found;
      for (int64_t k = 0; pairs && k < c.K; k += 2) {
        const int32_t sum =
            operand.x(m, n, k) * operand.w(n, k) + operand.x(m, n, k + 1) * operand.w(n, k + 1);
        expected.pair_min = std::min({expected.pair_min, 32767 - sum, 32768 + sum});
        if (sum > 32767 || sum < -32768) {
          ++expected.pairs_saturating;
          found.push_back({m, n, k, operand.x(m, n, k), operand.w(n, k), operand.x(m, n, k + 1),
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
      if (sums) {
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
      EXPECT_EQ(worst.sum,
                operand.x(worst.m, worst.n, worst.k) * operand.w(worst.n, worst.k) +
                    operand.x(worst.m, worst.n, worst.k + 1) * operand.w(worst.n, worst.k + 1));
    }
    saturating += measured.pairs_saturating;
    in_convolutions += c.op == Op::kLinear ? 0 : measured.pairs_saturating;
    ties += measured.ties;
    low += measured.clamped_low;
    high += measured.clamped_high;
    overflowing += measured.acc_min < 0 ? 1 : 0;
  }
  EXPECT_GT(saturating, 100);
  EXPECT_GT(in_convolutions, 100);
  EXPECT_GT(ties, 200);
  EXPECT_GT(low, 500);
  EXPECT_GT(high, 500);
  EXPECT_GT(overflowing, 200);
}

// ReachedBy ends its searches early and Measure does not: they agree on every case.
TEST(Headroom, WhatACaseReachesIsWhatMeasureFinds) {
  test::RandomCase draw(3);
  int pairs = 0, overflows = 0, ties = 0, near_ties = 0, low = 0, high = 0;
  for (int i = 0; i < 30000; ++i) {
    const Op op = AllOps()[static_cast<size_t>(i) % AllOps().size()];
    const Case c = i % 2 == 0 ? draw.Draw(op) : ProblemOf(draw.DrawWhole(op));
    const Headroom measured = Measure(c);
    for (const double near : {0x1p-10, 0.25}) {
      Reached expected;
      expected.pair_saturates = measured.pairs_saturating > 0;
      expected.int32_overflows = measured.acc_min < 0;
      expected.tie = measured.ties > 0;
      expected.near_tie = measured.ties == 0 && measured.tie_min <= near;
      expected.clamped_low = measured.clamped_low > 0;
      expected.clamped_high = measured.clamped_high > 0;
      ASSERT_EQ(ReachedBy(c, near), expected) << Describe(c);
      pairs += expected.pair_saturates ? 1 : 0;
      overflows += expected.int32_overflows ? 1 : 0;
      ties += expected.tie ? 1 : 0;
      near_ties += expected.near_tie ? 1 : 0;
      low += expected.clamped_low ? 1 : 0;
      high += expected.clamped_high ? 1 : 0;
    }
  }
  for (const int count : {pairs, overflows, ties, near_ties, low, high}) EXPECT_GT(count, 200);
}

// A tie or a near tie that was met stays so, whatever the outputs behind it are: those of estimates
// that decide and those that do not.
TEST(Headroom, WhatWasReachedStaysReached) {
  Case c;
  c.M = 1;
  const auto reached = [&](std::vector<uint8_t> x, std::vector<uint8_t> w, double near) {
    c.N = static_cast<int64_t>(x.size());
    c.x = Tensor::Of<uint8_t>({1, c.N}, x);
    c.w = w.empty() ? Tensor() : Tensor::Of<uint8_t>({1, c.N}, w);
    EXPECT_EQ(Validate(c), "");
    const Reached result = ReachedBy(c, near);
    return std::pair(result.tie, result.near_tie);
  };
  const std::pair none(false, false), near_tie(false, true), tie(true, false);
  // x * (1/2 + 2^-9): 2^-8 and 3 * 2^-8 from the ties of 1 and of 3.
  c.op = Op::kRescale;
  c.x_q.scale = {0x1.01p-1f};
  EXPECT_EQ(reached({1}, {}, 0x1p-8), near_tie);
  EXPECT_EQ(reached({3}, {}, 0x1.8p-7), near_tie);
  const double below = std::nextafter(0x1.8p-7, 0);  // above the bound that an estimate knows
  EXPECT_EQ(reached({3}, {}, below), none);
  EXPECT_EQ(reached({1, 3}, {}, below), near_tie);
  EXPECT_EQ(reached({3, 1}, {}, below), near_tie);
  // x / 2 + w * 2^-149: no estimate tells it from a tie.
  c.op = Op::kAdd;
  c.x_q.scale = {0.5f};
  c.w_q.scale = {0x1p-149f};
  EXPECT_EQ(reached({1}, {1}, 0x1p-148), near_tie);
  EXPECT_EQ(reached({1}, {2}, 0x1p-148), none);
  EXPECT_EQ(reached({1, 1}, {1, 2}, 0x1p-148), near_tie);
  EXPECT_EQ(reached({1, 1}, {0, 2}, 0x1p-148), tie);
  EXPECT_EQ(reached({1, 1}, {2, 0}, 0x1p-148), tie);
  EXPECT_EQ(reached({1, 1}, {1, 0}, 0x1p-148), tie);
}

// The clamp changes what lies beyond its ends, not what lies on them.
TEST(Headroom, AnEndOfTheClampIsNotBeyondIt) {
  Case c;
  c.M = c.N = c.K = 1;
  c.x = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{10});
  c.w = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{5});
  for (const DType dtype : {DType::kS32, DType::kU8}) {
    c.out_dtype = dtype;
    for (const int32_t end : {49, 50, 51}) {
      c.out_min = end;
      c.out_max = 255;
      EXPECT_EQ(ReachedBy(c, 0).clamped_low, end == 51);
      EXPECT_EQ(Measure(c).clamped_low, end == 51 ? 1 : 0);
      c.out_min = 0;
      c.out_max = end;
      EXPECT_EQ(ReachedBy(c, 0).clamped_high, end == 49);
      EXPECT_EQ(Measure(c).clamped_high, end == 49 ? 1 : 0);
    }
  }
}

// Pair sums at both ends of int16 and one beyond, for both types of x.
TEST(Headroom, AReachedPairIsOneBeyondInt16) {
  for (const DType dtype : {DType::kU8, DType::kS8}) {
    const int32_t shift = dtype == DType::kS8 ? 128 : 0;
    // The ends of int16, and one beyond each; the last term has no partner.
    for (const auto& [x0, w0, x1, w1, sum] : {std::tuple{171, 127, 221, 50, 32767},
                                              {184, 127, 188, 50, 32768},
                                              {100, -128, 156, -128, -32768},
                                              {130, -128, 127, -127, -32769}}) {
      ASSERT_EQ(x0 * w0 + x1 * w1, sum);
      const bool saturates = sum > INT16_MAX || sum < INT16_MIN;
      Case c;
      c.M = c.N = 1;
      c.K = 3;
      c.x = Tensor(dtype, {1, 3});
      c.w = Tensor(DType::kS8, {1, 3});
      c.x.SetInt(0, x0 - shift);
      c.x.SetInt(1, x1 - shift);
      c.x.SetInt(2, 255 - shift);
      c.w.SetInt(0, w0);
      c.w.SetInt(1, w1);
      c.w.SetInt(2, 127);
      ASSERT_EQ(Validate(c), "");
      EXPECT_EQ(ReachedBy(c, 0).pair_saturates, saturates) << sum;
      EXPECT_EQ(Measure(c).pairs_saturating > 0, saturates);
    }
  }
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
  // Of equal ones the first: of its output, and of all outputs.
  c.x = Tensor::Of<uint8_t>({1, 5}, std::vector<uint8_t>{255, 255, 255, 255, 255});
  c.w = Tensor::Of<int8_t>({2, 5}, std::vector<int8_t>{1, 1, 127, 127, 1, 127, 127, 127, 127, 1});
  const std::optional<Pair> first = Measure(c).pair_worst;
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->n, 0);
  EXPECT_EQ(first->k, 2);
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

// At the border of an image with x_zp = 255 a kernel that reads zero points there saturates; where
// no code stands for real 0 it reads its own code 0.
TEST(Headroom, PaddingIsTheZeroPoint) {
  Case c;
  c.op = Op::kConv2d;
  c.N = 1;
  c.window.batch = c.window.in_h = c.window.in_w = c.window.in_c = 1;
  c.window.kernel_w = 2;
  c.window.pad_left = 1;
  DeriveSizes(&c);
  c.x = Tensor::Of<uint8_t>({1, 1, 1, 1}, std::vector<uint8_t>{200});
  c.w = Tensor::Of<int8_t>({1, 1, 2, 1}, std::vector<int8_t>{127, 100});
  c.x_q.zero_point = {255};
  ASSERT_EQ(Validate(c), "");
  const std::vector<Pair> pairs = SaturatingPairs(c, 0, 0);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].x0, 255);
  EXPECT_EQ(pairs[0].x1, 200);
  EXPECT_EQ(pairs[0].sum, 255 * 127 + 200 * 100);
  c.x_q.zero_point = {256};
  EXPECT_TRUE(SaturatingPairs(c, 0, 0).empty());
  EXPECT_EQ(Measure(c).pair_min, 32767 - 200 * 100);
  c.x = Tensor::Of<int8_t>({1, 1, 1, 1}, std::vector<int8_t>{72});
  EXPECT_EQ(Measure(c).pair_min, 32767 - 200 * 100);
  c.x_q.zero_point = {127};
  EXPECT_EQ(Measure(c).pair_min, 32767 - 255 * 127 - 200 * 100);
}

}  // namespace
}  // namespace qualm::headroom
