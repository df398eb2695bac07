// SPDX-License-Identifier: Apache-2.0
// The command line as users and CI servers meet it: exit statuses, stdout and stderr, bad input,
// the form of the documents.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/io/hostile_case_test_util.h"
#include "core/io/json_schema_test_util.h"
#include "core/io/short_path.h"
#include "core/op.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

using test::Json;

class Command : public QualmTest {
 protected:
  const std::string sweep_ = Corpus("forum/000-linear-sweep.case.json");
  const std::string by_hand_ = Corpus("forum/002-linear-by-hand.case.json");
};

TEST_F(Command, CleanIsZero) {
  Qualm(0, {"check", "--subject", "native", "--cases", "5"});
  Qualm(0, {"sweep", sweep_, "--subject", "native"});
  Qualm(0, {"replay", Corpus("regressions")});
  Qualm(0, {"replay", Corpus("onnx")});
  Qualm(0, {"minimize", by_hand_, "--subject", "native"});
  Qualm(0, {"explain", Corpus("forum/002-linear-2x2.case.json"), "--subject", "native"});
  for (const char* what : {"subjects", "properties", "ops", "faults"}) {
    Qualm(0, {"list", what});
  }
  Qualm(0, {"--version"});
  Qualm(0, {"--help"});
}

TEST_F(Command, HazardsOfFilesAndOfDrawnCases) {
  const Ran files = Qualm(0, {"hazards", Corpus("forum"), sweep_, "--json", "-"});
  int64_t cases = 0;
  const Json document = Document(files);
  for (const Json& row : document["hazards"]) {
    cases += row["cases"].get<int64_t>();
    if (row["op"] != "linear") continue;
    EXPECT_GE(row["reached"]["pair-saturates"], 2);  // the sweep, once by folder and once by name
    EXPECT_EQ(row["reached"]["blocks-of-k"], 0);
    EXPECT_FALSE(row["reached"].contains("padding"));
  }
  EXPECT_GE(cases, 5);
  const Ran drawn = Qualm(0, {"hazards", "--op", "softmax", "-n", "40"});
  EXPECT_TRUE(Begins(drawn.out, "softmax, 40 cases\n"));
  ExpectBadInput({"hazards", "nowhere"}, "nowhere: ");
  ExpectBadInput({"hazards", "--op", "lineal"}, "--op: unknown operation 'lineal'");
  ExpectBadInput({"hazards", sweep_, "--op", "linear"}, "");
}

TEST_F(Command, FindingsAreOne) {
  Qualm(1, {"check", "--subject", "faulty:k-tail", "--cases", "30"});
  Qualm(1, {"sweep", sweep_, "--subject", "model:fbgemm@avx2"});
  Qualm(1, {"replay", Corpus("regressions"), "--subject", "faulty:k-tail"});
  Qualm(1, {"minimize", sweep_, "--subject", "model:fbgemm@avx2"});
  Qualm(1, {"explain", by_hand_});
}

// Whoever has a small case wants to hand it over.
TEST_F(Command, MinimizeSaysWhatToTypeNext) {
  const Ran ran =
      Qualm(1, {"minimize", sweep_, "-s", "model:fbgemm@avx2", "-o", "it's small.case.json"});
  const std::vector<std::string> lines = Lines(ran.out);
  ASSERT_GE(lines.size(), 2u);
  const std::string& explain = lines[lines.size() - 2];
  const std::string& replay = lines.back();
  ASSERT_TRUE(Begins(explain, "next: qualm explain ")) << ran.out;
  ASSERT_TRUE(Begins(replay, "      qualm replay ")) << ran.out;
  const std::string issue = Shell(explain.substr(6)).out;
  EXPECT_TRUE(Has(issue, "128 instead of 129"));
  EXPECT_TRUE(Has(Shell(replay.substr(6)).out, "1 expected"));
}

TEST_F(Command, AuditAndReport) {
  const Ran audit = Qualm(0, {"audit", "--budget", "1s", "--subject", "native", "--subject",
                              "model:fbgemm@avx2", "--out", "out", "--json", "-"});
  const Json document = Document(audit);
  EXPECT_GT(document["totals"]["expected"], 0);
  EXPECT_EQ(document["totals"]["failed"], 0);
  EXPECT_TRUE(Has(Read("out/index.html"), "</html>"));
  EXPECT_EQ(ReadJson("out/result.json")["totals"], document["totals"]);
  // The forum cases: our kernels are exact, and each printed library output has a known arithmetic.
  int from_libraries = 0;
  for (const Json& row : document["printed"]) {
    EXPECT_EQ(row["native"], "exact") << row;
    const std::string by = row["printed_by"];
    if (!by.starts_with("FBGEMM") && !by.starts_with("PyTorch")) continue;
    ++from_libraries;
    EXPECT_FALSE(row["arithmetic"].is_null()) << row;
  }
  EXPECT_EQ(from_libraries, 7);
  EXPECT_TRUE(Has(Read("out/index.html"), "Thread 004: "));
  // The layer of thread 003 is wrong on the subject that saturates, and exact when repaired.
  const Json& tried = document["repair"][0]["subjects"];
  ASSERT_EQ(tried.size(), 2u) << tried;
  for (const Json& row : tried) {
    EXPECT_EQ(row["subject"], "model:fbgemm@avx2");
    EXPECT_GT(row["wrong_before"], 0);
    EXPECT_EQ(row["wrong_after"], 0);
  }
  EXPECT_TRUE(Has(Read("out/index.html"), "repaired by “permutation”"));
  std::filesystem::remove(folder() / "out/index.html");
  const Ran report = Qualm(0, {"report", folder().string() + "/out"});
  EXPECT_EQ(report.out, "out/index.html\n");
  EXPECT_TRUE(std::filesystem::exists(folder() / "out/index.html"));
  ExpectBadInput({"report", "nowhere"}, "nowhere: ");
  ExpectBadInput({"audit", "--corpus", "nowhere"}, "--corpus: nowhere: ");
  ExpectBadInput({"audit", "--out", "/proc/nowhere"}, "--out: /proc/nowhere: cannot be made");
}

