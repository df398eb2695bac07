// SPDX-License-Identifier: Apache-2.0
// The verbs must find the bug of the forum threads, its smallest form and its cause, the canaries,
// and the recordings.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "core/io/case_json.h"
#include "core/io/json_schema_test_util.h"
#include "core/io/npy.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;
using test::Json;
using Set = std::set<int64_t>;

class Verbs : public QualmTest {
 protected:
  const std::string sweep_ = Corpus("forum/000-linear-sweep.case.json");
};

// Outputs of one swept subject for which `holds` is false.
Set Broken(const Json& subject, const char* holds) {
  Set outputs;
  for (const Json& output : subject["outputs"]) {
    if (!output[holds]) outputs.insert(output["output"].get<int64_t>());
  }
  return outputs;
}

// Outputs that have predicted kinks and show none of them.
Set OnlyLatent(const Json& subject) {
  Set outputs;
  for (const Json& output : subject["outputs"]) {
    bool latent = !output["kinks"].empty();
    for (const Json& kink : output["kinks"]) latent &= kink["state"] == "latent";
    if (latent) outputs.insert(output["output"].get<int64_t>());
  }
  return outputs;
}

// Thread 000: a quantized Linear fed constant rows is not monotonic on FBGEMM AVX2.
void ExpectTheBend(const Json& subject) {
  EXPECT_EQ(Broken(subject, "monotone"), (Set{0, 3, 7, 8})) << subject["subject"];
  EXPECT_EQ(Broken(subject, "linear"), (Set{0, 1, 3, 5, 6, 7, 8})) << subject["subject"];
  EXPECT_EQ(OnlyLatent(subject), (Set{2, 4, 9})) << subject["subject"];
  for (const Json& output : subject["outputs"]) EXPECT_EQ(output["unexplained"], Json::array());
  const Json& kinks = subject["outputs"][0]["kinks"];
  ASSERT_EQ(kinks.size(), 2u);
  EXPECT_EQ(kinks[0]["last_exact_code"], 181);
  EXPECT_EQ(kinks[1]["last_exact_code"], 186);
  EXPECT_EQ(kinks[0]["state"], "visible");
  EXPECT_EQ(kinks[1]["state"], "visible");
}

TEST_F(Verbs, SweepShowsTheBendAndWhereItComesFrom) {
  const Ran ran =
      Qualm(1, {"sweep", sweep_, "--subject", "native@all", "--subject", "model:fbgemm@avx2",
                "--subject", "model:qnnpack", "--json", "-", "--plot", "sweep.svg"});
  const Json document = Json::parse(ran.out);
  const Case base = ReadCaseFile(sweep_);
  int native = 0;
  for (const Json& subject : document["sweep"]["subjects"]) {
    const std::string name = subject["subject"];
    ASSERT_EQ(subject["skipped"], nullptr) << name;
    if (name == "model:fbgemm@avx2") {
      ExpectTheBend(subject);
      EXPECT_EQ(subject["equals_observed"], true);
      for (const Json& output : subject["outputs"]) {
        for (int64_t row = 0; row < base.M; ++row) {
          const int64_t at = row * base.N + output["output"].get<int64_t>();
          ASSERT_EQ(output["y"][static_cast<size_t>(row)], base.observed->y.IntAt(at)) << at;
        }
      }
      continue;
    }
    native += name.starts_with("native@") ? 1 : 0;
    ASSERT_EQ(subject["outputs"].size(), 10u) << name;
    EXPECT_EQ(Broken(subject, "monotone"), Set{}) << name;
    EXPECT_EQ(Broken(subject, "linear"), Set{}) << name;
    EXPECT_EQ(subject["equals_observed"], false) << name;
  }
  EXPECT_GE(native, 2);
  for (const Json& finding : document["findings"]) {
    EXPECT_EQ(finding["subject"], "model:fbgemm@avx2");
    EXPECT_EQ(finding["kind"], "pair-saturation");
  }
  EXPECT_EQ(document["findings"].size(), 2u);
  // Ten pictures in two columns; each has a second line of names.
  const std::string drawn = Read("sweep.svg");
  EXPECT_TRUE(Has(drawn, "viewBox=\"0 0 1040 1680\""));
  for (int n = 0; n < 10; ++n)
    EXPECT_TRUE(Has(drawn, ">output " + std::to_string(n) + ": output code<"));
  for (const char* word : {">native@", ">model:fbgemm@avx2<", ">model:qnnpack<", " at 181<"})
    EXPECT_TRUE(Has(drawn, word)) << word;
}

// Instructions that add products of codes in int32, which a library uses if nobody forbids it.
bool HasVnni() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vnni") || __builtin_cpu_supports("avxvnni");
#else
  return true;
#endif
}

// The same with the library itself, where this build has it and it takes weight zero points.
TEST_F(Verbs, SweepOfOneDnnBendsWithoutVnni) {
  const Ran ran =
      Qualm({"sweep", sweep_, "--subject", "onednn", "--subject", "onednn@avx2", "--json", "-"});
  if (ran.status == 3) GTEST_SKIP() << ran.err;
  const Json subjects = Json::parse(ran.out)["sweep"]["subjects"];
  if (!subjects[0]["skipped"].is_null()) GTEST_SKIP() << subjects[0]["skipped"];
  EXPECT_EQ(ran.status, 1);
  if (HasVnni()) {
    EXPECT_EQ(Broken(subjects[0], "monotone"), Set{});
    EXPECT_EQ(Broken(subjects[0], "linear"), Set{});
  } else {
    ExpectTheBend(subjects[0]);
  }
  ExpectTheBend(subjects[1]);
}

// One pixel of a convolution, whose curves are as those of linear.
TEST_F(Verbs, SweepTakesConvolutions) {
  const Ran ran = Qualm(1, {"sweep", Corpus("forum/003-conv1.case.json"), "-s", "native@all", "-s",
                            "faulty:pair-saturation", "--json", "-"});
  const Json document = Json::parse(ran.out);
  for (const Json& subject : document["sweep"]["subjects"]) {
    ASSERT_EQ(subject["skipped"], nullptr) << subject["subject"];
    ASSERT_EQ(subject["outputs"].size(), 8u);
    // The channel that is wrong in the thread's library.
    const Set bent = subject["subject"] == "faulty:pair-saturation" ? Set{1} : Set{};
    EXPECT_EQ(Broken(subject, "linear"), bent) << subject["subject"];
  }
}

