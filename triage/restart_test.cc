// SPDX-License-Identifier: Apache-2.0
// The cases from which a search starts again: what they promise, and the numbers that are tried. A
// number that is never tried is a smaller case that users do not see.
#include "triage/restart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/layer_test_util.h"
#include "core/slice.h"
#include "oracles/exact/exact.h"

namespace qualm::triage {
namespace {

Case Linear(int64_t m, int64_t n, int64_t k) {
  Case c = ZeroLayer(m, n, k);
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(100 + i % 100));
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, static_cast<int32_t>(-100 + i % 50));
  return c;
}

const Cause& Relu() { return CauseNamed("relu ignored"); }

// --- What they promise --------------------------------------------------------------------------

TEST(Restarts, AreSimplerCasesOnWhichTheCauseActs) {
  Case c = Linear(2, 2, 3);
  c.relu = true;
  c.bias_i32 = {{-20, -20}};
  c.out_q.zero_point = {3};
  ASSERT_EQ(Validate(c), "");
  const Hypothesis causes{&Relu()};
  for (const int64_t least : {0, 2}) {
    const Holds possible = [&](const Case& asked) { return asked.K >= least; };
    const std::vector<Case> cases = Restarts(c, causes, nullptr, possible);
    ASSERT_FALSE(cases.empty());
    for (size_t i = 0; i < cases.size(); ++i) {
      EXPECT_LT(Complexity(cases[i]), Complexity(c));
      EXPECT_EQ(Validate(cases[i]), "");
      EXPECT_GE(cases[i].K, least);
      EXPECT_EQ(cases[i].x.dtype(), c.x.dtype());
      EXPECT_EQ(cases[i].w.dtype(), c.w.dtype());
      EXPECT_EQ(cases[i].out_dtype, c.out_dtype);
      EXPECT_NE(Counterfactual(cases[i], causes), exact::Evaluate(cases[i]));
      if (i == 0) continue;
      EXPECT_LE(Complexity(cases[i - 1]), Complexity(cases[i])) << "the simplest first";
      EXPECT_NE(cases[i - 1], cases[i]);
    }
    const Case& simplest = cases.front();
    EXPECT_EQ(simplest.M * simplest.N, 1);
    EXPECT_EQ(simplest.K, std::max<int64_t>(least, 1));
    EXPECT_TRUE(simplest.relu);
    EXPECT_FALSE(simplest.bias_i32);
  }
}

// No pass drops a clamp together with the lists per channel: with both the search ends elsewhere
// than without, and a subject that refuses one case may take the other.
TEST(Restarts, AreAllThatTheSearchEndsIn) {
  Case c = Linear(2, 2, 3);
  c.relu = true;
  c.per_channel = true;
  c.w_q = {{2, 3}, {4, 5}};
  c.out_min = 3;
  ASSERT_EQ(Validate(c), "");
  const std::vector<Case> cases = Restarts(c, {&Relu()}, nullptr, [](const Case& asked) {
    return asked.per_channel == IsClamped(asked);
  });
  ASSERT_GE(cases.size(), 2U);
  EXPECT_FALSE(cases.front().per_channel);
  EXPECT_TRUE(std::ranges::any_of(cases, [](const Case& found) { return found.per_channel; }));
}

// The sizes of the given case are not those of the drawn ones.
TEST(Restarts, AreDrawnAnewToo) {
  Case c = Linear(3, 7, 3);
  c.relu = true;
  const std::vector<Case> cases =
      Restarts(c, {&Relu()}, nullptr, [](const Case& asked) { return asked.M != 3; });
  ASSERT_FALSE(cases.empty());
  EXPECT_EQ(cases.front().M * cases.front().N, 1);
}

// Cases drawn anew have other sizes.
TEST(Restarts, AreMadeOfTheGivenCaseToo) {
  Case c = Linear(3, 7, 3);
  c.relu = true;
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  const std::vector<Case> cases = Restarts(
      c, {&Relu()}, nullptr, [](const Case& asked) { return asked.M == 3 && asked.N == 7; });
  ASSERT_FALSE(cases.empty());
  EXPECT_EQ(cases.front().K, 1);
  int64_t nonzero = 0;
  for (const Tensor* tensor : {&cases.front().x, &cases.front().w}) {
    for (int64_t i = 0; i < tensor->size(); ++i) nonzero += tensor->IntAt(i) != 0;
  }
  EXPECT_EQ(nonzero, 2) << "one product";
}

