// SPDX-License-Identifier: Apache-2.0
// qualm audit: the documented cases on every subject, judged against exact; every subject on drawn
// cases, judged against its own contract; one report. A departure from exact that
// adapters/contracts.cc declares is expected; a new one, or a declared one that vanished, is a
// finding.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "core/io/case_json.h"
#include "core/io/result_reader.h"
#include "core/io/short_path.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "properties/property.h"
#include "report/page.h"
#include "tools/blocks.h"
#include "tools/command.h"
#include "tools/findings.h"
#include "tools/progress.h"
#include "tools/repair.h"
#include "tools/report.h"
#include "tools/session.h"
#include "tools/stop.h"
#include "triage/identify.h"
#include "triage/triage.h"
#include "triage/triaged.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kDefaultSubjects{"native@all",
                                                "model:fbgemm@avx2",
                                                "model:fbgemm@vnni",
                                                "model:qnnpack",
                                                "onednn",
                                                "onednn@avx2",
                                                "onednn@sse41",
                                                "xnnpack",
                                                "ggml@haswell",
                                                "gemmlowp",
                                                "gemmlowp@sse4",
                                                "torch@onednn",
                                                "torch@qnnpack",
                                                "torch@fbgemm",
                                                "torch@fbgemm+avx2",
                                                "onnxruntime",
                                                "onnxruntime-web",
                                                "onnxruntime-py",
                                                "tflite",
                                                "tflite@builtin",
                                                "jax",
                                                "iree",
                                                "ncnn",
                                                "mnn",
                                                "ctranslate2",
                                                "tvm",
                                                "tract",
                                                "openvino",
                                                "torchao"};
constexpr std::array<std::string_view, 3> kExactClaims{"matches_exact", "sweep_is_monotone",
                                                       "sweep_is_linear"};

struct Options : CommonOptions {
  KnownOptions known;
  std::string out = "build/report";
  std::string corpus = CorpusFolder();
  double budget = 60;
  uint64_t seed = 1;
  int jobs = 2;
};

struct DocumentedCase {
  std::string file;
  Case c;
};

std::vector<DocumentedCase> DocumentedCases(const std::string& corpus) {
  std::set<std::string> files;
  for (const char* folder : {"forum", "regressions"}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(fs::path(corpus) / folder, error)) {
      if (entry.path().string().ends_with(".case.json")) files.insert(entry.path().string());
    }
  }
  if (files.empty()) throw InputError("--corpus: " + corpus + ": holds no forum/*.case.json");
  std::vector<DocumentedCase> cases;
  for (const std::string& file : files) {
    Case c = ReadCaseFile(file);
    // A regression of another claim (a clamp, memory, earlier questions) is for `replay`: its
    // numbers are no departure that somebody declared.
    const std::string claim = c.property.substr(c.property.find('.') + 1);
    if (claim.empty() || std::ranges::find(kExactClaims, claim) != kExactClaims.end())
      cases.push_back({file, std::move(c)});
  }
  return cases;
}

// The output that somebody's software printed for a documented case, compared with the exact
// answer; and how our own kernels answered ("exact", "not asked", or which ones did not).
JsonValue PrintedJson(const std::string& file, const Case& c, const std::string& ours) {
  const Tensor& printed = c.observed->y;
  const Tensor exact = exact::Evaluate(c);
  int64_t departing = 0;
  double worst_lsb = 0;
  for (int64_t i = 0; i < exact.size(); ++i) {
    if (!exact.SameAt(i, printed)) ++departing;
    worst_lsb = std::max(worst_lsb, DistanceLsb(exact, printed, i));
  }
  return JsonObject{{"case", file},
                    {"printed_by", c.observed->by},
                    {"outputs", exact.size()},
                    {"not_exact", departing},
                    {"worst_lsb", worst_lsb},
                    {"arithmetic", JsonValue::OrNull(triage::BitEqualConventions(c, printed))},
                    {"native", ours}};
}

