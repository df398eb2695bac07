// SPDX-License-Identifier: Apache-2.0
// qualm new: the project that it writes compiles for every operation, and qualm judges what is
// filled in.
#include <filesystem>
#include <string>
#include <vector>

#include "core/op.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

class New : public QualmTest {
 protected:
  void SetUp() override {
    QualmTest::SetUp();
    if (Shell("command -v c++ && command -v cc && command -v cmake").status != 0)
      GTEST_SKIP() << "there is no C++ and C compiler, or no cmake";
  }

  // Compiles what was written for one operation, with warnings that a user may well have.
  void ExpectCompiles(const std::string& op, const std::string& language) {
    const std::string name = op + (language == "c" ? "_in_c" : "");
    Qualm(0, {"new", "plugin", name, "--op", op, "--language", language});
    const std::string compiler = language == "c" ? "cc -std=c11" : "c++ -std=c++17";
    const Ran ran = Shell(compiler + " -Wall -Wextra -Werror -Wno-unused -fsyntax-only -I '" +
                          QUALM_SOURCE_DIR "/adapters' " + name + "/" + name +
                          (language == "c" ? ".c" : ".cc"));
    EXPECT_FALSE(Has(Read(name + "/CMakeLists.txt"), "@"));
    EXPECT_EQ(ran.status, 0) << name << "\n" << ran.out << ran.err;
  }

  // Puts `kernel` in the place of the lines that refuse, builds as the verb says, and tests.
  Ran Filled(const std::string& name, const std::string& language, const std::string& kernel,
             const std::string& format = "") {
    const std::string file = name + "/" + name + (language == "c" ? ".c" : ".cc");
    std::vector<std::string> asked{"new", "plugin", name, "--language", language};
    if (!format.empty()) asked.insert(asked.end(), {"--format", format});
    const Ran made = Qualm(0, asked);
    std::string source = Read(file);
    const size_t from = source.find(language == "c" ? "  error = " : "  throw ");
    const size_t to = source.find("\n}\n", from);
    EXPECT_NE(to, std::string::npos);
    Write(file, source.substr(0, from) + kernel + source.substr(to + 1));
    // "next: cd NAME", and the commands below it.
    const std::string commands = made.out.substr(made.out.find("cd "));
    // What builds qualm need not have make, which is what CMake looks for first.
    return Shell("set -e; command -v make >/dev/null || export CMAKE_GENERATOR=Ninja; " + commands);
  }
};

TEST_F(New, EveryOperationOfPluginsCompiles) {
  for (const OpRow& row : kOpRows) {
    if (row.op == Op::kChooseQParams) continue;
    for (const std::string language : {"c", "c++"}) ExpectCompiles(std::string(row.name), language);
  }
}

constexpr const char* kLinear =
    "  for (int64_t m = 0; m < M; ++m) {\n"
    "    for (int64_t n = 0; n < N; ++n) {\n"
    "      int32_t sum = 0;\n"
    "      for (int64_t k = 0; k < K; ++k)\n"
    "        sum += (x[m * K + k] - x_zero_point) * (w[n * K + k] - w_zero_point);\n"
    "      y[m * N + n] = sum;\n"
    "    }\n"
    "  }\n";

TEST_F(New, AKernelThatIsFilledInIsJudged) {
  for (const std::string language : {"c", "c++"}) {
    const std::string name = language == "c" ? "in_c" : "in_cpp";
    const std::string end = language == "c" ? "  return QUALM_OK;\n" : "";
    const Ran good = Filled(name, language, kLinear + end);
    EXPECT_EQ(good.status, 0) << good.out << good.err;
    std::string forgets = kLinear;
    forgets.replace(forgets.find("k < K"), 5, "k + 1 < K");
    const Ran bad = Filled(name + "_bad", language, forgets + end);
    EXPECT_NE(bad.status, 0);
    EXPECT_TRUE(Has(bad.out, "drops the last term")) << bad.out << bad.err;
    // ctest runs in build/: the row and the commands name the plugin from the shell's folder.
    const std::string plugin = "plugin:build/" + name + "_bad.so";
    EXPECT_TRUE(Has(bad.out, "fails on " + plugin)) << bad.out;
    EXPECT_TRUE(Has(bad.out, "--subject " + plugin)) << bad.out;
    EXPECT_FALSE(Has(bad.out, "plugin:./")) << bad.out;
  }
}

