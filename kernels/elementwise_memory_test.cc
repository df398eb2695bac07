// SPDX-License-Identifier: Apache-2.0
// What the operations on elements and rows read and write, on every instruction set: a matrix with
// gaps between its rows, against guard pages, has the answers of its rows one by one, and nothing
// else changes. Whether the answers are right is asked by properties/native_kernels_test.cc.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/binary.h"
#include "kernels/common/test_support.h"
#include "kernels/concat.h"
#include "kernels/elementwise.h"
#include "kernels/softmax.h"
#include "kernels/table.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;

constexpr size_t kMostColumns = 300;  // more than a table has entries
constexpr Quantization kX{0.11f, 5}, kOther{0.07f, -3}, kY{0.3f, 100};

struct Operation {
  std::string name;
  ElementType from, to;
  std::function<Status(const ConstMatrix& x, const MutableMatrix& y)> run;
  bool in_place = true;
};

size_t BytesOf(ElementType type) {
  return type == ElementType::kU8 || type == ElementType::kS8 ? 1 : 4;
}

// Parameters of one column each, whose last one lies before a guard page.
template <class T>
std::span<const T> PerColumn(const std::vector<T>& values, int64_t columns, GuardedBuffer<T>* to) {
  const std::span<const T> some(values.data(), static_cast<size_t>(columns));
  to->Assign(some);
  return {to->data(), some.size()};
}

std::vector<Operation> Operations() {
  Random random(3);
  std::vector<float> scale;
  std::vector<int32_t> zero;
  std::vector<Multiplier> multiplier;
  for (size_t j = 0; j < kMostColumns; ++j) {
    scale.push_back(random.Scale(-4, 2));
    zero.push_back(static_cast<int32_t>(random.Between(-10, 265)));
    multiplier.push_back({random.Scale(-9, -5), random.Scale(0, 0), random.Scale(0, 0)});
  }
  constexpr ElementType kU8 = ElementType::kU8, kS8 = ElementType::kS8;
  std::vector<Operation> operations;
  const auto add = [&](std::string name, ElementType from, ElementType to, auto run) {
    operations.push_back({std::move(name), from, to, std::move(run)});
  };
  for (const bool per_column : {false, true}) {
    const std::string which = per_column ? " per column" : "";
    const auto columns = [=](const ConstMatrix& x) { return per_column ? x.columns : 1; };
    add("quantize" + which, ElementType::kF32, kU8, [=](const auto& x, const auto& y) {
      const auto n = static_cast<size_t>(columns(x));
      GuardedBuffer<float> s(n);
      GuardedBuffer<int32_t> z(n);
      return Quantize(x, PerColumn(scale, columns(x), &s), PerColumn(zero, columns(x), &z), {}, y);
    });
    add("dequantize" + which, kU8, ElementType::kF32, [=](const auto& x, const auto& y) {
      const auto n = static_cast<size_t>(columns(x));
      GuardedBuffer<float> s(n);
      GuardedBuffer<int32_t> z(n);
      return Dequantize(x, PerColumn(scale, columns(x), &s), PerColumn(zero, columns(x), &z), y);
    });
    for (const Requantization mode : {Requantization::kExact, Requantization::kFloat32,
                                      Requantization::kFixedQ31, Requantization::kFixedRndnu}) {
      for (const bool is_float : {false, true}) {  // the float32 and float64 paths, or intervals
        std::vector<Multiplier> m = multiplier;
        for (Multiplier& one : m) one = is_float ? Multiplier{one.numerator_a} : one;
        add("requantize" + which + ", mode " + std::to_string(static_cast<int>(mode)),
            ElementType::kS32, kU8, [=](const auto& x, const auto& y) {
              GuardedBuffer<Multiplier> some(static_cast<size_t>(columns(x)));
              return Requantize(x, PerColumn(m, columns(x), &some), 100, {}, y, mode);
            });
      }
    }
  }
  add("rescale", kS8, kU8,
      [](const auto& x, const auto& y) { return RescaleCodes(x, kX, kY, {}, y); });
  add("add", kS8, kU8,
      [](const auto& x, const auto& y) { return Add(x, kX, x, kOther, kY, {}, y); });
  add("sub", kS8, kU8,
      [](const auto& x, const auto& y) { return Sub(x, kX, x, kOther, kY, {}, y); });
  add("mul", kS8, kU8,
      [](const auto& x, const auto& y) { return Mul(x, kX, x, kOther, kY, {}, y); });
  add("table", kS8, kU8, [](const auto& x, const auto& y) {
    PackedTable table;
    const Status status = PackedTable::Build(
        {.function = TableFunction::kHardSwish, .x_type = kS8, .x_q = kX, .y_q = kY}, &table);
    return status.ok() ? table.Run(x, y) : status;
  });
  add("softmax", kU8, kU8, [](const auto& x, const auto& y) {
    PackedSoftmax softmax;
    const Status status = PackedSoftmax::Build(0.05f, x.columns, &softmax);
    return status.ok() ? softmax.Run(x, {}, y) : status;
  });
  operations.back().in_place = false;
  add("concat of one", kS8, kU8, [](const auto& x, const auto& y) {
    const std::vector<ConcatInput> inputs = {{x, kX}};
    return Concat(inputs, kY, {}, y);
  });
  operations.back().in_place = false;
  return operations;
}

