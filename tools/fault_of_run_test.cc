// SPDX-License-Identifier: Apache-2.0
// Which finding speaks for a fault that fails several claims.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/layer_test_util.h"
#include "tools/faults.h"

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

}  // namespace
}  // namespace qualm::tools
