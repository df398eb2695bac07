// SPDX-License-Identifier: Apache-2.0
// What a search is told to keep, what it may cost, and what its result says. The subjects crash
// where a test says so: such an answer needs no cause, and a search takes milliseconds.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/io/case_json.h"
#include "core/layer_test_util.h"
#include "core/text_test_util.h"
#include "oracles/exact/exact.h"
#include "properties/property.h"
#include "properties/test_subject.h"
#include "triage/causes.h"
#include "triage/fault_test_util.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

void ExpectOneProduct(const MinimizeResult& result) {
  EXPECT_EQ(result.minimized.M * result.minimized.N, 1) << Describe(result.minimized);
  EXPECT_EQ(result.minimized.K, 1) << Describe(result.minimized);
}

const Outcome kDied{RunStatus::kCrashed, "killed by a signal", {}, {}};

const Property& MatchesExact() { return *FindProperty("matches_exact"); }

TestSubject CrashesWhere(std::function<bool(const Case&)> crashes) {
  return TestSubject([=](const Case& c, const RunContext&) -> Outcome {
    if (crashes(c)) return kDied;
    return TestSubject::Good(exact::Evaluate(c));
  });
}

MinimizeResult Minimized(const Case& c, std::function<bool(const Case&)> crashes,
                         const MinimizeOptions& options = {}) {
  TestSubject subject = CrashesWhere(std::move(crashes));
  return Minimize(c, subject, MatchesExact(), options);
}

