// SPDX-License-Identifier: Apache-2.0
// qualm replay: case files, golden .jsonl files, and folders of them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/io/case_json.h"
#include "core/io/golden.h"
#include "core/io/short_path.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "oracles/golden/judge.h"
#include "properties/engine.h"
#include "properties/property.h"
#include "tools/blocks.h"
#include "tools/claim.h"
#include "tools/command.h"
#include "tools/emit.h"
#include "tools/findings.h"
#include "tools/progress.h"
#include "tools/recorded_text.h"
#include "tools/regressions.h"
#include "tools/session.h"
#include "tools/stop.h"
#include "triage/recorded.h"
#include "triage/triaged.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

struct Options : CommonOptions {
  std::vector<std::string> paths;
  std::string property;
};

// The totals of a run.
struct Replay {
  Session& session;
  std::map<std::string, std::map<std::string, int64_t>>
      golden;                               // convention or "-" -> judgement -> n
  std::set<std::string> intervals;          // conventions that accept many numbers of an output
  std::map<std::string, int64_t> skipped;   // reason -> n
  std::string inapplicable;                 // a claim, and the contract that it does not belong to
  std::map<std::string, int64_t> observed;  // how the answers in case files are -> n
  SumsOfRun sums;
  std::vector<Regression> regressions;
  int64_t answers = 0;    // of subjects that were judged
  bool may_hide = false;  // a claim holds now that a case file says was broken
};

void Report(Replay& replay, const std::string& suite, const std::string& name,
            const Verdict& verdict) {
  replay.session.totals.Add(verdict.judgement);
  replay.session.tests.push_back(
      {suite, name, std::string(Name(verdict.judgement)), verdict.reason});
  if (verdict.judgement == Judgement::kSkipped) ++replay.skipped[verdict.reason];
}

// The origin of a case, and the contract of the subject that is asked about it.
struct Origin {
  const std::string& file;
  const Contract& promised;
};

// One verdict of one subject, reported under `name`; a failure that a row of adapters/contracts.cc
// declares is expected.
void Take(const Case& c, const Property& property, Subject& subject, Verdict verdict,
          const std::string& name, const Origin& origin, Replay& replay) {
  if (verdict.failed()) {
    Finding finding = FindingOf(c, property, subject, verdict, origin.file, origin.promised);
    if (finding.expected_by_contract) verdict.judgement = Judgement::kExpected;
    replay.session.document.findings.push_back(std::move(finding));
  }
  replay.answers += IsJudged(verdict.judgement) ? 1 : 0;
  if (verdict.sums) replay.sums[{std::string(subject.name()), c.op}].Add(*verdict.sums);
  Report(replay, std::string(subject.name()), name, verdict);
}

Case ReadCase(const std::string& file) {
  Case c = ReadCaseFile(file);
  if (!c.property.empty()) PropertyOf(c.property, c.op, file + ": property");
  RequireContract(c, file);
  return c;
}

// Judges the answer in the file if it is a recording and no reproducer (which names the claim that
// it breaks): it must be exact, or wholly some library's. With one changed code it is neither.
void JudgeObserved(const std::string& file, const Case& c, Replay& replay) {
  const triage::RecordedAnswer answer = triage::JudgeRecorded(c, c.observed->y);
  const std::string about = fmt::format("{} of {} outputs are not exact, by at most {}",
                                        answer.departing, answer.outputs, FarText(c, answer));
  Verdict verdict = Verdict::Passed();
  std::string state = "exact";
  if (answer.is_wrong()) {
    const std::string nearest = answer.nearest.empty()
                                    ? ""
                                    : fmt::format("; {} gives all but {}, the first of them here",
                                                  answer.nearest, answer.not_nearest);
    verdict =
        Verdict::Failed("the observed output is nobody's: " + about + ", and no " +
                            (answer.is_sums ? "order of additions that " + c.contract + " accepts"
                                            : std::string("known arithmetic")) +
                            " gives all of it" + nearest,
                        answer.nearest.empty() ? answer.first : answer.first_not_nearest);
    state = "nobody's";
    replay.session.document.findings.emplace_back(c, "named_arithmetic", "observed", verdict, file);
  } else if (answer.within_digits) {
    state = "not exact, but exact with other numbers that print so";
  } else if (!answer.exact() && answer.is_sums) {
    state = "not exact, but float32 sums in some order";
  } else if (!answer.exact() && answer.undefined) {
    verdict = Verdict::Skipped("observed: " + about + ", and no convention defines the case");
    state = "not exact, and defined by no convention";
  } else if (!answer.exact()) {
    state = "not exact, and all of it the arithmetic of a known library";
  }
  ++replay.observed[state];
  Report(replay, "observed", file, verdict);
}

