// SPDX-License-Identifier: Apache-2.0
#include "triage/solve.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <set>

#include "core/slice.h"
#include "core/status.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/inverse.h"

namespace qualm::triage {
namespace {

using exact::Rational;
using exact::Reals;
using Kind = Parameter::Kind;
using Range = std::pair<float, float>;

// Tried for a zero point: the codes of either type. A wrong type is a common mistake.
constexpr int32_t kLowestCode = -128, kHighestCode = 255;

bool IsInteger(const Parameter& parameter) {
  return parameter.kind == Kind::kZeroPoint || parameter.kind == Kind::kBound;
}

QParams& QParamsOf(Case& c, Printed::List list) {
  return list == Printed::List::kXScale ? c.x_q : list == Printed::List::kWScale ? c.w_q : c.out_q;
}

std::vector<float>& ScalesOf(Case& c, Printed::List list) {
  return list == Printed::List::kMultiplier ? c.multiplier : QParamsOf(c, list).scale;
}

// How many numbers the list of the parameter has.
size_t LengthOf(const Case& c, const Parameter& parameter) {
  switch (parameter.kind) {
    case Kind::kScale: return ListOf(c, parameter.list).size();
    case Kind::kZeroPoint: {
      Case copy;
      copy.x_q = c.x_q, copy.w_q = c.w_q, copy.out_q = c.out_q;
      return QParamsOf(copy, parameter.list).zero_point.size();
    }
    case Kind::kBound: return 1;
    case Kind::kBiasFactor: return static_cast<size_t>(c.N);
  }
  return 0;
}

int32_t& BoundOf(Case& c, const std::string& key) {
  if (key == "out_min") return c.out_min;
  if (key == "out_max") return c.out_max;
  return key == "quant_min" ? c.observer.quant_min : c.observer.quant_max;
}

// Puts an integer in the place of every number that is looked for.
void Put(Case& c, const Parameter& parameter, int32_t value) {
  if (parameter.kind == Kind::kBound) {
    BoundOf(c, parameter.key) = value;
    return;
  }
  std::vector<int32_t>& list = QParamsOf(c, parameter.list).zero_point;
  for (const int64_t entry : parameter.entries) list[static_cast<size_t>(entry)] = value;
}

std::set<int32_t> ValuesToTry(const Case& c, const Parameter& parameter) {
  std::set<int32_t> values;
  if (parameter.kind == Kind::kBound) {
    const bool output = parameter.key.starts_with("out");
    const CodeRange range = RangeOf(output ? c.out_dtype : c.observer.dtype);
    for (int32_t value = range.min; value <= range.max; ++value) values.insert(value);
    return values;
  }
  const DType codes = parameter.list == Printed::List::kXScale     ? c.x.dtype()
                      : parameter.list == Printed::List::kOutScale ? c.out_dtype
                                                                   : c.w.dtype();
  const CodeRange tried = IsWideCode(codes) ? RangeOf(codes) : CodeRange{kLowestCode, kHighestCode};
  for (int32_t value = tried.min; value <= tried.max; ++value) values.insert(value);
  Case written = c;
  for (const int32_t value : QParamsOf(written, parameter.list).zero_point) values.insert(value);
  return values;
}

// The first rows of many, where rows do not follow from each other; the outputs are the first of
// those of the case.
std::optional<Case> FirstRows(const Case& c) {
  constexpr int64_t kFew = 2;
  if (HasWindow(c.op) || RowOf(c.op).observer || RowsShareQParams(c) || c.M < 2 * kFew)
    return std::nullopt;
  return slice::Rows(c, slice::Range(0, kFew));
}

// Whether an output belongs to an entry of a list of this length.
bool Belongs(const Case& c, size_t length, int64_t entry, int64_t output) {
  return length == 1 || output % c.N == entry;
}

bool SameAt(const Tensor& a, const Tensor& b, int64_t i) { return a.SameAt(i, b); }

// A scale near those that give y: from the output that says most about it.
float GuessOf(const exact::ScaleParts& parts, const Case& c, size_t length, int64_t entry,
              const Tensor& y, float written) {
  double most = 0, guess = 0;
  for (int64_t i = 0; i < y.size(); ++i) {
    if (!Belongs(c, length, entry, i)) continue;
    const double wanted = y.dtype() == DType::kF32
                              ? static_cast<double>(y.FloatAt(i))
                              : static_cast<double>(y.IntAt(i)) - c.out_q.zero_point_at(i % c.N);
    const auto [factor, own_rest, error] = parts.AnyNear(i);
    const double rest = wanted - own_rest;
    const double scale = parts.divides() ? factor / rest : rest / factor;
    if (!std::isfinite(wanted) || !(scale > 0) || std::abs(rest) <= most) continue;
    if (scale < static_cast<double>(FLT_TRUE_MIN) || scale > static_cast<double>(FLT_MAX)) continue;
    most = std::abs(rest);
    guess = scale;
  }
  return most == 0 ? written : static_cast<float>(guess);
}

Bracket Around(float start) {
  constexpr float kFar = 4096;
  return {std::max(start / kFar, FLT_TRUE_MIN), std::min(start * kFar, FLT_MAX), start};
}

// For each entry of the list its scales with which its outputs are those of y.
std::vector<std::optional<Range>> RangesOf(const Case& c, const Parameter& scale, const Tensor& y,
                                           const ConventionOrExact& arithmetic) {
  std::vector<std::optional<Range>> ranges;
  if (arithmetic.convention == nullptr && c.requant == Requant::kExact) {
    for (const Reals& reals : exact::ScalesGiving(c, scale.list, y))
      ranges.push_back(exact::FloatsIn(reals));
    return ranges;
  }
  Case changed = ProblemOf(c);
  const auto run = [&](std::span<const float> scales) -> std::optional<Tensor> {
    ScalesOf(changed, scale.list).assign(scales.begin(), scales.end());
    if (!arithmetic.CannotRun(changed).empty()) return std::nullopt;
    return arithmetic.Run(changed);
  };
  const exact::ScaleParts parts(c, scale.list);
  const std::span<const float> written = ListOf(c, scale.list);
  const std::optional<Tensor> as_written = run(written);
  std::vector<Bracket> brackets;
  for (size_t e = 0; e < written.size(); ++e) {
    const auto entry = static_cast<int64_t>(e);
    // The scale as written may be one that another would never lead to.
    bool fits = as_written.has_value();
    for (int64_t i = 0; fits && i < y.size(); ++i)
      fits = !Belongs(c, written.size(), entry, i) || SameAt(*as_written, y, i);
    brackets.push_back(
        Around(fits ? written[e] : GuessOf(parts, c, written.size(), entry, y, written[e])));
  }
  return Halve(brackets, y, DirectionsOf(c, scale.list), run);
}

// The factors of the bias, and the units that a bias counts in with one of them.
Solution SolveBias(const Case& c, const Tensor& y) {
  Solution solution;
  const std::vector<Reals> factors = exact::BiasFactorsGiving(c, y);
  for (const Reals& reals : factors) {
    std::vector<Candidate>& found = solution.entries.emplace_back();
    if (const auto range = exact::FloatsIn(reals)) found.push_back({{}, range});
  }
  // A factor is the unit over the one that the case says: 1, or x_scale*w_scale of the channel.
  const auto fits = [&](const std::function<Rational(int64_t)>& unit) {
    for (int64_t n = 0; n < c.N; ++n) {
      Rational factor = unit(n);
      if (c.bias_i32)
        factor /= exact::ToRational(c.x_q.scale_at(0)) * exact::ToRational(c.w_q.scale_at(n));
      if (!factors[static_cast<size_t>(n)].Contains(factor)) return false;
    }
    return true;
  };
  const auto offer = [&](const std::string& name, const std::function<Rational(int64_t)>& unit) {
    if (fits(unit)) solution.units.push_back(name);
  };
  const Rational sx = exact::ToRational(c.x_q.scale_at(0));
  const auto sw = [&](int64_t n) { return exact::ToRational(c.w_q.scale_at(n)); };
  offer("x_scale", [&](int64_t) { return sx; });
  offer("w_scale", sw);
  offer("x_scale*w_scale", [&](int64_t n) { return Rational(sx * sw(n)); });
  if (IsCode(c.out_dtype))
    offer("out_scale", [&](int64_t) { return exact::ToRational(c.out_q.scale_at(0)); });
  offer("1", [&](int64_t) { return Rational(1); });
  offer("-1 times what is written", [&](int64_t n) {
    Rational unit = -1;
    if (c.bias_i32) {
      unit *= sx;
      unit *= sw(n);
    }
    return unit;
  });
  return solution;
}

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }
float OfBits(uint32_t bits) { return std::bit_cast<float>(bits); }

// One number that is being halved. All steps of all of them are made in step.
class Halving {
 public:
  Halving(const Bracket& bracket, float at)
      : low_(Bits(bracket.low)),
        high_(Bits(bracket.high)),
        start_(Bits(bracket.start)),
        at_(Bits(at)) {}

