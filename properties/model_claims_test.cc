// SPDX-License-Identifier: Apache-2.0
// What the models claim of themselves, on drawn cases moved into the domains of conventions.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "core/rng.h"
#include "oracles/models/model.h"
#include "properties/gen/gen.h"
#include "properties/gen/library.h"
#include "properties/list.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

TEST(ModelClaims, HoldOnDrawnCases) {
  constexpr uint64_t kCases = 60;
  for (const Model& model : AllModels()) {
    TestSubject subject(
        [&](const Case& c, const RunContext&) { return TestSubject::Good(model.run(c).y); });
    subject.cannot_run = model.cannot_run;
    subject.set_contract({model.name});
    for (const Op op : {Op::kQuantize, Op::kDequantize, Op::kRequantize, Op::kLinear, Op::kConv2d,
                        Op::kDepthwise, Op::kAdd, Op::kMul}) {
      Rng rng(static_cast<uint64_t>(op) + 1);
      int64_t taken = 0;
      std::map<std::string, int64_t> passed;
      for (uint64_t seed = 0; seed < kCases; ++seed) {
        const Case c = gen::IntoLibraryDomain(gen::Draw(op, seed), rng);
        ASSERT_EQ(Validate(c), "");
        if (!model.cannot_run(c).empty()) continue;
        ++taken;
        MemoSubject memo(subject);
        for (const Property& property : AllProperties()) {
          const bool about = std::ranges::find(property.ops, op) != property.ops.end();
          if (!about || !Satisfies(model, op, property.claim)) continue;
          const Verdict verdict = Judge(property, c, memo);
          EXPECT_FALSE(verdict.failed())
              << model.name << " " << FullName(op, property) << ": " << verdict.reason;
          passed[FullName(op, property)] += verdict.judgement == Judgement::kPassed ? 1 : 0;
        }
      }
      for (const auto& [claim, count] : passed) {
        // A claim that nothing was tried on is no evidence.
        if (taken >= 20) {
          EXPECT_GT(count, 0) << model.name << " " << claim;
        }
      }
    }
  }
}

// A name that no property has would never be judged. PyTorch's engines repeat what each part claims
// for the operations that the part computes, whether the property speaks of them or not.
TEST(ModelClaims, NameProperties) {
  for (const Model& model : AllModels()) {
    for (const std::string& claim : model.satisfies) {
      const std::string bare = claim.substr(claim.find('.') + 1);
      const bool composed = model.name.starts_with("torch-");
      EXPECT_NE(FindProperty(composed ? bare : claim), nullptr) << model.name << " " << claim;
    }
  }
}

}  // namespace
}  // namespace qualm
