// SPDX-License-Identifier: Apache-2.0
#include "kernels/sums/pairing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/sums/certify.h"

namespace qualm::kernels {
namespace {

// Some panels of one width, packed as PairActivations expects them.
struct Panels {
  Panels(size_t count, int64_t channels, int64_t activations)
      : width(channels), depth(activations), weights(count, std::vector<int8_t>(Bytes())) {}

  size_t Bytes() const { return static_cast<size_t>((depth + 3) / 4 * width * 4); }
  size_t At(int64_t place, int64_t channel) const {
    return static_cast<size_t>((place / 4 * width + channel) * 4 + place % 4);
  }
  std::vector<PanelWeights> Views() {
    std::vector<PanelWeights> views;
    for (std::vector<int8_t>& panel : weights) views.push_back({width, panel.data()});
    return views;
  }
  // The number of neighbours, in the order of the weights, that are no safe pair in some channel of
  // the panel.
  int64_t UnsafePairs(size_t panel) const {
    int64_t count = 0;
    for (int64_t place = 0; place + 1 < depth; place += 2) {
      bool is_safe = true;
      for (int64_t c = 0; c < width; ++c) {
        is_safe =
            is_safe && CertifyPair(weights[panel][At(place, c)], weights[panel][At(place + 1, c)]);
      }
      count += !is_safe;
    }
    return count;
  }
  int64_t UnsafePairs() const {
    int64_t count = 0;
    for (size_t panel = 0; panel < weights.size(); ++panel) count += UnsafePairs(panel);
    return count;
  }

  int64_t width;
  int64_t depth;
  std::vector<std::vector<int8_t>> weights;
};

// Gaussian weights, the largest of each channel 127.
Panels Gaussian(uint64_t seed, size_t count, int64_t width, int64_t depth) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  Panels panels(count, width, depth);
  for (std::vector<int8_t>& weights : panels.weights) {
    for (int64_t c = 0; c < width; ++c) {
      std::vector<double> row(static_cast<size_t>(depth));
      double most = 0;
      for (double& w : row) most = std::max(most, std::abs(w = normal(engine)));
      for (int64_t k = 0; k < depth; ++k) {
        weights[panels.At(k, c)] =
            static_cast<int8_t>(std::lround(row[static_cast<size_t>(k)] / most * 127));
      }
    }
  }
  return panels;
}

// Every weight of `now` stands where `pairings` say, and none is lost.
void ExpectReordered(const Panels& before, const Panels& now,
                     const std::vector<Pairing>& pairings) {
  size_t panel = 0;
  for (const Pairing& pairing : pairings) {
    const std::vector<uint8_t>& shuffle = pairing.shuffle;
    if (!shuffle.empty()) {
      ASSERT_EQ(shuffle.size(), static_cast<size_t>(now.depth / kShuffled * kShuffled));
    }
    for (size_t block = 0; block < shuffle.size(); block += kShuffled) {
      const auto first = shuffle.begin() + static_cast<std::ptrdiff_t>(block);
      std::vector<uint8_t> sorted(first, first + kShuffled);
      std::ranges::sort(sorted);
      for (size_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], i);
    }
    ASSERT_LE(pairing.end_panel, now.weights.size());
    for (; panel < pairing.end_panel; ++panel) {
      for (int64_t k = 0; k < now.depth; ++k) {
        const auto place = static_cast<size_t>(k);
        const int64_t from =
            place < shuffle.size() ? k / kShuffled * kShuffled + shuffle[place] : k;
        for (int64_t c = 0; c < now.width; ++c) {
          ASSERT_EQ(now.weights[panel][now.At(k, c)], before.weights[panel][now.At(from, c)])
              << panel << " " << k << " " << c;
        }
      }
    }
  }
  if (!pairings.empty()) {
    ASSERT_EQ(panel, now.weights.size());
  }
}

TEST(Pairing, OrdinaryWeightsBecomeSafe) {
  for (const int64_t width : {8, 16, 64}) {
    for (const int64_t depth : {64, 130, 512}) {
      Panels panels = Gaussian(static_cast<uint64_t>(width + depth), 3, width, depth);
      const Panels before = panels;
      const std::vector<Pairing> pairings = PairActivations(depth, panels.Views());
      ExpectReordered(before, panels, pairings);
      if (width == 16 && depth == 512) {
        EXPECT_GT(before.UnsafePairs(), 3 * 256 / 5);
        EXPECT_LT(panels.UnsafePairs(), 3 * 256 / 15);
      }
    }
  }
}

