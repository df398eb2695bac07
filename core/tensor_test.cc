// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "core/rng.h"

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
  for (const DType dtype : {DType::kU8, DType::kS8, DType::kU16, DType::kS16, DType::kS32}) {
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

// Any type: random codes, some of them set again, beside neighbours that stay.
TEST(Tensor, PacksEveryType) {
  for (const DTypeRow& row : kDTypeRows) {
    if (row.dtype == DType::kF32) continue;
    Rng rng(7);
    Tensor tensor(row.dtype, {1, 13});
    EXPECT_EQ(tensor.bytes().size(), static_cast<size_t>(13 * row.bits + 7) / 8) << row.name;
    std::vector<int32_t> codes(13);
    for (int step = 0; step < 200; ++step) {
      const size_t at = rng.Below(codes.size());
      codes[at] = static_cast<int32_t>(rng.Between(row.range.min, row.range.max));
      tensor.SetInt(static_cast<int64_t>(at), codes[at]);
      for (size_t i = 0; i < codes.size(); ++i)
        ASSERT_EQ(tensor.IntAt(static_cast<int64_t>(i)), codes[i]) << row.name << " " << i;
    }
    Tensor moved(row.dtype, {13});
    moved.CopyFrom(tensor, 4, 9, 1);
    for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(moved.BitsAt(i + 1), tensor.BitsAt(i + 4));
    EXPECT_EQ(moved.BitsAt(0), 0u);
    EXPECT_EQ(moved.BitsAt(10), 0u);
  }
}

TEST(Tensor, AcceptsAnyNanWhereItSaysSo) {
  Tensor right(DType::kF8E5M2, {2}), given(DType::kF8E5M2, {2});
  right.SetBits(0, 0x7E);
  given.SetBits(0, 0xFD);
  EXPECT_FALSE(right == given);
  right.AcceptAnyNan();
  EXPECT_TRUE(right == given);
  EXPECT_TRUE(given == right);
  EXPECT_TRUE(given.SameAt(0, right));
  given.SetBits(1, 0x7E);  // where a number is right
  EXPECT_FALSE(right == given);
  EXPECT_FALSE(given.SameAt(1, right));
  given.SetBits(1, 0);
  given.SetBits(0, 0x7C);  // infinity
  EXPECT_FALSE(right == given);
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

TEST(Tensor, CopiesAreValues) {
  const std::array<uint8_t, 3> codes{1, 2, 3};
  const Tensor first = Tensor::Of<uint8_t>({3}, codes);
  Tensor set = first, viewed = first, seen = first;
  set.SetInt(0, 9);
  viewed.as<uint8_t>()[1] = 9;
  seen.bytes()[2] = 9;
  Tensor again = seen;
  seen.SetInt(0, 8);
  EXPECT_EQ(first, Tensor::Of<uint8_t>({3}, codes));
  EXPECT_EQ(set, Tensor::Of<uint8_t>({3}, std::array<uint8_t, 3>{9, 2, 3}));
  EXPECT_EQ(viewed, Tensor::Of<uint8_t>({3}, std::array<uint8_t, 3>{1, 9, 3}));
  EXPECT_EQ(again, Tensor::Of<uint8_t>({3}, std::array<uint8_t, 3>{1, 2, 9}));
  EXPECT_EQ(seen, Tensor::Of<uint8_t>({3}, std::array<uint8_t, 3>{8, 2, 9}));
  Tensor packed(DType::kU4, {4});
  const Tensor zeros = packed;
  packed.SetInt(3, 15);
  EXPECT_EQ(zeros, Tensor(DType::kU4, {4}));

  Tensor moved = std::move(again);
  EXPECT_EQ(again, Tensor());  // NOLINT(bugprone-use-after-move)
  again = moved;
  Tensor& itself = again;
  again = itself;
  EXPECT_EQ(again, moved);
  EXPECT_EQ(Tensor(), Tensor(DType::kU8, {0}));
  EXPECT_EQ(Tensor().shape(), std::vector<int64_t>{0});
}

// The sanitizer of threads judges this one.
TEST(Tensor, ThreadsCopyAndWriteTheirCopies) {
  Tensor shared(DType::kS32, {64});
  for (int round = 0; round < 100; ++round) {
    std::vector<std::jthread> threads;
    std::array<Tensor, 3> own;
    for (size_t i = 0; i < own.size(); ++i) {
      threads.emplace_back([i, &own, copy = shared]() mutable {
        const Tensor before = copy;
        copy.SetInt(0, copy.IntAt(0) + static_cast<int32_t>(i) + 1);
        own[i] = std::move(copy);
        EXPECT_EQ(before.IntAt(1), 0);
      });
    }
    threads.clear();
    for (size_t i = 0; i < own.size(); ++i)
      EXPECT_EQ(own[i].IntAt(0), shared.IntAt(0) + static_cast<int32_t>(i) + 1);
    shared.SetInt(0, round);
  }
}

TEST(OtherSign, HasTheSameBytes) {
  Tensor u8(DType::kU8, {2});
  u8.SetInt(0, 200), u8.SetInt(1, 3);
  const Tensor s8 = OtherSign(u8);
  EXPECT_EQ(s8.dtype(), DType::kS8);
  EXPECT_EQ(s8.IntAt(0), -56);
  EXPECT_EQ(s8.IntAt(1), 3);
  EXPECT_EQ(OtherSign(s8), u8);
}

TEST(InBytes, HasTheSameNumbers) {
  for (const DType dtype : {DType::kS4, DType::kU4, DType::kS2, DType::kU2}) {
    const CodeRange range = RangeOf(dtype);
    Tensor codes(dtype, {3, 5});
    for (int64_t i = 0; i < codes.size(); ++i)
      codes.SetInt(i, range.min + static_cast<int32_t>(i) % (range.max - range.min + 1));
    const Tensor wide = InBytes(codes);
    EXPECT_EQ(wide.dtype(), range.min < 0 ? DType::kS8 : DType::kU8);
    EXPECT_EQ(wide.shape(), codes.shape());
    for (int64_t i = 0; i < codes.size(); ++i) EXPECT_EQ(wide.IntAt(i), codes.IntAt(i)) << i;
    EXPECT_EQ(InBytes(wide), wide);
    EXPECT_EQ(OtherSign(OtherSign(codes)), codes);
  }
  EXPECT_EQ(InBytes(Tensor(DType::kF4E2M1FN, {3})).dtype(), DType::kF4E2M1FN);
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
