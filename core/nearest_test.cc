// SPDX-License-Identifier: Apache-2.0
#include "core/nearest.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace qualm {
namespace {

TEST(Nearest, CountsHalfSteps) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "ab"), 4u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 6u);
  EXPECT_EQ(EditDistance("sitting", "kitten"), 6u);
  EXPECT_EQ(EditDistance("M", "m"), 1u);
}

TEST(Nearest, PrefersTheSameLetter) {
  constexpr std::array<std::string_view, 4> kNames{"w", "x", "M", "out_zp"};
  EXPECT_EQ(NearestName("m", kNames), "M");
  EXPECT_EQ(NearestName("out_zero_point", kNames), "out_zp");
  EXPECT_EQ(NearestName(std::string(size_t{1} << 20, 'x'), kNames), "x");  // at once
  EXPECT_EQ(NearestName("x", {}), "");
}

}  // namespace
}  // namespace qualm
