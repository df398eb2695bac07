// SPDX-License-Identifier: Apache-2.0
// The bounds of the permitted variations on cases small enough to work them out by hand, from what
// docs/backends.md says of each: the bound inside its domain, and both sides of the numbers where
// it becomes 0 or ends. variation_digests_test.cc holds the same formulas on many drawn cases.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/case.h"
#include "oracles/conventions/test_util.h"
#include "oracles/conventions/variations.h"
#include "oracles/exact/exact.h"

namespace qualm {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSmallest = 0x1p-149;  // the smallest float32
constexpr double kTie = 0x1p-36;        // what a double near a tie may be off
constexpr float kUlp = 0x1p-23f;        // 1 + kUlp is the float32 behind 1

// How far the variation reaches in one output.
double ReachAt(std::string_view id, const Case& c, size_t index = 0) {
  EXPECT_EQ(Validate(c), "");
  return Reach(id, c).at(index);
}

Tensor Codes(DType dtype, std::vector<int64_t> shape, const std::vector<int32_t>& codes) {
  Tensor tensor(dtype, std::move(shape));
  EXPECT_EQ(tensor.size(), static_cast<int64_t>(codes.size()));
  for (size_t i = 0; i < codes.size(); ++i) tensor.SetInt(static_cast<int64_t>(i), codes[i]);
  return tensor;
}

// Scales are 1 and zero points 0 in all cases below, unless a test sets them.

// One sum of products, as a linear.
Case Linear(const std::vector<int32_t>& x, const std::vector<int32_t>& w, DType x_type = DType::kU8,
            DType w_type = DType::kS8) {
  Case c;
  c.op = Op::kLinear;
  c.M = c.N = 1;
  c.K = static_cast<int64_t>(x.size());
  c.x = Codes(x_type, {1, c.K}, x);
  c.w = Codes(w_type, {1, c.K}, w);
  return c;
}

// The same with three scales.
Case Linear(int32_t x, int32_t w, float x_scale, float w_scale, float out_scale) {
  Case c = Linear({x}, {w});
  c.x_q.scale = {x_scale};
  c.w_q.scale = {w_scale};
  c.out_q.scale = {out_scale};
  return c;
}

// The same sum as a convolution of one pixel with a channel for each term.
Case Conv(const std::vector<int32_t>& x, const std::vector<int32_t>& w, DType x_type = DType::kU8) {
  const auto depth = static_cast<int64_t>(x.size());
  Case c;
  c.op = Op::kConv2d;
  c.N = 1;
  c.window.batch = c.window.in_h = c.window.in_w = 1;
  c.window.in_c = depth;
  c.x = Codes(x_type, {1, 1, 1, depth}, x);
  c.w = Codes(DType::kS8, {1, 1, 1, depth}, w);
  DeriveSizes(&c);
  return c;
}

Case Requantize(int32_t sum, float scale = 1.0f) {
  Case c = CaseOver(Op::kRequantize, Codes(DType::kS32, {1, 1}, {sum}), DType::kU8);
  c.x_q.scale = {scale};
  return c;
}

Case Quantize(float x, float scale = 1.0f) {
  Case c = CaseOver(Op::kQuantize, Tensor::Of<float>({1, 1}, std::vector<float>{x}), DType::kU8);
  c.out_q.scale = {scale};
  return c;
}

Case Dequantize(int32_t code, float scale) {
  Case c = CaseOver(Op::kDequantize, Codes(DType::kU8, {1, 1}, {code}), DType::kF32);
  c.x_q.scale = {scale};
  return c;
}

Case Rescale(int32_t code, float x_scale, float out_scale) {
  Case c = CaseOver(Op::kRescale, Codes(DType::kU8, {1, 1}, {code}), DType::kU8);
  c.x_q.scale = {x_scale};
  c.out_q.scale = {out_scale};
  return c;
}

Case Table(Function function, int32_t code, float x_scale, float out_scale) {
  Case c = Rescale(code, x_scale, out_scale);
  c.op = Op::kTable;
  c.function = function;
  return c;
}

// Two operands, or the two columns of a concat.
Case Two(Op op, int32_t a, int32_t b, float a_scale, float b_scale, float out_scale) {
  Case c = Rescale(a, a_scale, out_scale);
  c.op = op;
  c.w = Codes(DType::kU8, {1, 1}, {b});
  c.w_q.scale = {b_scale};
  if (op == Op::kConcat) c.N = 2;
  return c;
}

// An image of one channel.
Case Pool(Op op, int64_t height, int64_t width, const std::vector<int32_t>& x) {
  Case c;
  c.op = op;
  c.N = c.window.in_c = c.window.batch = 1;
  c.window.in_h = height;
  c.window.in_w = width;
  if (op == Op::kGlobalAvgPool) {
    c.window.kernel_h = height;
    c.window.kernel_w = width;
  }
  c.x = Codes(DType::kU8, {1, height, width, 1}, x);
  DeriveSizes(&c);
  return c;
}

Case Softmax(const std::vector<int32_t>& row) {
  Case c = CaseOver(Op::kSoftmax, Codes(DType::kU8, {1, static_cast<int64_t>(row.size())}, row),
                    DType::kU8);
  c.out_q = FixedOutQParams(DType::kU8);
  return c;
}

// A row of values to choose a scale and a zero point for: outputs 0 and 1.
Case Choose(const std::vector<float>& x) {
  Case c;
  c.op = Op::kChooseQParams;
  c.M = 1;
  c.N = static_cast<int64_t>(x.size());
  c.x = Tensor::Of<float>({1, 1, c.N}, x);
  c = Into(c, DType::kF32);
  return c;
}

// M rows of x, which choose their codes, by N rows of w.
Case Dynamic(int64_t M, const std::vector<float>& x, int64_t N, const std::vector<int32_t>& w) {
  Case c;
  c.op = Op::kDynamicLinear;
  c.M = M;
  c.N = N;
  c.K = static_cast<int64_t>(x.size()) / M;
  c.x = Tensor::Of<float>({M, c.K}, x);
  c.w = Codes(DType::kS8, {N, c.K}, w);
  c = Into(c, DType::kF32);
  return c;
}

Case WithBias(Case c, float bias) {
  c.bias = {bias};
  return c;
}

Case WithBias32(Case c, int32_t bias) {
  c.bias_i32 = {bias};
  return c;
}

Case WithZero(Case c, QParams Case::* q, int32_t zero_point) {
  (c.*q).zero_point = {zero_point};
  return c;
}

// 6 * 5 * 0.5 * 0.25 / 3 = 1.25, where 0.125 / 3 is no float32.
Case FiveQuarters() { return Linear(6, 5, 0.5f, 0.25f, 3.0f); }

TEST(VariationBoundsTest, AFloatMultiplierIsOffByItsRoundings) {
  EXPECT_DOUBLE_EQ(ReachAt("V1", FiveQuarters()), 1.25 * 0x1p-22);
  // 0.125 / 2 is a float32.
  EXPECT_EQ(ReachAt("V1", Linear(6, 5, 0.5f, 0.25f, 2.0f)), 0);
  // The square of 1 + 2^-23 is none.
  EXPECT_DOUBLE_EQ(ReachAt("V1", Linear(6, 5, 1 + kUlp, 1 + kUlp, 1.0f)),
                   30 * std::pow(1 + 0x1p-23, 2) * 0x1p-22);
  // 2^-140 is a float32, and its quotient too, but some processors flush it.
  EXPECT_EQ(ReachAt("V1", Linear(6, 5, 0x1p-70f, 0x1p-70f, 0x1p-100f)), kInfinity);
  // 2^-130 is the quotient.
  EXPECT_EQ(ReachAt("V1", Linear(6, 5, 0x1p-60f, 0x1p-60f, 0x1p10f)), kInfinity);
  // The sum times the scale of x leaves float32.
  EXPECT_EQ(ReachAt("V1", Linear(6, 5, 0x1p124f, 0x1p-120f, 3.0f)), kInfinity);
  EXPECT_EQ(ReachAt("V1", Into(Linear({6}, {5}), DType::kS32)), 0);
  Case given = Requantize(30);
  EXPECT_EQ(ReachAt("V1", given), 0);
  given.x_q.scale = {0.5f};
  given.out_q.scale = {3.0f};  // 30 * 0.5 / 3
  EXPECT_DOUBLE_EQ(ReachAt("V1", given), 5 * 0x1p-22);
  given = CaseOver(Op::kRequantize, given.x, DType::kU8);
  given.multiplier = {0.1f};
  EXPECT_EQ(ReachAt("V1", given), 0);
  EXPECT_EQ(ReachAt("V1", Quantize(1.0f, 3.0f)), 0);
}

TEST(VariationBoundsTest, AFloatMultiplierOfOneScaleIsAQuotient) {
  EXPECT_EQ(ReachAt("V1", Rescale(6, 0.5f, 2.0f)), 0);
  EXPECT_DOUBLE_EQ(ReachAt("V1", Rescale(6, 0.5f, 3.0f)), 1 * 0x1p-22);
  // The quotient of 2^-130 is a float32, but no normal one.
  EXPECT_DOUBLE_EQ(ReachAt("V1", Rescale(6, 0x1p-130f, 1.0f)), 6 * 0x1p-130 * 0x1p-22);
  // Each operand of a sum has a quotient: 6 * 0.5 / 3 + 3 * 0.75 / 3.
  EXPECT_DOUBLE_EQ(ReachAt("V1", Two(Op::kAdd, 6, 3, 0.5f, 0.75f, 3.0f)), 1.75 * 0x1p-22);
  EXPECT_DOUBLE_EQ(ReachAt("V1", Two(Op::kAdd, 6, 3, 0.5f, 1.5f, 3.0f)), 2.5 * 0x1p-22);
  EXPECT_DOUBLE_EQ(ReachAt("V1", Two(Op::kSub, 6, 3, 1.5f, 0.5f, 3.0f)), 3.5 * 0x1p-22);
  EXPECT_EQ(ReachAt("V1", Two(Op::kAdd, 6, 3, 1.5f, 0.75f, 1.5f)), 0);
  // In a product the first operand may be scaled by a quotient of its own, 2^128 or 2^-127.
  EXPECT_EQ(ReachAt("V1", Two(Op::kMul, 6, 3, 0x1p100f, 0x1p-100f, 0x1p-28f)), kInfinity);
  EXPECT_EQ(ReachAt("V1", Two(Op::kMul, 6, 3, 0x1p-100f, 0x1p100f, 0x1p27f)), kInfinity);
  EXPECT_EQ(ReachAt("V1", Two(Op::kMul, 6, 3, 0x1p-100f, 0x1p100f, 0x1p26f)), 0);
  EXPECT_EQ(ReachAt("V1", Requantize(6, 0x1p127f)), 0);
  // A maximum keeps its scale.
  Case pool = Pool(Op::kMaxPool, 1, 1, {6});
  pool.x_q.scale = pool.out_q.scale = {0.3f};
  EXPECT_EQ(ReachAt("V1", pool), 0);
}

TEST(VariationBoundsTest, ReciprocalsAreOffByTheirRoundings) {
  EXPECT_DOUBLE_EQ(ReachAt("V2", FiveQuarters()), 1.25 * 0x1p-20 + kSmallest / 3);
  // Of powers of two there is nothing to round, unless a bias is divided too.
  const Case exact = Linear(6, 5, 0.5f, 0.25f, 2.0f);
  EXPECT_EQ(ReachAt("V2", exact), 0);
  EXPECT_DOUBLE_EQ(ReachAt("V2", WithBias(exact, 1.0f)), (1.875 + 0.5) * 0x1p-20);
  for (QParams Case::* q : {&Case::x_q, &Case::w_q, &Case::out_q}) {
    Case c = exact;
    (c.*q).scale[0] *= 1.5f;
    EXPECT_GT(ReachAt("V2", c), 0);
  }
  // Channel 1 alone has a scale to round.
  Case channels = CaseOver(Op::kDequantize, Codes(DType::kU8, {1, 2}, {6, 6}), DType::kF32);
  channels.per_channel = true;
  channels.x_q = {{0.5f, 0.75f}, {0, 0}};
  EXPECT_EQ(ReachAt("V2", channels, 0), 0);
  EXPECT_DOUBLE_EQ(ReachAt("V2", channels, 1), 4.5 * 0x1p-20);

  Case c = FiveQuarters();
  c = Into(c, DType::kS32);
  c.out_q = {};
  EXPECT_EQ(ReachAt("V2", c), 0);
  c = Requantize(30);
  c.multiplier = {0.1f};
  c.out_q.scale = {3.0f};
  EXPECT_EQ(ReachAt("V2", c), 0);
}

TEST(VariationBoundsTest, ReciprocalsOutsideOfFloat32HaveNoBound) {
  EXPECT_EQ(ReachAt("V2", Linear(6, 5, 0x1p126f, 0x1p-126f, 1.0f)), 0);
  EXPECT_EQ(ReachAt("V2", Linear(6, 5, 0x1p100f, 0x1p26f, 0x1p127f)), kInfinity);   // 1/sy
  EXPECT_EQ(ReachAt("V2", Linear(6, 5, 0x1p127f, 0x1p-120f, 1.0f)), kInfinity);     // 1/sx
  EXPECT_EQ(ReachAt("V2", Linear(6, 5, 0x1p-120f, 0x1p127f, 1.0f)), kInfinity);     // 1/sw
  EXPECT_EQ(ReachAt("V2", Linear(6, 5, 0x1p-70f, 0x1p-70f, 0x1p-30f)), kInfinity);  // sx*sw
  EXPECT_EQ(ReachAt("V2", Linear(6, 5, 0x1p-60f, 0x1p-60f, 0x1p20f)), kInfinity);   // sx*sw/sy
  const auto mul = [](float a, float b, float out) {
    return ReachAt("V2", Two(Op::kMul, 6, 5, a, b, out));
  };
  EXPECT_EQ(mul(0x1p127f, 0x1p-120f, 1.0f), 0);  // the operands are not divided by
  EXPECT_EQ(mul(0x1p-70f, 0x1p-70f, 0x1p-30f), kInfinity);
  EXPECT_EQ(mul(0x1p-60f, 0x1p-60f, 0x1p20f), kInfinity);
}

TEST(VariationBoundsTest, FunctionsAndCountsAreNotExactUnderPowersOfTwo) {
  EXPECT_EQ(ReachAt("V2", Table(Function::kRelu, 6, 0.5f, 0.25f)), 0);
  EXPECT_EQ(ReachAt("V2", Table(Function::kLeakyRelu, 6, 0.5f, 0.25f)), 0);
  // sigmoid(0) is 1/2, 128 codes.
  EXPECT_DOUBLE_EQ(ReachAt("V2", Table(Function::kSigmoid, 0, 0.5f, 0x1p-8f)), 128 * 0x1p-20);
  // hardswish(6) is 6.
  EXPECT_DOUBLE_EQ(ReachAt("V2", Table(Function::kHardSwish, 12, 0.5f, 0.25f)), 24 * 0x1p-20);
  EXPECT_EQ(ReachAt("V2", Pool(Op::kGlobalAvgPool, 1, 1, {6})), 0);
  const auto mean = [](const std::vector<int32_t>& x) {
    const auto width = static_cast<int64_t>(x.size());
    Case c = Pool(Op::kAvgPool, 1, width, x);
    c.window.kernel_w = width;
    DeriveSizes(&c);
    return ReachAt("V2", c);
  };
  EXPECT_EQ(mean({6, 7}), 0);
  EXPECT_DOUBLE_EQ(mean({6, 7, 8}), 7 * 0x1p-20);
  // Half of 256 each.
  EXPECT_DOUBLE_EQ(ReachAt("V2", Softmax({9, 9})), 128 * 0x1p-20);
}

TEST(VariationBoundsTest, AZeroPointBeforeRoundingMovesATie) {
  // 7.5 is a float32 with any zero point that is a code.
  EXPECT_EQ(ReachAt("V3", WithZero(Linear(3, 5, 0.5f, 1.0f, 1.0f), &Case::out_q, 7)), kTie);
  // 35 / 3 is none.
  EXPECT_DOUBLE_EQ(ReachAt("V3", WithZero(Linear(7, 5, 1.0f, 1.0f, 3.0f), &Case::out_q, -9)),
                   (35.0 / 3 + 9) * 0x1p-20 + kTie);
  // 2^22 + 1/2 is a float32. The sum with 2^22 is none; that of the negative number is.
  const double half = 0x1p22 + 0.5;
  const auto with_zero = [](int32_t sum, int32_t zero_point) {
    return ReachAt("V3", WithZero(Requantize(sum, 0.5f), &Case::out_q, zero_point));
  };
  constexpr int32_t kSum = (1 << 23) + 1, kZero = 1 << 22;
  EXPECT_EQ(with_zero(kSum, 0), kTie);
  EXPECT_DOUBLE_EQ(with_zero(kSum, kZero), (half + kZero) * 0x1p-20 + kTie);
  EXPECT_DOUBLE_EQ(with_zero(-kSum, kZero), (half + kZero) * 0x1p-20 + kTie);
  EXPECT_DOUBLE_EQ(with_zero(kSum, -kZero), (half + kZero) * 0x1p-20 + kTie);
  EXPECT_EQ(ReachAt("V3", Into(Linear({6}, {5}), DType::kS32)), 0);
}

TEST(VariationBoundsTest, AZeroPointBeforeRoundingOfASumOfOperands) {
  // Codes and zero points are scaled by themselves: 0.5 * (6 + 2) + 0.25 * (3 + 1) = 5.
  Case c = Two(Op::kAdd, 6, 3, 0.5f, 0.25f, 1.0f);
  c.x_q.zero_point = {2};
  c.w_q.zero_point = {1};
  c.out_q.zero_point = {10};
  EXPECT_DOUBLE_EQ(ReachAt("V3", c), (5 + 10) * 0x1p-20 + kTie);
  // 128 codes of 2^120 are 2^127, 129 are more.
  EXPECT_DOUBLE_EQ(ReachAt("V3", Two(Op::kAdd, 128, 0, 0x1p120f, 1.0f, 1.0f)), 0x1p107);
  EXPECT_EQ(ReachAt("V3", Two(Op::kAdd, 129, 0, 0x1p120f, 1.0f, 1.0f)), kInfinity);
  // The quotient 2^128 is no float32, whatever the code.
  EXPECT_EQ(ReachAt("V3", Two(Op::kAdd, 0, 0, 0x1p120f, 1.0f, 0x1p-8f)), kInfinity);
  EXPECT_EQ(ReachAt("V3", Two(Op::kAdd, 0, 0, 1.0f, 0x1p120f, 0x1p-8f)), kInfinity);
}

TEST(VariationBoundsTest, OtherRoundingsMoveTies) {
  for (const char* id : {"V4", "V5"}) {
    EXPECT_EQ(ReachAt(id, FiveQuarters()), kTie);
    EXPECT_EQ(ReachAt(id, Quantize(0.5f)), kTie);
    EXPECT_EQ(ReachAt(id, Dequantize(7, 0.5f)), 0);
  }
}

TEST(VariationBoundsTest, PairsSaturateBeyondInt16) {
  // 255 * 127 = 32385, and 382 more is the largest int16.
  EXPECT_EQ(ReachAt("V6", Linear({255, 191}, {127, 2})), 0);
  EXPECT_EQ(ReachAt("V6", Linear({255, 192}, {127, 2})), kInfinity);
  EXPECT_EQ(ReachAt("V6", Linear({192, 255}, {2, 127})), kInfinity);
  // 255 * -128 = -32640, and 128 less is the smallest.
  EXPECT_EQ(ReachAt("V6", Linear({255, 128}, {-128, -1})), 0);
  EXPECT_EQ(ReachAt("V6", Linear({255, 129}, {-128, -1})), kInfinity);
  EXPECT_EQ(ReachAt("V6", Linear({129, 255}, {-1, -128})), kInfinity);
  // Any two may share a pair, but not three; the one sign does not help the other.
  EXPECT_EQ(ReachAt("V6", Linear({255, 1, 192}, {127, -128, 2})), kInfinity);
  EXPECT_EQ(ReachAt("V6", Linear({255, 191, 191, 191}, {127, 2, 2, 2})), 0);
  EXPECT_EQ(ReachAt("V6", Linear({255, 128, 128, 128}, {-128, -1, -1, -1})), 0);
  EXPECT_EQ(ReachAt("V6", Conv({255, 192}, {127, 2})), kInfinity);
  EXPECT_EQ(ReachAt("V6", Two(Op::kMul, 255, 255, 1.0f, 1.0f, 1.0f)), 0);
}

TEST(VariationBoundsTest, OfTwoSignedOperandsEitherIsShifted) {
  // As (x + 128) * w the products are 255 * 127 and 191 * 2; as x * (w + 128), 127 * 255 and
  // 63 * 130 = 8190.
  EXPECT_EQ(ReachAt("V6", Linear({127, 63}, {127, 2}, DType::kS8)), kInfinity);
  // 129 * 127 and 1 * 255.
  EXPECT_EQ(ReachAt("V6", Linear({1}, {127}, DType::kS8)), 0);
  // Once with 255 * 127 = 32385 and 0, once with 127 * 255 and -128 * 128: the two ways are not
  // mixed.
  EXPECT_EQ(ReachAt("V6", Linear({127, -128}, {127, 0}, DType::kS8)), 0);
  // 0 * w, but -128 * (127 + 128) and -1 * 129.
  EXPECT_EQ(ReachAt("V6", Linear({-128, -1}, {127, 1}, DType::kS8)), kInfinity);
  EXPECT_EQ(ReachAt("V6", Linear({-128, -1}, {127, 0}, DType::kS8)), 0);
}

TEST(VariationBoundsTest, SumsInto16BitsSaturateBeyondInt16) {
  EXPECT_EQ(ReachAt("V25", Linear({255, 191}, {127, 2})), 0);
  EXPECT_EQ(ReachAt("V25", Linear({255, 191, 1}, {127, 2, 1})), kInfinity);
  EXPECT_EQ(ReachAt("V25", Linear({255, 191, 255}, {127, 2, -100})), 0);
  EXPECT_EQ(ReachAt("V25", Linear({255, 128}, {-128, -1})), 0);
  EXPECT_EQ(ReachAt("V25", Linear({255, 128, 1}, {-128, -1, -1})), kInfinity);
  EXPECT_EQ(ReachAt("V25", Linear({127, 0}, {127, 2}, DType::kS8)), 0);
  EXPECT_EQ(ReachAt("V25", Linear({127, 0, 0, 0}, {127, 1, 1, 1}, DType::kS8)), kInfinity);
  EXPECT_EQ(ReachAt("V25", Two(Op::kMul, 255, 255, 1.0f, 1.0f, 1.0f)), 0);
}

TEST(VariationBoundsTest, AFloatBiasIsRoundedToAnInteger) {
  // 3 real units are 24 of 0.125; one of these is 0.125 / 3 codes.
  const Case c = WithBias(FiveQuarters(), -3.0f);
  EXPECT_DOUBLE_EQ(ReachAt("V7", c), (0.5 + 24 * 0x1p-20) * 0.125 / 3);
  EXPECT_EQ(ReachAt("V7", FiveQuarters()), 0);
  EXPECT_EQ(ReachAt("V7", WithBias(Linear(6, 5, 0x1p-70f, 0x1p-70f, 1.0f), 1.0f)), kInfinity);
  // Next to the end of int32: bias and sum together.
  EXPECT_DOUBLE_EQ(ReachAt("V7", WithBias(Linear({0}, {5}), 0x1.ffp30f)),
                   0.5 + 0x1.ffp30 * 0x1p-20);
  EXPECT_EQ(ReachAt("V7", WithBias(Linear({1}, {5}), 0x1.ffp30f)), kInfinity);
}

TEST(VariationBoundsTest, AnIntegerBiasOfAConvolutionGoesThroughFloat32) {
  const auto with_bias = [](int32_t bias) { return WithBias32(Conv({1}, {1}), bias); };
  EXPECT_EQ(ReachAt("V7", with_bias((1 << 24) - 1)), 0);
  EXPECT_EQ(ReachAt("V7", with_bias(-(1 << 24))), 1);
  Case c = with_bias(1 << 25);
  c.x_q.scale = {0.5f};
  EXPECT_EQ(ReachAt("V7", c), 1);
  // From 2^31 - 2^10 on it may leave int32.
  EXPECT_EQ(ReachAt("V7", with_bias(0x7ffffbff)), 0x7ffffbff * 0x1p-24);
  EXPECT_EQ(ReachAt("V7", with_bias(0x7ffffc00)), kInfinity);
  EXPECT_EQ(ReachAt("V7", WithBias32(Linear({1}, {1}), 0x7ffffc00)), 0);
}

TEST(VariationBoundsTest, FloatSumsAreOffBeyond24Bits) {
  EXPECT_EQ(ReachAt("V8", Requantize((1 << 24) - 1)), 0);
  EXPECT_EQ(ReachAt("V8", Requantize(-(1 << 24))), 8);
  EXPECT_EQ(ReachAt("V8", Linear({6}, {5})), 0);
  EXPECT_DOUBLE_EQ(ReachAt("V8", WithBias(Linear({6}, {5}), -7.0f)), 37 * 0x1p-21);
  // 35 / 3 is no float32.
  EXPECT_DOUBLE_EQ(ReachAt("V8", Linear(7, 5, 1.0f, 1.0f, 3.0f)), 35.0 / 3 * 0x1p-21);
  // A product has a rounding more.
  EXPECT_DOUBLE_EQ(ReachAt("V8", Two(Op::kMul, 7, 5, 1.0f, 1.0f, 3.0f)), 2 * 35.0 / 3 * 0x1p-21);
  Case c = Into(Linear({6}, {5}), DType::kS32);
  c.bias_i32 = {1 << 25};
  EXPECT_EQ(ReachAt("V8", c), 0);
  EXPECT_EQ(ReachAt("V8", Two(Op::kAdd, 7, 5, 1.0f, 1.0f, 3.0f)), 0);
  EXPECT_EQ(ReachAt("V8", Quantize(7.0f, 3.0f)), 0);
}

TEST(VariationBoundsTest, ResultsBeyondInt32Overflow) {
  constexpr int32_t kEnd = 0x7f800000;  // 255 * 2^23
  EXPECT_EQ(ReachAt("V9", Requantize(-kEnd)), 0);
  EXPECT_EQ(ReachAt("V9", Requantize(kEnd + 1)), kInfinity);
  EXPECT_EQ(ReachAt("V9", WithZero(Requantize(-kEnd), &Case::out_q, 1)), kInfinity);
  EXPECT_EQ(ReachAt("V9", WithZero(Requantize(kEnd - 1), &Case::out_q, -1)), 0);
}

TEST(VariationBoundsTest, HalvedWeightsLoseOddOnes) {
  // |-3 - 2| + |7 - 2| = 10 over the odd weights.
  Case c = WithZero(Conv({-3, 4, 7}, {1, 2, -3}, DType::kS8), &Case::x_q, 2);
  c.x_q.scale = {0.5f};
  EXPECT_EQ(ReachAt("V10", c), 5);
  EXPECT_EQ(ReachAt("V10", Conv({3, 4, 7}, {1, 2, -3})), 0);
  EXPECT_EQ(ReachAt("V10", Linear({3, 4, 7}, {1, 2, -3}, DType::kS8)), 0);
}

TEST(VariationBoundsTest, AMultiplierOf31BitsIsOffBeyondThem) {
  EXPECT_DOUBLE_EQ(ReachAt("V11", FiveQuarters()), 1.25 * 0x1p-30);
  EXPECT_EQ(ReachAt("V11", Linear(6, 5, 0.5f, 0.25f, 2.0f)), 0);
  // (1 + 2^-23)^2 has 47 bits.
  EXPECT_DOUBLE_EQ(ReachAt("V11", Linear(6, 5, 1 + kUlp, 1 + kUlp, 1.0f)),
                   30 * std::pow(1 + 0x1p-23, 2) * 0x1p-30);
  // 9110917 * 1977232205 = 2^54 + 1: the double next to 1 / 9110917 has 31 bits, the number more.
  EXPECT_DOUBLE_EQ(ReachAt("V11", Table(Function::kRelu, 6, 1.0f, 9110917.0f)),
                   6.0 / 9110917 * 0x1p-30);
  // Multipliers from 1/2 on shift left, by 1 from 1 on.
  EXPECT_EQ(ReachAt("V11", Requantize(INT32_MAX, 0.5f)), 0);
  EXPECT_EQ(ReachAt("V11", Requantize(INT32_MIN, 0.5f)), kInfinity);
  EXPECT_EQ(ReachAt("V11", Requantize((1 << 30) - 1)), 0);
  EXPECT_EQ(ReachAt("V11", Requantize(1 << 30)), kInfinity);
  // Below 2^-32 the multiplier is 0.
  EXPECT_EQ(ReachAt("V11", Requantize(1 << 30, 0x1p-32f)), 0);
  EXPECT_EQ(ReachAt("V11", Requantize(1 << 30, 0x1.fffffep-33f)), 0x1.fffffep-3);
  EXPECT_EQ(ReachAt("V11", Two(Op::kAdd, 7, 5, 1.0f, 1.0f, 3.0f)), 0);
  EXPECT_EQ(ReachAt("V11", Quantize(7.0f, 3.0f)), 0);
  EXPECT_EQ(ReachAt("V11", Dequantize(7, 0.3f)), 0);
  EXPECT_EQ(ReachAt("V11", Softmax(std::vector<int32_t>(200, 9))), 0);
  // Next below 1 a multiplier may become 1, and shift as that does.
  EXPECT_EQ(ReachAt("V11", Requantize(1 << 30, 0x1.fffffep-1f)), kInfinity);
  EXPECT_EQ(ReachAt("V11", Requantize((1 << 30) - 1, 0x1.fffffep-1f)), 0);
}

TEST(VariationBoundsTest, AMultiplierOf31BitsOfATableIsARatioOfScales) {
  // 0.75 * 2^24 shifts left by 24; what is negative counts too.
  constexpr float kLarge = 0x1.8p23f;
  EXPECT_EQ(ReachAt("V11", Table(Function::kRelu, 127, kLarge, 1.0f)), 0);
  EXPECT_EQ(ReachAt("V11", Table(Function::kRelu, 128, kLarge, 1.0f)), kInfinity);
  const auto leaky = [](float slope) {
    Case c = WithZero(Table(Function::kLeakyRelu, 10, kLarge, 1.0f), &Case::x_q, 138);
    c.negative_slope = slope;
    return ReachAt("V11", c);
  };
  EXPECT_EQ(leaky(1.0f), kInfinity);
  EXPECT_EQ(leaky(0.5f), 0);
}

TEST(VariationBoundsTest, TwoRoundingsMoveByHalfOfTheShift) {
  EXPECT_EQ(ReachAt("V12", Requantize(1, 0.25f)), kTie + 0.25);
  EXPECT_EQ(ReachAt("V12", Requantize(1, 0.125f)), kTie + 0.125);
  EXPECT_EQ(ReachAt("V12", Requantize(1, 0.5f)), kTie);
  // A multiplier next below a power of two may become the power, shifted right by one less.
  EXPECT_EQ(ReachAt("V12", Requantize(1, 0x1.fffffep-4f)), kTie + 0.125);
  EXPECT_EQ(ReachAt("V12", Requantize(1, 0x1.ffffp-4f)), kTie + 0.0625);
  EXPECT_EQ(ReachAt("V12", Requantize(1, 0x1.fffffep-2f)), kTie + 0.25);
  // Of a table it is the ratio of scales, and the slope of what is negative.
  EXPECT_EQ(ReachAt("V12", Table(Function::kRelu, 1, 0.25f, 1.0f)), kTie + 0.25);
  EXPECT_EQ(ReachAt("V12", Table(Function::kRelu, 1, 0.5f, 2.0f)), kTie + 0.25);
  Case leaky = Table(Function::kLeakyRelu, 1, 0.25f, 1.0f);
  leaky.negative_slope = 0.5f;
  EXPECT_EQ(ReachAt("V12", leaky), kTie + 0.25);
  EXPECT_EQ(ReachAt("V12", WithZero(leaky, &Case::x_q, 2)), kTie + 0.125);
  EXPECT_EQ(ReachAt("V12", Dequantize(1, 0.25f)), 0);
  EXPECT_EQ(ReachAt("V12", Two(Op::kAdd, 7, 5, 1.0f, 1.0f, 3.0f)), 0.25);
  EXPECT_EQ(ReachAt("V12", Quantize(7.0f, 3.0f)), 0);
}

TEST(VariationBoundsTest, AFloatQuotientIsOffByItsRounding) {
  EXPECT_DOUBLE_EQ(ReachAt("V13", Quantize(-7.0f, 3.0f)), 7.0 / 3 * 0x1p-23);
  EXPECT_EQ(ReachAt("V13", Quantize(-6.0f, 3.0f)), 0);
  EXPECT_EQ(ReachAt("V13", Quantize(kSmallest, 0x1p100f)), kSmallest);
  EXPECT_DOUBLE_EQ(ReachAt("V13", Linear({6}, {5})), 30 * 0x1p-23);
  EXPECT_DOUBLE_EQ(ReachAt("V13", Two(Op::kMul, 7, 5, 1.0f, 1.0f, 1.0f)), 35 * 0x1p-23);
  EXPECT_DOUBLE_EQ(ReachAt("V13", Two(Op::kAdd, 7, 5, 1.0f, 1.0f, 1.0f)), 12 * 0x1p-23);
  EXPECT_EQ(ReachAt("V13", Conv({6}, {5})), 0);
  EXPECT_EQ(ReachAt("V13", Rescale(7, 1.0f, 3.0f)), 0);
}

TEST(VariationBoundsTest, DequantizedOperandsRoundEachProduct) {
  // Zero points 2 and 1: |6 - 2| * |5 - 1| + |1 - 2| * |-3 - 1| = 20 of 0.5 * 0.25 / 4 codes, and
  // the bias of 1 / 4 of a code: 2 terms and 16 roundings.
  Case c = WithBias(Linear({6, 1}, {5, -3}), -1.0f);
  c.x_q = {{0.5f}, {2}};
  c.w_q = {{0.25f}, {1}};
  c.out_q.scale = {4.0f};
  EXPECT_DOUBLE_EQ(ReachAt("V14", c), (20 * 0.03125 + 0.25) * 18 * 0x1p-24);
  // Tiny products have the error of denormals instead.
  EXPECT_DOUBLE_EQ(ReachAt("V14", Linear({0}, {0})), 18 * kSmallest);
  Case conv = Conv({6, 1}, {5, -3});
  EXPECT_DOUBLE_EQ(ReachAt("V14", conv), 33 * 18 * 0x1p-24);
  EXPECT_EQ(ReachAt("V14", Into(conv, DType::kS32)), 0);
}

TEST(VariationBoundsTest, DequantizedOperandsOverflow) {
  constexpr float kSixteenth = FLT_MAX / 16;
  EXPECT_EQ(ReachAt("V14", Quantize(kSixteenth)), kInfinity);
  EXPECT_EQ(ReachAt("V14", Quantize(std::nextafter(kSixteenth, 0.0f))), 0);
  // One operand is FLT_MAX, and the product is 0.
  EXPECT_EQ(ReachAt("V14", Linear(1, 0, FLT_MAX, 1.0f, 1.0f)), kInfinity);
  EXPECT_EQ(ReachAt("V14", Linear(0, 1, 1.0f, FLT_MAX, 1.0f)), kInfinity);
  EXPECT_DOUBLE_EQ(ReachAt("V14", Linear(1, 0, std::nextafter(FLT_MAX, 0.0f), 1.0f, 1.0f)),
                   18 * kSmallest);
}

TEST(VariationBoundsTest, DequantizedOperandsOfTwo) {
  // A sum rounds codes and zero points scaled by themselves, 0.5 * (6 + 2) + 0.25 * (3 + 1), though
  // they cancel. A product has their difference.
  Case c = Two(Op::kAdd, 6, 3, 0.5f, 0.25f, 2.0f);
  c.x_q.zero_point = {2};
  c.w_q.zero_point = {1};
  EXPECT_DOUBLE_EQ(ReachAt("V14", c), 2.5 * 16 * 0x1p-24);
  c.op = Op::kSub;
  EXPECT_DOUBLE_EQ(ReachAt("V14", c), 2.5 * 16 * 0x1p-24);
  c.op = Op::kMul;
  EXPECT_DOUBLE_EQ(ReachAt("V14", c), 4 * 2 * 0.0625 * 16 * 0x1p-24);
  // 2^-149 * 2 * FLT_MAX is small, but 2 * FLT_MAX is no float32.
  EXPECT_EQ(ReachAt("V14", Two(Op::kMul, 1, 2, 0x1p-149f, FLT_MAX, 1.0f)), kInfinity);
  EXPECT_EQ(ReachAt("V14", Two(Op::kMul, 2, 1, FLT_MAX, 0x1p-149f, 1.0f)), kInfinity);
  EXPECT_LT(ReachAt("V14", Two(Op::kMul, 2, 0, 0x1p126f, 1.0f, 1.0f)), 1);
  // The first one is 2^128 codes before it meets the other.
  EXPECT_EQ(ReachAt("V14", Two(Op::kMul, 4, 0, 0x1p90f, 1.0f, 0x1p-36f)), kInfinity);
  EXPECT_LT(ReachAt("V14", Two(Op::kMul, 0, 4, 1.0f, 0x1p90f, 0x1p-36f)), 1);
}

TEST(VariationBoundsTest, ASigmoidInFloatIsOffByRoundingsOf1) {
  // sigmoid(-5) is 1.7 codes of 2^-8, and 1 is 256.
  EXPECT_DOUBLE_EQ(
      ReachAt("V14", WithZero(Table(Function::kSigmoid, 0, 1.0f, 0x1p-8f), &Case::x_q, 5)),
      256 * 16 * 0x1p-24);
  // tanh(0) is 0.
  EXPECT_LT(ReachAt("V14", Table(Function::kTanh, 0, 1.0f, 0x1p-7f)), 0x1p-100);
}

TEST(VariationBoundsTest, AFixedPointAddCutsTheSmallerScale) {
  const auto add = [](float a, float b) { return Two(Op::kAdd, 6, 3, a, b, 1.0f); };
  // Scales of 20 bits below the larger one are exact.
  EXPECT_EQ(ReachAt("V15", add(0.5f, 0x1p-20f)), 0);
  EXPECT_DOUBLE_EQ(ReachAt("V15", add(0.5f, 0x1p-21f)),
                   (9 + 4) * 0.5 * 0x1p-20 + (3 + 3 * 0x1p-21) * 0x1p-22);
  EXPECT_EQ(ReachAt("V15", add(0x1p-20f, 0.5f)), 0);
  EXPECT_GT(ReachAt("V15", add(0x1p-21f, 0.5f)), 0);
  Case c = add(0.5f, 0x1p-21f);
  c.x_q.zero_point = {8};
  c.w_q.zero_point = {-1};
  // |6 - 8| + |3 + 1| codes.
  EXPECT_DOUBLE_EQ(ReachAt("V15", c), (6 + 4) * 0.5 * 0x1p-20 + (1 + 4 * 0x1p-21) * 0x1p-22);
  // Short, but no normal float32.
  EXPECT_GT(ReachAt("V15", add(0x1p-130f, 0x1p-130f)), 0);
  EXPECT_EQ(ReachAt("V15", Two(Op::kMul, 6, 3, 0.3f, 0.3f, 1.0f)), 0);
}

TEST(VariationBoundsTest, SumsWrapBeyondInt32) {
  const auto end = static_cast<int32_t>(0x1.ffp30);
  EXPECT_EQ(ReachAt("V16", Requantize(-end)), kInfinity);
  EXPECT_EQ(ReachAt("V16", Requantize(1 - end)), 0);
  // All but 128 of the bias, 128 of the sum.
  EXPECT_EQ(ReachAt("V16", WithBias(Linear({16}, {8}), static_cast<float>(end - 128))), kInfinity);
  EXPECT_EQ(ReachAt("V16", WithBias(Linear({15}, {8}), static_cast<float>(end - 128))), 0);
}

TEST(VariationBoundsTest, TheSumOfASoftmaxWrapsBeyondUint32) {
  // Each of N equal codes has t = 2^23 - 1; N of them are N short of 2^32 at N = 512.
  EXPECT_EQ(ReachAt("V16", Softmax(std::vector<int32_t>(512, 9))), kInfinity);
  EXPECT_EQ(ReachAt("V16", Softmax(std::vector<int32_t>(511, 9))), 0);
}

TEST(VariationBoundsTest, SpecialValuesGoElsewhere) {
  EXPECT_EQ(ReachAt("V17", Quantize(1.0f)), 0);
  EXPECT_EQ(ReachAt("V17", Quantize(NAN)), kInfinity);
  EXPECT_EQ(ReachAt("V17", Quantize(-INFINITY)), kInfinity);
  // 255 * 2^23, zero point included.
  EXPECT_EQ(ReachAt("V17", Quantize(-0x1.fep30f)), kInfinity);
  EXPECT_EQ(ReachAt("V17", WithZero(Quantize(-0x1.fep30f + 128), &Case::out_q, -128)), kInfinity);
  EXPECT_EQ(ReachAt("V17", WithZero(Quantize(-0x1.fep30f + 128), &Case::out_q, 127)), 0);
  EXPECT_EQ(ReachAt("V17", Table(Function::kRelu, 1, FLT_MAX, 1.0f)), kInfinity);
  EXPECT_EQ(ReachAt("V17", Table(Function::kRelu, 1, std::nextafter(FLT_MAX, 0.0f), 1.0f)), 0);
  EXPECT_EQ(ReachAt("V17", Two(Op::kConcat, 1, 1, FLT_MAX, 1.0f, 1.0f)), kInfinity);
  EXPECT_EQ(ReachAt("V17", Two(Op::kConcat, 1, 1, FLT_MAX, 1.0f, 1.0f), 1), 0);
  EXPECT_EQ(ReachAt("V17", Rescale(1, FLT_MAX, 1.0f)), 0);
}

TEST(VariationBoundsTest, AZeroPointThatIsNoCodeIsCut) {
  const Case base = Linear({1}, {1});
  for (const auto& [q, low, high] :
       {std::tuple{&Case::x_q, 0, 255}, {&Case::w_q, -128, 127}, {&Case::out_q, 0, 255}}) {
    EXPECT_EQ(ReachAt("V18", WithZero(base, q, low)), 0);
    EXPECT_EQ(ReachAt("V18", WithZero(base, q, high)), 0);
    EXPECT_EQ(ReachAt("V18", WithZero(base, q, low - 1)), kInfinity);
    EXPECT_EQ(ReachAt("V18", WithZero(base, q, high + 1)), kInfinity);
  }
  EXPECT_EQ(ReachAt("V18", Requantize(1)), 0);
}

TEST(VariationBoundsTest, AFloatResultHasSeveralRoundings) {
  Case c = WithBias(Linear({6}, {5}), -7.0f);
  EXPECT_EQ(ReachAt("V19", c), 0);
  c = Into(c, DType::kF32);
  EXPECT_DOUBLE_EQ(ReachAt("V19", c), 37 * 0x1p-21);
  EXPECT_DOUBLE_EQ(ReachAt("V19", Dequantize(0, 1.0f)), 4 * kSmallest);
  EXPECT_DOUBLE_EQ(ReachAt("V19", Dequantize(1, 0x1p126f)), 0x1p105);
  EXPECT_EQ(ReachAt("V19", Dequantize(2, 0x1p126f)), kInfinity);
  EXPECT_EQ(ReachAt("V19", Dequantize(2, 0x1p-127f)), kInfinity);
  c.x_q.scale = c.w_q.scale = {0x1p-70f};
  EXPECT_EQ(ReachAt("V19", c), kInfinity);
}

TEST(VariationBoundsTest, MistakesHaveNoBound) {
  EXPECT_EQ(ReachAt("V20", WithZero(Linear({6}, {5}), &Case::w_q, 1)), kInfinity);
  EXPECT_EQ(ReachAt("V20", WithZero(Linear({6}, {5}), &Case::x_q, 1)), 0);
  EXPECT_EQ(ReachAt("V21", Quantize(0.0f)), kInfinity);
}

TEST(VariationBoundsTest, AnInt32OutputGoesThroughFloat32) {
  constexpr int32_t kEnd = 0x7f800000;  // 255 * 2^23
  const auto with_bias = [](int32_t bias) {
    return Into(WithBias32(Linear({0}, {5}), bias), DType::kS32);
  };
  EXPECT_EQ(ReachAt("V22", with_bias(1 << 24)), 2);
  EXPECT_EQ(ReachAt("V22", with_bias(-kEnd)), 255);
  EXPECT_EQ(ReachAt("V22", with_bias(kEnd + 1)), 256);
  EXPECT_EQ(ReachAt("V22", Linear({6}, {5})), 0);
}

TEST(VariationBoundsTest, RangesHaveOtherFormulas) {
  // 255 steps from 0 to 255 * s: the scale s is off by 2^-22 of it, the zero point by 1.
  const Case c = Choose({0, 255 * 0.75f});
  EXPECT_DOUBLE_EQ(ReachAt("V23", c, 0), 0.75 * 0x1p-22);
  EXPECT_EQ(ReachAt("V23", c, 1), 1);
  Case symmetric = c;
  symmetric.observer.symmetric = true;
  EXPECT_EQ(ReachAt("V23", symmetric, 0), kInfinity);
  EXPECT_EQ(ReachAt("V23", Choose({0, 255 * 0x1p-13f}), 1), 1);
  EXPECT_EQ(ReachAt("V23", Choose({0, 255 * 0x1.fffffep-14f}), 1), kInfinity);
  EXPECT_EQ(ReachAt("V23", Choose({-FLT_MAX, FLT_MAX}), 1), kInfinity);
  // Columns of their own: the scales first.
  Case rows = c;
  rows.M = 2;
  rows.N = 2;
  rows.x = Tensor::Of<float>({1, 2, 2}, std::vector<float>{0, 255.0f, 0, 255 * 0x1p-20f});
  rows.per_channel = true;
  EXPECT_EQ(ReachAt("V23", rows, 0), 0x1p-22);
  EXPECT_EQ(ReachAt("V23", rows, 1), kInfinity);
  EXPECT_EQ(ReachAt("V23", rows, 2), 1);
  EXPECT_EQ(ReachAt("V23", rows, 3), kInfinity);
  // Codes stand behind both. The rule onnx widens no range, but of zeros, whose scale is 1 by it,
  // libraries choose 0 too.
  rows.rule = QParamsRule::kOnnx;
  rows.codes = true;
  rows.x = Tensor::Of<float>({1, 2, 2}, std::vector<float>{0, 255 * 0.75f, 0, 255 * 0x1p-20f});
  EXPECT_EQ(ReachAt("V23", rows, 2), 1);
  EXPECT_EQ(ReachAt("V23", rows, 4), 2);
  EXPECT_EQ(ReachAt("V23", rows, 6), 2);
  rows.x = Tensor::Of<float>({1, 2, 2}, std::vector<float>{0, 0x1p-130f, 0, 255});
  for (const int64_t index : {2, 3, 4, 6}) EXPECT_EQ(ReachAt("V23", rows, index), kInfinity);
  // What moves codes moves nothing here, and there is no range elsewhere.
  for (const Variation& variation : AllVariations())
    EXPECT_TRUE(variation.id == "V23" || ReachAt(variation.id, c) == 0) << variation.id;
  EXPECT_EQ(ReachAt("V23", Quantize(1.0f)), 0);
}

TEST(VariationBoundsTest, HistogramsHaveNoBound) {
  Case c = Choose({0, 255 * 0.75f});
  for (const auto kind : {Observer::Kind::kMinMax, Observer::Kind::kMovingAverage}) {
    c.observer.kind = kind;
    EXPECT_EQ(ReachAt("V36", c), 0);
  }
  c.observer.kind = Observer::Kind::kHistogram;
  EXPECT_EQ(ReachAt("V36", c, 0), kInfinity);
  EXPECT_EQ(ReachAt("V36", c, 1), kInfinity);
  EXPECT_EQ(ReachAt("V36", Quantize(1.0f)), 0);
}

TEST(VariationBoundsTest, ZeroPointsInFloat32AreOffBeyond24Bits) {
  // (0 + zx) * (0 + zw) = 2^24, which is the sum too: 2 * 2^24 * 2^-22.
  const auto with_zeros = [](int32_t x_code, int32_t x_zero, int32_t w_zero) {
    Case c = Linear({x_code}, {0});
    c.x_q.zero_point = {x_zero};
    c.w_q.zero_point = {w_zero};
    return c;
  };
  EXPECT_EQ(ReachAt("V24", with_zeros(0, 4096, -4096)), 8);
  EXPECT_EQ(ReachAt("V24", with_zeros(0, 4096, 4095)), 0);
  // (1 + zx) * zw where the sum is (1 - zx) * zw.
  EXPECT_EQ(ReachAt("V24", with_zeros(1, 4095, 4096)), (4096 + 4094) * 4096 * 0x1p-22);
  // 255 * 2^23 is the end.
  EXPECT_EQ(ReachAt("V24", with_zeros(0, 255, 1 << 23)), 2 * 0x1.fep30 * 0x1p-22);
  EXPECT_EQ(ReachAt("V24", with_zeros(1, 255, 1 << 23)), kInfinity);
  // |x| + 128, by |w| + |zw|.
  Case c = Linear({-2}, {-3}, DType::kS8);
  c.w_q = {{0.5f}, {130000}};
  EXPECT_EQ(ReachAt("V24", c), (130 * 130003 + 2 * 130003) * 0.5 * 0x1p-22);
  EXPECT_EQ(ReachAt("V24", Two(Op::kMul, 0, 0, 1.0f, 1.0f, 1.0f)), 0);
}

TEST(VariationBoundsTest, DenormalsAreFlushed) {
  EXPECT_EQ(ReachAt("V26", Linear({1}, {1})), 0);
  for (QParams Case::* q : {&Case::x_q, &Case::w_q, &Case::out_q}) {
    Case c = Linear({0}, {0});
    (c.*q).scale = {0x1p-126f};
    EXPECT_EQ(ReachAt("V26", c), 0);
    (c.*q).scale = {0x1p-127f};
    EXPECT_EQ(ReachAt("V26", c), kInfinity);
  }
  EXPECT_EQ(ReachAt("V26", Quantize(-0x1p-127f)), kInfinity);
  EXPECT_EQ(ReachAt("V26", Quantize(0.0f)), 0);
  // A result below 2^-126, of a term as small or of larger ones.
  EXPECT_EQ(ReachAt("V26", Quantize(-0x1p-20f, 0x1p110f)), 0x1p-126);
  EXPECT_EQ(ReachAt("V26", Quantize(-0x1p-20f, 0x1p106f)), 0);
  EXPECT_DOUBLE_EQ(
      ReachAt("V26", WithBias(Linear(1, 1, 0x1p-60f, 1.0f, 0x1p50f), -0x1.fffffep-61f)),
      0x1p-109 * (1 - 0x1p-25));
}

TEST(VariationBoundsTest, PaddingCountsInAverages) {
  // One of four positions is outside: the sum of 12 codes is divided by 4 instead of 3.
  Case c = Pool(Op::kAvgPool, 1, 3, {3, 4, 5});
  c.window.kernel_w = 4;
  c.window.pad_right = 1;
  DeriveSizes(&c);
  EXPECT_EQ(ReachAt("V27", c), 1);
  c.window.count_include_pad = true;
  EXPECT_EQ(ReachAt("V27", c), 0);
  // Magnitudes count: zero point 4.
  c = WithZero(c, &Case::x_q, 4);
  c.window.count_include_pad = false;
  EXPECT_DOUBLE_EQ(ReachAt("V27", c), 2.0 / 3 * 0.25);
}

TEST(VariationBoundsTest, PaddingMovesUnderADilatedMaximum) {
  const auto pool = [](int64_t dilation_h, int64_t dilation_w, int64_t Window::* pad) {
    Case c = Pool(Op::kMaxPool, 3, 3, {1, 2, 3, 4, 5, 6, 7, 8, 9});
    c.window.kernel_h = c.window.kernel_w = 2;
    c.window.dilation_h = dilation_h;
    c.window.dilation_w = dilation_w;
    if (pad != nullptr) c.window.*pad = 1;
    DeriveSizes(&c);
    return ReachAt("V27", c);
  };
  for (int64_t Window::* pad : {&Window::pad_top, &Window::pad_bottom}) {
    EXPECT_EQ(pool(2, 1, pad), kInfinity);
    EXPECT_EQ(pool(1, 2, pad), 0);
  }
  for (int64_t Window::* pad : {&Window::pad_left, &Window::pad_right}) {
    EXPECT_EQ(pool(1, 2, pad), kInfinity);
    EXPECT_EQ(pool(2, 1, pad), 0);
  }
  EXPECT_EQ(pool(2, 2, nullptr), 0);
  EXPECT_EQ(ReachAt("V27", Linear({1}, {1})), 0);
}

TEST(VariationBoundsTest, PaddingOnBothSidesOfAMaximum) {
  // Three taps, of which the middle one meets the image.
  Case c = Pool(Op::kMaxPool, 1, 1, {1});
  c.window.kernel_h = 3;
  c.window.dilation_h = 2;
  c.window.pad_top = c.window.pad_bottom = 2;
  DeriveSizes(&c);
  EXPECT_EQ(ReachAt("V27", c), kInfinity);
  Window& v = c.window;
  std::swap(v.kernel_h, v.kernel_w);
  std::swap(v.dilation_h, v.dilation_w);
  std::swap(v.pad_top, v.pad_left);
  std::swap(v.pad_bottom, v.pad_right);
  DeriveSizes(&c);
  EXPECT_EQ(ReachAt("V27", c), kInfinity);
}

TEST(VariationBoundsTest, AZeroPointIsLostAmong8Groups) {
  const auto conv = [](int64_t groups, int64_t kernel_h, int64_t kernel_w, int32_t zero_point) {
    Case c;
    c.op = Op::kConv2d;
    Window& v = c.window;
    v.batch = 1;
    v.groups = v.in_c = c.N = groups;
    v.in_h = v.kernel_h = kernel_h;
    v.in_w = v.kernel_w = kernel_w;
    DeriveSizes(&c);
    c.x = Tensor(DType::kU8, ShapeOfX(c));
    c.w = Tensor(DType::kS8, ShapeOfW(c));
    c.x_q.zero_point = {zero_point};
    return ReachAt("V28", c);
  };
  EXPECT_EQ(conv(8, 2, 4, 1), kInfinity);
  EXPECT_EQ(conv(16, 8, 1, -1), kInfinity);
  EXPECT_EQ(conv(8, 2, 4, 0), 0);
  EXPECT_EQ(conv(8, 3, 3, 1), 0);
  EXPECT_EQ(conv(4, 2, 4, 1), 0);
  EXPECT_EQ(conv(1, 2, 4, 1), 0);
}

TEST(VariationBoundsTest, SharesOfASoftmax) {
  EXPECT_EQ(ReachAt("V29", Softmax({9})), kInfinity);
  EXPECT_EQ(ReachAt("V29", Softmax({9, 9})), 0);
  EXPECT_EQ(ReachAt("V29", Quantize(1.0f)), 0);
  // Two shares of 128 out of twice t = 2^23 - 1: 18 roundings, and (256 / 2) of the one integer
  // and 128 / 2 of each of the two over their sum.
  EXPECT_DOUBLE_EQ(ReachAt("V30", Softmax({9, 9}), 1),
                   128 * 18 * 0x1p-24 + (128 + 2 * 128 / 2.0) / (2 * (0x1p23 - 1)));
  EXPECT_EQ(ReachAt("V30", Quantize(1.0f)), 0);
}

TEST(VariationBoundsTest, CodesOfXNextToTies) {
  // The scale is 1 and the zero point 0. Row 1 has the ties 2.5 and 7.5 and the near tie 4.5, and
  // column 1 the weights 2, -3, 5 and 100 with the zero point 1.
  Case c =
      Dynamic(2, {0, 255, 1, 2, 2.5f, 7.5f, 4.5f + 0x1p-13f, 8.0f}, 2, {1, 1, 1, 1, 2, -3, 5, 100});
  c.w_q = {{0.5f}, {1}};
  EXPECT_EQ(ReachAt("V31", c, 1), 0);
  EXPECT_EQ(ReachAt("V31", c, 2), 0);
  EXPECT_EQ(ReachAt("V31", c, 3), (1 + 4 + 4) * 0.5);
  c.x.as<float>()[6] = 4.5f + 0x1p-12f;
  EXPECT_EQ(ReachAt("V31", c, 3), (1 + 4) * 0.5);
  c.x.as<float>()[6] = 4.5f - 0x1p-13f;
  EXPECT_EQ(ReachAt("V31", c, 3), (1 + 4 + 4) * 0.5);
  c.x.as<float>()[0] = NAN;
  EXPECT_EQ(ReachAt("V31", c, 3), kInfinity);
  EXPECT_EQ(ReachAt("V31", Linear({6}, {5})), 0);
}

TEST(VariationBoundsTest, CodesOfXUnderUnusualScales) {
  EXPECT_EQ(ReachAt("V31", Dynamic(1, {-FLT_MAX, FLT_MAX}, 1, {1, 1})), kInfinity);
  Case c = Dynamic(1, {0, 0x1p-140f}, 1, {1, 1});
  c.rule = QParamsRule::kOnnx;
  EXPECT_EQ(ReachAt("V31", c), kInfinity);
}

TEST(VariationBoundsTest, ReduceRangeIgnoredMovesAllCodesOfX) {
  Case c = Dynamic(1, {0, 127, 3}, 1, {2, -3, 5});
  EXPECT_EQ(ReachAt("V32", c), 0);
  c.observer.reduce_range = true;  // the scale is 1
  EXPECT_EQ(ReachAt("V32", c), 10);
  EXPECT_EQ(ReachAt("V32", Linear({6}, {5})), 0);
}

TEST(VariationBoundsTest, RatiosIn256ths) {
  Case c = CaseOver(Op::kRescale, Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{10, 250}),
                    DType::kU8);
  c.x_q = {{0.5f}, {50}};
  EXPECT_EQ(ReachAt("V33", c), 40 * (0x1p-9 + 0x1p-23));
  EXPECT_EQ(ReachAt("V33", c, 1), 200 * (0x1p-9 + 0x1p-23));
  c.out_q.scale = {0.25f};
  EXPECT_EQ(ReachAt("V33", c), 40 * (0x1p-9 + 0x1p-21));
  // Codes of the other type go through float32.
  Case other = c;
  other.out_dtype = DType::kS8;
  OpenClamp(&other);
  EXPECT_EQ(ReachAt("V33", other), 0);
  c.op = Op::kTable;
  EXPECT_EQ(ReachAt("V33", c), 0);
  c.function = Function::kLeakyRelu;
  EXPECT_EQ(ReachAt("V33", c), 40 * (0x1p-9 + 0x1p-21));
  EXPECT_EQ(ReachAt("V33", Linear({6}, {5})), 0);
}

