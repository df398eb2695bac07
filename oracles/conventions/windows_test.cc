// SPDX-License-Identifier: Apache-2.0
// Convolutions of the conventions, worked out by hand: which taps share a pair, how a tap in the
// padding counts, which kernel computes which case.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/rng.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/test_util.h"
#include "oracles/exact/exact.h"

namespace qualm {
namespace {

void Pad(Case& c, int64_t pad) {
  c.window.pad_top = c.window.pad_bottom = c.window.pad_left = c.window.pad_right = pad;
  DeriveSizes(&c);
}

TEST(ConvConventionsTest, FbgemmPairsRunAcrossTaps) {
  // 3x3 taps of one channel: four saturated pairs, the ninth alone.
  const Case c = ConstantConv(3, 3, 1, 1, 3, 1, 255, 127);
  EXPECT_EQ(Acc("fbgemm@avx2", c), 4 * 32767 + 32385);
  EXPECT_EQ(Acc("fbgemm@avx512", c), 4 * 32767 + 32385);
  EXPECT_EQ(Acc("fbgemm@vnni", c), 9 * 32385);
  EXPECT_EQ(Acc("onnxruntime@sse41", c), 9 * 32385);
  EXPECT_EQ(Acc("qnnpack", c), 9 * 32385);
  // oneDNN pairs the channels of a tap: with one channel there is no pair.
  EXPECT_EQ(Acc("onednn2@avx2", c), 9 * 32385);
  const Case two = ConstantConv(1, 1, 2, 1, 1, 1, 255, 127);
  const Case three = ConstantConv(2, 2, 3, 1, 2, 1, 255, 127);
  for (const char* convention :
       {"onednn2@sse41", "onednn2@avx2", "onednn2@avx512core", "onednn3@avx2"}) {
    EXPECT_EQ(Acc(convention, two), 32767) << convention;
    EXPECT_EQ(Acc(convention, three), 4 * (32767 + 32385)) << convention;
  }
  EXPECT_EQ(Acc("fbgemm@avx2", three), 6 * 32767);
  EXPECT_EQ(Acc("onednn2@vnni", three), 12 * 32385);
}

// Seen on oneDNN 2.6.3: without VNNI s8 activations meet weights that are halved, and the bias is
// halved with them. 3 * 2^-149 becomes 2 * 2^-149, which is doubled.
TEST(ConvConventionsTest, OneDnnHalvesTheBiasToo) {
  const auto with_bias = [](const char* convention, float bias, int64_t groups = 1) {
    Case c = ConstantConv(1, 1, 2 * groups, groups, 1, groups, 0, 0, DType::kS8);
    c.out_dtype = DType::kF32;
    c.out_min = RangeOf(DType::kF32).min;
    c.out_max = RangeOf(DType::kF32).max;
    c.bias = std::vector<float>(static_cast<size_t>(groups), bias);
    EXPECT_EQ(Get(convention).cannot_run(c), "") << convention;
    return Get(convention).run(c).y.FloatAt(0);
  };
  for (const char* convention : {"onednn2@sse41", "onednn2@avx2", "onednn2@avx512core"}) {
    EXPECT_EQ(with_bias(convention, 0x1p-149f), 0) << convention;
    EXPECT_EQ(with_bias(convention, 0x1.8p-148f), 0x1p-147f) << convention;
    EXPECT_EQ(with_bias(convention, 0x1p-148f), 0x1p-148f) << convention;
  }
  // The gemm adds the bias to the doubled sum.
  EXPECT_EQ(with_bias("onednn2@avx512core", 0x1p-149f, 2), 0x1p-149f);
  EXPECT_EQ(with_bias("onednn2@vnni", 0x1p-149f), 0x1p-149f);
  EXPECT_EQ(with_bias("onednn2@vnni", 0x1.8p-148f), 0x1.8p-148f);
}

// Only codes have a zero point: what a case says beside a float or s32 output changes nothing.
TEST(ConvConventionsTest, OutputsThatAreNoCodesHaveNoZeroPoint) {
  std::map<DType, int> compared;
  for (const Convention& convention : AllConventions()) {
    for (const DType out_dtype : {DType::kF32, DType::kS32}) {
      for (const int64_t groups : {1, 2, 4}) {
        for (const Op op : {Op::kConv2d, Op::kDepthwise}) {
          for (const int64_t kernel : {1, 2}) {
            Case c = ConstantConv(3, 3, 4, 8, kernel, groups, 7, 3);
            c.op = op;
            c.out_dtype = out_dtype;
            c.out_min = RangeOf(out_dtype).min;
            c.out_max = RangeOf(out_dtype).max;
            if (!Validate(c).empty() || !convention.cannot_run(c).empty()) continue;
            const Tensor y = convention.run(c).y;
            c.out_q.zero_point = {77};
            if (!convention.cannot_run(c).empty()) continue;
            EXPECT_EQ(convention.run(c).y, y) << convention.name << " groups " << groups;
            ++compared[out_dtype];
          }
        }
      }
    }
  }
  EXPECT_GT(compared[DType::kF32], 20);
  EXPECT_GT(compared[DType::kS32], 20);
}

TEST(ConvConventionsTest, PaddingIsTheZeroPointOrNothing) {
  // The corner pixel sees four taps, (1,1), (1,2), (2,1), (2,2): 4, 5, 7 and 8 in flat order. 4 and
  // 5 are a pair; 7 is paired with 6, and 8 is the odd end.
  Case c = ConstantConv(2, 2, 1, 1, 3, 1, 255, 127);
  Pad(c, 1);
  EXPECT_EQ(Acc("fbgemm@avx2", c), 32767 + 2 * 32385);
  EXPECT_EQ(Acc("fbgemm@vnni", c), 4 * 32385);
  c.x_q.zero_point = {255};
  EXPECT_EQ(Acc("fbgemm@avx2", c), 4 * 32767 + 32385);
  EXPECT_EQ(Acc("fbgemm@vnni", c), 9 * 32385);
  EXPECT_EQ(Acc("qnnpack", c), 4 * 32385);
  EXPECT_EQ(Acc("onednn2@avx2", c), 4 * 32385);
  // Without the zero point every output is 0, except where a pair saturated.
  EXPECT_EQ(Get("fbgemm@vnni").run(c).y.IntAt(0), 0);
  EXPECT_EQ(Get("qnnpack").run(c).y.IntAt(0), 0);
  // Zero points that are no codes enter the im2col buffer as bytes.
  c.x_q.zero_point = {256 + 7};
  EXPECT_EQ(Acc("fbgemm@vnni", c), 4 * 32385 + 5 * 7 * 127);
}

TEST(ConvConventionsTest, FbgemmDepthwiseSaturatesUnderVnniToo) {
  Case c = ConstantConv(3, 3, 8, 8, 3, 8, 255, 127);
  Pad(c, 1);
  c.op = Op::kDepthwise;
  const int64_t centre = 4 * 8;
  EXPECT_EQ(Acc("fbgemm@vnni", c, centre), 4 * 32767 + 32385);
  EXPECT_EQ(Acc("fbgemm@avx2", c, centre), 4 * 32767 + 32385);
  // A case that the depthwise kernel does not take goes to im2col.
  const auto exact = [&](const Case& other) {
    EXPECT_EQ(Acc("fbgemm@vnni", other, other.M / 2 * other.N), 9 * 32385);
  };
  exact(ConstantConv(3, 3, 8, 8, 3, 8, 255, 127));  // no padding
  Case six = ConstantConv(3, 3, 6, 6, 3, 6, 255, 127);
  Pad(six, 1);
  exact(six);
  Case strided = ConstantConv(9, 9, 8, 8, 3, 8, 255, 127);
  Pad(strided, 1);
  strided.window.stride_h = 3;
  DeriveSizes(&strided);
  exact(strided);
  Case three_fold = ConstantConv(3, 3, 8, 24, 3, 8, 255, 127);
  Pad(three_fold, 1);
  exact(three_fold);
  Case two_fold = ConstantConv(3, 3, 8, 16, 3, 8, 255, 127);
  Pad(two_fold, 1);
  EXPECT_EQ(Acc("fbgemm@vnni", two_fold, 4 * 16), 4 * 32767 + 32385);
  // Elsewhere depthwise is exact.
  for (const char* convention : {"onednn2@avx2", "onednn2@avx512core", "onnxruntime@avx2"}) {
    EXPECT_EQ(Acc(convention, c, centre), 9 * 32385) << convention;
  }
}

// PyTorch's wheel of 2.13 decided this case, with FBGEMM_ENABLE_INSTRUCTIONS=AVX2 beside VNNI.
TEST(ConvConventionsTest, FbgemmHeldToAvx2AddsExactlyInItsGroupwiseKernel) {
  const auto centre = [](std::string_view convention, int64_t groups, int64_t stride) {
    Case c = ConstantConv(1, 1, 4 * groups, 4 * groups, 3, groups, 130, 127);
    Pad(c, 1);
    c.window.stride_h = c.window.stride_w = stride;
    return Acc(convention, c, 0);
  };
  EXPECT_EQ(centre("torch-fbgemm@avx2+held", 4, 2), 4 * 130 * 127);
  EXPECT_EQ(centre("torch-fbgemm@avx2", 4, 2), 2 * 32767);
  EXPECT_EQ(centre("torch-fbgemm@avx2+held", 4, 3), 2 * 32767);  // im2col
  EXPECT_EQ(centre("torch-fbgemm@avx2+held", 3, 1), 2 * 32767);  // four groups are a vector
}

// FBGEMM itself decided this case (GCC 12 -O3), which lies next to a tie; PyTorch's wheel fuses.
TEST(ConvConventionsTest, FbgemmDepthwiseKernelFusesItsBiasInTheWheelAlone) {
  const auto first = [](std::string_view convention, int64_t channels) {
    Case c = ConstantConv(1, 3, channels, channels, 3, channels, 0, 0);
    Pad(c, 1);
    c.op = Op::kDepthwise;
    for (int64_t column = 0; column < 3; ++column) c.x.SetInt(column * channels, 129);
    for (int64_t tap = 3; tap < 6; ++tap) c.w.SetInt(tap, -127);
    c.x_q = {{0x1.ec2f1cp-3f}, {128}};
    c.w_q = {{0x1.5fbfa2p-10f}, {-1}};
    c.out_q = {{0x1.7c66d4p-12f}, {13}};
    c.bias.emplace(static_cast<size_t>(channels));
    c.bias->front() = 0x1.e0b3fp-4f;
    EXPECT_EQ(Validate(c), "");
    EXPECT_EQ(Get(convention).cannot_run(c), "");
    return Get(convention).run(c).y.IntAt(0);
  };
  EXPECT_EQ(first("fbgemm@avx2", 8), 112);
  EXPECT_EQ(first("fbgemm@avx2+nofma", 8), 112);
  EXPECT_EQ(first("torch-fbgemm@avx2", 8), 113);
  EXPECT_EQ(first("fbgemm@avx2", 7), 113);  // im2col
  EXPECT_EQ(first("fbgemm@avx2+nofma", 7), 112);
}

TEST(ConvConventionsTest, OneDnnHalvesWeightsForSignedActivations) {
  Case c = ConstantConv(1, 1, 4, 4, 1, 1, 100, 3, DType::kS8);
  EXPECT_EQ(Acc("onednn2@avx2", c), 4 * 100 * 4);  // rne(1.5) * 2
  EXPECT_EQ(Acc("onednn2@sse41", c), 4 * 100 * 4);
  EXPECT_EQ(Acc("onednn2@vnni", c), 4 * 100 * 3);
  EXPECT_EQ(Acc("onednn2@avx2vnni", c), 4 * 100 * 3);
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, 5);
  EXPECT_EQ(Acc("onednn2@avx2", c), 4 * 100 * 4);  // rne(2.5) * 2
  // The zero point is subtracted with the halved weights too.
  c.x_q.zero_point = {100};
  EXPECT_EQ(Get("onednn2@avx2").run(c).y.IntAt(0), 0);
  bool told = false;
  for (const TraceStep& step : Get("onednn2@avx2").trace(c, 0)) {
    told = told || (step.lossy && step.text.find("halved") != std::string::npos);
  }
  EXPECT_TRUE(told);
}

TEST(ConvConventionsTest, OneDnnGroupsThatFitNoBlock) {
  // 3 channels per group: avx2 and sse41 have the reference, avx512core an im2col for its gemm.
  const Case c = ConstantConv(2, 1, 6, 6, 1, 2, 255, 127);
  EXPECT_EQ(Acc("onednn2@avx2", c), 3 * 32385);
  EXPECT_EQ(Acc("onednn2@sse41", c), 3 * 32385);
  EXPECT_EQ(Acc("onednn2@avx512core", c), 32767 + 32385);
  const Case tall = ConstantConv(2, 2, 6, 6, 2, 2, 255, 127);  // 12 terms, pairs across taps
  EXPECT_EQ(Acc("onednn2@avx512core", tall), 6 * 32767);
  // The gemm cuts a K above 384 in two: 405 at 203, whose last term is alone.
  const Case deep = ConstantConv(9, 9, 10, 10, 9, 2, 255, 127);
  EXPECT_EQ(Acc("onednn2@avx512core", deep), 101 * 32767 + 32385 + 101 * 32767);
  const Case fits = ConstantConv(1, 1, 8, 8, 1, 2, 255, 127);
  EXPECT_EQ(Acc("onednn2@avx2", fits), 2 * 32767);
}

// 8 groups by 8 taps: 8*1*1 stays where 8*(1-1) is meant, and each tap in the padding adds 1.
TEST(ConvConventionsTest, OneDnnLosesTheZeroPointOfTransposedWeights) {
  const auto y = [](std::string_view convention, int64_t groups, int64_t pad) {
    Case c = ConstantConv(2, 4, groups, groups, 1, groups, 1, 1);
    c.window.kernel_h = 2;
    c.window.kernel_w = 4;
    c.window.pad_top = pad;
    c.w = Tensor(DType::kS8, {groups, 2, 4, 1});
    for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, 1);
    c.x_q.zero_point = {1};
    DeriveSizes(&c);
    EXPECT_EQ(Validate(c), "");
    EXPECT_EQ(Get(convention).cannot_run(c), "");
    return Get(convention).run(c).y.IntAt(0);
  };
  for (const char* convention : {"onednn2@avx2", "onednn2@avx2vnni"}) {
    EXPECT_EQ(y(convention, 8, 0), 8) << convention;
    EXPECT_EQ(y(convention, 16, 0), 8) << convention;
    EXPECT_EQ(y(convention, 8, 1), 4 + 4) << convention;
    EXPECT_EQ(y(convention, 7, 0), 0) << convention;
  }
  for (const char* convention : {"onednn2@sse41", "onednn2@avx512core", "onednn2@vnni"})
    EXPECT_EQ(y(convention, 8, 0), 0) << convention;
  Case s8 = ConstantConv(2, 4, 8, 8, 1, 8, 1, 1, DType::kS8);
  EXPECT_EQ(Get("onednn2@avx2vnni").cannot_run(s8), "");
  s8.window.kernel_h = 2;
  s8.window.kernel_w = 4;
  s8.w = Tensor(DType::kS8, {8, 2, 4, 1});
  DeriveSizes(&s8);
  EXPECT_EQ(Get("onednn2@avx2vnni").cannot_run(s8),
            "of s8 activations the reorder loses the compensation of these weights");
}

