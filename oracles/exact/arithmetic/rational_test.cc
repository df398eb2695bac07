// SPDX-License-Identifier: Apache-2.0
// The two roundings of the specification against hand values and against the processor's own.
#include "oracles/exact/arithmetic/rational.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/rng.h"

namespace qualm::exact {
namespace {

Rational Fraction(int p, int q) { return Rational(p, q); }

TEST(Rational, RoundHalfEven) {
  EXPECT_EQ(RoundHalfEven(Fraction(0, 1)), 0);
  EXPECT_EQ(RoundHalfEven(Fraction(1, 2)), 0);
  EXPECT_EQ(RoundHalfEven(Fraction(3, 2)), 2);
  EXPECT_EQ(RoundHalfEven(Fraction(5, 2)), 2);
  EXPECT_EQ(RoundHalfEven(Fraction(-1, 2)), 0);
  EXPECT_EQ(RoundHalfEven(Fraction(-3, 2)), -2);
  EXPECT_EQ(RoundHalfEven(Fraction(-5, 2)), -2);
  EXPECT_EQ(RoundHalfEven(Fraction(-7, 2)), -4);
  EXPECT_EQ(RoundHalfEven(Fraction(499, 1000)), 0);
  EXPECT_EQ(RoundHalfEven(Fraction(501, 1000)), 1);
  EXPECT_EQ(RoundHalfEven(Fraction(-501, 1000)), -1);
  EXPECT_EQ(RoundHalfEven(Fraction(-499, 1000)), 0);
  EXPECT_EQ(RoundHalfEven(Fraction(-7, 1)), -7);
}

TEST(Rational, ToRational) {
  EXPECT_EQ(ToText(ToRational(0.0f)), "0");
  EXPECT_EQ(ToText(ToRational(-0.0f)), "0");
  EXPECT_EQ(ToText(ToRational(1.0f)), "1");
  EXPECT_EQ(ToText(ToRational(-2.75f)), "-11/4");
  EXPECT_EQ(ToText(ToRational(0.1f)), "13421773/134217728");
  EXPECT_EQ(ToRational(0x1p-149f), PowerOfTwo(-149));
  EXPECT_EQ(ToRational(FLT_MAX), PowerOfTwo(128) - PowerOfTwo(104));
}

TEST(Rational, RoundToFloat32ReturnsEveryFloat) {
  Rng rng(7);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(rng.Next()));
    if (!std::isfinite(value) || value == 0) continue;
    EXPECT_EQ(RoundToFloat32(ToRational(value)), value);
  }
}

// The product of two floats is an exact double; the processor rounds it to float once.
TEST(Rational, RoundToFloat32AsTheProcessor) {
  Rng rng(8);
  int denormal = 0;
  int zero = 0;
  int infinite = 0;
  for (int i = 0; i < 40000; ++i) {
    const auto a = std::bit_cast<float>(static_cast<uint32_t>(rng.Next()));
    auto b = std::bit_cast<float>(static_cast<uint32_t>(rng.Next()));
    if (!std::isfinite(a) || a == 0) continue;
    if (rng.Chance(1, 3)) b = std::ldexp(b, -std::ilogb(a) - 140);
    if (!std::isfinite(b) || b == 0) continue;
    const auto expected = static_cast<float>(double{a} * double{b});
    const float rounded = RoundToFloat32(ToRational(a) * ToRational(b));
    EXPECT_EQ(std::bit_cast<uint32_t>(rounded), std::bit_cast<uint32_t>(expected)) << a << " " << b;
    denormal += std::fpclassify(expected) == FP_SUBNORMAL ? 1 : 0;
    zero += expected == 0 ? 1 : 0;
    infinite += std::isinf(expected) ? 1 : 0;
  }
  EXPECT_GT(denormal, 100);
  EXPECT_GT(zero, 100);
  EXPECT_GT(infinite, 100);
}

TEST(Rational, RoundToFloat32Edges) {
  const float inf = std::numeric_limits<float>::infinity();
  const Rational overflow = PowerOfTwo(128) - PowerOfTwo(103);  // half way from FLT_MAX to 2^128
  EXPECT_EQ(RoundToFloat32(overflow), inf);
  EXPECT_EQ(RoundToFloat32(-overflow), -inf);
  EXPECT_EQ(RoundToFloat32(overflow - PowerOfTwo(-400)), FLT_MAX);
  EXPECT_EQ(RoundToFloat32(PowerOfTwo(500)), inf);
  EXPECT_EQ(RoundToFloat32(PowerOfTwo(-150)), 0.0f);  // a tie, 0 is even
  EXPECT_EQ(RoundToFloat32(PowerOfTwo(-150) + PowerOfTwo(-600)), 0x1p-149f);
  EXPECT_EQ(RoundToFloat32(3 * PowerOfTwo(-150)), 0x1p-148f);
  EXPECT_FALSE(std::signbit(RoundToFloat32(0)));
  EXPECT_TRUE(std::signbit(RoundToFloat32(-PowerOfTwo(-700))));
}

// The processor rounds the product of two doubles, of up to 106 bits, once.
TEST(Rational, NearestFloat64AsTheProcessor) {
  Rng rng(9);
  int rounded = 0;
  for (int i = 0; i < 20000; ++i) {
    const double a = (rng.Unit() + 1) * (rng.Chance(1, 2) ? 1 : -1);
    const double b = std::ldexp(rng.Unit() + 1, static_cast<int>(rng.Between(-60, 60)));
    const Rational exact = Rational(a) * Rational(b);
    const Rational nearest = NearestFloat64(exact);
    ASSERT_EQ(nearest, Rational(a * b)) << a << " " << b;
    rounded += nearest == exact ? 0 : 1;
  }
  EXPECT_GT(rounded, 10000);
}

TEST(Rational, NearestFloat64Edges) {
  EXPECT_EQ(NearestFloat64(0), 0);
  const Rational half = PowerOfTwo(-53);  // of the last bit of 1
  EXPECT_EQ(NearestFloat64(1 + half), 1) << "a tie, to the even one";
  EXPECT_EQ(NearestFloat64(1 + 3 * half), 1 + 4 * half);
  EXPECT_EQ(NearestFloat64(1 + half + PowerOfTwo(-400)), 1 + 2 * half);
  EXPECT_EQ(NearestFloat64(-1 - half), -1);
  EXPECT_EQ(NearestFloat64(1 - half), 1 - half) << "below 1 bits are half as large";
  EXPECT_EQ(NearestFloat64(1 - half / 2), 1) << "up to the next power of two";
  EXPECT_EQ(NearestFloat64(Fraction(1, 3)), Rational(1.0 / 3.0));
}

TEST(Rational, ApproximateText) {
  EXPECT_EQ(ApproximateText(0), "0");
  EXPECT_EQ(ApproximateText(Fraction(-1, 3)), "-0.333333333");
  EXPECT_EQ(ApproximateText(PowerOfTwo(-400)), "3.87259191e-121");
  EXPECT_EQ(ApproximateText(Fraction(5, 1)), "5");
}

}  // namespace
}  // namespace qualm::exact
