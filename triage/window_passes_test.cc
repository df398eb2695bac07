// SPDX-License-Identifier: Apache-2.0
// How far the passes bring cases down; without attribution, which has tests of its own.

#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "core/slice.h"
#include "oracles/exact/exact.h"
#include "oracles/headroom/headroom.h"
#include "properties/gen/gen.h"
#include "triage/passes_test_util.h"
#include "triage/simpler_test_util.h"

namespace qualm::triage {
namespace {

using Fails = std::function<bool(const Case&)>;

// Goes down as long as `fails` stays true.
Case Descend(Case c, const Fails& fails) {
  for (int step = 0; step < 2000; ++step) {
    bool moved = false;
    ForEachSimpler(c, [&](const Case& candidate) {
      if (!fails(candidate)) return false;
      c = candidate;
      moved = true;
      return true;
    });
    if (!moved) return c;
  }
  ADD_FAILURE() << "the descent does not end";
  return c;
}

// A stride of 1 would be simpler, and mean 2^42 outputs.
TEST(Passes, OfferNothingTooLarge) {
  Case c = gen::Draw(Op::kMaxPool, 1);
  c.window = {.batch = 1, .in_h = 1, .in_w = 1, .in_c = c.window.in_c, .kernel_h = 2};
  c.op = Op::kAvgPool;
  c.window.count_include_pad = true;
  c.x = Tensor(c.x.dtype(), {1, 1, 1, c.window.in_c});
  constexpr int64_t kMost = int64_t{1} << 20;
  c.window.stride_h = c.window.stride_w = kMost;
  c.window.pad_top = c.window.pad_bottom = c.window.pad_left = c.window.pad_right = kMost;
  DeriveSizes(&c);
  ASSERT_EQ(Validate(c), "");
  int64_t offered = 0;
  ForEachSimpler(c, [&](const Case& candidate) {
    EXPECT_LE(candidate.M, int64_t{1} << 24) << Describe(candidate);
    return ++offered == 100;
  });
  EXPECT_GT(offered, 0);
}

std::optional<Case> FirstThatFails(Op op, const Fails& fails) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Case c = gen::Draw(op, seed);
    if (c.M > 1 && c.N > 1 && c.window.batch > 1 && fails(c)) return c;
  }
  return std::nullopt;
}

TEST(Passes, WithoutResistanceEveryOpEndsAtNextToNothing) {
  for (Op op : AllOps()) {
    for (uint64_t seed = 1; seed < 6; ++seed) {
      const Case end = Descend(gen::Draw(op, seed), [](const Case&) { return true; });
      EXPECT_LE(end.M * end.N, 1) << Describe(end);
      EXPECT_LE(end.x.size(), 1) << Describe(end);
      EXPECT_EQ(end.window.pad_top + end.window.pad_bottom, 0) << Describe(end);
      EXPECT_EQ(end.window.stride_h * end.window.dilation_w, 1) << Describe(end);
    }
  }
}

TEST(Passes, ASaturatingPairEndsAtTwoTerms) {
  const Fails saturates = [](const Case& c) {
    for (int64_t i = 0; i < c.M * c.N; ++i) {
      if (!headroom::SaturatingPairs(c, i / c.N, i % c.N).empty()) return true;
    }
    return false;
  };
  for (Op op : {Op::kConv2d, Op::kDepthwise}) {
    const std::optional<Case> failing = FirstThatFails(op, saturates);
    ASSERT_TRUE(failing);
    const Case end = Descend(*failing, saturates);
    EXPECT_EQ(end.M * end.N, 1) << Describe(end);
    EXPECT_EQ(end.K, 2) << Describe(end);
    EXPECT_EQ(end.x.size(), 2) << Describe(end);
    EXPECT_FALSE(end.bias || end.bias_i32 || end.relu) << Describe(end);
  }
}

