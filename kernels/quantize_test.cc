// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/common/test_support.h"
#include "kernels/elementwise.h"

namespace qualm::kernels {
namespace {

using test::Exactly;
using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;
using test::ReferenceCode;

struct Output {
  ElementType type;
  int32_t zero_point;
  OutputRange range;
};

// Ordinary, at the ends, restricted, fused activation (also beyond the upper bound), zero points
// outside the codes, beyond 2^15 and at the ends of int32.
const std::vector<Output>& Outputs() {
  static const std::vector<Output> outputs = {
      {ElementType::kU8, 113, {}},
      {ElementType::kS8, -5, {}},
      {ElementType::kU8, 0, {.min = 7, .max = 200}},
      {ElementType::kU8, 128, {.relu = true}},
      {ElementType::kS8, 127, {.min = -64, .max = 63, .relu = true}},
      {ElementType::kU8, -300, {}},
      {ElementType::kS8, 32000, {}},
      {ElementType::kU8, 40000, {}},
      {ElementType::kU8, -3'000'000, {}},
      {ElementType::kU8, INT32_MIN, {}},
      {ElementType::kS8, INT32_MAX, {.min = -100, .max = 100}},
  };
  return outputs;
}

int32_t LowerBound(const Output& o) {
  int32_t lo = std::max(o.range.min, o.type == ElementType::kU8 ? 0 : -128);
  if (o.range.relu) lo = std::max(lo, o.zero_point);
  return lo;
}
int32_t UpperBound(const Output& o) {
  return std::min(o.range.max, o.type == ElementType::kU8 ? 255 : 127);
}

int32_t Reference(float x, float scale, const Output& o) {
  const int32_t hi = UpperBound(o);
  const int32_t lo = std::min(LowerBound(o), hi);
  if (std::isnan(x)) return std::min(std::max(o.zero_point, lo), hi);
  if (std::isinf(x)) return x > 0 ? hi : lo;
  return ReferenceCode({Exactly(x)}, Exactly(scale), o.zero_point, lo, hi);
}

int32_t Code(uint8_t byte, ElementType type) {
  return type == ElementType::kS8 ? static_cast<int8_t>(byte) : byte;
}

// Both sides of many steps of the staircase, special values, and random bits.
std::vector<float> Inputs(float scale, const Output& o, uint64_t seed) {
  std::vector<float> x = {0.0f,
                          -0.0f,
                          NAN,
                          -NAN,
                          INFINITY,
                          -INFINITY,
                          0x1p-149f,
                          -0x1p-149f,
                          0x1.fffffep127f,
                          -0x1.fffffep127f,
                          0x1p-126f,
                          -0x1p-126f,
                          scale,
                          -scale,
                          scale / 2};
  x.push_back(std::bit_cast<float>(0x7F800001u));  // signalling NaN
  Random random(seed);
  const int64_t lo = int64_t{std::min(LowerBound(o), UpperBound(o))} - o.zero_point;
  const int64_t hi = int64_t{UpperBound(o)} - o.zero_point;
  for (int i = 0; i < 24; ++i) {
    const int64_t n = i == 0 ? lo - 1 : i == 1 ? hi : random.Between(lo - 2, hi + 2);
    const auto tie = static_cast<float>((static_cast<double>(n) + 0.5) * scale);
    x.insert(x.end(), {tie, std::nextafter(tie, INFINITY), std::nextafter(tie, -INFINITY)});
  }
  for (int i = 0; i < 16; ++i) x.push_back(std::bit_cast<float>(uint32_t(random.Next())));
  return x;
}

TEST(Quantize, IsExactForHardScalesAndZeroPoints) {
  uint64_t seed = 0;
  for (const float scale : test::HardScales()) {
    for (const Output& o : Outputs()) {
      const std::vector<float> x = Inputs(scale, o, ++seed);
      std::vector<int32_t> expected;
      for (const float v : x) expected.push_back(Reference(v, scale, o));
      const auto n = static_cast<int64_t>(x.size());
      ForEachTarget([&](const std::string&) {
        std::vector<uint8_t> y(x.size());
        ASSERT_EQ(Quantize({x.data(), ElementType::kF32, 1, n, n}, {&scale, 1}, {&o.zero_point, 1},
                           o.range, {y.data(), o.type, 1, n, n})
                      .error,
                  "");
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_EQ(Code(y[i], o.type), expected[i])
              << "x " << std::hexfloat << x[i] << " scale " << scale << std::dec << " zero point "
              << o.zero_point;
        }
      });
    }
  }
}

TEST(Quantize, AllTiesGoToEven) {
  // Scales under which every input below is exactly half way.
  for (const float scale : {1.0f, 0x1p-5f, 0.75f, 3 * 0x1p-140f, 0x1.554p-8f}) {
    std::vector<float> x;
    for (int i = -130; i < 130; ++i) x.push_back((static_cast<float>(i) + 0.5f) * scale);
    const auto n = static_cast<int64_t>(x.size());
    const int32_t zero_point = 0;
    ForEachTarget([&](const std::string&) {
      std::vector<int8_t> y(x.size());
      ASSERT_TRUE(Quantize({x.data(), ElementType::kF32, 1, n, n}, {&scale, 1}, {&zero_point, 1},
                           {}, {y.data(), ElementType::kS8, 1, n, n})
                      .ok());
      for (int i = -130; i < 130; ++i) {
        const int even = i % 2 == 0 ? i : i + 1;
        ASSERT_EQ(y[static_cast<size_t>(i + 130)], std::min(std::max(even, -128), 127)) << i;
      }
    });
  }
}

TEST(Quantize, OneHardElementAtEachPlaceOfTwoBlocks) {
  // Two blocks of vectors share a branch: what makes one of them undecided must not touch the rest.
  constexpr size_t kCount = 300;
  const float scale = 0.75f;
  const Output o{ElementType::kU8, 113, {}};
  std::vector<float> x(kCount);
  std::vector<int32_t> expected(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    x[i] = (static_cast<float>(i) - 130.0f) * 0.9f + 0.01f;
    expected[i] = Reference(x[i], scale, o);
  }
  const auto n = static_cast<int64_t>(kCount);
  ForEachTarget([&](const std::string&) {
    const std::vector<float> hards = {0.375f,   1.125f,    NAN,  std::bit_cast<float>(0xFFC01234u),
                                      INFINITY, -INFINITY, 3e4f, -3e4f,
                                      0x1p120f, -0x1p120f};
    for (const float hard : hards) {
      const int32_t code = Reference(hard, scale, o);
      for (size_t at = 0; at < kCount; ++at) {
        std::vector<float> hard_x = x;
        hard_x[at] = hard;
        std::vector<uint8_t> y(kCount);
        ASSERT_TRUE(Quantize({hard_x.data(), ElementType::kF32, 1, n, n}, {&scale, 1},
                             {&o.zero_point, 1}, {}, {y.data(), ElementType::kU8, 1, n, n})
                        .ok());
        for (size_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(y[i], i == at ? code : expected[i])
              << hard << " at " << at << ", element " << i;
        }
      }
    }
  });
}

TEST(Quantize, OfMoreThanCachesHoldIsThatOfItsParts) {
  // Stores that bypass the caches begin at a multiple of 64 bytes.
  constexpr size_t kCount = (size_t{1} << 25) / 5 + 1000;
  constexpr size_t kPart = 4099;
  const float scale = 0.0473f;
  const int32_t zero_point = 113;
  Random random(17);
  std::vector<float> x(kCount);
  for (float& v : x) v = static_cast<float>(random.Between(-200'000, 200'000)) * 0x1p-14f;
  const auto quantize = [&](size_t first, size_t count, uint8_t* y) {
    const auto n = static_cast<int64_t>(count);
    ASSERT_TRUE(Quantize({x.data() + first, ElementType::kF32, 1, n, n}, {&scale, 1},
                         {&zero_point, 1}, {}, {y, ElementType::kU8, 1, n, n})
                    .ok());
  };
  ForEachTarget([&](const std::string& target) {
    std::vector<uint8_t> parts(kCount);
    for (size_t i = 0; i < kCount; i += kPart) {
      quantize(i, std::min(kPart, kCount - i), parts.data() + i);
    }
    for (const size_t offset : {0, 1, 63}) {
      std::vector<uint8_t> y(kCount + 64, 0xA5);
      quantize(0, kCount, y.data() + offset);
      ASSERT_TRUE(std::equal(parts.begin(), parts.end(), y.data() + offset)) << target << offset;
      for (size_t i = 0; i < 64; ++i) ASSERT_EQ(y[i < offset ? i : kCount + i], 0xA5) << i;
    }
  });
}

TEST(Quantize, DecidesTheNearestMissesOfTies) {
  // S and X are odd 24-bit integers with X * 2^e = (2n+1) S +- 1: the quotient X * 2^(e-1) / S
  // misses the tie n + 1/2 by 1/(2S), as little as two float32 can.
  Random random(41);
  for (int e = 2; e <= 32; ++e) {
    for (int i = 0; i < 40; ++i) {
      const int64_t s = random.Between(1 << 22, (1 << 23) - 1) * 2 + 1;
      const int64_t inverse = test::InverseModulo((int64_t{1} << e) % s, s);
      const int64_t sign = i % 2 == 0 ? 1 : -1;
      const int64_t numerator = sign > 0 ? inverse : s - inverse;
      const int64_t n = ((numerator << e) - sign) / s / 2;
      const auto zero_point = static_cast<int32_t>(100 - n);
      const float x = std::ldexp(static_cast<float>(numerator), e - 1);
      const auto scale = static_cast<float>(s);
      const int expected = sign > 0 ? 101 : 100;
      const float pair[2] = {x, -x};
      ForEachTarget([&](const std::string&) {
        uint8_t y[2];
        ASSERT_TRUE(Quantize({pair, ElementType::kF32, 1, 1, 1}, {&scale, 1}, {&zero_point, 1}, {},
                             {y, ElementType::kU8, 1, 1, 1})
                        .ok());
        ASSERT_EQ(y[0], expected) << "n " << n << " s " << s;
        const auto mirrored = static_cast<int32_t>(100 + n);
        ASSERT_TRUE(Quantize({pair + 1, ElementType::kF32, 1, 1, 1}, {&scale, 1}, {&mirrored, 1},
                             {}, {y + 1, ElementType::kU8, 1, 1, 1})
                        .ok());
        ASSERT_EQ(y[1], 200 - expected) << "n " << n << " s " << s;
      });
    }
  }
}

TEST(Quantize, TouchesOnlyTheGivenElements) {
  Random random(3);
  for (size_t columns = 0; columns <= 70; ++columns) {
    for (const bool per_column : {false, true}) {
      const size_t rows = columns % 3 + 1;
      const size_t stride = columns + columns % 5;
      // The last row ends at the end of the buffer.
      const size_t size = columns == 0 ? 0 : (rows - 1) * stride + columns;
      std::vector<float> scales;
      std::vector<int32_t> zero_points;
      for (size_t j = 0; j < (per_column ? columns : 1); ++j) {
        scales.push_back(random.Scale(-4, 2));
        zero_points.push_back(static_cast<int32_t>(random.Between(-10, 265)));
      }
      std::vector<float> values(size);
      for (float& v : values) v = static_cast<float>(random.Between(-9999, 9999)) / 64;
      if (per_column && columns == 0) continue;
      for (const bool at_start : {false, true}) {
        GuardedBuffer<float> x(size, at_start);
        GuardedBuffer<uint8_t> y(size, at_start);
        GuardedBuffer<float> scale(scales.size(), at_start);
        GuardedBuffer<int32_t> zero_point(scales.size(), at_start);
        x.Assign(values);
        scale.Assign(scales);
        zero_point.Assign(zero_points);
        ForEachTarget([&](const std::string&) {
          std::fill_n(y.data(), size, uint8_t{0xA5});
          ASSERT_TRUE(
              Quantize(
                  {x.data(), ElementType::kF32, int64_t(rows), int64_t(columns), int64_t(stride)},
                  {scale.data(), scale.size()}, {zero_point.data(), scale.size()}, {},
                  {y.data(), ElementType::kU8, int64_t(rows), int64_t(columns), int64_t(stride)})
                  .ok());
          for (size_t i = 0; i < size; ++i) {
            const size_t j = i % stride;
            const size_t p = per_column ? j : 0;
            const int32_t expected =
                j >= columns ? 0xA5
                             : Reference(x[i], scales[p], {ElementType::kU8, zero_points[p], {}});
            ASSERT_EQ(y[i], expected) << columns << " columns, element " << i;
            ASSERT_EQ(x[i], values[i]);
          }
        });
      }
    }
  }
}

TEST(Quantize, WorksInPlace) {
  Random random(5);
  for (const int32_t zero_point : {100, 100000}) {
    std::vector<float> x(131);
    for (float& v : x) {
      v = (static_cast<float>(random.Between(-200, 200)) - static_cast<float>(zero_point - 100)) /
          2;
    }
    const float scale = 0.5f;
    const auto n = static_cast<int64_t>(x.size());
    std::vector<uint8_t> expected(x.size());
    ASSERT_TRUE(Quantize({x.data(), ElementType::kF32, 1, n, n}, {&scale, 1}, {&zero_point, 1}, {},
                         {expected.data(), ElementType::kU8, 1, n, n})
                    .ok());
    ForEachTarget([&](const std::string&) {
      std::vector<float> buffer = x;
      ASSERT_TRUE(Quantize({buffer.data(), ElementType::kF32, 1, n, n}, {&scale, 1},
                           {&zero_point, 1}, {}, {buffer.data(), ElementType::kU8, 1, n, n})
                      .ok());
      ASSERT_EQ(std::memcmp(buffer.data(), expected.data(), expected.size()), 0);
    });
  }
}

TEST(Quantize, MixesOneScaleWithZeroPointsPerColumn) {
  const std::vector<float> x = {1, 1, 1, -1, -1, -1};
  const std::vector<int32_t> zero_points = {0, 50, 250};
  const float scale = 0.1f;  // the float32 next to 0.1 is larger: 1/scale is a little below 10
  std::vector<uint8_t> y(6);
  ASSERT_TRUE(Quantize({x.data(), ElementType::kF32, 2, 3, 3}, {&scale, 1}, zero_points, {},
                       {y.data(), ElementType::kU8, 2, 3, 3})
                  .ok());
  EXPECT_EQ(y, (std::vector<uint8_t>{10, 60, 255, 0, 40, 240}));
}

}  // namespace
}  // namespace qualm::kernels