  float at() const { return OfBits(at_); }
  bool done() const { return phase_ == Phase::kDone; }
  std::optional<Range> result() const {
    if (!found_) return std::nullopt;
    return Range{OfBits(*found_), OfBits(last_)};
  }

  // What the outputs at this number ask for: a larger one, a smaller one, both (then there is
  // none), or neither: it gives them.
  void Take(bool larger, bool smaller) {
    const bool fits = !larger && !smaller;
    switch (phase_) {
      case Phase::kLook:
        if (larger && smaller) return Finish();
        if (fits) {
          found_ = last_ = at_;
          phase_ = Phase::kFirst;
          upper_ = high_;
          high_ = at_;
          break;
        }
        if (larger) low_ = at_ + 1;
        if (smaller) high_ = at_ - 1;
        break;
      case Phase::kFirst:  // the smallest that fits lies in [low_, high_], and high_ fits
        if (fits)
          high_ = at_;
        else
          low_ = at_ + 1;
        break;
      case Phase::kLast:  // low_ fits
        if (fits)
          low_ = at_;
        else
          high_ = at_ - 1;
        break;
      case Phase::kDone: return;
    }
    Next();
  }
  // The arithmetic is not defined at this number.
  void Refuse() {
    if (at_ == start_ && phase_ == Phase::kLook) return Finish();
    const bool beyond = phase_ == Phase::kLook ? at_ > start_ : phase_ == Phase::kLast;
    Take(!beyond, beyond);
  }

