// SPDX-License-Identifier: Apache-2.0
// Greedy descent in the order of Complexity: a candidate is taken if it is simpler, still fails the
// same property, and has a kind that fits. A kind that was shown is kept; one that was only guessed
// may change.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "oracles/exact/exact.h"
#include "triage/passes.h"
#include "triage/reduce.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

// Counts the runs of a subject, which are what minimization costs, and refuses more than allowed.
class CountingSubject : public ForwardingSubject {
 public:
  CountingSubject(Subject& inner, const MinimizeOptions& options)
      : ForwardingSubject(inner), limit_(options.max_calls), stop_(options.stop) {}
  Outcome Run(const Case& c, const RunContext& context) override {
    if (spent()) return {RunStatus::kSkipped, "the call budget is spent", {}, {}};
    ++calls_;
    return inner().Run(c, context);
  }
  // Each case is a call.
  std::vector<Outcome> RunMany(std::span<const Case> cases, const RunContext& context) override {
    return Subject::RunMany(cases, context);
  }
  int64_t calls() const { return calls_; }
  bool spent() const { return calls_ >= limit_ || (stop_ && stop_()); }

 private:
  int64_t limit_;
  std::function<bool()> stop_;
  int64_t calls_ = 0;
};

// Is the kind one that a smaller case must keep? One cause, or a rerun, showed it.
bool Binds(const Attribution& attribution) {
  return attribution.complete && attribution.causes.size() <= 1;
}

class Descent {
 public:
  // `unambiguous`: no step from a case with one possible kind to a case with several.
  Descent(Case start, Subject& subject, const Property& property, const MinimizeOptions& options,
          bool unambiguous)
      : counting_(subject, options),
        memo_(counting_),
        property_(property),
        keep_kind_(options.keep_kind),
        unambiguous_(unambiguous),
        best_(std::move(start)) {}

  bool Begin() {
    Judged judged = JudgeAndAttribute(property_, best_, memo_);
    verdict_ = std::move(judged.verdict);
    attribution_ = std::move(judged.attribution);
    return verdict_.failed();
  }

  void Run() {
    bool improved = true;
    while (improved && !counting_.spent()) {
      improved = false;
      for (const Pass pass : AllPasses()) {
        while (Step(pass)) improved = true;
      }
    }
  }

  const Case& best() const { return best_; }
  const Verdict& verdict() const { return verdict_; }
  const Attribution& attribution() const { return attribution_; }
  int64_t calls() const { return counting_.calls(); }

  // Does `candidate` fail the same property for the same reason?
  bool Fails(const Case& candidate, Judged* judged) {
    if (counting_.spent() || !memo_.CannotRun(candidate).empty()) return false;
    // The search for a pair of causes, or over long sums, costs more than a run of the subject.
    constexpr int64_t kLong = 4096;
    const bool slow =
        attribution_.causes.size() > 1 || candidate.M * candidate.N * candidate.K > kLong;
    AttributionOptions options;
    if (slow) options.hint = attribution_.causes;
    options.probe_state = attribution_.complete && attribution_.causes.empty();
    *judged = JudgeAndAttribute(property_, candidate, memo_, options);
    if (!judged->verdict.failed()) return false;
    if (!keep_kind_) return true;
    const Attribution& found = judged->attribution;
    if (Binds(attribution_)) {
      return found.complete && found.kind == attribution_.kind &&
             (!unambiguous_ || attribution_.ambiguous || !found.ambiguous);
    }
    return found.complete || (!attribution_.complete && found.kind == attribution_.kind);
  }

 private:
  // Offers the pass's candidates; true if one was taken.
  bool Step(Pass pass) {
    Judged judged;
    const auto fails = [&](const Case& candidate) { return Fails(candidate, &judged); };
    std::optional<Case> next =
        reduction_.Step(pass, best_, fails, [&] { return counting_.spent(); });
    if (!next) return false;
    best_ = std::move(*next);
    verdict_ = std::move(judged.verdict);
    attribution_ = std::move(judged.attribution);
    return true;
  }

