// SPDX-License-Identifier: Apache-2.0
// oneDNN's choice of kernels, worked out by hand: the smallest case on each side of a bound, where
// the kernels of both sides differ in bits.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/case.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/onednn2.h"
#include "oracles/conventions/test_util.h"

namespace qualm {
namespace {

// x and w constant, unit scales, an s32 output.
Case Linear(int64_t M, int64_t N, int64_t K, int32_t x, int32_t w, DType x_dtype = DType::kU8) {
  Case c;
  c.op = Op::kLinear;
  c.M = M;
  c.N = N;
  c.K = K;
  c.x = Tensor(x_dtype, {M, K});
  c.w = Tensor(DType::kS8, {N, K});
  Fill(c.x, x);
  Fill(c.w, w);
  c = Into(c, DType::kS32);
  EXPECT_EQ(Validate(c), "");
  return c;
}

Case Conv(int64_t side, int64_t in_c, int64_t out_c, int64_t kernel, int64_t groups, int32_t x,
          int32_t w, DType x_dtype = DType::kU8) {
  return Into(ConstantConv(side, side, in_c, out_c, kernel, groups, x, w, x_dtype), DType::kS32);
}

int32_t First(const Convention& convention, const Case& c) {
  EXPECT_EQ(Validate(c), "");
  EXPECT_EQ(convention.cannot_run(c), "");
  return convention.run(c).y.IntAt(0);
}
int32_t First(std::string_view convention, const Case& c) { return First(Get(convention), c); }

// Whether a step of output 0 whose text holds `words` departs from the exact value.
bool IsLossy(std::string_view convention, const Case& c, std::string_view words) {
  for (const TraceStep& step : Get(convention).trace(c, 0)) {
    if (step.text.find(words) != std::string::npos) return step.lossy;
  }
  ADD_FAILURE() << "no step says " << words;
  return false;
}
bool Says(std::string_view convention, const Case& c, std::string_view words) {
  for (const TraceStep& step : Get(convention).trace(c, 0)) {
    if (step.text.find(words) != std::string::npos) return true;
  }
  return false;
}

// gemm_x8s8s32x_matmul.cpp sums u8 codes as char: 128 is the first that counts as negative.
TEST(OneDnn2, CodesSummedAsSignedBytes) {
  Case c = Linear(1, 1, 1, 127, 1);
  c.w_q.zero_point = {300};  // no code, so that the gemm does not take it out
  EXPECT_EQ(First("onednn2@avx2", c), 127 - 300 * 127);
  Fill(c.x, 128);
  EXPECT_EQ(First("onednn2@avx2", c), 128 + 300 * 128);
}

// The reference gemm ends in float32: 125*127 * 1101 = 17478375 is odd, and above 2^24.
TEST(OneDnn2, TheReferenceGemmRounds) {
  Case c = Linear(1, 1, 1101, 127, 127, DType::kS8);
  c.x_q.zero_point = {2};
  EXPECT_EQ(First("onednn2@avx2", c), 17478376);
  EXPECT_TRUE(IsLossy("onednn2@avx2", c, "saturated to int32 and rounded to float32"));
}

// brgemm takes zero points out exactly, then goes through float32 to s32: 255*125 * 531 = 16925625.
TEST(OneDnn2, BrgemmRoundsSumsThatItCorrects) {
  Case c = Linear(1, 1, 531, 255, 127);
  EXPECT_EQ(First("onednn2@vnni", c), 255 * 127 * 531) << "nothing to correct";
  c.w_q.zero_point = {2};
  EXPECT_EQ(First("onednn2@vnni", c), 16925624);
  c = Linear(1, 1, 531, 255, 125);
  c.x_q.zero_point = {0};
  EXPECT_EQ(First("onednn2@vnni", c), 16925625);
  // The gemm of other instruction sets has no such step, nor has the linear that never takes
  // brgemm.
  c = Linear(1, 1, 531, 255, 127);
  c.w_q.zero_point = {2};
  for (const char* isa : {"vnni", "amx"}) {
    const Convention gemm = conventions::OneDnn2GemmLinear(*conventions::FindOneDnnIsa(isa), 1.0f);
    EXPECT_EQ(First(gemm, c), 16925625) << isa;
  }
}

// Tiles multiply s8 by s8; VNNI shifts s8 by 128, which leaves a correction: 127*127 * 1101 =
// 17758029.
TEST(OneDnn2, TilesNeedNoShift) {
  const Case c = Linear(1, 257, 1101, 127, 127, DType::kS8);
  EXPECT_EQ(First("onednn2@vnni", c), 17758028);
  EXPECT_EQ(First("onednn2@amx", c), 17758029);
  EXPECT_TRUE(Says("onednn2@amx", c, "AMX tiles"));
  EXPECT_EQ(First("onednn2@amx", Linear(1, 256, 1101, 127, 127, DType::kS8)), 17758028)
      << "32 rows and 256 outputs are small";
}

// 65281 * 257 = 2^24 + 1: the offset is rounded, the addition to 0 is not.
TEST(OneDnn2, TilesRoundTheOffset) {
  Case c = Linear(1, 257, 17, 0, 0);
  for (const int64_t k : {0, 1}) c.w.SetInt(k, 127);
  c.w.SetInt(2, 3);
  c.x_q.zero_point = {65281};
  EXPECT_EQ(First("onednn2@amx", c), -16777216);
  EXPECT_TRUE(IsLossy("onednn2@amx", c, "zero point of x * sum(w)"));
  c.x_q.zero_point = {65280};
  EXPECT_EQ(First("onednn2@amx", c), -65280 * 257);
  EXPECT_FALSE(IsLossy("onednn2@amx", c, "zero point of x * sum(w)"));
}

// One column and several rows go to a gemv, which cuts K nowhere; one row goes to the gemm, which
// cuts K = 770 at 385: codes 384 and 385 are a pair of the gemv alone.
TEST(OneDnn2, OneColumnIsAGemv) {
  for (const int64_t M : {1, 2}) {
    Case c = Linear(M, 1, 770, 0, 0);
    for (const int64_t k : {384, 385}) {
      c.x.SetInt(k, 255);
      c.w.SetInt(k, 127);
    }
    EXPECT_EQ(First("onednn2@avx512core", c), M == 1 ? 2 * 255 * 127 : 32767) << M;
  }
}

// The im2col of avx512core for groups that fill no block uses the gemm too, and its cut.
TEST(OneDnn2, TheGemmOfAConvolutionCutsK) {
  Case c = Conv(1, 2 * 770, 2, 1, 2, 0, 0);
  for (const int64_t k : {384, 385}) {
    c.x.SetInt(k, 255);
    c.w.SetInt(k, 127);
  }
  EXPECT_EQ(Acc("onednn2@avx512core", c), 2 * 255 * 127);
  for (const int64_t k : {384, 385}) c.x.SetInt(k, 0);
  for (const int64_t k : {386, 387}) {
    c.x.SetInt(k, 255);
    c.w.SetInt(k, 127);
  }
  EXPECT_EQ(Acc("onednn2@avx512core", c), 2 * 255 * 127) << "pairs start at 385";
}

// Kernels for 1x1 take the zero point out in float32: 255*127 * 576 - 255 = 18653505 is rounded to
// 18653504, then minus 576*127 - 1 = 73151 to 18580352. Others do so in int32 and round once, which
// leaves 18580354.
TEST(OneDnn2, OneByOneRoundsBeforeTheZeroPoint) {
  Case c = Conv(3, 64, 1, 3, 1, 255, 127);
  c.w.SetInt(0, 126);
  c.x_q.zero_point = {1};
  EXPECT_EQ(First("onednn2@avx2vnni", c), 18580354);
  c = Conv(1, 576, 1, 1, 1, 255, 127);
  c.w.SetInt(0, 126);
  c.x_q.zero_point = {1};
  EXPECT_EQ(First("onednn2@avx2vnni", c), 18580352);
  // With padding on any side the general kernel computes them.
  for (int64_t Window::* const pad :
       {&Window::pad_top, &Window::pad_bottom, &Window::pad_left, &Window::pad_right}) {
    c.window.*pad = 1;
    DeriveSizes(&c);
    const bool before = pad == &Window::pad_top || pad == &Window::pad_left;
    EXPECT_EQ(Get("onednn2@avx2vnni").run(c).y.IntAt(before ? 1 : 0), 18580354);
    c.window.*pad = 0;
  }
}

// The reorder loses what takes zero points out for 8 taps of a depthwise kernel alone: with two
// channels in each group there is none.
TEST(OneDnn2, CompensationIsLostForDepthwiseAlone) {
  for (const int64_t per_group : {1, 2}) {
    Case c = Conv(4, 8 * per_group, 8 * per_group, 1, 8, 1, 1);
    c.window.kernel_h = 2;
    c.window.kernel_w = 4;
    c.w = Tensor(DType::kS8, {8 * per_group, 2, 4, per_group});
    Fill(c.w, 1);
    c.x_q.zero_point = {1};
    DeriveSizes(&c);
    EXPECT_EQ(First("onednn2@avx2", c), per_group == 1 ? 8 : 0) << per_group;
  }
}

// Where weights are halved the multiplier is doubled first, then halved: 2^127 becomes infinite,
// and 0 times infinity NaN, which saturates to 0 and hides the zero point.
TEST(OneDnn2, HalvedWeightsDoubleTheMultiplier) {
  Case c = Conv(1, 4, 4, 1, 1, 0, 1, DType::kS8);
  c = Into(c, DType::kU8);
  c.x_q.scale = c.w_q.scale = {0x1p60f};
  c.out_q = {{0x1p-7f}, {5}};
  EXPECT_EQ(First("onednn2@avx2", c), 0);
  EXPECT_EQ(First("onednn2@vnni", c), 5);
  c.out_q.scale = {0x1p-6f};
  EXPECT_EQ(First("onednn2@avx2", c), 5) << "2^126 stays finite";
}

// The bias is halved, which loses a bit of 2^-149, and doubled.
TEST(OneDnn2, HalvedWeightsHalveTheBias) {
  Case c = Conv(1, 4, 4, 1, 1, 0, 1, DType::kS8);
  c = Into(c, DType::kF32);
  c.bias.emplace(4, 0x1p-149f);
  const auto first = [&](const char* convention) {
    EXPECT_EQ(Validate(c), "");
    return Get(convention).run(c).y.FloatAt(0);
  };
  EXPECT_EQ(first("onednn2@avx2"), 0.0f);
  EXPECT_EQ(first("onednn2@vnni"), 0x1p-149f);
  c.bias->front() = 0x1p-148f;
  EXPECT_EQ(first("onednn2@avx2"), 0x1p-148f);
}

// add scales both operands to output units; of mul one operand alone carries the output's scale.
TEST(OneDnn2, OperandsAreScaledFirst) {
  Case c;
  c.op = Op::kAdd;
  c.M = c.N = 1;
  c.x = c.w = Tensor(DType::kU8, {1, 1});
  c.x.SetInt(0, 10);
  c.w.SetInt(0, 20);
  c.x_q.scale = {0.5f};
  c.w_q.scale = {0.25f};
  c.out_q.scale = {0.5f};
  EXPECT_EQ(First("onednn2@avx2", c), 20);  // 10 * 1 + 20 * 0.5
  EXPECT_FALSE(IsLossy("onednn2@avx2", c, "times fl(sa/sy)"));
  c.op = Op::kMul;
  EXPECT_EQ(First("onednn2@avx2", c), 50);  // 10 * 1 * 20 * 0.25
  // 3 * fl(1/3) is 1 after rounding. Either operand's rounding counts, though their sum has none.
  c.op = Op::kAdd;
  c.x.SetInt(0, 3);
  c.w.SetInt(0, 0);
  c.x_q.scale = c.w_q.scale = {1.0f};
  c.out_q.scale = {3.0f};
  EXPECT_EQ(First("onednn2@avx2", c), 1);
  EXPECT_TRUE(IsLossy("onednn2@avx2", c, "times fl(sa/sy)"));
  c.x.SetInt(0, 0);
  c.w.SetInt(0, 3);
  EXPECT_TRUE(IsLossy("onednn2@avx2", c, "times fl(sa/sy)"));
}

// An average pool of 4x4 codes of 16 channels, zero points 0, padding counted.
Case Pool() {
  Case c;
  c.op = Op::kAvgPool;
  Window& v = c.window;
  v.batch = 1;
  v.in_h = v.in_w = 4;
  v.in_c = c.N = 16;
  v.kernel_h = v.kernel_w = 2;
  v.count_include_pad = true;
  c.x = Tensor(DType::kU8, {1, 4, 4, 16});
  DeriveSizes(&c);
  return c;
}

// The kernel of pools refuses windows that lie wholly in the padding, on each of the four sides;
// the reference divides where the kernel multiplies.
TEST(OneDnn2, PoolsWithWindowsInThePadding) {
  for (int64_t Window::* const pad :
       {&Window::pad_top, &Window::pad_bottom, &Window::pad_left, &Window::pad_right}) {
    for (const int64_t width : {0, 1, 2, 3}) {
      Case c = Pool();
      c.window.*pad = width;
      DeriveSizes(&c);
      ASSERT_EQ(Validate(c), "");
      ASSERT_EQ(Get("onednn2@avx2").cannot_run(c), "");
      EXPECT_EQ(Says("onednn2@avx2", c, "times fl(1/"), width < 2) << width;
      EXPECT_EQ(Says("onednn2@avx2", c, "over "), width >= 2) << width;
    }
  }
  // With a stride of 2 the last window ends where the input does, until 2 more columns fit one.
  Case c = Pool();
  c.window.stride_w = 2;
  c.window.pad_right = 1;
  DeriveSizes(&c);
  EXPECT_TRUE(Says("onednn2@avx2", c, "times fl(1/"));
  c.window.pad_right = 2;
  DeriveSizes(&c);
  EXPECT_FALSE(Says("onednn2@avx2", c, "times fl(1/"));
}

// Counted padding counts as code 0, which is real 0 for a zero point of 0 alone. A maximum counts
// nothing.
TEST(OneDnn2, CountedPaddingIsCodeZero) {
  Case c = Pool();
  c.x_q.zero_point = c.out_q.zero_point = {3};
  EXPECT_EQ(Get("onednn2@avx2").cannot_run(c), "padding counts as code 0");
  c.window.count_include_pad = false;
  EXPECT_EQ(Get("onednn2@avx2").cannot_run(c), "");
  c.op = Op::kMaxPool;
  EXPECT_EQ(Get("onednn2@avx2").cannot_run(c), "");
}

}  // namespace
}  // namespace qualm