// 1 - 16777217: the zero point rounds to 2^24 before it meets the sum, or not.
TEST(ConvConventionsTest, OneDnnTakesZeroPointsOutInFloat32WhereTheKernelIs1x1) {
  Case c = ConstantConv(1, 1, 1, 1, 1, 1, 1, 1);
  c.x_q.zero_point = {16777217};
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  for (const char* convention : {"onednn2@sse41", "onednn2@avx2", "onednn2@avx512core"})
    EXPECT_EQ(Get(convention).run(c).y.FloatAt(0), -16777215.0f) << convention;
  EXPECT_EQ(Get("onednn2@vnni").run(c).y.FloatAt(0), -16777216.0f);
  bool told = false;
  for (const TraceStep& step : Get("onednn2@avx2").trace(c, 0))
    told = told || (step.lossy && step.text.find("term by term in float32") != std::string::npos);
  EXPECT_TRUE(told);
  Pad(c, 1);  // another kernel
  EXPECT_EQ(Get("onednn2@avx2").run(c).y.FloatAt(4), -16777216.0f);
  // Halved weights are doubled after the sum has become a float32: no wrapping.
  Case s8 = ConstantConv(1, 1, 1, 1, 1, 1, 0, 2, DType::kS8);
  s8.x_q.zero_point = {INT32_MAX};
  s8.out_dtype = DType::kF32;
  s8.out_min = INT32_MIN;
  s8.out_max = INT32_MAX;
  Pad(s8, 1);
  EXPECT_EQ(Get("onednn2@avx2").run(s8).y.FloatAt(4), -0x1p+32f);
}

