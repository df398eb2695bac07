// SPDX-License-Identifier: Apache-2.0
// Three questions, in this order.
//  - Does one list of printed numbers, moved alone, make the answer exact? Rationals tell.
//  - Do all of them together? Where only a factor of the real value moves, rationals tell that they
//    do not, and elsewhere an output that no corner of the box of numbers gives. That they do is
//    shown by numbers: from those written, a step at a time towards the output that is furthest
//    from what was observed. The exact output with them is computed.
//  - Does a named convention give the answer with such numbers? Halving looks for some.
#include "triage/printed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "core/float_text.h"
#include "core/verdict.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/inverse.h"
#include "triage/solve.h"

namespace qualm::triage {
namespace {

using exact::Integer;
using exact::Rational;
using exact::Reals;
using List = Printed::List;
using Verdict = PrintedAnswer::Verdict;

constexpr std::array kLists{List::kX,        List::kXScale,     List::kWScale,
                            List::kOutScale, List::kMultiplier, List::kBias};
size_t At(List list) { return static_cast<size_t>(list); }
bool IsScale(List list) { return list != List::kX && list != List::kBias; }

std::string NameOf(const Case& c, List list) {
  const bool pair = HasTwoInputs(c.op);
  switch (list) {
    case List::kX: return "x";
    case List::kXScale: return pair ? "a_scale" : "x_scale";
    case List::kWScale: return pair ? "b_scale" : "w_scale";
    case List::kOutScale: return "out_scale";
    case List::kMultiplier: return "multiplier";
    case List::kBias: return "bias";
  }
  return "";
}

std::span<float> Writable(Case& c, List list) {
  switch (list) {
    case List::kX: return c.x.as<float>();
    case List::kXScale: return c.x_q.scale;
    case List::kWScale: return c.w_q.scale;
    case List::kOutScale: return c.out_q.scale;
    case List::kMultiplier: return c.multiplier;
    case List::kBias: return *c.bias;
  }
  return {};
}

// Every real that prints so: half a unit of the last digit to either side.
Reals RealsOf(const std::string& text) {
  const Decimal decimal = *ParseDecimal(text);
  Integer power = 1;
  for (int i = 0; i < std::abs(decimal.exponent); ++i) power *= 10;
  const Rational unit = decimal.exponent < 0 ? Rational(Integer(1), power) : Rational(power);
  // Leading zeros would make the number octal.
  const size_t first = std::min(decimal.digits.find_first_not_of('0'), decimal.digits.size() - 1);
  Rational value = Rational(Integer(decimal.digits.substr(first))) * unit;
  if (decimal.negative) value = -value;
  return {value - unit / 2, value + unit / 2, true, true};
}

// A number that may move: its place, and the float32 that print as it does.
struct Open {
  List list = List::kX;
  size_t index = 0;
  std::string text;
  float written = 0;
  Reals reals;
  float low = 0, high = 0;
};

// Those that the outputs follow.
std::vector<Open> OpenNumbers(const Case& c) {
  std::vector<Open> numbers;
  for (const Printed& number : c.printed) {
    if (number.list == List::kOutScale && (!IsCode(c.out_dtype) || UsesMultiplier(c))) continue;
    const auto index = static_cast<size_t>(number.index);
    const float written = ListOf(c, number.list)[index];
    Reals reals = RealsOf(number.text);
    if (IsScale(number.list)) reals.Meet({Rational(0), std::nullopt, false, true});
    const auto floats = exact::FloatsIn(reals);
    // More digits than a float32 has leave only the nearest.
    if (!floats || floats->first == floats->second) continue;
    numbers.push_back(
        {number.list, index, number.text, written, reals, floats->first, floats->second});
  }
  return numbers;
}

OtherNumber Named(const Case& c, const Open& open, float low, float high) {
  std::string name = NameOf(c, open.list);
  if (ListOf(c, open.list).size() > 1) name += fmt::format("[{}]", open.index);
  return {name, open.text, low, high};
}

// What each number of the list may be for the answer to be exact, all else as written.
std::vector<Reals> AloneGiving(const Case& c, List list, const Tensor& y) {
  if (list == List::kBias) {
    Case ones = ProblemOf(c);  // a factor of 1 is the bias itself
    std::ranges::fill(*ones.bias, 1.0f);
    return exact::BiasFactorsGiving(ones, y);
  }
  if (list != List::kX) return exact::ScalesGiving(c, list, y);
  std::vector<Reals> all;
  for (int64_t i = 0; i < y.size(); ++i) {
    Reals& reals = all.emplace_back(exact::ValuesGiving(c, y, i));
    const Rational scale = exact::ToRational(c.out_q.scale_at(i % c.N));
    if (reals.low) *reals.low *= scale;
    if (reals.high) *reals.high *= scale;
  }
  return all;
}

std::optional<OtherNumbers> MoveAlone(const Case& c, std::span<const Open> numbers, List list,
                                      const Tensor& y) {
  OtherNumbers way{"exact", {}};
  const std::vector<Reals> all = AloneGiving(c, list, y);
  const std::span<const float> written = ListOf(c, list);
  for (size_t i = 0; i < all.size(); ++i) {
    // An infinity or NaN of x is no number to move, and gives what it gives.
    const bool finite = std::isfinite(written[i]);
    if (all[i].Contains(finite ? exact::ToRational(written[i]) : Rational(0))) continue;
    const auto open = std::ranges::find_if(
        numbers, [&](const Open& number) { return number.list == list && number.index == i; });
    if (open == numbers.end()) return std::nullopt;
    Reals reals = all[i];
    reals.Meet(open->reals);
    const auto floats = exact::FloatsIn(reals);
    if (!floats) return std::nullopt;
    way.numbers.push_back(Named(c, *open, floats->first, floats->second));
  }
  return way;
}

// The real values of the outputs as doubles, with any numbers: a first part that x and w (of a
// multiplier: nothing else) scale, and a second of the other operand or the bias.
class Values {
 public:
  Values(const Case& c, std::span<const Open> numbers) : c_(c) {
    const List list = UsesMultiplier(c)                  ? List::kMultiplier
                      : ListOf(c, List::kXScale).empty() ? List::kWScale
                                                         : List::kXScale;
    outputs_ = Tensor(c.out_dtype, c.output_shape()).size();
    if (c.op == Op::kQuantize) {
      for (int64_t i = 0; i < outputs_; ++i)
        parts_.push_back({1 / static_cast<double>(c.out_q.scale_at(i % c.N)), 0});
    } else {
      const exact::ScaleParts parts(c, list);
      for (int64_t i = 0; i < outputs_; ++i) {
        const auto part = parts.AnyNear(i);
        const double written = ListOf(c, list)[Place(list, i)];
        parts_.push_back({part.factor * written, part.rest});
      }
    }
    for (size_t j = 0; j < numbers.size(); ++j) {
      std::vector<int64_t>& places = open_[At(numbers[j].list)];
      places.resize(ListOf(c, numbers[j].list).size(), -1);
      places[numbers[j].index] = static_cast<int64_t>(j);
      written_.push_back(numbers[j].written);
    }
    at_ = written_;
  }

