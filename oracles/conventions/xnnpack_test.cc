// SPDX-License-Identifier: Apache-2.0
// XNNPACK's refusals at the numbers where its operators refuse, and its choice between kernels of
// pools.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/case.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/families.h"
#include "oracles/conventions/test_util.h"

namespace qualm {
namespace {

const Convention& Fp32() { return Get("xnnpack@fp32"); }
const Convention& Of2024() { return Get("xnnpack2024@avx2"); }

// One code of u8, unit scales, zero points 0.
Case OneCode(Op op) {
  Case c = CaseOver(op, Tensor(DType::kU8, {1, 1}), DType::kU8);
  if (HasTwoOperands(op)) c.w = c.x;
  return c;
}

float Below(float x) { return std::nextafter(x, 0.0f); }

// Expects that the scale of x (the output's is 1) may lie in [least, most) and gives no other
// reason.
void ExpectRatios(Case c, float least, float most, const std::string& reason) {
  const auto refusal = [&](float scale) {
    c.x_q.scale = {scale};
    EXPECT_EQ(Validate(c), "");
    return Fp32().cannot_run(c);
  };
  EXPECT_EQ(refusal(least), "");
  EXPECT_EQ(refusal(Below(least)), reason);
  EXPECT_EQ(refusal(Below(most)), "");
  EXPECT_EQ(refusal(most), reason);
}

TEST(Xnnpack, RatiosOfScales) {
  ExpectRatios(OneCode(Op::kAdd), 0x1p-10f, 0x1p8f,
               "the scale of an operand over that of the output must lie in [2^-10, 2^8)");
  Case leaky = OneCode(Op::kTable);
  leaky.function = Function::kLeakyRelu;
  const std::string reason = "the scale of x over that of the output must lie in [2^-8, 2^8)";
  ExpectRatios(leaky, 0x1p-8f, 0x1p8f, reason);
  Case pool = OneCode(Op::kGlobalAvgPool);
  pool.window.batch = pool.window.in_h = pool.window.in_w = pool.window.in_c = 1;
  pool.window.kernel_h = pool.window.kernel_w = 1;
  pool.x = Tensor(DType::kU8, {1, 1, 1, 1});
  DeriveSizes(&pool);
  ExpectRatios(pool, 0x1p-8f, 0x1p8f, reason);
}

// 2^-8 over 2^24 pixels is 2^-32. Only the numbers of the case are asked, so that no image of 16
// million codes is needed.
TEST(Xnnpack, LeastMultiplierOfAnAverage) {
  Case c = OneCode(Op::kGlobalAvgPool);
  c.x_q.scale = {0x1p-8f};
  c.window.in_h = c.window.in_w = 4096;
  EXPECT_EQ(Fp32().cannot_run(c), "");
  c.window.in_w = 4097;
  EXPECT_EQ(Fp32().cannot_run(c), "the multiplier must lie in [2^-32, 256)");
}

TEST(Xnnpack, ParametersOfTables) {
  Case c = OneCode(Op::kTable);
  c.function = Function::kTanh;
  const std::string reason = "the output of tanh has scale 2^-7 and the middle code as zero point";
  c.out_q = {{0x1p-7f}, {128}};
  EXPECT_EQ(Fp32().cannot_run(c), "");
  c.out_q = {{0x1p-7f}, {127}};
  EXPECT_EQ(Fp32().cannot_run(c), reason);
  c.out_q = {{0x1p-6f}, {128}};
  EXPECT_EQ(Fp32().cannot_run(c), reason);
  c = OneCode(Op::kTable);
  c.function = Function::kLeakyRelu;
  c.negative_slope = 1.0f;
  EXPECT_EQ(Fp32().cannot_run(c), "");
  c.negative_slope = std::nextafter(1.0f, 2.0f);
  EXPECT_EQ(Fp32().cannot_run(c), "the slope must be a normal number up to 1");
}

constexpr const char* kUndecided = "an output depends on how the exponential function rounds";

// One code, 1 above the zero point, through a function of XNNPACK and of QNNPACK.
Case OneAbove(Function function, float scale) {
  Case c = OneCode(Op::kTable);
  c.function = function;
  c.x.SetInt(0, 1);
  c.x_q.scale = {scale};
  c.out_q = function == Function::kSigmoid ? QParams{{0x1p-8f}, {0}} : QParams{{0x1p-7f}, {128}};
  EXPECT_EQ(Validate(c), "");
  return c;
}

// 256*sigmoid(x) and 128*tanh(x) are ties at these x. Only the few x are refused at which expf, 1
// number off, or tanhf, 2 numbers off, could cross the tie.
TEST(Xnnpack, TablesNearATieAreUndecided) {
  struct Tie {
    Function function;
    double x;
    int32_t below;  // the code of smaller x
  };
  for (const Tie& tie : {Tie{Function::kSigmoid, std::log(187.5 / 68.5), 187},
                         Tie{Function::kTanh, std::atanh(64.5 / 128), 192}}) {
    for (const char* name : {"xnnpack@fp32", "xnnpack@rndnu", "torch-qnnpack"}) {
      int undecided = 0;
      for (auto x = static_cast<float>(tie.x - 0x1p-19); x < tie.x + 0x1p-19;
           x = std::nextafter(x, 2.0f)) {
        const Case c = OneAbove(tie.function, x);
        const std::string reason = Get(name).cannot_run(c);
        const double from_tie = static_cast<double>(x) - tie.x;
        if (reason == kUndecided) {
          EXPECT_LT(std::abs(from_tie), 0x1p-21) << name;
          ++undecided;
        } else {
          ASSERT_EQ(reason, "") << name;
          EXPECT_EQ(Get(name).run(c).y.IntAt(0), tie.below + (undecided > 0 ? 1 : 0))
              << name << " " << from_tie;
        }
      }
      EXPECT_GT(undecided, 0) << name;
    }
  }
}

// 8388607*exp(-255*scale) is 7978644.5 but for the last bit of exp, and above it by 255*2^-35 of
// itself for the next smaller scale.
TEST(Xnnpack, NumeratorsNearATieAreUndecided) {
  Case c = OneCode(Op::kSoftmax);
  c.N = 2;
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{255, 0});
  c.out_q = {{0x1p-8f}, {0}};
  c.x_q.scale = {0x1.9c13dap-13f};
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(Fp32().cannot_run(c), kUndecided);
  EXPECT_EQ(Get("torch-qnnpack").cannot_run(c), kUndecided);
  c.x_q.scale = {Below(c.x_q.scale[0])};
  EXPECT_EQ(Fp32().cannot_run(c), "");
  // (2^32 - 1)/514 is a tie, and times exp(0), which every library has as 1.
  c.N = 514;
  c.x = Tensor(DType::kU8, {1, 514});
  EXPECT_EQ(Fp32().cannot_run(c), "");
}

// An average whose window is the whole padded image ends in float32, others in fixed point.
TEST(Xnnpack, AverageOfTheWholeImage) {
  for (const int64_t pad : {0, 1, 2, 3}) {
    Case c = OneCode(Op::kAvgPool);
    Window& v = c.window;
    v.batch = v.in_c = 1;
    v.in_h = v.in_w = 3;
    v.kernel_h = v.kernel_w = 3;
    v.count_include_pad = true;
    c.x = Tensor(DType::kU8, {1, 3, 3, 1});
    int64_t Window::* const pads[] = {&Window::pad_top, &Window::pad_bottom, &Window::pad_left,
                                      &Window::pad_right};
    const auto in_fixed_point = [&] {
      DeriveSizes(&c);
      EXPECT_EQ(Validate(c), "");
      EXPECT_EQ(Fp32().cannot_run(c), "");
      const Trace trace = Fp32().trace(c, 0);
      return std::ranges::any_of(trace, [](const TraceStep& step) {
        return step.text.find("ties away from zero") != std::string::npos;
      });
    };
    EXPECT_FALSE(in_fixed_point()) << "no padding yet";
    v.*pads[pad] = 2;
    EXPECT_TRUE(in_fixed_point()) << "the window is less than the padded image";
    (pad < 2 ? v.kernel_h : v.kernel_w) += 2;
    EXPECT_FALSE(in_fixed_point());
  }
}

// 1024 times 2^32/1024, the numerator of the largest code, wraps to 0. The library asserts there;
// the convention must not divide by 0.
TEST(Xnnpack, SumOfSharesThatWrapsToZero) {
  Case c = OneCode(Op::kSoftmax);
  c.N = 1024;
  c.x = Tensor(DType::kU8, {1, 1024});
  c.out_q = {{0x1p-8f}, {0}};
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(Fp32().run(c).y.IntAt(1023), 0);
  c.x.SetInt(7, 1);  // the others have less than the largest share
  EXPECT_GT(Fp32().run(c).y.IntAt(7), 0);
}

// ---- 2024.

Case Rescaled(Tensor x, DType out_dtype, float scale, int32_t zero_point) {
  Case c = CaseOver(Op::kRescale, std::move(x), out_dtype);
  c.x_q = {{scale}, {zero_point}};
  return c;
}
std::vector<int32_t> CodesOf(const Case& c) {
  EXPECT_EQ(Validate(c), "");
  EXPECT_EQ(Of2024().cannot_run(c), "");
  const Tensor y = Of2024().run(c).y;
  std::vector<int32_t> codes;
  for (int64_t i = 0; i < y.size(); ++i) codes.push_back(y.IntAt(i));
  return codes;
}
using V = std::vector<int32_t>;

TEST(Xnnpack2024, RescalesIn256ths) {
  const auto x = [] { return Tensor::Of<uint8_t>({1, 4}, std::vector<uint8_t>{200, 1, 255, 0}); };
  // 127.488 of 256.
  EXPECT_EQ(CodesOf(Rescaled(x(), DType::kU8, 0.498f, 0)), (V{99, 0, 127, 0}));
  // Ties: 127.5 of 256 is 128, and half goes up, also below 0.
  EXPECT_EQ(CodesOf(Rescaled(x(), DType::kU8, 127.5f / 256, 0)), (V{100, 1, 128, 0}));
  Case down = Rescaled(x(), DType::kU8, 0.5f, 3);
  down.out_q.zero_point = {10};
  EXPECT_EQ(CodesOf(down), (V{109, 9, 136, 9}));  // -1 and -1.5 to -1
  // Saturates.
  EXPECT_EQ(CodesOf(Rescaled(x(), DType::kU8, 128.0f, 1)), (V{255, 0, 255, 0}));
}

TEST(Xnnpack2024, ConvertsToTheOtherTypeInFloat32) {
  Case c = Rescaled(Tensor::Of<uint8_t>({1, 4}, std::vector<uint8_t>{200, 1, 255, 3}), DType::kS8,
                    0.5f, 0);
  // 0.5 and 1.5, and with the zero point -4.5 and -3.5: away from zero.
  EXPECT_EQ(CodesOf(c), (V{100, 1, 127, 2}));
  c.out_q.zero_point = {-5};
  EXPECT_EQ(CodesOf(c), (V{95, -5, 123, -4}));
}

TEST(Xnnpack2024, LeakyReluHasARatioForEachSign) {
  Case c = Rescaled(Tensor::Of<uint8_t>({1, 3}, std::vector<uint8_t>{0, 124, 224}), DType::kU8,
                    1.0f, 124);
  c.op = Op::kTable;
  c.function = Function::kLeakyRelu;
  c.negative_slope = 0.1f;  // 25.6 of 256 is 26
  c.out_q.zero_point = {124};
  EXPECT_EQ(CodesOf(c), (V{111, 124, 224}));
  c.negative_slope = Below(0x1p-8f);
  EXPECT_EQ(Of2024().cannot_run(c), "the slope times the ratio of scales must lie in [2^-8, 2^7]");
  c.negative_slope = 0x1p7f;
  EXPECT_EQ(Of2024().cannot_run(c), "");
  c.negative_slope = std::nextafter(0x1p7f, 256.0f);
  EXPECT_NE(Of2024().cannot_run(c), "");
}

// fl(fl(sx/sy) * fl(1/n)), not fl(sx / (sy*n)).
TEST(Xnnpack2024, MeansOfTheWholeImage) {
  Case c = OneCode(Op::kGlobalAvgPool);
  c.window.batch = c.window.in_h = c.window.in_c = 1;
  c.window.in_w = c.window.kernel_w = 3;
  c.window.kernel_h = 1;
  c.x = Tensor::Of<uint8_t>({1, 1, 3, 1}, std::vector<uint8_t>{1, 2, 4});
  DeriveSizes(&c);
  EXPECT_EQ(CodesOf(c), (V{2}));
  c.x_q.scale = {0.3f};
  const Trace trace = Of2024().trace(c, 0);
  EXPECT_TRUE(std::ranges::any_of(trace, [](const TraceStep& step) {
    return step.text.find("times 0x1.99999cp-4") != std::string::npos;
  }));
  c.out_q.scale = {0x1p-20f};  // 2^-8 to 2^8 in 2022
  EXPECT_EQ(Of2024().cannot_run(c), "");
  c.x_q.scale = {0x1p107f};
  EXPECT_EQ(Of2024().cannot_run(c), "");
  c.x_q.scale = {0x1p108f};
  EXPECT_EQ(Of2024().cannot_run(c), "the ratio of scales must be a normal number");
}

// A result up to -2^31 is converted to INT32_MIN; a negative zero point added to that in int32
// wraps.
TEST(Xnnpack2024, ZeroPointsOfMatrixProductsInInt32) {
  const auto code = [](const char* name, const Case& c) {
    EXPECT_EQ(Validate(c), "");
    EXPECT_EQ(Get(name).cannot_run(c), "") << name;
    return Get(name).run(c).y.IntAt(0);
  };
  Case c = CaseOver(Op::kLinear, Tensor(DType::kS8, {1, 1}), DType::kS8);
  c.K = 1;
  c.w = c.x;
  c.bias_i32 = {INT32_MIN};
  c.out_q.zero_point = {-1};
  EXPECT_EQ(code("xnnpack2024@avx2", c), -128);
  EXPECT_EQ(code("xnnpack2024@avx512", c), 127);
  c.out_q.zero_point = {0};
  EXPECT_EQ(code("xnnpack2024@avx512", c), -128);
  // Depthwise kernels for up to 25 taps saturate.
  for (const int64_t taps : {25, 26}) {
    Case conv;
    conv.op = Op::kDepthwise;
    conv.out_dtype = DType::kS8;
    OpenClamp(&conv);
    conv.N = 1;
    conv.window.batch = conv.window.in_h = conv.window.in_c = 1;
    conv.window.in_w = conv.window.kernel_w = taps;
    DeriveSizes(&conv);
    conv.x = Tensor(DType::kS8, ShapeOfX(conv));
    conv.w = Tensor(DType::kS8, ShapeOfW(conv));
    conv.bias_i32 = {INT32_MIN};
    conv.out_q.zero_point = {-1};
    EXPECT_EQ(code("xnnpack2024@avx512", conv), taps == 25 ? -128 : 127);
  }
}

TEST(Xnnpack2024, Refusals) {
  const auto reason = [](const Case& c) { return Of2024().cannot_run(c); };
  Case c = OneCode(Op::kRescale);
  c.x_q.scale = {0x1p-8f};
  EXPECT_EQ(reason(c), "");
  c.x_q.scale = {Below(0x1p-8f)};
  EXPECT_EQ(reason(c), "the scale of x over that of the output must lie in [2^-8, 2^7]");
  c.out_dtype = DType::kS8;
  OpenClamp(&c);
  EXPECT_EQ(reason(c), "");
  c.out_max = 100;
  EXPECT_EQ(reason(c), "x and output must have one type");
  c.x_q.scale = {0x1p-127f};
  EXPECT_EQ(reason(c), "scales must be normal numbers");
  c = OneCode(Op::kRescale);
  c.out_min = 1;
  EXPECT_EQ(reason(c), "");
  c.out_q.scale = {2.0f};
  EXPECT_EQ(reason(c), "codes are clamped or rescaled");
  for (const Op op : {Op::kQuantize, Op::kAdd, Op::kTable, Op::kGlobalAvgPool}) {
    c = OneCode(op);
    if (op == Op::kQuantize) c.x = Tensor(DType::kF32, {1, 1});
    EXPECT_EQ(reason(c), "") << Name(op);
    c.out_max = 254;
    EXPECT_EQ(reason(c), "there is no clamp and no relu") << Name(op);
    c.out_max = 255;
    c.out_q.zero_point = {1};
    c.relu = true;
    EXPECT_EQ(reason(c), "there is no clamp and no relu") << Name(op);
  }
  c = OneCode(Op::kMaxPool);
  c.window.kernel_h = 2;
  c.window.stride_h = 2;
  EXPECT_EQ(reason(c), "");
  c.window.stride_h = 3;
  EXPECT_EQ(reason(c), "strides may not exceed the window");
}

TEST(Xnnpack2024, S8HasNoLeastMultiplier) {
  for (const DType dtype : {DType::kU8, DType::kS8}) {
    Case c = CaseOver(Op::kLinear, Tensor(dtype, {1, 1}), dtype);
    c.K = 1;
    c.w = c.x;
    c.x_q.scale = {0x1p-32f};
    EXPECT_EQ(Of2024().cannot_run(c), "");
    c.x_q.scale = {Below(0x1p-32f)};
    EXPECT_EQ(Of2024().cannot_run(c),
              dtype == DType::kS8 ? "" : "the multiplier must lie in [2^-32, 256)");
    c.x_q.scale = {0x1p8f};
    EXPECT_EQ(Of2024().cannot_run(c), "the multiplier must lie in [2^-32, 256)");
  }
}

TEST(Xnnpack, Operations) {
  const std::vector<Op> shared{Op::kLinear,   Op::kConv2d,     Op::kDepthwise, Op::kRequantize,
                               Op::kQuantize, Op::kDequantize, Op::kAdd,       Op::kSub,
                               Op::kMul,      Op::kMaxPool,    Op::kRescale,   Op::kTable,
                               Op::kSoftmax};
  for (const Convention& convention : conventions::XnnpackConventions()) {
    std::vector<Op> all = shared;
    if (convention.name == "xnnpack@fp32")
      all.insert(all.end(), {Op::kAvgPool, Op::kGlobalAvgPool});
    std::ranges::sort(all);
    std::vector<Op> ops = convention.ops;
    std::ranges::sort(ops);
    EXPECT_EQ(ops, all) << convention.name;
  }
}

// s4 weights: 16 times 2^27 wraps to the lowest int32. Those of s2, and LiteRT's own kernels, have
// all of an int32.
TEST(XnnpackTest, SumsOfS4WeightsHave28Bits) {
  const auto answer = [](std::string_view name, DType w, int32_t bias) {
    Case c;
    c.M = c.N = 1;
    c.K = 2;
    c.x = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{1, 3});
    c.w = Tensor(w, {1, 2});
    c.w.SetInt(0, 1);
    c.w.SetInt(1, -2);
    c.bias_i32 = {bias};
    c.out_dtype = DType::kS8;
    OpenClamp(&c);
    EXPECT_EQ(Validate(c), "");
    EXPECT_EQ(Get(name).cannot_run(c), "");
    return Get(name).run(c).y.IntAt(0);
  };
  constexpr int32_t kFirst = (1 << 27) + 5;  // -5 is the sum of products
  for (const char* name : {"xnnpack2026@avx2", "xnnpack2026@avx512"}) {
    EXPECT_EQ(answer(name, DType::kS4, kFirst), -128) << name;
    EXPECT_EQ(answer(name, DType::kS4, kFirst - 1), 127) << name;
    EXPECT_EQ(answer(name, DType::kS4, -7), -12) << name;
    EXPECT_EQ(answer(name, DType::kS2, kFirst), 127) << name;
  }
  for (const char* name : {"tflite@builtin", "tflite@reference"})
    EXPECT_EQ(answer(name, DType::kS4, kFirst), 127) << name;
}

}  // namespace
}  // namespace qualm
