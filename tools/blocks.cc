// SPDX-License-Identifier: Apache-2.0
#include "tools/blocks.h"

#include <fmt/format.h>
#include <qualm_commit.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>

#include "core/io/fault_row.h"

namespace qualm::tools {
namespace {

std::string Compiler() {
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return "GCC " __VERSION__;
#endif
}

// The minute, for people.
std::string Now() {
  const std::string now = UtcNow();
  return now.substr(0, 10) + " " + now.substr(11, 5) + " UTC";
}

}  // namespace

std::string Processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname name = {};
  return uname(&name) == 0 ? name.machine : "";
}

JsonValue RunJson() {
  return JsonObject{{"version", QUALM_VERSION},
                    {"commit", JsonValue::OrNull(QUALM_COMMIT)},
                    {"date", Now()},
                    {"processor", Processor()},
                    {"compiler", Compiler()}};
}

JsonValue VerdictsJson(const std::map<std::pair<std::string, std::string>, Totals>& squares) {
  JsonList rows;
  for (const auto& [key, totals] : squares) {
    rows.Add(JsonObject{
        {"subject", key.first}, {"op", key.second}, {"counts", CountsJson(totals.verdicts)}});
  }
  return rows;
}

JsonValue SumsJson(const SumsOfRun& sums) {
  JsonList rows;
  for (const auto& [key, grades] : sums) {
    rows.Add(JsonObject{{"subject", key.first},
                        {"op", Name(key.second)},
                        {"exact_window", grades.window},
                        {"sound_bound", grades.bound},
                        {"undecided", grades.undecided},
                        {"tree", grades.tree}});
  }
  return rows;
}

std::string SumsText(const SumsOfRun& sums) {
  std::string text;
  for (const auto& [key, grades] : sums) {
    if (grades.tree != 0) {
      text += fmt::format("tree: {} outputs of {} on {} were compared bit by bit\n", grades.tree,
                          Name(key.second), key.first);
      continue;
    }
    const auto share = [&](int64_t count) {
      return 100.0 * static_cast<double>(count) /
             static_cast<double>(std::max<int64_t>(grades.all(), 1));
    };
    text += fmt::format(
        "sum: of {} outputs of {} on {} the exact window decides {:.1f} %, the sound bound {:.1f} "
        "%, nothing {:.1f} %\n",
        grades.all(), Name(key.second), key.first, share(grades.window), share(grades.bound),
        share(grades.undecided));
  }
  return text;
}

JsonValue HazardJson(const HazardCoverage& coverage, bool all) {
  JsonList rows;
  for (const auto& [key, row] : coverage.rows()) {
    JsonObject reached;
    for (const HazardRow& hazard : AllHazards()) {
      const auto at = row.reached.find(hazard.hazard);
      if (at != row.reached.end()) {
        reached.Add(hazard.name, at->second);
      } else if (all && hazard.about(key.first)) {
        reached.Add(hazard.name, 0);
      }
    }
    rows.Add(JsonObject{{"op", Name(key.first)},
                        {"instruction_set", key.second},
                        {"cases", row.cases},
                        {"reached", reached}});
  }
  return rows;
}

}  // namespace qualm::tools
