// SPDX-License-Identifier: Apache-2.0
// qualm doctor: the parts of qualm that work here, the absent parts, and how to get them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/registry.h"
#include "campaign/engine.h"
#include "core/status.h"
#include "core/subject.h"
#include "tools/command.h"
#include "tools/session.h"

namespace qualm::tools {
namespace {

struct Line {
  bool good;
  std::string what, about;
};

// A subject that can be made here says its version, its instruction set and what it promises; any
// other why it cannot.
Line Tried(const std::string& name) {
  try {
    const auto subject = SubjectRegistry::Get().Make(name);
    std::string about(subject->Version());
    const std::string isa(subject->InstructionSet());
    if (!isa.empty() && isa != "unknown") about += (about.empty() ? "" : ", ") + isa;
    return {true, name, about + "; promises " + subject->contracts().text()};
  } catch (const std::exception& error) {
    return {false, name, error.what()};
  }
}

// Engines of one library, as PyTorch's, are tried each; of more than these, as ggml's processors,
// none is.
constexpr size_t kMostEngines = 6;

std::vector<Line> About(const SubjectKind& kind) {
  if (!kind.why_absent.empty()) return {{false, kind.kind, kind.why_absent}};
  const std::vector<std::string> names = kind.names();
  if (names.empty()) return {{true, kind.kind, kind.help}};
  if (kind.kind != "native" && names.front() == kind.kind) return {Tried(names.front())};
  if (kind.kind != "native") {
    std::vector<std::string> engines;
    std::ranges::copy_if(names, std::back_inserter(engines), [](const std::string& name) {
      return name.find('+') == std::string::npos;
    });
    if (kind.when_listed.empty() || engines.size() > kMostEngines)
      return {{true, kind.kind, fmt::format("{} of them (qualm list subjects)", names.size())}};
    std::vector<Line> lines;
    std::ranges::transform(engines, std::back_inserter(lines), Tried);
    return lines;
  }
  std::vector<std::string> targets;
  for (const std::string& name : names) {
    if (const size_t at = name.find('@'); at != std::string::npos)
      targets.push_back(name.substr(at + 1));
  }
  return {{true, kind.kind, fmt::format("this processor runs {}", fmt::join(targets, ", "))}};
}

Line Fuzzing() {
  try {
    return {true, "fuzzing", "engine " + std::string(campaign::FindEngine("").name)};
  } catch (const Unavailable& error) {
    return {false, "fuzzing", error.what()};
  }
}

int RunDoctor(const CommonOptions& options) {
  Session session(options);
  std::vector<Line> lines;
  for (const SubjectKind& kind : SubjectRegistry::Get().kinds()) {
    for (Line& line : About(kind)) lines.push_back(std::move(line));
  }
  lines.push_back(Fuzzing());
  JsonList json;
  int absent = 0;
  for (const Line& line : lines) {
    session.Print("{}  {:<16} {}\n", line.good ? "ok    " : "absent", line.what, line.about);
    absent += line.good ? 0 : 1;
    json.Add(JsonObject{{"name", line.what}, {"usable", line.good}, {"about", line.about}});
  }
  session.Print("{}\n", absent == 0 ? "Everything works here."
                                    : fmt::format("{} absent; the rest works without.", absent));
  session.document.extra.emplace_back("doctor", json);
  session.Write();
  return kClean;
}

}  // namespace

void AddDoctor(CLI::App& app, Run* run) {
  auto options = std::make_shared<CommonOptions>();
  Verb verb(app, run, "doctor", "what works here, what is absent, and how to get it",
            "Example: qualm doctor");
  AddOutputOptions(verb, *options);
  verb.Does([options] { return RunDoctor(*options); });
}

}  // namespace qualm::tools
