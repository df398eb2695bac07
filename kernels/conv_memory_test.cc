// SPDX-License-Identifier: Apache-2.0
// A convolution touches its outputs and its scratch and nothing else, and does not depend on other
// memory. Reads past x and the weights, and writes into gaps, are checked by RunProblem in every
// test of a convolution.
#include <gtest/gtest.h>

#include <cfenv>
#include <utility>
#include <vector>

#include "kernels/common/counted_new.h"
#include "kernels/conv.h"
#include "kernels/sums/conv_testing.h"
#include "kernels/targets.h"

namespace qualm::kernels {
namespace {

using testing::allocations;
using testing::Choices;
using testing::Collect;
using testing::ConvProblem;
using testing::Data;
using testing::FillBoth;
using testing::GuardedBytes;
using testing::ImageBytes;
using testing::ImagesAt;
using testing::PackProblem;
using testing::PlainOutputs;
using testing::RunProblem;
using testing::SpreadImages;

// Sums of every width, row sums, a K tail and padding that is no code: every part of the scratch is
// used. 91 output pixels: one full block of patches and a remainder.
ConvProblem UsesAllScratch(int64_t groups) {
  ConvProblem p;
  p.height = 13;
  p.width = 7;
  p.in_channels = groups == 1 ? 3 : groups;
  p.groups = groups;
  p.layer.n = groups == 1 ? 140 : 2 * groups;
  p.window.kernel_h = p.window.kernel_w = 3;
  p.window.pad_top = p.window.pad_bottom = p.window.pad_left = p.window.pad_right = 1;
  p.pixel_gap = 2;
  p.layer.y_gap = 3;
  p.layer.y_type = ElementType::kF32;
  Choices choices(41);
  FillBoth(choices, Data::kRandom, p);
  p.layer.x_zero = 1 << 30;
  for (int64_t n = 0; n < p.layer.n; ++n) {
    // The last third has weights equal to their zero point: their sums are 0.
    const bool zero = n > p.layer.n * 2 / 3;
    if (zero) std::fill_n(p.layer.w.begin() + n * p.layer.k, p.layer.k, 1);
    p.layer.w_zero.resize(static_cast<size_t>(p.layer.n), 1);
    p.layer.w_zero[static_cast<size_t>(n)] = n < p.layer.n / 3 ? INT32_MIN : 1;
  }
  return p;
}

ConvProblem Pointwise() {
  ConvProblem p = UsesAllScratch(1);
  p.in_channels = 30;
  p.window = {};
  p.row_gap = 4;
  Choices choices(42);
  FillBoth(choices, Data::kRandom, p);
  return p;
}

std::vector<ConvProblem> EveryPath() {
  return {UsesAllScratch(1), UsesAllScratch(40), Pointwise()};
}

// Runs with the given scratch and counts the allocations of Run.
std::vector<int32_t> RunWithScratch(const ConvProblem& p, const PackedConv& packed,
                                    std::span<uint8_t> scratch, int64_t* allocated) {
  std::vector<uint8_t> x(ImageBytes(p));
  SpreadImages(p, x.data());
  const GuardedBytes y(testing::Elements(p.layer.m, p.layer.n, p.layer.y_gap) * 4, 0x77);
  const int64_t before = allocations;
  const Status status = packed.Run(
      ImagesAt(p, x.data()),
      {y.data(), ElementType::kF32, p.layer.m, p.layer.n, p.layer.n + p.layer.y_gap}, scratch);
  *allocated = allocations - before;
  EXPECT_TRUE(status.ok()) << status.error;
  return Collect(ElementType::kF32, p.layer.n, p.layer.y_gap, 0x77, y);
}

TEST(ConvMemory, ScratchOfTheAskedSizeSufficesAtAnyAlignment) {
  for (const ConvProblem& p : EveryPath()) {
    const std::vector<int32_t> expected = PlainOutputs(p);
    for (const std::string& target : SupportedTargets()) {
      const ScopedTarget scoped(target);
      PackedConv packed;
      ASSERT_TRUE(PackProblem(p, &packed).ok());
      const size_t bytes = packed.ScratchBytes(p.batch, p.height, p.width);
      ASSERT_GT(bytes, 0u);
      for (const size_t slack : {0, 1, 3, 8}) {
        for (const uint8_t poison : {0x00, 0xFF, 0x5A}) {
          // Slack at the end moves the beginning off the alignment that the page end gives.
          const GuardedBytes memory(bytes + slack, poison);
          int64_t allocated = 0;
          ASSERT_EQ(RunWithScratch(p, packed, {memory.data(), bytes}, &allocated), expected)
              << target << p.Describe();
          EXPECT_EQ(allocated, 0) << target << p.Describe();
          for (size_t i = bytes; i < memory.size(); ++i) ASSERT_EQ(memory.data()[i], poison);
        }
      }
    }
  }
}

TEST(ConvMemory, TooSmallScratchIsNotTouched) {
  // The process's list of targets is allocated once, by whoever asks first: not by the Run counted.
  ASSERT_FALSE(SupportedTargets().empty());
  for (const ConvProblem& p : EveryPath()) {
    PackedConv packed;
    ASSERT_TRUE(PackProblem(p, &packed).ok());
    const GuardedBytes memory(packed.ScratchBytes(p.batch, p.height, p.width) - 1, 0xC3);
    int64_t allocated = 0;
    EXPECT_EQ(RunWithScratch(p, packed, {memory.data(), memory.size()}, &allocated),
              PlainOutputs(p));
    EXPECT_EQ(allocated, 1);
    for (size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(memory.data()[i], 0xC3);
  }
}

TEST(ConvMemory, ScratchIsBounded) {
  PackedConv packed;
  EXPECT_EQ(packed.ScratchBytes(1, 10, 10), 0u);
  for (const ConvProblem& p : EveryPath()) {
    ASSERT_TRUE(PackProblem(p, &packed).ok());
    EXPECT_EQ(packed.ScratchBytes(0, 10, 10), 0u);
    EXPECT_EQ(packed.ScratchBytes(-1, 10, 10), 0u);
    EXPECT_EQ(packed.ScratchBytes(1, 0, 10), 0u);
    EXPECT_EQ(packed.ScratchBytes(1, -10, 10), 0u);
    EXPECT_EQ(packed.ScratchBytes(1, 100, 100), packed.ScratchBytes(INT64_MAX, 1 << 30, 1 << 30));
    EXPECT_LE(packed.ScratchBytes(INT64_MAX, 1 << 30, 1 << 30), 300'000u);
  }
  // One patch of 2^20 activations, and on some targets the same in int16.
  ConvProblem p;
  p.in_channels = 1 << 20;
  p.window.pad_top = 1;
  Choices choices(43);
  FillBoth(choices, Data::kZeroHeavy, p);
  ASSERT_TRUE(PackProblem(p, &packed).ok());
  EXPECT_GE(packed.ScratchBytes(1, 5, 5), size_t{1} << 20);
  EXPECT_LE(packed.ScratchBytes(9, 500, 5), (size_t{3} << 20) + 4096);
}

TEST(ConvMemory, EveryOutputIsWrittenWhateverWasThere) {
  for (const ConvProblem& p : EveryPath()) {
    const std::vector<int32_t> expected = PlainOutputs(p);
    for (const std::string& target : SupportedTargets()) {
      const ScopedTarget scoped(target);
      for (const uint8_t poison : {0x00, 0xFF, 0x7F}) {
        EXPECT_EQ(RunProblem(p, poison), expected) << target;
      }
    }
  }
}

// Channels of x and of y side by side in one buffer, as in networks that concatenate outputs to
// inputs: the address ranges overlap, no element does.
TEST(ConvMemory, InputsAndOutputsMayBeChannelsOfOneBuffer) {
  ConvProblem p;
  p.batch = 2;
  p.height = 5;
  p.width = 6;
  p.in_channels = 7;
  p.layer.n = 4;
  p.window.kernel_h = p.window.kernel_w = 3;
  p.window.pad_top = p.window.pad_bottom = p.window.pad_left = p.window.pad_right = 1;
  p.layer.y_scale = 500;
  p.layer.y_zero = 128;
  p.pixel_gap = p.layer.n;
  Choices choices(44);
  FillBoth(choices, Data::kRandom, p);
  const std::vector<int32_t> expected = PlainOutputs(p);
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    PackedConv packed;
    ASSERT_TRUE(PackProblem(p, &packed).ok());
    for (const bool x_first : {true, false}) {
      const int64_t stride = p.in_channels + p.layer.n;
      std::vector<uint8_t> buffer(static_cast<size_t>(p.layer.m * stride));
      uint8_t* x = buffer.data() + (x_first ? 0 : p.layer.n);
      uint8_t* y = buffer.data() + (x_first ? p.in_channels : 0);
      SpreadImages(p, x);
      const Status status =
          packed.Run(ImagesAt(p, x), {y, ElementType::kU8, p.layer.m, p.layer.n, stride});
      ASSERT_TRUE(status.ok()) << status.error;
      for (int64_t i = 0; i < p.layer.m * p.in_channels; ++i) {
        ASSERT_EQ(x[i / p.in_channels * stride + i % p.in_channels],
                  p.layer.x[static_cast<size_t>(i)])
            << target;
      }
      for (int64_t i = 0; i < p.layer.m * p.layer.n; ++i) {
        ASSERT_EQ(y[i / p.layer.n * stride + i % p.layer.n], expected[static_cast<size_t>(i)])
            << target;
      }
    }
  }
}

TEST(ConvMemory, WeightsArePackedOnceAndCanBeMovedAndUsedForOtherImages) {
  for (ConvProblem p : EveryPath()) {
    PackedConv packed;
    ASSERT_TRUE(PackProblem(p, &packed).ok());
    ConvProblem wrong = p;
    wrong.layer.x_scale = 0;
    EXPECT_FALSE(PackProblem(wrong, &packed).ok());  // leaves `packed` as it was
    const PackedConv moved = std::move(packed);
    for (const auto& [batch, height, width] : {std::tuple{1, 13, 7}, {2, 3, 1}, {1, 13, 7}}) {
      p.batch = batch;
      p.height = height;
      p.width = width;
      const std::vector<int32_t> weights = p.layer.w;
      Choices choices(45);
      FillBoth(choices, Data::kRandom, p);
      p.layer.w = weights;
      int64_t allocated = 0;
      EXPECT_EQ(RunWithScratch(p, moved, {}, &allocated), PlainOutputs(p)) << p.Describe();
    }
  }
}

// Epilogues round in floating point: they must ignore the caller's rounding mode and restore it.
TEST(ConvMemory, RoundingModeOfTheCallerDoesNotMatter) {
  for (ConvProblem p : EveryPath()) {
    p.layer.x_scale = 0.3f;
    p.layer.w_scale = {0.7f};
    p.layer.x_zero = 100;
    p.layer.w_zero = {3};
    p.layer.y_type = ElementType::kU8;
    p.layer.y_scale = 77.7f;
    p.layer.y_zero = 128;
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
}

}  // namespace
}  // namespace qualm::kernels
