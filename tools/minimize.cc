// SPDX-License-Identifier: Apache-2.0
// qualm minimize: the smallest case that still fails, with the reason beside it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/io/case_json.h"
#include "core/io/fault_row.h"
#include "core/io/shell_word.h"
#include "core/io/short_path.h"
#include "core/status.h"
#include "properties/property.h"
#include "tools/claim.h"
#include "tools/command.h"
#include "tools/emit.h"
#include "tools/findings.h"
#include "tools/progress.h"
#include "tools/regressions.h"
#include "tools/session.h"
#include "tools/stop.h"
#include "triage/triage.h"
#include "triage/triaged.h"

namespace qualm::tools {
namespace {

struct Options : CommonOptions {
  std::string path;
  std::string property;
  std::string to_corpus;
  int64_t max_calls = 2000;
};

const Property& ChooseProperty(const Options& options, const Case& c, const Contract& contract) {
  std::string name = options.property.empty() ? c.property : options.property;
  if (name.empty()) name = contract.exact() ? "matches_exact" : "matches_model";
  return PropertyOf(name, c.op,
                    options.property.empty() ? options.path + ": property" : "--property");
}

// --to-corpus: the minimized case with its reason, for replay to ask again.
std::string ToCorpus(const Options& options, const triage::MinimizeResult& result,
                     const Subject& subject) {
  Case c = result.minimized;
  const std::string version = subject.Version().empty() ? "" : " " + subject.Version();
  c.note = RegressionNote(result.attribution.diagnosis, "minimize",
                          std::string(subject.name()) + version, UtcNow());
  const std::string file = RegressionFile(options.to_corpus, c.op, result.attribution);
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (!folder.empty()) MakeFolder("--to-corpus", folder.string());
  WriteCaseFile(c, file);
  return file;
}

// Minimization keeps some calls for questions about the smallest case.
bool WasCutShort(const Options& options, const triage::MinimizeResult& result) {
  return result.calls + std::min<int64_t>(64, options.max_calls / 8) >= options.max_calls;
}

int RunMinimize(const Options& options) {
  Session session(options);
  const Case c = ReadCaseFile(options.path);
  RequireContract(c, options.path);
  // The question is whether the number is right, so exact judges unless told otherwise.
  const Contract contract =
      ContractFor(options, c.op, c.contract.empty() ? Contract{} : ParseContract(c.contract));
  const Property& property = ChooseProperty(options, c, contract);
  const std::vector<std::string> names = SubjectNames(options.subjects, {});
  if (names.size() != 1) {
    throw InputError(fmt::format("--subject: {} subjects are named ({}), expected one",
                                 names.size(), fmt::join(options.subjects, ", ")));
  }
  session.Open(names, contract.text());
  const Contract own = SubjectRegistry::Get().Make(names.front())->contract(c.op);
  if (options.output == "-")
    throw InputError("--output: '-' is no file; without --output the case goes to stdout");
  RequireEmittable(options, {options.path});
  RequireRegressionFile(options.to_corpus);
  session.Begin();
  Progress progress("minimizing: ", 0, "subject calls at most");
  Subject& subject = *session.subjects.front();
  const Outcome first = subject.CannotRun(c).empty() ? subject.Run(c, RunContext{}) : Outcome{};
  const std::optional<triage::Attribution> kept =
      first.ok() ? triage::Kept(c, first.y, &subject) : std::nullopt;
  const triage::MinimizeResult result =
      triage::Minimize(c, subject, property,
                       {.max_calls = options.max_calls,
                        .stop = Stopped,
                        .progress = [&](int64_t calls) { progress(calls, options.max_calls); },
                        .attribution = kept ? &*kept : nullptr});

  session.totals.cases = 1;
  session.totals.Add(result.verdict.judgement);
  std::string text, written;
  if (!result.reproduced) {
    text = fmt::format("{} does not fail on {}: {}{}{}\n", FullName(c.op, property), names.front(),
                       Name(result.verdict.judgement), result.verdict.reason.empty() ? "" : " ",
                       result.verdict.reason);
    session.deferred.Try("--emit",
                         [&] { Emit(options, c, session.subjects.front().get(), nullptr); });
  } else {
    Verdict verdict = Verdict::Failed(result.attribution.diagnosis, result.verdict.divergence);
    verdict.kind = result.attribution.kind;
    Finding finding(result.minimized, property.claim, names.front(), verdict);
    finding.expected_by_contract = IsExcused(finding, *session.subjects.front(), own);
    if (!options.output.empty() && options.emit.empty()) {
      session.deferred.Try([&] {
        WriteCaseFile(result.minimized, options.output);
        finding.case_file = options.output;
      });
    }
    if (!options.to_corpus.empty()) {
      session.deferred.Try([&] {
        const std::string file = ToCorpus(options, result, *session.subjects.front());
        if (finding.case_file.empty()) finding.case_file = file;
        text += "regression: " + ShortPath(file) + "\n";
      });
    }
    text = triage::FindingText(finding) + text;
    text += fmt::format("minimized: {} -> {}, {} subject calls\n", Describe(c),
                        Describe(result.minimized), result.calls);
    text += triage::MattersText(result);
    const bool cut_short = Stopped() || WasCutShort(options, result);
    if (cut_short) {
      text +=
          fmt::format("cut short {}, after {:.0f} s: a smaller case may exist\n",
                      Stopped() ? "by a signal" : "by --max-calls", session.stopwatch.seconds());
    }
    text +=
        triage::Explain(result.minimized, session.pointers(), {.attribution = &result.attribution});
    if (finding.case_file.empty()) {
      written = CaseToJson(result.minimized);
    } else {
      const std::string arguments =
          fmt::format("{} --subject {}", ShellWord(ShortPath(finding.case_file)),
                      ShellWord(ShortSubject(finding.subject)));
      text +=
          fmt::format("next: qualm explain {0} --emit issue\n      qualm replay {0}\n", arguments);
    }
    session.deferred.Try("--emit", [&] {
      Emit(options, result.minimized, session.subjects.front().get(), &finding);
    });
    session.document.findings.push_back(std::move(finding));
    session.document.extra.emplace_back(
        "minimize", JsonObject{{"calls", result.calls},
                               {"cut_short", cut_short},
                               {"case", JsonValue::Written(CaseToJsonLine(result.minimized))}});
  }
  session.Print("{}", text);
  session.PrintFile(written);
  session.Write();
  if (!session.Judged(result.verdict.reason)) return kBadInput;
  return StatusOfStopped(result.reproduced ? kFindings : kClean);
}

}  // namespace

void AddMinimize(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(
      app, run, "minimize", "reduce a failing case to a small one",
      "Exit status 1 says that the case still fails, also where the failure is one that the\n"
      "subject is known for (expected); 0 that it passes.\n"
      "Example: qualm minimize found.case.json --subject onednn@avx2 -o small.case.json\n"
      "         qualm minimize found.case.json --subject onednn@avx2 --emit issue -o issue.md");
  verb.Text("CASE", options->path, "a case that fails").Required();
  AddSubjectOption(verb, *options, true);
  verb.Text("--property,-p", options->property,
            "the claim that fails (default: the case's own, else matches_exact, or matches_model "
            "under another contract)");
  AddEmitOptions(verb, *options, "write the minimized case to FILE; with --emit: ");
  verb.Text("--to-corpus", options->to_corpus,
            "also write the minimized case, with the reason, as WHERE.case.json, or into the "
            "folder WHERE under a name of its own; replay then says what became of it")
      .Called("WHERE");
  verb.Integer("--max-calls", options->max_calls, 1, 1 << 30, "subject runs to spend at most");
  AddOutputOptions(verb, *options);
  AddContractOption(verb, *options);
  AddDomainOptions(verb, *options);
  verb.Does([options] { return RunMinimize(*options); });
}

}  // namespace qualm::tools
