// SPDX-License-Identifier: Apache-2.0
#include "triage/identify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ranges>
#include <utility>

#include "core/float_text.h"
#include "core/nearest.h"
#include "core/status.h"
#include "core/subject.h"
#include "oracles/exact/exact.h"
#include "properties/engine.h"
#include "properties/gen/library.h"
#include "triage/printed.h"
#include "triage/reduce.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

using State = Comparison::State;

class Deadline {
 public:
  Deadline(double seconds, std::function<bool()> stopped)
      : seconds_(seconds), stopped_(std::move(stopped)) {}
  // Whether `share` of the time is over, or options.stopped says so; false where no time was set.
  bool Over(double share = 1) const {
    if (stopped()) return true;
    return seconds_ > 0 &&
           std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() >
               seconds_ * share;
  }
  bool set() const { return seconds_ > 0; }
  bool stopped() const { return stopped_ && stopped_(); }

 private:
  double seconds_;
  std::function<bool()> stopped_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Counts reasons. Sorted() gives the most frequent first, and equally frequent ones by name.
class Reasons {
 public:
  void Add(const std::string& reason) { ++counts_[reason]; }
  std::vector<std::pair<std::string, int64_t>> Sorted() const {
    std::vector<std::pair<std::string, int64_t>> list(counts_.begin(), counts_.end());
    std::ranges::sort(list, {}, [](const auto& entry) {
      return std::pair<int64_t, std::string_view>(-entry.second, entry.first);
    });
    return list;
  }
  std::string First() const { return counts_.empty() ? "" : Sorted().front().first; }

 private:
  std::map<std::string, int64_t> counts_;
};

template <class T>
auto Indices(const std::vector<T>& list) {
  return std::views::iota(size_t{0}, list.size());
}

// The first divergence, or (`worst`) the largest; of equally large ones the first.
std::optional<Divergence> Compare(const Tensor& expected, const Tensor& actual, bool worst) {
  std::optional<Divergence> divergence = FirstDivergence(expected, actual);
  if (!divergence || !worst) return divergence;
  for (int64_t i = divergence.value().index + 1; i < expected.size(); ++i) {
    const double distance = DistanceLsb(expected, actual, i);
    if (distance <= divergence->distance_lsb) continue;
    divergence = Divergence{i, ElementText(expected, i), ElementText(actual, i), distance};
  }
  return divergence;
}

// Asks new instances, to learn whether an answer depends on the cases asked before it.
class Memory {
 public:
  explicit Memory(const Answerer& answerer) : answerer_(answerer) {}

  // The answer of a new instance to `c`, which this instance answered with `y`; `y` where there is
  // no new instance, or it fails.
  Tensor Anew(const Case& c, const Tensor& y) {
    const std::shared_ptr<Answerer> fresh = answerer_.anew ? answerer_.anew() : nullptr;
    if (fresh == nullptr) return y;
    const Outcome outcome = fresh->run(c);
    if (!outcome.ok()) return y;
    if (const auto divergence = FirstDivergence(outcome.y, y); divergence && !remembered_)
      remembered_ = Remembered{ProblemOf(c), *divergence};
    return outcome.y;
  }

  const std::optional<Remembered>& remembered() const { return remembered_; }

 private:
  const Answerer& answerer_;
  std::optional<Remembered> remembered_;
};

// One operation's comparisons under way.
class Comparing {
 public:
  explicit Comparing(std::span<const ConventionOrExact> conventions, bool worst = false)
      : conventions_(conventions), worst_(worst) {
    for (const ConventionOrExact& convention : conventions) {
      list_.emplace_back();
      list_.back().convention = convention.name;
    }
    reasons_.resize(conventions.size());
  }

