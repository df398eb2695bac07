// SPDX-License-Identifier: Apache-2.0
// What a kernel with each cause answers, computed by hand, and which causes a case is asked about.
// A cause that answers anything else is named for a wrong reason, or not named at all.
#include "triage/causes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "oracles/exact/exact.h"
#include "triage/causes_test_util.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kUlp = 0x1p-23f;  // of float32 at 1

// ---- Sums of products.

TEST(CauseOfSums, SaturatingPairs) {
  constexpr auto* kName = "pair saturation";
  EXPECT_EQ(Answer(Layer(kU8, {255, 255, 1}, kS8, {127, 127, 5}), kName), Values{32767 + 5});
  EXPECT_EQ(Answer(Layer(kU8, {255, 255, 9, 2}, kS8, {-128, -128, 2, 3}), kName),
            Values{-32768 + 24});
  // s8 codes are raised by 128, and 128 times the sum of the weights is taken out again.
  EXPECT_EQ(Answer(Layer(kS8, {127, 127, 1}, kS8, {127, 127, 5}), kName),
            Values{32767 + 129 * 5 - 128 * (127 + 127 + 5)});
  EXPECT_EQ(Answer(Layer(kS8, {-128, -128}, kS8, {-128, -128}), kName), Values{32768})
      << "raised to 0, these codes do not saturate";
  EXPECT_FALSE(IsAsked(Layer(kU8, {255, 255}, kU8, {127, 127}), kName)) << "wants s8 weights";
}

TEST(CauseOfSums, PairsInAnInt16ThatIsEmptiedEvery256Products) {
  constexpr auto* kName = "16-bit accumulation";
  const auto layer = [](int64_t terms, int32_t weight) {
    return Layer(kU8, Values(static_cast<size_t>(terms), 100), kS8,
                 Values(static_cast<size_t>(terms), weight));
  };
  EXPECT_EQ(Answer(layer(2, 100), kName), Values{20000});
  EXPECT_EQ(Answer(layer(4, 100), kName), Values{32767});
  EXPECT_EQ(Answer(layer(4, -100), kName), Values{-32768});
  EXPECT_EQ(Answer(layer(258, 100), kName), Values{32767 + 20000});
  EXPECT_EQ(Answer(layer(516, 100), kName), Values{2 * 32767 + 32767});
  EXPECT_EQ(Answer(layer(257, 1), kName), Values{25700});
}

TEST(CauseOfSums, ProductsThatWrapInAnInt16) {
  EXPECT_EQ(Answer(Layer(kU8, {255, 255, 3}, kS8, {127, 127, 7}), "int16 pair wrap"),
            Values{64770 - 65536 + 21});
  EXPECT_EQ(Answer(Layer(kS8, {-128, -128}, kS8, {-128, -128}), "int16 pair wrap"), Values{-32768});
  EXPECT_EQ(Answer(Layer(kU8, {255, 255, 255, 4}, kS8, {127, 127, -1, 5}), "int16 wrap of taps"),
            Values{64515 - 65536 + 20});
}

TEST(CauseOfSums, TwoCausesOfOneSumActTogether) {
  const Case c = Layer(kU8, {255, 255, 200, 1}, kS8, {127, 127, 2, 5});
  const std::optional<Tensor> y = AnswerOf(c, {"pair saturation", "last product dropped"});
  ASSERT_TRUE(y);
  EXPECT_EQ(y->IntAt(0), 32767 + 400);
}

TEST(CauseOfSums, AnInt32SumWraps) {
  Case c = Layer(kU8, {1}, kS8, {1});
  c.bias_i32 = {{INT32_MAX}};
  EXPECT_EQ(Answer(c, "int32 wrap"), Values{INT32_MIN});
  Case product = Elements(Op::kMul, kU8, {3}, {5});
  product.x_q.zero_point = {3 - (1 << 20)};
  product.w_q.zero_point = {5 - (1 << 12)};
  EXPECT_EQ(Answer(product, "int32 wrap"), Values{0}) << "2^20 * 2^12";
  EXPECT_EQ(Answer(Elements(Op::kMul, kU8, {255}, {2}), "int16 product"), Values{127});
  product = Elements(Op::kMul, kU8, {255}, {255});
  product.out_q.scale = {100.0f};
  EXPECT_EQ(Answer(product, "int16 product"), Values{-5}) << "65025 - 65536 = -511";
}

TEST(CauseOfSums, TheProductsAloneReadTheOtherSign) {
  Case c = Layer(kU8, {200, 3}, kS8, {2, 1});
  c.w_q.zero_point = {10};
  // Products of -56 and 3, and 10 times the sum of 200 and 3.
  EXPECT_EQ(Answer(c, "input sign in the products"), Values{-112 + 3 - 2030});
}

// ---- Tails.

TEST(CauseOfTails, TheLastProductsAreDropped) {
  const Values x{1, 10, 100, 1, 10, 100, 1}, w{1, 1, 1, 2, 2, 2, 3};
  Case c = Layer(kU8, x, kS8, w);
  c.w_q.zero_point = {1};
  const int32_t left_out = 223;  // the sum of x, which stays in the zero-point term
  EXPECT_EQ(Answer(c, "last product dropped"), Values{111 + 222 - left_out});
  EXPECT_EQ(Answer(c, "product tail of 4 dropped"), Values{111 + 2 - left_out});
  EXPECT_EQ(Answer(c, "product tail of 8 dropped"), Values{-left_out});
  EXPECT_EQ(Answer(c, "last term dropped"), Values{111 + 222 - 222});
  EXPECT_EQ(Answer(c, "term tail of 4 dropped"), Values{111 + 2 - 112});
  EXPECT_EQ(Answer(c, "term tail of 8 dropped"), Values{0});
}

// One answer has one cause: where two rows of the table drop the same terms, one of them is asked.
TEST(CauseOfTails, OneRowIsAskedForEachNumberOfTermsLeft) {
  const auto asked = [](int64_t terms) {
    const Case c = Layer(kU8, Values(static_cast<size_t>(terms), 1), kS8,
                         Values(static_cast<size_t>(terms), 1));
    std::vector<int64_t> left;
    for (const char* const name :
         {"last product dropped", "product tail of 4 dropped", "product tail of 8 dropped",
          "product tail of 16 dropped", "product tail of 32 dropped"}) {
      const std::optional<Values> y = Answer(c, name);
      left.push_back(y ? y->front() : -1);
    }
    return left;
  };
  using Left = std::vector<int64_t>;
  EXPECT_EQ(asked(1), (Left{0, -1, -1, -1, -1}));
  EXPECT_EQ(asked(2), (Left{1, 0, -1, -1, -1}));
  EXPECT_EQ(asked(4), (Left{3, -1, 0, -1, -1}));
  EXPECT_EQ(asked(5), (Left{4, -1, 0, -1, -1}));
  EXPECT_EQ(asked(9), (Left{8, -1, -1, 0, -1}));
  EXPECT_EQ(asked(10), (Left{9, 8, -1, 0, -1}));
  EXPECT_EQ(asked(31), (Left{30, 28, 24, 16, 0}));
  EXPECT_EQ(asked(32), (Left{31, -1, -1, -1, -1}));
  EXPECT_EQ(asked(50), (Left{49, 48, -1, -1, 32}));
}

TEST(CauseOfTails, SumsWithoutTermsHaveNoTail) {
  EXPECT_FALSE(IsAsked(Layer(kU8, {}, kS8, {}), "last product dropped"));
  EXPECT_FALSE(IsAsked(Layer(kU8, {}, kS8, {}), "last term dropped"));
  EXPECT_EQ(RealAnswer(Dynamic({255, 255, 255}, {1, 2, 3}), "last term dropped"), Reals{765});
}

// ---- Zero points.

TEST(CauseOfZeroPoints, TheTermsOfTheCorrection) {
  Case c = Layer(kU8, {10}, kS8, {5});
  c.x_q.zero_point = {3};
  c.w_q.zero_point = {2};
  ASSERT_EQ(exact::Evaluate(c).IntAt(0), 21);
  EXPECT_EQ(Answer(c, "weight zero point ignored"), Values{7 * 5});
  EXPECT_EQ(Answer(c, "input zero point ignored"), Values{10 * 3});
  EXPECT_EQ(Answer(c, "weight zero point taken from the input"), Values{(10 - 3 - 2) * 5});
  EXPECT_EQ(Answer(c, "padded K in K*zx*zw"), Values{50 - 3 * 5 - 2 * 10 + 4 * 3 * 2});
  EXPECT_FALSE(IsAsked(Layer(kU8, {1, 1, 1, 1}, kS8, {1, 1, 1, 1}), "padded K in K*zx*zw"));
  EXPECT_EQ(Answer(Layer(kU8, {1, 1, 1, 1, 2}, kS8, {1, 1, 1, 1, 3}), "padded K in K*zx*zw"),
            Values{10});
  const Case none = Layer(kU8, {10}, kS8, {5});
  EXPECT_FALSE(IsAsked(none, "weight zero point ignored"));
  EXPECT_FALSE(IsAsked(none, "input zero point ignored"));
}

TEST(CauseOfZeroPoints, TheSumOfRow0CorrectsAllRows) {
  Case c = Layer(kU8, {10, 20}, kS8, {5}, 2);
  c.w_q.zero_point = {2};
  EXPECT_EQ(Answer(c, "row sum of row 0"), (Values{50 - 20, 100 - 20}));
  EXPECT_FALSE(IsAsked(Layer(kU8, {10}, kS8, {5}), "row sum of row 0"));
}

TEST(CauseOfZeroPoints, ATermInFloat32IsRounded) {
  Case c = Layer(kU8, {0}, kS8, {1});
  c.x_q.zero_point = {(1 << 24) + 1};
  EXPECT_EQ(Answer(c, "float32 zero-point term"), Values{-(1 << 24)});
}

TEST(CauseOfZeroPoints, ATermNegatedInInt32MayBeItsOwnNegative) {
  constexpr auto* kName = "zero-point term negated in int32";
  const auto layer = [](int32_t zx, int32_t zw) {
    Case c = Layer(kU8, {2}, kS8, {2});
    c.x_q.zero_point = {zx}, c.w_q.zero_point = {zw};
    c.out_dtype = DType::kF32;
    OpenClamp(&c);
    return Checked(c);
  };
  EXPECT_EQ(RealAnswer(layer(INT32_MIN / 2, 0), kName), Reals{-0x1p31f + 4});
  EXPECT_EQ(RealAnswer(layer(0, INT32_MIN / 2), kName), Reals{-0x1p31f + 4});
  EXPECT_EQ(RealAnswer(layer(INT32_MIN / 2 + 1, 0), kName), Reals{0x1p31f - 2 + 4});
}

