// SPDX-License-Identifier: Apache-2.0
// Findings on their way to the disk: what is a finding, what is excused, and what is written and
// told when it is found.
#include "tools/findings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "core/layer_test_util.h"
#include "core/slice.h"
#include "core/text_test_util.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "properties/test_subject.h"
#include "tools/stop.h"
#include "tools/tools_test_util.h"
#include "triage/causes.h"
#include "triage/triage.h"
#include "triage/triaged.h"

namespace qualm::tools {
namespace {

Case Saturating() {
  Case c = ReadCaseFile(Corpus("regressions/linear-pair-sum-saturates.case.json"));
  c.expected.reset();
  return c;
}

TEST(WrongExpected, IsAnOutputThatIsNotTheExactOne) {
  Case c = Saturating();
  EXPECT_FALSE(WrongExpected(c, "f")) << "no output";
  c.expected = exact::Evaluate(c);
  EXPECT_FALSE(WrongExpected(c, "f")) << "the exact output";
  c.expected->SetInt(0, c.expected->IntAt(0) ^ 1);
  const std::optional<Finding> wrong = WrongExpected(c, "f");
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->full_property(), "linear.matches_exact");
  EXPECT_EQ(wrong->subject, "expected");
  EXPECT_EQ(wrong->case_file, "f");
  ASSERT_TRUE(wrong->first_divergence);
  EXPECT_EQ(wrong->first_divergence->index, 0);
}

// Of matches_model it is that of the contract; of a file that names none, any convention's.
TEST(WrongExpected, OfAConventionIsComparedWithThatConvention) {
  Case c = Saturating();
  c.property = "linear.matches_model";
  const Tensor saturated = FindConvention("fbgemm@avx2")->run(c).y;
  ASSERT_NE(saturated, exact::Evaluate(c));
  Tensor nobodys = saturated;
  nobodys.SetInt(0, 3);
  struct Row {
    const char* contract;
    const Tensor& expected;
    const char* why;
  };
  for (const Row& row :
       {Row{"", saturated, ""},
        Row{"", nobodys, "the expected output in the file is that of no convention"},
        Row{"model:fbgemm@avx2", saturated, ""},
        Row{"model:fbgemm@vnni", saturated,
            "the expected output in the file is not the one of model:fbgemm@vnni"}}) {
    c.contract = row.contract;
    c.expected = row.expected;
    const std::optional<Finding> wrong = WrongExpected(c, "f");
    EXPECT_EQ(wrong ? wrong->explanation : "", row.why) << row.contract;
    if (wrong) {
      EXPECT_EQ(wrong->full_property(), "linear.matches_model");
    }
  }
  c.contract = "model:gemmlowp";
  const Verdict verdict = JudgeExpected(c);
  EXPECT_EQ(verdict.judgement, Judgement::kSkipped) << "defined by nobody who is named";
  EXPECT_NE(verdict.reason, "");
}

// A departure of a convention excuses who promises the convention, is judged by the exact meaning
// and gives the answer of the convention.
TEST(IsExcused, WhoKeepsTheConventionThatDeparts) {
  RegisterAllSubjects();
  const Contract promised{"fbgemm@avx2"};
  const Case c = Saturating();
  Finding finding(c, "matches_exact", "mine", Verdict::Failed("differs"));
  finding.kind = FindingKind::kPairSaturation;
  for (const bool keeps : {true, false}) {
    TestSubject subject(
        [&](const Case& asked, const RunContext&) {
          Tensor y = FindConvention("fbgemm@avx2")->run(asked).y;
          if (!keeps) y.SetInt(0, y.IntAt(0) ^ 1);
          return TestSubject::Good(std::move(y));
        },
        "mine");
    EXPECT_EQ(IsExcused(finding, subject, promised), keeps);
    EXPECT_TRUE(subject.contract().exact()) << "judged as before";
    // By its own convention it was judged already.
    subject.set_contract(promised);
    EXPECT_TRUE(IsExcused(finding, subject, promised));
    // Exact is not saturated, and another kind is not this departure.
    subject.set_contract({});
    EXPECT_FALSE(IsExcused(finding, subject, {}));
    Finding other = finding;
    other.kind = FindingKind::kTail;
    EXPECT_FALSE(IsExcused(other, subject, promised));
  }
}

// A crash or a hang is told while the run goes on, once of each subject.
TEST(Alarm, TellsOfTheFirstCrashAndTheFirstHangOfASubject) {
  Finding finding(Saturating(), "clamp", "alarming", Verdict::Failed("it says so"));
  finding.kind = FindingKind::kTail;
  EXPECT_EQ(Told([&] { Alarm(finding); }), "");
  for (const FindingKind kind : {FindingKind::kCrash, FindingKind::kHang}) {
    finding.kind = kind;
    EXPECT_EQ(Told([&] { Alarm(finding); }), "qualm: alarming fails linear.clamp: it says so\n");
    EXPECT_EQ(Told([&] { Alarm(finding); }), "");
    Finding other = finding;
    other.subject = "alarming too";
    EXPECT_EQ(Told([&] { Alarm(other); }), "qualm: alarming too fails linear.clamp: it says so\n");
  }
}

TEST(FindingOf, HasItsCauseItsExcuseAndItsAlarm) {
  RegisterAllSubjects();
  const Contract promised{"fbgemm@avx2"};
  const Case c = Saturating();
  const Property& property = *FindProperty("matches_exact");
  TestSubject subject(
      [](const Case& asked, const RunContext&) {
        return TestSubject::Good(triage::RightOutput(asked, FindConvention("fbgemm@avx2")));
      },
      "mine");
  const Verdict verdict = Judge(property, c, subject);
  ASSERT_TRUE(verdict.failed());
  const Finding finding = FindingOf(c, property, subject, verdict, "f", promised);
  EXPECT_EQ(finding.kind, FindingKind::kPairSaturation);
  EXPECT_TRUE(finding.expected_by_contract);
  // One output is too little to say why; the row says it.
  EXPECT_EQ(finding.explanation, verdict.reason);
  EXPECT_TRUE(Begins(finding.declared, "without VNNI")) << finding.declared;
  EXPECT_EQ(finding.case_file, "f");
  EXPECT_FALSE(FindingOf(c, property, subject, verdict, "f", {}).expected_by_contract);
  TestSubject crashing(
      [](const Case&, const RunContext&) {
        Outcome outcome;
        outcome.status = RunStatus::kCrashed;
        outcome.detail = "SIGSEGV";
        return outcome;
      },
      "crashing");
  const Verdict crash = Judge(property, c, crashing);
  EXPECT_TRUE(Begins(Told([&] { FindingOf(c, property, crashing, crash, "f", {}); }),
                     "qualm: crashing fails linear.matches_exact: "));
}

TEST(Effort, IsToldWhereSomebodyHadToWait) {
  using Effort = FindingsFolder::Effort;
  EXPECT_EQ((Effort{1.9, 5, 0}).Sentence(), "");
  EXPECT_EQ((Effort{2, 5, 0}).Sentence(), "Causes and smallest cases took 2 s.\n");
  EXPECT_EQ(
      (Effort{0.2, 3, 1}).Sentence(),
      "Causes and smallest cases took 1 s, and the search was cut short for 1 of 3 findings: a "
      "smaller case or the cause of another may exist (qualm minimize CASE --subject S goes "
      "on).\n");
}

class FindingsFolderTest : public KnowingTest {
 protected:
  std::string Of(const Finding& finding, const std::string& file) const {
    return Read("out/findings/" + finding.fingerprint() + "/" + file);
  }
};

TEST_F(FindingsFolderTest, HalfWrittenFilesOfAKilledRunGo) {
  std::filesystem::create_directories(folder() / "out/findings/.a.qualm-tmp");
  std::filesystem::create_directories(folder() / "out/findings/b");
  const FindingsFolder findings((folder() / "out").string());
  EXPECT_FALSE(std::filesystem::exists(folder() / "out/findings/.a.qualm-tmp"));
  EXPECT_TRUE(std::filesystem::exists(folder() / "out/findings/b"));
}

TEST_F(FindingsFolderTest, AFindingIsWrittenAndToldWhenItIsFound) {
  FindingsFolder findings((folder() / "out").string());
  const KnownFindings none;
  CheckOptions options;
  findings.Connect(options, none);
  Finding finding(Saturating(), "matches_exact", "mine",
                  Verdict::Failed("differs", Divergence{0, "1", "2", 1}));
  finding.kind = FindingKind::kTail;
  EXPECT_EQ(
      Told([&] { options.found(finding); }),
      "qualm: found: linear.matches_exact fails on mine [tail]: expected 1, got 2 at index 0\n");
  EXPECT_EQ(ParseCase(Of(finding, "case.json"), "f").property, "linear.matches_exact");
  EXPECT_TRUE(Begins(Of(finding, "explanation.txt"), "As it was found."));
  // Another claim is written too, but the fault is told once.
  Finding other = finding;
  other.property = "clamp";
  EXPECT_EQ(Told([&] { options.found(other); }), "");
  EXPECT_EQ(ParseCase(Of(other, "case.json"), "f").property, "linear.clamp");
  // The first case of a finding stays.
  Finding later = finding;
  later.test_case.note = "later";
  EXPECT_EQ(Told([&] { options.found(later); }), "");
  EXPECT_EQ(ParseCase(Of(finding, "case.json"), "f").note, finding.test_case.note);
  // A crash and a hang are told as alarms.
  for (const FindingKind kind : {FindingKind::kCrash, FindingKind::kHang}) {
    Finding alarm = finding;
    alarm.subject = "falling";
    alarm.kind = kind;
    EXPECT_EQ(Told([&] { options.found(alarm); }),
              "qualm: falling fails linear.matches_exact: differs\n");
  }
  // The check loop learns the kind of a failure, and when to stop.
  TestSubject exact;
  EXPECT_EQ(options.attribute(Saturating(), Verdict::Failed("it died"), exact),
            triage::Attribute(Saturating(), Verdict::Failed("it died"), exact).kind);
  EXPECT_FALSE(options.stop());
  // Without a divergence its explanation is told.
  Finding unexplained(Saturating(), "clamp", "yours", Verdict::Failed("as I say"));
  EXPECT_EQ(Told([&] { options.found(unexplained); }),
            "qualm: found: linear.clamp fails on yours [unknown]: as I say\n");
}

// What an earlier run found out about the same finding stays; a first sight is replaced.
TEST_F(FindingsFolderTest, WhatAnEarlierRunFoundOutStays) {
  const Finding finding(Saturating(), "clamp", "mine", Verdict::Failed("as I say"));
  for (const bool looked_into : {true, false}) {
    const std::string earlier = looked_into
                                    ? "pair saturation, for these reasons\n"
                                    : "As it was found. Nothing has looked for its cause yet.\nold";
    std::filesystem::create_directories(folder() / "out/findings" / finding.fingerprint());
    Write("out/findings/" + finding.fingerprint() + "/explanation.txt", earlier);
    FindingsFolder findings((folder() / "out").string());
    const KnownFindings none;
    CheckOptions options;
    findings.Connect(options, none);
    Told([&] { options.found(finding); });
    EXPECT_EQ(Of(finding, "explanation.txt") == earlier, looked_into);
    EXPECT_EQ(
        std::filesystem::exists(folder() / "out/findings" / finding.fingerprint() / "case.json"),
        !looked_into);
    std::filesystem::remove_all(folder() / "out");
  }
}

// Triage may find another kind than the one at first sight, so what is known under any kind is not
// told at once.
TEST_F(FindingsFolderTest, WhatMayBeKnownIsNotTold) {
  FindingsFolder findings((folder() / "out").string());
  Finding finding(Saturating(), "matches_exact", "mine", Verdict::Failed("differs"));
  finding.kind = FindingKind::kTail;
  for (const FindingKind kind :
       {FindingKind::kTail, FindingKind::kUnknown, static_cast<FindingKind>(0)}) {
    Finding other = finding;
    other.kind = kind;
    const KnownFindings known = Knowing({other});
    CheckOptions options;
    findings.Connect(options, known);
    EXPECT_EQ(Told([&] { options.found(finding); }), "") << Name(kind);
    Finding unknown = finding;
    unknown.property = "clamp";
    unknown.op = std::string(Name(kind));  // of its own for each turn: a fault is told once
    EXPECT_NE(Told([&] { options.found(unknown); }), "") << Name(kind);
  }
}

class TriageTest : public FindingsFolderTest {
 protected:
  static constexpr const char* kTail = "linear.matches_exact-faulty-k-tail-tail";

