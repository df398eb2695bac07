// SPDX-License-Identifier: Apache-2.0
// What the properties of windows ask about, and where they say nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/slice.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "properties/spoiled_subject.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

std::string WhyNot(const char* claim, const Case& c) { return AskedBy(claim, c).verdict.reason; }

// Whether the property fails if output i of a run is wrong.
bool Sees(const char* claim, const Case& c, size_t run, int64_t i) {
  Spoiled subject([&](size_t at, const Case&, const RunContext&, Outcome& outcome) {
    if (at == run) Spoil(outcome.y, i);
  });
  return Judge(*FindProperty(claim), c, subject).failed();
}

// Codes that all differ as far as there are any.
Case WindowOf(Op op, const Window& window, int64_t channels) {
  Case c;
  c.op = op;
  c.N = channels;
  c.window = window;
  c.x = Tensor(DType::kU8, {window.batch, window.in_h, window.in_w, window.in_c});
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(i * 7 % 256));
  if (HasWeights(op)) {
    c.w = Tensor(DType::kS8,
                 {channels, window.kernel_h, window.kernel_w, window.in_c / window.groups});
    for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, static_cast<int32_t>(i * 5 % 256) - 128);
    c.out_dtype = DType::kS32;
  }
  DeriveSizes(&c);
  OpenClamp(&c);
  return c;
}

// --- identity_weights ---------------------------------------------------------------------------

TEST(IdentityWeights, HaveOne1ForEachOutput) {
  std::set<int64_t> places;
  for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise}) {
    ForCases(*FindProperty("identity_weights"), op, 20, [&](const Case& c, const auto& asked) {
      const Case& one = asked[0].first;
      EXPECT_EQ(one.relu, c.relu);
      EXPECT_EQ(one.requant, Requant::kExact);
      EXPECT_EQ(one.out_q.scale[0], c.x_q.scale[0]);
      EXPECT_EQ(one.x, c.x);
      EXPECT_EQ(one.out_dtype, c.out_dtype == DType::kF32 ? DType::kS32 : c.out_dtype);
      for (int64_t n = 0; n < c.N; ++n) {
        EXPECT_EQ(one.w_q.scale_at(n), 1.0f);
        int64_t sum = 0, place = -1;
        for (int64_t k = 0; k < c.K; ++k) {
          const int32_t weight = one.w.IntAt(n * c.K + k) - one.w_q.zero_point_at(n);
          EXPECT_TRUE(weight == 0 || weight == 1);
          if (weight == 1) place = k;
          sum += weight;
        }
        EXPECT_EQ(sum, 1);
        places.insert(place);
      }
    });
  }
  EXPECT_GT(places.size(), 20u) << "now this weight, now that";
}

TEST(IdentityWeights, KeepZeroPointsThatAreFollowedByACode) {
  for (const auto& [zero, kept] : std::vector<std::pair<int32_t, bool>>{
           {-129, false}, {-128, true}, {5, true}, {126, true}, {127, false}, {128, false}}) {
    Case c = WindowOf(Op::kConv2d, {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 2}, 3);
    c.per_channel = true;
    c.w_q = {{1, 1, 1}, {0, zero, 0}};
    const Case one = AskedBy("identity_weights", c).problems[0];
    EXPECT_EQ(one.w_q.zero_point, (std::vector<int32_t>{0, kept ? zero : 0, 0})) << zero;
  }
  Case none;
  none.op = Op::kLinear;
  none.M = none.N = 1;
  none.x = Tensor(DType::kU8, {1, 0});
  none.w = Tensor(DType::kS8, {1, 0});
  EXPECT_EQ(AskedBy("identity_weights", none).verdict.judgement, Judgement::kVacuous);
}

