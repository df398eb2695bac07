// SPDX-License-Identifier: Apache-2.0
// qualm check: draw cases, judge every applicable property on every named subject.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>

#include "core/io/shell_word.h"
#include "core/io/short_path.h"
#include "core/status.h"
#include "oracles/exact/exact.h"
#include "properties/engine.h"
#include "tools/blocks.h"
#include "tools/command.h"
#include "tools/findings.h"
#include "tools/ops.h"
#include "tools/progress.h"
#include "tools/recorded_text.h"
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

// The most frequent reason; "" if there is none.
std::string MostOften(const std::map<std::string, int64_t>& reasons) {
  const auto most = std::ranges::max_element(reasons, {}, [](const auto& r) { return r.second; });
  return most == reasons.end() ? "" : most->first;
}

// Why nothing was judged.
std::string WhyNothing(const CheckResult& result) {
  std::map<std::string, int64_t> reasons;
  for (const auto& [key, count] : result.reasons) reasons[key.reason] += count;
  if (reasons.empty())
    return result.totals.cases == 0 ? "there was no case" : "no property applies";
  return MostOften(reasons);
}

// An operation of which nothing was judged on a subject.
struct Unjudged {
  std::string subject;
  Op op = Op::kLinear;
  int64_t cases = 0;
  std::string why;  // "" if nobody says
  bool whole;       // nor of any other operation
  bool missing;     // it was asked for, and the subject has it: a run without it is not clean
  bool offered;
};

// Why: the most frequent reason for which nothing was compared, else for which other claims were
// not judged.
std::string WhyUnjudged(const CheckResult& result, const Subject& asked, Op op) {
  const Contract& contract = asked.contract(op);
  const Convention* const convention = FindConvention(contract.convention);
  if (convention != nullptr && !contract.is_tree() && std::ranges::count(convention->ops, op) == 0)
    return contract.text() + " has no " + std::string(Name(op));
  const std::string subject(asked.name());
  std::map<std::string, int64_t> of_comparison, of_others;
  for (const auto& [key, count] : result.reasons) {
    const Property* const property = FindProperty(key.property);
    if (key.subject != subject || key.property != FullName(op, *property)) continue;
    const bool compares = Compares(*property) && key.judgement != Judgement::kNotApplicable;
    (compares ? of_comparison : of_others)[key.reason] += count;
  }
  return MostOften(of_comparison.empty() ? of_others : of_comparison);
}

// In the order of subjects and operations. An operation that nobody named and that the subject does
// not offer is not missing.
std::vector<Unjudged> UnjudgedOf(const CheckResult& result, const Session& session,
                                 const Options& options) {
  const std::vector<Op> ops = DrawnOps(options.check);
  const auto judged = [&](const std::string& subject, Op op) {
    return result.judged.contains({subject, op});
  };
  std::vector<std::string> named;  // by a word of their own, not by a pattern
  for (const std::string& word : options.subjects) {
    const std::vector<std::string> names = SubjectNames({word}, {});
    if (names.size() == 1) named.push_back(names.front());
  }
  std::vector<Unjudged> list;
  for (const auto& subject : session.subjects) {
    const std::string name(subject->name());
    const bool whole = std::ranges::none_of(ops, [&](Op op) { return judged(name, op); });
    for (const Op op : ops) {
      const auto drawn = result.cases_by_op.find(op);
      // Other shards judge what this one has no case of.
      const bool other_shard = drawn == result.cases_by_op.end() && options.check.shard_count > 1;
      if (judged(name, op) || other_shard) continue;
      const bool by_nobody = std::ranges::none_of(
          session.subjects, [&](const auto& any) { return judged(std::string(any->name()), op); });
      const bool cases = drawn != result.cases_by_op.end();
      list.push_back({name, op, cases ? drawn->second : 0,
                      cases ? WhyUnjudged(result, *subject, op) : "there was no case", whole,
                      subject->Offers(op) || (whole && std::ranges::count(named, name) != 0) ||
                          (by_nobody && !options.ops.empty()),
                      subject->Offers(op)});
    }
  }
  return list;
}

// "nothing was judged of requantize on SUBJECT: WHY", a line for each operation that is missing,
// one for a subject without any: of an operation that it offers, if there is one.
std::vector<std::string> UnjudgedLines(const std::vector<Unjudged>& unjudged) {
  std::vector<std::string> lines;
  std::set<std::string> idle;
  for (const bool offered : {true, false}) {
    for (const Unjudged& one : unjudged) {
      if ((one.whole && one.offered) != offered || (one.whole && idle.contains(one.subject)) ||
          (!one.whole && !one.missing))
        continue;
      if (one.whole) idle.insert(one.subject);
      lines.push_back(fmt::format("nothing was judged{} on {}{}{}",
                                  one.whole ? "" : fmt::format(" of {}", Name(one.op)), one.subject,
                                  one.why.empty() ? "" : ": ", one.why));
    }
  }
  return lines;
}