 private:
  enum class Phase : uint8_t { kLook, kFirst, kLast, kDone };

  void Finish() { phase_ = Phase::kDone; }
  void Next() {
    if (phase_ == Phase::kLook) {
      if (low_ > high_) return Finish();
      at_ = low_ + (high_ - low_) / 2;
    }
    if (phase_ == Phase::kFirst) {
      if (low_ < high_) {
        at_ = low_ + (high_ - low_) / 2;
      } else {
        found_ = low_;
        low_ = last_;
        high_ = upper_;
        phase_ = Phase::kLast;
      }
    }
    if (phase_ == Phase::kLast) {
      if (low_ >= high_) {
        last_ = low_;
        return Finish();
      }
      at_ = high_ - (high_ - low_) / 2;
    }
  }

  uint32_t low_, high_, start_, at_;
  uint32_t upper_ = 0, last_ = 0;
  std::optional<uint32_t> found_;
  Phase phase_ = Phase::kLook;
};

}  // namespace

std::vector<Parameter> ParametersOf(const Case& c) {
  const OpRow& row = RowOf(c.op);
  const bool pair = HasTwoInputs(c.op);
  std::vector<Parameter> parameters;
  const auto add = [&](std::string key, Kind kind, Printed::List list = Printed::List::kXScale) {
    Parameter parameter{std::move(key), kind, list};
    for (size_t i = 0; i < LengthOf(c, parameter); ++i)
      parameter.entries.push_back(static_cast<int64_t>(i));
    if (!parameter.entries.empty()) parameters.push_back(std::move(parameter));
  };
  const auto add_scale = [&](const std::string& key, Printed::List list) {
    if (exact::IsLinearInScales(c) && !ListOf(c, list).empty()) add(key, Kind::kScale, list);
  };
  using List = Printed::List;
  // The largest code is that of any scale and zero point, and softmax takes differences of codes.
  const bool x_matters = row.out_q != OutQParams::kOfInput;
  if (x_matters) add_scale(pair ? "a_scale" : "x_scale", List::kXScale);
  if (HasXQParams(c) && !row.multiplier && x_matters && row.out_q != OutQParams::kFixed)
    add(pair ? "a_zp" : "x_zp", Kind::kZeroPoint, List::kXScale);
  add_scale(pair ? "b_scale" : "w_scale", List::kWScale);
  if (HasW(c.op)) add(pair ? "b_zp" : "w_zp", Kind::kZeroPoint, List::kWScale);
  add_scale("multiplier", List::kMultiplier);
  if (row.out_q == OutQParams::kOwn && IsCode(c.out_dtype)) {
    if (!UsesMultiplier(c)) add_scale("out_scale", List::kOutScale);
    add("out_zp", Kind::kZeroPoint, List::kOutScale);
  }
  const auto counts = [](const auto& bias) {
    return bias && std::ranges::any_of(*bias, [](auto value) { return value != 0; });
  };
  if (exact::IsLinearInScales(c) && HasSums(c) && c.requant == Requant::kExact &&
      (counts(c.bias) || counts(c.bias_i32)))
    add(c.bias ? "bias" : "bias_i32", Kind::kBiasFactor);
  if (row.clamp && c.out_dtype != DType::kF32 && c.out_dtype != DType::kS32) {
    add("out_min", Kind::kBound);
    add("out_max", Kind::kBound);
  }
  if (row.qparams && c.rule == QParamsRule::kObserver) {
    add("quant_min", Kind::kBound);
    add("quant_max", Kind::kBound);
  }
  return parameters;
}

