// SPDX-License-Identifier: Apache-2.0
// One program fuzzes every operation: each of its names, and each way in which an engine starts it
// again, must reach the operation that was asked for.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/op.h"

namespace qualm::fuzz {
namespace {

namespace fs = std::filesystem;

class OpFuzz : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("qualm-op-fuzz-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    // A copy: engines add to the folder.
    fs::copy(QUALM_SOURCE_DIR "/corpus/fuzz/linear", folder_ / "inputs");
  }
  void TearDown() override { fs::remove_all(folder_); }

  // stdout and stderr of a shell command in the folder; status_ is its exit status.
  std::string Run(const std::string& command) {
    FILE* pipe = ::popen(("cd '" + folder_.string() + "' && exec 2>&1; " + command).c_str(), "r");
    if (pipe == nullptr) return "";
    std::string output;
    char piece[4096];
    while (const size_t count = std::fread(piece, 1, sizeof piece, pipe))
      output.append(piece, count);
    const int status = ::pclose(pipe);
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return output;
  }

  fs::path folder_;
  int status_ = 0;
};

const std::string kReplay = "'" QUALM_BINARY_DIR "/bin/op_replay' ";
// Only a program that fuzzes linear makes this finding.
const std::string kFault =
    "QUALM_FUZZ_SUBJECT=faulty:pair-saturation QUALM_FUZZ_PROPERTIES=linear.matches_exact ";
const std::string kFound = "finding linear.matches_exact-faulty-pair-saturation";

TEST_F(OpFuzz, EveryOperationHasItsLinks) {
  std::string names;
  for (const Op op : AllOps()) {
    const std::string name(Name(op));
    names += name + "\n";
    EXPECT_TRUE(fs::equivalent(QUALM_BINARY_DIR "/bin/" + name + "_replay",
                               QUALM_BINARY_DIR "/bin/op_replay"));
  }
  EXPECT_EQ(Run(kReplay + "--list-ops"), names);
}

TEST_F(OpFuzz, TheNameOrTheFlagDecides) {
  const std::string walk = " --runs 20000 --seed 1 inputs";
  EXPECT_NE(Run(kFault + kReplay + "--op=linear" + walk).find(kFound), std::string::npos);
  EXPECT_EQ(Run(kFault + kReplay + "--op=rescale --runs 100").find(kFound), std::string::npos);
  EXPECT_EQ(status_, 0);
  fs::create_symlink(QUALM_BINARY_DIR "/bin/op_replay", folder_ / "linear_replay_copied");
  EXPECT_NE(Run(kFault + "./linear_replay_copied" + walk).find(kFound), std::string::npos);
}

TEST_F(OpFuzz, WithoutAnOperationOneLineSaysSo) {
  const std::string undecided = Run(kReplay + "--runs 1");
  EXPECT_EQ(status_, 2);
  EXPECT_EQ(undecided.find("qualm: '"), 0u) << undecided;
  EXPECT_NE(undecided.find("op_replay' names no operation, expected "), std::string::npos);
  EXPECT_EQ(undecided.find('\n'), undecided.size() - 1);
  const std::string unknown = Run(kReplay + "--op=liner --runs 1");
  EXPECT_EQ(status_, 2);
  EXPECT_EQ(unknown.find("qualm: --op: 'liner' is no operation, expected one of "), 0u) << unknown;
  EXPECT_EQ(unknown.find('\n'), unknown.size() - 1);
}

TEST_F(OpFuzz, ADeviceOrAPipeIsNoInput) {
  ASSERT_EQ(Run("mkfifo pipe"), "");
  for (const char* path : {"/dev/zero", "pipe"}) {
    const std::string refused = Run("ulimit -t 20; timeout 60 " + kReplay + "--op=linear " + path);
    EXPECT_EQ(status_, 2) << refused;
    EXPECT_NE(refused.find(std::string(path) + ": file: is no "), std::string::npos) << refused;
  }
}

// libFuzzer starts itself again by the name, or with the flag, that it was started with: through a
// shell, and it quotes nothing, so a name with a space would not do.
TEST_F(OpFuzz, ProcessesOfTheEngineFuzzTheSameOperation) {
  const fs::path fuzz = QUALM_BINARY_DIR "/bin/op_fuzz";
  if (!fs::exists(fuzz)) GTEST_SKIP() << "built without libFuzzer";
  Run("ln -sfn '" + fuzz.parent_path().string() + "' bin");
  for (const std::string program : {"linear_fuzz", "op_fuzz --op=linear"}) {
    const std::string start = kFault + "bin/" + program + " -seed=1 ";
    Run(start + "-jobs=1 -workers=1 -runs=100000 inputs >/dev/null");
    std::ifstream log(folder_ / "fuzz-0.log");
    const std::string text(std::istreambuf_iterator<char>(log), {});
    EXPECT_NE(text.find(kFound), std::string::npos) << program << text;
    const fs::path found =
        folder_ / "linear.matches_exact-faulty-pair-saturation-pair-saturation.case.json";
    EXPECT_TRUE(fs::remove(found));
    Run(start + "-fork=1 -max_total_time=20 inputs");
    EXPECT_TRUE(fs::remove(found));
  }
}

}  // namespace
}  // namespace qualm::fuzz