TEST(CauseOfZeroPoints, OneTooLargeOrSmallAndDifferencesIn8Bits) {
  Case c = Layer(kU8, {201}, kU8, {10});
  c.x_q.zero_point = {20};
  c.w_q.zero_point = {4};
  EXPECT_EQ(Answer(c, "input zero point one too large"), Values{180 * 6});
  EXPECT_EQ(Answer(c, "input zero point one too small"), Values{182 * 6});
  EXPECT_EQ(Answer(c, "weight zero point one too large"), Values{181 * 5});
  EXPECT_EQ(Answer(c, "weight zero point one too small"), Values{181 * 7});
  EXPECT_EQ(Answer(c, "input zero point subtracted in int8"), Values{(181 - 256) * 6});
  EXPECT_EQ(Answer(c, "input zero point subtracted, saturating"), Values{127 * 6});
  EXPECT_FALSE(IsAsked(c, "weight zero point subtracted in int8")) << "6 fits";
  c.w_q.zero_point = {30};
  EXPECT_EQ(Answer(c, "weight zero point subtracted in uint8"), Values{181 * 236});
  const std::optional<Tensor> both =
      AnswerOf(c, {"input zero point subtracted in int8", "weight zero point subtracted in uint8"});
  ASSERT_TRUE(both);
  EXPECT_EQ(both->IntAt(0), -75 * 236);
}

TEST(CauseOfOperands, WeightsInAnotherOrder) {
  Values x(32, 0), w(32);
  std::iota(w.begin(), w.end(), 0);
  const auto weight_read = [&](size_t k, const char* name) {
    Values one = x;
    one[k] = 1;
    return Answer(Layer(kU8, one, kS8, w), name)->front();
  };
  EXPECT_EQ(weight_read(1, "weights in halves of 32"), 2);
  EXPECT_EQ(weight_read(17, "weights in halves of 32"), 3);
  EXPECT_EQ(weight_read(2, "weights as neighbours of 32"), 1);
  EXPECT_EQ(weight_read(3, "weights as neighbours of 32"), 17);
  EXPECT_EQ(weight_read(6, "neighbouring weights swapped"), 7);
}

TEST(CauseOfScales, TwiceHalfAndNone) {
  Case c = ToCodes(Layer(kU8, {10}, kS8, {4}), kU8, 4, 3);
  ASSERT_EQ(exact::Evaluate(c).IntAt(0), 13);
  EXPECT_EQ(Answer(c, "result doubled"), Values{23});
  EXPECT_EQ(Answer(c, "result halved"), Values{8});
  EXPECT_EQ(Answer(c, "multiplier ignored"), Values{43});
  EXPECT_EQ(Answer(c, "output zero point ignored"), Values{10});
  EXPECT_EQ(Answer(ToCodes(Layer(kU8, {200}, kS8, {2}), kU8, 4, 3), "sum clamped early"),
            Values{67})
      << "255 / 4 and 3";
  EXPECT_EQ(Answer(ToCodes(Layer(kU8, {200}, kS8, {2}), kS8, 4, 3), "sum clamped early"),
            Values{35})
      << "127 / 4 and 3";
}

TEST(CauseOfClamps, ReluThatIsNotAskedForOrOnTheWrongSide) {
  Case c = ToCodes(Layer(kU8, {10}, kS8, {-4}), kU8, 4, 30);
  EXPECT_EQ(Answer(c, "relu added"), Values{30});
  EXPECT_FALSE(IsAsked(c, "relu on the wrong side")) << "there is none";
  c.relu = true;
  EXPECT_EQ(Answer(c, "relu on the wrong side"), Values{20});
  EXPECT_FALSE(IsAsked(c, "relu added"));
}

TEST(CauseOfRounding, TheZeroPointComesFirst) {
  // -2.5 and zero point 3: 0.5.
  const Case c = Quantized({-2.5f, -2.25f, -4.25f}, 1, 3);
  EXPECT_EQ(Answer(c, "zero point, then half away"), (Values{1, 1, -1}));
  EXPECT_EQ(Answer(c, "zero point, then truncation"), (Values{0, 0, -1}));
}

TEST(CauseOfZeroPoints, InAnInt8TheyWrap) {
  Case c = Layer(kU8, {201}, kU8, {131});
  c.x_q.zero_point = {200};  // -56
  c.w_q.zero_point = {130};  // -126
  EXPECT_EQ(Answer(c, "input zero point as int8"), Values{257 * 1});
  EXPECT_EQ(Answer(c, "weight zero point as int8"), Values{1 * 257});
  EXPECT_EQ(Answer(c, "negated zero point as int8"), Values{257 * 1}) << "-200 is 56";
  c.w_q.zero_point = {127};
  EXPECT_FALSE(IsAsked(c, "weight zero point as int8"));
  c.x_q.zero_point = {-128}, c.w_q.zero_point = {130};
  EXPECT_FALSE(IsAsked(c, "input zero point as int8"));
  // 128 is -128 in an int8, so that 128 is subtracted.
  EXPECT_EQ(Answer(c, "negated zero point as int8"), Values{(201 - 128) * 1});
  c.x_q.zero_point = {5};
  EXPECT_FALSE(IsAsked(c, "negated zero point as int8"));
}

TEST(CauseOfZeroPoints, ACaseWithoutChannelsHasNone) {
  Case c = CaseOver(Op::kDequantize, Tensor(kU8, {1, 0}), DType::kF32);
  c.per_channel = true;
  c.x_q.scale.clear(), c.x_q.zero_point.clear();
  ASSERT_EQ(Validate(c), "");
  EXPECT_FALSE(IsAsked(c, "negated zero point as int8"));
}

TEST(CauseOfZeroPoints, ADifferenceSaturatesAtInt8) {
  Case c = Elements(Op::kDequantize, kU8, {200, 0, 130});
  c.x_q.zero_point = {129};
  EXPECT_EQ(RealAnswer(c, "int8 difference"), (Reals{71, -128, 1}));
  c.x_q.zero_point = {0};
  EXPECT_EQ(RealAnswer(c, "int8 difference"), (Reals{127, 0, 127}));
}

// ---- Bias.

Case WithBias(Case c, const Reals& bias) {
  c.bias = bias;
  return Checked(std::move(c));
}

TEST(CauseOfBias, BeyondInt32ItWraps) {
  const Case layer = ToFloats(Layer(kU8, {0}, kS8, {0, 0, 0, 0}));
  const Case c = WithBias(layer, {0x1p32f + 0x1p20f, 7.5f, -0x1p31f, 0x1p63f});
  EXPECT_EQ(RealAnswer(c, "bias wraps"), (Reals{0x1p20f, 7.5f, -0x1p31f, -0x1p31f}));
  EXPECT_EQ(RealAnswer(c, "bias conversion overflow"), (Reals{-0x1p31f, 7.5f, -0x1p31f, -0x1p31f}));
  const Case least = WithBias(layer, {0, 0, 0, 0x1p31f});
  EXPECT_EQ(RealAnswer(least, "bias wraps"), (Reals{0, 0, 0, -0x1p31f}));
  EXPECT_EQ(RealAnswer(least, "bias conversion overflow"), (Reals{0, 0, 0, -0x1p31f}));
  const Case fits = WithBias(layer, {0x1p31f - 0x1p7f, 0, 1, -0x1p31f + 0x1p7f});
  EXPECT_FALSE(IsAsked(fits, "bias wraps"));
  EXPECT_FALSE(IsAsked(fits, "bias conversion overflow"));
  EXPECT_FALSE(IsAsked(layer, "bias wraps"));
}

TEST(CauseOfBias, ItsUnitsAreThoseOfTheChannel) {
  Case c = ToCodes(Layer(kU8, {0}, kS8, {0, 0, 0}), kS8);
  c.per_channel = true;
  c.x_q.scale = {0.5f};
  c.w_q = {{1, 8, 2}, {0, 0, 0}};
  c = WithBias(c, {3.3f, 30.0f, 0x1p40f});
  // 6.6 units of 0.5 are 7, 7.5 units of 4 are 8; 2^40 has no int32.
  EXPECT_EQ(Answer(c, "int32 bias"), (Values{4, 32, 127}));
  EXPECT_FALSE(IsAsked(WithBias(ToFloats(Layer(kU8, {0}, kS8, {0})), {1.2f}), "int32 bias"))
      << "a float output adds the float";
  EXPECT_FALSE(IsAsked(ToCodes(Layer(kU8, {0}, kS8, {0}), kS8), "int32 bias"));
}

TEST(CauseOfBias, NoDynamicLayerConvertsIt) {
  const Case c = WithBias(Dynamic({1}, {1}), {0x1p40f});
  for (const char* const name : {"bias wraps", "bias conversion overflow", "int32 bias"}) {
    EXPECT_FALSE(IsAsked(c, name)) << name;
  }
}

TEST(CauseOfBias, IsIgnored) {
  Case c = Layer(kU8, {2}, kS8, {3});
  EXPECT_FALSE(IsAsked(c, "bias ignored"));
  c.bias_i32 = {{100}};
  EXPECT_EQ(Answer(c, "bias ignored"), Values{6});
  EXPECT_EQ(RealAnswer(WithBias(ToFloats(Layer(kU8, {2}, kS8, {3})), {0.5f}), "bias ignored"),
            Reals{6});
}

// ---- Windows.

// One row of pixels of one channel.
Window Row(int64_t width, int64_t kernel) {
  return {.batch = 1, .in_h = 1, .in_w = width, .in_c = 1, .kernel_h = 1, .kernel_w = kernel};
}
// The same from top to bottom.
Window Column(int64_t height, int64_t kernel) {
  return {.batch = 1, .in_h = height, .in_w = 1, .in_c = 1, .kernel_h = kernel, .kernel_w = 1};
}

TEST(CauseOfPadding, CodeZero) {
  Window v = Row(2, 2);
  v.pad_left = 1;
  Case c = Windowed(Op::kConv2d, v, kU8, {5, 9}, {1, 2});
  c.x_q.zero_point = {3};
  EXPECT_EQ(Answer(c, "padding of code 0"), (Values{-3 + 2 * 2, 2 + 2 * 6}));
  EXPECT_EQ(Answer(Windowed(Op::kMaxPool, v, kS8, {-5, -6}), "padding of code 0"), (Values{0, -5}));
  c = Windowed(Op::kAvgPool, v, kU8, {10, 20});
  c.x_q.zero_point = {4};
  EXPECT_EQ(Answer(c, "padding of code 0"), (Values{10 - 2 * 4, (30 - 2 * 4) / 2}));
}

TEST(CauseOfPadding, WinsTheMaximum) {
  Window v = Row(2, 2);
  v.pad_left = 1;
  Case c = Windowed(Op::kMaxPool, v, kU8, {5, 6});
  c.x_q.zero_point = c.out_q.zero_point = {7};
  EXPECT_EQ(Answer(c, "padding wins"), (Values{7, 6}));
}

TEST(CauseOfPadding, CountsInTheDivisor) {
  Window v = Row(3, 4);
  v.stride_w = 2, v.pad_left = 1, v.pad_right = 1, v.ceil_mode = true;
  // Windows: padding and 12, 24, 60; then 24, 60, padding and a place beyond it.
  const Case left_out = Windowed(Op::kAvgPool, v, kU8, {12, 24, 60});
  EXPECT_EQ(exact::Evaluate(left_out).IntAt(0), 32);
  EXPECT_EQ(exact::Evaluate(left_out).IntAt(1), 42);
  EXPECT_EQ(Answer(left_out, "unclipped divisor"), (Values{96 / 3, 84 / 4}));
  EXPECT_EQ(Answer(left_out, "padding in the divisor"), (Values{96 / 4, 84 / 3}));
  EXPECT_EQ(Answer(left_out, "kernel as divisor"), (Values{96 / 4, 84 / 4}));
  EXPECT_FALSE(IsAsked(left_out, "padding not in the divisor"));
  v.count_include_pad = true;
  const Case counted = Windowed(Op::kAvgPool, v, kU8, {12, 24, 60});
  EXPECT_EQ(Answer(counted, "padding not in the divisor"), (Values{96 / 3, 84 / 2}));
  EXPECT_EQ(Answer(counted, "kernel as divisor"), (Values{96 / 4, 84 / 4}));
  EXPECT_FALSE(IsAsked(counted, "padding in the divisor"));
}

