// SPDX-License-Identifier: Apache-2.0
// qualm check: draw cases, judge every applicable property on every named subject.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <tuple>

#include "core/io/short_path.h"
#include "core/status.h"
#include "oracles/exact/exact.h"
#include "properties/engine.h"
#include "tools/blocks.h"
#include "tools/command.h"
#include "tools/findings.h"
#include "tools/ops.h"
#include "tools/progress.h"
#include "tools/recorded.h"
#include "tools/report.h"
#include "tools/session.h"
#include "tools/shard.h"
#include "tools/stop.h"
#include "triage/identify.h"
#include "triage/triage.h"

namespace qualm::tools {
namespace {

struct Options : CommonOptions {
  KnownOptions known;
  OpWords ops;
  CheckOptions check;
  std::string shard;
  std::string out = "qualm-findings";
  bool out_named = false;
  std::vector<std::string> skip;  // globs
  bool verbose = false;
};

// Instruction sets that reached the same share a line; the document lists them one by one.
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

// The reasons for which cases were not judged, most frequent first, one line for each judgement.
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

// The most frequent reason; "" if there is none.
std::string MostOften(const std::map<std::string, int64_t>& reasons) {
  const auto most = std::ranges::max_element(reasons, {}, [](const auto& r) { return r.second; });
  return most == reasons.end() ? "" : most->first;
}

// How many answers the run asked for, and why some of them were not judged.
struct Answers {
  int64_t all = 0;
  std::map<std::string, int64_t> reasons;
  std::map<std::string, std::vector<Op>> left_out;  // by subject
  std::map<std::string, std::string> why;           // by subject, an example
};

// An operation that nobody named, of which a subject judged nothing, is left out: it is counted
// neither as judged nor as missing, but named.
Answers AnswersOf(const CheckResult& result, bool ops_named) {
  Answers answers;
  for (const auto& [subject, totals] : result.by_subject) {
    for (const auto& [op, cases] : result.cases_by_op) {
      answers.all += cases;
      const auto at = result.unjudged.find({subject, op});
      if (at == result.unjudged.end()) continue;
      if (!ops_named && totals.judged() != 0 && at->second.cases == cases) {
        answers.all -= cases;
        answers.left_out[subject].push_back(op);
        answers.why.emplace(subject, MostOften(at->second.reasons));
        continue;
      }
      for (const auto& [reason, count] : at->second.reasons) answers.reasons[reason] += count;
    }
  }
  return answers;
}

// " Nothing was judged of concat and 6 more operations on SUBJECT (SUBJECT does not offer concat)."
std::string LeftOutText(const Answers& answers) {
  constexpr size_t kMostSubjects = 3;
  if (answers.left_out.size() > kMostSubjects) {
    return fmt::format(" On {} subjects nothing was judged of some operations.",
                       answers.left_out.size());
  }
  std::string text;
  for (const auto& [subject, ops] : answers.left_out) {
    const std::string more =
        ops.size() == 1
            ? ""
            : fmt::format(" and {} more operation{}", ops.size() - 1, ops.size() == 2 ? "" : "s");
    const std::string& why = answers.why.at(subject);
    text += fmt::format(" Nothing was judged of {}{} on {}{}.", Name(ops.front()), more, subject,
                        why.empty() ? "" : " (" + why + ")");
  }
  return text;
}

// The closing sentence: how much was judged, how much was not, and why.
std::string ClosingLine(const CheckResult& result, size_t faults, bool adapts, bool ops_named) {
  int64_t judged = 0;
  for (const auto& [key, row] : result.coverage.rows()) judged += row.cases;
  if (judged == 0) return "";  // IdleLines says why
  const Answers answers = AnswersOf(result, ops_named);
  const std::string reason = MostOften(answers.reasons);
  const Totals& totals = result.totals;
  std::string text =
      fmt::format("{}{} of {} answers were judged: {} claims hold{}", faults == 0 ? "OK: " : "",
                  judged, answers.all, totals.of(Judgement::kPassed),
                  faults == 0 ? ""
                              : fmt::format(", {} fail ({} fault{})", totals.of(Judgement::kFailed),
                                            faults, faults == 1 ? "" : "s"));
  if (const int64_t expected = totals.of(Judgement::kExpected); expected > 0)
    text += fmt::format(", {} fail as declared or known", expected);
  text += ".";
  if (!reason.empty()) {
    text += fmt::format(" What was not judged the subject does not take, most often: {}.{}", reason,
                        adapts ? "" : " Without --no-adapt cases are brought into its limits.");
  }
  text += LeftOutText(answers);
  for (const auto& [subject, reasons] : result.adapted) {
    int64_t adapted = 0, cases = 0;
    for (const auto& [why_not, count] : reasons) adapted += count;
    for (const auto& [op, count] : result.cases_by_op) {
      const auto left_out = answers.left_out.find(subject);
      const bool out = left_out != answers.left_out.end() &&
                       std::ranges::find(left_out->second, op) != left_out->second.end();
      cases += out ? 0 : count;
    }
    text += fmt::format(
        " {} of {} cases were brought into the limits of {}, which does not take them all (most "
        "often: {}).",
        adapted, cases, subject, MostOften(reasons));
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

// A subject that answers like somebody's arithmetic may be right, but judged by a contract that its
// author did not choose. Names the contract that fits, and how to choose it.
std::string FittingContracts(const std::vector<Finding>& findings, const Diagnoses& diagnoses) {
  constexpr int64_t kCases = 100;
  std::map<std::pair<std::string, Op>, std::vector<triage::ObservedCase>> wrong;
  for (const Finding& finding : findings) {
    const auto at = diagnoses.find(finding.fingerprint());
    if (at == diagnoses.end() || !at->second.found.observed) continue;
    const Case& c = at->second.found;
    if (exact::Evaluate(c) != c.observed->y) wrong[{finding.subject, c.op}].push_back({"", c});
  }
  std::string text;
  for (const auto& [key, cases] : wrong) {
    const auto& [name, op] = key;
    const auto subject = SubjectRegistry::Get().Make(name);
    // Only plugins and pipes: our own subjects are judged by the contract that they promise.
    if (!subject->contract().exact() || !(name.starts_with("plugin:") || name.starts_with("pipe:")))
      continue;
    std::vector<triage::ConventionOrExact> fit;
    for (const triage::Identified& result :
         triage::IdentifyObserved(cases, triage::AllConventionsAndExact().subspan(1))) {
      for (const std::string& convention : result.bit_equal())
        fit.push_back(triage::FindConventionOrExact(convention, "contract"));
    }
    if (fit.empty()) continue;
    triage::IdentifyOptions options;
    options.cases = kCases;
    options.shorten = 0;
    options.stopped = Stopped;
    const triage::Identified result =
        triage::Identify(triage::AnswererOf(*subject), op, fit, options);
    const std::vector<std::string> names = result.bit_equal();
    if (names.empty() || result.broken != 0) continue;
    text += fmt::format(
        "contract: {}, {}: not exact, but all {} answers that were compared are those of {}. If "
        "that is\n  what it should compute, judge it by that: --contract model:{}\n",
        name, Name(op), result.answered, FewNames(fmt::format("{}", fmt::join(names, ", "))),
        names.front());
  }
  return text;
}

// Writes the page of --out and its result.json. That file holds more than --json: date and machine,
// which differ from run to run.
void ReportOf(const Options& options, const CheckResult& result,
              const std::optional<ResultRecord>& before, Session& session) {
  session.Complete();
  ResultDocument document = session.document;
  document.extra.emplace_back("run", RunJson());
  document.extra.emplace_back("verdicts", VerdictsJson(result.by_square));
  if (before) document.extra.emplace_back("since", ChangeJson(*before, document.findings));
  session.Print("report: {}\n", ShortPath(WriteReport(options.out, document, before).path));
}

int RunCheck(Options options) {
  Session session(options);
  options.check.ops = OpsOf(options.ops);
  AddSkipped(options.skip, options.check.property_glob);
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
  RequireReportFolder("--out", options.out);
  const std::optional<ResultRecord> before = RunBefore(options.out);
  session.Begin(fmt::format("seed {}; ", options.check.seed), options.check.seed);
  auto progress = std::make_shared<Progress>("", options.check.seconds);
  options.check.progress = [bar = progress.get()](int64_t done, int64_t all) { (*bar)(done, all); };
  FindingsFolder folder(options.out);
  folder.Connect(options.check, session.known);

  CheckResult result = Check(options.check);
  options.check.progress = nullptr;
  progress.reset();  // takes the bar away
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
  const std::string contracts =
      options.contract.empty() && !stop() ? FittingContracts(findings, folder.diagnoses()) : "";

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
  session.Print("{}", contracts);
  const std::string hazards = HazardLines(result.coverage), reasons = ReasonLines(result);
  if (options.verbose) {
    session.Print("{}\n", TotalsLine(result.totals));
    if (!hazards.empty()) session.Print("hazard coverage\n{}", hazards);
    if (!reasons.empty()) session.Print("not judged\n{}", reasons);
  }
  session.Print("{}{}{}", IdleLines(result), folder.effort().Sentence(),
                ClosingLine(result, faults.size(), options.check.adapt, !options.ops.empty()));
  session.totals = result.totals;
  session.document.extra = {{"faults", FaultsJson(faults, findings)},
                            {"triage", folder.effort().Json()},
                            {"hazards", HazardJson(result.coverage)},
                            {"properties", PropertiesJson(result)},
                            {"not_judged", NotJudgedJson(result)}};
  session.tests = JUnitTests(result, findings, session.known);
  // A run without new findings leaves no folder behind, unless the user asked for one.
  const bool news = std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
    return session.known.IsNew(finding);
  });
  if (options.out_named || news || before)
    session.deferred.Try([&] { ReportOf(options, result, before, session); });
  const int status = session.End(WhyNothing(result));
  // A shard of few cases may be empty: other shards judge them.
  const bool empty_shard = options.check.shard_count > 1 && result.totals.cases == 0;
  return status == kBadInput && empty_shard ? kClean : status;
}

}  // namespace

void AddCheck(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(app, run, "check", "judge every applicable property on drawn cases",
            "Example: qualm check --subject native@all --op linear --cases 20000 --seed 7");
  AddSubjectOption(verb, *options, false);
  AddOutputOptions(verb, *options);
  AddContractOption(verb, *options);
  AddJUnitOption(verb, *options);
  verb.Text("--property,-p", options->check.property_glob,
            "globs on OP.CLAIM or CLAIM, between commas");
  AddOps(verb, options->ops, "only these operations");
  AddSkip(verb, options->skip);
  const VerbOption cases =
      verb.Integer("--cases,-n", options->check.cases, 1, int64_t{1} << 40, "cases per operation");
  verb.Duration("--time", options->check.seconds, "run this long instead, e.g. 60s, 10m")
      .Excludes(cases);
  verb.Seed(options->check.seed);
  options->check.adapt = true;
  verb.Flag("--adapt,!--no-adapt", options->check.adapt,
            "bring a case that a subject does not take into its limits (the default), or skip "
            "it");
  verb.Integer("--jobs,-j", options->check.jobs, 1, 256,
               "threads; the result does not depend on it");
  AddShard(verb, options->shard, "I/N: every N-th case, starting at I (docs/campaigns.md)");
  verb.Text(
      "--out",
      [raw = options.get()](const std::string& folder) {
        raw->out = folder;
        raw->out_named = true;
      },
      "folder for new findings and the report of the run (default: qualm-findings)");
  verb.Flag("--verbose", options->verbose,
            "every finding, all counts, hazard coverage, why verdicts were no passes");
  AddKnownOptions(verb, options->known);
  verb.Does([options] { return RunCheck(*options); });
}

}  // namespace qualm::tools
