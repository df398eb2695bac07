// SPDX-License-Identifier: Apache-2.0
// The derivation ends in the output, whatever the case, and reads as it should.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "core/float_text.h"
#include "core/random_case_test_util.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {
namespace {

using test::RandomCase;

Case ForumCase() {
  Case c;
  c.M = 1;
  c.N = 2;
  c.K = 2;
  const std::vector<uint8_t> x = {0, 255};
  const std::vector<int8_t> w = {25, 127, -128, -112};
  c.x = Tensor::Of<uint8_t>({1, 2}, x);
  c.w = Tensor::Of<int8_t>({2, 2}, w);
  c.x_q = {{0x1.6105f2p-7f}, {202}};
  c.w_q = {{0x1.ee1e1cp-9f}, {26}};
  c.out_q = {{0x1.f3b91ap-9f}, {0}};
  return c;
}

TEST(Derive, ReadsAsSentencesWithNumbers) {
  const Trace trace = Derive(ForumCase(), 0);
  ASSERT_EQ(trace.size(), 6u);
  EXPECT_EQ(Name(trace[0].stage), "accumulate");
  EXPECT_EQ(trace[0].text, "sum of x*w over k: 0*25 + 255*127 = 32385");
  EXPECT_EQ(trace[0].value, "32385");
  EXPECT_EQ(Name(trace[1].stage), "offset");
  EXPECT_EQ(trace[1].text,
            "take out the zero points: 32385 - 202*152 (x_zp * sum of w) - 26*255 (w_zp * sum of "
            "x) + 2*202*26 (K * x_zp * w_zp) = 5555");
  EXPECT_EQ(trace[1].value, "5555");
  EXPECT_EQ(Name(trace[2].stage), "scale");
  EXPECT_EQ(trace[2].value, RealValueText(ForumCase(), 0));
  EXPECT_EQ(Name(trace[3].stage), "round");
  EXPECT_EQ(trace[3].value, "59");
  EXPECT_EQ(Name(trace[4].stage), "zero_point");
  EXPECT_EQ(trace[4].text, "add the zero point: 59 + 0 = 59");
  EXPECT_EQ(Name(trace[5].stage), "clamp");
  EXPECT_EQ(trace[5].text, "clamp 59 to [0, 255]: inside");
  EXPECT_EQ(trace[5].value, "59");
}

std::vector<std::string> Steps(Requant requant, int32_t accumulator, float multiplier) {
  Case c;
  c.op = Op::kRequantize;
  c.M = c.N = 1;
  c.x = Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{accumulator});
  c.multiplier = {multiplier};
  c.out_q.zero_point = {10};
  c.requant = requant;
  std::vector<std::string> texts;
  for (const TraceStep& step : Derive(c, 0)) {
    texts.push_back(std::string(Name(step.stage)) + ": " + step.text);
  }
  return texts;
}

TEST(Derive, RequantizationModesShowTheirSteps) {
  EXPECT_EQ(
      Steps(Requant::kFloat32, 16777217, 0x1p-20f),
      (std::vector<std::string>{
          "accumulate: the accumulator is given = 16777217",
          "scale: convert to float32: 16777217 = 16777216",
          "scale: multiply in float32: 16777216 * 9.53674316e-07 = 16",
          ("round: round to the nearest int32, half to even (cvtps2dq: what does not fit gives "
           "INT32_MIN) = 16"),
          "zero_point: add the zero point: 16 + 10 = 26", "clamp: clamp 26 to [0, 255]: inside"}));
  EXPECT_EQ(
      Steps(Requant::kFixedQ31, 1, 0.25f),
      (std::vector<std::string>{
          "accumulate: the accumulator is given = 1",
          ("scale: rounding doubling high multiply by Q = 1073741824 (the multiplier is "
           "Q*2^(-1-31)) = 1"),
          "round: divide by 2^1, rounded half away from zero = 1",
          "zero_point: add the zero point: 1 + 10 = 11", "clamp: clamp 11 to [0, 255]: inside"}));
  EXPECT_EQ(
      Steps(Requant::kFixedRndnu, 5, 0.5f),
      (std::vector<std::string>{
          "accumulate: the accumulator is given = 5",
          "scale: shift left by 1, saturated to int32 = 10",
          ("scale: doubling high multiply, truncated, by the 24-bit mantissa of 0.5, which is "
           "1073741824*2^-31 = 5"),
          "round: divide by 2^1, rounded half up = 3",
          "zero_point: add the zero point: 3 + 10 = 13", "clamp: clamp 13 to [0, 255]: inside"}));
}

