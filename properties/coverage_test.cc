// SPDX-License-Identifier: Apache-2.0
// Each hazard at its edge: a case that just reaches it, and cases that differ in one number and do
// not.
#include "properties/coverage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/layer_test_util.h"
#include "core/slice.h"
#include "oracles/headroom/headroom.h"
#include "properties/gen/gen.h"

namespace qualm {
namespace {

bool Has(const Case& c, Hazard hazard) {
  EXPECT_EQ(Validate(c), "");
  const std::vector<Hazard> hazards = HazardsOf(c);
  EXPECT_LE(std::ranges::count(hazards, hazard), 1);
  return std::ranges::count(hazards, hazard) > 0;
}

void Fill(Tensor& tensor, int32_t code) {
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.SetInt(i, code);
}

Case Linear(int64_t m, int64_t n, int64_t k) {
  Case c = ZeroLayer(m, n, k);
  Fill(c.x, 1);
  Fill(c.w, 1);
  return c;
}

Case Elements(Op op, int64_t m, int64_t n) {
  Case c;
  c.op = op;
  c.M = m;
  c.N = n;
  const DType dtype = op == Op::kQuantize ? DType::kF32 : DType::kU8;
  c.x = Tensor(dtype, {m, n});
  if (op == Op::kQuantize) {
    std::ranges::fill(c.x.as<float>(), 1.0f);
  } else {
    Fill(c.x, 1);
  }
  if (HasTwoInputs(op)) c.w = c.x;
  return c;
}

// x and w of the window's sizes, all codes 1.
Case Windowed(Op op, const Window& window, int64_t n) {
  Case c;
  c.op = op;
  c.window = window;
  c.N = n;
  const Window& v = c.window;
  c.x = Tensor(DType::kU8, {v.batch, v.in_h, v.in_w, v.in_c});
  Fill(c.x, 1);
  if (HasWeights(op)) {
    c.w = Tensor(DType::kS8, {n, v.kernel_h, v.kernel_w, v.in_c / v.groups});
    Fill(c.w, 1);
  }
  DeriveSizes(&c);
  return c;
}

constexpr Window kImage{.batch = 1, .in_h = 8, .in_w = 8, .in_c = 4};

TEST(Hazards, TailsStandBehindAFullBlock) {
  for (const auto& [k, tail] : std::vector<std::pair<int64_t, bool>>{
           {3, false}, {4, false}, {5, true}, {7, true}, {8, false}, {9, true}})
    EXPECT_EQ(Has(Linear(1, 1, k), Hazard::kKTail), tail) << k;
  for (const auto& [n, tail] : std::vector<std::pair<int64_t, bool>>{
           {7, false}, {8, false}, {9, true}, {15, true}, {16, false}, {17, true}})
    EXPECT_EQ(Has(Linear(1, n, 1), Hazard::kNTail), tail) << n;
  for (const auto& [m, tail] :
       std::vector<std::pair<int64_t, bool>>{{3, false}, {4, false}, {5, true}, {8, false}})
    EXPECT_EQ(Has(Linear(m, 1, 1), Hazard::kMTail), tail) << m;
}

TEST(Hazards, EmptyMeansThatADimensionIsZero) {
  EXPECT_FALSE(Has(Linear(1, 1, 1), Hazard::kEmpty));
  EXPECT_TRUE(Has(Linear(0, 1, 1), Hazard::kEmpty));
  EXPECT_TRUE(Has(Linear(1, 0, 1), Hazard::kEmpty));
  EXPECT_TRUE(Has(Linear(1, 1, 0), Hazard::kEmpty));
  EXPECT_FALSE(Has(Linear(130, 0, 1), Hazard::kLongM)) << "nothing is computed";
  Window v = kImage;
  v.pad_top = 1;
  v.kernel_h = 2;
  Case none = Windowed(Op::kConv2d, v, 0);
  none.x_q.zero_point = {5};
  EXPECT_FALSE(Has(none, Hazard::kPadding));
  EXPECT_FALSE(Has(Elements(Op::kAdd, 1, 1), Hazard::kEmpty)) << "which has no K";
}

TEST(Hazards, AZeroPointPairNeedsBoth) {
  for (Case c : {Linear(1, 2, 1), Elements(Op::kAdd, 1, 1)}) {
    EXPECT_FALSE(Has(c, Hazard::kZeroPointPair));
    c.x_q.zero_point = {1};
    EXPECT_FALSE(Has(c, Hazard::kZeroPointPair));
    c.w_q.zero_point = {-1};
    EXPECT_TRUE(Has(c, Hazard::kZeroPointPair));
    c.x_q.zero_point = {0};
    EXPECT_FALSE(Has(c, Hazard::kZeroPointPair));
  }
  Case c = Linear(1, 2, 1);
  c.per_channel = true;
  c.w_q.scale = {1, 1};
  c.w_q.zero_point = {0, 5};
  c.x_q.zero_point = {3};
  EXPECT_TRUE(Has(c, Hazard::kZeroPointPair)) << "of any channel";
}

TEST(Hazards, SpecialFloatsStandAnywhere) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const auto& [value, special] :
       std::vector<std::pair<float, bool>>{{1.0f, false},
                                           {0.0f, false},
                                           {0x1p-126f, false},
                                           {-0.0f, true},
                                           {0x1p-127f, true},
                                           {kInf, true},
                                           {-kInf, true},
                                           {std::numeric_limits<float>::quiet_NaN(), true}}) {
    Case c = Elements(Op::kQuantize, 1, 2);
    c.x.as<float>()[1] = value;
    EXPECT_EQ(Has(c, Hazard::kSpecialFloat), special) << value;
  }
  const auto denormal = [](auto member) {
    Case c = Linear(1, 1, 1);
    member(c) = {0x1p-130f};
    return Has(c, Hazard::kSpecialFloat);
  };
  EXPECT_TRUE(denormal([](Case& c) -> auto& { return c.x_q.scale; }));
  EXPECT_TRUE(denormal([](Case& c) -> auto& { return c.w_q.scale; }));
  EXPECT_TRUE(denormal([](Case& c) -> auto& { return c.out_q.scale; }));
  EXPECT_TRUE(denormal([](Case& c) -> auto& { return c.bias.emplace(); }));
  EXPECT_FALSE(Has(Linear(1, 1, 1), Hazard::kSpecialFloat));
  Case bias = Linear(1, 2, 1);
  bias.bias = {{1, 2}};
  EXPECT_FALSE(Has(bias, Hazard::kSpecialFloat));
}