// Codes first, first + step, ..., and from the start after each period.
struct Codes {
  int64_t first = 0, step = 0, period = 1000;
  void Fill(Tensor* tensor) const {
    for (int64_t i = 0; i < tensor->size(); ++i)
      tensor->SetInt(i, static_cast<int32_t>(first + step * (i % period)));
  }
};
// A layer whose outputs are its sums.
Case Sums(int64_t m, int64_t n, int64_t k, const Codes& x, const Codes& w) {
  Case c = ZeroLayer(m, n, k);
  x.Fill(&c.x), w.Fill(&c.w);
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

// A case with everything that a case of linear can have.
Case Full(int64_t m, int64_t n, int64_t k) {
  Case c = ZeroLayer(m, n, k);
  c.bias_i32 = std::vector<int32_t>(static_cast<size_t>(n), 7);
  c.relu = true;
  c.requant = Requant::kFloat32;
  c.per_channel = true;
  c.w_q = {std::vector<float>(static_cast<size_t>(n), 2),
           std::vector<int32_t>(static_cast<size_t>(n), 3)};
  c.x_q.zero_point = {5};
  c.out_q.zero_point = {6};
  EXPECT_EQ(Validate(c), "");
  return c;
}

TEST(Minimized, SaysWhatDidNotMatterAndWhichSizesDid) {
  const MinimizeResult result = Minimized(Full(4, 5, 6), [](const Case& c) { return c.K >= 3; });
  EXPECT_TRUE(result.reproduced);
  EXPECT_EQ(ProblemOf(result.minimized), ZeroLayer(1, 1, 3)) << Describe(result.minimized);
  EXPECT_EQ(result.irrelevant, (Texts{"bias_i32", "relu", "requant", "per-channel scales",
                                      "input zero point", "weight zero point", "output zero point",
                                      "other rows", "other channels", "other terms of the sum"}));
  EXPECT_EQ(result.needs, Texts{"K >= 3"});
  EXPECT_EQ(result.attribution.kind, FindingKind::kCrash);
  EXPECT_TRUE(result.verdict.failed());
}

TEST(Minimized, WhatIsNeededIsNotCalledIrrelevant) {
  const MinimizeResult result = Minimized(Full(3, 3, 3), [](const Case& c) {
    return c.M >= 3 && c.N >= 3 && c.K >= 3 && c.bias_i32 && c.relu && c.per_channel &&
           c.requant == Requant::kFloat32 && c.x_q.zero_point[0] != 0 && c.w_q.zero_point[2] != 0 &&
           c.out_q.zero_point[0] != 0;
  });
  EXPECT_EQ(result.irrelevant, Texts{});
  EXPECT_EQ(result.needs, (Texts{"K >= 3", "N >= 3", "M >= 3"}));
}

// It fails without a zero point of x, but not if that is the weights'.
TEST(Minimized, WhatMattersBesideAnotherValueIsNotCalledIrrelevant) {
  const MinimizeResult result = Minimized(
      Full(1, 1, 3), [](const Case& c) { return c.x_q.zero_point[0] != c.w_q.zero_point[0]; });
  EXPECT_FALSE(std::ranges::count(result.irrelevant, "input zero point"))
      << result.irrelevant.size();
  EXPECT_FALSE(std::ranges::count(result.irrelevant, "weight zero point"));
}

TEST(Minimized, WhatTheCaseNeverHadIsNotCalledIrrelevant) {
  const MinimizeResult result =
      Minimized(ZeroLayer(2, 2, 2), [](const Case& c) { return c.M >= 2 && c.N >= 2 && c.K >= 2; });
  EXPECT_EQ(result.irrelevant, Texts{});
  EXPECT_EQ(result.needs, Texts{}) << "a size of two is not worth a word";
}

TEST(Minimized, OnlySizesThatUsersChooseAreNeeds) {
  Case add = CaseOver(Op::kAdd, Tensor(DType::kU8, {4, 5}), DType::kU8);
  add.w = add.x;
  add.K = 0;
  EXPECT_EQ(Minimized(add, [](const Case& c) { return c.M >= 4 && c.N >= 5; }).needs,
            (Texts{"N >= 5", "M >= 4"}));
  const Case pool =
      Images(Op::kMaxPool, {.batch = 1, .in_h = 3, .in_w = 3, .in_c = 3, .kernel_h = 3}, 3);
  EXPECT_EQ(Minimized(pool, [](const Case& c) { return c.M >= 3 && c.N >= 3 && c.K >= 3; }).needs,
            Texts{});
  Case observed;
  observed.op = Op::kChooseQParams;
  observed.M = 3, observed.N = 3;
  observed.x = Tensor(DType::kF32, {1, 3, 3});
  observed.out_dtype = DType::kF32;
  OpenClamp(&observed);
  ASSERT_EQ(Validate(observed), "");
  EXPECT_EQ(Minimized(observed, [](const Case& c) { return c.M >= 3 && c.N >= 3; }).needs, Texts{});
}

// --- What a search may cost ---------------------------------------------------------------------

// Nothing simpler fails, and the candidates never end.
Case Endless() {
  Case c = Sums(8, 8, 40, {100}, {100});
  c.out_dtype = DType::kU8;
  OpenClamp(&c);
  return c;
}

TEST(Budget, IsSpentButForTheReserveAndNotMore) {
  const Case c = Endless();
  for (const auto& [most, searched] : {std::pair{7, 7}, {8, 7}, {16, 14}, {512, 448}, {800, 736}}) {
    TestSubject subject = CrashesWhere([&](const Case& asked) { return asked == c; });
    const MinimizeResult result = Minimize(c, subject, MatchesExact(), {.max_calls = most});
    EXPECT_EQ(result.calls, searched);
    EXPECT_EQ(subject.runs, searched + 1) << "the answer to the smallest case is asked at the end";
    EXPECT_EQ(ProblemOf(result.minimized), c);
    EXPECT_EQ(result.needs, Texts{}) << "a search that did not end knows no needs";
  }
}

TEST(Budget, AStopEndsTheSearchWithTheSmallestCaseSoFar) {
  const Case c = ZeroLayer(8, 8, 40);
  for (const int64_t after : {1, 2, 5}) {
    TestSubject subject = CrashesWhere([](const Case&) { return true; });
    MinimizeOptions options;
    options.stop = [&] { return subject.runs >= after; };
    const MinimizeResult result = Minimize(c, subject, MatchesExact(), options);
    EXPECT_TRUE(result.reproduced);
    EXPECT_EQ(result.calls, after);
    EXPECT_EQ(result.needs, Texts{});
  }
}

// --- What a search keeps ------------------------------------------------------------------------

TEST(Kept, TheKindUnlessItNeedNot) {
  // Crashes with three terms; with fewer its output is wrong, or it hangs.
  for (const RunStatus shorter : {RunStatus::kOk, RunStatus::kHung}) {
    const auto run = [&](const Case& c, const RunContext&) {
      Tensor y = exact::Evaluate(c);
      for (int64_t i = 0; i < y.size(); ++i) y.SetInt(i, 77);
      return c.K >= 3 ? kDied : Outcome{shorter, "no answer", y, {}};
    };
    TestSubject kept(run), any(run);
    const MinimizeResult same = Minimize(ZeroLayer(2, 2, 5), kept, MatchesExact());
    EXPECT_EQ(same.minimized.K, 3);
    EXPECT_EQ(same.attribution.kind, FindingKind::kCrash);
    EXPECT_FALSE(same.minimized.observed) << "it gave no answer";
    EXPECT_EQ(Minimize(ZeroLayer(2, 2, 5), any, MatchesExact(), {.keep_kind = false}).minimized.K,
              1);
  }
}

TEST(Kept, WhatTheSubjectCannotRunIsNotAsked) {
  TestSubject subject = CrashesWhere([](const Case&) { return true; });
  subject.cannot_run = [](const Case& c) { return c.K < 4 ? "too short" : ""; };
  const MinimizeResult result = Minimize(ZeroLayer(2, 2, 8), subject, MatchesExact());
  EXPECT_EQ(result.minimized.K, 4);
  EXPECT_EQ(result.needs, Texts{"K >= 4"});
}

TEST(Kept, ACaseThatDoesNotFailStaysAsItWas) {
  Case c = Full(2, 2, 2);
  c.note = "found on a Tuesday";
  TestSubject subject;
  const MinimizeResult result = Minimize(c, subject, MatchesExact());
  EXPECT_FALSE(result.reproduced);
  EXPECT_EQ(result.minimized, c);
  EXPECT_EQ(result.verdict.judgement, Judgement::kPassed);
  EXPECT_EQ(result.calls, 1 + 15) << "an answer that is wrong by chance is asked for again";
  EXPECT_EQ(subject.runs, 16);
  TestSubject few;
  EXPECT_EQ(Minimize(c, few, MatchesExact(), {.max_calls = 8}).calls, 7) << "within the budget";
}

// --- What a search knows of the cause -----------------------------------------------------------

const Cause& Relu() { return CauseNamed("relu ignored"); }
const Cause& Bias() { return CauseNamed("bias ignored"); }

// Outputs are one more; the highest code is one less.
Tensor OneMore(const Case& c) {
  Tensor y = exact::Evaluate(c);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int32_t code = y.IntAt(i);
    y.SetInt(i, IsCode(y.dtype()) && code == RangeOf(y.dtype()).max ? code - 1 : code + 1);
  }
  return y;
}
// Output -50 with a relu, and 20 of it from the bias.
Case Negative() {
  Case c = Sums(2, 2, 3, {10}, {-1});
  c.bias_i32 = {{-20, -20}};
  c.relu = true;
  return c;
}

