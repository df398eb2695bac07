// SPDX-License-Identifier: Apache-2.0
#include "core/finding.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/content_name.h"
#include "core/subject.h"

namespace qualm {
namespace {

Verdict Wrong(FindingKind kind, std::string reason = "the reason") {
  Verdict verdict = Verdict::Failed(std::move(reason));
  verdict.kind = kind;
  return verdict;
}

Finding Of(const std::string& subject, FindingKind kind = FindingKind::kTie) {
  return {"add", "clamp", subject, Wrong(kind), ""};
}

TEST(Finding, HoldsWhatTheVerdictSays) {
  Verdict verdict = Wrong(FindingKind::kTail);
  verdict.divergence = Divergence{};
  verdict.divergence->index = 7;
  Case c;
  c.op = Op::kLinear;
  c.N = 3;
  const Finding finding(c, "matches_exact", "native", verdict, "a.case.json");
  EXPECT_EQ(finding.op, "linear");
  EXPECT_EQ(finding.full_property(), "linear.matches_exact");
  EXPECT_EQ(finding.subject, "native");
  EXPECT_EQ(finding.kind, FindingKind::kTail);
  EXPECT_EQ(finding.case_file, "a.case.json");
  ASSERT_TRUE(finding.first_divergence);
  EXPECT_EQ(finding.first_divergence->index, 7);
  EXPECT_EQ(finding.explanation, "the reason");
  EXPECT_EQ(finding.test_case, c);
  verdict.kind.reset();
  EXPECT_EQ(Finding(c, "clamp", "native", verdict).kind, FindingKind::kUnknown);
}

TEST(Fingerprint, TellsOperationClaimSubjectAndKindApart) {
  const std::string own = Of("native").fingerprint();
  EXPECT_EQ(own, "add.clamp-native-tie");
  EXPECT_NE(Finding("sub", "clamp", "native", Wrong(FindingKind::kTie)).fingerprint(), own);
  EXPECT_NE(Finding("add", "negation", "native", Wrong(FindingKind::kTie)).fingerprint(), own);
  EXPECT_NE(Of("nativf").fingerprint(), own);
  EXPECT_NE(Of("native", FindingKind::kTail).fingerprint(), own);
}

TEST(Fingerprint, IsANameOfAFolder) {
  // The first and last character of each range stay, and what lies beside them does not.
  EXPECT_EQ(Of("azAZ09-._@+").fingerprint(), "add.clamp-azAZ09-._@+-tie");
  EXPECT_EQ(Of("`{@[/;").fingerprint(), "add.clamp-__@___-tie");
  EXPECT_EQ(Of("pipe:python3 ./a/../b.py").fingerprint(), "add.clamp-pipe-python3_._a_.._b.py-tie");
  EXPECT_EQ(Of("\xC3\xA9").fingerprint(), "add.clamp-__-tie");
}

TEST(Fingerprint, FormerOneKeepsColonsAndNames) {
  EXPECT_EQ(Of("faulty:tail").fingerprint(), "add.clamp-faulty-tail-tie");
  EXPECT_EQ(Of("faulty:tail").former_fingerprint(), "add.clamp-faulty:tail-tie");
  EXPECT_EQ(Of("pipe:a/b").former_fingerprint(), "add.clamp-pipe:a_b-tie");
}

TEST(Fingerprint, OfALongSubjectKeepsWhatIsCutOffAsAHash) {
  const std::string longest(120, 'a');
  EXPECT_EQ(Of(longest).fingerprint(), "add.clamp-" + longest + "-tie");
  const std::string one = longest + "b", other = longest + "c";
  const std::string shortened = std::string(103, 'a') + "-" + ShortContentName(one);
  EXPECT_EQ(shortened.size(), 120u);
  EXPECT_EQ(Of(one).fingerprint(), "add.clamp-" + shortened + "-tie");
  EXPECT_EQ(Of(one).former_fingerprint(), "add.clamp-" + shortened + "-tie");
  EXPECT_NE(Of(one).fingerprint(), Of(other).fingerprint());
}

TEST(LastingName, StandsInFingerprintsAndIsOfOneSubject) {
  SetLastingName("plugin:/here/mine.so", "plugin-mine");
  SetLastingName("plugin:/there/mine.so", "plugin-mine");
  SetLastingName("plugin:/third/mine.so", "plugin-mine");
  SetLastingName("plugin:/here/mine.so", "plugin-renamed");  // the first name lasts
  EXPECT_EQ(Of("plugin:/here/mine.so").fingerprint(), "add.clamp-plugin-mine-tie");
  EXPECT_EQ(Of("plugin:/there/mine.so").fingerprint(), "add.clamp-plugin-mine-2-tie");
  EXPECT_EQ(Of("plugin:/third/mine.so").fingerprint(), "add.clamp-plugin-mine-3-tie");
  EXPECT_EQ(Of("plugin:/here/mine.so").former_fingerprint(), "add.clamp-plugin:_here_mine.so-tie");
  EXPECT_EQ(Of("plugin:/fourth/mine.so").fingerprint(), "add.clamp-plugin-_fourth_mine.so-tie");
}

class Named : public BasicSubject {
 public:
  explicit Named(std::string name) : name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  std::string Version() const override { return "1.2.3"; }
  std::string CannotRun(const Case&) const override { return ""; }
  Outcome Run(const Case&, const RunContext&) override { return {}; }