TEST(Restarts, OfTheSimplestCaseThereAreNone) {
  Case c = Linear(1, 1, 1);
  c.x.SetInt(0, 1);
  c.w.SetInt(0, -1);
  c.relu = true;
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  const auto always = [](const Case&) { return true; };
  EXPECT_TRUE(Restarts(c, {&Relu()}, nullptr, always).empty());
}

TEST(Restarts, ThatCannotBeRunAreNone) {
  Case c = Linear(2, 2, 3);
  c.relu = true;
  EXPECT_TRUE(Restarts(c, {&Relu()}, nullptr, [](const Case&) { return false; }).empty());
}

// --- The numbers that are tried -----------------------------------------------------------------

// The valid simpler cases that are made of `c`, each seen where it is asked whether it is possible.
// Those that are drawn anew come behind them: the first has another number of rows or channels.
std::vector<Case> Tried(const Case& c) {
  std::vector<Case> tried;
  bool drawn = false;
  const Holds possible = [&](const Case& asked) {
    drawn = drawn || asked.M != c.M || asked.N != c.N;
    if (drawn) return false;
    tried.push_back(asked);
    EXPECT_LT(Complexity(asked), Complexity(c));
    EXPECT_EQ(Validate(asked), "");
    return false;
  };
  Restarts(c, {&Relu()}, nullptr, possible);
  EXPECT_TRUE(drawn);
  return tried;
}

template <class T>
using Shares = std::map<T, double>;

// The values and how often each of them comes, in a number of tries.
template <class T>
Shares<T> SharesOf(const std::vector<T>& values) {
  Shares<T> shares;
  for (const T& value : values) shares[value] += 1.0 / static_cast<double>(values.size());
  return shares;
}
template <class T>
void ExpectShares(const std::vector<T>& values, const Shares<T>& expected, double within = 0.03) {
  ASSERT_GT(values.size(), 200U);
  const Shares<T> shares = SharesOf(values);
  for (const auto& [value, share] : shares)
    EXPECT_TRUE(expected.contains(value)) << value << " is no round number";
  for (const auto& [value, share] : expected) {
    ASSERT_TRUE(shares.contains(value)) << value << " is never tried";
    EXPECT_NEAR(shares.at(value), share, within) << value;
  }
}

// How often each float is tried that is to be a round number.
Shares<float> OfRoundReals() {
  const double each = 1.0 / 14;
  return {{0, 4 * each}, {1, 2 * each}, {-1, each}, {0.5f, each},   {-0.5f, each},
          {1.5f, each},  {2, each},     {3, each},  {127.5f, each}, {256, each}};
}

// Three rows, seven channels and everything that a case of linear can have: whatever is made of it
// is simpler.
Case Complex() {
  Case c = Linear(3, 7, 8);
  c.bias_i32 = std::vector<int32_t>(7, 1 << 30);
  c.relu = true;
  c.requant = Requant::kFloat32;
  c.out_min = 7;
  c.out_max = 222;
  c.x_q = {{0.3f}, {77}};
  c.w_q = {{0.7f}, {-77}};
  c.out_q = {{0.9f}, {78}};
  EXPECT_EQ(Validate(c), "");
  return c;
}

const Shares<int32_t>& OfUnsigned() {
  // Half are 0, a tenth each end; of a third one of 1 1 1 -1 2 3 127 128 129 -127 -128 255.
  static const Shares<int32_t> shares{{0, 0.5 + 0.1 + 0.3 * 3 / 12},
                                      {1, 0.3 * 3 / 12},
                                      {2, 0.3 / 12},
                                      {3, 0.3 / 12},
                                      {127, 0.3 / 12},
                                      {128, 0.3 / 12},
                                      {129, 0.3 / 12},
                                      {255, 0.1 + 0.3 / 12}};
  return shares;
}

std::vector<int32_t> All(const std::vector<Case>& cases, Tensor Case::* field) {
  std::vector<int32_t> codes;
  for (const Case& c : cases) {
    for (int64_t i = 0; i < (c.*field).size(); ++i) codes.push_back((c.*field).IntAt(i));
  }
  return codes;
}

