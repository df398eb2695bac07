// SPDX-License-Identifier: Apache-2.0
// The command line as users and CI servers meet it: exit statuses, what goes where, what bad input
// gets, what the documents look like.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/io/hostile_case_test_util.h"
#include "core/io/json_schema_test_util.h"
#include "core/types.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

using test::Json;

class Command : public QualmTest {
 protected:
  // What is on stdout: one document, valid, and nothing else.
  Json Document(const Ran& ran) {
    const Json document = Json::parse(ran.out, nullptr, false);
    EXPECT_FALSE(document.is_discarded()) << ran.out.substr(0, 400);
    if (document.is_discarded()) return Json::object();
    const Json schema = test::ReadJsonFile(QUALM_SOURCE_DIR "/core/io/result.schema.json");
    EXPECT_EQ(test::JsonSchema(schema).Check(document), "");
    return document;
  }

  // Exit status 2 and one line that begins so.
  void ExpectBadInput(const std::vector<std::string>& arguments, const std::string& begins) {
    const Ran ran = Qualm(arguments);
    EXPECT_EQ(ran.status, 2) << testing::PrintToString(arguments) << "\n" << ran.err;
    EXPECT_EQ(ran.out, "") << testing::PrintToString(arguments);
    const std::vector<std::string> lines = Lines(ran.err);
    ASSERT_EQ(lines.size(), 1u) << testing::PrintToString(arguments) << "\n" << ran.err;
    EXPECT_TRUE(lines[0].starts_with("qualm: " + begins)) << lines[0] << "\nwant: " << begins;
  }

  const std::string sweep_ = Corpus("forum/000-linear-sweep.case.json");
  const std::string by_hand_ = Corpus("forum/002-linear-by-hand.case.json");
};

TEST_F(Command, CleanIsZero) {
  EXPECT_EQ(Qualm({"check", "--subject", "native", "--cases", "5"}).status, 0);
  EXPECT_EQ(Qualm({"sweep", sweep_, "--subject", "native"}).status, 0);
  EXPECT_EQ(Qualm({"replay", Corpus("regressions")}).status, 0);
  EXPECT_EQ(Qualm({"minimize", by_hand_, "--subject", "native"}).status, 0);
  EXPECT_EQ(
      Qualm({"explain", Corpus("forum/002-linear-2x2.case.json"), "--subject", "native"}).status,
      0);
  for (const char* what : {"subjects", "properties", "ops", "faults"}) {
    EXPECT_EQ(Qualm({"list", what}).status, 0) << what;
  }
  EXPECT_EQ(Qualm({"--version"}).status, 0);
  EXPECT_EQ(Qualm({"--help"}).status, 0);
}

TEST_F(Command, FindingsAreOne) {
  EXPECT_EQ(Qualm({"check", "--subject", "faulty:k-tail", "--cases", "30"}).status, 1);
  EXPECT_EQ(Qualm({"sweep", sweep_, "--subject", "model:fbgemm@avx2"}).status, 1);
  EXPECT_EQ(Qualm({"replay", Corpus("regressions"), "--subject", "faulty:k-tail"}).status, 1);
  EXPECT_EQ(Qualm({"minimize", sweep_, "--subject", "model:fbgemm@avx2"}).status, 1);
  EXPECT_EQ(Qualm({"explain", by_hand_}).status, 1);
}

