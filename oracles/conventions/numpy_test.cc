// SPDX-License-Identifier: Apache-2.0
// The hand computations of the forum threads, on the smallest case that shows what each does.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "oracles/conventions/convention.h"
#include "oracles/conventions/test_util.h"
#include "oracles/exact/exact.h"

namespace qualm {
namespace {

Case Linear(std::vector<int32_t> x, std::vector<int32_t> w) {
  Case c;
  c.op = Op::kLinear;
  c.M = c.N = 1;
  c.K = static_cast<int64_t>(x.size());
  c.x = Tensor(DType::kU8, {1, c.K});
  c.w = Tensor(DType::kS8, {1, c.K});
  for (int64_t k = 0; k < c.K; ++k) {
    c.x.SetInt(k, x[static_cast<size_t>(k)]);
    c.w.SetInt(k, w[static_cast<size_t>(k)]);
  }
  return c;
}

Case Quantize(float x, float scale, int32_t zero_point, DType dtype = DType::kU8) {
  Case c;
  c.op = Op::kQuantize;
  c.M = c.N = 1;
  c.x = Tensor::Of<float>({1, 1}, std::vector<float>{x});
  c.out_q = {{scale}, {zero_point}};
  c.out_dtype = dtype;
  c.out_min = RangeOf(dtype).min;
  c.out_max = RangeOf(dtype).max;
  return c;
}

Case Add(int32_t a, int32_t b, float a_scale, float b_scale, float out_scale, int32_t zero_point) {
  Case c;
  c.op = Op::kAdd;
  c.M = c.N = 1;
  c.x = Tensor(DType::kU8, {1, 1});
  c.w = Tensor(DType::kU8, {1, 1});
  c.x.SetInt(0, a);
  c.w.SetInt(0, b);
  c.x_q.scale = {a_scale};
  c.w_q.scale = {b_scale};
  c.out_q = {{out_scale}, {zero_point}};
  return c;
}

int32_t First(std::string_view convention, const Case& c) {
  EXPECT_EQ(Validate(c), "");
  EXPECT_EQ(Get(convention).cannot_run(c), "") << convention;
  const Tensor y = Get(convention).run(c).y;
  // The last value of the trace is the output.
  EXPECT_EQ(Get(convention).trace(c, 0).back().value, std::to_string(y.IntAt(0))) << convention;
  return y.IntAt(0);
}

TEST(NumpyTest, TheWeightZeroPointIsTakenFromX) {
  Case c = Linear({10, 20}, {3, 5});
  EXPECT_EQ(First("numpy@float64+w_zp_from_x", c), 130);
  c.x_q.zero_point = {1};
  c.w_q.zero_point = {2};
  // (10-1-2)*3 + (20-1-2)*5 = 21 + 85; rightly (9)*(1) + (19)*(3) = 66.
  EXPECT_EQ(First("numpy@float64+w_zp_from_x", c), 106);
  EXPECT_EQ(First("numpy@float64", c), 66);
  EXPECT_EQ(First("numpy@float32", c), 66);
}

// 0.5 is a tie, rounded to even before the zero point is added.
TEST(NumpyTest, TiesGoToEvenBeforeTheZeroPoint) {
  Case c = Linear({1}, {1});
  c.out_q = {{2.0f}, {3}};
  EXPECT_EQ(First("numpy@float64", c), 3);
  EXPECT_EQ(First("numpy@float32", c), 3);
  c = Linear({3}, {1});
  c.out_q = {{2.0f}, {3}};
  EXPECT_EQ(First("numpy@float64", c), 5);
}

// A quotient just below a tie that float32 rounds onto it.
TEST(NumpyTest, Float32RoundsWhatFloat64Keeps) {
  const float scale = 0x1.000002p+0f;
  Case c = Quantize(0x1.8p+0f, scale, 0);
  EXPECT_EQ(First("numpy@float64", c), 1);  // 1.49999982 is below the tie
  EXPECT_EQ(First("numpy@float32", c), 1);
  // 127.5 * (1 - 2^-24) / 1: the float32 quotient of neighbours.
  int different = 0;
  for (int i = 0; i < 4000; ++i) {
    const float s = 0.01f + 0.00001f * static_cast<float>(i);
    const auto x =
        static_cast<float>((static_cast<double>(i % 255) + 0.5) * static_cast<double>(s));
    c = Quantize(x, s, 0);
    const int32_t narrow = First("numpy@float32", c), wide = First("numpy@float64", c);
    EXPECT_EQ(wide, exact::Evaluate(c).IntAt(0)) << i;
    EXPECT_LE(std::abs(narrow - wide), 1);
    different += narrow != wide ? 1 : 0;
  }
  EXPECT_GT(different, 10);
}

TEST(NumpyTest, HalfClipEndsWhereReduceRangeCalibrates) {
  for (const float x : {-1000.0f, 1000.0f}) {
    EXPECT_EQ(First("numpy@float32+half_clip", Quantize(x, 1, 10)), x < 0 ? 0 : 127);
    EXPECT_EQ(First("numpy@float32+half_clip", Quantize(x, 1, 10, DType::kS8)), x < 0 ? -64 : 63);
    EXPECT_EQ(First("numpy@float32", Quantize(x, 1, 10)), x < 0 ? 0 : 255);
  }
  EXPECT_EQ(First("numpy@float32+half_clip", Quantize(50.0f, 1, 10)), 60);
}

TEST(NumpyTest, InfinitiesClipAndNanIsZero) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const char* name : {"numpy@float32", "numpy@float64"}) {
    EXPECT_EQ(First(name, Quantize(kInf, 1, 200)), 255);
    EXPECT_EQ(First(name, Quantize(-kInf, 1, 200)), 0);
    EXPECT_EQ(First(name, Quantize(std::numeric_limits<float>::quiet_NaN(), 1, 200)), 0);
  }
}