// An infinite multiplier times 0 is NaN: the reference makes it code 0 whatever the zero point.
TEST(ConvConventionsTest, OneDnnsReferenceTurnsNanIntoCode0) {
  Case c = ConstantConv(1, 1, 6, 6, 1, 2, 0, 0);
  c.x_q.scale = c.w_q.scale = {0x1p-127f};  // 1/scale overflows when multiplied
  c.out_q = {{1.0f}, {1}};
  c.bias = std::vector<float>(6, 0.0f);
  c.relu = true;
  EXPECT_EQ(Get("onednn2@avx2").run(c).y.IntAt(0), 0);
  EXPECT_EQ(Get("onednn2@sse41").run(c).y.IntAt(0), 0);
  EXPECT_EQ(Get("onednn2@avx512core").run(c).y.IntAt(0), 1);
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  c.out_q = {};
  EXPECT_TRUE(std::isnan(Get("onednn2@avx2").run(c).y.FloatAt(0)));
  EXPECT_EQ(Get("onednn2@avx512core").run(c).y.FloatAt(0), 0.0f);
}

TEST(PoolConventionsTest, OneDnnsPoolsHaveNoRelu) {
  for (const Op op : {Op::kMaxPool, Op::kAvgPool, Op::kGlobalAvgPool}) {
    Case c;
    c.op = op;
    c.window = {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 1, .kernel_h = 2, .kernel_w = 2};
    c.x = Tensor(DType::kU8, {1, 2, 2, 1});
    c.N = 1;
    DeriveSizes(&c);
    c.out_dtype = DType::kU8;
    c.out_min = 0;
    c.out_max = 255;
    ASSERT_EQ(Validate(c), "");
    EXPECT_EQ(Get("onednn2@avx2").cannot_run(c), "");
    c.relu = true;
    EXPECT_EQ(Get("onednn2@avx2").cannot_run(c), "a pool has no relu");
  }
}