TEST(Pairing, AFewOutliersShareOneOrder) {
  Panels panels(20, 16, 96);
  for (size_t panel = 0; panel < 20; ++panel) {
    const auto place = static_cast<int64_t>(panel * 4);
    panels.weights[panel][panels.At(place, 3)] = 127;
    panels.weights[panel][panels.At(place + 1, 3)] = 2;
  }
  const Panels before = panels;
  const std::vector<Pairing> pairings = PairActivations(96, panels.Views());
  ASSERT_EQ(pairings.size(), 1u);
  ExpectReordered(before, panels, pairings);
  EXPECT_EQ(before.UnsafePairs(), 20);
  EXPECT_EQ(panels.UnsafePairs(), 0);
}

// The limits of CertifyPair: no partner of 127 may have 2, none of -128 may have -1, while 1, 0 and
// the other sign may stand beside them.
TEST(Pairing, KnowsWhichWeightsAreTooLarge) {
  struct Case {
    int8_t large, small;
    bool moves;
  };
  for (const auto& [large, small, moves] :
       {Case{127, 1, false}, Case{127, 2, true}, Case{127, -128, false}, Case{-128, 0, false},
        Case{-128, -1, true}, Case{-128, -128, true}, Case{64, 64, false}, Case{64, 65, true},
        Case{-64, -64, false}, Case{-64, -65, true}}) {
    Panels panels(1, 8, 64);
    for (int64_t block = 0; block < 64; block += kShuffled) {  // enough to be worth a shuffle
      panels.weights[0][panels.At(block, 7)] = large;
      panels.weights[0][panels.At(block + 1, 7)] = small;
    }
    const Panels before = panels;
    const std::vector<Pairing> pairings = PairActivations(64, panels.Views());
    ExpectReordered(before, panels, pairings);
    EXPECT_EQ(!pairings.empty(), moves) << int{large} << " " << int{small};
    EXPECT_EQ(before.UnsafePairs(), moves ? 4 : 0) << int{large} << " " << int{small};
    EXPECT_EQ(panels.UnsafePairs(), 0) << int{large} << " " << int{small};
  }
}

// Panels keep their order if no order makes them safe, if they are safe already, or if they have no
// whole block.
TEST(Pairing, OthersStay) {
  Panels worst(2, 16, 128);
  for (std::vector<int8_t>& weights : worst.weights) std::ranges::fill(weights, int8_t{127});
  EXPECT_TRUE(PairActivations(128, worst.Views()).empty());
  Panels safe(2, 16, 128);
  for (std::vector<int8_t>& weights : safe.weights) std::ranges::fill(weights, int8_t{64});
  EXPECT_TRUE(PairActivations(128, safe.Views()).empty());
  Panels shallow = Gaussian(1, 4, 16, 15);
  EXPECT_TRUE(PairActivations(15, shallow.Views()).empty());
  EXPECT_TRUE(PairActivations(128, {}).empty());
}

// Panels with orders of their own, beside panels that stay.
TEST(Pairing, PanelsThatCannotShareAnOrderGetTheirOwn) {
  Panels panels = Gaussian(5, 8, 16, 256);
  std::ranges::fill(panels.weights[5], int8_t{64});
  std::ranges::fill(panels.weights[4], int8_t{64});
  std::ranges::fill(panels.weights[6], int8_t{127});
  std::ranges::fill(panels.weights[7], int8_t{127});
  const Panels before = panels;
  const std::vector<Pairing> pairings = PairActivations(256, panels.Views());
  ExpectReordered(before, panels, pairings);
  EXPECT_GE(pairings.size(), 3u);
  EXPECT_TRUE(std::ranges::any_of(pairings, [](const Pairing& p) { return p.shuffle.empty(); }));
  EXPECT_LT(panels.UnsafePairs(), before.UnsafePairs());
}

}  // namespace
}  // namespace qualm::kernels
