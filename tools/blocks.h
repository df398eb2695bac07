// SPDX-License-Identifier: Apache-2.0
// Blocks of the result document that several verbs write (core/io/result.schema.json).
#ifndef QUALM_TOOLS_BLOCKS_H_
#define QUALM_TOOLS_BLOCKS_H_

#include <map>
#include <string>
#include <utility>

#include "core/io/json_writer.h"
#include "properties/coverage.h"
#include "properties/engine.h"

namespace qualm::tools {

template <class Key>
JsonValue CountsJson(const std::map<Key, int64_t>& counts) {
  JsonObject object;
  for (const auto& [key, count] : counts) object.Add(Name(key), count);
  return object;
}

// As the kernel names it; where it does not, its architecture.
std::string Processor();
// "run": version of qualm, date, processor, compiler.
JsonValue RunJson();
// "verdicts", by subject and operation.
JsonValue VerdictsJson(const std::map<std::pair<std::string, std::string>, Totals>& squares);
// "sums", by subject and operation: what decided of the outputs that the contract "sum" judged.
using SumsOfRun = std::map<std::pair<std::string, Op>, SumGrades>;
JsonValue SumsJson(const SumsOfRun& sums);
// The same for people, a line for each.
std::string SumsText(const SumsOfRun& sums);
// "hazards"; with `all` also those that no case reached, of an operation that can.
JsonValue HazardJson(const HazardCoverage& coverage, bool all = false);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_BLOCKS_H_
