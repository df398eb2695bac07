// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/common/test_support.h"
#include "kernels/elementwise.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;

float Reference(int32_t q, float scale, int32_t zero_point) {
  return test::ReferenceFloat({test::Term{int64_t{q} - zero_point, 0} * test::Exactly(scale)});
}

TEST(Dequantize, IsExactForAllCodesHardScalesAndZeroPoints) {
  std::vector<uint8_t> q(256);
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<uint8_t>(i);
  for (const float scale : test::HardScales()) {
    for (const int32_t zero_point :
         {0, 113, -5, 255, -4000, (1 << 23) - 1, 1 << 23, (1 << 23) + 1, -(1 << 23), -(1 << 23) - 1,
          0x01234567, INT32_MIN, INT32_MAX}) {
      for (const ElementType type : {ElementType::kU8, ElementType::kS8}) {
        std::vector<float> expected;
        for (const uint8_t byte : q) {
          const int32_t code = type == ElementType::kS8 ? static_cast<int8_t>(byte) : byte;
          expected.push_back(Reference(code, scale, zero_point));
        }
        ForEachTarget([&](const std::string&) {
          std::vector<float> y(q.size());
          ASSERT_EQ(Dequantize({q.data(), type, 1, 256, 256}, {&scale, 1}, {&zero_point, 1},
                               {y.data(), ElementType::kF32, 1, 256, 256})
                        .error,
                    "");
          for (size_t i = 0; i < q.size(); ++i) {
            ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(expected[i]))
                << "byte " << i << std::hexfloat << " scale " << scale << " zero point "
                << zero_point;
          }
        });
      }
    }
  }
}

TEST(Dequantize, ZeroIsPositiveAndOverflowIsInfinite) {
  const std::vector<int8_t> q = {-128, 0, 3, 4, 127};
  const int32_t zero_point = 3;
  const float scale = 0x1p127f;
  ForEachTarget([&](const std::string&) {
    std::vector<float> y(5);
    ASSERT_TRUE(Dequantize({q.data(), ElementType::kS8, 1, 5, 5}, {&scale, 1}, {&zero_point, 1},
                           {y.data(), ElementType::kF32, 1, 5, 5})
                    .ok());
    EXPECT_EQ(y[0], -INFINITY);
    EXPECT_EQ(y[1], -INFINITY);
    EXPECT_EQ(std::bit_cast<uint32_t>(y[2]), 0u);
    EXPECT_EQ(y[3], scale);
    EXPECT_EQ(y[4], INFINITY);
  });
}

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

TEST(Dequantize, TouchesOnlyTheGivenElements) {
  Random random(3);
  for (size_t columns = 1; columns <= 70; ++columns) {
    for (const bool per_column : {false, true}) {
      const size_t rows = columns % 3 + 1;
      const size_t stride = columns + columns % 5;
      const size_t size = (rows - 1) * stride + columns;
      std::vector<float> scales;
      std::vector<int32_t> zero_points;
      for (size_t j = 0; j < (per_column ? columns : 1); ++j) {
        scales.push_back(random.Scale(-4, 2));
        zero_points.push_back(static_cast<int32_t>(random.Between(-10, 265)));
      }
      std::vector<uint8_t> values(size);
      for (uint8_t& v : values) v = static_cast<uint8_t>(random.Next());
      for (const bool at_start : {false, true}) {
        GuardedBuffer<uint8_t> q(size, at_start);
        GuardedBuffer<float> y(size, at_start);
        q.Assign(values);
        ForEachTarget([&](const std::string&) {
          std::fill_n(y.data(), size, 12345.0f);
          ASSERT_TRUE(
              Dequantize(
                  {q.data(), ElementType::kU8, int64_t(rows), int64_t(columns), int64_t(stride)},
                  scales, zero_points,
                  {y.data(), ElementType::kF32, int64_t(rows), int64_t(columns), int64_t(stride)})
                  .ok());
          for (size_t i = 0; i < size; ++i) {
            const size_t j = i % stride;
            const size_t p = per_column ? j : 0;
            const float expected =
                j >= columns ? 12345.0f : Reference(values[i], scales[p], zero_points[p]);
            ASSERT_EQ(y[i], expected) << columns << " columns, element " << i;
            ASSERT_EQ(q[i], values[i]);
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace qualm::kernels
