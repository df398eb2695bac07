// SPDX-License-Identifier: Apache-2.0
// The derivation ends in the output, whatever the case, and reads as it should.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/random_case_test_util.h"
#include "core/verdict.h"
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

using Texts = std::vector<std::string>;

Texts Told(const Case& c, int64_t index = 0) {
  EXPECT_EQ(Validate(c), "");
  Texts texts;
  for (const TraceStep& step : Derive(c, index)) {
    texts.push_back(std::string(Name(step.stage)) + ": " + step.text);
  }
  return texts;
}

Texts Steps(Requant requant, int32_t accumulator, float multiplier) {
  Case c;
  c.op = Op::kRequantize;
  c.M = c.N = 1;
  c.x = Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{accumulator});
  c.multiplier = {multiplier};
  c.out_q.zero_point = {10};
  c.requant = requant;
  return Told(c);
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

TEST(Derive, RequantizationModesShowWhatDoesNotFit) {
  EXPECT_EQ(Steps(Requant::kFixedQ31, (1 << 30) + 1, 2.0f),
            (Texts{"accumulate: the accumulator is given = 1073741825",
                   "scale: shift left by 2, modulo 2^32 = 4",
                   ("scale: rounding doubling high multiply by Q = 1073741824 (the multiplier is "
                    "Q*2^(2-31)) = 2"),
                   "round: divide by 2^0, rounded half away from zero = 2",
                   "zero_point: add the zero point: 2 + 10 = 12",
                   "clamp: clamp 12 to [0, 255]: inside"}));
  EXPECT_EQ(Steps(Requant::kFloat32, 1 << 30, 2.0f)[3],
            "round: round to the nearest int32, half to even (cvtps2dq: what does not fit gives "
            "INT32_MIN) = -2147483648");
  EXPECT_EQ(Steps(Requant::kFixedRndnu, -(1 << 30), 2.0f)[1],
            "scale: shift left by 3, saturated to int32 = -2147483648");
  EXPECT_TRUE(Steps(Requant::kFixedRndnu, 5, 0.25f)[1].starts_with("scale: doubling high"));
  EXPECT_EQ(Steps(Requant::kFixedQ31, 5, 0x1p-40f)[1],
            "scale: rounding doubling high multiply by Q = 0 (the multiplier is Q*2^(0-31)) = 0");
  // From scales, with a sum that is no int32.
  Case c = ForumCase();
  c.bias_i32 = {{INT32_MAX, 0}};
  c.requant = Requant::kFixedQ31;
  c.out_q = {{0x1p-40f}, {INT32_MIN}};
  EXPECT_EQ(Told(c)[3], "bias: clamp 2147489202 to int32 = 2147483647");
  c.x_q.scale = c.w_q.scale = {1};
  c.out_q = {{1}, {INT32_MAX}};
  c.bias_i32 = {{-5555 + 8, 0}};
  EXPECT_EQ(Told(c)[6],
            "zero_point: add the zero point: 8 + 2147483647, modulo 2^32 = -2147483641");
  c.requant = Requant::kFloat32;
  EXPECT_EQ(Told(c)[4],
            "scale: multiply in float32 by fl(fl(x_scale*w_scale)/out_scale): 8 * 1 = 8");
  EXPECT_EQ(Told(c)[6], "zero_point: add the zero point: 8 + 2147483647 = 2147483655");
  EXPECT_EQ(Derive(c, 0)[4].value, "8");
  c.x_q.scale = c.w_q.scale = {0x1p127f};
  for (const auto& [sum, product] : {std::pair{8, "inf"}, {0, "nan:7fc00000"}, {-8, "-inf"}}) {
    c.bias_i32 = {{-5555 + sum, 0}};
    EXPECT_EQ(Told(c)[4], "scale: the float32 multiplier overflows: " + std::to_string(sum) +
                              " * infinity is no number that fits = " + product);
  }
}

