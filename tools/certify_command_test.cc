// SPDX-License-Identifier: Apache-2.0
// qualm certify and qualm repair, as users start them.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/io/case_json.h"
#include "core/io/npy.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;
using test::Json;

class Certify : public QualmTest {};

std::string Layers(const std::string& name) { return Corpus("layers/" + name); }

// The channels of thread 003 that saturate, the input on which they do, and the library's sums.
TEST_F(Certify, FindsTheChannelOfThread003) {
  const Ran ran = Qualm(1, {"certify", Corpus("forum/003-conv1.case.json"), "--scheme",
                            "fbgemm@avx2", "-s", "model:fbgemm@avx2", "-s", "model:fbgemm@vnni",
                            "--witnesses", "w", "--certificate", "c.json", "--json", "-"});
  const Json document = Document(ran);
  const Json& proof = document["certify"][0];
  EXPECT_EQ(proof["scheme"], "fbgemm@avx2");
  ASSERT_EQ(proof["unsafe"].size(), 1u);
  EXPECT_EQ(proof["unsafe"][0]["channel"], 1);
  EXPECT_NE(proof["unsafe"][0]["witness"]["got"], proof["unsafe"][0]["witness"]["exact"]);
  std::map<std::string, int> wrong;
  for (const Json& asked : proof["asked"]) {
    EXPECT_EQ(asked["asked"], 1) << asked;
    wrong[asked["subject"]] = asked["wrong"];
  }
  EXPECT_EQ(wrong,
            (std::map<std::string, int>{{"model:fbgemm@avx2", 1}, {"model:fbgemm@vnni", 0}}));
  // The witness replays: it fails on the library's arithmetic.
  const std::string witness = "w/003-conv1.fbgemm@avx2.1.case.json";
  ASSERT_TRUE(fs::exists(folder() / witness));
  EXPECT_EQ(document["findings"][0]["case_file"], witness);
  Qualm(1, {"replay", witness, "-s", "faulty:pair-saturation"});
  Qualm(0, {"replay", witness, "-s", "native"});
}

