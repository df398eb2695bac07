// SPDX-License-Identifier: Apache-2.0
// What attribution says of answers that were made for it: by subjects of one known fault, judged by
// a property that the test makes up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/slice.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "properties/test_subject.h"
#include "triage/causes.h"
#include "triage/fault_test_util.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

// A property that asks what the test says and gives the verdict that the test says.
std::function<Verdict(const Case&, Subject&)> judging;
Judged JudgedBy(std::function<Verdict(const Case&, Subject&)> judge, const Case& c,
                Subject& subject, const AttributionOptions& options) {
  judging = std::move(judge);
  Property property{.claim = "of_the_test",
                    .sentence = "The test says so.",
                    .ops = {AllOps().begin(), AllOps().end()},
                    .any_contract = true,
                    .check = [](const Case& of, Subject& asked) { return judging(of, asked); }};
  return JudgeAndAttribute(property, c, subject, options);
}

// Asks the case in each of the contexts, and fails.
auto AskedIn(std::vector<RunContext> contexts) {
  return [contexts = std::move(contexts)](const Case& c, Subject& subject) {
    for (const RunContext& context : contexts) subject.Run(c, context);
    return Verdict::Failed("differs");
  };
}
Verdict AskOnce(const Case& c, Subject& subject) {
  subject.Run(c, {});
  return Verdict::Failed("is wrong");
}
RunContext InMode(Rounding rounding, bool flush = false) {
  RunContext context;
  context.rounding = rounding, context.flush_denormals = flush;
  return context;
}
RunContext Poisoned(uint8_t poison) {
  RunContext context;
  context.poison = poison;
  return context;
}

// Looks at the recorded answers, asks nothing more and names nothing that is not established.
constexpr AttributionOptions kLooks{.only_established = true, .probe_state = false};
// The same, but asks again.
constexpr AttributionOptions kAsks{.only_established = true, .probe_state = true};
// The one answer decides.
constexpr AttributionOptions kOneAnswer{.probe_state = false};
constexpr const char* kNothing = "no established cause";

// ---- What a property already knows.

TEST(FromVerdict, AnAnswerThatPassesHasNoCause) {
  TestSubject subject;
  const Judged judged = JudgedBy([](const Case&, Subject&) { return Verdict::Passed(); },
                                 Layer(1, 1, 1), subject, {});
  EXPECT_FALSE(judged.verdict.failed());
  EXPECT_FALSE(judged.attribution.complete);
  EXPECT_EQ(judged.attribution.diagnosis, "");
}

TEST(FromVerdict, TheKindOfThePropertyIsTheCause) {
  TestSubject subject =
      Answers([](const Case& c, const RunContext&) { return Plus(Right(c), 0, 1); });
  const auto judge = [](const Case& c, Subject& asked) {
    asked.Run(c, {});
    Verdict verdict = Verdict::Failed("wrote before the start of y");
    verdict.kind = Kind::kMemory;
    return verdict;
  };
  for (const bool probes : {true, false}) {
    subject.runs = 0;
    const Judged judged = JudgedBy(judge, Layer(1, 1, 1), subject, {.probe_state = probes});
    EXPECT_EQ(judged.attribution.kind, Kind::kMemory);
    EXPECT_EQ(judged.attribution.diagnosis, "wrote before the start of y");
    EXPECT_TRUE(judged.attribution.complete);
    EXPECT_EQ(subject.runs, probes ? 4 : 1);
  }
}

TEST(FromVerdict, AKindThatIsNoStateCostsNoFurtherRun) {
  TestSubject subject =
      Answers([](const Case& c, const RunContext&) { return Plus(Right(c), 0, 1); });
  const auto judge = [](const Case& c, Subject& asked) {
    asked.Run(c, {});
    Verdict verdict = Verdict::Failed("hung");
    verdict.kind = Kind::kHang;
    return verdict;
  };
  const Judged judged = JudgedBy(judge, Layer(1, 1, 1), subject, {});
  EXPECT_EQ(judged.attribution.kind, Kind::kHang);
  EXPECT_EQ(subject.runs, 1);
}

// A property of the clamp says where an output went wrong, which is no cause.
TEST(FromVerdict, TheClampIsAPlaceAndNoCause) {
  const Case c = Layer(1, 1, 2);
  const auto clamp = [](const Case& of, Subject& asked) {
    asked.Run(of, {});
    Verdict verdict = Verdict::Failed("lies beyond the clamp");
    verdict.kind = Kind::kClamp;
    return verdict;
  };
  TestSubject right;
  const Attribution none = JudgedBy(clamp, c, right, kOneAnswer).attribution;
  EXPECT_EQ(none.kind, Kind::kClamp);
  EXPECT_EQ(none.diagnosis, "every answer is exact");
  EXPECT_FALSE(none.complete);
  TestSubject stranger =
      Answers([](const Case& of, const RunContext&) { return Plus(Right(of), 0, 1234567); });
  const Attribution unknown = JudgedBy(clamp, c, stranger, kOneAnswer).attribution;
  EXPECT_EQ(unknown.kind, Kind::kClamp);
  EXPECT_FALSE(unknown.complete);
  const Hypothesis cause = Named({"weight zero point ignored"});
  TestSubject faulty = Answers([&](const Case& of, const RunContext&) { return With(of, cause); });
  const Attribution known = JudgedBy(clamp, c, faulty, kOneAnswer).attribution;
  EXPECT_EQ(known.kind, Kind::kZeroPoint);
  EXPECT_TRUE(known.complete);
  // Without such a verdict an unknown cause stays unknown.
  EXPECT_EQ(JudgedBy(AskOnce, c, stranger, kOneAnswer).attribution.kind, Kind::kUnknown);
}

TEST(FromVerdict, RightAnswersAreSaidToBeRight) {
  TestSubject subject;
  const Case c = Layer(1, 1, 2);
  EXPECT_EQ(JudgedBy(AskOnce, c, subject, kOneAnswer).attribution.kind, Kind::kUnknown);
  const Convention& model = *FindConvention("fbgemm@avx2");
  Case codes = c;
  codes.out_dtype = DType::kU8;
  OpenClamp(&codes);
  ASSERT_EQ(model.cannot_run(codes), "");
  TestSubject promised =
      Answers([&](const Case& of, const RunContext&) { return model.run(of).y; });
  promised.set_contract({model.name});
  EXPECT_EQ(JudgedBy(AskOnce, codes, promised, kOneAnswer).attribution.diagnosis,
            "every answer is the one of model:fbgemm@avx2");
}

// ---- What is looked at: the answers that the property saw.

TEST(RecordedAnswers, AnswersOfAnotherShapeOrTypeAndFailedRunsAreNotLookedAt) {
  const Case c = Layer(2, 2, 3);
  const std::vector<Outcome> outcomes{
      TestSubject::Good(Tensor(DType::kS32, {4, 1})), TestSubject::Good(Tensor(DType::kU8, {2, 2})),
      Outcome{RunStatus::kCrashed, "SIGSEGV", Plus(Right(c), 0, 1), {}}};
  for (const Outcome& outcome : outcomes) {
    TestSubject subject([&](const Case&, const RunContext&) { return outcome; });
    const Judged judged = JudgedBy(AskOnce, c, subject, kOneAnswer);
    EXPECT_EQ(judged.attribution.diagnosis, "every answer is exact");
  }
}

TEST(RecordedAnswers, AnAnswerAmongManyIsLookedAt) {
  const Case c = Layer(2, 2, 3);
  const auto judge = [](const Case& of, Subject& asked) {
    const Case first = slice::Rows(of, std::vector<int64_t>{0}),
               second = slice::Rows(of, std::vector<int64_t>{1});
    asked.RunMany(std::vector{first, second}, {});
    return Verdict::Failed("differs");
  };
  const Hypothesis cause = Named({"weight zero point ignored"});
  const Tensor one = Right(slice::Rows(c, std::vector<int64_t>{0}));
  TestSubject subject = Answers(
      [&](const Case& of, const RunContext&) { return Right(of) == one ? one : With(of, cause); });
  EXPECT_EQ(JudgedBy(judge, c, subject, kOneAnswer).attribution.causes, cause);
}

// Properties may ask one question a hundred times: that is one answer, and what comes after it is
// looked at too.
TEST(RecordedAnswers, TheSameAnswerCountsOnce) {
  const Case c = Layer(1, 2, 3);
  const Hypothesis cause = Named({"weight zero point ignored"});
  TestSubject subject = Answers(
      [&](const Case& of, const RunContext&) { return of.x == c.x ? Right(of) : With(of, cause); });
  const auto judge = [](const Case& of, Subject& asked) {
    for (int i = 0; i < 100; ++i) asked.Run(of, {});
    Case other = of;
    other.x.SetInt(0, of.x.IntAt(0) ^ 1);
    asked.Run(other, {});
    return Verdict::Failed("differs");
  };
  EXPECT_EQ(JudgedBy(judge, c, subject, kOneAnswer).attribution.causes, cause);
}

// Two questions may have one answer, which is wrong for one of them; and one question two answers.
TEST(RecordedAnswers, AreTakenWithTheirQuestions) {
  Case first = Layer(1, 2, 3);
  first.w_q.zero_point = {0};
  const auto judge = [](const Case& of, Subject& asked) {
    asked.Run(of, {});
    Case second = of;
    second.w_q.zero_point = {5};
    asked.Run(second, {});
    return Verdict::Failed("differs");
  };
  const Hypothesis cause = Named({"weight zero point ignored"});
  TestSubject subject = Answers([&](const Case& of, const RunContext&) { return With(of, cause); });
  EXPECT_EQ(JudgedBy(judge, first, subject, kOneAnswer).attribution.causes, cause);
  TestSubject later = Answers([&](const Case& of, const RunContext&) {
    return later.runs == 1 ? Right(of) : Plus(Right(of), 0, 1);
  });
  const auto twice = AskedIn({{}, {}});
  EXPECT_EQ(JudgedBy(twice, first, later, kLooks).attribution.diagnosis, kNothing);
}

// A property that asks a subject without end must not make attribution endless.
TEST(RecordedAnswers, TheFirst64AreKept) {
  const Case c = Layer(1, 2, 3);
  const Hypothesis cause = Named({"weight zero point ignored"});
  const auto judge = [](const Case& of, Subject& asked) {
    for (int32_t i = 0; i < 65; ++i) {
      Case each = of;
      each.x.SetInt(0, i);
      asked.Run(each, {});
    }
    return Verdict::Failed("differs");
  };
  for (const int32_t wrong : {63, 64}) {
    TestSubject subject = Answers([&](const Case& of, const RunContext&) {
      return of.x.IntAt(0) == wrong ? With(of, cause) : Right(of);
    });
    EXPECT_EQ(JudgedBy(judge, c, subject, kOneAnswer).attribution.complete, wrong == 63);
  }
}

// ---- The state of the caller.

TEST(Environment, AnAnswerThatFollowsTheRoundingModeIsRounding) {
  const Case c = Layer(1, 2, 3);
  TestSubject subject = Answers([](const Case& of, const RunContext& context) {
    return context.rounding == Rounding::kNearest ? Right(of) : Plus(Right(of), 1, 1);
  });
  for (const bool changed_first : {false, true}) {
    std::vector<RunContext> contexts{{}, InMode(Rounding::kUp)};
    if (changed_first) std::swap(contexts[0], contexts[1]);
    const Attribution found = JudgedBy(AskedIn(contexts), c, subject, kLooks).attribution;
    EXPECT_EQ(found.kind, Kind::kRounding);
    EXPECT_EQ(found.diagnosis, "the subject rounds as its caller's rounding mode says");
    EXPECT_TRUE(found.complete);
  }
}

