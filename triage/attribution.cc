// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>

#include "core/contract.h"
#include "core/finding_kind.h"
#include "core/forwarding_subject.h"
#include "core/rng.h"
#include "core/slice.h"
#include "core/subject.h"
#include "oracles/exact/exact.h"
#include "properties/adapt.h"
#include "properties/gen/gen.h"
#include "properties/relation.h"
#include "properties/sweep.h"
#include "triage/ask.h"
#include "triage/causes.h"
#include "triage/code_length.h"
#include "triage/cover.h"
#include "triage/examine.h"
#include "triage/influence.h"
#include "triage/kept.h"
#include "triage/reads.h"
#include "triage/traits.h"
#include "triage/triage.h"
#include "triage/vary.h"
#include "triage/where.h"

namespace qualm::triage {
namespace {

struct Recorded {
  Case problem;
  RunContext context;
  Tensor y;
};

// Remembers what a subject was asked and answered while a property judged it.
class Recorder : public ForwardingSubject {
 public:
  using ForwardingSubject::ForwardingSubject;
  Outcome Run(const Case& c, const RunContext& context) override {
    constexpr size_t kMost = 64;  // no property asks about more different cases
    Outcome outcome = inner().Run(c, context);
    if (!outcome.ok() || recorded_.size() == kMost) return outcome;
    if (!c.HoldsOutput(outcome.y)) return outcome;
    Recorded record{ProblemOf(c), context, outcome.y};
    const bool known = std::ranges::any_of(recorded_, [&](const Recorded& r) {
      return r.context == record.context && r.y == record.y && r.problem == record.problem;
    });
    if (!known) recorded_.push_back(std::move(record));
    return outcome;
  }
  // Records each of the cases.
  std::vector<Outcome> RunMany(std::span<const Case> cases, const RunContext& context) override {
    return Subject::RunMany(cases, context);
  }

  // Answers of the right type and shape in the order of asking, without repetitions.
  const std::vector<Recorded>& recorded() const { return recorded_; }

 private:
  std::vector<Recorded> recorded_;
};

std::string Sentence(Op op, const Hypothesis& causes) {
  std::string text = "the subject ";
  for (size_t i = 0; i < causes.size(); ++i) {
    const bool place = causes[i]->stage == CauseStage::kPlace;
    text += (i == 0 ? "" : place ? ", " : " and ") + causes[i]->SentenceFor(op);
  }
  return text;
}

std::string Names(Op op, const Hypothesis& causes) { return NamesOf(causes, op); }

int64_t Work(const Case& c) { return c.M * c.N * std::max<int64_t>(1, c.K); }

Tensor RowsOf(const Tensor& tensor, const std::vector<int64_t>& rows) {
  const int64_t columns = tensor.shape()[1];
  Tensor selected(tensor.dtype(), {static_cast<int64_t>(rows.size()), columns});
  int64_t to = 0;
  for (const int64_t row : rows) selected.CopyFrom(tensor, row * columns, columns, columns * to++);
  return selected;
}

// A counterfactual compared with the subject's answer, output by output.
struct Agreement {
  int64_t departures = 0;  // outputs of the subject that are not exact
  int64_t explained = 0;   // departures that the counterfactual gives too
  int64_t spoiled = 0;     // exact outputs of the subject that the counterfactual gets wrong
};
Agreement Compare(const Tensor& exact_y, const Tensor& actual, const Tensor& replayed) {
  Agreement agreement;
  for (int64_t i = 0; i < exact_y.size(); ++i) {
    const bool right = actual.SameAt(i, exact_y);
    agreement.departures += right ? 0 : 1;
    agreement.explained += !right && actual.SameAt(i, replayed) ? 1 : 0;
    agreement.spoiled += right && !replayed.SameAt(i, exact_y) ? 1 : 0;
  }
  return agreement;
}

// A cause that reads other rows, or acts in rows of some numbers, does something else where there
// are fewer rows; so does a convention whose vectors go on from row to row. All other causes give a
// row the same output whatever rows stand beside it.
bool MindsOtherRows(const Cause* cause, Op op) {
  if (cause->convention != nullptr) return !Satisfies(*cause->convention, op, "row_independence");
  return cause->stage == CauseStage::kGeometry || cause->stage == CauseStage::kPlace ||
         cause->minds_other_rows;
}

// Whether a cause can do anything to the operation: whether it applies to some drawn case of it. Of
// two causes one may do nothing in the case at hand, but not in every case.
bool MayAct(const Cause& cause, Op op) {
  static std::array<std::once_flag, kOpCount> once;
  static std::array<std::set<const Cause*>, kOpCount> applying;
  const auto at = static_cast<size_t>(op);
  std::call_once(once.at(at), [&] {
    constexpr uint64_t kDrawn = 100;
    for (uint64_t seed = 0; seed < kDrawn; ++seed) {
      const Case c = gen::Draw(op, seed);
      for (const Cause& one : AllCauses())
        if (!applying.at(at).contains(&one) && one.applies(c)) applying.at(at).insert(&one);
    }
  });
  return applying.at(at).contains(&cause);
}

// One answer of the subject and its exact output. A smaller case of two rows rules out most
// combinations of causes quickly.
class Evidence {
 public:
  // `exact_y`: the right output, under the model if there is one.
  Evidence(const Case& c, const Tensor& actual, const Tensor& exact_y,
           const Convention* model = nullptr)
      : c_(c), actual_(actual), exact_y_(exact_y), model_(model) {
    for (int64_t i = 0; i < actual.size(); ++i) {
      if (actual.SameAt(i, exact_y)) continue;
      if (departures_++ == 0) first_ = i;
    }
    // The rows of M are no rows of x if they are pixels or belong to choose_qparams. Where scales
    // are chosen from x, a cause may let a row depend on all others.
    const bool rows_of_x = !HasWindow(c.op) && !RowOf(c.op).qparams;
    if (c.M <= 2 || departures_ == 0 || !rows_of_x) return;
    const int64_t row = first_ / c.N;
    const std::vector<int64_t> rows =
        row == 0 ? std::vector<int64_t>{0, c.M - 1} : std::vector<int64_t>{0, row};
    two_rows_ = slice::Rows(c, rows);
    actual_rows_ = RowsOf(actual, rows);
  }

  int64_t departures() const { return departures_; }
  const Tensor& actual() const { return actual_; }
  bool LooksFor(const Cause& cause) const { return cause.IsLookedFor(c_); }
  // Beside another cause.
  bool LooksForBeside(const Cause& cause) const {
    return LooksFor(cause) && (cause.applies(c_) || MayAct(cause, c_.op));
  }
  // The whole case, or two rows of it if it is long; and what the subject answered.
  const Case& SmallCase() const { return IsCutDown() ? *two_rows_ : c_; }
  const Tensor& ActualOfSmallCase() const { return IsCutDown() ? actual_rows_ : actual_; }

  bool Reproduced(const Hypothesis& causes) const {
    const auto minds = [&](const Cause* cause) { return MindsOtherRows(cause, c_.op); };
    if (two_rows_ && std::ranges::none_of(causes, minds)) {
      work_ += WorkOf(*two_rows_);
      const std::optional<Tensor> y = Counterfactual(*two_rows_, causes, model_);
      if (y.value_or(actual_rows_) != actual_rows_) return false;
    }
    work_ += WorkOf(c_);
    return Counterfactual(c_, causes, model_) == actual_;
  }

  // The places in which the cause gives every output that is not exact, while the subject is exact
  // everywhere else. Where the cause gives the whole output: the tails that hold all of it, as the
  // columns of a narrow case may all belong to the last N % 8.
  std::vector<const Cause*> PlacesOf(const Cause& cause) const {
    if (two_rows_ && !MindsOtherRows(&cause, c_.op)) {
      work_ += WorkOf(*two_rows_);
      const std::optional<Tensor> y = Counterfactual(*two_rows_, cause, model_);
      const Tensor exact_y = RightOutput(*two_rows_, model_);
      if (y) {
        const Agreement of_rows = Compare(exact_y, actual_rows_, *y);
        if (of_rows.explained < of_rows.departures) return {};
      }
    }
    work_ += WorkOf(c_);
    const std::optional<Tensor> y = Counterfactual(c_, cause, model_);
    if (!y) return {};
    const Agreement agreement = Compare(exact_y_, actual_, *y);
    if (agreement.explained < agreement.departures) return {};
    std::vector<const Cause*> places;
    for (const Cause& place : AllPlaces()) {
      if (agreement.spoiled == 0 && !place.may_hold_all) continue;
      const auto is_at = PlaceIn(c_, place);
      bool fits = is_at != nullptr;
      for (int64_t i = 0; fits && i < actual_.size(); ++i) {
        if (!y->SameAt(i, exact_y_))
          fits = is_at(i / c_.N, i % c_.N) == !actual_.SameAt(i, exact_y_);
      }
      if (fits) places.push_back(&place);
    }
    return places;
  }

  // Products computed so far, which callers bound when they try many causes.
  int64_t work() const { return work_; }

  // How far the cause alone agrees with the answer; nullopt if it changes no output.
  std::optional<Agreement> Explained(const Cause& cause) const {
    const std::optional<Tensor> y = Counterfactual(c_, cause, model_);
    if (!y || *y == exact_y_) return std::nullopt;
    return Compare(exact_y_, actual_, *y);
  }

  // In bits, less those of the choice.
  double Worth(const Cause& cause) const {
    const Tensor predicted = Counterfactual(c_, cause, model_).value_or(exact_y_);
    return BitsSaved(c_, exact_y_, predicted, actual_) - cause.bits;
  }

  Op op() const { return c_.op; }

  static int64_t WorkOf(const Case& c) { return Work(c) + c.x.size() + c.w.size(); }

  std::string Text(const Hypothesis& causes) const {
    const std::string what = model_ == nullptr ? "exact arithmetic" : "model:" + model_->name;
    return what + " with " + Names(op(), causes) + " reproduces " +
           (actual_.size() == 1 ? "the output"
                                : "all " + std::to_string(actual_.size()) + " outputs (" +
                                      std::to_string(departures_) + " of them not exact)");
  }

 private:
  bool IsCutDown() const {
    constexpr int64_t kLong = int64_t{1} << 14;
    return two_rows_ && Work(c_) > kLong;
  }

