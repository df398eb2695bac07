// SPDX-License-Identifier: Apache-2.0
#include "triage/recorded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/status.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"

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

}  // namespace
}  // namespace qualm::triage
