// SPDX-License-Identifier: Apache-2.0
// What no case asks of add, sub and mul: sums that are constructed next to ties, outputs over
// either operand, three strides, refusals.
#include "kernels/binary.h"

#include <gtest/gtest.h>

#include "kernels/common/test_support.h"

namespace qualm::kernels {
namespace {

using test::Exactly;
using test::ForEachTarget;
using test::Random;
using test::Term;

enum class Operation { kAdd, kSub, kMul };
constexpr Operation kOperations[] = {Operation::kAdd, Operation::kSub, Operation::kMul};

struct Problem {
  Operation operation = Operation::kAdd;
  ElementType x_type = ElementType::kU8;
  Quantization a, b, y;
  ElementType y_type = ElementType::kU8;
  OutputRange range;
};

std::string Text(const Problem& p) {
  char buffer[256];
  std::snprintf(buffer, sizeof(buffer), "%s %s->%s a %a,%d b %a,%d y %a,%d",
                p.operation == Operation::kAdd   ? "add"
                : p.operation == Operation::kSub ? "sub"
                                                 : "mul",
                p.x_type == ElementType::kU8 ? "u8" : "s8",
                p.y_type == ElementType::kU8 ? "u8" : "s8", static_cast<double>(p.a.scale),
                p.a.zero_point, static_cast<double>(p.b.scale), p.b.zero_point,
                static_cast<double>(p.y.scale), p.y.zero_point);
  return buffer;
}

// The sign of the second operand of add and sub.
int Sign(const Problem& p) { return p.operation == Operation::kSub ? -1 : 1; }

int32_t Code(uint8_t byte, ElementType type) {
  return type == ElementType::kS8 ? static_cast<int8_t>(byte) : byte;
}

int32_t Reference(const Problem& p, uint8_t a, uint8_t b) {
  const Term sa = Exactly(p.a.scale), sb = Exactly(p.b.scale);
  const int32_t low = p.y_type == ElementType::kS8 ? -128 : 0;
  return test::ReferenceCode(
      {{sa.mantissa * (Code(a, p.x_type) - p.a.zero_point), sa.exponent},
       {sb.mantissa * (Code(b, p.x_type) - p.b.zero_point) * Sign(p), sb.exponent}},
      Exactly(p.y.scale), p.y.zero_point, low, low + 255);
}

Status Call(const Problem& p, const ConstMatrix& a, const ConstMatrix& b, const MutableMatrix& y) {
  const auto run = p.operation == Operation::kAdd   ? Add
                   : p.operation == Operation::kSub ? Sub
                                                    : Mul;
  return run(a, p.a, b, p.b, p.y, p.range, y);
}

std::vector<uint8_t> Outputs(const Problem& p, const std::vector<uint8_t>& a,
                             const std::vector<uint8_t>& b) {
  const auto n = static_cast<int64_t>(a.size());
  std::vector<uint8_t> y(a.size(), 0xA5);
  EXPECT_EQ(Call(p, {a.data(), p.x_type, 1, n, n}, {b.data(), p.x_type, 1, n, n},
                 {y.data(), p.y_type, 1, n, n})
                .error,
            "");
  return y;
}

TEST(AddAndSub, DecideTheNearestMissesOfTies) {
  // Ma*da*2^i + Mb*db = (2n+1)*My*2^j + rest with the smallest rest, or none: sums wider than a
  // double, next to a tie or exactly on it.
  Random random(77);
  int tried = 0, ties = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const int i = static_cast<int>(random.Between(0, 26));
    const int64_t ma = random.Between(1 << 22, (1 << 24) - 1);
    const int64_t da = random.Between(1, 127) * (random.Between(0, 1) == 0 ? 1 : -1);
    const int64_t db = trial % 2 == 0 ? 1 : random.Between(1, 127);
    const int64_t n = random.Between(0, 90);
    const __int128 larger = static_cast<__int128>(ma) * std::abs(da) << i;
    const __int128 odd = 2 * n + 1;
    int j = 0;
    while (larger / (odd << j) >= (1 << 24)) ++j;
    const int64_t my = static_cast<int64_t>(larger / (odd << j));
    const __int128 missing = (odd * my << j) - larger;  // <= 0
    const auto mb = static_cast<int64_t>(-missing / db);
    if (my < 1 || mb < 1 || mb >= 1 << 24) continue;
    // da > 0: a adds `larger`, b takes mb*db away again; da < 0: the mirror image.
    const int64_t sign = da > 0 ? 1 : -1;
    ++tried;
    ties += mb * db == -missing;
    Problem p;
    p.x_type = ElementType::kS8;
    p.y_type = ElementType::kS8;
    p.a.scale = std::ldexp(static_cast<float>(ma), i - 40);
    p.b.scale = std::ldexp(static_cast<float>(mb), -40);
    p.y.scale = std::ldexp(static_cast<float>(my), j + 1 - 40);
    const auto a = static_cast<uint8_t>(da);
    for (const Operation operation : {Operation::kAdd, Operation::kSub}) {
      p.operation = operation;
      const auto b = static_cast<uint8_t>(-sign * Sign(p) * db);
      // Also one step to the other side of it.
      const auto other = static_cast<uint8_t>(-sign * Sign(p) * (db + 1));
      const int32_t expected = Reference(p, a, b);
      const int32_t other_expected = Reference(p, a, other);
      ForEachTarget([&](const std::string&) {
        const std::vector<uint8_t> y = Outputs(p, {a, a}, {b, other});
        ASSERT_EQ(Code(y[0], p.y_type), expected) << Text(p);
        ASSERT_EQ(Code(y[1], p.y_type), other_expected) << Text(p);
      });
    }
  }
  EXPECT_GT(tried, 1000);
  EXPECT_GT(ties, 300);
}

void ExpectReferences(const Problem& p, const std::vector<uint8_t>& a,
                      const std::vector<uint8_t>& b) {
  std::vector<int32_t> expected;
  for (size_t i = 0; i < a.size(); ++i) expected.push_back(Reference(p, a[i], b[i]));
  ForEachTarget([&](const std::string&) {
    const std::vector<uint8_t> y = Outputs(p, a, b);
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(Code(y[i], p.y_type), expected[i]) << Text(p) << " " << i;
    }
  });
}

