// SPDX-License-Identifier: Apache-2.0
// qualm list: subjects, properties, operations and the other things that exist.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "adapters/registry.h"
#include "core/status.h"
#include "exporters/exporter.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/variations.h"
#include "oracles/golden/judge.h"
#include "properties/coverage.h"
#include "properties/engine.h"
#include "properties/property.h"
#include "tools/command.h"
#include "tools/environment.h"
#include "tools/session.h"

namespace qualm::tools {
namespace {

struct Options : CommonOptions {
  std::string what;
  bool markdown = false;
};

// One thing of a list: its name and what there is to say.
using Row = std::pair<std::string, std::string>;

// If "native" stands for one of the subjects listed after it, the name of that subject.
std::string AliasOf(const SubjectKind& kind, const Subject& subject) {
  if (subject.name() != kind.kind) return "";
  for (const std::string& name : kind.names()) {
    if (name == kind.kind) continue;
    try {
      const auto other = SubjectRegistry::Get().Make(name);
      if (other->InstructionSet() == subject.InstructionSet()) return name;
    } catch (const std::exception&) {
      continue;  // not available here
    }
  }
  return "";
}

std::string AboutSubject(const SubjectKind& kind, const std::string& name) {
  try {
    const auto subject = SubjectRegistry::Get().Make(name);
    if (const std::string why = WrongContracts(subject->contracts()); !why.empty())
      return "absent: its contract: " + why;
    std::string about = "contract " + subject->contracts().text();
    if (const std::string alias = AliasOf(kind, *subject); !alias.empty()) {
      about += ", the same as " + alias;
    }
    if (!subject->Version().empty()) about += ", " + subject->Version();
    if (const Convention* convention = FindConvention(subject->contracts().rest->convention);
        convention != nullptr && kind.kind == "model" && !convention->variations.empty()) {
      about += fmt::format(", variations {}", fmt::join(convention->variations, " "));
    }
    return about;
  } catch (const std::exception& error) {
    return std::string("absent: ") + error.what();
  }
}

std::vector<Row> SubjectRows() {
  std::vector<Row> rows;
  for (const SubjectKind& kind : SubjectRegistry::Get().kinds()) {
    const std::vector<std::string> names = kind.names();
    if (!kind.why_absent.empty()) {
      rows.emplace_back(kind.kind, "absent: " + kind.why_absent);
    } else if (names.empty()) {
      // "plugin:PATH.so  what it is": a pattern, not a subject.
      const size_t gap = kind.help.find("  ");
      if (gap == std::string::npos) {
        rows.emplace_back(kind.kind, kind.help);
      } else {
        rows.emplace_back(kind.help.substr(0, gap), kind.help.substr(gap + 2));
      }
    } else {
      for (const std::string& name : names) {
        rows.emplace_back(name,
                          kind.when_listed.empty() ? AboutSubject(kind, name) : kind.when_listed);
      }
    }
  }
  return rows;
}

// Rows that say the same of every "+…" behind every "@…" as one, which lists both: ggml has some
// hundred and fifty names. Other rows as they are.
std::vector<Row> Folded(const std::vector<Row>& same) {
  std::vector<std::string> sets, ends;
  const auto add = [](std::vector<std::string>* to, const std::string& text) {
    if (std::ranges::find(*to, text) == to->end()) to->push_back(text);
  };
  for (const auto& [name, about] : same) {
    const size_t plus = std::min(name.find('+'), name.size());
    add(&sets, name.substr(0, plus));
    add(&ends, name.substr(plus));
  }
  // All names differ: as many as there are pairs are the pairs.
  if (sets.size() < 2 || ends.size() < 2 || sets.size() * ends.size() != same.size()) return same;
  const std::string kind = sets[0].substr(0, sets[0].find('@') + 1);
  for (std::string& set : sets) set.erase(0, kind.size());
  std::erase(ends, "");
  return {{kind + "…", same[0].second},
          {"  …", fmt::format("{}", fmt::join(sets, ", "))},
          {"  and behind it", fmt::format("nothing, {}", fmt::join(ends, ", "))}};
}

// The rows as the screen shows them. Neighbours of one kind that say the same are folded.
std::vector<Row> ForScreen(const std::vector<Row>& rows) {
  const auto alike = [](const Row& a, const Row& b) {
    return a.second == b.second &&
           a.first.substr(0, a.first.find('@')) == b.first.substr(0, b.first.find('@'));
  };
  std::vector<Row> shown;
  for (auto at = rows.begin(); at != rows.end();) {
    const auto end = std::find_if(at, rows.end(), [&](const Row& row) { return !alike(*at, row); });
    std::ranges::move(Folded({at, end}), std::back_inserter(shown));
    at = end;
  }
  return shown;
}

std::vector<Row> PropertyRows() {
  std::vector<Row> rows;
  for (const Property& property : AllProperties()) {
    for (Op op : property.ops) {
      rows.emplace_back(FullName(op, property), std::string(property.sentence));
    }
  }
  return rows;
}

std::vector<Row> OpRows() {
  std::vector<Row> rows;
  for (Op op : AllOps()) {
    rows.emplace_back(Name(op), fmt::format("{} properties", PropertiesAbout(op).size()));
  }
  return rows;
}

std::vector<Row> FaultRows() {
  std::vector<Row> rows;
  for (const FaultInfo& fault : ListFaults()) {
    rows.emplace_back("faulty:" + std::string(fault.id), std::string(fault.description));
  }
  return rows;
}

// The right diagnosis of each planted fault, for bench/diagnosis.
JsonValue PlantedJson() {
  JsonList list;
  for (const FaultInfo& fault : ListFaults()) {
    std::vector<std::string_view> ops;
    for (const Op op : fault.ops) ops.push_back(Name(op));
    list.Add(JsonObject{{"subject", "faulty:" + std::string(fault.id)},
                        {"ops", ops},
                        {"kind", Name(fault.kind)},
                        {"cause", fault.cause}});
  }
  return list;
}

std::string OpsOf(const Convention& convention) {
  std::vector<std::string_view> names;
  for (const Op op : convention.ops) names.push_back(Name(op));
  return fmt::format("{}", fmt::join(names, " "));
}

std::string VariationsOf(const Convention& convention) {
  if (convention.variations.empty()) return "none";
  return fmt::format("{}", fmt::join(convention.variations, " "));
}

std::vector<Row> ConventionRows() {
  std::vector<Row> rows;
  for (const Convention& convention : AllConventions()) {
    rows.emplace_back(convention.name,
                      fmt::format("{}; {}; variations {}; {}", convention.description,
                                  OpsOf(convention), VariationsOf(convention), convention.source));
  }
  for (const RecordedConvention& convention : RecordedConventions())
    rows.emplace_back(
        convention.name,
        fmt::format("{}; of recordings alone (replay, explain and identify of .jsonl)",
                    convention.about));
  return rows;
}

std::vector<Row> VariationRows() {
  std::vector<Row> rows;
  for (const Variation& variation : AllVariations()) {
    rows.emplace_back(variation.id, fmt::format("{}: {}; bound: {}", variation.name,
                                                variation.cause, variation.bound));
  }
  return rows;
}

std::string Replaced(std::string text, const std::string& word, const std::string& by) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + by.size()))
    text.replace(at, word.size(), by);
  return text;
}