TEST(Environment, AnAnswerThatFollowsTheFlushingOfDenormalsIsRounding) {
  const Case c = Layer(1, 2, 3);
  TestSubject subject = Answers([](const Case& of, const RunContext& context) {
    return context.flush_denormals ? Plus(Right(of), 1, 1) : Right(of);
  });
  const Attribution found =
      JudgedBy(AskedIn({{}, InMode(Rounding::kNearest, true)}), c, subject, kLooks).attribution;
  EXPECT_EQ(found.kind, Kind::kRounding);
  EXPECT_EQ(found.diagnosis, "the subject flushes denormals where its caller does");
  EXPECT_TRUE(found.complete);
}

// The property asked in a third context first, and got what it gets in the usual one.
TEST(Environment, IsComparedWithTheUsualContextWhateverWasAskedBefore) {
  const Case c = Layer(1, 2, 3);
  TestSubject subject = Answers([](const Case& of, const RunContext& context) {
    return context.rounding == Rounding::kNearest ? Right(of) : Plus(Right(of), 1, 1);
  });
  EXPECT_EQ(JudgedBy(AskedIn({Poisoned(8), {}, InMode(Rounding::kUp)}), c, subject, kLooks)
                .attribution.kind,
            Kind::kRounding);
}

TEST(Environment, IsNotBlamedForWhatOtherThingsChange) {
  const Case c = Layer(1, 2, 3);
  // Wrong in both modes alike.
  TestSubject wrong =
      Answers([](const Case& of, const RunContext&) { return Plus(Right(of), 0, 1); });
  EXPECT_EQ(JudgedBy(AskedIn({{}, InMode(Rounding::kUp)}), c, wrong, kLooks).attribution.diagnosis,
            kNothing);
  // Another fill of the memory, and no other mode.
  TestSubject of_poison = Answers([](const Case& of, const RunContext& context) {
    return context.poison == 7 ? Plus(Right(of), 0, 1) : Right(of);
  });
  EXPECT_EQ(JudgedBy(AskedIn({{}, Poisoned(7)}), c, of_poison, kLooks).attribution.diagnosis,
            kNothing);
  // Another mode and another fill at once, beside no answer in the usual context.
  RunContext both = InMode(Rounding::kUp);
  both.poison = 7;
  EXPECT_EQ(JudgedBy(AskedIn({Poisoned(8), both}), c, of_poison, kLooks).attribution.diagnosis,
            kNothing);
  // Two different questions.
  TestSubject of_case =
      Answers([&](const Case& of, const RunContext&) { return Plus(Right(of), 0, 1); });
  const auto two = [](const Case& of, Subject& asked) {
    asked.Run(of, {});
    Case other = of;
    other.x.SetInt(0, of.x.IntAt(0) ^ 1);
    asked.Run(other, InMode(Rounding::kUp));
    return Verdict::Failed("differs");
  };
  EXPECT_EQ(JudgedBy(two, c, of_case, kLooks).attribution.diagnosis, kNothing);
}

// ---- What memory held before.

// Outputs of the right value but for those that `keeps` names, which are left as they were.
Answering LeavesUnwritten(std::function<bool(const Case&, int64_t)> keeps) {
  return [keeps = std::move(keeps)](const Case& c, const RunContext& context) {
    Tensor y = Right(c);
    const size_t size = SizeOf(y.dtype());
    for (int64_t i = 0; i < y.size(); ++i) {
      if (!keeps(c, i)) continue;
      for (size_t byte = 0; byte < size; ++byte)
        y.bytes()[static_cast<size_t>(i) * size + byte] = context.poison;
    }
    return y;
  };
}

TEST(MemoryContents, OutputsThatAreNotWrittenAreSaidToBe) {
  const Case c = Layer(2, 3, 2);
  TestSubject subject =
      Answers(LeavesUnwritten([](const Case&, int64_t i) { return i == 0 || i == 4; }));
  const Attribution found = JudgedBy(AskOnce, Layer(1, 70, 2), subject, kAsks).attribution;
  EXPECT_EQ(found.kind, Kind::kMemory);
  EXPECT_EQ(found.diagnosis, "the subject leaves outputs unwritten");
  EXPECT_TRUE(found.complete);
  // The same after a property that knew no more than that memory matters.
  for (const Kind kind : {Kind::kMemory, Kind::kNondeterminism}) {
    const auto judge = [kind](const Case& of, Subject& asked) {
      asked.Run(of, {});
      Verdict verdict = Verdict::Failed("two runs differ");
      verdict.kind = kind;
      return verdict;
    };
    EXPECT_EQ(JudgedBy(judge, Layer(1, 70, 2), subject, kAsks).attribution.diagnosis,
              "the subject leaves outputs unwritten");
    EXPECT_EQ(JudgedBy(judge, c, subject, kLooks).attribution.diagnosis, "two runs differ");
  }
}

TEST(MemoryContents, OutputsAtTheEndThatAreNotWrittenAreATail) {
  TestSubject subject =
      Answers(LeavesUnwritten([](const Case& c, int64_t i) { return i % c.N >= c.N - c.N % 8; }));
  const Attribution found = JudgedBy(AskOnce, Layer(2, 67, 2), subject, kAsks).attribution;
  EXPECT_EQ(found.kind, Kind::kTail);
  EXPECT_EQ(found.diagnosis,
            "the subject leaves outputs unwritten, all of them among the last N % 64");
  EXPECT_TRUE(found.complete);
  // 64 + 8 + 3 columns: the last 3 are more than a tail of 64 or of 16 needs, and the tail of 8.
  EXPECT_EQ(JudgedBy(AskOnce, Layer(1, 128 + 32, 2), subject, kAsks).attribution.kind,
            Kind::kUnknown)
      << "whole vectors alone: every output is written";
  TestSubject one = Answers(
      LeavesUnwritten([](const Case& c, int64_t i) { return i % c.N == c.N - 1 || i == c.N - 5; }));
  EXPECT_EQ(JudgedBy(AskOnce, Layer(2, 64 + 5, 2), one, kAsks).attribution.kind, Kind::kTail);
  TestSubject before =
      Answers(LeavesUnwritten([](const Case& c, int64_t i) { return i % c.N == c.N - 6; }));
  EXPECT_EQ(JudgedBy(AskOnce, Layer(2, 64 + 5, 2), before, kAsks).attribution.kind, Kind::kMemory);
}

TEST(MemoryContents, AnAnswerThatIsMadeOfThemIsNotUnwritten) {
  const auto of_poison = [](int64_t at, int shift) {
    return Answers([=](const Case& c, const RunContext& context) {
      return Plus(Right(c), at, static_cast<int32_t>(context.poison) << shift);
    });
  };
  for (const int64_t at : {0, 69}) {
    TestSubject subject = of_poison(at, 3);
    const Attribution found = JudgedBy(AskOnce, Layer(1, 70, 2), subject, kAsks).attribution;
    EXPECT_EQ(found.kind, Kind::kMemory);
    EXPECT_EQ(found.diagnosis, "the answer depends on what its memory held before");
    EXPECT_TRUE(found.complete);
  }
  // Single bytes of an output that hold the old contents, and three that do not.
  for (const size_t byte : {0, 1, 2, 3}) {
    TestSubject subject = Answers([=](const Case& c, const RunContext& context) {
      Tensor y = Right(c);
      y.bytes()[4 + byte] = context.poison;
      return y;
    });
    EXPECT_EQ(JudgedBy(AskOnce, Layer(1, 70, 2), subject, kAsks).attribution.diagnosis,
              "the answer depends on what its memory held before")
        << byte;
  }
  // The old contents with the one fill, another number with the other.
  for (const bool first : {true, false}) {
    TestSubject subject = Answers([=](const Case& c, const RunContext& context) {
      const bool keeps = first == (context.poison == 0x3C);
      Tensor y = Right(c);
      for (size_t byte = 0; byte < 4; ++byte) y.bytes()[byte] = keeps ? context.poison : 0x11;
      return y;
    });
    EXPECT_EQ(JudgedBy(AskOnce, Layer(1, 70, 2), subject, kAsks).attribution.diagnosis,
              "the answer depends on what its memory held before");
  }
  // One output is left, another is made of what was there.
  TestSubject both = Answers([](const Case& c, const RunContext& context) {
    Tensor y = Plus(Right(c), 2, context.poison);
    for (size_t byte = 0; byte < 4; ++byte) y.bytes()[byte] = context.poison;
    return y;
  });
  EXPECT_EQ(JudgedBy(AskOnce, Layer(1, 70, 2), both, kAsks).attribution.diagnosis,
            "the answer depends on what its memory held before");
}

// The first three problems that the property asked about are tried, and no more: each costs three
// runs.
TEST(MemoryContents, AreChangedForTheFirstThreeProblems) {
  const auto judge = [](const Case& of, Subject& asked) {
    for (int code = 0; code < 5; ++code) {
      Case each = of;
      each.x.SetInt(0, code);
      asked.Run(each, {});
    }
    Verdict verdict = Verdict::Failed("two runs differ");
    verdict.kind = Kind::kMemory;
    return verdict;
  };
  for (int bad = 0; bad < 5; ++bad) {
    TestSubject subject = Answers(
        LeavesUnwritten([bad](const Case& c, int64_t i) { return c.x.IntAt(0) == bad && i == 0; }));
    const Attribution found = JudgedBy(judge, Layer(1, 70, 2), subject, kAsks).attribution;
    EXPECT_EQ(found.diagnosis, bad < 3 ? "the subject leaves outputs unwritten" : "two runs differ")
        << bad;
    EXPECT_EQ(subject.runs, 5 + 3 * std::min(bad + 1, 3)) << bad;
  }
}

// A run that breaks, or an answer that varies by itself, tells nothing of memory.
TEST(MemoryContents, AreNotBlamedWhereTheAnswerVariesOrARunBreaks) {
  const auto judge = [](const Case& of, Subject& asked) {
    asked.Run(of, {});
    Verdict verdict = Verdict::Failed("two runs differ");
    verdict.kind = Kind::kNondeterminism;
    return verdict;
  };
  const Case c = Layer(1, 70, 2);
  int64_t number = 0;
  TestSubject varies = Answers([&](const Case& of, const RunContext&) {
    return Plus(Right(of), 0, static_cast<int32_t>(++number));
  });
  EXPECT_EQ(JudgedBy(judge, c, varies, kAsks).attribution.diagnosis, "two runs differ");
  for (int64_t breaks = 2; breaks < 5; ++breaks) {
    int64_t asked = 0;
    TestSubject subject([&](const Case& of, const RunContext& context) {
      if (++asked == breaks) return Outcome{RunStatus::kCrashed, "SIGSEGV", {}, {}};
      return TestSubject::Good(Plus(Right(of), 0, context.poison));
    });
    EXPECT_EQ(JudgedBy(judge, c, subject, kAsks).attribution.diagnosis, "two runs differ");
    asked = 0;
    EXPECT_EQ(JudgedBy(AskOnce, c, subject, kAsks).attribution.diagnosis, kNothing);
  }
}

// ---- What was asked before.

// It breaks where memory holds what it held at first.
TEST(MemoryContents, AreNotBlamedWhereEveryRunWithOneFillBreaks) {
  const Case c = Layer(1, 70, 2);
  for (const uint8_t breaks : {0x3C, 0xC3}) {
    TestSubject subject([&](const Case& of, const RunContext& context) {
      if (context.poison == breaks)
        return Outcome{RunStatus::kCrashed, "SIGSEGV", Plus(Right(of), 0, 9), {}};
      return TestSubject::Good(Plus(Right(of), 0, 1));
    });
    const auto judge = [](const Case& of, Subject& asked) {
      asked.Run(of, {});
      Verdict verdict = Verdict::Failed("two runs differ");
      verdict.kind = Kind::kMemory;
      return verdict;
    };
    EXPECT_EQ(JudgedBy(judge, c, subject, kAsks).attribution.diagnosis, "two runs differ");
    EXPECT_EQ(JudgedBy(AskOnce, c, subject, kAsks).attribution.diagnosis, kNothing);
  }
}

