// SPDX-License-Identifier: Apache-2.0
#include "proofs/staircase.h"

#include <algorithm>
#include <utility>

#include "core/status.h"

namespace qualm::proofs {
namespace {

// The search for the first input of value n or more.
struct Search {
  int32_t n = 0;
  uint64_t below = 0;  // the value here is less than n
  uint64_t at = 0;     // and here n or more
  uint64_t guess = 0;
  uint64_t radius = 1;  // around the guess; 0 once the answer is known to lie inside it
};

// The inputs to ask next: the ends of a growing neighbourhood of the guess, then halves.
std::pair<uint64_t, uint64_t> Probes(const Search& search) {
  if (search.radius == 0) {
    const uint64_t middle = search.below + (search.at - search.below) / 2;
    return {middle, middle};
  }
  const auto inside = [&](uint64_t input) { return std::clamp(input, search.below, search.at); };
  const uint64_t low = search.guess > search.radius ? search.guess - search.radius : 0;
  const uint64_t high = search.guess + search.radius - 1;
  return {inside(low), inside(high)};
}

// Inputs that were asked, and their values.
struct Known {
  std::vector<std::pair<uint64_t, int32_t>> list;

  std::vector<int32_t> AskAll(const Ask& ask, std::span<const uint64_t> inputs) {
    std::vector<int32_t> values = ask(inputs);
    QUALM_CHECK_EQ(values.size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) list.emplace_back(inputs[i], values[i]);
    return values;
  }
};

void Narrow(Search& search, int32_t value_low, int32_t value_high) {
  const auto [low, high] = Probes(search);
  const auto learn = [&](uint64_t input, int32_t value) {
    const bool reached = value >= search.n;
    if (reached && input < search.at) search.at = input;
    if (!reached && input > search.below) search.below = input;
  };
  learn(low, value_low);
  learn(high, value_high);
  if (search.radius == 0) return;
  const bool enclosed = search.below >= low && search.at <= high;
  search.radius = enclosed || search.radius > search.at - search.below ? 0 : search.radius * 16;
}

std::optional<Fall> FallAmong(Known& known) {
  auto& list = known.list;
  if (!std::ranges::is_sorted(list)) std::ranges::sort(list);
  for (size_t i = 1; i < list.size(); ++i) {
    if (list[i].second < list[i - 1].second)
      return Fall{list[i - 1].first, list[i].first, list[i - 1].second, list[i].second};
  }
  return std::nullopt;
}

}  // namespace

int32_t ValueAt(const Steps& steps, uint64_t input) {
  const auto next = std::ranges::upper_bound(steps, input, {}, &Step::start);
  QUALM_CHECK(next != steps.begin());
  return std::prev(next)->value;
}

FoundSteps FindSteps(const Ask& ask, uint64_t first, uint64_t last,
                     const std::function<uint64_t(int32_t n)>& guess, uint64_t samples) {
  Known known;
  std::vector<uint64_t> inputs{first, last};
  const uint64_t stride = samples == 0 ? 0 : (last - first) / samples;
  for (uint64_t i = 1; stride != 0 && i < samples; ++i) inputs.push_back(first + i * stride);
  std::vector<int32_t> values = known.AskAll(ask, inputs);
  const int32_t lowest = values[0], highest = values[1];

  std::vector<Search> searches;
  for (int64_t n = int64_t{lowest} + 1; n <= highest; ++n) {
    const auto value = static_cast<int32_t>(n);
    searches.push_back({value, first, last, std::clamp(guess(value), first + 1, last)});
  }
  const auto open = [](const Search& search) { return search.at - search.below > 1; };
  while (true) {
    inputs.clear();
    for (const Search& search : searches) {
      if (!open(search)) continue;
      const auto [low, high] = Probes(search);
      inputs.push_back(low);
      inputs.push_back(high);
    }
    if (inputs.empty()) break;
    values = known.AskAll(ask, inputs);
    size_t next = 0;
    for (Search& search : searches) {
      if (!open(search)) continue;
      Narrow(search, values[next], values[next + 1]);
      next += 2;
    }
  }

  FoundSteps found;
  found.steps = {{first, lowest}};
  found.asked = known.list.size();
  for (const Search& search : searches) {
    // A step may pass several values.
    if (found.steps.back().start != search.at) found.steps.push_back({search.at, search.n});
    found.steps.back().value = search.n;
  }
  found.fall = FallAmong(known);
  return found;
}

namespace {

// The first input after the fall.
uint64_t EndOfFall(const Ask& ask, const Fall& fall, uint64_t* asked) {
  uint64_t before = fall.a, after = fall.b;
  while (after - before > 1) {
    const uint64_t middle = before + (after - before) / 2;
    const int32_t value = ask(std::span(&middle, 1)).front();
    ++*asked;
    (value >= fall.value_a ? before : after) = middle;
  }
  return after;
}

FoundSteps PiecesWithin(const Ask& ask, uint64_t first, uint64_t last,
                        const std::function<uint64_t(int32_t n)>& guess, uint64_t samples,
                        int most_splits) {
  FoundSteps found = FindSteps(ask, first, last, guess, samples);
  if (!found.fall || found.fall->a == found.fall->b || most_splits == 0) return found;
  uint64_t asked = found.asked;
  const uint64_t split = EndOfFall(ask, *found.fall, &asked);
  FoundSteps left = PiecesWithin(ask, first, split - 1, guess, samples, most_splits - 1);
  const FoundSteps right = PiecesWithin(ask, split, last, guess, samples, most_splits - 1);
  left.steps.insert(left.steps.end(), right.steps.begin(), right.steps.end());
  if (!left.fall) left.fall = right.fall;
  left.falls += right.falls + 1;
  left.asked += right.asked + asked;
  return left;
}

}  // namespace

FoundSteps FindPieces(const Ask& ask, uint64_t first, uint64_t last,
                      const std::function<uint64_t(int32_t n)>& guess, uint64_t samples) {
  constexpr int kMostSplits = 6;  // one inside another
  return PiecesWithin(ask, first, last, guess, samples, kMostSplits);
}

}  // namespace qualm::proofs
