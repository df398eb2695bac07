// SPDX-License-Identifier: Apache-2.0
#include "core/io/json_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace qualm {
namespace {

TEST(JsonWriter, WritesEachKindOfValue) {
  EXPECT_EQ(JsonValue("a\"b").text(), "\"a\\\"b\"");
  EXPECT_EQ(JsonValue(std::string("x")).text(), "\"x\"");
  EXPECT_EQ(JsonValue(true).text(), "true");
  EXPECT_EQ(JsonValue(UINT64_MAX).text(), "18446744073709551615");
  EXPECT_EQ(JsonValue(INT64_MIN).text(), "-9223372036854775808");
  EXPECT_EQ(JsonValue(0.1).text(), "0.1");
  EXPECT_EQ(JsonValue(std::numeric_limits<double>::quiet_NaN()).text(), "null");
  EXPECT_EQ(JsonValue(std::nullopt).text(), "null");
  EXPECT_EQ(JsonValue(std::optional<int>()).text(), "null");
  EXPECT_EQ(JsonValue(std::optional(false)).text(), "false");
  EXPECT_EQ(JsonValue(std::vector<std::string>{"a", "b"}).text(), "[\"a\",\"b\"]");
  EXPECT_EQ(JsonValue::OrNull("").text(), "null");
  EXPECT_EQ(JsonValue::OrNull("f").text(), "\"f\"");
  EXPECT_EQ(JsonValue::Written("[1]").text(), "[1]");
}

TEST(JsonWriter, AnElementIsANumberOnlyIfItIsAnInteger) {
  EXPECT_EQ(JsonValue::Element("-128").text(), "-128");
  EXPECT_EQ(JsonValue::Element("0x1p+0").text(), "\"0x1p+0\"");
  EXPECT_EQ(JsonValue::Element("99999999999").text(), "\"99999999999\"");
  EXPECT_EQ(JsonValue::Element("at least 3").text(), "\"at least 3\"");
  EXPECT_EQ(JsonValue::Element("").text(), "\"\"");
}

TEST(JsonWriter, KeysStayInOrderAndLayoutsNest) {
  const JsonObject inner({{"z", 1}, {"a", std::vector<int>{}}}, kSpaced);
  EXPECT_EQ(JsonValue(inner).text(), "{\"z\": 1, \"a\": []}");
  EXPECT_EQ(JsonValue(JsonObject{{"in", inner}, {"t", true}}).text(),
            "{\"in\":{\"z\": 1, \"a\": []},\"t\":true}");
  constexpr JsonLayout kLines{"\n ", ",\n ", ": ", "\n"};
  EXPECT_EQ(JsonValue(JsonList(kLines).Add(1).Add("x")).text(), "[\n 1,\n \"x\"\n]");
  EXPECT_EQ(JsonValue(JsonList(kLines)).text(), "[]");
  EXPECT_EQ(JsonValue(JsonObject().Add("\n", std::nullopt)).text(), "{\"\\n\":null}");
}

}  // namespace
}  // namespace qualm
