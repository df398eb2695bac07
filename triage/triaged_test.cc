// SPDX-License-Identifier: Apache-2.0
// What becomes of one finding: whether it fails again, whose fault it is, and what its reader is
// told.
#include "triage/triaged.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/text_test_util.h"
#include "triage/fault_test_util.h"

namespace qualm::triage {
namespace {

constexpr const char* kAgain = "; did not fail when it was run again";
constexpr const char* kNotLikeThis = "; did not fail like this when it was run again";

Finding Found(const Case& c, Kind kind = Kind::kUnknown, std::string explanation = "seen once") {
  Finding finding(c, "matches_exact", "test", {});
  finding.kind = kind;
  finding.explanation = std::move(explanation);
  return finding;
}

TestSubject With(const Hypothesis& causes) { return Kernel(causes); }

TEST(Triaged, ACauseThatIsNamedIsSure) {
  const Hypothesis cause = Named({"weight zero point ignored"});
  TestSubject subject = With(cause);
  const Triaged triaged(Found(Layer(2, 3, 5)), subject);
  EXPECT_TRUE(triaged.sure());
  EXPECT_EQ(triaged.causes(), cause);
  EXPECT_EQ(triaged.attribution().kind, Kind::kZeroPoint);
  EXPECT_EQ(triaged.finding().kind, Kind::kZeroPoint);
  EXPECT_TRUE(triaged.finding().first_divergence);
  EXPECT_TRUE(
      Has(triaged.finding().explanation, "; the subject ignores the weight zero point; exact"));
  EXPECT_EQ(triaged.Text(), FindingText(triaged.finding()));
}

TEST(Triaged, TwoCausesAreNotSure) {
  const Hypothesis both = Named({"weight zero point ignored", "last product dropped"});
  TestSubject subject = With(both);
  const Triaged triaged(Found(Layer(3, 3, 5)), subject);
  EXPECT_EQ(triaged.causes(), both);
  EXPECT_FALSE(triaged.sure()) << "a smaller case may tell which of them it is";
}

TEST(Triaged, AConditionThatAnotherFailureRefutesIsTakenBack) {
  const Hypothesis cause = Named({"weight zero point ignored"});
  TestSubject subject = Answers([&](const Case& of) {
    return of.N == 1 ? Counterfactual(of, cause).value_or(Right(of)) : Right(of);
  });
  Triaged triaged(Found(Layer(2, 1, 5)), subject);
  const std::string told = "the subject ignores the weight zero point, ";
  EXPECT_EQ(triaged.attribution().diagnosis, told + "where N is 1");
  EXPECT_FALSE(triaged.attribution().where.holds(Layer(2, 3, 5)));
  triaged.Minimize();
  triaged.DropCondition();
  EXPECT_EQ(triaged.attribution().diagnosis, told + "in some cases");
  EXPECT_TRUE(triaged.attribution().where.holds(Layer(2, 3, 5)));
  ASSERT_TRUE(triaged.small());
  EXPECT_EQ(triaged.small()->minimized.note, told + "in some cases");
  EXPECT_FALSE(Has(triaged.Text(), "where N is 1"));
}

TEST(Triaged, AGuessIsNotSureAndNoCause) {
  const Case c = Layer(2, 6, 1);
  const Tensor y = Plus(Plus(Right(c), 0, 1'234'567), 10, 7'654'321);
  TestSubject subject = Answers([&](const Case& of) { return of == c ? y : Right(of); });
  const Triaged triaged(Found(c), subject);
  EXPECT_FALSE(triaged.sure());
  EXPECT_TRUE(triaged.causes().empty());
  EXPECT_EQ(triaged.finding().kind, Kind::kUnknown);
}

TEST(Triaged, WhatDoesNotFailAgainVaries) {
  TestSubject subject;
  Triaged triaged(Found(Layer(2, 3, 5), Kind::kRounding), subject);
  EXPECT_EQ(subject.runs, 16) << "a fault of chance may need several runs";
  EXPECT_EQ(triaged.finding().kind, Kind::kNondeterminism);
  EXPECT_EQ(triaged.finding().explanation, std::string("seen once") + kAgain);
  EXPECT_TRUE(triaged.sure());
  EXPECT_TRUE(triaged.causes().empty());
  triaged.Minimize();
  EXPECT_EQ(subject.runs, 16) << "there is nothing to minimize";
  EXPECT_FALSE(triaged.small());
}

// A run that crashes or hangs may cost the whole time limit.
TEST(Triaged, ACrashOrAHangIsRunFourTimesAtMost) {
  for (const Kind kind : {Kind::kCrash, Kind::kHang}) {
    TestSubject subject;
    const Triaged triaged(Found(Layer(2, 3, 5), kind), subject);
    EXPECT_EQ(subject.runs, 4);
    EXPECT_EQ(triaged.finding().kind, Kind::kNondeterminism);
    EXPECT_EQ(triaged.finding().explanation, std::string("seen once") + kAgain);
  }
}

TEST(Triaged, TheFirstRunThatFailsIsLookedAt) {
  const Case c = Layer(2, 3, 5);
  const Hypothesis cause = Named({"weight zero point ignored"});
  int64_t asked = 0;
  TestSubject subject =
      Answers([&](const Case& of) { return ++asked < 16 ? Right(of) : With(of, cause); });
  const Triaged triaged(Found(c), subject);
  EXPECT_EQ(triaged.finding().kind, Kind::kZeroPoint);
  asked = -1;
  const Triaged late(Found(c), subject);
  EXPECT_EQ(late.finding().kind, Kind::kNondeterminism) << "the seventeenth run would fail";
}

TEST(Triaged, ACrashThatComesAgainIsACrash) {
  TestSubject subject([](const Case&, const RunContext&) {
    return Outcome{RunStatus::kCrashed, "SIGSEGV", {}, {}};
  });
  const Triaged triaged(Found(Layer(2, 3, 5), Kind::kCrash), subject);
  EXPECT_EQ(subject.runs, 1);
  EXPECT_EQ(triaged.finding().kind, Kind::kCrash);
  EXPECT_TRUE(triaged.sure());
  EXPECT_TRUE(Has(triaged.finding().explanation, "SIGSEGV"));
}

// The wrong numbers would be reported in place of the crash, which is the rarer fault.
TEST(Triaged, WrongNumbersAreNotTheCrashThatWasSeen) {
  const Hypothesis cause = Named({"weight zero point ignored"});
  for (const Kind kind : {Kind::kCrash, Kind::kHang}) {
    TestSubject subject = With(cause);
    const Triaged triaged(Found(Layer(2, 3, 5), kind), subject);
    EXPECT_EQ(triaged.finding().kind, Kind::kNondeterminism);
    EXPECT_EQ(triaged.finding().explanation, std::string("seen once") + kNotLikeThis);
    EXPECT_TRUE(triaged.causes().empty());
    EXPECT_TRUE(triaged.sure());
  }
}

// What a call left behind is there, whether or not the next call leaves it too.
TEST(Triaged, WhatWasLeftBehindStaysTheFinding) {
  TestSubject subject;
  const std::string left(Name(RunStatus::kLeftBehind));
  const Triaged triaged(Found(Layer(2, 3, 5), Kind::kMemory, left + ": a thread"), subject);
  EXPECT_EQ(triaged.finding().kind, Kind::kMemory);
  EXPECT_EQ(triaged.finding().explanation, left + ": a thread" + kAgain);
  const Triaged other(Found(Layer(2, 3, 5), Kind::kMemory, "a thread was " + left), subject);
  EXPECT_EQ(other.finding().kind, Kind::kNondeterminism);
}

// A subject that hung too often is given up.
TEST(Triaged, ASubjectThatAnswersNothingAnyMoreLeavesTheFindingAsItIs) {
  TestSubject subject([](const Case&, const RunContext&) {
    return Outcome{RunStatus::kSkipped, "hung too often", {}, {}};
  });
  Triaged triaged(Found(Layer(2, 3, 5), Kind::kHang), subject);
  EXPECT_EQ(subject.runs, 1);
  EXPECT_EQ(triaged.finding().kind, Kind::kHang);
  EXPECT_EQ(triaged.finding().explanation, "seen once");
  EXPECT_TRUE(triaged.sure());
  triaged.Minimize();
  EXPECT_EQ(subject.runs, 1);
}

// A departure that the contract declares has a name: its cause is not looked for by further cases.
TEST(Triaged, WhatIsDeclaredCostsNoFurtherCases) {
  const Hypothesis cause = Named({"weight zero point ignored"});
  TestSubject subject = With(cause);
  Finding finding = Found(Layer(2, 3, 5));
  finding.expected_by_contract = true;
  const Triaged triaged(finding, subject);
  EXPECT_EQ(triaged.causes(), cause);
  EXPECT_EQ(subject.runs, 4);
  TestSubject asked = With(cause);
  const Triaged other(Found(Layer(2, 3, 5)), asked);
  EXPECT_GT(asked.runs, 6);
}

TEST(Triaged, AnEstablishedCauseIsNamedFirst) {
  // Without zero points nothing tells a dropped term from a dropped product.
  Case c = Layer(2, 2, 6);
  c.x_q.zero_point = c.w_q.zero_point = {0};
  const Hypothesis term = Named({"last term dropped"});
  TestSubject subject = With(Named({"last product dropped"}));
  const Triaged triaged(Found(c), subject, nullptr, AllNamed(Op::kLinear, {term}));
  EXPECT_EQ(triaged.causes(), term);
  Triaged small(Found(c), subject, nullptr, AllNamed(Op::kLinear, {term}));
  small.Minimize();
  EXPECT_EQ(small.causes(), term) << "also when it is minimized";
}

// ---- A cause that makes the finding a known one.

// The bias is as large as the product, and the subject answers this one case: either cause fits.
struct Ambiguous {
  Case c = [] {
    Case made = Layer(1, 1, 1);
    made.x_q.zero_point = made.w_q.zero_point = {0};
    made.bias_i32 = {made.x.IntAt(0) * made.w.IntAt(0)};
    return made;
  }();
  const Hypothesis tail = Named({"last product dropped"}), bias = Named({"bias ignored"});
  Finding declared = [this] {
    Finding finding = Found(c);
    finding.expected_by_contract = true;
    return finding;
  }();
};

TEST(KnownFindings, ACauseThatMakesTheFindingKnownIsTaken) {
  const Ambiguous ambiguous;
  TestSubject subject = With(ambiguous.tail);
  std::vector<Kind> asked;
  const auto known = [&](Kind kind) {
    return [&asked, kind](const Finding& finding) {
      asked.push_back(finding.kind);
      EXPECT_EQ(finding.property, "matches_exact");
      return finding.kind == kind;
    };
  };
  const Triaged index(ambiguous.declared, subject, known(Kind::kIndex));
  EXPECT_EQ(index.causes(), ambiguous.bias);
  EXPECT_EQ(index.finding().kind, Kind::kIndex);
  EXPECT_EQ(asked, (std::vector{Kind::kTail, Kind::kTail, Kind::kIndex}));
  asked.clear();
  const Triaged tail(ambiguous.declared, subject, known(Kind::kTail));
  EXPECT_EQ(tail.causes(), ambiguous.tail);
  EXPECT_EQ(asked, std::vector{Kind::kTail}) << "the likeliest cause is known";
  // It is minimized as that cause, too.
  Triaged small(ambiguous.declared, subject, known(Kind::kIndex));
  small.Minimize();
  ASSERT_TRUE(small.small());
  EXPECT_EQ(small.small()->attribution.causes, ambiguous.bias);
  EXPECT_EQ(Triaged(ambiguous.declared, subject).causes(), ambiguous.tail) << "nothing is known";
  const Triaged none(ambiguous.declared, subject, known(Kind::kClamp));
  EXPECT_EQ(none.causes(), ambiguous.tail);
  // A subject that has only one cause.
  TestSubject one = With(Named({"weight zero point ignored"}));
  asked.clear();
  const Triaged only(Found(Layer(2, 3, 5)), one, known(Kind::kIndex));
  EXPECT_EQ(only.finding().kind, Kind::kZeroPoint);
  EXPECT_TRUE(asked.empty());
}

// The other cause is looked at once more: the subject must fail again, and by that cause.
TEST(KnownFindings, ACauseThatDoesNotShowAgainIsNotTaken) {
  const Ambiguous ambiguous;
  const auto known = [](const Finding& finding) { return finding.kind == Kind::kIndex; };
  for (const bool passes : {true, false}) {
    TestSubject subject = Answers([&](const Case& c) {
      // The property's run, then three questions of the same; the fifth is the second look.
      return subject.runs < 5 ? With(c, ambiguous.tail) : passes ? Right(c) : Plus(Right(c), 0, 1);
    });
    const Triaged triaged(ambiguous.declared, subject, known);
    EXPECT_EQ(subject.runs, 5);
    EXPECT_EQ(triaged.causes(), ambiguous.tail) << passes;
    EXPECT_EQ(triaged.finding().kind, Kind::kTail) << passes;
  }
}

// ---- Minimized.

// In one row the answer has one cause; in several rows something else is wrong too.
TEST(MinimizedFinding, ASmallCaseMayShowTheCause) {
  const Hypothesis cause = Named({"weight zero point ignored"});
  TestSubject subject = Answers([&](const Case& c) {
    const bool more = c.M > 1 && c.N > 0 && c.K > 0 && c.out_dtype == DType::kS32;
    return more ? Plus(With(c, cause), 0, 1'000'001 + c.x.IntAt(0) * c.w.IntAt(0)) : With(c, cause);
  });
  Triaged triaged(Found(Layer(2, 1, 2)), subject);
  ASSERT_FALSE(triaged.sure());
  const std::string before = triaged.finding().explanation;
  triaged.Minimize();
  ASSERT_TRUE(triaged.small());
  EXPECT_EQ(triaged.finding().kind, Kind::kZeroPoint);
  EXPECT_EQ(triaged.causes(), cause);
  EXPECT_EQ(triaged.finding().explanation,
            before + "; minimized: the subject ignores the weight zero point");
}

// Small cases show a fault that is established under another name.
TEST(MinimizedFinding, NamesWhatIsEstablished) {
  Case c = Layer(2, 1, 2);
  c.x_q.zero_point = c.w_q.zero_point = {0};
  const Hypothesis product = Named({"last product dropped"}), term = Named({"last term dropped"});
  TestSubject subject = Answers([&](const Case& of) {
    const bool more = of.M > 1 && of.N > 0 && of.K > 0 && of.out_dtype == DType::kS32;
    return more ? Plus(With(of, product), 0, 1'000'001 + of.x.IntAt(0) * of.w.IntAt(0))
                : With(of, product);
  });
  Triaged triaged(Found(c), subject, nullptr, AllNamed(Op::kLinear, {term}));
  ASSERT_FALSE(triaged.sure());
  triaged.Minimize();
  ASSERT_TRUE(triaged.small());
  EXPECT_EQ(triaged.causes(), term);
}

// The kind of a guess stays where the small case shows no more.
TEST(MinimizedFinding, AGuessStaysWhereNoCauseIsShown) {
  const Case c = Layer(1, 5, 3);
  // One channel is wrong in the last of five columns.
  TestSubject subject = Answers([&](const Case& of) {
    const bool wrong = of.M > 0 && of.N == 5 && of.K > 0 && of.out_dtype == DType::kS32 &&
                       of.w.IntAt(4 * of.K) == c.w.IntAt(12);
    return wrong ? Plus(Right(of), 4, 1'234'567) : Right(of);
  });
  Finding finding = Found(c);
  finding.expected_by_contract = true;
  Triaged triaged(finding, subject);
  ASSERT_EQ(triaged.finding().kind, Kind::kTail);
  triaged.Minimize();
  ASSERT_TRUE(triaged.small());
  EXPECT_FALSE(triaged.small()->attribution.complete);
  EXPECT_EQ(triaged.finding().kind, Kind::kTail);
}

// A search that is stopped may have nothing to say of the small case.
TEST(MinimizedFinding, ThatIsStoppedSaysNoMore) {
  const Case c = Layer(3, 1, 7);
  // One row fails too, and no other case that is simpler.
  TestSubject subject = Answers([&](const Case& of) {
    const bool wrong = of.M > 0 && of.w == c.w && of.w_q == c.w_q && of.x_q == c.x_q;
    return wrong ? Plus(Right(of), 0, 1'234'567 + of.x.IntAt(0)) : Right(of);
  });
  Triaged triaged(Found(c), subject);
  const std::string before = triaged.finding().explanation;
  // Long after the last case that fails: no answer to it is remembered.
  const int64_t most = subject.runs + 70;
  triaged.Minimize({.stop = [&] { return subject.runs >= most; }});
  ASSERT_TRUE(triaged.small());
  EXPECT_EQ(triaged.small()->minimized.M, 1);
  ASSERT_EQ(triaged.small()->attribution.diagnosis, "");
  EXPECT_EQ(triaged.finding().explanation, before);
}

TEST(MinimizedFinding, TellsWhatDidNotMatterAndWhatIsNeeded) {
  TestSubject subject = Answers([](const Case& c) {
    return c.K > 3 && c.M > 0 && c.N > 3 && c.out_dtype == DType::kS32
               ? Plus(Right(c), 3, 1'000'001)
               : Right(c);
  });
  Triaged triaged(Found(Layer(1, 5, 4)), subject);
  triaged.Minimize();
  ASSERT_TRUE(triaged.small());
  EXPECT_EQ(triaged.finding().kind, Kind::kUnknown);
  EXPECT_TRUE(
      Ends(triaged.finding().explanation, "; minimized: no known cause gives every output"));
  const std::string of_case =
      Explain(triaged.small()->minimized, {&subject}, {.attribution = &triaged.attribution()});
  EXPECT_EQ(triaged.Text(), FindingText(triaged.finding()) + "\nminimized in " +
                                std::to_string(triaged.small()->calls) +
                                " subject calls\n"
                                "irrelevant: input zero point, weight zero point, other channels\n"
                                "of the cases tried here only those with K >= 4, N >= 4 fail\n" +
                                of_case);
}

// A cause that was sure before is not told twice, and what cannot be spared takes no line.
TEST(MinimizedFinding, OfASureCauseAddsNothingToTheFinding) {
  Case c = Layer(1, 1, 1);
  c.x = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{1});
  c.w = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{0});
  c.x_q.zero_point = {0}, c.w_q.zero_point = {1};
  TestSubject subject = With(Named({"weight zero point ignored"}));
  Triaged triaged(Found(c), subject);
  ASSERT_TRUE(triaged.sure());
  const Finding before = triaged.finding();
  triaged.Minimize();
  ASSERT_TRUE(triaged.small());
  EXPECT_EQ(triaged.small()->minimized.x, c.x);
  EXPECT_EQ(triaged.finding().explanation, before.explanation);
  EXPECT_FALSE(Has(triaged.Text(), "irrelevant"));
  EXPECT_FALSE(Has(triaged.Text(), "of the cases tried"));
  EXPECT_TRUE(Begins(triaged.Text(), FindingText(before) + "\nminimized in " +
                                         std::to_string(triaged.small()->calls) +
                                         " subject calls\nlinear M=1"));
}

