// SPDX-License-Identifier: Apache-2.0
#include "campaign/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "adapters/registry.h"
#include "campaign/driver.h"
#include "campaign/rehearsal.h"
#include "campaign/state.h"
#include "core/executable.h"
#include "core/status.h"
#include "core/text_test_util.h"

namespace qualm::campaign {
namespace {

namespace fs = std::filesystem;

class EngineTest : public testing::Test {
 protected:
  void SetUp() override {
    RegisterAllSubjects();
    folder_ = fs::path(testing::TempDir()) / ("qualm-engine-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::vector<const Engine*> Engines() {
    std::vector<const Engine*> engines;
    for (const char* name : {"libfuzzer", "standalone"}) {
      try {
        engines.push_back(&FindEngine(name));
      } catch (const Unavailable&) {
      }
    }
    return engines;
  }

  // An engine that runs this program instead, with its own arguments.
  static Engine Program(std::string& path, std::vector<std::string> (*arguments)(const Stretch&)) {
    path = fs::relative(path, ExecutableFolder()).string();
    return {"broken", path, arguments, [](int status) { return status == 0; }};
  }

  fs::path folder_;
};

TEST_F(EngineTest, UnknownEnginesAreNamed) {
  EXPECT_THROW(FindEngine("libfuzer"), InputError);
  EXPECT_FALSE(Engines().empty());
}

TEST_F(EngineTest, EveryEngineFindsTheCanaryOfEveryOperation) {
  for (const Engine* engine : Engines()) {
    for (const Op op : AllOps()) {
      const CanaryResult canary =
          RunCanary(*engine, {op, "native@all", "", "*"}, "", folder_ / "canary", nullptr);
      EXPECT_TRUE(canary.found) << engine->name << " " << Name(op) << canary.last_words;
      EXPECT_LT(canary.executions, 5000) << engine->name << " " << Name(op);
    }
  }
}

// An engine that runs nothing, and a fuzz target that never starts.
TEST_F(EngineTest, ABrokenConfigurationHasNoCanary) {
  std::string path = "/bin/true";
  const Engine idle = Program(path, [](const Stretch&) { return std::vector<std::string>{}; });
  const CanaryResult canary =
      RunCanary(idle, {Op::kLinear, "native", "", "*"}, "", folder_ / "canary", nullptr);
  EXPECT_FALSE(canary.found);
  EXPECT_EQ(canary.executions, 0);
  const State state("--state", folder_ / "state");
  CampaignOptions options;
  options.aims = {{Op::kLinear, "native", "", "*"}};
  EXPECT_TRUE(Has(Refusal<Unavailable>([&] { RequireCanaries(idle, state, options); }),
                  "this configuration is broken"));
}

// The subject is right; the fuzz target itself dies, as under a sanitizer.
TEST_F(EngineTest, ATargetThatDiesIsAFindingAndIsStartedAgain) {
  const Engine& libfuzzer = *Engines().front();
  if (libfuzzer.name != "libfuzzer") GTEST_SKIP() << "built without libFuzzer";
  Engine dies = libfuzzer;
  dies.arguments = [](const Stretch& stretch) {
    return std::vector<std::string>{"-rss_limit_mb=1", "-max_len=64",
                                    "-artifact_prefix=" + stretch.scratch + "/", stretch.kept};
  };
  State state("--state", folder_ / "state");
  CampaignOptions options;
  options.aims = {{Op::kLinear, "native@emu128", "", "*"}};
  options.seconds = 20;
  int restarts = 0;
  options.say = [&](const std::string& text) { restarts += text.ends_with("started again"); };
  options.stop = [&] { return restarts >= 2; };
  const Progress progress = RunCampaign(dies, state, options);
  EXPECT_GE(progress.deaths, 2);
  // The campaign may have looked into the first death before the second.
  EXPECT_TRUE(!state.Inbox().empty() || !progress.rows.empty());
  options.stop = nullptr;
  options.seconds = 0.1;
  const Progress rest = RunCampaign(*Engines().back(), state, options);
  ASSERT_EQ(rest.rows.size(), 1u);
  EXPECT_EQ(rest.rows[0].kind, FindingKind::kCrash);
  EXPECT_EQ(rest.rows[0].replayed, Replayed::kFlaky);
}

}  // namespace
}  // namespace qualm::campaign
