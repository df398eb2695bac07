// SPDX-License-Identifier: Apache-2.0
// What a plugin declares decides which cases it gets. A limit that is not kept makes qualm judge a
// kernel on what it never promised; one that is kept too early leaves cases out that nobody misses.
#include "adapters/host/plugin_limits.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/qualm_plugin.h"
#include "core/layer_test_util.h"

namespace qualm {
namespace {

constexpr uint32_t kAllTypes = ~uint32_t{0};

Case Windowed(Op op, Window window) {
  Case c;
  c.op = op;
  c.window = window;
  c.N = 2;
  c.x = Tensor(DType::kU8, {window.batch, window.in_h, window.in_w, window.in_c});
  if (HasWeights(op)) {
    c.w = Tensor(DType::kS8, {2, window.kernel_h, window.kernel_w, window.in_c / window.groups});
  }
  DeriveSizes(&c);
  return c;
}

constexpr Window kImage{.batch = 1, .in_h = 5, .in_w = 5, .in_c = 2, .kernel_h = 2, .kernel_w = 2};

TEST(PluginLimits, OfAPluginMakeSense) {
  EXPECT_EQ(WrongLimits({}), "");
  EXPECT_EQ(WrongLimits(AllCases()), "");
  PluginLimits limits;
  const auto alignment = [&](int32_t bytes) {
    limits = {};
    limits.alignment_bytes = bytes;
    return WrongLimits(limits);
  };
  for (const int32_t bytes : {0, 1, 2, 64, 4096}) EXPECT_EQ(alignment(bytes), "") << bytes;
  for (const int32_t bytes : {-1, 3, 24, 4097, 8192, INT32_MIN}) {
    EXPECT_EQ(alignment(bytes), "alignment_bytes is " + std::to_string(bytes) +
                                    ", expected a power of two up to 4096");
  }
  for (const int32_t bytes : {0, 65536}) {
    limits = {};
    limits.read_slack_bytes = bytes;
    EXPECT_EQ(WrongLimits(limits), "");
  }
  for (const int32_t bytes : {-1, 65537}) {
    limits = {};
    limits.read_slack_bytes = bytes;
    EXPECT_EQ(WrongLimits(limits),
              "read_slack_bytes is " + std::to_string(bytes) + ", expected 0 to 65536");
  }
  for (int64_t PluginLimits::* const member :
       {&PluginLimits::m_max, &PluginLimits::n_max, &PluginLimits::k_max, &PluginLimits::n_multiple,
        &PluginLimits::k_multiple}) {
    limits = {};
    limits.*member = 1;
    EXPECT_EQ(WrongLimits(limits), "");
    limits.*member = -1;
    EXPECT_EQ(WrongLimits(limits), "a largest dimension or a multiple is negative");
  }
  for (int32_t PluginLimits::* const member :
       {&PluginLimits::x_zero_point_min, &PluginLimits::w_zero_point_min,
        &PluginLimits::out_zero_point_min}) {
    limits = {};
    limits.*member = 1;  // up to 0
    EXPECT_EQ(WrongLimits(limits), "a zero point range is empty");
  }
}

TEST(PluginLimits, NameTheTypeThatAPluginDoesNotTake) {
  const Case c = ZeroLayer(2, 3, 4);
  PluginLimits limits = AllCases();
  EXPECT_EQ(OutsideLimits(limits, c), "");
  limits.x_dtypes = kAllTypes & ~QUALM_TYPE_BIT(QUALM_U8);
  EXPECT_EQ(OutsideLimits(limits, c), "x of type u8");
  limits = AllCases();
  limits.w_dtypes = kAllTypes & ~QUALM_TYPE_BIT(QUALM_S8);
  EXPECT_EQ(OutsideLimits(limits, c), "w of type s8");
  limits = AllCases();
  limits.out_dtypes = kAllTypes & ~QUALM_TYPE_BIT(QUALM_U8);
  EXPECT_EQ(OutsideLimits(limits, c), "output of type u8");
  // The types of what an operation does not have are no limit.
  limits = AllCases();
  limits.w_dtypes = 0;
  EXPECT_EQ(OutsideLimits(limits, Windowed(Op::kMaxPool, kImage)), "");
}

// Each feature is asked for by the cases that need it, and by no others.
TEST(PluginLimits, NameTheFeatureThatAPluginLacks) {
  struct Needs {
    uint32_t feature;
    const char* why;
    Case c;
  };
  std::vector<Needs> all;
  const auto linear = [&](uint32_t feature, const char* why, auto edit) {
    Case c = ZeroLayer(2, 3, 4);
    edit(c);
    all.push_back({feature, why, c});
  };
  const auto windowed = [&](uint32_t feature, const char* why, Op op, auto edit) {
    Window v = kImage;
    edit(v);
    all.push_back({feature, why, Windowed(op, v)});
  };
  linear(QUALM_CAN_BIAS_F32, "float bias", [](Case& c) { c.bias = {{1, 2, 3}}; });
  linear(QUALM_CAN_BIAS_I32, "int32 bias", [](Case& c) { c.bias_i32 = {{1, 2, 3}}; });
  linear(QUALM_CAN_RELU, "fused relu", [](Case& c) { c.relu = true; });
  linear(QUALM_CAN_PER_CHANNEL, "parameters per channel", [](Case& c) {
    c.per_channel = true;
    c.w_q = {{1, 1, 1}, {0, 0, 0}};
  });
  linear(QUALM_CAN_PER_ROW, "parameters per row", [](Case& c) { c.x_gran = Granularity::kRow; });
  linear(QUALM_CAN_PER_BLOCK, "weights in blocks", [](Case& c) { c.w_block = 2; });
  linear(QUALM_CAN_FLOAT_X, "linear of f32 x", [](Case& c) {
    c.x = Tensor(DType::kF32, c.x.shape());
    c.out_dtype = DType::kF32;
    OpenClamp(&c);
  });
  {
    Case cast = CaseOver(Op::kCast, Tensor(DType::kF32, {1, 1}), DType::kF8E4M3FN);
    cast.out_q.scale = {0.5f};
    all.push_back({QUALM_CAN_CAST_SCALES, "casts with scales", cast});
  }
  linear(QUALM_CAN_X_PER_BLOCK, "activations in blocks",
         [](Case& c) { c.w_block = c.x_block = 2; });
  linear(QUALM_CAN_EMPTY, "empty output", [](Case& c) { c = ZeroLayer(0, 3, 4); });
  linear(QUALM_CAN_EMPTY, "empty output", [](Case& c) { c = ZeroLayer(2, 0, 4); });
  linear(QUALM_CAN_EMPTY_K, "K = 0", [](Case& c) { c = ZeroLayer(2, 3, 0); });
  const char* const clamp = "clamp other than the range of the output type";
  linear(QUALM_CAN_CLAMP, clamp, [](Case& c) { c.out_min = 1; });
  linear(QUALM_CAN_CLAMP, clamp, [](Case& c) { c.out_max = 254; });
  windowed(QUALM_CAN_DILATION, "dilation", Op::kMaxPool, [](Window& v) { v.dilation_h = 2; });
  windowed(QUALM_CAN_DILATION, "dilation", Op::kMaxPool, [](Window& v) { v.dilation_w = 2; });
  windowed(QUALM_CAN_GROUPS, "groups", Op::kConv2d, [](Window& v) { v.groups = 2; });
  const char* const padding = "padding that differs between two sides";
  for (const auto pad :
       {&Window::pad_top, &Window::pad_bottom, &Window::pad_left, &Window::pad_right}) {
    windowed(QUALM_CAN_ASYMMETRIC_PADDING, padding, Op::kMaxPool, [&](Window& v) { v.*pad = 1; });
  }
  windowed(QUALM_CAN_CEIL_MODE, "ceil mode", Op::kMaxPool, [](Window& v) { v.ceil_mode = true; });
  windowed(QUALM_CAN_COUNT_PADDING, "padding that counts", Op::kAvgPool,
           [](Window& v) { v.count_include_pad = true; });
  for (const Needs& needs : all) {
    PluginLimits limits = AllCases();
    EXPECT_EQ(OutsideLimits(limits, needs.c), "") << needs.why;
    limits.features &= ~needs.feature;
    EXPECT_EQ(OutsideLimits(limits, needs.c), needs.why);
    limits.features = needs.feature;
    if (needs.c.x_block != 0) limits.features |= QUALM_CAN_PER_BLOCK;
    EXPECT_EQ(OutsideLimits(limits, needs.c), "") << needs.why << " and nothing else";
  }

  PluginLimits nothing = AllCases();
  nothing.features = 0;
  EXPECT_EQ(OutsideLimits(nothing, ZeroLayer(2, 3, 4)), "");
  EXPECT_EQ(OutsideLimits(nothing, Windowed(Op::kConv2d, kImage)), "");
  Window v = kImage;
  v.groups = 2;  // one for each channel is what depthwise means
  EXPECT_EQ(OutsideLimits(nothing, Windowed(Op::kDepthwise, v)), "");
  v = kImage;
  v.pad_top = v.pad_bottom = v.pad_left = v.pad_right = 1;
  EXPECT_EQ(OutsideLimits(nothing, Windowed(Op::kMaxPool, v)), "");
  Case add;  // which has no K
  add.op = Op::kAdd;
  add.M = add.N = 1;
  add.x = add.w = Tensor(DType::kU8, {1, 1});
  EXPECT_EQ(OutsideLimits(nothing, add), "");
}

TEST(PluginLimits, BoundTheSizes) {
  PluginLimits limits = AllCases();
  limits.m_max = 2;
  EXPECT_EQ(OutsideLimits(limits, ZeroLayer(2, 3, 4)), "");
  EXPECT_EQ(OutsideLimits(limits, ZeroLayer(3, 3, 4)), "M = 3 is more than 2");
  limits = AllCases();
  limits.n_max = 4;
  limits.n_multiple = 2;
  EXPECT_EQ(OutsideLimits(limits, ZeroLayer(9, 4, 9)), "");
  EXPECT_EQ(OutsideLimits(limits, ZeroLayer(9, 5, 9)), "N = 5 is more than 4");
  EXPECT_EQ(OutsideLimits(limits, ZeroLayer(9, 3, 9)), "N = 3 is no multiple of 2");
  limits = AllCases();
  limits.k_max = 8;
  limits.k_multiple = 4;
  EXPECT_EQ(OutsideLimits(limits, ZeroLayer(9, 9, 8)), "");
  EXPECT_EQ(OutsideLimits(limits, ZeroLayer(9, 9, 12)), "K = 12 is more than 8");
  EXPECT_EQ(OutsideLimits(limits, ZeroLayer(9, 9, 6)), "K = 6 is no multiple of 4");
  limits.k_multiple = 1;
  EXPECT_EQ(OutsideLimits(limits, ZeroLayer(9, 9, 7)), "");
  // K of a window over the whole image is no choice of the kernel.
  limits.k_max = 1;
  Window whole{.batch = 1, .in_h = 3, .in_w = 3, .in_c = 2, .kernel_h = 3, .kernel_w = 3};
  EXPECT_EQ(OutsideLimits(limits, Windowed(Op::kAvgPool, whole)), "K = 9 is more than 1");
  EXPECT_EQ(OutsideLimits(limits, Windowed(Op::kGlobalAvgPool, whole)), "");
  // The first that does not fit is named.
  limits.m_max = limits.n_max = 1;
  EXPECT_EQ(OutsideLimits(limits, ZeroLayer(2, 2, 2)), "M = 2 is more than 1");
  EXPECT_EQ(OutsideLimits(limits, ZeroLayer(1, 2, 2)), "N = 2 is more than 1");
}

TEST(PluginLimits, BoundTheZeroPoints) {
  Case c = ZeroLayer(2, 3, 4);
  c.per_channel = true;
  c.w_q = {{1, 1, 1}, {0, 0, 0}};
  PluginLimits limits = AllCases();
  limits.x_zero_point_min = 1, limits.x_zero_point_max = 5;
  limits.w_zero_point_min = -1, limits.w_zero_point_max = 1;
  limits.out_zero_point_min = 7, limits.out_zero_point_max = 7;
  const auto zero_points = [&](int32_t x, int32_t w, int32_t out) {
    c.x_q.zero_point = {x};
    c.w_q.zero_point = {0, w, 0};
    c.out_q.zero_point = {out};
    return OutsideLimits(limits, c);
  };
  for (const int32_t x : {1, 5}) EXPECT_EQ(zero_points(x, 0, 7), "");
  for (const int32_t w : {-1, 1}) EXPECT_EQ(zero_points(1, w, 7), "");
  EXPECT_EQ(zero_points(0, 0, 7), "x: zero point 0 is outside 1 to 5");
  EXPECT_EQ(zero_points(6, 0, 7), "x: zero point 6 is outside 1 to 5");
  EXPECT_EQ(zero_points(1, -2, 7), "w: zero point -2 is outside -1 to 1") << "of any channel";
  EXPECT_EQ(zero_points(1, 2, 7), "w: zero point 2 is outside -1 to 1");
  EXPECT_EQ(zero_points(1, 0, 6), "out: zero point 6 is outside 7");
  EXPECT_EQ(zero_points(1, 0, 8), "out: zero point 8 is outside 7");
  EXPECT_EQ(zero_points(0, 2, 8), "x: zero point 0 is outside 1 to 5") << "the first is named";
  EXPECT_EQ(zero_points(1, 2, 8), "w: zero point 2 is outside -1 to 1");
  limits.m_max = 1;
  EXPECT_EQ(zero_points(0, 2, 8), "M = 2 is more than 1") << "sizes come before";

  // Floats have no zero point, and an operation without w has none of w.
  Case floats = ZeroLayer(2, 3, 4);
  floats.out_dtype = DType::kF32;
  OpenClamp(&floats);
  limits.m_max = 0;
  limits.x_zero_point_min = 0;
  EXPECT_EQ(OutsideLimits(limits, floats), "");
  limits.out_zero_point_min = 0;
  limits.w_zero_point_min = 1;
  EXPECT_EQ(OutsideLimits(limits, Windowed(Op::kMaxPool, kImage)), "");
  limits.x_zero_point_min = 1;
  const Case quantize = CaseOver(Op::kQuantize, Tensor(DType::kF32, {1, 1}), DType::kU8);
  EXPECT_EQ(OutsideLimits(limits, quantize), "");
}

TEST(PluginLimits, NameThePlaceThatAPluginDoesNotWorkIn) {
  PluginLimits limits = AllCases();
  Case add = CaseOver(Op::kAdd, Tensor(DType::kU8, {1, 1}), DType::kU8);
  add.w = add.x;
  EXPECT_EQ(OutsideLimits(limits, add, {.in_place = true}), "");
  EXPECT_EQ(OutsideLimits(limits, ZeroLayer(2, 3, 4), {.in_place = true}),
            "linear does not run in place");
  EXPECT_EQ(OutsideLimits(limits, ZeroLayer(2, 3, 4), {}), "");
  struct Place {
    RunContext context;
    uint32_t feature;
    const char* why;
  };
  const char* const rows = "takes dense rows only (no QUALM_CAN_STRIDES)";
  for (const Place& place :
       {Place{{.x_row_gap = 1}, QUALM_CAN_STRIDES, rows},
        Place{{.y_row_gap = 1}, QUALM_CAN_STRIDES, rows},
        Place{{.in_place = true},
              QUALM_CAN_IN_PLACE,
              "does not run in place (no QUALM_CAN_IN_PLACE)"},
        Place{{.w_row_gap = 1},
              QUALM_CAN_WEIGHT_STRIDES,
              "takes dense weights only (no QUALM_CAN_WEIGHT_STRIDES)"},
        Place{{.x_line_gap = 1},
              QUALM_CAN_LINE_STRIDES,
              "takes dense lines of images only (no QUALM_CAN_LINE_STRIDES)"},
        Place{{.over_w = true},
              QUALM_CAN_OVER_SECOND,
              "does not write over the second operand (no QUALM_CAN_OVER_SECOND)"},
        Place{{.callers = 2},
              QUALM_CAN_CONCURRENT,
              "is called by one thread at a time (no QUALM_CAN_CONCURRENT)"},
        Place{{.threads = 2},
              QUALM_CAN_THREADS,
              "is not told how many threads to use (no QUALM_CAN_THREADS)"}}) {
    limits.features = ~uint32_t{0};
    EXPECT_EQ(OutsideLimits(limits, add, place.context), "");
    limits.features = ~place.feature;
    EXPECT_EQ(OutsideLimits(limits, add, place.context), place.why);
  }
}

// A kernel that is never told a parameter would be judged wrong for not heeding it.
TEST(PluginLimits, NameTheParameterThatAnInterfaceDoesNotTell) {
  constexpr static std::array<std::string_view, 3> kTold{"multiplier", "relu", "bias"};
  constexpr static std::array<std::string_view, 1> kFirst{"multiplier"}, kBias{"bias"};
  Case c = ZeroLayer(2, 3, 4);
  EXPECT_EQ(NotTold({}, c), "");
  EXPECT_EQ(NotTold(kTold, c), "");
  c.relu = true;
  EXPECT_EQ(NotTold({}, c), "relu");
  EXPECT_EQ(NotTold(kTold, c), "");
  EXPECT_EQ(NotTold(std::span(kTold).first(1), c), "relu") << "a list that begins as another";
  EXPECT_EQ(NotTold(kFirst, c), "relu") << "the first parameter says nothing of others";
  EXPECT_EQ(NotTold(kBias, c), "relu");
  c.bias = {{1, 2, 3}};
  EXPECT_EQ(NotTold(kTold, c), "");
  EXPECT_EQ(NotTold({}, c), "bias") << "the first of several";
  c.requant = Requant::kFloat32;
  EXPECT_EQ(NotTold(kTold, c), "requantization " + std::string(Name(Requant::kFloat32)));
  c = ZeroLayer(2, 3, 4);
  c.multiplier = {1};
  EXPECT_EQ(NotTold(kFirst, c), "");
  EXPECT_EQ(NotTold(kBias, c), "multiplier") << "another list of one name";
  EXPECT_EQ(NotTold(std::span(kTold).first(1), c), "");
  EXPECT_EQ(NotTold(std::span(kTold).subspan(1), c), "multiplier");
  EXPECT_EQ(NotTold(std::span(kTold), c), "");
}

}  // namespace
}  // namespace qualm
