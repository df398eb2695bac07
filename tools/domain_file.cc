// SPDX-License-Identifier: Apache-2.0
#include "tools/domain_file.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <sstream>

#include "core/io/text_file.h"
#include "core/op.h"
#include "core/status.h"
#include "tools/ops.h"

namespace qualm::tools {
namespace {

constexpr size_t kMostBytes = 1 << 20;

std::string ReadSmallFile(const std::string& path, const char* noun) {
  std::string text = ReadTextFile(path, noun, kMostBytes);
  CheckLength(text, path, noun, kMostBytes);
  return text;
}

double End(const std::string& text, const std::string& key) {
  if (const std::optional<double> end = ParseEnd(text)) return *end;
  throw InputError(fmt::format("{}: '{}' is no number, expected [LEAST, MOST]", key, text));
}

void Add(Domain& domain, std::optional<Op> op, const CLI::ConfigItem& item) {
  if (item.name == "shapes") {
    for (const std::string& shape : item.inputs) domain.AddShape(op, shape);
    return;
  }
  if (item.inputs.size() != 2) {
    throw InputError(fmt::format("{}: has {} number{}, expected [LEAST, MOST]", item.name,
                                 item.inputs.size(), item.inputs.size() == 1 ? "" : "s"));
  }
  domain.AddRange(op, item.name, End(item.inputs[0], item.name), End(item.inputs[1], item.name));
}

void AddShapesOf(const std::string& path, Domain& domain) {
  std::istringstream lines(ReadSmallFile(path, "list of shapes"));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t from = line.find_first_not_of(" \t\r");
    if (from == std::string::npos || line[from] == '#') continue;
    const size_t to = line.find_last_not_of(" \t\r");
    try {
      domain.AddShape(std::nullopt, line.substr(from, to - from + 1));
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}:{}: {}", path, number, error.what()));
    }
  }
}

}  // namespace

Domain ParseDomain(const std::string& text, const std::string& name) {
  Domain domain;
  std::istringstream stream(text);
  try {
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(stream)) {
      if (item.name == "++" || item.name == "--") continue;  // a table begins, a table ends
      std::vector<std::string> tables = item.parents;
      std::erase(tables, "default");  // what stands before the first table
      if (tables.size() > 1)
        throw InputError(fmt::format("{}: is a table in a table", fmt::join(tables, ".")));
      std::optional<Op> op;
      if (!tables.empty()) op = OpNamed(tables[0], fmt::format("[{}]", tables[0]));
      Add(domain, op, item);
    }
  } catch (const CLI::Error& error) {
    throw InputError(fmt::format("{}: {}", name, error.what()));
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", name, error.what()));
  }
  return domain;
}

Domain DomainOf(const CommonOptions& options) {
  Domain domain;
  if (!options.domain.empty())
    domain = ParseDomain(ReadSmallFile(options.domain, "domain"), options.domain);
  if (!options.shapes.empty()) AddShapesOf(options.shapes, domain);
  return domain;
}

}  // namespace qualm::tools