TEST(CauseOfPadding, StandsOnTheOtherSide) {
  Window row = Row(3, 2), column = Column(3, 2);
  row.pad_left = 1, column.pad_top = 1;
  for (const Window& v : {row, column}) {
    const Case c = Windowed(Op::kConv2d, v, kU8, {1, 2, 3}, {1, 10});
    EXPECT_EQ(Answer(c, "padding on other side"), (Values{21, 32, 3}));
    EXPECT_FALSE(IsAsked(c, "padding of other axis")) << "the output would have another shape";
  }
  row.pad_right = 1;
  EXPECT_FALSE(
      IsAsked(Windowed(Op::kConv2d, row, kU8, {1, 2, 3}, {1, 10}), "padding on other side"))
      << "it is the same on both";
}

TEST(CauseOfPadding, StandsOnTheOtherAxis) {
  Window v{.batch = 1, .in_h = 2, .in_w = 2, .in_c = 1, .kernel_h = 2, .kernel_w = 2};
  v.pad_top = 1, v.pad_right = 1;
  const Case c = Windowed(Op::kConv2d, v, kU8, {1, 2, 3, 4}, {1, 10, 100, 0});
  EXPECT_EQ(exact::Evaluate(c).bytes().size(), 16u);
  // Padded at the left and the bottom: rows 0 1 2, 0 3 4, 0 0 0.
  EXPECT_EQ(Answer(c, "padding of other axis"), (Values{10, 21 + 300, 30, 43}));
}

// The kernel makes as many outputs as it was asked for.
TEST(CauseOfPadding, OfTheOtherAxisMovesTheImageUnderTheOutputs) {
  Window v{.batch = 1, .in_h = 2, .in_w = 2, .in_c = 1};
  v.pad_left = 1;
  EXPECT_EQ(Answer(Windowed(Op::kConv2d, v, kU8, {1, 2, 3, 4}, {1}), "padding of other axis"),
            (Values{0, 0, 0, 1, 2, 0}));
  v.pad_left = 0, v.pad_top = 1;
  EXPECT_EQ(Answer(Windowed(Op::kConv2d, v, kU8, {1, 2, 3, 4}, {1}), "padding of other axis"),
            (Values{0, 1, 0, 3, 0, 0}));
  v.in_h = 1, v.in_w = 3, v.pad_top = 0, v.pad_left = 1;
  EXPECT_FALSE(IsAsked(Windowed(Op::kConv2d, v, kU8, {1, 2, 3}, {1}), "padding of other axis"))
      << "no pixel would be left";
}

// The last window of an axis without padding reaches beyond it, which counts nowhere.
TEST(CauseOfPadding, OfTheOtherAxisCountsInDivisors) {
  Window v{.batch = 1, .in_h = 3, .in_w = 3, .in_c = 1, .kernel_h = 2, .kernel_w = 2};
  v.stride_h = v.stride_w = 2, v.pad_bottom = 1;
  v.ceil_mode = v.count_include_pad = true;
  const Case c = Windowed(Op::kAvgPool, v, kU8, Values(9, 12));
  EXPECT_EQ(Answer(c, "padding of other axis"), (Values{12, 24 / 4, 12, 12 / 2}));
}

TEST(CauseOfPadding, NoPoolHasAWindowOfPaddingAlone) {
  Window v{.batch = 1, .in_h = 1, .in_w = 2, .in_c = 1, .kernel_h = 2, .kernel_w = 2};
  v.dilation_h = v.dilation_w = 2;
  v.pad_bottom = 2, v.pad_left = v.pad_right = 1;
  const Case c = Windowed(Op::kMaxPool, v, kU8, {1, 2});
  EXPECT_FALSE(IsAsked(c, "padding of other axis"));
  EXPECT_TRUE(IsAsked(c, "padding on other side"));
}

TEST(CauseOfGeometry, TheWidthOfTheKernelEndsAtItsHeight) {
  EXPECT_EQ(Answer(Windowed(Op::kConv2d, Row(3, 2), kU8, {1, 2, 3}, {1, 10}),
                   "kernel width bounded by height"),
            (Values{1, 2}));
  EXPECT_FALSE(IsAsked(Windowed(Op::kConv2d, Column(3, 2), kU8, {1, 2, 3}, {1, 10}),
                       "kernel width bounded by height"));
  const Window square{.batch = 1, .in_h = 2, .in_w = 2, .in_c = 1, .kernel_h = 2, .kernel_w = 2};
  EXPECT_FALSE(IsAsked(Windowed(Op::kConv2d, square, kU8, {1, 2, 3, 4}, {1, 1, 1, 1}),
                       "kernel width bounded by height"));
}

TEST(CauseOfGeometry, StridesAndDilationsOfTheOtherAxis) {
  Values image;
  for (int32_t i = 0; i < 16; ++i) image.push_back(i);
  Window v{.batch = 1, .in_h = 4, .in_w = 4, .in_c = 1, .kernel_h = 1, .kernel_w = 1};
  v.stride_h = 2, v.stride_w = 3;
  EXPECT_EQ(Answer(Windowed(Op::kMaxPool, v, kU8, image), "strides swapped"),
            (Values{0, 2, 12, 14}));
  EXPECT_FALSE(IsAsked(Windowed(Op::kMaxPool, v, kU8, image), "dilations swapped"));
  v.kernel_h = v.kernel_w = v.stride_h = v.stride_w = 2;
  v.dilation_h = 2, v.dilation_w = 3;
  const Case c = Windowed(Op::kConv2d, v, kU8, image, {1, 2, 3, 4});
  // Of the rows 0 and 3 and the columns 0 and 2.
  EXPECT_EQ(Answer(c, "dilations swapped"), Values{0 * 1 + 2 * 2 + 12 * 3 + 14 * 4});
  EXPECT_FALSE(IsAsked(c, "strides swapped"));
}

// From left to right and from top to bottom.
void ExpectUndilated(Window row, int64_t dilation, int64_t stride, int64_t pad, const Values& w,
                     const std::optional<Values>& expected) {
  row.dilation_w = dilation, row.stride_w = stride, row.pad_right = pad;
  Window column = Column(row.in_w, row.kernel_w);
  column.dilation_h = dilation, column.stride_h = stride, column.pad_bottom = pad;
  const Values x{1, 2, 3, 4, 5, 6};
  const Values first(x.begin(), x.begin() + row.in_w);
  for (const Window& v : {row, column}) {
    EXPECT_EQ(Answer(Windowed(Op::kConv2d, v, kU8, first, w), "dilation ignored"), expected);
  }
}

TEST(CauseOfGeometry, TheDilationIsIgnored) {
  ExpectUndilated(Row(4, 2), 2, 1, 0, {1, 10}, Values{21, 32});
  ExpectUndilated(Row(4, 2), 2, 1, 1, {1, 10}, (Values{21, 32, 43}));
  ExpectUndilated(Row(4, 2), 3, 1, 1, {1, 10}, (Values{21, 32}));
  ExpectUndilated(Row(4, 2), 2, 1, 2, {1, 10}, (Values{21, 32, 43, 4}));
  // Three taps: the kernel shrinks by two for each step of the dilation.
  ExpectUndilated(Row(4, 3), 3, 1, 5, {1, 10, 100}, (Values{321, 432, 43}));
  ExpectUndilated(Row(6, 3), 2, 1, 0, {1, 10, 100}, (Values{321, 432}));
  ExpectUndilated(Row(5, 2), 2, 2, 0, {1, 10}, (Values{21, 43}));
  ExpectUndilated(Row(6, 2), 4, 1, 0, {1, 10}, (Values{21, 32}));
  ExpectUndilated(Row(4, 2), 1, 1, 0, {1, 10}, std::nullopt);
  Window v = Row(4, 1);
  v.dilation_h = 2;
  EXPECT_TRUE(IsAsked(Windowed(Op::kConv2d, v, kU8, {1, 2, 3, 4}, {1}), "dilation ignored"));
}

// One more window may hang over the end. It reaches the last pixels of the image, not those behind.
TEST(CauseOfGeometry, StridesAndDilationsMayReachBeyondTheImage) {
  Values image(16);
  std::iota(image.begin(), image.end(), 0);
  Window v{.batch = 1, .in_h = 4, .in_w = 4, .in_c = 1};
  v.stride_w = 2;
  Case c = Windowed(Op::kConv2d, v, kU8, image, {1});
  EXPECT_EQ(Answer(c, "strides swapped"), (Values{0, 1, 8, 9, 0, 0, 0, 0}));
  v.stride_h = 2, v.stride_w = 1;
  c = Windowed(Op::kConv2d, v, kU8, image, {1});
  EXPECT_EQ(Answer(c, "strides swapped"), (Values{0, 2, 0, 0, 4, 6, 0, 0}));
  v.stride_h = 1, v.stride_w = 2;
  EXPECT_FALSE(IsAsked(Windowed(Op::kMaxPool, v, kU8, image), "strides swapped"))
      << "no window of a pool lies beyond the image";
  v = {.batch = 1, .in_h = 3, .in_w = 3, .in_c = 1, .kernel_h = 2, .kernel_w = 2};
  v.dilation_w = 2;
  image = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  c = Windowed(Op::kConv2d, v, kU8, image, {1, 2, 3, 4});
  EXPECT_EQ(Answer(c, "dilations swapped"), (Values{1 * 2 + 6 * 3 + 7 * 4, 3 * 1 + 4 * 2}));
  v.dilation_w = 1, v.dilation_h = 2;
  c = Windowed(Op::kConv2d, v, kU8, image, {1, 2, 3, 4});
  EXPECT_EQ(Answer(c, "dilations swapped"), (Values{2 * 2 + 3 * 3 + 5 * 4, 1 * 1 + 4 * 3}));
  v.stride_h = v.stride_w = 2, v.pad_top = 1, v.pad_left = 2;
  v.dilation_h = 1, v.dilation_w = 3;
  c = Windowed(Op::kConv2d, v, kU8, image, {1, 2, 3, 4});
  ASSERT_EQ(c.M, 2);
  // Rows -1 and 2, then 1 and 4; columns -2 and -1.
  EXPECT_EQ(Answer(c, "dilations swapped"), (Values{0, 0}));
}

TEST(CauseOfGeometry, ADilationIsIgnoredUnderCeilMode) {
  Window v = Row(6, 2);
  v.dilation_w = v.stride_w = 2, v.ceil_mode = true;
  EXPECT_EQ(Answer(Windowed(Op::kMaxPool, v, kU8, {1, 2, 3, 4, 5, 6}), "dilation ignored"),
            (Values{2, 4, 6}));
  v = Row(7, 2);
  v.dilation_w = 3, v.stride_w = 2, v.ceil_mode = true;
  EXPECT_EQ(Answer(Windowed(Op::kMaxPool, v, kU8, {1, 2, 3, 4, 5, 6, 7}), "dilation ignored"),
            (Values{2, 4, 6}));
}

