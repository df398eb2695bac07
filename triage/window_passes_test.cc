// SPDX-License-Identifier: Apache-2.0
// How far the passes bring cases down; without attribution, which has tests of its own.

#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "core/slice.h"
#include "oracles/exact/exact.h"
#include "oracles/headroom/headroom.h"
#include "properties/gen/gen.h"
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

}  // namespace
}  // namespace qualm::triage
