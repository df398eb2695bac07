// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "core/text_test_util.h"
#include "core/verdict.h"
#include "exporters/exporter.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "report/certify_page.h"
#include "report/escape.h"
#include "report/faults.h"
#include "report/forum.h"
#include "report/html.h"
#include "report/markdown.h"
#include "report/model_page.h"
#include "report/overview.h"
#include "report/pictures.h"
#include "report/sum_tree.h"
#include "report/words.h"
#include "report/worked.h"

namespace qualm::report {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHostile = "<script>alert('x')</script>\"&\x01";

RecordedFinding FindingOn(const std::string& subject, const std::string& claim,
                          const std::string& kind) {
  RecordedFinding finding;
  finding.op = "linear";
  finding.claim = claim;
  finding.subject = subject;
  finding.kind = kind;
  finding.fingerprint = "linear." + claim + "-" + subject + "-" + kind;
  finding.explanation = "departs from the exact value: expected 1, got 2; because";
  return finding;
}

std::string PageOf(const OutputFolder& folder) {
  const std::vector<Fault> faults = FaultsOf(folder.record);
  Blocks sections = SubjectBySubject(faults, folder);
  for (const Fault& fault : faults) sections.push_back(FaultSection(fault, folder));
  return Html(FirstScreen(folder.record, faults), sections);
}

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Escape, LeavesNothingThatMarksUp) {
  EXPECT_EQ(Escape(kHostile),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;\xEF\xBF\xBD");
}

// Names from plugins and cases are shown as text, whatever they contain.
TEST(Page, HostileNamesAreText) {
  OutputFolder folder;
  folder.record.command = kHostile;
  folder.record.run.processor = kHostile;
  folder.record.subjects = {{kHostile, kHostile}};
  folder.record.verdicts = {{kHostile, kHostile, {{"passed", 1}}}};
  folder.record.hazards = {{kHostile, kHostile, 1, {{kHostile, 1}}}};
  RecordedFinding finding = FindingOn(kHostile, "matches_exact", "tail");
  finding.op = finding.explanation = finding.case_file = kHostile;
  finding.divergence = Divergence{0, kHostile, kHostile, 1};
  folder.record.findings = {finding};
  folder.evidence[finding.fingerprint].explanation = kHostile;
  Case c =
      CaseOver(Op::kDequantize, Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{3}), DType::kF32);
  c.note = kHostile;
  folder.evidence[finding.fingerprint].minimized = c;
  std::string page = PageOf(folder);
  Blocks rest = HazardMatrix(folder.record);
  page += Html({}, rest);
  EXPECT_FALSE(Has(page, "<script>alert"));
  EXPECT_EQ(page.find('\x01'), std::string::npos);
  EXPECT_TRUE(Has(page, "&lt;script&gt;alert"));
}

TEST(Page, TellsNoFolderOfThisMachine) {
  EXPECT_EQ(WithoutFolders("case: /home/me/x/a.case.json, then /tmp/b"),
            "case: x/a.case.json, then tmp/b");
  EXPECT_EQ(WithoutFolders("33147 * 1 / 256 and a/b/c, and/or"),
            "33147 * 1 / 256 and a/b/c, and/or");
  EXPECT_EQ(WithoutFolders("plugin:/home/me/mine.so"), "plugin:me/mine.so");
  // Commands are typed in the folder of the page.
  EXPECT_EQ(SubjectFrom("qualm-findings", "plugin:./mine.so"), "plugin:../mine.so");
  EXPECT_EQ(SubjectFrom("./out/today/", "plugin:build/mine.so"), "plugin:../../build/mine.so");
  EXPECT_EQ(SubjectFrom("out", "plugin:out/mine.so"), "plugin:mine.so");
  EXPECT_EQ(SubjectFrom("out", "plugin:/home/me/mine.so"), "plugin:me/mine.so");
  EXPECT_EQ(SubjectFrom("/home/out", "plugin:./mine.so"), "plugin:./mine.so");
  EXPECT_EQ(SubjectFrom("out", "plugin:mine.so"), "plugin:mine.so");  // where there is none
  EXPECT_EQ(SubjectFrom("out", "native"), "native");
  OutputFolder folder;
  folder.record.command = "qualm audit --out /home/me/report";
  RecordedFinding finding = FindingOn("plugin:/home/me/mine.so", "matches_exact", "tail");
  finding.case_file = "/home/me/report/x.case.json";
  folder.record.findings = {finding};
  EXPECT_FALSE(Has(PageOf(folder), "/home/me"));
}

