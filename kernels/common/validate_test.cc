// SPDX-License-Identifier: Apache-2.0
// Invalid arguments are returned as errors that name them, and nothing is written.
#include <gtest/gtest.h>

#include "kernels/common/test_support.h"
#include "kernels/elementwise.h"

namespace qualm::kernels {
namespace {

constexpr float kNan = NAN;

struct Arguments {
  std::vector<float> real = {1, 2, 3, 4, 5, 6};
  std::vector<int32_t> acc = {1, 2, 3, 4, 5, 6};
  std::vector<uint8_t> codes = std::vector<uint8_t>(6, 0xA5);
  ConstMatrix x{real.data(), ElementType::kF32, 2, 3, 3};
  ConstMatrix a{acc.data(), ElementType::kS32, 2, 3, 3};
  MutableMatrix y{codes.data(), ElementType::kU8, 2, 3, 3};
  std::vector<float> scale = {0.5f};
  std::vector<int32_t> zero_point = {0};
  std::vector<Multiplier> multiplier = {{0.5f}};
  OutputRange range;
};

// The error of Quantize after `change`, with nothing written; "" if it succeeds.
template <class Change>
std::string QuantizeError(const Change& change) {
  Arguments a;
  change(a);
  const std::string error = Quantize(a.x, a.scale, a.zero_point, a.range, a.y).error;
  EXPECT_TRUE(error.empty() || a.codes == std::vector<uint8_t>(6, 0xA5)) << error;
  return error;
}
template <class Change>
std::string RequantizeError(const Change& change) {
  Arguments a;
  change(a);
  const std::string error = Requantize(a.a, a.multiplier, 0, a.range, a.y).error;
  EXPECT_TRUE(error.empty() || a.codes == std::vector<uint8_t>(6, 0xA5)) << error;
  return error;
}

TEST(Validate, Quantize) {
  EXPECT_EQ(QuantizeError([](Arguments&) {}), "");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.x.type = ElementType::kS32; }),
            "x.type is s32, expected f32");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.x.rows = -1; }),
            "x.rows is -1, expected at least 0");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.x.columns = -5; }),
            "x.columns is -5, expected at least 0");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.x.row_stride = 2; }),
            "x.row_stride is 2, expected at least columns = 3");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.x.data = nullptr; }),
            "x.data is null, expected rows * columns elements");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.x.row_stride = INT64_MAX; }),
            "x.rows * row_stride = 2 * 9223372036854775807 exceeds the address space");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.scale = {}; }),
            "scale has 0 elements, expected 1 or 3, one per column");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.scale = {1, 1}; }),
            "scale has 2 elements, expected 1 or 3, one per column");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.scale = {1, 0, 1}; }),
            "scale[1] is 0, expected a finite number > 0");
  for (const float bad : {-1.0f, -0.0f, INFINITY, kNan}) {
    EXPECT_NE(QuantizeError([&](Arguments& a) { a.scale = {bad}; }), "") << bad;
  }
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.scale = {0x1p-149f}; }), "");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.zero_point = {1, 2}; }),
            "zero_point has 2 elements, expected 1 or 3, one per column");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.y.type = ElementType::kF32; }),
            "y.type is f32, expected u8 or s8");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.range = {.min = 4, .max = 3}; }),
            "range is [4, 3], expected min <= max and an overlap with u8");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.range = {.min = 256}; }),
            "range is [256, 2147483647], expected min <= max and an overlap with u8");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.y.data = nullptr; }),
            "y.data is null, expected rows * columns elements");
  EXPECT_EQ(QuantizeError([](Arguments& a) { a.y.rows = 1; }),
            "y is 1 x 3, expected the shape of the input, 2 x 3");
}

// A valid pointer that is not a multiple of an element of 4 bytes: read or written through it, some
// targets' scalar remainders are undefined behaviour. Codes have no alignment.
TEST(Validate, MisalignedElementsOfFourBytes) {
  alignas(4) unsigned char storage[64] = {};
  for (const size_t offset : {1, 2, 3}) {
    unsigned char* const odd = storage + offset;
    const std::string expected = ".data is misaligned, expected a multiple of 4 bytes";
    EXPECT_EQ(QuantizeError([&](Arguments& a) { a.x.data = odd; }), "x" + expected);
    EXPECT_EQ(RequantizeError([&](Arguments& a) { a.a.data = odd; }), "acc" + expected);
    const ConstMatrix q{odd, ElementType::kU8, 2, 3, 3};
    const Arguments a;
    EXPECT_EQ(Dequantize(q, a.scale, a.zero_point, {odd + 12, ElementType::kF32, 2, 3, 3}).error,
              "y" + expected);
    // Empty ones are not looked at.
    const ConstMatrix empty{odd, ElementType::kF32, 0, 3, 3};
    EXPECT_EQ(Quantize(empty, a.scale, a.zero_point, {}, {odd, ElementType::kU8, 0, 3, 3}).error,
              "");
  }
  for (const size_t offset : {0, 1, 2, 3}) {
    Arguments a;
    a.y.data = storage + offset;
    EXPECT_EQ(Quantize(a.x, a.scale, a.zero_point, a.range, a.y).error, "") << offset;
    EXPECT_EQ(Requantize(a.a, a.multiplier, 0, a.range, a.y).error, "") << offset;
    const ConstMatrix q{storage + offset, ElementType::kS8, 2, 3, 3};
    const MutableMatrix y{storage + 32, ElementType::kF32, 2, 3, 3};
    EXPECT_EQ(Dequantize(q, a.scale, a.zero_point, y).error, "") << offset;
  }
}