  TriageTest() { RegisterAllSubjects(); }

  // As a check finds it: its kind is not known yet.
  static Finding Found() {
    Case c = ReadCaseFile(Corpus("regressions/linear-last-product-dropped.case.json"));
    c = ProblemOf(c);
    const auto subject = SubjectRegistry::Get().Make("faulty:k-tail");
    const Verdict verdict = Judge(*FindProperty("matches_exact"), c, *subject);
    EXPECT_TRUE(verdict.failed());
    return {c, "matches_exact", "faulty:k-tail", verdict};
  }
  std::filesystem::path Folder(const std::string& fingerprint) const {
    return folder() / "out/findings" / fingerprint;
  }
  // What a run with `known` findings keeps of the finding; `between` happens after it was written.
  std::vector<Finding> Triaged(
      FindingsFolder& findings, const KnownFindings& known, bool stop,
      const std::function<void()>& between = [] {}) {
    CheckOptions options;
    findings.Connect(options, known);
    const Finding found = Found();
    Told([&] { options.found(found); });
    EXPECT_TRUE(std::filesystem::exists(Folder(found.fingerprint())));
    between();
    Deferred deferred;
    std::vector<Finding> kept =
        findings.Triage({found, found}, "", known, deferred, [&] { return stop; });
    deferred.Throw();
    return kept;
  }
};

TEST_F(TriageTest, AFindingHasItsCauseItsSmallestCaseAndItsFiles) {
  FindingsFolder findings((folder() / "out").string());
  const std::vector<Finding> kept = Triaged(findings, {}, false);
  ASSERT_EQ(kept.size(), 1u) << "one of each";
  EXPECT_EQ(kept[0].fingerprint(), kTail);
  EXPECT_EQ(kept[0].case_file, (Folder(kTail) / "minimized.case.json").string());
  EXPECT_EQ(ParseCase(Of(kept[0], "case.json"), "f").property, "linear.matches_exact");
  const Case small = ParseCase(Of(kept[0], "minimized.case.json"), "f");
  EXPECT_LE(small.K, Found().test_case.K);
  EXPECT_TRUE(Has(Of(kept[0], "explanation.txt"), std::string(kTail) + "/case.json"));
  EXPECT_FALSE(std::filesystem::exists(Folder(Found().fingerprint()))) << "as it was found";

  ASSERT_EQ(findings.diagnoses().size(), 1u);
  const Diagnosed& diagnosed = findings.diagnoses().at(kTail);
  EXPECT_FALSE(diagnosed.causes.empty());
  EXPECT_FALSE(diagnosed.sentence.empty());
  EXPECT_EQ(ProblemOf(diagnosed.found), ProblemOf(Found().test_case));
  ASSERT_TRUE(diagnosed.found.observed);
  EXPECT_EQ(diagnosed.found.observed->by, "faulty:k-tail");
  ASSERT_TRUE(diagnosed.small);
  EXPECT_EQ(ProblemOf(*diagnosed.small), ProblemOf(small));
  EXPECT_TRUE(diagnosed.divergence);
  EXPECT_FALSE(diagnosed.cut_short);
  EXPECT_EQ(findings.effort().findings, 1);
  EXPECT_EQ(findings.effort().cut_short, 0);
}

TEST_F(TriageTest, AnInterruptedSearchLeavesTheCaseAsItWasFound) {
  FindingsFolder findings((folder() / "out").string());
  const std::vector<Finding> kept = Triaged(findings, {}, true);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].case_file, (Folder(kept[0].fingerprint()) / "case.json").string());
  EXPECT_FALSE(std::filesystem::exists(Folder(kept[0].fingerprint()) / "minimized.case.json"));
  EXPECT_EQ(findings.effort().cut_short, 1);
  const Diagnosed& diagnosed = findings.diagnoses().at(kept[0].fingerprint());
  EXPECT_TRUE(diagnosed.cut_short);
  EXPECT_FALSE(diagnosed.small);
}