// The kernel that steps to the next pixel instead of the second one.
TEST(CauseOfGeometry, ADilationThatIsIgnoredIsNamed) {
  Window v{.batch = 1, .in_h = 6, .in_w = 6, .in_c = 1, .kernel_h = 2, .kernel_w = 2};
  v.dilation_h = v.dilation_w = 2;
  Values x;
  for (int32_t i = 0; i < 36; ++i) x.push_back(i * i * 7 % 251);
  const Values w{3, -5, 17, 90};
  const Case c = Windowed(Op::kConv2d, v, kU8, x, w);
  Tensor y(DType::kS32, {1, 4, 4, 1});
  for (int64_t i = 0; i < 16; ++i) {
    const auto first = static_cast<size_t>(i / 4 * 6 + i % 4);
    y.SetInt(i, 3 * x[first] - 5 * x[first + 1] + 17 * x[first + 6] + 90 * x[first + 7]);
  }
  EXPECT_EQ(Attribute(c, y).causes, Hypothesis{&CauseNamed("dilation ignored")});
}

// Without dilation these windows would lie in the padding alone.
TEST(CauseOfGeometry, ADilationIsNotIgnoredWhereNoPixelWouldBeLeft) {
  Window v = Row(1, 2);
  v.dilation_w = 2, v.pad_left = 3;
  EXPECT_FALSE(IsAsked(Windowed(Op::kConv2d, v, kU8, {1}, {1, 10}), "dilation ignored"));
  v = Row(2, 2);
  v.dilation_w = 2, v.pad_left = 2;
  EXPECT_FALSE(IsAsked(Windowed(Op::kMaxPool, v, kU8, {1, 2}), "dilation ignored"));
}

// Images one behind the other, and several channels: the right pixels are left.
TEST(CauseOfGeometry, ADilationIsIgnoredInEachImage) {
  Window v{.batch = 2, .in_h = 3, .in_w = 3, .in_c = 2, .kernel_h = 2, .kernel_w = 2};
  v.dilation_h = v.dilation_w = 2;
  Values x(36), w(8, 0);
  std::iota(x.begin(), x.end(), 0);
  w[6] = 1, w[7] = 100;  // the tap (1, 1)
  // Pixel (1, 1) of each image, not pixel (2, 2).
  EXPECT_EQ(Answer(Windowed(Op::kConv2d, v, kU8, x, w), "dilation ignored"),
            (Values{8 + 900, 26 + 2700}));
}

TEST(CauseOfGeometry, ChannelsOfGroups) {
  Window v{.batch = 1, .in_h = 1, .in_w = 1, .in_c = 2};
  v.groups = 2;
  Case c = Windowed(Op::kConv2d, v, kU8, {10, 20}, {1, 2, 3, 4});
  EXPECT_EQ(Answer(c, "group modulo"), (Values{10, 40, 30, 80}));
  c = ToCodes(c, kS8);
  c.per_channel = true;
  c.w_q = {{1, 2, 0.5f, 0.25f}, {0, 0, 0, 0}};
  EXPECT_EQ(Answer(c, "channel within group"), (Values{10, 40, 60, 127}));
  v.groups = 1;
  c = Windowed(Op::kConv2d, v, kU8, {10, 20}, {1, 2, 3, 4});
  EXPECT_FALSE(IsAsked(c, "group modulo"));
  c = ToCodes(c, kS8);
  c.per_channel = true;
  c.w_q = {{1, 2}, {0, 0}};
  EXPECT_FALSE(IsAsked(c, "channel within group"));
}

TEST(CauseOfPools, SumsAndMaximaInNarrowCodes) {
  // 259 codes of 255 are 66045, which is 509 in 16 bits.
  Case c = Windowed(Op::kAvgPool, Row(259, 259), kU8, Values(259, 255));
  c.out_q.scale = {0.25f};
  EXPECT_EQ(Answer(c, "16-bit sum"), Values{8});
  // 200 codes of 255 fit a uint16, 100 codes of -128 an int16.
  c = Windowed(Op::kAvgPool, Row(200, 200), kU8, Values(200, 255));
  c.out_q.scale = {3};
  EXPECT_EQ(Answer(c, "16-bit sum"), Values{85});
  c = Windowed(Op::kAvgPool, Row(100, 100), kS8, Values(100, -128));
  EXPECT_EQ(Answer(c, "16-bit sum"), Values{-128});
  // 259 codes of -128 are -33152, which is 32384.
  c = Windowed(Op::kGlobalAvgPool, Row(259, 259), kS8, Values(259, -128));
  c.out_q.scale = {2.0f};
  EXPECT_EQ(Answer(c, "16-bit sum"), Values{63});
  // 258 codes of 3 are 774; 256 times 3, over 256, is what it was.
  EXPECT_EQ(
      Answer(Windowed(Op::kGlobalAvgPool, Row(258, 258), kU8, Values(258, 1)), "count in 8 bits"),
      Values{127})
      << "258 / 2";
  EXPECT_EQ(Answer(Windowed(Op::kAvgPool, Row(512, 512), kU8, Values(512, 3)), "count in 8 bits"),
            Values{3})
      << "no kernel divides by 0";
  EXPECT_FALSE(
      IsAsked(Windowed(Op::kAvgPool, Row(256, 256), kU8, Values(256, 3)), "count in 8 bits"));
  EXPECT_FALSE(
      IsAsked(Windowed(Op::kMaxPool, Row(258, 258), kU8, Values(258, 1)), "count in 8 bits"));
  EXPECT_EQ(Answer(Windowed(Op::kMaxPool, Row(2, 1), kS8, {-128, -126}), "maximum from -127"),
            (Values{-127, -126}));
  EXPECT_FALSE(IsAsked(Windowed(Op::kMaxPool, Row(2, 1), kU8, {0, 1}), "maximum from -127"));
}

// ---- Softmax.

TEST(CauseOfSoftmax, DistancesFromTheLargestCode) {
  Case c = Elements(Op::kSoftmax, kU8, {0, 0});
  EXPECT_EQ(Answer(c, "maximum not subtracted"), (Values{0, 0})) << "e^-255 is nothing";
  c = Elements(Op::kSoftmax, kU8, {255, 0});
  c.x_q.scale = {0.01f};
  ASSERT_EQ(exact::Evaluate(c).IntAt(0), 237);
  EXPECT_EQ(Answer(c, "int8 distance"), (Values{200, 56}));
  EXPECT_EQ(Answer(c, "maximum not subtracted"), (Values{237, 19}));
  EXPECT_FALSE(IsAsked(c, "maximum from 0")) << "u8";
  // Numerators of a row whose maximum is -128 are those of a distance of 128.
  const Case s8 = Elements(Op::kSoftmax, kS8, {-128, -128});
  EXPECT_EQ(Answer(s8, "maximum from 0"), (Values{-128, -128})) << "e^-128 is nothing";
  EXPECT_EQ(Answer(Elements(Op::kSoftmax, kS8, {1, 1}), "maximum from 0"), (Values{0, 0}));
  // 256 * 101 / 356 is 72.6, 256 * 255 / 356 is 183.4.
  EXPECT_TRUE(IsAsked(c, "truncation"));
}

// ---- Scales and zero points that are chosen.

// The scale and zero point that observers find for these values.
Case Observing(const Reals& values, Observer::Kind kind = Observer::Kind::kMinMax,
               int64_t batches = 1) {
  Case c;
  c.op = Op::kChooseQParams;
  c.M = 1;
  c.N = std::ssize(values) / batches;
  c.x = Tensor::Of<float>({batches, 1, c.N}, std::span<const float>(values));
  c.observer.kind = kind;
  return ToFloats(c);
}

TEST(CauseOfChoices, TheRangeOfTheValuesAlone) {
  EXPECT_EQ(RealAnswer(Observing({255, 510}), "range without zero"), (Reals{1, 0}));
  EXPECT_EQ(RealAnswer(Dynamic({255, 510}, {1, 1}), "range without zero"), Reals{510})
      << "codes up to 255 of scale 1 and zero point 0";
  EXPECT_FALSE(IsAsked(Observing({255, 510}, Observer::Kind::kHistogram), "range without zero"));
}

TEST(CauseOfChoices, HalfOfTheCodes) {
  Case c = Observing({0, 127 * 255});
  EXPECT_EQ(RealAnswer(c, "reduce_range added"), (Reals{255, 0}));
  EXPECT_FALSE(IsAsked(c, "reduce_range ignored"));
  c.observer.reduce_range = true;
  EXPECT_EQ(RealAnswer(c, "reduce_range ignored"), (Reals{127, 0}));
  EXPECT_FALSE(IsAsked(c, "reduce_range added"));
  EXPECT_FALSE(IsAsked(Observing({0, 5}, Observer::Kind::kHistogram), "reduce_range added"));
  EXPECT_TRUE(IsAsked(Dynamic({0, 5}, {1, 1}), "reduce_range added"));
}

TEST(CauseOfChoices, AScaleBelowTheLeast) {
  EXPECT_EQ(RealAnswer(Observing({0, 255 * 0x1p-40f}), "no scale floor"), (Reals{0x1p-40f, 0}));
  EXPECT_FALSE(IsAsked(Observing({0, 0x1p-30f}, Observer::Kind::kHistogram), "no scale floor"));
}

TEST(CauseOfChoices, AMovingAverageInDouble) {
  const Reals values{0, 1, 0, 1000};  // two batches
  Case c = Observing(values, Observer::Kind::kMovingAverage, 2);
  c.observer.averaging_constant = 0.3f;
  const double high = 1 + static_cast<double>(0.3f) * (1000.0 - 1);
  const std::optional<Reals> y = RealAnswer(c, "double average");
  ASSERT_TRUE(y);
  EXPECT_EQ((*y)[0], static_cast<float>(high) / 255);
  EXPECT_FALSE(IsAsked(Observing(values, Observer::Kind::kMinMax, 2), "double average"));
}

TEST(CauseOfChoices, RowsAndTheirChoices) {
  // Rows of scales 1 and 4, the second with zero point 0, the first with 255.
  const Reals x{-255, 0, 0, 1020};
  Case rows = Dynamic(x, {1, 2}, 2);
  rows.x_gran = Granularity::kRow;
  ASSERT_EQ(RealAnswer(rows, "a choice for each row"), std::nullopt);
  const Tensor right = exact::Evaluate(rows);
  ASSERT_EQ(right.FloatAt(0), -255.0f);
  ASSERT_EQ(right.FloatAt(1), 2040.0f);
  // Scale 1 and zero point 255 have no code above 0.
  EXPECT_EQ(RealAnswer(rows, "choice of row 0"), (Reals{-255, 0}));
  EXPECT_EQ(RealAnswer(rows, "scale of row 0"), (Reals{-255, 510}));
  EXPECT_EQ(RealAnswer(rows, "zero point of row 0"), (Reals{-255, 4 * (-255 + 0)}));
  EXPECT_EQ(RealAnswer(rows, "one choice for all rows"), (Reals{-255, 2040}));
  Case tensor = Dynamic(x, {1, 2}, 2);
  EXPECT_EQ(RealAnswer(tensor, "a choice for each row"), (Reals{-255, 2040}));
  EXPECT_FALSE(IsAsked(tensor, "one choice for all rows"));
  Case one = Dynamic({-255, 0}, {1, 2});
  one.x_gran = Granularity::kRow;
  for (const char* const name : {"choice of row 0", "scale of row 0", "zero point of row 0"}) {
    EXPECT_FALSE(IsAsked(tensor, name)) << name;
    EXPECT_FALSE(IsAsked(one, name)) << name;
  }
}

