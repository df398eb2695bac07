// SPDX-License-Identifier: Apache-2.0
#include "fuzz/check_all.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "core/io/text_file.h"
#include "core/own_subject.h"
#include "core/status.h"
#include "properties/test_subject.h"

namespace qualm::fuzz {
namespace {

class CheckAllTest : public testing::Test {
 protected:
  void SetUp() override {
    RegisterAllSubjects();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("qualm-check-all-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  int FileCount() const {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  CheckerOptions Options(const std::string& subject) const {
    return {.subject = subject, .contract = "", .properties = "*", .artifacts = folder_};
  }

  std::filesystem::path folder_;
};

// 255*127 + 255*127 = 64770 leaves int16.
Case SaturatingPair() {
  Case c;
  c.op = Op::kLinear;
  c.M = c.N = 1;
  c.K = 2;
  c.x = Tensor(DType::kU8, {1, 2});
  c.w = Tensor(DType::kS8, {1, 2});
  for (int k = 0; k < 2; ++k) c.x.SetInt(k, 255), c.w.SetInt(k, 127);
  // 32 bits of one answer tell a cause, 8 bits would be told by others too.
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  return c;
}

TEST_F(CheckAllTest, AFailureIsWrittenUnderItsFingerprint) {
  Checker checker(Options("faulty:pair-saturation"));
  const Case c = SaturatingPair();
  const auto finding = checker.Check(c);
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->kind, FindingKind::kPairSaturation);
  EXPECT_EQ(finding->case_file, (folder_ / (finding->fingerprint() + ".case.json")).string());
  EXPECT_EQ(FileCount(), 1) << "the raw finding was left behind";
  const Case written = ReadCaseFile(finding->case_file);
  EXPECT_TRUE(ProblemOf(written) == c);
  EXPECT_EQ(written.property, finding->property);
  EXPECT_EQ(written.contract, "exact");
  EXPECT_FALSE(written.note.empty());
}

TEST_F(CheckAllTest, ACorrectKernelHasNoFinding) {
  Checker checker(Options("native@all"));
  EXPECT_FALSE(checker.Check(SaturatingPair()).has_value());
  EXPECT_EQ(FileCount(), 0);
  EXPECT_NE(checker.SubjectNames().find("native@"), std::string::npos);
}

// On the machines of ClusterFuzz the folder of artifacts cannot be written. No user may write into
// /proc, root included.
TEST_F(CheckAllTest, AFolderThatTakesNoFileHidesNoFinding) {
  CheckerOptions options = Options("faulty:pair-saturation");
  options.artifacts = "/proc/self";
  const auto finding = Checker(options).Check(SaturatingPair());
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->kind, FindingKind::kPairSaturation);
  EXPECT_EQ(finding->case_file, "");
}

TEST_F(CheckAllTest, OnlyTheNamedPropertiesJudge) {
  CheckerOptions options = Options("faulty:pair-saturation");
  options.properties = "dequantize.*";
  EXPECT_FALSE(Checker(options).Check(SaturatingPair()).has_value());
}

TEST_F(CheckAllTest, OtherFindingsThanTheWantedOneArePassedOver) {
  CheckerOptions options = Options("faulty:pair-saturation");
  options.wanted = "int32-overflow";
  EXPECT_FALSE(Checker(options).Check(SaturatingPair()).has_value());
  EXPECT_EQ(FileCount(), 0);
  options.wanted = "saturating int16";
  EXPECT_TRUE(Checker(options).Check(SaturatingPair()).has_value());
}

TEST_F(CheckAllTest, AnOwnSubjectIsAskedWhatItTakes) {
  const std::string name = AddOwnSubject([] {
    auto subject = std::make_unique<TestSubject>(
        [](const Case& c, const RunContext&) {
          Tensor y = exact::Evaluate(c);
          y.SetInt(0, y.IntAt(0) - 1);
          return TestSubject::Good(std::move(y));
        },
        "off-by-one");
    subject->cannot_run = [](const Case& c) { return c.relu ? "fused relu" : ""; };
    return subject;
  });
  Case c = SaturatingPair();
  c.relu = true;
  const auto finding = Checker(Options(name)).Check(c);
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->subject, "off-by-one");
  EXPECT_FALSE(finding->test_case.relu);
  EXPECT_EQ(finding->test_case.x, c.x);
}

// A property asks the subject further questions, which a cache of the subject keeps. So the failure
// is handed over with them, not with the inputs alone.
TEST_F(CheckAllTest, AFailureIsHandedOverWithTheQuestionsOfProperties) {
  CheckerOptions options = Options("faulty:pair-saturation");
  options.state = folder_;
  std::filesystem::create_directories(folder_ / kInbox);
  for (const char* name : {kSeen, kHeld}) std::filesystem::create_directories(folder_ / name);
  options.properties = "no_stray_access,zero_point_shift,matches_exact";
  options.every = true;
  Checker(options).Collect(SaturatingPair());
  std::string before;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / kInbox))
    before =
        std::max(before, ReadTextFile((entry.path() / "before.cases").string(), "list", 1 << 20),
                 [](const auto& a, const auto& b) { return a.size() < b.size(); });
  EXPECT_NE(before.find(CaseToJsonLine(SaturatingPair())), std::string::npos);
  EXPECT_TRUE(std::ranges::any_of(ParseRuns(before, "lines"), [](const Case& run) {
    return run.x_q.zero_point != SaturatingPair().x_q.zero_point;
  })) << before;
}

TEST_F(CheckAllTest, BadSettingsAreNamed) {
  EXPECT_THROW(Checker(Options("natvie")), InputError);
  CheckerOptions properties = Options("native");
  properties.properties = "no_such_property";
  EXPECT_THROW(Checker{properties}, InputError);
  CheckerOptions artifacts = Options("native");
  artifacts.artifacts = folder_ / "missing";
  EXPECT_THROW(Checker{artifacts}, InputError);
  CheckerOptions contract = Options("native");
  contract.contract = "about right";
  EXPECT_THROW(Checker{contract}, InputError);
}

}  // namespace
}  // namespace qualm::fuzz