// Told to end, a run asks no subject any more, and keeps what it has found and has not looked into.
TEST_F(TriageTest, AnInterruptedRunKeepsWhatItHasNotLookedInto) {
  FindingsFolder findings((folder() / "out").string());
  EXPECT_EXIT(
      {
        CheckOptions options;
        const KnownFindings known;
        findings.Connect(options, known);
        options.found(Found());
        StopOnSignals();
        raise(SIGINT);
        Deferred deferred;
        const std::vector<Finding> kept =
            findings.Triage({Found()}, "", known, deferred, [] { return true; });
        const Diagnosed& diagnosed = findings.diagnoses().at(Found().fingerprint());
        fmt::print(stderr, "{} {} {} {}", kept.size(), kept.at(0).case_file, diagnosed.sentence,
                   diagnosed.cut_short);
        std::exit(0);
      },
      testing::ExitedWithCode(0),
      fmt::format("1 {} the run was ended before its cause was looked for true$",
                  (Folder(Found().fingerprint()) / "case.json").string()));
  EXPECT_TRUE(std::filesystem::exists(Folder(Found().fingerprint()) / "case.json"));
}

// The folder is made where no loop has made it: audit has its findings from elsewhere. And a run
// without findings removes nothing.
TEST_F(TriageTest, TakesFindingsOfAnyOrigin) {
  Deferred deferred;
  {
    FindingsFolder findings((folder() / "out").string());
    EXPECT_EQ(findings.Triage({Found()}, "", {}, deferred, [] { return false; }).size(), 1u);
    deferred.Throw();
    EXPECT_TRUE(std::filesystem::exists(Folder(kTail) / "minimized.case.json"));
  }
  std::filesystem::remove_all(folder() / "out");
  FindingsFolder findings((folder() / "out").string());
  std::filesystem::create_directories(folder() / "out");  // by somebody else
  EXPECT_TRUE(findings.Triage({}, "", {}, deferred, [] { return false; }).empty());
  EXPECT_TRUE(std::filesystem::exists(folder() / "out"));
  std::filesystem::create_directories(folder() / "out/findings");
  EXPECT_TRUE(findings.Triage({}, "", {}, deferred, [] { return false; }).empty());
  EXPECT_TRUE(std::filesystem::exists(folder() / "out/findings"));
}

