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

// One output, and everybody who gave it.
struct Answer {
  std::string who;
  Tensor y;
  const Model* model = nullptr;  // the first of them that is a model
  bool observed = false;
};

std::string ExplainAnswer(const Case& c, const Answer& answer, int64_t index,
                          const Tensor& exact_y) {
  const std::string expected = ElementText(exact_y, index), actual = ElementText(answer.y, index);
  const std::optional<Divergence> departs = FirstDivergence(exact_y, answer.y);
  std::string text = fmt::format("  {}: {}", answer.who, actual);
  if (!departs) return text + (exact_y.size() == 1 ? ", exact\n" : ", all outputs exact\n");
  text += expected == actual
              ? fmt::format(", exact here; departs first at index {}\n", departs->index)
              : fmt::format(", exact is {}\n", expected);
  bool pairs_shown = false;
  if (answer.model != nullptr && expected != actual) {
    for (const TraceStep& step : answer.model->trace(c, index)) {
      text += StepLine(step);
      pairs_shown |= step.stage == Stage::kAccumulate && step.lossy;
    }
  }
  const Attribution attribution = Attribute(c, answer.y);
  text += fmt::format("    cause: {} [{}]\n", attribution.diagnosis, Name(attribution.kind));
  for (const std::string& line : attribution.evidence) text += "    evidence: " + line + "\n";
  if (attribution.kind == FindingKind::kPairSaturation && !pairs_shown) {
    text += PairLines(c, index);
  }
  const std::string models = BitEqualModels(c, answer.y);
  if (!models.empty()) {
    text += "    bit-equal to: " + models + "\n";
  } else if (answer.observed) {
    text += "    bit-equal to no known convention\n";
  }
  return text;
}

// "model:NAME" -> NAME, else "".
std::string_view ModelName(std::string_view subject) {
  return subject.starts_with("model:") ? subject.substr(6) : std::string_view();
}

}  // namespace

std::string BitEqualModels(const Case& c, const Tensor& y) {
  std::vector<std::string> names;
  int variants = 0;
  for (const Model& model : AllModels()) {
    if (!model.cannot_run(c).empty() || model.run(c).y != y) continue;
    const std::string base = model.name.substr(0, model.name.find('+'));
    if (base != model.name && std::ranges::find(names, base) != names.end()) {
      ++variants;
    } else {
      names.push_back(model.name);
    }
  }
  std::string text = fmt::format("{}", fmt::join(names, ", "));
  if (variants != 0) text += fmt::format(" ({} variants too)", variants);
  return text;
}

std::string Explain(const Case& c, const std::vector<Subject*>& subjects,
                    const ExplainOptions& options) {
  const Tensor exact_y = exact::Evaluate(c);
  std::string text = Describe(c) + "\n";
  if (exact_y.empty()) return text + "  the output is empty\n";

  std::vector<Answer> answers;
  const auto add = [&](Answer answer) {
    for (Answer& known : answers) {
      if (known.y != answer.y) continue;
      known.who += ", " + answer.who;
      if (known.model == nullptr) known.model = answer.model;
      known.observed |= answer.observed;
      return;
    }
    answers.push_back(std::move(answer));
  };
  std::string skipped;
  if (c.observed) {
    add({"observed (" + c.observed->by + ")", c.observed->y, nullptr, true});
  }
  for (Subject* subject : subjects) {
    const std::string who(subject->name());
    const std::string reason = subject->CannotRun(c);
    if (!reason.empty()) {
      skipped += fmt::format("  {}: skipped, {}\n", who, reason);
      continue;
    }
    Outcome outcome = subject->Run(c, RunContext{});
    if (!outcome.ok()) {
      skipped += fmt::format("  {}: {}, {}\n", who, Name(outcome.status), outcome.detail);
      continue;
    }
    add({who, std::move(outcome.y), FindModel(ModelName(who)), false});
  }

  int64_t index = options.index;
  for (const Answer& answer : answers) {
    if (index >= 0) break;
    if (const auto divergence = FirstDivergence(exact_y, answer.y)) index = divergence->index;
  }
  index = std::max<int64_t>(index, 0);

  text += fmt::format("{}, exact: {}\n", Where(c, index), ElementText(exact_y, index));
  for (const TraceStep& step : exact::Derive(c, index)) text += StepLine(step);
  for (const Answer& answer : answers) text += ExplainAnswer(c, answer, index, exact_y);
  return text + skipped;
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
