// SPDX-License-Identifier: Apache-2.0
// What properties share: codes that move, answers that are compared, the exact output and its
// memory.
#include "properties/relation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/slice.h"
#include "oracles/exact/exact.h"
#include "properties/distinct.h"
#include "properties/gen/gen.h"
#include "properties/test_subject.h"

namespace qualm::relation {
namespace {

Tensor Codes(DType dtype, const std::vector<int32_t>& values) {
  Tensor tensor(dtype, {1, static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.SetInt(static_cast<int64_t>(i), values[i]);
  return tensor;
}

TEST(Shifted, KeepsEveryCodeOrGivesNone) {
  EXPECT_EQ(Shifted(Codes(DType::kU8, {0, 127, 255}), DType::kS8, -128),
            Codes(DType::kS8, {-128, -1, 127}));
  EXPECT_EQ(Shifted(Codes(DType::kS8, {-128, -1, 127}), DType::kU8, 128),
            Codes(DType::kU8, {0, 127, 255}));
  EXPECT_EQ(Shifted(Codes(DType::kU8, {1, 254}), DType::kU8, 1), Codes(DType::kU8, {2, 255}));
  EXPECT_EQ(Shifted(Codes(DType::kU8, {1, 254}), DType::kU8, -1), Codes(DType::kU8, {0, 253}));
  for (const int32_t by : {2, -2, 300, -300})
    EXPECT_EQ(Shifted(Codes(DType::kU8, {1, 254}), DType::kU8, by), std::nullopt) << by;
  EXPECT_EQ(Shifted(Codes(DType::kS8, {-128, 0}), DType::kS8, -1), std::nullopt);
  EXPECT_EQ(Shifted(Codes(DType::kS8, {0, 127}), DType::kS8, 1), std::nullopt);
  EXPECT_EQ(Shifted(Codes(DType::kS32, {INT32_MAX - 1, 5}), DType::kS32, 1),
            Codes(DType::kS32, {INT32_MAX, 6}));
  EXPECT_EQ(Shifted(Codes(DType::kS32, {5, INT32_MAX}), DType::kS32, 1), std::nullopt);
  EXPECT_EQ(Shifted(Codes(DType::kS32, {INT32_MIN, 5}), DType::kS32, -1), std::nullopt);
  EXPECT_EQ(Shifted(Codes(DType::kS32, {250, 3}), DType::kU8, 5), Codes(DType::kU8, {255, 8}));
  EXPECT_EQ(Shifted(Codes(DType::kS32, {251, 3}), DType::kU8, 5), std::nullopt);
  EXPECT_EQ(Shifted(Codes(DType::kS32, {0, 3}), DType::kU8, 0), Codes(DType::kU8, {0, 3}));
  EXPECT_EQ(Shifted(Codes(DType::kU8, {0, 255}), DType::kS32, 5), Codes(DType::kS32, {5, 260}));
  EXPECT_EQ(Shifted(Codes(DType::kU8, {0, 15}), DType::kS4, -8), Codes(DType::kS4, {-8, 7}));
  EXPECT_EQ(Shifted(Codes(DType::kS4, {-8, 0, 6}), DType::kS4, 1), Codes(DType::kS4, {-7, 1, 7}));
  EXPECT_EQ(Shifted(Codes(DType::kS4, {7, 0}), DType::kS4, 1), std::nullopt);
}

TEST(Shifted, WithinTheTypeAsFarAsThereIsRoom) {
  EXPECT_EQ(ShiftWithin(Codes(DType::kU8, {10, 200})), 55);
  EXPECT_EQ(ShiftWithin(Codes(DType::kU8, {200, 100, 250})), -100);
  EXPECT_EQ(ShiftWithin(Codes(DType::kU8, {5, 250})), 5) << "as much room on both sides: upwards";
  EXPECT_EQ(ShiftWithin(Codes(DType::kU8, {0, 255})), 0);
  EXPECT_EQ(ShiftWithin(Codes(DType::kS8, {-128, 100, -5})), 27);
  EXPECT_EQ(ShiftWithin(Codes(DType::kS4, {-8, 3})), 4);
  EXPECT_EQ(ShiftWithin(Codes(DType::kS4, {7, -3})), -5);
  EXPECT_EQ(ShiftedInt(5, 3), 8);
  EXPECT_EQ(ShiftedInt(INT32_MAX, 0), INT32_MAX);
  EXPECT_EQ(ShiftedInt(INT32_MAX, 1), std::nullopt);
  EXPECT_EQ(ShiftedInt(INT32_MIN, 0), INT32_MIN);
  EXPECT_EQ(ShiftedInt(INT32_MIN, -1), std::nullopt);
}

TEST(Permutation, IsOneOfAllAndMovesEveryPlace) {
  Rng rng(1);
  std::set<std::vector<int64_t>> met;
  for (int i = 0; i < 200; ++i) {
    std::vector<int64_t> order = Permutation(rng, 4);
    met.insert(order);
    std::ranges::sort(order);
    EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3}));
  }
  EXPECT_EQ(met.size(), 24u);
  EXPECT_TRUE(Permutation(rng, 0).empty());
}

TEST(LowEnd, IsNeverAboveTheClamp) {
  Case c = gen::Draw(Op::kQuantize, gen::Theme::kUniform, 1);
  c.out_dtype = DType::kU8;
  c.per_channel = false;
  c.out_q = {};
  c.out_min = 3;
  c.out_max = 9;
  c.relu = false;
  EXPECT_EQ(LowEnd(c, 0), 3);
  c.relu = true;
  c.out_q.zero_point = {5};
  EXPECT_EQ(LowEnd(c, 0), 5);
  c.out_q.zero_point = {20};
  EXPECT_EQ(LowEnd(c, 0), 9);
}

TEST(FailedAt, NamesRowColumnAndNumbers) {
  Case c = CaseOver(Op::kRescale, Tensor(DType::kU8, {2, 3}), DType::kU8);
  const Tensor expected = Codes(DType::kU8, {1, 2, 3, 4, 5, 6});
  const Tensor actual = Codes(DType::kU8, {1, 2, 3, 4, 9, 7});
  const Verdict verdict = FailedAt(c, expected, 5, actual, 4, "what");
  EXPECT_EQ(verdict.reason, "what: expected 6 at output [1,1], got 9");
  EXPECT_EQ(verdict.divergence->index, 4);
  EXPECT_EQ(verdict.divergence->distance_lsb, 3);
  const auto difference = Difference(c, expected, actual, "what");
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->reason, "what: expected 5 at output [1,1], got 9");
  EXPECT_EQ(difference->divergence->distance_lsb, 4);
  EXPECT_FALSE(Difference(c, expected, expected, "what"));
  Case pool;
  pool.op = Op::kMaxPool;
  EXPECT_EQ(FailedAt(c, 0, "a", "b", 0, "what").reason, "what: expected a at output [0,0], got b");
}