// A convention that the subject is judged by is part of the diagnosis.
TEST_F(TriageTest, TellsTheConventionThatWasPromised) {
  FindingsFolder findings((folder() / "out").string());
  const std::string contract = "model:fbgemm@avx2";
  const auto subject = std::move(MakeSubjects({"faulty:k-tail"}, contract).front());
  std::optional<Finding> found;
  for (uint64_t seed = 0; !found; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    const Verdict verdict = Judge(*FindProperty("matches_model"), c, *subject);
    if (verdict.failed()) found.emplace(c, "matches_model", "faulty:k-tail", verdict);
  }
  Deferred deferred;
  const std::vector<Finding> kept =
      findings.Triage({*found}, contract, {}, deferred, [] { return false; });
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(findings.diagnoses().at(kept[0].fingerprint()).model, FindConvention("fbgemm@avx2"));
}

// A finding that cannot be written is reported, and names no file.
TEST_F(TriageTest, AFindingWithoutAFolderIsReported) {
  const std::string file = Write("file", "text");
  FindingsFolder findings((folder() / "file/out").string());
  Deferred deferred;
  const std::vector<Finding> kept =
      findings.Triage({Found()}, "", {}, deferred, [] { return false; });
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].case_file, "");
  EXPECT_TRUE(deferred.failed());
  EXPECT_EQ(findings.diagnoses().size(), 1u);
}

