// SPDX-License-Identifier: Apache-2.0
// Greedy descent in the order of Complexity: a candidate is taken if it is simpler, still fails the
// same property, and fails by a cause that was named for the given case, or left open there.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/rng.h"
#include "properties/adapt.h"
#include "properties/gen/gen.h"
#include "triage/causes.h"
#include "triage/complexity.h"
#include "triage/passes.h"
#include "triage/reduce.h"
#include "triage/restart.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

// Counts the runs of a subject, which are what minimization costs, and refuses more than allowed.
class CountingSubject : public ForwardingSubject {
 public:
  CountingSubject(Subject& inner, const MinimizeOptions& options)
      : ForwardingSubject(inner),
        limit_(options.max_calls - Reserve(options.max_calls)),
        stop_(options.stop),
        told_(options.progress) {}
  // Raises the limit for the questions about the smallest case.
  void SpendReserve(int64_t max_calls) { limit_ = max_calls; }
  Outcome Run(const Case& c, const RunContext& context) override {
    if (spent()) return {RunStatus::kSkipped, "the call budget is spent", {}, {}};
    ++calls_;
    if (told_) told_(calls_);
    return inner().Run(c, context);
  }
  // Each case is a call.
  std::vector<Outcome> RunMany(std::span<const Case> cases, const RunContext& context) override {
    return Subject::RunMany(cases, context);
  }
  int64_t calls() const { return calls_; }
  bool spent() const { return calls_ >= limit_ || (stop_ && stop_()); }

 private:
  static int64_t Reserve(int64_t max_calls) { return std::min<int64_t>(64, max_calls / 8); }

  int64_t limit_;
  std::function<bool()> stop_;
  std::function<void(int64_t)> told_;
  int64_t calls_ = 0;
};

// Features of the original case that `best` fails without, and with (as far as they fit into it): a
// zero point of 0 may be what differs from the other operand's.
std::vector<std::string> Irrelevant(const Case& original, const Case& best, const Holds& fails) {
  std::vector<std::string> list;
  const Case simplest = SimplestParameters(best);
  std::vector<bool> open;
  ForEachParameter(best, simplest,
                   [&](const Field& /*field*/, const auto& value, const auto& least) {
                     open.push_back(value == least);
                   });
  const auto with_parameter = [&](size_t parameter) {
    Case with = best;
    size_t i = 0;
    ForEachParameter(with, original, [&](const Field& /*field*/, auto& put, const auto& had) {
      if (i++ != parameter) return;
      put = had;
      if constexpr (requires { put->resize(0); }) put->resize(static_cast<size_t>(with.N));
    });
    return with;
  };
  size_t at = 0;
  ForEachParameter(original, simplest,
                   [&](const Field& field, const auto& value, const auto& least) {
                     const size_t parameter = at++;
                     if (open[parameter] && value != least && fails(with_parameter(parameter)))
                       list.emplace_back(field.name);
                   });
  if (original.per_channel && !best.per_channel) list.push_back("per-channel scales");
  const auto is_not_0 = [](int32_t zero_point) { return zero_point != 0; };
  const auto add_zero_point = [&](QParams Case::* of, const char* name) {
    const auto& had = (original.*of).zero_point;
    const auto first = std::ranges::find_if(had, is_not_0);
    if (first == had.end() || std::ranges::any_of((best.*of).zero_point, is_not_0)) return;
    // It may matter whether it is another one's.
    std::vector<int32_t> values{*first};
    for (const QParams* other : {&best.x_q, &best.w_q, &best.out_q})
      values.insert(values.end(), other->zero_point.begin(), other->zero_point.end());
    for (int32_t put : values) {
      Case with = best;
      std::ranges::fill((with.*of).zero_point, put);
      if (!fails(with)) return;
    }
    list.push_back(name);
  };
  add_zero_point(&Case::x_q, "input zero point");
  add_zero_point(&Case::w_q,
                 HasTwoInputs(best.op) ? "zero point of the second operand" : "weight zero point");
  add_zero_point(&Case::out_q, "output zero point");
  if (original.M > best.M) list.push_back("other rows");
  if (original.N > best.N) list.push_back("other channels");
  if (original.K > best.K)
    list.push_back(HasSums(best) ? "other terms of the sum" : "other values of the input");
  return list;
}

class Descent {
 public:
  Descent(Case start, Subject& subject, const Property& property, const MinimizeOptions& options)
      : counting_(subject, options),
        memo_(counting_),
        property_(property),
        options_(options),
        best_(std::move(start)) {}

