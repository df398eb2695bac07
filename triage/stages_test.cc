// SPDX-License-Identifier: Apache-2.0
// What the hooks of each stage are given, and what becomes of what they change. The causes that
// triage names are such hooks: one that is given a wrong number explains no kernel, or the wrong
// one.
#include "triage/stages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "core/slice.h"
#include "oracles/exact/dynamic_linear.h"
#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"

namespace qualm::triage {
namespace {

using Wide = std::vector<__int128>;

Case Linear(int64_t m, int64_t n, const std::vector<int32_t>& x, const std::vector<int32_t>& w) {
  Case c;
  c.op = Op::kLinear;
  c.M = m, c.N = n, c.K = std::ssize(x) / m;
  c.x = Tensor(DType::kU8, {m, c.K});
  c.w = Tensor(DType::kS8, {n, c.K});
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, x[static_cast<size_t>(i)]);
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, w[static_cast<size_t>(i)]);
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

// A convolution of two groups of one input channel each over two pixels in a row, the first of
// which lies beside a column of padding.
Case Grouped() {
  Case c;
  c.op = Op::kConv2d;
  c.window = {
      .batch = 1, .in_h = 1, .in_w = 2, .in_c = 2, .kernel_w = 2, .pad_left = 1, .groups = 2};
  c.N = 4;
  c.x = Tensor(DType::kU8, ShapeOfX(c));  // pixels (1, 2) and (3, 4)
  c.w = Tensor(DType::kS8, ShapeOfW(c));  // channels (10, 11), (12, 13), (14, 15), (16, 17)
  for (int64_t i = 0; i < 4; ++i) c.x.SetInt(i, static_cast<int32_t>(1 + i));
  for (int64_t i = 0; i < 8; ++i) c.w.SetInt(i, static_cast<int32_t>(10 + i));
  c.x_q.zero_point = {5};
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  DeriveSizes(&c);
  EXPECT_EQ(Validate(c), "");
  EXPECT_EQ(c.M, 2);
  return c;
}

Wide MovedBy(const Case& c, const SumSteps& steps) {
  Stages stages;
  stages.c = c;
  stages.sums = steps;
  const std::optional<Wide> moved = stages.Moved();
  EXPECT_TRUE(moved);
  return moved.value_or(Wide{});
}

SumSteps With(const std::function<void(SumSteps&)>& edit) {
  SumSteps steps;
  edit(steps);
  return steps;
}

// --- Sums ---------------------------------------------------------------------------------------

// What stands under each output, written down from the definition.
struct Under {
  std::vector<int32_t> x, w;
  std::vector<bool> padding;
  int64_t row = 0;
};
Under UnderOutput(const Case& c, int64_t m, int64_t n) {
  Under under;
  if (c.op == Op::kLinear) {
    under.row = m;
    for (int64_t k = 0; k < c.K; ++k) {
      under.x.push_back(c.x.IntAt(m * c.K + k));
      under.w.push_back(c.w.IntAt(n * c.K + k));
      under.padding.push_back(false);
    }
    return under;
  }
  const int64_t depth = c.window.in_c / c.window.groups;
  const int64_t group = n / (c.N / c.window.groups);
  under.row = m * c.window.groups + group;
  for (const Tap& tap : TapsOf(c.window, m)) {
    for (int64_t i = 0; i < depth; ++i) {
      under.padding.push_back(tap.x_row < 0);
      under.x.push_back(tap.x_row < 0 ? c.x_q.zero_point_at(0)
                                      : c.x.IntAt(tap.x_row + group * depth + i));
    }
  }
  for (int64_t k = 0; k < c.K; ++k) under.w.push_back(c.w.IntAt(n * c.K + k));
  return under;
}

void ExpectTermsOf(const Case& c) {
  SCOPED_TRACE(Describe(c));
  int64_t output = 0;
  const auto look = [&](SumTerms& terms) {
    const int64_t m = output / c.N, n = output % c.N;
    ++output;
    const Under under = UnderOutput(c, m, n);
    ASSERT_EQ(std::vector<int32_t>(terms.x.begin(), terms.x.end()), under.x);
    ASSERT_EQ(std::vector<int32_t>(terms.w.begin(), terms.w.end()), under.w);
    int64_t products = 0, x_sum = 0, w_sum = 0, padding_w_sum = 0;
    for (size_t k = 0; k < under.x.size(); ++k) {
      products += int64_t{under.x[k]} * under.w[k];
      x_sum += under.x[k];
      w_sum += under.w[k];
      padding_w_sum += under.padding[k] ? under.w[k] : 0;
    }
    ASSERT_EQ(terms.products, products);
    ASSERT_EQ(terms.x_sum, x_sum);
    ASSERT_EQ(terms.w_sum, w_sum);
    ASSERT_EQ(terms.padding_w_sum, padding_w_sum);
    ASSERT_EQ(terms.count, c.K);
    ASSERT_EQ(terms.zx, c.x_q.zero_point_at(0));
    ASSERT_EQ(terms.zw, c.w_q.zero_point_at(n));
    ASSERT_EQ(terms.bias, c.bias_i32 ? (*c.bias_i32)[static_cast<size_t>(n)] : 0);
    ASSERT_EQ(terms.x_dtype, c.x.dtype());
    ASSERT_EQ(terms.w_dtype, c.w.dtype());
    ASSERT_EQ(terms.row, under.row);
    ASSERT_EQ(terms.channel, n);
    ASSERT_EQ(std::ssize(terms.x_sums), c.M * (c.op == Op::kLinear ? 1 : c.window.groups));
    ASSERT_EQ(terms.x_sums[static_cast<size_t>(under.row)], x_sum);
    ASSERT_EQ(terms.x_sums[0], std::accumulate(under.x.begin(), under.x.end(), int64_t{0}) - x_sum +
                                   terms.x_sums[0]);
  };
  Stages stages;
  stages.c = c;
  stages.sums.emplace().edit_terms = look;
  EXPECT_EQ(stages.Evaluate(), exact::Evaluate(c));
  EXPECT_EQ(output, c.M * c.N);
  output = 0;
  stages.sums.emplace().edit_bias = look;
  EXPECT_EQ(stages.Evaluate(), exact::Evaluate(c));
  EXPECT_EQ(output, c.M * c.N);
  stages.sums.emplace();
  EXPECT_EQ(stages.Evaluate(), exact::Evaluate(c));
}

TEST(SumSteps, AreGivenTheTermsOfTheDefinition) {
  for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise}) {
    int seen = 0;
    for (uint64_t seed = 0; seen < 40; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (c.M * c.N * c.K > 1000) continue;
      ++seen;
      ExpectTermsOf(c);
    }
  }
  ExpectTermsOf(Grouped());
}