Attribution Known(const Hypothesis& causes) {
  Attribution attribution;
  attribution.kind = causes.front()->kind;
  attribution.complete = true;
  attribution.causes = causes;
  return attribution;
}
Attribution Unknown(const std::vector<Hypothesis>& open = {}) {
  Attribution attribution;
  attribution.open = open;
  return attribution;
}

MinimizeResult MinimizedFrom(const Attribution& attribution, TestSubject& subject,
                             MinimizeOptions options = {}) {
  options.attribution = &attribution;
  return Minimize(Negative(), subject, MatchesExact(), options);
}

// Without a relu the subject has another fault: cases without one are simpler, and not taken.
TEST(Cause, ThatIsKnownIsKept) {
  for (const bool known : {true, false}) {
    TestSubject subject =
        Answers([](const Case& c) { return c.relu ? With(c, {&Relu()}) : OneMore(c); });
    const MinimizeResult result =
        MinimizedFrom(known ? Known({&Relu()}) : Unknown({{&Bias()}, {&Relu()}}), subject);
    EXPECT_TRUE(result.minimized.relu);
    EXPECT_FALSE(result.minimized.bias_i32);
    EXPECT_EQ(result.minimized.M * result.minimized.N, 1);
    EXPECT_EQ(result.attribution.causes, Hypothesis{&Relu()});
    EXPECT_TRUE(result.attribution.complete);
    TestSubject free =
        Answers([](const Case& c) { return c.relu ? With(c, {&Relu()}) : OneMore(c); });
    EXPECT_FALSE(MinimizedFrom(Known({&Relu()}), free, {.keep_kind = false}).minimized.relu);
  }
}

TEST(Cause, OfTwoOneIsEnough) {
  TestSubject subject = Answers([](const Case& c) {
    if (c.relu && c.bias_i32) return With(c, {&Relu(), &Bias()});
    return With(c, {c.relu ? &Relu() : &Bias()});
  });
  const MinimizeResult result = MinimizedFrom(Known({&Relu(), &Bias()}), subject);
  EXPECT_EQ(result.minimized.M * result.minimized.N, 1);
  EXPECT_NE(result.minimized.relu, result.minimized.bias_i32.has_value())
      << Describe(result.minimized);
}

// One of two causes shows on the small case, and the large one is wrong in another way.
TEST(Cause, OfTwoTheOneLeftHasToFitTheLargeCase) {
  TestSubject subject = Answers([](const Case& c) {
    if (c == Negative()) return OneMore(c);
    return c.relu ? exact::Evaluate(c) : With(c, {&Bias()});
  });
  const MinimizeResult result = MinimizedFrom(Known({&Relu(), &Bias()}), subject);
  EXPECT_TRUE(result.minimized.bias_i32);
  EXPECT_TRUE(Has(result.attribution.diagnosis, ", but not in the case found"));
  EXPECT_FALSE(result.attribution.complete);
}