  bool Begin() {
    Judged judged = JudgeStart(memo_);
    for (int i = 1; i < kMostAsked && judged.verdict.judgement == Judgement::kPassed; ++i)
      judged = JudgeStart(counting_);
    verdict_ = std::move(judged.verdict);
    attribution_ = std::move(judged.attribution);
    if (!attribution_.complete) {
      for (const Hypothesis& causes : attribution_.open) keep_.push_back(Named(best_.op, causes));
    } else {
      // If two faults show together, a candidate that shows one of them is enough.
      for (const Cause* cause : attribution_.causes) keep_.push_back(Named(best_.op, {cause}));
      // A named arithmetic departs in several ways: the descent keeps to the way that was told.
      if (attribution_.causes.size() == 1 && attribution_.causes.front()->convention != nullptr) {
        for (const Cause& cause : AllCauses()) {
          if (!cause.of_family && cause.kind == attribution_.kind && cause.is_arithmetic())
            ways_.push_back(Named(best_.op, {&cause}));
        }
      }
    }
    if (!verdict_.failed()) return false;
    flaky_ = attribution_.kind == FindingKind::kNondeterminism && Varies();
    return true;
  }
  bool flaky() const { return flaky_; }
  void KeepUnambiguous() { unambiguous_ = true; }

  void Run() {
    constexpr int kMostRestarts = 2;
    if (!ways_.empty()) {
      std::swap(keep_, ways_);
      const Case start = best_;
      Descend(options_.max_calls / 2);
      if (best_ == start) std::swap(keep_, ways_);
    }
    // Half of the calls are kept for the descent from a case that is already small.
    bool ended = Descend(options_.max_calls / 2);
    for (int i = 0; i < kMostRestarts && !counting_.spent() && Restart(); ++i)
      ended = Descend(options_.max_calls);
    if (!ended) Descend(options_.max_calls);
  }

  const Case& best() const { return best_; }
  const Verdict& verdict() const { return verdict_; }
  const Attribution& attribution() const { return attribution_; }
  int64_t calls() const { return counting_.calls(); }
  // Whether every pass has tried to get below the remaining sizes.
  bool ended() const { return tried_below_ == SizesOf(best_); }

  // Sizes below which no candidate failed, nor any drawn case of these types: the passes do not try
  // all. A size of one or two is not worth a word.
  std::vector<std::string> Needs() {
    constexpr int64_t kFew = 2;
    constexpr uint64_t kSeed = 20261129, kMostDrawn = 400;
    constexpr int kMostJudged = 16;
    struct Size {
      const char* name;
      int64_t Case::* of;
      int judged = 0;
    };
    if (HasWindow(best_.op) || RowOf(best_.op).qparams) return {};
    counting_.SpendReserve(options_.max_calls);
    std::vector<Size> sizes{{"K", &Case::K}, {"N", &Case::N}, {"M", &Case::M}};
    std::erase_if(sizes, [&](const Size& size) { return best_.*size.of <= kFew; });
    for (uint64_t i = 0; i < kMostDrawn && !counting_.spent(); ++i) {
      const auto open = [&](const Size& size) { return size.judged < kMostJudged; };
      if (std::ranges::none_of(sizes, open)) break;
      const std::optional<Case> c = AdaptTo(memo_, gen::Draw(best_.op, MixSeed(kSeed, i)));
      if (!c || c->M * c->N == 0 || c->x.dtype() != best_.x.dtype() ||
          c->w.dtype() != best_.w.dtype() || c->out_dtype != best_.out_dtype)
        continue;
      const auto below = [&](const Size& size) {
        return open(size) && (*c).*size.of < best_.*size.of;
      };
      if (std::ranges::none_of(sizes, below)) continue;
      if (Judge(property_, *c, memo_).failed()) {
        std::erase_if(sizes, below);
        continue;
      }
      for (Size& size : sizes) size.judged += below(size) ? 1 : 0;
    }
    std::vector<std::string> needs;
    if (counting_.spent()) return needs;
    for (const Size& size : sizes)
      needs.push_back(fmt::format("{} >= {}", size.name, best_.*size.of));
    return needs;
  }

  std::vector<std::string> Irrelevant(const Case& original) {
    counting_.SpendReserve(options_.max_calls);
    return triage::Irrelevant(original, best_, [&](const Case& with) {
      return !Validate(with).empty() || Judge(property_, with, memo_).failed();
    });
  }

  // Does `candidate` fail the same property for the same reason? A subject that answers by chance
  // is asked several times.
  bool Fails(const Case& candidate, Judged* judged) {
    if (!flaky_) return FailsOnce(candidate, memo_, judged);
    for (int i = 0; i < kMostAsked; ++i) {
      if (FailsOnce(candidate, counting_, judged)) return true;
    }
    return false;
  }

