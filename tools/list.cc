// SPDX-License-Identifier: Apache-2.0
// qualm list: what there is.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <set>

#include "adapters/registry.h"
#include "core/status.h"
#include "properties/property.h"
#include "tools/command.h"

namespace qualm::tools {
namespace {

struct Options : CommonOptions {
  std::string what;
};

// One thing of a list: its name and what there is to say.
using Row = std::pair<std::string, std::string>;

std::vector<Row> SubjectRows() {
  std::vector<Row> rows;
  for (const SubjectKind& kind : SubjectRegistry::Get().kinds()) {
    if (!kind.why_absent.empty()) {
      rows.emplace_back(kind.kind, "absent: " + kind.why_absent);
      continue;
    }
    const std::vector<std::string> names = kind.names();
    if (names.empty()) rows.emplace_back(kind.kind, kind.help);
    for (const std::string& name : names) {
      std::string contract;
      try {
        contract = SubjectRegistry::Get().Make(name)->contract().text();
      } catch (const std::exception& error) {
        contract = std::string("absent: ") + error.what();
      }
      rows.emplace_back(name, contract);
    }
  }
  return rows;
}

std::vector<Row> PropertyRows() {
  std::vector<Row> rows;
  for (const Property& property : AllProperties()) {
    for (Op op : property.ops) {
      if (!IsListed(op)) continue;
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
    for (const Row& row : rows) fmt::print("{:<{}}  {}\n", row.first, width, row.second);
  }
  ResultDocument document;
  document.command = CanonicalCommand();
  SetTotals(document, Totals{});
  document.extra.emplace_back(options.what, "[" + json + "]");
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
