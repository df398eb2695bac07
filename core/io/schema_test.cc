// SPDX-License-Identifier: Apache-2.0
// The committed JSON Schemas describe what is really read and written.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/io/case_fields.h"
#include "core/io/case_json.h"
#include "core/io/random_case_test_util.h"
#include "core/io/result_json.h"

namespace qualm {
namespace {

using Json = nlohmann::json;

Json ReadSchema(const std::string& name) {
  std::ifstream file(QUALM_SOURCE_DIR "/core/io/" + name);
  EXPECT_TRUE(file) << name;
  return Json::parse(file);
}

// As much of JSON Schema 2020-12 as our two schemas use; any other keyword is a failed test.
class Checker {
 public:
  explicit Checker(Json root) : root_(std::move(root)) {}

  // "" or the first rule that `value` breaks.
  std::string Check(const Json& value) { return Check(root_, value, "$"); }

 private:
  static bool HasType(const Json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    if (type == "number") return value.is_number();
    if (type == "integer") {
      return value.is_number_integer() ||
             (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
    }
    ADD_FAILURE() << "type " << type;
    return false;
  }

  // nlohmann takes 1 and true for different values, as JSON Schema does.
  std::string Check(const Json& schema, const Json& value, const std::string& at) {
    if (schema.is_boolean()) return schema.get<bool>() ? "" : at + ": not allowed here";
    for (const auto& [keyword, rule] : schema.items()) {
      const std::string error = CheckKeyword(schema, keyword, rule, value, at);
      if (!error.empty()) return error;
    }
    return "";
  }

  std::string CheckKeyword(const Json& schema, const std::string& keyword, const Json& rule,
                           const Json& value, const std::string& at) {
    const std::string broken = at + ": breaks " + keyword;
    static const std::set<std::string> kRemarks{"$schema", "$defs", "title", "description", "then"};
    if (kRemarks.contains(keyword)) return "";
    if (keyword == "$ref") {
      const Json::json_pointer pointer(rule.get<std::string>().substr(1));
      return Check(root_.at(pointer), value, at);
    }
    if (keyword == "type") return HasType(value, rule) ? "" : broken;
    if (keyword == "const") return value == rule ? "" : broken;
    if (keyword == "enum") {
      for (const Json& choice : rule) {
        if (choice == value && choice.type_name() == std::string(value.type_name())) return "";
      }
      return broken;
    }
    if (keyword == "anyOf" || keyword == "oneOf") {
      int matches = 0;
      for (const Json& choice : rule) matches += Check(choice, value, at).empty() ? 1 : 0;
      return matches == 1 || (keyword == "anyOf" && matches > 1) ? "" : broken;
    }
    if (keyword == "allOf") {
      for (const Json& part : rule) {
        if (std::string error = Check(part, value, at); !error.empty()) return error;
      }
      return "";
    }
    if (keyword == "if")
      return Check(rule, value, at).empty() ? Check(schema.at("then"), value, at) : "";
    if (keyword == "minimum") return !value.is_number() || value >= rule ? "" : broken;
    if (keyword == "maximum") return !value.is_number() || value <= rule ? "" : broken;
    if (keyword == "minItems") return !value.is_array() || value.size() >= rule ? "" : broken;
    if (keyword == "maxItems") return !value.is_array() || value.size() <= rule ? "" : broken;
    if (keyword == "pattern") {
      return !value.is_string() || std::regex_search(value.get<std::string>(),
                                                     std::regex(rule.get<std::string>()))
                 ? ""
                 : broken;
    }
    if (keyword == "items") {
      if (!value.is_array()) return "";
      for (size_t i = 0; i < value.size(); ++i) {
        std::string error = Check(rule, value[i], at + "[" + std::to_string(i) + "]");
        if (!error.empty()) return error;
      }
      return "";
    }
    if (keyword == "required") {
      for (const Json& key : rule) {
        if (value.is_object() && !value.contains(key)) return broken + " " + key.dump();
      }
      return "";
    }
    if (keyword == "properties") {
      for (const auto& [key, sub] : rule.items()) {
        if (!value.is_object() || !value.contains(key)) continue;
        if (std::string error = Check(sub, value[key], at + "." + key); !error.empty())
          return error;
      }
      return "";
    }
    if (keyword == "additionalProperties") {
      EXPECT_EQ(rule, false);
      for (const auto& [key, unused] : value.items()) {
        if (!schema.at("properties").contains(key)) return broken + ": " + key;
      }
      return "";
    }
    ADD_FAILURE() << "keyword " << keyword << " is not known to this test";
    return broken;
  }

  Json root_;
};

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
  const Json schema = ReadSchema("case.schema.json");
  Rng rng(99);
  for (const Op op : AllOps()) {
    for (int i = 0; i < 200; ++i) {
      const std::string text = CaseToJson(test::RandomCase(op, rng));
      ASSERT_EQ(Checker(schema).Check(Json::parse(text)), "") << text;
    }
  }
}

// What the schema takes for a field of an op, the reader does too, and the other way round: damage
// one key of a written case and compare.
TEST(CaseSchema, AgreesWithTheReaderAboutDamage) {
  const Json schema = ReadSchema("case.schema.json");
  const std::vector<Json> junk = {
      nullptr, true, 2, -1, 2.5, "text", "0x1p+0", Json::array(), Json::object(), 3000000000};
  // The schema does not compare fields, so the reader may refuse more; never less.
  Rng rng(5);
  int both_refuse = 0;
  for (const Op op : AllOps()) {
    for (int i = 0; i < 20; ++i) {
      const Case c = test::RandomCase(op, rng);
      const Json written = Json::parse(CaseToJson(c));
      for (size_t key = 0; key < static_cast<size_t>(CaseKey::kObservedBy); ++key) {
        for (const Json& value : junk) {
          Json damaged = written;
          damaged[std::string(FieldName(static_cast<CaseKey>(key)))] = value;
          const std::string verdict = Checker(schema).Check(damaged);
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
  EXPECT_EQ(Checker(ReadSchema("case.schema.json")).Check(text), "");
  for (size_t i = 0; i < kCaseKeys; ++i) {
    const std::string name(FieldName(static_cast<CaseKey>(i)));
    const std::string key = name.starts_with("observed.") ? name.substr(9) : name;
    const bool named = page.find("`" + key + "`") != std::string::npos ||
                       page.find("\"" + key + "\"") != std::string::npos;
    EXPECT_TRUE(named) << name << " is not on the page";
  }
}

TEST(ResultSchema, WrittenResultsAreValid) {
  const Json schema = ReadSchema("result.schema.json");
  ResultDocument document;
  EXPECT_EQ(Checker(schema).Check(Json::parse(ResultToJson(document))), "");
  document.seed = 5;
  document.command = "qualm check";
  document.subjects = {{"native", "exact"}};
  document.totals = {{"cases", 3}};
  document.extra = {{"hazards", "[1, 2]"}};
  for (int kind = 0; kind <= static_cast<int>(FindingKind::kUnknown); ++kind) {
    Finding finding;
    finding.kind = static_cast<FindingKind>(kind);
    finding.first_divergence = Divergence{kind, "1", "0x1p+0", 0.5};
    document.findings.push_back(finding);
  }
  const Json written = Json::parse(ResultToJson(document));
  EXPECT_EQ(Checker(schema).Check(written), "");
  for (const auto& [key, unused] : written.items()) {
    Json damaged = written;
    damaged.erase(key);
    EXPECT_EQ(Checker(schema).Check(damaged).empty(), key == "hazards") << key;
  }
}

}  // namespace
}  // namespace qualm
