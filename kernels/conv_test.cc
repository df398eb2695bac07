// SPDX-License-Identifier: Apache-2.0
// Every output of conv2d and depthwise against the definition, on every instruction set.
#include "kernels/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "kernels/sums/conv_testing.h"
#include "kernels/targets.h"

namespace qualm::kernels {
namespace {

using testing::Choices;
using testing::ChooseRealParameters;
using testing::ConvProblem;
using testing::CorrectedSums;
using testing::Data;
using testing::ExpectedOutputs;
using testing::ExpectExactEverywhere;
using testing::FillBoth;
using testing::FillOrdinary;
using testing::HighestCode;
using testing::LowestCode;
using testing::Problem;
using testing::RunProblem;

constexpr ElementType kCodes[] = {ElementType::kU8, ElementType::kS8};
constexpr ElementType kOutputs[] = {ElementType::kU8, ElementType::kS8, ElementType::kS32,
                                    ElementType::kF32};

constexpr std::initializer_list<Data> kData = {Data::kRandom, Data::kRandom,   Data::kHighLow,
                                               Data::kLowLow, Data::kExtremes, Data::kZeroHeavy};

void AnyGeometry(Choices& choices, ConvProblem& p) {
  p.batch = choices.Between(1, 3);
  p.height = choices.Between(1, 8);
  p.width = choices.Between(1, 8);
  p.window.kernel_h = choices.Between(1, 4);
  p.window.kernel_w = choices.Between(1, 4);
  p.window.stride_h = choices.Between(1, 3);
  p.window.stride_w = choices.Between(1, 3);
  const int64_t most_padding = choices.OneOf({0, 2, 6});
  p.window.pad_top = choices.Between(0, most_padding);
  p.window.pad_bottom = choices.Between(0, most_padding);
  p.window.pad_left = choices.Between(0, most_padding);
  p.window.pad_right = choices.Between(0, most_padding);
  p.window.dilation_h = choices.OneOf({1, 1, 2, 3, 9});
  p.window.dilation_w = choices.OneOf({1, 1, 2, 3, 9});
  p.pixel_gap = choices.OneOf({0, 0, 1, 5});
  p.row_gap = choices.OneOf({0, 0, 1, 5});
  p.image_gap = choices.OneOf({0, 0, 1, 5});
}

void AnyTypesAndCodes(Choices& choices, ConvProblem& p) {
  Problem& l = p.layer;
  l.x_type = kCodes[choices.Between(0, 1)];
  l.w_type = kCodes[choices.Between(0, 1)];
  l.y_type = kOutputs[choices.Between(0, 3)];
  l.w_gap = choices.OneOf({0, 1, 5});
  l.y_gap = choices.OneOf({0, 1, 5});
  FillBoth(choices, choices.OneOf(kData), p);
  // Zero points: codes, just outside, far outside.
  const int64_t reach = choices.OneOf<int64_t>({0, 127, 300, 100'000, INT32_MAX});
  const auto any_zero = [&](ElementType type) {
    if (choices.OneIn(2)) {
      return static_cast<int32_t>(choices.Between(LowestCode(type), HighestCode(type)));
    }
    return static_cast<int32_t>(choices.Between(-reach - (reach == INT32_MAX), reach));
  };
  l.x_zero = any_zero(l.x_type);
  const bool per_channel = choices.OneIn(2);
  l.w_zero.resize(per_channel ? static_cast<size_t>(l.n) : 1);
  for (int32_t& zero : l.w_zero) zero = any_zero(l.w_type);
  if (choices.OneIn(3)) {
    const int64_t largest = choices.OneOf<int64_t>({1000, INT32_MAX});
    for (int64_t j = 0; j < l.n; ++j) {
      l.bias_i32.push_back(static_cast<int32_t>(choices.Between(-largest, largest)));
    }
  }
  // Full mantissas times sums beyond 2^40 would need more than the reference's 128 bits.
  ChooseRealParameters(choices, CorrectedSums(p), per_channel, reach <= 300 && choices.OneIn(2), l);
}

TEST(ConvExact, RandomSmallProblems) {
  Choices choices(21);
  int64_t outputs = 0;
  for (int i = 0; i < 1500; ++i) {
    ConvProblem p;
    AnyGeometry(choices, p);
    p.groups = choices.OneOf({1, 1, 2, 3, 5});
    p.in_channels = p.groups * choices.Between(1, 5);
    p.layer.n = p.groups * choices.OneOf({1, 2, 3, 5, 9, 17});
    AnyTypesAndCodes(choices, p);
    outputs += p.layer.m;
    ExpectExactEverywhere(p);
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(outputs, 10'000) << "most windows do not fit: the test tests nothing";
}

TEST(DepthwiseExact, RandomSmallProblems) {
  Choices choices(22);
  int64_t outputs = 0;
  for (int i = 0; i < 1200; ++i) {
    ConvProblem p;
    AnyGeometry(choices, p);
    p.in_channels = choices.OneOf({2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40});
    p.groups = p.in_channels;
    p.layer.n = p.in_channels * choices.OneOf({1, 1, 1, 2, 3, 5});
    AnyTypesAndCodes(choices, p);
    outputs += p.layer.m;
    ExpectExactEverywhere(p);
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(outputs, 10'000) << "most windows do not fit: the test tests nothing";
}

// More channels than a block of a depthwise layer holds, and more than one pixel block.
TEST(DepthwiseExact, ManyChannelsAndMultipliers) {
  Choices choices(23);
  for (const auto& [channels, multiplier] : {std::pair{300, 1}, {513, 1}, {70, 5}, {3, 300}}) {
    for (const int32_t x_zero : {7, 1'000'000'000}) {  // the second needs wide sums
      ConvProblem p;
      p.height = 9;
      p.width = 9;
      p.in_channels = p.groups = channels;
      p.window.kernel_h = p.window.kernel_w = 3;
      p.window.pad_top = p.window.pad_left = p.window.pad_right = p.window.pad_bottom = 1;
      p.layer.n = channels * multiplier;
      p.layer.y_type = ElementType::kF32;
      FillBoth(choices, Data::kRandom, p);
      p.layer.x_zero = x_zero;
      for (int64_t n = 0; n < p.layer.n; ++n) {
        p.layer.w_zero.resize(static_cast<size_t>(p.layer.n));
        p.layer.w_zero[static_cast<size_t>(n)] = static_cast<int32_t>(n % 300 - 150);
      }
      ExpectExactEverywhere(p);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Every number of the geometry is different, so that none can stand for another.
ConvProblem AllDistinct(Choices& choices) {
  ConvProblem p;
  p.batch = 2;
  p.height = 23;
  p.width = 31;
  p.window.kernel_h = 3;
  p.window.kernel_w = 4;
  p.window.stride_h = 6;
  p.window.stride_w = 5;
  p.window.pad_top = 7;
  p.window.pad_bottom = 9;
  p.window.pad_left = 10;
  p.window.pad_right = 8;
  p.window.dilation_h = 11;
  p.window.dilation_w = 12;
  p.groups = 13;
  p.in_channels = 26;
  p.layer.n = 39;
  p.pixel_gap = 14;
  p.row_gap = 15;
  p.image_gap = 16;
  p.layer.y_gap = 17;
  p.layer.w_gap = 18;
  FillBoth(choices, Data::kRandom, p);
  p.layer.x_zero = 99;
  p.layer.w_zero = {-77};
  p.layer.y_type = ElementType::kS32;
  return p;
}

TEST(ConvGeometry, AllParametersDifferent) {
  Choices choices(24);
  ConvProblem p = AllDistinct(choices);
  ASSERT_EQ(p.OutHeight(), 3);
  ASSERT_EQ(p.OutWidth(), 3);
  ExpectExactEverywhere(p);
  p.layer.x_zero = 256;  // no code
  ExpectExactEverywhere(p);
  p.groups = p.in_channels = 39;  // depthwise
  FillBoth(choices, Data::kRandom, p);
  ExpectExactEverywhere(p);
}

// Each pad alone, on an image whose codes are all far from real 0.
TEST(ConvGeometry, PadsOfEachSide) {
  Choices choices(25);
  for (int side = 0; side < 4; ++side) {
    for (const int64_t pad : {1, 2, 3, 7}) {
      for (const int64_t groups : {1, 6}) {
        for (const int32_t x_zero : {200, -1, 256, INT32_MIN}) {
          ConvProblem p;
          p.height = 4;
          p.width = 5;
          p.in_channels = 6;
          p.groups = groups;
          p.layer.n = 6;
          p.window.kernel_h = 3;
          p.window.kernel_w = 2;
          (side == 0   ? p.window.pad_top
           : side == 1 ? p.window.pad_bottom
           : side == 2 ? p.window.pad_left
                       : p.window.pad_right) = pad;
          p.layer.y_type = ElementType::kF32;
          FillBoth(choices, Data::kRandom, p);
          p.layer.x_zero = x_zero;
          p.layer.w_zero = {1, 2, 3, 4, 5, 6};
          ExpectExactEverywhere(p);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(ConvGeometry, DilationsAndStridesBeyondTheImage) {
  Choices choices(26);
  for (const int64_t groups : {1, 4}) {
    for (const int64_t dilation : {4, 5, 6, 100}) {
      for (const int64_t stride : {1, 2, 50}) {
        ConvProblem p;
        p.batch = 2;
        p.height = 4;
        p.width = 5;
        p.in_channels = 4;
        p.groups = groups;
        p.layer.n = 8;
        p.window.kernel_h = 3;
        p.window.kernel_w = 2;
        p.window.dilation_h = p.window.dilation_w = dilation;
        p.window.stride_h = p.window.stride_w = stride;
        p.window.pad_top = 2 * dilation;
        p.window.pad_bottom = 3;
        p.window.pad_left = 1;
        p.window.pad_right = dilation;
        p.layer.y_type = ElementType::kS32;
        FillBoth(choices, Data::kRandom, p);
        p.layer.x_zero = 50;
        p.layer.w_zero = {-3};
        ASSERT_GT(p.layer.m, 0);
        ExpectExactEverywhere(p);
        p.layer.x_zero = -50;
        ExpectExactEverywhere(p);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// The largest numbers a window may have: positions must not overflow.
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
    p.window.kernel_h = 2;
    p.window.kernel_w = 3;
    p.window.dilation_h = kHuge;
    p.window.dilation_w = kHuge;
    p.window.stride_h = kHuge;
    p.window.stride_w = kHuge;
    p.window.pad_top = kHuge;
    p.window.pad_bottom = kHuge;
    p.window.pad_left = kHuge;
    p.window.pad_right = kHuge;
    p.layer.y_type = ElementType::kS32;
    FillBoth(choices, Data::kRandom, p);
    ASSERT_EQ(p.layer.m, 2);
    p.layer.x_zero = 300;
    ExpectExactEverywhere(p);
  }
}

// Windows of one pixel are read in place, as far as one stride goes.
TEST(ConvGeometry, PointwiseInEveryLayout) {
  Choices choices(28);
  for (const int64_t stride_h : {1, 2, 3}) {
    for (const int64_t stride_w : {1, 2, 3}) {
      for (const int64_t row_gap : {0, 7}) {
        for (const int64_t image_gap : {0, 5}) {
          for (const auto& [height, width] :
               {std::tuple{9, 8}, {1, 80}, {80, 1}, {1, 1}, {12, 12}}) {
            ConvProblem p;
            p.batch = 3;
            p.height = height;
            p.width = width;
            p.in_channels = 10;
            p.groups = choices.OneOf({1, 2, 5});
            p.layer.n = 10;
            p.window.stride_h = stride_h;
            p.window.stride_w = stride_w;
            p.pixel_gap = choices.OneOf({0, 3});
            p.row_gap = row_gap;
            p.image_gap = image_gap;
            p.layer.y_type = ElementType::kS32;
            FillBoth(choices, Data::kRandom, p);
            p.layer.x_zero = choices.OneOf({3, -300});
            p.layer.w_zero = {9};
            ExpectExactEverywhere(p);
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
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
      p.layer.x_zero = 3;
      ChooseRealParameters(choices, CorrectedSums(p), true, true, p.layer);
      // A bias in real units, or a zero point far from all codes, would be gathered.
      p.layer.bias.clear();
      p.layer.y_zero = 7;
      ExpectExactEverywhere(p);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Patches so long that a block has few of them, and one that does not fit a block's budget.
TEST(ConvExact, LongPatches) {
  Choices choices(29);
  for (const int64_t channels : {700, 5'000, 30'000}) {
    for (const int32_t x_zero : {100, 256}) {
      ConvProblem p;
      p.height = 4;
      p.width = 7;
      p.in_channels = channels;
      p.layer.n = 2;
      p.window.kernel_h = 3;
      p.window.kernel_w = 3;
      p.window.pad_left = 1;
      p.layer.y_type = ElementType::kS32;
      FillBoth(choices, Data::kExtremes, p);
      p.layer.x_zero = x_zero;
      p.layer.w_zero = {-2, 3};
      ExpectExactEverywhere(p);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Raw sums pass 2^31 from 65,794 terms of 255 * -128 on.
TEST(ConvExact, SumsBeyondInt32) {
  Choices choices(30);
  for (const int64_t channels : {1, 2, 100}) {
    for (const int64_t groups : {int64_t{1}, channels}) {
      for (const Data data : {Data::kHighLow, Data::kLowLow, Data::kExtremes}) {
        ConvProblem p;
        p.height = 300;
        p.width = 300;
        if (channels == 100) p.height = p.width = groups == 1 ? 30 : 260;
        if (channels == 100 && groups == 100 && data != Data::kHighLow) continue;
        p.in_channels = channels;
        p.groups = groups;
        p.layer.n = channels;
        p.window.kernel_h = p.height;
        p.window.kernel_w = p.width;
        p.layer.w_type = ElementType::kU8;
        p.layer.y_type = ElementType::kF32;
        FillBoth(choices, data, p);
        p.layer.w_zero = {127};
        ExpectExactEverywhere(p);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// The sum of a whole window cancels a bias near the end of int32; with some taps in the padding it
// does not, and the sum does not fit. So the width may not be chosen for whole windows alone.
TEST(ConvExact, PaddingMayLeaveSumsThatWholeWindowsNeverHave) {
  for (const int64_t groups : {1, 2}) {
    for (const int sign : {1, -1}) {
      ConvProblem p;
      p.height = 2;
      p.width = 1;
      p.in_channels = p.layer.n = 2;
      p.groups = groups;
      p.window.kernel_h = 2;
      p.window.pad_top = 1;
      p.layer.y_type = ElementType::kF32;
      Choices choices(31);
      FillBoth(choices, Data::kZeroHeavy, p);
      // x - zx is about -1e6 throughout: what tap 0 takes away, tap 1 gives back.
      p.layer.x_zero = 1'000'000;
      for (int64_t n = 0; n < 2; ++n) {
        for (int64_t k = 0; k < p.layer.k; ++k) {
          const bool first_tap = k < p.layer.k / 2;
          p.layer.w[static_cast<size_t>(n * p.layer.k + k)] = (first_tap ? 1 : -1) * sign;
        }
      }
      const int32_t bias = sign > 0 ? INT32_MAX - 500'000 : INT32_MIN + 500'000;
      p.layer.bias_i32 = {bias, bias};
      const std::vector<__int128> sums = CorrectedSums(p);
      bool any_outside = false;
      for (const __int128 sum : sums) any_outside |= sum > INT32_MAX || sum < INT32_MIN;
      EXPECT_TRUE(any_outside) << "the example does not show what it should";
      ExpectExactEverywhere(p);
      p.layer.y_type = ElementType::kS32;
      ExpectExactEverywhere(p);
    }
  }
}

TEST(ConvExact, ZeroPointsAtEveryExtreme) {
  Choices choices(32);
  constexpr int32_t kZeros[] = {INT32_MIN, -129, -128, 0, 127, 128, 255, 256, INT32_MAX};
  for (const int32_t x_zero : kZeros) {
    for (const int32_t w_zero : kZeros) {
      for (const ElementType x_type : kCodes) {
        for (const ElementType w_type : kCodes) {
          for (const int64_t groups : {1, 3}) {
            ConvProblem p;
            p.height = 2;
            p.width = 3;
            p.in_channels = p.layer.n = 3;
            p.groups = groups;
            p.window.kernel_h = p.window.kernel_w = 2;
            p.window.pad_left = p.window.pad_bottom = 1;
            p.layer.x_type = x_type;
            p.layer.w_type = w_type;
            p.layer.y_type = choices.OneOf({ElementType::kS32, ElementType::kF32});
            FillBoth(choices, Data::kExtremes, p);
            p.layer.x_zero = x_zero;
            p.layer.w_zero = {w_zero};
            p.layer.bias_i32 = {INT32_MIN, 0, INT32_MAX};
            ExpectExactEverywhere(p);
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// One channel needs 128 bits, its neighbours 32: no block may borrow the other's width.
TEST(ConvExact, ChannelsOfVeryDifferentSize) {
  Choices choices(33);
  for (const ElementType y_type : kOutputs) {
    for (const int64_t groups : {1, 2, 300}) {
      for (const size_t odd_one : {0u, 40u, 299u}) {
        ConvProblem p;
        p.height = 3;
        p.width = 3;
        p.in_channels = groups == 300 ? 300 : 4;
        p.groups = groups;
        p.layer.n = 300;
        p.window.kernel_h = p.window.kernel_w = 2;
        p.window.pad_top = p.window.pad_right = 1;
        p.layer.y_type = y_type;
        FillBoth(choices, Data::kRandom, p);
        p.layer.x_zero = 77;
        p.layer.w_zero.assign(300, 5);
        p.layer.w_zero[odd_one] = INT32_MIN;
        p.layer.y_scale = std::ldexp(1.0f, 12);
        ExpectExactEverywhere(p);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// The case this project is about, in a window: pairs just past the int16 limit, over (r, s, c)
// flat.
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
        p.layer.x_zero = 5;
        for (int32_t& w : p.layer.w) {
          w = static_cast<int32_t>(choices.OneIn(9) ? choices.OneOf({-128, -90, 100, 127})
                                                    : choices.Between(-64, 64));
        }
        ChooseRealParameters(choices, CorrectedSums(p), true, true, p.layer);
        p.layer.bias.clear();  // as above
        p.layer.y_zero = 7;
        ExpectExactEverywhere(p);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Activations that move (sums/pairing.h), where rows are gathered, or lie next to each other.
TEST(ConvSaturation, ActivationsThatMove) {
  Choices choices(33);
  for (const bool pointwise : {true, false}) {
    for (const int64_t groups : {1, 2}) {
      for (const int64_t gap : {0, 5}) {
        ConvProblem p;
        p.height = 7;
        p.width = 13;
        p.in_channels = (pointwise ? 80 : 10) * groups;
        p.groups = groups;
        p.pixel_gap = gap;
        p.layer.n = 60 * groups;
        p.layer.x_type = kCodes[choices.Between(0, 1)];
        if (!pointwise) {
          p.window.kernel_h = p.window.kernel_w = 3;
          p.window.pad_left = p.window.pad_top = 1;
        }
        FillBoth(choices, Data::kRandom, p);
        p.layer.x_zero = pointwise ? 5 : 300;  // no code: bands cannot have it
        FillOrdinary(choices, p.layer.k, p.layer.w);
        ChooseRealParameters(choices, CorrectedSums(p), true, true, p.layer);
        p.layer.bias.clear();  // as above
        p.layer.y_zero = 7;
        ExpectExactEverywhere(p);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(ConvSaturation, PairsAroundTheInt16Limit) {
  const std::pair<int, int> kPairs[] = {{64, 64},   {64, 65},     {127, 1},   {127, 2},
                                        {127, 127}, {-128, 0},    {-128, -1}, {-64, -64},
                                        {-64, -65}, {-128, -128}, {127, -128}};
  for (const auto& [w0, w1] : kPairs) {
    for (const int64_t channels : {1, 2, 3}) {
      for (const int64_t groups : {int64_t{1}, channels}) {
        for (const ElementType x_type : kCodes) {
          ConvProblem p;
          p.height = 4;
          p.width = 4;
          p.in_channels = channels;
          p.groups = groups;
          p.layer.n = 6;
          p.window.kernel_h = 2;
          p.window.kernel_w = 3;
          p.window.pad_left = p.window.pad_right = 1;
          p.layer.x_type = x_type;
          p.layer.y_type = ElementType::kS32;
          p.Derive();
          p.layer.x.assign(static_cast<size_t>(16 * channels), HighestCode(x_type));
          p.layer.w.assign(static_cast<size_t>(p.layer.n * p.layer.k), 0);
          for (int64_t n = 0; n < p.layer.n; ++n) {  // a pair per channel, all along the window
            const int64_t at = n % (p.layer.k - 1);
            p.layer.w[static_cast<size_t>(n * p.layer.k + at)] = w0;
            p.layer.w[static_cast<size_t>(n * p.layer.k + at + 1)] = w1;
          }
          ExpectExactEverywhere(p);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(ConvEdges, EmptyProblems) {
  struct Sizes {
    int64_t batch, height, width, channels, groups, n, outputs;
  };
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    for (const Sizes& sizes : {Sizes{0, 3, 3, 2, 1, 4, 0},
                               {2, 0, 3, 2, 1, 4, 0},
                               {2, 3, 0, 2, 2, 4, 0},
                               {2, 3, 3, 0, 1, 4, 2 * 16 * 4},
                               {2, 3, 3, 0, 4, 4, 2 * 16 * 4},
                               {2, 3, 3, 2, 1, 0, 0},
                               {2, 3, 3, 2, 2, 0, 0},
                               {2, 3, 3, 0, 1, 0, 0}}) {
      ConvProblem p;
      p.batch = sizes.batch;
      p.height = sizes.height;
      p.width = sizes.width;
      p.in_channels = sizes.channels;
      p.groups = sizes.groups;
      p.layer.n = sizes.n;
      p.window.kernel_h = p.window.kernel_w = 2;
      p.window.pad_top = p.window.pad_bottom = p.window.pad_left = p.window.pad_right = 1;
      Choices choices(34);
      FillBoth(choices, Data::kRandom, p);
      p.layer.x_zero = 300;
      p.layer.y_zero = 9;
      // Without terms the sum is 0 and the output its zero point.
      EXPECT_EQ(RunProblem(p), std::vector<int32_t>(static_cast<size_t>(sizes.outputs), 9))
          << target << p.Describe();
    }
  }
}

// Windows that see no pixel at all: the sum is the bias, wherever the zero point is.
TEST(ConvEdges, WindowsWhollyInThePadding) {
  Choices choices(35);
  for (const int64_t groups : {1, 5}) {
    for (const int32_t x_zero : {255, 256}) {
      ConvProblem p;
      p.height = p.width = 2;
      p.in_channels = p.layer.n = 5;
      p.groups = groups;
      p.window.kernel_h = p.window.kernel_w = 3;
      p.window.pad_top = p.window.pad_bottom = p.window.pad_left = p.window.pad_right = 9;
      p.layer.y_type = ElementType::kS32;
      FillBoth(choices, Data::kRandom, p);
      p.layer.x_zero = x_zero;
      p.layer.w_zero = {4};
      p.layer.bias_i32 = {1, -2, 3, -4, 5};
      const std::vector<int32_t> outputs = ExpectedOutputs(p);
      EXPECT_EQ(std::vector<int32_t>(outputs.begin(), outputs.begin() + 5), p.layer.bias_i32);
      ExpectExactEverywhere(p);
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