  const Case& c_;
  const Tensor& actual_;
  const Tensor& exact_y_;
  const Convention* model_;
  int64_t departures_ = 0;
  int64_t first_ = 0;
  std::optional<Case> two_rows_;
  Tensor actual_rows_;
  mutable int64_t work_ = 0;
};

// What the causes say of themselves: if the first acts in a tail alone, the fault is the tail.
FindingKind KindOf(const Hypothesis& causes) {
  const Cause& last = *causes.back();
  const bool in_tail = last.stage == CauseStage::kPlace && last.kind == FindingKind::kTail;
  return in_tail ? FindingKind::kTail : causes.front()->kind;
}

// Of several causes, the kind is that of the cause which alone comes nearest to the answer: another
// cause may only say where a number ends that left its range.
FindingKind KindOf(const Evidence& evidence, const Hypothesis& causes) {
  if (causes.size() == 1 || causes.back()->stage == CauseStage::kPlace) return KindOf(causes);
  const auto explained = [&](const Cause* cause) {
    return evidence.Explained(*cause).value_or(Agreement{.explained = -1}).explained;
  };
  return (*std::ranges::max_element(causes, {}, explained))->kind;
}

Attribution Shown(const Evidence& evidence, Hypothesis causes) {
  Attribution attribution;
  attribution.kind = KindOf(evidence, causes);
  attribution.diagnosis = Sentence(evidence.SmallCase().op, causes);
  attribution.evidence.push_back(evidence.Text(causes));
  attribution.complete = true;
  attribution.causes = std::move(causes);
  return attribution;
}

// The most products that are computed to find the causes of one answer.
constexpr int64_t kMostWork = int64_t{1} << 31;

// Every single cause that gives the output, the likeliest first; causes in families or the others.
std::vector<Hypothesis> SingleCauses(const Evidence& evidence, bool of_family = false) {
  std::vector<Hypothesis> fit;
  for (const Cause& cause : AllCauses()) {
    if (cause.of_family != of_family || evidence.work() > kMostWork) continue;
    if (!evidence.LooksFor(cause)) continue;
    if (evidence.Reproduced(Hypothesis{&cause})) fit.push_back({&cause});
  }
  return fit;
}

// Single causes in some places of the output, at most `most` of them. `whole`: causes that give the
// whole output, and that other answers contradict.
std::vector<Hypothesis> CausesInPlaces(const Evidence& evidence, size_t most,
                                       const std::vector<Hypothesis>& whole) {
  std::vector<Hypothesis> fit, tails;
  for (const Cause& cause : AllCauses()) {
    if (evidence.work() > kMostWork) break;
    if (!evidence.LooksFor(cause)) continue;
    const bool is_whole = std::ranges::count(whole, Hypothesis{&cause}) > 0;
    std::vector<Hypothesis>& into = is_whole ? tails : fit;
    const size_t room = is_whole ? 3 * most : most;  // one narrow row is in the tail of many widths
    for (const Cause* place : evidence.PlacesOf(cause)) {
      if (into.size() < room) into.push_back({&cause, place});
    }
  }
  fit.insert(fit.end(), tails.begin(), tails.end());
  return fit;
}

// Several texts as one; of many, the first ones and their number.
std::string ListOf(const std::vector<std::string>& texts, size_t most, std::string_view between) {
  const std::vector<std::string> first(
      texts.begin(), texts.begin() + static_cast<int64_t>(std::min(texts.size(), most)));
  const std::string text = fmt::format("{}", fmt::join(first, between));
  return texts.size() > most ? fmt::format("{} and {} more", text, texts.size() - most) : text;
}
std::string ListOf(Op op, std::span<const Hypothesis> several) {
  std::vector<std::string> names;
  for (const Hypothesis& causes : several) names.push_back(Names(op, causes));
  return ListOf(names, 6, "; ");  // names have commas
}

// Of equals the one whose name comes first.
void CheapestFirst(Op op, std::vector<Hypothesis>& several) {
  std::vector<std::pair<std::pair<double, std::string>, Hypothesis>> keyed;
  for (Hypothesis& causes : several)
    keyed.push_back({{BitsOf(causes), Names(op, causes)}, std::move(causes)});
  std::ranges::sort(keyed, {}, [](const auto& each) -> const auto& { return each.first; });
  several.clear();
  for (auto& [key, causes] : keyed) several.push_back(std::move(causes));
}

// Adds the other causes that explain the same output.
void AddOthers(Op op, std::span<const Hypothesis> others, Attribution& attribution) {
  for (const Hypothesis& causes : others) {
    attribution.ambiguous |= causes.front()->kind != attribution.kind;
    attribution.open.push_back(causes);
  }
  if (!others.empty()) attribution.evidence.push_back("also reproduced by: " + ListOf(op, others));
}

bool IsConvention(const Hypothesis& causes) {
  return causes.size() == 1 && causes.front()->stage == CauseStage::kConvention;
}

bool IsArithmetic(const Hypothesis& causes) {
  return std::ranges::all_of(causes, &Cause::is_arithmetic);
}

// The named conventions that give the whole output.
std::vector<Hypothesis> ConventionsOf(const Evidence& evidence) {
  std::vector<Hypothesis> fit;
  for (const Cause& known : KnownArithmetic()) {
    if (evidence.Reproduced(Hypothesis{&known})) fit.push_back({&known});
  }
  return fit;
}

// The likeliest single cause that gives the output; the evidence names every other one.
std::optional<Attribution> OneCause(const Evidence& evidence) {
  const std::vector<Hypothesis> fit = SingleCauses(evidence);
  if (fit.empty()) return std::nullopt;
  Attribution attribution = Shown(evidence, fit.front());
  AddOthers(evidence.SmallCase().op, std::span(fit).subspan(1), attribution);
  return attribution;
}

// Pairs of causes that give the output, the cheapest first: at most `most`, of at most `bits`; with
// `slips` also of slips with zero points.
std::vector<Hypothesis> TwoCauses(const Case& c, const Evidence& evidence, size_t most,
                                  double bits = INFINITY, bool slips = true) {
  // On a small case all pairs; on a large one only pairs of causes that each change the output.
  constexpr int64_t kSmall = 4096;
  std::vector<const Cause*> usable;
  const auto of_zero_point = [](const Cause& cause) {  // a slip with one is often one with both
    return cause.stage == CauseStage::kXZeroPoint || cause.stage == CauseStage::kWZeroPoint;
  };
  for (const Cause& cause : AllCauses()) {
    if (bits == INFINITY ? cause.of_family && !(slips && of_zero_point(cause)) : cause.bits >= bits)
      continue;
    if (!evidence.LooksForBeside(cause)) continue;
    if (Work(c) <= kSmall || evidence.Explained(cause)) usable.push_back(&cause);
  }
  std::vector<Hypothesis> pairs;
  for (size_t i = 0; i < usable.size(); ++i) {
    for (size_t j = i + 1; j < usable.size(); ++j) {
      Hypothesis both{usable[i], usable[j]};
      if (usable[i]->stage != usable[j]->stage && BitsOf(both) <= bits) pairs.push_back(both);
    }
  }
  CheapestFirst(c.op, pairs);
  std::vector<Hypothesis> fit;
  for (Hypothesis& both : pairs) {
    if (fit.size() == most || evidence.work() > kMostWork) break;
    if (evidence.Reproduced(both)) fit.push_back(std::move(both));
  }
  return fit;
}

// These causes with each other one of another stage, where they still give the output, cheapest
// first.
std::vector<Hypothesis> WithAnother(Op op, const Hypothesis& causes, const Evidence& evidence) {
  std::vector<Hypothesis> fit;
  for (const Cause& cause : AllCauses()) {
    if (cause.of_family || cause.stage == causes.front()->stage || evidence.work() > kMostWork ||
        !evidence.LooksForBeside(cause))
      continue;
    Hypothesis both{causes.front(), &cause};
    if (evidence.Reproduced(both)) fit.push_back(std::move(both));
  }
  CheapestFirst(op, fit);
  return fit;
}

// Every explanation that gives the output: conventions, single causes, and pairs that cost less
// than the rare causes of families.
std::vector<Hypothesis> FitsOf(const Case& c, const Evidence& evidence) {
  std::vector<Hypothesis> fits = ConventionsOf(evidence);
  const auto add = [&](const std::vector<Hypothesis>& more) {
    fits.insert(fits.end(), more.begin(), more.end());
  };
  add(SingleCauses(evidence));
  const bool none = fits.empty();
  std::vector<Hypothesis> of_families = SingleCauses(evidence, true);
  // What happens in all terms needs no further look at some of them, and each look costs questions.
  std::erase_if(of_families, [&](const Hypothesis& some) {
    return std::ranges::any_of(fits, [&](const Hypothesis& whole) {
      return whole.size() == 1 && IsInSomeTerms(*some.front(), *whole.front());
    });
  });
  add(of_families);
  if (!none) return fits;
  // What one cause gives needs no second one.
  std::vector<Hypothesis> pairs = TwoCauses(c, evidence, 24, Cause::kBitsOfFamily);
  std::erase_if(pairs, [&](const Hypothesis& both) {
    return std::ranges::any_of(both, [&](const Cause* one) {
      return std::ranges::find(fits, Hypothesis{one}) != fits.end();
    });
  });
  add(pairs);
  return fits;
}

// Codes behind scales and zero points begin at this output. They are one row.
int64_t FirstOfRow(const Case& c) { return c.codes ? 2 * ChosenCount(c) : 0; }
int64_t ColumnsOf(const Case& c) { return c.output_shape().back() - FirstOfRow(c); }

// Whether all departures lie in the last (columns mod width) columns.
bool AreInTail(const Case& c, const Tensor& exact_y, const Tensor& actual, int64_t width) {
  const int64_t columns = ColumnsOf(c), first = FirstOfRow(c);
  for (int64_t i = 0; i < actual.size(); ++i) {
    if (actual.SameAt(i, exact_y)) continue;
    if (i < first || (i - first) % columns < columns - columns % width) return false;
  }
  return true;
}
// A usual vector length in whose tail all departures are, of which there is one at least, with at
// least one whole vector before them; 0 if there is none.
int64_t TailWidth(const Case& c, const Tensor& exact_y, const Tensor& actual) {
  for (const int64_t width : {64, 32, 16, 8, 4}) {
    if (ColumnsOf(c) > width && AreInTail(c, exact_y, actual, width)) return width;
  }
  return 0;
}

Attribution Stated(FindingKind kind, std::string diagnosis, bool complete) {
  Attribution attribution;
  attribution.kind = kind;
  attribution.diagnosis = std::move(diagnosis);
  attribution.complete = complete;
  return attribution;
}

// Under a condition that nobody has a word for.
constexpr const char* kInSomeCases = "in some cases";

// What questions of its own have shown of the subject.
Attribution OfSubject(const ShownOfSubject& shown) {
  Attribution attribution = Stated(shown.kind, "the subject " + shown.sentence, true);
  attribution.evidence.push_back(shown.evidence);
  if (!shown.not_in.empty()) {
    attribution.where.text = kInSomeCases;
    attribution.diagnosis += ", " + attribution.where.text;
    attribution.evidence.push_back(shown.not_in + " all outputs read what they should");
  }
  attribution.of_subject = true;
  return attribution;
}

// Is every wrong output 0, or equal to the exact value of another column of its row? At least one
// must equal another column's value.
// Beside scales any code may be the code of some value.
bool Misplaced(const Case& c, const Tensor& exact_y, const Tensor& actual) {
  if (c.codes) return false;
  const int64_t columns = c.output_shape().back();
  bool moved = false;
  for (int64_t i = 0; i < actual.size(); ++i) {
    const uint32_t bits = actual.BitsAt(i);
    if (actual.SameAt(i, exact_y)) continue;
    bool elsewhere = false;
    for (int64_t j = i - i % columns; j < i - i % columns + columns && bits != 0; ++j) {
      elsewhere |= exact_y.BitsAt(j) == bits;
    }
    if (!elsewhere && bits != 0) return false;
    moved |= elsewhere;
  }
  return moved;
}

// The cause that gives the most departures, and how many; null if none gives one.
std::pair<const Cause*, Agreement> NearestCause(const Evidence& evidence, bool may_spoil) {
  std::pair<const Cause*, Agreement> nearest;
  Agreement& most = nearest.second;
  for (const Cause& cause : AllCauses()) {
    if (cause.of_family || !evidence.LooksFor(cause)) continue;
    const Agreement agreement = evidence.Explained(cause).value_or(Agreement{});
    if (agreement.spoiled > 0 && !may_spoil) continue;
    if (agreement.explained > most.explained ||
        (agreement.explained == most.explained && agreement.spoiled < most.spoiled))
      nearest = {&cause, agreement};
  }
  return nearest;
}

// An explanation is named if it is worth so many bits: chance is worth as much in 1 of 2^7 answers.
constexpr double kMargin = 7;
// Explanations that are worth as much, but for so many bits, are not told apart.
constexpr double kAhead = 2.5;

constexpr const char* kTooLittle = "not enough to tell";

// The same of an answer that is not worth the cause.
Attribution Thin(Attribution attribution, std::string evidence) {
  attribution.thin = true;
  attribution.diagnosis = kTooLittle;
  attribution.evidence = {std::move(evidence)};
  return attribution;
}

// The best guess if neither one cause nor two give the whole output, which is not exact.
Attribution Guess(const Case& c, const Tensor& exact_y, const Tensor& actual,
                  const Evidence& evidence) {
  // What takes few departures to be seen by chance is the kind, and not what is said.
  constexpr int64_t kFew = 3;
  const auto seen = [&](FindingKind kind, std::string what) {
    Attribution guess = Stated(kind, what, false);
    return evidence.departures() < kFew ? Thin(std::move(guess), std::move(what)) : guess;
  };
  if (const int64_t width = TailWidth(c, exact_y, actual); width != 0)
    return seen(FindingKind::kTail, fmt::format("only the last N % {} outputs are wrong", width));
  if (Misplaced(c, exact_y, actual))
    return seen(FindingKind::kIndex, "outputs hold what belongs in another column");
  const auto [best, most] = NearestCause(evidence, true);
  if (2 * most.explained < evidence.departures())
    return Stated(FindingKind::kUnknown, "no swap of one or two stages reproduces the output",
                  false);
  Attribution attribution =
      Stated(best->kind, Sentence(c.op, {best}) + ", and something else", false);
  std::string part =
      fmt::format("exact arithmetic with {} reproduces {} of the {} outputs that are not exact",
                  best->NameFor(c.op), most.explained, evidence.departures());
  if (evidence.Worth(*best) < kMargin) return Thin(std::move(attribution), std::move(part));
  attribution.evidence.push_back(std::move(part));
  return attribution;
}

// The rows and columns of a few departures say nothing; a part of an answer is no explanation of
// it.
Attribution Unexplained(Op op, const Evidence& evidence) {
  Attribution attribution =
      Stated(FindingKind::kUnknown, "no known cause gives every output", false);
  const auto [best, most] = NearestCause(evidence, false);
  if (best != nullptr && 2 * most.explained >= evidence.departures()) {
    attribution.evidence.push_back(
        fmt::format("what comes nearest: {} gives {} of the {} outputs that are not exact",
                    best->NameFor(op), most.explained, evidence.departures()));
  }
  return attribution;
}

// ---- Which of the explanations that give every output is named.

// What the sums of a convention that saturates pairs are told by.
const Cause& Pairs() { return CauseNamed("pair saturation"); }

using Weighed = Examination::Weighed;

// Each fit as it stands after the one answer: worth what the answer takes without it.
std::vector<Weighed> WeighedByOneAnswer(const Case& c, const Tensor& right, const Tensor& actual,
                                        const std::vector<Hypothesis>& fits) {
  const double worth = BitsSaved(c, right, actual, actual);
  std::vector<Weighed> all;
  for (const Hypothesis& causes : fits)
    all.push_back({.causes = causes, .bits = worth - BitsOf(causes)});
  MostWorthFirst(all);
  return all;
}

// Nothing that was asked speaks against it.
bool HoldsEverywhere(const Weighed& each) {
  return each.against == 0 && each.otherwise == 0 && each.stray == 0;
}
bool RoundsOrScales(const Cause* cause) {
  return cause->stage == CauseStage::kRound || cause->stage == CauseStage::kScale;
}
// How a kernel rounds depends on no condition, and shows in every answer. Of sums in 16 bits, whose
// numbers nothing else gives, one answer of two may be right where a condition that nobody has a
// word for is not met. Other faults may show in one answer of four.
bool Holds(const Weighed& each) {
  constexpr double kSurely = 10 * kMargin;
  const auto is_at = [&](CauseStage stage) {
    return std::ranges::any_of(each.causes,
                               [&](const Cause* cause) { return cause->stage == stage; });
  };
  if (std::ranges::any_of(each.causes, RoundsOrScales)) return HoldsEverywhere(each);
  const bool of_family = each.causes.front()->of_family;
  const bool narrow = each.causes.size() == 1 && is_at(CauseStage::kAccumulate) && !of_family &&
                      each.causes.front()->kind == FindingKind::kPairSaturation &&
                      each.bits >= kSurely;
  // What takes a condition that nobody has a word for is told with the share of the answers.
  const bool sure = each.causes.size() == 1 && each.bits >= kSurely;
  // Of the rare causes there are so many that one gives part of what another fault gives.
  const bool rare = each.causes.front()->bits >= Cause::kBitsOfRare;
  // What else a kernel does may hide a slip with a zero point in one answer of forty: a sum in
  // double that loses a small operand. Not of what saturates, whose ends many faults give.
  constexpr int64_t kHiding = 40;
  const bool slip = is_at(CauseStage::kXZeroPoint) || is_at(CauseStage::kWZeroPoint);
  const int64_t hidden = sure && slip && !rare && !of_family ? each.bearing_out / kHiding : 0;
  const int64_t right = each.unworded     ? (sure && !rare ? 4 * each.bearing_out : -1)
                        : narrow && !rare ? each.bearing_out
                                          : hidden;
  // Of a family there is often one that gives part of what another fault gives, and right answers
  // that it does not give are said to need a condition too easily.
  if (each.unworded && (of_family || each.otherwise > 0)) return false;
  // What saturates gives the ends of a type by many faults.
  const int64_t least = each.unworded ? 4 : of_family && !is_at(CauseStage::kClamp) ? 8 : 0;
  if (least * each.inside < each.bearing_out && least > 0) return false;
  return each.against <= right && 4 * each.otherwise <= each.bearing_out;
}

// Of two causes each has to be worth what it takes to choose it, and a condition may only hide that
// one of them does nothing.
void RemoveIdleHalves(const Case& c, std::vector<Weighed>& all) {
  constexpr size_t kMostHeld = 24;  // beyond so many the likelier ones decide
  const auto is_pair = [](const Weighed& each) {
    return each.causes.size() == 2 && each.causes.back()->stage != CauseStage::kPlace;
  };
  std::set<const Cause*> halves;
  for (const Weighed& each :
       all | std::views::filter(is_pair) | std::views::filter(Holds) | std::views::take(kMostHeld))
    halves.insert(each.causes.begin(), each.causes.end());
  const Hypothesis idle = IdleOf(c, Hypothesis(halves.begin(), halves.end()));
  const auto is_idle = [&](const Cause* cause) { return std::ranges::count(idle, cause) != 0; };
  std::map<const Cause*, double> alone;
  for (const Weighed& each : all)
    if (each.causes.size() == 1 && Holds(each)) alone[each.causes.front()] = each.bits;
  std::erase_if(all, [&](const Weighed& each) {
    if (!is_pair(each)) return false;
    if (Holds(each) && std::ranges::any_of(each.causes, is_idle)) return true;
    return !each.where.text.empty() || std::ranges::any_of(each.causes, [&](const Cause* cause) {
      const auto found = alone.find(cause);
      return found != alone.end() && found->second > each.bits - kMargin;
    });
  });
}

// Of a convention or a rule of rounding that most answers bear out, and some do not: how many. It
// comes near to what the subject does, and is not what it does. Null if none comes near.
struct Nearest {
  double share = 0;
  std::optional<Attribution> said;
};
// `last_bit`: no code of the answer is off by more than one. What is off by more differs in more
// than its rounding, which is all that is said here.
Nearest NearestRounding(Op op, const std::vector<Weighed>& all, bool last_bit) {
  constexpr int64_t kLeast = 6;
  if (!last_bit) return {};
  const auto share = [](const Weighed& of) {
    return static_cast<double>(of.given) / static_cast<double>(of.telling);
  };
  const Weighed* nearest = nullptr;
  for (const Weighed& each : all) {
    const CauseStage stage = each.causes.front()->stage;
    const bool of_rounding = stage == CauseStage::kConvention || stage == CauseStage::kRound ||
                             stage == CauseStage::kScale;
    if (!of_rounding || each.causes.size() > 1 || !each.where.text.empty()) continue;
    if (each.bits < kMargin || each.given < kLeast || each.given == each.telling) continue;
    // Of equals the rule, which says more than a name.
    const auto key = [&](const Weighed& of) {
      return std::tuple(share(of), !IsConvention(of.causes), of.bits);
    };
    if (nearest == nullptr || key(each) > key(*nearest)) nearest = &each;
  }
  if (nearest == nullptr) return {};
  const Cause& cause = *nearest->causes.front();
  const std::string whose = cause.convention != nullptr ? cause.convention->name
                                                        : "a kernel that " + cause.SentenceFor(op);
  Nearest found{share(*nearest),
                Stated(cause.kind,
                       fmt::format("the subject gives the numbers of {} in {} of {} answers asked",
                                   whose, nearest->given, nearest->telling),
                       true)};
  found.said->evidence.push_back("not so: " + nearest->exception);
  found.said->of_subject = true;
  return found;
}

// "as ruy, tflite@single, fbgemm@avx2 (7 more) do": of those that differ in the instruction set
// alone the first, after the others, which name a way of computing.
std::string AsNamed(std::span<const Hypothesis> known) {
  static const std::set<std::string> instruction_sets{
      "aarch64", "amx",    "avx2", "avx2vnni", "avx512", "avx512core",
      "default", "scalar", "sse4", "sse41",    "vnni"};
  std::vector<std::string> first, of_instruction_set;
  std::set<std::string> families;
  for (const Hypothesis& each : known) {
    const std::string& name = each.front()->name;
    const size_t at = name.find('@');
    const bool is_set = at != std::string::npos &&
                        instruction_sets.contains(name.substr(at + 1, name.find('+', at) - at - 1));
    if (!is_set)
      first.push_back(name);
    else if (families.insert(name.substr(0, at)).second)
      of_instruction_set.push_back(name);
  }
  first.insert(first.end(), of_instruction_set.begin(), of_instruction_set.end());
  const size_t shown = std::min<size_t>(first.size(), 5);
  first.resize(shown);
  const std::string more =
      known.size() == shown ? "" : fmt::format(" ({} more)", known.size() - shown);
  return fmt::format("as {}{} {}", fmt::join(first, ", "), more, known.size() == 1 ? "does" : "do");
}

// A rule that is held to conventions, of which there may be dozens: what it gives of a case is
// computed once.
class HeldRule {
 public:
  HeldRule(const Case& c, const Hypothesis& rule) : c_(c), rule_(rule) {}