TEST(Validate, EmptyMatricesSucceedAndWriteNothing) {
  for (const auto& [rows, columns] : {std::pair{0, 3}, std::pair{2, 0}, std::pair{0, 0}}) {
    Arguments a;
    a.x = {nullptr, ElementType::kF32, rows, columns, columns};
    a.a = {nullptr, ElementType::kS32, rows, columns, columns};
    a.y = {nullptr, ElementType::kU8, rows, columns, columns};
    EXPECT_EQ(Quantize(a.x, a.scale, a.zero_point, a.range, a.y).error, "");
    EXPECT_EQ(Requantize(a.a, a.multiplier, 0, a.range, a.y).error, "");
    const ConstMatrix q{nullptr, ElementType::kS8, rows, columns, columns};
    EXPECT_EQ(
        Dequantize(q, a.scale, a.zero_point, {nullptr, ElementType::kF32, rows, columns, 0}).error,
        "");
  }
}

TEST(Validate, Dequantize) {
  Arguments a;
  std::vector<float> out(6);
  const ConstMatrix q{a.codes.data(), ElementType::kU8, 2, 3, 3};
  const MutableMatrix y{out.data(), ElementType::kF32, 2, 3, 3};
  EXPECT_EQ(Dequantize(q, a.scale, a.zero_point, y).error, "");
  EXPECT_EQ(Dequantize(a.x, a.scale, a.zero_point, y).error, "q.type is f32, expected u8 or s8");
  EXPECT_EQ(Dequantize(q, a.scale, a.zero_point, a.y).error, "y.type is u8, expected f32");
  const std::vector<float> nan = {kNan};
  EXPECT_EQ(Dequantize(q, nan, a.zero_point, y).error,
            "scale[0] is nan, expected a finite number > 0");
  EXPECT_EQ(Dequantize(q, a.scale, {}, y).error,
            "zero_point has 0 elements, expected 1 or 3, one per column");
}

TEST(Validate, Requantize) {
  EXPECT_EQ(RequantizeError([](Arguments&) {}), "");
  EXPECT_EQ(RequantizeError([](Arguments& a) { a.a.type = ElementType::kF32; }),
            "acc.type is f32, expected s32");
  EXPECT_EQ(RequantizeError([](Arguments& a) { a.multiplier = {}; }),
            "multiplier has 0 elements, expected 1 or 3, one per column");
  EXPECT_EQ(RequantizeError([](Arguments& a) { a.multiplier = {{1, 0, 1}}; }),
            "multiplier[0].numerator_b is 0, expected a finite number > 0");
  EXPECT_EQ(RequantizeError([](Arguments& a) { a.multiplier = {{1}, {1}, {1, 1, INFINITY}}; }),
            "multiplier[2].denominator is inf, expected a finite number > 0");
  EXPECT_EQ(RequantizeError([](Arguments& a) { a.multiplier = {{1, 1, -1}}; }),
            "multiplier[0].denominator is -1, expected a finite number > 0");
  EXPECT_EQ(RequantizeError([](Arguments& a) { a.multiplier = {{kNan}}; }),
            "multiplier[0].numerator_a is nan, expected a finite number > 0");
  EXPECT_EQ(RequantizeError([](Arguments& a) { a.multiplier = {{1, 1, 1, 0}}; }),
            "multiplier[0].divisor is 0, expected 1..2^53");
  EXPECT_EQ(RequantizeError([](Arguments& a) { a.multiplier = {{1, 1, 1, INT64_MAX}}; }),
            "multiplier[0].divisor is 9223372036854775807, expected 1..2^53");
  EXPECT_EQ(RequantizeError([](Arguments& a) { a.range = {.max = -1}; }),
            "range is [-2147483648, -1], expected min <= max and an overlap with u8");
}

}  // namespace
}  // namespace qualm::kernels