// The answers of subjects to the documented cases of one operation.
class Answers {
 public:
  void Add(const std::string& file, const std::string& subject, Tensor y) {
    if (std::ranges::find(subjects_, subject) == subjects_.end()) subjects_.push_back(subject);
    cases_[file].emplace(subject, std::move(y));
  }
  // A group for each set of subjects that are bit-equal on every case that two of them answered.
  void WriteGroups(std::string_view op, JsonList& list) const {
    std::vector<std::vector<std::string>> groups;
    for (const std::string& subject : subjects_) {
      const auto fits = std::ranges::find_if(groups, [&](const auto& group) {
        return std::ranges::all_of(
            group, [&](const std::string& other) { return Difference(other, subject).empty(); });
      });
      if (fits == groups.end()) {
        groups.push_back({subject});
      } else {
        fits->push_back(subject);
      }
    }
    for (const auto& group : groups) {
      list.Add(JsonObject{{"op", op},
                          {"subjects", group},
                          {"cases", CasesOf(group.front())},
                          {"witness", Difference(groups.front().front(), group.front())}});
    }
  }

 private:
  int64_t CasesOf(const std::string& subject) const {
    return std::ranges::count_if(cases_,
                                 [&](const auto& row) { return row.second.contains(subject); });
  }
  // The first element in which the two subjects differ; "" if they are bit-equal.
  std::string Difference(const std::string& a, const std::string& b) const {
    for (const auto& [file, answers] : cases_) {
      const auto left = answers.find(a), right = answers.find(b);
      if (left == answers.end() || right == answers.end()) continue;
      if (const auto divergence = FirstDivergence(left->second, right->second)) {
        return fmt::format("{}, output {}: {} is {}, {} is {}", file, divergence->index, a,
                           divergence->expected, b, divergence->actual);
      }
    }
    return "";
  }

  std::vector<std::string> subjects_;                           // in order
  std::map<std::string, std::map<std::string, Tensor>> cases_;  // by file, by subject
};

// One audit: state that its steps add to.
class Audit {
 public:
  // Throws before any file is changed where a subject, a case or an output cannot be had.
  Audit(const Options& options, Session& session)
      : options_(options), session_(session), known_(session.known) {
    cases_ = DocumentedCases(options.corpus);
    RequireWritable(options);
    RequireFolder("--out", options.out);
    names_ = SubjectNames(options.subjects, kDefaultSubjects);
    session.Open(names_, "");
    ReadTheRunBefore();
    ClearFolder();
  }

  size_t documented_cases() const { return cases_.size(); }
  size_t subjects() const { return subjects_.size(); }
  const std::string& effort() const { return effort_; }

  void DocumentedCasesAgainstExact();
  void DeclaredDivergences();
  void DrawnCasesAgainstContracts();
  void ExplainTheDocumented();
  // The remedy of thread 003, on every subject that gets its layer wrong.
  void RepairTheLayerOfTheForum();
  // Writes result.json and the page; returns the first words of the page.
  report::BuiltReport Report();

 private:
  void ClearFolder() const;
  void ReadTheRunBefore();
  std::string FileName(const std::string& path) const { return fs::path(path).filename().string(); }

  // What one subject said of one documented case, judged against exact.
  struct Asked {
    struct Told {
      const Property* property;
      Judgement judgement;
      std::optional<Finding> finding;  // if it failed
    };
    std::vector<Told> told;
    std::optional<Tensor> y;
  };
  static Asked Ask(const DocumentedCase& documented, Subject& subject);
  // By subject, then by case. A list that was stopped is shorter.
  std::vector<std::vector<Asked>> AskEverySubject();
  // act(place in subjects_) for each subject, several at a time, each on one thread. Throws what an
  // act throws.
  void WithEverySubject(const std::function<void(size_t)>& act);

  // How our own kernels answered a documented case.
  struct OurAnswer {
    bool judged = false;
    std::vector<std::string> not_exact;  // subjects
  };

