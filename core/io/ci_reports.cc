// SPDX-License-Identifier: Apache-2.0
// What CI servers show of a result: GitHub's annotations and job summary, SARIF for code scanning.
#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/io/json_writer.h"
#include "core/io/result_json.h"

namespace qualm {
namespace {

bool IsNew(const Finding& finding, const ResultDocument& document) {
  return !finding.expected_by_contract && !document.known.contains(finding.fingerprint());
}

// The new findings of one subject, operation and kind: most often one fault that fails several
// claims.
struct Group {
  const Finding* first = nullptr;  // whose case and words are shown
  std::set<std::string> claims;
};
std::vector<Group> NewGroups(const ResultDocument& document) {
  std::map<std::tuple<std::string, std::string, FindingKind>, size_t> places;
  std::vector<Group> groups;
  for (const Finding& finding : document.findings) {
    if (!IsNew(finding, document)) continue;
    const auto [at, added] =
        places.try_emplace({finding.subject, finding.op, finding.kind}, groups.size());
    if (added) groups.push_back({&finding, {}});
    groups[at->second].claims.insert(finding.property);
  }
  return groups;
}

std::string Joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string Replaced(std::string_view text,
                     std::initializer_list<std::pair<char, std::string_view>> by) {
  std::string result;
  for (const char letter : text) {
    const auto* const found =
        std::ranges::find(by, letter, &std::pair<char, std::string_view>::first);
    if (found == by.end())
      result += letter;
    else
      result += found->second;
  }
  return result;
}
// Of a workflow command: its message, and the value of one of its properties.
std::string Message(std::string_view text) {
  return Replaced(text, {{'%', "%25"}, {'\r', "%0D"}, {'\n', "%0A"}});
}
std::string Property(std::string_view text) {
  return Replaced(text, {{'%', "%25"}, {'\r', "%0D"}, {'\n', "%0A"}, {':', "%3A"}, {',', "%2C"}});
}
// A cell of a Markdown table.
std::string Cell(std::string_view text) {
  return Replaced(text, {{'|', "\\|"}, {'\n', " "}, {'\r', " "}, {'<', "&lt;"}, {'>', "&gt;"}});
}

}  // namespace

std::string ToGithubAnnotations(const ResultDocument& document) {
  std::string text;
  for (const Group& group : NewGroups(document)) {
    const Finding& finding = *group.first;
    text += "::error title=" +
            Property("qualm: " + finding.op + " of " + finding.subject + ", " +
                     std::string(Name(finding.kind))) +
            "::" +
            Message(finding.explanation + "\nfails " + Joined(group.claims) +
                    (finding.case_file.empty() ? "" : "\ncase: " + finding.case_file)) +
            "\n";
  }
  return text;
}

std::string ToMarkdownSummary(const ResultDocument& document) {
  const std::vector<Group> groups = NewGroups(document);
  const auto total = [&](const char* name) {
    const auto found = document.totals.find(name);
    return std::to_string(found == document.totals.end() ? 0 : found->second);
  };
  std::string text =
      "### qualm: " +
      (groups.empty() ? std::string("nothing new") : std::to_string(groups.size()) + " new") +
      "\n\n`" + document.command + "`\n\n" + total("cases") + " cases; claims: " + total("passed") +
      " passed, " + total("failed") + " failed, " + total("expected") + " expected, " +
      total("skipped") + " skipped, " + total("vacuous") + " vacuous\n";
  if (groups.empty()) return text;
  text += "\n| subject | operation | kind | what | fails | case |\n|---|---|---|---|---|---|\n";
  for (const Group& group : groups) {
    const Finding& finding = *group.first;
    text += "| " + Cell(finding.subject) + " | " + Cell(finding.op) + " | " +
            std::string(Name(finding.kind)) + " | " + Cell(finding.explanation) + " | " +
            Cell(Joined(group.claims)) + " | " +
            (finding.case_file.empty() ? "" : "`" + Cell(finding.case_file) + "`") + " |\n";
  }
  return text;
}

std::string ToSarif(const ResultDocument& document, const std::string& version) {
  std::set<std::string> claims;
  for (const Finding& finding : document.findings) claims.insert(finding.full_property());
  JsonList rules, results;
  for (const std::string& claim : claims) rules.Add(JsonObject({{"id", claim}}));
  for (const Finding& finding : document.findings) {
    JsonObject result(
        {{"ruleId", finding.full_property()},
         {"level", IsNew(finding, document) ? "error" : "note"},
         {"message", JsonObject({{"text", finding.subject + " [" + std::string(Name(finding.kind)) +
                                              "]: " + finding.explanation}})},
         {"partialFingerprints", JsonObject({{"qualm/v1", finding.fingerprint()}})}});
    if (!finding.case_file.empty()) {
      const JsonObject artifact({{"uri", finding.case_file}});
      const JsonObject physical({{"artifactLocation", artifact}});
      JsonList locations;
      locations.Add(JsonObject({{"physicalLocation", physical}}));
      result.Add("locations", locations);
    }
    results.Add(result);
  }
  const JsonObject driver({{"name", "qualm"}, {"version", version}, {"rules", rules}});
  JsonList runs;
  runs.Add(JsonObject({{"tool", JsonObject({{"driver", driver}})}, {"results", results}}));
  return JsonValue(JsonObject({{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                               {"version", "2.1.0"},
                               {"runs", runs}}))
             .text() +
         "\n";
}

}  // namespace qualm