TEST(SumSteps, OnlyTheNamedProductsAreAdded) {
  const Case c = Linear(1, 2, {1, 2, 3}, {10, 20, 30, 40, 50, 60});
  // The products are 10 40 90 and 40 100 180.
  EXPECT_EQ(MovedBy(c, With([](SumSteps& s) { s.first_added = 1; })), (Wide{-10, -40}));
  EXPECT_EQ(MovedBy(c, With([](SumSteps& s) { s.added = 2; })), (Wide{-90, -180}));
  EXPECT_EQ(MovedBy(c, With([](SumSteps& s) { s.first_added = 1, s.added = 1; })),
            (Wide{-10 - 90, -40 - 180}));
  EXPECT_EQ(MovedBy(c, With([](SumSteps& s) { s.first_added = 1, s.added = 2; })),
            (Wide{-10, -40}));
  EXPECT_EQ(MovedBy(c, With([](SumSteps& s) { s.first_added = 3; })), (Wide{-140, -320}));
  EXPECT_EQ(MovedBy(c, With([](SumSteps& s) { s.first_added = 9, s.added = 9; })),
            (Wide{-140, -320}));
  EXPECT_EQ(MovedBy(c, {}), (Wide{0, 0}));
}

// All terms but the products read the codes as they are.
TEST(SumSteps, TheProductsAloneReadCodesFromElsewhere) {
  Case c = Linear(2, 2, {1, 2, 3, 4}, {10, 20, 30, 40});
  c.x_q.zero_point = {7};
  c.w_q.zero_point = {3};
  SumSteps reads_w, reads_x;
  // The first weight from the last place, the second from before all, the third from behind all.
  reads_w.read_w = [](int64_t row, int64_t term, int64_t columns) -> int64_t {
    EXPECT_EQ(columns, 2);
    EXPECT_LT(row, 2) << "behind the matrix";
    if (row == 0) return term == 0 ? 3 : -2;
    return term == 0 ? 4 : 2;
  };
  // As if w were 40 0 0 30.
  EXPECT_EQ(MovedBy(c, reads_w), (Wide{40 - 50, 60 - 110, 120 - 110, 120 - 250}));
  reads_x.read_x = [](int64_t row, int64_t term, int64_t) { return 3 - (2 * row + term); };
  // As if x were 4 3 2 1.
  EXPECT_EQ(MovedBy(c, reads_x), (Wide{100 - 50, 240 - 110, 40 - 110, 100 - 250}));
}

