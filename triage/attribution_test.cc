// SPDX-License-Identifier: Apache-2.0
// What attribution says of answers that were made for it: by subjects of one known fault, judged by
// a property that the test makes up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "core/slice.h"
#include "core/text_test_util.h"
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
using Judge = std::function<Verdict(const Case&, Subject&)>;
Judge judging;
Judged JudgedBy(Judge judge, const Case& c, Subject& subject, const AttributionOptions& options) {
  judging = std::move(judge);
  Property property{.claim = "of_the_test",
                    .sentence = "The test says so.",
                    .ops = {AllOps().begin(), AllOps().end()},
                    .any_contract = true,
                    .check = [](const Case& of, Subject& asked) { return judging(of, asked); }};
  return JudgeAndAttribute(property, c, subject, options);
}
Attribution Found(const Judge& judge, const Case& c, Subject& subject,
                  const AttributionOptions& options) {
  return JudgedBy(judge, c, subject, options).attribution;
}
std::string Said(const Judge& judge, const Case& c, Subject& subject,
                 const AttributionOptions& options) {
  return Found(judge, c, subject, options).diagnosis;
}
// A cause that gives the answer, of this kind and in these words.
void ExpectCause(const Attribution& found, Kind kind, const std::string& diagnosis,
                 std::source_location where = std::source_location::current()) {
  const testing::ScopedTrace trace(__FILE__, static_cast<int>(where.line()), "");
  EXPECT_EQ(found.kind, kind);
  EXPECT_EQ(found.diagnosis, diagnosis);
  EXPECT_TRUE(found.complete);
}

// Asks the case with each of these edits, and fails so.
using Edit = std::function<void(Case&)>;
Judge AsksOf(std::vector<Edit> edits, const Verdict& verdict = Verdict::Failed("differs")) {
  return [edits = std::move(edits), verdict](const Case& c, Subject& subject) {
    for (const Edit& edit : edits) {
      Case each = c;
      edit(each);
      subject.Run(each, {});
    }
    return verdict;
  };
}
void AsItIs(Case&) {}
void WithAnotherCode(Case& c) { c.x.SetInt(0, c.x.IntAt(0) ^ 1); }
// The case with each of these codes at the front.
std::vector<Edit> Codes(const std::vector<int32_t>& codes) {
  std::vector<Edit> edits;
  for (const int32_t code : codes) edits.push_back([code](Case& c) { c.x.SetInt(0, code); });
  return edits;
}
Judge AskedWith(const std::vector<int32_t>& codes) { return AsksOf(Codes(codes)); }
std::vector<int32_t> Upto(size_t count) {
  std::vector<int32_t> codes(count);
  std::iota(codes.begin(), codes.end(), 0);
  return codes;
}
Verdict Failure(Kind kind, const std::string& why) {
  Verdict verdict = Verdict::Failed(why);
  verdict.kind = kind;
  return verdict;
}
Judge Fails(Kind kind, const std::string& why) { return AsksOf({AsItIs}, Failure(kind, why)); }
Verdict AskOnce(const Case& c, Subject& subject) { return AsksOf({AsItIs})(c, subject); }
// Asks the case in each of the contexts, and fails.
Judge AskedIn(std::vector<RunContext> contexts) {
  return [contexts = std::move(contexts)](const Case& c, Subject& subject) {
    for (const RunContext& context : contexts) subject.Run(c, context);
    return Verdict::Failed("differs");
  };
}
RunContext InMode(Rounding rounding, bool flush = false) {
  RunContext context;
  context.rounding = rounding, context.flush_denormals = flush;
  return context;
}
RunContext Poisoned(uint8_t poison, RunContext context = {}) {
  context.poison = poison;
  return context;
}
const Outcome kBreaks{RunStatus::kCrashed, "SIGSEGV", {}, {}};

// The first two name only what is established; the second asks the same question again. The third
// decides by the one answer, the fourth by further cases.
const AttributionOptions kLooks{.only_established = true, .probe_state = false};
const AttributionOptions kAsks{.only_established = true, .probe_state = true};
const AttributionOptions kOneAnswer{.probe_state = false};
const AttributionOptions kExamines{.examine = true, .probe_state = false};
constexpr int kAddresses = 16;  // at which a wrong answer is asked for again
constexpr const char* kNothing = "no established cause";
constexpr const char* kExact = "every answer is exact";
constexpr const char* kUnwritten = "the subject leaves outputs unwritten";
constexpr const char* kOfMemory = "the answer depends on what its memory held before";
constexpr const char* kOfEarlier = "the answer depends on what was asked before";
constexpr const char* kVaries = "the same question, asked twice, is answered differently";
constexpr const char* kDiffer = "two runs differ";

Hypothesis Zero() { return Named({"weight zero point ignored"}); }
Hypothesis Product() { return Named({"last product dropped"}); }
Hypothesis Term() { return Named({"last term dropped"}); }
Hypothesis ZeroAndProduct() { return {Zero().front(), Product().front()}; }
TestSubject OneOff() {
  return Answers([](const Case& c) { return Plus(Right(c), 0, 1); });
}
Case WithoutZeroPoints(Case c) {
  c.x_q.zero_point = c.w_q.zero_point = {0};
  return c;
}

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
  struct Row {
    Kind kind;
    const char* why;
    bool probes;
    int64_t runs;
  };
  for (const Row& row : {Row{Kind::kMemory, "wrote before the start of y", true, 4},
                         Row{Kind::kMemory, "wrote before the start of y", false, 1},
                         Row{Kind::kHang, "hung", true, 1}}) {  // no state: no further run
    TestSubject subject = OneOff();
    ExpectCause(
        Found(Fails(row.kind, row.why), Layer(1, 1, 1), subject, {.probe_state = row.probes}),
        row.kind, row.why);
    EXPECT_EQ(subject.runs, row.runs) << row.why;
  }
}

// A property of the clamp says where an output went wrong, which is no cause.
TEST(FromVerdict, TheClampIsAPlaceAndNoCause) {
  const Case c = Layer(1, 1, 2);
  const Judge clamp = Fails(Kind::kClamp, "lies beyond the clamp");
  TestSubject right;
  const Attribution none = Found(clamp, c, right, kOneAnswer);
  EXPECT_EQ(none.kind, Kind::kClamp);
  EXPECT_EQ(none.diagnosis, kExact);
  EXPECT_FALSE(none.complete);
  TestSubject stranger = Answers([](const Case& of) { return Plus(Right(of), 0, 1234567); });
  const Attribution unknown = Found(clamp, c, stranger, kOneAnswer);
  EXPECT_EQ(unknown.kind, Kind::kClamp);
  EXPECT_FALSE(unknown.complete);
  TestSubject faulty = Kernel(Zero());
  const Attribution known = Found(clamp, c, faulty, kOneAnswer);
  EXPECT_EQ(known.kind, Kind::kZeroPoint);
  EXPECT_TRUE(known.complete);
  // Without such a verdict an unknown cause stays unknown.
  EXPECT_EQ(Found(AskOnce, c, stranger, kOneAnswer).kind, Kind::kUnknown);
}

TEST(FromVerdict, RightAnswersAreSaidToBeRight) {
  TestSubject subject;
  Case c = Layer(1, 1, 2);
  EXPECT_EQ(Found(AskOnce, c, subject, kOneAnswer).kind, Kind::kUnknown);
  const Convention& model = *FindConvention("fbgemm@avx2");
  c.out_dtype = DType::kU8;
  OpenClamp(&c);
  ASSERT_EQ(model.cannot_run(c), "");
  TestSubject promised = Answers([&](const Case& of) { return model.run(of).y; });
  promised.set_contract({model.name});
  EXPECT_EQ(Said(AskOnce, c, promised, kOneAnswer), "every answer is the one of model:fbgemm@avx2");
}

// ---- What is looked at: the answers that the property saw.

TEST(RecordedAnswers, AnswersOfAnotherShapeOrTypeAndFailedRunsAreNotLookedAt) {
  const Case c = Layer(2, 2, 3);
  for (const Outcome& outcome :
       {TestSubject::Good(Tensor(DType::kS32, {4, 1})),
        TestSubject::Good(Tensor(DType::kU8, {2, 2})),
        Outcome{RunStatus::kCrashed, "SIGSEGV", Plus(Right(c), 0, 1), {}}}) {
    TestSubject subject([&](const Case&, const RunContext&) { return outcome; });
    EXPECT_EQ(Said(AskOnce, c, subject, kOneAnswer), kExact);
  }
}

TEST(RecordedAnswers, AnAnswerAmongManyIsLookedAt) {
  const Case c = Layer(2, 2, 3);
  const auto row = [](const Case& of, int64_t m) { return slice::Rows(of, std::vector{m}); };
  const auto judge = [&](const Case& of, Subject& asked) {
    asked.RunMany(std::vector{row(of, 0), row(of, 1)}, {});
    return Verdict::Failed("differs");
  };
  const Tensor one = Right(row(c, 0));
  TestSubject subject =
      Answers([&](const Case& of) { return Right(of) == one ? one : With(of, Zero()); });
  EXPECT_EQ(Found(judge, c, subject, kOneAnswer).causes, Zero());
}

// Properties may ask one question a hundred times: that is one answer, and what comes after it is
// looked at too.
TEST(RecordedAnswers, TheSameAnswerCountsOnce) {
  const Case c = Layer(1, 2, 3);
  TestSubject subject =
      Answers([&](const Case& of) { return of.x == c.x ? Right(of) : With(of, Zero()); });
  std::vector<Edit> edits(100, AsItIs);
  edits.emplace_back(WithAnotherCode);
  EXPECT_EQ(Found(AsksOf(edits), c, subject, kOneAnswer).causes, Zero());
}

