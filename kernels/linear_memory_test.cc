// SPDX-License-Identifier: Apache-2.0
// The linear layer touches its outputs and its scratch and nothing else, and does not depend on
// other memory. Reads past x and the weights, and writes into gaps, are checked by RunProblem in
// every test of a linear layer.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/common/counted_new.h"
#include "kernels/linear.h"
#include "kernels/sums/linear_testing.h"
#include "kernels/targets.h"

namespace qualm::kernels {
namespace {

using testing::allocations;
using testing::Choices;
using testing::GuardedBytes;
using testing::PackProblem;
using testing::PlainOutputs;
using testing::Problem;
using testing::RunProblem;

// Panels of 32, 64 and 128 bit sums, row sums and a K tail: every part of the scratch is used.
Problem UsesAllScratch() {
  Choices choices(11);
  Problem p;
  p.m = 70;
  p.n = 140;
  p.k = 11;
  for (int64_t i = 0; i < p.m * p.k; ++i) {
    p.x.push_back(static_cast<int32_t>(choices.Between(0, 255)));
  }
  for (int64_t i = 0; i < p.n * p.k; ++i) {
    p.w.push_back(static_cast<int32_t>(choices.Between(-128, 127)));
  }
  p.x_zero = 1 << 30;
  p.w_zero.assign(140, 1);
  for (size_t j = 0; j < 140; ++j) {
    // The channels past 100 have weights equal to their zero point: their sums are 0.
    if (j >= 100) std::fill_n(p.w.begin() + static_cast<int64_t>(j) * p.k, p.k, 1);
    if (j < 30) p.w_zero[j] = INT32_MIN;
  }
  p.y_type = ElementType::kF32;
  return p;
}

std::vector<int32_t> Bits(const std::vector<float>& y) {
  std::vector<int32_t> bits(y.size());
  std::memcpy(bits.data(), y.data(), y.size() * sizeof(float));
  return bits;
}

TEST(LinearMemory, ScratchOfTheAskedSizeSufficesAtAnyAlignment) {
  const Problem p = UsesAllScratch();
  const std::vector<int32_t> expected = PlainOutputs(p);
  const std::vector<uint8_t> x(p.x.begin(), p.x.end());
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    PackedLinear packed;
    ASSERT_TRUE(PackProblem(p, &packed).ok());
    const size_t bytes = packed.ScratchBytes(p.m);
    ASSERT_GT(bytes, 0u);
    for (const size_t slack : {0, 1, 3, 8}) {
      for (const uint8_t poison : {0x00, 0xFF, 0x5A}) {
        // Slack at the end moves the beginning off the alignment that the page end gives.
        const GuardedBytes memory(bytes + slack, poison);
        std::vector<float> y(static_cast<size_t>(p.m * p.n), -1.0f);
        const int64_t before = allocations;
        const Status status =
            packed.Run({x.data(), ElementType::kU8, p.m, p.k, p.k},
                       {y.data(), ElementType::kF32, p.m, p.n, p.n}, {memory.data(), bytes});
        EXPECT_EQ(allocations, before) << target;
        ASSERT_TRUE(status.ok()) << status.error;
        ASSERT_EQ(Bits(y), expected) << target;
        for (size_t i = bytes; i < memory.size(); ++i) ASSERT_EQ(memory.data()[i], poison);
      }
    }
  }
}

TEST(LinearMemory, TooSmallScratchIsNotTouched) {
  const Problem p = UsesAllScratch();
  const std::vector<uint8_t> x(p.x.begin(), p.x.end());
  PackedLinear packed;
  ASSERT_TRUE(PackProblem(p, &packed).ok());
  const GuardedBytes memory(packed.ScratchBytes(p.m) - 1, 0xC3);
  std::vector<float> y(static_cast<size_t>(p.m * p.n));
  ASSERT_TRUE(packed
                  .Run({x.data(), ElementType::kU8, p.m, p.k, p.k},
                       {y.data(), ElementType::kF32, p.m, p.n, p.n}, {memory.data(), memory.size()})
                  .ok());
  EXPECT_EQ(Bits(y), PlainOutputs(p));
  for (size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(memory.data()[i], 0xC3);
}

TEST(LinearMemory, ScratchForFewerRowsIsSmallerAndForMoreIsBounded) {
  PackedLinear packed;
  EXPECT_EQ(packed.ScratchBytes(10), 0u);
  ASSERT_TRUE(PackProblem(UsesAllScratch(), &packed).ok());
  EXPECT_EQ(packed.ScratchBytes(0), 0u);
  EXPECT_EQ(packed.ScratchBytes(-1), 0u);
  EXPECT_LT(packed.ScratchBytes(1), packed.ScratchBytes(2));
  EXPECT_EQ(packed.ScratchBytes(1000), packed.ScratchBytes(INT64_MAX));
}

TEST(LinearMemory, EveryOutputIsWrittenWhateverWasThere) {
  Problem p = UsesAllScratch();
  p.y_gap = 3;
  const std::vector<int32_t> expected = PlainOutputs(p);
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    for (const uint8_t poison : {0x00, 0xFF, 0x7F}) EXPECT_EQ(RunProblem(p, poison), expected);
  }
}

// Rows of x and of y side by side in one buffer: the address ranges overlap, no element does.
TEST(LinearMemory, InputsAndOutputsMayBeInterleavedRows) {
  Choices choices(12);
  Problem p;
  p.m = 9;
  p.n = 5;
  p.k = 7;
  for (int64_t i = 0; i < p.m * p.k; ++i) {
    p.x.push_back(static_cast<int32_t>(choices.Between(0, 255)));
  }
  for (int64_t i = 0; i < p.n * p.k; ++i) {
    p.w.push_back(static_cast<int32_t>(choices.Between(-128, 127)));
  }
  p.y_scale = 500;
  p.y_zero = 128;
  const std::vector<int32_t> expected = PlainOutputs(p);
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    PackedLinear packed;
    ASSERT_TRUE(PackProblem(p, &packed).ok());
    for (const bool x_first : {true, false}) {
      const int64_t stride = p.k + p.n;
      std::vector<uint8_t> buffer(static_cast<size_t>(p.m * stride));
      uint8_t* x = buffer.data() + (x_first ? 0 : p.n);
      uint8_t* y = buffer.data() + (x_first ? p.k : 0);
      for (int64_t i = 0; i < p.m * p.k; ++i) {
        x[i / p.k * stride + i % p.k] = static_cast<uint8_t>(p.x[static_cast<size_t>(i)]);
      }
      const Status status = packed.Run({x, ElementType::kU8, p.m, p.k, stride},
                                       {y, ElementType::kU8, p.m, p.n, stride});
      ASSERT_TRUE(status.ok()) << status.error;
      for (int64_t i = 0; i < p.m * p.k; ++i) {
        ASSERT_EQ(x[i / p.k * stride + i % p.k], p.x[static_cast<size_t>(i)]) << target;
      }
      for (int64_t i = 0; i < p.m * p.n; ++i) {
        ASSERT_EQ(y[i / p.n * stride + i % p.n], expected[static_cast<size_t>(i)]) << target;
      }
    }
  }
}