  // Compares every convention that is not ruled out yet with `y`, the answer to `c`. Where `y`
  // would rule one out, the answer that `confirm` gives is compared instead.
  template <class Confirm>
  void Meet(const Case& c, Tensor y, const std::string& by, const std::string& file,
            const Confirm& confirm) {
    ++met_;
    std::vector<std::pair<size_t, Tensor>> given;
    for (const size_t i : Indices(list_)) {
      Comparison& comparison = list_[i];
      if (comparison.witness && !worst_) continue;
      if (std::string reason = conventions_[i].CannotRun(c); !reason.empty()) {
        reasons_[i].Add(reason);
        continue;
      }
      ++comparison.cases;
      comparison.domain.Add(c);
      if (comparison.state == State::kNoVerdict) comparison.state = State::kBitEqual;
      given.emplace_back(i, conventions_[i].Run(c));
    }
    if (std::ranges::any_of(given, [&](const auto& each) { return each.second != y; }))
      y = confirm(c, y);
    for (const auto& [i, expected] : given) {
      Comparison& comparison = list_[i];
      const auto divergence = Compare(expected, y, worst_);
      if (!divergence || conventions_[i].AlsoGives(c, y)) continue;
      comparison.state = State::kRuledOut;
      if (comparison.witness &&
          divergence->distance_lsb <= comparison.witness->divergence.distance_lsb)
        continue;
      comparison.witness = Witness{c, *divergence, file};
      comparison.witness->c.observed = Observed{by, y};
    }
  }

  // Whether some convention that is not ruled out was compared on less than a quarter of the cases:
  // the domain of a library may be a small part of the subject's domain.
  bool wants_some() const {
    return std::ranges::any_of(list_, [&](const Comparison& c) { return IsSeldom(c); });
  }
  // Whether such a convention defines the case.
  bool Wants(const Case& c) const {
    return std::ranges::any_of(Indices(list_), [&](size_t i) {
      return IsSeldom(list_[i]) && conventions_[i].CannotRun(c).empty();
    });
  }
  // Whether a further case could change a result.
  bool open() const {
    return worst_ || std::ranges::any_of(list_, [](const Comparison& c) { return !c.witness; });
  }
  std::vector<Comparison>& list() { return list_; }

  std::vector<Comparison> Take() {
    for (const size_t i : Indices(list_)) {
      if (list_[i].state == State::kNoVerdict) list_[i].reason = reasons_[i].First();
    }
    return std::move(list_);
  }

 private:
  bool IsSeldom(const Comparison& c) const {
    return c.state == State::kBitEqual && c.cases * 4 < met_;
  }