TEST(RoundNumbers, CodesAreThoseThatAPersonWouldWrite) {
  const std::vector<Case> tried = Tried(Complex());
  ASSERT_GT(tried.size(), 400U);
  ExpectShares(All(tried, &Case::x), OfUnsigned(), 0.015);
  ExpectShares(All(tried, &Case::w),
               {{0, 0.5},
                {1, 0.3 * 3 / 12},
                {-1, 0.3 / 12},
                {2, 0.3 / 12},
                {3, 0.3 / 12},
                {127, 0.1 + 0.3 * 4 / 12},
                {-127, 0.3 / 12},
                {-128, 0.1 + 0.3 / 12}},
               0.015);
  // The last of them and the first are tried too.
  std::set<int32_t> first, last;
  for (const Case& c : tried) {
    if (c.x.empty()) continue;
    first.insert(c.x.IntAt(0));
    last.insert(c.x.IntAt(c.x.size() - 1));
  }
  EXPECT_EQ(first.size(), 8U);
  EXPECT_EQ(last.size(), 8U);
}

TEST(RoundNumbers, ParametersAndTermsComeAndGo) {
  const Case c = Complex();
  const std::vector<Case> tried = Tried(c);
  std::vector<int> plain, open, bias;
  std::vector<int64_t> terms;
  for (const Case& t : tried) {
    plain.push_back(!t.relu && t.requant == Requant::kExact && !t.bias_i32);
    EXPECT_EQ(t.relu, t.requant != Requant::kExact) << "all go together";
    if (!t.relu) {
      EXPECT_FALSE(t.bias_i32);
    }
    open.push_back(!IsClamped(t));
    if (t.relu) bias.push_back(t.bias_i32.has_value());
    terms.push_back(t.K);
  }
  ExpectShares<int>(plain, {{0, 0.5}, {1, 0.5}}, 0.05);
  ExpectShares<int>(open, {{0, 0.5}, {1, 0.5}}, 0.05);
  ExpectShares<int>(bias, {{0, 0.5}, {1, 0.5}}, 0.07);
  ExpectShares<int64_t>(terms, {{0, 0.2}, {1, 0.2}, {2, 0.2}, {3, 0.2}, {4, 0.2}}, 0.04);
}

TEST(RoundNumbers, BiasesAreSmallOrAtAnEndOfInt32) {
  std::vector<int32_t> values;
  for (const Case& t : Tried(Complex())) {
    if (t.bias_i32) values.insert(values.end(), t.bias_i32->begin(), t.bias_i32->end());
  }
  ExpectShares<int32_t>(values, {{0, 0.5},
                                 {1, 0.075},
                                 {-1, 0.025},
                                 {2, 0.025},
                                 {3, 0.025},
                                 {127, 0.025},
                                 {128, 0.025},
                                 {129, 0.025},
                                 {-127, 0.025},
                                 {-128, 0.025},
                                 {255, 0.025},
                                 {INT32_MIN, 0.1},
                                 {INT32_MAX, 0.1}});
  Case floats = Complex();
  floats.bias_i32.reset();
  floats.requant = Requant::kExact;
  floats.bias = std::vector<float>(7, 0.123f);
  std::vector<float> reals;
  for (const Case& t : Tried(floats)) {
    if (t.bias) reals.insert(reals.end(), t.bias->begin(), t.bias->end());
  }
  ExpectShares(reals, OfRoundReals());
}