TEST(Cause, TwoThatOnlyShowTogetherAreKeptTogether) {
  TestSubject subject = Answers([](const Case& c) {
    return c.relu && c.bias_i32 ? With(c, {&Relu(), &Bias()}) : exact::Evaluate(c);
  });
  const MinimizeResult result = MinimizedFrom(Known({&Relu(), &Bias()}), subject);
  EXPECT_EQ(result.minimized.M * result.minimized.N, 1);
  EXPECT_TRUE(result.minimized.relu);
  EXPECT_TRUE(result.minimized.bias_i32);
}

// A case of which nothing is known may end in another failure, but in none that is known to be one.
TEST(Cause, ThatIsUnknownDoesNotBecomeACrash) {
  TestSubject subject([](const Case& c, const RunContext&) -> Outcome {
    if (c.K < 2) return kDied;
    return TestSubject::Good(OneMore(c));
  });
  const MinimizeResult result = MinimizedFrom(Unknown(), subject);
  EXPECT_EQ(result.minimized.K, 2);
  EXPECT_TRUE(result.minimized.observed);
}

// The small case shows what the large one hides.
TEST(Cause, OfTheSmallCaseIsNamedIfItFitsTheLargeOne) {
  const auto with_relu = [](const Case& c) {
    return c.relu ? With(c, {&Relu()}) : exact::Evaluate(c);
  };
  TestSubject fits = Answers(with_relu);
  const MinimizeResult named = MinimizedFrom(Unknown(), fits);
  EXPECT_EQ(named.attribution.causes, Hypothesis{&Relu()});
  EXPECT_EQ(named.attribution.kind, FindingKind::kClamp);
  EXPECT_TRUE(named.attribution.complete);
  EXPECT_EQ(named.minimized.note, named.attribution.diagnosis);
  EXPECT_EQ(named.calls, fits.runs - 1) << "the questions about it count";

  TestSubject other =
      Answers([&](const Case& c) { return c == Negative() ? OneMore(c) : with_relu(c); });
  const MinimizeResult doubted = MinimizedFrom(Unknown(), other);
  EXPECT_EQ(doubted.attribution.diagnosis.substr(0, 17), "it could be that ");
  EXPECT_TRUE(Has(doubted.attribution.diagnosis, ", but not in the case found"));
  EXPECT_EQ(doubted.attribution.kind, FindingKind::kUnknown);
  EXPECT_FALSE(doubted.attribution.complete);
  EXPECT_TRUE(doubted.attribution.causes.empty());
  // Who reads the small case alone does not name it either.
  const Case read = ParseCase(CaseToJson(doubted.minimized), "small");
  EXPECT_EQ(read, doubted.minimized);
  EXPECT_TRUE(Has(read.observed->why.ruled_out, Relu().name)) << read.observed->why.ruled_out;
  const Attribution of_file = Attribute(read, read.observed->y, other);
  EXPECT_TRUE(of_file.causes.empty());
  EXPECT_EQ(of_file.diagnosis, doubted.attribution.diagnosis);
  EXPECT_EQ(of_file.kind, FindingKind::kUnknown);
  EXPECT_FALSE(of_file.complete);
  Case alone = read;
  alone.observed->why = {};
  EXPECT_EQ(Attribute(alone, read.observed->y, other).causes, Hypothesis{&Relu()});

  TestSubject again = Answers(with_relu);
  Attribution contradicted = Unknown();
  contradicted.contradicted = {{&Relu()}};
  const MinimizeResult denied = MinimizedFrom(contradicted, again);
  EXPECT_NE(denied.attribution.causes, Hypothesis{&Relu()}) << "other answers contradict it";
}

// What memory held decides the small case: that is no cause in arithmetic, and said as it is.
TEST(Cause, OfTheSmallCaseMayBeOneOfMemory) {
  TestSubject subject([](const Case& c, const RunContext& context) {
    Tensor y = exact::Evaluate(c);
    for (int64_t i = 0; i < y.size(); ++i) y.SetInt(i, y.IntAt(i) + context.poison);
    return TestSubject::Good(y);
  });
  const MinimizeResult result = MinimizedFrom(Unknown(), subject);
  EXPECT_EQ(result.attribution.kind, FindingKind::kMemory) << result.attribution.diagnosis;
  EXPECT_TRUE(result.attribution.complete);
  EXPECT_FALSE(Has(result.attribution.diagnosis, "it could be"));
}

