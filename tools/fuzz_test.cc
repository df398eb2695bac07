// SPDX-License-Identifier: Apache-2.0
// Campaigns as users run them: on planted faults and on broken plugins, killed, resumed, sharded,
// merged.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/io/case_json.h"
#include "core/io/fault_row.h"
#include "core/io/text_file.h"
#include "core/rng.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;
using test::Json;

// Every file below the folder, with its text.
std::map<std::string, std::string> FilesBelow(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[fs::relative(entry.path(), folder).string()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return files;
}

class Fuzz : public QualmTest {
 protected:
  // The rows in a folder of the state. Their cases read too.
  std::vector<FaultRow> Rows(const std::string& state, const char* below = "findings") const {
    std::vector<FaultRow> rows;
    if (!fs::exists(folder() / state / below)) return rows;
    for (const auto& entry : fs::directory_iterator(folder() / state / below)) {
      if (IsTemporary(entry.path().filename().string())) continue;
      rows.push_back(ReadFaultRowFile((entry.path() / "fault.json").string()));
      EXPECT_EQ(ReadCaseFile((entry.path() / "case.json").string()).op, rows.back().op);
    }
    return rows;
  }
};

TEST_F(Fuzz, ACorrectKernelHasNoFault) {
  const Ran ran = Qualm(0, {"fuzz", "linear", "-s", "native", "--runs", "2000", "--json", "-"});
  const Json document = Document(ran);
  EXPECT_TRUE(document["findings"].empty());
  EXPECT_GE(document["campaign"]["executions"], 2000);
  EXPECT_GT(document["totals"]["passed"], 2000);
  EXPECT_GT(document["campaign"]["corpus"], 0);
  EXPECT_TRUE(fs::exists(folder() / "qualm-campaign" / "corpus" / "linear"));
}

TEST_F(Fuzz, EachPlantedFaultIsOneRowOfItsKind) {
  const std::map<std::string, FindingKind> faults{
      {"faulty:pair-saturation", FindingKind::kPairSaturation},
      {"faulty:k-tail", FindingKind::kTail},
      {"faulty:relu-clamp-zero", FindingKind::kClamp},
      {"faulty:truncating-narrow", FindingKind::kClamp}};
  std::vector<std::string> words{"fuzz",    "linear", "--runs", "40000",
                                 "--state", "s",      "--json", "-"};
  for (const auto& [subject, kind] : faults) words.insert(words.end(), {"-s", subject});
  const Ran ran = Qualm(1, words);
  EXPECT_EQ(Document(ran)["campaign"]["faults"].size(), Rows("s").size());
  for (const auto& [subject, kind] : faults) {
    int of_its_kind = 0;
    size_t claims = 0;
    for (const FaultRow& row : Rows("s")) {
      if (row.subject != subject) continue;
      EXPECT_EQ(row.replayed, Replayed::kReproducible) << row.fingerprint();
      if (row.kind == kind) ++of_its_kind, claims = row.properties.size();
    }
    EXPECT_EQ(of_its_kind, 1) << subject << ran.out;
    EXPECT_GE(claims, 2u) << subject << ": claims that fail for one cause are one row";
  }
  for (const FaultRow& row : Rows("s")) {
    const fs::path finding = folder() / "s" / "findings" / row.fingerprint();
    EXPECT_TRUE(row.minimized);
    EXPECT_TRUE(fs::exists(finding / "case.json"));
    const Case small = ReadCaseFile((finding / "minimized.case.json").string());
    EXPECT_LE(small.M * small.N * small.K, 64) << row.fingerprint();
    const std::string text = Read("s/findings/" + row.fingerprint() + "/explanation.txt");
    for (const std::string& claim : row.properties) {
      EXPECT_TRUE(Has(text, claim)) << row.fingerprint() << " " << claim;
    }
  }
  // Other verbs read the state.
  const Ran replayed = Qualm(1, {"replay", "s/findings", "-s", "faulty:k-tail", "--json", "-"});
  Qualm(0, {"replay", "s", "-s", "native"});
  Qualm(0, {"report", "s"});
  for (const FaultRow& row : Rows("s")) {
    EXPECT_TRUE(Has(Read("s/index.html"), row.fingerprint()));
  }
}

// The subject keeps sums of weights from the call before: a claim fails because of its own
// questions, or because of the questions of earlier claims.
TEST_F(Fuzz, WhatDependsOnEarlierCallsKeepsThem) {
  const Ran ran = Qualm(
      1, {"fuzz", "linear", "-s", "faulty:stale-column-sums", "--runs", "20000", "--state", "s"});
  for (const FaultRow& row : Rows("s")) {
    EXPECT_EQ(row.kind, FindingKind::kNondeterminism) << row.fingerprint() << row.explanation;
    const bool before =
        fs::exists(folder() / "s" / "findings" / row.fingerprint() / "before.cases");
    EXPECT_EQ(before, row.replayed == Replayed::kStateful);
  }
  EXPECT_EQ(Rows("s").size(), 1u);
}

TEST_F(Fuzz, WhatIsKnownDoesNotFail) {
  const std::vector<std::string> words{"fuzz", "linear",  "-s", "faulty:k-tail", "--runs",
                                       "3000", "--state", "s",  "--json",        "first.json"};
  Qualm(1, words);
  const Ran again = Qualm(0, {"fuzz", "linear", "-s", "faulty:k-tail", "--runs", "3000", "--state",
                              "t", "--baseline", "first.json", "--json", "-"});
  EXPECT_EQ(Document(again)["findings"][0]["known"]["by"], "baseline");
  EXPECT_EQ(Document(again)["totals"]["failed"], 0);
  // A baseline of qualm check names claims.
  const Ran check = Qualm(1, {"check", "--op", "linear", "-s", "faulty:k-tail", "-n", "200",
                              "--json", "check.json", "--out", "out"});
  const Ran known = Qualm(0, {"fuzz", "linear", "-s", "faulty:k-tail", "--runs", "3000", "--state",
                              "t", "--baseline", "check.json"});
  EXPECT_NE(known.out.find(" claims failed as declared or known, and make no new row\n"),
            std::string::npos)
      << known.out;
}

TEST_F(Fuzz, AFaultBecomesADescribedRegression) {
  Qualm(1, {"fuzz", "linear", "-s", "faulty:k-tail", "--runs", "3000", "--to-corpus",
            "kept/dropped-product"});
  const Case c = ReadCaseFile((folder() / "kept/dropped-product.case.json").string());
  EXPECT_TRUE(Has(c.note, "Found by qualm fuzz on faulty:k-tail"));
  ASSERT_TRUE(c.observed.has_value());
  Qualm(1, {"replay", "kept", "-s", "faulty:k-tail"});
  // The regression is where another campaign starts.
  const Ran next = Qualm(0, {"fuzz", "linear", "-s", "native", "--runs", "500", "--state", "t",
                             "--from-corpus", "kept"});
  EXPECT_TRUE(Has(next.err, "--from-corpus: 1 cases, 0 of them too large"));
}

TEST_F(Fuzz, BrokenPluginsAreCalledByTheirName) {
  const fs::path plugin = QUALM_BINARY_DIR "/lib/qualm_broken.so";
  if (!fs::exists(plugin)) GTEST_SKIP() << "qualm_broken.so is not built";
  const std::map<std::string, FindingKind> ways{{"abort", FindingKind::kCrash},
                                                {"write-past", FindingKind::kMemory},
                                                {"exit", FindingKind::kCrash}};
  for (const auto& [way, kind] : ways) {
    const Ran ran = Qualm(1,
                          {"fuzz", "linear", "-s", "plugin:" + plugin.string(), "--runs", "300",
                           "--state", way, "--json", "-"},
                          {"QUALM_BROKEN=" + way});
    std::set<FindingKind> kinds;
    for (const FaultRow& row : Rows(way)) {
      kinds.insert(row.kind);
      EXPECT_TRUE(Begins(row.identity, "plugin:qualm_broken.so@broken"));
      EXPECT_FALSE(Has(row.fingerprint(), "home"));
    }
    EXPECT_TRUE(kinds.contains(kind)) << way << ran.out;
  }
}

TEST_F(Fuzz, TheStandaloneDriverTakesTheEnginesPlace) {
  const Ran ran =
      Qualm(1, {"fuzz", "linear", "-s", "faulty:pair-saturation", "--engine", "standalone",
                "--runs", "20000", "--jobs", "2", "--state", "s", "--json", "-"});
  EXPECT_EQ(Document(ran)["campaign"]["engine"], "standalone");
  ASSERT_EQ(Rows("s").size(), 1u);
  EXPECT_EQ(Rows("s")[0].kind, FindingKind::kPairSaturation);
  EXPECT_GT(Document(ran)["campaign"]["corpus"], 0);
}

TEST_F(Fuzz, BadInputIsOneLine) {
  ExpectBadInput({"fuzz", "liner", "-s", "native"},
                 "OP: unknown operation 'liner', nearest is 'linear' (see qualm list ops)");
  ExpectBadInput({"fuzz", "--op", "add,liner", "-s", "native"},
                 "--op: unknown operation 'liner', nearest is 'linear'");
  ExpectBadInput({"fuzz", "linear", "-s", "natvie"}, "--subject: unknown subject 'natvie'");
  ExpectBadInput({"fuzz", "linear", "-s", "native", "--engine", "afl++"},
                 "--engine: 'afl++' is no");
  ExpectBadInput({"fuzz", "linear", "-s", "native", "--shard", "3/3"},
                 "--shard: '3/3' is no shard");
  ExpectBadInput({"fuzz", "linear", "-s", "native", "-p", "nothing"}, "--property: no property");
  ExpectBadInput({"fuzz", "softmax", "-s", "faulty:k-tail"}, "nothing would be judged: ");
  ExpectBadInput({"fuzz", "--op", "softmax,add", "-s", "faulty:k-tail"},
                 "nothing would be judged: ");
  fs::create_directory(folder() / "mine");
  Write("mine/file", "mine");
  ExpectBadInput({"fuzz", "linear", "-s", "native", "--state", "mine"},
                 "--state: mine holds other");
  ExpectBadInput({"merge", "mine", "--state", "all"}, "mine: is no campaign");
  EXPECT_FALSE(fs::exists(folder() / "all"));
}

TEST_F(Fuzz, TwoCampaignsOnOneStateSaySo) {
  Process first = StartQualm({"fuzz", "linear", "-s", "native", "--time", "60s", "--state", "s"});
  while (!fs::exists(folder() / "s" / "stretches")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const Ran second = Qualm(2, {"fuzz", "linear", "-s", "native", "--state", "s"});
  EXPECT_TRUE(Has(second.err, "--state: s is used by another campaign"));
  // Ctrl-C: what there is, with the inputs.
  ::kill(first.id(), SIGINT);
  const int status = first.Wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGINT);
  EXPECT_FALSE(fs::is_empty(folder() / "s" / "corpus" / "linear"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder() / "s" / "results"), {}), 1);
}

