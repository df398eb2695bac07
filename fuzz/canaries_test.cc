// SPDX-License-Identifier: Apache-2.0
// Every fault planted in an operation is found by its fuzz target's loop: our mutations from
// nothing, guided by our distances, within a bounded number of executions, whatever the seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "adapters/registry.h"
#include "fuzz/case_codec.h"
#include "fuzz/climber.h"
#include "fuzz/feedback.h"
#include "fuzz/mutator.h"
#include "fuzz/test_util.h"
#include "properties/property.h"

namespace qualm::fuzz {
namespace {

constexpr int kRuns = 20000;

bool Caught(const Case& c, Subject& subject) {
  MemoSubject memo(subject);
  return std::ranges::any_of(AllProperties(), [&](const Property& property) {
    return property.about(c.op) && Judge(property, c, memo).failed();
  });
}

// The number of executions until the subject was caught.
std::optional<int> RunsUntilCaught(Op op, Subject& subject, uint64_t seed) {
  Climber next(op, seed, ReportDistances);
  for (int run = 1; run <= kRuns; ++run) {
    if (Caught(next(), subject)) return run;
  }
  return std::nullopt;
}

// These faults need more rows, channels or elements than most inputs have. One input in 16 may have
// them, which is too few for some seeds within kRuns. Drawn cases find these faults
// (properties/rare_themes_test.cc).
bool NeedsTheSizesOfALayer(const std::string& name) {
  static const std::set<std::string> names{"faulty:channel-index-u8", "faulty:deep-channel-tap",
                                           "faulty:element-index-u16", "faulty:group-block-scale",
                                           "faulty:image-row-buffer"};
  return names.contains(name);
}

// Bytes say no activations of 16 bits. Drawn cases find these faults too (triage/triage_test.cc).
bool NeedsWideCodes(const std::string& name) { return name.starts_with("faulty:wide-"); }

class Canaries : public testing::TestWithParam<Op> {};

TEST_P(Canaries, AreFoundForEverySeed) {
  RegisterAllSubjects();
  const SubjectRegistry& registry = SubjectRegistry::Get();
  int canaries = 0;
  for (const std::string& name : registry.Expand("faulty:*")) {
    if (NeedsTheSizesOfALayer(name) || NeedsWideCodes(name)) continue;
    const auto subject = registry.Make(name);
    if (!subject->CannotRun(DecodeCase(GetParam(), {})).empty()) continue;
    ++canaries;
    int most = 0;
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const std::optional<int> runs = RunsUntilCaught(GetParam(), *subject, seed);
      EXPECT_TRUE(runs.has_value()) << name << " seed " << seed;
      most = std::max(most, runs.value_or(kRuns));
    }
    RecordProperty(name, most);
    std::printf("%s: at most %d executions\n", name.c_str(), most);
  }
  EXPECT_GE(canaries, 1);
}

TEST_P(Canaries, NothingIsFoundInTheSameCodeWithoutAFault) {
  RegisterAllSubjects();
  const auto subject = SubjectRegistry::Get().Make("faulty:none");
  Rng rng(1);
  Case c = DecodeCase(GetParam(), {});
  for (int i = 0; i < 300; ++i) {
    c = MutateCase(c, rng);
    ASSERT_FALSE(Caught(c, *subject)) << Text(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, Canaries,
                         testing::Values(Op::kConv2d, Op::kDepthwise, Op::kMaxPool, Op::kAvgPool,
                                         Op::kGlobalAvgPool),
                         [](const auto& op) { return std::string(Name(op.param)); });
INSTANTIATE_TEST_SUITE_P(Elements, Canaries, testing::Values(Op::kRescale, Op::kAdd, Op::kMul),
                         [](const auto& op) { return std::string(Name(op.param)); });

}  // namespace
}  // namespace qualm::fuzz