// A finding of `check` on each operation replays, shrinks and is explained.
TEST_F(Verbs, TakeEveryOperation) {
  const std::map<std::string, std::string> faults = {{"quantize", "reciprocal"},
                                                     {"dequantize", "difference-int8"},
                                                     {"requantize", "ties-away"},
                                                     {"linear", "pair-saturation"},
                                                     {"conv2d", "padding-is-code-zero"},
                                                     {"depthwise", "group-scale-index"},
                                                     {"add", "left-shift-dropped"},
                                                     {"sub", "left-shift-dropped"},
                                                     {"mul", "product-int16"},
                                                     {"max_pool", "max-pool-start"},
                                                     {"avg_pool", "divisor-unclipped"},
                                                     {"rescale", "overlapped-tail-in-place"},
                                                     {"global_avg_pool", "average-sums-u16"},
                                                     {"concat", "concat-first-params"},
                                                     {"table", "table-ties-away"},
                                                     {"softmax", "softmax-no-half"},
                                                     {"choose_qparams", "no-scale-floor"},
                                                     {"dynamic_linear", "reduce-range-ignored"},
                                                     {"cast", "cast-saturates"}};
  for (const Op op : AllOps()) {
    const std::string name(Name(op));
    ASSERT_TRUE(faults.contains(name)) << name;
    const std::string subject = "faulty:" + faults.at(name);
    const Ran found = Qualm(
        {"check", "-s", subject, "--op", name, "-n", "400", "--json", "-", "--out", "out-" + name});
    ASSERT_EQ(found.status, 1) << name << found.err;
    const std::string file = Json::parse(found.out)["findings"][0]["case_file"];
    const Case c = ReadCaseFile((folder() / file).string());
    EXPECT_EQ(c.op, op);
    Qualm(1, {"replay", file, "-s", subject});
    // Our kernels take no codes of 16 bits.
    Qualm(0, {"replay", file, "-s", HasWideCodes(c) ? "faulty:none" : "native"});
    const Ran small = Qualm(1, {"minimize", file, "-s", subject, "-o", "small.case.json"});
    const Ran explained = Qualm({"explain", "small.case.json", "-s", subject});
    // 1 where the answer itself departs, 0 where only two answers disagree.
    EXPECT_LE(explained.status, 1) << name << explained.err;
    EXPECT_TRUE(Begins(explained.out, Describe(c).substr(0, name.size())));
  }
}

// Every departure of a convention from exact on the documented cases is declared, and each row is
// seen. Of conventions that differ in the instruction set alone one is a library's; every other
// library is asked here, all of them in the long tier.
TEST_F(Verbs, DeclaredDeparturesOfConventionsAreSeenAndNoOthers) {
  static const std::regex kVersions("[@+].*|[0-9.]+");
  std::vector<std::string> asked{"audit", "--budget", "0.01s", "--json", "-"};
  std::set<std::string> taken;
  const Json listed = Json::parse(Qualm(0, {"list", "subjects", "--json", "-"}).out);
  for (const Json& row : listed["list"]) {
    const std::string name = row["name"];
    if (name.starts_with("model:") &&
        taken.insert(std::regex_replace(name, kVersions, "")).second && taken.size() % 2 == 0)
      asked.insert(asked.end(), {"-s", name});
  }
  EXPECT_GT(taken.size(), 30u);
  const Ran ran = Qualm(0, asked);
  const Json document = Json::parse(ran.out);
  std::set<std::string> ops;
  for (const Json& finding : document["findings"]) {
    EXPECT_EQ(finding["expected_by_contract"], true) << finding;
    const std::string property = finding["property"];
    ops.insert(property.substr(0, property.find('.')));
  }
  EXPECT_EQ(ops, (std::set<std::string>{"add", "avg_pool", "choose_qparams", "concat", "conv2d",
                                        "depthwise", "dequantize", "dynamic_linear",
                                        "global_avg_pool", "linear", "max_pool", "mul", "quantize",
                                        "requantize", "rescale", "sub", "table"}));
}

TEST_F(Verbs, SweepRangeIsKept) {
  const Ran ran = Qualm(0, {"sweep", sweep_, "-s", "native", "--from", "10", "--to", "20", "--step",
                            "4", "--json", "-"});
  const Json document = Json::parse(ran.out);
  EXPECT_EQ(document["sweep"]["codes"], (Json{10, 14, 18}));
  EXPECT_EQ(document["sweep"]["subjects"][0]["outputs"][0]["y"].size(), 3u);
}

TEST_F(Verbs, MinimizeEndsAtTwoTerms) {
  const Ran ran =
      Qualm(1, {"minimize", sweep_, "--subject", "model:fbgemm@avx2", "-o", "small.case.json"});
  const Case small = ReadCaseFile((folder() / "small.case.json").string());
  EXPECT_EQ(small.M * small.N, 1);
  EXPECT_EQ(small.K, 2);
  EXPECT_EQ(small.x_q, QParams{});
  EXPECT_EQ(small.w_q, QParams{});
  EXPECT_EQ(small.out_q.zero_point, std::vector<int32_t>{0});
  EXPECT_EQ(small.property, "linear.matches_exact");
  ASSERT_TRUE(small.expected && small.observed);
  EXPECT_NE(*small.expected, small.observed->y);
  EXPECT_EQ(small.observed->by, "model:fbgemm@avx2");
  EXPECT_TRUE(Has(ran.out, "irrelevant: input zero point, "));
  // The result is the committed case, but for how many other causes were ruled out.
  Case committed = ReadCaseFile(Corpus("regressions/linear-pair-sum-saturates.case.json"));
  ASSERT_TRUE(committed.observed);
  committed.observed->why.evidence = small.observed->why.evidence;
  EXPECT_EQ(small, committed);
}

TEST_F(Verbs, ExplainNamesPairValueAndLoss) {
  const Ran ran = Qualm(1, {"explain", Corpus("regressions/linear-pair-sum-saturates.case.json"),
                            "--subject", "model:fbgemm@avx2", "--subject", "native"});
  EXPECT_TRUE(Has(ran.out, "-> 32767, lost "));
  EXPECT_TRUE(Has(ran.out, "[pair-saturation]"));
  EXPECT_TRUE(Has(ran.out, "\n  native: 129, exact\n"));
  // Thread 002: the arithmetic that gives the observed output is named.
  const Ran thread = Qualm({"explain", Corpus("forum/002-linear-by-hand.case.json")});
  EXPECT_TRUE(Has(thread.out, "subtracts the weight zero point from the input"));
  Qualm(0, {"explain", Corpus("forum/002-linear-2x2.case.json")});
}

