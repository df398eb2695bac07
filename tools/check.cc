// SPDX-License-Identifier: Apache-2.0
// qualm check: draw cases, judge every applicable property on every named subject.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <tuple>

#include "core/status.h"
#include "properties/engine.h"
#include "tools/blocks.h"
#include "tools/command.h"
#include "tools/findings.h"
#include "tools/progress.h"
#include "tools/session.h"
#include "tools/shard.h"
#include "tools/stop.h"
#include "triage/triage.h"

namespace qualm::tools {
namespace {

struct Options : CommonOptions {
  KnownOptions known;
  std::vector<std::string> ops;
  CheckOptions check;
  std::string shard;
  std::string out = "qualm-findings";
  bool verbose = false;
};

// Instruction sets that judged the same cases share a line; the document has them one by one.
std::string HazardLines(const HazardCoverage& coverage) {
  struct Group {
    Op op;
    const HazardCoverage::Row* row;
    std::vector<std::string> sets;
  };
  std::vector<Group> groups;
  for (const auto& [key, row] : coverage.rows()) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return group.op == key.first && group.row->cases == row.cases &&
             group.row->reached == row.reached;
    });
    if (same != groups.end()) {
      same->sets.push_back(key.second);
    } else {
      groups.push_back({key.first, &row, {key.second}});
    }
  }
  std::string text;
  for (const Group& group : groups) {
    text += fmt::format("  {}, {} cases judged on {}:", Name(group.op), group.row->cases,
                        fmt::join(group.sets, " "));
    for (const auto& [hazard, count] : group.row->reached) {
      text +=
          fmt::format(" {} {:.1f}%", Name(hazard),
                      100.0 * static_cast<double>(count) / static_cast<double>(group.row->cases));
    }
    text += "\n";
  }
  return text;
}

JsonValue PropertiesJson(const CheckResult& result) {
  JsonObject properties;
  for (const auto& [name, totals] : result.by_property)
    properties.Add(name, CountsJson(totals.verdicts));
  return properties;
}

// What was not judged and why, most frequent first: the reasons of a judgement on one line.
std::string ReasonLines(const CheckResult& result) {
  constexpr size_t kMost = 5;
  std::map<Judgement, std::map<std::string, int64_t>> reasons;
  for (const auto& [key, count] : result.reasons) reasons[key.judgement][key.reason] += count;
  std::string text;
  for (const auto& [judgement, counts] : reasons) {
    std::vector<std::pair<int64_t, std::string>> list;
    for (const auto& [reason, count] : counts) list.emplace_back(count, reason);
    std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    text += fmt::format("  {} {}:", result.totals.of(judgement), Name(judgement));
    for (size_t i = 0; i < std::min(list.size(), kMost); ++i) {
      text += fmt::format("{} {} {}", i == 0 ? "" : ";", list[i].first, list[i].second);
    }
    if (list.size() > kMost) {
      text += fmt::format("; {} more (--json has all)", list.size() - kMost);
    }
    text += "\n";
  }
  return text;
}

// Why nothing was judged (on `subject`, where it is not ""): the most frequent reason.
std::string WhyNothing(const CheckResult& result, const std::string& subject = "") {
  std::map<std::string, int64_t> reasons;
  for (const auto& [key, count] : result.reasons) {
    if (subject.empty() || key.subject == subject) reasons[key.reason] += count;
  }
  if (reasons.empty())
    return result.totals.cases == 0 ? "there was no case" : "no property applies";
  const auto most = std::ranges::max_element(reasons, {}, [](const auto& r) { return r.second; });
  const bool more = !subject.empty() && reasons.size() > 1;
  return most->first + (more ? fmt::format(" (and {} more)", reasons.size() - 1) : "");
}