// A reader who asks what is wrong with one subject finds it under its name: the worst first, and
// the command to type.
TEST(Page, SaysSubjectBySubjectWhatIsWrong) {
  OutputFolder folder;
  ResultRecord& record = folder.record;
  record.subjects = {{"native", "exact"}, {"onednn@avx2", "exact"}, {"onednn@sse41", "exact"}};
  record.verdicts = {{"native", "linear", {{"passed", 3}}}};
  record.findings = {FindingOn("onednn@avx2", "matches_exact", "rounding"),
                     FindingOn("onednn@avx2", "sweep_is_linear", "pair-saturation"),
                     FindingOn("onednn@sse41", "matches_exact", "rounding")};
  record.findings[0].divergence = Divergence{0, "8", "7", 1};
  record.findings[1].divergence = Divergence{0, "133", "60", 73};
  for (RecordedFinding& finding : record.findings) finding.expected_by_contract = true;
  folder.evidence[record.findings[1].fingerprint].explanation = "tried";
  const std::string page = PageOf(folder);
  const size_t at = page.find("<details id=\"subject-onednn-avx2\">");
  ASSERT_NE(at, std::string::npos);
  const std::string summary = page.substr(at, page.find("</summary>", at) - at);
  EXPECT_TRUE(Has(summary, "in pairs in 16 bits"));
  EXPECT_TRUE(Has(summary, "in linear; and 1 other thing."));
  const std::string inside = page.substr(at, page.find("</details>", at) - at);
  EXPECT_TRUE(Has(inside, "(expected 133, got 60)"));
  EXPECT_TRUE(Has(inside,
                  "qualm explain findings/linear.sweep_is_linear-onednn@avx2-pair-saturation/"
                  "case.json --subject onednn@avx2"));
  EXPECT_TRUE(Has(page, "<a href=\"#subject-onednn-avx2\">onednn@avx2</a>"));
  EXPECT_TRUE(Has(page, "Nothing was found on <strong>native</strong>"));
}

TEST(Faults, AreOneForAllPropertiesAndInstructionSets) {
  ResultRecord record;
  record.findings = {FindingOn("onednn@avx2", "matches_exact", "pair-saturation"),
                     FindingOn("onednn@sse41", "sweep_is_linear", "pair-saturation"),
                     FindingOn("onednn@avx2", "environment", "rounding"),
                     FindingOn("onednn@avx2", "matches_exact", "rounding"),
                     FindingOn("xnnpack", "matches_exact", "pair-saturation")};
  record.findings[0].expected_by_contract = record.findings[1].expected_by_contract = true;
  const std::vector<Fault> faults = FaultsOf(record);
  ASSERT_EQ(faults.size(), 4u);
  EXPECT_TRUE(faults[0].is_new && faults[1].is_new && faults[2].is_new) << "new ones come first";
  EXPECT_FALSE(faults[3].is_new);
  EXPECT_EQ(faults[3].findings.size(), 2u);
  EXPECT_EQ(Subjects(faults[3].subjects()), "onednn (avx2, sse41)");
  std::set<std::string> ids;
  for (const Fault& fault : faults) ids.insert(fault.id);
  EXPECT_EQ(ids.size(), faults.size());
  EXPECT_EQ(VerdictSentence(faults), "NOT OK: 3 new faults; 1 known departure, folded by reason");
  EXPECT_EQ(VerdictSentence({faults[3]}), "OK: nothing new; 1 known departure, folded by reason");
  EXPECT_EQ(VerdictSentence({}, {"add on s"}), "NOT OK: nothing was judged of add on s");
  EXPECT_EQ(VerdictSentence(faults, {"add on s", "sub on s"}),
            "NOT OK: 3 new faults; nothing was judged of add on s, and 1 more; 1 known departure, "
            "folded by reason");
}