  // Whether the rule gives what the convention does with exact ties, of drawn cases. (Ties of a
  // zero point that is chosen are not drawn.)
  bool IsDoneOnTies(const Convention& convention) {
    constexpr int kTells = 3;
    constexpr uint64_t kTries = 40;
    if (RowOf(c_.op).qparams) return true;
    const auto drawn = [&](uint64_t i) -> std::optional<Case> {
      return gen::Draw(c_.op, gen::Theme::kTies, MixSeed(20261129, i));
    };
    const auto tells = [&](const Asked& asked) -> std::optional<int> {
      if (!asked.said) return 0;
      const Tensor is = convention.run(asked.c).y;
      const std::vector<std::optional<double>> ties = exact::TieDistances(asked.c);
      int tell = 0;
      for (int64_t at = 0; at < is.size(); ++at) {
        if (ties[static_cast<size_t>(at)] != 0.0) continue;
        if (!is.SameAt(at, *asked.said)) return std::nullopt;
        ++tell;
      }
      return tell;
    };
    return AreMet(convention, ties_, kTries, drawn, kTells, tells);
  }

  // Whether the rule is what the convention does: near the case found, and of a rule of rounding,
  // of which there are so many that one fits one pair of scales, in drawn cases too, it gives the
  // convention's output each time one of the two departs from exact.
  bool IsDone(const Convention& convention) {
    constexpr int kTells = 4;
    constexpr uint64_t kTries = 48;
    const bool drawn_too = std::ranges::any_of(rule_, RoundsOrScales);
    const auto near = [&](uint64_t i) {
      const uint64_t seed = MixSeed(20261126, i);
      return i < kTries ? Varied(c_, seed) : gen::Draw(c_.op, seed);
    };
    const auto tells = [&](const Asked& asked) -> std::optional<int> {
      const Tensor is = convention.run(asked.c).y;
      const Tensor& said = asked.said ? *asked.said : asked.right;
      if (is == asked.right && said == asked.right) return 0;
      if (is != said) return std::nullopt;
      return 1;
    };
    const uint64_t tries = drawn_too ? 2 * kTries : kTries;
    if (AreMet(convention, near_, tries, near, kTells, tells)) return true;
    // A rule for the codes of x, where a convention's product with them departs too.
    const auto exact_after_codes = [&](uint64_t i) {
      std::optional<Case> c = near(i);
      if (!c) return c;
      std::ranges::fill(c->w_q.scale, 1.0F);
      c->bias.reset();
      return c;
    };
    return c_.op == Op::kDynamicLinear &&
           AreMet(convention, codes_, tries, exact_after_codes, kTells, tells);
  }

 private:
  struct Asked {
    Case c;
    Tensor right;
    std::optional<Tensor> said;
  };
  std::optional<Asked> MadeOf(std::optional<Case> c) const {
    constexpr int64_t kLargest = 4096;
    if (!c || Work(*c) > kLargest) return std::nullopt;
    Tensor right = exact::Evaluate(*c);
    std::optional<Tensor> said = Counterfactual(*c, rule_);
    return Asked{*std::move(c), std::move(right), std::move(said)};
  }
  // Whether so many cases tell the rule from exact arithmetic, and none from the convention.
  // `tells`: how much one case says, nullopt if it contradicts. Where too few of the cases are such
  // as the convention takes, the others are brought into its limits.
  template <typename Make, typename Tells>
  bool AreMet(const Convention& convention, std::vector<std::optional<Asked>>& made, uint64_t tries,
              const Make& make, int enough, const Tells& tells) {
    int all = 0;
    std::vector<uint64_t> not_taken;
    for (uint64_t i = 0; i < tries; ++i) {
      if (i == made.size()) made.push_back(MadeOf(make(i)));  // asked for the first time
      if (!made[i]) continue;
      if (!convention.cannot_run(made[i]->c).empty()) {
        not_taken.push_back(i);
        continue;
      }
      const std::optional<int> told = tells(*made[i]);
      if (!told) return false;
      all += *told;
    }
    for (size_t i = 0; i < not_taken.size() && all < enough; ++i) {
      const std::optional<Asked> asked =
          MadeOf(AdaptTo(convention.cannot_run, made[not_taken[i]]->c));
      if (!asked) continue;
      const std::optional<int> told = tells(*asked);
      if (!told) return false;
      all += *told;
    }
    return all >= enough;
  }

  const Case& c_;
  const Hypothesis& rule_;
  std::vector<std::optional<Asked>> ties_, near_, codes_;
};

class Decision {
 public:
  // `asked`: further cases, by whose answers the explanations were weighed too.
  Decision(const Case& c, const Evidence& evidence, std::vector<Weighed> all, int64_t asked,
           bool all_ties)
      : c_(c), evidence_(evidence), all_(std::move(all)), asked_(asked), all_ties_(all_ties) {}

  // nullopt: no explanation holds.
  std::optional<Attribution> Take() {
    std::vector<const Weighed*> known, known_somewhere, rules;
    for (const Weighed& each : all_) {
      if (!IsConvention(each.causes)) {
        rules.push_back(&each);
      } else if (HoldsEverywhere(each) &&
                 (asked_ == 0 || (each.bits >= kMargin && ShownAgain(each)))) {
        (each.where.text.empty() ? known : known_somewhere).push_back(&each);
      }
    }
    // Who computes as a library does is likelier to be that library than somebody's own rounding.
    const auto is_own = [](const Weighed* each) {
      return each->causes.front()->convention->of_no_library;
    };
    for (std::vector<const Weighed*>* of : {&known, &known_somewhere})
      if (!std::ranges::all_of(*of, is_own)) std::erase_if(*of, is_own);
    // Nothing about places is said while a known arithmetic gives every answer. Its other steps
    // need no explanation.
    std::erase_if(rules, [&](const Weighed* rule) {
      return known.empty()
                 ? !Holds(*rule)
                 : !IsArithmetic(rule->causes) || rule->against > 0 || !rule->where.text.empty();
    });
    std::optional<Attribution> told;
    if (!known.empty()) told = ByName(known, rules);
    if (!told && !rules.empty()) told = ByRule(rules);
    if (!known_somewhere.empty() && (!told || !told->complete)) {
      if (auto somewhere = ByNameSomewhere(known_somewhere)) told = std::move(somewhere);
    }
    if (!told) return std::nullopt;
    Attribution& attribution = *told;
    for (const Weighed* rule : rules) {
      if (rule->causes != attribution.causes) attribution.open.push_back(rule->causes);
    }
    // Some cause of a family always gives one code.
    std::set<FindingKind> kinds;
    for (const Weighed* rule : asked_ > 0 ? Alike(rules) : rules) {
      if (rule->causes.size() == 1 && !rule->causes.front()->of_family)
        kinds.insert(rule->causes.front()->kind);
    }
    attribution.ambiguous = kinds.size() > 1;
    if (attribution.complete && !attribution.open.empty())
      attribution.evidence.push_back("also reproduced by: " + ListOf(c_.op, attribution.open));
    if (asked_ > 0) TellAsked(attribution);
    return told;
  }