TEST(SumSteps, AnotherSumOfTheProducts) {
  const Case c = Linear(1, 2, {200, 2}, {10, 20, 30, 40});
  SumSteps steps;
  steps.add = [](DType x_dtype, Codes x, Codes w) {
    EXPECT_EQ(x_dtype, DType::kU8);
    EXPECT_EQ(x[0], 200);
    return int64_t{1000} + w[0];
  };
  EXPECT_EQ(MovedBy(c, steps), (Wide{1010 - 2040, 1030 - 6080}));
  steps.first_added = 1;
  steps.add = [](DType, Codes x, Codes w) { return int64_t{x[0]} * w[0] + std::ssize(x); };
  EXPECT_EQ(MovedBy(c, steps), (Wide{41 - 2040, 81 - 6080}));
}

TEST(SumSteps, OfTheOtherSignAreTheProductsAlone) {
  Case c = Linear(1, 1, {200, 2}, {10, 20});
  c.w_q.zero_point = {3};
  // 200 is read as -56; the sum of x that meets the zero point of w stays.
  EXPECT_EQ(MovedBy(c, With([](SumSteps& s) { s.other_sign_in_products = true; })),
            (Wide{-256 * 10}));
  SumSteps steps;
  steps.other_sign_in_products = true;
  DType seen = DType::kU8;
  steps.add = [&](DType x_dtype, Codes x, Codes) {
    seen = x_dtype;
    EXPECT_EQ(x[0], -56);
    return int64_t{0};
  };
  MovedBy(c, steps);
  EXPECT_EQ(seen, DType::kS8);
}

TEST(SumSteps, PaddingHasItsCodeAndItsPlaces) {
  const Case c = Grouped();
  // Zero point 5. Pixel 0 sees padding and pixel (1, 2); pixel 1 sees (1, 2) and (3, 4).
  EXPECT_EQ(MovedBy(c, With([](SumSteps& s) { s.padding_code = 0; })),
            (Wide{-5 * 10, -5 * 12, -5 * 14, -5 * 16, 0, 0, 0, 0}));
  SumSteps steps;
  steps.x_row = [](const Window&, int64_t, const Tap& tap) { return tap.s == 1 ? -1 : tap.x_row; };
  // The second tap counts as padding too: its code is 5 instead of 1 or 2 (pixel 0), 3 or 4.
  EXPECT_EQ(MovedBy(c, steps),
            (Wide{4 * 11, 4 * 13, 3 * 15, 3 * 17, 2 * 11, 2 * 13, 1 * 15, 1 * 17}));
  int64_t padding = 0;
  steps.edit_terms = [&](SumTerms& terms) { padding += terms.padding_w_sum; };
  MovedBy(c, steps);
  EXPECT_EQ(padding, (21 + 25 + 29 + 33) + (11 + 13 + 15 + 17));
}

TEST(SumSteps, GroupsMayBeTakenModulo) {
  const Case c = Grouped();
  // Channels 1 and 2 take the input of the other group, which is 1 more or 1 less.
  EXPECT_EQ(MovedBy(c, With([](SumSteps& s) { s.group_modulo = true; })),
            (Wide{0, 13, -15, 0, 0, 12 + 13, -(14 + 15), 0}));
}

TEST(Moved, SaysNothingOfOtherStages) {
  Stages plain;
  plain.c = Linear(1, 1, {1}, {1});
  EXPECT_EQ(plain.Moved(), Wide{}) << "no stage has a hook: the case was edited";
  const auto with = [&](const std::function<void(Stages&)>& edit) {
    Stages stages = plain;
    edit(stages);
    return stages.Moved();
  };
  EXPECT_EQ(with([](Stages& s) { s.sums.emplace(); }), Wide{0});
  for (const bool sums : {true, false}) {
    const auto also = [&](const std::function<void(Stages&)>& edit) {
      return with([&](Stages& s) {
        if (sums) s.sums.emplace();
        edit(s);
      });
    };
    EXPECT_FALSE(also([](Stages& s) { s.pool.under_window = [](PoolWindow&) {}; }));
    EXPECT_FALSE(also([](Stages& s) { s.softmax.largest_of_type = true; }));
    EXPECT_FALSE(also([](Stages& s) { s.choice.range_without_zero = true; }));
    EXPECT_FALSE(also([](Stages& s) { s.codes.convert = [](double x) { return x; }; }));
    EXPECT_FALSE(also([](Stages& s) { s.integer = [](__int128 x) { return x; }; }));
    EXPECT_FALSE(
        also([](Stages& s) { s.real = [](const Case&, int64_t, __int128) { return 0.0f; }; }));
    EXPECT_FALSE(also([](Stages& s) { s.finish = [](float x) { return x; }; }));
  }
  // The sums of a dynamic_linear are of codes that the case does not hold.
  EXPECT_FALSE(with([](Stages& s) { s.sums.emplace(), s.c.op = Op::kDynamicLinear; }));
  EXPECT_TRUE(with([](Stages& s) { s.c.op = Op::kDynamicLinear; }));
}