// The code of real 0 stands for the padding.
TEST(IdentityWeights, SeePaddingAndZeroPoints) {
  Case c = WindowOf(Op::kConv2d,
                    {.batch = 1,
                     .in_h = 1,
                     .in_w = 1,
                     .in_c = 1,
                     .kernel_h = 1,
                     .kernel_w = 2,
                     .pad_left = 1,
                     .pad_right = 1},
                    2);
  c.x_q.zero_point = {9};
  c.x.SetInt(0, 50);
  c.out_dtype = DType::kU8;
  OpenClamp(&c);
  c.out_q.zero_point = {100};
  ASSERT_EQ(c.M, 2);
  for (const int64_t i : {0, 1, 2, 3}) EXPECT_TRUE(Sees("identity_weights", c, 0, i)) << i;
  EXPECT_EQ(AskedBy("identity_weights", c).verdict.judgement, Judgement::kPassed);
  c.out_dtype = DType::kS32;  // which has no zero point, whatever stands there
  OpenClamp(&c);
  EXPECT_EQ(AskedBy("identity_weights", c).verdict.judgement, Judgement::kPassed);
}

// --- one_by_one_is_linear -----------------------------------------------------------------------

TEST(OneByOneIsLinear, TakesEachTapInItsTurn) {
  std::set<std::pair<int32_t, int32_t>> taps;
  for (int32_t i = 0; i < 120; ++i) {
    Case c = WindowOf(Op::kConv2d,
                      {.batch = 1,
                       .in_h = 4,
                       .in_w = 4,
                       .in_c = 2,
                       .kernel_h = 2,
                       .kernel_w = 3,
                       .pad_top = 1,
                       .pad_left = 1,
                       .groups = 2},
                      4);
    c.x.SetInt(0, i);
    const Asked asked = AskedBy("one_by_one_is_linear", c);
    ASSERT_EQ(asked.problems.size(), 2u);
    const Case& linear = asked.problems[0];
    const Case& conv = asked.problems[1];
    EXPECT_EQ(linear.op, Op::kLinear);
    EXPECT_EQ(conv.window.kernel_h, 1);
    EXPECT_EQ(conv.window.kernel_w, 1);
    EXPECT_FALSE(conv.window.has_padding());
    EXPECT_EQ(conv.window.groups, 1);
    EXPECT_EQ(linear.M, 16) << "every pixel";
    EXPECT_EQ(linear.N, 2) << "of the first group";
    EXPECT_EQ(linear.K, 1);
    taps.insert({linear.w.IntAt(0), linear.w.IntAt(1)});
  }
  std::set<std::pair<int32_t, int32_t>> all;
  const Case c = WindowOf(
      Op::kConv2d,
      {.batch = 1, .in_h = 4, .in_w = 4, .in_c = 2, .kernel_h = 2, .kernel_w = 3, .groups = 2}, 4);
  for (int64_t tap = 0; tap < 6; ++tap) all.insert({c.w.IntAt(tap), c.w.IntAt(6 + tap)});
  EXPECT_EQ(taps, all);
}

TEST(OneByOneIsLinear, WithoutInputChannelsToo) {
  const Case c =
      WindowOf(Op::kConv2d, {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 0, .kernel_h = 2}, 2);
  EXPECT_EQ(AskedBy("one_by_one_is_linear", c).verdict.judgement, Judgement::kPassed);
}

// --- What is too large --------------------------------------------------------------------------

constexpr const char* kTooLarge = "the case to compare with would be too large";

// A convolution of zeros.
Case ZerosOf(const Window& window, int64_t channels) {
  Case c;
  c.op = Op::kConv2d;
  c.N = channels;
  c.window = window;
  c.x = Tensor(DType::kU8, {window.batch, window.in_h, window.in_w, window.in_c});
  c.w = Tensor(DType::kS8, {channels, window.kernel_h, window.kernel_w, window.in_c});
  c.out_dtype = DType::kS32;
  DeriveSizes(&c);
  OpenClamp(&c);
  return c;
}

TEST(TooLarge, OneTapOfManySeesEveryPixel) {
  const Window window{
      .batch = 16, .in_h = 512, .in_w = 512, .in_c = 1, .kernel_h = 512, .kernel_w = 512};
  EXPECT_EQ(WhyNot("one_by_one_is_linear", ZerosOf(window, 8)), kTooLarge);
}

