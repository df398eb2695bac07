// SPDX-License-Identifier: Apache-2.0
#include "core/io/known_json.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "core/io/json_text.h"
#include "core/io/strict_json.h"
#include "core/io/text_file.h"

namespace qualm {
namespace {

constexpr std::string_view kBaseline = "baseline";
constexpr std::string_view kSuppressions = "suppression list";
constexpr size_t kMaxBaselineBytes = size_t{1} << 28;
constexpr size_t kMaxSuppressionsBytes = size_t{1} << 24;

JsonNode TopOf(const nlohmann::json& tree, std::string_view name, const std::string& schema) {
  const JsonNode top(tree, name);
  const std::string expected = JsonQuote(schema);
  const JsonNode given = top.At("schema", expected);
  if (given.Text() != schema) given.Fail("is " + Shown(given.Text()) + ", expected " + expected);
  return top;
}

std::string NonEmpty(const JsonNode& node) {
  const std::string& text = node.Text();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    node.Fail("is empty, expected a text");
  }
  return text;
}

int Digits(std::string_view text) {
  int value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return -1;
    value = 10 * value + (digit - '0');
  }
  return value;
}

}  // namespace

std::optional<Date> ParseDate(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  const int year = Digits(text.substr(0, 4));
  const int month = Digits(text.substr(5, 2));
  const int day = Digits(text.substr(8, 2));
  if (year < 0 || month < 0 || day < 0) return std::nullopt;
  const Date date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                  std::chrono::day(static_cast<unsigned>(day))};
  return date.ok() ? std::optional(date) : std::nullopt;
}

std::string DateText(const Date& date) {
  const auto padded = [](int64_t value, size_t digits) {
    const std::string text = std::to_string(value);
    return std::string(digits - std::min(digits, text.size()), '0') + text;
  };
  return padded(static_cast<int>(date.year()), 4) + "-" +
         padded(static_cast<unsigned>(date.month()), 2) + "-" +
         padded(static_cast<unsigned>(date.day()), 2);
}

std::set<std::string> ParseBaseline(std::string_view text, std::string_view name) {
  CheckLength(text, name, kBaseline, kMaxBaselineBytes);
  const nlohmann::json tree = ParseStrictJson(text, name);
  const JsonNode findings =
      TopOf(tree, name, "qualm.result/1").At("findings", "what qualm check --json wrote");
  std::set<std::string> fingerprints;
  for (size_t i = 0; i < findings.SizeOfList(); ++i) {
    const JsonNode finding = findings.At(i);
    const std::string fingerprint = NonEmpty(finding.At("fingerprint", "a text"));
    if (finding.Has("known")) {
      const JsonNode by = finding.At("known", "an object").At("by", "a text");
      if (by.Text() == "suppression") continue;
      if (by.Text() != "baseline") {
        by.Fail("is " + Shown(by.Text()) + R"(, expected "baseline" or "suppression")");
      }
    }
    fingerprints.insert(fingerprint);
  }
  return fingerprints;
}

std::set<std::string> ReadBaselineFile(const std::string& path) {
  return ParseBaseline(ReadTextFile(path, kBaseline, kMaxBaselineBytes), path);
}

std::vector<Suppression> ParseSuppressions(std::string_view text, std::string_view name) {
  CheckLength(text, name, kSuppressions, kMaxSuppressionsBytes);
  const nlohmann::json tree = ParseStrictJson(text, name);
  const JsonNode top = TopOf(tree, name, "qualm.suppressions/1");
  top.RequireKeys({"schema", "suppressions"});
  const JsonNode list = top.At("suppressions", "a list");
  std::vector<Suppression> suppressions;
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < list.SizeOfList(); ++i) {
    const JsonNode entry = list.At(i);
    entry.RequireObject("an object with fingerprint, reason and expires");
    entry.RequireKeys({"fingerprint", "reason", "expires"});
    const JsonNode fingerprint = entry.At("fingerprint", "that of a finding");
    const JsonNode expires = entry.At("expires", "a date YYYY-MM-DD");
    Suppression suppression;
    suppression.fingerprint = NonEmpty(fingerprint);
    suppression.reason = NonEmpty(entry.At("reason", "why this finding is suppressed"));
    const std::optional<Date> date = ParseDate(expires.Text());
    if (!date) expires.Fail("is " + Shown(expires.Text()) + ", expected a date YYYY-MM-DD");
    suppression.expires = *date;
    const auto [at, is_first] = seen.emplace(suppression.fingerprint, i);
    if (!is_first) {
      fingerprint.Fail("is that of suppressions[" + std::to_string(at->second) +
                       "] already, expected each once");
    }
    suppressions.push_back(std::move(suppression));
  }
  return suppressions;
}

std::vector<Suppression> ReadSuppressionsFile(const std::string& path) {
  return ParseSuppressions(ReadTextFile(path, kSuppressions, kMaxSuppressionsBytes), path);
}

}  // namespace qualm
