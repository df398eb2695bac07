// SPDX-License-Identifier: Apache-2.0
#include "proofs/run.h"

#include <gtest/gtest.h>

#include <bit>
#include <memory>

#include "adapters/registry.h"
#include "core/status.h"

namespace qualm::proofs {
namespace {

Certificate PlanFor(const std::string& subject, Op op, float scale) {
  static const bool registered = (RegisterAllSubjects(), true);
  EXPECT_TRUE(registered);
  Case c;
  c.op = op;
  c.x = Tensor(RowOf(op).x_types.front(), {0});
  if (HasTwoInputs(op)) c.w = c.x;
  if (op == Op::kRequantize)
    c.multiplier = {scale};
  else
    c.out_q.scale = {scale};
  Certificate plan;
  plan.subject = subject;
  plan.contract = "exact";
  plan.problems = {Domain(c).Alone(0).first};
  plan.method = HasSteps(Domain(c)) ? Certificate::Method::kSteps : Certificate::Method::kFull;
  return plan;
}

RunOptions OptionsFor(const Certificate& plan) {
  RunOptions options;
  options.make = [name = plan.subject] { return SubjectRegistry::Get().Make(name); };
  return options;
}

Certificate Done(Certificate plan, RunOptions options) {
  plan.whole = WholeOf(plan);
  EXPECT_EQ(Exhaust(&plan, options), "");
  return plan;
}
Certificate Done(const Certificate& plan) { return Done(plan, OptionsFor(plan)); }

TEST(Exhausting, FillsInACertificate) {
  const Certificate done = Done(PlanFor("native", Op::kQuantize, 0.05f));
  EXPECT_TRUE(done.complete());
  EXPECT_EQ(done.whole, int64_t{1} << 32);
  EXPECT_EQ(done.judged, int64_t{1} << 32);
  EXPECT_EQ(done.wrong, 0);
  EXPECT_LT(done.asked, 2000);
  EXPECT_EQ(done.monotone, "assumed");
}

// Sets of a family differ in scale first; a wrong output is reported with the number of its set.
TEST(Exhausting, JudgesFamilies) {
  Certificate plan = PlanFor("faulty:one-tie", Op::kRequantize, 1);
  const float half = 0.5f;
  plan.scales = Certificate::Scales{std::bit_cast<float>(std::bit_cast<uint32_t>(half) - 7),
                                    std::bit_cast<float>(std::bit_cast<uint32_t>(half) + 4), 1};
  plan.zero_points = Certificate::ZeroPoints{3, 5};
  EXPECT_EQ(SetsOf(plan), 36);
  EXPECT_EQ(ProblemAt(plan, 12 + 7).multiplier, std::vector<float>{half});
  EXPECT_EQ(ProblemAt(plan, 12 + 7).out_q.zero_point, std::vector<int32_t>{4});
  const Certificate done = Done(plan);
  EXPECT_EQ(done.whole, 36);
  EXPECT_EQ(done.judged, 36 * (int64_t{1} << 32));
  EXPECT_EQ(done.wrong, 3);  // acc 1 of multiplier 0.5, for each zero point
  ASSERT_TRUE(done.first);
  EXPECT_EQ(done.first->set, 7);
  EXPECT_EQ(done.first->input, "acc 1");
  EXPECT_EQ(done.first->expected, 3);
  EXPECT_EQ(done.first->actual, 4);
}

TEST(Exhausting, ShardsMergeIntoTheWhole) {
  Certificate plan = PlanFor("faulty:left-shift-dropped", Op::kAdd, 0.4f);
  plan.zero_points = Certificate::ZeroPoints{0, 9};
  const Certificate whole = Done(plan);
  EXPECT_GT(whole.wrong, 0);
  plan.whole = WholeOf(plan);
  std::vector<Certificate> parts;
  for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 3}, {3, 4}, {4, 10}}) {
    RunOptions options = OptionsFor(plan);
    options.first = first;
    options.last = last;
    parts.push_back(Done(plan, options));
    EXPECT_FALSE(parts.back().complete());
  }
  Certificate merged = Merged(Merged(parts[2], parts[0]), parts[1]);
  merged.monotone = whole.monotone;
  EXPECT_EQ(merged, whole);
  EXPECT_THROW(Merged(parts[0], whole), InputError);
  Certificate other = parts[1];
  other.version = "2";
  EXPECT_THROW(Merged(parts[0], other), InputError);
}

// A run that is stopped anywhere has covered the part it judged, and the next run judges the rest.
TEST(Exhausting, ContinuesWhereItStopped) {
  Certificate plan = PlanFor("faulty:left-shift-dropped", Op::kMul, 0.4f);
  plan.zero_points = Certificate::ZeroPoints{0, 9};
  const Certificate whole = Done(plan);
  plan.whole = WholeOf(plan);
  int rounds = 0;
  for (; !plan.complete(); ++rounds) {
    RunOptions options = OptionsFor(plan);
    options.jobs = 2;
    const int64_t before = plan.judged;
    options.stop = [&] { return plan.judged >= before + 3 * 65536; };
    ASSERT_EQ(Exhaust(&plan, options), "");
    ASSERT_GT(plan.judged, before);
  }
  EXPECT_GT(rounds, 1);
  plan.monotone = whole.monotone;
  EXPECT_EQ(plan, whole);
}

TEST(Exhausting, ASubjectThatFallsIsTakenToRiseOnBothSides) {
  const Certificate done = Done(PlanFor("faulty:clamp-after-conversion", Op::kQuantize, 1));
  EXPECT_EQ(done.monotone, "assumed on both sides of 1 fall");
  EXPECT_GT(done.wrong, 0);
}

TEST(Exhausting, WhatNeedsTheFullSweepSaysSo) {
  Certificate plan = PlanFor("native", Op::kAdd, 1);
  plan.method = Certificate::Method::kSteps;
  EXPECT_THROW(WholeOf(plan), InputError);
}

TEST(ProblemsFor, TakesTheParametersOfALayer) {
  Case layer;
  layer.op = Op::kLinear;
  layer.N = 2;
  layer.x = Tensor(DType::kU8, {0, 0});
  layer.w = Tensor(DType::kS8, {2, 0});
  layer.x_q = {{0.25f}, {3}};
  layer.per_channel = true;
  layer.w_q = {{0.5f, 0.75f}, {0, 0}};
  layer.out_q = {{2.0f}, {9}};
  const std::vector<Case> requantize = ProblemsFor(layer, Op::kRequantize);
  ASSERT_EQ(requantize.size(), 2u);
  EXPECT_EQ(requantize[1].w_q.scale, std::vector<float>{0.75f});
  EXPECT_EQ(requantize[1].out_q, layer.out_q);
  EXPECT_NO_THROW(Domain{requantize[1]});
  const std::vector<Case> quantize = ProblemsFor(layer, Op::kQuantize);
  ASSERT_EQ(quantize.size(), 1u);
  EXPECT_EQ(quantize[0].out_q, layer.x_q);
  const std::vector<Case> dequantize = ProblemsFor(layer, Op::kDequantize);
  ASSERT_EQ(dequantize.size(), 1u);
  EXPECT_EQ(dequantize[0].x_q, layer.out_q);
  EXPECT_NO_THROW(Domain{dequantize[0]});
  EXPECT_THROW(ProblemsFor(layer, Op::kMul), InputError);
}

}  // namespace
}  // namespace qualm::proofs
