// SPDX-License-Identifier: Apache-2.0
#include "campaign/rows.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "core/io/case_json.h"
#include "triage/causes.h"
#include "triage/cover.h"
#include "triage/triage.h"

namespace qualm::campaign {
namespace {

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

triage::Failure FailureOf(const Fault& fault) {
  triage::Failure failure{fault.row.kind,
                          triage::CausesNamed(fault.row.cause, fault.found.op),
                          {&fault.found},
                          triage::ModelOf(fault.found),
                          fault.row.of_subject};
  if (fault.minimized) failure.cases.push_back(&*fault.minimized);
  return failure;
}

// `best` has the better evidence.
void Join(Fault& best, const Fault& other) {
  FaultRow& row = best.row;
  const auto lesser = [](std::string& mine, const std::string& theirs) {
    if (mine.empty() || (!theirs.empty() && theirs < mine)) mine = theirs;
  };
  row.properties.insert(other.row.properties.begin(), other.row.properties.end());
  lesser(row.subject, other.row.subject);
  lesser(row.found, other.row.found);
}

// One row for each cause among the faults of one subject and operation, the best evidence first.
void AddRows(std::span<const Fault> faults, std::vector<Fault>& rows) {
  std::vector<triage::Failure> failures;
  for (const Fault& fault : faults) failures.push_back(FailureOf(fault));
  const std::vector<triage::Covered> covered = triage::FewestCauses(failures);
  std::map<size_t, std::vector<size_t>> members;
  for (size_t i = 0; i < faults.size(); ++i) members[covered[i].by].push_back(i);
  for (auto& [index, of] : members) {
    const Fault& by = faults[index];
    // Among equals the failures that triage itself gave this cause come first, then the failures
    // that fit the fewest other rows. The first one represents the row when rows are joined again,
    // and one that fits no other row keeps the rows apart.
    std::ranges::sort(of, {}, [&](size_t i) {
      return std::tuple(Rank(faults[i].row.replayed), faults[i].row.cause != by.row.cause,
                        covered[i].others, i);
    });
    Fault row = faults[of.front()];
    for (const size_t i : of) Join(row, faults[i]);
    row.row.kind = by.row.kind;
    row.row.of_subject = by.row.of_subject;
    // A row without causes may have a cause that this version does not know.
    if (!covered[index].causes.empty())
      row.row.cause = triage::NamesOf(covered[index].causes, by.found.op);
    else
      row.row.cause = by.row.cause;
    rows.push_back(std::move(row));
  }
}

std::vector<Fault> Joined(std::vector<Fault> faults) {
  const auto group = [](const Fault& fault) {
    return std::tuple(fault.row.identity, fault.row.op);
  };
  std::ranges::sort(faults, {},
                    [&](const Fault& fault) { return std::tuple(group(fault), Key(fault)); });
  std::vector<Fault> rows;
  for (auto from = faults.begin(); from != faults.end();) {
    const auto to = std::find_if(from, faults.end(),
                                 [&](const Fault& other) { return group(other) != group(*from); });
    AddRows({from, to}, rows);
    from = to;
  }
  std::ranges::sort(rows, {}, [](const Fault& row) { return row.row.fingerprint(); });
  return rows;
}

}  // namespace

std::string Fault::Text() const {
  std::string text = row.fingerprint() + ": " + std::string(Name(row.replayed)) + ", found " +
                     row.found + ", fails";
  for (const std::string& claim : row.properties) text += " " + claim;
  return text + "\n" + explanation;
}

std::vector<Fault> OnePerFault(std::vector<Fault> faults) {
  // A row keeps one of its cases, and a cause may explain more of the rows than of their faults.
  while (true) {
    std::vector<Fault> rows = Joined(faults);
    if (rows == faults) return rows;
    faults = std::move(rows);
  }
}

}  // namespace qualm::campaign