// A finding whose cause is a guess is looked into again when another finding of the same subject
// and operation has shown its cause, and may then be the same fault.
// A subject that loses the tails of its sums, but for the cases of the linear operation in which a
// test has it answer otherwise.
class OneSubjectTest : public TriageTest {
 protected:
  // What it answers; nullopt: as it does otherwise.
  using Otherwise = std::function<std::optional<Tensor>(const Case&)>;

  static void SetUpTestSuite() {
    SubjectKind kind;
    kind.kind = "scripted";
    kind.names = [] { return std::vector<std::string>{}; };
    kind.make = [](const std::string&) -> std::unique_ptr<Subject> {
      ++made_;
      const std::shared_ptr<Subject> tail = SubjectRegistry::Get().Make("faulty:k-tail");
      return std::make_unique<TestSubject>(
          [tail](const Case& c, const RunContext& context) {
            const std::optional<Tensor> y =
                c.op == Op::kLinear && c.out_dtype != DType::kF32 ? otherwise_(c) : std::nullopt;
            return y ? TestSubject::Good(*y) : tail->Run(c, context);
          },
          "no name that can be made anew");
    };
    SubjectRegistry::Get().Add(kind);
  }
  OneSubjectTest() {
    otherwise_ = [](const Case& c) { return c.M == 3 ? std::optional(Odd(c)) : std::nullopt; };
  }