TEST(AskedAgain, TheSameQuestionAnsweredInTwoWaysIsNondeterminism) {
  const Case c = Layer(1, 70, 2);
  int32_t number = 0;
  TestSubject subject =
      Answers([&](const Case& of, const RunContext&) { return Plus(Right(of), 0, ++number); });
  const Attribution found = JudgedBy(AskOnce, c, subject, kAsks).attribution;
  EXPECT_EQ(found.kind, Kind::kNondeterminism);
  EXPECT_EQ(found.diagnosis, "the same question, asked twice, is answered differently");
  EXPECT_TRUE(found.complete);
}

// An answer that varies may vary just when the memory is filled anew: the same is asked three times
// more with either fill.
TEST(AskedAgain, AnAnswerThatVariesIsNotTakenForOneThatDependsOnMemory) {
  const Case c = Layer(1, 70, 2);
  // Which of the questions, after the property's own, is answered with another number. Questions 1
  // and 2 have one fill, 3 another; then come three times the one and the other.
  for (int64_t other = 2; other <= 9; ++other) {
    int64_t number = -1;
    TestSubject subject = Answers([&](const Case& of, const RunContext& context) {
      ++number;
      const int32_t of_fill = context.poison == 0xC3 && other != 3 ? 5 : 0;
      return Plus(Right(of), 0, 1 + of_fill + (number == other ? 9 : 0));
    });
    const Attribution found = JudgedBy(AskOnce, c, subject, kAsks).attribution;
    EXPECT_EQ(found.kind, Kind::kNondeterminism) << other;
    EXPECT_EQ(found.diagnosis, "the same question, asked twice, is answered differently") << other;
  }
  int64_t number = -1;
  TestSubject steady = Answers([&](const Case& of, const RunContext& context) {
    ++number;
    return Plus(Right(of), 0, context.poison == 0xC3 ? 5 : 1);
  });
  EXPECT_EQ(JudgedBy(AskOnce, c, steady, kAsks).attribution.kind, Kind::kMemory);
  EXPECT_EQ(number, 9);
}

// What the property saw does not come again.
TEST(AskedAgain, AnAnswerThatDoesNotComeAgainDependsOnEarlierQuestions) {
  const Case c = Layer(1, 70, 2);
  int64_t number = 0;
  TestSubject first = Answers(
      [&](const Case& of, const RunContext&) { return Plus(Right(of), 0, number++ == 0 ? 2 : 1); });
  const Attribution found = JudgedBy(AskOnce, c, first, kAsks).attribution;
  EXPECT_EQ(found.kind, Kind::kNondeterminism);
  EXPECT_EQ(found.diagnosis, "the answer depends on what was asked before");
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(first.runs, 1 + 3 + 16);
  // One of the sixteen later answers differs: that is chance.
  for (const int64_t other : {4, 19}) {
    number = 0;
    TestSubject chance = Answers([&](const Case& of, const RunContext&) {
      const int64_t now = number++;
      return Plus(Right(of), 0, now == 0 || now == other ? 2 : 1);
    });
    EXPECT_EQ(JudgedBy(AskOnce, c, chance, kAsks).attribution.diagnosis,
              "the same question, asked 17 times, is answered differently 1 time");
  }
}

// The questions are asked in the usual context. An answer in another one cannot be compared with
// theirs; but the fill of the memory was looked at, and the raw sums are no part of the answer.
TEST(AskedAgain, OnlyAnAnswerInTheUsualContextIsComparedWithTheOthers) {
  const Case c = Layer(1, 70, 2);
  const auto said = [&](const RunContext& context) {
    TestSubject subject = Answers([&](const Case& of, const RunContext& in) {
      return in == context ? Plus(Right(of), 0, 1) : Right(of);
    });
    return JudgedBy(AskedIn({context}), c, subject, kAsks).attribution.diagnosis;
  };
  RunContext sums;
  sums.want_acc = true;
  RunContext gap;
  gap.y_row_gap = 2;
  EXPECT_EQ(said(gap), kNothing);
  EXPECT_EQ(said(sums), "the answer depends on what was asked before");
  EXPECT_EQ(said(Poisoned(8)), "the answer depends on what was asked before");
}

// The first question to an instance is answered rightly, all others wrongly.
std::unique_ptr<Subject> MakeRemembering(const std::string& name) {
  auto asked = std::make_shared<int>(0);
  return std::make_unique<TestSubject>(
      [asked](const Case& c, const RunContext&) {
        return TestSubject::Good((*asked)++ == 0 ? Right(c) : Plus(Right(c), 0, 1));
      },
      name);
}

TEST(AskedAgain, ANewInstanceThatAnswersOtherwiseShowsWhatIsKept) {
  SubjectRegistry::Get().Add({.kind = "remembering",
                              .help = "",
                              .why_absent = "",
                              .names = [] { return Texts{"remembering"}; },
                              .make = MakeRemembering,
                              .expand = [](const std::string&) { return Texts{}; }});
  const Case c = Layer(1, 70, 2);
  const auto subject = SubjectRegistry::Get().Make("remembering");
  (void)subject->Run(c, {});
  const Attribution found = JudgedBy(AskOnce, c, *subject, kAsks).attribution;
  EXPECT_EQ(found.kind, Kind::kNondeterminism);
  EXPECT_EQ(found.diagnosis, "the answer depends on what was asked before");
  // A new instance that answers alike shows nothing, nor does one that cannot be made.
  SubjectRegistry::Get().Add({.kind = "steady",
                              .help = "",
                              .why_absent = "",
                              .names = [] { return Texts{"steady"}; },
                              .make = [](const std::string& name) -> std::unique_ptr<Subject> {
                                return std::make_unique<TestSubject>(
                                    [](const Case& of, const RunContext&) {
                                      return TestSubject::Good(Plus(Right(of), 0, 1));
                                    },
                                    name);
                              },
                              .expand = [](const std::string&) { return Texts{}; }});
  const auto alike = SubjectRegistry::Get().Make("steady");
  EXPECT_EQ(JudgedBy(AskOnce, c, *alike, kAsks).attribution.diagnosis, kNothing);
  TestSubject steady =
      Answers([](const Case& of, const RunContext&) { return Plus(Right(of), 0, 1); });
  EXPECT_EQ(JudgedBy(AskOnce, c, steady, kAsks).attribution.diagnosis, kNothing);
}

// ---- The end of the output.

// Outputs from `from` on are one off, whatever they are of.
Answering WrongFrom(std::function<int64_t(int64_t size)> from) {
  return [from = std::move(from)](const Case& c, const RunContext&) {
    Tensor y = Right(c);
    for (int64_t i = from(y.size()); i < y.size(); ++i) y.SetInt(i, y.IntAt(i) ^ 1);
    return y;
  };
}
int64_t LastOf4(int64_t size) { return size - size % 4; }

TEST(EndOfElements, IsATailWhereItIsWrongWhateverStandsThere) {
  TestSubject subject = Answers(WrongFrom(LastOf4));
  for (const auto& [m, n] : {std::pair{1, 10}, std::pair{2, 5}}) {
    const Attribution found = JudgedBy(AskOnce, Elements(m, n), subject, kAsks).attribution;
    EXPECT_EQ(found.kind, Kind::kTail);
    EXPECT_TRUE(found.complete);
    EXPECT_EQ(found.diagnosis, "only the last 2 of 10 outputs are wrong, whatever they are of");
    EXPECT_EQ(found.evidence,
              Texts{"with the elements moved by 2 others are, and those that were are right"});
  }
  EXPECT_EQ(JudgedBy(AskOnce, Elements(1, 10), subject, kLooks).attribution.diagnosis, kNothing);
}

TEST(EndOfElements, OfEveryElementwiseOperation) {
  TestSubject subject = Answers(WrongFrom(LastOf4));
  const auto said = [&](const Case& c) {
    EXPECT_EQ(Validate(c), "");
    return JudgedBy(AskOnce, c, subject, kAsks).attribution.diagnosis;
  };
  constexpr const char* kTail = "only the last 2 of 10 outputs are wrong, whatever they are of";
  Case sum = Elements(1, 10);
  sum.op = Op::kAdd;
  sum.w = Tensor(DType::kU8, {1, 10});
  for (int64_t i = 0; i < 10; ++i) sum.w.SetInt(i, static_cast<int32_t>(i * i));
  EXPECT_EQ(said(sum), kTail);
  Case quantize = CaseOver(Op::kQuantize, Tensor(DType::kF32, {1, 10}), DType::kU8);
  for (int64_t i = 0; i < 10; ++i)
    quantize.x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(i * 5);
  EXPECT_EQ(said(quantize), kTail);
  Case requantize = CaseOver(Op::kRequantize, Tensor(DType::kS32, {1, 10}), DType::kU8);
  for (int64_t i = 0; i < 10; ++i) requantize.x.SetInt(i, static_cast<int32_t>(i * 7));
  EXPECT_EQ(said(requantize), kTail);
  Case dequantize = CaseOver(Op::kDequantize, Tensor(DType::kU8, {1, 10}), DType::kF32);
  for (int64_t i = 0; i < 10; ++i) dequantize.x.SetInt(i, static_cast<int32_t>(i * 7));
  TestSubject reals = Answers([](const Case& c, const RunContext&) {
    Tensor y = Right(c);
    for (int64_t i = LastOf4(y.size()); i < y.size(); ++i)
      y.as<float>()[static_cast<size_t>(i)] += 1;
    return y;
  });
  EXPECT_EQ(JudgedBy(AskOnce, dequantize, reals, kAsks).attribution.diagnosis, kTail);
}

// An element that is wrong for its value is wrong wherever it stands.
TEST(EndOfElements, IsNoTailWhereTheValuesAreTheCause) {
  const Case c = Elements(1, 10);
  const int32_t last = c.x.IntAt(9), before = c.x.IntAt(8);
  TestSubject of_values = Answers([=](const Case& of, const RunContext&) {
    Tensor y = Right(of);
    for (int64_t i = 0; i < y.size(); ++i) {
      if (of.x.IntAt(i) == last || of.x.IntAt(i) == before) y.SetInt(i, y.IntAt(i) ^ 1);
    }
    return y;
  });
  EXPECT_EQ(JudgedBy(AskOnce, c, of_values, kAsks).attribution.diagnosis, kNothing);
  // Wrong before the end too.
  TestSubject early =
      Answers([](const Case& of, const RunContext&) { return Plus(Plus(Right(of), 9, 1), 7, 1); });
  EXPECT_EQ(JudgedBy(AskOnce, c, early, kAsks).attribution.diagnosis, kNothing);
  // No whole vector stands before the end.
  TestSubject all = Answers(WrongFrom([](int64_t) { return 0; }));
  EXPECT_EQ(JudgedBy(AskOnce, Elements(1, 3), all, kAsks).attribution.diagnosis, kNothing);
  // Whole vectors alone.
  EXPECT_EQ(JudgedBy(AskOnce, Elements(1, 4), all, kAsks).attribution.diagnosis, kNothing);
}

// Besides the end, one value is wrong at even places.
TEST(EndOfElements, IsNotAllWhereOthersAreWrongAfterATurn) {
  const Case c = Elements(1, 10);
  const int32_t third = c.x.IntAt(3);
  TestSubject subject = Answers([=](const Case& of, const RunContext& context) {
    Tensor y = WrongFrom(LastOf4)(of, context);
    for (int64_t i = 0; i < 8; i += 2) {
      if (of.x.IntAt(i) == third) y.SetInt(i, y.IntAt(i) ^ 1);
    }
    return y;
  });
  EXPECT_NE(JudgedBy(AskOnce, c, subject, kAsks).attribution.diagnosis,
            "only the last 2 of 10 outputs are wrong, whatever they are of");
}

