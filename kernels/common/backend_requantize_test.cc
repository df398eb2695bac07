// SPDX-License-Identifier: Apache-2.0
// The requantization modes against their libraries' definitions, on every instruction set.
#include "kernels/common/backend_requantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
using test::GuardedBuffer;
using test::Random;

constexpr Requantization kModes[] = {Requantization::kFloat32, Requantization::kFixedQ31,
                                     Requantization::kFixedRndnu};

// The scalar definitions, from the libraries' own operations: cvtps2dq, gemmlowp's
// SaturatingRoundingDoublingHighMul and RoundingDivideByPOT, NEON's vqshl, vqdmulh, vrshl.

int64_t Wrap(__int128 value) {
  return static_cast<int32_t>(static_cast<uint32_t>(static_cast<unsigned __int128>(value)));
}

int64_t CvtPs2Dq(float value) {
  const float rounded = std::nearbyint(value);
  return rounded >= -0x1p31f && rounded < 0x1p31f ? static_cast<int64_t>(rounded) : INT32_MIN;
}

int64_t Float32Reference(int32_t acc, const Multiplier& m) {
  const float product = m.numerator_a * m.numerator_b;
  const float multiplier = product / m.denominator;
  return CvtPs2Dq(static_cast<float>(acc) * multiplier);
}

int64_t FixedQ31Reference(int32_t acc, const Multiplier& m) {
  const double real = double{m.numerator_a} * double{m.numerator_b} / double{m.denominator};
  int shift = 0;
  auto q = static_cast<int64_t>(std::round(std::frexp(real, &shift) * 2147483648.0));
  if (q == 2147483648) {
    q = 1073741824;
    ++shift;
  }
  if (shift < -31) q = shift = 0;
  const int64_t x = shift > 0 ? (shift > 31 ? 0 : Wrap(static_cast<__int128>(acc) << shift)) : acc;
  const int64_t product = x * q;
  const int64_t nudge = product >= 0 ? 1 << 30 : 1 - (1 << 30);
  const int64_t high = (product + nudge) / (int64_t{1} << 31);
  const int right = std::max(-shift, 0);
  const int64_t mask = (int64_t{1} << right) - 1;
  const int64_t threshold = (mask >> 1) + (high < 0 ? 1 : 0);
  return (high >> right) + ((high & mask) > threshold ? 1 : 0);
}

int64_t FixedRndnuReference(int32_t acc, const Multiplier& m) {
  const float product = m.numerator_a * m.numerator_b;
  const auto bits = std::bit_cast<uint32_t>(product / m.denominator);
  const int64_t mantissa = int64_t{(bits & 0x7FFFFF) | 0x800000} << 7;
  const int shift = 126 - static_cast<int>(bits >> 23);
  const int post = std::max(shift, 1);
  const int pre = post - shift;  // vqshl shifts by this
  int64_t v = acc;
  for (int i = 0; i < pre; ++i) v = std::clamp<int64_t>(2 * v, INT32_MIN, INT32_MAX);
  v = static_cast<int64_t>((static_cast<__int128>(2) * v * mantissa) >> 32);
  return static_cast<int64_t>(
      (static_cast<__int128>(v) + (static_cast<__int128>(1) << (post - 1))) >> post);
}

struct Output {
  ElementType type;
  int32_t zero_point;
  OutputRange range;
  int32_t lo, hi;
};

int32_t Reference(Requantization mode, int32_t acc, const Multiplier& m, const Output& o) {
  const ScopedFpEnvironment environment;
  int64_t code = 0;
  switch (mode) {
    case Requantization::kFloat32: code = Float32Reference(acc, m) + o.zero_point; break;
    case Requantization::kFixedQ31:
      code = Wrap(static_cast<__int128>(FixedQ31Reference(acc, m)) + o.zero_point);
      break;
    default: code = FixedRndnuReference(acc, m) + o.zero_point; break;
  }
  return static_cast<int32_t>(std::min<int64_t>(std::max<int64_t>(code, o.lo), o.hi));
}

const std::vector<Output>& Outputs() {
  static const std::vector<Output> outputs = {
      {ElementType::kU8, 113, {}, 0, 255},
      {ElementType::kS8, -5, {}, -128, 127},
      {ElementType::kU8, 128, {.min = 7, .max = 200, .relu = true}, 128, 200},
      {ElementType::kU8, 220, {.max = 200, .relu = true}, 200, 200},
      {ElementType::kU8, 70000, {}, 0, 255},
      {ElementType::kU8, INT32_MIN, {}, 0, 255},
      {ElementType::kS8, INT32_MAX, {}, -128, 127},
  };
  return outputs;
}