  // An output that no cause gives.
  static Tensor Odd(const Case& c) {
    Tensor y(c.out_dtype, c.output_shape());
    for (int64_t i = 0; i < y.size(); ++i) y.SetInt(i, 17 + static_cast<int32_t>(i * 5 % 90));
    return y;
  }
  // The answer of which the tails are lost in all rows before this one, and the others are odd.
  static Tensor OddFrom(const Case& c, int64_t row) {
    Tensor y = SubjectRegistry::Get().Make("faulty:k-tail")->Run(c, {}).y;
    for (int64_t i = row * c.N; i < y.size(); ++i) y.SetInt(i, Odd(c).IntAt(i));
    return y;
  }
  // Few cases have this zero point, so that the lost tail explains most of what is asked besides.
  static std::optional<Tensor> OddAt77(const Case& c) {
    if (c.M < 3 || c.x_q.zero_point_at(0) != 77) return std::nullopt;
    return OddFrom(c, 2);
  }
  // A case with so many equal rows; the subject loses the last products of each.
  static Case Rows(int64_t rows) {
    const std::vector<int64_t> first(static_cast<size_t>(rows), 0);
    return slice::Rows(Found().test_case, first);
  }
  static Finding FoundOn(const Case& c) {
    const auto subject = SubjectRegistry::Get().Make("scripted:one");
    const Verdict verdict = Judge(*FindProperty("matches_exact"), c, *subject);
    EXPECT_TRUE(verdict.failed());
    return {c, "matches_exact", "scripted:one", verdict};
  }
  using Kinds = std::vector<FindingKind>;
  static Kinds KindsOf(const std::vector<Finding>& kept) {
    Kinds kinds;
    for (const Finding& finding : kept) kinds.push_back(finding.kind);
    return kinds;
  }
  // What is kept of these, and in made_ how many instances were looked at.
  std::vector<Finding> Kept(const std::vector<Finding>& raw, const std::function<bool()>& stop) {
    FindingsFolder findings((folder() / "out").string());
    Deferred deferred;
    made_ = 0;
    std::vector<Finding> kept = findings.Triage(raw, "", {}, deferred, stop);
    deferred.Throw();
    return kept;
  }

