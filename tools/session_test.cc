// SPDX-License-Identifier: Apache-2.0
// One run of a verb: the command that repeats it, where its results may go, and how it ends.
#include "tools/session.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/registry.h"
#include "core/status.h"
#include "core/text_test_util.h"
#include "tools/command.h"
#include "tools/tools_test_util.h"

namespace qualm::tools {
namespace {

using Paths = std::vector<std::pair<std::string, std::string>>;

class SessionTest : public KnowingTest {
 protected:
  SessionTest() { RegisterAllSubjects(); }

  static void Typed(std::vector<std::string> words) {
    std::vector<char*> given;
    for (std::string& word : words) given.push_back(word.data());
    SetCommandLine(static_cast<int>(given.size()), given.data());
  }
  // The command that repeats a run of these words.
  static std::string Repeated(const std::vector<std::string>& words,
                              std::optional<uint64_t> seed = std::nullopt) {
    Typed(words);
    const CommonOptions options;
    Session session(options);
    const std::string told = Told([&] { session.Begin("", seed); });
    session.Complete();
    EXPECT_EQ(told, "qualm: to repeat: " + session.document.command + "\n");
    return session.document.command;
  }
  std::string At(const std::string& name) const { return (folder() / name).string(); }
};

TEST_F(SessionTest, ARepetitionLeavesOutWhereResultsGoAndWhoFindsThem) {
  EXPECT_EQ(Repeated({"qualm", "check", "-s", "native"}), "qualm check -s native");
  for (const char* option : {"--json", "--junit", "--sarif", "--jobs", "--out", "--plot",
                             "--output", "--to-corpus", "-j", "-o"}) {
    EXPECT_EQ(Repeated({"qualm", "check", option, "x", "-s", "native"}), "qualm check -s native")
        << option;
    const std::string in_one =
        std::string(option) + (std::string(option).starts_with("--") ? "=x" : "x");
    EXPECT_EQ(Repeated({"qualm", "check", in_one, "-s", "native"}), "qualm check -s native")
        << in_one;
  }
  EXPECT_EQ(Repeated({"qualm", "check", "--github", "-s", "native"}), "qualm check -s native");
  EXPECT_EQ(Repeated({"qualm", "check", "--op", "linear", "--jsonx", "y"}),
            "qualm check --op linear --jsonx y");
  EXPECT_EQ(Repeated({"qualm", "check", "a b"}), "qualm check 'a b'");
  EXPECT_EQ(Repeated({"qualm", "check"}, 7), "qualm check --seed 7");
  EXPECT_EQ(Repeated({"qualm", "check", "--seed", "8"}, 7), "qualm check --seed 8");
  EXPECT_EQ(Repeated({"qualm", "check", "--seed=8"}, 7), "qualm check --seed=8");
  Typed({"qualm", "check"});
  AddToCommandLine({"--shard", "1/2"});
  const CommonOptions options;
  Session session(options);
  session.Complete();
  EXPECT_EQ(session.document.command, "qualm check --shard 1/2");
}

// The date decides which suppressions hold. A run without suppressions has none.
TEST_F(SessionTest, ARepetitionNamesTheDateOfItsSuppressions) {
  const CommonOptions options;
  const auto repeated = [&](const std::vector<std::string>& words) {
    Typed(words);
    Session session(options);
    session.known = Knowing({Finding("linear", "clamp", "a", Verdict::Failed("no"))});
    session.Complete();
    return session.document.command;
  };
  EXPECT_EQ(repeated({"qualm", "check"}), "qualm check --today 2027-01-01");
  EXPECT_EQ(repeated({"qualm", "check", "--today", "2027-01-02"}),
            "qualm check --today 2027-01-02");
  EXPECT_EQ(repeated({"qualm", "check", "--today=2027-01-02"}), "qualm check --today=2027-01-02");
}

TEST_F(SessionTest, FilesOfTheRunAreNamedFromHere) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder());
  ::setenv("PWD", folder().c_str(), 1);  // as a shell does
  const std::string file = Write("case.json", "");
  EXPECT_EQ(Repeated({"qualm", "replay", At("case.json")}), "qualm replay case.json");
  EXPECT_EQ(Repeated({"qualm", "replay", At("absent.json")}), "qualm replay " + At("absent.json"));
  EXPECT_EQ(Repeated({"qualm", "replay", "case.json"}), "qualm replay case.json");
  EXPECT_EQ(Repeated({"qualm", "replay", "./case.json"}), "qualm replay ./case.json") << "as typed";
  EXPECT_EQ(Repeated({"qualm", "check", "-s", "plugin:" + At("case.json")}),
            "qualm check -s plugin:./case.json");
  std::filesystem::current_path(before);
}

