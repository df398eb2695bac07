// SPDX-License-Identifier: Apache-2.0
#include "core/io/result_reader.h"

#include <algorithm>
#include <limits>

#include "core/io/members.h"

namespace qualm {
namespace {

constexpr DocumentKind kKind{"qualm.result/1", "result", size_t{1} << 28};

// "" for a member that is missing or null.
std::string TextAt(const JsonNode& node, const std::string& key) {
  if (!node.Has(key)) return "";
  const JsonNode member = node.At(key, "a text");
  return member.IsNull() ? "" : member.Text();
}

std::vector<std::string> TextsAt(const JsonNode& node, const std::string& key) {
  std::vector<std::string> texts;
  const JsonNode list = node.At(key, "a list of texts");
  for (size_t i = 0; i < list.SizeOfList(); ++i) texts.push_back(list.At(i).Text());
  return texts;
}

int64_t CountAt(const JsonNode& node, const std::string& key) {
  return node.At(key, "a count").Integer(0, INT64_MAX);
}

std::map<std::string, int64_t> CountsAt(const JsonNode& node, const std::string& key) {
  std::map<std::string, int64_t> counts;
  const JsonNode object = node.At(key, "an object of counts");
  for (const std::string& name : object.Keys()) counts[name] = CountAt(object, name);
  return counts;
}

double NumberAt(const JsonNode& node, const std::string& key) {
  const JsonNode number = node.At(key, "a number");
  if (number.IsNull()) return std::numeric_limits<double>::infinity();
  if (!number.value().is_number()) number.Fail("is " + number.Dump() + ", expected a number");
  return number.value().get<double>();
}

template <class Visit>
void ForEachEntry(const JsonNode& top, const std::string& key, const Visit& visit) {
  if (!top.Has(key)) return;
  const JsonNode list = top.At(key, "a list");
  for (size_t i = 0; i < list.SizeOfList(); ++i) {
    list.At(i).RequireObject("an object");
    visit(list.At(i));
  }
}

// Integers are numbers, floats are texts.
std::string ElementAt(const JsonNode& node, const std::string& key) {
  const JsonNode element = node.At(key, "an integer or a text");
  return element.value().is_string() ? element.Text() : element.Dump();
}

RecordedFinding FindingOf(const JsonNode& node) {
  RecordedFinding finding;
  finding.fingerprint = node.At("fingerprint", "a text").Text();
  finding.op = node.At("op", "a text").Text();
  const std::string property = node.At("property", "a text").Text();
  finding.claim = property.substr(property.find('.') + 1);
  finding.subject = node.At("subject", "a text").Text();
  finding.kind = node.At("kind", "a text").Text();
  finding.expected_by_contract = node.At("expected_by_contract", "true or false").Flag();
  finding.case_file = TextAt(node, "case_file");
  finding.explanation = node.At("explanation", "a text").Text();
  const JsonNode divergence = node.At("first_divergence", "an object or null");
  if (!divergence.IsNull()) {
    finding.divergence =
        Divergence{CountAt(divergence, "index"), ElementAt(divergence, "expected"),
                   ElementAt(divergence, "actual"), NumberAt(divergence, "distance_lsb")};
  }
  if (node.Has("known")) {
    const JsonNode known = node.At("known", "an object");
    finding.known =
        known.At("by", "a text").Text() == "baseline"
            ? "in the baseline"
            : "suppressed until " + TextAt(known, "expires") + ": " + TextAt(known, "reason");
  }
  return finding;
}

void ReadRun(const JsonNode& top, RunFacts& run) {
  if (!top.Has("run")) return;
  const JsonNode node = top.At("run", "an object");
  node.RequireObject("an object");
  run = {TextAt(node, "version"), TextAt(node, "commit"), TextAt(node, "date"),
         TextAt(node, "processor"), TextAt(node, "compiler")};
}

void ReadChange(const JsonNode& top, ResultRecord& record) {
  if (!top.Has("since")) return;
  const JsonNode node = top.At("since", "an object");
  node.RequireObject("an object");
  record.since =
      RecordedChange{TextAt(node, "date"), TextsAt(node, "appeared"), TextsAt(node, "gone")};
}

// Says of each finding of `record` which fault it shows.
void ReadFault(const JsonNode& node, ResultRecord& record) {
  const std::vector<std::string> fingerprints = TextsAt(node, "findings");
  if (fingerprints.empty()) return;
  for (RecordedFinding& finding : record.findings) {
    if (std::ranges::find(fingerprints, finding.fingerprint) == fingerprints.end()) continue;
    finding.fault = fingerprints.front();
    finding.cause = node.At("cause", "a text").Text();
    finding.sentence = node.At("sentence", "a text").Text();
  }
}

void ReadRepair(const JsonNode& node, ResultRecord& record) {
  if (node.At("taken", "a text or null").IsNull()) return;
  ForEachEntry(node, "subjects", [&](const JsonNode& tried) {
    if (tried.At("wrong_after", "an integer or null").IsNull()) return;
    record.repairs.push_back({TextAt(node, "layer"), TextAt(node, "taken"),
                              TextAt(tried, "subject"), TextAt(tried, "what"),
                              CountAt(tried, "outputs"), CountAt(tried, "wrong_before"),
                              CountAt(tried, "wrong_after")});
  });
}

RecordedRun RunOf(const JsonNode& node) {
  return {TextAt(node, "date"),
          TextAt(node, "commit"),
          NumberAt(node, "seconds"),
          CountAt(node, "cases"),
          CountAt(node, "faults"),
          CountAt(node, "known"),
          node.Has("inputs") ? CountAt(node, "inputs") : 0};
}

}  // namespace

ResultRecord ParseResult(std::string_view text, std::string_view name) {
  const nlohmann::json tree = kKind.Tree(text, name);
  const JsonNode top = kKind.Top(tree, name);
  ResultRecord record;
  record.command = top.At("command", "a text").Text();
  record.seconds = NumberAt(top, "seconds");
  record.totals = CountsAt(top, "totals");
  ReadRun(top, record.run);
  ReadChange(top, record);
  ForEachEntry(top, "subjects", [&](const JsonNode& node) {
    record.subjects.emplace_back(node.At("name", "a text").Text(),
                                 node.At("contract", "a text").Text());
  });
  ForEachEntry(top, "findings",
               [&](const JsonNode& node) { record.findings.push_back(FindingOf(node)); });
  ForEachEntry(top, "faults", [&](const JsonNode& node) { ReadFault(node, record); });
  ForEachEntry(top, "history",
               [&](const JsonNode& node) { record.history.push_back(RunOf(node)); });
  ForEachEntry(top, "verdicts", [&](const JsonNode& node) {
    record.verdicts.push_back({node.At("subject", "a text").Text(), node.At("op", "a text").Text(),
                               CountsAt(node, "counts")});
  });
  ForEachEntry(top, "unjudged", [&](const JsonNode& node) {
    const std::string subject = TextAt(node, "subject"), op = TextAt(node, "op");
    if (node.At("missing", "true or false").Flag()) record.missing.push_back(op + " on " + subject);
    for (RecordedVerdicts& verdicts : record.verdicts) {
      if (verdicts.subject == subject && verdicts.op == op) verdicts.counts.erase("passed");
    }
  });
  ForEachEntry(top, "hazards", [&](const JsonNode& node) {
    record.hazards.push_back({node.At("op", "a text").Text(), TextAt(node, "instruction_set"),
                              CountAt(node, "cases"), CountsAt(node, "reached")});
  });
  ForEachEntry(top, "declared", [&](const JsonNode& node) {
    record.declared.push_back({TextAt(node, "subject"), TextAt(node, "op"), TextAt(node, "claim"),
                               TextAt(node, "kind"), TextAt(node, "reason"),
                               TextAt(node, "state")});
  });
  ForEachEntry(top, "agreement", [&](const JsonNode& node) {
    record.agreement.push_back({TextAt(node, "op"), TextsAt(node, "subjects"),
                                CountAt(node, "cases"), TextAt(node, "witness")});
  });
  ForEachEntry(top, "repair", [&](const JsonNode& node) { ReadRepair(node, record); });
  if (top.Has("campaign")) {
    const JsonNode campaign = top.At("campaign", "an object");
    campaign.RequireObject("an object");
    ForEachEntry(campaign, "course", [&](const JsonNode& node) {
      record.course.push_back({NumberAt(node, "seconds"), CountAt(node, "executions"),
                               CountAt(node, "inputs"), CountAt(node, "faults")});
    });
    ForEachEntry(campaign, "faults", [&](const JsonNode& node) {
      ++record.campaign_faults;
      if (const std::string why = TextAt(node, "known"); !why.empty())
        record.known_faults[node.At("fault", "a text").Text()] = why;
    });
  }
  record.has_documented_cases = top.Has("declared");
  return record;
}

ResultRecord ReadResultFile(const std::string& path) {
  return ParseResult(kKind.ReadFile(path), path);
}

}  // namespace qualm
