// SPDX-License-Identifier: Apache-2.0
// Cases worked out by hand from the definition, run through both forms.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/float_text.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
std::vector<T> Values(const Tensor& tensor) {
  const auto values = tensor.as<T>();
  return {values.begin(), values.end()};
}

// Bits of both forms, one of them returned after they have been compared.
Tensor Exact(const Case& c) {
  EXPECT_EQ(Validate(c), "");
  Tensor fast = Evaluate(c);
  EXPECT_TRUE(fast == EvaluateRational(c));
  return fast;
}

void SetOutput(Case* c, DType dtype) {
  c->out_dtype = dtype;
  c->out_min = RangeOf(dtype).min;
  c->out_max = RangeOf(dtype).max;
}

Case LinearCase(std::vector<uint8_t> x, std::vector<int8_t> w) {
  Case c;
  c.M = 1;
  c.K = static_cast<int64_t>(x.size());
  c.N = static_cast<int64_t>(w.size() / x.size());
  c.x = Tensor::Of<uint8_t>({c.M, c.K}, x);
  c.w = Tensor::Of<int8_t>({c.N, c.K}, w);
  return c;
}

Case QuantizeCase(const std::vector<float>& x, float scale, int32_t zero_point) {
  Case c;
  c.op = Op::kQuantize;
  c.M = 1;
  c.N = static_cast<int64_t>(x.size());
  c.x = Tensor::Of<float>({c.M, c.N}, x);
  c.out_q = {{scale}, {zero_point}};
  return c;
}

// The forum case "NumPy gives 135, PyTorch gives 59": (0-202)(25-26) + (255-202)(127-26) = 5555,
// times 0.01077341 * 0.003769935 / 0.003812587 is 59.18; the poster had left x's zero point out.
TEST(Examples, ForumZeroPoints) {
  Case c = LinearCase({0, 255}, {25, 127, -128, -112});
  c.x_q = {{0x1.6105f2p-7f}, {202}};
  c.w_q = {{0x1.ee1e1cp-9f}, {26}};
  c.out_q = {{0x1.f3b91ap-9f}, {0}};
  EXPECT_EQ(RawSums(c), (std::vector<int64_t>{32385, -28560}));
  EXPECT_TRUE(CorrectedSums(c)[0] == 5555);
  EXPECT_TRUE(CorrectedSums(c)[1] == 23794);
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{59, 253}));
}

// 1000 products of 32767*127, and of 65535*-128: both leave int32.
TEST(Examples, SixteenByEight) {
  Case c;
  c.M = 2, c.N = 2, c.K = 1000;
  c.x = Tensor(DType::kS16, {2, 1000});
  c.w = Tensor(DType::kS8, {2, 1000});
  for (int64_t k = 0; k < c.K; ++k) {
    c.x.SetInt(k, 32767), c.x.SetInt(c.K + k, -32768);
    c.w.SetInt(k, 127), c.w.SetInt(c.K + k, -128);
  }
  c.bias_i32 = std::vector<int32_t>{INT32_MAX, 0};
  SetOutput(&c, DType::kS16);
  EXPECT_EQ(RawSums(c), (std::vector<int64_t>{4161409000, -4194176000, -4161536000, 4194304000}));
  c.out_q.scale = {131072};
  EXPECT_EQ(Values<int16_t>(Exact(c)), (std::vector<int16_t>{32767, -31999, -15366, 32000}));
  SetOutput(&c, DType::kS32);
  c.out_q = {};
  EXPECT_EQ(Values<int32_t>(Exact(c)),
            (std::vector<int32_t>{INT32_MAX, INT32_MIN, -2014052353, INT32_MAX}));

  c.x = Tensor(DType::kU16, {2, 1000});
  for (int64_t k = 0; k < c.K; ++k) c.x.SetInt(k, 65535);
  c.x_q.zero_point = {32768};
  EXPECT_EQ(RawSums(c), (std::vector<int64_t>{8322945000, -8388480000, 0, 0}));
  EXPECT_TRUE(CorrectedSums(c)[1] == -4194176000);
  EXPECT_TRUE(CorrectedSums(c)[3] == 4194304000);
}