// At whatever moment the campaign is killed: failures that were handed over stay, whole, and the
// next run continues with them.
TEST_F(Fuzz, KillsLoseNothing) {
  const std::vector<std::string> words{"fuzz",
                                       "linear",
                                       "-s",
                                       "faulty:k-tail",
                                       "-s",
                                       "faulty:pair-saturation",
                                       "--runs",
                                       "6000",
                                       "--jobs",
                                       "2",
                                       "--no-canary",
                                       "--state",
                                       "s"};
  Rng rng(20261122);
  std::set<std::pair<std::string, std::string>> seen;  // subjects and the claims that failed
  const auto claims_in = [&](const char* below) {
    std::set<std::pair<std::string, std::string>> claims;
    for (const FaultRow& row : Rows("s", below)) {
      for (const std::string& claim : row.properties) claims.emplace(row.subject, claim);
    }
    return claims;
  };
  for (int kills = 0; kills < 25; ++kills) {
    {
      const Process killed = StartQualm(words);
      std::this_thread::sleep_for(std::chrono::milliseconds(rng.Between(1, 900)));
    }
    // Reads every case and row that there is: nothing half-written has a name.
    for (const char* below : {"findings", "inbox", "held"}) seen.merge(claims_in(below));
  }
  Qualm(1, words);
  EXPECT_FALSE(seen.empty());
  const auto kept = claims_in("findings");
  EXPECT_TRUE(std::ranges::includes(kept, seen));
  std::multiset<std::string> rows;
  for (const FaultRow& row : Rows("s"))
    rows.insert(row.subject + " " + std::string(Name(row.kind)));
  EXPECT_EQ(rows, (std::multiset<std::string>{"faulty:k-tail tail",
                                              "faulty:pair-saturation pair-saturation"}));
  EXPECT_TRUE(fs::is_empty(folder() / "s" / "inbox"));
  EXPECT_TRUE(fs::is_empty(folder() / "s" / "held"));
  EXPECT_FALSE(fs::exists(folder() / "s" / "jobs"));
}

