// SPDX-License-Identifier: Apache-2.0
// The `qualm` command. stdout carries findings, stderr progress. Exit status: 0 clean, 1 findings,
// 2 bad usage or input, 3 a subject named on the command line was unavailable or broke the harness.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "adapters/registry.h"
#include "core/status.h"
#include "tools/command.h"

namespace qualm::tools {
namespace {

std::string VersionText() {
  std::string text = "qualm " QUALM_VERSION "\n";
  for (const SubjectKind& kind : SubjectRegistry::Get().kinds()) {
    if (!kind.why_absent.empty()) {
      text += fmt::format("  {:<12} absent: {}\n", kind.kind, kind.why_absent);
      continue;
    }
    const std::vector<std::string> names = kind.names();
    std::string version;
    if (!names.empty() && kind.kind != "faulty" && kind.kind != "model") {
      try {
        const auto subject = SubjectRegistry::Get().Make(names.front());
        version = subject->Version().empty() ? subject->InstructionSet() : subject->Version();
      } catch (const std::exception& error) {
        version = std::string("unavailable: ") + error.what();
      }
    }
    text += fmt::format("  {:<12} {} {}\n", kind.kind,
                        names.size() == 1 ? "" : fmt::format("{} variants", names.size()), version);
  }
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    fmt::print(stderr, "qualm: {}\n", error.what());
    return kBadInput;
  }
  RegisterAllSubjects();
  return run();
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
