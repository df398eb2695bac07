// SPDX-License-Identifier: Apache-2.0
#include "triage/kept.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "properties/changes.h"
#include "triage/ask.h"
#include "triage/causes.h"
#include "triage/vary.h"

namespace qualm::triage {
namespace {

void FlipAll(Tensor& codes) {
  if (!IsCode(codes.dtype())) return;
  for (int64_t i = 0; i < codes.size(); ++i) MirrorCode(codes, i);
}

// A bias for each channel that moves its output by some codes.
std::vector<int32_t> BiasOf(const Case& c) {
  const auto scale = [](const QParams& q, int64_t n) {
    return q.scale.empty() ? 1.0 : double{q.scale_at(n)};
  };
  std::vector<int32_t> bias;
  for (int64_t n = 0; n < c.N; ++n) {
    const double unit = scale(c.x_q, 0) * scale(c.w_q, n) / scale(c.out_q, 0);
    const double codes = 20 + 7 * static_cast<double>(n % 5);
    bias.push_back(unit > 0 ? static_cast<int32_t>(std::clamp(codes / unit, 1.0, 1e9)) : 1000);
  }
  return bias;
}

// A pair of problems that differ in one thing, and what it is of.
struct Pair {
  Case before, after;
};
struct Thing {
  std::string name;
  std::string where;  // ", where ...": which problems have the pair
  std::function<Pair(const Case& c)> pair;
};

std::vector<Thing> ThingsOf(const Case& c) {
  std::vector<Thing> things;
  const auto changed = [](const auto& change) {
    return [change](const Case& problem) {
      Pair pair{problem, problem};
      change(pair.before);
      return pair;
    };
  };
  things.push_back({"the input", "", changed([](Case& before) { FlipAll(before.x); })});
  things.push_back({"the weights", "", changed([](Case& before) { FlipAll(before.w); })});
  for (size_t i = 0; i < ChangesOf(c); ++i) {
    Case named = c;
    things.push_back(
        {ApplyChange(i, named), "", changed([i](Case& before) { ApplyChange(i, before); })});
  }
  things.push_back({"the bias", ", where there is none", [](const Case& problem) {
                      Pair pair{problem, problem};
                      pair.after.bias.reset();
                      pair.after.bias_i32.reset();
                      if (RowOf(problem.op).bias_i32 && !problem.bias)
                        pair.before.bias_i32 = BiasOf(problem);
                      return pair;
                    }});
  return things;
}

// Whether the subject gives the answer of the first problem to the second, if that is wrong.
// nullopt where it cannot be asked or the second answer is another wrong one.
std::optional<bool> KeepsFirst(const Pair& pair, Subject& subject) {
  const auto can = [&](const Case& c) {
    return Validate(c).empty() && subject.CannotRun(c).empty();
  };
  if (pair.before == pair.after || !can(pair.before) || !can(pair.after)) return std::nullopt;
  const Convention* const model = ModelOf(subject.contract(pair.after.op));
  const Tensor old = RightOutput(pair.before, model), right = RightOutput(pair.after, model);
  if (right.empty() || old == right || old.shape() != right.shape() || old.dtype() != right.dtype())
    return std::nullopt;
  if (!Ask(subject, pair.before)) return std::nullopt;
  const std::optional<Tensor> answer = Ask(subject, pair.after);
  if (!answer || (*answer != right && *answer != old)) return std::nullopt;
  return *answer == old;
}

// The same in either order: what is kept may be older than both.
std::optional<bool> Keeps(const Pair& pair, Subject& subject) {
  const std::optional<bool> second = KeepsFirst(pair, subject);
  return second == true ? second : KeepsFirst({pair.after, pair.before}, subject);
}

}  // namespace

std::optional<KeptFromBefore> FindKept(const Case& c, Subject& subject) {
  constexpr uint64_t kSeed = 20261130, kDrawn = 24;
  constexpr int64_t kLargest = int64_t{1} << 12;
  constexpr int kLeast = 3, kProblems = 6;
  std::vector<Case> problems{ProblemOf(c)};
  for (uint64_t i = 0; i < kDrawn && problems.size() < kProblems; ++i) {
    std::optional<Case> next = Varied(c, MixSeed(kSeed, i));
    if (next && next->M * next->N * std::max<int64_t>(next->K, 1) <= kLargest)
      problems.push_back(std::move(*next));
  }
  std::vector<Thing> kept;
  int shown = 0;
  for (Thing& thing : ThingsOf(c)) {
    // Where all codes are old, so is the last one.
    const auto same = [&](const Thing& other) {
      return other.name == thing.name ||
             (thing.name == "the last element of x" && other.name == "the input") ||
             (thing.name == "the last element of w" && other.name == "the weights");
    };
    if (std::ranges::any_of(kept, same)) continue;
    int seen = 0;
    for (const Case& problem : problems)
      if (Keeps(thing.pair(problem), subject) == true) ++seen;
    if (seen < kLeast) continue;
    shown += seen;
    kept.push_back(std::move(thing));
  }
  if (kept.empty()) return std::nullopt;
  constexpr size_t kMost = 3;
  std::vector<std::string> names;
  for (const Thing& thing : kept) names.push_back(thing.name);
  const std::string more =
      names.size() > kMost ? fmt::format(" and {} things more", names.size() - kMost) : "";
  if (names.size() > kMost) names.resize(kMost);
  KeptFromBefore found;
  found.text = fmt::format("the subject goes on with {}{} of an earlier problem{}",
                           fmt::join(names, more.empty() ? " and " : ", "), more,
                           kept.size() == 1 ? kept.front().where : "");
  found.evidence = fmt::format(
      "asked in pairs that differ in nothing else, it gave one the answer of the other, "
      "{} times",
      shown);
  found.shows = [pair = kept.front().pair, &subject](const Case& problem) {
    return Keeps(pair(problem), subject);
  };
  return found;
}

}  // namespace qualm::triage
