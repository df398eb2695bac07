// SPDX-License-Identifier: Apache-2.0
#include "properties/suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/io/case_json.h"
#include "core/status.h"
#include "core/text_test_util.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

// One off in the last output of every row of two or more.
Outcome LastColumnOff(const Case& c, const RunContext&) {
  Outcome outcome = TestSubject::Good(exact::Evaluate(c));
  if (c.N < 2 || !IsCode(c.out_dtype)) return outcome;
  for (int64_t i = c.N - 1; i < outcome.y.size(); i += c.N) {
    const int32_t code = outcome.y.IntAt(i);
    outcome.y.SetInt(i, code == c.out_min ? code + (c.out_min < c.out_max ? 1 : 0) : code - 1);
  }
  return outcome;
}

MakeOwnSubject Making(const TestSubject::RunFunction& run, const std::string& name) {
  return [run, name] { return std::make_unique<TestSubject>(run, name); };
}

const Property& Claim(const std::string& name) { return *FindProperty(name); }

TEST(Suite, PassesAnExactSubject) {
  Suite suite(Op::kLinear, Making(TestSubject::Exact, "exact"), {.cases = 30});
  for (const Property* property : PropertiesAbout(Op::kLinear)) {
    const SuiteResult result = suite.Run(*property);
    EXPECT_NE(result.judgement, Judgement::kFailed) << property->claim << ": " << result.text;
    EXPECT_EQ(result.text.empty(), result.judgement == Judgement::kPassed) << property->claim;
  }
  EXPECT_EQ(suite.Run(Claim("matches_exact")).judgement, Judgement::kPassed);
  const SuiteResult convention = suite.Run(Claim("matches_model"));
  EXPECT_NE(convention.judgement, Judgement::kPassed)
      << "says nothing about a contract that is exact";
  EXPECT_NE(convention.text, "");
}

TEST(Suite, ShowsTheMinimizedCase) {
  Suite suite(Op::kLinear, Making(LastColumnOff, "last-column"), {.cases = 30});
  const SuiteResult result = suite.Run(Claim("matches_exact"));
  ASSERT_EQ(result.judgement, Judgement::kFailed);
  EXPECT_NE(result.text.find("linear.matches_exact: "), std::string::npos) << result.text;
  EXPECT_NE(result.text.find("fails on last-column"), std::string::npos) << result.text;
  EXPECT_NE(result.text.find("minimized in "), std::string::npos) << result.text;
  const size_t json = result.text.find("\nthe case:\n");
  ASSERT_NE(json, std::string::npos) << result.text;
  const Case c = ParseCase(result.text.substr(json + 11), "shown");
  EXPECT_EQ(c.M, 1);
  EXPECT_EQ(c.N, 2);
  EXPECT_LE(c.K, 1);
  EXPECT_NE(LastColumnOff(c, {}).y, exact::Evaluate(c));
}

TEST(Suite, TheSameSeedGivesTheSameMessage) {
  const auto text = [](uint64_t seed) {
    Suite suite(Op::kLinear, Making(LastColumnOff, "last-column"), {.cases = 20, .seed = seed});
    return suite.Run(Claim("matches_exact")).text;
  };
  EXPECT_EQ(text(1), text(1));
}

TEST(Suite, JudgesAgainstTheContractAskedFor) {
  const std::string convention = "model:fbgemm@avx2";
  Suite suite(Op::kLinear, Making(TestSubject::Exact, "exact"),
              {.cases = 60, .contract = convention});
  EXPECT_EQ(suite.Run(Claim("matches_model")).judgement, Judgement::kFailed);
  EXPECT_EQ(suite.Run(Claim("matches_exact")).judgement, Judgement::kNotApplicable);
  Suite unknown(Op::kLinear, Making(TestSubject::Exact, "exact"),
                {.cases = 1, .contract = "model:none"});
  EXPECT_THROW(unknown.Run(Claim("matches_model")), InputError);
}

TEST(Suite, ASubjectThatTakesNothingIsNotClean) {
  const MakeOwnSubject picky = [] {
    auto subject = std::make_unique<TestSubject>(TestSubject::Exact, "picky");
    subject->cannot_run = [](const Case&) { return "never"; };
    return subject;
  };
  Suite suite(Op::kAdd, picky, {.cases = 5});
  EXPECT_TRUE(Has(Refusal([&] { suite.Run(Claim("matches_exact")); }),
                  "takes only 0 of 160 cases drawn for add, never"));
}

