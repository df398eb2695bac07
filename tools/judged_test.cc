// SPDX-License-Identifier: Apache-2.0
// Who judges: a run is clean only if somebody judged the numbers; a contract for each operation;
// the contract of a case file.
#include <filesystem>
#include <string>
#include <vector>

#include "core/io/case_json.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;
using test::Json;

class Judged : public QualmTest {
 protected:
  // The line of `text` that holds `words`; "" if there is none.
  static std::string LineWith(const std::string& text, const std::string& words) {
    for (const std::string& line : Lines(text)) {
      if (line.find(words) != std::string::npos) return line;
    }
    return "";
  }
};

TEST_F(Judged, ARunIsCleanOnlyIfTheNumbersWereJudged) {
  const std::string ort = "model:onnxruntime@vnni";
  const std::string lacks =
      "nothing was judged of requantize on native: model:onnxruntime@vnni has no requantize";
  struct Row {
    std::vector<std::string> words;
    int status;
    std::string told;  // the beginning of the last line of stderr, if the status is 2
    std::string left_out = "";
  };
  const std::vector<Row> rows{
      // The convention lacks the operation; the subject is right, and nobody knows.
      {{"-s", "native", "--op", "requantize", "--contract", ort},
       2,
       "nothing was judged on native: model:onnxruntime@vnni has no requantize"},
      {{"-s", "native", "--op", "linear,requantize", "--contract", ort, "--contract",
        "linear=exact"},
       2,
       lacks},
      // Nobody named the operation, but the subject offers it.
      {{"-s", "native", "-p", "requantize.*,linear.*", "--contract", ort, "--contract",
        "linear=exact"},
       2,
       lacks},
      // What the subject does not offer is left out, unless it was named and nobody has it.
      {{"-s", ort, "-p", "requantize.*,linear.*"}, 0, "", "Nothing was judged of requantize on "},
      {{"-s", ort, "--op", "linear,requantize"},
       2,
       "nothing was judged of requantize on " + ort + ": "},
      {{"-s", ort, "-s", "native", "--op", "requantize,linear"}, 0, ""},
      // A subject that was named, and not by a pattern, is there to be judged.
      {{"-s", ort, "-s", "native", "--op", "requantize"}, 2, "nothing was judged on " + ort + ": "},
      {{"-s", "model:onnxruntime@*", "-s", "native", "--op", "requantize"}, 0, ""},
      // Memory alone was asked for, and judged.
      {{"-s", "native", "--op", "requantize", "--contract", ort, "-p", "no_stray_access"}, 0, ""},
      // A finding comes before that nothing was judged.
      {{"-s", "faulty:overlapped-tail", "--op", "requantize", "--contract", ort}, 1, ""},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(testing::PrintToString(row.words));
    std::vector<std::string> words{"check",   "-n",      "30",    "--json", "run.json",
                                   "--junit", "run.xml", "--out", "out"};
    words.insert(words.end(), row.words.begin(), row.words.end());
    const Ran ran = Qualm(words);
    EXPECT_EQ(ran.status, row.status) << ran.out << ran.err;
    EXPECT_EQ(ran.out.find("OK: ") != std::string::npos, row.status == 0) << ran.out;
    EXPECT_TRUE(Has(ran.out, row.left_out));
    const Json unjudged = Document({0, Read("run.json"), ""})["unjudged"];
    bool missing = false;
    for (const Json& one : unjudged) missing |= one["missing"].get<bool>();
    if (row.status != 1) {
      EXPECT_EQ(missing, row.status == 2) << unjudged;
    }
    if (row.status != 2) continue;
    EXPECT_NE(LineWith(ran.err, row.told), "") << ran.err;
    EXPECT_NE(LineWith(ran.out, row.told), "") << ran.out;
    EXPECT_TRUE(Has(Read("out/index.html"), "NOT OK: nothing was judged of requantize on "));
    // A test that was skipped says why.
    const std::string skipped = LineWith(Read("run.xml"), "\"requantize.matches_model\"");
    EXPECT_TRUE(Has(skipped, "<skipped message=\"skipped: "));
    EXPECT_FALSE(Has(skipped, "message=\"skipped\""));
  }
}

TEST_F(Judged, IdentifyComparesWithTheContract) {
  const std::string ort = "model:onnxruntime@vnni";
  const Ran none = Qualm(2, {"identify", "-s", "native", "--op", "requantize", "-n", "20",
                             "--convention", "exact", "--contract", ort});
  EXPECT_TRUE(Begins(Lines(none.err).back(),
                     "qualm: requantize: nothing was compared with onnxruntime@vnni"))
      << none.err;
  const std::vector<std::string> both{"identify",       "-s",         "native", "--op",
                                      "add,requantize", "-n",         "20",     "--convention",
                                      "exact",          "--contract", "exact",  "--contract"};
  for (const auto& [contract, status] :
       {std::pair{"add=exact", 0}, {"add=model:onnxruntime@vnni", 1}}) {
    std::vector<std::string> words = both;
    words.emplace_back(contract);
    EXPECT_EQ(Qualm(words).status, status) << contract;
  }
}

