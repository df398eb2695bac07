// SPDX-License-Identifier: Apache-2.0
#include "fuzz/recent_runs.h"

#include <algorithm>
#include <sstream>

#include "core/io/case_json.h"

namespace qualm::fuzz {

void RecentRuns::Note(const Case& c) {
  if (c.x.bytes().size() + c.w.bytes().size() > kMostBytes) return;
  OfOperation& runs = runs_[c.op];
  if (runs.last.size() < kRuns) runs.last.emplace_back();
  Noted& noted = runs.last[runs.noted++ % kRuns];
  noted.at = noted_++;
  noted.problem = c;
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
  std::vector<const Noted*> noted;
  for (const auto& [op, runs] : runs_) {
    for (const Noted& run : runs.last) noted.push_back(&run);
  }
  std::ranges::sort(noted, {}, &Noted::at);
  std::string lines;
  for (const Noted* run : noted) lines += CaseToJsonLine(run->problem) + "\n";
  return lines;
}

std::vector<Case> ParseRuns(const std::string& lines, const std::string& origin) {
  std::vector<Case> cases;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) cases.push_back(ParseCase(line, origin));
  return cases;
}

}  // namespace qualm::fuzz
