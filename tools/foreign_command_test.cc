// SPDX-License-Identifier: Apache-2.0
// Programs behind a pipe and plugins as users test them: a good one passes; a bad one gives a
// finding of its own kind with its case, and the run goes on.
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/io/case_json.h"
#include "core/io/json_schema_test_util.h"
#include "core/io/short_path.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;
using test::Json;

// The misbehaviour of somebody's code, and the report about it.
struct Bad {
  const char* how;
  const char* kind;
  const char* says;
};

class ForeignCommand : public QualmTest {
 protected:
  // A child that says hello, then does `how` for every line.
  static std::string Child(const std::string& how) {
    return "pipe:read -r hello; echo '"
           R"({"qualm_pipe": 1, "name": "bad", "ops": {"linear": {}}})"
           "'; while read -r line; do " +
           how + "; done";
  }

  // Checks the subject beside one that is right; returns the document.
  Json Check(const std::string& subject, const std::string& cases,
             const std::vector<std::string>& environment) {
    ran_ = Qualm({"check", "--op", "linear", "-p", "matches_exact", "-s", subject, "-s", "native",
                  "-n", cases, "--json", "-", "--out", "out"},
                 environment);
    const Json document = Json::parse(ran_.out, nullptr, false);
    EXPECT_FALSE(document.is_discarded()) << ran_.out.substr(0, 400) << ran_.err;
    return document.is_discarded() ? Json::object() : document;
  }

  // Expects findings of that kind, each with a case that reads, and the other subject passed.
  void ExpectFindings(const Bad& bad, const std::string& subject, int cases,
                      const std::vector<std::string>& environment) {
    const Json document = Check(subject, std::to_string(cases), environment);
    EXPECT_EQ(ran_.status, 1) << bad.how << ran_.err;
    ASSERT_FALSE(document["findings"].empty()) << bad.how;
    for (const Json& finding : document["findings"]) {
      EXPECT_EQ(finding["subject"], subject);
      EXPECT_EQ(finding["kind"], bad.kind) << bad.how;
      EXPECT_TRUE(Has(finding["explanation"].get<std::string>(), bad.says))
          << bad.how << ": " << finding["explanation"];
      const std::string file = finding["case_file"];
      ASSERT_FALSE(file.empty()) << bad.how;
      EXPECT_EQ(ReadCaseFile((folder() / file).string()).op, Op::kLinear);
    }
    EXPECT_GE(document["totals"]["passed"], cases * 9 / 10) << bad.how;  // some outputs are empty
    fs::remove_all(folder() / "out");
  }

  Ran ran_;
};

// The python3 that has NumPy, as a shell word; "" if none has.
std::string PythonWithNumpy(const std::function<Ran(const std::string&)>& shell) {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    if (shell(std::string(python) + " -c 'import numpy'").status == 0) return python;
  }
  return "";
}

TEST_F(ForeignCommand, TheExampleIsExact) {
  const std::string python =
      PythonWithNumpy([this](const std::string& command) { return Shell(command); });
  if (python.empty()) GTEST_SKIP() << "no python3 with NumPy (python3-numpy)";
  const std::string subject =
      "pipe:" + python + " '" QUALM_SOURCE_DIR "/examples/pipe/numpy_linear.py'";
  const Ran check = Qualm(0, {"check", "--op", "linear", "-s", subject, "-n", "60", "--json", "-"});
  const Json document = Json::parse(check.out);
  EXPECT_EQ(document["totals"]["failed"], 0);
  EXPECT_GT(document["properties"]["linear.matches_exact"]["passed"], 10);
  EXPECT_GT(document["properties"]["linear.sweep_is_linear"]["passed"], 0);
  // Recordings of u8*s8->u8 that are exact; the child is sent several before it answers.
  const Ran replay = Qualm({"replay", Corpus("golden/seeds.jsonl"), "-s", subject, "--json", "-"});
  EXPECT_LE(replay.status, 1) << replay.err;
  const Json replayed = Json::parse(replay.out);
  EXPECT_GT(replayed["totals"]["passed"], 0);
  for (const Json& finding : replayed["findings"]) EXPECT_NE(finding["kind"], "crash");
  // README shows a library's bug on this case; this child must not have it.
  const Ran sweep = Qualm(0, {"sweep", Corpus("forum/000-linear-sweep.case.json"), "-s", subject});
}

TEST_F(ForeignCommand, TheExampleOfBlocksIsExact) {
  if (Shell("python3 -c ''").status != 0) GTEST_SKIP() << "no python3";
  const std::string subject = "pipe:python3 '" QUALM_SOURCE_DIR "/examples/pipe/block_linear.py'";
  const Ran check = Qualm(0, {"check", "--op", "linear", "-s", subject, "-n", "400", "--property",
                              "matches_exact,clamp", "--json", "-"});
  const Json document = Json::parse(check.out);
  EXPECT_EQ(document["totals"]["failed"], 0);
  EXPECT_GT(document["properties"]["linear.matches_exact"]["passed"], 10);
}