TEST(Derive, LongSumsAreShortened) {
  Case c = ForumCase();
  c.K = 100;
  c.x = Tensor(DType::kU8, {1, 100});
  c.w = Tensor(DType::kS8, {2, 100});
  const Trace trace = Derive(c, 1);
  EXPECT_EQ(trace[0].text,
            "sum of x*w over k: 0*0 + 0*0 + 0*0 + 0*0 + ... (92 more) + 0*0 + 0*0 + 0*0 + 0*0 = 0");
}

TEST(Derive, TiesAreSaid) {
  Case c = ForumCase();
  c.x_q = {{1.0f}, {0}};
  c.w_q = {{1.0f}, {0}};
  c.out_q = {{2.0f}, {3}};
  const Trace trace = Derive(c, 0);  // 32385 / 2
  EXPECT_EQ(trace[2].value, "32385/2");
  EXPECT_EQ(trace[3].text,
            "round to the nearest integer: 16192.5, exactly half way, goes to the even one = "
            "16192");
  EXPECT_EQ(trace.back().text, "clamp 16195 to [0, 255]: 255");
}

TEST(Derive, NamesTheStagesOfEachOutputType) {
  const auto stages = [](const Case& c) {
    std::string names;
    for (const TraceStep& step : Derive(c, 0)) names += std::string(Name(step.stage)) + " ";
    return names;
  };
  Case c = ForumCase();
  c.bias = {{0.5f, 0.5f}};
  EXPECT_EQ(stages(c), "accumulate offset bias scale round zero_point clamp ");
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  EXPECT_EQ(stages(c), "accumulate offset scale bias round ");
  c.relu = true;
  EXPECT_EQ(stages(c), "accumulate offset scale bias round clamp ");
  c.out_dtype = DType::kS32;
  c.bias.reset();
  c.bias_i32 = {{1, 2}};
  EXPECT_EQ(stages(c), "accumulate offset bias clamp ");
}

TEST(Derive, Convolution) {
  Case c;
  c.op = Op::kConv2d;
  c.N = 1;
  c.window.batch = 1;
  c.window.in_h = 1;
  c.window.in_w = 2;
  c.window.in_c = 1;
  c.window.kernel_h = 2;
  c.window.kernel_w = 2;
  c.window.pad_top = 1;
  DeriveSizes(&c);
  c.x = Tensor::Of<uint8_t>({1, 1, 2, 1}, std::vector<uint8_t>{7, 9});
  c.w = Tensor::Of<int8_t>({1, 2, 2, 1}, std::vector<int8_t>{1, 2, 3, -4});
  c.x_q.zero_point = {5};
  c.w_q.zero_point = {1};
  ASSERT_EQ(Validate(c), "");
  const Trace trace = Derive(c, 0);
  EXPECT_EQ(trace[0].text,
            "sum of x*w over (r,s,c): 7*3 + 9*-4 = -15; 2 taps lie in the padding and add real 0");
  EXPECT_EQ(trace[1].text,
            "take out the zero points: -15 - 5*(-1) (x_zp * sum of w) - 1*16 (w_zp * sum of x) + "
            "2*5*1 (terms * x_zp * w_zp) = -16");  // (7-5)(3-1) + (9-5)(-4-1)
  EXPECT_EQ(trace.back().value, "0");
}

TEST(Derive, TwoOperandsAndRescale) {
  Case c;
  c.op = Op::kAdd;
  c.M = 1;
  c.N = 1;
  c.x = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{7});
  c.w = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{1});
  c.x_q = {{0.5f}, {0}};
  c.w_q = {{2.0f}, {4}};
  c.out_q = {{0.25f}, {20}};
  Trace trace = Derive(c, 0);
  ASSERT_EQ(trace.size(), 6u);
  EXPECT_EQ(trace[0].text, "operand a, subtract the zero point: 7 - 0 = 7");
  EXPECT_EQ(trace[1].text, "operand b, subtract the zero point: 1 - 4 = -3");
  EXPECT_EQ(trace[2].text,
            "(a_scale*a + b_scale*b) / out_scale: (0.5 * 7 + 2 * (-3)) / 0.25 = -10");
  EXPECT_EQ(trace[5].value, "10");
  c.op = Op::kSub;
  trace = Derive(c, 0);
  EXPECT_EQ(trace[2].text, "(a_scale*a - b_scale*b) / out_scale: (0.5 * 7 - 2 * (-3)) / 0.25 = 38");
  c.op = Op::kMul;
  trace = Derive(c, 0);
  EXPECT_EQ(trace[2].text, "a_scale*b_scale/out_scale * a*b: 0.5 * 2 / 0.25 * 7 * (-3) = -84");
  EXPECT_EQ(trace[5].text, "clamp -64 to [0, 255]: 0");
  c.op = Op::kRescale;
  c.w = Tensor();
  trace = Derive(c, 0);
  EXPECT_EQ(trace[0].text, "subtract the zero point: 7 - 0 = 7");
  EXPECT_EQ(trace[1].text, "multiply by x_scale/out_scale: 7 * 0.5 / 0.25 = 14");
  EXPECT_EQ(trace.back().value, "34");
}

