// SPDX-License-Identifier: Apache-2.0
// Faults of state, of shared memory and of strides: the property that is there for each finds it
// within the stated number of drawn cases. Of most the older properties together find nothing, in
// as many; a parameter that is kept shows itself to some of them too.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "adapters/registry.h"
#include "core/subject.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "properties/property.h"

namespace qualm {
namespace {

struct Hidden {
  const char* fault;
  Op op;
  const char* claim;
  bool by_no_other = true;  // of the older properties
  int64_t cases = 60;
};

const std::set<std::string_view> kClaims{
    "one_thing_changed", "packed_once", "concurrent_calls", "several_threads",
    "layer_strides",     "far_rows",    "aliased_operands", "leaves_nothing_behind"};

class State : public testing::TestWithParam<Hidden> {};

TEST_P(State, IsFoundByItsProperty) {
  const Hidden& hidden = GetParam();
  RegisterAllSubjects();
  const std::unique_ptr<Subject> subject =
      SubjectRegistry::Get().Make(std::string("faulty:") + hidden.fault);
  std::set<std::string_view> failed;
  for (int64_t i = 0; i < hidden.cases; ++i) {
    const Case c = gen::Draw(hidden.op, CaseSeed(1, hidden.op, i));
    MemoSubject memo(*subject);
    JudgeAll(c, memo, "*", [&](const Property& property, const Verdict& verdict) {
      if (verdict.failed()) failed.insert(property.claim);
      return true;
    });
  }
  EXPECT_TRUE(failed.contains(hidden.claim));
  for (const std::string_view claim : failed) {
    EXPECT_TRUE(!hidden.by_no_other || kClaims.contains(claim)) << claim;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, State,
    testing::Values(Hidden{"stale-scales", Op::kLinear, "one_thing_changed", false},
                    Hidden{"stale-bias", Op::kLinear, "one_thing_changed", false},
                    Hidden{"stale-clamp", Op::kLinear, "one_thing_changed", false},
                    Hidden{"stale-scratch", Op::kLinear, "packed_once"},
                    Hidden{"shared-scratch", Op::kLinear, "concurrent_calls"},
                    Hidden{"leaves-rounding", Op::kQuantize, "leaves_nothing_behind"},
                    Hidden{"blocks-signals", Op::kRescale, "leaves_nothing_behind"},
                    Hidden{"shared-first-params", Op::kAdd, "aliased_operands"},
                    Hidden{"second-read-again", Op::kMul, "aliased_operands"},
                    Hidden{"weight-stride-ignored", Op::kLinear, "layer_strides"},
                    Hidden{"row-offset-u32", Op::kLinear, "far_rows"},
                    Hidden{"line-stride-ignored", Op::kConv2d, "layer_strides"}),
    [](const testing::TestParamInfo<Hidden>& instance) {
      std::string name = instance.param.fault;
      std::erase(name, '-');
      return name;
    });

// Nothing of the state properties fails on our kernels, and none is vacuous there.
TEST(StateProperties, HoldForNativeKernels) {
  RegisterAllSubjects();
  const std::unique_ptr<Subject> native = SubjectRegistry::Get().Make("native");
  for (const std::string_view claim : kClaims) {
    const Property& property = *FindProperty(claim);
    for (const Op op : property.ops) {
      if (claim == "several_threads" && !HasWeights(op)) continue;  // each runs on one thread
      int64_t passed = 0;
      for (int64_t i = 0; i < 40; ++i) {
        const Case c = gen::Draw(op, CaseSeed(2, op, i));
        const Verdict verdict = Judge(property, c, *native);
        EXPECT_FALSE(verdict.failed()) << FullName(op, property) << ": " << verdict.reason;
        passed += verdict.judgement == Judgement::kPassed;
      }
      EXPECT_GT(passed, 0) << FullName(op, property);
    }
  }
}

}  // namespace
}  // namespace qualm
