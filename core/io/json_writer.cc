// SPDX-License-Identifier: Apache-2.0
#include "core/io/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <system_error>

namespace qualm {
namespace {

JsonValue Enclosed(char open, const std::string& inside, char close, const JsonLayout& layout) {
  std::string text(1, open);
  if (!inside.empty()) {
    text += layout.after_open;
    text += inside;
    text += layout.before_close;
  }
  return JsonValue::Written(text + close);
}

}  // namespace

JsonValue::JsonValue(double value) : text_("null") {
  if (!std::isfinite(value)) return;
  std::array<char, 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  text_.assign(buffer.data(), result.ptr);
}

JsonValue JsonValue::Element(const std::string& text) {
  int32_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty() ? JsonValue(value) : JsonValue(text);
}

JsonObject::JsonObject(std::initializer_list<std::pair<std::string_view, JsonValue>> members,
                       const JsonLayout& layout)
    : layout_(layout) {
  for (const auto& [key, value] : members) Add(key, value);
}

JsonObject& JsonObject::Add(std::string_view key, const JsonValue& value) {
  if (!members_.empty()) members_ += layout_.between;
  members_ += JsonQuote(key);
  members_ += layout_.after_key;
  members_ += value.text();
  return *this;
}

JsonObject::operator JsonValue() const { return Enclosed('{', members_, '}', layout_); }

JsonList& JsonList::Add(const JsonValue& value) {
  if (!values_.empty()) values_ += layout_.between;
  values_ += value.text();
  return *this;
}

JsonList::operator JsonValue() const { return Enclosed('[', values_, ']', layout_); }

}  // namespace qualm
