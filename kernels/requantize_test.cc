// SPDX-License-Identifier: Apache-2.0
// What no case asks of requantize: misses of ties that are constructed, the paths, the divisor of
// means.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/common/rescale.h"
#include "kernels/common/test_support.h"
#include "kernels/elementwise.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::Random;

// 4586011 * 5394451 = 2^39 * (2 * 22 + 1) + 1: past the tie by 2^-40, in rows of whole blocks.
TEST(Requantize, DecidesMissesThatDoublesTakeForTies) {
  const Multiplier m{5394451 * 0x1p-40f};
  const std::vector<int32_t> acc(300, 4586011);
  ForEachTarget([&](const std::string&) {
    std::vector<uint8_t> y(acc.size());
    ASSERT_TRUE(Requantize({acc.data(), ElementType::kS32, 1, 300, 300}, {&m, 1}, 10, {},
                           {y.data(), ElementType::kU8, 1, 300, 300})
                    .ok());
    EXPECT_EQ(y, std::vector<uint8_t>(acc.size(), 33));
  });
}

TEST(Requantize, EveryPathIsTaken) {
  using internal::Rescale;
  using internal::RescalePath;
  const auto path = [](Multiplier m, int32_t zero_point) {
    return Rescale({&m, 1}, {}, zero_point, {0, 255}).plan().path;
  };
  EXPECT_EQ(path({0.1f}, 0), RescalePath::kFloat32);
  EXPECT_EQ(path({256.5f * 0x1p-24f}, 0), RescalePath::kFloat32);
  EXPECT_EQ(path({256.49997f * 0x1p-24f}, 0), RescalePath::kFloat64);
  EXPECT_EQ(path({0.1f}, 256), RescalePath::kFloat32);
  EXPECT_EQ(path({0.1f}, 257), RescalePath::kFloat64);
  EXPECT_EQ(path({0.1f}, -2), RescalePath::kFloat64);
  EXPECT_EQ(path({0.02f, 0.003f, 0.25f}, 0), RescalePath::kFloat64);
  EXPECT_EQ(path({0.02f, 0.003f, 0.02f}, 0), RescalePath::kFloat32);  // the quotient is a float32
  EXPECT_EQ(path({0.02f, 0.003f, 0.05f}, 0), RescalePath::kInterval);
  EXPECT_EQ(path({1, 1, 6}, 0), RescalePath::kInterval);
  const auto is_short = [](Multiplier m) {
    return Rescale({&m, 1}, {}, 0, {0, 255}).plan().short_multiplier;
  };
  EXPECT_TRUE(is_short({0x1.fffff8p-9f}));   // 22 significant bits
  EXPECT_FALSE(is_short({0x1.fffffcp-9f}));  // 23
  EXPECT_FALSE(is_short({1, 1, 6}));
}

TEST(Requantize, TiesOfMeansGoToEven) {
  // The divisor and the denominator together have 53 bits, their product with n + 1/2 more.
  const int32_t count = (1 << 29) - 1;
  for (int n = -120; n < 120; ++n) {
    const Multiplier m{0xFFFFFF, std::fabs(static_cast<float>(n) + 0.5f), 0xFFFFFF, count};
    const int32_t acc = n < 0 ? -count : count;
    ForEachTarget([&](const std::string&) {
      int8_t y = 0;
      ASSERT_TRUE(Requantize({&acc, ElementType::kS32, 1, 1, 1}, {&m, 1}, 0, {},
                             {&y, ElementType::kS8, 1, 1, 1})
                      .ok());
      ASSERT_EQ(y, n % 2 == 0 ? n : n + 1);
    });
  }
}

TEST(Requantize, DecidesTheNearestMissesOfTies) {
  // acc * A = (2n+1) C 2^(k-1) +- 1: with the multiplier A / (C 2^k) the product misses the tie
  // n + 1/2 by the smallest possible amount, relative to it 2^-55 in the extreme.
  Random random(43);
  int tried = 0;
  for (int i = 0; i < 4000; ++i) {
    const int64_t a = random.Between(1 << 2, (1 << random.Between(3, 23)) - 1) * 2 + 1;
    // Plain float32 multipliers, then quotients.
    const int64_t c = i % 2 == 0 ? 1 : random.Between(1, (1 << random.Between(1, 23)) - 1) * 2 + 1;
    if (std::gcd(a, c) != 1) continue;
    int k = 2;
    while ((c << k) < (int64_t{1} << 31)) ++k;  // c 2^(k-1) < 2^31
    if (i % 3 == 0) k = std::max(2, k - 6);
    const int64_t modulus = c << (k - 1);
    const int64_t inverse = test::InverseModulo(a % modulus, modulus);
    const int64_t sign = i % 4 < 2 ? 1 : -1;
    const int64_t value = sign > 0 ? inverse : modulus - inverse;
    const __int128 odd = (static_cast<__int128>(value) * a - sign) / modulus;
    if (odd % 2 == 0 || odd > INT32_MAX) continue;  // the miss of an integer, not of a tie
    const auto n = static_cast<int32_t>(odd / 2);
    const auto acc = static_cast<int32_t>(value);
    const Multiplier m =
        c == 1 ? Multiplier{std::ldexp(static_cast<float>(a), -k)}
               : Multiplier{static_cast<float>(a), std::ldexp(1.0f, -k), static_cast<float>(c)};
    ++tried;
    const int expected = sign > 0 ? 101 : 100;
    const int32_t negative = -acc;
    ForEachTarget([&](const std::string&) {
      uint8_t y = 0;
      ASSERT_TRUE(Requantize({&acc, ElementType::kS32, 1, 1, 1}, {&m, 1}, 100 - n, {},
                             {&y, ElementType::kU8, 1, 1, 1})
                      .ok());
      ASSERT_EQ(y, expected) << "acc " << acc << " a " << a << " c " << c << " k " << k;
      ASSERT_TRUE(Requantize({&negative, ElementType::kS32, 1, 1, 1}, {&m, 1}, 100 + n, {},
                             {&y, ElementType::kU8, 1, 1, 1})
                      .ok());
      ASSERT_EQ(y, 200 - expected) << "acc " << negative << " a " << a << " c " << c << " k " << k;
    });
  }
  EXPECT_GT(tried, 500);
}

}  // namespace
}  // namespace qualm::kernels
