// SPDX-License-Identifier: Apache-2.0
// Floats to blocks on every instruction set: the formula of the header, ties, several values of
// largest magnitude, scales at both ends of float16, special values; memory, the environment of the
// caller, refusals.
#include "kernels/block_quantize.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <limits>
#include <vector>

#include "kernels/common/test_support.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr BlockFormat kFormats[] = {BlockFormat::kQ8_0, BlockFormat::kQ4_0, BlockFormat::kQ8_K};
size_t CodesIn(BlockFormat format) { return format == BlockFormat::kQ8_K ? 256 : 32; }

// Half to even by the C library, not by bits of the float32; infinity beyond.
uint16_t HalfOf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (value == 0) return sign;
  int exponent = 0;
  (void)std::frexp(value, &exponent);  // in [1/2, 1) * 2^exponent
  const int unit = std::max(exponent - 11, -24);
  const float count = std::nearbyint(std::ldexp(std::fabs(value), -unit));
  if (std::ldexp(count, unit) > 65504) return sign | 0x7C00;
  // The bits of neighbours follow one another, from denormals on.
  return static_cast<uint16_t>(sign | ((unit + 24) * 1024 + static_cast<int>(count)));
}

std::vector<uint8_t> ExpectedQ8K(const std::vector<float>& x) {
  std::vector<uint8_t> bytes;
  const auto put = [&](const auto& value) {
    const auto* const begin = reinterpret_cast<const uint8_t*>(&value);
    bytes.insert(bytes.end(), begin, begin + sizeof(value));
  };
  for (size_t first = 0; first < x.size(); first += 256) {
    float most = 0;
    for (size_t k = first; k < first + 256; ++k) {
      if (std::isfinite(x[k]) && std::fabs(x[k]) > std::fabs(most)) most = x[k];
    }
    const float inverse = -127.0f / most;
    put(std::isfinite(inverse) ? 1.0f / inverse : 0.0f);
    std::vector<int16_t> sums(16, 0);
    for (size_t k = 0; k < 256; ++k) {
      const float v = std::isfinite(inverse) ? x[first + k] * inverse : 0.0f;
      const auto code =
          static_cast<int8_t>(std::isnan(v) ? 0 : std::nearbyint(std::clamp(v, -127.0f, 127.0f)));
      put(code);
      sums[k / 16] = static_cast<int16_t>(sums[k / 16] + code);
    }
    for (const int16_t sum : sums) put(sum);
  }
  return bytes;
}

std::vector<uint8_t> Expected(std::vector<float> x, BlockFormat format) {
  x.resize((x.size() + CodesIn(format) - 1) / CodesIn(format) * CodesIn(format));
  if (format == BlockFormat::kQ8_K) return ExpectedQ8K(x);
  const bool nibbles = format == BlockFormat::kQ4_0;
  std::vector<uint8_t> bytes;
  for (size_t first = 0; first < x.size(); first += 32) {
    float most = 0;
    for (size_t k = first; k < first + 32; ++k) {
      if (std::isfinite(x[k]) && std::fabs(x[k]) > std::fabs(most)) most = x[k];
    }
    const float scale = nibbles ? most / -8.0f : std::fabs(most) / 127.0f;
    uint16_t half = HalfOf(scale);
    float inverse = nibbles ? 1.0f / scale : 127.0f / std::fabs(most);
    if ((half & 0x7FFF) == 0) inverse = 0;
    if ((half & 0x7FFF) == 0x7C00) {
      half = static_cast<uint16_t>((half & 0x8000) | 0x7BFF);
      inverse = (std::signbit(scale) ? -1.0f : 1.0f) / 65504.0f;
    }
    bytes.push_back(static_cast<uint8_t>(half & 255));
    bytes.push_back(static_cast<uint8_t>(half >> 8));
    std::vector<int> codes;
    for (size_t k = first; k < first + 32; ++k) {
      float v = x[k] * inverse;
      if (std::isnan(v)) v = 0;
      codes.push_back(nibbles ? static_cast<int>(std::clamp(v + 8.5f, 0.0f, 15.0f))
                              : static_cast<int>(std::nearbyint(std::clamp(v, -127.0f, 127.0f))));
    }
    for (size_t j = 0; j < (nibbles ? 16u : 32u); ++j)
      bytes.push_back(static_cast<uint8_t>(nibbles ? codes[j] | codes[j + 16] << 4 : codes[j]));
  }
  return bytes;
}

// The values are filled up with zeros to whole blocks.
std::vector<uint8_t> Actual(std::vector<float> x, BlockFormat format) {
  const auto blocks = static_cast<int64_t>((x.size() + CodesIn(format) - 1) / CodesIn(format));
  const auto columns = blocks * static_cast<int64_t>(CodesIn(format));
  x.resize(static_cast<size_t>(columns));
  GuardedBuffer<float> from(x.size());
  from.Assign(x);
  GuardedBuffer<uint8_t> to(static_cast<size_t>(blocks * BlockBytes(format)));
  EXPECT_EQ(QuantizeBlocks({from.data(), ElementType::kF32, 1, columns, columns},
                           {to.data(), format, 1, blocks, blocks * BlockBytes(format)})
                .error,
            "");
  return {to.data(), to.data() + to.size()};
}

