// SPDX-License-Identifier: Apache-2.0
#include "core/io/strict_json.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "core/io/json_text.h"
#include "core/status.h"

namespace qualm {
namespace {

using json = nlohmann::json;
constexpr size_t kMaxDepth = 16;

std::string Join(const std::string& field, const std::string& key) {
  const std::string shown = key.size() <= 40 ? OneLine(key) : Shown(key);
  return field.empty() ? shown : field + "." + shown;
}
std::string Join(const std::string& field, size_t index) {
  return field + "[" + std::to_string(index) + "]";
}

std::string InFile(std::string_view name) { return name.empty() ? "" : OneLine(name) + ": "; }

[[noreturn]] void Throw(std::string_view name, const std::string& field, const std::string& what) {
  throw InputError(InFile(name) + (field.empty() ? "top level" : field) + ": " + what);
}

// The first pass finds errors that the second pass, which builds the tree, would not notice.
class Guard {
 public:
  explicit Guard(std::string_view name) : name_(name) {}

  bool null() { return Value(); }
  bool boolean(bool /*value*/) { return Value(); }
  bool number_integer(json::number_integer_t /*value*/) { return Value(); }
  bool number_unsigned(json::number_unsigned_t /*value*/) { return Value(); }
  bool number_float(json::number_float_t /*value*/, const std::string& /*token*/) {
    return Value();
  }
  bool string(std::string& /*text*/) { return Value(); }
  bool binary(json::binary_t& /*value*/) { return false; }  // not in JSON text

  bool start_object(size_t /*size*/) { return Open(true); }
  bool key(std::string& key) {
    Level& level = levels_.back();
    level.key = key;
    if (!level.keys.insert(key).second) Fail("is given twice, expected each key at most once");
    return true;
  }
  bool end_object() { return Close(); }
  bool start_array(size_t /*size*/) { return Open(false); }
  bool end_array() { return Close(); }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const json::exception& /*error*/) {
    Fail("is no JSON at byte " + std::to_string(position) + ", expected JSON");
  }

 private:
  struct Level {
    bool is_object = false;
    std::set<std::string> keys;
    std::string key;   // of an object: the last one
    size_t index = 0;  // of a list: the next element
  };

  bool Open(bool is_object) {
    if (levels_.size() >= kMaxDepth) {
      Fail("is nested more than " + std::to_string(kMaxDepth) + " levels deep, expected fewer");
    }
    levels_.push_back({is_object, {}, "", 0});
    return true;
  }
  bool Close() {
    levels_.pop_back();
    return Value();
  }
  bool Value() {
    if (!levels_.empty()) ++levels_.back().index;
    return true;
  }

  [[noreturn]] void Fail(const std::string& what) const {
    std::string field;
    for (const Level& level : levels_) {
      if (level.is_object && level.keys.empty()) break;
      field = level.is_object ? Join(field, level.key) : Join(field, level.index);
    }
    Throw(name_, field, what);
  }

  std::string_view name_;
  std::vector<Level> levels_;
};

}  // namespace

json ParseStrictJson(std::string_view text, std::string_view name, bool comments) {
  if (const std::string error = CheckJsonBytes(text); !error.empty())
    throw InputError(InFile(name) + error);
  Guard guard(name);
  json::sax_parse(text.begin(), text.end(), &guard, nlohmann::detail::input_format_t::json,
                  /*strict=*/true, comments);
  return json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/true, comments);
}

void JsonNode::Fail(const std::string& what) const { Throw(name_, field_, what); }

void JsonNode::WrongType(std::string_view expected) const {
  const std::string what = value_->is_null()     ? "null"
                           : value_->is_object() ? "an object"
                           : value_->is_array()  ? "a list"
                                                 : std::string("a ") + value_->type_name();
  Fail("is " + what + ", expected " + std::string(expected));
}

void JsonNode::RequireObject(std::string_view expected) const {
  if (!value_->is_object()) WrongType(expected);
}

JsonNode JsonNode::At(const std::string& key, std::string_view expected) const {
  RequireObject("an object");
  const auto at = value_->find(key);
  const std::string field = Join(field_, key);
  if (at == value_->end()) Throw(name_, field, "is missing, expected " + std::string(expected));
  return {*at, name_, field};
}

size_t JsonNode::SizeOfList() const {
  if (!value_->is_array()) WrongType("a list");
  return value_->size();
}

JsonNode JsonNode::At(size_t index) const {
  return {value_->at(index), name_, Join(field_, index)};
}

const std::string& JsonNode::Text() const {
  if (!value_->is_string()) WrongType("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonNode::Flag() const {
  if (!value_->is_boolean()) Fail("is no boolean, expected true or false");
  return value_->get<bool>();
}

int64_t JsonNode::Integer(int64_t least, int64_t most) const {
  const std::string range = std::to_string(least) + ".." + std::to_string(most);
  if (!value_->is_number_integer()) WrongType("an integer in " + range);
  // Unsigned numbers are those that are not negative, up to 2^64 - 1.
  const bool fits =
      !value_->is_number_unsigned() || value_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
  const int64_t value = fits ? value_->get<int64_t>() : INT64_MAX;
  if (!fits || value < least || value > most) {
    Fail("is " + value_->dump() + ", expected an integer in " + range);
  }
  return value;
}

std::vector<std::string> JsonNode::Keys() const {
  RequireObject("an object");
  std::vector<std::string> keys;
  for (const auto& item : value_->items()) keys.push_back(item.key());
  return keys;
}

std::string JsonNode::Place() const {
  return OneLine(name_) + (field_.empty() ? "" : ": " + field_);
}

void JsonNode::RequireKeys(const std::vector<std::string_view>& keys) const {
  for (const auto& item : value_->items()) {
    if (std::ranges::find(keys, item.key()) != keys.end()) continue;
    std::string known;
    for (const std::string_view key : keys) known += (known.empty() ? "" : ", ") + std::string(key);
    Throw(name_, Join(field_, item.key()), "is not a key here, expected one of " + known);
  }
}

}  // namespace qualm
