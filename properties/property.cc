// SPDX-License-Identifier: Apache-2.0
#include "properties/property.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>

#include "core/burst.h"
#include "core/rng.h"
#include "oracles/conventions/convention.h"
#include "properties/list.h"
#include "properties/relation.h"

namespace qualm {
namespace {

// '*' any run, '?' any character.
bool Glob(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;
  size_t retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace

std::span<const Property> AllProperties() {
  static const std::vector<Property> properties = [] {
    std::vector<Property> all;
    for (auto group : {DifferentialProperties, SweepProperties, ClampProperties,
                       RoundTripProperties, AlgebraProperties, MetamorphicProperties,
                       WindowProperties, OperandProperties, TableProperties, ObserverProperties,
                       MemoryProperties, StateProperties, EnvironmentProperties}) {
      for (Property& property : group()) all.push_back(std::move(property));
    }
    return all;
  }();
  return properties;
}

const Property* FindProperty(std::string_view name) {
  std::string_view claim = name;
  std::optional<Op> op;
  if (const size_t dot = name.find('.'); dot != std::string_view::npos) {
    op = ParseOp(name.substr(0, dot));
    if (!op) return nullptr;
    claim = name.substr(dot + 1);
  }
  for (const Property& property : AllProperties()) {
    if (property.claim == claim && (!op || property.about(*op))) return &property;
  }
  return nullptr;
}

std::string FullName(Op op, const Property& property) {
  return std::string(Name(op)) + "." + std::string(property.claim);
}

bool MatchesGlob(std::string_view glob, Op op, const Property& property) {
  return property.about(op) && (Glob(glob, property.claim) || Glob(glob, FullName(op, property)));
}

std::vector<const Property*> PropertiesAbout(Op op, std::string_view glob) {
  // Every case of a run asks the same question.
  using Known = std::map<std::string, std::vector<const Property*>, std::less<>>;
  thread_local std::array<Known, kOpCount> every;
  Known& known = every[static_cast<size_t>(op)];
  if (const auto at = known.find(glob); at != known.end()) return at->second;
  std::vector<const Property*> about;
  for (const Property& property : AllProperties()) {
    if (MatchesGlob(glob, op, property)) about.push_back(&property);
  }
  known.emplace(glob, about);
  return about;
}

Verdict Judge(const Property& property, const Case& c, Subject& subject) {
  if (!property.about(c.op)) {
    return Verdict::NotApplicable("says nothing about " + std::string(Name(c.op)));
  }
  const Contract& contract = subject.contract();
  if (!contract.exact() && !property.any_contract) {
    const Convention* convention = FindConvention(contract.convention);
    if (convention == nullptr || !Satisfies(*convention, c.op, property.claim))
      return Verdict::NotApplicable("no theorem under contract " + contract.text());
  }
  if (std::string reason = subject.CannotRun(c); !reason.empty()) {
    return Verdict::Skipped(std::move(reason));
  }
  return property.check(c, subject);
}

namespace {

// A number that depends on the case and the claim: dear properties take turns of their own.
uint64_t TurnOf(uint64_t drawn, std::string_view claim) {
  for (const char letter : claim) drawn = MixSeed(drawn, static_cast<uint64_t>(letter));
  return drawn;
}

void JudgeBy(const std::vector<const Property*>& properties, const Case& c, MemoSubject& subject,
             const Told& told, std::optional<uint64_t> drawn) {
  const Burst burst;
  for (const Property* property : properties) {
    const auto one_in = static_cast<uint64_t>(property->one_in);
    if (drawn && one_in > 1 && TurnOf(*drawn, property->claim) % one_in != 0) continue;
    if (!told(*property, Judge(*property, c, subject))) return;
  }
}

}  // namespace

void JudgeAll(const Case& c, MemoSubject& subject, std::string_view glob, const Told& told,
              std::optional<uint64_t> drawn) {
  JudgeBy(PropertiesAbout(c.op, glob), c, subject, told, drawn);
}

void JudgeInTurn(const Case& c, MemoSubject& subject, std::string_view glob, const Told& told) {
  JudgeBy(PropertiesInTurn(c, glob), c, subject, told, std::nullopt);
}

std::vector<const Property*> PropertiesInTurn(const Case& c, std::string_view glob) {
  constexpr size_t kTurns = 2;
  std::vector<const Property*> judges = PropertiesAbout(c.op, glob);
  size_t compared = 0;
  for (const Property*& each : judges) {
    if (each->claim == "matches_exact" || each->claim == "matches_model")
      std::swap(each, judges[compared++]);
  }
  if (judges.size() <= compared + kTurns) return judges;
  Rng rng(relation::Hash(c));
  for (size_t i = compared; i < compared + kTurns; ++i) {
    std::swap(judges[i], judges[i + rng.Below(judges.size() - i)]);
  }
  judges.resize(compared + kTurns);
  return judges;
}

std::optional<Verdict> BadOutcome(const Outcome& outcome) {
  if (outcome.ok()) return std::nullopt;
  if (outcome.status == RunStatus::kSkipped) return Verdict::Skipped(outcome.detail);
  Verdict verdict = Verdict::Failed(std::string(Name(outcome.status)) + ": " + outcome.detail);
  switch (outcome.status) {
    case RunStatus::kCrashed: verdict.kind = FindingKind::kCrash; break;
    case RunStatus::kHung: verdict.kind = FindingKind::kHang; break;
    case RunStatus::kLeftBehind:
    case RunStatus::kTouchedOutside:
    case RunStatus::kModifiedInput: verdict.kind = FindingKind::kMemory; break;
    case RunStatus::kOk:
    case RunStatus::kSkipped:
    case RunStatus::kRefused:
    case RunStatus::kGarbage: verdict.kind = FindingKind::kUnknown; break;
  }
  return verdict;
}

Outcome MemoSubject::Run(const Case& c, const RunContext& context) {
  const bool memorable = context == RunContext{};
  if (memorable) {
    for (const Entry& entry : recent_) {
      if (entry.problem == c) return entry.outcome;
    }
  }
  ++runs_;
  Outcome outcome = inner().Run(c, context);
  if (memorable) Remember(c, outcome);
  return outcome;
}

void MemoSubject::Remember(const Case& c, const Outcome& outcome) {
  constexpr size_t kRemembered = 8;
  // The first entry is the case that every property starts from: it stays.
  if (recent_.size() == kRemembered) recent_.erase(recent_.begin() + 1);
  recent_.push_back({c, outcome});
}

}  // namespace qualm