// --- Pools --------------------------------------------------------------------------------------

std::vector<PoolWindow> windows;  // a hook is a plain function

TEST(PoolHooks, AreGivenWhatStandsUnderEachWindow) {
  for (const Op op : {Op::kMaxPool, Op::kAvgPool, Op::kGlobalAvgPool}) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (c.M * c.N * c.K > 2000) continue;
      SCOPED_TRACE(Describe(c));
      Stages stages;
      stages.c = c;
      stages.pool.under_window = [](PoolWindow& window) { windows.push_back(window); };
      windows.clear();
      ASSERT_EQ(stages.Evaluate(), exact::Evaluate(c));
      ASSERT_EQ(std::ssize(windows), c.M * c.N);
      const Window& v = c.window;
      for (int64_t i = 0; i < c.M * c.N; ++i) {
        const PoolWindow& window = windows[static_cast<size_t>(i)];
        const int64_t m = i / c.N, n = i % c.N;
        int64_t inside = 0, with_padding = 0, not_before = 0, sum = 0, largest = INT32_MIN;
        for (const Tap& tap : TapsOf(v, m)) {
          const int64_t y = m / v.out_w() % v.out_h() * v.stride_h + tap.r * v.dilation_h;
          const int64_t x = m % v.out_w() * v.stride_w + tap.s * v.dilation_w;
          with_padding +=
              y < v.pad_top + v.in_h + v.pad_bottom && x < v.pad_left + v.in_w + v.pad_right;
          not_before += y >= v.pad_top && x >= v.pad_left;
          if (tap.x_row < 0) continue;
          ++inside;
          sum += c.x.IntAt(tap.x_row + n);
          largest = std::max<int64_t>(largest, c.x.IntAt(tap.x_row + n));
        }
        ASSERT_EQ(window.positions, c.K);
        ASSERT_EQ(window.inside, inside);
        ASSERT_EQ(window.with_padding, with_padding);
        ASSERT_EQ(window.not_before, not_before);
        ASSERT_EQ(window.sum, sum);
        ASSERT_EQ(window.largest, largest);
        ASSERT_EQ(window.terms, inside);
        ASSERT_EQ(window.divisor, v.count_include_pad ? with_padding : inside);
        ASSERT_EQ(window.zero_point, c.x_q.zero_point_at(0));
        ASSERT_EQ(window.dtype, c.x.dtype());
      }
    }
  }
}

