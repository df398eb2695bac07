// SPDX-License-Identifier: Apache-2.0
// What the rescale operation refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/elementwise.h"

namespace qualm::kernels {
namespace {

TEST(RescaleCodes, InvalidArgumentsAreErrors) {
  std::vector<uint8_t> codes(6, 1), out(6, 0xA5);
  const ConstMatrix x{codes.data(), ElementType::kU8, 2, 3, 3};
  const MutableMatrix y{out.data(), ElementType::kU8, 2, 3, 3};
  EXPECT_EQ(RescaleCodes({codes.data(), ElementType::kS32, 2, 3, 3}, {}, {}, {}, y).error,
            "x.type is s32, expected u8 or s8");
  EXPECT_EQ(RescaleCodes(x, {NAN}, {}, {}, y).error,
            "x_q.scale is nan, expected a finite number > 0");
  EXPECT_EQ(RescaleCodes(x, {}, {0}, {}, y).error, "y_q.scale is 0, expected a finite number > 0");
  EXPECT_EQ(RescaleCodes(x, {}, {}, {.min = 300}, y).error,
            "range is [300, 2147483647], expected min <= max and an overlap with u8");
  EXPECT_EQ(RescaleCodes(x, {}, {}, {}, {out.data(), ElementType::kF32, 2, 3, 3}).error,
            "y.type is f32, expected u8 or s8");
  EXPECT_EQ(RescaleCodes(x, {}, {}, {}, {out.data(), ElementType::kU8, 3, 2, 2}).error,
            "y is 3 x 2, expected the shape of the input, 2 x 3");
  EXPECT_EQ(out, std::vector<uint8_t>(6, 0xA5));
  EXPECT_EQ(RescaleCodes({nullptr, ElementType::kU8, 0, 3, 3}, {}, {}, {},
                         {nullptr, ElementType::kU8, 0, 3, 3})
                .error,
            "");
}

}  // namespace
}  // namespace qualm::kernels