// Causes that other findings showed need no further answers.
TEST(Cause, ThatIsEstablishedIsTakenAtOnce) {
  const std::vector<Attribution> established = AllNamed(Op::kLinear, {{&Relu()}});
  const auto only_there = [] {
    return Answers(
        [](const Case& c) { return c == Negative() ? With(c, {&Relu()}) : exact::Evaluate(c); });
  };
  TestSubject subject = only_there();
  EXPECT_EQ(Minimize(Negative(), subject, MatchesExact(), {.established = established})
                .attribution.causes,
            Hypothesis{&Relu()});
  TestSubject unknown = only_there();
  EXPECT_TRUE(Minimize(Negative(), unknown, MatchesExact()).attribution.causes.empty());
  // It is known from the start: a smaller case with another fault is not taken.
  const auto only_once = [&](const Case& c) {
    return c == Negative() ? With(c, {&Relu()}) : c.relu ? exact::Evaluate(c) : OneMore(c);
  };
  TestSubject once = Answers(only_once);
  EXPECT_TRUE(
      Minimize(Negative(), once, MatchesExact(), {.established = established}).minimized.relu);
  TestSubject later = only_there();
  EXPECT_EQ(MinimizedFrom(Unknown(), later, {.established = established}).attribution.causes,
            Hypothesis{&Relu()});
}

TEST(Cause, OfTheSmallCaseIsAskedForWithTheReserve) {
  const std::vector<Attribution> established = AllNamed(Op::kLinear, {{&Relu()}});
  Case c = Sums(2, 2, 300, {1, 1, 90}, {-1, -1, 80});
  c.bias_i32 = {{-20, -20}};
  c.relu = true;
  TestSubject subject = Answers(
      [&](const Case& asked) { return asked == c ? With(c, {&Relu()}) : exact::Evaluate(asked); });
  const Attribution unknown = Unknown();
  const MinimizeResult result =
      Minimize(c, subject, MatchesExact(),
               {.max_calls = 80, .established = established, .attribution = &unknown});
  EXPECT_GT(result.calls, 70) << "the search spent all but the reserve";
  EXPECT_LE(result.calls, 80);
  EXPECT_EQ(result.attribution.causes, Hypothesis{&Relu()});
}

// --- A case that fits one cause alone -----------------------------------------------------------

const Cause& Term() { return CauseNamed("K*zx*zw ignored"); }

// The product of its zero points is 147 * 13; of small ones many causes give the same output.
Case WithZeroPoints(int64_t k) {
  Case c = Sums(1, 1, k, {200, 1}, {110, -1});
  c.x_q.zero_point = {147};
  c.w_q.zero_point = {13};
  return c;
}

bool IsAmbiguous(const Case& c, const Tensor& y) { return Attribute(c, y).ambiguous; }
bool EndsAmbiguous(const MinimizeResult& result) {
  return IsAmbiguous(ProblemOf(result.minimized), result.minimized.observed.value().y);
}

MinimizeResult MinimizedTerm(const Case& c, TestSubject& subject, int64_t max_calls = 400) {
  Attribution known = Known({&Term()});
  known.diagnosis = "as it was told";
  return Minimize(c, subject, MatchesExact(), {.max_calls = max_calls, .attribution = &known});
}

TEST(ClearCase, IsTakenInsteadOfASimplerOneOfTheSameSize) {
  // It shows the cause on no larger case: what is known of it is not asked for again.
  const Case c = WithZeroPoints(2);
  TestSubject subject = Answers([&](const Case& asked) {
    return Complexity(asked) <= Complexity(c) ? With(asked, {&Term()}) : exact::Evaluate(asked);
  });
  const MinimizeResult result = MinimizedTerm(c, subject);
  EXPECT_FALSE(EndsAmbiguous(result));
  ExpectOneProduct(result);
  EXPECT_EQ(result.minimized.note, "as it was told");
  EXPECT_TRUE(result.verdict.failed());
  EXPECT_EQ(result.calls, subject.runs - 1) << "those of both searches";
  EXPECT_LE(result.calls, 68) << "memory and state were looked at before";
  TestSubject few = Kernel({&Term()});
  EXPECT_LE(MinimizedTerm(WithZeroPoints(2), few, 40).calls, 40);
}

// The first search examines the cause; the second one is told of it.
TEST(ClearCase, IsLookedForWithTheCauseThatIsKnown) {
  TestSubject subject = Kernel({&Term()});
  const MinimizeResult result =
      Minimize(WithZeroPoints(2), subject, MatchesExact(), {.max_calls = 400});
  EXPECT_FALSE(EndsAmbiguous(result));
  EXPECT_LE(result.calls, 260);
}

