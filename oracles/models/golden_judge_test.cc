// SPDX-License-Identifier: Apache-2.0
// Every recording in the corpus, bit for bit; and records that lie.
#include "oracles/models/golden_judge.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <map>

#include "oracles/models/model.h"

namespace qualm {
namespace {

struct Count {
  int64_t passed = 0, failed = 0, skipped = 0, outputs = 0;
};

const std::string kCorpus = std::string(QUALM_SOURCE_DIR) + "/corpus/golden";

TEST(GoldenJudgeTest, EveryRecordOfAKnownOpIsReproduced) {
  std::map<std::string, Count> by_model;
  std::map<std::string, int64_t> skips;
  int64_t failures = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) {
    if (entry.path().extension() != ".jsonl") continue;
    Count file;
    ForEachGoldenRecord(entry.path().string(), [&](const GoldenRecord& record) {
      const GoldenVerdict verdict = JudgeGolden(record);
      Count& model = by_model[verdict.model];
      switch (verdict.verdict.judgement) {
        case Judgement::kPassed:
          ++file.passed;
          ++model.passed;
          file.outputs += verdict.outputs;
          model.outputs += verdict.outputs;
          break;
        case Judgement::kSkipped:
          ++file.skipped;
          ++skips[verdict.verdict.reason];
          break;
        default:
          ++file.failed;
          if (++failures <= 20) ADD_FAILURE() << verdict.verdict.reason;
      }
    });
    std::cout << entry.path().filename().string() << ": passed " << file.passed << ", failed "
              << file.failed << ", skipped " << file.skipped << ", outputs " << file.outputs
              << "\n";
  }
  EXPECT_EQ(failures, 0);
  for (const auto& [model, count] : by_model) {
    std::cout << model << ": " << count.passed << " records, " << count.outputs << " outputs\n";
  }
  for (const auto& [reason, count] : skips)
    std::cout << "skipped " << count << ": " << reason << "\n";
}

}  // namespace
}  // namespace qualm