// The claim that a file names may compare several answers, of which the first is exact.
TEST_F(Verbs, ExplainJudgesTheClaimOfTheFile) {
  Case c = ReadCaseFile(Corpus("forum/001-quantize.case.json"));
  c.property = "quantize.environment";
  c.expected.reset();
  c.observed.reset();
  const std::string file = (folder() / "rounding.case.json").string();
  WriteCaseFile(c, file);
  const Ran fails = Qualm(1, {"explain", file, "-s", "faulty:caller-rounding", "--json", "r.json"});
  EXPECT_TRUE(Has(fails.out,
                  "quantize.environment, the claim of this file, fails on "
                  "faulty:caller-rounding: "));
  EXPECT_TRUE(Has(fails.out,
                  "\n  The answer to the case alone is exact; the claim asks for more than "
                  "this answer.\n  to see it fail: qualm replay rounding.case.json "
                  "--subject faulty:caller-rounding\n"));
  const Json document = ReadJson("r.json");
  ASSERT_EQ(document["findings"].size(), 1u);
  EXPECT_EQ(document["findings"][0]["property"], "quantize.environment");
  Qualm(1, {"replay", file, "-s", "faulty:caller-rounding"});

  // The file does not say who failed it; once it does, others are exact, and that is all.
  const Ran right = Qualm(0, {"explain", file, "-s", "native"});
  EXPECT_TRUE(Has(right.out, "the claim of this file, did not fail on native this time.\n"));
  c = ReadCaseFile(Corpus("forum/001-quantize.case.json"));
  c.property = "quantize.environment";
  WriteCaseFile(c, file);
  const Ran other = Qualm(0, {"explain", file, "-s", "native"});
  EXPECT_FALSE(Has(other.out, "the claim of this file"));
}

// A recorded failure that does not show may need chance or earlier questions.
TEST_F(Verbs, AFailureThatDoesNotShowIsNotCalledExactAlone) {
  Case c = ReadCaseFile(Corpus("forum/001-quantize.case.json"));
  c.property = "quantize.matches_exact";
  c.expected.reset();
  ASSERT_TRUE(c.observed);
  c.observed->by = "native 0.1";
  const int64_t code = c.observed->y.IntAt(0);
  const std::string file = (folder() / "rare.case.json").string();
  WriteCaseFile(c, file);
  const std::string hint = "see \"Faults that need state or chance\" in docs/campaigns.md.\n";
  const Ran alone = Qualm({"explain", file});
  EXPECT_TRUE(Has(alone.out,
                  "To judge quantize.matches_exact, the claim of this file, name the "
                  "subject that gave it: --subject NAME\n"));
  c.observed->y.as<uint8_t>()[0] ^= 1;
  WriteCaseFile(c, file);
  const Ran ran = Qualm({"explain", file, "-s", "native"});
  const int64_t then = c.observed->y.IntAt(0);
  EXPECT_TRUE(Has(ran.out,
                  "quantize.matches_exact, the claim of this file, did not fail on native "
                  "this time. It gave " +
                      std::to_string(then) + " at index 0 then, and gives " + std::to_string(code) +
                      " now.\n"));
  EXPECT_TRUE(Has(ran.out, hint));
  const Ran again = Qualm({"replay", file, "-s", "native"});
  EXPECT_TRUE(Begins(again.out, "fixed: rare.case.json on native\n"));
  EXPECT_TRUE(Has(again.out, hint));
  EXPECT_TRUE(Has(ReadSource("docs/campaigns.md"), "\n## Faults that need state or chance\n"));
}

// The arithmetic of a subject: the conventions that remain, and for each other one an input.
TEST_F(Verbs, IdentifyNamesTheArithmeticAndRulesOutTheRest) {
  const Ran ran = Qualm(0, {"identify", "--subject", "model:qnnpack", "--op", "linear", "--op",
                            "add", "--cases", "400", "-o", "out", "--json", "-"});
  const Json document = Json::parse(ran.out);
  EXPECT_EQ(test::JsonSchema(test::ReadJsonFile(QUALM_SOURCE_DIR "/core/io/result.schema.json"))
                .Check(document),
            "");
  EXPECT_EQ(document["identify"]["of"], "model:qnnpack");
  const Json& ops = document["identify"]["ops"];
  ASSERT_EQ(ops.size(), 2u);
  for (const Json& op : ops) {
    std::set<std::string> equal;
    int witnesses = 0;
    for (const Json& convention : op["conventions"]) {
      if (convention["state"] == "bit_equal") equal.insert(convention["name"]);
      EXPECT_EQ(convention["state"] == "not_defined", !convention["reason"].is_null());
      if (convention["witness"].is_null()) continue;
      ++witnesses;
      const Case c = ReadCaseFile((folder() / convention["witness"]["case_file"]).string());
      EXPECT_EQ(c.observed->by, "model:qnnpack");
      // The case alone gives the same result.
      const Ran again = Qualm({"identify", convention["witness"]["case_file"], "--convention",
                               convention["name"], "--convention", "qnnpack", "--json", "-"});
      const Json alone = Json::parse(again.out)["identify"]["ops"][0]["conventions"];
      EXPECT_EQ(alone[0]["state"], "ruled_out") << convention;
      EXPECT_EQ(alone[0]["witness"]["output"], convention["witness"]["output"]);
      EXPECT_EQ(alone[1]["state"], "bit_equal");
    }
    std::set<std::string> qnnpack{"qnnpack", "torch-qnnpack"};
    // The wheels take another bias where it leaves int32.
    if (op["op"] == "add") qnnpack.insert({"torch2.11-qnnpack", "torch2.13-qnnpack"});
    EXPECT_EQ(equal, qnnpack) << op["op"];
    EXPECT_GE(witnesses, 5) << op["op"];
  }
}

TEST_F(Verbs, IdentifyNamesWhatTheForumsPrinted) {
  const Ran by_hand = Qualm(0, {"identify", Corpus("forum/002-linear-by-hand.case.json")});
  EXPECT_TRUE(Has(by_hand.out, "  bit-equal to numpy@float64+w_zp_from_x (1 cases)\n"));
  EXPECT_TRUE(Has(by_hand.out, "at index 0 observed is 0; exact gives 59"));
  const Ran printed = Qualm(
      0, {"identify", Corpus("forum/002-linear-2x2.case.json"), Corpus("forum/004-add.case.json")});
  for (const char* name : {"exact (1", "fbgemm@avx2 (1", "qnnpack (1", "aten@avx2 (1"}) {
    EXPECT_TRUE(Has(printed.out, name)) << name;
  }
  // An observed output that is exact has a name too.
  const Ran explained = Qualm({"explain", Corpus("forum/002-linear-2x2.case.json")});
  EXPECT_TRUE(Has(explained.out, "    bit-equal to: fbgemm@avx2, "));
}

TEST_F(Verbs, IdentifyTellsTwoConventionsApartOrSaysWhatItSearched) {
  const Ran apart =
      Qualm(1, {"identify", "--between", "fbgemm@avx2", "model:fbgemm@vnni", "--op", "linear"});
  EXPECT_TRUE(Has(apart.out, "  ruled out by linear M=1 N=1 K=2 u8*s8->u8 per-tensor\n"));
  const Ran same =
      Qualm(0, {"identify", "--between", "fbgemm@avx2", "fbgemm@avx512", "--op", "linear"});
  EXPECT_TRUE(Has(same.out, "  bit-equal to fbgemm@avx512 (4000 cases)\n    searched: u8*s8->"));
  // `identify` asks about a contract; it does not take the contract for granted.
  const std::vector<std::string> native{"identify", "-s",  "native",     "--op", "linear",
                                        "-n",       "300", "--contract", "exact"};
  Qualm(0, native);
  std::vector<std::string> other = native;
  other.back() = "model:qnnpack";
  Qualm(1, other);
  Qualm(1, {"identify", "-s", "faulty:k-tail", "--op", "linear", "-n", "300"});
  const Ran away =
      Qualm(0, {"identify", "-s", "faulty:ties-away", "--op", "requantize", "-n", "300"});
  EXPECT_TRUE(Has(away.out, "  bit-equal to plain@away ("));
}

