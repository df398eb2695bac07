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

}  // namespace
}  // namespace qualm
