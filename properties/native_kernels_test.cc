// SPDX-License-Identifier: Apache-2.0
// Our own kernels, judged as `qualm check` judges anybody's: drawn cases, all properties, exact
// answers of the oracle. One test per operation and instruction set of this machine,
// Judged/linear_AVX2. What no case can say of a kernel (memory that a call may not touch, threads,
// packing, refusals) is tested beside it, in kernels/.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "core/op.h"
#include "core/subject.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"

namespace qualm {
namespace {

struct Kernel {
  Op op;
  std::string subject;          // native@avx2
  std::string instruction_set;  // AVX2
};
void PrintTo(const Kernel& kernel, std::ostream* out) {
  *out << Name(kernel.op) << " of " << kernel.subject;
}

std::vector<Kernel> Kernels(bool (*of)(Op)) {
  RegisterAllSubjects();
  std::vector<Kernel> kernels;
  for (const std::string& name : SubjectRegistry::Get().Expand("native@all")) {
    const std::string instruction_set = SubjectRegistry::Get().Make(name)->InstructionSet();
    for (const Op op : OpsWhere(of)) kernels.push_back({op, name, instruction_set});
  }
  return kernels;
}

// And those of weights that have a subject of their own.
constexpr std::array<std::string_view, 3> kOfWeights{"+q4_k", "+nbits4", "+nbits8"};
std::vector<Kernel> JudgedKernels() {
  std::vector<Kernel> kernels = Kernels([](Op) { return true; });
  for (const Kernel& kernel : Kernels([](Op op) { return op == Op::kLinear; })) {
    for (const std::string_view weights : kOfWeights)
      kernels.push_back({kernel.op, kernel.subject + std::string(weights),
                         kernel.instruction_set + "_" + std::string(weights.substr(1))});
  }
  return kernels;
}

class Judged : public testing::TestWithParam<Kernel> {};

TEST_P(Judged, ByEveryProperty) {
  const Kernel& kernel = GetParam();
  CheckOptions options;
  options.subjects = {kernel.subject};
  options.ops = {kernel.op};
  options.seed = 36;
  options.adapt = kernel.subject.find('+') != std::string::npos;  // no case is drawn in these
  options.cases = QUALM_KERNEL_CASES;
  const CheckResult result = Check(options);
  for (const Finding& finding : result.findings) {
    ADD_FAILURE() << finding.full_property() << ": " << finding.explanation << "\n"
                  << CaseToJson(finding.test_case);
  }
  // A kernel that refuses what is drawn is not judged. Ours have no codes of 16 bits, which a tenth
  // of the cases of three operations have.
  const auto judged = result.judged.find({kernel.subject, kernel.op});
  ASSERT_NE(judged, result.judged.end());
  const bool draws_wide =
      kernel.op == Op::kQuantize || kernel.op == Op::kDequantize || kernel.op == Op::kRequantize;
  EXPECT_GE(judged->second, QUALM_KERNEL_CASES * (draws_wide ? 8 : 9) / 10);
}

// Products of blocks are sums in float32: no contract but `sum` judges them.
class JudgedInBlocks : public testing::TestWithParam<Kernel> {};

TEST_P(JudgedInBlocks, BySums) {
  const Kernel& kernel = GetParam();
  const auto subjects = MakeSubjects({kernel.subject}, "sum");
  CheckResult result;
  int64_t narrow = 0, lowest = 0;
  for (uint64_t seed = 0; seed < QUALM_KERNEL_CASES / 2; ++seed) {
    const std::optional<Case> c = gen::XInBlocks(gen::Draw(kernel.op, seed), seed, true);
    if (!c) continue;
    ASSERT_EQ(subjects.front()->CannotRun(*c), "");
    CheckCase(*c, {subjects.front().get()}, "*", result, {});
    narrow += BitsOf(c->w.dtype()) == 4 ? 1 : 0;
    for (int64_t i = 0; i < c->x.size(); ++i) lowest += c->x.IntAt(i) == -128 ? 1 : 0;
  }
  for (const Finding& finding : result.findings) {
    ADD_FAILURE() << finding.full_property() << ": " << finding.explanation << "\n"
                  << CaseToJson(finding.test_case);
  }
  EXPECT_GE(
      result.by_property[std::string(Name(kernel.op)) + ".matches_model"].of(Judgement::kPassed),
      QUALM_KERNEL_CASES * 4 / 10);
  EXPECT_GT(narrow, QUALM_KERNEL_CASES / 10);
  EXPECT_GT(lowest, QUALM_KERNEL_CASES / 10);
}

std::string NameOf(const testing::TestParamInfo<Kernel>& info) {
  return std::string(Name(info.param.op)) + "_" + info.param.instruction_set;
}
INSTANTIATE_TEST_SUITE_P(Kernels, Judged, testing::ValuesIn(JudgedKernels()), NameOf);
INSTANTIATE_TEST_SUITE_P(Kernels, JudgedInBlocks, testing::ValuesIn(Kernels(SumsXInBlocks)),
                         NameOf);

}  // namespace
}  // namespace qualm