TEST(Derive, LongSumsAreShortened) {
  Case c = ForumCase();
  c.K = 100;
  c.x = Tensor(DType::kU8, {1, 100});
  c.w = Tensor(DType::kS8, {2, 100});
  const Trace trace = Derive(c, 1);
  EXPECT_EQ(trace[0].text,
            "sum of x*w over k: 0*0 + 0*0 + 0*0 + 0*0 + ... (92 more) + 0*0 + 0*0 + 0*0 + 0*0 = 0");
  for (const int64_t k : {8, 9}) {
    c = ForumCase();
    c.N = 1;
    c.K = k;
    c.x = Tensor(DType::kU8, {1, k});
    c.w = Tensor(DType::kS8, {1, k});
    for (int64_t i = 0; i < k; ++i) c.x.SetInt(i, static_cast<int32_t>(i + 1));
    for (int64_t i = 0; i < k; ++i) c.w.SetInt(i, 1);
    EXPECT_EQ(Told(c)[0],
              k == 8 ? "accumulate: sum of x*w over k: 1*1 + 2*1 + 3*1 + 4*1 + 5*1 + 6*1 + 7*1 + "
                       "8*1 = 36"
                     : "accumulate: sum of x*w over k: 1*1 + 2*1 + 3*1 + 4*1 + ... (1 more) + 6*1 "
                       "+ 7*1 + 8*1 + 9*1 = 45");
  }
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
  // One tap in the padding, and one zero point of two.
  c.window.kernel_w = 1;
  DeriveSizes(&c);
  c.w = Tensor::Of<int8_t>({1, 2, 1, 1}, std::vector<int8_t>{1, 2});
  c.x_q.zero_point = {0};
  EXPECT_EQ(
      Told(c)[0],
      "accumulate: sum of x*w over (r,s,c): 7*2 = 14; 1 tap lies in the padding and adds real 0");
  EXPECT_EQ(
      Told(c)[1],
      "offset: take out the zero points: 14 - 0*2 (x_zp * sum of w) - 1*7 (w_zp * sum of x) + "
      "1*0*1 (terms * x_zp * w_zp) = 7");
  c.w_q.zero_point = {0};
  c.x_q.zero_point = {1};
  EXPECT_TRUE(Told(c)[1].starts_with("offset: take out the zero points: 14 - 1*2"));
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
  c.window.count_include_pad = false;
  EXPECT_EQ(Told(c)[2], "scale: multiply by x_scale/(count*out_scale): 18 * 1 / (2 * 1) = 9");
  c.op = Op::kMaxPool;
  c.out_q = c.x_q;
  trace = Derive(c, 1);
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0].text, "the largest of the 3 codes in the window: 7, 9, 4 = 9");
  EXPECT_EQ(trace[1].text, "clamp 9 to [0, 255]: inside");
  EXPECT_EQ(RealValueText(c, 1), "10");
  c.op = Op::kAvgPool;
  c.window.pad_left = 3;
  c.window.count_include_pad = true;
  DeriveSizes(&c);
  EXPECT_EQ(Told(c, 0)[0], "accumulate: the window lies in the padding, the sum is 0");
  EXPECT_EQ(Told(c, 2)[2],
            "scale: multiply by x_scale/(count*out_scale): 18 * 1 / (3 * 1), padding counted = 6");
  EXPECT_EQ(Told(c, 3)[2],
            "scale: multiply by x_scale/(count*out_scale): 23 * 1 / (3 * 1) = 7.66666667");
}

// All codes with one scale and zero point, that clamp to all codes.
Case Plain(Op op, std::vector<uint8_t> x, std::vector<uint8_t> w = {}) {
  Case c;
  c.op = op;
  c.M = 1;
  c.N = static_cast<int64_t>(x.size());
  c.x = Tensor::Of<uint8_t>({1, c.N}, x);
  if (!w.empty()) c.w = Tensor::Of<uint8_t>({1, static_cast<int64_t>(w.size())}, w);
  return c;
}

void SetFloatOutput(Case* c) {
  c->out_dtype = DType::kF32;
  c->out_min = INT32_MIN;
  c->out_max = INT32_MAX;
}

