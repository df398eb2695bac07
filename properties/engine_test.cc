// SPDX-License-Identifier: Apache-2.0
#include "properties/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

Outcome OffByOneInTails(const Case& c, const RunContext&) {
  Tensor y = exact::Evaluate(c);
  if (IsCode(c.out_dtype) && c.N % 4 == 1 && !y.empty()) {
    const int64_t last = y.size() - 1;
    y.SetInt(last, y.IntAt(last) < c.out_max ? y.IntAt(last) + 1 : c.out_min);
  }
  return TestSubject::Good(y);
}

// Parameters (of x, or of the output) of the first case of a shape serve all later ones.
TestSubject::RunFunction Keeps(QParams Case::* parameters) {
  return [parameters, kept = std::map<std::string, QParams>()](const Case& c,
                                                               const RunContext&) mutable {
    Case stale = ProblemOf(c);
    stale.*parameters = kept.try_emplace(Describe(c), c.*parameters).first->second;
    return TestSubject::Good(exact::Evaluate(stale));
  };
}

// Wrong in its second answer alone: no memory is wrong once.
TestSubject::RunFunction ErrsOnce() {
  return [answers = 0](const Case& c, const RunContext&) mutable {
    Case asked = ProblemOf(c);
    if (++answers == 2) asked.out_q.zero_point[0] ^= 1;
    return TestSubject::Good(exact::Evaluate(asked));
  };
}

Judging AttributedTo(FindingKind kind) {
  Judging judging;
  judging.attribute = [kind](const Case&, const Verdict&, Subject&) { return kind; };
  return judging;
}

Case TenPlusFive() {
  Case c;
  c.op = Op::kAdd;
  c.M = c.N = 1;
  c.x = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{10});
  c.w = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{5});
  EXPECT_EQ(Validate(c), "");
  return c;
}

class EngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    SubjectRegistry::Get().Add({"toy",
                                "test",
                                "",
                                [] { return std::vector<std::string>{"toy:good", "toy:bad"}; },
                                [](const std::string& name) -> std::unique_ptr<Subject> {
                                  if (name == "toy:good")
                                    return std::make_unique<TestSubject>(TestSubject::Exact, name);
                                  if (name == "toy:bad")
                                    return std::make_unique<TestSubject>(OffByOneInTails, name);
                                  if (name == "toy:remembers-and-errs")
                                    return std::make_unique<TestSubject>(ErrsOnce(), name);
                                  if (name == "toy:remembers-input")
                                    return std::make_unique<TestSubject>(Keeps(&Case::x_q), name);
                                  if (name.starts_with("toy:remembers"))
                                    return std::make_unique<TestSubject>(Keeps(&Case::out_q), name);
                                  if (name == "toy:absent")
                                    throw Unavailable("toy:absent: not here");
                                  if (name == "toy:throws") {
                                    return std::make_unique<TestSubject>(
                                        [](const Case&, const RunContext&) -> Outcome {
                                          throw std::runtime_error("our own mistake");
                                        },
                                        name);
                                  }
                                  return nullptr;
                                },
                                {}});
    SubjectRegistry::Get().AddExpectedDivergence(
        {"toy:bad", "quantize", "matches_exact", "tail", "a test"});
    for (const char* subject :
         {"toy:remembers", "toy:remembers-input", "toy:remembers-and-errs", "toy:bad"}) {
      SubjectRegistry::Get().AddExpectedDivergence(
          {subject, "add", "answer_independent_of_history", "nondeterminism", "a test"});
    }
  }

  static CheckOptions Options() {
    CheckOptions options;
    options.subjects = {"toy:good", "toy:bad"};
    options.cases = 40;
    options.seed = 11;
    return options;
  }
};

void ExpectSame(const CheckResult& a, const CheckResult& b) {
  EXPECT_EQ(a.totals.cases, b.totals.cases);
  EXPECT_EQ(a.totals.verdicts, b.totals.verdicts);
  ASSERT_EQ(a.by_property.size(), b.by_property.size());
  for (const auto& [name, totals] : a.by_property) {
    EXPECT_EQ(totals.verdicts, b.by_property.at(name).verdicts) << name;
  }
  EXPECT_EQ(a.failed, b.failed);
  EXPECT_EQ(a.reasons, b.reasons);
  EXPECT_EQ(a.cases_by_op, b.cases_by_op);
  EXPECT_EQ(a.judged, b.judged);
  ASSERT_EQ(a.unjudged.size(), b.unjudged.size());
  for (const auto& [key, unjudged] : a.unjudged) {
    EXPECT_EQ(unjudged.cases, b.unjudged.at(key).cases);
    EXPECT_EQ(unjudged.reasons, b.unjudged.at(key).reasons);
  }
  ASSERT_EQ(a.findings.size(), b.findings.size());
  for (size_t i = 0; i < a.findings.size(); ++i) {
    EXPECT_EQ(a.findings[i].fingerprint(), b.findings[i].fingerprint());
    EXPECT_EQ(a.findings[i].test_case, b.findings[i].test_case);
    EXPECT_EQ(a.findings[i].explanation, b.findings[i].explanation);
  }
  ASSERT_EQ(a.coverage.rows().size(), b.coverage.rows().size());
  for (const auto& [key, row] : a.coverage.rows()) {
    EXPECT_EQ(row.cases, b.coverage.rows().at(key).cases);
    EXPECT_EQ(row.reached, b.coverage.rows().at(key).reached);
  }
}