// A sum times fl(1/count), or a sum over count: the two differ where the quotient is near a tie.
TEST(PoolConventionsTest, OneDnnMultipliesByTheReciprocalOrDivides) {
  const auto pool = [](Op op, int64_t height, int64_t width, int64_t channels) {
    Case c;
    c.op = op;
    c.window.batch = 1;
    c.window.in_h = c.window.kernel_h = height;
    c.window.in_w = c.window.kernel_w = width;
    c.window.in_c = channels;
    c.x = Tensor(DType::kU8, {1, height, width, channels});
    DeriveSizes(&c);
    return c;
  };
  // 41 codes, sum 41*k + 20.5 is no integer: look for a sum that the two round to different codes.
  int differ = 0;
  for (const int64_t count : {6, 10, 14, 22, 26, 38, 46, 50}) {
    for (int64_t sum = count / 2; sum < 40 * count; sum += count) {
      Case c = pool(Op::kAvgPool, 1, count, 16);
      for (int64_t i = 0; i < c.x.size(); ++i) {
        const int64_t pixel = i / 16;
        c.x.SetInt(i, static_cast<int32_t>(sum / count + (pixel < sum % count ? 1 : 0)));
      }
      ASSERT_EQ(Validate(c), "");
      const auto number = static_cast<float>(sum);
      const int32_t times =
          static_cast<int32_t>(std::nearbyint(number * (1.0f / static_cast<float>(count))));
      const int32_t over = static_cast<int32_t>(std::nearbyint(number / static_cast<float>(count)));
      differ += times != over ? 1 : 0;
      ASSERT_EQ(Get("onednn2@avx2").cannot_run(c), "");
      EXPECT_EQ(Get("onednn2@avx2").run(c).y.IntAt(0), times) << sum << "/" << count;
      // Too few codes for a register: the reference.
      Case few = pool(Op::kAvgPool, 1, count, 1);
      for (int64_t i = 0; i < count; ++i) few.x.SetInt(i, c.x.IntAt(i * 16));
      EXPECT_EQ(Get("onednn2@avx2").run(few).y.IntAt(0), over) << sum << "/" << count;
      EXPECT_EQ(Get("onednn2@vnni").run(few).y.IntAt(0), times) << sum << "/" << count;
    }
  }
  EXPECT_GT(differ, 0);
}

