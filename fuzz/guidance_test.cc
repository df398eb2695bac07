// SPDX-License-Identifier: Apache-2.0
// The campaign finds the planted fault `faulty:pair-saturation`, and the distances lead it there:
// without our mutations the campaign must find the fault sooner with the counters than without
// them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace qualm::fuzz {
namespace {

// Budget of the campaign, and of each run of the ablation.
constexpr int64_t kRuns = 2'000'000;

class Guidance : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("qualm-guidance-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Executions until the canary was caught; nullopt if it was not within `runs`.
  std::optional<int64_t> RunsUntilFound(int seed, int64_t runs, const std::string& environment,
                                        const std::string& arguments = "") const {
    const std::string command =
        "cd '" + folder_.string() + "' && env " + environment +
        " QUALM_FUZZ_SUBJECT=faulty:pair-saturation QUALM_FUZZ_PROPERTIES=linear.matches_exact"
        " '" QUALM_BINARY_DIR "/bin/linear_fuzz' -print_final_stats=1 -seed=" +
        std::to_string(seed) + " -runs=" + std::to_string(runs) + " " + arguments + " 2>&1";
    FILE* pipe = ::popen(command.c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    if (pipe == nullptr) return std::nullopt;
    std::string output;
    char piece[4096];
    while (const size_t count = std::fread(piece, 1, sizeof piece, pipe))
      output.append(piece, count);
    const int status = ::pclose(pipe);
    constexpr int kCrashFound = 77;  // libFuzzer's -error_exitcode
    const bool found = WIFEXITED(status) && WEXITSTATUS(status) == kCrashFound;
    EXPECT_TRUE(found || status == 0)
        << output.substr(output.size() - std::min<size_t>(output.size(), 2000));
    if (!found) return std::nullopt;
    // The trap must be the one of CheckAll, because of the planted fault.
    EXPECT_NE(output.find("qualm: finding linear.matches_exact-faulty-pair-saturation"),
              std::string::npos);
    const std::string key = "stat::number_of_executed_units:";
    const size_t at = output.find(key);
    EXPECT_NE(at, std::string::npos);
    return at == std::string::npos ? 0 : std::atoll(output.c_str() + at + key.size());
  }

  int64_t MedianRuns(const std::string& environment) const {
    std::vector<int64_t> runs;
    for (int seed = 1; seed <= 5; ++seed) {
      // 8 bytes of data: one pair, or two, must be found, not met among hundreds. From comparisons
      // libFuzzer would learn the word that stands for a drawn case, and a drawn one finds it.
      runs.push_back(RunsUntilFound(seed, kRuns, environment, "-max_len=45 -entropic=0 -use_cmp=0")
                         .value_or(kRuns));
      std::printf("%s seed %d: %lld executions\n", environment.c_str(), seed,
                  static_cast<long long>(runs.back()));
    }
    std::ranges::sort(runs);
    return runs[runs.size() / 2];
  }

  std::filesystem::path folder_;
};

TEST_F(Guidance, EverySeedFindsPairSaturation) {
  for (int seed = 1; seed <= 5; ++seed) {
    const auto runs = RunsUntilFound(seed, kRuns, "QUALM_FUZZ_FEEDBACK=on");
    ASSERT_TRUE(runs.has_value()) << "seed " << seed;
    EXPECT_TRUE(std::filesystem::exists(
        folder_ / "linear.matches_exact-faulty-pair-saturation-pair-saturation.case.json"));
  }
}

TEST_F(Guidance, DistancesLeadThereWithoutOurMutations) {
  const int64_t guided = MedianRuns("QUALM_FUZZ_MUTATOR=bytes QUALM_FUZZ_FEEDBACK=on");
  const int64_t unguided = MedianRuns("QUALM_FUZZ_MUTATOR=bytes QUALM_FUZZ_FEEDBACK=off");
  EXPECT_LT(4 * guided, unguided);
}

}  // namespace
}  // namespace qualm::fuzz