TEST(Hazards, PerChannelNeedsTwoChannels) {
  for (const int64_t n : {1, 2}) {
    Case c = Linear(1, n, 1);
    EXPECT_FALSE(Has(c, Hazard::kPerChannel));
    c.per_channel = true;
    c.w_q.scale.assign(static_cast<size_t>(n), 1.0f);
    c.w_q.zero_point.assign(static_cast<size_t>(n), 0);
    EXPECT_EQ(Has(c, Hazard::kPerChannel), n == 2);
  }
}

TEST(Hazards, ARunOfSmallestCodesStaysInItsRow) {
  const auto run = [](std::vector<int32_t> x, std::vector<int32_t> w) {
    Case c = Linear(2, 2, 3);
    for (int64_t i = 0; i < 6; ++i) {
      c.x.SetInt(i, x[static_cast<size_t>(i)]);
      c.w.SetInt(i, w[static_cast<size_t>(i)]);
    }
    return Has(c, Hazard::kMinCodeRun);
  };
  const std::vector<int32_t> none{1, 1, 1, 1, 1, 1};
  EXPECT_TRUE(run({0, 0, 1, 1, 1, 1}, {-128, -128, 1, 1, 1, 1}));
  EXPECT_TRUE(run({1, 1, 1, 1, 0, 0}, {1, 1, 1, 1, -128, -128})) << "the last two";
  EXPECT_FALSE(run({0, 0, 1, 1, 1, 1}, none)) << "sums need both";
  EXPECT_FALSE(run(none, {-128, -128, 1, 1, 1, 1}));
  EXPECT_FALSE(run({1, 1, 0, 0, 1, 1}, {-128, -128, 1, 1, 1, 1})) << "across the end of a row";
  EXPECT_FALSE(run({0, 1, 0, 1, 0, 1}, {-128, -128, 1, 1, 1, 1}));
  EXPECT_TRUE(run({0, 1, 0, 0, 0, 1}, {-128, 1, -128, -128, -128, 1}));
  Case add = Elements(Op::kAdd, 2, 2);
  EXPECT_FALSE(Has(add, Hazard::kMinCodeRun));
  add.x.SetInt(1, 0);
  add.x.SetInt(2, 0);
  EXPECT_FALSE(Has(add, Hazard::kMinCodeRun)) << "two rows";
  add.x.SetInt(3, 0);
  EXPECT_TRUE(Has(add, Hazard::kMinCodeRun));
  EXPECT_FALSE(Has(Elements(Op::kQuantize, 1, 4), Hazard::kMinCodeRun)) << "floats are no codes";
  Case pool = Windowed(Op::kMaxPool, {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 2}, 2);
  EXPECT_FALSE(Has(pool, Hazard::kMinCodeRun));
  pool.x.SetInt(3, 0);
  pool.x.SetInt(4, 0);
  EXPECT_FALSE(Has(pool, Hazard::kMinCodeRun)) << "across lines of the image";
  pool.x.SetInt(3, 1);
  pool.x.SetInt(4, 1);
  pool.x.SetInt(1, 0);
  pool.x.SetInt(2, 0);
  EXPECT_TRUE(Has(pool, Hazard::kMinCodeRun)) << "two pixels of one line";
  pool.x.SetInt(1, 1);
  pool.x.SetInt(3, 0);
  EXPECT_TRUE(Has(pool, Hazard::kMinCodeRun));
  Case concat = Elements(Op::kConcat, 2, 2);
  concat.w = Tensor(DType::kU8, {2, 1});
  Fill(concat.w, 1);
  concat.N = 3;
  concat.x.SetInt(1, 0);
  concat.x.SetInt(2, 0);
  EXPECT_FALSE(Has(concat, Hazard::kMinCodeRun)) << "rows of x are shorter than those of y";
  concat.x.SetInt(3, 0);
  EXPECT_TRUE(Has(concat, Hazard::kMinCodeRun));
}

