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

#include "kernels/sums/conv_testing.h"
#include "kernels/targets.h"

namespace qualm::kernels {
namespace {

using testing::Choices;
using testing::ConvProblem;
using testing::Data;
using testing::FillBoth;
using testing::ImagesAt;
using testing::PackProblem;
using testing::RunProblem;
using testing::SpreadImages;

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

// The images with their padding, dense.
std::vector<uint8_t> PaddedImages(const ConvProblem& p) {
  ConvProblem padded = p;
  padded.height += p.window.pad_top + p.window.pad_bottom;
  padded.width += p.window.pad_left + p.window.pad_right;
  padded.pixel_gap = padded.row_gap = padded.image_gap = 0;
  std::vector<int32_t>& codes = padded.layer.x;
  codes.assign(static_cast<size_t>(p.batch * padded.height * padded.width * p.in_channels),
               p.layer.x_zero);
  const int64_t line = p.width * p.in_channels;
  for (int64_t i = 0; i < p.batch * p.height; ++i) {
    const int64_t y = i / p.height * padded.height + i % p.height + p.window.pad_top;
    std::copy_n(p.layer.x.begin() + i * line, line,
                codes.begin() + (y * padded.width + p.window.pad_left) * p.in_channels);
  }
  std::vector<uint8_t> bytes(codes.size());
  SpreadImages(padded, bytes.data());
  return bytes;
}

// Each pixel of an output of codes has the bits that its window has as an image of its own.
void ExpectPixelsAsAlone(const ConvProblem& p) {
  const WindowGeometry& w = p.window;
  const int64_t width = p.width + w.pad_left + w.pad_right;
  const int64_t height = p.height + w.pad_top + w.pad_bottom;
  const std::vector<uint8_t> images = PaddedImages(p);
  ConvProblem one = p;
  one.window.pad_top = one.window.pad_bottom = one.window.pad_left = one.window.pad_right = 0;
  const int64_t span_h = (w.kernel_h - 1) * w.dilation_h + 1;
  const int64_t span_w = (w.kernel_w - 1) * w.dilation_w + 1;
  one.batch = 1;
  one.height = span_h;
  one.width = span_w;
  one.pixel_gap = one.row_gap = one.image_gap = 0;
  // A copy: what lies behind a line of the window differs from what lies there in the image.
  std::vector<uint8_t> window(static_cast<size_t>(span_h * span_w * p.in_channels));
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    const std::vector<int32_t> together = RunProblem(p);
    PackedConv packed;
    ASSERT_TRUE(PackProblem(one, &packed).ok());
    std::vector<uint8_t> y(static_cast<size_t>(p.layer.n));
    size_t at = 0;
    for (int64_t m = 0; m < p.layer.m; ++m) {
      const int64_t oy = m / p.OutWidth() % p.OutHeight(), ox = m % p.OutWidth();
      const int64_t line = m / (p.OutWidth() * p.OutHeight()) * height + oy * w.stride_h;
      for (int64_t i = 0; i < span_h; ++i) {
        std::copy_n(images.begin() + ((line + i) * width + ox * w.stride_w) * p.in_channels,
                    span_w * p.in_channels, window.begin() + i * span_w * p.in_channels);
      }
      ASSERT_EQ(packed
                    .Run(ImagesAt(one, window.data()),
                         {y.data(), p.layer.y_type, 1, p.layer.n, p.layer.n})
                    .error,
                "");
      for (const uint8_t byte : y) {
        ASSERT_EQ(static_cast<uint8_t>(together[at++]), byte)
            << target << " pixel " << m << ": " << p.Describe();
      }
    }
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
      ExpectPixelsAsAlone(p);
      if (::testing::Test::HasFatalFailure()) return;
    }
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
        ExpectPixelsAsAlone(p);
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

// The sum of a whole window cancels a bias near the end of int32; with some taps in the padding it
// does not, and the sum does not fit. So the width may not be chosen for whole windows alone.
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
