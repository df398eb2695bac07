// SPDX-License-Identifier: Apache-2.0
// qualm doctor: the parts of qualm that work here, the absent parts, and how to get them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <memory>
#include <string>
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

// A subject that can be made here says its version; any other why it cannot.
Line Tried(const std::string& name) {
  try {
    const auto subject = SubjectRegistry::Get().Make(name);
    const std::string version = subject->Version();
    return {true, name, (version.empty() ? "" : version + ", ") + subject->InstructionSet()};
  } catch (const std::exception& error) {
    return {false, name, error.what()};
  }
}

Line About(const SubjectKind& kind) {
  if (!kind.why_absent.empty()) return {false, kind.kind, kind.why_absent};
  const std::vector<std::string> names = kind.names();
  if (names.empty()) return {true, kind.kind, kind.help};
  if (kind.kind != "native" && names.front() == kind.kind) return Tried(names.front());
  if (kind.kind != "native")
    return {true, kind.kind, fmt::format("{} of them (qualm list subjects)", names.size())};
  std::vector<std::string> targets;
  for (const std::string& name : names) {
    if (const size_t at = name.find('@'); at != std::string::npos)
      targets.push_back(name.substr(at + 1));
  }
  return {true, kind.kind, fmt::format("this processor runs {}", fmt::join(targets, ", "))};
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
  for (const SubjectKind& kind : SubjectRegistry::Get().kinds()) lines.push_back(About(kind));
  lines.push_back(Fuzzing());
  JsonList json;
  int absent = 0;
  for (const Line& line : lines) {
    session.Print("{}  {:<11} {}\n", line.good ? "ok    " : "absent", line.what, line.about);
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