TEST_F(Command, BadUsageIsTwo) {
  ExpectBadInput({"--bogus"}, "unknown option '--bogus' (see qualm --help)");
  ExpectBadInput({"frobnicate"}, "unknown verb 'frobnicate' (see qualm --help)");
  ExpectBadInput({"chek"}, "unknown verb 'chek', nearest is 'check'");
  ExpectBadInput({"check", "--cases", "none"}, "--cases: ");
  ExpectBadInput({"check", "--cases", "0"}, "--cases: ");
  ExpectBadInput({"check", "--time", "0s"}, "--time: ");
  ExpectBadInput({"check", "--time", "10x"}, "--time: ");
  ExpectBadInput({"check", "--time", "1e300"}, "--time: ");
  ExpectBadInput({"check", "--time", "1s", "--cases", "5"}, "--cases excludes --time");
  for (const char* seed : {"-1", "+1", "", " 1", "1x", "0x1", "18446744073709551616"}) {
    ExpectBadInput({"check", "--seed", seed}, "--seed: '" + std::string(seed) + "' is no seed");
  }
  ExpectBadInput({"check", "--jobs", "0"}, "--jobs: ");
  ExpectBadInput({"check", "--op", "conv9d"}, "--op: ");
  ExpectBadInput({"check", "--property", "no_such_*"}, "--property: ");
  for (const char* shard : {"2/2", "0/0", "-1/2", "+0/2", "0 /2", "0/ 2", " 0/2", "0/2 ", "0/2/3",
                            "/", "0/", "/2", "1/4294967298", "4294967296/2"}) {
    ExpectBadInput({"check", "--shard", shard},
                   "--shard: '" + std::string(shard) + "' is no shard");
  }
  ExpectBadInput({"check", "--op", "linear", "-p", "quantize.clamp"},
                 "--property: 'quantize.clamp' says nothing about the named --op");
  ExpectBadInput({"check", "--json", "-", "--junit", "-"}, "--junit: stdout takes one document");
  ExpectBadInput({"check", "--contract", "nice"}, "--contract: ");
  ExpectBadInput({"check", "--contract", "model:none"}, "--contract: ");
  ExpectBadInput({"check", "--nonsense"}, "unknown option '--nonsense' (see qualm check --help)");
  ExpectBadInput({"check", "--sed=3"},
                 "unknown option '--sed', nearest is '--seed' (see qualm check --help)");
  ExpectBadInput({"check", "-Z"}, "The following argument was not expected: -Z");
  ExpectBadInput({"sweep", sweep_}, "--subject is required");
  ExpectBadInput({"sweep", sweep_, "-s", "native", "--step", "0"}, "--from/--to/--step: ");
  ExpectBadInput({"sweep", sweep_, "-s", "native", "--from", "-1"}, "--from/--to/--step: ");
  ExpectBadInput({"sweep", sweep_, "-s", "native", "--step", "100000"},
                 "--from/--to/--step: leave 1 codes, expected at least 3");
  ExpectBadInput({"sweep", by_hand_, "-s", "native", "--from", "9", "--to", "8"},
                 "--from/--to/--step: ");
  ExpectBadInput({"sweep", Corpus("forum/001-quantize.case.json"), "-s", "native"},
                 Corpus("forum/001-quantize.case.json") + ": op: ");
  ExpectBadInput({"identify"},
                 "identify takes one of --subject S, CASE... and --between A B, none was given");
  ExpectBadInput({"identify", by_hand_, "-s", "native"}, "identify takes one of ");
  ExpectBadInput({"identify", "-s", "native@all"}, "--subject: ");
  ExpectBadInput({"check", "-s", "pipe:"}, "--subject: 'pipe:' is a kind of subjects, expected ");
  ExpectBadInput({"identify", "--between", "exact"}, "--between: ");
  ExpectBadInput({"identify", "--between", "exact", "fbgem@avx2"},
                 "--between: unknown convention 'fbgem@avx2', nearest is 'fbgemm@avx2'");
  ExpectBadInput({"identify", "-s", "native", "--convention", "none"}, "--convention: unknown");
  ExpectBadInput({"identify", "-s", "native", "--contract", "model:none"}, "--contract: unknown");
  ExpectBadInput({"identify", "-s", "native", "--op", "liner"},
                 "--op: unknown operation 'liner', nearest is 'linear' (see qualm list ops)");
  ExpectBadInput({"identify", "-s", "native", "-n", "5", "--time", "1s"},
                 "--cases excludes --time");
  ExpectBadInput({"identify", "nowhere.case.json"}, "nowhere.case.json: ");
  ExpectBadInput({"identify", Corpus("fuzz/case_reader/ties.case.json")},
                 Corpus("fuzz/case_reader/ties.case.json") + ": observed: is missing");
  ExpectBadInput({"explain", by_hand_, "--at", "2"}, "--at: ");
  ExpectBadInput({"explain", by_hand_, "--at", "-1"},
                 "--at: is '-1', expected an integer from 0 on");
  ExpectBadInput({"explain", by_hand_, "--at", "9223372036854775808"},
                 "--at: is '9223372036854775808', expected an integer from 0 on");
  ExpectBadInput({"sweep", sweep_, "-s", "native", "--from", "4294967296"}, "--from: is ");
  ExpectBadInput({"sweep", sweep_, "-s", "native", "--plot", "curves.png"},
                 "--plot: 'curves.png' is no FILE.svg");
  ExpectBadInput({"explain", by_hand_, "--contract", "model:none"}, "--contract: ");
  ExpectBadInput({"minimize", by_hand_, "-s", "native@all"}, "--subject: ");
  ExpectBadInput({"minimize", by_hand_, "-s", "native", "-s", "faulty:k-tail"},
                 "--subject: 2 subjects are named (native, faulty:k-tail), expected one");
  ExpectBadInput({"minimize", by_hand_, "-s", "native", "-o", "-"}, "--output: '-' is no file");
  ExpectBadInput({"minimize", by_hand_, "-s", "native", "-p", "quantize.clamp"},
                 "--property: quantize.clamp says nothing about linear");
  ExpectBadInput({"replay", by_hand_, "-p", "quantize.clamp"},
                 "--property: " + by_hand_ + ": quantize.clamp says nothing about linear");
  const std::string recording = Corpus("golden/fbgemm_acc16.jsonl");
  ExpectBadInput({"replay", recording, "-p", "clamp"}, "--property: recordings are judged by");
  ExpectBadInput({"replay", recording, "--contract", "exact"}, "--contract: recordings are ");
  ExpectBadInput({"minimize", by_hand_, "-s", "native", "-p", "no_such"}, "--property: ");
  ExpectBadInput({"minimize", by_hand_, "-s", "native", "-p", "round_trip"}, "--property: ");
  ExpectBadInput({"replay", "nowhere"}, "nowhere: ");
  ExpectBadInput({"replay", "."}, ".: holds no ");
  ExpectBadInput({"replay", by_hand_, "-p", "no_such"}, "--property: ");
  ExpectBadInput({"list", "everything"}, "WHAT: ");
  // An empty name is a mistake; it does not stand for a missing option.
  for (const char* option : {"--json", "--junit", "--out", "--shard", "--contract"}) {
    ExpectBadInput({"check", option, ""}, std::string(option) + ": is empty");
  }
  ExpectBadInput({"sweep", sweep_, "-s", "native", "--plot", ""}, "--plot: is empty");
  ExpectBadInput({"minimize", by_hand_, "-s", "native", "-o", ""}, "--output: is empty");
}

// A message about an argument is one line without control bytes, whatever the argument holds.
TEST_F(Command, ArgumentsAreShownOnOneLine) {
  const std::string bad = "a\nb\x1b[31m";
  ExpectBadInput({bad}, "unknown verb 'a?b?[31m'");
  ExpectBadInput({"check", "--" + bad}, "unknown option '--a?b?[31m'");
  ExpectBadInput({"check", "--subject", bad}, "--subject: unknown subject 'a?b?[31m'");
  ExpectBadInput({"check", "--op", bad}, "--op: unknown operation 'a?b?[31m'");
  ExpectBadInput({"check", "--shard", bad}, "--shard: 'a?b?[31m'");
  ExpectBadInput({"check", "--contract", bad}, "--contract: 'a?b?[31m'");
  ExpectBadInput({"replay", bad}, "a?b?[31m: no such file");
}

TEST_F(Command, SameOperationTwiceIsOnce) {
  const Ran ran =
      Qualm({"check", "-s", "native", "--op", "add", "--op", "add", "-n", "7", "--json", "-"});
  EXPECT_EQ(Document(ran)["totals"]["cases"], 7);
}

// Operations between commas, one by one, or without the option: the same for every verb.
TEST_F(Command, OperationsAreSpelledTheSameEverywhere) {
  const auto document = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"check", "-s", "native"});
    words.insert(words.end(), {"-n", "2", "--json", "-"});
    Json run = Document(Qualm(words));
    return std::pair(run["properties"], run["totals"]);
  };
  const auto commas = document({"--op", "linear,conv2d"});
  EXPECT_EQ(commas.second["cases"], 4);
  EXPECT_EQ(document({"--op", "linear", "--op", "conv2d"}), commas);
  EXPECT_EQ(document({"--op", "linear", "conv2d"}), commas);
  EXPECT_EQ(document({"linear", "conv2d,linear"}), commas);
  const std::vector<std::string> hazards{"hazards", "-n", "3", "--op"};
  std::vector<std::string> two = hazards, repeated = hazards;
  two.emplace_back("add,sub");
  repeated.insert(repeated.end(), {"add", "--op", "sub"});
  EXPECT_EQ(Qualm(two).out, Qualm(repeated).out);
  EXPECT_EQ(
      Lines(Qualm({"identify", "-s", "native", "--op", "add,sub", "-n", "3"}).out),
      Lines(Qualm({"identify", "-s", "native", "--op", "add", "--op", "sub", "-n", "3"}).out));
  const std::string nearest =
      ": unknown operation 'linaer', nearest is 'linear' (see qualm list ops)";
  ExpectBadInput({"check", "--op", "add,linaer"}, "--op" + nearest);
  ExpectBadInput({"check", "linaer"}, "OP" + nearest);
  ExpectBadInput({"hazards", "--op", "linaer"}, "--op" + nearest);
  ExpectBadInput({"exhaust", "--op", "linaer", "-s", "native"}, "--op" + nearest);
  ExpectBadInput({"check", "--op", "linear,"}, "--op: unknown operation '' (see qualm list ops)");
  ExpectBadInput({"check", "--op", "q"}, "--op: unknown operation 'q' (see qualm list ops)");
}