TEST_F(EngineTest, FindsAndCounts) {
  const CheckResult result = Check(Options());
  EXPECT_EQ(result.totals.cases, 40 * static_cast<int64_t>(AllOps().size()));
  EXPECT_EQ(result.by_subject.at("toy:good").of(Judgement::kFailed), 0);
  EXPECT_GT(result.by_subject.at("toy:bad").of(Judgement::kFailed), 0);
  int64_t verdicts = 0;
  for (const auto& [name, totals] : result.by_property) {
    if (OneIn(*FindProperty(name)) > 1) continue;  // takes turns
    for (const auto& [judgement, count] : totals.verdicts) verdicts += count;
  }
  int64_t expected = 0;
  for (const Property& property : AllProperties()) {
    if (OneIn(property) > 1) continue;
    expected += static_cast<int64_t>(property.ops.size()) * 40 * 2;
  }
  EXPECT_EQ(verdicts, expected);
  // Every failure is counted by claim and subject.
  int64_t failed = 0;
  for (const auto& [claim, count] : result.failed) {
    EXPECT_EQ(claim.second, "toy:bad");
    EXPECT_LE(count, result.by_property.at(claim.first).of(Judgement::kFailed));
    failed += count;
  }
  EXPECT_EQ(failed, result.totals.of(Judgement::kFailed));
  // Every verdict that is no pass has its reason counted.
  int64_t reasons = 0;
  for (const auto& [key, count] : result.reasons) reasons += count;
  EXPECT_EQ(reasons, result.totals.of(Judgement::kSkipped) + result.totals.of(Judgement::kVacuous) +
                         result.totals.of(Judgement::kNotApplicable));
}

TEST_F(EngineTest, KeepsTheFirstFindingsOfEachClaim) {
  CheckOptions options = Options();
  options.findings_kept = 2;
  const CheckResult result = Check(options);
  std::map<std::string, int> kept;
  for (const Finding& finding : result.findings) ++kept[finding.fingerprint()];
  EXPECT_FALSE(kept.empty());
  for (const auto& [fingerprint, count] : kept) EXPECT_LE(count, 2) << fingerprint;
  EXPECT_GT(result.totals.of(Judgement::kFailed), static_cast<int64_t>(result.findings.size()));
}

TEST_F(EngineTest, WhatADeclaredMemorySpoilsIsExpected) {
  const Case c = TenPlusFive();
  Case other = c;
  other.out_q.zero_point = {1};
  const auto judgement_of_second = [&](const std::string& name) {
    const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make(name);
    CheckResult result;
    const Judging judging = AttributedTo(FindingKind::kUnknown);
    CheckCase(other, {subject.get()}, "matches_exact", result, judging);
    result = {};
    CheckCase(c, {subject.get()}, "matches_exact", result, judging);
    EXPECT_EQ(result.totals.cases, 1);
    for (const auto& [judgement, count] : result.totals.verdicts) {
      if (count > 0) return judgement;
    }
    return Judgement::kSkipped;
  };
  EXPECT_EQ(judgement_of_second("toy:good"), Judgement::kPassed);
  EXPECT_EQ(judgement_of_second("toy:remembers"), Judgement::kExpected);
  // That it remembers is declared, but it forgets: its error is another one.
  EXPECT_EQ(judgement_of_second("toy:remembers-and-errs"), Judgement::kFailed);
  // No row declares that this subject remembers; and a wrong new instance shows no memory.
  EXPECT_EQ(judgement_of_second("toy:remembers-undeclared"), Judgement::kFailed);
  EXPECT_EQ(judgement_of_second("toy:bad"), Judgement::kFailed);
}

