// SPDX-License-Identifier: Apache-2.0
// concat against a reference for each input, on every instruction set.
#include "kernels/concat.h"

#include <gtest/gtest.h>

#include <memory>

#include "kernels/common/test_support.h"

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

uint8_t Reference(uint8_t x, ElementType type, const Quantization& q, const Quantization& y_q) {
  const Term s = Exactly(q.scale);
  const __int128 difference = static_cast<__int128>(Code(x, type)) - q.zero_point;
  return static_cast<uint8_t>(test::ReferenceCode({{s.mantissa * difference, s.exponent}},
                                                  Exactly(y_q.scale), y_q.zero_point, 0, 255));
}

// Any number of inputs, empty ones too, with gaps between the rows of each, ending at guard pages;
// both the table and the element by element.
TEST(Concat, RescalesEachInputAlone) {
  Random random(31);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t rows = random.Between(0, 4);
    const auto count = static_cast<size_t>(random.Between(0, 4));
    const Quantization y_q{random.Scale(-6, -2), static_cast<int32_t>(random.Between(-20, 200))};
    struct Input {
      std::vector<uint8_t> codes;
      int64_t columns = 0, stride = 0;
      ElementType type = ElementType::kU8;
      Quantization q;
    };
    std::vector<Input> inputs(count);
    std::vector<std::unique_ptr<GuardedBuffer<uint8_t>>> buffers;
    std::vector<ConcatInput> arguments;
    int64_t columns = 0;
    for (Input& input : inputs) {
      input.columns = random.Between(0, 3) == 0 ? 0 : random.Between(1, trial % 2 == 0 ? 20 : 200);
      input.stride = input.columns + random.Between(0, 3);
      input.type = random.Between(0, 1) == 0 ? ElementType::kU8 : ElementType::kS8;
      input.q = {random.Scale(-8, -2), static_cast<int32_t>(random.Between(-130, 260))};
      const int64_t size = rows == 0 ? 0 : (rows - 1) * input.stride + input.columns;
      for (int64_t i = 0; i < size; ++i) input.codes.push_back(static_cast<uint8_t>(random.Next()));
      buffers.push_back(
          std::make_unique<GuardedBuffer<uint8_t>>(input.codes.size(), trial % 3 == 0));
      buffers.back()->Assign(input.codes);
      arguments.push_back(
          {{buffers.back()->data(), input.type, rows, input.columns, input.stride}, input.q});
      columns += input.columns;
    }
    const int64_t stride = columns + trial % 3;
    const auto size = static_cast<size_t>(rows == 0 ? 0 : (rows - 1) * stride + columns);
    GuardedBuffer<uint8_t> y(size);
    ForEachTarget([&](const std::string&) {
      std::fill_n(y.data(), size, uint8_t{0xA5});
      ASSERT_EQ(
          Concat(arguments, y_q, {}, {y.data(), ElementType::kU8, rows, columns, stride}).error,
          "");
      std::vector<uint8_t> expected(size, 0xA5);
      int64_t first = 0;
      for (const Input& input : inputs) {
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < input.columns; ++j) {
            expected[static_cast<size_t>(i * stride + first + j)] = Reference(
                input.codes[static_cast<size_t>(i * input.stride + j)], input.type, input.q, y_q);
          }
        }
        first += input.columns;
      }
      for (size_t i = 0; i < size; ++i) ASSERT_EQ(y[i], expected[i]) << i << " of " << size;
    });
  }
}

TEST(Concat, InvalidArgumentsAreErrors) {
  std::vector<uint8_t> codes(6, 1), out(12, 0xA5);
  const ConcatInput good{{codes.data(), ElementType::kU8, 2, 3, 3}, {}};
  const MutableMatrix y{out.data(), ElementType::kU8, 2, 6, 6};
  const auto error = [&](std::vector<ConcatInput> inputs, const MutableMatrix& to,
                         float scale = 1.0f) { return Concat(inputs, {scale}, {}, to).error; };
  EXPECT_EQ(error({good, good}, y), "");
  out.assign(12, 0xA5);
  EXPECT_EQ(error({good, good}, y, 0.0f), "y_q.scale is 0, expected a finite number > 0");
  EXPECT_EQ(error({good}, y), "y.columns is 6, expected the columns of all inputs, 3");
  EXPECT_EQ(error({good, good, good}, y),
            "inputs[2].x has 3 columns, expected at most 0, the rest of y");
  ConcatInput bad = good;
  bad.x.rows = 1;
  EXPECT_EQ(error({good, bad}, y), "inputs[1].x has 1 rows, expected those of y, 2");
  bad = good;
  bad.q.scale = NAN;
  EXPECT_EQ(error({good, bad}, y), "inputs[1].q.scale is nan, expected a finite number > 0");
  bad = good;
  bad.x.type = ElementType::kF32;
  EXPECT_EQ(error({bad, good}, y), "inputs[0].x.type is f32, expected u8 or s8");
  EXPECT_EQ(Concat(std::vector{good, good}, {}, {.min = 300}, y).error,
            "range is [300, 2147483647], expected min <= max and an overlap with u8");
  EXPECT_EQ(out, std::vector<uint8_t>(12, 0xA5));
  EXPECT_EQ(error({}, {nullptr, ElementType::kU8, 3, 0, 0}), "");
}

}  // namespace
}  // namespace qualm::kernels
