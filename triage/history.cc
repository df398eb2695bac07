// SPDX-License-Identifier: Apache-2.0
#include "triage/history.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "triage/passes.h"
#include "triage/reduce.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

bool SameShape(const Case& a, const Case& b) {
  return a.op == b.op && a.x.shape() == b.x.shape() && a.w.shape() == b.w.shape();
}

// The boldest candidates of a pass. Later ones are offered again once a bold one was taken.
std::vector<Case> Candidates(Pass pass, const Case& c) {
  constexpr size_t kMost = 256;
  std::vector<Case> candidates;
  pass(c, [&](const Case& candidate) {
    candidates.push_back(candidate);
    return candidates.size() == kMost;
  });
  return candidates;
}

bool IsSimpler(const Case& candidate, const Case& c) {
  return Validate(candidate).empty() && Complexity(candidate) < Complexity(c);
}

class Shortening {
 public:
  Shortening(History history, const FailsAfter& fails, const std::function<bool()>& stop)
      : best_(std::move(history)), fails_(fails), stop_(stop) {}

  History Run() {
    while (DropCases()) {
    }
    while (Simplify()) {
    }
    return std::move(best_);
  }

 private:
  // Takes `history` if it fails too.
  bool Take(History history) {
    if (stop_() || !fails_(history)) return false;
    best_ = std::move(history);
    return true;
  }

  bool DropCases() {
    const auto count = static_cast<int64_t>(best_.before.size());
    return Shrink(count, [&](const std::vector<int64_t>& kept) {
      if (static_cast<int64_t>(kept.size()) == count) return false;
      History shorter{{}, best_.failing};
      for (const int64_t i : kept) shorter.before.push_back(best_.before[static_cast<size_t>(i)]);
      return Take(std::move(shorter));
    });
  }

  bool Simplify() {
    bool improved = false;
    for (const Pass pass : AllPasses()) {
      while (Together(pass)) improved = true;
    }
    improved |= Alone([](History& history) { return &history.failing; });
    for (size_t i = 0; i < best_.before.size(); ++i) {
      improved |= Alone([i](History& history) { return &history.before[i]; });
    }
    return improved;
  }

  // Candidate number i of the failing case goes with candidate number i of each earlier case of the
  // same shape: a pass offers the same cuts of the same shape in the same order.
  bool Together(Pass pass) {
    std::vector<std::pair<size_t, std::vector<Case>>> earlier;
    for (size_t i = 0; i < best_.before.size(); ++i) {
      if (SameShape(best_.before[i], best_.failing))
        earlier.emplace_back(i, Candidates(pass, best_.before[i]));
    }
    if (earlier.empty()) return false;
    const std::vector<Case> candidates = Candidates(pass, best_.failing);
    for (size_t number = 0; number < candidates.size(); ++number) {
      History simpler{best_.before, candidates[number]};
      bool all = IsSimpler(simpler.failing, best_.failing);
      for (const auto& [i, of] : earlier) {
        all = all && number < of.size() && IsSimpler(of[number], best_.before[i]) &&
              SameShape(of[number], simpler.failing);
        if (all) simpler.before[i] = of[number];
      }
      if (all && Take(std::move(simpler))) return true;
    }
    return false;
  }

  // One case, with all passes. `which` finds it in a history.
  template <class Which>
  bool Alone(const Which& which) {
    bool improved = false;
    Reduction reduction;
    const auto fails = [&](const Case& candidate) {
      History simpler = best_;
      *which(simpler) = candidate;
      return Take(std::move(simpler));
    };
    for (const Pass pass : AllPasses()) {
      while (reduction.Step(pass, Case(*which(best_)), fails, stop_)) improved = true;
    }
    return improved;
  }

  History best_;
  const FailsAfter& fails_;
  const std::function<bool()>& stop_;
};

}  // namespace

History ShortestHistory(History history, const FailsAfter& fails,
                        const std::function<bool()>& stop) {
  return Shortening(std::move(history), fails, stop).Run();
}

}  // namespace qualm::triage