  CountingSubject counting_;
  MemoSubject memo_;
  const Property& property_;
  bool keep_kind_;
  bool unambiguous_;
  Case best_;
  Verdict verdict_;
  Attribution attribution_;
  Reduction reduction_;
};

// What the original case had and the minimized one fails without.
std::vector<std::string> Irrelevant(const Case& original, const Case& best) {
  std::vector<std::string> list;
  const Case simplest = SimplestParameters(best);
  std::vector<bool> needed;
  ForEachParameter(best, simplest,
                   [&](const Field& /*field*/, const auto& value, const auto& least) {
                     needed.push_back(value != least);
                   });
  size_t at = 0;
  ForEachParameter(original, simplest,
                   [&](const Field& field, const auto& value, const auto& least) {
                     if (!needed[at++] && value != least) list.emplace_back(field.name);
                   });
  if (original.per_channel && !best.per_channel) list.push_back("per-channel scales");
  const auto nonzero = [](const QParams& q) {
    for (int32_t z : q.zero_point) {
      if (z != 0) return true;
    }
    return false;
  };
  if (nonzero(original.x_q) && !nonzero(best.x_q)) list.push_back("input zero point");
  if (nonzero(original.w_q) && !nonzero(best.w_q)) list.push_back("weight zero point");
  if (nonzero(original.out_q) && !nonzero(best.out_q)) list.push_back("output zero point");
  if (original.M > best.M) list.push_back("other rows");
  if (original.N > best.N) list.push_back("other channels");
  if (original.K > best.K) list.push_back("other terms of the sum");
  return list;
}

// Do both have as many parameters, outputs, rows and terms of the sum?
bool SameSize(const Case& a, const Case& b) {
  const std::vector<int64_t> x = Complexity(a), y = Complexity(b);
  return std::equal(x.begin(), x.begin() + 4, y.begin());
}

}  // namespace

MinimizeResult Minimize(const Case& c, Subject& subject, const Property& property,
                        const MinimizeOptions& options) {
  auto descent = std::make_unique<Descent>(ProblemOf(c), subject, property, options, false);
  MinimizeResult result;
  if (!descent->Begin()) {
    result.minimized = c;
    result.verdict = descent->verdict();
    result.calls = descent->calls();
    result.reproduced = false;
    return result;
  }
  const bool ambiguous_from_the_start = descent->attribution().ambiguous;
  descent->Run();
  result.calls = descent->calls();
  if (descent->attribution().ambiguous && !ambiguous_from_the_start) {
    // An output one lsb off fits many causes. A case of the same size that fits only one is better.
    MinimizeOptions rest = options;
    rest.max_calls = options.max_calls - result.calls;
    auto clear = std::make_unique<Descent>(ProblemOf(c), subject, property, rest, true);
    if (rest.max_calls > 0 && clear->Begin()) clear->Run();
    result.calls += clear->calls();
    if (clear->verdict().failed() && SameSize(clear->best(), descent->best())) {
      descent = std::move(clear);
    }
  }
  result.minimized = descent->best();
  result.verdict = descent->verdict();
  result.attribution = descent->attribution();
  if (!result.attribution.causes.empty()) {
    // Every cause that fits the small case, not only the one that led here.
    Attribution all = JudgeAndAttribute(property, result.minimized, subject).attribution;
    if (all.complete) result.attribution = std::move(all);
  }
  result.irrelevant = Irrelevant(c, result.minimized);

  result.minimized.property = FullName(c.op, property);
  result.minimized.expected = exact::Evaluate(result.minimized);
  if (subject.CannotRun(result.minimized).empty()) {
    // Beyond the budget, so that the reproducer always says what was seen.
    const Outcome outcome = subject.Run(ProblemOf(result.minimized), RunContext{});
    if (outcome.ok()) {
      result.minimized.observed = Observed{std::string(subject.name()), outcome.y};
      if (!subject.Version().empty()) result.minimized.observed->by += " " + subject.Version();
    }
  }
  result.minimized.note = result.attribution.diagnosis;
  return result;
}

}  // namespace qualm::triage