TEST_F(Fuzz, AMergeDoesNotDependOnTheOrder) {
  for (const char* shard : {"0/2", "1/2"}) {
    const std::string state = shard[0] == '0' ? "a" : "b";
    Qualm(1, {"fuzz", "linear", "-s", "faulty:k-tail", "-s", "faulty:ties-away", "--runs", "6000",
              "--shard", shard, "--state", state});
  }
  EXPECT_NE(FilesBelow(folder() / "a" / "corpus"), FilesBelow(folder() / "b" / "corpus"));
  Qualm(0, {"merge", "a", "b", "--state", "ab"});
  Qualm(0, {"merge", "b", "a", "b", "--state", "ba"});
  const auto ab = FilesBelow(folder() / "ab");
  EXPECT_EQ(ab, FilesBelow(folder() / "ba"));
  EXPECT_EQ(Rows("ab").size(), 2u);
  for (const char* state : {"a", "b"}) {
    for (const auto& [name, text] : FilesBelow(folder() / state / "corpus")) {
      EXPECT_TRUE(ab.contains("corpus/" + name));
    }
  }
  Qualm(0, {"merge", "ab", "ba", "a", "--state", "ab"});
  EXPECT_EQ(FilesBelow(folder() / "ab"), ab) << "a merge of what is merged changes nothing";
}