TEST(Hazards, PaddingCountsWhereAWindowSeesItAndItsCodeIsNotZero) {
  Window v = kImage;
  v.kernel_h = v.kernel_w = 2;
  v.pad_bottom = 1;
  Case c = Windowed(Op::kConv2d, v, 1);
  EXPECT_FALSE(Has(c, Hazard::kPadding)) << "its code is 0";
  EXPECT_FALSE(Has(c, Hazard::kPaddingOffCode)) << "which is a code";
  for (const auto& [zero, off] :
       std::vector<std::pair<int32_t, bool>>{{1, false}, {255, false}, {256, true}, {-1, true}}) {
    c.x_q.zero_point = {zero};
    EXPECT_TRUE(Has(c, Hazard::kPadding)) << zero;
    EXPECT_EQ(Has(c, Hazard::kPaddingOffCode), off) << zero;
  }
  Window first = kImage;  // one window sees padding, the last one does not
  first.kernel_h = first.kernel_w = 2;
  first.pad_top = 1;
  c = Windowed(Op::kConv2d, first, 1);
  c.x_q.zero_point = {1};
  EXPECT_TRUE(Has(c, Hazard::kPadding));
  const Window only{.batch = 1, .in_h = 1, .in_w = 1, .in_c = 1, .kernel_h = 2, .pad_top = 1};
  c = Windowed(Op::kConv2d, only, 1);
  c.x_q.zero_point = {1};
  EXPECT_TRUE(Has(c, Hazard::kPadding)) << "there is one window";
  v.stride_h = 2;  // rows 0 2 4 6: the line at 8 is in no window
  c = Windowed(Op::kConv2d, v, 1);
  c.x_q.zero_point = {300};
  EXPECT_FALSE(Has(c, Hazard::kPadding));
  EXPECT_FALSE(Has(c, Hazard::kPaddingOffCode));
}

TEST(Hazards, GroupsLieBetweenOneAndDepthwise) {
  for (const auto& [groups, reached] :
       std::vector<std::pair<int64_t, bool>>{{1, false}, {2, true}, {4, false}}) {
    Window v = kImage;
    v.groups = groups;
    EXPECT_EQ(Has(Windowed(Op::kConv2d, v, 4), Hazard::kGroups), reached) << groups;
  }
}

TEST(Hazards, AllDistinctMeansEveryPair) {
  Window v = kImage;
  v.kernel_h = 3, v.kernel_w = 2, v.stride_h = 2, v.stride_w = 1;
  v.pad_top = 1, v.pad_bottom = 0, v.pad_left = 0, v.pad_right = 1;
  EXPECT_TRUE(Has(Windowed(Op::kConv2d, v, 1), Hazard::kAllDistinct));
  const std::vector<void (*)(Window&)> equal{
      [](Window& w) { w.kernel_w = w.kernel_h; }, [](Window& w) { w.stride_w = w.stride_h; },
      [](Window& w) { w.pad_bottom = w.pad_top; }, [](Window& w) { w.pad_right = w.pad_left; }};
  for (size_t i = 0; i < equal.size(); ++i) {
    Window same = v;
    equal[i](same);
    EXPECT_FALSE(Has(Windowed(Op::kConv2d, same, 1), Hazard::kAllDistinct)) << i;
  }
}

TEST(Hazards, ALongWindowLeaves16Bits) {
  for (const int64_t width : {257, 258}) {
    const Window v{
        .batch = 1, .in_h = 1, .in_w = width, .in_c = 1, .kernel_h = 1, .kernel_w = width};
    EXPECT_EQ(Has(Windowed(Op::kAvgPool, v, 1), Hazard::kLongWindow), width == 258);
    EXPECT_FALSE(Has(Windowed(Op::kConv2d, v, 1), Hazard::kLongWindow)) << "which is no pool";
  }
}

