// SPDX-License-Identifier: Apache-2.0
// The order "simpler than", the descent in it, and what other channels or rows have to do with an
// output.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/layer_test_util.h"
#include "core/slice.h"
#include "properties/gen/gen.h"
#include "properties/test_subject.h"
#include "triage/complexity.h"
#include "triage/influence.h"
#include "triage/passes.h"
#include "triage/reduce.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

// --- Complexity ---------------------------------------------------------------------------------

using Numbers = std::vector<int64_t>;

TEST(Complexity, CountsInTheOrderOfThePage) {
  // parameters, outputs, rows, terms, x, window, not zero, zero points, scales, codes, biases. The
  // window of an operation that has none is five ones.
  EXPECT_EQ(Complexity(ZeroLayer(2, 3, 4)), (Numbers{0, 6, 2, 4, 0, 5, 0, 0, 0, 0, 0}));
  const auto change = [](size_t at, int64_t by, const std::function<void(Case&)>& edit) {
    Case c = ZeroLayer(2, 3, 4);
    Numbers expected = Complexity(c);
    expected[at] += by;
    edit(c);
    EXPECT_EQ(Complexity(c), expected) << at << " " << by;
  };
  change(0, 1, [](Case& c) { c.relu = true; });
  change(0, 1, [](Case& c) { c.per_channel = true; });
  change(0, 1, [](Case& c) { c.out_min = 1; });
  change(0, 1, [](Case& c) { c.out_max = 254; });
  change(0, static_cast<int64_t>(Requant::kFixedQ31),
         [](Case& c) { c.requant = Requant::kFixedQ31; });
  change(8, 2 * 512 + 1, [](Case& c) { c.x_q.scale = {2.5f}; });  // 1.25 * 2: two bits of mantissa
  change(8, 3, [](Case& c) { c.w_q.scale = {8}; });
  change(8, 3, [](Case& c) { c.out_q.scale = {0.125f}; });
  change(8, 1 + 23 * 512, [](Case& c) { c.out_q.scale = {std::nextafter(0.5f, 1.0f)}; });
  const auto bias = [](int64_t by, const std::function<void(Case&)>& edit) {
    Case c = ZeroLayer(2, 3, 4);
    edit(c);
    EXPECT_EQ(Complexity(c), (Numbers{1, 6, 2, 4, 0, 5, 0, 0, 0, 0, by}));
  };
  bias(7 + 3, [](Case& c) { c.bias_i32 = {{-7, 0, 3}}; });
  bias(1 + 1 + 2, [](Case& c) { c.bias = {{-1, 0, 4}}; });
  const auto zero_points = [](QParams Case::* q, const std::vector<int32_t>& zeros, int64_t nonzero,
                              int64_t sum) {
    Case c = ZeroLayer(2, 3, 4);
    (c.*q).zero_point = zeros;
    EXPECT_EQ(Complexity(c), (Numbers{0, 6, 2, 4, 0, 5, nonzero, sum, 0, 0, 0}));
  };
  zero_points(&Case::x_q, {-5}, 1, 5);
  zero_points(&Case::w_q, {3, 0, -4}, 2, 7);
  zero_points(&Case::out_q, {INT32_MIN}, 1, int64_t{1} << 31);
  Case codes = ZeroLayer(2, 3, 4);
  codes.x.SetInt(7, 9);
  codes.w.SetInt(0, -9);  // of two codes of one size the one above 0 is simpler
  codes.w.SetInt(11, 1);
  EXPECT_EQ(Complexity(codes), (Numbers{0, 6, 2, 4, 0, 5, 3, 0, 0, 9 + 10 + 1, 0}));
}

TEST(Complexity, OfFloatsAndWindowsAndMultipliers) {
  Case floats = CaseOver(Op::kQuantize, Tensor::Of<float>({1, 4}, std::vector<float>{0, 1, -1, 4}),
                         DType::kU8);
  EXPECT_EQ(Complexity(floats), (Numbers{0, 4, 1, 0, 0, 5, 3, 0, 0, 1 + 2 + 3, 0}));
  Case requantize = CaseOver(Op::kRequantize, Tensor(DType::kS32, {1, 1}), DType::kU8);
  requantize.multiplier = {0.5f, 1};
  EXPECT_EQ(Complexity(requantize), (Numbers{0, 1, 1, 0, 0, 5, 0, 0, 1, 0, 0}))
      << "a multiplier is a scale, no parameter";
  Case pool;
  pool.op = Op::kMaxPool;
  pool.N = 2;
  pool.window = {.batch = 1, .in_h = 4, .in_w = 4, .in_c = 2};
  pool.x = Tensor(DType::kU8, {1, 4, 4, 2});
  DeriveSizes(&pool);
  const Numbers simplest = Complexity(pool);
  EXPECT_EQ(simplest[0], 0);
  EXPECT_EQ(simplest[4], 32) << "a window sees more of x than it has outputs";
  pool.window.pad_top = 1;
  pool.window.kernel_h = 2;
  DeriveSizes(&pool);
  const Numbers padded = Complexity(pool);
  EXPECT_EQ(padded[0], 1) << "a size is no parameter";
  EXPECT_EQ(padded[5], simplest[5] + 1);
  Case observer;
  observer.op = Op::kChooseQParams;
  observer.M = 2;
  observer.N = 3;
  observer.x = Tensor(DType::kF32, {1, 2, 3});
  observer.out_dtype = DType::kF32;
  OpenClamp(&observer);
  EXPECT_EQ(Complexity(observer)[4], 6);
}

