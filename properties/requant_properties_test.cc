// SPDX-License-Identifier: Apache-2.0
// The properties that are theorems of each requantization mode: the native kernels must fail none,
// and each mode must really be judged by the properties that apply to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/registry.h"
#include "core/subject.h"
#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"
#include "properties/property.h"

namespace qualm {
namespace {

bool IsTheorem(Requant requant, std::string_view claim) {
  if (claim == "sweep_is_linear") return false;
  if (claim == "negation") return requant == Requant::kFloat32;
  return true;
}

void JudgeAll(Op op, int cases) {
  RegisterAllSubjects();
  const std::unique_ptr<Subject> native = SubjectRegistry::Get().Make("native");
  for (const Requant requant : {Requant::kFloat32, Requant::kFixedQ31, Requant::kFixedRndnu}) {
    SCOPED_TRACE(Name(requant));
    std::map<std::string_view, int> passed;
    int overflows = 0;
    for (int seed = 0; seed < cases; ++seed) {
      Case c = gen::Draw(op, 7000 + static_cast<uint64_t>(seed));
      if (!IsCode(c.out_dtype) || c.bias) continue;
      c.requant = requant;
      ASSERT_EQ(Validate(c), "");
      overflows += exact::RequantMayOverflow(c) ? 1 : 0;
      MemoSubject subject(*native);
      for (const Property& property : AllProperties()) {
        const Verdict verdict = Judge(property, c, subject);
        EXPECT_FALSE(verdict.failed()) << FullName(op, property) << " seed " << seed << " "
                                       << Describe(c) << ": " << verdict.reason;
        if (verdict.judgement == Judgement::kPassed) ++passed[property.claim];
      }
      if (testing::Test::HasFailure()) return;
    }
    // Theorems elsewhere, and here only where nothing overflows: both kinds of cases are drawn.
    EXPECT_EQ(overflows > 0, requant != Requant::kFixedRndnu);
    for (const Property& property : AllProperties()) {
      if (!property.about(op)) continue;
      if (property.claim == "matches_model") continue;  // the contract is exact
      // One case of 16 is asked, and few operations of ours have threads.
      if (property.claim == "several_threads") continue;
      if (IsTheorem(requant, property.claim)) {
        EXPECT_GT(passed[property.claim], 3) << FullName(op, property);
      } else {
        EXPECT_EQ(passed[property.claim], 0) << FullName(op, property);
      }
    }
  }
}

TEST(RequantProperties, Requantize) { JudgeAll(Op::kRequantize, 200); }
TEST(RequantProperties, Linear) { JudgeAll(Op::kLinear, 200); }
TEST(RequantProperties, Conv2d) { JudgeAll(Op::kConv2d, 150); }
TEST(RequantProperties, Depthwise) { JudgeAll(Op::kDepthwise, 150); }

// The side conditions are needed: where they do not hold the claims are false.
TEST(RequantProperties, OverflowBreaksOrder) {
  Case c;
  c.op = Op::kRequantize;
  c.M = 1;
  c.N = 2;
  c.multiplier = {2.0f};
  c.x = Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{(1 << 29) - 1, 1 << 30});
  for (const Requant requant : {Requant::kFloat32, Requant::kFixedQ31}) {
    c.requant = requant;
    const Tensor y = exact::Evaluate(c);
    EXPECT_GT(y.IntAt(0), y.IntAt(1)) << Name(requant);
    EXPECT_TRUE(exact::RequantMayOverflow(c));
  }
  c.requant = Requant::kFixedRndnu;
  EXPECT_FALSE(exact::RequantMayOverflow(c));
  c.x = Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{1000, 2000});
  c.requant = Requant::kFixedQ31;
  EXPECT_FALSE(exact::RequantMayOverflow(c));
}

// Why negation is none of the fixed-point modes' theorems, and a straight line none's.
TEST(RequantProperties, HalvesGoUpwards) {
  Case c;
  c.op = Op::kRequantize;
  c.M = 1;
  c.N = 2;
  c.out_q.zero_point = {100};
  const auto codes = [&](Requant requant, float multiplier, int32_t acc) {
    c.multiplier = {multiplier};
    c.x = Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{acc, -acc});
    c.requant = requant;
    const Tensor y = exact::Evaluate(c);
    return std::pair(y.IntAt(0) - 100, y.IntAt(1) - 100);
  };
  EXPECT_EQ(codes(Requant::kFloat32, 0.5f, 5), std::pair(2, -2));
  EXPECT_EQ(codes(Requant::kFixedRndnu, 0.5f, 5), std::pair(3, -2));
  // 5 * 0.5 has shift 0: the high multiply alone rounds, and it rounds halves upwards.
  EXPECT_EQ(codes(Requant::kFixedQ31, 0.5f, 5), std::pair(3, -2));
  // Twice rounded: 0.25 -> 0.5 -> 1.
  EXPECT_EQ(codes(Requant::kFixedQ31, 0.25f, 1), std::pair(1, 0));
}

}  // namespace
}  // namespace qualm
