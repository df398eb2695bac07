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

#include "properties/gen/gen.h"
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

// A mistake of the arithmetic that is made only where the subject is run in one way.
TestSubject MakesIt(const Hypothesis& causes, bool (*where)(const RunContext&)) {
  return Answers([causes, where](const Case& c, const RunContext& context) {
    return where(context) ? With(c, causes) : Right(c);
  });
}

TEST(MadeWhereRun, IsNamedOfSeveralThreads) {
  TestSubject subject = MakesIt(Named({"weight zero point of channel n % ceil(N / 3)"}),
                                [](const RunContext& context) { return context.threads > 1; });
  Case c = Layer(4, 9, 10);
  c.per_channel = true;
  c.w_q = {std::vector<float>(9, 1), {1, 2, 3, 4, 5, 6, 7, 8, 9}};
  EXPECT_EQ(Said("linear.several_threads", c, subject),
            "with 3 threads the subject takes the weight zero point of channel n from channel n % "
            "ceil(N / 3): each of 3 parts of the channels begins the list anew");
}

TEST(MadeWhereRun, IsNamedOfAnOutputOverTheSecondOperand) {
  TestSubject subject = MakesIt(Named({"operands swapped"}),
                                [](const RunContext& context) { return context.over_w; });
  const Case c = gen::Draw(Op::kAdd, 3);
  EXPECT_EQ(Said("add.aliased_operands", c, subject),
            "written over the second operand, the subject takes the scale and zero point of each "
            "operand for the other");
}

TEST(MadeWhereRun, IsNotSaidOfWhatNoCauseGives) {
  TestSubject subject = Answers([](const Case& c, const RunContext& context) {
    Tensor y = Right(c);
    for (int64_t i = 0; context.threads > 1 && i < y.size(); i += 3) y.SetInt(i, y.IntAt(i) ^ 1);
    return y;
  });
  EXPECT_TRUE(Said("linear.several_threads", Layer(4, 7, 10), subject)
                  .starts_with("several threads change the result"));
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
// Of weights in blocks: a loop for one row takes large blocks alone.
TEST(Conditions, OfASizeOfBlocksAndOfOneRowAreNamedTogether) {
  Case c = Layer(1, 3, 140);
  c.per_channel = true;
  c.w_block = 64;
  c.w_q = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 5, -3, 2, 9, 4, -7, 1, 6}};
  c.out_dtype = DType::kF32;
  ASSERT_EQ(Validate(c), "");
  const Hypothesis cause = Named({"parameters of the first block"});
  TestSubject subject = Answers([&](const Case& asked) {
    return asked.M == 1 && asked.w_block >= 32 ? With(asked, cause) : Right(asked);
  });
  subject.takes_blocks = true;
  EXPECT_EQ(Attribute(c, With(c, cause), subject).diagnosis,
            "the subject takes the scale and zero point of a channel's first block of weights for "
            "all of its blocks, where M is 1 and the size of blocks is 32 or more");
}

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