TEST_F(Certify, CertificatesAreCheckedAgain) {
  const std::vector<std::string> prove{"certify", Layers("mixed.safetensors"), "--scheme", "pairs"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = prove;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  Qualm(1, with({"--certificate", "c.json"}));
  const Json certificate = ReadJson("c.json");
  EXPECT_EQ(certificate["schema"], "qualm.layers/1");
  ASSERT_EQ(certificate["layers"].size(), 2u);
  EXPECT_EQ(certificate["layers"][0]["layer"], "fc.weight");
  Qualm(1, with({"--verify", "c.json"}));
  // Another range of activations is refused, and a certificate whose claim was changed.
  ExpectBadInput(with({"--x-range", "0:127", "--verify", "c.json"}), "c.json: line 4: ");
  std::string changed = Read("c.json");
  changed.replace(changed.find("\"safe\": false"), 13, "\"safe\": true");
  Write("changed.json", changed);
  ExpectBadInput(with({"--verify", "changed.json"}), "changed.json: hash: ");
  ExpectBadInput(with({"--verify", "none.json"}), "none.json: file: ");
  Qualm(0, with({"--x-range", "0:127"}));
}

TEST_F(Certify, TakesEveryFormat) {
  for (const std::vector<std::string>& file : std::vector<std::vector<std::string>>{
           {Layers("fc.npy")},
           {Layers("mixed.safetensors"), "--tensor", "conv.weight"},
           {Layers("float.safetensors"), "--quantize", "tensor"},
           {Layers("float.safetensors"), "--quantize", "channel"},
           {Layers("model.onnx")},
           {Corpus("forum")}}) {
    std::vector<std::string> arguments{"certify"};
    arguments.insert(arguments.end(), file.begin(), file.end());
    const Ran ran = Qualm(arguments);
    EXPECT_LE(ran.status, 1) << file[0] << ran.err;
    EXPECT_TRUE(Has(ran.out, "fbgemm@avx2"));
  }
  ExpectBadInput({"certify", Layers("float.safetensors")},
                 Layers("float.safetensors") + ": fc.weight: weights: are float32");
  ExpectBadInput({"certify", Corpus("forum/001-quantize.case.json")},
                 Corpus("forum/001-quantize.case.json") + ": op: ");
  ExpectBadInput({"certify", Corpus("golden")}, Corpus("golden") + ": holds no");
  ExpectBadInput({"certify", Layers("fc.npy"), "--x-range", "5"}, "--x-range: is '5'");
  ExpectBadInput({"certify", Layers("fc.npy"), "--x-range", "0:256"}, "--x-range: is '0:256'");
  ExpectBadInput({"certify", Layers("fc.npy"), "--scheme", "pear"}, "--scheme: unknown scheme");
  ExpectBadInput({"certify", Layers("mixed.safetensors"), "--tensor", "x"}, "--tensor: ");
  Write("bad.npy", "no array");
  ExpectBadInput({"certify", "bad.npy"}, "bad.npy: file: ");
}

TEST_F(Certify, GivenPairingAndSchemes) {
  std::vector<int32_t> order;
  for (int32_t k = 0; k < 64; ++k) order.push_back(63 - k);
  Write("order.npy", NpyOf(Tensor::Of<int32_t>({64}, order)));
  const Ran ran = Qualm({"certify", Layers("fc.npy"), "--pairing", "order.npy", "--scheme", "pairs",
                         "--scheme", "acc16:64", "--scheme", "float32", "--json", "-"});
  EXPECT_LE(ran.status, 1) << ran.err;
  const Json proofs = Document(ran)["certify"];
  ASSERT_EQ(proofs.size(), 4u);
  // The pairs from the other end are the same pairs.
  EXPECT_EQ(proofs[3]["scheme"], "given");
  EXPECT_EQ(proofs[3]["unsafe_sums"], proofs[0]["unsafe_sums"]);
  EXPECT_GT(proofs[0]["unsafe_sums"], 0);
  EXPECT_GE(proofs[1]["unsafe_sums"], proofs[0]["unsafe_sums"]);
  EXPECT_EQ(proofs[2]["unsafe_sums"], 0);
  Qualm(0, {"certify", Layers("fc.npy"), "--x-type", "s8", "--scheme", "neon-mlal"});
  order[0] = order[1];
  Write("twice.npy", NpyOf(Tensor::Of<int32_t>({64}, order)));
  ExpectBadInput({"certify", Layers("fc.npy"), "--pairing", "twice.npy"}, "twice.npy: order: ");
}

class Repair : public QualmTest {};

// The author's own layer: wrong as it is, exact when repaired, on his library's arithmetic.
TEST_F(Repair, OfTheLayerOfThread003) {
  const Ran ran = Qualm(0, {"repair", Corpus("forum/003-conv1.case.json"), "--scheme",
                            "fbgemm@avx2", "-s", "model:fbgemm@avx2", "--out", "r", "--json", "-"});
  const Json repair = Document(ran)["repair"][0];
  std::vector<std::string> names;
  for (const Json& remedy : repair["remedies"]) names.push_back(remedy["name"]);
  ASSERT_GE(names.size(), 4u);
  EXPECT_EQ(names.back(), "reduce_range");
  EXPECT_EQ(repair["remedies"][0]["exact"], true);
  ASSERT_EQ(repair["subjects"].size(), 2u);
  for (const Json& comparison : repair["subjects"]) {
    EXPECT_GT(comparison["wrong_before"], 0) << comparison;
    EXPECT_EQ(comparison["wrong_after"], 0) << comparison;
  }
  // The written files hold the repaired layer, and its certificate verifies.
  const std::string stem = "r/003-conv1.fbgemm@avx2";
  const Case repaired = ReadCaseFile((folder() / (stem + ".case.json")).string());
  EXPECT_EQ(ParseNpy(Read(stem + ".weights.npy"), "file"), repaired.w);
  EXPECT_EQ(ParseNpy(Read(stem + ".order.npy"), "file").size(), repaired.window.in_c);
  Qualm(0, {"certify", stem + ".case.json", "--scheme", "fbgemm@avx2", "--verify",
            stem + ".certificate.json"});
  Qualm(0, {"replay", stem + ".case.json", "-s", "model:fbgemm@avx2", "--contract", "exact",
            "--property", "matches_exact"});
}

TEST_F(Repair, OtherRemediesOnRequest) {
  const std::vector<std::string> repair{"repair",   Layers("fc.npy"), "--scheme", "pairs",
                                        "--remedy", "edits",          "--out",    "r"};
  const Ran ran = Qualm(0, repair);
  EXPECT_TRUE(Has(ran.out, "    edits: written to r/fc.pairs.*\n"));
  Qualm(0, {"certify", "r/fc.pairs.weights.npy", "--scheme", "pairs"});
  Qualm(0, {"repair", "r/fc.pairs.weights.npy"});
  Qualm(1, {"repair", "r/fc.pairs.weights.npy", "--scheme", "acc16"});
  Qualm(1, {"repair", Layers("fc.npy"), "--scheme", "pairs", "--remedy", "glue"});
  ExpectBadInput({"repair", "none.npy"}, "none.npy: no such file");
}

}  // namespace
}  // namespace qualm::tools
