// SPDX-License-Identifier: Apache-2.0
// choose_qparams worked by hand, and the corners of its domain. Recorded runs of PyTorch are judged
// in oracles/conventions; that both forms agree is told by agreement_test.
#include "oracles/exact/observer.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cfloat>
#include <cmath>
#include <string>
#include <vector>

#include "core/float_text.h"
#include "core/random_case_test_util.h"
#include "core/rng.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {
namespace {

using test::RandomCase;

using Kind = Observer::Kind;
using Batches = std::vector<std::vector<float>>;

Case Observing(const Batches& batches, const Observer& observer) {
  Case c;
  c.op = Op::kChooseQParams;
  c.observer = observer;
  c.M = 1;
  c.N = static_cast<int64_t>(batches.front().size());
  std::vector<float> x;
  for (const auto& batch : batches) x.insert(x.end(), batch.begin(), batch.end());
  c.x = Tensor::Of<float>({static_cast<int64_t>(batches.size()), 1, c.N}, x);
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  return c;
}

void Expect(const Case& c, float scale, float zero_point) {
  ASSERT_EQ(Validate(c), "");
  for (const Tensor& y : {Evaluate(c), EvaluateRational(c)}) {
    EXPECT_EQ(y.FloatAt(0), scale);
    EXPECT_EQ(y.FloatAt(1), zero_point);
  }
}

TEST(Observer, Affine) {
  Expect(Observing({{-1.0f, 4.1f}}, {}), 5.1f / 255.0f, 50);
  Expect(Observing({{-1.0f, 4.1f}}, {.reduce_range = true}), 5.1f / 127.0f, 25);
  Expect(Observing({{0.0f, 255.0f}}, {.dtype = DType::kS8, .quant_min = -128, .quant_max = 127}),
         1.0f, -128);
  Expect(Observing({{-3.0f, 5.0f}}, {.quant_max = 16}), 0.5f, 6);
}

// Zero is always in the range, so that it has a code.
TEST(Observer, OneSided) {
  Expect(Observing({{5.0f, 255.0f}}, {}), 1.0f, 0);
  Expect(Observing({{-5.0f, -255.0f}}, {}), 1.0f, 255);
  Expect(Observing({{510.0f, 510.0f}}, {}), 2.0f, 0);
}

TEST(Observer, SymmetricSpansHalfTheCodes) {
  const Observer s8{.symmetric = true, .dtype = DType::kS8, .quant_min = -128, .quant_max = 127};
  Expect(Observing({{-51.0f, 3.0f}}, s8), 51.0f / 127.5f, 0);
  Observer reduced = s8;
  reduced.reduce_range = true;
  Expect(Observing({{-51.0f, 3.0f}}, reduced), 51.0f / 63.5f, 0);
  Expect(Observing({{-51.0f, 3.0f}}, {.symmetric = true}), 51.0f / 127.5f, 128);
  Expect(Observing({{-51.0f, 3.0f}}, {.symmetric = true, .quant_max = 15}), 6.8f, 7);
}

TEST(Observer, ScaleHasAFloor) {
  Expect(Observing({{0.0f, 0.0f}}, {}), 0x1p-23f, 0);
  Expect(Observing({{-0.0f, 0x1p-149f}}, {}), 0x1p-23f, 0);
  Expect(Observing({{-0x1p-22f, 0.0f}}, {}), 0x1p-23f, 2);
  Expect(Observing({{-0x1p-22f, 0.0f}}, {.kind = Kind::kHistogram}), 0x1p-23f, 2);
}

TEST(Observer, ScaleMayOverflow) {
  Expect(Observing({{-FLT_MAX, FLT_MAX}}, {}), INFINITY, 0);
  Expect(Observing({{-FLT_MAX, 0.0f}}, {}), FLT_MAX / 255.0f, 255);
}

// Every step is a float32: (1 - 0) / 100 is rounded before it is added.
TEST(Observer, MovingAverage) {
  const Case c =
      Observing({{0.0f, 1.0f}, {-1.0f, 2.0f}, {0.0f, 0.0f}}, {.kind = Kind::kMovingAverage});
  const float min = 0.01f * -1.0f, max = 1.0f + 0.01f * 1.0f;
  const float last_min = min + 0.01f * (0.0f - min), last_max = max + 0.01f * (0.0f - max);
  EXPECT_EQ(ObservedRanges(c)[0].min, last_min);
  EXPECT_EQ(ObservedRanges(c)[0].max, last_max);
  const float scale = (last_max - last_min) / 255.0f;
  Expect(c, scale, std::nearbyint(-last_min / scale));
}

TEST(Observer, PerTensorIsAllRows) {
  Case c = Observing({{0.0f, 1.0f, -1.0f, 4.1f}}, {});
  c.M = c.N = 2;
  c.x = Tensor::Of<float>({1, 2, 2}, c.x.as<float>());
  Expect(c, 5.1f / 255.0f, 50);
}

TEST(Observer, PerChannelIsOneRowEach) {
  Case c = Observing({{-1.0f, 4.1f, 0.0f, 510.0f}}, {});
  c.M = c.N = 2;
  c.x = Tensor::Of<float>({1, 2, 2}, c.x.as<float>());
  c.per_channel = true;
  ASSERT_EQ(Validate(c), "");
  const Tensor y = Evaluate(c);
  ASSERT_EQ(y.shape(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(y.FloatAt(0), 5.1f / 255.0f);
  EXPECT_EQ(y.FloatAt(1), 2.0f);
  EXPECT_EQ(y.FloatAt(2), 50);
  EXPECT_EQ(y.FloatAt(3), 0);
  EXPECT_EQ(EvaluateRational(c), y);
  EXPECT_EQ(ObservedRanges(c).size(), 2u);
}

// The bins lie between the whole parts of the ends: 4.9 is in none, and the search cuts it off.
TEST(Observer, HistogramTruncatesItsEnds) {
  std::vector<float> x(400, 1.0f);
  for (size_t i = 0; i < 300; ++i) x[i] = static_cast<float>(i) / 300;
  x.back() = 4.9f;
  const Case c = Observing({x}, {.kind = Kind::kHistogram});
  EXPECT_EQ(ObservedRanges(c)[0].max, 4.9f);
  EXPECT_LT(SearchedRange(c).max, 1.5f);
  EXPECT_EQ(Evaluate(c), EvaluateRational(c));
}

// Both forms choose the same where few values decide: a value at the end of the bins, values that
// are all equal or lie between two whole numbers, batches that widen the range of those before.
TEST(Observer, BothFormsAgreeOnHistogramsOfFewValues) {
  Rng rng(1);
  const auto value = [&](int kind) {
    const auto whole = static_cast<float>(rng.Between(-3, 3));
    switch (kind) {
      case 0: return whole;
      case 1: return 2.0f + static_cast<float>(rng.Unit());
      case 2: return static_cast<float>(rng.Unit() * 2 - 1);
      default: return whole + static_cast<float>(rng.Unit());
    }
  };
  for (int i = 0; i < 40; ++i) {
    const auto count = static_cast<size_t>(rng.Between(1, 12));
    std::vector<std::vector<float>> batches(i % 4 == 3 ? 2 : 1);
    for (std::vector<float>& batch : batches) {
      batch.resize(count);
      for (float& x : batch) x = value(i % 5);
    }
    const Case c = Observing(batches, {.kind = Kind::kHistogram});
    ASSERT_EQ(Validate(c), "");
    ASSERT_EQ(Evaluate(c), EvaluateRational(c)) << i;
  }
}

// A batch of one value in a narrow range falls in the middle of its bins, which reach 1 to either
// side. Seeds at which each step on the way shows in what is chosen.
TEST(Observer, BothFormsAgreeOnABatchOfOneValueInANarrowRange) {
  for (const uint64_t seed : {16, 64, 88, 112, 168}) {
    Rng rng(seed);
    std::vector<float> spread(2 + rng.Below(12));
    const std::vector<float> same(spread.size(), static_cast<float>(rng.Unit() * 1.8 - 0.9));
    for (float& x : spread) x = static_cast<float>(rng.Unit() * 1.8 - 0.9);
    const Case c = Observing({spread, same}, {.kind = Kind::kHistogram});
    ASSERT_EQ(Validate(c), "");
    EXPECT_EQ(Evaluate(c), EvaluateRational(c)) << seed;
  }
}

// A batch that reaches further on one side, by as many bins, is no batch in the range of before.
TEST(Observer, BothFormsAgreeOnABatchThatReachesFurtherOnOneSide) {
  for (const uint64_t seed : {1, 7, 14, 20}) {
    Rng rng(seed);
    std::vector<float> halves(2 + rng.Below(12)), quarters(halves.size());
    for (float& x : halves) x = static_cast<float>(rng.Below(3)) * 0.5f;
    for (float& x : quarters) x = static_cast<float>(rng.Between(-2, 4)) * 0.25f;
    const Case c = Observing({halves, quarters}, {.kind = Kind::kHistogram});
    ASSERT_EQ(Validate(c), "");
    EXPECT_EQ(Evaluate(c), EvaluateRational(c)) << seed;
  }
}

// The only bin with values is beyond the middle: the start of the search jumps to it, past the bin
// that the end would be moved to.
TEST(Observer, BothFormsAgreeWhereOneBinHoldsAllThatCounts) {
  const Case c = Observing({{-0.9f, 0.7f, 1.9f}}, {.kind = Kind::kHistogram});
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(Evaluate(c), EvaluateRational(c));
}

// The lowest value is spread over two bins. A small part of it lies in the first of them, so that
// the start of the search moves there, and in a later step to the second one.
TEST(Observer, TheStartOfTheSearchMovesStepByStep) {
  std::vector<float> first(200), second(200);
  for (size_t i = 0; i < 200; ++i) first[i] = 0.5f + 0.5f * static_cast<float>(i + 1) / 200;
  second = first;
  first[0] = -1.0f;
  second[0] = -1.0f - 80 / 1024.0f;
  const Case c = Observing({first, second}, {.kind = Kind::kHistogram});
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(Evaluate(c), EvaluateRational(c));
}

// As a clamp leaves them. The error of the first bin alone makes the search cut off the others.
TEST(Observer, BothFormsAgreeWhereMostValuesAreTheSmallest) {
  std::vector<float> x(3002, -1.0f);
  x[3000] = 0.99f;
  x[3001] = 1.0f;
  const Case c = Observing({x}, {.kind = Kind::kHistogram});
  ASSERT_EQ(Validate(c), "");
  EXPECT_LT(SearchedRange(c).max, 0.99f);
  EXPECT_EQ(Evaluate(c), EvaluateRational(c));
}

// Each batch spreads the counts of those before over other bins, in 128 parts of a bin. Which bins
// are left at the end depends on the last part, and on what rounding leaves in empty bins.
TEST(Observer, BothFormsAgreeOnManyBatchesOfFewValues) {
  const std::vector<Batches> cases{
      {{0.89f, -0.21f, -0.56f},
       {0.24f, 0.93f, 0.74f},
       {0.03f, -0.80f, 0.62f},
       {1.38f, -0.41f, 0.28f},
       {-0.16f, -0.71f, -1.19f},
       {0.71f, 0.66f, 1.16f}},
      {{0.71f, 0.57f, -0.59f, -0.44f, -0.88f, 0.69f, 0.17f},
       {-0.75f, -0.81f, -0.86f, -0.24f, 0.03f, -0.70f, 0.94f},
       {0.60f, -0.14f, -0.51f, 0.84f, 0.34f, 0.40f, -0.93f},
       {-0.54f, 0.30f, -0.85f, -1.13f, -1.26f, -0.99f, 0.77f},
       {-0.03f, 1.17f, 1.44f, -1.00f, 1.40f, 1.08f, 1.24f}},
      // The last batch lies within the range of before, whose counts stay as they are.
      {{-0.33f, 0.24f, -0.41f},
       {0.33f, 0.81f, 0.47f},
       {0.19f, 0.38f, 0.39f},
       {0.93f, -0.22f, -0.24f},
       {0.16f, 0.69f, -0.93f},
       {1.66f, -1.26f, -1.40f},
       {-0.12f, 0.11f, 1.13f}},
  };
  for (const Batches& batches : cases) {
    const Case c = Observing(batches, {.kind = Kind::kHistogram});
    ASSERT_EQ(Validate(c), "");
    EXPECT_EQ(Evaluate(c), EvaluateRational(c));
  }
}

TEST(Observer, ASpanOfNothingHasTheLowestCode) {
  const Observer s8{.dtype = DType::kS8, .quant_min = -128, .quant_max = 127};
  for (const double zero : {0.0, -0.0}) {
    const ChosenQParams chosen = FromRange(s8, 0.0, zero, 0.0f);
    EXPECT_EQ(chosen.scale, 0.0f);
    EXPECT_FALSE(std::signbit(chosen.scale));
    EXPECT_EQ(chosen.zero_point, -128);
  }
}

TEST(Observer, TheRangeOfBatchesHoldsThemAll) {
  Expect(Observing({{-1.0f, 1.0f}, {-3.0f, 0.5f}}, {.kind = Kind::kMinMax}), 4.0f / 255.0f, 191);
  Expect(Observing({{-1.0f, 1.0f}, {-0.5f, 3.0f}}, {.kind = Kind::kMinMax}), 4.0f / 255.0f, 64);
}

TEST(Observer, WhatIsRefused) {
  const auto error = [](const std::vector<std::vector<float>>& batches, const Observer& observer) {
    return Validate(Observing(batches, observer));
  };
  EXPECT_TRUE(error({{NAN, 1.0f}}, {}).starts_with("x: "));
  EXPECT_TRUE(error({{1.0f, -INFINITY}}, {}).starts_with("x: "));
  EXPECT_TRUE(
      error({{1.0f}}, {.symmetric = true, .reduce_range = true}).starts_with("reduce_range: "));
  EXPECT_TRUE(
      error({{1.0f}}, {.reduce_range = true, .quant_max = 1}).starts_with("reduce_range: "));
  EXPECT_TRUE(error({{FLT_MAX}, {-FLT_MAX}}, {.kind = Kind::kMovingAverage}).starts_with("x: "));
  EXPECT_EQ(error({{FLT_MAX}, {-FLT_MAX}}, {}), "");
  EXPECT_TRUE(error({{0x1p25f}}, {.kind = Kind::kHistogram}).starts_with("x: "));
  EXPECT_TRUE(error({{0, 1}, {0, 2000}}, {.kind = Kind::kHistogram}).starts_with("x: "));
  EXPECT_TRUE(error({{0, 0x1p-61f}}, {.kind = Kind::kHistogram}).starts_with("x: "));
  EXPECT_EQ(error({{3, 3}, {0, 1}, {0, 1000}}, {.kind = Kind::kHistogram}), "");
}

Case CodesBy(const Batches& batches, QParamsRule rule, bool per_channel = false) {
  Case c = Observing(batches, {});
  c.rule = rule;
  c.codes = true;
  if (per_channel) {  // what was a batch is a row
    c.per_channel = true;
    c.M = static_cast<int64_t>(batches.size());
    c.x = Tensor::Of<float>({1, c.M, c.N}, c.x.as<float>());
  }
  return c;
}

void ExpectAnswer(const Case& c, const std::vector<float>& answer) {
  ASSERT_EQ(Validate(c), "");
  const auto row = Tensor::Of<float>({1, static_cast<int64_t>(answer.size())}, answer);
  EXPECT_EQ(Evaluate(c), row);
  EXPECT_EQ(EvaluateRational(c), row);
}

// Each code is x / scale rounded once, half to even, before the zero point is added: -1.5 gives
// code 0 though the zero point of 1.5 is 2.
TEST(Codes, StandBehindScalesAndZeroPoints) {
  constexpr auto kOnnx = QParamsRule::kOnnx;
  ExpectAnswer(CodesBy({{0.5f, 1.5f}, {2.5f, 255.0f}}, kOnnx), {1, 0, 0, 2, 2, 255});
  ExpectAnswer(CodesBy({{-1.5f, -0.5f, 0.5f, 253.5f}}, kOnnx), {1, 2, 0, 2, 2, 255});
  ExpectAnswer(CodesBy({{-0.0f, 0.0f}}, kOnnx), {1, 0, 0, 0});
  ExpectAnswer(CodesBy({{0.0f, 0.0f}}, QParamsRule::kAten), {0.1f, 0, 0, 0});
  ExpectAnswer(CodesBy({{0x1p-149f, 0x1p-140f}}, kOnnx), {0x1p-148f, 0, 0, 255});
  // An infinite scale: x / infinity is 0.
  ExpectAnswer(CodesBy({{-FLT_MAX, FLT_MAX}}, kOnnx), {INFINITY, 0, 0, 0});
  // Codes go to 255 though reduce_range chooses for 0..127.
  Case reduced = CodesBy({{-63.5f, 63.5f}}, QParamsRule::kAten);
  reduced.observer.reduce_range = true;
  ExpectAnswer(reduced, {1, 64, 0, 128});
  ExpectAnswer(CodesBy({{0, 255, 1}, {-510, 0, 0}}, kOnnx, true),
               {1, 2, 0, 255, 0, 255, 1, 0, 255, 255});
}

TEST(Codes, AreOfTheRulesOfDynamicQuantization) {
  EXPECT_EQ(Validate(CodesBy({{1}}, QParamsRule::kObserver)),
            "codes: goes with another qparams_rule than observer");
}

// OCP Microscaling Formats 1.0, 6.3: the scale of a block, and the element of its largest value.
TEST(Mx, ScalesAreTheRules) {
  struct Row {
    QParamsRule rule;
    DType element;
    float x;
    float scale, largest;
  };
  using enum QParamsRule;
  const Row rows[] = {
      {kMxFloor, DType::kF8E4M3FN, 502.5f, 1, 448},  // saturates
      {kMxCeil, DType::kF8E4M3FN, 502.5f, 2, 256},
      {kMxCeil, DType::kF8E4M3FN, 256, 1, 256},
      {kMxEven, DType::kF8E4M3FN, 495, 1, 448},
      {kMxEven, DType::kF8E4M3FN, 496, 2, 256},  // 1.1111 is half way, and goes to the even 10.000
      {kMxRceil, DType::kF8E4M3FN, 448, 1, 448},
      {kMxRceil, DType::kF8E4M3FN, 448.5f, 2, 224},
      {kMxNearest, DType::kF8E4M3FN, 671.5f, 1, 448},
      {kMxNearest, DType::kF8E4M3FN, 672, 2, 320},  // 336 is half way
      {kMxNearest, DType::kF8E4M3FN, 335.5f, 0.5f, 448},
      {kMxFloor, DType::kF4E2M1FN, 7.75f, 1, 6},
      {kMxRceil, DType::kF4E2M1FN, 7.75f, 2, 4},
      {kMxEven, DType::kF4E2M1FN, 7, 2, 4},  // 3.5 lies half way between 3 and 4
      {kMxFloor, DType::kF6E2M3FN, -7.75f, 1, -7.5f},
      {kMxFloor, DType::kF6E3M2FN, 31, 1, 28},
      {kMxFloor, DType::kF8E5M2, 0x1p-140f, 0x1p-127f, 0x1p-13f},
      {kMxCeil, DType::kF4E2M1FN, 0, 0x1p-127f, 0},
      {kMxCeil, DType::kF4E2M1FN, FLT_MAX, 0x1p126f, 4},
  };
  for (const Row& row : rows) {
    Case c = CodesBy({{row.x}}, row.rule);
    c.observer.dtype = row.element;
    ExpectAnswer(c, {row.scale, 0, row.largest});
  }
}

TEST(Codes, AreToldAsAQuantizeIs) {
  const Case c = CodesBy({{-1.5f, 253.5f}}, QParamsRule::kOnnx);
  const Trace steps = Derive(c, 2), quantize = Derive(CodesCaseOf(c, ChooseQParams(c)), 0);
  ASSERT_GT(steps.size(), quantize.size());
  EXPECT_EQ(steps[steps.size() - quantize.size() - 1].text, Derive(c, 1).back().text);
  for (size_t i = 0; i < quantize.size(); ++i)
    EXPECT_EQ(steps[steps.size() - quantize.size() + i].text, quantize[i].text);
  EXPECT_EQ(steps.back().value, "0x0p+0");
  EXPECT_EQ(TieDistance(c, 2), 0.0);
  EXPECT_EQ(TieDistance(c, 1), std::nullopt);
  EXPECT_EQ(RealValueText(c, 2), "-3/2");
}

TEST(Observer, HasNoIntegers) {
  const Integers integers = IntegersOf(Observing({{0.0f, 1.0f}}, {}));
  EXPECT_TRUE(integers.values.empty());
  EXPECT_TRUE(integers.counts.empty());
}

TEST(Observer, TheCallersEnvironmentDoesNotMatter) {
  RandomCase draw(31);
  for (int i = 0; i < 300; ++i) {
    const Case c = draw.Draw(Op::kChooseQParams);
    const Tensor y = Evaluate(c);
    std::fesetround(FE_UPWARD);
    const Tensor up = Evaluate(c);
    std::fesetround(FE_TONEAREST);
    ASSERT_EQ(y, up);
  }
}

std::vector<std::string> Told(const Case& c, int64_t index) {
  EXPECT_EQ(Validate(c), "");
  std::vector<std::string> texts;
  for (const TraceStep& step : Derive(c, index)) {
    texts.push_back(step.text + "; " + std::string(Name(step.stage)) + " " + step.value);
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Observer, TellsItsSteps) {
  const Case c = Observing({{-1.0f, 4.0f}, {0.0f, 2.0f}}, {.kind = Kind::kMinMax, .quant_max = 10});
  EXPECT_EQ(
      Told(c, 1),
      (Texts{"batch 0 spans [-1, 4]; accumulate -0x1p+0",
             ("batch 1 spans [0, 2], with those before [-1, 4]; accumulate "
              "-0x1p+0"),
             ("max - min with 0 between them, over the codes [0, 10]: (4 - -1) / 10 = "
              "0.5; scale 0x1p-1"),
             ("lowest code - round(min / scale), within the codes: 0 - round(-1 / 0.5 = -2) = "
              "2; zero_point 0x1p+1")}));
  EXPECT_EQ(Told(c, 0).size(), 3u) << "a scale has no step of a zero point";
  EXPECT_EQ(RealValueText(c, 0), "1/2");
  EXPECT_EQ(RealValueText(Observing({{-FLT_MAX, FLT_MAX}}, {}), 0), "inf");
}

TEST(Observer, TellsTheStepsOfSymmetricQuantization) {
  const Observer s8{.symmetric = true,
                    .reduce_range = true,
                    .dtype = DType::kS8,
                    .quant_min = -128,
                    .quant_max = 127};
  EXPECT_EQ(Told(Observing({{-127.0f, 1.0f}}, s8), 1),
            (Texts{"batch 0 spans [-127, 1]; accumulate 0x1p+0",
                   ("larger of -min and max, over half of the codes [-64, 63] (reduced): "
                    "max(127, 1) / 63.5 = 2; scale 0x1p+1"),
                   "the zero point of symmetric quantization is 0; zero_point 0x0p+0"}));
  EXPECT_EQ(Told(Observing({{1.0f, 2.0f}}, {.reduce_range = true}), 0).back(),
            "max - min with 0 between them, over the codes [0, 127] (reduced): (2 - 0) / "
            "127 = 0.015748031; scale 0x1.020408p-6");
}

TEST(Observer, TellsHowManyCodesARangeHas) {
  const Observer s8{.dtype = DType::kS8, .quant_min = -10, .quant_max = 22};
  EXPECT_EQ(Told(Observing({{-1.0f, 15.0f}}, s8), 0).back(),
            "max - min with 0 between them, over the codes [-10, 22]: (15 - -1) / 32 = "
            "0.5; scale 0x1p-1");
}

TEST(Observer, TellsThatAScaleIsRaised) {
  for (const bool symmetric : {false, true}) {
    EXPECT_TRUE(Told(Observing({{0.0f, 0.0f}}, {.symmetric = symmetric}), 0)
                    .back()
                    .ends_with(", but not less than 1.1920929e-07 = 1.1920929e-07; scale 0x1p-23"));
  }
}

TEST(Observer, TellsAMovingAverageAndAHistogram) {
  const std::vector<std::vector<float>> batches{{0.0f, 1.0f}, {-4.0f, 3.0f}};
  const std::vector<std::string> average =
      Told(Observing(batches, {.kind = Kind::kMovingAverage, .averaging_constant = 0.5f}), 0);
  EXPECT_EQ(average[1],
            "batch 1 spans [-4, 3], the moving average is [-2, 2]; "
            "accumulate -0x1p+1");
  // The search cuts off the one value far from the others.
  std::vector<float> x(400, 1.0f);
  for (size_t i = 0; i < 300; ++i) x[i] = static_cast<float>(i) / 300;
  x.back() = 4.9f;
  for (const bool symmetric : {false, true}) {
    const Case c = Observing({x}, {.kind = Kind::kHistogram, .symmetric = symmetric});
    const std::vector<std::string> searched = Told(c, 0);
    ASSERT_EQ(searched.size(), 3u);
    EXPECT_EQ(searched[0].substr(0, searched[0].find(';')),
              "batch 0 spans [0, 4.9], the histogram [0, 4.9]");
    const ObservedRange left = SearchedRange(c);
    EXPECT_EQ(searched[1], "the search for the smallest error leaves [" +
                               ShortestDecimal(left.min) + ", " + ShortestDecimal(left.max) +
                               "]; accumulate " + FloatText(symmetric ? left.max : left.min));
    EXPECT_NE(searched[2].find(ShortestDecimal(left.max)), std::string::npos) << searched[2];
  }
}

// The quotient that is rounded, and whether it is a tie.
TEST(Observer, TellsTies) {
  const auto told = [](float min, float max) {
    return Told(Observing({{min, max}}, {}), 1).back();
  };
  EXPECT_EQ(told(-126.5f, 128.5f),
            "lowest code - round(min / scale), within the codes: 0 - round(-126.5 / 1 = -126.5), a "
            "tie, exactly half way, goes to the even one, = 126; zero_point 0x1.f8p+6");
  EXPECT_EQ(told(-127.5f, 127.5f).substr(0, 103),
            "lowest code - round(min / scale), within the codes: 0 - round(-127.5 / 1 = -127.5), a "
            "tie, exactly half");
  // TensorFlow's 1/127.5 for the range -1..1: no tie, by the last bit of the quotient.
  EXPECT_EQ(told(-1, 1),
            "lowest code - round(min / scale), within the codes: 0 - round(-1 / 0.007843138 = "
            "-127.49999) = 127; zero_point 0x1.fcp+6");
}

// Four batches at either end; each is told with all that came before it.
TEST(Observer, TellsTheEndsOfManyBatches) {
  for (const int count : {8, 9, 12}) {
    std::vector<std::vector<float>> batches;
    for (int b = 0; b < count; ++b) batches.push_back({0.0f, static_cast<float>(b + 1)});
    const std::vector<std::string> told = Told(Observing(batches, {}), 0);
    ASSERT_EQ(told.size(), 9u) << count;
    for (int i = 0; i < 8; ++i) {
      const int b = i < 4 ? i : count - 8 + i;
      const std::string spans = "[0, " + std::to_string(b + 1) + "]";
      EXPECT_EQ(told[static_cast<size_t>(i)], "batch " + std::to_string(b) + " spans " + spans +
                                                  (b == 0 ? "" : ", with those before " + spans) +
                                                  "; accumulate 0x0p+0");
    }
  }
}

}  // namespace
}  // namespace qualm::exact
