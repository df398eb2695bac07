// SPDX-License-Identifier: Apache-2.0
#include "proofs/steps.h"

#include <algorithm>
#include <map>

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

using Known = std::map<uint64_t, int32_t>;

void AskAll(const Ask& ask, std::vector<uint64_t>& inputs, Known& known) {
  std::ranges::sort(inputs);
  inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
  std::erase_if(inputs, [&](uint64_t input) { return known.contains(input); });
  if (inputs.empty()) return;
  const std::vector<int32_t> values = ask(inputs);
  QUALM_CHECK_EQ(values.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) known.emplace(inputs[i], values[i]);
}

void Narrow(Search& search, const Known& known) {
  const auto [low, high] = Probes(search);
  const auto learn = [&](uint64_t input) {
    const bool reached = known.at(input) >= search.n;
    if (reached && input < search.at) search.at = input;
    if (!reached && input > search.below) search.below = input;
  };
  learn(low);
  learn(high);
  if (search.radius == 0) return;
  const bool enclosed = search.below >= low && search.at <= high;
  search.radius = enclosed || search.radius > search.at - search.below ? 0 : search.radius * 16;
}

std::optional<Fall> FallAmong(const Known& known) {
  for (auto it = known.begin(); it != known.end() && std::next(it) != known.end(); ++it) {
    const auto next = std::next(it);
    if (next->second < it->second) return Fall{it->first, next->first, it->second, next->second};
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
  AskAll(ask, inputs, known);

  std::vector<Search> searches;
  for (int64_t n = int64_t{known.at(first)} + 1; n <= known.at(last); ++n) {
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
    AskAll(ask, inputs, known);
    for (Search& search : searches) {
      if (open(search)) Narrow(search, known);
    }
  }

  FoundSteps found{{{first, known.at(first)}}, FallAmong(known), known.size()};
  for (const Search& search : searches) {
    // A step may pass several values.
    if (found.steps.back().start != search.at) found.steps.push_back({search.at, search.n});
    found.steps.back().value = known.at(search.at);
  }
  return found;
}

}  // namespace qualm::proofs