TEST(ClearCase, ThatIsFoundInASearchCutShortKnowsNoNeeds) {
  const auto of_three = [](const Case& c) {
    return c.K >= 3 ? With(c, {&Term()}) : exact::Evaluate(c);
  };
  TestSubject whole = Answers(of_three);
  const MinimizeResult ended = MinimizedTerm(WithZeroPoints(3), whole);
  EXPECT_FALSE(EndsAmbiguous(ended));
  EXPECT_EQ(ended.needs, Texts{"K >= 3"});
  TestSubject cut = Answers(of_three);
  const MinimizeResult early = MinimizedTerm(WithZeroPoints(3), cut, ended.calls - 8);
  EXPECT_FALSE(EndsAmbiguous(early));
  EXPECT_EQ(early.minimized.K, 3);
  EXPECT_EQ(early.needs, Texts{});
}

TEST(ClearCase, IsNotLookedForWhereTheCauseIsUnknown) {
  const Case c = WithZeroPoints(2);
  TestSubject subject = Kernel({&Term()});
  const Attribution unknown = Unknown({{&Term()}});
  const MinimizeResult result =
      Minimize(c, subject, MatchesExact(), {.max_calls = 400, .attribution = &unknown});
  EXPECT_LE(result.calls, 300)
      << "one search, what is asked about its end, and smaller drawn cases";
}

TEST(ClearCase, ThatIsLargerIsNotTaken) {
  // Shows a cause on a case of two terms, and on one of a single term where many causes fit.
  TestSubject subject = Answers([](const Case& c) {
    const Tensor y = With(c, {&Term()});
    return c.K >= 2 || y == exact::Evaluate(c) || IsAmbiguous(c, y) ? y : exact::Evaluate(c);
  });
  const MinimizeResult result = MinimizedTerm(WithZeroPoints(2), subject);
  EXPECT_EQ(result.minimized.K, 1);
  EXPECT_TRUE(EndsAmbiguous(result));
}

TEST(ClearCase, IsNotLookedForWhereThereIsNoNeed) {
  // Of a case of its own no clearer one is asked for: the first search had that choice.
  Case c = WithZeroPoints(1);
  c.x_q.zero_point = c.w_q.zero_point = {2};
  c.x.SetInt(0, 2);
  c.w.SetInt(0, 2);
  TestSubject subject = Kernel({&Term()});
  ASSERT_TRUE(IsAmbiguous(c, subject.Run(c, {}).y));
  EXPECT_LE(MinimizedTerm(c, subject).calls, 30);
  // Nor if the smallest case is clear.
  const Case pair = Sums(1, 1, 2, {200}, {110});
  const Cause& saturation = CauseNamed("pair saturation");
  TestSubject saturates = Kernel({&saturation});
  const Attribution known = Known({&saturation});
  const MinimizeResult result =
      Minimize(pair, saturates, MatchesExact(), {.max_calls = 400, .attribution = &known});
  EXPECT_FALSE(EndsAmbiguous(result));
  EXPECT_LE(result.calls, 200);
}

TEST(ClearCase, OfASubjectThatNoLongerFailsIsNone) {
  Case c = WithZeroPoints(1);
  int asked = 0;
  TestSubject subject = Answers([&](const Case& question) {
    return question == c && ++asked > 1 ? exact::Evaluate(question) : With(question, {&Term()});
  });
  const MinimizeResult result = MinimizedTerm(c, subject);
  EXPECT_GT(asked, 1);
  EXPECT_TRUE(result.verdict.failed());
  EXPECT_NE(ProblemOf(result.minimized), c);
}

// --- Smaller cases that no pass offers ----------------------------------------------------------

// Negative sums of 40 terms, of which no pass gets to one output with few terms in one step.
Case Long() {
  Case c = Sums(2, 2, 40, {100, 1, 50}, {-20, -1, 50});
  c.relu = true;
  return c;
}
bool IsLongOrShort(const Case& c) { return c == Long() || c.M * c.N * c.K <= 2; }

MinimizeResult MinimizedLong(TestSubject& subject, int64_t max_calls) {
  const Attribution known = Known({&Relu()});
  return Minimize(Long(), subject, MatchesExact(), {.max_calls = max_calls, .attribution = &known});
}

TEST(Restart, ReachesSmallCasesByComputing) {
  for (const int64_t most : {100, 2000}) {
    TestSubject subject = Answers(
        [](const Case& c) { return IsLongOrShort(c) ? With(c, {&Relu()}) : exact::Evaluate(c); });
    const MinimizeResult result = MinimizedLong(subject, most);
    ExpectOneProduct(result);  // half of the calls are left for it
    EXPECT_TRUE(result.minimized.relu);
    EXPECT_LE(result.calls, most);
  }
}

