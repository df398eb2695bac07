// SPDX-License-Identifier: Apache-2.0
// The compilers of StableHLO's quantized types as their wheels have them, against the convention
// that they share.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/status.h"
#include "core/subject.h"
#include "properties/engine.h"

namespace qualm {
namespace {

// A program is compiled for each case.
struct Compiler {
  const char* name;
  const char* version;
  int cases, judged;
};

class Stablehlo : public testing::TestWithParam<Compiler> {
 protected:
  void SetUp() override {
    setenv("QUALM_TIME_LIMIT_MS", "300000", 1);  // no answer is timed, and the machine may be busy
    RegisterAllSubjects();
    const auto kinds = SubjectRegistry::Get().kinds();
    const auto kind = std::ranges::find(kinds, GetParam().name, &SubjectKind::kind);
    ASSERT_NE(kind, kinds.end());
    if (!kind->why_absent.empty()) GTEST_SKIP() << kind->why_absent;
    try {
      subject_ = SubjectRegistry::Get().Make(GetParam().name);
    } catch (const Unavailable& error) {
      GTEST_SKIP() << error.what();
    }
  }

  std::unique_ptr<Subject> subject_;
};

TEST_P(Stablehlo, KeepsTheConvention) {
  EXPECT_EQ(subject_->contracts().of(Op::kLinear).text(), "model:stablehlo");
  EXPECT_TRUE(subject_->Version().starts_with(GetParam().version)) << subject_->Version();
  CheckOptions options;
  options.subjects = {GetParam().name};
  options.attribute = [](const Case&, const Verdict& verdict, Subject&) {
    return verdict.kind.value_or(FindingKind::kUnknown);
  };
  options.ops = {Op::kDequantize, Op::kRequantize, Op::kRescale, Op::kLinear};
  options.cases = GetParam().cases;
  options.adapt = true;
  const CheckResult result = Check(options);
  for (const Finding& finding : result.findings)
    ADD_FAILURE() << finding.property << ": " << finding.explanation;
  for (const Op op : options.ops) {
    const auto at = result.by_property.find(std::string(Name(op)) + ".matches_model");
    ASSERT_NE(at, result.by_property.end()) << Name(op);
    EXPECT_GE(at->second.of(Judgement::kPassed), GetParam().judged) << at->first;
  }
}

INSTANTIATE_TEST_SUITE_P(Compilers, Stablehlo,
                         testing::Values(Compiler{"jax", "XLA through JAX 0.", 50, 20},
                                         Compiler{"iree", "IREE 3.", 15, 5}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace qualm