std::string RefusalOf(Suite& suite) {
  return Refusal([&] { suite.Run(Claim("matches_exact")); });
}

TEST(Suite, NamesAConventionThatDoesNotExist) {
  Suite unknown(Op::kLinear, Making(TestSubject::Exact, "mine"),
                {.cases = 1, .contract = "model:none"});
  EXPECT_EQ(RefusalOf(unknown),
            "subject 'mine': there is no convention 'none' (see qualm list subjects)");
  Suite exact(Op::kLinear, Making(TestSubject::Exact, "mine"), {.cases = 1, .contract = "exact"});
  EXPECT_EQ(RefusalOf(exact), "");
}

TEST(Suite, NamesAConventionThatLacksTheOperation) {
  Suite lacks(Op::kConv2d, Making(TestSubject::Exact, "mine"),
              {.cases = 1, .contract = "model:numpy@float32"});
  EXPECT_EQ(RefusalOf(lacks), "subject 'mine': model:numpy@float32 has no conv2d");
}

// What failed an earlier run: no case of this one may show it.
TEST(Suite, JudgesTheGivenCasesFirst) {
  const Case rare = gen::Draw(Op::kLinear, CaseSeed(7, Op::kLinear, 0));
  const auto wrong = [rare](const Case& c, const RunContext& context) {
    return c == rare ? TestSubject::Good(Tensor(c.out_dtype, {c.M, c.N + 1}))
                     : TestSubject::Exact(c, context);
  };
  const auto with = [&](std::vector<Case> first) {
    return Suite(Op::kLinear, Making(wrong, "rare"), {.cases = 3, .first = std::move(first)})
        .Run(Claim("matches_exact"));
  };
  const SuiteResult clean = with({});
  EXPECT_EQ(clean.judgement, Judgement::kPassed);
  EXPECT_EQ(clean.judged, 3);
  Case told = rare;
  told.note = "from a file";
  const SuiteResult failed = with({gen::Draw(Op::kAdd, 1), told});
  ASSERT_EQ(failed.judgement, Judgement::kFailed);
  EXPECT_EQ(failed.judged, 1);
  ASSERT_TRUE(failed.smallest);
  EXPECT_EQ(ProblemOf(*failed.smallest), rare);
}

// The cause of one claim's failure serves the next claim, which then asks less.
TEST(Suite, LooksForACauseOnce) {
  int64_t asked = 0;
  const auto forgets = [&asked](const Case& c, const RunContext&) {
    ++asked;
    Case other = c;
    other.out_q.zero_point.assign(other.out_q.zero_point.size(), 0);
    return TestSubject::Good(exact::Evaluate(other));
  };
  const auto asked_for_negation = [&](bool after_another) {
    Suite suite(Op::kRescale, Making(forgets, "no-zero-point"), {.cases = 50});
    if (after_another) EXPECT_EQ(suite.Run(Claim("matches_exact")).kind, FindingKind::kZeroPoint);
    asked = 0;
    const SuiteResult result = suite.Run(Claim("negation"));
    EXPECT_EQ(result.judgement, Judgement::kFailed);
    EXPECT_EQ(result.kind, FindingKind::kZeroPoint) << result.text;
    return asked;
  };
  EXPECT_LT(2 * asked_for_negation(true), asked_for_negation(false));
}

// Most claims begin with the answer to the drawn case: it is asked for once, unless there was none.
TEST(Suite, AsksForTheAnswerToADrawnCaseOnce) {
  std::vector<Case> usual;
  int64_t crashes = 1;
  const auto counts = [&](const Case& c, const RunContext& context) {
    if (context == RunContext{}) usual.push_back(c);
    if (crashes-- > 0) return Outcome{RunStatus::kCrashed, "once", {}, std::nullopt};
    return TestSubject::Exact(c, context);
  };
  Suite suite(Op::kAdd, Making(counts, "counts"), {.cases = 20});
  EXPECT_EQ(suite.Run(Claim("matches_exact")).judgement, Judgement::kFailed);
  EXPECT_EQ(suite.Run(Claim("matches_exact")).judged, 20);
  const std::vector<Case> drawn(usual.end() - 20, usual.end());
  usual.clear();
  int64_t judged = 0;
  for (const Property* property : PropertiesAbout(Op::kAdd)) judged += suite.Run(*property).judged;
  EXPECT_GT(judged, 100);
  for (const Case& c : drawn) EXPECT_EQ(std::ranges::count(usual, c), 0) << CaseToJson(c);
}

