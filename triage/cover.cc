// SPDX-License-Identifier: Apache-2.0
#include "triage/cover.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>

#include "core/rng.h"
#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"
#include "triage/vary.h"

namespace qualm::triage {
namespace {

// Crashes, stray writes and answers that come and go have no cause in arithmetic. What experiments
// show of a subject, and what its wrong outputs have in common, may be what a cause does.
bool IsArithmetic(const Failure& failure) {
  switch (failure.kind) {
    case FindingKind::kMemory:
    case FindingKind::kNondeterminism:
    case FindingKind::kCrash:
    case FindingKind::kHang: return !failure.causes.empty();
    default: return true;
  }
}

bool Explains(const Failure& by, const Failure& failure) {
  return by.causes == failure.causes ||
         (IsArithmetic(failure) && Covers(by.causes, failure.cases, failure.model));
}

// Of the conventions that hold as well as the named one, that which explains the most failures.
std::vector<Failure> WithTheBestConvention(std::span<const Failure> failures) {
  std::vector<Failure> all(failures.begin(), failures.end());
  for (Failure& failure : all) {
    std::ptrdiff_t most = 0;
    Failure by = failure;
    for (const Hypothesis& convention : failure.conventions) {
      by.causes = convention;
      const auto explained = std::ranges::count_if(
          failures, [&](const Failure& other) { return Explains(by, other); });
      if (explained > most) most = explained, failure.causes = convention;
    }
  }
  return all;
}

// Whether other failures have shown each of its causes.
bool IsJoint(std::span<const Failure> failures, const Failure& failure) {
  const auto shown_alone = [&](const Cause* cause) {
    return std::ranges::any_of(failures, [&](const Failure& other) {
      const auto of_both = [&](const Cause* each) {
        return std::ranges::count(failure.causes, each) > 0;
      };
      return other.causes.size() < failure.causes.size() &&
             std::ranges::count(other.causes, cause) > 0 &&
             std::ranges::all_of(other.causes, of_both);
    });
  };
  return std::ranges::all_of(failure.causes, shown_alone);
}

// The first of the rows whose causes, together with the causes of other rows, explain a failure.
std::optional<size_t> ExplainedTogether(std::span<const Failure> failures,
                                        std::span<const size_t> rows, const Failure& failure) {
  if (!IsArithmetic(failure)) return std::nullopt;
  std::vector<Hypothesis> shown;
  for (const size_t row : rows) shown.push_back(failures[row].causes);
  std::optional<size_t> first;
  for (const Case* c : failure.cases) {
    if (!c->observed) continue;
    const Tensor right = RightOutput(*c, failure.model);
    if (c->observed->y == right) continue;
    const Hypothesis all = Together(*c, shown, failure.model);
    if (Counterfactual(*c, all, failure.model) != c->observed->y) return std::nullopt;
    for (const size_t row : rows) {
      if (first || std::ranges::count(all, failures[row].causes.front()) == 0) continue;
      if (Counterfactual(*c, failures[row].causes, failure.model).value_or(right) != right)
        first = row;
    }
  }
  return first;
}

// How much a kind that an experiment has shown says, where experiments on several cases show one
// fault: 0 for what no experiment shows. A fault of reading shows as one of places in some cases.
int SaysOf(FindingKind kind) {
  switch (kind) {
    case FindingKind::kIndex: return 3;
    case FindingKind::kPadding: return 2;
    case FindingKind::kTail: return 1;
    default: return 0;
  }
}

// A fault that no cause describes is not found by experiments on every case. If there is one such
// fault and no other, failures of unknown cause belong to it. Outputs that are read from elsewhere,
// in the padding, and outputs that are wrong only at the end of a row, are one fault.
void JoinUnknown(std::span<const Failure> failures, std::vector<Covered>& covered) {
  const auto of_subject = std::ranges::find_if(covered, [&](const Covered& each) {
    return failures[each.by].of_subject && failures[each.by].kind != FindingKind::kUnknown;
  });
  if (of_subject != covered.end()) {
    const size_t by = of_subject->by;
    for (Covered& each : covered) {
      const Failure& row = failures[each.by];
      if (row.of_subject || row.kind == FindingKind::kUnknown) each.by = by;
    }
  }
  std::optional<size_t> shown;
  for (const Covered& each : covered) {
    const Failure& row = failures[each.by];
    if (!row.causes.empty()) return;
    if (row.kind == FindingKind::kUnknown || (shown && *shown == each.by)) continue;
    const bool by_experiment = SaysOf(row.kind) > 0 || row.kind == FindingKind::kMemory ||
                               row.kind == FindingKind::kNondeterminism;
    if (!by_experiment) return;
    if (!shown) {
      shown = each.by;
      continue;
    }
    const int before = SaysOf(failures[*shown].kind), now = SaysOf(row.kind);
    if (before == 0 || now == 0) return;
    if (now > before) shown = each.by;
  }
  if (!shown) return;
  for (Covered& each : covered) each.by = *shown;
}

}  // namespace

Hypothesis Together(const Case& c, std::span<const Hypothesis> hypotheses, const Convention* model,
                    Hypothesis first) {
  Hypothesis all = std::move(first);
  for (const Hypothesis& more : hypotheses) {
    const auto excluded = [&](const Cause* cause) {
      return cause->stage == CauseStage::kPlace ||
             std::ranges::count(all, cause->stage, &Cause::stage) > 0;
    };
    if (std::ranges::any_of(more, excluded) || !Counterfactual(c, more, model)) continue;
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

bool Covers(std::span<const Cause* const> causes, std::span<const Case* const> cases,
            const Convention* model) {
  bool any = false;
  for (const Case* c : cases) {
    if (!c->observed) continue;
    const Tensor right = RightOutput(*c, model);
    const std::optional<Tensor> y = Counterfactual(*c, causes, model);
    if (y.value_or(right) != c->observed->y) return false;
    any |= c->observed->y != right;
  }
  return any;
}

Hypothesis IdleOf(const Case& c, Hypothesis causes) {
  constexpr uint64_t kTries = 64;
  constexpr int64_t kLargest = 4096;
  for (uint64_t i = 0; i < kTries && !causes.empty(); ++i) {
    const uint64_t seed = MixSeed(20261131, i);
    const std::optional<Case> at = i % 2 == 0   ? Varied(c, seed)
                                   : i % 4 == 1 ? gen::Draw(c.op, gen::Theme::kTies, seed)
                                                : gen::Draw(c.op, seed);
    if (!at || at->M * at->N * std::max<int64_t>(1, at->K) > kLargest) continue;
    const Tensor right = exact::Evaluate(*at);
    std::erase_if(causes, [&](const Cause* cause) {
      return Counterfactual(*at, *cause).value_or(right) != right;
    });
  }
  return causes;
}

std::vector<Covered> FewestCauses(std::span<const Failure> given) {
  const std::vector<Failure> all_failures = WithTheBestConvention(given);
  const std::span<const Failure> failures(all_failures);
  const size_t count = failures.size();
  std::vector<std::vector<bool>> explains(count, std::vector<bool>(count));
  for (size_t i = 0; i < count; ++i) {
    const auto same = [&](const Failure& other) { return other.causes == failures[i].causes; };
    if (std::ranges::any_of(failures.first(i), same)) continue;  // explains the same
    if (IsJoint(failures, failures[i])) continue;                // or it has no causes
    for (size_t j = 0; j < count; ++j) explains[i][j] = Explains(failures[i], failures[j]);
  }

  const auto all = std::views::iota(size_t{0}, count);
  std::vector<Covered> covered(count, {count, {}, {}, 0});  // by `count`: not yet
  std::vector<size_t> rows;
  while (true) {
    size_t best = count, most = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto adds = [&](size_t j) { return covered[j].by == count && explains[i][j]; };
      const auto explained = static_cast<size_t>(std::ranges::count_if(all, adds));
      if (explained > most) most = explained, best = i;
    }
    if (best == count) break;
    rows.push_back(best);
    for (const size_t j : all) {
      if (covered[j].by == count && explains[best][j]) covered[j].by = best;
    }
  }
  for (const size_t j : all) {
    for (const size_t row : rows) covered[j].others += row != covered[j].by && explains[row][j];
  }
  for (const size_t row : rows) {
    Failure by = failures[row];
    std::vector<Hypothesis>& conventions = covered[row].conventions = by.conventions;
    std::erase_if(conventions, [&](const Hypothesis& convention) {
      by.causes = convention;
      return std::ranges::any_of(
          all, [&](size_t j) { return covered[j].by == row && !Explains(by, failures[j]); });
    });
  }

  std::vector<size_t> without;  // a cause: the first of each kind
  for (size_t j = 0; j < count; ++j) {
    if (covered[j].by != count) continue;
    const auto same = [&](size_t row) { return failures[row].kind == failures[j].kind; };
    if (const auto together = ExplainedTogether(failures, rows, failures[j])) {
      covered[j].by = *together;
    } else if (const auto row = std::ranges::find_if(rows, same); row != rows.end()) {
      covered[j].by = *row;
    } else if (const auto first = std::ranges::find_if(without, same); first != without.end()) {
      covered[j].by = *first;
    } else {
      without.push_back(covered[j].by = j);
    }
  }
  JoinUnknown(failures, covered);
  for (Covered& each : covered) {
    each.causes = failures[each.by].causes;
    for (const size_t row : rows) {
      const std::vector<const Cause*>& shown = failures[row].causes;
      const auto is_shown = [&](const Cause* cause) {
        return std::ranges::count(shown, cause) > 0;
      };
      if (shown.size() >= each.causes.size()) continue;  // its own row, too
      if (std::ranges::count_if(each.causes, is_shown) == std::ssize(shown))
        std::erase_if(each.causes, is_shown);
    }
  }
  return covered;
}

}  // namespace qualm::triage
