// SPDX-License-Identifier: Apache-2.0
// The installed PyTorch against what the models say of it: recordings once more, and drawn cases
// under its own contract.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/io/golden.h"
#include "core/status.h"
#include "core/subject.h"
#include "oracles/models/golden_judge.h"
#include "properties/engine.h"

namespace qualm {
namespace {

class Torch : public testing::Test {
 protected:
  void SetUp() override {
    // No answer is timed here, and the machine may be busy.
    setenv("QUALM_TIME_LIMIT_MS", "300000", 1);
    RegisterAllSubjects();
    const auto kinds = SubjectRegistry::Get().kinds();
    const auto kind = std::ranges::find(kinds, "torch", &SubjectKind::kind);
    ASSERT_NE(kind, kinds.end());
    if (!kind->why_absent.empty()) GTEST_SKIP() << kind->why_absent;
  }

  // nullptr, with the reason printed, where this CPU lacks the instruction set.
  static std::unique_ptr<Subject> Make(const std::string& name) {
    try {
      return SubjectRegistry::Get().Make(name);
    } catch (const Unavailable& error) {
      GTEST_LOG_(WARNING) << "not checked here: " << error.what();
      return nullptr;
    }
  }

  // All properties that the contract makes theorems, on drawn cases of every operation.
  static void CheckDrawn(const std::string& name) {
    const std::unique_ptr<Subject> subject = Make(name);
    if (subject == nullptr) GTEST_SKIP() << name << " cannot be had here";
    ExpectNoFindings(
        name,
        {Op::kQuantize, Op::kDequantize, Op::kLinear, Op::kDepthwise, Op::kAdd, Op::kMul,
         Op::kMaxPool, Op::kConcat, Op::kTable, Op::kSoftmax, Op::kChooseQParams},
        200);
    // Few convolutions have types, padding and bias as PyTorch has them.
    ExpectNoFindings(name, {Op::kConv2d}, 2000);
  }

  static void ExpectNoFindings(const std::string& name, const std::vector<Op>& ops, int64_t cases) {
    CheckOptions options;
    options.subjects = {name};
    // Declared is what properties name the kind of themselves.
    options.attribute = [](const Case&, const Verdict& verdict, Subject&) {
      return verdict.kind.value_or(FindingKind::kUnknown);
    };
    options.ops = ops;
    options.cases = cases;
    const CheckResult result = Check(options);
    for (const Finding& finding : result.findings) {
      if (finding.expected_by_contract) continue;  // declared in adapters/contracts.cc
      ADD_FAILURE() << name << " " << finding.property << ": " << finding.explanation;
    }
    for (const Op op : ops) {
      const auto at = result.by_property.find(std::string(Name(op)) + ".matches_model");
      ASSERT_NE(at, result.by_property.end()) << Name(op);
      EXPECT_GE(at->second.of(Judgement::kPassed), 4) << name << " " << at->first;
    }
  }
};

TEST_F(Torch, SaysWhatItIs) {
  const std::unique_ptr<Subject> qnnpack = Make("torch@qnnpack");
  ASSERT_NE(qnnpack, nullptr);
  EXPECT_EQ(qnnpack->contract().text(), "model:torch-qnnpack");
  EXPECT_EQ(qnnpack->Version().substr(0, 8), "PyTorch ");
  for (const char* isa : {"sse41", "avx2"}) {
    const std::unique_ptr<Subject> onednn = Make("torch@onednn+" + std::string(isa));
    if (onednn == nullptr) continue;
    EXPECT_EQ(onednn->InstructionSet(), isa);
    EXPECT_EQ(onednn->contract().text(), "model:torch-onednn@" + std::string(isa));
  }
  EXPECT_THROW(SubjectRegistry::Get().Make("torch@fbgemm"), InputError);
}

// Recordings of another machine's PyTorch 1.13.1: both engines' operators are called as they were.
TEST_F(Torch, RepeatsItsRecordings) {
  const std::unique_ptr<Subject> qnnpack = Make("torch@qnnpack");
  ASSERT_NE(qnnpack, nullptr);
  std::map<std::string, int> repeated;
  ForEachGoldenRecord(QUALM_SOURCE_DIR "/corpus/golden/torch_qnnpack.jsonl",
                      [&](const GoldenRecord& record) {
                        if (!GoldenHasCase(record) || repeated[record.op] == 30) return;
                        const Case c = GoldenCase(record);
                        if (!c.observed || !qnnpack->CannotRun(c).empty()) return;
                        const Outcome outcome = qnnpack->Run(c, {});
                        ASSERT_TRUE(outcome.ok()) << record.where << ": " << outcome.detail;
                        EXPECT_EQ(outcome.y, c.observed->y) << record.where;
                        ++repeated[record.op];
                      });
  for (const char* op : {"linear", "conv2d", "add", "quantize"}) EXPECT_GE(repeated[op], 10) << op;
}

TEST_F(Torch, QnnpackKeepsItsContract) { CheckDrawn("torch@qnnpack"); }
TEST_F(Torch, OnednnKeepsItsContract) { CheckDrawn("torch@onednn"); }
TEST_F(Torch, OnednnOnAvx2KeepsItsContract) { CheckDrawn("torch@onednn+avx2"); }

}  // namespace
}  // namespace qualm
