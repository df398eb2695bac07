// SPDX-License-Identifier: Apache-2.0
// XNNPACK as this build found it: it repeats its recordings (corpus/golden/xnnpack.jsonl, made with
// that of 2022), and its peculiarities, found by drawing cases, stay as they were understood.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"
#include "core/io/golden.h"
#include "core/status.h"

namespace qualm {
namespace {

class Xnnpack : public testing::Test {
 protected:
  void SetUp() override {
    RegisterLibraries();
    try {
      subject_ = SubjectRegistry::Get().Make("xnnpack");
    } catch (const Unavailable& error) {
      GTEST_SKIP() << error.what();
    }
    of_2024_ = subject_->Version().ends_with("of 2024");
  }

  void ExpectCodes(const Case& c, const std::vector<int32_t>& want) {
    ASSERT_EQ(Validate(c), "");
    const Outcome outcome = subject_->Run(c, {});
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    ASSERT_EQ(outcome.y.size(), static_cast<int64_t>(want.size()));
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(outcome.y.IntAt(static_cast<int64_t>(i)), want[i]) << Describe(c) << " at " << i;
  }
  void ExpectRefused(const Case& c, const std::string& reason) {
    ASSERT_EQ(Validate(c), "");
    const Outcome outcome = subject_->Run(c, {});
    EXPECT_EQ(outcome.status, RunStatus::kSkipped);
    EXPECT_EQ(outcome.detail, reason);
  }