// Each block "$ scripts/qualm ..." of the README prints the lines below it, in that order; "..."
// stands for lines left out.
TEST_F(Verbs, TheReadmeShowsWhatIsPrinted) {
  std::ifstream file(QUALM_SOURCE_DIR "/README.md");
  const std::string readme{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string prompt = "$ scripts/qualm ";
  fs::create_symlink(Corpus(""), folder() / "corpus");
  int commands = 0;
  std::vector<std::string> printed;
  size_t next = 0;
  bool gap = false;
  for (const std::string& line : Lines(readme)) {
    if (line.starts_with(prompt)) {
      const Ran ran = Shell("qualm " + line.substr(prompt.size()));
      EXPECT_LE(ran.status, 1) << ran.err;
      printed = Lines(ran.out);
      next = 0;
      gap = false;
      ++commands;
    } else if (line.starts_with("```")) {
      printed.clear();
    } else if (line == "...") {
      gap = true;
    } else if (!printed.empty()) {
      while (gap && next < printed.size() && printed[next] != line) ++next;
      gap = false;
      ASSERT_LT(next, printed.size()) << line;
      EXPECT_EQ(printed[next++], line);
    }
  }
  EXPECT_EQ(commands, 2);
}

class Canary : public Verbs, public testing::WithParamInterface<const char*> {};

// With default settings; each minimized finding replays on its own and passes on ours.
TEST_P(Canary, IsFoundAndItsMinimumReplays) {
  const std::string subject = std::string("faulty:") + GetParam();
  Qualm(1, {"check", "--subject", subject});
  int replayed = 0;
  for (const auto& entry : fs::directory_iterator(folder() / "qualm-findings/findings")) {
    EXPECT_TRUE(fs::exists(entry.path() / "case.json"));
    EXPECT_TRUE(fs::exists(entry.path() / "explanation.txt"));
    const std::string small = (entry.path() / "minimized.case.json").string();
    ASSERT_TRUE(fs::exists(small));
    ++replayed;
    Qualm(1, {"replay", small, "--subject", subject});
    Qualm(0, {"replay", small});
  }
  EXPECT_GE(replayed, 3);
}

INSTANTIATE_TEST_SUITE_P(Faults, Canary,
                         testing::Values("pair-saturation", "relu-clamp-zero", "k-tail"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A contract of intervals takes the libraries' float32 roundings and no mistake beside them, in
// every verb.
TEST_F(Verbs, WithinJudgesByIntervals) {
  const std::string within = "within:V1,V2,V6,V8,V9,V16,V17,V18,V19,V31";
  const std::vector<std::string> check{"check", "--op", "linear", "--cases", "300", "--contract"};
  const auto with = [&](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  Qualm(0, with(check, {within, "--subject", "model:fbgemm@vnni"}));
  Qualm(0, with(check, {within, "--subject", "native"}));
  Qualm(1, with(check, {"within:V9", "--subject", "model:fbgemm@vnni"}));
  Qualm(1,
        with(check, {within, "--subject", "faulty:k-tail", "--out", (folder() / "out").string()}));
  const fs::path findings = folder() / "out" / "findings";
  for (const auto& entry : fs::directory_iterator(findings)) {
    const std::string small = (entry.path() / "minimized.case.json").string();
    EXPECT_EQ(ReadCaseFile(small).contract, within);
    Qualm(1, {"replay", small, "--subject", "faulty:k-tail"});
    Qualm(1, {"explain", small, "--subject", "faulty:k-tail"});
  }
  ExpectBadInput(with(check, {"within:V99", "--subject", "native"}),
                 "--contract: there is no variation 'V99'");
}

// What was found out while the subject could be asked stands in the case file, for all who read it.
TEST_F(Verbs, EveryDoorSaysTheSame) {
  const auto after = [](const std::string& text, const std::string& begin) {
    for (const std::string& line : Lines(text)) {
      const size_t at = line.find(begin);
      if (at != std::string::npos) return line.substr(at + begin.size());
    }
    return "no line with " + begin;
  };
  const auto replays = [&](const std::string& file, const std::string& subject,
                           const std::string& cause) {
    const Ran ran = Qualm({"replay", file, "--subject", subject, "--contract", "exact"});
    const size_t kind = cause.rfind(" [");
    EXPECT_NE(ran.out.find(" fails on " + subject + cause.substr(kind)), std::string::npos)
        << ran.out << cause;
    EXPECT_NE(ran.out.find("; " + cause.substr(0, kind) + "; "), std::string::npos)
        << ran.out << cause;
  };
  for (const auto& [file, subject, kind] : std::vector<std::array<std::string, 3>>{
           {"forum/000-linear-sweep", "model:fbgemm@avx2", "pair-saturation"},
           {"regressions/linear-last-product-dropped", "faulty:k-tail", "tail"}}) {
    const Ran small = Qualm({"minimize", Corpus(file + ".case.json"), "--subject", subject,
                             "--contract", "exact", "-o", "small.case.json"});
    ASSERT_EQ(small.status, 1) << small.err;
    const std::string cause = after(small.out, "cause: ");
    EXPECT_TRUE(Ends(cause, "[" + kind + "]"));
    EXPECT_EQ(after(Qualm({"explain", "small.case.json", "--subject", subject}).out, "cause: "),
              cause);
    EXPECT_EQ(after(Qualm({"explain", "small.case.json"}).out, "cause: "), cause);
    replays("small.case.json", subject, cause);
    EXPECT_EQ(after(Qualm({"minimize", "small.case.json", "--subject", subject}).out, "cause: "),
              cause);
    // Words that the answer does not bear out are not repeated.
    Case other = ReadCaseFile((folder() / "small.case.json").string());
    other.observed->why.causes = "weight zero point ignored";
    WriteCaseFile(other, (folder() / "other.case.json").string());
    EXPECT_FALSE(Has(Qualm({"explain", "other.case.json"}).out, "cause: " + cause));
    // Where nothing is kept the subject is asked again, but for what is declared.
    if (!subject.starts_with("faulty:")) continue;
    other.observed.reset();
    WriteCaseFile(other, (folder() / "other.case.json").string());
    replays("other.case.json", subject,
            after(Qualm({"explain", "other.case.json", "--subject", subject}).out, "cause: "));
  }
  const Ran found = Qualm({"check", "-s", "faulty:k-tail", "--op", "linear", "-n", "100", "-p",
                           "matches_exact", "--out", "out"});
  ASSERT_EQ(found.status, 1) << found.err;
  for (const auto& entry : fs::directory_iterator(folder() / "out/findings"))
    replays((entry.path() / "minimized.case.json").string(), "faulty:k-tail",
            Lines(found.out).at(1).substr(2) + " [tail]");
}

// 2^24 + 1 - 2^24, a block each: 1, or 0 where the first two are added first; never 2^20.
TEST_F(Verbs, IdentifySaysWhetherSomeOrderOfAdditionsGivesTheSums) {
  const auto identify = [&](int y) {
    Write("sum.case.json", R"({"qualm_case": 1, "op": "linear", "M": 1, "N": 1, "K": 3,
      "x_dtype": "s8", "w_dtype": "s8", "out_dtype": "f32", "gran": "channel", "w_block": 1,
      "x_scale": 1, "x_zp": 0, "w_scale": [16777216, 1, 16777216], "w_zp": [0, 0, 0],
      "x": [1, 1, 1], "w": [1, 1, -1], "observed": {"by": "somebody", "y": [)" +
                               std::to_string(y) + "]}}");
    return Qualm({"identify", "sum.case.json"}).out;
  };
  EXPECT_TRUE(Has(identify(0),
                  "  no output is beyond what float32 sums in any order can give (contract sum)"))
      << identify(0);
  EXPECT_TRUE(Has(identify(1 << 20),
                  "  no order of float32 additions gives output 0 of sum.case.json: it "
                  "is 0x1p+20 (1048576), expected ["))
      << identify(1 << 20);
}

TEST_F(Verbs, IdentifyNamesTheArithmeticOfEachFile) {
  const auto half = [&](const std::string& name, int x, int y) {
    Write(name,
          R"({"qualm_case": 1, "op": "requantize", "M": 1, "N": 1, "multiplier": 0.5, "out_zp": 0,
                    "x": [)" +
              std::to_string(x) + R"(], "observed": {"by": "somebody", "y": [)" +
              std::to_string(y) + "]}}");
    return name;
  };
  const Ran ran = Qualm(1, {"identify", half("up.case.json", 1, 1), half("down.case.json", 3, 1)});
  EXPECT_TRUE(Has(ran.out, "  bit-equal to no one convention: up.case.json to "));
  EXPECT_TRUE(Has(ran.out, "; down.case.json to plain@floor, "));
  // Two codes: among a hundred conventions one gives both, perhaps for a reason of its own.
  const auto product = [&](const std::string& name, int x, int y) {
    Write(name, R"({"qualm_case": 1, "op": "linear", "M": 1, "N": 1, "K": 1, "x_dtype": "u8",
      "w_dtype": "s8", "out_dtype": "u8", "x_scale": 1, "x_zp": 0, "w_scale": 1, "w_zp": 1,
      "out_scale": 1, "out_zp": 0, "w": [3], "x": [)" +
                    std::to_string(x) + R"(], "observed": {"by": "somebody", "y": [)" +
                    std::to_string(y) + "]}}");
    return name;
  };
  const Ran few =
      Qualm(0, {"identify", product("2.case.json", 2, 3), product("3.case.json", 3, 6)});
  EXPECT_TRUE(Has(few.out, "; so few outputs may as well follow one arithmetic in each file: "));
}

// XNNPACK moves codes of equal scales, and no others.
TEST_F(Verbs, IdentifyWantsAConventionToDefineEachFile) {
  const auto rescale = [&](const std::string& name, const std::string& out_scale) {
    Write(name, R"({"qualm_case": 1, "op": "rescale", "M": 1, "N": 1, "x_dtype": "s8",
      "out_dtype": "s8", "x_scale": 1, "x_zp": 0, "out_zp": 0, "x": [16], "out_scale": )" +
                    out_scale + R"(, "observed": {"by": "somebody", "y": [16]}})");
    return name;
  };
  const std::string same = rescale("same.case.json", "1"), half = rescale("half.case.json", "2");
  const Ran both = Qualm(1, {"identify", same, half});
  EXPECT_TRUE(Has(both.out, "  bit-equal to no one convention: same.case.json to exact, "));
  EXPECT_TRUE(Has(both.out, "; half.case.json to none\n"));
  EXPECT_TRUE(Has(both.out, "  bit-equal in all cases that it defines: xnnpack@fp32 (1 of 2)"));
  EXPECT_FALSE(Has(Qualm(0, {"identify", same}).out, "in all cases that it defines"));
}

TEST_F(Verbs, ExplainAsksForTheCaseThatTellsExplanationsApart) {
  Write("one.case.json",
        R"({"qualm_case": 1, "op": "linear", "M": 1, "N": 1, "K": 2, "x_dtype": "u8",
      "w_dtype": "s8", "out_dtype": "s32", "x_scale": 1, "x_zp": 1, "w_scale": 1, "w_zp": 1,
      "x": [2, 3], "w": [5, 7], "observed": {"by": "somebody", "y": [21]}})");
  const Ran ran = Qualm({"explain", "one.case.json", "--ask", "next.case.json"});
  EXPECT_TRUE(Has(ran.out, "ask for the answer to next.case.json; at index "));
  EXPECT_EQ(ReadCaseFile((folder() / "next.case.json").string()).op, Op::kLinear);
  ExpectBadInput({"explain", Corpus("forum/000-linear-sweep.case.json"), "--ask", "/proc/no"},
                 "--ask: ");
}

TEST_F(Verbs, GoldenRecordingsAreReproduced) {
  const Ran ran = Qualm(0, {"replay", Corpus("golden"), "--json", "-"});
  const Json totals = Json::parse(ran.out)["totals"];
  EXPECT_EQ(totals["failed"], 0);
  EXPECT_GT(totals["passed"], 2000);
}

// A convention or a planted fault, and no library.
bool IsOfQualm(const std::string& subject) {
  return subject.starts_with("model:") || subject.starts_with("faulty:");
}

TEST_F(Verbs, RegressionsPassOnEveryTarget) {
  const Ran ran = Qualm(0, {"replay", Corpus("regressions"), "--json", "-"});
  const Json document = Json::parse(ran.out);
  int64_t cases = 0;
  for (const auto& entry : fs::directory_iterator(Corpus("regressions"))) {
    if (!entry.path().string().ends_with(".case.json")) continue;
    ++cases;
    // On the subject on which it was found the case still fails.
    const Case c = ReadCaseFile(entry.path().string());
    ASSERT_TRUE(c.expected && c.observed) << entry.path();
    EXPECT_FALSE(c.note.empty() || c.property.empty()) << entry.path();
    const std::string by = c.observed->by.substr(0, c.observed->by.find(' '));
    std::vector<std::string> asked{"replay", entry.path().string(), "--subject", by};
    if (IsOfQualm(by)) asked.insert(asked.end(), {"--contract", "exact"});
    const Ran found = Qualm(asked);
    if (!IsOfQualm(by) && found.status == 3) continue;  // not on this machine
    // Another version of a library may be mended, or refuse the case.
    const bool mended = !IsOfQualm(by) && (Has(found.out, "fixed: ") ||
                                           Has(found.err, "qualm: nothing was judged: ") ||
                                           Has(found.err, "qualm: no answer of "));
    EXPECT_TRUE(mended || Has(found.out, ": " + c.property + " fails on " + by)) << entry.path();
  }
  EXPECT_GE(cases, 4);
  EXPECT_EQ(document["totals"]["cases"], cases);
  // The oracle's own verdict, and one of each target. Of our kernels nothing is asked about a
  // promised convention (matches_model, 3 cases), nor about clamps that only a NaN passes (4); they
  // take no blocks (2) and choose no MX scales (1).
  const auto subjects = static_cast<int64_t>(document["subjects"].size());
  EXPECT_EQ(document["totals"]["passed"], cases + (cases - 3 - 4 - 2 - 1) * subjects);
  EXPECT_EQ(document["totals"]["skipped"], 3 * subjects);
  EXPECT_EQ(document["totals"]["not_applicable"], 3 * subjects);
  EXPECT_EQ(document["totals"]["vacuous"], 4 * subjects);
  EXPECT_GE(document["subjects"].size(), 2u);
}

// A recording that somebody changed is nobody's arithmetic; a good answer beside it hides nothing.
TEST_F(Verbs, ObservedAnswersAreJudged) {
  const Ran as_recorded = Qualm(0, {"replay", Corpus("forum"), "-s", "native"});
  EXPECT_TRUE(Has(as_recorded.out, "  3 observed answers: exact\n"));
  EXPECT_TRUE(Has(as_recorded.out, "  asked again: native\n"));
  Case c = ReadCaseFile(Corpus("forum/004-add.case.json"));
  c.observed->y.as<uint8_t>()[5] += 9;
  WriteCaseFile(c, (folder() / "changed.case.json").string());
  const Ran changed = Qualm(1, {"replay", "changed.case.json", "-s", "native", "--json", "-"});
  const Json document = Document(changed);
  ASSERT_EQ(document["findings"].size(), 1u);
  EXPECT_EQ(document["findings"][0]["property"], "add.named_arithmetic");
  EXPECT_EQ(document["findings"][0]["subject"], "observed");
  EXPECT_EQ(document["findings"][0]["first_divergence"]["index"], 5);
  // Outputs that a library has every right to are not the ones to look at.
  Case saturates = ReadCaseFile(Corpus("forum/000-linear-sweep.case.json"));
  saturates.observed->y.as<uint8_t>()[2345] ^= 1;
  WriteCaseFile(saturates, (folder() / "changed.case.json").string());
  const Ran one = Qualm(1, {"replay", "changed.case.json", "-s", "native", "--json", "-"});
  EXPECT_EQ(Document(one)["findings"][0]["first_divergence"]["index"], 2345);
  EXPECT_TRUE(Has(one.out + one.err, "fbgemm@avx2 gives all but 1, the first of them here"))
      << one.err;
}

TEST_F(Verbs, ARecordedModelIsExplainedLayerByLayer) {
  fs::create_directory(folder() / "model");
  for (const char* name : {"002-linear-2x2", "000-linear-sweep"}) {
    fs::copy(Corpus(std::string("forum/") + name + ".case.json"), folder() / "model");
  }
  const Ran text = Qualm(1, {"explain", "model"});
  EXPECT_TRUE(Has(text.out, "  002-linear-2x2           2          0         0"));
  EXPECT_TRUE(Has(text.out, "fbgemm@avx2, fbgemm@avx512 and 9 more\n"));
  // The float model's outputs: 59.1750123 * out_scale and the like, here one step further.
  const Case c = ReadCaseFile(Corpus("forum/002-linear-2x2.case.json"));
  const float step = c.out_q.scale_at(0);
  Tensor reference(DType::kF32, {2});
  reference.as<float>()[0] = 60 * step;
  reference.as<float>()[1] = 254 * step;
  Write("model/002-linear-2x2.reference.npy", NpyOf(reference));
  const Json document = Document(Qualm({"explain", "model", "--json", "-"}));
  ASSERT_EQ(document["layers"].size(), 2u);
  const Json& sweep = document["layers"][0];
  EXPECT_EQ(sweep["not_exact"], 524);
  EXPECT_EQ(sweep["wrong"], false);
  EXPECT_EQ(sweep["error"]["reference"], "operands");
  EXPECT_EQ(sweep["error"]["kernel"]["worst"], 67);
  const Json& two = document["layers"][1];
  EXPECT_EQ(two["error"]["reference"], "given");
  EXPECT_EQ(two["error"]["kernel"]["worst"], 0);
  EXPECT_NEAR(two["error"]["quantization"]["worst"].get<double>(), 1, 1e-5);
  EXPECT_NEAR(two["error"]["operands"]["worst"].get<double>(), 0.825, 1e-3);

  const Ran one = Qualm({"explain", "model/002-linear-2x2.case.json"});
  EXPECT_TRUE(Has(one.out, "against the float32 reference"));
  EXPECT_TRUE(Has(one.out, "    the kernel:              0, none\n"));
  Write("model/002-linear-2x2.reference.npy", NpyOf(Tensor(DType::kF32, {3})));
  ExpectBadInput({"explain", "model"}, "model/002-linear-2x2.reference.npy: reference: has 3 ");
  ExpectBadInput({"explain", "model", "--at", "0"}, "--at, --ask, --emit, ");
}

// The distance of two floats is no number of codes.
TEST_F(Verbs, DistancesOfFloatsHaveTheirUnit) {
  fs::create_directory(folder() / "floats");
  Write("floats/one.case.json",
        R"({"qualm_case": 1, "op": "dequantize", "M": 1, "N": 1, "x_scale": 1, "x_zp": 0, "x": [1],
            "observed": {"by": "somebody", "y": ["0x0p+0"]}})");
  const Ran layers = Qualm({"explain", "floats"});
  EXPECT_TRUE(Has(layers.out, " 1065353216 ulp "));
  EXPECT_TRUE(Has(layers.out, "ulp: units in the last\nplace of f32 outputs.\n"));
  Write("floats/none.case.json",
        R"({"qualm_case": 1, "op": "dequantize", "M": 0, "N": 1, "x_scale": 1, "x_zp": 0, "x": [],
            "observed": {"by": "somebody", "y": []}})");
  EXPECT_TRUE(Has(Qualm({"explain", "floats"}).out, "of 2 layers: 0 exact, 1 without outputs"));
  fs::remove(folder() / "floats/none.case.json");
  const Ran again = Qualm({"replay", "floats", "-s", "native"});
  EXPECT_TRUE(Has(again.out, "1 of 1 outputs are not exact, by at most 1065353216 ulp"));
  EXPECT_TRUE(Has(again.out, "\n1 case; claims: "));
}

TEST_F(Verbs, RegressionsSayWhatBecameOfThem) {
  const std::string found = Corpus("regressions/linear-last-product-dropped.case.json");
  const Ran kept = Qualm(1, {"minimize", found, "-s", "faulty:k-tail", "--to-corpus", "kept/"});
  const std::string file = "kept/linear-last-product-dropped.case.json";
  EXPECT_TRUE(Has(kept.out, "regression: " + file + "\n"));
  Case c = ReadCaseFile((folder() / file).string());
  EXPECT_TRUE(Has(c.note, "drops the last product"));
  EXPECT_TRUE(Has(c.note, "Found by qualm minimize on faulty:k-tail, 20"));
  // The case stands beside a case that comes first by name.
  fs::copy(Corpus("forum/002-linear-2x2.case.json"), folder() / "kept/a.case.json");
  const auto state = [&](const std::string& subject) {
    const Json document = Document(Qualm({"replay", "kept", "-s", subject, "--json", "-"}));
    return document["regressions"];
  };
  const Json fails = state("faulty:k-tail");
  ASSERT_EQ(fails.size(), 1u);
  EXPECT_EQ(fails[0]["state"], "still fails");
  EXPECT_EQ(fails[0]["case"], file);
  EXPECT_EQ(state("native"), Json::array()) << "native never failed it";
  const Ran text = Qualm({"replay", "kept", "-s", "faulty:k-tail"});
  EXPECT_TRUE(Begins(text.out, "still fails: " + file));

  c.observed->y = Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{c.observed->y.IntAt(0) + 1});
  WriteCaseFile(c, (folder() / file).string());
  EXPECT_EQ(state("faulty:k-tail")[0]["state"], "fails differently");
  c.observed->by = "native 0.1";
  WriteCaseFile(c, (folder() / file).string());
  const Json fixed = state("native");
  ASSERT_EQ(fixed.size(), 1u);
  EXPECT_EQ(fixed[0]["state"], "fixed");

  const std::vector<std::string> again{"minimize", found, "-s", "faulty:k-tail", "--to-corpus"};
  std::vector<std::string> named = again;
  named.emplace_back("kept/linear-last-product-dropped");
  ExpectBadInput(named, "--to-corpus: " + file + " is there");
  named.back() = "kept";
  EXPECT_TRUE(Has(Qualm(named).out, "kept/linear-last-product-dropped-2.case.json"));
}