  int64_t outputs() const { return outputs_; }
  bool has_second() const {
    return std::ranges::any_of(parts_, [](const Part& part) { return part.second != 0; });
  }
  // The numbers that output i follows.
  std::vector<size_t> OpenOf(int64_t i) const {
    std::vector<size_t> numbers;
    for (const List list : kLists) {
      if (const int64_t j = OpenAt(list, i); j >= 0) numbers.push_back(static_cast<size_t>(j));
    }
    return numbers;
  }
  std::vector<double>& numbers() { return at_; }

  double Of(int64_t i) const {
    const Part& part = parts_[static_cast<size_t>(i)];
    const bool two = AddsOperands(c_.op) || c_.op == Op::kConcat;
    const double own = Factor(List::kXScale, i) * Factor(List::kMultiplier, i);
    const double other = Factor(List::kWScale, i);
    const double out = Factor(List::kOutScale, i);
    double first = part.first * own * (two ? 1 : other);
    if (c_.op == Op::kQuantize) {
      const int64_t j = OpenAt(List::kX, i);
      const double x = j < 0 ? static_cast<double>(c_.x.FloatAt(i)) : at_[static_cast<size_t>(j)];
      if (!std::isfinite(x)) return 0;  // as exact::ValuesGiving has it
      first *= x;
    }
    double second = part.second * (two ? other : 1);
    if (const int64_t j = OpenAt(List::kBias, i); j >= 0) {
      const auto scale = IsCode(c_.out_dtype) ? static_cast<double>(c_.out_q.scale_at(0)) : 1;
      second = at_[static_cast<size_t>(j)] / scale;
    }
    return (first + second) / out;
  }

