// SPDX-License-Identifier: Apache-2.0
// --emit of the real command. What the exporters write is tested in exporters/.
#include <filesystem>
#include <string>

#include "core/io/case_json.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

class Emit : public QualmTest {
 protected:
  const std::string sweep_ = Corpus("forum/000-linear-sweep.case.json");
  const std::string pair_ = Corpus("regressions/linear-pair-sum-saturates.case.json");
};

TEST_F(Emit, TheSmallestCaseOfTheForumSweepRunsAlone) {
  const Ran ran = Qualm(1, {"minimize", sweep_, "-s", "model:fbgemm@avx2", "--emit", "cpp", "-o",
                            "a name'with\" signs.cc"});
  EXPECT_TRUE(Has(ran.out, "minimized: "));
  EXPECT_TRUE(Has(Read("a name'with\" signs.cc"), "129, 132"));
  if (Shell("command -v c++").status != 0) GTEST_SKIP() << "no c++ here";
  const Ran shown = Shell("cp a*.cc a.cc && c++ -std=c++17 a.cc -o a && ./a");
  EXPECT_EQ(shown.status, 1) << shown.err;
  EXPECT_EQ(shown.out, "EXPECTED 129\nGOT      128\n");
}

TEST_F(Emit, StdoutHasTheProgramAlone) {
  for (const char* verb : {"explain", "replay", "minimize"}) {
    const Ran ran = Qualm({verb, pair_, "-s", "model:fbgemm@avx2", "--emit", "numpy"});
    // That convention is known for it: replay counts the failure as expected.
    EXPECT_EQ(ran.status, std::string(verb) == "replay" ? 0 : 1) << ran.err;
    EXPECT_TRUE(Begins(ran.out, "# linear M=1 N=1 K=2 ")) << verb;
    EXPECT_TRUE(Ends(ran.out, "raise SystemExit(1 if differ else 0)\n")) << verb;
  }
}

TEST_F(Emit, WithoutASubjectTheObservedAnswerIsShown) {
  const Ran ran = Qualm(1, {"explain", pair_, "--emit", "issue"});
  EXPECT_TRUE(Has(ran.out, "## Actual\n\n`128`"));
}

// A name and a note that would end a comment, a fence or a command.
TEST_F(Emit, NamesFromOutsideStayInTheirPlace) {
  Case c = ReadCaseFile(pair_);
  c.note = "```\n# not a title\n*/ \\";
  c.observed->by = "mine`\n```\n# not a title */ \\";
  const std::string file = Write("a;b `c` $(d).case.json", CaseToJson(c));
  const Ran issue = Qualm(1, {"explain", file, "--emit", "issue"});
  size_t fences = 0;
  for (const std::string& line : Lines(issue.out)) {
    EXPECT_NE(line, "# not a title");
    fences += line.starts_with("```") ? 1 : 0;
  }
  EXPECT_EQ(fences % 2, 0u) << issue.out;
  Qualm(1, {"explain", file, "--emit", "numpy", "-o", "a.py"});
  if (Shell("command -v python3").status != 0) GTEST_SKIP() << "no python3 here";
  EXPECT_EQ(Shell("python3 a.py").out,
            "EXPECTED 129\nGOT      128\nindex 0: expected 129, got 128\n");
}

TEST_F(Emit, AModelIsAFolder) {
  Qualm(1, {"explain", pair_, "--emit", "onnx", "-o", "model"});
  for (const char* file :
       {"model.onnx", "test_data_set_0/input_0.pb", "test_data_set_0/output_0.pb"})
    EXPECT_TRUE(std::filesystem::exists(folder() / "model" / file)) << file;
  ExpectBadInput({"explain", pair_, "--emit", "onnx", "-o", "model"},
                 "--output: model: is not empty, expected a new folder");
  ExpectBadInput({"explain", pair_, "--emit", "onnx"},
                 "--emit: onnx is a folder, expected -o FOLDER too");
}

TEST_F(Emit, BadUseIsOneLine) {
  ExpectBadInput({"explain", pair_, "--emit", "perl"}, "--emit: there is no 'perl'");
  ExpectBadInput({"explain", pair_, "--emit", "cpp", "--json", "-"}, "--emit: stdout takes one");
  ExpectBadInput({"explain", pair_, "--emit", "cpp", "-o", pair_}, "--output: ");
  ExpectBadInput({"explain", pair_, "-o", "x.cc"}, "--output: is for --emit");
  ExpectBadInput({"replay", pair_, sweep_, "--emit", "cpp"}, "--emit: takes one case file");
  Case silent = ReadCaseFile(pair_);
  silent.observed.reset();
  const Ran ran = Qualm(2, {"explain", Write("a.case.json", CaseToJson(silent)), "--emit", "cpp"});
  EXPECT_EQ(ran.out, "");
  EXPECT_TRUE(Has(ran.err, "qualm: --emit: cpp lacks an answer"));
}

TEST_F(Emit, ListNamesTheKinds) {
  const Ran ran = Qualm(0, {"list", "exporters"});
  for (const char* kind : {"case", "cpp", "gtest", "issue", "numpy", "onednn", "onnx", "pytorch",
                           "xnnpack", "xnnpack2024"})
    EXPECT_TRUE(Has(("\n" + ran.out), "\n" + std::string(kind) + " ")) << kind;
}

}  // namespace
}  // namespace qualm::tools
