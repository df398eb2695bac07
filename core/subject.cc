// SPDX-License-Identifier: Apache-2.0
#include "core/subject.h"

#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/nearest.h"
#include "core/status.h"

namespace qualm {

namespace {

std::string_view KindOf(std::string_view name) { return name.substr(0, name.find_first_of(":@+")); }

// What a subject is that was named by its file alone: a shared object, or a program that can be
// asked through a pipe. "" if the name is no file and does not look like one.
std::string KindOfFile(const std::string& name) {
  if (name.ends_with(".so")) return "plugin";
  std::error_code ignored;
  return std::filesystem::is_regular_file(name, ignored) ? "pipe" : "";
}

[[noreturn]] void Unknown(const std::string& name, std::span<const SubjectKind> kinds) {
  std::string nearest;
  size_t best = SIZE_MAX;
  for (const SubjectKind& kind : kinds) {
    std::vector<std::string> candidates = kind.names();
    candidates.push_back(kind.kind);
    for (std::string& candidate : candidates) {
      const size_t distance = EditDistance(name, candidate);
      if (distance < best) {
        best = distance;
        nearest = std::move(candidate);
      }
    }
  }
  // "pipe", "pipe:": nothing was mistyped, something is missing.
  if (best == 0 || nearest + ":" == name) {
    throw InputError("--subject: '" + name +
                     "' is a kind of subjects, expected one of them (see qualm list subjects)");
  }
  if (const std::string kind = KindOfFile(name); !kind.empty()) {
    // Shells and loaders look elsewhere for a name without a slash.
    const std::string path = name.find('/') == std::string::npos ? "./" + name : name;
    throw InputError("--subject: '" + name + "' is no subject, did you mean '" + kind + ":" + path +
                     "'?");
  }
  // In half steps: where most letters differ nothing was mistyped.
  const bool near = best <= name.size();
  throw InputError("--subject: unknown subject '" + name + "'" +
                   (near ? ", nearest is '" + nearest + "'" : "") + " (see qualm list subjects)");
}

}  // namespace

std::string Refused(const StateLimits& limits, const RunContext& context, uint32_t features) {
  constexpr RunContext kUsual;
  const auto states = StatesOf(context), usual = StatesOf(kUsual);
  std::string refusal;
  const auto look = [&]<size_t kAt>() {
    const StateLimit& limit = limits[kAt];
    if (!refusal.empty() || std::get<kAt>(states) == std::get<kAt>(usual)) return;
    if ((features & limit.feature) == 0) refusal = limit.refusal;
  };
  [&]<size_t... kAt>(std::index_sequence<kAt...>) {
    (look.template operator()<kAt>(), ...);
  }(std::make_index_sequence<kRunStates>());
  return refusal;
}

std::string_view Name(RunStatus status) {
  constexpr std::array<std::string_view, 9> kNames{
      "ok",      "skipped",    "refused", "crashed", "hung", "touched-outside", "modified-input",
      "garbage", "left-behind"};
  return kNames[static_cast<size_t>(status)];
}

const Contract& Subject::contract() const {
  if (contracts_.by_op.empty()) return *contracts_.rest;
  throw InputError("subject '" + std::string(name()) +
                   "': its contract depends on the operation (" + contracts_.text() +
                   "), expected --contract with one");
}

std::vector<Outcome> Subject::RunMany(std::span<const Case> cases, const RunContext& context) {
  std::vector<Outcome> outcomes;
  outcomes.reserve(cases.size());
  for (const Case& c : cases) outcomes.push_back(Run(c, context));
  return outcomes;
}

bool Concerns(const ExpectedDivergence& row, const Subject& subject, const Contract& contract,
              std::string_view op, std::string_view claim) {
  if (row.op != op || (row.property != claim && row.property != "*")) return false;
  if (row.subject == subject.name()) return true;
  if (row.subject != contract.text()) return false;
  return row.library.empty() ||
         (std::string(KindOf(subject.name())) + ": " + subject.Version()).starts_with(row.library);
}

bool Fits(const ExpectedDivergence& row, const Case& c, std::string_view sentence) {
  return sentence.find(row.shape) != std::string_view::npos &&
         (row.where == nullptr || row.where(c));
}

SubjectRegistry& SubjectRegistry::Get() {
  static SubjectRegistry registry;
  return registry;
}

void SubjectRegistry::Add(SubjectKind kind) {
  for (const SubjectKind& known : kinds_) {
    if (known.kind == kind.kind) return;  // registering twice is harmless
  }
  kinds_.push_back(std::move(kind));
}

std::vector<std::string> SubjectRegistry::Expand(const std::string& name) const {
  for (const SubjectKind& kind : kinds_) {
    if (kind.kind != KindOf(name)) continue;
    std::vector<std::string> expanded =
        kind.expand ? kind.expand(name) : std::vector<std::string>{};
    if (!expanded.empty()) return expanded;
    return {name};
  }
  Unknown(name, kinds_);
}

std::unique_ptr<Subject> SubjectRegistry::Make(const std::string& name) const {
  for (const SubjectKind& kind : kinds_) {
    if (kind.kind != KindOf(name)) continue;
    if (!kind.why_absent.empty()) throw Unavailable("subject '" + name + "': " + kind.why_absent);
    if (std::unique_ptr<Subject> subject = kind.make(name)) return subject;
    break;
  }
  Unknown(name, kinds_);
}

std::unique_ptr<Subject> SubjectRegistry::MakeAnew(const Subject& subject) const {
  if (!subject.MayBeMadeAnew()) return nullptr;
  try {
    std::unique_ptr<Subject> made = Make(std::string(subject.name()));
    made->set_contracts(subject.contracts());
    return made;
  } catch (const std::exception&) {
    return nullptr;
  }
}

}  // namespace qualm
