// SPDX-License-Identifier: Apache-2.0
// Which finding speaks for a fault that fails several claims.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/layer_test_util.h"
#include "oracles/exact/exact.h"
#include "tools/faults.h"
#include "triage/causes.h"

namespace qualm::tools {
namespace {

Finding Failing(const char* claim) {
  Finding finding(ZeroLayer(1, 1, 1), claim, "native", Verdict{});
  finding.kind = FindingKind::kNondeterminism;
  return finding;
}

std::string SpokenForBy(const std::vector<Finding>& findings, const Diagnoses& diagnoses) {
  const std::vector<FaultOfRun> faults = FaultsOf(findings, diagnoses, {}, {});
  EXPECT_EQ(faults.size(), 1U);
  return faults.empty() ? "" : findings[faults.front().findings.front()].property;
}

TEST(FaultOfRun, IsShownByAFindingAboutTheNumbers) {
  const std::vector<Finding> findings{Failing("split_k"), Failing("matches_exact")};
  EXPECT_EQ(SpokenForBy(findings, {}), "matches_exact");
}

// A wrong answer that needed earlier questions is right when it is asked again: its reader would be
// told to replay a case that passes.
TEST(FaultOfRun, IsShownByAFindingThatFailedAgain) {
  const std::vector<Finding> findings{Failing("matches_exact"), Failing("zero_point_shift")};
  Diagnosed again;
  again.small = ZeroLayer(1, 1, 1);
  EXPECT_EQ(SpokenForBy(findings, {{findings[1].fingerprint(), again}}), "zero_point_shift");
  EXPECT_EQ(SpokenForBy(findings,
                        {{findings[0].fingerprint(), again}, {findings[1].fingerprint(), again}}),
            "matches_exact");
}

// What changes with the caller's rounding mode is not what the row's cause says, though both are
// of one kind.
TEST(FaultOfRun, SaysBesideItsCauseWhatChangesWithTheCaller) {
  std::vector<Finding> findings{Failing("matches_exact"), Failing("environment"),
                                Failing("negation")};
  Diagnoses diagnoses;
  for (Finding& finding : findings) {
    finding.kind = FindingKind::kRounding;
    diagnoses[finding.fingerprint()].sentence = "breaks " + finding.property;
  }
  diagnoses[findings[0].fingerprint()].causes = {&triage::CauseNamed("truncation")};
  const std::vector<FaultOfRun> faults = FaultsOf(findings, diagnoses, {}, {});
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].also,
            (std::vector<std::pair<size_t, std::string>>{{1, "breaks environment"}}));
  EXPECT_NE(FaultText(faults[0], findings, {}).find("  also: breaks environment [environment]\n"),
            std::string::npos);
  // A row of its own needs no such line.
  findings = {Failing("environment")};
  EXPECT_TRUE(FaultsOf(findings, {}, {}, {})[0].also.empty());
}

// A condition was fitted to the cases that were asked; what else fails may lie outside of it.
TEST(Refutes, AFailureOutsideOfAConditionThatTheCausesGive) {
  const auto failing = [](int32_t zero_point) {
    Diagnosed diagnosed;
    diagnosed.by = "native";
    Case& c = diagnosed.found = ZeroLayer(1, 1, 1);
    c.w_q = {{1}, {zero_point}};
    c.out_dtype = DType::kS32;
    OpenClamp(&c);
    c.x.SetInt(0, 1);
    c.observed = Observed{"native", exact::Evaluate(c)};
    c.observed->y.SetInt(0, 0);  // as if the zero point of the weights were 0
    return diagnosed;
  };
  Diagnosed told = failing(5);
  told.causes = {&triage::CauseNamed("weight zero point ignored")};
  told.where = {"where the zero point is 5",
                [](const Case& c) { return c.w_q.zero_point_at(0) == 5; }};
  EXPECT_FALSE(Refutes(told, told)) << "inside";
  EXPECT_TRUE(Refutes(failing(7), told));
  Diagnosed other = failing(7);
  other.by = "another";
  EXPECT_FALSE(Refutes(other, told)) << "another subject";
  other = failing(7);
  other.found.observed->y.SetInt(0, 3);
  EXPECT_FALSE(Refutes(other, told)) << "another fault";
  other.small = failing(7).found;
  EXPECT_FALSE(Refutes(other, told)) << "its smallest case may fit by chance";
  other = failing(5);
  other.small = failing(7).found;
  EXPECT_TRUE(Refutes(other, told)) << "its smallest case lies outside";
}

}  // namespace
}  // namespace qualm::tools
