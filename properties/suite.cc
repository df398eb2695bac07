// SPDX-License-Identifier: Apache-2.0
#include "properties/suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <span>
#include <utility>

#include "core/burst.h"
#include "core/forwarding_subject.h"
#include "core/io/case_json.h"
#include "core/io/short_path.h"
#include "core/status.h"
#include "properties/adapt.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "triage/identify.h"
#include "triage/triaged.h"

namespace qualm {
namespace {

// Draws per wanted case: sizes that the subject does not take cannot be adapted.
constexpr int64_t kDrawsPerCase = 32;
// Whoever takes none of so many takes hardly any.
constexpr int64_t kSurelyNone = 1000;
// For the cause of a failure, and again for the smallest case.
constexpr std::chrono::seconds kMostSeconds{60};
// A message shows a case up to this size; a larger case is named by its seed and number.
constexpr size_t kShownBytes = 8192;

// Keeps the answer to the drawn case in the default context for the next property. A failure to
// answer is not kept.
class KeepsAnswer : public ForwardingSubject {
 public:
  KeepsAnswer(Subject& inner, const Case& drawn, std::optional<Outcome>& kept)
      : ForwardingSubject(inner), drawn_(drawn), kept_(kept) {}
  Outcome Run(const Case& c, const RunContext& context) override {
    if (context != RunContext{} || !(c == drawn_)) return inner().Run(c, context);
    if (kept_) return *kept_;
    Outcome outcome = inner().Run(c, context);
    if (outcome.ok()) kept_ = outcome;
    return outcome;
  }

