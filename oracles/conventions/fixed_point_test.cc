// SPDX-License-Identifier: Apache-2.0
// gemmlowp, ruy and TFLite, which scale sums by an integer and a shift: where a left shift wraps,
// and which multipliers are refused.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/conventions/convention.h"
#include "oracles/conventions/test_util.h"

namespace qualm {
namespace {

// M by N sums of 128*128 = 2^14, unit scales, an output of u8.
Case Sums(int64_t M, int64_t N) {
  Case c;
  c.op = Op::kLinear;
  c.M = M;
  c.N = N;
  c.K = 1;
  c.x = Tensor::Of<uint8_t>({M, 1}, std::vector<uint8_t>(static_cast<size_t>(M), 128));
  c.w = Tensor::Of<uint8_t>({N, 1}, std::vector<uint8_t>(static_cast<size_t>(N), 128));
  EXPECT_EQ(Validate(c), "");
  return c;
}

// The same sums as the input of a requantize.
Case Requantize(int64_t M, int64_t N) {
  Tensor sums(DType::kS32, {M, N});
  Fill(sums, 1 << 14);
  Case c = CaseOver(Op::kRequantize, std::move(sums), DType::kU8);
  EXPECT_EQ(Validate(c), "");
  return c;
}

std::string Reason(std::string_view convention, const Case& c) {
  EXPECT_EQ(Validate(c), "");
  return Get(convention).cannot_run(c);
}

// One digit for each output: 0 where the shift wrapped, 1 where it saturated.
std::vector<std::string> Saturated(std::string_view convention, Case c) {
  c.x_q.scale = {0x1p16f};
  EXPECT_EQ(Reason(convention, c), "");
  const Tensor y = Get(convention).run(c).y;
  std::vector<std::string> rows(static_cast<size_t>(c.M));
  for (int64_t i = 0; i < y.size(); ++i) {
    const int32_t code = y.IntAt(i);
    EXPECT_TRUE(code == 0 || code == 255) << code;
    rows[static_cast<size_t>(i / c.N)] += code == 0 ? '0' : '1';
  }
  return rows;
}

// Every sum is 2^14, the multiplier 2^16 is half of 2^17, and 2^14 shifted by 17 is 2^31.
//   wraps: -2^31, its half is clamped to 0; in blocks of 4 rows, of 4 columns or both
//   saturates: 2^31 - 1, its half is clamped to 255; what is left over in both directions
// A requantize is a product for each row, so that no row is in a block.
TEST(FixedPoint, GemmlowpSaturatesWhatIsLeftOverFromBlocks) {
  using Rows = std::vector<std::string>;
  const Rows all(6, "11111");
  EXPECT_EQ(Saturated("gemmlowp", Sums(6, 5)), all);
  EXPECT_EQ(Saturated("gemmlowp", Requantize(6, 5)), all);
  EXPECT_EQ(Saturated("gemmlowp@sse4", Sums(6, 5)),
            (Rows{"00000", "00000", "00000", "00000", "00001", "00001"}));
  EXPECT_EQ(Saturated("gemmlowp@sse4", Requantize(6, 5)), Rows(6, "00001"));
  EXPECT_EQ(Saturated("gemmlowp@sse4", Sums(4, 4)), Rows(4, "0000"));
  EXPECT_EQ(Saturated("gemmlowp@sse4", Sums(3, 2)), Rows(3, "11"));
  EXPECT_EQ(Saturated("ruy", Sums(6, 5)), Rows(6, "00000"));
}

// No multiplier is too large for outputs that are not scaled, and channels may have their own.
TEST(FixedPoint, SumsAreNotScaled) {
  Case c = Sums(1, 2);
  c.x_q.scale = {0x1p31f};
  for (const char* convention : {"gemmlowp", "gemmlowp@sse4", "ruy"}) {
    EXPECT_EQ(Reason(convention, c), "the multiplier is too large") << convention;
  }
  c.per_channel = true;
  c.w_q = {{1.0f, 2.0f}, {0, 0}};
  EXPECT_EQ(Reason("gemmlowp@sse4", c), "one multiplier for all channels");
  EXPECT_EQ(Reason("gemmlowp", c), "the multiplier is too large");
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  for (const char* convention : {"gemmlowp", "gemmlowp@sse4", "ruy"}) {
    ASSERT_EQ(Reason(convention, c), "") << convention;
    EXPECT_EQ(Get(convention).run(c).y,
              Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{1 << 14, 1 << 14}))
        << convention;
  }
}

// gemmlowp's pipeline has a stage that clamps, ruy's sums leave as they are.
TEST(FixedPoint, RuyDoesNotClampSums) {
  Case c = Sums(1, 1);
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  c.out_max = 100;
  EXPECT_EQ(Reason("ruy", c), "the clamp must be the whole range of the output type");
  ASSERT_EQ(Reason("gemmlowp", c), "");
  EXPECT_EQ(Get("gemmlowp").run(c).y.IntAt(0), 100);
}

// A multiplier of 2^31 is half of 2^32, a shift by 32, which tflite@double refuses. tflite@single
// takes the largest integer and a shift by 30 instead (QuantizeMultiplier).
TEST(FixedPoint, TfliteAsksTheMultiplierOfEachChannel) {
  const auto reason = [](std::string_view convention, float first, float second) {
    Case c;
    c.op = Op::kConv2d;
    c.N = 2;
    c.window.batch = c.window.in_h = c.window.in_w = c.window.in_c = 1;
    c.x = Tensor(DType::kS8, {1, 1, 1, 1});
    c.w = Tensor(DType::kS8, {2, 1, 1, 1});
    c.out_dtype = DType::kS8;
    OpenClamp(&c);
    c.per_channel = true;
    c.w_q = {{first, second}, {0, 0}};
    DeriveSizes(&c);
    return Reason(convention, c);
  };
  EXPECT_EQ(reason("tflite@double", 1.0f, 0x1p30f), "");
  EXPECT_EQ(reason("tflite@double", 1.0f, 0x1p31f), "the multiplier is too large");
  EXPECT_EQ(reason("tflite@double", 0x1p31f, 1.0f), "the multiplier is too large");
  EXPECT_EQ(reason("tflite@single", 1.0f, 0x1p31f), "");
}

// One code through hard-swish.
Case HardSwish(int32_t code, QParams x_q, QParams out_q, DType dtype = DType::kU8) {
  Tensor x(dtype, {1, 1});
  x.SetInt(0, code);
  Case c = CaseOver(Op::kTable, std::move(x), dtype);
  c.function = Function::kHardSwish;
  c.x_q = std::move(x_q);
  c.out_q = std::move(out_q);
  EXPECT_EQ(Validate(c), "");
  return c;
}

int32_t HardSwishOf(const Case& c) {
  for (const char* name : {"tflite@double", "tflite@single"}) EXPECT_EQ(Reason(name, c), "");
  const Tensor y = Get("tflite@double").run(c).y;
  EXPECT_EQ(y, Get("tflite@single").run(c).y);
  EXPECT_EQ(Get("tflite@double").trace(c, 0).back().value, std::to_string(y.IntAt(0)));
  return y.IntAt(0);
}

// 23 * 0.13308 is 40.5027 steps of the output; 2944 * 28852 / 2^15 is 2592, of which 32767 / 2^15
// are 2591: 40.48 after the shift by 6 (tensorflow issue 40781).
TEST(FixedPoint, HardSwishHas16Bits) {
  const Case c = HardSwish(128, {{0x1.108ddcp-3f}, {105}}, {{0x1.358bf8p-4f}, {5}});
  EXPECT_EQ(HardSwishOf(c), 45);
  std::vector<std::string> values;
  for (const TraceStep& step : Get("tflite@double").trace(c, 0)) values.push_back(step.value);
  EXPECT_EQ(values, (std::vector<std::string>{"2944", "2592", "32767", "2591", "40", "45", "45"}));
  // -2 * 1 / 6 in units of 1/64 is -21.33; -1 is one of -21.33 too; -3 and less are 0.
  for (const auto& [code, y] : {std::pair{-2, -21}, {-1, -21}, {-3, 0}, {-100, 0}, {0, 0}})
    EXPECT_EQ(HardSwishOf(HardSwish(code, {{1}, {0}}, {{0x1p-6f}, {0}}, DType::kS8)), y) << code;
}

TEST(FixedPoint, HardSwishWrapsIn16Bits) {
  const Case c = HardSwish(255, {{1}, {0}}, {{0x1.0002p-7f}, {255}});
  EXPECT_EQ(HardSwishOf(c), 0);  // 32638 + 255 is beyond int16
  EXPECT_EQ(HardSwishOf(HardSwish(254, c.x_q, c.out_q)), 255);
}

TEST(FixedPoint, HardSwishRefusesScalesWithoutA16BitMultiplier) {
  const auto reason = [](float x_scale, float out_scale) {
    return Reason("tflite@double", HardSwish(1, {{x_scale}, {0}}, {{out_scale}, {0}}));
  };
  EXPECT_EQ(reason(1, 0x1p-7f), "the output scale must be above 1/128 of the input's");
  EXPECT_EQ(reason(1, 0x1.0002p-7f), "");
  EXPECT_EQ(reason(1, 0x1.002p9f), "the output scale is too large");
  EXPECT_EQ(reason(1, 0x1p9f), "");
  EXPECT_EQ(reason(0x1p-23f, 0x1p-23f), "the input scale is too small or large");
  EXPECT_EQ(reason(0x1p-22f, 0x1p-22f), "");
  EXPECT_EQ(reason(0x1p-149f, 0x1p-149f), "the input scale is too small or large");
  EXPECT_EQ(reason(0x1p-40f, 0x1p-40f), "the input scale is too small or large");
  EXPECT_EQ(reason(1, 0x1p40f), "the output scale is too large");
  EXPECT_EQ(reason(0x1p24f, 0x1p24f), "the input scale is too small or large");
  EXPECT_EQ(reason(0x1p23f, 0x1p23f), "");
  Case c = HardSwish(1, {{1}, {0}}, {{1}, {0}});
  c.function = Function::kTanh;
  EXPECT_EQ(Reason("tflite@double", c), "this convention has no such table");
}

}  // namespace
}  // namespace qualm