TEST(VariationBoundsTest, TruncationMovesFractions) {
  EXPECT_EQ(ReachAt("V34", Quantize(100.25f)), 0.5 + kTie);
  EXPECT_EQ(ReachAt("V34", Quantize(-0.5f)), 0.5 + kTie);
  EXPECT_EQ(ReachAt("V34", Quantize(100)), 0);
  EXPECT_EQ(ReachAt("V34", Linear(3, 5, 1.0f, 1.0f, 4.0f)), 0.5 + kTie);
  EXPECT_EQ(ReachAt("V34", Linear(3, 4, 1.0f, 1.0f, 4.0f)), 0);
  EXPECT_EQ(ReachAt("V34", Into(Linear(3, 5, 0.25f, 1.0f, 1.0f), DType::kF32)), 0);
}

TEST(VariationBoundsTest, HardSwishIn16BitsReachesAPartOfTheRatioOfScales) {
  EXPECT_EQ(ReachAt("V35", Table(Function::kHardSwish, 100, 0.5f, 0.25f)), 0.1875 + kTie);
  EXPECT_EQ(ReachAt("V35", Table(Function::kTanh, 100, 0.5f, 0.25f)), 0);
  EXPECT_EQ(ReachAt("V35", Linear({3}, {5})), 0);
  // 254 * 128 is 0x7f00.
  EXPECT_EQ(ReachAt("V35", Table(Function::kHardSwish, 254, 1.0f, 0x1p-7f)), 12 + kTie);
  const Case zero = WithZero(Table(Function::kHardSwish, 254, 1.0f, 0x1p-7f), &Case::out_q, 1);
  EXPECT_EQ(ReachAt("V35", zero), kInfinity);
}