TEST(Hazards, TheMultiplierAboveOne) {
  const auto above = [](Op op, float x, float w, float out) {
    Case c = Elements(op, 1, 1);
    c.x_q.scale = {x};
    if (HasTwoInputs(op)) c.w_q.scale = {w};
    c.out_q.scale = {out};
    return Has(c, Hazard::kMultiplierAboveOne);
  };
  EXPECT_TRUE(above(Op::kRescale, 2, 1, 1));
  EXPECT_FALSE(above(Op::kRescale, 1, 1, 1));
  EXPECT_FALSE(above(Op::kRescale, 0.5f, 1, 0.75f));
  EXPECT_TRUE(above(Op::kAdd, 2, 0.25f, 1)) << "no product";
  EXPECT_TRUE(above(Op::kAdd, 2, 1, 1));
  EXPECT_TRUE(above(Op::kAdd, 1, 2, 1)) << "the larger of the two";
  EXPECT_FALSE(above(Op::kAdd, 1, 1, 1));
  EXPECT_TRUE(above(Op::kMul, 2, 1, 1));
  EXPECT_FALSE(above(Op::kMul, 2, 0.5f, 1)) << "the product";
  EXPECT_FALSE(Has(Linear(1, 1, 1), Hazard::kMultiplierAboveOne));
  Case linear = Linear(1, 1, 1);
  linear.x_q.scale = {9};
  EXPECT_FALSE(Has(linear, Hazard::kMultiplierAboveOne));
  Window v = kImage;
  v.kernel_h = v.kernel_w = 2;
  Case pool = Windowed(Op::kAvgPool, v, 4);
  pool.x_q.scale = {4};
  EXPECT_FALSE(Has(pool, Hazard::kMultiplierAboveOne)) << "an average divides by 4";
  pool.x_q.scale = {5};
  EXPECT_TRUE(Has(pool, Hazard::kMultiplierAboveOne));
  Case empty = Elements(Op::kRescale, 0, 1);
  empty.x_q.scale = {2};
  EXPECT_FALSE(Has(empty, Hazard::kMultiplierAboveOne));
}

TEST(Hazards, SizesOfLayers) {
  EXPECT_TRUE(Has(Linear(1, 4, 257), Hazard::kBlocksOfK));
  EXPECT_FALSE(Has(Linear(1, 4, 256), Hazard::kBlocksOfK));
  EXPECT_FALSE(Has(Linear(1, 3, 257), Hazard::kBlocksOfK));
  EXPECT_TRUE(Has(Linear(1, 16, 300), Hazard::kLargeLayer));
  EXPECT_FALSE(Has(Linear(1, 16, 299), Hazard::kLargeLayer));
  EXPECT_FALSE(Has(Linear(1, 15, 300), Hazard::kLargeLayer));
  EXPECT_TRUE(Has(Linear(130, 1, 1), Hazard::kLongM));
  EXPECT_FALSE(Has(Linear(129, 1, 1), Hazard::kLongM));
  EXPECT_TRUE(Has(Linear(1, 130, 1), Hazard::kWideN));
  EXPECT_FALSE(Has(Linear(1, 129, 1), Hazard::kWideN));
  for (const int64_t edge : {64, 96, 128, 192, 256, 384, 512}) {
    for (const int64_t by : {-1, 0, 1}) {
      EXPECT_TRUE(Has(Linear(edge + by, 63, 1), Hazard::kBlockEdges)) << edge << by;
      EXPECT_TRUE(Has(Linear(63, edge + by, 1), Hazard::kBlockEdges)) << edge << by;
      EXPECT_TRUE(Has(Linear(1, 63, edge + by), Hazard::kBlockEdges)) << edge << by;
      EXPECT_FALSE(Has(Linear(1, 1, edge + by), Hazard::kBlockEdges)) << "one is not enough";
    }
    EXPECT_FALSE(Has(Linear(edge + 2, 63, 1), Hazard::kBlockEdges));
    EXPECT_FALSE(Has(Linear(edge - 2, 63, 1), Hazard::kBlockEdges));
  }
  EXPECT_FALSE(Has(Elements(Op::kQuantize, 64, 64), Hazard::kBlockEdges));
  EXPECT_FALSE(Has(Elements(Op::kQuantize, 1, 400), Hazard::kLargeLayer));
  const Window long_pool{
      .batch = 1, .in_h = 1, .in_w = 300, .in_c = 16, .kernel_h = 1, .kernel_w = 300};
  EXPECT_FALSE(Has(Windowed(Op::kAvgPool, long_pool, 16), Hazard::kBlocksOfK)) << "no weights";
  EXPECT_FALSE(Has(Windowed(Op::kAvgPool, long_pool, 16), Hazard::kLargeLayer));
}

