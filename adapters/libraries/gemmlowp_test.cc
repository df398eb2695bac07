// SPDX-License-Identifier: Apache-2.0
// gemmlowp as this build found it, without SIMD and for SSE4.1. TFLite's own recordings
// (corpus/golden/gemmlowp_tflite.jsonl, double rounding) are its arithmetic too: s8 tensors moved
// to u8 by 128 have the same sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"
#include "core/io/golden.h"
#include "core/status.h"

namespace qualm {
namespace {

class Gemmlowp : public testing::Test {
 protected:
  void SetUp() override {
    RegisterLibraries();
    if (FindModule("qualm_gemmlowp.so").empty())
      GTEST_SKIP() << "this build has no gemmlowp: install libgemmlowp-dev (x86-64 only)";
    plain_ = SubjectRegistry::Get().Make("gemmlowp");
    try {
      simd_ = SubjectRegistry::Get().Make("gemmlowp@sse4");
    } catch (const Unavailable& error) {
      GTEST_LOG_(WARNING) << "not checked here: " << error.what();
    }
  }

  std::vector<Subject*> Both() const {
    std::vector<Subject*> both{plain_.get()};
    if (simd_) both.push_back(simd_.get());
    return both;
  }

  std::unique_ptr<Subject> plain_, simd_;
};

Tensor MovedByHalf(std::vector<int64_t> shape, const std::vector<int64_t>& codes) {
  Tensor tensor(DType::kU8, std::move(shape));
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.SetInt(i, static_cast<int32_t>(codes.at(static_cast<size_t>(i)) + 128));
  return tensor;
}

void ExpectCodes(Subject& subject, const Case& c, const std::vector<int64_t>& want) {
  ASSERT_EQ(Validate(c), "");
  const Outcome outcome = subject.Run(c, {});
  ASSERT_TRUE(outcome.ok()) << subject.name() << ": " << outcome.detail;
  ASSERT_EQ(outcome.y.size(), static_cast<int64_t>(want.size()));
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(outcome.y.IntAt(static_cast<int64_t>(i)), want[i])
        << subject.name() << " " << Describe(c) << " at " << i;
  }
}

TEST_F(Gemmlowp, RepeatsFullyConnectedOfTflite) {
  int count = 0;
  ForEachGoldenRecord(QUALM_CORPUS_DIR "/golden/gemmlowp_tflite.jsonl", [&](const GoldenRecord& r) {
    if (r.op != "tflite_fully_connected" || !r.backend.starts_with("tflite-double")) return;
    Case c;
    c.M = r.Int("M");
    c.N = r.Int("N");
    c.K = r.Int("K");
    c.x = MovedByHalf({c.M, c.K}, r.Ints("x"));
    c.w = MovedByHalf({c.N, c.K}, r.Ints("w"));
    c.x_q = {.scale = {r.Float("x_scale")},
             .zero_point = {static_cast<int32_t>(r.Int("x_zp")) + 128}};
    c.w_q = {.scale = {r.Float("w_scale")}, .zero_point = {128}};
    c.out_q = {.scale = {r.Float("out_scale")},
               .zero_point = {static_cast<int32_t>(r.Int("out_zp")) + 128}};
    c.out_min = static_cast<int32_t>(r.Int("act_min")) + 128;
    c.bias_i32.emplace();
    for (const int64_t bias : r.Ints("bias_i32")) c.bias_i32->push_back(static_cast<int32_t>(bias));
    std::vector<int64_t> want = r.Ints("y");
    for (int64_t& y : want) y += 128;
    SCOPED_TRACE(r.where);
    for (Subject* subject : Both()) ExpectCodes(*subject, c, want);
    ++count;
  });
  EXPECT_EQ(count, 25);
}

// gemmlowp's own RoundingDivideByPOT, recorded for exponents up to 31: a requantize by 2^-e halves
// first, which rounds no even number. The recorded int32 results are clamped to codes.
TEST_F(Gemmlowp, RepeatsItsRoundingShifts) {
  int count = 0;
  ForEachGoldenRecord(QUALM_CORPUS_DIR "/golden/gemmlowp_tflite.jsonl", [&](const GoldenRecord& r) {
    if (r.op != "gemmlowp_rounding_divide_by_pot" || r.Int("exponent") < 1) return;
    std::vector<int32_t> even;
    std::vector<int64_t> want;
    const std::vector<int64_t> x = r.Ints("x"), y = r.Ints("y");
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] % 2 != 0) continue;
      even.push_back(static_cast<int32_t>(x[i]));
      want.push_back(std::clamp<int64_t>(y.at(i) + 128, 0, 255));
    }
    Case c;
    c.op = Op::kRequantize;
    c.M = 1;
    c.N = static_cast<int64_t>(even.size());
    c.x = Tensor::Of<int32_t>({1, c.N}, even);
    c.multiplier = {std::ldexp(1.0f, -static_cast<int>(r.Int("exponent")))};
    c.out_q.zero_point = {128};
    SCOPED_TRACE(r.where);
    for (Subject* subject : Both()) ExpectCodes(*subject, c, want);
    ++count;
  });
  EXPECT_GE(count, 15);
}

