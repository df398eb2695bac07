// SPDX-License-Identifier: Apache-2.0
// concat, table and softmax: examples worked out by hand, and the whole domain of a table in both
// forms.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/rng.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {
namespace {

constexpr Function kFunctions[] = {Function::kRelu, Function::kLeakyRelu, Function::kHardSwish,
                                   Function::kSigmoid, Function::kTanh};

Case Codes(Op op, DType dtype, std::vector<int32_t> codes, int64_t rows = 1) {
  Case c;
  c.op = op;
  c.M = rows;
  c.N = static_cast<int64_t>(codes.size()) / rows;
  c.x = Tensor(dtype, {c.M, c.N});
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, codes[static_cast<size_t>(i)]);
  c.out_dtype = dtype;
  c.out_min = RangeOf(dtype).min;
  c.out_max = RangeOf(dtype).max;
  return c;
}

Case TableOf(Function function, DType dtype, std::vector<int32_t> codes, float scale,
             int32_t zero_point, float out_scale, int32_t out_zero_point = 0) {
  Case c = Codes(Op::kTable, dtype, std::move(codes));
  c.function = function;
  c.x_q = {{scale}, {zero_point}};
  c.out_q = {{out_scale}, {out_zero_point}};
  return c;
}

Case SoftmaxOf(DType dtype, std::vector<int32_t> codes, float scale, int64_t rows = 1) {
  Case c = Codes(Op::kSoftmax, dtype, std::move(codes), rows);
  c.x_q = {{scale}, {7}};
  c.out_q = {{0x1p-8f}, {RangeOf(dtype).min}};
  return c;
}

std::vector<int32_t> Ints(const Tensor& y) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < y.size(); ++i) values.push_back(y.IntAt(i));
  return values;
}

void ExpectBoth(const Case& c, const std::vector<int32_t>& expected) {
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(Ints(Evaluate(c)), expected);
  EXPECT_EQ(Ints(EvaluateRational(c)), expected);
  for (size_t i = 0; i < expected.size(); ++i) {
    const Trace trace = Derive(c, static_cast<int64_t>(i));
    ASSERT_FALSE(trace.empty());
    EXPECT_EQ(trace.back().value, std::to_string(expected[i]));
  }
}

TEST(TableMeaning, RationalFunctions) {
  // v = 0.5 * (x - 10): -5 -1 -0.5 0 0.5 1.5 5; sy = 1, ties to even.
  const std::vector<int32_t> codes = {0, 8, 9, 10, 11, 13, 20};
  ExpectBoth(TableOf(Function::kRelu, DType::kU8, codes, 0.5f, 10, 1, 100),
             {100, 100, 100, 100, 100, 102, 105});
  Case leaky = TableOf(Function::kLeakyRelu, DType::kU8, codes, 0.5f, 10, 1, 100);
  leaky.negative_slope = 0.5f;  // -2.5 -0.5 -0.25
  ExpectBoth(leaky, {98, 100, 100, 100, 100, 102, 105});
  leaky.negative_slope = 0;
  ExpectBoth(leaky, {100, 100, 100, 100, 100, 102, 105});
  // -3 and below: 0; 3 and above: v; else v(v+3)/6: -1/3 -5/24 0 7/24 9/8. In steps of 1/24.
  ExpectBoth(TableOf(Function::kHardSwish, DType::kU8, codes, 0.5f, 10, 0x1p-4f, 100),
             {100, 95, 97, 100, 105, 118, 180});
}

TEST(TableMeaning, RealFunctions) {
  // sigmoid(-1, 0, 1) * 256 = 68.8, 128, 187.2; tanh * 128 = -97.5, 0, 97.5 (97.48...).
  ExpectBoth(TableOf(Function::kSigmoid, DType::kU8, {0, 1, 2, 255}, 1, 1, 0x1p-8f),
             {69, 128, 187, 255});
  ExpectBoth(TableOf(Function::kTanh, DType::kS8, {-1, 0, 1, 127, -128}, 1, 0, 0x1p-7f),
             {-97, 0, 97, 127, -128});
  // sigmoid(0) / 1 is a tie, to even; next to it is none.
  ExpectBoth(TableOf(Function::kSigmoid, DType::kS8, {-1, 0, 1}, 0x1p-149f, 0, 1), {0, 0, 1});
}

TEST(TableMeaning, DerivationNamesTheFunction) {
  const Case c = TableOf(Function::kSigmoid, DType::kU8, {2}, 0.5f, 1, 0x1p-8f);
  EXPECT_EQ(RealValueText(c, 0), "sigmoid(1/2) / (1/256)");
  const Trace trace = Derive(c, 0);
  ASSERT_EQ(trace.size(), 7u);
  EXPECT_EQ(trace[2].text, "apply sigmoid = 0.622459331...");
  EXPECT_EQ(trace[2].value, "sigmoid(1/2)");
  EXPECT_EQ(trace[4].text, "round to the nearest integer: 159.349589... = 159");
  // At 0 the values are rational, and told as they are.
  EXPECT_EQ(RealValueText(TableOf(Function::kSigmoid, DType::kU8, {1}, 0.5f, 1, 0x1p-8f), 0),
            "128");
  EXPECT_EQ(RealValueText(TableOf(Function::kTanh, DType::kU8, {1}, 0.5f, 1, 0x1p-8f), 0), "0");
  EXPECT_EQ(RealValueText(TableOf(Function::kTanh, DType::kU8, {2}, 0.5f, 1, 0x1p-8f), 0),
            "tanh(1/2) / (1/256)");
}