TEST(TooLarge, PaddedImages) {
  for (const bool vertical : {false, true}) {
    for (const bool before : {false, true}) {
      Window v{.batch = 1, .in_h = 1, .in_w = 1, .in_c = 16};
      (vertical ? before ? v.pad_top : v.pad_bottom : before ? v.pad_left : v.pad_right) = 1 << 20;
      (vertical ? v.stride_h : v.stride_w) = 1 << 20;
      EXPECT_EQ(WhyNot("padding_is_explicit", ZerosOf(v, 1)), kTooLarge);
    }
  }
}

// 512 x 512 taps of each channel, all but four of them zeros.
TEST(TooLarge, StuffedKernels) {
  const char* const claim = "dilation_is_zero_stuffed";
  Window v{.batch = 1,
           .in_h = 512,
           .in_w = 512,
           .in_c = 1,
           .kernel_h = 2,
           .kernel_w = 2,
           .dilation_h = 511,
           .dilation_w = 511};
  EXPECT_EQ(WhyNot(claim, ZerosOf(v, 65)), kTooLarge) << "2^24 weights and some";
  EXPECT_EQ(WhyNot(claim, ZerosOf(v, 22)), "");
  v.in_h = v.in_w = 543;
  EXPECT_EQ(WhyNot(claim, ZerosOf(v, 1)), kTooLarge) << "2^10 pixels see 2^18 taps each";
}

// --- padding_is_explicit ------------------------------------------------------------------------

Window Padded() {
  return {.batch = 1,
          .in_h = 3,
          .in_w = 3,
          .in_c = 2,
          .kernel_h = 2,
          .kernel_w = 2,
          .pad_top = 1,
          .pad_right = 1};
}

TEST(PaddingIsExplicit, WherePaddingHasACodeAndCounts) {
  const char* const claim = "padding_is_explicit";
  Case conv = WindowOf(Op::kConv2d, Padded(), 2);
  const Asked asked = AskedBy(claim, conv);
  ASSERT_EQ(asked.problems.size(), 2u);
  EXPECT_FALSE(asked.problems[1].window.has_padding());
  EXPECT_EQ(asked.problems[1].window.in_h, 4);
  EXPECT_EQ(asked.problems[1].window.in_w, 4);
  for (const auto& [zero, judged] :
       std::vector<std::pair<int32_t, bool>>{{-1, false}, {0, true}, {255, true}, {256, false}}) {
    conv.x_q.zero_point = {zero};
    EXPECT_EQ(WhyNot(claim, conv), judged ? "" : "real 0 is not a code of x") << zero;
    Case pool = WindowOf(Op::kMaxPool, Padded(), 2);
    pool.x_q.zero_point = pool.out_q.zero_point = {zero};
    EXPECT_EQ(WhyNot(claim, pool), "") << "the smallest code never wins";
    EXPECT_EQ(AskedBy(claim, pool).problems[1].x.IntAt(0), 0);
  }
  Window no_channels = Padded();
  no_channels.in_c = 0;
  EXPECT_EQ(WhyNot(claim, WindowOf(Op::kConv2d, no_channels, 2)), "") << "all sums are empty";
  Window none = Padded();
  none.drop_padding();
  EXPECT_EQ(WhyNot(claim, WindowOf(Op::kConv2d, none, 2)), "there is no padding");
  for (const bool counts : {false, true}) {
    Window window = Padded();
    window.count_include_pad = counts;
    EXPECT_EQ(WhyNot(claim, WindowOf(Op::kAvgPool, window, 2)),
              counts ? "" : "padding does not count");
    window.ceil_mode = true;
    EXPECT_EQ(WhyNot(claim, WindowOf(Op::kAvgPool, window, 2)),
              "ceil mode looks at where the padding ends");
  }
}

// --- groups_are_separate ------------------------------------------------------------------------