bool Solution::found() const {
  return !entries.empty() &&
         std::ranges::none_of(entries, [](const auto& found) { return found.empty(); });
}

bool Solution::unique() const {
  return found() && std::ranges::all_of(entries, [](const std::vector<Candidate>& found) {
           return found.size() == 1 &&
                  (!found[0].between || found[0].between->first == found[0].between->second);
         });
}

std::string CannotSolve(const Case& c, std::span<const Parameter> unknown) {
  if (HasFloatX(c)) return "x_dtype: no number is looked for in " + std::string(kOfFloatX);
  if (HasElementBlocks(c))
    return "x_block: no number is looked for in " + std::string(kElementsInBlocks);
  if (c.w_block != 0) return "w_block: no number is looked for in " + std::string(kInBlocks);
  int64_t scales = 0, integers = 0;
  for (const Parameter& parameter : unknown) {
    ++(IsInteger(parameter) ? integers : scales);
    if (unknown.size() > 1 && LengthOf(c, parameter) > 1)
      return parameter.key + ": is a list per channel, expected no other unknown number beside it";
  }
  if (scales > 1)
    return unknown.front().key +
           ": is not the only unknown scale, expected one: outputs show no more than a factor";
  if (integers > 2)
    return unknown.front().key + ": is one of " + std::to_string(integers) +
           " unknown integers, expected at most two";
  return "";
}

