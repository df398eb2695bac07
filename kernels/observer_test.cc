// SPDX-License-Identifier: Apache-2.0
// Observers: values worked by hand, recorded values, refusals. What they choose is judged by
// properties/native_kernels_test.cc.
#include "kernels/observer.h"

#include <gtest/gtest.h>

#include <cfloat>

#include "kernels/common/test_support.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;

ConstMatrix Matrix(const float* data, int64_t rows, int64_t columns, int64_t stride) {
  return {data, ElementType::kF32, rows, columns, stride};
}

TEST(Observer, MinMaxGoesOn) {
  const float first[] = {-1.0f, 2.0f};
  const float second[] = {0.0f, 4.1f};
  MinMaxState state;
  ASSERT_TRUE(ObserveMinMax(Matrix(first, 1, 2, 2), {&state, 1}).ok());
  ASSERT_TRUE(ObserveMinMax(Matrix(second, 1, 2, 2), {&state, 1}).ok());
  float scale = 0;
  int32_t zero_point = 0;
  ASSERT_TRUE(ChooseQParams({}, {&state, 1}, {&scale, 1}, {&zero_point, 1}).ok());
  EXPECT_EQ(scale, 5.1f / 255.0f);
  EXPECT_EQ(zero_point, 50);
  ASSERT_TRUE(
      ChooseQParams({.reduce_range = true}, {&state, 1}, {&scale, 1}, {&zero_point, 1}).ok());
  EXPECT_EQ(scale, 5.1f / 127.0f);
  EXPECT_EQ(zero_point, 25);
  ASSERT_TRUE(ChooseQParams({.symmetric = true}, {&state, 1}, {&scale, 1}, {&zero_point, 1}).ok());
  EXPECT_EQ(scale, 4.1f / 127.5f);
  EXPECT_EQ(zero_point, 128);
}

TEST(Observer, MovingAverageRoundsEachStep) {
  const float batches[][2] = {{-1.0f, 1.0f}, {-0.3f, 7.0f}, {0.0f, 0.1f}};
  MinMaxState state;
  volatile float min = -1.0f, max = 1.0f;  // every step leaves its register
  for (const auto& batch : batches) {
    ASSERT_TRUE(ObserveMovingAverage(Matrix(batch, 1, 2, 2), 0.01f, {&state, 1}).ok());
    if (&batch == &batches[0]) continue;
    volatile float difference = batch[0] - min;
    volatile float part = 0.01f * difference;
    min = min + part;
    difference = batch[1] - max;
    part = 0.01f * difference;
    max = max + part;
  }
  EXPECT_EQ(state.min, min);
  EXPECT_EQ(state.max, max);
}

// Values recorded from PyTorch 1.13.1: HistogramObserver() of 0.1, 0.2 ... 3.0, then 10 times 0.5.
TEST(Observer, Histogram) {
  std::vector<float> x;
  for (int i = 1; i <= 30; ++i) x.push_back(static_cast<float>(i) * 0.1f);
  const std::vector<float> more(10, 0.5f);
  ForEachTarget([&](const std::string&) {
    HistogramState state;
    ASSERT_TRUE(ObserveHistogram(Matrix(x.data(), 1, 30, 30), &state).ok());
    ASSERT_TRUE(ObserveHistogram(Matrix(more.data(), 2, 5, 5), &state).ok());
    float scale = 0;
    int32_t zero_point = -1;
    ASSERT_TRUE(ChooseQParams({}, state, &scale, &zero_point).ok());
    EXPECT_EQ(scale, 0x1.818182p-7f);
    EXPECT_EQ(zero_point, 0);
  });
}

TEST(Observer, RefusesWhatHasNoAnswer) {
  const float good[] = {1.0f, 2.0f};
  const float bad[] = {1.0f, INFINITY, 0.0f, NAN, -INFINITY, 1.0f};
  MinMaxState state;
  HistogramState histogram;
  for (int64_t at : {0, 2, 4}) {
    EXPECT_FALSE(ObserveMinMax(Matrix(bad + at, 1, 2, 2), {&state, 1}).ok());
    EXPECT_FALSE(ObserveMovingAverage(Matrix(bad + at, 1, 2, 2), 0.01f, {&state, 1}).ok());
    EXPECT_FALSE(ObserveHistogram(Matrix(bad + at, 1, 2, 2), &histogram).ok());
  }
  EXPECT_TRUE(state.empty);
  EXPECT_TRUE(histogram.empty);
  const float huge[] = {FLT_MAX};
  EXPECT_FALSE(ObserveMovingAverage(Matrix(huge, 1, 1, 1), 0.01f, {&state, 1}).ok());
  EXPECT_FALSE(ObserveHistogram(Matrix(huge, 1, 1, 1), &histogram).ok());
  EXPECT_FALSE(ObserveMovingAverage(Matrix(good, 1, 2, 2), NAN, {&state, 1}).ok());
  EXPECT_FALSE(ObserveMinMax(Matrix(good, 0, 2, 2), {&state, 1}).ok());
  EXPECT_FALSE(ObserveMinMax(Matrix(good, 2, 1, 1), {&state, 0}).ok());

  float scale = 0;
  int32_t zero_point = 0;
  const auto choose = [&](const ObserverParams& params) {
    return ChooseQParams(params, {&state, 1}, {&scale, 1}, {&zero_point, 1});
  };
  EXPECT_FALSE(choose({}).ok());  // nothing observed
  EXPECT_FALSE(ChooseQParams({}, histogram, &scale, &zero_point).ok());
  ASSERT_TRUE(ObserveMinMax(Matrix(good, 1, 2, 2), {&state, 1}).ok());
  EXPECT_TRUE(choose({}).ok());
  EXPECT_FALSE(choose({.symmetric = true, .reduce_range = true}).ok());
  EXPECT_FALSE(choose({.reduce_range = true, .quant_max = 1}).ok());
  EXPECT_FALSE(choose({.quant_min = 1}).ok());
  EXPECT_FALSE(choose({.quant_max = 256}).ok());
  EXPECT_FALSE(choose({.type = ElementType::kS8}).ok());
  EXPECT_FALSE(choose({.type = ElementType::kS32}).ok());
}

}  // namespace
}  // namespace qualm::kernels