TEST(GroupsAreSeparate, FromTwoGroupsOn) {
  for (const int64_t groups : {1, 2, 4}) {
    const Case c =
        WindowOf(Op::kConv2d, {.batch = 2, .in_h = 2, .in_w = 2, .in_c = 4, .groups = groups}, 8);
    const Asked asked = AskedBy("groups_are_separate", c);
    EXPECT_EQ(asked.verdict.reason, groups == 1 ? "there is one group" : "");
    ASSERT_EQ(asked.problems.size(), groups == 1 ? 0u : 3u);
    if (groups == 1) continue;
    EXPECT_EQ(asked.problems[1].N, 8 / groups);
    EXPECT_FALSE(asked.problems[1] == asked.problems[2]) << "another group too";
    for (const size_t run : {size_t{1}, size_t{2}}) {
      for (int64_t i = 0; i < 8 * 8 / groups; ++i)
        EXPECT_TRUE(Sees("groups_are_separate", c, run, i)) << run << " " << i;
    }
  }
}

// --- depthwise_is_grouped, global_is_whole_window -----------------------------------------------

TEST(OtherOperations, AreAsked) {
  const Case depthwise =
      WindowOf(Op::kDepthwise, {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 3, .groups = 3}, 3);
  const Asked conv = AskedBy("depthwise_is_grouped", depthwise);
  ASSERT_EQ(conv.problems.size(), 2u);
  EXPECT_EQ(conv.problems[0].op, Op::kDepthwise);
  EXPECT_EQ(conv.problems[1].op, Op::kConv2d);
  const Case global =
      WindowOf(Op::kGlobalAvgPool,
               {.batch = 1, .in_h = 2, .in_w = 3, .in_c = 3, .kernel_h = 2, .kernel_w = 3}, 3);
  const Asked pool = AskedBy("global_is_whole_window", global);
  ASSERT_EQ(pool.problems.size(), 2u);
  EXPECT_EQ(pool.problems[1].op, Op::kAvgPool);
}

// --- dilation_is_zero_stuffed -------------------------------------------------------------------

TEST(DilationIsZeroStuffed, InEitherDirection) {
  const char* const claim = "dilation_is_zero_stuffed";
  for (const int64_t dilation_h : {1, 2, 3}) {
    for (const int64_t dilation_w : {1, 2}) {
      for (const int64_t kernel_h : {1, 2, 3}) {
        for (const int64_t kernel_w : {1, 2}) {
          Case c = WindowOf(Op::kConv2d,
                            {.batch = 1,
                             .in_h = 8,
                             .in_w = 5,
                             .in_c = 1,
                             .kernel_h = kernel_h,
                             .kernel_w = kernel_w,
                             .dilation_h = dilation_h,
                             .dilation_w = dilation_w},
                            2);
          c.w_q.zero_point = {3};
          const Asked asked = AskedBy(claim, c);
          const bool dilated = (dilation_h > 1 && kernel_h > 1) || (dilation_w > 1 && kernel_w > 1);
          EXPECT_EQ(asked.verdict.reason, dilated ? "" : "nothing is dilated") << Describe(c);
          if (!dilated) continue;
          const Case& stuffed = asked.problems[1];
          EXPECT_EQ(stuffed.window.kernel_h, (kernel_h - 1) * dilation_h + 1);
          EXPECT_EQ(stuffed.window.kernel_w, (kernel_w - 1) * dilation_w + 1);
          EXPECT_EQ(stuffed.window.dilation_h, 1);
          EXPECT_EQ(stuffed.window.dilation_w, 1);
          EXPECT_EQ(std::ranges::count(stuffed.w.bytes(), 3) - std::ranges::count(c.w.bytes(), 3),
                    stuffed.w.size() - c.w.size());
        }
      }
    }
  }
  for (const auto& [zero, judged] : std::vector<std::pair<int32_t, bool>>{
           {-129, false}, {-128, true}, {127, true}, {128, false}}) {
    for (const size_t at : {size_t{0}, size_t{1}, size_t{2}}) {
      Case c = WindowOf(Op::kConv2d,
                        {.batch = 1,
                         .in_h = 5,
                         .in_w = 5,
                         .in_c = 1,
                         .kernel_h = 2,
                         .kernel_w = 2,
                         .dilation_h = 2,
                         .dilation_w = 2},
                        3);
      c.per_channel = true;
      c.w_q = {{1, 1, 1}, {0, 0, 0}};
      c.w_q.zero_point[at] = zero;
      EXPECT_EQ(WhyNot(claim, c), judged ? "" : "real 0 is not a code of w") << zero;
    }
  }
}