TEST(BlockQuantize, IsTheFormulaOnEveryTarget) {
  Random random(1);
  for (const BlockFormat format : kFormats) {
    for (int exponent = -30; exponent <= 30; ++exponent) {
      std::vector<float> x;
      for (int i = 0; i < 32 * 20; ++i) {
        const float magnitude =
            i % 7 == 0 ? std::ldexp(static_cast<float>(random.Between(0, 254)) / 2, exponent - 6)
                       : random.Scale(exponent - 6, exponent);
        x.push_back(random.Between(0, 1) == 0 ? magnitude : -magnitude);
      }
      const std::vector<uint8_t> expected = Expected(x, format);
      ForEachTarget(
          [&](const std::string&) { ASSERT_EQ(Actual(x, format), expected) << exponent; });
    }
  }
}

// Powers of two times halves: every code, and a tie between any two.
TEST(BlockQuantize, TiesGoToEvenOrAway) {
  for (const BlockFormat format : kFormats) {
    for (const float most : {127.0f, -127.0f, 8.0f, -8.0f, 64.0f}) {
      std::vector<float> x;
      for (int i = 0; i < 16 * 31; ++i) {
        if (i % 31 == 0) x.push_back(most);
        x.push_back((static_cast<float>(i) / 2 - 124) * std::fabs(most) / 127);
      }
      const std::vector<uint8_t> expected = Expected(x, format);
      ForEachTarget([&](const std::string&) { ASSERT_EQ(Actual(x, format), expected) << most; });
    }
  }
}

TEST(BlockQuantize, SpecialBlocks) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float largest = std::numeric_limits<float>::max();
  const auto filled = [&](size_t length) {
    std::vector<float> x;
    for (const std::vector<float>& some : std::vector<std::vector<float>>{{0},
                                                                          {-0.0f},
                                                                          {nan},
                                                                          {kInfinity},
                                                                          {-kInfinity},
                                                                          {kInfinity, 1},
                                                                          {-kInfinity, -2, nan},
                                                                          {3, -3},
                                                                          {-3, 3},
                                                                          {largest, 1e7f, -65504},
                                                                          {-largest},
                                                                          {65504 * 127.0f},
                                                                          {65520 * 127.0f},
                                                                          {65519 * 127.0f},
                                                                          {65504 * 8.0f},
                                                                          {-65520 * 8.0f},
                                                                          {0x1p-149f},
                                                                          {0x1.fcp-122f},
                                                                          {0x1.fbp-122f, kInfinity},
                                                                          {5, kInfinity, nan},
                                                                          {0x1p-126f},
                                                                          {0x1p-25f * 127},
                                                                          {0x1.02p-25f * 127},
                                                                          {0x1p-25f * 8},
                                                                          {0x1.02p-25f * -8},
                                                                          {0x1.8p-24f * 8},
                                                                          {0x1.002p0f * -8},
                                                                          {0x1.006p0f * 8}}) {
      std::vector<float> block(length, 0.0f);
      std::ranges::copy(some, block.begin() + 5);
      x.insert(x.end(), block.begin(), block.end());
    }
    return x;
  };
  for (const BlockFormat format : kFormats) {
    const std::vector<float> x = filled(CodesIn(format));
    const std::vector<uint8_t> expected = Expected(x, format);
    ForEachTarget([&](const std::string&) { ASSERT_EQ(Actual(x, format), expected); });
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      std::fesetround(mode);
      const std::vector<uint8_t> actual = Actual(x, format);
      const int after = std::fegetround();
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(after, mode);
      EXPECT_EQ(actual, expected);
    }
  }
}

TEST(BlockQuantize, RowsWithGapsAndRefusals) {
  std::vector<float> x(2 * 70, 1.0f);
  std::vector<uint8_t> y(2 * 50, 0x77);
  const auto run = [&](const auto& change) {
    ConstMatrix from{x.data(), ElementType::kF32, 2, 32, 70};
    MutableBlocks to{y.data(), BlockFormat::kQ4_0, 2, 1, 50};
    change(from, to);
    return QuantizeBlocks(from, to).error;
  };
  EXPECT_NE(run([](ConstMatrix& m, MutableBlocks&) { m.columns = 31; }), "");
  EXPECT_NE(run([](ConstMatrix& m, MutableBlocks&) { m.type = ElementType::kU8; }), "");
  EXPECT_NE(run([](ConstMatrix& m, MutableBlocks&) { m.data = nullptr; }), "");
  EXPECT_NE(run([](ConstMatrix&, MutableBlocks& b) { b.rows = 1; }), "");
  EXPECT_NE(run([](ConstMatrix&, MutableBlocks& b) { b.row_stride = 17; }), "");
  EXPECT_NE(run([](ConstMatrix&, MutableBlocks& b) { b.data = nullptr; }), "");
  EXPECT_NE(run([](ConstMatrix&, MutableBlocks& b) { b.format = static_cast<BlockFormat>(9); }),
            "");
  EXPECT_NE(run([](ConstMatrix&, MutableBlocks& b) { b.format = BlockFormat::kQ8_K; }), "");
  EXPECT_NE(run([](ConstMatrix&, MutableBlocks& b) { b.format = BlockFormat::kQ4_K; }), "");
  EXPECT_NE(run([&](ConstMatrix&, MutableBlocks& b) { b.data = x.data(); }), "");
  EXPECT_EQ(y, std::vector<uint8_t>(2 * 50, 0x77));
  EXPECT_EQ(run([](ConstMatrix&, MutableBlocks&) {}), "");
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i] == 0x77, i % 50 >= 18) << i;
}

}  // namespace
}  // namespace qualm::kernels
