// SPDX-License-Identifier: Apache-2.0
#include "kernels/sums/arrange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/sums/pairing.h"
#include "kernels/targets.h"

namespace qualm::kernels {
namespace {

TEST(ShuffleRows, PutsEachActivationIntoItsPlace) {
  std::mt19937_64 engine(3);
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    for (const int64_t depth : {16, 31, 64, 80, 127, 144, 200}) {
      const int64_t stride = depth + 5;
      const int64_t rows = 3;
      std::vector<uint8_t> x(static_cast<size_t>(rows * stride));
      for (uint8_t& v : x) v = static_cast<uint8_t>(engine());
      std::vector<uint8_t> shuffle;
      for (int64_t block = 0; block < depth / kShuffled; ++block) {
        std::vector<uint8_t> order(kShuffled);
        for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint8_t>(i);
        std::ranges::shuffle(order, engine);
        shuffle.insert(shuffle.end(), order.begin(), order.end());
      }
      std::vector<uint8_t> to(static_cast<size_t>(rows * depth) + 1, 77);
      ShuffleRows({x.data(), stride, rows, depth}, shuffle, to.data());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t k = 0; k < depth; ++k) {
          const auto place = static_cast<size_t>(k);
          const int64_t from =
              place < shuffle.size() ? k / kShuffled * kShuffled + shuffle[place] : k;
          ASSERT_EQ(to[static_cast<size_t>(r * depth + k)],
                    x[static_cast<size_t>(r * stride + from)])
              << target << " " << depth << " " << k;
        }
      }
      EXPECT_EQ(to.back(), 77);
    }
  }
}

TEST(WidenRows, PutsEvenActivationsBeforeOddOnes) {
  std::mt19937_64 engine(4);
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    for (const int64_t depth : {4, 6, 64, 67, 129, 200, 257}) {
      for (const bool is_signed : {false, true}) {
        const int64_t stride = depth + 3;
        const int64_t rows = 3;
        const int64_t quads = (depth + 3) / 4;
        std::vector<uint8_t> x(static_cast<size_t>(rows * stride));
        for (uint8_t& v : x) v = static_cast<uint8_t>(engine());
        std::vector<uint8_t> to(static_cast<size_t>(rows * WidenedBytes(depth)) + 1, 77);
        WidenRows({x.data(), stride, rows, depth}, is_signed, to.data());
        for (int64_t r = 0; r < rows; ++r) {
          const uint8_t* row = to.data() + r * WidenedBytes(depth);
          for (int64_t i = 0; i < 4 * quads; ++i) {
            const int64_t quad = i / 4;
            const int64_t from = std::min(4 * quad, depth - 4) + i % 4;
            const int expected = x[static_cast<size_t>(r * stride + from)] ^ (is_signed ? 128 : 0);
            uint16_t actual;
            std::memcpy(&actual, row + 4 * (i % 2 * quads + quad) + i % 4 / 2 * 2, sizeof(actual));
            ASSERT_EQ(actual, expected) << target << " " << depth << " " << r << " " << i;
          }
        }
        EXPECT_EQ(to.back(), 77);
      }
    }
  }
}

}  // namespace
}  // namespace qualm::kernels
