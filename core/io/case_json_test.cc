// SPDX-License-Identifier: Apache-2.0
#include "core/io/case_json.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/hostile_case_test_util.h"
#include "core/io/npy.h"
#include "core/random_case_test_util.h"
#include "core/status.h"
#include "core/text_test_util.h"

namespace qualm {
namespace {

using test::And;
using test::Hostile;
using test::HostileTable;
using test::kLinear;
using test::With;

std::string Error(std::string_view text, std::string_view name = "f.case.json") {
  return Refusal([&] { ParseCase(text, name); });
}

TEST(CaseJson, ReadsWhatIsWritten) {
  const Case c = ParseCase(kLinear, "f");
  EXPECT_EQ(c.op, Op::kLinear);
  EXPECT_EQ(c.M, 1);
  EXPECT_EQ(c.N, 2);
  EXPECT_EQ(c.K, 2);
  EXPECT_EQ(c.x_q.scale, std::vector<float>{0.1f});
  EXPECT_EQ(c.x_q.zero_point, std::vector<int32_t>{3});
  EXPECT_EQ(c.w_q.scale, std::vector<float>{0.25f});
  EXPECT_EQ(c.out_q.scale, std::vector<float>{0.5f});
  EXPECT_EQ(c.out_q.zero_point, std::vector<int32_t>{7});
  EXPECT_EQ(c.x.dtype(), DType::kU8);
  EXPECT_EQ(c.w.dtype(), DType::kS8);
  EXPECT_EQ(c.w.shape(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(c.w.IntAt(3), -128);
  EXPECT_EQ(c.out_min, 0);
  EXPECT_EQ(c.out_max, 255);
  EXPECT_FALSE(c.relu);
  EXPECT_FALSE(c.per_channel);
  EXPECT_EQ(Validate(c), "");
}

TEST(CaseJson, KeepsHowNumbersWerePrinted) {
  using List = Printed::List;
  const Case c = ParseCase(
      With("0.1", "\"0.100~\"", With("[0.25]", R"(["2.5e-1~"])", And(R"("bias": [0.5, "-1.0~"])"))),
      "f");
  EXPECT_EQ(c.x_q.scale, std::vector<float>{0.1f});
  EXPECT_EQ(c.printed, (std::vector<Printed>{{List::kXScale, 0, "0.100"},
                                             {List::kWScale, 0, "2.5e-1"},
                                             {List::kBias, 1, "-1.0"}}));
  EXPECT_EQ(ParseCase(CaseToJson(c), "written"), c);
  EXPECT_NE(CaseToJson(c).find("\"x_scale\": \"0.100~\""), std::string::npos) << CaseToJson(c);
  Case changed = c;
  changed.x_q.scale = {0.125f};
  EXPECT_EQ(Validate(changed), "printed: a number stands for another value");
  changed = c;
  std::swap(changed.printed[0], changed.printed[1]);
  EXPECT_EQ(Validate(changed), "printed: numbers are not in order");
  EXPECT_EQ(ProblemOf(c).printed, std::vector<Printed>{});

  const Case operands = ParseCase(With("0.25", "\"0.25~\"", test::kAdd), "f");
  EXPECT_EQ(operands.printed, (std::vector<Printed>{{List::kWScale, 0, "0.25"}}));
  const Case values = ParseCase(R"({"qualm_case": 1, "op": "quantize", "M": 1, "N": 3,
      "out_scale": 1, "out_zp": 0, "x": [1, "2.50~", -0.5]})",
                                "f");
  EXPECT_EQ(values.printed, (std::vector<Printed>{{List::kX, 1, "2.50"}}));
}

// PyTorch prints the real numbers that the codes of a quantized tensor stand for.
TEST(CaseJson, TakesOutputsAsPrinted) {
  const auto quantize = [](const std::string& y, const std::string& scale = "0.0313") {
    return R"({"qualm_case": 1, "op": "quantize", "M": 1, "N": 3, "out_scale": )" + scale +
           R"(, "out_zp": 64, "x": [0, 1, 2], "observed": {"by": "PyTorch", "y": )" + y + "}}";
  };
  const auto codes = [](const std::string& text) {
    const Case c = ParseCase(text, "f");
    EXPECT_EQ(ParseCase(CaseToJson(c), "written"), c);
    EXPECT_TRUE(c.observed->printed.empty());
    return std::vector<int32_t>{c.observed->y.IntAt(0), c.observed->y.IntAt(1),
                                c.observed->y.IntAt(2)};
  };
  const std::string y = R"(["0.0000~", "1.0016~", "-2.0032~"])";
  EXPECT_EQ(codes(quantize(y)), (std::vector<int32_t>{64, 96, 0}));
  EXPECT_EQ(codes(quantize(y, "\"0.0313~\"")), (std::vector<int32_t>{64, 96, 0}));
  EXPECT_EQ(ParseCase(quantize("[0.0000, 1.0016, 2.0032]"), "f", {.as_printed = true})
                .observed->y.IntAt(2),
            128);
  // 5 * 0.0313, as a float32.
  EXPECT_EQ(codes(quantize(R"(["0.0000~", "1.0016~", "0.15650001168251037598~"])"))[2], 64 + 5);
  const auto error = [&](const std::string& printed) -> std::string {
    try {
      ParseCase(quantize(printed), "f");
    } catch (const InputError& wrong) {
      return wrong.what();
    }
    return "";
  };
  for (const auto& [printed, what] : std::vector<std::pair<std::string, std::string>>{
           {R"(["0.0000~", "1.0016~", 5])", "[2]: stands beside printed numbers, expected one"},
           {R"(["0.0000~", "1.0016~", "2~"])", "[2]: is \"2~\", as which several codes print"},
           {R"(["0.0000~", "1.0016~", "2.0100~"])",
            "[2]: is \"2.0100~\", which no code of the output stands for: the nearest, 128, stands "
            "for 2.0032"},
           {R"(["0.0000~", "1.0016~"])", ": has 2 values, expected 3"}}) {
    EXPECT_NE(error(printed).find("observed.y" + what), std::string::npos) << error(printed);
  }

  const std::string reals = R"({"qualm_case": 1, "op": "dequantize", "M": 1, "N": 2, "x_scale": 0.1,
      "x_zp": 0, "x": [3, 7], "observed": {"by": "x", "y": ["0.3000~", 0.5]}})";
  const Case c = ParseCase(reals, "f");
  EXPECT_EQ(c.observed->printed, (std::vector<std::pair<int64_t, std::string>>{{0, "0.3000"}}));
  EXPECT_EQ(ParseCase(CaseToJson(c), "written"), c);
  Case changed = c;
  changed.observed->printed[0].second = "0.31";
  EXPECT_EQ(Validate(changed), "observed: a printed number stands for another value");
}

