// SPDX-License-Identifier: Apache-2.0
#include "core/io/result_json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

namespace qualm {
namespace {

constexpr std::array<std::string_view, 7> kTotals{"cases",   "passed",  "failed",        "expected",
                                                  "skipped", "vacuous", "not_applicable"};

// Shortest text that reads back equal; JSON has no infinities.
std::string NumberToken(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

// As in case files: integer codes are numbers, floats are hex strings.
std::string ElementToken(const std::string& text) {
  int32_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty() ? std::to_string(value)
                                                              : JsonQuote(text);
}

std::string MarkToJson(const KnownMark& mark) {
  std::string json = "{\"by\": " + JsonQuote(mark.by);
  if (!mark.reason.empty()) json += ", \"reason\": " + JsonQuote(mark.reason);
  if (!mark.expires.empty()) json += ", \"expires\": " + JsonQuote(mark.expires);
  return json + "}";
}

std::string FindingToJson(const Finding& finding, const std::map<std::string, KnownMark>& known) {
  std::string json = "{\"fingerprint\": " + JsonQuote(finding.fingerprint());
  json += ", \"op\": " + JsonQuote(finding.op);
  json += ", \"property\": " + JsonQuote(finding.full_property());
  json += ", \"subject\": " + JsonQuote(finding.subject);
  json += ", \"kind\": " + JsonQuote(Name(finding.kind));
  json += ", \"expected_by_contract\": ";
  json += finding.expected_by_contract ? "true" : "false";
  json += ", \"case_file\": ";
  json += finding.case_file.empty() ? "null" : JsonQuote(finding.case_file);
  json += ", \"first_divergence\": ";
  if (const auto& divergence = finding.first_divergence) {
    json += "{\"index\": " + std::to_string(divergence->index);
    json += ", \"expected\": " + ElementToken(divergence->expected);
    json += ", \"actual\": " + ElementToken(divergence->actual);
    json += ", \"distance_lsb\": " + NumberToken(divergence->distance_lsb) + "}";
  } else {
    json += "null";
  }
  json += ", \"explanation\": " + JsonQuote(finding.explanation);
  const auto mark = known.find(finding.fingerprint());
  if (mark != known.end()) json += ", \"known\": " + MarkToJson(mark->second);
  return json + "}";
}

// Entries on lines of their own, "[]" if there are none.
std::string Lines(const std::vector<std::string>& entries) {
  std::string text = "[";
  for (size_t i = 0; i < entries.size(); ++i) {
    text += i != 0 ? ",\n    " : "\n    ";
    text += entries[i];
  }
  return text + (entries.empty() ? "]" : "\n  ]");
}

}  // namespace

std::string ResultToJson(const ResultDocument& document) {
  std::string json = "{\n  \"schema\": \"qualm.result/1\"";
  json += ",\n  \"command\": " + JsonQuote(document.command);
  json += ",\n  \"seed\": " + (document.seed ? std::to_string(*document.seed) : "null");

  std::vector<std::string> subjects;
  subjects.reserve(document.subjects.size());
  for (const auto& [name, contract] : document.subjects) {
    subjects.push_back("{\"name\": " + JsonQuote(name) + ", \"contract\": " + JsonQuote(contract) +
                       "}");
  }
  json += ",\n  \"subjects\": " + Lines(subjects);

  json += ",\n  \"totals\": {";
  for (size_t i = 0; i < kTotals.size(); ++i) {
    const auto found = document.totals.find(std::string(kTotals[i]));
    json += i != 0 ? ", " : "";
    json += JsonQuote(kTotals[i]) + ": " +
            std::to_string(found == document.totals.end() ? 0 : found->second);
  }
  json += "}";

  std::vector<std::string> findings;
  findings.reserve(document.findings.size());
  for (const Finding& finding : document.findings) {
    findings.push_back(FindingToJson(finding, document.known));
  }
  json += ",\n  \"findings\": " + Lines(findings);

  for (const auto& [key, block] : document.extra) json += ",\n  " + JsonQuote(key) + ": " + block;
  return json + ",\n  \"seconds\": " + NumberToken(document.seconds) + "\n}\n";
}

}  // namespace qualm