// The property asks the earlier case itself, so that a new instance of the subject fails too.
TEST_F(EngineTest, WhatADeclaredMemorySpoilsWithinAPropertyIsExpected) {
  const Case c = TenPlusFive();
  const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make("toy:remembers-input");
  CheckResult result;
  const Judging judging = AttributedTo(FindingKind::kUnknown);
  CheckCase(c, {subject.get()}, "zero_point_shift", result, judging);
  EXPECT_EQ(result.totals.of(Judgement::kExpected), 1);
}

TEST_F(EngineTest, GivesTheSameResultForAnyNumberOfJobs) {
  CheckOptions options = Options();
  const CheckResult one = Check(options);
  for (int jobs : {2, 5}) {
    options.jobs = jobs;
    ExpectSame(one, Check(options));
  }
}

TEST_F(EngineTest, ShardsAddUpToTheWhole) {
  CheckOptions options = Options();
  const CheckResult whole = Check(options);
  Totals sum;
  options.shard_count = 3;
  for (options.shard_index = 0; options.shard_index < 3; ++options.shard_index) {
    const CheckResult shard = Check(options);
    EXPECT_LT(shard.totals.cases, whole.totals.cases);
    sum.Merge(shard.totals);
  }
  EXPECT_EQ(sum.cases, whole.totals.cases);
  EXPECT_EQ(sum.verdicts, whole.totals.verdicts);
}

TEST_F(EngineTest, FindingsNameTheCaseThatTheirSeedDraws) {
  const CheckResult result = Check(Options());
  ASSERT_FALSE(result.findings.empty());
  const Finding& finding = result.findings.front();
  const Op op = *ParseOp(finding.op);
  bool drawn = false;
  for (int64_t i = 0; i < 40; ++i) {
    drawn = drawn || gen::Draw(op, CaseSeed(11, op, i)) == ProblemOf(finding.test_case);
  }
  EXPECT_TRUE(drawn);
}

TEST_F(EngineTest, DeclaredDivergencesAreExpectedWhereTheKindAgrees) {
  CheckOptions options = Options();
  options.subjects = {"toy:bad"};
  options.ops = {Op::kQuantize};
  options.property_glob = "matches_exact";
  EXPECT_EQ(Check(options).totals.of(Judgement::kExpected), 0);  // nobody told the kind
  options.attribute = [](const Case&, const Verdict&, Subject&) { return FindingKind::kTail; };
  const CheckResult expected = Check(options);
  EXPECT_GT(expected.totals.of(Judgement::kExpected), 0);
  EXPECT_EQ(expected.totals.of(Judgement::kFailed), 0);
  ASSERT_FALSE(expected.findings.empty());
  EXPECT_TRUE(expected.findings[0].expected_by_contract);
  options.attribute = [](const Case&, const Verdict&, Subject&) { return FindingKind::kTie; };
  EXPECT_EQ(Check(options).totals.of(Judgement::kExpected), 0);
}

TEST_F(EngineTest, EveryFailureIsKeptWithTheKindOfItsRun) {
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  for (const auto& [ends, kind] : std::vector<std::pair<RunStatus, FindingKind>>{
           {RunStatus::kCrashed, FindingKind::kCrash},
           {RunStatus::kHung, FindingKind::kHang},
           {RunStatus::kTouchedOutside, FindingKind::kMemory},
           {RunStatus::kModifiedInput, FindingKind::kMemory},
           {RunStatus::kLeftBehind, FindingKind::kMemory},
           {RunStatus::kRefused, FindingKind::kUnknown},
           {RunStatus::kGarbage, FindingKind::kUnknown},
           {RunStatus::kOk, FindingKind::kUnknown}}) {
    const RunStatus status = ends;
    TestSubject subject([status](const Case& asked, const RunContext&) {
      Outcome outcome = TestSubject::Good(exact::Evaluate(asked));
      outcome.status = status;
      outcome.detail = "the detail";
      outcome.y.SetInt(0, outcome.y.IntAt(0) ^ 1);
      return outcome;
    });
    CheckResult result;
    std::vector<FindingKind> told;
    Judging judging;
    judging.found = [&](const Finding& finding) { told.push_back(finding.kind); };
    CheckCase(c, {&subject}, "matches_exact", result, judging);
    ASSERT_EQ(result.findings.size(), 1u) << Name(status);
    const Finding& finding = result.findings.front();
    EXPECT_EQ(finding.kind, kind) << Name(status);
    EXPECT_EQ(told, std::vector{kind});
    EXPECT_EQ(ProblemOf(finding.test_case), ProblemOf(c));
    EXPECT_EQ(finding.subject, "test");
    EXPECT_EQ(finding.full_property(), "linear.matches_exact");
    EXPECT_EQ(finding.first_divergence.has_value(), status == RunStatus::kOk);
    EXPECT_EQ(finding.explanation.find("the detail") != std::string::npos,
              status != RunStatus::kOk);
    EXPECT_FALSE(finding.expected_by_contract);
    EXPECT_EQ(result.failed.at({"linear.matches_exact", "test"}), 1);
    EXPECT_EQ(result.totals.of(Judgement::kFailed), 1);
    EXPECT_EQ(result.totals.judged(), 1);
    EXPECT_TRUE(result.reasons.empty());
  }
}