TEST(CaseJson, TakesDecimalScalesAsPrinted) {
  using List = Printed::List;
  const std::string text = And(R"("bias": [0.5, 1.5], "relu": true)");
  EXPECT_EQ(ParseCase(text, "f").printed, std::vector<Printed>{});
  EXPECT_EQ(ParseCase(text, "f", {.as_printed = true}).printed,
            (std::vector<Printed>{{List::kXScale, 0, "0.1"}, {List::kWScale, 0, "0.25"}}));
  // An integer is no decimal, however long, and a hex float says all of its bits.
  for (const std::string integer : {"1", "100000000000000000000"}) {
    const std::string exact = With("0.1", integer, With("[0.25]", "\"0x1p-2\""));
    EXPECT_EQ(ParseCase(exact, "f", {.as_printed = true}).printed, std::vector<Printed>{});
  }
}

TEST(CaseJson, TellsUnknownNumbers) {
  std::vector<UnknownNumber> unknown;
  const Case c = ParseCase(With("\"x_zp\": 3", "\"x_zp\": \"?\"",
                                With("[0.25], \"w_zp\": [0]", R"(["?", 0.5], "w_zp": [4, "?"])",
                                     And(R"("gran": "channel", "out_max": "?")"))),
                           "f", {.unknown = &unknown});
  EXPECT_EQ(unknown,
            (std::vector<UnknownNumber>{{"x_zp", 0}, {"w_scale", 0}, {"w_zp", 1}, {"out_max", 0}}));
  EXPECT_EQ(c.x_q.zero_point, std::vector<int32_t>{0});
  EXPECT_EQ(c.w_q.scale, (std::vector<float>{1, 0.5}));
  EXPECT_EQ(c.w_q.zero_point, (std::vector<int32_t>{4, 0}));
  EXPECT_EQ(c.out_max, 255);
}

