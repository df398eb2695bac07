// SPDX-License-Identifier: Apache-2.0
// concat of any number of inputs, where a case has two: each is rescaled alone, on every
// instruction set.
#include "kernels/concat.h"

#include <gtest/gtest.h>

#include <memory>

#include "kernels/common/test_support.h"
#include "kernels/elementwise.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;

// Empty ones too, with gaps between the rows of each, ending at guard pages.
TEST(Concat, RescalesEachInputAlone) {
  Random random(31);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t rows = random.Between(0, 4);
    const Quantization y_q{random.Scale(-6, -2), static_cast<int32_t>(random.Between(-20, 200))};
    std::vector<std::unique_ptr<GuardedBuffer<uint8_t>>> buffers;
    std::vector<ConcatInput> inputs;
    int64_t columns = 0;
    for (int64_t left = random.Between(0, 4); left > 0; --left) {
      const int64_t own =
          random.Between(0, 3) == 0 ? 0 : random.Between(1, trial % 2 == 0 ? 20 : 200);
      const int64_t stride = own + random.Between(0, 3);
      const auto size = static_cast<size_t>(rows == 0 ? 0 : (rows - 1) * stride + own);
      buffers.push_back(std::make_unique<GuardedBuffer<uint8_t>>(size, trial % 3 == 0));
      for (size_t i = 0; i < size; ++i) (*buffers.back())[i] = static_cast<uint8_t>(random.Next());
      const ElementType type = random.Between(0, 1) == 0 ? ElementType::kU8 : ElementType::kS8;
      inputs.push_back({{buffers.back()->data(), type, rows, own, stride},
                        {random.Scale(-8, -2), static_cast<int32_t>(random.Between(-130, 260))}});
      columns += own;
    }
    const int64_t stride = columns + trial % 3;
    const auto size = static_cast<size_t>(rows == 0 ? 0 : (rows - 1) * stride + columns);
    GuardedBuffer<uint8_t> y(size);
    ForEachTarget([&](const std::string&) {
      std::vector<uint8_t> expected(size, 0xA5);
      int64_t first = 0;
      for (const ConcatInput& input : inputs) {
        const int64_t own = input.x.columns;
        if (rows * own == 0) continue;
        ASSERT_EQ(RescaleCodes(input.x, input.q, y_q, {},
                               {expected.data() + first, ElementType::kU8, rows, own, stride})
                      .error,
                  "");
        first += own;
      }
      std::fill_n(y.data(), size, uint8_t{0xA5});
      ASSERT_EQ(Concat(inputs, y_q, {}, {y.data(), ElementType::kU8, rows, columns, stride}).error,
                "");
      ASSERT_EQ(std::vector<uint8_t>(y.data(), y.data() + size), expected);
    });
    if (HasFatalFailure()) return;
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
