// SPDX-License-Identifier: Apache-2.0
// Which minimum is found, and which reason is given, on the planted faults.
#include "properties/triage/triage.h"

#include <gtest/gtest.h>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"
#include "properties/triage/counterfactual.h"
#include "properties/triage/passes.h"

namespace qualm::triage {
namespace {

class Triage : public testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterAllSubjects(); }
  static std::unique_ptr<Subject> Make(const std::string& name) {
    return SubjectRegistry::Get().Make(name);
  }
  // The first drawn case on which the property fails.
  static std::optional<Case> FirstFailure(Op op, Subject& subject, const Property& property) {
    for (uint64_t seed = 0; seed < 20000; ++seed) {
      Case c = gen::Draw(op, seed);
      if (Judge(property, c, subject).failed()) return c;
    }
    return std::nullopt;
  }
};

TEST_F(Triage, ForumSweepEndsAtTwoTerms) {
  const Case c = ReadCaseFile(QUALM_SOURCE_DIR "/corpus/forum/000-linear-sweep.case.json");
  const auto subject = Make("model:fbgemm@avx2");
  subject->set_contract({});
  const MinimizeResult result = Minimize(c, *subject, *FindProperty("matches_exact"));
  ASSERT_TRUE(result.reproduced);
  EXPECT_EQ(result.minimized.M, 1);
  EXPECT_EQ(result.minimized.N, 1);
  EXPECT_EQ(result.minimized.K, 2);
  EXPECT_LE(result.calls, 2000);
  EXPECT_EQ(result.attribution.kind, FindingKind::kPairSaturation);
  EXPECT_EQ(result.minimized.x_q.zero_point, std::vector<int32_t>{0});
  EXPECT_EQ(result.minimized.x_q.scale, std::vector<float>{1.0f});

  const std::string text = Explain(result.minimized, {subject.get()});
  EXPECT_NE(text.find("32767"), std::string::npos) << text;
  EXPECT_NE(text.find("lost"), std::string::npos) << text;
}

struct FaultCase {
  const char* subject;
  Op op;
  FindingKind kind;
  int64_t most_terms;  // K of the minimum, at most
};

class MinimumOfFault : public Triage, public testing::WithParamInterface<FaultCase> {};

TEST_P(MinimumOfFault, IsSmallAndNamed) {
  const FaultCase& fault = GetParam();
  const auto subject = Make(fault.subject);
  const Property& property = *FindProperty("matches_exact");
  const std::optional<Case> failing = FirstFailure(fault.op, *subject, property);
  ASSERT_TRUE(failing) << "no drawn case fails";
  const MinimizeResult result = Minimize(*failing, *subject, property);
  ASSERT_TRUE(result.reproduced);
  EXPECT_EQ(result.attribution.kind, fault.kind) << result.attribution.diagnosis;
  EXPECT_EQ(result.minimized.M * result.minimized.N, 1);
  EXPECT_LE(result.minimized.K, fault.most_terms);
  EXPECT_LE(result.calls, 2000);
  // The reproducer replays alone and is not more complex than what it came from.
  EXPECT_TRUE(
      Judge(property, ParseCase(CaseToJson(result.minimized), "minimized"), *subject).failed());
  EXPECT_LE(Complexity(result.minimized), Complexity(*failing));
}

INSTANTIATE_TEST_SUITE_P(
    Canaries, MinimumOfFault,
    testing::Values(FaultCase{"faulty:pair-saturation", Op::kLinear, FindingKind::kPairSaturation,
                              2},
                    FaultCase{"faulty:relu-clamp-zero", Op::kLinear, FindingKind::kClamp, 1},
                    FaultCase{"faulty:k-tail", Op::kLinear, FindingKind::kTail, 1}),
    [](const auto& param) {
      std::string name = param.param.subject + 7;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST_F(Triage, WhatDoesNotFailIsSaidToBeSo) {
  const auto subject = Make("native");
  const Case c = gen::Draw(Op::kLinear, 3);
  const MinimizeResult result = Minimize(c, *subject, *FindProperty("matches_exact"));
  EXPECT_FALSE(result.reproduced);
  EXPECT_EQ(result.minimized, c);
}

TEST_F(Triage, TheBudgetOfCallsIsKept) {
  const Case c = ReadCaseFile(QUALM_SOURCE_DIR "/corpus/forum/000-linear-sweep.case.json");
  const auto subject = Make("model:fbgemm@avx2");
  subject->set_contract({});
  const MinimizeResult result =
      Minimize(c, *subject, *FindProperty("matches_exact"), {.max_calls = 10});
  EXPECT_TRUE(result.reproduced);
  EXPECT_LE(result.calls, 10);
}

TEST(Passes, OnlyOfferSimplerValidCases) {
  int64_t offered = 0;
  for (Op op : DefinedOps()) {
    for (uint64_t seed = 0; seed < 150; ++seed) {
      const Case c = gen::Draw(op, seed);
      const std::vector<int64_t> here = Complexity(c);
      int64_t left = 200;
      ForEachSimpler(c, [&](const Case& candidate) {
        EXPECT_LT(Complexity(candidate), here);
        EXPECT_EQ(Validate(candidate), "");
        ++offered;
        return --left == 0;
      });
    }
  }
  EXPECT_GT(offered, 10000);
}

TEST(Passes, DescentAlwaysEnds) {
  // Taking everything that is offered reaches a fixed point: the order has no infinite descent.
  Case c = gen::Draw(Op::kLinear, 11);
  int64_t steps = 0;
  bool moved = true;
  while (moved) {
    moved = false;
    ForEachSimpler(c, [&](const Case& candidate) {
      c = candidate;
      moved = true;
      return true;
    });
    ASSERT_LT(++steps, 10000);
  }
  EXPECT_LE(c.M * c.N * c.K, 1);
}

TEST(Counterfactuals, NoSwapIsTheExactResult) {
  for (Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const Case c = gen::Draw(op, seed);
      const std::optional<Tensor> y = Counterfactual(c, {});
      ASSERT_TRUE(y);
      ASSERT_EQ(*y, exact::Evaluate(c));
    }
  }
}

TEST(Counterfactuals, EverySwapChangesSomething) {
  for (const SwapInfo& info : AllSwaps()) {
    bool changes = false;
    for (Op op : AllOps()) {
      for (uint64_t seed = 0; seed < 4000 && !changes; ++seed) {
        const Case c = gen::Draw(op, seed);
        if (c.x.size() + c.w.size() > 4000) continue;
        const Swap swaps[] = {info.swap};
        const std::optional<Tensor> y = Counterfactual(c, swaps);
        changes = y && *y != exact::Evaluate(c);
      }
    }
    EXPECT_TRUE(changes) << info.name;
  }
}

TEST(Attribution, NamesASingleSwap) {
  int64_t named = 0, tried = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    if (c.x.size() + c.w.size() > 4000) continue;
    const Swap swaps[] = {Swap::kPairSaturation};
    const std::optional<Tensor> y = Counterfactual(c, swaps);
    if (!y || *y == exact::Evaluate(c)) continue;
    ++tried;
    named += Attribute(c, *y).kind == FindingKind::kPairSaturation ? 1 : 0;
  }
  EXPECT_GT(tried, 20);
  EXPECT_EQ(named, tried);
}

}  // namespace
}  // namespace qualm::triage
