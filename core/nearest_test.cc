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
  // Half a step from the first letter to the last, a whole one between the signs beside them.
  EXPECT_EQ(EditDistance("AZ", "az"), 2u);
  EXPECT_EQ(EditDistance("@", "`"), 2u);
  EXPECT_EQ(EditDistance("[", "{"), 2u);
}

TEST(Nearest, PrefersTheSameLetter) {
  constexpr std::array<std::string_view, 4> kNames{"w", "x", "M", "out_zp"};
  EXPECT_EQ(NearestName("m", kNames), "M");
  EXPECT_EQ(NearestName("out_zero_point", kNames), "out_zp");
  EXPECT_EQ(NearestName(std::string(size_t{1} << 20, 'x'), kNames), "x");  // at once
  EXPECT_EQ(NearestName("x", {}), "");
}

TEST(Nearest, TakesTheFirstOfEquallyNear) {
  constexpr std::array<std::string_view, 2> kNames{"b", "c"};
  EXPECT_EQ(NearestName("a", kNames), "b");
}

TEST(Nearest, LooksAtTheFirst64LettersOnly) {
  const std::string begin(64, 'x'), end(128, 'M');
  const std::array<std::string_view, 2> names{begin, end};
  EXPECT_EQ(NearestName(begin + end, names), begin);
}

}  // namespace
}  // namespace qualm