// A value at the end may be right by chance, such as a code at the clamp: other turns are tried.
TEST(EndOfElements, IsSeenWhereSomeElementsAreRightEvenThere) {
  Case c = Elements(1, 9);
  for (int64_t i = 0; i < 9; ++i) c.x.SetInt(i, i == 8 ? 40 : i == 2 ? 60 : 255);
  // The last element is one too large, unless it is the largest code.
  TestSubject subject = Answers([](const Case& of, const RunContext&) {
    const Tensor y = Right(of);
    const int64_t at = y.size() - 1;
    return y.size() % 4 == 1 && y.IntAt(at) < 255 ? Plus(y, at, 1) : y;
  });
  const Attribution found = JudgedBy(AskOnce, c, subject, kAsks).attribution;
  EXPECT_EQ(found.diagnosis, "only the last 1 of 9 outputs are wrong, whatever they are of");
  EXPECT_EQ(found.evidence,
            Texts{"with the elements moved by 3 others are, and those that were are right"});
  // All others are the largest code: no turn shows anything.
  c.x.SetInt(2, 255);
  EXPECT_EQ(JudgedBy(AskOnce, c, subject, kAsks).attribution.diagnosis, kNothing);
}

TEST(EndOfElements, IsNotTurnedWhereChannelsHaveParametersOfTheirOwn) {
  Case c = CaseOver(Op::kQuantize, Tensor(DType::kF32, {1, 10}), DType::kU8);
  for (int64_t i = 0; i < 10; ++i)
    c.x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(i * 5);
  c.per_channel = true;
  c.out_q.scale.assign(10, 1.0f), c.out_q.zero_point.assign(10, 0);
  ASSERT_EQ(Validate(c), "");
  TestSubject subject = Answers(WrongFrom(LastOf4));
  // The channels are put in other orders with their parameters.
  EXPECT_EQ(JudgedBy(AskOnce, c, subject, kAsks).attribution.diagnosis,
            "only the last N % 8 outputs of a row are wrong, whatever channels they are of");
}

TEST(EndOfElements, ATurnedQuestionThatBreaksShowsNothing) {
  int64_t asked = 0;
  TestSubject subject([&](const Case& c, const RunContext& context) {
    if (++asked > 4) return Outcome{RunStatus::kCrashed, "SIGSEGV", {}, {}};
    return TestSubject::Good(WrongFrom(LastOf4)(c, context));
  });
  EXPECT_EQ(JudgedBy(AskOnce, Elements(1, 10), subject, kAsks).attribution.diagnosis, kNothing);
}

TEST(EndOfElements, ATurnedQuestionThatIsAnsweredInAnotherShapeShowsNothing) {
  int64_t asked = 0;
  TestSubject subject = Answers([&](const Case& c, const RunContext& context) {
    return ++asked > 4 ? Tensor(DType::kU8, {5}) : WrongFrom(LastOf4)(c, context);
  });
  EXPECT_EQ(JudgedBy(AskOnce, Elements(1, 10), subject, kAsks).attribution.diagnosis, kNothing);
  EXPECT_EQ(subject.runs, 6) << "once in the elements, once in the columns";
}

// ---- The last columns.

// Columns from `from` on are moved by `by`, whatever channels they are of.
Answering WrongColumnsFrom(std::function<int64_t(const Case&)> from, int32_t by = 1'000'001) {
  return [from = std::move(from), by](const Case& c, const RunContext&) {
    Tensor y = Right(c);
    for (int64_t i = 0; i < y.size(); ++i) {
      if (i % c.N >= from(c)) y.SetInt(i, y.IntAt(i) + by * static_cast<int32_t>(1 + i % 3));
    }
    return y;
  };
}
int64_t LastColumnsOf4(const Case& c) { return c.N - c.N % 4; }

TEST(LastColumns, AreATailWhereTheyAreWrongWhateverChannelsStandThere) {
  TestSubject subject = Answers(WrongColumnsFrom(LastColumnsOf4));
  const Case c = Layer(2, 6, 3);
  const Attribution found = JudgedBy(AskOnce, c, subject, kAsks).attribution;
  EXPECT_EQ(found.kind, Kind::kTail);
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.diagnosis,
            "only the last N % 4 outputs of a row are wrong, whatever channels they are of");
  EXPECT_EQ(found.evidence, Texts{"so they are with the channels in 6 other orders"});
  EXPECT_EQ(JudgedBy(AskOnce, c, subject, kLooks).attribution.diagnosis, kNothing);
}

// A fault of channels moves with them.
TEST(LastColumns, AreNoTailWhereTheChannelsAreTheCause) {
  const Case c = Layer(2, 5, 3);
  const int32_t bad = c.w.IntAt(4 * c.K);
  TestSubject subject = Answers([=](const Case& of, const RunContext&) {
    Tensor y = Right(of);
    for (int64_t i = 0; i < y.size(); ++i) {
      if (of.w.IntAt(i % of.N * of.K) == bad)
        y.SetInt(i, y.IntAt(i) + 1'000'001 + static_cast<int32_t>(i));
    }
    return y;
  });
  EXPECT_EQ(JudgedBy(AskOnce, c, subject, kAsks).attribution.diagnosis, kNothing);
}

// Some channels may be right even at the end. Three other orders must be wrong there.
TEST(LastColumns, AreATailAfterThreeOrdersOfTheChannels) {
  const Case c = Layer(1, 5, 3);
  for (int wrong = 1; wrong <= 4; ++wrong) {
    // The first `wrong` channels from the back are wrong in the last column.
    TestSubject subject = Answers([&](const Case& of, const RunContext&) {
      const Tensor y = Right(of);
      for (int64_t n = 5 - wrong; n < 5; ++n) {
        if (of.N == 5 && of.w.IntAt(4 * of.K) == c.w.IntAt(n * c.K)) return Plus(y, 4, 1'000'001);
      }
      return y;
    });
    // Turned by 1, 2, 3, 5, 7 and 11, the last column is that of channel 0, 1, 2, 4, 1 and 0.
    const Attribution found = JudgedBy(AskOnce, c, subject, kAsks).attribution;
    EXPECT_EQ(found.kind == Kind::kTail, wrong == 4) << wrong;
    if (wrong == 4) {
      EXPECT_EQ(found.evidence, Texts{"so they are with the channels in 4 other orders"});
    }
  }
}

TEST(LastColumns, ThreeOrdersAreEnough) {
  const Case c = Layer(1, 5, 3);
  // Channels 0 and 4 alone are wrong in the last column.
  TestSubject subject = Answers([&](const Case& of, const RunContext&) {
    const int32_t code = of.w.IntAt(4 * of.K);
    const bool wrong = code == c.w.IntAt(0) || code == c.w.IntAt(4 * c.K);
    return wrong ? Plus(Right(of), 4, 1'000'001) : Right(of);
  });
  const Attribution found = JudgedBy(AskOnce, c, subject, kAsks).attribution;
  EXPECT_EQ(found.evidence, Texts{"so they are with the channels in 3 other orders"});
}

// The channels of a convolution can be put in another order, but not those of its groups.
TEST(LastColumns, OfAConvolutionAreATailUnlessItHasGroups) {
  for (const int64_t groups : {1, 2}) {
    Case c;
    c.op = Op::kConv2d;
    c.N = 6;
    c.window = {.batch = 1, .in_h = 1, .in_w = 2, .in_c = 2};
    c.window.groups = groups;
    DeriveSizes(&c);
    c.x = Tensor(DType::kU8, {1, 1, 2, 2});
    c.w = Tensor(DType::kS8, {6, 1, 1, 2 / groups});
    for (int64_t i = 0; i < 4; ++i) c.x.SetInt(i, static_cast<int32_t>(3 + i));
    for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, static_cast<int32_t>(1 + i * i));
    c.out_dtype = DType::kS32;
    OpenClamp(&c);
    ASSERT_EQ(Validate(c), "");
    TestSubject subject = Answers(WrongColumnsFrom(LastColumnsOf4));
    const Attribution found = JudgedBy(AskOnce, c, subject, kAsks).attribution;
    EXPECT_EQ(found.kind == Kind::kTail, groups == 1) << found.diagnosis;
  }
}

// Of a pool each channel is an image of its own.
TEST(LastColumns, OfAPoolAreNotAskedFor) {
  Case c;
  c.op = Op::kMaxPool;
  c.N = 6;
  c.window = {.batch = 1, .in_h = 1, .in_w = 2, .in_c = 6};
  DeriveSizes(&c);
  c.x = Tensor(DType::kU8, {1, 1, 2, 6});
  for (int64_t i = 0; i < 12; ++i) c.x.SetInt(i, static_cast<int32_t>(3 + i));
  ASSERT_EQ(Validate(c), "");
  TestSubject subject = Answers([](const Case& of, const RunContext&) {
    Tensor y = Right(of);
    y.SetInt(y.size() - 1, y.IntAt(y.size() - 1) ^ 1);
    return y;
  });
  EXPECT_EQ(JudgedBy(AskOnce, c, subject, kAsks).attribution.diagnosis, kNothing);
  EXPECT_EQ(subject.runs, 1 + 3);
}

TEST(LastColumns, OfOperationsWithoutChannelsAreNotAskedFor) {
  // Softmax and groups of a convolution: their channels cannot be put in any order.
  Case softmax = CaseOver(Op::kSoftmax, Tensor(DType::kU8, {1, 5}), DType::kU8);
  softmax.out_q = FixedOutQParams(DType::kU8);
  for (int64_t i = 0; i < 5; ++i) softmax.x.SetInt(i, static_cast<int32_t>(i));
  softmax.x_q.scale = {0.01f};
  ASSERT_EQ(Validate(softmax), "");
  TestSubject subject = Answers([](const Case& c, const RunContext&) {
    Tensor y = Right(c);
    y.SetInt(y.size() - 1, y.IntAt(y.size() - 1) ^ 1);
    return y;
  });
  (void)JudgedBy(AskOnce, softmax, subject, kAsks);
  EXPECT_EQ(subject.runs, 1 + 3);
}

// ---- One answer, without asking the subject.

TEST(OneAnswer, ThatIsExactHasNoCause) {
  const Case c = Layer(2, 3, 4);
  const Attribution found = Attribute(c, Right(c));
  EXPECT_EQ(found.diagnosis, "the output is exact");
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(found.kind, Kind::kUnknown);
}

TEST(OneAnswer, SaysWhatTheSubjectDoesAndWhatWasReproduced) {
  const Case c = Layer(2, 3, 4);
  const Hypothesis cause = Named({"weight zero point ignored"});
  Tensor y = With(c, cause);
  const Attribution found = Attribute(c, y);
  EXPECT_EQ(found.kind, Kind::kZeroPoint);
  EXPECT_EQ(found.causes, cause);
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.diagnosis, "the subject ignores the weight zero point");
  EXPECT_EQ(found.evidence.front(),
            "exact arithmetic with weight zero point ignored reproduces all 6 outputs (6 of them "
            "not exact)");
  const Case one = Layer(1, 1, 4);
  EXPECT_EQ(Attribute(one, With(one, cause)).evidence.front(),
            "exact arithmetic with weight zero point ignored reproduces the output");
}

// Where a product is 0 it can be dropped: such outputs are exact.
Case WithZeroProducts(int64_t rows, const std::vector<int64_t>& zero) {
  Case c = Layer(rows, 3, 5);
  for (const int64_t m : zero) c.x.SetInt(m * 5 + 4, 0);
  return c;
}

