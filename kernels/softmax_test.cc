// SPDX-License-Identifier: Apache-2.0
// softmax against the same formula in long double and integers, on every instruction set.
#include "kernels/softmax.h"

#include <gtest/gtest.h>

#include <cfenv>

#include "kernels/common/test_support.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;

int32_t Code(uint8_t byte, ElementType type) {
  return type == ElementType::kS8 ? static_cast<int8_t>(byte) : byte;
}

// Numerators far from ties only: long double decides them.
std::vector<uint64_t> Numerators(float scale, size_t columns) {
  const auto n = static_cast<long double>(columns);
  const long double q = std::min(4294967295.0L / n, 8388607.0L);
  std::vector<uint64_t> t;
  for (int d = 0; d < 256; ++d) {
    const long double value = q * std::exp(-static_cast<long double>(scale) * d);
    t.push_back(static_cast<uint64_t>(std::nearbyint(value)));
  }
  return t;
}

std::vector<uint8_t> Reference(const std::vector<uint64_t>& t, const uint8_t* x, size_t count,
                               ElementType type, int32_t lo, int32_t hi) {
  int32_t largest = -128;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, Code(x[i], type));
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += t[static_cast<size_t>(largest - Code(x[i], type))];
  std::vector<uint8_t> y;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t share =
        (256 * t[static_cast<size_t>(largest - Code(x[i], type))] + sum / 2) / sum;
    const int32_t code =
        static_cast<int32_t>(std::min<uint64_t>(share, 255)) - (type == ElementType::kS8 ? 128 : 0);
    y.push_back(static_cast<uint8_t>(std::min(std::max(code, lo), hi)));
  }
  return y;
}

// Rows of every length around vectors and around 256, with gaps, at guard pages.
TEST(Softmax, MatchesTheFormulaOnEveryTarget) {
  Random random(23);
  for (int trial = 0; trial < 400; ++trial) {
    const auto columns = static_cast<size_t>(trial < 270   ? trial + 1
                                             : trial < 390 ? random.Between(500, 1200)
                                                           : random.Between(10000, 70000));
    const size_t rows = columns > 2000 ? 1 : static_cast<size_t>(random.Between(1, 3));
    const size_t stride = columns + static_cast<size_t>(random.Between(0, 3));
    const size_t size = (rows - 1) * stride + columns;
    const ElementType type = trial % 2 == 0 ? ElementType::kU8 : ElementType::kS8;
    const float scale = trial % 5 == 0 ? std::ldexp(1.0f, -(trial % 9)) : random.Scale(-9, 1);
    const int64_t width = trial % 4 == 0 ? 255 : random.Between(0, 40);
    const int64_t base = random.Between(0, 255 - width);
    std::vector<uint8_t> values(size);
    for (uint8_t& v : values) {
      v = static_cast<uint8_t>(random.Between(base, base + width) ^
                               (type == ElementType::kS8 ? 0x80 : 0));
    }
    const OutputRange range = trial % 6 == 0 ? OutputRange{.min = -100, .max = 90} : OutputRange{};
    const int32_t least = type == ElementType::kS8 ? -128 : 0;
    const int32_t lo = std::max(least, range.min);
    const int32_t hi = std::min(least + 255, range.max);
    PackedSoftmax softmax;
    ASSERT_EQ(PackedSoftmax::Build(scale, static_cast<int64_t>(columns), &softmax).error, "");
    std::vector<uint8_t> expected(size, 0xA5);
    const std::vector<uint64_t> t = Numerators(scale, columns);
    for (size_t row = 0; row < rows; ++row) {
      const std::vector<uint8_t> y =
          Reference(t, values.data() + row * stride, columns, type, lo, hi);
      std::copy(y.begin(), y.end(), expected.begin() + static_cast<std::ptrdiff_t>(row * stride));
    }
    GuardedBuffer<uint8_t> x(size, trial % 3 == 0), y(size, trial % 3 == 0);
    x.Assign(values);
    ForEachTarget([&](const std::string&) {
      std::fill_n(y.data(), size, uint8_t{0xA5});
      ASSERT_EQ(softmax
                    .Run({x.data(), type, int64_t(rows), int64_t(columns), int64_t(stride)}, range,
                         {y.data(), type, int64_t(rows), int64_t(columns), int64_t(stride)})
                    .error,
                "");
      for (size_t i = 0; i < size; ++i) {
        ASSERT_EQ(x[i], values[i]);
        ASSERT_EQ(y[i], expected[i]) << i << " of " << columns << " scale " << scale;
      }
    });
  }
}

