// SPDX-License-Identifier: Apache-2.0
#include "triage/recorded.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/text_test_util.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "triage/identify.h"

namespace qualm::triage {
namespace {

// Real results 6.25, 0.25 and 63.75 in steps of the output.
Case ThreeOutputs() {
  Case c;
  c.M = 3;
  c.N = 1;
  c.K = 1;
  c.x = Tensor::Of<uint8_t>({3, 1}, std::vector<uint8_t>{25, 1, 255});
  c.w = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{1});
  c.x_q.scale = {0.5f};
  c.out_q.scale = {2};
  return c;
}

TEST(Split, ThePartsAddUp) {
  const Case c = ThreeOutputs();
  // 6.25, 0.25, 63.75 steps; exact codes 6, 0, 64; the answer is 3 codes off at one of them.
  const Tensor y = Tensor::Of<uint8_t>({3, 1}, std::vector<uint8_t>{6, 3, 64});
  const auto split = SplitError(c, y);
  ASSERT_TRUE(split);
  EXPECT_FALSE(split->has_reference);
  EXPECT_EQ(split->operands.worst, 0);
  EXPECT_EQ(split->rounding.worst, 0.25);
  EXPECT_EQ(split->rounding.rms, 0.25);
  EXPECT_EQ(split->kernel.worst, 3);
  EXPECT_DOUBLE_EQ(split->kernel.rms, std::sqrt(3.0));
  EXPECT_EQ(split->total.worst, 2.75);
  EXPECT_EQ(split->departing, 1);
  EXPECT_EQ(split->outputs, 3);

  // A float model that gave 12 where these codes stand for 12.5: 0.25 steps, in the same direction
  // as the rounding.
  const Tensor reference = Tensor::Of<float>({3}, std::vector<float>{12, 0.5f, 127.5f});
  const auto given = SplitError(c, y, &reference);
  ASSERT_TRUE(given);
  EXPECT_TRUE(given->has_reference);
  EXPECT_EQ(given->operands.worst, 0.25);
  EXPECT_EQ(given->rounding.worst, 0.25);
  EXPECT_EQ(given->kernel.worst, 3);
  EXPECT_EQ(given->quantization.worst, 0.25);
}

// As people measure layers of models: against the reals 12.5, 0.5, 127.5 the answer is 12, 6, 128.
TEST(Split, SignalToNoiseAndCosine) {
  const Case c = ThreeOutputs();
  const Tensor y = Tensor::Of<uint8_t>({3, 1}, std::vector<uint8_t>{6, 3, 64});
  const auto split = SplitError(c, y);
  ASSERT_TRUE(split);
  const double real = 12.5 * 12.5 + 0.5 * 0.5 + 127.5 * 127.5;
  const double given = 12 * 12 + 6 * 6 + 128 * 128, noise = 0.5 * 0.5 + 5.5 * 5.5 + 0.5 * 0.5;
  EXPECT_NEAR(split->sqnr_db(), 10 * std::log10(real / noise), 1e-12);
  const double product = 12.5 * 12 + 0.5 * 6 + 127.5 * 128;
  EXPECT_NEAR(split->cosine(), product / std::sqrt(real * given), 1e-12);

  Case same = c;
  same.x = Tensor::Of<uint8_t>({3, 1}, std::vector<uint8_t>{4, 8, 12});
  EXPECT_EQ(SplitError(same, exact::Evaluate(same))->sqnr_db(), HUGE_VAL) << "no error";
  same.x = Tensor(DType::kU8, {3, 1});
  EXPECT_TRUE(std::isnan(SplitError(same, exact::Evaluate(same))->cosine())) << "all zero";
  EXPECT_EQ(SplitError(same, exact::Evaluate(same))->sqnr_db(), HUGE_VAL);
  EXPECT_EQ(SplitError(same, y)->sqnr_db(), -HUGE_VAL);
}

// Batches of a product are one case each.
TEST(Split, SeveralCasesAsOne) {
  const Case c = ThreeOutputs();
  const Tensor y = Tensor::Of<uint8_t>({3, 1}, std::vector<uint8_t>{6, 3, 64});
  Case first = c, rest = c;
  first.M = 1;
  first.x = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{25});
  rest.M = 2;
  rest.x = Tensor::Of<uint8_t>({2, 1}, std::vector<uint8_t>{1, 255});
  const ErrorSplit all =
      Together({*SplitError(first, Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{6})),
                *SplitError(rest, Tensor::Of<uint8_t>({2, 1}, std::vector<uint8_t>{3, 64}))});
  const ErrorSplit whole = *SplitError(c, y);
  EXPECT_EQ(all.outputs, 3);
  EXPECT_EQ(all.departing, 1);
  EXPECT_EQ(all.kernel.worst, whole.kernel.worst);
  EXPECT_NEAR(all.kernel.rms, whole.kernel.rms, 1e-12);
  EXPECT_NEAR(all.quantization.rms, whole.quantization.rms, 1e-12);
  EXPECT_NEAR(all.sqnr_db(), whole.sqnr_db(), 1e-12);
  EXPECT_NEAR(all.cosine(), whole.cosine(), 1e-12);
}