TEST(OneAnswer, CountsTheOutputsThatAreNotExact) {
  const Case c = WithZeroProducts(4, {0, 2});
  const Hypothesis cause = Named({"last product dropped"});
  const Attribution found = Attribute(c, With(c, cause));
  EXPECT_EQ(found.causes, cause);
  EXPECT_EQ(found.evidence.front(),
            "exact arithmetic with last product dropped reproduces all 12 outputs "
            "(6 of them not exact)");
}

// Rows of pixels, and rows that share a scale, depend on each other: no two of them tell of all.
TEST(OneAnswer, OfRowsThatDependOnEachOther) {
  const Hypothesis zero = Named({"weight zero point ignored"});
  Case image;
  image.op = Op::kConv2d;
  image.N = 2;
  image.window = {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 2};
  DeriveSizes(&image);
  image.x = Tensor(DType::kU8, {1, 2, 2, 2});
  image.w = Tensor(DType::kS8, {2, 1, 1, 2});
  for (int64_t i = 0; i < 8; ++i) image.x.SetInt(i, static_cast<int32_t>(3 + i * i));
  for (int64_t i = 0; i < 4; ++i) image.w.SetInt(i, static_cast<int32_t>(1 + i));
  image.w_q.zero_point = {5};
  image.out_dtype = DType::kS32;
  OpenClamp(&image);
  ASSERT_EQ(Validate(image), "");
  EXPECT_EQ(Attribute(image, With(image, zero)).causes, zero);
  Case dynamic = Layer(4, 2, 3);
  dynamic.op = Op::kDynamicLinear;
  dynamic.x = Tensor(DType::kF32, {4, 3});
  for (int64_t i = 0; i < 12; ++i)
    dynamic.x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(i * i + 1);
  dynamic.x_q = {};
  dynamic.out_dtype = DType::kF32;
  OpenClamp(&dynamic);
  // The largest value stands in a row that is neither the first nor the last.
  dynamic.x.as<float>()[4] = 1000;
  ASSERT_EQ(Validate(dynamic), "");
  EXPECT_EQ(Attribute(dynamic, With(dynamic, zero)).causes, zero);
}

TEST(OneAnswer, OfNoOutputsHasNoCause) {
  TestSubject subject;
  const Case c = Layer(3, 0, 4);
  EXPECT_FALSE(Attribute(c, Right(c), subject).complete);
}

// The row sum of row m % 4: in fewer than five rows nothing shows it.
TEST(OneAnswer, MayHaveACauseThatTakesManyRows) {
  const Case c = Layer(7, 3, 5);
  const Hypothesis cause = Named({"row sum modulo 4"});
  TestSubject subject = Answers([&](const Case& of, const RunContext&) { return With(of, cause); });
  EXPECT_EQ(Attribute(c, With(c, cause), subject).causes, cause);
}

TEST(OneAnswer, MayTakeTwoCauses) {
  const Case c = Layer(3, 3, 5);
  const Hypothesis both = Named({"weight zero point ignored", "last product dropped"});
  const Attribution found = Attribute(c, With(c, both));
  EXPECT_EQ(found.causes, both);
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.diagnosis,
            "the subject ignores the weight zero point and drops the last product");
  EXPECT_EQ(found.evidence, Texts{"exact arithmetic with weight zero point ignored + last product "
                                  "dropped reproduces all 9 outputs (9 of them not exact)"});
}

// The kind of two causes is that of the one which alone comes nearer to the answer.
TEST(OneAnswer, OfTwoCausesTheOneThatExplainsMoreGivesTheKind) {
  Case c = Layer(3, 3, 5);
  // The last product is 0 but in one row: dropping it explains less than the zero point does.
  const Hypothesis both = Named({"weight zero point ignored", "last product dropped"});
  for (int64_t m = 1; m < 3; ++m) c.x.SetInt(m * 5 + 4, 0);
  EXPECT_EQ(Attribute(c, With(c, both)).kind, Kind::kZeroPoint);
  // A row whose codes add up to 0 has no weight term: there the dropped product alone is wrong.
  Case tail = Layer(3, 3, 5);
  tail.x = Tensor(DType::kS8, {3, 5});
  for (int64_t m = 0; m < 3; ++m) {
    for (int64_t k = 0; k < 5; ++k)
      tail.x.SetInt(m * 5 + k, static_cast<int32_t>(m == 0   ? k + 1
                                                    : k == 0 ? -70
                                                    : k == 4 ? 40
                                                             : 10));
  }
  ASSERT_EQ(Validate(tail), "");
  EXPECT_EQ(Attribute(tail, With(tail, both)).kind, Kind::kTail);
}

// The relu that is ignored changes nothing by itself, as no sum is negative.
TEST(OneAnswer, OfTwoCausesTheOneThatActsAloneGivesTheKind) {
  Case c = Layer(2, 2, 2);
  c.relu = true;
  c.x = Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{4, 5, 6, 7});
  c.w = Tensor::Of<int8_t>({2, 2}, std::vector<int8_t>{-1, -2, -3, -4});
  c.w_q.zero_point = {-100};
  const Hypothesis both = Named({"relu ignored", "weight zero point ignored"});
  const Attribution found = Attribute(c, With(c, both));
  EXPECT_EQ(found.causes, both) << found.diagnosis;
  EXPECT_EQ(found.kind, Kind::kZeroPoint);
}

// The first cause of the list may be one of two.
TEST(OneAnswer, TheLikeliestCauseMayBeOneOfTwo) {
  const Hypothesis both = Named({"float64 multiplier", "relu ignored"});
  int named = 0;
  for (uint64_t seed = 0; seed < 3000 && named < 2; ++seed) {
    const Case c = gen::Draw(Op::kRescale, gen::Theme::kTies, seed);
    if (!c.relu || c.x.size() > 200) continue;
    const auto y = Counterfactual(c, both);
    if (!y || Right(c) == *y || Counterfactual(c, Hypothesis{both[0]}) == *y ||
        Counterfactual(c, Hypothesis{both[1]}) == *y)
      continue;
    named += Attribute(c, *y).causes == both ? 1 : 0;
  }
  EXPECT_EQ(named, 2);
}

// On a long case pairs are made of the causes that change the output.
TEST(OneAnswer, OfALongCaseMayTakeTwoCauses) {
  const Case c = Layer(17, 17, 17);
  const Hypothesis both = Named({"weight zero point ignored", "last product dropped"});
  EXPECT_EQ(Attribute(c, With(c, both)).causes, both);
}

// Without zero points nothing tells a dropped term from a dropped product.
TEST(OneAnswer, TheOtherCausesOfTheSameOutputAreListedAndMayBeHints) {
  Case c = Layer(2, 2, 6);
  c.x_q.zero_point = c.w_q.zero_point = {0};
  const Hypothesis product = Named({"last product dropped"}), term = Named({"last term dropped"});
  const Tensor y = With(c, product);
  const Attribution found = Attribute(c, y);
  EXPECT_EQ(found.causes, product);
  EXPECT_EQ(found.open, std::vector<Hypothesis>{term});
  EXPECT_FALSE(found.ambiguous) << "both are of one kind";
  EXPECT_EQ(found.evidence.back(), "also reproduced by: last term dropped");
  EXPECT_EQ(Attribute(c, y, term).causes, term);
  // A hint that does not fit changes nothing.
  EXPECT_EQ(Attribute(c, y, Named({"weight zero point ignored"})).causes, product);
}

// ---- The best guess.

// ---- An answer and its verdict, without a property.

TEST(VerdictAlone, TheSweepIsLookedAtToo) {
  // Exact but where x is constant over each row of a sweep.
  const Case c = Layer(1, 2, 4);
  const Hypothesis cause = Named({"weight zero point ignored"});
  TestSubject subject = Answers(
      [&](const Case& of, const RunContext&) { return of.M == 256 ? With(of, cause) : Right(of); });
  const Verdict verdict = Verdict::Failed("the sweep bends");
  EXPECT_EQ(Attribute(c, verdict, subject).causes, cause);
  EXPECT_EQ(subject.runs, 2);
  // A convolution is swept too, unless it has no pixel.
  Case image;
  image.op = Op::kConv2d;
  image.N = 1;
  image.out_dtype = DType::kS32;
  OpenClamp(&image);
  for (const int64_t batch : {1, 0}) {
    image.window = {.batch = batch, .in_h = 1, .in_w = 1, .in_c = 2};
    DeriveSizes(&image);
    image.x = Tensor(DType::kU8, {batch, 1, 1, 2});
    image.w = Tensor::Of<int8_t>({1, 1, 1, 2}, std::vector<int8_t>{3, 4});
    image.w_q.zero_point = {1};
    ASSERT_EQ(Validate(image), "");
    subject.runs = 0;
    EXPECT_EQ(Attribute(image, verdict, subject).causes, batch == 1 ? cause : Hypothesis{});
    EXPECT_EQ(subject.runs, batch == 1 ? 2 : 1);
  }
  // Not of reals, nor where there is nothing to sweep.
  Case reals = c;
  reals.out_dtype = DType::kF32;
  OpenClamp(&reals);
  EXPECT_EQ(Attribute(reals, verdict, subject).diagnosis, "every answer is exact");
  const Case elements = Elements(1, 3);
  EXPECT_EQ(Attribute(elements, verdict, subject).diagnosis, "every answer is exact");
  subject.runs = 0;
  EXPECT_EQ(Attribute(Layer(1, 0, 4), verdict, subject).diagnosis, "every answer is exact");
  EXPECT_EQ(subject.runs, 1);
  // No row at all is swept: the weights and the codes are there.
  EXPECT_EQ(Attribute(Layer(0, 2, 4), verdict, subject).causes, cause);
  subject.cannot_run = [](const Case& of) { return of.M == 256 ? "too many rows" : ""; };
  subject.runs = 0;
  EXPECT_EQ(Attribute(c, verdict, subject).diagnosis, "every answer is exact");
  EXPECT_EQ(subject.runs, 1);
}

// ---- Causes of a smaller case.

TEST(BorneOut, WhereTheyGiveSomeWrongOutputsAndSpoilNone) {
  const Case c = Layer(2, 3, 4);
  const Hypothesis cause = Named({"weight zero point ignored"});
  const Tensor right = Right(c), y = With(c, cause);
  const auto borne_out = [&](const Tensor& answer) {
    TestSubject subject = Answers([&](const Case&, const RunContext&) { return answer; });
    return IsBorneOut(c, subject, cause);
  };
  EXPECT_TRUE(borne_out(right));
  EXPECT_TRUE(borne_out(y));
  EXPECT_TRUE(borne_out(Plus(y, 0, 1))) << "another fault may be there too";
  Tensor spoiled = y;
  spoiled.SetInt(5, right.IntAt(5));
  EXPECT_FALSE(borne_out(spoiled)) << "a right output that the cause gets wrong";
  EXPECT_FALSE(borne_out(Plus(right, 2, 1)));
  TestSubject crash([](const Case&, const RunContext&) {
    return Outcome{RunStatus::kCrashed, "SIGSEGV", {}, {}};
  });
  EXPECT_TRUE(IsBorneOut(c, crash, cause)) << "nothing was answered";
  // One output alone, and outputs that the cause leaves right.
  const Case one = Layer(1, 1, 4);
  TestSubject single = Answers([&](const Case& of, const RunContext&) { return With(of, cause); });
  EXPECT_TRUE(IsBorneOut(one, single, cause));
  const Case half = WithZeroProducts(4, {0, 2});
  const Hypothesis dropped = Named({"last product dropped"});
  TestSubject drops = Answers([&](const Case& of, const RunContext&) { return With(of, dropped); });
  EXPECT_TRUE(IsBorneOut(half, drops, dropped));
  // Causes that change nothing here.
  TestSubject wrong = Answers([&](const Case&, const RunContext&) { return Plus(right, 2, 1); });
  EXPECT_FALSE(IsBorneOut(c, wrong, Named({"relu ignored"})));
}