TEST(Examples, QuantizeTiesAndEnds) {
  EXPECT_EQ(Values<uint8_t>(Exact(QuantizeCase(
                {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.0f, -0.0f, 300.0f, -300.0f}, 1.0f, 10))),
            (std::vector<uint8_t>{10, 12, 12, 10, 8, 10, 10, 255, 0}));
  EXPECT_EQ(Values<uint8_t>(Exact(QuantizeCase({kNan, kInf, -kInf}, 1.0f, 10))),
            (std::vector<uint8_t>{10, 255, 0}));
  // A zero point outside the codes is clamped like any value.
  EXPECT_EQ(Values<uint8_t>(Exact(QuantizeCase({kNan, kInf, -kInf, -745.0f}, 1.0f, 1000))),
            (std::vector<uint8_t>{255, 255, 0, 255}));
  EXPECT_EQ(Values<uint8_t>(Exact(QuantizeCase({kNan, 2147483648.0f}, 1.0f, INT32_MIN))),
            (std::vector<uint8_t>{0, 0}));
  EXPECT_EQ(Values<uint8_t>(Exact(QuantizeCase({2147483904.0f}, 1.0f, INT32_MIN + 1))),
            (std::vector<uint8_t>{255}));
  // x * (1/s) rounds to exactly 127.5 and on to 128; x/s lies just below.
  EXPECT_EQ(Values<uint8_t>(Exact(QuantizeCase({0.273939937f}, 0.00214854861f, 0))),
            (std::vector<uint8_t>{127}));
  EXPECT_EQ(Values<uint8_t>(Exact(QuantizeCase({FLT_MAX, 0x1p-149f}, 0x1p-149f, 3))),
            (std::vector<uint8_t>{255, 4}));
}

TEST(Examples, CodesOfSixteenBits) {
  Case c = QuantizeCase({0.5f, 1.5f, -0.5f, 16383.75f, -16384.5f, 1e9f, kNan, -kInf}, 0.5f, 0);
  SetOutput(&c, DType::kS16);
  EXPECT_EQ(Values<int16_t>(Exact(c)),
            (std::vector<int16_t>{1, 3, -1, 32767, -32768, 32767, 0, -32768}));
  c.out_q.zero_point = {40000};
  SetOutput(&c, DType::kU16);
  EXPECT_EQ(Values<uint16_t>(Exact(c)),
            (std::vector<uint16_t>{40001, 40003, 39999, 65535, 7231, 65535, 40000, 0}));
  c.out_min = 39999;
  c.out_max = 40002;
  EXPECT_EQ(Values<uint16_t>(Exact(c)),
            (std::vector<uint16_t>{40001, 40002, 39999, 40002, 39999, 40002, 40000, 39999}));

  Case back =
      CaseOver(Op::kDequantize,
               Tensor::Of<uint16_t>({1, 3}, std::vector<uint16_t>{0, 40001, 65535}), DType::kF32);
  back.x_q = {{0.1f}, {40000}};
  // 25535 * 0.1f = 2553.50003805 rounded once.
  EXPECT_EQ(Values<float>(Exact(back)), (std::vector<float>{-4000.0f, 0.1f, 2553.5f}));

  Case sums = CaseOver(Op::kRequantize,
                       Tensor::Of<int32_t>({1, 3}, std::vector<int32_t>{65537, 65539, INT32_MIN}),
                       DType::kS16);
  sums.multiplier = {0.5f};
  EXPECT_EQ(Values<int16_t>(Exact(sums)), (std::vector<int16_t>{32767, 32767, -32768}));
  sums.out_q.zero_point = {-30000};
  EXPECT_EQ(Values<int16_t>(Exact(sums)), (std::vector<int16_t>{2768, 2770, -32768}));
}