  std::span<const ConventionOrExact> conventions_;
  bool worst_;
  int64_t met_ = 0;
  std::vector<Comparison> list_;
  std::vector<Reasons> reasons_;
};

Tensor AsItIs(const Case&, const Tensor& y) { return y; }

// Whether convention and answerer both define the case, and their outputs differ by `least` or
// more. An answer that the convention leaves open tells nothing.
bool TellsApart(const ConventionOrExact& convention, const Answerer& answerer, const Case& c,
                bool worst, double least) {
  if (!convention.CannotRun(c).empty() || !answerer.cannot_run(c).empty()) return false;
  const Outcome outcome = answerer.run(c);
  if (!outcome.ok()) return false;
  const auto divergence = Compare(convention.Run(c), outcome.y, worst);
  return divergence && divergence->distance_lsb >= least && !convention.AlsoGives(c, outcome.y);
}

void Label(const Answerer& answerer, const std::string& convention, Witness& witness) {
  Case& c = witness.c;
  c.expected = exact::Evaluate(ProblemOf(c));
  c.note = fmt::format("Rules out {}: at index {} it gives {}, {} gives {}.", convention,
                       witness.divergence.index, witness.divergence.expected, answerer.name,
                       witness.divergence.actual);
}

// A near-tie rarely stays one when it loses a term, so that shortening gets stuck on it. Then a
// case drawn with one output and few terms may do.
std::optional<Case> DrawnShorter(const Case& c, const IdentifyOptions& options,
                                 const Holds& tells_apart) {
  constexpr int64_t kTerms = 2;
  if (!HasSums(c) || (c.M * c.N == 1 && c.K <= kTerms)) return std::nullopt;
  for (int64_t i = 0; i < options.cases; ++i) {
    // Odd seeds draw solved near-ties.
    const uint64_t seed = CaseSeed(options.seed, c.op, (int64_t{1} << 32) + i) | 1;
    Case drawn = gen::DrawForLibraries(c.op, seed);
    if (drawn.M * drawn.N == 1 && drawn.K <= kTerms && tells_apart(drawn)) return drawn;
  }
  return std::nullopt;
}

// Shortens every witness; then each convention takes the shortest of all witnesses that rule it
// out, so that one input speaks for many conventions.
void Shorten(const Answerer& answerer, std::span<const ConventionOrExact> conventions,
             const IdentifyOptions& options, const Deadline& deadline, Memory& memory,
             std::vector<Comparison>& list) {
  std::vector<Case> shorts;
  for (const size_t i : Indices(list)) {
    if (!list[i].witness) continue;
    const double least = options.worst ? list[i].witness->divergence.distance_lsb : 0;
    const auto tells_apart = [&](const Case& c) {
      return !deadline.Over() && TellsApart(conventions[i], answerer, c, options.worst, least);
    };
    // A witness that is short already is the better start.
    const auto known = std::ranges::find_if(shorts, tells_apart);
    const Case& start = known == shorts.end() ? list[i].witness->c : *known;
    Case small = Reduce(ProblemOf(start), tells_apart, options.shorten);
    if (std::optional<Case> drawn = DrawnShorter(small, options, tells_apart)) {
      drawn = Reduce(std::move(*drawn), tells_apart, options.shorten);
      if (Complexity(*drawn) < Complexity(small) ||
          drawn->M * drawn->N * drawn->K < small.M * small.N * small.K) {
        small = std::move(*drawn);
      }
    }
    if (std::ranges::find(shorts, small) == shorts.end()) shorts.push_back(std::move(small));
  }
  std::ranges::sort(shorts, {}, [](const Case& c) { return Complexity(c); });
  // The answers of a new instance count, also against conventions that no drawn case ruled out. An
  // answer that is wrong only after other cases rules out nothing.
  std::vector<std::optional<Tensor>> answers;
  for (const Case& c : shorts) {
    const Outcome outcome = answerer.run(c);
    answers.push_back(outcome.ok() ? std::optional(memory.Anew(c, outcome.y)) : std::nullopt);
  }
  for (const size_t i : Indices(list)) {
    for (const size_t at : Indices(shorts)) {
      if (!answers[at] || !conventions[i].CannotRun(shorts[at]).empty()) continue;
      const double least =
          options.worst && list[i].witness ? list[i].witness.value().divergence.distance_lsb : 0;
      const auto divergence = Compare(conventions[i].Run(shorts[at]), *answers[at], options.worst);
      if (!divergence || divergence->distance_lsb < least ||
          conventions[i].AlsoGives(shorts[at], *answers[at]))
        continue;
      list[i].state = State::kRuledOut;
      list[i].witness = Witness{ProblemOf(shorts[at]), *divergence, ""};
      list[i].witness->c.observed = Observed{answerer.name, *answers[at]};
      break;
    }
    if (list[i].witness) Label(answerer, list[i].convention, *list[i].witness);
  }
}

}  // namespace

std::string ConventionOrExact::CannotRun(const Case& c) const {
  return convention == nullptr ? "" : convention->cannot_run(c);
}

Tensor ConventionOrExact::Run(const Case& c) const {
  return convention == nullptr ? exact::Evaluate(c) : convention->run(c).y;
}

bool ConventionOrExact::AlsoGives(const Case& c, const Tensor& y) const {
  if (c.observed && c.observed->y == y && !c.observed->printed.empty() &&
      PrintsAs(*c.observed, Run(c)))
    return true;
  return convention != nullptr && convention->also_gives && convention->also_gives(c, y);
}