 private:
  // The explanations that are worth as much as the first one, but for a few bits, and take no
  // condition where it takes none.
  std::vector<const Weighed*> Alike(const std::vector<const Weighed*>& rules) const {
    std::vector<const Weighed*> alike;
    for (const Weighed* rule : rules) {
      const bool as_wide = rule->where.text.empty() || !rules.front()->where.text.empty();
      if (as_wide && rule->bits > rules.front()->bits - kAhead) alike.push_back(rule);
    }
    return alike;
  }
  FindingKind KindOfRule(const Weighed* rule) const { return KindOf(evidence_, rule->causes); }

  // Whether further answers show it too. There are many places and many pairs to choose from.
  bool ShownAgain(const Weighed& each) const {
    const bool place = each.causes.back()->stage == CauseStage::kPlace;
    if (asked_ == 0) return !place;
    // Cases near the one found share its scales, so that the same columns depart for other reasons
    // too; and one near a tie departs by many rules of rounding, of a few sizes alone.
    const bool rounds_by_size =
        each.where.of_size && std::ranges::any_of(each.causes, RoundsOrScales);
    if ((place || each.where.of_two || rounds_by_size) &&
        (each.drawn < 2 || !HoldsEverywhere(each)))
      return false;
    const bool library = IsConvention(each.causes);
    return each.bearing_out >= std::min<int64_t>(asked_, place || library         ? 6
                                                         : each.causes.size() > 1 ? 4
                                                                                  : 2);
  }

  // A named arithmetic gives every answer, which is no guess. What it does here is told beside it
  // if one rule says that.
  Attribution ByName(const std::vector<const Weighed*>& known,
                     const std::vector<const Weighed*>& rules) const {
    std::vector<Hypothesis> conventions;
    for (const Weighed* each : known) conventions.push_back(each->causes);
    std::vector<const Weighed*> told = Alike(rules);
    std::erase_if(told, [&](const Weighed* rule) { return KindOfRule(rule) != FindingKind::kTie; });
    const bool of_ties = all_ties_ && asked_ == 0;
    if (!of_ties || told.empty()) {
      told.clear();
      const Convention& first = *conventions.front().front()->convention;
      const auto acts = std::ranges::find_if(rules, [&](const Weighed* rule) {
        return asked_ > 0 ? rule->bearing_out > 1 && rule->bits >= kMargin
                          : HeldRule(c_, rule->causes).IsDone(first);
      });
      if (acts != rules.end()) told = {*acts};
    }
    // Few answers do not tell those that do what is told from those that come to it otherwise.
    std::vector<Hypothesis> others;
    const bool rounds = !told.empty() && std::ranges::any_of(told[0]->causes, RoundsOrScales);
    if (rounds || (asked_ == 0 && !told.empty())) {
      std::vector<HeldRule> held;
      for (const Weighed* rule : told) held.emplace_back(c_, rule->causes);
      std::vector<Hypothesis> acting;
      for (const Hypothesis& each : conventions) {
        const Convention& convention = *each.front()->convention;
        const bool pairs =
            convention.pair_saturates && std::ranges::any_of(told, [](const Weighed* rule) {
              return rule->causes.front() == &Pairs();
            });
        const bool acts =
            pairs || std::ranges::any_of(held, [&](HeldRule& rule) {
              return of_ties ? rule.IsDoneOnTies(convention) : rule.IsDone(convention);
            });
        (acts ? acting : others).push_back(each);
      }
      conventions = std::move(acting);
      // A rule for ties says all of an answer that departs on ties alone, whoever else does it.
      if (conventions.empty() && asked_ == 0 && !of_ties) {
        told.clear();
        std::swap(conventions, others);
      }
    }
    const std::string names = conventions.empty() ? "" : AsNamed(conventions);
    const Hypothesis by_name = (conventions.empty() ? others : conventions).front();
    Attribution attribution = Shown(evidence_, told.empty() ? by_name : told[0]->causes);
    attribution.diagnosis = "the subject " + (told.empty() ? "computes " + names : Either(told));
    if (!told.empty() && !names.empty()) attribution.diagnosis += ", " + names;
    if (!others.empty()) attribution.diagnosis += ", or computes " + AsNamed(others);
    if (!others.empty() && asked_ == 0) attribution.kind = by_name.front()->kind;
    if (told.empty() && by_name.front()->convention->pair_saturates && PairsTellMost()) {
      attribution.kind = Pairs().kind;
      attribution.diagnosis = "the subject " + Pairs().sentence + ", " + names;
    } else if (told.empty()) {
      // One answer does not tell a library from a slip that it does not make, and that takes hardly
      // more to choose.
      std::vector<const Weighed*> slips;
      for (const Weighed* rule : rules)
        if (asked_ == 0 && rule->bits >= kMargin && rule->bits > known.front()->bits - kAhead)
          slips.push_back(rule);
      if (!slips.empty()) attribution.diagnosis += ", or " + Either(slips);
      attribution.conventions = std::move(conventions);
    }
    attribution.by_name = true;
    return attribution;
  }

  // A named arithmetic gives every answer under a condition, and the right ones are right
  // elsewhere. nullopt: the conventions that do take several conditions.
  std::optional<Attribution> ByNameSomewhere(const std::vector<const Weighed*>& known) const {
    const std::vector<const Weighed*> alike = Alike(known);
    const Weighed& best = *alike.front();
    std::vector<Hypothesis> conventions;
    for (const Weighed* each : alike) {
      if (each->where.text != best.where.text) return std::nullopt;
      conventions.push_back(each->causes);
    }
    Attribution attribution = Shown(evidence_, best.causes);
    attribution.where = best.where;
    attribution.diagnosis = WithCondition(ComputesAs(conventions), best.where.text);
    return attribution;
  }

  Attribution ByRule(const std::vector<const Weighed*>& rules) const {
    const std::vector<const Weighed*> alike = Alike(rules);
    const Weighed& best = *alike.front();
    const bool one_kind = std::ranges::all_of(
        alike, [&](const Weighed* rule) { return KindOfRule(rule) == KindOfRule(&best); });
    // Each of several conditions is fitted to the same answers, and a size that two causes have in
    // common is that of a third one.
    const bool one_condition =
        alike.size() == 1 || std::ranges::all_of(alike, [&](const Weighed* rule) {
          return rule->where.text == best.where.text && !rule->where.of_size;
        });
    if (best.bits >= kMargin && one_kind && one_condition && ShownAgain(best)) {
      Attribution attribution = Shown(evidence_, best.causes);
      attribution.where = best.where;
      attribution.where.text = WhereText(best);
      attribution.diagnosis = "the subject " + Either(alike);
      return attribution;
    }
    Attribution attribution = Stated(FindingKind::kUnknown, kTooLittle, false);
    const bool place = best.causes.back()->stage == CauseStage::kPlace;
    if (best.bits > 0 && !place)
      attribution.diagnosis += ": the subject " + Either(alike);
    else if (!place)
      attribution.evidence.push_back("it would fit that the subject " + Either(alike));
    std::vector<Hypothesis> fits;
    for (const Weighed* rule : rules) fits.push_back(rule->causes);
    attribution.evidence.push_back(ListOf(c_.op, fits) + (fits.size() == 1 ? " gives" : " give") +
                                   " every output, as chance may");
    return attribution;
  }

  // What the further cases say.
  void TellAsked(Attribution& attribution) const {
    std::string text = fmt::format("{} further cases asked", asked_);
    const auto taken = std::ranges::find(all_, attribution.causes, &Weighed::causes);
    if (taken != all_.end()) {
      text += fmt::format(": {} bear it out", taken->bearing_out);
      if (taken->against > 0)
        text += fmt::format(", {} do not", taken->against);
      else
        attribution.borne_out = taken->bearing_out;
    }
    for (const Weighed& each : all_) {
      if (!IsConvention(each.causes) && !Holds(each))
        attribution.contradicted.push_back(each.causes);
    }
    if (!attribution.contradicted.empty())
      text += "; ruled out: " + ListOf(c_.op, attribution.contradicted);
    attribution.evidence.push_back(text);
  }

  // Whether sums with saturated pairs bring most of the outputs that depart nearer to the answer
  // than exact ones. What follows the sums may depart too.
  bool PairsTellMost() const {
    const std::optional<Tensor> with = Counterfactual(c_, Pairs());
    if (!with) return false;
    const Tensor right = exact::Evaluate(c_);
    int64_t nearer = 0;
    for (int64_t i = 0; i < right.size(); ++i) {
      nearer +=
          DistanceLsb(*with, evidence_.actual(), i) < DistanceLsb(right, evidence_.actual(), i);
    }
    return 2 * nearer >= evidence_.departures();
  }

  static std::string WhereText(const Weighed& each) {
    return each.where.text.empty() && each.against > 0 ? kInSomeCases : each.where.text;
  }
  // With the share of those that were asked.
  static std::string ShareText(const Weighed& each) {
    const std::string where = WhereText(each);
    return where != kInSomeCases ? where
                                 : fmt::format("{} ({} of {} asked)", where, each.bearing_out,
                                               each.bearing_out + each.against);
  }

  std::string Either(const std::vector<const Weighed*>& alike) const {
    std::vector<std::string> sentences;
    for (const Weighed* each : alike) {
      sentences.push_back(
          Sentence(c_.op, each->causes).substr(std::string_view("the subject ").size()));
      if (const std::string where = ShareText(*each); !where.empty())
        sentences.back() = WithCondition(std::move(sentences.back()), where);
    }
    // What they all end with is said once.
    std::string_view end = sentences.front();
    end.remove_prefix(std::min(end.find(", "), end.size()));
    const auto all_end = [&] {
      return std::ranges::all_of(sentences, [&](const std::string& s) { return s.ends_with(end); });
    };
    while (!end.empty() && !all_end()) end.remove_prefix(std::min(end.find(", ", 1), end.size()));
    const std::string once(end);
    for (std::string& sentence : sentences) sentence.resize(sentence.size() - once.size());
    return ListOf(sentences, 3, ", or ") + once;
  }
  // A bound on K in the sentence, which the condition makes narrower, is not said too.
  static std::string WithCondition(std::string sentence, const std::string& where) {
    constexpr std::string_view kBound = "where K is more than ";
    const size_t at = sentence.rfind(kBound);
    const bool last =
        at != std::string::npos &&
        sentence.find_first_not_of("0123456789", at + kBound.size()) == std::string::npos;
    if (last && where.starts_with("where K is ") && where.ends_with(" or more")) {
      sentence.resize(at);
      while (sentence.ends_with(' ') || sentence.ends_with(',')) sentence.pop_back();
    }
    return sentence + ", " + where;
  }