// The first code lies in the lowest bits: {1, 3, -1, 7} of s4 are the bytes 0x31, 0x7f.
TEST(Examples, CodesOfFewerThanEightBits) {
  const auto codes = [](const Tensor& y) {
    std::vector<int32_t> list;
    for (int64_t i = 0; i < y.size(); ++i) list.push_back(y.IntAt(i));
    return list;
  };
  Case c = QuantizeCase({0.5f, 1.5f, -0.5f, 3.25f, 3.75f, -4.25f, -1e9f, kNan, kInf}, 0.5f, 0);
  SetOutput(&c, DType::kS4);
  EXPECT_EQ(codes(Exact(c)), (std::vector<int32_t>{1, 3, -1, 6, 7, -8, -8, 0, 7}));
  const Tensor y = Exact(c);
  EXPECT_EQ(std::vector<uint8_t>(y.bytes().begin(), y.bytes().end()),
            (std::vector<uint8_t>{0x31, 0x6f, 0x87, 0x08, 0x07}));
  c.out_q.zero_point = {5};
  SetOutput(&c, DType::kU4);
  EXPECT_EQ(codes(Exact(c)), (std::vector<int32_t>{6, 8, 4, 11, 13, 0, 0, 5, 15}));
  c.out_min = 4;
  c.out_max = 12;
  EXPECT_EQ(codes(Exact(c)), (std::vector<int32_t>{6, 8, 4, 11, 12, 4, 4, 5, 12}));
  c.out_q.zero_point = {1};
  SetOutput(&c, DType::kU2);
  EXPECT_EQ(codes(Exact(c)), (std::vector<int32_t>{2, 3, 0, 3, 3, 0, 0, 1, 3}));
  c.out_q.zero_point = {-1};
  SetOutput(&c, DType::kS2);
  EXPECT_EQ(codes(Exact(c)), (std::vector<int32_t>{0, 1, -2, 1, 1, -2, -2, -1, 1}));

  Tensor x(DType::kS2, {1, 3});
  for (int i = 0; i < 3; ++i) x.SetInt(i, i - 2);
  Case back = CaseOver(Op::kDequantize, std::move(x), DType::kF32);
  back.x_q = {{0.1f}, {1}};
  // 3 * 0.1f = 0.3000000045 lies between the float32 0.29999998212 and 0.30000001192, nearer to it.
  EXPECT_EQ(Values<float>(Exact(back)), (std::vector<float>{-0.3f, -0.2f, -0.1f}));
}

// Five elements of a row in blocks of two, the last one shorter.
TEST(Examples, ScalesOfBlocksOfARow) {
  Case c = CaseOver(Op::kQuantize,
                    Tensor::Of<float>({2, 5}, std::vector<float>{2.5f, 3.5f, 5, 7, -6, 1.25f, 0.75f,
                                                                 -4.5f, 300, 12}),
                    DType::kU8);
  c.x_block = 2;
  c.out_q = {{1, 2, 4, 0.5f, 1, 8}, {0, 1, 2, 3, 4, 5}};
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{2, 4, 3, 5, 0, 5, 5, 0, 255, 7}));
  EXPECT_EQ(EvaluateRational(c), Evaluate(c));

  Case back = CaseOver(Op::kDequantize,
                       Tensor::Of<uint8_t>({1, 3}, std::vector<uint8_t>{3, 10, 200}), DType::kF32);
  back.x_block = 2;
  back.x_q = {{0.25f, 2}, {1, 100}};
  EXPECT_EQ(Values<float>(Exact(back)), (std::vector<float>{0.5f, 2.25f, 200}));
}

TEST(Examples, QuantizeReluPerChannel) {
  Case c = QuantizeCase({-5.0f, -5.0f, 3.0f}, 1.0f, 0);
  c.out_q = {{1.0f, 1.0f, 1.0f}, {100, 7, -3}};
  c.per_channel = true;
  c.relu = true;
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{100, 7, 0}));
  c.x = Tensor(DType::kF32, {1, 0});
  c.N = 0;
  c.out_q = {{}, {}};
  EXPECT_TRUE(Exact(c).empty());
}

TEST(Examples, Dequantize) {
  Case c;
  c.op = Op::kDequantize;
  c.M = 2;
  c.N = 2;
  const std::vector<int8_t> q = {-128, 5, 3, 5};
  c.x = Tensor::Of<int8_t>({2, 2}, q);
  c.x_q = {{FLT_MAX, 0x1p-149f}, {3, -2}};
  c.per_channel = true;
  SetOutput(&c, DType::kF32);
  EXPECT_EQ(Values<float>(Exact(c)), (std::vector<float>{-kInf, 0x1.cp-147f, 0.0f, 0x1.cp-147f}));
  EXPECT_EQ(Exact(c).BitsAt(2), 0u);  // exact zero is +0
  // 5 - INT32_MIN = 2^31 + 5 needs 32 bits and is rounded with the scale, once.
  c.x_q = {{1.0f, 1.0f}, {INT32_MIN, INT32_MIN}};
  EXPECT_EQ(Exact(c).FloatAt(1), 0x1p31f);
  EXPECT_EQ(Exact(c).FloatAt(0), 2147483520.0f);
}