  std::unique_ptr<Subject> subject_;
  bool of_2024_ = false;
};

Tensor Codes(DType dtype, std::vector<int64_t> shape, const std::vector<int64_t>& codes) {
  Tensor tensor(dtype, std::move(shape));
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.SetInt(i, static_cast<int32_t>(codes.at(static_cast<size_t>(i))));
  return tensor;
}

void SetOutput(Case& c, DType dtype) {
  c.out_dtype = dtype;
  c.out_min = RangeOf(dtype).min;
  c.out_max = RangeOf(dtype).max;
}

QParams Params(float scale, int64_t zero_point) {
  return {.scale = {scale}, .zero_point = {static_cast<int32_t>(zero_point)}};
}

// A u8 image of one channel.
Case Image(Op op, int64_t h, int64_t w, int64_t kernel_h, int64_t kernel_w) {
  Case c;
  c.op = op;
  c.window.batch = 1;
  c.window.in_h = h;
  c.window.in_w = w;
  c.window.in_c = 1;
  c.window.kernel_h = kernel_h;
  c.window.kernel_w = kernel_w;
  c.x = Tensor(DType::kU8, {1, h, w, 1});
  DeriveSizes(&c);
  return c;
}

TEST_F(Xnnpack, RepeatsItsRecordings) {
  const std::string here =
      subject_->InstructionSet() == "neon" ? "aarch64-neon-qemu" : "x86-avx512-autodetect";
  int count = 0;
  ForEachGoldenRecord(QUALM_CORPUS_DIR "/golden/xnnpack.jsonl", [&](const GoldenRecord& r) {
    if (r.isa != here || HasFatalFailure()) return;
    const DType dtype = r.Text("dtype") == "qu8" ? DType::kU8 : DType::kS8;
    Case c;
    SetOutput(c, dtype);
    if (r.op == "fully_connected") {
      c.op = Op::kLinear;
      c.M = r.Int("M");
      c.N = r.Int("N");
      c.K = r.Int("K");
      c.x = Codes(dtype, {c.M, c.K}, r.Ints("x"));
      c.w = Codes(dtype, {c.N, c.K}, r.Ints("w"));
      c.x_q = Params(r.Float("x_scale"), r.Int("x_zp"));
      c.w_q = Params(r.Float("w_scale"), r.Int("w_zp"));
      c.out_q = Params(r.Float("out_scale"), r.Int("out_zp"));
      c.out_min = static_cast<int32_t>(r.Int("out_min"));
      c.out_max = static_cast<int32_t>(r.Int("out_max"));
      c.bias_i32.emplace();
      for (const int64_t bias : r.Ints("bias_i32"))
        c.bias_i32->push_back(static_cast<int32_t>(bias));
    } else if (r.op == "add") {
      c.op = Op::kAdd;
      c.M = 1;
      c.N = r.Int("n");
      c.x = Codes(dtype, {1, c.N}, r.Ints("a"));
      c.w = Codes(dtype, {1, c.N}, r.Ints("b"));
      c.x_q = Params(r.Float("a_scale"), r.Int("a_zp"));
      c.w_q = Params(r.Float("b_scale"), r.Int("b_zp"));
      c.out_q = Params(r.Float("out_scale"), r.Int("out_zp"));
    } else {
      ASSERT_EQ(r.op, "quantize") << r.where;
      c.op = Op::kQuantize;
      const std::vector<float> x = r.Floats("x");
      c.M = 1;
      c.N = static_cast<int64_t>(x.size());
      c.x = Tensor::Of<float>({1, c.N}, x);
      c.out_q = Params(r.Float("scale"), r.Int("zp"));
    }
    SCOPED_TRACE(r.where);
    std::vector<int32_t> want;
    for (const int64_t y : r.Ints("y")) want.push_back(static_cast<int32_t>(y));
    ExpectCodes(c, want);
    ++count;
  });
  EXPECT_EQ(count, 134);
}

// Operators run with denormals flushed: x * fl(1/scale) is -inf * 0 = NaN, which the upper clamp
// turns into the largest code.
TEST_F(Xnnpack, ADenormalReciprocalIsZero) {
  Case c;
  c.op = Op::kQuantize;
  c.M = 1;
  c.N = 3;
  c.x = Tensor::Of<float>(
      {1, 3}, std::vector<float>{-std::numeric_limits<float>::infinity(), -0x1p+127f, 0x1p+127f});
  c.out_q = Params(0x1p+127f, 10);
  ExpectCodes(c, {255, 10, 10});
  c.out_q = Params(0x1p+125f, 10);
  ExpectCodes(c, {0, 6, 14});
}

// Sum / 2 with ties: a window that is the whole image rounds to even, others in 2022 away from
// zero.
TEST_F(Xnnpack, AveragesOfTheWholeImageRoundAnotherWay) {
  if (subject_->InstructionSet() == "neon")
    GTEST_SKIP() << "the averages of NEON have one rounding";
  Case c = Image(Op::kAvgPool, 1, 2, 1, 2);
  c.x = Codes(DType::kU8, {1, 1, 2, 1}, {2, 3});
  ExpectCodes(c, {2});
  c = Image(Op::kAvgPool, 1, 3, 1, 2);
  c.x = Codes(DType::kU8, {1, 1, 3, 1}, {2, 3, 4});
  ExpectCodes(c, {of_2024_ ? 2 : 3, 4});
}

// One code, codes of one type: 0.498 is 127.488 256ths, and half is rounded up.
TEST_F(Xnnpack, CodesAreRescaledIn256ths) {
  if (!of_2024_) GTEST_SKIP() << "XNNPACK of 2022 does not rescale codes";
  Case c = CaseOver(Op::kRescale, Codes(DType::kU8, {1, 3}, {200, 1, 255}), DType::kU8);
  c.x_q = Params(0.498f, 0);
  ExpectCodes(c, {99, 0, 127});
  c.x_q = Params(0.5f, 0);
  ExpectCodes(c, {100, 1, 128});
  c.x_q = Params(0x1p-9f, 0);
  ExpectRefused(c, "XNNPACK's scale of x over that of the output lies in [2^-8, 2^7]");
  // Of the other type: in float32, and half goes away from zero.
  SetOutput(c, DType::kS8);
  c.x_q = Params(0.498f, 0);
  ExpectCodes(c, {100, 0, 127});
  c.x_q = Params(0.5f, 0);
  c.out_q = Params(1.0f, -5);
  ExpectCodes(c, {95, -5, 123});
  SetOutput(c, DType::kU8);
  c.out_max = 200;
  ExpectRefused(c, "XNNPACK rescales codes or clamps them");
  c.out_q = c.x_q;
  ExpectCodes(c, {200, 1, 200});
}

// src/indirection.c: along an axis without dilation, neighbouring windows share their pointers, so
// the first window's pointer to the padding becomes the pixel that the last window would read.
TEST_F(Xnnpack, DilatedMaxPoolsThatReadOtherPixelsAreRefused) {
  Case c = Image(Op::kMaxPool, 1, 2, 1, 3);
  c.window.pad_left = 2;
  DeriveSizes(&c);
  c.x = Codes(DType::kU8, {1, 1, 2, 1}, {0, 1});
  ExpectCodes(c, {0, 1});
  c.window.dilation_h = 2;  // a single row: no difference
  ExpectRefused(c, "XNNPACK's dilated max pool reads a pixel outside the window with this padding");

  c = Image(Op::kMaxPool, 1, 5, 1, 2);
  c.window.dilation_w = 2;
  c.window.pad_left = c.window.pad_right = 1;
  DeriveSizes(&c);
  c.x = Codes(DType::kU8, {1, 1, 5, 1}, {1, 2, 3, 4, 5});
  ExpectCodes(c, {2, 3, 4, 5, 4});
}

// src/indirection.c: three lines of windows, of which two are kept as those with padding above and
// two as those with padding below. In 2024 the second gets the pixels of the third.
TEST_F(Xnnpack, AveragesThatReadOtherLinesAreRefused) {
  Case c = Image(Op::kAvgPool, 1, 1, 3, 1);
  c.window.stride_h = 2;
  c.window.pad_top = c.window.pad_bottom = 3;
  c.window.count_include_pad = true;
  DeriveSizes(&c);
  c.x = Codes(DType::kU8, {1, 1, 1, 1}, {90});
  if (of_2024_) {
    ExpectRefused(c, "XNNPACK's average reads the pixels of another line with this padding");
  } else {
    ExpectCodes(c, {0, 30, 0});
  }
  c.window.pad_top = c.window.pad_bottom = 1;
  DeriveSizes(&c);
  ExpectCodes(c, {30});
}

TEST_F(Xnnpack, ASoftmaxWhoseSumWrapsToZeroIsRefused) {
  Case c;
  c.op = Op::kSoftmax;
  c.M = 1;
  c.N = 1024;
  c.x = Tensor(DType::kU8, {1, c.N});
  c.out_q = Params(0x1p-8f, 0);
  ExpectRefused(c, "XNNPACK's softmax divides by a sum that has wrapped to 0");
  c.N = 4;
  c.x = Codes(DType::kU8, {1, 4}, {7, 7, 7, 7});
  ExpectCodes(c, {64, 64, 64, 64});
}

// The kernels read up to 16 bytes past a row; these bytes never matter.
TEST_F(Xnnpack, EveryShapeKeepsToItsBuffers) {
  for (const DType dtype : {DType::kU8, DType::kS8}) {
    for (const int64_t m : {1, 2, 5}) {
      for (const int64_t k : {1, 7, 8, 9, 31, 33}) {
        Case c;
        c.op = Op::kLinear;
        c.M = m;
        c.N = 19;
        c.K = k;
        SetOutput(c, dtype);
        c.x = Tensor(dtype, {m, k});
        c.w = Tensor(dtype, {c.N, k});
        for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, 3);
        for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, 1);
        for (const int64_t gap : {0, 5}) {
          RunContext context;
          context.end_at_guard = true;
          context.align_offset = 1;
          context.x_row_gap = context.y_row_gap = gap;
          const Outcome outcome = subject_->Run(c, context);
          ASSERT_TRUE(outcome.ok()) << Describe(c) << ": " << outcome.detail;
          for (int64_t i = 0; i < outcome.y.size(); ++i)
            ASSERT_EQ(outcome.y.IntAt(i), 3 * k) << Describe(c);
        }
      }
    }
  }
}