// The clamp's loss belongs to a range that is too small; it is no error of the kernel.
TEST(Split, TheClampIsNoKernelError) {
  Case c = ThreeOutputs();
  c.out_max = 60;
  const Tensor y = exact::Evaluate(c);
  const auto split = SplitError(c, y);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->kernel.worst, 0);
  EXPECT_EQ(split->rounding.worst, 3.75);
}

// Operations without a float32 output give their real value as a fraction.
TEST(Split, OperandsToo) {
  Case c = CaseOver(Op::kAdd, Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{3, 4}), DType::kU8);
  c.w = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{2, 2});
  c.out_q.scale = {2};
  const auto split = SplitError(c, exact::Evaluate(c));
  ASSERT_TRUE(split);
  EXPECT_EQ(split->rounding.worst, 0.5);
  EXPECT_EQ(split->kernel.worst, 0);
  const Case reals =
      CaseOver(Op::kDequantize, Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{3}), DType::kF32);
  EXPECT_FALSE(SplitError(reals, exact::Evaluate(reals)));
}

TEST(Split, AReferenceOfAnotherSizeIsRefused) {
  const Case c = ThreeOutputs();
  const Tensor y = exact::Evaluate(c);
  const Tensor two = Tensor::Of<float>({2}, std::vector<float>{1, 2});
  const Tensor endless = Tensor::Of<float>({3}, std::vector<float>{1, 2, INFINITY});
  const Tensor codes = Tensor::Of<uint8_t>({3}, std::vector<uint8_t>{1, 2, 3});
  for (const Tensor* reference : {&two, &endless, &codes})
    EXPECT_THROW(SplitError(c, y, reference), InputError);
}

// An error is measured from the real value of the output, whatever the case does after its sums.
TEST(Split, MeasuresFromTheRealValueOfASum) {
  Case c = ThreeOutputs();
  // The zero point is no part of the error, the scale is its unit.
  c.out_q.zero_point = {10};
  const auto moved = SplitError(c, exact::Evaluate(c));
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->rounding.worst, 0.25);
  EXPECT_EQ(moved->total.worst, 0.25);
  // Nor is a relu: what is below 0 is 0 in the float model too.
  c.relu = true;
  c.w.SetInt(0, -1);
  const auto relu = SplitError(c, exact::Evaluate(c));
  ASSERT_TRUE(relu);
  EXPECT_EQ(relu->rounding.worst, 0);
  // The arithmetic of a library is an error of its kernel: 2^24 + 1 halves are no float32.
  Case mode = ThreeOutputs();
  mode.bias_i32 = {0};
  mode.requant = Requant::kFloat32;
  ASSERT_EQ(Validate(mode), "");
  const auto in_mode = SplitError(mode, exact::Evaluate(mode));
  ASSERT_TRUE(in_mode);
  EXPECT_EQ(in_mode->rounding.worst, 0.25);
}

TEST(Split, OfConvolutionsAndOfSignedCodes) {
  Case c;
  c.op = Op::kConv2d;
  c.N = 1;
  c.window = {.batch = 1, .in_h = 1, .in_w = 3, .in_c = 1};
  DeriveSizes(&c);
  c.x = Tensor::Of<uint8_t>({1, 1, 3, 1}, std::vector<uint8_t>{25, 1, 101});
  c.w = Tensor::Of<int8_t>({1, 1, 1, 1}, std::vector<int8_t>{1});
  c.x_q.scale = {0.5f};
  c.out_q.scale = {2};
  c.out_dtype = DType::kS8;
  OpenClamp(&c);
  ASSERT_EQ(Validate(c), "");
  const auto split = SplitError(c, exact::Evaluate(c));
  ASSERT_TRUE(split);
  EXPECT_EQ(split->rounding.worst, 0.25);
  EXPECT_EQ(split->outputs, 3);
}

Case Quantized(const std::vector<float>& values) {
  Case c =
      CaseOver(Op::kQuantize, Tensor::Of<float>({1, static_cast<int64_t>(values.size())}, values),
               DType::kU8);
  c.out_q.scale = {2};
  return c;
}