// a alone is a tie; b moves the sum to one side of it by less than a float32 of its size can hold.
TEST(AddAndSub, TheSmallerOperandDecidesTies) {
  for (const Operation operation : {Operation::kAdd, Operation::kSub}) {
    for (int exponent = 2; exponent <= 60; ++exponent) {
      Problem p;
      p.operation = operation;
      p.x_type = p.y_type = ElementType::kS8;
      p.a.scale = 0.5f;
      p.b.scale = std::ldexp(1.0f, -exponent);
      std::vector<uint8_t> a, b;
      for (int da = -127; da <= 127; da += 2) {
        for (const int db : {-128, -1, 0, 1, 127}) {
          a.push_back(static_cast<uint8_t>(da));
          b.push_back(static_cast<uint8_t>(db));
        }
      }
      ExpectReferences(p, a, b);
    }
  }
}

// Multipliers that are floats, but of 24 bits: the difference of two products lies next to 1/2.
TEST(AddAndSub, LargeTermsThatCancelDecideTies) {
  for (const Operation operation : {Operation::kAdd, Operation::kSub}) {
    for (const float scale : {0x1.000002p-1f, 0x1.fffffep-2f}) {
      Problem p;
      p.operation = operation;
      p.x_type = p.y_type = ElementType::kS8;
      p.a.scale = p.b.scale = scale;
      std::vector<uint8_t> a, b;
      for (int da = -126; da <= 126; ++da) {
        for (const int difference : {-1, 1}) {
          a.push_back(static_cast<uint8_t>(da));
          b.push_back(static_cast<uint8_t>(-Sign(p) * (da - difference)));
        }
      }
      ExpectReferences(p, a, b);
    }
  }
}

TEST(Binary, WorksOverEitherOperand) {
  Random random(9);
  for (const Operation operation : kOperations) {
    Problem p;
    p.operation = operation;
    p.a = {0.02f, 3};
    p.b = {0.01f, -7};
    p.y = {0.01f, 40};
    for (size_t columns = 1; columns <= 150; ++columns) {
      std::vector<uint8_t> a(columns), b(columns);
      for (uint8_t& v : a) v = static_cast<uint8_t>(random.Next());
      for (uint8_t& v : b) v = static_cast<uint8_t>(random.Next());
      const auto n = static_cast<int64_t>(columns);
      ForEachTarget([&](const std::string&) {
        const std::vector<uint8_t> expected = Outputs(p, a, b);
        for (const bool over_b : {false, true}) {
          std::vector<uint8_t> first = a, second = b;
          std::vector<uint8_t>& y = over_b ? second : first;
          ASSERT_TRUE(Call(p, {first.data(), p.x_type, 1, n, n}, {second.data(), p.x_type, 1, n, n},
                           {y.data(), p.y_type, 1, n, n})
                          .ok());
          ASSERT_EQ(y, expected) << columns << " over " << (over_b ? "b" : "a");
        }
      });
    }
  }
}