void ReplayCase(const std::string& file, const Case& c, const Options& options, Replay& replay) {
  ++replay.session.totals.cases;
  const std::string wanted = options.property.empty() ? c.property : options.property;
  if (c.expected) {
    // Where the oracle disagrees with the file, one of the two is wrong.
    Report(replay, "oracle", file, JudgeExpected(c));
    if (auto wrong = WrongExpected(c, file))
      replay.session.document.findings.push_back(std::move(*wrong));
  }
  if (c.observed && wanted.empty()) JudgeObserved(file, c, replay);
  const std::string glob =
      wanted.empty() ? "*" : FullName(c.op, PropertyOf(wanted, c.op, "--property"));
  for (const auto& subject : replay.session.subjects) {
    const Contracts own = subject->contracts();
    const bool named = NamesContract(options, c.op);
    const bool reproducer = !named && IsReproducerOf(c, *subject);
    // Our own kernels, which are asked where nobody is named, have not promised what the file says.
    const bool asked = !options.subjects.empty() || reproducer;
    subject->set_contract(ContractOfClaim(c, *subject, named || !asked));
    MemoSubject memo(*subject);
    bool fails = false, judged = false;
    JudgeAll(c, memo, glob, [&](const Property& property, Verdict verdict) {
      const std::string name = FullName(c.op, property) + " " + file;
      fails |= verdict.failed();
      judged |= verdict.failed() || verdict.judgement == Judgement::kPassed;
      if (verdict.judgement == Judgement::kNotApplicable && !wanted.empty())
        replay.inapplicable =
            fmt::format("{} does not apply to {} under its contract {}", FullName(c.op, property),
                        memo.name(), memo.contract(c.op).text());
      Take(c, property, memo, std::move(verdict), name, {file, own.of(c.op)}, replay);
      return true;
    });
    replay.may_hide |= judged && !fails && options.property.empty() && MayHide(c, *subject);
    if (reproducer && judged && options.property.empty())
      replay.regressions.push_back(CompareWithThen(file, c, memo, fails));
    subject->set_contracts(own);
  }
}

// A record, its case and what each subject answered.
struct Asked {
  const GoldenRecord* record;
  Case problem;
  std::vector<std::optional<Outcome>> answers;  // by subject; nullopt: not asked
};

// Asks each subject for all cases at once: a subject behind a pipe works on the next case while
// this process reads and writes.
void AskForAll(const std::vector<Subject*>& subjects, std::vector<Asked>& asked) {
  for (size_t s = 0; s < subjects.size(); ++s) {
    std::vector<Case> cases;
    std::vector<size_t> places;
    for (size_t i = 0; i < asked.size(); ++i) {
      asked[i].answers.resize(subjects.size());
      if (!subjects[s]->CannotRun(asked[i].problem).empty()) continue;
      cases.push_back(asked[i].problem);
      places.push_back(i);
    }
    std::vector<Outcome> outcomes = subjects[s]->RunMany(cases, RunContext{});
    for (size_t i = 0; i < places.size(); ++i) {
      asked[places[i]].answers[s] = std::move(outcomes[i]);
    }
  }
}

void JudgeRecord(const GoldenRecord& record, Replay& replay) {
  ++replay.session.totals.cases;
  const GoldenVerdict judged = JudgeGolden(record);
  Report(replay, judged.convention.empty() ? "no model" : "model:" + judged.convention,
         record.where, judged.verdict);
  ++replay.golden[judged.convention.empty() ? "-" : judged.convention]
                 [std::string(Name(judged.verdict.judgement))];
  if (judged.interval) replay.intervals.insert(judged.convention);
  if (!judged.verdict.failed()) return;
  replay.session.document.findings.emplace_back(
      record.op, "matches_model", "model:" + judged.convention, judged.verdict, record.where);
}

