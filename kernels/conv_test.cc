// SPDX-License-Identifier: Apache-2.0
// What no case asks of conv2d and depthwise: images and lines that are cut into parts, windows with
// the largest numbers, sums longer than cases have. Their outputs are judged by
// properties/native_kernels_test.cc.
#include "kernels/conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/sums/conv_testing.h"
#include "kernels/targets.h"

namespace qualm::kernels {
namespace {

using testing::Choices;
using testing::ConvProblem;
using testing::Data;
using testing::FillBoth;
using testing::RunProblem;

constexpr ElementType kCodes[] = {ElementType::kU8, ElementType::kS8};

// Expects these sums, [m,n], as float32 outputs of scale 1 and as s32, on every instruction set.
void ExpectSums(ConvProblem p, const std::vector<int64_t>& sums) {
  std::vector<int32_t> floats, clamped;
  for (const int64_t sum : sums) {
    floats.push_back(std::bit_cast<int32_t>(static_cast<float>(sum)));
    clamped.push_back(static_cast<int32_t>(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX)));
  }
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    p.layer.y_type = ElementType::kF32;
    ASSERT_EQ(RunProblem(p), floats) << target << " " << p.Describe();
    p.layer.y_type = ElementType::kS32;
    ASSERT_EQ(RunProblem(p), clamped) << target << " " << p.Describe();
  }
}

// A layer to codes is not gathered, one to sums is: the sums requantized are the codes, on every
// instruction set.
void ExpectSumsRequantized(const ConvProblem& p) {
  ConvProblem to_sums = p;
  to_sums.layer.y_type = ElementType::kS32;
  std::vector<Multiplier> multipliers;
  for (const float scale : p.layer.w_scale) {
    multipliers.push_back({p.layer.x_scale, scale, p.layer.y_scale});
  }
  const bool is_signed = p.layer.y_type == ElementType::kS8;
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    const std::vector<int32_t> sums = RunProblem(to_sums);
    std::vector<uint8_t> bytes(sums.size());
    ASSERT_EQ(Requantize({sums.data(), ElementType::kS32, p.layer.m, p.layer.n, p.layer.n},
                         multipliers, p.layer.y_zero, p.layer.range,
                         {bytes.data(), p.layer.y_type, p.layer.m, p.layer.n, p.layer.n})
                  .error,
              "");
    std::vector<int32_t> codes;
    for (const uint8_t byte : bytes) codes.push_back(is_signed ? static_cast<int8_t>(byte) : byte);
    ASSERT_EQ(RunProblem(p), codes) << target << " " << p.Describe();
  }
}

// Scales, such that the outputs use their range, and many of them are ties, or next to ties. A bias
// in real units, or a zero point far from all codes, would be gathered.
void ChooseScales(Choices& choices, bool with_ties, ConvProblem& p) {
  p.layer.x_zero = 3;
  p.layer.y_zero = 7;
  p.layer.w_scale.clear();
  for (int64_t n = 0; n < p.layer.n; ++n) {
    const int64_t mantissa = choices.Between(1 << 23, (1 << 24) - 1);
    p.layer.w_scale.push_back(with_ties ? 1.0f + static_cast<float>(n % 4) / 4
                                        : static_cast<float>(mantissa) * 0x1p-23f);
  }
  const double spread = 74.0 * 74.0 * std::sqrt(static_cast<double>(p.layer.k));
  p.layer.y_scale = static_cast<float>(std::exp2(std::round(std::log2(spread / 64))));
}

