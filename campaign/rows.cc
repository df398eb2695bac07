// SPDX-License-Identifier: Apache-2.0
#include "campaign/rows.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/io/case_json.h"
#include "triage/causes.h"
#include "triage/triage.h"

namespace qualm::campaign {
namespace {

bool SameKind(const FaultRow& a, const FaultRow& b) {
  return a.identity == b.identity && a.op == b.op && a.kind == b.kind;
}

// "a + b" as causes; empty where a name is unknown.
std::vector<const triage::Cause*> CausesNamed(std::string_view text) {
  constexpr std::string_view kAnd = " + ";
  std::vector<const triage::Cause*> causes;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(kAnd, from), text.size());
    const std::string_view name = text.substr(from, to - from);
    const auto all = triage::AllCauses();
    const auto cause = std::ranges::find(all, name, &triage::Cause::name);
    if (cause == all.end()) return {};
    causes.push_back(&*cause);
    from = to + kAnd.size();
  }
  return causes;
}

// Does the cause give what the subject answered to this case?
bool Gives(const std::string& cause, const Case& c) {
  const std::vector<const triage::Cause*> causes = CausesNamed(cause);
  if (causes.empty() || !c.observed) return false;
  const std::optional<Tensor> y = triage::Counterfactual(ProblemOf(c), causes);
  return y && *y == c.observed->y;
}

bool Explains(const Fault& a, const Fault& b) {
  return Gives(a.row.cause, b.found) && (!b.minimized || Gives(a.row.cause, *b.minimized));
}

int Rank(Replayed replayed) {
  constexpr std::array kBestFirst{Replayed::kReproducible, Replayed::kStateful, Replayed::kFlaky,
                                  Replayed::kNot};
  return static_cast<int>(std::ranges::find(kBestFirst, replayed) - kBestFirst.begin());
}

// The better evidence of a fault has the smaller key. The last member makes the order total.
auto Key(const Fault& fault) {
  return std::tuple(Rank(fault.row.replayed), !fault.row.minimized,
                    triage::Complexity(fault.smallest()),
                    FaultRowToJson(fault.row) + CaseToJson(fault.found));
}

// `best` has the better evidence.
void Join(Fault& best, const Fault& other) {
  FaultRow& row = best.row;
  const auto lesser = [](std::string& mine, const std::string& theirs) {
    if (mine.empty() || (!theirs.empty() && theirs < mine)) mine = theirs;
  };
  row.properties.insert(other.row.properties.begin(), other.row.properties.end());
  lesser(row.cause, other.row.cause);
  lesser(row.subject, other.row.subject);
  lesser(row.found, other.row.found);
}

}  // namespace

std::string Fault::Text() const {
  std::string text = row.fingerprint() + ": " + std::string(Name(row.replayed)) + ", found " +
                     row.found + ", fails";
  for (const std::string& claim : row.properties) text += " " + claim;
  return text + "\n" + explanation;
}

bool SameCause(const Fault& a, const Fault& b) {
  if (!SameKind(a.row, b.row)) return false;
  if (a.row.cause == b.row.cause || a.row.cause.empty() || b.row.cause.empty()) return true;
  return Explains(a, b) || Explains(b, a);
}

std::vector<Fault> OnePerFault(std::vector<Fault> faults) {
  std::ranges::sort(faults, {}, [](const Fault& fault) {
    // What has a cause comes first: what has none joins the first row of its kind.
    return std::tuple(fault.row.identity, fault.row.op, fault.row.kind, fault.row.cause.empty(),
                      Key(fault));
  });
  // Groups of one cause, as the index of a member on the way to the first.
  std::vector<size_t> group(faults.size());
  std::iota(group.begin(), group.end(), size_t{0});
  const auto first_of = [&](size_t i) {
    while (group[i] != i) i = group[i];
    return i;
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!SameCause(faults[j], faults[i])) continue;
      const size_t a = first_of(i), b = first_of(j);
      group[std::max(a, b)] = std::min(a, b);
      if (faults[i].row.cause.empty()) break;  // a bridge between two causes would join them
    }
  }
  std::vector<Fault> rows;
  for (size_t i = 0; i < faults.size(); ++i) {
    if (first_of(i) != i) continue;
    std::vector<const Fault*> members;
    for (size_t j = i; j < faults.size(); ++j) {
      if (first_of(j) == i) members.push_back(&faults[j]);
    }
    std::ranges::sort(members, {}, [](const Fault* fault) { return Key(*fault); });
    Fault row = *members.front();
    for (const Fault* other : members) Join(row, *other);
    rows.push_back(std::move(row));
  }
  std::ranges::sort(rows, {}, [](const Fault& row) { return row.row.fingerprint(); });
  return rows;
}

}  // namespace qualm::campaign
