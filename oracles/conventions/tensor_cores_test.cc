// SPDX-License-Identifier: Apache-2.0
// Fused sums by hand. The recordings of real instructions are in corpus/golden (golden_judge_test).
#include "oracles/conventions/tensor_cores.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/float_format.h"

namespace qualm::conventions {
namespace {

constexpr FusedSum kFloat8{.terms = 32, .fraction_bits = 13, .result = FusedSum::Result::kF32Of14};

uint32_t F32(float value) { return std::bit_cast<uint32_t>(value); }

std::vector<uint32_t> Codes(DType dtype, const std::vector<double>& values) {
  std::vector<uint32_t> codes;
  for (const double value : values) codes.push_back(EncodeFloat(dtype, value));
  return codes;
}

// The sum of a[k] * b[k] and c.
float Sum(const FusedSum& sum, DType dtype, const std::vector<double>& a,
          const std::vector<double>& b, float c = 0) {
  const TensorCoreType type{InfoOf(dtype).floating};
  return std::bit_cast<float>(Chain(sum, type, Codes(dtype, a), type, Codes(dtype, b), F32(c)));
}

TEST(TensorCores, TermsAreCutBelowTheLargest) {
  // 2^-13 lies on the last bit that a fused sum of float8 keeps beside 1, 2^-14 below it.
  const auto beside_one = [](double exponent_halves) {
    return Sum(kFloat8, DType::kF8E5M2, {1, exponent_halves}, {1, 0x1p-7});
  };
  EXPECT_EQ(beside_one(0x1p-6), 1 + 0x1p-13f);
  EXPECT_EQ(beside_one(0x1p-7), 1);
  EXPECT_EQ(beside_one(-0x1p-7), 1) << "cut towards zero, not down";
  EXPECT_EQ(Sum({}, DType::kF16, {1, 0x1p-7}, {1, 0x1p-7}), 1 + 0x1p-14f) << "25 bits of f16";
}

TEST(TensorCores, Float8LosesBitsOfTheAddendToo) {
  EXPECT_EQ(Sum(kFloat8, DType::kF8E4M3FN, {0}, {0}, 1 + 0x1p-14f), 1);
  EXPECT_EQ(Sum(kFloat8, DType::kF8E4M3FN, {0}, {0}, 1 + 0x1p-13f), 1 + 0x1p-13f);
  EXPECT_EQ(Sum({}, DType::kF16, {0}, {0}, 1 + 0x1p-23f), 1 + 0x1p-23f);
  // Through f16 the addend stays outside, and is added to nearest.
  const std::vector<uint32_t> one = Codes(DType::kF8E4M3FN, std::vector<double>(32, 0.0));
  EXPECT_EQ(Float8ByF16(false, DType::kF8E4M3FN, one, DType::kF8E4M3FN, one, F32(1 + 0x1p-23f)),
            F32(1 + 0x1p-23f));
}

TEST(TensorCores, ALongProductIsAChain) {
  // Beside 2^25 a fused sum keeps units of 1, so that its 16 ones count; its result keeps units of
  // 4, so that the one of the next sum is lost.
  std::vector<double> a(17, 1.0), b(17, 1.0);
  EXPECT_EQ(Sum({}, DType::kBF16, a, b, 0x1p25f), 0x1p25f + 16);
  a[16] = 0x1p-20;
  EXPECT_EQ(Sum({}, DType::kBF16, a, b), 16 + 0x1p-20f);
}

TEST(TensorCores, SpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Sum({}, DType::kF16, {infinity}, {1}), infinity);
  EXPECT_EQ(Sum({}, DType::kF16, {-infinity}, {1}), -infinity);
  for (const auto& [a, b] : {std::pair<double, double>{infinity, 0}, {NAN, 1}}) {
    EXPECT_EQ(F32(Sum({}, DType::kF16, {a}, {b})), 0x7FFFFFFFu);
  }
  EXPECT_EQ(F32(Sum({}, DType::kF16, {infinity, infinity}, {1, -1})), 0x7FFFFFFFu);
  EXPECT_EQ(F32(Sum({}, DType::kF16, {-0.0}, {1}, -0.0f)), 0u) << "a zero is +0";
  EXPECT_EQ(Sum({}, DType::kBF16, {0x1p127}, {0x1p127}), infinity);
  EXPECT_EQ(Sum({}, DType::kBF16, {0x1p-80}, {0x1p-69}), 0x1p-149f) << "nothing is flushed";
}

TEST(TensorCores, Tf32ReadsTheUpperBits) {
  const std::array<uint32_t, 1> a{F32(1 + 0x1p-11f)}, b{F32(1)};
  EXPECT_EQ(Chain({.terms = 8}, kTf32, a, kTf32, b, 0), F32(1));
}

TEST(TensorCores, IntegersWrapOrSaturate) {
  const std::array<int64_t, 1> a{127}, b{127};
  const int64_t most = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(IntegerSum(a, b, most, true), most);
  EXPECT_EQ(IntegerSum(a, b, most, false), std::numeric_limits<int32_t>::min() + 127 * 127 - 1);
}

TEST(TensorCores, PromotionAddsInFloat32) {
  const TensorCoreType type{InfoOf(DType::kF8E4M3FN).floating};
  // 256 beside 1: one chain of float8 loses 2^-6 products, chains of 32 keep them.
  std::vector<double> a(64, 0.0), b(64, 0.0);
  a[0] = b[0] = 256;
  a[40] = b[40] = 0.25;
  const std::vector<uint32_t> x = Codes(DType::kF8E4M3FN, a), y = Codes(DType::kF8E4M3FN, b);
  EXPECT_EQ(Promoted(kFloat8, 0, type, x, type, y), 0x1p16f);
  EXPECT_EQ(Promoted(kFloat8, 32, type, x, type, y), 0x1p16f + 0.0625f);
}

}  // namespace
}  // namespace qualm::conventions