std::span<const ConventionOrExact> AllConventionsAndExact() {
  static const std::vector<ConventionOrExact> all = [] {
    std::vector<ConventionOrExact> list{{"exact", nullptr}};
    for (const Convention& convention : AllConventions())
      list.push_back({convention.name, &convention});
    return list;
  }();
  return all;
}

const ConventionOrExact& FindConventionOrExact(std::string_view name, const std::string& where) {
  constexpr std::string_view kPrefix = "model:";
  const std::string_view bare = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
  std::vector<std::string_view> known;
  for (const ConventionOrExact& one : AllConventionsAndExact()) {
    if (one.name == bare) return one;
    known.emplace_back(one.name);
  }
  throw InputError(fmt::format("{}: unknown convention '{}', nearest is '{}'", where, name,
                               NearestName(bare, known)));
}

void Domain::Add(const Case& c) {
  std::string types_and_choices = TypesText(c);
  const auto note = [&](std::string what, bool has) {
    const auto known = std::ranges::find(features, what, &std::pair<std::string, bool>::first);
    if (known == features.end()) {
      features.emplace_back(std::move(what), has);
    } else {
      known->second |= has;
    }
  };
  const OpRow& row = RowOf(c.op);
  if (row.clamp) note("clamps", IsClamped(c));
  const Case usual;
  ForEachParameter(c, usual, [&](const Field& field, const auto& value, const auto& unsaid) {
    if (!(row.*field.has)) return;
    // Conventions have none.
    if ((field.has == &OpRow::blocks && c.w_block == 0) ||
        (field.has == &OpRow::x_blocks && c.x_block == 0))
      return;
    if constexpr (NamedEnum<std::remove_cvref_t<decltype(value)>>) {
      if (field.is_required(c.op)) types_and_choices += " " + std::string(Name(value));
    }
    if (!field.is_required(c.op)) note(std::string(field.name), value != unsaid);
  });
  ++types[types_and_choices];
  terms = std::max(terms, c.K);
  outputs += c.M * c.N;
  if (row.per_channel != PerChannel::kNone) note("per channel", c.per_channel);
  const auto note_zero_point = [&](const char* whose, const QParams& q) {
    note(std::string("zero points of ") + whose,
         std::ranges::any_of(q.zero_point, [](int32_t z) { return z != 0; }));
  };
  if (HasXQParams(c)) note_zero_point(HasTwoInputs(c.op) ? "a" : "x", c.x_q);
  if (HasW(c.op)) note_zero_point(HasTwoInputs(c.op) ? "b" : "w", c.w_q);
  if (HasOutQParams(c.op)) note_zero_point("the output", c.out_q);
}

std::string Domain::Text() const {
  std::vector<std::string> parts;
  for (const auto& [type, count] : types) parts.push_back(fmt::format("{} ({})", type, count));
  if (terms != 0) parts.push_back(fmt::format("sums of up to {} terms", terms));
  std::string with, without;
  for (const auto& [what, has] : features) {
    std::string& list = has ? with : without;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", what);
  }
  std::string text = fmt::format("{}", fmt::join(parts, ", "));
  if (!with.empty()) text += "; with and without " + with;
  if (!without.empty()) text += "; never with " + without;
  return text;
}

bool Identified::any_compared() const {
  return std::ranges::any_of(conventions, [](const Comparison& c) { return c.cases != 0; });
}

std::vector<std::string> Identified::bit_equal() const {
  std::vector<std::string> names;
  for (const Comparison& comparison : conventions) {
    if (comparison.state == State::kBitEqual) names.push_back(comparison.convention);
  }
  return names;
}