TEST(CauseOfChoices, AnotherRule) {
  Case c = Dynamic({0, 0}, {1, 1});
  EXPECT_FALSE(IsAsked(c, "rule of observers")) << "it is the rule of the case";
  EXPECT_TRUE(IsAsked(c, "rule of ATen"));
  EXPECT_TRUE(IsAsked(c, "rule of ONNX"));
  c.rule = QParamsRule::kOnnx;
  EXPECT_TRUE(IsAsked(c, "rule of observers"));
  EXPECT_FALSE(IsAsked(c, "rule of ONNX"));
  c.rule = QParamsRule::kObserver;
  c.observer.symmetric = true;
  EXPECT_FALSE(IsAsked(c, "rule of ATen")) << "has no such parameter";
  EXPECT_FALSE(IsAsked(Observing({0, 1}), "rule of ATen"));
  // Values whose range is too narrow for an observer's least scale, 2^-23, are codes under ONNX.
  const float tiny = 0x1p-40f;
  EXPECT_EQ(RealAnswer(Dynamic({255 * tiny}, {1}), "rule of ONNX"), Reals{255 * tiny});
}

TEST(CauseOfChoices, PairsOfADynamicLayer) {
  Case c = Dynamic({255, 255}, {127, 127});
  EXPECT_EQ(RealAnswer(c, "pair saturation"), Reals{32767});
  c.w = Codes(kU8, {1, 2}, {127, 127});
  EXPECT_FALSE(IsAsked(c, "pair saturation"));
}

// ---- Channels and operands.

TEST(CauseOfIndices, ParametersOfOtherChannels) {
  Case c = Elements(Op::kDequantize, kU8, {1, 1, 1});
  c.per_channel = true;
  c.x_q = {{1, 2, 3}, {0, 0, 0}};
  EXPECT_EQ(RealAnswer(c, "channel 0 for all"), (Reals{1, 1, 1}));
  EXPECT_FALSE(IsAsked(c, "channel modulo 8"));
  c = Quantized(Reals(18, 64));
  c.per_channel = true;
  c.out_q = {Reals(18, 1), Values(18, 0)};
  EXPECT_FALSE(IsAsked(c, "channel 0 for all")) << "all channels are equal";
  c.out_q.scale[8] = 2, c.out_q.scale[0] = 4, c.out_q.scale[17] = 8;
  Values expected(18, 64);
  expected[0] = expected[8] = expected[16] = 16;
  EXPECT_EQ(Answer(c, "channel modulo 8"), expected);
  expected[8] = 32;
  EXPECT_EQ(Answer(c, "channel modulo 16"), expected);
  c = CaseOver(Op::kRequantize, Tensor::Of<int32_t>({1, 2}, Values{8, 8}), kS8);
  c.per_channel = true;
  c.multiplier = {1, 0.5f};
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(Answer(c, "channel 0 for all"), (Values{8, 8}));
}

TEST(CauseOfIndices, ALayerWithoutChannelsHasNoParameters) {
  Case c;
  c.op = Op::kConv2d;
  c.window = {.batch = 1, .in_h = 1, .in_w = 1, .in_c = 2};
  c.window.groups = 2;
  DeriveSizes(&c);
  c.x = Tensor(kU8, {1, 1, 1, 2});
  c.w = Tensor(kS8, {0, 1, 1, 1});
  ASSERT_EQ(Validate(c), "");
  EXPECT_FALSE(IsAsked(c, "channel within group"));
  EXPECT_FALSE(IsAsked(c, "channel 0 for all"));
}

TEST(CauseOfIndices, ATableThatBeginsAtTheLowestCode) {
  Case c = Elements(Op::kTable, kS8, {5, -128});
  EXPECT_EQ(Answer(c, "table index offset"), (Values{0, 0})) << "relu of -123 and of 0";
  c = Elements(Op::kTable, kS8, {-123, -28});
  EXPECT_EQ(Answer(c, "table index offset"), (Values{5, 100}));
  EXPECT_FALSE(IsAsked(Elements(Op::kTable, kU8, {5}), "table index offset"));
}

TEST(CauseOfIndices, OperandsThatAreTakenForOthers) {
  Case c = Elements(Op::kConcat, kU8, {10}, {20});
  c.x_q = {{2}, {1}}, c.w_q = {{1}, {0}};
  EXPECT_EQ(Answer(c, "first operand for all"), (Values{18, 38}));
  EXPECT_EQ(Answer(c, "operands swapped"), (Values{10, 38}));
  c.w_q = c.x_q;
  EXPECT_FALSE(IsAsked(c, "first operand for all"));
  EXPECT_FALSE(IsAsked(c, "operands swapped"));
  c = Elements(Op::kAdd, kU8, {200}, {140});
  EXPECT_EQ(Answer(c, "sign of both operands"), Values{-128}) << "-56 - 116";
  c.out_q.scale = {2};
  EXPECT_EQ(Answer(c, "sign of both operands"), Values{-86});
  EXPECT_EQ(Answer(c, "input sign"), Values{(-56 + 140) / 2});
  EXPECT_EQ(Answer(c, "weight sign"), Values{(200 - 116) / 2});
  EXPECT_FALSE(IsAsked(Layer(kU8, {}, kS8, {}), "weight sign")) << "there are no codes";
  EXPECT_FALSE(IsAsked(Elements(Op::kRescale, kU8, {1}), "weight sign"));
}

// ---- Rounding.

// Ties and other values on both sides of zero, with the codes that one rounding gives.
TEST(CauseOfRounding, TiesAndTruncation) {
  const Case c = Quantized({0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.3f, 1.7f, -0.3f, -1.7f, 3});
  EXPECT_EQ(Answer(c, "half away from zero"), (Values{1, 2, 3, -1, -2, -3, 0, 2, 0, -2, 3}));
  EXPECT_EQ(Answer(c, "half up"), (Values{1, 2, 3, 0, -1, -2, 0, 2, 0, -2, 3}));
  EXPECT_EQ(Answer(c, "truncation"), (Values{0, 1, 2, 0, -1, -2, 0, 1, 0, -1, 3}));
}

// -1.5, -0.5, 0.5 and 1.5, and what is no tie.
TEST(CauseOfRounding, NegativeTiesAlone) {
  const Case c = Quantized({-2.5f, -1.5f, -0.5f, 0.5f, 1.5f, 2.5f, -0.75f, -1.25f});
  EXPECT_EQ(Answer(c, "half down below zero"), (Values{-3, -2, -1, 0, 2, 2, -1, -1}));
  EXPECT_EQ(Answer(c, "half up below zero"), (Values{-2, -1, 0, 0, 2, 2, -1, -1}));
}

TEST(CauseOfRounding, TheZeroPointIsAddedFirst) {
  const Reals x{0.5f, 1.5f, -0.5f, -1.5f, 0.3f, 1.7f};
  EXPECT_EQ(Answer(Quantized(x, 1, 1), "zero point before rounding"), (Values{2, 2, 0, 0, 1, 3}));
  EXPECT_EQ(Answer(Quantized(x, 1, 2), "zero point before rounding"), (Values{2, 4, 2, 0, 2, 4}));
  EXPECT_EQ(Answer(Quantized(x, 1, -3), "zero point before rounding"),
            (Values{-2, -2, -4, -4, -3, -1}));
  EXPECT_EQ(Answer(Quantized(x, 1, 1), "zero point before rounding (float32)"),
            (Values{2, 2, 0, 0, 1, 3}));
  // The float32 sum loses the tenth that makes the code 4.
  EXPECT_EQ(Answer(Quantized({-0x1p24f + 3.6f}, 1, 1 << 24), "zero point before rounding"),
            Values{4});
  EXPECT_EQ(Answer(Quantized({2.5f + 0x1p-22f}, 1, 64), "zero point before rounding (float32)"),
            Values{66});
}

TEST(CauseOfRounding, QuotientsInFloat32) {
  // 45.5 / 7 is 6.5, a tie; 45.5 * fl(1/7) is above it.
  EXPECT_EQ(Answer(Quantized({45.5f}, 7), "x * fl(1/s)"), Values{7});
  EXPECT_EQ(Answer(Quantized({45.5f}, 7), "x * fl(1/s), NaN is 0"), Values{7});
  EXPECT_EQ(Answer(Quantized({45.5f}, 7), "fl(x / s)"), Values{6});
  // 5.5 - 1.5 * 2^-23, which is 5.5 in float32 and then 6.
  EXPECT_EQ(Answer(Quantized({5.5f + 4 * kUlp}, 1 + kUlp), "fl(x / s)"), Values{6});
  EXPECT_EQ(exact::Evaluate(Quantized({5.5f + 4 * kUlp}, 1 + kUlp)).IntAt(0), 5);
}

TEST(CauseOfRounding, NanAndZeroTimesInfinity) {
  const Case c = Quantized({kNan, 0, 0x1p-149f, 1}, 0x1p-149f, 10);
  EXPECT_EQ(Answer(c, "x * fl(1/s)"), (Values{10, -128, 127, 127}));
  EXPECT_EQ(Answer(c, "x * fl(1/s), NaN is 0"), (Values{10, 10, 127, 127}));
  EXPECT_EQ(Answer(c, "fl(x / s)"), (Values{10, 10, 11, 127}));
}

TEST(CauseOfRounding, SumsInFloat32) {
  Case c = ToCodes(Layer(kU8, {0}, kS8, {0}), kS8, 0x1p25f);
  c.bias_i32 = {{(1 << 24) + 1}};
  ASSERT_EQ(exact::Evaluate(c).IntAt(0), 1);
  EXPECT_EQ(Answer(c, "float32 multiplier"), Values{0}) << "2^24 / 2^25 is a tie";
  c = ToCodes(Layer(kU8, {91}, kS8, {1}), kS8, 14);
  EXPECT_EQ(Answer(c, "float32 multiplier"), Values{7}) << "91 * fl(1/14) is above 6.5";
  c = ToCodes(Layer(kU8, {49}, kS8, {1}), kS8, 14);
  c.x_q.scale = {3};
  EXPECT_EQ(Answer(c, "float32 multiplier"), Values{10}) << "49 * fl(3/14) is 10.5";
  EXPECT_EQ(Answer(c, "float32 reciprocal"), Values{11}) << "49 * fl(3 * fl(1/14)) is above";
  c = ToCodes(Layer(kU8, {147}, kS8, {1}), kS8, 98);
  EXPECT_EQ(Answer(c, "float64 multiplier"), Values{1}) << "147 * (1/98) is below 1.5";
  // The bias comes in units of the sum.
  c = WithBias(ToCodes(Layer(kU8, {10}, kS8, {1}), kS8), {3});
  c.x_q.scale = {0.5f};
  EXPECT_EQ(Answer(c, "float32 multiplier"), Values{8});
  EXPECT_EQ(Answer(c, "float64 multiplier"), Values{8});
}

TEST(CauseOfRounding, AveragesInFloats) {
  Case c = Windowed(Op::kAvgPool, Row(3, 3), kU8, {25, 25, 25});
  c.out_q.scale = {10};
  EXPECT_EQ(Answer(c, "float32 multiplier"), Values{3}) << "75 * fl(fl(1/10) / 3) is above 2.5";
  EXPECT_EQ(Answer(c, "float64 multiplier"), Values{2});
}

