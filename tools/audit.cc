// SPDX-License-Identifier: Apache-2.0
// qualm audit: the documented cases on every subject, judged against exact; every subject on drawn
// cases, judged against its own contract; one report. A departure from exact that
// adapters/contracts.cc declares is expected; a new one, or a declared one that vanished, is a
// finding.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>

#include "core/executable.h"
#include "core/io/case_json.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "oracles/exact/exact.h"
#include "proofs/certify.h"
#include "proofs/repair.h"
#include "properties/property.h"
#include "properties/sweep.h"
#include "tools/command.h"
#include "tools/findings.h"
#include "tools/plot.h"
#include "tools/repair.h"
#include "tools/report.h"
#include "tools/session.h"
#include "tools/stop.h"
#include "triage/triage.h"
#include "triage/triaged.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kDefaultSubjects{
    "native@all", "model:fbgemm@avx2", "model:fbgemm@vnni", "model:qnnpack",
    "onednn",     "onednn@avx2",       "onednn@sse41"};
constexpr std::array<std::string_view, 3> kExactClaims{"matches_exact", "sweep_is_monotone",
                                                       "sweep_is_linear"};

struct Options : CommonOptions {
  KnownOptions known;
  std::string out = "build/report";
  std::string corpus = InstalledData("corpus", QUALM_CORPUS_DIR);
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
  for (const std::string& file : files) cases.push_back({file, ReadCaseFile(file)});
  return cases;
}

// What somebody's software printed for a documented case, beside the exact answer: how far off it
// is, whose arithmetic gives exactly that, and why the two differ.
struct PrintedAnswer {
  int64_t outputs = 0;
  int64_t departing = 0;    // outputs that are not the exact ones
  double worst_lsb = 0;     // the largest distance among them
  std::string conventions;  // that give every output; "" if no known one does
  std::string why;          // one paragraph
};

PrintedAnswer LookAtPrinted(const Case& c) {
  PrintedAnswer answer;
  const Tensor& printed = c.observed->y;
  const Tensor exact = exact::Evaluate(c);
  answer.outputs = exact.size();
  answer.conventions = triage::BitEqualConventions(c, printed);
  const auto first = FirstDivergence(exact, printed);
  for (int64_t i = 0; i < exact.size(); ++i) {
    if (exact.BitsAt(i) != printed.BitsAt(i)) ++answer.departing;
    answer.worst_lsb = std::max(answer.worst_lsb, DistanceLsb(exact, printed, i));
  }

  answer.why = c.note + " ";
  if (!first) {
    answer.why += fmt::format("Every output that {} printed is the exact one", c.observed->by);
  } else {
    answer.why += fmt::format(
        "{} of the {} outputs of {} are not the exact ones, by up to {:.15g} lsb; the first, at "
        "index {}, should be {} and is {}",
        answer.departing, answer.outputs, c.observed->by, answer.worst_lsb, first->index,
        first->expected, first->actual);
  }
  answer.why += answer.conventions.empty()
                    ? ". No known convention gives what was printed."
                    : fmt::format(". What was printed is, bit for bit, the arithmetic of {}.",
                                  answer.conventions);
  if (first) {
    const triage::Attribution cause = triage::Attribute(c, printed);
    answer.why += fmt::format(" Cause: {}.", cause.diagnosis);
  }
  return answer;
}

// One audit: state that its steps add to.
class Audit {
 public:
  // Throws before any file is changed where a subject, a case or an output cannot be had.
  Audit(const Options& options, Session& session)
      : options_(options),
        session_(session),
        sections_(fs::path(options.out) / "sections"),
        names_(SubjectNames(options.subjects, kDefaultSubjects)) {
    session.Open(names_, "");
    cases_ = DocumentedCases(options.corpus);
    RequireWritable(options);
    ClearFolder();
  }

  void DocumentedCasesAgainstExact();
  void PrintedAnswers();
  void DeclaredDivergences();
  void Sweep();
  void Explanations();
  void Repairs();
  void DrawnCasesAgainstContracts();
  void Summary();

 private:
  void ClearFolder() const;
  void Write(const std::string& stem, const std::string& extension, const std::string& text) {
    WriteTextFile((sections_ / (stem + extension)).string(), text);
  }
  std::string FileName(const std::string& path) const { return fs::path(path).filename().string(); }

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
  const KnownFindings& known_ = session_.known;
  const std::vector<std::unique_ptr<Subject>>& subjects_ = session_.subjects;
  Totals& totals_ = session_.totals;
  std::vector<Finding>& findings_ = session_.document.findings;
  fs::path sections_;
  std::vector<std::string> names_;
  std::vector<DocumentedCase> cases_;
  std::map<std::string, OurAnswer> our_answers_;  // by file
};

