// SPDX-License-Identifier: Apache-2.0
// qualm fuzz: a campaign of a fuzzing engine on every named operation and subject.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "campaign/driver.h"
#include "campaign/engine.h"
#include "campaign/merge.h"
#include "campaign/state.h"
#include "core/content_name.h"
#include "core/executable.h"
#include "core/io/case_json.h"
#include "core/io/fault_row.h"
#include "core/io/json_writer.h"
#include "core/io/result_reader.h"
#include "core/io/short_path.h"
#include "core/rng.h"
#include "core/status.h"
#include "fuzz/case_codec.h"
#include "properties/adapt.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "tools/blocks.h"
#include "tools/command.h"
#include "tools/fuzz_status.h"
#include "tools/ops.h"
#include "tools/regressions.h"
#include "tools/report.h"
#include "tools/session.h"
#include "tools/shard.h"
#include "tools/stop.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;
using campaign::Aim;
using campaign::State;

struct Options : CommonOptions {
  KnownOptions known;
  OpWords ops;
  std::string property_glob = "*";
  std::vector<std::string> skip;  // globs
  double seconds = 0;
  int64_t runs = 0;
  int jobs = 1;
  uint64_t seed = 1;
  std::string shard, engine;
  std::string state = "qualm-campaign";
  std::vector<std::string> from_corpus;
  std::string to_corpus;
  bool no_canary = false;
};

constexpr double kStandardSeconds = 600;

std::vector<Op> OpsToFuzz(const Options& options) {
  CheckOptions about;
  about.property_glob = options.property_glob;
  about.ops = OpsOf(options.ops);
  return DrawnOps(about);
}

// Why no subject takes a case of this operation, not even an adapted one; "" if one does.
std::string WhyIdle(Op op, const std::vector<std::unique_ptr<Subject>>& subjects) {
  constexpr int kDraws = 64;
  std::string why;
  for (int64_t i = 0; i < kDraws; ++i) {
    const Case c = gen::Draw(op, CaseSeed(1, op, i));
    for (const auto& subject : subjects) {
      if (TakenBy(*subject, c)) return "";
      if (why.empty()) why = WhyNot(*subject, c);
    }
  }
  return why;
}

// Each operation on each subject that has it. Naming an operation that nobody has is a mistake.
std::vector<Aim> AimsOf(const Options& options) {
  const std::vector<Op> ops = OpsToFuzz(options);
  std::vector<Aim> aims;
  std::vector<std::string> left_out;
  std::string why;
  for (const std::string& pattern : options.subjects) {
    const auto subjects = MakeSubjects(SubjectRegistry::Get().Expand(pattern), options.contract);
    for (const Op op : ops) {
      why = WhyIdle(op, subjects);
      if (why.empty()) {
        aims.push_back({op, pattern, options.contract, options.property_glob});
      } else if (!options.ops.empty()) {
        left_out.push_back(fmt::format("left out: {} on {}: {}", Name(op), pattern, why));
      }
    }
  }
  if (aims.empty()) throw InputError("nothing would be judged: " + why);
  for (const std::string& line : left_out) TellLine(line);
  return aims;
}

// Cases as inputs, and the inputs of other campaigns. A case that is too large for an input is
// counted.
void AddCases(const Options& options, const State& state) {
  int64_t added = 0, too_large = 0;
  for (const std::string& path : options.from_corpus) {
    if (campaign::IsState(path)) {
      campaign::AddInputsOf(state, path);
      continue;
    }
    for (const std::string& file : CaseFilesOf(path)) {
      if (file.ends_with(".jsonl")) continue;
      const Case c = ReadCaseFile(file);
      const auto bytes = fuzz::EncodeCase(c);
      if (!bytes || bytes->size() > fuzz::kWatchedBytes) {
        ++too_large;
        continue;
      }
      state.AddInput({reinterpret_cast<const char*>(bytes->data()), bytes->size()}, c.op);
      ++added;
    }
  }
  if (added + too_large > 0) {
    Tell("--from-corpus: {} cases, {} of them too large to start from", added + too_large,
         too_large);
  }
}

// The row in the words of other verbs. Of its claims the one that is known is taken, if there is
// one: a baseline or suppression of `qualm check` holds here too.
Finding FindingOfRow(const FaultRow& row, const State& state, const KnownFindings& known) {
  Verdict verdict = Verdict::Failed(row.explanation);
  verdict.kind = row.kind;
  const fs::path folder = state.Finding(row.fingerprint());
  fs::path file = folder / "minimized.case.json";
  if (!fs::exists(file)) file = folder / "case.json";
  std::optional<Finding> found;
  for (const Property* property : PropertiesAbout(row.op)) {
    if (!row.properties.contains(std::string(property->claim))) continue;
    Finding finding(Name(row.op), property->claim, row.subject, verdict, file.string());
    if (!known.IsNew(finding)) return finding;
    if (!found) found = std::move(finding);
  }
  return *found;
}