TEST(VariationBoundsTest, LanesOf16BitsWrap) {
  // 254 * 128 is 0x7f00.
  for (const Case& c :
       {Two(Op::kMul, 254, 128, 1.0f, 1.0f, 1.0f), Two(Op::kAdd, 254, 0, 128.0f, 1.0f, 1.0f)}) {
    EXPECT_EQ(ReachAt("V37", c), 0);
    EXPECT_EQ(ReachAt("V37", WithZero(c, &Case::out_q, 1)), kInfinity);
  }
  EXPECT_EQ(ReachAt("V37", Two(Op::kSub, 254, 0, 256.0f, 1.0f, 1.0f)), 0);
  EXPECT_EQ(ReachAt("V37", Rescale(254, 256.0f, 1.0f)), 0);
}

TEST(VariationBoundsTest, TheZeroPointOfXInFloat32HasARoundingOfItsOwn) {
  constexpr double kLeast = 4 * kSmallest;
  EXPECT_EQ(ReachAt("V38", WithZero(Dequantize(7, 0.5f), &Case::x_q, 5)), 6 * 0x1p-22 + kLeast);
  EXPECT_LT(ReachAt("V38", WithZero(Dequantize(1, 0x1p126f), &Case::x_q, 1)), kInfinity);
  EXPECT_EQ(ReachAt("V38", WithZero(Dequantize(2, 0x1p126f), &Case::x_q, 2)), kInfinity);
  Case c = Two(Op::kConcat, 6, 3, 0.5f, 0.25f, 1.0f);
  c.x_q.zero_point = {2};
  c.w_q.zero_point = {1};
  c.out_q.zero_point = {10};
  EXPECT_EQ(ReachAt("V38", c, 0), (4 + 10) * 0x1p-22 + kLeast);
  EXPECT_EQ(ReachAt("V38", c, 1), (1 + 10) * 0x1p-22 + kLeast);
  // 13 codes less 2 times 5.
  EXPECT_EQ(ReachAt("V38", WithZero(Pool(Op::kGlobalAvgPool, 1, 2, {6, 7}), &Case::x_q, 5)),
            23 * 0.5 * 0x1p-22 + kLeast);
  // Of code 0, but times 2^128.
  EXPECT_EQ(ReachAt("V38", Two(Op::kConcat, 0, 0, 0x1p100f, 1.0f, 0x1p-28f)), kInfinity);
  EXPECT_EQ(ReachAt("V38", WithZero(Rescale(6, 0.5f, 2.0f), &Case::x_q, -5)),
            (1.5 + 1.25) * 0x1p-22 + kLeast);
}