  const Case& c_;
  const Evidence& evidence_;
  const std::vector<Weighed> all_;
  const int64_t asked_;
  const bool all_ties_;
};

// Whether every departure lies on an exact tie, of the output or of a zero point that is chosen.
bool DepartsOnTies(const Case& c, const Tensor& right, const Tensor& actual) {
  const auto is_right = [&](int64_t i) { return actual.SameAt(i, right); };
  const auto chosen = std::views::iota(int64_t{0}, 2 * ChosenCount(c));
  if (c.op == Op::kChooseQParams && (!c.codes || !std::ranges::all_of(chosen, is_right)))
    return Counterfactual(c, CauseNamed("zero point half away")) == actual;
  const auto of_codes = c.codes ? exact::TieDistances(c) : std::vector<std::optional<double>>();
  for (int64_t i = 0; i < actual.size(); ++i) {
    if (is_right(i)) continue;
    if ((c.codes ? of_codes[static_cast<size_t>(i)] : exact::TieDistance(c, i)) != 0.0)
      return false;
  }
  return true;
}

bool SameEnvironment(const RunContext& a, const RunContext& b) {
  return a.rounding == b.rounding && a.flush_denormals == b.flush_denormals;
}

// Whether one problem got two answers under two floating-point states of the caller.
std::optional<Attribution> FollowsEnvironment(const std::vector<Recorded>& recorded) {
  for (const Recorded& changed : recorded) {
    if (SameEnvironment(changed.context, {})) continue;
    for (const Recorded& base : recorded) {
      if (base.context != RunContext{} || base.problem != changed.problem || base.y == changed.y) {
        continue;
      }
      return Stated(FindingKind::kRounding,
                    changed.context.rounding != Rounding::kNearest
                        ? "the subject rounds as its caller's rounding mode says"
                        : "the subject flushes denormals where its caller does",
                    true);
    }
  }
  return std::nullopt;
}

std::optional<Tensor> AskFresh(const Subject& subject, const Case& c) {
  const auto fresh = SubjectRegistry::Get().MakeAnew(subject);
  return fresh == nullptr ? std::nullopt : Ask(*fresh, c);
}

// Whether the answers, of memory that held kPoison and kSecondPoison, differ only in outputs that
// still hold it.
bool DifferInUnwritten(const Tensor& first, const Tensor& second) {
  const auto bits = static_cast<size_t>(BitsOf(first.dtype()));
  for (int64_t i = 0; i < first.size(); ++i) {
    if (first.SameAt(i, second)) continue;
    const auto at = static_cast<size_t>(i);
    for (size_t byte = at * bits / 8; byte <= ((at + 1) * bits - 1) / 8; ++byte) {
      if (first.bytes()[byte] != kPoison || second.bytes()[byte] != kSecondPoison) return false;
    }
  }
  return true;
}

// The answers differ with the previous contents of memory. If they differ only in outputs that
// still hold the poison of their call, the subject leaves outputs unwritten.
Attribution DependsOnMemory(const Case& c, const Tensor& first, const Tensor& second,
                            Subject& subject) {
  if (!DifferInUnwritten(first, second))
    return Stated(FindingKind::kMemory, "the answer depends on what its memory held before", true);
  const std::string unwritten = "the subject leaves outputs unwritten";
  // In a row that is no longer than a vector every output is among the last ones; and the last ones
  // of a row may be the last of all.
  const int64_t width = TailWidth(c, first, second);
  const auto of_other_cases = [&] {
    constexpr uint64_t kTries = 64;
    constexpr int64_t kLargest = 1 << 16;
    for (uint64_t i = 0; i < kTries; ++i) {
      const uint64_t seed = MixSeed(20261130, i);
      const std::optional<Case> asked =
          i % 4 == 0 ? Varied(c, seed) : AdaptTo(subject, gen::Draw(c.op, seed));
      if (!asked || Work(*asked) > kLargest || !subject.CannotRun(*asked).empty()) continue;
      const std::optional<Tensor> one = Ask(subject, *asked);
      const std::optional<Tensor> other = Ask(subject, *asked, kSecondPoison);
      if (one && other && !AreInTail(*asked, *one, *other, width)) return false;
    }
    return true;
  };
  if (width == 0 || !of_other_cases()) return Stated(FindingKind::kMemory, unwritten, true);
  return Stated(FindingKind::kTail,
                fmt::format("{}, all of them among the last N % {}", unwritten, width), true);
}

// Whether the answer to this problem depends on the previous contents of memory.
std::optional<Attribution> DependsOnPoison(const Case& problem, Subject& subject) {
  const std::optional<Tensor> first = Ask(subject, problem);
  const std::optional<Tensor> again = Ask(subject, problem);
  const std::optional<Tensor> second = Ask(subject, problem, kSecondPoison);
  if (!first || !second || first != again || first == second) return std::nullopt;
  return DependsOnMemory(problem, *first, *second, subject);
}

// Whether the answers come again. An answer that varies by chance may vary just when the memory
// contents are changed. A question that gets no answer, such as one beyond what may be asked, shows
// nothing.
bool ComeAgain(const Case& problem, const Tensor& first, const Tensor& second, Subject& subject) {
  constexpr int kTimes = 3;
  const auto differs = [&](uint8_t poison, const Tensor& before) {
    const std::optional<Tensor> now = Ask(subject, problem, poison);
    return now && *now != before;
  };
  for (int i = 0; i < kTimes; ++i)
    if (differs(kPoison, first) || differs(kSecondPoison, second)) return false;
  return true;
}

// Whether the answer depends on memory contents, or on the cases that the subject was asked before.
std::optional<Attribution> DependsOnState(const Recorded& answer, Subject& subject) {
  const Case& problem = answer.problem;
  const std::optional<Tensor> first = Ask(subject, problem);
  const std::optional<Tensor> again = Ask(subject, problem);
  const std::optional<Tensor> second = Ask(subject, problem, kSecondPoison);
  if (!first || !again || !second) return std::nullopt;
  bool varies = *first != *again;
  if (!varies && *first != *second) {
    if (ComeAgain(problem, *first, *second, subject))
      return DependsOnMemory(problem, *first, *second, subject);
    varies = true;
  }
  if (varies)
    return Stated(FindingKind::kNondeterminism,
                  "the same question, asked twice, is answered differently", true);
  const std::optional<Tensor> fresh = AskFresh(subject, problem);
  // The questions above run the case in the default context, so only an answer in that context can
  // be compared. Poison may differ, as it was looked at above; raw sums are no part of y.
  RunContext as_asked;
  as_asked.poison = answer.context.poison;
  as_asked.want_acc = answer.context.want_acc;
  const bool comparable = answer.context == as_asked;
  if ((fresh && *fresh != *first) || (comparable && *first != answer.y)) {
    constexpr int kTimes = 16;
    int answers = 1, others = 0;
    for (int i = 0; i < kTimes; ++i) {
      const std::optional<Tensor> more = Ask(subject, problem);
      answers += more.has_value();
      others += more && *more != *first;
    }
    return Stated(
        FindingKind::kNondeterminism,
        others == 0
            ? "the answer depends on what was asked before"
            : fmt::format("the same question, asked {} times, is answered differently {} time{}",
                          answers, others, others == 1 ? "" : "s"),
        true);
  }
  return std::nullopt;
}

// Whether each output is right where its buffers lie in one way or another: the elements before the
// first aligned address, or behind the last one, are computed otherwise than the rest.
std::optional<Attribution> DependsOnAlignment(const Case& problem, const Tensor& right,
                                              Subject& subject) {
  constexpr std::array kOffsets{0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 28, 32, 48};
  const auto at = [&](int offset) {
    RunContext context;
    context.poison = kPoison;
    context.end_at_guard = false;
    context.align_offset = offset;
    return Ask(subject, problem, context);
  };
  std::vector<Tensor> answers;
  for (const int offset : kOffsets) {
    std::optional<Tensor> y = at(offset);
    if (!y) return std::nullopt;
    answers.push_back(*std::move(y));
  }
  for (int64_t i = 0; i < right.size(); ++i) {
    if (std::ranges::none_of(answers, [&](const Tensor& y) { return y.SameAt(i, right); }))
      return std::nullopt;
  }
  // Asked again, so that an answer that varies by chance does not pass for one that follows them.
  for (size_t i = 0; i < kOffsets.size(); ++i)
    if (at(kOffsets[i]) != answers[i]) return std::nullopt;
  const auto wrong = std::ranges::find_if(answers, [&](const Tensor& y) { return y != right; });
  if (wrong == answers.end()) return std::nullopt;
  Attribution attribution =
      Stated(FindingKind::kMemory, "the answer depends on how its buffers are aligned", true);
  attribution.evidence.push_back(fmt::format(
      "each output is right with its buffers at one of {} addresses, but not all are with buffers "
      "{} bytes past a multiple of 64",
      kOffsets.size(), kOffsets[static_cast<size_t>(wrong - answers.begin())]));
  return attribution;
}

// Element i of the result is element (i + by) mod size of the tensor.
Tensor Rotated(const Tensor& tensor, int64_t by) {
  Tensor rotated = tensor;
  const int64_t middle = by % tensor.size();
  rotated.CopyFrom(tensor, middle, tensor.size() - middle, 0);
  rotated.CopyFrom(tensor, 0, middle, tensor.size() - middle);
  return rotated;
}

// A usual vector length `width` such that only the last (size mod width) elements are wrong, of
// which the first is `first`; 0 if there is none.
int64_t FlatTailWidth(int64_t size, const Divergence& first) {
  for (const int64_t width : {4, 8, 16, 32, 64}) {
    const int64_t body = size - size % width;
    if (body > 0 && first.index >= body) return width;
  }
  return 0;
}

// The answer is wrong at its end. If the rotated elements are wrong at the end too, their position
// is the cause, not their values.
std::optional<Attribution> WrongAtTheEnd(const Recorded& answer, Subject& subject) {
  const Case& c = answer.problem;
  const bool is_elementwise = CanRunInPlace(c.op) || c.op == Op::kQuantize ||
                              c.op == Op::kDequantize || c.op == Op::kRequantize;
  if (!is_elementwise || c.per_channel) return std::nullopt;
  const Tensor exact_y = RightOutput(c, ModelOf(subject.contract()));
  const int64_t size = exact_y.size();
  const int64_t width = FlatTailWidth(size, FirstDivergence(exact_y, answer.y).value());
  if (width == 0) return std::nullopt;
  // A rotation may move elements to the end that are right even there, so several are tried.
  for (const int64_t by : {1, 2, 3, 5, 7}) {
    Case turned = ProblemOf(c);
    turned.x = Rotated(c.x, by);
    if (HasTwoOperands(c.op)) turned.w = Rotated(c.w, by);
    const Tensor expected = Rotated(exact_y, by);
    const std::optional<Tensor> actual = Ask(subject, turned);
    if (!actual) return std::nullopt;
    const std::optional<Divergence> again = FirstDivergence(expected, *actual);
    if (!again) continue;
    // If an element that was wrong at the end is wrong in the middle too, its value is the cause.
    if (FlatTailWidth(size, *again) != width) return std::nullopt;
    const int64_t before = (again->index + by) % size;
    if (!answer.y.SameAt(before, exact_y)) continue;  // moved inside the tail
    Attribution attribution =
        Stated(FindingKind::kTail,
               fmt::format("only the last {} of {} outputs are wrong, whatever they are of",
                           size % width, size),
               true);
    attribution.evidence.push_back("with the elements moved by " + std::to_string(by) +
                                   " others are, and those that were are right");
    return attribution;
  }
  return std::nullopt;
}

// Only the last columns are wrong. If they are wrong again when other channels stand there, their
// position is the cause.
std::optional<Attribution> WrongInTheLastColumns(const Recorded& answer, Subject& subject) {
  const Case& c = answer.problem;
  const Layout layout = RowOf(c.op).layout;
  const bool has_channels = layout == Layout::kProducts || layout == Layout::kElements ||
                            (layout == Layout::kConv && c.window.groups == 1);
  if (!has_channels || RowOf(c.op).out_q == OutQParams::kFixed) return std::nullopt;
  const Convention* const model = ModelOf(subject.contract());
  const Tensor right = RightOutput(c, model);
  const int64_t width = TailWidth(c, right, answer.y);
  if (width == 0) return std::nullopt;
  int again = 0, of_others = 0;
  for (const int64_t by : {1, 2, 3, 5, 7, 11}) {
    std::vector<int64_t> channels = slice::Range(0, c.N);
    std::ranges::rotate(channels, channels.begin() + by % c.N);
    const Case turned = slice::Channels(c, channels);
    const Tensor expected = RightOutput(turned, model);
    const std::optional<Tensor> actual = Ask(subject, turned);
    if (!actual) return std::nullopt;
    if (*actual == expected) continue;
    if (TailWidth(turned, expected, *actual) != width) return std::nullopt;
    ++again;
    // A channel that was right elsewhere is wrong where it stands now.
    bool other = false;
    for (int64_t i = 0; i < expected.size(); ++i) {
      const int64_t before = i - i % c.N + channels[static_cast<size_t>(i % c.N)];
      other |= !actual->SameAt(i, expected) && answer.y.SameAt(before, right);
    }
    of_others += other;
  }
  if (again < 3 || of_others < 2) return std::nullopt;
  Attribution attribution = Stated(
      FindingKind::kTail,
      fmt::format("only the last N % {} outputs of a row are wrong, whatever channels they are of",
                  width),
      true);
  attribution.evidence.push_back(
      fmt::format("so they are with the channels in {} other orders", again));
  return attribution;
}

// The established fault that gives every output, in its own words.
std::optional<Attribution> EstablishedAlone(const Case& c, const Evidence& evidence,
                                            std::span<const Attribution> established) {
  for (const Attribution& fault : established) {
    if (fault.causes.empty() || !fault.where.holds(c)) continue;
    Attribution same = fault;
    std::erase_if(same.conventions,
                  [&](const Hypothesis& each) { return !evidence.Reproduced(each); });
    if (!same.conventions.empty()) {
      same.causes = same.conventions.front();
      if (same.conventions.size() < fault.conventions.size())
        same.diagnosis = ComputesAs(same.conventions);
    } else if (!evidence.Reproduced(same.causes)) {
      continue;
    }
    same.open.clear();
    same.evidence.assign(1, evidence.Text(same.causes));
    return same;
  }
  return std::nullopt;
}

// Several established causes, none more than the answer takes.
std::optional<Attribution> EstablishedTogether(const Evidence& evidence,
                                               std::vector<Hypothesis> left,
                                               const Convention* model) {
  const auto gives_it = [&] {
    return evidence.Reproduced(Together(evidence.SmallCase(), left, model));
  };
  if (left.size() < 2 || !gives_it()) return std::nullopt;
  for (Hypothesis& causes : std::views::reverse(left)) {
    Hypothesis spared = std::exchange(causes, {});
    if (!gives_it()) causes = std::move(spared);
  }
  return Shown(evidence, Together(evidence.SmallCase(), left, model));
}

// The cause of one answer: an established one, else the one that further cases bear out.
Attribution Examined(const Recorded& answer, Subject& subject, const AttributionOptions& options) {
  constexpr size_t kMostPairs = 12, kMostFits = 48;
  const Case& c = answer.problem;
  const Convention* const model = ModelOf(subject.contract());
  const Tensor exact_y = RightOutput(c, model);
  const Evidence evidence(c, answer.y, exact_y, model);
  if (auto alone = EstablishedAlone(c, evidence, options.established)) return *alone;
  std::vector<Hypothesis> established;
  for (const Attribution& fault : options.established)
    if (!fault.causes.empty() && fault.where.holds(c)) established.push_back(fault.causes);
  if (auto together = EstablishedTogether(evidence, established, model)) return *together;
  const auto ended = [&] { return options.stop && options.stop(); };
  if (options.probe_state && !ended()) {
    const Case& small = evidence.SmallCase();
    if (auto alignment = DependsOnAlignment(small, RightOutput(small, model), subject))
      return *alignment;
  }
  const auto told_before = std::ranges::find_if(options.established, &Attribution::of_subject);
  const Attribution* const of_subject =
      told_before == options.established.end() ? nullptr : &*told_before;
  const auto misread = [&]() -> std::optional<Attribution> {
    if (!options.probe_state || ended()) return std::nullopt;
    if (of_subject != nullptr) return *of_subject;
    const auto misreading = FindMisreading(c, exact_y, answer.y, subject);
    if (!misreading) return std::nullopt;
    return OfSubject(*misreading);
  };
  const auto influenced = [&]() -> std::optional<Attribution> {
    if (!options.probe_state || ended()) return std::nullopt;
    if (const auto influence = ForeignInfluence(c, exact_y, answer.y, subject))
      return Stated(FindingKind::kIndex, *influence, true);
    return std::nullopt;
  };
  const auto in_last_columns = [&]() -> std::optional<Attribution> {
    return options.probe_state && !ended() ? WrongInTheLastColumns(answer, subject) : std::nullopt;
  };
  if (options.only_established) {
    if (auto shown = influenced()) return *shown;
    return in_last_columns().value_or(Stated(FindingKind::kUnknown, "no established cause", false));
  }
  std::vector<Hypothesis> contradicted(options.contradicted.begin(), options.contradicted.end());
  std::vector<Hypothesis> open;
  std::vector<std::string> told;
  Nearest nearest;
  bool last_bit = true;  // of a float, units in the last place say little
  for (int64_t i = 0; i < answer.y.size() && IsCode(answer.y.dtype()); ++i)
    last_bit &= answer.y.SameAt(i, exact_y) || DistanceLsb(exact_y, answer.y, i) <= 1;
  const bool ties = DepartsOnTies(c, exact_y, answer.y);
  const auto examined = [&](std::vector<Hypothesis> fits,
                            std::span<const Hypothesis> beside) -> std::optional<Attribution> {
    std::erase_if(fits, [&](const Hypothesis& causes) {
      return std::ranges::find(options.contradicted, causes) != options.contradicted.end();
    });
    if (fits.empty() || ended()) return std::nullopt;
    // Beyond so many, the least likely ones are not asked about. Conventions do not count: dozens
    // may give a small answer, and left no room for the rule that they share.
    CheapestFirst(c.op, fits);
    size_t rules = 0;
    std::erase_if(fits, [&](const Hypothesis& causes) {
      return !IsConvention(causes) && ++rules > kMostFits;
    });
    // Beside a pair each of its halves that gives the output alone.
    std::set<const Cause*> alone;
    for (const Hypothesis& causes : fits) {
      if (causes.size() < 2 || causes.back()->stage == CauseStage::kPlace) continue;
      for (const Cause* cause : causes)
        if (std::ranges::find(options.contradicted, Hypothesis{cause}) ==
                options.contradicted.end() &&
            evidence.Reproduced(Hypothesis{cause}))
          alone.insert(cause);
    }
    for (const Cause* half : alone)
      if (std::ranges::find(fits, Hypothesis{half}) == fits.end()) fits.push_back({half});
    const auto ask = [&](const std::vector<Hypothesis>& about) {
      return Examine(evidence.SmallCase(), evidence.ActualOfSmallCase(), answer.context, about,
                     subject, beside);
    };
    Examination examination = ask(fits);
    // What leaves departures unexplained may be half of the fault: it is weighed with each other
    // half; so is what comes near to it, of which the likelier may be the true half.
    constexpr double kNearBest = 0.9;
    const Weighed& best = examination.weighed.front();
    if (best.bits >= kMargin && !HoldsEverywhere(best) && best.where.text.empty() &&
        best.causes.size() == 1) {
      std::vector<Hypothesis> halves;
      for (const Weighed& alike : examination.weighed) {
        const bool comes_near = alike.bits >= kNearBest * best.bits;
        if (alike.causes.size() > 1 || IsConvention(alike.causes) || !comes_near) continue;
        for (Hypothesis& both : WithAnother(c.op, alike.causes, evidence))
          halves.push_back(std::move(both));
      }
      CheapestFirst(c.op, halves);
      if (halves.size() > kMostFits) halves.resize(kMostFits);
      halves.push_back(best.causes);
      Examination both = ask(halves);
      both.asked += examination.asked;
      const auto half = std::ranges::find(both.weighed, best.causes, &Weighed::causes);
      if (half != both.weighed.end() && both.weighed.front().bits >= half->bits + kMargin)
        examination = std::move(both);
    }
    RemoveIdleHalves(c, examination.weighed);
    if (Nearest near = NearestRounding(c.op, examination.weighed, last_bit);
        near.share > nearest.share)
      nearest = std::move(near);
    std::optional<Attribution> attribution =
        Decision(c, evidence, std::move(examination.weighed), examination.asked, ties).Take();
    if (attribution && attribution->complete) return attribution;
    if (attribution) {
      open.insert(open.end(), attribution->open.begin(), attribution->open.end());
      if (!told.empty()) return std::nullopt;  // the likeliest explanations say enough
      told.push_back(attribution->diagnosis);
      told.insert(told.end(), attribution->evidence.begin(), attribution->evidence.end());
    } else {
      for (const Hypothesis& causes : fits)
        if (std::ranges::find(contradicted, causes) == contradicted.end())
          contradicted.push_back(causes);
      if (!told.empty()) return std::nullopt;
      told.push_back(
          fmt::format("{} further cases asked: {} {} the output, and other answers "
                      "contradict {}",
                      examination.asked, ListOf(c.op, fits), fits.size() == 1 ? "gives" : "give",
                      fits.size() == 1 ? "it" : "each of them"));
    }
    return std::nullopt;
  };
  // The cheapest explanations first. If further answers contradict them, the next ones are
  // examined.
  const std::vector<Hypothesis> whole = FitsOf(c, evidence);
  // The answers that contradict them may show other faults of the subject.
  if (!established.empty()) {
    if (auto named = examined(whole, established)) return *named;
  }
  const std::optional<Attribution> named = examined(whole, {});
  if (named && named->where.text.empty()) return *named;
  // What is read elsewhere is seen by an experiment; a condition may be fitted to a few answers.
  const bool other_trait = of_subject != nullptr && of_subject->kind != FindingKind::kIndex &&
                           of_subject->kind != FindingKind::kPadding;
  if (named && !IsArithmetic(named->causes) && named->causes.front()->stage != CauseStage::kTail &&
      !other_trait) {
    constexpr int64_t kManyMore = 24;  // so many that their condition is no chance
    if (named->borne_out < kManyMore)
      if (auto shown = misread()) return *shown;
  }
  // A place may say what a condition only comes near to, if it needs none itself.
  const auto placed = examined(CausesInPlaces(evidence, kMostPairs, whole), {});
  if (placed && (!named || placed->where.text.empty())) return *placed;
  if (named) return *named;
  if (const auto shown = misread()) return *shown;
  if (const auto shown = influenced()) return *shown;
  // Two causes, of which one may do nothing in this case.
  if (auto both = examined(TwoCauses(c, evidence, kMostFits), {})) return *both;
  if (const auto shown = in_last_columns()) return *shown;
  constexpr double kNearly = 0.9;
  if (nearest.share >= kNearly) return *nearest.said;
  if (ended()) return Stated(FindingKind::kUnknown, "the search for its cause was stopped", false);
  const auto trait = options.probe_state ? FindCommonTrait(c, subject) : std::nullopt;
  if (trait) return OfSubject(*trait);
  Attribution attribution = Unexplained(c.op, evidence);
  if (told.empty()) {
    std::vector<Hypothesis> fits(options.contradicted.begin(), options.contradicted.end());
    std::erase_if(fits, [&](const Hypothesis& causes) { return !evidence.Reproduced(causes); });
    if (!fits.empty()) told.push_back("ruled out by other answers: " + ListOf(c.op, fits));
  }
  if (!told.empty()) {
    const bool undecided = told.front().starts_with("not enough");
    attribution.diagnosis = undecided ? told.front() : "no known cause gives every answer asked";
    attribution.evidence.assign(told.begin() + (undecided ? 1 : 0), told.end());
  }
  attribution.open = open;
  attribution.contradicted = contradicted;
  return attribution;
}

// Codes of 4 bits that a dequantize shows, where they are right in these bits and wrong beside
// them.
std::optional<Attribution> RightInLowBits(const Case& c, const Tensor& actual,
                                          const Evidence& evidence) {
  constexpr int kBits = 4;
  if (c.op != Op::kDequantize || BitsOf(c.x.dtype()) != kBits || c.relu) return std::nullopt;
  constexpr double kBitsOfChoice = 8;
  if (kBits * static_cast<double>(evidence.departures()) < kMargin + kBitsOfChoice)
    return std::nullopt;
  for (int64_t i = 0; i < actual.size(); ++i) {
    const int64_t n = i % c.N;
    const double code = actual.as<float>()[static_cast<size_t>(i)] / double{c.x_q.scale_at(n)} +
                        c.x_q.zero_point_at(n) - c.x.IntAt(i);
    if (std::fmod(code, 1 << kBits) != 0) return std::nullopt;
  }
  Attribution shown = Stated(FindingKind::kIndex,
                             "the subject has the low 4 bits of every code right, but not always "
                             "the bits above them: it does not mask what lies there, or does not "
                             "extend the sign",
                             true);
  shown.evidence.push_back(
      fmt::format("so in all {} outputs that are not exact", evidence.departures()));
  return shown;
}

// What is said of an answer that no subject is asked about: what it is worth decides.
Attribution ByWorth(const Case& c, const Tensor& actual, const Tensor& right,
                    const Evidence& evidence) {
  const bool ties = DepartsOnTies(c, right, actual);
  std::vector<Hypothesis> fits = FitsOf(c, evidence);
  if (fits.empty()) fits = TwoCauses(c, evidence, 12);
  if (fits.empty()) fits = CausesInPlaces(evidence, 12, {});
  if (auto decided =
          Decision(c, evidence, WeighedByOneAnswer(c, right, actual, fits), 0, ties).Take())
    return *decided;
  if (auto low = RightInLowBits(c, actual, evidence)) return *low;
  return Unexplained(c.op, evidence);
}

// Says nothing of a cause that an answer is not worth: chance gives a code or two as well, and of
// several causes that give it none is named.
Attribution IfWorth(Attribution attribution, const Case& c, const Tensor& right,
                    const Tensor& actual) {
  std::vector<Hypothesis> fits{attribution.causes};
  fits.insert(fits.end(), attribution.open.begin(), attribution.open.end());
  const std::vector<Weighed> weighed = WeighedByOneAnswer(c, right, actual, fits);
  const double bits = BitsSaved(c, right, actual, actual) - BitsOf(attribution.causes);
  const bool alone = std::ranges::all_of(weighed, [&](const Weighed& each) {
    return each.bits <= bits - kAhead || KindOf(each.causes) == attribution.kind;
  });
  if (bits >= kMargin && alone) return attribution;
  return Thin(
      std::move(attribution),
      fmt::format(
          "{} {} {}, as chance may", ListOf(c.op, fits), fits.size() == 1 ? "gives" : "give",
          actual.size() == 1 ? "the output" : fmt::format("all {} outputs", actual.size())));
}

// The likeliest cause of an answer whose subject will be asked, or that is only sorted.
Attribution Likeliest(const Case& c, const Tensor& actual, const Tensor& right,
                      const Evidence& evidence) {
  if (auto one = OneCause(evidence)) return IfWorth(*std::move(one), c, right, actual);
  const std::vector<Hypothesis> two = TwoCauses(c, evidence, 1, INFINITY, false);
  if (!two.empty()) return IfWorth(Shown(evidence, two.front()), c, right, actual);
  return Guess(c, right, actual, evidence);
}

// The cause of one answer, without asking its subject; `decide` if it is not exact and not hinted
// at.
Attribution OfOneAnswer(const Case& c, const Tensor& actual, std::span<const Cause* const> hint,
                        const Convention* model,
                        Attribution (*decide)(const Case&, const Tensor& actual,
                                              const Tensor& right, const Evidence&)) {
  const Tensor right = RightOutput(c, model);
  if (actual == right) return Stated(FindingKind::kUnknown, "the output is exact", false);
  const Evidence evidence(c, actual, right, model);
  const Hypothesis hinted(hint.begin(), hint.end());
  if (evidence.Reproduced(hinted)) return Shown(evidence, hinted);
  return decide(c, actual, right, evidence);
}

// A kind that the property gives is the cause. Only kClamp is not: it says where the output went
// wrong.
bool NamesCause(const Verdict& verdict) {
  return verdict.kind && *verdict.kind != FindingKind::kClamp;
}

Attribution FromAnswers(const Verdict& verdict, const std::vector<Recorded>& recorded,
                        Subject& subject, const AttributionOptions& options) {
  // Dependence on memory also makes runs differ from each other, and names the cause more closely.
  const bool of_state =
      verdict.kind == FindingKind::kMemory || verdict.kind == FindingKind::kNondeterminism;
  if (of_state && options.probe_state) {
    constexpr size_t kMostAsked = 3;
    for (size_t i = 0; i < std::min(recorded.size(), kMostAsked); ++i) {
      if (auto memory = DependsOnPoison(recorded[i].problem, subject)) return *memory;
    }
  }
  if (NamesCause(verdict)) return Stated(*verdict.kind, verdict.reason, true);
  if (auto environment = FollowsEnvironment(recorded)) return *environment;
  const Convention* const model = ModelOf(subject.contract());
  std::vector<const Recorded*> departing;
  for (const Recorded& answer : recorded) {
    if (answer.y != RightOutput(answer.problem, model)) departing.push_back(&answer);
  }
  if (departing.empty()) {
    return Stated(verdict.kind.value_or(FindingKind::kUnknown),
                  "every answer is " +
                      (model == nullptr ? "exact" : "the one of " + subject.contract().text()),
                  false);
  }
  const auto examined = [&](const Recorded& answer) {
    Attribution attribution = Examined(answer, subject, options);
    attribution.looked_at = answer.problem;
    attribution.looked_at->observed = Observed{std::string(subject.name()), answer.y};
    return attribution;
  };
  if (options.probe_state) {
    if (auto state = DependsOnState(*departing.front(), subject)) return *state;
    if (const auto tail = WrongAtTheEnd(*departing.front(), subject)) {
      // The vectors of a named convention may leave a tail too, which is computed otherwise.
      if (!options.examine && !options.only_established) return *tail;
      Attribution by_cause = examined(*departing.front());
      if (by_cause.by_name) return by_cause;
      return *tail;
    }
  }
  if (options.only_established) return Examined(*departing.front(), subject, options);
  if (options.examine) {
    // The first answer whose cause is borne out decides.
    constexpr size_t kMost = 3;
    std::optional<Attribution> first;
    for (size_t i = 0; i < std::min(departing.size(), kMost); ++i) {
      Attribution attribution = examined(*departing[i]);
      if (attribution.complete) return attribution;
      if (!first) first = std::move(attribution);
    }
    return *first;
  }
  // The first answer with one unambiguous cause decides; until then the best guess is kept.
  std::optional<Attribution> guess;
  for (const Recorded* answer : departing) {
    Attribution attribution =
        OfOneAnswer(answer->problem, answer->y, options.hint, model, Likeliest);
    if (attribution.complete && !attribution.ambiguous) return attribution;
    const bool is_better = !guess || (attribution.complete && !guess->complete) ||
                           guess->kind == FindingKind::kUnknown;
    if (is_better) guess = std::move(attribution);
  }
  if (guess->kind == FindingKind::kUnknown && verdict.kind) guess->kind = *verdict.kind;
  return *guess;
}

}  // namespace

void DropCondition(Attribution& attribution) {
  const std::string said = ", " + attribution.where.text;
  if (attribution.diagnosis.ends_with(said))
    attribution.diagnosis.resize(attribution.diagnosis.size() - said.size());
  attribution.where = {};
  if (attribution.causes.empty()) return;
  attribution.where.text = kInSomeCases;
  attribution.diagnosis += ", " + attribution.where.text;
}

Attribution Named(Op op, Hypothesis causes) {
  const FindingKind kind = KindOf(causes);
  return Named(op, std::move(causes), kind);
}

Attribution Named(Op op, Hypothesis causes, FindingKind kind) {
  Attribution named = Stated(kind, Sentence(op, causes), true);
  if (IsConvention(causes) && kind == Pairs().kind)
    named.diagnosis = fmt::format("the subject {}, as {} does", Pairs().sentence,
                                  causes.front()->convention->name);
  named.causes = std::move(causes);
  return named;
}

std::string ComputesAs(std::span<const Hypothesis> conventions) {
  return "the subject computes " + AsNamed(conventions);
}

void Establish(const Attribution& found, std::vector<Attribution>& established) {
  if (!found.complete || (found.causes.empty() && !found.of_subject)) return;
  const auto same = std::ranges::find_if(established, [&](const Attribution& each) {
    const bool narrower = std::ranges::count(each.conventions, found.causes) > 0;
    return (each.causes == found.causes || narrower) && each.of_subject == found.of_subject;
  });
  if (same == established.end()) {
    established.push_back(found);
  } else if (!found.of_subject) {
    *same = found;
  }
}

Explanation ExplanationOf(const Attribution& attribution, Op op) {
  if (!attribution.complete && !attribution.doubted) return {};
  return {std::string(Name(attribution.kind)), attribution.diagnosis,
          NamesOf(attribution.causes, op),
          fmt::format("{}", fmt::join(attribution.evidence, "\n"))};
}

constexpr std::string_view kNext = "; ";

std::vector<Hypothesis> RuledOut(const Case& c) {
  std::vector<Hypothesis> all;
  if (!c.observed) return all;
  std::string_view left = c.observed->why.ruled_out;
  while (!left.empty()) {
    const size_t end = std::min(left.find(kNext), left.size());
    if (Hypothesis causes = CausesNamed(left.substr(0, end), c.op); !causes.empty())
      all.push_back(std::move(causes));
    left.remove_prefix(std::min(end + kNext.size(), left.size()));
  }
  return all;
}

std::string RuledOutText(const Case& c, std::span<const Hypothesis> contradicted) {
  std::set<std::string> names;
  for (const Hypothesis& causes : contradicted)
    if (Counterfactual(c, causes, ModelOf(c)) == c.observed->y) names.insert(NamesOf(causes, c.op));
  return fmt::format("{}", fmt::join(names, kNext));
}

std::optional<Attribution> Kept(const Case& c, const Tensor& actual, const Subject* subject) {
  if (!c.observed || c.observed->why.kind.empty() || c.observed->y != actual) return std::nullopt;
  if (subject != nullptr && !c.observed->by.starts_with(subject->name())) return std::nullopt;
  const Explanation& why = c.observed->why;
  const FindingKind kind = ParseFindingKind(why.kind).value();
  Attribution kept = Stated(kind, why.cause, kind != FindingKind::kUnknown);
  kept.doubted = !kept.complete;
  kept.causes = CausesNamed(why.causes, c.op);
  const bool unknown = kept.causes.empty() && !why.causes.empty();
  if (unknown || (!kept.causes.empty() && Counterfactual(c, kept.causes, ModelOf(c)) != actual))
    return std::nullopt;
  for (size_t from = 0; from < why.evidence.size();) {
    const size_t to = std::min(why.evidence.find('\n', from), why.evidence.size());
    kept.evidence.push_back(why.evidence.substr(from, to - from));
    from = to + 1;
  }
  return kept;
}

namespace {

// Where an element of a row in blocks may find its scale and zero point by mistake.
struct BlockTaken {
  const char* which;
  // The entry of the lists, for element n of row m; -1 behind their end, where 0 is read.
  int64_t (*entry)(const Case& c, int64_t m, int64_t n);
};
int64_t BlockOf(const Case& c, int64_t n, int64_t step) {
  return std::clamp<int64_t>(n / c.x_block + step, 0, ElementBlocks(c) - 1);
}
constexpr BlockTaken kBlocksTaken[] = {
    {"the block behind",
     [](const Case& c, int64_t m, int64_t n) { return m * ElementBlocks(c) + BlockOf(c, n, 1); }},
    {"the block before",
     [](const Case& c, int64_t m, int64_t n) { return m * ElementBlocks(c) + BlockOf(c, n, -1); }},
    {"the first block of the row",
     [](const Case& c, int64_t m, int64_t) { return m * ElementBlocks(c); }},
    {"the first row", [](const Case& c, int64_t, int64_t n) { return BlockOf(c, n, 0); }},
    {"block n modulo the number of blocks, for element n of a row",
     [](const Case& c, int64_t m, int64_t n) {
       return m * ElementBlocks(c) + n % ElementBlocks(c);
     }},
    {"the block that has its place where the list goes block by block, not row by row",
     [](const Case& c, int64_t m, int64_t n) { return BlockOf(c, n, 0) * c.M + m; }},
    {"block i, for element i, and 0 behind the last block",
     [](const Case& c, int64_t m, int64_t n) {
       const int64_t i = m * c.N + n;
       return i < c.M * ElementBlocks(c) ? i : -1;
     }},
};

// The first element that has this entry.
int64_t FirstOfEntry(const Case& c, int64_t entry) {
  return entry / ElementBlocks(c) * c.N + entry % ElementBlocks(c) * c.x_block;
}

// The elements of slice::BlocksAsChannels with the scales, the zero points or both of the entries
// that they may find by mistake.
Case WithEntries(const Case& c, Case elements, const BlockTaken& taken, bool scales,
                 bool zero_points) {
  const Case own = elements;  // of the same elements, which have one entry each
  for (int64_t i = 0; i < elements.N; ++i) {
    const auto to = static_cast<size_t>(i);
    const int64_t entry = taken.entry(c, i / c.N, i % c.N);
    if (entry < 0) {  // a code less itself is 0, as times a scale of 0
      if (!RowOf(c.op).cast && (zero_points || scales))
        ChannelQParams(elements).zero_point[to] = scales ? elements.x.IntAt(i) : 0;
      continue;
    }
    const auto from = static_cast<size_t>(FirstOfEntry(c, entry));
    const auto take = [&](QParams& q, const QParams& of) {
      if (scales) q.scale[to] = of.scale[from];
      if (zero_points) q.zero_point[to] = of.zero_point[from];
    };
    take(ChannelQParams(elements), ChannelQParams(own));
    if (RowOf(c.op).cast) take(elements.x_q, own.x_q);
  }
  return elements;
}

// Of blocks of a row: by the one answer alone, as that to the same elements with a scale for each,
// unless elements have what those of another block should have. No further case is asked: other
// cases have no blocks.
Attribution OfElementBlocks(const Case& c, const Tensor& actual,
                            std::span<const Cause* const> hint) {
  constexpr double kBitsOfBlock = 5;  // what it takes to choose it
  const Case elements = slice::BlocksAsChannels(ProblemOf(c));
  const Tensor given = slice::InRowsOf(elements, actual);
  const double worth = BitsSaved(elements, exact::Evaluate(elements), given, given);
  for (const auto& [what, scales, zero_points] : {std::tuple{"scale and zero point", true, true},
                                                  {"the scale", true, false},
                                                  {"the zero point", false, true}}) {
    if (worth < kMargin + kBitsOfBlock) break;
    if (zero_points && RowOf(c.op).cast) continue;  // it has none
    std::string from;                               // with two blocks several mean the same
    for (const BlockTaken& block : kBlocksTaken) {
      if (scales && c.op != Op::kDequantize && block.entry(c, c.M - 1, c.N - 1) < 0) continue;
      if (exact::Evaluate(WithEntries(c, elements, block, scales, zero_points)) == given)
        from += fmt::format("{}of {}", from.empty() ? "" : " or ", block.which);
    }
    if (!from.empty())
      return Stated(FindingKind::kIndex, fmt::format("the subject takes {} {}", what, from), true);
  }
  return OfOneAnswer(elements, given, hint, nullptr, ByWorth);
}

}  // namespace

Attribution Attribute(const Case& c, const Tensor& actual, std::span<const Cause* const> hint) {
  if (hint.empty()) {
    if (auto kept = Kept(c, actual, nullptr)) return *kept;
  }
  if (HasElementBlocks(c)) return OfElementBlocks(c, actual, hint);
  return OfOneAnswer(c, actual, hint, nullptr, ByWorth);
}

Attribution Attribute(const Case& c, const Tensor& actual, Subject& subject) {
  if (auto kept = Kept(c, actual, &subject)) return *kept;
  if (HasElementBlocks(c)) return OfElementBlocks(c, actual, {});
  // An answer that keeps the promised convention can be wrong only by the exact meaning.
  const Contract promised = subject.contract();
  if (actual == RightOutput(c, ModelOf(promised))) subject.set_contract({});
  const std::vector<Hypothesis> ruled_out = RuledOut(c);
  Attribution attribution =
      Examined({ProblemOf(c), {}, actual}, subject, {.contradicted = ruled_out});
  subject.set_contract(promised);
  return attribution;
}

namespace {

// Whether no sum of codes and zero points, of either sign, needs more than 24 bits.
bool IsSmallInIntegers(const Case& c) {
  for (int64_t m = 0; m < c.M; ++m) {
    for (int64_t n = 0; n < c.N; ++n) {
      double most = 0;
      for (int64_t k = 0; k < c.K; ++k) {
        const size_t of_w = WEntry(c, n, k), of_x = XEntry(c, m, k);
        const double x = std::abs(c.x.IntAt(m * c.K + k)) + std::abs(c.x_q.zero_point[of_x]);
        const double w = std::abs(c.w.IntAt(n * c.K + k)) + std::abs(c.w_q.zero_point[of_w]);
        most += x * w * double{c.w_q.scale[of_w]};
      }
      if (most >= 0x1p24) return false;
    }
  }
  return true;
}

// A subject that promises float32 sums rounds them, and no cause gives its last bits. Of the same
// codes with scales of 1 and no bias the outputs are integers, which it has to give exactly where
// they have at most 24 bits: in parts of so many terms. And again with scales of 1 to 5, by which
// blocks of weights differ. Empty where the subject takes no such case.
std::vector<Case> InIntegers(const Case& c, const Verdict& verdict, const Subject& subject) {
  constexpr int64_t kMostTerms = 1024;  // of products of 14 bits
  if (!subject.contract(c.op).sum || c.op != Op::kLinear || !HasSums(c) ||
      c.out_dtype != DType::kF32 || !verdict.divergence)
    return {};
  Case integers = ProblemOf(c);
  integers.bias.reset();
  for (QParams* q : {&integers.x_q, &integers.w_q}) std::ranges::fill(q->scale, 1.0f);
  const int64_t block = std::max(c.w_block, 1);
  const int64_t terms = std::max(kMostTerms / block * block, block);
  std::vector<Case> parts;
  for (int64_t from = 0; from < c.K; from += terms) {
    Case part = terms >= c.K
                    ? integers
                    : slice::Terms(integers, slice::Range(from, std::min(from + terms, c.K)));
    if (part != ProblemOf(c) && subject.CannotRun(part).empty()) parts.push_back(std::move(part));
  }
  const size_t with_scales_of_1 = parts.size();
  for (size_t i = 0; i < with_scales_of_1 && c.w_block != 0; ++i) {
    Case part = parts[i];
    constexpr std::array kScales{1.0F, 3.0F, 5.0F, 2.0F, 4.0F};
    for (size_t entry = 0; entry < part.w_q.scale.size(); ++entry)
      part.w_q.scale[entry] = kScales[entry % kScales.size()];
    if (IsSmallInIntegers(part) && subject.CannotRun(part).empty())
      parts.push_back(std::move(part));
  }
  return parts;
}

// Adds the sizes at which a case shows what was found, if it shows it here.
void AddWhere(const Case& c, Subject& subject, const Shows& shows, Attribution& attribution) {
  if (shows(c) != true) return;
  const std::optional<WhereShown> where = FindWhereItShows(c, subject, shows);
  if (!where) return;
  attribution.diagnosis += ", " + where->text;
  attribution.where = {.text = where->text, .holds = where->holds};
  attribution.asked_on = true;
  attribution.evidence.push_back(where->evidence);
}

// A byte beyond a buffer: at which sizes.
Attribution TouchedOutside(const Case& c, const Verdict& verdict, Subject& subject) {
  Attribution touched = Stated(*verdict.kind, verdict.reason, true);
  const auto shows = [&](const Case& problem) -> std::optional<bool> {
    for (const bool at_guard : {true, false}) {
      RunContext context;
      context.poison = kPoison;
      context.end_at_guard = at_guard;
      const RunStatus status = subject.Run(problem, context).status;
      if (status == RunStatus::kTouchedOutside) return true;
      if (status != RunStatus::kOk) return std::nullopt;
    }
    return false;
  };
  AddWhere(ProblemOf(c), subject, shows, touched);
  return touched;
}

// The answer changes with gaps: with those of which tensor, and whether what lies there is read.
std::optional<Attribution> ChangedByGaps(const Case& c, const Verdict& verdict, Subject& subject) {
  struct Gap {
    int64_t RunContext::* size;
    std::string_view where;
  };
  constexpr std::array kGaps{Gap{&RunContext::x_row_gap, "rows of the input"},
                             Gap{&RunContext::y_row_gap, "rows of the output"},
                             Gap{&RunContext::w_row_gap, "the weights of two output channels"},
                             Gap{&RunContext::x_line_gap, "lines of the image"}};
  constexpr int64_t kGap = 5;
  const std::optional<Tensor> dense = Ask(subject, c);
  if (!dense || Ask(subject, c, kSecondPoison) != dense) return std::nullopt;
  const auto with = [&](const Case& problem, const Gap& gap, uint8_t poison) {
    RunContext context;
    context.poison = poison;
    context.*gap.size = kGap;
    return Ask(subject, problem, context);
  };
  std::vector<std::string_view> where;
  bool read = true;
  for (const Gap& gap : kGaps) {
    const std::optional<Tensor> first = with(c, gap, kPoison), second = with(c, gap, kSecondPoison);
    if (!first || !second || (first == dense && second == dense)) continue;
    where.push_back(gap.where);
    read &= first != second;
  }
  if (where.empty()) return std::nullopt;
  Attribution gaps = Stated(
      *verdict.kind,
      fmt::format("the subject {} gaps between {}",
                  read ? "computes with what lies in the" : "gives another result where there are",
                  fmt::join(where, ", and between ")),
      true);
  gaps.evidence.push_back(verdict.reason);
  gaps.asked_on = true;
  if (where != std::vector{kGaps.front().where} || HasWindow(c.op) || !IsCode(c.x.dtype()) ||
      BitsOf(c.x.dtype()) < 8)
    return gaps;
  // Does it take the rows of x to lie without gaps? Then what it computes is known.
  const auto shows = [&](const Case& problem) -> std::optional<bool> {
    Case dense_rows = ProblemOf(problem);
    // Bytes of kPoison, a positive code of each type.
    const uint32_t poison = 0x01010101u * kPoison >> (32 - BitsOf(c.x.dtype()));
    for (int64_t i = 0; i < dense_rows.x.size(); ++i) {
      const int64_t row = i / (problem.K + kGap), at = i % (problem.K + kGap);
      dense_rows.x.SetBits(i, at < problem.K ? problem.x.BitsAt(row * problem.K + at) : poison);
    }
    const Convention* const model = ModelOf(subject.contract(c.op));
    const Tensor right = RightOutput(problem, model), wrong = RightOutput(dense_rows, model);
    if (right == wrong) return std::nullopt;
    const std::optional<Tensor> answer = with(problem, kGaps.front(), kPoison);
    if (!answer || (*answer != right && *answer != wrong)) return std::nullopt;
    return *answer == wrong;
  };
  if (shows(c) != true) return gaps;
  gaps.diagnosis = "the subject takes the rows of the input to lie without gaps";
  AddWhere(c, subject, shows, gaps);
  return gaps;
}

// Several threads leave outputs as they were.
std::optional<Attribution> UnwrittenByThreads(const Recorded& asked, const Verdict& verdict,
                                              Subject& subject) {
  const int threads = asked.context.threads;
  const auto shows = [&](const Case& problem) -> std::optional<bool> {
    RunContext context;
    context.threads = threads;
    context.poison = kPoison;
    const std::optional<Tensor> first = Ask(subject, problem, context);
    context.poison = kSecondPoison;
    const std::optional<Tensor> second = Ask(subject, problem, context);
    if (!first || !second || !DifferInUnwritten(*first, *second)) return std::nullopt;
    return first != second;
  };
  if (shows(asked.problem) != true) return std::nullopt;
  Attribution unwritten =
      Stated(*verdict.kind,
             fmt::format("the subject leaves outputs unwritten with {} threads", threads), true);
  unwritten.evidence.push_back(verdict.reason);
  unwritten.asked_on = true;
  AddWhere(asked.problem, subject, shows, unwritten);
  return unwritten;
}

// A claim compares two runs. What the one computes that departs may be a known mistake, which the
// subject makes where it is run in this way: `how`.
std::optional<Attribution> MadeWhereRun(std::string_view how, const Recorded& asked,
                                        const Verdict& verdict, Subject& subject,
                                        const AttributionOptions& options) {
  const Tensor right = RightOutput(asked.problem, ModelOf(subject.contract()));
  RunContext again = asked.context;
  again.poison = kPoison;
  if (asked.y == right || Ask(subject, asked.problem) != right ||
      Ask(subject, asked.problem, again) != asked.y)
    return std::nullopt;
  const Attribution found = Examined(asked, subject, {.probe_state = false, .stop = options.stop});
  if (!found.complete || found.causes.empty()) return std::nullopt;
  Attribution made = Stated(*verdict.kind, fmt::format("{} {}", how, found.diagnosis), true);
  made.evidence = found.evidence;
  made.evidence.push_back(verdict.reason);
  made.asked_on = true;
  return made;
}

// What is left of an earlier problem.
std::optional<Attribution> Kept(const Case& c, const Verdict& verdict, Subject& subject) {
  const std::optional<KeptFromBefore> found = FindKept(c, subject);
  if (!found) return std::nullopt;
  Attribution kept = Stated(*verdict.kind, found->text, true);
  kept.evidence = {verdict.reason, found->evidence};
  kept.asked_on = true;
  AddWhere(ProblemOf(c), subject, found->shows, kept);
  return kept;
}

// What further questions say of a finding about memory or threads, whose property has said what is
// wrong.
std::optional<Attribution> OfMemory(const Case& c, const Verdict& verdict, const Recorder& recorder,
                                    Subject& subject, const AttributionOptions& options) {
  if (verdict.kind == FindingKind::kMemory) {
    if (verdict.reason.starts_with(Name(RunStatus::kTouchedOutside)))
      return TouchedOutside(c, verdict, subject);
    if (verdict.reason.starts_with(relation::kChangesWithGaps))
      return ChangedByGaps(ProblemOf(c), verdict, subject);
    for (const Recorded& asked : recorder.recorded()) {
      const char* const how = asked.context.over_w          ? "written over the second operand,"
                              : asked.context.shared_inputs ? "with one buffer for both operands,"
                              : asked.context.in_place      ? "written over its input,"
                                                            : nullptr;
      if (how == nullptr) continue;
      if (auto made = MadeWhereRun(how, asked, verdict, subject, options)) return *made;
    }
  }
  if (verdict.kind == FindingKind::kNondeterminism) {
    for (const Recorded& asked : recorder.recorded()) {
      if (asked.context.threads < 2) continue;
      if (auto unwritten = UnwrittenByThreads(asked, verdict, subject)) return unwritten;
      return MadeWhereRun(fmt::format("with {} threads", asked.context.threads), asked, verdict,
                          subject, options);
    }
    return Kept(c, verdict, subject);
  }
  return std::nullopt;
}

Attribution Attributed(const Case& c, const Verdict& verdict, const Recorder& recorder,
                       Subject& subject, const AttributionOptions& options) {
  if (options.probe_state && options.examine) {
    if (auto memory = OfMemory(c, verdict, recorder, subject, options)) return *memory;
  }
  for (const Recorded& asked : recorder.recorded()) {
    if (HasElementBlocks(asked.problem) && asked.y != exact::Evaluate(asked.problem))
      return OfElementBlocks(asked.problem, asked.y, options.hint);
  }
  for (const Case& part : InIntegers(c, verdict, subject)) {
    Recorder again(subject);
    again.Run(part, RunContext{});
    Attribution found = FromAnswers(verdict, again.recorded(), subject, options);
    if (!found.complete) continue;
    if (!found.evidence.empty())
      found.evidence.front().insert(
          0, fmt::format("asked for {}the codes found, with {}: ", part.K == c.K ? "" : "some of ",
                         std::ranges::all_of(part.w_q.scale, [](float s) { return s == 1; })
                             ? "scales of 1"
                             : "scales that are small integers"));
    return found;
  }
  return FromAnswers(verdict, recorder.recorded(), subject, options);
}

}  // namespace

Attribution Attribute(const Case& c, const Verdict& verdict, Subject& subject) {
  if (NamesCause(verdict)) return Stated(*verdict.kind, verdict.reason, true);
  Recorder recorder(subject);
  std::vector<Case> candidates{ProblemOf(c)};
  if (HasSums(c) && c.out_dtype != DType::kF32 && c.N > 0 && (c.M > 0 || !IsConv(c.op))) {
    const Case base = sweep::OneRow(c);
    candidates.push_back(sweep::Expand(base, sweep::Codes(base)));
  }
  for (const Case& candidate : candidates) {
    if (subject.CannotRun(candidate).empty()) recorder.Run(candidate, RunContext{});
  }
  return Attributed(c, verdict, recorder, subject, {.hint = {}, .probe_state = false});
}

bool IsBorneOut(const Case& c, Subject& subject, const Hypothesis& causes) {
  const Outcome outcome = subject.Run(c, {});
  if (!outcome.ok()) return true;
  const auto undefined = [&](const Cause* cause) {
    return cause->convention != nullptr && !cause->convention->cannot_run(c).empty();
  };
  if (std::ranges::any_of(causes, undefined)) return true;
  const Convention* const model = ModelOf(subject.contract());
  const Tensor right = RightOutput(c, model);
  if (outcome.y == right) return true;
  const Agreement agreement =
      Compare(right, outcome.y, Counterfactual(c, causes, model).value_or(right));
  return agreement.explained > 0 && agreement.spoiled == 0;
}

Judged JudgeAndAttribute(const Property& property, const Case& c, Subject& subject,
                         const AttributionOptions& options) {
  Recorder recorder(subject);
  Judged judged;
  judged.verdict = Judge(property, c, recorder);
  if (!judged.verdict.failed()) return judged;
  std::vector<Hypothesis> contradicted = RuledOut(c);
  contradicted.insert(contradicted.end(), options.contradicted.begin(), options.contradicted.end());
  AttributionOptions how = options;
  how.contradicted = contradicted;
  judged.attribution = Attributed(c, judged.verdict, recorder, subject, how);
  return judged;
}

}  // namespace qualm::triage
