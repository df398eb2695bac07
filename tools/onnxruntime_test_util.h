// SPDX-License-Identifier: Apache-2.0
// The fixture for tests of ONNX Runtime, native and emulated.
#ifndef QUALM_TOOLS_ONNXRUNTIME_TEST_UTIL_H_
#define QUALM_TOOLS_ONNXRUNTIME_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/registry.h"
#include "core/io/golden.h"
#include "core/status.h"
#include "core/subject.h"
#include "oracles/golden/judge.h"
#include "tools/drawn_contract_test_util.h"

namespace qualm {

// A fixture of one subject, skipped with the reason if the subject is absent.
class OnnxruntimeTest : public testing::Test {
 protected:
  explicit OnnxruntimeTest(std::string name) : name_(std::move(name)) {}

  void SetUp() override {
    RegisterAllSubjects();
    try {
      subject_ = SubjectRegistry::Get().Make(name_);
    } catch (const Unavailable& error) {
      GTEST_SKIP() << error.what();
    }
  }

  Subject& subject() { return *subject_; }
  // "vnni", "avx2", "sse41".
  std::string InstructionSet() { return subject_->InstructionSet(); }

  // 129*127 + 130*127 = 32893, one pair beyond int16, by MatMulInteger.
  int32_t Pair() {
    Case c;
    c.M = c.N = 1;
    c.K = 2;
    c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{129, 130});
    c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{127, 127});
    c.out_dtype = DType::kS32;
    c.out_min = INT32_MIN;
    c.out_max = INT32_MAX;
    const Outcome outcome = subject().Run(c, {});
    EXPECT_TRUE(outcome.ok()) << outcome.detail;
    return outcome.ok() ? outcome.y.IntAt(0) : 0;
  }

  // The recordings of `isa` (of version 1.21), all at once.
  void ExpectRecordings(const std::string& isa, size_t at_least) {
    std::vector<Case> cases;
    std::vector<std::pair<std::string, std::vector<int64_t>>> wanted;
    ForEachGoldenRecord(QUALM_SOURCE_DIR "/corpus/golden/onnxruntime.jsonl",
                        [&](const GoldenRecord& record) {
                          if (record.isa != isa) return;
                          cases.push_back(GoldenCase(record));
                          wanted.emplace_back(record.where, record.Ints("y"));
                        });
    EXPECT_GE(cases.size(), at_least);
    const std::vector<Outcome> outcomes = subject().RunMany(cases, {});
    ASSERT_EQ(outcomes.size(), cases.size());
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto& [where, want] = wanted[i];
      ASSERT_TRUE(outcomes[i].ok()) << where << ": " << outcomes[i].detail;
      ASSERT_EQ(outcomes[i].y.size(), static_cast<int64_t>(want.size())) << where;
      for (size_t k = 0; k < want.size(); ++k) {
        ASSERT_EQ(outcomes[i].y.IntAt(static_cast<int64_t>(k)), want[k])
            << where << " y[" << k << "]";
      }
    }
  }

  // Judges drawn cases under the subject's own contract.
  void ExpectContract(std::vector<Op> ops, int64_t cases, int64_t passed_at_least) {
    qualm::ExpectContract({.subject = name_,
                           .ops = std::move(ops),
                           .cases = cases,
                           .judged = passed_at_least,
                           .adapt = false});
  }

 private:
  std::string name_;
  std::unique_ptr<Subject> subject_;
};

}  // namespace qualm

#endif  // QUALM_TOOLS_ONNXRUNTIME_TEST_UTIL_H_
