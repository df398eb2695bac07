// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/exact_sum.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/common/test_support.h"

namespace qualm::kernels::internal {
namespace {

using test::Exactly;
using test::ReferenceFloat;
using test::SignOfSum;
using test::Term;

TEST(ExactSum, ToDyadicIsExact) {
  for (float v : {0.0f, -0.0f, 1.0f, -1.5f, 0x1p-149f, -0x1.8p-148f, 0x1.fffffep127f, 0x1p-126f}) {
    const Dyadic d = ToDyadic(v);
    EXPECT_EQ(std::ldexp(static_cast<double>(d.mantissa), d.exponent), static_cast<double>(v));
    EXPECT_GE(d.exponent, -149);
  }
}

TEST(ExactSum, CancelsAcrossTheWholeRange) {
  const float huge = std::numeric_limits<float>::max();
  const float tiny = std::numeric_limits<float>::denorm_min();
  const __int128 most = (static_cast<__int128>(1) << 126) + 12345;
  ExactSum sum;
  sum.AddProduct(most, huge, huge);
  EXPECT_EQ(sum.Sign(), 1);
  sum.AddProduct(1, tiny, tiny);
  sum.AddProduct(-most, huge, huge);
  EXPECT_EQ(sum.Sign(), 1);  // 2^-298 is left
  EXPECT_EQ(std::bit_cast<uint32_t>(sum.ToFloat()), 0u);
  sum.AddProduct(-2, tiny, tiny);
  EXPECT_EQ(sum.Sign(), -1);
  EXPECT_EQ(std::bit_cast<uint32_t>(sum.ToFloat()), 0x80000000u);  // rounds to -0
  sum.AddProduct(1, tiny, tiny);
  EXPECT_EQ(sum.Sign(), 0);
  EXPECT_EQ(std::bit_cast<uint32_t>(sum.ToFloat()), 0u);
}

TEST(ExactSum, RoundsHalfToEven) {
  const auto round = [](int64_t halves, float unit) {
    ExactSum sum;
    sum.AddHalves(halves, unit);
    return sum.ToFloat();
  };
  EXPECT_EQ(round(2 * 16777217, 1.0f), 16777216.0f);  // 2^24 + 1: tie to even, down
  EXPECT_EQ(round(2 * 16777219, 1.0f), 16777220.0f);  // tie to even, up
  EXPECT_EQ(round(2 * 33554431, 1.0f), 33554432.0f);  // carries into the next binade
  EXPECT_EQ(round(1, 0x1p-149f), 0.0f);
  EXPECT_EQ(round(3, 0x1p-149f), 0x1p-148f);
  EXPECT_EQ(round(-3, 0x1p-149f), -0x1p-148f);
  EXPECT_EQ(round(2, 0x1.fffffep127f), 0x1.fffffep127f);
  EXPECT_EQ(round(3, 0x1.fffffep127f), INFINITY);
  EXPECT_EQ(round(-4, 0x1.fffffep127f), -INFINITY);
}

TEST(ExactSum, AgreesWithBigIntegers) {
  test::Random random(1);
  for (int i = 0; i < 3000; ++i) {
    const int spread = i % 3 == 0 ? 120 : 10;
    const float a = random.Scale(-spread, spread);
    const float b = random.Scale(-spread, spread);
    const auto s = static_cast<int64_t>(random.Next()) >> random.Between(0, 60);
    // Next to minus the product, so that the sum cancels.
    const float near = static_cast<float>(-static_cast<double>(s) * a * b);
    const float c = std::isfinite(near) && near != 0 && i % 2 ? near : -random.Scale(-120, 120);
    const int64_t halves = random.Between(1, 4);
    ExactSum sum;
    sum.AddProduct(s, a, b);
    sum.AddHalves(halves, c);
    const Term da = Exactly(a);
    const Term db = Exactly(b);
    const Term dc = Exactly(c);
    const std::vector<Term> terms = {{s * da.mantissa * db.mantissa, da.exponent + db.exponent},
                                     {halves * dc.mantissa, dc.exponent - 1}};
    ASSERT_EQ(sum.Sign(), SignOfSum(terms)) << i;
    ASSERT_EQ(std::bit_cast<uint32_t>(sum.ToFloat()),
              std::bit_cast<uint32_t>(ReferenceFloat(terms)))
        << i;
  }
}

}  // namespace
}  // namespace qualm::kernels::internal