TEST(CaseJson, ReadsWindows) {
  const Case c = ParseCase(test::kConv, "f");
  Window v;
  v.batch = 1;
  v.in_h = 2, v.in_w = 3, v.in_c = 2;
  v.kernel_h = 2, v.kernel_w = 1;
  v.stride_h = 1, v.stride_w = 2;
  v.pad_top = 1, v.pad_right = 2;
  v.groups = 2;
  EXPECT_TRUE(c.window == v);
  EXPECT_EQ(c.N, 2);
  EXPECT_EQ(c.M, 2 * 3);
  EXPECT_EQ(c.K, 2);
  EXPECT_EQ(c.w.shape(), (std::vector<int64_t>{2, 2, 1, 1}));
  EXPECT_EQ(c.output_shape(), (std::vector<int64_t>{1, 2, 3, 2}));
  const Case depthwise =
      ParseCase(With(R"("groups": 2,)", "", With("conv2d", "depthwise", test::kConv)), "f");
  EXPECT_TRUE(depthwise.window == v) << "absent groups of depthwise are its channels";

  const Case pool = ParseCase(test::kPool, "f");
  EXPECT_EQ(pool.N, 1);
  EXPECT_EQ(pool.M, 9);
  EXPECT_EQ(pool.K, 4);
  EXPECT_TRUE(pool.window.ceil_mode);
  EXPECT_FALSE(pool.window.count_include_pad);

  const Case max = ParseCase(R"({"qualm_case": 1, "op": "max_pool", "N": 1, "H": 1, "W": 1, "C": 1,
      "R": 1, "S": 1, "x_dtype": "s8", "x_scale": 0.5, "x_zp": 3, "x": [-9]})",
                             "f");
  EXPECT_TRUE(max.out_q == max.x_q);
  EXPECT_EQ(max.out_dtype, DType::kS8);
  EXPECT_EQ(max.out_min, -128);
}

TEST(CaseJson, ReadsTwoOperands) {
  const Case c =
      ParseCase(With(R"("op": "add")", R"("op": "add", "x_dtype": "s8")", test::kAdd), "f");
  EXPECT_EQ(c.x.dtype(), DType::kS8);
  EXPECT_EQ(c.w.dtype(), DType::kS8);
  EXPECT_EQ(c.x.IntAt(1), 2);
  EXPECT_EQ(c.w.IntAt(1), 4);
  EXPECT_EQ(c.x_q.scale[0], 0.5f);
  EXPECT_EQ(c.w_q.scale[0], 0.25f);
  EXPECT_EQ(c.w_q.zero_point[0], 4);
}

TEST(CaseJson, DefaultsFollowTheOutputType) {
  const Case c = ParseCase(And(R"("out_dtype": "s8", "relu": 1, "bias": null)"), "f");
  EXPECT_EQ(c.out_min, -128);
  EXPECT_EQ(c.out_max, 127);
  EXPECT_TRUE(c.relu);
  EXPECT_FALSE(c.bias.has_value());
}