TEST(VariationBoundsTest, TheZeroPointOfXOfAMeanIsRounded) {
  EXPECT_EQ(ReachAt("V39", WithZero(Pool(Op::kGlobalAvgPool, 1, 2, {6, 7}), &Case::x_q, 5)),
            0.5 + 23 * 0.5 * 0x1p-21 + kTie);
  Case c = Pool(Op::kGlobalAvgPool, 1, 1, {1});
  c.x_q.scale = {0x1p30f};
  EXPECT_EQ(ReachAt("V39", c), kInfinity);
  c.x_q.scale = {0x1.fp29f};
  EXPECT_LT(ReachAt("V39", c), kInfinity);
  EXPECT_EQ(ReachAt("V39", Pool(Op::kAvgPool, 1, 1, {1})), 0);
}

TEST(VariationBoundsTest, AMultiplierOverPixelsLosesBits) {
  const auto mean = [](const std::vector<int32_t>& x, float scale) {
    Case c = Pool(Op::kGlobalAvgPool, 1, static_cast<int64_t>(x.size()), x);
    c.x_q.scale = {scale};
    return ReachAt("V40", c);
  };
  EXPECT_DOUBLE_EQ(mean({6, 7, 8}, 1.0f), 7 * 0x1p-29);
  // 0.5 / 3 is 0.67 * 2^-2, but the integer of 0.5 over 3 has the shift -1.
  EXPECT_DOUBLE_EQ(mean({6, 7, 8}, 0.5f), 3.5 * 0x1p-29 + 0.125);
  EXPECT_DOUBLE_EQ(mean({6, 7, 8, 7}, 0.5f), 3.5 * 0x1p-29);
  // One bit of 3 pixels has no room behind the 31.
  EXPECT_DOUBLE_EQ(mean({6, 7, 8}, 0x1p-32f), 7 * 0x1p-32);
  EXPECT_LT(mean({6, 7, 8}, 0x1p-31f), 7 * 0x1p-32);
  // 2^23 shifts left by 24.
  EXPECT_LT(mean({127}, 0x1p23f), kInfinity);
  EXPECT_EQ(mean({128}, 0x1p23f), kInfinity);
  EXPECT_EQ(ReachAt("V40", Pool(Op::kAvgPool, 1, 1, {1})), 0);
}

