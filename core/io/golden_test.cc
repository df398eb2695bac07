// SPDX-License-Identifier: Apache-2.0
#include "core/io/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include "core/status.h"
#include "core/text_test_util.h"

namespace qualm {
namespace {

constexpr char kHead[] = R"({"id":"a","op":"linear","backend":"b")";

GoldenRecord Parse(const std::string& rest) {
  return ParseGoldenLine(kHead + (rest.empty() ? "" : "," + rest) + "}", "f.jsonl", 7);
}

TEST(GoldenTest, ReadsTypedFields) {
  const GoldenRecord r = Parse(
      R"("isa":null,"n":-3,"list":[1,-2,3],"f":"0x1.8000000000000p-3","g":0.1,"h":2,)"
      R"("fs":["inf","nan:7fc00001",1],"lists":[["0x1p+0"],[]],"d":"0x1.fbdb515151515p-7","e":[])");
  EXPECT_EQ(r.id, "a");
  EXPECT_EQ(r.isa, "");
  EXPECT_EQ(r.line, 7);
  EXPECT_EQ(r.where, "f.jsonl:7: a");
  EXPECT_FALSE(r.Has("isa"));
  EXPECT_FALSE(r.Has("nothing"));
  EXPECT_EQ(r.Int("n"), -3);
  EXPECT_EQ(r.Ints("list"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(r.Ints("n"), (std::vector<int64_t>{-3}));
  EXPECT_TRUE(r.Ints("e").empty());
  EXPECT_EQ(r.Float("f"), 0.1875f);
  EXPECT_EQ(r.Float("g"), 0.1f);
  EXPECT_EQ(r.Float("h"), 2.0f);
  const std::vector<float> floats = r.Floats("fs");
  ASSERT_EQ(floats.size(), 3u);
  EXPECT_TRUE(std::isinf(floats[0]) && std::isnan(floats[1]));
  EXPECT_EQ(floats[2], 1.0f);
  EXPECT_EQ(r.FloatLists("lists"), (std::vector<std::vector<float>>{{1.0f}, {}}));
  EXPECT_EQ(r.Double("d"), 0x1.fbdb515151515p-7);
}

TEST(GoldenTest, MixedListsKeepEveryEntry) {
  EXPECT_EQ(Parse(R"("l":[1,2,"0x1p+1",3])").Floats("l"), (std::vector<float>{1, 2, 2, 3}));
}

std::string Packed(const std::string& dtype, const std::string& shape, const std::string& z) {
  return R"("p":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"z":")" + z + "\"}";
}

TEST(GoldenTest, ReadsPackedArrays) {
  using Ints = std::vector<int64_t>;
  EXPECT_EQ(Parse(Packed("uint8", "[3]", "eJxjZPoPAAEJAQM=")).Ints("p"), (Ints{1, 2, 255}));
  EXPECT_EQ(Parse(Packed("int8", "[3,1]", "eJxjZPoPAAEJAQM=")).Ints("p"), (Ints{1, 2, -1}));
  EXPECT_EQ(Parse(Packed("int16", "[2]", "eJz791+HEQAHUgIr")).Ints("p"), (Ints{-2, 300}));
  EXPECT_EQ(Parse(Packed("int64", "[0,5]", "eJwDAAAAAAE=")).Ints("p"), Ints{});
  const std::vector<float> reals =
      Parse(Packed("float32", "[2]", "eJxjYDhgz8DA0AAABkMBgA==")).Floats("p");
  ASSERT_EQ(reals.size(), 2u);
  EXPECT_EQ(reals[0], 1.5f);
  EXPECT_TRUE(reals[1] == 0 && std::signbit(reals[1]));
  EXPECT_EQ(Parse(Packed("float16", "[2]", "eJxjsGFsAAABOgC+")).Floats("p"),
            (std::vector<float>{1, -0x1p-24f}));
  EXPECT_EQ(Parse(Packed("float64", "[2]", "eJxjYACBB/YMEHAAAAvHAeA=")).Floats("p"),
            (std::vector<float>{0.5f, -2}));
}

TEST(GoldenTest, RejectsPackedArraysThatLie) {
  const std::string f = "f.jsonl:7: field p: ", z = "eJxjZPoPAAEJAQM=";
  const std::string other = f + "holds another number of bytes than dtype and shape say";
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {Packed("uint8", "[4]", z), other},
           {Packed("uint8", "[2]", z), other},
           {Packed("uint8", "[268435456]", z), other},
           {Packed("uint8", "[268435457]", z), f + "its shape is negative or too large"},
           {Packed("uint8", "[-1]", z), f + "its shape is negative or too large"},
           {Packed("bool", "[3]", z), f + "dtype bool is not known"},
           {Packed("uint8", "[3]", "eJxjZPoPAAEJAQQ="), f + "not zlib"},
           {Packed("uint8", "[0]", ""), f + "not zlib"},
           {Packed("uint8", "[3]", "eJxj*PoPAAEJAQM="), f + "not base64"},
           {Packed("uint8", "[3]", "eJxjZPoPAAEJAQM"), f + "not base64"},
           {Packed("uint8", "[3]", "===="), f + "not base64"},
           {R"("p":{"dtype":"uint8","shape":[3]})", f + "an object, expected"},
           {R"("p":{"dtype":"uint8","shape":[[3]],"z":"x"})", f + "an object, expected"},
           {R"("p":{"dtype":"uint8","shape":{},"z":"x"})", f + "an object inside an object"},
       }) {
    const std::string error = Refusal([&] { Parse(text); });
    EXPECT_TRUE(error.starts_with(expected)) << text << "\n  " << error;
  }
  EXPECT_EQ(Refusal([&] { Parse(Packed("float32", "[2]", "eJxjYDhgz8DA0AAABkMBgA==")).Ints("p"); }),
            "f.jsonl:7: a: p: expected a list of integers");
}

TEST(GoldenTest, RejectsWhatIsMalformed) {
  const std::pair<const char*, const char*> table[] = {
      {"", "f:3: not JSON"},
      {"[1]", "f:3: expected an object"},
      {"3", "f:3: expected an object"},
      {"{", "f:3: not JSON"},
      {"{} x", "f:3: not JSON"},
      {"{}", "f:3: id: missing"},
      {R"({"id":3,"op":"x","backend":"b"})", "f:3: id: expected a string"},
      {R"({"id":"a","op":null,"backend":"b"})", "f:3: a: op: missing"},
      {R"({"id":"a","id":"b","op":"x","backend":"b"})", "f:3: field id: given twice"},
      {R"({"id":"a","op":"x","backend":"b","isa":5})", "f:3: a: isa: expected a string"},
      {R"({"id":"a","op":"x","backend":"b","z":{"y":1}})", "f:3: field z: an object"},
      {R"({"id":"a","op":"x","backend":"b","z":[{"y":1}]})", "f:3: field z: an object"},
      {R"({"id":"a","op":"x","backend":"b","z":NaN})", "f:3: not JSON"},
      {R"({"id":"a","op":"x","backend":"b","z":"\ud800"})", "f:3: not JSON"},
      {"{\"id\":\"\xff\",\"op\":\"x\",\"backend\":\"b\"}", "f:3: byte 7: is invalid UTF-8"},
      {"\xEF\xBB\xBF{}", "f:3: byte 0: is a byte-order mark"},
      {R"({"id":"a","op":"x","backend":"b","z":[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]})",
       "f:3: field z: nested too deep"},
  };
  for (const auto& [text, expected] : table) {
    const std::string error = Refusal([&] { ParseGoldenLine(text, "f", 3); });
    EXPECT_TRUE(error.starts_with(expected)) << text << "\n  " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
  // A NUL byte would end the text for the JSON parser, and hide what follows.
  const std::string good = R"({"id":"a","op":"x","backend":"b"})";
  const std::string hidden = good + std::string(1, '\0') + "rest";
  EXPECT_EQ(Refusal([&] { ParseGoldenLine(good, "f", 3); }), "");
  EXPECT_TRUE(
      Refusal([&] { ParseGoldenLine(hidden, "f", 3); }).starts_with("f:3: byte 33: is NUL"));
  // Found by the fuzz target: names of fields are input too.
  EXPECT_EQ(Parse(R"("a\nb":"text")").Text("a\nb"), "text");
  EXPECT_EQ(Refusal([&] { Parse(R"("a\nb":1)").Text("a\nb"); }).find('\n'), std::string::npos);
}

TEST(GoldenTest, RejectsFieldsOfTheWrongType) {
  const GoldenRecord r = Parse(
      R"("f":1.5,"s":"x","b":true,"l":[1,"a"],"big":18446744073709551616,"u":9223372036854775808,)"
      R"("h":"0x1.0000001p+0","o":1e39,"ll":[1,[2]],"null":null)");
  const std::string f = "f.jsonl:7: a: ";
  EXPECT_EQ(Refusal([&] { r.Int("f"); }), f + "f: expected an integer");
  EXPECT_EQ(r.Int("b"), 1);  // true, as Python writes a flag
  EXPECT_EQ(Refusal([&] { r.Int("big"); }), f + "big: expected an integer");
  EXPECT_EQ(Refusal([&] { r.Int("u"); }), f + "u: expected an integer");
  EXPECT_EQ(Refusal([&] { r.Int("x"); }), f + "x: missing, but this record needs it");
  EXPECT_EQ(Refusal([&] { r.Int("null"); }), f + "null: missing, but this record needs it");
  EXPECT_EQ(Refusal([&] { r.Int("s"); }), f + "s: expected an integer");
  EXPECT_EQ(Refusal([&] { r.Ints("l"); }), f + "l: expected a list of integers");
  EXPECT_EQ(Refusal([&] { r.Text("f"); }), f + "f: expected a string");
  EXPECT_NE(Refusal([&] { r.Float("s"); }), "");
  EXPECT_NE(Refusal([&] { r.Float("h"); }), "") << "not a float32";
  EXPECT_NE(Refusal([&] { r.Float("o"); }), "") << "overflows";
  EXPECT_NE(Refusal([&] { r.Double("s"); }), "");
  EXPECT_NE(Refusal([&] { r.Floats("ll"); }), "");
  EXPECT_NE(Refusal([&] { r.FloatLists("ll"); }), "");
}

TEST(GoldenTest, FilesSkipEmptyLinesAndNameTheBadOne) {
  const std::string path = testing::TempDir() + "golden_test.jsonl";
  std::ofstream(path) << kHead << "}\n\n  \r\n" << kHead << "}\n{oops\n";
  int64_t seen = 0;
  const std::string error =
      Refusal([&] { ForEachGoldenRecord(path, [&](const GoldenRecord& r) { seen += r.line; }); });
  EXPECT_EQ(seen, 1 + 4);
  EXPECT_TRUE(error.starts_with(path + ":5: not JSON")) << error;
  std::remove(path.c_str());
  EXPECT_EQ(Refusal([&] { ForEachGoldenRecord(path, [](const GoldenRecord&) {}); }),
            path +
                ": file: cannot be opened (No such file or directory), expected a readable "
                "recording file");
}

}  // namespace
}  // namespace qualm