TEST_F(SessionTest, OutputsMustBeWritableAndApart) {
  const auto refused = [&](const std::string& json, const std::string& junit,
                           const Paths& more = {}, const std::vector<std::string>& read = {}) {
    CommonOptions options;
    options.json = json;
    options.junit = junit;
    return Refusal([&] { RequireWritable(options, more, read); });
  };
  const std::string a = At("a"), b = At("b");
  EXPECT_EQ(refused("", ""), "");
  EXPECT_EQ(refused("-", ""), "");
  EXPECT_EQ(refused("", "-"), "");
  EXPECT_EQ(refused("-", a), "");
  EXPECT_EQ(refused(a, b), "");
  EXPECT_FALSE(std::filesystem::exists(a)) << "nothing is left behind";
  EXPECT_EQ(refused("-", "-"),
            "--junit: stdout takes one document, expected a file for this or for --json");
  EXPECT_EQ(refused(a, a), "--junit: " + a + ": is the file of --json too, expected another one");
  EXPECT_EQ(refused(a, "", {{"--plot", b}, {"--out", a}}),
            "--json: " + a + ": is the file of --out too, expected another one");
  EXPECT_EQ(refused("/dev/null", "/dev/null", {}, {"/dev/null"}), "") << "a device keeps nothing";
  EXPECT_EQ(refused(At("none/a"), ""),
            "--json: " + At("none/a") + ": cannot be written (No such file or directory)");
  EXPECT_EQ(refused("", folder().string()),
            "--junit: " + folder().string() + ": cannot be written (is a folder)");
  // What is read must not be overwritten, under another name neither.
  const std::string file = Write("case.json", "text");
  const std::string given = At("case.json");
  EXPECT_EQ(refused(given, ""), "") << "an earlier result may be replaced";
  EXPECT_EQ(Read("case.json"), "text") << "but is not yet";
  const std::string is_read = "--json: " + given + ": is read by this run, expected another file";
  EXPECT_EQ(refused(given, "", {}, {b, given}), is_read);
  EXPECT_EQ(refused(given, "", {}, {At("./case.json")}), is_read);
  EXPECT_EQ(refused(given, "", {}, {b}), "");
  // What nobody can write to, root neither.
  EXPECT_EQ(refused("/proc/sys/kernel/ostype", ""),
            "--json: /proc/sys/kernel/ostype: cannot be written (Permission denied)");
  // A name alone is a file of the current folder, which is elsewhere.
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path("/proc/sys/kernel");
  EXPECT_NE(refused("name", ""), "");
  EXPECT_EQ(refused("", ""), "");
  EXPECT_EQ(refused("-", ""), "") << "stdout is no file";
  EXPECT_EQ(refused("", "-"), "");
  std::filesystem::current_path(before);
  // A link to nothing may become a file; a pipe is not opened, which would wait for its reader.
  std::filesystem::create_symlink("later", folder() / "link");
  EXPECT_EQ(refused(At("link"), ""), "");
  ASSERT_EQ(mkfifo(At("pipe").c_str(), 0600), 0);
  EXPECT_EQ(refused(At("pipe"), ""), "");
  // No trial leaves a file open.
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto open = open_files();
  EXPECT_EQ(refused(a, b), "");
  EXPECT_EQ(open_files(), open);
}