std::string AlsoText(const FaultRow& row) {
  return fmt::format("  fault: {}, {}; fails {}\n", row.fingerprint(), Name(row.replayed),
                     fmt::join(row.properties, ", "));
}

// Why the finding of a row does not fail the run; "" of a new one.
std::string WhyKnown(const Finding& finding, const KnownFindings& known) {
  if (known.IsNew(finding)) return "";
  const auto marks = known.MarksOf({finding});
  const auto mark = marks.find(finding.fingerprint());
  if (mark == marks.end()) return "declared in adapters/contracts.cc";
  return mark->second.reason.empty() ? "in the baseline" : mark->second.reason;
}

JsonValue RowsJson(const std::vector<FaultRow>& rows, const std::vector<Finding>& findings,
                   const KnownFindings& known) {
  JsonList list;
  for (size_t i = 0; i < rows.size(); ++i) {
    const FaultRow& row = rows[i];
    JsonObject json{
        {"fault", row.fingerprint()},     {"op", Name(row.op)}, {"subject", row.subject},
        {"kind", Name(row.kind)},         {"cause", row.cause}, {"properties", row.properties},
        {"replayed", Name(row.replayed)}, {"found", row.found}};
    if (const std::string why = WhyKnown(findings[i], known); !why.empty()) json.Add("known", why);
    list.Add(json);
  }
  return list;
}

// --to-corpus: a described case for each new fault that can be run again.
void KeepRegressions(const Options& options, const std::vector<FaultRow>& rows,
                     const std::vector<Finding>& findings, const KnownFindings& known) {
  int number = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!known.IsNew(findings[i]) || rows[i].replayed != Replayed::kReproducible) continue;
    Case c = ReadCaseFile(findings[i].case_file);
    c.note = RegressionNote(rows[i].explanation, "fuzz", rows[i].identity, rows[i].found);
    const std::string suffix = ++number == 1 ? "" : fmt::format("-{}", number);
    const fs::path file = options.to_corpus + suffix + ".case.json";
    if (file.has_parent_path()) MakeFolder("--to-corpus", file.parent_path().string());
    WriteCaseFile(c, file.string());
    Tell("--to-corpus: wrote {}", ShortPath(file.string()));
  }
}

void CountVerdicts(const campaign::Progress& progress, bool any_new, Totals& totals) {
  totals.cases = progress.executions;
  for (size_t i = 0; i < progress.verdicts.size(); ++i) {
    if (progress.verdicts[i] == 0) continue;
    Judgement judgement = static_cast<Judgement>(i);
    if (judgement == Judgement::kFailed && !any_new) judgement = Judgement::kExpected;
    totals.verdicts[judgement] += progress.verdicts[i];
  }
}

campaign::CampaignOptions CampaignOf(const Options& options, std::vector<Aim> aims) {
  const Shard shard = ShardOf(options.shard);
  campaign::CampaignOptions run;
  std::ranges::rotate(aims, aims.begin() + shard.index % static_cast<int64_t>(aims.size()));
  run.aims = std::move(aims);
  run.seconds = options.seconds;
  run.runs = options.runs;
  run.jobs = options.jobs;
  run.seed =
      shard.count == 1 ? options.seed : MixSeed(options.seed, static_cast<uint64_t>(shard.index));
  if (run.seconds == 0 && run.runs == 0) run.seconds = kStandardSeconds;
  run.inputs = [corpus = InstalledData("corpus", QUALM_CORPUS_DIR)](Op op) {
    const fs::path folder = fs::path(corpus) / "fuzz" / std::string(Name(op));
    return fs::is_directory(folder) ? folder.string() : std::string();
  };
  run.stop = Stopped;
  run.say = [](const std::string& text) { TellLine(text); };
  return run;
}

// What a campaign had when. Where there are too many moments every other one is dropped.
class Course {
 public:
  void Add(const campaign::Progress& progress) {
    if (progress.seconds < next_) return;
    Keep(progress);
    if (std::ssize(moments_) > kMost) {
      std::vector<RecordedMoment> fewer;
      for (size_t i = 0; i < moments_.size(); i += 2) fewer.push_back(moments_[i]);
      moments_ = std::move(fewer);
      step_ *= 2;
    }
    next_ = progress.seconds + step_;
  }
  JsonList Json(const campaign::Progress& last) {
    Keep(last);
    JsonList list;
    for (const RecordedMoment& one : moments_) {
      list.Add(JsonObject{{"seconds", one.seconds},
                          {"executions", one.executions},
                          {"inputs", one.inputs},
                          {"faults", one.faults}});
    }
    return list;
  }

 private:
  void Keep(const campaign::Progress& progress) {
    moments_.push_back(
        {progress.seconds, progress.executions, progress.corpus, std::ssize(progress.rows)});
  }