TEST(PoolConventionsTest, OneDnnPoolsCodes) {
  Case c;
  c.op = Op::kMaxPool;
  c.window.batch = c.window.in_h = 1;
  c.window.in_w = c.window.kernel_w = 3;
  c.window.in_c = 1;
  c.x = Tensor::Of<int8_t>({1, 1, 3, 1}, std::vector<int8_t>{-7, -3, -100});
  c.x_q.zero_point = c.out_q.zero_point = {5};
  c.out_dtype = DType::kS8;
  c.out_min = -128;
  c.out_max = 127;
  DeriveSizes(&c);
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(Get("onednn2@avx2").run(c).y.IntAt(0), -3);
  EXPECT_EQ(Get("onednn2@avx2").trace(c, 0).front().text, "largest of 3 pixels");
  c.op = Op::kAvgPool;
  EXPECT_EQ(Get("onednn2@avx2").run(c).y.IntAt(0), -37);  // -110/3
  c.out_q.scale = {2.0f};
  EXPECT_EQ(Get("onednn2@avx2").cannot_run(c),
            "a pool works on codes: input and output must share type and scale");
  c.out_q = c.x_q;
  c.window.pad_left = 1;
  c.window.count_include_pad = true;
  DeriveSizes(&c);
  EXPECT_EQ(Get("onednn2@avx2").cannot_run(c), "padding counts as code 0");
  c.x_q.zero_point = c.out_q.zero_point = {0};
  EXPECT_EQ(Get("onednn2@avx2").run(c).y.IntAt(0), -3);  // (0 - 7 - 3)/3
}