// A reader that goes through double rounds twice: to 1 + 2^-24, then down to even.
TEST(CaseJson, NumbersRoundOnce) {
  const std::string text =
      With("\"x_scale\": 0.1", "\"x_scale\": 1.00000005960464477539062500000000000001");
  EXPECT_EQ(ParseCase(text, "f").x_q.scale[0], std::nextafter(1.0f, 2.0f));
  // 2^24 + 1 is an integer token; float32 has only its even neighbours.
  EXPECT_EQ(ParseCase(With("\"x_scale\": 0.1", "\"x_scale\": 16777217"), "f").x_q.scale[0],
            16777216.0f);
}

TEST(CaseJson, SpecialFloatsAreData) {
  const Case c =
      ParseCase(R"({"qualm_case": 1, "op": "quantize", "M": 1, "N": 6, "out_scale": 1e-45,
      "out_zp": -2147483648, "x": ["inf", "-inf", "nan:ffc00001", -0.0, 5, 1e-60]})",
                "f");
  EXPECT_EQ(c.x.BitsAt(0), 0x7F800000u);
  EXPECT_EQ(c.x.BitsAt(1), 0xFF800000u);
  EXPECT_EQ(c.x.BitsAt(2), 0xFFC00001u);
  EXPECT_EQ(c.x.BitsAt(3), 0x80000000u);
  EXPECT_EQ(c.x.FloatAt(4), 5.0f);
  EXPECT_EQ(c.x.BitsAt(5), 0u);
  EXPECT_EQ(c.out_q.scale[0], std::numeric_limits<float>::denorm_min());
}

TEST(CaseJson, RoundTrip) {
  test::RandomCase draw(20240601);
  for (const Op op : AllOps()) {
    for (int i = 0; i < 3000; ++i) {
      const Case c = draw.DrawWhole(op);
      ASSERT_EQ(Validate(c), "");
      const std::string pretty = CaseToJson(c);
      ASSERT_EQ(pretty.back(), '\n');
      ASSERT_TRUE(ParseCase(pretty, "f") == c) << pretty;
      const std::string line = CaseToJsonLine(c);
      ASSERT_EQ(line.find('\n'), std::string::npos);
      ASSERT_TRUE(ParseCase(line, "f") == c) << line;
    }
  }
}

TEST(CaseJson, RoundTripOfBlocks) {
  test::RandomCase draw(20261128);
  for (const Op op : {Op::kLinear, Op::kDynamicLinear}) {
    for (int i = 0; i < 1000; ++i) {
      const Case c = draw.DrawInBlocks(op);
      ASSERT_EQ(Validate(c), "");
      ASSERT_TRUE(ParseCase(CaseToJsonLine(c), "f") == c) << CaseToJsonLine(c);
    }
  }
}

TEST(CaseJson, RoundTripOfFloatX) {
  test::RandomCase draw(20261129);
  for (int i = 0; i < 1000; ++i) {
    const Case c = draw.DrawFloatX();
    ASSERT_EQ(Validate(c), "");
    const std::string text = CaseToJsonLine(c);
    ASSERT_TRUE(ParseCase(text, "f") == c) << text;
    ASSERT_EQ(text.find("x_scale"), std::string::npos) << text;
  }
}

TEST(CaseJson, RoundTripOfScaledCasts) {
  test::RandomCase draw(20261130);
  int lists = 0;
  for (int i = 0; i < 1000; ++i) {
    const Case c = draw.DrawScaledCast();
    ASSERT_EQ(Validate(c), "");
    const std::string text = CaseToJsonLine(c);
    ASSERT_TRUE(ParseCase(text, "f") == c) << text;
    ASSERT_EQ(text.find("_zp"), std::string::npos) << text;
    for (const auto& [key, q] : {std::pair{"\"x_scale\"", &c.x_q}, {"\"out_scale\"", &c.out_q}})
      ASSERT_EQ(text.find(key) != std::string::npos,
                std::ranges::any_of(q->scale, [](float scale) { return scale != 1; }))
          << text;
    lists += c.per_channel || c.x_block != 0 ? 1 : 0;
  }
  EXPECT_GT(lists, 300);
  const std::string printed =
      R"({"qualm_case": 1, "op": "cast", "M": 1, "N": 1, "x": [5], "out_scale": "0.10~"})";
  const Case c = ParseCase(printed, "f");
  EXPECT_EQ(c.printed, (std::vector<Printed>{{Printed::List::kOutScale, 0, "0.10"}}));
  EXPECT_EQ(ParseCase(CaseToJsonLine(c), "f").printed, c.printed);
}

