// SPDX-License-Identifier: Apache-2.0
// The exact derivation of one output, then each subject's, up to the first divergence.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "oracles/accepted.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/known_trees.h"
#include "oracles/exact/exact.h"
#include "oracles/headroom/headroom.h"
#include "triage/causes.h"
#include "triage/identify.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

std::string Where(const Case& c, int64_t index) {
  if (HasWindow(c.op)) {
    const int64_t m = index / c.N, w = c.window.out_w(), h = c.window.out_h();
    return fmt::format("output [image {}, row {}, column {}, channel {}] (index {})", m / w / h,
                       m / w % h, m % w, index % c.N, index);
  }
  if (c.codes) {
    const int64_t chosen = ChosenCount(c), value = index - 2 * chosen;
    if (value >= 0) return fmt::format("code of x[{}] (index {})", value, index);
    return fmt::format("{} of row {} (index {})", index < chosen ? "scale" : "zero point",
                       index % chosen, index);
  }
  const int64_t columns = c.output_shape().back();
  return fmt::format("output [{}, {}] (index {})", index / columns, index % columns, index);
}

std::string StepLine(const TraceStep& step) {
  return fmt::format("    {:<11} {}{}\n", Name(step.stage), step.lossy ? "* " : "  ", step.text);
}

// Which pixels lie under the window of an output, tap by tap; of a large kernel the first taps.
std::string WindowLines(const Case& c, int64_t index) {
  // Without channels no element is under any tap. Other operations have no channels here.
  if (c.window.in_c == 0) return "";
  constexpr size_t kMost = 32;
  const Window& v = c.window;
  const std::vector<Tap> taps = TapsOf(v, index / c.N);
  std::vector<std::string> inside, padding;
  for (const Tap& tap : taps) {
    if (tap.x_row < 0) {
      padding.push_back(fmt::format("({},{})", tap.r, tap.s));
      continue;
    }
    const int64_t pixel = tap.x_row / v.in_c;
    inside.push_back(
        fmt::format("({},{}) at [{},{}]", tap.r, tap.s, pixel / v.in_w % v.in_h, pixel % v.in_w));
  }
  const auto list = [kMost](const std::vector<std::string>& all) {
    const std::vector<std::string> some(
        all.begin(), all.begin() + static_cast<int64_t>(std::min(all.size(), kMost)));
    return fmt::format("{}{}", fmt::join(some, " "),
                       all.size() > kMost ? fmt::format(" ... ({} more)", all.size() - kMost) : "");
  };
  std::string text =
      fmt::format("    {:<11}   {} of {} taps (r,s) lie in the image: {}\n", "window",
                  inside.size(), taps.size(), inside.empty() ? "-" : list(inside));
  if (!padding.empty()) text += fmt::format("    {:<11}   in the padding: {}\n", "", list(padding));
  if (IsConv(c.op)) {
    const int64_t channels = v.in_c / v.groups, group = index % c.N / (c.N / v.groups);
    text += fmt::format("    {:<11}   input channels {}..{}\n", "", group * channels,
                        (group + 1) * channels - 1);
  }
  return text;
}

// A long sum may have thousands of pairs that saturate: the first ones show what happens.
constexpr size_t kMostPairs = 12;
std::string MorePairs(size_t count) { return fmt::format("    ... ({} more pairs)\n", count); }

std::string PairLines(const Case& c, int64_t index) {
  std::string text;
  const std::vector<headroom::Pair> pairs = headroom::SaturatingPairs(c, index / c.N, index % c.N);
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (i == kMostPairs) return text + MorePairs(pairs.size() - i);
    const headroom::Pair& pair = pairs[i];
    text += fmt::format("    pair k=({},{}): {}*{} + {}*{} = {} + {} = {} -> {}, lost {}\n", pair.k,
                        pair.k + 1, pair.x0, pair.w0, pair.x1, pair.w1, pair.x0 * pair.w0,
                        pair.x1 * pair.w1, pair.sum, pair.saturated, pair.lost());
  }
  return text;
}