// Codes and floats that fill the range of the outputs.
void Fill(Random& random, ElementType type, std::vector<uint8_t>* bytes) {
  for (size_t i = 0; i < bytes->size(); i += BytesOf(type)) {
    const auto number = static_cast<int32_t>(random.Between(-9999, 9999));
    const float real = static_cast<float>(number) / 64;
    if (type == ElementType::kF32) {
      std::memcpy(bytes->data() + i, &real, sizeof(real));
    } else {
      std::memcpy(bytes->data() + i, &number, BytesOf(type));
    }
  }
}

// The bytes of the output of each row alone, with `fill` in the gaps, and other bytes in what is
// not written.
std::vector<uint8_t> RowByRow(const Operation& operation, const std::vector<uint8_t>& x,
                              int64_t rows, int64_t columns, int64_t stride, uint8_t fill) {
  const size_t from = BytesOf(operation.from), to = BytesOf(operation.to);
  std::vector<uint8_t> y(x.size() / from * to, fill);
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = static_cast<size_t>(row * stride);
    std::fill_n(y.data() + first * to, static_cast<size_t>(columns) * to,
                static_cast<uint8_t>(~fill));
    EXPECT_EQ(operation
                  .run({x.data() + first * from, operation.from, 1, columns, columns},
                       {y.data() + first * to, operation.to, 1, columns, columns})
                  .error,
              "");
  }
  return y;
}

TEST(ElementwiseMemory, TouchesOnlyTheGivenElements) {
  constexpr uint8_t kFill = 0xA5;
  Random random(5);
  for (const Operation& operation : Operations()) {
    SCOPED_TRACE(operation.name);
    const size_t from = BytesOf(operation.from), to = BytesOf(operation.to);
    for (int64_t columns = 1; columns <= int64_t{kMostColumns}; columns += 1 + columns / 71 * 37) {
      const int64_t rows = columns % 3 + 1;
      const int64_t stride = columns + columns % 5;
      const auto size = static_cast<size_t>((rows - 1) * stride + columns);
      std::vector<uint8_t> values(size * from);
      Fill(random, operation.from, &values);
      for (const bool at_start : {false, true}) {
        GuardedBuffer<uint8_t> x(size * from, at_start), y(size * to, at_start);
        ForEachTarget([&](const std::string&) {
          const std::vector<uint8_t> expected =
              RowByRow(operation, values, rows, columns, stride, kFill);
          x.Assign(values);
          std::fill_n(y.data(), y.size(), kFill);
          const ConstMatrix in{x.data(), operation.from, rows, columns, stride};
          ASSERT_EQ(operation.run(in, {y.data(), operation.to, rows, columns, stride}).error, "");
          ASSERT_EQ(std::vector<uint8_t>(x.data(), x.data() + x.size()), values) << columns;
          ASSERT_EQ(std::vector<uint8_t>(y.data(), y.data() + y.size()), expected) << columns;
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

// If output and input elements have one size, the rows have gaps, which must keep their bytes. If
// output codes lie over wider elements, there is one row.
TEST(ElementwiseMemory, WorksInPlace) {
  Random random(6);
  for (const Operation& operation : Operations()) {
    const size_t from = BytesOf(operation.from), to = BytesOf(operation.to);
    if (from < to || !operation.in_place) continue;
    SCOPED_TRACE(operation.name);
    for (int64_t columns = 1; columns <= int64_t{kMostColumns}; columns += 1 + columns / 20) {
      const int64_t rows = from == to ? 1 + columns % 9 : 1;
      const int64_t stride = columns + (from == to ? columns % 4 : 0);
      std::vector<uint8_t> values(static_cast<size_t>((rows - 1) * stride + columns) * from);
      Fill(random, operation.from, &values);
      ForEachTarget([&](const std::string&) {
        const std::vector<uint8_t> dense = RowByRow(operation, values, rows, columns, stride, 0);
        std::vector<uint8_t> expected = values;
        for (size_t i = 0; i < dense.size(); ++i) {
          if (static_cast<int64_t>(i) % stride < columns) expected[i] = dense[i];
        }
        std::vector<uint8_t> buffer = values;
        ASSERT_EQ(operation
                      .run({buffer.data(), operation.from, rows, columns, stride},
                           {buffer.data(), operation.to, rows, columns, stride})
                      .error,
                  "");
        buffer.resize(dense.size());
        expected.resize(dense.size());
        ASSERT_EQ(buffer, expected) << columns;
      });
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace qualm::kernels
