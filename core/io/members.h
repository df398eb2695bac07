// SPDX-License-Identifier: Apache-2.0
// Documents described once: MembersOf(document, visit) calls visit(key, member, how) for each
// member, in the order of the text, and what reads and what writes walks it. Private to core/io.
#ifndef QUALM_CORE_IO_MEMBERS_H_
#define QUALM_CORE_IO_MEMBERS_H_

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/io/json_text.h"
#include "core/io/json_writer.h"
#include "core/io/strict_json.h"
#include "core/io/text_file.h"

namespace qualm {

// MembersOf takes a document to read into, and a const one to write.
template <class Given, class Document>
concept SameAs = std::same_as<std::remove_const_t<Given>, Document>;

struct AsItIs {
  JsonValue operator()(const auto& value) const { return value; }
};
// How a member is read and written. `expected` says what a document lacks without it; a member
// that nothing is said of may be missing.
template <class Read, class Write = AsItIs>
struct How {
  std::string_view expected;
  Read read;  // (node, member)
  Write write = {};
};

inline constexpr How kText{"a text", [](const JsonNode& node, auto& text) { text = node.Text(); }};
inline constexpr How kFlag{"true or false",
                           [](const JsonNode& node, bool& flag) { flag = node.Flag(); }};
constexpr auto AnInteger(int64_t least, int64_t most, std::string_view expected) {
  return How{expected, [=]<class Integer>(const JsonNode& node, Integer& value) {
               value = static_cast<Integer>(node.Integer(least, most));
             }};
}
inline constexpr auto kCount = AnInteger(0, INT64_MAX, "a count");
// The name of an enumerator up to `last`.
template <class Enum>
constexpr auto AName(Enum last, std::string_view choices, std::string_view expected = "a text") {
  const auto read = [=](const JsonNode& node, Enum& value) {
    for (int i = 0; i <= static_cast<int>(last); ++i) {
      value = static_cast<Enum>(i);
      if (Name(value) == node.Text()) return;
    }
    node.Fail("is " + Shown(node.Text()) + ", expected " + std::string(choices));
  };
  return How{expected, read, [](Enum value) { return JsonValue(Name(value)); }};
}

template <class Document>
void ReadMembers(const JsonNode& node, Document& document,
                 std::vector<std::string_view> keys = {}) {
  MembersOf(document, [&](const char* key, auto&, const auto&) { keys.push_back(key); });
  node.RequireKeys(keys);
  MembersOf(document, [&](const char* key, auto& member, const auto& how) {
    if (how.expected.empty() && !node.Has(key)) return;
    how.read(node.At(key, how.expected), member);
  });
}

template <class Document>
JsonValue MembersJson(const Document& document, JsonObject json = JsonObject(kSpaced)) {
  MembersOf(document, [&](const char* key, const auto& member, const auto& how) {
    json.Add(key, how.write(member));
  });
  return json;
}

template <class Document>
constexpr auto AnObjectOrNull(std::string_view expected = "null or an object") {
  const auto read = [=](const JsonNode& node, std::optional<Document>& document) {
    if (node.IsNull()) return;
    node.RequireObject(expected);
    document = Document();
    ReadMembers(node, *document);
  };
  return How{expected, read, [](const std::optional<Document>& document) {
               return document ? MembersJson(*document) : JsonValue(std::nullopt);
             }};
}

struct DocumentKind {
  std::string_view schema, noun;  // "qualm.fault/1", "fault"
  size_t max_bytes = 0;
  std::string_view expected = "an object";

  std::string ReadFile(const std::string& path) const {
    return ReadTextFile(path, noun, max_bytes);
  }
  nlohmann::json Tree(std::string_view text, std::string_view name) const {
    CheckLength(text, name, noun, max_bytes);
    return ParseStrictJson(text, name);
  }
  // Fails unless the tree says that it is of this kind.
  JsonNode Top(const nlohmann::json& tree, std::string_view name) const {
    const JsonNode top(tree, name);
    top.RequireObject(expected);
    const JsonNode given = top.At("schema", JsonQuote(schema));
    if (given.Text() == schema) return top;
    given.Fail("is " + Shown(given.Text()) + ", expected " + JsonQuote(schema));
  }
  template <class Document>
  Document Parse(std::string_view text, std::string_view name) const {
    const nlohmann::json tree = Tree(text, name);
    Document document;
    ReadMembers(Top(tree, name), document, {"schema"});
    return document;
  }
  template <class Document>
  JsonValue Json(const Document& document, const JsonLayout& layout) const {
    return MembersJson(document, JsonObject({{"schema", schema}}, layout));
  }
};

// A line for each member.
inline constexpr JsonLayout kLines{"\n  ", ",\n  ", ": ", "\n"};

}  // namespace qualm

#endif  // QUALM_CORE_IO_MEMBERS_H_