// Two questions may have one answer, which is wrong for one of them; and one question two answers.
TEST(RecordedAnswers, AreTakenWithTheirQuestions) {
  Case first = Layer(1, 2, 3);
  first.w_q.zero_point = {0};
  TestSubject subject = Kernel(Zero());
  const Judge judge = AsksOf({AsItIs, [](Case& c) { c.w_q.zero_point = {5}; }});
  EXPECT_EQ(Found(judge, first, subject, kOneAnswer).causes, Zero());
  TestSubject later =
      Answers([&](const Case& of) { return later.runs == 1 ? Right(of) : Plus(Right(of), 0, 1); });
  EXPECT_EQ(Said(AskedIn({{}, {}}), first, later, kLooks), kNothing);
}

// A property that asks a subject without end must not make attribution endless.
TEST(RecordedAnswers, TheFirst64AreKept) {
  for (const int32_t wrong : {63, 64}) {
    TestSubject subject = Answers(
        [&](const Case& of) { return of.x.IntAt(0) == wrong ? With(of, Zero()) : Right(of); });
    EXPECT_EQ(Found(AskedWith(Upto(65)), Layer(1, 2, 3), subject, kOneAnswer).complete,
              wrong == 63);
  }
}

// ---- The state of the caller.

TEST(Environment, AnAnswerThatFollowsItIsRounding) {
  const Case c = Layer(1, 2, 3);
  TestSubject rounds = Answers([](const Case& of, const RunContext& context) {
    return context.rounding == Rounding::kNearest ? Right(of) : Plus(Right(of), 1, 1);
  });
  // Asked in the other mode after, before, and after a third context that gave the usual answer.
  const RunContext up = InMode(Rounding::kUp);
  for (const auto& contexts :
       std::vector<std::vector<RunContext>>{{{}, up}, {up, {}}, {Poisoned(8), {}, up}})
    ExpectCause(Found(AskedIn(contexts), c, rounds, kLooks), Kind::kRounding,
                "the subject rounds as its caller's rounding mode says");
  TestSubject flushes = Answers([](const Case& of, const RunContext& context) {
    return context.flush_denormals ? Plus(Right(of), 1, 1) : Right(of);
  });
  ExpectCause(Found(AskedIn({{}, InMode(Rounding::kNearest, true)}), c, flushes, kLooks),
              Kind::kRounding, "the subject flushes denormals where its caller does");
}

TEST(Environment, IsNotBlamedForWhatOtherThingsChange) {
  const Case c = Layer(1, 2, 3);
  const RunContext up = InMode(Rounding::kUp);
  TestSubject wrong = OneOff();
  EXPECT_EQ(Said(AskedIn({{}, up}), c, wrong, kLooks), kNothing) << "wrong in both modes alike";
  const auto two = [&](const Case& of, Subject& asked) {
    asked.Run(of, {});
    Case other = of;
    WithAnotherCode(other);
    asked.Run(other, up);
    return Verdict::Failed("differs");
  };
  EXPECT_EQ(Said(two, c, wrong, kLooks), kNothing) << "two different questions";
  TestSubject of_poison = Answers([](const Case& of, const RunContext& context) {
    return context.poison == 7 ? Plus(Right(of), 0, 1) : Right(of);
  });
  EXPECT_EQ(Said(AskedIn({{}, Poisoned(7)}), c, of_poison, kLooks), kNothing) << "no other mode";
  EXPECT_EQ(Said(AskedIn({Poisoned(8), Poisoned(7, up)}), c, of_poison, kLooks), kNothing)
      << "another mode and another fill at once, beside no answer in the usual context";
}

// ---- What memory held before.

// Outputs of the right value but for those that `keeps` names, which are left as they were.
TestSubject LeavesUnwritten(std::function<bool(const Case&, int64_t)> keeps) {
  return Answers([keeps = std::move(keeps)](const Case& c, const RunContext& context) {
    Tensor y = Right(c);
    const size_t size = SizeOf(y.dtype());
    for (int64_t i = 0; i < y.size(); ++i) {
      if (!keeps(c, i)) continue;
      for (size_t byte = 0; byte < size; ++byte)
        y.bytes()[static_cast<size_t>(i) * size + byte] = context.poison;
    }
    return y;
  });
}

TEST(MemoryContents, OutputsThatAreNotWrittenAreSaidToBe) {
  TestSubject subject = LeavesUnwritten([](const Case&, int64_t i) { return i == 0 || i == 4; });
  ExpectCause(Found(AskOnce, Layer(1, 70, 2), subject, kAsks), Kind::kMemory, kUnwritten);
  // The same after a property that knew no more than that memory matters.
  for (const Kind kind : {Kind::kMemory, Kind::kNondeterminism}) {
    const Judge judge = Fails(kind, kDiffer);
    EXPECT_EQ(Said(judge, Layer(1, 70, 2), subject, kAsks), kUnwritten);
    EXPECT_EQ(Said(judge, Layer(2, 3, 2), subject, kLooks), kDiffer);
  }
}

TEST(MemoryContents, OutputsAtTheEndThatAreNotWrittenAreATail) {
  const auto last = [](const Case& c, int64_t i) { return i % c.N >= c.N - c.N % 8; };
  TestSubject subject = LeavesUnwritten(last);
  ExpectCause(Found(AskOnce, Layer(2, 67, 2), subject, kAsks), Kind::kTail,
              "the subject leaves outputs unwritten, all of them among the last N % 64");
  EXPECT_EQ(Found(AskOnce, Layer(1, 128 + 32, 2), subject, kAsks).kind, Kind::kUnknown)
      << "whole vectors alone: every output is written";
  const Case c = Layer(2, 64 + 5, 2);
  TestSubject one = LeavesUnwritten(
      [](const Case& of, int64_t i) { return i % of.N == of.N - 1 || i == of.N - 5; });
  EXPECT_EQ(Found(AskOnce, c, one, kAsks).kind, Kind::kTail);
  TestSubject before =
      LeavesUnwritten([](const Case& of, int64_t i) { return i % of.N == of.N - 6; });
  EXPECT_EQ(Found(AskOnce, c, before, kAsks).kind, Kind::kMemory);
}

TEST(MemoryContents, AnAnswerThatIsMadeOfThemIsNotUnwritten) {
  const auto expect = [](const std::function<void(Tensor&, uint8_t)>& edit, int64_t what) {
    TestSubject subject = Answers([&](const Case& c, const RunContext& context) {
      Tensor y = Right(c);
      edit(y, context.poison);
      return y;
    });
    SCOPED_TRACE(what);
    ExpectCause(Found(AskOnce, Layer(1, 70, 2), subject, kAsks), Kind::kMemory, kOfMemory);
  };
  const auto fill = [](Tensor& y, uint8_t byte) { std::fill_n(y.bytes().begin(), 4, byte); };
  for (const int64_t at : {0, 69})
    expect([=](Tensor& y, uint8_t poison) { y = Plus(y, at, int32_t{poison} << 3); }, at);
  // Single bytes of an output that hold the old contents, and three that do not.
  for (const size_t byte : {0, 1, 2, 3})
    expect([=](Tensor& y, uint8_t poison) { y.bytes()[4 + byte] = poison; }, 10 + byte);
  // The old contents with the one fill, another number with the other.
  for (const bool first : {true, false})
    expect([=](Tensor& y, uint8_t poison) { fill(y, first == (poison == 0x3C) ? poison : 0x11); },
           20 + first);
  // One output is left, another is made of what was there.
  expect([=](Tensor& y, uint8_t poison) { y = Plus(y, 2, poison), fill(y, poison); }, 30);
}

// The first three problems that the property asked about are tried, and no more: each costs three
// runs.
TEST(MemoryContents, AreChangedForTheFirstThreeProblems) {
  const Judge judge = AsksOf(Codes(Upto(5)), Failure(Kind::kMemory, kDiffer));
  for (int bad = 0; bad < 5; ++bad) {
    TestSubject subject =
        LeavesUnwritten([bad](const Case& c, int64_t i) { return c.x.IntAt(0) == bad && i == 0; });
    EXPECT_EQ(Said(judge, Layer(1, 70, 2), subject, kAsks), bad < 3 ? kUnwritten : kDiffer) << bad;
    EXPECT_EQ(subject.runs, 5 + 3 * std::min(bad + 1, 3)) << bad;
  }
}

// A run that breaks, or an answer that varies by itself, tells nothing of memory.
TEST(MemoryContents, AreNotBlamedWhereTheAnswerVariesOrARunBreaks) {
  const Case c = Layer(1, 70, 2);
  TestSubject varies = Answers(
      [&](const Case& of) { return Plus(Right(of), 0, static_cast<int32_t>(varies.runs)); });
  EXPECT_EQ(Said(Fails(Kind::kNondeterminism, kDiffer), c, varies, kAsks), kDiffer);
  const auto expect = [&](Kind kind, int64_t what, const TestSubject::RunFunction& run) {
    TestSubject subject(run), again(run);
    EXPECT_EQ(Said(Fails(kind, kDiffer), c, subject, kAsks), kDiffer) << what;
    EXPECT_EQ(Said(AskOnce, c, again, kAsks), kNothing) << what;
  };
  for (const int64_t breaks : {2, 3, 4}) {
    expect(Kind::kNondeterminism, breaks,
           [&, runs = 0](const Case& of, const RunContext& context) mutable {
             if (++runs == breaks) return kBreaks;
             return TestSubject::Good(Plus(Right(of), 0, context.poison));
           });
  }
  // Every run with one fill, of which one is what memory holds at first.
  for (const uint8_t fill : {0x3C, 0xC3}) {
    expect(Kind::kMemory, fill, [&](const Case& of, const RunContext& context) {
      Outcome outcome = context.poison == fill ? kBreaks : TestSubject::Good({});
      outcome.y = Plus(Right(of), 0, context.poison == fill ? 9 : 1);
      return outcome;
    });
  }
}