TEST_F(Command, AuditAndReport) {
  const Ran audit = Qualm({"audit", "--budget", "1s", "--subject", "native", "--subject",
                           "model:fbgemm@avx2", "--out", "out", "--json", "-"});
  EXPECT_EQ(audit.status, 0) << audit.err;
  const Json document = Document(audit);
  EXPECT_GT(document["totals"]["expected"], 0);
  EXPECT_EQ(document["totals"]["failed"], 0);
  EXPECT_NE(Read("out/index.html").find("</html>"), std::string::npos);
  EXPECT_EQ(Json::parse(Read("out/result.json"))["totals"], document["totals"]);
  std::filesystem::remove(folder() / "out/index.html");
  const Ran report = Qualm({"report", "out"});
  EXPECT_EQ(report.status, 0);
  EXPECT_EQ(report.out, "out/index.html\n");
  EXPECT_TRUE(std::filesystem::exists(folder() / "out/index.html"));
  ExpectBadInput({"report", "nowhere"}, "nowhere: ");
  ExpectBadInput({"audit", "--corpus", "nowhere"}, "--corpus: nowhere: ");
  ExpectBadInput({"audit", "--out", "/proc/nowhere"}, "--out: cannot make ");
}

TEST_F(Command, BadUsageIsTwo) {
  ExpectBadInput({}, "A subcommand is required");
  ExpectBadInput({"chek"}, "unknown verb 'chek', nearest is 'check'");
  ExpectBadInput({"check", "--cases", "none"}, "--cases: ");
  ExpectBadInput({"check", "--cases", "0"}, "--cases: ");
  ExpectBadInput({"check", "--time", "0s"}, "--time: ");
  ExpectBadInput({"check", "--time", "10x"}, "--time: ");
  ExpectBadInput({"check", "--seed", "-1"}, "--seed: ");
  ExpectBadInput({"check", "--jobs", "0"}, "--jobs: ");
  ExpectBadInput({"check", "--op", "conv9d"}, "--op: ");
  ExpectBadInput({"check", "--property", "no_such_*"}, "--property: ");
  ExpectBadInput({"check", "--shard", "2/2"}, "--shard: ");
  ExpectBadInput({"check", "--contract", "nice"}, "--contract: ");
  ExpectBadInput({"check", "--contract", "model:none"}, "--contract: ");
  ExpectBadInput({"check", "--nonsense"}, "The following argument was not expected: --nonsense");
  ExpectBadInput({"sweep", sweep_}, "--subject is required");
  ExpectBadInput({"sweep", sweep_, "-s", "native", "--step", "0"}, "--from/--to/--step: ");
  ExpectBadInput({"sweep", sweep_, "-s", "native", "--from", "-1"}, "--from/--to/--step: ");
  ExpectBadInput({"sweep", by_hand_, "-s", "native", "--from", "9", "--to", "8"},
                 "--from/--to/--step: ");
  ExpectBadInput({"sweep", Corpus("forum/001-quantize.case.json"), "-s", "native"},
                 Corpus("forum/001-quantize.case.json") + ": op: ");
  ExpectBadInput({"explain", by_hand_, "--at", "2"}, "--at: ");
  ExpectBadInput({"explain", by_hand_, "--contract", "model:none"}, "--contract: ");
  ExpectBadInput({"minimize", by_hand_, "-s", "native@all"}, "--subject: ");
  ExpectBadInput({"minimize", by_hand_, "-s", "native", "-p", "no_such"}, "--property: ");
  ExpectBadInput({"minimize", by_hand_, "-s", "native", "-p", "round_trip"}, "--property: ");
  ExpectBadInput({"replay", "nowhere"}, "nowhere: ");
  ExpectBadInput({"replay", "."}, ".: holds no ");
  ExpectBadInput({"replay", by_hand_, "-p", "no_such"}, "--property: ");
  ExpectBadInput({"list", "everything"}, "WHAT: ");
}

TEST_F(Command, UnknownSubjectsNameTheNearest) {
  const std::vector<std::pair<std::string, std::string>> table{
      {"natve", "native"},
      {"native@avx9", "native@avx3"},
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
      const Ran ran = Qualm(arguments, no_plugins);
      EXPECT_EQ(ran.status, 3) << verb[0] << " " << subject << "\n" << ran.err;
      EXPECT_EQ(Lines(ran.err).size(), 1u) << ran.err;
      EXPECT_NE(ran.err.find("subject '" + subject + "': "), std::string::npos) << ran.err;
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
  const std::string unknown = Write(
      "p.case.json",
      R"({"qualm_case": 1, "op": "dequantize", "M": 1, "N": 1, "x_scale": 1, "x_zp": 0, "x": [1],
          "property": "dequantize.is_pretty"})");
  ExpectBadInput({"replay", unknown}, unknown + ": property: unknown property");
  ExpectBadInput({"minimize", unknown, "-s", "native"}, unknown + ": property: unknown property");
}