TEST(RoundNumbers, ZeroPointsAndScalesStayOrAreRound) {
  const Case c = Complex();
  const std::vector<Case> tried = Tried(c);
  std::vector<int32_t> zeros;
  for (QParams Case::* q : {&Case::x_q, &Case::w_q, &Case::out_q}) {
    std::vector<int> kept;
    std::vector<float> scales, powers;
    for (const Case& t : tried) {
      const bool keeps = (t.*q).zero_point == (c.*q).zero_point;
      kept.push_back(keeps);
      if (keeps) continue;
      zeros.push_back((t.*q).zero_point[0]);
      const float scale = (t.*q).scale[0];
      const bool is_power = std::exp2(std::round(std::log2(scale))) == scale;
      if (q != &Case::out_q) scales.push_back(scale);
      if (q == &Case::out_q && is_power) powers.push_back(scale);
    }
    ExpectShares<int>(kept, {{0, 0.75}, {1, 0.25}}, 0.05);
    if (q != &Case::out_q) {
      ExpectShares<float>(scales, {{1, 0.5}, {2, 0.2}, {0.5f, 0.1}, {3, 0.1}, {4, 0.1}}, 0.06);
      continue;
    }
    const std::set<float> all(powers.begin(), powers.end());
    EXPECT_LT(*all.begin(), 0x1p-8f) << "the scale of the output may be any power of two";
    EXPECT_GT(*all.rbegin(), 0x1p16f);
    const auto far = std::ranges::count_if(powers, [](float s) { return s < 0.5f || s > 4; });
    EXPECT_NEAR(static_cast<double>(far) / static_cast<double>(kept.size()), 0.75 * 0.25 * 28 / 33,
                0.06);
  }
  const double some = 0.5 * 15 / 16;  // else an end: a thirtysecond
  const double end = 0.5 / 16 / 4, small = some * 0.3 / 12;
  ExpectShares<int32_t>(zeros,
                        {{0, 0.5 + some * 0.5},
                         {1, 3 * small},
                         {-1, small},
                         {2, small},
                         {3, small},
                         {127, small},
                         {128, small},
                         {129, small},
                         {-127, small},
                         {-128, small + some * 0.1},
                         {255, small + some * 0.1},
                         {INT32_MIN, end},
                         {INT32_MAX, end},
                         {1 << 30, end},
                         {-(1 << 30), end}},
                        0.02);
}

// A term may take the place of a bias.
TEST(RoundNumbers, ACaseWithoutTermsMayGetOne) {
  Case c = Linear(3, 7, 0);
  c.bias_i32 = std::vector<int32_t>(7, 1 << 30);
  c.relu = true;
  c.requant = Requant::kFloat32;
  std::vector<int64_t> terms;
  for (const Case& t : Tried(c)) terms.push_back(t.K);
  const Shares<int64_t> shares = SharesOf(terms);
  EXPECT_EQ(shares.size(), 2U);
  EXPECT_GT(shares.at(0), 0.3);
  EXPECT_GT(shares.at(1), 0.1);
}

TEST(RoundNumbers, FloatsAreRoundToo) {
  Case c = CaseOver(Op::kQuantize, Tensor(DType::kF32, {3, 7}), DType::kU8);
  for (float& value : c.x.as<float>()) value = 0.123f;
  c.relu = true;
  c.out_min = 7;
  std::vector<float> values;
  std::vector<Case> tried = Tried(c);
  for (const Case& t : tried)
    values.insert(values.end(), t.x.as<float>().begin(), t.x.as<float>().end());
  ExpectShares(values, OfRoundReals(), 0.015);
}

TEST(RoundNumbers, OfADynamicLinearTermsGoButNoneComes) {
  for (const int64_t k : {3, 0}) {
    Case c = Linear(3, 7, k);
    c.op = Op::kDynamicLinear;
    c.x = Tensor(DType::kF32, {3, k});
    for (float& value : c.x.as<float>()) value = 0.123f;
    c.bias = std::vector<float>(7, 0.123f);
    c.relu = true;
    c.out_dtype = DType::kF32;
    OpenClamp(&c);
    ASSERT_EQ(Validate(c), "");
    std::set<int64_t> terms;
    for (const Case& t : Tried(c)) terms.insert(t.K);
    EXPECT_EQ(terms, k == 0 ? (std::set<int64_t>{0}) : (std::set<int64_t>{0, 1, 2, 3}));
  }
}

TEST(RoundNumbers, OfAConvolutionTheWindowStays) {
  Case c;
  c.op = Op::kConv2d;
  c.window = {.batch = 1, .in_h = 4, .in_w = 5, .in_c = 1, .kernel_h = 2, .kernel_w = 2};
  c.N = 7;
  c.x = Tensor(DType::kU8, ShapeOfX(c));
  c.w = Tensor(DType::kS8, ShapeOfW(c));
  DeriveSizes(&c);
  c.bias_i32 = std::vector<int32_t>(7, 1 << 30);
  c.relu = true;
  ASSERT_EQ(Validate(c), "");
  const std::vector<Case> tried = Tried(c);
  EXPECT_GT(tried.size(), 200U);
  for (const Case& t : tried) EXPECT_EQ(t.window, c.window);
}