TEST(Hazards, SizesOfConvolutionsAndPools) {
  const auto conv = [](int64_t in, int64_t out, int64_t kernel, int64_t height,
                       int64_t groups = 1) {
    return Windowed(Op::kConv2d,
                    {.batch = 1,
                     .in_h = height,
                     .in_w = kernel,
                     .in_c = in * groups,
                     .kernel_h = 1,
                     .kernel_w = kernel,
                     .groups = groups},
                    out * groups);
  };
  EXPECT_TRUE(Has(conv(32, 32, 2, 8), Hazard::kDeepChannels));
  EXPECT_TRUE(Has(conv(32, 32, 2, 8, 2), Hazard::kDeepChannels)) << "of each group";
  EXPECT_FALSE(Has(conv(31, 32, 2, 8), Hazard::kDeepChannels));
  EXPECT_FALSE(Has(conv(16, 32, 2, 8, 2), Hazard::kDeepChannels));
  EXPECT_FALSE(Has(conv(32, 16, 2, 8, 2), Hazard::kDeepChannels));
  EXPECT_FALSE(Has(conv(32, 31, 2, 8), Hazard::kDeepChannels));
  EXPECT_FALSE(Has(conv(32, 32, 1, 8), Hazard::kDeepChannels));
  EXPECT_FALSE(Has(conv(32, 32, 2, 7), Hazard::kDeepChannels));
  const Window pooled{.batch = 1, .in_h = 8, .in_w = 2, .in_c = 32, .kernel_h = 1, .kernel_w = 2};
  EXPECT_FALSE(Has(Windowed(Op::kMaxPool, pooled, 32), Hazard::kDeepChannels)) << "no weights";
  for (const int64_t groups : {7, 8}) {
    Case c = conv(1, 1, 1, 1, groups);
    EXPECT_FALSE(Has(c, Hazard::kManyGroups)) << "per tensor";
    c.per_channel = true;
    c.w_q.scale.assign(static_cast<size_t>(groups), 1.0f);
    c.w_q.zero_point.assign(static_cast<size_t>(groups), 0);
    EXPECT_EQ(Has(c, Hazard::kManyGroups), groups == 8);
  }
  for (const int64_t length : {43, 44}) {
    const Window high{.batch = 1, .in_h = length, .in_w = 1, .in_c = 1};
    const Window wide{.batch = 1, .in_h = 1, .in_w = length, .in_c = 1};
    EXPECT_EQ(Has(Windowed(Op::kMaxPool, high, 1), Hazard::kWideImage), length == 44);
    EXPECT_EQ(Has(Windowed(Op::kMaxPool, wide, 1), Hazard::kWideImage), length == 44);
  }
  for (const int64_t planes : {131, 132}) {
    const Window v{.batch = 1, .in_h = 1, .in_w = 1, .in_c = planes};
    Window depthwise = v;
    depthwise.groups = planes;
    EXPECT_EQ(Has(Windowed(Op::kMaxPool, v, planes), Hazard::kManyPlanes), planes == 132);
    EXPECT_EQ(Has(Windowed(Op::kDepthwise, depthwise, planes), Hazard::kManyPlanes), planes == 132);
    EXPECT_FALSE(Has(Windowed(Op::kConv2d, v, 1), Hazard::kManyPlanes));
  }
}