TEST(MinimizedFinding, ThatDoesNotFailAnyMoreIsLeftAsItIs) {
  const Hypothesis cause = Named({"weight zero point ignored"});
  bool healed = false;
  TestSubject subject = Answers([&](const Case& c) { return healed ? Right(c) : With(c, cause); });
  Triaged triaged(Found(Layer(2, 3, 5)), subject);
  const std::string before = triaged.Text();
  healed = true;
  triaged.Minimize();
  EXPECT_FALSE(triaged.small());
  EXPECT_EQ(triaged.Text(), before);
}

// ---- The text of a finding.

TEST(FindingTexts, HaveALineForWhatIsKnown) {
  Finding finding = Found(Layer(1, 1, 1), Kind::kTail, "departs");
  EXPECT_EQ(FindingText(finding),
            "FINDING: linear.matches_exact fails on test [tail]\n  departs\n");
  finding.first_divergence = Divergence{3, "7", "9", 2};
  EXPECT_EQ(FindingText(finding),
            "FINDING: linear.matches_exact fails on test [tail]\n"
            "  at index 3: expected 7, actual 9 (2 lsb)\n  departs\n");
  finding.first_divergence = Divergence{0, "0x1p+0", "0x1.000004p+0", 2};
  EXPECT_EQ(FindingText(finding),
            "FINDING: linear.matches_exact fails on test [tail]\n"
            "  at index 0: expected 0x1p+0, actual 0x1.000004p+0 (2 ulp)\n  departs\n");
  finding.first_divergence = Divergence{3, "at least 0", "-1", 0};
  finding.explanation.clear();
  finding.case_file = "/nowhere/near.case.json";
  EXPECT_EQ(FindingText(finding),
            "FINDING: linear.matches_exact fails on test [tail]\n"
            "  at index 3: expected at least 0, actual -1\n  case: /nowhere/near.case.json\n");
  finding.first_divergence.reset();
  finding.case_file.clear();
  finding.expected_by_contract = true;
  EXPECT_EQ(FindingText(finding), "expected: linear.matches_exact fails on test [tail]\n");
  EXPECT_EQ(FindingText(finding, "known"), "known: linear.matches_exact fails on test [tail]\n");
}

}  // namespace
}  // namespace qualm::triage
