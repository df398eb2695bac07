// SPDX-License-Identifier: Apache-2.0
// qualm check: draw cases, judge every applicable property on every named subject.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "core/status.h"
#include "properties/engine.h"
#include "properties/property.h"
#include "properties/triage/triage.h"
#include "tools/command.h"

namespace qualm::tools {
namespace {

struct Options : CommonOptions {
  std::vector<std::string> ops;
  CheckOptions check;
  std::string shard;
  std::string out = "qualm-findings";
};

void ParseShard(const std::string& text, CheckOptions& check) {
  if (text.empty()) return;
  int index = 0, count = 0, used = 0;
  if (std::sscanf(text.c_str(), "%d/%d%n", &index, &count, &used) != 2 ||
      static_cast<size_t>(used) != text.size() || count < 1 || index < 0 || index >= count) {
    throw InputError("--shard: '" + text + "' is no shard, expected I/N with 0 <= I < N");
  }
  check.shard_index = index;
  check.shard_count = count;
}

std::string HazardLines(const HazardCoverage& coverage) {
  std::string text;
  for (const auto& [key, row] : coverage.rows()) {
    text += fmt::format("  {} on {}, {} cases judged:", Name(key.first), key.second, row.cases);
    for (const auto& [hazard, count] : row.reached) {
      text += fmt::format(" {} {:.1f}%", Name(hazard),
                          100.0 * static_cast<double>(count) / static_cast<double>(row.cases));
    }
    text += "\n";
  }
  return text;
}

std::string HazardJson(const HazardCoverage& coverage) {
  std::string json = "[";
  for (const auto& [key, row] : coverage.rows()) {
    json += json.size() > 1 ? "," : "";
    json += fmt::format("{{\"op\":\"{}\",\"instruction_set\":{},\"cases\":{},\"reached\":{{",
                        Name(key.first), JsonQuote(key.second), row.cases);
    bool first = true;
    for (const auto& [hazard, count] : row.reached) {
      json += fmt::format("{}\"{}\":{}", first ? "" : ",", Name(hazard), count);
      first = false;
    }
    json += "}}";
  }
  return json + "]";
}

std::string PropertiesJson(const CheckResult& result) {
  std::string json = "{";
  for (const auto& [name, totals] : result.by_property) {
    json += json.size() > 1 ? "," : "";
    json += JsonQuote(name) + ":{";
    bool first = true;
    for (const auto& [judgement, count] : totals.verdicts) {
      json += fmt::format("{}\"{}\":{}", first ? "" : ",", Name(judgement), count);
      first = false;
    }
    json += "}";
  }
  return json + "}";
}

std::string ReasonLines(const CheckResult& result) {
  // One line per reason, over all properties and subjects: what was not judged, and why.
  std::map<std::pair<std::string, std::string>, int64_t> merged;
  for (const auto& [key, count] : result.reasons) {
    if (key.judgement == Judgement::kNotApplicable) continue;
    merged[{std::string(Name(key.judgement)), key.reason}] += count;
  }
  std::string text;
  for (const auto& [key, count] : merged) {
    text += fmt::format("  {} {}: {}\n", count, key.first, key.second);
  }
  return text;
}

std::vector<JUnitTest> JUnitTests(const CheckResult& result, const std::vector<Finding>& findings) {
  std::vector<JUnitTest> tests;
  for (const auto& [name, totals] : result.by_property) {
    JUnitTest test{"qualm", name, std::string(Name(Judgement::kPassed)), ""};
    if (totals.of(Judgement::kPassed) == 0) test.status = Name(Judgement::kSkipped);
    for (const Finding& finding : findings) {
      if (finding.full_property() != name) continue;
      test.status = Name(finding.expected_by_contract ? Judgement::kPassed : Judgement::kFailed);
      test.message += FindingText(finding);
    }
    tests.push_back(std::move(test));
  }
  return tests;
}

int RunCheck(Options options) {
  const Stopwatch stopwatch;
  for (const std::string& name : options.ops) {
    const std::optional<Op> op = ParseOp(name);
    if (!op) throw InputError("--op: unknown operation '" + name + "' (see qualm list ops)");
    options.check.ops.push_back(*op);
  }
  ParseShard(options.shard, options.check);
  if (!options.contract.empty()) ParseContract(options.contract);
  options.check.contract = options.contract;
  options.check.subjects = SubjectNames(options.subjects, {"native@all"});
  options.command = CanonicalCommand();
  fmt::print(stderr, "qualm: seed {}; to repeat: {}\n", options.check.seed, options.command);
  options.check.attribute = [](const Case& c, const Verdict& verdict, Subject& subject) {
    return triage::Attribute(c, verdict, subject).kind;
  };
  options.check.progress = [last = 0.0, &stopwatch](int64_t done, int64_t all) mutable {
    const double now = stopwatch.seconds();
    if (now < last + 5 && done != all) return;
    last = now;
    fmt::print(stderr, "qualm: {} of {} cases, {:.0f} s\n", done, all, now);
  };

  CheckResult result = Check(options.check);
  std::vector<Finding> findings = Triage(std::move(result.findings), options.out, options.contract);
  bool new_finding = false;
  for (Finding& finding : findings) new_finding |= !finding.expected_by_contract;

  ResultDocument document;
  document.command = options.command;
  document.seed = options.check.seed;
  for (const auto& subject : MakeSubjects(options.check.subjects, options.contract)) {
    document.subjects.emplace_back(subject->name(), subject->contract().text());
  }
  SetTotals(document, result.totals);
  document.findings = findings;
  document.extra.emplace_back("hazards", HazardJson(result.coverage));
  document.extra.emplace_back("properties", PropertiesJson(result));
  document.seconds = stopwatch.seconds();
  WriteResults(options, document, JUnitTests(result, findings));

  if (!options.quiet_stdout()) {
    for (const Finding& finding : findings) fmt::print("{}", FindingText(finding));
    fmt::print("{}\n", TotalsLine(result.totals));
    fmt::print("hazard coverage\n{}", HazardLines(result.coverage));
    fmt::print("not judged\n{}", ReasonLines(result));
  }
  return new_finding ? kFindings : kClean;
}

}  // namespace

void AddCheck(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("check", "judge every applicable property on drawn cases");
  verb->footer("Example: qualm check --subject native@all --op linear --cases 20000 --seed 7");
  AddSubjectOption(*verb, *options, false);
  AddOutputOptions(*verb, *options);
  AddContractOption(*verb, *options);
  verb->add_option("--junit", options->junit, "write a JUnit report");
  verb->add_option("--property,-p", options->check.property_glob, "glob on OP.CLAIM or CLAIM");
  verb->add_option("--op", options->ops, "only this operation (repeatable)")
      ->allow_extra_args(false);
  verb->add_option("--cases,-n", options->check.cases, "cases per operation")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  verb->add_option("--time", options->check.seconds, "run this long instead, e.g. 60s, 10m")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}},
                                CLI::AsNumberWithUnit::CASE_SENSITIVE));
  verb->add_option("--seed", options->check.seed, "seed of the run");
  verb->add_option("--jobs,-j", options->check.jobs, "threads; the result does not depend on it")
      ->check(CLI::Range(1, 256));
  verb->add_option("--shard", options->shard, "I/N: every N-th case, starting at I");
  verb->add_option("--out", options->out, "folder for findings");
  verb->callback([options, run] { *run = [options] { return RunCheck(*options); }; });
}

}  // namespace qualm::tools