// check writes the page itself, with the same groups of findings, and remembers earlier runs.
TEST_F(Verbs, CheckWritesItsReport) {
  const std::vector<std::string> words{"check", "-s",  "faulty:k-tail", "--op", "linear",
                                       "-n",    "120", "--out",         "out"};
  const Ran first = Qualm(1, words);
  EXPECT_TRUE(Has(first.out, "\nreport: out/index.html\n"));
  const std::string page = Read("out/index.html");
  EXPECT_TRUE(Has(page, "NOT OK: 1 new fault"));
  EXPECT_TRUE(Has(page, "faulty:k-tail, linear: last product dropped"));
  EXPECT_TRUE(Has(page, "<svg")) << "bars of the hazards";
  Qualm(1, words);
  const Json document = ReadJson("out/result.json");
  ASSERT_EQ(document["history"].size(), 2u);
  EXPECT_EQ(document["history"][1]["faults"], 1);
  EXPECT_EQ(document["since"]["appeared"], Json::array());
  const Json schema = test::ReadJsonFile(QUALM_SOURCE_DIR "/core/io/result.schema.json");
  EXPECT_EQ(test::JsonSchema(schema).Check(document), "");
  EXPECT_TRUE(Has(Read("out/index.html"), "The runs in this folder"));

  // A clean run shows that the fault is gone, and where its evidence still lies.
  const Ran clean =
      Qualm(0, {"check", "-s", "native", "--op", "linear", "-n", "20", "--out", "out"});
  EXPECT_TRUE(Has(Read("out/index.html"), "OK: nothing new"));
  EXPECT_TRUE(Has(Read("out/index.html"), "of earlier runs, not seen in this one"));
  fs::create_directory(folder() / "foreign");
  Write("foreign/index.html", "mine");
  ExpectBadInput({"check", "-s", "native", "--out", "foreign"},
                 "--out: foreign/index.html: is there");
  EXPECT_EQ(Read("foreign/index.html"), "mine");
}

