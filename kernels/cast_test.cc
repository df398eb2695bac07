// SPDX-License-Identifier: Apache-2.0
// What the harness does not ask of the kernel: arguments that are wrong, and bytes beside the
// output. Its numbers are judged by `qualm check --op cast`; a few stand here by hand, on every
// target.
#include "kernels/cast.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/targets.h"

namespace qualm::kernels {
namespace {

constexpr FloatType kF32;
constexpr FloatType kF16{16, 5, 10, 15};
constexpr FloatType kBF16{16, 8, 7, 127};
constexpr FloatType kE4M3{8, 4, 3, 7, FloatEnds::kAllOnes};
constexpr FloatType kE5M2{8, 5, 2, 15};
constexpr FloatType kE4M3Fnuz{8, 4, 3, 8, FloatEnds::kMinusZero};
constexpr FloatType kE3M2{6, 3, 2, 3, FloatEnds::kFinite};
constexpr FloatType kE8M0{8, 8, 0, 127, FloatEnds::kAllOnes, false};
constexpr auto kEven = CastRounding::kNearestEven;
constexpr auto kInfinity = CastOverflow::kInfinity;

uint32_t CastOne(const FloatType& from, uint32_t code, const FloatType& to,
                 CastRounding rounding = kEven, CastOverflow overflow = kInfinity) {
  uint32_t y = 0;
  EXPECT_TRUE(Cast({&code, from, 1, 1, 1}, rounding, overflow, {&y, to, 1, 1, 1}).ok());
  return y;
}
uint32_t FromFloat(float x, const FloatType& to, CastRounding rounding = kEven,
                   CastOverflow overflow = kInfinity) {
  return CastOne(kF32, std::bit_cast<uint32_t>(x), to, rounding, overflow);
}

TEST(Cast, ByHandOnEveryTarget) {
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    SCOPED_TRACE(target);
    EXPECT_EQ(FromFloat(464, kE4M3), 0x7Eu);
    EXPECT_EQ(FromFloat(0x1.d00002p8f, kE4M3), 0x7Fu);
    EXPECT_EQ(FromFloat(-0x1.d00002p8f, kE4M3, kEven, CastOverflow::kSaturate), 0xFEu);
    EXPECT_EQ(FromFloat(500, kE4M3, CastRounding::kTowardZero), 0x7Eu);
    EXPECT_EQ(FromFloat(-500, kE4M3, CastRounding::kUp), 0xFEu);
    EXPECT_EQ(FromFloat(61440, kE5M2), 0x7Cu);
    EXPECT_EQ(FromFloat(61440, kE5M2, kEven, CastOverflow::kNan), 0x7Eu);
    EXPECT_EQ(FromFloat(0x1p-17f, kE5M2), 0u);  // half of the smallest
    EXPECT_EQ(FromFloat(-0x1.000002p-17f, kE5M2), 0x81u);
    EXPECT_EQ(FromFloat(-0x1p-30f, kE4M3Fnuz), 0u);
    EXPECT_EQ(FromFloat(0x1p-140f, kBF16), 0u);
    EXPECT_EQ(FromFloat(0x1.8p-133f, kBF16), 2u);
    EXPECT_EQ(FromFloat(1.5f, kE8M0), 0x80u);
    EXPECT_EQ(FromFloat(0x1p-149f, kE8M0), 0u);
    EXPECT_EQ(FromFloat(0, kE8M0), 0xFFu);
    EXPECT_EQ(FromFloat(0x1.fffffep127f, kF32, kEven, CastOverflow::kSaturate), 0x7F7FFFFFu);
    EXPECT_EQ(CastOne(kF16, 1, kF32), 0x33800000u);
    EXPECT_EQ(CastOne(kF16, 0xFC00, kF32), 0xFF800000u);
    EXPECT_EQ(CastOne(kF16, 0x7C01, kF32), 0x7FC00000u);
    EXPECT_EQ(CastOne(kE8M0, 0, kF32), 0x00400000u);
    EXPECT_EQ(CastOne(kE3M2, 0x3F, kBF16), 0xC1E0u);
  }
}

// Rows of one element are cast one by one, a long row by vectors: the numbers are the same. Inputs
// are every code of f16 and bf16, and of f32 those at and beside them, so that every value of each
// type is there with its neighbours, and the middles between values of 8 bits.
TEST(Cast, VectorsGiveWhatSingleElementsGive) {
  std::vector<uint32_t> of_f32;
  std::vector<uint32_t> of_16_bits;
  for (uint32_t high = 0; high < 1 << 16; ++high) {
    of_16_bits.push_back(high);
    for (const uint32_t low : {0x0000u, 0x0001u, 0x8000u, 0xFFFFu})
      of_f32.push_back(high << 16 | low);
  }
  std::vector<uint16_t> halves(of_16_bits.begin(), of_16_bits.end());
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  const auto cast = [](const FloatType& from, const void* x, int64_t count, const FloatType& to,
                       CastRounding rounding, CastOverflow overflow, bool one_by_one) {
    const int64_t rows = one_by_one ? count : 1, columns = one_by_one ? 1 : count;
    std::vector<uint8_t> y(static_cast<size_t>(2 * count * to.bits / 8));
    EXPECT_TRUE(Cast({x, from, rows, columns, columns}, rounding, overflow,
                     {y.data(), to, rows, columns, one_by_one ? 2 : count})
                    .ok());
    if (!one_by_one) return std::vector<uint8_t>(y.begin(), y.begin() + count * to.bits / 8);
    std::vector<uint8_t> dense;
    const size_t size = static_cast<size_t>(to.bits) / 8;
    for (size_t i = 0; i < y.size(); i += 2 * size) dense.insert(dense.end(), &y[i], &y[i] + size);
    return dense;
  };
  struct Input {
    FloatType type;
    const void* data;
    int64_t count;
  };
  const Input inputs[] = {{kF32, of_f32.data(), std::ssize(of_f32)},
                          {kF16, halves.data(), std::ssize(halves)},
                          {kBF16, halves.data(), std::ssize(halves)},
                          {kE4M3, bytes.data(), 256},
                          {kE5M2, bytes.data(), 256},
                          {kE4M3Fnuz, bytes.data(), 256},
                          {kE8M0, bytes.data(), 256}};
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    for (const Input& from : inputs) {
      for (const FloatType& to : {kF32, kF16, kBF16, kE4M3, kE5M2, kE4M3Fnuz, kE8M0}) {
        for (const CastOverflow overflow :
             {CastOverflow::kInfinity, CastOverflow::kSaturate, CastOverflow::kNan}) {
          const auto of = [&](bool one_by_one) {
            return cast(from.type, from.data, from.count, to, kEven, overflow, one_by_one);
          };
          ASSERT_EQ(of(false), of(true))
              << target << " from " << from.type.exponent_bits << " and " << from.type.fraction_bits
              << " bits to " << to.exponent_bits << " and " << to.fraction_bits << ", overflow "
              << static_cast<int>(overflow);
        }
      }
    }
  }
}

