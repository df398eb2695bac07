// SPDX-License-Identifier: Apache-2.0
// Completion and man page, tried in the shells that are here, and `qualm doctor`.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

class ShellSupport : public QualmTest {
 protected:
  // The words that bash offers to complete the last of these words.
  std::vector<std::string> Completed(const std::string& words, int number) {
    const Ran ran = Shell("bash -c 'source <(qualm completion bash); COMP_WORDS=(" + words +
                          "); COMP_CWORD=" + std::to_string(number) +
                          "; _qualm qualm; printf \"%s\\n\" \"${COMPREPLY[@]}\"'");
    EXPECT_EQ(ran.status, 0) << ran.err;
    return Lines(ran.out);
  }
  bool HasProgram(const std::string& program) { return Shell("command -v " + program).status == 0; }
};

bool Holds(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

TEST_F(ShellSupport, BashCompletesVerbsOptionsSubjectsAndOperations) {
  EXPECT_EQ(Completed("qualm che", 1), std::vector<std::string>{"check"});
  EXPECT_TRUE(Holds(Completed("qualm check --ca", 2), "--cases"));
  EXPECT_FALSE(Holds(Completed("qualm check --", 2), "--bits")) << "an option of certify";
  EXPECT_TRUE(Holds(Completed("qualm check --subject faulty", 3), "faulty:k-tail"));
  EXPECT_TRUE(Holds(Completed("qualm check --op sof", 3), "softmax"));
  EXPECT_EQ(Completed("qualm check mine", 2), std::vector<std::string>{""}) << "a file name";
}

TEST_F(ShellSupport, EveryShellKnowsEveryVerb) {
  const std::string help = Qualm({"--help"}).out;
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const Ran ran = Qualm(0, {"completion", shell});
    for (const std::string verb : {"audit", "check", "exhaust", "repair", "merge", "man"}) {
      EXPECT_TRUE(Has(help, "  " + verb));
      EXPECT_TRUE(Has(ran.out, verb)) << shell << " " << verb;
    }
  }
  ExpectBadInput({"completion", "csh"}, "SHELL: csh not in {");
}

TEST_F(ShellSupport, ZshReadsItsScript) {
  if (!HasProgram("zsh")) GTEST_SKIP() << "no zsh";
  EXPECT_EQ(Shell("qualm completion zsh > _qualm && zsh -n _qualm").status, 0);
}

TEST_F(ShellSupport, FishReadsItsScript) {
  if (!HasProgram("fish")) GTEST_SKIP() << "no fish";
  EXPECT_EQ(Shell("qualm completion fish > q && fish -n q").status, 0);
}

TEST_F(ShellSupport, ManReadsItsPage) {
  const Ran page = Qualm(0, {"man"});
  EXPECT_TRUE(Begins(page.out, ".TH QUALM 1\n"));
  EXPECT_TRUE(Has(page.out, "\n.SS qualm check\n"));
  EXPECT_TRUE(Has(page.out, "\\-\\-subject"));
  if (!HasProgram("groff")) GTEST_SKIP() << "no groff";
  const Ran read = Shell("qualm man | groff -man -Tutf8 -ww");
  EXPECT_EQ(read.status, 0);
  EXPECT_EQ(read.err, "");
  EXPECT_TRUE(Has(read.out, "Exit status: 0 clean"));
}

TEST_F(ShellSupport, TheDoctorSaysWhatWorks) {
  const Ran ran = Qualm(0, {"doctor", "--json", "doctor.json"});
  EXPECT_TRUE(Has(ran.out, "ok      native"));
  std::ifstream file(folder() / "doctor.json");
  const test::Json lines = test::Json::parse(file)["doctor"];
  for (const std::string name : {"native", "faulty", "plugin", "fuzzing"}) {
    const auto line =
        std::ranges::find_if(lines, [&](const auto& row) { return row["name"] == name; });
    ASSERT_NE(line, lines.end()) << name;
    EXPECT_FALSE((*line)["about"].get<std::string>().empty());
  }
  EXPECT_EQ(lines[0]["usable"], true) << "our own kernels";
  for (const auto& line : lines) {
    const std::string name = line["name"], about = line["about"];
    if (line["usable"] && (name == "onednn" || name == "jax" || name == "torch@fbgemm"))
      EXPECT_TRUE(Has(about, "; promises model:")) << name << ": " << about;
  }
}

TEST_F(ShellSupport, TheCommandAloneSaysWhatToTry) {
  const Ran ran = Qualm(2, {});
  EXPECT_EQ(ran.err, "qualm: no verb, expected one (see qualm --help)\n");
  EXPECT_TRUE(Has(ran.out, "qualm doctor"));
}

}  // namespace
}  // namespace qualm::tools