Fitting FittingOf(const Identified& result) {
  constexpr int64_t kEnough = 12;  // fewer are given by chance
  std::vector<const Comparison*> fit;
  for (const Comparison& comparison : result.conventions) {
    if (comparison.state == State::kBitEqual && comparison.cases >= kEnough)
      fit.push_back(&comparison);
  }
  if (fit.empty()) return {};
  std::ranges::sort(fit, {}, [](const Comparison* each) {
    return std::pair<int64_t, std::string_view>(-each->cases, each->convention);
  });
  Fitting fitting;
  for (const Comparison* each : fit) fitting.names.push_back(each->convention);
  const int64_t most = fit.front()->cases, least = fit.back()->cases;
  const std::string count =
      least == most ? std::to_string(most) : fmt::format("{} to {}", least, most);
  fitting.text = least == result.answered
                     ? fmt::format("equal in all {} answers", count)
                     : fmt::format("equal in all {} of {} answers that {}", count, result.answered,
                                   fit.size() == 1 ? "it defines" : "each of them defines");
  return fitting;
}

Answerer AnswererOf(Subject& subject) {
  return {std::string(subject.name()), [&subject](const Case& c) { return subject.CannotRun(c); },
          [&subject](const Case& c) { return subject.Run(c, RunContext{}); },
          [&subject]() -> std::shared_ptr<Answerer> {
            const std::shared_ptr<Subject> other = SubjectRegistry::Get().MakeAnew(subject);
            if (other == nullptr) return nullptr;
            return std::make_shared<Answerer>(
                Answerer{std::string(other->name()),
                         [other](const Case& c) { return other->CannotRun(c); },
                         [other](const Case& c) { return other->Run(c, RunContext{}); },
                         {}});
          },
          [&subject](const Case& c) { return subject.Inside(c); }};
}

Answerer AnswererOf(const ConventionOrExact& one) {
  return {one.name,
          [&one](const Case& c) { return one.CannotRun(c); },
          [&one](const Case& c) {
            Outcome outcome;
            outcome.y = one.Run(c);
            return outcome;
          },
          {}};
}

Identified Identify(const Answerer& answerer, Op op, std::span<const ConventionOrExact> conventions,
                    const IdentifyOptions& options) {
  // To draw this many cases per answer costs little: most refusals are cheap.
  constexpr int64_t kDrawnPerAnswer = 8;
  const Deadline deadline(options.seconds, options.stopped);
  Identified result;
  result.op = op;
  Comparing comparing(conventions, options.worst);
  Memory memory(answerer);
  Reasons unanswered;
  const auto enough = [&] {
    if (deadline.set()) {
      // A subject that answers nothing of this operation is not asked until the time is over.
      if (result.answered == 0 && result.drawn >= options.cases * kDrawnPerAnswer) return true;
      result.out_of_time = deadline.Over(0.5);
      return result.out_of_time;
    }
    if (deadline.stopped()) return result.out_of_time = true;
    return result.answered >= options.cases || result.drawn >= options.cases * kDrawnPerAnswer;
  };
  const auto ask = [&](Case c) {
    ++result.drawn;
    std::string reason = answerer.cannot_run(c);
    if (!reason.empty() && answerer.inside) {
      c = answerer.inside(c);
      reason = answerer.cannot_run(c);
    }
    if (!reason.empty()) {
      unanswered.Add(reason);
      return;
    }
    const Outcome outcome = answerer.run(c);
    if (!outcome.ok()) {
      const std::string how = fmt::format("{}: {}", Name(outcome.status), outcome.detail);
      unanswered.Add(how);
      if (outcome.status != RunStatus::kSkipped && result.broken++ == 0) result.breakage = how;
      return;
    }
    ++result.answered;
    comparing.Meet(c, outcome.y, answerer.name, "",
                   [&](const Case& asked, const Tensor& y) { return memory.Anew(asked, y); });
  };
  int64_t next = 0;
  const auto draw = [&] { return gen::DrawForLibraries(op, CaseSeed(options.seed, op, next++)); };
  while (!enough() && comparing.open()) ask(draw());
  // Then only cases that some seldom compared convention defines.
  const int64_t last = std::min(2 * next, options.cases * kDrawnPerAnswer);
  while (comparing.wants_some() && !deadline.Over(0.5) && next < last) {
    const Case c = draw();
    if (comparing.Wants(c)) ask(c);
  }
  result.unanswered = unanswered.Sorted();
  if (options.shorten > 0)
    Shorten(answerer, conventions, options, deadline, memory, comparing.list());
  result.remembered = memory.remembered();
  result.conventions = comparing.Take();
  return result;
}

