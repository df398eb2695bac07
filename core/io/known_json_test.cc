// SPDX-License-Identifier: Apache-2.0
#include "core/io/known_json.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "core/io/json_schema_test_util.h"
#include "core/io/result_json.h"
#include "core/status.h"
#include "core/text_test_util.h"

namespace qualm {
namespace {

using test::Json;

constexpr const char* kSuppressions = R"({
  // why the run is green
  "schema": "qualm.suppressions/1",
  "suppressions": [
    {"fingerprint": "linear.clamp-plugin:a-clamp", "reason": "issue 7", "expires": "2027-02-28"},
    {"fingerprint": "add.clamp-plugin:a-clamp", "reason": "issue 8", "expires": "2028-02-29"}
  ]
})";

// The text of a list with one entry.
std::string With(const std::string& entry) {
  return R"({"schema": "qualm.suppressions/1", "suppressions": [)" + entry + "]}";
}

template <class Parse>
std::string ErrorOf(Parse parse, const std::string& text) {
  return Refusal([&] { parse(text, "f"); });
}

TEST(KnownJson, SuppressionsAreRead) {
  const std::vector<Suppression> read = ParseSuppressions(kSuppressions, "f");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].fingerprint, "linear.clamp-plugin:a-clamp");
  EXPECT_EQ(read[0].reason, "issue 7");
  EXPECT_EQ(DateText(read[0].expires), "2027-02-28");
  EXPECT_EQ(DateText(read[1].expires), "2028-02-29");
  EXPECT_TRUE(ParseSuppressions(With(""), "f").empty());
}

TEST(KnownJson, DatesAreThoseOfTheCalendar) {
  for (const char* good : {"2027-01-31", "2028-02-29", "0001-12-01", "9999-12-31"}) {
    ASSERT_TRUE(ParseDate(good)) << good;
    EXPECT_EQ(DateText(*ParseDate(good)), good);
  }
  for (const char* bad :
       {"", "2027-02-29", "2027-13-01", "2027-00-01", "2027-01-00", "2027-01-32", "2027-1-01",
        "27-01-01", "2027/01/01", "2027-01-01 ", " 2027-01-01", "2027-01-01T00:00:00Z",
        "-027-01-01", "2027-+1-01", "tomorrow", "20270101"}) {
    EXPECT_FALSE(ParseDate(bad)) << bad;
  }
}

