// SPDX-License-Identifier: Apache-2.0
#include "core/io/result_reader.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/io/result_json.h"
#include "core/status.h"
#include "core/text_test_util.h"

namespace qualm {
namespace {

TEST(ResultReader, ReadsBackWhatIsWritten) {
  Case c;
  c.op = Op::kAdd;
  Finding finding(c, "matches_exact", "onednn@avx2",
                  Verdict::Failed("departs", Divergence{7, "1", "-2", 3}), "x.case.json");
  finding.explanation = "departs; because";
  ResultDocument document;
  document.command = "qualm check";
  document.subjects = {{"onednn@avx2", "model:onednn2@avx2"}};
  document.findings = {finding};
  document.known[finding.fingerprint()] = {"suppression", "issue 7", "2027-06-30"};
  document.totals["cases"] = 5;
  document.seconds = 1.5;
  document.extra = {{"run", JsonObject{{"version", "0.1.0"}, {"commit", std::nullopt}}},
                    {"since", JsonObject{{"date", "then"},
                                         {"appeared", std::vector<std::string>{"a"}},
                                         {"gone", std::vector<std::string>{}}}}};
  const ResultRecord record = ParseResult(ResultToJson(document), "r.json");
  EXPECT_EQ(record.command, "qualm check");
  EXPECT_EQ(record.totals.at("cases"), 5);
  EXPECT_EQ(record.seconds, 1.5);
  EXPECT_EQ(record.run.version, "0.1.0");
  EXPECT_EQ(record.run.commit, "");
  EXPECT_EQ(record.subjects, document.subjects);
  EXPECT_EQ(record.since->appeared, std::vector<std::string>{"a"});
  ASSERT_EQ(record.findings.size(), 1u);
  const RecordedFinding& read = record.findings.front();
  EXPECT_EQ(read.fingerprint, finding.fingerprint());
  EXPECT_EQ(read.claim, "matches_exact");
  EXPECT_EQ(read.divergence, finding.first_divergence);
  EXPECT_EQ(read.known, "suppressed until 2027-06-30: issue 7");
  EXPECT_FALSE(read.is_new());
}

TEST(ResultReader, NamesTheFieldThatIsWrong) {
  const auto message = [](const std::string& text) {
    return Refusal([&] { ParseResult(text, "r.json"); });
  };
  const std::string head = R"({"schema":"qualm.result/1","command":"","seconds":0,"totals":{})";
  EXPECT_EQ(message(head + "}"), "");
  EXPECT_EQ(message(R"({"schema":"qualm.case/1"})").find("r.json: schema: is "), 0u);
  EXPECT_EQ(message(head + R"(,"verdicts":[{"subject":"s","op":"add","counts":{"passed":-1}}]})")
                .find("r.json: verdicts[0].counts.passed: "),
            0u);
  const std::string unjudged = R"(,"unjudged":[{"subject":"s","op":"add","missing":)";
  EXPECT_EQ(message(head + unjudged + "true}]}"), "");
  EXPECT_EQ(message(head + unjudged + "1}]}").find("r.json: unjudged[0].missing: is no boolean"),
            0u);
  EXPECT_EQ(message(head + R"(,"findings":[{}]})").find("r.json: findings[0].fingerprint: "), 0u);
  EXPECT_EQ(message(head + R"(,"run":7})").find("r.json: run: "), 0u);
}

// What passes where nobody judged the numbers (memory, say) is no pass of the operation.
TEST(ResultReader, NothingPassedWhereNothingWasJudged) {
  const ResultRecord record =
      ParseResult(R"({"schema":"qualm.result/1","command":"","seconds":0,"totals":{},"verdicts":[)"
                  R"({"subject":"s","op":"add","counts":{"passed":3,"skipped":1}},)"
                  R"({"subject":"s","op":"sub","counts":{"passed":3}},)"
                  R"({"subject":"t","op":"add","counts":{"passed":3}}],"unjudged":[)"
                  R"({"subject":"s","op":"add","cases":3,"missing":true,"reason":"r"},)"
                  R"({"subject":"s","op":"mul","cases":3,"missing":false,"reason":"r"}]})",
                  "r.json");
  ASSERT_EQ(record.verdicts.size(), 3u);
  EXPECT_EQ(record.verdicts[0].counts, (std::map<std::string, int64_t>{{"skipped", 1}}));
  EXPECT_TRUE(record.verdicts[1].counts.contains("passed"));
  EXPECT_TRUE(record.verdicts[2].counts.contains("passed"));
  EXPECT_EQ(record.missing, std::vector<std::string>{"add on s"});
}

}  // namespace
}  // namespace qualm