TEST_F(EngineTest, OneKindDoesNotCrowdOutAnother) {
  // Two wrong numbers, then a crash: with one finding kept of each, both kinds are there.
  CheckResult result;
  Judging judging;
  judging.findings_kept = 1;
  std::vector<Finding> told;
  judging.found = [&](const Finding& finding) { told.push_back(finding); };
  for (const RunStatus status : {RunStatus::kGarbage, RunStatus::kRefused, RunStatus::kCrashed,
                                 RunStatus::kTouchedOutside, RunStatus::kCrashed}) {
    TestSubject subject([status](const Case&, const RunContext&) {
      Outcome outcome;
      outcome.status = status;
      return outcome;
    });
    CheckCase(gen::Draw(Op::kLinear, gen::Theme::kUniform, 1), {&subject}, "matches_exact", result,
              judging);
  }
  std::vector<FindingKind> kept;
  for (const Finding& finding : result.findings) kept.push_back(finding.kind);
  EXPECT_EQ(kept, (std::vector{FindingKind::kUnknown, FindingKind::kCrash, FindingKind::kMemory}));
  EXPECT_EQ(told.size(), 5u) << "all are told, whatever is kept";
  EXPECT_EQ(result.totals.of(Judgement::kFailed), 5);
}

TEST_F(EngineTest, EachClaimKeepsItsOwnFindings) {
  const Case linear = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  const Case quantize = gen::Draw(Op::kQuantize, gen::Theme::kUniform, 1);
  const auto wrong = [](const Case& c, const RunContext&) {
    Tensor y = exact::Evaluate(c);
    y.SetInt(0, y.IntAt(0) ^ 1);
    return TestSubject::Good(y);
  };
  TestSubject one(wrong, "one"), two(wrong, "two");
  for (const int64_t limit : {1, 2}) {
    CheckResult result;
    Judging judging;
    judging.findings_kept = limit;
    for (int turn = 0; turn < 3; ++turn) {
      for (const Case* c : {&linear, &quantize})
        CheckCase(*c, {&one, &two}, "matches_exact,clamp,zero_maps*", result, judging);
    }
    std::map<std::pair<std::string, std::string>, int64_t> kept;
    for (const Finding& finding : result.findings)
      ++kept[{finding.full_property(), finding.subject}];
    ASSERT_GE(kept.size(), 4u) << "two operations, two subjects";
    ASSERT_EQ(kept.size(), result.failed.size());
    for (const auto& [claim, count] : result.failed)
      EXPECT_EQ(kept.at(claim), std::min(limit, count)) << claim.first << " " << claim.second;
  }
}

// A subject of this name, its answers wrong at output 0 by what `flip` says for each run.
class Declared : public EngineTest {
 protected:
  Declared() {
    c_.op = Op::kAdd;
    c_.M = 1;
    c_.N = 2;
    c_.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{10, 10});
    c_.w = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{5, 5});  // two equal outputs
  }
  Judgement JudgementOf(const std::string& name, const std::vector<std::pair<int64_t, int>>& flips,
                        FindingKind kind, CheckResult* told = nullptr) {
    size_t run = 0;
    TestSubject subject(
        [&](const Case& c, const RunContext&) {
          Tensor y = exact::Evaluate(c);
          const auto& [at, flip] = flips[std::min(run++, flips.size() - 1)];
          y.SetInt(at, y.IntAt(at) ^ flip);
          return TestSubject::Good(y);
        },
        name);
    CheckResult result;
    const Judging judging = AttributedTo(kind);
    CheckCase(c_, {&subject}, "matches_exact", result, judging);
    if (told != nullptr) *told = result;
    EXPECT_EQ(result.findings.size(), 1u);
    const bool expected = result.totals.of(Judgement::kExpected) == 1;
    if (expected) {
      EXPECT_EQ(result.findings.front().kind, kind);
    }
    EXPECT_EQ(result.findings.front().expected_by_contract, expected);
    EXPECT_EQ(result.failed.empty(), expected);
    return expected ? Judgement::kExpected : Judgement::kFailed;
  }
  static void Declare(const std::string& subject, const std::string& kind, const std::string& shape,
                      const std::string& op = "add", const std::string& claim = "matches_exact") {
    SubjectRegistry::Get().AddExpectedDivergence({subject, op, claim, kind, "a test", "", shape});
  }

  Case c_;
};

