// SPDX-License-Identifier: Apache-2.0
// --baseline and --suppressions: known findings do not fail a run, new ones do, and nobody can
// mistake one for the other. And audit: a declared departure that is gone is as new as one that has
// come.
#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

using test::Json;
using Names = std::set<std::string>;

class Known : public QualmTest {
 protected:
  // A run with findings, and more options.
  Ran Check(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"check", "-s", "faulty:k-tail", "--op", "linear",
                                       "-n",    "120"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Qualm(arguments);
  }
  // The document of the run without more options, as baseline.json.
  Json Baseline() {
    EXPECT_EQ(Check({"--json", "baseline.json"}).status, 1);
    return ReadJson("baseline.json");
  }
  static Names Fingerprints(const Json& document) {
    Names names;
    for (const Json& finding : document["findings"]) names.insert(finding["fingerprint"]);
    return names;
  }
  static Names NewOnes(const Json& document) {
    Names names;
    for (const Json& finding : document["findings"]) {
      if (!finding["expected_by_contract"] && !finding.contains("known"))
        names.insert(finding["fingerprint"]);
    }
    return names;
  }
};

TEST_F(Known, ABaselineExcusesWhatIsInItAndNothingElse) {
  Json document = Baseline();
  const Names all = Fingerprints(document);
  ASSERT_GE(all.size(), 3u);
  EXPECT_EQ(NewOnes(document), all);
  const int64_t failed = document["totals"]["failed"], expected = document["totals"]["expected"];
  EXPECT_EQ(expected, 0);
  std::filesystem::remove_all(folder() / "qualm-findings");

  // All known: clean, nothing written, every verdict counted as expected.
  const Ran clean = Check({"--baseline", "baseline.json", "--json", "-"});
  EXPECT_EQ(clean.status, 0) << clean.err;
  const Json known = Document(clean);
  EXPECT_EQ(Fingerprints(known), all);
  EXPECT_EQ(known["totals"]["failed"], 0);
  EXPECT_EQ(known["totals"]["expected"], failed);
  for (const Json& finding : known["findings"]) {
    EXPECT_EQ(finding["known"], Json({{"by", "baseline"}}));
    EXPECT_EQ(finding["expected_by_contract"], false);
  }
  EXPECT_FALSE(std::filesystem::exists(folder() / "qualm-findings"));
  const Ran text = Check({"--baseline", "baseline.json"});
  EXPECT_EQ(text.status, 0);
  EXPECT_TRUE(Has(text.out, "known: linear.matches_exact fails on faulty:k-tail [tail]"));
  EXPECT_TRUE(Has(text.out, "  in the baseline baseline.json\n"));
  EXPECT_FALSE(Has(text.out, "FINDING"));
  EXPECT_FALSE(Has(text.err, "not seen"));

  // Each one taken out of it is the new one.
  for (size_t i = 0; i < document["findings"].size(); ++i) {
    Json less = document;
    const std::string fingerprint = less["findings"][i]["fingerprint"];
    less["findings"].erase(i);
    Write("less.json", less.dump());
    const Ran ran = Check({"--baseline", "less.json", "--json", "-"});
    EXPECT_EQ(ran.status, 1) << fingerprint;
    const Json found = Document(ran);
    EXPECT_EQ(NewOnes(found), Names{fingerprint});
    EXPECT_GT(found["totals"]["failed"], 0);
    EXPECT_TRUE(
        std::filesystem::exists(folder() / "qualm-findings/findings" / fingerprint / "case.json"));
    std::filesystem::remove_all(folder() / "qualm-findings");
  }

  // Every kind and threads alike: what a baseline was is a baseline again.
  Write("known.json", clean.out);
  EXPECT_EQ(Check({"--baseline", "known.json", "-j", "3"}).status, 0);
}

