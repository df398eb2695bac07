// SPDX-License-Identifier: Apache-2.0
// The rescale operation, every code, against an exact reference.
#include <gtest/gtest.h>

#include "kernels/common/test_support.h"
#include "kernels/elementwise.h"

namespace qualm::kernels {
namespace {

using test::Exactly;
using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;
using test::Term;

int32_t Code(uint8_t byte, ElementType type) {
  return type == ElementType::kS8 ? static_cast<int8_t>(byte) : byte;
}

int32_t Reference(int32_t x, const Quantization& x_q, const Quantization& y_q, int32_t lo,
                  int32_t hi) {
  const Term s = Exactly(x_q.scale);
  const Term value{s.mantissa * (static_cast<__int128>(x) - x_q.zero_point), s.exponent};
  return test::ReferenceCode({value}, Exactly(y_q.scale), y_q.zero_point, lo, hi);
}

TEST(RescaleCodes, EveryCodeForHardScalesAndZeroPoints) {
  const std::vector<float> scales = test::HardScales();
  const std::vector<int32_t> zeros = {0, 128, -7, 300, -70000, INT32_MIN, INT32_MAX};
  Random random(4);
  std::vector<uint8_t> x(300);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * 7);
  for (int trial = 0; trial < 150; ++trial) {
    const auto pick = [&](const auto& list) {
      return list[static_cast<size_t>(random.Between(0, static_cast<int64_t>(list.size()) - 1))];
    };
    const ElementType from = trial % 2 == 0 ? ElementType::kU8 : ElementType::kS8;
    const ElementType to = trial % 4 < 2 ? ElementType::kU8 : ElementType::kS8;
    const Quantization x_q{pick(scales), pick(zeros)};
    // Same scale: the identity; half or double: all ties.
    const float y_scale = trial % 3 == 0 ? pick(scales)
                          : trial % 3 == 1
                              ? std::max(0x1p-149f, std::min(x_q.scale, 0x1p126f) * 2)
                              : std::max(0x1p-149f, x_q.scale * static_cast<float>(0.3));
    const Quantization y_q{y_scale, trial % 5 == 0 ? pick(zeros) : 20};
    const OutputRange range{.relu = trial % 7 == 0};
    const int32_t least = to == ElementType::kU8 ? 0 : -128;
    const int32_t hi = least + 255;
    const int32_t lo = range.relu ? std::min(std::max(least, y_q.zero_point), hi) : least;
    std::vector<int32_t> expected;
    for (const uint8_t byte : x) {
      expected.push_back(Reference(Code(byte, from), x_q, y_q, lo, hi));
    }
    for (const int64_t n : {int64_t{300}, int64_t{100}}) {  // the table, and element by element
      ForEachTarget([&](const std::string&) {
        std::vector<uint8_t> y(x.size(), 0xA5);
        ASSERT_EQ(
            RescaleCodes({x.data(), from, 1, n, n}, x_q, y_q, range, {y.data(), to, 1, n, n}).error,
            "");
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
          ASSERT_EQ(Code(y[i], to), expected[i])
              << Code(x[i], from) << std::hexfloat << " scales " << x_q.scale << ", " << y_q.scale
              << " zero points " << x_q.zero_point << ", " << y_q.zero_point;
        }
      });
    }
  }
}

TEST(RescaleCodes, TouchesOnlyTheGivenElementsAndWorksInPlace) {
  Random random(8);
  for (size_t columns = 1; columns <= 150; columns += 1 + columns / 20) {
    const size_t rows = 1 + columns % 9;
    const size_t stride = columns + columns % 4;
    const size_t size = (rows - 1) * stride + columns;
    std::vector<uint8_t> values(size);
    for (uint8_t& v : values) v = static_cast<uint8_t>(random.Next());
    const Quantization x_q{0.11f, 5}, y_q{0.3f, 100};
    for (const bool at_start : {false, true}) {
      GuardedBuffer<uint8_t> x(size, at_start), y(size, at_start);
      ForEachTarget([&](const std::string&) {
        x.Assign(values);
        std::fill_n(y.data(), size, uint8_t{0xA5});
        const ConstMatrix in{x.data(), ElementType::kS8, int64_t(rows), int64_t(columns),
                             int64_t(stride)};
        MutableMatrix out{y.data(), ElementType::kU8, int64_t(rows), int64_t(columns),
                          int64_t(stride)};
        ASSERT_TRUE(RescaleCodes(in, x_q, y_q, {}, out).ok());
        for (size_t i = 0; i < size; ++i) {
          const bool gap = i % stride >= columns;
          ASSERT_EQ(x[i], values[i]);
          ASSERT_EQ(y[i],
                    gap ? 0xA5 : Reference(Code(values[i], ElementType::kS8), x_q, y_q, 0, 255));
        }
        out.data = x.data();
        ASSERT_TRUE(RescaleCodes(in, x_q, y_q, {}, out).ok());
        for (size_t i = 0; i < size; ++i) {
          ASSERT_EQ(x[i], i % stride >= columns ? values[i] : y[i]) << i;
        }
      });
    }
  }
}

TEST(RescaleCodes, InvalidArgumentsAreErrors) {
  std::vector<uint8_t> codes(6, 1), out(6, 0xA5);
  const ConstMatrix x{codes.data(), ElementType::kU8, 2, 3, 3};
  const MutableMatrix y{out.data(), ElementType::kU8, 2, 3, 3};
  EXPECT_EQ(RescaleCodes({codes.data(), ElementType::kS32, 2, 3, 3}, {}, {}, {}, y).error,
            "x.type is s32, expected u8 or s8");
  EXPECT_EQ(RescaleCodes(x, {NAN}, {}, {}, y).error,
            "x_q.scale is nan, expected a finite number > 0");
  EXPECT_EQ(RescaleCodes(x, {}, {0}, {}, y).error, "y_q.scale is 0, expected a finite number > 0");
  EXPECT_EQ(RescaleCodes(x, {}, {}, {.min = 300}, y).error,
            "range is [300, 2147483647], expected min <= max and an overlap with u8");
  EXPECT_EQ(RescaleCodes(x, {}, {}, {}, {out.data(), ElementType::kF32, 2, 3, 3}).error,
            "y.type is f32, expected u8 or s8");
  EXPECT_EQ(RescaleCodes(x, {}, {}, {}, {out.data(), ElementType::kU8, 3, 2, 2}).error,
            "y is 3 x 2, expected the shape of the input, 2 x 3");
  EXPECT_EQ(out, std::vector<uint8_t>(6, 0xA5));
  EXPECT_EQ(RescaleCodes({nullptr, ElementType::kU8, 0, 3, 3}, {}, {}, {},
                         {nullptr, ElementType::kU8, 0, 3, 3})
                .error,
            "");
}

}  // namespace
}  // namespace qualm::kernels