// ---- What was asked before.

TEST(AskedAgain, TheSameQuestionAnsweredInTwoWaysIsNondeterminism) {
  TestSubject subject = Answers(
      [&](const Case& of) { return Plus(Right(of), 0, static_cast<int32_t>(subject.runs)); });
  ExpectCause(Found(AskOnce, Layer(1, 70, 2), subject, kAsks), Kind::kNondeterminism, kVaries);
}

// A random answer may happen to change together with the fill of the memory. So each fill is asked
// three more times.
TEST(AskedAgain, AnAnswerThatVariesIsNotTakenForOneThatDependsOnMemory) {
  const Case c = Layer(1, 70, 2);
  // Which of the questions, after the property's own, is answered with another number. Questions 1
  // and 2 have one fill, 3 another; then come three times the one and the other.
  for (int64_t other = 2; other <= 9; ++other) {
    TestSubject subject = Answers([&](const Case& of, const RunContext& context) {
      const int32_t of_fill = context.poison == 0xC3 && other != 3 ? 5 : 0;
      return Plus(Right(of), 0, 1 + of_fill + (subject.runs - 1 == other ? 9 : 0));
    });
    SCOPED_TRACE(other);
    ExpectCause(Found(AskOnce, c, subject, kAsks), Kind::kNondeterminism, kVaries);
  }
  TestSubject steady = Answers([&](const Case& of, const RunContext& context) {
    return Plus(Right(of), 0, context.poison == 0xC3 ? 5 : 1);
  });
  EXPECT_EQ(Found(AskOnce, c, steady, kAsks).kind, Kind::kMemory);
  EXPECT_EQ(steady.runs, 10);
}

// What the property saw does not come again.
TEST(AskedAgain, AnAnswerThatDoesNotComeAgainDependsOnEarlierQuestions) {
  const Case c = Layer(1, 70, 2);
  TestSubject first =
      Answers([&](const Case& of) { return Plus(Right(of), 0, first.runs == 1 ? 2 : 1); });
  ExpectCause(Found(AskOnce, c, first, kAsks), Kind::kNondeterminism, kOfEarlier);
  EXPECT_EQ(first.runs, 1 + 3 + 16);
  // One of the sixteen later answers differs: that is chance.
  for (const int64_t other : {5, 20}) {
    TestSubject chance = Answers([&](const Case& of) {
      return Plus(Right(of), 0, chance.runs == 1 || chance.runs == other ? 2 : 1);
    });
    EXPECT_EQ(Said(AskOnce, c, chance, kAsks),
              "the same question, asked 17 times, is answered differently 1 time");
  }
  // Nor is it chance where the last questions get no answer.
  for (const int last : {4, 7, 19}) {
    TestSubject spent([&](const Case& of, const RunContext&) {
      if (spent.runs > last) return Outcome{RunStatus::kSkipped, "spent", {}, {}};
      return TestSubject::Good(Plus(Right(of), 0, spent.runs == 1 ? 2 : 1));
    });
    ExpectCause(Found(AskOnce, c, spent, kAsks), Kind::kNondeterminism, kOfEarlier);
  }
}

// A wrong output that is right at another address was not computed wrongly, but somewhere.
TEST(AskedAgain, AnAnswerThatFollowsTheAddressesDependsOnTheAlignment) {
  const Case c = Layer(1, 70, 2);
  const auto found = [&](const std::function<int(int offset, int64_t runs)>& error) {
    TestSubject subject = Answers([&](const Case& of, const RunContext& context) {
      return Plus(Right(of), 0, error(context.align_offset, subject.runs));
    });
    return Found(AskOnce, c, subject, kAsks);
  };
  const auto follows = [](int offset, int64_t) { return offset % 8 == 0 ? 1 : 0; };
  const auto always = [](int offset, int64_t) { return 1 + offset % 8; };
  const auto chance = [](int offset, int64_t runs) { return offset == 0 || runs % 3 == 0; };
  ExpectCause(found(follows), Kind::kMemory, "the answer depends on how its buffers are aligned");
  EXPECT_EQ(found(always).diagnosis, kNothing);
  EXPECT_NE(found(chance).kind, Kind::kMemory);
}

TEST(AskedAgain, AStoppedSearchNamesNothing) {
  const Case c = Layer(1, 3, 2);
  TestSubject subject = Kernel(Term());
  AttributionOptions options = kExamines;
  EXPECT_EQ(Found(AskOnce, c, subject, options).causes, Term());
  options.stop = [] { return true; };
  const Attribution stopped = Found(AskOnce, c, subject, options);
  EXPECT_EQ(stopped.diagnosis, "the search for its cause was stopped");
  EXPECT_FALSE(stopped.complete);
}

// The questions are asked in the usual context. An answer in another one cannot be compared with
// theirs; but the fill of the memory was looked at, and the raw sums are no part of the answer.
TEST(AskedAgain, OnlyAnAnswerInTheUsualContextIsComparedWithTheOthers) {
  const auto said = [&](const RunContext& context) {
    TestSubject subject = Answers([&](const Case& of, const RunContext& in) {
      return in == context ? Plus(Right(of), 0, 1) : Right(of);
    });
    return Said(AskedIn({context}), Layer(1, 70, 2), subject, kAsks);
  };
  RunContext sums, gap;
  sums.want_acc = true, gap.y_row_gap = 2;
  EXPECT_EQ(said(gap), kNothing);
  EXPECT_EQ(said(sums), kOfEarlier);
  EXPECT_EQ(said(Poisoned(8)), kOfEarlier);
}

TEST(AskedAgain, ANewInstanceThatAnswersOtherwiseShowsWhatIsKept) {
  const Case c = Layer(1, 70, 2);
  const auto made = [&](const std::string& kind, bool remembers) {
    SubjectRegistry::Get().Add({.kind = kind,
                                .help = "",
                                .why_absent = "",
                                .names = [kind] { return Texts{kind}; },
                                .make = [=](const std::string& name) -> std::unique_ptr<Subject> {
                                  auto asked = std::make_shared<int>(0);
                                  return std::make_unique<TestSubject>(
                                      [=](const Case& of, const RunContext&) {
                                        const bool right = remembers && (*asked)++ == 0;
                                        return TestSubject::Good(right ? Right(of)
                                                                       : Plus(Right(of), 0, 1));
                                      },
                                      name);
                                },
                                .expand = [](const std::string&) { return Texts{}; }});
    return SubjectRegistry::Get().Make(kind);
  };
  // The first question to an instance is answered rightly, all others wrongly.
  const auto remembering = made("remembering", true);
  (void)remembering->Run(c, {});
  ExpectCause(Found(AskOnce, c, *remembering, kAsks), Kind::kNondeterminism, kOfEarlier);
  // A new instance that answers alike shows nothing, nor does one that cannot be made.
  EXPECT_EQ(Said(AskOnce, c, *made("steady", false), kAsks), kNothing);
  TestSubject steady = OneOff();
  EXPECT_EQ(Said(AskOnce, c, steady, kAsks), kNothing);
}

// ---- The end of the output.

// Outputs from `from` on are one off, whatever they are of.
Tensor WrongFrom(int64_t from, Tensor y) {
  for (int64_t i = from; i < y.size(); ++i) y.SetInt(i, y.IntAt(i) ^ 1);
  return y;
}
Tensor WrongLastOf4(const Case& c) {
  const Tensor y = Right(c);
  return WrongFrom(y.size() - y.size() % 4, y);
}
Tensor WrongLast(const Case& c) { return WrongFrom(Right(c).size() - 1, Right(c)); }

constexpr const char* kLast2Of10 = "only the last 2 of 10 outputs are wrong, whatever they are of";
Case TenReals() {
  Case c = CaseOver(Op::kQuantize, Tensor(DType::kF32, {1, 10}), DType::kU8);
  for (int64_t i = 0; i < 10; ++i)
    c.x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(i * 5);
  return c;
}

TEST(EndOfElements, IsATailWhereItIsWrongWhateverStandsThere) {
  TestSubject subject = Answers(WrongLastOf4);
  for (const auto& [m, n] : {std::pair{1, 10}, std::pair{2, 5}}) {
    const Attribution found = Found(AskOnce, Elements(m, n), subject, kAsks);
    ExpectCause(found, Kind::kTail, kLast2Of10);
    EXPECT_EQ(found.evidence,
              Texts{"with the elements moved by 2 others are, and those that were are right"});
  }
  EXPECT_EQ(Said(AskOnce, Elements(1, 10), subject, kLooks), kNothing);
}

TEST(EndOfElements, OfEveryElementwiseOperation) {
  Case sum = Elements(1, 10);
  sum.op = Op::kAdd;
  sum.w = Tensor(DType::kU8, {1, 10});
  Case requantize = CaseOver(Op::kRequantize, Tensor(DType::kS32, {1, 10}), DType::kU8);
  Case dequantize = CaseOver(Op::kDequantize, Tensor(DType::kU8, {1, 10}), DType::kF32);
  for (int64_t i = 0; i < 10; ++i) {
    sum.w.SetInt(i, static_cast<int32_t>(i * i));
    requantize.x.SetInt(i, static_cast<int32_t>(i * 7));
    dequantize.x.SetInt(i, static_cast<int32_t>(i * 7));
  }
  TestSubject subject = Answers([](const Case& c) {
    if (c.op != Op::kDequantize) return WrongLastOf4(c);
    Tensor y = Right(c);
    for (int64_t i = y.size() - y.size() % 4; i < y.size(); ++i)
      y.as<float>()[static_cast<size_t>(i)] += 1;
    return y;
  });
  for (const Case& c : {sum, TenReals(), requantize, dequantize}) {
    EXPECT_EQ(Validate(c), "");
    EXPECT_EQ(Said(AskOnce, c, subject, kAsks), kLast2Of10) << Name(c.op);
  }
}