TEST(Examples, Requantize) {
  Case c;
  c.op = Op::kRequantize;
  c.M = 1;
  c.N = 4;
  // 2^24 + 1 is not a float32: the result 0.5 + 2^-25 must not be rounded to a tie.
  const std::vector<int32_t> acc = {16777217, 16777216, -16777217, INT32_MIN};
  c.x = Tensor::Of<int32_t>({1, 4}, acc);
  c.multiplier = {0x1p-25f};
  SetOutput(&c, DType::kS8);
  EXPECT_EQ(Values<int8_t>(Exact(c)), (std::vector<int8_t>{1, 0, -1, -64}));
  EXPECT_EQ(TieDistance(c, 1), 0.0);
  EXPECT_EQ(TieDistance(c, 0), 0x1p-24);
  EXPECT_EQ(TieDistance(c, 3), 1.0);
  EXPECT_EQ(RealValueText(c, 0), "16777217/33554432");
  // The same number as an exact quotient, 1 * 3 / (3 * 2^25).
  c.multiplier.clear();
  c.w_q.scale = {3.0f};
  c.out_q.scale = {0x1.8p26f};
  EXPECT_EQ(Values<int8_t>(Exact(c)), (std::vector<int8_t>{1, 0, -1, -64}));
}

// The code of an accumulator under fixed_q31.
int32_t FixedQ31(int32_t accumulator, float x_scale, float w_scale, float out_scale,
                 int32_t zero_point) {
  Case c;
  c.op = Op::kRequantize;
  c.M = c.N = 1;
  c.requant = Requant::kFixedQ31;
  c.x = Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{accumulator});
  c.x_q.scale = {x_scale};
  c.w_q.scale = {w_scale};
  c.out_q = {{out_scale}, {zero_point}};
  return Exact(c).IntAt(0);
}

// The multiplier of fixed_q31 is rounded to float64 and then to 31 bits. With t * b = d modulo 2^32
// the quotient ((t * b - d) / 2^32) / b lies next below t / 2^32, half of 31 bits. With d = 1 it is
// so near that float64 takes it for the half, which goes up; rounded once it would go down.
TEST(Examples, FixedQ31RoundsTheMultiplierTwice) {
  int up = 0, down = 0;
  for (uint32_t b = 0x800001; b < 0x1000000; b += 20002) {
    uint32_t inverse = b;  // right modulo 8; each step doubles the bits that are
    for (int step = 0; step < 4; ++step) inverse *= 2 - b * inverse;
    for (const uint32_t d : {1, 3, 5, 7}) {
      const uint32_t t = d * inverse;
      if (t < 0x80000000) continue;
      const auto a = static_cast<uint32_t>((uint64_t{t} * b) >> 32);
      const double quotient = static_cast<double>(a) / static_cast<double>(b);
      const int64_t q = std::llround(std::ldexp(quotient, 31));
      (q > t / 2 ? up : down) += 1;
      if (d == 1) {
        EXPECT_GT(q, t / 2);
      }
      const int64_t value = (INT32_MAX * q + (1 << 30)) >> 31;  // the shift is 0
      EXPECT_EQ(FixedQ31(INT32_MAX, static_cast<float>(a), 1, static_cast<float>(b),
                         static_cast<int32_t>(100 - value)),
                100)
          << a << " / " << b;
    }
  }
  EXPECT_GT(up, 100);
  EXPECT_GT(down, 100);
}

// From 2^-32 on a multiplier counts: here three quarters of 1 are left.
TEST(Examples, FixedQ31KnowsNoMultiplierBelow32Bits) {
  EXPECT_EQ(FixedQ31(INT32_MAX, 0x1.8p-32f, 1, 1, 10), 11);
  EXPECT_EQ(FixedQ31(INT32_MIN, 0x1.8p-32f, 1, 1, 10), 9);
  EXPECT_EQ(FixedQ31(INT32_MAX, 0x1.fp-33f, 1, 1, 10), 10);
}