// A report describes one run, so the files of an earlier report are deleted; but only in a folder
// that the marker shows to be the work of an audit.
void Audit::ClearFolder() const {
  const fs::path out(options_.out), findings = out / "findings", marker = out / ".qualm-audit";
  std::error_code error;
  if (!fs::exists(marker, error)) {
    for (const fs::path& mine : {sections_, findings, out / "index.html", out / "result.json"}) {
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
  for (const fs::path& folder : {sections_, findings}) {
    RemoveFolder(folder.string());
    if (fs::exists(fs::symlink_status(folder, error)))
      throw InputError("--out: cannot delete " + folder.string());
  }
  MakeFolder("--out", sections_.string());
}

void Audit::DocumentedCasesAgainstExact() {
  std::string table = "case\tsubject\tclaim\tverdict\tcause\n";
  for (const DocumentedCase& documented : cases_) {
    if (Stopped()) break;
    ++totals_.cases;
    for (const auto& subject : subjects_) {
      const Contract own = subject->contract();
      subject->set_contract({});  // is this number right?
      MemoSubject memo(*subject);
      const auto take = [&](const Property& property, const Verdict& verdict) {
        if (property.claim == "matches_exact" && subject->name().starts_with("native")) {
          OurAnswer& answer = our_answers_[documented.file];
          answer.judged |= verdict.failed() || verdict.judgement == Judgement::kPassed;
          if (verdict.failed()) answer.not_exact.emplace_back(subject->name());
        }
        std::string shown(Name(verdict.judgement)), cause = verdict.reason;
        if (verdict.failed()) {
          Finding finding = FindingOf(documented.c, property, memo, verdict, documented.file, own);
          cause = fmt::format("{}: {}", Name(finding.kind), finding.explanation);
          shown = Name(Take(std::move(finding)));
        } else {
          totals_.Add(verdict.judgement);
        }
        table += fmt::format("{}\t{}\t{}\t{}\t{}\n", FileName(documented.file), subject->name(),
                             property.claim, shown, cause);
        return true;
      };
      for (std::string_view claim : kExactClaims) JudgeAll(documented.c, memo, claim, take);
      subject->set_contract(own);
    }
  }
  Write("60-documented", ".txt",
        "Documented cases, judged against the exact result\nEvery subject on every case of "
        "corpus/forum and corpus/regressions.");
  Write("60-documented", ".tsv", table);
}

void Audit::PrintedAnswers() {
  std::string table =
      "case\tprinted by\toutputs\tnot exact\tworst, lsb\tits arithmetic\tour kernels\n";
  std::string text = "What the libraries printed, and why it differs\n";
  for (const DocumentedCase& documented : cases_) {
    if (!documented.c.observed || fs::path(documented.file).parent_path().filename() != "forum")
      continue;
    const PrintedAnswer answer = LookAtPrinted(documented.c);
    const OurAnswer& ours = our_answers_[documented.file];
    std::string verdict = ours.judged ? "exact" : "not asked";
    if (!ours.not_exact.empty())
      verdict = fmt::format("NOT exact: {}", fmt::join(ours.not_exact, ", "));
    table += fmt::format(
        "{}\t{}\t{}\t{}\t{:.15g}\t{}\t{}\n", FileName(documented.file), documented.c.observed->by,
        answer.outputs, answer.departing, answer.worst_lsb,
        answer.conventions.empty() ? "no known convention" : answer.conventions, verdict);
    text += fmt::format("\n{}\n{}\n", FileName(documented.file), answer.why);
  }
  Write("15-printed", ".txt", text);
  Write("15-printed", ".tsv", table);
}

void Audit::DeclaredDivergences() {
  std::string table = "subject\top\tclaim\tcause\tstate\treason\n";
  for (const ExpectedDivergence& row : SubjectRegistry::Get().expected()) {
    const Subject* named = nullptr;
    for (const auto& subject : subjects_) {
      if (subject->name() == row.subject) named = subject.get();
    }
    // Documented cases are judged by these claims only: other rows cannot vanish there. Nor can any
    // where the run was stopped before it came to all cases.
    if (Stopped() ||
        std::find(kExactClaims.begin(), kExactClaims.end(), row.property) == kExactClaims.end())
      named = nullptr;
    std::string state = "not judged (on documented cases)";
    if (named != nullptr) {
      const bool seen =
          std::any_of(findings_.begin(), findings_.end(), [&](const Finding& finding) {
            return finding.subject == row.subject && finding.op == row.op &&
                   finding.property == row.property && row.kind == Name(finding.kind);
          });
      state = seen ? "seen, as declared" : "VANISHED";
      if (!seen) {
        // A claim of its own: who knows of the departure does not know that it is gone.
        Take(Finding(row.op, row.property + ".vanished-" + row.kind, row.subject,
                     Verdict::Failed("declared in adapters/contracts.cc (" + row.kind +
                                     ") but not seen on any documented case: " + row.reason)));
      }
    }
    table += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\n", row.subject, row.op, row.property, row.kind,
                         state, row.reason);
  }
  Write("50-declared", ".txt",
        "Declared divergences\nDepartures from exact that are known. One that vanishes is a "
        "finding too.");
  Write("50-declared", ".tsv", table);
}

void Audit::Sweep() {
  for (const DocumentedCase& documented : cases_) {
    if (!documented.file.ends_with("-sweep.case.json")) continue;
    const CodeRange range = RangeOf(documented.c.x.dtype());
    const std::vector<int32_t> codes = sweep::Codes(documented.c, range.min, range.max, 1);
    std::vector<sweep::Result> results;
    for (const auto& subject : subjects_)
      results.push_back(sweep::Run(documented.c, *subject, codes));
    std::string text = "The sweep: every input element set to the same code\n" + documented.c.note +
                       "\nGrey: exact. Each red mark: the last code up to which a "
                       "pair of products still fits int16; grey marks are latent.\n\n";
    for (const sweep::Result& result : results) text += SweepSummary(result);
    Write("20-sweep", ".txt", text);
    if (std::ranges::all_of(results, [](const auto& result) { return result.curves.empty(); })) {
      Tell("no subject could run the sweep of {}: it is not drawn", documented.file);
      continue;
    }
    try {
      Write("20-sweep", ".svg", SweepSvg(documented.c, results));
    } catch (const Unavailable& error) {
      Tell("{}", error.what());
    }
  }
}

void Audit::Explanations() {
  // The bug in its smallest form, for each subject that has it.
  std::string text = "A two-element reproducer, found and minimized in this run\n";
  bool any = false;
  std::set<std::string> done;
  for (const Finding& finding : findings_) {
    if (finding.kind != FindingKind::kPairSaturation || finding.property != "matches_exact" ||
        !done.insert(finding.subject).second)
      continue;
    const auto subject = std::move(MakeSubjects({finding.subject}, "exact").front());
    const triage::MinimizeResult small =
        triage::Minimize(finding.test_case, *subject, *FindProperty("matches_exact"),
                         {.max_calls = 2000, .stop = Stopped});
    if (!small.reproduced) continue;
    any = true;
    text += fmt::format("\n{}: from {} to {}, {} subject calls\n{}", finding.subject,
                        Describe(finding.test_case), Describe(small.minimized), small.calls,
                        triage::Explain(small.minimized, {subject.get()}));
    const fs::path folder = fs::path(options_.out) / "findings" / finding.fingerprint();
    MakeFolder("--out", folder.parent_path().string());
    WriteFolder(folder.string(),
                {{"case.json", CaseToJson(finding.test_case)},
                 {"minimized.case.json", CaseToJson(small.minimized)},
                 {"explanation.txt", triage::FindingText(finding) +
                                         triage::Explain(small.minimized, {subject.get()})}});
  }
  if (any) Write("30-reproducer", ".txt", text);

  std::string why = "The documented cases, explained\n";
  for (const DocumentedCase& documented : cases_) {
    why += fmt::format("\n{}\n{}\n{}", FileName(documented.file), documented.c.note,
                       triage::Explain(documented.c, {}));
  }
  Write("40-explained", ".txt", why);
}

// Thread 003 asks for fixes beyond reduce_range.
void Audit::Repairs() {
  std::string text = "Thread 003: are there fixes beyond reduce_range?\n";
  for (const DocumentedCase& documented : cases_) {
    if (!FileName(documented.file).starts_with("003")) continue;
    const proofs::Codes x = proofs::WithPadding(documented.c, {0, 255});
    for (const proofs::Scheme& scheme : proofs::SchemesOfConventions(documented.c)) {
      const proofs::Proof proof = proofs::Certify(documented.c, scheme, x);
      text +=
          fmt::format("\n{}, products added as {} adds them: {} of {} channels can saturate\n",
                      FileName(documented.file), scheme.name, proof.unsafe.size(), proof.channels);
      if (proof.safe()) continue;
      const std::vector<proofs::Remedy> remedies = proofs::Repair(documented.c, scheme, x);
      for (const proofs::Remedy& remedy : remedies) text += RemedyText(remedy);
      const proofs::Remedy& best = remedies.front();
      if (!best.exact) continue;
      for (const auto& subject : subjects_) {
        for (const Comparison& comparison :
             Compare(documented.c, best, x, 256, options_.seed, *subject)) {
          if (comparison.wrong_before.value_or(0) == 0) continue;  // exact, or cannot run it
          text += fmt::format("    {} by {}\n", comparison.Text(*subject), best.name);
        }
      }
    }
  }
  Write("35-repair", ".txt", text);
}

void Audit::DrawnCasesAgainstContracts() {
  CheckOptions check;
  check.subjects = names_;
  check.seed = options_.seed;
  check.seconds = options_.budget;
  check.jobs = options_.jobs;
  FindingsFolder folder(options_.out);
  folder.Connect(check);
  CheckResult result = Check(check);
  std::vector<Finding> found =
      folder.Triage(std::move(result.findings), "", known_, session_.deferred, Stopped);
  known_.CountAsExpected(found, result);
  for (Finding& finding : found) findings_.push_back(std::move(finding));
  totals_.Merge(result.totals);

  std::string table =
      "subject\tversion\tcontract\tpassed\tfailed\tskipped\tvacuous\tnot applicable\n";
  for (const auto& subject : subjects_) {
    const Totals& t = result.by_subject[std::string(subject->name())];
    table += fmt::format(
        "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", subject->name(),
        subject->Version().empty() ? subject->InstructionSet() : subject->Version(),
        subject->contract().text(), t.of(Judgement::kPassed), t.of(Judgement::kFailed),
        t.of(Judgement::kSkipped), t.of(Judgement::kVacuous), t.of(Judgement::kNotApplicable));
  }
  Write(
      "70-contracts", ".txt",
      fmt::format("Drawn cases, judged against each subject's own contract\n{} cases from seed {}.",
                  result.totals.cases, options_.seed));
  Write("70-contracts", ".tsv", table);

  std::string hazards = "op\tinstruction set\tcases judged\thazard\tshare\n";
  for (const auto& [key, row] : result.coverage.rows()) {
    for (const auto& [hazard, count] : row.reached) {
      hazards += fmt::format("{}\t{}\t{}\t{}\t{:.2f} %\n", Name(key.first), key.second, row.cases,
                             Name(hazard),
                             100.0 * static_cast<double>(count) / static_cast<double>(row.cases));
    }
  }
  Write(
      "80-hazards", ".txt",
      "Hazard coverage\nShare of the judged cases that reached the places where kernels go wrong.");
  Write("80-hazards", ".tsv", hazards);
}

void Audit::Summary() {
  int64_t fresh = 0, expected = 0, known = 0;
  for (const Finding& finding : findings_) {
    ++(known_.IsNew(finding) ? fresh : finding.expected_by_contract ? expected : known);
  }
  std::string text = fmt::format(
      "Summary\n{} new findings, {} expected by contract{}\n{}\n\n", fresh, expected,
      known > 0 ? fmt::format(", {} known or suppressed", known) : "", TotalsLine(totals_));
  for (bool wanted : {true, false}) {
    for (const Finding& finding : findings_) {
      if (finding.expected_by_contract == wanted) text += known_.Text(finding);
    }
  }
  Write("10-summary", ".txt", text);
}

int RunAudit(const Options& options) {
  Session session(options);
  session.known = KnownFindings(options.known);
  Audit audit(options, session);
  session.Begin(fmt::format("seed {}; ", options.seed), options.seed);
  audit.DocumentedCasesAgainstExact();
  audit.PrintedAnswers();
  audit.DeclaredDivergences();
  audit.Sweep();
  audit.Explanations();
  audit.Repairs();
  Tell("documented cases done, {:.0f} s; drawing cases for {:.0f} s", session.stopwatch.seconds(),
       options.budget);
  audit.DrawnCasesAgainstContracts();
  audit.Summary();
  const std::vector<Finding>& findings = session.document.findings;
  session.known.TellUnmatched(findings);
  const std::string page = BuildReport(options.out);

  for (const Finding& finding : findings) session.Print("{}", session.known.Text(finding));
  session.Print("{}\nreport: {}\n", TotalsLine(session.totals), page);
  return session.End("", (fs::path(options.out) / "result.json").string());
}

}  // namespace

void AddAudit(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "audit", "the documented cases, every subject under its contract, and one report");
  verb->footer("Example: qualm audit --budget 60s --out build/report");
  AddSubjectOption(*verb, *options, false);
  AddOutputOptions(*verb, *options);
  AddDuration(*verb, "--budget", options->budget, "time for drawn cases, e.g. 60s, 10m");
  AddSeed(*verb, options->seed);
  AddInteger(*verb, "--jobs,-j", options->jobs, 1, 256, "threads");
  verb->add_option("--out", options->out, "folder of the report")->check(NotEmpty);
  AddKnownOptions(*verb, options->known);
  verb->add_option("--corpus", options->corpus, "folder that holds forum/ and regressions/")
      ->check(NotEmpty);
  verb->callback([options, run] { *run = [options] { return RunAudit(*options); }; });
}

}  // namespace qualm::tools
