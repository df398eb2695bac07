// SPDX-License-Identifier: Apache-2.0
// The requantization modes of libraries on every instruction set: worked examples, layers as their
// sums requantized, refusals. Their codes are judged by properties/native_kernels_test.cc.
#include "kernels/common/backend_requantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/common/fp_environment.h"
#include "kernels/common/test_support.h"
#include "kernels/conv.h"
#include "kernels/elementwise.h"
#include "kernels/linear.h"
#include "kernels/sums/epilogue.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::Random;

constexpr Requantization kModes[] = {Requantization::kFloat32, Requantization::kFixedQ31,
                                     Requantization::kFixedRndnu};

TEST(BackendRequantize, WorkedExamples) {
  const auto one = [](Requantization mode, int32_t acc, Multiplier m, int32_t zero_point) {
    uint8_t y = 0;
    EXPECT_TRUE(Requantize({&acc, ElementType::kS32, 1, 1, 1}, {&m, 1}, zero_point, {},
                           {&y, ElementType::kU8, 1, 1, 1}, mode)
                    .ok());
    return int{y};
  };
  ForEachTarget([&](const std::string&) {
    // 2.5 and -2.5: to even, away from zero, upwards.
    EXPECT_EQ(one(Requantization::kExact, 5, {0.5f}, 10), 12);
    EXPECT_EQ(one(Requantization::kFloat32, 5, {0.5f}, 10), 12);
    EXPECT_EQ(one(Requantization::kFixedQ31, 5, {0.5f}, 10), 13);
    EXPECT_EQ(one(Requantization::kFixedRndnu, 5, {0.5f}, 10), 13);
    EXPECT_EQ(one(Requantization::kFixedRndnu, -5, {0.5f}, 10), 8);
    EXPECT_EQ(one(Requantization::kFixedQ31, -10, {0.25f}, 10), 7);
    // A result beyond int32 becomes the wrong end of the range in float32, in q31 after a shift.
    EXPECT_EQ(one(Requantization::kExact, 1 << 30, {2.0f}, 10), 255);
    EXPECT_EQ(one(Requantization::kFloat32, 1 << 30, {2.0f}, 10), 0);
    EXPECT_EQ(one(Requantization::kFixedQ31, 1 << 29, {2.0f}, 10), 0);
    EXPECT_EQ(one(Requantization::kFixedQ31, 1 << 30, {2.0f}, 10), 10);
    EXPECT_EQ(one(Requantization::kFixedRndnu, 1 << 30, {2.0f}, 10), 255);
  });
}

TEST(BackendRequantize, EpilogueClampsWideSumsToInt32) {
  constexpr int64_t kChannels = 300;
  const std::vector<float> w_scale(kChannels, 0.003f);
  std::vector<__int128> sums(kChannels, 1234);
  sums[7] = (static_cast<__int128>(1) << 100) + 5;
  sums[280] = -(static_cast<__int128>(1) << 40) - 77;
  sums[281] = static_cast<__int128>(INT32_MAX) + 1;
  for (const Requantization mode : kModes) {
    EpilogueParams params;
    params.channels = kChannels;
    params.x_scale = 0x1p-30f;
    params.w_scale = w_scale;
    params.y_scale = 0x1p-9f;
    params.y_zero_point = 130;
    params.requantization = mode;
    ForEachTarget([&](const std::string&) {
      const ScopedFpEnvironment environment;
      std::vector<uint8_t> y(kChannels);
      Epilogue::Make(params).Apply(sums.data(), 0, kChannels, y.data());
      for (size_t i = 0; i < y.size(); ++i) {
        const auto sum = static_cast<int32_t>(std::clamp<__int128>(sums[i], INT32_MIN, INT32_MAX));
        const Multiplier m{params.x_scale, 0.003f, params.y_scale};
        uint8_t code = 0;
        ASSERT_TRUE(Requantize({&sum, ElementType::kS32, 1, 1, 1}, {&m, 1}, 130, {},
                               {&code, ElementType::kU8, 1, 1, 1}, mode)
                        .ok());
        ASSERT_EQ(y[i], code) << i;
      }
      EXPECT_NE(y[280], y[281]);  // the sums are clamped, the codes are not
    });
  }
}