// The page shows the finding that the terminal shows.
TEST(Faults, ShowTheFindingThatTheRunCallsTheBest) {
  OutputFolder folder;
  RecordedFinding exact = FindingOn("mine", "matches_exact", "tail");
  RecordedFinding clamp = FindingOn("mine", "clamp", "tail");
  for (const RecordedFinding& finding : {exact, clamp}) folder.evidence[finding.fingerprint] = {};
  const auto shown = [&] {
    folder.record.findings = {exact, clamp};
    const std::string page = PageOf(folder);
    const auto shows = [&](const RecordedFinding& finding) {
      return page.find("explain findings/" + finding.fingerprint) != std::string::npos;
    };
    return shows(exact) ? shows(clamp) ? "both" : "exact" : shows(clamp) ? "clamp" : "none";
  };
  EXPECT_STREQ(shown(), "exact");
  exact.fault = clamp.fault = clamp.fingerprint;
  EXPECT_STREQ(shown(), "clamp");
}

// A subject may promise another contract for each operation.
TEST(Faults, AreExcusedByTheContractOfTheirOperation) {
  for (const auto& [contract, reason] :
       {std::pair{"exact,linear=model:a", "as a does"},
        {"model:a,add=exact", "as a does"},
        {"model:a,linear=exact", "declared in adapters/contracts.cc"},
        {kHostile, "declared in adapters/contracts.cc"}}) {
    ResultRecord record;
    record.subjects = {{"mine", contract}};
    record.declared = {{"model:a", "linear", "matches_exact", "tail", "as a does", ""}};
    record.findings = {FindingOn("mine", "matches_exact", "tail")};
    record.findings[0].expected_by_contract = true;
    EXPECT_EQ(FaultsOf(record)[0].reason, reason) << contract;
  }
}

// The answer in the first environment is not necessarily right, so it is not called expected.
TEST(Faults, AnEnvironmentIsNotCalledExpected) {
  OutputFolder folder;
  RecordedFinding finding = FindingOn("onednn", "environment", "rounding");
  finding.explanation =
      "the result changes with rounding down: expected 255 at output [0,0], got 0";
  finding.divergence = Divergence{0, "255", "0", 255};
  folder.record.findings = {finding};
  const std::string page = PageOf(folder);
  EXPECT_FALSE(Has(page, "expected 255"));
  EXPECT_TRUE(Has(page, "is 255 in the environment that programs start with, and 0 in the other"));
}

// A reader can take the case away as a program, as the text of an issue, and so on.
TEST(Faults, ExportersHaveButtons) {
  OutputFolder folder;
  folder.record.findings = {FindingOn("onednn@avx2", "matches_exact", "pair-saturation")};
  Case c;
  c.M = c.N = 1;
  c.K = 2;
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{129, 132});
  c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{127, 127});
  c.out_q.scale = {256};
  c.observed = Observed{"onednn@avx2", Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{128})};
  folder.evidence[folder.record.findings.front().fingerprint].minimized = c;
  const std::string page = PageOf(folder);
  std::set<std::string_view> shown;
  for (const exporters::Exporter& exporter : exporters::AllExporters()) {
    if (page.find("<code>" + std::string(exporter.kind) + "</code>: ") != std::string::npos)
      shown.insert(exporter.kind);
  }
  EXPECT_TRUE(shown.contains("case"));
  EXPECT_TRUE(Has(page, "qualm replay findings/" + folder.record.findings.front().fingerprint +
                            "/minimized.case.json --subject onednn@avx2"));
  EXPECT_GE(shown.size(), 6u) << testing::PrintToString(shown);
  for (const char* kind : {"cpp", "gtest", "numpy", "issue"})
    EXPECT_TRUE(shown.contains(kind)) << kind;
  EXPECT_TRUE(Has(page, "129 × 127 + 132 × 127 = 33,147 would be cut off at 32,767, 380 lost"));
}