std::vector<Multiplier> Multipliers() {
  std::vector<Multiplier> m = {
      {1.0f},
      {0x1p-8f},
      {0x1p-1f},
      {0.1f},
      {3.7f},
      {1.3e-3f},
      {0x1.fffffep-9f},
      {0x1p-30f},
      {0x1p-31f},
      {0x1.8p-32f},
      {0x1p-32f},
      {0x1.fffffep-33f},
      {0x1p-33f},
      {0x1p-34f},
      {255.5f},
      {0x1p30f},
      {0x1.8p31f},
      {0x1p32f},
      {1e30f},
      {0x1.fffffep127f},
      {0x1p-149f},
      {1, 1, 3},
      {0.02f, 0.003f, 0.05f},
      {0.1f, 0.1f, 0.1f},
      {16777213, 16777215, 0x1.fffffap47f},
      {0x1.fffffep127f, 0x1.fffffep127f, 0x1p-149f},  // infinite as a float32
      {0x1p100f, 0x1p100f, 0x1.8p126f},               // its product is
      {0x1p-149f, 0x1p-149f, 0x1p-149f},              // the product underflows, the quotient not
      {0x1p-100f, 0x1.234568p-40f, 0x1p-130f},        // a denormal product
      {1, 0x1.fffffep-1f, 0x1.000002p0f},
  };
  Random random(57);
  for (int i = 0; i < 40; ++i) {
    const int e = static_cast<int>(random.Between(-28, 3));
    m.push_back({random.Scale(-6, -6), random.Scale(-7, -7), random.Scale(-13 - e, -13 - e)});
  }
  return m;
}

std::vector<int32_t> Accumulators(const Multiplier& m, const Output& o, uint64_t seed) {
  std::vector<int32_t> acc = {0,         1,          -1,           INT32_MIN, INT32_MIN + 1,
                              INT32_MAX, 16777216,   16777217,     -16777217, 33554435,
                              1 << 30,   -(1 << 30), (1 << 30) - 1};
  Random random(seed);
  const double multiplier = double{m.numerator_a} * m.numerator_b / m.denominator;
  for (int i = 0; i < 24; ++i) {
    const double tie =
        (static_cast<double>(random.Between(o.lo - 1, o.hi)) - o.zero_point + 0.5) / multiplier;
    if (std::fabs(tie) > 2147483000.0) continue;
    for (int k = -2; k <= 2; ++k) acc.push_back(static_cast<int32_t>(std::nearbyint(tie)) + k);
  }
  for (int i = 0; i < 60; ++i) {
    acc.push_back(static_cast<int32_t>(random.Next()) >> random.Between(0, 31));
  }
  return acc;
}

int32_t Code(uint8_t byte, ElementType type) {
  return type == ElementType::kS8 ? static_cast<int8_t>(byte) : byte;
}

TEST(BackendRequantize, IsBitEqualToTheLibrary) {
  uint64_t seed = 0;
  for (const Multiplier& m : Multipliers()) {
    for (const Output& o : Outputs()) {
      const std::vector<int32_t> acc = Accumulators(m, o, ++seed);
      const auto n = static_cast<int64_t>(acc.size());
      for (const Requantization mode : kModes) {
        std::vector<int32_t> expected;
        for (const int32_t a : acc) expected.push_back(Reference(mode, a, m, o));
        ForEachTarget([&](const std::string&) {
          std::vector<uint8_t> y(acc.size());
          ASSERT_EQ(Requantize({acc.data(), ElementType::kS32, 1, n, n}, {&m, 1}, o.zero_point,
                               o.range, {y.data(), o.type, 1, n, n}, mode)
                        .error,
                    "");
          for (size_t i = 0; i < acc.size(); ++i) {
            ASSERT_EQ(Code(y[i], o.type), expected[i])
                << "mode " << static_cast<int>(mode) << " acc " << acc[i] << " zero point "
                << o.zero_point << " multiplier " << std::hexfloat << m.numerator_a << " * "
                << m.numerator_b << " / " << m.denominator;
          }
        });
      }
    }
  }
}

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

TEST(BackendRequantize, TouchesOnlyTheGivenElementsPerColumnToo) {
  Random random(3);
  const Output o{ElementType::kU8, 100, {}, 0, 255};
  for (size_t columns = 1; columns <= 70; ++columns) {
    const bool per_column = columns % 2 == 0;
    const size_t rows = columns % 3 + 1;
    const size_t stride = columns + columns % 5;
    const size_t size = (rows - 1) * stride + columns;
    std::vector<Multiplier> multipliers;
    for (size_t j = 0; j < (per_column ? columns : 1); ++j) {
      multipliers.push_back({random.Scale(-9, 1), random.Scale(-1, 1), random.Scale(0, 0)});
    }
    std::vector<int32_t> values(size);
    for (int32_t& v : values) v = static_cast<int32_t>(random.Between(-9999, 9999));
    for (const bool at_start : {false, true}) {
      GuardedBuffer<int32_t> acc(size, at_start);
      GuardedBuffer<uint8_t> y(size, at_start);
      acc.Assign(values);
      for (const Requantization mode : kModes) {
        ForEachTarget([&](const std::string&) {
          std::fill_n(y.data(), size, uint8_t{0xA5});
          ASSERT_TRUE(
              Requantize(
                  {acc.data(), ElementType::kS32, int64_t(rows), int64_t(columns), int64_t(stride)},
                  multipliers, o.zero_point, o.range,
                  {y.data(), o.type, int64_t(rows), int64_t(columns), int64_t(stride)}, mode)
                  .ok());
          for (size_t i = 0; i < size; ++i) {
            const size_t j = i % stride;
            const int32_t expected =
                j >= columns ? 0xA5
                             : Reference(mode, values[i], multipliers[per_column ? j : 0], o);
            ASSERT_EQ(y[i], expected) << columns << " columns, element " << i;
          }
        });
      }
    }
  }
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
        ASSERT_EQ(y[i], Reference(mode, sum, {params.x_scale, 0.003f, params.y_scale},
                                  {ElementType::kU8, 130, {}, 0, 255}))
            << i;
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
