// SPDX-License-Identifier: Apache-2.0
// The `qualm` command. stdout carries findings, stderr progress. Exit status: 0 clean, 1 findings,
// 2 bad usage or input, 3 a subject named on the command line was unavailable or broke the harness.
// Our own mistakes abort, as core/status.h says.
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <string_view>
#include <vector>

#include "adapters/registry.h"
#include "core/nearest.h"
#include "core/status.h"
#include "tools/command.h"
#include "tools/session.h"

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

// The subjects of this build: our kernels by target, and the libraries that were found.
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

// Fills closed standard streams. Else a file opened later would get the number of stdout or stderr,
// and the text for it. Read-only, so that writing to the stream still fails.
void FillStandardStreams() {
  for (int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(number, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != number) return;
  }
}

// The tensors of long sums come and go with their cases. Memory that the C library hands back to
// the system has to be cleared page by page when the next one comes.
void KeepMemory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that it takes
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

std::string NearestTo(std::string_view word, const std::vector<std::string>& names,
                      size_t letters) {
  const std::vector<std::string_view> known(names.begin(), names.end());
  return NearestText(word, known, letters);
}

void RequireVerb(const CLI::App& app, const std::string& word) {
  if (word.starts_with('-')) {
    if (word == "--help" || word == "-h" || word == "--version") return;
    throw InputError("unknown option '" + word + "' (see qualm --help)");
  }
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands({})) names.push_back(verb->get_name());
  if (std::ranges::find(names, word) != names.end()) return;
  throw InputError("unknown verb '" + word + "'" + NearestTo(word, names, word.size()) +
                   " (see qualm --help)");
}

// The option of a verb that nobody knows, with the nearest that there is; CLI11's text for any
// other word too many.
std::string TooMany(const CLI::App& app, std::span<char* const> words, const char* text) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_subcommand(words[1])->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const std::string_view word : words.subspan(2)) {
    const std::string_view name = word.substr(0, word.find('='));
    if (!name.starts_with("--") || name == "--" || std::ranges::find(names, name) != names.end())
      continue;
    return fmt::format("unknown option '{}'{} (see qualm {} --help)", name,
                       NearestTo(name, names, name.size() - 2), words[1]);
  }
  return text;
}

constexpr const char* kFirstSteps =
    "Three things to try first:\n"
    "  qualm doctor                                 what works here\n"
    "  qualm check --subject native --op linear     draw cases, judge them\n"
    "  qualm explain CASE.json                      why do two numbers differ?\n";

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
  AddIdentify(app, &run);
  AddCertify(app, &run);
  AddRepair(app, &run);
  AddExhaust(app, &run);
  AddHazards(app, &run);
  AddList(app, &run);
  AddReport(app, &run);
  AddFuzz(app, &run);
  AddMerge(app, &run);
  AddNew(app, &run);
  AddDoctor(app, &run);
  AddShell(app, &run);
  if (argc < 2) {
    Out(kFirstSteps);
    throw InputError("no verb, expected one (see qualm --help)");
  }
  RequireVerb(app, argv[1]);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError& error) {
    throw InputError(TooMany(app, std::span(argv, static_cast<size_t>(argc)), error.what()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw InputError(error.what());
    app.exit(error);  // --help, --version
    std::cout.flush();
    if (!std::cout || std::fflush(stdout) != 0) throw InputError("stdout cannot be written");
    return kClean;
  }
  RegisterAllSubjects();
  const int status = run();
  if (std::fflush(stdout) != 0) throw InputError("stdout cannot be written");
  return status;
}

}  // namespace
}  // namespace qualm::tools

int main(int argc, char** argv) {
  qualm::tools::FillStandardStreams();
  qualm::tools::KeepMemory();
  // A file that may not grow further is a file that cannot be written.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return qualm::tools::Main(argc, argv);
  } catch (const qualm::InputError& error) {
    qualm::tools::TellLine(error.what());
    return qualm::tools::kBadInput;
  } catch (const qualm::Unavailable& error) {
    qualm::tools::TellLine(error.what());
    return qualm::tools::kUnavailable;
  } catch (const std::filesystem::filesystem_error& error) {
    qualm::tools::TellLine(error.what());
    return qualm::tools::kBadInput;
  } catch (const std::bad_alloc&) {
    qualm::tools::TellLine("not enough memory for this input");
    return qualm::tools::kBadInput;
  } catch (const std::exception& error) {
    qualm::tools::TellLine(std::string("internal error: ") + error.what());
    std::abort();
  }
}
