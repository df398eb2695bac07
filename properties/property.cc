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
      for (Property& property : group()) {
        for (const char letter : property.turn.empty() ? property.claim : property.turn)
          property.turn_number = MixSeed(property.turn_number, static_cast<uint64_t>(letter));
        all.push_back(std::move(property));
      }
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

int OneIn(const Property& property) {
  const bool theorem = !property.any_contract && property.claim != "matches_exact";
  return theorem ? std::max(property.one_in, kInTurn) : property.one_in;
}

bool Compares(const Property& property) {
  return property.claim == "matches_exact" || property.claim == "matches_model";
}

bool MatchesGlob(std::string_view glob, Op op, const Property& property) {
  if (!property.about(op)) return false;
  const std::string name = FullName(op, property);
  // A list of exclusions alone begins with all properties.
  bool matches = glob.starts_with('!');
  for (size_t at = 0; at < glob.size();) {
    const size_t end = std::min(glob.find(',', at), glob.size());
    std::string_view one = glob.substr(at, end - at);
    at = end + 1;
    const bool out = one.starts_with('!');
    if (out) one.remove_prefix(1);
    if (Glob(one, property.claim) || Glob(one, name)) matches = !out;
  }
  return matches;
}

const std::vector<const Property*>& PropertiesAbout(Op op, std::string_view glob) {
  // All cases of a run ask with the same glob, so the answer is kept.
  using Known = std::map<std::string, std::vector<const Property*>, std::less<>>;
  thread_local std::array<Known, kOpCount> every;
  Known& known = every[static_cast<size_t>(op)];
  if (const auto at = known.find(glob); at != known.end()) return at->second;
  std::vector<const Property*> about;
  for (const Property& property : AllProperties()) {
    if (MatchesGlob(glob, op, property)) about.push_back(&property);
  }
  return known.emplace(glob, std::move(about)).first->second;
}

Verdict Judge(const Property& property, const Case& c, Subject& subject) {
  if (!property.about(c.op)) {
    return Verdict::NotApplicable("says nothing about " + std::string(Name(c.op)));
  }
  const Contract& contract = subject.contract(c.op);
  if (!contract.exact() && !property.any_contract) {
    const Convention* convention = FindConvention(contract.convention);
    if (convention == nullptr || !Satisfies(*convention, c.op, property.claim))
      return Verdict::NotApplicable("no theorem under contract " + contract.text());
  }
  if (std::string reason = subject.CannotRun(c); !reason.empty()) {
    return Verdict::Skipped(std::move(reason));
  }
  if ((c.w_block != 0 || HasElementBlocks(c) || HasFloatX(c)) && !property.any_contract &&
      property.claim != "matches_exact")
    return Verdict::NotApplicable("no theorem is stated for " + std::string(HasFloatX(c) ? kOfFloatX
                                                                            : HasElementBlocks(c)
                                                                                ? kElementsInBlocks
                                                                                : kInBlocks));
  return property.check(c, subject);
}

namespace {

void JudgeBy(const std::vector<const Property*>& properties, const Case& c, MemoSubject& subject,
             const Told& told, std::optional<uint64_t> drawn) {
  const Burst burst;
  const bool in_turn = drawn.has_value() && properties.size() > 1;
  const uint64_t seed = drawn.value_or(0);
  for (const Property* property : properties) {
    const auto one_in = static_cast<uint64_t>(OneIn(*property));
    if (in_turn && one_in > 1 && MixSeed(seed, property->turn_number) % one_in != 0) continue;
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
    if (Compares(*each)) std::swap(each, judges[compared++]);
  }
  if (judges.size() <= compared + kTurns) return judges;
  Rng rng(relation::Hash(c));
  size_t chosen = compared;
  for (size_t i = compared; chosen < compared + kTurns; ++i) {
    std::swap(judges[i], judges[i + rng.Below(judges.size() - i)]);
    const bool needed = judges.size() - i == compared + kTurns - chosen;
    const auto one_in = static_cast<uint64_t>(judges[i]->one_in);
    // A dear property gives way as often as it does on drawn cases.
    if (one_in > 1 && !needed && !rng.Chance(1, one_in)) continue;
    std::swap(judges[chosen++], judges[i]);
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
  // Runs with another poison are not remembered: a property that asks twice on purpose sets one.
  RunContext usual;
  usual.end_at_guard = context.end_at_guard;
  usual.x_row_gap = context.x_row_gap;
  usual.y_row_gap = context.y_row_gap;
  const bool memorable = context == usual;
  if (memorable) {
    for (const Entry& entry : recent_) {
      if (entry.context == context && entry.problem == c) return entry.outcome;
    }
  }
  ++runs_;
  Outcome outcome = inner().Run(c, context);
  if (memorable) Remember(c, context, outcome);
  return outcome;
}

void MemoSubject::Remember(const Case& c, const Outcome& outcome) {
  Remember(c, RunContext{}, outcome);
}

void MemoSubject::Remember(const Case& c, const RunContext& context, const Outcome& outcome) {
  constexpr size_t kRemembered = 8;
  if (recent_.size() < kRemembered) {
    recent_.push_back({c, context, outcome});
    return;
  }
  // The first entry is the case that every property starts from, and it stays. Each new run
  // replaces one of the others in turn.
  recent_[1 + static_cast<size_t>(runs_) % (kRemembered - 1)] = {c, context, outcome};
}

}  // namespace qualm
