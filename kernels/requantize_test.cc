// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/common/rescale.h"
#include "kernels/common/test_support.h"
#include "kernels/elementwise.h"

namespace qualm::kernels {
namespace {

using test::Exactly;
using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;
using test::Term;

struct Output {
  ElementType type;
  int32_t zero_point;
  OutputRange range;
  int32_t lo, hi;  // what type and range amount to
};

const std::vector<Output>& Outputs() {
  static const std::vector<Output> outputs = {
      {ElementType::kU8, 113, {}, 0, 255},
      {ElementType::kS8, -5, {}, -128, 127},
      {ElementType::kU8, 0, {}, 0, 255},
      {ElementType::kU8, 128, {.min = 7, .max = 200, .relu = true}, 128, 200},
      {ElementType::kU8, 220, {.max = 200, .relu = true}, 200, 200},
      {ElementType::kS8, -300, {.relu = true}, -128, 127},
      {ElementType::kU8, 70000, {}, 0, 255},
      {ElementType::kU8, INT32_MIN, {}, 0, 255},
      {ElementType::kS8, INT32_MAX, {}, -128, 127},
  };
  return outputs;
}

int32_t Reference(int32_t acc, const Multiplier& m, const Output& o) {
  const Term scaled{acc * (Exactly(m.numerator_a) * Exactly(m.numerator_b)).mantissa,
                    (Exactly(m.numerator_a) * Exactly(m.numerator_b)).exponent};
  const Term denominator = Exactly(m.denominator);
  return test::ReferenceCode({scaled}, {denominator.mantissa * m.divisor, denominator.exponent},
                             o.zero_point, o.lo, o.hi);
}

int32_t Code(uint8_t byte, ElementType type) {
  return type == ElementType::kS8 ? static_cast<int8_t>(byte) : byte;
}

std::vector<Multiplier> Multipliers() {
  std::vector<Multiplier> m = {
      // Plain float32, through every path: at and next to the limit of the float32 path, short and
      // full mantissas, tiny and huge.
      {1.0f},
      {0x1p-8f},
      {0x1p-13f},
      {0x1p-20f},
      {0x1p-30f},
      {0.1f},
      {3.7f},
      {1.3e-3f},
      {1.7e-7f},
      {200.5f * 0x1p-24f},
      {256.5f * 0x1p-24f},
      {256.49997f * 0x1p-24f},
      {255.4f},
      {1e6f},
      {1e-30f},
      {0x1p-149f},
      {0x1.fffffep127f},
      {0x1.fffffep-9f},
      {0x1.fffff8p-9f},
      {0x1.fffffcp-9f},
      // Quotients: with ties and without, exact and not, extreme.
      {5, 1, 6},
      {1, 1, 6},
      {1, 1, 3},
      {1, 1, 12288},
      {7, 1, 3072},
      {1, 3, 10485760},
      {7, 1, 3},
      {0.1f, 0.1f, 0.1f},
      {0.02f, 0.003f, 0.05f},
      {0.02f, 0.003f, 0.0078125f},
      {511, 1, 16777215},
      {0x1p-149f, 3, 0x1.8p-130f},
      {0x1p100f, 0x1.9p20f, 0x1.7p126f},
      {255, 255, 0x1.fffffep33f},
      {0x1.fffffep127f, 0x1.fffffep127f, 0x1p-149f},
      {0x1p-149f, 0x1p-149f, 0x1.fffffep127f},
      {0x1.fffffep127f, 0x1p-149f, 0x1.2p-22f},
      {16777213, 16777215, 0x1.fffffap47f},
      // Means: with ties, without, of more elements than the denominator times it can tell.
      {1, 1, 1, 6},
      {1, 1, 1, 49},
      {0.02f, 1, 0.03f, 9},
      {3, 1, 0x1.000002p0f, 0x1FFFFFFF},
      {0x1p20f, 1, 0x1.fffffep0f, (int64_t{1} << 40) + 1},
      {0x1p40f, 0x1.234568p0f, 3, (int64_t{1} << 53) - 1},
  };
  Random random(17);
  for (int i = 0; i < 12; ++i) {
    const int e = static_cast<int>(random.Between(-24, 0));
    m.push_back({random.Scale(-6, -6), random.Scale(-7, -7), random.Scale(-13 - e, -13 - e)});
  }
  return m;
}

// Both sides of many steps, the ends of int32, random values.
std::vector<int32_t> Accumulators(const Multiplier& m, const Output& o, uint64_t seed) {
  std::vector<int32_t> acc = {0,         1,        -1,       INT32_MIN, INT32_MIN + 1,
                              INT32_MAX, 16777216, 16777217, -16777217, 33554435};
  Random random(seed);
  const double multiplier =
      double{m.numerator_a} * m.numerator_b / m.denominator / static_cast<double>(m.divisor);
  for (int i = 0; i < 20; ++i) {
    const int64_t lo = int64_t{o.lo} - o.zero_point;
    const int64_t hi = int64_t{o.hi} - o.zero_point;
    const int64_t n = i == 0 ? lo - 1 : i == 1 ? hi : random.Between(lo - 1, hi);
    const double tie = (static_cast<double>(n) + 0.5) / multiplier;
    if (std::fabs(tie) > 2147483000.0) continue;
    for (int k = -2; k <= 2; ++k) acc.push_back(static_cast<int32_t>(std::nearbyint(tie)) + k);
  }
  for (int i = 0; i < 12; ++i) {
    acc.push_back(static_cast<int32_t>(random.Next()) >> random.Between(0, 31));
  }
  return acc;
}

TEST(Requantize, IsExactForHardMultipliersAndZeroPoints) {
  uint64_t seed = 0;
  for (const Multiplier& m : Multipliers()) {
    for (const Output& o : Outputs()) {
      const std::vector<int32_t> acc = Accumulators(m, o, ++seed);
      std::vector<int32_t> expected;
      for (const int32_t a : acc) expected.push_back(Reference(a, m, o));
      const auto n = static_cast<int64_t>(acc.size());
      ForEachTarget([&](const std::string&) {
        std::vector<uint8_t> y(acc.size());
        ASSERT_EQ(Requantize({acc.data(), ElementType::kS32, 1, n, n}, {&m, 1}, o.zero_point,
                             o.range, {y.data(), o.type, 1, n, n})
                      .error,
                  "");
        for (size_t i = 0; i < acc.size(); ++i) {
          ASSERT_EQ(Code(y[i], o.type), expected[i])
              << "acc " << acc[i] << " zero point " << o.zero_point << " multiplier "
              << std::hexfloat << m.numerator_a << " * " << m.numerator_b << " / " << m.denominator
              << " / " << m.divisor;
        }
      });
    }
  }
}

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

TEST(Requantize, AllTiesGoToEven) {
  for (const float denominator : {2.0f, 6.0f, 14.0f, 512.0f, 24576.0f}) {
    const Multiplier m{1, 1, denominator};
    std::vector<int32_t> acc;
    for (int i = -129; i < 129; ++i) {
      acc.push_back(i * static_cast<int32_t>(denominator) + static_cast<int32_t>(denominator) / 2);
    }
    const auto n = static_cast<int64_t>(acc.size());
    ForEachTarget([&](const std::string&) {
      std::vector<int8_t> y(acc.size());
      ASSERT_TRUE(Requantize({acc.data(), ElementType::kS32, 1, n, n}, {&m, 1}, 0, {},
                             {y.data(), ElementType::kS8, 1, n, n})
                      .ok());
      for (int i = -129; i < 129; ++i) {
        const int even = i % 2 == 0 ? i : i + 1;
        ASSERT_EQ(y[static_cast<size_t>(i + 129)], std::min(std::max(even, -128), 127)) << i;
      }
    });
  }
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

TEST(Requantize, TouchesOnlyTheGivenElements) {
  Random random(3);
  // One kind of multiplier for each path.
  const auto draw = [&](int kind) {
    return kind == 0   ? Multiplier{random.Scale(-8, -5)}
           : kind == 1 ? Multiplier{random.Scale(-8, -5), random.Scale(0, 0)}
                       : Multiplier{random.Scale(-8, -5), 1, random.Scale(0, 0)};
  };
  for (size_t columns = 1; columns <= 70; ++columns) {
    for (int kind = 0; kind < 6; ++kind) {
      const bool per_column = kind >= 3;
      const size_t rows = columns % 3 + 1;
      const size_t stride = columns + columns % 5;
      const size_t size = (rows - 1) * stride + columns;
      std::vector<Multiplier> multipliers;
      for (size_t j = 0; j < (per_column ? columns : 1); ++j) multipliers.push_back(draw(kind % 3));
      std::vector<int32_t> values(size);
      for (int32_t& v : values) v = static_cast<int32_t>(random.Between(-9999, 9999));
      const Output o{ElementType::kU8, 100, {}, 0, 255};
      for (const bool at_start : {false, true}) {
        GuardedBuffer<int32_t> acc(size, at_start);
        GuardedBuffer<uint8_t> y(size, at_start);
        acc.Assign(values);
        ForEachTarget([&](const std::string&) {
          std::fill_n(y.data(), size, uint8_t{0xA5});
          ASSERT_TRUE(
              Requantize(
                  {acc.data(), ElementType::kS32, int64_t(rows), int64_t(columns), int64_t(stride)},
                  multipliers, o.zero_point, o.range,
                  {y.data(), o.type, int64_t(rows), int64_t(columns), int64_t(stride)})
                  .ok());
          for (size_t i = 0; i < size; ++i) {
            const size_t j = i % stride;
            const int32_t expected =
                j >= columns ? 0xA5 : Reference(values[i], multipliers[per_column ? j : 0], o);
            ASSERT_EQ(y[i], expected) << columns << " columns, element " << i;
            ASSERT_EQ(acc[i], values[i]);
          }
        });
      }
    }
  }
}

TEST(Requantize, WorksInPlace) {
  for (const Multiplier& m : {Multiplier{0.05f}, Multiplier{1, 1, 6}}) {
    std::vector<int32_t> acc(131);
    for (size_t i = 0; i < acc.size(); ++i) acc[i] = static_cast<int32_t>(i * 3) - 200;
    const auto n = static_cast<int64_t>(acc.size());
    std::vector<uint8_t> expected(acc.size());
    ASSERT_TRUE(Requantize({acc.data(), ElementType::kS32, 1, n, n}, {&m, 1}, 100, {},
                           {expected.data(), ElementType::kU8, 1, n, n})
                    .ok());
    ForEachTarget([&](const std::string&) {
      std::vector<int32_t> buffer = acc;
      ASSERT_TRUE(Requantize({buffer.data(), ElementType::kS32, 1, n, n}, {&m, 1}, 100, {},
                             {buffer.data(), ElementType::kU8, 1, n, n})
                      .ok());
      ASSERT_EQ(std::memcmp(buffer.data(), expected.data(), expected.size()), 0);
    });
  }
}

}  // namespace
}  // namespace qualm::kernels
