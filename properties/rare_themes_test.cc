// SPDX-License-Identifier: Apache-2.0
// Faults that need the sizes of a layer or the edge of a parameter: the rare themes exist for
// these. `check` finds each fault within the stated number of cases; as many cases of all other
// themes do not find it.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "adapters/registry.h"
#include "core/subject.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "properties/property.h"

namespace qualm {
namespace {

constexpr uint64_t kSeed = 1;

struct Hidden {
  const char* fault;
  Op op;
  gen::Theme theme;
  int64_t cases;  // of `qualm check --seed 1`
};

class RareThemes : public testing::TestWithParam<Hidden> {};

TEST_P(RareThemes, FindWhatOthersDoNot) {
  const Hidden& hidden = GetParam();
  RegisterAllSubjects();
  const std::unique_ptr<Subject> subject =
      SubjectRegistry::Get().Make(std::string("faulty:") + hidden.fault);
  const Property& exact = *FindProperty("matches_exact");
  int64_t by_theme = 0, by_others = 0, first = -1;
  for (int64_t i = 0; i < hidden.cases; ++i) {
    const uint64_t seed = CaseSeed(kSeed, hidden.op, i);
    const gen::Theme theme = gen::ThemeOf(hidden.op, seed);
    const bool rare = theme == hidden.theme;
    // Theirs are sizes of layers too.
    if (!rare && gen::HasSizesOfLayers(theme)) continue;
    if (rare && by_theme > 0) continue;  // one is enough
    if (!Judge(exact, gen::Draw(hidden.op, seed), *subject).failed()) continue;
    ++(rare ? by_theme : by_others);
    if (first < 0) first = i;
  }
  RecordProperty("first", std::to_string(first));
  EXPECT_GE(by_theme, 1);
  EXPECT_EQ(by_others, 0) << "first at case " << first;
}

INSTANTIATE_TEST_SUITE_P(
    Faults, RareThemes,
    testing::Values(Hidden{"bias-per-k-block", Op::kLinear, gen::Theme::kLayer, 8000},
                    Hidden{"channel-index-u8", Op::kLinear, gen::Theme::kLayer, 8000},
                    Hidden{"row-index-u8", Op::kLinear, gen::Theme::kLayer, 8000},
                    Hidden{"deep-channel-tap", Op::kConv2d, gen::Theme::kLayer, 8000},
                    Hidden{"group-block-scale", Op::kConv2d, gen::Theme::kLayer, 8000},
                    Hidden{"element-index-u16", Op::kAdd, gen::Theme::kLayer, 8000},
                    Hidden{"chunk-edge", Op::kQuantize, gen::Theme::kLayer, 8000},
                    Hidden{"softmax-row-block", Op::kSoftmax, gen::Theme::kLayer, 8000},
                    Hidden{"image-row-buffer", Op::kMaxPool, gen::Theme::kLayer, 8000},
                    Hidden{"observer-first-block", Op::kChooseQParams, gen::Theme::kLayer, 8000},
                    Hidden{"power-shift-wraps", Op::kRequantize, gen::Theme::kParameterEdges, 8000},
                    Hidden{"negated-term-int32", Op::kLinear, gen::Theme::kParameterEdges, 8000}),
    [](const testing::TestParamInfo<Hidden>& instance) {
      std::string name = instance.param.fault;
      std::erase(name, '-');
      return name;
    });

}  // namespace
}  // namespace qualm