  // A small case may show a cause that the large case hides; the cause must fit the large case too.
  Attribution OfTheBest(const Case& original, const Attribution& begun) {
    counting_.SpendReserve(options_.max_calls);
    AttributionOptions how;
    // What is ruled out alone may be one of two causes.
    if (begun.causes.size() < 2) how.contradicted = begun.contradicted;
    how.established = options_.established;
    how.examine = true;
    Attribution found = JudgeAndAttribute(property_, best_, memo_, how).attribution;
    if (found.causes.empty() || IsBorneOut(original, memo_, found.causes)) return found;
    // The cause of another fault gave the small case by chance.
    how.established = {};
    if (!options_.established.empty()) {
      Attribution again = JudgeAndAttribute(property_, best_, memo_, how).attribution;
      if (again.of_subject) return again;
    }
    found.diagnosis = "it could be that " + found.diagnosis + ", but not in the case found";
    found.kind = FindingKind::kUnknown;
    found.complete = false;
    found.doubted = true;
    found.contradicted.push_back(std::move(found.causes));
    found.causes.clear();
    return found;
  }

  bool IsAmbiguous(const Case& candidate) {
    AttributionOptions how;
    how.probe_state = false;
    return JudgeAndAttribute(property_, candidate, memo_, how).attribution.ambiguous;
  }

 private:
  // An answer that is wrong once in five times is right this often in a row once in 35 times.
  static constexpr int kMostAsked = 16;

  Judged JudgeStart(Subject& subject) {
    AttributionOptions how;
    how.established = options_.established;
    how.examine = true;
    if (options_.attribution == nullptr) return JudgeAndAttribute(property_, best_, subject, how);
    return {Judge(property_, best_, subject), *options_.attribution};
  }

  // Is the start judged differently when it is judged again and again?
  bool Varies() {
    for (int i = 0; i < kMostAsked; ++i) {
      const Verdict again = Judge(property_, best_, counting_);
      if (again.judgement == Judgement::kPassed) return true;
    }
    return false;
  }

  bool FailsOnce(const Case& candidate, Subject& subject, Judged* judged) {
    AttributionOptions how;
    how.established = keep_;
    how.only_established = true;
    const bool rerun =
        attribution_.complete && attribution_.causes.empty() && !attribution_.of_subject;
    how.probe_state = rerun;
    *judged = JudgeAndAttribute(property_, candidate, subject, how);
    if (!judged->verdict.failed()) return false;
    if (!options_.keep_kind) return true;
    const Attribution& found = judged->attribution;
    if (rerun) return found.kind == attribution_.kind;
    if (keep_.empty()) return !found.complete;
    return !found.causes.empty() && (!unambiguous_ || !IsAmbiguous(candidate));
  }

  // Until no pass helps (true), or `most` calls were made.
  bool Descend(int64_t most) {
    most_ = most;
    bool improved = true;
    while (improved) {
      improved = false;
      for (const Pass pass : AllPasses()) {
        while (Step(pass)) improved = true;
      }
      if (!enough()) tried_below_ = SizesOf(best_);
    }
    return !enough();
  }
  bool enough() const { return counting_.spent() || counting_.calls() >= most_; }

  // Takes a simpler case that no pass offers, if a cause is known and the subject fails there too.
  bool Restart() {
    const Holds possible = [&](const Case& c) { return memo_.CannotRun(c).empty(); };
    const Convention* const model = ModelOf(memo_.contract(best_.op));
    if (keep_.empty()) return false;
    for (Case& candidate : Restarts(best_, keep_.front().causes, model, possible)) {
      Judged judged;
      if (!Fails(candidate, &judged)) continue;
      Take(std::move(candidate), std::move(judged));
      return true;
    }
    return false;
  }

  // Offers the pass's candidates; true if one was taken.
  bool Step(Pass pass) {
    Judged judged;
    const auto fails = [&](const Case& candidate) { return Fails(candidate, &judged); };
    std::optional<Case> next = reduction_.Step(pass, best_, fails, [&] { return enough(); });
    if (!next) return false;
    Take(std::move(*next), std::move(judged));
    return true;
  }
  void Take(Case simpler, Judged judged) {
    best_ = std::move(simpler);
    verdict_ = std::move(judged.verdict);
    attribution_ = std::move(judged.attribution);
  }

  using Sizes = std::array<int64_t, 3>;
  static Sizes SizesOf(const Case& c) { return {c.M, c.N, c.K}; }

  CountingSubject counting_;
  MemoSubject memo_;
  const Property& property_;
  const MinimizeOptions options_;
  std::vector<Attribution> keep_;  // the failure of each step is explained by one of these
  std::vector<Attribution> ways_;  // in which a named arithmetic departs
  bool unambiguous_ = false;       // and by no cause of another kind
  bool flaky_ = false;             // the same question is answered differently
  Case best_;
  Verdict verdict_;
  Attribution attribution_;
  Reduction reduction_;
  int64_t most_ = 0;  // calls, of the descent under way
  std::optional<Sizes> tried_below_;
};

}  // namespace