// The bytes of q4_0 and q8_0 reach the child; one that forgets the 8 of the codes is found.
TEST_F(ForeignCommand, TheExampleOfLlamaCppsBlocksKeepsItsContract) {
  const std::string python =
      PythonWithNumpy([this](const std::string& command) { return Shell(command); });
  if (python.empty()) GTEST_SKIP() << "no python3 with NumPy (python3-numpy)";
  const std::string example = QUALM_SOURCE_DIR "/examples/pipe/q4_0_linear.py";
  const auto check = [&](int status, const std::string& program) {
    const Ran ran = Qualm(
        status, {"check", "--op", "linear", "-s", "pipe:" + program, "-n", "300", "--json", "-"});
    return Json::parse(ran.out);
  };
  const Json document = check(0, python + " '" + example + "'");
  EXPECT_EQ(document["totals"]["failed"], 0);
  EXPECT_GT(document["properties"]["linear.matches_model"]["passed"], 150);
  const Json wrong =
      check(1, "sed 's/ - 8$//' '" + example + "' > wrong.py; " + python + " wrong.py");
  EXPECT_GT(wrong["totals"]["failed"], 0);
}

TEST_F(ForeignCommand, EachFailureOfAChildIsAFindingOfItsKindWithItsCase) {
  for (const Bad& bad :
       {Bad{"exit 3", "crash", "crashed: ended the process with exit status 3"},
        Bad{"kill -SEGV $$", "crash", "crashed: killed by SIGSEGV"},
        Bad{"sleep 100", "hang", "hung: gave no answer within 1000 ms"},
        Bad{"cat /dev/zero", "unknown", "garbage: sent a line of more than"},
        Bad{"echo nonsense", "unknown", "garbage: answered \"nonsense\": byte 2: is not JSON"}}) {
    const bool hangs = bad.kind == std::string("hang");
    ExpectFindings(bad, Child(bad.how), 6,
                   {hangs ? "QUALM_TIME_LIMIT_MS=1000" : "QUALM_TIME_LIMIT_MS=60000"});
  }
}

TEST_F(ForeignCommand, EachFailureOfAPluginIsAFindingOfItsKindWithItsCase) {
  // As documents name it, where the command runs.
  const std::string plugin =
      "plugin:" + ShortProgram(QUALM_BINARY_DIR "/lib/qualm_broken.so", folder().string());
  for (const Bad& bad :
       {Bad{"crash", "crash", "crashed: killed by SIGSEGV"},
        Bad{"exit", "crash", "crashed: ended the process with exit status 17"},
        Bad{"hang", "hang", "hung: gave no answer within 1000 ms"},
        Bad{"write-past", "memory", "touched-outside: wrote 1 byte past the end of y"},
        Bad{"modify-x", "memory", "modified-input: changed its input x at byte 1"},
        Bad{"close-all", "crash", "crashed: closed the connection to qualm"},
        Bad{"garbage-answer", "unknown", "garbage: "},
        Bad{"garbage-message", "unknown", "garbage: "}}) {
    const bool hangs = bad.kind == std::string("hang");
    ExpectFindings(bad, plugin, 400,
                   {hangs ? "QUALM_TIME_LIMIT_MS=1000" : "QUALM_TIME_LIMIT_MS=60000",
                    std::string("QUALM_BROKEN=") + bad.how});
  }
  const Ran limited =
      Qualm(1, {"check", "--op", "linear", "-n", "9", "-s", plugin, "--memory", "96M"},
            {"QUALM_BROKEN=fill-file"});
  EXPECT_TRUE(Has(limited.out, "wrote a file longer than 96 MiB (see --memory)")) << limited.out;
  EXPECT_TRUE(Has(limited.err, "--memory 96M")) << "the command that repeats it";
  const Ran none = Qualm(2, {"check", "--op", "linear", "-s", plugin, "--memory", "9"});
  EXPECT_TRUE(Has(none.err, "--memory: '9' is no size of memory")) << none.err;
  const Ran version = Qualm(3, {"check", "-n", "1", "-s", plugin}, {"QUALM_BROKEN=wrong-version"});
  EXPECT_TRUE(Has(version.err, "built for version 99 of the plugin interface"));
}