  static constexpr int64_t kMost = 200;
  std::vector<RecordedMoment> moments_;
  double step_ = 0.25, next_ = 0;
};

int RunFuzz(Options options) {
  Session session(options);
  AddSkipped(options.skip, options.property_glob);
  const campaign::Engine& engine = campaign::FindEngine(options.engine);
  campaign::CampaignOptions run = CampaignOf(options, AimsOf(options));
  session.Open(SubjectNames(options.subjects, {}), options.contract);
  session.subjects.clear();  // the engines have their own
  session.known = KnownFindings(options.known);
  RequireWritable(options);
  State state("--state", options.state);
  RequireReportFolder("--state", options.state);
  const std::optional<ResultRecord> before = RunBefore(options.state);
  session.Begin(fmt::format("seed {}; ", options.seed), options.seed);
  AddCases(options, state);
  StopOnSignals();
  if (!options.no_canary) campaign::RequireCanaries(engine, state, run);

  FuzzStatus status([&](const FaultRow& row) {
    return session.known.IsNew(FindingOfRow(row, state, session.known));
  });
  Course course;
  run.tell = [&](const campaign::Progress& progress) {
    status.Tell(progress);
    course.Add(progress);
  };
  run.say = [&](const std::string& text) { status.Say(text); };
  const campaign::Progress progress = campaign::RunCampaign(engine, state, run);
  status.End();

  std::vector<Finding>& findings = session.document.findings;
  for (const FaultRow& row : progress.rows) {
    findings.push_back(FindingOfRow(row, state, session.known));
    session.Print("{}{}", session.known.Text(findings.back()), AlsoText(row));
  }
  if (!options.to_corpus.empty()) {
    session.deferred.Try("--to-corpus",
                         [&] { KeepRegressions(options, progress.rows, findings, session.known); });
  }
  CountVerdicts(progress, session.known.AnyNew(findings), session.totals);
  const int64_t expected = session.totals.verdicts[Judgement::kExpected];
  if (expected > 0 && progress.waiting == 0)
    session.Print("{} claims failed as declared or known, and make no new row\n", expected);
  session.Print("{}\n", status.LastLine());
  if (progress.waiting > 0) {
    Tell("{} failures wait in {}: the next run looks into them first", progress.waiting,
         ShortPath(options.state));
  }
  session.document.extra = {
      {"campaign", JsonObject{{"engine", engine.name},
                              {"executions", progress.executions},
                              {"corpus", progress.corpus},
                              {"deaths", progress.deaths},
                              {"waiting", progress.waiting},
                              {"course", course.Json(progress)},
                              {"faults", RowsJson(progress.rows, findings, session.known)}}}};
  session.deferred.Try([&] {
    session.Complete();
    ResultDocument document = session.document;
    document.findings.clear();  // the page takes them from fault.json
    document.extra.emplace_back("run", RunJson());
    session.Print("report: {}\n",
                  ShortPath(WriteReport(options.state, document, before, progress.corpus).path));
  });
  const std::string name = ContentName(UtcNow() + std::to_string(::getpid())) + ".json";
  return session.End("", (state.root() / "results" / name).string());
}

}  // namespace

void AddFuzz(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(app, run, "fuzz", "run a fuzzing campaign (docs/campaigns.md)",
            "Example: qualm fuzz linear --subject plugin:./mine.so --time 48h --state weekend");
  AddOps(verb, options->ops, "only these operations; default: all that a subject has");
  AddSubjectOption(verb, *options, true);
  AddOutputOptions(verb, *options);
  AddContractOption(verb, *options);
  AddDomainOptions(verb, *options);
  verb.Text("--property,-p", options->property_glob, "globs on OP.CLAIM or CLAIM, between commas");
  AddSkip(verb, options->skip);
  verb.Duration("--time", options->seconds, "run this long, e.g. 10m, 8h, 2d (default: 10m)");
  verb.Integer("--runs", options->runs, 1, int64_t{1} << 50, "executions in all");
  verb.Integer("--jobs,-j", options->jobs, 1, 256, "engines at a time");
  verb.Seed(options->seed);
  verb.Text("--state", options->state, "folder of the campaign; one that exists goes on");
  verb.Text("--engine", options->engine, "libfuzzer or standalone");
  AddShard(verb, options->shard, "I/N: seed and order of run I of N");
  verb.Texts("--from-corpus", options->from_corpus,
             "case files, folders of them, or another campaign to start from (repeatable)");
  verb.Text("--to-corpus", options->to_corpus,
            "write each new fault as NAME.case.json, NAME-2.case.json, ...");
  verb.Flag("--no-canary", options->no_canary, "do not look for a planted fault first");
  AddKnownOptions(verb, options->known);
  verb.Does([options] { return RunFuzz(*options); });
}

}  // namespace qualm::tools