  // Counts and keeps a finding whose cause is known; returns its judgement.
  Judgement Take(Finding finding) {
    const Judgement judgement = known_.IsNew(finding) ? Judgement::kFailed : Judgement::kExpected;
    totals_.Add(judgement);
    findings_.push_back(std::move(finding));
    return judgement;
  }

  const Options& options_;
  Session& session_;
  const KnownFindings& known_;
  const std::vector<std::unique_ptr<Subject>>& subjects_ = session_.subjects;
  Totals& totals_ = session_.totals;
  std::vector<Finding>& findings_ = session_.document.findings;
  std::vector<std::string> names_;
  std::vector<DocumentedCase> cases_;
  std::map<std::string, OurAnswer> our_answers_;  // by file
  std::map<Op, Answers> answers_;
  std::map<std::pair<std::string, std::string>, Totals> squares_;  // subject, operation
  HazardCoverage coverage_;
  JsonList declared_;
  std::optional<ResultRecord> before_;  // the run that this folder held
  std::string effort_;                  // of triage, for people
};

// A report describes one run, so the files of an earlier report are deleted; but only in a folder
// that the marker shows to be the work of an audit.
void Audit::ClearFolder() const {
  const fs::path out(options_.out), findings = out / "findings", marker = out / ".qualm-audit";
  const fs::path sections = out / "sections";  // of reports before version 0.2
  std::error_code error;
  if (!fs::exists(marker, error)) {
    for (const fs::path& mine : {sections, findings, out / "index.html", out / "result.json"}) {
      if (!fs::exists(fs::symlink_status(mine, error))) continue;
      throw InputError("--out: " + mine.string() +
                       " is there and not from qualm audit, expected another folder");
    }
    MakeFolder("--out", out.string());
    WriteTextFile(marker.string(),
                  "Made by qualm audit, which deletes findings/ and sections/ here, and writes "
                  "index.html and result.json, when it runs again.\n");
  }
  // Held until this process ends, however it does.
  const int lock = open(marker.c_str(), O_RDONLY | O_CLOEXEC);
  if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw InputError("--out: " + out.string() +
                     " is in use by another audit, expected another folder");
  }
  RemoveTemporaries(out.string());
  for (const fs::path& folder : {sections, findings}) {
    RemoveFolder(folder.string());
    if (fs::exists(fs::symlink_status(folder, error)))
      throw InputError("--out: cannot delete " + folder.string());
  }
}

void Audit::ReadTheRunBefore() {
  if (fs::exists(fs::path(options_.out) / ".qualm-audit")) before_ = RunBefore(options_.out);
}

Audit::Asked Audit::Ask(const DocumentedCase& documented, Subject& subject) {
  Asked asked;
  const Case& c = documented.c;
  const Contracts own = subject.contracts();
  subject.set_contract({});  // judges whether the number is right
  MemoSubject memo(subject);
  for (std::string_view claim : kExactClaims) {
    JudgeAll(c, memo, claim, [&](const Property& property, Verdict verdict) {
      std::optional<Finding> finding;
      if (verdict.failed())
        finding = FindingOf(c, property, memo, verdict, documented.file, own.of(c.op));
      asked.told.push_back({&property, verdict.judgement, std::move(finding)});
      return true;
    });
  }
  if (subject.CannotRun(c).empty()) {
    Outcome outcome = memo.Run(c, RunContext{});
    if (outcome.ok()) asked.y = std::move(outcome.y);
  }
  subject.set_contracts(own);
  return asked;
}

std::vector<std::vector<Audit::Asked>> Audit::AskEverySubject() {
  std::vector<std::vector<Asked>> answers(subjects_.size());
  Progress progress("documented cases: ", 0, "questions");
  const auto all = static_cast<int64_t>(cases_.size() * subjects_.size());
  std::atomic<int64_t> done = 0;
  WithEverySubject([&](size_t s) {
    for (const DocumentedCase& documented : cases_) {
      if (Stopped()) return;
      progress(done++, all);
      answers[s].push_back(Ask(documented, *subjects_[s]));
    }
  });
  return answers;
}