// One output, and the subjects and conventions that gave it.
struct Answer {
  std::string who;
  Tensor y;
  const Convention* convention = nullptr;  // the first of them that is a convention
  bool observed = false;                   // and it was recorded, which comes before all others
  Subject* subject = nullptr;              // the first that gave it
};

// Whose arithmetic it is. A tree of a contract is none of the named ones.
std::string ConventionsLine(const Case& c, const Answer& answer) {
  std::string conventions = BitEqualConventions(c, answer.y);
  const Convention* const promised =
      answer.subject == nullptr ? nullptr : ModelOf(answer.subject->contract(c.op));
  if (conventions.empty() && promised != nullptr && promised->cannot_run(c).empty() &&
      promised->run(c).y == answer.y)
    conventions = promised->name;
  if (!conventions.empty()) return "    bit-equal to: " + conventions + "\n";
  return answer.observed ? "    bit-equal to no known convention\n" : "";
}

// That float32 sums may give all of these outputs: by the contract of the subject or of the case,
// or, if neither has one and the sum is of blocks or of real numbers, by contract sum. "" else.
std::string AcceptedSums(const Case& c, const Answer& answer) {
  std::vector<Contract> contracts;
  if (answer.subject != nullptr) contracts.push_back(answer.subject->contract(c.op));
  if (!c.contract.empty()) contracts.push_back(ParseContract(c.contract));
  if (contracts.empty() && (c.w_block != 0 || HasFloatX(c)))
    contracts = {ParseContract("sum"), ParseContract("sum+offsets")};
  for (const Contract& contract : contracts) {
    if (!contract.adds_floats() || !WhyNotJudged(contract, c).empty()) continue;
    const Accepted accepted = AcceptedBy(contract, c);
    if (accepted.undecided() == answer.y.size() || accepted.First(answer.y)) continue;
    if (contract.is_tree()) return "    bit-equal to: " + contract.text() + "\n";
    std::string text = fmt::format(
        "    accepted: float32 sums in some order may give every output (contract {})\n",
        contract.text());
    const auto trees = conventions::TreesThatGive(c, answer.y);
    if (!trees.empty())
      text += "    along a known summation tree: " + conventions::TextOf(trees) + "\n";
    return text;
  }
  return "";
}

std::string CauseLines(const Attribution& attribution) {
  std::string text =
      fmt::format("    cause: {} [{}]\n", attribution.diagnosis, Name(attribution.kind));
  for (const std::string& line : attribution.evidence) text += "    evidence: " + line + "\n";
  return text;
}