std::vector<Identified> IdentifyObserved(std::span<const ObservedCase> cases,
                                         std::span<const ConventionOrExact> conventions,
                                         const std::function<void(size_t)>& compared) {
  std::vector<Identified> results;
  size_t done = 0;
  for (const Op op : AllOps()) {
    Identified result;
    result.op = op;
    Comparing comparing(conventions);
    for (const ObservedCase& observed : cases) {
      if (observed.c.op != op) continue;
      ++result.drawn;
      ++result.answered;
      const Observed& answer = *observed.c.observed;
      comparing.Meet(observed.c, answer.y, answer.by, observed.file, AsItIs);
      ++done;
      if (compared) compared(done);
    }
    if (result.drawn == 0) continue;
    result.conventions = comparing.Take();
    results.push_back(std::move(result));
  }
  return results;
}

std::vector<std::string> BitEqual(const Case& c, const Tensor& y,
                                  std::span<const ConventionOrExact> conventions) {
  Comparing comparing(conventions);
  comparing.Meet(c, y, "", "", AsItIs);
  Identified result;
  result.conventions = comparing.Take();
  return result.bit_equal();
}

std::string BitEqualConventions(const Case& c, const Tensor& y) {
  return ConventionsText(BitEqual(c, y, AllConventionsAndExact().subspan(1)));
}

std::string ConventionsText(std::span<const std::string> names) {
  std::vector<std::string> listed;
  int variants = 0;
  for (const std::string& name : names) {
    const std::string base = name.substr(0, name.find('+'));
    if (std::ranges::find(listed, base) != listed.end()) {
      ++variants;
    } else {
      listed.push_back(name);
    }
  }
  std::string text = fmt::format("{}", fmt::join(listed, ", "));
  if (variants != 0) text += fmt::format(" ({} variant{} too)", variants, variants == 1 ? "" : "s");
  return text;
}

std::string Brief(const Case& c) {
  std::string text;
  const auto put = [&](const std::string& name, int64_t count, const auto& element) {
    constexpr int64_t kMost = 12;
    text += (text.empty() ? "" : ", ") + name;
    for (int64_t i = 0; i < std::min(count, kMost); ++i) text += " " + element(i);
    if (count > kMost) text += fmt::format(" ... ({})", count);
  };
  const auto numbers = [&]<class T>(const std::string& name, const std::vector<T>& list, T usual) {
    if (std::ranges::all_of(list, [&](T value) { return value == usual; })) return;
    put(name, static_cast<int64_t>(list.size()), [&](int64_t i) {
      const T value = list[static_cast<size_t>(i)];
      if constexpr (std::is_same_v<T, float>) return FloatText(value);
      return std::to_string(value);
    });
  };
  // "a" and "b" where the operation has two inputs.
  const auto operand = [&](std::string_view field) {
    const std::string_view name = field.substr(0, field.find('_'));
    if (!HasTwoInputs(c.op)) return std::string(name);
    return std::string(name == "x" ? "a" : name == "w" ? "b" : name);
  };
  ForEachField(c, [&]<class T>(const Field& field, const T& value) {
    if constexpr (std::is_same_v<T, Tensor>) {
      if (value.empty()) return;
      put(operand(field.name), value.size(), [&](int64_t i) { return ElementText(value, i); });
    } else if constexpr (std::is_same_v<T, QParams>) {
      numbers(operand(field.name) + "_scale", value.scale, 1.0f);
      numbers(operand(field.name) + "_zp", value.zero_point, 0);
    } else if constexpr (std::is_same_v<T, std::vector<float>>) {
      numbers(std::string(field.name), value, 0.0f);
    } else if constexpr (!std::is_scalar_v<T>) {  // an optional list
      if (value) numbers(std::string(field.name), *value, typename T::value_type::value_type{});
    }
  });
  return text;
}

}  // namespace qualm::triage
