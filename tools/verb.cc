// SPDX-License-Identifier: Apache-2.0
#include "tools/verb.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>
#include <utility>

namespace qualm::tools {
namespace {

std::string NotEmpty(const std::string& value) {
  return value.empty() ? "is empty, expected a value" : "";
}

// "--long,-s" as it stands in messages.
std::string FirstOf(const std::string& names) { return names.substr(0, names.find(',')); }

}  // namespace

VerbOption VerbOption::Required() {
  option_->required();
  return *this;
}

VerbOption VerbOption::OneOf(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

VerbOption VerbOption::Excludes(VerbOption other) {
  option_->excludes(other.option_);
  return *this;
}

VerbOption VerbOption::Needs(VerbOption other) {
  option_->needs(other.option_);
  return *this;
}

VerbOption VerbOption::Called(const std::string& value) {
  option_->type_name(value);
  return *this;
}

VerbOption VerbOption::Joined() {
  option_->join(',');
  return *this;
}

VerbOption VerbOption::TakesMany(int count) {
  option_->allow_extra_args();
  option_->expected(count == 0 ? -1 : count);
  return *this;
}

Verb::Verb(CLI::App& app, Run* run, const std::string& name, const std::string& about,
           const std::string& examples)
    : app_(app.add_subcommand(name, about)), run_(run) {
  app_->footer(examples);
}

VerbOption Verb::Text(const std::string& names, std::string& value, const std::string& about) {
  return VerbOption(app_->add_option(names, value, about)->check(NotEmpty));
}

VerbOption Verb::Text(const std::string& names, std::function<void(const std::string&)> store,
                      const std::string& about) {
  return VerbOption(
      app_->add_option_function<std::string>(names, std::move(store), about)->check(NotEmpty));
}

VerbOption Verb::Texts(const std::string& names, std::vector<std::string>& values,
                       const std::string& about) {
  CLI::Option* option = app_->add_option(names, values, about)->check(NotEmpty);
  if (names.starts_with('-')) option->allow_extra_args(false);
  return VerbOption(option);
}

VerbOption Verb::Flag(const std::string& names, bool& value, const std::string& about) {
  return VerbOption(app_->add_flag(names, value, about));
}

VerbOption Verb::Flag(const std::string& names, std::function<void()> set,
                      const std::string& about) {
  return VerbOption(app_->add_flag_callback(names, std::move(set), about));
}

VerbOption Verb::Integer(const std::string& names, std::function<void(int64_t)> store,
                         int64_t least, int64_t most, const std::string& about) {
  const auto read = [=, name = FirstOf(names)](const std::string& text) {
    const std::optional<int64_t> value = ParseInteger<int64_t>(text);
    if (!value || *value < least || *value > most) {
      const std::string range = most == INT64_MAX ? fmt::format("from {} on", least)
                                                  : fmt::format("in {}..{}", least, most);
      throw CLI::ValidationError(name, "is '" + text + "', expected an integer " + range);
    }
    store(*value);
  };
  return VerbOption(app_->add_option_function<std::string>(names, read, about)->type_name("INT"));
}

VerbOption Verb::Duration(const std::string& names, double& seconds, const std::string& about) {
  return VerbOption(
      app_->add_option(names, seconds, about)
          ->transform(CLI::AsNumberWithUnit(
              std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}},
              CLI::AsNumberWithUnit::CASE_SENSITIVE))
          ->check([](const std::string& value) {
            const double read = std::strtod(value.c_str(), nullptr);
            return read > 0 && read < 1e9 ? std::string()
                                          : "is not more than 0 or too long, expected e.g. 60s";
          }));
}

VerbOption Verb::Seed(uint64_t& seed) {
  const auto read = [&seed](const std::string& text) {
    const std::optional<uint64_t> value = ParseInteger<uint64_t>(text);
    if (!value) {
      throw CLI::ValidationError("--seed",
                                 "'" + text + "' is no seed, expected an integer in 0..2^64-1");
    }
    seed = *value;
  };
  return VerbOption(
      app_->add_option_function<std::string>("--seed", read, "seed of the drawn cases")
          ->type_name("INT"));
}

void Verb::Checks(std::function<void()> check) { app_->parse_complete_callback(std::move(check)); }

void Verb::Does(Run work) {
  app_->callback([run = run_, work = std::move(work)] { *run = work; });
}

}  // namespace qualm::tools