// Float32 terms: 2^24 + 1 is lost.
TEST(NumpyTest, AddRunsInItsType) {
  const Case c = Add(1, 1, 0x1p+24f, 1.0f, 0x1p+18f, 0);  // (2^24 + 1) / 2^18 = 64 + 2^-18
  EXPECT_EQ(First("numpy@float32", c), 64);
  const Case tie = Add(129, 1, 0x1p+15f, 1.0f, 0x1p+16f, 0);  // 64.5 + 2^-16
  EXPECT_EQ(First("numpy@float64", tie), 65);
  EXPECT_EQ(First("numpy@float32", tie), 65);
  const Case lost = Add(129, 1, 0x1p+25f, 1.0f, 0x1p+26f, 0);  // 64.5 + 2^-26: not in float32
  EXPECT_EQ(First("numpy@float64", lost), 65);
  EXPECT_EQ(First("numpy@float32", lost), 64);
}

// 1 + 2^-40: a float64 is told in full.
TEST(NumpyTest, TracesTellFloat64) {
  const Case c = Add(1, 1, 1.0f, 0x1p-40f, 1.0f, 0);
  EXPECT_EQ(Get("numpy@float64").trace(c, 0).front().value, "0x1.0000000001p+0");
  EXPECT_EQ(Get("numpy@float32").trace(c, 0).front().value, "0x1p+0");
}

TEST(NumpyTest, RefusesWhatNobodyWrote) {
  Case c = Linear({1}, {1});
  c.bias_i32.emplace(1, 3);
  EXPECT_EQ(Get("numpy@float32").cannot_run(c), "the bias must be float");
  c.bias_i32.reset();
  c.bias.emplace(1, 3.0f);
  EXPECT_EQ(First("numpy@float32", c), 4);
  EXPECT_EQ(Get("numpy@float64+w_zp_from_x").cannot_run(c), "this formula has no bias and no relu");
  EXPECT_EQ(Get("numpy@float32+half_clip").cannot_run(c), "this convention has no linear");
}

// PT2E multiplies by the reciprocal of the scale where NumPy's lines divide.
TEST(NumpyConventions, DecomposedMultipliesByTheReciprocal) {
  // 445.625/28.75 is 15.5, times fl(1/28.75) an ulp less.
  EXPECT_EQ(First("numpy@float32", Quantize(445.625f, 28.75f, 0)), 16);
  EXPECT_EQ(First("torch-decomposed", Quantize(445.625f, 28.75f, 0)), 15);
  Case c =
      CaseOver(Op::kRescale, Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{3, 5}), DType::kS8);
  c.x_q = {{0.5f}, {1}};
  c.out_q = {{1}, {-3}};
  EXPECT_EQ(First("torch-decomposed", c), -2);  // 1 - 3
  EXPECT_EQ(First("torch-decomposed", Quantize(std::numeric_limits<float>::quiet_NaN(), 1, 3)), 0);
}

// A sum that no order rounds has one code, also where it is a tie: PyTorch 2.13 gives 0, 2, 2, 4.
TEST(NumpyConventions, DecomposedTakesNoOtherSideOfATie) {
  const auto gives = [](const Case& c, uint8_t code) {
    return Get("torch-decomposed")
        .also_gives(c, Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{code}));
  };
  for (const auto& [x, w] : {std::pair{std::vector{1}, std::vector{1}}, {{2, 1}, {1, -1}}}) {
    Case c = Linear(x, w);
    c.out_q.scale = {2};
    EXPECT_TRUE(gives(c, 0));
    EXPECT_FALSE(gives(c, 1));
  }
  // Here the order of three roundings decides between 4 and 5.
  Case c = Linear({253, 253, 253}, {127, -127, 1});
  c.x_q.scale = {0.1f};
  c.out_q.scale = {25.3f / 4.5f};
  EXPECT_TRUE(gives(c, 4));
  EXPECT_TRUE(gives(c, 5));
  EXPECT_FALSE(gives(c, 6));
}

}  // namespace
}  // namespace qualm
