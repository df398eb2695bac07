// SPDX-License-Identifier: Apache-2.0
// Predicted kinks against a saturating accumulator swept over all codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "oracles/headroom/headroom.h"

namespace qualm::headroom {
namespace {

Case Weights(const std::vector<int8_t>& w, int64_t n) {
  Case c;
  c.M = 0;
  c.N = n;
  c.K = static_cast<int64_t>(w.size()) / n;
  c.x = Tensor(DType::kU8, {0, c.K});
  c.w = Tensor::Of<int8_t>({n, c.K}, w);
  return c;
}

// Every pair of weights: the first code that saturates is the one after last_exact_code.
TEST(Kinks, EveryPairOfWeights) {
  int kinks = 0;
  for (int w0 = -128; w0 <= 127; ++w0) {
    for (int w1 = -128; w1 <= 127; ++w1) {
      int first = 256;
      for (int x = 255; x >= 0; --x) {
        const int sum = x * w0 + x * w1;
        if (sum > 32767 || sum < -32768) first = x;
      }
      const std::vector<Kink> predicted =
          PredictKinks(Weights({static_cast<int8_t>(w0), static_cast<int8_t>(w1)}, 1), 0);
      ASSERT_EQ(predicted.size(), first <= 255 ? 1u : 0u) << w0 << " " << w1;
      ASSERT_EQ(first <= 255, std::abs(w0 + w1) >= 129) << w0 << " " << w1;
      if (first > 255) continue;
      ASSERT_EQ(predicted[0].last_exact_code, first - 1) << w0 << " " << w1;
      ASSERT_EQ(predicted[0].weight_sum, w0 + w1);
      ++kinks;
    }
  }
  EXPECT_GT(kinks, 10000);
}

// Rows: from one code to the next the saturating accumulator grows by the exact slope less S for
// every kink already passed, and by what fits for a kink just passed.
TEST(Kinks, SlopesOfRows) {
  Rng rng(2);
  int bends = 0;
  for (int i = 0; i < 200; ++i) {
    const int64_t n_count = 2;
    const int64_t k_count = rng.Between(1, 17);
    std::vector<int8_t> w(static_cast<size_t>(n_count * k_count));
    for (int8_t& value : w) value = static_cast<int8_t>(rng.Between(-128, 127));
    const Case c = Weights(w, n_count);
    for (int64_t n = 0; n < n_count; ++n) {
      const int8_t* row = w.data() + n * k_count;
      const auto accumulate = [&](int x) {
        int sum = 0;
        for (int64_t k = 0; k < k_count; k += 2) {
          const int w1 = k + 1 < k_count ? row[k + 1] : 0;
          sum += std::clamp(x * row[k] + x * w1, -32768, 32767);
        }
        return sum;
      };
      int exact_slope = 0;
      for (int64_t k = 0; k < k_count; ++k) exact_slope += row[k];
      const std::vector<Kink> kinks = PredictKinks(c, n);
      for (int x = 0; x < 255; ++x) {
        int slope = exact_slope;
        for (const Kink& kink : kinks) {
          EXPECT_EQ(kink.n, n);
          EXPECT_EQ(kink.weight_sum, row[kink.k] + row[kink.k + 1]);
          if (kink.last_exact_code < x) slope -= kink.weight_sum;
          if (kink.last_exact_code != x) continue;
          // The step that crosses the bound stops on it.
          slope -= (x + 1) * kink.weight_sum - (kink.weight_sum > 0 ? 32767 : -32768);
          ++bends;
        }
        ASSERT_EQ(accumulate(x + 1) - accumulate(x), slope) << "code " << x;
      }
      EXPECT_TRUE(std::is_sorted(kinks.begin(), kinks.end(), [](const Kink& a, const Kink& b) {
        return std::pair(a.last_exact_code, a.k) < std::pair(b.last_exact_code, b.k);
      }));
    }
  }
  EXPECT_GT(bends, 100);
}

// Constant images under a convolution: the pairs that saturate at code x are those whose kink lies
// before it, wherever the window lies inside the image.
TEST(Kinks, Convolutions) {
  Rng rng(3);
  int64_t saturating = 0;
  for (int i = 0; i < 40; ++i) {
    Case c;
    c.op = i % 2 == 0 ? Op::kConv2d : Op::kDepthwise;
    Window& v = c.window;
    v.batch = 1;
    v.in_h = v.in_w = 4;
    v.kernel_h = rng.Between(1, 3);
    v.kernel_w = rng.Between(1, 3);
    v.stride_w = 2;
    v.groups = 2;
    v.in_c = i % 2 == 0 ? 6 : 2;
    c.N = 4;
    DeriveSizes(&c);
    c.w = Tensor(DType::kS8, {c.N, v.kernel_h, v.kernel_w, v.in_c / v.groups});
    for (int64_t at = 0; at < c.w.size(); ++at) {
      c.w.SetInt(at, static_cast<int32_t>(rng.Between(-128, 127)));
    }
    const bool is_signed = i % 4 < 2;
    c.x = Tensor(is_signed ? DType::kS8 : DType::kU8, {1, 4, 4, v.in_c});
    for (int32_t code = 120; code <= 255; code += 5) {
      for (int64_t at = 0; at < c.x.size(); ++at) c.x.SetInt(at, code - (is_signed ? 128 : 0));
      for (int64_t m = 0; m < c.M; ++m) {
        for (int64_t n = 0; n < c.N; ++n) {
          std::vector<int64_t> passed;
          for (const Kink& kink : PredictKinks(c, n)) {
            if (kink.last_exact_code < code) passed.push_back(kink.k);
          }
          std::sort(passed.begin(), passed.end());
          std::vector<int64_t> found;
          for (const Pair& pair : SaturatingPairs(c, m, n)) found.push_back(pair.k);
          ASSERT_EQ(passed, found) << Describe(c);
          saturating += static_cast<int64_t>(found.size());
        }
      }
    }
  }
  EXPECT_GT(saturating, 1000);
}

TEST(Kinks, NoneWithoutPairs) {
  Case c = Weights({127, 127}, 1);
  EXPECT_EQ(PredictKinks(c, 0).size(), 1u);
  EXPECT_EQ(PredictKinks(c, 0)[0].last_exact_code, 129);  // 129 * 254 = 32766
  c.w = Tensor(DType::kU8, {1, 2});
  c.w.SetInt(0, 255);
  c.w.SetInt(1, 255);
  EXPECT_TRUE(PredictKinks(c, 0).empty());
}

}  // namespace
}  // namespace qualm::headroom
