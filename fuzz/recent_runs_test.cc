// SPDX-License-Identifier: Apache-2.0
#include "fuzz/recent_runs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "oracles/exact/exact.h"
#include "properties/test_subject.h"

namespace qualm::fuzz {
namespace {

Case Rows(int64_t rows) {
  Case c;
  c.op = Op::kLinear;
  c.M = rows;
  c.N = c.K = 1;
  c.x = Tensor(DType::kU8, {rows, 1});
  c.w = Tensor(DType::kS8, {1, 1});
  return c;
}

TestSubject RightSubject() {
  return TestSubject(
      [](const Case& c, const RunContext&) { return TestSubject::Good(exact::Evaluate(c)); },
      "right");
}

std::vector<Case> Listed(const RecentRuns& runs) { return ParseRuns(runs.Lines(), "lines"); }

TEST(RecentRuns, AreListedInTheirOrder) {
  TestSubject right = RightSubject();
  RecentRuns runs(right);
  EXPECT_EQ(runs.Lines(), "");
  EXPECT_EQ(runs.Run(Rows(2), {}).y, exact::Evaluate(Rows(2)));
  EXPECT_EQ(runs.RunMany(std::vector{Rows(3), Rows(1)}, {}).size(), 2u);
  EXPECT_EQ(Listed(runs), (std::vector{Rows(2), Rows(3), Rows(1)}));
}

TEST(RecentRuns, TheOldestAreForgotten) {
  TestSubject right = RightSubject();
  RecentRuns runs(right);
  for (int64_t i = 1; i <= static_cast<int64_t>(RecentRuns::kRuns) + 2; ++i) runs.Run(Rows(i), {});
  const std::vector<Case> listed = Listed(runs);
  ASSERT_EQ(listed.size(), RecentRuns::kRuns);
  EXPECT_EQ(listed.front(), Rows(3));
  EXPECT_EQ(listed.back(), Rows(RecentRuns::kRuns + 2));
}

TEST(RecentRuns, ASeldomOperationIsNotForgottenForAFrequentOne) {
  TestSubject right = RightSubject();
  RecentRuns runs(right);
  runs.Run(Rows(1), {});
  Case seldom;
  seldom.op = Op::kQuantize;
  seldom.M = 1, seldom.N = 2;
  seldom.x = Tensor(DType::kF32, {1, 2});
  runs.Run(seldom, {});
  for (int64_t i = 0; i < static_cast<int64_t>(RecentRuns::kRuns); ++i) runs.Run(Rows(2), {});
  const std::vector<Case> listed = Listed(runs);
  ASSERT_EQ(listed.size(), RecentRuns::kRuns + 1);
  EXPECT_EQ(listed[0].op, Op::kQuantize);
  EXPECT_EQ(listed[1], Rows(2));
}

TEST(RecentRuns, LongOnesAreNotKept) {
  TestSubject right = RightSubject();
  RecentRuns runs(right);
  const auto most = static_cast<int64_t>(RecentRuns::kMostBytes) - 1;  // and one byte of weights
  runs.Run(Rows(most), {});
  runs.Run(Rows(most + 1), {});
  EXPECT_EQ(Listed(runs), std::vector{Rows(most)});
}

}  // namespace
}  // namespace qualm::fuzz
