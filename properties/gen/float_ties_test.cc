// SPDX-License-Identifier: Apache-2.0
#include "properties/gen/float_ties.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "core/rng.h"
#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"

namespace qualm::gen {
namespace {

TEST(FirstBetween, IsWhatTryingGives) {
  for (uint64_t modulus = 1; modulus <= 24; ++modulus) {
    for (uint64_t factor = 0; factor < modulus; ++factor) {
      for (uint64_t low = 0; low < modulus; ++low) {
        for (uint64_t high = low; high < modulus; ++high) {
          std::optional<uint64_t> expected;
          for (uint64_t x = 0; x < modulus && !expected; ++x) {
            const uint64_t at = factor * x % modulus;
            if (low <= at && at <= high) expected = x;
          }
          ASSERT_EQ(internal::FirstBetween(factor, modulus, low, high), expected)
              << factor << " mod " << modulus << " in " << low << ".." << high;
        }
      }
    }
  }
}

TEST(SumBesideFloatTie, LiesNearerThanDoubleCanTell) {
  Rng rng(1);
  int found = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto x = static_cast<float>(1 + rng.Unit());
    const auto w = static_cast<float>(1 + rng.Unit());
    const auto sum = internal::SumBesideFloatTie(rng, x, w);
    if (!sum) continue;
    ++found;
    const double product = *sum * (double{x} * w);
    const auto nearest = static_cast<float>(product);
    const float other = std::nextafter(nearest, nearest > product ? 0.0f : INFINITY);
    const double tie = (double{nearest} + other) / 2;
    EXPECT_EQ(product, tie) << *sum << " * " << x << " * " << w;
  }
  EXPECT_GT(found, 300);
}

// A kernel that adds up exactly, multiplies in double and rounds to float32 last.
float InDouble(const Case& c, int64_t n, double sum) {
  const auto channel = static_cast<size_t>(n);
  const double scale = double{c.x_q.scale[0]} * c.w_q.scale_at(n);
  double y = sum * scale;
  if (c.bias) y += (*c.bias)[channel];
  if (c.relu) y = std::max(y, 0.0);
  return static_cast<float>(y);
}

// Double rounding shows on drawn cases, whether the bias is a float or an integer.
TEST(Gen, ShowsFloatOutputsThatAreRoundedTwice) {
  int of_bias = 0, of_product = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const Case c = Draw(Op::kLinear, Theme::kNearTies, seed);
    if (c.out_dtype != DType::kF32 || c.M * c.N == 0) continue;
    const Tensor expected = exact::Evaluate(c);
    const auto sums = exact::CorrectedSums(c);
    bool differs = false;
    for (int64_t m = 0; m < c.M; ++m) {
      for (int64_t n = 0; n < c.N; ++n) {
        const auto at = static_cast<size_t>(m * c.N + n);
        differs |= InDouble(c, n, static_cast<double>(sums[at])) != expected.as<float>()[at];
      }
    }
    if (differs) ++(c.bias ? of_bias : of_product);
  }
  EXPECT_GT(of_bias, 10);
  EXPECT_GT(of_product, 10);
}

}  // namespace
}  // namespace qualm::gen