// A product of scales that is 0 in float32 gives 0. A division by it would give NaN, which the
// conversion turns into the lower bound.
TEST(CauseOfRounding, AProductOfScalesMayBeZeroInFloat32) {
  Case c = ToCodes(Layer(kU8, {1}, kS8, {1}), kU8, 0x1p-126f, 10);
  c.x_q.scale = c.w_q.scale = {0x1p-100f};
  const std::optional<Tensor> y = AnswerOf(c, {"float32 multiplier", "conversion overflow"});
  ASSERT_TRUE(y);
  EXPECT_EQ(y->IntAt(0), 10);
}

TEST(CauseOfRounding, SumsOfTwoOperandsInFloats) {
  Case c = Elements(Op::kAdd, kU8, {10}, {5});
  c.w_q.scale = {2};
  c.out_q.scale = {4};
  for (const char* const name :
       {"float32 multiplier", "float32 reciprocal", "float64 multiplier"}) {
    EXPECT_EQ(Answer(c, name), Values{5}) << name;
  }
  c = Elements(Op::kAdd, kU8, {1}, {14});
  c.out_q.scale = {6};
  EXPECT_EQ(Answer(c, "operands in float32"), Values{2}) << "fl(15 / 6) is 2.5";
  EXPECT_EQ(Answer(c, "float32 multiplier"), Values{3}) << "fl(1/6) + 14 * fl(1/6) is above";
  EXPECT_EQ(Answer(c, "float32 reciprocal"), Values{3}) << "so it is where fl(1/6) is a factor";
  c = Elements(Op::kAdd, kU8, {18}, {3});
  c.out_q.scale = {14};
  EXPECT_EQ(Answer(c, "float64 multiplier"), Values{2}) << "21 / 14, not 18 / 14 + 3 / 14";
  c = Elements(Op::kAdd, kU8, {1}, {1});
  c.w_q.scale = {0x1p-60f};
  c.out_q.scale = {2};
  ASSERT_EQ(exact::Evaluate(c).IntAt(0), 1);
  EXPECT_EQ(Answer(c, "float64 multiplier"), Values{0}) << "1 + 2^-60 is 1 in float64";
}

TEST(CauseOfRounding, FloatsStepByStep) {
  Case c = ToFloats(Layer(kU8, {3}, kS8, {1, 2}));
  c.x_q.scale = {1 + kUlp};
  c.w_q.scale = {1 + kUlp};
  // 3 * (1 + 2u), u^2 lost; the exact sum is rounded once.
  EXPECT_EQ(RealAnswer(c, "float32 multiplier"), (Reals{3 * (1 + 2 * kUlp), 6 * (1 + 2 * kUlp)}));
  EXPECT_EQ(RealAnswer(c, "float32 scale product"),
            (Reals{3 * (1 + 2 * kUlp), 6 * (1 + 2 * kUlp)}));
  c = WithBias(c, {-3, 0x1p24f});
  EXPECT_EQ(RealAnswer(c, "float32 multiplier"),
            (Reals{3 * (1 + 2 * kUlp) - 3, 0x1p24f + 6 * (1 + 2 * kUlp)}));
}

// 65 units of 16519105 are 2^30 + 1. Above 2^54 a float64 loses the 1, and 2^30 is half a unit of a
// float32.
TEST(CauseOfRounding, FloatsAreRoundedTwice) {
  constexpr auto* kName = "float64, then float32";
  Case c = ToFloats(Layer(kU8, {65}, kS8, {1}));
  c.x_q.scale = {16519105};
  c.bias = {{0x1p54f}};
  ASSERT_EQ(exact::Evaluate(c).FloatAt(0), 0x1p54f + 0x1p31f);
  EXPECT_EQ(RealAnswer(c, kName), Reals{0x1p54f});
  c.bias.reset();
  EXPECT_EQ(RealAnswer(c, kName), Reals{0x1p30f}) << "without a bias";
  c.w_q.scale = {0.5f};
  EXPECT_EQ(RealAnswer(c, kName), Reals{0x1p29f});
  EXPECT_FALSE(IsAsked(Layer(kU8, {1}, kS8, {1}), kName));
  EXPECT_TRUE(IsAsked(Dynamic({1, 2}, {3, 4}), kName));
}

TEST(CauseOfRounding, TheProductOfTheScales) {
  Case c = ToCodes(Layer(kU8, {3}, kS8, {1}), kS8);
  c.x_q.scale = {0.5f * (1 + kUlp)};
  c.w_q.scale = {1 - kUlp};
  ASSERT_EQ(exact::Evaluate(c).IntAt(0), 1) << "just below 1.5";
  EXPECT_EQ(Answer(c, "float32 scale product"), Values{2});
  Case requantized = CaseOver(Op::kRequantize, Tensor::Of<int32_t>({1, 1}, Values{3}), kS8);
  requantized.x_q = c.x_q, requantized.w_q = c.w_q;
  EXPECT_EQ(Answer(requantized, "float32 scale product"), Values{2});
  requantized.x_q = requantized.w_q = {};
  requantized.multiplier = {0.5f};
  EXPECT_FALSE(IsAsked(Checked(requantized), "float32 scale product")) << "has no product";
  c.x_q.scale = c.w_q.scale = {0x1p100f};
  EXPECT_FALSE(IsAsked(c, "float32 scale product")) << "infinite";
  EXPECT_FALSE(IsAsked(Layer(kU8, {3}, kS8, {1}), "float32 scale product")) << "sums have none";
  c = ToCodes(Layer(kU8, {3}, kS8, {1}), kS8);
  c.requant = Requant::kFloat32;
  EXPECT_FALSE(IsAsked(c, "float32 scale product")) << "its steps are the meaning";
  Case empty;
  empty.M = empty.K = 1;
  empty.x = Tensor(kU8, {1, 1}), empty.w = Tensor(kS8, {0, 1});
  empty.per_channel = true;
  empty.w_q.scale.clear(), empty.w_q.zero_point.clear();
  EXPECT_FALSE(IsAsked(Checked(empty), "float32 scale product"));
}

TEST(CauseOfRounding, DenormalsAreZero) {
  Case c = Elements(Op::kDequantize, kS8, {1, -1, 127});
  c.x_q.scale = {0x1p-130f};
  const std::optional<Reals> y = RealAnswer(c, "denormals are zero");
  ASSERT_TRUE(y);
  EXPECT_EQ(*y, (Reals{0, 0, 127 * 0x1p-130f}));
  EXPECT_TRUE(std::signbit((*y)[1]));
  // A denormal scale is 0, and 0/0 becomes the smallest integer.
  c = Quantized({0x1p-140f, 0, 1, -1, kNan}, 0x1p-140f, 3);
  EXPECT_EQ(Answer(c, "denormals are zero"), (Values{-128, -128, 127, -128, 3}));
  c = Quantized({0x1p-140f, 1}, 0x1p-126f, 3);
  EXPECT_EQ(exact::Evaluate(Quantized({0x1p-127f * 1.5f}, 0x1p-126f, 3)).IntAt(0), 4);
  EXPECT_EQ(Answer(Quantized({0x1p-127f * 1.5f, 0x1p-126f}, 0x1p-126f, 3), "denormals are zero"),
            (Values{3, 4}));
  EXPECT_FALSE(IsAsked(Quantized({1, -2, kNan}), "denormals are zero"));
  EXPECT_TRUE(IsAsked(Quantized({1, 0x1p-140f}), "denormals are zero"));
  c = Quantized({8, 8});
  c.per_channel = true;
  c.out_q = {{0x1p-140f, 2}, {0, 0}};
  EXPECT_EQ(Answer(c, "denormals are zero"), (Values{127, 4}));
  c = Quantized({kNan, 8});
  c.per_channel = true;
  c.out_q = {{2, 0x1p-140f}, {0, 0}};
  EXPECT_EQ(Answer(c, "denormals are zero"), (Values{0, 127}));
}

// A kernel that flushes what it loads may have taken the reciprocal of the scale before.
TEST(CauseOfRounding, DenormalInputsAreZero) {
  constexpr auto* kName = "denormal inputs are zero";
  EXPECT_EQ(Answer(Quantized({0x1p-140f, -0x1p-140f, 0x1p-126f}, 0x1p-140f, 5), kName),
            (Values{5, 5, 127}));
  EXPECT_FALSE(IsAsked(Quantized({1, 0x1p-126f}, 0x1p-140f), kName)) << "the scale alone is one";
  EXPECT_FALSE(IsAsked(Quantized({1, kNan}), kName));
}

TEST(CauseOfRounding, LeftShiftsAreDropped) {
  constexpr auto* kName = "left shift dropped";
  const auto rescale = [](float x_scale, float y_scale, int32_t code) {
    Case c = Elements(Op::kRescale, kS8, {code});
    c.x_q.scale = {x_scale};
    c.out_q.scale = {y_scale};
    return c;
  };
  EXPECT_EQ(Answer(rescale(3, 1, 8), kName), Values{6}) << "3 is 0.75 and a shift by 2";
  EXPECT_EQ(Answer(rescale(1, 1, 8), kName), Values{4}) << "1 is 0.5 and a shift by 1";
  EXPECT_FALSE(IsAsked(rescale(0.9f, 1, 8), kName));
  EXPECT_FALSE(IsAsked(rescale(0.1f, 1, 8), kName));
  EXPECT_EQ(Answer(rescale(24, 8, 8), kName), Values{6});
  // Scales that are denormal, or would be without the shift.
  EXPECT_EQ(Answer(rescale(3 * 0x1p-149f, 0x1p-149f, 8), kName), Values{6});
  EXPECT_EQ(Answer(rescale(0x1.8p-125f, 0x1p-127f, 16), kName), Values{12});
  EXPECT_EQ(Answer(rescale(0x1.8p+127f, 0x1p126f, 8), kName), Values{6});
  Case c = Elements(Op::kMul, kS8, {2}, {4});
  c.x_q.scale = {6}, c.w_q.scale = {0.5f};
  EXPECT_EQ(Answer(c, kName), Values{6});
  c.x_q.scale = {0.5f}, c.w_q.scale = {6};
  EXPECT_EQ(Answer(c, kName), Values{6});
  c.w_q.scale = {0.25f};
  EXPECT_FALSE(IsAsked(c, kName));
  for (const Op op : {Op::kAdd, Op::kSub}) {
    c = Elements(op, kS8, {8}, {4});
    c.x_q.scale = {3}, c.w_q.scale = {1};
    EXPECT_EQ(Answer(c, kName), Values{op == Op::kAdd ? 6 + 2 : 6 - 2}) << Name(op);
    c.x_q.scale = {0.25f};
    EXPECT_EQ(Answer(c, kName), Values{op == Op::kAdd ? 2 + 2 : 2 - 2}) << Name(op);
    c.w_q.scale = {0.25f};
    EXPECT_FALSE(IsAsked(c, kName)) << Name(op);
  }
  c = Elements(Op::kConcat, kS8, {8}, {8});
  c.x_q.scale = {0.5f}, c.w_q.scale = {3};
  EXPECT_EQ(Answer(c, kName), (Values{4, 6}));
  // No float32 holds the scales that would keep the smallest one normal.
  c.x_q.scale = {0x1p-149f}, c.w_q.scale = {0x1p127f}, c.out_q.scale = {0x1p127f};
  EXPECT_FALSE(IsAsked(c, kName));
}

