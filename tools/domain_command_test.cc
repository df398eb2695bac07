// SPDX-License-Identifier: Apache-2.0
// --domain and --shapes: whatever a run draws, derives, shrinks or finds lies inside.
#include <filesystem>
#include <string>
#include <vector>

#include "core/io/case_json.h"
#include "tools/domain_file.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDomain =
    "# what this kernel is for\n"
    "x_scale = [1e-3, 0.5]\n"
    "w_scale = [1e-3, 0.5]  # both ends belong to it\n"
    "out_scale = [1e-3, 0.5]\n"
    "\n"
    "[linear]\n"
    "x_zp = [1, 200]\n"
    "N = [1, 20]\n"
    "K = [3, 60]\n"
    "[conv2d]\n"
    "in_c = [8, 16]\n";

class DomainCommand : public QualmTest {
 protected:
  void SetUp() override {
    QualmTest::SetUp();
    Write("domain.toml", kDomain);
  }

  // Each case file below the folder that a finding has is of the domain; how many there are.
  int ExpectInside(const fs::path& below) const {
    const Domain domain = ParseDomain(kDomain, "domain.toml");
    int cases = 0;
    for (const auto& entry : fs::recursive_directory_iterator(below)) {
      if (!entry.path().string().ends_with(".case.json")) continue;
      const Case c = ReadCaseFile(entry.path().string());
      EXPECT_EQ(domain.WhyOutside(c), "") << entry.path() << " " << Describe(c);
      ++cases;
    }
    return cases;
  }
};

TEST_F(DomainCommand, WhatCheckFindsLiesInside) {
  const Ran ran = Qualm(1, {"check", "-s", "faulty:k-tail", "--op", "linear", "-n", "200",
                            "--domain", "domain.toml"});
  EXPECT_TRUE(Has(ran.out,
                  "the subject drops the last product, where K % 4 is 1\n"
                  "  smallest case: linear M=1 N=1 K=5 "))
      << ran.out;
  EXPECT_TRUE(Has(ran.out, "(most often: the domain has no ")) << ran.out;
  EXPECT_TRUE(Has(ran.err, "--domain domain.toml"));  // to repeat
  EXPECT_GE(ExpectInside(folder() / "qualm-findings"), 1);
}

// A program that says for which cases it is meant gets no others: it answers an error to those.
TEST_F(DomainCommand, APipeDeclaresItsOwn) {
  const auto child = [&](const std::string& domain) {
    Write("child.py",
          "import json, sys\n"
          "limits = {\"domain\": " +
              domain + R"(}
for line in sys.stdin:
    asked = json.loads(line)
    if "case" not in asked:
        answer = {"qualm_pipe": 1, "name": "child", "ops": {"linear": limits}}
    else:
        c = asked["case"]
        inside = 0.001 <= float.fromhex(c["x_scale"]) <= 0.5 and 3 <= c["K"] <= 60
        answer = {"id": asked["id"], "skip" if inside else "error": "told so"}
    print(json.dumps(answer), flush=True)
)");
    return Qualm({"check", "-s", "pipe:python3 child.py", "--op", "linear", "-p", "matches_exact",
                  "-n", "100"});
  };
  EXPECT_EQ(child("{}").status, 1);
  const Ran inside = child(R"({"x_scale": [0.001, "0.5"], "K": [3, 60]})");
  EXPECT_EQ(inside.status, 2) << inside.out;  // all skipped
  EXPECT_TRUE(Has(inside.out, "told so")) << inside.out;
  const Ran wrong = child(R"({"x_scal": [0.001, 0.5]})");
  EXPECT_EQ(wrong.status, 3);
  EXPECT_TRUE(Has(wrong.err, "its domain: x_scal: is no range of a domain, nearest is 'x_scale'"))
      << wrong.err;
  EXPECT_TRUE(Has(child(R"({"K": [3]})").err, "ops.linear.domain: has K as ")) << wrong.err;
}

TEST_F(DomainCommand, MinimizingStaysInside) {
  Qualm(1,
        {"check", "-s", "faulty:k-tail", "--op", "linear", "-n", "200", "--domain", "domain.toml"});
  for (const auto& entry : fs::recursive_directory_iterator(folder() / "qualm-findings")) {
    if (entry.path().filename() != "case.json") continue;
    fs::create_directory(folder() / "smallest");
    Qualm(1, {"minimize", entry.path().string(), "-s", "faulty:k-tail", "--domain", "domain.toml",
              "-o", "smallest/m.case.json"});
    EXPECT_EQ(ExpectInside(folder() / "smallest"), 1);
    return;
  }
  FAIL() << "no finding";
}

TEST_F(DomainCommand, ACampaignStaysInside) {
  Qualm(1, {"fuzz", "linear", "-s", "faulty:k-tail", "--runs", "3000", "--no-canary", "--domain",
            "domain.toml", "--state", "state", "--to-corpus", "found"});
  EXPECT_EQ(ExpectInside(folder()), 2);  // of the folder of the fault, and found.case.json
}

TEST_F(DomainCommand, AListOfShapesOnItsOwn) {
  Write("shapes.txt", "# a network\nmb1ic8ih6oc4kh3ph1n\"first\"\n\n1x1000x64\n");
  const Ran ran = Qualm(
      0, {"check", "-s", "native", "--op", "conv2d,linear", "-n", "20", "--shapes", "shapes.txt"});
  EXPECT_TRUE(Has(ran.out, " answers were judged")) << ran.out;
  Write("shapes.txt", "1x2x3\nmb1\n");
  ExpectBadInput({"check", "-s", "native", "--shapes", "shapes.txt"},
                 "shapes.txt:2: shape: 'mb1' has no ic");
}

TEST_F(DomainCommand, WrongDomainsGetOneLine) {
  const auto expect = [&](const std::string& text, const std::string& begins) {
    Write("wrong.toml", text);
    ExpectBadInput({"check", "-s", "native", "--domain", "wrong.toml"}, "wrong.toml: " + begins);
  };
  expect("x_scal = [1, 2]\n", "x_scal: is no range of a domain, nearest is 'x_scale'");
  expect("x_scale = [2, 1]\n", "x_scale: from 2 to 1 is empty");
  expect("x_scale = 3\n", "x_scale: has 1 number, expected [LEAST, MOST]");
  expect("x_scale = [1, two]\n", "x_scale: 'two' is no number");
  expect("[liner]\nK = [1, 2]\n", "[liner]: unknown operation 'liner', nearest is 'linear'");
  expect("[linear.conv2d]\nK = [1, 2]\n", "linear.conv2d: is a table in a table");
  expect("[add]\nshapes = [\"1x2x3\"]\n", "shape: '1x2x3' is no shape of add");
  expect("hello\n", "hello: ");
  ExpectBadInput({"check", "-s", "native", "--domain", "none.toml"}, "none.toml: file: ");
}

}  // namespace
}  // namespace qualm::tools