// ---- Causes that are known already.

TEST(Established, TheFirstOneThatGivesTheAnswerIsNamed) {
  const Case c = Layer(2, 3, 5);
  const Hypothesis wanted = Named({"last product dropped"});
  const std::vector<Attribution> known =
      AllNamed(Op::kLinear, {Named({"weight zero point ignored"}), wanted});
  TestSubject subject =
      Answers([&](const Case& of, const RunContext&) { return With(of, wanted); });
  const Attribution found =
      JudgedBy(AskOnce, c, subject,
               {.established = known, .only_established = true, .probe_state = false})
          .attribution;
  EXPECT_EQ(found.causes, wanted);
  EXPECT_EQ(found.kind, Kind::kTail);
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(subject.runs, 1);
  TestSubject other =
      Answers([&](const Case& of, const RunContext&) { return With(of, Named({"weight sign"})); });
  const Attribution none =
      JudgedBy(AskOnce, c, other,
               {.established = known, .only_established = true, .probe_state = false})
          .attribution;
  EXPECT_EQ(none.diagnosis, kNothing);
  EXPECT_EQ(none.kind, Kind::kUnknown);
  EXPECT_FALSE(none.complete);
}

// Together they name the faults that the answer takes, and no other.
TEST(Established, TogetherTheyGiveAnAnswerThatNoneGivesAlone) {
  const Case c = Layer(2, 3, 5);
  const Hypothesis zero = Named({"weight zero point ignored"}),
                   tail = Named({"last product dropped"}), sign = Named({"int32 wrap"}),
                   relu = Named({"relu ignored"}), sums = Named({"row sum of row 0"});
  const std::vector<Attribution> known = AllNamed(Op::kLinear, {sign, zero, relu, tail});
  const Hypothesis both{zero.front(), tail.front()};
  TestSubject subject = Answers([&](const Case& of, const RunContext&) { return With(of, both); });
  const AttributionOptions options{
      .established = known, .only_established = true, .probe_state = false};
  const Attribution found = JudgedBy(AskOnce, c, subject, options).attribution;
  EXPECT_EQ(found.causes, both);
  EXPECT_TRUE(found.complete);
  TestSubject one =
      Answers([&](const Case& of, const RunContext&) { return Plus(With(of, both), 0, 1); });
  EXPECT_EQ(JudgedBy(AskOnce, c, one, options).attribution.diagnosis, kNothing);
}

// ---- Causes that further answers of the subject bear out.

TEST(Examined, NamesTheCauseThatFurtherAnswersBearOut) {
  // One answer that many causes give.
  Case c = Layer(1, 1, 6);
  c.x_q.zero_point = c.w_q.zero_point = {0};
  const Hypothesis cause = Named({"last term dropped"});
  TestSubject subject = Answers([&](const Case& of, const RunContext&) { return With(of, cause); });
  const Attribution found = Attribute(c, With(c, cause), subject);
  EXPECT_EQ(found.causes, cause);
  EXPECT_EQ(found.kind, Kind::kTail);
  EXPECT_TRUE(found.complete);
  EXPECT_FALSE(found.ambiguous);
  EXPECT_EQ(found.evidence.size(), 2u);
  const std::string& asked = found.evidence.back();
  EXPECT_TRUE(asked.starts_with(std::to_string(subject.runs) + " further cases asked: ")) << asked;
  EXPECT_TRUE(asked.ends_with(" bear it out; ruled out: last product dropped")) << asked;
}

TEST(Examined, SaysWhereACauseHolds) {
  const Case c = Layer(2, 3, 5);
  const Hypothesis cause = Named({"weight zero point ignored"});
  TestSubject subject = Answers([&](const Case& of, const RunContext&) {
    return of.out_dtype == DType::kS32 ? With(of, cause) : Right(of);
  });
  const Attribution found = Attribute(c, With(c, cause), subject);
  EXPECT_EQ(found.causes, cause);
  EXPECT_EQ(found.diagnosis, "the subject ignores the weight zero point, where the output is s32");
}

TEST(Examined, ACauseInSomePlaces) {
  const Case columns = Layer(3, 6, 5);
  const Hypothesis tail = In("weight zero point ignored", "only in the last N % 4 columns");
  TestSubject subject = Answers([&](const Case& of, const RunContext&) { return With(of, tail); });
  const Attribution found = Attribute(columns, With(columns, tail), subject);
  EXPECT_EQ(found.causes, tail) << found.diagnosis;
  EXPECT_EQ(found.kind, Kind::kTail) << "whatever the cause is there";
  EXPECT_EQ(found.diagnosis,
            "the subject ignores the weight zero point, only in the last N % 4 columns");
  const Case rows = Layer(7, 3, 5);
  const Hypothesis late = In("weight zero point ignored", "only from row 2 on");
  TestSubject of_rows = Answers([&](const Case& of, const RunContext&) { return With(of, late); });
  const Attribution in_rows = Attribute(rows, With(rows, late), of_rows);
  EXPECT_EQ(in_rows.causes, late) << in_rows.diagnosis;
  EXPECT_EQ(in_rows.kind, Kind::kZeroPoint) << "rows are no tail";
}

TEST(Examined, TwoCauses) {
  const Case c = Layer(3, 3, 5);
  const Hypothesis cause = Named({"weight zero point ignored", "last product dropped"});
  TestSubject subject = Answers([&](const Case& of, const RunContext&) { return With(of, cause); });
  const Attribution found = Attribute(c, With(c, cause), subject);
  EXPECT_EQ(found.causes, cause) << found.diagnosis;
  EXPECT_TRUE(found.evidence.back().ends_with(" bear it out")) << found.evidence.back();
}

constexpr AttributionOptions kExamines{.examine = true, .probe_state = false};

TEST(Examined, ACauseThatOtherAnswersContradictIsNotNamed) {
  const Case c = Layer(2, 3, 5);
  const Hypothesis cause = Named({"weight zero point ignored"});
  const Tensor y = With(c, cause);
  // Wrong on this case alone.
  TestSubject subject =
      Answers([&](const Case& of, const RunContext&) { return of == c ? y : Right(of); });
  const Attribution found = JudgedBy(AskOnce, c, subject, kExamines).attribution;
  EXPECT_EQ(found.kind, Kind::kUnknown);
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(found.diagnosis, "no known cause gives this and what was asked besides");
  EXPECT_EQ(found.contradicted.front(), cause);
  EXPECT_EQ(std::ranges::count(found.contradicted, cause), 1);
  EXPECT_TRUE(found.open.empty());
  const std::string& text = found.evidence.front();
  EXPECT_TRUE(
      text.ends_with(" further cases asked: weight zero point ignored gives the output, and "
                     "other answers contradict it"))
      << text;
}

TEST(Examined, CausesThatNoAnswerTellsApartStayOpen) {
  const Case c = Layer(1, 1, 3);
  const Hypothesis cause = Named({"weight zero point ignored"});
  const Tensor y = With(c, cause);
  // It breaks on all further cases.
  TestSubject subject([&](const Case&, const RunContext&) {
    return subject.runs == 1 ? TestSubject::Good(y)
                             : Outcome{RunStatus::kCrashed, "SIGSEGV", {}, {}};
  });
  const Attribution found = JudgedBy(AskOnce, c, subject, kExamines).attribution;
  EXPECT_EQ(found.kind, Kind::kUnknown);
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(found.open.front(), cause);
  EXPECT_TRUE(found.contradicted.empty());
  EXPECT_TRUE(found.diagnosis.starts_with("not enough to tell")) << found.diagnosis;
}

// Causes that earlier cases of the subject contradicted are not examined again.
TEST(Examined, WhatTheSubjectContradictedBeforeIsNotNamed) {
  Case c = Layer(1, 1, 6);
  c.x_q.zero_point = c.w_q.zero_point = {0};
  const Hypothesis cause = Named({"last product dropped"}), other = Named({"last term dropped"});
  TestSubject subject = Answers([&](const Case& of, const RunContext&) { return With(of, cause); });
  AttributionOptions options = kExamines;
  std::vector<Hypothesis> contradicted{other};
  options.contradicted = contradicted;
  const Attribution found = JudgedBy(AskOnce, c, subject, options).attribution;
  EXPECT_EQ(found.causes, cause);
  EXPECT_TRUE(found.evidence.back().ends_with("bear it out")) << found.evidence.back();
  contradicted.front() = cause;
  EXPECT_NE(JudgedBy(AskOnce, c, subject, options).attribution.causes, cause);
}

TEST(Examined, ReadingOtherRowsIsNamedInAnyNumberOfRows) {
  for (const int64_t rows : {2, 3, 7}) {
    const Case c = Layer(rows, 3, 7);
    for (const char* name : {"input one row on", "input one code on"}) {
      const Hypothesis cause = Named({name});
      TestSubject subject =
          Answers([&](const Case& of, const RunContext&) { return With(of, cause); });
      EXPECT_EQ(Attribute(c, With(c, cause), subject).causes, cause) << name << " of " << rows;
    }
  }
}

TEST(Established, ACauseInSomeRowsIsNamedInAnyNumberOfRows) {
  for (const int64_t rows : {2, 3, 7}) {
    const Case c = Layer(rows, 3, 5);
    const std::vector<Hypothesis> known{
        In("weight zero point ignored", "only in the last M % 4 rows")};
    const std::vector<Attribution> established = AllNamed(Op::kLinear, known);
    TestSubject subject =
        Answers([&](const Case& of, const RunContext&) { return With(of, known.front()); });
    const Attribution found =
        JudgedBy(AskOnce, c, subject,
                 {.established = established, .only_established = true, .probe_state = false})
            .attribution;
    EXPECT_EQ(found.causes, known.front()) << rows;
    EXPECT_EQ(found.kind, Kind::kTail);
  }
}

// ---- Several answers of one property.

// Asks about the case with each of these codes at the front, and fails.
auto AskedWith(std::vector<int32_t> codes) {
  return [codes = std::move(codes)](const Case& c, Subject& subject) {
    for (const int32_t code : codes) {
      Case each = c;
      each.x.SetInt(0, code);
      subject.Run(each, {});
    }
    return Verdict::Failed("differs");
  };
}

// The answers to codes 0, 1, 2 ... at the front.
TestSubject AnswersInTurn(std::vector<std::function<Tensor(const Case&)>> answers) {
  return Answers([answers = std::move(answers)](const Case& c, const RunContext&) {
    const auto at = static_cast<size_t>(c.x.IntAt(0));
    return at < answers.size() ? answers[at](c) : Right(c);
  });
}
Tensor OfStranger(const Case& c) { return Plus(Plus(Right(c), 0, 1'234'567), 1, 7'654'321); }
Tensor OfTail(const Case& c) { return Plus(Right(c), c.N - 1, 1'234'567); }
Tensor OfAnotherColumn(const Case& c) {
  Tensor y = Right(c);
  y.SetInt(0, y.IntAt(1));
  return y;
}
Tensor OfZeroPoint(const Case& c) { return With(c, Named({"weight zero point ignored"})); }