// 1 - 2^-46 has the 31 bits of 1, which is 2^30 * 2^-30: the accumulator is doubled, and wraps.
TEST(Examples, FixedQ31RoundsAMultiplierUpToOne) {
  constexpr float kBelow = 0x1.fffffcp-1f;
  constexpr float kAbove = 0x1.000002p0f;
  EXPECT_EQ(FixedQ31(7, kBelow, kAbove, 1, 0), 7);
  EXPECT_EQ(FixedQ31((1 << 30) - 1, kBelow, kAbove, 1, 100 - (1 << 30)), 99);
  EXPECT_EQ(FixedQ31(1 << 30, kBelow, kAbove, 1, 100 + (1 << 30)), 100);
}

TEST(Examples, LinearEmptySum) {
  Case c = LinearCase({1}, {1});
  c.K = 0;
  c.x = Tensor(DType::kU8, {1, 0});
  c.w = Tensor(DType::kS8, {1, 0});
  c.out_q = {{0.5f}, {7}};
  EXPECT_EQ(Exact(c).IntAt(0), 7);
  c.bias = {1.5f};
  EXPECT_EQ(Exact(c).IntAt(0), 10);
  c.M = 0;
  c.x = Tensor(DType::kU8, {0, 0});
  EXPECT_EQ(Exact(c).shape(), (std::vector<int64_t>{0, 1}));
}

// (2 - 1)*3*0.5 + (5 - 1)*3*0.5 of the first block, (4 - 1)*(-2 + 4)*8 of the second: 7.5 + 48,
// times the scale of x, 0.25, and the bias.
TEST(Examples, LinearInBlocks) {
  Case c = LinearCase({2, 5, 4}, {3, 3, -2});
  c.x_q = {{0.25f}, {1}};
  c.per_channel = true;
  c.w_block = 2;
  c.w_q = {{0.5f, 8.0f}, {0, -4}};
  c.bias = {{0.125f}};
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  EXPECT_EQ(Exact(c).FloatAt(0), 14.0f);
  EXPECT_EQ(RealValueText(c, 0), "14");
  EXPECT_EQ(Derive(c, 0).front().value, "111/2");
  EXPECT_EQ(Derive(c, 0).back().value, "0x1.cp+3");
}

// 2.5*3*0.5 + 5*3*0.5 of the first block, -0.25*(-2 + 4)*8 of the second, and the bias: 11.25 - 4.
TEST(Examples, LinearOfFloats) {
  Case c = LinearCase({0, 0, 0}, {3, 3, -2});
  c.x = Tensor::Of<float>({1, 3}, std::vector<float>{2.5f, 5, -0.25f});
  c.per_channel = true;
  c.w_block = 2;
  c.w_q = {{0.5f, 8.0f}, {0, -4}};
  c.bias = {{0.125f}};
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(Exact(c).FloatAt(0), 7.375f);
  EXPECT_EQ(RealValueText(c, 0), "59/8");
  EXPECT_EQ(Derive(c, 0).front().value, "29/4");
  EXPECT_EQ(Derive(c, 0).back().value, "0x1.d8p+2");
}

TEST(Examples, LinearBias) {
  Case c = LinearCase({3}, {5});  // 15 * 0.5 * 0.5 = 3.75
  c.x_q.scale = {0.5f};
  c.w_q.scale = {0.5f};
  c.out_q.scale = {2.0f};
  EXPECT_EQ(Exact(c).IntAt(0), 2);  // 1.875
  c.bias_i32 = {{-3}};
  EXPECT_EQ(Exact(c).IntAt(0), 2);  // 12 * 0.125 = 1.5, to even
  EXPECT_EQ(TieDistance(c, 0), 0.0);
  c.bias_i32 = {{-4}};
  EXPECT_EQ(Exact(c).IntAt(0), 1);
  c.bias_i32.reset();
  c.bias = {{1.25f}};
  EXPECT_EQ(Exact(c).IntAt(0), 2);  // 2.5, to even
  c.bias = {{0x1.400002p0f}};
  EXPECT_EQ(Exact(c).IntAt(0), 3);
  EXPECT_EQ(RealValueText(c, 0), "41943041/16777216");
}