TEST(VariationBoundsTest, SharesOfASoftmaxInFixedPoint) {
  EXPECT_DOUBLE_EQ(ReachAt("V41", Softmax({9, 9}), 1),
                   128 * 10 * 0x1p-19 + 0x1p-14 + (128 + 2 * 128 / 2.0) / (2 * (0x1p23 - 1)));
  EXPECT_EQ(ReachAt("V41", Quantize(1.0f)), 0);
}

TEST(VariationBoundsTest, MultipliersOf16Bits) {
  Case c;
  c.M = c.N = c.K = 1;
  c.x = Tensor::Of<int16_t>({1, 1}, std::vector<int16_t>{-3000});
  c.w = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{5});
  c.out_dtype = DType::kS16;
  OpenClamp(&c);
  EXPECT_DOUBLE_EQ(ReachAt("V45", c), 15000 * 0x1p-15);
  EXPECT_EQ(ReachAt("V45", Pool(Op::kAvgPool, 1, 1, {1})), 0);
}

TEST(VariationBoundsTest, SignsIn8Bits) {
  const auto of = [](std::vector<float> x, std::vector<int32_t> w) {
    Case c = Dynamic(1, x, 1, w);
    c.observer = {.dtype = DType::kS8, .quant_min = -128, .quant_max = 127};
    c.rule = QParamsRule::kObserver;
    return ReachAt("V46", c);
  };
  EXPECT_EQ(of({-1, 1}, {-128, 1}), kInfinity);
  EXPECT_EQ(of({-1, 1}, {-127, -128}), 0);
  std::vector<float> x(2048, 0);
  x[0] = 3;
  EXPECT_EQ(of(x, std::vector<int32_t>(2048, 1)), 0);
  x.push_back(1);
  EXPECT_EQ(of(x, std::vector<int32_t>(2049, 1)), kInfinity);
  EXPECT_EQ(ReachAt("V46", Pool(Op::kAvgPool, 1, 1, {1})), 0);
}