TEST_F(Declared, OnlyForItsSubjectOperationClaimKindAndShape) {
  using enum FindingKind;
  Declare("declared", "tie", "got 14");
  Declare("declared-elsewhere", "tie", "", "sub");
  Declare("declared-otherwise", "tie", "", "add", "clamp");
  EXPECT_EQ(JudgementOf("declared", {{0, 1}}, kTie), Judgement::kExpected);
  EXPECT_EQ(JudgementOf("declared", {{0, 3}}, kTie), Judgement::kFailed) << "got 12";
  EXPECT_EQ(JudgementOf("declared", {{0, 1}}, kTail), Judgement::kFailed);
  EXPECT_EQ(JudgementOf("nobody", {{0, 1}}, kTie), Judgement::kFailed);
  EXPECT_EQ(JudgementOf("declared-elsewhere", {{0, 1}}, kTie), Judgement::kFailed);
  EXPECT_EQ(JudgementOf("declared-otherwise", {{0, 1}}, kTie), Judgement::kFailed);
  EXPECT_EQ(JudgementOf("declared", {{0, 1}, {0, 0}}, kTie), Judgement::kExpected)
      << "only of nondeterminism it matters whether it comes again";
  // The first row does not fit, the second one does.
  Declare("declared", "clamp", "");
  EXPECT_EQ(JudgementOf("declared", {{0, 3}}, kClamp), Judgement::kExpected);
}

TEST_F(Declared, NondeterminismOnlyWhereTheSameNumberComesAgain) {
  const FindingKind kind = FindingKind::kNondeterminism;
  Declare("forgetful", "nondeterminism", "");
  EXPECT_EQ(JudgementOf("forgetful", {{0, 1}}, kind), Judgement::kExpected) << "it stays so";
  EXPECT_EQ(JudgementOf("forgetful", {{0, 1}, {0, 0}}, kind), Judgement::kFailed) << "an error";
  EXPECT_EQ(JudgementOf("forgetful", {{0, 1}, {0, 2}}, kind), Judgement::kFailed)
      << "another number";
  EXPECT_EQ(JudgementOf("forgetful", {{0, 1}, {1, 1}}, kind), Judgement::kFailed)
      << "another place";
}

TEST_F(Declared, WhatIsExpectedDoesNotCrowdOutWhatIsNot) {
  Declare("two-faced", "nondeterminism", "");
  CheckResult result;
  Judging judging;
  judging.findings_kept = 1;
  judging.attribute = [](const Case&, const Verdict&, Subject&) {
    return FindingKind::kNondeterminism;
  };
  for (const bool stays : {true, false, true, false}) {
    TestSubject subject(
        [stays, run = 0](const Case& c, const RunContext&) mutable {
          Tensor y = exact::Evaluate(c);
          if (stays || run++ == 0) y.SetInt(0, y.IntAt(0) ^ 1);
          return TestSubject::Good(y);
        },
        "two-faced");
    CheckCase(c_, {&subject}, "matches_exact", result, judging);
  }
  ASSERT_EQ(result.findings.size(), 2u);
  EXPECT_TRUE(result.findings[0].expected_by_contract);
  EXPECT_FALSE(result.findings[1].expected_by_contract);
  EXPECT_EQ(result.findings[1].kind, FindingKind::kNondeterminism);
}

TEST_F(Declared, AKindThatTheRunShowedIsNotAttributedAgain) {
  Declare("crasher", "crash", "");
  TestSubject subject(
      [](const Case&, const RunContext&) {
        Outcome outcome;
        outcome.status = RunStatus::kCrashed;
        return outcome;
      },
      "crasher");
  CheckResult result;
  Judging judging = AttributedTo(FindingKind::kTie);
  CheckCase(c_, {&subject}, "matches_exact", result, judging);
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].kind, FindingKind::kCrash);
  EXPECT_TRUE(result.findings[0].expected_by_contract);
}