TEST(Upstream, FilesAndIssuesAreLinks) {
  const Text text = WithUpstreamLinks(
      "adds in 16 bits (FBGEMM src/A.cc; pytorch/FBGEMM issue 125, oneDNN 2.6 src/cpu/x.cpp)");
  std::vector<std::string> links;
  std::string words;
  for (const Span& span : text.spans()) {
    words += span.text;
    if (span.kind == Span::Kind::kLink) links.push_back(span.href);
  }
  EXPECT_EQ(
      words,
      "adds in 16 bits (FBGEMM src/A.cc; pytorch/FBGEMM issue 125, oneDNN 2.6 src/cpu/x.cpp)");
  EXPECT_EQ(links, (std::vector<std::string>{
                       "https://github.com/pytorch/FBGEMM/blob/71d6f8b/src/A.cc",
                       "https://github.com/pytorch/FBGEMM/issues/125",
                       "https://github.com/uxlfoundation/oneDNN/blob/v2.6/src/cpu/x.cpp"}));
}

TEST(Words, NumbersAndLists) {
  EXPECT_EQ(Number(-1234567), "-1,234,567");
  EXPECT_EQ(Number(-123), "-123");
  EXPECT_EQ(Number(1000), "1,000");
  EXPECT_EQ(Count(1, "fault"), "1 fault");
  EXPECT_EQ(List({"a", "b", "c"}), "a, b and c");
}

TEST(Words, HexBecomesTheShortestDecimal) {
  EXPECT_EQ(WithDecimals("to float32: 3 -> 0x1.8p+1; times 0x1p-8"),
            "to float32: 3 -> 3; times 0.00390625");
  EXPECT_EQ(WithDecimals("-0x1.99999ap-4, -0x0p+0, 0x1.999999999999ap-4"), "-0.1, -0, 0.1");
  EXPECT_EQ(WithDecimals("0x10 and x0p+1"), "0x10 and x0p+1");
}

// No two kinds are described in the same words.
TEST(Words, EveryKindHasItsOwn) {
  std::set<std::string_view> seen;
  for (int kind = 0; kind <= static_cast<int>(FindingKind::kUnknown); ++kind) {
    const std::string_view name = Name(static_cast<FindingKind>(kind));
    EXPECT_TRUE(seen.insert(WordsOf(name)).second) << name << " is told as another kind";
  }
}

// Wherever a convention departs in a documented case, its table says at which step.
TEST(Worked, MarksTheStepOfEveryDeparture) {
  int tables = 0;
  for (const char* folder : {"forum", "regressions"}) {
    for (const auto& entry :
         fs::directory_iterator(fs::path(QUALM_SOURCE_DIR "/corpus") / folder)) {
      if (!entry.path().string().ends_with(".case.json")) continue;
      const Case c = ReadCaseFile(entry.path().string());
      const Tensor exact = exact::Evaluate(c);
      for (const Convention& convention : AllConventions()) {
        if (!convention.cannot_run(c).empty()) continue;
        const Answer answer{convention.name, convention.run(c).y, &convention};
        const auto departs = FirstDivergence(exact, answer.y);
        if (!departs || convention.trace(c, departs->index).empty()) continue;
        const Table table = StepTable(c, departs->index, &answer);
        const auto marked = std::count_if(
            table.rows.begin(), table.rows.end(),
            [](const std::vector<Cell>& row) { return row.back().tone == Tone::kBad; });
        // The output is in the same colour.
        EXPECT_EQ(marked, 2) << entry.path() << ", " << convention.name;
        ++tables;
      }
    }
  }
  EXPECT_GT(tables, 100);
}

