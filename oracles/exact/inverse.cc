// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/inverse.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <utility>

#include "core/status.h"
#include "oracles/exact/evaluate.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {
namespace {

Rational Value(const Scaled& scaled) {
  const Line& line = scaled.line;
  const auto integer = [](__int128 value) {
    const bool negative = value < 0;
    const auto magnitude =
        negative ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
    Integer result = static_cast<uint64_t>(magnitude >> 64);
    result = (result << 64) + static_cast<uint64_t>(magnitude);
    return Rational(negative ? Integer(-result) : result);
  };
  return (integer(scaled.integer) * integer(line.gain) * PowerOfTwo(line.gain_exponent) +
          integer(line.offset) * PowerOfTwo(line.offset_exponent)) /
         (integer(line.divisor) * PowerOfTwo(line.divisor_exponent));
}

// The real values that round to the float32 `y`: half way to its neighbours, an end belongs to it
// where its last bit is even.
Reals ValuesGivingFloat(float y, bool relu) {
  if (std::isnan(y) || (relu && std::signbit(y))) return Reals::None();
  Reals reals;
  const Rational beyond = PowerOfTwo(128);  // where the float32 after the largest would be
  const auto real = [&](float value) {
    return std::isfinite(value) ? ToRational(value) : value > 0 ? beyond : Rational(-beyond);
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const bool even = std::isinf(y) || (std::bit_cast<uint32_t>(y) & 1) == 0;
  if (y != infinity) {
    const float above = std::nextafter(y, infinity);
    reals.high = y == 0 && std::signbit(y) ? Rational(0) : Rational((real(y) + real(above)) / 2);
    if (y == -infinity) reals.high = -(beyond + real(FLT_MAX)) / 2;
    reals.high_closed = even && !(y == 0 && std::signbit(y));
  }
  if (y != -infinity && !(relu && y == 0)) {
    const float below = std::nextafter(y, -infinity);
    reals.low = y == 0 && !std::signbit(y) ? Rational(0) : Rational((real(y) + real(below)) / 2);
    if (y == infinity) reals.low = (beyond + real(FLT_MAX)) / 2;
    reals.low_closed = even;
  }
  return reals;
}

// The real values that round to the integers from `low` to `high`, half to even.
Reals Rounding(std::optional<int64_t> low, std::optional<int64_t> high) {
  Reals reals;
  const auto half = [](int64_t twice) { return Rational(Integer(twice), Integer(2)); };
  if (low) {
    reals.low = half(2 * *low - 1);
    reals.low_closed = *low % 2 == 0;
  }
  if (high) {
    reals.high = half(2 * *high + 1);
    reals.high_closed = *high % 2 == 0;
  }
  return reals;
}

// The numbers s for which factor * s + rest lies in `values`.
Reals Solve(const Rational& factor, const Rational& rest, const Reals& values) {
  if (factor == 0) return values.Contains(rest) ? Reals() : Reals::None();
  Reals reals = values;
  for (std::optional<Rational>* bound : {&reals.low, &reals.high}) {
    if (*bound) **bound = (**bound - rest) / factor;
  }
  if (factor < 0) {
    std::swap(reals.low, reals.high);
    std::swap(reals.low_closed, reals.high_closed);
  }
  return reals;
}

// The reciprocals of what is positive in `reals`, which lies above 0.
Reals Reciprocals(const Reals& reals) {
  Reals inverse;
  if (reals.high) {
    inverse.low = 1 / *reals.high;
    inverse.low_closed = reals.high_closed;
  }
  if (reals.low && *reals.low > 0) {
    inverse.high = 1 / *reals.low;
    inverse.high_closed = reals.low_closed;
  }
  return inverse;
}

// Meets the answers of all outputs, each entry's own. Doubles decide which outputs can bound an
// entry, so that rationals are spent on few of them.
std::vector<Reals> Meet(const Case& c, const ScaleParts& parts, int64_t entries, const Tensor& y) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  struct Ends {
    double low = -kFar, high = kFar;  // at least so tight
  };
  std::vector<Ends> ends(static_cast<size_t>(entries));
  const auto entry_of = [&](int64_t i) { return static_cast<size_t>(entries == 1 ? 0 : i % c.N); };
  // The ends that one output gives, with what they may be off by, kFar where doubles tell nothing.
  const auto near = [&](int64_t i, const Reals& values) {
    struct Result {
      Ends ends;
      double error = kFar;
    } result;
    const std::optional<ScaleParts::Parts> part = parts.Near(i);
    if (!part || std::abs(part->factor) <= 4 * part->error) return result;
    result.error = 0;
    const auto solve = [&](const std::optional<Rational>& bound) {
      const double value = static_cast<double>(*bound);
      const double solved = (value - part->rest) / part->factor;
      const double error =
          (part->error + std::abs(value) * DBL_EPSILON +
           std::abs(solved) * (part->error + std::abs(part->factor) * DBL_EPSILON)) *
          4 / std::abs(part->factor);
      result.error = std::max(result.error, error);
      return solved;
    };
    const bool rises = part->factor > 0;
    if (values.low) (rises ? result.ends.low : result.ends.high) = solve(values.low);
    if (values.high) (rises ? result.ends.high : result.ends.low) = solve(values.high);
    return result;
  };
  for (int64_t i = 0; i < y.size(); ++i) {
    const auto [own, error] = near(i, ValuesGiving(c, y, i));
    if (error == kFar) continue;
    Ends& all = ends[entry_of(i)];
    all.low = std::max(all.low, own.low - error);
    all.high = std::min(all.high, own.high + error);
  }
  std::vector<Reals> met(static_cast<size_t>(entries));
  for (int64_t i = 0; i < y.size(); ++i) {
    const Reals values = ValuesGiving(c, y, i);
    Reals& reals = met[entry_of(i)];
    if (reals.empty()) continue;
    const auto [own, error] = near(i, values);
    const Ends& all = ends[entry_of(i)];
    if (error != kFar && own.low + error < all.low && own.high - error > all.high) continue;
    reals.Meet(Solve(parts.Factor(i), parts.Rest(i), values));
  }
  return met;
}

Case WithAll(const Case& c, Printed::List list, float scale) {
  Case changed = ProblemOf(c);
  changed.requant = Requant::kExact;
  switch (list) {
    case Printed::List::kXScale: std::ranges::fill(changed.x_q.scale, scale); break;
    case Printed::List::kWScale: std::ranges::fill(changed.w_q.scale, scale); break;
    case Printed::List::kOutScale: std::ranges::fill(changed.out_q.scale, scale); break;
    case Printed::List::kMultiplier: std::ranges::fill(changed.multiplier, scale); break;
    case Printed::List::kX:
    case Printed::List::kBias: QUALM_CHECK(!"no list of scales");
  }
  return changed;
}

Case WithoutBias(const Case& c) {
  Case changed = ProblemOf(c);
  if (changed.bias) std::ranges::fill(*changed.bias, 0.0f);
  if (changed.bias_i32) std::ranges::fill(*changed.bias_i32, 0);
  return changed;
}

}  // namespace