// What a convention of these variations is permitted.
Permitted PermittedAt(const std::vector<std::string>& ids, const Case& c, size_t index = 0) {
  EXPECT_EQ(Validate(c), "");
  Convention convention;
  convention.variations = ids;
  return PermittedOutputs(convention.variations, c).at(index);
}

void ExpectPermitted(const Permitted& permitted, double low, double high) {
  EXPECT_EQ(permitted.low, low);
  EXPECT_EQ(permitted.high, high);
}

TEST(PermittedOutputsTest, AreTheExactOneWithoutVariations) {
  for (const auto& [x, code] : {std::pair{0.5f, 10},
                                {1.5f, 12},
                                {2.5f, 12},
                                {2.25f, 12},
                                {2.75f, 13},
                                {-0.5f, 10},
                                {-1.5f, 8},
                                {-2.25f, 8},
                                {-2.75f, 7}})
    ExpectPermitted(PermittedAt({}, WithZero(Quantize(x), &Case::out_q, 10)), code, code);
}

TEST(PermittedOutputsTest, AreInfiniteBeyondFloat32) {
  ExpectPermitted(PermittedAt({}, WithZero(Dequantize(0, FLT_MAX), &Case::x_q, 2)), -kInfinity,
                  -kInfinity);
}

TEST(PermittedOutputsTest, SpreadByTheSumOfWhatVariationsReach) {
  ExpectPermitted(PermittedAt({"V4"}, Quantize(2.5f)), 2, 3);
  ExpectPermitted(PermittedAt({"V4"}, Quantize(2.25f)), 2, 2);
  // 10 from halved weights, and half a code more from a bias that becomes an integer.
  const Case c = WithZero(WithBias(Conv({50, 60}, {1, 1}, DType::kS8), 0.25f), &Case::x_q, 50);
  ExpectPermitted(PermittedAt({"V10"}, Into(c, DType::kU8)), 0, 20);
  ExpectPermitted(PermittedAt({"V10", "V7"}, Into(c, DType::kU8)), 0, 21);
}