// A file is no subject: its kind stands before it.
TEST_F(Command, AFileNamedAsASubjectIsToldItsKind) {
  ExpectBadInput({"check", "-s", "./none.so"},
                 "--subject: './none.so' is no subject, did you mean 'plugin:./none.so'?");
  ExpectBadInput({"check", "-s", "none.so"},
                 "--subject: 'none.so' is no subject, did you mean 'plugin:./none.so'?");
  Write("mine.py", "");
  ExpectBadInput({"check", "-s", "mine.py"},
                 "--subject: 'mine.py' is no subject, did you mean 'pipe:./mine.py'?");
}

// Seeds and counts are decimal, whatever they begin with.
TEST_F(Command, NumbersAreDecimal) {
  const auto run = [&](const std::string& seed, const std::string& cases) {
    Json document = Document(Qualm(
        {"check", "-s", "native", "--op", "add", "--seed", seed, "-n", cases, "--json", "-"}));
    return std::pair(document["seed"], document["totals"]);
  };
  EXPECT_EQ(run("010", "010"), run("10", "10"));
  EXPECT_EQ(run("18446744073709551615", "1").first, 18446744073709551615u);
}

TEST_F(Command, UnknownSubjectsNameTheNearest) {
  const std::vector<std::pair<std::string, std::string>> table{
      {"natve", "native"},
      {"native@portble", "native@portable"},  // every build has it
      {"fauly:k-tail", "faulty:k-tail"},
      {"faulty:k-tial", "faulty:k-tail"},
      {"model:fbgem@avx2", "model:fbgemm@avx2"},
      {"onednn@avx5", "onednn@avx2"}};
  for (const auto& [given, nearest] : table) {
    const std::string begins =
        "--subject: unknown subject '" + given + "', nearest is '" + nearest + "'";
    ExpectBadInput({"check", "--subject", given}, begins);
    ExpectBadInput({"sweep", sweep_, "--subject", given}, begins);
    ExpectBadInput({"explain", by_hand_, "--subject", given}, begins);
    ExpectBadInput({"minimize", by_hand_, "--subject", given}, begins);
    ExpectBadInput({"replay", by_hand_, "--subject", given}, begins);
  }
}

TEST_F(Command, AbsentSubjectsAreThree) {
  const std::vector<std::string> no_plugins{"QUALM_PLUGIN_DIR=/nowhere"};
  for (const std::string subject : {"native@rvv", "plugin:nowhere.so"}) {
    for (const std::vector<std::string>& verb :
         std::vector<std::vector<std::string>>{{"check"},
                                               {"sweep", sweep_},
                                               {"explain", by_hand_},
                                               {"minimize", by_hand_},
                                               {"replay", by_hand_},
                                               {"audit", "--budget", "1s"}}) {
      std::vector<std::string> arguments = verb;
      arguments.insert(arguments.end(), {"--subject", subject});
      const Ran ran = Qualm(3, arguments, no_plugins);
      EXPECT_EQ(Lines(ran.err).size(), 1u) << ran.err;
      EXPECT_TRUE(Has(ran.err, "subject '" + subject + "': "));
      EXPECT_EQ(ran.out, "");
    }
  }
}

// Every text that the reader must refuse, as a file, through the verbs that take one.
TEST_F(Command, HostileCaseFilesAreOneLine) {
  const std::vector<test::Hostile> table = test::HostileTable();
  ASSERT_GE(table.size(), 100u);
  const std::vector<std::vector<std::string>> verbs{
      {"replay"}, {"explain"}, {"minimize", "-s", "native"}, {"sweep", "-s", "native"}};
  for (size_t i = 0; i < table.size(); ++i) {
    const std::string path = Write("hostile" + std::to_string(i) + ".case.json", table[i].text);
    for (size_t v = 0; v < verbs.size(); ++v) {
      // All verbs for every fourth file, one verb for each of the others.
      if (i % 4 != 0 && i % 4 != v) continue;
      std::vector<std::string> arguments = verbs[v];
      arguments.insert(arguments.begin() + 1, path);
      ExpectBadInput(arguments, path + ": " + table[i].field + ": ");
    }
  }
}

TEST_F(Command, UnreadableCaseFilesAreNamed) {
  std::filesystem::create_directory(folder() / "folder.case.json");
  for (const char* verb : {"replay", "explain"}) {
    ExpectBadInput({verb, "missing.case.json"}, "missing.case.json: ");
  }
  ExpectBadInput({"explain", "folder.case.json"}, "folder.case.json: file: is a directory");
  ExpectBadInput({"explain", "/dev/zero"}, "/dev/zero: file: is no regular file");
  const std::string unknown = Write(
      "p.case.json",
      R"({"qualm_case": 1, "op": "dequantize", "M": 1, "N": 1, "x_scale": 1, "x_zp": 0, "x": [1],
          "property": "dequantize.is_pretty"})");
  ExpectBadInput({"replay", unknown}, unknown + ": property: unknown property");
  ExpectBadInput({"minimize", unknown, "-s", "native"}, unknown + ": property: unknown property");
}

TEST_F(Command, HostileRecordingsNameFileAndLine) {
  const std::string path = Write("bad.jsonl", "{\"op\":\"linear\"\n");
  const Ran ran = Qualm(2, {"replay", path});
  EXPECT_EQ(ran.out, "");
  EXPECT_TRUE(Begins(Lines(ran.err).back(), "qualm: " + path + ":1: ")) << ran.err;
}

// Findings in good files are reported although one file among them is bad.
TEST_F(Command, OneBadFileAmongManyLosesNothing) {
  std::filesystem::create_directory(folder() / "cases");
  for (const std::string name : {"linear-last-product-dropped", "quantize-half-is-added"})
    std::filesystem::copy(Corpus("regressions/" + name + ".case.json"), folder() / "cases");
  Write("cases/aaa.case.json", "{");
  const Ran ran = Qualm(2, {"replay", "cases", "--subject", "faulty:k-tail", "--json", "out.json"});
  EXPECT_TRUE(Has(ran.out, "FINDING: linear.matches_exact fails on faulty:k-tail [tail]"));
  EXPECT_EQ(ReadJson("out.json")["findings"].size(), 1u);
  EXPECT_TRUE(Begins(Lines(ran.err).back(), "qualm: cases/aaa.case.json: top level: ")) << ran.err;
}

TEST_F(Command, UnwritableResultsAreTwoAndTheFindingsAreStillTold) {
  const std::string finding = "FINDING: linear.matches_exact fails on faulty:k-tail [tail]";
  const std::vector<std::string> check{"check", "--subject", "faulty:k-tail", "--cases",
                                       "100",   "--op",      "linear"};
  // The folder can be written, but a file is where the folder in it should be.
  std::filesystem::create_directory(folder() / "taken");
  Write("taken/findings", "");
  for (const std::vector<std::string>& where : std::vector<std::vector<std::string>>{
           {"--junit", "/dev/full"}, {"--out", "taken"}, {"--json", "/dev/full"}}) {
    std::vector<std::string> arguments = check;
    arguments.insert(arguments.end(), where.begin(), where.end());
    const Ran ran = Qualm(2, arguments);
    EXPECT_TRUE(Has(ran.out, finding)) << where[0];
    EXPECT_TRUE(Begins(Lines(ran.err).back(), "qualm: " + where[0] + ": ")) << ran.err;
  }
  // The document is written even if the folder of findings cannot be written, and vice versa.
  Qualm(2, {"check", "--subject", "faulty:k-tail", "--cases", "100", "--op", "linear", "--out",
            "taken", "--json", "x.json"});
  EXPECT_FALSE(ReadJson("x.json")["findings"].empty());

  // Links: a command that replaced its output file, instead of writing into it, would harm nobody.
  std::filesystem::create_symlink("/dev/full", folder() / "full.case.json");
  const Ran small =
      Qualm(2, {"minimize", sweep_, "--subject", "model:fbgemm@avx2", "-o", "full.case.json"});
  EXPECT_TRUE(Has(small.out, "\"expected\": [129]"));
  std::filesystem::create_symlink("/dev/full", folder() / "full.svg");
  const Ran plot =
      Qualm(2, {"sweep", sweep_, "-s", "model:fbgemm@avx2", "--plot", "full.svg", "--json", "-"});
  EXPECT_EQ(Document(plot)["findings"].size(), 2u);
  EXPECT_TRUE(Begins(Lines(plot.err).back(), "qualm: --plot: ")) << plot.err;
}