void Audit::WithEverySubject(const std::function<void(size_t)>& act) {
  std::atomic<size_t> next = 0;
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (size_t s = next++; s < subjects_.size(); s = next++) act(s);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      error = std::current_exception();
      next = subjects_.size();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int job = 1; job < options_.jobs; ++job) threads.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

void Audit::DocumentedCasesAgainstExact() {
  std::vector<std::vector<Asked>> answers = AskEverySubject();
  JsonList printed;
  for (size_t i = 0; i < cases_.size(); ++i) {
    const DocumentedCase& documented = cases_[i];
    const Case& c = documented.c;
    bool any = false;
    for (size_t s = 0; s < subjects_.size(); ++s) {
      if (i >= answers[s].size()) continue;  // stopped before
      any = true;
      Asked& asked = answers[s][i];
      const std::string name(subjects_[s]->name());
      Totals& square = squares_[{name, std::string(Name(c.op))}];
      for (auto& [property, judgement, finding] : asked.told) {
        if (property->claim == "matches_exact" && name.starts_with("native")) {
          OurAnswer& answer = our_answers_[documented.file];
          answer.judged |= finding || judgement == Judgement::kPassed;
          if (finding) answer.not_exact.push_back(name);
        }
        if (finding) {
          judgement = Take(*std::move(finding));
        } else {
          totals_.Add(judgement);
        }
        square.Add(judgement);
      }
      if (asked.y) answers_[c.op].Add(FileName(documented.file), name, *std::move(asked.y));
    }
    if (!any) break;
    ++totals_.cases;
    if (!c.observed || fs::path(documented.file).parent_path().filename() != "forum") continue;
    const OurAnswer& ours = our_answers_[documented.file];
    printed.Add(PrintedJson(FileName(documented.file), c,
                            !ours.judged ? "not asked"
                            : ours.not_exact.empty()
                                ? "exact"
                                : fmt::format("NOT exact: {}", fmt::join(ours.not_exact, ", "))));
  }
  session_.document.extra.emplace_back("printed", printed);
}

void Audit::DeclaredDivergences() {
  for (const ExpectedDivergence& row : SubjectRegistry::Get().expected()) {
    const Subject* named = nullptr;
    for (const auto& subject : subjects_) {
      if (subject->name() == row.subject) named = subject.get();
    }
    // Only these claims are judged on documented cases, so rows about other claims cannot vanish
    // there. No row can vanish if the run was stopped before it came to all cases.
    if (Stopped() ||
        std::find(kExactClaims.begin(), kExactClaims.end(), row.property) == kExactClaims.end())
      named = nullptr;
    std::string state = "not judged (on documented cases)";
    if (named != nullptr) {
      const bool seen =
          std::any_of(findings_.begin(), findings_.end(), [&](const Finding& finding) {
            return finding.subject == row.subject && finding.op == row.op &&
                   finding.property == row.property &&
                   (row.kind == "*" || row.kind == Name(finding.kind));
          });
      state = seen ? "seen, as declared" : "VANISHED";
      if (!seen) {
        // The claim has a name of its own: to know of the departure is not to know that it is gone.
        Take(Finding(row.op, row.property + ".vanished-" + row.kind, row.subject,
                     Verdict::Failed("declared in adapters/contracts.cc (" + row.kind +
                                     ") but not seen on any documented case: " + row.reason)));
      }
    }
    declared_.Add(JsonObject{{"subject", row.subject},
                             {"op", row.op},
                             {"claim", row.property},
                             {"kind", row.kind},
                             {"state", state},
                             {"reason", row.reason}});
  }
}