TEST_F(Known, WhatABaselineHasAndTheRunHasNotIsCounted) {
  Json document = Baseline();
  Json gone = document["findings"][0];
  gone["fingerprint"] = "linear.matches_exact-elsewhere-tie";
  document["findings"].push_back(gone);
  Write("more.json", document.dump());
  const Ran ran = Check({"--baseline", "more.json"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(Lines(ran.err).back(), "qualm: more.json: 1 of its findings were not seen in this run");
}

// Until fingerprints had lasting names they held the subject as it was typed.
TEST_F(Known, FormerFingerprintsAreUnderstood) {
  const Json document = Baseline();
  Json former = document;
  for (Json& finding : former["findings"]) {
    std::string name = finding["fingerprint"];
    const size_t at = name.find("faulty-");
    ASSERT_NE(at, std::string::npos) << name;
    finding["fingerprint"] = name.replace(at, 7, "faulty:");
  }
  Write("former.json", former.dump());
  const Ran ran = Check({"--baseline", "former.json", "--json", "-"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(Lines(ran.err).back(),
            "qualm: former.json: holds fingerprints of an earlier qualm, with paths as they were "
            "typed; take those of this run (--json)");
  EXPECT_EQ(Fingerprints(Document(ran)), Fingerprints(document));
  EXPECT_EQ(NewOnes(Document(ran)), Names{});
  Write("list.json", Suppressions(Fingerprints(former)).dump());
  const Ran list = Check({"--suppressions", "list.json", "--today", "2027-01-01"});
  EXPECT_EQ(list.status, 0);
  EXPECT_TRUE(Begins(Lines(list.err).back(), "qualm: list.json: holds fingerprints of an earlier"))
      << list.err;
}

TEST_F(Known, ASuppressionHoldsWithItsReasonToItsLastDay) {
  const Names all = Fingerprints(Baseline());
  Write("list.json", Suppressions(all).dump());
  const Ran last = Check({"--suppressions", "list.json", "--today", "2027-06-30", "--json", "-"});
  EXPECT_EQ(last.status, 0) << last.err;
  const Json document = Document(last);
  EXPECT_EQ(document["totals"]["failed"], 0);
  EXPECT_GT(document["totals"]["expected"], 0);
  EXPECT_EQ(Fingerprints(document), all);
  for (const Json& finding : document["findings"]) {
    EXPECT_EQ(finding["known"],
              Json({{"by", "suppression"}, {"reason", "issue 7"}, {"expires", "2027-06-30"}}));
  }
  const Ran text = Check({"--suppressions", "list.json", "--today", "2027-06-30"});
  EXPECT_EQ(text.status, 0);
  EXPECT_TRUE(Has(text.out, "suppressed: linear.matches_exact fails on faulty:k-tail [tail]"));
  EXPECT_TRUE(Has(text.out, "  suppressed until 2027-06-30: issue 7\n"));

  // The day after it fails again, and says so.
  const Ran after = Check({"--suppressions", "list.json", "--today", "2027-07-01"});
  EXPECT_EQ(after.status, 1);
  const std::string fingerprint = "linear.matches_exact-faulty-k-tail-tail";
  ASSERT_TRUE(all.contains(fingerprint));
  EXPECT_TRUE(Has(after.err, "qualm: list.json: the suppression of " + fingerprint +
                                 " expired on 2027-06-30\n"));
  EXPECT_TRUE(Has(after.out, "  fingerprint: " + fingerprint +
                                 "\n  its suppression expired on 2027-06-30: issue 7\n"));
  EXPECT_FALSE(Has(after.out, "suppressed:"));
}

TEST_F(Known, OneSuppressionExcusesOneFinding) {
  Names others = Fingerprints(Baseline());
  const std::string one = *others.begin();
  others.erase(one);
  Json list = Suppressions({one, "linear.clamp-nobody-clamp"});
  Write("list.json", list.dump());
  const Ran ran = Check({"--suppressions", "list.json", "--today", "2027-01-01", "--json", "-"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(NewOnes(Document(ran)), others);
  EXPECT_EQ(Lines(ran.err).back(),
            "qualm: list.json: no finding of this run is 'linear.clamp-nobody-clamp'");
}

// Both at once; a suppression that ends does not live on in a baseline made while it held.
TEST_F(Known, ABaselineIsMadeWithoutWhatWasSuppressed) {
  const Names all = Fingerprints(Baseline());
  const std::string one = *all.begin();
  Write("list.json", Suppressions({one}).dump());
  const Ran both = Check({"--baseline", "baseline.json", "--suppressions", "list.json", "--today",
                          "2027-01-01", "--json", "next.json"});
  EXPECT_EQ(both.status, 0) << both.err;
  EXPECT_TRUE(Has(both.out, "  suppressed until 2027-06-30: issue 7\n"));
  const Ran later = Check({"--baseline", "next.json", "--suppressions", "list.json", "--today",
                           "2027-07-01", "--json", "-"});
  EXPECT_EQ(later.status, 1);
  EXPECT_EQ(NewOnes(Document(later)), Names{one});
}

// The date is part of what a run depends on.
TEST_F(Known, TheRepeatCommandNamesTheDate) {
  Write("list.json", Suppressions({}).dump());
  const Ran now = Check({"--suppressions", "list.json"});
  EXPECT_TRUE(Has(Lines(now.err)[0], " --suppressions list.json --seed 1 --today 20")) << now.err;
  const Ran then = Check({"--suppressions", "list.json", "--today=2027-01-01"});
  EXPECT_TRUE(Ends(Lines(then.err)[0], " --today=2027-01-01 --seed 1")) << then.err;
}

TEST_F(Known, JUnitShowsKnownFindingsAndDoesNotFail) {
  Baseline();
  EXPECT_EQ(Check({"--baseline", "baseline.json", "--junit", "all.xml"}).status, 0);
  const std::string all = WithoutSeconds(Read("all.xml"));
  EXPECT_FALSE(Has(all, "<failure"));
  EXPECT_TRUE(Has(all, "name=\"linear.matches_exact\"><system-out>expected: known: "));
  EXPECT_EQ(Check({"--junit", "none.xml"}).status, 1);
  EXPECT_TRUE(Has(WithoutSeconds(Read("none.xml")),
                  "name=\"linear.matches_exact\"><failure message=\"FINDING: "));
}

TEST_F(Known, BadFilesAreOneLineBeforeTheRun) {
  const std::string bad =
      "{\"schema\": \"qualm.suppressions/1\", \"suppressions\": [{"
      "\"fingerprint\": \"a\", ";
  Write("no-reason.json", bad + "\"expires\": \"2027-01-01\"}]}");
  Write("no-day.json", bad + "\"reason\": \"r\", \"expires\": \"2027-02-29\"}]}");
  Write("empty.json", "");
  Write("list.json", Suppressions({}).dump());
  for (const std::vector<std::string>& verb : std::vector<std::vector<std::string>>{
           {"check", "-s", "native", "-n", "1"}, {"audit", "-s", "native", "--budget", "0.01s"}}) {
    const auto expect = [&](const std::vector<std::string>& more, const std::string& begins) {
      std::vector<std::string> arguments = verb;
      arguments.insert(arguments.end(), more.begin(), more.end());
      ExpectBadInput(arguments, begins);
    };
    expect({"--suppressions", "no-reason.json"},
           "--suppressions: no-reason.json: suppressions[0].reason: is missing");
    expect({"--suppressions", "no-day.json"},
           "--suppressions: no-day.json: suppressions[0].expires: is \"2027-02-29\"");
    expect({"--suppressions", "absent.json"},
           "--suppressions: absent.json: file: cannot be opened");
    expect({"--baseline", "absent.json"}, "--baseline: absent.json: file: cannot be opened");
    expect({"--baseline", "empty.json"}, "--baseline: empty.json: top level: ");
    expect({"--baseline", "."}, "--baseline: .: file: is a directory");
    expect({"--baseline", "list.json"}, "--baseline: list.json: schema: is ");
    expect({"--baseline", ""}, "--baseline: is empty");
    expect({"--suppressions", "list.json", "--today", "soon"}, "--today: 'soon' is no date");
    expect({"--today", "2027-01-01"}, "--today requires --suppressions");
  }
  EXPECT_FALSE(std::filesystem::exists(folder() / "build"));
}

class DeclaredDepartures : public Known {
 protected:
  // Audits the documented cases alone: the time for drawn cases is over before the first of them.
  Ran Audit(const std::vector<std::string>& more, const std::string& subject) {
    std::vector<std::string> arguments{"audit", "-s",     subject,  "--budget", "0.000000001s",
                                       "--out", "report", "--json", "-"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Qualm(arguments);
  }
  // A corpus of one case, on which nobody departs from exact.
  std::string QuietCorpus() {
    std::filesystem::create_directories(folder() / "quiet/forum");
    std::filesystem::copy(Corpus("regressions/linear-last-product-dropped.case.json"),
                          folder() / "quiet/forum/quiet.case.json");
    return "quiet";
  }
  static constexpr const char* kConvention = "model:fbgemm@avx2";
};

TEST_F(DeclaredDepartures, FailTheAuditWhenTheyDisappear) {
  const Ran whole = Audit({}, kConvention);
  EXPECT_EQ(whole.status, 0) << whole.err;
  Write("whole.json", whole.out);
  const Ran quiet = Audit({"--corpus", QuietCorpus()}, kConvention);
  EXPECT_EQ(quiet.status, 1) << quiet.err;
  const Json document = Document(quiet);
  EXPECT_GT(document["totals"]["failed"], 0);
  Names gone;
  for (const Json& finding : document["findings"]) {
    EXPECT_EQ(finding["expected_by_contract"], false);
    EXPECT_TRUE(Has(finding["explanation"].get<std::string>(), "not seen on any documented case"));
    gone.insert(finding["fingerprint"]);
  }
  EXPECT_TRUE(
      gone.contains("linear.matches_exact.vanished-pair-saturation-model-fbgemm@avx2-unknown"))
      << testing::PrintToString(gone);
  EXPECT_TRUE(std::ranges::any_of(document["declared"],
                                  [](const Json& row) { return row["state"] == "VANISHED"; }));

  // To know the departures is not to know that they are gone.
  EXPECT_EQ(Audit({"--corpus", "quiet", "--baseline", "whole.json"}, kConvention).status, 1);
  Write("quiet.json", quiet.out);
  const Ran known = Audit({"--corpus", "quiet", "--baseline", "quiet.json"}, kConvention);
  EXPECT_EQ(known.status, 0) << known.err;
  EXPECT_EQ(Document(known)["totals"]["failed"], 0);
  EXPECT_EQ(Fingerprints(Document(known)), gone);
}

TEST_F(DeclaredDepartures, FailTheAuditWhenOneIsNew) {
  // Promises exact, and nobody has declared that it departs.
  const Ran ran = Audit({"--corpus", QuietCorpus()}, "faulty:k-tail");
  EXPECT_EQ(ran.status, 1) << ran.err;
  const Json document = Document(ran);
  const std::string fingerprint = "linear.matches_exact-faulty-k-tail-tail";
  EXPECT_TRUE(NewOnes(document).contains(fingerprint)) << document["findings"];
  EXPECT_GT(document["totals"]["failed"], 0);
  const auto failed = [](const Json& run) {
    return std::ranges::any_of(run["verdicts"], [](const Json& row) {
      return row["op"] == "linear" && row["counts"].value("failed", 0) > 0;
    });
  };
  EXPECT_TRUE(failed(document)) << document["verdicts"];
  EXPECT_TRUE(Has(Read("report/index.html"), "NOT OK: 1 new fault"));
  // And a suppression excuses it in the report too.
  Write("list.json", Suppressions(Fingerprints(document)).dump());
  const Ran known =
      Audit({"--corpus", "quiet", "--suppressions", "list.json", "--today", "2027-01-01"},
            "faulty:k-tail");
  EXPECT_EQ(known.status, 0) << known.err << known.out;
  EXPECT_TRUE(Has(Read("report/index.html"), "OK: nothing new"));
  EXPECT_TRUE(Has(Read("report/index.html"), "suppressed until 2027-06-30: issue 7"));
  EXPECT_FALSE(failed(Document(known))) << Document(known)["verdicts"];
}

}  // namespace
}  // namespace qualm::tools