TEST_F(Fuzz, TheShardIsReadFromTheScheduler) {
  const std::vector<std::string> words{"check", "-s", "native", "--op", "linear",
                                       "-n",    "40", "--json", "-"};
  const auto cases = [&](const std::vector<std::string>& environment) {
    return Document(Qualm(words, environment))["totals"]["cases"].get<int>();
  };
  EXPECT_EQ(cases({}), 40);
  EXPECT_EQ(cases({"GTEST_TOTAL_SHARDS=4", "GTEST_SHARD_INDEX=3"}), 10);
  EXPECT_EQ(cases({"SLURM_ARRAY_TASK_ID=8", "SLURM_ARRAY_TASK_MIN=1", "SLURM_ARRAY_TASK_COUNT=8"}),
            5);
  EXPECT_EQ(cases({"JOB_COMPLETION_INDEX=1", "JOB_COMPLETIONS=2"}), 20);
  EXPECT_EQ(cases({"JOB_COMPLETION_INDEX=1"}), 40) << "of how many is not known";
  const Ran ran = Qualm(words, {"GTEST_TOTAL_SHARDS=4", "GTEST_SHARD_INDEX=3"});
  EXPECT_TRUE(Has(Document(ran)["command"].get<std::string>(), "--shard 3/4"));
  Qualm(2, words, {"GTEST_TOTAL_SHARDS=4", "GTEST_SHARD_INDEX=4"});
}

}  // namespace
}  // namespace qualm::tools