// What was judged and what not, in words.
std::string ClosingLine(const CheckResult& result, size_t faults, bool adapts) {
  int64_t judged = 0, most = 0;
  for (const auto& [key, row] : result.coverage.rows()) judged += row.cases;
  const int64_t all = result.totals.cases * static_cast<int64_t>(result.by_subject.size());
  std::map<std::string, int64_t> why;
  for (const auto& [key, count] : result.reasons) {
    if (key.judgement == Judgement::kSkipped) why[key.reason] += count;
  }
  std::string reason;
  for (const auto& [text, count] : why) {
    if (count > most) most = count, reason = text;
  }
  if (judged == 0) return "";  // IdleLines says why
  const Totals& totals = result.totals;
  std::string text =
      fmt::format("{}{} of {} answers were judged: {} claims hold{}", faults == 0 ? "OK: " : "",
                  judged, all, totals.of(Judgement::kPassed),
                  faults == 0 ? ""
                              : fmt::format(", {} fail ({} fault{})", totals.of(Judgement::kFailed),
                                            faults, faults == 1 ? "" : "s"));
  if (const int64_t expected = totals.of(Judgement::kExpected); expected > 0)
    text += fmt::format(", {} fail as declared or known", expected);
  text += ".";
  if (!reason.empty()) {
    text += fmt::format(" What was not judged the subject does not take, most often: {}.{}", reason,
                        adapts ? "" : " --adapt brings cases into its limits.");
  }
  return text + " --verbose has the rest.\n";
}

// Subjects that judged nothing at all: a run that looks clean and tested nothing.
std::string IdleLines(const CheckResult& result) {
  std::string text;
  for (const auto& [subject, totals] : result.by_subject) {
    if (totals.judged() != 0) continue;
    text += fmt::format("nothing was judged on {}: {}\n", subject, WhyNothing(result, subject));
  }
  return text;
}

JsonValue NotJudgedJson(const CheckResult& result) {
  std::map<std::tuple<std::string, Judgement, std::string>, int64_t> merged;
  for (const auto& [key, count] : result.reasons) {
    merged[{key.subject, key.judgement, key.reason}] += count;
  }
  JsonList list;
  for (const auto& [key, count] : merged) {
    const auto& [subject, judgement, reason] = key;
    list.Add(JsonObject{{"subject", subject},
                        {"judgement", Name(judgement)},
                        {"reason", reason},
                        {"count", count}});
  }
  return list;
}

std::vector<JUnitTest> JUnitTests(const CheckResult& result, const std::vector<Finding>& findings,
                                  const KnownFindings& known) {
  std::vector<JUnitTest> tests;
  for (const auto& [name, totals] : result.by_property) {
    JUnitTest test{"qualm", name, std::string(Name(Judgement::kPassed)), ""};
    if (totals.of(Judgement::kPassed) == 0) test.status = Name(Judgement::kSkipped);
    bool any_new = false;
    for (const Finding& finding : findings) {
      if (finding.full_property() != name) continue;
      any_new |= known.IsNew(finding);
      test.status = Name(any_new ? Judgement::kFailed : Judgement::kExpected);
      test.message += known.Text(finding);
    }
    tests.push_back(std::move(test));
  }
  return tests;
}