 private:
  const Case& drawn_;
  std::optional<Outcome>& kept_;
};

// A subject that is not exact may compute as somebody's arithmetic does: which contract fits then.
// "" where none does.
std::string FittingContract(const Case& failed, std::span<const Case> cases, Subject& subject) {
  constexpr size_t kMostAsked = 100;
  std::vector<triage::ObservedCase> answers;
  const auto ask = [&](const Case& c) {
    const Outcome outcome = subject.Run(c, RunContext{});
    if (!outcome.ok() || !c.HoldsOutput(outcome.y)) return false;
    answers.push_back({"", ProblemOf(c)});
    answers.back().c.observed = Observed{std::string(subject.name()), outcome.y};
    return true;
  };
  if (!ask(failed)) return "";
  for (const Case& c : cases.first(std::min(cases.size(), kMostAsked - 1)))
    if (!ask(c)) return "";
  const triage::Fitting fitting = triage::FittingOf(
      triage::IdentifyObserved(answers, triage::AllConventionsAndExact().subspan(1)).front());
  if (fitting.names.empty()) return "";
  return fmt::format(
      "contract: not exact, but the arithmetic of {} ({}).\n  If that is what it should compute, "
      "judge it by that: contract=\"model:{}\"\n",
      FewNames(fmt::format("{}", fmt::join(fitting.names, ", "))), fitting.text,
      fitting.names.front());
}

SuiteResult Failure(const Property& property, Op op, Finding finding, Subject& subject,
                    const SuiteOptions& options, std::span<const Case> cases,
                    std::vector<triage::Attribution>& established) {
  const Case failed = ProblemOf(finding.test_case);
  const auto late = [] {
    return [end = std::chrono::steady_clock::now() + kMostSeconds] {
      return std::chrono::steady_clock::now() > end;
    };
  };
  triage::Triaged triaged(std::move(finding), subject, nullptr, established, late());
  triaged.Minimize({.stop = late()});
  // The next claim that fails for the same reason is told in the same words, and asks less.
  if (triaged.sure()) triage::Establish(triaged.attribution(), established);
  SuiteResult result{
      Judgement::kFailed,
      fmt::format("{}: {}\n{}", FullName(op, property), property.sentence, triaged.Text()),
      triaged.finding().kind,
      triaged.small() ? triaged.small()->minimized : triaged.finding().test_case};
  if (Compares(property) && subject.contract(op).exact())
    result.text += FittingContract(failed, cases, subject);
  const Case& shown = *result.smallest;
  const std::string json = CaseToJson(shown);
  result.text += json.size() <= kShownBytes
                     ? "\nthe case:\n" + json
                     : fmt::format("\nthe case ({}) is too large to show: seed {}, cases {}\n",
                                   Describe(shown), options.seed, options.cases);
  return result;
}

}  // namespace

Suite::Suite(Op op, MakeOwnSubject make, SuiteOptions options)
    : op_(op),
      make_(std::move(make)),
      options_(std::move(options)),
      established_(std::make_unique<std::vector<triage::Attribution>>()) {}

Suite::~Suite() = default;

void Suite::Prepare() {
  if (subject_) return;
  if (!refused_.empty()) throw InputError(refused_);
  AddOwnSubject(make_);
  std::unique_ptr<Subject> subject = make_();
  if (!options_.contract.empty())
    subject->set_contracts(ParseContracts(options_.contract).Over(subject->contracts()));
  subject->set_contract(subject->contract(op_));
  const Contracts of_the_op{std::nullopt, {{op_, subject->contract(op_)}}};
  if (const std::string why = WrongContracts(of_the_op); !why.empty())
    throw InputError("subject '" + std::string(subject->name()) + "': " + why);
  std::map<std::string, int64_t> reasons;
  const auto wanted = static_cast<size_t>(std::max<int64_t>(options_.cases, 1));
  const int64_t most = kDrawsPerCase * options_.cases;
  int64_t i = 0;
  for (; i < most && cases_.size() < wanted; ++i) {
    if (i == kSurelyNone && cases_.empty()) break;
    const Case drawn = gen::Draw(op_, CaseSeed(options_.seed, op_, i));
    if (std::optional<Case> taken = TakenBy(*subject, drawn)) {
      cases_.push_back(std::move(*taken));
    } else {
      ++reasons[WhyNot(*subject, drawn)];
    }
  }
  if (cases_.size() < std::max<size_t>(wanted / 10, 1)) {
    std::string why = "no case was asked for";
    int64_t often = 0;
    for (const auto& [reason, count] : reasons) {
      if (count > often) why = reason, often = count;
    }
    const size_t taken = std::exchange(cases_, {}).size();
    refused_ = fmt::format("subject '{}': takes only {} of {} cases drawn for {}, {}",
                           subject->name(), taken, i, Name(op_), why);
    throw InputError(refused_);
  }
  for (const Case& c : options_.first) {
    if (c.op == op_ && WhyNot(*subject, c).empty()) first_.push_back(ProblemOf(c));
  }
  usual_.resize(cases_.size());
  subject_ = std::move(subject);
}

SuiteResult Suite::Run(const Property& property) {
  Prepare();
  const std::string name = FullName(op_, property);
  CheckResult result;
  const Burst burst;
  for (const std::vector<Case>* cases : {&first_, &cases_}) {
    for (const Case& c : *cases) {
      std::optional<Outcome> none;
      const auto i = static_cast<size_t>(&c - cases->data());
      KeepsAnswer asked(*subject_, c, cases == &cases_ ? usual_[i] : none);
      CheckCase(c, {&asked}, name, result, {.findings_kept = 1});
      if (result.findings.empty()) continue;
      SuiteResult failure = Failure(property, op_, std::move(result.findings.front()), *subject_,
                                    options_, cases_, *established_);
      failure.judged = result.totals.judged();
      return failure;
    }
  }
  SuiteResult clean;
  clean.judged = result.totals.judged();
  if (result.totals.of(Judgement::kPassed) > 0) return clean;
  clean.judgement = Judgement::kVacuous;
  clean.text = "nothing was judged";
  int64_t most = 0;
  for (const auto& [key, count] : result.reasons) {
    if (count <= most) continue;
    most = count;
    clean.judgement = key.judgement;
    clean.text = fmt::format("{}: {}", Name(key.judgement), key.reason);
  }
  return clean;
}

}  // namespace qualm