// Cases with equal rows and columns are computed once for each; with many cases the memory turns.
TEST(ExactOf, IsTheExactOutputHoweverManyAreAskedInBetween) {
  std::vector<Case> cases;
  for (const Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 3; ++seed) cases.push_back(gen::Draw(op, seed));
  }
  for (int turn = 0; turn < 3; ++turn) {
    for (size_t i = 0; i < cases.size(); ++i) {
      // Each case again after one, two ... others.
      const Case& c = cases[i];
      if (c.M * c.N * std::max<int64_t>(c.K, 1) > 50'000) continue;
      ASSERT_EQ(ExactOf(c), exact::Evaluate(c)) << Describe(c);
      ASSERT_EQ(ExactOf(cases[i / 2]), exact::Evaluate(cases[i / 2])) << Describe(cases[i / 2]);
    }
  }
}

// Three rows or columns again and again, in an order of their own.
std::vector<int64_t> Repeated(int64_t of, int64_t times, uint64_t seed) {
  Rng rng(seed);
  std::vector<int64_t> list;
  for (int64_t i = 0; i < times; ++i)
    list.push_back(
        static_cast<int64_t>(rng.Below(static_cast<uint64_t>(std::min<int64_t>(of, 3)))));
  return list;
}

TEST(ExactOf, OfManyEqualRowsAndColumns) {
  int joined_rows = 0, joined_columns = 0;
  for (const Op op : AllOps()) {
    int met = 0;
    for (uint64_t seed = 0; seed < 300 && met < 6; ++seed) {
      Case c = gen::Draw(op, seed);
      if (c.M < 2 || c.N < 2 || c.M * c.N > 600 || c.K > 40 || c.x.empty()) continue;
      if (!HasWindow(op) && RowOf(op).layout != Layout::kBatches)
        c = slice::Rows(c, Repeated(c.M, 60, seed));
      if (RowOf(op).layout != Layout::kBatches && !HasWindow(op))
        c = slice::Channels(c, Repeated(c.N, 50, seed + 1));
      if (!Validate(c).empty()) continue;
      ++met;
      ASSERT_EQ(ExactOf(c), exact::Evaluate(c)) << Describe(c);
      const auto distinct = DistinctPartsOf(c);
      if (!distinct) continue;
      joined_rows += distinct->c.M < c.M;
      joined_columns += distinct->c.N < c.N;
    }
  }
  EXPECT_GT(joined_rows, 20);
  EXPECT_GT(joined_columns, 20);
}