TEST_F(Command, HostileRecordingsNameFileAndLine) {
  const std::string path = Write("bad.jsonl", "{\"op\":\"linear\"\n");
  const Ran ran = Qualm({"replay", path});
  EXPECT_EQ(ran.status, 2);
  EXPECT_EQ(ran.out, "");
  EXPECT_TRUE(Lines(ran.err).back().starts_with("qualm: " + path + ":1: ")) << ran.err;
}

// What the good files say is not lost because of a bad one among them.
TEST_F(Command, OneBadFileAmongManyLosesNothing) {
  std::filesystem::copy(Corpus("regressions"), folder() / "cases");
  Write("cases/aaa.case.json", "{");
  const Ran ran = Qualm({"replay", "cases", "--subject", "faulty:k-tail", "--json", "out.json"});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.out.find("FINDING: linear.matches_exact fails on faulty:k-tail [tail]"),
            std::string::npos)
      << ran.out;
  EXPECT_EQ(Json::parse(Read("out.json"))["findings"].size(), 1u);
  EXPECT_TRUE(Lines(ran.err).back().starts_with("qualm: cases/aaa.case.json: top level: "))
      << ran.err;
}

TEST_F(Command, UnwritableResultsAreTwoAndTheFindingsAreStillTold) {
  const std::string finding = "FINDING: linear.matches_exact fails on faulty:k-tail [tail]";
  const std::vector<std::string> check{"check", "--subject", "faulty:k-tail", "--cases",
                                       "100",   "--op",      "linear"};
  for (const std::vector<std::string>& where :
       std::vector<std::vector<std::string>>{{"--json", "/proc/no/x.json"},
                                             {"--junit", "/proc/no/x.xml"},
                                             {"--out", "/proc/no"},
                                             {"--json", "/dev/full"}}) {
    std::vector<std::string> arguments = check;
    arguments.insert(arguments.end(), where.begin(), where.end());
    const Ran ran = Qualm(arguments);
    EXPECT_EQ(ran.status, 2) << where[0];
    EXPECT_NE(ran.out.find(finding), std::string::npos) << where[0] << "\n" << ran.out;
    EXPECT_TRUE(Lines(ran.err).back().starts_with("qualm: " + where[0] + ": ")) << ran.err;
  }
  // The document is written even where the folder of findings cannot be, and the other way round.
  EXPECT_EQ(Qualm({"check", "--subject", "faulty:k-tail", "--cases", "100", "--op", "linear",
                   "--out", "/proc/no", "--json", "x.json"})
                .status,
            2);
  EXPECT_FALSE(Json::parse(Read("x.json"))["findings"].empty());

  const Ran small =
      Qualm({"minimize", sweep_, "--subject", "model:fbgemm@avx2", "-o", "/proc/no/x.case.json"});
  EXPECT_EQ(small.status, 2);
  EXPECT_NE(small.out.find("\"expected\": [129]"), std::string::npos) << small.out;
  const Ran plot = Qualm(
      {"sweep", sweep_, "-s", "model:fbgemm@avx2", "--plot", "/proc/no/x.svg", "--json", "-"});
  EXPECT_EQ(plot.status, 2);
  EXPECT_EQ(Document(plot)["findings"].size(), 2u);
  EXPECT_TRUE(Lines(plot.err).back().starts_with("qualm: --plot: ")) << plot.err;
}

