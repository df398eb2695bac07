// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <limits>

namespace qualm {
namespace {

TEST(ElementCount, NeverOverflows) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_EQ(ElementCount(std::array<int64_t, 2>{3, 4}, 12), 12);
  EXPECT_EQ(ElementCount(std::array<int64_t, 2>{3, 4}, 11), -1);
  EXPECT_EQ(ElementCount(std::array<int64_t, 3>{kHuge, kHuge, kHuge}, kHuge), -1);
  EXPECT_EQ(ElementCount(std::array<int64_t, 3>{kHuge, kHuge, 0}, 10), 0);
  EXPECT_EQ(ElementCount(std::array<int64_t, 2>{-1, 4}, 12), -1);
  EXPECT_EQ(ElementCount(std::span<const int64_t>(), 12), 1);
}

TEST(Tensor, HoldsEachType) {
  for (const DType dtype : {DType::kU8, DType::kS8, DType::kS32}) {
    Tensor tensor(dtype, {1, 3});
    EXPECT_EQ(tensor.bytes().size(), 3 * SizeOf(dtype));
    const CodeRange range = RangeOf(dtype);
    tensor.SetInt(1, range.min);
    tensor.SetInt(2, range.max);
    EXPECT_EQ(tensor.IntAt(0), 0);
    EXPECT_EQ(tensor.IntAt(1), range.min);
    EXPECT_EQ(tensor.IntAt(2), range.max);
    EXPECT_EQ(tensor.BitsAt(1), static_cast<uint32_t>(range.min));
  }
  const std::array<float, 2> reals{-0.0f, std::numeric_limits<float>::infinity()};
  const Tensor tensor = Tensor::Of<float>({2}, reals);
  EXPECT_EQ(tensor.BitsAt(0), 0x80000000u);
  EXPECT_EQ(tensor.FloatAt(1), reals[1]);
}

TEST(Tensor, PacksFourBits) {
  for (const DType dtype : {DType::kU4, DType::kS4}) {
    const CodeRange range = RangeOf(dtype);
    Tensor tensor(dtype, {1, 5});
    EXPECT_EQ(tensor.bytes().size(), 3u);
    for (int64_t i = 0; i < 5; ++i) tensor.SetInt(i, i % 2 == 0 ? range.min : range.max);
    for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(tensor.IntAt(i), i % 2 == 0 ? range.min : range.max);
    tensor.SetInt(1, 3);  // beside neighbours that stay
    EXPECT_EQ(tensor.IntAt(0), range.min);
    EXPECT_EQ(tensor.IntAt(1), 3);
    EXPECT_EQ(tensor.IntAt(2), range.min);
    // The even element in the low half; the unused half of the last byte is 0.
    EXPECT_EQ(tensor.bytes()[0], 3 << 4 | (range.min & 0xF));
    EXPECT_EQ(tensor.bytes()[2] >> 4, 0);
  }
}

TEST(Tensor, VisitsElementsByType) {
  const std::array<int8_t, 3> codes{-128, 0, 127};
  const Tensor tensor = Tensor::Of<int8_t>({3}, codes);
  const int64_t sum = tensor.VisitElements([](auto elements) {
    int64_t total = 0;
    for (const auto element : elements) total += static_cast<int64_t>(element);
    return total;
  });
  EXPECT_EQ(sum, -1);
}

TEST(Tensor, EqualityIsOfBits) {
  const float nan = std::bit_cast<float>(0x7FC00001u);
  const std::array<float, 1> plus{0.0f}, minus{-0.0f}, a{nan}, b{std::bit_cast<float>(0x7FC00002u)};
  EXPECT_FALSE(Tensor::Of<float>({1}, plus) == Tensor::Of<float>({1}, minus));
  EXPECT_TRUE(Tensor::Of<float>({1}, a) == Tensor::Of<float>({1}, a));
  EXPECT_FALSE(Tensor::Of<float>({1}, a) == Tensor::Of<float>({1}, b));
  EXPECT_FALSE(Tensor(DType::kU8, {0, 2}) == Tensor(DType::kU8, {2, 0}));
  EXPECT_FALSE(Tensor(DType::kU8, {1}) == Tensor(DType::kS8, {1}));
}

using TensorDeath = testing::Test;

TEST(TensorDeath, MistakesOfOursAbort) {
  Tensor tensor(DType::kU8, {1});
  EXPECT_DEATH(tensor.SetInt(0, 256), "internal check failed.*255 vs 256|range.max");
  EXPECT_DEATH(tensor.as<float>(), "internal check failed");
  EXPECT_DEATH(Tensor(DType::kU8, {-1}), "internal check failed");
}

}  // namespace
}  // namespace qualm