// Outputs of many equal pixels, channels or tensors that are no rows or columns of x.
TEST(ExactOf, OfManyEqualPixelsAndBatches) {
  for (const Op op :
       {Op::kConv2d, Op::kDepthwise, Op::kMaxPool, Op::kAvgPool, Op::kGlobalAvgPool}) {
    Case c;
    c.op = op;
    c.N = 6;
    c.window = {.batch = 7, .in_h = 9, .in_w = 8, .in_c = 6};
    if (op == Op::kDepthwise) c.window.groups = 6;
    if (op == Op::kGlobalAvgPool) {
      c.window.batch = 400;
      c.window.kernel_h = 9, c.window.kernel_w = 8;
    }
    const Window& v = c.window;
    c.x = Tensor(DType::kU8, {v.batch, v.in_h, v.in_w, v.in_c});
    for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(i / 6 % 5 * 40));
    if (HasWeights(op)) {
      c.w = Tensor(DType::kS8, {6, 1, 1, v.in_c / v.groups});
      for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, static_cast<int32_t>(i % 2));
    }
    DeriveSizes(&c);
    ASSERT_EQ(Validate(c), "") << Name(op);
    ASSERT_GT(c.M * c.N, 2048) << Name(op);
    EXPECT_EQ(ExactOf(c), exact::Evaluate(c)) << Name(op);
  }
  Case concat = CaseOver(Op::kConcat, Tensor(DType::kU8, {500, 3}), DType::kU8);
  concat.w = Tensor(DType::kU8, {500, 4});
  concat.N = 7;
  for (int64_t i = 0; i < concat.x.size(); ++i) concat.x.SetInt(i, static_cast<int32_t>(i % 4));
  for (int64_t i = 0; i < concat.w.size(); ++i) concat.w.SetInt(i, static_cast<int32_t>(i % 5));
  ASSERT_EQ(Validate(concat), "");
  EXPECT_EQ(ExactOf(concat), exact::Evaluate(concat));
  for (const bool per_channel : {false, true}) {
    Case observer;
    observer.op = Op::kChooseQParams;
    observer.M = 8;
    observer.N = 400;
    observer.x = Tensor(DType::kF32, {2, 8, 400});
    for (int64_t i = 0; i < observer.x.size(); ++i)
      observer.x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(i / 400 % 3);
    observer.out_dtype = DType::kF32;
    OpenClamp(&observer);
    observer.per_channel = per_channel;
    ASSERT_EQ(Validate(observer), "");
    EXPECT_EQ(ExactOf(observer), exact::Evaluate(observer));
  }
  Case softmax = CaseOver(Op::kSoftmax, Tensor(DType::kU8, {300, 8}), DType::kU8);
  softmax.out_q.scale = {1.0f / 256};
  for (int64_t i = 0; i < softmax.x.size(); ++i)
    softmax.x.SetInt(i, static_cast<int32_t>(i / 8 % 3));
  ASSERT_EQ(Validate(softmax), "");
  EXPECT_EQ(ExactOf(softmax), exact::Evaluate(softmax));
}