// Of 32 draws for each wanted case a tenth of the wanted ones must be taken.
TEST(Suite, ATenthOfTheWantedCasesIsEnough) {
  constexpr int64_t kWanted = 20;
  const auto draw = [](int64_t i) { return gen::Draw(Op::kAdd, CaseSeed(1, Op::kAdd, i)); };
  // Why full cases are refused, which are most, and empty ones.
  std::pair<const char*, const char*> reasons{"full", "empty"};
  const auto refusal = [&](const std::vector<int64_t>& taken) {
    const MakeOwnSubject picky = [&] {
      auto subject = std::make_unique<TestSubject>(TestSubject::Exact, "picky");
      subject->cannot_run = [&](const Case& c) {
        for (const int64_t i : taken) {
          if (c == draw(i)) return "";
        }
        return c.M * c.N > 0 ? reasons.first : reasons.second;
      };
      return subject;
    };
    Suite suite(Op::kAdd, picky, {.cases = kWanted});
    return RefusalOf(suite);
  };
  EXPECT_EQ(refusal({0, 5}), "");
  EXPECT_EQ(refusal({0, 32 * kWanted - 1}), "") << "the last draw counts";
  EXPECT_EQ(refusal({5}), "subject 'picky': takes only 1 of 640 cases drawn for add, full")
      << "the reason that most cases have";
  reasons = {"first in the alphabet", "second"};
  EXPECT_NE(refusal({5}).find(", first in the alphabet"), std::string::npos);
  EXPECT_EQ(refusal({5, 32 * kWanted}).find("subject 'picky': takes only 1 of 640"), 0u);
}

TEST(Suite, NoCasesAreNoPass) {
  Suite none(Op::kAdd, Making(TestSubject::Exact, "exact"), {.cases = 0});
  EXPECT_NE(RefusalOf(none).find("takes only 0 of 0 cases drawn for add, no case was asked for"),
            std::string::npos);
}

TEST(Suite, TakesNoMoreCasesThanWanted) {
  const auto subject = std::make_shared<std::set<std::string>>();
  Suite suite(Op::kAdd,
              Making(
                  [subject](const Case& c, const RunContext& context) {
                    subject->insert(ProblemKey(c));
                    return TestSubject::Exact(c, context);
                  },
                  "counts"),
              {.cases = 7});
  suite.Run(Claim("matches_exact"));
  EXPECT_LE(subject->size(), 7u);
  EXPECT_GE(subject->size(), 5u) << "few are drawn twice";
}

TEST(Suite, SaysWhyNothingWasJudged) {
  Suite suite(Op::kLinear, Making(TestSubject::Exact, "exact"), {.cases = 30});
  const SuiteResult result = suite.Run(Claim("targets_agree"));
  EXPECT_EQ(result.judgement, Judgement::kVacuous);
  EXPECT_EQ(result.text, "vacuous: the subject has no other targets") << "of most cases";
}

TEST(Suite, SaysTheCommonestReason) {
  using Reasons = std::pair<std::string, std::string>;  // of most cases, of few
  for (const Reasons& reasons : {Reasons{"a", "b"}, Reasons{"b", "a"}}) {
    const auto skips = [reasons](const Case& c, const RunContext&) {
      Outcome outcome;
      outcome.status = RunStatus::kSkipped;
      outcome.detail = c.M % 4 == 0 ? reasons.second : reasons.first;
      return outcome;
    };
    Suite suite(Op::kRescale, Making(skips, "skips"), {.cases = 40});
    const SuiteResult result = suite.Run(Claim("matches_exact"));
    EXPECT_EQ(result.judgement, Judgement::kSkipped);
    EXPECT_EQ(result.text, "skipped: " + reasons.first);
  }
}

