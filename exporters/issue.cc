// SPDX-License-Identifier: Apache-2.0
// The text of an issue, as a maintainer wants to read it: what, where, how to see it, why.
#include <fmt/format.h>

#include "core/io/case_json.h"
#include "exporters/evidence.h"
#include "triage/triage.h"

namespace qualm::exporters {
namespace {

// GitHub takes 65,536 characters. A longer text than this goes into a file of its own.
constexpr size_t kMostInside = 12'000;

// First the program that the library's own people run, then programs that anybody can run.
std::vector<std::string> SnippetKindsOf(const Evidence& evidence) {
  const std::string& who = evidence.finding.subject;
  const auto is = [&](std::string_view name) { return who.find(name) != std::string::npos; };
  std::vector<std::string> kinds;
  if (is("torch") || is("fbgemm") || is("qnnpack")) kinds.emplace_back("pytorch");
  if (is("onednn") && !is("torch")) kinds.emplace_back("onednn");
  const bool of_2024 = evidence.environment.library.ends_with("of 2024") || is("xnnpack2024");
  if (is("xnnpack")) kinds.emplace_back(of_2024 ? "xnnpack2024" : "xnnpack");
  kinds.insert(kinds.end(), {"cpp", "numpy"});
  return kinds;
}

std::string EnvironmentText(const Evidence& evidence) {
  const Environment& e = evidence.environment;
  std::string text;
  const auto line = [&](std::string_view what, const std::string& value) {
    if (!value.empty()) text += fmt::format("* {}: {}\n", what, Code(value));
  };
  line("subject", evidence.finding.subject);
  line("version", e.library);
  line("instruction set", e.instruction_set);
  line("processor", e.processor);
  line("found with", e.qualm.empty() ? "" : "qualm " + e.qualm);
  return text;
}

std::string Title(const Evidence& evidence) {
  const Case& c = evidence.c;
  std::string text = fmt::format("{} {}: ", Name(c.op), TypesText(c));
  const auto first = c.observed ? FirstDivergence(evidence.expected, c.observed->y) : std::nullopt;
  text += first ? fmt::format("{} instead of {}", first->actual, first->expected)
                : evidence.finding.property + " fails";
  if (evidence.finding.kind != FindingKind::kUnknown)
    text += fmt::format(" ({})", Name(evidence.finding.kind));
  return text;
}

std::string Numbers(const Tensor& y) {
  constexpr int64_t kMost = 64;
  std::string text;
  for (int64_t i = 0; i < std::min(y.size(), kMost); ++i)
    text += (i != 0 ? " " : "") + ElementText(y, i);
  return text + (y.size() > kMost ? fmt::format(" ... ({} numbers)", y.size()) : "");
}

// A crash leaves no answer, and a claim may fail although the answer to the case itself is exact.
std::string Actual(const Evidence& evidence) {
  const Case& c = evidence.c;
  if (evidence.finding.explanation.empty() || (c.observed && c.observed->y != evidence.expected))
    return Code(Numbers(evidence.answer().y));
  return Code(evidence.finding.explanation);
}

// A program that shows the failure, or "" if no exporter can write one.
std::string Snippet(const Evidence& evidence) {
  for (const std::string& kind : SnippetKindsOf(evidence)) {
    try {
      const auto [name, text] =
          Export(kind, evidence.c, evidence.finding, evidence.environment).front();
      if (text.size() > kMostInside)
        return fmt::format("The program is long: see the attached file (`--emit {}`).\n", kind);
      return Fence(name.substr(name.rfind('.') + 1), text);
    } catch (const InputError&) {
      continue;  // the next kind may know the operation
    }
  }
  return "";
}

std::string CaseText(const Case& c) {
  const std::string text = CaseToJson(c);
  if (text.size() > kMostInside) return "The case is long: see the attached file.\n";
  return "<details><summary>The case, for qualm</summary>\n\n" + Fence("json", text) +
         "\n</details>\n";
}

// Links for further reading.
std::string Links(const Evidence& evidence) {
  if (evidence.finding.kind != FindingKind::kPairSaturation) return "";
  return "\nThe instruction: "
         "[vpmaddubsw](https://www.felixcloutier.com/x86/pmaddubsw), \"adds pairs of saturated\n"
         "signed words\". VNNI's [vpdpbusd](https://www.felixcloutier.com/x86/vpdpbusd) adds the "
         "products in 32 bits.\n";
}

}  // namespace

std::string WriteIssue(const Evidence& evidence) {
  const Case& c = evidence.c;
  const Finding& finding = evidence.finding;
  const std::string snippet = Snippet(evidence);
  Case shown = c;
  if (shown.observed) shown.observed->by = Plain(shown.observed->by);
  const std::string& command = evidence.environment.command;
  return Fill(
      R"(# $title$

$sentence$

## Environment

$environment$
## Steps

$snippet$$command$
## Expected

$expected$

## Actual

$actual$

## Why

$why$$links$
$case$)",
      {{"title", Title(evidence)},
       {"sentence", finding.explanation.empty() ? "The answer is not the exact one."
                                                : Code(finding.explanation)},
       {"environment", EnvironmentText(evidence)},
       {"snippet", snippet},
       {"command", command.empty() ? ""
                                   : "\nWith qualm and the case below, as case.json:\n\n" +
                                         Fence("sh", Plain(command))},
       {"expected", Code(Numbers(evidence.expected))},
       {"actual", Actual(evidence)},
       {"why", Fence("", triage::Explain(shown, {}))},
       {"links", Links(evidence)},
       {"case", CaseText(c)}});
}

}  // namespace qualm::exporters