TEST_F(SessionTest, FoldersAreTriedAndTakenBack) {
  const auto refused = [&](const std::string& path) {
    return Refusal([&] { RequireFolder("--out", path); });
  };
  EXPECT_EQ(refused(""), "");
  EXPECT_EQ(refused(At("a/b/c")), "");
  EXPECT_FALSE(std::filesystem::exists(folder() / "a"));
  std::filesystem::create_directories(folder() / "a/b");
  EXPECT_EQ(refused(At("a/b/c")), "");
  EXPECT_TRUE(std::filesystem::exists(folder() / "a/b"));
  EXPECT_FALSE(std::filesystem::exists(folder() / "a/b/c"));
  EXPECT_EQ(refused(At("a/b")), "");
  EXPECT_TRUE(std::filesystem::exists(folder() / "a/b")) << "it was there";
  const std::string file = Write("file", "text");
  const std::string below = refused(At("file/below"));
  EXPECT_TRUE(Begins(below, "--out: " + At("file/below") + ": cannot be made or written ("));
  EXPECT_EQ(Read("file"), "text");
  EXPECT_EQ(refused("/proc/sys/kernel"),
            "--out: /proc/sys/kernel: cannot be made or written (Permission denied)");
}

TEST_F(SessionTest, NamedSubjectsMustExistAndDefaultsNeedNot) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(SubjectNames({"model:qnnpack", "native", "model:qnnpack"}, {}),
            (Names{"model:qnnpack", "native"}));
  EXPECT_EQ(SubjectNames({"model:qnnpack"}, {"native"}), Names{"model:qnnpack"});
  EXPECT_EQ(SubjectNames({}, {"native", "model:qnnpack", "native"}),
            (Names{"native", "model:qnnpack"}));
  EXPECT_THROW(SubjectNames({"nobody"}, {}), InputError);
  Names names;
  EXPECT_EQ(Told([&] { names = SubjectNames({}, {"nobody", "model:qnnpack"}); }),
            "qualm: left out: this build has no subject 'nobody'\n");
  EXPECT_EQ(names, Names{"model:qnnpack"});
  // A library that is absent is told once, not once for each of its names.
  SubjectKind kind;
  kind.kind = "absent";
  kind.names = [] { return std::vector<std::string>{}; };
  kind.expand = [](const std::string& pattern) { return std::vector<std::string>{pattern}; };
  kind.make = [](const std::string& name) -> std::unique_ptr<Subject> {
    if (name == "absent:strange") {
      auto strange = SubjectRegistry::Get().Make("native");
      strange->set_contract(ParseContract("model:of-nobody"));
      return strange;
    }
    throw Unavailable("subject '" + name + "': there is no library " +
                      (name == "absent:c" ? "C" : "of that kind"));
  };
  SubjectRegistry::Get().Add(kind);
  EXPECT_EQ(Told([&] { names = SubjectNames({}, {"absent:a", "absent:b", "native", "absent:c"}); }),
            "qualm: left out: subject 'absent:a': there is no library of that kind\n"
            "qualm: left out: subject 'absent:c': there is no library C\n");
  EXPECT_EQ(names, Names{"native"});
  EXPECT_EQ(Told([&] { names = SubjectNames({}, {"absent:strange", "native"}); }),
            "qualm: left out: subject 'absent:strange': its contract: there is no convention "
            "'of-nobody' (see qualm list subjects)\n");
  EXPECT_EQ(names, Names{"native"});
}

TEST_F(SessionTest, TheFirstErrorOfWritingIsThrownAtTheEnd) {
  Deferred deferred;
  EXPECT_FALSE(deferred.failed());
  deferred.Throw();
  deferred.Try([] {});
  EXPECT_FALSE(deferred.failed());
  deferred.Try("--json", [] { throw InputError("the first"); });
  deferred.Try([] { throw InputError("the second"); });
  EXPECT_TRUE(deferred.failed());
  EXPECT_EQ(Refusal([&] { deferred.Throw(); }), "--json: the first");
  Deferred other;
  other.Try("--corpus", [] { throw Unavailable("not here"); });
  EXPECT_EQ(Refusal([&] { other.Throw(); }), "--corpus: not here");
}