TEST(CaseJson, HostileTextsNameFileAndField) {
  const std::vector<Hostile> table = HostileTable();
  std::set<std::string> distinct;
  for (const Hostile& hostile : table) {
    const std::string error = Error(hostile.text);
    const std::string shown = hostile.text.substr(0, 400);
    distinct.insert(hostile.text);
    EXPECT_TRUE(error.starts_with("f.case.json: " + hostile.field + ": "))
        << "got:  " << error << "\nwant: " << hostile.field << "\nfor:  " << shown;
    EXPECT_NE(error.find(hostile.says), std::string::npos)
        << "got:  " << error << "\nwant: " << hostile.says << "\nfor:  " << shown;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    EXPECT_LT(error.size(), 400u) << error;
  }
  EXPECT_EQ(distinct.size(), table.size());
  EXPECT_GE(distinct.size(), 100u);
}

TEST(CaseJson, EveryPrefixAndEveryDamagedByteIsRefusedOrReads) {
  for (const std::string_view whole : {kLinear, test::kConv, test::kPool, test::kAdd}) {
    const std::string text(whole);
    for (size_t length = 0; length < text.size(); ++length) {
      EXPECT_NE(Error(std::string_view(text).substr(0, length)), "") << length;
    }
    Rng rng(7);
    int read = 0;
    int refused = 0;
    for (int i = 0; i < 8000; ++i) {
      std::string damaged = text;
      damaged[rng.Below(damaged.size())] = static_cast<char>(rng.Next());
      try {
        const Case c = ParseCase(damaged, "f");
        ASSERT_EQ(Validate(c), "");
        ASSERT_TRUE(ParseCase(CaseToJson(c), "f") == c);
        ++read;
      } catch (const InputError&) {
        ++refused;
      }
    }
    EXPECT_GT(read, 0);
    EXPECT_GT(refused, 0);
  }
}

// A path that is no ordinary file is written into, never replaced: a rename removes a device.
TEST(CaseJson, LinksAreWrittenThrough) {
  const std::string target = testing::TempDir() + "qualm-link-target.case.json";
  const std::string link = testing::TempDir() + "qualm-link.case.json";
  std::filesystem::remove(link);
  std::filesystem::create_symlink(target, link);
  const Case c = ParseCase(kLinear, "f");
  for (int round = 0; round < 2; ++round) {  // dangling, then not
    WriteCaseFile(c, link);
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_EQ(ReadCaseFile(target), c);
  }
  std::filesystem::remove(link);
  std::filesystem::create_symlink("/dev/full", link);
  EXPECT_THROW(WriteCaseFile(c, link), InputError);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  std::filesystem::remove(link);
  std::filesystem::remove(target);
}

TEST(CaseJson, FileNamesStayOnOneLine) {
  EXPECT_EQ(Error("{}", "a\nb"), "a?b: qualm_case: is missing, expected it in every case");
}

class CaseFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("qualm-case-file-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static std::string FileError(const std::string& path) {
    return Refusal([&] { ReadCaseFile(path); });
  }
  std::filesystem::path folder_;
};

TEST_F(CaseFile, WritesAndReads) {
  const Case c = test::RandomCase(3).DrawWhole(Op::kLinear);
  const std::string path = folder_ / "a.case.json";
  WriteCaseFile(c, path);
  WriteCaseFile(c, path);  // replaces
  EXPECT_TRUE(ReadCaseFile(path) == c);
  const auto files = std::distance(std::filesystem::directory_iterator(folder_), {});
  EXPECT_EQ(files, 1) << "a temporary file was left behind";
  struct stat status{};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
}