TEST(Examples, LinearS32IsClampedNeverWrapped) {
  Case c = LinearCase({255, 255}, {127, 127, -128, -128});
  SetOutput(&c, DType::kS32);
  c.bias_i32 = {{INT32_MAX, INT32_MIN}};
  EXPECT_EQ(Values<int32_t>(Exact(c)), (std::vector<int32_t>{INT32_MAX, INT32_MIN}));
  c.relu = true;
  EXPECT_EQ(Values<int32_t>(Exact(c)), (std::vector<int32_t>{INT32_MAX, 0}));
  c.relu = false;
  c.bias_i32.reset();
  c.out_max = 1000;
  EXPECT_EQ(Values<int32_t>(Exact(c)), (std::vector<int32_t>{1000, -65280}));
  c.x_q.zero_point = {INT32_MIN};  // 2 * (255 + 2^31) * -128
  EXPECT_TRUE(CorrectedSums(c)[1] == __int128{-256} * (255 + (int64_t{1} << 31)));
  EXPECT_EQ(Exact(c).IntAt(1), INT32_MIN);
  EXPECT_EQ(TieDistance(c, 0), std::nullopt);
}

TEST(Examples, LinearF32) {
  Case c = LinearCase({1, 2}, {1, 1, -1, -1});
  SetOutput(&c, DType::kF32);
  c.x_q.scale = {0.5f};
  c.bias = {{-1.5f, 1.5f}};
  EXPECT_EQ(Exact(c).BitsAt(0), 0u);  // exact zero is +0
  EXPECT_EQ(Exact(c).BitsAt(1), 0u);
  c.bias.reset();
  EXPECT_EQ(Values<float>(Exact(c)), (std::vector<float>{1.5f, -1.5f}));
  c.relu = true;
  EXPECT_EQ(Values<float>(Exact(c)), (std::vector<float>{1.5f, 0.0f}));
  EXPECT_EQ(Exact(c).BitsAt(1), 0u);
  c.relu = false;
  c.x_q.scale = {0x1p-149f};
  c.w_q.scale = {0x1p-149f};
  EXPECT_EQ(Exact(c).BitsAt(0), 0u);
  EXPECT_EQ(Exact(c).BitsAt(1), 0x80000000u);  // underflow keeps its sign, as in IEEE 754
  c.relu = true;
  EXPECT_EQ(Exact(c).BitsAt(1), 0u);
}

TEST(Examples, ReluAboveTheClamp) {
  Case c = LinearCase({1}, {1});
  c.relu = true;
  c.out_max = 50;
  c.out_q.zero_point = {60};
  EXPECT_EQ(Exact(c).IntAt(0), 50);
  c.out_q.zero_point = {INT32_MAX};
  EXPECT_EQ(Exact(c).IntAt(0), 50);
}

// Convolution over a 2x3 image with one channel, worked out by hand.
Case ConvCase() {
  Case c;
  c.op = Op::kConv2d;
  c.N = 1;
  c.window.batch = 1;
  c.window.in_h = 2;
  c.window.in_w = 3;
  c.window.in_c = 1;
  c.window.kernel_h = 2;
  c.window.kernel_w = 2;
  DeriveSizes(&c);
  c.x = Tensor::Of<uint8_t>({1, 2, 3, 1}, std::vector<uint8_t>{1, 2, 3, 4, 5, 6});
  c.w = Tensor::Of<int8_t>({1, 2, 2, 1}, std::vector<int8_t>{1, 10, 20, 100});
  SetOutput(&c, DType::kS32);
  return c;
}

TEST(Examples, ConvIsACorrelation) {
  const Case c = ConvCase();  // the kernel is not flipped
  EXPECT_EQ(Exact(c).shape(), (std::vector<int64_t>{1, 1, 2, 1}));
  EXPECT_EQ(Values<int32_t>(Exact(c)), (std::vector<int32_t>{601, 732}));
}

TEST(Examples, ConvPadsEachSideAlone) {
  Case c = ConvCase();
  c.window.pad_top = 1;
  DeriveSizes(&c);
  EXPECT_EQ(Values<int32_t>(Exact(c)), (std::vector<int32_t>{220, 340, 601, 732}));
  c.window.pad_top = 0;
  c.window.pad_right = 1;
  DeriveSizes(&c);
  EXPECT_EQ(Values<int32_t>(Exact(c)), (std::vector<int32_t>{601, 732, 123}));
  // Padding is real 0 also where no code is: (6 - 1000) * 20 + (3 - 1000) * 1.
  c.x_q.zero_point = {1000};
  EXPECT_EQ(Exact(c).IntAt(2), -994 * 20 - 997);
  // And with a weight zero point: (6 - 1000) * 19.
  c.w_q.zero_point = {1};
  EXPECT_EQ(Exact(c).IntAt(2), -994 * 19);
}

