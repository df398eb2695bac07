// SPDX-License-Identifier: Apache-2.0
// Tables: every code, against integers for the rational functions and long double for the others,
// on every instruction set.
#include "kernels/table.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cfloat>
#include <limits>

#include "kernels/common/test_support.h"
#include "kernels/common/transcendental.h"

namespace qualm::kernels {
namespace {

using test::Exactly;
using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;
using test::Term;

int32_t Code(uint8_t byte, ElementType type) {
  return type == ElementType::kS8 ? static_cast<int8_t>(byte) : byte;
}

// f(s*d) as a sum of terms over a divisor.
int32_t RationalReference(const TableParams& p, int32_t x) {
  const Term s = Exactly(p.x_q.scale);
  const __int128 d = static_cast<__int128>(x) - p.x_q.zero_point;
  const Term linear{s.mantissa * d, s.exponent};
  std::vector<Term> value = {linear};
  Term divisor = Exactly(p.y_q.scale);
  if (p.function == TableFunction::kHardSwish) {
    if (test::SignOfSum({linear, {3, 0}}) <= 0) {
      value = {{0, 0}};
    } else if (test::SignOfSum({linear, {-3, 0}}) < 0) {
      value = {{s.mantissa * s.mantissa * d * d, 2 * s.exponent},
               {3 * linear.mantissa, s.exponent}};
      divisor.mantissa *= 6;
    }
  } else if (d < 0) {
    const Term slope = Exactly(p.function == TableFunction::kLeakyRelu ? p.negative_slope : 0.0f);
    value = {linear * slope};
  }
  const int32_t least = p.y_type == ElementType::kU8 ? 0 : -128;
  return test::ReferenceCode(value, divisor, p.y_q.zero_point, std::max(least, p.range.min),
                             std::min(least + 255, p.range.max));
}

std::vector<uint8_t> EveryByte() {
  std::vector<uint8_t> x(300);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * 7);
  return x;
}

std::vector<uint8_t> RunTable(const TableParams& p, const std::vector<uint8_t>& x) {
  PackedTable table;
  EXPECT_EQ(PackedTable::Build(p, &table).error, "");
  std::vector<uint8_t> y(x.size(), 0xA5);
  const auto n = static_cast<int64_t>(x.size());
  EXPECT_EQ(table.Run({x.data(), p.x_type, 1, n, n}, {y.data(), p.y_type, 1, n, n}).error, "");
  return y;
}

TEST(Table, RationalFunctionsAreExact) {
  const std::vector<float> scales = test::HardScales();
  const std::vector<int32_t> zeros = {0, 128, -7, 300, -70000, INT32_MIN, INT32_MAX};
  const std::vector<float> slopes = {0.0f, 0.01f, 0.25f, 1.0f, 3.5f, 0x1p-149f, 0x1.fffffep127f};
  const std::vector<uint8_t> x = EveryByte();
  Random random(14);
  const auto pick = [&](const auto& list) {
    return list[static_cast<size_t>(random.Between(0, static_cast<int64_t>(list.size()) - 1))];
  };
  for (int trial = 0; trial < 400; ++trial) {
    TableParams p;
    p.function = static_cast<TableFunction>(trial % 3);
    p.negative_slope = pick(slopes);
    p.x_type = random.Between(0, 1) == 0 ? ElementType::kU8 : ElementType::kS8;
    p.y_type = random.Between(0, 1) == 0 ? ElementType::kU8 : ElementType::kS8;
    // Around 1, where hardswish bends; with few bits, where it has ties; or anything.
    p.x_q = {trial % 2 == 0   ? std::ldexp(static_cast<float>(random.Between(1, 15)), -6)
             : trial % 3 == 0 ? random.Scale(-8, -2)
                              : pick(scales),
             trial % 4 == 0 ? pick(zeros) : static_cast<int32_t>(random.Between(-40, 160))};
    p.y_q = {trial % 2 == 0   ? std::ldexp(static_cast<float>(random.Between(1, 7)), -8)
             : trial % 5 == 0 ? pick(scales)
                              : p.x_q.scale,
             trial % 5 == 0 ? pick(zeros) : 20};
    if (trial % 7 == 0) p.range = {.min = 5, .max = 99};
    std::vector<int32_t> expected;
    for (const uint8_t byte : x) expected.push_back(RationalReference(p, Code(byte, p.x_type)));
    ForEachTarget([&](const std::string&) {
      const std::vector<uint8_t> y = RunTable(p, x);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(Code(y[i], p.y_type), expected[i])
            << static_cast<int>(p.function) << " of " << Code(x[i], p.x_type) << std::hexfloat
            << " scales " << p.x_q.scale << ", " << p.y_q.scale << " zero points "
            << p.x_q.zero_point << ", " << p.y_q.zero_point << " slope " << p.negative_slope;
      }
    });
  }
}