TEST(PermittedOutputsTest, StayInTheClampWhereTheyAreBounded) {
  Case c = Quantize(100.0f);
  c.out_min = 20;
  c.out_max = 90;
  ExpectPermitted(PermittedAt({}, c), 90, 90);
  ExpectPermitted(PermittedAt({"V21"}, c), 0, 255);
  c.x.as<float>()[0] = 3.0f;
  ExpectPermitted(PermittedAt({}, c), 20, 20);
  // The zero point is the least code of relu, unless the clamp ends below it.
  c.relu = true;
  c.out_q.zero_point = {30};
  c.x.as<float>()[0] = -3.0f;
  ExpectPermitted(PermittedAt({}, c), 30, 30);
  c.out_q.zero_point = {95};
  ExpectPermitted(PermittedAt({}, c), 90, 90);
}

TEST(PermittedOutputsTest, OfSpecialValues) {
  Case c = WithZero(Quantize(INFINITY), &Case::out_q, 30);
  c.out_min = 40;
  c.out_max = 90;
  ExpectPermitted(PermittedAt({}, c), 0, 255);
  c.x.as<float>()[0] = NAN;
  ExpectPermitted(PermittedAt({}, c), 0, 255);
}

TEST(PermittedOutputsTest, OfFloatResultsHaveARounding) {
  const Permitted exact = PermittedAt({}, Dequantize(3, 1.0f));
  EXPECT_DOUBLE_EQ(3 - exact.low, 3 * 0x1p-24);
  EXPECT_DOUBLE_EQ(exact.high - 3, 3 * 0x1p-24);
  const Permitted steps = PermittedAt({"V19"}, Dequantize(3, 1.0f));
  EXPECT_DOUBLE_EQ(3 - steps.low, 3 * 9 * 0x1p-24);
  ExpectPermitted(PermittedAt({}, Dequantize(0, 1.0f)), -kSmallest, kSmallest);
  // A NaN passes relu.
  Case c = Into(Linear({1}, {-3}), DType::kF32);
  ExpectPermitted(PermittedAt({"V21"}, c), -kInfinity, kInfinity);
  c.relu = true;
  ExpectPermitted(PermittedAt({}, c), 0, 0);
  ExpectPermitted(PermittedAt({"V21"}, c), -kInfinity, kInfinity);
}