 private:
  struct Part {
    double first = 0, second = 0;
  };

  size_t Place(List list, int64_t i) const {
    const size_t size = ListOf(c_, list).size();
    if (list == List::kX) return static_cast<size_t>(i);
    return size == 1 ? 0 : static_cast<size_t>(i % c_.N);
  }
  int64_t OpenAt(List list, int64_t i) const {
    const std::vector<int64_t>& places = open_[At(list)];
    return places.empty() ? -1 : places[Place(list, i)];
  }
  double Factor(List list, int64_t i) const {
    const int64_t j = OpenAt(list, i);
    if (j < 0) return 1;
    return at_[static_cast<size_t>(j)] / written_[static_cast<size_t>(j)];
  }

  const Case& c_;
  int64_t outputs_ = 0;
  std::vector<Part> parts_;                               // with the numbers as written
  std::array<std::vector<int64_t>, kLists.size()> open_;  // of each entry of a list, -1: not open
  std::vector<double> written_, at_;
};

// The ends of what the value of an output may be.
struct Ends {
  double low = 0, high = 0;
};
std::vector<Ends> EndsOf(const Case& c, const Tensor& y) {
  std::vector<Ends> all;
  for (int64_t i = 0; i < y.size(); ++i) {
    const auto [low, high] = exact::NearBounds(exact::ValuesGiving(c, y, i));
    all.push_back({low, high});
  }
  return all;
}

// The smallest and largest value of output i: its value follows each number in one direction, so
// they lie at corners.
Ends ReachOf(Values& values, std::span<const Open> numbers, int64_t i) {
  const std::vector<size_t> open = values.OpenOf(i);
  const std::vector<double> before = values.numbers();
  Ends reach{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (size_t corner = 0; corner < size_t{1} << open.size(); ++corner) {
    for (size_t j = 0; j < open.size(); ++j) {
      const auto [low, high] = exact::NearBounds(numbers[open[j]].reals);
      values.numbers()[open[j]] = (corner >> j & 1) != 0 ? high : low;
    }
    const double value = values.Of(i);
    reach = {std::min(reach.low, value), std::max(reach.high, value)};
  }
  values.numbers() = before;
  return reach;
}

// The output that the case, with another real value, would have.
std::string OutputText(const Case& c, int64_t i, double value) {
  if (c.op == Op::kQuantize && !std::isfinite(c.x.FloatAt(i)))
    return ElementText(exact::Evaluate(c), i);
  if (c.out_dtype == DType::kF32) return ShortestDecimal(static_cast<float>(value));
  const double zero = c.out_q.zero_point_at(i % c.N);
  const double code =
      std::max(std::nearbyint(value) + zero, static_cast<double>(LowerBound(c, i % c.N)));
  return fmt::format("{}", std::min(code, static_cast<double>(c.out_max)));
}

// Whether no numbers will do, where they move nothing but a factor of the value of each channel: a
// common one, and one of its own.
bool NoFactorsDo(const Case& c, std::span<const Open> numbers, const Tensor& y) {
  Reals common{Rational(1), Rational(1), true, true};
  std::vector<Reals> own(static_cast<size_t>(c.N), common);
  for (const Open& number : numbers) {
    const Rational written = exact::ToRational(number.written);
    Rational low = *number.reals.low / written, high = *number.reals.high / written;
    if (number.list == List::kOutScale) {
      if (low == 0) return false;
      std::swap(low, high);
      low = 1 / low, high = 1 / high;
    }
    Reals& factor = ListOf(c, number.list).size() == 1 ? common : own[number.index];
    *factor.low *= low, *factor.high *= high;
  }
  const std::vector<Reals> wanted = exact::FactorsGiving(c, y);
  for (size_t n = 0; n < wanted.size(); ++n) {
    Reals reals = wanted[n];
    if (reals.empty()) return true;
    if (*own[n].low == 0) return false;
    if (reals.low) *reals.low /= *reals.low > 0 ? *own[n].high : *own[n].low;
    if (reals.high) *reals.high /= *reals.high > 0 ? *own[n].low : *own[n].high;
    common.Meet(reals);
  }
  return common.empty();
}

// Steps towards the output that is furthest away from where `margin` of its width is left to either
// end, until none is away. Rounding to float32 would fall over the very end.
void StepTowards(std::span<const Open> numbers, Values& values, std::span<const Ends> ends,
                 double margin) {
  constexpr int64_t kMostSteps = 2000, kMostWork = int64_t{1} << 28;
  const int64_t steps = std::min(kMostSteps, kMostWork / std::max<int64_t>(values.outputs(), 1));
  for (int64_t step = 0; step < steps; ++step) {
    int64_t furthest = -1;
    double distance = 0;
    for (int64_t i = 0; i < values.outputs(); ++i) {
      const auto [low, high] = ends[static_cast<size_t>(i)];
      const double left = margin * (std::isfinite(high - low) ? high - low : 1);
      const double value = values.Of(i);
      const double off = value < low + left    ? low + left - value
                         : value > high - left ? high - left - value
                                               : 0;
      if (std::abs(off) > std::abs(distance)) furthest = i, distance = off;
    }
    if (furthest < 0) return;
    // A step along the slope, of the numbers that can still move that way.
    std::vector<std::pair<size_t, double>> slopes;
    double square = 0;
    const auto width = [&](size_t j) {
      return (static_cast<double>(numbers[j].high) - static_cast<double>(numbers[j].low)) / 2;
    };
    for (const size_t j : values.OpenOf(furthest)) {
      double& number = values.numbers()[j];
      const double before = number, at = values.Of(furthest);
      number = before + width(j) * 1e-3;
      const double slope = (values.Of(furthest) - at) * 1e3;
      number = before;
      const bool up = slope * distance > 0;
      if (slope == 0 || (up ? before >= numbers[j].high : before <= numbers[j].low)) continue;
      slopes.emplace_back(j, slope);
      square += slope * slope;
    }
    if (slopes.empty()) return;
    for (const auto& [j, slope] : slopes) {
      double& number = values.numbers()[j];
      number = std::clamp<double>(number + width(j) * slope * distance / square, numbers[j].low,
                                  numbers[j].high);
    }
  }
}

// Numbers that give y.
std::optional<OtherNumbers> MoveTogether(const Case& c, std::span<const Open> numbers,
                                         Values& values, std::span<const Ends> ends,
                                         const Tensor& y) {
  for (const double margin : {1.0 / 64, 1.0 / 4096}) {
    StepTowards(numbers, values, ends, margin);
    Case moved = ProblemOf(c);
    OtherNumbers way{"exact", {}};
    for (size_t j = 0; j < numbers.size(); ++j) {
      const auto value = static_cast<float>(values.numbers()[j]);
      Writable(moved, numbers[j].list)[numbers[j].index] = value;
      if (value != numbers[j].written) way.numbers.push_back(Named(c, numbers[j], value, value));
    }
    if (exact::Evaluate(moved) == y) return way;
  }
  return std::nullopt;
}

// The ways of one arithmetic that halving finds: each list alone, then all of the scales from one
// end of what they may be to the other.
std::vector<OtherNumbers> WaysOf(const Case& c, std::span<const Open> numbers, const Tensor& y,
                                 const ConventionOrExact& arithmetic) {
  std::vector<OtherNumbers> ways;
  const auto run = [&](const Case& moved) -> std::optional<Tensor> {
    if (!arithmetic.CannotRun(moved).empty()) return std::nullopt;
    return arithmetic.Run(moved);
  };
  for (const List list : kLists) {
    if (!IsScale(list)) continue;
    std::vector<Bracket> brackets;
    for (const float written : ListOf(c, list)) brackets.push_back({written, written, written});
    std::vector<const Open*> open(brackets.size());
    for (const Open& number : numbers) {
      if (number.list != list) continue;
      brackets[number.index] = {number.low, number.high, number.written};
      open[number.index] = &number;
    }
    if (std::ranges::count(open, nullptr) == static_cast<int64_t>(open.size())) continue;
    Case moved = ProblemOf(c);
    const auto ranges = Halve(brackets, y, DirectionsOf(c, list), [&](std::span<const float> at) {
      std::ranges::copy(at, Writable(moved, list).begin());
      return run(moved);
    });
    OtherNumbers way{arithmetic.name, {}};
    for (size_t i = 0; i < ranges.size() && ranges[i]; ++i) {
      const auto [low, high] = *ranges[i];
      if (open[i] != nullptr && (open[i]->written < low || open[i]->written > high))
        way.numbers.push_back(Named(c, *open[i], low, high));
    }
    if (std::ranges::all_of(ranges, [](const auto& range) { return range.has_value(); }))
      ways.push_back(std::move(way));
  }
  if (!ways.empty()) return ways;
  // From 1 to 2: numbers of the first half of their digits to those of the second, the scale of the
  // output the other way.
  const auto place = [&](const Open& number, float at) {
    const double part =
        number.list == List::kOutScale ? 2 - static_cast<double>(at) : static_cast<double>(at) - 1;
    const double low = number.low, high = number.high;
    return static_cast<float>(std::clamp(low + (high - low) * part, low, high));
  };
  const auto at_place = [&](float at) {
    Case moved = ProblemOf(c);
    for (const Open& number : numbers) {
      if (IsScale(number.list)) Writable(moved, number.list)[number.index] = place(number, at);
    }
    return moved;
  };
  const exact::ScaleParts whole = exact::ScaleParts::OfValue(c);
  std::vector<int8_t> direction;
  for (int64_t i = 0; i < y.size(); ++i) {
    const double value = whole.AnyNear(i).factor;
    direction.push_back(static_cast<int8_t>(value > 0 ? 1 : value < 0 ? -1 : 0));
  }
  const auto found = Halve({{1, 2, 1.5f}}, y, direction,
                           [&](std::span<const float> at) { return run(at_place(at[0])); });
  if (!found[0]) return ways;
  OtherNumbers& way = ways.emplace_back(OtherNumbers{arithmetic.name, {}});
  const float middle = found[0]->first + (found[0]->second - found[0]->first) / 2;
  for (const float at : {middle, found[0]->first}) {
    if (run(at_place(at)) != y) continue;
    for (const Open& number : numbers) {
      if (IsScale(number.list))
        way.numbers.push_back(Named(c, number, place(number, at), place(number, at)));
    }
    return ways;
  }
  ways.clear();
  return ways;
}

}  // namespace

PrintedAnswer ExaminePrinted(const Case& c, const Tensor& y) {
  PrintedAnswer answer;
  const std::vector<Open> numbers = OpenNumbers(c);
  if (numbers.empty() || y.empty() || exact::Evaluate(c) == y) return answer;
  // No scale matters to s32 outputs.
  answer.verdict = c.out_dtype == DType::kS32 ? Verdict::kBeyond : Verdict::kUndecided;
  if (!exact::IsLinearInScales(c)) return answer;
  const ConventionOrExact& exact_meaning = AllConventionsAndExact().front();
  const bool values_open = std::ranges::any_of(
      numbers, [&](const Open& open) { return open.list == List::kX && c.op != Op::kQuantize; });
  if (c.requant != Requant::kExact) {
    answer.ways = WaysOf(c, numbers, y, exact_meaning);
    if (!answer.ways.empty()) answer.verdict = Verdict::kWithin;
  } else if (!values_open) {
    for (const List list : kLists) {
      if (std::ranges::none_of(numbers, [&](const Open& open) { return open.list == list; }))
        continue;
      if (auto way = MoveAlone(c, numbers, list, y)) answer.ways.push_back(std::move(*way));
    }
    if (answer.ways.empty()) {
      Values values(c, numbers);
      const std::vector<Ends> ends = EndsOf(c, y);
      const bool factors =
          !values.has_second() &&
          std::ranges::all_of(numbers, [](const Open& open) { return IsScale(open.list); });
      if (factors && NoFactorsDo(c, numbers, y)) answer.verdict = Verdict::kBeyond;
      for (int64_t i = 0; i < y.size() && answer.index < 0; ++i) {
        const auto [low, high] = ReachOf(values, numbers, i);
        const double error = (std::abs(low) + std::abs(high)) * 1e-9;
        const Ends& wanted = ends[static_cast<size_t>(i)];
        if (high + error >= wanted.low && low - error <= wanted.high) continue;
        answer.verdict = Verdict::kBeyond;
        answer.index = i;
        answer.lowest = OutputText(c, i, low);
        answer.highest = OutputText(c, i, high);
      }
      if (answer.verdict != Verdict::kBeyond) {
        if (auto way = MoveTogether(c, numbers, values, ends, y))
          answer.ways.push_back(std::move(*way));
      }
    }
    if (!answer.ways.empty()) answer.verdict = Verdict::kWithin;
  }
  if (answer.verdict == Verdict::kWithin) return answer;
  int64_t work = int64_t{1} << 31;  // a minute at most
  for (const ConventionOrExact& arithmetic : AllConventionsAndExact().subspan(1)) {
    if (!arithmetic.CannotRun(c).empty()) continue;
    constexpr int64_t kRuns = 300;
    if ((work -= kRuns * WorkOf(c)) < 0) break;
    std::ranges::move(WaysOf(c, numbers, y, arithmetic), std::back_inserter(answer.ways));
  }
  return answer;
}

namespace {

bool PrintsAs(const std::string& text, float value) {
  return std::isfinite(value) && RealsOf(text).Contains(exact::ToRational(value));
}

}  // namespace

bool PrintsAs(const Observed& observed, const Tensor& answer) {
  auto next = observed.printed.begin();
  for (int64_t i = 0; i < answer.size(); ++i) {
    const bool printed = next != observed.printed.end() && next->first == i;
    if (printed ? !PrintsAs((next++)->second, answer.FloatAt(i)) : !answer.SameAt(i, observed.y))
      return false;
  }
  return true;
}

std::string TakeAsPrinted(Case* c) {
  if (!c->observed || c->observed->printed.empty()) return "";
  Observed& observed = *c->observed;
  std::string text = "  no known arithmetic gives an output that prints so\n";
  for (const ConventionOrExact& arithmetic : AllConventionsAndExact()) {
    if (!arithmetic.CannotRun(*c).empty()) continue;
    const Tensor y = arithmetic.Run(*c);
    const bool is_exact = arithmetic.convention == nullptr;
    if (PrintsAs(observed, y)) {
      text = is_exact ? "  the exact output prints so\n"
                      : fmt::format("  the output of {} prints so, the exact one does not\n",
                                    arithmetic.name);
      observed.y = y;
      break;
    }
    if (!is_exact) continue;
    for (const auto& [index, digits] : observed.printed) {
      if (PrintsAs(digits, y.FloatAt(index))) observed.y.CopyFrom(y, index, 1, index);
    }
  }
  observed.printed.clear();
  return "observed output, as printed:\n" + text;
}

std::string PrintedText(const PrintedAnswer& answer, const Tensor& y) {
  if (answer.verdict == Verdict::kAsWritten) return "";
  constexpr size_t kMost = 8;
  const auto list = [&](const OtherNumbers& way) {
    std::string text;
    for (size_t i = 0; i < std::min(way.numbers.size(), kMost); ++i) {
      const OtherNumber& number = way.numbers[i];
      text += fmt::format("{}{} {} (printed {})", i == 0 ? "" : ", ", number.name,
                          number.low == number.high
                              ? ShortestDecimal(number.low)
                              : fmt::format("between {} and {}", ShortestDecimal(number.low),
                                            ShortestDecimal(number.high)),
                          number.text);
    }
    if (way.numbers.size() > kMost)
      text += fmt::format(" and {} more numbers", way.numbers.size() - kMost);
    return text;
  };
  std::string text;
  const auto tell = [&](const std::string& what) { text += "  " + what + "\n"; };
  if (answer.verdict == Verdict::kWithin) {
    tell("within the printed digits the answer is exact, so its difference shows no fault:");
    for (const OtherNumbers& way : answer.ways) tell("  with " + list(way));
    return text;
  }
  if (answer.verdict == Verdict::kUndecided) {
    tell("whether numbers within the printed digits make the answer exact could not be decided");
  } else if (answer.index < 0) {
    tell("no numbers within the printed digits make the answer exact");
  } else {
    const std::string reach =
        answer.lowest == answer.highest ? answer.lowest : answer.lowest + " to " + answer.highest;
    tell(
        fmt::format("no numbers within the printed digits make the answer exact: output {} is {} "
                    "with all of them, not {}",
                    answer.index, reach, WithDecimals(ElementText(y, answer.index))));
  }
  // The ways of several conventions are often one.
  for (size_t i = 0; i < answer.ways.size(); ++i) {
    const std::string how = list(answer.ways[i]);
    if (std::any_of(answer.ways.begin(), answer.ways.begin() + static_cast<int64_t>(i),
                    [&](const OtherNumbers& way) { return list(way) == how; }))
      continue;
    std::string names;
    for (const OtherNumbers& way : answer.ways) {
      if (list(way) == how) names += (names.empty() ? "" : ", ") + way.arithmetic;
    }
    tell(how.empty() ? "as printed it is that of " + names
                     : "within the printed digits it is that of " + names + ": with " + how);
  }
  return text;
}

}  // namespace qualm::triage