TEST_F(Judged, FuzzingDoesNotBeginWhereNobodyWouldJudge) {
  ExpectBadInput({"fuzz", "requantize", "-s", "native", "--contract", "model:onnxruntime@vnni"},
                 "nothing would be judged: this convention has no requantize");
}

TEST_F(Judged, OurOwnKernelsAreNamed) {
  const Ran ran = Qualm({"check", "--op", "add", "-n", "5"});
  EXPECT_TRUE(Begins(ran.out, "OK: "));
  EXPECT_TRUE(
      Has(ran.out, " answers of qualm's own kernels (no --subject was named) were judged: "));
  EXPECT_FALSE(
      Has(Qualm({"check", "--op", "add", "-n", "5", "-s", "native@all"}).out, "own kernels"));
}

// Quantize and add as people write them in NumPy, and sub exactly.
constexpr const char* kKernels = R"py(
import json, struct, sys
def f32(v): return struct.unpack("f", struct.pack("f", v))[0]
def code(c, v, zp):
    lo, hi = (0, 255) if c["out_dtype"] == "u8" else (-128, 127)
    y = max(lo, min(hi, round(v) + zp))
    return max(c["out_min"], min(c["out_max"], y))
def real(c, key):
    v = c[key]
    v = v[0] if isinstance(v, list) else v
    return float.fromhex(v) if isinstance(v, str) else float(v)
def zp(c, key): return c[key][0] if isinstance(c[key], list) else c[key]
def number(v): return float.fromhex(v) if isinstance(v, str) else float(v)
def quantize(c):
    return [code(c, f32(f32(number(x)) / real(c, "out_scale")), zp(c, "out_zp")) for x in c["x"]]
def add(c):
    a = [f32((v - zp(c, "a_zp")) * real(c, "a_scale")) for v in c["a"]]
    b = [f32((v - zp(c, "b_zp")) * real(c, "b_scale")) for v in c["b"]]
    return [code(c, f32(f32(u + v) / real(c, "out_scale")), zp(c, "out_zp"))
            for u, v in zip(a, b)]
def sub(c):
    from fractions import Fraction as F
    a, b, s = F(real(c, "a_scale")), F(real(c, "b_scale")), F(real(c, "out_scale"))
    return [code(c, ((u - c["a_zp"]) * a - (v - c["b_zp"]) * b) / s, zp(c, "out_zp"))
            for u, v in zip(c["a"], c["b"])]
sys.stdin.readline()
print(json.dumps({"qualm_pipe": 1, "name": "mine", "contract": sys.argv[1],
                  "ops": {"quantize": {"out": ["u8"], "features": ["clamp"]},
                          "add": {"features": ["clamp"]},
                          "sub": {"features": ["clamp"]}}}), flush=True)
for line in sys.stdin:
    q = json.loads(line)
    c = q["case"]
    try: answer = {"y": {"quantize": quantize, "add": add, "sub": sub}[c["op"]](c)}
    except (OverflowError, ValueError): answer = {"skip": "no finite number"}
    print(json.dumps({"id": q["id"], **answer}), flush=True)
)py";

// `check` proposes all contracts in one line, which --contract and the program itself take.
TEST_F(Judged, TheContractsThatFitAreProposedInOneLine) {
  Write("mine.py", kKernels);
  const auto check = [&](const std::string& promised, std::vector<std::string> more) {
    std::vector<std::string> words{"check",
                                   "-n",
                                   "150",
                                   "--op",
                                   "quantize,add,sub",
                                   "-s",
                                   "pipe:python3 mine.py " + promised,
                                   "-p",
                                   "matches_*"};
    words.insert(words.end(), more.begin(), more.end());
    return Qualm(words);
  };
  const Ran wrong = check("exact", {});
  EXPECT_EQ(wrong.status, 1) << wrong.out << wrong.err;
  const std::string proposal = LineWith(wrong.out, "judge it by that: --contract ");
  const std::string contracts = proposal.substr(proposal.rfind(' ') + 1);
  EXPECT_EQ(contracts, "quantize=model:numpy@float32,add=model:numpy@float32") << wrong.out;
  const Ran given = check("exact", {"--contract", contracts});
  EXPECT_EQ(given.status, 0) << given.out << given.err;
  EXPECT_EQ(check(contracts, {}).status, 0);
  // So does an audit.
  const Ran audit = Qualm({"audit", "--budget", "0.1s", "-s", "pipe:python3 mine.py " + contracts});
  EXPECT_EQ(audit.status, 0) << audit.err;
  // What is given already is part of the proposal for the rest.
  const Ran half = check("exact", {"--contract", "add=model:numpy@float32"});
  EXPECT_EQ(half.status, 1);
  EXPECT_NE(LineWith(half.out, "--contract " + contracts), "") << half.out;
  // Who says exact means it.
  EXPECT_EQ(LineWith(check("exact", {"--contract", "exact"}).out, "contract: "), "");
}

