// SPDX-License-Identifier: Apache-2.0
#include "core/float_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/rng.h"

namespace qualm {
namespace {

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

void ExpectRoundTrip(uint32_t bits) {
  const std::string text = FloatText(FromBits(bits));
  const std::optional<float> back = ParseFloatText(text);
  ASSERT_TRUE(back.has_value()) << text;
  ASSERT_EQ(std::bit_cast<uint32_t>(*back), bits) << text;
}

TEST(FloatText, RoundTripsBits) {
  for (uint32_t exponent = 0; exponent < 512; ++exponent) {
    for (const uint32_t mantissa : {0u, 1u, 2u, 0x2AAAAAu, 0x400000u, 0x7FFFFFu}) {
      ExpectRoundTrip((exponent << 23) | mantissa);
    }
  }
  Rng rng(11);
  for (int i = 0; i < 300000; ++i) ExpectRoundTrip(static_cast<uint32_t>(rng.Next()));
}

TEST(FloatText, Spelling) {
  EXPECT_EQ(FloatText(0x1.0c6a02p-7f), "0x1.0c6a02p-7");
  EXPECT_EQ(FloatText(-0.0f), "-0x0p+0");
  EXPECT_EQ(FloatText(std::numeric_limits<float>::denorm_min()), "0x1p-149");
  EXPECT_EQ(FloatText(-std::numeric_limits<float>::infinity()), "-inf");
  EXPECT_EQ(FloatText(FromBits(0xFFC00001)), "nan:ffc00001");
}

TEST(FloatText, DecimalsAreTheNearestFloat) {
  const float one_up = std::nextafter(1.0f, 2.0f);
  // 1 + 2^-24 is a tie (to even: 1); anything above it is not, though double cannot tell.
  EXPECT_EQ(ParseFloatText("1.000000059604644775390625"), 1.0f);
  EXPECT_EQ(ParseFloatText("1.00000005960464477539062500000000000001"), one_up);
  EXPECT_EQ(ParseFloatText("1e-45"), std::numeric_limits<float>::denorm_min());
  // Half the smallest denormal is a tie with 0.
  EXPECT_EQ(ParseFloatText("7.006492321624085354618e-46"), 0.0f);
  EXPECT_EQ(ParseFloatText("7.006492321624085354619e-46"),
            std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(ParseFloatText("1e-60"), 0.0f);
  EXPECT_EQ(std::bit_cast<uint32_t>(*ParseFloatText("-1e-999999")), 0x80000000u);
  EXPECT_EQ(ParseFloatText("3.4028235677973367e38"), std::nullopt);  // rounds to 2^128
  EXPECT_EQ(ParseFloatText("3.4028235677973366e38"), std::numeric_limits<float>::max());
  // strtof rounds the text once, too.
  Rng rng(12);
  for (int i = 0; i < 100000; ++i) {
    float value = FromBits(static_cast<uint32_t>(rng.Next()) & 0x7FFFFFFF);
    if (!std::isfinite(value)) continue;
    const double wide = value;
    const double half_up = wide + (std::nextafter(value, INFINITY) - wide) / 2;
    char text[64];
    std::snprintf(text, sizeof text, "%.*g", static_cast<int>(rng.Between(5, 30)), half_up);
    const float expected = std::strtof(text, nullptr);
    if (!std::isfinite(expected)) continue;
    ASSERT_EQ(ParseFloatText(text), expected) << text;
  }
}

TEST(FloatText, HexIsExactOrNothing) {
  EXPECT_EQ(ParseFloatText("0x1.800000000p+1"), 3.0f);
  EXPECT_EQ(ParseFloatText("0x0p+99999999999"), 0.0f);
  EXPECT_EQ(ParseFloatText("0x10000000000000000000000000000000p+0"), 0x1p124f);
  EXPECT_EQ(ParseFloatText("0x0.00000000000000000000000000000000018p+1"), 0x1.8p-135f);
  EXPECT_EQ(ParseFloatText("0X1P-149"), std::numeric_limits<float>::denorm_min());
  for (const char* text :
       {"0x1.0000001p0", "0x1p-150", "0x1p-2000", "-0x1p-2000", "0x1p128", "0x1p2000",
        "0x1p99999999999", "0x1.00000000000000000001p0", "0x1.000000000000000000000000000001p0"}) {
    EXPECT_EQ(ParseFloatText(text), std::nullopt) << text;
  }
}

TEST(FloatText, RefusesEverythingElse) {
  for (const char* text : {"",
                           "-",
                           "+1",
                           "--1",
                           "1 ",
                           " 1",
                           "1x",
                           "0x",
                           "0xg",
                           "0x1p",
                           "nan",
                           "NaN",
                           "infinity",
                           "Inf",
                           "+inf",
                           "nan:",
                           "nan:7f800000",
                           "nan:7fc0000",
                           "nan:7fc000000",
                           "nan:7fc0000g",
                           "nan:+7fc0000",
                           "e5",
                           "1e",
                           "0x1p1.5",
                           "1,5"}) {
    EXPECT_EQ(ParseFloatText(text), std::nullopt) << text;
  }
}

TEST(FloatText, ShortestDecimals) {
  for (const auto& [value, text] : {std::pair{0x1.010102p-7f, "0.007843138"},
                                    {1.0f, "1"},
                                    {-0.0f, "-0"},
                                    {0.1f, "0.1"},
                                    {0x1p-149f, "1e-45"},
                                    {16777217.0f, "16777216"},
                                    {std::numeric_limits<float>::infinity(), "inf"}}) {
    EXPECT_EQ(ShortestDecimal(value), text);
  }
  Rng rng(7);
  for (int i = 0; i < 100000; ++i) {
    const auto value = FromBits(static_cast<uint32_t>(rng.Next()));
    if (std::isfinite(value)) ASSERT_EQ(ParseFloatText(ShortestDecimal(value)), value);
  }
}

TEST(FloatText, DecimalsBesideHexFloats) {
  for (const auto& [text, with] :
       {std::pair{"[-0x1.8p+1, 0x1p-149]", "[-0x1.8p+1 (-3), 0x1p-149 (1e-45)]"},
        {"exact: 0x0p+0", "exact: 0x0p+0 (0)"},
        {"0x1.999999999999ap-4, a double", "0x1.999999999999ap-4 (0.1), a double"},
        {"8 - 0x1p+0=7", "8 - 0x1p+0 (1)=7"},
        {"none: 0x 0xp 0x1 0x12p 0x1.8p3 0x1p+ 0x1.8.1p+0 nan:7fc00000 x", nullptr},
        {"", nullptr}}) {
    EXPECT_EQ(WithDecimals(text), with == nullptr ? text : with);
    EXPECT_EQ(WithDecimals(WithDecimals(text)), WithDecimals(text)) << text;
  }
}

TEST(FloatText, Decimals) {
  const auto parts = [](std::string_view text) {
    const std::optional<Decimal> decimal = ParseDecimal(text);
    return decimal ? (decimal->negative ? "-" : "") + decimal->digits + "e" +
                         std::to_string(decimal->exponent)
                   : "none";
  };
  for (const auto& [text, read] : {std::pair{"0.0160", "00160e-4"},
                                   {"-3", "-3e0"},
                                   {"1.60e-2", "160e-4"},
                                   {"2E+09", "2e9"},
                                   {"1.5e3", "15e2"}}) {
    EXPECT_EQ(parts(text), read);
  }
  for (const char* text : {"", "-", ".", ".5", "5.", "+5", "1e", "1e+", "1e-100", "1.5.5", "0x1p3",
                           "inf", " 1", "1 ", "--1", "11111111111111111111111111111111111111111"}) {
    EXPECT_EQ(parts(text), "none") << text;
  }
}

TEST(FloatText, Doubles) {
  EXPECT_EQ(ParseDoubleText("0x1.fffffffffffffp+1023"), std::numeric_limits<double>::max());
  EXPECT_EQ(ParseDoubleText("-0x1.8p+1"), -3.0);
  EXPECT_EQ(ParseDoubleText("nan"), std::nullopt);
  EXPECT_EQ(ParseDoubleText("1e999"), std::nullopt);
}

}  // namespace
}  // namespace qualm
