// SPDX-License-Identifier: Apache-2.0
#include "properties/suite.h"

#include <gtest/gtest.h>

#include "core/io/case_json.h"
#include "core/status.h"
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
  try {
    suite.Run(Claim("matches_exact"));
    FAIL() << "nothing was judged and nobody said so";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("takes only 0 of 160 cases drawn for add, never"),
              std::string::npos)
        << error.what();
  }
}

TEST(Suite, KnowsThePropertiesOfAnOperation) {
  EXPECT_EQ(PropertiesAbout(Op::kLinear, "sweep_*").size(), 2u);
  EXPECT_EQ(PropertiesAbout(Op::kLinear, "conv2d.*").size(), 0u);
  EXPECT_GT(PropertiesAbout(Op::kLinear).size(), 20u);
}

}  // namespace
}  // namespace qualm