Case PoolOfTwo(Op op) {
  Case c;
  c.op = op;
  c.window = {.batch = 2, .in_h = 1, .in_w = 2, .in_c = 2, .kernel_w = 2};
  c.N = 2;
  c.x = Tensor(DType::kU8, ShapeOfX(c));
  for (int64_t i = 0; i < 8; ++i) c.x.SetInt(i, static_cast<int32_t>(10 * (i + 1)));
  c.x_q.zero_point = c.out_q.zero_point = {4};
  DeriveSizes(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

std::vector<int32_t> CodesOf(const Tensor& tensor) {
  std::vector<int32_t> codes;
  for (int64_t i = 0; i < tensor.size(); ++i) codes.push_back(tensor.IntAt(i));
  return codes;
}

TEST(PoolHooks, WhatTheyChangeMakesTheOutput) {
  // Windows (10, 30), (20, 40), (50, 70), (60, 80); zero point 4.
  Stages average;
  average.c = PoolOfTwo(Op::kAvgPool);
  average.pool.under_window = [](PoolWindow& window) { window.sum += 8; };
  EXPECT_EQ(CodesOf(average.Evaluate()), (std::vector<int32_t>{24, 34, 64, 74}));
  average.pool.window_padding = [](PoolWindow& window) { window.divisor = 4; };
  EXPECT_EQ(CodesOf(average.Evaluate()), (std::vector<int32_t>{14, 19, 34, 39}));
  average.pool.under_window = nullptr;
  EXPECT_EQ(CodesOf(average.Evaluate()), (std::vector<int32_t>{12, 17, 32, 37}));
  average.pool.window_padding = [](PoolWindow& window) { window.terms = 0; };
  EXPECT_EQ(CodesOf(average.Evaluate()), (std::vector<int32_t>{24, 34, 64, 74}));
  Stages largest;
  largest.c = PoolOfTwo(Op::kMaxPool);
  largest.pool.under_window = [](PoolWindow& window) { window.largest -= 1; };
  EXPECT_EQ(CodesOf(largest.Evaluate()), (std::vector<int32_t>{29, 39, 69, 79}));
}

// --- Softmax ------------------------------------------------------------------------------------

Case SoftmaxOf(const std::vector<int32_t>& codes, int64_t rows) {
  const int64_t columns = std::ssize(codes) / rows;
  Case c = CaseOver(Op::kSoftmax, Tensor(DType::kU8, {rows, columns}), DType::kU8);
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, codes[static_cast<size_t>(i)]);
  c.out_q = FixedOutQParams(DType::kU8);
  c.x_q.scale = {0.5f};
  EXPECT_EQ(Validate(c), "");
  return c;
}

TEST(SoftmaxHooks, DistancesAreCutAndMeasuredFromTheLargestOfTheRowOrType) {
  const Case c = SoftmaxOf({250, 252, 249, 255, 100, 254}, 2);
  const std::vector<int32_t> right = CodesOf(exact::Evaluate(c));
  Stages stages;
  stages.c = c;
  stages.softmax.most_distance = 1;
  // Now the distances are 1, 0, 1 and 0, 1, 1.
  EXPECT_EQ(CodesOf(stages.Evaluate()),
            CodesOf(exact::Evaluate(SoftmaxOf({9, 10, 9, 10, 9, 9}, 2))));
  stages.softmax.most_distance = 155;  // as far as they are
  EXPECT_EQ(CodesOf(stages.Evaluate()), right);
  stages.softmax = {.largest_of_type = true};
  // Shares stay; but of codes far below the largest of the type every numerator is 0.
  const std::vector<int32_t> of_type = CodesOf(stages.Evaluate());
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(of_type[i], right[i], 1);
  Case low = SoftmaxOf({0, 1, 2}, 1);
  low.x_q.scale = {1};
  stages.c = low;
  EXPECT_EQ(CodesOf(stages.Evaluate()), (std::vector<int32_t>{0, 0, 0}));
}

// --- Codes and floats ---------------------------------------------------------------------------

// Real outputs 2.5 and -3.5 with zero point 10, clamped to [0, 200].
Stages TwoCodes() {
  Stages stages;
  stages.c = Linear(1, 2, {1}, {5, -7});
  stages.c.w_q.scale = {0.5f};
  stages.c.out_dtype = DType::kU8;
  stages.c.out_q.zero_point = {10};
  stages.c.out_min = 0;
  stages.c.out_max = 200;
  EXPECT_EQ(CodesOf(exact::Evaluate(stages.c)), (std::vector<int32_t>{12, 6}));
  return stages;
}

TEST(CodeHooks, RoundConvertZeroPointNarrowClamp) {
  Stages stages = TwoCodes();
  stages.codes.round = [](const RealOutput& output) {
    EXPECT_TRUE(output.is_tie());
    EXPECT_EQ(output.zero_point(), 10);
    EXPECT_EQ(output.channel(), output.index);
    EXPECT_EQ(output.rounded(), output.index == 0 ? 2 : -4);
    return RoundedOutput{output.index == 0 ? 3.0 : -3.0};
  };
  EXPECT_EQ(CodesOf(stages.Evaluate()), (std::vector<int32_t>{13, 7}));
  stages.codes.round = [](const RealOutput&) { return RoundedOutput{40, true}; };
  EXPECT_EQ(CodesOf(stages.Evaluate()), (std::vector<int32_t>{40, 40}));
  stages.codes.round = nullptr;
  stages.codes.convert = [](double rounded) { return 2 * rounded; };
  EXPECT_EQ(CodesOf(stages.Evaluate()), (std::vector<int32_t>{14, 2}));
  stages.codes.narrow = [](DType dtype, double code) {
    EXPECT_EQ(dtype, DType::kU8);
    return 100 * code;
  };
  EXPECT_EQ(CodesOf(stages.Evaluate()), (std::vector<int32_t>{200, 200}));
  stages.codes.convert = nullptr;
  stages.codes.narrow = [](DType, double code) { return code - 10; };
  EXPECT_EQ(CodesOf(stages.Evaluate()), (std::vector<int32_t>{2, 0}));
  stages.c.relu = true;
  EXPECT_EQ(CodesOf(stages.Evaluate()), (std::vector<int32_t>{10, 10})) << "the code of real 0";
}

TEST(CodeHooks, ANumberThatIsNoneIsTheZeroPoint) {
  Stages stages = TwoCodes();
  stages.codes.round = [](const RealOutput& output) {
    return RoundedOutput{output.index == 0 ? std::nan("") : 1.0, output.index == 0};
  };
  EXPECT_EQ(CodesOf(stages.Evaluate()), (std::vector<int32_t>{10, 11}));
}

TEST(FactorsOf, AreTheNumbersOfTheRealValue) {
  for (const Op op : AllOps()) {
    if (op == Op::kChooseQParams || op == Op::kSoftmax || op == Op::kTable) continue;
    int seen = 0;
    for (uint64_t seed = 0; seed < 200 && seen < 20; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (!IsCode(c.out_dtype) || c.M * c.N == 0 || c.M * c.N * c.K > 4000) continue;
      if (op == Op::kQuantize && !std::isfinite(c.x.FloatAt(0))) continue;
      const exact::Outputs outputs(c);
      const auto real = static_cast<double>(outputs.RealAt(0, 0).value);
      if (std::abs(real) > 1e30 || (real != 0 && std::abs(real) < 1e-30)) continue;
      ++seen;
      const RealOutput output{c, outputs, 0, outputs.CodeAt(0, 0)};
      const Factors f = FactorsOf(output);
      EXPECT_NEAR((f.sum * f.multiplier + f.offset) / f.y / f.divisor, real,
                  1e-9 * (std::abs(f.sum * f.multiplier / f.y / f.divisor) + 1))
          << Describe(c);
    }
  }
  Stages average;
  average.c = PoolOfTwo(Op::kAvgPool);
  average.c.out_q.scale = {4};
  average.codes.round = [](const RealOutput& output) {
    const Factors f = FactorsOf(output);
    EXPECT_EQ(f.sum, (output.index % 2 * 20) + 32 + 80 * static_cast<double>(output.index / 2));
    EXPECT_EQ(f.divisor, 2);
    EXPECT_EQ(f.multiplier / f.y, 0.25);
    return RoundedOutput{output.rounded()};
  };
  EXPECT_EQ(average.Evaluate(), exact::Evaluate(average.c));
  Stages largest;
  largest.c = PoolOfTwo(Op::kMaxPool);
  largest.pool.under_window = [](PoolWindow&) {};
  largest.codes.round = [](const RealOutput& output) {
    EXPECT_EQ(FactorsOf(output).divisor, 1) << "a maximum is divided by nothing";
    return RoundedOutput{output.rounded()};
  };
  EXPECT_EQ(largest.Evaluate(), exact::Evaluate(largest.c));
}

TEST(Stages, AnIntegerHookChangesEveryInteger) {
  Stages stages;
  stages.c = Linear(1, 2, {1}, {5, -7});
  stages.integer = [](__int128 value) { return 2 * value; };
  EXPECT_EQ(CodesOf(stages.Evaluate()), (std::vector<int32_t>{10, -14}));
  stages.c = PoolOfTwo(Op::kAvgPool);
  EXPECT_EQ(CodesOf(stages.Evaluate()), (std::vector<int32_t>{36, 56, 116, 136}))
      << "twice as far from the zero point 4";
}

TEST(Stages, FloatsAreMadeByTheHookAndThenFinished) {
  Stages stages;
  stages.c = Linear(2, 2, {1, 2}, {5, -7});
  stages.c.out_dtype = DType::kF32;
  OpenClamp(&stages.c);
  const auto floats = [&] {
    const Tensor y = stages.Evaluate();
    return std::vector<float>(y.as<float>().begin(), y.as<float>().end());
  };
  static int calls;
  calls = 0;
  stages.real = [](const Case& c, int64_t channel, __int128 integer) {
    ++calls;
    EXPECT_EQ(c.N, 2);
    return static_cast<float>(integer) + (channel == 1 ? 0.5f : 0.0f);
  };
  EXPECT_EQ(floats(), (std::vector<float>{5, -6.5f, 10, -13.5f}));
  EXPECT_EQ(calls, 4) << "once for each output";
  stages.c.relu = true;
  EXPECT_EQ(floats(), (std::vector<float>{5, 0, 10, 0}));
  stages.finish = [](float value) { return value + 1; };
  EXPECT_EQ(floats(), (std::vector<float>{6, 1, 11, 1}));
  stages.c.relu = false;
  stages.real = nullptr;
  EXPECT_EQ(floats(), (std::vector<float>{6, -6, 11, -13}));
  stages.finish = nullptr;
  stages.c.relu = true;
  stages.real = [](const Case&, int64_t channel, __int128) {
    return channel == 1 ? -0.0f : std::numeric_limits<float>::quiet_NaN();
  };
  for (const float value : floats()) EXPECT_TRUE(value == 0 && !std::signbit(value));
}

// --- Choices of scale and zero point ------------------------------------------------------------

Case Observed(const std::vector<float>& values, int64_t batches, int64_t columns) {
  Case c;
  c.op = Op::kChooseQParams;
  c.M = columns;
  c.N = std::ssize(values) / batches / columns;
  c.per_channel = columns > 1;
  c.x = Tensor::Of<float>({batches, c.M, c.N}, values);
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

void ExpectChosen(const Stages& stages, const std::vector<exact::ChosenQParams>& chosen) {
  const Tensor y = stages.Evaluate();
  ASSERT_EQ(y.size(), 2 * std::ssize(chosen));
  for (size_t i = 0; i < chosen.size(); ++i) {
    EXPECT_EQ(y.FloatAt(static_cast<int64_t>(i)), chosen[i].scale) << i;
    EXPECT_EQ(y.FloatAt(static_cast<int64_t>(chosen.size() + i)),
              static_cast<float>(chosen[i].zero_point))
        << i;
  }
}

TEST(ChoiceHooks, ARangeMayLeaveZeroOut) {
  Stages stages;
  stages.c = Observed({2, 3, -6, -4}, 1, 2);
  EXPECT_EQ(stages.Evaluate(), exact::Evaluate(stages.c)) << "no hook";
  stages.choice.range_without_zero = true;
  const Observer& o = stages.c.observer;
  ExpectChosen(stages, {exact::FromRange(o, 2, 3), exact::FromRange(o, -6, -4)});
  stages.c = Observed({2, 3, -6, -4}, 2, 1);
  ExpectChosen(stages, {exact::FromRange(o, -6, 3)});
  stages.c = Observed({2, 3, -6, -4}, 1, 2);
  stages.choice = {.least_scale = 0x1p-30f};
  ExpectChosen(stages, {exact::FromRange(o, 0, 3), exact::FromRange(o, -6, 0)});
  stages.c = Observed({0x1p-26f, 0}, 1, 1);
  ExpectChosen(stages, {exact::FromRange(o, 0, 0x1p-26, 0x1p-30f)});
}

TEST(ChoiceHooks, WithoutThemAChoiceIsExact) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Stages stages;
    stages.c = gen::Draw(Op::kChooseQParams, seed);
    EXPECT_EQ(stages.Evaluate(), exact::Evaluate(stages.c)) << Describe(stages.c);
  }
}