// A folder that cannot be written neither prevents a run nor changes how it ends.
TEST_F(Command, FindingsGoElsewhereWhereTheirFolderCannotBeWritten) {
  std::filesystem::create_directory(folder() / "temporary");
  const auto check = [&](const std::string& subject) {
    return Shell("TMPDIR=$PWD/temporary qualm check --op linear -n 100 --out /proc/no -s " +
                 subject);
  };
  const auto made = [&] {
    return std::distance(std::filesystem::directory_iterator(folder() / "temporary"), {});
  };
  const std::string why = "qualm: --out: /proc/no: cannot be made or written (";
  const Ran wrong = check("faulty:k-tail");
  EXPECT_EQ(wrong.status, 1);
  EXPECT_TRUE(Begins(wrong.err, why)) << wrong.err;
  EXPECT_TRUE(Has(wrong.err, "; what this run finds goes to " + folder().string()));
  ASSERT_EQ(made(), 1);
  const std::filesystem::path place = *std::filesystem::directory_iterator(folder() / "temporary");
  EXPECT_TRUE(std::filesystem::exists(
      place / "findings/linear.matches_exact-faulty-k-tail-tail/minimized.case.json"));
  EXPECT_TRUE(std::filesystem::exists(place / "index.html"));
  std::filesystem::remove_all(place);
  const Ran right = Shell(
      "TMPDIR=$PWD/temporary; export TMPDIR; cd /proc && qualm check --op linear -n 5 -s native");
  EXPECT_EQ(right.status, 0);
  EXPECT_TRUE(Begins(right.err, "qualm: --out: qualm-findings: cannot be made or written ("));
  EXPECT_EQ(made(), 0);
}

// Errors that can be known before the run are reported before it, and existing files survive.
TEST_F(Command, PlacesThatCannotBeWrittenAreSaidFirst) {
  const std::string case_file = sweep_;
  for (const char* option : {"--json", "--junit"}) {
    ExpectBadInput({"check", "-s", "native", option, "/proc/no/x"},
                   std::string(option) + ": /proc/no/x: cannot be written (");
    ExpectBadInput({"replay", case_file, option, "."},
                   std::string(option) + ": .: cannot be written (is a folder)");
  }
  ExpectBadInput({"audit", "-s", "native", "--out", "/proc/no"},
                 "--out: /proc/no: cannot be made or written (");
  // A clean run leaves a folder behind only where one was asked for: its report.
  Qualm(0, {"check", "-s", "native", "-n", "1"});
  EXPECT_FALSE(std::filesystem::exists(folder() / "qualm-findings"));
  Qualm(0, {"check", "-s", "native", "-n", "1", "--out", "a/b"});
  EXPECT_TRUE(std::filesystem::exists(folder() / "a/b/index.html"));
  EXPECT_FALSE(std::filesystem::exists(folder() / "a/b/findings"));
  ExpectBadInput({"minimize", case_file, "-s", "native", "-o", "/proc/no/x"}, "--output: /proc/no");
  ExpectBadInput({"sweep", case_file, "-s", "native", "--plot", "/proc/no/x.svg"},
                 "--plot: /proc/no/x.svg: ");
  ExpectBadInput({"explain", case_file, "--json", "/proc/no/x"}, "--json: /proc/no/x: ");
  // A run that cannot start leaves an existing file as it is, and makes none.
  Write("kept.json", "precious");
  ExpectBadInput({"check", "-s", "native", "--json", "kept.json", "--junit", "/proc/no/x"},
                 "--junit: ");
  EXPECT_EQ(Read("kept.json"), "precious");
  ExpectBadInput({"check", "-s", "native", "--json", "new.json", "--junit", "/proc/no/x"},
                 "--junit: ");
  EXPECT_FALSE(std::filesystem::exists(folder() / "new.json"));
}

TEST_F(Command, JUnitGoesToStdoutToo) {
  const Ran ran = Qualm(0, {"check", "-s", "native", "--op", "add", "-n", "3", "--junit", "-"});
  EXPECT_TRUE(Begins(ran.out, "<?xml "));
  EXPECT_TRUE(Ends(ran.out, "</testsuites>\n"));
}

// An audit deletes only the files of an earlier audit, and only once it knows that it can run.
TEST_F(Command, AuditDeletesNothingOfOthers) {
  std::filesystem::create_directories(folder() / "mine/findings");
  Write("mine/findings/notes.txt", "precious");
  const auto audit = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"audit", "--budget", "1s", "--out", "mine", "-s", "native"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  ExpectBadInput(audit({}), "--out: mine/findings is there and not from qualm audit");
  EXPECT_EQ(Read("mine/findings/notes.txt"), "precious");
  std::filesystem::remove_all(folder() / "mine");
  Qualm(0, audit({}));
  std::filesystem::create_directories(folder() / "mine/sections");  // of an audit of long ago
  Write("mine/sections/00-mine.txt", "precious");
  ExpectBadInput(audit({"-s", "natve"}), "--subject: ");
  ExpectBadInput(audit({"--corpus", "nowhere"}), "--corpus: ");
  EXPECT_EQ(Read("mine/sections/00-mine.txt"), "precious");
  Qualm(0, audit({}));
  EXPECT_FALSE(std::filesystem::exists(folder() / "mine/sections/00-mine.txt"));
}

// A reader during a run, or after a run that was killed, finds a whole document.
TEST_F(Command, AFullDiskLeavesTheEarlierDocument) {
  const Ran first = Qualm({"list", "properties", "--json", "r.json"});
  ASSERT_EQ(first.status, 0) << first.err;
  const std::string before = Read("r.json");
  const Ran full = Shell(
      "ulimit -f 1; "
      "qualm list properties --json r.json > /dev/null");
  EXPECT_EQ(full.status, 2) << full.err;
  EXPECT_EQ(full.err,
            "qualm: --json: r.json: file: cannot be written (File too large), expected a "
            "writable path\n");
  EXPECT_EQ(Read("r.json"), before);
  const auto files = std::distance(std::filesystem::directory_iterator(folder()), {});
  EXPECT_EQ(files, 1) << "a temporary was left behind";
}

// Reading any of these would never end, so each must be refused without reading.
TEST_F(Command, WhatIsNoFileIsRefusedAtOnce) {
  std::filesystem::create_directories(folder() / "cases");
  std::filesystem::copy(by_hand_, folder() / "cases");
  std::filesystem::create_directories(folder() / "out/findings/one");
  ASSERT_EQ(
      Shell("mkfifo cases/pipe.case.json cases/pipe.jsonl out/findings/one/explanation.txt && "
            "ln -s /dev/zero cases/zero.case.json && mkdir cases/folder.case.json")
          .status,
      0);
  const std::string no_file = ": file: is no regular file, expected a ";
  ExpectBadInput({"replay", "cases/pipe.case.json", "-s", "native"},
                 "cases/pipe.case.json" + no_file + "case file");
  const Ran recording = Qualm(2, {"replay", "cases/pipe.jsonl"});
  EXPECT_TRUE(Ends(recording.err, "cases/pipe.jsonl" + no_file + "recording file\n"));
  ExpectBadInput({"check", "-n", "1", "--baseline", "cases/pipe.jsonl"},
                 "--baseline: cases/pipe.jsonl" + no_file + "baseline file");
  ExpectBadInput({"report", "out"}, "out/findings/one/explanation.txt" + no_file + "report file");
  // The good files are judged all the same.
  const Ran all = Qualm(2, {"replay", "cases", "-s", "native"});
  EXPECT_TRUE(Has(all.out, "1 case; "));
  ASSERT_FALSE(Lines(all.err).empty());
  EXPECT_TRUE(Begins(Lines(all.err).back(), "qualm: cases/folder.case.json: file: is a directory"))
      << all.err;
}