// A layer with s32 outputs followed by Requantize gives what the layer gives in that mode.
struct Fused {
  Fused() {
    Random random(11);
    for (uint8_t& v : x) v = static_cast<uint8_t>(random.Between(0, 255));
    for (int8_t& v : w) v = static_cast<int8_t>(random.Between(-128, 127));
    for (float& s : w_scale) s = random.Scale(-9, -6);
    for (int32_t& b : bias) b = static_cast<int32_t>(random.Between(-3000, 3000));
    // These make each mode differ from exact somewhere: halves, and a product beyond int32.
    w_scale[0] = 4;
    bias[0] = 1 << 30;
    for (size_t n = 1; n < 12; ++n) {
      w_scale[n] = 0.5f;
      bias[n] = static_cast<int32_t>(n);
      for (size_t k = 0; k < w.size() / kN; ++k) {
        w[n * (w.size() / kN) + k] = static_cast<int8_t>(random.Between(-1, 1));
      }
    }
    for (const float s : w_scale) multipliers.push_back({0.75f, s, 0.75f});
  }
  LinearParams Params(int64_t depth, bool codes, Requantization mode) const {
    LinearParams p{.weights = {w.data(), ElementType::kS8, kN, depth, depth},
                   .x_scale = 0.75f,
                   .x_zero_point = 121,
                   .w_scale = w_scale,
                   .w_zero_point = {&zero, 1},
                   .bias = {},
                   .bias_i32 = bias,
                   .range = {}};
    p.output_type = codes ? ElementType::kU8 : ElementType::kS32;
    if (codes) {
      p.y_scale = 0.75f;
      p.y_zero_point = 99;
      p.requantization = mode;
    }
    return p;
  }
  static constexpr int64_t kN = 24;
  std::vector<uint8_t> x = std::vector<uint8_t>(8 * 64);
  std::vector<int8_t> w = std::vector<int8_t>(kN * 64);
  std::vector<float> w_scale = std::vector<float>(kN);
  std::vector<int32_t> bias = std::vector<int32_t>(kN);
  std::vector<Multiplier> multipliers;
  int32_t zero = 0;
};

TEST(BackendRequantize, LinearIsTheAccumulatorRequantized) {
  const Fused f;
  for (const Requantization mode : kModes) {
    ForEachTarget([&](const std::string&) {
      const ConstMatrix x{f.x.data(), ElementType::kU8, 8, 64, 64};
      std::vector<int32_t> sums(8 * f.kN);
      std::vector<uint8_t> expected(sums.size()), y(sums.size()), exact(sums.size());
      const auto run = [&](bool codes, Requantization as, const MutableMatrix& to) {
        PackedLinear packed;
        ASSERT_EQ(PackedLinear::Pack(f.Params(64, codes, as), &packed).error, "");
        ASSERT_EQ(packed.Run(x, to).error, "");
      };
      run(false, mode, {sums.data(), ElementType::kS32, 8, f.kN, f.kN});
      run(true, mode, {y.data(), ElementType::kU8, 8, f.kN, f.kN});
      run(true, Requantization::kExact, {exact.data(), ElementType::kU8, 8, f.kN, f.kN});
      ASSERT_TRUE(Requantize({sums.data(), ElementType::kS32, 8, f.kN, f.kN}, f.multipliers, 99, {},
                             {expected.data(), ElementType::kU8, 8, f.kN, f.kN}, mode)
                      .ok());
      EXPECT_EQ(y, expected);
      EXPECT_NE(y, exact);
    });
  }
}