TEST(Passes, APaddedTapKeepsItsPaddingAndNothingElse) {
  const Fails pads_off_zero = [](const Case& c) {
    if (c.M == 0 || c.N == 0 || c.x_q.zero_point_at(0) == 0) return false;
    for (int64_t m = 0; m < c.M; ++m) {
      for (const Tap& tap : TapsOf(c.window, m)) {
        if (tap.x_row < 0) return true;
      }
    }
    return false;
  };
  for (Op op : {Op::kConv2d, Op::kMaxPool, Op::kAvgPool}) {
    const std::optional<Case> failing = FirstThatFails(op, pads_off_zero);
    ASSERT_TRUE(failing);
    const Case end = Descend(*failing, pads_off_zero);
    const Window& v = end.window;
    EXPECT_EQ(end.M * end.N, 1) << Describe(end);
    EXPECT_LE(end.x.size(), 2) << Describe(end);
    EXPECT_EQ(v.pad_top + v.pad_bottom + v.pad_left + v.pad_right, 1) << Describe(end);
    EXPECT_EQ(v.groups * v.dilation_h * v.dilation_w, 1) << Describe(end);
    EXPECT_EQ(std::abs(end.x_q.zero_point_at(0)), 1) << Describe(end);
  }
}

// No rectangle has three taps of a kernel of two by two.
TEST(Passes, TapsOfARectangleEndInALine) {
  for (const Op op : {Op::kConv2d, Op::kDepthwise, Op::kAvgPool, Op::kMaxPool}) {
    Case c = gen::Draw(op, 1);
    c.window = {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 1, .kernel_h = 2, .kernel_w = 2};
    c.N = 1;
    DeriveSizes(&c);
    c = slice::WithParamsOf(slice::WithoutParameters(c), 0, false);
    c.x = Tensor(DType::kU8, ShapeOfX(c));
    if (IsConv(op)) c.w = Tensor(DType::kS8, ShapeOfW(c));
    for (int i = 0; i < 4; ++i) {
      c.x.SetInt(i, 10 + i);
      if (IsConv(op)) c.w.SetInt(i, 1 + i);
    }
    for (QParams* q : {&c.x_q, &c.w_q, &c.out_q}) *q = {};
    c.out_dtype = DType::kU8;
    OpenClamp(&c);
    ASSERT_EQ(Validate(c), "") << Name(op);
    const Case end = Descend(c, [](const Case& s) { return s.M * s.N == 1 && s.K >= 3; });
    EXPECT_EQ(end.K, 3) << Describe(end);
    EXPECT_EQ(end.window.kernel_h, 3) << Describe(end);
    EXPECT_EQ(end.window.kernel_w, 1) << Describe(end);
    EXPECT_EQ(end.x.size(), 3) << Describe(end);
  }
}

// Pixels and weights keep their partners.
TEST(Passes, ALineComputesTheSame) {
  for (const Op op : {Op::kConv2d, Op::kDepthwise, Op::kAvgPool, Op::kGlobalAvgPool}) {
    int lines = 0;
    for (uint64_t seed = 0; seed < 2000 && lines < 5; ++seed) {
      const Case drawn = gen::Draw(op, seed);
      if (drawn.M == 0 || drawn.N == 0 || drawn.x.size() > 4000) continue;
      const Case c = drawn.M == 1 ? drawn : slice::Pixel(drawn, drawn.M / 2);
      const std::optional<Case> line = LineOf(c);
      if (!line || line->window.kernel_h < 3) continue;
      ++lines;
      EXPECT_EQ(Validate(*line), "") << Describe(*line);
      EXPECT_EQ(line->window.kernel_w, 1);
      EXPECT_EQ(exact::Evaluate(*line), exact::Evaluate(c)) << Describe(c);
      const Case all = LineTaps(*line, slice::Range(0, line->window.kernel_h));
      EXPECT_EQ(all, *line) << Describe(c);
    }
    EXPECT_EQ(lines, 5) << Name(op);
  }
}

// --- What each pass offers, in its order --------------------------------------------------------