// A long run that is killed keeps the findings that it had written.
TEST_F(Command, AKilledRunKeepsWhatItFound) {
  const Ran ran = Shell(
      "qualm check -s faulty:u8-as-s8 --op linear -p linear.matches_exact --time 48h "
      "--out out 2> err & until ls out/findings/*/case.json; do sleep 0.05; done; "
      "kill -KILL $!; wait $!");
  EXPECT_EQ(ran.status, 128 + 9);
  const std::string found = "out/findings/linear.matches_exact-faulty-u8-as-s8-unknown/";
  EXPECT_TRUE(
      Has(Read(found + "explanation.txt"), "linear.matches_exact fails on faulty:u8-as-s8"));
  Qualm(1, {"replay", "out", "-s", "faulty:u8-as-s8"});
  Qualm(0, {"report", "out"});
  // A run that ends replaces the finding by the same finding, minimized and explained.
  Qualm(1, {"check", "-s", "faulty:u8-as-s8", "--op", "linear", "-p", "linear.matches_exact", "-n",
            "200", "--out", "out"});
  int findings = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder() / "out/findings")) {
    EXPECT_FALSE(Ends(entry.path().string(), "-unknown")) << entry.path();
    ++findings;
  }
  EXPECT_GT(findings, 0);
}

TEST_F(Command, TwoRunsShareAFolder) {
  const std::string run =
      "qualm check -s faulty:u8-as-s8 --op linear -p linear.matches_exact -n 60 -s "
      "faulty:k-tail "
      "--out out --json ";
  const Ran ran = Shell(run + "a.json > a & first=$!; " + run +
                        "b.json > b & second=$!; "
                        "wait $first && exit 9; wait $second && exit 9; exit 0");
  EXPECT_EQ(ran.status, 0) << ran.err;
  for (const char* name : {"a.json", "b.json"}) {
    const Json document = Json::parse(Read(name));
    EXPECT_FALSE(document["findings"].empty());
    for (const Json& finding : document["findings"]) {
      const std::filesystem::path file(finding["case_file"].get<std::string>());
      EXPECT_FALSE(Json::parse(Read(file)).empty()) << file;
      EXPECT_NE(Read(file.parent_path() / "explanation.txt"), "");
    }
  }
  std::set<std::string> claims;
  for (const auto& entry : std::filesystem::directory_iterator(folder() / "out/findings")) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(Begins(name, "linear.matches_exact-faulty-"));
    EXPECT_FALSE(Ends(name, "-unknown"));
    claims.insert(name);
  }
  EXPECT_EQ(claims.size(), 2u);
}

// The signal comes as soon as the process catches it, long before the first case.
TEST_F(Command, AnInterruptInTheFirstMomentsStillGivesAResult) {
  const Ran ran = Shell(
      "qualm check -s native -s 'pipe:sleep 2; exit 3' --time 600s & "
      "until grep -q 'SigCgt:.*[4-7c-f]...$' /proc/$!/status; do :; done; "
      "kill -TERM $!; wait $!");
  EXPECT_EQ(ran.status, 3) << "the subject that never came: " << ran.err;
  const Ran native = Shell(
      "qualm check -s native --time 600s --json r.json & "
      "until grep -q 'SigCgt:.*[4-7c-f]...$' /proc/$!/status; do :; done; "
      "kill -TERM $!; wait $!");
  EXPECT_EQ(native.status, 128 + 15) << native.err;
  EXPECT_EQ(ReadJson("r.json")["schema"], "qualm.result/1");
}

TEST_F(Command, AuditAndReportLeaveForeignFiles) {
  for (const char* name : {"index.html", "result.json"}) {
    std::filesystem::create_directories(folder() / "site");
    Write(std::string("site/") + name, "mine");
    ExpectBadInput({"audit", "--budget", "1s", "--out", "site", "-s", "native"},
                   std::string("--out: site/") + name + " is there and not from qualm audit");
    EXPECT_EQ(Read(std::string("site/") + name), "mine");
    std::filesystem::remove_all(folder() / "site");
  }
  std::filesystem::create_directories(folder() / "site/findings/one");
  Write("site/index.html", "mine");
  ExpectBadInput({"report", "site"}, "site/index.html: is there and no report of qualm");
  EXPECT_EQ(Read("site/index.html"), "mine");
  Write("site/index.html", "");
  Qualm(0, {"report", "site"});
  Qualm(0, {"report", "site"});  // its own report is replaced
}

TEST_F(Command, FullStdoutIsNoSuccess) {
  EXPECT_EQ(Shell("qualm list ops > /dev/full").status, 2);
  EXPECT_EQ(Shell("qualm list ops --json - > /dev/full").status, 2);
  EXPECT_EQ(Shell("qualm --help > /dev/full").status, 2);
  EXPECT_EQ(Shell("qualm --version > /dev/full").status, 2);
  EXPECT_EQ(Shell("qualm list properties >&-").status, 2);
}

// stderr may be closed. Text for stderr must not land in a file that is opened in its place.
TEST_F(Command, StderrMayFail) {
  for (const std::string where : {" 2>&-", " 2>/dev/full"}) {
    const auto status = [&](const std::string& words) {
      return Shell("qualm " + words + where).status;
    };
    EXPECT_EQ(status("list ops"), 0) << where;
    EXPECT_EQ(status("check -s native --op add -n 3 --json ok.json"), 0) << where;
    EXPECT_TRUE(ReadJson("ok.json").is_object()) << where;
    EXPECT_EQ(status("check -s faulty:product-int16 --op mul -n 50"), 1) << where;
    EXPECT_EQ(status("chek"), 2) << where;
    EXPECT_EQ(status("check --subject plugin:nowhere.so"), 3) << where;
  }
}

// Two runs differ in the time they took.
Json WithoutTimes(Json document) {
  document.erase("seconds");
  if (document.contains("triage")) document["triage"].erase("seconds");
  return document;
}

TEST_F(Command, JsonIsAllThatGoesToStdout) {
  const std::vector<std::vector<std::string>> verbs{
      {"check", "--subject", "faulty:k-tail", "--cases", "30"},
      {"sweep", sweep_, "--subject", "native@all", "--subject", "model:fbgemm@avx2"},
      {"replay", Corpus("regressions"), "--subject", "faulty:relu-clamp-zero"},
      {"replay", Corpus("golden/fbgemm_acc16.jsonl")},
      {"minimize", sweep_, "--subject", "model:fbgemm@avx2"},
      {"minimize", sweep_, "--subject", "native"},
      {"explain", by_hand_, "--subject", "native"},
      {"identify", "--subject", "model:qnnpack", "--op", "linear", "--cases", "30"},
      {"identify", "--between", "fbgemm@avx2", "fbgemm@vnni", "--op", "linear", "--cases", "60"},
      {"identify", by_hand_},
      {"list", "subjects"},
      {"list", "properties"},
      {"list", "ops"},
      {"list", "faults"},
      {"list", "conventions"},
      {"list", "variations", "--markdown"}};
  for (std::vector<std::string> arguments : verbs) {
    arguments.insert(arguments.end(), {"--json", "-"});
    const Ran ran = Qualm(arguments);
    EXPECT_LE(ran.status, 1) << ran.err;
    const Json document = Document(ran);
    EXPECT_TRUE(Begins(document["command"].get<std::string>(), "qualm " + arguments[0]));
    int64_t failed = document["totals"]["failed"];
    EXPECT_EQ(failed > 0, ran.status == 1) << testing::PrintToString(arguments);
    EXPECT_EQ(document["findings"].empty(), ran.status == 0);
    // And the same bytes in a file, but for the time taken.
    arguments.back() = "file.json";
    const Ran again = Qualm(arguments);
    EXPECT_EQ(again.status, ran.status);
    EXPECT_EQ(WithoutTimes(ReadJson("file.json")), WithoutTimes(document));
    EXPECT_NE(again.out, "");
  }
}