TEST(KnownJson, HostileSuppressionsAreOneLineWithTheField) {
  const std::string deep(200000, '[');
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "f: top level: is no JSON at byte "},
      {"[]", "f: top level: is a list, expected an object"},
      {"3", "f: top level: is a number, expected an object"},
      {"{}", "f: schema: is missing, expected \"qualm.suppressions/1\""},
      {R"({"schema": 1})", "f: schema: is a number, expected a string"},
      {R"({"schema": "qualm.result/1", "suppressions": []})", "f: schema: is \"qualm.result/1\","},
      {R"({"schema": "qualm.suppressions/1"})", "f: suppressions: is missing"},
      {R"({"schema": "qualm.suppressions/1", "suppressions": {}})",
       "f: suppressions: is an object, expected a list"},
      {R"({"schema": "qualm.suppressions/1", "suppressions": [], "more": 1})",
       "f: more: is not a key here, expected one of schema, suppressions"},
      {R"({"schema": "qualm.suppressions/1", "suppressions": [], "suppressions": []})",
       "f: suppressions: is given twice"},
      {With("7"), "f: suppressions[0]: is a number, expected an object with"},
      {With("{}"), "f: suppressions[0].fingerprint: is missing"},
      {With(R"({"fingerprint": "a", "expires": "2027-01-01"})"),
       "f: suppressions[0].reason: is missing"},
      {With(R"({"fingerprint": "a", "reason": " \n", "expires": "2027-01-01"})"),
       "f: suppressions[0].reason: is empty"},
      {With(R"({"fingerprint": "", "reason": "r", "expires": "2027-01-01"})"),
       "f: suppressions[0].fingerprint: is empty"},
      {With(R"({"fingerprint": "a", "reason": "r"})"), "f: suppressions[0].expires: is missing"},
      {With(R"({"fingerprint": "a", "reason": "r", "expires": null})"),
       "f: suppressions[0].expires: is null, expected a string"},
      {With(R"({"fingerprint": "a", "reason": "r", "expires": "2027-02-30"})"),
       "f: suppressions[0].expires: is \"2027-02-30\", expected a date YYYY-MM-DD"},
      {With(R"({"fingerprint": "a", "reason": "r", "expires": "2027-01-01", "by": "me"})"),
       "f: suppressions[0].by: is not a key here"},
      {With(R"({"fingerprint": "a", "reason": "r", "reason": "s", "expires": "2027-01-01"})"),
       "f: suppressions[0].reason: is given twice"},
      {With(R"({"fingerprint": "a", "reason": "r", "expires": "2027-01-01"},
               {"fingerprint": "a", "reason": "s", "expires": "2028-01-01"})"),
       "f: suppressions[1].fingerprint: is that of suppressions[0] already"},
      {std::string(kSuppressions) + "x", "f: top level: is no JSON at byte "},
      {std::string(kSuppressions, 60), "f: schema: is no JSON at byte "},
      {std::string(kSuppressions, 140), "f: suppressions[0]"},
      {deep, "f: [0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]: is nested more than 16 levels"},
      {With("\"\xC3\x28\""), "f: byte "},
      {With("\"a\nb\""), "f: suppressions[0]: is no JSON at byte "},
      {"{\"schema\": \"qualm.suppressions/1\", \"suppressions\": [], \"a\\nb\": 1}", "f: a?b: "}};
  for (const auto& [text, begins] : table) {
    const std::string error = ErrorOf(ParseSuppressions, text);
    EXPECT_TRUE(error.starts_with(begins)) << text.substr(0, 200) << "\n" << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(KnownJson, ABaselineIsWhatAResultSays) {
  ResultDocument document;
  EXPECT_TRUE(ParseBaseline(ResultToJson(document), "f").empty());
  for (const char* subject : {"a", "b", "c", "d"}) {
    document.findings.emplace_back("linear", "clamp", subject, Verdict{});
  }
  const auto fingerprint = [&](size_t i) { return document.findings[i].fingerprint(); };
  document.known = {{fingerprint(1), {"baseline", "", ""}},
                    {fingerprint(2), {"suppression", "r", "2027-01-01"}}};
  document.extra.emplace_back("list", JsonList().Add(JsonObject{{"fingerprint", 7}}));
  EXPECT_EQ(ParseBaseline(ResultToJson(document), "f"),
            (std::set<std::string>{fingerprint(0), fingerprint(1), fingerprint(3)}));
}

TEST(KnownJson, HostileBaselinesAreOneLineWithTheField) {
  const std::string head = R"({"schema": "qualm.result/1", "findings": )";
  for (const auto& [text, begins] : std::vector<std::pair<std::string, std::string>>{
           {"", "f: top level: "},
           {"null", "f: top level: is null, expected an object"},
           {R"({"schema": "qualm.result/2", "findings": []})", "f: schema: is \"qualm.result/2\""},
           {R"({"schema": "qualm.result/1"})", "f: findings: is missing"},
           {head + "{}}", "f: findings: is an object, expected a list"},
           {head + "[3]}", "f: findings[0]: is a number, expected an object"},
           {head + "[{}]}", "f: findings[0].fingerprint: is missing"},
           {head + "[{\"fingerprint\": []}]}", "f: findings[0].fingerprint: is a list"},
           {head + "[{\"fingerprint\": \"a\", \"known\": 1}]}",
            "f: findings[0].known: is a number"},
           {head + "[{\"fingerprint\": \"a\", \"known\": {\"by\": \"me\"}}]}",
            "f: findings[0].known.by: is \"me\""},
           {head + "[], \"findings\": []}", "f: findings: is given twice"}}) {
    const std::string error = ErrorOf(ParseBaseline, text);
    EXPECT_TRUE(error.starts_with(begins)) << text << "\n" << error;
  }
}

TEST(KnownJson, FilesThatCannotBeReadAreNamed) {
  const std::string folder = std::filesystem::temp_directory_path().string();
  for (const std::string& path : {folder, folder + "/qualm-there-is-no-such-file"}) {
    for (const bool baseline : {false, true}) {
      EXPECT_TRUE(Begins(Refusal([&] {
                           baseline ? (void)ReadBaselineFile(path)
                                    : (void)ReadSuppressionsFile(path);
                         }),
                         path + ": file: "));
    }
  }
}

// The schema refuses what it can express, and nothing that the reader takes.
TEST(KnownJson, TheSchemaAgreesWithTheReader) {
  test::JsonSchema schema(test::ReadJsonFile(QUALM_SOURCE_DIR "/core/io/suppressions.schema.json"));
  const Json good = Json::parse(kSuppressions, nullptr, true, /*ignore_comments=*/true);
  EXPECT_EQ(schema.Check(good), "");
  int refused = 0;
  for (const Json& junk : {Json(nullptr), Json(1), Json(""), Json(" "), Json("2027-13-01"),
                           Json::array(), Json::object(), Json("2027-03-01")}) {
    for (const char* key : {"fingerprint", "reason", "expires", "other"}) {
      for (const bool erase : {false, true}) {
        Json damaged = good;
        Json& entry = damaged["suppressions"][1];
        erase ? (void)entry.erase(key) : (void)(entry[key] = junk);
        const bool reads = ErrorOf(ParseSuppressions, damaged.dump()).empty();
        EXPECT_EQ(schema.Check(damaged).empty(), reads) << damaged.dump();
        refused += reads ? 0 : 1;
      }
    }
  }
  EXPECT_GT(refused, 30);
}

}  // namespace
}  // namespace qualm