// " Nothing was judged of concat and 6 more operations on SUBJECT (SUBJECT does not offer concat)."
std::string LeftOutText(const std::vector<Unjudged>& unjudged) {
  constexpr size_t kMostSubjects = 3;
  std::map<std::string, std::vector<const Unjudged*>> left_out;
  for (const Unjudged& one : unjudged) {
    if (!one.whole && !one.missing) left_out[one.subject].push_back(&one);
  }
  if (left_out.size() > kMostSubjects)
    return fmt::format(" On {} subjects nothing was judged of some operations.", left_out.size());
  std::string text;
  for (const auto& [subject, ops] : left_out) {
    const std::string more =
        ops.size() == 1
            ? ""
            : fmt::format(" and {} more operation{}", ops.size() - 1, ops.size() == 2 ? "" : "s");
    const std::string& why = ops.front()->why;
    text += fmt::format(" Nothing was judged of {}{} on {}{}.", Name(ops.front()->op), more,
                        subject, why.empty() ? "" : " (" + why + ")");
  }
  return text;
}

// The closing sentence: how much was judged, how much was not, and why. It says OK only if
// everything was judged that was asked for.
std::string ClosingLine(const CheckResult& result, const std::vector<Unjudged>& unjudged,
                        size_t faults, const Options& options) {
  int64_t judged = 0;
  for (const auto& [key, row] : result.coverage.rows()) judged += row.cases;
  if (judged == 0) return "";  // UnjudgedLines says why
  // An operation that nobody named, of which a subject judged nothing, is counted neither as judged
  // nor as missing.
  const auto left_out = [&](const std::string& subject, Op op) {
    return options.ops.empty() && std::ranges::any_of(unjudged, [&](const Unjudged& one) {
             return one.subject == subject && one.op == op && !one.whole;
           });
  };
  int64_t all = 0;
  std::map<std::string, int64_t> reasons;
  for (const auto& [subject, totals] : result.by_subject) {
    for (const auto& [op, cases] : result.cases_by_op) {
      if (left_out(subject, op)) continue;
      all += cases;
      const auto at = result.unjudged.find({subject, op});
      if (at == result.unjudged.end()) continue;
      for (const auto& [reason, count] : at->second.reasons) reasons[reason] += count;
    }
  }
  const bool missing = std::ranges::any_of(unjudged, &Unjudged::missing);
  const std::string reason = MostOften(reasons);
  const Totals& totals = result.totals;
  std::string text = fmt::format(
      "{}{} of {} answers{} were judged: {} claims hold{}", faults == 0 && !missing ? "OK: " : "",
      judged, all,
      options.subjects.empty() ? " of qualm's own kernels (no --subject was named)" : "",
      totals.of(Judgement::kPassed),
      faults == 0 ? ""
                  : fmt::format(", {} fail ({} fault{})", totals.of(Judgement::kFailed), faults,
                                faults == 1 ? "" : "s"));
  if (const int64_t expected = totals.of(Judgement::kExpected); expected > 0)
    text += fmt::format(", {} fail as declared or known", expected);
  text += ".";
  if (!reason.empty()) {
    text += fmt::format(
        " The rest lie outside what the subject or its contract takes, most often: {}.{}", reason,
        options.check.adapt ? "" : " Without --no-adapt cases are brought into its limits.");
  }
  text += LeftOutText(unjudged);
  for (const auto& [subject, why_not] : result.adapted) {
    int64_t adapted = 0, cases = 0;
    for (const auto& [why, count] : why_not) adapted += count;
    for (const auto& [op, count] : result.cases_by_op) cases += left_out(subject, op) ? 0 : count;
    text += fmt::format(
        " {} of {} cases were brought into the limits of {}, which does not take them all (most "
        "often: {}).",
        adapted, cases, ShortSubject(subject), MostOften(why_not));
  }
  return text + " --verbose has the rest.\n";
}

JsonValue UnjudgedJson(const std::vector<Unjudged>& unjudged) {
  JsonList list;
  for (const Unjudged& one : unjudged) {
    list.Add(JsonObject{{"subject", one.subject},
                        {"op", Name(one.op)},
                        {"cases", one.cases},
                        {"missing", one.missing},
                        {"reason", one.why}});
  }
  return list;
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
    JUnitTest test{"qualm", name, std::string(Name(Judgement::kPassed)), "", totals.seconds};
    if (totals.of(Judgement::kPassed) == 0) {
      test.status = Name(Judgement::kSkipped);
      std::map<std::string, int64_t> reasons;
      for (const auto& [key, count] : result.reasons) {
        if (key.property == name) reasons[key.reason] += count;
      }
      test.message = MostOften(reasons);
    }
    bool any_new = false;
    for (const Finding& finding : findings) {
      if (finding.full_property() != name) continue;
      if (test.status == Name(Judgement::kSkipped)) test.message.clear();
      any_new |= known.IsNew(finding);
      test.status = Name(any_new ? Judgement::kFailed : Judgement::kExpected);
      test.message += known.Text(finding);
    }
    tests.push_back(std::move(test));
  }
  return tests;
}

