// SPDX-License-Identifier: Apache-2.0
// The derivation ends in the output, whatever the case, and reads as it should.
#include <gtest/gtest.h>

#include <limits>

#include "core/float_text.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/random_case.h"

namespace qualm::exact {
namespace {

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
  for (int i = 0; i < 2000; ++i) {
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
