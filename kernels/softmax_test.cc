// SPDX-License-Identifier: Apache-2.0
// softmax: rows at the ends of 32 bits, what is refused, the environment of the caller.
#include "kernels/softmax.h"

#include <gtest/gtest.h>

#include <cfenv>

#include "kernels/common/test_support.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;

TEST(Softmax, HalfGoesUpAndSumsLeave32Bits) {
  // 512 equal codes give the tie 1/2, which goes up; 513 and 514 give less than 1/2. Their
  // numerator was rounded up, so the sum of all numerators exceeds 2^32 - 1.
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
  // (2^32 - 1) / 514 is a tie. The numerator of distance 1 lies below it by less than double can
  // tell.
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
