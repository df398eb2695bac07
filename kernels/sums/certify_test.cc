// SPDX-License-Identifier: Apache-2.0
#include "kernels/sums/certify.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace qualm::kernels {
namespace {

// The sum is linear in each activation, so its extremes lie at the corners of the square.
bool FitsAtEveryCorner(int w0, int w1) {
  for (int x0 : {0, 255}) {
    for (int x1 : {0, 255}) {
      const int sum = x0 * w0 + x1 * w1;
      if (sum < INT16_MIN || sum > INT16_MAX) return false;
    }
  }
  return true;
}

TEST(CertifyPair, AgreesWithTheCornersForEveryPairOfWeights) {
  int certified = 0;
  for (int w0 = -128; w0 <= 127; ++w0) {
    for (int w1 = -128; w1 <= 127; ++w1) {
      const bool expected = FitsAtEveryCorner(w0, w1);
      certified += expected;
      ASSERT_EQ(CertifyPair(static_cast<int8_t>(w0), static_cast<int8_t>(w1)), expected)
          << w0 << ", " << w1;
    }
  }
  // Unsafe: both positive with sum >= 129 (1 + 2 + ... + 126 pairs), or both negative with sum
  // <= -129 (1 + 2 + ... + 128 pairs).
  EXPECT_EQ(certified, 65536 - 126 * 127 / 2 - 128 * 129 / 2);
}

TEST(CertifyPair, CornersAreTheExtremesOverAllActivations) {
  for (auto [w0, w1] : {std::pair{64, 64}, {64, 65}, {-64, -64}, {-64, -65}, {127, -128}}) {
    bool fits = true;
    for (int x0 = 0; x0 <= 255; ++x0) {
      for (int x1 = 0; x1 <= 255; ++x1) {
        const int sum = x0 * w0 + x1 * w1;
        fits &= sum >= INT16_MIN && sum <= INT16_MAX;
      }
    }
    EXPECT_EQ(CertifyPair(static_cast<int8_t>(w0), static_cast<int8_t>(w1)), fits);
  }
}

}  // namespace
}  // namespace qualm::kernels
