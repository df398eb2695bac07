// SPDX-License-Identifier: Apache-2.0
#include "core/io/result_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace qualm {
namespace {

ResultDocument Example() {
  ResultDocument document;
  document.command = "qualm check --subject \"a b\"";
  document.seed = UINT64_MAX;
  document.subjects = {{"native@avx2", "exact"}};
  document.totals = {{"failed", 1}, {"cases", 7}};
  Verdict verdict = Verdict::Failed("line\nbreak", Divergence{3, "255", "0x1.8p+0", 2.5});
  verdict.kind = FindingKind::kPairSaturation;
  document.findings = {
      Finding("linear", "matches_exact", "faulty:pair-saturation", verdict, "out/a.case.json"),
      Finding("", "", "", {})};
  document.extra = {{"sweep", JsonObject({{"x", std::vector{1}}}, kSpaced)}};
  document.seconds = 0.1;
  return document;
}

// The bytes are the interface: key order is part of it.
TEST(ResultJson, KeyOrderIsFixed) {
  EXPECT_EQ(ResultToJson(Example()), R"({
  "schema": "qualm.result/1",
  "command": "qualm check --subject \"a b\"",
  "seed": 18446744073709551615,
  "subjects": [
    {"name": "native@avx2", "contract": "exact"}
  ],
  "totals": {"cases": 7, "passed": 0, "failed": 1, "expected": 0, "skipped": 0, "vacuous": 0, "not_applicable": 0},
  "findings": [
    {"fingerprint": "linear.matches_exact-faulty-pair-saturation-pair-saturation", "op": "linear", "property": "linear.matches_exact", "subject": "faulty:pair-saturation", "kind": "pair-saturation", "expected_by_contract": false, "case_file": "out/a.case.json", "first_divergence": {"index": 3, "expected": 255, "actual": "0x1.8p+0", "distance_lsb": 2.5}, "explanation": "line\nbreak"},
    {"fingerprint": ".--unknown", "op": "", "property": ".", "subject": "", "kind": "unknown", "expected_by_contract": false, "case_file": null, "first_divergence": null, "explanation": ""}
  ],
  "sweep": {"x": [1]},
  "seconds": 0.1
}
)");
}

TEST(ResultJson, EmptyAndInfinite) {
  ResultDocument document;
  document.seconds = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ResultToJson(document), R"({
  "schema": "qualm.result/1",
  "command": "",
  "seed": null,
  "subjects": [],
  "totals": {"cases": 0, "passed": 0, "failed": 0, "expected": 0, "skipped": 0, "vacuous": 0, "not_applicable": 0},
  "findings": [],
  "seconds": null
}
)");
}

TEST(JUnit, CountsAndEscapes) {
  const std::string xml = ToJUnit({{"native", "linear.a", "passed", "", 0.25},
                                   {"native", "linear.b", "failed", "1 < 2 & \"3\"\n\x01\xFF", 1},
                                   {"native", "linear.c", "vacuous", "no pair"},
                                   {"onednn@avx2", "linear.b", "expected", "declared"},
                                   {"onednn@avx2", "linear.c", "not_applicable", ""}});
  EXPECT_EQ(xml, R"(<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="native" tests="3" failures="1" skipped="1" time="1.250">
    <testcase classname="native" name="linear.b" time="1.000"><failure message="1 &lt; 2 &amp; &quot;3&quot;&#10;)"
                 "\xEF\xBF\xBD\xEF\xBF\xBD"
                 R"("/></testcase>
    <testcase classname="native" name="linear.a" time="0.250"/>
    <testcase classname="native" name="linear.c" time="0.000"><skipped message="vacuous: no pair"/></testcase>
  </testsuite>
  <testsuite name="onednn@avx2" tests="2" failures="0" skipped="1" time="0.000">
    <testcase classname="onednn@avx2" name="linear.b" time="0.000"><system-out>expected: declared</system-out></testcase>
    <testcase classname="onednn@avx2" name="linear.c" time="0.000"><skipped message="not_applicable"/></testcase>
  </testsuite>
</testsuites>
)");
}

// Two claims of one fault are one annotation; what is known or declared is none.
ResultDocument ForCi() {
  ResultDocument document;
  document.command = "qualm check";
  document.totals = {{"cases", 7}, {"failed", 4}};
  const Verdict tail = [] {
    Verdict verdict = Verdict::Failed("100% lost: a|b\n<c>");
    verdict.kind = FindingKind::kTail;
    return verdict;
  }();
  for (const char* claim : {"matches_exact", "clamp"})
    document.findings.emplace_back("linear", claim, "plugin:k", tail, "out/a.case.json");
  document.findings.emplace_back("add", "clamp", "plugin:k", tail);
  document.known = {{document.findings.back().fingerprint(), {"baseline", "", ""}}};
  document.findings.emplace_back("mul", "clamp", "plugin:k", tail);
  document.findings.back().expected_by_contract = true;
  return document;
}

TEST(CiReports, GithubShowsEachNewFaultOnce) {
  EXPECT_EQ(ToGithubAnnotations(ForCi()),
            "::error title=qualm%3A linear of plugin%3Ak%2C tail::100%25 lost: a|b%0A<c>%0A"
            "fails clamp, matches_exact%0Acase: out/a.case.json\n");
  EXPECT_EQ(ToMarkdownSummary(ForCi()), R"(### qualm: 1 new

`qualm check`

7 cases; claims: 0 passed, 4 failed, 0 expected, 0 skipped, 0 vacuous

| subject | operation | kind | what | fails | case |
|---|---|---|---|---|---|
| plugin:k | linear | tail | 100% lost: a\|b &lt;c&gt; | clamp, matches_exact | `out/a.case.json` |
)");
  EXPECT_EQ(ToGithubAnnotations({}), "");
  EXPECT_TRUE(ToMarkdownSummary({}).starts_with("### qualm: nothing new\n"));
}

TEST(CiReports, SarifHasEveryFindingWithItsLevel) {
  EXPECT_EQ(
      ToSarif(ForCi(), "1.2"),
      R"({"$schema":"https://json.schemastore.org/sarif-2.1.0.json","version":"2.1.0","runs":[{"tool":{"driver":{"name":"qualm","version":"1.2","rules":[{"id":"add.clamp"},{"id":"linear.clamp"},{"id":"linear.matches_exact"},{"id":"mul.clamp"}]}},"results":[)"
      R"({"ruleId":"linear.matches_exact","level":"error","message":{"text":"plugin:k [tail]: 100% lost: a|b\n<c>"},"partialFingerprints":{"qualm/v1":"linear.matches_exact-plugin-k-tail"},"locations":[{"physicalLocation":{"artifactLocation":{"uri":"out/a.case.json"}}}]},)"
      R"({"ruleId":"linear.clamp","level":"error","message":{"text":"plugin:k [tail]: 100% lost: a|b\n<c>"},"partialFingerprints":{"qualm/v1":"linear.clamp-plugin-k-tail"},"locations":[{"physicalLocation":{"artifactLocation":{"uri":"out/a.case.json"}}}]},)"
      R"({"ruleId":"add.clamp","level":"note","message":{"text":"plugin:k [tail]: 100% lost: a|b\n<c>"},"partialFingerprints":{"qualm/v1":"add.clamp-plugin-k-tail"}},)"
      R"({"ruleId":"mul.clamp","level":"note","message":{"text":"plugin:k [tail]: 100% lost: a|b\n<c>"},"partialFingerprints":{"qualm/v1":"mul.clamp-plugin-k-tail"}}]}]})"
      "\n");
}

}  // namespace
}  // namespace qualm