TEST(PermittedOutputsTest, OfInt32OutputsHaveNoZeroPoint) {
  Case c = Into(Linear({7}, {-3}), DType::kS32);
  ExpectPermitted(PermittedAt({}, c), -21, -21);
  c.relu = true;
  ExpectPermitted(PermittedAt({}, c), 0, 0);
}

// The convention gives `code` for output 0, which is not the exact one and is permitted.
void ExpectDiffers(std::string_view name, const Case& c, int32_t code) {
  const Convention& convention = Get(name);
  ASSERT_EQ(Validate(c), "");
  ASSERT_EQ(convention.cannot_run(c), "") << name;
  EXPECT_EQ(convention.run(c).y.IntAt(0), code) << name;
  EXPECT_NE(exact::Evaluate(c).IntAt(0), code) << name;
  const Permitted permitted = PermittedOutputs(convention.variations, c)[0];
  EXPECT_LE(permitted.low, code) << name;
  EXPECT_GE(permitted.high, code) << name;
}

// Differences that drawn cases show once in thousands.
TEST(PermittedOutputsTest, HoldRareDifferences) {
  // -77929792.5 is a tie next to which doubles lie farther than what a tie reaches.
  Case far = Requantize(-155859585);
  far.multiplier = {0.5f};
  far.out_q.zero_point = {77929888};
  ExpectDiffers("plain@away", far, 95);
  // A denormal is flushed.
  ExpectDiffers("xnnpack@rndnu", Quantize(0x1.000004p-127f, 0x1p-126f), 0);
  // ATen adds fl(-zero point * scale) of b, whose error of 2^-48 is far above the scale of a.
  Case add = CaseOver(Op::kAdd, Tensor(DType::kU8, {1, 64}), DType::kU8);
  add.w = add.x;
  for (int64_t i = 0; i < 64; ++i) {
    add.x.SetInt(i, 254);
    add.w.SetInt(i, 127);
  }
  add.x_q = {{0x1.3d5954p-127f}, {127}};
  add.w_q = {{0x1.bf3d68p-30f}, {127}};
  add.out_q.scale = add.x_q.scale;
  ExpectDiffers("aten@avx2", add, 0);
  // One operand is infinite, the product is not.
  ExpectDiffers("numpy@float32", Two(Op::kMul, 1, 2, 0x1p-149f, FLT_MAX, 1.0f), 255);
  // The quotient of the first scale by the last is infinite, and its product with 0 is none.
  Case mul = Into(Two(Op::kMul, 0, 0, 0x1p64f, 0x1p-149f, 0x1p-126f), DType::kS8);
  mul.x = Codes(DType::kS8, {1, 1}, {0});
  mul.w = Codes(DType::kS8, {1, 1}, {127});
  ExpectDiffers("onednn2@amx", mul, 127);
  // (1 + 2^-15) * (1 - 2^-15) is 1 - 2^-30: 2^31 - 3, which the zero point lifts beyond int32.
  Case wraps = Requantize(INT32_MAX, 1 + 0x1p-15f);
  wraps.w_q.scale = {1 - 0x1p-15f};
  wraps.out_q.zero_point = {127};
  for (const char* name : {"gemmlowp", "gemmlowp@sse4", "ruy"}) ExpectDiffers(name, wraps, 0);
  for (const char* name : {"tflite@double", "tflite@single"})
    ExpectDiffers(name, Into(wraps, DType::kS8), -128);
  // A sigmoid of 2^-8 has an error of 2^-25, which is 5 * 10^-5 codes here.
  Case table = Table(Function::kSigmoid, 42, 0x1.858238p-3f, 0x1.cdaf5cp-11f);
  table.x_q.zero_point = {70};
  table.out_q.zero_point = {1};
  ExpectDiffers("onnxruntime@avx2", table, 7);
  // An average of both infinities.
  Case pool = Pool(Op::kAvgPool, 1, 3, {100, 2, 50});
  pool.window.kernel_w = 2;
  pool.x_q = pool.out_q = {{FLT_MAX}, {50}};
  DeriveSizes(&pool);
  ExpectDiffers("onnxruntime@avx2", pool, 0);
}

TEST(VariationsTest, AreFoundByTheirIds) {
  for (const Variation& variation : AllVariations())
    EXPECT_EQ(FindVariation(variation.id), &variation);
  EXPECT_EQ(FindVariation("V0"), nullptr);
  EXPECT_EQ(FindVariation(""), nullptr);
}

}  // namespace
}  // namespace qualm