Case PoolOf(Op op, const Window& window) {
  Case c;
  c.op = op;
  c.window = window;
  c.N = window.in_c;
  c.x = Tensor(DType::kU8, ShapeOfX(c));
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(1 + i % 200));
  DeriveSizes(&c);
  return c;
}
Case ConvOf(const Window& window, int64_t channels) {
  Case c = PoolOf(Op::kMaxPool, window);
  c.op = Op::kConv2d;
  c.N = channels;
  c.w = Tensor(DType::kS8, ShapeOfW(c));
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, static_cast<int32_t>(1 + i % 100));
  DeriveSizes(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

TEST(WindowParametersPass, DropsAllThenEachThenTakesOneOff) {
  Case c = PoolOf(Op::kMaxPool, {.batch = 1,
                                 .in_h = 8,
                                 .in_w = 9,
                                 .in_c = 1,
                                 .kernel_h = 2,
                                 .kernel_w = 2,
                                 .stride_h = 3,
                                 .stride_w = 2,
                                 .pad_top = 2,
                                 .pad_bottom = 1,
                                 .pad_right = 3,
                                 .dilation_h = 2,
                                 .dilation_w = 3,
                                 .ceil_mode = true,
                                 .count_include_pad = true});
  using Change = std::function<void(Window&)>;
  const auto number = [](int64_t Window::* field, int64_t value) {
    return [=](Window& v) { v.*field = value; };
  };
  Cases expected;
  for (const Change& change : std::vector<Change>{
           [](Window& v) {
             v = {.batch = 1, .in_h = 8, .in_w = 9, .in_c = 1, .kernel_h = 2, .kernel_w = 2};
           },
           [](Window& v) { v.drop_padding(); }, number(&Window::pad_top, 0),
           number(&Window::pad_bottom, 0), number(&Window::pad_right, 0),
           number(&Window::dilation_h, 1), number(&Window::dilation_w, 1),
           number(&Window::stride_h, 1), number(&Window::stride_w, 1), number(&Window::pad_top, 1),
           number(&Window::pad_right, 2), number(&Window::dilation_w, 2),
           number(&Window::stride_h, 2)}) {
    Case& simpler = expected.emplace_back(c);
    change(simpler.window);
    DeriveSizes(&simpler);
  }
  ExpectCases(kWindowParameters, c, expected);
  ExpectCases(kWindowParameters, expected[0], {});
}

// With a stride of 1 there would be 2^26 outputs, for which no case has room.
TEST(WindowParametersPass, OffersNoMoreOutputsThanACaseMayHave) {
  constexpr int64_t kMany = int64_t{1} << 12;
  Case c = PoolOf(Op::kAvgPool, {.batch = 1, .in_h = 1, .in_w = 1, .in_c = 1});
  c.window.stride_h = kMany;
  c.window.pad_top = c.window.pad_bottom = c.window.pad_left = c.window.pad_right = kMany;
  DeriveSizes(&c);
  const Cases offered = Offered(kWindowParameters, c);
  for (const Case& candidate : offered) EXPECT_LE(candidate.M, int64_t{1} << 24);
  // All, the padding, each of the paddings; then one less of each of them and of the stride.
  ASSERT_EQ(offered.size(), 2U + 4 + 4 + 1);
  EXPECT_EQ(offered.back().window.stride_h, kMany - 1);
}

TEST(WindowOutputsPass, ChannelsImagesPixelsAndThenTheImage) {
  const Case c = PoolOf(Op::kMaxPool, {.batch = 2, .in_h = 5, .in_w = 4, .in_c = 3});
  Cases expected = Cut(c, slice::Channels, kOfThree) + Cut(c, slice::Batches, kOfTwo);
  for (int64_t m = 0; m < 40; ++m) expected.push_back(slice::Pixel(c, m));
  for (const int64_t lines : {2, 1}) {
    expected.push_back(slice::Crop(c, lines, 0, 0, 0));
    expected.push_back(slice::Crop(c, 0, lines, 0, 0));
  }
  for (const int64_t lines : {2, 1}) {
    expected.push_back(slice::Crop(c, 0, 0, lines, 0));
    expected.push_back(slice::Crop(c, 0, 0, 0, lines));
  }
  ExpectCases(kOutputs, c, expected);
  ExpectCases(kOutputs, PoolOf(Op::kMaxPool, {.batch = 1, .in_h = 1, .in_w = 1, .in_c = 1}), {});
  // One window over an image of two lines each way: half of them is one.
  const Case one = PoolOf(
      Op::kMaxPool, {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 1, .kernel_h = 2, .kernel_w = 2});
  const Cases lines{slice::Crop(one, 1, 0, 0, 0), slice::Crop(one, 0, 1, 0, 0),
                    slice::Crop(one, 1, 0, 0, 0), slice::Crop(one, 0, 1, 0, 0),
                    slice::Crop(one, 0, 0, 1, 0), slice::Crop(one, 0, 0, 0, 1),
                    slice::Crop(one, 0, 0, 1, 0), slice::Crop(one, 0, 0, 0, 1)};
  ExpectCases(kOutputs, one, lines);
}

TEST(WindowOutputsPass, OfALargeImageTheFirst64PixelsAreTried) {
  const Case c = PoolOf(Op::kMaxPool, {.batch = 1, .in_h = 1, .in_w = 66, .in_c = 1});
  int64_t pixels = 0;
  for (const Case& candidate : Offered(kOutputs, c)) pixels += candidate.M == 1;
  EXPECT_EQ(pixels, 64);
}

TEST(WindowOutputsPass, OfGroupsWholeOnesAndThenTheSameOutputsOfEach) {
  const auto conv = [](int64_t groups, int64_t channels) {
    return ConvOf({.batch = 1, .in_h = 1, .in_w = 1, .in_c = 2, .groups = groups}, channels);
  };
  const Case c = conv(2, 4);
  ExpectCases(kOutputs, c,
              Cut(c, slice::Channels, {{0, 1}, {2, 3}, {2, 3}, {0, 1}}) +
                  Cut(c, slice::Channels, {{0, 2}, {1, 3}, {1, 3}, {0, 2}}));
  const Case narrow = conv(2, 2);
  ExpectCases(kOutputs, narrow, Cut(narrow, slice::Channels, kOfTwo));
  const Case one_group = conv(1, 2);
  ExpectCases(kOutputs, one_group, Cut(one_group, slice::Channels, kOfTwo));
  ExpectCases(kOutputs, conv(1, 1), {});
  // A crash of a layer without outputs may need one group alone.
  const Case none = conv(2, 0);
  ExpectCases(kOutputs, none, Cut(none, slice::Channels, {{}, {}, {}, {}}));
}

// Taps [from, to) of five, the padding that is left on both sides and the lines of the image that
// go: the others see the same pixels as before.
struct Kept {
  int64_t from, to, pad_before, crop_before, pad_after, crop_after;
};
constexpr Kept kKept[] = {{0, 3, 3, 0, 0, 3}, {1, 4, 1, 0, 0, 1}, {2, 5, 0, 1, 1, 0},
                          {0, 1, 3, 0, 0, 7}, {1, 2, 1, 0, 0, 5}, {2, 3, 0, 1, 0, 3},
                          {3, 4, 0, 3, 0, 1}, {4, 5, 0, 5, 1, 0}, {1, 5, 1, 0, 1, 0},
                          {0, 4, 3, 0, 0, 1}};

TEST(WindowTermsPass, FewerTapsOverTheSamePixels) {
  for (const bool rows : {true, false}) {
    Window v{.batch = 1, .in_h = 1, .in_w = 1, .in_c = 1};
    (rows ? v.in_h : v.in_w) = 10;
    (rows ? v.kernel_h : v.kernel_w) = 5;
    (rows ? v.dilation_h : v.dilation_w) = 2;
    (rows ? v.pad_top : v.pad_left) = 3;
    (rows ? v.pad_bottom : v.pad_right) = 1;
    const Case c = ConvOf(v, 1);
    Cases expected;
    for (const Kept& kept : kKept) {
      const std::vector<int64_t> taps = slice::Range(kept.from, kept.to), all{0};
      Case s = rows ? slice::Taps(c, taps, all) : slice::Taps(c, all, taps);
      (rows ? s.window.pad_top : s.window.pad_left) = kept.pad_before;
      (rows ? s.window.pad_bottom : s.window.pad_right) = kept.pad_after;
      expected.push_back(rows ? slice::Crop(s, kept.crop_before, kept.crop_after, 0, 0)
                              : slice::Crop(s, 0, 0, kept.crop_before, kept.crop_after));
    }
    ExpectCases(kTerms, c, expected);
  }
}

TEST(WindowTermsPass, FewerInputChannelsOfConvolutionsAlone) {
  const Window two{.batch = 1, .in_h = 1, .in_w = 1, .in_c = 2};
  const Case c = ConvOf(two, 1);
  ExpectCases(kTerms, c,
              Cut(c, [](const Case& s, slice::Places at) { return slice::Terms(s, at); }, kOfTwo));
  ExpectCases(kTerms, PoolOf(Op::kMaxPool, two), {});
  Window grouped = two;
  grouped.groups = 2;
  ExpectCases(kTerms, ConvOf(grouped, 2), {});
  Window image = two;
  image.in_h = image.kernel_h = 2;
  ExpectCases(kTerms, PoolOf(Op::kGlobalAvgPool, image), {});
}

TEST(WindowLinePass, StandsTheTapsBelowEachOtherAndTakesFewer) {
  Case c = ConvOf({.batch = 1,
                   .in_h = 3,
                   .in_w = 4,
                   .in_c = 2,
                   .kernel_h = 2,
                   .kernel_w = 2,
                   .stride_h = 5,
                   .stride_w = 6,
                   .dilation_h = 2,
                   .dilation_w = 3},
                  1);
  ASSERT_EQ(c.M, 1);
  Case line = ConvOf({.batch = 1, .in_h = 4, .in_w = 1, .in_c = 2, .kernel_h = 4}, 1);
  const int32_t corners[] = {1, 2, 7, 8, 17, 18, 23, 24};
  for (int64_t i = 0; i < 8; ++i) line.x.SetInt(i, corners[i]);
  Cases expected{line};
  Shrink(4, [&](const std::vector<int64_t>& keep) {
    expected.push_back(LineTaps(line, keep));
    return false;
  });
  ExpectCases(kWindowLine, c, expected);
  const Case two = LineTaps(line, std::vector<int64_t>{1, 3});
  EXPECT_EQ(two.window.kernel_h, 2);
  EXPECT_EQ(two.window.in_h, 2);
  EXPECT_EQ(two.K, 4);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(two.x.IntAt(i), corners[i < 2 ? 2 + i : 4 + i]);
    EXPECT_EQ(two.w.IntAt(i), i < 2 ? 3 + i : 5 + i);
  }
}