#if LDBL_MANT_DIG >= 64
// The C library in long double has errors far below the bounds of double; where even it lies within
// 2^-56 of a tie, nothing is claimed.
TEST(Table, RealFunctionsAreRight) {
  const std::vector<uint8_t> x = EveryByte();
  Random random(15);
  int compared = 0;
  for (int trial = 0; trial < 600; ++trial) {
    TableParams p;
    p.function = trial % 2 == 0 ? TableFunction::kSigmoid : TableFunction::kTanh;
    p.x_type = random.Between(0, 1) == 0 ? ElementType::kU8 : ElementType::kS8;
    p.y_type = random.Between(0, 1) == 0 ? ElementType::kU8 : ElementType::kS8;
    p.x_q = {random.Scale(-14, 3), static_cast<int32_t>(random.Between(-128, 255))};
    p.y_q = {trial % 3 == 0 ? 0x1p-8f : random.Scale(-10, -5),
             static_cast<int32_t>(random.Between(-128, 128))};
    const int32_t least = p.y_type == ElementType::kU8 ? 0 : -128;
    std::vector<uint8_t> first;
    ForEachTarget([&](const std::string&) {
      const std::vector<uint8_t> y = RunTable(p, x);
      if (first.empty()) first = y;
      ASSERT_EQ(y, first);
    });
    for (size_t i = 0; i < x.size(); ++i) {
      const long double v =
          static_cast<long double>(p.x_q.scale) * (Code(x[i], p.x_type) - p.x_q.zero_point);
      const long double f =
          p.function == TableFunction::kTanh ? std::tanh(v) : 1 / (1 + std::exp(-v));
      const long double value = f / static_cast<long double>(p.y_q.scale);
      const long double rounded = std::nearbyint(value);
      if (std::fabs(std::fabs(value - rounded) - 0.5L) < std::fabs(value) * 0x1p-56L) continue;
      const long double code =
          std::min(std::max(rounded + p.y_q.zero_point, static_cast<long double>(least)),
                   static_cast<long double>(least + 255));
      ASSERT_EQ(Code(first[i], p.y_type), static_cast<int32_t>(code))
          << Code(x[i], p.x_type) << std::hexfloat << " " << p.x_q.scale << " " << p.y_q.scale;
      ++compared;
    }
  }
  EXPECT_GT(compared, 150000);
}

// The bounds themselves, and how far they are from each other.
TEST(Table, EnclosuresHold) {
  Random random(16);
  const long double slack = 0x1p-61L;  // of the C library
  for (int trial = 0; trial < 200000; ++trial) {
    const double t = trial % 2 == 0 ? static_cast<double>(random.Scale(-40, 9))
                                    : static_cast<double>(random.Between(0, 1 << 20)) * 0x1p-14;
    const auto check = [&](const internal::Interval& interval, long double value) {
      const long double error = std::fabs(value) * slack;
      ASSERT_LE(interval.lo, value + error) << t;
      ASSERT_GE(interval.hi, value - error) << t;
      ASSERT_LE(interval.hi - interval.lo, std::fabs(value) * 0x1p-41L + 0x1p-900L) << t;
    };
    check(internal::ExpOfMinus(t), std::exp(-static_cast<long double>(t)));
    check(internal::Tanh(t, false), std::tanh(static_cast<long double>(t)));
    check(internal::Tanh(t, true), -std::tanh(static_cast<long double>(t)));
    check(internal::Sigmoid(t, false), 1 / (1 + std::exp(-static_cast<long double>(t))));
    const long double e = std::exp(-static_cast<long double>(t));
    check(internal::Sigmoid(t, true), e / (1 + e));
  }
}
#endif

TEST(Table, RefusesWhatDoubleCannotDecide) {
  PackedTable table;
  // 1/2 + 2^-62 in steps of 1.
  TableParams p{.function = TableFunction::kSigmoid, .x_q = {0x1p-60f, 5}, .y_q = {1.0f, 0}};
  EXPECT_EQ(PackedTable::Build(p, &table).error,
            "the value of code 0 is so close to a rounding boundary that double cannot tell on "
            "which side");
  p.range = {.min = 3, .max = 9};  // whichever it is, the clamp decides
  EXPECT_EQ(PackedTable::Build(p, &table).error, "");
  // Just below 3/2.
  p = {.function = TableFunction::kTanh, .x_q = {0x1.8p-40f, 0}, .y_q = {0x1p-40f, 0}};
  EXPECT_EQ(PackedTable::Build(p, &table).error,
            "the value of code 1 is so close to a rounding boundary that double cannot tell on "
            "which side");
  // Exactly 1/2 is a tie, and just below 1 none of 1/2.
  const std::vector<uint8_t> codes = {5, 255};
  EXPECT_EQ(
      RunTable({.function = TableFunction::kSigmoid, .x_q = {1.0f, 5}, .y_q = {1.0f, 0}}, codes),
      (std::vector<uint8_t>{0, 1}));
  EXPECT_EQ(
      RunTable({.function = TableFunction::kSigmoid, .x_q = {1.0f, 5}, .y_q = {2.0f, 0}}, codes),
      (std::vector<uint8_t>{0, 0}));
}