TEST(ChoiceHooks, AveragesOfBatchesInDouble) {
  Stages stages;
  stages.c = Observed({-1, 2, -8, 16}, 2, 1);
  stages.c.observer.kind = Observer::Kind::kMovingAverage;
  stages.c.observer.averaging_constant = 0.1f;
  ASSERT_EQ(Validate(stages.c), "");
  stages.choice.averages_in_double = true;
  const double share = 0.1f;
  ExpectChosen(stages,
               {exact::FromRange(stages.c.observer, -1 + share * (-8 - -1), 2 + share * (16 - 2))});
  stages.c = Observed({1, 2, 3, 5, -1, -2, 7, 9}, 2, 2);
  stages.c.observer.kind = Observer::Kind::kMovingAverage;
  stages.c.observer.averaging_constant = 0.1f;
  // Batches ((1, 2), (3, 5)) and ((-1, -2), (7, 9)): columns see 1..2 then -2..-1, 3..5 then 7..9.
  ExpectChosen(stages, {exact::FromRange(stages.c.observer, std::min(0.0, 1 + share * (-2 - 1)),
                                         2 + share * (-1 - 2)),
                        exact::FromRange(stages.c.observer, 0, 5 + share * (9 - 5))});
}

// Row 0 is 1 2, row 1 is 4 8.
Stages Dynamic(Granularity granularity) {
  Stages stages;
  Case& c = stages.c;
  c.op = Op::kDynamicLinear;
  c.M = 2, c.N = 1, c.K = 2;
  c.x = Tensor::Of<float>({2, 2}, std::vector<float>{1, 2, 4, 8});
  c.w = Tensor(DType::kS8, {1, 2});
  c.w.SetInt(0, 3), c.w.SetInt(1, 4);
  c.w_q.zero_point = {1};
  c.x_gran = granularity;
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  EXPECT_EQ(Validate(c), "");
  return stages;
}