MinimizeResult Minimize(const Case& c, Subject& subject, const Property& property,
                        const MinimizeOptions& options) {
  auto descent = std::make_unique<Descent>(ProblemOf(c), subject, property, options);
  MinimizeResult result;
  if (!descent->Begin()) {
    result.minimized = c;
    result.verdict = descent->verdict();
    result.calls = descent->calls();
    result.reproduced = false;
    return result;
  }
  const Attribution begun = descent->attribution();
  descent->Run();
  const bool by_cause = begun.causes.size() == 1;
  const bool ambiguous =
      by_cause && descent->IsAmbiguous(descent->best()) && !descent->IsAmbiguous(c);
  result.calls = descent->calls();
  bool ended = descent->ended();
  if (ambiguous) {
    // An output one lsb off fits many causes. A case of the same size that fits only one is better.
    MinimizeOptions rest = options;
    rest.max_calls = options.max_calls - result.calls;
    rest.attribution = &begun;
    auto clear = std::make_unique<Descent>(ProblemOf(c), subject, property, rest);
    clear->KeepUnambiguous();
    if (clear->Begin()) clear->Run();
    result.calls += clear->calls();
    if (clear->verdict().failed() && SameSize(clear->best(), descent->best())) {
      ended = clear->ended();
      descent = std::move(clear);
    }
  }
  result.minimized = descent->best();
  result.verdict = descent->verdict();
  result.attribution = by_cause || begun.of_subject ? begun : descent->attribution();
  if (!begun.complete || begun.causes.size() > 1 || begun.asked_on) {
    const int64_t before = descent->calls();
    result.attribution = descent->OfTheBest(c, begun);
    result.calls += descent->calls() - before;
    if (begun.asked_on && !result.attribution.asked_on) result.attribution = begun;
    // What was shown stays shown, if the smallest case says less.
    if (!result.attribution.complete && begun.complete && IsBorneOut(c, subject, begun.causes))
      result.attribution = begun;
  }
  const int64_t asked_before = descent->calls();
  result.irrelevant = descent->Irrelevant(c);
  if (ended) result.needs = descent->Needs();
  result.calls += descent->calls() - asked_before;

  result.minimized.property = FullName(c.op, property);
  const Contract& contract = subject.contract(c.op);
  result.minimized.contract = contract.text();
  const bool of_model = property.claim == "matches_model";
  result.minimized.expected = RightOutput(result.minimized, of_model ? ModelOf(contract) : nullptr);
  // Runs even beyond the budget, so that the reproducer always says what was seen: of a subject
  // that answers by chance, a wrong answer.
  const int most_runs = descent->flaky() ? 32 : 1;
  for (int run = 0; run < most_runs; ++run) {
    const Outcome outcome = subject.Run(ProblemOf(result.minimized), RunContext{});
    if (!outcome.ok() || !result.minimized.HoldsOutput(outcome.y)) continue;
    result.minimized.observed = Observed{std::string(subject.name()), outcome.y};
    if (!subject.Version().empty()) result.minimized.observed->by += " " + subject.Version();
    if (outcome.y != result.minimized.expected) break;
  }
  // A smaller case that fails outside the condition refutes it. (A claim may fail on a derived
  // case.)
  Attribution& told = result.attribution;
  const bool fails_itself =
      result.minimized.observed && result.minimized.observed->y != result.minimized.expected;
  if (fails_itself && !told.where.holds(result.minimized)) {
    // Outside of it other answers contradicted the cause: it is kept if it alone explains this case
    // and what is asked near it.
    const int64_t before = descent->calls();
    Attribution own = descent->OfTheBest(c, begun);
    result.calls += descent->calls() - before;
    if (own.causes == told.causes || own.of_subject) {
      told = std::move(own);
    } else {
      told = {};
      told.diagnosis = "no known cause gives every answer asked";
    }
  }
  // What lies outside of buffers, or is not written, is shown by no output.
  if (told.causes.empty() && !told.where.text.empty() && !told.where.holds(result.minimized))
    DropCondition(told);
  result.minimized.note = result.attribution.diagnosis;
  if (result.minimized.observed)
    result.minimized.observed->why = ExplanationOf(result.attribution, c.op);
  if (result.minimized.observed && !result.attribution.complete) {
    std::vector<Hypothesis> contradicted = begun.contradicted;
    contradicted.insert(contradicted.end(), told.contradicted.begin(), told.contradicted.end());
    result.minimized.observed->why.ruled_out = RuledOutText(result.minimized, contradicted);
  }
  return result;
}

}  // namespace qualm::triage