  static inline int64_t made_ = 0;
  static inline Otherwise otherwise_;
};

// Each look at a finding asks a new instance of the subject many cases. It pays again only where
// the cause was a guess and another finding has shown one since.
TEST_F(OneSubjectTest, AFindingIsLookedIntoAgainOnlyWhereAnotherMayExplainIt) {
  const auto looks = [&](const std::vector<Finding>& raw) {
    Kept(raw, [] { return true; });
    return made_;
  };
  otherwise_ = OddAt77;  // which no cause and no experiment explains
  Case zeros = ZeroLayer(3, 4, 5);
  zeros.x_q.zero_point = {77};
  const Finding sure = FoundOn(Rows(1)), guess = FoundOn(zeros);
  EXPECT_EQ(looks({sure}), 1);
  EXPECT_EQ(looks({sure, sure}), 2);
  EXPECT_EQ(looks({guess}), 1) << "nothing else is known";
  EXPECT_EQ(looks({guess, sure}), 3);
}

// Two findings of unknown cause may be two faults: the smallest case of the second one shows it.
TEST_F(OneSubjectTest, AGuessIsMadeSmallerBeforeItIsTakenForOneThatIsKept) {
  otherwise_ = OddAt77;
  Case zeros = ZeroLayer(3, 4, 5), rows = Rows(4);
  zeros.x_q.zero_point = rows.x_q.zero_point = {77};
  const Finding odd = FoundOn(zeros), hidden = FoundOn(rows);
  const auto go_on = [] { return false; };
  const auto stop = [] { return true; };
  EXPECT_EQ(KindsOf(Kept({odd, hidden}, stop)), Kinds{FindingKind::kUnknown}) << "at first sight";
  EXPECT_EQ(KindsOf(Kept({odd, hidden}, go_on)),
            (Kinds{FindingKind::kUnknown, FindingKind::kTail}));
}

// Where several causes give an answer, the one that makes it a known finding is taken.
TEST_F(TriageTest, ACauseThatIsKnownIsPreferred) {
  const auto subject = SubjectRegistry::Get().Make("faulty:int32-wraps");
  std::optional<Finding> found, other;
  // The first such case that is drawn, in November 2026: seed 3403.
  for (uint64_t seed = 3403; !other; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    const Verdict verdict = Judge(*FindProperty("matches_exact"), c, *subject);
    if (!verdict.failed()) continue;
    found.emplace(c, "matches_exact", "faulty:int32-wraps", verdict);
    const triage::Triaged alone(*found, *subject);
    for (const triage::Hypothesis& causes : alone.attribution().open) {
      if (causes.front()->kind == alone.finding().kind) continue;
      other = alone.finding();
      other->kind = causes.front()->kind;
    }
  }
  FindingsFolder findings((folder() / "out").string());
  Deferred deferred;
  const std::vector<Finding> kept =
      findings.Triage({*found}, "", Knowing({*other}), deferred, [] { return false; });
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].fingerprint(), other->fingerprint());
  EXPECT_TRUE(findings.diagnoses().empty());
}

// Of two findings with one fingerprint one is kept. It is expected only if both are; it has its
// files, but is not diagnosed again.
TEST_F(TriageTest, AFindingIsExpectedIfAllOfItsKindAre) {
  for (const bool first : {true, false}) {
    for (const bool second : {true, false}) {
      FindingsFolder findings((folder() / "out").string());
      std::vector<Finding> raw{Found(), Found()};
      raw[0].expected_by_contract = first;
      raw[1].expected_by_contract = second;
      Deferred deferred;
      const std::vector<Finding> kept =
          findings.Triage(raw, "", {}, deferred, [] { return false; });
      ASSERT_EQ(kept.size(), 1u);
      EXPECT_EQ(kept[0].fingerprint(), kTail);
      EXPECT_EQ(kept[0].expected_by_contract, first && second);
      EXPECT_TRUE(std::filesystem::exists(Folder(kTail) / "minimized.case.json"));
      EXPECT_EQ(findings.diagnoses().empty(), first) << "diagnosed where the first one is new";
      EXPECT_GT(findings.effort().seconds, 0);
    }
  }
}