TEST(Examples, ConvStrideAndDilation) {
  Case c = ConvCase();
  c.window.dilation_w = 2;
  DeriveSizes(&c);
  EXPECT_EQ(Values<int32_t>(Exact(c)), (std::vector<int32_t>{1 + 30 + 80 + 600}));
  c.window.pad_left = 1;
  c.window.stride_w = 2;
  DeriveSizes(&c);
  EXPECT_EQ(Values<int32_t>(Exact(c)), (std::vector<int32_t>{20 + 500}));
  c.window.dilation_h = 5;  // the kernel does not fit
  DeriveSizes(&c);
  EXPECT_TRUE(Exact(c).empty());
}

// Input channels 0 and 1 feed two outputs each of four; each output sees its own group alone.
TEST(Examples, DepthwiseWithMultiplier) {
  Case c;
  c.op = Op::kDepthwise;
  c.N = 4;
  c.window.batch = 2;
  c.window.in_h = c.window.in_w = 1;
  c.window.in_c = 2;
  c.window.groups = 2;
  DeriveSizes(&c);
  c.x = Tensor::Of<uint8_t>({2, 1, 1, 2}, std::vector<uint8_t>{1, 2, 3, 4});
  c.w = Tensor::Of<int8_t>({4, 1, 1, 1}, std::vector<int8_t>{1, 10, 20, 100});
  SetOutput(&c, DType::kS32);
  c.bias_i32 = {{0, 0, 0, 1}};
  EXPECT_EQ(Values<int32_t>(Exact(c)), (std::vector<int32_t>{1, 10, 40, 201, 3, 30, 80, 401}));
}

Case TwoOperands(Op op, const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  Case c;
  c.op = op;
  c.M = 1;
  c.N = static_cast<int64_t>(a.size());
  c.x = Tensor::Of<uint8_t>({1, c.N}, a);
  c.w = Tensor::Of<uint8_t>({1, c.N}, b);
  return c;
}

TEST(Examples, AddRoundsOnce) {
  Case c = TwoOperands(Op::kAdd, {1, 1, 3, 255}, {0, 1, 0, 255});
  c.x_q.scale = {0.5f};
  c.w_q.scale = {0x1p-149f};
  // 0.5 is a tie, and the smallest float tips it.
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{0, 1, 2, 128}));
  EXPECT_EQ(TieDistance(c, 0), 0.0);
  EXPECT_EQ(TieDistance(c, 1), 0x1p-148);
  c.x_q = {{1.0f}, {255}};
  c.w_q = {{1.0f}, {INT32_MIN}};
  c.out_q = {{0x1p24f}, {0}};
  EXPECT_EQ(Exact(c).IntAt(0), 128);  // (1 - 255 + 2^31) / 2^24 = 127.99...
  // Large operands of opposite sign cancel, and the rest is rounded once.
  c.x_q = {{FLT_MAX}, {0}};
  c.w_q = {{FLT_MAX}, {4}};
  c.out_q = {{FLT_MAX}, {10}};
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{7, 8, 9, 255}));
  EXPECT_EQ(RealValueText(c, 0), "-3");
}

TEST(Examples, MulOfDifferences) {
  Case c = TwoOperands(Op::kMul, {0, 3, 5, 255}, {0, 3, 8, 255});
  c.x_q = {{0.5f}, {2}};
  c.w_q = {{1.0f}, {4}};
  c.out_q = {{2.0f}, {100}};
  // (0-2)(0-4)/4 = 2, (1)(-1)/4, 3*4/4 = 3, 253*251/4
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{102, 100, 103, 255}));
  EXPECT_EQ(RealValueText(c, 1), "-1/4");
  c.x_q.zero_point = {INT32_MIN};
  c.w_q.zero_point = {INT32_MIN};
  c.out_q.scale = {0x1p55f};
  EXPECT_EQ(Exact(c).IntAt(0), 164);  // 2^62 / 2 / 2^55 = 64
  c.relu = true;
  c.out_q.zero_point = {200};
  c.w_q.zero_point = {INT32_MAX};
  EXPECT_EQ(Exact(c).IntAt(0), 200);
}