TEST(BackendRequantize, ConvolutionsAreTheAccumulatorRequantized) {
  const Fused f;
  for (const int64_t groups : {1, 8}) {  // 8: the depthwise kernel
    for (const Requantization mode : kModes) {
      ForEachTarget([&](const std::string&) {
        // 8 pixels of 8 channels; 2x2 taps.
        const ConstImages x{.data = f.x.data(),
                            .type = ElementType::kU8,
                            .batch = 1,
                            .height = 4,
                            .width = 4,
                            .channels = 8,
                            .image_stride = 128,
                            .row_stride = 32,
                            .pixel_stride = 8};
        std::vector<int32_t> sums(9 * f.kN);
        std::vector<uint8_t> expected(sums.size()), y(sums.size()), exact(sums.size());
        const auto run = [&](bool codes, Requantization as, const MutableMatrix& to) {
          PackedConv packed;
          const int64_t depth = 4 * 8 / groups;
          ASSERT_EQ(PackedConv::Pack({.layer = f.Params(depth, codes, as),
                                      .in_channels = 8,
                                      .groups = groups,
                                      .window = {.in_h = 4,
                                                 .in_w = 4,
                                                 .kernel_h = 2,
                                                 .kernel_w = 2,
                                                 .stride_h = 1,
                                                 .stride_w = 1,
                                                 .pad_top = 0,
                                                 .pad_bottom = 0,
                                                 .pad_left = 0,
                                                 .pad_right = 0,
                                                 .dilation_h = 1,
                                                 .dilation_w = 1}},
                                     &packed)
                        .error,
                    "");
          ASSERT_EQ(packed.Run(x, to).error, "");
        };
        run(false, mode, {sums.data(), ElementType::kS32, 9, f.kN, f.kN});
        run(true, mode, {y.data(), ElementType::kU8, 9, f.kN, f.kN});
        run(true, Requantization::kExact, {exact.data(), ElementType::kU8, 9, f.kN, f.kN});
        ASSERT_TRUE(Requantize({sums.data(), ElementType::kS32, 9, f.kN, f.kN}, f.multipliers, 99,
                               {}, {expected.data(), ElementType::kU8, 9, f.kN, f.kN}, mode)
                        .ok());
        EXPECT_EQ(y, expected);
        EXPECT_NE(y, exact);
      });
    }
  }
}

TEST(BackendRequantize, RefusesWhatHasNoMeaning) {
  const int32_t acc = 1;
  uint8_t y = 7;
  const auto refused = [&](Multiplier m, Requantization mode) {
    return Requantize({&acc, ElementType::kS32, 1, 1, 1}, {&m, 1}, 0, {},
                      {&y, ElementType::kU8, 1, 1, 1}, mode)
        .error;
  };
  EXPECT_EQ(refused({1, 1, 1, 3}, Requantization::kFixedQ31),
            "multiplier[0].divisor is 3, expected 1 with a requantization other than exact");
  EXPECT_EQ(refused({1}, static_cast<Requantization>(4)),
            "requantization is 4, expected one of the enumeration");
  EXPECT_EQ(y, 7);

  const Fused f;
  PackedLinear packed;
  LinearParams p = f.Params(64, true, Requantization::kFloat32);
  const std::vector<float> bias(Fused::kN, 0.5f);
  p.bias_i32 = {};
  p.bias = bias;
  EXPECT_EQ(PackedLinear::Pack(p, &packed).error,
            "bias is given with a requantization other than exact, expected bias_i32 or none");
  p = f.Params(64, false, Requantization::kExact);
  p.requantization = Requantization::kFixedRndnu;
  EXPECT_EQ(PackedLinear::Pack(p, &packed).error,
            "requantization is set with outputs that are no codes, expected u8 or s8 outputs");
  p = f.Params(64, true, static_cast<Requantization>(9));
  EXPECT_EQ(PackedLinear::Pack(p, &packed).error,
            "requantization is 9, expected one of the enumeration");
}

}  // namespace
}  // namespace qualm::kernels
