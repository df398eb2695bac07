// SPDX-License-Identifier: Apache-2.0
// JSON text out of values. Keys stay in the order of writing: same values, same bytes.
#ifndef QUALM_CORE_IO_JSON_WRITER_H_
#define QUALM_CORE_IO_JSON_WRITER_H_

#include <concepts>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

#include "core/io/json_text.h"

namespace qualm {

// One JSON value, as its text. Strings are quoted, a missing value is null, a range is a list.
class JsonValue {
 public:
  JsonValue(std::string_view text) : text_(JsonQuote(text)) {}
  JsonValue(const std::string& text) : JsonValue(std::string_view(text)) {}
  JsonValue(const char* text) : JsonValue(std::string_view(text)) {}
  JsonValue(std::nullopt_t) : text_("null") {}
  JsonValue(std::integral auto value) : text_(std::to_string(value)) {
    if (std::same_as<decltype(value), bool>) text_ = value ? "true" : "false";
  }
  JsonValue(double value);  // the shortest text that reads back equal; null for NaN and infinities
  template <class Value>
  JsonValue(const std::optional<Value>& value)
      : JsonValue(value ? JsonValue(*value) : JsonValue(std::nullopt)) {}
  template <std::ranges::input_range Values>
    requires(!std::convertible_to<const Values&, std::string_view>)
  JsonValue(const Values& values);

  // Takes over text that is JSON already.
  static JsonValue Written(std::string text) {
    JsonValue json(std::nullopt);
    json.text_ = std::move(text);
    return json;
  }
  // An element of a tensor as case files have it (Divergence, core/verdict.h): integers are
  // numbers, floats are strings.
  static JsonValue Element(const std::string& text);
  // null instead of "".
  static JsonValue OrNull(const std::string& text) {
    return text.empty() ? JsonValue(std::nullopt) : text;
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The text between the parts of an object or a list: where its lines break.
struct JsonLayout {
  std::string_view after_open, between, after_key, before_close;
};
inline constexpr JsonLayout kCompact{"", ",", ":", ""};
inline constexpr JsonLayout kSpaced{"", ", ", ": ", ""};

// {"key":value,...}
class JsonObject {
 public:
  explicit JsonObject(const JsonLayout& layout = kCompact) : layout_(layout) {}
  JsonObject(std::initializer_list<std::pair<std::string_view, JsonValue>> members,
             const JsonLayout& layout = kCompact);

  JsonObject& Add(std::string_view key, const JsonValue& value);
  operator JsonValue() const;

 private:
  JsonLayout layout_;
  std::string members_;
};

// [value,...]; [] in any layout if there is none.
class JsonList {
 public:
  explicit JsonList(const JsonLayout& layout = kCompact) : layout_(layout) {}

  JsonList& Add(const JsonValue& value);
  operator JsonValue() const;

 private:
  JsonLayout layout_;
  std::string values_;
};

template <std::ranges::input_range Values>
  requires(!std::convertible_to<const Values&, std::string_view>)
JsonValue::JsonValue(const Values& values) {
  JsonList list;
  for (const auto& value : values) list.Add(value);
  *this = list;
}

}  // namespace qualm

#endif  // QUALM_CORE_IO_JSON_WRITER_H_