TEST(ConvConventionsTest, OnnxRuntimeTakesWeightsOfEitherType) {
  Case c = ConstantConv(3, 3, 2, 2, 3, 1, 255, 127);
  EXPECT_EQ(Acc("onnxruntime@avx2", c), 9 * 32767);
  EXPECT_EQ(Acc("onnxruntime@vnni", c), 18 * 32385);
  Tensor w(DType::kU8, c.w.shape());
  for (int64_t i = 0; i < w.size(); ++i) w.SetInt(i, 127);
  c.w = w;
  EXPECT_EQ(Acc("onnxruntime@avx2", c), 18 * 32385);
}

TEST(ConvConventionsTest, CasesOutsideAConventionAreRefusedWithAReason) {
  const auto reason = [](std::string_view convention, const Case& c) {
    EXPECT_EQ(Validate(c), "");
    return Get(convention).cannot_run(c);
  };
  Case c = ConstantConv(3, 3, 8, 8, 3, 8, 1, 1, DType::kS8);
  EXPECT_EQ(reason("fbgemm@avx2", c), "activations must be u8");
  EXPECT_EQ(reason("onednn2@avx2", c), "s8 activations of a depthwise convolution need VNNI");
  EXPECT_EQ(reason("onednn2@vnni", c), "");
  EXPECT_EQ(reason("tflite@double", c), "");
  c.w_q.zero_point = {1};
  EXPECT_EQ(reason("onednn2@vnni", c), "weight zero point must be 0");
  EXPECT_EQ(reason("tflite@double", c), "weight zero point must be 0");
  EXPECT_EQ(reason("onnxruntime@avx2", c), "");
  c = ConstantConv(3, 3, 1, 2, 3, 1, 1, 1);
  EXPECT_EQ(reason("fbgemm@avx2+acc16", c), "convolutions add in int32");
  c.per_channel = true;
  c.w_q = {{1.0f, 1.0f}, {0, 1}};
  EXPECT_EQ(reason("onnxruntime@avx2", c), "weight zero points must be equal");
  c.bias_i32 = std::vector<int32_t>{1, 2};
  EXPECT_EQ(reason("onnxruntime@avx2", c), "weight zero points must be equal");
  EXPECT_EQ(reason("fbgemm@vnni", c), "");
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  EXPECT_EQ(reason("fbgemm@vnni", c), "a convolution makes u8");
}