TEST_F(Declared, AnExpectedFailureIsCountedAsJudgedAndToldNobody) {
  Declare("told-nobody", "tie", "");
  TestSubject subject(
      [](const Case& c, const RunContext&) {
        Tensor y = exact::Evaluate(c);
        y.SetInt(0, y.IntAt(0) ^ 1);
        return TestSubject::Good(y);
      },
      "told-nobody");
  CheckResult result;
  Judging judging = AttributedTo(FindingKind::kTie);
  judging.found = [](const Finding&) { ADD_FAILURE() << "what is expected is no news"; };
  CheckCase(c_, {&subject}, "matches_exact", result, judging);
  EXPECT_EQ(result.totals.of(Judgement::kExpected), 1);
  EXPECT_EQ(result.totals.judged(), 1);
  EXPECT_EQ(result.by_square.at({"told-nobody", "add"}).of(Judgement::kExpected), 1);
  EXPECT_EQ(result.coverage.rows().size(), 1u) << "an expected failure was judged too";
  EXPECT_TRUE(result.reasons.empty());
}

TEST_F(Declared, MemoryIsDeclaredOnlyByARowAboutHistoryOfThatKindAndOperation) {
  const TestSubject subject(TestSubject::Exact, "remembers-by-row");
  Declare("remembers-by-row", "tie", "", "add", "answer_independent_of_history");
  Declare("remembers-by-row", "nondeterminism", "", "add", "matches_exact");
  Declare("remembers-by-row", "nondeterminism", "", "sub", "answer_independent_of_history");
  EXPECT_EQ(DeclaredMemory(subject, Op::kAdd), nullptr);
  EXPECT_NE(DeclaredMemory(subject, Op::kSub), nullptr);
}

TEST_F(EngineTest, SubjectsAreMadeUnderTheContractThatWasNamed) {
  EXPECT_TRUE(MakeSubjects({"toy:good"}, "").front()->contract().exact());
  EXPECT_TRUE(MakeSubjects({"toy:good"}, "exact").front()->contract().exact());
  const std::string model = "model:fbgemm@avx2";
  EXPECT_EQ(MakeSubjects({"toy:good"}, model).front()->contract().text(), model);
  const auto one = std::move(MakeSubjects({"toy:good"}, "linear=" + model).front());
  EXPECT_EQ(one->contract(Op::kLinear).text(), model);
  EXPECT_TRUE(one->contract(Op::kConv2d).exact());
  const std::string why = "model:onnxruntime@vnni has no requantize";
  EXPECT_EQ(WrongContracts(ParseContracts("model:onnxruntime@vnni")), "");
  EXPECT_EQ(WrongContracts(ParseContracts("requantize=model:onnxruntime@vnni")), why);
  EXPECT_THROW(MakeSubjects({"toy:good"}, "requantize=model:onnxruntime@vnni"), InputError);
}

// What nobody compared with the contract is not judged, whatever memory and clamps say; unless
// nobody asked for a comparison.
TEST_F(EngineTest, NumbersThatNobodyComparedAreNotJudged) {
  const std::pair<std::string, Op> square{"test", Op::kRequantize};
  struct Row {
    const char* contract;
    const char* glob;
    bool judged;
    const char* why;
  };
  for (const Row& row : {Row{"exact", "*", true, ""},
                         {"model:fbgemm@avx2", "*", true, ""},
                         {"model:onnxruntime@vnni", "*", false, "does not define it"},
                         {"model:onnxruntime@vnni", "matches_*", false, "does not define it"},
                         {"model:onnxruntime@vnni", "no_stray_access,answer_*", true, ""},
                         {"exact", "matches_model", false, ""}}) {
    SCOPED_TRACE(std::string(row.contract) + " " + row.glob);
    TestSubject subject;
    subject.set_contract(ParseContract(row.contract));
    CheckResult result;
    for (uint64_t seed = 0; seed < 30; ++seed)
      CheckCase(gen::Draw(Op::kRequantize, seed), {&subject}, row.glob, result, {.adapt = true});
    EXPECT_EQ(result.judged[square] > 0, row.judged);
    EXPECT_EQ(result.coverage.rows().empty(), !row.judged);
    if (row.judged) continue;
    EXPECT_EQ(result.unjudged[square].cases, 30);
    for (const auto& [why, count] : result.unjudged[square].reasons)
      EXPECT_NE(why.find(row.why), std::string::npos) << why;
  }
}

// Of a case without outputs nothing can be compared: it is no answer that was missed, and no judge.
TEST_F(EngineTest, ACaseWithoutOutputsJudgesNoNumbers) {
  Case c = TenPlusFive();
  c.M = 0;
  c.x = c.w = Tensor(DType::kU8, {0, 1});
  ASSERT_EQ(Validate(c), "");
  TestSubject subject;
  CheckResult result;
  CheckCase(c, {&subject}, "*", result);
  EXPECT_TRUE(result.judged.empty());
  EXPECT_TRUE(result.unjudged.empty());
}