// An element that is wrong for its value is wrong wherever it stands.
TEST(EndOfElements, IsNoTailWhereTheValuesAreTheCause) {
  const Case c = Elements(1, 10);
  TestSubject of_values = Answers([&](const Case& of) {
    Tensor y = Right(of);
    for (int64_t i = 0; i < y.size(); ++i) {
      if (of.x.IntAt(i) == c.x.IntAt(9) || of.x.IntAt(i) == c.x.IntAt(8))
        y.SetInt(i, y.IntAt(i) ^ 1);
    }
    return y;
  });
  EXPECT_EQ(Said(AskOnce, c, of_values, kAsks), kNothing);
  TestSubject early = Answers([](const Case& of) { return Plus(Plus(Right(of), 9, 1), 7, 1); });
  EXPECT_EQ(Said(AskOnce, c, early, kAsks), kNothing) << "wrong before the end too";
  TestSubject all = Answers([](const Case& of) { return WrongFrom(0, Right(of)); });
  EXPECT_EQ(Said(AskOnce, Elements(1, 3), all, kAsks), kNothing) << "no whole vector before it";
  EXPECT_EQ(Said(AskOnce, Elements(1, 4), all, kAsks), kNothing) << "whole vectors alone";
  // Besides the end, one value is wrong at even places: others are wrong after a turn.
  TestSubject both = Answers([&](const Case& of) {
    Tensor y = WrongLastOf4(of);
    for (int64_t i = 0; i < 8; i += 2) {
      if (of.x.IntAt(i) == c.x.IntAt(3)) y.SetInt(i, y.IntAt(i) ^ 1);
    }
    return y;
  });
  EXPECT_NE(Said(AskOnce, c, both, kAsks), kLast2Of10);
}

// A value at the end may be right by chance, such as a code at the clamp: other turns are tried.
TEST(EndOfElements, IsSeenWhereSomeElementsAreRightEvenThere) {
  Case c = Elements(1, 9);
  for (int64_t i = 0; i < 9; ++i) c.x.SetInt(i, i == 8 ? 40 : i == 2 ? 60 : 255);
  // The last element is one too large, unless it is the largest code.
  TestSubject subject = Answers([](const Case& of) {
    const Tensor y = Right(of);
    const int64_t at = y.size() - 1;
    return y.size() % 4 == 1 && y.IntAt(at) < 255 ? Plus(y, at, 1) : y;
  });
  const Attribution found = Found(AskOnce, c, subject, kAsks);
  EXPECT_EQ(found.diagnosis, "only the last 1 of 9 outputs are wrong, whatever they are of");
  EXPECT_EQ(found.evidence,
            Texts{"with the elements moved by 3 others are, and those that were are right"});
  // All others are the largest code: no turn shows anything.
  c.x.SetInt(2, 255);
  EXPECT_EQ(Said(AskOnce, c, subject, kAsks), kNothing);
}

TEST(EndOfElements, IsNotTurnedWhereChannelsHaveParametersOfTheirOwn) {
  Case c = TenReals();
  c.per_channel = true;
  c.out_q.scale.assign(10, 1.0f), c.out_q.zero_point.assign(10, 0);
  ASSERT_EQ(Validate(c), "");
  TestSubject subject = Answers(WrongLastOf4);
  // The channels are put in other orders with their parameters.
  EXPECT_EQ(Said(AskOnce, c, subject, kAsks),
            "only the last N % 8 outputs of a row are wrong, whatever channels they are of");
}

TEST(EndOfElements, ATurnedQuestionThatBreaksOrHasAnotherShapeShowsNothing) {
  for (const Outcome& turned : {kBreaks, TestSubject::Good(Tensor(DType::kU8, {5}))}) {
    TestSubject subject([&](const Case& c, const RunContext&) {
      return subject.runs > 4 ? turned : TestSubject::Good(WrongLastOf4(c));
    });
    EXPECT_EQ(Said(AskOnce, Elements(1, 10), subject, kAsks), kNothing);
    if (turned.ok())
      EXPECT_EQ(subject.runs, 7) << "in the elements, at another address, in the columns";
  }
}

// ---- The last columns.

// The last N % 4 columns are wrong, whatever channels they are of.
Tensor WrongLastColumns(const Case& c) {
  Tensor y = Right(c);
  for (int64_t i = 0; i < y.size(); ++i) {
    if (i % c.N >= c.N - c.N % 4)
      y.SetInt(i, y.IntAt(i) + 1'000'001 * static_cast<int32_t>(1 + i % 3));
  }
  return y;
}

TEST(LastColumns, AreATailWhereTheyAreWrongWhateverChannelsStandThere) {
  TestSubject subject = Answers(WrongLastColumns);
  const Case c = Layer(2, 6, 3);
  const Attribution found = Found(AskOnce, c, subject, kAsks);
  ExpectCause(found, Kind::kTail,
              "only the last N % 4 outputs of a row are wrong, whatever channels they are of");
  EXPECT_EQ(found.evidence, Texts{"so they are with the channels in 6 other orders"});
  EXPECT_EQ(Said(AskOnce, c, subject, kLooks), kNothing);
}

// A fault of channels moves with them.
TEST(LastColumns, AreNoTailWhereTheChannelsAreTheCause) {
  const Case c = Layer(2, 5, 3);
  const int32_t bad = c.w.IntAt(4 * c.K);
  TestSubject subject = Answers([=](const Case& of) {
    Tensor y = Right(of);
    for (int64_t i = 0; i < y.size(); ++i) {
      if (of.w.IntAt(i % of.N * of.K) == bad)
        y.SetInt(i, y.IntAt(i) + 1'000'001 + static_cast<int32_t>(i));
    }
    return y;
  });
  EXPECT_EQ(Said(AskOnce, c, subject, kAsks), kNothing);
}

// Some channels may be right even at the end. Three other orders must be wrong there. Turned by 1,
// 2, 3, 5, 7 and 11, the last column is that of channel 0, 1, 2, 4, 1 and 0.
TEST(LastColumns, AreATailAfterThreeOrdersOfTheChannels) {
  const Case c = Layer(1, 5, 3);
  struct Row {
    std::vector<int64_t> wrong;  // these channels, in the last column
    const char* orders;          // "": no tail
  };
  for (const auto& [wrong, orders] : std::vector<Row>{
           {{4}, ""}, {{3, 4}, ""}, {{2, 3, 4}, ""}, {{1, 2, 3, 4}, "4"}, {{0, 4}, "3"}}) {
    TestSubject subject = Answers([&](const Case& of) {
      const bool here = std::ranges::any_of(
          wrong, [&](int64_t n) { return of.w.IntAt(4 * of.K) == c.w.IntAt(n * c.K); });
      return of.N == 5 && here ? Plus(Right(of), 4, 1'000'001) : Right(of);
    });
    const Attribution found = Found(AskOnce, c, subject, kAsks);
    EXPECT_EQ(found.kind == Kind::kTail, *orders != '\0') << testing::PrintToString(wrong);
    if (found.kind == Kind::kTail)
      EXPECT_EQ(found.evidence,
                Texts{std::string("so they are with the channels in ") + orders + " other orders"});
  }
}

// The channels of a convolution can be put in another order, but not those of its groups.
TEST(LastColumns, OfAConvolutionAreATailUnlessItHasGroups) {
  for (const int64_t groups : {1, 2}) {
    const Case c =
        Images(Op::kConv2d, {.batch = 1, .in_h = 1, .in_w = 2, .in_c = 2, .groups = groups}, 6);
    TestSubject subject = Answers(WrongLastColumns);
    const Attribution found = Found(AskOnce, c, subject, kAsks);
    EXPECT_EQ(found.kind == Kind::kTail, groups == 1) << found.diagnosis;
  }
}

// Of a pool each channel is an image of its own, and a softmax is over the whole row.
TEST(LastColumns, OfOperationsWhoseChannelsHaveNoOtherOrderAreNotAskedFor) {
  Case softmax = CaseOver(Op::kSoftmax, Tensor(DType::kU8, {1, 5}), DType::kU8);
  softmax.out_q = FixedOutQParams(DType::kU8);
  for (int64_t i = 0; i < 5; ++i) softmax.x.SetInt(i, static_cast<int32_t>(i));
  softmax.x_q.scale = {0.01f};
  ASSERT_EQ(Validate(softmax), "");
  const Case pool = Images(Op::kMaxPool, {.batch = 1, .in_h = 1, .in_w = 2, .in_c = 6}, 6);
  for (const Case& c : {pool, softmax}) {
    TestSubject subject = Answers(WrongLast);
    EXPECT_EQ(Said(AskOnce, c, subject, kAsks), kNothing) << Name(c.op);
    EXPECT_EQ(subject.runs, 1 + 3 + kAddresses) << Name(c.op);
  }
}

// ---- One answer, without asking the subject.

TEST(OneAnswer, ThatIsExactHasNoCause) {
  const Case c = Layer(2, 3, 4);
  const Attribution found = Attribute(c, Right(c));
  EXPECT_EQ(found.diagnosis, "the output is exact");
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(found.kind, Kind::kUnknown);
  TestSubject subject;
  const Case none = Layer(3, 0, 4);
  EXPECT_FALSE(Attribute(none, Right(none), subject).complete) << "no outputs";
}