TEST_F(Verbs, PropertiesAreListedAndLeftOut) {
  const auto judged = [&](std::vector<std::string> more) {
    std::vector<std::string> words{"check", "-s", "native", "--op", "linear",
                                   "-n",    "10", "--json", "-"};
    words.insert(words.end(), more.begin(), more.end());
    std::set<std::string> names;
    const Json properties = Document(Qualm(words))["properties"];
    for (const auto& [name, counts] : properties.items()) names.insert(name);
    return names;
  };
  const std::set<std::string> two{"linear.clamp", "linear.matches_exact"};
  EXPECT_EQ(judged({"-p", "clamp,matches_exact"}), two);
  EXPECT_EQ(judged({"-p", "clamp,matches_*", "--skip", "matches_model"}), two);
  const std::set<std::string> all = judged({}), without = judged({"--skip", "environment,clamp"});
  EXPECT_EQ(without.size() + 2, all.size());
  EXPECT_FALSE(without.contains("linear.environment"));
  ExpectBadInput({"check", "-s", "native", "--skip", "nothing"}, "--skip: no property matches ");
}

// A terminal gets colour, unless NO_COLOR is set; --quiet leaves stderr to errors.
TEST_F(Verbs, TerminalsGetColourAndNobodyElse) {
  const std::string check = "qualm check -s native --op add -n 5";
  const Ran plain = Shell(check + " --quiet");
  EXPECT_TRUE(Begins(plain.out, "OK: "));
  EXPECT_EQ(plain.err, "");
  const std::string python = "python3 -c 'import pty,sys; pty.spawn(sys.argv[1].split())' ";
  const Ran has = Shell("python3 -c 'import pty' && echo yes");
  if (has.out != "yes\n") GTEST_SKIP() << "no python3 to make a terminal";
  const Ran coloured = Shell("TERM=xterm; export TERM; " + python + "'" + check + "'");
  EXPECT_TRUE(Has(coloured.out, "\x1b[1;32mOK:\x1b[0m "));
  const Ran asked_not =
      Shell("TERM=xterm NO_COLOR=1; export TERM NO_COLOR; " + python + "'" + check + "'");
  EXPECT_EQ(asked_not.out.find('\x1b'), std::string::npos) << asked_not.out;
}