// The output of one row whose codes are made with `codes` and whose sums use `sums`.
float RowOf(const Case& c, int64_t row, exact::ChosenQParams codes, exact::ChosenQParams sums) {
  const Tensor q = exact::Evaluate(exact::QuantizeOf(c, row, 1, codes));
  return exact::Evaluate(exact::SumsCaseOf(c, q, sums)).FloatAt(0);
}

TEST(ChoiceHooks, OfDynamicLinearTakeThoseOfRow0) {
  Stages stages = Dynamic(Granularity::kRow);
  const Case& c = stages.c;
  stages.choice.range_without_zero = true;  // so that zero points differ too
  const exact::ChosenQParams first = exact::ChosenFor(c, {1, 2}),
                             second = exact::ChosenFor(c, {4, 8});
  ASSERT_NE(first.scale, second.scale);
  const auto expect = [&](exact::ChosenQParams codes, exact::ChosenQParams sums) {
    const Tensor y = stages.Evaluate();
    EXPECT_EQ(y.FloatAt(0), RowOf(c, 0, first, first));
    EXPECT_EQ(y.FloatAt(1), RowOf(c, 1, codes, sums));
  };
  expect(second, second);
  stages.choice.choice_of_row_0 = true;
  expect(first, first);
  stages.choice.choice_of_row_0 = false;
  stages.choice.scale_of_row_0 = true;
  expect(second, {first.scale, second.zero_point});
  // Of rows on both sides of 0 the zero points differ.
  stages.choice = {.zero_point_of_row_0 = true};
  stages.c.x.as<float>()[3] = -8;
  const exact::ChosenQParams positive = exact::ChosenFor(c, {0, 2}),
                             both = exact::ChosenFor(c, {-8, 4});
  ASSERT_NE(positive.zero_point, both.zero_point);
  const Tensor y = stages.Evaluate();
  EXPECT_EQ(y.FloatAt(0), RowOf(c, 0, positive, positive));
  EXPECT_EQ(y.FloatAt(1), RowOf(c, 1, both, {both.scale, positive.zero_point}));
  stages.choice = {};
  EXPECT_EQ(stages.Evaluate(), exact::Evaluate(c));
}

