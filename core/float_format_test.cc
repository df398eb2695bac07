// SPDX-License-Identifier: Apache-2.0
#include "core/float_format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace qualm {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The formats once more, from their papers: OCP's 8-bit floating point and microscaling formats,
// IEEE 754, and MLIR's builtin types for the names in "fnuz".
struct Format {
  DType dtype;
  int exponent_bits, fraction_bits, bias;
  double smallest, largest;
  std::vector<uint32_t> nans;  // of positive sign; none: by `ieee`
  bool ieee = false;
};
const std::vector<Format> kFormats{{DType::kF16, 5, 10, 15, 0x1p-24, 65504, {}, true},
                                   {DType::kBF16, 8, 7, 127, 0x1p-133, 0x1.fep127, {}, true},
                                   {DType::kF8E4M3FN, 4, 3, 7, 0x1p-9, 448, {0x7F}},
                                   {DType::kF8E5M2, 5, 2, 15, 0x1p-16, 57344, {}, true},
                                   {DType::kF8E4M3FNUZ, 4, 3, 8, 0x1p-10, 240, {0x80}},
                                   {DType::kF8E5M2FNUZ, 5, 2, 16, 0x1p-17, 57344, {0x80}},
                                   {DType::kF8E4M3, 4, 3, 7, 0x1p-9, 240, {}, true},
                                   {DType::kF8E3M4, 3, 4, 3, 0x1p-6, 15.5, {}, true},
                                   {DType::kF8E4M3B11FNUZ, 4, 3, 11, 0x1p-13, 30, {0x80}},
                                   {DType::kF6E2M3FN, 2, 3, 1, 0x1p-3, 7.5, {}},
                                   {DType::kF6E3M2FN, 3, 2, 3, 0x1p-4, 28, {}},
                                   {DType::kF4E2M1FN, 2, 1, 1, 0.5, 6, {}},
                                   {DType::kF8E8M0FNU, 8, 0, 127, 0x1p-127, 0x1p127, {0xFF}},
                                   {DType::kUE4M3, 4, 3, 7, 0x1p-9, 448, {0x7F}}};

// By the fields and ldexp.
double Defined(const Format& f, uint32_t code) {
  const uint32_t magnitude = code & ((1u << (f.exponent_bits + f.fraction_bits)) - 1);
  const double sign = magnitude == code ? 1 : -1;
  for (const uint32_t nan : f.nans) {
    if (code == nan || (nan != 0x80 && magnitude == nan)) return kNan;
  }
  const auto exponent = static_cast<int>(magnitude >> f.fraction_bits);
  const double fraction = std::ldexp(magnitude % (1u << f.fraction_bits), -f.fraction_bits);
  if (f.ieee && exponent == (1 << f.exponent_bits) - 1) return fraction == 0 ? sign * kInf : kNan;
  if (f.fraction_bits == 0) return std::ldexp(1.0, exponent - f.bias);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - f.bias);
  return sign * std::ldexp(1 + fraction, exponent - f.bias);
}

