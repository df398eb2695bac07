// SPDX-License-Identifier: Apache-2.0
#include "core/io/certificate_json.h"

#include <gtest/gtest.h>

#include "core/io/json_schema_test_util.h"
#include "core/status.h"
#include "core/text_test_util.h"

namespace qualm {
namespace {

Certificate Example() {
  Certificate c;
  c.qualm = "0.1.0";
  c.compiler = "clang 19.1.7";
  c.subject = "faulty:one-tie";
  c.instruction_set = "scalar";
  c.contract = "exact";
  Case problem;
  problem.op = Op::kRequantize;
  problem.M = problem.N = 1;
  problem.x = Tensor(DType::kS32, {1, 1});
  problem.multiplier = {0.5f};
  c.problems = {problem};
  c.scales = Certificate::Scales{0.5f, 0x1.8p-1f, 3};
  c.zero_points = Certificate::ZeroPoints{-1, 7};
  c.method = Certificate::Method::kFull;
  c.monotone = "not needed";
  c.whole = 10;
  c.covered = {{0, 3}, {5, 10}};
  c.judged = 8;
  c.asked = 8;
  c.wrong = 1;
  c.first = c.worst = Certificate::Wrong{2, 17, -1, 255, 256, false, "acc 17"};
  return c;
}

std::string Refused(const std::string& text) {
  return Refusal([&] { ParseCertificate(text, "c.json"); });
}

TEST(Certificate, ReadsBackEqual) {
  Certificate c = Example();
  EXPECT_EQ(ParseCertificate(CertificateToJson(c), "c"), c);
  EXPECT_EQ(ParseCertificate(CertificateJson(c).text(), "c"), c);
  EXPECT_FALSE(c.complete());
  c.scales.reset();
  c.zero_points.reset();
  c.first.reset();
  c.worst.reset();
  c.covered = {{0, 10}};
  EXPECT_EQ(ParseCertificate(CertificateToJson(c), "c"), c);
  EXPECT_TRUE(c.complete());
}

TEST(Certificate, FitsItsSchema) {
  test::JsonSchema schema(test::ReadJsonFile(QUALM_SOURCE_DIR "/core/io/certificate.schema.json"));
  const test::Json whole = test::Json::parse(CertificateToJson(Example()));
  EXPECT_EQ(schema.Check(whole), "");
  // The schema names each member that is written, and requires what the reader requires.
  for (const auto& [key, unused] : whole.items()) {
    test::Json damaged = whole;
    damaged.erase(key);
    EXPECT_NE(schema.Check(damaged), "") << key;
    EXPECT_TRUE(Refused(damaged.dump()).starts_with("c.json: " + key + ": is missing")) << key;
  }
  Certificate bare = Example();
  bare.scales.reset();
  bare.worst.reset();
  EXPECT_EQ(schema.Check(test::Json::parse(CertificateToJson(bare))), "");
}

TEST(Certificate, RefusesWhatWasChanged) {
  const std::string text = CertificateToJson(Example());
  EXPECT_EQ(Refused(text), "");
  const std::string changed = Refused(Replaced(text, "\"wrong\": 1", "\"wrong\": 0"));
  EXPECT_TRUE(changed.starts_with("c.json: hash: is \"" + HashOf(Example()) + "\", expected \""))
      << changed;
}

TEST(Certificate, RefusesInOneLineWithTheField) {
  const std::string text = CertificateToJson(Example());
  EXPECT_TRUE(Refused("[]").starts_with("c.json: top level: "));
  EXPECT_TRUE(Refused(Replaced(text, "certificate/1", "certificate/2"))
                  .starts_with("c.json: schema: is \"qualm.certificate/2\", expected"));
  EXPECT_TRUE(Refused(Replaced(text, "\"full\"", "\"fast\""))
                  .starts_with("c.json: method: is \"fast\", expected"));
  EXPECT_TRUE(Refused(Replaced(text, "[5,10]", "[2,10]"))
                  .starts_with("c.json: covered[1][0]: is 2, expected an integer in 3..10"));
  EXPECT_TRUE(Refused(Replaced(text, "\"any_weights\": false", "\"any_weights\": 0"))
                  .starts_with("c.json: any_weights: "));
  EXPECT_TRUE(
      Refused(Replaced(text, "\"requantize\"", "\"no_op\"")).starts_with("c.json: problems[0]: "));
  EXPECT_TRUE(Refused(Replaced(text, "\"judged\": 8", "\"judged\": -8"))
                  .starts_with("c.json: judged: is -8, expected an integer in 0.."));
  EXPECT_TRUE(Refused(Replaced(text, "0x1p-1", "-0x1p-1")).starts_with("c.json: "));
}

}  // namespace
}  // namespace qualm
