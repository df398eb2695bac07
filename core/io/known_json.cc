// SPDX-License-Identifier: Apache-2.0
#include "core/io/known_json.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/io/members.h"

namespace qualm {
namespace {

constexpr DocumentKind kBaseline{"qualm.result/1", "baseline", size_t{1} << 28};
constexpr DocumentKind kSuppressions{"qualm.suppressions/1", "suppression list", size_t{1} << 24};

constexpr auto NonEmpty(std::string_view expected) {
  return How{expected, [](const JsonNode& node, std::string& text) {
               text = node.Text();
               if (text.find_first_not_of(" \t\r\n") == std::string::npos)
                 node.Fail("is empty, expected a text");
             }};
}

constexpr How kDate{"a date YYYY-MM-DD", [](const JsonNode& node, Date& date) {
                      const std::optional<Date> read = ParseDate(node.Text());
                      if (!read)
                        node.Fail("is " + Shown(node.Text()) + ", expected a date YYYY-MM-DD");
                      date = *read;
                    }};

int Digits(std::string_view text) {
  int value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return -1;
    value = 10 * value + (digit - '0');
  }
  return value;
}

}  // namespace

static void MembersOf(Suppression& suppression, const auto& visit) {
  visit("fingerprint", suppression.fingerprint, NonEmpty("that of a finding"));
  visit("reason", suppression.reason, NonEmpty("why this finding is suppressed"));
  visit("expires", suppression.expires, kDate);
}

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
  const nlohmann::json tree = kBaseline.Tree(text, name);
  const JsonNode findings =
      kBaseline.Top(tree, name).At("findings", "what qualm check --json wrote");
  std::set<std::string> fingerprints;
  for (size_t i = 0; i < findings.SizeOfList(); ++i) {
    const JsonNode finding = findings.At(i);
    std::string fingerprint;
    NonEmpty("").read(finding.At("fingerprint", "a text"), fingerprint);
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
  return ParseBaseline(kBaseline.ReadFile(path), path);
}

std::vector<Suppression> ParseSuppressions(std::string_view text, std::string_view name) {
  const nlohmann::json tree = kSuppressions.Tree(text, name);
  const JsonNode top = kSuppressions.Top(tree, name);
  top.RequireKeys({"schema", "suppressions"});
  const JsonNode list = top.At("suppressions", "a list");
  std::vector<Suppression> suppressions;
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < list.SizeOfList(); ++i) {
    const JsonNode entry = list.At(i);
    entry.RequireObject("an object with fingerprint, reason and expires");
    Suppression& suppression = suppressions.emplace_back();
    ReadMembers(entry, suppression);
    const auto [at, is_first] = seen.emplace(suppression.fingerprint, i);
    if (!is_first) {
      entry.At("fingerprint", "")
          .Fail("is that of suppressions[" + std::to_string(at->second) +
                "] already, expected each once");
    }
  }
  return suppressions;
}

std::vector<Suppression> ReadSuppressionsFile(const std::string& path) {
  return ParseSuppressions(kSuppressions.ReadFile(path), path);
}

}  // namespace qualm
