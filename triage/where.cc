// SPDX-License-Identifier: Apache-2.0
#include "triage/where.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/rng.h"
#include "properties/adapt.h"
#include "properties/gen/gen.h"
#include "triage/vary.h"

namespace qualm::triage {
namespace {

// A size of a case, on which it may depend.
struct Size {
  std::string_view name;
  int64_t (*of)(const Case& c);
};
constexpr std::array kSizes{Size{"K", [](const Case& c) { return HasWindow(c.op) ? 0 : c.K; }},
                            Size{"N", [](const Case& c) { return c.N; }},
                            Size{"M", [](const Case& c) { return HasWindow(c.op) ? 0 : c.M; }},
                            Size{"C", [](const Case& c) { return c.window.in_c; }},
                            Size{"the width of the image", [](const Case& c) {
                                   return HasWindow(c.op) ? c.window.in_w : 0;
                                 }}};

// What is asked of a size n, with a number of lanes.
struct Form {
  const char* text;
  bool (*holds)(int64_t n, int64_t lanes);
};
constexpr std::array kForms{
    Form{"where {0} % {1} is not 0", [](int64_t n, int64_t lanes) { return n % lanes != 0; }},
    Form{"where {0} is above {1} and {0} % {1} is not 0",
         [](int64_t n, int64_t lanes) { return n > lanes && n % lanes != 0; }},
    Form{"where {0} is a multiple of {1}",
         [](int64_t n, int64_t lanes) { return n > 0 && n % lanes == 0; }},
    Form{"where {0} is {1} or more", [](int64_t n, int64_t lanes) { return n >= lanes; }}};

struct SizeRule {
  const Form* form;
  const Size* size;
  int64_t lanes;
  bool Holds(const Case& c) const { return form->holds(size->of(c), lanes); }
  std::string text() const { return fmt::format(fmt::runtime(form->text), size->name, lanes); }
};

std::vector<SizeRule> SizeRulesOf(const Case& c) {
  std::vector<SizeRule> all;
  for (const Size& size : kSizes)
    for (const int64_t lanes : {2, 3, 4, 8, 16, 32, 64})
      for (const Form& form : kForms) all.push_back({&form, &size, lanes});
  std::erase_if(all, [&](const SizeRule& each) { return !each.Holds(c); });
  return all;
}

}  // namespace

std::optional<WhereShown> FindWhereItShows(const Case& c, Subject& subject, const Shows& shows) {
  constexpr uint64_t kSeed = 20261129, kMostTries = 1500;
  constexpr int64_t kMostAsked = 80, kLargest = int64_t{1} << 14;
  constexpr int kLeast = 10, kSettled = 16;
  std::vector<SizeRule> left = SizeRulesOf(c);
  std::array<int, 2> seen{};  // cases in which it does not show, and in which it does
  int64_t asked = 0;
  for (uint64_t i = 0; i < kMostTries && asked < kMostAsked && !left.empty(); ++i) {
    const uint64_t seed = MixSeed(kSeed, i);
    std::optional<Case> next;
    if (i % 3 == 2) {
      next = AdaptTo(subject, gen::Draw(c.op, seed));
    } else {
      next = Varied(c, seed);
      if (next && i % 3 == 1) next = Reduced(*next, seed);
    }
    if (!next || next->x.dtype() != c.x.dtype() || next->w.dtype() != c.w.dtype() ||
        next->out_dtype != c.out_dtype || next->w_block != c.w_block || next->M * next->N == 0 ||
        next->M * next->N * std::max<int64_t>(next->K, 1) > kLargest ||
        !subject.CannotRun(*next).empty())
      continue;
    const auto holding =
        std::ranges::count_if(left, [&](const SizeRule& each) { return each.Holds(*next); });
    const bool disputed = holding != 0 && holding != std::ssize(left);
    // What all of them say is asked a few times: none of them may be right.
    int& undisputed = seen[holding > 0 ? 1 : 0];
    if (!disputed && undisputed >= kSettled) continue;
    const std::optional<bool> is = shows(*next);
    if (!is) continue;
    ++asked;
    ++seen[*is ? 1 : 0];
    std::erase_if(left, [&](const SizeRule& each) { return each.Holds(*next) != *is; });
  }
  if (left.size() != 1 || seen[0] < kLeast || seen[1] < kLeast) return std::nullopt;
  return WhereShown{left.front().text(),
                    fmt::format("so in each of {} further cases that show it, and in none of {} "
                                "that do not",
                                seen[1], seen[0]),
                    [is = left.front()](const Case& of) { return is.Holds(of); }};
}

}  // namespace qualm::triage
