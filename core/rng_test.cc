// SPDX-License-Identifier: Apache-2.0
#include "core/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <vector>

namespace qualm {
namespace {

std::vector<uint64_t> First(uint64_t seed, size_t count) {
  Rng rng(seed);
  std::vector<uint64_t> values(count);
  for (uint64_t& value : values) value = rng.Next();
  return values;
}

// Computed by an independent implementation (arbitrary-precision integers). A change here changes
// the meaning of every seed ever printed.
TEST(Rng, SeedsMeanTheSameEverywhere) {
  EXPECT_EQ(First(0, 4), (std::vector<uint64_t>{0x99ec5f36cb75f2b4, 0xbf6e1f784956452a,
                                                0x1a5f849d4933e6e0, 0x6aa594f1262d2d2c}));
  EXPECT_EQ(First(42, 4), (std::vector<uint64_t>{0x15780b2e0c2ec716, 0x6104d9866d113a7e,
                                                 0xae17533239e499a1, 0xecb8ad4703b360a1}));
  EXPECT_EQ(First(UINT64_MAX, 4), (std::vector<uint64_t>{0x8f5520d52a7ead08, 0xc476a018caa1802d,
                                                         0x81de31c0d260469e, 0xbf658d7e065f3c2f}));
  EXPECT_EQ(MixSeed(1, 2), 0xf893a2eefb32555eu);
  EXPECT_EQ(MixSeed(2, 1), 0xbfc846100bfc1e42u);
}

TEST(Rng, MappingsMeanTheSameEverywhere) {
  Rng rng(1);
  constexpr std::array<uint64_t, 8> kBounds{1, 2, 3, 10, 255, 256, 1000, (uint64_t{1} << 63) + 1};
  constexpr std::array<uint64_t, 8> kValues{0, 0, 2, 3, 191, 34, 286, 7031611932980406429u};
  for (size_t i = 0; i < kBounds.size(); ++i) EXPECT_EQ(rng.Below(kBounds[i]), kValues[i]) << i;
  Rng between(2);
  for (const int64_t value : {0, -3, 4, -2, 3, -3, 1, 2, 3, 1, 2, 3}) {
    EXPECT_EQ(between.Between(-5, 4), value);
  }
}

TEST(Rng, ReachesBothEndsAndNothingElse) {
  Rng rng(9);
  std::set<int64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(rng.Between(-2, 2));
  EXPECT_EQ(seen, (std::set<int64_t>{-2, -1, 0, 1, 2}));
  for (int i = 0; i < 1000; ++i) {
    const double unit = rng.Unit();
    EXPECT_GE(unit, 0.0);
    EXPECT_LT(unit, 1.0);
    EXPECT_FALSE(rng.Chance(0, 3));
    EXPECT_TRUE(rng.Chance(3, 3));
  }
  EXPECT_EQ(rng.Between(INT64_MIN / 2, INT64_MIN / 2), INT64_MIN / 2);
}

}  // namespace
}  // namespace qualm