TEST(ChoiceHooks, OfDynamicLinearAPlainRangeHasTheFiniteValues) {
  Stages stages = Dynamic(Granularity::kTensor);
  stages.c.x.as<float>()[1] = INFINITY;
  stages.choice.range_without_zero = true;
  const exact::ChosenQParams chosen = exact::ChosenFor(stages.c, {1, 8});
  const Tensor q = exact::Evaluate(exact::QuantizeOf(stages.c, 0, 2, chosen));
  EXPECT_EQ(stages.Evaluate(), exact::Evaluate(exact::SumsCaseOf(stages.c, q, chosen)));
  for (float& value : stages.c.x.as<float>()) value = INFINITY;
  const exact::ChosenQParams none = exact::ChosenFor(stages.c, {0, 0});
  const Tensor none_q = exact::Evaluate(exact::QuantizeOf(stages.c, 0, 2, none));
  EXPECT_EQ(stages.Evaluate(), exact::Evaluate(exact::SumsCaseOf(stages.c, none_q, none)));
}

// The hooks of codes act where x is quantized, not where the sums are scaled.
TEST(CodeHooks, OfDynamicLinearActOnTheCodesOfX) {
  Stages stages = Dynamic(Granularity::kTensor);
  stages.codes.convert = [](double rounded) { return rounded - 1; };
  const exact::ChosenQParams chosen = exact::ChosenFor(stages.c, {0, 8});
  Tensor q = exact::Evaluate(exact::QuantizeOf(stages.c, 0, 2, chosen));
  for (int64_t i = 0; i < q.size(); ++i) q.SetInt(i, q.IntAt(i) - 1);
  EXPECT_EQ(stages.Evaluate(), exact::Evaluate(exact::SumsCaseOf(stages.c, q, chosen)));
  stages.codes = {};
  stages.sums.emplace().edit_terms = [](SumTerms& terms) { ++terms.products; };
  EXPECT_NE(stages.Evaluate(), exact::Evaluate(stages.c)) << "hooks of sums act on the sums";
}

}  // namespace
}  // namespace qualm::triage
