// SPDX-License-Identifier: Apache-2.0
// The sizes at which something shows, and what is said of memory and threads with them.
#include "triage/where.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "triage/fault_test_util.h"
#include "triage/kept.h"

namespace qualm::triage {
namespace {

std::string WhereIs(const Case& c, bool (*is)(const Case&)) {
  TestSubject subject = Answers([](const Case& of) { return Right(of); });
  const auto where =
      FindWhereItShows(c, subject, [is](const Case& of) { return std::optional(is(of)); });
  return where ? where->text : "";
}

TEST(WhereItShows, IsSaidOfOneSize) {
  EXPECT_EQ(WhereIs(Layer(3, 7, 9), [](const Case& c) { return c.N % 4 != 0; }),
            "where N % 4 is not 0");
  EXPECT_EQ(WhereIs(Layer(3, 7, 9), [](const Case& c) { return c.K % 8 != 0; }),
            "where K % 8 is not 0");
  EXPECT_EQ(WhereIs(Layer(3, 7, 9), [](const Case& c) { return c.K > 8 && c.K % 8 != 0; }),
            "where K is above 8 and K % 8 is not 0");
  EXPECT_EQ(WhereIs(Layer(4, 8, 8), [](const Case& c) { return c.M % 3 != 0; }),
            "where M % 3 is not 0");
  EXPECT_EQ(WhereIs(Layer(3, 7, 8), [](const Case& c) { return c.K % 8 == 0; }),
            "where K is a multiple of 8");
  EXPECT_EQ(WhereIs(Layer(3, 8, 9), [](const Case& c) { return c.N >= 8; }),
            "where N is 8 or more");
}

TEST(WhereItShows, IsNotSaidOfWhatNoSizeSeparates) {
  EXPECT_EQ(WhereIs(Layer(3, 7, 9), [](const Case&) { return true; }), "");
  EXPECT_EQ(WhereIs(Layer(3, 7, 9), [](const Case& c) { return c.N % 4 != 0 && c.K % 8 != 0; }),
            "");
  EXPECT_EQ(WhereIs(Layer(3, 7, 9), [](const Case& c) { return c.x.IntAt(0) % 2 == 0; }), "");
}

std::string Said(const std::string& claim, const Case& c, TestSubject& subject) {
  const Judged judged =
      JudgeAndAttribute(*FindProperty(claim), c, subject, {.examine = true, .probe_state = true});
  EXPECT_TRUE(judged.verdict.failed());
  return judged.attribution.diagnosis;
}

TEST(WhereItShows, IsSaidOfBytesOutsideOfABuffer) {
  TestSubject subject([](const Case& c, const RunContext&) {
    if (c.N % 4 == 0) return TestSubject::Good(Right(c));
    Outcome outcome;
    outcome.status = RunStatus::kTouchedOutside;
    outcome.detail = "wrote 1 byte past the end of y";
    return outcome;
  });
  EXPECT_EQ(Said("linear.matches_exact", Layer(3, 7, 9), subject),
            "touched-outside: wrote 1 byte past the end of y, where N % 4 is not 0");
}

// Of threads that share rows evenly, who leaves those that are left over.
TestSubject LeavesLastRows() {
  return Answers([](const Case& c, const RunContext& context) {
    Tensor y = Right(c);
    const int64_t left = context.threads > 1 ? c.M % context.threads : 0;
    const int64_t bytes = left * c.N * BitsOf(c.out_dtype) / 8;
    for (int64_t i = std::ssize(y.bytes()) - bytes; i < std::ssize(y.bytes()); ++i)
      y.bytes()[static_cast<size_t>(i)] = context.poison;
    return y;
  });
}

TEST(WhereItShows, IsSaidOfOutputsThatSeveralThreadsLeave) {
  TestSubject subject = LeavesLastRows();
  EXPECT_EQ(Said("linear.several_threads", Layer(4, 7, 10), subject),
            "the subject leaves outputs unwritten with 3 threads, where M % 3 is not 0");
}

TEST(WhereItShows, WhatSeveralThreadsLeaveIsSaidOfTheSmallestCaseToo) {
  TestSubject subject = LeavesLastRows();
  const MinimizeResult small =
      Minimize(Layer(4, 7, 10), subject, *FindProperty("linear.several_threads"));
  EXPECT_TRUE(small.attribution.diagnosis.starts_with("the subject leaves outputs unwritten with"))
      << small.attribution.diagnosis;
}

TEST(WhereItShows, IsSaidOfGapsByTheirTensor) {
  TestSubject subject = Answers([](const Case& c, const RunContext& context) {
    return context.w_row_gap == 0 ? Right(c) : Plus(Right(c), 1, context.poison);
  });
  EXPECT_EQ(Said("linear.layer_strides", Layer(4, 7, 9), subject),
            "the subject computes with what lies in the gaps between the weights of two output "
            "channels");
}

// Rows of x are taken to lie K apart: from row 1 on, what is read begins in the gap.
TEST(WhereItShows, IsSaidOfRowsThatAreTakenToLieWithoutGaps) {
  TestSubject subject = Answers([](const Case& c, const RunContext& context) {
    Case read = c;
    for (int64_t i = 0; i < c.x.size() && c.K % 8 == 0; ++i) {
      const int64_t row = i / (c.K + context.x_row_gap), at = i % (c.K + context.x_row_gap);
      read.x.SetInt(i, at < c.K ? c.x.IntAt(row * c.K + at) : context.poison);
    }
    return Right(read);
  });
  EXPECT_EQ(Said("linear.alignment_and_stride", Layer(4, 7, 8), subject),
            "the subject takes the rows of the input to lie without gaps, where K is a multiple of "
            "8");
}

// A member of a problem that is kept until another problem has one.
TEST(Kept, IsNamedByWhatIsKept) {
  std::optional<std::vector<int32_t>> bias;
  TestSubject without_bias = Answers([&](const Case& c) {
    Case with = c;
    if (c.bias_i32) bias = c.bias_i32;
    if (!c.bias_i32 && !c.bias && bias && std::ssize(*bias) == c.N) with.bias_i32 = bias;
    return Right(with);
  });
  const auto kept = FindKept(Layer(3, 5, 8), without_bias);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->text,
            "the subject goes on with the bias of an earlier problem, where there is "
            "none");

  std::map<std::vector<int64_t>, std::vector<int32_t>> by_shape;
  TestSubject first_zero_point = Answers([&](const Case& c) {
    Case with = c;
    with.x_q.zero_point = by_shape.try_emplace({c.M, c.N, c.K}, c.x_q.zero_point).first->second;
    return Right(with);
  });
  const auto zero_point = FindKept(Layer(3, 5, 8), first_zero_point);
  ASSERT_TRUE(zero_point);
  EXPECT_EQ(zero_point->text, "the subject goes on with the zero point of x of an earlier problem");

  TestSubject keeps_nothing = Answers([](const Case& c) { return Right(c); });
  EXPECT_FALSE(FindKept(Layer(3, 5, 8), keeps_nothing));
}

}  // namespace
}  // namespace qualm::triage
