// SPDX-License-Identifier: Apache-2.0
// RapidCheck feeds the properties: it draws the theme and a 64-bit seed, the case is drawn from
// them (properties/gen), and what fails is shrunk by the passes of `qualm minimize`.
// One test per property and op, on every native target. RC_PARAMS changes seed and number of
// cases; by default both are pinned, so that the same build gives the same result.
#include <gtest/gtest.h>
// GoogleTest first.
#include <rapidcheck/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "properties/coverage.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "triage/simpler_test_util.h"
#include "triage/triage.h"

namespace qualm {
namespace {

constexpr const char* kDefaultParams = "seed=20260117 max_success=120";

// RapidCheck ignores a key it does not know, and then draws a random seed: a typing error would
// silently test something else. "" if all keys are known.
std::string WrongParams(const std::string& params) {
  static const std::set<std::string> kKnown{"seed",
                                            "max_success",
                                            "max_size",
                                            "noshrink",
                                            "verbose_progress",
                                            "max_discard_ratio",
                                            "verbose_shrinking",
                                            "reproduce"};
  std::istringstream words(params);
  bool has_seed = false;
  for (std::string word; words >> word;) {
    const std::string key = word.substr(0, word.find('='));
    if (!kKnown.contains(key)) return "unknown key '" + key + "'";
    has_seed = has_seed || key == "seed" || key == "reproduce";
  }
  return has_seed ? "" : "no seed: the run could not be repeated";
}

rc::Gen<Case> Cases(Op op) {
  const std::vector<gen::Theme> themes(gen::AllThemes().begin(), gen::AllThemes().end());
  const auto seeds = rc::gen::noShrink(rc::gen::arbitrary<uint64_t>());
  // Half of the cases keep the weights that the generators give to their themes.
  const auto themed =
      rc::gen::map(rc::gen::pair(rc::gen::noShrink(rc::gen::elementOf(themes)), seeds),
                   [op](const std::pair<gen::Theme, uint64_t>& drawn) {
                     Case c = gen::Draw(op, drawn.first, drawn.second);
                     c.note = "theme:" + std::string(gen::Name(drawn.first));
                     return c;
                   });
  const auto mixed = rc::gen::map(seeds, [op](uint64_t seed) {
    Case c = gen::Draw(op, seed);
    c.note = "theme:mixed";
    return c;
  });
  return rc::gen::shrink(rc::gen::oneOf(themed, mixed), [](const Case& c) {
    std::vector<Case> simpler;
    triage::ForEachSimpler(c, [&](const Case& candidate) {
      simpler.push_back(candidate);
      return false;
    });
    return rc::seq::fromContainer(std::move(simpler));
  });
}

// The subjects of native@all, made once.
std::vector<std::unique_ptr<Subject>>& Natives() {
  static std::vector<std::unique_ptr<Subject>> subjects = [] {
    std::vector<std::unique_ptr<Subject>> all;
    for (const std::string& name : SubjectRegistry::Get().Expand("native@all")) {
      all.push_back(SubjectRegistry::Get().Make(name));
    }
    return all;
  }();
  return subjects;
}

struct Claim {
  const Property* property;
  Op op;
};
std::vector<Claim> Claims() {
  std::vector<Claim> claims;
  for (const Property& property : AllProperties()) {
    // It judges nothing under `exact`, which is what native promises.
    if (property.claim == "matches_model") continue;
    for (Op op : property.ops) claims.push_back({&property, op});
  }
  return claims;
}
void PrintTo(const Claim& claim, std::ostream* out) { *out << FullName(claim.op, *claim.property); }

class Native : public testing::TestWithParam<Claim> {};

TEST_P(Native, Holds) {
  const Property& property = *GetParam().property;
  const Op op = GetParam().op;
  ASSERT_FALSE(Natives().empty());
  // Not RC_CLASSIFY: it counts combinations, and with this many labels each case is its own.
  std::map<std::string, int64_t> reached;
  std::map<Judgement, int64_t> judged;
  rc::detail::checkGTest([&] {
    const Case c = *Cases(op);
    ++reached["cases"];
    ++reached[c.note];
    for (Hazard hazard : HazardsOf(c)) ++reached[std::string(Name(hazard))];
    for (const auto& subject : Natives()) {
      const Verdict verdict = Judge(property, c, *subject);
      ++judged[verdict.judgement];
      if (verdict.failed()) {
        Case told = c;
        told.property = property.claim;
        RC_FAIL(std::string(subject->name()) + ": " + verdict.reason + "\n" + CaseToJson(told));
      }
    }
  });
  std::printf("%s:", FullName(op, property).c_str());
  for (const auto& [judgement, count] : judged) {
    std::printf(" %s %lld", std::string(Name(judgement)).c_str(), static_cast<long long>(count));
  }
  std::printf(";");
  for (const auto& [label, count] : reached) {
    std::printf(" %s %lld", label.c_str(), static_cast<long long>(count));
  }
  std::printf("\n");
  // A property that is vacuous on every case tests nothing. One target has no other to agree with.
  if (property.claim != "targets_agree" || Natives().size() > 1) {
    // Of our kernels only those of layers use threads.
    if (property.claim == "several_threads" && !HasWeights(op)) return;
    // They refuse casts with scales, of which there is one for each channel.
    if (property.claim == "per_channel_equals_per_tensor" && RowOf(op).cast) return;
    EXPECT_GT(judged[Judgement::kPassed], 0) << FullName(op, property);
  }
}

std::string TestName(const testing::TestParamInfo<Claim>& info) {
  return std::string(Name(info.param.op)) + "_" + std::string(info.param.property->claim);
}
INSTANTIATE_TEST_SUITE_P(Properties, Native, testing::ValuesIn(Claims()), TestName);

TEST(Params, AreChecked) {
  EXPECT_EQ(WrongParams(kDefaultParams), "");
  EXPECT_EQ(WrongParams("seed=1 max_success=5 noshrink=1"), "");
  EXPECT_NE(WrongParams("seeds=1"), "");
  EXPECT_NE(WrongParams("max_success=5"), "");
}

}  // namespace

// RapidCheck prints a case with this.
void showValue(const Case& c, std::ostream& out) { out << Describe(c); }

}  // namespace qualm

int main(int argc, char** argv) {
  // Before RapidCheck reads it, once, at the first property.
  const char* given = std::getenv("RC_PARAMS");
  if (given == nullptr) {
    setenv("RC_PARAMS", qualm::kDefaultParams, 0);
  } else if (const std::string wrong = qualm::WrongParams(given); !wrong.empty()) {
    std::fprintf(stderr, "RC_PARAMS: %s\n", wrong.c_str());
    return 2;
  }
  qualm::RegisterAllSubjects();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
