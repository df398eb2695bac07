// SPDX-License-Identifier: Apache-2.0
#include "tools/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "core/io/json_text.h"
#include "core/memory_limit.h"
#include "core/status.h"
#include "core/subject.h"
#include "oracles/conventions/tree_contract.h"
#include "tools/terminal.h"

namespace qualm::tools {

void Out(const std::string& plain) {
  static const bool colour = HasColour();
  const std::string text = colour ? Painted(plain) : plain;
  if (!WriteToStdout(text)) throw InputError("stdout cannot be written");
}

void TellLine(const std::string& text) { WriteAboveStatus("qualm: " + OneLine(text) + "\n"); }

void AddSubjectOption(Verb& verb, CommonOptions& options, bool required) {
  VerbOption subjects = verb.Texts("--subject,-s", options.subjects,
                                   "who is judged (repeatable; see qualm list subjects)");
  if (required) subjects.Required();
  // By the environment, which the processes of a campaign inherit.
  const auto set = [](const std::string& size) {
    ParseMemoryLimit(size, "--memory");
    setenv(kMemoryLimitVariable, size.c_str(), /*overwrite=*/1);
  };
  verb.Text("--memory", set,
            "what each process of a plugin or pipe may have, as 512M or 4G (2G if not given)")
      .Called("SIZE");
}

void AddOutputOptions(Verb& verb, CommonOptions& options) {
  verb.Text("--json", options.json, "write the result document to FILE, - for stdout");
  verb.Flag("--quiet", SetQuiet, "tell nothing on stderr but errors");
}

void AddReportOptions(Verb& verb, CommonOptions& options) {
  verb.Text("--junit", options.junit, "write a JUnit report to FILE, - for stdout");
  verb.Text("--sarif", options.sarif, "write SARIF 2.1.0 to FILE, - for stdout");
  verb.Flag("--github", options.github,
            "print annotations for GitHub Actions, and add to its job summary "
            "(GITHUB_STEP_SUMMARY)");
}

void AddContractOption(Verb& verb, CommonOptions& options) {
  const auto set = [&options](const std::string& contracts) {
    options.contract = conventions::WithTreesOfFiles(contracts);
  };
  verb.Text("--contract", set,
            "judge against exact, sum, sum+offsets, tree:FILE, model:NAME or within:V1,V8 instead "
            "of each subject's own contract; OP=CONTRACT for one operation (repeatable)")
      .Joined();
  verb.Flag(
      "--undeclared",
      [] {
        ::setenv("QUALM_UNDECLARED", "1", 1);  // for programs that this one starts
        SubjectRegistry::Get().ForgetExpected();
      },
      "departures that are declared of a subject are findings like others");
}

void AddDomainOptions(Verb& verb, CommonOptions& options) {
  verb.Text("--domain", options.domain,
            "a file of ranges and shapes (TOML): cases stay inside (docs/domains.md)");
  verb.Text("--shapes", options.shapes,
            "a file of shapes, one on a line: 64x512x1024, or as benchdnn takes them");
}

bool NamesContract(const CommonOptions& options, Op op) {
  return !options.contract.empty() && ParseContracts(options.contract).Say(op);
}

Contract ContractFor(const CommonOptions& options, Op op, const Contract& otherwise) {
  return NamesContract(options, op) ? ParseContracts(options.contract).of(op) : otherwise;
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

void AddSkip(Verb& verb, std::vector<std::string>& skip) {
  verb.Texts("--skip", skip, "leave out properties that match these globs (repeatable)")
      .Called("GLOB");
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

}  // namespace qualm::tools