// A left shift by one, of 2^30 to 2^31: scalar code saturates, which the right end of the clamp
// shows; in blocks of four it wraps to the other end. Of 5 outputs the last is left over.
TEST_F(Gemmlowp, LeftShiftsThatOverflowDependOnTheBlock) {
  Case c;
  c.op = Op::kRequantize;
  c.M = 1;
  c.N = 5;
  c.x = Tensor::Of<int32_t>({1, 5}, std::vector<int32_t>(5, 1 << 30));
  c.multiplier = {1.5f};
  ExpectCodes(*plain_, c, {255, 255, 255, 255, 255});
  if (simd_) ExpectCodes(*simd_, c, {0, 0, 0, 0, 255});
}

TEST_F(Gemmlowp, SumsBeforeZeroPointsAreThoseOfTheProducts) {
  Case c;
  c.M = 5;
  c.N = 13;
  c.K = 70;
  c.x = Tensor::Of<uint8_t>({5, 70}, std::vector<uint8_t>(350, 255));
  c.w = Tensor::Of<uint8_t>({13, 70}, std::vector<uint8_t>(910, 254));
  c.x_q.zero_point = {255};
  c.w_q.zero_point = {3};
  c.out_dtype = DType::kS32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  RunContext context;
  context.want_acc = true;
  context.end_at_guard = true;
  for (Subject* subject : Both()) {
    const Outcome outcome = subject->Run(c, context);
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    ASSERT_TRUE(outcome.acc.has_value());
    for (int64_t i = 0; i < outcome.y.size(); ++i) {
      EXPECT_EQ(outcome.acc->IntAt(i), 70 * 255 * 254) << subject->name();
      EXPECT_EQ(outcome.y.IntAt(i), 0) << subject->name();
    }
  }
}

TEST_F(Gemmlowp, WhatItCannotDoIsSkippedWithTheReason) {
  Case c;
  c.op = Op::kRequantize;
  c.M = 1;
  c.N = 2;
  c.x = Tensor(DType::kS32, {1, 2});
  c.multiplier = {0x1p30f};
  EXPECT_EQ(plain_->Run(c, {}).detail, "gemmlowp shifts left by 30 bits at most");
  c.multiplier = {1, 1};
  c.per_channel = true;
  EXPECT_TRUE(plain_->Run(c, {}).ok());
  if (simd_) {
    EXPECT_EQ(simd_->Run(c, {}).detail, "gemmlowp has no multiplier per channel with SSE4.1");
  }
  EXPECT_THROW(SubjectRegistry::Get().Make("gemmlowp@avx2"), InputError);
}

}  // namespace
}  // namespace qualm
