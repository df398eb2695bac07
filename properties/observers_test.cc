// SPDX-License-Identifier: Apache-2.0
// choose_qparams from end to end: every instruction set of the kernels holds every property, all
// kinds of observers included, and every fault planted in observers is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/subject.h"
#include "properties/gen/gen.h"
#include "properties/property.h"

namespace qualm {
namespace {

constexpr uint64_t kCases = 400;

std::vector<const Property*> Properties() {
  std::vector<const Property*> list;
  for (const Property& property : AllProperties()) {
    if (property.about(Op::kChooseQParams)) {
      list.push_back(&property);
    }
  }
  return list;
}

TEST(Observers, EveryInstructionSetHoldsEveryProperty) {
  RegisterAllSubjects();
  std::map<Observer::Kind, int64_t> exact;
  for (const std::string& name : SubjectRegistry::Get().Expand("native@all")) {
    const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make(name);
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      const Case c = gen::Draw(Op::kChooseQParams, seed);
      MemoSubject memo(*subject);
      for (const Property* property : Properties()) {
        const Verdict verdict = Judge(*property, c, memo);
        ASSERT_FALSE(verdict.failed())
            << name << " " << property->claim << " seed " << seed << ": " << verdict.reason;
        if (IsMx(c.rule)) continue;  // our kernels choose no MX scales
        ASSERT_NE(verdict.judgement, Judgement::kSkipped) << verdict.reason;
        if (property->claim == "matches_exact") ++exact[c.observer.kind];
      }
    }
  }
  EXPECT_GT(exact[Observer::Kind::kHistogram], 50);
  EXPECT_GT(exact[Observer::Kind::kMovingAverage], 100);
}

TEST(Observers, EveryPlantedFaultIsFound) {
  RegisterAllSubjects();
  const std::map<std::string, std::vector<std::string>> found_by = {
      {"reduce-range-ignored", {"matches_exact", "zero_is_representable", "reduce_range_halves"}},
      {"no-scale-floor", {"matches_exact", "zero_is_representable"}},
      {"range-without-zero", {"matches_exact", "zero_append"}},
      {"averaging-in-double", {"matches_exact"}},
      {"observer-first-block", {"matches_exact"}},  // in rows as long as those of layers
  };
  int64_t planted = 0;
  for (const FaultInfo& info : ListFaults()) {
    if (std::ranges::count(info.ops, Op::kChooseQParams) != 0) ++planted;
  }
  EXPECT_EQ(planted, static_cast<int64_t>(found_by.size()));
  for (const auto& [id, claims] : found_by) {
    const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make("faulty:" + id);
    for (const std::string& claim : claims) {
      int64_t failed = 0;
      for (uint64_t seed = 0; seed < 20 * kCases && failed == 0; ++seed) {
        MemoSubject memo(*subject);
        const Case c = gen::Draw(Op::kChooseQParams, seed);
        failed += Judge(*FindProperty(claim), c, memo).failed() ? 1 : 0;
      }
      EXPECT_GT(failed, 0) << claim << " does not see " << id;
    }
  }
}

}  // namespace
}  // namespace qualm