// Adds what there is to say of the answer.
void ExplainAnswer(const Case& c, const Answer& answer, int64_t index, const Tensor& exact_y,
                   const Attribution* known, Explained& explained) {
  std::string& all = explained.text;
  const std::string expected = ElementText(exact_y, index), actual = ElementText(answer.y, index);
  const std::optional<Divergence> departs = FirstDivergence(exact_y, answer.y);
  std::string text = fmt::format("  {}: {}", answer.who, actual);
  if (!departs) {
    text += exact_y.size() == 1 ? ", exact\n" : ", all outputs exact\n";
    all += answer.observed ? text + ConventionsLine(c, answer) : text;
    return;
  }
  text += expected == actual
              ? fmt::format(", exact here; departs first at index {}\n", departs->index)
              : fmt::format(", exact is {}\n", expected);
  if (const std::string accepted = AcceptedSums(c, answer); !accepted.empty()) {
    all += text + accepted;
    explained.accepted.push_back(answer.y);
    return;
  }
  // What the contract alone gives accuses nobody: its steps say why.
  const bool promised_only = answer.subject == nullptr && !answer.observed;
  const Attribution attribution = promised_only               ? Attribution{}
                                  : answer.subject == nullptr ? Attribute(c, answer.y)
                                  : known != nullptr          ? *known
                                                     : Attribute(c, answer.y, *answer.subject);
  // Of an answer that a known arithmetic gives, the steps of that arithmetic.
  const Convention* convention = answer.convention;
  for (const Cause* cause : attribution.causes)
    if (convention == nullptr) convention = cause->convention;
  bool pairs_shown = false;
  if (convention != nullptr && expected != actual) {
    size_t pairs = 0;
    for (const TraceStep& step : convention->trace(c, index)) {
      const bool pair = step.text.starts_with("pair ");
      pairs += pair ? 1 : 0;
      if (!pair && pairs > kMostPairs) text += MorePairs(pairs - kMostPairs);
      if (!pair) pairs = 0;
      if (pairs <= kMostPairs) text += StepLine(step);
      pairs_shown |= step.stage == Stage::kAccumulate && step.lossy;
    }
  }
  if (promised_only) {
    all += text + ConventionsLine(c, answer);
    return;
  }
  text += CauseLines(attribution);
  if (attribution.kind == FindingKind::kPairSaturation && !pairs_shown) {
    text += PairLines(c, index);
  }
  all += text + ConventionsLine(c, answer);
  explained.wrong.push_back({answer.y, attribution});
}

// "model:NAME" -> NAME, else "".
std::string_view ConventionName(std::string_view subject) {
  return subject.starts_with("model:") ? subject.substr(6) : std::string_view();
}

}  // namespace

const Attribution* Explained::Of(const Tensor& y) const {
  const auto answer = std::ranges::find(wrong, y, &Answer::y);
  return answer == wrong.end() ? nullptr : &answer->attribution;
}

std::string Explain(const Case& c, const std::vector<Subject*>& subjects,
                    const ExplainOptions& options) {
  return ExplainAnswers(c, subjects, options).text;
}

Explained ExplainAnswers(const Case& c, const std::vector<Subject*>& subjects,
                         const ExplainOptions& options) {
  const Tensor exact_y = exact::Evaluate(c);
  Explained explained;
  std::string& text = explained.text;
  text = Describe(c) + "\n";
  if (exact_y.empty()) {
    text += "  the output is empty\n";
    return explained;
  }

  std::vector<Answer> answers;
  const auto add = [&](Answer answer) {
    for (Answer& known : answers) {
      if (known.y != answer.y) continue;
      known.who += ", " + answer.who;
      if (known.convention == nullptr) known.convention = answer.convention;
      if (known.subject == nullptr) known.subject = answer.subject;
      return;
    }
    answers.push_back(std::move(answer));
  };
  std::string skipped;
  if (c.observed) {
    add({"observed (" + c.observed->by + ")", c.observed->y, nullptr, true, nullptr});
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
    if (!c.HoldsOutput(outcome.y)) {
      skipped += fmt::format("  {}: the answer has the wrong type or shape\n", who);
      continue;
    }
    add({who, std::move(outcome.y), FindConvention(ConventionName(who)), false, subject});
  }

  // What the claim of the case was judged by, and its steps.
  const Convention* const promised = ModelOf(c);
  if (promised != nullptr && promised->cannot_run(c).empty())
    add({c.contract, promised->run(c).y, promised, false, nullptr});

  int64_t index = options.index;
  for (const Answer& answer : answers) {
    if (index >= 0) break;
    if (const auto divergence = FirstDivergence(exact_y, answer.y)) index = divergence->index;
  }
  index = std::max<int64_t>(index, 0);

  text += fmt::format("{}, exact: {}\n", Where(c, index), ElementText(exact_y, index));
  text += WindowLines(c, index);
  for (const TraceStep& step : exact::Derive(c, index)) text += StepLine(step);
  for (const Answer& answer : answers)
    ExplainAnswer(c, answer, index, exact_y, options.attribution, explained);
  text += skipped;
  return explained;
}

}  // namespace qualm::triage
