// SPDX-License-Identifier: Apache-2.0
// Cases cut out of cases compute what they are cut from.
#include <gtest/gtest.h>

#include "oracles/exact/exact.h"
#include "properties/derive.h"
#include "properties/gen/gen.h"
#include "properties/sweep.h"

namespace qualm::derive {
namespace {

constexpr uint64_t kCases = 400;

TEST(Pixel, IsTheSameAloneAsInItsImage) {
  int64_t pixels = 0, outside = 0, overhanging = 0;
  for (Op op : AllOps()) {
    if (!HasWindow(op)) continue;
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (c.M == 0 || c.N == 0) continue;
      const Tensor whole = exact::Evaluate(c);
      for (int64_t m : {int64_t{0}, c.M / 2, c.M - 1}) {
        const Case pixel = Pixel(c, m);
        ASSERT_EQ(Validate(pixel), "") << Describe(c) << " pixel " << m;
        ASSERT_EQ(pixel.M, 1) << Describe(c) << " pixel " << m;
        const Tensor alone = exact::Evaluate(pixel);
        for (int64_t n = 0; n < c.N; ++n) {
          ASSERT_EQ(alone.BitsAt(n), whole.BitsAt(m * c.N + n))
              << Describe(c) << " pixel " << m << " channel " << n;
        }
        ++pixels;
        bool sees_image = false;
        for (const Tap& tap : TapsOf(c.window, m)) sees_image = sees_image || tap.x_row >= 0;
        outside += !sees_image;
        overhanging += pixel.K < c.K;
      }
    }
  }
  EXPECT_GT(pixels, 4000);
  EXPECT_GT(outside, 20);      // windows that lie wholly in the padding
  EXPECT_GT(overhanging, 20);  // windows of ceil mode
}

TEST(LeadingColumns, AreWhatColumnsAccepts) {
  int64_t several_groups = 0, part_of_a_group = 0;
  for (Op op : {Op::kConv2d, Op::kDepthwise}) {
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (c.N == 0) continue;
      const int64_t per_group = c.N / c.window.groups;
      for (int64_t most : {int64_t{1}, per_group + 1, c.N}) {
        const std::vector<int64_t> columns = LeadingColumns(c, most);
        const auto count = static_cast<int64_t>(columns.size());
        ASSERT_GE(count, 1);
        ASSERT_LE(count, most);
        ASSERT_EQ(Validate(Columns(c, columns)), "") << Describe(c);
        several_groups += count > per_group;
        part_of_a_group += count < per_group;
      }
    }
  }
  EXPECT_GT(several_groups, 100);
  EXPECT_GT(part_of_a_group, 100);
}

// With real 0 in the padding the corrected sums of a sweep are an affine function of the code.
TEST(Sweep, OfAConvolutionIsAffineInTheCodeWithTheStatedDirection) {
  int64_t padded = 0;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case c = gen::Draw(seed % 2 == 0 ? Op::kConv2d : Op::kDepthwise, seed);
    if (c.M == 0 || c.N == 0 || c.K == 0) continue;
    for (const Case& base : {sweep::OneRow(c), Pixel(c, 0)}) {
      const Case expanded = sweep::Expand(base, {10, 11, 20});
      ASSERT_EQ(Validate(expanded), "") << Describe(c);
      const std::vector<__int128> sums = exact::CorrectedSums(expanded);
      for (int64_t n = 0; n < c.N; ++n) {
        const auto at = [&](int64_t row) { return sums[static_cast<size_t>(row * c.N + n)]; };
        const __int128 slope = at(1) - at(0);
        ASSERT_TRUE(at(2) - at(0) == 10 * slope) << Describe(c);
        ASSERT_EQ(sweep::Direction(base, n), slope > 0 ? 1 : slope < 0 ? -1 : 0) << Describe(c);
      }
      for (const Tap& tap : TapsOf(base.window, 0)) padded += tap.x_row < 0;
    }
  }
  EXPECT_GT(padded, 100);
}

TEST(Hash, SeesTheWindow) {
  Case c = gen::Draw(Op::kConv2d, 1);
  const uint64_t before = Hash(c);
  ++c.window.pad_top;
  EXPECT_NE(Hash(c), before);
}

}  // namespace
}  // namespace qualm::derive
