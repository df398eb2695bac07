// SPDX-License-Identifier: Apache-2.0
#include "tools/emit.h"

#include <filesystem>

#include "core/io/shell_word.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "exporters/exporter.h"
#include "tools/blocks.h"
#include "tools/findings.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

const exporters::Exporter& ExporterOf(const std::string& kind) {
  for (const exporters::Exporter& exporter : exporters::AllExporters()) {
    if (exporter.kind == kind) return exporter;
  }
  throw InputError("--emit: there is no '" + kind + "' (see qualm list exporters)");
}

void WriteInto(const fs::path& folder, const NamedTexts& files) {
  for (const auto& [name, text] : files) {
    MakeFolder("--output", (folder / name).parent_path().string());
    WriteTextFile((folder / name).string(), text);
  }
}

// A finding that shows a case without a failure: the answer is right.
Finding RightAnswer(const Case& c) {
  return {c, c.property.empty() ? "matches_exact" : c.property,
          c.observed ? c.observed->by : "nobody", Verdict::Passed()};
}

}  // namespace

void AddEmitOptions(Verb& verb, CommonOptions& options, const std::string& without) {
  verb.Text("--emit", options.emit,
            "write the case as KIND, to run without qualm (see qualm list exporters)")
      .Called("KIND");
  verb.Text("-o,--output", options.output,
            without + "what --emit makes goes to this file or folder (default: stdout)")
      .Called("PATH");
  if (without.empty()) {
    verb.Checks([&options] {
      if (options.emit.empty() && !options.output.empty())
        throw InputError("--output: is for --emit, expected --emit KIND too");
    });
  }
}

void RequireEmittable(const CommonOptions& options, const std::vector<std::string>& read) {
  if (options.emit.empty()) return RequireWritable(options, {{"--output", options.output}}, read);
  const exporters::Exporter& exporter = ExporterOf(options.emit);
  if (!options.output.empty() && exporter.folder) {
    std::error_code error;
    if (fs::exists(options.output, error) && !fs::is_empty(options.output, error))
      throw InputError("--output: " + options.output + ": is not empty, expected a new folder");
    RequireFolder("--output", options.output);
    return RequireWritable(options, {}, read);
  }
  if (options.output.empty() && exporter.folder)
    throw InputError("--emit: " + options.emit + " is a folder, expected -o FOLDER too");
  if (options.output.empty() && (options.json == "-" || options.junit == "-"))
    throw InputError("--emit: stdout takes one document, expected -o FILE or a file for --json");
  RequireWritable(options, {{"--output", options.output}}, read);
}

void Emit(const CommonOptions& options, Case c, Subject* subject, const Finding* found) {
  if (options.emit.empty()) return;
  exporters::Environment environment{.qualm = QUALM_VERSION, .processor = Processor()};
  if (subject != nullptr) {
    environment.command =
        "qualm explain case.json --subject " + ShellWord(std::string(subject->name()));
    environment.library = subject->Version();
    environment.instruction_set = subject->InstructionSet();
    const Outcome outcome = subject->Run(c, RunContext{});
    if (outcome.ok()) {
      const std::string version = subject->Version().empty() ? "" : " " + subject->Version();
      c.observed = Observed{std::string(subject->name()) + version, outcome.y};
    }
  }
  const NamedTexts files =
      exporters::Export(options.emit, c, found ? *found : RightAnswer(c), environment);
  if (ExporterOf(options.emit).folder) {
    WriteInto(options.output, files);
  } else if (options.output.empty()) {
    Out(files.front().second);
  } else {
    WriteTextFile(options.output, files.front().second);
  }
}

void EmitFirst(const CommonOptions& options, const Case& c, const Session& session) {
  Subject* const subject = session.subjects.empty() ? nullptr : session.subjects.front().get();
  const std::string who = subject == nullptr ? "observed" : std::string(subject->name());
  const std::vector<Finding>& all = session.document.findings;
  const auto found = std::ranges::find(all, who, &Finding::subject);
  Emit(options, c, subject, found == all.end() ? nullptr : &*found);
}

}  // namespace qualm::tools
