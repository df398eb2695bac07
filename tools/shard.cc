// SPDX-License-Identifier: Apache-2.0
#include "tools/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "core/status.h"
#include "tools/command.h"
#include "tools/session.h"

namespace qualm::tools {
namespace {

// Where a scheduler says which of how many tasks this is. `first`: a variable with the number of
// the first task, nullptr where that is 0.
struct Source {
  const char* index;
  const char* count;
  const char* first;
};
constexpr Source kSources[] = {
    {"GTEST_SHARD_INDEX", "GTEST_TOTAL_SHARDS", nullptr},
    {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"},
    {"JOB_COMPLETION_INDEX", "JOB_COMPLETIONS", nullptr},
};

int Number(const char* variable) {
  const std::string text = std::getenv(variable);
  const std::optional<int> number = ParseInteger<int>(text);
  if (!number) {
    throw InputError(std::string(variable) + ": '" + text + "' is no number, expected an integer");
  }
  return *number;
}

bool IsShard(const Shard& shard) { return shard.index >= 0 && shard.index < shard.count; }

std::optional<Shard> FromEnvironment() {
  for (const Source& source : kSources) {
    if (std::getenv(source.index) == nullptr || std::getenv(source.count) == nullptr) continue;
    Shard shard{Number(source.index), Number(source.count)};
    if (source.first != nullptr && std::getenv(source.first) != nullptr) {
      shard.index -= Number(source.first);
    }
    if (!IsShard(shard)) {
      throw InputError(fmt::format("{}: {}/{} is no shard, expected I/N with 0 <= I < N",
                                   source.index, shard.index, shard.count));
    }
    const std::string text = fmt::format("{}/{}", shard.index, shard.count);
    Tell("--shard {}, from {} and {}", text, source.index, source.count);
    AddToCommandLine({"--shard", text});
    return shard;
  }
  return std::nullopt;
}

}  // namespace

void AddShard(Verb& verb, std::string& text, const std::string& help) {
  verb.Text("--shard", text, help);
}

Shard ShardOf(const std::string& text) {
  if (text.empty()) return FromEnvironment().value_or(Shard{});
  const size_t slash = std::min(text.find('/'), text.size());
  const auto index = ParseInteger<int>(std::string_view(text).substr(0, slash));
  const auto count =
      ParseInteger<int>(std::string_view(text).substr(std::min(slash + 1, text.size())));
  if (!index || !count || !IsShard({*index, *count})) {
    throw InputError("--shard: '" + text + "' is no shard, expected I/N with 0 <= I < N");
  }
  return {*index, *count};
}

}  // namespace qualm::tools