TEST_F(Xnnpack, WhatItCannotDoIsSkippedWithTheReason) {
  Case c;
  c.op = Op::kAdd;
  c.M = 1;
  c.N = 1;
  c.x = Codes(DType::kU8, {1, 1}, {3});
  c.w = Codes(DType::kU8, {1, 1}, {4});
  ExpectCodes(c, {7});
  c.x_q = Params(0x1p+8f, 0);
  ExpectRefused(c, of_2024_ ? "XNNPACK's scales of operands over that of the output lie in "
                              "[2^-10, 2^8)"
                            : "XNNPACK refuses (xnn_create_add_nd: unsupported parameter)");
  c.x_q = Params(1, 0);
  SetOutput(c, DType::kS8);
  ExpectRefused(c, "XNNPACK's operands and output have one type");
  SetOutput(c, DType::kU8);
  c.out_min = c.out_max = 3;
  if (of_2024_) {
    EXPECT_EQ(subject_->CannotRun(c),
              "XNNPACK does not offer clamp other than the range of the output type");
  } else {
    ExpectRefused(c, "XNNPACK's clamp leaves two codes or more");
  }
  OpenClamp(&c);
  c.x_q = Params(1, 256);
  EXPECT_EQ(subject_->CannotRun(c),
            "XNNPACK does not offer x: zero point 256 is outside -128 to 255");
  EXPECT_THROW(SubjectRegistry::Get().Make("xnnpack@avx2"), InputError);
}

}  // namespace
}  // namespace qualm