void ReplayRecords(const std::vector<GoldenRecord>& records, const std::vector<Subject*>& subjects,
                   Replay& replay) {
  const auto has_case = [&](const GoldenRecord& record) {
    return !subjects.empty() && GoldenHasCase(record);
  };
  std::vector<Asked> asked;
  try {
    for (const GoldenRecord& record : records) {
      if (has_case(record)) asked.push_back({&record, GoldenCase(record), {}});
    }
  } catch (const InputError&) {  // NOLINT(bugprone-empty-catch)
    // Thrown again below, after the records before the wrong one are judged.
  }
  AskForAll(subjects, asked);
  auto next = asked.begin();
  for (const GoldenRecord& record : records) {
    JudgeRecord(record, replay);
    if (!has_case(record)) continue;
    if (next == asked.end()) GoldenCase(record);  // throws
    for (size_t s = 0; s < subjects.size(); ++s) {
      MemoSubject memo(*subjects[s]);
      memo.set_contract(memo.contract(next->problem.op));
      const bool exact_contract = memo.contract().exact();
      if (next->answers[s]) memo.Remember(next->problem, *next->answers[s]);
      JudgeAll(next->problem, memo, exact_contract ? "matches_exact" : "matches_model",
               [&](const Property& property, Verdict verdict) {
                 Take(next->problem, property, memo, std::move(verdict), record.where,
                      {record.where, memo.contract()}, replay);
                 return true;
               });
    }
    ++next;
  }
}

void ReplayGolden(const std::string& file, const std::vector<Subject*>& subjects, Replay& replay) {
  constexpr size_t kAtOnce = 64;
  std::vector<GoldenRecord> records;
  const auto replay_them = [&] { ReplayRecords(std::exchange(records, {}), subjects, replay); };
  try {
    ForEachGoldenRecord(file, [&](const GoldenRecord& record) {
      if (Stopped()) return;
      records.push_back(record);
      if (records.size() == kAtOnce) replay_them();
    });
  } catch (const InputError&) {
    // The records before the malformed line are judged first.
    replay_them();
    throw;
  }
  replay_them();
}

std::string WhyNothing(const Replay& replay) {
  if (replay.session.totals.cases == 0) return "there was no case";
  if (!replay.skipped.empty()) return replay.skipped.begin()->first;
  return replay.inapplicable.empty() ? "no property applies" : replay.inapplicable;
}

std::string Names(const std::vector<std::unique_ptr<Subject>>& subjects) {
  std::vector<std::string> names;
  for (const auto& subject : subjects) names.emplace_back(subject->name());
  return fmt::format("{}", fmt::join(names, ", "));
}

// Bytes, to say how long the other files will take.
double SizeOf(const std::vector<std::string>& files) {
  double size = 0;
  for (const std::string& file : files) {
    std::error_code error;
    const auto bytes = fs::file_size(file, error);
    if (!error) size += static_cast<double>(bytes);
  }
  return size;
}