// A subject that answers like somebody's arithmetic may be right, but judged by a contract that its
// author did not choose. Names the contracts that fit, and how to choose them all.
std::string FittingContracts(const std::vector<Finding>& findings, const Diagnoses& diagnoses,
                             const Options& options) {
  constexpr int64_t kCases = 100;
  std::map<std::string, std::map<Op, std::vector<triage::ObservedCase>>> wrong;
  for (const Finding& finding : findings) {
    // Only plugins and pipes: our own subjects are judged by the contract that they promise.
    const std::string& name = finding.subject;
    if (!name.starts_with("plugin:") && !name.starts_with("pipe:")) continue;
    const auto at = diagnoses.find(finding.fingerprint());
    if (at == diagnoses.end() || !at->second.found.observed) continue;
    const Case& c = at->second.found;
    if (exact::Evaluate(c) != c.observed->y) wrong[name][c.op].push_back({"", c});
  }
  std::string text;
  for (const auto& [name, by_op] : wrong) {
    const auto subject = std::move(MakeSubjects({name}, options.contract).front());
    std::map<Op, std::vector<std::string>> fitting;
    std::map<std::string, size_t> times;  // that a convention fits
    std::string fits;
    for (const auto& [op, cases] : by_op) {
      if (!subject->contract(op).exact() || NamesContract(options, op)) continue;
      std::vector<triage::ConventionOrExact> fit;
      for (const triage::Identified& result :
           triage::IdentifyObserved(cases, triage::AllConventionsAndExact().subspan(1))) {
        for (const std::string& convention : result.bit_equal())
          fit.push_back(triage::FindConventionOrExact(convention, "contract"));
      }
      if (fit.empty()) continue;
      triage::IdentifyOptions how;
      how.cases = kCases;
      how.shorten = 0;
      how.stopped = Stopped;
      const triage::Identified result =
          triage::Identify(triage::AnswererOf(*subject), op, fit, how);
      const triage::Fitting fits_here = triage::FittingOf(result);
      const std::vector<std::string>& names = fits_here.names;
      if (names.empty() || result.broken != 0) continue;
      fits += fmt::format("{}{} of {} ({})", fits.empty() ? "" : ", ", Name(op),
                          FewNames(fmt::format("{}", fmt::join(names, ", "))), fits_here.text);
      for (const std::string& convention : names) ++times[convention];
      fitting[op] = names;
    }
    if (fitting.empty()) continue;
    Contracts all;
    for (const auto& [op, names] : fitting) {
      all.by_op[op] = {*std::ranges::max_element(
          names, {}, [&](const std::string& convention) { return times[convention]; })};
    }
    all = all.Over(subject->contracts());
    if (all.rest->exact()) all.rest.reset();
    text += fmt::format(
        "contract: {}: not exact, but a known arithmetic: {}. If that is what it\n  should "
        "compute, judge it by that: --contract {}\n",
        name, fits, ShellWord(all.text()));
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
  RequireReportFolder("--out", options.out);
  const std::optional<ResultRecord> before = RunBefore(options.out);
  options.out = FolderOrTemporary("--out", options.out);
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
      stop() ? "" : FittingContracts(findings, folder.diagnoses(), options);

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
  session.Print("{}", SumsText(result.sums));
  const std::string hazards = HazardLines(result.coverage), reasons = ReasonLines(result);
  if (options.verbose) {
    session.Print("{}\n", TotalsLine(result.totals));
    if (!hazards.empty()) session.Print("hazard coverage\n{}", hazards);
    if (!reasons.empty()) session.Print("not judged\n{}", reasons);
  }
  std::vector<Unjudged> unjudged = UnjudgedOf(result, session, options);
  for (const std::string& line : UnjudgedLines(unjudged)) session.Print("{}\n", line);
  session.Print("{}{}", folder.effort().Sentence(),
                ClosingLine(result, unjudged, faults.size(), options));
  for (const auto& subject : session.subjects) {
    if (IsOfAnotherVersion(subject->Version()))
      session.Print("{} is {}.\n", subject->name(), subject->Version());
  }
  session.totals = result.totals;
  session.document.extra = {
      {"faults", FaultsJson(faults, findings)}, {"triage", folder.effort().Json()},
      {"hazards", HazardJson(result.coverage)}, {"properties", PropertiesJson(result)},
      {"unjudged", UnjudgedJson(unjudged)},     {"not_judged", NotJudgedJson(result)}};
  if (!result.sums.empty()) session.document.extra.emplace_back("sums", SumsJson(result.sums));
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
  if (status == kBadInput && empty_shard) return kClean;
  if (status != kClean || Stopped() || std::ranges::none_of(unjudged, &Unjudged::missing))
    return status;
  std::erase_if(unjudged, [](const Unjudged& one) { return !one.missing; });
  for (const std::string& line : UnjudgedLines(unjudged)) TellLine(line);
  return kBadInput;
}

}  // namespace

void AddCheck(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(app, run, "check", "judge every applicable property on drawn cases",
            "Example: qualm check --subject native@all --op linear --cases 20000 --seed 7");
  AddSubjectOption(verb, *options, false);
  AddOutputOptions(verb, *options);
  AddContractOption(verb, *options);
  AddDomainOptions(verb, *options);
  AddReportOptions(verb, *options);
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