int RunCheck(Options options) {
  Session session(options);
  for (const std::string& name : options.ops) {
    const std::optional<Op> op = ParseOp(name);
    if (!op) throw InputError("--op: unknown operation '" + name + "' (see qualm list ops)");
    if (std::find(options.check.ops.begin(), options.check.ops.end(), *op) ==
        options.check.ops.end())
      options.check.ops.push_back(*op);
  }
  const Shard shard = ShardOf(options.shard);
  options.check.shard_index = shard.index;
  options.check.shard_count = shard.count;
  options.check.contract = options.contract;
  options.check.subjects = SubjectNames(options.subjects, {"native@all"});
  session.Open(options.check.subjects, options.contract);
  const auto ops = static_cast<int64_t>(DrawnOps(options.check).size());
  session.known = KnownFindings(options.known);
  RequireWritable(options);
  RequireFolder("--out", options.out);
  session.Begin(fmt::format("seed {}; ", options.check.seed), options.check.seed);
  const auto progress = std::make_shared<Progress>();
  options.check.progress = [progress](int64_t done, int64_t all) { (*progress)(done, all); };
  FindingsFolder folder(options.out);
  folder.Connect(options.check);

  CheckResult result = Check(options.check);
  if (options.check.seconds > 0) {
    Tell(
        "how far a time takes a run depends on the machine; --cases {} "
        "instead of --time repeats every case of this one",
        (result.totals.cases * options.check.shard_count + ops - 1) / ops + 1);
  }
  // Minimizing the findings may take as long again as finding them.
  const Stopwatch since;
  const auto stop = [&] {
    return Stopped() || (options.check.seconds > 0 && since.seconds() > options.check.seconds);
  };
  std::vector<Finding>& findings = session.document.findings;
  findings = folder.Triage(std::move(result.findings), options.contract, session.known,
                           session.deferred, stop);
  session.known.CountAsExpected(findings, result);
  session.known.TellUnmatched(findings);

  const std::vector<FaultOfRun> faults =
      FaultsOf(findings, folder.diagnoses(), session.known, result);
  for (const FaultOfRun& fault : faults) {
    session.Print("{}", FaultText(fault, findings, result));
    if (options.verbose) continue;
    const std::string text = session.known.Text(findings[fault.findings.front()]);
    session.Print("{}", text.substr(std::min(text.find("  fingerprint: "), text.size())));
  }
  for (const Finding& finding : findings) {
    if (options.verbose || !session.known.IsNew(finding))
      session.Print("{}", session.known.Text(finding));
  }
  const std::string hazards = HazardLines(result.coverage), reasons = ReasonLines(result);
  if (options.verbose) {
    session.Print("{}\n", TotalsLine(result.totals));
    if (!hazards.empty()) session.Print("hazard coverage\n{}", hazards);
    if (!reasons.empty()) session.Print("not judged\n{}", reasons);
  }
  session.Print("{}{}", IdleLines(result), ClosingLine(result, faults.size(), options.check.adapt));
  session.totals = result.totals;
  session.document.extra = {{"faults", FaultsJson(faults, findings)},
                            {"hazards", HazardJson(result.coverage)},
                            {"properties", PropertiesJson(result)},
                            {"not_judged", NotJudgedJson(result)}};
  session.tests = JUnitTests(result, findings, session.known);
  const int status = session.End(WhyNothing(result));
  // A shard of few cases may be empty: other shards judge them.
  const bool empty_shard = options.check.shard_count > 1 && result.totals.cases == 0;
  return status == kBadInput && empty_shard ? kClean : status;
}

}  // namespace

void AddCheck(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("check", "judge every applicable property on drawn cases");
  verb->footer("Example: qualm check --subject native@all --op linear --cases 20000 --seed 7");
  AddSubjectOption(*verb, *options, false);
  AddOutputOptions(*verb, *options);
  AddContractOption(*verb, *options);
  AddJUnitOption(*verb, *options);
  verb->add_option("--property,-p", options->check.property_glob, "glob on OP.CLAIM or CLAIM")
      ->check(NotEmpty);
  verb->add_option("--op", options->ops, "only this operation (repeatable)")
      ->allow_extra_args(false);
  CLI::Option* cases = AddInteger(*verb, "--cases,-n", options->check.cases, 1, int64_t{1} << 40,
                                  "cases per operation");
  AddDuration(*verb, "--time", options->check.seconds, "run this long instead, e.g. 60s, 10m");
  verb->get_option("--time")->excludes(cases);
  AddSeed(*verb, options->check.seed);
  verb->add_flag(
      "--adapt", options->check.adapt,
      "bring a case that a subject does not take into its limits, instead of skipping it");
  AddInteger(*verb, "--jobs,-j", options->check.jobs, 1, 256,
             "threads; the result does not depend on it");
  AddShard(*verb, options->shard, "I/N: every N-th case, starting at I (docs/campaigns.md)");
  verb->add_option("--out", options->out, "folder for new findings")->check(NotEmpty);
  verb->add_flag("--verbose", options->verbose,
                 "every finding, all counts, hazard coverage, why verdicts were no passes");
  AddKnownOptions(*verb, options->known);
  verb->callback([options, run] { *run = [options] { return RunCheck(*options); }; });
}

}  // namespace qualm::tools
