// SPDX-License-Identifier: Apache-2.0
// A JSON Schema checker, as much as our own schemas need. For tests only.
#ifndef QUALM_CORE_IO_JSON_SCHEMA_TEST_UTIL_H_
#define QUALM_CORE_IO_JSON_SCHEMA_TEST_UTIL_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace qualm::test {

using Json = nlohmann::json;

Json ReadJsonFile(const std::string& path);

// As much of JSON Schema 2020-12 as our two schemas use; any other keyword is a failed test.
class JsonSchema {
 public:
  explicit JsonSchema(Json root);
  ~JsonSchema();

  // "" or the first rule that `value` breaks.
  std::string Check(const Json& value);

 private:
  class Checker;
  std::unique_ptr<Checker> checker_;
};

}  // namespace qualm::test

#endif  // QUALM_CORE_IO_JSON_SCHEMA_TEST_UTIL_H_