TEST(SeveralAnswers, TheFirstWithOneCauseDecides) {
  const Case c = Layer(1, 5, 3);
  const auto said = [&](std::vector<std::function<Tensor(const Case&)>> answers) {
    std::vector<int32_t> codes;
    for (size_t i = 0; i < answers.size(); ++i) codes.push_back(static_cast<int32_t>(i));
    TestSubject subject = AnswersInTurn(std::move(answers));
    return JudgedBy(AskedWith(codes), c, subject, kOneAnswer).attribution;
  };
  EXPECT_EQ(said({OfStranger, OfZeroPoint}).kind, Kind::kZeroPoint);
  EXPECT_EQ(said({OfStranger, OfTail, OfZeroPoint}).kind, Kind::kZeroPoint);
  // A guess is better than none, and the first guess stays.
  EXPECT_EQ(said({OfStranger, OfTail}).kind, Kind::kTail);
  EXPECT_EQ(said({OfTail, OfStranger}).kind, Kind::kTail);
  EXPECT_EQ(said({OfTail, OfAnotherColumn}).kind, Kind::kTail);
  EXPECT_EQ(said({OfAnotherColumn, OfTail}).kind, Kind::kIndex);
  EXPECT_EQ(said({OfStranger, Right, OfStranger}).kind, Kind::kUnknown);
}

// The answers that fit causes of two kinds: the bias is as large as the product.
TEST(SeveralAnswers, OneThatFitsOneKindIsBetterThanOneThatFitsTwo) {
  Case c = Layer(1, 1, 1);
  c.x_q.zero_point = c.w_q.zero_point = {0};
  c.w.SetInt(0, 9);
  c.bias_i32 = {18};
  const auto said = [&](std::vector<int32_t> codes, std::function<Tensor(const Case&)> answer) {
    TestSubject subject = Answers([&](const Case& of, const RunContext&) { return answer(of); });
    return JudgedBy(AskedWith(std::move(codes)), c, subject, kOneAnswer).attribution;
  };
  const auto no_bias = [](const Case& of) { return With(of, Named({"bias ignored"})); };
  // 2 * 9 is the bias: dropping the product gives the same.
  const Attribution both = said({2}, no_bias);
  EXPECT_EQ(both.kind, Kind::kTail);
  EXPECT_TRUE(both.ambiguous);
  const Attribution one = said({2, 3}, no_bias);
  EXPECT_EQ(one.kind, Kind::kIndex);
  EXPECT_FALSE(one.ambiguous);
  // An ambiguous cause is better than a guess, and the first of two ambiguous ones stays.
  const auto first_strange = [&](const Case& of) {
    return of.x.IntAt(0) == 3 ? Plus(Right(of), 0, 1'234'567) : no_bias(of);
  };
  EXPECT_TRUE(said({3, 2}, first_strange).complete);
  EXPECT_TRUE(said({2, 3}, first_strange).complete);
}

TEST(SeveralAnswers, AnAmbiguousCauseIsBetterThanAGuessAndTheFirstOfThemStays) {
  Case c = Layer(1, 5, 1);
  c.x_q.zero_point = c.w_q.zero_point = {0};
  c.bias_i32.emplace();
  for (int32_t n = 1; n < 6; ++n) c.w.SetInt(n - 1, n), c.bias_i32->push_back(2 * n);
  // With a code of 2 the bias is as large as the product; with 3 only the last column is wrong.
  TestSubject subject = Answers([](const Case& of, const RunContext&) {
    return of.x.IntAt(0) == 3 ? OfTail(of) : With(of, Named({"bias ignored"}));
  });
  const Attribution found = JudgedBy(AskedWith({3, 2}), c, subject, kOneAnswer).attribution;
  EXPECT_TRUE(found.complete);
  EXPECT_TRUE(found.ambiguous);
  // Of five outputs, then of three.
  const auto both = [](const Case& of, Subject& asked) {
    Case five = of;
    five.x.SetInt(0, 2);
    asked.Run(five, {});
    asked.Run(slice::Channels(five, std::vector<int64_t>{0, 1, 2}), {});
    return Verdict::Failed("differs");
  };
  const Attribution first = JudgedBy(both, c, subject, kOneAnswer).attribution;
  EXPECT_TRUE(first.ambiguous);
  EXPECT_EQ(first.evidence.front(),
            "exact arithmetic with last product dropped reproduces all 5 outputs "
            "(5 of them not exact)");
}

TEST(SeveralAnswers, AGuessOfAKindIsNotReplacedByThePlaceOfTheClamp) {
  const Case c = Layer(1, 5, 3);
  TestSubject subject = Answers([](const Case& of, const RunContext&) { return OfTail(of); });
  const auto clamp = [](const Case& of, Subject& asked) {
    asked.Run(of, {});
    Verdict verdict = Verdict::Failed("lies beyond the clamp");
    verdict.kind = Kind::kClamp;
    return verdict;
  };
  EXPECT_EQ(JudgedBy(clamp, c, subject, kOneAnswer).attribution.kind, Kind::kTail);
}

// Of the answers that are wrong three are examined, until one has a cause that is borne out.
TEST(SeveralAnswers, TheFirstWhoseCauseIsBorneOutDecides) {
  const Case c = Layer(1, 5, 3);
  const auto examined = [&](std::vector<std::function<Tensor(const Case&)>> answers) {
    std::vector<int32_t> codes;
    for (size_t i = 0; i < answers.size(); ++i) codes.push_back(static_cast<int32_t>(i));
    TestSubject subject = Answers([&](const Case& of, const RunContext&) {
      const auto at = static_cast<size_t>(of.x.size() == 3 ? of.x.bytes()[0] : 255);
      const bool asked = of.out_dtype == DType::kS32 && of.N == 5 && at < answers.size();
      return asked && of.w == c.w ? answers[at](of) : OfZeroPoint(of);
    });
    return JudgedBy(AskedWith(codes), c, subject, kExamines).attribution;
  };
  EXPECT_EQ(examined({OfZeroPoint}).kind, Kind::kZeroPoint);
  EXPECT_EQ(examined({OfStranger, OfZeroPoint}).kind, Kind::kZeroPoint);
  EXPECT_EQ(examined({OfStranger, OfTail, OfZeroPoint}).kind, Kind::kZeroPoint);
  EXPECT_EQ(examined({OfStranger, OfTail, OfTail, OfZeroPoint}).kind, Kind::kUnknown);
}

// ---- Under a promised convention.

// Products that saturate, and a relu that changes the output.
struct Promise {
  const Convention& model = *FindConvention("fbgemm@avx2");
  Case c = [] {
    Case made = Layer(2, 2, 4);
    made.x_q.zero_point = made.w_q.zero_point = {0};
    for (int64_t i = 0; i < 8; ++i) made.x.SetInt(i, 255), made.w.SetInt(i, i < 4 ? 127 : -127);
    made.out_dtype = DType::kU8;
    made.out_q = {{1024}, {100}};
    OpenClamp(&made);
    made.relu = true;
    return made;
  }();
  TestSubject Of(Answering answer) const {
    TestSubject subject = Answers(std::move(answer));
    subject.set_contract({model.name});
    subject.cannot_run = model.cannot_run;
    return subject;
  }
};

TEST(Promised, TheConventionIsNamedInTheEvidence) {
  const Promise promise;
  const Hypothesis cause = Named({"relu at code 0"});
  TestSubject subject = promise.Of([&](const Case& of, const RunContext&) {
    return Counterfactual(of, cause, &promise.model).value_or(promise.model.run(of).y);
  });
  const Tensor y = *Counterfactual(promise.c, cause, &promise.model);
  ASSERT_NE(y, promise.model.run(promise.c).y);
  const Attribution found = Attribute(promise.c, y, subject);
  EXPECT_EQ(found.causes, cause) << found.diagnosis;
  EXPECT_EQ(found.evidence.front(),
            "model:fbgemm@avx2 with relu at code 0 reproduces all 4 outputs (2 of them not exact)");
  EXPECT_EQ(subject.contract().convention, "fbgemm@avx2");
}

// What keeps the promise departs from the exact meaning alone.
TEST(Promised, AnAnswerThatKeepsThePromiseIsExplainedByTheExactMeaning) {
  const Promise promise;
  TestSubject subject =
      promise.Of([&](const Case& of, const RunContext&) { return promise.model.run(of).y; });
  const Attribution found = Attribute(promise.c, promise.model.run(promise.c).y, subject);
  EXPECT_EQ(found.kind, Kind::kPairSaturation) << found.diagnosis;
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(subject.contract().convention, "fbgemm@avx2") << "it is still promised";
}

// ---- What an examination leaves.

// A subject that answers only where both hypotheses say the same.
TestSubject AnswersWhereAlike(const Hypothesis& one, const Hypothesis& other) {
  TestSubject subject = Answers([=](const Case& of, const RunContext&) { return With(of, one); });
  subject.cannot_run = [=](const Case& of) {
    return With(of, one) == With(of, other) ? "" : "it would tell them apart";
  };
  return subject;
}

TEST(Examined, CausesOfOneKindThatAreBorneOutAlikeAreNamedTogether) {
  Case c = Layer(1, 1, 6);
  c.x_q.zero_point = c.w_q.zero_point = {0};
  const Hypothesis product = Named({"last product dropped"}), term = Named({"last term dropped"});
  TestSubject subject = AnswersWhereAlike(product, term);
  const Attribution found = JudgedBy(AskOnce, c, subject, kExamines).attribution;
  EXPECT_EQ(found.causes, product);
  EXPECT_EQ(found.open, std::vector<Hypothesis>{term});
  EXPECT_FALSE(found.ambiguous);
  ASSERT_EQ(found.evidence.size(), 3u);
  EXPECT_EQ(found.evidence[1], "also reproduced by: last term dropped");
  EXPECT_TRUE(found.evidence[2].ends_with(" bear it out")) << found.evidence[2];
}

// Where the first row has no codes, its sum in place of that of another row is no sum at all: the
// one that takes fewer bits to say is named, and the other one told.
TEST(Examined, OfTwoThatNoAnswerTellsApartTheLikelierIsNamed) {
  Case c = Layer(2, 2, 3);
  c.x_q.zero_point = {0};
  for (int64_t k = 0; k < 3; ++k) c.x.SetInt(k, 0);
  const Hypothesis zero = Named({"weight zero point ignored"}), row = Named({"row sum of row 0"});
  ASSERT_EQ(With(c, zero), With(c, row));
  TestSubject subject = AnswersWhereAlike(zero, row);
  const Attribution found = JudgedBy(AskOnce, c, subject, kExamines).attribution;
  EXPECT_EQ(found.causes, zero) << found.diagnosis;
  EXPECT_EQ(std::ranges::count(found.open, row), 1);
}

// One answer that departs in another way may show another fault: the cause that it fits less is not
// ruled out, but the other one is better.
TEST(Examined, ACauseThatFitsEveryAnswerIsBetterThanOneThatMissesOne) {
  Case c = Layer(2, 2, 3);
  c.x_q.zero_point = {0};
  for (int64_t k = 0; k < 3; ++k) c.x.SetInt(k, 0);
  const Hypothesis zero = Named({"weight zero point ignored"}), row = Named({"row sum of row 0"});
  const auto alike = [&](const Case& of) { return With(of, zero) == With(of, row); };
  int told = 0;
  TestSubject subject = Answers([&](const Case& of, const RunContext&) {
    told += alike(of) ? 0 : 1;
    return With(of, zero);
  });
  subject.cannot_run = [&](const Case& of) {
    return told == 0 || alike(of) ? "" : "it would tell more";
  };
  const Attribution found = JudgedBy(AskOnce, c, subject, kExamines).attribution;
  EXPECT_EQ(told, 1);
  EXPECT_EQ(found.causes, zero);
  EXPECT_EQ(std::ranges::count(found.open, row), 1);
}

