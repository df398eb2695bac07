// SPDX-License-Identifier: Apache-2.0
#include "triage/cover.h"

#include <algorithm>
#include <optional>

namespace qualm::triage {
namespace {

constexpr std::string_view kAnd = " + ";

// Crashes, stray writes and answers that come and go have no cause in arithmetic.
bool IsArithmetic(const Failure& failure) {
  return !failure.causes.empty() || failure.kind == FindingKind::kUnknown;
}

bool Explains(const Failure& by, const Failure& failure) {
  if (by.causes.empty()) return false;
  return by.causes == failure.causes ||
         (IsArithmetic(failure) && Covers(by.causes, failure.cases, failure.model));
}

// A fault that no cause describes is not found by experiments on every case. If there is one such
// fault and no other, failures of unknown cause belong to it. Outputs that are read from elsewhere,
// and outputs that are wrong only at the end of a row, are one fault.
void JoinUnknown(std::span<const Failure> failures, std::vector<Covered>& covered) {
  std::optional<size_t> shown;
  for (const Covered& each : covered) {
    const Failure& row = failures[each.by];
    if (!row.causes.empty()) return;
    if (row.kind == FindingKind::kUnknown || (shown && *shown == each.by)) continue;
    const bool by_experiment = row.kind == FindingKind::kIndex || row.kind == FindingKind::kTail ||
                               row.kind == FindingKind::kMemory ||
                               row.kind == FindingKind::kNondeterminism;
    if (!by_experiment) return;
    if (!shown) {
      shown = each.by;
      continue;
    }
    const FindingKind before = failures[*shown].kind;
    if (before == FindingKind::kTail && row.kind == FindingKind::kIndex) {
      shown = each.by;
    } else if (before != FindingKind::kIndex || row.kind != FindingKind::kTail) {
      return;
    }
  }
  if (!shown) return;
  for (Covered& each : covered) each.by = *shown;
}

}  // namespace

std::string NamesOf(std::span<const Cause* const> causes, Op op) {
  std::string text;
  for (const Cause* cause : causes) {
    if (!text.empty()) text += kAnd;
    text += cause->NameFor(op);
  }
  return text;
}

std::vector<const Cause*> CausesNamed(std::string_view names, Op op) {
  std::vector<const Cause*> causes;
  for (size_t from = 0; from <= names.size();) {
    const size_t to = std::min(names.find(kAnd, from), names.size());
    const std::string_view name = names.substr(from, to - from);
    const Cause* found = nullptr;
    for (const std::span<const Cause> all : {AllCauses(), AllPlaces()}) {
      const auto cause = std::ranges::find_if(
          all, [&](const Cause& each) { return each.NameFor(op) == name || each.name == name; });
      if (cause != all.end() && found == nullptr) found = &*cause;
    }
    if (found == nullptr) return {};
    causes.push_back(found);
    from = to + kAnd.size();
  }
  return causes;
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

std::vector<Covered> FewestCauses(std::span<const Failure> failures) {
  const size_t count = failures.size();
  std::vector<std::vector<bool>> explains(count, std::vector<bool>(count));
  for (size_t i = 0; i < count; ++i) {
    const auto same = [&](const Failure& other) { return other.causes == failures[i].causes; };
    if (std::ranges::any_of(failures.first(i), same)) continue;  // explains the same
    for (size_t j = 0; j < count; ++j) explains[i][j] = Explains(failures[i], failures[j]);
  }

  std::vector<Covered> covered(count, {count, 0});  // by `count`: not yet
  std::vector<size_t> rows;
  while (true) {
    size_t best = count, most = 0;
    for (size_t i = 0; i < count; ++i) {
      size_t explained = 0;
      for (size_t j = 0; j < count; ++j) explained += covered[j].by == count && explains[i][j];
      if (explained > most) most = explained, best = i;
    }
    if (best == count) break;
    rows.push_back(best);
    for (size_t j = 0; j < count; ++j) {
      if (covered[j].by == count && explains[best][j]) covered[j].by = best;
    }
  }
  for (size_t j = 0; j < count; ++j) {
    for (const size_t row : rows) covered[j].others += row != covered[j].by && explains[row][j];
  }

  std::vector<size_t> without;  // a cause: the first of each kind
  for (size_t j = 0; j < count; ++j) {
    if (covered[j].by != count) continue;
    const auto same = [&](size_t row) { return failures[row].kind == failures[j].kind; };
    if (const auto row = std::ranges::find_if(rows, same); row != rows.end()) {
      covered[j].by = *row;
    } else if (const auto first = std::ranges::find_if(without, same); first != without.end()) {
      covered[j].by = *first;
    } else {
      without.push_back(covered[j].by = j);
    }
  }
  JoinUnknown(failures, covered);
  return covered;
}

}  // namespace qualm::triage