// Each product has its number below, each sum its line.
TEST(Pictures, ATreeHasEveryProduct) {
  const auto count = [](const std::string& text, const std::string& part) {
    size_t times = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++times;
    return times;
  };
  const conventions::SumTree tree = conventions::TreeOf({.lanes = 4}, 11);
  const std::string svg = SumTreePicture(tree, "four <lanes>").File();
  EXPECT_NE(svg.find("four &lt;lanes&gt;"), std::string::npos);
  for (int k = 0; k < 11; ++k) EXPECT_EQ(count(svg, ">" + std::to_string(k) + "</text>"), 1u) << k;
  EXPECT_EQ(count(svg, "class=\"q-a\""), 3u * 10 + 1) << "two branches and a line of each sum";
  EXPECT_EQ(count(svg, "class=\"q-exact\""), 0u);
  const conventions::SumTree fused = conventions::RevealTree(3, [](int64_t, int64_t) { return 3; });
  EXPECT_EQ(count(SumTreePicture(fused, "").Inline(), "class=\"q-exact\""), 1u);
}

TEST(Pictures, LabelsOfKinksDoNotOverlap) {
  std::vector<int32_t> codes, line;
  for (int32_t code = 0; code < 256; ++code) codes.push_back(code), line.push_back(code);
  std::vector<SweepKink> kinks;
  for (int32_t at : {181, 183, 186, 189, 250, 255})
    kinks.push_back({{0, at % 8, 130, at}, at, true});
  const std::string svg = SweepPicture("output 0", codes, line, {{"s", line}}, kinks).Inline();
  std::map<std::string, std::vector<std::pair<double, double>>> rows;  // by y
  size_t labels = 0;
  for (size_t at = svg.find("<text"); at != std::string::npos; at = svg.find("<text", at + 1)) {
    const std::string element = svg.substr(at, svg.find("</text>", at) - at);
    if (element.find(">w") == std::string::npos) continue;
    ++labels;
    const double x = std::stod(element.substr(element.find(" x=\"") + 4));
    const std::string y = element.substr(element.find(" y=\"") + 4, 4);
    const double width = 6.6 * static_cast<double>(element.size() - element.find(">w") - 1);
    EXPECT_LE(x + width, 520) << element;
    for (const auto& [from, to] : rows[y]) EXPECT_TRUE(x >= to || x + width <= from) << element;
    rows[y].emplace_back(x, x + width);
  }
  EXPECT_GE(labels, 4u);
}

TEST(Pictures, ErrorsAreCountedWithTheirSign) {
  const Tensor exact = Tensor::Of<uint8_t>({8, 10}, std::vector<uint8_t>(80, 100));
  std::vector<uint8_t> values(80, 100);
  values[3] = 101;
  values[13] = 101;
  values[23] = 90;
  const Tensor answer = Tensor::Of<uint8_t>({8, 10}, values);
  const std::string bars = ErrorHistogram(exact, answer).Inline();
  EXPECT_TRUE(Has(bars, "+1: 2 outputs"));
  EXPECT_TRUE(Has(bars, "-10: 1 output"));
  EXPECT_TRUE(Has(MismatchMap(exact, answer).Inline(), "row 2, column 3: 1 wrong, -10 in all"));
  EXPECT_TRUE(ErrorHistogram(exact, exact).empty());
  EXPECT_TRUE(MismatchMap(exact, exact).empty());
}