constexpr const char* kDotOfBlocks =
    "  for (int64_t m = 0; m < M; ++m) {\n"
    "    for (int64_t n = 0; n < N; ++n) {\n"
    "      float sum = 0;\n"
    "      for (int64_t block = 0; block < K / 32; ++block) {\n"
    "        const uint8_t* a = w + n * p.w_row_bytes + 18 * block;\n"
    "        const uint8_t* b = x + m * p.x_row_bytes + 34 * block;\n"
    "        int dot = 0;\n"
    "        for (int i = 0; i < 32; ++i)\n"
    "          dot += ((i < 16 ? a[2 + i] & 15 : a[i - 14] >> 4) - 8) * (int8_t)b[2 + i];\n"
    "        _Float16 scale_of_w, scale_of_x;\n"
    "        __builtin_memcpy(&scale_of_w, a, 2);\n"
    "        __builtin_memcpy(&scale_of_x, b, 2);\n"
    "        sum += (float)scale_of_w * (float)scale_of_x * (float)dot;\n"
    "      }\n"
    "      y[m * N + n] = sum;\n"
    "    }\n"
    "  }\n";

TEST_F(New, AKernelOfBlocksIsJudgedOnTheBytesOfItsFormat) {
  const std::string has_half = "echo '_Float16 f;' | ";
  if (Shell(has_half + "cc -xc -fsyntax-only - && " + has_half + "c++ -xc++ -fsyntax-only -")
          .status != 0)
    GTEST_SKIP() << "the compiler has no _Float16";
  for (const std::string language : {"c", "c++"}) {
    const std::string name = language == "c" ? "blocks_in_c" : "blocks_in_cpp";
    const std::string end = language == "c" ? "  return QUALM_OK;\n" : "";
    if (language == "c") {
      const Ran good = Filled(name, language, kDotOfBlocks + end, "q4_0");
      EXPECT_EQ(good.status, 0) << good.out << good.err;
    }
    std::string beyond = kDotOfBlocks;
    beyond.replace(beyond.find("block < K / 32"), 14, "block <= K / 32");
    const Ran bad = Filled(name + "_bad", language, beyond + end, "q4_0");
    EXPECT_NE(bad.status, 0);
    EXPECT_TRUE(Has(bad.out, "past the end of w_packed") ||
                Has(bad.out, "past the end of x_packed"))
        << bad.out << bad.err;
  }
}

// An empty project is not OK: nothing was judged.
TEST_F(New, AnEmptyProjectSaysWhatIsMissing) {
  const Ran empty =
      Filled("empty", "c++", "  throw qualm::plugin::Unsupported(\"nothing yet\");\n");
  EXPECT_NE(empty.status, 0);
  EXPECT_TRUE(Has(empty.out, "nothing yet")) << empty.out;
}

TEST_F(New, WhatAFunctionThrowsIsTheAnswer) {
  const Ran thrown = Filled("thrown", "c++", "  throw std::runtime_error(\"no memory today\");\n");
  EXPECT_NE(thrown.status, 0);
  EXPECT_TRUE(Has(thrown.out, "no memory today")) << thrown.out;
}

TEST_F(New, WrongWordsGetOneLine) {
  ExpectBadInput({"new", "plugin", "7up"}, "NAME: is '7up', expected letters, digits and _");
  ExpectBadInput({"new", "plugin", "x", "--op", "liner"}, "--op: ");
  ExpectBadInput({"new", "plugin", "x", "--op", "choose_qparams"}, "--op: choose_qparams is no ");
  ExpectBadInput({"new", "plugin", "x", "--dtype", "u9"}, "--dtype: the type of x is 'u9', ");
  ExpectBadInput({"new", "plugin", "x", "--dtype", "u8s8s32f32"}, "--dtype: is 'u8s8s32f32', ");
  ExpectBadInput({"new", "python", "x", "--op", "choose_qparams"}, "--op: choose_qparams is no ");
  ExpectBadInput({"new", "library", "x"}, "WHAT: ");
  ExpectBadInput({"new", "plugin", "x", "--format", "q9"},
                 "--format: is 'q9', expected one of q8_0");
  ExpectBadInput({"new", "plugin", "x", "--format", "q4_0", "--op", "add"},
                 "--format: is for linear of a plugin");
  EXPECT_FALSE(fs::exists(folder() / "x"));
  Qualm(0, {"new", "plugin", "x", "--dtype", "s8s4f32"});
  EXPECT_TRUE(Has(Read("x/x.cc"), "x s8 [M,K], w s4 [N,K] -> y f32 [M,N]"));
  Qualm(0, {"new", "plugin", "y", "--dtype", "f32u4f32"});
  EXPECT_TRUE(Has(Read("y/y.cc"), "x f32 [M,K], w u4 [N,K] -> y f32 [M,N]"));
  EXPECT_TRUE(Has(Read("y/y.cc"), "limits.features = QUALM_CAN_FLOAT_X;"));
  EXPECT_FALSE(Has(Read("y/y.cc"), "x_scale"));
  ExpectBadInput({"new", "plugin", "z", "--dtype", "f32u4s32"},
                 "--dtype: the type of y is 's32', expected f32");
  ExpectBadInput({"new", "plugin", "x"}, "NAME: 'x' exists already, expected a new folder");
}

}  // namespace
}  // namespace qualm::tools
