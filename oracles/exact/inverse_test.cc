// SPDX-License-Identifier: Apache-2.0
// What inverse.h finds for an output is looked at with the exact meaning itself: the ends of an
// interval give the output, and the next float32 beyond them does not.
#include "oracles/exact/inverse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>

#include "core/random_case_test_util.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {
namespace {

using List = Printed::List;

Case WithScales(const Case& c, List list, std::vector<float> scales) {
  Case changed = c;
  (list == List::kXScale       ? changed.x_q.scale
   : list == List::kWScale     ? changed.w_q.scale
   : list == List::kOutScale   ? changed.out_q.scale
   : list == List::kMultiplier ? changed.multiplier
                               : *changed.bias) = std::move(scales);
  if (RowOf(c.op).out_q == OutQParams::kOfInput) changed.out_q = changed.x_q;
  return changed;
}

struct Seen {
  int64_t entries = 0, ends = 0;
};

// `reals`: for each entry of the list what gives y, which `c` gives.
void ExpectEnds(const Case& c, List list, const std::vector<Reals>& reals, const Tensor& y,
                Seen* seen) {
  std::vector<float> written(ListOf(c, list).begin(), ListOf(c, list).end());
  ASSERT_EQ(reals.size(), written.size());
  std::vector<float> low = written, high = written;
  for (size_t e = 0; e < written.size(); ++e) {
    ASSERT_TRUE(reals[e].Contains(ToRational(written[e]))) << Describe(c);
    const auto floats = FloatsIn(reals[e]);
    ASSERT_TRUE(floats) << Describe(c);
    std::tie(low[e], high[e]) = *floats;
    ++seen->entries;
  }
  for (const std::vector<float>& ends : {low, high}) {
    const Case at_end = WithScales(c, list, ends);
    ASSERT_EQ(Validate(at_end), "");
    EXPECT_EQ(Evaluate(at_end), y) << Describe(c) << " list " << static_cast<int>(list);
  }
  for (size_t e = 0; e < written.size(); ++e) {
    const float least = list == List::kBias ? -FLT_MAX : FLT_TRUE_MIN;
    for (const float beyond : {low[e] > least ? std::nextafter(low[e], -INFINITY) : 0,
                               high[e] < FLT_MAX ? std::nextafter(high[e], INFINITY) : 0}) {
      if (beyond == 0) continue;
      std::vector<float> scales = written;
      scales[e] = beyond;
      EXPECT_NE(Evaluate(WithScales(c, list, scales)), y)
          << Describe(c) << " list " << static_cast<int>(list) << " entry " << e;
      ++seen->ends;
    }
  }
}

TEST(Inverse, TheEndsOfScalesAreTight) {
  for (const Op op : AllOps()) {
    test::RandomCase draw(11);
    Seen seen;
    for (int i = 0; i < 300; ++i) {
      const Case c = draw.Draw(op);
      if (!IsLinearInScales(c)) continue;
      const Tensor y = Evaluate(c);
      for (const List list : {List::kXScale, List::kWScale, List::kOutScale, List::kMultiplier}) {
        // The scale of an output that is no code, or beside a multiplier, means nothing.
        if (list == List::kOutScale && (!IsCode(c.out_dtype) || UsesMultiplier(c))) continue;
        // Scales that the case hardly shows may be anything.
        if (ListOf(c, list).empty()) continue;
        ExpectEnds(c, list, ScalesGiving(c, list, y), y, &seen);
        if (HasFatalFailure()) return;
      }
      if (!c.bias || y.empty()) continue;
      Case ones = c;
      std::ranges::fill(*ones.bias, 1.0f);
      ExpectEnds(c, List::kBias, BiasFactorsGiving(ones, y), y, &seen);
    }
    if (op == Op::kTable || op == Op::kSoftmax || op == Op::kChooseQParams || op == Op::kCast)
      continue;
    EXPECT_GT(seen.entries, 100) << Name(op);
    if (op != Op::kMaxPool) EXPECT_GT(seen.ends, 100) << Name(op);
  }
}

// An output that no scale gives, and one that lacks a channel alone.
TEST(Inverse, NothingGivesWhatCannotBe) {
  Case c;
  c.op = Op::kRequantize;
  c.M = 2, c.N = 2;
  c.x = Tensor::Of<int32_t>({2, 2}, std::vector<int32_t>{10, 10, 20, 20});
  c.out_dtype = DType::kU8;
  c.per_channel = true;
  c.multiplier = {1, 1};
  ASSERT_EQ(Validate(c), "");
  const auto reals = [&](std::vector<uint8_t> y) {
    return ScalesGiving(c, List::kMultiplier, Tensor::Of<uint8_t>({2, 2}, y));
  };
  // 10 m rounds to 5 and 20 m to 11: 0.525 <= m <= 0.55; half to even leaves the ends 10.5 to 10.
  const std::vector<Reals> found = reals({5, 7, 11, 9});
  EXPECT_EQ(*found[0].low, Rational(21, 40));
  EXPECT_EQ(*found[0].high, Rational(11, 20));
  EXPECT_FALSE(found[0].low_closed);
  EXPECT_FALSE(found[0].high_closed);
  EXPECT_TRUE(found[1].empty());
  EXPECT_FALSE(FloatsIn(found[1]));
  // At the upper end of the codes there is no upper bound.
  EXPECT_FALSE(reals({255, 255, 255, 255})[0].high);
  EXPECT_EQ(*reals({255, 255, 255, 255})[0].low, Rational(509, 20));
}

// v * 2^k is the value with the scale of the output divided by 2^k.
TEST(Inverse, FactorsOfTheValue) {
  test::RandomCase draw(12);
  int64_t gives = 0, gives_not = 0;
  for (int i = 0; i < 4000; ++i) {
    const Case c = draw.Draw(i % 2 == 0 ? Op::kRescale : Op::kLinear);
    if (!IsCode(c.out_dtype)) continue;
    const Tensor y = Evaluate(c);
    const std::vector<Reals> factors = FactorsGiving(c, y);
    for (const float scale : {2.0f, 0.5f, 1.0f}) {
      Case scaled = c;
      scaled.out_q.scale[0] /= scale;
      if (!(scaled.out_q.scale[0] * scale == c.out_q.scale[0]) || !Validate(scaled).empty())
        continue;
      const Tensor other = Evaluate(scaled);
      for (int64_t n = 0; n < c.N; ++n) {
        bool same = true;
        for (int64_t m = 0; m < c.M; ++m)
          same = same && y.IntAt(m * c.N + n) == other.IntAt(m * c.N + n);
        EXPECT_EQ(factors[static_cast<size_t>(n)].Contains(ToRational(scale)), same)
            << Describe(c) << " times " << scale;
        ++(same ? gives : gives_not);
      }
    }
  }
  EXPECT_GT(gives, 1000);
  EXPECT_GT(gives_not, 1000);
}

TEST(Inverse, ValuesThatRoundToAFloat) {
  Case c;
  c.op = Op::kDequantize;
  c.M = c.N = 1;
  c.x = Tensor(DType::kU8, {1, 1});
  c.out_dtype = DType::kF32;
  for (const float y : {0.0f, -0.0f, 1.0f, -1.0f, FLT_MAX, -FLT_MAX, INFINITY, -INFINITY,
                        FLT_TRUE_MIN, -FLT_TRUE_MIN, 0x1.fffffep-3f}) {
    const Reals reals = ValuesGiving(c, Tensor::Of<float>({1, 1}, std::vector<float>{y}), 0);
    EXPECT_FALSE(reals.empty());
    const Rational tiny = PowerOfTwo(-400);
    for (const auto& [bound, closed, step] : {std::tuple{reals.low, reals.low_closed, tiny},
                                              {reals.high, reals.high_closed, Rational(-tiny)}}) {
      if (!bound) continue;
      const auto rounds_to_y = [&](const Rational& value) {
        const float rounded = RoundToFloat32(value);
        return rounded == y && std::signbit(rounded) == std::signbit(y);
      };
      EXPECT_EQ(rounds_to_y(*bound), closed) << y;
      EXPECT_TRUE(rounds_to_y(*bound + step)) << y;
      EXPECT_FALSE(rounds_to_y(*bound - step)) << y;
    }
    EXPECT_EQ(reals.high.has_value(), y != INFINITY);
    EXPECT_EQ(reals.low.has_value(), y != -INFINITY);
  }
}

TEST(Inverse, NoFloatLiesBetweenTwoNeighbours) {
  const Rational one = 1, next = ToRational(0x1.000002p+0f);
  EXPECT_FALSE(FloatsIn({one, next, false, false}));
  EXPECT_EQ(FloatsIn({one, next, true, false}), (std::pair{1.0f, 1.0f}));
  EXPECT_EQ(FloatsIn({one, next, false, true}), (std::pair{0x1.000002p+0f, 0x1.000002p+0f}));
  EXPECT_EQ(FloatsIn({}), (std::pair{-FLT_MAX, FLT_MAX}));
  EXPECT_EQ(FloatsIn({Rational(0), std::nullopt, false, true}), (std::pair{FLT_TRUE_MIN, FLT_MAX}));
  EXPECT_FALSE(FloatsIn({PowerOfTwo(128), std::nullopt, true, true}));
}

}  // namespace
}  // namespace qualm::exact