// The totals of one verdict of each judgement, and the exit statuses.
TEST_F(SessionTest, AnEndHasAStatusAndADocument) {
  Typed({"qualm", "check"});
  CommonOptions options;
  options.json = At("result.json");
  options.junit = At("result.xml");
  const auto end = [&](const std::vector<Judgement>& judgements, bool finding) {
    Session session(options);
    session.Open({"model:qnnpack"}, "");
    EXPECT_EQ(session.pointers().size(), 1u);
    session.totals.cases = 5;
    for (const Judgement judgement : judgements) session.totals.Add(judgement);
    if (finding)
      session.document.findings.emplace_back("linear", "clamp", "model:qnnpack",
                                             Verdict::Failed("no"));
    return session.End("no case", At("copy.json"));
  };
  EXPECT_EQ(end({Judgement::kPassed, Judgement::kPassed, Judgement::kSkipped}, false), kClean);
  EXPECT_EQ(Read("result.json"), Read("copy.json"));
  const test::Json document = test::Json::parse(Read("result.json"));
  EXPECT_EQ(document["totals"]["cases"], 5);
  EXPECT_EQ(document["totals"]["passed"], 2);
  EXPECT_EQ(document["totals"]["skipped"], 1);
  EXPECT_EQ(document["totals"]["failed"], 0);
  EXPECT_EQ(document["command"], "qualm check");
  EXPECT_TRUE(Begins(Read("result.xml"), "<?xml"));
  EXPECT_EQ(end({Judgement::kFailed}, true), kFindings);
  int status = 0;
  EXPECT_EQ(Told([&] { status = end({Judgement::kSkipped, Judgement::kVacuous}, false); }),
            "qualm: nothing was judged: no case\n");
  EXPECT_EQ(status, kBadInput);
  // Where a result cannot be written the run still says what it found, and then fails.
  options.json = folder().string();
  EXPECT_TRUE(Begins(Refusal([&] { end({Judgement::kPassed}, false); }), "--json: "));
  EXPECT_TRUE(Begins(Read("result.xml"), "<?xml"));
  options.json = "-";
  testing::internal::CaptureStdout();
  EXPECT_EQ(end({Judgement::kPassed}, false), kClean);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), Read("copy.json"));
  Totals totals;
  totals.cases = 9;
  totals.verdicts = {{Judgement::kPassed, 1},   {Judgement::kFailed, 2},
                     {Judgement::kExpected, 3}, {Judgement::kSkipped, 4},
                     {Judgement::kVacuous, 5},  {Judgement::kNotApplicable, 6}};
  EXPECT_EQ(
      TotalsLine(totals),
      "9 cases; claims: 1 passed, 2 failed, 3 expected, 4 skipped, 5 vacuous, 6 not applicable");
  totals.cases = 1;
  EXPECT_TRUE(Begins(TotalsLine(totals), "1 case; claims: 1 passed, "));
}

// What a document says besides its totals.
TEST_F(SessionTest, ADocumentHasTheSeedTheTimeAndWhatIsKnown) {
  Typed({"qualm", "check"});
  const CommonOptions options;
  Session session(options);
  Told([&] { session.Begin("", 7); });
  const Finding finding("linear", "clamp", "a", Verdict::Failed("no"));
  session.known = Knowing({finding});
  session.document.findings = {finding};
  session.Complete();
  EXPECT_EQ(session.document.seed, 7u);
  EXPECT_GT(session.document.seconds, 0);
  EXPECT_EQ(session.document.known.size(), 1u);
  session.totals.Add(Judgement::kFailed);
  EXPECT_EQ(session.End(""), kClean) << "what is known fails no run";
}

TEST_F(SessionTest, NothingJudgedNeedsNoReason) {
  const CommonOptions options;
  const Session session(options);
  EXPECT_EQ(Told([&] { EXPECT_FALSE(session.Judged("")); }), "qualm: nothing was judged\n");
}

// Text that fits into the buffer of stdout fails when it leaves it.
TEST_F(SessionTest, AFullStdoutIsAnError) {
  EXPECT_EXIT(
      {
        Typed({"qualm", "check"});
        CommonOptions options;
        options.json = "-";
        Session session(options);
        if (std::freopen("/dev/full", "w", stdout) == nullptr) std::_Exit(1);
        std::fputs(Refusal([&] { session.Write(); }).c_str(), stderr);
        std::_Exit(3);
      },
      testing::ExitedWithCode(3), "^--json: stdout cannot be written$");
}

// A run that was interrupted before it judged anything says so, instead of that nothing was judged.
TEST_F(SessionTest, AnInterruptIsTheStatus) {
  EXPECT_EXIT(
      {
        Typed({"qualm", "check"});
        const CommonOptions options;
        Session session(options);
        raise(SIGTERM);
        std::exit(session.End("no case"));
      },
      testing::ExitedWithCode(128 + SIGTERM),
      "^qualm: stopped by signal 15: this is what was found until then\n$");
}

}  // namespace
}  // namespace qualm::tools