// A long run shows what it finds at once, one line for each kind of failure; the blocks come at the
// end, and --quiet leaves only them.
TEST_F(Verbs, FindingsAreToldAsTheyCome) {
  const std::vector<std::string> check{"check", "-s", "faulty:k-tail", "--op", "linear",
                                       "-n",    "60"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), check.begin(), check.end());
    return Qualm(more);
  };
  const auto told = [](const Ran& ran) {
    std::vector<std::string> lines;
    for (const std::string& line : Lines(ran.err)) {
      if (line.starts_with("qualm: found: ")) lines.push_back(line);
    }
    return lines;
  };
  const Ran ran = with({"--json", "known.json"});
  const std::vector<std::string> lines = told(ran);
  ASSERT_FALSE(lines.empty()) << ran.err;
  std::set<std::string> kinds;
  for (const std::string& line : lines) {
    EXPECT_TRUE(Has(line, " fails on faulty:k-tail ["));
    EXPECT_TRUE(kinds.insert(line.substr(line.find('['), line.find(']') - line.find('['))).second)
        << "twice: " << line;
  }
  EXPECT_TRUE(Has(lines.front(), ": expected "));
  EXPECT_TRUE(Has(ran.out, "FINDING: linear."));
  EXPECT_FALSE(Has(ran.out, "found: "));
  const Ran quiet = with({"--quiet"});
  EXPECT_EQ(quiet.err, "");
  const std::regex time("Causes and smallest cases took .*\n");
  EXPECT_EQ(std::regex_replace(quiet.out, time, ""), std::regex_replace(ran.out, time, ""));
  EXPECT_TRUE(told(with({"--baseline", "known.json"})).empty());
}