// Three rows of 3 codes of 6 bits are 54 bits: 7 bytes, the last two bits 0, and nothing behind.
TEST(Cast, PacksWithoutAGap) {
  std::vector<float> x(9, 28.0f);
  std::array<uint8_t, 8> y{};
  y.fill(0xAA);
  ASSERT_TRUE(Cast({x.data(), kF32, 3, 3, 3}, kEven, kInfinity, {y.data(), kE3M2, 3, 3, 3}).ok());
  EXPECT_EQ(y, (std::array<uint8_t, 8>{0xDF, 0xF7, 0x7D, 0xDF, 0xF7, 0x7D, 0x1F, 0xAA}));
  std::vector<float> back(9);
  ASSERT_TRUE(
      Cast({y.data(), kE3M2, 3, 3, 3}, kEven, kInfinity, {back.data(), kF32, 3, 3, 3}).ok());
  EXPECT_EQ(back, x);
}

TEST(Cast, LeavesGapsBetweenRows) {
  const std::vector<float> x(6, 1.0f);
  std::array<uint8_t, 7> y{};
  ASSERT_TRUE(Cast({x.data(), kF32, 2, 3, 3}, kEven, kInfinity, {y.data(), kE4M3, 2, 3, 4}).ok());
  EXPECT_EQ(y, (std::array<uint8_t, 7>{0x38, 0x38, 0x38, 0, 0x38, 0x38, 0x38}));
}

TEST(Cast, RefusesWhatIsWrong) {
  float x = 0;
  uint8_t y = 0;
  const auto error = [&](ConstFloats from, MutableFloats to) {
    return Cast(from, kEven, kInfinity, to).error;
  };
  EXPECT_EQ(error({&x, kF32, 1, 1, 1}, {&y, kE4M3, 1, 2, 2}), "y has another shape than x");
  EXPECT_EQ(error({&x, kF32, 1, 2, 1}, {&y, kE4M3, 1, 2, 2}),
            "x.row_stride is less than its columns");
  EXPECT_EQ(error({&x, kF32, -1, 1, 1}, {&y, kE4M3, -1, 1, 1}),
            "x has a negative size, expected at least 0");
  EXPECT_EQ(error({&x, kF32, 1, 1, 1}, {nullptr, kE4M3, 1, 1, 1}),
            "y.data is null, expected rows * columns elements");
  EXPECT_EQ(error({&x, kF32, 1, 1, 1}, {&y, kE3M2, 1, 1, 2}),
            "y.row_stride is not its columns, expected dense rows of less than a byte");
  EXPECT_EQ(error({&x, {7, 4, 3, 7}, 1, 1, 1}, {&y, kE4M3, 1, 1, 1}),
            "x.type is no float type of 4, 6, 8, 16 or 32 bits");
  EXPECT_EQ(error({nullptr, kF32, 0, 5, 5}, {nullptr, kE4M3, 0, 5, 5}), "");
  EXPECT_EQ(Cast({&x, kF32, 1, 1, 1}, static_cast<CastRounding>(3), kInfinity, {&y, kE4M3, 1, 1, 1})
                .error,
            "rounding is none of CastRounding");
  EXPECT_EQ(
      Cast({&x, kF32, 1, 1, 1}, kEven, static_cast<CastOverflow>(3), {&y, kE4M3, 1, 1, 1}).error,
      "overflow is none of CastOverflow");
}

}  // namespace
}  // namespace qualm::kernels