// The case of a finding names the contract of its operation.
TEST_F(EngineTest, FindingsNameTheirContract) {
  TestSubject subject(OffByOneInTails);
  subject.set_contracts(ParseContracts("quantize=model:fbgemm@avx2"));
  CheckResult result;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (const Op op : {Op::kQuantize, Op::kRequantize})
      CheckCase(gen::Draw(op, seed), {&subject}, "*", result, {.adapt = true});
  }
  std::set<std::string> contracts;
  for (const Finding& finding : result.findings) {
    EXPECT_EQ(finding.test_case.contract, subject.contract(finding.test_case.op).text());
    contracts.insert(finding.test_case.contract);
  }
  EXPECT_EQ(contracts, (std::set<std::string>{"exact", "model:fbgemm@avx2"}));
}

TEST_F(EngineTest, HistoryExcusesNumbersNoCrashesAndSaysSo) {
  const Case c = TenPlusFive();
  Case other = c;
  other.out_q.zero_point = {1};
  const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make("toy:remembers");
  CheckResult result;
  const Judging judging = AttributedTo(FindingKind::kUnknown);
  CheckCase(other, {subject.get()}, "matches_exact", result, judging);
  CheckCase(c, {subject.get()}, "matches_exact", result, judging);
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings.front().kind, FindingKind::kNondeterminism);
  EXPECT_EQ(result.findings.front().declared, "a test");
  EXPECT_NE(result.findings.front().explanation.find("that this one remembers is declared"),
            std::string::npos)
      << result.findings.front().explanation;
  // A crash of the same subject is no memory.
  TestSubject crashes(
      [](const Case&, const RunContext&) {
        Outcome outcome;
        outcome.status = RunStatus::kCrashed;
        return outcome;
      },
      "toy:remembers");
  result = {};
  CheckCase(c, {&crashes}, "matches_exact", result, judging);
  EXPECT_EQ(result.totals.of(Judgement::kFailed), 1);
  // Nobody can make another instance of this one, so nothing tells history from error.
  SubjectRegistry::Get().AddExpectedDivergence(
      {"unmakeable", "add", "answer_independent_of_history", "nondeterminism", "a test"});
  TestSubject wrong(
      [](const Case& asked, const RunContext&) {
        Tensor y = exact::Evaluate(asked);
        y.SetInt(0, y.IntAt(0) ^ 1);
        return TestSubject::Good(y);
      },
      "unmakeable");
  result = {};
  CheckCase(c, {&wrong}, "matches_exact", result, judging);
  EXPECT_EQ(result.totals.of(Judgement::kFailed), 1);
}

TEST_F(EngineTest, DrawsOnlyWhatThePropertiesAreAbout) {
  CheckOptions options = Options();
  options.property_glob = "quantize.*";
  EXPECT_EQ(Check(options).totals.cases, options.cases);
  options.ops = {Op::kQuantize};
  ExpectSame(Check(options), Check([&] {
               CheckOptions all = options;
               all.ops.clear();
               return all;
             }()));
  options.ops = {Op::kQuantize, Op::kLinear};
  EXPECT_EQ(Check(options).totals.cases, options.cases);
  options.property_glob = "matches_exact";
  EXPECT_EQ(Check(options).totals.cases, 2 * options.cases);
}

TEST_F(EngineTest, TheoremsOfExactArithmeticTakeTurnsAndComparisonsDoNot) {
  std::set<std::string_view> always;
  for (const Property& property : AllProperties()) {
    if (OneIn(property) == 1) always.insert(property.claim);
    EXPECT_GE(OneIn(property), property.one_in) << property.claim;
  }
  EXPECT_EQ(always, (std::set<std::string_view>{"matches_exact", "matches_model", "clamp"}));
}

TEST_F(EngineTest, DearPropertiesTakeTurnsOnDrawnCases) {
  CheckOptions options = Options();
  options.subjects = {"toy:good"};
  options.ops = {Op::kLinear};
  options.property_glob = "linear.*c*";
  options.cases = 400;
  const auto verdicts = [](const CheckResult& result) {
    int64_t count = 0;
    const auto at = result.by_property.find("linear.concurrent_calls");
    if (at == result.by_property.end()) return count;
    for (const auto& [judgement, n] : at->second.verdicts) count += n;
    return count;
  };
  const int64_t judged = verdicts(Check(options));
  const int one_in = OneIn(*FindProperty("concurrent_calls"));
  EXPECT_GT(one_in, 1);
  EXPECT_GE(judged, options.cases / one_in / 2);
  EXPECT_LE(judged, 2 * options.cases / one_in);
  // A given case is judged by all.
  TestSubject subject;
  CheckResult given;
  for (uint64_t seed = 0; seed < 20; ++seed)
    CheckCase(gen::Draw(Op::kLinear, seed), {&subject}, options.property_glob, given);
  EXPECT_EQ(verdicts(given), 20);
  // A property that is asked for alone judges every drawn case too.
  options.property_glob = "linear.concurrent_calls";
  options.cases = 20;
  EXPECT_EQ(verdicts(Check(options)), 20);
}