TEST(Hazards, LongRuns) {
  for (const int64_t n : {4096, 4097}) {
    EXPECT_EQ(Has(Elements(Op::kQuantize, 1, n), Hazard::kLongRun), n == 4097);
    EXPECT_EQ(Has(Elements(Op::kAdd, n, 1), Hazard::kLongRun), n == 4097);
    EXPECT_FALSE(Has(Linear(1, n, 1), Hazard::kLongRun));
  }
  for (const int64_t n : {65'535, 65'536})
    EXPECT_EQ(Has(Elements(Op::kAdd, 1, n), Hazard::kBeyond16Bits), n == 65'536);
  EXPECT_FALSE(Has(Linear(1, 65'536, 1), Hazard::kBeyond16Bits));
  for (const int64_t n : {1100, 1101}) {
    Case c = Elements(Op::kSoftmax, 1, n);
    c.out_q.scale = {1.0f / 256};
    EXPECT_EQ(Has(c, Hazard::kLongRow), n == 1101);
    EXPECT_FALSE(Has(Elements(Op::kAdd, 1, n), Hazard::kLongRow));
  }
}

TEST(Hazards, MultipliersThatArePowersOrShiftFar) {
  const auto linear = [](float x, float w, float out) {
    Case c = Linear(1, 1, 1);
    c.x_q.scale = {x};
    c.w_q.scale = {w};
    c.out_q.scale = {out};
    return c;
  };
  EXPECT_TRUE(Has(linear(0x1p-31f, 1, 1), Hazard::kPowerOfTwo));
  EXPECT_FALSE(Has(linear(0x1p-30f, 1, 1), Hazard::kPowerOfTwo)) << "more than 2^-31";
  EXPECT_FALSE(Has(linear(0x1.8p-32f, 1, 1), Hazard::kPowerOfTwo));
  EXPECT_TRUE(Has(linear(0x1p-20f, 0x1p-20f, 0x1p-9f), Hazard::kPowerOfTwo));
  EXPECT_TRUE(Has(linear(0x1p29f, 1, 1), Hazard::kShiftEdge));  // 1/2 shifted by 30
  EXPECT_FALSE(Has(linear(0x1p28f, 1, 1), Hazard::kShiftEdge));
  EXPECT_TRUE(Has(linear(1, 0x1p-31f, 1), Hazard::kShiftEdge));
  EXPECT_FALSE(Has(linear(1, 0x1p-30f, 1), Hazard::kShiftEdge));
  EXPECT_TRUE(Has(linear(1, 1, 0x1p31f), Hazard::kShiftEdge));
  Case floats = linear(0x1p-31f, 1, 1);
  floats.out_dtype = DType::kF32;
  floats.out_q = QParams{};
  OpenClamp(&floats);
  EXPECT_FALSE(Has(floats, Hazard::kPowerOfTwo)) << "which has no multiplier";
  Case channels = Linear(1, 2, 1);
  channels.per_channel = true;
  channels.w_q.scale = {1, 0x1p-31f};
  channels.w_q.zero_point = {0, 0};
  EXPECT_TRUE(Has(channels, Hazard::kPowerOfTwo)) << "of any channel";
  channels.w_q.scale = {0x1p-31f, 1};
  EXPECT_TRUE(Has(channels, Hazard::kPowerOfTwo));
  EXPECT_TRUE(Has(channels, Hazard::kShiftEdge));
  Case quantize = Elements(Op::kQuantize, 1, 1);
  quantize.out_q.scale = {0x1p31f};
  EXPECT_FALSE(Has(quantize, Hazard::kPowerOfTwo)) << "it divides floats";
  // Of two operands both count, for mul their product.
  Case add = Elements(Op::kAdd, 1, 1);
  add.w_q.scale = {0x1p-31f};
  EXPECT_TRUE(Has(add, Hazard::kPowerOfTwo));
  add.w_q.scale = {1};
  EXPECT_FALSE(Has(add, Hazard::kPowerOfTwo));
  add.x_q.scale = {0x1p-31f};
  EXPECT_TRUE(Has(add, Hazard::kPowerOfTwo));
  add.x_q.scale = {3};
  add.w_q.scale = {0x1p-31f};
  EXPECT_TRUE(Has(add, Hazard::kPowerOfTwo)) << "not their product";
  EXPECT_FALSE(Has(linear(0x1p-31f, 3, 1), Hazard::kPowerOfTwo)) << "of a sum only the product";
  Case one = Elements(Op::kRescale, 1, 1);
  one.x_q.scale = {3};
  one.out_q.scale = {0x1p31f};
  EXPECT_FALSE(Has(one, Hazard::kPowerOfTwo)) << "which has no second scale";
  Case mul = Elements(Op::kMul, 1, 1);
  mul.x_q.scale = {0x1p-31f};
  mul.w_q.scale = {3};
  EXPECT_FALSE(Has(mul, Hazard::kPowerOfTwo));
  mul.w_q.scale = {0.5f};
  EXPECT_TRUE(Has(mul, Hazard::kPowerOfTwo));
  Case rescale = Elements(Op::kRescale, 1, 1);
  rescale.x_q.scale = {0x1p-31f};
  EXPECT_TRUE(Has(rescale, Hazard::kPowerOfTwo));
  Case requantize = Elements(Op::kRescale, 1, 1);
  requantize.op = Op::kRequantize;
  requantize.x = Tensor(DType::kS32, {1, 1});
  requantize.multiplier = {0x1p-31f};
  EXPECT_TRUE(Has(requantize, Hazard::kPowerOfTwo)) << "a given one";
  requantize.multiplier = {0.3f};
  EXPECT_FALSE(Has(requantize, Hazard::kPowerOfTwo));
  requantize.multiplier.clear();
  requantize.x_q.scale = {0x1p-31f};
  EXPECT_TRUE(Has(requantize, Hazard::kPowerOfTwo));
  requantize.w_q.scale = {3};
  EXPECT_FALSE(Has(requantize, Hazard::kPowerOfTwo)) << "the product of both scales";
}

TEST(Hazards, TermsAtTheEdgeOfInt32) {
  // The correction has the terms zx * sum(w), zw * K * zx and, for linear, zw * sum(x).
  Case c = Linear(1, 1, 2);
  c.w.SetInt(0, 2);
  c.w.SetInt(1, 2);
  for (const auto& [zero, edge] : std::vector<std::pair<int32_t, bool>>{{1 << 29, true},
                                                                        {(1 << 29) - 1, true},
                                                                        {(1 << 29) - 2, false},
                                                                        {(1 << 29) + 1, true},
                                                                        {-(1 << 29), true},
                                                                        {5, false},
                                                                        {257, false}}) {
    c.x_q.zero_point = {zero};
    EXPECT_EQ(Has(c, Hazard::kTermAtEdge), edge) << zero;
  }
  c.x_q.zero_point = {1 << 15};
  c.w_q.zero_point = {1 << 15};  // 2 * 2^15 * 2^15
  EXPECT_TRUE(Has(c, Hazard::kTermAtEdge));
  c.w_q.zero_point = {1 << 14};
  EXPECT_FALSE(Has(c, Hazard::kTermAtEdge));
  c.x_q.zero_point = {0};
  c.x.SetInt(0, 64);
  c.x.SetInt(1, 64);  // 128 * 2^24
  c.w_q.zero_point = {1 << 24};
  EXPECT_TRUE(Has(c, Hazard::kTermAtEdge));
  c.w_q.zero_point = {1 << 23};
  EXPECT_FALSE(Has(c, Hazard::kTermAtEdge));
  Case channels = Linear(1, 2, 2);
  channels.w.SetInt(2, 2);
  channels.w.SetInt(3, 2);
  channels.x_q.zero_point = {1 << 29};
  EXPECT_TRUE(Has(channels, Hazard::kTermAtEdge)) << "of any channel";
  Case rows = Linear(2, 1, 2);
  rows.x.SetInt(2, 64);
  rows.x.SetInt(3, 64);
  rows.w_q.zero_point = {1 << 24};
  EXPECT_TRUE(Has(rows, Hazard::kTermAtEdge)) << "of any row";
  Case conv = Windowed(Op::kConv2d, kImage, 1);
  conv.x_q.zero_point = {1000};
  EXPECT_FALSE(Has(conv, Hazard::kTermAtEdge));
  conv.x_q.zero_point = {1 << 29};  // times the sum of four weights
  EXPECT_TRUE(Has(conv, Hazard::kTermAtEdge));
  Case pool = Windowed(Op::kAvgPool, kImage, 4);
  pool.x_q.zero_point = {1 << 29};
  EXPECT_FALSE(Has(pool, Hazard::kTermAtEdge)) << "which has no weights";
}

TEST(Hazards, OfNumbersAreWhatTheHeadroomSays) {
  std::set<Hazard> met;
  for (const Op op : {Op::kLinear, Op::kConv2d, Op::kQuantize, Op::kAdd}) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (c.M == 0 || c.N == 0 || (HasWeights(op) && c.K == 0) || c.M * c.N * c.K > 50'000)
        continue;
      const headroom::Headroom h = headroom::Measure(c);
      const auto expect = [&](Hazard hazard, bool reached) {
        EXPECT_EQ(Has(c, hazard), reached) << Name(hazard) << " " << Describe(c);
        if (reached) met.insert(hazard);
      };
      expect(Hazard::kPairSaturates, h.pairs_saturating > 0);
      expect(Hazard::kInt32Overflows, HasSums(op) && h.acc_min < 0);
      expect(Hazard::kExactTie, h.ties > 0);
      expect(Hazard::kNearTie, h.ties == 0 && h.tie_min <= 0x1p-10);
      expect(Hazard::kClampLow, h.clamped_low > 0);
      expect(Hazard::kClampHigh, h.clamped_high > 0);
    }
  }
  EXPECT_EQ(met.size(), 6u);
  for (const auto& [x, near] : std::vector<std::pair<float, bool>>{
           {10.5f + 0x1p-11f, true}, {10.5f + 0x1.1p-11f, false}, {10.5f, false}}) {
    Case c = Elements(Op::kQuantize, 1, 1);
    c.x.as<float>()[0] = x;
    EXPECT_EQ(Has(c, Hazard::kNearTie), near) << x;
    EXPECT_EQ(Has(c, Hazard::kExactTie), x == 10.5f);
  }
}

using Ops = std::set<Op>;
Ops OpsAbout(Hazard hazard) {
  Ops ops;
  for (const Op op : AllOps()) {
    if (AllHazards()[static_cast<size_t>(hazard)].about(op)) ops.insert(op);
  }
  return ops;
}
Ops AllBut(const Ops& left_out) {
  Ops ops;
  for (const Op op : AllOps()) {
    if (!left_out.contains(op)) ops.insert(op);
  }
  return ops;
}

TEST(Hazards, SayWhichOperationsReachThem) {
  using enum Op;
  const Ops sums{kLinear, kConv2d, kDepthwise},
      weights{kLinear, kConv2d, kDepthwise, kDynamicLinear};
  const Ops pools{kMaxPool, kAvgPool, kGlobalAvgPool}, averages{kAvgPool, kGlobalAvgPool};
  const Ops two{kAdd, kSub, kMul, kConcat};
  const auto join = [](Ops a, const Ops& b) {
    a.insert(b.begin(), b.end());
    return a;
  };
  EXPECT_EQ(OpsAbout(Hazard::kPairSaturates), sums);
  EXPECT_EQ(OpsAbout(Hazard::kExactTie), AllBut({kMaxPool, kCast}));
  EXPECT_EQ(OpsAbout(Hazard::kKTail), join(weights, pools));
  EXPECT_EQ(OpsAbout(Hazard::kNTail), AllBut({}));
  EXPECT_EQ(OpsAbout(Hazard::kZeroPointPair), join(sums, two));
  EXPECT_EQ(OpsAbout(Hazard::kGroups), Ops{kConv2d});
  EXPECT_EQ(OpsAbout(Hazard::kPadding), join(pools, {kConv2d, kDepthwise}));
  EXPECT_EQ(OpsAbout(Hazard::kLongWindow), pools);
  EXPECT_EQ(OpsAbout(Hazard::kManyPlanes), join(pools, {kDepthwise}));
  EXPECT_EQ(OpsAbout(Hazard::kMultiplierAboveOne), join(join(two, averages), {kTable, kRescale}));
  EXPECT_EQ(OpsAbout(Hazard::kBlocksOfK), (Ops{kLinear, kConv2d, kDynamicLinear}));
  EXPECT_EQ(OpsAbout(Hazard::kLongRow), Ops{kSoftmax});
  EXPECT_EQ(OpsAbout(Hazard::kBlockEdges), (Ops{kLinear, kDynamicLinear}));
  EXPECT_EQ(OpsAbout(Hazard::kLongRun),
            join(two, {kQuantize, kDequantize, kRequantize, kRescale, kTable, kCast}));
  EXPECT_EQ(OpsAbout(Hazard::kPowerOfTwo),
            join(join(join(sums, two), averages), {kRequantize, kRescale}));
  EXPECT_EQ(OpsAbout(Hazard::kLongM), AllBut({kGlobalAvgPool}));
  EXPECT_EQ(OpsAbout(Hazard::kWideImage), (Ops{kConv2d, kDepthwise, kMaxPool, kAvgPool}));
  for (const Op op : AllOps()) {
    EXPECT_EQ(OpsAbout(Hazard::kClampLow).contains(op), RowOf(op).clamp || RowOf(op).relu);
    EXPECT_EQ(OpsAbout(Hazard::kPerChannel).contains(op),
              RowOf(op).per_channel != PerChannel::kNone && !RowOf(op).cast);
  }
}

// The rows of hazards say which operations can reach them.
TEST(Hazards, AreReachedOnlyByTheOperationsOfTheirRows) {
  for (const Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 400; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (c.M * c.N * std::max<int64_t>(c.K, 1) > 100'000) continue;
      for (const Hazard hazard : HazardsOf(c)) {
        EXPECT_TRUE(AllHazards()[static_cast<size_t>(hazard)].about(op))
            << Name(op) << " " << Name(hazard);
      }
    }
  }
}

TEST(Coverage, AddsUpByOperationAndInstructionSet) {
  HazardCoverage one, two;
  const std::vector<Hazard> ties{Hazard::kExactTie, Hazard::kNTail}, tails{Hazard::kNTail};
  one.Add(Op::kLinear, "avx2", ties);
  one.Add(Op::kLinear, "avx2", tails);
  two.Add(Op::kLinear, "avx2", tails);
  two.Add(Op::kLinear, "", tails);
  two.Add(Op::kAdd, "avx2", {});
  one.Merge(two);
  ASSERT_EQ(one.rows().size(), 3u);
  const auto& row = one.rows().at({Op::kLinear, "avx2"});
  EXPECT_EQ(row.cases, 3);
  EXPECT_EQ(row.reached.at(Hazard::kNTail), 3);
  EXPECT_EQ(row.reached.at(Hazard::kExactTie), 1);
  EXPECT_EQ(one.rows().at({Op::kLinear, ""}).cases, 1);
  EXPECT_EQ(one.rows().at({Op::kAdd, "avx2"}).cases, 1);
  EXPECT_TRUE(one.rows().at({Op::kAdd, "avx2"}).reached.empty());
}

}  // namespace
}  // namespace qualm