int RunReplay(const Options& options) {
  Session session(options);
  std::vector<std::string> files;
  for (const std::string& path : options.paths) {
    for (std::string& file : CaseFilesOf(path)) files.push_back(std::move(file));
  }
  const bool recordings = std::any_of(
      files.begin(), files.end(), [](const std::string& file) { return file.ends_with(".jsonl"); });
  if (!options.property.empty() && recordings) {
    throw InputError(
        "--property: recordings are judged by their conventions, expected case files only");
  }
  if (!options.contract.empty() && recordings && options.subjects.empty()) {
    throw InputError(
        "--contract: recordings are judged by their conventions, expected --subject too");
  }
  if (!options.property.empty() && FindProperty(options.property) == nullptr) {
    throw InputError("--property: unknown property '" + options.property +
                     "' (see qualm list properties)");
  }
  // Cases need a subject. A recording is judged by its convention, and by the subjects that were
  // named.
  session.Open(SubjectNames(options.subjects, {"native@all"}), options.contract);
  const std::vector<Subject*> named =
      options.subjects.empty() ? std::vector<Subject*>{} : session.pointers();
  // A bad file stops the run at once if it is the only file, else after the other files are judged.
  Deferred& deferred = session.deferred;
  std::map<std::string, Case> cases;
  for (const std::string& file : files) {
    if (file.ends_with(".jsonl")) continue;
    deferred.Try([&] { cases.emplace(file, ReadCase(file)); });
  }
  if (files.size() == 1) deferred.Throw();
  if (!options.property.empty()) {
    for (const auto& [file, c] : cases) PropertyOf(options.property, c.op, "--property: " + file);
  }
  if (!options.emit.empty() && (files.size() != 1 || recordings || session.subjects.empty()))
    throw InputError("--emit: takes one case file and a subject, expected no more and no less");
  RequireEmittable(options, files);
  session.Begin(fmt::format("{} files; ", files.size()));

  // Cases that failed once come first, because the author of a fix waits for them.
  std::vector<std::string> first, rest;
  for (std::string& file : files) {
    const auto at = cases.find(file);
    const bool once_failed = at != cases.end() && !at->second.property.empty();
    (once_failed ? first : rest).push_back(std::move(file));
  }
  files = std::move(first);
  files.insert(files.end(), std::make_move_iterator(rest.begin()),
               std::make_move_iterator(rest.end()));
  Replay replay{session, {}, {}, {}, {}, {}, {}, {}, 0, false};
  auto progress = std::make_unique<StepProgress>("replaying: ");
  const double whole = std::max(1.0, SizeOf(files));
  double spent = 0;
  for (const std::string& file : files) {
    if (Stopped()) break;
    progress->At(spent / whole, fmt::format("{} cases, {}", session.totals.cases, ShortPath(file)));
    spent += SizeOf({file});
    const auto at = cases.find(file);
    deferred.Try([&] {
      if (at != cases.end()) {
        ReplayCase(file, at->second, options, replay);
      } else if (file.ends_with(".jsonl")) {
        ReplayGolden(file, named, replay);
      }
    });
  }
  if (files.size() == 1) deferred.Throw();
  if (!options.emit.empty())
    deferred.Try("--emit", [&] { EmitFirst(options, cases.begin()->second, session); });
  progress.reset();

  session.Print("{}", RegressionsText(replay.regressions));
  if (replay.may_hide) {
    session.Print("  The claim that a case file names did not fail this time. {}\n",
                  HiddenFailureText());
  }
  for (const Finding& finding : session.document.findings)
    session.Print("{}", triage::FindingText(finding));
  for (const auto& [state, count] : replay.observed)
    session.Print("  {} observed answer{}: {}\n", count, count == 1 ? "" : "s", state);
  if (!cases.empty() && !session.subjects.empty())
    session.Print("  asked again: {}\n", FewNames(Names(session.subjects)));
  for (const auto& [convention, counts] : replay.golden) {
    if (convention == "-") continue;
    session.Print("  model:{}:", convention);
    for (const auto& [judgement, count] : counts) session.Print(" {} {}", count, judgement);
    session.Print("{}\n",
                  replay.intervals.contains(convention)
                      ? " (an output may be any float32 sum in some order: an interval, not "
                        "one number)"
                      : "");
  }
  for (const auto& [reason, count] : replay.skipped)
    session.Print("  {} skipped: {}\n", count, reason);
  session.Print("{}{}\n", SumsText(replay.sums), TotalsLine(session.totals));
  if (!replay.sums.empty()) session.document.extra.emplace_back("sums", SumsJson(replay.sums));
  session.document.extra.emplace_back("regressions", RegressionsJson(replay.regressions));
  const int status = session.End(WhyNothing(replay));
  // A user who names a subject wants it judged; recorded answers are no substitute.
  if (status != kClean || options.subjects.empty() || recordings || replay.answers > 0 || Stopped())
    return status;
  // What passed, if anything did, is what the files say by themselves.
  TellLine(fmt::format("{} was judged: {}",
                       session.totals.judged() == 0
                           ? "nothing"
                           : "no answer of " + FewNames(Names(session.subjects)),
                       WhyNothing(replay)));
  return kBadInput;
}

}  // namespace

std::vector<std::string> CaseFilesOf(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw InputError(path + ": no such file or folder");
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  std::string at = path;
  for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end;) {
    at = entry->path().string();
    // In the folder of a finding the case is called case.json (docs/ci.md).
    const bool is_case = at.ends_with(".case.json") || entry->path().filename() == "case.json";
    if (is_case || at.ends_with(".jsonl")) files.push_back(at);
    if (IsTemporary(entry->path().filename().string())) entry.disable_recursion_pending();
    entry.increment(error);  // into the folder `at`, if it is one
  }
  if (error) throw InputError(at + ": " + error.message());
  if (files.empty()) {
    throw InputError(path + ": holds no *.case.json and no *.jsonl, expected at least one");
  }
  std::sort(files.begin(), files.end());
  return files;
}

void AddReplay(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(app, run, "replay", "run case files and golden recordings again",
            "Example: qualm replay corpus/golden corpus/regressions");
  verb.Texts("PATH", options->paths, "*.case.json, *.jsonl, or folders of them").Required();
  AddSubjectOption(verb, *options, false);
  verb.Text("--property,-p", options->property, "judge this claim instead of the case's own");
  AddEmitOptions(verb, *options);
  AddOutputOptions(verb, *options);
  AddReportOptions(verb, *options);
  AddContractOption(verb, *options);
  verb.Does([options] { return RunReplay(*options); });
}

}  // namespace qualm::tools
