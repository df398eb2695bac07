// SPDX-License-Identifier: Apache-2.0
// qualm list: what there is.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <set>

#include "adapters/registry.h"
#include "core/status.h"
#include "oracles/conventions/convention.h"
#include "properties/property.h"
#include "tools/command.h"

namespace qualm::tools {
namespace {

struct Options : CommonOptions {
  std::string what;
};

// One thing of a list: its name and what there is to say.
using Row = std::pair<std::string, std::string>;

// "native" is one of the names that follow it: the best of them here.
std::string AliasOf(const SubjectKind& kind, const Subject& subject) {
  if (subject.name() != kind.kind) return "";
  for (const std::string& name : kind.names()) {
    if (name == kind.kind) continue;
    try {
      const auto other = SubjectRegistry::Get().Make(name);
      if (other->InstructionSet() == subject.InstructionSet()) return name;
    } catch (const std::exception&) {
      continue;  // not to be had here
    }
  }
  return "";
}

std::string AboutSubject(const SubjectKind& kind, const std::string& name) {
  try {
    const auto subject = SubjectRegistry::Get().Make(name);
    std::string about = "contract " + subject->contract().text();
    if (const std::string alias = AliasOf(kind, *subject); !alias.empty()) {
      about += ", the same as " + alias;
    }
    if (!subject->Version().empty()) about += ", " + subject->Version();
    if (const Convention* convention = FindConvention(subject->contract().convention);
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
    int64_t properties = 0;
    for (const Property& property : AllProperties()) {
      properties += std::count(property.ops.begin(), property.ops.end(), op);
    }
    rows.emplace_back(Name(op), fmt::format("{} properties", properties));
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

int RunList(const Options& options) {
  const std::vector<Row> rows = options.what == "subjects"     ? SubjectRows()
                                : options.what == "properties" ? PropertyRows()
                                : options.what == "ops"        ? OpRows()
                                                               : FaultRows();
  size_t width = 0;
  std::string json;
  for (const Row& row : rows) {
    width = std::max(width, row.first.size());
    json += fmt::format("{}{{\"name\":{},\"about\":{}}}", json.empty() ? "" : ",",
                        JsonQuote(row.first), JsonQuote(row.second));
  }
  if (!options.quiet_stdout()) {
    for (const Row& row : rows) Print("{:<{}}  {}\n", row.first, width, row.second);
  }
  ResultDocument document;
  document.command = CanonicalCommand();
  SetTotals(document, Totals{});
  document.extra.emplace_back("list", "[" + json + "]");
  WriteResults(options, document, {});
  return kClean;
}

}  // namespace

void AddList(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("list", "subjects, properties, ops or planted faults");
  verb->footer("Example: qualm list subjects");
  verb->add_option("WHAT", options->what, "subjects, properties, ops or faults")
      ->required()
      ->check(CLI::IsMember({"subjects", "properties", "ops", "faults"}));
  AddOutputOptions(*verb, *options);
  verb->callback([options, run] { *run = [options] { return RunList(*options); }; });
}

}  // namespace qualm::tools