// Every code of both types, every function, many scales and zero points.
TEST(TableMeaning, WholeDomainInBothForms) {
  Rng rng(12);
  constexpr float kScales[] = {0x1p-149f, 0x1p-30f, 0x1p-8f,    1.0f / 127, 0x1p-4f, 0.1f,
                               1.0f,      0x1.8p1f, 6.0f / 255, 0x1p20f,    0x1p127f};
  constexpr int32_t kZeros[] = {0, 128, -128, 3, 300, INT32_MIN, INT32_MAX};
  for (int trial = 0; trial < 400; ++trial) {
    const DType dtype = trial % 2 == 0 ? DType::kU8 : DType::kS8;
    std::vector<int32_t> codes(256);
    std::iota(codes.begin(), codes.end(), RangeOf(dtype).min);
    const auto scale = [&] {
      return rng.Chance(1, 2) ? kScales[rng.Below(std::size(kScales))]
                              : std::ldexp(static_cast<float>(rng.Between(1 << 23, 1 << 24)),
                                           static_cast<int>(rng.Between(-34, -24)));
    };
    const float x_scale = scale();
    const float y_scale = scale();
    Case c = TableOf(kFunctions[static_cast<size_t>(trial) % 5], dtype, codes, x_scale,
                     kZeros[rng.Below(std::size(kZeros))], y_scale,
                     kZeros[rng.Below(std::size(kZeros))]);
    if (c.function == Function::kLeakyRelu) c.negative_slope = scale();
    ASSERT_EQ(Validate(c), "");
    ASSERT_EQ(Ints(Evaluate(c)), Ints(EvaluateRational(c)))
        << Name(c.function) << std::hexfloat << " " << x_scale << " " << y_scale << " zero points "
        << c.x_q.zero_point[0] << " " << c.out_q.zero_point[0];
  }
}

TEST(SoftmaxMeaning, Examples) {
  // One code has all of 256 shares, of which 255 fit.
  ExpectBoth(SoftmaxOf(DType::kU8, {3}, 1), {255});
  ExpectBoth(SoftmaxOf(DType::kS8, {3}, 1), {127});
  ExpectBoth(SoftmaxOf(DType::kU8, {9, 9}, 1), {128, 128});
  // 256/3 = 85.3; 256/512 = 1/2: half goes up.
  ExpectBoth(SoftmaxOf(DType::kU8, {1, 1, 1}, 1), {85, 85, 85});
  ExpectBoth(SoftmaxOf(DType::kU8, std::vector<int32_t>(512, 200), 1),
             std::vector<int32_t>(512, 1));
  EXPECT_EQ(TieDistance(SoftmaxOf(DType::kU8, std::vector<int32_t>(512, 200), 1), 3), 0.0);
  EXPECT_NEAR(*TieDistance(SoftmaxOf(DType::kU8, {1, 1, 1}, 1), 1), 1.0 / 3, 1e-6);
  // e^0, e^-1, e^-2 by their sum: 0.6652, 0.2447, 0.0900. Row by row.
  ExpectBoth(SoftmaxOf(DType::kU8, {2, 1, 0, 0, 0, 255}, 1, 2), {170, 63, 23, 0, 0, 255});
  ExpectBoth(SoftmaxOf(DType::kS8, {-128, 127}, 1), {-128, 127});
}

// 1000 rows' worth of the largest numerators leave 32 bits where each is rounded up.
TEST(SoftmaxMeaning, SumMayExceed32Bits) {
  int64_t exceeding = 0;
  for (int64_t n = 513; n < 1100; ++n) {
    const Case c = SoftmaxOf(DType::kU8, std::vector<int32_t>(static_cast<size_t>(n), 7), 1);
    const Tensor y = Evaluate(c);
    ASSERT_EQ(y, EvaluateRational(c));
    // All alike: floor(256/n + 1/2).
    ASSERT_EQ(y.IntAt(0), (512 + n) / (2 * n));
    const int64_t t = (2 * ((int64_t{1} << 32) - 1) + n) / (2 * n);
    exceeding += n * t > UINT32_MAX ? 1 : 0;
  }
  EXPECT_GT(exceeding, 100);
}

// The numerators of rows beyond 512 depend on the row's length; those of another length are kept
// from the case before.
TEST(SoftmaxMeaning, NumeratorsAreThoseOfTheRowLength) {
  Evaluate(SoftmaxOf(DType::kU8, std::vector<int32_t>(513, 7), 1));
  std::vector<int32_t> codes(1000, 7);
  codes[0] = 12;
  const Case c = SoftmaxOf(DType::kU8, codes, 1);
  const Tensor y = Evaluate(c);
  EXPECT_EQ(y, EvaluateRational(c));
  EXPECT_EQ(y.IntAt(0), 33);  // 256 / (1 + 999 * e^-5)
}

TEST(ConcatMeaning, EachInputHasItsParameters) {
  Case c = Codes(Op::kConcat, DType::kU8, {10, 11, 20, 21}, 2);
  c.N = 3;
  c.w = Tensor(DType::kU8, {2, 1});
  c.w.SetInt(0, 30);
  c.w.SetInt(1, 31);
  c.x_q = {{0.5f}, {10}};
  c.w_q = {{2}, {20}};
  c.out_q = {{1}, {100}};
  ExpectBoth(c, {100, 100, 120, 105, 106, 122});  // 0.5 and 5.5 go to even
}

}  // namespace
}  // namespace qualm::exact