TEST_F(ForeignCommand, WhatCannotBeStartedIsThree) {
  for (const Bad& bad :
       {Bad{"exit 7", "", "ended the process with exit status 7"},
        Bad{"no-such-program-of-qualm", "", "exit status 127; its stderr ends in: "},
        Bad{"kill -KILL $$", "", "killed by SIGKILL"},
        Bad{"echo '{\"qualm_pipe\": 2}'", "",
            "qualm_pipe: is 2, expected version 1 of the protocol"},
        Bad{"echo Hello, world", "", "answered \"Hello, world\": top level: is no JSON at byte 1"},
        Bad{"yes '{' | tr -d '\\n'", "", "sent a line of more than 65536 bytes"}}) {
    const Ran ran = Qualm(3, {"check", "-n", "1", "-s", std::string("pipe:") + bad.how});
    ASSERT_EQ(Lines(ran.err).size(), 1u) << ran.err;
    EXPECT_TRUE(Begins(ran.err, "qualm: subject 'pipe:"));
    EXPECT_TRUE(Has(ran.err, bad.says));
    EXPECT_EQ(ran.out, "");
  }
  const std::string promises =
      R"(pipe:echo '{"qualm_pipe": 1, "name": "n", "contract": "model:nope", "ops": {"add": {}}}')";
  const Ran nope = Qualm(3, {"check", "-n", "1", "-s", promises});
  EXPECT_TRUE(Has(nope.err, "there is no convention 'nope'"));
  Qualm(2, {"check", "-s", "pipe:"});
}

// A command may be longer than the name of a folder, and differ from another at its end only.
TEST_F(ForeignCommand, LongCommandsHaveFindingsToo) {
  const std::string command = ": " + std::string(400, 'x') + "; exit ";
  const Ran ran =
      Qualm(1, {"check", "--op", "linear", "-p", "matches_exact", "-s", Child(command + "3"), "-s",
                Child(command + "4"), "-n", "1", "--json", "-", "--out", "out"});
  std::set<std::string> files;
  const Json document = Document(ran);
  for (const Json& finding : document["findings"]) {
    const std::string file = finding["case_file"];
    EXPECT_TRUE(fs::exists(folder() / file)) << file;
    files.insert(file);
  }
  EXPECT_EQ(files.size(), 2u);
}

// A fault once in a thousand calls: it is reported beside the wrong numbers, and by its own kind.
TEST_F(ForeignCommand, WhatFailsNowAndThenIsFound) {
  const std::string plugin = "plugin:" QUALM_BINARY_DIR "/lib/qualm_broken.so";
  for (const Bad& bad :
       {Bad{"crash-now-and-then", "nondeterminism", "crashed: killed by SIGABRT"},
        Bad{"hang-now-and-then", "nondeterminism", "hung: gave no answer within"}}) {
    const Ran ran = Qualm(1,
                          {"check", "--adapt", "--op", "linear", "-p", "matches_exact", "-s",
                           plugin, "-n", "1500", "--json", "-", "--out", "out"},
                          {std::string("QUALM_BROKEN=") + bad.how, "QUALM_TIME_LIMIT_MS=1000"});
    bool found = false;
    const Json document = Document(ran);
    for (const Json& finding : document["findings"]) {
      if (finding["explanation"].get<std::string>().find(bad.says) == std::string::npos) continue;
      found = true;
      EXPECT_EQ(finding["kind"], bad.kind) << finding["explanation"];
      EXPECT_TRUE(fs::exists(folder() / finding["case_file"].get<std::string>()));
    }
    EXPECT_TRUE(found) << bad.how << ran.out.substr(0, 3000);
    fs::remove_all(folder() / "out");
  }
}

// A fingerprint is the name of a folder that CI uploads, and a baseline holds the fingerprint on
// another machine.
TEST_F(ForeignCommand, FingerprintsNameThePluginAndNotItsPath) {
  fs::create_directories(folder() / "a b:c");
  const fs::path file = folder() / "a b:c" / "mine.so";
  fs::copy_file(QUALM_BINARY_DIR "/lib/qualm_broken.so", file);
  const std::vector<std::string> environment{"QUALM_BROKEN=write-past"};
  const auto names = [&](const std::string& subject) {
    std::set<std::string> found;
    const Json document = Check(subject, "400", environment);
    for (const Json& finding : document["findings"]) found.insert(finding["fingerprint"]);
    return found;
  };
  const std::set<std::string> expected{"linear.matches_exact-plugin-broken_0-memory"};
  EXPECT_EQ(names("plugin:./a b:c/mine.so"), expected) << ran_.err;
  EXPECT_EQ(names("plugin:" + file.string()), expected) << ran_.err;
  for (const auto& entry : fs::directory_iterator(folder() / "out/findings"))
    EXPECT_TRUE(expected.contains(entry.path().filename().string())) << entry.path();
  const Json piped = Check(Child("exit 3; : /some:where"), "1", {});
  EXPECT_EQ(piped["findings"][0]["fingerprint"], "linear.matches_exact-pipe-bad-crash");
  // Two plugins that call themselves the same are two subjects.
  const Ran both =
      Qualm({"check", "--op", "linear", "-p", "matches_exact", "-s", "plugin:./a b:c/mine.so", "-s",
             "plugin:" + file.string(), "-n", "400", "--json", "-"},
            environment);
  std::set<std::string> found;
  const Json document = Document(both);
  for (const Json& finding : document["findings"]) found.insert(finding["fingerprint"]);
  EXPECT_EQ(found, (std::set<std::string>{"linear.matches_exact-plugin-broken_0-memory",
                                          "linear.matches_exact-plugin-broken_0-2-memory"}));
}

}  // namespace
}  // namespace qualm::tools