TEST(Complexity, TheSameSizeIsTheFirstFourNumbers) {
  const Case c = ZeroLayer(2, 3, 4);
  EXPECT_TRUE(SameSize(c, c));
  Case codes = c;
  codes.x.SetInt(0, 9);
  codes.x_q.zero_point = {8};
  codes.x_q.scale = {0.3f};
  EXPECT_TRUE(SameSize(c, codes));
  Case relu = c;
  relu.relu = true;
  EXPECT_FALSE(SameSize(c, relu));
  EXPECT_FALSE(SameSize(c, ZeroLayer(2, 3, 5)));
  EXPECT_FALSE(SameSize(c, ZeroLayer(3, 2, 4))) << "as many outputs, more rows";
  EXPECT_FALSE(SameSize(c, ZeroLayer(2, 4, 4)));
}

// --- Reduce -------------------------------------------------------------------------------------

TEST(Reduce, GoesDownToTheSmallestCaseThatHolds) {
  const Case c = ZeroLayer(6, 7, 9);
  Case wide = c;
  wide.x.SetInt(3, 200);
  wide.relu = true;
  int64_t asked = 0;
  const Holds holds = [&](const Case& candidate) {
    ++asked;
    EXPECT_EQ(Validate(candidate), "");
    EXPECT_LT(Complexity(candidate), Complexity(wide));
    return candidate.M >= 2 && candidate.K >= 3 && candidate.N >= 1;
  };
  const Case small = Reduce(wide, holds, 10'000);
  EXPECT_EQ(small.M, 2);
  EXPECT_EQ(small.N, 1);
  EXPECT_EQ(small.K, 3);
  EXPECT_EQ(small, ZeroLayer(2, 1, 3));
  EXPECT_GT(asked, 5);
}

TEST(Reduce, AsksAtMostSoOften) {
  for (const int64_t most : {0, 1, 2, 7}) {
    int64_t asked = 0;
    Reduce(ZeroLayer(6, 7, 9), [&](const Case&) { return ++asked, true; }, most);
    EXPECT_EQ(asked, most);
  }
}

TEST(Reduce, OffersNoCaseTwiceAndNothingThatIsNotSimplerOrNotValid) {
  Reduction reduction;
  static int offers;
  offers = 0;
  const Pass offer = [](const Case& c, const Visit& visit) {
    Case more = c;
    more.relu = true;
    Case invalid = ZeroLayer(c.M, c.N, c.K - 1);
    invalid.K = 77;
    for (const Case& candidate : {c, more, invalid, ZeroLayer(c.M, c.N, c.K - 1)}) {
      ++offers;
      if (visit(candidate)) return;
    }
  };
  const Case c = ZeroLayer(1, 1, 5);
  int64_t asked = 0;
  const auto never = [] { return false; };
  const auto step = [&](bool holds) {
    return reduction.Step(
        offer, c,
        [&](const Case& candidate) {
          EXPECT_EQ(candidate.K, 4);
          return ++asked, holds;
        },
        never);
  };
  EXPECT_FALSE(step(false));
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(offers, 4);
  EXPECT_FALSE(step(true)) << "it was offered before";
  EXPECT_EQ(asked, 1);
  Reduction anew;
  const auto taken = anew.Step(offer, c, [](const Case&) { return true; }, never);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->K, 4);
  offers = 0;
  EXPECT_FALSE(anew.Step(offer, c, [](const Case&) { return true; }, [] { return true; }));
  EXPECT_EQ(offers, 1) << "who is spent ends the pass at once";
}

// --- Influence ----------------------------------------------------------------------------------

// Output i of the answer is one more where `touched` of the asked case is another than in `base`.
std::optional<std::string> Influence(const Case& base,
                                     const std::function<int64_t(const Case&)>& touched) {
  const Tensor right = exact::Evaluate(base);
  TestSubject subject([&](const Case& c, const RunContext&) {
    Tensor y = exact::Evaluate(c);
    // Output 0 is read from elsewhere.
    y.SetInt(0, static_cast<int32_t>(100 + touched(c) % 100));
    return TestSubject::Good(y);
  });
  const Tensor y = subject.Run(base, {}).y;
  const auto influence = ForeignInfluence(base, right, y, subject);
  EXPECT_LE(subject.runs, 42);
  return influence;
}