// Where a product is 0 it can be dropped: such outputs are exact.
Case WithZeroProducts(int64_t rows, const std::vector<int64_t>& zero) {
  Case c = Layer(rows, 3, 5);
  for (const int64_t m : zero) c.x.SetInt(m * 5 + 4, 0);
  return c;
}

TEST(OneAnswer, SaysWhatTheSubjectDoesAndWhatWasReproduced) {
  struct Row {
    Case c;
    Hypothesis causes;
    Kind kind;
    const char* does;
    const char* reproduces;
  };
  for (const Row& row :
       {Row{Layer(2, 3, 4), Zero(), Kind::kZeroPoint, "ignores the weight zero point",
            "weight zero point ignored reproduces all 6 outputs (6 of them not exact)"},
        Row{Layer(1, 1, 4), Zero(), Kind::kZeroPoint, "ignores the weight zero point",
            "weight zero point ignored reproduces the output"},
        Row{WithZeroProducts(4, {0, 2}), Product(), Kind::kTail, "drops the last product",
            "last product dropped reproduces all 12 outputs (6 of them not exact)"},
        Row{Layer(3, 3, 5), ZeroAndProduct(), Kind::kZeroPoint,
            "ignores the weight zero point and drops the last product",
            "weight zero point ignored + last product dropped reproduces all 9 outputs (9 of them "
            "not exact)"}}) {
    const Attribution found = Attribute(row.c, With(row.c, row.causes));
    EXPECT_EQ(found.causes, row.causes);
    EXPECT_EQ(found.kind, row.kind) << row.does;
    EXPECT_TRUE(found.complete) << row.does;
    EXPECT_EQ(found.diagnosis, std::string("the subject ") + row.does);
    EXPECT_EQ(found.evidence.front(), std::string("exact arithmetic with ") + row.reproduces);
    if (row.causes.size() == 2) EXPECT_EQ(found.evidence.size(), 1u);
  }
}

// The rows of all 65,536 codes of 16 bits would take gigabytes.
TEST(OneAnswer, IsComparedWithASweepOf256Codes) {
  for (const DType dtype : {DType::kU8, DType::kS16}) {
    Case c = Layer(2, 3, 4);
    c.x = Tensor(dtype, {2, 4});
    int64_t rows = 0;
    TestSubject subject([&](const Case& asked, const RunContext&) {
      rows = std::max(rows, asked.M);
      return TestSubject::Good(With(asked, Zero()));
    });
    Attribute(c, Verdict::Failed("departs"), subject);
    EXPECT_EQ(rows, 256) << Name(dtype);
  }
}

// Rows of pixels, and rows that share a scale, depend on each other: no two of them tell of all.
TEST(OneAnswer, OfRowsThatDependOnEachOther) {
  Case image = Images(Op::kConv2d, {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 2}, 2);
  image.w_q.zero_point = {5};
  EXPECT_EQ(Attribute(image, With(image, Zero())).causes, Zero());
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
  EXPECT_EQ(Attribute(dynamic, With(dynamic, Zero())).causes, Zero());
}

// The row sum of row m % 4: in fewer than five rows nothing shows it.
TEST(OneAnswer, MayHaveACauseThatTakesManyRows) {
  const Case c = Layer(7, 3, 5);
  const Hypothesis cause = Named({"row sum modulo 4"});
  TestSubject subject = Kernel(cause);
  EXPECT_EQ(Attribute(c, With(c, cause), subject).causes, cause);
}

// The kind of two causes is that of the one which alone comes nearer to the answer.
TEST(OneAnswer, OfTwoCausesTheOneThatExplainsMoreGivesTheKind) {
  // The last product is 0 but in one row: dropping it explains less than the zero point does.
  const Case c = WithZeroProducts(3, {1, 2});
  EXPECT_EQ(Attribute(c, With(c, ZeroAndProduct())).kind, Kind::kZeroPoint);
  // A row whose codes add up to 0 has no weight term: there the dropped product alone is wrong.
  Case tail = Layer(3, 3, 5);
  tail.x = Tensor::Of<int8_t>(
      {3, 5}, std::vector<int8_t>{1, 2, 3, 4, 5, -70, 10, 10, 10, 40, -70, 10, 10, 10, 40});
  ASSERT_EQ(Validate(tail), "");
  EXPECT_EQ(Attribute(tail, With(tail, ZeroAndProduct())).kind, Kind::kTail);
  // The relu that is ignored changes nothing by itself, as no sum is negative.
  Case relu = Layer(2, 2, 2);
  relu.relu = true;
  relu.x = Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{4, 5, 6, 7});
  relu.w = Tensor::Of<int8_t>({2, 2}, std::vector<int8_t>{-1, -2, -3, -4});
  relu.w_q.zero_point = {-100};
  const Hypothesis both = Named({"relu ignored", "weight zero point ignored"});
  const Attribution found = Attribute(relu, With(relu, both));
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
  EXPECT_EQ(Attribute(c, With(c, ZeroAndProduct())).causes, ZeroAndProduct());
}

// Without zero points nothing tells a dropped term from a dropped product.
TEST(OneAnswer, TheOtherCausesOfTheSameOutputAreListedAndMayBeHints) {
  const Case c = WithoutZeroPoints(Layer(2, 2, 6));
  const Tensor y = With(c, Product());
  const Attribution found = Attribute(c, y);
  EXPECT_EQ(found.causes, Product());
  EXPECT_EQ(found.open, std::vector<Hypothesis>{Term()});
  EXPECT_FALSE(found.ambiguous) << "both are of one kind";
  EXPECT_EQ(found.evidence.back(), "also reproduced by: last term dropped");
  EXPECT_EQ(Attribute(c, y, Term()).causes, Term());
  // A hint that does not fit changes nothing.
  EXPECT_EQ(Attribute(c, y, Zero()).causes, Product());
}

// ---- An answer and its verdict, without a property.

TEST(VerdictAlone, TheSweepIsLookedAtToo) {
  // Exact but where x is constant over each row of a sweep.
  const Case c = Layer(1, 2, 4);
  Case one_pixel = Images(Op::kConv2d, {.batch = 1, .in_h = 1, .in_w = 1, .in_c = 2}, 1);
  Case no_pixel = Images(Op::kConv2d, {.batch = 0, .in_h = 1, .in_w = 1, .in_c = 2}, 1);
  one_pixel.w_q.zero_point = no_pixel.w_q.zero_point = {1};
  Case reals = c;
  reals.out_dtype = DType::kF32;
  OpenClamp(&reals);
  struct Row {
    const char* what;
    Case c;
    bool swept;
  };
  TestSubject subject =
      Answers([&](const Case& of) { return of.M == 256 ? With(of, Zero()) : Right(of); });
  const auto expect = [&](const Row& row) {
    subject.runs = 0;
    const Attribution found = Attribute(row.c, Verdict::Failed("the sweep bends"), subject);
    EXPECT_EQ(found.causes, row.swept ? Zero() : Hypothesis{}) << row.what;
    EXPECT_EQ(found.diagnosis == kExact, !row.swept) << row.what;
    EXPECT_EQ(subject.runs, row.swept ? 2 : 1) << row.what;
  };
  for (const Row& row :
       {Row{"a layer", c, true}, Row{"a pixel", one_pixel, true},
        Row{"an image without pixels", no_pixel, false}, Row{"reals", reals, false},
        Row{"elements", Elements(1, 3), false}, Row{"no column", Layer(1, 0, 4), false},
        // The weights and the codes are there.
        Row{"no row", Layer(0, 2, 4), true}})
    expect(row);
  subject.cannot_run = [](const Case& of) { return of.M == 256 ? "too many rows" : ""; };
  expect({"what the subject cannot run", c, false});
}

// ---- Causes of a smaller case.

TEST(BorneOut, WhereTheyGiveSomeWrongOutputsAndSpoilNone) {
  const Case c = Layer(2, 3, 4);
  const Tensor right = Right(c), y = With(c, Zero());
  const auto borne_out = [&](const Tensor& answer, const Hypothesis& cause = Zero()) {
    TestSubject subject = Answers([&](const Case&) { return answer; });
    return IsBorneOut(c, subject, cause);
  };
  EXPECT_TRUE(borne_out(right));
  EXPECT_TRUE(borne_out(y));
  EXPECT_TRUE(borne_out(Plus(y, 0, 1))) << "another fault may be there too";
  Tensor spoiled = y;
  spoiled.SetInt(5, right.IntAt(5));
  EXPECT_FALSE(borne_out(spoiled)) << "a right output that the cause gets wrong";
  EXPECT_FALSE(borne_out(Plus(right, 2, 1)));
  EXPECT_FALSE(borne_out(Plus(right, 2, 1), Named({"relu ignored"}))) << "it changes nothing here";
  TestSubject crash([](const Case&, const RunContext&) { return kBreaks; });
  EXPECT_TRUE(IsBorneOut(c, crash, Zero())) << "nothing was answered";
  TestSubject single = Kernel(Zero()), drops = Kernel(Product());
  EXPECT_TRUE(IsBorneOut(Layer(1, 1, 4), single, Zero())) << "one output alone";
  EXPECT_TRUE(IsBorneOut(WithZeroProducts(4, {0, 2}), drops, Product())) << "some are left right";
}

// ---- Causes that are known already.

Attribution FoundAmong(const std::vector<Hypothesis>& known, const Case& c, TestSubject subject) {
  const std::vector<Attribution> established = AllNamed(Op::kLinear, known);
  Attribution found =
      Found(AskOnce, c, subject,
            {.established = established, .only_established = true, .probe_state = false});
  EXPECT_EQ(subject.runs, 1);
  EXPECT_EQ(found.complete, found.diagnosis != kNothing);
  return found;
}