// --- stride_is_subsample ------------------------------------------------------------------------

TEST(StrideIsSubsample, ComparesTheOutputsThatTheStrideTakes) {
  const char* const claim = "stride_is_subsample";
  const Case c = WindowOf(
      Op::kConv2d, {.batch = 2, .in_h = 5, .in_w = 4, .in_c = 1, .stride_h = 2, .stride_w = 3}, 2);
  ASSERT_EQ(c.M, 2 * 3 * 2);
  const Asked asked = AskedBy(claim, c);
  ASSERT_EQ(asked.problems.size(), 2u);
  const Case& dense = asked.problems[1];
  EXPECT_EQ(dense.window.stride_h, 1);
  EXPECT_EQ(dense.window.stride_w, 1);
  ASSERT_EQ(dense.M, 2 * 5 * 4);
  for (int64_t i = 0; i < dense.M * 2; ++i) {
    const int64_t pixel = i / 2 % 20;
    const bool taken = pixel / 4 % 2 == 0 && pixel % 4 % 3 == 0;
    EXPECT_EQ(Sees(claim, c, 1, i), taken) << i;
  }
  for (int64_t i = 0; i < c.M * 2; ++i) EXPECT_TRUE(Sees(claim, c, 0, i)) << i;
}

TEST(StrideIsSubsample, OfWindowsThatAreThere) {
  const char* const claim = "stride_is_subsample";
  EXPECT_EQ(WhyNot(claim, WindowOf(Op::kConv2d, {.batch = 1, .in_h = 3, .in_w = 3, .in_c = 1}, 1)),
            "the stride skips nothing");
  EXPECT_EQ(WhyNot(claim, WindowOf(Op::kConv2d,
                                   {.batch = 1,
                                    .in_h = 2,
                                    .in_w = 1,
                                    .in_c = 1,
                                    .kernel_h = 2,
                                    .stride_h = 2,
                                    .stride_w = 2},
                                   1)),
            "the stride skips nothing");
  // Behind the image lies padding, which the stride steps over.
  EXPECT_EQ(
      WhyNot(claim,
             WindowOf(Op::kMaxPool,
                      {.batch = 1, .in_h = 1, .in_w = 3, .in_c = 1, .stride_w = 5, .pad_right = 2},
                      1)),
      "a window in between sees only padding");
  // A kernel that does not fit the image has no windows, in ceil mode neither.
  EXPECT_EQ(WhyNot(claim, WindowOf(Op::kMaxPool,
                                   {.batch = 1,
                                    .in_h = 1,
                                    .in_w = 2,
                                    .in_c = 1,
                                    .kernel_w = 3,
                                    .stride_w = 2,
                                    .ceil_mode = true},
                                   1)),
            "the stride skips nothing");
  // In ceil mode the last window begins in the image and ends behind it: with stride 1 there is
  // none.
  const Case ceil = WindowOf(Op::kMaxPool,
                             {.batch = 1,
                              .in_h = 6,
                              .in_w = 6,
                              .in_c = 1,
                              .kernel_h = 3,
                              .kernel_w = 3,
                              .stride_h = 2,
                              .stride_w = 2,
                              .ceil_mode = true},
                             1);
  ASSERT_EQ(ceil.M, 9);
  const Asked asked = AskedBy(claim, ceil);
  EXPECT_EQ(asked.verdict.judgement, Judgement::kPassed);
  EXPECT_FALSE(asked.problems[1].window.ceil_mode);
  for (const int64_t i : {0, 1, 3, 4}) EXPECT_TRUE(Sees(claim, ceil, 0, i)) << i;
  for (const int64_t i : {2, 5, 6, 7, 8}) EXPECT_FALSE(Sees(claim, ceil, 0, i)) << i;
}

// --- pools --------------------------------------------------------------------------------------