TEST(Split, OfRealsMeasuresFromThem) {
  Case c = Quantized({3, -2.5f});
  c.out_q.zero_point = {10};
  const auto split = SplitError(c, exact::Evaluate(c));  // 1.5 and -1.25 steps
  ASSERT_TRUE(split);
  EXPECT_EQ(split->rounding.worst, 0.5);
  c.relu = true;
  const auto relu = SplitError(c, exact::Evaluate(c));
  ASSERT_TRUE(relu);
  EXPECT_EQ(relu->rounding.worst, 0.5) << "what a relu takes is no loss";
  for (const float endless : {INFINITY, -INFINITY, NAN}) {
    const Case no_number = Quantized({3, endless});
    EXPECT_FALSE(SplitError(no_number, exact::Evaluate(no_number)));
  }
}

TEST(Split, OfOperandsTooTheReluIsNoLoss) {
  Case c = CaseOver(Op::kSub, Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{2, 7}), DType::kU8);
  c.w = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{9, 2});
  c.out_q = {{2}, {10}};
  const auto split = SplitError(c, exact::Evaluate(c));  // -3.5 and 2.5 steps
  ASSERT_TRUE(split);
  EXPECT_EQ(split->rounding.worst, 0.5);
  EXPECT_EQ(split->rounding.rms, 0.5);
  c.relu = true;
  const auto relu = SplitError(c, exact::Evaluate(c));
  ASSERT_TRUE(relu);
  EXPECT_EQ(relu->rounding.worst, 0.5);
  EXPECT_EQ(relu->rounding.rms, std::sqrt(0.125)) << "0 is exact";
}

// Without a scale of its own, or without a number behind it, an output has no error in steps.
TEST(Split, IsNotMadeWhereThereIsNoRealValueOrNoStep) {
  const auto codes = [](std::vector<uint8_t> list) {
    const auto count = static_cast<int64_t>(list.size());
    return Tensor::Of<uint8_t>({1, count}, list);
  };
  Case softmax = CaseOver(Op::kSoftmax, codes({1, 2, 3}), DType::kU8);
  softmax.out_q = FixedOutQParams(DType::kU8);
  ASSERT_EQ(Validate(softmax), "");
  EXPECT_FALSE(SplitError(softmax, exact::Evaluate(softmax)));
  Case sigmoid = CaseOver(Op::kTable, codes({1, 2, 3}), DType::kU8);
  sigmoid.function = Function::kSigmoid;
  ASSERT_EQ(Validate(sigmoid), "");
  EXPECT_FALSE(SplitError(sigmoid, exact::Evaluate(sigmoid))) << "no fraction";
  Case reals = ThreeOutputs();
  reals.out_dtype = DType::kF32;
  OpenClamp(&reals);
  ASSERT_EQ(Validate(reals), "");
  EXPECT_FALSE(SplitError(reals, exact::Evaluate(reals)));
  Case sums = ThreeOutputs();
  sums.out_dtype = DType::kS32;
  OpenClamp(&sums);
  EXPECT_FALSE(SplitError(sums, exact::Evaluate(sums)));
  Case none = ThreeOutputs();
  none.M = 0;
  none.x = Tensor(DType::kU8, {0, 1});
  ASSERT_EQ(Validate(none), "");
  EXPECT_FALSE(SplitError(none, exact::Evaluate(none)));
  const Case c = ThreeOutputs();
  EXPECT_FALSE(SplitError(c, Tensor(DType::kU8, {2, 1}))) << "an answer of another size";
  EXPECT_FALSE(SplitError(c, Tensor(DType::kU8, {4, 1})));
}

TEST(Split, AReferenceIsFiniteInEveryElement) {
  const Tensor good = Tensor::Of<float>({2}, std::vector<float>{1, 2});
  EXPECT_NO_THROW(RequireReference(good, 2));
  for (size_t bad = 0; bad < 2; ++bad) {
    Tensor endless = good;
    endless.as<float>()[bad] = INFINITY;
    EXPECT_EQ(Refusal([&] { RequireReference(endless, 2); }),
              "reference: element " + std::to_string(bad) + " is not finite, expected a number");
  }
}