TEST(Established, TheFirstOneThatGivesTheAnswerIsNamed) {
  const Case c = Layer(2, 3, 5);
  const Attribution found = FoundAmong({Zero(), Product()}, c, Kernel(Product()));
  EXPECT_EQ(found.causes, Product());
  EXPECT_EQ(found.kind, Kind::kTail);
  const Attribution none = FoundAmong({Zero(), Product()}, c, Kernel(Named({"weight sign"})));
  EXPECT_EQ(none.diagnosis, kNothing);
  EXPECT_EQ(none.kind, Kind::kUnknown);
}

// Together they name the faults that the answer takes, and no other.
TEST(Established, TogetherTheyGiveAnAnswerThatNoneGivesAlone) {
  const Case c = Layer(2, 3, 5);
  const std::vector<Hypothesis> known{Named({"int32 wrap"}), Zero(), Named({"relu ignored"}),
                                      Product()};
  EXPECT_EQ(FoundAmong(known, c, Kernel(ZeroAndProduct())).causes, ZeroAndProduct());
  const Tensor more = Plus(With(c, ZeroAndProduct()), 0, 1);
  EXPECT_EQ(FoundAmong(known, c, Answers([&](const Case&) { return more; })).diagnosis, kNothing);
}

TEST(Established, ACauseInSomeRowsIsNamedInAnyNumberOfRows) {
  const Hypothesis known = In("weight zero point ignored", "only in the last M % 4 rows");
  for (const int64_t rows : {2, 3, 7}) {
    const Attribution found = FoundAmong({known}, Layer(rows, 3, 5), Kernel(known));
    EXPECT_EQ(found.causes, known) << rows;
    EXPECT_EQ(found.kind, Kind::kTail);
  }
}

// ---- Causes that further answers of the subject bear out.

TEST(Examined, NamesTheCauseThatFurtherAnswersBearOut) {
  // One answer that many causes give.
  const Case c = WithoutZeroPoints(Layer(1, 1, 6));
  TestSubject subject = Kernel(Term());
  const Attribution found = Attribute(c, With(c, Term()), subject);
  EXPECT_EQ(found.causes, Term());
  EXPECT_EQ(found.kind, Kind::kTail);
  EXPECT_TRUE(found.complete);
  EXPECT_FALSE(found.ambiguous);
  EXPECT_EQ(found.evidence.size(), 2u);
  const std::string& asked = found.evidence.back();
  EXPECT_TRUE(Begins(asked, std::to_string(subject.runs - kAddresses) + " further cases asked: "));
  EXPECT_TRUE(Ends(asked, " bear it out; ruled out: last product dropped"));
}

TEST(Examined, SaysWhereACauseHolds) {
  const Case c = Layer(2, 3, 5);
  TestSubject subject = Answers(
      [&](const Case& of) { return of.out_dtype == DType::kS32 ? With(of, Zero()) : Right(of); });
  const Attribution found = Attribute(c, With(c, Zero()), subject);
  EXPECT_EQ(found.causes, Zero());
  EXPECT_EQ(found.diagnosis, "the subject ignores the weight zero point, where the output is s32");
}

TEST(Examined, ACauseInSomePlacesAndTwoCauses) {
  const auto found = [](const Case& c, const Hypothesis& cause) {
    TestSubject subject = Kernel(cause);
    Attribution attribution = Attribute(c, With(c, cause), subject);
    EXPECT_EQ(attribution.causes, cause) << attribution.diagnosis;
    return attribution;
  };
  ExpectCause(
      found(Layer(3, 6, 5), In("weight zero point ignored", "only in the last N % 4 columns")),
      Kind::kTail,  // whatever the cause is there
      "the subject ignores the weight zero point, only in the last N % 4 columns");
  EXPECT_EQ(found(Layer(7, 3, 5), In("weight zero point ignored", "only from row 2 on")).kind,
            Kind::kZeroPoint)
      << "rows are no tail";
  EXPECT_TRUE(Ends(found(Layer(3, 3, 5), ZeroAndProduct()).evidence.back(), " bear it out"));
  // Where the cause leaves some outputs of the place right.
  found(WithZeroProducts(5, {0, 4}), In("last product dropped", "only from column 1 on"));
  found(Layer(5, 3, 7), In("input one row on", "only from column 1 on"));
  for (const int64_t rows : {2, 3, 7}) {
    for (const char* name : {"input one row on", "input one code on"})
      found(Layer(rows, 3, 7), Named({name}));
  }
}

// Wrong as it is told on this case, right on all others.
TestSubject WrongOnlyOn(const Case& c, const Tensor& y) {
  return Answers([=](const Case& of) { return of == c ? y : Right(of); });
}

TEST(Examined, ACauseThatOtherAnswersContradictIsNotNamed) {
  const Case c = Layer(2, 3, 5);
  TestSubject subject = WrongOnlyOn(c, With(c, Zero()));
  const Attribution found = Found(AskOnce, c, subject, kExamines);
  EXPECT_EQ(found.kind, Kind::kUnknown);
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(found.diagnosis, "no known cause gives every answer asked");
  EXPECT_EQ(found.contradicted.front(), Zero());
  EXPECT_EQ(std::ranges::count(found.contradicted, Zero()), 1);
  EXPECT_TRUE(found.open.empty());
  EXPECT_TRUE(Ends(found.evidence.front(),
                   " further cases asked: weight zero point ignored gives the output, and other "
                   "answers contradict it"));
}

TEST(Examined, CausesThatNoAnswerTellsApartStayOpen) {
  const Case c = Layer(1, 1, 3);
  const Tensor y = With(c, Zero());
  // It breaks on all further cases.
  TestSubject subject([&](const Case&, const RunContext&) {
    return subject.runs == 1 ? TestSubject::Good(y) : kBreaks;
  });
  const Attribution found = Found(AskOnce, c, subject, kExamines);
  EXPECT_EQ(found.kind, Kind::kUnknown);
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(found.open.front(), Zero());
  EXPECT_TRUE(found.contradicted.empty());
  EXPECT_TRUE(Begins(found.diagnosis, "not enough to tell"));
}

// Causes that earlier cases of the subject contradicted are not examined again.
TEST(Examined, WhatTheSubjectContradictedBeforeIsNotNamed) {
  const Case c = WithoutZeroPoints(Layer(1, 1, 6));
  TestSubject subject = Kernel(Product());
  AttributionOptions options = kExamines;
  std::vector<Hypothesis> contradicted{Term()};
  options.contradicted = contradicted;
  const Attribution found = Found(AskOnce, c, subject, options);
  EXPECT_EQ(found.causes, Product());
  EXPECT_TRUE(Ends(found.evidence.back(), "bear it out"));
  contradicted.front() = Product();
  EXPECT_NE(Found(AskOnce, c, subject, options).causes, Product());
}

// ---- Several answers of one property.

using Answer = std::function<Tensor(const Case&)>;
Tensor OfStranger(const Case& c) { return Plus(Plus(Right(c), 0, 1'234'567), 1, 7'654'321); }
Tensor OfTail(const Case& c) { return Plus(Right(c), c.N - 1, 1'234'567); }
Tensor OfAnotherColumn(const Case& c) {
  Tensor y = Right(c);
  y.SetInt(0, y.IntAt(1));
  return y;
}
Tensor OfZeroPoint(const Case& c) { return With(c, Zero()); }
Tensor WithoutBias(const Case& c) { return With(c, Named({"bias ignored"})); }

TEST(SeveralAnswers, TheFirstWithOneCauseDecides) {
  const auto kind = [](const std::vector<Answer>& answers) {
    // The answers to codes 0, 1, 2 ... at the front.
    TestSubject subject =
        Answers([&](const Case& c) { return answers.at(static_cast<size_t>(c.x.IntAt(0)))(c); });
    return Found(AskedWith(Upto(answers.size())), Layer(1, 5, 3), subject, kOneAnswer).kind;
  };
  EXPECT_EQ(kind({OfStranger, OfZeroPoint}), Kind::kZeroPoint);
  EXPECT_EQ(kind({OfStranger, OfTail, OfZeroPoint}), Kind::kZeroPoint);
  // A guess is better than none, and the first guess stays.
  EXPECT_EQ(kind({OfStranger, OfTail}), Kind::kTail);
  EXPECT_EQ(kind({OfTail, OfStranger}), Kind::kTail);
  EXPECT_EQ(kind({OfTail, OfAnotherColumn}), Kind::kTail);
  EXPECT_EQ(kind({OfAnotherColumn, OfTail}), Kind::kIndex);
  EXPECT_EQ(kind({OfStranger, Right, OfStranger}), Kind::kUnknown);
}

// The answers that fit causes of two kinds: the bias is as large as the product.
TEST(SeveralAnswers, OneThatFitsOneKindIsBetterThanOneThatFitsTwo) {
  Case c = WithoutZeroPoints(Layer(1, 1, 1));
  c.w.SetInt(0, 9);
  c.bias_i32 = {18};
  const auto said = [&](const std::vector<int32_t>& codes, const Answer& answer) {
    TestSubject subject = Answers(answer);
    return Found(AskedWith(codes), c, subject, kOneAnswer);
  };
  // 2 * 9 is the bias: dropping the product gives the same.
  const Attribution both = said({2}, WithoutBias);
  EXPECT_EQ(both.kind, Kind::kTail);
  EXPECT_TRUE(both.ambiguous);
  const Attribution one = said({2, 3}, WithoutBias);
  EXPECT_EQ(one.kind, Kind::kIndex);
  EXPECT_FALSE(one.ambiguous);
  // An ambiguous cause is better than a guess, and the first of two ambiguous ones stays.
  const auto first_strange = [&](const Case& of) {
    return of.x.IntAt(0) == 3 ? Plus(Right(of), 0, 1'234'567) : WithoutBias(of);
  };
  EXPECT_TRUE(said({3, 2}, first_strange).complete);
  EXPECT_TRUE(said({2, 3}, first_strange).complete);
}