// Wrong as the cause has it, in one output of the place and in no other.
TEST(Examined, APlaceFitsIfTheCauseActsInEveryOutputOfIt) {
  const Case c = Layer(3, 6, 5);
  const Hypothesis cause = Named({"weight zero point ignored"});
  const Hypothesis tail = In("weight zero point ignored", "only in the last N % 4 columns");
  Tensor y = With(c, tail);
  y.SetInt(0, With(c, cause).IntAt(0));
  TestSubject subject =
      Answers([&](const Case& of, const RunContext&) { return of == c ? y : Right(of); });
  const Attribution found = JudgedBy(AskOnce, c, subject, kExamines).attribution;
  EXPECT_EQ(std::ranges::count(found.contradicted, tail), 0);
  EXPECT_EQ(found.diagnosis, "no known cause gives every output");
}

TEST(Examined, OutputsOfThePlaceThatTheCauseLeavesRightDoNotMatter) {
  const Case c = WithZeroProducts(5, {0, 4});
  const Hypothesis cause = In("last product dropped", "only from column 1 on");
  TestSubject subject = Answers([&](const Case& of, const RunContext&) { return With(of, cause); });
  EXPECT_EQ(Attribute(c, With(c, cause), subject).causes, cause);
  // A cause that reads other rows acts in places too.
  const Case rows = Layer(5, 3, 7);
  const Hypothesis reads = In("input one row on", "only from column 1 on");
  TestSubject reading = Answers([&](const Case& of, const RunContext&) { return With(of, reads); });
  EXPECT_EQ(Attribute(rows, With(rows, reads), reading).causes, reads);
}

// A cause that gives the whole output needs no place; only in a narrow output it may be a tail.
TEST(Examined, ACauseOfTheWholeOutputIsLookedForInTailsAlone) {
  const Case c = WithZeroProducts(3, {0, 1});
  const Hypothesis cause = Named({"last product dropped"});
  const Tensor y = With(c, cause);
  TestSubject subject =
      Answers([&](const Case& of, const RunContext&) { return of == c ? y : Right(of); });
  const Attribution found = JudgedBy(AskOnce, c, subject, kExamines).attribution;
  EXPECT_EQ(std::ranges::count(found.contradicted, cause), 1);
  int64_t tails = 0, others = 0;
  for (const Hypothesis& each : found.contradicted) {
    if (each.front() != cause.front() || each.size() == 1) continue;
    if (each.back()->stage == CauseStage::kPlace)
      (each.back()->kind == Kind::kTail ? tails : others) += 1;
  }
  EXPECT_EQ(tails, 10) << "of five widths, in columns and in rows";
  EXPECT_EQ(others, 0);
}

// The tails of causes that give the whole output, and that were contradicted, come last.
TEST(Examined, ACauseInAPlaceIsFoundBesideManyTails) {
  // Two products are left of the last six, and one of them is 0: four causes drop the other one.
  Case c = Layer(1, 5, 6);
  c.x_q.zero_point = c.w_q.zero_point = {0};
  c.bias_i32 = {{11, 22, 33, 44, 0}};
  for (int64_t n = 0; n < 5; ++n) {
    c.w.SetInt(n * 6 + 4, 0);
    if (n < 4) c.w.SetInt(n * 6 + 5, 0);
  }
  (*c.bias_i32)[4] = c.x.IntAt(5) * c.w.IntAt(29);
  const Hypothesis bias = In("bias ignored", "only in the last N % 4 columns");
  const Tensor y = With(c, bias);
  for (const char* whole : {"last product dropped", "product tail of 4 dropped",
                            "last term dropped", "term tail of 4 dropped"})
    ASSERT_EQ(With(c, Named({whole})), y) << whole;
  TestSubject subject = Answers([&](const Case& of, const RunContext&) { return With(of, bias); });
  const Attribution found = JudgedBy(AskOnce, c, subject, kExamines).attribution;
  EXPECT_EQ(found.causes, bias) << found.diagnosis;
}

// Two causes give the whole output, each also in nine tails.
TEST(Examined, AnyTailOfACauseOfTheWholeOutputMayBeTheOne) {
  Case c = Layer(1, 5, 2);
  c.x_q.zero_point = c.w_q.zero_point = {0};
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{100, 0});
  for (int64_t n = 0; n < 5; ++n) c.w.SetInt(2 * n, static_cast<int32_t>(-100 - 5 * n));
  c.out_dtype = DType::kS8;
  OpenClamp(&c);
  c.relu = true;
  c.out_q = {{1000}, {50}};
  const Hypothesis cause = In("relu ignored", "only in the last M % 4 rows");
  ASSERT_NE(With(c, cause), Right(c));
  ASSERT_EQ(With(c, cause), With(c, Named({"relu at code 0"})));
  ASSERT_EQ(With(c, cause), With(c, Named({"relu ignored"})));
  TestSubject subject = Answers([&](const Case& of, const RunContext&) { return With(of, cause); });
  const Attribution found = JudgedBy(AskOnce, c, subject, kExamines).attribution;
  EXPECT_EQ(found.causes, cause) << found.diagnosis;
}

TEST(Examined, ALongCaseIsExaminedInTwoRows) {
  const Case c = Layer(300, 4, 20);
  const Hypothesis cause = Named({"weight zero point ignored"});
  int64_t most = 0;
  TestSubject subject = Answers([&](const Case& of, const RunContext&) {
    if (of.M != 300) most = std::max(most, of.M);
    EXPECT_TRUE(of == c || of.M < 300) << "each such question costs 24,000 products";
    return With(of, cause);
  });
  EXPECT_EQ(JudgedBy(AskOnce, c, subject, kExamines).attribution.causes, cause);
  EXPECT_GE(most, 2);
  // One long row is examined as it is.
  const Case row = Layer(1, 200, 100);
  TestSubject of_row = Answers([&](const Case& of, const RunContext&) { return With(of, cause); });
  EXPECT_EQ(JudgedBy(AskOnce, row, of_row, kExamines).attribution.causes, cause);
}

// A fault that needs rows is not looked for in fewer of them.
TEST(Examined, AShortCaseIsExaminedWithAllItsRows) {
  const Case c = Layer(6, 2, 4);
  const Hypothesis cause = Named({"weight zero point ignored"});
  TestSubject subject = Answers(
      [&](const Case& of, const RunContext&) { return of.M >= 6 ? With(of, cause) : Right(of); });
  const Attribution found = JudgedBy(AskOnce, c, subject, kExamines).attribution;
  EXPECT_EQ(found.causes, cause);
  EXPECT_EQ(found.diagnosis, "the subject ignores the weight zero point, where M is 6 or more");
}

// The case found shows one of two faults, further cases show both. What is known of the other does
// not contradict the first.
TEST(Examined, AnotherFaultThatIsKnownDoesNotContradictACause) {
  const Case c = WithZeroProducts(2, {0, 1});
  const Hypothesis zero = Named({"weight zero point ignored"}),
                   tail = Named({"last product dropped"});
  const Hypothesis both{zero.front(), tail.front()};
  TestSubject subject = Answers([&](const Case& of, const RunContext&) { return With(of, both); });
  ASSERT_EQ(With(c, both), With(c, zero));
  AttributionOptions options = kExamines;
  EXPECT_NE(JudgedBy(AskOnce, c, subject, options).attribution.causes, zero);
  const std::vector<Attribution> known = AllNamed(Op::kLinear, {tail});
  options.established = known;
  const Attribution found = JudgedBy(AskOnce, c, subject, options).attribution;
  EXPECT_EQ(found.causes, zero);
  EXPECT_TRUE(found.evidence.back().ends_with("bear it out")) << found.evidence.back();
}

// A cause that is contradicted with and without the known fault is told once, after all questions.
TEST(Examined, WhatIsContradictedBesideAKnownFaultIsToldOnce) {
  const Case c = Layer(2, 3, 5);
  const Tensor y = With(c, Named({"weight zero point ignored"}));
  TestSubject subject =
      Answers([&](const Case& of, const RunContext&) { return of == c ? y : Right(of); });
  AttributionOptions options = kExamines;
  const std::vector<Attribution> known = AllNamed(Op::kLinear, {Named({"last product dropped"})});
  options.established = known;
  const Attribution found = JudgedBy(AskOnce, c, subject, options).attribution;
  EXPECT_FALSE(found.complete);
}

TEST(Established, TwoThatTheAnswerTakesAreNamed) {
  const Case c = Layer(2, 3, 5);
  const Hypothesis zero = Named({"weight zero point ignored"}),
                   tail = Named({"last product dropped"});
  const std::vector<Attribution> known = AllNamed(Op::kLinear, {zero, tail});
  const Hypothesis both{zero.front(), tail.front()};
  TestSubject subject = Answers([&](const Case& of, const RunContext&) { return With(of, both); });
  const AttributionOptions options{
      .established = known, .only_established = true, .probe_state = false};
  EXPECT_EQ(JudgedBy(AskOnce, c, subject, options).attribution.causes, both);
}

// ---- What is named, and what is not.

TEST(Named, IsWhatIsWorthMoreThanItCosts) {
  Case c = Layer(2, 3, 5);
  c.x_q.zero_point = {9};
  const Hypothesis ignored = Named({"input zero point ignored"});
  const Attribution found = Attribute(c, With(c, ignored));
  EXPECT_EQ(found.causes, ignored);
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.diagnosis, "the subject ignores the input zero point");
  // Two that act together cost both.
  c.w_q.zero_point = {7};
  const Hypothesis both = Named({"weight zero point ignored", "input zero point ignored"});
  EXPECT_EQ(Attribute(c, With(c, both)).diagnosis,
            "the subject ignores the weight zero point and ignores the input zero point");
}

// One output that is off by one is worth less than any explanation.
TEST(Named, OneCodeIsNot) {
  Case c = Layer(1, 1, 1);
  c.out_dtype = DType::kU8;
  c.out_q = {{64}, {10}};
  OpenClamp(&c);
  ASSERT_EQ(Validate(c), "");
  Tensor y = Right(c);
  y.SetInt(0, y.IntAt(0) + (y.IntAt(0) < 255 ? 1 : -1));
  const Attribution found = Attribute(c, y);
  EXPECT_FALSE(found.complete) << found.diagnosis;
  EXPECT_EQ(found.kind, Kind::kUnknown);
}

TEST(Named, AKnownArithmeticStandsBeforePlacesAndTails) {
  // Of one row of seven columns every output is among the last N % 8.
  Case c = CaseOver(Op::kQuantize,
                    Tensor::Of<float>({1, 7}, std::vector<float>{1, 2, 3, 4, 5, 6, 7}), DType::kU8);
  c.out_q = {{0.1f}, {3}};
  ASSERT_EQ(Validate(c), "");
  const Convention& fbgemm = *FindConvention("fbgemm@avx2");
  c.x.as<float>()[3] = 0x1.4ccccep+0f;  // 13 * fl(0.1): the reciprocal of 0.1 is not exact
  for (int i = 0; i < 4000 && fbgemm.run(c).y == Right(c); ++i)
    c.x.as<float>()[3] = std::nextafter(c.x.FloatAt(3), 2.0f);
  if (fbgemm.run(c).y == Right(c))
    c.out_q.scale = {0.00214854861f}, c.x.as<float>()[3] = 0.273939937f;
  ASSERT_NE(fbgemm.run(c).y, Right(c));
  const Attribution found = Attribute(c, fbgemm.run(c).y);
  EXPECT_TRUE(found.complete);
  EXPECT_NE(found.diagnosis.find("fbgemm@avx2"), std::string::npos) << found.diagnosis;
}

TEST(Named, APartOfAnAnswerIsNoExplanation) {
  Case c = Layer(2, 3, 5);
  c.x_q.zero_point = {9};
  const Tensor y = Plus(With(c, Named({"input zero point ignored"})), 0, 12345);
  const Attribution found = Attribute(c, y);
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(found.diagnosis, "no known cause gives every output");
}

}  // namespace
}  // namespace qualm::triage
