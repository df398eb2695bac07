// SPDX-License-Identifier: Apache-2.0
#include "campaign/shrink.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "campaign/driver.h"
#include "core/rng.h"
#include "core/status.h"
#include "fuzz/case_codec.h"
#include "fuzz/feedback.h"
#include "properties/gen/gen.h"

namespace qualm::campaign {
namespace {

namespace fs = std::filesystem;

class ShrinkTest : public testing::Test {
 protected:
  void SetUp() override {
    RegisterAllSubjects();
    folder_ = fs::path(testing::TempDir()) / ("qualm shrink-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Drawn cases, many of which come no nearer to anything than others.
  void Fill(const State& state, int count) const {
    for (int i = 0; i < count; ++i) {
      const auto bytes = fuzz::EncodeCase(gen::Draw(Op::kLinear, static_cast<uint64_t>(i)));
      if (bytes)
        state.AddInput({reinterpret_cast<const char*>(bytes->data()), bytes->size()}, Op::kLinear);
    }
  }

  static const Engine& LibFuzzer() { return FindEngine("libfuzzer"); }
  // The counters that some input of the corpus lights.
  static std::set<size_t> LitBy(const State& state) {
    std::set<size_t> lit;
    for (const auto& entry : fs::directory_iterator(state.Corpus(Op::kLinear))) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<uint8_t> bytes(std::istreambuf_iterator<char>(file), {});
      fuzz::ClearDistances();
      fuzz::ReportDistances(fuzz::DecodeCase(Op::kLinear, bytes));
      const auto counters = fuzz::DistanceCounters();
      for (size_t i = 0; i < counters.size(); ++i) {
        if (counters[i] != 0) lit.insert(i);
      }
    }
    return lit;
  }

  fs::path folder_;
};

bool HasLibFuzzer() {
  try {
    return FindEngine("libfuzzer").shrink != nullptr;
  } catch (const Unavailable&) {
    return false;
  }
}

TEST_F(ShrinkTest, FewerInputsLightAsMuch) {
  if (!HasLibFuzzer()) GTEST_SKIP() << "built without libFuzzer";
  const State state("--state", folder_);
  Fill(state, 600);
  const int64_t size = state.CorpusSize(Op::kLinear);
  const std::set<size_t> lit = LitBy(state);
  const auto shrunk = ShrinkCorpus(LibFuzzer(), state, Op::kLinear, 120, nullptr);
  ASSERT_TRUE(shrunk.has_value());
  EXPECT_EQ(shrunk->before, size);
  EXPECT_EQ(shrunk->after, state.CorpusSize(Op::kLinear));
  EXPECT_LT(shrunk->after, size * 9 / 10);
  EXPECT_EQ(LitBy(state), lit);
  EXPECT_TRUE(state.Inbox().empty());
  EXPECT_TRUE(fs::is_empty(folder_ / "jobs"));
}

// An input under another name than that of its content counts by its content.
TEST_F(ShrinkTest, NeededInputsStayWhateverTheirName) {
  const State state("--state", folder_);
  Fill(state, 20);
  std::vector<fs::path> files(fs::directory_iterator(state.Corpus(Op::kLinear)), {});
  const std::string needed = files[0].filename().string();
  fs::rename(files[0], files[0].parent_path() / "mine");
  const Shrunk shrunk = state.KeepInputs(Op::kLinear, {needed});
  EXPECT_EQ(shrunk.after, 1);
  EXPECT_EQ(state.CorpusSize(Op::kLinear), 1);
  EXPECT_TRUE(fs::exists(state.Corpus(Op::kLinear) / "mine"));
}

TEST_F(ShrinkTest, AnEngineThatDoesNotFinishChangesNothing) {
  if (!HasLibFuzzer()) GTEST_SKIP() << "built without libFuzzer";
  const State state("--state", folder_);
  Fill(state, 20);
  const int64_t size = state.CorpusSize(Op::kLinear);
  Engine fails = LibFuzzer();
  fails.shrink = [](const Shrinking& work) {
    return std::vector<std::string>{"-merge=1", work.needed, "/nowhere"};
  };
  EXPECT_FALSE(ShrinkCorpus(fails, state, Op::kLinear, 60, nullptr).has_value());
  // Ends well, and needs nothing.
  Engine idle = LibFuzzer();
  idle.shrink = [](const Shrinking&) { return std::vector<std::string>{"-help=1"}; };
  EXPECT_FALSE(ShrinkCorpus(idle, state, Op::kLinear, 60, nullptr).has_value());
  EXPECT_FALSE(ShrinkCorpus(LibFuzzer(), state, Op::kLinear, 60, [] { return true; }).has_value());
  EXPECT_FALSE(ShrinkCorpus(LibFuzzer(), state, Op::kLinear, 0, nullptr).has_value());
  EXPECT_EQ(state.CorpusSize(Op::kLinear), size);
}

// While the engine is at work, and while inputs are deleted.
TEST_F(ShrinkTest, AKillLosesNothing) {
  if (!HasLibFuzzer()) GTEST_SKIP() << "built without libFuzzer";
  std::set<size_t> lit;
  std::set<std::string> needed;
  {
    const State state("--state", folder_);
    Fill(state, 600);
    lit = LitBy(state);
    ASSERT_TRUE(ShrinkCorpus(LibFuzzer(), state, Op::kLinear, 120, nullptr).has_value());
    for (const auto& entry : fs::directory_iterator(state.Corpus(Op::kLinear))) {
      needed.insert(entry.path().filename().string());
    }
  }
  Rng rng(1);
  int amid = 0;
  for (int round = 0; round < 40; ++round) {
    const bool deletes = round % 4 != 0;
    const auto microseconds = static_cast<useconds_t>(rng.Below(deletes ? 1'000 : 500'000));
    int64_t size = 0;
    {
      const State state("--state", folder_);
      Fill(state, 600);
      size = state.CorpusSize(Op::kLinear);
    }
    const pid_t child = ::fork();
    if (child == 0) {
      const State state("--state", folder_);
      if (deletes) {
        state.KeepInputs(Op::kLinear, needed);
      } else {
        ShrinkCorpus(LibFuzzer(), state, Op::kLinear, 60, nullptr);
      }
      ::_exit(0);
    }
    const auto files = [&] {
      return std::distance(fs::directory_iterator(folder_ / "corpus" / "linear"), {});
    };
    for (int i = 0; deletes && i < 100'000 && files() == size; ++i) ::usleep(50);
    ::usleep(microseconds);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const State state("--state", folder_);
    const int64_t after = state.CorpusSize(Op::kLinear);
    amid += after > static_cast<int64_t>(needed.size()) && after < size ? 1 : 0;
    EXPECT_EQ(LitBy(state), lit) << "killed after " << microseconds << " us";
    EXPECT_TRUE(fs::is_empty(folder_ / "jobs"));
  }
  EXPECT_GT(amid, 0) << "no kill hit the deletion";
}

TEST_F(ShrinkTest, ACampaignShrinksALargeCorpus) {
  if (!HasLibFuzzer()) GTEST_SKIP() << "built without libFuzzer";
  State state("--state", folder_);
  Fill(state, 600);
  CampaignOptions options;
  options.aims = {{Op::kLinear, "native", "", "*"}};
  options.runs = 1;
  std::vector<std::string> said;
  options.say = [&](const std::string& text) { said.push_back(text); };
  const int64_t size = state.CorpusSize(Op::kLinear);
  RunCampaign(LibFuzzer(), state, options);
  EXPECT_GE(state.CorpusSize(Op::kLinear), size) << "a small corpus was shrunk";
  options.large_corpus = 100;
  RunCampaign(LibFuzzer(), state, options);
  EXPECT_LT(state.CorpusSize(Op::kLinear), size * 9 / 10);
  ASSERT_FALSE(said.empty());
  EXPECT_TRUE(said.front().starts_with("corpus of linear: ")) << said.front();
}

}  // namespace
}  // namespace qualm::campaign