TEST(SeveralAnswers, AnAmbiguousCauseIsBetterThanAGuessAndTheFirstOfThemStays) {
  Case c = WithoutZeroPoints(Layer(1, 5, 1));
  c.bias_i32.emplace();
  for (int32_t n = 1; n < 6; ++n) c.w.SetInt(n - 1, n), c.bias_i32->push_back(2 * n);
  // With a code of 2 the bias is as large as the product; with 3 only the last column is wrong.
  TestSubject subject =
      Answers([](const Case& of) { return of.x.IntAt(0) == 3 ? OfTail(of) : WithoutBias(of); });
  const Attribution found = Found(AskedWith({3, 2}), c, subject, kOneAnswer);
  EXPECT_TRUE(found.complete);
  EXPECT_TRUE(found.ambiguous);
  // Of five outputs, then of three.
  c.x.SetInt(0, 2);
  const auto three = [](Case& of) { of = slice::Channels(of, std::vector<int64_t>{0, 1, 2}); };
  const Attribution first = Found(AsksOf({AsItIs, three}), c, subject, kOneAnswer);
  EXPECT_TRUE(first.ambiguous);
  // What several causes give is said of none of them.
  EXPECT_TRUE(first.thin);
  EXPECT_EQ(first.diagnosis, "not enough to tell");
  EXPECT_EQ(first.evidence.front(),
            "last product dropped; last term dropped; bias ignored give all 5 outputs, as chance "
            "may");
}

TEST(SeveralAnswers, AGuessOfAKindIsNotReplacedByThePlaceOfTheClamp) {
  TestSubject subject = Answers(OfTail);
  EXPECT_EQ(
      Found(Fails(Kind::kClamp, "lies beyond the clamp"), Layer(1, 5, 3), subject, kOneAnswer).kind,
      Kind::kTail);
}

// Of the answers that are wrong three are examined, until one has a cause that is borne out.
TEST(SeveralAnswers, TheFirstWhoseCauseIsBorneOutDecides) {
  const Case c = Layer(1, 5, 3);
  const auto kind = [&](const std::vector<Answer>& answers) {
    TestSubject subject = Answers([&](const Case& of) {
      const auto at = static_cast<size_t>(of.x.size() == 3 ? of.x.bytes()[0] : 255);
      const bool asked = of.out_dtype == DType::kS32 && of.N == 5 && at < answers.size();
      return asked && of.w == c.w ? answers[at](of) : OfZeroPoint(of);
    });
    return Found(AskedWith(Upto(answers.size())), c, subject, kExamines).kind;
  };
  EXPECT_EQ(kind({OfZeroPoint}), Kind::kZeroPoint);
  EXPECT_EQ(kind({OfStranger, OfZeroPoint}), Kind::kZeroPoint);
  EXPECT_EQ(kind({OfStranger, OfTail, OfZeroPoint}), Kind::kZeroPoint);
  EXPECT_EQ(kind({OfStranger, OfTail, OfTail, OfZeroPoint}), Kind::kUnknown);
}

// ---- Under a promised convention.

// Products that saturate, and a relu that changes the output.
struct Promise {
  const Convention& model = *FindConvention("fbgemm@avx2");
  Case c = [] {
    Case made = WithoutZeroPoints(Layer(2, 2, 4));
    for (int64_t i = 0; i < 8; ++i) made.x.SetInt(i, 255), made.w.SetInt(i, i < 4 ? 127 : -127);
    made.out_dtype = DType::kU8;
    made.out_q = {{1024}, {100}};
    OpenClamp(&made);
    made.relu = true;
    return made;
  }();
  TestSubject Of(std::function<Tensor(const Case&)> answer) const {
    TestSubject subject = Answers(std::move(answer));
    subject.set_contract({model.name});
    subject.cannot_run = model.cannot_run;
    return subject;
  }
};

