// SPDX-License-Identifier: Apache-2.0
// Small documents of people and of other runs as a tree, read as strictly as case files: whatever
// the library would let pass is refused here. Private to core/io.
#ifndef QUALM_CORE_IO_STRICT_JSON_H_
#define QUALM_CORE_IO_STRICT_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace qualm {

// JSON with comments, or without. Throws InputError "NAME: FIELD: what, expected what" for what is
// no JSON, for a key given twice, for more than 16 levels and for invalid UTF-8. NAME is left out
// where it is "".
nlohmann::json ParseStrictJson(std::string_view text, std::string_view name, bool comments = true);

// A node of the tree with its place in the file, for messages.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string_view name) : JsonNode(value, name, "") {}

  // Throws InputError "NAME: FIELD: what", FIELD being this node.
  [[noreturn]] void Fail(const std::string& what) const;

  // Fails unless this is an object; `expected` says of what.
  void RequireObject(std::string_view expected) const;
  // The member of an object; fails where there is none.
  JsonNode At(const std::string& key, std::string_view expected) const;
  bool Has(const std::string& key) const { return value_->contains(key); }
  const nlohmann::json& value() const { return *value_; }
  // Fails unless this is a list.
  size_t SizeOfList() const;
  JsonNode At(size_t index) const;
  // Fails unless this is a string.
  const std::string& Text() const;
  // Fails unless this is true or false.
  bool Flag() const;
  // Fails unless this is an integer in least..most.
  int64_t Integer(int64_t least, int64_t most) const;
  // The keys of an object, sorted; fails where this is none.
  std::vector<std::string> Keys() const;
  bool IsNull() const { return value_->is_null(); }
  // The node as JSON text, for a reader of its own.
  std::string Dump() const { return value_->dump(); }
  // "NAME: FIELD", as messages begin.
  std::string Place() const;
  // Fails at the first key of an object that is none of `keys`.
  void RequireKeys(const std::vector<std::string_view>& keys) const;

 private:
  JsonNode(const nlohmann::json& value, std::string_view name, std::string field)
      : value_(&value), name_(name), field_(std::move(field)) {}
  [[noreturn]] void WrongType(std::string_view expected) const;

  const nlohmann::json* value_;
  std::string_view name_;
  std::string field_;
};

}  // namespace qualm

#endif  // QUALM_CORE_IO_STRICT_JSON_H_
