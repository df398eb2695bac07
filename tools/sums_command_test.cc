// SPDX-License-Identifier: Apache-2.0
// Sums in floating point on the command line: the contract sum, and identify --tree.
#include <filesystem>
#include <string>
#include <vector>

#include "core/io/case_json.h"
#include "core/io/json_schema_test_util.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/known_trees.h"
#include "oracles/exact/exact.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

using test::Json;

class Sums : public QualmTest {
 protected:
  bool Fits(const Json& document) {
    test::JsonSchema schema(test::ReadJsonFile(QUALM_SOURCE_DIR "/core/io/result.schema.json"));
    const std::string error = schema.Check(document);
    EXPECT_EQ(error, "");
    return error.empty();
  }
  // A program that answers dot with this expression of the float32 lists a and b. f rounds.
  std::string Program(const std::string& sum) {
    return "pipe:python3 " + Write("dot.py", R"(
import json, struct, sys
def f(x): return struct.unpack("f", struct.pack("f", x))[0]
def add(terms):
    total = 0.0
    for term in terms: total = f(total + term)
    return total
sys.stdin.readline()
print('{"qualm_pipe": 1, "name": "dot", "ops": {}, "dot": true}', flush=True)
for line in sys.stdin:
    request = json.loads(line)
    a, b = ([float.fromhex(t) for t in request["dot"][k]] for k in "ab")
    print(json.dumps({"id": request["id"], "y": [)" +
                                                 sum + R"(]}), flush=True)
)");
  }
};

TEST_F(Sums, ChecksSayWhatDecided) {
  const std::vector<std::string> check{"check",      "--subject", "native", "--op",
                                       "linear",     "--cases",   "50",     "--contract",
                                       "linear=sum", "--out",     "out"};
  const Ran ran = Qualm(0, check);
  EXPECT_TRUE(Has(ran.out, "outputs of linear on native the exact window decides "));
  std::vector<std::string> json = check;
  json.insert(json.end(), {"--json", "-"});
  const Json document = Document(Qualm(0, json));
  EXPECT_TRUE(Fits(document));
  ASSERT_EQ(document["sums"].size(), 1u);
  EXPECT_GT(document["sums"][0]["exact_window"], 0);
  EXPECT_GT(document["sums"][0]["sound_bound"], 0);
}

TEST_F(Sums, APairThatSaturatesIsNoOrder) {
  const std::vector<std::string> options{"--subject", "model:fbgemm@avx2", "--contract", "sum"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), options.begin(), options.end());
    return words;
  };
  Ran ran = Qualm(1, with({"check", "--op", "linear", "--cases", "200", "-p", "matches_model",
                           "--out", "out"}));
  EXPECT_TRUE(Has(ran.out, "linear.matches_model fails on model:fbgemm@avx2 [pair-saturation]"));
  const std::string found =
      "out/findings/linear.matches_model-model-fbgemm@avx2-pair-saturation/minimized.case.json";
  EXPECT_TRUE(Has(Read(found), R"("contract": "sum")"));
  ran = Qualm(1, {"replay", found, "--subject", "model:fbgemm@avx2"});
  EXPECT_TRUE(Has(ran.out, "departs from the one value that float32 sums of every order have"));
  EXPECT_TRUE(Has(ran.out, "sum: of 1 output"));
  ran = Qualm(1, with({"explain", found}));
  EXPECT_TRUE(Has(ran.out, "judged by sum: exact window 1, sound bound 0, undecided 0"));
}

TEST_F(Sums, NoVerdictWithoutAJudge) {
  ExpectBadInput({"check", "--subject", "native", "--op", "add", "--contract", "add=sum"},
                 "--contract: sum has no add");
  const Ran ran = Qualm(
      2, {"check", "--subject", "native", "--op", "add", "--cases", "5", "--contract", "sum"});
  EXPECT_TRUE(Has(ran.err, "nothing was judged on native: sum judges sums of products, not add"));
}

TEST_F(Sums, ATreeIsRevealed) {
  if (Shell("python3 -c pass").status != 0) GTEST_SKIP() << "no python3";
  const std::string chain = Program("add(f(x * y) for x, y in zip(a, b))");
  Ran ran = Qualm(0, {"identify", "--tree", chain, "--products", "5", "-n", "100"});
  EXPECT_TRUE(Has(ran.out,
                  "  order: a chain\n"
                  "  steps: products rounded, then added (bit-equal on 100 random sums)\n"
                  "  contract: tree:{order:1/sequence steps:rounded}\n"
                  "  tree: ((((0+1)+2)+3)+4)\n"));
  ran = Qualm({"identify", "--tree", chain, "--products", "5", "-n", "100", "--json", "-", "--svg",
               "tree.svg"});
  const Json document = Document(ran);
  EXPECT_TRUE(Fits(document));
  EXPECT_EQ(document["tree"]["tree"], "((((0+1)+2)+3)+4)");
  EXPECT_EQ(document["tree"]["steps"], "products rounded, then added");
  EXPECT_TRUE(Has(Read("tree.svg"), "a chain: ((((0+1)+2)+3)+4)"));
}

TEST_F(Sums, WhatIsNoTreeIsAFinding) {
  if (Shell("python3 -c pass").status != 0) GTEST_SKIP() << "no python3";
  const auto ask = [&](const std::string& sum) {
    return Qualm(
        1, {"identify", "--tree", Program(sum), "--products", "5", "-n", "100", "--json", "-"});
  };
  const Json zeros = Document(ask("0"));
  EXPECT_TRUE(Fits(zeros));
  EXPECT_EQ(zeros["tree"]["steps"], nullptr);
  EXPECT_EQ(zeros["findings"][0]["property"], "dot.named_arithmetic");
  const Json nothing = Document(ask(R"("nan:7fc00000")"));
  EXPECT_TRUE(Fits(nothing));
  EXPECT_EQ(nothing["tree"]["state"], "none");
  // It dies of the second question.
  const Json dead = Document(ask("3 if request['id'] < 2 else sys.exit(3)"));
  EXPECT_TRUE(Fits(dead));
  EXPECT_EQ(dead["findings"][0]["kind"], "crash");
}

TEST_F(Sums, TreesOfBlocksAreRevealed) {
  Ran ran =
      Qualm(0, {"identify", "--tree", "native", "--products", "160", "-n", "100", "--json", "-"});
  const Json document = Document(ran);
  EXPECT_TRUE(Fits(document));
  ASSERT_EQ(document["trees"].size(), 2u);
  for (const Json& tree : document["trees"]) {
    EXPECT_EQ(tree["tree"], "((((0+4)+1)+2)+3)");
    EXPECT_EQ(tree["steps"],
              "products rounded, then added, each part times the product of its scales");
    EXPECT_EQ(tree["parts"].size(), 5u);
    EXPECT_EQ(tree["parts"][0].size(), 32u);
  }
  ran = Qualm(0, {"identify", "--tree", "native", "q4_0", "-n", "10", "--svg", "tree.svg"});
  EXPECT_TRUE(
      Has(ran.out, "native: q4_0, s8 x times u4 weights in blocks of 32: sum of 8 parts, "));
  EXPECT_TRUE(Has(ran.out, "  added as integers, in each block: 0 + 1 + ... + 31\n"));
  EXPECT_TRUE(Has(Read("tree.svg"), "native: 8 parts, 4 lanes"));
  for (const auto& [subject, form] :
       {std::pair("native+nbits4", "f32_u4"), {"native+nbits8", "f32_u8"}})
    EXPECT_TRUE(
        Has(Qualm(0, {"identify", "--tree", subject, form, "-n", "1000"}).out,
            "  order: blocks of 32, each a chain\n  steps: products rounded, then added, each "
            "x times its dequantized weight (bit-equal on 1000 random sums)\n"));
}

// The table of known trees is what --tree finds; other subjects than ours may be absent.
TEST_F(Sums, KnownTreesAreThoseThatAreRevealed) {
  for (const conventions::KnownTree& known : conventions::KnownTrees()) {
    const std::string subject(known.subject), text(known.tree);
    if (!subject.starts_with("native")) continue;
    const std::string form =
        text.substr(text.find(':', 6) + 1, text.find(' ') - text.find(':', 6) - 1);
    EXPECT_TRUE(Has(Qualm(0, {"identify", "--tree", subject, form, "-n", "200"}).out,
                    "contract: " + text + "\n"))
        << subject << " " << form;
  }
}

// Products that tensor cores gave, which no case says.
TEST_F(Sums, RecordedProductsAreExplainedAndIdentified) {
  const std::string file = QUALM_SOURCE_DIR "/corpus/golden/mma.jsonl";
  const std::string id = "wgmma.m64n8k32.f32.e4m3.e4m3-spike-1";
  const Ran ran = Qualm(0, {"explain", file, "--record", id, "--at", "5"});
  EXPECT_TRUE(Has(ran.out, "  every output is given by hopper@wgmma\n"));
  EXPECT_TRUE(
      Has(ran.out, "    products 0 to 31 and 0x1.fffbfep+9 (1023.9687), cut at 2^-1, are "));
  EXPECT_TRUE(Has(ran.out, "      product 2, 0x1.18p-13 (0.0001335144), is cut to 0x0p+0 (0)\n"));
  EXPECT_TRUE(Has(Qualm(0, {"identify", file}).out,
                  id + ": mma: fused sums of 32 products, cut at 13 bits\n"));
  ExpectBadInput({"explain", file, "--record", "wgmma.m64"}, "--record: " + file);
  ExpectBadInput({"explain", file, "--record", id, "--subject", "native"},
                 "--subject, --ask, --emit, --contract, --reference and --as-printed");
  ExpectBadInput({"identify", file, "--op", "linear"}, "a recording (.jsonl) is asked alone");
}

// Of MatMulNBits at accuracy level 4 no order is known: an interval of numbers is accepted.
TEST_F(Sums, RecordingsOfNoKnownOrderAreSaidToLieInAnInterval) {
  const std::string file = QUALM_SOURCE_DIR "/corpus/golden/onnxruntime130.jsonl";
  const std::string replayed = Qualm(0, {"replay", file}).out;
  const std::string interval =
      " passed (an output may be any float32 sum in some order: an interval, not one number)\n";
  const size_t level4 = replayed.find("  model:onnxruntime@level4: ");
  ASSERT_NE(level4, std::string::npos) << replayed;
  EXPECT_NE(replayed.substr(level4, replayed.find('\n', level4) + 1 - level4).find(interval),
            std::string::npos);
  EXPECT_EQ(replayed.find(interval), replayed.rfind(interval));
  const std::string told = Qualm(0, {"explain", file, "--record", "ort-490", "--at", "1"}).out;
  EXPECT_TRUE(Has(told,
                  "  every output lies in the interval of float32 sums in any order of "
                  "onnxruntime@level4\n"));
  EXPECT_TRUE(Has(told, ", onnxruntime@level4 accepts an interval, of which the nearest is "));
}

// A sum that some order of additions gives accuses nobody.
TEST_F(Sums, RightSumsAreExplainedAsSuch) {
  Case c;
  c.op = Op::kLinear;
  c.M = 1;
  c.N = 1;
  c.K = 160;
  c.out_dtype = DType::kF32;
  c.per_channel = true;
  c.w_block = c.x_block = 32;
  c.x = Tensor(DType::kS8, {1, 160});
  c.w = Tensor(DType::kS8, {1, 160});
  for (int64_t i = 0; i < 160; ++i) {
    c.x.SetInt(i, static_cast<int32_t>(37 * i % 255 - 127));
    c.w.SetInt(i, static_cast<int32_t>(91 * i % 251 - 125));
  }
  c.x_q = {{0.011f, 0.7f, 0.0031f, 0.05f, 0.021f}, {0, 0, 0, 0, 0}};
  OpenClamp(&c);
  c.w_q = {{0.13f, 0.017f, 0.4f, 0.033f, 0.0071f}, {0, 0, 0, 0, 0}};
  ASSERT_EQ(Validate(c), "");
  const Convention* const haswell = FindConvention(
      "tree:{form:q8_0 parts:8x4 order:8/halves steps:fused scales:product every:32}");
  const Convention* const chain = FindConvention(
      "tree:{form:q8_0 parts:1x32 order:1/sequence steps:rounded scales:product every:32}");
  ASSERT_NE(haswell->run(c).y, exact::Evaluate(c));
  ASSERT_NE(haswell->run(c).y, chain->run(c).y);
  c.observed = Observed{.by = "somebody", .y = haswell->run(c).y};
  WriteCaseFile(c, (folder() / "sum.case.json").string());
  Ran ran = Qualm(0, {"explain", "sum.case.json"});
  EXPECT_TRUE(Has(ran.out,
                  "    accepted: float32 sums in some order may give every output (contract "
                  "sum)\n    along a known summation tree: ggml@haswell, ggml@zen4 add: tree:{"));
  EXPECT_FALSE(Has(ran.out, "no known"));
  EXPECT_TRUE(Has(Qualm(0, {"identify", "sum.case.json"}).out,
                  "  added along a known summation tree: ggml@haswell, ggml@zen4 add: tree:{"));
  // By another tree it is wrong, and beyond every order too.
  Qualm(1, {"explain", "sum.case.json", "--contract", std::string(chain->name)});
  c.observed->y.as<float>()[0] *= 1.01f;
  WriteCaseFile(c, (folder() / "sum.case.json").string());
  ran = Qualm(1, {"explain", "sum.case.json"});
  EXPECT_FALSE(Has(ran.out, "accepted"));
}

// What one command writes the others judge by, and a case keeps it.
TEST_F(Sums, ATreeIsAContract) {
  const auto check = [&](int status, const std::string& subject, const std::string& contract) {
    return Qualm(status, {"check", "--subject", subject, "--op", "linear", "--cases", "300", "-p",
                          "matches_model", "--contract", contract, "--out", "out"});
  };
  Qualm(0, {"identify", "--tree", "native", "q8_0", "-n", "200", "-o", "tree.txt"});
  const std::string tree =
      "tree:{form:q8_0 parts:1x32 order:4/sequence steps:rounded scales:product every:32}";
  EXPECT_EQ(Read("tree.txt"), tree + "\n");
  Ran ran = check(0, "native", "tree:tree.txt");
  EXPECT_TRUE(Has(ran.out, " outputs of linear on native were compared bit by bit"));
  check(0, "model:" + tree, "linear=tree:tree.txt");
  // Another order, of which the finding says all.
  Write("other.txt",
        "tree:{form:q8_0 parts:1x32 order:1/sequence steps:rounded scales:product every:32}\n");
  ran = check(1, "native", "tree:other.txt");
  EXPECT_TRUE(Has(ran.out, "linear.matches_model fails on native"));
  const std::string found = "out/findings/linear.matches_model-native-unknown/minimized.case.json";
  EXPECT_TRUE(Has(Read(found), R"("contract": "tree:{form:q8_0 parts:1x32 order:1/sequence )"));
  std::filesystem::remove(folder() / "other.txt");
  ran = Qualm(1, {"replay", found, "--subject", "native"});
  EXPECT_TRUE(Has(ran.out, "departs from sums along the tree of the contract"));
  ran = Qualm(1, {"explain", found, "--subject", "native"});
  EXPECT_TRUE(Has(ran.out, "judged by its tree: tree 1"));
  EXPECT_TRUE(Has(ran.out, "\n  tree:{form:q8_0 parts:1x32 order:1/sequence steps:rounded "));
  Qualm(1, {"minimize", found, "--subject", "native", "-o", "small.case.json"});
  EXPECT_TRUE(Has(Read("small.case.json"), "order:1/sequence"));
  Qualm(0, {"replay", found, "--subject", "native", "--contract", "linear=tree:tree.txt"});
  ran = Qualm({"explain", found, "--subject", "native", "--contract", "linear=tree:tree.txt"});
  EXPECT_TRUE(Has(ran.out, "bit-equal to: " + tree)) << ran.out;
}

TEST_F(Sums, AFileThatHasNoTreeIsRefused) {
  const auto refused = [&](const std::string& text, const std::string& why,
                           const std::string& op = "") {
    Write("tree.txt", text);
    ExpectBadInput({"check", "--subject", "native", "--op", "add", "--op", "linear", "--contract",
                    op + "tree:tree.txt"},
                   why);
  };
  refused("tree:{form:q8_0 parts:1x32 order:4/seq", "tree.txt: is no tree");
  refused("tree:{order:" + std::string(60'000, '(') + " steps:fused}", "tree.txt: order of a tree");
  refused(std::string(100'000, '('), "tree.txt: ");
  refused("tree:{form:q8_0 parts:1x32 order:1/sequence steps:rounded scales:product every:32}",
          "--contract: tree:{form:q8_0 parts:1x32 order:1/sequence steps:rounded scales:product "
          "every:32} has no add",
          "add=");
  ExpectBadInput({"check", "--contract", "tree:none.txt"}, "none.txt: ");
  ExpectBadInput({"check", "--contract", "tree:{form:q8_0}"}, "--contract: a tree needs order:");
  const Ran ran = Qualm(2, {"check", "--subject", "native", "--op", "linear", "--cases", "5",
                            "--contract", "tree:{order:1/sequence steps:fused}"});
  EXPECT_TRUE(Has(ran.err, "it is a tree of products of two lists of floats"));
  ExpectBadInput({"identify", "--tree", "native", "-o", "tree.txt"},
                 "--output: native takes several");
}

TEST_F(Sums, WhoHasNoTreeIsTold) {
  ExpectBadInput({"identify", "--tree", "model:fbgemm@avx2"},
                 "--tree: model:fbgemm@avx2 adds integers, which show no order");
  ExpectBadInput({"identify", "--tree", "native", "q8"},
                 "--tree: 'q8' is no form of a linear, nearest is");
  ExpectBadInput({"identify", "--tree", "native", "f32_u4"},
                 "--tree: native does not take f32_u4: ");
  ExpectBadInput({"identify", "--tree", "native", "--svg", "a.svg"}, "--svg: native takes several");
  ExpectBadInput({"identify", "--tree", "native", "--products", "100"},
                 "--products: is 100, expected three or more blocks of 32");
  ExpectBadInput({"identify", "--tree", "native", "--op", "linear"},
                 "--tree asks one subject alone");
}

}  // namespace
}  // namespace qualm::tools
