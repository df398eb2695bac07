// SPDX-License-Identifier: Apache-2.0
#include "kernels/sums/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/sums/certify.h"

namespace qualm::kernels {
namespace {

void ExpectSafePairs(const std::vector<int8_t>& weights) {
  for (size_t i = 0; i < weights.size(); i += 2) {
    ASSERT_TRUE(CertifyPair(weights[i], weights[i + 1])) << i;
  }
}

// One in `outliers` weights is any code. The others are at most 64 in magnitude, so that any two of
// them are a safe pair.
std::vector<int8_t> Weights(uint64_t seed, int64_t quads, int64_t width, uint64_t outliers) {
  std::mt19937_64 engine(seed);
  std::vector<int8_t> weights(static_cast<size_t>(quads * width * 4));
  for (int8_t& w : weights) {
    w = engine() % outliers == 0 ? static_cast<int8_t>(engine() % 256)
                                 : static_cast<int8_t>(engine() % 129 - 64);
  }
  return weights;
}

TEST(Split, BothSetsAreSafeAndTheirSumIsTheWeights) {
  int64_t most = 0;
  for (const int64_t width : {4, 8, 16}) {
    for (const int64_t quads : {1, 2, 7, 100}) {
      for (uint64_t seed = 0; seed < 40; ++seed) {
        const std::vector<int8_t> weights = Weights(seed, quads, width, 2 + seed * 3);
        std::vector<int8_t> kept = weights;
        ExtraQuads extra;
        if (!SplitPanel(quads, {width, kept.data()}, kMostExtraPlaces, &extra)) {
          EXPECT_EQ(kept, weights);
          EXPECT_TRUE(extra.places.empty() && extra.weights.empty());
          continue;
        }
        ASSERT_EQ(extra.places.size() % 4, 0u);
        ASSERT_EQ(extra.weights.size(), extra.places.size() * static_cast<size_t>(width));
        EXPECT_TRUE(std::is_sorted(extra.places.begin(), extra.places.end()));
        ExpectSafePairs(kept);
        ExpectSafePairs(extra.weights);
        std::vector<int> sums(kept.begin(), kept.end());
        for (size_t i = 0; i < extra.places.size(); ++i) {
          const int64_t place = extra.places[i];
          for (int64_t c = 0; c < width; ++c) {
            sums[static_cast<size_t>((place / 4 * width + c) * 4 + place % 4)] +=
                extra.weights[(i / 4 * static_cast<size_t>(width) + static_cast<size_t>(c)) * 4 +
                              i % 4];
          }
        }
        EXPECT_EQ(sums, std::vector<int>(weights.begin(), weights.end()));
        most = std::max(most, static_cast<int64_t>(extra.places.size()));
      }
    }
  }
  EXPECT_GT(most, 40);
}

TEST(Split, TooManyPairsAreLeftAlone) {
  std::vector<int8_t> weights(4 * 16 * 100, 127);
  const std::vector<int8_t> before = weights;
  ExtraQuads extra;
  EXPECT_FALSE(SplitPanel(100, {16, weights.data()}, 160, &extra));
  EXPECT_EQ(weights, before);
  EXPECT_TRUE(extra.places.empty());
}

// Two extremes of each sign, whose excesses may not stand next to each other.
TEST(Split, ExcessesThatAreTooMuchTogetherGetPartnersOfZeros) {
  std::vector<int8_t> weights(4 * 20);
  for (const size_t place : {0, 2, 8, 12}) {
    weights[place] = weights[place + 1] = place == 8 ? -128 : 127;
  }
  ExtraQuads extra;
  ASSERT_TRUE(SplitPanel(20, {1, weights.data()}, kMostExtraPlaces, &extra));
  EXPECT_EQ(extra.weights, (std::vector<int8_t>{126, 0, 126, -128, 126, 0, 0, 0}));
  EXPECT_EQ(extra.places, (std::vector<int64_t>{0, 0, 2, 8, 12, 12, 12, 12}));
}

}  // namespace
}  // namespace qualm::kernels
