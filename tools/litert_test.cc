// SPDX-License-Identifier: Apache-2.0
// TensorFlow Lite as LiteRT's wheel has it against its conventions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "core/io/golden.h"
#include "core/status.h"
#include "core/subject.h"
#include "oracles/golden/judge.h"
#include "properties/adapt.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "tools/drawn_contract_test_util.h"

namespace qualm {
namespace {

class Litert : public testing::Test {
 protected:
  void SetUp() override {
    setenv("QUALM_TIME_LIMIT_MS", "300000", 1);  // no answer is timed, and the machine may be busy
    RegisterAllSubjects();
    const auto kinds = SubjectRegistry::Get().kinds();
    const auto kind = std::ranges::find(kinds, "tflite", &SubjectKind::kind);
    ASSERT_NE(kind, kinds.end());
    if (!kind->why_absent.empty()) GTEST_SKIP() << kind->why_absent;
  }

  static void CheckDrawn(const std::string& name) {
    const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make(name);
    std::vector<Op> ops;
    for (const Op op : AllOps()) {
      if (subject->Offers(op)) ops.push_back(op);
    }
    ASSERT_GE(ops.size(), 11u);
    // Few concats are of one model.
    ExpectContract({.subject = name,
                    .ops = ops,
                    .cases = 200,
                    .judged = 20,
                    .fewer = {{Op::kConcat, 2}},
                    .declared = false});
  }
};

TEST_F(Litert, SaysWhatItIs) {
  const auto contract = [](const std::string& name, Op op) {
    return SubjectRegistry::Get().Make(name)->contracts().of(op).text();
  };
  EXPECT_EQ(contract("tflite@reference", Op::kLinear), "model:tflite@reference");
  EXPECT_EQ(contract("tflite@builtin", Op::kLinear), "model:tflite@builtin");
  EXPECT_TRUE(contract("tflite", Op::kLinear).starts_with("model:xnnpack2026@avx"));
  EXPECT_TRUE(SubjectRegistry::Get().Make("tflite")->Version().starts_with("LiteRT "));
  EXPECT_THROW(SubjectRegistry::Get().Make("tflite@gpu"), InputError);
}

TEST_F(Litert, ReferenceKeepsItsConvention) { CheckDrawn("tflite@reference"); }
TEST_F(Litert, BuiltinKeepsItsConvention) { CheckDrawn("tflite@builtin"); }
TEST_F(Litert, XnnpackKeepsItsConvention) { CheckDrawn("tflite"); }

// 16x8, of which the drawn cases above have few.
TEST_F(Litert, SixteenByEightKeepsItsConvention) {
  const Property& model = *FindProperty("matches_model");
  for (const char* name : {"tflite@reference", "tflite@builtin"}) {
    const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make(name);
    for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise}) {
      int judged = 0;
      for (uint64_t seed = 0; seed < 60; ++seed) {
        const std::optional<Case> c = AdaptTo(*subject, *gen::WithWideCodes(op, seed));
        if (!c || !HasWideCodes(*c)) continue;
        const Verdict verdict = Judge(model, *c, *subject);
        EXPECT_FALSE(verdict.failed()) << name << " " << Describe(*c) << ": " << verdict.reason;
        judged += verdict.judgement == Judgement::kPassed ? 1 : 0;
      }
      EXPECT_GE(judged, 30) << name << " " << Name(op);
    }
  }
}

// Weights of 4 and 2 bits, of which the drawn cases above have few. XNNPACK takes none of an odd K.
TEST_F(Litert, NarrowWeightsKeepTheirConvention) {
  const Property& model = *FindProperty("matches_model");
  for (const char* name : {"tflite@reference", "tflite@builtin", "tflite"}) {
    const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make(name);
    std::map<DType, int> judged;
    for (uint64_t seed = 0; seed < 2400; ++seed) {
      const Case drawn = gen::Draw(Op::kLinear, seed);
      if (BitsOf(drawn.w.dtype()) == 8) continue;
      const std::optional<Case> c = AdaptTo(*subject, drawn);
      if (!c || BitsOf(c->w.dtype()) == 8) continue;
      const Verdict verdict = Judge(model, *c, *subject);
      EXPECT_FALSE(verdict.failed()) << name << " " << Describe(*c) << ": " << verdict.reason;
      judged[c->w.dtype()] += verdict.judgement == Judgement::kPassed ? 1 : 0;
    }
    EXPECT_GE(judged[DType::kS4], 10) << name;
    EXPECT_GE(judged[DType::kS2], 3) << name;
  }
}

// The forum's question: no output turns back.
TEST_F(Litert, TheSweepOfTheForumIsMonotone) {
  const Case c = ReadCaseFile(QUALM_SOURCE_DIR "/corpus/forum/000-linear-sweep.case.json");
  for (const char* name : {"tflite@reference", "tflite@builtin", "tflite"}) {
    const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make(name);
    const Outcome outcome = subject->Run(c, {});
    ASSERT_TRUE(outcome.ok()) << name << ": " << outcome.detail;
    for (int64_t n = 0; n < c.N; ++n) {
      bool up = false, down = false;
      for (int64_t m = 1; m < c.M; ++m) {
        const int32_t step = outcome.y.IntAt(m * c.N + n) - outcome.y.IntAt((m - 1) * c.N + n);
        up = up || step > 0;
        down = down || step < 0;
      }
      EXPECT_FALSE(up && down) << name << " output " << n;
    }
  }
}

TEST_F(Litert, RepeatsItsRecordings) {
  const std::map<std::string, std::string> names{{"reference", "tflite@reference"},
                                                 {"builtin", "tflite@builtin"},
                                                 {"xnnpack@avx512", "tflite"}};
  std::map<std::string, std::unique_ptr<Subject>> subjects;
  for (const auto& [isa, name] : names) subjects[isa] = SubjectRegistry::Get().Make(name);
  std::map<std::string, int> repeated;
  ForEachGoldenRecord(QUALM_SOURCE_DIR "/corpus/golden/litert.jsonl",
                      [&](const GoldenRecord& record) {
                        Subject& subject = *subjects.at(record.isa);
                        if (record.isa.starts_with("xnnpack@") &&
                            !subject.contracts().of(Op::kLinear).text().ends_with("@avx512"))
                          return;
                        const Case c = GoldenCase(record);
                        const Outcome outcome = subject.Run(c, {});
                        ASSERT_TRUE(outcome.ok()) << record.where << ": " << outcome.detail;
                        EXPECT_EQ(outcome.y, c.observed->y) << record.where;
                        ++repeated[record.isa];
                      });
  EXPECT_GE(repeated["reference"], 100);
  EXPECT_GE(repeated["builtin"], 100);
}

}  // namespace
}  // namespace qualm
