// SPDX-License-Identifier: Apache-2.0
#include "fuzz/recent_runs.h"

#include <algorithm>

#include "core/io/case_json.h"

namespace qualm::fuzz {

void RecentRuns::Note(const Case& c) {
  if (c.x.bytes().size() + c.w.bytes().size() > kMostBytes) return;
  runs_[noted_++ % kRuns] = c;
}

Outcome RecentRuns::Run(const Case& c, const RunContext& context) {
  Note(c);
  return inner().Run(c, context);
}

std::vector<Outcome> RecentRuns::RunMany(std::span<const Case> cases, const RunContext& context) {
  for (const Case& c : cases) Note(c);
  return inner().RunMany(cases, context);
}

std::string RecentRuns::Lines() const {
  std::string lines;
  for (uint64_t i = noted_ - std::min<uint64_t>(noted_, kRuns); i < noted_; ++i)
    lines += CaseToJsonLine(runs_[i % kRuns]) + "\n";
  return lines;
}

}  // namespace qualm::fuzz
