// SPDX-License-Identifier: Apache-2.0
// docs/ci.md holds what somebody copies into their repository: its commands are run here, on the
// example plugin and on one with a bug.
#include <filesystem>
#include <string>
#include <vector>

#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

class CiPage : public QualmTest {
 protected:
  // The fenced blocks of a language, in order.
  std::vector<std::string> Blocks(const std::string& language) const {
    std::vector<std::string> blocks;
    bool inside = false;
    for (const std::string& line : Lines(page_)) {
      if (line == "```" + language) {
        blocks.emplace_back();
        inside = true;
      } else if (line.starts_with("```")) {
        inside = false;
      } else if (inside) {
        blocks.back() += line + "\n";
      }
    }
    return blocks;
  }

  // Somebody's repository: qualm beside their kernels, and the command in the path.
  void SetUp() override {
    QualmTest::SetUp();
    if (Shell("command -v cc").status != 0) GTEST_SKIP() << "there is no C compiler cc";
    fs::create_symlink(QUALM_SOURCE_DIR, folder() / "qualm");
    fs::create_directory(folder() / "bin");
    fs::create_symlink(QUALM_BINARY_DIR "/bin/qualm", folder() / "bin/qualm");
    const std::vector<std::string> blocks = Blocks("sh");
    ASSERT_EQ(blocks.size(), 4u);  // tools/recipes_test.py runs the last
    build_ = blocks[0];
    once_ = blocks[1];
    every_push_ = blocks[2];
    fuzz_ = blocks[3];
  }

  Ran Page(const std::string& commands) { return Shell(commands, (folder() / "bin").string()); }

  const std::string page_ = ReadSource("docs/ci.md");
  const std::string plugin_ = ReadSource("examples/plugin/example_plugin.c");
  std::string build_, once_, every_push_, fuzz_;
};

TEST_F(CiPage, ItsCommandsPassAGoodPlugin) {
  Write("my_kernels.c", plugin_);
  ASSERT_EQ(Page(build_).status, 0);
  EXPECT_EQ(Page(once_).status, 0);
  const Ran ran = Page(every_push_);
  EXPECT_EQ(ran.status, 0) << ran.err << ran.out;
  EXPECT_TRUE(Begins(Read("qualm.xml"), "<?xml "));
  EXPECT_GT(ReadJson("qualm.json")["totals"]["passed"], 1000);
}

TEST_F(CiPage, ItsCommandsTellANewBugFromAKnownOne) {
  Write("my_kernels.c", plugin_);
  ASSERT_EQ(Page(build_ + once_).status, 0);
  // relu is forgotten.
  std::string bug = plugin_;
  const std::string relu = "if (p->relu && sum < 0) sum = 0;";
  ASSERT_TRUE(Has(bug, relu));
  bug.erase(bug.find(relu), relu.size());
  Write("my_kernels.c", bug);
  ASSERT_EQ(Page(build_).status, 0);
  const Ran found = Page(every_push_);
  EXPECT_EQ(found.status, 1) << found.err << found.out;
  EXPECT_TRUE(Has(Read("qualm.xml"), "<failure "));
  EXPECT_FALSE(fs::is_empty(folder() / "qualm-findings/findings"));
  // Accepted.
  EXPECT_EQ(Page(once_).status, 1);
  const Ran known = Page(every_push_);
  EXPECT_EQ(known.status, 0) << known.err << known.out;
  EXPECT_TRUE(Has(known.out, "  in the baseline ci/qualm-baseline.json\n"));
}

TEST_F(CiPage, ItsListOfSuppressionsIsOne) {
  const std::vector<std::string> lists = Blocks("json");
  ASSERT_EQ(lists.size(), 1u);
  Write("list.json", lists[0]);
  const Ran ran = Qualm(0, {"check", "-s", "native", "--op", "add", "-n", "1", "--suppressions",
                            "list.json", "--today", "2027-01-01"});
  EXPECT_TRUE(Begins(Lines(ran.err).back(), "qualm: list.json: no finding of this run is "))
      << ran.err;
}

// The workflow runs the same commands, and so do the steps that make another of it.
TEST_F(CiPage, ItsWorkflowsRunThem) {
  const std::vector<std::string> workflows = Blocks("yaml");
  ASSERT_EQ(workflows.size(), 2u);
  int commands = 0;
  const auto expect_in = [&](const std::string& workflow, const std::string& block) {
    for (const std::string& line : Lines(block)) {
      EXPECT_TRUE(Has(workflow, " " + line + "\n")) << line;
      ++commands;
    }
  };
  expect_in(workflows[0], build_ + every_push_);
  expect_in(workflows[1], fuzz_);
  EXPECT_EQ(commands, 5);
}

}  // namespace
}  // namespace qualm::tools
