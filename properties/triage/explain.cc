// SPDX-License-Identifier: Apache-2.0
// One output, derived exactly, beside what each subject made of it, to the first divergence.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "oracles/exact/exact.h"
#include "oracles/headroom/headroom.h"
#include "oracles/models/model.h"
#include "properties/triage/triage.h"

namespace qualm::triage {
namespace {

std::string Where(const Case& c, int64_t index) {
  return fmt::format("output [{}, {}] (index {})", index / c.N, index % c.N, index);
}

std::string StepLine(const TraceStep& step) {
  return fmt::format("    {:<11} {}{}\n", Name(step.stage), step.lossy ? "* " : "  ", step.text);
}

const TraceStep* FindStage(const Trace& trace, Stage stage) {
  for (const TraceStep& step : trace) {
    if (step.stage == stage) return &step;
  }
  return nullptr;
}

// Up to and including the first step that lost something or whose value is not the exact one.
std::string ToFirstDivergence(const Trace& exact_trace, const Trace& trace, size_t* shown) {
  std::string text;
  *shown = 0;
  for (const TraceStep& step : trace) {
    text += StepLine(step);
    ++*shown;
    if (step.lossy) break;
    const TraceStep* same = FindStage(exact_trace, step.stage);
    const bool integers = step.stage == Stage::kAccumulate || step.stage == Stage::kOffset;
    if (same != nullptr && integers && same->value != step.value) break;
  }
  return text;
}

std::string PairLines(const Case& c, int64_t index) {
  std::string text;
  const std::vector<headroom::Pair> pairs =
      headroom::HasPairs(c) ? headroom::SaturatingPairs(c, index / c.N, index % c.N)
                            : std::vector<headroom::Pair>{};
  for (const headroom::Pair& pair : pairs) {
    text += fmt::format("    pair k=({},{}): {}*{} + {}*{} = {} + {} = {} -> {}, lost {}\n", pair.k,
                        pair.k + 1, pair.x0, pair.w0, pair.x1, pair.w1, pair.x0 * pair.w0,
                        pair.x1 * pair.w1, pair.sum, pair.saturated, pair.lost());
  }
  return text;
}

// Models whose whole output is bit-equal to y.
std::vector<std::string> BitEqualModels(const Case& c, const Tensor& y) {
  std::vector<std::string> names;
  for (const Model& model : AllModels()) {
    if (!model.cannot_run(c).empty()) continue;
    if (model.run(c).y == y) names.push_back(model.name);
  }
  return names;
}

std::string Joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& item : list) text += (text.empty() ? "" : ", ") + item;
  return text;
}

std::string ExplainOutput(const Case& c, const std::string& who, const Tensor& y, int64_t index,
                          const Tensor& exact_y, const Trace& exact_trace, const Model* model) {
  std::string text;
  const std::string expected = ElementText(exact_y, index), actual = ElementText(y, index);
  if (expected == actual) {
    text += fmt::format("  {}: {} (exact here", who, actual);
    const std::optional<Divergence> elsewhere = FirstDivergence(exact_y, y);
    text += elsewhere ? fmt::format("; departs first at index {})\n", elsewhere->index) : ")\n";
    return text;
  }
  text += fmt::format("  {}: {}, exact is {}\n", who, actual, expected);
  if (model != nullptr) {
    const Trace trace = model->trace(c, index);
    size_t shown = 0;
    text += ToFirstDivergence(exact_trace, trace, &shown);
    for (size_t i = shown; i < trace.size(); ++i) text += StepLine(trace[i]);
    return text;
  }
  const Attribution attribution = Attribute(c, y);
  text +=
      "    cause: " + attribution.diagnosis + " (" + std::string(Name(attribution.kind)) + ")\n";
  for (const std::string& line : attribution.evidence) text += "    evidence: " + line + "\n";
  if (attribution.kind == FindingKind::kPairSaturation) text += PairLines(c, index);
  const std::vector<std::string> models = BitEqualModels(c, y);
  if (!models.empty()) text += "    bit-equal to: " + Joined(models) + "\n";
  return text;
}

// "model:NAME" -> NAME, else "".
std::string_view ModelName(std::string_view subject) {
  return subject.starts_with("model:") ? subject.substr(6) : std::string_view();
}

}  // namespace

std::string Explain(const Case& c, const std::vector<Subject*>& subjects,
                    const ExplainOptions& options) {
  const Tensor exact_y = exact::Evaluate(c);
  std::string text = Describe(c) + "\n";
  if (exact_y.empty()) return text + "  the output is empty\n";

  struct Answer {
    std::string who;
    Tensor y;
    const Model* model;
  };
  std::vector<Answer> answers;
  std::string skipped;
  if (c.observed) answers.push_back({"observed (" + c.observed->by + ")", c.observed->y, nullptr});
  for (Subject* subject : subjects) {
    const std::string who(subject->name());
    const std::string reason = subject->CannotRun(c);
    if (!reason.empty()) {
      skipped += fmt::format("  {}: skipped, {}\n", who, reason);
      continue;
    }
    const Outcome outcome = subject->Run(c, RunContext{});
    if (!outcome.ok()) {
      skipped += fmt::format("  {}: {}, {}\n", who, Name(outcome.status), outcome.detail);
      continue;
    }
    answers.push_back({who, outcome.y, FindModel(ModelName(who))});
  }

  int64_t index = options.index;
  for (const Answer& answer : answers) {
    if (index >= 0) break;
    if (const auto divergence = FirstDivergence(exact_y, answer.y)) index = divergence->index;
  }
  index = std::max<int64_t>(index, 0);

  const Trace exact_trace = exact::Derive(c, index);
  text += fmt::format("{}, exact: {}\n", Where(c, index), ElementText(exact_y, index));
  for (const TraceStep& step : exact_trace) text += StepLine(step);
  for (const Answer& answer : answers) {
    text += ExplainOutput(c, answer.who, answer.y, index, exact_y, exact_trace, answer.model);
  }
  text += skipped;
  if (c.observed) {
    const std::vector<std::string> models = BitEqualModels(c, c.observed->y);
    if (c.observed->y == exact_y) text += "  the observed output is the exact one\n";
    text += models.empty() ? "  no known convention produces the observed output\n"
                           : "  the observed output is bit-equal to: " + Joined(models) + "\n";
  }
  return text;
}

void Complete(Finding& finding, Subject& subject, const Verdict& verdict) {
  const Property* property = FindProperty(finding.property);
  Complete(finding, verdict,
           property == nullptr
               ? Attribute(finding.test_case, verdict, subject)
               : JudgeAndAttribute(*property, finding.test_case, subject).attribution);
}

void Complete(Finding& finding, const Verdict& verdict, const Attribution& attribution) {
  finding.kind = attribution.kind;
  finding.first_divergence = verdict.divergence;
  finding.explanation = verdict.reason;
  const auto add = [&](const std::string& text) {
    if (!text.empty() && text != verdict.reason) finding.explanation += "; " + text;
  };
  add(attribution.diagnosis);
  for (const std::string& line : attribution.evidence) add(line);
}

}  // namespace qualm::triage
