// SPDX-License-Identifier: Apache-2.0
// Findings on their way to the disk: what is a finding, what is excused, and what is written and
// told when it is found.
#include "tools/findings.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "properties/test_subject.h"
#include "tools/run_qualm_test_util.h"

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
  c.property = "linear.matches_model";
  EXPECT_FALSE(WrongExpected(c, "f")) << "the output of a convention";
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

class FindingsFolderTest : public QualmTest {
 protected:
  std::string Of(const Finding& finding, const std::string& file) const {
    return Read("out/findings/" + finding.fingerprint() + "/" + file);
  }
  // What `act` says on stderr.
  template <class Act>
  static std::string Told(const Act& act) {
    testing::internal::CaptureStderr();
    act();
    return testing::internal::GetCapturedStderr();
  }
};

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
  EXPECT_TRUE(Of(finding, "explanation.txt").starts_with("As it was found."));
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
  // Without a divergence its explanation is told.
  Finding unexplained(Saturating(), "clamp", "yours", Verdict::Failed("as I say"));
  EXPECT_EQ(Told([&] { options.found(unexplained); }),
            "qualm: found: linear.clamp fails on yours [unknown]: as I say\n");
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
    KnownOptions files;
    files.today = "2027-01-01";
    files.suppressions =
        Write("list.json",
              R"({"schema": "qualm.suppressions/1", "suppressions": [{"fingerprint": ")" +
                  other.fingerprint() + R"(", "reason": "issue 7", "expires": "2027-06-30"}]})");
    const KnownFindings known(files);
    CheckOptions options;
    findings.Connect(options, known);
    EXPECT_EQ(Told([&] { options.found(finding); }), "") << Name(kind);
    Finding unknown = finding;
    unknown.property = "clamp";
    unknown.op = std::string(Name(kind));  // of its own for each turn: a fault is told once
    EXPECT_NE(Told([&] { options.found(unknown); }), "") << Name(kind);
  }
}

}  // namespace
}  // namespace qualm::tools