// With power-of-two scales and small sums no convention rounds before the end (tflite@double rounds
// twice): away from ties all that add exactly must give the exact answer.
TEST(ConvConventionsTest, ExactConventionsAgreeWithTheExactOracle) {
  Rng rng(11);
  std::map<std::string, int> compared;
  for (int round = 0; round < 400; ++round) {
    const bool u8 = rng.Chance(2, 3);
    const int64_t groups = rng.Chance(1, 2) ? 1 : rng.Between(2, 3);
    Case c = ConstantConv(rng.Between(2, 5), rng.Between(2, 5), groups * rng.Between(1, 3),
                          groups * rng.Between(1, 3), rng.Between(1, 2), groups, 0, 0,
                          u8 ? DType::kU8 : DType::kS8);
    Pad(c, rng.Between(0, 1));
    c.window.dilation_w = rng.Between(1, 2);
    c.window.stride_h = rng.Between(1, 2);
    DeriveSizes(&c);
    if (c.M == 0) continue;
    const CodeRange codes = RangeOf(c.x.dtype());
    for (int64_t i = 0; i < c.x.size(); ++i)
      c.x.SetInt(i, static_cast<int32_t>(rng.Between(codes.min, codes.max)));
    for (int64_t i = 0; i < c.w.size(); ++i)
      c.w.SetInt(i, static_cast<int32_t>(rng.Between(-128, 127)));
    c.x_q.zero_point = {static_cast<int32_t>(rng.Between(codes.min, codes.max))};
    c.out_q = {{0x1p+6f}, {static_cast<int32_t>(rng.Between(codes.min, codes.max))}};
    const Tensor exact = exact::Evaluate(c);
    const std::vector<__int128> sums = exact::CorrectedSums(c);
    for (const char* name : {"fbgemm@vnni", "qnnpack", "onednn2@vnni", "onednn2@avx2vnni",
                             "onednn3@vnni", "onnxruntime@vnni", "onnxruntime@sse41",
                             "tflite@single", "xnnpack@fp32", "xnnpack@rndnu"}) {
      const Convention& convention = Get(name);
      if (!convention.cannot_run(c).empty()) continue;
      const ConventionOutput output = convention.run(c);
      for (int64_t i = 0; i < exact.size(); ++i) {
        if (sums[static_cast<size_t>(i)] % 64 == 32 || sums[static_cast<size_t>(i)] % 64 == -32) {
          continue;  // a tie
        }
        ASSERT_EQ(output.y.IntAt(i), exact.IntAt(i)) << name;
      }
      ++compared[name];
    }
  }
  EXPECT_EQ(compared.size(), 10u);
}

}  // namespace
}  // namespace qualm
