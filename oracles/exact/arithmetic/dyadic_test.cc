// SPDX-License-Identifier: Apache-2.0
// Rounding of dyadic quotients: hand values at every edge, and the processor where it is exact.
#include "oracles/exact/arithmetic/dyadic.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cfloat>
#include <cmath>
#include <limits>

#include "core/rng.h"

namespace qualm::exact {
namespace {

int64_t Nearest(const Line& line, __int128 s) { return Round(line, s).integer; }

TEST(Dyadic, Decode) {
  EXPECT_EQ(Decode(0.0f).mantissa, 0);
  EXPECT_EQ(Decode(-0.0f).mantissa, 0);
  EXPECT_EQ(Decode(-6.0f).mantissa, -3);
  EXPECT_EQ(Decode(-6.0f).exponent, 1);
  Rng rng(9);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(rng.Next()));
    if (!std::isfinite(value)) continue;
    const Dyadic dyadic = Decode(value);
    EXPECT_EQ(std::ldexp(double{1} * dyadic.mantissa, dyadic.exponent), double{value});
  }
}

TEST(Dyadic, TiesGoToEven) {
  const Line half = Scale(0.5f);
  const int64_t expected[] = {-4, -3, -2, -2, -2, -1, 0, 0, 0, 1, 2, 2, 2, 3, 4};
  for (int s = -7; s <= 7; ++s) {
    const Rounded rounded = Round(half, s);
    EXPECT_EQ(rounded.integer, expected[s + 7]) << s;
    EXPECT_EQ(rounded.tie_distance, s % 2 == 0 ? 1.0 : 0.0) << s;
    EXPECT_EQ(rounded.rest, s - 2 * rounded.integer) << s;
  }
  // 1/6 * 3 is no power of two away from a tie, and still exactly one.
  const Line sixth = Over(Scale(1.0f), 6.0f);
  EXPECT_EQ(Nearest(sixth, 3), 0);
  EXPECT_EQ(Nearest(sixth, 9), 2);
  EXPECT_EQ(Nearest(sixth, 15), 2);
  EXPECT_EQ(Round(sixth, 15).tie_distance, 0.0);
  EXPECT_EQ(Round(sixth, 12).tie_distance, 1.0);
  EXPECT_DOUBLE_EQ(*Round(sixth, 1).tie_distance, 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(*Round(sixth, -5).tie_distance, 2.0 / 3.0);
}

// The offset decides a tie however far below it lies, in 128 bits or in the long sum.
TEST(Dyadic, SmallestOffsetTipsATie) {
  for (const float scale : {0.5f, 0x1.8p10f, 0x1p100f}) {
    const Line line = Over(Scale(scale, 0.5f), scale);
    for (const float offset : {0x1p-149f, 0x1p-30f}) {
      EXPECT_EQ(Nearest(Plus(line, offset), 1), 1) << scale << " " << offset;
      EXPECT_EQ(Nearest(Plus(line, -offset), 1), 0) << scale << " " << offset;
      EXPECT_EQ(Nearest(Plus(line, offset), -1), 0) << scale << " " << offset;
      EXPECT_EQ(Nearest(Plus(line, -offset), -1), -1) << scale << " " << offset;
      EXPECT_EQ(Nearest(Plus(line, -offset), 3), 1) << scale << " " << offset;
      EXPECT_GT(*Round(Plus(line, offset), 1).tie_distance, 0.0);
      EXPECT_LT(*Round(Plus(line, offset), 1).tie_distance, 1e-8);
    }
    EXPECT_EQ(Nearest(line, 1), 0);
    EXPECT_EQ(Nearest(line, 3), 2);
  }
}

// Two huge terms that cancel to an ordinary value: a floating-point guess sees nothing of it.
TEST(Dyadic, Cancellation) {
  Line line = Plus(Scale(0x1p100f, 0x1p20f), -0x1p127f);
  EXPECT_EQ(Nearest(line, 128), 0);
  EXPECT_EQ(Nearest(line, 129), kFar);
  EXPECT_EQ(Nearest(line, 127), -kFar);
  // (2^100 * 3 + 7) * 2^-40 - 3 * 2^60 = 7 * 2^-40; over 2^-40 it is 7.
  const __int128 s = (__int128{3} << 100) + 7;
  line = Over(Plus(Scale(0x1p-20f, 0x1p-20f), -0x1.8p61f), 0x1p-40f);
  EXPECT_EQ(Nearest(line, s), 7);
  EXPECT_EQ(Nearest(Over(line, 0x1p-39f), s), 4);
  EXPECT_EQ(Round(Over(line, 0x1p-39f), s).tie_distance, 0.0);
  EXPECT_EQ(Nearest(Over(line, 0x1p-149f), s), kFar);
}

// 2^80 * odd / 2^81 with a 48-bit gain: a tie that 128 bits do not hold.
TEST(Dyadic, TiesOfLongProducts) {
  const float divisor = 0x1.fffffep81f;
  const __int128 s = __int128{1} << 80;
  for (const int sign : {1, -1}) {
    const Rounded up = Round(Over(Scale(0x1.fffffep0f, 16777215.0f), divisor), sign * s);
    EXPECT_EQ(up.integer, sign * 8388608);
    EXPECT_EQ(up.tie_distance, 0.0);
    EXPECT_EQ(up.rest, -sign);
    const Rounded down = Round(Over(Scale(0x1.fffffep0f, 16777213.0f), divisor), sign * s);
    EXPECT_EQ(down.integer, sign * 8388606);
    EXPECT_EQ(down.tie_distance, 0.0);
    EXPECT_EQ(down.rest, sign);
  }
  const Line line = Over(Scale(0x1.fffffep0f, 16777215.0f), divisor);
  EXPECT_EQ(Nearest(line, s - 1), 8388607);
  EXPECT_GT(*Round(line, s - 1).tie_distance, 0.0);
}

TEST(Dyadic, FarValues) {
  const Line one;
  EXPECT_EQ(Nearest(one, kFar - 1), kFar - 1);
  EXPECT_EQ(Nearest(one, 1 - kFar), 1 - kFar);
  EXPECT_EQ(Nearest(one, kFar), kFar);
  EXPECT_EQ(Nearest(one, -kFar), -kFar);
  EXPECT_EQ(Nearest(one, kFar + 1), kFar);
  EXPECT_EQ(Nearest(one, __int128{-1} << 109), -kFar);
  EXPECT_FALSE(Round(one, kFar).tie_distance.has_value());
  EXPECT_TRUE(Round(one, kFar - 1).tie_distance.has_value());
  // kFar - 1/2 is a tie that rounds to kFar; the same with a far-off offset, in the long sum.
  EXPECT_EQ(Nearest(Scale(0.5f), 2 * kFar - 1), kFar);
  EXPECT_EQ(Nearest(Scale(0.5f), 1 - 2 * kFar), -kFar);
  EXPECT_EQ(Nearest(Plus(Scale(0.5f), -0x1p-149f), 2 * kFar - 1), kFar - 1);
  EXPECT_EQ(Nearest(Plus(Scale(0.5f), 0x1p-149f), 2 * kFar - 1), kFar);
  EXPECT_EQ(Nearest(Plus(Scale(0.5f), 0x1p-149f), 1 - 2 * kFar), 1 - kFar);
  EXPECT_EQ(Nearest(Over(Scale(FLT_MAX, FLT_MAX), 0x1p-149f), __int128{1} << 109), kFar);
  EXPECT_EQ(Nearest(Over(Scale(0x1p-149f, 0x1p-149f), FLT_MAX), __int128{1} << 109), 0);
  EXPECT_EQ(Nearest(Over(Scale(0x1p-149f, 0x1p-149f), 0x1p-149f), -1), 0);
}

float AnyScale(Rng& rng, int from, int to) {
  return std::ldexp(1.0f + static_cast<float>(rng.Unit()), static_cast<int>(rng.Between(from, to)));
}

// Lines of every size, integers up to 2^100, values next to ties among them.
TEST(Dyadic, AnEstimateDecidesAsRoundDoesOrNotAtAll) {
  Rng rng(14);
  int decided = 0, ties = 0;
  for (int i = 0; i < 200000; ++i) {
    const bool near = rng.Chance(1, 2);
    const int range = near ? 12 : 120;
    Line line = Over(Scale(AnyScale(rng, -range, range), AnyScale(rng, -6, 6)),
                     AnyScale(rng, -range, range), rng.Between(1, 40));
    if (rng.Chance(1, 2))
      line = Plus(line, rng.Chance(1, 2) ? AnyScale(rng, -range, 3) : -AnyScale(rng, -range, 3));
    if (rng.Chance(1, 8)) line = Over(Scale(0.5f), 1.0f);  // ties
    __int128 s = rng.Between(-(int64_t{1} << 31), int64_t{1} << 31);
    if (!near && rng.Chance(1, 4)) s <<= rng.Between(0, 68);
    const std::optional<Near> estimated = Decide(EstimatedLine(line).At(s));
    const Rounded rounded = Round(line, s);
    if (rounded.tie_distance == 0.0) {
      ++ties;
      EXPECT_FALSE(estimated) << "a tie is decided";
    }
    if (!estimated) continue;
    ++decided;
    ASSERT_EQ(estimated->integer, rounded.integer);
    if (rounded.tie_distance) {
      EXPECT_LE(estimated->tie_distance, *rounded.tie_distance);
    } else {
      EXPECT_EQ(estimated->tie_distance, 2);
    }
  }
  EXPECT_GT(decided, 150000);
  EXPECT_GT(ties, 5000);
}

TEST(Dyadic, NoEstimateNextToKFar) {
  const double far = static_cast<double>(kFar);
  EXPECT_FALSE(Decide({far, 0x1p-40}));
  EXPECT_FALSE(Decide({-far + 1, 0x1p-40}));
  EXPECT_EQ(Decide({-far - 2, 0x1p-40})->integer, -kFar);
  EXPECT_EQ(Decide({far - 3, 0x1p-40})->integer, kFar - 3);
  EXPECT_FALSE(Decide({1e30, 2e30}));
}

TEST(Dyadic, RoundToFloatAsTheProcessor) {
  Rng rng(10);
  for (int i = 0; i < 40000; ++i) {
    const auto a = std::bit_cast<float>(static_cast<uint32_t>(rng.Below(0x7f800000)));
    auto b = std::bit_cast<float>(static_cast<uint32_t>(rng.Below(0x7f800000)));
    if (!std::isfinite(a) || a == 0) continue;
    if (rng.Chance(1, 3)) b = std::ldexp(b, -std::ilogb(a) - 140);
    if (!std::isfinite(b) || b == 0) continue;
    for (const int sign : {1, -1}) {
      const auto expected = static_cast<float>(sign * (double{a} * double{b}));
      EXPECT_EQ(std::bit_cast<uint32_t>(RoundToFloat(Scale(a, b), sign)),
                std::bit_cast<uint32_t>(expected))
          << a << " " << b;
    }
  }
}

// One rounding of s * a + b is what fma does, as long as s is a float.
TEST(Dyadic, RoundToFloatAsFma) {
  Rng rng(11);
  int cancelled = 0;
  for (int i = 0; i < 40000; ++i) {
    const auto a = std::bit_cast<float>(static_cast<uint32_t>(rng.Below(0x7f800000)));
    const auto s = static_cast<int32_t>(rng.Between(-(1 << 24), 1 << 24));
    auto b = std::bit_cast<float>(static_cast<uint32_t>(rng.Next()));
    if (rng.Chance(1, 2)) {
      b = -static_cast<float>(s) * a;
      ++cancelled;
    }
    if (!std::isfinite(b) || a == 0) continue;
    const float expected = std::fma(static_cast<float>(s), a, b);
    const float rounded = RoundToFloat(Plus(Scale(a), b), s);
    if (expected == 0 && s == 0) {
      EXPECT_EQ(rounded, 0.0f);  // fma keeps the sign of zeros that are exact
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(rounded), std::bit_cast<uint32_t>(expected))
          << s << " * " << a << " + " << b;
    }
  }
  EXPECT_GT(cancelled, 1000);
}

