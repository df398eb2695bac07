// SPDX-License-Identifier: Apache-2.0
// qualm explain: why two numbers differ.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/float_text.h"
#include "core/io/case_json.h"
#include "core/io/golden.h"
#include "core/io/model_file.h"
#include "core/io/shell_word.h"
#include "core/io/short_path.h"
#include "core/nearest.h"
#include "core/status.h"
#include "oracles/accepted.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "oracles/golden/judge.h"
#include "properties/property.h"
#include "tools/claim.h"
#include "tools/command.h"
#include "tools/emit.h"
#include "tools/explain_model.h"
#include "tools/findings.h"
#include "tools/progress.h"
#include "tools/recorded_text.h"
#include "tools/session.h"
#include "tools/stop.h"
#include "triage/causes.h"
#include "triage/examine.h"
#include "triage/printed.h"
#include "triage/solve.h"
#include "triage/triage.h"

namespace qualm::tools {
namespace {

// What a finding says of an answer that numbers within the printed digits make exact.
const std::string kWithinDigits = "exact with other numbers that print as those of the case";

struct Options : CommonOptions {
  std::string path;
  std::string reference;  // float32 outputs, a .npy file
  std::string record;     // of a recording: its id
  std::string ask;        // the case file to write that tells explanations apart
  int64_t at = -1;
  bool as_printed = false;
  ModelOptions model;
};

// What a layer costs, to say how long the others will take: multiplications.
double CostOf(const Case& c) {
  return static_cast<double>(c.M) * static_cast<double>(c.N) * static_cast<double>(c.K + 1);
}

// A folder: the answers in its case files and the answers of the named subjects, layer by layer.
int RunExplainModel(const Options& options) {
  Session session(options);
  if (options.at >= 0 || !options.ask.empty() || !options.emit.empty() ||
      !options.contract.empty() || !options.reference.empty()) {
    throw InputError(
        "--at, --ask, --emit, --contract and --reference are about one case, expected a file");
  }
  std::vector<std::string> files = CaseFilesOf(options.path);
  std::erase_if(files, [](const std::string& file) { return file.ends_with(".jsonl"); });
  std::vector<Case> cases;
  std::vector<std::optional<Tensor>> references;
  auto progress = std::make_unique<StepProgress>("explaining: ");
  for (const std::string& file : files) {
    progress->At(0, fmt::format("reading {} of {} layers", cases.size() + 1, files.size()));
    cases.push_back(ReadCaseFile(file, {.as_printed = options.as_printed}));
    references.push_back(ReferenceOf(file, cases.back(), ""));
  }
  session.Open(SubjectNames(options.subjects, {}), "");
  RequireWritable(options, {}, files);
  session.Begin();
  std::vector<AnsweredLayer> layers;
  std::string skipped;
  double spent = 0, whole = 1;
  for (const Case& c : cases) whole += CostOf(c);
  for (size_t i = 0; i < files.size() && !Stopped(); ++i) {
    const Case& c = cases[i];
    progress->At(spent / whole, fmt::format("layer {} of {}", i + 1, files.size()));
    spent += CostOf(c);
    ++session.totals.cases;
    const auto add = [&](const std::string& who, const std::string& name, const Tensor& y) {
      layers.push_back(LayerOf(files[i], who, c, y, references[i] ? &*references[i] : nullptr));
      const triage::RecordedAnswer& answer = layers.back().answer;
      session.totals.Add(answer.exact() ? Judgement::kPassed : Judgement::kFailed);
      if (answer.exact()) return;
      session.document.findings.emplace_back(
          c, "matches_exact", name,
          Verdict::Failed(answer.within_digits        ? kWithinDigits
                          : answer.arithmetic.empty() ? "no known arithmetic gives it"
                                                      : "the arithmetic of " + answer.arithmetic,
                          answer.first),
          files[i]);
    };
    if (c.observed) add(c.observed->by, "observed", c.observed->y);
    for (const auto& subject : session.subjects) {
      const std::string name(subject->name());
      std::string reason = subject->CannotRun(c);
      if (reason.empty()) {
        const Outcome outcome = subject->Run(c, RunContext{});
        if (outcome.ok()) {
          add(name, name, outcome.y);
          continue;
        }
        reason = fmt::format("{}, {}", Name(outcome.status), outcome.detail);
      }
      session.totals.Add(Judgement::kSkipped);
      skipped += fmt::format("  {}: {}: {}\n", ShortPath(files[i]), name, reason);
    }
  }
  progress.reset();
  if (!layers.empty()) session.Print("{}", LayersText(layers));
  session.Print("{}", skipped);
  session.document.extra.emplace_back("layers", LayersJson(layers));
  session.Write();
  if (!session.Judged("no case holds an observed output, and no --subject is named"))
    return kBadInput;
  return StatusOfStopped(session.document.findings.empty() ? kClean : kFindings);
}

// The claim that the file names, judged on each subject that can run the case. A fault that depends
// on earlier questions is likelier to show before the cause of a wrong answer is looked for.
std::string JudgeClaim(const Options& options, const Case& c, Session& session,
                       std::vector<Finding>& found) {
  if (c.property.empty()) return "";
  const std::string name =
      FullName(c.op, PropertyOf(c.property, c.op, options.path + ": property"));
  std::string text;
  for (const auto& subject : session.subjects) {
    if (!subject->CannotRun(c).empty()) continue;
    ClaimAgain claim = JudgeClaimAgain(options.path, c, *subject, NamesContract(options, c.op));
    if (claim.text.empty()) continue;  // the derivation of the output says it all
    session.totals.Add(claim.judgement);
    text += claim.text;
    if (claim.finding) found.push_back(std::move(*claim.finding));
  }
  if (session.subjects.empty() && c.observed && exact::Evaluate(c) == c.observed->y) {
    text = fmt::format(
        "The observed output is exact. To judge {}, the claim of this file, name the subject that "
        "gave it: --subject NAME\n",
        name);
  }
  return text;
}

// --ask: a case whose answer would tell apart the explanations of the observed output.
std::string AskText(const Options& options, const Case& c, const triage::Explained& explained) {
  const triage::Attribution* const told = explained.Of(c.observed->y);
  std::vector<triage::Hypothesis> explanations;
  if (told != nullptr) {
    if (!told->causes.empty()) explanations.push_back(told->causes);
    explanations.insert(explanations.end(), told->open.begin(), told->open.end());
  }
  if (explanations.size() < 2) return "--ask: there are no two explanations to tell apart\n";
  const auto telling = triage::FindTellingCase(c, explanations);
  if (!telling) return "--ask: no case that was tried tells the explanations apart\n";
  WriteCaseFile(telling->c, options.ask);
  std::map<std::string, std::vector<std::string>> by_output;
  for (size_t i = 0; i < explanations.size(); ++i)
    by_output[telling->given[i]].push_back(triage::NamesOf(explanations[i], c.op));
  std::string text = fmt::format("ask for the answer to {}; at index {} it is\n",
                                 ShortPath(options.ask), telling->index);
  for (const auto& [output, names] : by_output)
    text += fmt::format("  {}: {}\n", output, fmt::join(names, "; "));
  return text;
}

// Whether a scale has so few decimal digits that somebody may have copied it from a screen: one
// that is a power of two, or has few bits, is more often what it is.
bool HasShortScale(const Case& c) {
  constexpr int kMostDigits = 4, kFewBits = 6;
  const auto is_short = [](float scale) {
    int exponent = 0;
    const double mantissa = std::ldexp(std::frexp(double{scale}, &exponent), kFewBits);
    const std::string text = ShortestDecimal(scale), number = text.substr(0, text.find('e'));
    const size_t first = number.find_first_of("123456789");
    return first != std::string::npos && mantissa != std::floor(mantissa) &&
           std::ranges::count_if(number.substr(first), [](char digit) { return digit != '.'; }) <=
               kMostDigits;
  };
  return std::ranges::any_of(
      std::array{&c.x_q.scale, &c.w_q.scale, &c.out_q.scale, &c.multiplier},
      [&](const std::vector<float>* scales) { return std::ranges::any_of(*scales, is_short); });
}

// --record: the line of a recording with this id, else the first line.
GoldenRecord RecordOf(const Options& options) {
  std::optional<GoldenRecord> found;
  std::vector<std::string> ids;
  ForEachGoldenRecord(options.path, [&](const GoldenRecord& record) {
    ids.push_back(record.id);
    if (!found && (options.record.empty() || record.id == options.record)) found = record;
  });
  if (found) return *found;
  if (ids.empty()) throw InputError(options.path + ": has no record, expected one on each line");
  std::vector<std::string_view> known(ids.begin(), ids.end());
  throw InputError(fmt::format("--record: {} has no record '{}'{}", options.path, options.record,
                               NearestText(options.record, known, options.record.size())));
}

// A recording of what no case says: which arithmetic gives it, and how one output comes about.
int RunExplainRecord(const Options& options, GoldenRecord record) {
  if (!options.subjects.empty() || !options.ask.empty() || !options.emit.empty() ||
      !options.contract.empty() || !options.reference.empty() || options.as_printed) {
    throw InputError(
        "--subject, --ask, --emit, --contract, --reference and --as-printed are about cases, and "
        "this record is none");
  }
  Session session(options);
  session.Begin();
  record.tell = std::max<int64_t>(options.at, 0);
  const GoldenVerdict judged = JudgeGolden(record);
  session.totals.cases = 1;
  session.totals.Add(judged.verdict.judgement);
  const bool failed = judged.verdict.failed();
  std::string text = fmt::format("{}: {}\n", record.where, record.op);
  if (judged.convention.empty())
    text += "  " + judged.verdict.reason + "\n";
  else if (judged.interval)
    text +=
        fmt::format("  {} of {}\n",
                    failed ? "not every output lies in the interval of float32 sums in any order"
                           : "every output lies in the interval of float32 sums in any order",
                    judged.convention);
  else
    text += fmt::format("  {} by {}\n", failed ? "not given" : "every output is given",
                        judged.convention);
  if (failed) text += "  " + judged.verdict.reason + "\n";
  for (const std::string& step : judged.steps) text += "    " + step + "\n";
  session.Print("{}", text);
  if (failed) {
    session.document.findings.emplace_back(record.op, "matches_model", "model:" + judged.convention,
                                           judged.verdict, record.where);
  }
  session.document.extra.emplace_back("explanation", text);
  session.Write();
  if (!session.Judged(judged.verdict.reason)) return kBadInput;
  return failed ? kFindings : kClean;
}

int RunExplain(const Options& options) {
  if (graph::FormatOfFile(options.path)) {
    if (options.at >= 0 || !options.ask.empty() || !options.emit.empty() ||
        !options.contract.empty() || !options.reference.empty() || options.as_printed) {
      throw InputError(
          "--at, --ask, --emit, --contract, --reference and --as-printed are about cases, expected "
          "those that -o FOLDER writes of a model");
    }
    return RunExplainGraph(options, options.model, options.path);
  }
  if (options.model.any())
    throw InputError(
        "--input, --observed, --runtime, --page and --no-runtime are about a model, expected a "
        ".onnx or "
        ".tflite file");
  if (options.emit.empty() && !options.output.empty())
    throw InputError("--output: is for --emit, expected --emit KIND too");
  std::error_code ignored;
  // A folder with the name of a case file is a mistake: ReadCaseFile says so.
  if (!options.path.ends_with(".case.json") && std::filesystem::is_directory(options.path, ignored))
    return RunExplainModel(options);
  std::optional<Case> recorded;
  if (options.path.ends_with(".jsonl")) {
    const GoldenRecord record = RecordOf(options);
    if (!GoldenHasCase(record)) return RunExplainRecord(options, record);
    recorded = GoldenCase(record);
  } else if (!options.record.empty()) {
    throw InputError("--record: is for recordings, expected a .jsonl file");
  }
  Session session(options);
  Case c = recorded ? *std::move(recorded)
                    : ReadCaseFile(options.path, {.as_printed = options.as_printed});
  const int64_t outputs = Tensor(c.out_dtype, c.output_shape()).size();
  if (options.at >= outputs) {
    throw InputError("--at: index " + std::to_string(options.at) +
                     " is outside the output, expected less than " + std::to_string(outputs));
  }
  RequireContract(c, options.path);
  if (!options.ask.empty() && !c.observed)
    throw InputError("--ask: the case has no observed output, expected one that has");
  const std::optional<Tensor> reference_y = ReferenceOf(options.path, c, options.reference);
  session.Open(SubjectNames(options.subjects, {}), options.contract);
  // The exact result judges, or the convention that --contract or else the file names.
  const bool in_file = !c.contract.empty() && !NamesContract(options, c.op);
  const Contract contract =
      in_file ? ParseContract(c.contract) : ContractFor(options, c.op, Contract{});
  for (const auto& subject : session.subjects) subject->set_contract(subject->contract(c.op));
  RequireEmittable(options, {options.path});
  RequireWritable(options, {{"--ask", options.ask}}, {options.path});
  session.Begin();
  auto progress = std::make_unique<StepProgress>("explaining: ");
  progress->At(0, "deriving the output and looking for the cause");
  std::string printed = triage::TakeAsPrinted(&c);
  std::vector<Finding> of_claim;
  const std::string claim = JudgeClaim(options, c, session, of_claim);
  // Causes are departures from the convention by which the claim was judged.
  if (in_file && !contract.exact()) {
    for (const auto& subject : session.subjects) subject->set_contract(contract);
  }
  const triage::Explained explained =
      triage::ExplainAnswers(c, session.pointers(), {.index = options.at});
  // An answer or an observed output that is not exact is a finding.
  session.totals.cases = 1;
  std::vector<Finding>& findings = session.document.findings;
  if (const std::string reason = WhyNotJudged(contract, c); !reason.empty()) {
    const std::string where = in_file ? options.path + ": contract: " : "--contract: ";
    throw InputError(where + contract.text() + ": " + reason);
  }
  const Accepted right = AcceptedBy(contract, c);
  struct Told {
    Tensor y;
    triage::PrintedAnswer digits;
    AnsweredLayer layer;
  };
  std::vector<Told> all_told;  // each answer once
  std::vector<AnsweredLayer> answers;
  const auto judge = [&](const std::string& name, const std::string& who, const Tensor& y) {
    auto told = std::ranges::find(all_told, y, &Told::y);
    if (told == all_told.end()) {
      triage::PrintedAnswer digits = triage::ExaminePrinted(c, y);  // this may take a minute
      AnsweredLayer layer =
          LayerOf(options.path, who, c, y, reference_y ? &*reference_y : nullptr, &digits);
      answers.push_back(layer);
      told = all_told.insert(told, {y, std::move(digits), std::move(layer)});
    } else {
      answers.push_back(told->layer);
      answers.back().who = OneLine(who);
      told->layer.who += ", " + answers.back().who;
    }
    const std::string lines = triage::PrintedText(told->digits, y);
    if (!lines.empty()) printed += who + ":\n" + lines;
    std::optional<Divergence> divergence = right.First(y);
    // Nobody promised the exact result.
    const bool asked_for = in_file || NamesContract(options, c.op);
    if (!asked_for && std::ranges::find(explained.accepted, y) != explained.accepted.end())
      divergence.reset();
    session.totals.Add(divergence ? Judgement::kFailed : Judgement::kPassed);
    if (!divergence) return;
    const triage::Attribution* const known = explained.Of(y);
    const triage::Attribution attribution = known != nullptr ? *known : triage::Attribute(c, y);
    Verdict verdict = Verdict::Failed(attribution.diagnosis, divergence);
    verdict.kind = attribution.kind;
    if (told->digits.verdict == triage::PrintedAnswer::Verdict::kWithin)
      verdict = Verdict::Failed(kWithinDigits, divergence);
    findings.emplace_back(c, contract.exact() ? "matches_exact" : "matches_model", name, verdict,
                          options.path);
  };
  std::string wrong;
  if (std::optional<Finding> finding = WrongExpected(c, options.path)) {
    const Divergence& divergence = *finding->first_divergence;
    wrong = fmt::format("{}: index {} has {}, exact is {}\n", finding->explanation,
                        divergence.index, divergence.actual, divergence.expected);
    session.totals.Add(Judgement::kFailed);
    findings.push_back(std::move(*finding));
  }
  if (c.observed) {
    progress->At(0, "judging the observed output");
    judge("observed", "observed (" + c.observed->by + ")", c.observed->y);
  }
  for (const auto& subject : session.subjects) {
    if (!subject->CannotRun(c).empty()) {
      session.totals.Add(Judgement::kSkipped);
      continue;
    }
    const std::string name(subject->name());
    progress->At(0, "judging " + name);
    const Outcome outcome = subject->Run(c, RunContext{});
    if (outcome.ok()) {
      judge(name, name, outcome.y);
      continue;
    }
    const std::optional<Verdict> bad = BadOutcome(outcome);
    session.totals.Add(bad->judgement);
    if (bad->failed()) findings.emplace_back(c, "matches_exact", name, *bad, options.path);
  }
  std::ranges::move(of_claim, std::back_inserter(findings));
  progress.reset();
  std::string splits;
  for (const Told& told : all_told) {
    if (reference_y || !told.layer.answer.exact()) splits += SplitText(told.layer);
  }
  // The numbers of a case that somebody wrote by hand may be at fault.
  if (c.observed && session.subjects.empty() && !triage::ParametersOf(c).empty() &&
      std::ranges::any_of(all_told,
                          [](const Told& told) { return told.layer.answer.is_wrong(); })) {
    splits += fmt::format("  if a number of the case may be wrong: qualm identify --solve {}\n",
                          ShellWord(ShortPath(options.path)));
    if (!options.as_printed && HasShortScale(c)) {
      splits += fmt::format(
          "  if its scales have more digits than were printed: qualm explain {} "
          "--as-printed\n",
          ShellWord(ShortPath(options.path)));
    }
  }
  if (right.grades()) {
    wrong += fmt::format("judged by {}: {}\n", contract.is_tree() ? "its tree" : "sum",
                         right.grades()->text());
  }
  session.Print("{}{}{}{}{}", printed, explained.text, splits, wrong, claim);
  session.document.extra.emplace_back("explanation", printed + explained.text + claim);
  session.document.extra.emplace_back("layers", LayersJson(answers));
  session.deferred.Try("--emit", [&] { EmitFirst(options, c, session); });
  if (!options.ask.empty()) {
    session.deferred.Try("--ask", [&] { session.Print("{}", AskText(options, c, explained)); });
  }
  session.Write();
  if (!session.subjects.empty() && !session.Judged(session.subjects.front()->CannotRun(c)))
    return kBadInput;
  const bool clean = std::ranges::all_of(findings, &Finding::expected_by_contract);
  return clean ? kClean : kFindings;
}

}  // namespace

void AddExplain(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(app, run, "explain",
            "derive one output exactly, then each subject's, to the first divergence",
            "Example: qualm explain corpus/forum/002-linear-by-hand.case.json\n"
            "         qualm explain cases/ (a recorded model, layer by layer: docs/pytorch.md)\n"
            "         qualm explain model.onnx -o cases/ (a model: docs/models.md)");
  verb.Text("CASE", options->path,
            "a case file, a folder of recorded layers, a recording (.jsonl), or a model (.onnx, "
            ".tflite)")
      .Required();
  AddSubjectOption(verb, *options, false);
  verb.Integer("--at", options->at, 0, INT64_MAX,
               "output index, row-major (default: the first that departs)");
  verb.Text("--record", options->record,
            "the line of a recording with this id (default: the first)")
      .Called("ID");
  verb.Text("--reference", options->reference,
            "float32 outputs (.npy) to split the error against (default: NAME.reference.npy "
            "beside NAME.case.json, else the real result on the same codes)");
  verb.Flag("--as-printed", options->as_printed,
            "scales that are decimals stand for any number that prints so");
  verb.Text("--ask", options->ask,
            "write a case whose answer would tell apart the explanations of the observed output")
      .Called("FILE");
  AddEmitOptions(verb, *options, "of a model: the folder for cases of layers that differ; else ");
  AddModelOptions(verb, options->model);
  AddOutputOptions(verb, *options);
  AddContractOption(verb, *options);
  verb.Does([options] { return RunExplain(*options); });
}

}  // namespace qualm::tools