TEST(Table, TouchesOnlyTheGivenElementsAndWorksInPlace) {
  Random random(8);
  const TableParams p{.function = TableFunction::kHardSwish,
                      .x_type = ElementType::kS8,
                      .x_q = {0.05f, 5},
                      .y_type = ElementType::kU8,
                      .y_q = {0.04f, 100}};
  PackedTable table;
  ASSERT_TRUE(PackedTable::Build(p, &table).ok());
  for (size_t columns = 1; columns <= 150; columns += 1 + columns / 20) {
    const size_t rows = 1 + columns % 9;
    const size_t stride = columns + columns % 4;
    const size_t size = (rows - 1) * stride + columns;
    std::vector<uint8_t> values(size);
    for (uint8_t& v : values) v = static_cast<uint8_t>(random.Next());
    for (const bool at_start : {false, true}) {
      GuardedBuffer<uint8_t> x(size, at_start), y(size, at_start);
      ForEachTarget([&](const std::string&) {
        x.Assign(values);
        std::fill_n(y.data(), size, uint8_t{0xA5});
        const ConstMatrix in{x.data(), ElementType::kS8, int64_t(rows), int64_t(columns),
                             int64_t(stride)};
        MutableMatrix out{y.data(), ElementType::kU8, int64_t(rows), int64_t(columns),
                          int64_t(stride)};
        ASSERT_TRUE(table.Run(in, out).ok());
        for (size_t i = 0; i < size; ++i) {
          const bool gap = i % stride >= columns;
          ASSERT_EQ(x[i], values[i]);
          ASSERT_EQ(y[i], gap ? 0xA5 : RationalReference(p, Code(values[i], p.x_type)));
        }
        out.data = x.data();
        ASSERT_TRUE(table.Run(in, out).ok());
        for (size_t i = 0; i < size; ++i) {
          ASSERT_EQ(x[i], i % stride >= columns ? values[i] : y[i]) << i;
        }
      });
    }
  }
}

TEST(Table, CallersRoundingModeDoesNotMatter) {
  const std::vector<uint8_t> x = EveryByte();
  const TableParams p{.function = TableFunction::kTanh, .x_q = {0.03f, 128}, .y_q = {0x1p-7f, 128}};
  const std::vector<uint8_t> expected = RunTable(p, x);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const std::vector<uint8_t> y = RunTable(p, x);
    EXPECT_EQ(std::fegetround(), mode);
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(y, expected);
  }
}

TEST(Table, InvalidArgumentsAreErrors) {
  PackedTable table;
  const auto error = [&](const TableParams& p) { return PackedTable::Build(p, &table).error; };
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({.function = static_cast<TableFunction>(9)}),
            "function is 9, expected one of TableFunction");
  EXPECT_EQ(error({.function = TableFunction::kLeakyRelu, .negative_slope = -1}),
            "negative_slope is -1, expected a finite number >= 0");
  EXPECT_EQ(error({.x_type = ElementType::kS32}), "x.type is s32, expected u8 or s8");
  EXPECT_EQ(error({.x_q = {INFINITY}}), "x_q.scale is inf, expected a finite number > 0");
  EXPECT_EQ(error({.y_type = ElementType::kF32}), "y.type is f32, expected u8 or s8");
  EXPECT_EQ(error({.y_q = {0}}), "y_q.scale is 0, expected a finite number > 0");
  EXPECT_EQ(error({.range = {.min = 300}}),
            "range is [300, 2147483647], expected min <= max and an overlap with u8");
  std::vector<uint8_t> codes(6, 1), out(6, 0xA5);
  const ConstMatrix x{codes.data(), ElementType::kU8, 2, 3, 3};
  const MutableMatrix y{out.data(), ElementType::kU8, 2, 3, 3};
  EXPECT_EQ(table.Run({codes.data(), ElementType::kS8, 2, 3, 3}, y).error,
            "x.type is s8, expected u8");
  EXPECT_EQ(table.Run(x, {out.data(), ElementType::kS8, 2, 3, 3}).error,
            "y.type is s8, expected u8");
  EXPECT_EQ(table.Run(x, {out.data(), ElementType::kU8, 3, 2, 2}).error,
            "y is 3 x 2, expected the shape of the input, 2 x 3");
  EXPECT_EQ(out, std::vector<uint8_t>(6, 0xA5));
  EXPECT_EQ(
      table.Run({nullptr, ElementType::kU8, 0, 3, 3}, {nullptr, ElementType::kU8, 0, 3, 3}).error,
      "");
}

}  // namespace
}  // namespace qualm::kernels