TEST(Recorded, IsExactSomebodysOrNobodys) {
  Case c = ThreeOutputs();
  c.M = 1;
  c.K = 2;
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{129, 132});
  c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{127, 127});
  c.x_q.scale = {1};
  c.out_q.scale = {256};
  EXPECT_TRUE(JudgeRecorded(c, exact::Evaluate(c)).exact());
  const RecordedAnswer saturated = JudgeRecorded(c, FindConvention("fbgemm@avx2")->run(c).y);
  EXPECT_EQ(saturated.departing, 1);
  EXPECT_EQ(saturated.worst_lsb, 1);
  EXPECT_NE(saturated.arithmetic.find("fbgemm@avx2"), std::string::npos);
  EXPECT_FALSE(saturated.is_wrong());
  const RecordedAnswer changed =
      JudgeRecorded(c, Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{77}));
  EXPECT_TRUE(changed.is_wrong());
  EXPECT_EQ(changed.arithmetic, "");
}

TEST(Recorded, CountsWhatIsNotExact) {
  const Case c = ThreeOutputs();
  const Tensor exact = exact::Evaluate(c);  // 6, 0, 64
  const RecordedAnswer right = JudgeRecorded(c, exact);
  EXPECT_EQ(right.outputs, 3);
  EXPECT_EQ(right.departing, 0);
  EXPECT_FALSE(right.first);
  EXPECT_EQ(right.arithmetic, "") << "exact is nobody's departure";
  const RecordedAnswer wrong =
      JudgeRecorded(c, Tensor::Of<uint8_t>({3, 1}, std::vector<uint8_t>{6, 2, 59}));
  EXPECT_EQ(wrong.outputs, 3);
  EXPECT_EQ(wrong.departing, 2);
  EXPECT_EQ(wrong.worst_lsb, 5);
  ASSERT_TRUE(wrong.first);
  EXPECT_EQ(wrong.first->index, 1);
  EXPECT_FALSE(wrong.undefined);
  EXPECT_TRUE(wrong.is_wrong());
}

// 1 + 1 + 2^24 is 2^24 + 2, or 2^24 where the bias comes first, and 100.5 codes lie between them.
TEST(Recorded, AnOrderOfAdditionsIsLeftOpen) {
  Case c;
  c.op = Op::kLinear;
  c.M = c.N = 1;
  c.K = 2;
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{1, 1});
  c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{1, 1});
  c.bias = {0x1p24f};
  c.out_q.scale = {(0x1p24f + 1) / 100.5f};
  ASSERT_EQ(Validate(c), "");
  for (const auto& [code, gives] : {std::pair{99, false}, {100, true}, {101, true}, {102, false}}) {
    const Tensor y = Tensor::Of<uint8_t>({1, 1}, std::vector{static_cast<uint8_t>(code)});
    const std::vector<std::string> names = BitEqual(c, y, AllConventionsAndExact());
    EXPECT_EQ(std::ranges::find(names, "torch-decomposed") != names.end(), gives) << code;
  }
}

// Where no convention computes such a case, nobody can say that the answer is nobody's.
TEST(Recorded, WhatNoConventionDefinesIsNotWrong) {
  Case c =
      CaseOver(Op::kRescale, Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{3, 9}), DType::kU8);
  c.relu = true;
  c.out_max = 200;
  Tensor y = exact::Evaluate(c);
  y.SetInt(1, y.IntAt(1) ^ 1);
  const RecordedAnswer answer = JudgeRecorded(c, y);
  EXPECT_EQ(answer.departing, 1);
  EXPECT_TRUE(answer.undefined);
  EXPECT_FALSE(answer.is_wrong());
}

// 2^24 + 1 + 1 is 2^24 + 2, or 2^24 from left to right; no order gives 2^24 + 16.
TEST(Recorded, SumsThatNoConventionDefinesAreJudgedByTheContractOfTheFile) {
  Case c;
  c.op = Op::kLinear;
  c.M = c.N = 1;
  c.K = 3;
  c.x = Tensor::Of<float>({1, 3}, std::vector<float>{0x1p24f, 1, 1});
  c.w = Tensor::Of<int8_t>({1, 3}, std::vector<int8_t>{1, 1, 1});
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  ASSERT_EQ(Validate(c), "");
  const auto judged = [&](float y) {
    return JudgeRecorded(c, Tensor::Of<float>({1, 1}, std::vector<float>{y}));
  };
  EXPECT_FALSE(judged(0x1p24f + 16).is_wrong()) << "without a contract nobody can say";
  c.contract = "sum";
  EXPECT_TRUE(judged(0x1p24f + 2).exact());
  EXPECT_EQ(judged(0x1p24f).is_sums, true);
  EXPECT_FALSE(judged(0x1p24f).is_wrong());
  EXPECT_EQ(judged(0x1p24f + 16).is_sums, false);
  EXPECT_TRUE(judged(0x1p24f + 16).is_wrong());
}

}  // namespace
}  // namespace qualm::triage
