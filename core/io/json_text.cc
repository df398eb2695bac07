// SPDX-License-Identifier: Apache-2.0
#include "core/io/json_text.h"

#include <cstdint>

namespace qualm {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool Continues(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
}

}  // namespace

// Unicode 15, table 3-7: only the second byte has ranges narrower than 80..BF.
size_t Utf8Length(std::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4 || !Continues(text, at + 1)) return 0;
  const auto second = static_cast<uint8_t>(text[at + 1]);
  if (first < 0xE0) return 2;
  if (first == 0xE0 && second < 0xA0) return 0;  // overlong
  if (first == 0xED && second > 0x9F) return 0;  // surrogate
  if (!Continues(text, at + 2)) return 0;
  if (first < 0xF0) return 3;
  if (first == 0xF0 && second < 0x90) return 0;  // overlong
  if (first == 0xF4 && second > 0x8F) return 0;  // beyond U+10FFFF
  return Continues(text, at + 3) ? 4 : 0;
}

std::string CheckJsonBytes(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) {
    return "byte 0: is a byte-order mark, expected '{' or a comment";
  }
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\0') {
      return "byte " + std::to_string(at) + ": is NUL, expected JSON text";
    }
    const size_t length = Utf8Length(text, at);
    if (length == 0) {
      return "byte " + std::to_string(at) + ": is invalid UTF-8, expected UTF-8 text";
    }
    at += length;
  }
  return "";
}

std::string JsonQuote(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string quoted = "\"";
  for (size_t at = 0; at < text.size();) {
    const char ch = text[at];
    const size_t length = Utf8Length(text, at);
    if (length == 0) {
      quoted += kReplacement;
      ++at;
      continue;
    }
    if (ch == '"' || ch == '\\') {
      quoted += {'\\', ch};
    } else if (ch == '\n') {
      quoted += "\\n";
    } else if (ch == '\t') {
      quoted += "\\t";
    } else if (static_cast<uint8_t>(ch) < 0x20 || ch == 0x7F) {
      quoted += "\\u00";
      quoted += {kHex[static_cast<uint8_t>(ch) >> 4], kHex[static_cast<uint8_t>(ch) & 15]};
    } else {
      quoted += text.substr(at, length);
    }
    at += length;
  }
  quoted += '"';
  return quoted;
}

bool SpellsFloat(std::string_view text) {
  return text.starts_with("0x") || text.starts_with("-0x") || text == "inf" || text == "-inf" ||
         text.starts_with("nan:");
}

std::string Shown(std::string_view text) {
  constexpr size_t kShown = 40;
  if (text.size() <= kShown) return JsonQuote(text);
  size_t cut = kShown;  // not inside a character
  while (cut > 0 && (static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80) --cut;
  return JsonQuote(text.substr(0, cut)) + "...";
}

std::string OneLine(std::string_view text) {
  std::string line(text);
  for (char& ch : line) {
    if (static_cast<uint8_t>(ch) < 0x20 || ch == 0x7F) ch = '?';
  }
  return line;
}

}  // namespace qualm
