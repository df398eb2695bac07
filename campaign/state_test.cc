// SPDX-License-Identifier: Apache-2.0
#include "campaign/state.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "campaign/investigate.h"
#include "core/content_name.h"
#include "core/io/case_json.h"
#include "core/status.h"
#include "core/text_test_util.h"
#include "fuzz/collector.h"
#include "properties/gen/gen.h"

namespace qualm::campaign {
namespace {

namespace fs = std::filesystem;

class StateTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("qualm-state-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static Fault SomeFault(const std::string& cause = "") {
    Fault fault;
    fault.row.subject = fault.row.identity = "test";
    fault.row.op = Op::kLinear;
    fault.row.cause = cause;
    fault.row.properties = {"matches_exact"};
    fault.found = gen::Draw(Op::kLinear, 1);
    fault.explanation = "a\nb\n";
    return fault;
  }
  static void Touch(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  fs::path folder_;
};

TEST_F(StateTest, FaultsComeBack) {
  const Fault fault = SomeFault("bias ignored");
  {
    const State state("--state", folder_);
    state.Take({fault});
  }
  const State again("--state", folder_);
  ASSERT_EQ(again.Faults().size(), 1u);
  EXPECT_EQ(again.Faults()[0], fault);
  EXPECT_EQ(again.Rows()[0], fault.row);
}

TEST_F(StateTest, OneCampaignAtATime) {
  const State state("--state", folder_);
  EXPECT_TRUE(
      Has(Refusal([&] { const State other("--state", folder_); }), "is used by another campaign"));
}

TEST_F(StateTest, AForeignFolderIsLeftAlone) {
  Touch(folder_ / "thesis.tex", "years of work");
  EXPECT_THROW(State("--state", folder_), InputError);
  EXPECT_TRUE(fs::exists(folder_ / "thesis.tex"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

// A killed campaign leaves a failure in hand, inputs of an engine, and half a folder.
TEST_F(StateTest, WhatAKilledCampaignLeftIsPutInOrder) {
  {
    const State state("--state", folder_);
    FaultRow row = SomeFault().row;
    HandOverDeath(state, row, gen::Draw(Op::kLinear, 2));
  }
  const fs::path inbox = folder_ / fuzz::kInbox;
  const std::string name = fs::directory_iterator(inbox)->path().filename().string();
  fs::rename(inbox / name, folder_ / fuzz::kHeld / name);
  Touch(folder_ / "jobs" / "0" / "linear" / "whatever", "input");
  Touch(folder_ / "findings" / ".half.qualm-tmp" / "fault.json", "{");
  const State state("--state", folder_);
  EXPECT_EQ(state.Inbox(), std::vector<std::string>{name});
  EXPECT_TRUE(fs::is_empty(folder_ / fuzz::kHeld));
  EXPECT_TRUE(fs::exists(folder_ / "corpus" / "linear" / ContentName("input")));
  EXPECT_TRUE(fs::is_empty(folder_ / "jobs"));
  EXPECT_TRUE(fs::is_empty(folder_ / "findings"));
}

// What the killed campaign started lives a moment longer, and writes.
TEST_F(StateTest, AnEngineThatStillWritesIsNoObstacle) {
  {
    const State state("--state", folder_);
  }
  const fs::path job = folder_ / "jobs" / "0";
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 200; ++i) Touch(job / ("earlier-" + std::to_string(i)), "");
    std::atomic<bool> over = false;
    std::thread engine([&] {
      for (int i = 0; !over; ++i) std::ofstream(job / ("input-" + std::to_string(i % 5000))) << i;
    });
    EXPECT_NO_THROW(State("--state", folder_));
    over = true;
    engine.join();
    EXPECT_TRUE(fs::is_empty(folder_ / "jobs"));
  }
}

// An engine that is stopped while it looks at a failure loses none; one that lives goes on looking.
TEST_F(StateTest, WhatAnEndedEngineHeldGoesToTheInbox) {
  const State state("--state", folder_);
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ::waitpid(ended, nullptr, 0);
  const fs::path held = folder_ / fuzz::kHeld;
  for (const std::string& name : {"a-" + std::to_string(ended), "b-" + std::to_string(::getpid())})
    Touch(held / name / "case.json", "a case");
  Touch(held / "c" / "case.json", "a case");
  Touch(held / ("d-" + std::to_string(ended)) / "case.json", "a case");
  Touch(folder_ / fuzz::kInbox / "d" / "case.json", "the same");
  state.TakeHeld();
  EXPECT_EQ(state.Inbox(), (std::vector<std::string>{"a", "c", "d"}));
  EXPECT_TRUE(fs::exists(held / ("b-" + std::to_string(::getpid()))));
  EXPECT_EQ(std::distance(fs::directory_iterator(held), {}), 1);
}

// A campaign killed after it wrote a row under its new name, before it deleted the old one.
TEST_F(StateTest, ARowTooManyIsJoined) {
  {
    const State state("--state", folder_);
    state.Take({SomeFault("")});
    fs::copy(state.Finding(SomeFault("").row.fingerprint()), folder_ / "kept",
             fs::copy_options::recursive);
    state.Take({SomeFault("bias ignored")});
    ASSERT_EQ(state.Rows().size(), 1u);
    fs::rename(folder_ / "kept", state.Finding(SomeFault("").row.fingerprint()));
    ASSERT_EQ(state.Rows().size(), 2u);
  }
  const State state("--state", folder_);
  ASSERT_EQ(state.Rows().size(), 1u);
  EXPECT_EQ(state.Rows()[0].cause, "bias ignored");
}

TEST_F(StateTest, ARowThatCannotBeReadIsNamed) {
  {
    const State state("--state", folder_);
  }
  Touch(folder_ / "findings" / "mine" / "fault.json", "{}");
  EXPECT_TRUE(
      Has(Refusal([&] { const State state("--state", folder_); }), "mine/fault.json: schema: "));
}

}  // namespace
}  // namespace qualm::campaign
