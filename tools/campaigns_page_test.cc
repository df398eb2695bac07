// SPDX-License-Identifier: Apache-2.0
// The commands of docs/campaigns.md, on the example plugin with a bug in it, with seconds instead
// of hours.
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

class CampaignsPage : public QualmTest {
 protected:
  // The block that holds this text, with short times.
  std::string Block(const std::string& text) const {
    const size_t at = page_.find(text);
    const size_t begin = page_.rfind("```", at), end = page_.find("```", at);
    EXPECT_TRUE(at != std::string::npos && begin != std::string::npos) << text;
    const size_t first = page_.find('\n', begin) + 1;
    return std::regex_replace(page_.substr(first, end - first), std::regex("--time [0-9]+[mh] "),
                              "--time 3s ");
  }

  void SetUp() override {
    QualmTest::SetUp();
    if (Shell("command -v cc").status != 0) GTEST_SKIP() << "there is no C compiler cc";
    fs::create_directories(folder() / "bin");
    fs::create_directory(folder() / "build");
    fs::create_symlink(QUALM_BINARY_DIR "/bin/qualm", folder() / "bin/qualm");
    // relu is forgotten.
    std::string plugin = ReadSource("examples/plugin/example_plugin.c");
    const std::string relu = "if (p->relu && sum < 0) sum = 0;";
    ASSERT_TRUE(Has(plugin, relu));
    plugin.erase(plugin.find(relu), relu.size());
    Write("my_kernels.c", plugin);
    ASSERT_EQ(Shell("cc -O2 -shared -fPIC -I '" QUALM_SOURCE_DIR
                    "/adapters' -o build/my_kernels.so my_kernels.c")
                  .status,
              0);
  }

  Ran Page(const std::string& commands) { return Shell(commands, (folder() / "bin").string()); }

  const std::string page_ = ReadSource("docs/campaigns.md");
};

TEST_F(CampaignsPage, AWeekend) {
  const Ran weekend = Page(Block("--state weekend\n"));
  EXPECT_EQ(weekend.status, 1) << weekend.err;
  EXPECT_TRUE(Has(weekend.out, "[clamp]"));
  EXPECT_TRUE(Has(weekend.out, "my_kernels.so@"));
  EXPECT_EQ(Page("qualm report weekend").status, 0);
  const Ran kept = Page(Block("--to-corpus tests/regressions/weekend"));
  EXPECT_EQ(kept.status, 1) << kept.err;  // that of the replay: the bug is still there
  EXPECT_TRUE(fs::exists(folder() / "tests/regressions/weekend.case.json"));
}

TEST_F(CampaignsPage, TenMinutesOnEveryChange) {
  fs::create_directory(folder() / "ci");
  EXPECT_EQ(Page("qualm check --subject plugin:./build/my_kernels.so --op linear -n 500 --adapt "
                 "--json ci/qualm-baseline.json")
                .status,
            1);
  const Ran ran = Page(Block("--json qualm-fuzz.json"));
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}

TEST_F(CampaignsPage, ShardsOfASlurmArrayMerge) {
  for (const char* task : {"0", "1"}) {
    const Ran ran =
        Page("export SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_ID=" + std::string(task) + "\n" +
             Block("#SBATCH"));
    EXPECT_EQ(ran.status, 1) << ran.err;
    EXPECT_TRUE(Has(ran.err, "--shard " + std::string(task) + "/2"));
  }
  EXPECT_EQ(Page(Block("qualm merge")).status, 0);
  EXPECT_TRUE(fs::exists(folder() / "all/index.html"));
  // The number of shards stands in the manifest of Kubernetes twice, as it must.
  const std::string job = Block("kind: Job");
  EXPECT_TRUE(Has(job, "completions: 64\n"));
  EXPECT_TRUE(Has(job, "{name: JOB_COMPLETIONS, value: \"64\"}"));
}

}  // namespace
}  // namespace qualm::tools