// A case of one term can be run only after one of two was. The passes then get to it.
TEST(Restart, TheDescentGoesOnFromThere) {
  bool seen = false;
  TestSubject subject = Answers([&](const Case& c) {
    seen = seen || c.K == 2;
    return IsLongOrShort(c) ? With(c, {&Relu()}) : exact::Evaluate(c);
  });
  subject.cannot_run = [&](const Case& c) { return c.K < 2 && !seen ? "too short" : ""; };
  const MinimizeResult result = MinimizedLong(subject, 2000);
  ExpectOneProduct(result);
}

// A case of one term can be run only when the descent from two has ended: a second restart is what
// asks about many cases without a run between them.
TEST(Restart, IsDoneTwice) {
  bool seen = false, open = false;
  int idle = 0;
  TestSubject subject = Answers([&](const Case& c) {
    idle = 0;
    seen = seen || (c.K == 2 && c.M * c.N == 1);
    return IsLongOrShort(c) ? With(c, {&Relu()}) : exact::Evaluate(c);
  });
  subject.cannot_run = [&](const Case& c) {
    open = open || (seen && ++idle > 200);
    return c.K < 2 && !open ? "too short" : "";
  };
  const MinimizeResult result = MinimizedLong(subject, 2000);
  ExpectOneProduct(result);
}

// --- Answers of chance --------------------------------------------------------------------------

// How often the same question was asked in a row.
std::vector<std::pair<Case, int>> InARow(const std::vector<Case>& asked) {
  std::vector<std::pair<Case, int>> rows;
  for (const Case& c : asked) {
    if (rows.empty() || rows.back().first != c) rows.emplace_back(c, 0);
    ++rows.back().second;
  }
  return rows;
}

Attribution OfChance() {
  Attribution attribution;
  attribution.kind = FindingKind::kNondeterminism;
  attribution.complete = true;
  return attribution;
}

// The first answer and the fifteen after it are wrong, and from then on all are right.
TEST(Chance, IsAskedForSixteenTimes) {
  std::vector<Case> asked;
  TestSubject subject([&](const Case& c, const RunContext&) {
    asked.push_back(c);
    return TestSubject::Good(asked.size() <= 16 ? OneMore(c) : exact::Evaluate(c));
  });
  const Attribution chance = OfChance();
  const Case c = Negative();
  const MinimizeResult result =
      Minimize(c, subject, MatchesExact(), {.max_calls = 200, .attribution = &chance});
  EXPECT_TRUE(result.reproduced);
  EXPECT_EQ(ProblemOf(result.minimized), c);
  const auto rows = InARow(asked);
  ASSERT_GE(rows.size(), 4U);
  EXPECT_EQ(rows[0].second, 1 + 16) << "whether the answer varies";
  EXPECT_EQ(rows[1].second, 16) << "each candidate";
  EXPECT_EQ(rows[2].second, 16);
  EXPECT_EQ(rows.back().first, c);
  EXPECT_EQ(rows.back().second, 32) << "a wrong answer for the file";
}

TEST(Chance, AnAnswerThatIsAlwaysWrongIsAskedForOnce) {
  std::vector<Case> asked;
  TestSubject subject([&](const Case& c, const RunContext&) {
    asked.push_back(c);
    return TestSubject::Good(c == Negative() ? OneMore(c) : exact::Evaluate(c));
  });
  const Attribution chance = OfChance();
  MinimizedFrom(chance, subject, {.max_calls = 100});
  const auto rows = InARow(asked);
  ASSERT_GE(rows.size(), 3U);
  EXPECT_EQ(rows[0].second, 1 + 16);
  EXPECT_EQ(rows[1].second, 1);
}

TEST(Chance, AWrongAnswerIsKept) {
  int calls = 0;
  TestSubject subject([&](const Case& c, const RunContext&) {
    return TestSubject::Good(++calls % 3 == 0 ? OneMore(c) : exact::Evaluate(c));
  });
  const Attribution chance = OfChance();
  const MinimizeResult result = MinimizedFrom(chance, subject);
  ASSERT_TRUE(result.reproduced);
  EXPECT_EQ(result.minimized.M * result.minimized.N, 1);
  EXPECT_LE(result.minimized.K, 1);
  ASSERT_TRUE(result.minimized.observed);
  EXPECT_NE(result.minimized.observed->y, *result.minimized.expected);
  EXPECT_EQ(result.attribution.kind, FindingKind::kNondeterminism);
}

// --- What the smallest case carries -------------------------------------------------------------

class Versioned : public TestSubject {
 public:
  using TestSubject::TestSubject;
  std::string Version() const override { return "1.2"; }
};

