// SPDX-License-Identifier: Apache-2.0
#include "core/io/json_text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace qualm {
namespace {

std::string Encode(uint32_t code) {
  std::string text;
  const auto push = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xC0 | (code >> 6));
    push(0x80 | (code & 63));
  } else if (code < 0x10000) {
    push(0xE0 | (code >> 12));
    push(0x80 | ((code >> 6) & 63));
    push(0x80 | (code & 63));
  } else {
    push(0xF0 | (code >> 18));
    push(0x80 | ((code >> 12) & 63));
    push(0x80 | ((code >> 6) & 63));
    push(0x80 | (code & 63));
  }
  return text;
}

TEST(JsonText, AcceptsExactlyTheUnicodeScalars) {
  for (uint32_t code = 0; code <= 0x1FFFFF; ++code) {
    const std::string text = Encode(code);
    const bool scalar = code <= 0x10FFFF && !(code >= 0xD800 && code <= 0xDFFF);
    ASSERT_EQ(Utf8Length(text, 0), scalar ? text.size() : 0) << std::hex << code;
  }
}

TEST(JsonText, RefusesOverlongAndBrokenSequences) {
  for (const std::string_view bad :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xC3",
        "\xE2\x82", "\xF0\x9F\x98", "\xC3(", "\xE2\x82(", "\xF0\x9F\x98(", "\xFE", "\xFF"}) {
    EXPECT_EQ(Utf8Length(bad, 0), 0u) << bad;
    EXPECT_NE(CheckJsonBytes("ab" + std::string(bad)), "");
    EXPECT_TRUE(CheckJsonBytes("ab" + std::string(bad)).starts_with("byte 2: "));
  }
  EXPECT_EQ(CheckJsonBytes("{\"\xC3\xA9\": 1}"), "");
}

TEST(JsonText, QuotesAsJsonReadsIt) {
  for (uint32_t code = 0; code < 0x300; ++code) {
    const std::string text = "a" + Encode(code) + "b";
    const std::string quoted = JsonQuote(text);
    EXPECT_EQ(nlohmann::json::parse(quoted).get<std::string>(), text) << code;
    for (const char ch : quoted) EXPECT_GE(static_cast<uint8_t>(ch), 0x20);
  }
  EXPECT_EQ(JsonQuote("a\xFF z"), "\"a\xEF\xBF\xBD z\"");
}

TEST(JsonText, ShownIsShort) {
  EXPECT_EQ(Shown("x\n"), "\"x\\n\"");
  const std::string accents = std::string(39, 'a') + "\xC3\xA9" + std::string(100, 'b');
  EXPECT_EQ(Shown(accents), "\"" + std::string(39, 'a') + "\"...");
}

}  // namespace
}  // namespace qualm