TEST_F(Command, FullStdoutIsNoSuccess) {
  const std::string qualm = QUALM_BINARY_DIR "/bin/qualm";
  EXPECT_EQ(Shell("'" + qualm + "' list ops > /dev/full").status, 2);
  EXPECT_EQ(Shell("'" + qualm + "' list ops --json - > /dev/full").status, 2);
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
      {"list", "subjects"},
      {"list", "properties"},
      {"list", "ops"},
      {"list", "faults"}};
  for (std::vector<std::string> arguments : verbs) {
    arguments.insert(arguments.end(), {"--json", "-"});
    const Ran ran = Qualm(arguments);
    EXPECT_LE(ran.status, 1) << ran.err;
    const Json document = Document(ran);
    EXPECT_TRUE(document["command"].get<std::string>().starts_with("qualm " + arguments[0]));
    int64_t failed = document["totals"]["failed"];
    EXPECT_EQ(failed > 0, ran.status == 1) << testing::PrintToString(arguments);
    EXPECT_EQ(document["findings"].empty(), ran.status == 0);
    // And the same bytes in a file, but for the time taken.
    arguments.back() = "file.json";
    const Ran again = Qualm(arguments);
    EXPECT_EQ(again.status, ran.status);
    Json written = Json::parse(Read("file.json")), shown = document;
    written.erase("seconds");
    shown.erase("seconds");
    EXPECT_EQ(written, shown);
    EXPECT_NE(again.out, "");
  }
}

TEST_F(Command, SameSeedSameDocumentForAnyNumberOfJobs) {
  const auto run = [&](const std::string& jobs, const std::string& seed) {
    const Ran ran =
        Qualm({"check", "--subject", "native", "--subject", "faulty:k-tail", "--subject",
               "faulty:ties-away", "--cases", "60", "--seed", seed, "--jobs", jobs, "--json", "-"});
    EXPECT_EQ(ran.status, 1) << ran.err;
    Json document = Json::parse(ran.out);
    document.erase("seconds");
    return document;
  };
  const Json one = run("1", "7");
  EXPECT_EQ(one, run("2", "7"));
  EXPECT_EQ(one, run("5", "7"));
  EXPECT_NE(one["totals"], run("1", "8")["totals"]);
}

// stderr says how to repeat the run; saying just that repeats it.
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
    ASSERT_NE(line.find(mark), std::string::npos) << first.err;
    const std::string command = line.substr(line.find(mark) + mark.size());
    const Ran again = Shell(command + " --json second.json");
    EXPECT_EQ(again.status, first.status) << command << "\n" << again.err;
    Json a = Json::parse(Read("first.json")), b = Json::parse(Read("second.json"));
    for (Json* document : {&a, &b}) {
      document->erase("seconds");
      // Where findings are written is not repeated.
      for (Json& finding : (*document)["findings"]) finding.erase("case_file");
    }
    EXPECT_EQ(a, b) << command;
    if (arguments[0] == "check") {
      EXPECT_NE(line.find("seed "), std::string::npos) << line;
      EXPECT_NE(command.find("--seed "), std::string::npos) << command;
    }
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
  EXPECT_EQ(
      Qualm({"check", "-s", "faulty:k-tail", "--cases", "100", "--junit", "check.xml"}).status, 1);
  const std::string check = Read("check.xml");
  EXPECT_EQ(XmlError(check), "");
  EXPECT_NE(check.find("name=\"linear.matches_exact\"><failure message=\""), std::string::npos)
      << check;
  EXPECT_EQ(check.find("name=\"quantize.matches_exact\"><failure"), std::string::npos);
  EXPECT_EQ(Qualm({"replay", Corpus("regressions"), "-s", "native", "-s", "faulty:k-tail",
                   "--junit", "replay.xml"})
                .status,
            1);
  const std::string replay = Read("replay.xml");
  EXPECT_EQ(XmlError(replay), "");
  EXPECT_NE(replay.find("<testsuite name=\"faulty:k-tail\" tests=\""), std::string::npos);
  EXPECT_NE(replay.find("failures=\"1\""), std::string::npos);
}

