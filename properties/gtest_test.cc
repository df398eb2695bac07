// SPDX-License-Identifier: Apache-2.0
// The header as its users use it; what failures look like is suite_test.cc and examples/gtest.
#include "properties/gtest.h"

#include "properties/test_subject.h"

namespace qualm {
namespace {

std::unique_ptr<Subject> MakeExact() {
  return std::make_unique<TestSubject>(TestSubject::Exact, "oracle");
}

QUALM_TEST_SUBJECT(OracleAsAdd, Op::kAdd, MakeExact);
QUALM_TEST_SUBJECT(OracleAsLinear, Op::kLinear, MakeExact,
                   {.cases = 50, .seed = 7, .properties = "sweep_*"});

TEST(GTestBinding, EveryPropertyIsATest) {
  const auto* unit = testing::UnitTest::GetInstance();
  int found = 0;
  for (int i = 0; i < unit->total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *unit->GetTestSuite(i);
    const std::string name = suite.name();
    if (name == "OracleAsAdd") {
      EXPECT_EQ(suite.total_test_count(), static_cast<int>(PropertiesAbout(Op::kAdd).size()));
      ++found;
    }
    if (name == "OracleAsLinear") {
      EXPECT_EQ(suite.total_test_count(),
                static_cast<int>(PropertiesAbout(Op::kLinear, "sweep_*").size()));
      EXPECT_STREQ(suite.GetTestInfo(0)->name(), "sweep_is_monotone");
      ++found;
    }
  }
  EXPECT_EQ(found, 2);
}

}  // namespace
}  // namespace qualm