// Only an answer is kept as what the subject has observed: none of a subject that crashes, or that
// is not asked any more because it has hung too often.
TEST_F(TriageTest, NoAnswerIsNothingObserved) {
  int64_t runs = 0;
  SubjectKind kind;
  kind.kind = "silent";
  kind.names = [] { return std::vector<std::string>{}; };
  kind.make = [&](const std::string& name) {
    auto subject = std::make_unique<TestSubject>(
        [&](const Case& c, const RunContext&) {
          ++runs;
          Outcome outcome = TestSubject::Good(exact::Evaluate(c));
          outcome.status = RunStatus::kCrashed;
          outcome.detail = "SIGSEGV";
          return outcome;
        },
        name);
    if (name == "silent:given-up") subject->cannot_run = [](const Case&) { return "it hung"; };
    return subject;
  };
  SubjectRegistry::Get().Add(kind);
  for (const std::string name : {"silent:crashing", "silent:given-up"}) {
    runs = 0;
    FindingsFolder findings((folder() / "out").string());
    Finding found(Saturating(), "matches_exact", name, Verdict::Failed("crashed: SIGSEGV"));
    found.kind = FindingKind::kCrash;
    Deferred deferred;
    const std::vector<Finding> kept =
        findings.Triage({found}, "", {}, deferred, [] { return false; });
    ASSERT_EQ(kept.size(), 1u) << name;
    EXPECT_EQ(kept[0].kind, FindingKind::kCrash);
    EXPECT_FALSE(findings.diagnoses().at(kept[0].fingerprint()).found.observed) << name;
    EXPECT_EQ(runs == 0, name == "silent:given-up");
  }
}

// What was written at first sight stays where the same finding cannot be written under its cause.
TEST_F(TriageTest, AFirstSightStaysIfNothingBetterCanBeWritten) {
  FindingsFolder findings((folder() / "out").string());
  CheckOptions options;
  const KnownFindings none;
  findings.Connect(options, none);
  const Finding found = Found();
  Told([&] { options.found(found); });
  Write(std::string("out/findings/") + kTail, "a file where the folder would be");
  Deferred deferred;
  findings.Triage({found}, "", none, deferred, [] { return false; });
  EXPECT_TRUE(deferred.failed());
  EXPECT_TRUE(std::filesystem::exists(Folder(found.fingerprint()) / "case.json"));
}

// The folder of findings goes with what was known, but not with what others have put there.
TEST_F(TriageTest, WhatIsKnownLeavesNoFile) {
  Finding tail = Found();
  tail.kind = FindingKind::kTail;
  ASSERT_EQ(tail.fingerprint(), kTail);
  const KnownFindings known = Knowing({tail});
  const std::filesystem::path out = folder() / "out";
  {
    FindingsFolder findings(out.string());
    EXPECT_EQ(Triaged(findings, known, false).size(), 1u);
    EXPECT_TRUE(findings.diagnoses().empty());
    EXPECT_FALSE(std::filesystem::exists(out));
  }
  std::filesystem::create_directories(out);
  {
    FindingsFolder findings(out.string());
    Triaged(findings, known, false);
    EXPECT_FALSE(std::filesystem::exists(out / "findings"));
    EXPECT_TRUE(std::filesystem::exists(out)) << "it was there before the run";
  }
  FindingsFolder findings(out.string());
  const std::string first = Found().fingerprint();
  Triaged(findings, known, false, [&] {
    Write("out/findings/" + first + "/explanation.txt", "another run has looked into it");
  });
  EXPECT_TRUE(std::filesystem::exists(Folder(first) / "explanation.txt"));
}

}  // namespace
}  // namespace qualm::tools
