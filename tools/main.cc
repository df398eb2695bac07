// SPDX-License-Identifier: Apache-2.0
// The `qualm` command. stdout carries findings, stderr progress. Exit status: 0 clean, 1 findings,
// 2 bad usage or input, 3 a subject named on the command line was unavailable or broke the harness.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>
#include <vector>

#include "adapters/registry.h"
#include "core/nearest.h"
#include "core/status.h"
#include "tools/command.h"

namespace qualm::tools {
namespace {

std::string VersionOf(const std::string& name) {
  try {
    const auto subject = SubjectRegistry::Get().Make(name);
    return subject->Version().empty() ? subject->InstructionSet() : subject->Version();
  } catch (const std::exception& error) {
    return std::string("unavailable: ") + error.what();
  }
}

// What this build can judge and can be judged by: our targets, the libraries found.
std::string VersionText() {
  std::string text = "qualm " QUALM_VERSION "\n";
  for (const SubjectKind& kind : SubjectRegistry::Get().kinds()) {
    const std::vector<std::string> names = kind.names();
    std::string about;
    if (!kind.why_absent.empty()) {
      about = "absent: " + kind.why_absent;
    } else if (names.empty()) {
      about = kind.help;
    } else if (kind.kind == "native") {
      about = "targets";
      for (const std::string& name : names) {
        if (name.find('@') != std::string::npos) about += " " + VersionOf(name);
      }
    } else if (names.front() == kind.kind) {
      about = VersionOf(names.front());
    } else {
      about = fmt::format("{} of them, see qualm list subjects", names.size());
    }
    text += fmt::format("  {:<8} {}\n", kind.kind, about);
  }
  text.pop_back();  // CLI11 ends the line
  return text;
}

int Main(int argc, char** argv) {
  SetCommandLine(argc, argv);
  CLI::App app{
      "qualm: exact oracles, properties and engines for quantized (int8) kernels.\n"
      "Exit status: 0 clean, 1 findings, 2 bad usage or input, 3 subject unavailable."};
  app.name("qualm");
  app.require_subcommand(1);
  app.fallthrough(false);
  app.set_version_flag("--version", [] {
    RegisterAllSubjects();
    return VersionText();
  });
  Run run;
  AddAudit(app, &run);
  AddCheck(app, &run);
  AddSweep(app, &run);
  AddReplay(app, &run);
  AddMinimize(app, &run);
  AddExplain(app, &run);
  AddList(app, &run);
  AddReport(app, &run);
  if (argc > 1 && argv[1][0] != '-') {
    std::vector<std::string> names;
    for (const CLI::App* verb : app.get_subcommands({})) names.push_back(verb->get_name());
    const std::vector<std::string_view> verbs(names.begin(), names.end());
    if (std::find(verbs.begin(), verbs.end(), argv[1]) == verbs.end()) {
      throw InputError("unknown verb '" + std::string(argv[1]) + "', nearest is '" +
                       std::string(NearestName(argv[1], verbs)) + "' (see qualm --help)");
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    fmt::print(stderr, "qualm: {}\n", error.what());
    return kBadInput;
  }
  RegisterAllSubjects();
  const int status = run();
  if (std::fflush(stdout) != 0) throw InputError("stdout cannot be written");
  return status;
}

}  // namespace
}  // namespace qualm::tools

int main(int argc, char** argv) {
  try {
    return qualm::tools::Main(argc, argv);
  } catch (const qualm::InputError& error) {
    fmt::print(stderr, "qualm: {}\n", error.what());
    return qualm::tools::kBadInput;
  } catch (const qualm::Unavailable& error) {
    fmt::print(stderr, "qualm: {}\n", error.what());
    return qualm::tools::kUnavailable;
  } catch (const std::exception& error) {
    fmt::print(stderr, "qualm: {}\n", error.what());
    return qualm::tools::kUnavailable;
  }
}