// ---- Clamp.

TEST(CauseOfClamps, ReluAndBounds) {
  Case c = Quantized({-50, -20, 0, 20, 50}, 1, 10);
  EXPECT_FALSE(IsAsked(c, "relu at code 0"));
  EXPECT_FALSE(IsAsked(c, "relu ignored"));
  EXPECT_FALSE(IsAsked(c, "clamp ignored"));
  c.relu = true;
  EXPECT_EQ(Answer(c, "relu at code 0"), (Values{0, 0, 10, 30, 60}));
  EXPECT_EQ(Answer(c, "relu ignored"), (Values{-40, -10, 10, 30, 60}));
  EXPECT_FALSE(IsAsked(c, "relu instead of out_min")) << "there is no bound";
  c.out_min = 40;
  EXPECT_EQ(Answer(c, "relu instead of out_min"), (Values{10, 10, 10, 30, 60}));
  c.relu = false;
  EXPECT_FALSE(IsAsked(c, "relu instead of out_min"));
  c.relu = true, c.out_min = -128;
  c.out_max = 0;
  EXPECT_EQ(Answer(c, "relu at code 0"), (Values{0, 0, 0, 0, 0}));
  c.out_max = -1;
  EXPECT_FALSE(IsAsked(c, "relu at code 0")) << "no code is left";
  c.out_max = 127, c.out_min = 5;
  EXPECT_EQ(Answer(c, "relu at code 0"), (Values{5, 5, 10, 30, 60}));
  c.relu = false, c.out_min = -15;
  EXPECT_EQ(Answer(c, "clamp ignored"), (Values{-40, -10, 10, 30, 60}));
  c.out_min = -128, c.out_max = 25;
  EXPECT_EQ(Answer(c, "clamp ignored"), (Values{-40, -10, 10, 30, 60}));
}

TEST(CauseOfClamps, ValuesBeyondTheTypes) {
  const Case s8 = Quantized({200, -200, 300, 0x1p31f, -0x1p31f, 0x1p31f - 0x1p7f, 0x1p40f});
  EXPECT_EQ(Answer(s8, "conversion overflow"), (Values{127, -128, 127, -128, -128, 127, -128}));
  // The low bytes of 2^31 - 1 and -2^31, at which int32 ends.
  EXPECT_EQ(Answer(s8, "truncating narrow"), (Values{-56, 56, 44, -1, 0, -128, -1}));
  const Case u8 = Quantized({200, -200, 300, -0x1p40f, 0x1p40f}, 1, 0, kU8);
  EXPECT_EQ(Answer(u8, "truncating narrow"), (Values{200, 56, 44, 0, 255}));
}

TEST(CauseOfClamps, NanBecomesTheLowerBound) {
  EXPECT_EQ(Answer(Quantized({kNan, 3, kInf}, 1, 10), "NaN as lower bound"),
            (Values{-128, 13, 127}));
  EXPECT_FALSE(IsAsked(Quantized({1, kInf, -kInf}), "NaN as lower bound"));
  EXPECT_EQ(RealAnswer(Dynamic({kNan, -1, 254}, {1, 0, 0}), "NaN as lower bound"), Reals{-1});
}

// ---- Which causes are asked.

// A small case of each operation, of two rows, in which most steps have something to do.
Case PlainCase(Op op) {
  const OpRow& row = RowOf(op);
  const Values four{1, 2, 3, 4}, fourteen{1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7};
  Case c;
  if (HasWindow(op)) {
    Window v{.batch = 2, .in_h = 1, .in_w = 3, .in_c = 2, .kernel_h = 1, .kernel_w = 3};
    if (row.depthwise) v.groups = 2;
    c = Windowed(op, v, kS8, Values(12, 7), Values(row.depthwise ? 6 : 12, 1));
  } else if (op == Op::kChooseQParams) {
    c = Observing({1, 2}, Observer::Kind::kMovingAverage);
  } else if (op == Op::kQuantize || op == Op::kRequantize) {
    Tensor x = op == Op::kQuantize ? Tensor(DType::kF32, {2, 2}) : Tensor(DType::kS32, {2, 2});
    c = CaseOver(op, std::move(x), kS8);
  } else if (row.dynamic) {
    c = Dynamic(Reals(14, 1), fourteen, 2);
    c.x_gran = Granularity::kRow;
  } else if (HasSums(op)) {
    c = Layer(kS8, fourteen, kS8, fourteen, 2);
  } else {
    c = Elements(op, kS8, four, HasTwoInputs(op) ? four : Values{}, 2);
  }
  if (HasSums(op)) c = ToCodes(c, kS8);
  if (row.bias) c.bias = Reals(static_cast<size_t>(c.N), 1);
  return Checked(c);
}

std::string OpsAskedAbout(const Cause& cause) {
  std::string ops;
  for (const Op op : AllOps()) {
    if (!cause.applies(PlainCase(op))) continue;
    ops += (ops.empty() ? "" : " ") + std::string(Name(op));
  }
  return ops;
}

// A cause that is asked about an operation without its step costs time and may fit an answer by
// chance; one that is not asked is never named.
TEST(CausesAsked, AreThoseOfTheStepsOfAnOperation) {
  struct Group {
    const char* ops;
    std::vector<const char*> names;
  };
  const std::vector<Group> groups{
      {"linear conv2d depthwise dynamic_linear",
       {"pair saturation", "16-bit accumulation", "int16 pair wrap", "int16 wrap of taps",
        "weight zero point taken from the input", "padded K in K*zx*zw", "row sum of row 0",
        "float32 zero-point term", "zero-point term negated in int32",
        "input sign in the products"}},
      {"mul linear conv2d depthwise dynamic_linear", {"int32 wrap"}},
      {"mul", {"int16 product"}},
      {"linear dynamic_linear",
       {"last product dropped", "product tail of 4 dropped", "product tail of 8 dropped",
        "last term dropped", "term tail of 4 dropped", "term tail of 8 dropped"}},
      {"",
       {"product tail of 16 dropped", "product tail of 32 dropped", "term tail of 16 dropped",
        "term tail of 32 dropped", "padding not in the divisor"}},
      {"linear conv2d depthwise", {"bias wraps", "bias conversion overflow", "int32 bias"}},
      {"avg_pool global_avg_pool", {"16-bit sum"}},
      {"", {"count in 8 bits"}},
      {"max_pool", {"maximum from -127", "padding wins"}},
      {"conv2d depthwise max_pool avg_pool", {"padding of code 0"}},
      {"avg_pool", {"unclipped divisor", "padding in the divisor", "kernel as divisor"}},
      {"conv2d depthwise max_pool avg_pool global_avg_pool",
       {"padding on other side", "padding of other axis", "strides swapped", "dilations swapped",
        "dilation ignored"}},
      {"conv2d depthwise", {"kernel width bounded by height"}},
      {"depthwise", {"group modulo", "channel within group"}},
      {"softmax", {"maximum not subtracted", "maximum from 0", "int8 distance"}},
      {"quantize", {"denormal inputs are zero"}},
      {"choose_qparams", {"no scale floor", "double average"}},
      {"choose_qparams dynamic_linear", {"range without zero", "reduce_range added"}},
      {"dynamic_linear",
       {"one choice for all rows", "a choice for each row", "choice of row 0", "scale of row 0",
        "zero point of row 0", "rule of observers", "rule of ATen", "rule of ONNX"}},
      {"quantize dynamic_linear",
       {"NaN as lower bound", "x * fl(1/s)", "x * fl(1/s), NaN is 0", "fl(x / s)"}},
      {"dequantize", {"int8 difference"}},
      {"quantize dequantize dynamic_linear", {"denormals are zero"}},
      {"requantize rescale add sub mul linear conv2d depthwise avg_pool global_avg_pool concat",
       {"float64 multiplier", "float32 reciprocal"}},
      {"requantize rescale add sub mul linear conv2d depthwise avg_pool global_avg_pool concat "
       "dynamic_linear",
       {"float32 multiplier"}},
      {"quantize requantize rescale add sub mul linear conv2d depthwise avg_pool global_avg_pool "
       "concat dynamic_linear",
       {"conversion overflow", "zero point before rounding (float32)"}},
      {"quantize requantize rescale add sub mul linear conv2d depthwise avg_pool global_avg_pool "
       "concat table dynamic_linear",
       {"truncating narrow", "zero point before rounding", "half away from zero", "half up",
        "half down below zero", "half up below zero"}},
      {"quantize requantize rescale add sub mul linear conv2d depthwise avg_pool global_avg_pool "
       "concat table softmax dynamic_linear",
       {"truncation"}},
      {"quantize requantize rescale add sub mul linear conv2d depthwise max_pool avg_pool "
       "global_avg_pool concat table softmax",
       {"relu at code 0", "relu instead of out_min"}},
      {"requantize linear conv2d depthwise", {"float32 scale product"}},
      {"rescale add sub mul concat", {"left shift dropped"}},
      {"table", {"table index offset"}},
      {"concat", {"first operand for all"}},
      {"add sub mul concat", {"operands swapped", "sign of both operands"}},
      {"dequantize rescale add sub mul linear conv2d depthwise max_pool avg_pool global_avg_pool "
       "concat table softmax",
       {"input sign"}},
      {"add sub mul linear conv2d depthwise concat dynamic_linear", {"weight sign"}}};
  for (const Group& group : groups) {
    for (const char* const name : group.names)
      EXPECT_EQ(OpsAskedAbout(CauseNamed(name)), group.ops) << name;
  }
}

// Sums and floats are not rounded to codes, and a requantization mode has steps of its own.
TEST(CausesAsked, DependOnTheOutput) {
  const std::vector<const char*> of_codes{"half up",
                                          "half away from zero",
                                          "truncation",
                                          "zero point before rounding",
                                          "zero point before rounding (float32)",
                                          "conversion overflow",
                                          "truncating narrow",
                                          "float64 multiplier",
                                          "float32 reciprocal"};
  const Case sums = Layer(kU8, {1}, kS8, {1});
  const Case floats = ToFloats(sums), codes = ToCodes(sums, kU8);
  Case mode = codes;
  mode.requant = Requant::kFixedQ31;
  for (const char* const name : of_codes) {
    EXPECT_TRUE(IsAsked(codes, name)) << name;
    EXPECT_FALSE(IsAsked(sums, name)) << name;
    EXPECT_FALSE(IsAsked(floats, name)) << name;
    EXPECT_FALSE(IsAsked(mode, name)) << name;
  }
  EXPECT_TRUE(IsAsked(floats, "float32 multiplier"));
  EXPECT_FALSE(IsAsked(sums, "float32 multiplier"));
  EXPECT_FALSE(IsAsked(mode, "float32 multiplier"));
  EXPECT_FALSE(IsAsked(Elements(Op::kDequantize, kU8, {1}), "float32 multiplier"));
  EXPECT_FALSE(IsAsked(Elements(Op::kDequantize, kU8, {1}), "float64, then float32"));
  EXPECT_TRUE(IsAsked(floats, "denormals are zero"));
  EXPECT_FALSE(IsAsked(sums, "denormals are zero"));
  EXPECT_FALSE(IsAsked(codes, "denormals are zero"));
  EXPECT_TRUE(CauseNamed("relu at code 0").applies(codes));
  EXPECT_FALSE(CauseNamed("relu at code 0").applies(floats));
  EXPECT_FALSE(CauseNamed("relu at code 0").applies(sums));
}

