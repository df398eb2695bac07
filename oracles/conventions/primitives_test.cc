// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/primitives.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <limits>

namespace qualm::conventions {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(PrimitivesTest, RoundsTiesToEven) {
  const std::pair<float, float> table[] = {{0.5f, 0.0f},
                                           {1.5f, 2.0f},
                                           {2.5f, 2.0f},
                                           {-0.5f, -0.0f},
                                           {-1.5f, -2.0f},
                                           {-2.5f, -2.0f},
                                           {0.49999997f, 0.0f},
                                           {127.5f, 128.0f},
                                           {8388607.5f, 8388608.0f},
                                           {8388609.0f, 8388609.0f},
                                           {kInf, kInf},
                                           {-kInf, -kInf}};
  for (const auto& [x, expected] : table) {
    EXPECT_EQ(RoundNearestEven(x), expected) << x;
    EXPECT_EQ(std::signbit(RoundNearestEven(x)), std::signbit(expected)) << x;
    EXPECT_EQ(RoundNearestEven(static_cast<double>(x)), static_cast<double>(expected)) << x;
  }
}

TEST(PrimitivesTest, RoundingAgreesWithTheHardwareAndIgnoresTheRoundingMode) {
  // Every 4099th float32 pattern against nearbyint in the default mode.
  std::vector<std::pair<float, float>> samples;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!std::isnan(x)) samples.emplace_back(x, std::nearbyint(x));
  }
  for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    int64_t wrong = 0;
    for (const auto& [x, expected] : samples) {
      if (std::bit_cast<uint32_t>(RoundNearestEven(x)) != std::bit_cast<uint32_t>(expected))
        ++wrong;
    }
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(wrong, 0) << mode;
  }
}

TEST(PrimitivesTest, NumbersBeside) {
  EXPECT_EQ(Beside(1.0f, 2), 1.0f + 0x1p-22f);
  EXPECT_EQ(Beside(1.0f, -2), 1.0f - 0x1p-23f);
  EXPECT_EQ(Beside(1.0, 1), 1.0 + 0x1p-52);
  EXPECT_EQ(Beside(0.0f, -1), -0x1p-149f);
  EXPECT_EQ(Beside(0.7f, 0), 0.7f);
  EXPECT_EQ(Beside(kInf, 1), kInf);
  EXPECT_EQ(Beside(kInf, -1), std::numeric_limits<float>::max());
}

TEST(PrimitivesTest, ConversionsDifferWhereInt32Ends) {
  EXPECT_EQ(ConvertX86(2147483520.0f), 2147483520);
  EXPECT_EQ(ConvertX86(2147483648.0f), INT32_MIN);
  EXPECT_EQ(ConvertX86(-2147483648.0f), INT32_MIN);
  EXPECT_EQ(ConvertX86(kInf), INT32_MIN);
  EXPECT_EQ(ConvertX86(kNaN), INT32_MIN);
  EXPECT_EQ(ConvertArm(2147483648.0f), INT32_MAX);
  EXPECT_EQ(ConvertArm(-kInf), INT32_MIN);
  EXPECT_EQ(ConvertArm(kNaN), 0);
  EXPECT_EQ(ConvertX86To64(2147483648.0f), int64_t{1} << 31);
  EXPECT_EQ(ConvertX86To64(0x1p63f), INT64_MIN);
  EXPECT_EQ(ConvertX86To64(kNaN), INT64_MIN);
}

TEST(PrimitivesTest, MinAndMaxReturnTheSecondOperandForNaN) {
  EXPECT_EQ(MinPs(kNaN, 3.0f), 3.0f);
  EXPECT_TRUE(std::isnan(MinPs(3.0f, kNaN)));
  EXPECT_EQ(MaxPs(kNaN, 3.0f), 3.0f);
  EXPECT_EQ(MinPs(1.0f, 2.0f), 1.0f);
  EXPECT_EQ(MaxPs(1.0f, 2.0f), 2.0f);
}

TEST(PrimitivesTest, PairsSaturateFromOneHundredAndThirtyOn) {
  EXPECT_EQ(SaturatingPair(128, -128, 128, -128), -32768);  // fits exactly
  EXPECT_EQ(SaturatingPair(129, -128, 129, -128), -32768);  // -33024
  EXPECT_EQ(SaturatingPair(129, 127, 129, 127), 32766);
  EXPECT_EQ(SaturatingPair(130, 127, 130, 127), 32767);  // 33020
  EXPECT_EQ(SaturatingPair(127, -128, 127, -128), -32512);
  EXPECT_EQ(SaturatingPair(255, 127, 0, 0), 32385);
}

TEST(PrimitivesTest, WrapKeepsTheLow32Bits) {
  EXPECT_EQ(Wrap32(int64_t{1} << 31), INT32_MIN);
  EXPECT_EQ(Wrap32((int64_t{1} << 32) + 5), 5);
  EXPECT_EQ(Wrap32(-(int64_t{1} << 31) - 1), INT32_MAX);
}

TEST(PrimitivesTest, FixedPointRounding) {
  EXPECT_EQ(SaturatingRoundingDoublingHighMul(INT32_MIN, INT32_MIN), INT32_MAX);
  EXPECT_EQ(SaturatingRoundingDoublingHighMul(1, 1 << 30), 1);    // 0.5 -> 1
  EXPECT_EQ(SaturatingRoundingDoublingHighMul(-1, 1 << 30), 0);   // -0.5 -> 0: not symmetric
  EXPECT_EQ(SaturatingRoundingDoublingHighMul(-3, 1 << 30), -1);  // -1.5 -> -1
  EXPECT_EQ(RoundingDivideByPot(3, 1), 2);                        // 1.5 -> 2
  EXPECT_EQ(RoundingDivideByPot(-3, 1), -2);                      // -1.5 -> -2: away from zero
  EXPECT_EQ(RoundingDivideByPot(INT32_MIN, 31), -1);
  EXPECT_EQ(RoundingDivideByPot(-7, 0), -7);
}

TEST(PrimitivesTest, QuantizedMultipliers) {
  EXPECT_EQ(QuantizeMultiplier(0.0, false), (FixedMultiplier{0, 0}));
  EXPECT_EQ(QuantizeMultiplier(0.5, false), (FixedMultiplier{1 << 30, 0}));
  EXPECT_EQ(QuantizeMultiplier(1.0 - 0x1p-40, false), (FixedMultiplier{1 << 30, 1}));
  EXPECT_EQ(QuantizeMultiplier(0x1p-40, false), (FixedMultiplier{0, 0}));
  EXPECT_EQ(QuantizeMultiplier(0x1p40, true), (FixedMultiplier{INT32_MAX, 30}));
  // 3 * 0.5: both round away here; -3 * 0.5 tells them apart.
  EXPECT_EQ(MultiplyTwoRoundings(3, {1 << 30, 0}), 2);
  EXPECT_EQ(MultiplyOneRounding(3, {1 << 30, 0}), 2);
  EXPECT_EQ(MultiplyTwoRoundings(-5, {1 << 30, -1}), -1);  // -2.5 -> -2 -> -1
  EXPECT_EQ(MultiplyOneRounding(-6, {1 << 30, -1}), -1);   // -1.5 -> -1: toward +inf
  EXPECT_EQ(MultiplyTwoRoundings(-6, {1 << 30, -1}), -2);  // -3 -> -1.5 -> -2: away from zero
}

}  // namespace
}  // namespace qualm::conventions
