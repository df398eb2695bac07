// SPDX-License-Identifier: Apache-2.0
// qualm sweep: the constant-input curve of every output of a linear layer, subject by subject.
#include "properties/sweep.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/io/case_json.h"
#include "core/status.h"
#include "tools/command.h"
#include "tools/plot.h"

namespace qualm::tools {
namespace {

struct Options : CommonOptions {
  std::string path;
  std::optional<int32_t> from, to;
  int32_t step = 1;
  std::string plot;
};

std::string ListJson(const std::vector<int32_t>& list) {
  return fmt::format("[{}]", fmt::join(list, ","));
}

std::string CurveJson(const sweep::Curve& curve) {
  std::string kinks;
  for (const sweep::KinkReport& report : curve.kinks) {
    kinks +=
        fmt::format("{}{{\"k\":[{},{}],\"weight_sum\":{},\"last_exact_code\":{},\"state\":\"{}\"}}",
                    kinks.empty() ? "" : ",", report.kink.k, report.kink.k + 1,
                    report.kink.weight_sum, report.kink.last_exact_code,
                    report.state == sweep::KinkState::kVisible ? "visible" : "latent");
  }
  return fmt::format(
      "{{\"output\":{},\"monotone\":{},\"linear\":{},\"direction\":{},\"last_exact_code\":{},"
      "\"kinks\":[{}],\"unexplained\":{},\"y\":{}}}",
      curve.n, curve.monotone, curve.linear, curve.direction,
      curve.last_exact_code ? fmt::format("{}", *curve.last_exact_code) : "null", kinks,
      ListJson(curve.unexplained), ListJson(curve.y));
}

std::string SweepJson(const std::vector<int32_t>& codes,
                      const std::vector<sweep::Result>& results) {
  std::string json = fmt::format("{{\"codes\":{},\"subjects\":[", ListJson(codes));
  for (size_t i = 0; i < results.size(); ++i) {
    json += fmt::format("{}{{\"subject\":{},\"skipped\":{},\"outputs\":[", i == 0 ? "" : ",",
                        JsonQuote(results[i].subject),
                        results[i].skipped.empty() ? "null" : JsonQuote(results[i].skipped));
    for (size_t n = 0; n < results[i].curves.size(); ++n) {
      json += (n == 0 ? "" : ",") + CurveJson(results[i].curves[n]);
    }
    json += "]}";
  }
  return json + "]}";
}

// Outputs for which `wrong` holds, "{0, 3}".
template <class Wrong>
std::string Outputs(const sweep::Result& result, const Wrong& wrong) {
  std::string list;
  for (const sweep::Curve& curve : result.curves) {
    if (wrong(curve)) list += fmt::format("{}{}", list.empty() ? "" : ", ", curve.n);
  }
  return "{" + list + "}";
}

// A kinked curve that still moves as it should: only predicted kinks that nothing shows.
bool OnlyLatent(const sweep::Curve& curve) {
  if (curve.kinks.empty()) return false;
  for (const sweep::KinkReport& report : curve.kinks) {
    if (report.state == sweep::KinkState::kVisible) return false;
  }
  return true;
}

}  // namespace

std::string SweepSummary(const sweep::Result& result) {
  if (!result.skipped.empty())
    return fmt::format("{}: skipped, {}\n", result.subject, result.skipped);
  std::string text = result.subject + ": ";
  const std::string bent = Outputs(result, [](const auto& c) { return !c.monotone; });
  const std::string kinks = Outputs(result, [](const auto& c) { return !c.linear; });
  if (bent == "{}" && kinks == "{}") {
    text += fmt::format("monotone and linear on all {} outputs\n", result.curves.size());
  } else {
    text += fmt::format("not monotone on outputs {}, not linear on {}\n", bent, kinks);
  }
  const bool departs =
      std::any_of(result.curves.begin(), result.curves.end(),
                  [](const sweep::Curve& c) { return !c.linear || !c.monotone || c.y != c.exact; });
  if (!departs) return text;
  for (const sweep::Curve& curve : result.curves) {
    for (const sweep::KinkReport& report : curve.kinks) {
      text += fmt::format("  output {}: pair k=({},{}), w sum {}, exact up to code {}: {}\n",
                          curve.n, report.kink.k, report.kink.k + 1, report.kink.weight_sum,
                          report.kink.last_exact_code,
                          report.state == sweep::KinkState::kVisible ? "visible" : "latent");
    }
    if (!curve.unexplained.empty()) {
      text +=
          fmt::format("  output {}: {} codes depart from exact and no predicted kink explains it\n",
                      curve.n, curve.unexplained.size());
    }
  }
  const std::string latent = Outputs(result, OnlyLatent);
  if (latent != "{}") text += fmt::format("  latent kinks only on outputs {}\n", latent);
  return text;
}

namespace {

void Judge(const Case& base, const sweep::Result& result, Totals& totals,
           std::vector<Finding>& findings) {
  if (!result.skipped.empty()) {
    totals.Add(Judgement::kSkipped);
    return;
  }
  for (const sweep::Curve& curve : result.curves) {
    const auto judge = [&](std::string_view claim, bool ok, const std::string& why) {
      totals.Add(ok ? Judgement::kPassed : Judgement::kFailed);
      if (ok) return;
      Finding finding;
      finding.op = Name(base.op);
      finding.property = claim;
      finding.subject = result.subject;
      finding.explanation = why;
      finding.kind = FindingKind::kUnknown;
      for (const sweep::KinkReport& report : curve.kinks) {
        if (report.state == sweep::KinkState::kVisible) finding.kind = FindingKind::kPairSaturation;
      }
      finding.test_case = base;
      for (size_t i = 0; i < result.codes.size(); ++i) {
        if (curve.y[i] == curve.exact[i]) continue;
        finding.first_divergence =
            Divergence{static_cast<int64_t>(i) * base.N + curve.n,
                       fmt::format("{}", curve.exact[i]), fmt::format("{}", curve.y[i]),
                       static_cast<double>(std::abs(curve.y[i] - curve.exact[i]))};
        break;
      }
      findings.push_back(std::move(finding));
    };
    judge("sweep_is_monotone", curve.monotone, fmt::format("output {} is not monotone", curve.n));
    judge("sweep_is_linear", curve.linear, fmt::format("output {} has no stabbing line", curve.n));
  }
}

int RunSweep(Options options) {
  const Stopwatch stopwatch;
  const Case base = ReadCaseFile(options.path);
  if (base.op != Op::kLinear) throw InputError(options.path + ": op: a sweep needs a linear case");
  const CodeRange range = RangeOf(base.x.dtype());
  const std::vector<int32_t> codes = sweep::Codes(base, options.from.value_or(range.min),
                                                  options.to.value_or(range.max), options.step);
  options.command = CanonicalCommand();
  fmt::print(stderr, "qualm: to repeat: {}\n", options.command);

  Totals totals;
  totals.cases = 1;
  ResultDocument document;
  std::vector<sweep::Result> results;
  bool broken = false;
  for (const auto& subject : MakeSubjects(SubjectNames(options.subjects, {}), options.contract)) {
    document.subjects.emplace_back(subject->name(), subject->contract().text());
    results.push_back(sweep::Run(base, *subject, codes));
    if (!options.quiet_stdout()) fmt::print("{}", SweepSummary(results.back()));
    Judge(base, results.back(), totals, document.findings);
  }
  for (const Finding& finding : document.findings) broken |= !finding.expected_by_contract;
  document.command = options.command;
  SetTotals(document, totals);
  document.extra.emplace_back("sweep", SweepJson(codes, results));
  if (!options.plot.empty()) WriteFile(options.plot, SweepSvg(base, results));
  document.seconds = stopwatch.seconds();
  WriteResults(options, document, {});
  return broken ? kFindings : kClean;
}

}  // namespace

void AddSweep(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "sweep", "constant-input curves: monotone? linear? which pair bends them?");
  verb->footer(
      "Example: qualm sweep corpus/forum/000-linear-sweep.case.json --subject native@all "
      "--subject model:fbgemm@avx2 --plot sweep.svg");
  verb->add_option("CASE", options->path, "a linear case; its rows are replaced")->required();
  AddSubjectOption(*verb, *options, true);
  AddOutputOptions(*verb, *options);
  AddContractOption(*verb, *options);
  verb->add_option("--from", options->from, "first code");
  verb->add_option("--to", options->to, "last code");
  verb->add_option("--step", options->step, "distance of codes");
  verb->add_option("--plot", options->plot, "draw the curves into FILE.svg");
  verb->callback([options, run] { *run = [options] { return RunSweep(*options); }; });
}

}  // namespace qualm::tools
