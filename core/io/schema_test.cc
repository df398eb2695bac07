// SPDX-License-Identifier: Apache-2.0
// The committed JSON Schemas describe what is really read and written.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "core/io/case_fields.h"
#include "core/io/case_json.h"
#include "core/io/json_schema_test_util.h"
#include "core/io/result_json.h"
#include "core/random_case_test_util.h"

namespace qualm {
namespace {

using test::Json;
using test::JsonSchema;

Json ReadSchema(const std::string& name) {
  return test::ReadJsonFile(QUALM_SOURCE_DIR "/core/io/" + name);
}

TEST(CaseSchema, DeclaresExactlyTheKeysOfTheReader) {
  const Json schema = ReadSchema("case.schema.json");
  std::set<std::string> declared, known;
  for (const auto& [key, unused] : schema["properties"].items()) declared.insert(key);
  for (const auto& [key, unused] : schema["properties"]["observed"]["properties"].items()) {
    declared.insert("observed." + key);
  }
  for (size_t i = 0; i < kCaseKeys; ++i) {
    known.insert(std::string(FieldName(static_cast<CaseKey>(i))));
  }
  EXPECT_EQ(declared, known);
}

TEST(CaseSchema, WrittenCasesAreValid) {
  JsonSchema schema(ReadSchema("case.schema.json"));
  test::RandomCase draw(99);
  for (const Op op : AllOps()) {
    for (int i = 0; i < 200; ++i) {
      const std::string text = CaseToJson(draw.DrawWhole(op));
      ASSERT_EQ(schema.Check(Json::parse(text)), "") << text;
    }
  }
}

// Schema and reader agree about the value of each field: this test damages one key of a written
// case at a time and compares.
TEST(CaseSchema, AgreesWithTheReaderAboutDamage) {
  JsonSchema schema(ReadSchema("case.schema.json"));
  const std::vector<Json> junk = {
      nullptr, true, 2, -1, 2.5, "text", "0x1p+0", Json::array(), Json::object(), 3000000000};
  // The reader compares fields with each other, so it may refuse more than the schema, never less.
  test::RandomCase draw(5);
  int both_refuse = 0;
  for (const Op op : AllOps()) {
    for (int i = 0; i < 2; ++i) {
      const Case c = draw.DrawWhole(op);
      const Json written = Json::parse(CaseToJson(c));
      for (size_t key = 0; key < static_cast<size_t>(CaseKey::kObservedBy); ++key) {
        for (const Json& value : junk) {
          Json damaged = written;
          damaged[std::string(FieldName(static_cast<CaseKey>(key)))] = value;
          const std::string verdict = schema.Check(damaged);
          if (verdict.empty()) continue;
          EXPECT_THROW(ParseCase(damaged.dump(), "f"), InputError) << verdict << "\n"
                                                                   << damaged.dump();
          ++both_refuse;
        }
      }
    }
  }
  EXPECT_GT(both_refuse, 1000);
}

// The dictionary from which a byte-oriented fuzzer builds case files.
TEST(CaseSchema, TheDictionaryHasEveryKeyAndOperation) {
  std::ifstream file(QUALM_SOURCE_DIR "/fuzz/case_reader.dict");
  const std::string words(std::istreambuf_iterator<char>(file), {});
  const auto has = [&](std::string_view word) {
    return words.find("\"\\\"" + std::string(word) + "\\\"\"\n") != std::string::npos;
  };
  EXPECT_FALSE(has("no such word"));
  for (const Op op : AllOps()) EXPECT_TRUE(has(Name(op))) << Name(op);
  for (size_t i = 0; i < kCaseKeys; ++i) {
    const std::string_view name = FieldName(static_cast<CaseKey>(i));
    EXPECT_TRUE(has(name.substr(name.find('.') + 1))) << name;
  }
}

// The page promises a complete example.
TEST(CaseSchema, TheDocumentedExampleIsACase) {
  std::ifstream file(QUALM_SOURCE_DIR "/docs/case-format.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  const size_t begin = page.find("```json\n");
  ASSERT_NE(begin, std::string::npos);
  const std::string example = page.substr(begin + 8, page.find("```", begin + 8) - begin - 8);
  const Case c = ParseCase(example, "docs/case-format.md");
  EXPECT_EQ(Describe(c), "linear M=1 N=1 K=2 u8*s8->u8 per-tensor");
  const Json text = Json::parse(example, nullptr, true, /*ignore_comments=*/true);
  EXPECT_EQ(JsonSchema(ReadSchema("case.schema.json")).Check(text), "");
  for (size_t i = 0; i < kCaseKeys; ++i) {
    const std::string name(FieldName(static_cast<CaseKey>(i)));
    const std::string key = name.starts_with("observed.") ? name.substr(9) : name;
    const bool named = page.find("`" + key + "`") != std::string::npos ||
                       page.find("\"" + key + "\"") != std::string::npos;
    EXPECT_TRUE(named) << name << " is not on the page";
  }
}

// Every committed case is the same after reading, writing and reading again, and fits the schema.
TEST(CaseSchema, CommittedCasesAreValid) {
  JsonSchema schema(ReadSchema("case.schema.json"));
  std::set<std::string> threads;
  for (const std::string folder : {"forum", "regressions", "causes"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(QUALM_SOURCE_DIR "/corpus/" + folder)) {
      if (!entry.path().string().ends_with(".case.json")) continue;
      const Case c = ReadCaseFile(entry.path());
      EXPECT_TRUE(ParseCase(CaseToJson(c), "f") == c) << entry.path();
      EXPECT_NE(c.note, "") << entry.path();
      std::ifstream file(entry.path());
      EXPECT_EQ(schema.Check(Json::parse(file, nullptr, true, /*ignore_comments=*/true)), "")
          << entry.path();
      if (folder != "forum") continue;
      EXPECT_TRUE(c.observed.has_value()) << entry.path();
      threads.insert(entry.path().filename().string().substr(0, 3) + " " + std::string(Name(c.op)));
    }
  }
  EXPECT_EQ(threads, (std::set<std::string>{"000 linear", "001 quantize", "002 linear",
                                            "003 conv2d", "004 add"}));
}

TEST(ResultSchema, WrittenResultsAreValid) {
  const Json schema = ReadSchema("result.schema.json");
  ResultDocument document;
  EXPECT_EQ(JsonSchema(schema).Check(Json::parse(ResultToJson(document))), "");
  document.seed = 5;
  document.command = "qualm check";
  document.subjects = {{"native", "exact"}};
  document.totals = {{"cases", 3}};
  document.extra = {{"list", JsonList().Add(JsonObject{{"name", "native"}, {"about", "ours"}})}};
  for (int kind = 0; kind <= static_cast<int>(FindingKind::kUnknown); ++kind) {
    Verdict verdict = Verdict::Failed("", Divergence{kind, "1", "0x1p+0", 0.5});
    verdict.kind = static_cast<FindingKind>(kind);
    document.findings.emplace_back("", "", "", verdict);
  }
  document.known = {{document.findings[0].fingerprint(), {"baseline", "", ""}},
                    {document.findings[1].fingerprint(), {"suppression", "why", "2027-01-01"}}};
  const Json written = Json::parse(ResultToJson(document));
  EXPECT_EQ(written["findings"][0]["known"], Json({{"by", "baseline"}}));
  EXPECT_EQ(written["findings"][1]["known"]["reason"], "why");
  EXPECT_FALSE(written["findings"][2].contains("known"));
  EXPECT_EQ(JsonSchema(schema).Check(written), "");
  for (const auto& [key, unused] : written.items()) {
    Json damaged = written;
    damaged.erase(key);
    EXPECT_EQ(JsonSchema(schema).Check(damaged).empty(), key == "list") << key;
  }
}

}  // namespace
}  // namespace qualm