TEST_F(Command, EveryVerbShowsAnExample) {
  const Ran help = Qualm({"--help"});
  EXPECT_NE(help.out.find("Exit status: 0 clean, 1 findings"), std::string::npos) << help.out;
  for (const std::string verb :
       {"audit", "check", "sweep", "replay", "minimize", "explain", "list", "report"}) {
    EXPECT_NE(help.out.find("  " + verb), std::string::npos) << verb;
    const Ran ran = Qualm({verb, "--help"});
    EXPECT_EQ(ran.status, 0);
    EXPECT_NE(ran.out.find("Example: qualm " + verb + " "), std::string::npos) << ran.out;
    if (verb != "report") {
      EXPECT_NE(ran.out.find("--json"), std::string::npos) << verb;
    }
  }
}

TEST_F(Command, ListsSayWhatThereIs) {
  const std::string subjects = Qualm({"list", "subjects"}).out;
  EXPECT_NE(subjects.find(", the same as native@"), std::string::npos) << subjects;
  EXPECT_NE(subjects.find("\nnative@portable "), std::string::npos);
  EXPECT_NE(subjects.find("\nmodel:fbgemm@avx2 "), std::string::npos);
  EXPECT_NE(subjects.find("\nplugin:PATH.so "), std::string::npos);
  EXPECT_EQ(subjects.find("no such file"), std::string::npos) << subjects;
  EXPECT_NE(Qualm({"list", "properties"}).out.find("\nlinear.sweep_is_linear "), std::string::npos);
  const std::vector<std::string> ops = Lines(Qualm({"list", "ops"}).out);
  ASSERT_EQ(ops.size(), AllOps().size());
  for (size_t i = 0; i < ops.size(); ++i) {
    EXPECT_TRUE(ops[i].starts_with(std::string(Name(AllOps()[i])) + " ")) << ops[i];
  }
  const std::vector<std::string> faults = Lines(Qualm({"list", "faults"}).out);
  EXPECT_GE(faults.size(), 30u);
  for (const std::string& fault : faults) EXPECT_TRUE(fault.starts_with("faulty:")) << fault;
}

TEST_F(Command, VersionNamesTargetsAndLibraries) {
  const Ran ran = Qualm({"--version"});
  const std::vector<std::string> lines = Lines(ran.out);
  ASSERT_GE(lines.size(), 6u) << ran.out;
  EXPECT_TRUE(lines[0].starts_with("qualm ")) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("  native   targets ")) << lines[1];
  EXPECT_NE(lines[1].find(" PORTABLE"), std::string::npos) << lines[1];
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_TRUE(lines[i].starts_with("  ") && lines[i].back() != ' ') << "'" << lines[i] << "'";
    EXPECT_EQ(lines[i].find("unavailable"), std::string::npos) << lines[i];
  }
}

TEST_F(Command, WhatJudgedNothingIsSaid) {
  const Ran ran = Qualm({"check", "-s", "faulty:reciprocal", "--op", "linear", "--cases", "5"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_NE(ran.out.find("nothing was judged on faulty:reciprocal: the fault is not in linear"),
            std::string::npos)
      << ran.out;
}

// Eight instruction sets that reached the same share one line.
TEST_F(Command, TextForPeopleIsShort) {
  const Ran ran = Qualm({"check", "--cases", "20"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  // One line per operation, and a few about all.
  EXPECT_LE(Lines(ran.out).size(), AllOps().size() + 8) << ran.out;
  EXPECT_NE(ran.out.find("20 cases judged on "), std::string::npos) << ran.out;
  EXPECT_EQ(Lines(ran.err).size(), 1u) << ran.err;
}

}  // namespace
}  // namespace qualm::tools