// What the convention is, with "…" for what stands behind the @ of its name: "on avx2" is "on …".
std::string Pattern(const Convention& convention) {
  const size_t at = convention.name.find('@');
  if (at == std::string::npos) return convention.description;
  const std::string variant = convention.name.substr(at + 1);
  return Replaced(Replaced(convention.description, variant, "…"),
                  variant.substr(0, variant.find('+')), "…");
}

// The tables of docs/backends.md, one for each family: what `qualm list conventions` begins with.
// Conventions share a row if they differ in what stands behind the @ alone.
std::string ConventionTables() {
  std::string text;
  for (const std::string_view family : AllFamilies()) {
    text += fmt::format("{}### {}\n\n| convention | what it is |\n|---|---|\n",
                        text.empty() ? "" : "\n", family);
    std::vector<std::pair<std::string, std::vector<const Convention*>>> rows;
    for (const Convention& convention : AllConventions()) {
      if (convention.family != family) continue;
      const std::string pattern = Pattern(convention);
      auto row = std::ranges::find(rows, pattern, [](const auto& r) { return r.first; });
      if (row == rows.end()) row = rows.insert(rows.end(), {pattern, {}});
      row->second.push_back(&convention);
    }
    for (const auto& [pattern, members] : rows) {
      std::vector<std::string> names;
      for (const Convention* member : members) names.push_back("`" + member->name + "`");
      text += fmt::format("| {} | {} |\n", fmt::join(names, ", "),
                          members.size() == 1 ? members[0]->description : pattern);
    }
  }
  return text;
}

