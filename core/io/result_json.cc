// SPDX-License-Identifier: Apache-2.0
#include "core/io/result_json.h"

#include <array>
#include <string_view>

#include "core/io/members.h"

namespace qualm {
namespace {

constexpr std::array<std::string_view, 7> kTotals{"cases",   "passed",  "failed",        "expected",
                                                  "skipped", "vacuous", "not_applicable"};

// Long lists have a line for each entry.
constexpr JsonLayout kInnerLines{"\n    ", ",\n    ", ": ", "\n  "};

JsonValue MarkToJson(const KnownMark& mark) {
  JsonObject json({{"by", mark.by}}, kSpaced);
  if (!mark.reason.empty()) json.Add("reason", mark.reason);
  if (!mark.expires.empty()) json.Add("expires", mark.expires);
  return json;
}

JsonValue DivergenceToJson(const Divergence& divergence) {
  return JsonObject({{"index", divergence.index},
                     {"expected", JsonValue::Element(divergence.expected)},
                     {"actual", JsonValue::Element(divergence.actual)},
                     {"distance_lsb", divergence.distance_lsb}},
                    kSpaced);
}

JsonValue FindingToJson(const Finding& finding, const std::map<std::string, KnownMark>& known) {
  const auto& divergence = finding.first_divergence;
  JsonObject json({{"fingerprint", finding.fingerprint()},
                   {"op", finding.op},
                   {"property", finding.full_property()},
                   {"subject", finding.subject},
                   {"kind", Name(finding.kind)},
                   {"expected_by_contract", finding.expected_by_contract},
                   {"case_file", JsonValue::OrNull(finding.case_file)},
                   {"first_divergence", divergence ? DivergenceToJson(*divergence) : std::nullopt},
                   {"explanation", finding.explanation}},
                  kSpaced);
  if (!finding.declared.empty()) json.Add("declared", finding.declared);
  const auto mark = known.find(finding.fingerprint());
  if (mark != known.end()) json.Add("known", MarkToJson(mark->second));
  return json;
}

}  // namespace

std::string ResultToJson(const ResultDocument& document) {
  JsonList subjects(kInnerLines);
  for (const auto& [name, contract] : document.subjects)
    subjects.Add(JsonObject({{"name", name}, {"contract", contract}}, kSpaced));
  JsonObject totals(kSpaced);
  for (const std::string_view name : kTotals) {
    const auto found = document.totals.find(std::string(name));
    totals.Add(name, found == document.totals.end() ? 0 : found->second);
  }
  JsonList findings(kInnerLines);
  for (const Finding& finding : document.findings)
    findings.Add(FindingToJson(finding, document.known));
  JsonObject json({{"schema", "qualm.result/1"},
                   {"command", document.command},
                   {"seed", document.seed},
                   {"subjects", subjects},
                   {"totals", totals},
                   {"findings", findings}},
                  kLines);
  for (const auto& [key, block] : document.extra) json.Add(key, block);
  json.Add("seconds", document.seconds);
  return JsonValue(json).text() + "\n";
}

}  // namespace qualm