TEST_F(Command, SameSeedSameDocumentForAnyNumberOfJobs) {
  const auto run = [&](const std::string& jobs, const std::string& seed) {
    const Ran ran = Qualm(
        1, {"check", "--subject", "native", "--subject", "faulty:k-tail", "--subject",
            "faulty:ties-away", "--cases", "60", "--seed", seed, "--jobs", jobs, "--json", "-"});
    return WithoutTimes(Json::parse(ran.out));
  };
  const Json one = run("1", "7");
  EXPECT_EQ(one, run("2", "7"));
  EXPECT_EQ(one, run("5", "7"));
  EXPECT_NE(one["totals"], run("1", "8")["totals"]);
}

// stderr names the command that repeats the run, and that command must repeat it.
TEST_F(Command, TheRepeatCommandRepeats) {
  std::filesystem::copy(by_hand_, folder() / "it's a case.case.json");
  const std::vector<std::vector<std::string>> runs{
      {"check", "-s", "faulty:k-tail", "--cases=40", "-j2", "--out", "elsewhere"},
      {"check", "--subject=faulty:ties-away", "--cases", "40", "--seed", "9", "--op", "linear"},
      {"explain", "it's a case.case.json", "--subject", "native"},
      {"sweep", sweep_, "-s", "model:fbgemm@avx2", "--from", "100", "--step", "3"},
      {"minimize", sweep_, "-s", "model:fbgemm@avx2", "-osmall.case.json"}};
  for (std::vector<std::string> arguments : runs) {
    arguments.insert(arguments.end(), {"--json", "first.json"});
    const Ran first = Qualm(arguments);
    const std::string mark = "to repeat: ";
    const std::string line = Lines(first.err).at(0);
    ASSERT_TRUE(Has(line, mark)) << first.err;
    const std::string command = line.substr(line.find(mark) + mark.size());
    const Ran again = Shell(command + " --json second.json");
    EXPECT_EQ(again.status, first.status) << command << "\n" << again.err;
    Json a = WithoutTimes(ReadJson("first.json"));
    Json b = WithoutTimes(ReadJson("second.json"));
    for (Json* document : {&a, &b}) {
      // The files of findings are not compared: the repetition may write them elsewhere.
      for (Json& finding : (*document)["findings"]) finding.erase("case_file");
    }
    EXPECT_EQ(a, b) << command;
    if (arguments[0] == "check") {
      EXPECT_TRUE(Has(line, "seed "));
      EXPECT_TRUE(Has(command, "--seed "));
    }
  }
}

// The user stands in the folder that his absolute paths name.
TEST_F(Command, PathsArePrintedRelativeToTheCurrentFolder) {
  const std::string here = folder().string() + "/";
  std::filesystem::create_directory(here + "cases");
  std::filesystem::copy_file(sweep_, here + "cases/found.case.json");
  std::filesystem::copy_file(QUALM_BINARY_DIR "/lib/qualm_broken.so", here + "mine.so");
  const std::string found = here + "cases/found.case.json", model = "model:fbgemm@avx2";
  struct Row {
    std::vector<std::string> arguments;
    std::string prints;
  };
  const std::vector<Row> rows{
      {{"check", "-s", "faulty:k-tail", "--op", "linear", "-n", "30", "--out", here + "out"},
       "next: qualm explain out/findings/"},
      {{"check", "-s", "plugin:" + here + "mine.so", "--op", "linear", "-n", "5", "--out",
        here + "out2"},
       ""},
      {{"minimize", found, "-s", model, "-o", here + "small.case.json", "--to-corpus",
        here + "corpus/"},
       "case: small.case.json"},
      {{"replay", here + "small.case.json", found, "-s", model}, "still fails: small.case.json"},
      {{"replay", found, "-s", model, "--contract", "exact"}, "case: cases/found.case.json"},
      {{"explain", here + "cases", "-s", model}, "found"},
      {{"identify", found, "--output", here + "witnesses"}, "ruled out by cases/found.case.json"},
      {{"certify", found}, "cases/found.case.json: "}};
  for (const Row& row : rows) {
    const Ran ran = Qualm(row.arguments);
    EXPECT_TRUE(Has(ran.out, row.prints)) << row.prints;
    EXPECT_FALSE(Has(ran.out, here)) << ran.out << ran.err;
    EXPECT_FALSE(Has(ran.err, here));
  }
}

// "" if the text is well-formed enough for every XML parser: one root, tags that match, attributes
// quoted, no stray < or &.
std::string XmlError(const std::string& xml) {
  std::vector<std::string> open;
  size_t at = xml.starts_with("<?xml ") ? xml.find("?>") + 2 : 0;
  int roots = 0;
  while (at < xml.size()) {
    const size_t tag = xml.find('<', at);
    const std::string text = xml.substr(at, tag - at);
    for (size_t amp = text.find('&'); amp != std::string::npos; amp = text.find('&', amp + 1)) {
      if (text.find(';', amp) == std::string::npos) return "stray & in " + text;
    }
    if (open.empty() && text.find_first_not_of(" \n") != std::string::npos) return "text outside";
    if (tag == std::string::npos) break;
    size_t end = tag + 1;
    for (bool quoted = false; end < xml.size() && (quoted || xml[end] != '>'); ++end) {
      if (xml[end] == '"') quoted = !quoted;
      if (xml[end] == '<') return "< in a tag at " + std::to_string(end);
    }
    if (end == xml.size()) return "unclosed tag";
    const std::string inside = xml.substr(tag + 1, end - tag - 1);
    const std::string name = inside.substr(0, inside.find_first_of(" /", 1));
    if (inside[0] == '/') {
      if (open.empty() || open.back() != inside.substr(1)) return "unexpected </" + inside;
      open.pop_back();
    } else {
      roots += open.empty() ? 1 : 0;
      if (inside.back() != '/') open.push_back(name);
    }
    at = end + 1;
  }
  return !open.empty() ? "unclosed " + open.back() : roots != 1 ? "no single root" : "";
}

TEST_F(Command, JUnitIsWellFormedXml) {
  EXPECT_NE(XmlError("<a><b></a>"), "");
  EXPECT_NE(XmlError("<a x=\"1<2\"/>"), "");
  EXPECT_NE(XmlError("<a>1 & 2</a>"), "");
  Qualm(1, {"check", "-s", "faulty:k-tail", "--cases", "100", "--junit", "check.xml"});
  EXPECT_EQ(XmlError(Read("check.xml")), "");
  EXPECT_TRUE(Has(Read("check.xml"), "name=\"linear.matches_exact\" time=\""));
  const std::string check = WithoutSeconds(Read("check.xml"));
  EXPECT_TRUE(Has(check, "name=\"linear.matches_exact\"><failure message=\""));
  EXPECT_FALSE(Has(check, "name=\"quantize.matches_exact\"><failure"));
  Qualm(1, {"replay", Corpus("regressions/linear-last-product-dropped.case.json"), "-s", "native",
            "-s", "faulty:k-tail", "--junit", "replay.xml"});
  const std::string replay = Read("replay.xml");
  EXPECT_EQ(XmlError(replay), "");
  EXPECT_TRUE(Has(replay, "<testsuite name=\"faulty:k-tail\" tests=\""));
  EXPECT_TRUE(Has(replay, "failures=\"1\""));
}