// Layers to codes, whose weights have no zero point, are not gathered (sums/bands.h,
// sums/depthwise_lines.h). Images that are cut into several bands of lines and columns, and lines
// that are cut into several parts, with everything that the geometry may ask of them.
TEST(ConvGeometry, ImagesLongerThanABandAndLinesLongerThanAPart) {
  Choices choices(30);
  struct Size {
    int64_t height, width, channels, groups, n, kernel, dilation, stride;
  };
  for (const Size& s : {Size{5, 1500, 33, 1, 3, 3, 1, 1},
                        {90, 40, 16, 2, 6, 3, 2, 1},
                        {150, 100, 16, 1, 2, 3, 1, 2},
                        {70, 90, 9, 1, 5, 2, 3, 3},
                        {4, 250, 70, 70, 70, 3, 1, 1},
                        {5, 301, 67, 67, 67, 3, 1, 2},
                        {23, 9, 66, 66, 66, 2, 2, 2},
                        {9, 130, 5, 5, 5, 5, 1, 2},
                        {11, 120, 65, 65, 65, 4, 2, 3},
                        {40, 9, 17, 17, 17, 6, 1, 1}}) {
    for (const bool padded : {false, true}) {
      ConvProblem p;
      p.batch = 2;
      p.height = s.height;
      p.width = s.width;
      p.in_channels = s.channels;
      p.groups = s.groups;
      p.layer.n = s.n;
      p.window.kernel_h = p.window.kernel_w = s.kernel;
      p.window.dilation_h = p.window.dilation_w = s.dilation;
      p.window.stride_h = p.window.stride_w = s.stride;
      if (padded) {
        p.window.pad_top = 2;
        p.window.pad_bottom = 5;
        p.window.pad_left = 3;
        p.window.pad_right = 4;
      }
      p.pixel_gap = choices.OneOf({0, 3});
      p.row_gap = choices.OneOf({0, 7});
      p.image_gap = choices.OneOf({0, 5});
      p.layer.y_gap = choices.OneOf({0, 2});
      p.layer.x_type = kCodes[choices.Between(0, 1)];
      p.layer.y_type = kCodes[choices.Between(0, 1)];
      FillBoth(choices, Data::kRandom, p);
      ChooseScales(choices, padded, p);
      ExpectSumsRequantized(p);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Ties of multipliers that are no fractions with a small denominator are computed again, wherever
// in a line they are: 8209 * 33 / (2 * 8209) = 16 + 1/2 becomes 16.
TEST(ConvGeometry, TiesAllAlongALine) {
  for (const int64_t stride : {1, 2}) {
    ConvProblem p;
    p.height = 3;
    p.width = 400;
    p.in_channels = p.groups = p.layer.n = 67;
    p.window.kernel_h = p.window.kernel_w = 3;
    p.window.stride_w = stride;
    p.Derive();
    for (int64_t i = 0; i < p.height * p.width * p.in_channels; ++i) {
      p.layer.x.push_back(static_cast<int32_t>(i % 5));
    }
    for (int64_t i = 0; i < p.layer.n * p.layer.k; ++i) p.layer.w.push_back(i % p.layer.k == 4);
    p.layer.bias_i32.assign(static_cast<size_t>(p.layer.n), 8207);
    p.layer.w_scale = {16.5f};
    p.layer.y_scale = 8209;
    const std::vector<int32_t> codes = RunProblem(p);
    for (int64_t i = 0; i < p.layer.m * p.layer.n; ++i) {
      const int64_t pixel = p.width + i / p.layer.n * stride + 1;
      const int64_t above_tie = (pixel * p.in_channels + i % p.layer.n) % 5 - 2;
      ASSERT_EQ(codes[static_cast<size_t>(i)], above_tie > 0 ? 17 : 16) << i;
    }
    ExpectSumsRequantized(p);
  }
}

// Extra quads (sums/split.h) of windows that are read in place, line by line or pixel by pixel.
TEST(ConvSaturation, FewPairsPastTheLimit) {
  Choices choices(31);
  for (const int64_t groups : {1, 2}) {
    for (const int64_t dilation : {1, 2}) {
      for (const int64_t channels : {10, 14}) {
        ConvProblem p;
        p.height = 7;
        p.width = 19;
        p.in_channels = channels;
        p.groups = groups;
        p.window.kernel_h = 2;
        p.window.kernel_w = 3;
        p.window.pad_left = p.window.pad_top = 1;
        p.window.dilation_h = p.window.dilation_w = dilation;
        p.layer.n = 6;
        p.layer.x_type = kCodes[choices.Between(0, 1)];
        FillBoth(choices, Data::kRandom, p);
        for (int32_t& w : p.layer.w) {
          w = static_cast<int32_t>(choices.OneIn(9) ? choices.OneOf({-128, -90, 100, 127})
                                                    : choices.Between(-64, 64));
        }
        ChooseScales(choices, dilation == 1, p);
        ExpectSumsRequantized(p);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// The largest numbers a window may have: positions must not overflow. Of the image, each window
// sees the first pixel.
TEST(ConvGeometry, HugeWindowParameters) {
  Choices choices(27);
  constexpr int64_t kHuge = int64_t{1} << 30;
  for (const int64_t groups : {1, 2}) {
    ConvProblem p;
    p.height = 3;
    p.width = 3;
    p.in_channels = 2;
    p.groups = groups;
    p.layer.n = 2;
    p.window = {.kernel_h = 2,
                .kernel_w = 3,
                .stride_h = kHuge,
                .stride_w = kHuge,
                .pad_top = kHuge,
                .pad_bottom = kHuge,
                .pad_left = kHuge,
                .pad_right = kHuge,
                .dilation_h = kHuge,
                .dilation_w = kHuge};
    FillBoth(choices, Data::kRandom, p);
    ASSERT_EQ(p.layer.m, 2);
    p.layer.x_zero = 300;
    const int64_t depth = 2 / groups;
    std::vector<int64_t> sums;
    for (const int64_t line_of_tap : {1, 0}) {
      for (int64_t n = 0; n < 2; ++n) {
        int64_t sum = 0;
        for (int64_t c = 0; c < depth; ++c) {
          const int64_t w =
              p.layer.w[static_cast<size_t>(((n * 2 + line_of_tap) * 3 + 1) * depth + c)];
          sum += w * (p.layer.x[static_cast<size_t>(groups == 1 ? c : n)] - 300);
        }
        sums.push_back(sum);
      }
    }
    ExpectSums(p, sums);
  }
}

// Windows of a whole image of equal codes. Raw sums pass 2^31 from 65,794 terms of 255 * -128 on,
// and patches are so long that a block has few of them, or that one does not fit its budget.
TEST(ConvLong, SumsOfExtremes) {
  struct Size {
    int64_t channels, groups, side;
  };
  for (const Size& size : {Size{1, 1, 260}, {2, 2, 260}, {100, 1, 30}, {30'000, 1, 3}}) {
    for (const bool high : {true, false}) {
      ConvProblem p;
      p.height = p.width = p.window.kernel_h = p.window.kernel_w = size.side;
      p.in_channels = size.channels;
      p.groups = size.groups;
      p.layer.n = size.groups == 1 ? 2 : size.channels;
      p.layer.w_type = ElementType::kU8;
      p.Derive();
      const int32_t x = high ? 255 : 0, w = high ? 0 : 255;
      p.layer.x.assign(static_cast<size_t>(size.side * size.side * size.channels), x);
      p.layer.w.assign(static_cast<size_t>(p.layer.n * p.layer.k), w);
      p.layer.x_zero = 1;
      p.layer.w_zero = {127};
      const int64_t sum = p.layer.k * (x - 1) * (w - 127);
      ExpectSums(p, std::vector<int64_t>(static_cast<size_t>(p.layer.n), sum));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// The sum of a whole window cancels a bias near the end of int32. With some taps in the padding it
// cancels less, and the total leaves int32. So the width of sums must not be chosen for whole
// windows alone.
TEST(ConvLong, PaddingMayLeaveSumsThatWholeWindowsNeverHave) {
  for (const int64_t groups : {1, 2}) {
    for (const int sign : {1, -1}) {
      ConvProblem p;
      p.height = 2;
      p.in_channels = p.layer.n = 2;
      p.groups = groups;
      p.window.kernel_h = 2;
      p.window.pad_top = 1;
      p.Derive();
      p.layer.x.assign(4, 0);
      p.layer.x_zero = 1'000'000;
      const int64_t depth = 2 / groups;
      for (int64_t n = 0; n < 2; ++n) {  // what tap 0 takes away, tap 1 gives back
        for (int64_t k = 0; k < p.layer.k; ++k) p.layer.w.push_back(k < depth ? sign : -sign);
      }
      const int32_t bias = sign > 0 ? INT32_MAX - 500'000 : INT32_MIN + 500'000;
      p.layer.bias_i32 = {bias, bias};
      const int64_t outside = bias + sign * depth * 1'000'000;
      ExpectSums(p, {outside, outside, bias, bias});
    }
  }
}

TEST(ConvEdges, OutputSizes) {
  WindowGeometry w;
  w.kernel_h = 3;
  w.stride_h = 2;
  w.in_h = 4;
  w.in_w = 6;
  EXPECT_EQ(ConvOutputHeight(w), 1);
  EXPECT_EQ(ConvOutputWidth(w), 6);
  w.pad_bottom = 1;
  EXPECT_EQ(ConvOutputHeight(w), 2);
  w.dilation_h = 3;
  EXPECT_EQ(ConvOutputHeight(w), 0);
  w.pad_top = 2;
  EXPECT_EQ(ConvOutputHeight(w), 1);
  w.in_h = 0;
  w.pad_top = 100;
  EXPECT_EQ(ConvOutputHeight(w), 0);
}

}  // namespace
}  // namespace qualm::kernels