Case Random(int64_t m, int64_t n, int64_t k) {
  Case c = ZeroLayer(m, n, k);
  Rng rng(7);
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(rng.Below(256)));
  for (int64_t i = 0; i < c.w.size(); ++i)
    c.w.SetInt(i, static_cast<int32_t>(rng.Between(-128, 127)));
  return c;
}

int64_t Sum(const Tensor& tensor, int64_t from, int64_t to) {
  int64_t sum = 0;
  for (int64_t i = from; i < to; ++i) sum = (31 * sum + tensor.IntAt(i) + 128) & 0xffff;
  return sum;
}

TEST(Influence, NamesWhatTheOutputWasReadFrom) {
  Case c = Random(3, 4, 5);
  EXPECT_EQ(Influence(c, [](const Case& e) { return Sum(e.w, 5, 20); }),
            "outputs change with the weights of other channels");
  EXPECT_EQ(Influence(c, [](const Case& e) { return Sum(e.x, 5, 15); }),
            "outputs change with other rows of the input");
  EXPECT_EQ(Influence(c, [](const Case& e) { return Sum(e.x, 0, 5); }), std::nullopt)
      << "its own row";
  EXPECT_EQ(Influence(c, [](const Case& e) { return Sum(e.w, 0, 5); }), std::nullopt)
      << "its own channel";
  EXPECT_EQ(Influence(c, [](const Case&) { return 3; }), std::nullopt);
  c.bias_i32 = {{1, 20, 30, 45}};
  EXPECT_EQ(Influence(c, [](const Case& e) { return (*e.bias_i32)[1] + 3 * (*e.bias_i32)[3]; }),
            "outputs change with the bias of other channels");
  EXPECT_EQ(Influence(c, [](const Case& e) { return (*e.bias_i32)[0]; }), std::nullopt);
  c.bias_i32.reset();
  c.bias = {{1, 20, 30, 45}};
  EXPECT_EQ(
      Influence(
          c, [](const Case& e) { return static_cast<int64_t>((*e.bias)[1] + 3 * (*e.bias)[3]); }),
      "outputs change with the bias of other channels");
  c.bias.reset();
  c.per_channel = true;
  c.w_q.scale = {1, 2, 3, 4};
  c.w_q.zero_point = {1, 12, 23, 34};
  EXPECT_EQ(
      Influence(c, [](const Case& e) { return e.w_q.zero_point[1] + 3 * e.w_q.zero_point[3]; }),
      "outputs change with the zero points of other channels");
  EXPECT_EQ(Influence(c,
                      [](const Case& e) {
                        return static_cast<int64_t>(e.w_q.scale[1] + 5 * e.w_q.scale[3]);
                      }),
            "outputs change with the scales of other channels");
  EXPECT_EQ(Influence(c, [](const Case& e) { return e.w_q.zero_point[0]; }), std::nullopt);
}

TEST(Influence, OfOtherImagesAndSecondOperands) {
  Case pool;
  pool.op = Op::kMaxPool;
  pool.N = 1;
  pool.window = {.batch = 2, .in_h = 2, .in_w = 3, .in_c = 1};
  pool.x = Tensor(DType::kU8, {2, 2, 3, 1});
  for (int64_t i = 0; i < 12; ++i) pool.x.SetInt(i, static_cast<int32_t>(10 * i + i * i));
  DeriveSizes(&pool);
  EXPECT_EQ(Influence(pool, [](const Case& e) { return Sum(e.x, 6, 12); }),
            "outputs change with other images");
  EXPECT_EQ(Influence(pool, [](const Case& e) { return Sum(e.x, 0, 6); }), std::nullopt);
  Case add = CaseOver(Op::kAdd, Tensor(DType::kU8, {2, 4}), DType::kU8);
  for (int64_t i = 0; i < 8; ++i) add.x.SetInt(i, static_cast<int32_t>(3 * i + i * i));
  add.w = add.x;
  EXPECT_EQ(Influence(add, [](const Case& e) { return Sum(e.w, 4, 8); }),
            "outputs change with other rows of the input");
  EXPECT_EQ(Influence(add, [](const Case& e) { return Sum(e.w, 0, 4); }), std::nullopt);
}

TEST(Influence, WhoChangesItsMindIsNotInfluenced) {
  const Case c = Random(3, 4, 5);
  const Tensor right = exact::Evaluate(c);
  TestSubject moody([runs = 0](const Case& asked, const RunContext&) mutable {
    Tensor y = exact::Evaluate(asked);
    y.SetInt(0, ++runs % 7);
    return TestSubject::Good(y);
  });
  const Tensor y = moody.Run(c, {}).y;
  EXPECT_EQ(ForeignInfluence(c, right, y, moody), std::nullopt);
  TestSubject refuses([&](const Case&, const RunContext&) -> Outcome {
    ADD_FAILURE() << "what it cannot run is not run";
    return {};
  });
  refuses.cannot_run = [](const Case&) { return "never"; };
  EXPECT_EQ(ForeignInfluence(c, right, y, refuses), std::nullopt);
}

}  // namespace
}  // namespace qualm::triage