TEST(ConstantsPool, GiveEachChannelOfEachImageACode) {
  std::set<int32_t> met;
  bool clamped = false, opened = false;
  for (const Op op : {Op::kMaxPool, Op::kAvgPool, Op::kGlobalAvgPool}) {
    ForCases(*FindProperty("constants_pool_to_themselves"), op, 25,
             [&](const Case& c, const auto& asked) {
               const Case& flat = asked[0].first;
               EXPECT_EQ(flat.out_q, flat.x_q);
               EXPECT_EQ(flat.x_q, c.x_q);
               EXPECT_EQ(flat.out_dtype, c.x.dtype());
               EXPECT_FALSE(flat.window.count_include_pad);
               const CodeRange range = RangeOf(flat.out_dtype);
               const bool open = flat.out_min == range.min && flat.out_max == range.max;
               if (c.out_dtype == flat.out_dtype) {
                 EXPECT_EQ(flat.out_min, c.out_min);
                 EXPECT_EQ(flat.out_max, c.out_max);
                 clamped |= !open;
               } else {
                 EXPECT_TRUE(open);
                 opened = true;
               }
               const int64_t pixels = c.window.in_h * c.window.in_w;
               for (int64_t i = 0; i < flat.x.size(); ++i) {
                 const int64_t plane = i / (pixels * c.N) * pixels * c.N + i % c.N;
                 ASSERT_EQ(flat.x.IntAt(i), flat.x.IntAt(plane));
                 met.insert(flat.x.IntAt(i) - range.min);
               }
             });
  }
  EXPECT_TRUE(clamped && opened);
  EXPECT_TRUE(met.contains(0) && met.contains(255)) << "the ends of the type";
  EXPECT_GT(met.size(), 40u) << "and what lies between them";
  // Each plane has a code of its own.
  const Case c = WindowOf(Op::kMaxPool, {.batch = 4, .in_h = 2, .in_w = 2, .in_c = 5}, 5);
  const Case flat = AskedBy("constants_pool_to_themselves", c).problems[0];
  std::set<int32_t> of_images, of_channels;
  for (int64_t image = 0; image < 4; ++image) of_images.insert(flat.x.IntAt(image * 20));
  for (int64_t channel = 0; channel < 5; ++channel) of_channels.insert(flat.x.IntAt(channel));
  int lowest = 0, highest = 0;
  for (int32_t i = 0; i < 10; ++i) {
    Case varied = c;
    varied.x.SetInt(0, i);
    const Case constant = AskedBy("constants_pool_to_themselves", varied).problems[0];
    for (int64_t plane = 0; plane < 20; ++plane) {
      const int32_t code = constant.x.IntAt(plane / 5 * 20 + plane % 5);
      lowest += code == 0;
      highest += code == 255;
    }
  }
  EXPECT_GT(lowest, 25) << "a quarter of 200";
  EXPECT_GT(highest, 25);
  EXPECT_LT(lowest, 80);
  EXPECT_LT(highest, 80);
  EXPECT_GT(of_images.size(), 1u);
  EXPECT_GT(of_channels.size(), 1u);
}

TEST(CountsOnlyPadding, LeavesThePaddingOut) {
  for (const bool counts : {false, true}) {
    Window window = Padded();
    window.count_include_pad = counts;
    const Asked asked = AskedBy("counts_only_padding_that_is", WindowOf(Op::kAvgPool, window, 2));
    ASSERT_EQ(asked.problems.size(), 2u);
    for (const size_t run : {size_t{0}, size_t{1}}) {
      EXPECT_FALSE(asked.problems[run].window.has_padding());
      EXPECT_EQ(asked.problems[run].window.count_include_pad, run == 1);
      EXPECT_EQ(asked.problems[run].M, 4);
    }
  }
  const Case thin = WindowOf(
      Op::kAvgPool,
      {.batch = 1, .in_h = 1, .in_w = 1, .in_c = 1, .kernel_h = 2, .kernel_w = 1, .pad_top = 1}, 1);
  EXPECT_EQ(WhyNot("counts_only_padding_that_is", thin), "the output is empty");
}

}  // namespace
}  // namespace qualm