TEST(Derive, DynamicLinear) {
  Case c;
  c.op = Op::kDynamicLinear;
  c.M = 2;
  c.N = 1;
  c.K = 5;
  c.rule = QParamsRule::kOnnx;
  c.x_gran = Granularity::kRow;
  const float inf = std::numeric_limits<float>::infinity();
  c.x = Tensor::Of<float>({2, 5}, std::vector<float>{0, 255, 1, 2, 3, 0, -inf, -510, 510, 1});
  c.w = Tensor::Of<int8_t>({1, 5}, std::vector<int8_t>{1, 2, 3, 4, 5});
  SetFloatOutput(&c);
  EXPECT_EQ(Told(c, 0),
            (Texts{"accumulate: the finite values of the row of x, with 0, span [0, 255]",
                   "scale: the rule onnx chooses the scale 1", "zero_point: and the zero point 0",
                   "round: x 0 has the code 0", "round: x 255 has the code 255",
                   "round: x 1 has the code 1", "round: x 2 has the code 2",
                   "accumulate: sum of x*w over k: 0*1 + 255*2 + 1*3 + 2*4 + 3*5 = 536",
                   "offset: both zero points are 0, nothing to take out = 536",
                   "scale: multiply by x_scale*w_scale: 536 * 1 * 1 = 536",
                   "round: round once to float32: 536 gives 536, which is exact"}));
  // 1020 / 255 = 4; 510 / 4 = 127.5 goes to 128.
  Texts second = Told(c, 1);
  second.resize(7);
  EXPECT_EQ(second,
            (Texts{("accumulate: the finite values of the row of x, with 0, span [-510, "
                    "510]"),
                   "scale: the rule onnx chooses the scale 4", "zero_point: and the zero point 128",
                   "round: x 0 has the code 128", "round: x -inf has the code 0",
                   "round: x -510 has the code 0", "round: x 510 has the code 255"}));
  // With one scale for all rows the second row decides for the first.
  c.x_gran = Granularity::kTensor;
  EXPECT_EQ(
      Told(c, 0)[0],
      "accumulate: the finite values of x, with 0, span [-510, 510], those of this row [0, 255]: "
      "other rows of the batch change it");
  EXPECT_EQ(Told(c, 0)[4], "round: x 255 has the code 192");
  // Of a short row all values are told.
  c.K = 2;
  c.x = Tensor::Of<float>({2, 2}, std::vector<float>{0, 255, 0, 510});
  c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{1, 2});
  EXPECT_EQ(Told(c, 0)[4], "round: x 255 has the code 128");
  EXPECT_TRUE(Told(c, 0)[5].starts_with("accumulate: sum of x*w over k: 0*1 + 128*2 = 256"));
}

TEST(Derive, BiasesAndFloats) {
  Case c = ForumCase();
  c.x_q = {{0.5f}, {0}};
  c.w_q = {{0.25f}, {0}};
  c.out_q = {{2.0f}, {-2000}};
  EXPECT_EQ(Told(c)[1], "offset: both zero points are 0, nothing to take out = 32385");
  c.bias = {{-4.0f, 0.0f}};
  EXPECT_EQ(Told(c)[2],
            "bias: add the bias -4, in units of x_scale*w_scale -32: 32385 + -32 = 32353");
  EXPECT_EQ(Told(c)[3],
            "scale: multiply by x_scale*w_scale/out_scale: 32353 * 0.5 * 0.25 / 2 = 2022.0625");
  EXPECT_EQ(Told(c)[6], "clamp: clamp 22 to [0, 255]: inside");
  c.relu = true;
  EXPECT_EQ(Told(c)[6], "clamp: clamp 22 to [0, 255] (relu): inside");
  c.relu = false;
  c.bias.reset();
  c.bias_i32 = {{-32385, 0}};
  EXPECT_EQ(Told(c)[2], "bias: add the int32 bias: 32385 + -32385 = 0");
  c.bias_i32.reset();
  SetFloatOutput(&c);
  EXPECT_EQ(Told(c)[2], "scale: multiply by x_scale*w_scale: 32385 * 0.5 * 0.25 = 4048.125");
  EXPECT_EQ(Told(c)[3], "round: round once to float32: 4048.125 gives 4048.125, which is exact");
  c.bias = {{0x1p-40f, 0.0f}};
  EXPECT_EQ(Told(c)[3], "bias: add the bias: 4048.125 + 9.09494702e-13 = 4048.125");
  EXPECT_EQ(Told(c)[4], "round: round once to float32: 4048.125 gives 4048.125");
  c.relu = true;
  EXPECT_EQ(Derive(c, 0)[5].value, "0x1.fa04p+11");
  c.bias = {{-5000.0f, 0.0f}};
  EXPECT_EQ(Told(c)[5], "clamp: relu: the larger of 0 and it");
  EXPECT_EQ(Derive(c, 0)[5].value, "0x0p+0");
  c.x_q.scale = c.w_q.scale = {std::numeric_limits<float>::max()};
  c.relu = false;
  EXPECT_TRUE(Told(c)[4].ends_with(" gives inf")) << Told(c)[4];
  c.K = 0;
  c.x = Tensor(DType::kU8, {1, 0});
  c.w = Tensor(DType::kS8, {2, 0});
  EXPECT_EQ(Told(c)[0], "accumulate: no terms, the sum is 0");
}

