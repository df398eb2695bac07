// SPDX-License-Identifier: Apache-2.0
// Tables: the bounds of the real functions, what is refused, the environment of the caller.
#include "kernels/table.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cfloat>

#include "kernels/common/test_support.h"
#include "kernels/common/transcendental.h"

namespace qualm::kernels {
namespace {

using test::Random;

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

#if LDBL_MANT_DIG >= 64
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