// ---- Names.

TEST(CauseNames, HaveTheWordsOfTheOperation) {
  const Cause& ignored = CauseNamed("weight zero point ignored");
  EXPECT_EQ(ignored.NameFor(Op::kLinear), "weight zero point ignored");
  EXPECT_EQ(ignored.NameFor(Op::kRequantize), "weight zero point ignored");
  EXPECT_EQ(ignored.NameFor(Op::kConcat), "zero point of b ignored");
  EXPECT_EQ(ignored.SentenceFor(Op::kDynamicLinear), "ignores the weight zero point");
  EXPECT_EQ(ignored.SentenceFor(Op::kMul), "ignores the zero point of b");
  const Cause& sign = CauseNamed("input sign");
  EXPECT_EQ(sign.NameFor(Op::kRescale), "input sign");
  EXPECT_EQ(sign.NameFor(Op::kAdd), "sign of a");
  EXPECT_EQ(sign.SentenceFor(Op::kAdd), "reads the codes of a with the other signedness");
  const auto multiplied = [](Op op) {
    const std::string text = CauseNamed("float32 multiplier").SentenceFor(op);
    return text.substr(text.find("multiplier"), text.find(" to float32") - text.find("multiplier"));
  };
  EXPECT_EQ(multiplied(Op::kLinear), "multiplier fl(fl(sx*sw)/sy)");
  EXPECT_EQ(multiplied(Op::kRequantize), "multiplier fl(fl(sx*sw)/sy)");
  EXPECT_EQ(multiplied(Op::kRescale), "multiplier fl(sx/sy)");
  EXPECT_EQ(multiplied(Op::kAvgPool), "multiplier fl(sx/sy)");
  EXPECT_EQ(multiplied(Op::kMul), "multiplier fl(fl(sa*sb)/sy)");
  EXPECT_EQ(multiplied(Op::kSub), "multipliers fl(sa/sy) and fl(sb/sy)");
  const auto reciprocal = [](Op op) { return CauseNamed("float32 reciprocal").SentenceFor(op); };
  EXPECT_EQ(reciprocal(Op::kConv2d), "multiplies by fl(fl(sx*sw) * fl(1/sy)) before rounding");
  EXPECT_EQ(reciprocal(Op::kRequantize), "multiplies by fl(fl(sx*sw) * fl(1/sy)) before rounding");
  EXPECT_EQ(reciprocal(Op::kRescale), "multiplies by fl(sx * fl(1/sy)) before rounding");
  EXPECT_EQ(reciprocal(Op::kMul), "multiplies by fl(fl(sa*sb) * fl(1/sy)) before rounding");
  EXPECT_EQ(reciprocal(Op::kAdd),
            "multiplies by fl(sa * fl(1/sy)) and fl(sb * fl(1/sy)) before rounding");
}

TEST(CauseNames, TellFamiliesFromOtherCauses) {
  EXPECT_FALSE(CauseNamed("pair saturation").of_family);
  EXPECT_TRUE(CauseNamed("K*zx*zw ignored").of_family);
}

// ---- Conventions and places.

// A convention that adds 1000 to every output.
Convention Thousands() {
  Convention model;
  model.name = "thousands";
  model.cannot_run = [](const Case&) { return ""; };
  model.run = [](const Case& c) {
    Tensor y = exact::Evaluate(c);
    for (int64_t i = 0; i < y.size(); ++i) y.SetInt(i, y.IntAt(i) + 1000);
    return ConventionOutput{y, {}};
  };
  return model;
}

// Two rows and two channels; 3 times the sum of each row is a term of its sums.
Case TwoByTwo() {
  Case c = Layer(kU8, {10, 20}, kS8, {1, 2}, 2);
  c.w_q.zero_point = {3};
  return c;
}

TEST(CausesOfConventions, MoveItsSumsOrEditItsCase) {
  const Convention model = Thousands();
  Case c = TwoByTwo();
  EXPECT_EQ(Answer(c, "row-sum term ignored", &model), (Values{1010, 1020, 1020, 1040}));
  EXPECT_EQ(Answer(c, "weight zero point ignored", &model), (Values{1010, 1020, 1020, 1040}));
  EXPECT_EQ(Answer(c, "row sum of row 0", &model), (Values{980, 990, 990, 1010}));
  c.bias_i32 = {{5, 7}};
  EXPECT_EQ(Answer(c, "row-sum term ignored", &model), (Values{1015, 1027, 1025, 1047}));
  EXPECT_FALSE(AnswerOf(ToCodes(TwoByTwo(), kS8), {"half up"}, &model))
      << "the convention rounds in its own way";
}

TEST(CausesOfConventions, AreNotAskedWhereTheConventionRefuses) {
  Convention model = Thousands();
  const auto thousands = model.run;
  model.run = [&model, &thousands](const Case& c) {
    EXPECT_EQ(model.cannot_run(c), "") << "it may do anything with a case that it refuses";
    return thousands(c);
  };
  model.cannot_run = [](const Case& c) { return c.x.dtype() == kU8 ? "" : "u8 alone"; };
  EXPECT_FALSE(AnswerOf(TwoByTwo(), {"input sign"}, &model));
  EXPECT_TRUE(AnswerOf(TwoByTwo(), {"weight sign"}, &model));
  // An output alone, or its bias, may be refused where the whole case is not.
  model.cannot_run = [](const Case& c) { return c.N == 2 ? "" : "two channels"; };
  EXPECT_FALSE(AnswerOf(TwoByTwo(), {"row-sum term ignored"}, &model));
  model.cannot_run = [](const Case& c) { return c.bias_i32 ? "no bias" : ""; };
  EXPECT_FALSE(AnswerOf(TwoByTwo(), {"row-sum term ignored"}, &model));
  // A kernel may compute the channels of a tail in another way.
  model = Thousands();
  model.run = [&thousands](const Case& c) {
    return c.N == 2 ? thousands(c) : ConventionOutput{exact::Evaluate(c), {}};
  };
  EXPECT_FALSE(AnswerOf(TwoByTwo(), {"row-sum term ignored"}, &model));
}

TEST(CausesOfConventions, MoveNoSumThatAnInt32BiasCannot) {
  const Convention model = Thousands();
  Case c = TwoByTwo();
  c.out_max = 1000000;
  c.bias_i32 = {{INT32_MAX - 29, INT32_MAX - 59}};
  EXPECT_FALSE(AnswerOf(c, {"row-sum term ignored"}, &model)) << "row 1 moves by 60";
  c.bias_i32 = {{INT32_MAX - 60, INT32_MAX - 60}};
  EXPECT_TRUE(AnswerOf(c, {"row-sum term ignored"}, &model));
  c = WithBias(ToCodes(TwoByTwo(), kS8, 100), {200, 300});
  Convention exact_model = Thousands();
  exact_model.run = [](const Case& of) { return ConventionOutput{exact::Evaluate(of), {}}; };
  EXPECT_FALSE(AnswerOf(c, {"row-sum term ignored"}, &exact_model)) << "it has a float bias";
  EXPECT_FALSE(AnswerOf(c, {"int32 bias"}, &exact_model)) << "two biases are no case";
  c.w_q.zero_point = {0};
  EXPECT_EQ(AnswerOf(c, {"row-sum term ignored"}, &exact_model), exact::Evaluate(c))
      << "no sum moves";
}

TEST(CausesOfConventions, MoveAtMost4096Sums) {
  const Convention model = Thousands();
  const auto layer = [](size_t channels) {
    Case c = Layer(kU8, {1}, kS8, Values(channels, 1));
    c.w_q.zero_point = {3};
    return c;
  };
  EXPECT_EQ(Answer(layer(4096), "row-sum term ignored", &model), Values(4096, 1001));
  EXPECT_FALSE(AnswerOf(layer(4097), {"row-sum term ignored"}, &model));
  Case c = layer(5000);
  EXPECT_EQ(Answer(c, "weight zero point ignored", &model), Values(5000, 1001));
}

TEST(CausesOfConventions, TheRightOutputIsTheOneThatWasPromised) {
  Convention model = Thousands();
  const Case c = Layer(kU8, {2}, kS8, {3});
  EXPECT_EQ(RightOutput(c, nullptr).IntAt(0), 6);
  EXPECT_EQ(RightOutput(c, &model).IntAt(0), 1006);
  model.cannot_run = [](const Case&) { return "nothing"; };
  EXPECT_EQ(RightOutput(c, &model).IntAt(0), 6);
  EXPECT_EQ(ModelOf({}), nullptr);
  EXPECT_EQ(ModelOf({"fbgemm@avx2"}), FindConvention("fbgemm@avx2"));
  EXPECT_NE(ModelOf({"fbgemm@avx2"}), nullptr);
}

const Cause& PlaceNamed(std::string_view name) {
  const auto found = std::ranges::find(AllPlaces(), name, &Cause::name);
  EXPECT_NE(found, AllPlaces().end()) << name;
  return *found;
}

TEST(CausesAtPlaces, LeaveAllOtherOutputsRight) {
  const Case c = TwoByTwo();
  const auto answer = [&](std::string_view cause, std::string_view place,
                          const Convention* model) -> std::optional<Values> {
    const std::vector<const Cause*> both{&CauseNamed(cause), &PlaceNamed(place)};
    const std::optional<Tensor> y = Counterfactual(c, both, model);
    if (!y) return std::nullopt;
    return Values(y->as<int32_t>().begin(), y->as<int32_t>().end());
  };
  const Convention model = Thousands();
  // Right are -20, -10, -40, -20; without the zero point 10, 20, 20, 40.
  constexpr std::string_view kIgnored = "weight zero point ignored";
  EXPECT_EQ(answer(kIgnored, "only from column 1 on", nullptr), (Values{-20, 20, -40, 40}));
  EXPECT_EQ(answer(kIgnored, "only in the last row", nullptr), (Values{-20, -10, 20, 40}));
  EXPECT_EQ(answer(kIgnored, "only in the last row", &model), (Values{980, 990, 1020, 1040}));
  EXPECT_EQ(answer(kIgnored, "only from column 2 on", nullptr), std::nullopt)
      << "there are two columns";
  EXPECT_EQ(answer("half up", "only in the last row", nullptr), std::nullopt);
  const Case codes = ToCodes(c, kS8);
  const std::vector<const Cause*> both{&CauseNamed("half up"), &PlaceNamed("only in the last row")};
  EXPECT_EQ(Counterfactual(codes, both, &model), std::nullopt);
}

TEST(CausesAtPlaces, ArePartsOfTheOutput) {
  const Case c = TwoByTwo();
  const auto last = PlaceIn(c, PlaceNamed("only in the last row"));
  ASSERT_TRUE(last);
  EXPECT_FALSE(last(0, 0));
  EXPECT_FALSE(last(0, 1));
  EXPECT_TRUE(last(1, 0));
  EXPECT_FALSE(PlaceIn(c, PlaceNamed("only from row 2 on")));
  EXPECT_FALSE(PlaceIn(c, CauseNamed("weight zero point ignored"))) << "acts everywhere";
}

}  // namespace
}  // namespace qualm::triage