TEST_F(CaseFile, NamesArraysBesideIt) {
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  };
  const std::string whole = With("[3, -4, 5, -128]", "\"w.npy\"");
  const std::string path =
      write("a.case.json", With("\"w_scale\": [0.25], \"w_zp\": [0]",
                                "\"w_scale\": \"s.npy\", \"w_zp\": \"z.npy\"", whole));
  write("s.npy", NpyOf(Tensor::Of<float>({1}, std::vector{0.25f})));
  write("z.npy", NpyOf(Tensor::Of<int32_t>({1, 1}, std::vector{0})));
  const Case c = ParseCase(kLinear, "f");
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 2}, {4}}) {
    write("w.npy", NpyOf(Tensor::Of<int8_t>(shape, std::vector<int8_t>{3, -4, 5, -128})));
    EXPECT_TRUE(ReadCaseFile(path) == c);
    write("w.npy", NpyOf(Tensor::Of<int32_t>(shape, std::vector{3, -4, 5, -128})));
    EXPECT_TRUE(ReadCaseFile(path) == c);
  }
  const struct {
    Tensor w;
    std::string says;
  } wrong[] = {
      {Tensor(DType::kS8, {1, 4}), "has shape [1,4] in \"w.npy\", expected [2,2]"},
      {Tensor(DType::kS8, {3}), "has 3 values, expected 4 for shape [2,2]"},
      {Tensor(DType::kF32, {2, 2}), "holds float32 in \"w.npy\", expected integers"},
      {Tensor::Of<uint8_t>({4}, std::vector<uint8_t>{1, 2, 128, 4}),
       "is 128, expected s8 values (an integer in -128..127)"},
  };
  for (const auto& [w, says] : wrong) {
    write("w.npy", NpyOf(w));
    const std::string place = says.starts_with("is 128") ? ": w[2]: " : ": w: ";
    EXPECT_EQ(FileError(path), path + place + says);
  }
  write("w.npy", "no array");
  EXPECT_TRUE(Begins(FileError(path), path + ": w: " + (folder_ / "w.npy").string() + ": file: "));
  std::filesystem::remove(folder_ / "w.npy");
  EXPECT_TRUE(Begins(FileError(path), path + ": w: " + (folder_ / "w.npy").string() + ": file: "));
  // A message of a pipe has no folder.
  EXPECT_EQ(Error(whole),
            "f.case.json: w: names the file \"w.npy\", expected numbers: only a case file can name "
            "one");
}

TEST_F(CaseFile, UnreadableFilesAreNamed) {
  const std::string missing = folder_ / "missing.case.json";
  EXPECT_EQ(FileError(missing), missing +
                                    ": file: cannot be opened (No such file or directory), "
                                    "expected a readable case file");
  EXPECT_EQ(FileError(folder_), folder_.string() + ": file: is a directory, expected a case file");
  const std::string empty = folder_ / "empty.case.json";
  std::ofstream(empty).close();
  EXPECT_TRUE(FileError(empty).starts_with(empty + ": top level: "));
}

TEST_F(CaseFile, UnwritablePathsAreNamed) {
  const std::string path = folder_ / "no" / "such" / "folder.case.json";
  EXPECT_TRUE(Begins(Refusal([&] { WriteCaseFile(ParseCase(kLinear, "f"), path); }),
                     path + ": file: cannot be created"));
}

TEST_F(CaseFile, TooLongFilesAreRefused) {
  const std::string path = folder_ / "long.case.json";
  std::ofstream(path).close();
  std::filesystem::resize_file(path, (uintmax_t{1} << 30) + 1);
  EXPECT_EQ(FileError(path),
            path + ": file: is longer than 1073741824 bytes, expected a shorter case");
}

}  // namespace
}  // namespace qualm