TEST_F(Command, GithubGetsAnnotationsAndASummary) {
  const std::string summary = (folder() / "summary.md").string();
  Write("summary.md", "before\n");
  setenv("GITHUB_STEP_SUMMARY", summary.c_str(), 1);
  const Ran ran = Qualm(1, {"check", "-s", "faulty:k-tail", "--op", "linear", "-n", "100",
                            "--github", "--sarif", "run.sarif"});
  unsetenv("GITHUB_STEP_SUMMARY");
  EXPECT_TRUE(Has(ran.out, "\n::error title=qualm%3A linear of faulty%3Ak-tail%2C tail::"));
  EXPECT_TRUE(Begins(Read("summary.md"), "before\n### qualm: 1 new\n"));
  const auto sarif = nlohmann::json::parse(Read("run.sarif"));
  EXPECT_EQ(sarif["runs"][0]["results"][0]["level"], "error");
  ExpectBadInput({"check", "-s", "native", "--github", "--json", "-"},
                 "--github: prints to stdout");
  ExpectBadInput({"check", "-s", "native", "--sarif", "-", "--json", "-"},
                 "--sarif: stdout takes one document");
}

TEST_F(Command, EveryVerbShowsAnExample) {
  const Ran help = Qualm({"--help"});
  EXPECT_TRUE(Has(help.out, "Exit status: 0 clean, 1 findings"));
  for (const std::string verb :
       {"audit", "check", "sweep", "replay", "minimize", "explain", "identify", "list", "report"}) {
    EXPECT_TRUE(Has(help.out, "  " + verb)) << verb;
    const Ran ran = Qualm(0, {verb, "--help"});
    EXPECT_TRUE(Has(ran.out, "Example: qualm " + verb + " "));
    if (verb != "report") {
      EXPECT_TRUE(Has(ran.out, "--json")) << verb;
    }
  }
}

TEST_F(Command, ListsSayWhatThereIs) {
  const std::string subjects = Qualm({"list", "subjects"}).out;
  EXPECT_TRUE(Has(subjects, ", the same as native@"));
  EXPECT_TRUE(Has(subjects, "\nnative@portable "));
  EXPECT_TRUE(Has(subjects, "\nmodel:fbgemm@avx2 "));
  EXPECT_TRUE(Has(subjects, "\nplugin:PATH.so "));
  EXPECT_FALSE(Has(subjects, "no such file"));
  EXPECT_TRUE(Has(Qualm({"list", "properties"}).out, "\nlinear.sweep_is_linear "));
  const std::vector<std::string> ops = Lines(Qualm({"list", "ops"}).out);
  ASSERT_EQ(ops.size(), AllOps().size());
  for (size_t i = 0; i < ops.size(); ++i) {
    EXPECT_TRUE(Begins(ops[i], std::string(Name(AllOps()[i])) + " "));
  }
  const std::vector<std::string> faults = Lines(Qualm({"list", "faults"}).out);
  EXPECT_GE(faults.size(), 30u);
  for (const std::string& fault : faults) EXPECT_TRUE(Begins(fault, "faulty:"));
}

TEST_F(Command, VersionNamesTargetsAndLibraries) {
  const Ran ran = Qualm({"--version"});
  const std::vector<std::string> lines = Lines(ran.out);
  ASSERT_GE(lines.size(), 6u) << ran.out;
  EXPECT_TRUE(Begins(lines[0], "qualm "));
  EXPECT_TRUE(Begins(lines[1], "  native   targets "));
  EXPECT_TRUE(Has(lines[1], " PORTABLE"));
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_TRUE(lines[i].starts_with("  ") && lines[i].back() != ' ') << "'" << lines[i] << "'";
    // Some libraries have a convention for some processors alone.
    if (!Has(lines[i], "held only on processors with")) {
      EXPECT_FALSE(Has(lines[i], "unavailable"));
    }
  }
}

TEST_F(Command, WhatJudgedNothingIsSaid) {
  const Ran ran = Qualm(2, {"check", "-s", "faulty:reciprocal", "--op", "linear", "--cases", "5"});
  EXPECT_EQ(Lines(ran.err).back(), "qualm: nothing was judged: the fault is not in linear");
  EXPECT_TRUE(Has(ran.out, "nothing was judged on faulty:reciprocal: the fault is not in linear"));
}

// The count and the reasons of the summary speak of the operations that were asked for.
TEST_F(Command, TheSummarySpeaksOfWhatWasAskedFor) {
  const auto summary = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"check", "-n", "20", "--quiet"});
    for (const std::string& line : Lines(Qualm(words).out)) {
      if (line.find(" answers were judged: ") != std::string::npos) return line;
    }
    return std::string();
  };
  // A claim about add asks for rescale, which this subject does not have. No case of add is
  // missing.
  const std::string add = summary({"-s", "faulty:left-shift-dropped", "--op", "add"});
  EXPECT_TRUE(Begins(add, "20 of 20 answers were judged: "));
  EXPECT_FALSE(Has(add, "not judged"));
  // Without --op an operation that the subject does not have is left out.
  const std::string all = summary({"-s", "faulty:reciprocal"});
  EXPECT_TRUE(Begins(all, "20 of 20 answers were judged: "));
  EXPECT_TRUE(Has(all, ". Nothing was judged of dequantize and "));
  EXPECT_TRUE(Has(all, " more operations on faulty:reciprocal (the fault is not in dequantize). "));
  const std::string two = summary({"-s", "faulty:reciprocal", "--op", "quantize,linear"});
  EXPECT_TRUE(Begins(two, "20 of 40 answers were judged: "));
  EXPECT_TRUE(Has(two, "takes, most often: the fault is not in linear."));
  EXPECT_FALSE(Has(two, "Nothing was judged of "));
}

TEST_F(Command, RunsThatJudgeNothingAreNoSuccess) {
  const auto expect = [&](const std::vector<std::string>& arguments, int status,
                          const std::string& why) {
    const Ran ran = Qualm(arguments);
    EXPECT_EQ(ran.status, status) << testing::PrintToString(arguments) << ran.err;
    EXPECT_EQ(Lines(ran.err).back(), "qualm: " + why);
  };
  const std::string nothing = "nothing was judged: ";
  Write("empty.jsonl", "");
  const std::string quantize = Corpus("forum/001-quantize.case.json");
  const std::string fault = "the fault is not in quantize";
  expect({"replay", "empty.jsonl"}, 2, nothing + "there was no case");
  // The expected output in the file passes.
  expect({"replay", quantize, "-s", "faulty:k-tail"}, 2,
         "no answer of faulty:k-tail was judged: " + fault);
  expect({"minimize", quantize, "-s", "faulty:k-tail"}, 2, nothing + fault);
  expect({"sweep", Corpus("forum/000-linear-sweep.case.json"), "-s", "faulty:reciprocal"}, 2,
         nothing + "the fault is not in linear");
  Qualm(2, {"identify", "-s", "native", "--op", "linear", "-n", "5", "--convention", "aten@avx2"});
  // A shard of a run with few cases may have no case.
  expect({"check", "-s", "native", "--op", "add", "-n", "1", "--shard", "1/2"}, 0,
         nothing + "there was no case");
}

// Ctrl-C, or a CI that has waited long enough, ends a run, and the run still reports the findings
// so far.
TEST_F(Command, AStoppedRunSaysWhatItFound) {
  const auto stopped = [&](const std::string& subject, const std::string& signal) {
    return Shell(
        "qualm check -s " + subject +
        " --op linear -p linear.matches_exact --time 600s --out out --json r.json 2> err & "
        "until grep -q ' cases, ' err; do sleep 0.1; done; "
        // As timeout(1) does, which tells the process and its group.
        "kill -" +
        signal + " $!; kill -" + signal + " $!; wait $!; status=$?; cat err >&2; exit $status");
  };
  const Ran found = stopped("faulty:u8-as-s8", "TERM");
  EXPECT_EQ(found.status, 1) << found.err;
  EXPECT_TRUE(Has(found.err, "stopped by signal 15"));
  const Json document = ReadJson("r.json");
  ASSERT_FALSE(document["findings"].empty());
  EXPECT_GT(document["totals"]["failed"], 0);
  EXPECT_TRUE(
      std::filesystem::exists(folder() / document["findings"][0]["case_file"].get<std::string>()));
  // A folder of findings is replayed with the cases as they were drawn.
  const Ran again = Qualm(1, {"replay", "out", "-s", "faulty:u8-as-s8", "--json", "-"});
  EXPECT_EQ(Json::parse(again.out)["totals"]["cases"], document["findings"].size());
  const Ran clean = stopped("native", "HUP");
  EXPECT_EQ(clean.status, 128 + 1) << clean.err;
  EXPECT_GT(ReadJson("r.json")["totals"]["passed"], 0);
}