TEST(Softmax, HalfGoesUpAndSumsLeave32Bits) {
  // 512 equal codes: 1/2 each. 513 and 514: the numerator is rounded up, and as many of them are
  // more than 2^32 - 1.
  for (const auto& [columns, expected] :
       {std::pair{int64_t{512}, 1}, std::pair{int64_t{513}, 0}, std::pair{int64_t{514}, 0},
        std::pair{int64_t{2}, 128}, std::pair{int64_t{1}, 255}}) {
    PackedSoftmax softmax;
    ASSERT_EQ(PackedSoftmax::Build(0.1f, columns, &softmax).error, "");
    std::vector<uint8_t> x(static_cast<size_t>(columns), 77), y(x.size(), 0xA5);
    ForEachTarget([&](const std::string&) {
      ASSERT_EQ(softmax
                    .Run({x.data(), ElementType::kU8, 1, columns, columns}, {},
                         {y.data(), ElementType::kU8, 1, columns, columns})
                    .error,
                "");
      EXPECT_EQ(y, std::vector<uint8_t>(x.size(), static_cast<uint8_t>(expected)));
    });
  }
}

TEST(Softmax, RefusesWhatDoubleCannotDecide) {
  // (2^32 - 1) / 514 is a tie; a little less than it is none, but how little double does not know.
  PackedSoftmax softmax;
  EXPECT_EQ(
      PackedSoftmax::Build(0x1p-80f, 514, &softmax).error,
      "the numerator of distance 1 is so close to a rounding boundary that double cannot tell "
      "on which side");
  EXPECT_EQ(PackedSoftmax::Build(0x1p-80f, 512, &softmax).error, "");
  EXPECT_EQ(PackedSoftmax::Build(0x1.fffffep127f, 514, &softmax).error, "");
}

TEST(Softmax, CallersRoundingModeDoesNotMatter) {
  std::vector<uint8_t> x(100), expected(100), y(100);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * 3);
  const auto run = [&](std::vector<uint8_t>& to) {
    PackedSoftmax softmax;
    EXPECT_EQ(PackedSoftmax::Build(0.03f, 100, &softmax).error, "");
    EXPECT_EQ(softmax
                  .Run({x.data(), ElementType::kU8, 1, 100, 100}, {},
                       {to.data(), ElementType::kU8, 1, 100, 100})
                  .error,
              "");
  };
  run(expected);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    run(y);
    EXPECT_EQ(std::fegetround(), mode);
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(y, expected);
  }
}

TEST(Softmax, InvalidArgumentsAreErrors) {
  PackedSoftmax softmax;
  EXPECT_EQ(PackedSoftmax::Build(0, 3, &softmax).error,
            "x_scale is 0, expected a finite number > 0");
  EXPECT_EQ(PackedSoftmax::Build(1, -1, &softmax).error, "columns is -1, expected 0..2^32 - 1");
  EXPECT_EQ(PackedSoftmax::Build(1, int64_t{1} << 32, &softmax).error,
            "columns is 4294967296, expected 0..2^32 - 1");
  ASSERT_EQ(PackedSoftmax::Build(1, 3, &softmax).error, "");
  std::vector<uint8_t> codes(6, 1), out(6, 0xA5);
  const ConstMatrix x{codes.data(), ElementType::kU8, 2, 3, 3};
  const MutableMatrix y{out.data(), ElementType::kU8, 2, 3, 3};
  EXPECT_EQ(softmax.Run({codes.data(), ElementType::kS32, 2, 3, 3}, {}, y).error,
            "x.type is s32, expected u8 or s8");
  EXPECT_EQ(softmax.Run({codes.data(), ElementType::kU8, 3, 2, 2}, {}, y).error,
            "x.columns is 2, expected 3, as built for");
  EXPECT_EQ(softmax.Run(x, {}, {out.data(), ElementType::kS8, 2, 3, 3}).error,
            "y.type is s8, expected u8");
  EXPECT_EQ(softmax.Run(x, {.relu = true}, y).error,
            "range.relu is set, expected none: no output is negative");
  EXPECT_EQ(softmax.Run(x, {.min = 300}, y).error,
            "range is [300, 2147483647], expected min <= max and an overlap with u8");
  EXPECT_EQ(softmax.Run(x, {}, {out.data(), ElementType::kU8, 1, 3, 3}).error,
            "y is 1 x 3, expected the shape of the input, 2 x 3");
  EXPECT_EQ(out, std::vector<uint8_t>(6, 0xA5));
  EXPECT_EQ(
      softmax.Run({nullptr, ElementType::kU8, 0, 3, 3}, {}, {nullptr, ElementType::kU8, 0, 3, 3})
          .error,
      "");
  ASSERT_EQ(PackedSoftmax::Build(1, 0, &softmax).error, "");
  EXPECT_EQ(
      softmax.Run({nullptr, ElementType::kU8, 5, 0, 0}, {}, {nullptr, ElementType::kU8, 5, 0, 0})
          .error,
      "");
}

}  // namespace
}  // namespace qualm::kernels