bool Same(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

TEST(FloatFormat, DecodesEveryCode) {
  size_t types = 0;
  for (const DTypeRow& row : kDTypeRows) types += IsFloat(row.dtype) && row.dtype != DType::kF32;
  EXPECT_EQ(kFormats.size(), types);
  for (const Format& f : kFormats) {
    for (uint32_t code = 0; code <= static_cast<uint32_t>(RangeOf(f.dtype).max); ++code) {
      ASSERT_TRUE(Same(DecodeFloat(f.dtype, code), Defined(f, code))) << Name(f.dtype) << code;
      ASSERT_EQ(IsNanCode(f.dtype, code), std::isnan(Defined(f, code))) << Name(f.dtype) << code;
    }
    EXPECT_EQ(DecodeFloat(f.dtype, LargestCode(f.dtype)), f.largest) << Name(f.dtype);
    EXPECT_EQ(DecodeFloat(f.dtype, f.fraction_bits == 0 ? 0 : 1), f.smallest) << Name(f.dtype);
  }
}

TEST(FloatFormat, EncodesEveryValueAsItself) {
  for (const Format& f : kFormats) {
    for (uint32_t code = 0; code <= static_cast<uint32_t>(RangeOf(f.dtype).max); ++code) {
      const double value = DecodeFloat(f.dtype, code);
      for (int rounding = 0; rounding < 3; ++rounding) {
        const uint32_t again = EncodeFloat(f.dtype, value, static_cast<FloatRounding>(rounding));
        ASSERT_EQ(again, std::isnan(value) ? NanCode(f.dtype) : code) << Name(f.dtype);
      }
      const std::optional<uint32_t> read = CodeOfText(f.dtype, CodeText(f.dtype, code));
      ASSERT_EQ(read, std::optional(code)) << CodeText(f.dtype, code);
    }
  }
}

// Every boundary between two neighbouring codes, the midpoint, and what lies beside each of them.
TEST(FloatFormat, RoundsBetweenNeighbours) {
  for (const Format& f : kFormats) {
    const uint32_t sign = SignOf(f.dtype);
    const auto expect = [&](double value, FloatRounding rounding, uint32_t code) {
      ASSERT_EQ(EncodeFloat(f.dtype, value, rounding), code) << Name(f.dtype) << " " << value;
    };
    for (uint32_t low = 0; low < LargestCode(f.dtype); ++low) {
      const uint32_t high = low + 1;
      const double a = DecodeFloat(f.dtype, low), b = DecodeFloat(f.dtype, high);
      const double half = a + (b - a) / 2;
      const uint32_t even = f.fraction_bits == 0 || high % 2 == 0 ? high : low;
      const std::vector<std::pair<double, uint32_t>> nearest{{std::nextafter(a, b), low},
                                                             {std::nextafter(half, a), low},
                                                             {half, even},
                                                             {std::nextafter(half, b), high},
                                                             {std::nextafter(b, a), high}};
      for (const auto& [value, code] : nearest) {
        expect(value, FloatRounding::kNearestEven, code);
        expect(value, FloatRounding::kTowardZero, low);
        expect(value, FloatRounding::kUp, high);
        if (sign == 0) continue;
        const auto negated = [&](uint32_t magnitude) {
          return magnitude == 0 && f.nans == std::vector<uint32_t>{0x80} ? 0 : magnitude | sign;
        };
        expect(-value, FloatRounding::kNearestEven, negated(code));
        expect(-value, FloatRounding::kTowardZero, negated(low));
        expect(-value, FloatRounding::kUp, negated(low));
      }
    }
  }
}

TEST(FloatFormat, OverflowsFromHalfAStepBeyond) {
  for (const Format& f : kFormats) {
    const uint32_t largest = LargestCode(f.dtype);
    const double below = DecodeFloat(f.dtype, largest - 1);
    const double half =
        f.fraction_bits == 0 ? 1.5 * f.largest : f.largest + (f.largest - below) / 2;
    // A tie goes to the even digit: that is beyond unless the largest code is even.
    const bool tie_stays = f.fraction_bits > 0 && largest % 2 == 0;
    const double first = tie_stays ? std::nextafter(half, kInf) : half;
    const double last = tie_stays ? half : std::nextafter(half, 0);
    const uint32_t nan = f.nans.empty() && !f.ieee ? largest : NanCode(f.dtype);
    const uint32_t infinity = f.ieee ? largest + 1 : nan;
    for (const double sign : {1.0, -1.0}) {
      if (sign < 0 && SignOf(f.dtype) == 0) continue;
      const auto code = [&](double value, FloatRounding rounding, FloatOverflow overflow) {
        return EncodeFloat(f.dtype, sign * value, rounding, overflow);
      };
      const uint32_t minus = sign < 0 ? SignOf(f.dtype) : 0;
      const uint32_t signed_infinity = infinity == nan && nan != largest ? nan : infinity | minus;
      const uint32_t signed_nan = nan == largest ? nan | minus : nan;
      constexpr auto kEven = FloatRounding::kNearestEven;
      EXPECT_EQ(code(last, kEven, FloatOverflow::kInfinity), largest | minus) << Name(f.dtype);
      EXPECT_EQ(code(first, kEven, FloatOverflow::kInfinity), signed_infinity) << Name(f.dtype);
      EXPECT_EQ(code(first, kEven, FloatOverflow::kSaturate), largest | minus) << Name(f.dtype);
      EXPECT_EQ(code(first, kEven, FloatOverflow::kNan), signed_nan) << Name(f.dtype);
      EXPECT_EQ(code(kInf, kEven, FloatOverflow::kInfinity), signed_infinity) << Name(f.dtype);
      EXPECT_EQ(code(kInf, kEven, FloatOverflow::kSaturate), largest | minus) << Name(f.dtype);
      EXPECT_EQ(code(kInf, kEven, FloatOverflow::kNan), signed_infinity) << Name(f.dtype);
      EXPECT_EQ(code(0x1p300, FloatRounding::kTowardZero, FloatOverflow::kInfinity),
                largest | minus);
      EXPECT_EQ(code(0x1p300, FloatRounding::kUp, FloatOverflow::kInfinity),
                sign < 0 ? largest | minus : infinity);
    }
    EXPECT_EQ(EncodeFloat(f.dtype, kNan), nan);
  }
}

TEST(FloatFormat, TypesWithoutASignOrAZero) {
  constexpr auto kEven = FloatRounding::kNearestEven;
  const auto e8m0 = [](double value, FloatOverflow overflow) {
    return EncodeFloat(DType::kF8E8M0FNU, value, kEven, overflow);
  };
  EXPECT_EQ(e8m0(1.0, FloatOverflow::kNan), 0x7Fu);
  EXPECT_EQ(e8m0(1.5, FloatOverflow::kNan), 0x80u);  // no even digit: the larger
  EXPECT_EQ(e8m0(0x1p-140, FloatOverflow::kNan), 0u);
  for (const double beyond : {0.0, -0.0, -1.0, -kInf}) {
    EXPECT_EQ(e8m0(beyond, FloatOverflow::kSaturate), 0u);
    EXPECT_EQ(e8m0(beyond, FloatOverflow::kInfinity), 0xFFu);
  }
  EXPECT_EQ(EncodeFloat(DType::kUE4M3, -0.0), 0u);
  EXPECT_EQ(EncodeFloat(DType::kUE4M3, -0x1p-11), 0u);  // rounds to 0 first
  EXPECT_EQ(EncodeFloat(DType::kUE4M3, -1.0), 0x7Fu);
  EXPECT_EQ(EncodeFloat(DType::kUE4M3, -1.0, kEven, FloatOverflow::kSaturate), 0u);
}

// All numbers of 16 bits, to the nearer of two neighbours that a search among all codes finds.
TEST(FloatFormat, RoundsEveryHalfToItsNeighbour) {
  for (const Format& f : kFormats) {
    if (BitsOf(f.dtype) > 8) continue;
    std::vector<double> values;
    for (uint32_t code = 0; code <= LargestCode(f.dtype); ++code)
      values.push_back(DecodeFloat(f.dtype, code));
    for (const DType from : {DType::kF16, DType::kBF16}) {
      for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
        const double value = DecodeFloat(from, bits);
        const double magnitude = std::abs(value);
        if (!(magnitude <= f.largest) || (value <= 0 && SignOf(f.dtype) == 0)) continue;
        uint32_t best = 0;
        for (uint32_t code = 1; code < values.size(); ++code) {
          const double gain =
              std::abs(values[best] - magnitude) - std::abs(values[code] - magnitude);
          if (gain > 0 || (gain == 0 && (f.fraction_bits == 0 || code % 2 == 0))) best = code;
        }
        const bool keeps = best != 0 || f.nans != std::vector<uint32_t>{0x80};
        if (std::signbit(value) && keeps) best |= SignOf(f.dtype);
        ASSERT_EQ(EncodeFloat(f.dtype, value), best) << Name(f.dtype) << " " << value;
      }
    }
  }
}

TEST(FloatFormat, TextsNameOneCode) {
  EXPECT_EQ(CodeText(DType::kF8E4M3FN, 0x7E), "0x1.cp+8");
  EXPECT_EQ(CodeText(DType::kF8E5M2, 0xFD), "nan:fd");
  EXPECT_EQ(CodeText(DType::kF16, 0x7C01), "nan:7c01");
  EXPECT_EQ(CodeOfText(DType::kF8E4M3FN, "448"), std::optional(0x7Eu));
  EXPECT_EQ(CodeOfText(DType::kF8E5M2, "-inf"), std::optional(0xFCu));
  for (const char* const wrong :
       {"449", "inf", "nan:7e", "nan:007f", "nan:7fc00000", "0x1p-10", ""})
    EXPECT_EQ(CodeOfText(DType::kF8E4M3FN, wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace qualm