// Shows in the report one small case of each fault that only documented cases show: a regression,
// which is as small as a case of its fault gets, else what is made of another case.
void Audit::ExplainTheDocumented() {
  const auto is_regression = [](const Finding& finding) {
    return fs::path(finding.case_file).parent_path().filename() == "regressions";
  };
  std::map<std::tuple<std::string, std::string, FindingKind>, const Finding*> shown;
  for (const Finding& finding : findings_) {
    if (finding.property != "matches_exact") continue;
    const std::string family = finding.subject.substr(0, finding.subject.find('@'));
    const Finding*& chosen = shown[{family, finding.op, finding.kind}];
    if (chosen == nullptr || (is_regression(finding) && !is_regression(*chosen))) chosen = &finding;
  }
  const fs::path folder = fs::path(options_.out) / "findings";
  Progress progress("smallest cases: ", 0, "findings");
  std::atomic<int64_t> done = 0;
  const auto explain = [&](const Finding& finding, Subject& asked, const Contract& promised) {
    progress(done++, static_cast<int64_t>(shown.size()));
    const fs::path place = folder / finding.fingerprint();
    if (fs::exists(place)) return;
    std::optional<OfItsConvention> kept;
    if (KeepsTo(promised, finding.test_case, asked)) kept.emplace(asked);
    Subject& subject = kept ? *kept : asked;
    const triage::MinimizeResult small =
        triage::Minimize(finding.test_case, subject, *FindProperty("matches_exact"),
                         {.max_calls = is_regression(finding) ? 20 : 2000, .stop = Stopped});
    if (!small.reproduced) return;
    MakeFolder("--out", folder.string());
    Case found = finding.test_case;
    found.contract = small.minimized.contract;
    WriteFolder(place.string(),
                {{"case.json", CaseToJson(found)},
                 {"minimized.case.json", CaseToJson(small.minimized)},
                 {"explanation.txt",
                  triage::FindingText(finding) + triage::Explain(small.minimized, {&subject})}});
  };
  WithEverySubject([&](size_t s) {
    Subject& subject = *subjects_[s];
    const Contracts own = subject.contracts();
    subject.set_contract({});
    for (const auto& [fault, finding] : shown) {
      if (!Stopped() && finding->subject == subject.name())
        explain(*finding, subject, own.of(finding->test_case.op));
    }
    subject.set_contracts(own);
  });
}

void Audit::RepairTheLayerOfTheForum() {
  const auto documented = std::ranges::find_if(cases_, [&](const DocumentedCase& one) {
    return FileName(one.file) == "003-conv1.case.json";
  });
  if (documented == cases_.end() || Stopped()) return;
  const Case& layer = documented->c;
  const proofs::Codes x = proofs::WithPadding(layer, {0, 255});
  const proofs::Scheme scheme = proofs::SchemeOf("fbgemm@avx2", layer);
  const std::vector<proofs::Remedy> remedies = proofs::Repair(layer, scheme, x);
  const proofs::Remedy* const taken = Chosen(remedies);
  JsonList tried;
  for (const auto& subject : subjects_) {
    if (taken == nullptr) break;
    // A remedy is one against saturating pairs: with it, who rounds otherwise still does.
    const Convention* const own = FindConvention(subject->contract(layer.op).convention);
    if (own != nullptr && !own->pair_saturates) continue;
    constexpr int64_t kRows = 256;
    for (const Comparison& comparison : Compare(layer, *taken, x, kRows, options_.seed, *subject)) {
      if (comparison.wrong_before.value_or(0) == 0 || !comparison.wrong_after) continue;
      tried.Add(comparison.Json(*subject));
      if (*comparison.wrong_after == 0) {
        totals_.Add(Judgement::kPassed);
        continue;
      }
      Take(Finding(comparison.after, "repaired_is_exact", subject->name(),
                   Verdict::Failed(fmt::format("{}: {} of {} outputs are not exact", taken->name,
                                               *comparison.wrong_after, comparison.outputs)),
                   documented->file));
    }
  }
  session_.document.extra.emplace_back(
      "repair",
      JsonList().Add(RepairJson(FileName(documented->file), scheme, x, remedies, taken, tried)));
}

