// SPDX-License-Identifier: Apache-2.0
// What no case asks of quantize: each place in two blocks of vectors, rows larger than the caches,
// the nearest misses of ties that two float32 can have.
#include <gtest/gtest.h>

#include "kernels/common/test_support.h"
#include "kernels/elementwise.h"
#include "kernels/unpack.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::Random;

// The first integer in the lowest bits, 0 behind the last one, nothing written behind its byte.
TEST(Pack, IsTheInverseOfUnpack) {
  const std::vector<uint8_t> bytes{0xF1, 0x02, 0x08, 0xFF, 0x47};
  std::vector<uint8_t> packed(4, 0xAA);
  Pack(bytes, 4, packed.data());
  EXPECT_EQ(packed, (std::vector<uint8_t>{0x21, 0xF8, 0x07, 0xAA}));
  Pack(bytes, 2, packed.data());
  EXPECT_EQ(packed, (std::vector<uint8_t>{0xC9, 0x03, 0x07, 0xAA}));
  for (const int bits : {4, 2}) {
    for (const bool is_signed : {true, false}) {
      for (size_t count = 0; count < 40; ++count) {
        std::vector<uint8_t> codes(count), back(count);
        for (size_t i = 0; i < count; ++i) {
          const int code = static_cast<int>(i * 7 % (1u << bits));
          codes[i] = static_cast<uint8_t>(is_signed ? code - (1 << (bits - 1)) : code);
        }
        std::vector<uint8_t> stored((count * static_cast<size_t>(bits) + 7) / 8);
        Pack(codes, bits, stored.data());
        Unpack({stored.data(), bits, is_signed}, back);
        EXPECT_EQ(back, codes);
      }
    }
  }
}

// Two blocks of vectors share a branch: what makes one of them undecided must not touch the rest.
// Each element has the code that it has alone.
TEST(Quantize, OneHardElementAtEachPlaceOfTwoBlocks) {
  constexpr size_t kCount = 300;
  const float scale = 0.75f;
  const int32_t zero_point = 113;
  const auto quantize = [&](const float* x, size_t count, uint8_t* y) {
    const auto n = static_cast<int64_t>(count);
    ASSERT_TRUE(Quantize({x, ElementType::kF32, 1, n, n}, {&scale, 1}, {&zero_point, 1}, {},
                         {y, ElementType::kU8, 1, n, n})
                    .ok());
  };
  std::vector<float> x(kCount);
  for (size_t i = 0; i < kCount; ++i) x[i] = (static_cast<float>(i) - 130.0f) * 0.9f + 0.01f;
  ForEachTarget([&](const std::string&) {
    std::vector<uint8_t> expected(kCount), y(kCount);
    for (size_t i = 0; i < kCount; ++i) quantize(&x[i], 1, &expected[i]);
    const std::vector<float> hards = {0.375f,   1.125f,    NAN,  std::bit_cast<float>(0xFFC01234u),
                                      INFINITY, -INFINITY, 3e4f, -3e4f,
                                      0x1p120f, -0x1p120f};
    for (const float hard : hards) {
      uint8_t code = 0;
      quantize(&hard, 1, &code);
      for (size_t at = 0; at < kCount; ++at) {
        std::vector<float> hard_x = x;
        hard_x[at] = hard;
        quantize(hard_x.data(), kCount, y.data());
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
