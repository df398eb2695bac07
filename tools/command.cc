// SPDX-License-Identifier: Apache-2.0
#include "tools/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "core/io/json_text.h"
#include "core/status.h"
#include "tools/terminal.h"

namespace qualm::tools {

void Out(const std::string& plain) {
  EraseStatusLine();
  static const bool colour = HasColour();
  const std::string text = colour ? Painted(plain) : plain;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    throw InputError("stdout cannot be written");
  }
}

void TellLine(const std::string& text) { WriteAboveStatus("qualm: " + OneLine(text) + "\n"); }

void AddSubjectOption(CLI::App& app, CommonOptions& options, bool required) {
  CLI::Option* option = app.add_option("--subject,-s", options.subjects,
                                       "who is judged (repeatable; see qualm list subjects)");
  option->allow_extra_args(false);
  if (required) option->required();
}

void AddOutputOptions(CLI::App& app, CommonOptions& options) {
  app.add_option("--json", options.json, "write the result document to FILE, - for stdout")
      ->check(NotEmpty);
  app.add_flag_callback("--quiet", SetQuiet, "tell nothing on stderr but errors");
}

void AddJUnitOption(CLI::App& app, CommonOptions& options) {
  app.add_option("--junit", options.junit, "write a JUnit report to FILE, - for stdout")
      ->check(NotEmpty);
}

std::string NotEmpty(const std::string& value) {
  return value.empty() ? "is empty, expected a value" : "";
}

void AddContractOption(CLI::App& app, CommonOptions& options) {
  app.add_option("--contract", options.contract,
                 "judge against exact or model:NAME instead of each subject's own contract")
      ->check(NotEmpty);
}

const Property& PropertyOf(const std::string& name, Op op, const std::string& where) {
  const Property* property = FindProperty(name);
  if (property == nullptr) {
    throw InputError(where + ": unknown property '" + name + "' (see qualm list properties)");
  }
  const size_t dot = name.find('.');
  const bool other_op = dot != std::string::npos && ParseOp(name.substr(0, dot)) != op;
  if (other_op || !property->about(op)) {
    throw InputError(where + ": " + name + " says nothing about " + std::string(Name(op)));
  }
  return *property;
}

void MakeFolder(const std::string& option, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw InputError(option + ": cannot make " + path + ": " + error.message());
}

void AddSkip(CLI::App& app, std::vector<std::string>& skip) {
  app.add_option("--skip", skip, "leave out properties that match these globs (repeatable)")
      ->allow_extra_args(false)
      ->type_name("GLOB")
      ->check(NotEmpty);
}

void AddSkipped(const std::vector<std::string>& skip, std::string& glob) {
  for (const std::string& one : skip) {
    const bool any =
        std::ranges::any_of(AllOps(), [&](Op op) { return !PropertiesAbout(op, one).empty(); });
    if (!any || one.find('!') != std::string::npos)
      throw InputError("--skip: no property matches '" + one + "' (see qualm list properties)");
    for (size_t at = 0; at <= one.size();) {
      const size_t end = std::min(one.find(',', at), one.size());
      glob += ",!" + one.substr(at, end - at);
      at = end + 1;
    }
  }
}

void AddDuration(CLI::App& app, const std::string& name, double& seconds, const std::string& help) {
  app.add_option(name, seconds, help)
      ->transform(CLI::AsNumberWithUnit(
          std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}},
          CLI::AsNumberWithUnit::CASE_SENSITIVE))
      ->check([](const std::string& value) {
        const double read = std::strtod(value.c_str(), nullptr);
        return read > 0 && read < 1e9 ? std::string()
                                      : "is not more than 0 or too long, expected e.g. 60s";
      });
}

void AddSeed(CLI::App& app, uint64_t& seed) {
  app.add_option_function<std::string>(
         "--seed",
         [&seed](const std::string& text) {
           const std::optional<uint64_t> read = ParseInteger<uint64_t>(text);
           if (!read) {
             throw CLI::ValidationError(
                 "--seed", "'" + text + "' is no seed, expected an integer in 0..2^64-1");
           }
           seed = *read;
         },
         "seed of the drawn cases")
      ->type_name("INT");
}

CLI::Option* AddInteger(CLI::App& app, const std::string& names,
                        const std::function<void(int64_t)>& store, int64_t least, int64_t most,
                        const std::string& help) {
  const std::string name = names.substr(0, names.find(','));
  return app
      .add_option_function<std::string>(
          names,
          [=](const std::string& text) {
            const std::optional<int64_t> read = ParseInteger<int64_t>(text);
            if (!read || *read < least || *read > most) {
              const std::string range = most == INT64_MAX ? fmt::format("from {} on", least)
                                                          : fmt::format("in {}..{}", least, most);
              throw CLI::ValidationError(name, "is '" + text + "', expected an integer " + range);
            }
            store(*read);
          },
          help)
      ->type_name("INT");
}

}  // namespace qualm::tools
