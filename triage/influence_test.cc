// SPDX-License-Identifier: Apache-2.0
// Outputs that change with what belongs to other channels, rows or images, and those that do not.
#include "triage/influence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "triage/fault_test_util.h"

namespace qualm::triage {
namespace {

using Said = std::optional<std::string>;
const Said kNothing;

// What is said of the subject's answer to the case.
Said Of(const Case& c, TestSubject& subject) {
  const Tensor y = subject.Run(c, {}).y;
  subject.runs = 0;
  return ForeignInfluence(c, Right(c), y, subject);
}
// Of a subject that adds `extra` to each output.
Said OfAdded(const Case& c, std::function<int32_t(const Case&, int64_t m, int64_t n)> extra) {
  TestSubject subject = Answers([extra](const Case& of) {
    Tensor y = Right(of);
    for (int64_t i = 0; i < y.size(); ++i) {
      const int32_t more = extra(of, i / of.N, i % of.N);
      if (y.dtype() == DType::kF32) {
        y.as<float>()[static_cast<size_t>(i)] += static_cast<float>(more);
      } else {
        y.SetInt(i, y.dtype() == DType::kS32 ? y.IntAt(i) + more : (y.IntAt(i) + more) & 0xFF);
      }
    }
    return y;
  });
  return Of(c, subject);
}

// A layer with everything that a channel can have of its own.
Case FullLayer() {
  Case c = Layer(3, 4, 5);
  c.out_dtype = DType::kU8;
  OpenClamp(&c);
  c.per_channel = true;
  c.w_q = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  c.out_q.scale = {10000};
  c.bias_i32 = {{100, 200, 300, 400}};
  EXPECT_EQ(Validate(c), "");
  return c;
}

TEST(Influence, OfOtherChannelsIsNamedByWhatOfThem) {
  EXPECT_EQ(OfAdded(Layer(3, 4, 5),
                    [](const Case& c, int64_t, int64_t n) {
                      return 1'000 + c.w.IntAt((n + 1) % c.N * c.K) +
                             7 * c.w.IntAt((n + 1) % c.N * c.K + 3);
                    }),
            "outputs change with the weights of other channels");
  Case biased = Layer(2, 4, 3);
  biased.bias_i32 = {{1, 20, 300, 4000}};
  EXPECT_EQ(
      OfAdded(biased, [](const Case& c, int64_t,
                         int64_t n) { return (*c.bias_i32)[static_cast<size_t>((n + 1) % c.N)]; }),
      "outputs change with the bias of other channels");
  Case real = Layer(2, 4, 3);
  real.out_dtype = DType::kF32;
  OpenClamp(&real);
  real.bias = {{1, 20, 300, 4000}};
  ASSERT_EQ(Validate(real), "");
  EXPECT_EQ(OfAdded(real,
                    [](const Case& c, int64_t, int64_t n) {
                      return static_cast<int32_t>((*c.bias)[static_cast<size_t>((n + 1) % c.N)]);
                    }),
            "outputs change with the bias of other channels");
  EXPECT_EQ(OfAdded(FullLayer(), [](const Case& c, int64_t,
                                    int64_t n) { return c.w_q.zero_point_at((n + 1) % c.N); }),
            "outputs change with the zero points of other channels");
  EXPECT_EQ(OfAdded(FullLayer(),
                    [](const Case& c, int64_t, int64_t n) {
                      return static_cast<int32_t>(c.w_q.scale_at((n + 1) % c.N));
                    }),
            "outputs change with the scales of other channels");
}

TEST(Influence, SaysWhichChannelsTheyAre) {
  struct Row {
    std::string source;
    int64_t (*of)(int64_t n, int64_t channels);
  };
  for (const auto& [source, of] :
       {Row{"channel 0", [](int64_t, int64_t) { return int64_t{0}; }},
        Row{"the channel before", [](int64_t n, int64_t) { return std::max<int64_t>(n - 1, 0); }},
        Row{"the channel behind",
            [](int64_t n, int64_t channels) { return std::min(n + 1, channels - 1); }},
        Row{"the first of each four channels", [](int64_t n, int64_t) { return n - n % 4; }}}) {
    EXPECT_EQ(
        OfAdded(Layer(1, 15, 5), [of](const Case& c, int64_t,
                                      int64_t n) { return 1'000 + c.w.IntAt(of(n, c.N) * c.K); }),
        "outputs change with the weights of other channels, here those of " + source);
  }
}

TEST(Influence, OfOtherChannelsScalesInEveryListOfThem) {
  const auto numbers = [](int64_t m, int64_t n) {
    Tensor x(DType::kS32, {m, n});
    for (int64_t i = 0; i < x.size(); ++i) x.SetInt(i, static_cast<int32_t>(i + 1));
    return x;
  };
  Case multiplied = CaseOver(Op::kRequantize, numbers(1, 4), DType::kU8);
  multiplied.per_channel = true;
  multiplied.multiplier = {1, 2, 3, 4};
  ASSERT_EQ(Validate(multiplied), "");
  EXPECT_EQ(OfAdded(multiplied,
                    [](const Case& c, int64_t, int64_t n) {
                      return static_cast<int32_t>(c.multiplier[static_cast<size_t>((n + 1) % c.N)]);
                    }),
            "outputs change with the scales of other channels");
  Case quantize = CaseOver(Op::kQuantize, Tensor(DType::kF32, {1, 4}), DType::kU8);
  quantize.per_channel = true;
  quantize.out_q = {{1, 2, 3, 4}, {0, 0, 0, 0}};
  ASSERT_EQ(Validate(quantize), "");
  EXPECT_EQ(OfAdded(quantize,
                    [](const Case& c, int64_t, int64_t n) {
                      return static_cast<int32_t>(c.out_q.scale_at((n + 1) % c.N));
                    }),
            "outputs change with the scales of other channels");
  Case dequantize = CaseOver(Op::kDequantize, Tensor(DType::kU8, {1, 4}), DType::kF32);
  dequantize.per_channel = true;
  dequantize.x_q = {{1, 2, 3, 4}, {0, 0, 0, 0}};
  ASSERT_EQ(Validate(dequantize), "");
  EXPECT_EQ(OfAdded(dequantize,
                    [](const Case& c, int64_t, int64_t n) {
                      return static_cast<int32_t>(c.x_q.scale_at((n + 1) % c.N));
                    }),
            "outputs change with the scales of other channels");
}

Case Sum(int64_t m, int64_t n) {
  Case c = Elements(m, n);
  c.op = Op::kAdd;
  c.w = Tensor(DType::kU8, {m, n});
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, static_cast<int32_t>(i * i % 100));
  EXPECT_EQ(Validate(c), "");
  return c;
}

TEST(Influence, OfOtherRows) {
  EXPECT_EQ(
      OfAdded(Layer(3, 1, 5), [](const Case& c, int64_t m,
                                 int64_t) { return 1'000 + c.x.IntAt((m + 1) % c.M * c.K + 2); }),
      "outputs change with other rows of the input");
  // Both operands of a sum are inputs.
  EXPECT_EQ(OfAdded(Sum(3, 4), [](const Case& c, int64_t m,
                                  int64_t n) { return 1 + c.w.IntAt((m + 1) % c.M * c.N + n); }),
            "outputs change with other rows of the input");
  EXPECT_EQ(OfAdded(Sum(3, 4), [](const Case& c, int64_t m,
                                  int64_t n) { return 1 + c.x.IntAt((m + 1) % c.M * c.N + n); }),
            "outputs change with other rows of the input");
}

// Two images of two pixels with a kernel of one.
Case Images() {
  Case c;
  c.op = Op::kConv2d;
  c.N = 1;
  c.window = {.batch = 3, .in_h = 1, .in_w = 2, .in_c = 2};
  DeriveSizes(&c);
  c.x = Tensor(DType::kU8, {3, 1, 2, 2});
  c.w = Tensor(DType::kS8, {1, 1, 1, 2});
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(10 + i * i));
  c.w.SetInt(0, 3), c.w.SetInt(1, 5);
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

TEST(Influence, OfOtherImages) {
  EXPECT_EQ(OfAdded(Images(), [](const Case& c, int64_t m,
                                 int64_t) { return 1'000 + c.x.IntAt((m / 2 + 1) % 3 * 4 + 1); }),
            "outputs change with other images");
  // What the same image holds is no foreign thing.
  EXPECT_EQ(OfAdded(Images(),
                    [](const Case& c, int64_t m, int64_t) {
                      return 1'000 + c.x.IntAt(m / 2 * 4 + (m % 2 == 0 ? 3 : 0));
                    }),
            kNothing);
}

// An answer that is wrong for what is its own.
TEST(Influence, IsNotSaidOfWhatBelongsToTheOutput) {
  const auto own = [](const Case& c, int64_t m, int64_t n) {
    const auto at = static_cast<size_t>(n);
    return 1 + c.x.IntAt(m * c.K) + c.w.IntAt(n * c.K) + c.w_q.zero_point_at(n) +
           static_cast<int32_t>(c.w_q.scale_at(n)) + (c.bias_i32 ? (*c.bias_i32)[at] : 0);
  };
  EXPECT_EQ(OfAdded(FullLayer(), own), kNothing);
  EXPECT_EQ(OfAdded(Layer(3, 4, 5), own), kNothing);
  EXPECT_EQ(
      OfAdded(Sum(3, 4), [](const Case& c, int64_t m,
                            int64_t n) { return 1 + c.w.IntAt(m * c.N + n) + c.x.IntAt(m * c.N); }),
      kNothing);
}

// dynamic_linear makes the codes of x itself. Where its rows share a scale, every output depends on
// all rows; its weights are those of other layers.
TEST(Influence, OfDynamicLayers) {
  for (const Granularity granularity : {Granularity::kTensor, Granularity::kRow}) {
    Case c = Layer(3, 4, 5);
    c.op = Op::kDynamicLinear;
    c.x = Tensor(DType::kF32, {3, 5});
    for (int64_t i = 0; i < 15; ++i)
      c.x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(i * i % 11 - 3);
    c.x_q = {};
    c.x_gran = granularity;
    c.out_dtype = DType::kF32;
    OpenClamp(&c);
    ASSERT_EQ(Validate(c), "");
    EXPECT_EQ(OfAdded(c, [](const Case&, int64_t, int64_t) { return 7; }), kNothing);
    EXPECT_EQ(OfAdded(c, [](const Case& of, int64_t,
                            int64_t n) { return 1'000 + of.w.IntAt((n + 1) % of.N * of.K); }),
              "outputs change with the weights of other channels");
    const bool rows = granularity == Granularity::kRow;
    EXPECT_EQ(OfAdded(c,
                      [](const Case& of, int64_t m, int64_t) {
                        return 1'000 + static_cast<int32_t>(of.x.FloatAt((m + 1) % of.M * of.K));
                      }),
              rows ? Said("outputs change with other rows of the input") : kNothing);
  }
}

// All that the subject was asked about outputs which are wrong, and its answer to each: the same.
std::vector<Case> AskedAbout(const Case& c, const std::vector<int64_t>& wrong) {
  Tensor y = Right(c);
  for (const int64_t i : wrong) y.SetInt(i, y.IntAt(i) ^ 1);
  std::vector<Case> asked;
  TestSubject subject = Answers([&](const Case& of, const RunContext& context) {
    EXPECT_NE(context.poison, RunContext{}.poison) << "an answer would be remembered";
    asked.push_back(of);
    return y;
  });
  EXPECT_EQ(ForeignInfluence(c, Right(c), y, subject), kNothing);
  return asked;
}

template <class T>
bool OthersAlone(const std::vector<T>& now, const std::vector<T>& was, size_t but) {
  if (now.size() != was.size()) return false;
  return now[but] == was[but] &&
         std::ranges::all_of(now, [&](const T& each) { return std::ranges::count(was, each) > 0; });
}

// Each row holds codes of its own row, and row `but` is as it was.
bool OtherRowsAlone(const Tensor& now, const Tensor& was, int64_t rows, int64_t but) {
  const int64_t length = was.size() / rows;
  for (int64_t i = 0; i < now.size(); ++i) {
    if (i / length == but && now.IntAt(i) != was.IntAt(i)) return false;
    bool known = false;
    for (int64_t j = i / length * length; j < (i / length + 1) * length; ++j)
      known |= was.IntAt(j) == now.IntAt(i);
    if (!known) return false;
  }
  return now.shape() == was.shape();
}

// A kernel may take another path for other codes: only codes of the row itself take new places.
TEST(Influence, IsLookedForInCodesThatWereThere) {
  const Case c = FullLayer();
  for (const int64_t output : {0, 5, 11}) {
    const int64_t m = output / 4;
    const auto n = static_cast<size_t>(output % 4);
    const std::vector<Case> asked = AskedAbout(c, {output});
    EXPECT_EQ(asked.size(), 15u) << "three times for weights, biases, zero points, scales, rows";
    std::set<std::string> keys;
    for (const Case& each : asked) {
      EXPECT_NE(each, c);
      EXPECT_EQ(Validate(each), "");
      keys.insert(ProblemKey(each));
      EXPECT_TRUE(OtherRowsAlone(each.w, c.w, 4, static_cast<int64_t>(n)));
      EXPECT_TRUE(OtherRowsAlone(each.x, c.x, 3, m));
      EXPECT_TRUE(OthersAlone(*each.bias_i32, *c.bias_i32, n));
      EXPECT_TRUE(OthersAlone(each.w_q.zero_point, c.w_q.zero_point, n));
      EXPECT_TRUE(OthersAlone(each.w_q.scale, c.w_q.scale, n));
      const int changes = (each.w != c.w) + (each.x != c.x) + (each.bias_i32 != c.bias_i32) +
                          (each.w_q.zero_point != c.w_q.zero_point) +
                          (each.w_q.scale != c.w_q.scale);
      EXPECT_EQ(changes, 1) << "one thing at a time";
    }
    EXPECT_EQ(keys.size(), asked.size());
    // The first and the last of the others change too.
    for (const int64_t row : {0, 3}) {
      const auto differs = [&](const Case& each) {
        for (int64_t k = row * 5; k < row * 5 + 5; ++k) {
          if (each.w.IntAt(k) != c.w.IntAt(k)) return true;
        }
        return false;
      };
      EXPECT_EQ(std::ranges::any_of(asked, differs), row != static_cast<int64_t>(n)) << row;
    }
  }
}

TEST(Influence, IsLookedForInNumbersOfSeveralBytes) {
  Case c = CaseOver(Op::kRequantize, Tensor(DType::kS32, {3, 4}), DType::kU8);
  for (int64_t i = 0; i < 12; ++i) c.x.SetInt(i, static_cast<int32_t>(i * 1'000'003));
  c.multiplier = {0x1p-20f};
  ASSERT_EQ(Validate(c), "");
  const std::vector<Case> asked = AskedAbout(c, {4});
  EXPECT_EQ(asked.size(), 3u);
  for (const Case& each : asked) EXPECT_TRUE(OtherRowsAlone(each.x, c.x, 3, 1));
}

TEST(Influence, OfImagesIsLookedForInTheOthers) {
  const Case c = Images();
  for (const int64_t pixel : {0, 1, 3, 5}) {
    const std::vector<Case> asked = AskedAbout(c, {pixel});
    EXPECT_EQ(asked.size(), 3u);
    for (const Case& each : asked) EXPECT_TRUE(OtherRowsAlone(each.x, c.x, 3, pixel / 2));
  }
}

TEST(Influence, IsNotLookedForWhereThereIsNothingElse) {
  EXPECT_TRUE(AskedAbout(Layer(1, 1, 5), {0}).empty());
  Case biased = Layer(1, 1, 5);
  biased.bias_i32 = {{3}};
  EXPECT_TRUE(AskedAbout(biased, {0}).empty());
  Case alike = Layer(1, 2, 5);
  for (int64_t k = 0; k < 10; ++k) alike.w.SetInt(k, 7);
  EXPECT_TRUE(AskedAbout(alike, {0}).empty()) << "the other channel stays as it is";
  EXPECT_TRUE(AskedAbout(Layer(3, 2, 0), {0}).empty()) << "no codes at all";
  Case one = Images();
  one.window.batch = 1;
  one.x = Tensor(DType::kU8, {1, 1, 2, 2});
  DeriveSizes(&one);
  ASSERT_EQ(Validate(one), "");
  EXPECT_TRUE(AskedAbout(one, {0}).empty());
  // Two rows of concat's first operand may hold no columns.
  const Case c = Layer(3, 0, 5);
  TestSubject subject;
  EXPECT_EQ(ForeignInfluence(c, Right(c), Right(c), subject), kNothing);
  const Case full = FullLayer();
  EXPECT_EQ(ForeignInfluence(full, Right(full), Right(full), subject), kNothing)
      << "nothing is wrong";
  EXPECT_EQ(subject.runs, 0);
}

// The scales of choose_qparams are made of all values.
TEST(Influence, IsNotLookedForWhereAllValuesMakeOneOutput) {
  Case c;
  c.op = Op::kChooseQParams;
  c.M = 2, c.N = 3;
  c.x = Tensor(DType::kF32, {1, 2, 3});
  c.per_channel = true;
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  for (int64_t i = 0; i < 6; ++i) c.x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(i);
  ASSERT_EQ(Validate(c), "");
  TestSubject subject;
  Tensor y = Right(c);
  y.as<float>()[0] += 1;
  EXPECT_EQ(ForeignInfluence(c, Right(c), y, subject), kNothing);
  EXPECT_EQ(subject.runs, 0);
}

TEST(Influence, CostsAtMostFortyRuns) {
  EXPECT_EQ(AskedAbout(FullLayer(), {0, 1, 2, 3, 4, 5}).size(), 38u);
}

// The first wrong output, the last, and one in between.
TEST(Influence, IsLookedForInThreeWrongOutputs) {
  const Case c = Layer(1, 6, 5);
  const auto seen = [&](const std::vector<int64_t>& wrong, int64_t moved) {
    TestSubject subject = Answers([&](const Case& of) {
      Tensor y = Right(of);
      for (const int64_t i : wrong) {
        const int32_t foreign = of.w.IntAt((i + 1) % 6 * 5) * 100 + of.w.IntAt((i + 2) % 6 * 5);
        y.SetInt(i, y.IntAt(i) + 1'000'000 + (i == moved ? foreign : 0));
      }
      return y;
    });
    return Of(c, subject).has_value();
  };
  for (const int64_t moved : {1, 3, 5}) EXPECT_TRUE(seen({1, 2, 3, 5}, moved)) << moved;
  EXPECT_FALSE(seen({1, 2, 3, 5}, 2));
  for (const int64_t moved : {1, 2, 5}) EXPECT_TRUE(seen({1, 2, 5}, moved)) << moved;
  for (const int64_t moved : {1, 5}) EXPECT_TRUE(seen({1, 5}, moved)) << moved;
  EXPECT_TRUE(seen({4}, 4));
}

// One change may be chance; two, in answers that come again, are none.
TEST(Influence, MustBeSeenTwice) {
  const Case c = Layer(1, 2, 5);
  for (const int changes : {1, 2}) {
    int asked = -1;
    TestSubject subject = Answers([&](const Case& of) {
      ++asked;
      const bool moved = of != c && asked <= changes;
      return Plus(Right(of), 0, moved ? 2'000'000 : 1'000'000);
    });
    const Tensor y = Plus(Right(c), 0, 1'000'000);
    asked = 0;
    EXPECT_EQ(ForeignInfluence(c, Right(c), y, subject).has_value(), changes == 2);
    EXPECT_EQ(subject.runs, changes == 2 ? 6 : 3);
  }
}

TEST(Influence, IsNotSaidOfAnswersThatVary) {
  const Case c = Layer(1, 2, 5);
  for (const int64_t other : {2, 3}) {
    // Two changed answers are seen; then one of two repetitions differs.
    int64_t asked = 0;
    TestSubject subject = Answers([&](const Case& of) {
      const bool moved = of != c || asked == other;
      ++asked;
      return Plus(Right(of), 0, moved ? 2'000'000 : 1'000'000);
    });
    EXPECT_EQ(ForeignInfluence(c, Right(c), Plus(Right(c), 0, 1'000'000), subject), kNothing)
        << other;
  }
}

// A run that breaks, a case that the subject refuses and an answer of another shape show nothing.
TEST(Influence, IsNotSeenInRunsThatBreak) {
  const Case c = Layer(1, 2, 5);
  const Tensor y = Plus(Right(c), 0, 1'000'000);
  const auto said = [&](const Outcome& outcome) {
    TestSubject subject([&](const Case& of, const RunContext&) {
      return of == c ? TestSubject::Good(y) : outcome;
    });
    return ForeignInfluence(c, Right(c), y, subject);
  };
  EXPECT_EQ(said({RunStatus::kCrashed, "SIGSEGV", Right(c), {}}), kNothing);
  EXPECT_EQ(said(TestSubject::Good(Tensor(DType::kS32, {2, 1}))), kNothing);
  EXPECT_NE(said(TestSubject::Good(Right(c))), kNothing);
  TestSubject subject = Answers([&](const Case& of) { return of == c ? y : Right(of); });
  subject.cannot_run = [&](const Case& of) { return of == c ? "" : "another layer"; };
  EXPECT_EQ(ForeignInfluence(c, Right(c), y, subject), kNothing);
  EXPECT_EQ(subject.runs, 0);
}

}  // namespace
}  // namespace qualm::triage