TEST(Dyadic, RoundToFloatEdges) {
  const float inf = std::numeric_limits<float>::infinity();
  // Sticky bits beyond 128: half way, plus or minus far less than any bit of the sum.
  const Line one = Scale(1.0f);
  EXPECT_EQ(RoundToFloat(Plus(one, 0x1p-149f), (1 << 25) + 2), 0x1.000002p25f);
  EXPECT_EQ(RoundToFloat(one, (1 << 25) + 2), 0x1p25f);
  EXPECT_EQ(RoundToFloat(Plus(one, -0x1p-149f), (1 << 25) + 6), 0x1.000002p25f);
  EXPECT_EQ(RoundToFloat(one, (1 << 25) + 6), 0x1.000004p25f);
  EXPECT_EQ(RoundToFloat(Plus(Scale(0x1p-149f, 0x1p-149f), FLT_MAX), -1), FLT_MAX);
  EXPECT_EQ(RoundToFloat(Scale(FLT_MAX, FLT_MAX), -1), -inf);
  EXPECT_EQ(RoundToFloat(Scale(FLT_MAX), 1), FLT_MAX);
  EXPECT_EQ(RoundToFloat(Scale(FLT_MAX), 2), inf);
  // FLT_MAX + 2^103 is half way to 2^128, whose mantissa would be even.
  EXPECT_EQ(RoundToFloat(Plus(Scale(0x1p103f), FLT_MAX), 1), inf);
  EXPECT_EQ(RoundToFloat(Plus(Scale(0x1.fffffep102f), FLT_MAX), 1), FLT_MAX);
  EXPECT_EQ(RoundToFloat(Scale(0x1p-149f, 0.5f), 1), 0.0f);
  EXPECT_EQ(RoundToFloat(Scale(0x1p-149f, 0.5f), 3), 0x1p-148f);
  EXPECT_EQ(RoundToFloat(Plus(Scale(0x1p-149f, 0x1p-149f), 0x1p-149f), -1), 0x1p-149f);
  EXPECT_FALSE(std::signbit(RoundToFloat(Plus(Scale(3.0f), -6.0f), 2)));
  EXPECT_TRUE(std::signbit(RoundToFloat(Scale(0x1p-149f, 0x1p-149f), -1)));
}

// The environment of the caller decides nothing.
TEST(Dyadic, RoundingModeDoesNotMatter) {
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    ASSERT_EQ(std::fesetround(mode), 0);
    const int64_t tie = Nearest(Scale(0.5f), 5);
    const int64_t wide = Nearest(Plus(Scale(0x1p100f), 0x1p-149f), 0);
    const int64_t cancelled = Nearest(Plus(Scale(0x1p60f), -0x1.000002p83f), (1 << 23) + 1);
    const float real = RoundToFloat(Scale(0.1f), 3);
    ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
    EXPECT_EQ(tie, 2);
    EXPECT_EQ(wide, 0);
    EXPECT_EQ(cancelled, 0);
    EXPECT_EQ(real, 3 * 0.1f);
  }
}

}  // namespace
}  // namespace qualm::exact