bool Reals::empty() const {
  return low && high && (*low > *high || (*low == *high && !(low_closed && high_closed)));
}

bool Reals::Contains(const Rational& value) const {
  if (low && (value < *low || (value == *low && !low_closed))) return false;
  return !(high && (value > *high || (value == *high && !high_closed)));
}

void Reals::Meet(const Reals& other) {
  if (other.low && (!low || *other.low >= *low)) {
    low_closed = other.low_closed && (!low || *other.low > *low || low_closed);
    low = other.low;
  }
  if (other.high && (!high || *other.high <= *high)) {
    high_closed = other.high_closed && (!high || *other.high < *high || high_closed);
    high = other.high;
  }
}

std::optional<std::pair<float, float>> FloatsIn(const Reals& reals) {
  if (reals.empty()) return std::nullopt;
  const float infinity = std::numeric_limits<float>::infinity();
  float low = -FLT_MAX, high = FLT_MAX;
  // Rounding may end one float32 beyond the bound.
  if (reals.low) {
    low = std::max(RoundToFloat32(*reals.low), -FLT_MAX);
    while (std::isfinite(low) && ToRational(low) <= *reals.low && !reals.Contains(ToRational(low)))
      low = std::nextafter(low, infinity);
  }
  if (reals.high) {
    high = std::min(RoundToFloat32(*reals.high), FLT_MAX);
    while (std::isfinite(high) && ToRational(high) >= *reals.high &&
           !reals.Contains(ToRational(high)))
      high = std::nextafter(high, -infinity);
  }
  if (!(low <= high) || !reals.Contains(ToRational(low))) return std::nullopt;
  return std::pair{low, high};
}

std::pair<double, double> NearBounds(const Reals& reals) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {reals.low ? static_cast<double>(*reals.low) : -kInfinity,
          reals.high ? static_cast<double>(*reals.high) : kInfinity};
}

