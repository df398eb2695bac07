// SPDX-License-Identifier: Apache-2.0
// What each pass offers, in which order, and that it ends with the candidate that is taken. A
// candidate that is missing here is a minimum that users read with a number too many; one in the
// wrong place costs calls.
#include "triage/passes.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "core/layer_test_util.h"
#include "core/slice.h"
#include "triage/passes_test_util.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

// The value with this many bits of mantissa behind the first; the rest is cut.
float CutTo(float value, int bits) {
  int exponent = 0;
  const float mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::trunc(std::ldexp(mantissa, bits + 1)), exponent - bits - 1);
}

// Codes 10, 11, ... of x and 1, 2, ... of w.
Case Linear(int64_t m, int64_t n, int64_t k, DType x = DType::kU8, DType w = DType::kS8) {
  Case c = ZeroLayer(m, n, k, x, w);
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(10 + i % 100));
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, static_cast<int32_t>(1 + i % 100));
  EXPECT_EQ(Validate(c), "");
  return c;
}

Case Pool(Op op, Window window, const std::vector<int32_t>& codes) {
  Case c;
  c.op = op;
  c.window = window;
  c.N = window.in_c;
  c.x = Tensor(DType::kU8, {window.batch, window.in_h, window.in_w, window.in_c});
  Set(c.x, codes);
  DeriveSizes(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

Case DynamicLinear(const std::vector<float>& x) {
  Case c = Linear(1, 1, std::ssize(x));
  c.op = Op::kDynamicLinear;
  c.x = Tensor::Of<float>({1, c.K}, x);
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

// --- Parameters ---------------------------------------------------------------------------------

TEST(ParametersPass, GoTogetherFirstAndThenOneByOne) {
  Case c = Linear(1, 6, 1);
  c.bias_i32 = {{1, 2, 3, 4, 5, 6}};
  c.relu = true;
  c.out_min = 10;
  c.out_max = 200;
  c.requant = Requant::kFloat32;
  c.per_channel = true;
  c.w_q.scale = {1, 2, 3, 4, 5, 6};
  c.w_q.zero_point = {1, 2, 3, 4, 5, 6};
  const auto of_channel = [](int32_t n) {
    return [n](Case& s) {
      s.per_channel = false;
      s.w_q.scale = {static_cast<float>(n + 1)};
      s.w_q.zero_point = {n + 1};
    };
  };
  ExpectOffers(kParameters, c,
               {[](Case& s) { s.bias_i32.reset(), s.relu = false, OpenClamp(&s); },
                [](Case& s) { s.requant = Requant::kExact; }, [](Case& s) { s.bias_i32.reset(); },
                [](Case& s) { s.relu = false; }, [](Case& s) { OpenClamp(&s); },
                [](Case& s) { s.out_min = 0; }, [](Case& s) { s.out_max = 255; }, of_channel(0),
                of_channel(1), of_channel(2), of_channel(3)});
}

TEST(ParametersPass, ThatAreTheSimplestAreNotOffered) {
  ExpectOffers(kParameters, Linear(1, 2, 1), {});
  Case bias = Linear(1, 2, 1);
  bias.bias = {{1, 2}};
  const Edit no_bias = [](Case& s) { s.bias.reset(), s.bias_i32.reset(); };
  ExpectOffers(kParameters, bias, {no_bias});
  Case bias_i32 = Linear(1, 2, 1);
  bias_i32.bias_i32 = {{1, 2}};
  ExpectOffers(kParameters, bias_i32, {no_bias});
  Case relu = Linear(1, 2, 1);
  relu.relu = true;
  const Edit no_relu = [](Case& s) { s.relu = false; };
  ExpectOffers(kParameters, relu, {no_relu});
  Case low = Linear(1, 2, 1);
  low.out_min = 1;
  ExpectOffers(kParameters, low, {[](Case& s) { OpenClamp(&s); }, [](Case& s) { s.out_min = 0; }});
  Case channels = Linear(1, 2, 1);
  channels.per_channel = true;
  channels.w_q = {{1, 2}, {3, 4}};
  ExpectCases(kParameters, channels,
              {slice::WithParamsOf(channels, 0, false), slice::WithParamsOf(channels, 1, false)});
}

// A fault of what follows the sums needs neither: they go in one step where they stand together.
TEST(ParametersPass, ABiasGoesTogetherWithWhatStandsBehindIt) {
  const Edit no_bias = [](Case& s) { s.bias.reset(), s.bias_i32.reset(); };
  for (const bool integers : {true, false}) {
    Case relu = Linear(1, 2, 1);
    if (integers) relu.bias_i32 = {{1, 2}};
    if (!integers) relu.bias = {{1, 2}};
    Case clamp = relu;
    relu.relu = true;
    ExpectOffers(
        kParameters, relu,
        {[&](Case& s) { no_bias(s), s.relu = false; }, no_bias, [](Case& s) { s.relu = false; }});
    clamp.out_max = 254;
    ExpectOffers(kParameters, clamp,
                 {[&](Case& s) { no_bias(s), OpenClamp(&s); }, no_bias,
                  [](Case& s) { OpenClamp(&s); }, [](Case& s) { s.out_max = 255; }});
  }
}

TEST(ParametersPass, ATableEndsAtTheRelu) {
  Case c = CaseOver(Op::kTable, Tensor(DType::kU8, {1, 2}), DType::kU8);
  c.function = Function::kLeakyRelu;
  c.negative_slope = 0.5f;
  ExpectOffers(kParameters, c, {[](Case& s) {
                 s.function = Function::kRelu;
                 s.negative_slope = Case().negative_slope;
               }});
}

Case Observed(const Observer& observer) {
  Case c;
  c.op = Op::kChooseQParams;
  c.M = 2, c.N = 1;
  c.x = Tensor(DType::kF32, {3, 2, 1});
  c.out_dtype = DType::kF32;
  c.observer = observer;
  OpenClamp(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

TEST(ObserverParametersPass, ChangeTheTypeWithItsRange) {
  const Case c = Observed({.kind = Observer::Kind::kHistogram,
                           .symmetric = true,
                           .dtype = DType::kS8,
                           .quant_min = -10,
                           .quant_max = 20});
  ExpectOffers(kObserverParameters, c,
               {[](Case& s) { s.observer = {}; },
                [](Case& s) {
                  s.observer.dtype = DType::kU8;
                  s.observer.quant_min = 0;
                  s.observer.quant_max = 255;
                },
                [](Case& s) {
                  s.observer.quant_min = -128;
                  s.observer.quant_max = 127;
                }});
  ExpectOffers(kObserverParameters, Observed({}), {});
  Case other = Linear(1, 1, 1);
  other.observer.symmetric = true;
  ExpectOffers(kObserverParameters, other, {});
}

TEST(AnyParameterPass, OffersTheSimplestOfEach) {
  Case c = Linear(1, 1, 1);
  c.relu = true;
  c.bias_i32 = {{3}};
  ExpectOffers(kAnyParameter, c,
               {[](Case& s) { s.bias_i32.reset(); }, [](Case& s) { s.relu = false; }});
  // Of an observer of s8 codes the simplest range is that of s8: with 0..255 it would not be valid.
  const Case observed =
      Observed({.symmetric = true, .dtype = DType::kS8, .quant_min = -10, .quant_max = 20});
  ExpectOffers(
      kAnyParameter, observed,
      {[](Case& s) { s.observer.symmetric = false; },
       [](Case& s) { s.observer.dtype = DType::kU8; }, [](Case& s) { s.observer.quant_min = -128; },
       [](Case& s) { s.observer.quant_max = 127; }});
}

// --- Outputs ------------------------------------------------------------------------------------

TEST(OutputsPass, FewerChannelsThenFewerRowsThenFewerBatches) {
  const Case c = Linear(2, 3, 1);
  ExpectCases(kOutputs, c, Cut(c, slice::Channels, kOfThree) + Cut(c, slice::Rows, kOfTwo));
  ExpectCases(kOutputs, Linear(1, 1, 1), {});
  const Case observed = Observed({});
  ExpectCases(kOutputs, observed,
              Cut(observed, slice::Rows, kOfTwo) + Cut(observed, slice::Batches, kOfThree));
  ExpectCases(kOutputs,
              slice::Batches(slice::Rows(observed, std::array{int64_t{0}}), std::array{int64_t{0}}),
              {});
}

// --- Terms --------------------------------------------------------------------------------------

Case FirstTerm(const Case& c) { return slice::Terms(c, std::array{int64_t{0}}); }

TEST(TermsPass, ABiasAtTheEndOfInt32WithOneProduct) {
  for (const DType w : {DType::kS8, DType::kU8}) {
    Case c = Linear(2, 2, 2, DType::kU8, w);
    c.x.SetInt(0, 0);
    c.w.SetInt(0, 0);
    c.bias_i32 = {{5, 6}};
    c.x_q.zero_point = {3};
    c.w_q.zero_point = {4};
    c.out_q.zero_point = {5};
    Cases expected;
    for (const int32_t sign : {1, -1}) {
      if (sign < 0 && w == DType::kU8) continue;  // has no code -1
      Case& simpler = expected.emplace_back(FirstTerm(c));
      Fill(simpler.x, 1);
      Fill(simpler.w, sign);
      simpler.bias_i32 = std::vector<int32_t>(2, sign > 0 ? INT32_MAX : INT32_MIN);
      simpler.x_q.zero_point = simpler.w_q.zero_point = simpler.out_q.zero_point = {0};
    }
    ExpectCases(kTerms, c,
                expected + Cases{FirstTerm(c), slice::Terms(c, std::array{int64_t{1}}),
                                 slice::Terms(c, std::array{int64_t{1}}), FirstTerm(c)});
  }
}

// Of an overflow the two boldest, then of one row the case whose bias holds the sums.
std::vector<int32_t> BiasThatHoldsTheSums(const Case& c) {
  const Cases offered = Offered(kTerms, c);
  for (const Case& candidate : offered) {
    bool zeros = candidate.K == 1 && candidate.x_q.zero_point_at(0) == 0;
    for (const Tensor* tensor : {&candidate.x, &candidate.w}) {
      for (int64_t i = 0; i < tensor->size(); ++i) zeros = zeros && tensor->IntAt(i) == 0;
    }
    if (!zeros) continue;
    EXPECT_EQ(candidate.w_q.zero_point_at(0), 0);
    EXPECT_EQ(candidate.out_q, c.out_q);
    return *candidate.bias_i32;
  }
  return {};
}

TEST(TermsPass, TheBiasTakesOverTheSumsOfOneRowThatFitIt) {
  Case c = Linear(1, 2, 2);  // x 10 11, w 1 2 and 3 4
  c.bias_i32 = {{100, -200}};
  c.x_q.zero_point = {10};
  c.w_q.zero_point = {1};
  c.out_q.zero_point = {7};
  EXPECT_EQ(BiasThatHoldsTheSums(c), (std::vector<int32_t>{100 + 1, -200 + 3}));
  Case rows = Linear(2, 2, 2);
  rows.bias_i32 = c.bias_i32;
  EXPECT_TRUE(BiasThatHoldsTheSums(rows).empty()) << "two rows have other sums";
  const auto with = [&](int32_t first, int32_t second) {
    Case edge = c;
    edge.bias_i32 = {{first, second}};
    return BiasThatHoldsTheSums(edge);
  };
  EXPECT_EQ(with(INT32_MAX - 1, INT32_MAX - 3), (std::vector<int32_t>{INT32_MAX, INT32_MAX}));
  EXPECT_TRUE(with(INT32_MAX, 0).empty()) << "the first sum is too large";
  EXPECT_TRUE(with(0, INT32_MAX - 2).empty()) << "the second sum is too large";
  Fill(c.w, 0);  // now the products are 0 and -1: the sums are 1 and 1 less than the bias
  EXPECT_EQ(with(INT32_MIN + 1, INT32_MIN + 1), (std::vector<int32_t>{INT32_MIN, INT32_MIN}));
  EXPECT_TRUE(with(INT32_MIN, 0).empty());
  EXPECT_TRUE(with(0, INT32_MIN).empty());
  Cases offered = Offered(kTerms, c);
  ExpectEndsWithTheOneTaken(kTerms, c, offered.size());
}

// Pairs 0, 2, 4 and so on of the terms, the worst first.
TEST(TermsPass, TheThreeWorstPairsOfEachOutputComeFirst) {
  Case c = Linear(1, 1, 11);
  Fill(c.x, 255);
  Set(c.w, {127, 10, 127, 127, -128, -127, 127, 11, 127, 12, 127});
  // Sums that leave int16: pair 0 by 2168, 2 by 32003, 4 by -32257, 6 by 2423, 8 by 2678.
  const Cases offered = Offered(kTerms, c);
  ASSERT_GE(offered.size(), 4U);
  EXPECT_EQ(offered[0], slice::Terms(c, std::array<int64_t, 2>{4, 5}));
  EXPECT_EQ(offered[1], slice::Terms(c, std::array<int64_t, 2>{2, 3}));
  EXPECT_EQ(offered[2], slice::Terms(c, std::array<int64_t, 2>{8, 9}));
  EXPECT_EQ(offered[3], slice::Terms(c, slice::Range(0, 6))) << "then halves";
  ExpectEndsWithTheOneTaken(kTerms, c, offered.size());
  // No pair saturates with codes of 1; with two terms alone the pair is all there is.
  Fill(c.x, 1);
  EXPECT_EQ(Offered(kTerms, c)[0], slice::Terms(c, slice::Range(0, 6)));
  Case two = Linear(1, 1, 2);
  Fill(two.x, 255);
  Fill(two.w, 127);
  ExpectCases(kTerms, two,
              {FirstTerm(two), slice::Terms(two, std::array{int64_t{1}}),
               slice::Terms(two, std::array{int64_t{1}}), FirstTerm(two)});
}

TEST(TermsPass, EveryOutputsPairsAreOffered) {
  Case c = Linear(2, 2, 6);
  Fill(c.x, 0);
  Fill(c.w, 127);
  // Row 0 saturates in its first pair, row 1 in its second.
  c.x.SetInt(0, 255), c.x.SetInt(1, 255);
  c.x.SetInt(8, 255), c.x.SetInt(9, 255);
  const Case first = slice::Terms(c, std::array<int64_t, 2>{0, 1});
  const Case second = slice::Terms(c, std::array<int64_t, 2>{2, 3});
  const Cases offered = Offered(kTerms, c);
  EXPECT_EQ(Cases(offered.begin(), offered.begin() + 4), (Cases{first, second, first, second}));
  // Of very many outputs only those of the first channel are looked at.
  Case many = Linear(13, 5, 3);
  Fill(many.x, 255);
  Fill(many.w, 127);
  const auto pairs = [](const Case& asked) {
    size_t count = 0;
    const Case pair = slice::Terms(asked, std::array<int64_t, 2>{0, 1});
    for (const Case& candidate : Offered(kTerms, asked)) {
      if (candidate != pair) break;
      ++count;
    }
    return count;
  };
  EXPECT_EQ(pairs(many), 13U + 1) << "and the first two terms, which are a half";
  EXPECT_EQ(pairs(slice::Rows(slice::Channels(many, std::array<int64_t, 4>{0, 1, 2, 3}),
                              slice::Range(0, 13))),
            52U + 1);
  Case limit = Linear(16, 4, 3);
  Fill(limit.x, 255);
  Fill(limit.w, 127);
  EXPECT_EQ(pairs(limit), 64U + 1);
}

TEST(TermsPass, OnlySumsHaveThem) {
  ExpectCases(kTerms, CaseOver(Op::kRescale, Tensor(DType::kU8, {2, 3}), DType::kU8), {});
  Case empty = Linear(1, 1, 0);
  empty.bias_i32 = {{7}};
  ExpectCases(kTerms, empty, {});
}

// --- LongSums -----------------------------------------------------------------------------------

struct LongSum {
  int64_t terms;
  int32_t x, w, last_x, last_w;
};
// Each number of terms with the ends of both types, with and without a last product of 1*1.
std::vector<LongSum> LongSumsOf(const std::vector<int64_t>& counts, std::array<int32_t, 2> high,
                                std::array<int32_t, 2> low) {
  std::vector<LongSum> list;
  for (const int64_t terms : counts) {
    for (const auto& [x, w] : {high, low}) {
      list.push_back({terms, x, w, 1, 1});
      list.push_back({terms, x, w, x, w});
    }
  }
  return list;
}
Cases LongSumsOver(const Case& c, const std::vector<LongSum>& sums) {
  Cases expected;
  for (const LongSum& sum : sums) {
    Case& s = expected.emplace_back(slice::Terms(c, slice::Range(0, sum.terms)));
    for (QParams* q : {&s.x_q, &s.w_q, &s.out_q}) q->zero_point = {0};
    for (int64_t i = 0; i < s.x.size(); ++i)
      s.x.SetInt(i, i % sum.terms == sum.terms - 1 ? sum.last_x : sum.x);
    for (int64_t i = 0; i < s.w.size(); ++i)
      s.w.SetInt(i, i % sum.terms == sum.terms - 1 ? sum.last_w : sum.w);
  }
  return expected;
}

TEST(LongSumsPass, AreAPowerOfTwoLongOneMoreOrHalfMore) {
  Case c = Linear(2, 2, 40);
  c.x_q.zero_point = {3};
  c.w_q.zero_point = {4};
  c.out_q.zero_point = {5};
  ExpectCases(kLongSums, c,
              LongSumsOver(c, LongSumsOf({16, 17, 24, 32, 33}, {255, 127}, {255, -128})));
  c = Linear(1, 1, 33, DType::kS8, DType::kU8);
  ExpectCases(kLongSums, c, LongSumsOver(c, LongSumsOf({16, 17, 24, 32}, {127, 255}, {-128, 255})));
  ExpectCases(kLongSums, Linear(1, 1, 16), {});
  ExpectCases(kLongSums, CaseOver(Op::kRescale, Tensor(DType::kU8, {1, 100}), DType::kU8), {});
  ExpectCases(kLongSums, DynamicLinear(std::vector<float>(40, 1)), {});
}

// An average of seven taps of a window that has one channel.
TEST(LongSumsPass, OfAWindowAreItsTaps) {
  for (const Op op : {Op::kAvgPool, Op::kGlobalAvgPool, Op::kMaxPool}) {
    const Case c =
        Pool(op, {.batch = 1, .in_h = 7, .in_w = 1, .in_c = 1, .kernel_h = 7, .kernel_w = 1},
             {1, 2, 3, 4, 5, 6, 7});
    Cases expected;
    for (const int64_t taps : {2, 3, 3, 4, 5, 6}) {
      for (int pair = 0; pair < 2 && op != Op::kMaxPool; ++pair) {
        for (const bool odd : {true, false}) {
          Case& s = expected.emplace_back(LineTaps(c, slice::Range(0, taps)));
          Fill(s.x, 255);
          if (odd) s.x.SetInt(taps - 1, 1);
        }
      }
    }
    ExpectCases(kLongSums, c, expected);
  }
  const Window two_channels{
      .batch = 1, .in_h = 3, .in_w = 1, .in_c = 2, .kernel_h = 3, .kernel_w = 1};
  ExpectCases(kLongSums, Pool(Op::kAvgPool, two_channels, {1, 2, 3, 4, 5, 6}), {});
  const Window padded{
      .batch = 1, .in_h = 2, .in_w = 1, .in_c = 1, .kernel_h = 3, .kernel_w = 1, .pad_top = 1};
  ExpectCases(kLongSums, Pool(Op::kAvgPool, padded, {1, 2}), {});
}

TEST(LongSumsPass, ATapOfAConvolutionHasTheProductsOfItsChannels) {
  Case c;
  c.op = Op::kConv2d;
  c.window = {.batch = 1, .in_h = 1, .in_w = 3, .in_c = 2, .kernel_h = 1, .kernel_w = 3};
  c.N = 1;
  c.x = Tensor(DType::kU8, {1, 1, 3, 2});
  c.w = Tensor(DType::kS8, {1, 1, 3, 2});
  Set(c.x, {1, 2, 3, 4, 5, 6});
  Set(c.w, {1, 2, 3, 4, 5, 6});
  DeriveSizes(&c);
  ASSERT_EQ(Validate(c), "");
  Cases expected;
  for (const int32_t w : {127, -128}) {
    for (const bool odd : {true, false}) {
      Case& s = expected.emplace_back(c);
      s.window.in_h = s.window.kernel_h = 2;
      s.window.in_w = s.window.kernel_w = 1;
      s.x = Tensor(DType::kU8, {1, 2, 1, 2});
      s.w = Tensor(DType::kS8, {1, 2, 1, 2});
      Set(s.x, {255, 255, 255, odd ? 1 : 255});
      Set(s.w, {w, w, w, odd ? 1 : w});
      DeriveSizes(&s);
    }
  }
  ExpectCases(kLongSums, c, expected);
}

// --- Codes --------------------------------------------------------------------------------------

TEST(ZeroCodesPass, ClearsBlocksAndThenSingleCodes) {
  Case c = Linear(1, 1, 5);
  Set(c.x, {1, 0, 3, 4, 0});
  Set(c.w, {0, 0, 0, 9, 0});
  const auto clear = [](Tensor Case::* field, int64_t from, int64_t to) {
    return [=](Case& s) {
      for (int64_t i = from; i < to; ++i) (s.*field).SetInt(i, 0);
    };
  };
  // Blocks of 5, of 2 and of 1; none that are 0 already.
  ExpectOffers(kZeroCodes, c,
               {clear(&Case::x, 0, 5), clear(&Case::x, 0, 2), clear(&Case::x, 2, 4),
                clear(&Case::x, 0, 1), clear(&Case::x, 2, 3), clear(&Case::x, 3, 4),
                clear(&Case::w, 0, 5), clear(&Case::w, 2, 4), clear(&Case::w, 3, 4)});
}

// How many candidates change one code of x alone, and one of w, of a row of `count` products.
std::pair<int, int> SingleCodesOf(int64_t count, const std::vector<int32_t>& x,
                                  const std::vector<int32_t>& w) {
  Case c = Linear(1, 1, count);
  for (int64_t i = 0; i < count; ++i) {
    c.x.SetInt(i, x[static_cast<size_t>(i) % x.size()]);
    c.w.SetInt(i, w[static_cast<size_t>(i) % w.size()]);
  }
  std::pair<int, int> single;
  for (const Case& candidate : Offered(kZeroCodes, c)) {
    int64_t x_differ = 0, w_differ = 0;
    for (int64_t i = 0; i < count; ++i) {
      x_differ += candidate.x.IntAt(i) != c.x.IntAt(i);
      w_differ += candidate.w.IntAt(i) != c.w.IntAt(i);
    }
    single.first += x_differ == 1;
    single.second += w_differ == 1;
  }
  return single;
}

TEST(ZeroCodesPass, OfALongRowOneOfManyEqualProductsIsCleared) {
  const auto codes = [](int x, int w) { return std::pair(x, w); };
  EXPECT_EQ(SingleCodesOf(128, {7}, {5}), codes(128, 128)) << "128 are not many";
  EXPECT_EQ(SingleCodesOf(130, {7}, {5}), codes(1, 1));
  EXPECT_EQ(SingleCodesOf(150, {7, 8}, {5}), codes(2, 2)) << "other factors make other products";
  EXPECT_EQ(SingleCodesOf(150, {7, 8}, {5, 6, 9}), codes(6, 6));
  EXPECT_EQ(SingleCodesOf(150, {7, 0, 0, 8, 9}, {5}), codes(3, 4))
      << "what is 0 already is not cleared";
}

TEST(ZeroCodesPass, OfALongRowNoMoreThan64BlocksAreCleared) {
  Case c = Linear(1, 1, 256);
  Fill(c.x, 7);
  Fill(c.w, 0);
  // 1, 2, 4 ... 64 blocks, and then one code for all.
  EXPECT_EQ(Offered(kZeroCodes, c).size(), 127U + 1);
  ExpectEndsWithTheOneTaken(kZeroCodes, c, 128);
}

TEST(ZeroCodesPass, OfALongRowWithoutAFactorForEachCodeEachValueIsClearedOnce) {
  Case c = Linear(2, 1, 100);
  for (int64_t i = 0; i < 200; ++i) c.x.SetInt(i, 1 + static_cast<int32_t>(i % 2));
  for (int64_t i = 0; i < 100; ++i) c.w.SetInt(i, static_cast<int32_t>(i % 7));
  int64_t single = 0;
  for (const Case& candidate : Offered(kZeroCodes, c)) {
    int64_t differ = 0;
    for (int64_t i = 0; i < 200; ++i) differ += candidate.x.IntAt(i) != c.x.IntAt(i);
    single += differ == 1;
  }
  EXPECT_EQ(single, 2);
}

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

// The first code of x and of w in each candidate.
Pairs FirstCodes(const Cases& cases) {
  Pairs pairs;
  for (const Case& c : cases) pairs.emplace_back(c.x.IntAt(0), c.w.empty() ? 0 : c.w.IntAt(0));
  return pairs;
}

TEST(UniformCodesPass, SmallNumbersWithPlusBeforeMinusAndWithoutZeroPointsFirst) {
  Case c = Linear(1, 1, 2, DType::kS8, DType::kS8);
  Set(c.x, {50, 0});
  Set(c.w, {0, 60});
  c.x_q.zero_point = {5};
  Case marked = c;
  marked.w.SetInt(0, 60);  // a w whose first code tells
  Cases offered = Offered(kUniformCodes, marked);
  constexpr size_t kCodes = 11;  // of s8: 1, 2, 16, 100, 127 with both signs, and -128
  ASSERT_EQ(offered.size(), 2 * kCodes * kCodes);
  const Pairs pairs = FirstCodes(offered);
  EXPECT_EQ(Pairs(pairs.begin(), pairs.begin() + 12), (Pairs{{1, 1},
                                                             {-1, 1},
                                                             {1, -1},
                                                             {-1, -1},
                                                             {1, 2},
                                                             {2, 1},
                                                             {-2, 1},
                                                             {-1, 2},
                                                             {1, -2},
                                                             {2, -1},
                                                             {-2, -1},
                                                             {-1, -2}}));
  const std::set<std::pair<int32_t, int32_t>> all(pairs.begin(), pairs.end());
  EXPECT_EQ(all.size(), kCodes * kCodes);
  EXPECT_TRUE(all.contains({127, -128}));
  for (size_t i = 0; i < offered.size(); ++i)
    EXPECT_EQ(offered[i].x_q.zero_point_at(0), i < kCodes * kCodes ? 0 : 5);
  offered = Offered(kUniformCodes, c);
  EXPECT_EQ(offered[0].x.IntAt(1), 0) << "what is 0 stays 0";
  EXPECT_EQ(offered[0].w.IntAt(0), 0);
  EXPECT_EQ(offered[0].w.IntAt(1), 1);
  ExpectEndsWithTheOneTaken(kUniformCodes, c, offered.size());
}

TEST(UniformCodesPass, OfCodesWithoutASignAreTheElevenRoundNumbers) {
  Case c = CaseOver(Op::kRescale, Tensor(DType::kU8, {1, 1}), DType::kU8);
  c.x.SetInt(0, 50);
  EXPECT_EQ(FirstCodes(Offered(kUniformCodes, c)),
            (Pairs{{1, 0},   {2, 0},   {16, 0},  {100, 0}, {127, 0}, {128, 0}, {129, 0}, {130, 0},
                   {132, 0}, {140, 0}, {255, 0}, {1, 0},   {2, 0},   {16, 0},  {100, 0}, {127, 0},
                   {128, 0}, {129, 0}, {130, 0}, {132, 0}, {140, 0}, {255, 0}}));
  c.x.SetInt(0, 1);
  EXPECT_EQ(Offered(kUniformCodes, c).size(), 20U) << "the case itself is not offered";
  Case add = CaseOver(Op::kAdd, Tensor(DType::kU8, {1, 1}), DType::kU8);
  add.x.SetInt(0, 50);
  add.w = add.x;
  const Cases offered = Offered(kUniformCodes, add);
  EXPECT_EQ(offered.size(), 242U);
  EXPECT_EQ(offered[1].w.IntAt(0), 2);
  EXPECT_TRUE(Offered(kUniformCodes, DynamicLinear({1, 2})).empty());
}

TEST(CodesPass, OfIntegersAreHalvedThenLessReducedThenNegated) {
  Case c = Linear(1, 1, 4, DType::kU8, DType::kS8);
  Set(c.x, {0, 100, 0, 1});
  Set(c.w, {-100, 0, 0, -128});
  const auto code = [](Tensor Case::* field, int64_t i, int32_t value) {
    return [=](Case& s) { (s.*field).SetInt(i, value); };
  };
  ExpectOffers(kCodes, c,
               {code(&Case::x, 1, 50), code(&Case::x, 1, 75), code(&Case::x, 1, 94),
                code(&Case::x, 1, 99), code(&Case::x, 3, 0), code(&Case::x, 3, 0),
                code(&Case::w, 0, -50), code(&Case::w, 0, -75), code(&Case::w, 0, -94),
                code(&Case::w, 0, -99), code(&Case::w, 0, 100), code(&Case::w, 3, -64),
                code(&Case::w, 3, -96), code(&Case::w, 3, -120), code(&Case::w, 3, -127)});
  Set(c.w, {-127, 0, 0, 0});
  EXPECT_EQ(Offered(kCodes, c).back().w.IntAt(0), 127) << "the largest code is a code";
}

TEST(CodesPass, OfALongTensorTheFirst64AreTried) {
  Case c = Linear(1, 1, 66);
  Fill(c.w, 0);
  Fill(c.x, 0);
  c.x.SetInt(63, 1);
  EXPECT_EQ(Offered(kCodes, c).size(), 2U);
  c.x.SetInt(64, 1);
  EXPECT_EQ(Offered(kCodes, c).size(), 2U);
}

TEST(CodesPass, OfFloatsAreOneThenWithFewerBitsOfMantissa) {
  const float value = 5.7182817f;  // 1.4295704 * 4
  Case c = DynamicLinear({value});
  Fill(c.w, 0);
  Edits edits;
  for (const float smaller :
       {1.0f, -1.0f, 5.0f, 4.0f, 5.0f, CutTo(value, 6), CutTo(value, 12), value / 2})
    edits.push_back([=](Case& s) { s.x.as<float>()[0] = smaller; });
  ExpectOffers(kCodes, c, edits);
  Case two = DynamicLinear({value, 1});
  Fill(two.w, 0);
  edits.push_back([](Case& s) { s.x.as<float>()[1] = -1; });
  edits.push_back([](Case& s) { s.x.as<float>()[1] = 0.5f; });
  ExpectOffers(kCodes, two, edits);
  Case one = DynamicLinear({0, 1});
  Fill(one.w, 0);
  ExpectOffers(
      kCodes, one,
      {[](Case& s) { s.x.as<float>()[1] = -1; }, [](Case& s) { s.x.as<float>()[1] = 0.5f; }});
}

// --- Zero points --------------------------------------------------------------------------------

Edit ZeroPoint(QParams Case::* q, const std::vector<int32_t>& values) {
  return [=](Case& s) { (s.*q).zero_point = values; };
}

TEST(ZeroPointsPass, AllAreClearedThenEachThenHalvedThenOneLess) {
  Case c = Linear(1, 3, 1);
  c.per_channel = true;
  c.x_q.zero_point = {-5};
  c.w_q = {{1, 1, 1}, {3, 0, -4}};
  c.out_q.zero_point = {7};
  ExpectOffers(
      kZeroPoints, c,
      {[](Case& s) {
         s.x_q.zero_point = s.out_q.zero_point = {0};
         s.w_q.zero_point = {0, 0, 0};
       },
       ZeroPoint(&Case::w_q, {0, 0, -4}), ZeroPoint(&Case::w_q, {3, 0, 0}),
       ZeroPoint(&Case::x_q, {0}), ZeroPoint(&Case::w_q, {0, 0, 0}), ZeroPoint(&Case::out_q, {0}),
       ZeroPoint(&Case::x_q, {-2}), ZeroPoint(&Case::x_q, {-4}), ZeroPoint(&Case::w_q, {1, 0, -2}),
       ZeroPoint(&Case::w_q, {2, 0, -3}), ZeroPoint(&Case::out_q, {3}),
       ZeroPoint(&Case::out_q, {6})});
  ExpectOffers(kZeroPoints, Linear(1, 1, 1), {});
  Case one = Linear(1, 1, 1);
  one.w_q.zero_point = {9};
  ExpectOffers(kZeroPoints, one,
               {ZeroPoint(&Case::w_q, {0}), ZeroPoint(&Case::w_q, {0}), ZeroPoint(&Case::w_q, {4}),
                ZeroPoint(&Case::w_q, {8})});
}

TEST(ZeroPointsPass, OfAMaxPoolStayEqual) {
  const Window window{.batch = 1, .in_h = 1, .in_w = 1, .in_c = 1};
  for (const int32_t zero : {8, -8}) {
    Case c = Pool(Op::kMaxPool, window, {9});
    c.x_q.zero_point = c.out_q.zero_point = {zero};
    const auto both = [](int32_t value) {
      return [=](Case& s) { s.x_q.zero_point = s.out_q.zero_point = {value}; };
    };
    ExpectOffers(kZeroPoints, c, {both(0), both(zero / 2), both(zero > 0 ? 7 : -7)});
  }
}

TEST(ZeroPointsPass, OfManyChannelsTheFirst64AreClearedAlone) {
  Case c = Linear(1, 66, 1);
  c.per_channel = true;
  c.w_q = {std::vector<float>(66, 1), std::vector<int32_t>(66, 2)};
  size_t alone = 0;
  for (const Case& candidate : Offered(kZeroPoints, c)) {
    size_t cleared = 0;
    for (const int32_t zero : candidate.w_q.zero_point) cleared += zero == 0;
    alone += cleared == 1;
  }
  EXPECT_EQ(alone, 64U);
}

// --- Scales and biases --------------------------------------------------------------------------

Edit AllScales(float x, float w, float out) {
  return [=](Case& s) {
    s.x_q.scale.assign(s.x_q.scale.size(), x);
    s.w_q.scale.assign(s.w_q.scale.size(), w);
    s.out_q.scale.assign(s.out_q.scale.size(), out);
  };
}
Edit Scale(QParams Case::* q, std::vector<float> scale) {
  return [=](Case& s) { (s.*q).scale = scale; };
}

TEST(ScalesPass, OneThenPowersOfTwoThenShortMantissas) {
  Case c = CaseOver(Op::kAdd, Tensor(DType::kU8, {1, 1}), DType::kU8);
  c.w = c.x;
  const float x = 0.3f, w = 0.7f, out = 0.9f;
  c.x_q.scale = {x};
  c.w_q.scale = {w};
  c.out_q.scale = {out};
  const double ratio = double{out} / (double{x} * w);  // 4.29
  Edits edits{AllScales(1, 1, 1), AllScales(1, 1, 4), AllScales(1, 1, 8), AllScales(1, 1, 2)};
  for (const int bits : {1, 2, 4, 8, 12, 23})
    edits.push_back(AllScales(1, 1, CutTo(static_cast<float>(ratio), bits)));
  edits.push_back(Scale(&Case::x_q, {1}));
  edits.push_back(Scale(&Case::out_q, {1}));
  for (const int bits : {0, 1, 2, 4, 8, 12}) {
    edits.push_back(Scale(&Case::x_q, {CutTo(x, bits)}));
    edits.push_back(Scale(&Case::w_q, {CutTo(w, bits)}));
    edits.push_back(Scale(&Case::out_q, {CutTo(out, bits)}));
  }
  ExpectOffers(kScales, c, edits);
}

TEST(ScalesPass, ARatioThatNoFloatHoldsIsOfferedAsTheNearestOne) {
  Case c = CaseOver(Op::kAdd, Tensor(DType::kU8, {1, 1}), DType::kU8);
  c.w = c.x;
  c.x_q.scale = c.w_q.scale = {0x1p-120f};
  const Cases large = Offered(kScales, c);
  EXPECT_EQ(large[1].out_q.scale[0], 0x1p127f);
  c.x_q.scale = c.w_q.scale = {0x1p120f};
  const Cases small = Offered(kScales, c);
  EXPECT_EQ(small[1].out_q.scale[0], 0x1p-126f);
  for (const Cases* offered : {&large, &small}) {
    size_t valid = 0;
    for (const Case& candidate : *offered) valid += Validate(candidate).empty();
    EXPECT_GE(valid, offered->size() - 1) << "twice the largest power of two is no scale";
  }
}

TEST(ScalesPass, OfChannelsEachAlone) {
  Case c = Linear(1, 2, 1);
  c.per_channel = true;
  c.w_q = {{3, 1}, {0, 0}};
  c.out_q.scale = {3};
  c.op = Op::kConv2d;  // the same without the round codes of linear
  c.window = {.batch = 1, .in_h = 1, .in_w = 1, .in_c = 1};
  c.x = Tensor(DType::kU8, {1, 1, 1, 1});
  c.w = Tensor(DType::kS8, {2, 1, 1, 1});
  DeriveSizes(&c);
  ASSERT_EQ(Validate(c), "");
  // The ratio of the first channel is 1.
  Edits edits{AllScales(1, 1, 1), AllScales(1, 1, 1), AllScales(1, 1, 2), AllScales(1, 1, 0.5f)};
  for (int i = 0; i < 6; ++i) edits.push_back(AllScales(1, 1, 1));
  edits.push_back(Scale(&Case::w_q, {1, 1}));
  edits.push_back(Scale(&Case::w_q, {2, 1}));
  edits.push_back(Scale(&Case::w_q, {2, 1}));
  edits.push_back(Scale(&Case::w_q, {3, 2}));
  edits.push_back(Scale(&Case::out_q, {1}));
  edits.push_back(Scale(&Case::out_q, {2}));
  ExpectOffers(kScales, c, edits);
  c.per_channel = false;
  c.w_q = {{3}, {0}};
  const Cases of_one = Offered(kScales, c);
  EXPECT_EQ(of_one.size(), 4U + 6 + 1 + 2) << "one channel has no channels to try alone";
}

TEST(ScalesPass, OfManyChannelsTheFirst64AreTriedAlone) {
  Case c = Linear(1, 66, 1);
  c.per_channel = true;
  c.w_q = {std::vector<float>(66, 4), std::vector<int32_t>(66, 0)};
  size_t alone = 0;
  for (const Case& candidate : Offered(kScales, c)) {
    size_t changed = 0;
    for (const float scale : candidate.w_q.scale) changed += scale != 4;
    alone += changed == 1;
  }
  EXPECT_EQ(alone, 64U * 2) << "1 and 2; 4 is its own mantissa";
}

// With the given codes no power of two may fail as the scale of the output.
TEST(ScalesPass, OfLinearComeWithRoundCodes) {
  Case c = Linear(1, 1, 1);
  c.x.SetInt(0, 50);
  c.out_q.scale = {3};
  const Cases offered = Offered(kScales, c);
  // 1 and 4, 8, 2, then 121 pairs of codes with 4 and with 8, then the mantissas of 3.
  ASSERT_GE(offered.size(), 4U + 242);
  for (size_t i = 0; i < 242; ++i) {
    const Case& s = offered[4 + i];
    ASSERT_EQ(s.out_q.scale[0], i < 121 ? 4 : 8);
    ASSERT_EQ(s.x_q.scale[0], 1);
    ASSERT_EQ(s.w_q.scale[0], 1);
  }
  EXPECT_EQ(FirstCodes({offered[4]}), (Pairs{{1, 1}}));
  EXPECT_EQ(FirstCodes({offered[5]}), (Pairs{{1, -1}}));
  EXPECT_EQ(FirstCodes({offered[4 + 120]}), (Pairs{{255, -128}}));
  ExpectEndsWithTheOneTaken(kScales, c, offered.size());
  c.out_q.scale = {4};
  for (const Case& candidate : Offered(kScales, c)) EXPECT_EQ(candidate.x, c.x);
  c.out_q.scale = {3};
  c.x_q.scale = {1.5f};
  EXPECT_EQ(Offered(kScales, c)[4].x_q.scale[0], 1);
  c.x_q.scale = {1};
  c.w_q.scale = {1.5f};
  EXPECT_EQ(Offered(kScales, c)[4].w_q.scale[0], 1);
}

TEST(ScalesPass, OfACaseWithoutChannelsThereAreNone) {
  Case linear = Linear(1, 0, 1);
  linear.per_channel = true;
  linear.w_q = {{}, {}};
  ASSERT_EQ(Validate(linear), "");
  ExpectCases(kScales, linear, {});
  for (const Op op : {Op::kQuantize, Op::kDequantize}) {
    const bool quantizes = op == Op::kQuantize;
    Case c = CaseOver(op, Tensor(quantizes ? DType::kF32 : DType::kU8, {1, 0}),
                      quantizes ? DType::kU8 : DType::kF32);
    c.per_channel = true;
    ChannelQParams(c) = {{}, {}};
    ASSERT_EQ(Validate(c), "");
    ExpectCases(kScales, c, {});
  }
}

TEST(ScalesPass, OfACastTheNumbersTakeTheScalesIn) {
  Case c =
      CaseOver(Op::kCast, Tensor::Of<float>({1, 1}, std::vector<float>{120}), DType::kF8E4M3FN);
  c.out_q.scale = {0.25f};
  Case plain = c;
  plain.out_q = QParams{};
  plain.x.as<float>()[0] = 480;
  const Cases offered = Offered(kScales, c);
  ASSERT_FALSE(offered.empty());
  EXPECT_EQ(offered.front(), plain);
}

TEST(ScalesPass, MultipliersBecomeOneOrLoseTheirMantissa) {
  Case c = CaseOver(Op::kRequantize, Tensor(DType::kS32, {1, 2}), DType::kU8);
  c.per_channel = true;
  c.multiplier = {0.3f, 1};
  ASSERT_EQ(Validate(c), "");
  const auto multiplier = [](float m) { return [=](Case& s) { s.multiplier[0] = m; }; };
  Edits edits{AllScales(1, 1, 2), AllScales(1, 1, 0.5f), multiplier(1)};
  for (const int bits : {0, 1, 2, 4, 8, 12}) edits.push_back(multiplier(CutTo(0.3f, bits)));
  ExpectOffers(kScales, c, edits);
}

TEST(BiasesPass, GoTowardsZeroOneByOne) {
  Case c = Linear(1, 4, 1);
  c.bias_i32 = {{100, -100, 0, 1}};
  const auto integer = [](size_t i, int32_t value) {
    return [=](Case& s) { (*s.bias_i32)[i] = value; };
  };
  Edits edits;
  for (const int32_t value : {0, 50, 94, 99}) edits.push_back(integer(0, value));
  for (const int32_t value : {0, -50, -94, -99}) edits.push_back(integer(1, value));
  edits.push_back(integer(2, 1));  // not simpler: the order of cases refuses it
  for (int i = 0; i < 3; ++i) edits.push_back(integer(3, 0));
  ExpectOffers(kBiases, c, edits);
  c.bias_i32.reset();
  c.bias = {{0, 5.7182817f, 1, 0}};
  const auto real = [](size_t i, float value) { return [=](Case& s) { (*s.bias)[i] = value; }; };
  ExpectOffers(kBiases, c,
               {real(0, 1), real(1, 0), real(1, 1), real(1, 4), real(1, CutTo(5.7182817f, 4)),
                real(2, 0), real(3, 1)});
  c.bias.reset();
  ExpectOffers(kBiases, c, {});
}

}  // namespace
}  // namespace qualm::triage