TEST(Smallest, CarriesClaimExpectedObservedAndNote) {
  // Any output that is not 0 is 1 too large, where the type has such a code.
  const auto wrong = [](const Case& c, const RunContext&) {
    Tensor y = exact::Evaluate(c);
    for (int64_t i = 0; i < y.size() && y.dtype() != DType::kF32; ++i) {
      const int32_t code = y.IntAt(i);
      y.SetInt(i, code == 0 || code == RangeOf(y.dtype()).max ? code : code + 1);
    }
    return TestSubject::Good(y);
  };
  Case c = ZeroLayer(2, 2, 2);
  c.x.SetInt(0, 3);
  c.w.SetInt(0, 4);
  Versioned subject(wrong);
  const MinimizeResult result = Minimize(c, subject, MatchesExact(), {.max_calls = 300});
  ASSERT_TRUE(result.reproduced);
  EXPECT_EQ(result.minimized.property, FullName(Op::kLinear, MatchesExact()));
  ASSERT_TRUE(result.minimized.expected);
  EXPECT_EQ(*result.minimized.expected, exact::Evaluate(result.minimized));
  ASSERT_TRUE(result.minimized.observed);
  EXPECT_EQ(result.minimized.observed->by, "test 1.2");
  EXPECT_EQ(result.minimized.observed->y, wrong(result.minimized, {}).y);
  EXPECT_NE(result.minimized.observed->y, *result.minimized.expected);
  EXPECT_EQ(result.minimized.note, result.attribution.diagnosis);
  EXPECT_NE(result.minimized.note, "");
  TestSubject unversioned(wrong);
  EXPECT_EQ(Minimize(c, unversioned, MatchesExact(), {.max_calls = 300}).minimized.observed->by,
            "test");
}

// The verdict and the cause speak of the smallest case, not of the one that was given.
TEST(Smallest, IsWhatVerdictAndDiagnosisSpeakOf) {
  TestSubject subject([](const Case& c, const RunContext&) -> Outcome {
    if (c.K < 3) return TestSubject::Good(exact::Evaluate(c));
    return {RunStatus::kCrashed, "died of " + std::to_string(c.K) + " terms", {}, {}};
  });
  const MinimizeResult result = Minimize(ZeroLayer(1, 1, 9), subject, MatchesExact());
  EXPECT_TRUE(Has(result.verdict.reason, "died of 3 terms"));
  EXPECT_TRUE(Has(result.attribution.diagnosis, "died of 3 terms"));
  EXPECT_EQ(result.calls, subject.runs - 1);
  TestSubject unable;
  unable.cannot_run = [](const Case&) { return "too long"; };
  const MinimizeResult none = Minimize(ZeroLayer(1, 1, 9), unable, MatchesExact());
  EXPECT_FALSE(none.reproduced);
  EXPECT_EQ(none.verdict.judgement, Judgement::kSkipped);
}

TEST(Smallest, HoldsNoAnswerThatIsNone) {
  TestSubject spoils([](const Case& c, const RunContext&) -> Outcome {
    return {RunStatus::kModifiedInput, "wrote over x", exact::Evaluate(c), {}};
  });
  EXPECT_FALSE(Minimize(ZeroLayer(1, 1, 1), spoils, MatchesExact()).minimized.observed);
  TestSubject other_shape([](const Case& c, const RunContext&) {
    return TestSubject::Good(Tensor(c.out_dtype, {c.M, c.N + 1}));
  });
  const MinimizeResult result =
      Minimize(ZeroLayer(1, 1, 1), other_shape, MatchesExact(), {.max_calls = 50});
  EXPECT_FALSE(result.minimized.observed);
}

// Two products of 255 * 127 saturate in the convention, which is right by its own claim alone.
TEST(Smallest, ExpectsWhatTheClaimSays) {
  Case c = ZeroLayer(1, 1, 2);
  for (int64_t i = 0; i < 2; ++i) c.x.SetInt(i, 255), c.w.SetInt(i, 127);
  c.out_q.scale = {1024};
  ASSERT_EQ(Validate(c), "");
  const Convention& model = *FindConvention("fbgemm@avx2");
  ASSERT_EQ(model.cannot_run(c), "");
  const Tensor right = model.run(c).y;
  ASSERT_NE(right, exact::Evaluate(c));
  TestSubject subject = CrashesWhere([](const Case&) { return true; });
  subject.set_contract({model.name});
  const auto expected = [&](const char* claim) {
    return Minimize(c, subject, *FindProperty(claim), {.max_calls = 1}).minimized.expected;
  };
  EXPECT_EQ(expected("matches_model"), right);
  EXPECT_EQ(expected("same_bits_twice"), exact::Evaluate(c));
}

}  // namespace
}  // namespace qualm::triage