TEST(Derive, Pools) {
  Case c;
  c.op = Op::kAvgPool;
  c.window.batch = 1;
  c.window.in_h = 1;
  c.window.in_w = 3;
  c.window.in_c = 1;
  c.window.kernel_w = 3;
  c.window.pad_left = 1;
  c.window.count_include_pad = true;
  DeriveSizes(&c);
  c.x = Tensor::Of<uint8_t>({1, 1, 3, 1}, std::vector<uint8_t>{7, 9, 4});
  c.x_q.zero_point = {-1};
  c.out_q.zero_point = {2};
  ASSERT_EQ(Validate(c), "");
  Trace trace = Derive(c, 0);
  EXPECT_EQ(trace[0].text, "sum of the 2 codes in the window: 7 + 9 = 16");
  EXPECT_EQ(trace[1].text, "take out the zero point: 16 - 2*(-1) = 18");
  EXPECT_EQ(trace[2].text,
            "multiply by x_scale/(count*out_scale): 18 * 1 / (3 * 1), padding "
            "counted = 6");
  EXPECT_EQ(trace.back().value, "8");
  c.op = Op::kMaxPool;
  c.window.count_include_pad = false;
  c.out_q = c.x_q;
  trace = Derive(c, 1);
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0].text, "the largest of the 3 codes in the window: 7, 9, 4 = 9");
  EXPECT_EQ(trace[1].text, "clamp 9 to [0, 255]: inside");
  EXPECT_EQ(RealValueText(c, 1), "10");
}

TEST(Derive, NanAndInfinity) {
  Case c;
  c.op = Op::kQuantize;
  c.M = 1;
  c.N = 3;
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {std::numeric_limits<float>::quiet_NaN(), inf, -inf};
  c.x = Tensor::Of<float>({1, 3}, x);
  c.out_q.zero_point = {17};
  EXPECT_EQ(Derive(c, 0).front().text, "x is NaN, which stands for the zero point 17");
  EXPECT_EQ(Derive(c, 0).back().value, "17");
  EXPECT_EQ(Derive(c, 1).back().text, "x is inf, which gives the upper end of the range, 255");
  EXPECT_EQ(Derive(c, 2).back().value, "0");
  EXPECT_EQ(RealValueText(c, 0), "nan");
  EXPECT_EQ(RealValueText(c, 1), "inf");
  EXPECT_EQ(RealValueText(c, 2), "-inf");
  EXPECT_EQ(TieDistance(c, 0), std::nullopt);
}

TEST(Derive, EndsInTheOutput) {
  RandomCase draw(12);
  int derived = 0;
  for (int i = 0; i < 3000; ++i) {
    const Case c = draw.Draw(AllOps()[static_cast<size_t>(i) % AllOps().size()]);
    const Tensor y = Evaluate(c);
    for (int64_t at = 0; at < y.size(); ++at) {
      const Trace trace = Derive(c, at);
      ASSERT_FALSE(trace.empty());
      const std::string expected =
          c.out_dtype == DType::kF32 ? FloatText(y.FloatAt(at)) : std::to_string(y.IntAt(at));
      EXPECT_EQ(trace.back().value, expected) << Describe(c) << ": " << trace.back().text;
      for (const TraceStep& step : trace) {
        EXPECT_FALSE(step.lossy);
        EXPECT_FALSE(step.text.empty());
      }
      ++derived;
    }
  }
  EXPECT_GT(derived, 4000);
}

}  // namespace
}  // namespace qualm::exact
