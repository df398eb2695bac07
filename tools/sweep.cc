// SPDX-License-Identifier: Apache-2.0
// qualm sweep: the constant-input curve of every output of a linear layer, subject by subject.
#include "properties/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>

#include "core/io/case_json.h"
#include "core/io/text_file.h"
#include "core/status.h"
#include "report/pictures.h"
#include "tools/command.h"
#include "tools/progress.h"
#include "tools/session.h"

namespace qualm::tools {
namespace {

struct Options : CommonOptions {
  std::string path;
  std::optional<int32_t> from, to, step;
  std::string plot;
};

JsonValue CurveJson(const sweep::Curve& curve) {
  JsonList kinks;
  for (const sweep::KinkReport& report : curve.kinks) {
    const headroom::Kink& kink = report.kink;
    kinks.Add(JsonObject{{"k", std::array{kink.k, kink.k + 1}},
                         {"weight_sum", kink.weight_sum},
                         {"last_exact_code", kink.last_exact_code},
                         {"state", report.state()}});
  }
  return JsonObject{{"output", curve.n},
                    {"monotone", curve.monotone},
                    {"linear", curve.linear},
                    {"direction", curve.direction},
                    {"last_exact_code", curve.last_exact_code},
                    {"kinks", kinks},
                    {"unexplained", curve.unexplained},
                    {"y", curve.y}};
}

// Does the result equal the observed output of the case? Only a case that is the whole sweep has
// one.
bool EqualsObserved(const Case& base, const sweep::Result& result) {
  const Case expanded = sweep::Expand(base, result.codes);
  if (!base.observed || !(ProblemOf(base) == ProblemOf(expanded))) return false;
  for (const sweep::Curve& curve : result.curves) {
    for (size_t i = 0; i < curve.y.size(); ++i) {
      if (base.observed->y.IntAt(static_cast<int64_t>(i) * base.N + curve.n) != curve.y[i])
        return false;
    }
  }
  return !result.curves.empty();
}

JsonValue SweepJson(const Case& base, const std::vector<int32_t>& codes,
                    const std::vector<sweep::Result>& results) {
  JsonList subjects;
  for (const sweep::Result& result : results) {
    std::optional<bool> equal;
    if (base.observed) equal = EqualsObserved(base, result);
    subjects.Add(JsonObject{{"subject", result.subject},
                            {"skipped", JsonValue::OrNull(result.skipped)},
                            {"equals_observed", equal},
                            {"outputs", std::views::transform(result.curves, CurveJson)}});
  }
  return JsonObject{{"codes", codes}, {"subjects", subjects}};
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

// Has the curve predicted kinks, none of which is visible?
bool OnlyLatent(const sweep::Curve& curve) {
  return !curve.kinks.empty() && std::ranges::none_of(curve.kinks, &sweep::KinkReport::visible);
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
  const bool departs = std::ranges::any_of(result.curves, [](const sweep::Curve& c) {
    return !c.linear || !c.monotone || c.y != c.exact;
  });
  if (!departs) return text;
  for (const sweep::Curve& curve : result.curves) {
    for (const sweep::KinkReport& report : curve.kinks) {
      text += fmt::format("  output {}: pair k=({},{}), w sum {}, exact up to code {}: {}\n",
                          curve.n, report.kink.k, report.kink.k + 1, report.kink.weight_sum,
                          report.kink.last_exact_code, report.state());
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

// Pair saturation, if saturating pairs explain every departure of these outputs.
FindingKind KindOf(const sweep::Result& result, const std::vector<int64_t>& outputs) {
  for (int64_t n : outputs) {
    const sweep::Curve& curve = result.curves[static_cast<size_t>(n)];
    const bool visible = std::ranges::any_of(curve.kinks, &sweep::KinkReport::visible);
    if (!visible || !curve.unexplained.empty()) return FindingKind::kUnknown;
  }
  return FindingKind::kPairSaturation;
}

// One finding for all outputs that break a claim, counted output by output. Where the claim is no
// theorem (`why_not` is not ""), no output is judged by it.
void JudgeClaim(const Case& base, const sweep::Result& result, const char* claim,
                bool sweep::Curve::* holds, const std::string& why_not, Totals& totals,
                std::vector<Finding>& findings) {
  std::vector<int64_t> broken;
  for (const sweep::Curve& curve : result.curves) {
    totals.Add(!why_not.empty() ? Judgement::kNotApplicable
               : curve.*holds   ? Judgement::kPassed
                                : Judgement::kFailed);
    if (why_not.empty() && !(curve.*holds)) broken.push_back(curve.n);
  }
  if (broken.empty()) return;
  Verdict verdict =
      Verdict::Failed(fmt::format("does not hold on outputs {{{}}}", fmt::join(broken, ", ")));
  verdict.kind = KindOf(result, broken);
  const sweep::Curve& first = result.curves[static_cast<size_t>(broken.front())];
  for (size_t i = 0; i < result.codes.size(); ++i) {
    if (first.y[i] == first.exact[i]) continue;
    verdict.divergence =
        Divergence{static_cast<int64_t>(i) * base.N + first.n, fmt::format("{}", first.exact[i]),
                   fmt::format("{}", first.y[i]),
                   std::abs(static_cast<double>(first.y[i]) - static_cast<double>(first.exact[i]))};
    break;
  }
  findings.emplace_back(base, claim, result.subject, verdict);
}

void Judge(const Case& base, const Subject& subject, const sweep::Result& result, Totals& totals,
           std::vector<Finding>& findings) {
  const Case expanded = sweep::Expand(base, result.codes);
  if (result.skipped.empty()) {
    JudgeClaim(base, result, "sweep_is_monotone", &sweep::Curve::monotone,
               sweep::WhyNotMonotone(expanded), totals, findings);
    JudgeClaim(base, result, "sweep_is_linear", &sweep::Curve::linear,
               sweep::WhyNotLinear(expanded), totals, findings);
    return;
  }
  if (!subject.CannotRun(expanded).empty()) {
    totals.Add(Judgement::kSkipped);
    return;
  }
  // The subject declared that it can run the sweep, and then crashed, hung or answered nonsense.
  totals.Add(Judgement::kFailed);
  Verdict verdict = Verdict::Failed(result.skipped);
  verdict.kind = result.skipped.starts_with(Name(RunStatus::kCrashed)) ? FindingKind::kCrash
                 : result.skipped.starts_with(Name(RunStatus::kHung))  ? FindingKind::kHang
                                                                       : FindingKind::kMemory;
  findings.emplace_back(base, "sweep_is_linear", result.subject, verdict);
}

// Subjects of one kind whose curves are the same share a line: "native@avx3_dl and 6 more".
struct Drawing {
  const sweep::Result* result = nullptr;
  size_t more = 0;
};

std::vector<Drawing> Drawings(const std::vector<sweep::Result>& results) {
  const auto kind = [](const sweep::Result& result) {
    return std::string_view(result.subject).substr(0, result.subject.find_first_of("@:"));
  };
  std::vector<Drawing> drawings;
  for (const sweep::Result& result : results) {
    if (result.curves.empty()) continue;
    const auto same = std::ranges::find_if(drawings, [&](const Drawing& drawing) {
      return kind(*drawing.result) == kind(result) &&
             std::ranges::equal(drawing.result->curves, result.curves, {}, &sweep::Curve::y,
                                &sweep::Curve::y);
    });
    if (same == drawings.end()) {
      drawings.push_back({&result});
    } else {
      ++same->more;
    }
  }
  return drawings;
}

// A picture per output: the exact line, the line of each subject, and the predicted kinks of the
// first subject that bends anywhere, the latent ones too.
std::string Drawn(const Case& base, const std::vector<sweep::Result>& results) {
  const std::vector<Drawing> drawings = Drawings(results);
  if (drawings.empty()) throw InputError("--plot: no subject could run the sweep");
  const auto bends = std::ranges::find_if(drawings, [](const Drawing& drawing) {
    return !std::ranges::all_of(drawing.result->curves, &sweep::Curve::linear);
  });
  const sweep::Result& first = *drawings.front().result;
  std::vector<report::Svg> pictures;
  for (size_t n = 0; n < first.curves.size(); ++n) {
    std::vector<report::SweepLine> lines;
    for (const auto& [result, more] : drawings) {
      const std::string others = more == 0 ? "" : fmt::format(" and {} more", more);
      lines.push_back({result->subject + others, result->curves[n].y});
    }
    std::vector<report::SweepKink> kinks;
    if (bends != drawings.end()) {
      for (const auto& [kink, visible] : bends->result->curves[n].kinks) {
        const int32_t code = kink.last_exact_code - (base.x.dtype() == DType::kS8 ? 128 : 0);
        kinks.push_back({kink, code, visible});
      }
    }
    pictures.push_back(report::SweepPicture(fmt::format("output {}", n), first.codes,
                                            first.curves[n].exact, lines, kinks));
  }
  return report::Svg::Sheet(pictures).File();
}

int RunSweep(const Options& options) {
  Session session(options);
  Case base = ReadCaseFile(options.path);
  const auto refuse = [&](const std::string& what) {
    throw InputError(options.path + ": " + what + " for a sweep");
  };
  if (HasFloatX(base)) refuse("x_dtype: is f32, expected codes");
  if (!HasSums(base))
    refuse("op: is " + std::string(Name(base.op)) + ", expected linear, conv2d or depthwise");
  if (base.w_block != 0) refuse("w_block: is " + std::to_string(base.w_block) + ", expected none");
  if (IsFloat(base.out_dtype)) refuse("out_dtype: is a float, expected codes or s32");
  if (IsConv(base.op)) {
    if (base.M == 0) refuse("N: there is no output pixel, expected one");
    base = sweep::OneRow(base);
  }
  if (base.N == 0) refuse("there is no output channel, expected one");
  if (base.K == 0) refuse("the sums have no term, expected one");
  const CodeRange range = RangeOf(base.x.dtype());
  const int32_t step = options.step.value_or(sweep::StepOf(base.x.dtype()));
  const std::vector<int32_t> codes =
      sweep::Codes(base, options.from.value_or(range.min), options.to.value_or(range.max), step);
  session.Open(SubjectNames(options.subjects, {}), options.contract);
  if (!options.plot.empty() && !options.plot.ends_with(".svg"))
    throw InputError("--plot: '" + options.plot + "' is no FILE.svg, plots are written as SVG");
  RequireWritable(options, {{"--plot", options.plot}}, {options.path});
  session.Begin();

  session.totals.cases = 1;
  std::vector<sweep::Result> results;
  StepProgress progress("sweeping: ");
  for (const auto& subject : session.subjects) {
    if (Stopped()) break;
    progress.At(static_cast<double>(results.size()) / static_cast<double>(session.subjects.size()),
                fmt::format("{} of {} subjects, {}", results.size(), session.subjects.size(),
                            subject->name()));
    results.push_back(sweep::Run(base, *subject, codes));
    session.Print("{}", SweepSummary(results.back()));
    if (EqualsObserved(base, results.back()))
      session.Print("  equal to the observed output at every point ({})\n", base.observed->by);
    Judge(base, *subject, results.back(), session.totals, session.document.findings);
  }
  for (Finding& finding : session.document.findings) finding.case_file = options.path;
  session.document.extra.emplace_back("sweep", SweepJson(base, codes, results));
  if (!options.plot.empty()) {
    session.deferred.Try("--plot", [&] { WriteTextFile(options.plot, Drawn(base, results)); });
  }
  return session.End(results.empty() ? "" : results.front().skipped);
}

}  // namespace

void AddSweep(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(app, run, "sweep", "constant-input curves: monotone? linear? which pair bends them?",
            "Example: qualm sweep corpus/forum/000-linear-sweep.case.json --subject native@all "
            "--subject model:fbgemm@avx2 --plot sweep.svg");
  verb.Text("CASE", options->path,
            "a case of linear or a convolution; its rows or images are replaced")
      .Required();
  AddSubjectOption(verb, *options, true);
  AddOutputOptions(verb, *options);
  AddContractOption(verb, *options);
  // Ranges depend on the type of the codes: sweep::Codes judges them.
  const auto code = [&](const char* name, auto& value, const char* help) {
    verb.Integer(
        name, [&value](int64_t read) { value = static_cast<int32_t>(read); }, INT32_MIN, INT32_MAX,
        help);
  };
  code("--from", options->from, "first code");
  code("--to", options->to, "last code");
  code("--step", options->step, "distance of codes: 1, of 16 bits 257");
  verb.Text("--plot", options->plot, "draw the curves into FILE.svg");
  verb.Does([options] { return RunSweep(*options); });
}

}  // namespace qualm::tools
