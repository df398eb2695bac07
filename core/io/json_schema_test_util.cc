// SPDX-License-Identifier: Apache-2.0
#include "core/io/json_schema_test_util.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <utility>

namespace qualm::test {

Json ReadJsonFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return Json::parse(file);
}

class JsonSchema::Checker {
 public:
  explicit Checker(Json root) : root_(std::move(root)) {}
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
    if (keyword == "type") {
      const Json types = rule.is_array() ? rule : Json::array({rule});
      const bool fits =
          std::ranges::any_of(types, [&](const Json& t) { return HasType(value, t); });
      return fits ? "" : broken;
    }
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
      if (!value.is_string()) return "";
      const std::string text = rule.get<std::string>();
      if (!patterns_.contains(text)) patterns_.emplace(text, text);
      return std::regex_search(value.get<std::string>(), patterns_.at(text)) ? "" : broken;
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
    if (keyword == "propertyNames") {
      if (!value.is_object()) return "";
      for (const auto& [key, unused] : value.items()) {
        if (!Check(rule, Json(key), at).empty()) return broken + ": " + key;
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
  std::map<std::string, std::regex> patterns_;
};

JsonSchema::JsonSchema(Json root) : checker_(std::make_unique<Checker>(std::move(root))) {}
JsonSchema::~JsonSchema() = default;
std::string JsonSchema::Check(const Json& value) { return checker_->Check(value); }

}  // namespace qualm::test
