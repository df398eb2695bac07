// SPDX-License-Identifier: Apache-2.0
// dynamic_linear of real libraries: what PyTorch 1.13.1 and ONNX Runtime 1.30 print for two rows.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/verdict.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/test_util.h"
#include "oracles/exact/exact.h"

namespace qualm {
namespace {

using Values = std::vector<float>;

Case TwoRows(QParamsRule rule) {
  Case c;
  c.op = Op::kDynamicLinear;
  c.M = c.N = 2;
  c.K = 3;
  c.x = Tensor::Of<float>({2, 3}, Values{1, -2, 3, 0.1f, 0.7f, -0.3f});
  c.w = Tensor::Of<int8_t>({2, 3}, std::vector<int8_t>{1, 2, 3, -100, 50, 7});
  c.w_q = {{0.5f, 0.3f}, {0, 0}};
  c.per_channel = true;
  c.rule = rule;
  c.out_dtype = DType::kF32;
  c.out_min = RangeOf(c.out_dtype).min;
  c.out_max = RangeOf(c.out_dtype).max;
  EXPECT_EQ(Validate(c), "");
  return c;
}

void ExpectAnswer(std::string_view name, const Case& c, const Values& expected) {
  ASSERT_EQ(Validate(c), "");
  ASSERT_EQ(Get(name).cannot_run(c), "") << name;
  EXPECT_EQ(Get(name).run(c).y, Tensor::Of<float>({c.M, c.N}, expected)) << name;
}

TEST(DynamicLinear, OfTorchIsAsTheEnginesPrint) {
  Case c = TwoRows(QParamsRule::kAten);
  const Values qnnpack{0x1.8p+1f, -0x1.ad999cp+5f, 0x1.414142p-2f, 0x1.c1e1e4p+2f};
  ExpectAnswer("torch-qnnpack", c, qnnpack);
  ExpectAnswer("torch-onednn@vnni", c,
               {0x1.8p+1f, -0x1.ad999ap+5f, 0x1.414142p-2f, 0x1.c1e1e2p+2f});
  c.observer.reduce_range = true;  // QNNPACK ignores it
  ExpectAnswer("torch-qnnpack", c, qnnpack);
  ExpectAnswer("torch-onednn@vnni", c,
               {0x1.7c78f2p+1f, -0x1.aae5ccp+5f, 0x1.2e5cbap-2f, 0x1.9b366cp+2f});
  // QNNPACK adds the bias last, oneDNN first.
  c.bias = Values{0.1f, -3.3f};
  c.relu = true;
  ExpectAnswer("torch-qnnpack", c, {0x1.8cccccp+1f, 0, 0x1.a7a7a8p-2f, 0x1.dd5d62p+1f});
  ExpectAnswer("torch-onednn@vnni", c, {0x1.8945bep+1f, 0, 0x1.94c32p-2f, 0x1.900674p+1f});
}

// Sums without terms go to oneDNN's reference, on every instruction set. Its relu multiplies what
// is not above 0 by 0: the largest bias over the scales is -inf, and comes out as NaN; -1 does as
// 0.
TEST(DynamicLinear, OfOneDnnWithoutTermsHasTheReluOfTheReference) {
  Case c;
  c.op = Op::kDynamicLinear;
  c.M = 1;
  c.N = 2;
  c.x = Tensor(DType::kF32, {1, 0});
  c.w = Tensor(DType::kS8, {2, 0});
  c.w_q = {{0.5f, 0.5f}, {0, 0}};
  c.per_channel = true;
  c.rule = QParamsRule::kAten;
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  c.bias = Values{-FLT_MAX, -1};
  for (const char* name : {"torch-onednn@vnni", "torch-onednn@avx2"}) {
    c.relu = false;
    ExpectAnswer(name, c, {-INFINITY, -1});
    c.relu = true;
    ASSERT_EQ(Validate(c), "");
    const Tensor y = Get(name).run(c).y;
    EXPECT_TRUE(std::isnan(y.FloatAt(0))) << name;
    EXPECT_EQ(y.BitsAt(1), 0u) << name << " has not -0";
  }
  ExpectAnswer("torch-qnnpack", c, {0, 0});
}

TEST(DynamicLinear, OfOnnxRuntimeIsAsItPrints) {
  Case c = TwoRows(QParamsRule::kOnnx);
  c.w_q.zero_point = {0, 3};
  ExpectAnswer("onnxruntime@vnni", c, {0x1.8p+1f, -0x1.bc0002p+5f, 0x1.414142p-2f, 0x1.a48488p+2f});
  c.bias = Values{0.1f, -3.3f};
  ExpectAnswer("onnxruntime@vnni", c,
               {0x1.8cccccp+1f, -0x1.d66668p+5f, 0x1.a7a7a8p-2f, 0x1.a2a2aap+1f});
}

// What a choose_qparams of these values answers, without codes and with them.
void ExpectChoice(std::string_view name, const Values& x, const Values& codes, float scale,
                  float zero_point) {
  Case c;
  c.op = Op::kChooseQParams;
  c.M = 1;
  c.N = static_cast<int64_t>(x.size());
  c.x = Tensor::Of<float>({1, 1, c.N}, x);
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  ASSERT_EQ(Validate(c), "");
  ASSERT_EQ(Get(name).cannot_run(c), "") << name;
  EXPECT_EQ(Get(name).run(c).y, Tensor::Of<float>({2, 1}, Values{scale, zero_point}));
  c.rule = QParamsRule::kOnnx;
  c.codes = true;
  ASSERT_EQ(Validate(c), "");
  ASSERT_EQ(Get(name).cannot_run(c), "") << name;
  Values answer{scale, zero_point};
  answer.insert(answer.end(), codes.begin(), codes.end());
  const Tensor y = Get(name).run(c).y;
  EXPECT_EQ(y, Tensor::Of<float>({1, 2 + c.N}, answer));
  EXPECT_EQ(Get(name).trace(c, 1).back().value, ElementText(y, 1));
  EXPECT_EQ(Get(name).trace(c, 1 + c.N).back().value,
            std::to_string(static_cast<int>(codes.back())));
}

// The codes of a column through a weight of 1: (code - zero point) * scale.
void ExpectCodes(std::string_view name, const Values& x, const Values& codes, float scale,
                 float zero_point) {
  Case c = TwoRows(QParamsRule::kOnnx);
  c.M = static_cast<int64_t>(x.size());
  c.N = c.K = 1;
  c.x = Tensor::Of<float>({c.M, 1}, x);
  c.w = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{1});
  c.w_q = {{1}, {0}};
  Values outputs;
  for (const float code : codes) outputs.push_back((code - zero_point) * scale);
  ExpectAnswer(name, c, outputs);
  ExpectChoice(name, x, codes, scale, zero_point);
}

// The examples of DynamicQuantizeLinear in ONNX's documentation.
TEST(DynamicLinear, OfOnnxIsAsItsPageSays) {
  ExpectCodes("onnx@reference", {0, 2, -3, -2.5f, 1.34f, 0.5f}, {153, 255, 0, 26, 221, 179},
              0x1.414142p-6f, 153);
  ExpectCodes("onnx@reference", {-1, -2.1f, -1.3f, -2.5f, -3.34f, -4}, {191, 121, 172, 96, 42, 0},
              0x1.010102p-6f, 255);
  ExpectCodes("onnx@reference", {1, 2.1f, 1.3f, 2.5f, 3.34f, 4, 1.5f, 2.6f, 3.9f, 4, 3, 2.345f},
              {64, 134, 83, 159, 213, 255, 96, 166, 249, 255, 191, 149}, 0x1.010102p-6f, 0);
  ExpectCodes("onnx@reference", {0, 0}, {0, 0}, 1, 0);
}

// 0/0 is NaN, which each library takes for another code; x over an infinite scale is 0.
TEST(DynamicLinear, OfAScaleThatIsNoneEachLibraryMakesItsCodes) {
  ExpectChoice("onnxruntime@avx2", {0, 0}, {0, 0}, 1, 0);
  ExpectChoice("tvm", {0, 0}, {255, 255}, 0, 255);
  ExpectChoice("tract", {0, 0}, {0, 0}, 0, 0);
  ExpectChoice("onnxruntime@avx2", {-FLT_MAX, FLT_MAX}, {0, 0}, INFINITY, 0);
}

// Codes are of one choice, and conventions of observers have none.
TEST(DynamicLinear, CodesAreRefusedWhereNobodyMakesThem) {
  Case c;
  c.op = Op::kChooseQParams;
  c.M = c.N = 1;
  c.x = Tensor(DType::kF32, {1, 1, 1});
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  c.rule = QParamsRule::kAten;
  c.codes = true;
  for (const char* name : {"observers@aten", "observers@torch", "observers@fbgemm"})
    EXPECT_EQ(Get(name).cannot_run(c), "chooses scales and zero points only");
  EXPECT_EQ(Get("torch2.13-qnnpack").cannot_run(c), "");
  c.per_channel = true;
  EXPECT_EQ(Get("torch2.13-qnnpack").cannot_run(c), "codes of one scale and zero point only");
}

TEST(DynamicLinear, OfOnnxHasNoLinear) {
  Case c = TwoRows(QParamsRule::kOnnx);
  c.op = Op::kLinear;
  EXPECT_EQ(Get("onnx@reference").cannot_run(c), "this convention has no linear");
}

// 0.5 and the zero point 253/2 are ties (sonos/tract pull request 2672).
TEST(DynamicLinear, TiesGoAwayInCodesAndZeroPoint) {
  ExpectCodes("plain@float32+away", {-127, 128, 0.5f}, {0, 255, 128}, 1, 127);
  ExpectCodes("onnx@reference", {-127, 128, 0.5f}, {0, 255, 127}, 1, 127);
  ExpectCodes("plain@float32+away", {-253, 257}, {0, 255}, 2, 127);
  ExpectCodes("onnx@reference", {-253, 257}, {0, 254}, 2, 126);
}

// The exact meaning leaves infinities out of the range.
TEST(DynamicLinear, OfOnnxRuntimeTakesInfinitiesIntoTheRange) {
  Case c = TwoRows(QParamsRule::kOnnx);
  c.M = c.N = 1;
  c.x = Tensor::Of<float>({1, 3}, Values{1, -INFINITY, 2});
  c.w = Tensor::Of<int8_t>({1, 3}, std::vector<int8_t>{1, 2, 3});
  c.w_q = {{0.5f}, {0}};
  ExpectAnswer("onnxruntime@vnni", c, {-INFINITY});
  EXPECT_TRUE(std::isfinite(exact::Evaluate(c).FloatAt(0)));
}

TEST(DynamicLinear, RefusesWhatTheLibrariesLack) {
  const auto refused = [](std::string_view name, const auto& change) {
    Case c = TwoRows(name.starts_with("torch") ? QParamsRule::kAten : QParamsRule::kOnnx);
    change(c);
    EXPECT_EQ(Validate(c), "");
    return !Get(name).cannot_run(c).empty();
  };
  const auto nan = [](Case& c) { c.x.as<float>()[1] = std::numeric_limits<float>::quiet_NaN(); };
  const auto infinity = [](Case& c) { c.x.as<float>()[1] = INFINITY; };
  const auto relu = [](Case& c) { c.relu = true; };
  const auto zero_points = [](Case& c) { c.w_q.zero_point = {0, 3}; };
  for (const char* name :
       {"torch-qnnpack", "torch-onednn@amx", "onnxruntime@vnni", "onnx@reference"}) {
    EXPECT_FALSE(refused(name, [](Case&) {})) << name;
    EXPECT_TRUE(refused(name, nan)) << name;
    EXPECT_TRUE(refused(name, [](Case& c) { c.x_gran = Granularity::kRow; })) << name;
    EXPECT_TRUE(refused(name, [](Case& c) { c.rule = QParamsRule::kObserver; })) << name;
    EXPECT_TRUE(refused(name, [](Case& c) { c.w_q.zero_point = {0, 128}; })) << name;
    EXPECT_EQ(refused(name, infinity), !std::string_view(name).starts_with("onnx")) << name;
    EXPECT_EQ(refused(name, relu), std::string_view(name).starts_with("onnx")) << name;
    EXPECT_EQ(refused(name, zero_points), std::string_view(name).starts_with("torch-onednn"))
        << name;
  }
  // The requantization scale that QNNPACK refuses.
  EXPECT_TRUE(refused("torch-qnnpack", [](Case& c) { c.w_q.scale[0] = 0x1p-126f; }));
  EXPECT_TRUE(refused("torch-onednn@vnni", [](Case& c) { c.w_q.scale[0] = 0x1p-126f; }));
}

TEST(DynamicLinear, IsTracedToItsOutput) {
  const Case c = TwoRows(QParamsRule::kAten);
  const Trace trace = Get("torch-qnnpack").trace(c, 1);
  ASSERT_GE(trace.size(), 8u);
  EXPECT_EQ(trace[0].text, "x spans, with 0, [-0x1p+1, 0x1.8p+1]");
  EXPECT_EQ(trace[2].value, "102");
  EXPECT_EQ(trace[3].text, "x 0x1p+0 has the code 153");
  EXPECT_EQ(trace.back().value, "-0x1.ad999cp+5");
}

// torchao: the largest x is 127.5 steps, which is no code; each row has its own scale. On AVX2 the
// products of (x + 128)*w are added in saturating pairs: 2*255*127 - 128*254 is 32258, and 255.
TEST(DynamicLinear, Torchao) {
  Case c = TwoRows(QParamsRule::kObserver);
  c.observer.dtype = DType::kS8;
  c.observer.symmetric = true;
  c.observer.quant_min = -128;
  c.observer.quant_max = 127;
  c.x_gran = Granularity::kRow;
  c.K = 2;
  c.x = Tensor::Of<float>({2, 2}, Values{127.5f, -1, 1, 1});
  c.w = Tensor::Of<int8_t>({2, 2}, std::vector<int8_t>{2, 3, 127, 127});
  c.w_q = {{0.5f, 1}, {0, 0}};
  c.bias = {1, 0};
  const float scale = 1 / 127.5f;
  const Values first{(127 * 2 - 3) * 0.5f + 1, 126 * 127};
  const float small = 127 * 5 * scale * 0.5f + 1;
  ExpectAnswer("torchao@vnni", c, {first[0], first[1], small, 32258 * scale});
  ExpectAnswer("torchao@avx2", c, {first[0], 32767 - 128 * 254 + 0.0f, small, 255 * scale});
  c.observer.reduce_range = true;
  EXPECT_NE(Get("torchao@vnni").cannot_run(c), "");
}

Case RowsInS8(bool symmetric, int64_t K, const Values& x, const std::vector<int8_t>& w) {
  Case c = TwoRows(QParamsRule::kObserver);
  c.observer = {.symmetric = symmetric,
                .dtype = DType::kS8,
                .quant_min = symmetric ? -127 : -128,
                .quant_max = 127};
  c.x_gran = Granularity::kRow;
  c.M = std::ssize(x) / K;
  c.N = 1;
  c.K = K;
  c.x = Tensor::Of<float>({c.M, K}, x);
  c.w = Tensor::Of<int8_t>({1, K}, w);
  c.w_q = {{1}, {0}};
  return c;
}

// Of -127.5 to 127.5 the zero point is half of a code: LiteRT takes -1 and rounds away from zero,
// so that the codes are -128 and 127, -127 and 128 from it; XNNPACK takes 0 and clamps 128 to 127.
TEST(DynamicLinear, LitertChoosesAZeroPoint) {
  const Case c = RowsInS8(false, 2, {-127.5f, 127.5f, 0, 510}, {1, 2});
  ExpectAnswer("tflite@builtin", c, {-127 + 2 * 128, 2 * 510});
  ExpectAnswer("tflite@reference", c, {-127 + 2 * 128, 2 * 510});
  ExpectAnswer("xnnpack2026@avx512", c, {-128 + 2 * 127, 2 * 510});
  Case tensor = c;
  tensor.x_gran = Granularity::kTensor;
  EXPECT_NE(Get("tflite@builtin").cannot_run(tensor), "");
  EXPECT_NE(Get("xnnpack2026@avx512").cannot_run(RowsInS8(true, 1, {1}, {1})), "");
}

// In 16 columns the product of a negative x and -128 keeps the sign of -128; what fills no 16 has
// the right one. 1 is 0.5 codes of 254, rounded away from zero; in 8 columns, 0.5 - 2^-25 is, too.
TEST(DynamicLinear, LitertGivesWeightsTheSignOfX) {
  Values x(16, 0), halves{0.5f - 0x1p-25f, 127, 0, 0, 0, 0, 0, 0, 0.5f - 0x1p-25f};
  std::vector<int8_t> w(16, 0);
  x[0] = -127;
  w[0] = -128;
  ExpectAnswer("tflite@builtin", RowsInS8(true, 16, x, w), {-127 * 128});
  x.resize(15);
  w.resize(15);
  ExpectAnswer("tflite@builtin", RowsInS8(true, 15, x, w), {127 * 128});
  ExpectAnswer("tflite@builtin", RowsInS8(true, 9, halves, {100, 1, 0, 0, 0, 0, 0, 0, 10}),
               {127 + 100});
}

// The sum of 2080 weights of 127 is 8 lanes of 33020, which wrap to -32516; with a zero point of
// -128 the 127*255 has -128*(8*65536) too much.
TEST(DynamicLinear, LitertAddsWeightsIn16Bits) {
  Values x(2080, 0);
  x[0] = 255;
  const Case c = RowsInS8(false, 2080, x, std::vector<int8_t>(2080, 127));
  ExpectAnswer("tflite@builtin", c, {static_cast<float>(127 * 255 - 128 * 8 * 65536)});
  ExpectAnswer("xnnpack2026@avx2", c, {127 * 255});
}

}  // namespace
}  // namespace qualm