Reals ValuesGiving(const Case& c, const Tensor& y, int64_t index) {
  if (c.out_dtype == DType::kF32) return ValuesGivingFloat(y.FloatAt(index), c.relu);
  const int64_t channel = index % c.N;
  const int64_t lo = LowerBound(c, channel), hi = c.out_max, code = y.IntAt(index);
  if (code > hi || (code < lo && code != hi)) return Reals::None();
  if (lo >= hi) return {};
  if (c.op == Op::kQuantize && !std::isfinite(c.x.FloatAt(index))) {
    const float x = c.x.FloatAt(index);
    const int64_t given = std::isnan(x) ? c.out_q.zero_point_at(channel) : x > 0 ? hi : lo;
    return std::clamp(given, lo, hi) == code ? Reals() : Reals::None();
  }
  const int64_t rounded = code - c.out_q.zero_point_at(channel);
  return Rounding(code == lo ? std::nullopt : std::optional(rounded),
                  code == hi ? std::nullopt : std::optional(rounded));
}

bool IsLinearInScales(const Case& c) {
  return c.op != Op::kTable && c.op != Op::kSoftmax && c.op != Op::kChooseQParams &&
         c.op != Op::kCast && c.out_dtype != DType::kS32 && c.w_block == 0 && !HasFloatX(c);
}

struct ScaleParts::At {
  explicit At(Case problem) : c(std::move(problem)), outputs(c) {}
  Rational Exactly(int64_t i) const { return Value(outputs.ScaledAt(i / c.N, i % c.N)); }
  // Nothing where the value is a sum, which doubles may cancel.
  std::optional<double> Nearly(int64_t i) const {
    const Scaled scaled = outputs.ScaledAt(i / c.N, i % c.N);
    if (scaled.line.offset != 0) return std::nullopt;
    return ToReal(scaled.line, scaled.integer).value;
  }

  const Case c;
  const Outputs outputs;
};

ScaleParts::ScaleParts(const Case& low, const Case& high, Form form)
    : form_(form),
      low_(std::make_shared<const At>(low)),
      high_(form == Form::kDivides || form == Form::kWhole ? low_
                                                           : std::make_shared<const At>(high)) {}

ScaleParts::ScaleParts(const Case& c, Printed::List list)
    : ScaleParts(WithAll(c, list, 1), WithAll(c, list, 2),
                 list == Printed::List::kOutScale ? Form::kDivides : Form::kFromOne) {}

ScaleParts ScaleParts::OfBias(const Case& c) {
  return {WithoutBias(c), ProblemOf(c), Form::kFromZero};
}

ScaleParts ScaleParts::OfValue(const Case& c) {
  const Case problem = ProblemOf(c);
  return {problem, problem, Form::kWhole};
}

Rational ScaleParts::Factor(int64_t index) const {
  const Rational low = low_->Exactly(index);
  return low_ == high_ ? low : Rational(high_->Exactly(index) - low);
}

Rational ScaleParts::Rest(int64_t index) const {
  if (low_ == high_) return 0;
  const Rational low = low_->Exactly(index);
  return form_ == Form::kFromZero ? low : Rational(low - Factor(index));
}

std::optional<ScaleParts::Parts> ScaleParts::Near(int64_t index) const {
  const std::optional<double> low = low_->Nearly(index), high = high_->Nearly(index);
  if (!low || !high) return std::nullopt;
  const double error = (std::abs(*low) + std::abs(*high)) * 0x1p-48;
  if (low_ == high_) return Parts{*low, 0, error};
  const double factor = *high - *low;
  return Parts{factor, form_ == Form::kFromZero ? *low : *low - factor, error};
}

ScaleParts::Parts ScaleParts::AnyNear(int64_t index) const {
  if (const auto near = Near(index); near && std::abs(near->factor) > 4 * near->error) return *near;
  const auto factor = static_cast<double>(Factor(index)), rest = static_cast<double>(Rest(index));
  return {factor, rest, std::max(std::abs(factor), std::abs(rest)) * DBL_EPSILON};
}

std::vector<Reals> ScalesGiving(const Case& c, Printed::List list, const Tensor& y) {
  const ScaleParts parts(c, list);
  std::vector<Reals> met = Meet(c, parts, static_cast<int64_t>(ListOf(c, list).size()), y);
  const Reals positive{Rational(0), std::nullopt, false, true};
  for (Reals& reals : met) {
    reals.Meet(positive);
    if (!parts.divides() || reals.empty()) continue;
    reals = Reciprocals(reals);
    reals.Meet(positive);
  }
  return met;
}

std::vector<Reals> BiasFactorsGiving(const Case& c, const Tensor& y) {
  return Meet(c, ScaleParts::OfBias(c), c.N, y);
}

std::vector<Reals> FactorsGiving(const Case& c, const Tensor& y) {
  return Meet(c, ScaleParts::OfValue(c), c.N, y);
}

}  // namespace qualm::exact