TEST_F(EngineTest, CoverageCountsOnlyJudgedCases) {
  CheckResult result;
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  TestSubject able;
  TestSubject unable;
  unable.cannot_run = [](const Case&) { return "never"; };
  CheckCase(c, {&able, &unable}, "*", result);
  ASSERT_EQ(result.coverage.rows().size(), 1u);
  EXPECT_EQ(result.coverage.rows().begin()->second.cases, 1);
  EXPECT_EQ(result.coverage.rows().begin()->first.second, "test");
}

TEST_F(EngineTest, AdaptsWhatASubjectDoesNotTake) {
  TestSubject narrow;
  narrow.cannot_run = [](const Case& c) { return c.relu ? "relu" : c.bias ? "float bias" : ""; };
  Judging judging;
  for (const bool adapt : {false, true}) {
    judging.adapt = adapt;
    CheckResult result;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      CheckCase(gen::Draw(Op::kLinear, seed), {&narrow}, "linear.matches_exact", result, judging);
    }
    EXPECT_EQ(result.totals.cases, 60);
    EXPECT_EQ(result.totals.of(Judgement::kSkipped) == 0, adapt);
    // A case of which nothing was judged is counted, and why.
    EXPECT_EQ(result.cases_by_op, (std::map<Op, int64_t>{{Op::kLinear, 60}}));
    int64_t refused = 0;
    for (const auto& [why, count] : result.unjudged[{"test", Op::kLinear}].reasons)
      refused += count;
    EXPECT_EQ(refused, result.totals.of(Judgement::kSkipped));
    // What was changed is counted by the reason.
    EXPECT_EQ(result.adapted.empty(), !adapt);
    if (!adapt) continue;
    for (const char* why : {"relu", "float bias"}) EXPECT_GT(result.adapted.at("test").at(why), 0);
  }
}

TEST_F(EngineTest, StopsWhenTold) {
  CheckOptions options = Options();
  options.subjects = {"toy:good"};
  options.cases = 1'000'000;
  std::atomic<int> asked = 0;
  options.stop = [&] { return ++asked > 5; };
  EXPECT_EQ(Check(options).totals.cases, 5);
}

TEST_F(EngineTest, RunsUntilTheTimeIsUp) {
  CheckOptions options = Options();
  options.subjects = {"toy:good"};
  options.seconds = 0.2;
  options.jobs = 2;
  options.property_glob = "matches_exact";
  std::atomic<int64_t> reported = 0;
  options.progress = [&](int64_t, int64_t all) { reported += all == -1; };
  const CheckResult result = Check(options);
  EXPECT_GT(result.totals.cases, 4);
  EXPECT_EQ(reported, result.totals.cases);
}

TEST_F(EngineTest, RefusesBadOptionsBeforeTheFirstCase) {
  const auto refused = [](auto change) {
    CheckOptions options = Options();
    change(options);
    options.progress = [](int64_t, int64_t) { ADD_FAILURE() << "a case was drawn"; };
    EXPECT_THROW(Check(options), InputError);
  };
  refused([](CheckOptions& o) { o.subjects = {"toy:goood"}; });
  refused([](CheckOptions& o) { o.property_glob = "no_such_*"; });
  refused([](CheckOptions& o) { o.shard_index = 3, o.shard_count = 3; });
  refused([](CheckOptions& o) { o.shard_index = -1, o.shard_count = 3; });
  refused([](CheckOptions& o) { o.cases = -1; });
  refused([](CheckOptions& o) { o.jobs = 0; });
  refused([](CheckOptions& o) { o.contract = "model:no-such-model"; });
  refused([](CheckOptions& o) { o.contract = "roughly"; });
  CheckOptions absent = Options();
  absent.subjects = {"toy:absent"};
  EXPECT_THROW(Check(absent), Unavailable);
}

TEST_F(EngineTest, PropagatesExceptionsOfItsThreads) {
  CheckOptions options = Options();
  options.subjects = {"toy:throws"};
  for (int jobs : {1, 3}) {
    options.jobs = jobs;
    EXPECT_THROW(Check(options), std::runtime_error);
  }
}

}  // namespace
}  // namespace qualm