TEST(LinearMemory, WeightsArePackedOnceAndCanBeMovedAndReplaced) {
  const Problem p = UsesAllScratch();
  const std::vector<int32_t> expected = PlainOutputs(p);
  const std::vector<uint8_t> x(p.x.begin(), p.x.end());
  PackedLinear packed;
  ASSERT_TRUE(PackProblem(p, &packed).ok());
  Problem wrong = p;
  wrong.x_scale = 0;
  EXPECT_FALSE(PackProblem(wrong, &packed).ok());  // leaves `packed` as it was

  PackedLinear moved = std::move(packed);
  for (int repetition = 0; repetition < 2; ++repetition) {
    std::vector<float> y(static_cast<size_t>(p.m * p.n));
    const Status status = moved.Run({x.data(), ElementType::kU8, p.m, p.k, p.k},
                                    {y.data(), ElementType::kF32, p.m, p.n, p.n});
    ASSERT_TRUE(status.ok()) << status.error;
    EXPECT_EQ(Bits(y), expected);
  }
}

// Epilogues round in floating point: they must ignore the caller's rounding mode and restore it.
TEST(LinearMemory, RoundingModeOfTheCallerDoesNotMatter) {
  Problem p = UsesAllScratch();
  p.x_scale = 0.3f;
  p.w_scale = {0.7f};
  p.x_zero = 100;
  p.w_zero = {3};
  p.y_type = ElementType::kU8;
  p.y_scale = 77.7f;
  p.y_zero = 128;
  const std::vector<int32_t> expected = PlainOutputs(p);
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      ASSERT_EQ(std::fesetround(mode), 0);
      const std::vector<int32_t> actual = RunProblem(p);
      const int after = testing::FloatRoundingMode();
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(after, mode);
      EXPECT_EQ(actual, expected) << target << " rounding mode " << mode;
    }
  }
}

}  // namespace
}  // namespace qualm::kernels