TEST(Promised, TheConventionIsNamedInTheEvidence) {
  const Promise promise;
  const Hypothesis cause = Named({"relu at code 0"});
  TestSubject subject = promise.Of([&](const Case& of) {
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
  TestSubject subject = promise.Of([&](const Case& of) { return promise.model.run(of).y; });
  const Attribution found = Attribute(promise.c, promise.model.run(promise.c).y, subject);
  EXPECT_EQ(found.kind, Kind::kPairSaturation) << found.diagnosis;
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(subject.contract().convention, "fbgemm@avx2") << "it is still promised";
}

// The float32 sum of the changed parts, along the tree, is no exact sum.
TEST(Promised, ACauseChangesThePartsOfASummationTree) {
  const Convention& tree = *FindConvention(
      "tree:{form:q8_0 parts:8x4 order:8/halves steps:fused scales:product every:32}");
  Case c = Layer(2, 2, 64);
  c.x = Tensor(DType::kS8, {2, 64});
  Rng rng(5);
  for (int64_t i = 0; i < c.x.size(); ++i) {
    // Pairs of products of 2^14, which is beyond int16, and a single one.
    c.x.SetInt(i, i % 8 < 3 ? -128 : static_cast<int32_t>(rng.Between(-127, 127)));
    if (i % 8 < 3) c.w.SetInt(i, i % 8 < 2 ? -128 : -3);
  }
  c.x_block = c.w_block = 32;
  c.per_channel = true;
  c.x_q = {{0.9f, 1.1f, 1e4f, 0.3f}, {0, 0, 0, 0}};
  c.w_q = {{0.3f, 0.7f, 1e-3f, 1.7f}, {0, 0, 0, 0}};
  c.out_dtype = DType::kF32;
  ASSERT_EQ(Validate(c), "");
  ASSERT_EQ(tree.cannot_run(c), "");
  for (const char* const name : {"sign of -128 lost", "pairs of products of a block that wrap"}) {
    SCOPED_TRACE(name);
    const Hypothesis cause = CausesNamed(name, Op::kLinear);
    TestSubject subject = Answers([&](const Case& of) {
      return tree.cannot_run(of).empty() ? Counterfactual(of, cause, &tree).value()
                                         : With(of, cause);
    });
    subject.set_contract({tree.name});
    const Attribution found = Attribute(c, subject.Run(c, {}).y, subject);
    EXPECT_EQ(found.causes, cause) << found.diagnosis;
    EXPECT_NE(subject.Run(c, {}).y, With(c, cause)) << "rounded once";
  }
}

// ---- What an examination leaves.

// A subject that answers only where both hypotheses say the same.
TestSubject AnswersWhereAlike(const Hypothesis& one, const Hypothesis& other) {
  TestSubject subject = Kernel(one);
  subject.cannot_run = [=](const Case& of) {
    return With(of, one) == With(of, other) ? "" : "it would tell them apart";
  };
  return subject;
}

TEST(Examined, CausesOfOneKindThatAreBorneOutAlikeAreNamedTogether) {
  Case c = WithoutZeroPoints(Layer(1, 1, 6));
  TestSubject subject = AnswersWhereAlike(Product(), Term());
  const Attribution found = Found(AskOnce, c, subject, kExamines);
  EXPECT_EQ(found.causes, Product());
  EXPECT_EQ(found.open, std::vector<Hypothesis>{Term()});
  EXPECT_FALSE(found.ambiguous);
  ASSERT_EQ(found.evidence.size(), 3u);
  EXPECT_EQ(found.evidence[1], "also reproduced by: last term dropped");
  EXPECT_TRUE(Ends(found.evidence[2], " bear it out"));
}

// Where the first row has no codes, its sum in place of that of another row is no sum at all: the
// one that takes fewer bits to say is named, and the other one told.
TEST(Examined, OfTwoThatNoAnswerTellsApartTheLikelierIsNamed) {
  Case c = Layer(2, 2, 3);
  c.x_q.zero_point = {0};
  for (int64_t k = 0; k < 3; ++k) c.x.SetInt(k, 0);
  const Hypothesis row = Named({"row sum of row 0"});
  const auto alike = [&](const Case& of) { return With(of, Zero()) == With(of, row); };
  ASSERT_TRUE(alike(c));
  // One answer that departs in another way may show another fault. It does not rule the row out,
  // and makes the zero point the better explanation.
  for (const int may_tell : {0, 1}) {
    int told = 0;
    TestSubject subject = Answers([&](const Case& of) {
      told += alike(of) ? 0 : 1;
      return With(of, Zero());
    });
    subject.cannot_run = [&](const Case& of) {
      return told < may_tell || alike(of) ? "" : "it would tell more";
    };
    const Attribution found = Found(AskOnce, c, subject, kExamines);
    EXPECT_EQ(told, may_tell);
    EXPECT_EQ(found.causes, Zero()) << found.diagnosis;
    EXPECT_EQ(std::ranges::count(found.open, row), 1);
  }
}

// Wrong as the cause has it in the place, and in one output outside of it.
TEST(Examined, APlaceDoesNotFitIfTheCauseActsOutsideOfItToo) {
  const Case c = Layer(3, 6, 5);
  const Hypothesis tail = In("weight zero point ignored", "only in the last N % 4 columns");
  Tensor y = With(c, tail);
  y.SetInt(0, With(c, Zero()).IntAt(0));
  TestSubject subject = WrongOnlyOn(c, y);
  const Attribution found = Found(AskOnce, c, subject, kExamines);
  EXPECT_EQ(std::ranges::count(found.contradicted, tail), 0);
  EXPECT_EQ(found.diagnosis, "no known cause gives every output");
}

// A cause that gives the whole output needs no place; only in a narrow output it may be a tail.
TEST(Examined, ACauseOfTheWholeOutputIsLookedForInTailsAlone) {
  const Case c = WithZeroProducts(3, {0, 1});
  TestSubject subject = WrongOnlyOn(c, With(c, Product()));
  const Attribution found = Found(AskOnce, c, subject, kExamines);
  EXPECT_EQ(std::ranges::count(found.contradicted, Product()), 1);
  int64_t tails = 0, others = 0;
  for (const Hypothesis& each : found.contradicted) {
    if (each.front() != Product().front() || each.size() == 1) continue;
    if (each.back()->stage == CauseStage::kPlace)
      (each.back()->kind == Kind::kTail ? tails : others) += 1;
  }
  EXPECT_EQ(tails, 10) << "of five widths, in columns and in rows";
  EXPECT_EQ(others, 0);
}

// The tails of causes that give the whole output, and that were contradicted, come last.
TEST(Examined, ACauseInAPlaceIsFoundBesideManyTails) {
  // Two products are left of the last six, and one of them is 0: four causes drop the other one.
  Case c = WithoutZeroPoints(Layer(1, 5, 6));
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
  TestSubject subject = Kernel(bias);
  const Attribution found = Found(AskOnce, c, subject, kExamines);
  EXPECT_EQ(found.causes, bias) << found.diagnosis;
}

// Two causes give the whole output, each also in nine tails.
TEST(Examined, AnyTailOfACauseOfTheWholeOutputMayBeTheOne) {
  Case c = WithoutZeroPoints(Layer(1, 5, 2));
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
  TestSubject subject = Kernel(cause);
  const Attribution found = Found(AskOnce, c, subject, kExamines);
  EXPECT_EQ(found.causes, cause) << found.diagnosis;
}

TEST(Examined, ALongCaseIsExaminedInTwoRows) {
  const Case c = Layer(300, 4, 20);
  int64_t most = 0;
  TestSubject subject = Answers([&](const Case& of) {
    if (of.M != 300) most = std::max(most, of.M);
    EXPECT_TRUE(of == c || of.M < 300) << "each such question costs 24,000 products";
    return With(of, Zero());
  });
  EXPECT_EQ(Found(AskOnce, c, subject, kExamines).causes, Zero());
  EXPECT_GE(most, 2);
  // One long row is examined as it is.
  const Case row = Layer(1, 200, 100);
  TestSubject of_row = Kernel(Zero());
  EXPECT_EQ(Found(AskOnce, row, of_row, kExamines).causes, Zero());
}

// A fault that needs rows is not looked for in fewer of them.
TEST(Examined, AShortCaseIsExaminedWithAllItsRows) {
  const Case c = Layer(6, 2, 4);
  TestSubject subject =
      Answers([&](const Case& of) { return of.M >= 6 ? With(of, Zero()) : Right(of); });
  const Attribution found = Found(AskOnce, c, subject, kExamines);
  EXPECT_EQ(found.causes, Zero());
  EXPECT_EQ(found.diagnosis, "the subject ignores the weight zero point, where M is 6 or more");
}

// The case found shows one of two faults, further cases show both. What is known of the other does
// not contradict the first.
TEST(Examined, AnotherFaultThatIsKnownDoesNotContradictACause) {
  const Case c = WithZeroProducts(2, {0, 1});
  TestSubject subject = Kernel(ZeroAndProduct());
  ASSERT_EQ(With(c, ZeroAndProduct()), With(c, Zero()));
  AttributionOptions options = kExamines;
  EXPECT_NE(Found(AskOnce, c, subject, options).causes, Zero());
  const std::vector<Attribution> known = AllNamed(Op::kLinear, {Product()});
  options.established = known;
  const Attribution found = Found(AskOnce, c, subject, options);
  EXPECT_EQ(found.causes, Zero());
  EXPECT_TRUE(Ends(found.evidence.back(), "bear it out"));
}

// A cause that is contradicted with and without the known fault is told once, after all questions.
TEST(Examined, WhatIsContradictedBesideAKnownFaultIsToldOnce) {
  const Case c = Layer(2, 3, 5);
  TestSubject subject = WrongOnlyOn(c, With(c, Zero()));
  AttributionOptions options = kExamines;
  const std::vector<Attribution> known = AllNamed(Op::kLinear, {Product()});
  options.established = known;
  const Attribution found = Found(AskOnce, c, subject, options);
  EXPECT_FALSE(found.complete);
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
  const Convention& fbgemm = *FindConvention("fbgemm@avx2");
  // The reciprocal of this scale is not exact.
  c.out_q.scale = {0.00214854861f}, c.x.as<float>()[3] = 0.273939937f;
  ASSERT_NE(fbgemm.run(c).y, Right(c));
  const Attribution found = Attribute(c, fbgemm.run(c).y);
  EXPECT_TRUE(found.complete);
  EXPECT_TRUE(Has(found.diagnosis, "as qnnpack"));
}

// ATen's vectors go on from row to row, and what they leave is computed otherwise: in two rows of
// the three, and with the elements moved on, other elements are left.
TEST(Named, AKnownArithmeticStandsBeforeATailOfAllRows) {
  const Convention& aten = *FindConvention("torch2.13-aten@avx2");
  Case c = CaseOver(Op::kAdd, Tensor(DType::kU8, {3, 24}), DType::kU8);
  c.w = Tensor(DType::kU8, {3, 24});
  c.x_q = {{0.236816406F}, {0}}, c.w_q = {{1.13671875F}, {230}}, c.out_q = {{0.7578125F}, {127}};
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, 165);
  ASSERT_EQ(Validate(c), "");
  const Tensor y = aten.run(c).y;
  for (int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(y.SameAt(i, Right(c)), i < 64) << i;
  TestSubject subject = Answers([&](const Case& of) { return aten.run(of).y; });
  subject.cannot_run = aten.cannot_run;
  const Property& property = *FindProperty("add.matches_exact");
  const Attribution found = JudgeAndAttribute(property, c, subject, {.examine = true}).attribution;
  EXPECT_TRUE(found.by_name) << found.diagnosis;
  EXPECT_NE(std::ranges::count(found.conventions, CausesNamed(aten.name, Op::kAdd)), 0)
      << found.diagnosis;
}

// A kernel may compute as a convention does in one of its loops alone.
TEST(Named, AKnownArithmeticIsNotToldWithoutItsCondition) {
  Case c = Layer(3, 5, 16);
  c.out_dtype = DType::kU8;
  c.out_q = {{512}, {100}};
  OpenClamp(&c);
  const Convention& known = *FindConvention("plain@truncate");
  TestSubject subject = Answers([&](const Case& of) {
    return of.K >= 9 && known.cannot_run(of).empty() ? known.run(of).y : Right(of);
  });
  ASSERT_NE(known.run(c).y, Right(c));
  const std::string said = Said(AskOnce, c, subject, kExamines);
  EXPECT_TRUE(Has(said, ", where K is ")) << said;
}

// Past its limits a library may do anything, and nobody has said what its arithmetic does there.
TEST(Named, AKnownArithmeticSpeaksOfNoCaseBeyondItsLimits) {
  const Convention& known = *FindConvention("tract");
  TestSubject subject = Answers([&](const Case& of) {
    if (known.cannot_run(of).empty()) return known.run(of).y;
    Tensor y = Right(of);
    for (int64_t i = 0; i < y.size(); ++i) y.SetBits(i, y.BitsAt(i) ^ 1);
    return y;
  });
  Case c = Layer(1, 1, 1);
  c.x.SetInt(0, 2);
  c.w.SetInt(0, 2);
  c.x_q.zero_point = c.w_q.zero_point = {0};
  c.out_dtype = DType::kU8;
  c.out_q = {{0x1p-29f}, {0}};
  OpenClamp(&c);
  ASSERT_NE(known.run(c).y, Right(c)) << "2^31 wraps";
  const std::string said = Said(AskOnce, c, subject, kExamines);
  EXPECT_TRUE(Has(said, "the subject computes as tract does")) << said;

  Case beyond = c;
  beyond.out_q.scale = {0x1p-31f};
  EXPECT_TRUE(IsBorneOut(beyond, subject, CausesNamed("tract", Op::kLinear)));
}

TEST(Named, APartOfAnAnswerIsNoExplanation) {
  Case c = Layer(2, 3, 5);
  c.x_q.zero_point = {9};
  const Tensor y = Plus(With(c, Named({"input zero point ignored"})), 0, 12345);
  const Attribution found = Attribute(c, y);
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(found.diagnosis, "no known cause gives every output");
}

// A kernel with the causes, but that one answer in eight is right, without a rule.
TestSubject Mostly(const Hypothesis& causes) {
  return Answers([causes](const Case& c) {
    int64_t sum = c.M;
    for (int64_t i = 0; i < c.x.size(); ++i) sum += c.x.IntAt(i);
    return sum % 8 == 3 ? Right(c) : With(c, causes);
  });
}

TEST(Attribution, ARuleOfRoundingThatGivesMostAnswersSaysHowMany) {
  Case c = Layer(3, 5, 16);
  c.out_dtype = DType::kS8;
  c.out_q.scale = {512};
  OpenClamp(&c);
  const std::string most = "the subject gives the numbers of ";
  TestSubject truncates = Mostly(Named({"truncation"}));
  const std::string rounds = Said(AskOnce, c, truncates, kExamines);
  EXPECT_TRUE(rounds.starts_with(most + "plain@truncate in ")) << rounds;
  // What is off by more than one differs in more than its rounding.
  TestSubject doubles = Mostly(Named({"result doubled"}));
  const std::string scales = Said(AskOnce, c, doubles, kExamines);
  EXPECT_FALSE(scales.starts_with(most)) << scales;
}

}  // namespace
}  // namespace qualm::triage