// Nothing is possible any more once the first case is drawn anew, so that nothing is reduced.
TEST(RoundNumbers, TheFourSimplestCasesAreReduced) {
  const Case c = Complex();
  bool drawn = false;
  std::vector<std::vector<int64_t>> acting;
  const std::vector<Case> cases = Restarts(c, {&Relu()}, nullptr, [&](const Case& asked) {
    drawn = drawn || asked.M != c.M || asked.N != c.N;
    const auto wrong = Counterfactual(asked, Relu());
    if (!drawn && wrong && *wrong != exact::Evaluate(asked)) acting.push_back(Complexity(asked));
    return !drawn;
  });
  std::ranges::sort(acting);
  ASSERT_GT(acting.size(), 10U);
  ASSERT_EQ(cases.size(), 4U);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(Complexity(cases[i]), acting[i]);
}

TEST(RoundNumbers, ThatMakeNoValidOrNoSimplerCaseAreNotTried) {
  Case softmax = CaseOver(Op::kSoftmax, Tensor(DType::kU8, {3, 7}), DType::kU8);
  softmax.out_q = FixedOutQParams(DType::kU8);
  softmax.x_q = {{0.3f}, {77}};
  softmax.out_min = 7;
  ASSERT_EQ(Validate(softmax), "");
  EXPECT_GT(Tried(softmax).size(), 100U);
  Case simple = Linear(3, 7, 1);
  simple.relu = true;
  for (Tensor* tensor : {&simple.x, &simple.w}) std::ranges::fill(tensor->bytes(), uint8_t{1});
  EXPECT_GT(Tried(simple).size(), 100U);
}

// Without a scale of the output there is none to change.
TEST(RoundNumbers, OfACaseWithoutScalesNoneIsMade) {
  Case c = CaseOver(Op::kQuantize, Tensor(DType::kF32, {3, 0}), DType::kU8);
  c.per_channel = true;
  c.out_q = {{}, {}};
  c.relu = true;
  ASSERT_EQ(Validate(c), "");
  for (const Case& t : Tried(c)) EXPECT_TRUE(t.out_q.scale.empty());
}

// How many cases are made depends on their size: all of them cost about the same.
TEST(Restarts, OfALargeCaseFewerAreTried) {
  const auto tried = [](int64_t columns) {
    Case c = CaseOver(Op::kRescale, Tensor(DType::kU8, {1, columns}), DType::kU8);
    for (int64_t i = 0; i < columns; ++i) c.x.SetInt(i, 200);
    c.relu = true;
    c.out_min = 3;
    c.x_q = {{0.3f}, {77}};
    size_t count = 0;
    Restarts(c, {&Relu()}, nullptr, [&](const Case& asked) {
      count += asked.M == 1 && asked.N == columns;
      return false;
    });
    return count;
  };
  EXPECT_GT(tried(1), 1000U);
  const size_t large = tried(1024), larger = tried(5000);
  EXPECT_LE(large, 60'000U / 1025);
  EXPECT_LE(larger, 60'000U / 1025);
  EXPECT_GT(larger, 20U);
}

// Small cases of the same types are drawn besides.
TEST(Restarts, CasesAreDrawnOfTheSameTypesAndNotLarge) {
  Case c = Linear(3, 7, 8);
  c.relu = true;
  c.out_dtype = DType::kS8;
  OpenClamp(&c);
  size_t drawn = 0;
  Restarts(c, {&Relu()}, nullptr, [&](const Case& asked) {
    if (asked.M == c.M && asked.N == c.N) return false;
    ++drawn;
    EXPECT_EQ(asked.op, c.op);
    EXPECT_TRUE(asked.x.dtype() == c.x.dtype() && asked.w.dtype() == c.w.dtype() &&
                asked.out_dtype == c.out_dtype);
    EXPECT_LE(asked.x.size() + asked.w.size(), 1024);
    EXPECT_LE(asked.M * asked.N * std::max<int64_t>(asked.K, 1), 4096);
    return false;
  });
  EXPECT_GT(drawn, 8U);
}

}  // namespace
}  // namespace qualm::triage
