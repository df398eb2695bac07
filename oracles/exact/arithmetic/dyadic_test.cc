// SPDX-License-Identifier: Apache-2.0
// Rounding of dyadic quotients: hand values at every edge, and the processor where it is exact.
#include "oracles/exact/arithmetic/dyadic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cfloat>
#include <cmath>
#include <limits>
#include <string>

#include "core/rng.h"
#include "oracles/exact/arithmetic/rational.h"

namespace qualm::exact {
namespace {

int64_t Nearest(const Line& line, __int128 s) { return Round(line, s).integer; }

TEST(Dyadic, Decode) {
  EXPECT_EQ(Decode(0.0f).mantissa, 0);
  EXPECT_EQ(Decode(-0.0f).mantissa, 0);
  EXPECT_EQ(Decode(0.0f).exponent, 0);
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
  // A sum of more than 124 bits that cancels to its lowest ones: +-2^-258.
  Line cancelled;
  cancelled.gain = int64_t{1} << 40;
  cancelled.gain_exponent = -298;
  cancelled.offset_exponent = -168;
  for (const int sign : {1, -1}) {
    cancelled.offset = -sign;
    const float zero = RoundToFloat(cancelled, sign * ((__int128{1} << 90) + 1));
    EXPECT_EQ(zero, 0.0f);
    EXPECT_EQ(std::signbit(zero), sign < 0);
  }
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

// Any line, with its numbers drawn towards the places where 128 bits no longer hold a term.
struct Drawn {
  Line line;
  __int128 s = 0;
};
Drawn AnyLine(Rng& rng) {
  const auto number = [&](int most_bits) {
    const int bits = static_cast<int>(rng.Between(1, most_bits));
    return static_cast<int64_t>((uint64_t{1} << (bits - 1)) |
                                (rng.Next() & ((uint64_t{1} << (bits - 1)) - 1)));
  };
  const auto signed_number = [&](int most_bits) {
    return rng.Chance(1, 2) ? number(most_bits) : -number(most_bits);
  };
  Drawn drawn;
  Line& line = drawn.line;
  const int range = rng.Chance(1, 2) ? 8 : rng.Chance(1, 2) ? 70 : 290;
  line.gain = rng.Chance(1, 20) ? 0 : number(48);
  line.gain_exponent = static_cast<int>(rng.Between(-range, std::min(range, 208)));
  if (rng.Chance(2, 3)) {
    line.offset = signed_number(58);
    line.offset_exponent =
        static_cast<int>(rng.Between(-std::min(range, 149), std::min(range, 104)));
  }
  if (rng.Chance(2, 3)) {
    line.divisor = number(rng.Chance(1, 2) ? 24 : 56);
    line.divisor_exponent =
        static_cast<int>(rng.Between(-std::min(range, 149), std::min(range, 104)));
  }
  if (!rng.Chance(1, 10)) {
    drawn.s = signed_number(62);
    if (rng.Chance(1, 2)) drawn.s <<= rng.Between(0, 47);
    if (rng.Chance(1, 2)) drawn.s += signed_number(30);
  }
  // The quotient near an integer, a tie or kFar, in either sum.
  if (rng.Chance(1, 2)) {
    const int up = static_cast<int>(rng.Between(0, 66));
    const int64_t wanted = rng.Chance(1, 3) ? 2 * kFar + rng.Between(-3, 3) : signed_number(20);
    line.gain = line.divisor = 2 * number(20) + 1;
    line.divisor_exponent = line.gain_exponent + up + 1;
    drawn.s = static_cast<__int128>(rng.Chance(1, 2) ? wanted : -wanted) << up;
    line.offset = rng.Chance(1, 2) ? 0 : rng.Between(-2, 2);
    line.offset_exponent = line.gain_exponent + static_cast<int>(rng.Between(-20, 5));
    line.divisor_exponent = std::clamp(line.divisor_exponent, -200, 200);
    line.offset_exponent = std::clamp(line.offset_exponent, -200, 200);
  }
  return drawn;
}

Integer ToInteger(__int128 s) {
  const bool negative = s < 0;
  const auto magnitude =
      negative ? -static_cast<unsigned __int128>(s) : static_cast<unsigned __int128>(s);
  const Integer value =
      (Integer(static_cast<uint64_t>(magnitude >> 64)) << 64) + static_cast<uint64_t>(magnitude);
  return negative ? Integer(-value) : value;
}

Rational Numerator(const Drawn& drawn) {
  const Line& line = drawn.line;
  return ToInteger(drawn.s) * Rational(line.gain) * PowerOfTwo(line.gain_exponent) +
         Rational(line.offset) * PowerOfTwo(line.offset_exponent);
}
Rational Divisor(const Line& line) {
  return Rational(line.divisor) * PowerOfTwo(line.divisor_exponent);
}

std::string Text(const Drawn& drawn) {
  const Line& line = drawn.line;
  return "(" + ToInteger(drawn.s).str() + " * " + std::to_string(line.gain) + "b" +
         std::to_string(line.gain_exponent) + " + " + std::to_string(line.offset) + "b" +
         std::to_string(line.offset_exponent) + ") / " + std::to_string(line.divisor) + "b" +
         std::to_string(line.divisor_exponent);
}

// Of a positive rational below 2^1000.
double ToDouble(const Rational& value) { return value == 0 ? 0 : static_cast<double>(value); }

TEST(Dyadic, RoundsAsRationalsDo) {
  Rng rng(15);
  int far = 0, ties = 0;
  for (int i = 0; i < 60000; ++i) {
    const Drawn drawn = AnyLine(rng);
    const Rational value = Numerator(drawn) / Divisor(drawn.line);
    const Rounded rounded = Round(drawn.line, drawn.s);
    const Integer nearest = RoundHalfEven(value);
    if (nearest >= kFar || nearest <= -kFar) {
      ++far;
      ASSERT_EQ(rounded.integer, nearest > 0 ? kFar : -kFar) << Text(drawn);
      ASSERT_FALSE(rounded.tie_distance.has_value()) << Text(drawn);
      ASSERT_EQ(rounded.rest, 0) << Text(drawn);
      continue;
    }
    ASSERT_EQ(rounded.integer, nearest) << Text(drawn);
    const Rational rest = value - Rational(nearest);
    ASSERT_EQ(rounded.rest, rest > 0 ? 1 : rest < 0 ? -1 : 0) << Text(drawn);
    const Rational distance = 1 - 2 * abs(rest);
    ASSERT_TRUE(rounded.tie_distance.has_value()) << Text(drawn);
    if (distance == 0) ++ties;
    ASSERT_EQ(*rounded.tie_distance == 0, distance == 0) << Text(drawn);
    ASSERT_NEAR(*rounded.tie_distance, ToDouble(distance), 1e-12 + 1e-12 * ToDouble(distance))
        << Text(drawn);
    ASSERT_LE(std::abs(*rounded.tie_distance - ToDouble(distance)), 1e-9 * ToDouble(distance))
        << Text(drawn);
  }
  EXPECT_GT(far, 5000);
  EXPECT_GT(ties, 2000);
}

TEST(Dyadic, RoundsToFloatAsRationalsDo) {
  Rng rng(16);
  for (int i = 0; i < 60000; ++i) {
    Drawn drawn = AnyLine(rng);
    if (rng.Chance(1, 4)) {  // ties and next to them, in a sum that 128 bits do not hold
      drawn.line.gain = int64_t{1} << rng.Between(42, 47);
      drawn.line.offset = rng.Between(-1, 1);
      drawn.line.offset_exponent = drawn.line.gain_exponent;
      drawn.s = static_cast<__int128>(rng.Between(-(1 << 26), 1 << 26)) << rng.Between(70, 83);
    }
    drawn.line.divisor = 1;
    drawn.line.divisor_exponent = 0;
    ASSERT_EQ(std::bit_cast<uint32_t>(RoundToFloat(drawn.line, drawn.s)),
              std::bit_cast<uint32_t>(RoundToFloat32(Numerator(drawn))))
        << Text(drawn);
  }
}

TEST(Dyadic, RealsAreNearAndSayWhetherTheyAreExact) {
  Rng rng(17);
  int exact = 0;
  for (int i = 0; i < 60000; ++i) {
    const Drawn drawn = AnyLine(rng);
    const Line& line = drawn.line;
    const Rational value = Numerator(drawn) / Divisor(line);
    const Real real = ToReal(line, drawn.s);
    ASSERT_TRUE(std::isfinite(real.value)) << Text(drawn);
    const Rational found(real.value);
    // Of a double that is no multiple of 2^-300 nothing is known.
    if (real.is_exact) {
      ++exact;
      ASSERT_EQ(found, value) << Text(drawn);
    } else if (abs(value) > PowerOfTwo(-40)) {
      ASSERT_NE(found, value) << Text(drawn);
    }
    const Rational terms =
        abs(ToInteger(drawn.s) * Rational(line.gain) * PowerOfTwo(line.gain_exponent) /
            Divisor(line)) +
        abs(Rational(line.offset) * PowerOfTwo(line.offset_exponent) / Divisor(line));
    ASSERT_LE(Rational(abs(found - value)),
              Rational(abs(value) * PowerOfTwo(-52) + terms * PowerOfTwo(-60)))
        << Text(drawn);
  }
  EXPECT_GT(exact, 10000);
  // The smallest power of two whose double is known to be exact.
  Line tiny;
  tiny.gain_exponent = -248;
  EXPECT_TRUE(ToReal(tiny, 1).is_exact);
  tiny.gain_exponent = -249;
  EXPECT_EQ(ToReal(tiny, 1).value, 0x1p-249);
  EXPECT_FALSE(ToReal(tiny, 1).is_exact);
}

TEST(Dyadic, FactorAndOffsetOfALine) {
  Line line = Over(Plus(Scale(0x1.8p20f, 3.0f), -0x1.4p-30f, 7), 0x1.8p-10f, 5);
  EXPECT_EQ(MultiplierOf(line), 0x1.8p20L * 3 / (0x1.8p-10L * 5));
  EXPECT_EQ(OffsetOf(line), -0x1.4p-30L * 7 / (0x1.8p-10L * 5));
  EXPECT_EQ(MultiplierOf(Scale(0x1p-149f, 0x1p-149f)), 0x1p-298L);
}

}  // namespace
}  // namespace qualm::exact