TEST(Derive, LongNumbersAreRounded) {
  Case c = Plain(Op::kRequantize, {0});
  c.x = Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{1 << 30});
  c.multiplier = {0x1p33f};
  EXPECT_EQ(Told(c)[1], "scale: multiply: 1073741824 * 8.58993459e+09 = 9223372036854775808");
  c.multiplier = {0x1p34f};
  EXPECT_EQ(Told(c)[1], "scale: multiply: 1073741824 * 1.71798692e+10 = 1.84467441e+19");
  c.multiplier.clear();
  c.w_q.scale = {0.5f};
  EXPECT_EQ(Told(c)[1],
            "scale: multiply by x_scale*w_scale/out_scale: 1073741824 * 1 * 0.5 / 1 = 536870912");
}

TEST(Derive, OperationsOnCodes) {
  Case c = Plain(Op::kDequantize, {7});
  c.x_q = {{0.1f}, {9}};
  SetFloatOutput(&c);
  EXPECT_EQ(Told(c), (Texts{"offset: subtract the zero point: 7 - 9 = -2",
                            "scale: multiply by scale: -2 * 0.100000001 = -0.200000003",
                            ("round: round once to float32: -0.200000003 gives -0.200000003, "
                             "which is exact")}));
  c = Plain(Op::kQuantize, {0});
  c.x = Tensor::Of<float>({1, 1}, std::vector<float>{-1.5f});
  c.out_q = {{0.5f}, {10}};
  EXPECT_EQ(
      Told(c),
      (Texts{"scale: x / scale: -1.5 / 0.5 = -3", "round: round to the nearest integer: -3 = -3",
             "zero_point: add the zero point: -3 + 10 = 7", "clamp: clamp 7 to [0, 255]: inside"}));
  c = Plain(Op::kConcat, {7}, {5});
  c.N = 2;
  c.x_q = {{0.5f}, {1}};
  c.w_q = {{2.0f}, {2}};
  EXPECT_EQ(Told(c, 0)[0], "offset: first input, subtract the zero point: 7 - 1 = 6");
  EXPECT_EQ(Told(c, 0)[1], "scale: multiply by x_scale/out_scale: 6 * 0.5 / 1 = 3");
  EXPECT_EQ(Told(c, 1)[0], "offset: second input, subtract the zero point: 5 - 2 = 3");
  EXPECT_EQ(Told(c, 1)[1], "scale: multiply by w_scale/out_scale: 3 * 2 / 1 = 6");
  c = Plain(Op::kTable, {7});
  c.x_q = {{0.5f}, {9}};
  c.function = Function::kLeakyRelu;
  c.negative_slope = 0.25f;
  c.out_q = {{0.125f}, {10}};
  EXPECT_EQ(Told(c), (Texts{"offset: subtract the zero point: 7 - 9 = -2",
                            "scale: multiply by x_scale: -2 * 0.5 = -1",
                            "scale: apply leaky_relu of negative slope 0.25 = -0.25",
                            "scale: divide by out_scale: -0.25 / 0.125 = -2",
                            "round: round to the nearest integer: -2 = -2",
                            "zero_point: add the zero point: -2 + 10 = 8",
                            "clamp: clamp 8 to [0, 255]: inside"}));
  c.function = Function::kRelu;
  c.negative_slope = Case().negative_slope;
  EXPECT_EQ(Told(c)[2], "scale: apply relu = 0");
}

TEST(Derive, Softmax) {
  Case c = Plain(Op::kSoftmax, {3, 250});
  c.out_q = FixedOutQParams(DType::kU8);
  EXPECT_EQ(Told(c, 1),
            (Texts{"offset: distance from the largest of the row's 2 codes: 250 - 250 = 0",
                   ("scale: t = q*exp(-distance*x_scale), rounded to the nearest integer, where q "
                    "= min((2^32-1)/N, 2^23-1) = 8388607 = 8388607"),
                   "accumulate: sum of t over the row = 8388607",
                   ("round: floor((256*t + floor(sum/2)) / sum): (256*8388607 + 4194303) / 8388607 "
                    "= 256"),
                   "clamp: at most 255 = 255", "zero_point: add the zero point: 255 + 0 = 255",
                   "clamp: clamp 255 to [0, 255]: inside"}));
  EXPECT_EQ(Told(c, 0)[0], "offset: distance from the largest of the row's 2 codes: 250 - 3 = 247");
  EXPECT_EQ(Told(c, 0).size(), 6u) << "nothing above 255";
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
  EXPECT_EQ(Derive(c, 2).back().text, "x is -inf, which gives the lower end of the range, 0");
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
      const std::string expected = ElementText(y, at);
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
