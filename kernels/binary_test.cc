// SPDX-License-Identifier: Apache-2.0
// add, sub and mul against exact integer references, on every instruction set.
#include "kernels/binary.h"

#include <gtest/gtest.h>

#include <cfenv>

#include "kernels/common/test_support.h"

namespace qualm::kernels {
namespace {

using test::Exactly;
using test::ForEachTarget;
using test::GuardedBuffer;
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

// The bounds of the code.
std::pair<int32_t, int32_t> Limits(const Problem& p) {
  int32_t lo = p.y_type == ElementType::kU8 ? 0 : -128;
  int32_t hi = p.y_type == ElementType::kU8 ? 255 : 127;
  lo = std::max(lo, p.range.min);
  hi = std::min(hi, p.range.max);
  if (p.range.relu) lo = std::min(std::max(lo, p.y.zero_point), hi);
  return {lo, hi};
}

int32_t Reference(const Problem& p, uint8_t a, uint8_t b) {
  const __int128 da = static_cast<__int128>(Code(a, p.x_type)) - p.a.zero_point;
  const __int128 db = static_cast<__int128>(Code(b, p.x_type)) - p.b.zero_point;
  const Term sa = Exactly(p.a.scale);
  const Term sb = Exactly(p.b.scale);
  std::vector<Term> value;
  if (p.operation != Operation::kMul) {
    value = {{sa.mantissa * da, sa.exponent}, {Sign(p) * sb.mantissa * db, sb.exponent}};
  } else {
    value = {{sa.mantissa * da * sb.mantissa * db, sa.exponent + sb.exponent}};
  }
  const auto [lo, hi] = Limits(p);
  return test::ReferenceCode(value, Exactly(p.y.scale), p.y.zero_point, lo, hi);
}

// The same in 128-bit integers, for scales of like size.
int32_t QuickReference(const Problem& p, uint8_t a, uint8_t b) {
  const __int128 da = Code(a, p.x_type) - p.a.zero_point;
  const __int128 db = Code(b, p.x_type) - p.b.zero_point;
  const Term sa = Exactly(p.a.scale), sb = Exactly(p.b.scale), sy = Exactly(p.y.scale);
  __int128 numerator = 0;
  __int128 denominator = sy.mantissa;
  if (p.operation != Operation::kMul) {
    const int lowest = std::min({sa.exponent, sb.exponent, sy.exponent});
    numerator = (sa.mantissa * da << (sa.exponent - lowest)) +
                (Sign(p) * sb.mantissa * db << (sb.exponent - lowest));
    denominator <<= sy.exponent - lowest;
  } else {
    const int shift = sa.exponent + sb.exponent - sy.exponent;
    numerator = sa.mantissa * sb.mantissa * da * db;
    (shift >= 0 ? numerator : denominator) <<= std::abs(shift);
  }
  __int128 floor = numerator / denominator;
  __int128 rest = numerator % denominator;
  if (rest < 0) {
    rest += denominator;
    --floor;
  }
  if (2 * rest > denominator || (2 * rest == denominator && floor % 2 != 0)) ++floor;
  const auto [lo, hi] = Limits(p);
  const __int128 code = floor + p.y.zero_point;
  return static_cast<int32_t>(code < lo ? lo : code > hi ? hi : code);
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

Operation RandomOperation(Random& random) { return kOperations[random.Between(0, 2)]; }
ElementType RandomType(Random& random) {
  return random.Between(0, 1) == 0 ? ElementType::kU8 : ElementType::kS8;
}
OutputRange RandomRange(Random& random) {
  if (random.Between(0, 3) != 0) return {};
  return {.min = static_cast<int32_t>(random.Between(-128, 60)),
          .max = static_cast<int32_t>(random.Between(60, 255)),
          .relu = random.Between(0, 1) == 0};
}

TEST(Binary, EveryPairOfCodesForOrdinaryScales) {
  Random random(5);
  std::vector<uint8_t> a(65536), b(65536);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<uint8_t>(i);
    b[i] = static_cast<uint8_t>(i / 256);
  }
  for (int trial = 0; trial < 72; ++trial) {
    Problem p;
    p.operation = kOperations[trial % 3];
    p.x_type = RandomType(random);
    p.y_type = RandomType(random);
    p.range = RandomRange(random);
    const auto zero = [&](ElementType type) {
      return static_cast<int32_t>(random.Between(0, 255)) - (type == ElementType::kS8 ? 128 : 0);
    };
    p.a.zero_point = zero(p.x_type);
    p.b.zero_point = zero(p.x_type);
    p.y.zero_point = zero(p.y_type);
    switch (trial / 3 % 4) {
      case 0:  // random
        p.a.scale = random.Scale(-7, -4);
        p.b.scale = random.Scale(-9, -4);
        p.y.scale = random.Scale(-6, -3);
        break;
      case 1:  // powers of two: half of the results are ties
        p.a.scale = random.Between(0, 1) == 0 ? 0x1p-6f : 0x1p-7f;
        p.b.scale = 0x1p-6f;
        p.y.scale = p.operation != Operation::kMul ? 0x1p-5f : 0x1p-8f;
        break;
      case 2:  // ties of multipliers that are no floats
        p.a.scale = 0.05f;
        p.b.scale = 0.05f * 3;
        p.y.scale = 0.05f * 6;
        break;
      default:  // one operand hardly matters, or one of both is a denormal
        p.a.scale = random.Scale(-7, -6);
        p.b.scale = p.a.scale * 0x1p-12f;
        p.y.scale = p.operation != Operation::kMul ? random.Scale(-6, -5) : random.Scale(-19, -16);
        break;
    }
    std::vector<int32_t> expected(a.size());
    for (size_t i = 0; i < a.size(); ++i) expected[i] = QuickReference(p, a[i], b[i]);
    ForEachTarget([&](const std::string&) {
      const std::vector<uint8_t> y = Outputs(p, a, b);
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(Code(y[i], p.y_type), expected[i])
            << Text(p) << " codes " << Code(a[i], p.x_type) << ", " << Code(b[i], p.x_type);
      }
    });
  }
}

// Scales whose results do not all saturate, from the smallest to the largest floats.
float Near(Random& random, float scale) {
  const float other = std::ldexp(1.0f + static_cast<float>(random.Next() & 0x7FFFFF) * 0x1p-23f,
                                 std::ilogb(scale) + static_cast<int>(random.Between(-6, 6)));
  return std::min(std::max(other, 0x1p-149f), 0x1.fffffep127f);
}

TEST(Binary, HardScalesAndZeroPoints) {
  const std::vector<float> scales = test::HardScales();
  const std::vector<int32_t> zeros = {
      0,       128,        -128,    7,         300,       -4000,         70000,
      1 << 20, -(1 << 26), 1 << 29, INT32_MIN, INT32_MAX, INT32_MIN + 1, INT32_MAX - 255};
  Random random(21);
  const auto pick = [&](const auto& list) {
    return list[static_cast<size_t>(random.Between(0, static_cast<int64_t>(list.size()) - 1))];
  };
  for (int trial = 0; trial < 4500; ++trial) {
    Problem p;
    p.operation = RandomOperation(random);
    p.x_type = RandomType(random);
    p.y_type = RandomType(random);
    p.range = RandomRange(random);
    p.a = {pick(scales), pick(zeros)};
    p.b = {trial % 3 == 0 ? pick(scales) : Near(random, p.a.scale), pick(zeros)};
    p.y = {trial % 3 == 1 ? Near(random, p.a.scale) : pick(scales), pick(zeros)};
    if (trial % 5 == 0) p.a.zero_point = p.b.zero_point = 3;
    if (trial % 7 == 0) p.y.zero_point = 100;
    if (trial % 11 == 0 && p.operation != Operation::kMul) {  // cancels almost wholly
      p.b.scale = p.a.scale;
      p.y.scale = p.a.scale * 0x1p-20f;
      if (p.y.scale == 0) p.y.scale = 0x1p-149f;
    }
    std::vector<uint8_t> a = {0, 255, 0, 255, 128, 127}, b = {0, 0, 255, 255, 127, 128};
    for (int i = 0; i < 5; ++i) {
      a.push_back(static_cast<uint8_t>(random.Next()));
      b.push_back(static_cast<uint8_t>(random.Next()));
    }
    std::vector<int32_t> expected;
    for (size_t i = 0; i < a.size(); ++i) expected.push_back(Reference(p, a[i], b[i]));
    ForEachTarget([&](const std::string&) {
      const std::vector<uint8_t> y = Outputs(p, a, b);
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(Code(y[i], p.y_type), expected[i])
            << Text(p) << " codes " << Code(a[i], p.x_type) << ", " << Code(b[i], p.x_type);
      }
    });
  }
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

TEST(Binary, TouchesOnlyTheGivenElementsAndWorksInPlace) {
  Random random(9);
  for (size_t columns = 1; columns <= 70; ++columns) {
    for (const Operation operation : kOperations) {
      Problem p;
      p.operation = operation;
      p.x_type = RandomType(random);
      p.y_type = RandomType(random);
      p.a = {random.Scale(-7, -5), static_cast<int32_t>(random.Between(-20, 20))};
      p.b = {random.Scale(-7, -5), static_cast<int32_t>(random.Between(-20, 20))};
      p.y = {operation != Operation::kMul ? 0x1p-5f : 0x1p-9f, 40};
      const size_t rows = columns % 3 + 1;
      const size_t stride = columns + columns % 5;
      const size_t size = (rows - 1) * stride + columns;
      std::vector<uint8_t> va(size), vb(size);
      for (uint8_t& v : va) v = static_cast<uint8_t>(random.Next());
      for (uint8_t& v : vb) v = static_cast<uint8_t>(random.Next());
      const auto matrix = [&](auto* data, ElementType type) {
        return ConstMatrix{data, type, int64_t(rows), int64_t(columns), int64_t(stride)};
      };
      const auto output = [&](uint8_t* data) {
        return MutableMatrix{data, p.y_type, int64_t(rows), int64_t(columns), int64_t(stride)};
      };
      for (const bool at_start : {false, true}) {
        GuardedBuffer<uint8_t> a(size, at_start), b(size, at_start), y(size, at_start);
        ForEachTarget([&](const std::string&) {
          a.Assign(va);
          b.Assign(vb);
          std::fill_n(y.data(), size, uint8_t{0xA5});
          ASSERT_TRUE(
              Call(p, matrix(a.data(), p.x_type), matrix(b.data(), p.x_type), output(y.data()))
                  .ok());
          for (size_t i = 0; i < size; ++i) {
            ASSERT_EQ(a[i], va[i]);
            ASSERT_EQ(b[i], vb[i]);
            if (i % stride >= columns) {
              ASSERT_EQ(y[i], 0xA5) << i;
            } else {
              ASSERT_EQ(Code(y[i], p.y_type), Reference(p, va[i], vb[i])) << i;
            }
          }
          // Over the first operand, over the second, over both.
          for (uint8_t* data : {a.data(), b.data()}) {
            a.Assign(va);
            b.Assign(vb);
            ASSERT_TRUE(
                Call(p, matrix(a.data(), p.x_type), matrix(b.data(), p.x_type), output(data)).ok());
            for (size_t i = 0; i < size; ++i) {
              const uint8_t expected =
                  i % stride < columns ? y[i] : (data == a.data() ? va : vb)[i];
              ASSERT_EQ(data[i], expected) << i;
            }
          }
          a.Assign(va);
          ASSERT_TRUE(
              Call(p, matrix(a.data(), p.x_type), matrix(a.data(), p.x_type), output(a.data()))
                  .ok());
          for (size_t i = 0; i < size; ++i) {
            if (i % stride < columns) {
              ASSERT_EQ(Code(a[i], p.y_type), Reference(p, va[i], va[i])) << i;
            }
          }
        });
      }
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
        std::fill(y.begin(), y.end(), uint8_t{0xA5});
        ASSERT_TRUE(Call(p, {a.data(), p.x_type, kRows, kColumns, int64_t(a_stride)},
                         {b.data(), p.x_type, kRows, kColumns, int64_t(b_stride)},
                         {y.data(), p.y_type, kRows, kColumns, int64_t(y_stride)})
                        .ok());
        for (size_t i = 0; i < y.size(); ++i) {
          const size_t row = i / y_stride, column = i % y_stride;
          if (column >= kColumns) {
            ASSERT_EQ(y[i], 0xA5) << gaps << " " << i;
          } else {
            ASSERT_EQ(Code(y[i], p.y_type),
                      Reference(p, a[row * a_stride + column], b[row * b_stride + column]))
                << gaps << " " << i;
          }
        }
      });
    }
  }
}

TEST(Binary, DoesNotDependOnTheRoundingMode) {
  for (const Operation operation : kOperations) {
    Problem p;
    p.operation = operation;
    p.a = {0.05f, 3};
    p.b = {0.15f, 5};
    p.y = {operation != Operation::kMul ? 0.3f : 0.015f, 1};
    std::vector<uint8_t> a, b;
    for (int i = 0; i < 1000; ++i) {
      a.push_back(static_cast<uint8_t>(i));
      b.push_back(static_cast<uint8_t>(i / 4));
    }
    ForEachTarget([&](const std::string&) {
      const std::vector<uint8_t> expected = Outputs(p, a, b);
      for (const int mode : {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO}) {
        std::fesetround(mode);
        const std::vector<uint8_t> y = Outputs(p, a, b);
        std::fesetround(FE_TONEAREST);
        ASSERT_EQ(y, expected) << mode;
      }
    });
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
