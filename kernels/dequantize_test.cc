// SPDX-License-Identifier: Apache-2.0
// Rows of dequantize so long that stores are aligned, or bypass the caches.
#include <gtest/gtest.h>

#include "kernels/common/test_support.h"
#include "kernels/elementwise.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::Random;

TEST(Dequantize, ManyElementsAtEachAlignment) {
  // Above 256 elements stores are aligned; beyond the caches they bypass them.
  Random random(5);
  const float scale = 0.0473f;
  for (const ElementType type : {ElementType::kU8, ElementType::kS8}) {
    for (const size_t count : {size_t{255}, size_t{256}, size_t{1000}, (size_t{1} << 25) / 5 + 7}) {
      std::vector<uint8_t> q(count);
      for (uint8_t& byte : q) byte = static_cast<uint8_t>(random.Next());
      const auto n = static_cast<int64_t>(count);
      const int32_t zero_point = -7;
      ForEachTarget([&](const std::string&) {
        for (size_t offset = 0; offset <= 16; offset += count > 1000 ? 7 : 1) {
          std::vector<float> y(count + 16, -1.5f);
          ASSERT_TRUE(Dequantize({q.data(), type, 1, n, n}, {&scale, 1}, {&zero_point, 1},
                                 {y.data() + offset, ElementType::kF32, 1, n, n})
                          .ok());
          for (size_t i = 0; i < 16; ++i) ASSERT_EQ(y[i < offset ? i : count + i], -1.5f) << i;
          for (size_t i = 0; i < count; ++i) {
            const int32_t code = type == ElementType::kS8 ? static_cast<int8_t>(q[i]) : q[i];
            ASSERT_EQ(y[offset + i], static_cast<float>(code - zero_point) * scale) << i;
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace qualm::kernels