void Audit::DrawnCasesAgainstContracts() {
  CheckOptions check;
  check.subjects = names_;
  check.seed = options_.seed;
  check.seconds = options_.budget;
  check.jobs = options_.jobs;
  Progress progress("drawn cases: ", options_.budget);
  check.progress = [&](int64_t done, int64_t all) { progress(done, all); };
  FindingsFolder folder(options_.out);
  folder.Connect(check, known_);
  CheckResult result = Check(check);
  std::vector<Finding> found =
      folder.Triage(std::move(result.findings), "", known_, session_.deferred, Stopped);
  known_.CountAsExpected(found, result);
  session_.document.extra.emplace_back(
      "faults", FaultsJson(FaultsOf(found, folder.diagnoses(), known_, result), found));
  session_.document.extra.emplace_back("triage", folder.effort().Json());
  effort_ = folder.effort().Sentence();
  for (Finding& finding : found) findings_.push_back(std::move(finding));
  totals_.Merge(result.totals);

  for (const auto& [square, totals] : result.by_square) squares_[square].Merge(totals);
  coverage_ = std::move(result.coverage);
}

report::BuiltReport Audit::Report() {
  auto& extra = session_.document.extra;
  extra.emplace_back("run", RunJson());
  extra.emplace_back("verdicts", VerdictsJson(squares_));
  extra.emplace_back("hazards", HazardJson(coverage_));
  extra.emplace_back("declared", declared_);
  JsonList agreement;
  for (const auto& [op, answers] : answers_) answers.WriteGroups(Name(op), agreement);
  extra.emplace_back("agreement", agreement);
  if (before_) extra.emplace_back("since", ChangeJson(*before_, findings_));
  session_.Complete();
  return WriteReport(options_.out, session_.document, before_);
}

int RunAudit(const Options& options) {
  Session session(options);
  session.known = KnownFindings(options.known);
  Audit audit(options, session);
  session.Begin(fmt::format("seed {}; ", options.seed), options.seed);
  Tell("{} documented cases on {} subjects, then {:.0f} s of drawn cases, then what they found",
       audit.documented_cases(), audit.subjects(), options.budget);
  audit.DocumentedCasesAgainstExact();
  audit.DeclaredDivergences();
  Tell("documented cases done, {:.0f} s; drawing cases for {:.0f} s", session.stopwatch.seconds(),
       options.budget);
  audit.DrawnCasesAgainstContracts();
  audit.ExplainTheDocumented();
  audit.RepairTheLayerOfTheForum();
  const std::vector<Finding>& findings = session.document.findings;
  session.known.TellUnmatched(findings);
  report::BuiltReport built;
  session.deferred.Try([&] { built = audit.Report(); });

  for (const Finding& finding : findings) {
    if (session.known.IsNew(finding)) session.Print("{}", session.known.Text(finding));
  }
  session.Print("{}{}\n", audit.effort(), TotalsLine(session.totals));
  if (!built.path.empty()) {
    session.Print("report: {}\n{}{}\n", ShortPath(built.path), built.verdict,
                  built.verdict.ends_with("by reason") ? " in the report" : "");
  }
  return session.End("");
}

}  // namespace

void AddAudit(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(app, run, "audit",
            "the documented cases, every subject under its contract, and one report",
            "Example: qualm audit --budget 60s --out build/report");
  AddSubjectOption(verb, *options, false);
  AddOutputOptions(verb, *options);
  verb.Duration("--budget", options->budget, "time for drawn cases, e.g. 60s, 10m");
  verb.Seed(options->seed);
  verb.Integer("--jobs,-j", options->jobs, 1, 256, "threads");
  verb.Text("--out", options->out, "folder of the report");
  AddKnownOptions(verb, options->known);
  verb.Text("--corpus", options->corpus, "folder that holds forum/ and regressions/");
  verb.Does([options] { return RunAudit(*options); });
}

}  // namespace qualm::tools