// Columns that differ in one thing alone are not the same column.
TEST(ExactOf, OfColumnsThatDifferInOneParameter) {
  Case c;
  c.op = Op::kLinear;
  c.M = 300;
  c.N = 10;
  c.K = 2;
  c.x = Tensor(DType::kU8, {c.M, 2});
  c.w = Tensor(DType::kS8, {c.N, 2});
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(i % 7));
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, 3);
  const auto check = [](const Case& one, int64_t columns) {
    ASSERT_EQ(Validate(one), "");
    ASSERT_EQ(ExactOf(one), exact::Evaluate(one));
    const auto distinct = DistinctPartsOf(one);
    ASSERT_TRUE(distinct);
    EXPECT_EQ(distinct->c.N, columns);
    EXPECT_EQ(distinct->c.M, 7);
  };
  check(c, 1);
  Case bias = c;
  bias.bias = std::vector<float>(10, 1.0f);
  bias.bias->at(4) = 9;
  check(bias, 2);
  Case ints = c;
  ints.bias_i32 = std::vector<int32_t>(10, 1);
  ints.bias_i32->at(9) = 9;
  check(ints, 2);
  Case channels = c;
  channels.per_channel = true;
  channels.w_q.scale.assign(10, 1.0f);
  channels.w_q.zero_point.assign(10, 0);
  check(channels, 1);
  channels.w_q.scale[3] = 2;
  check(channels, 2);
  channels.w_q.zero_point[4] = 1;
  check(channels, 3);
  Case weights = c;
  weights.w.SetInt(19, 4);
  check(weights, 2);
  Case requantize = CaseOver(Op::kRequantize, Tensor(DType::kS32, {300, 10}), DType::kU8);
  for (int64_t i = 0; i < requantize.x.size(); ++i) requantize.x.SetInt(i, 90);
  requantize.per_channel = true;
  requantize.out_q.zero_point.assign(1, 0);
  requantize.multiplier.assign(10, 0.5f);
  requantize.multiplier[7] = 0.25f;
  if (Validate(requantize).empty()) {
    EXPECT_EQ(ExactOf(requantize), exact::Evaluate(requantize));
  }
}

TEST(Ask, GivesTheAnswerOrWhyThereIsNone) {
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  TestSubject subject;
  const Answer good = Ask(subject, c, {});
  EXPECT_FALSE(good.verdict);
  EXPECT_FALSE(good.skipped());
  EXPECT_EQ(good.y, exact::Evaluate(c));
  subject.cannot_run = [](const Case&) { return "why"; };
  const Answer skipped = Ask(subject, c, {});
  EXPECT_TRUE(skipped.skipped());
  EXPECT_EQ(skipped.verdict->reason, "why");
  EXPECT_EQ(subject.runs, 1);
}

TEST(CompareAlone, TellsTheOutputOfTheWhole) {
  const Case whole = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  ASSERT_GT(whole.M, 1);
  const int64_t last = whole.M - 1;
  const Case part = slice::Rows(whole, {&last, 1});
  TestSubject subject;
  const auto place = [&](int64_t i) { return last * whole.N + i; };
  Tensor y = exact::Evaluate(whole);
  EXPECT_FALSE(CompareAlone(whole, y, part, subject, place, "what"));
  for (const int64_t n : {int64_t{0}, whole.N - 1}) {
    Tensor wrong = y;
    wrong.SetInt(place(n), wrong.IntAt(place(n)) ^ 1);
    const auto verdict = CompareAlone(whole, wrong, part, subject, place, "what");
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->divergence->index, place(n));
    EXPECT_EQ(verdict->divergence->expected, std::to_string(y.IntAt(place(n))));
    EXPECT_EQ(verdict->divergence->actual, std::to_string(wrong.IntAt(place(n))));
  }
}

}  // namespace
}  // namespace qualm::relation