TEST(WindowLinePass, NeedsOneWindowWithoutPadding) {
  EXPECT_FALSE(LineOf(PoolOf(Op::kMaxPool, {.batch = 1, .in_h = 2, .in_w = 1, .in_c = 1})));
  EXPECT_FALSE(LineOf(PoolOf(Op::kMaxPool, {.batch = 2, .in_h = 1, .in_w = 1, .in_c = 1})));
  const Window padded{.batch = 1, .in_h = 2, .in_w = 1, .in_c = 1, .kernel_h = 3, .pad_bottom = 1};
  EXPECT_FALSE(LineOf(PoolOf(Op::kMaxPool, padded)));
  Case linear;
  linear.M = linear.N = 1;
  linear.x = Tensor(DType::kU8, {1, 0});
  linear.w = Tensor(DType::kS8, {1, 0});
  EXPECT_FALSE(LineOf(linear));
  // Padding that no tap sees is dropped.
  const Window unseen{.batch = 1, .in_h = 1, .in_w = 1, .in_c = 1, .stride_h = 2, .pad_bottom = 1};
  const std::optional<Case> line = LineOf(PoolOf(Op::kMaxPool, unseen));
  ASSERT_TRUE(line);
  EXPECT_FALSE(line->window.has_padding());
}

}  // namespace
}  // namespace qualm::triage
