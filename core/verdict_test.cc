// SPDX-License-Identifier: Apache-2.0
#include "core/verdict.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace qualm {
namespace {

Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
}

Tensor Codes(DType dtype, const std::vector<int32_t>& values) {
  Tensor tensor(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.SetInt(static_cast<int64_t>(i), values[i]);
  return tensor;
}

TEST(Verdict, DistancesCountCodesOrFloats) {
  EXPECT_EQ(DistanceLsb(Codes(DType::kU8, {250}), Codes(DType::kU8, {3}), 0), 247);
  EXPECT_EQ(DistanceLsb(Codes(DType::kS32, {INT32_MIN}), Codes(DType::kS32, {INT32_MAX}), 0),
            0x1p32 - 1);
  EXPECT_EQ(DistanceLsb(Floats({1.0f}), Floats({std::nextafter(1.0f, 2.0f)}), 0), 1);
  EXPECT_EQ(DistanceLsb(Floats({-0.0f}), Floats({0.0f}), 0), 0) << "one number";
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(DistanceLsb(Floats({-least}), Floats({least}), 0), 2);
  EXPECT_EQ(DistanceLsb(Codes(DType::kS8, {1, -3}), 1, Codes(DType::kS8, {4, 0}), 0), 7);
}

TEST(Verdict, TheFirstDivergenceIsToldInNumbers) {
  const std::optional<Divergence> codes =
      FirstDivergence(Codes(DType::kS8, {5, -7, 9}), Codes(DType::kS8, {5, -4, 0}));
  ASSERT_TRUE(codes.has_value());
  EXPECT_EQ(codes->index, 1);
  EXPECT_EQ(codes->expected, "-7");
  EXPECT_EQ(codes->actual, "-4");
  const std::optional<Divergence> first =
      FirstDivergence(Codes(DType::kU8, {1, 2}), Codes(DType::kU8, {2, 2}));
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->index, 0);
  const std::optional<Divergence> zero = FirstDivergence(Floats({0.0f}), Floats({-0.0f}));
  ASSERT_TRUE(zero.has_value()) << "the sign of zero is part of the answer";
  EXPECT_NE(zero->expected, zero->actual);
  EXPECT_EQ(ElementText(Floats({0.5f}), 0), "0x1p-1");
  EXPECT_FALSE(FirstDivergence(Floats({0.5f}), Floats({0.5f})).has_value());
}

TEST(Verdict, EveryBitOfEveryElementCounts) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float other = std::bit_cast<float>(std::bit_cast<uint32_t>(nan) ^ 1);
  EXPECT_TRUE(FirstDivergence(Floats({nan}), Floats({other}))) << "NaN have bits too";
  EXPECT_TRUE(FirstDivergence(Floats({nan}), Floats({-nan})));
  EXPECT_FALSE(FirstDivergence(Floats({nan}), Floats({nan})));
  for (int bit = 0; bit < 32; ++bit) {
    const auto flipped = static_cast<int32_t>(uint32_t{1} << bit);
    EXPECT_TRUE(FirstDivergence(Codes(DType::kS32, {0}), Codes(DType::kS32, {flipped}))) << bit;
  }
  std::vector<int32_t> many(100'000, 7);
  const Tensor expected = Codes(DType::kS8, many);
  for (const size_t at : {size_t{0}, size_t{2000}, size_t{4096}, size_t{65'536}, many.size() - 1}) {
    std::vector<int32_t> wrong = many;
    wrong[at] = 8;
    const std::optional<Divergence> found = FirstDivergence(expected, Codes(DType::kS8, wrong));
    ASSERT_TRUE(found) << at;
    EXPECT_EQ(found->index, static_cast<int64_t>(at));
    EXPECT_EQ(found->distance_lsb, 1);
  }
}

}  // namespace
}  // namespace qualm