TEST(Suite, OneSubjectServesAllClaimsAndCanBeMadeAnew) {
  static int made = 0;
  const MakeOwnSubject counts = [] {
    ++made;
    return std::make_unique<TestSubject>(TestSubject::Exact, "made-once");
  };
  const TestSubject subject(TestSubject::Exact, "made-once");
  EXPECT_EQ(SubjectRegistry::Get().MakeAnew(subject), nullptr);
  Suite suite(Op::kAdd, counts, {.cases = 5});
  suite.Run(Claim("matches_exact"));
  const int before = made;
  suite.Run(Claim("matches_exact"));
  EXPECT_EQ(made, before);
  EXPECT_NE(SubjectRegistry::Get().MakeAnew(subject), nullptr)
      << "triage asks new instances whether one remembers";
}

TEST(Suite, AnAnswerOfTheWrongTypeOrShapeIsAFailureThatIsTold) {
  const auto longer = [](const Case& c, const RunContext&) {
    return TestSubject::Good(Tensor(c.out_dtype, {c.M, c.N + 1}));
  };
  const auto other = [](const Case& c, const RunContext&) {
    return TestSubject::Good(
        Tensor(c.out_dtype == DType::kU8 ? DType::kS8 : DType::kU8, c.output_shape()));
  };
  for (const auto& run : std::vector<TestSubject::RunFunction>{longer, other}) {
    Suite suite(Op::kRescale, Making(run, "odd"), {.cases = 20});
    const SuiteResult result = suite.Run(Claim("matches_exact"));
    EXPECT_EQ(result.judgement, Judgement::kFailed);
    EXPECT_NE(result.text.find("odd: the answer has the wrong type or shape"), std::string::npos)
        << result.text;
  }
}

TEST(Suite, ACaseThatFailsOnceIsShownAsItIs) {
  const auto failed = std::make_shared<std::optional<Case>>();
  const auto once = [failed](const Case& c, const RunContext& context) {
    Outcome outcome = TestSubject::Exact(c, context);
    if (*failed || c.M * c.N < 20 || c.out_min == c.out_max) return outcome;
    *failed = c;
    outcome.y.SetInt(3, outcome.y.IntAt(3) == c.out_min ? c.out_max : c.out_min);
    return outcome;
  };
  Suite suite(Op::kRescale, Making(once, "once"), {.cases = 50});
  const SuiteResult result = suite.Run(Claim("matches_exact"));
  ASSERT_EQ(result.judgement, Judgement::kFailed);
  EXPECT_NE(result.text.find("did not fail when it was run again"), std::string::npos)
      << result.text;
  const size_t json = result.text.find("\nthe case:\n");
  ASSERT_NE(json, std::string::npos) << result.text;
  EXPECT_EQ(ProblemOf(ParseCase(result.text.substr(json + 11), "shown")), ProblemOf(**failed));
}

TEST(Suite, ALargeCaseIsNamedByItsSeed) {
  // Wrong only where there are so many outputs that no smaller case fails.
  const auto wrong = [](const Case& c, const RunContext& context) {
    Outcome outcome = TestSubject::Exact(c, context);
    if (c.x.size() < 3000) return outcome;
    for (int64_t i = 0; i < outcome.y.size(); ++i)
      outcome.y.SetInt(i, outcome.y.IntAt(i) == c.out_min ? c.out_max : c.out_min);
    return outcome;
  };
  Suite suite(Op::kRescale, Making(wrong, "large"), {.cases = 400, .seed = 3});
  const SuiteResult result = suite.Run(Claim("matches_exact"));
  ASSERT_EQ(result.judgement, Judgement::kFailed);
  EXPECT_NE(result.text.find("\nthe case (rescale M="), std::string::npos) << result.text;
  EXPECT_NE(result.text.find(") is too large to show: seed 3, cases 400\n"), std::string::npos)
      << result.text;
  EXPECT_EQ(result.text.find("\nthe case:\n"), std::string::npos);
}

TEST(Suite, KnowsThePropertiesOfAnOperation) {
  EXPECT_EQ(PropertiesAbout(Op::kLinear, "sweep_*").size(), 2u);
  EXPECT_EQ(PropertiesAbout(Op::kLinear, "conv2d.*").size(), 0u);
  EXPECT_GT(PropertiesAbout(Op::kLinear).size(), 20u);
}

}  // namespace
}  // namespace qualm