std::vector<Row> HazardRows() {
  std::vector<Row> rows;
  for (const HazardRow& row : AllHazards()) rows.emplace_back(row.name, row.sentence);
  return rows;
}

std::vector<Row> ExporterRows() {
  std::vector<Row> rows;
  for (const exporters::Exporter& exporter : exporters::AllExporters())
    rows.emplace_back(exporter.kind, exporter.sentence);
  return rows;
}

std::vector<Row> EnvironmentRows() {
  std::vector<Row> rows;
  for (const EnvironmentVariable& variable : kEnvironment)
    rows.emplace_back(variable.name, fmt::format("{}: {}", variable.readers, variable.text));
  return rows;
}

std::string EnvironmentTable() {
  std::string text = "| variable | read by | |\n|---|---|---|\n";
  for (const EnvironmentVariable& variable : kEnvironment)
    text += fmt::format("| `{}` | {} | {} |\n", variable.name, variable.readers, variable.text);
  return text;
}

std::string HazardTable() {
  std::string text = "| hazard | a case reaches it if |\n|---|---|\n";
  for (const HazardRow& row : AllHazards())
    text += fmt::format("| `{}` | {} |\n", row.name, row.sentence);
  return text;
}

std::string VariationTable() {
  std::string text = "| | variation | cause | bound |\n|---|---|---|---|\n";
  for (const Variation& variation : AllVariations()) {
    text += fmt::format("| {} | {} | {} | {} |\n", variation.id, variation.name, variation.cause,
                        variation.bound);
  }
  return text;
}

// A list that `qualm list` prints: its rows, and its tables for --markdown, if it has any.
struct List {
  std::vector<Row> (*rows)();
  std::string (*markdown)();
};
const std::map<std::string, List>& Lists() {
  static const std::map<std::string, List> lists = {
      {"subjects", {SubjectRows, nullptr}},
      {"properties", {PropertyRows, nullptr}},
      {"ops", {OpRows, nullptr}},
      {"faults", {FaultRows, nullptr}},
      {"conventions", {ConventionRows, ConventionTables}},
      {"variations", {VariationRows, VariationTable}},
      {"hazards", {HazardRows, HazardTable}},
      {"exporters", {ExporterRows, nullptr}},
      {"environment", {EnvironmentRows, EnvironmentTable}},
  };
  return lists;
}

int RunList(const Options& options) {
  Session session(options);
  const List& list = Lists().at(options.what);
  if (options.markdown && list.markdown == nullptr)
    throw InputError(
        "--markdown: only conventions, variations, hazards and environment have tables");
  const std::vector<Row> rows = list.rows();
  size_t width = 0;
  JsonList json;
  for (const auto& [name, about] : rows) json.Add(JsonObject{{"name", name}, {"about", about}});
  const std::vector<Row> shown = ForScreen(rows);
  for (const auto& [name, about] : shown) width = std::max(width, name.size());
  if (options.markdown) {
    if (!options.quiet_stdout()) Out(list.markdown());
  } else {
    for (const auto& [name, about] : shown) session.Print("{:<{}}  {}\n", name, width, about);
  }
  session.document.extra.emplace_back("list", json);
  if (options.what == "faults") session.document.extra.emplace_back("planted", PlantedJson());
  session.Write();
  return kClean;
}

}  // namespace

void AddList(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(
      app, run, "list",
      "subjects, properties, ops, planted faults, conventions, variations, hazards, exporters or "
      "environment variables",
      "Example: qualm list subjects");
  verb.Text("WHAT", options->what,
            "subjects, properties, ops, faults, conventions, variations, hazards, exporters or "
            "environment")
      .Required()
      .OneOf({"subjects", "properties", "ops", "faults", "conventions", "variations", "hazards",
              "exporters", "environment"});
  verb.Flag("--markdown", options->markdown,
            "conventions, variations, hazards, environment: the tables of the pages");
  AddOutputOptions(verb, *options);
  verb.Does([options] { return RunList(*options); });
}

}  // namespace qualm::tools
