// SPDX-License-Identifier: Apache-2.0
// qualm hazards: which places where kernels go wrong do these cases reach? Of somebody's test data,
// or of our own drawn cases. No subject is asked.
#include <fmt/format.h>

#include <memory>

#include "core/io/case_json.h"
#include "core/io/golden.h"
#include "core/status.h"
#include "oracles/golden/judge.h"
#include "properties/coverage.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "tools/blocks.h"
#include "tools/command.h"
#include "tools/ops.h"
#include "tools/session.h"

namespace qualm::tools {
namespace {

struct Options : CommonOptions {
  std::vector<std::string> paths;
  OpWords ops;
  int64_t cases = 1000;
  uint64_t seed = 1;
};

void Add(const Case& c, HazardCoverage& coverage) { coverage.Add(c.op, "", HazardsOf(c)); }

void AddFile(const std::string& file, HazardCoverage& coverage) {
  if (!file.ends_with(".jsonl")) return Add(ReadCaseFile(file), coverage);
  ForEachGoldenRecord(file, [&](const GoldenRecord& record) {
    if (GoldenHasCase(record)) Add(GoldenCase(record), coverage);
  });
}

std::vector<Op> OpsToDraw(const OpWords& words) {
  const std::vector<Op> ops = OpsOf(words);
  return ops.empty() ? std::vector<Op>(AllOps().begin(), AllOps().end()) : ops;
}

// One line for each hazard that the operation can reach, also for those that no case reached.
std::string TextOf(Op op, const HazardCoverage::Row& row) {
  std::string text = fmt::format("{}, {} cases\n", Name(op), row.cases);
  for (const HazardRow& hazard : AllHazards()) {
    if (!hazard.about(op)) continue;
    const auto at = row.reached.find(hazard.hazard);
    const int64_t count = at == row.reached.end() ? 0 : at->second;
    text += fmt::format("  {:<22}{:>8}{:>9.3f} %\n", hazard.name, count,
                        100.0 * static_cast<double>(count) / static_cast<double>(row.cases));
  }
  return text;
}

int RunHazards(const Options& options) {
  Session session(options);
  HazardCoverage coverage;
  if (!options.paths.empty()) {
    for (const std::string& path : options.paths) {
      for (const std::string& file : CaseFilesOf(path)) AddFile(file, coverage);
    }
    session.Begin();
  } else {
    const std::vector<Op> ops = OpsToDraw(options.ops);
    session.Begin(fmt::format("seed {}; ", options.seed), options.seed);
    for (const Op op : ops) {
      for (int64_t i = 0; i < options.cases; ++i)
        Add(gen::Draw(op, CaseSeed(options.seed, op, i)), coverage);
    }
  }
  if (coverage.rows().empty()) throw InputError("the recordings hold no case that can be replayed");
  for (const auto& [key, row] : coverage.rows()) session.Print("{}", TextOf(key.first, row));
  session.document.extra = {{"hazards", HazardJson(coverage, /*all=*/true)}};
  session.Write();
  return kClean;
}

}  // namespace

void AddHazards(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(app, run, "hazards", "which hazards do case files, or drawn cases, reach?",
            "Example: qualm hazards corpus/golden    qualm hazards --op linear --cases 100000");
  const VerbOption paths = verb.Texts(
      "PATH", options->paths, "*.case.json, *.jsonl, or folders of them; none: drawn cases");
  AddOpOption(verb, options->ops, "draw only these operations").Excludes(paths);
  verb.Integer("--cases,-n", options->cases, 1, int64_t{1} << 40, "drawn cases per operation")
      .Excludes(paths);
  verb.Seed(options->seed);
  AddOutputOptions(verb, *options);
  verb.Does([options] { return RunHazards(*options); });
}

}  // namespace qualm::tools
