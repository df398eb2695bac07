// SPDX-License-Identifier: Apache-2.0
// The arithmetic under the planted faults, against values worked out by hand and against long
// division in 80-bit floats where that is exact.
#include "adapters/faulty/dyadic.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace qualm::faulty {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Dyadic, FloatsAreExact) {
  for (float value : {1.0f, -1.5f, 0x1.fffffep127f, 0x1p-149f, -0x1.8p-140f, 0.1f, 0.0f}) {
    const Dyadic dyadic = FromFloat(value);
    EXPECT_EQ(std::ldexp(static_cast<double>(dyadic.mantissa), dyadic.exponent), value);
  }
}

int64_t Rounded(float numerator, float denominator, RoundTo rule = RoundTo::kNearestEven,
                bool odd = false) {
  return RoundQuotient(FromFloat(numerator), FromFloat(denominator), rule, odd);
}

TEST(Dyadic, RoundsTiesByTheRule) {
  EXPECT_EQ(Rounded(0.5f, 1), 0);
  EXPECT_EQ(Rounded(1.5f, 1), 2);
  EXPECT_EQ(Rounded(-2.5f, 1), -2);
  EXPECT_EQ(Rounded(7, 2), 4);
  EXPECT_EQ(Rounded(0.5f, 1, RoundTo::kNearestEven, true), 1);
  EXPECT_EQ(Rounded(-1.5f, 1, RoundTo::kNearestEven, true), -1);
  EXPECT_EQ(Rounded(2.5f, 1, RoundTo::kNearestAway), 3);
  EXPECT_EQ(Rounded(-2.5f, 1, RoundTo::kNearestAway), -3);
  EXPECT_EQ(Rounded(-0.25f, 1, RoundTo::kDown), -1);
  EXPECT_EQ(Rounded(0x1p-100f, 1, RoundTo::kUp), 1);
  EXPECT_EQ(Rounded(-1.75f, 1, RoundTo::kTowardZero), -1);
}

TEST(Dyadic, ATieIsExactHoweverFarApartTheScalesAre) {
  // 5 * 2^-149 / 2^-148 = 2.5, and one denormal step above and below it.
  EXPECT_EQ(Rounded(0x5p-149f, 0x1p-148f), 2);
  EXPECT_EQ(Rounded(0x5p-149f, 0x1.fffffep-148f), 1);
  EXPECT_EQ(Rounded(0x1.400002p127f, 0x1p126f), 3);
  EXPECT_EQ(Rounded(0x1.4p127f, 0x1p126f), 2);
  EXPECT_EQ(Rounded(0x1.3ffffep127f, 0x1p126f), 2);
}

TEST(Dyadic, SaturatesWhatNoCodeHolds) {
  EXPECT_EQ(Rounded(0x1p127f, 0x1p-149f), kHuge);
  EXPECT_EQ(Rounded(-0x1p41f, 1), -kHuge);
  EXPECT_EQ(Rounded(0x1p39f, 1), int64_t{1} << 39);
  EXPECT_EQ(Rounded(0x1p-149f, 0x1p127f), 0);
}

TEST(Dyadic, AgreesWithLongDoubleWhereThatIsExact) {
  std::mt19937_64 random(20240601);
  for (int i = 0; i < 100000; ++i) {
    const auto a = static_cast<int32_t>(random() >> 40) - (1 << 23);
    const auto b = static_cast<int32_t>(random() >> 52) + 1;
    // a and b below 2^24: the quotient of two 24-bit integers is never rounded across a tie at 64.
    const long double quotient = static_cast<long double>(a) / b;
    EXPECT_EQ(Rounded(static_cast<float>(a), static_cast<float>(b)), std::llrint(quotient))
        << a << "/" << b;
  }
}

TEST(Dyadic, SumRefusesWhatDoesNotFit) {
  Dyadic sum;
  ASSERT_TRUE(Sum(FromFloat(1.0f), FromFloat(0x1p-100f), &sum));
  EXPECT_EQ(BitLength(sum.mantissa), 101);
  EXPECT_EQ(sum.exponent, -100);
  EXPECT_FALSE(Sum(FromFloat(1.0f), FromFloat(0x1p-140f), &sum));
  ASSERT_TRUE(Sum(FromFloat(0.0f), FromFloat(0x1p-140f), &sum));
  EXPECT_EQ(RoundToFloat(sum), 0x1p-140f);
  ASSERT_TRUE(Sum(FromFloat(1.5f), FromFloat(-1.5f), &sum));
  EXPECT_EQ(std::bit_cast<uint32_t>(RoundToFloat(sum)), 0u);
}

TEST(Dyadic, RoundsToFloatOnce) {
  const auto value = [](int64_t mantissa, int exponent) {
    return RoundToFloat({mantissa, exponent});
  };
  EXPECT_EQ(value(0x1000001, 0), 0x1p24f);           // tie to even, down
  EXPECT_EQ(value(0x1000003, 0), 0x1.000004p24f);    // tie to even, up
  EXPECT_EQ(value(-0x2000003, 0), -0x1.000002p25f);  // above the tie
  EXPECT_EQ(value(3, -150), 0x1p-148f);              // denormal tie: 1.5 -> 2 units
  EXPECT_EQ(value(1, -150), 0.0f);                   // half the smallest: to even
  EXPECT_EQ(value(0x1000001, -174), 0x1p-149f);      // a little more than half of it
  EXPECT_EQ(value(0xFFFFFF, 104), 0x1.fffffep127f);
  EXPECT_EQ(value(0x1FFFFFF, 103), kInf);  // rounds up past the largest
  EXPECT_EQ(value(-1, 300), -kInf);
  EXPECT_EQ(std::bit_cast<uint32_t>(value(-1, -400)), 0x80000000u);
}

TEST(Dyadic, RoundsToFloatAsTheProcessorDoes) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 100000; ++i) {
    const auto mantissa = static_cast<int64_t>(random() >> (random() % 63));
    const int exponent = static_cast<int>(random() % 300) - 220;
    // Exact in an 80-bit float (64-bit mantissa), converted once.
    const auto want = static_cast<float>(std::ldexp(static_cast<long double>(mantissa), exponent));
    const float got = RoundToFloat({mantissa, exponent});
    EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << mantissa;
  }
}

}  // namespace
}  // namespace qualm::faulty