// Gaps in one matrix, in two, in all: rows are joined only where none has any.
TEST(Binary, StridesOfTheThreeMatricesAreIndependent) {
  Random random(10);
  constexpr size_t kRows = 3, kColumns = 19;
  for (const Operation operation : kOperations) {
    Problem p;
    p.operation = operation;
    p.a = {0x1.3p-6f, 17};
    p.b = {0x1.9p-6f, -5};
    p.y = {operation != Operation::kMul ? 0x1p-5f : 0x1p-8f, 40};
    for (size_t gaps = 0; gaps < 8; ++gaps) {
      const size_t a_stride = kColumns + (gaps & 1) * 3;
      const size_t b_stride = kColumns + (gaps >> 1 & 1) * 2;
      const size_t y_stride = kColumns + (gaps >> 2) * 5;
      const auto size = [](size_t stride) { return (kRows - 1) * stride + kColumns; };
      std::vector<uint8_t> a(size(a_stride)), b(size(b_stride)), y(size(y_stride));
      for (uint8_t& v : a) v = static_cast<uint8_t>(random.Next());
      for (uint8_t& v : b) v = static_cast<uint8_t>(random.Next());
      ForEachTarget([&](const std::string&) {
        std::vector<uint8_t> expected(y.size(), 0xA5);
        for (size_t row = 0; row < kRows; ++row) {
          const auto of = [&](const std::vector<uint8_t>& matrix, size_t stride) {
            const uint8_t* first = matrix.data() + row * stride;
            return std::vector<uint8_t>(first, first + kColumns);
          };
          std::ranges::copy(Outputs(p, of(a, a_stride), of(b, b_stride)),
                            expected.data() + row * y_stride);
        }
        std::fill(y.begin(), y.end(), uint8_t{0xA5});
        ASSERT_TRUE(Call(p, {a.data(), p.x_type, kRows, kColumns, int64_t(a_stride)},
                         {b.data(), p.x_type, kRows, kColumns, int64_t(b_stride)},
                         {y.data(), p.y_type, kRows, kColumns, int64_t(y_stride)})
                        .ok());
        ASSERT_EQ(y, expected) << gaps;
      });
    }
  }
}

TEST(Binary, InvalidArgumentsAreErrors) {
  std::vector<uint8_t> codes(6, 1), out(6, 0xA5);
  const auto errors = [&](const auto& change) {
    ConstMatrix a{codes.data(), ElementType::kU8, 2, 3, 3};
    ConstMatrix b = a;
    MutableMatrix y{out.data(), ElementType::kU8, 2, 3, 3};
    Problem p;
    change(a, b, y, p);
    p.operation = Operation::kAdd;
    const std::string add = Call(p, a, b, y).error;
    for (const Operation operation : {Operation::kSub, Operation::kMul}) {
      p.operation = operation;
      EXPECT_EQ(Call(p, a, b, y).error, add);
    }
    EXPECT_EQ(out, std::vector<uint8_t>(6, 0xA5));
    return add;
  };
  using C = ConstMatrix;
  using M = MutableMatrix;
  EXPECT_EQ(errors([](C& a, C&, M&, Problem&) { a.type = ElementType::kF32; }),
            "a.type is f32, expected u8 or s8");
  EXPECT_EQ(errors([](C&, C& b, M&, Problem&) { b.type = ElementType::kS8; }),
            "b.type is s8, expected u8");
  EXPECT_EQ(errors([](C&, C& b, M&, Problem&) { b.data = nullptr; }),
            "b.data is null, expected rows * columns elements");
  EXPECT_EQ(errors([](C&, C& b, M&, Problem&) { b.rows = 1; }),
            "y is 2 x 3, expected the shape of the input, 1 x 3");
  EXPECT_EQ(errors([](C&, C&, M& y, Problem&) { y.type = ElementType::kS32; }),
            "y.type is s32, expected u8 or s8");
  EXPECT_EQ(errors([](C&, C&, M&, Problem& p) { p.a.scale = 0; }),
            "a_q.scale is 0, expected a finite number > 0");
  EXPECT_EQ(errors([](C&, C&, M&, Problem& p) { p.b.scale = INFINITY; }),
            "b_q.scale is inf, expected a finite number > 0");
  EXPECT_EQ(errors([](C&, C&, M&, Problem& p) { p.y.scale = -1; }),
            "y_q.scale is -1, expected a finite number > 0");
  EXPECT_EQ(errors([](C&, C&, M&, Problem& p) { p.range = {.min = 9, .max = 8}; }),
            "range is [9, 8], expected min <= max and an overlap with u8");
  // Empty is not an error, and writes nothing.
  EXPECT_EQ(errors([](C& a, C& b, M& y, Problem&) {
              a.rows = b.rows = y.rows = 0;
              a.data = b.data = nullptr;
              y.data = nullptr;
            }),
            "");
}

}  // namespace
}  // namespace qualm::kernels
