// SPDX-License-Identifier: Apache-2.0
// What is known is counted, told and listed as known, and nothing beside it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/known.h"
#include "tools/tools_test_util.h"
#include "triage/triaged.h"

namespace qualm::tools {
namespace {

Finding Failing(const std::string& claim, const std::string& subject) {
  return Finding("linear", claim, subject, Verdict::Failed("y[0] differs"));
}

using KnownFindingsTest = KnowingTest;

TEST_F(KnownFindingsTest, ADeclaredDepartureIsNeitherNewNorKnown) {
  Finding declared = Failing("clamp", "a");
  declared.expected_by_contract = true;
  for (const KnownFindings& known : {KnownFindings(), Knowing({declared})}) {
    EXPECT_FALSE(known.IsNew(declared));
    EXPECT_FALSE(known.AnyNew({declared}));
    EXPECT_EQ(known.Text(declared), triage::FindingText(declared));
    EXPECT_TRUE(known.MarksOf({declared}).empty());
  }
  EXPECT_TRUE(KnownFindings().AnyNew({declared, Failing("clamp", "a")}));
}

// A claim that fails on a subject is expected only if each of its findings is; other claims and
// other subjects have counts of their own.
TEST_F(KnownFindingsTest, CountsAreOfAClaimAndASubject) {
  const std::vector<Finding> findings{Failing("clamp", "a"), Failing("clamp", "b"),
                                      Failing("monotone", "a")};
  CheckResult counted;
  for (const Finding& finding : findings) {
    const std::string property = finding.full_property();
    counted.failed[{property, finding.subject}] = 2;
    for (Totals* totals :
         {&counted.totals, &counted.by_property[property], &counted.by_subject[finding.subject],
          &counted.by_square[{finding.subject, "linear"}]}) {
      totals->verdicts[Judgement::kFailed] += 2;
    }
  }
  // What is known, and what then is still failed in all, by claim and by subject.
  struct Expected {
    std::vector<Finding> known;
    int64_t all, clamp, monotone, a, b;
  };
  for (const Expected& expected :
       {Expected{{}, 6, 4, 2, 4, 2}, Expected{{findings[0]}, 4, 2, 2, 2, 2},
        Expected{{findings[1]}, 4, 2, 2, 4, 0}, Expected{{findings[2]}, 4, 4, 0, 2, 2},
        Expected{findings, 0, 0, 0, 0, 0}}) {
    CheckResult result = counted;
    Knowing(expected.known).CountAsExpected(findings, result);
    const auto check = [](const Totals& totals, int64_t failed, int64_t all) {
      EXPECT_EQ(totals.of(Judgement::kFailed), failed);
      EXPECT_EQ(totals.of(Judgement::kExpected), all - failed);
      EXPECT_EQ(totals.verdicts.contains(Judgement::kFailed), failed > 0);
    };
    check(result.totals, expected.all, 6);
    check(result.by_property["linear.clamp"], expected.clamp, 4);
    check(result.by_property["linear.monotone"], expected.monotone, 2);
    check(result.by_subject["a"], expected.a, 4);
    check(result.by_subject["b"], expected.b, 2);
    check(result.by_square[{"a", "linear"}], expected.a, 4);
    check(result.by_square[{"b", "linear"}], expected.b, 2);
  }
}

}  // namespace
}  // namespace qualm::tools