TEST_F(Command, AStoppedIdentifySaysWhatItFound) {
  const Ran ran = Shell(
      "qualm identify -s model:onednn3@vnni --op conv2d --time 30s --json "
      "r.json 2> err & sleep 1; kill -TERM $!; wait $!");
  EXPECT_EQ(ran.status, 128 + 15) << ran.out;
  const size_t said = ran.out.find("bit-equal to ");
  ASSERT_NE(said, std::string::npos) << ran.out;
  EXPECT_TRUE(Has(ran.out.substr(said, ran.out.find('\n', said) - said), "onednn3@vnni"));
  EXPECT_FALSE(ReadJson("r.json")["identify"]["ops"].empty());
}

TEST_F(Command, OneFileIsNotWrittenTwiceNorOverWhatIsRead) {
  const std::string text = Read(by_hand_);
  const std::string mine = Write("mine.case.json", text);
  ExpectBadInput({"replay", "mine.case.json", "-s", "native", "--json", "mine.case.json"},
                 "--json: mine.case.json: is read by this run");
  ExpectBadInput({"explain", "mine.case.json", "--json", mine}, "--json: " + mine + ": is read");
  ExpectBadInput({"minimize", mine, "-s", "native", "-o", mine}, "--output: " + mine + ": is read");
  ExpectBadInput({"check", "-n", "1", "--json", "both", "--junit", "both"},
                 "--junit: both: is the file of --json too");
  EXPECT_EQ(Read("mine.case.json"), text);
  ExpectBadInput({"check", "-n", "1", "--out", mine}, "--out: " + mine + ": cannot be made");
  Qualm(0, {"check", "-s", "native", "-n", "1", "--json", "/dev/null"});
}

TEST_F(Command, ExplainMindsTheExpectedOutput) {
  Json wrong = Json::parse(Read(Corpus("variations/V6.case.json")));
  wrong["expected"][0] = wrong["expected"][0].get<int>() ^ 1;
  const Ran ran = Qualm(1, {"explain", Write("wrong.case.json", wrong.dump()), "--json", "r.json"});
  EXPECT_TRUE(Has(ran.out, "the expected output in the file is not the exact one"));
  EXPECT_EQ(ReadJson("r.json")["findings"][0]["subject"], "expected");
}

TEST_F(Command, PropertyOfAnotherOperationIsNamed) {
  const std::string file = Write(
      "p.case.json",
      R"({"qualm_case": 1, "op": "dequantize", "M": 1, "N": 1, "x_scale": 1, "x_zp": 0, "x": [1],
          "property": "quantize.matches_exact"})");
  const std::string says = ": property: quantize.matches_exact says nothing about dequantize";
  ExpectBadInput({"replay", file}, file + says);
  ExpectBadInput({"minimize", file, "-s", "native"}, file + says);
}

TEST_F(Command, FoldersThatCannotBeReadAreNamed) {
  std::filesystem::create_directories(folder() / "cases/closed");
  std::filesystem::copy(by_hand_, folder() / "cases");
  std::filesystem::permissions(folder() / "cases/closed", std::filesystem::perms::none);
  std::error_code error;
  const std::filesystem::directory_iterator closed(folder() / "cases/closed", error);
  if (!error) GTEST_SKIP() << "this user (root?) reads every folder";
  ExpectBadInput({"replay", "cases"}, "cases/closed: ");
  std::filesystem::permissions(folder() / "cases/closed", std::filesystem::perms::owner_all);
}

// A plugin that promises an unknown contract, and a plugin that never answers.
TEST_F(Command, AnUnknownContractIsUnavailableAndAPluginThatHangsIsGivenUp) {
  const std::string library = QUALM_BINARY_DIR "/lib/qualm_broken.so";
  if (!std::filesystem::exists(library)) GTEST_SKIP() << "qualm_broken.so is not built";
  // As messages name it, where the command runs.
  const std::string plugin = "plugin:" + ShortProgram(library, folder().string());
  const Ran nope = Qualm(3, {"check", "-s", plugin, "-n", "1"}, {"QUALM_BROKEN=unknown-contract"});
  EXPECT_EQ(nope.err,
            "qualm: subject '" + plugin +
                "': its contract: there is no convention 'nope' (see qualm list subjects)\n");
  const Ran hangs = Qualm(1, {"check", "-s", plugin, "--op", "linear", "-n", "400", "--json", "-"},
                          {"QUALM_BROKEN=hang", "QUALM_TIME_LIMIT_MS=200"});
  const Json document = Document(hangs);
  ASSERT_FALSE(document["findings"].empty());
  for (const Json& finding : document["findings"]) EXPECT_EQ(finding["kind"], "hang");
  bool given_up = false;
  for (const Json& row : document["not_judged"]) {
    given_up |= row["reason"] == "given up: it hung 3 times in this run";
  }
  EXPECT_TRUE(given_up) << hangs.out.substr(0, 2000);
  const std::vector<std::string> lines = Lines(hangs.err);
  ASSERT_GE(lines.size(), 2u);
  EXPECT_TRUE(Has(lines[1], plugin + " fails linear.")) << hangs.err;
  EXPECT_TRUE(Has(lines[1], "hung: gave no answer within 200 ms")) << hangs.err;
  Qualm(2, {"check", "-s", plugin}, {"QUALM_TIME_LIMIT_MS=soon"});
}

// Eight instruction sets that reached the same share one line.
TEST_F(Command, TextForPeopleIsShort) {
  const Ran brief = Qualm(0, {"check", "--cases", "20"});
  EXPECT_LE(Lines(brief.out).size(), 2u) << brief.out;
  EXPECT_TRUE(Begins(brief.out, "OK: "));
  const Ran ran = Qualm(0, {"check", "--cases", "20", "--verbose"});
  // One line per operation, and a few about all.
  EXPECT_LE(Lines(ran.out).size(), AllOps().size() + 8) << ran.out;
  EXPECT_TRUE(Has(ran.out, "20 cases judged on "));
  // A run that takes long tells its progress too.
  EXPECT_EQ(std::ranges::count_if(
                Lines(ran.err),
                [](const std::string& line) { return line.find(" of ") == std::string::npos; }),
            1);
}

// A dropped product breaks many claims: people read one block, programs every finding.
TEST_F(Command, OneFaultIsOneBlock) {
  // One seed of twelve shows too few sizes to tell where the product is dropped.
  const std::vector<std::string> words{
      "check", "-s", "faulty:k-tail", "--op", "linear", "-n", "300", "--seed", "2", "--out", "out"};
  const auto blocks = [](const std::string& text) {
    size_t count = 0;
    for (size_t at = 0; (at = text.find("FINDING: ", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  const Ran ran = Qualm(1, words);
  EXPECT_EQ(blocks(ran.out), 1u) << ran.out;
  EXPECT_TRUE(Has(ran.out, "\n  the subject drops the last product, where K % 4 is 1\n"));
  EXPECT_TRUE(Has(ran.out, "\n  smallest case: linear M=1 N=1 K=1 "));
  EXPECT_TRUE(Has(ran.out, "\n  next: qualm explain out/findings/"));
  EXPECT_TRUE(Has(ran.out, " answers were judged: "));
  EXPECT_TRUE(Has(ran.out, "(1 fault)"));

  std::vector<std::string> more = words;
  more.insert(more.end(), {"--verbose", "--json", "out.json"});
  const Ran verbose = Qualm(more);
  EXPECT_GT(blocks(verbose.out), 3u) << verbose.out;
  EXPECT_TRUE(Has(verbose.out, "hazard coverage\n"));
  const Json document = ReadJson("out.json");
  ASSERT_EQ(document["faults"].size(), 1u);
  EXPECT_EQ(document["faults"][0]["cause"], "last product dropped");
  EXPECT_EQ(document["faults"][0]["findings"].size(), document["findings"].size());
}

}  // namespace
}  // namespace qualm::tools