TEST(Examples, Rescale) {
  Case c = TwoOperands(Op::kRescale, {0, 1, 128, 255}, {0, 0, 0, 0});
  c.w = Tensor();
  c.x_q = {{1.0f}, {128}};
  c.out_q = {{2.0f}, {0}};
  SetOutput(&c, DType::kS8);
  EXPECT_EQ(Values<int8_t>(Exact(c)), (std::vector<int8_t>{-64, -64, 0, 64}));  // -63.5, 63.5
}

// One row of five pixels under windows of three, stride two; ceil_mode adds a fourth window.
Case PoolCase(Op op) {
  Case c;
  c.op = op;
  c.window.batch = 1;
  c.window.in_h = 1;
  c.window.in_w = 5;
  c.window.in_c = 1;
  c.window.kernel_w = 3;
  c.window.stride_w = 3;
  c.window.pad_left = 1;
  c.window.pad_right = 1;
  DeriveSizes(&c);
  c.x = Tensor::Of<uint8_t>({1, 1, 5, 1}, std::vector<uint8_t>{10, 20, 30, 40, 55});
  return c;
}

TEST(Examples, AvgPoolCounts) {
  Case c = PoolCase(Op::kAvgPool);  // [. 10 20] [30 40 55] and one position over
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{15, 42}));
  c.window.count_include_pad = true;
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{10, 42}));
  // With stride 2 and ceil_mode the last window is [40 55 .], of four with kernel 4 [40 55 . over]:
  // positions beyond the padding never count.
  c.window.stride_w = 2;
  c.window.kernel_w = 4;
  c.window.ceil_mode = true;
  DeriveSizes(&c);
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{15, 36, 32}));  // 60/4 145/4 95/3
  c.window.count_include_pad = false;
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{20, 36, 48}));  // 60/3 145/4 95/2
  // The average is of real values: padding that counts is real 0, not code 0.
  c.window.count_include_pad = true;
  c.x_q.zero_point = {100};
  c.out_q.zero_point = {100};
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{40, 36, 65}));  // 100 - 240/4, -105/3
}

TEST(Examples, PoolWindowInThePadding) {
  Case c = PoolCase(Op::kAvgPool);
  c.window.count_include_pad = true;
  c.window.pad_left = 4;
  c.out_q.zero_point = {9};
  DeriveSizes(&c);  // [. . .] [. 10 20] [30 40 55]
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{9, 19, 51}));
  c.window.count_include_pad = false;
  EXPECT_EQ(Validate(c), "pad: a window lies wholly in the padding");
}

TEST(Examples, MaxPool) {
  Case c = PoolCase(Op::kMaxPool);
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{20, 55}));
  // Padding never wins, not even over the smallest code there is.
  c.x = Tensor::Of<int8_t>({1, 1, 5, 1}, std::vector<int8_t>{-128, -128, -3, -90, -128});
  SetOutput(&c, DType::kS8);
  EXPECT_EQ(Values<int8_t>(Exact(c)), (std::vector<int8_t>{-128, -3}));
  c.out_max = -10;
  c.x_q.zero_point = c.out_q.zero_point = {-100};
  c.relu = true;
  EXPECT_EQ(Values<int8_t>(Exact(c)), (std::vector<int8_t>{-100, -10}));
  EXPECT_EQ(TieDistance(c, 0), 1.0);
}

TEST(Examples, GlobalAvgPool) {
  Case c;
  c.op = Op::kGlobalAvgPool;
  c.window.batch = 2;
  c.window.in_h = c.window.in_w = 2;
  c.window.in_c = 2;
  c.window.kernel_h = c.window.kernel_w = 2;
  DeriveSizes(&c);
  c.x = Tensor::Of<uint8_t>({2, 2, 2, 2}, std::vector<uint8_t>{1, 0, 2, 0, 3, 0, 4, 0,  //
                                                               0, 9, 0, 9, 0, 9, 1, 7});
  EXPECT_EQ(Exact(c).shape(), (std::vector<int64_t>{2, 1, 1, 2}));
  EXPECT_EQ(Values<uint8_t>(Exact(c)), (std::vector<uint8_t>{2, 0, 0, 8}));  // 2.5, 0.25, 8.5
}

}  // namespace
}  // namespace qualm::exact
