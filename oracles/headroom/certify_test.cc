// SPDX-License-Identifier: Apache-2.0
// The certificate against every activation there is.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/rng.h"
#include "oracles/headroom/headroom.h"

namespace qualm::headroom {
namespace {

// Smallest headroom of a row over all activations, by trying them.
int32_t WorstByForce(const std::vector<int8_t>& w, int32_t lo, int32_t hi) {
  int32_t worst = INT32_MAX;
  for (size_t k = 0; k < w.size(); k += 2) {
    const int32_t w1 = k + 1 < w.size() ? w[k + 1] : 0;
    for (int32_t x0 = lo; x0 <= hi; ++x0) {
      for (int32_t x1 = lo; x1 <= hi; ++x1) {
        const int32_t sum = x0 * w[k] + x1 * w1;
        worst = std::min({worst, 32767 - sum, 32768 + sum});
      }
    }
  }
  return worst;
}

void Compare(const std::vector<int8_t>& w, int32_t lo, int32_t hi) {
  const CertifyResult result = CertifyRow(w, lo, hi);
  const int32_t worst = WorstByForce(w, lo, hi);
  ASSERT_EQ(result.safe, worst >= 0) << lo << ".." << hi;
  ASSERT_EQ(result.witness.has_value(), !result.safe);
  if (result.safe) return;
  const Pair& pair = *result.witness;
  const auto k = static_cast<size_t>(pair.k);
  ASSERT_EQ(k % 2, 0u);
  ASSERT_LT(k, w.size());
  EXPECT_EQ(pair.w0, w[k]);
  EXPECT_EQ(pair.w1, k + 1 < w.size() ? w[k + 1] : 0);
  EXPECT_TRUE(lo <= pair.x0 && pair.x0 <= hi);
  EXPECT_TRUE(lo <= pair.x1 && pair.x1 <= hi);
  EXPECT_EQ(pair.sum, pair.x0 * pair.w0 + pair.x1 * pair.w1);
  EXPECT_EQ(pair.saturated, pair.sum > 0 ? 32767 : -32768);
  EXPECT_EQ(PairHeadroom(pair.sum), worst);
}

TEST(Certify, RandomRows) {
  Rng rng(1);
  int safe = 0;
  int unsafe = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<int8_t> w(rng.Below(9));
    const int64_t limit = rng.Chance(3, 4) ? 128 : 80;
    for (int8_t& value : w) value = static_cast<int8_t>(rng.Between(-limit, limit - 1));
    const auto lo = static_cast<int32_t>(rng.Chance(1, 2) ? 0 : rng.Between(0, 255));
    const auto hi = static_cast<int32_t>(rng.Chance(1, 2) ? 255 : rng.Between(lo, 255));
    Compare(w, lo, hi);
    (CertifyRow(w, lo, hi).safe ? safe : unsafe) += 1;
  }
  EXPECT_GT(safe, 50);
  EXPECT_GT(unsafe, 50);
}

// Over all u8 activations a pair is safe iff its positive weights add up to at most 128 and its
// negative ones to at least -128.
TEST(Certify, EveryPairOfWeights) {
  int unsafe = 0;
  for (int w0 = -128; w0 <= 127; ++w0) {
    for (int w1 = -128; w1 <= 127; ++w1) {
      const std::vector<int8_t> w = {static_cast<int8_t>(w0), static_cast<int8_t>(w1)};
      const bool safe =
          std::max(w0, 0) + std::max(w1, 0) <= 128 && std::min(w0, 0) + std::min(w1, 0) >= -128;
      ASSERT_EQ(CertifyRow(w, 0, 255).safe, safe) << w0 << " " << w1;
      unsafe += safe ? 0 : 1;
    }
  }
  EXPECT_EQ(unsafe, 8001 + 8256);  // w0 + w1 >= 129, w0 + w1 <= -129
}

// reduce_range keeps activations at most 127, and any weights are safe up to 128.
TEST(Certify, ReduceRange) {
  const std::vector<int8_t> lowest = {-128, -128};
  EXPECT_TRUE(CertifyRow(lowest, 0, 127).safe);
  EXPECT_TRUE(CertifyRow(lowest, 0, 128).safe);
  EXPECT_FALSE(CertifyRow(lowest, 0, 129).safe);
  const std::vector<int8_t> highest = {127, 127};
  EXPECT_TRUE(CertifyRow(highest, 0, 129).safe);
  EXPECT_FALSE(CertifyRow(highest, 0, 130).safe);
}

TEST(Certify, OddLastWeightHasNoPartner) {
  const std::vector<int8_t> w = {1, 1, -128};
  EXPECT_TRUE(CertifyRow(w, 0, 255).safe);
  EXPECT_TRUE(CertifyRow(w, 255, 255).safe);
  EXPECT_TRUE(CertifyRow({}, 0, 255).safe);
}

}  // namespace
}  // namespace qualm::headroom