std::optional<Solution> Solve(const Case& c, const Tensor& y, std::span<const Parameter> unknown,
                              const ConventionOrExact& arithmetic, int64_t* work) {
  QUALM_CHECK(!unknown.empty() && CannotSolve(c, unknown).empty());
  const bool is_exact = arithmetic.convention == nullptr;
  if (unknown.front().kind == Kind::kBiasFactor) {
    if (!is_exact) return std::nullopt;
    return SolveBias(c, y);
  }
  const Parameter* scale = nullptr;
  std::vector<const Parameter*> integers;
  std::vector<std::vector<int32_t>> tuples{{}};
  for (const Parameter& parameter : unknown) {
    if (!IsInteger(parameter)) {
      scale = &parameter;
      continue;
    }
    integers.push_back(&parameter);
    std::vector<std::vector<int32_t>> longer;
    for (const std::vector<int32_t>& tuple : tuples) {
      for (const int32_t value : ValuesToTry(c, parameter)) {
        longer.push_back(tuple);
        longer.back().push_back(value);
      }
    }
    tuples = std::move(longer);
  }
  const Parameter& list = unknown.front();
  const size_t length = LengthOf(c, list);
  // Most integers do not even give the first rows.
  std::optional<Case> first;
  if (scale == nullptr && length == 1) first = FirstRows(c);
  const auto put = [&](Case tried, const std::vector<int32_t>& tuple) {
    for (size_t i = 0; i < tuple.size(); ++i) Put(tried, *integers[i], tuple[i]);
    return tried;
  };
  // Rationals cost as much as some dozens of products; a scale takes about 80 runs to halve.
  constexpr int64_t kRuns = 80;
  *work -= static_cast<int64_t>(tuples.size()) * (scale == nullptr ? 1 : kRuns) *
           WorkOf(first ? *first : c);
  Solution solution;
  solution.entries.resize(list.entries.size());
  bool defined = false;
  for (const std::vector<int32_t>& tuple : tuples) {
    if (*work < 0) return std::nullopt;
    const Case tried = put(ProblemOf(c), tuple);
    if (!Validate(tried).empty()) continue;
    if (first && arithmetic.CannotRun(tried).empty()) {
      defined = true;
      const Tensor given = arithmetic.Run(put(*first, tuple));
      bool same = true;
      for (int64_t i = 0; same && i < given.size(); ++i) same = SameAt(given, y, i);
      if (!same) continue;
      *work -= WorkOf(c);
    }
    if (scale == nullptr) {
      if (!arithmetic.CannotRun(tried).empty()) continue;
      defined = true;
      const Tensor given = arithmetic.Run(tried);
      for (size_t e = 0; e < list.entries.size(); ++e) {
        bool same = true;
        for (int64_t i = 0; same && i < y.size(); ++i)
          same = !Belongs(c, length, list.entries[e], i) || SameAt(given, y, i);
        if (same) solution.entries[e].push_back({tuple, std::nullopt});
      }
      continue;
    }
    const std::vector<std::optional<Range>> ranges = RangesOf(tried, *scale, y, arithmetic);
    defined = true;
    for (size_t e = 0; e < list.entries.size(); ++e) {
      if (const auto& range = ranges[static_cast<size_t>(list.entries[e])])
        solution.entries[e].push_back({tuple, range});
    }
  }
  if (!defined) return std::nullopt;
  return solution;
}

std::vector<std::optional<std::pair<float, float>>> Halve(const std::vector<Bracket>& brackets,
                                                          const Tensor& y,
                                                          std::span<const int8_t> direction,
                                                          const RunWith& run) {
  std::vector<Halving> halvings;
  for (const Bracket& bracket : brackets) halvings.emplace_back(bracket, bracket.start);
  const auto channels = static_cast<int64_t>(brackets.size());
  std::vector<float> at(brackets.size());
  while (!std::ranges::all_of(halvings, &Halving::done)) {
    std::ranges::transform(halvings, at.begin(), &Halving::at);
    const std::optional<Tensor> given = run(at);
    std::vector<uint8_t> larger(at.size()), smaller(at.size());
    for (int64_t i = 0; given && i < y.size(); ++i) {
      if (SameAt(*given, y, i)) continue;
      const bool real = y.dtype() == DType::kF32;
      const bool less = real ? given->FloatAt(i) < y.FloatAt(i) : given->IntAt(i) < y.IntAt(i);
      const auto entry = static_cast<size_t>(i % channels);
      const int8_t way = direction[static_cast<size_t>(i)];
      if (way == 0 || (way > 0) == less) larger[entry] = 1;
      if (way == 0 || (way > 0) != less) smaller[entry] = 1;
    }
    for (size_t e = 0; e < at.size(); ++e) {
      if (given)
        halvings[e].Take(larger[e] != 0, smaller[e] != 0);
      else
        halvings[e].Refuse();
    }
  }
  std::vector<std::optional<Range>> ranges;
  for (const Halving& halving : halvings) ranges.push_back(halving.result());
  return ranges;
}

std::vector<int8_t> DirectionsOf(const Case& c, Printed::List list) {
  const exact::ScaleParts parts(c, list);
  std::vector<int8_t> directions;
  const int64_t outputs = Tensor(c.out_dtype, c.output_shape()).size();
  for (int64_t i = 0; i < outputs; ++i) {
    const double factor = parts.divides() ? -parts.AnyNear(i).factor : parts.AnyNear(i).factor;
    directions.push_back(static_cast<int8_t>(factor > 0 ? 1 : factor < 0 ? -1 : 0));
  }
  return directions;
}

int64_t WorkOf(const Case& c) {
  return std::max<int64_t>(Tensor(c.out_dtype, c.output_shape()).size() * (c.K + 1), 1);
}

}  // namespace qualm::triage