// A case that failed by a convention is judged by it again.
TEST_F(Judged, ACaseFileKeepsItsContract) {
  const std::string subject = "faulty:k-tail", model = "model:fbgemm@vnni";
  const Ran found = Qualm({"check", "-s", subject, "--op", "linear", "-n", "100", "-p",
                           "matches_model", "--contract", "linear=" + model, "--out", "out"});
  ASSERT_EQ(found.status, 1) << found.err;
  std::vector<std::string> files;
  for (const auto& folder : fs::directory_iterator(folder() / "out/findings")) {
    files.push_back((folder.path() / "case.json").string());
    files.push_back((folder.path() / "minimized.case.json").string());
  }
  ASSERT_FALSE(files.empty());
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    EXPECT_EQ(ReadCaseFile(file).contract, model);
    Qualm(1, {"replay", file, "-s", subject});
    Qualm(1, {"explain", file, "-s", subject});
    const Ran small = Qualm(1, {"minimize", file, "-s", subject, "-o", "small.case.json"});
    EXPECT_EQ(ReadCaseFile((folder() / "small.case.json").string()).contract, model);
    // --contract overrides it.
    const Ran exact = Qualm({"replay", file, "-s", subject, "--contract", "exact"});
    EXPECT_TRUE(Has(exact.out, " 1 not applicable"));
    EXPECT_EQ(exact.status, 2);
    // Nothing at all where the file has no expected output, which passes.
    EXPECT_TRUE(Has(exact.err, " was judged: linear.matches_model does not apply to " + subject +
                                   " under its contract exact\n"))
        << exact.err;
    Qualm(2, {"minimize", file, "-s", subject, "--contract", "exact"});
  }
  // Our own kernels have not promised it.
  EXPECT_FALSE(Has(Qualm({"replay", "small.case.json"}).out, "FINDING"));

  Case c = ReadCaseFile((folder() / "small.case.json").string());
  const auto replay = [&] {
    WriteCaseFile(c, (folder() / "changed.case.json").string());
    return Qualm({"replay", "changed.case.json", "-s", subject});
  };
  // A file from before names no contract: its expected output does.
  c.contract.clear();
  EXPECT_EQ(replay().status, 1);
  EXPECT_TRUE(Has(replay().out, "still fails: changed.case.json"));
  c.expected->SetInt(0, c.expected->IntAt(0) ^ 1);
  EXPECT_TRUE(Has(replay().out, "the expected output in the file is that of no convention"));
  for (const auto& [contract, says] :
       {std::pair{"model:none", "contract: there is no convention 'none'"},
        {"model:observers@aten", "contract: model:observers@aten has no linear"}}) {
    c.contract = contract;
    const Ran ran = replay();
    EXPECT_EQ(ran.status, 2);
    EXPECT_EQ(Lines(ran.err).size(), 1u) << ran.err;
    EXPECT_TRUE(Has(ran.err, says));
  }
}

// The number is compared with what the file says, or --contract.
TEST_F(Judged, ExplainGoesByTheContractOfTheFile) {
  Case c = ReadCaseFile(Corpus("regressions/linear-pair-sum-saturates.case.json"));
  c.property.clear();
  c.expected.reset();
  c.observed.reset();
  const std::string subject = "model:fbgemm@avx2";
  struct Row {
    std::string in_file;
    std::vector<std::string> more;
    int status;
  };
  for (const Row& row : {Row{"", {}, 1},
                         {subject, {}, 0},
                         {"exact", {}, 1},
                         {subject, {"--contract", "exact"}, 1},
                         {subject, {"--contract", "add=exact"}, 0},
                         {"", {"--contract", "exact,linear=" + subject}, 0}}) {
    c.contract = row.in_file;
    WriteCaseFile(c, (folder() / "c.case.json").string());
    std::vector<std::string> words{"explain", "c.case.json", "-s", subject};
    words.insert(words.end(), row.more.begin(), row.more.end());
    const Ran ran = Qualm(words);
    EXPECT_EQ(ran.status, row.status) << testing::PrintToString(words) << c.contract << ran.err;
  }
  c.contract = "model:none";
  WriteCaseFile(c, (folder() / "c.case.json").string());
  ExpectBadInput({"explain", "c.case.json"},
                 "c.case.json: contract: there is no convention 'none'");
}

}  // namespace
}  // namespace qualm::tools