TEST(Pictures, ACampaignOverTime) {
  ResultRecord record = ParseResult(
      R"({"schema": "qualm.result/1", "command": "", "seconds": 0, "totals": {}, "campaign": {
         "faults": [], "course": [
         {"seconds": 0, "executions": 0, "inputs": 0, "faults": 0},
         {"seconds": 3600, "executions": 10, "inputs": 4, "faults": 0},
         {"seconds": 7200, "executions": 30, "inputs": 5, "faults": 2}]}})",
      "r.json");
  ASSERT_EQ(record.course.size(), 3u);
  EXPECT_TRUE(CourseOf(record).empty()) << "too short";
  record.course.push_back({36'000, 31, 6, 2});
  const std::string page = Html({}, CourseOf(record));
  EXPECT_TRUE(Has(page, "2 faults after 10 hours."));
  EXPECT_TRUE(Has(page, "6 kept inputs after 10 hours."));
  EXPECT_TRUE(Has(page, "31 executions after 10 hours."));
}

// The distance of two floats is the number of representable steps between them. A NaN has no
// distance and is not counted.
TEST(Pictures, ErrorsOfFloats) {
  const Tensor exact = Tensor::Of<float>({4}, std::vector<float>{1, 1, -1, 1});
  const Tensor answer =
      Tensor::Of<float>({4}, std::vector<float>{1 + 0x1p-23f, 1, -1 - 0x1p-22f, NAN});
  EXPECT_EQ(ErrorsOf(exact, answer), (std::map<int64_t, int64_t>{{-2, 1}, {1, 1}}));
  EXPECT_TRUE(Has(ErrorHistogram(exact, answer).Inline(), "in representable values"));
}

// The kernel of this finding has no convention to compute its outputs, so the picture takes the
// answer that stands in the case.
TEST(Pictures, AFindingShowsHowFarItsSubjectIsOff) {
  OutputFolder folder;
  RecordedFinding finding = FindingOn("plugin:mine.so", "matches_exact", "rounding");
  finding.op = "rescale";
  folder.record.findings = {finding};
  Case c = CaseOver(Op::kRescale, Tensor(DType::kU8, {1, 90}), DType::kU8);
  Tensor y = exact::Evaluate(c);
  y.SetInt(3, 2);
  y.SetInt(8, 2);
  const auto page_with = [&](const std::string& by) {
    c.observed = Observed{by, y};
    folder.evidence[finding.fingerprint].found = c;
    return PageOf(folder);
  };
  EXPECT_TRUE(
      Has(page_with("plugin:mine.so"), "plugin:mine.so is off in 2 of 90 outputs, by +2 codes."));
  y.SetInt(9, 1);
  EXPECT_TRUE(Has(page_with("plugin:mine.so"),
                  "histogram of 3 wrong outputs of 90, the largest error is 2"));
  EXPECT_FALSE(Has(page_with("somebody else"), "histogram of"));
}

models::Row JudgedRow(const std::string& name, double quantization, double kernel) {
  models::Row row;
  row.name = name;
  row.op = Op::kLinear;
  row.judged.emplace();
  row.judged->outputs = 10;
  row.judged->departing = kernel != 0 ? 1 : 0;
  auto& split = row.judged->split.emplace();
  split.quantization = {quantization, 2 * quantization};
  split.kernel = {kernel, 4 * kernel};
  split.signal = split.answer = {100, 100};
  split.total = split.quantization;
  return row;
}

TEST(CertifyPage, ABarForEachUnsafeChannel) {
  proofs::Proof proof;
  proof.channels = 300;
  proof.sums = 900;
  const std::string safe = CertifyPage({{"a.npy", "linear", "pairs", proof}});
  EXPECT_TRUE(Has(safe, "No: proven for every input"));
  EXPECT_TRUE(UnsafeChannels(proof).empty());
  proof.unsafe = {{.n = 3, .sums = 2}, {.n = 5, .sums = 1}, {.n = 299, .sums = 4}};
  proof.unsafe_sums = 7;
  // Of 300 channels three share a bar.
  const std::string bars = UnsafeChannels(proof).Inline();
  EXPECT_TRUE(Has(bars, "channels 3 to 5: 3 unsafe sums"));
  EXPECT_TRUE(Has(bars, "channels 297 to 299: 4 unsafe sums"));
  EXPECT_TRUE(Has(bars, "3 of 300 channels with sums that may overflow"));
  const std::string page = CertifyPage({{"a.npy", "linear", "pairs", proof}});
  EXPECT_TRUE(Has(page, "Yes: 1 of the 1 proof below fails."));
  EXPECT_TRUE(Has(page, "pairs: 3 of 300 channels, 7 of 900 sums may overflow"));
  proof.unsafe.clear();
  proof.most = int64_t{1} << 40;
  EXPECT_TRUE(Has(CertifyPage({{"a.npy", "linear", "pairs", proof}}), "beyond int32"));
}

// The axis is logarithmic and begins at a hundredth of a code. An error of 0 has no bar.
TEST(ModelPage, BarsGrowWithTheErrorOfALayer) {
  models::ModelRun run;
  run.rows = {JudgedRow("a", 0.25, 0), JudgedRow("a<b", 0.25, 2.5), JudgedRow("c", 25, 0)};
  const std::string bars = LayerBars(run).Inline();
  const auto width = [&](const std::string& title) {
    const size_t at = bars.find("<title>" + title);
    EXPECT_NE(at, std::string::npos) << title;
    const size_t from = bars.rfind("width=\"", at);
    return std::stod(bars.substr(from + 7));
  };
  const double low = width("a: quantization 0.25 (at most 0.5)");
  EXPECT_NEAR(low, width("a&lt;b: quantization 0.25 (at most 0.5)"), 0.1);
  const double decade = width("c: quantization 25 (at most 50)") - low;
  EXPECT_NEAR(width("a&lt;b: kernel error 2.5 (at most 10)") - low, decade / 2, 0.2);
  EXPECT_FALSE(Has(bars, "a: kernel error"));
  EXPECT_TRUE(LayerBars({}).empty());
}

TEST(ModelPage, TheWorstLayerIsFirstAndWhatIsNotJudgedHasItsReason) {
  models::ModelRun run;
  run.by = "somebody";
  run.rows = {
      JudgedRow("good", 0.25, 0), JudgedRow("far", 0.25, 3), JudgedRow("near", 0.25, 1), {}};
  run.rows[1].judged->conventions = {"fbgemm@avx2"};
  run.rows[2].judged->conventions = {};
  run.rows[1].judged->errors = {{-3, 2}, {9, 1}};
  run.rows[3].name = "soft";
  run.rows[3].not_run = "operator Softmax";
  const std::string page = ModelPage(run, "folder/net.onnx", {"drawn"});
  const size_t table = page.find("whose arithmetic");
  const size_t near = page.find("near", table), far = page.find("far", table);
  EXPECT_LT(near, far) << "no known arithmetic comes first, however small";
  EXPECT_LT(far, page.find("good", table));
  EXPECT_TRUE(
      Has(page, "somebody: of 3 layers: 1 exact, 1 not exact in a known way, 1 WRONG: near"));
  EXPECT_TRUE(Has(page, "histogram of 3 wrong outputs of 10, the largest error is 9"));
  EXPECT_TRUE(Has(page, "not run: operator Softmax"));
  EXPECT_FALSE(Has(page, "folder/"));
}

TEST(Markdown, TextStaysText) {
  MarkdownPage page("pictures");
  page.Add({Paragraph{Text("a|b <i> ") + Code("x*y")}, Table{"t", {"h"}, {{"1 * 2"}}}});
  EXPECT_EQ(page.text(), "a\\|b \\<i\\> `x*y`\n\nt:\n\n| h |\n|---|\n| 1 \\* 2 |\n\n");
}

// docs/forum.md is equal to the output of `qualm report --forum docs`.
TEST(Forum, TheCommittedPageIsCurrent) {
  RegisterAllSubjects();
  const fs::path folder = fs::temp_directory_path() / ("qualm-forum-" + std::to_string(getpid()));
  WriteForumPage(QUALM_SOURCE_DIR "/corpus", folder.string());
  const fs::path docs = QUALM_SOURCE_DIR "/docs";
  EXPECT_EQ(Read(folder / "forum.md"), Read(docs / "forum.md")) << "run: qualm report --forum docs";
  int pictures = 0;
  for (const auto& entry : fs::directory_iterator(folder / "forum")) {
    EXPECT_EQ(Read(entry.path()), Read(docs / "forum" / entry.path().filename())) << entry.path();
    ++pictures;
  }
  EXPECT_EQ(pictures, std::distance(fs::directory_iterator(docs / "forum"), {}));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace qualm::report