 private:
  std::string name_;
};

// Each row differs in one thing from what it would have to say.
TEST(IsDeclared, OnlyWhereEveryPartOfTheRowFits) {
  struct Row {
    const char* subject;
    const char* op = "add";
    const char* claim = "clamp";
    const char* kind = "tie";
    const char* library = "";
    const char* shape = "";
    bool declared = true;
  };
  int number = 0;
  for (const Row& row :
       std::vector<Row>{{"SELF"},
                        {"SELF", "sub", "clamp", "tie", "", "", false},
                        {"SELF", "add", "negation", "tie", "", "", false},
                        {"SELF", "add", "*"},
                        {"SELF", "add", "clamp", "tail", "", "", false},
                        {"SELF", "add", "clamp", "tie", "", "the rea"},
                        {"SELF", "add", "clamp", "tie", "", "the ream", false},
                        {"SELF", "add", "clamp", "tie", "other: 9", ""},  // it is named itself
                        {"model:some"},
                        {"model:some", "add", "clamp", "tie", "LIBRARY: 1.2", ""},
                        {"model:some", "add", "clamp", "tie", "LIBRARY: 1.3", "", false},
                        {"model:some", "add", "clamp", "tie", "other: 1.2", "", false},
                        {"model:other", "add", "clamp", "tie", "", "", false},
                        {"somebody else", "add", "clamp", "tie", "", "", false}}) {
    // Rows cannot be taken back: each test has a subject and a convention of its own.
    const std::string own = std::to_string(++number);
    const Named subject("declared" + own + ":x");
    const auto filled = [&](std::string text) {
      if (text == "SELF") return std::string(subject.name());
      if (text.starts_with("model:")) return text + own;
      if (text.starts_with("LIBRARY")) return "declared" + own + text.substr(7);
      return text;
    };
    const Contract contract = ParseContract("model:some" + own);
    const Finding finding = Of(std::string(subject.name()));
    ASSERT_FALSE(IsDeclared(finding, subject, contract));
    SubjectRegistry::Get().AddExpectedDivergence({filled(row.subject), row.op, row.claim, row.kind,
                                                  "a test", filled(row.library), row.shape});
    EXPECT_EQ(IsDeclared(finding, subject, contract), row.declared)
        << filled(row.subject) << " " << row.op << " " << row.claim << " " << row.kind << " "
        << filled(row.library) << " " << row.shape;
  }
}

}  // namespace
}  // namespace qualm