// The search for causes and smallest cases ends in time, and the run says that it did.
TEST_F(Verbs, TheTimeOfTriageIsBoundedAndShown) {
  if (Shell("python3 -c 1").status != 0) GTEST_SKIP() << "no python3 for a slow program";
  Write("slow.py",
        "import json, sys, time\n"
        "sys.stdin.readline()\n"
        "print(json.dumps({'qualm_pipe': 1, 'name': 'slow', 'ops': {'linear': {}}}), flush=True)\n"
        "for line in sys.stdin:\n"
        "  request = json.loads(line)\n"
        "  time.sleep(0.2)\n"
        "  case = request['case']\n"
        "  y = [7] * (case['M'] * case['N'])\n"
        "  print(json.dumps({'id': request['id'], 'y': y}), flush=True)\n");
  const Ran ran = Qualm(1, {"check", "-s", "pipe:python3 slow.py", "--op", "linear", "-p",
                            "matches_exact", "--time", "1s", "--json", "run.json"});
  const Json document = ReadJson("run.json");
  EXPECT_EQ(document["triage"]["findings"], 1);
  EXPECT_EQ(document["triage"]["cut_short"], 1);
  EXPECT_GT(document["triage"]["seconds"], 0.2);
  EXPECT_EQ(document["faults"][0]["cut_short"], true);
  EXPECT_TRUE(Has(ran.out, "the search for a smaller one was cut short"));
  EXPECT_TRUE(Has(ran.out, "was cut short for 1 of 1 findings"));
  const Ran done = Qualm({"check", "-s", "faulty:k-tail", "--op", "linear", "-p", "matches_exact",
                          "-n", "30", "--json", "run.json"});
  EXPECT_FALSE(Has(done.out, "cut short"));
  EXPECT_EQ(ReadJson("run.json")["triage"]["cut_short"], 0);
  const std::string sweep = Corpus("forum/000-linear-sweep.case.json");
  const Ran few = Qualm({"minimize", sweep, "-s", "model:fbgemm@avx2", "--max-calls", "20"});
  EXPECT_TRUE(Has(few.out, "cut short by --max-calls"));
  const Ran enough = Qualm({"minimize", sweep, "-s", "model:fbgemm@avx2"});
  EXPECT_FALSE(Has(enough.out, "cut short"));
}

// Whatever takes longer than two seconds says how far it is: to a terminal with a bar, which leaves
// nothing behind.
TEST_F(Verbs, WhatTakesLongSaysHowFarItIs) {
  const Ran has = Shell("python3 -c 'import pty' && echo yes");
  if (has.out != "yes\n") GTEST_SKIP() << "no python3 to make a terminal";
  Write("terminal.py", "import pty,sys\npty.spawn(sys.argv[1:])\n");
  // A program that thinks, then is gone.
  Write("slow.sh",
        "read -r hello\n"
        R"(echo '{"qualm_pipe": 1, "name": "slow", "ops": {"linear": {}}}')"
        "\nread -r line\nsleep 2.6\n");
  fs::create_directory(folder() / "cases");
  const std::string found = "cases/found.case.json", slow = "pipe:sh slow.sh";
  fs::copy_file(Corpus("forum/000-linear-points.case.json"), folder() / found);
  struct Row {
    std::string arguments, shows;
  };
  const std::string erase = "\r\x1b[K";
  const std::vector<Row> rows{
      {"identify --subject native --op linear --time 5s", "identifying: [#"},
      {"sweep " + found + " --subject '" + slow + "'", "sweeping: 2 s  0 of 1 subjects, pipe:"},
      {"explain " + found + " --subject '" + slow + "'", "explaining: 2 s  "},
      {"explain cases --subject '" + slow + "'", "explaining: 2 s  layer 1 of 1"},
      {"replay " + found + " -p linear.matches_exact --subject '" + slow + "'",
       "replaying: 2 s  0"}};
  for (const Row& row : rows) {
    const Ran seen = Shell("python3 terminal.py qualm " + row.arguments);
    EXPECT_TRUE(Has(seen.out, row.shows)) << row.arguments;
    const size_t last = seen.out.rfind(row.shows.substr(0, row.shows.find(':')));
    EXPECT_NE(seen.out.find(erase, last), std::string::npos) << seen.out;
  }
  const Ran quiet = Shell("python3 terminal.py qualm " + rows[0].arguments + " --quiet");
  EXPECT_FALSE(Has(quiet.out, erase));
}

// An explanation of 2,000 saturating pairs takes a few lines.
TEST_F(Verbs, AnExplanationIsRead) {
  Case c;
  c.M = c.N = 1;
  c.K = 4000;
  c.x = Tensor::Of<uint8_t>({1, c.K}, std::vector<uint8_t>(4000, 255));
  c.w = Tensor::Of<int8_t>({1, c.K}, std::vector<int8_t>(4000, 127));
  c.out_q.scale = {1 << 20};
  WriteCaseFile(c, (folder() / "long.case.json").string());
  for (const char* subject : {"model:fbgemm@avx2", "faulty:pair-saturation"}) {
    const Ran ran = Qualm(1, {"explain", "long.case.json", "-s", subject});
    EXPECT_LT(Lines(ran.out).size(), 60u) << subject;
    EXPECT_TRUE(Has(ran.out, "more pairs)"));
  }
}

}  // namespace
}  // namespace qualm::tools
